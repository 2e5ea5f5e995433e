import dataclasses
import pickle
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openauc.protocols import PROTOCOLS, LazyImages, OpenSetData, ParquetSource, Protocol, Sizes, Split
from openauc.protocols.sources import SOURCES, Examples

from .conftest import WriteParquet, png, red

DIGITS = PROTOCOLS["digits"]


@pytest.fixture
def small(write_parquet: WriteParquet, tmp_path: Path) -> Protocol:
    """MNIST with 8 training and 4 test images of each digit; the grey value tells them apart."""
    train = [label for _ in range(8) for label in range(10)]
    test = [label for _ in range(4) for label in range(10)]
    write_parquet("mnist/train-00000-of-00001.parquet", train, class_names=list("abcdefghij"))
    write_parquet("mnist/test-00000-of-00001.parquet", test)
    return protocol(Split(known=(7, 1, 4), unknown=(0, 9)))


def protocol(*splits: Split, **changes: Any) -> Protocol:
    options = {"known_source": "mnist", "unknown_source": "mnist", "image_size": 32, "reference": "a test"}
    return Protocol(splits=splits, **{**options, **changes})


# What is loaded


def test_labels_are_positions_and_unknown_test_images_come_last(small: Protocol, tmp_path: Path) -> None:
    data = small.load(0, root=tmp_path)
    assert data.num_classes == 3
    assert data.class_names == ("h", "b", "e")
    # Grey values of row r are r, and row r is digit r % 10.
    np.testing.assert_array_equal(np.array([7, 1, 4])[data.train.labels], np.array(red(data.train.images)) % 10)
    assert sorted(data.train.labels.tolist()) == [0] * 8 + [1] * 8 + [2] * 8
    assert data.test.labels.tolist() == [1, 2, 0] * 4 + [-1] * 8
    assert (np.array(red(data.test.images)) % 10).tolist() == [1, 4, 7] * 4 + [0, 9] * 4
    assert data.test.group.tolist() == ["known"] * 12 + ["unknown"] * 8
    assert data.test.balanced_index is None
    assert len(data.validation.images) == len(data.validation.labels) == 0


def test_images_of_one_size_keep_it(small: Protocol, tmp_path: Path) -> None:
    data = small.load(0, root=tmp_path)
    assert data.train.images.shape[1:] == data.test.images.shape[1:] == (28, 28, 3)


def test_class_names_fall_back_to_ids(write_parquet: WriteParquet, tmp_path: Path) -> None:
    write_parquet("mnist/test-00000-of-00001.parquet", [0, 1, 2])
    assert protocol(Split((2, 0), (1,))).load(0, root=tmp_path).class_names == ("2", "0")


def test_unknown_images_of_another_source_take_the_size_of_the_known_ones(
    write_parquet: WriteParquet, tmp_path: Path
) -> None:
    write_parquet("mnist/test-00000-of-00001.parquet", [0, 1])
    cells = [png(200, size=(32, 32), mode="RGB")] * 3
    write_parquet("cifar10/test-00000-of-00001.parquet", [0, 1, 2], contents=cells)
    # The same ids on both sides are different classes.
    data = protocol(Split((0, 1), (1, 2)), unknown_source="cifar10").load(0, root=tmp_path)
    assert data.test.images.shape == (4, 28, 28, 3)
    assert red(data.test.images) == [0, 1, 200, 200]
    assert data.test.labels.tolist() == [0, 1, -1, -1]


def test_groups_of_unknown_classes(small: Protocol, tmp_path: Path) -> None:
    grouped = protocol(Split((7, 1), (0, 9, 5), {"easy": (9,), "hard": (0, 5)}))
    data = grouped.load(0, root=tmp_path)
    assert data.test.group.tolist() == ["known"] * 8 + ["hard", "hard", "easy"] * 4
    rows = data.test_rows("easy")
    assert data.test.labels[rows].tolist() == [1, 0] * 4 + [-1] * 4
    assert (np.array(red(data.test.images))[rows[8:]] % 10).tolist() == [9] * 4
    with pytest.raises(ValueError, match=r"group is 'medium'; expected one of 'easy', 'hard'"):
        data.test_rows("medium")


