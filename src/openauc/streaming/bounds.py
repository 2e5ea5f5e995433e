"""What bins prove: between which two values a metric of the samples in them must lie.

Inside a bin whose samples have several scores nothing is known of their order. Two orders are the extremes: all known
samples below all unknown ones (``best``), and above them (``worst``). Every operating point that the samples may have
lies between those of the two, and so does every metric that better operating points can only raise.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from openauc import _validation as check
from openauc.metrics import decision, ranking
from openauc.metrics.counts import DecisionCounts, RankedSamples, ratio
from openauc.metrics.curve import Floats
from openauc.metrics.rank_table import Counts, RankTable, cumulative, extreme_orders
from openauc.metrics.registry import Bounds, ColumnMetric, DecisionMetric, Metric, TableMetric, widened
from openauc.metrics.samples import CORRECT
from openauc.streaming.rows import BinCounts, key_score

_ROUNDING = 1e-12  # of sums of floats; everything else is a function, never falling, of integers


class Certificate:
    """Bounds of every metric, from bins and from the ranked samples that stand for them."""

    def __init__(self, bins: BinCounts, samples: RankedSamples, *, per_class: bool) -> None:
        self._bins, self._samples, self._per_class, self._pure = bins, samples, per_class, bins.pure
        self._known, self._correct, self._unknown = bins.known, bins.counts[:, CORRECT], bins.unknown
        self._n_known, self._n_unknown = int(self._known.sum()), int(self._unknown.sum())

    def of(self, metric: Metric) -> Bounds | None:
        """Bounds of a metric; None where nothing can be proved."""
        if self._pure.all():
            value = metric.measure(self._samples).value
            return value, value
        if isinstance(metric, DecisionMetric):
            return self._of_decision(metric)
        if not isinstance(metric, TableMetric):
            return None
        formula: Any = getattr(metric.of_table, "func", metric.of_table)
        options = getattr(metric.of_table, "keywords", {})
        if formula is ranking.average_precision_of:
            return widened(self._least_average_precision(**options), float(metric.of_table(self.best)))
        if formula is ranking.error_at_tpr_of and isinstance(metric, ColumnMetric):
            largest = self._largest_error(int(metric.column(self.worst)), **options)
            return float(metric.of_table(self.best)), largest
        return metric.bounds(self.worst, self.best)

    def threshold(self, metric: ColumnMetric) -> float:
        """Threshold of a dictated column whose place is settled."""
        return float(self.worst.threshold[int(metric.column(self.worst))])

    @cached_property
    def _orders(self) -> tuple[RankTable, RankTable]:
        table = cumulative(key_score(self._bins.high), self._known, self._correct, self._unknown)
        return extreme_orders(table, self._pure)

    @property
    def best(self) -> RankTable:
        """The table in which every bin has its known samples first."""
        return self._orders[1]

    @property
    def worst(self) -> RankTable:
        """The table in which every bin has its unknown samples first."""
        return self._orders[0]

    def _largest_error(self, column: int, tpr: float = 0.95) -> float:
        """The unknown samples that may be accepted are, and of the bin they are in no known one."""
        table = self.worst
        at_column = float(ranking.error_at(table, column))
        if column + 1 == len(table.threshold) or self._pure[column // 2]:
            return at_column
        most = int(table.n_unknown) - int(check.at_least(tpr, table.n_unknown))
        wrong = int(table.n_known) - int(table.known[column]) + most
        return max(at_column, wrong / (int(table.n_known) + int(table.n_unknown)))

    def _least_average_precision(self, positive: ranking.Side = "unknown") -> float:
        """Every positive of a bin comes after its negatives, one by one: the j-th finds H + j of H + j + M.

        The sum over j of a function that rises is at least its integral.
        """
        gained, others = (self._unknown, self._known) if positive == "unknown" else (self._known, self._unknown)
        pure = self._pure
        if positive == "unknown":
            gained, others, pure = gained[::-1], others[::-1], pure[::-1]
        hits, misses = np.cumsum(gained) - gained, np.cumsum(others)
        tied = gained * ((hits + gained) / np.maximum(hits + gained + misses, 1))
        first = gained * ((hits + 1) / (hits + 1 + misses))
        integral = gained - misses * np.log1p(gained / np.maximum(hits + misses, 1))
        least = np.where(misses == 0, gained, np.maximum(first, integral))
        return float(np.where(pure, tied, least).sum() / gained.sum())

    def _of_decision(self, metric: DecisionMetric) -> Bounds | None:
        """The best threshold between bins is one of all; inside a bin, right samples may come before all others."""
        formula = metric.of_counts
        names = [name for name, known in decision.DECISION_METRICS.items() if known is formula]
        if not names or (metric.by_class and not self._per_class):
            return None
        low = float(self._samples.over_thresholds(formula).max())
        unsure = np.flatnonzero(~self._pure)
        high = max(low, float(self._optimistic(names[0], formula, unsure).max()))
        return (low, high) if low == high else (low - _ROUNDING, high + _ROUNDING)

    def _optimistic(self, name: str, formula: Callable[[DecisionCounts], Floats], unsure: Any) -> Floats:
        """Largest value that a threshold inside each of the unsure bins may have."""
        counts = self._samples.counts

        def at(field: str, column: Any) -> Any:
            return np.asarray(getattr(counts, field))[column]

        before, after = unsure, unsure + 1  # columns of the table
        wrong, right = at("accepted_known", before) - at("correct", before), at("correct", after)
        inside = counts._replace(
            correct=right,
            accepted_known=right + wrong,
            accepted_unknown=at("accepted_unknown", before),
            precision_sum=at("precision_sum", before),
            recall_sum=at("recall_sum", after),
            fallout_sum=at("fallout_sum", before),
        )
        if name == "macro_f_score":
            inside = inside._replace(precision_sum=self._largest_precision()[unsure])
        if name != "normalized_accuracy":
            return formula(inside)
        # A wrong sample accepted is an error among the known, and one false alarm less among the rejected.
        all_known = inside._replace(accepted_known=at("accepted_known", after) - at("correct", after) + right)
        known, _ = decision.normalized_accuracy_rates(inside)
        _, unknown = decision.normalized_accuracy_rates(all_known)
        rates = [rate.weight * ratio(rate.successes, rate.trials) for rate in (known, unknown)]
        return np.asarray(rates[0] + rates[1])

    def _largest_precision(self) -> Floats:
        """Sum over the classes of TP / (TP + FP) where right samples of a bin come first, per bin."""
        model = self._samples
        pred, kind, weight = model.coded.pred[model.ranking.order], model.ranking.kind, model.ranking.weight
        assert weight is not None
        column = model.ranking.group - 1
        used = np.flatnonzero(pred >= 0)
        cell, place = np.unique(pred[used] * (column.max() + 1) + column[used], return_inverse=True)
        is_right = kind[used] == CORRECT
        hits, false = (np.bincount(place, weights=weight[used] * which) for which in (is_right, ~is_right))
        of_class = cell // (column.max() + 1)
        start = np.searchsorted(of_class, of_class)  # cells of a class follow each other, in order of their bin

        def before(counts: Counts) -> Counts:
            total = np.cumsum(counts) - counts
            return np.asarray(total - total[start])

        hits_before, false_before = before(hits), before(false)
        gain = ratio(hits_before + hits, hits_before + hits + false_before)
        gain -= ratio(hits_before, hits_before + false_before)
        at_start = np.asarray(model.counts.precision_sum)[:-1]
        return at_start + np.bincount(cell % (column.max() + 1), weights=gain, minlength=len(at_start))
