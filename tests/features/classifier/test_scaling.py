"""Neither an offset nor the unit of the features matters."""

import warnings

import numpy as np
import pytest
from sklearn.datasets import load_digits

from openauc.features import OpenSetClassifier
from openauc.features.classifier import scaling, splits
from openauc.features.classifier.scaling import LENGTH, Scaling
from tests.features.samples import blobs

WIDTH = 40


@pytest.fixture(autouse=True, scope="module")
def few_folds():
    """What is asked here does not hang on how often classes are cut anew."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(splits, "FEWEST_FOLDS", 2)
        yield


def scaled(X, kind="auto"):
    found = Scaling.of(X, np.arange(len(X)), kind)
    return found, found(X)


def fitted(X, y, **options):
    return OpenSetClassifier(random_state=0, folds=2, rejector="average", seen_by_encoder=False, **options).fit(X, y)


@pytest.fixture(scope="module")
def samples():
    """Wide enough to be an embedding."""
    return blobs(4, 30, width=WIDTH)[0], blobs(6, 30, width=WIDTH, seed=1)[0], blobs(4, 30)[1]


@pytest.fixture(scope="module")
def plain(samples):
    X, new, y = samples
    model = fitted(X, y)
    return model.predict(new), model.open_score(new)


# The transform


@pytest.mark.parametrize("kind", ["embedding", "columns"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_mean_is_zero_and_the_length_is_always_the_same(kind, dtype):
    X = (np.random.default_rng(0).normal(size=(500, 7)) * [1, 2, 3, 4, 5, 6, 100] + 50).astype(dtype)
    found, features = scaled(X, kind)
    assert features.dtype == dtype
    np.testing.assert_allclose(features.mean(0), 0.0, atol=1e-4)
    assert np.sqrt((features.astype(float) ** 2).sum(1).mean()) == pytest.approx(LENGTH, rel=1e-5)
    assert found.kind == kind
    np.testing.assert_array_equal(found.rows(X, np.array([3, 1])), features[[3, 1]])


def test_an_embedding_has_one_factor_and_columns_each_their_own():
    X = np.random.default_rng(0).normal(size=(200, 5)) * [1, 2, 4, 8, 16]
    one, features = scaled(X, "embedding")
    assert len(np.unique(one.factor)) == 1
    np.testing.assert_allclose(features.std(0) / features.std(0)[0], X.std(0) / X.std(0)[0])
    _, features = scaled(X, "columns")
    np.testing.assert_allclose(features.std(0), LENGTH / np.sqrt(5))


@pytest.mark.parametrize(
    ("width", "largest", "kind"),
    [(31, 1, "columns"), (32, 1, "embedding"), (64, 50, "embedding"), (64, 300, "columns")],
)
def test_few_features_or_one_that_varies_far_more_are_columns(width, largest, kind):
    X = np.random.default_rng(0).normal(size=(300, width))
    X[:, 3] *= largest
    assert scaled(X)[0].kind == kind
    assert scaled(1e-3 * X + 7.0)[0].kind == kind


def test_a_large_number_that_never_varies_is_not_a_column():
    X = np.random.default_rng(0).normal(size=(300, 64))
    X[:, 3] = 1e6
    found, features = scaled(X)
    assert found.kind == "embedding"
    np.testing.assert_array_equal(features[:, 3], 0.0)


@pytest.mark.parametrize("kind", ["embedding", "columns"])
def test_what_never_varied_and_does_later_is_seen(kind):
    X = np.random.default_rng(0).normal(size=(300, 8))
    X[:, 3] = 5.0
    found, _ = scaled(X, kind)
    new = np.tile(X.mean(0), (2, 1))
    new[1, 3] = 50.0
    features = found(new)
    assert abs(features[0, 3]) < 1e-6
    assert features[1, 3] > LENGTH


def test_rounding_is_not_variation():
    X = np.full((200, 4), 0.1)
    X[:, 0] = np.random.default_rng(0).normal(size=200)
    X[::2, 1] = np.nextafter(0.1, 1.0)
    _, features = scaled(X, "columns")
    assert np.abs(features[:, 1:]).max() < 1e-12


@pytest.mark.parametrize("size", [1e-300, 1e-150, 1e-30, 1e30, 1e150, 1e300])
@pytest.mark.parametrize("kind", ["embedding", "columns"])
def test_any_unit_gives_the_same_features(size, kind):
    X = np.random.default_rng(0).normal(size=(50, 6))
    np.testing.assert_allclose(scaled(size * X, kind)[1], scaled(X, kind)[1], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("size", [1e-310, 5e-324])
def test_or_is_refused(size):
    X = size * np.arange(1, 31).reshape(10, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(
            ValueError, match=r"the features cannot be scaled: their largest number is .* Divide X by a"
        ):
            scaled(X, "columns")


def test_many_rows_are_thinned_and_taken_in_parts(monkeypatch):
    X = np.random.default_rng(0).normal(3.0, 2.0, size=(1000, 3))
    whole, _ = scaled(X, "columns")
    monkeypatch.setattr(scaling, "CHUNK", 7)
    parts, _ = scaled(X, "columns")
    np.testing.assert_allclose(parts.factor, whole.factor)
    np.testing.assert_allclose(parts.centre, whole.centre)
    monkeypatch.setattr(scaling, "MOST_ROWS", 500)
    thinned, _ = scaled(X, "columns")
    np.testing.assert_allclose(thinned.centre, X[::2].mean(0))


def test_the_offset_comes_back():
    X = np.random.default_rng(0).normal(3.0, 2.0, size=(100, 4))
    found, features = scaled(X, "embedding")
    np.testing.assert_allclose(found.uncentred(features), X * found.factor)


def test_a_scaling_must_be_one_of_three():
    with pytest.raises(ValueError, match=r"scaling is 'colums'; .* Did you mean 'columns'\?"):
        OpenSetClassifier(scaling="colums").fit(*blobs(3))


# In the classifier


@pytest.mark.parametrize("size", [1e-300, 1e-3, 1e3, 1e300])
def test_the_unit_changes_no_decision(samples, plain, size):
    X, new, y = samples
    model = fitted(size * X, y)
    np.testing.assert_array_equal(model.predict(size * new), plain[0])
    np.testing.assert_allclose(model.open_score(size * new), plain[1], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("dtype", "agree"), [(np.float64, 1.0), (np.float32, 0.97)])
def test_nor_does_an_offset(samples, plain, dtype, agree):
    """Of a float32 near a million, steps are a sixteenth, and what is lost so is lost."""
    X, new, y = samples
    model = fitted((X + 1e6).astype(dtype), y)
    found = model.predict((new + 1e6).astype(dtype))
    assert np.mean(found == plain[0]) >= agree


def test_unix_times_among_features_do_not_drown_the_others():
    """Each of the 384 features tells a little of every class, as those of an encoder do."""
    rng = np.random.default_rng(0)
    turned = np.linalg.qr(rng.normal(size=(384, 384)))[0]
    X, y = blobs(4, 30, width=384, apart=8.0)
    new, y_new = blobs(6, 30, width=384, apart=8.0, seed=1)
    X, new = (np.column_stack([x @ turned, rng.uniform(1.6e9, 1.7e9, len(x))]) for x in (X, new))
    truth = np.where(y_new < 4, y_new, -1)
    model, drowned = (fitted(X, y, scaling=kind) for kind in ("auto", "embedding"))
    assert model.head_with_scores_.scaling.kind == "columns"
    assert np.mean(model.predict(new) == truth) > 0.95
    assert np.mean(drowned.predict(new) == truth) < 0.5


@pytest.mark.parametrize("kind", ["embedding", "columns"])
def test_columns_in_units_of_their_own(kind):
    """Metres beside millimetres: to columns that is nothing, to an embedding it is."""
    X, y = blobs(4, 30)
    new, _ = blobs(4, 30, seed=1)
    units = np.array([1.0, 1e3, 1e-3, 1.0, 1e2, 10.0])
    one, other = fitted(X, y, scaling=kind), fitted(X * units, y, scaling=kind)
    same = np.mean(one.predict(new) == other.predict(new * units))
    assert same == 1.0 if kind == "columns" else same < 0.9


def test_an_estimator_as_head_sees_features_as_they_are(samples):
    from sklearn.linear_model import LogisticRegression

    X, new, y = samples
    head = LogisticRegression().fit(X + 3.0, y)
    model = fitted(X + 3.0, y, head=head)
    np.testing.assert_allclose(model.predict_proba(new), head.predict_proba(new))


# Digits


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    rows = np.flatnonzero(y < 5)
    return X[rows[::2]], y[rows[::2]], X[rows[1::2]]


@pytest.fixture(scope="module")
def model_of_digits(digits):
    return OpenSetClassifier(random_state=0).fit(*digits[:2])


def test_digits_far_too_bright_are_unknown(digits, model_of_digits):
    assert set(model_of_digits.predict(1000 * digits[2])) == {-1}
    assert model_of_digits.p_value(1000 * digits[2]).max() < 0.01


def test_blank_images_and_noise_are_unknown(digits, model_of_digits):
    rng = np.random.default_rng(0)
    noise = rng.uniform(0, 16, size=(50, 64))
    for odd in (np.zeros((1, 64)), np.full((1, 64), 16.0), noise, rng.normal(0, 1e4, size=(50, 64))):
        assert set(model_of_digits.predict(odd)) == {-1}


def test_digits_plus_a_million_are_digits(digits, model_of_digits):
    X, y, new = digits
    model = OpenSetClassifier(random_state=0).fit(X + 1e6, y)
    np.testing.assert_array_equal(model.predict(new + 1e6), model_of_digits.predict(new))
