"""Bounds that bins prove: two values between which a metric of the samples in them must lie.

The order of the samples in a bin with several scores is not known. Two orders are the extremes: all known samples below
all unknown ones (the best), and above them (the worst). Every operating point that the samples may have lies between
those of the two, and so does every metric that better operating points can only raise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from openauc import _validation as check
from openauc.metrics import decision, ranking
from openauc.metrics.counts import DecisionCounts, RankedSamples, ratio
from openauc.metrics.curve import Floats
from openauc.metrics.rank_table import Counts, RankTable, cumulative, extreme_orders
from openauc.metrics.registry import Bounds, CutMetric, DecisionMetric, Metric, TableMetric, widened
from openauc.metrics.samples import CORRECT
from openauc.streaming.rows import BinCounts, key_score


class Certificate:
    """Bounds of every metric, from bins and from the ranked samples that stand for them."""

    def __init__(self, bins: BinCounts, samples: RankedSamples) -> None:
        self._bins, self._samples, self._pure = bins, samples, bins.pure

    def bounds(self, metrics: Mapping[str, Metric]) -> dict[str, Bounds]:
        """Bounds of those metrics of which something can be proved."""
        found = {name: self._of(metric) for name, metric in metrics.items()}
        return {name: bounds for name, bounds in found.items() if bounds is not None}

    def _of(self, metric: Metric) -> Bounds | None:
        if self._pure.all():
            value = metric.measure(self._samples).value
            return value, value
        if isinstance(metric, DecisionMetric):
            return self._of_decision(metric)
        if not isinstance(metric, TableMetric):
            return None
        worst, best = self._orders
        formula: Any = getattr(metric.of_table, "func", metric.of_table)
        options = getattr(metric.of_table, "keywords", {})
        if formula is ranking.average_precision_of:
            return widened(self._least_average_precision(**options), float(metric.of_table(best)))
        if formula is ranking.error_at_tpr_of and isinstance(metric, CutMetric):
            return float(metric.of_table(best)), self._largest_error(worst, int(metric.cut(worst)), **options)
        return metric.bounds(worst, best)

    def threshold(self, metric: CutMetric) -> float:
        """Threshold of a metric whose bounds agree."""
        worst, _ = self._orders
        return float(worst.threshold[int(metric.cut(worst))])

    @cached_property
    def _orders(self) -> tuple[RankTable, RankTable]:
        """The tables in which every bin has its unknown samples first, and its known ones."""
        bins = self._bins
        table = cumulative(key_score(bins.high), bins.known, bins.counts[:, CORRECT], bins.unknown)
        return extreme_orders(table, self._pure)

    def _largest_error(self, worst: RankTable, cut: int, tpr: float = 0.95) -> float:
        """As many unknown samples are accepted as the TPR allows, and no known sample of their bin."""
        at_cut = float(ranking.error_at(worst, cut))
        if cut + 1 == len(worst.threshold) or self._pure[cut // 2]:
            return at_cut
        most = int(worst.n_unknown) - int(check.at_least(tpr, worst.n_unknown))
        wrong = int(worst.n_known) - int(worst.known[cut]) + most
        return max(at_cut, wrong / (int(worst.n_known) + int(worst.n_unknown)))

    def _least_average_precision(self, positive: ranking.Side = "unknown") -> float:
        """In each bin the positives come after the negatives: the precision at the j-th is (H + j) / (H + j + M).

        The sum over j of a rising function is at least its integral.
        """
        gained, others, pure = self._bins.known, self._bins.unknown, self._pure
        if positive == "unknown":
            gained, others, pure = others[::-1], gained[::-1], pure[::-1]
        hits, misses = np.cumsum(gained) - gained, np.cumsum(others)
        tied = gained * ((hits + gained) / np.maximum(hits + gained + misses, 1))
        first = gained * ((hits + 1) / (hits + 1 + misses))
        integral = gained - misses * np.log1p(gained / np.maximum(hits + misses, 1))
        least = np.where(misses == 0, gained, np.maximum(first, integral))
        return float(np.where(pure, tied, least).sum() / gained.sum())

    def _of_decision(self, metric: DecisionMetric) -> Bounds | None:
        """At least the best value between bins; at most that inside a bin whose correct samples come first."""
        formula = metric.of_counts
        name = next((name for name, known in decision.DECISION_METRICS.items() if known is formula), None)
        if name is None:
            return None
        low = float(self._samples.over_thresholds(formula).max())
        unsure = np.flatnonzero(~self._pure)
        high = max(low, float(self._optimistic(name, formula, unsure).max()))
        return (low, high) if low == high else (low - check.ROUNDING, high + check.ROUNDING)  # of sums of floats

    def _optimistic(self, name: str, formula: Callable[[DecisionCounts], Floats], unsure: Any) -> Floats:
        """Largest possible value at a threshold inside each of the unsure bins."""
        counts = self._samples.counts

        def at(field: str, cut: Any) -> Any:
            return np.asarray(getattr(counts, field))[cut]

        before, after = unsure, unsure + 1  # cuts of the table
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
        # Accepting a wrong sample is an error among the known samples, and one false alarm less.
        all_known = inside._replace(accepted_known=at("accepted_known", after) - at("correct", after) + right)
        known, _ = decision.normalized_accuracy_rates(inside)
        _, unknown = decision.normalized_accuracy_rates(all_known)
        rates = [rate.weight * ratio(rate.successes, rate.trials) for rate in (known, unknown)]
        return np.asarray(rates[0] + rates[1])

    def _largest_precision(self) -> Floats:
        """For each bin, the sum over the classes of TP / (TP + FP) if its correct samples come first."""
        samples, order = self._samples, self._samples.ranking
        pred, kind, weight = samples.coded.pred[order.order], order.kind, order.weight
        assert weight is not None
        bin_ = order.group - 1
        used = np.flatnonzero(pred >= 0)
        cell, place = np.unique(pred[used] * (bin_.max() + 1) + bin_[used], return_inverse=True)
        is_right = kind[used] == CORRECT
        hits, false = (np.bincount(place, weights=weight[used] * which) for which in (is_right, ~is_right))
        of_class = cell // (bin_.max() + 1)
        start = np.searchsorted(of_class, of_class)  # cells of a class follow each other, in order of their bin

        def before(counts: Counts) -> Counts:
            total = np.cumsum(counts) - counts
            return np.asarray(total - total[start])

        hits_before, false_before = before(hits), before(false)
        gain = ratio(hits_before + hits, hits_before + hits + false_before)
        gain -= ratio(hits_before, hits_before + false_before)
        at_start = np.asarray(samples.counts.precision_sum)[:-1]
        return at_start + np.bincount(cell % (bin_.max() + 1), weights=gain, minlength=len(at_start))
