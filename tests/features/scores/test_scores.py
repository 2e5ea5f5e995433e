"""Every score meets one contract; a new entry of SCORES is covered as soon as it is there."""

import subprocess
import sys

import numpy as np
import pytest

from openauc.features import SCORES, Score, make_score

STRENGTH = {"norm", "react", "scale"}
"""Scores of how strong activations are: for these, what is far from everything known may be most familiar."""


@pytest.fixture(params=SCORES)
def name(request):
    return request.param


def clusters(counts=(60, 55, 75), dimensions=4, draw=0):
    """Samples around one centre per class, and logits of the linear head of these centres; another draw has others."""
    y = np.repeat(np.arange(len(counts)), counts)
    centres = 6 * np.random.default_rng(0).normal(size=(len(counts), dimensions))
    features = centres[y] + np.random.default_rng([1, draw]).normal(size=(len(y), dimensions))
    logits = (2 * features @ centres.T - (centres**2).sum(1)) / dimensions / 10
    return features, logits, y


def fitted(name, **changes):
    return make_score(name).fit(*clusters(**changes))


def new(**changes):
    """Features and logits of samples not trained on; a training sample is its own nearest neighbour."""
    return clusters(draw=1, **changes)[:2]


def assert_close(found, expected, share):
    """Apart by no more than a share of how far the expected scores lie apart themselves."""
    assert np.abs(found - expected).max() <= share * expected.std()


def test_one_finite_number_per_sample_in_float64(name):
    training = clusters()
    features, logits = new()
    score = make_score(name)
    assert isinstance(score, Score)
    assert score.fit(*training) is score
    for count in (0, 1, 7):
        found = score(features[:count], logits[:count])
        assert (found.shape, found.dtype) == ((count,), np.float64)
        assert np.isfinite(found).all()
    found = score(features, logits)
    assert len(np.unique(found)) == len(features)
    np.testing.assert_array_equal(score(features.tolist(), logits.tolist()), found)