def test_without_unknown_classes_the_test_part_holds_known_images_alone(small: Protocol, tmp_path: Path) -> None:
    closed = protocol(Split((7, 1, 4), ()), sizes=(Sizes(24, 12, 0),))
    data, opened = closed.load(0, root=tmp_path), small.load(0, root=tmp_path)
    assert data.test.labels.tolist() == opened.test.labels[:12].tolist()
    assert red(data.test.images) == red(opened.test.images)[:12]
    assert data.test.group.tolist() == ["known"] * 12
    assert red(data.train.images) == red(opened.train.images)
    assert data.test.balanced_index is None
    held_out = closed.load(0, root=tmp_path, validation=0.25, pseudo_unknown=1)
    assert set(held_out.validation.labels.tolist()) == {-1, 0, 1}
    with pytest.raises(ValueError, match=r"1 of the 2 classes have no known test image \(ids 11\)"):
        _ = protocol(Split((7, 11), ())).load(0, root=tmp_path).test.labels
    with pytest.raises(ValueError, match="there are 12 known test images, but the official part has 11"):
        _ = dataclasses.replace(closed, sizes=(Sizes(24, 11, 0),)).load(0, root=tmp_path).test.labels


def test_files_and_groups_are_kept_beside_predictions(
    small: Protocol, tmp_path: Path, image_folder: Path, write_parquet: WriteParquet
) -> None:
    assert small.load(0, root=tmp_path).test_columns() == {}
    zoo = Protocol.from_folder(image_folder, known=["dog", "ant"], unknown=["cat"], image_size=5)
    data = zoo.load(0, balanced=True)
    (name, files), *others = data.test_columns().items()
    assert (name, others) == ("file", [])
    assert [Path(file).parent.name for file in files] == [
        "cat" if label == -1 else data.class_names[label] for label in data.test.labels
    ]
    assert all(Path(file).is_file() for file in files)
    grouped = dataclasses.replace(zoo, splits=(Split((0, 1), (2, 3), {"near": (2,), "far": (3,)}),)).load(0)
    columns = grouped.test_columns()
    assert list(columns) == ["group", "file"]
    assert columns["group"].tolist() == ["known"] * 4 + ["near"] * 2 + ["far"] * 2
    # Compressed images inside a Parquet file have no file of their own.
    write_parquet("cub/test-00000-of-00001.parquet", [0, 1])
    assert isinstance(SOURCES["cub"], ParquetSource)
    birds = protocol(Split((0,), (1,)), known_source="cub", unknown_source="cub", image_size=8)
    assert isinstance(birds.load(0, root=tmp_path).test.images, LazyImages)
    assert birds.load(0, root=tmp_path).test_columns() == {}


@dataclasses.dataclass
class CountingSource:
    """Two images of each class, and a record of what was asked for."""

    asked: list[tuple[str, tuple[int, ...]]] = dataclasses.field(default_factory=list)

    @property
    def image_size(self) -> int:
        return 2

    def class_names(self, *, root: Path | None) -> tuple[str, ...]:
        return ("zero", "one", "two")

    def read(self, part: Any, *, classes: Any, root: Path | None, image_size: int) -> Examples:
        self.asked.append((part, tuple(classes)))
        labels = np.repeat(np.array(classes, dtype=np.int64), 2)
        return Examples(np.zeros((len(labels), 2, 2, 3), dtype=np.uint8), labels)


def test_parts_are_read_once_and_only_when_asked_for() -> None:
    source = CountingSource()
    data = protocol(Split((2, 0), (1,)), known_source=source, unknown_source=source).load(0)
    assert data.class_names == ("two", "zero")
    assert source.asked == []
    for _ in range(2):
        assert len(data.train.images) == len(data.train.labels) == 4
        assert len(data.validation.images) == 0
    assert source.asked == [("train", (2, 0))]
    for _ in range(2):
        assert len(data.test.images) == len(data.test.labels) == len(data.test.group) == 6
    assert source.asked == [("train", (2, 0)), ("test", (2, 0)), ("test", (1,))]


def test_the_test_part_needs_no_training_files(write_parquet: WriteParquet, tmp_path: Path, offline: None) -> None:
    write_parquet("mnist/test-00000-of-00001.parquet", [0, 1, 2])
    data = protocol(Split((0, 1), (2,))).load(0, root=tmp_path)
    assert data.test.labels.tolist() == [0, 1, -1]
    with pytest.raises(FileNotFoundError, match="the train part of mnist is missing"):
        _ = data.train.images


