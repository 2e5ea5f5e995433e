"""Rows that belong together are found and stay together."""

import numpy as np
import pytest

from openauc.features import OpenSetClassifier
from openauc.features.classifier import copies, fitting, splits
from openauc.features.classifier.copies import copies_of, find_copies
from openauc.features.classifier.scaling import Scaling
from tests.features.samples import blobs


@pytest.fixture
def few_folds(monkeypatch):
    """What is asked here does not hang on how often classes are cut anew."""
    monkeypatch.setattr(splits, "FEWEST_FOLDS", 2)


def together(groups):
    """Groups of more than one row, as sets of rows."""
    return {frozenset(np.flatnonzero(groups == group).tolist()) for group in groups[np.bincount(groups)[groups] > 1]}


def wide(per_class=20, **options):
    return blobs(3, per_class, width=32, **options)


def jitter(X, size, seed=1):
    """Copies whose squared distance from the row is this share of that between two rows."""
    noise = np.random.default_rng(seed).normal(size=X.shape)
    return X + np.sqrt(2 * size) * noise


# What is found


def test_independent_rows_are_not_copies():
    X, y = wide(200)
    found = find_copies(X, y)
    assert (found.n_copies, found.share_alike, found.conflicts.shape) == (0, 0.0, (0, 2))


@pytest.mark.parametrize("width", [1, 2, 3, 4, 6, 8, 12, 16])
@pytest.mark.parametrize("per_class", [10, 200])
def test_nor_are_they_in_few_dimensions_where_rows_lie_close(width, per_class):
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(3), per_class)
    X = 5 * np.eye(3, width)[y] + rng.normal(size=(len(y), width))
    found = find_copies(X, y)
    assert found.n_copies <= 1 + 0.03 * len(y)
    assert found.share_alike * len(y) <= 1 + 0.03 * len(y)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_equal_rows_are_one_group_wherever_they_are(dtype):
    X, y = wide()
    X = X.astype(dtype)
    X[[5, 17]] = X[2]
    X[41], X[40] = 0.0, -0.0
    found = find_copies(X, y)
    assert together(found.groups) == {frozenset({2, 5, 17}), frozenset({40, 41})}
    assert found.n_copies == 3


@pytest.mark.parametrize("width", [1, 2, 32])
def test_in_any_number_of_dimensions(width):
    X, y = blobs(3, 20, width=width)
    found = find_copies(np.repeat(X, 4, axis=0), np.repeat(y, 4))
    assert found.n_copies >= 180
    for row in range(len(X)):
        assert len(set(found.groups[4 * row : 4 * row + 4])) == 1


@pytest.mark.parametrize(("size", "are_copies", "are_alike"), [(1e-4, 1, 1), (0.02, 1, 1), (0.12, 0, 1), (0.5, 0, 0)])
def test_near_copies_and_rows_that_are_alike(size, are_copies, are_alike):
    X, y = wide()
    X[10:15] = jitter(X[:5], size)
    pairs = {frozenset({row, row + 10}) for row in range(5)}
    found = find_copies(X, y)
    assert together(found.groups) == (pairs if are_copies else set())
    assert together(found.alike) == (pairs if are_alike else set())
    assert found.share_alike == pytest.approx(5 / 60 if are_alike > are_copies else 0.0)


def test_near_rows_of_other_classes_are_not_copies_but_equal_ones_are_told():
    X, y = wide()
    X[50] = jitter(X[:1], 1e-4)[0]
    assert find_copies(X, y).n_copies == 0
    X[50] = X[0]
    found = find_copies(X, y)
    assert together(found.groups) == {frozenset({0, 50})}
    np.testing.assert_array_equal(found.conflicts, [[0, 50]])


def test_given_groups_stay_and_join_with_what_is_found():
    X, y = wide()
    X[7] = X[3]
    given = np.arange(60)
    given[[3, 30]] = 99
    found = find_copies(X, y, given)
    assert together(found.groups) == {frozenset({3, 7, 30})}
    assert together(found.alike) == {frozenset({3, 7, 30})}


def test_a_chain_is_one_group_of_copies_but_not_of_rows_that_are_alike():
    """Each step is small; the ends are as far apart as any two rows."""
    X, y = wide()
    steps = np.linspace(0, 1, 10)[:, None]
    chain = X[0] + steps * (X[1] - X[0])
    X[:10] = chain
    assert together(find_copies(X, y).groups) == {frozenset(range(10))}
    apart = np.linspace(0, 1, 4)[:, None]
    X, y = wide()
    X[:4] = X[0] + apart * (X[1] - X[0])
    alike = together(find_copies(X, y).alike)
    assert all(len(group) == 2 for group in alike)


def test_tiny_classes_are_measured_by_the_others():
    """Two rows have one distance, which is their median one."""
    X, y = wide()
    rows = np.append(np.arange(41), 59)
    assert find_copies(X[rows], y[rows]).n_copies == 0
    X[59] = jitter(X[40:41], 1e-3)[0]
    assert find_copies(X[rows], y[rows]).n_copies == 1


