import hashlib
import json
import os
import runpy
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from openauc.protocols.sources import (
    SOURCES,
    EncodedImage,
    Examples,
    FolderSource,
    LazyImages,
    ParquetSource,
    Source,
    concatenate,
    get_source,
    image_files,
    take,
)

from .conftest import WriteParquet, png, red

MNIST = SOURCES["mnist"]


def read(source: Source, part: Any = "train", classes: Any = range(10), **options: Any) -> Examples:
    return source.read(part, classes=classes, **{"root": None, "image_size": source.image_size, **options})


# Parquet: what is read


def test_parquet_gives_rgb_arrays_and_labels_in_file_order(write_parquet: WriteParquet, tmp_path: Path) -> None:
    write_parquet("mnist/train-00000-of-00001.parquet", [3, 1, 4, 1])
    images, labels = read(MNIST, root=tmp_path)
    assert isinstance(images, np.ndarray)
    assert images.dtype == np.uint8
    assert images.shape == (4, 28, 28, 3)
    assert labels.tolist() == [3, 1, 4, 1]
    assert images[2].min() == images[2].max() == 2


def test_parquet_reads_only_the_wanted_classes(write_parquet: WriteParquet, tmp_path: Path) -> None:
    # Row 1 could not be decoded, so decoding it would be noticed.
    write_parquet("mnist/train-00000-of-00001.parquet", [3, 1, 4], contents=[png(7), b"no image", png(9)])
    images, labels = read(MNIST, classes=(4, 3), root=tmp_path)
    assert labels.tolist() == [3, 4]
    assert red(images) == [7, 9]


def test_rows_are_numbered_through_batches(write_parquet: WriteParquet, tmp_path: Path) -> None:
    contents = [png(0)] * 2500
    contents[2100] = b"broken"
    file = write_parquet("mnist/train-00000-of-00001.parquet", [5] * 2500, contents=contents)
    with pytest.raises(ValueError, match=rf"{file}, row 2100 holds no readable image"):
        read(MNIST, root=tmp_path)


def test_the_environment_names_the_mirror(
    write_parquet: WriteParquet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_parquet("mnist/train-00000-of-00001.parquet", [0])
    monkeypatch.setenv("OPENAUC_DATA", str(tmp_path))
    assert read(MNIST).labels.tolist() == [0]


def test_shards_are_joined_in_order(write_parquet: WriteParquet, tmp_path: Path) -> None:
    write_parquet("mnist/train-00001-of-00002.parquet", [2, 3])
    write_parquet("mnist/train-00000-of-00002.parquet", [0, 1])
    assert read(MNIST, root=tmp_path).labels.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("name", "file", "part", "columns"),
    [
        ("cifar10", "cifar10/plain_text/train-00000-of-00001.parquet", "train", ("img", "label")),
        ("cifar100", "cifar100/test-00000-of-00001.parquet", "test", ("img", "fine_label")),
        ("svhn", "svhn/cropped_digits/train-00000-of-00001.parquet", "train", ("image", "label")),
        ("tiny_imagenet", "tiny_imagenet/validation-00000-of-00001.parquet", "test", ("image", "label")),
        (
            "tiny_imagenet",
            "tiny_imagenet/data/valid-00000-of-00001-70d52d.parquet",
            "test",
            ("image", "label"),
        ),
        ("aircraft", "aircraft/trainval-00000-of-00001.parquet", "train", ("image", "label")),
        ("aircraft", "aircraft/train-00000-of-00001.parquet", "train", ("image", "label")),
    ],
)
def test_names_of_files_and_columns_as_on_the_hub(
    write_parquet: WriteParquet, tmp_path: Path, name: str, file: str, part: str, columns: tuple[str, str]
) -> None:
    write_parquet(file, [1, 0], columns=columns, class_names=["zero", "one"])
    source = SOURCES[name]
    images, labels = read(source, part, root=tmp_path, image_size=source.image_size or 16)
    assert labels.tolist() == [1, 0]
    assert images.shape[1:3] == ((source.image_size or 16),) * 2
    assert source.class_names(root=tmp_path) == ("zero", "one")


def test_another_configuration_of_the_same_repository_is_left_out(write_parquet: WriteParquet, tmp_path: Path) -> None:
    write_parquet("svhn/full_numbers/train-00000-of-00001.parquet", [7])
    write_parquet("svhn/cropped_digits/train-00000-of-00001.parquet", [8])
    assert read(SOURCES["svhn"], root=tmp_path).labels.tolist() == [8]


