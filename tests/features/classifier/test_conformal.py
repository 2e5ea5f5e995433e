"""Calibration against the plain formulas, with ties and groups."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openauc.features.classifier.conformal import Calibration, benjamini_hochberg
from openauc.metrics.operating import smallest_sample
from tests.strategies import fractions

few_values = st.integers(-3, 3).map(float)
samples = st.lists(st.tuples(few_values, st.integers(0, 2)), min_size=1, max_size=40)
news = st.lists(st.tuples(few_values | st.floats(-4, 4), st.integers(0, 2)), min_size=1, max_size=10)


def arrays(pairs):
    scores, classes = zip(*pairs, strict=True)
    return np.array(scores), np.array(classes, np.int64)


def members(scores, classes, label, fewest):
    """Calibration scores of a predicted class, by definition."""
    own = scores[classes == label]
    return own if fewest is not None and len(own) >= max(fewest, 1) else scores


@given(samples, news, st.none() | st.integers(0, 12))
def test_p_values_are_the_formula(calibration, new, fewest):
    scores, classes = arrays(calibration)
    score, predicted = arrays(new)
    found = Calibration.of(scores, classes, 3, fewest=fewest).p_value(score, predicted)
    groups = [members(scores, classes, label, fewest) for label in predicted]
    expected = [(1 + np.sum(group >= s)) / (1 + len(group)) for group, s in zip(groups, score, strict=True)]
    np.testing.assert_allclose(found, expected, rtol=1e-15)


@given(samples, news, st.none() | st.integers(0, 12), fractions())
def test_what_lies_above_the_threshold_has_a_p_value_of_at_most_alpha(calibration, new, fewest, acceptance):
    scores, classes = arrays(calibration)
    score, predicted = arrays(new)
    found = Calibration.of(scores, classes, 3, fewest=fewest)
    thresholds, _ = found.thresholds(acceptance)
    rejected = score > thresholds[predicted]
    np.testing.assert_array_equal(rejected, found.p_value(score, predicted) <= (1 - acceptance) * (1 + 1e-9))


@given(samples, st.none() | st.integers(0, 12), fractions())
def test_a_group_too_small_rejects_nothing_and_says_what_it_needs(calibration, fewest, acceptance):
    scores, classes = arrays(calibration)
    thresholds, missing = Calibration.of(scores, classes, 3, fewest=fewest).thresholds(acceptance)
    sizes = [len(members(scores, classes, label, fewest)) for label in range(3)]
    if acceptance == 1.0:
        assert missing == 0
        assert np.isinf(thresholds).all()
        return
    needed = smallest_sample(acceptance)
    np.testing.assert_array_equal(np.isinf(thresholds), np.array(sizes) < needed)
    assert missing == (needed if min(sizes) < needed else 0)


@given(samples, news)
def test_a_higher_score_never_has_a_larger_p_value(calibration, new):
    scores, classes = arrays(calibration)
    score, _ = arrays(new)
    p = Calibration.of(scores, classes, 3).p_value(np.sort(score), np.zeros(len(score), int))
    assert (np.diff(p) <= 0).all()
    assert (p > 0).all()
    assert (p <= 1).all()


@given(st.lists(st.sampled_from([0.001, 0.01, 0.02, 0.05, 0.2, 0.5, 1.0]), min_size=1, max_size=12), fractions())
def test_benjamini_hochberg_is_the_step_up_rule(p_values, fdr):
    p = np.array(p_values)
    n = len(p)
    passing = [k for k in range(1, n + 1) if np.sum(p <= fdr * k / n * (1 + 1e-12)) >= k]
    expected = p <= fdr * max(passing) / n * (1 + 1e-12) if passing else np.zeros(n, bool)
    np.testing.assert_array_equal(benjamini_hochberg(p, fdr), expected)


def test_infinite_scores_have_a_rank():
    calibration = Calibration.of(np.array([-np.inf, 0.0, np.inf]), np.zeros(3, int), 1)
    p = calibration.p_value(np.array([-np.inf, 1.0, np.inf]), np.zeros(3, int))
    assert p.tolist() == pytest.approx([1.0, 0.5, 0.5])
