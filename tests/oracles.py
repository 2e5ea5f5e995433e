"""Slow, obviously right twins of the metrics: plain loops straight from the equations, no numpy.

Rates are exact fractions until they are returned. `y_true`, `y_pred` and `score` are lists. A sample is
unknown when its label is `unknown`, rejected when its score is above the threshold; `None` rejects all.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

Threshold = float | None
Point = tuple[Fraction, Fraction]


def _known(y_true: Sequence[Any], unknown: Any) -> list[int]:
    return [i for i in range(len(y_true)) if y_true[i] != unknown]


def _unknown(y_true: Sequence[Any], unknown: Any) -> list[int]:
    return [j for j in range(len(y_true)) if y_true[j] == unknown]


def accepts(threshold: Threshold, score: float) -> bool:
    return threshold is not None and score <= threshold


def thresholds(score: Sequence[float]) -> list[Threshold]:
    """Reject everything, then accept up to each distinct score."""
    return [None, *sorted(set(score))]


def _pairs(y_true, y_pred, score, ties, unknown, *, need_correct) -> float:
    credit = pairs = Fraction(0)
    for i in _known(y_true, unknown):
        for j in _unknown(y_true, unknown):
            pairs += 1
            if need_correct and y_true[i] != y_pred[i]:
                continue
            if score[j] > score[i]:
                credit += 1
            elif score[j] == score[i] and ties == "half":
                credit += Fraction(1, 2)
    return float(credit / pairs)


def openauc(y_true, y_pred, score, ties="half", unknown=-1) -> float:
    """Eq. of Prop. 4: E[1[y_k = h(x_k)] * 1[r(x_u) > r(x_k)]]."""
    return _pairs(y_true, y_pred, score, ties, unknown, need_correct=True)


def auroc(y_true, y_pred, score, ties="half", unknown=-1) -> float:
    """E[1[r(x_u) > r(x_k)]]."""
    return _pairs(y_true, y_pred, score, ties, unknown, need_correct=False)


def pair_counts(y_true, y_pred, score, *, with_wrong, unknown=-1) -> tuple[int, int]:
    """Pairs with known < unknown and with known == unknown."""
    less = equal = 0
    for i in _known(y_true, unknown):
        for j in _unknown(y_true, unknown):
            if with_wrong or y_true[i] == y_pred[i]:
                less += score[i] < score[j]
                equal += score[i] == score[j]
    return less, equal


def accuracy(y_true, y_pred, unknown=-1) -> float:
    known = _known(y_true, unknown)
    return float(Fraction(sum(y_true[i] == y_pred[i] for i in known), len(known)))


def pointwise_sum(y_true, y_pred, score, unknown=-1) -> float:
    """E[1[y_k = h(x_k)] + 1[r(x_u) > r(x_k)]], a tie counting one half."""
    total = pairs = Fraction(0)
    for i in _known(y_true, unknown):
        for j in _unknown(y_true, unknown):
            pairs += 1
            total += y_true[i] == y_pred[i]
            total += 1 if score[j] > score[i] else Fraction(int(score[j] == score[i]), 2)
    return float(total / pairs)


def ofpr(y_true, score, threshold, unknown=-1) -> Fraction:
    """P[r(x_u) <= t]."""
    samples = _unknown(y_true, unknown)
    return Fraction(sum(accepts(threshold, score[j]) for j in samples), len(samples))


def known_accepted(y_true, score, threshold, unknown=-1) -> Fraction:
    """P[r(x_k) <= t]."""
    samples = _known(y_true, unknown)
    return Fraction(sum(accepts(threshold, score[i]) for i in samples), len(samples))


def cotpr(y_true, y_pred, score, threshold, unknown=-1) -> Fraction:
    """P[r(x_k) <= t, y_k = h(x_k)]."""
    samples = _known(y_true, unknown)
    hits = sum(accepts(threshold, score[i]) and y_true[i] == y_pred[i] for i in samples)
    return Fraction(hits, len(samples))


def oscr_points(y_true, y_pred, score, unknown=-1) -> list[Point]:
    """(OFPR, COTPR) at every distinct threshold, from rejecting all to accepting all."""
    return [(ofpr(y_true, score, t, unknown), cotpr(y_true, y_pred, score, t, unknown)) for t in thresholds(score)]


def integrate(points: Sequence[Point], low: float, high: float, *, step: bool) -> Fraction:
    """Integral over [low, high] of lines between the points, or of steps as high as their left end."""
    a, b = Fraction(low), Fraction(high)
    total = Fraction(0)
    for (x0, y0), (x1, y1) in pairwise(points):
        left, right = max(x0, a), min(x1, b)
        if left >= right:
            continue
        height_left = y0 + (y1 - y0) * (left - x0) / (x1 - x0)
        height_right = y0 + (y1 - y0) * (right - x0) / (x1 - x0)
        total += (right - left) * (y0 if step else (height_left + height_right) / 2)
    return total


def partial_openauc(y_true, y_pred, score, low, high, ties="half", unknown=-1) -> float:
    """Mean height of the OSCR curve for OFPR in [low, high]."""
    points = oscr_points(y_true, y_pred, score, unknown)
    area = integrate(points, low, high, step=ties == "strict")
    return float(area / (Fraction(high) - Fraction(low)))


def openauc_integral(y_true, y_pred, score, inverse, unknown=-1) -> float:
    """Definition of OpenAUC: the integral over u in (0, 1) of COTPR(OFPR^{-1}(u)).

    OFPR is a step function, so its inverse is a choice: "sup" is the supremum of thresholds with OFPR <= u,
    which rejects known samples tied with the unknown one stepped over; "inf" is the infimum of those with
    OFPR >= u, which accepts them. Both are constant while u stays between two multiples of 1 / N_u.
    """
    n_unknown = len(_unknown(y_true, unknown))
    total = Fraction(0)
    for cell in range(n_unknown):
        u = Fraction(2 * cell + 1, 2 * n_unknown)
        values = thresholds(score)
        if inverse == "sup":
            t = max(i for i in range(len(values)) if ofpr(y_true, score, values[i], unknown) <= u)
        else:
            t = min(i for i in range(len(values)) if ofpr(y_true, score, values[i], unknown) >= u)
        total += cotpr(y_true, y_pred, score, values[t], unknown)
    return float(total / n_unknown)


def _sides(y_true, score, threshold, unknown) -> tuple[Fraction, Fraction]:
    """Share of unknown and of known samples rejected."""
    return 1 - ofpr(y_true, score, threshold, unknown), 1 - known_accepted(y_true, score, threshold, unknown)


def fpr_at_tpr(y_true, score, tpr, positive="unknown", unknown=-1) -> float:
    """Smallest FPR among the thresholds with TPR >= tpr; floats are compared as typed (11/20 >= 0.55)."""
    rates = []
    for t in thresholds(score):
        unknown_rejected, known_rejected = _sides(y_true, score, t, unknown)
        if positive == "unknown":
            found, alarms = unknown_rejected, known_rejected
        else:
            found, alarms = 1 - known_rejected, 1 - unknown_rejected
        if float(found) >= tpr:
            rates.append(alarms)
    return float(min(rates))


def error_at_tpr(y_true, score, tpr, unknown=-1) -> float:
    """Share of all samples on the wrong side at the highest threshold with unknown TPR >= tpr."""
    last = [t for t in thresholds(score) if float(_sides(y_true, score, t, unknown)[0]) >= tpr][-1]
    wrong = 0
    for label, r in zip(y_true, score, strict=True):
        wrong += accepts(last, r) if label == unknown else not accepts(last, r)
    return float(Fraction(wrong, len(y_true)))


def ccr_at_fpr(y_true, y_pred, score, fpr, unknown=-1) -> float:
    """Largest COTPR among the thresholds with OFPR <= fpr."""
    allowed = [t for t in thresholds(score) if float(ofpr(y_true, score, t, unknown)) <= fpr]
    return float(max(cotpr(y_true, y_pred, score, t, unknown) for t in allowed))


def average_precision(y_true, score, positive="unknown", unknown=-1) -> float:
    """Sum over thresholds, from few alarms to many, of precision times the recall gained."""
    order = thresholds(score)
    if positive == "unknown":
        order = order[::-1]
    total, recall_before = Fraction(0), Fraction(0)
    for t in order:
        hits = alarms = positives = 0
        for label, r in zip(y_true, score, strict=True):
            is_positive = (label == unknown) == (positive == "unknown")
            alarm = accepts(t, r) == (positive == "known")
            positives += is_positive
            alarms += alarm
            hits += alarm and is_positive
        recall = Fraction(hits, positives)
        if alarms:
            total += Fraction(hits, alarms) * (recall - recall_before)
        recall_before = recall
    return float(total)


def detection_accuracy(y_true, score, unknown=-1) -> float:
    """Largest mean of unknown rejected and known accepted."""
    sides = [_sides(y_true, score, t, unknown) for t in thresholds(score)]
    return float(max((found + 1 - alarms) / 2 for found, alarms in sides))


def confusion(y_true, y_pred, score, threshold, classes, unknown=-1) -> list[list[int]]:
    """Rows: true class, columns: decided class; the unknown class comes last."""
    labels = [*classes, unknown]
    matrix = [[0] * len(labels) for _ in labels]
    for label, pred, r in zip(y_true, y_pred, score, strict=True):
        decided = pred if accepts(threshold, r) else unknown
        matrix[labels.index(label)][labels.index(decided)] += 1
    return matrix


class OneAgainstRest:
    """TP, FP, FN, TN of class i in a confusion matrix."""

    def __init__(self, matrix: list[list[int]], i: int):
        size = len(matrix)
        others = [j for j in range(size) if j != i]
        self.tp = matrix[i][i]
        self.fp = sum(matrix[j][i] for j in others)
        self.fn = sum(matrix[i][j] for j in others)
        self.tn = sum(matrix[j][k] for j in others for k in others)


def _ratio(part: int, whole: int) -> Fraction:
    return Fraction(part, whole) if whole else Fraction(0)


def _known_classes(matrix: list[list[int]]) -> list[OneAgainstRest]:
    return [OneAgainstRest(matrix, i) for i in range(len(matrix) - 1)]


def _rate(parts: list[int], wholes: list[int], average: str) -> Fraction:
    if average == "micro":
        return _ratio(sum(parts), sum(wholes))
    return sum((_ratio(p, w) for p, w in zip(parts, wholes, strict=True)), Fraction(0)) / len(parts)


def f_score(matrix: list[list[int]], average: str = "macro") -> float:
    """2 P_k TPR_k / (P_k + TPR_k)."""
    classes = _known_classes(matrix)
    tp = [c.tp for c in classes]
    precision = _rate(tp, [c.tp + c.fp for c in classes], average)
    recall = _rate(tp, [c.tp + c.fn for c in classes], average)
    return float(2 * precision * recall / (precision + recall)) if precision + recall else 0.0


def youden(matrix: list[list[int]], average: str = "macro") -> float:
    """TPR_k + TNR_k - 1."""
    classes = _known_classes(matrix)
    tpr = _rate([c.tp for c in classes], [c.tp + c.fn for c in classes], average)
    tnr = _rate([c.tn for c in classes], [c.tn + c.fp for c in classes], average)
    return float(tpr + tnr - 1)


def normalized_accuracy(matrix: list[list[int]], weight: float = 0.5, aus: str = "precision") -> float:
    """weight * AKS + (1 - weight) * AUS."""
    classes = _known_classes(matrix)
    aks = Fraction(sum(c.tp + c.tn for c in classes), sum(c.tp + c.tn + c.fp + c.fn for c in classes))
    unknown = OneAgainstRest(matrix, len(matrix) - 1)
    aus_value = _ratio(unknown.tp, unknown.tp + (unknown.fp if aus == "precision" else unknown.fn))
    return float(Fraction(weight) * aks + (1 - Fraction(weight)) * aus_value)


def unknown_tpr(matrix: list[list[int]]) -> float:
    unknown = OneAgainstRest(matrix, len(matrix) - 1)
    return float(_ratio(unknown.tp, unknown.tp + unknown.fn))


def unknown_fpr(matrix: list[list[int]]) -> float:
    unknown = OneAgainstRest(matrix, len(matrix) - 1)
    return float(_ratio(unknown.fp, unknown.fp + unknown.tn))
