"""Types of metrics, each with its value, interval and influence; and METRICS: every metric of ``evaluate()`` by name.

Known and unknown samples are resampled apart. Weighted samples count as their effective number on each side,
(sum w)^2 / sum w^2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike

from openauc import intervals
from openauc._validation import ROUNDING
from openauc.intervals import REPLICATES, Interval, Spread, WeightedRate, normal_quantile, wilson_interval
from openauc.metrics import decision, influence, ranking, resampling
from openauc.metrics.counts import DecisionCounts, RankedSamples, counts_at
from openauc.metrics.curve import Curve, Floats
from openauc.metrics.influence import Influence
from openauc.metrics.rank_table import RankTable
from openauc.metrics.ranking import Ties
from openauc.metrics.samples import UNKNOWN_KIND, Samples

Bounds = tuple[float, float]


def widened(low: float, high: float) -> Bounds:
    """Bounds of shares that rounding cannot break."""
    return max(low - ROUNDING, 0.0), min(high + ROUNDING, 1.0)


class Measured(NamedTuple):
    """Value and threshold of a metric; the threshold is NaN where it has none."""

    value: float
    threshold: float = np.nan


class Resamples:
    """Bootstrap resamples of ranked samples, drawn once for all metrics."""

    def __init__(self, ranked: RankedSamples, n_replicates: int = REPLICATES, seed: int = 0) -> None:
        if n_replicates < 2:
            raise ValueError(f"n_replicates is {n_replicates}; a bootstrap needs at least 2, by default {REPLICATES}.")
        self.ranked, self.draws = ranked, (n_replicates, seed)

    @cached_property
    def tables(self) -> tuple[RankTable, RankTable]:
        """The table at a bounded number of cuts, and its replicates."""
        table = self.ranked.ranking.table
        keep = [int(ranking.best_detection_cut(table))] if self.ranked.samples.n_unknown else []
        few = resampling.coarse(table, keep)
        return few, resampling.resampled_table(few, self.ranked.samples.sizes, *self.draws)


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A plain function of the triple, and its direction: all that a metric of your own needs.

    The types derived from it share one sort, and need no further calls of ``function`` for an interval.

    >>> import numpy as np
    >>> rejected = Metric(function=lambda y_true, y_pred, open_score: float(np.mean(np.asarray(open_score) > 0)))
    >>> rejected.function([0, -1], [0, 0], [-1.0, 1.0]), rejected.better
    (0.5, 'higher')
    """

    function: Callable[..., float]
    """Of the triple, and of ``sample_weight`` where samples are weighted."""
    better: Literal["higher", "lower"] = "higher"
    label: str = ""
    largest: float = 1.0
    """Value of a perfect model, where higher is better."""
    needs_unknown: bool = True
    """Whether it is undefined without unknown samples."""

    analytic = False  # whether a formula gives its variance
    by_class = False  # whether it averages over classes
    has_influence = False  # whether the influence of each sample is known, and need not be found by calls

    def call(self, samples: Samples, index: Any = slice(None)) -> float:
        """The function of some of the samples, and of their weights if there are any."""
        weight = {} if samples.weight is None else {"sample_weight": samples.weight[index]}
        return float(self.function(*(part[index] for part in samples.triple()), **weight))

    def measure(self, ranked: RankedSamples) -> Measured:
        """Value of the metric."""
        return Measured(self.call(ranked.samples))

    def curve(self, ranked: RankedSamples, name: str) -> Curve | None:
        """The metric against the TPR of the unknown class; None unless it depends on a threshold."""
        return None

    def influences(self, ranked: RankedSamples) -> tuple[Floats, Floats] | None:
        """What one more sample like each known and each unknown one would change; None for a plain function."""
        return None

    def replicates(self, found: Measured, resamples: Resamples) -> Floats:
        """Values in the resamples; each is a call of the function."""
        samples, (n_replicates, seed) = resamples.ranked.samples, resamples.draws
        rng, unknown = resampling.generator(seed), samples.kind == UNKNOWN_KIND
        sides = [side for side in (np.flatnonzero(~unknown), np.flatnonzero(unknown)) if len(side)]
        drawn = ([side[rng.integers(0, len(side), len(side))] for side in sides] for _ in range(n_replicates))
        return np.array([self.call(samples, np.sort(np.concatenate(index))) for index in drawn], dtype=float)

    def interval(self, found: Measured, resamples: Resamples, level: float) -> tuple[Interval, str]:
        """Interval of the metric, and the name of the method."""
        percentiles = intervals.percentile_interval(self.replicates(found, resamples), level)
        return percentiles.with_value(found.value), "bootstrap"

    def spread(self, found: Measured, resamples: Resamples) -> Spread:
        """Value and variance, for comparisons."""
        known, unknown = resamples.ranked.samples.sizes
        return Spread(found.value, self.variance(found, resamples), (known, unknown if self.needs_unknown else known))

    def variance(self, found: Measured, resamples: Resamples) -> float:
        return float(self.replicates(found, resamples).var(ddof=1))