def test_data_can_be_sent_to_another_process() -> None:
    data = pickle.loads(pickle.dumps(DIGITS.load(0, validation=0.2)))
    assert isinstance(data, OpenSetData)
    assert data.test.labels.tolist() == DIGITS.load(0).test.labels.tolist()


# Draws


@given(seed=st.integers(0, 2**32), validation=st.floats(0.01, 0.99), split=st.integers(0, 4))
def test_validation_divides_each_known_class(seed: int, validation: float, split: int) -> None:
    data, whole = DIGITS.load(split, validation=validation, seed=seed), DIGITS.load(split)
    kept, held = np.bincount(data.train.labels), np.bincount(data.validation.labels)
    counts = np.bincount(whole.train.labels)
    np.testing.assert_array_equal(kept + held, counts)
    np.testing.assert_array_equal(held, np.clip(np.rint(validation * counts), 1, counts - 1))
    together = np.concatenate([data.train.images[:], data.validation.images[:]])
    assert sorted(map(bytes, together)) == sorted(map(bytes, whole.train.images[:]))


@given(seed=st.integers(0, 2**32), split=st.integers(0, 4))
def test_balanced_test_part_is_drawn_without_replacement(seed: int, split: int) -> None:
    data, whole = DIGITS.load(split, balanced=True, seed=seed), DIGITS.load(split)
    index = data.test.balanced_index
    assert index is not None
    assert len(np.unique(index)) == len(index)
    unknown = int(np.count_nonzero(whole.test.labels == -1))
    assert np.count_nonzero(data.test.labels == -1) == np.count_nonzero(data.test.labels >= 0) == unknown
    np.testing.assert_array_equal(data.test.labels, whole.test.labels[index])
    np.testing.assert_array_equal(data.test.group, whole.test.group[index])
    np.testing.assert_array_equal(data.test.images[:], whole.test.images[index])


def test_balancing_shrinks_the_unknown_side_where_that_is_larger() -> None:
    few_known = Protocol(
        known_source="digits",
        unknown_source="digits",
        splits=(Split((3, 5), (0, 1, 2, 4)),),
        image_size=8,
        reference="a test",
    )
    data, whole = few_known.load(0, balanced=True), few_known.load(0)
    known = int(np.count_nonzero(whole.test.labels >= 0))
    assert np.count_nonzero(data.test.labels == -1) == np.count_nonzero(data.test.labels >= 0) == known


def test_draws_repeat_with_the_seed_change_with_it_and_do_not_disturb_each_other() -> None:
    def drawn(**options: Any) -> tuple[bytes, bytes]:
        data = DIGITS.load(0, balanced=True, **{"validation": 0.2, "seed": 3, **options})
        assert data.test.balanced_index is not None
        return np.asarray(data.validation.images[:]).tobytes(), data.test.balanced_index.tobytes()

    validation, balanced = drawn()
    assert drawn() == (validation, balanced)
    other_validation, other_balanced = drawn(seed=4)
    assert other_validation != validation
    assert other_balanced != balanced
    assert drawn(validation=0.0)[1] == balanced


def test_limited_training_parts_are_drawn_without_replacement() -> None:
    whole = DIGITS.load(0, validation=0.1)
    few = whole.limited(220)
    assert len(few.train.labels) == len(few.train.images) == 220
    drawn, all_of_them = (
        Counter(zip(map(bytes, data.train.images[:]), data.train.labels.tolist(), strict=True)) for data in (few, whole)
    )
    assert drawn <= all_of_them
    assert len(whole.limited(10**6).train.labels) == len(whole.train.labels)
    assert few.train.labels.tolist() == whole.limited(220).train.labels.tolist()
    assert few.train.labels.tolist() != whole.limited(220, seed=1).train.labels.tolist()
    for part in ("test", "validation"):
        np.testing.assert_array_equal(getattr(few, part).labels, getattr(whole, part).labels)
    assert len(pickle.loads(pickle.dumps(few)).train.labels) == 220
    with pytest.raises(ValueError, match="train_images is 0; pass a positive number"):
        whole.limited(0)