def test_of_many_rows_equal_ones_are_found_everywhere(monkeypatch):
    monkeypatch.setattr(copies, "COMPARED", 10)
    X, y = wide()
    X[19], X[18] = X[1], jitter(X[2:3], 1e-4)[0]
    assert together(find_copies(X, y).groups) == {frozenset({1, 19})}


def test_copies_of_rows_that_were_set_aside():
    X, y = wide(100)
    X[50:55] = jitter(X[:5], 1e-3)
    X[55] = X[0]
    X[150] = X[0]  # of another class
    some, others = np.arange(0, 40), np.arange(40, 300)
    found = copies_of(X, y, some, others, Scaling.of(X, np.arange(300)))
    assert others[found].tolist() == [50, 51, 52, 53, 54, 55]


@pytest.mark.parametrize("width", [2, 4])
def test_in_few_dimensions_hardly_any_row_is_one(width):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(600, width)), np.arange(600) % 2
    found = copies_of(X, y, np.arange(100), np.arange(100, 600), Scaling.of(X, np.arange(600)))
    assert found.mean() < 0.04


# What becomes of them


def test_no_group_is_on_both_sides_of_any_fold(monkeypatch, few_folds):
    seen = []

    def recorded(look):
        def spy(task, train, test):
            seen.append((look.__name__, train, test))
            return look(task, train, test)

        return spy

    for name in ("fit_fold", "fit_and_score"):
        monkeypatch.setattr(fitting, name, recorded(getattr(fitting, name)))
    X, y = wide(20)
    X, y = np.concatenate([X, jitter(X, 1e-4)]), np.append(y, y)  # each row twice
    groups = np.arange(120) % 60 // 2  # and two rows together
    OpenSetClassifier(random_state=0, rejector="average", folds=2, seen_by_encoder=False).fit(X, y, groups=groups)
    assert {name for name, *_ in seen} == {"fit_fold", "fit_and_score"}
    for name, train, test in seen:
        assert len(np.unique(groups[test])) == len(test), "each group counts once"
        inside = np.isin(y[test], y[train])
        assert inside.all() or name == "fit_fold"
        assert not set(groups[train]) & set(groups[test])


def test_groups_across_classes_calibrate_all_classes(few_folds):
    """Ten authors, each of whom wrote of all classes."""
    X, y = wide(40)
    model = OpenSetClassifier(random_state=0, rejector="knn", seen_by_encoder=False, acceptance=0.8)
    model.fit(X, y, groups=np.arange(120) % 10)
    assert len(np.unique(model.calibration_classes_)) == 3
    assert model.report_.small_classes == ()


def test_groups_across_classes_are_dealt_whole():
    y, groups = np.repeat([0, 1, 2], 20), np.arange(60) % 10
    part = splits.deal(y, groups, 5, np.random.RandomState(0))
    assert all(len(set(part[groups == group])) == 1 for group in range(10))


def test_calibration_counts_a_group_once(few_folds):
    X, y = wide(20)
    model = OpenSetClassifier(random_state=0, rejector="knn", seen_by_encoder=False)
    model.fit(np.repeat(X, 4, axis=0), np.repeat(y, 4))
    assert len(model.calibration_scores_) == 60
    assert model.report_.near_copies == 180
    assert any(note.startswith("Copies or near-copies of other rows: 180 of 240") for note in model.report_.notes)
    model.fit(X, y, groups=np.arange(60) // 5)
    assert len(model.calibration_scores_) == 12


@pytest.mark.parametrize("names", [False, True])
def test_equal_rows_with_different_labels_are_named(names, few_folds):
    X, y = wide(20)
    X[50] = X[3]
    labels = np.array(["ant", "bee", "cat"])[y] if names else y
    model = OpenSetClassifier(random_state=0, rejector="knn", seen_by_encoder=False).fit(X, labels)
    one, other = ("'ant'", "'cat'") if names else ("0", "2")
    expected = f"1 pairs of equal rows have different labels, such as rows 3 ({one}) and 50 ({other})"
    assert any(note.startswith(expected) for note in model.report_.notes)


def test_groups_that_cannot_be():
    X, y = wide(5)
    with pytest.raises(ValueError, match="groups has 3 entries but X has 15; pass one"):
        OpenSetClassifier().fit(X, y, groups=[0, 1, 2])
    with pytest.raises(ValueError, match="all rows of each class are copies of one row, or one group"):
        OpenSetClassifier().fit(X, y, groups=y)


def test_groups_of_names_and_of_weightless_rows(few_folds):
    X, y = wide(20)
    groups, weight = np.arange(60) // 2, (np.arange(60) % 10 > 0).astype(float)
    options = {"random_state": 0, "rejector": "knn", "seen_by_encoder": False}
    numbers = OpenSetClassifier(**options).fit(X, y, weight, groups)
    named = OpenSetClassifier(**options).fit(X, y, weight, [f"{group:03}" for group in groups])
    absent = OpenSetClassifier(**options).fit(X[weight > 0], y[weight > 0], weight[weight > 0], groups[weight > 0])
    for other in (named, absent):
        np.testing.assert_array_equal(other.calibration_scores_, numbers.calibration_scores_)
