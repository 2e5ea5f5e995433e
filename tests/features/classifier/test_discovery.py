import warnings
from copy import copy

import numpy as np
import pytest

from openauc.features import OpenSetClassifier
from openauc.features.classifier import discovery, splits
from openauc.features.classifier.copies import squared_distances
from openauc.features.classifier.grouping import LEAST, _agreement


@pytest.fixture(autouse=True, scope="module")
def few_folds():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(splits, "FEWEST_FOLDS", 2)
        yield


WIDTH = 48
CENTRES = np.random.default_rng(0).normal(size=(60, WIDTH))
KNOWN = 30


def rows(classes, counts, seed=0, noise=0.9):
    """Rows of some classes, in random order, and their classes."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.repeat(classes, counts))
    return CENTRES[y] + noise * rng.normal(size=(len(y), WIDTH)), y


@pytest.fixture(scope="module")
def model():
    X, y = rows(np.arange(KNOWN), 30)
    return OpenSetClassifier(random_state=0, folds=2).fit(X, np.char.add("class ", y.astype(str)))


@pytest.fixture(scope="module")
def stream():
    """Rows of known classes and of eight new ones of 8 to 120 rows."""
    new = rows(np.arange(KNOWN, KNOWN + 8), [8, 12, 20, 30, 40, 60, 90, 120], seed=1)
    old = rows(np.arange(KNOWN), 10, seed=2)
    return np.concatenate([new[0], old[0]]), np.concatenate([new[1], old[1]])


@pytest.fixture(scope="module")
def found(model, stream):
    return model.discover(stream[0])


def purities(groups, y):
    return np.array([np.bincount(y[group.rows]).max() / group.size for group in groups])


def test_new_kinds_of_any_size_are_found(model, stream, found):
    X, y = stream
    new = [np.bincount(y[group.rows]).argmax() for group in found.groups]
    assert sorted(new) == list(range(KNOWN, KNOWN + 8))
    assert purities(found.groups, y).min() > 0.9
    grouped = found.labels[y >= KNOWN] >= 0
    assert grouped.mean() > 0.9
    np.testing.assert_array_equal(found.unknown, model.predict(X) == "unknown")


def test_groups_are_numbered_by_size_and_their_rows_by_distance(stream, found):
    X, _ = stream
    assert np.all(np.diff([group.size for group in found.groups]) <= 0)
    for number, group in enumerate(found.groups):
        assert sorted(group.rows) == np.flatnonzero(found.labels == number).tolist()
        mine = X[group.rows] - X.mean(axis=0)
        mine /= np.linalg.norm(mine, axis=1, keepdims=True)
        distance = np.linalg.norm(mine - mine.mean(axis=0), axis=1)
        third = max(group.size // 3, 1)
        assert distance[:third].mean() < distance[-third:].mean()


def test_rows_of_known_classes_are_left_alone(stream, found):
    _, y = stream
    rejected = found.unknown & (y < KNOWN)
    assert rejected.sum() >= 5
    assert (found.labels[rejected] < 0).mean() > 0.7


def test_the_same_rows_have_the_same_groups(model, stream, found):
    again = model.discover(stream[0])
    np.testing.assert_array_equal(again.labels, found.labels)
    assert [group.purity for group in again.groups] == [group.purity for group in found.groups]


def test_nearest_known_classes(model, stream, found):
    _X, y = stream
    group = found.groups[0]
    squares = squared_distances(CENTRES[[np.bincount(y[group.rows]).argmax()]], CENTRES[:KNOWN])[0]
    assert len(group.nearest) == 3
    assert group.nearest[0] in [f"class {one}" for one in np.argsort(squares)[:3]]
    assert all(one.piece_of is None for one in found.groups)


def test_a_group_beside_a_known_class_is_a_piece_of_it():
    X, y = rows(np.arange(KNOWN), 30, noise=0.3)
    model = OpenSetClassifier(random_state=0, folds=2, threshold=-50.0).fit(X, np.char.add("class ", y.astype(str)))
    of_class, _ = rows([3], [40], seed=1, noise=0.3)  # rejected by a threshold that rejects all
    new, _ = rows([KNOWN + 1], [40], seed=1, noise=0.3)
    groups = model.discover(np.concatenate([of_class, new])).groups
    assert {group.piece_of for group in groups} == {"class 3", None}
    for group in groups:
        assert (group.piece_of == "class 3") == (group.rows < 40).all()


def test_with_few_known_classes_no_group_is_called_a_piece():
    X, y = rows(np.arange(6), 30, noise=0.3)
    model = OpenSetClassifier(random_state=0, folds=2, threshold=-50.0).fit(X, y)
    (group,) = model.discover(rows([3], [40], seed=1, noise=0.3)[0]).groups
    assert (group.nearest[0], group.piece_of) == (3, None)


@pytest.mark.parametrize(
    ("fewest", "most", "off"),
    [(40, 90, 0.1), (6, 60, 0.15)],  # too high where rows of many small classes join the groups of others
)
def test_purity_lies_in_its_interval_as_often_as_promised(fewest, most, off):
    inside, forecast, real = [], [], []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        classes = rng.permutation(len(CENTRES))
        X, y = rows(classes[:KNOWN], 30, seed=seed, noise=1.9)
        model = OpenSetClassifier(random_state=0, folds=2).fit(X, y)
        T, truth = rows(classes[KNOWN:], rng.integers(fewest, most, len(CENTRES) - KNOWN), seed=seed + 10, noise=1.9)
        groups = model.discover(T).groups
        for group, purity in zip(groups, purities(groups, truth), strict=True):
            low, high = group.purity_interval
            inside.append(low <= purity <= high)
            forecast.append(group.purity)
            real.append(purity)
    assert len(inside) > 60
    assert np.mean(inside) > 0.85
    assert np.mean(forecast) == pytest.approx(np.mean(real), abs=off)
    assert np.mean(real) < 0.97  # or nothing is forecast


def test_copies_are_one_row(model, stream, found):
    X, _y = stream
    one = found.groups[2].rows[0]
    alone = np.flatnonzero(found.unknown & (found.labels < 0))[0]
    copies = np.concatenate([X, np.repeat(X[[one, alone]], 60, axis=0)])
    again = model.discover(copies)
    assert len(again.groups) == len(found.groups)  # sixty copies are no kind
    assert (again.labels[len(X) : len(X) + 60] == again.labels[one]).all()
    assert (again.labels[len(X) + 60 :] == again.labels[alone]).all()


def test_rows_beyond_those_that_are_compared_join_the_groups(model, stream, monkeypatch):
    monkeypatch.setattr(discovery, "SOUGHT", 150)
    X, y = stream
    groups = model.discover(X)
    assert "sought among 150" in groups.notes[0]
    assert purities(groups.groups, y).min() > 0.7
    assert groups.groups[0].size > 90


def test_columns_are_not_turned_to_directions():
    rng = np.random.default_rng(0)
    centres = np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0], [9.0, 9.0], [40.0, 40.0], [80.0, 80.0]])
    y = np.repeat(np.arange(6), 60)
    X = (centres[y] + rng.normal(size=(len(y), 2))) * [1.0, 1000.0]
    model = OpenSetClassifier(random_state=0, folds=2).fit(X[y < 4], y[y < 4])
    assert model.head_with_scores_.scaling.kind == "columns"
    groups = model.discover(X)
    assert {np.bincount(y[group.rows]).argmax() for group in groups.groups} == {4, 5}  # in one direction
    assert "4 known classes" in groups.notes[0]


def test_few_rows_of_few_classes():
    X, y = rows([0, 1], 2, noise=0.2)
    model = OpenSetClassifier(random_state=0, rejector="knn", threshold=0.3).fit(X, y)
    T, truth = rows([40, 41], 20, noise=0.2)
    groups = model.discover(T)
    assert groups.unknown.sum() >= 10
    assert purities(groups.groups, truth).min(initial=1.0) > 0.9


def test_known_classes_of_few_rows_find_large_groups(stream):
    X, y = rows(np.arange(KNOWN), 5, noise=0.9)
    model = OpenSetClassifier(random_state=0, folds=2).fit(X, y)
    T, truth = stream
    groups = model.discover(T)
    found = [np.bincount(truth[group.rows]).argmax() for group in groups.groups]
    assert {KNOWN + 4, KNOWN + 5, KNOWN + 6, KNOWN + 7} <= set(found)
    assert (groups.labels[truth >= KNOWN] >= 0).mean() > 0.6
    assert purities(groups.groups, truth).mean() > 0.9


def test_without_twenty_groups_of_known_classes_the_interval_says_nothing():
    X, y = rows([0, 1], 3, noise=0.2)
    model = OpenSetClassifier(random_state=0, rejector="knn", threshold=0.1).fit(X, y)
    groups = model.discover(rows([40, 41], 30, noise=0.2)[0]).groups
    assert groups
    assert {group.purity_interval for group in groups} == {(0.0, 1.0)}


def test_added_classes_are_not_found_again(model, stream, found, tmp_path):
    X, _ = stream
    model.save(tmp_path / "model")
    extended = OpenSetClassifier.load(tmp_path / "model")
    largest = found.groups[0].rows
    extended.add_classes(X[largest], ["new"] * len(largest))
    T, truth = rows(np.arange(KNOWN, KNOWN + 8), 30, seed=5)
    assert (extended.predict(T[truth == KNOWN + 7]) == "new").mean() > 0.8
    again = [np.bincount(truth[group.rows]).argmax() for group in extended.discover(T).groups]
    assert sorted(again) == list(range(KNOWN, KNOWN + 7))


def test_words(model, stream):
    X, y = stream
    texts = np.array([f"please tell me about thing{one} and things" for one in y])
    groups = model.discover(X, texts=texts).groups
    for group in groups:
        assert group.words[0] == f"thing{np.bincount(y[group.rows]).argmax()}"
        assert "please" not in group.words
    assert all(group.words == () for group in model.discover(X, texts=["!"] * len(X)).groups)


def test_rows_without_a_text_have_no_words(model, stream):
    X, y = stream
    texts = np.array([None if one % 2 else f"thing{one}" for one in y], object)
    words = {word for group in model.discover(X, texts=texts).groups for word in group.words}
    assert words == {f"thing{one}" for one in range(KNOWN, KNOWN + 8, 2)}


def test_tables_with_names_of_columns_are_read_without_a_warning(stream):
    pd = pytest.importorskip("pandas")
    X, y = rows(np.arange(KNOWN), 5)
    names = [f"x{i}" for i in range(WIDTH)]
    model = OpenSetClassifier(random_state=0, folds=2, rejector="knn").fit(pd.DataFrame(X, columns=names), y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = model.discover(pd.DataFrame(stream[0], columns=names)[names[::-1]])
    assert len(found.groups) >= 4


def test_as_a_text(found):
    lines = str(found).splitlines()
    assert len(lines) == 8
    assert lines[0].startswith(f"0: {found.groups[0].size} rows, ")
    assert f"near `{found.groups[0].nearest[0]}`" in lines[0]


def test_agreement_is_that_of_scikit_learn():
    from sklearn.metrics import adjusted_rand_score

    rng = np.random.default_rng(0)
    for most in (1, 3, 50):
        one, other = rng.integers(0, most, (2, 60))
        assert _agreement(one, other) == pytest.approx(adjusted_rand_score(one, other))


class TestBadInput:
    def test_no_rejected_rows(self, model, stream):
        X, _ = stream
        with pytest.raises(ValueError, match=r"none of the \d+ rows is rejected"):
            model.discover(X[model.predict(X) != "unknown"])

    def test_few_rejected_rows(self, model, stream):
        X, y = stream
        with pytest.raises(ValueError, match=r"^7 of 7 rows are rejected; at least 10 different ones"):
            model.discover(X[(y == KNOWN + 7)][:7])

    def test_rejected_rows_that_are_all_alike(self, model):
        with pytest.raises(ValueError, match="50 of 50 rows are rejected, but they are all alike; at least 10"):
            model.discover(np.repeat(CENTRES[[50]], 50, axis=0))

    def test_nothing_in_common(self, model):
        X = 0.3 * np.random.default_rng(0).normal(size=(12, WIDTH))
        groups = model.discover(X)
        assert groups.groups == ()
        assert groups.notes == (f"No {LEAST} rejected rows belong together.",)

    def test_other_width_and_other_number_of_texts(self, model, stream):
        X, _ = stream
        with pytest.raises(ValueError, match="47 features"):
            model.discover(X[:, :-1])
        with pytest.raises(ValueError, match="texts"):
            model.discover(X, texts=["one"])

    def test_a_model_without_examples(self, model, stream):
        old = copy(model)
        del old.examples_
        with pytest.raises(ValueError, match="keeps no training rows"):
            old.discover(stream[0])