@pytest.mark.parametrize("count", [1, 2, 4])
def test_pseudo_unknown_classes_leave_training_for_validation(count: int) -> None:
    data, whole = DIGITS.load(1, validation=0.25, pseudo_unknown=count, seed=5), DIGITS.load(1)
    official = DIGITS.splits[1]
    assert data.num_classes == 6 - count
    assert set(data.split.known) | set(data.split.unknown) == set(official.known)
    assert len(data.split.unknown) == count
    assert data.class_names == tuple(map(str, data.split.known))
    assert set(data.train.labels.tolist()) == set(range(6 - count))
    assert set(data.validation.labels.tolist()) == set(range(-1, 6 - count))
    positions = [official.known.index(label) for label in data.split.unknown]
    held_out = whole.train.images[np.isin(whole.train.labels, positions)]
    unknown = data.validation.images[data.validation.labels == -1]
    assert sorted(map(bytes, unknown)) == sorted(map(bytes, held_out))
    assert len(data.train.labels) + len(data.validation.labels) == len(whole.train.labels)


def test_pseudo_unknown_keeps_the_order_of_the_known_classes_and_depends_on_the_seed() -> None:
    drawn = {DIGITS.load(0, validation=0.2, pseudo_unknown=2, seed=seed).split.unknown for seed in range(10)}
    assert len(drawn) > 1
    kept = DIGITS.load(0, validation=0.2, pseudo_unknown=2).split.known
    assert list(kept) == [label for label in DIGITS.splits[0].known if label in kept]


def test_pseudo_unknown_closes_the_test_part() -> None:
    data = DIGITS.load(0, validation=0.2, pseudo_unknown=1)
    with pytest.raises(ValueError, match="the test part is closed: with pseudo_unknown=1"):
        _ = data.test.labels


