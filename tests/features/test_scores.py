"""Every score meets one contract; a new entry of SCORES is covered as soon as it is there."""

import math
import subprocess
import sys

import numpy as np
import pytest

from openauc.features import SCORES, Score, make_score
from openauc.features.scores import SHRINKAGE

LOGITS = [[2.0, -1.0, 0.5], [0.0, 0.0, 0.0], [-3.0, 4.0, 3.9]]
FEATURES = [[0.5, 1.0], [3.0, -2.0], [6.0, 6.0]]
TRAINING = [[0.0, 0.0], [2.0, 1.0], [1.0, -1.0], [5.0, 4.0], [7.0, 5.0], [-4.0, 3.0]]
CLASSES = [0, 0, 0, 1, 1, 2]  # the last class has one sample, hence no deviation


def probabilities(row):
    exponentials = [math.exp(z) for z in row]
    return [e / sum(exponentials) for e in exponentials]


def squared_distances(row, groups):
    """To the mean of each group, in the metric of the shrunk covariance around these means."""
    means = [np.mean(group, axis=0) for group in groups]
    deviations = [np.subtract(one, mean) for group, mean in zip(groups, means, strict=True) for one in group]
    covariance = sum(np.outer(d, d) for d in deviations) / len(deviations)
    covariance = (1 - SHRINKAGE) * covariance + SHRINKAGE * np.trace(covariance) / len(row) * np.eye(len(row))
    return [(row - mean) @ np.linalg.solve(covariance, row - mean) for mean in means]


BY_CLASS = [[row for row, label in zip(TRAINING, CLASSES, strict=True) if label == one] for one in range(3)]
BY_HAND = {
    "max_logit": lambda x, z: -max(z),
    "max_probability": lambda x, z: -max(probabilities(z)),
    "energy": lambda x, z: -math.log(sum(map(math.exp, z))),
    "entropy": lambda x, z: -sum(p * math.log(p) for p in probabilities(z)),
    "margin": lambda x, z: sorted(z)[-2] - max(z),
    "mahalanobis": lambda x, z: min(squared_distances(x, BY_CLASS)),
    "relative_mahalanobis": lambda x, z: min(squared_distances(x, BY_CLASS)) - squared_distances(x, [TRAINING])[0],
}


@pytest.mark.parametrize("name", BY_HAND)
def test_value_by_hand(name):
    training = np.array(TRAINING), np.zeros((6, 3)), np.array(CLASSES)
    found = make_score(name).fit(*training)(np.array(FEATURES), np.array(LOGITS))
    expected = [BY_HAND[name](x, z) for x, z in zip(FEATURES, LOGITS, strict=True)]
    assert found.tolist() == pytest.approx(expected)


@pytest.fixture(params=SCORES)
def name(request):
    return request.param


def clusters(counts=(12, 9, 15), dimensions=4, seed=0):
    """Training samples around one centre per class, and logits that follow the distance to these."""
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(len(counts)), counts)
    centres = 6 * rng.normal(size=(len(counts), dimensions))
    features = centres[y] + rng.normal(size=(len(y), dimensions))
    logits = -((features[:, None] - centres) ** 2).mean(2) / 10
    return features, logits, y


def test_one_finite_number_per_sample_in_float64(name):
    features, logits, y = clusters()
    score = make_score(name)
    assert isinstance(score, Score)
    assert score.fit(features, logits, y) is score
    for count in (0, 1, 7):
        found = score(features[:count], logits[:count])
        assert (found.shape, found.dtype) == ((count,), np.float64)
        assert np.isfinite(found).all()
    assert len(np.unique(score(features, logits))) == len(y)


def test_higher_is_more_unknown(name):
    """What lies amid a class, with a decided logit, against what lies far from all, undecided."""
    features, logits, y = clusters()
    amid, far = features[y == 1].mean(0), features.mean(0) + 50 * np.array([1.0, -1.0, 1.0, -1.0])
    decided, undecided = np.array([0.0, 5.0, -5.0]), np.array([0.1, 0.0, 0.0])
    familiar, foreign = make_score(name).fit(features, logits, y)(np.stack([amid, far]), np.stack([decided, undecided]))
    assert foreign > familiar


