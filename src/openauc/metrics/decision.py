"""Decision metrics: what the (C+1)-class confusion matrix says once a threshold is fixed.

A sample is rejected, i.e. predicted unknown, when its score is above the threshold (or when ``y_pred`` itself says
unknown). All formulas are functions of ``DecisionCounts``, whose fields are arrays of any shape: one number at a
single threshold, a vector over every distinct threshold in the sweep, a row per replicate in the bootstrap.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from openauc import _validation as check
from openauc._validation import UNKNOWN, Label
from openauc.metrics._kernel import (
    CORRECT,
    UNKNOWN_KIND,
    Ints,
    Ranking,
    Samples,
    fast_backend,
    rank,
    read_samples,
)
from openauc.metrics.curve import Curve, Floats

Average = Literal["macro", "micro"]
AusReading = Literal["precision", "accuracy"]
_TINY = np.finfo(np.float64).tiny  # in place of 0 / 0: far below every count and every rate


# --- counts ---------------------------------------------------------------------------------------------


class Coded(NamedTuple):
    """Samples with classes as positions 0..C-1 in ``classes``; -1 stands for unknown."""

    samples: Samples
    classes: NDArray[Any]
    true: Ints
    pred: Ints
    class_size: Ints  # test samples of each known class


def encode(samples: Samples, classes: Sequence[Label] | None = None) -> Coded:
    """Number the known classes: those given, else every class met in ``y_true`` or ``y_pred``."""
    names = _classes_met(samples) if classes is None else np.unique(check.as_labels("classes", list(classes)))
    if len(names) == 0:
        raise ValueError("classes is empty; list every known class, or leave it out to use the classes met.")
    if check.is_label(names, samples.unknown_label).any():
        raise ValueError(f"classes contains the unknown label {samples.unknown_label!r}; list known classes only.")
    true = _positions("y_true", samples.y_true, names, samples.unknown_label)
    pred = _positions("y_pred", samples.y_pred, names, samples.unknown_label)
    size = np.bincount(true + 1, minlength=len(names) + 1)[1:]
    return Coded(samples, names, true, pred, size)


def _classes_met(samples: Samples) -> NDArray[Any]:
    labels = samples.y_true, samples.y_pred
    size = _lookup_size(*labels)
    if size is None:
        found = np.union1d(*labels)
        found = found[found >= 0] if found.dtype.kind == "i" else found
    else:
        met = np.zeros(size, dtype=bool)
        for part in labels:
            met[part] = True
        found = np.flatnonzero(met[:-1])
    return found[~check.is_label(found, samples.unknown_label)]


def _lookup_size(*labels: NDArray[Any]) -> int | None:
    """Size of a table indexed by these labels, -1 being its last entry; None where a table does not serve."""
    if any(part.dtype.kind != "i" or len(part) == 0 or part.min() < -1 for part in labels):
        return None
    size = max(int(part.max()) for part in labels) + 2
    return size if size <= 2 * len(labels[0]) + 1024 else None


def _positions(name: str, labels: NDArray[Any], classes: NDArray[Any], unknown_label: Label) -> Ints:
    """Position of each label in ``classes``, -1 for the unknown label."""
    size = _lookup_size(labels, classes)
    if size is not None and size == len(classes) + 1 and unknown_label == -1:
        return labels.astype(np.int64, copy=False)  # all of 0 to C-1 are classes: labels are positions already
    if size is None:
        position = np.minimum(np.searchsorted(classes, labels), len(classes) - 1)
        position = np.where(classes[position] == labels, position, -2)
        position[check.is_label(labels, unknown_label)] = -1
    else:
        lookup = np.full(size, -2, dtype=np.int64)
        lookup[classes] = np.arange(len(classes))
        if isinstance(unknown_label, int) and -1 <= unknown_label < size:
            lookup[unknown_label] = -1
        position = lookup[labels]
    if position.min(initial=0) == -2:
        stranger = labels[position == -2][0]
        raise ValueError(
            f"{name} contains {stranger.item()!r}, which is not among the given classes; list every known class "
            f"in `classes` and mark unknown samples {unknown_label!r}."
        )
    return position


class DecisionCounts(NamedTuple):
    """Sufficient statistics of the (C+1)-class confusion matrix; i runs over the C known classes."""

    n_classes: int
    n_known: ArrayLike
    n_unknown: ArrayLike
    correct: ArrayLike  # sum_i TP_i: known samples accepted with the right class
    accepted_known: ArrayLike
    accepted_unknown: ArrayLike
    precision_sum: ArrayLike  # sum_i TP_i / (TP_i + FP_i)
    recall_sum: ArrayLike  # sum_i TP_i / (TP_i + FN_i)
    fallout_sum: ArrayLike  # sum_i FP_i / (FP_i + TN_i)


def counts_by_class(
    true_positive: Ints,
    predicted: Ints,
    class_size: Ints,
    accepted_unknown: Ints,
    n_unknown: Ints | int,
    *,
    counted: NDArray[np.bool_] | None = None,
) -> DecisionCounts:
    """Counts from per-class numbers, class on the last axis; 0 / 0 counts 0.

    Where only some classes are ``counted`` in the sums over classes, these stand for the others too.
    """
    n_known = class_size.sum(axis=-1)
    n_classes = true_positive.shape[-1]
    negative = np.asarray(n_known + n_unknown)[..., None] - class_size
    accepted = predicted.sum(axis=-1)
    share = 1.0 if counted is None else counted * (n_classes / np.maximum(counted.sum(axis=-1, keepdims=True), 1))
    return DecisionCounts(
        n_classes=n_classes,
        n_known=n_known,
        n_unknown=n_unknown,
        correct=true_positive.sum(axis=-1),
        accepted_known=accepted - accepted_unknown,
        accepted_unknown=accepted_unknown,
        precision_sum=(share * ratio(true_positive, predicted)).sum(axis=-1),
        recall_sum=(share * ratio(true_positive, class_size)).sum(axis=-1),
        fallout_sum=(share * ratio(predicted - true_positive, negative)).sum(axis=-1),
    )


def ratio(part: ArrayLike, whole: ArrayLike) -> Floats:
    """``part / whole``, and 0 where both are 0."""
    return np.asarray(part / np.maximum(whole, _TINY))


def counts_at(coded: Coded, threshold: float) -> DecisionCounts:
    """Counts at one threshold."""
    accepted = (coded.samples.score <= np.float64(threshold)) & (coded.pred >= 0)
    unknown = coded.samples.kind == UNKNOWN_KIND
    n_classes = len(coded.classes)
    return counts_by_class(
        np.bincount(coded.true[accepted & (coded.samples.kind == CORRECT)], minlength=n_classes),
        np.bincount(coded.pred[accepted], minlength=n_classes),
        coded.class_size,
        np.count_nonzero(accepted & unknown),  # type: ignore[arg-type]
        coded.samples.n_unknown,
    )


def counts_over_thresholds(ranking: Ranking, coded: Coded) -> DecisionCounts:
    """Counts at every column of ``ranking.table``, in one pass over the ranked samples.

    Accepting one more sample changes TP_i / (TP_i + FP_i) of one class only, so the macro sums are running totals
    of such changes.
    """
    n_known, n_unknown = coded.samples.n_known, coded.samples.n_unknown
    pred = coded.pred[ranking.order]
    size = np.maximum(coded.class_size, 1)
    negative = n_known + n_unknown - coded.class_size
    fast = fast_backend(len(pred))
    totals: tuple[NDArray[Any], ...] = (
        _running_totals(ranking, pred, size, negative)
        if fast is None
        else fast.running_totals(pred, ranking.kind, ranking.last, size, negative)
    )
    return DecisionCounts(len(coded.classes), n_known, n_unknown, *totals)


def _running_totals(ranking: Ranking, pred: Ints, size: Ints, negative: Ints) -> tuple[NDArray[Any], ...]:
    """The last six fields of ``DecisionCounts`` at every threshold."""
    accepted, correct = pred >= 0, ranking.kind == CORRECT
    unknown = accepted & (ranking.kind == UNKNOWN_KIND)
    values = (
        correct,
        accepted & ~unknown,
        unknown,
        _precision_changes(pred, correct, len(size)),
        correct / size[pred],
        (accepted & ~correct) / negative[pred],
    )
    return tuple(ranking.at_thresholds(value) for value in values)


def _precision_changes(pred: Ints, correct: NDArray[np.bool_], n_classes: int) -> Floats:
    """By how much accepting each sample, in rank order, changes the precision of its predicted class."""
    small = pred.astype(np.uint16) if n_classes < 2**16 - 1 else pred  # 16 bits: numpy sorts by radix
    by_class = np.argsort(small, kind="stable")
    size = np.bincount(pred[pred >= 0], minlength=n_classes)
    by_class = by_class[: size.sum()] if small is not pred else by_class[len(pred) - size.sum() :]
    start = np.repeat(np.cumsum(size) - size, size)
    accepted = np.arange(len(by_class)) - start + 1
    hits = np.cumsum(correct[by_class], dtype=np.int64)
    precision = (hits - (hits - correct[by_class])[start]) / accepted
    previous = np.where(accepted > 1, np.roll(precision, 1), 0.0)
    change = np.zeros(len(pred))
    change[by_class] = precision - previous
    return change


# --- formulas on counts ---------------------------------------------------------------------------------


def _accepted(counts: DecisionCounts) -> NDArray[Any]:
    return np.add(counts.accepted_known, counts.accepted_unknown)


def f_score_of(counts: DecisionCounts, average: Average = "macro") -> Floats:
    """Harmonic mean of precision and recall over the known classes."""
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
    """TPR_k + TNR_k - 1 over the known classes."""
    if average == "macro":
        return np.asarray(np.minimum(np.subtract(counts.recall_sum, counts.fallout_sum) / counts.n_classes, 1.0))
    accepted = _accepted(counts)
    n = np.add(counts.n_known, counts.n_unknown)
    fallout = (accepted - counts.correct) / (counts.n_classes * n - counts.n_known)
    return np.asarray(np.divide(counts.correct, counts.n_known) - fallout)


def normalized_accuracy_of(counts: DecisionCounts, weight: float = 0.5, aus: AusReading = "precision") -> Floats:
    """weight * AKS + (1 - weight) * AUS."""
    aks, aus_rate = (r.weight * ratio(r.successes, r.trials) for r in normalized_accuracy_rates(counts, weight, aus))
    return np.asarray(aks + aus_rate)


class WeightedRate(NamedTuple):
    """``weight * successes / trials``."""

    weight: float
    successes: ArrayLike
    trials: ArrayLike


def normalized_accuracy_rates(
    counts: DecisionCounts, weight: float = 0.5, aus: AusReading = "precision"
) -> tuple[WeightedRate, WeightedRate]:
    """The two terms of the normalized accuracy; AKS as the mean over samples of their share of right decisions."""
    n = np.add(counts.n_known, counts.n_unknown)
    accepted = _accepted(counts)
    errors = accepted + counts.n_known - np.multiply(2, counts.correct)  # sum_i FP_i + FN_i
    aks = WeightedRate(weight, n - errors / counts.n_classes, n)
    rejected_unknown = np.subtract(counts.n_unknown, counts.accepted_unknown)
    trials = n - accepted if aus == "precision" else counts.n_unknown
    return aks, WeightedRate(1.0 - weight, rejected_unknown, trials)


def unknown_tpr_of(counts: DecisionCounts) -> Floats:
    """Share of the unknown samples rejected."""
    return 1.0 - np.divide(counts.accepted_unknown, counts.n_unknown)


def unknown_fpr_of(counts: DecisionCounts) -> Floats:
    """Share of the known samples rejected."""
    return 1.0 - np.divide(counts.accepted_known, counts.n_known)


DECISION_METRICS: Mapping[str, Callable[[DecisionCounts], Floats]] = {
    "macro_f_score": lambda c: f_score_of(c, "macro"),
    "micro_f_score": lambda c: f_score_of(c, "micro"),
    "youden_index": lambda c: youden_of(c, "macro"),
    "micro_youden_index": lambda c: youden_of(c, "micro"),
    "normalized_accuracy": normalized_accuracy_of,
}
"""Metrics that need a threshold, by name; higher is better for each."""


# --- public functions of the triple ---------------------------------------------------------------------


def closed_set_accuracy(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    open_score: ArrayLike | None = None,
    *,
    unknown_label: Label = UNKNOWN,
) -> float:
    """Share of the known samples whose predicted class is right, nothing being rejected.

    >>> closed_set_accuracy([0, 1, 1, -1], [0, 1, 0, 0])
    0.6666666666666666
    """
    score = np.zeros(len(check.as_labels("y_true", y_true))) if open_score is None else open_score
    samples = read_samples(y_true, y_pred, score, unknown_label=unknown_label, need_unknown=False)
    return samples.n_correct / samples.n_known


class Confusion(NamedTuple):
    """Counts ``matrix[i, j]`` of samples of class ``labels[i]`` predicted ``labels[j]``; the last is unknown."""

    matrix: Ints
    labels: tuple[Label, ...]


def confusion_matrix(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    open_score: ArrayLike,
    *,
    threshold: float,
    classes: Sequence[Label] | None = None,
    unknown_label: Label = UNKNOWN,
) -> Confusion:
    """The (C+1)-class confusion matrix when samples with score > ``threshold`` are rejected.

    >>> confusion_matrix([0, 1, 1, -1], [0, 1, 0, 1], [0.1, 0.9, 0.2, 0.3], threshold=0.5).matrix.tolist()
    [[1, 0, 0], [1, 0, 1], [0, 1, 0]]
    """
    samples = read_samples(y_true, y_pred, open_score, unknown_label=unknown_label)
    coded = encode(samples, classes)
    size = len(coded.classes) + 1
    decided = np.where(samples.score > check_threshold(threshold), -1, coded.pred)
    cells = (coded.true % size) * size + decided % size  # -1 % size: the last row and column
    matrix = np.bincount(cells, minlength=size * size).reshape(size, size)
    return Confusion(matrix, (*coded.classes.tolist(), unknown_label))


def check_threshold(threshold: float) -> np.float64:
    """A threshold is any number but NaN; as a numpy scalar it is not rounded to the type of the scores."""
    value = np.float64(threshold)
    if np.isnan(value):
        raise ValueError("threshold is NaN; pass a number (use threshold_sweep or choose_threshold to find one).")
    return value


def open_set_f_score(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    open_score: ArrayLike,
    *,
    threshold: float,
    average: Average = "macro",
    classes: Sequence[Label] | None = None,
    unknown_label: Label = UNKNOWN,
) -> float:
    r"""Open-set F-score: harmonic mean of precision and recall of the known classes at a threshold.

    .. math:: F = 2 \frac{P_k \, TPR_k}{P_k + TPR_k}

    "macro" averages TP/(TP+FP) and TP/(TP+FN) over the classes before taking the harmonic mean (it is not the mean
    of per-class F-scores); "micro" sums the counts first. Unknown samples matter only as false positives.

    >>> open_set_f_score([0, 1, 1, -1], [0, 1, 0, 1], [0.1, 0.9, 0.2, 0.3], threshold=0.5, average="micro")
    0.3333333333333333
    """
    check.check_choice("average", average, ("macro", "micro"))
    counts = _counts(y_true, y_pred, open_score, threshold, classes, unknown_label)
    return float(f_score_of(counts, average))


def youden_index(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    open_score: ArrayLike,
    *,
    threshold: float,
    average: Average = "macro",
    classes: Sequence[Label] | None = None,
    unknown_label: Label = UNKNOWN,
) -> float:
    r"""Youden's index of the known classes at a threshold, :math:`J = TPR_k + TNR_k - 1`.

    >>> youden_index([0, 1, 1, -1], [0, 1, 0, 1], [0.1, 0.9, 0.2, 0.3], threshold=0.5)
    0.08333333333333337
    """
    check.check_choice("average", average, ("macro", "micro"))
    counts = _counts(y_true, y_pred, open_score, threshold, classes, unknown_label)
    return float(youden_of(counts, average))


def normalized_accuracy(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    open_score: ArrayLike,
    *,
    threshold: float,
    weight: float = 0.5,
    aus: AusReading = "precision",
    classes: Sequence[Label] | None = None,
    unknown_label: Label = UNKNOWN,
) -> float:
    r"""Normalized accuracy at a threshold, :math:`\lambda\,AKS + (1 - \lambda)\,AUS`.

    AKS is the one-against-rest accuracy pooled over the known classes. AUS is printed in the paper as
    TP/(TP+FP) of the unknown class, a precision (0 when nothing is rejected); ``aus="accuracy"`` reads it as
    TP/(TP+FN), the accuracy on unknown samples.

    >>> normalized_accuracy([0, 1, 1, -1], [0, 1, 0, 1], [0.1, 0.9, 0.2, 0.3], threshold=0.5)
    0.25
    """
    check.check_fraction("weight", weight)
    check.check_choice("aus", aus, ("precision", "accuracy"))
    counts = _counts(y_true, y_pred, open_score, threshold, classes, unknown_label)
    return float(normalized_accuracy_of(counts, weight, aus))


def unknown_tpr(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    open_score: ArrayLike,
    *,
    threshold: float,
    unknown_label: Label = UNKNOWN,
) -> float:
    """Share of the unknown samples that are rejected at ``threshold``.

    >>> unknown_tpr([0, -1, -1], [0, 0, 0], [0.1, 0.4, 0.9], threshold=0.5)
    0.5
    """
    counts = _counts(y_true, y_pred, open_score, threshold, None, unknown_label)
    return float(unknown_tpr_of(counts))


def unknown_fpr(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    open_score: ArrayLike,
    *,
    threshold: float,
    unknown_label: Label = UNKNOWN,
) -> float:
    """Share of the known samples that are rejected at ``threshold``.

    >>> unknown_fpr([0, 0, -1], [0, 0, 0], [0.1, 0.7, 0.9], threshold=0.5)
    0.5
    """
    counts = _counts(y_true, y_pred, open_score, threshold, None, unknown_label)
    return float(unknown_fpr_of(counts))


def _counts(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    open_score: ArrayLike,
    threshold: float,
    classes: Sequence[Label] | None,
    unknown_label: Label,
) -> DecisionCounts:
    samples = read_samples(y_true, y_pred, open_score, unknown_label=unknown_label)
    return counts_at(encode(samples, classes), check_threshold(threshold))


# --- every threshold at once ----------------------------------------------------------------------------


class Best(NamedTuple):
    """The largest value of a metric over all thresholds, and the lowest threshold that reaches it."""

    value: float
    threshold: float


def best_of(values: Floats, threshold: Floats) -> Best:
    """Largest of the values of a metric at rising thresholds."""
    column = int(np.argmax(values))
    return Best(float(values[column]), float(threshold[column]))


@dataclass(frozen=True, eq=False)
class ThresholdSweep:
    """Every decision metric at every distinct threshold (``-inf``: reject all; the last one: accept all)."""

    threshold: Floats
    unknown_tpr: Floats
    unknown_fpr: Floats
    values: Mapping[str, Floats]

    def best(self, name: str) -> Best:
        """Largest value of metric ``name`` and its threshold."""
        return best_of(self._metric(name), self.threshold)

    def curve(self, name: str, against: Literal["threshold", "unknown_tpr"] = "unknown_tpr") -> Curve:
        """Metric ``name`` against the threshold, or against the TPR of the unknown class (the paper's Figure 1).

        Between two thresholds a metric keeps the value of the lower one; the curve draws a straight line there.
        """
        check.check_choice("against", against, ("threshold", "unknown_tpr"))
        values = self._metric(name)
        if against == "threshold":
            return Curve(self.threshold, values, self.threshold, "threshold", name)
        return _falling_threshold(self.unknown_tpr, values, self.threshold, name)

    def _metric(self, name: str) -> Floats:
        return self.values[check.check_choice("metric", name, self.values)]


def against_unknown_tpr(values: Floats, counts: DecisionCounts, threshold: Floats, name: str) -> Curve:
    """A metric at rising thresholds as a curve against the TPR of the unknown class."""
    return _falling_threshold(unknown_tpr_of(counts), values, threshold, name)


def _falling_threshold(unknown_tpr: Floats, values: Floats, threshold: Floats, name: str) -> Curve:
    return Curve(unknown_tpr[::-1], values[::-1], threshold[::-1], "unknown rejected (TPR)", name)


def threshold_sweep(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    open_score: ArrayLike,
    *,
    weight: float = 0.5,
    aus: AusReading = "precision",
    classes: Sequence[Label] | None = None,
    unknown_label: Label = UNKNOWN,
) -> ThresholdSweep:
    """F-score, Youden's index and normalized accuracy at every distinct threshold, in O(N log N).

    ``weight`` and ``aus`` are those of ``normalized_accuracy``.

    >>> sweep = threshold_sweep([0, 1, 1, -1], [0, 1, 0, 1], [0.1, 0.2, 0.4, 0.3])
    >>> sweep.best("micro_f_score")
    Best(value=0.8, threshold=0.2)
    """
    check.check_fraction("weight", weight)
    check.check_choice("aus", aus, ("precision", "accuracy"))
    samples = read_samples(y_true, y_pred, open_score, unknown_label=unknown_label)
    return sweep_of(rank(samples), encode(samples, classes), weight, aus)


def sweep_of(ranking: Ranking, coded: Coded, weight: float = 0.5, aus: AusReading = "precision") -> ThresholdSweep:
    """Sweep over ranked samples."""
    counts = counts_over_thresholds(ranking, coded)
    counts = counts._replace(  # converted once rather than in every formula
        correct=np.asarray(counts.correct, dtype=np.float64),
        accepted_known=np.asarray(counts.accepted_known, dtype=np.float64),
        accepted_unknown=np.asarray(counts.accepted_unknown, dtype=np.float64),
    )
    formulas = dict(DECISION_METRICS)
    formulas["normalized_accuracy"] = partial(normalized_accuracy_of, weight=weight, aus=aus)
    values = {name: formula(counts) for name, formula in formulas.items()}
    return ThresholdSweep(ranking.threshold, unknown_tpr_of(counts), unknown_fpr_of(counts), values)
