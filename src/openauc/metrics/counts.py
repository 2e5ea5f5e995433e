"""Counts of the (C+1)-class confusion matrix at one threshold, at every threshold, or in every replicate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from openauc import _validation as check
from openauc._validation import Label
from openauc.metrics.curve import Floats
from openauc.metrics.rank_table import Counts, Ranking, rank
from openauc.metrics.samples import CORRECT, UNKNOWN_KIND, Ints, Samples

_TINY = np.finfo(np.float64).tiny  # in place of 0 / 0: far below every count and every rate


@dataclass(frozen=True, eq=False)
class Coded:
    """Samples with classes as positions 0..C-1 in ``classes``; -1 stands for unknown."""

    samples: Samples
    classes: NDArray[Any]
    true: Ints
    pred: Ints

    @cached_property
    def class_size(self) -> Counts:
        """Weight of the samples of each known class."""
        return self.tally(self.true, self.true >= 0)

    def accepted_at(self, threshold: float) -> NDArray[np.bool_]:
        """Which samples are given a known class."""
        return np.asarray((self.samples.score <= np.float64(threshold)) & (self.pred >= 0))

    def tally(self, label: Ints, chosen: NDArray[np.bool_], n: int | None = None) -> Counts:
        """Weight of the ``chosen`` samples with each label below ``n``, by default those of the classes."""
        weight = None if self.samples.weight is None else self.samples.weight[chosen]
        total = np.bincount(label[chosen], weights=weight, minlength=len(self.classes) if n is None else n)
        return total if weight is None or weight.dtype.kind == "f" else total.astype(np.int64)


def encode(samples: Samples, classes: Sequence[Label] | None = None) -> Coded:
    """Number the known classes: those given, else every class met in ``y_true`` or ``y_pred``."""
    names = classes_met(samples) if classes is None else np.unique(check.as_labels("classes", list(classes)))
    if len(names) == 0:
        raise ValueError("classes is empty; list every known class, or leave it out to use the classes met.")
    if check.is_label(names, samples.unknown_label).any():
        raise ValueError(f"classes contains the unknown label {samples.unknown_label!r}; list known classes only.")
    true = positions("y_true", samples.y_true, names, samples.unknown_label)
    pred = positions("y_pred", samples.y_pred, names, samples.unknown_label)
    return Coded(samples, names, true, pred)


def classes_met(samples: Samples) -> NDArray[Any]:
    """Every class in ``y_true`` or ``y_pred``, in order."""
    found = np.union1d(np.unique(samples.y_true), np.unique(samples.y_pred))
    found = found[found >= 0] if found.dtype.kind == "i" else found
    return found[~check.is_label(found, samples.unknown_label)]


def positions(name: str, labels: NDArray[Any], classes: NDArray[Any], unknown_label: Label) -> Ints:
    """Position of each label in ``classes``, -1 for the unknown label."""
    n = len(classes)
    numbered = unknown_label == -1 and labels.dtype.kind == "i" and np.array_equal(classes, np.arange(n))
    if numbered and labels.min(initial=0) >= -1 and labels.max(initial=0) < n:
        return labels.astype(np.int64, copy=False)  # labels are positions already
    position = np.minimum(np.searchsorted(classes, labels), n - 1)
    position = np.where(classes[position] == labels, position, -2)
    position[check.is_label(labels, unknown_label)] = -1
    if position.min(initial=0) == -2:
        stranger = labels[position == -2][0]
        found = f"{name} contains {stranger.item()!r}, which is not among the given classes"
        raise ValueError(f"{found}; list every known class in `classes` and mark unknown samples {unknown_label!r}.")
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
    hits: Counts, predicted: Counts, class_size: Counts, accepted_unknown: Counts, n_unknown: float, counted: Any = None
) -> DecisionCounts:
    """Counts from numbers by class, class on the last axis: right samples, samples predicted, samples; 0 / 0 is 0.

    Where only some classes are ``counted`` in the sums over classes, these stand for the others too.
    """
    n_classes, n_known = hits.shape[-1], class_size.sum(axis=-1)
    negative = np.asarray(n_known + n_unknown)[..., None] - class_size
    share = 1.0 if counted is None else counted * (n_classes / np.maximum(counted.sum(axis=-1, keepdims=True), 1))
    rates = ((hits, predicted), (hits, class_size), (predicted - hits, negative))
    sums = ((share * ratio(part, whole)).sum(axis=-1) for part, whole in rates)
    accepted_known = predicted.sum(axis=-1) - accepted_unknown
    return DecisionCounts(n_classes, n_known, n_unknown, hits.sum(axis=-1), accepted_known, accepted_unknown, *sums)


def ratio(part: ArrayLike, whole: ArrayLike) -> Floats:
    """``part / whole``, and 0 where both are 0."""
    return np.asarray(part / np.maximum(whole, _TINY))


def check_threshold(threshold: float) -> np.float64:
    """A threshold is any number but NaN; as a numpy scalar it is not rounded to the type of the scores."""
    value = np.float64(threshold)
    if np.isnan(value):
        raise ValueError("threshold is NaN; pass a number (use threshold_sweep or choose_threshold to find one).")
    return value


def counts_at(coded: Coded, threshold: float) -> DecisionCounts:
    accepted, samples = coded.accepted_at(threshold), coded.samples
    right = coded.tally(coded.true, accepted & (samples.kind == CORRECT))
    unknown = coded.tally(coded.pred, accepted & (samples.kind == UNKNOWN_KIND)).sum()
    predicted = coded.tally(coded.pred, accepted)
    return counts_by_class(right, predicted, coded.class_size, unknown, samples.totals[1])


def counts_over_thresholds(ranking: Ranking, coded: Coded) -> DecisionCounts:
    """Counts at every cut of ``ranking.table``, in one pass over the ranked samples.

    Accepting one more sample changes the rates of one class only, so the macro sums are running totals of such changes.
    Rates are rounded to multiples of 1 / scale: totals of integers do not depend on the order of tied samples.
    """
    n_known, n_unknown = coded.samples.totals
    pred = coded.pred[ranking.order]
    others = n_known + n_unknown - coded.class_size
    size, negative = (np.where(part > 0, part, 1) for part in (coded.class_size, others))
    accepted, correct = pred >= 0, ranking.kind == CORRECT
    unknown = accepted & (ranking.kind == UNKNOWN_KIND)
    scale = 2.0 ** min(52, 62 - len(size).bit_length())  # a sum over the classes of rates times it fits 64 bits
    sums = [ranking.running(change) for change in _rate_changes(ranking, pred, size, negative, scale)]
    return DecisionCounts(
        len(coded.classes),
        n_known,
        n_unknown,
        *map(ranking.at_thresholds, (correct, accepted & ~unknown, unknown)),
        *(total / scale if total.dtype.kind == "i" else total for total in sums),
    )


def _rate_changes(
    ranking: Ranking, pred: Ints, size: Counts, negative: Counts, scale: float
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Change of precision, recall and fall-out of its predicted class by each sample, in 1 / scale if unweighted."""
    small = pred.astype(np.uint16) if len(size) < 2**16 - 1 else pred  # 16 bits: numpy sorts by radix
    by_class = np.argsort(small, kind="stable")
    n_samples = np.bincount(pred[pred >= 0], minlength=len(size))
    by_class = by_class[: n_samples.sum()] if small is not pred else by_class[len(pred) - n_samples.sum() :]
    start = np.repeat(np.cumsum(n_samples) - n_samples, n_samples)
    weight = np.ones(len(pred), dtype=np.int64) if ranking.weight is None else ranking.weight
    counted, weight, label = weight.dtype.kind == "i", weight[by_class], pred[by_class]

    def within_class(weight: Counts) -> Counts:
        total = np.cumsum(weight)
        return np.asarray(total - (total - weight)[start])

    def change(rate: Floats) -> NDArray[Any]:
        now = np.rint(rate * scale).astype(np.int64) if counted else rate
        changes = np.zeros(len(pred), dtype=now.dtype)
        changes[by_class] = now - np.where(np.arange(len(start)) > start, np.roll(now, 1), 0)
        return changes

    hits, accepted = within_class(weight * (ranking.kind == CORRECT)[by_class]), within_class(weight)
    return (change(hits / accepted), change(hits / size[label]), change((accepted - hits) / negative[label]))


class RankedSamples:
    """The samples of one model, sorted once: values, intervals, curves, comparison and report all read from here."""

    def __init__(self, samples: Samples, classes: Sequence[Label] | None = None) -> None:
        self.samples, self._classes = samples, classes
        self._found: dict[Callable[..., Floats], Floats] = {}

    @cached_property
    def ranking(self) -> Ranking:
        return rank(self.samples)

    @cached_property
    def coded(self) -> Coded:
        return encode(self.samples, self._classes)

    @cached_property
    def counts(self) -> DecisionCounts:
        """Counts at every threshold, as floats: converted once rather than in every formula."""
        counts = counts_over_thresholds(self.ranking, self.coded)
        return DecisionCounts(*counts[:3], *(np.asarray(part, dtype=np.float64) for part in counts[3:]))

    def over_thresholds(self, formula: Callable[[DecisionCounts], Floats]) -> Floats:
        """A formula on the counts at every threshold, computed once."""
        if formula not in self._found:
            self._found[formula] = formula(self.counts)
        return self._found[formula]
