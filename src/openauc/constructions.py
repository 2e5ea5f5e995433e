"""The constructions in the proofs of Props 1, 2 and 3: what is exchanged, and the conditions it needs."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from openauc.metrics import ranking
from openauc.metrics.counts import Coded, RankedSamples
from openauc.metrics.decision import ThresholdSweep
from openauc.metrics.samples import CORRECT, UNKNOWN_KIND, WRONG, Ints, read_samples


class Condition(NamedTuple):
    """Something a construction needs, with the numbers found, and whether it holds."""

    sentence: str
    holds: bool


class Change(NamedTuple):
    """New class positions and scores of all samples, and how they came about."""

    pred: Ints
    score: NDArray[Any]
    n_exchanges: int = 0
    complete: bool = True
    conditions: tuple[Condition, ...] = ()
    remark: str = ""


def apply(coded: Coded, change: Change) -> RankedSamples:
    """The samples with other predictions and the same classes."""
    samples = coded.samples
    names = np.append(coded.classes, samples.unknown_label)  # position -1 is the last
    new = read_samples(samples.y_true, names[change.pred], change.score, unknown_label=samples.unknown_label)
    return RankedSamples(new, coded.classes.tolist())


def _decide(ranked: RankedSamples, threshold: float) -> tuple[Ints, Ints, Ints]:
    """Positions of the rejected unknown, rejected known and accepted misclassified samples, by rising score."""
    by_score = ranked.ranking.order
    kind, accepted = ranked.samples.kind[by_score], ranked.coded.accepted_at(threshold)[by_score]
    unknown = kind == UNKNOWN_KIND
    return by_score[unknown & ~accepted], by_score[~unknown & ~accepted], by_score[accepted & (kind == WRONG)]


def _any_between(low: NDArray[Any], high: NDArray[Any], scores: NDArray[Any]) -> bool:
    """Whether one of ``scores`` lies in some [low_i, high_i], low_i < high_i (a tie at an end costs half)."""
    ascending = np.sort(scores)
    inside = np.searchsorted(ascending, high, "right") - np.searchsorted(ascending, low, "left")
    return bool(np.any((inside > 0) & (low < high)))


def exchange_with_wrong(ranked: RankedSamples, threshold: float) -> Change:
    """Construction I: rejected unknown x1 and accepted misclassified known x2 trade decisions and scores.

    Every known class keeps its TP, FP and FN. The highest x1 and the lowest x2 come first, to break the most pairs.
    """
    coded, (rejected, _, wrong) = ranked.coded, _decide(ranked, threshold)
    n_rejected, n_wrong = len(rejected), len(wrong)
    n = min(n_rejected, n_wrong)
    x1, x2 = rejected[::-1][:n], wrong[:n]
    pred, score = coded.pred.copy(), coded.samples.score.copy()
    pred[x1] = coded.pred[x2]
    pred[x2] = np.where(coded.pred[x1] < 0, -1, coded.pred[x2])  # a rejection by label moves along
    score[x1], score[x2] = coded.samples.score[x2], coded.samples.score[x1]
    correct = coded.samples.score[coded.samples.kind == CORRECT]
    # x1 moves up only if its label, not its score, had it rejected.
    strict = _any_between(score[x1], score[x2], correct) and not np.any(score[x1] > score[x2])
    false_positives = n_wrong + coded.samples.n_unknown - n_rejected
    conditions = (
        Condition("an unknown sample is rejected", n_rejected > 0),
        Condition(
            f"the paper's sum_i FP_i >= TP_unknown ({false_positives} >= {n_rejected})", false_positives >= n_rejected
        ),
        Condition(
            f"accepted misclassified known samples >= TP_unknown ({n_wrong} >= {n_rejected}), the number "
            "needed, since FP_i also counts accepted unknown samples, which have nothing to exchange",
            n_wrong >= n_rejected,
        ),
        Condition(
            "a correct known sample lies between the scores of an exchanged pair, no unknown sample moves up", strict
        ),
    )
    remark = f"The extra condition that makes Prop. 5 strict, the last one, {'holds' if strict else 'fails'}."
    return Change(pred, score, n, n == n_rejected, conditions, remark)


def complete_threshold(ranked: RankedSamples) -> float | None:
    """Lowest threshold (largest unknown TPR) at which construction I gets every unknown sample accepted."""
    rejected = ranked.samples.n_unknown - np.asarray(ranked.counts.accepted_unknown)
    wrong = np.subtract(ranked.counts.accepted_known, ranked.counts.correct)
    possible = np.flatnonzero((rejected > 0) & (wrong >= rejected))
    return float(ranked.ranking.threshold[possible[0]]) if len(possible) else None


def accept_in_pairs(ranked: RankedSamples, threshold: float) -> Change:
    """Construction II: rejected unknown x1 is accepted as class y2 while known x2 of class y2 is set right.

    First x2 are rejected known samples: AKS stays and AUS = TP / (TP + FP) rises to 1. Then x2 are accepted
    misclassified samples: AKS rises. One unknown sample is left rejected, since AUS would be 0 / 0 without any.
    """
    coded, (rejected, rejected_known, wrong) = ranked.coded, _decide(ranked, threshold)
    true_positive, false_positive, n_wrong = len(rejected), len(rejected_known), len(wrong)
    missed = false_positive + n_wrong  # sum_i FN_i
    pure = true_positive > false_positive
    n = min(true_positive - 1, missed) if pure else 0
    x1, x2 = rejected[::-1][:n], np.concatenate([rejected_known, wrong])[:n]
    pred, score = coded.pred.copy(), coded.samples.score.copy()
    pred[x1] = pred[x2] = coded.true[x2]
    ceiling = score.dtype.type(threshold)
    if ceiling > np.float64(threshold):  # rounded up to the scores' precision, it would still be rejected
        ceiling = np.nextafter(ceiling, ceiling.dtype.type(-np.inf))
    for x in (x1, x2):  # the smallest change of score that gets a sample accepted
        score[x] = np.minimum(score[x], ceiling)
    needed = max(true_positive - false_positive - 1, 0)
    conditions = (
        Condition(f"the paper's sum_i FN_i >= TP_unknown ({missed} >= {true_positive})", missed >= true_positive),
        Condition(f"the paper's TP_unknown > FP_unknown ({true_positive} > {false_positive})", pure),
        Condition(
            f"accepted misclassified known samples for the steps that remain ({n_wrong} >= {needed})", n_wrong >= needed
        ),
        Condition(
            f"TP_unknown >= 2 ({true_positive} >= 2), since one unknown sample has to stay rejected: "
            "without any, AUS is 0 / 0 (the proposition needs the convention AUS := 1 there)",
            true_positive >= 2,
        ),
    )
    remark = (
        "It gains from the known samples set right and loses from the unknown ones accepted; Prop. 6 bounds "
        "the unknown TPR only at thresholds that reject known samples."
    )
    return Change(pred, score, n, pure and n == true_positive - 1, conditions, remark)


def escape_threshold(ranked: RankedSamples, sweep: ThresholdSweep, *, otherwise: float) -> float:
    """Threshold of the best normalized accuracy among those that meet the conditions of construction II."""
    counts, samples = ranked.counts, ranked.samples
    true_positive = samples.n_unknown - np.asarray(counts.accepted_unknown)
    false_positive, missed = (samples.n_known - np.asarray(part) for part in (counts.accepted_known, counts.correct))
    met = (missed >= true_positive) & (true_positive > false_positive) & (true_positive >= 2)
    if not met.any():
        return otherwise
    nacc = np.where(met, sweep.values["normalized_accuracy"], -np.inf)
    return float(sweep.threshold[np.argmax(nacc)])


def exchange_among_known(ranked: RankedSamples) -> Change:
    """Construction III: misclassified known samples take the lowest known scores; Acc and AUC stay."""
    samples = ranked.samples
    score, kind = samples.score.copy(), samples.kind
    known = ranked.ranking.order[ranked.ranking.kind != UNKNOWN_KIND]
    low, high = np.split(known, [samples.n_known - samples.n_correct])
    x1, x2 = low[kind[low] == CORRECT], high[kind[high] == WRONG]  # as many of one as of the other
    apart = score[x1] < score[x2]
    x1, x2 = x1[apart], x2[apart]
    between = _any_between(score[x1], score[x2], score[kind == UNKNOWN_KIND])
    table = ranked.ranking.table
    acc, auc = float(ranking.accuracy_of(table)), float(ranking.auroc_of(table))
    conditions = (
        Condition(f"the paper's Acc != 1 and AUC != 1 ({acc:.6g}, {auc:.6g})", acc != 1 and auc != 1),
        Condition("a misclassified known sample ranks above a correct one", len(x1) > 0),
        Condition("an unknown sample lies between the scores of an exchanged pair", between),
    )
    remark = f"The last condition, which Acc != 1 and AUC != 1 do not ensure, {'holds' if between else 'fails'}."
    score[x1], score[x2] = score[x2], score[x1]
    return Change(ranked.coded.pred, score, len(x1), True, conditions, remark)


def break_classifier(coded: Coded) -> Change:
    """Every correct known sample gets the label of the next class; all scores stay."""
    following = (coded.pred + 1) % len(coded.classes)
    return Change(np.where(coded.samples.kind == CORRECT, following, coded.pred), coded.samples.score)
