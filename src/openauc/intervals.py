"""Confidence intervals: Wilson's of shares, DeLong's of means over pairs, percentiles of bootstrap replicates."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from openauc import _validation as check

Rng = np.random.Generator | int
Floats = NDArray[np.float64]
REPLICATES = 2000
_SAME = 1e-6  # replicates are float32
_FEW_LOSSES = 5
_LOSSES_PER_SIZE = 4


class Interval(NamedTuple):
    """A confidence interval, ``(low, high)``."""

    low: float
    high: float

    def with_value(self, value: float) -> Interval:
        """The smallest interval that also holds ``value``."""
        return Interval(min(self.low, value), max(self.high, value))


def seed_of(rng: Rng) -> int:
    """A seed from a generator (which advances) or an integer."""
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


class WeightedRate(NamedTuple):
    """``weight * successes / trials``."""

    weight: float
    successes: ArrayLike
    trials: ArrayLike


def rates_interval(rates: Sequence[WeightedRate], level: float = 0.95, effective: float = 1.0) -> Interval:
    """Newcombe's interval of a weighted sum of independent rates; each trial counts ``effective`` times."""
    value, below, above = 0.0, 0.0, 0.0
    for weight, successes, trials in rates:
        n = effective * float(np.asarray(trials))
        share = float(np.asarray(successes)) / float(np.asarray(trials)) if n else 0.0
        low, high = wilson_interval(share * n, n, level)
        value += weight * share
        below += (weight * (share - low)) ** 2
        above += (weight * (high - share)) ** 2
    return Interval(value - float(np.sqrt(below)), value + float(np.sqrt(above)))


def pair_interval(
    value: float, variance: float, sizes: tuple[float, float], level: float = 0.95, span: float = 1.0
) -> Interval:
    """Interval of a mean over pairs of ``sizes`` known and unknown samples, between 0 and 1, from its variance.

    Near 1 only a few samples lose pairs, so the variance of the logit interval is too small. The interval therefore
    also holds Wilson's of as many trials as the variance stands for: at most N, the size of the smaller side, when
    nothing is lost, and N more for every four losses. After few losses its upper end counts half a loss less. Near 0
    it is the mirror image. With only a share ``span`` of the unknown samples, a trial loses 1 / ``span``.
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


def agreeing_level(replicates: Floats) -> float:
    """Largest level at which the percentile interval has no width; 0 or less if there is none."""
    values = np.sort(replicates)
    last = len(values) - 1
    first = np.searchsorted(values, values[last // 2] - _SAME)
    end = np.searchsorted(values, values[last // 2] + _SAME, side="right") - 1
    return float(1.0 - 2.0 * max(first, last - end) / last)


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
        """Variance of a difference if either model lost one more sample; falls with the losses seen."""
        lost = min(min(one.value, one.largest - one.value) / one.largest for one in (self, other))
        smaller = min(self.sizes[0], self.sizes[1] * self.span)
        return 2.0 * (self.largest / smaller) ** 2 / (1.0 + smaller * lost / _LOSSES_PER_SIZE)