def test_higher_is_more_unknown(name):
    """Each class has activations of its own; unknown is what stirs only those of none, weakly, and is undecided."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(3), 60)
    features = rng.exponential(0.3, size=(180, 16)) + 5 * np.repeat(np.eye(4)[y], 4, axis=1)
    weights = np.repeat(np.eye(4)[:3], 4, axis=1) / 4  # no class uses the last four
    logits = features @ weights.T - 1
    weak = 0.1 + np.repeat([0.0, 0.0, 0.0, 0.9], 4)
    familiar = features[y == 1].mean(0)
    samples = np.stack([familiar, weak])
    known, unknown = make_score(name).fit(features, logits, y)(samples, samples @ weights.T - 1)
    assert unknown > known


def test_far_from_all_that_is_known_is_more_unknown(name):
    """What lies amid a class, with a decided logit, against what lies far from all, undecided."""
    features, logits, y = clusters()
    amid, far = features[y == 1].mean(0), features.mean(0) + 50 * np.array([1.0, -1.0, 1.0, -1.0])
    decided, undecided = np.array([0.0, 5.0, -5.0]), np.array([0.1, 0.0, 0.0])
    familiar, foreign = make_score(name).fit(features, logits, y)(np.stack([amid, far]), np.stack([decided, undecided]))
    assert foreign > familiar or name in STRENGTH


def test_the_order_of_samples_makes_no_difference(name):
    training = clusters()
    features, logits = new()
    order = np.random.default_rng(1).permutation(len(features))
    score = make_score(name).fit(*training)
    found = score(features, logits)
    np.testing.assert_allclose(score(features[order], logits[order]), found[order], rtol=1e-9, atol=1e-9)
    alone = [score(features[[row]], logits[[row]])[0] for row in range(len(features))]
    np.testing.assert_allclose(alone, found, rtol=1e-9, atol=1e-9)
    trained_otherwise = make_score(name).fit(*(values[order] for values in training))
    np.testing.assert_allclose(trained_otherwise(features, logits), found, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_narrow_numbers_give_the_scores_of_wide_ones(name, dtype):
    features, logits, y = clusters()
    narrow = features.astype(dtype), logits.astype(dtype)
    wide = tuple(values.astype(np.float64) for values in narrow)
    queries = tuple(values.astype(dtype) for values in new())
    found = make_score(name).fit(*narrow, y)(*queries)
    expected = make_score(name).fit(*wide, y)(*(values.astype(np.float64) for values in queries))
    assert found.dtype == np.float64
    if SCORES[name].looks_at == "logits":
        np.testing.assert_array_equal(found, expected)
    else:  # products with features are multiplied in float32, in half the time
        assert_close(found, expected, 1e-4)
    if dtype == np.float32:
        assert_close(found, fitted(name)(*new()), 1e-5 if SCORES[name].looks_at == "logits" else 1e-4)


def test_logits_far_apart_neither_overflow_nor_tie(name):
    training, _, y = clusters()
    features, _ = new()
    logits = np.zeros((len(y), 3), np.float32)
    logits[:, 0] = np.linspace(15, 25, len(y))  # where probabilities of float32 are all 1
    score = make_score(name).fit(training, logits, y)
    assert len(np.unique(score(features, logits))) == len(y)
    assert np.isfinite(score(features, 1000 * logits)).all()


@pytest.mark.parametrize("value", [0.0, 3.0, 0.1])
def test_a_constant_feature_does_no_harm(name, value):
    features, logits, y = clusters()
    score = make_score(name).fit(features, logits, y)
    constant = np.full((len(y), 1), value)
    with_constant = make_score(name).fit(np.hstack([features, constant]), logits, y)
    queries, query_logits = new()
    found = with_constant(np.hstack([queries, constant]), query_logits)
    assert np.isfinite(found).all()
    # Its share of the shrinkage moves the values by about a hundredth, and the order of none that are apart.
    expected = score(queries, query_logits)
    # Where the place of zero matters, a large constant is a feature as others are: it turns directions, for one.
    moved = make_score(name).fit(features + 3, logits, y)(queries + 3, query_logits)
    matters = value == 3.0 and not np.allclose(moved, expected)
    matters |= name == "react"  # of five activations, another one is the 90th percentile
    assert np.corrcoef(found, expected)[0, 1] > 0.99 or matters


@pytest.mark.parametrize("count", [1, 3, 27])
@pytest.mark.parametrize("value", [0.0, 0.1, 1000.1])
def test_features_of_which_none_varies_do_no_harm(name, value, count):
    """Where the mean of equal numbers is a rounding error away from them, that is no variation either."""
    _, logits, y = clusters(counts=(count, count))
    features = np.full((len(y), 4), value)
    score = make_score(name).fit(features, logits, y)
    further = np.stack([features[0] + step for step in (0.0, 1.0, 2.0)])
    found = score(further, logits[:1].repeat(3, 0))
    if name == "norm":
        np.testing.assert_allclose(found, -2 * np.abs(further[:, 0]))
    else:
        assert np.abs(found).max() < 100  # the squared distances are 0, 4 and 16
        assert (np.diff(found) > -1e-6).all()


def test_fewer_samples_than_dimensions(name):
    changes = {"counts": (60, 60, 60), "dimensions": 200}
    score = fitted(name, **changes)
    features, logits = new(**changes)
    found = score(features, logits)
    assert np.isfinite(found).all()
    assert len(np.unique(found)) == len(found)
    far = score(features + 100, logits)
    assert (far >= found - 1e-9).all() or name in STRENGTH


def test_a_class_of_one_sample(name):
    features, logits, y = clusters(counts=(1, 55, 75))
    score = make_score(name).fit(features, logits, y)
    found = score(features, logits)
    assert np.isfinite(found).all()
    other = make_score(name).fit(features[1:], logits[1:], y[1:])  # the class is not there at all
    assert np.isfinite(other(features, logits)).all()
    if score.fits and score.looks_at == "features":  # and then its sample is no longer at home
        assert other(features, logits)[0] > found[0]


def test_rows_of_zeros_do_no_harm(name):
    features, logits, y = clusters()
    features[::4] = 0.0
    score = make_score(name).fit(features, logits, y)
    assert np.isfinite(score(features, logits)).all()
    assert np.isfinite(score(np.zeros((1, 4)), np.zeros((1, 3)))).all()
    assert np.isfinite(score(features.mean(0, keepdims=True), np.zeros((1, 3)))).all()


def test_logits_need_not_be_linear_in_the_features(name):
    features, _, y = clusters()
    queries, _ = new()
    for logits in (lambda x: -(x[:, :3] ** 2), lambda x: np.tile([1.0, 0.0, -1.0], (len(x), 1))):
        score = make_score(name).fit(features, logits(features), y)
        assert np.isfinite(score(queries, logits(queries))).all()


def test_only_scores_that_learn_look_at_training_samples(name):
    features, logits, y = clusters()
    score = make_score(name)
    if score.fits:
        moved = make_score(name).fit(features + 1, logits, y)
        assert not np.array_equal(moved(features, logits), score.fit(features, logits, y)(features, logits))
    else:
        expected = score(features, logits)  # not fitted
        np.testing.assert_array_equal(score.fit(features, logits, y)(features, logits), expected)
        assert vars(score) == {}


def test_what_a_call_looks_at_is_what_it_says(name):
    score = fitted(name)
    features, logits = new()
    found = score(features, logits)
    looked_at = {
        "features": not np.array_equal(score(features[::-1], logits), found),
        "logits": not np.array_equal(score(features, logits[::-1]), found),
    }
    said = SCORES[name].looks_at
    assert looked_at == {part: said in (part, "both") for part in looked_at}


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_what_was_learned_is_kept_in_arrays_and_numbers(name, dtype, tmp_path):
    features, logits, y = clusters()
    queries = tuple(values.astype(dtype) for values in new())
    score = make_score(name).fit(features.astype(dtype), logits.astype(dtype), y)
    assert all(type(value) in (np.ndarray, float, int) for value in vars(score).values())
    wanted = np.float64 if dtype == np.float64 else np.float32
    assert all(value.dtype == wanted for value in vars(score).values() if isinstance(value, np.ndarray))
    np.savez(tmp_path / "score.npz", **vars(score))
    with np.load(tmp_path / "score.npz") as arrays:
        restored = make_score(name)
        vars(restored).update({key: arrays[key] if arrays[key].ndim else arrays[key].item() for key in arrays})
    np.testing.assert_array_equal(restored(*queries), score(*queries))


def test_the_same_scores_from_onnx(name, monkeypatch):
    """Traced as they stand, also inside a network, where the number of columns is not known to the trace."""
    ndx, onnxruntime = pytest.importorskip("ndonnx"), pytest.importorskip("onnxruntime")
    value_prop = pytest.importorskip("spox._value_prop")  # by numpy, to the same bytes in half the time
    monkeypatch.setattr(value_prop, "_VALUE_PROP_BACKEND", value_prop.ValuePropBackend.REFERENCE)
    changes = {"counts": (300, 200, 300, 400), "dimensions": 16}
    features, logits, y = clusters(**changes)
    score = make_score(name).fit(features.astype(np.float32), logits.astype(np.float32), y)
    queries, query_logits = (values[:1000].astype(np.float32) for values in new(**changes))
    x, z = (ndx.argument(shape=("N", columns), dtype=ndx.float32) for columns in ("D", "C"))
    network = ndx.build({"x": x, "z": z}, {"scores": score(x, z)})
    session = onnxruntime.InferenceSession(network.SerializeToString(), providers=["CPUExecutionProvider"])
    (found,) = session.run(["scores"], {"x": queries, "z": query_logits})
    assert (found.shape, found.dtype) == ((1000,), np.float64)
    assert_close(found, score(queries, query_logits), 1e-5)


def test_every_score_says_what_it_is_and_where_it_comes_from(name):
    assert SCORES[name].formula
    assert "\n" not in SCORES[name].formula
    assert SCORES[name].source


def test_a_score_without_a_call_is_none():
    with pytest.raises(NotImplementedError, match=r"Score has no __call__"):
        Score()(np.zeros((1, 1)), np.zeros((1, 2)))


def test_wrong_name_suggests_the_likely_spelling():
    with pytest.raises(ValueError, match=r"score is 'max_logits'.*Did you mean 'max_logit'"):
        make_score("max_logits")


def test_scores_need_numpy_alone():
    absent = ("torch", "scipy", "sklearn", "ndonnx", "onnx", "onnxruntime")
    code = f"import sys; sys.modules.update(dict.fromkeys({absent!r})); from openauc.features import make_score"
    assert subprocess.run([sys.executable, "-c", f"{code}; make_score('energy')"], check=False).returncode == 0
