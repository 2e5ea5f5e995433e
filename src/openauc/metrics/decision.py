"""Decision metrics: functions of the (C+1)-class confusion matrix at a threshold.

A sample is rejected when its score is above the threshold, or when ``y_pred`` itself says unknown. The ``*_of``
formulas take ``DecisionCounts`` of any shape: of one threshold, of all thresholds, or of bootstrap replicates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from openauc import _validation as check
from openauc._validation import UNKNOWN, Label, Vector, Weights
from openauc.intervals import WeightedRate
from openauc.metrics.counts import DecisionCounts, RankedSamples, check_threshold, counts_at, encode, ratio
from openauc.metrics.curve import Curve, Floats
from openauc.metrics.rank_table import Counts
from openauc.metrics.samples import CORRECT, read_samples

Average = Literal["macro", "micro"]
AusReading = Literal["precision", "accuracy"]
Classes = Sequence[Label] | None
_ROUNDING = 1e-13  # relative, of sums of weights


def _accepted(counts: DecisionCounts) -> NDArray[Any]:
    return np.add(counts.accepted_known, counts.accepted_unknown)


def f_score_of(counts: DecisionCounts, average: Average = "macro") -> Floats:
    if average == "macro":
        # A running total may round to a little more than the largest possible mean.
        precision, recall = (
            np.minimum(np.divide(total, counts.n_classes), 1.0) for total in (counts.precision_sum, counts.recall_sum)
        )
    else:
        precision = ratio(counts.correct, _accepted(counts))
        recall = np.divide(counts.correct, counts.n_known)
    return ratio(2.0 * precision * recall, precision + recall)


def youden_of(counts: DecisionCounts, average: Average = "macro") -> Floats:
    if average == "macro":
        return np.asarray(np.minimum(np.subtract(counts.recall_sum, counts.fallout_sum) / counts.n_classes, 1.0))
    n = np.add(counts.n_known, counts.n_unknown)
    fallout = (_accepted(counts) - counts.correct) / (counts.n_classes * n - counts.n_known)
    return np.asarray(np.divide(counts.correct, counts.n_known) - fallout)


def normalized_accuracy_of(counts: DecisionCounts, weight: float = 0.5, aus: AusReading = "precision") -> Floats:
    aks, aus_rate = (r.weight * ratio(r.successes, r.trials) for r in normalized_accuracy_rates(counts, weight, aus))
    return np.asarray(aks + aus_rate)


def normalized_accuracy_rates(
    counts: DecisionCounts, weight: float = 0.5, aus: AusReading = "precision"
) -> tuple[WeightedRate, WeightedRate]:
    """The two terms of the normalized accuracy; AKS as the mean over samples of their share of right decisions."""
    n, accepted = np.add(counts.n_known, counts.n_unknown), _accepted(counts)
    errors = accepted + counts.n_known - np.multiply(2, counts.correct)  # sum_i FP_i + FN_i
    aks = WeightedRate(weight, n - errors / counts.n_classes, n)
    rejected, rejected_unknown = n - accepted, np.subtract(counts.n_unknown, counts.accepted_unknown)
    rejected = np.where(rejected > _ROUNDING * n, rejected, 0)  # none, where sums of weights differ by rounding
    trials = rejected if aus == "precision" else counts.n_unknown
    return aks, WeightedRate(1.0 - weight, np.minimum(rejected_unknown, trials), trials)


def unknown_tpr_of(counts: DecisionCounts) -> Floats:
    return 1.0 - np.divide(counts.accepted_unknown, counts.n_unknown)


def unknown_fpr_of(counts: DecisionCounts) -> Floats:
    return 1.0 - np.divide(counts.accepted_known, counts.n_known)


DECISION_METRICS: Mapping[str, Callable[[DecisionCounts], Floats]] = {
    "macro_f_score": lambda c: f_score_of(c, "macro"),
    "micro_f_score": lambda c: f_score_of(c, "micro"),
    "youden_index": lambda c: youden_of(c, "macro"),
    "micro_youden_index": lambda c: youden_of(c, "micro"),
    "normalized_accuracy": normalized_accuracy_of,
}
"""Metrics that need a threshold, by name; higher is better for each."""


def closed_set_accuracy(
    y_true: Vector,
    y_pred: Vector,
    open_score: ArrayLike | None = None,
    *,
    unknown_label: Label = UNKNOWN,
    sample_weight: Weights = None,
) -> float:
    """Share of the known samples whose predicted class is right, nothing being rejected.

    >>> closed_set_accuracy([0, 1, 1, -1], [0, 1, 0, 0])
    0.6666666666666666
    """
    score = np.zeros(len(check.as_labels("y_true", y_true))) if open_score is None else open_score
    options: Any = {"unknown_label": unknown_label, "need_unknown": False, "sample_weight": sample_weight}
    samples = read_samples(y_true, y_pred, score, **options)
    correct = samples.n_correct if samples.weight is None else samples.weight[samples.kind == CORRECT].sum()
    return float(correct / samples.totals[0])


class Confusion(NamedTuple):
    """Counts ``matrix[i, j]`` of samples of class ``labels[i]`` predicted ``labels[j]``; the last is unknown."""

    matrix: Counts
    labels: tuple[Label, ...]


def confusion_matrix(
    y_true: Vector,
    y_pred: Vector,
    open_score: Vector,
    *,
    threshold: float,
    classes: Classes = None,
    unknown_label: Label = UNKNOWN,
    sample_weight: Weights = None,
) -> Confusion:
    """The (C+1)-class confusion matrix when samples with score > ``threshold`` are rejected.

    >>> confusion_matrix([0, 1, 1, -1], [0, 1, 0, 1], [0.1, 0.9, 0.2, 0.3], threshold=0.5).matrix.tolist()
    [[1, 0, 0], [1, 0, 1], [0, 1, 0]]
    """
    samples = read_samples(y_true, y_pred, open_score, unknown_label=unknown_label, sample_weight=sample_weight)
    coded = encode(samples, classes)
    size = len(coded.classes) + 1
    decided = np.where(samples.score > check_threshold(threshold), -1, coded.pred)
    cells = (coded.true % size) * size + decided % size  # -1 % size: the last row and column
    matrix = np.bincount(cells, weights=samples.weight, minlength=size * size).reshape(size, size)
    return Confusion(matrix, (*coded.classes.tolist(), unknown_label))


def open_set_f_score(
    y_true: Vector,
    y_pred: Vector,
    open_score: Vector,
    *,
    threshold: float,
    average: Average = "macro",
    classes: Classes = None,
    unknown_label: Label = UNKNOWN,
    sample_weight: Weights = None,
) -> float:
    r"""Open-set F-score: harmonic mean of precision and recall of the known classes at a threshold.

    .. math:: F = 2 \frac{P_k \, TPR_k}{P_k + TPR_k}

    "macro" averages TP/(TP+FP) and TP/(TP+FN) over the classes first (it is not the mean of per-class F-scores);
    "micro" sums the counts first.

    >>> open_set_f_score([0, 1, 1, -1], [0, 1, 0, 1], [0.1, 0.9, 0.2, 0.3], threshold=0.5, average="micro")
    0.3333333333333333
    """
    check.check_choice("average", average, ("macro", "micro"))
    counts = _counts((y_true, y_pred, open_score), threshold, classes, unknown_label, sample_weight)
    return float(f_score_of(counts, average))


def youden_index(
    y_true: Vector,
    y_pred: Vector,
    open_score: Vector,
    *,
    threshold: float,
    average: Average = "macro",
    classes: Classes = None,
    unknown_label: Label = UNKNOWN,
    sample_weight: Weights = None,
) -> float:
    r"""Youden's index of the known classes at a threshold, :math:`J = TPR_k + TNR_k - 1`.

    >>> youden_index([0, 1, 1, -1], [0, 1, 0, 1], [0.1, 0.9, 0.2, 0.3], threshold=0.5)
    0.08333333333333337
    """
    check.check_choice("average", average, ("macro", "micro"))
    counts = _counts((y_true, y_pred, open_score), threshold, classes, unknown_label, sample_weight)
    return float(youden_of(counts, average))


def normalized_accuracy(
    y_true: Vector,
    y_pred: Vector,
    open_score: Vector,
    *,
    threshold: float,
    weight: float = 0.5,
    aus: AusReading = "precision",
    classes: Classes = None,
    unknown_label: Label = UNKNOWN,
    sample_weight: Weights = None,
) -> float:
    r"""Normalized accuracy at a threshold, :math:`\lambda\,AKS + (1 - \lambda)\,AUS`.

    AKS is the one-against-rest accuracy pooled over the known classes. AUS is TP/(TP+FP) of the unknown class as the
    paper prints it (0 when nothing is rejected), or with ``aus="accuracy"`` TP/(TP+FN).

    >>> normalized_accuracy([0, 1, 1, -1], [0, 1, 0, 1], [0.1, 0.9, 0.2, 0.3], threshold=0.5)
    0.25
    """
    check.check_fraction("weight", weight)
    check.check_choice("aus", aus, ("precision", "accuracy"))
    counts = _counts((y_true, y_pred, open_score), threshold, classes, unknown_label, sample_weight)
    return float(normalized_accuracy_of(counts, weight, aus))


def unknown_tpr(
    y_true: Vector,
    y_pred: Vector,
    open_score: Vector,
    *,
    threshold: float,
    unknown_label: Label = UNKNOWN,
    sample_weight: Weights = None,
) -> float:
    """Share of the unknown samples that are rejected at ``threshold``.

    >>> unknown_tpr([0, -1, -1], [0, 0, 0], [0.1, 0.4, 0.9], threshold=0.5)
    0.5
    """
    return float(unknown_tpr_of(_counts((y_true, y_pred, open_score), threshold, None, unknown_label, sample_weight)))


def unknown_fpr(
    y_true: Vector,
    y_pred: Vector,
    open_score: Vector,
    *,
    threshold: float,
    unknown_label: Label = UNKNOWN,
    sample_weight: Weights = None,
) -> float:
    """Share of the known samples that are rejected at ``threshold``.

    >>> unknown_fpr([0, 0, -1], [0, 0, 0], [0.1, 0.7, 0.9], threshold=0.5)
    0.5
    """
    return float(unknown_fpr_of(_counts((y_true, y_pred, open_score), threshold, None, unknown_label, sample_weight)))


def _counts(
    triple: tuple[Vector, Vector, Vector], threshold: float, classes: Classes, label: Label, weight: Weights
) -> DecisionCounts:
    samples = read_samples(*triple, unknown_label=label, sample_weight=weight)
    return counts_at(encode(samples, classes), check_threshold(threshold))


class Best(NamedTuple):
    """The largest value of a metric over all thresholds, and the lowest threshold that reaches it."""

    value: float
    threshold: float


def best_of(values: Floats, threshold: NDArray[Any]) -> Best:
    cut = int(np.argmax(values))
    return Best(float(values[cut]), float(threshold[cut]))


@dataclass(frozen=True, eq=False)
class ThresholdSweep:
    """Every decision metric at every distinct threshold (``-inf``: reject all; the last one: accept all)."""

    threshold: Floats
    unknown_tpr: Floats
    unknown_fpr: Floats
    values: Mapping[str, Floats]

    def best(self, name: str) -> Best:
        """Largest value of metric ``name`` and its threshold."""
        return best_of(self.values[check.check_choice("metric", name, self.values)], self.threshold)

    def curve(self, name: str, against: Literal["threshold", "unknown_tpr"] = "unknown_tpr") -> Curve:
        """Metric ``name`` against the threshold, or against the TPR of the unknown class (the paper's Figure 1)."""
        check.check_choice("against", against, ("threshold", "unknown_tpr"))
        values = self.values[check.check_choice("metric", name, self.values)]
        if against == "threshold":
            return Curve(self.threshold, values, self.threshold, "threshold", name)
        return against_unknown_tpr(self.unknown_tpr, values, self.threshold, name)


def against_unknown_tpr(unknown_tpr: Floats, values: Floats, threshold: Floats, name: str) -> Curve:
    return Curve(unknown_tpr[::-1], values[::-1], threshold[::-1], "unknown rejected (TPR)", name)


def threshold_sweep(
    y_true: Vector,
    y_pred: Vector,
    open_score: Vector,
    *,
    weight: float = 0.5,
    aus: AusReading = "precision",
    classes: Classes = None,
    unknown_label: Label = UNKNOWN,
    sample_weight: Weights = None,
) -> ThresholdSweep:
    """F-score, Youden's index and normalized accuracy at every distinct threshold, in O(N log N).

    ``weight`` and ``aus`` are those of ``normalized_accuracy``.

    >>> sweep = threshold_sweep([0, 1, 1, -1], [0, 1, 0, 1], [0.1, 0.2, 0.4, 0.3])
    >>> sweep.best("micro_f_score")
    Best(value=0.8, threshold=0.2)
    """
    check.check_fraction("weight", weight)
    check.check_choice("aus", aus, ("precision", "accuracy"))
    samples = read_samples(y_true, y_pred, open_score, unknown_label=unknown_label, sample_weight=sample_weight)
    return sweep_of(RankedSamples(samples, classes), weight, aus)


def sweep_of(ranked: RankedSamples, weight: float = 0.5, aus: AusReading = "precision") -> ThresholdSweep:
    values, counts = {name: ranked.over_thresholds(of) for name, of in DECISION_METRICS.items()}, ranked.counts
    if (weight, aus) != (0.5, "precision"):
        values["normalized_accuracy"] = normalized_accuracy_of(counts, weight, aus)
    return ThresholdSweep(ranked.ranking.threshold, unknown_tpr_of(counts), unknown_fpr_of(counts), values)
