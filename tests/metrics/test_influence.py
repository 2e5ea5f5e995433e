"""Influence of each sample: against pairs counted one by one, and against taking the sample away."""

import numpy as np
import pytest
from hypothesis import given
from strategies import UNKNOWN, fractions, random_triple, triples

from openauc.metrics import influence, ranking
from openauc.metrics.counts import RankedSamples, encode
from openauc.metrics.decision import DECISION_METRICS, closed_set_accuracy
from openauc.metrics.influence import Influence
from openauc.metrics.rank_table import rank
from openauc.metrics.ranking import acc_plus_auc, acc_times_auc, average_precision, openauc_score
from openauc.metrics.registry import METRICS
from openauc.metrics.samples import read_samples

pytestmark = pytest.mark.filterwarnings("ignore::openauc.metrics.ranking.ScoreDirectionWarning")
both_ties = pytest.mark.parametrize("ties", ["half", "strict"])


def close(value):
    return pytest.approx(value, abs=1e-12)


def placed(triple, formula):
    """Influence of each known and of each unknown sample."""
    ranked = rank(read_samples(*triple))
    return formula(ranked.table).of_samples(ranked)


@both_ties
@pytest.mark.parametrize("with_wrong", [False, True])
@given(triples())
def test_placements_are_the_shares_of_pairs_each_sample_takes_part_in(ties, with_wrong, triple):
    y_true, y_pred, score = triple.lists
    known = [i for i, label in enumerate(y_true) if label != UNKNOWN]
    unknown = [j for j, label in enumerate(y_true) if label == UNKNOWN]
    kept = [with_wrong or y_true[i] == y_pred[i] for i in known]
    tie = 0.5 if ties == "half" else 0.0
    credit = [
        [c * (1.0 if score[i] < score[j] else tie * (score[i] == score[j])) for j in unknown]
        for c, i in zip(kept, known, strict=True)
    ]
    ranked = rank(read_samples(*triple))
    placements = influence.of_openauc(ranked.table, ties, with_wrong=with_wrong)
    of_known, of_unknown = placements.of_samples(ranked)
    assert of_known.tolist() == close(np.mean(credit, axis=1).tolist())
    assert of_unknown.tolist() == close(np.mean(credit, axis=0).tolist())
    if min(len(known), len(unknown)) > 1:
        # DeLong, DeLong and Clarke-Pearson (1988): S10 / m + S01 / n, from the components one by one.
        for side, variance in zip(
            (np.mean(credit, axis=1), np.mean(credit, axis=0)),
            placements.variances(ranked.table, (len(known), len(unknown))),
            strict=True,
        ):
            slow = sum((c - side.mean()) ** 2 for c in side) / (len(side) - 1) / len(side)
            assert variance == pytest.approx(slow, abs=1e-15)


@given(triples(), fractions(zero=True), fractions())
def test_placements_of_a_range_average_to_the_metric(triple, a, b):
    low, high = sorted([a, b])
    if low == high:
        low = 0.0
    strict = placed(triple, lambda table: influence.of_openauc(table, "strict", low, high))
    expected = openauc_score(*triple, ties="strict", min_ofpr=low, max_ofpr=high)
    assert strict[0].mean() == close(expected)
    # Ties between the sides are linearised; without them the curve has only level and upright pieces.
    distinct = np.arange(len(triple.y_true), dtype=float)
    apart = triple._replace(open_score=distinct)
    half = placed(apart, lambda table: influence.of_openauc(table, "half", low, high))
    assert half[0].mean() == close(openauc_score(*apart, min_ofpr=low, max_ofpr=high))


@given(triples())
def test_placements_of_the_aggregates_average_to_the_metric(triple):
    known, unknown = placed(triple, influence.of_accuracy)
    assert known.mean() == close(closed_set_accuracy(*triple))
    assert not unknown.any()
    assert placed(triple, influence.of_acc_plus_auc)[0].mean() == close(acc_plus_auc(*triple))
    for side in placed(triple, influence.of_acc_times_auc):
        assert side.mean() == close(acc_times_auc(*triple))


