"""Selective prediction: hand examples, slow twins, and what taking a sample away does."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import UNKNOWN, random_triple, triples

from openauc import compare, evaluate
from openauc.metrics.rank_table import rank
from openauc.metrics.samples import read_samples
from openauc.metrics.selective import SELECTIVE, augrc, aurc, expected_calibration_error

pytestmark = pytest.mark.filterwarnings("ignore::openauc.metrics.ranking.ScoreDirectionWarning")
every = pytest.mark.parametrize("name", SELECTIVE)


def slow_aurc(y_true, y_pred, score) -> float:
    """Mean over the samples of the risk at their own threshold."""
    risks = []
    for threshold in score:
        accepted = [(t, p) for t, p, s in zip(y_true, y_pred, score, strict=True) if s <= threshold]
        risks.append(sum(t == UNKNOWN or t != p for t, p in accepted) / len(accepted))
    return sum(risks) / len(risks)


def slow_augrc(y_true, y_pred, score) -> float:
    """Over all ordered pairs: an error before another sample counts, half where the two tie."""
    total = 0.0
    samples = list(zip(y_true, y_pred, score, strict=True))
    for true, pred, first in samples:
        if true == UNKNOWN or true != pred:
            total += sum(1.0 if first < second else 0.5 if first == second else 0.0 for _, _, second in samples)
    return total / len(samples) ** 2


@given(triples())
def test_against_the_loops(triple):
    assert aurc(*triple) == pytest.approx(slow_aurc(*triple.lists))
    assert augrc(*triple) == pytest.approx(slow_augrc(*triple.lists))


def test_by_hand():
    """Right, wrong, right, unknown: risks 0, 1/2, 1/3, 2/4."""
    triple = [0, 1, 1, UNKNOWN], [0, 0, 1, 0], [1.0, 2.0, 3.0, 4.0]
    assert aurc(*triple) == pytest.approx((0 + 1 / 2 + 1 / 3 + 2 / 4) / 4)
    # The error in second place counts with the two after it and half with itself, the last half with itself.
    assert augrc(*triple) == pytest.approx((2.5 + 0.5) / 16)


def test_without_unknown_samples_and_errors():
    known = [0, 1, 1], [0, 1, 1], [0.1, 0.2, 0.3]
    assert aurc(*known) == augrc(*known) == 0.0
    assert aurc([0, 0], [1, 1], [0.0, 1.0]) == 1.0
    with pytest.raises(ValueError, match="no known sample"):
        aurc([UNKNOWN], [0], [0.0])


def test_augrc_is_the_published_sum():
    """Traub et al. (2024), Eq. 5: (1 - AUROC of failures) acc (1 - acc) + (1 - acc)^2 / 2."""
    triple = random_triple(300, seed=2, decimals=1)
    wrong = (triple.y_true == UNKNOWN) | (triple.y_true != triple.y_pred)
    right_scores, wrong_scores = triple.open_score[~wrong], triple.open_score[wrong]
    pairs = np.sign(wrong_scores[:, None] - right_scores)
    auroc, accuracy = (0.5 * (pairs + 1)).mean(), 1 - wrong.mean()
    assert augrc(*triple) == pytest.approx((1 - auroc) * accuracy * (1 - accuracy) + 0.5 * (1 - accuracy) ** 2)


@every
@given(triple=triples(), data=st.data())
def test_a_weight_is_a_number_of_samples(name, triple, data):
    weight = np.array(data.draw(st.lists(st.integers(1, 3), min_size=len(triple.y_true), max_size=len(triple.y_true))))
    repeated = tuple(column[np.repeat(np.arange(len(weight)), weight)] for column in triple)
    function = SELECTIVE[name].function
    assert function(*triple, sample_weight=weight) == pytest.approx(function(*repeated), abs=1e-12)


@every
@pytest.mark.parametrize("decimals", [None, 1])
def test_influence_is_what_a_sample_adds(name, decimals):
    triple = random_triple(400, seed=3, decimals=decimals)
    metric, ranked = SELECTIVE[name], rank(read_samples(*triple))
    known, unknown = metric.influence(ranked.table).of_samples(ranked)
    effects = np.array(
        [metric.function(*triple) - metric.function(*(c[np.arange(400) != i] for c in triple)) for i in range(400)]
    )
    is_unknown = triple.y_true == UNKNOWN
    for side, expected in ((known, effects[~is_unknown]), (unknown, effects[is_unknown])):
        assert np.corrcoef(side, expected)[0, 1] > 0.98
        assert side.std() == pytest.approx(expected.std(), rel=0.1)


def test_in_evaluate_and_compare():
    triple = random_triple(600, seed=4)
    found = evaluate(*triple, metrics=SELECTIVE, n_replicates=500)
    for name, metric in SELECTIVE.items():
        assert found.values[name] == metric.function(*triple)
        low, high = found.intervals[name]
        assert low < found.values[name] < high
        assert (found.better[name], found.methods[name]) == ("lower", "bootstrap")
    known = tuple(column[triple.y_true != UNKNOWN] for column in triple)
    alone = evaluate(*known, metrics=SELECTIVE, n_replicates=200)
    assert alone.n_unknown == 0
    assert alone.intervals["aurc"].low < alone.aurc < alone.intervals["aurc"].high
    worse = known[0], known[1], np.random.default_rng(0).normal(size=len(known[0]))
    for difference in compare(known, worse, metrics=SELECTIVE, n_replicates=200).differences:
        assert np.isfinite(difference.p_value)
        assert difference.interval.low < difference.difference < difference.interval.high


def slow_calibration(y_true, y_pred, confidence, bins) -> float:
    total, n = 0.0, sum(t != UNKNOWN for t in y_true)
    for b in range(bins):
        low, high = b / bins, (b + 1) / bins
        inside = [
            (t == p, c)
            for t, p, c in zip(y_true, y_pred, confidence, strict=True)
            if t != UNKNOWN and (low < c <= high or (b == 0 and c == 0.0))
        ]
        if inside:
            gap = np.mean([c for _, c in inside]) - np.mean([right for right, _ in inside])
            total += len(inside) / n * abs(gap)
    return total


@pytest.mark.parametrize("bins", [1, 8, 16])
def test_calibration_against_the_loop(bins):
    rng = np.random.default_rng(0)
    y_true, y_pred, _ = random_triple(300, seed=5, n_classes=3)
    confidence = rng.integers(0, 65, 300) / 64  # on the edges too
    expected = slow_calibration(y_true.tolist(), y_pred.tolist(), confidence.tolist(), bins)
    assert expected_calibration_error(y_true, y_pred, confidence, bins=bins) == pytest.approx(expected)
    weight = rng.integers(1, 4, 300)
    repeated = (np.repeat(column, weight) for column in (y_true, y_pred, confidence))
    assert expected_calibration_error(y_true, y_pred, confidence, bins=bins, sample_weight=weight) == pytest.approx(
        expected_calibration_error(*repeated, bins=bins)
    )


def test_calibration_refuses():
    with pytest.raises(ValueError, match=r"confidence holds .*1\.5.*; expected probabilities"):
        expected_calibration_error([0, 0], [0, 0], [0.5, 1.5])
    with pytest.raises(ValueError, match="bins is 0; expected at least one"):
        expected_calibration_error([0], [0], [0.5], bins=0)
    assert expected_calibration_error([0, UNKNOWN], [0, 0], [1.0, 7.0]) == 0.0