def test_the_order_of_samples_makes_no_difference(name):
    features, logits, y = clusters()
    order = np.random.default_rng(1).permutation(len(y))
    score = make_score(name).fit(features, logits, y)
    found = score(features, logits)
    np.testing.assert_allclose(score(features[order], logits[order]), found[order], rtol=1e-9, atol=1e-9)
    alone = [score(features[[row]], logits[[row]])[0] for row in range(len(y))]
    np.testing.assert_allclose(alone, found, rtol=1e-9, atol=1e-9)
    trained_otherwise = make_score(name).fit(features[order], logits[order], y[order])
    np.testing.assert_allclose(trained_otherwise(features, logits), found, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_narrow_numbers_are_computed_with_in_float64(name, dtype):
    features, logits, y = clusters()
    narrow = features.astype(dtype), logits.astype(dtype)
    wide = tuple(values.astype(np.float64) for values in narrow)
    found = make_score(name).fit(*narrow, y)(*narrow)
    np.testing.assert_array_equal(found, make_score(name).fit(*wide, y)(*wide))
    if dtype == np.float32:
        expected = make_score(name).fit(features, logits, y)(features, logits)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_logits_far_apart_neither_overflow_nor_tie(name):
    features, _, y = clusters()
    logits = np.zeros((len(y), 3), np.float32)
    logits[:, 0] = np.linspace(15, 25, len(y))  # where probabilities of float32 are all 1
    score = make_score(name).fit(features, logits, y)
    assert len(np.unique(score(features, logits))) == len(y)
    assert np.isfinite(score(features, 1000 * logits)).all()


@pytest.mark.parametrize("value", [0.0, 3.0, 0.1])
def test_a_constant_feature_does_no_harm(name, value):
    features, logits, y = clusters()
    score = make_score(name).fit(features, logits, y)
    constant = np.full((len(y), 1), value)
    with_constant = make_score(name).fit(np.hstack([features, constant]), logits, y)
    found = with_constant(np.hstack([features, constant]), logits)
    assert np.isfinite(found).all()
    # Its share of the shrinkage moves the values by about a hundredth, and the order of none that are apart.
    expected = score(features, logits)
    assert np.corrcoef(found, expected)[0, 1] > 0.99


@pytest.mark.parametrize("count", [1, 3, 27])
@pytest.mark.parametrize("value", [0.0, 0.1, 1000.1])
def test_features_of_which_none_varies_do_no_harm(name, value, count):
    """Where the mean of equal numbers is a rounding error away from them, that is no variation either."""
    _, logits, y = clusters(counts=(count, count))
    features = np.full((len(y), 4), value)
    score = make_score(name).fit(features, logits, y)
    further = np.stack([features[0] + step for step in (0.0, 1.0, 2.0)])
    found = score(further, logits[:1].repeat(3, 0))
    assert np.abs(found).max() < 100  # the squared distances are 0, 4 and 16
    assert (np.diff(found) > -1e-6).all()


def test_fewer_samples_than_dimensions(name):
    features, logits, y = clusters(counts=(3, 3, 4), dimensions=40)
    score = make_score(name).fit(features, logits, y)
    found = score(features, logits)
    assert np.isfinite(found).all()
    assert len(np.unique(found)) == len(y)
    far = score(features + 100, logits)
    assert (far >= found - 1e-9).all()


def test_a_class_of_one_sample(name):
    features, logits, y = clusters(counts=(1, 9, 15))
    score = make_score(name).fit(features, logits, y)
    found = score(features, logits)
    assert np.isfinite(found).all()
    other = make_score(name).fit(features[1:], logits[1:], y[1:])  # the class is not there at all
    assert np.isfinite(other(features, logits)).all()
    if score.fits:  # and then its sample is no longer at home
        assert other(features, logits)[0] > found[0]


def test_only_scores_that_learn_look_at_training_samples(name):
    features, logits, y = clusters()
    score = make_score(name)
    if score.fits:
        moved = make_score(name).fit(features + 1, logits, y)
        assert not np.array_equal(moved(features, logits), score.fit(features, logits, y)(features, logits))
    else:
        expected = score(features, logits)  # not fitted
        np.testing.assert_array_equal(score.fit(features, logits, y)(features, logits), expected)


def test_every_score_says_where_it_comes_from(name):
    assert SCORES[name].source


def test_a_score_without_a_call_is_none():
    with pytest.raises(NotImplementedError, match=r"Score has no __call__\(features, logits\); define it"):
        Score()(np.zeros((1, 1)), np.zeros((1, 2)))


def test_wrong_name_suggests_the_likely_spelling():
    with pytest.raises(ValueError, match=r"score is 'max_logits'.*Did you mean 'max_logit'"):
        make_score("max_logits")


def test_scores_need_no_torch():
    code = "import sys; sys.modules['torch'] = None; import openauc.features as f; f.make_score('energy')"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
