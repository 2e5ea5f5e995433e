"""Sources of images: Parquet files in the Hub's schema, folders of image files, the embedded digits."""

from __future__ import annotations

import importlib
import io
import json
import os
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from importlib import resources
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from openauc._columns import import_pyarrow, open_parquet
from openauc._validation import check_choice, check_fraction, import_extra, named

SourcePart = Literal["train", "test"]
"""The two parts of a source; `OpenSetData` takes its validation part from the training part."""

# Below this side, switching between threads costs more than decoding.
_THREADED_SIDE = 128
_IMAGE_COLUMNS = ("image", "img")
LABEL_COLUMNS = ("label", "fine_label")  # names of the column of labels, the most likely first
_IMAGE_SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp"})
_HEIF_SUFFIXES = frozenset({".heic", ".heif"})
IMAGE_SUFFIXES = _IMAGE_SUFFIXES | _HEIF_SUFFIXES | {".avif", ".tif", ".tiff"}
"""Suffixes of image files, whether they can be read here or not."""
_TEST_FOLDERS = ("test", "validation", "valid", "val")
_SHARD = re.compile(r"-(\d+)-of-(\d+)")


class EncodedImage(NamedTuple):
    """One compressed image: a cell of a Parquet file or, where `content` is None, a file of its own."""

    file: Path
    row: int | None = None
    content: bytes | None = None

    def __str__(self) -> str:
        return str(self.file) if self.row is None else f"{self.file}, row {self.row}"

    def read(self, convert: Callable[[Any], Any]) -> Any:
        """What ``convert`` makes of the Pillow image."""
        if self.content == b"":
            raise ValueError(f"{self} has no image bytes; remove the row or put the image in.")
        pillow = _optional_import("PIL.Image")
        try:
            with pillow.open(self.file if self.content is None else io.BytesIO(self.content)) as image:
                return convert(image)
        except FileNotFoundError:
            raise FileNotFoundError(f"there is no image {self}.") from None
        except (OSError, SyntaxError, ValueError, pillow.DecompressionBombError) as error:
            foreign = self.content is None and self.file.suffix.lower() in IMAGE_SUFFIXES - readable_suffixes()
            remedy = "convert it to .png, or pip install pillow-heif for .heic"
            advice = remedy if foreign else "fetch it again or remove it"
            raise ValueError(f"{self} holds no readable image ({error}); {advice}.") from error

    def decode(self, image_size: int) -> NDArray[np.uint8]:
        """Return RGB pixels (image_size, image_size, 3), resized without keeping the aspect ratio."""
        rgb = self.read(lambda image: image.convert("RGB"))
        if rgb.size != (image_size, image_size):
            rgb = rgb.resize((image_size, image_size), _optional_import("PIL.Image").Resampling.BILINEAR)
        return np.asarray(rgb, dtype=np.uint8)