class _Resampled(Metric):
    """A metric with replicates of its counts: bootstrap intervals, Wilson's where the replicates agree."""

    has_influence = True
    holds_threshold = False  # whether all replicates share the threshold

    def interval(self, found: Measured, resamples: Resamples, level: float) -> tuple[Interval, str]:
        """Percentiles; where all replicates agree, as for a perfect model, Wilson's interval instead."""
        replicates = self.replicates(found, resamples)
        low, high = intervals.percentile_interval(replicates, level)
        method = "bootstrap"
        if self.holds_threshold:
            method, low = "bootstrap, threshold held", max(low, 0.0)  # rejecting everything has at least 0
        agreeing = intervals.agreeing_level(replicates)
        if agreeing > 0.0:
            smaller = min(size for size in resamples.ranked.samples.sizes if size)
            wilson = wilson_interval(found.value * smaller, smaller, min(level, agreeing))
            if level <= agreeing:
                return wilson.with_value(found.value), "Wilson, smaller side"
            low, high = min(low, wilson.low), max(high, wilson.high)  # the interval of a larger level holds the smaller
        return Interval(low, high).with_value(found.value), method


@dataclass(frozen=True, kw_only=True)
class TableMetric(_Resampled):
    """A formula on the rank table: intervals from resampled tables."""

    of_table: Callable[[RankTable], Floats]
    """The value (leading axes: replicates)."""
    influence: Callable[[RankTable], Influence]
    monotone: bool = False
    """Whether better operating points can only improve the value: then bins of scores bound it."""

    def measure(self, ranked: RankedSamples) -> Measured:
        return Measured(float(self.of_table(ranked.ranking.table)))

    def influences(self, ranked: RankedSamples) -> tuple[Floats, Floats]:
        return self.influence(ranked.ranking.table).of_samples(ranked.ranking)

    def bounds(self, worst: RankTable, best: RankTable) -> Bounds | None:
        """Smallest and largest value of samples whose order lies between these two; None if nothing can be proved."""
        low, high = sorted((float(self.of_table(worst)), float(self.of_table(best))))
        return (low, high) if self.monotone else None

    def replicates(self, found: Measured, resamples: Resamples) -> Floats:
        table, resampled = resamples.tables
        # Fewer cuts change the value and every replicate by the same amount.
        shifted = self.of_table(resampled) + (found.value - float(self.of_table(table)))
        return np.clip(shifted, 0.0, self.largest)


@dataclass(frozen=True, kw_only=True)
class PairMetric(TableMetric):
    """A mean over (known, unknown) pairs: analytic intervals from the variance of its placements."""

    span: float = 1.0
    """Share of the unknown samples that takes part."""
    monotone: bool = True
    analytic = True

    def bounds(self, worst: RankTable, best: RankTable) -> Bounds | None:
        """Bounds; for a partial range, wider by the rounding of areas."""
        found = super().bounds(worst, best)
        return found if found is None or self.span == 1.0 else widened(*found)

    def interval(self, found: Measured, resamples: Resamples, level: float) -> tuple[Interval, str]:
        return self.spread(found, resamples).interval(level), "DeLong, logit"

    def spread(self, found: Measured, resamples: Resamples) -> Spread:
        table, sizes = resamples.ranked.ranking.table, resamples.ranked.samples.sizes
        variance = sum(self.influence(table).variances(table, sizes))
        return Spread(found.value, variance, sizes, self.largest, self.span)


@dataclass(frozen=True, kw_only=True)
class RateMetric(TableMetric):
    """A share of the known samples: Wilson's interval."""

    monotone: bool = True
    analytic = True

    def interval(self, found: Measured, resamples: Resamples, level: float) -> tuple[Interval, str]:
        n = resamples.ranked.samples.sizes[0]
        return wilson_interval(found.value * n, n, level), "Wilson"

    def variance(self, found: Measured, resamples: Resamples) -> float:
        n = resamples.ranked.samples.sizes[0]
        return found.value * (1.0 - found.value) / (n - 1.0) if n >= 2.0 else float("nan")


