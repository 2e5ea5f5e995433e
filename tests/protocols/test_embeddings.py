"""Embeddings as a source: where files are looked for, what is refused, how they are made."""

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from openauc._files import cache_folder
from openauc.protocols import Protocol, Split
from openauc.protocols.embeddings import EmbeddingSource, PixelSource
from openauc.protocols.sources import get_source

SOURCE = EmbeddingSource(name="pets", encoder="minilm", width=3, test=("test", "strays"), outside="stray")


def write(path, labels, *, width=3, column="embedding"):
    path.parent.mkdir(parents=True, exist_ok=True)
    values = np.arange(len(labels) * width, dtype=np.float16)
    lists = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(values), width)
    parquet.write_table(pyarrow.table({column: lists, "label": labels}), path)


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAUC_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("OPENAUC_DATA", raising=False)
    data = tmp_path / "data"
    write(data / "embeddings/pets_minilm_train.parquet", ["dog", "cat", "dog", "cat", "emu"])
    write(tmp_path / "embeddings/pets_minilm_test.parquet", ["cat", "dog", "emu"])
    write(tmp_path / "cache/embeddings/pets_minilm_strays.parquet", ["stray"])
    return data


def test_parts_come_from_the_root_from_beside_it_and_from_the_cache(root):
    assert SOURCE.class_names(root=root) == ("cat", "dog", "emu", "stray")
    features, labels = SOURCE.read("test", classes=(0, 2, 3), root=root, image_size=3)
    assert labels.tolist() == [0, 2, 3]
    assert features.dtype == np.float32
    assert features.tolist() == [[0, 1, 2], [6, 7, 8], [0, 1, 2]]


def test_a_protocol_of_embeddings_has_vectors_for_images(root):
    split = Split(known=(1, 0), unknown=(2, 3))
    protocol = Protocol(
        known_source=SOURCE, unknown_source=SOURCE, splits=(split,), num_features=3, reference="pets", backbone="mlp"
    )
    data = protocol.load(0, root=root)
    assert protocol.of_embeddings
    assert data.train.images.shape == (4, 3)
    assert data.train.labels.tolist() == [0, 1, 0, 1]
    assert data.test.labels.tolist() == [1, 0, -1, -1]
    assert data.class_names == ("dog", "cat")


def test_numbers_are_classes_as_they_are(root):
    write(root / "embeddings/pets_minilm_train.parquet", [0, 2, 2])
    assert SOURCE.class_names(root=root) == ("0", "1", "2")
    assert SOURCE.read("train", classes=(2,), root=root, image_size=3).labels.tolist() == [2, 2]


def test_the_environment_names_the_root(root, monkeypatch):
    monkeypatch.setenv("OPENAUC_DATA", str(root))
    assert SOURCE.files("train", None)[0].path.is_file()
    monkeypatch.delenv("OPENAUC_CACHE")
    assert cache_folder("embeddings").parts[-3:] == (".cache", "openauc", "embeddings")


def test_missing_files_come_with_the_command_that_makes_them(root):
    (root / "embeddings/pets_minilm_train.parquet").unlink()
    with pytest.raises(FileNotFoundError, match=r"openauc embed <data>/pets/\*\.parquet --encoder minilm -o "):
        SOURCE.class_names(root=root)
    write(root / "pets/train-00000-of-00001.parquet", ["dog"])
    with pytest.raises(FileNotFoundError, match=r"openauc embed .*train-00000-of-00001\.parquet --encoder minilm"):
        SOURCE.class_names(root=root)


@pytest.mark.parametrize(
    ("labels", "options", "message"),
    [
        (["dog"], {"column": "vector"}, "has the columns vector, label; expected 'embedding' and 'label'"),
        (["dog"], {"width": 4}, r"has embeddings of shape \(4,\); expected 3 features"),
    ],
)
def test_other_files_are_refused(root, labels, options, message):
    write(root / "embeddings/pets_minilm_train.parquet", labels, **options)
    with pytest.raises(ValueError, match=message):
        SOURCE.class_names(root=root)


def test_a_class_of_the_test_part_alone_is_refused(root):
    write(root / "embeddings/pets_minilm_test.parquet", ["yak"])
    with pytest.raises(ValueError, match=r"pets, test part: the training part has no label 'yak'"):
        SOURCE.read("test", classes=(0,), root=root, image_size=3)


def test_pixels_are_the_grey_values():
    images, labels = get_source("digits").read("test", classes=(3,), root=None, image_size=8)
    features, same = PixelSource(source="digits").read("test", classes=(3,), root=None, image_size=64)
    assert same.tolist() == labels.tolist()
    assert features.dtype == np.float32
    np.testing.assert_allclose(features[5].reshape(8, 8) * 255, images[5, :, :, 0], rtol=1e-6)