def test_class_names_are_empty_where_the_file_has_none(write_parquet: WriteParquet, tmp_path: Path) -> None:
    write_parquet("mnist/train-00000-of-00001.parquet", [0])
    assert MNIST.class_names(root=tmp_path) == ()


# Parquet: what is refused


def test_a_missing_part_says_what_and_how(tmp_path: Path, offline: None) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        read(MNIST, "test", root=tmp_path)
    message = str(caught.value)
    assert f"the test part of mnist is missing: no test-*-of-*.parquet in {tmp_path / 'mnist'}" in message
    assert "ylecun/mnist could not be downloaded" in message
    assert f"`hf download ylecun/mnist --repo-type dataset --local-dir {tmp_path / 'mnist'}`" in message
    assert "offline, copy" in message


def test_a_missing_part_without_root_says_how_to_name_one(offline: None) -> None:
    with pytest.raises(FileNotFoundError, match=r"no data root was given .* OPENAUC_DATA"):
        read(MNIST)


def test_a_missing_part_that_is_not_on_the_hub(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no canonical copy on the Hub.*'label', into .*cub.*from_folder"):
        read(SOURCES["cub"], root=tmp_path, image_size=32)


def test_a_root_that_is_no_folder(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nowhere' is not a folder; set `root`"):
        read(MNIST, root=tmp_path / "nowhere")


@pytest.mark.parametrize("present", [["train-00000-of-00002"], ["train-00000-of-00001", "train-00000-of-00002"]])
def test_an_incomplete_set_of_shards(write_parquet: WriteParquet, tmp_path: Path, present: list[str]) -> None:
    for stem in present:
        write_parquet(f"mnist/{stem}.parquet", [0])
    with pytest.raises(ValueError, match="not one complete set of shards"):
        read(MNIST, root=tmp_path)


def test_a_truncated_file_is_named(write_parquet: WriteParquet, tmp_path: Path) -> None:
    file = write_parquet("mnist/train-00000-of-00001.parquet", [0] * 100)
    file.write_bytes(file.read_bytes()[:-40])
    with pytest.raises(ValueError, match=rf"{file} is not a readable Parquet file"):
        read(MNIST, root=tmp_path)


def test_a_file_damaged_inside_is_named(write_parquet: WriteParquet, tmp_path: Path) -> None:
    contents = [np.random.default_rng(row).bytes(50) for row in range(100)]
    file = write_parquet("mnist/train-00000-of-00001.parquet", [0] * 100, contents=contents)
    damaged = bytearray(file.read_bytes())
    damaged[4:60] = bytes(56)  # the header of the first page
    file.write_bytes(damaged)
    with pytest.raises(ValueError, match=rf"{file} is not a readable Parquet file"):
        read(MNIST, root=tmp_path)


def test_wrong_columns_are_listed(write_parquet: WriteParquet, tmp_path: Path) -> None:
    write_parquet("mnist/train-00000-of-00001.parquet", [0], columns=("picture", "label"))
    with pytest.raises(ValueError, match=r"has the columns picture \(struct.*, label \(int64\); expected .*'img'"):
        read(MNIST, root=tmp_path)


def test_wrong_column_types_are_named(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    (tmp_path / "mnist").mkdir()
    table = pa.table({"image": pa.array([png(0)]), "label": pa.array(["zero"])})
    pq.write_table(table, tmp_path / "mnist/train-00000-of-00001.parquet")
    with pytest.raises(ValueError, match=r"image \(binary\), label \(string\); expected .* struct<bytes"):
        read(MNIST, root=tmp_path)


def test_a_row_without_label_is_named(write_parquet: WriteParquet, tmp_path: Path) -> None:
    write_parquet("mnist/train-00000-of-00001.parquet", [0, None, 2])
    with pytest.raises(ValueError, match="row 1 has no label"):
        read(MNIST, root=tmp_path)


def test_a_row_without_bytes_is_named(write_parquet: WriteParquet, tmp_path: Path) -> None:
    write_parquet("mnist/train-00000-of-00001.parquet", [0, 1, 2], contents=[png(0), png(1), None])
    with pytest.raises(ValueError, match="row 2 has no image bytes"):
        read(MNIST, root=tmp_path)


@pytest.mark.parametrize(("module", "package"), [("pyarrow.parquet", "pyarrow"), ("PIL.Image", "PIL")])
def test_a_missing_package_names_the_extra(
    write_parquet: WriteParquet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, package: str
) -> None:
    write_parquet("mnist/train-00000-of-00001.parquet", [0])
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf"needs {package} .*openauc\[(train|parquet)\]"):
        read(MNIST, root=tmp_path)


# The Hub, through its own client and a server on this machine


@pytest.fixture
def hub_environment(write_parquet: WriteParquet, tmp_path: Path) -> Iterator[dict[str, str]]:
    """Environment in which the Hub is a local server whose `ylecun/mnist` holds one training file."""
    served = write_parquet("served.parquet", [4, 2], class_names=list("0123456789")).read_bytes()
    files = {"mnist/train-00000-of-00001.parquet": served, "README.md": b"not wanted"}
    commit = "1" * 40

    class Hub(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if "/tree/" in path:
                listing = [
                    {
                        "type": "file",
                        "path": name,
                        "size": len(content),
                        "oid": hashlib.sha1(content).hexdigest(),
                    }
                    for name, content in files.items()
                ]
                self.answer(json.dumps(listing).encode())
            elif path.startswith("/api/datasets/ylecun/mnist"):
                siblings = [{"rfilename": name} for name in files]
                self.answer(json.dumps({"id": "ylecun/mnist", "sha": commit, "siblings": siblings}).encode())
            else:
                self.answer(files[path.partition(f"{commit}/")[2]])

        do_HEAD = do_GET

        def answer(self, body: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("ETag", f'"{hashlib.sha1(body).hexdigest()}"')
            self.send_header("X-Repo-Commit", commit)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        # A proxy of the caller's must not stand between the client and this server.
        yield {
            **os.environ,
            "HF_ENDPOINT": address,
            "HF_HOME": str(tmp_path / "hub"),
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_OFFLINE": "0",
            "NO_PROXY": "127.0.0.1",
        }
        server.shutdown()


def read_in_a_fresh_process(environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Read both parts; the client reads its settings when imported, hence a process of its own."""
    code = (
        "from openauc.protocols import SOURCES; mnist = SOURCES['mnist'];"
        "read = lambda part: mnist.read(part, classes=range(10), root=None, image_size=28).labels.tolist();"
        "print(read('train'), len(mnist.class_names(root=None)), flush=True); read('test')"
    )
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)


def test_download_then_cache_then_what_the_hub_lacks(hub_environment: dict[str, str], tmp_path: Path) -> None:
    downloaded = read_in_a_fresh_process(hub_environment)
    assert downloaded.stdout == "[4, 2] 10\n", downloaded.stderr
    assert not list((tmp_path / "hub").rglob("README.md"))
    assert "FileNotFoundError: the test part of mnist is missing" in downloaded.stderr
    assert "the Hub's ylecun/mnist has none" in downloaded.stderr

    cached = read_in_a_fresh_process({**hub_environment, "HF_HUB_OFFLINE": "1"})
    assert cached.stdout == "[4, 2] 10\n", cached.stderr


# Lazy images


@pytest.fixture
def lazy(image_folder: Path) -> LazyImages:
    """The ten ants, red values 0 to 9, at 5 x 5."""
    return LazyImages([EncodedImage(file) for file in sorted((image_folder / "ant").iterdir())], 5)


def test_lazy_images_index_like_an_array(lazy: LazyImages) -> None:
    array = lazy[:]
    assert len(lazy) == 10
    assert lazy.shape == array.shape == (10, 5, 5, 3)
    assert lazy.dtype == array.dtype
    mask = np.arange(10) % 3 == 0
    for index in (3, -1, slice(2, 8, 2), np.array([7, 0, 7]), mask, np.array([], dtype=np.int64)):
        np.testing.assert_array_equal(lazy[index], array[index])
    with pytest.raises(IndexError):
        lazy[10]


def test_lazy_images_are_decoded_only_when_indexed(tmp_path: Path) -> None:
    (tmp_path / "good.png").write_bytes(png(5))
    (tmp_path / "bad.png").write_bytes(b"nothing")
    images = LazyImages([EncodedImage(tmp_path / "good.png"), EncodedImage(tmp_path / "bad.png")], 28)
    assert red(take(images, np.array([0]))) == [5]
    with pytest.raises(ValueError, match=r"bad\.png holds no readable image"):
        images[1]


def test_large_images_are_decoded_by_threads_to_the_same_pixels(lazy: LazyImages) -> None:
    from PIL import Image

    large = LazyImages(lazy.encoded, 200)[np.array([4, 2])]
    for pixels, row in zip(large, (4, 2), strict=True):
        with Image.open(lazy.encoded[row].file) as image:
            expected = np.asarray(image.resize((200, 200), Image.Resampling.BILINEAR))
        np.testing.assert_array_equal(pixels, expected)


def test_take_and_concatenate_keep_images_compressed(lazy: LazyImages) -> None:
    first, second = take(lazy, np.array([1, 0])), take(lazy, np.arange(10) > 7)
    both = concatenate(first, second)
    assert isinstance(both, LazyImages)
    assert red(both) == [1, 0, 8, 9]


def test_concatenate_with_an_array_gives_an_array(lazy: LazyImages) -> None:
    black = np.zeros((2, 5, 5, 3), dtype=np.uint8)
    both = concatenate(black, take(lazy, np.array([6])))
    assert isinstance(both, np.ndarray)
    assert red(both) == [0, 0, 6]


@pytest.mark.parametrize("mode", ["L", "1", "P", "RGBA", "CMYK"])
def test_every_colour_mode_becomes_rgb(tmp_path: Path, mode: str) -> None:
    from PIL import Image

    suffix = "jpg" if mode == "CMYK" else "png"
    Image.new("RGB", (8, 8), (255, 255, 255)).convert(mode).save(tmp_path / f"white.{suffix}")
    pixels = EncodedImage(tmp_path / f"white.{suffix}").decode(8)
    assert pixels.shape == (8, 8, 3)
    assert pixels.min() >= 250


# Folders


def test_folder_parts_are_stratified_and_divide_the_images(image_folder: Path) -> None:
    source = FolderSource(path=image_folder, test_share=0.3)
    train, test = read(source, "train", image_size=6), read(source, "test", image_size=6)
    assert source.class_names() == ("ant", "bee", "cat", "dog")
    assert np.bincount(train.labels).tolist() == [7, 7, 7, 7]
    assert np.bincount(test.labels).tolist() == [3, 3, 3, 3]
    assert sorted(red(train.images) + red(test.images)) == list(range(40))
    np.testing.assert_array_equal(np.array(red(test.images)) // 10, test.labels)


def test_folder_parts_depend_on_the_seed_and_on_nothing_else(image_folder: Path) -> None:
    def drawn(seed: int) -> list[int]:
        return red(read(FolderSource(path=image_folder, seed=seed), "test", [2, 3], image_size=6).images)

    before = drawn(0)
    assert before != drawn(1)
    (image_folder / "aardvark").mkdir()
    (image_folder / ".cache").mkdir()
    after = FolderSource(path=image_folder)
    assert red(read(after, "test", [3, 4], image_size=6).images) == before


@pytest.mark.parametrize("test_name", ["test", "val"])
def test_folder_with_parts_of_its_own(image_folder: Path, test_name: str) -> None:
    root = image_folder.parent / "parts"
    root.mkdir()
    image_folder.rename(root / "train")
    (root / test_name / "eel").mkdir(parents=True)
    (root / test_name / "eel" / "only.jpeg").write_bytes(png(77))
    source = FolderSource(path=root)
    assert source.class_names() == ("ant", "bee", "cat", "dog", "eel")
    assert np.bincount(read(source, "train", image_size=6).labels).tolist() == [10] * 4
    test = read(source, "test", image_size=6)
    assert test.labels.tolist() == [4]
    assert red(test.images) == [77]


def test_folder_with_a_training_part_only(image_folder: Path) -> None:
    image_folder.rename(image_folder.parent / "train")
    with pytest.raises(ValueError, match="has a train folder but none named test"):
        FolderSource(path=image_folder.parent).class_names()


def test_folder_class_with_too_few_images(image_folder: Path) -> None:
    (image_folder / "eel").mkdir()
    (image_folder / "eel" / "notes.txt").write_text("no image")
    with pytest.raises(ValueError, match="eel holds 0 images"):
        read(FolderSource(path=image_folder), image_size=6)


def test_folder_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="is not a folder; expected one with a subfolder"):
        FolderSource(path=tmp_path / "nowhere")


@pytest.mark.parametrize("share", [0.0, 1.0, 20])
def test_folder_share_is_a_fraction(image_folder: Path, share: float) -> None:
    with pytest.raises(ValueError, match="test_share is"):
        FolderSource(path=image_folder, test_share=share)


def test_image_files_of_a_folder_are_found_below_it_and_sorted(image_folder: Path) -> None:
    (image_folder / "notes.txt").write_text("no image")
    (image_folder / "folder.png").mkdir()
    (image_folder / "cat" / "deeper").mkdir()
    (image_folder / "cat" / "deeper" / "last.JPEG").write_bytes(png(1))
    found = image_files(image_folder)
    assert len(found) == 41
    assert [image.file for image in found] == sorted(image.file for image in found)
    assert {image.file.suffix for image in found} == {".png", ".PNG", ".JPEG"}
    assert red(LazyImages(found[:3], 5)) == [0, 1, 2]


def test_image_files_of_one_file(image_folder: Path) -> None:
    (image,) = image_files(image_folder / "cat" / "03.PNG")
    assert str(image) == str(image_folder / "cat" / "03.PNG")
    assert red(LazyImages([image], 5)) == [23]


def test_image_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no folder or image .*nowhere"):
        image_files(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"holds no image \(.*\.jpg, \.png, \.webp\), nor does a folder below it"):
        image_files(tmp_path)


# Embedded digits


def test_digits_are_scikit_learns(tmp_path: Path) -> None:
    datasets = pytest.importorskip("sklearn.datasets")
    digits = datasets.load_digits()
    source = SOURCES["digits"]
    parts = [read(source, part) for part in ("train", "test")]
    assert [len(part.labels) for part in parts] == [1201, 596]
    restored = np.rint(np.concatenate([part.images for part in parts])[..., 0] * (16 / 255))
    labels = np.concatenate([part.labels for part in parts])
    in_test = np.zeros(1797, dtype=bool)
    for label in range(10):
        in_test[np.flatnonzero(digits.target == label)[2::3]] = True
    np.testing.assert_array_equal(restored, np.concatenate([digits.images[~in_test], digits.images[in_test]]))
    np.testing.assert_array_equal(labels, np.concatenate([digits.target[~in_test], digits.target[in_test]]))


def test_digits_file_is_what_the_script_writes(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    repository = Path(__file__).resolve().parents[2]
    script, written = repository / "examples/make_digits.py", tmp_path / "digits.npz"
    runpy.run_path(str(script))["write_digits"](written)
    with np.load(written) as fresh, np.load(repository / "src/openauc/protocols/data/digits.npz") as shipped:
        for name in ("images", "labels"):
            np.testing.assert_array_equal(fresh[name], shipped[name])


def test_digits_come_in_one_size() -> None:
    with pytest.raises(ValueError, match="digits are 8 x 8, not 28 x 28"):
        read(SOURCES["digits"], image_size=28)


# Names


def test_get_source_takes_names_and_sources() -> None:
    own = ParquetSource(name="own", hub=None, image_size=32)
    assert get_source(own) is own
    assert get_source("mnist") is MNIST
    with pytest.raises(ValueError, match="Did you mean 'cifar100'"):
        get_source("cifar-100")


# The mirror


def test_mirror_in_memory(mirror: Path) -> None:
    images, labels = read(SOURCES["fashion_mnist"], "test", (9, 2), root=mirror)
    assert isinstance(images, np.ndarray)
    assert images.shape == (2000, 28, 28, 3)
    assert labels[:5].tolist() == [9, 2, 2, 2, 9]


def test_mirror_grey_jpegs_become_rgb(mirror: Path) -> None:
    images, labels = read(SOURCES["tiny_imagenet"], "test", classes=[0, 1, 2, 3, 4], root=mirror)
    assert images.shape == (250, 64, 64, 3)
    assert np.bincount(labels).tolist() == [50] * 5


def test_mirror_birds_are_lazy(mirror: Path) -> None:
    images, labels = read(SOURCES["cub"], "test", range(200), root=mirror, image_size=448)
    assert isinstance(images, LazyImages)
    assert images.shape == (400, 448, 448, 3)
    assert images[np.array([0, 399])].std() > 10
    assert np.bincount(labels).tolist() == [2] * 200
