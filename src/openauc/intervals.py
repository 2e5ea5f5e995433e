"""Values and intervals of one model's metrics, each by what kind of metric it is.

* pairs (OpenAUC, partial OpenAUC, AUROC): DeLong's variance on the logit scale, so that the interval stays inside
  (0, 1), and near 0 or 1, where few samples show that variance, Wilson's interval of as many trials as they stand for;
* rates of known samples: Wilson's interval;
* everything else: the percentile bootstrap, known and unknown samples resampled apart, from tables of bounded size.

Weighted samples count as their effective number on each side, (sum w)^2 / sum w^2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from openauc import _validation as check
from openauc.metrics.counts import DecisionCounts, RankedSamples, counts_at, ratio
from openauc.metrics.curve import Floats
from openauc.metrics.decision import WeightedRate, best_of
from openauc.metrics.influence import steps_of
from openauc.metrics.rank_table import RankTable
from openauc.metrics.ranking import best_detection_column
from openauc.metrics.registry import ColumnMetric, DecisionMetric, Metric, PairMetric, RateMetric, TableMetric
from openauc.metrics.resampling import (
    coarse,
    generator,
    resampled_column,
    resampled_counts,
    resampled_table,
    resampled_totals,
)
from openauc.metrics.samples import UNKNOWN_KIND, Samples

Rng = np.random.Generator | int
Rates = Callable[[DecisionCounts], tuple[WeightedRate, ...]]
REPLICATES = 2000
_SAME = 1e-6  # replicates are float32
_FEW_LOSSES = 5
_LOSSES_PER_SIZE = 4


class Interval(NamedTuple):
    """A confidence interval.

    >>> low, high = Interval(0.7, 0.8)
    """

    low: float
    high: float


def seed_of(rng: Rng) -> int:
    """A seed from a generator (which advances) or an integer."""
    if isinstance(rng, np.random.Generator):
        return int(rng.integers(2**63))
    return int(np.random.default_rng(rng).integers(2**63))


def normal_quantile(level: float) -> float:
    """Half-width of a two-sided interval at ``level``, in standard errors."""
    return NormalDist().inv_cdf(0.5 + 0.5 * check.check_fraction("level", level, one=False))


def wilson_interval(successes: float, n: float, level: float = 0.95) -> Interval:
    """Wilson's score interval of a proportion.

    >>> tuple(round(bound, 4) for bound in wilson_interval(8, 10))
    (0.4902, 0.9433)
    """
    z = normal_quantile(level)
    if n == 0:
        return Interval(0.0, 1.0)
    share = successes / n
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * np.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    # Rounding must not push the bound of an extreme share past the share itself.
    return Interval(float(max(0.0, min(centre - half, share))), float(min(1.0, max(centre + half, share))))


def rates_interval(rates: Sequence[WeightedRate], level: float = 0.95, effective: float = 1.0) -> Interval:
    """Interval of a weighted sum of independent rates from their Wilson intervals (Newcombe's square-and-add).

    A trial counts as ``effective`` ones.
    """
    value, below, above = 0.0, 0.0, 0.0
    for weight, successes, trials in rates:
        share = float(ratio(successes, trials))
        n = effective * float(np.asarray(trials))
        low, high = wilson_interval(share * n, n, level)
        value += weight * share
        below += (weight * (share - low)) ** 2
        above += (weight * (high - share)) ** 2
    return Interval(value - float(np.sqrt(below)), value + float(np.sqrt(above)))


def pair_interval(
    value: float, variance: float, sizes: tuple[float, float], level: float = 0.95, span: float = 1.0
) -> Interval:
    """Interval of a mean over pairs of ``sizes`` known and unknown samples, between 0 and 1, from its variance.

    The logit interval is right where many samples show the variance. Near 1 few do: what is lost is lost by a few
    samples, a rare loss may not be among them, and the variance comes out too small. N pairs of distinct samples, N
    those of the smaller side, are N independent trials at least. So the interval also holds Wilson's of as many trials
    as the variance stands for, but of no more than N when nothing is lost, and N more for every four losses. After few
    losses its upper end counts half a loss less (the continuity correction). Near 0 it is the mirror image.

    Where only a share ``span`` of the unknown samples takes part, a trial loses 1 / ``span``.

    >>> low, high = pair_interval(0.7, 0.001, (100, 100))
    >>> f"{low:.3f} {high:.3f}"
    '0.635 0.758'
    >>> [round(bound, 3) for bound in pair_interval(1.0, 0.0, (100, 200))]
    [0.963, 1.0]
    """
    if value < 0.5 and span == 1.0:
        low, high = pair_interval(1.0 - value, variance, sizes, level)
        return Interval(1.0 - high, 1.0 - low)
    n = smaller = min(sizes)
    low = high = value
    lost = (1.0 - value) * span
    if variance > 0.0 and 0.0 < value < 1.0:
        low, high = logit_interval(value, variance, level)
        n = min(lost * (1.0 - lost) / (variance * span**2), smaller * (1.0 + smaller * lost / _LOSSES_PER_SIZE))
    least, most = wilson_interval((1.0 - lost) * n, n, level)
    if n * lost < _FEW_LOSSES:
        most = wilson_interval(min((1.0 - lost) * n + 0.5, n), n, level).high
    return Interval(min(low, max(1.0 - (1.0 - least) / span, 0.0)), max(high, 1.0 - (1.0 - most) / span))


def logit_interval(value: float, variance: float, level: float) -> Interval:
    """Normal interval of the log odds of a value between 0 and 1."""
    half = normal_quantile(level) * np.sqrt(variance) / (value * (1.0 - value))
    low, high = 1.0 / (1.0 + np.exp(np.array([half, -half]) - np.log(value) + np.log1p(-value)))
    return Interval(float(low), float(high))


def percentile_interval(replicates: Floats, level: float = 0.95) -> Interval:
    """Central share ``level`` of bootstrap replicates."""
    tail = 0.5 * (1.0 - check.check_fraction("level", level, one=False))
    low, high = np.quantile(replicates, [tail, 1.0 - tail])
    return Interval(float(low), float(high))


class Measured(NamedTuple):
    """Value of a metric, and its threshold, NaN where it has none."""

    value: float
    threshold: float = np.nan


def measure(metric: Metric, model: RankedSamples) -> Measured:
    """Value of a metric of any kind."""
    if isinstance(metric, DecisionMetric):
        return Measured(*best_of(model.over_thresholds(metric.of_counts), model.ranking.threshold))
    if isinstance(metric, TableMetric):
        table = model.ranking.table
        at = float(table.threshold[metric.column(table)]) if isinstance(metric, ColumnMetric) else np.nan
        return Measured(float(metric.of_table(table)), at)
    return Measured(float(call(metric.function, model.samples)))


def call(function: Callable[..., float], samples: Samples, index: Any = slice(None)) -> float:
    """A metric function of some of the samples, and of their weights if there are any."""
    weight = {} if samples.weight is None else {"sample_weight": samples.weight[index]}
    return function(*(column[index] for column in samples.triple()), **weight)


class Spread(NamedTuple):
    """Value of a metric between 0 and ``largest``, its variance, and the numbers of samples these rest on."""

    value: float
    variance: float
    sizes: tuple[float, float]
    largest: float = 1.0
    span: float = 1.0

    def interval(self, level: float) -> Interval:
        """Interval of a mean over pairs."""
        share, variance = self.value / self.largest, self.variance / self.largest**2
        low, high = pair_interval(share, variance, self.sizes, level, self.span)
        return Interval(self.largest * low, self.largest * high)

    def unseen_with(self, other: Spread) -> float:
        """Variance that one more sample lost by either of two models would add to their difference.

        2 / N^2 where nothing is lost, N being the samples of the smaller side; half of it after four losses, and so on.
        """
        lost = min(min(one.value, one.largest - one.value) / one.largest for one in (self, other))
        smaller = min(self.sizes[0], self.sizes[1] * self.span)
        return 2.0 * (self.largest / smaller) ** 2 / (1.0 + smaller * lost / _LOSSES_PER_SIZE)


class IntervalEstimator:
    """Intervals of the metrics of one model; replicates that several metrics need are drawn once."""

    def __init__(self, model: RankedSamples, level: float, n_replicates: int, seed: int) -> None:
        if n_replicates < 2:
            raise ValueError(f"n_replicates is {n_replicates}; a bootstrap needs at least 2, by default {REPLICATES}.")
        self._model, self._level, self._draws = model, level, (n_replicates, seed)

    def interval(self, metric: Metric, found: Measured) -> tuple[Interval, str]:
        """Interval of a metric, and by what method."""
        samples = self._model.samples
        if isinstance(metric, RateMetric):
            return wilson_interval(found.value * samples.sizes[0], samples.sizes[0], self._level), "Wilson"
        if isinstance(metric, PairMetric):
            return self._of_pairs(metric, found.value).interval(self._level), "DeLong, logit"
        if isinstance(metric, DecisionMetric) and metric.rates is not None:
            return self._of_rates(metric.rates, found, self._level), "Wilson, threshold held"
        return self._percentiles(metric, found)

    def _of_rates(self, rates: Rates, found: Measured, level: float) -> Interval:
        samples = self._model.samples
        effective = sum(samples.sizes) / sum(samples.totals)
        return rates_interval(rates(counts_at(self._model.coded, found.threshold)), level, effective)

    def _of_pairs(self, metric: PairMetric, value: float) -> Spread:
        samples, table = self._model.samples, self._model.ranking.table
        variance = sum(metric.influence(table).variances(self._steps, samples.sizes))
        return Spread(value, variance, samples.sizes, metric.largest, metric.span)

    def spread(self, metric: Metric) -> Spread:
        """Value and variance of a metric, for comparisons."""
        found = measure(metric, self._model)
        known, unknown = self._model.samples.sizes
        if isinstance(metric, PairMetric):
            return self._of_pairs(metric, found.value)
        if isinstance(metric, RateMetric):
            variance = found.value * (1.0 - found.value) / (known - 1.0) if known >= 2.0 else float("nan")
        elif isinstance(metric, DecisionMetric) and metric.rates is not None:
            low, high = self._of_rates(metric.rates, found, 0.95)
            variance = (0.5 * (high - low) / normal_quantile(0.95)) ** 2
        else:
            variance = float(self.replicates(metric, found).var(ddof=1))
        return Spread(found.value, variance, (known, unknown if metric.needs_unknown else known))

    def _percentiles(self, metric: Metric, found: Measured) -> tuple[Interval, str]:
        low, high = percentile_interval(self.replicates(metric, found), self._level)
        method = "bootstrap"
        if isinstance(metric, DecisionMetric) or (isinstance(metric, ColumnMetric) and metric.accepted is None):
            method = "bootstrap, threshold held"
            low = max(low, 0.0)  # no best value is below that of rejecting everything
        if high - low < _SAME and isinstance(metric, (TableMetric, DecisionMetric)):
            # Every replicate agrees, as for a perfect model; so would that many independent trials without a miss.
            smaller = min(size for size in self._model.samples.sizes if size)
            low, high = wilson_interval(found.value * smaller, smaller, self._level)
            method = "Wilson, smaller side"
        return Interval(min(low, found.value), max(high, found.value)), method

    def replicates(self, metric: Metric, found: Measured) -> Floats:
        """Values of a metric in the resamples.

        A threshold that maximises the metric is held, which is right to first order: at a maximum the value does not
        change with the threshold (envelope theorem).
        """
        model = self._model
        if isinstance(metric, DecisionMetric):
            if metric.by_class:
                return metric.of_counts(resampled_counts(model.coded, found.threshold, *self._draws))
            column = int(np.searchsorted(model.ranking.threshold, found.threshold))
            return metric.of_counts(resampled_totals(model.counts, column, model.samples.sizes, *self._draws))
        if isinstance(metric, ColumnMetric):
            table = model.ranking.table
            column = int(metric.column(table))
            values = metric.at(resampled_column(table, column, metric.accepted, model.samples.sizes, *self._draws), 0)
            if metric.accepted is None:
                # What choosing the threshold again adds to a replicate, choosing it added to the value.
                values = values - max(0.0, float(metric.of_table(self._tables[1]).mean()) - found.value)
            return values
        if isinstance(metric, TableMetric):
            table, resampled = self._tables
            # What is lost by the few columns is lost by the value and by every replicate alike.
            shifted = metric.of_table(resampled) + (found.value - float(metric.of_table(table)))
            return np.clip(shifted, 0.0, metric.largest)
        return bootstrap_function(model.samples, metric.function, *self._draws)

    @cached_property
    def _steps(self) -> tuple[Floats, Floats, Floats]:
        return steps_of(self._model.ranking.table)

    @cached_property
    def _tables(self) -> tuple[RankTable, RankTable]:
        table = self._model.ranking.table
        keep = [int(best_detection_column(table))] if self._model.samples.n_unknown else []
        few = coarse(table, keep)
        return few, resampled_table(few, self._model.samples.sizes, *self._draws)


def bootstrap_function(samples: Samples, function: Callable[..., float], n_replicates: int, seed: int) -> Floats:
    """Replicates of any function of the triple: resample and call, at the price of a call each."""
    rng = generator(seed)
    unknown = samples.kind == UNKNOWN_KIND
    sides = [side for side in (np.flatnonzero(~unknown), np.flatnonzero(unknown)) if len(side)]

    def replicate() -> float:
        index = np.concatenate([side[rng.integers(0, len(side), len(side))] for side in sides])
        return call(function, samples, np.sort(index))

    return np.array([replicate() for _ in range(n_replicates)], dtype=float)
