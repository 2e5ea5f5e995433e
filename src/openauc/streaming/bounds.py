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
from openauc.metrics.rank_table import Counts, RankTable, exact_dot
from openauc.metrics.registry import ColumnMetric, DecisionMetric, Metric, PairMetric, RateMetric, TableMetric
from openauc.metrics.samples import CORRECT
from openauc.streaming.keys import key_score
from openauc.streaming.rows import BinCounts

Bounds = tuple[float, float]
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
        if isinstance(metric, RateMetric):
            rate = float(metric.of_table(self.best))
            return rate, rate
        if isinstance(metric, PairMetric) and formula in _PAIRS and "high" not in options:
            low, high = (_PAIRS[formula](self, most, options.get("ties", "half")) for most in (False, True))
            return low, high
        if formula is ranking.average_precision_of:
            return _widened(self._least_average_precision(**options), float(metric.of_table(self.best)))
        if formula is ranking.detection_accuracy_of:
            return self._detection(most=False), self._detection(most=True)
        if not metric.monotone and formula is not ranking.error_at_tpr_of:
            return None
        ends = [float(metric.of_table(table)) for table in (self.worst, self.best)]
        if formula is ranking.error_at_tpr_of and isinstance(metric, ColumnMetric):
            ends[0] = self._largest_error(int(metric.column(self.worst)), **options)
        low, high = sorted(ends)
        return _widened(low, high) if isinstance(metric, PairMetric) else (low, high)

    def threshold(self, metric: ColumnMetric) -> float:
        """Threshold of a dictated column whose place is settled."""
        return float(self.worst.threshold[int(metric.column(self.worst))])

    @cached_property
    def best(self) -> RankTable:
        """The table in which every column has its known samples first."""
        return self._table(known_first=True)

    @cached_property
    def worst(self) -> RankTable:
        """The table in which every column has its unknown samples first."""
        return self._table(known_first=False)

    def openauc(self, most: bool, ties: ranking.Ties, *, with_wrong: bool = False) -> float:
        """OpenAUC (AUROC ``with_wrong``) where pairs of unknown order count nothing, or all."""
        known = self._known if with_wrong else self._correct
        less, equal = ranking.many_pairs(np.concatenate([[0], np.cumsum(known)]), self._unknown)
        open_pairs = exact_dot(known[~self._pure], self._unknown[~self._pure])
        equal -= open_pairs
        less += most * open_pairs
        credit = 2 * less + (equal if ties == "half" else 0)
        return float(float(credit) / (2.0 * self._n_known * self._n_unknown))

    def accuracy(self) -> float:
        """Share of the known samples that are correct."""
        return float(ranking.accuracy_of(self.best))

    def _detection(self, *, most: bool) -> float:
        """Best mean of the two rates, at thresholds that are certain, or at all that there may be."""
        known, unknown = np.cumsum(self._known), np.cumsum(self._unknown)
        points = [np.stack([known, unknown], axis=1), np.zeros((1, 2), dtype=np.int64)]
        if most:
            points.append(np.stack([known, unknown - self._unknown], axis=1)[~self._pure])
        points.append(np.array([[self._n_known, self._n_unknown]]))
        return float(ranking.detection_accuracy_of(_points_table(np.concatenate(points))))

    def _table(self, *, known_first: bool) -> RankTable:
        pure, threshold = self._pure, key_score(self._bins.high)

        def halves(counts: Counts, first: bool) -> Counts:
            """Running total of counts that enter in the first or in the second column of each bin."""
            early = counts if first else np.where(pure, counts, 0)
            steps = np.stack([early, counts - early], axis=1).ravel()
            return np.concatenate([[0], np.cumsum(steps)])

        return RankTable(
            np.concatenate([[-np.inf], np.repeat(threshold, 2)]),
            halves(self._known, known_first),
            halves(self._correct, known_first),
            halves(self._unknown, not known_first),
        )

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


_PAIRS: dict[Any, Callable[[Certificate, bool, ranking.Ties], float]] = {
    ranking.openauc_of: lambda c, most, ties: c.openauc(most, ties),
    ranking.auroc_of: lambda c, most, ties: c.openauc(most, ties, with_wrong=True),
    ranking.acc_times_auc_of: lambda c, most, ties: c.accuracy() * c.openauc(most, ties, with_wrong=True),
    ranking.acc_plus_auc_of: lambda c, most, ties: c.accuracy() + c.openauc(most, ties, with_wrong=True),
}


def _points_table(points: Any) -> RankTable:
    """Operating points, the last accepting everything, as a table; in no order, which a maximum does not need."""
    return RankTable(np.zeros(len(points)), points[:, 0], points[:, 0], points[:, 1])


def _widened(low: float, high: float) -> Bounds:
    return max(low - _ROUNDING, 0.0), min(high + _ROUNDING, 1.0)