@dataclass(frozen=True, kw_only=True)
class CutMetric(TableMetric):
    """The value at one cut of the table, and its threshold: a cut that a rate dictates, or the best one."""

    cut: Callable[[RankTable], Any]
    at: Callable[[RankTable, ArrayLike], Floats]
    accepted: float | None = None
    """The largest share of unknown samples that a dictated cut accepts; None for the best cut."""

    @property
    def holds_threshold(self) -> bool:  # type: ignore[override]
        """Whether the cut is the best one."""
        return self.accepted is None

    def measure(self, ranked: RankedSamples) -> Measured:
        table = ranked.ranking.table
        return Measured(float(self.of_table(table)), float(table.threshold[self.cut(table)]))

    def replicates(self, found: Measured, resamples: Resamples) -> Floats:
        table, sizes = resamples.ranked.ranking.table, resamples.ranked.samples.sizes
        cut = int(self.cut(table))
        values = self.at(resampling.resampled_cut(table, cut, self.accepted, sizes, *resamples.draws), 0)
        if self.accepted is None:
            # The best cut of a replicate is too good by as much as the best cut of the samples.
            values = values - max(0.0, float(self.of_table(resamples.tables[1]).mean()) - found.value)
        return values


@dataclass(frozen=True, kw_only=True)
class DecisionMetric(_Resampled):
    """A formula on the confusion matrix at a threshold; the value reported is the best over all thresholds.

    All replicates share this threshold: at a maximum the value does not change with it, to first order.
    """

    of_counts: Callable[[DecisionCounts], Floats]
    by_class: bool = True
    """Whether it averages over classes, rather than pooling them."""
    rates: Callable[[DecisionCounts], tuple[WeightedRate, ...]] | None = None
    """The metric as a weighted sum of rates, if it is one: these have intervals for few samples."""
    holds_threshold = True

    def measure(self, ranked: RankedSamples) -> Measured:
        return Measured(*decision.best_of(ranked.over_thresholds(self.of_counts), ranked.ranking.threshold))

    def curve(self, ranked: RankedSamples, name: str) -> Curve:
        values, unknown_tpr = ranked.over_thresholds(self.of_counts), decision.unknown_tpr_of(ranked.counts)
        return decision.against_unknown_tpr(unknown_tpr, values, ranked.ranking.threshold, name)

    def influences(self, ranked: RankedSamples) -> tuple[Floats, Floats]:
        return influence.of_decision(ranked.coded, self.measure(ranked).threshold, self.of_counts)

    def replicates(self, found: Measured, resamples: Resamples) -> Floats:
        ranked = resamples.ranked
        if self.by_class:
            return self.of_counts(resampling.resampled_counts(ranked.coded, found.threshold, *resamples.draws))
        cut, sizes = int(np.searchsorted(ranked.ranking.threshold, found.threshold)), ranked.samples.sizes
        return self.of_counts(resampling.resampled_totals(ranked.counts, cut, sizes, *resamples.draws))

    def interval(self, found: Measured, resamples: Resamples, level: float) -> tuple[Interval, str]:
        if self.rates is None:
            return super().interval(found, resamples, level)
        samples = resamples.ranked.samples
        effective = sum(samples.sizes) / sum(samples.totals)
        rates = self.rates(counts_at(resamples.ranked.coded, found.threshold))
        return intervals.rates_interval(rates, level, effective), "Wilson, threshold held"

    def variance(self, found: Measured, resamples: Resamples) -> float:
        if self.rates is None:
            return super().variance(found, resamples)
        (low, high), _ = self.interval(found, resamples, 0.95)
        return (0.5 * (high - low) / normal_quantile(0.95)) ** 2


def standard_metrics(*, ties: Ties = "half", max_ofpr: float | None = None, min_ofpr: float = 0.0) -> dict[str, Metric]:
    """The shipped metrics; with ``max_ofpr`` or ``min_ofpr`` also ``partial_openauc`` over that range.

    >>> set(standard_metrics(max_ofpr=0.1)) - set(standard_metrics())
    {'partial_openauc'}
    """
    low, high = ranking.ofpr_range(min_ofpr, max_ofpr)

    def pairs(label: str, function: Any, of_table: Any, span: float = 1.0, **options: Any) -> Metric:
        placements = partial(influence.of_openauc, ties=ties, **options)
        return PairMetric(function=function, label=label, of_table=of_table, influence=placements, span=span)

    function, of_table = partial(ranking.openauc_score, ties=ties), partial(ranking.openauc_of, ties=ties)
    metrics = {"openauc": pairs("OpenAUC", function, of_table)}
    if (low, high) != (0.0, 1.0):
        label = f"partial OpenAUC, OFPR {f'<= {high:g}' if low == 0.0 else f'{low:g} to {high:g}'}"
        function, of_table = partial(function, max_ofpr=high, min_ofpr=low), partial(of_table, low=low, high=high)
        metrics["partial_openauc"] = pairs(label, function, of_table, high - low, low=low, high=high)
    function, of_table = partial(ranking.auroc_score, ties=ties), partial(ranking.auroc_of, ties=ties)
    metrics["auroc"] = pairs("AUROC", function, of_table, with_wrong=True)
    return {**metrics, **_WITHOUT_OPTIONS}


