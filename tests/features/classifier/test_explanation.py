"""Why a sample is accepted or rejected."""

import numpy as np
import pytest

from openauc.features import OpenSetClassifier
from openauc.features.classifier import explanation, files, splits
from openauc.features.classifier.explanation import probability
from tests.features.samples import blobs


@pytest.fixture(autouse=True, scope="module")
def few_folds():
    """What is asked here does not hang on how often classes are cut anew."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(splits, "FEWEST_FOLDS", 2)
        yield


def fitted(X, y, **options):
    return OpenSetClassifier(random_state=0, **{"folds": 2, **options}).fit(X, y)


@pytest.fixture(scope="module")
def data():
    return blobs(5, 30)


@pytest.fixture(scope="module")
def model(data):
    return fitted(*data)


@pytest.fixture(scope="module")
def new():
    """Of seven classes; the last two are unknown."""
    return blobs(6, 30, seed=1)[0]


def first_feature(features, logits):
    return features[:, 0]


@pytest.mark.parametrize("rejector", ["learned", "average", "entropy", first_feature])
def test_contributions_add_up_for_any_rejector(data, new, rejector):
    model = fitted(*data, rejector=rejector)
    explained = model.explain(new)
    rest = explained.score - sum(explained.contributions.values())
    np.testing.assert_allclose(rest, rest[0], atol=1e-9)
    np.testing.assert_array_equal(explained.score, model.open_score(new))
    np.testing.assert_array_equal(explained.predicted, model.classify(new))
    np.testing.assert_array_equal(explained.unknown, model.predict(new) == -1)
    assert explained.unknown.any()
    assert not explained.unknown.all()


def test_a_score_and_its_value_by_class_are_one_contribution(model, new):
    assert any(name.endswith("_by_class") for name in model.rejector_.names)
    names = {name.removesuffix("_by_class") for name in model.rejector_.names}
    assert set(model.explain(new).contributions) == names


@pytest.mark.parametrize("rejector", ["learned", "entropy"])  # with and without the score `distance`
def test_the_nearest_rows_are_those_of_the_training_data(data, new, rejector):
    X, y = data
    weight = np.where(np.arange(len(X)) % 7, 1.0, 0.0)  # left out
    outliers = np.arange(len(X)) % 10 == 9
    labels = np.where(outliers, -1, y)
    model = OpenSetClassifier(random_state=0, folds=2, rejector=rejector, scaling="embedding", seen_by_encoder=False)
    model.fit(X, labels, sample_weight=weight)
    explained = model.explain(new)
    distance = np.linalg.norm(new[:, None] - X, axis=2)
    distance[:, (weight == 0) | outliers] = np.inf
    np.testing.assert_array_equal(explained.nearest_rows, np.argsort(distance, axis=1)[:, :3])
    np.testing.assert_array_equal(explained.nearest_labels, y[explained.nearest_rows])
    assert (np.diff(explained.nearest_distances, axis=1) >= 0).all()


def test_each_reason_has_its_sentence(data, model):
    X, y = data
    centres = np.stack([X[y == label].mean(0) for label in range(5)])
    middle = (centres[1] + centres[3]) / 2
    assert str(model.explain([centres[2]])) == "known: like `2`"
    assert str(model.explain([20 * centres[2]])) == "unknown: far from everything seen in training"
    strict = fitted(X, y, threshold=-np.inf)
    assert strict.explain([centres[2]]).sentence[0].startswith("like `2`, but ")
    between = strict.explain([middle]).sentence[0]
    assert between in ("between `1` and `3`", "between `3` and `1`", "far from everything seen in training")


def test_rows_less_alike_than_usual_are_told_from_far_ones(data):
    X, y = data
    strict = fitted(X, y, threshold=-np.inf)
    centre = X[y == 0].mean(0)
    away = centre / np.linalg.norm(centre)
    said = strict.explain(centre + np.linspace(0, 12, 60)[:, None] * away).sentence.tolist()
    kinds = [next(i for i, word in enumerate(("higher than", "less alike", "far from")) if word in one) for one in said]
    assert kinds == sorted(kinds)
    assert set(kinds) == {0, 1, 2}


def test_probabilities_hold_for_the_share_that_is_given():
    rng = np.random.default_rng(0)
    known, unknown = rng.normal(size=3000), rng.normal(1.5, 1, size=3000)
    is_unknown = rng.random(20_000) < 0.2
    score = rng.normal(size=20_000) + 1.5 * is_unknown
    p, share = probability(score, known, unknown, 0.2)
    assert share == 0.2
    for low in np.arange(0, 1, 0.2):
        some = (p >= low) & (p < low + 0.2)
        error = 3 * np.sqrt(0.25 / some.sum()) + 0.04  # that of the curve
        assert is_unknown[some].mean() == pytest.approx(p[some].mean(), abs=error)


@pytest.mark.parametrize("share", [0.0, 0.05, 0.5, 1.0])
def test_the_share_is_estimated_from_the_batch(share):
    rng = np.random.default_rng(1)
    is_unknown = np.arange(4000) < share * 4000
    score = rng.normal(size=4000) + 2 * is_unknown
    _, found = probability(score, rng.normal(size=2000), rng.normal(2, 1, size=2000), None)
    assert found == pytest.approx(share, abs=0.04)


def test_a_score_that_overflows_is_surely_unknown():
    p, _ = probability([np.nan, np.inf, -np.inf], [-np.inf, 1.0, 2.0], [2.0, 3.0, np.inf], 0.5)
    assert p[0] == p[1] > 0.5 > p[2]


def test_features_near_the_largest_float_are_far(model):
    explained = model.explain(np.full((1, 6), 1e300))
    assert str(explained) == "unknown: far from everything seen in training"


def test_without_held_out_classes_there_is_no_probability():
    X, y = blobs(2, 20)
    explained = fitted(X, y).explain(X)
    assert explained.p_unknown is None
    assert "p_unknown" not in explained.columns()


def test_large_batches_are_explained_in_parts(model, new, monkeypatch):
    whole = model.explain(new)
    monkeypatch.setattr(explanation, "CHUNK", 7)
    parts = model.explain(new)
    np.testing.assert_array_equal(parts.sentence, whole.sentence)
    np.testing.assert_array_equal(parts.nearest_rows, whole.nearest_rows)
    np.testing.assert_allclose(parts.p_unknown, whole.p_unknown, rtol=1e-12)  # products of other sizes round otherwise


def test_a_saved_model_explains_alike_and_keeps_names(model, new, tmp_path):
    model.examples_ = model.examples_.named(np.array([f"row {i}" for i in range(150)]))
    model.save(tmp_path / "model")
    explained, again = model.explain(new), OpenSetClassifier.load(tmp_path / "model").explain(new)
    np.testing.assert_array_equal(again.nearest_names, np.char.add("row ", explained.nearest_rows.astype(str)))
    for name, column in explained.columns().items():
        np.testing.assert_array_equal(again.columns()[name], column)


def test_long_names_are_cut_and_empty_ones_are_rows(model):
    given = np.array([f"{i} {'x' * 10_000}" if i else None for i in range(150)], object)
    examples = model.examples_.named(given)
    names = dict(zip(examples.row.tolist(), examples.names.tolist(), strict=True))
    assert names[0] == "row 0"
    assert {len(name) for row, name in names.items() if row} == {200}


def test_a_model_of_an_older_openauc_says_that_it_cannot_explain(new):
    old = files.load("tests/features/classifier/model_v2")
    with pytest.raises(ValueError, match="fit it again"):
        old.explain(np.zeros((1, old.n_features_in_)))


@pytest.mark.parametrize("share", [-0.1, 0.0, 1.0, 1.5])
def test_a_share_that_is_none_is_refused(model, new, share):
    with pytest.raises(ValueError, match=f"unknown_share.*{share}"):
        model.explain(new, unknown_share=share)