class LazyImages:
    """Images that stay compressed and are decoded when indexed, for sets too large to hold in memory.

    Each image is resized to a side of S = `image_size` (bilinear, aspect ratio not kept). Indexing follows numpy: an
    integer gives uint8 pixels (S, S, 3); a slice, an index array or a mask gives (n, S, S, 3).
    """

    dtype = np.dtype(np.uint8)

    def __init__(self, encoded: Sequence[EncodedImage], image_size: int) -> None:
        self.encoded = tuple(encoded)
        self.image_size = image_size

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The shape (N, S, S, 3) that all images have once decoded."""
        return (len(self), self.image_size, self.image_size, 3)

    def __len__(self) -> int:
        return len(self.encoded)

    def __getitem__(self, index: int | slice | NDArray[np.integer] | NDArray[np.bool_]) -> NDArray[np.uint8]:
        rows = np.arange(len(self))[index]
        pixels = np.empty((rows.size, *self.shape[1:]), dtype=np.uint8)
        images = [self.encoded[row] for row in rows.ravel().tolist()]
        decode = partial(EncodedImage.decode, image_size=self.image_size)
        with ThreadPoolExecutor() as pool:
            threaded = self.image_size >= _THREADED_SIDE
            # Written as they come, so that a second copy of the whole is never held.
            for slot, image in enumerate((pool.map if threaded else map)(decode, images)):
                pixels[slot] = image
        return pixels.reshape(*rows.shape, *self.shape[1:])


Images = NDArray[Any] | LazyImages
"""uint8, shape (N, H, W, 3): an array, or images that stay compressed until they are indexed. Or features, (N, d)."""


def take(images: Images, index: NDArray[np.integer] | NDArray[np.bool_]) -> Images:
    """Return the images at `index`; compressed images stay compressed."""
    if not isinstance(images, LazyImages):
        return images[index]
    return LazyImages([images.encoded[row] for row in np.arange(len(images))[index]], images.image_size)


def concatenate(first: Images, second: Images) -> Images:
    """Return `first` followed by `second`, which have one size; the result is compressed only if both are."""
    if isinstance(first, LazyImages) and isinstance(second, LazyImages):
        return LazyImages(first.encoded + second.encoded, first.image_size)
    return np.concatenate([first[:], second[:]])


class Examples(NamedTuple):
    """Images and their labels, shape (N,): class ids of the source, or in `OpenSetData` 0..C-1 and -1."""

    images: Images
    labels: NDArray[np.int64]

    def at(self, index: NDArray[np.int64] | NDArray[np.bool_]) -> Examples:
        """Return the examples at `index`; compressed images stay compressed."""
        return Examples(take(self.images, index), self.labels[index])


class Source(Protocol):
    """A data set that a protocol takes its images from: names of classes, and images of each."""

    @property
    def image_size(self) -> int | None:
        """Side of every image, or None where images differ in size and are therefore decoded lazily."""

    def class_names(self, *, root: Path | None) -> tuple[str, ...]:
        """Return the name of each class id."""

    def read(self, part: SourcePart, *, classes: Sequence[int], root: Path | None, image_size: int) -> Examples:
        """Return the examples of `classes`, each image of side `image_size`; no others are decoded."""


@dataclass(frozen=True, kw_only=True)
class ParquetSource:
    """A data set of the Hugging Face Hub: `<split>-*-of-*.parquet` with an image and a label column.

    Files are searched below `<root>/<name>`, where `root` is the argument or the environment variable
    `OPENAUC_DATA`; missing files are downloaded into the Hub's own cache.

    Parameters
    ----------
    name, hub
        Folder in a local mirror, and id on the Hub, None if there is no canonical one.
    image_size
        Side of every image, None where images differ in size.
    config
        Folder of the Hub's repository, for repositories with more than one configuration.
    train, test
        Names of the training part and of the test part in file names; the first name found is used.
    """

    name: str
    hub: str | None
    image_size: int | None
    config: str = ""
    train: tuple[str, ...] = ("train",)
    test: tuple[str, ...] = ("test",)

    def class_names(self, *, root: Path | None) -> tuple[str, ...]:
        """Return the label names in the schema of a local or else a downloaded file; empty where it has none."""
        folder = self._mirror(root)
        local = folder and (self._find(folder, "train") or self._find(folder, "test"))
        file = (local or self._files("train", root))[0]
        with open_parquet(file) as parquet:
            schema = parquet.schema_arrow
        _, label_column = _columns(schema, file)
        described = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
        feature = described.get("info", {}).get("features", {}).get(label_column, {})
        return tuple(feature.get("names", ()))

    def read(self, part: SourcePart, *, classes: Sequence[int], root: Path | None, image_size: int) -> Examples:
        """Return the examples of `classes` in file order; in memory if all images have one size."""
        rows = [row for file in self._files(part, root) for row in _parquet_rows(file, classes)]
        images = LazyImages([image for image, _ in rows], image_size)
        labels = np.array([label for _, label in rows], dtype=np.int64)
        return Examples(images if self.image_size is None else images[:], labels)

    def _files(self, part: SourcePart, root: Path | None) -> list[Path]:
        folder = self._mirror(root)
        if folder and (files := self._find(folder, part)):
            return files
        patterns = [f"{split}-*-of-*.parquet" for split in getattr(self, part)]
        home, cause = folder or f"<root>/{self.name}", None
        if self.hub is None:
            reason = "there is no canonical copy on the Hub"
            remedy = (
                f"Put such files, with the columns 'image' (struct of bytes and path) and 'label', into {home}, or use "
                "Protocol.from_folder on a folder of images"
            )
        else:
            hub = _optional_import("huggingface_hub")
            wanted = [f"{self.config or '*'}/{pattern}" for pattern in patterns]
            try:
                snapshot = hub.snapshot_download(self.hub, repo_type="dataset", allow_patterns=wanted)
                if files := self._find(Path(snapshot), part):
                    return files
                reason = f"the Hub's {self.hub} has none"
            except Exception as error:  # the Hub's errors and those of its HTTP client have no base in common
                cause, summary = error, f"{type(error).__name__}: {error}".partition("\n")[0]
                reason = f"{self.hub} could not be downloaded ({summary})"
            remedy = (
                f"With network access `hf download {self.hub} --repo-type dataset --local-dir {home}` fetches them; "
                "offline, copy that folder from elsewhere"
            )
        nowhere = "no data root was given (`root`, --data-root or OPENAUC_DATA)"
        looked = f"no {' or '.join(patterns)} in {folder}" if folder else nowhere
        raise FileNotFoundError(f"the {part} part of {self.name} is missing: {looked}; {reason}. {remedy}.") from cause

    def _mirror(self, root: Path | None) -> Path | None:
        given = root or os.environ.get("OPENAUC_DATA")
        if not given:
            return None
        if not Path(given).is_dir():
            raise FileNotFoundError(
                f"the data root {str(given)!r} is not a folder; set `root` (--data-root) or OPENAUC_DATA "
                f"to the folder that holds {self.name}/, or leave both out to download from the Hub."
            )
        return Path(given) / self.name

    def _find(self, folder: Path, part: SourcePart) -> list[Path]:
        for split in getattr(self, part):
            found = sorted(folder.rglob(f"{split}-*-of-*.parquet"))
            if self.config:
                found = [file for file in found if file.parent in (folder, folder / self.config)]
            shards = sorted((int(shard[1]), int(shard[2])) for file in found if (shard := _SHARD.search(file.name)))
            if shards != [(number, len(found)) for number in range(len(found))]:
                raise ValueError(
                    f"{found[0].parent} holds {', '.join(file.name for file in found)}, which is not one complete "
                    "set of shards; fetch the missing ones, or remove what belongs to another version."
                )
            if found:
                return found
        return []


def _columns(schema: Any, file: Path) -> tuple[str, str]:
    """Names of the image and the label column of an Arrow schema."""
    types, found = import_pyarrow()[0].types, {field.name: field.type for field in schema}
    image = next((name for name in _IMAGE_COLUMNS if name in found), "")
    label = next((name for name in LABEL_COLUMNS if name in found), "")
    encoded = image and types.is_struct(found[image]) and found[image].get_field_index("bytes") >= 0
    if not (encoded and label and types.is_integer(found[label])):
        columns = ", ".join(f"{name} ({type_})" for name, type_ in found.items())
        raise ValueError(
            f"{file} has the columns {columns}; expected one of {_IMAGE_COLUMNS}, of type struct<bytes: binary, path: "
            f"string>, and one of {LABEL_COLUMNS}, of integers, as on the Hub."
        )
    return image, label


def _parquet_rows(file: Path, classes: Sequence[int]) -> Iterator[tuple[EncodedImage, int]]:
    """Yield each row of `classes` in file order; images of other classes leave memory with their batch."""
    start = 0
    with open_parquet(file) as parquet:
        image_column, label_column = _columns(parquet.schema_arrow, file)
        for batch in parquet.iter_batches(batch_size=1024, columns=[image_column, label_column]):
            labels = batch.column(label_column)
            if labels.null_count:
                row = start + labels.is_null().to_pylist().index(True)
                raise ValueError(f"{file}, row {row} has no label; give it one or remove the row.")
            contents = batch.column(image_column).field("bytes")
            for row in np.flatnonzero(np.isin(labels, classes)).tolist():
                image = EncodedImage(file, start + row, contents[row].as_py())
                if image.content is None:
                    raise ValueError(f"{image} has no image bytes; remove the row or embed the image.")
                yield image, labels[row].as_py()
            start += batch.num_rows


@dataclass(frozen=True, kw_only=True)
class FolderSource:
    """A folder of images, `path/class_name/*.png`, `.jpg` and so on; a class id is the rank of its folder's name.

    With subfolders `path/train` and `path/test` (or `validation`, `valid`, `val`) these are the two parts.
    Otherwise `test_share` of each class, at least one image, is drawn as test part with `seed`.
    """

    path: Path
    test_share: float = 0.2
    seed: int = 0
    image_size = None

    def __post_init__(self) -> None:
        check_fraction("test_share", self.test_share, one=False)
        if not self.path.is_dir():
            raise FileNotFoundError(f"{self.path} is not a folder; expected one with a subfolder of images per class.")

    def class_names(self, *, root: Path | None = None) -> tuple[str, ...]:
        """Return the sorted names of the class folders of both parts; `root` is not used."""
        folders = [child for home in self._homes() for child in home.iterdir() if child.is_dir()]
        return tuple(sorted({folder.name for folder in folders if not folder.name.startswith(".")}))

    def class_ids(self, names: Sequence[str], role: str = "class") -> tuple[int, ...]:
        """Return the ids of classes; `role` is what an error calls a class that has no folder."""
        ids = {name: label for label, name in enumerate(self.class_names())}
        return tuple(ids[check_choice(role, name, ids)] for name in names)

    def read(self, part: SourcePart, *, classes: Sequence[int], root: Path | None, image_size: int) -> Examples:
        """Return the examples of `classes`, by class id and then file name, decoded lazily."""
        names = enumerate(self.class_names())
        files = {label: self._class_files(part, name) for label, name in names if label in classes}
        encoded = [EncodedImage(file) for found in files.values() for file in found]
        labels = np.repeat(np.array(list(files), dtype=np.int64), [len(found) for found in files.values()])
        return Examples(LazyImages(encoded, image_size), labels)

    def _homes(self) -> tuple[Path, ...]:
        """The folders that hold class folders: (train, test), or the path itself."""
        train = self.path / "train"
        if not train.is_dir():
            return (self.path,)
        test = next((self.path / name for name in _TEST_FOLDERS if (self.path / name).is_dir()), None)
        if test is None:
            expected = f"{self.path} has a train folder but none named {', '.join(_TEST_FOLDERS)}"
            raise ValueError(f"{expected}; add one, or pass the train folder itself to have a test part drawn from it.")
        return (train, test)

    def _class_files(self, part: SourcePart, name: str) -> list[Path]:
        homes = self._homes()
        home = homes[-1] if part == "test" else homes[0]
        files = sorted(file for file in (home / name).glob("*") if file.suffix.lower() in readable_suffixes())
        if len(homes) == 2:
            return files
        if len(files) < 2:
            raise ValueError(f"{home / name} holds {len(files)} images; a class needs two, one for each part.")
        # Keyed by name: a class added later leaves the parts of the others as they were.
        order = np.random.default_rng([self.seed, *name.encode()]).permutation(len(files))
        n_test = min(max(1, round(self.test_share * len(files))), len(files) - 1)
        drawn = order[:n_test] if part == "test" else order[n_test:]
        return [files[row] for row in sorted(drawn.tolist())]


@cache
def readable_suffixes() -> frozenset[str]:
    """Suffixes of the image files that can be read here; ``.heic``, from phones, only with pillow-heif."""
    try:
        importlib.import_module("pillow_heif").register_heif_opener()
    except ImportError:
        return _IMAGE_SUFFIXES
    return _IMAGE_SUFFIXES | _HEIF_SUFFIXES


def image_files(path: Path) -> list[EncodedImage]:
    """The images of a folder and its subfolders, by name, or the one file; a warning names unreadable formats."""
    if path.is_file():
        return [EncodedImage(path)]
    if not path.is_dir():
        raise FileNotFoundError(f"there is no folder or image {path}.")
    files = sorted(file for file in path.rglob("*") if file.suffix.lower() in IMAGE_SUFFIXES and file.is_file())
    images = [EncodedImage(file) for file in files if file.suffix.lower() in readable_suffixes()]
    if skipped := [str(file) for file in files if file.suffix.lower() not in readable_suffixes()]:
        warnings.warn(
            f"images in a format that cannot be read here are skipped, {len(skipped):,} of {len(files):,}: "
            f"{named(skipped, 5)}. `pip install pillow-heif` is for .heic; convert others to .png.",
            stacklevel=2,
        )
    if not images:
        suffixes = ", ".join(sorted(readable_suffixes()))
        raise ValueError(f"{path} holds no image ({suffixes}), nor does a folder below it.")
    return images


@dataclass(frozen=True)
class DigitsSource:
    """The 1,797 UCI digits of 8 x 8 pixels inside this package; needs neither Pillow nor pyarrow.

    The test part is every third image of each class in file order (the third, sixth, ...), 596 images; the
    other 1,201 are the training part, whatever the seed.
    """

    image_size = 8

    def class_names(self, *, root: Path | None = None) -> tuple[str, ...]:
        """Return "0" to "9"; `root` is not used."""
        return tuple(map(str, range(10)))

    def read(self, part: SourcePart, *, classes: Sequence[int], root: Path | None, image_size: int) -> Examples:
        """Return the examples of `classes` in file order."""
        if image_size != self.image_size:
            raise ValueError(f"the embedded digits are 8 x 8, not {image_size} x {image_size}; use mnist instead.")
        file = resources.files("openauc.protocols") / "data/digits.npz"
        with file.open("rb") as opened, np.load(opened, allow_pickle=False) as arrays:
            grey, labels = arrays["images"], arrays["labels"].astype(np.int64)
        rank_in_class = (labels[:, np.newaxis] == np.arange(10)).cumsum(axis=0)[np.arange(len(labels)), labels]
        in_part = (rank_in_class % 3 == 0) == (part == "test")
        rows = np.flatnonzero(in_part & np.isin(labels, classes))
        return Examples(np.repeat(grey[rows, :, :, np.newaxis], 3, axis=3), labels[rows])


def _optional_import(module: str) -> Any:
    return import_extra(module, "reading images", "'openauc[train]'; the protocol 'digits' works without")


SOURCES: dict[str, Source] = {
    "digits": DigitsSource(),
    "mnist": ParquetSource(name="mnist", hub="ylecun/mnist", image_size=28),
    "fashion_mnist": ParquetSource(name="fashion_mnist", hub="zalando-datasets/fashion_mnist", image_size=28),
    "svhn": ParquetSource(name="svhn", hub="ufldl-stanford/svhn", image_size=32, config="cropped_digits"),
    "cifar10": ParquetSource(name="cifar10", hub="uoft-cs/cifar10", image_size=32),
    "cifar100": ParquetSource(name="cifar100", hub="uoft-cs/cifar100", image_size=32),
    "tiny_imagenet": ParquetSource(
        name="tiny_imagenet", hub="zh-plus/tiny-imagenet", image_size=64, test=("validation", "valid")
    ),
    "cub": ParquetSource(name="cub", hub=None, image_size=None),
    # The public code trains on FGVC-Aircraft's "trainval".
    "aircraft": ParquetSource(name="aircraft", hub=None, image_size=None, train=("trainval", "train")),
}
"""Sources by name."""


def get_source(source: str | Source) -> Source:
    return SOURCES[check_choice("source", source, SOURCES)] if isinstance(source, str) else source