# What is refused


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"split": 5}, "there is no split 5; this protocol has splits 0 to 4"),
        ({"split": -1}, "there is no split -1"),
        ({"validation": 1.0}, "validation is 1.0"),
        ({"validation": -0.1}, "validation is -0.1"),
        ({"seed": -1}, "seed is -1"),
        ({"validation": 0.2, "pseudo_unknown": 5}, "of 6 known classes, hold out 0 to 4"),
        ({"validation": 0.2, "pseudo_unknown": -1}, "pseudo_unknown is -1"),
        ({"pseudo_unknown": 1}, "pseudo_unknown needs known validation images"),
    ],
)
def test_load_refuses(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DIGITS.load(**{"split": 0, **options})


@pytest.mark.parametrize(
    ("split", "message"),
    [
        (Split((), (1,)), "known is ()"),
        (Split((-1, 2), (1,)), "known is (-1, 2); expected class ids, at least one, none negative"),
        (Split((1, 2), (-1,)), "unknown is (-1,)"),
        (Split((1, 2, 1), (3,)), "known (1, 2, 1) names a class twice"),
        (Split((1, 2), (3, 3)), "unknown (3, 3) names a class twice"),
        (Split((1, 2), (2, 3)), "split 0: the classes [2] are both known and unknown"),
        (Split((1,), (2, 3), {"easy": (2,)}), "the groups ['easy'] do not divide"),
        (Split((1,), (2, 3), {"easy": (2, 3), "hard": (3,)}), "the groups ['easy', 'hard'] do not divide"),
    ],
)
def test_a_split_is_checked(split: Split, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        protocol(split)


def test_a_protocol_is_checked() -> None:
    split = Split((1,), (2,))
    with pytest.raises(ValueError, match="at least one split"):
        protocol()
    with pytest.raises(ValueError, match="there are 2 sizes for 1 splits"):
        protocol(split, sizes=(Sizes(1, 1, 1),) * 2)
    with pytest.raises(ValueError, match="image_size is 0"):
        protocol(split, image_size=0)
    with pytest.raises(ValueError, match="Did you mean 'mnist'"):
        protocol(split, known_source="mnits")
    with pytest.raises(ValueError, match=r"default_recipe is 'pluss'; expected one of .*Did you mean 'plus'"):
        protocol(split, default_recipe="pluss")


def test_classes_without_images_are_named(small: Protocol, tmp_path: Path, write_parquet: WriteParquet) -> None:
    data = protocol(Split((7, 11), (0, *range(20, 27)))).load(0, root=tmp_path)
    with pytest.raises(ValueError, match=r"1 of the 2 classes have no training image \(ids 11\)"):
        _ = data.train.images
    with pytest.raises(ValueError, match=r"1 of the 2 classes have no known test image \(ids 11\)"):
        _ = data.test.images
    with pytest.raises(ValueError, match=r"7 of the 8 classes have no unknown test image \(ids 20, .* 24, 2 more\)"):
        _ = protocol(Split((7,), (0, *range(20, 27)))).load(0, root=tmp_path).test.images


@pytest.mark.parametrize(
    ("sizes", "part", "message"),
    [
        (Sizes(23, 12, 8), "train", "there are 24 training images, but the official part has 23"),
        (Sizes(24, 11, 8), "test", "there are 12 known test images"),
        (Sizes(24, 12, 7), "test", "there are 8 unknown test images"),
    ],
)
def test_more_images_than_official_are_refused(
    small: Protocol, tmp_path: Path, sizes: Sizes, part: str, message: str
) -> None:
    data = dataclasses.replace(small, sizes=(sizes,)).load(0, root=tmp_path)
    with pytest.raises(ValueError, match=message):
        getattr(data, part)


def test_fewer_images_than_official_are_a_subset(small: Protocol, tmp_path: Path) -> None:
    official = Sizes(1000, 1000, 1000)
    data = dataclasses.replace(small, sizes=(official,)).load(0, root=tmp_path)
    assert len(data.train.labels) == 24


def test_validation_needs_two_images(write_parquet: WriteParquet, tmp_path: Path) -> None:
    write_parquet("mnist/train-00000-of-00001.parquet", [0, 0, 1])
    data = protocol(Split((0, 1), (2,))).load(0, root=tmp_path, validation=0.5)
    with pytest.raises(ValueError, match="position 1 has one training image; validation needs two"):
        _ = data.train.images


# Duplicates


def test_duplicate_splits_compare_sets_of_known_classes() -> None:
    splits = Split((1, 2), (3,)), Split((2, 1), (4,)), Split((1, 3), (2,)), Split((1, 2), (3,))
    assert protocol(*splits).duplicate_splits() == ((0, 1), (0, 3), (1, 3))


# Folders


def test_from_folder(image_folder: Path) -> None:
    zoo = Protocol.from_folder(image_folder, known=["dog", "ant"], unknown=["cat"], image_size=5, test_share=0.4)
    data = zoo.load(0, validation=0.5)
    assert data.class_names == ("dog", "ant")
    assert isinstance(data.train.images, LazyImages)
    assert isinstance(data.test.images, LazyImages)
    assert data.train.images.shape == data.validation.images.shape == (6, 5, 5, 3)
    np.testing.assert_array_equal(np.array([3, 0])[data.train.labels], np.array(red(data.train.images)) // 10)
    assert data.test.labels.tolist() == [1] * 4 + [0] * 4 + [-1] * 4
    assert (np.array(red(data.test.images)) // 10).tolist() == [0] * 4 + [3] * 4 + [2] * 4


def test_from_folder_keeps_its_test_part_whatever_the_seed_of_load(image_folder: Path) -> None:
    def tested(load_seed: int, folder_seed: int) -> list[int]:
        zoo = Protocol.from_folder(image_folder, known=["ant"], unknown=["cat"], image_size=5, seed=folder_seed)
        return red(zoo.load(0, seed=load_seed).test.images)

    assert tested(0, 0) == tested(1, 0)
    assert tested(0, 0) != tested(0, 1)


def test_from_folder_without_unknown_classes(image_folder: Path) -> None:
    data = Protocol.from_folder(image_folder, known=["dog", "ant"], image_size=5).load(0)
    assert data.split.unknown == ()
    assert sorted(data.test.labels.tolist()) == [0, 0, 1, 1]


def test_from_folder_suggests_a_class(image_folder: Path) -> None:
    with pytest.raises(ValueError, match=r"unknown is 'cta'; expected one of .* Did you mean 'cat'"):
        Protocol.from_folder(image_folder, known=["ant"], unknown=["cta"])


def test_known_arrays_go_with_unknown_folders(image_folder: Path) -> None:
    from openauc.protocols import FolderSource

    mixed = Protocol(
        known_source=SOURCES["digits"],
        unknown_source=FolderSource(path=image_folder),
        splits=(Split((0, 1), (0, 1, 2, 3)),),
        image_size=8,
        reference="a test",
    )
    data = mixed.load(0)
    assert isinstance(data.test.images, np.ndarray)
    assert data.test.images.shape[1:] == (8, 8, 3)
    assert np.count_nonzero(data.test.labels == -1) == 8
