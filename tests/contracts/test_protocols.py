"""What every protocol promises: disjoint classes, labels 0..C-1, no unknown class in training."""

import json
import subprocess
import sys
from functools import cache
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from openauc.protocols import PROTOCOLS, SOURCES, LazyImages, OpenSetData
from openauc.protocols.sources import get_source

MIRROR = Path(__file__).resolve().parents[2] / "../shared/data"
CASES = [(name, split) for name, protocol in PROTOCOLS.items() for split in range(len(protocol.splits))]

# A new protocol is covered at once, unless its files are among those the mirror lacks.
EMBEDDED = {name for name, protocol in PROTOCOLS.items() if protocol.of_embeddings}
LACKING = {"aircraft", *(EMBEDDED - {"digits_pixels", "cub_features"})}
TRAIN_CASES = sorted(set(PROTOCOLS) - {"cub"} - LACKING)
TEST_CASES = sorted(set(PROTOCOLS) - LACKING)


@cache
def load(name: str) -> OpenSetData:
    """Split 0, kept so that images are decoded once for all tests."""
    if not name.startswith("digits") and not MIRROR.is_dir():
        pytest.skip("there is no local mirror of the data sets")
    return PROTOCOLS[name].load(0, root=MIRROR)


@pytest.mark.parametrize(("name", "split"), CASES)
def test_classes_are_disjoint_and_grouped_completely(name: str, split: int) -> None:
    protocol = PROTOCOLS[name]
    known, unknown, groups = protocol.splits[split]
    assert len(set(known)) == len(known) > 1
    assert len(set(unknown)) == len(unknown) > 0
    if protocol.known_source == protocol.unknown_source:
        assert not set(known) & set(unknown)
    if groups:
        assert sorted(label for classes in groups.values() for label in classes) == sorted(unknown)


@pytest.mark.parametrize("name", PROTOCOLS)
def test_sources_and_reference_are_given(name: str) -> None:
    protocol = PROTOCOLS[name]
    sources = {protocol.known_source, protocol.unknown_source}
    assert protocol.of_embeddings == (not sources & set(SOURCES))
    assert protocol.reference


def test_split_files_state_their_provenance() -> None:
    files = resources.files("openauc.protocols").joinpath("data").iterdir()
    described = [json.loads(file.read_text()) for file in files if file.name.endswith(".json")]
    assert len(described) == 8
    assert all("github.com" in one["source"] and one["licence"] == "MIT" for one in described)


@pytest.mark.parametrize("name", TRAIN_CASES)
def test_training_part(name: str) -> None:
    data = load(name)
    if PROTOCOLS[name].of_embeddings:
        assert data.train.images.dtype == np.float32
        assert data.train.images.shape[1:] == (PROTOCOLS[name].num_features,)
    else:
        assert data.train.images.dtype == np.uint8
        assert data.train.images.shape[3] == 3
    assert len(data.train.images) == len(data.train.labels)
    assert set(data.train.labels.tolist()) == set(range(data.num_classes))
    assert len(data.validation.labels) == 0, "classes beyond the known ones were read"
    assert len(data.class_names) == data.num_classes


@pytest.mark.parametrize("name", TEST_CASES)
def test_test_part(name: str) -> None:
    data = load(name)
    assert len(data.test.images) == len(data.test.labels) == len(data.test.group)
    assert set(data.test.labels.tolist()) == set(range(-1, data.num_classes))
    assert set(data.test.group[data.test.labels == -1].tolist()) == set(data.split.groups or ["unknown"])
    assert set(data.test.group[data.test.labels >= 0].tolist()) == {"known"}
    sizes_differ = get_source(PROTOCOLS[name].known_source).image_size is None and not PROTOCOLS[name].of_embeddings
    assert isinstance(data.test.images, LazyImages) == sizes_differ


@pytest.mark.parametrize(
    ("name", "known", "unknown"),
    [
        ("mnist", 5899, 4101),
        ("cifar10", 6000, 4000),
        ("cifar+10", 4000, 1000),
        ("cifar+50", 4000, 5000),
        ("tinyimagenet", 1000, 9000),
    ],
)
def test_full_test_parts_have_the_published_counts(name: str, known: int, unknown: int) -> None:
    data = load(name)
    assert np.count_nonzero(data.test.labels >= 0) == known
    assert np.count_nonzero(data.test.labels == -1) == unknown
    assert PROTOCOLS[name].sizes[0][1:] == (known, unknown)


def test_digits_have_a_third_of_each_class_for_testing() -> None:
    # The ten classes hold 178 182 177 183 181 182 181 179 174 180 images; split 0 knows 2 4 5 9 8 3.
    assert np.bincount(load("digits").train.labels).tolist() == [118, 121, 122, 120, 116, 122]
    assert np.bincount(load("digits").test.labels + 1).tolist() == [238, 59, 60, 60, 60, 58, 61]


def test_a_mirror_without_the_training_images_of_a_split_says_so() -> None:
    if len(load("tinyimagenet").train.labels) == 10_000:
        pytest.skip("the mirror is complete")
    with pytest.raises(ValueError, match="of the 20 classes have no training image"):
        _ = PROTOCOLS["tinyimagenet"].load(1, root=MIRROR).train.images


def test_protocols_need_neither_torch_nor_the_libraries_that_read_files() -> None:
    code = (
        "import sys\n"
        "for name in ('torch', 'pyarrow', 'PIL', 'huggingface_hub'): sys.modules[name] = None\n"
        "from openauc.protocols import get_protocol\n"
        "print(get_protocol('digits').load(0).test.images.shape)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.stdout == "(596, 8, 8, 3)\n", ran.stderr