def test_the_variance_of_one_sample_is_undefined():
    table = rank(read_samples([0, 0, UNKNOWN], [0, 0, 0], [0.0, 1.0, 2.0])).table
    known, unknown = influence.of_openauc(table).variances(table, (2, 1))
    assert known == 0.0
    assert np.isnan(unknown)


@pytest.mark.parametrize("positive", ["unknown", "known"])
@pytest.mark.parametrize("decimals", [None, 1])
def test_average_precision_without_a_sample(positive, decimals):
    """Taking a sample away lowers the value by its influence, to first order."""
    triple = random_triple(400, seed=1, decimals=decimals)
    value = average_precision(*triple, positive=positive)
    known, unknown = placed(triple, lambda table: influence.of_average_precision(table, positive))
    is_unknown = triple.y_true == UNKNOWN
    effects = []
    for i in range(400):
        left = np.arange(400) != i
        effects.append(value - average_precision(*(column[left] for column in triple), positive=positive))
    for side, expected in ((unknown, np.array(effects)[is_unknown]), (known, np.array(effects)[~is_unknown])):
        assert np.corrcoef(side, expected)[0, 1] > 0.99
        assert side.std() == pytest.approx(expected.std(), rel=0.05)


@pytest.mark.parametrize("name", DECISION_METRICS)
def test_decision_metrics_without_a_sample(name):
    triple = random_triple(500, seed=2, n_classes=4)
    model = RankedSamples(read_samples(*triple))
    at = METRICS[name].measure(model).threshold
    if name == "normalized_accuracy":
        at = 1.0  # its best threshold rejects next to nothing
    formula = DECISION_METRICS[name]
    known, unknown = influence.of_decision(model.coded, at, formula)
    is_unknown = triple.y_true == UNKNOWN

    def at_threshold(left):
        samples = read_samples(*(column[left] for column in triple))
        return float(formula(influence.counts_at(encode(samples, [0, 1, 2, 3]), at)))

    everything = at_threshold(np.ones(500, dtype=bool))
    effects = np.array([everything - at_threshold(np.arange(500) != i) for i in range(500)])
    for side, expected in ((unknown, effects[is_unknown]), (known, effects[~is_unknown])):
        assert np.corrcoef(side, expected)[0, 1] > 0.98
        assert side.std() == pytest.approx(expected.std(), rel=0.1)


@pytest.mark.parametrize("name", ["fpr_at_95tpr", "ccr_at_10fpr", "detection_accuracy"])
def test_samples_matter_up_to_their_cut(name):
    triple = random_triple(1000, seed=3)
    metric, ranked = METRICS[name], rank(read_samples(*triple))
    cut = int(metric.cut(ranked.table))
    found = metric.influence(ranked.table)
    for part in found:
        assert len(set(part[:cut])) == 1
        assert not part[cut:].any()
    sign = {"fpr_at_95tpr": (-1, -1, 1), "ccr_at_10fpr": (1, 0, -1), "detection_accuracy": (1, 1, -1)}[name]
    assert tuple(np.sign(part[0]) for part in found) == sign


def test_the_slope_of_a_moving_cut():
    """Uniform scores: as many more known samples as unknown ones are accepted."""
    n = 2001
    score = np.concatenate([np.linspace(0, 1, n), np.linspace(0, 1, n)])
    triple = np.repeat([0, UNKNOWN], n), np.zeros(2 * n, int), score
    table = rank(read_samples(*triple)).table
    found = influence.of_accepted(table, lambda _: 200, moves=True, right=1.0, wrong=1.0)
    assert isinstance(found, Influence)
    assert found.unknown[0] == pytest.approx(-1.0, abs=0.01)
    assert ranking.fpr_at(table, 200) == pytest.approx(0.9, abs=0.001)