def _decision_metric(name: str, label: str, **options: Any) -> DecisionMetric:
    def best(*triple: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        return decision.threshold_sweep(*triple, sample_weight=sample_weight).best(name).value

    return DecisionMetric(function=best, label=label, of_counts=decision.DECISION_METRICS[name], **options)


_AT_95TPR = partial(ranking.cut_at_tpr, tpr=0.95)
_AT_10FPR = partial(ranking.cut_at_fpr, fpr=0.1)
_BEYOND_95TPR = partial(influence.of_accepted, cut=_AT_95TPR, moves=True, right=-1.0, wrong=-1.0)
_OF_95TPR: Any = {"better": "lower", "cut": _AT_95TPR, "influence": _BEYOND_95TPR, "accepted": 0.05}
_DETECTED = partial(influence.of_accepted, cut=ranking.best_detection_cut, right=0.5, wrong=0.5, unknown=-0.5)

_WITHOUT_OPTIONS: Mapping[str, Metric] = {
    "closed_set_accuracy": RateMetric(
        function=decision.closed_set_accuracy,
        label="closed-set accuracy",
        needs_unknown=False,
        of_table=ranking.accuracy_of,
        influence=influence.of_accuracy,
    ),
    "fpr_at_95tpr": CutMetric(
        function=ranking.fpr_at_tpr,
        label="FPR at 95 % TPR",
        of_table=ranking.fpr_at_tpr_of,
        at=ranking.fpr_at,
        monotone=True,
        **_OF_95TPR,
    ),
    "error_at_95tpr": CutMetric(
        function=ranking.error_at_tpr,
        label="error at 95 % TPR",
        of_table=ranking.error_at_tpr_of,
        at=ranking.error_at,
        **_OF_95TPR,
    ),
    "ccr_at_10fpr": CutMetric(
        function=ranking.ccr_at_fpr,
        label="CCR at 10 % FPR",
        of_table=partial(ranking.ccr_at_fpr_of, fpr=0.1),
        influence=partial(influence.of_accepted, cut=_AT_10FPR, moves=True, right=1.0),
        cut=_AT_10FPR,
        at=ranking.ccr_at,
        accepted=0.1,
        monotone=True,
    ),
    **{
        f"average_precision_{side}": TableMetric(
            function=partial(ranking.average_precision, positive=side),
            label=f"average precision, {side}",
            of_table=partial(ranking.average_precision_of, positive=side),
            influence=partial(influence.of_average_precision, positive=side),
        )
        for side in get_args(ranking.Side)
    },
    "detection_accuracy": CutMetric(
        function=ranking.detection_accuracy,
        label="detection accuracy",
        of_table=ranking.detection_accuracy_of,
        influence=_DETECTED,
        cut=ranking.best_detection_cut,
        at=ranking.detection_accuracy_at,
        monotone=True,
    ),
    "macro_f_score": _decision_metric("macro_f_score", "macro F-score"),
    "micro_f_score": _decision_metric("micro_f_score", "micro F-score", by_class=False),
    "youden_index": _decision_metric("youden_index", "Youden's index"),
    "micro_youden_index": _decision_metric("micro_youden_index", "micro Youden's index", by_class=False),
    "normalized_accuracy": _decision_metric(
        "normalized_accuracy", "normalized accuracy", by_class=False, rates=decision.normalized_accuracy_rates
    ),
    "acc_times_auc": PairMetric(
        function=ranking.acc_times_auc,
        label="Acc × AUC",
        of_table=ranking.acc_times_auc_of,
        influence=influence.of_acc_times_auc,
    ),
    "acc_plus_auc": PairMetric(
        function=ranking.acc_plus_auc,
        label="Acc + AUC",
        largest=2.0,
        of_table=ranking.acc_plus_auc_of,
        influence=influence.of_acc_plus_auc,
    ),
}

METRICS: Mapping[str, Metric] = standard_metrics()
"""What ``evaluate`` computes, by name."""
