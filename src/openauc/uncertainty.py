"""Intervals for one model, paired comparison of several.

* pairwise metrics (OpenAUC, partial OpenAUC, AUROC): the two-sample U-statistic variance of DeLong, on the logit
  scale, so that the interval stays inside (0, 1);
* rates of known samples: Wilson's interval;
* everything else: the percentile bootstrap, known and unknown samples resampled apart. Samples are sorted once; a
  replicate only re-weights them.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from openauc import _validation as check
from openauc._validation import UNKNOWN, Label
from openauc.metrics._kernel import (
    CORRECT,
    UNKNOWN_KIND,
    Ranking,
    Resampling,
    Samples,
    Scratch,
    rank,
    read_samples,
    tally,
    weighted_table,
)
from openauc.metrics.curve import Floats
from openauc.metrics.decision import Coded, DecisionCounts, WeightedRate, counts_by_class, ratio
from openauc.metrics.ranking import Placements
from openauc.metrics.table import METRICS, Metric

Rng = np.random.Generator | int
Triple = tuple[Any, Any, Any]


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


def wilson_interval(successes: float, n: int, level: float = 0.95) -> Interval:
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


def rates_interval(rates: Sequence[WeightedRate], level: float = 0.95) -> Interval:
    """Interval of a weighted sum of independent rates from their Wilson intervals (Newcombe's square-and-add)."""
    value, below, above = 0.0, 0.0, 0.0
    for weight, successes, trials in rates:
        share = float(ratio(successes, trials))
        low, high = wilson_interval(float(np.asarray(successes)), int(np.asarray(trials)), level)
        value += weight * share
        below += (weight * (share - low)) ** 2
        above += (weight * (high - share)) ** 2
    return Interval(value - float(np.sqrt(below)), value + float(np.sqrt(above)))


def placement_variance(placements: Placements) -> float:
    """Variance of a two-sample U-statistic; NaN with fewer than two samples on a side."""
    sides = (placements.known, placements.unknown)
    if min(map(len, sides)) < 2:
        return float("nan")
    return float(sum(side.var(ddof=1) / len(side) for side in sides))


def u_statistic_interval(
    value: float, placements: Placements, level: float = 0.95, *, largest: float = 1.0
) -> Interval:
    """Logit interval from the placements of a metric between 0 and ``largest``.

    Where the variance says nothing (a perfect or a constant score, one sample on a side), N pairs of distinct samples
    carry at least the information of N = min(N_k, N_u) independent trials: Wilson's interval of that many.
    """
    variance = placement_variance(placements) / largest**2
    share = value / largest
    if not variance > 0.0 or not 0.0 < share < 1.0:
        n = min(len(placements.known), len(placements.unknown))
        low, high = wilson_interval(share * n, n, level)
    else:
        half = normal_quantile(level) * np.sqrt(variance) / (share * (1.0 - share))
        logit = np.log(share) - np.log1p(-share)
        low, high = 1.0 / (1.0 + np.exp(-(logit + np.array([-half, half]))))
    return Interval(float(largest * low), float(largest * high))


def percentile_interval(replicates: Floats, level: float = 0.95) -> Interval:
    """Central share ``level`` of bootstrap replicates."""
    tail = 0.5 * (1.0 - check.check_fraction("level", level, one=False))
    low, high = np.quantile(replicates, [tail, 1.0 - tail])
    return Interval(float(low), float(high))


# --- bootstrap of many metrics on one sort --------------------------------------------------------------

Block = Callable[[NDArray[np.uint8], Scratch], Floats]
"""From the weights of some replicates, (R, N), to the value of each metric in each of them, (R, M)."""


def bootstrap(
    is_unknown: NDArray[np.bool_], blocks: Mapping[tuple[str, ...], Block], n: int, seed: int
) -> dict[str, Floats]:
    """``n`` replicates of the metrics that each block computes, all on the same resamples."""
    blocks = {names: block for names, block in blocks.items() if names}
    if not blocks:
        return {}

    def all_blocks(weights: NDArray[np.uint8], scratch: Scratch) -> Floats:
        return np.concatenate([block(weights, scratch) for block in blocks.values()], axis=1)

    replicates = Resampling(is_unknown.astype(np.uint8), n, seed).map(all_blocks)
    names = [name for group in blocks for name in group]
    return {name: replicates[:, i] for i, name in enumerate(names)}


def table_block(ranking: Ranking, formulas: Mapping[str, Callable[..., Floats]]) -> Block:
    """Metrics that are formulas on the rank table."""

    def block(weights: NDArray[np.uint8], scratch: Scratch) -> Floats:
        table = weighted_table(ranking, weights, scratch)
        return np.stack([formula(table) for formula in formulas.values()], axis=1)

    return block


def decision_block(
    ranking: Ranking,
    coded: Coded,
    formulas: Mapping[str, Callable[[DecisionCounts], Floats]],
    thresholds: Mapping[str, float],
) -> Block:
    """Decision metrics, each at its own threshold, held fixed.

    Holding it is right to first order also where the threshold maximises the metric: at a maximum the value does not
    change with the threshold (envelope theorem).
    """
    steps = np.unique([thresholds[name] for name in formulas])
    n_steps, n_classes = len(steps), len(coded.classes)
    score, pred, true = (a[ranking.order] for a in (coded.samples.score, coded.pred, coded.true))
    step = np.searchsorted(steps, score, side="left")  # the first threshold that accepts the sample
    accepted = (step < n_steps) & (pred >= 0)
    # One cell for each first accepting step, predicted class and kind of sample.
    cell = np.where(accepted, (step * n_classes + pred) * 3 + ranking.kind, -1).astype(np.int32)
    at = {name: int(np.searchsorted(steps, thresholds[name])) for name in formulas}

    def block(weights: NDArray[np.uint8], _: Scratch) -> Floats:
        by_kind = tally(weights, cell, n_steps * n_classes * 3).reshape(-1, n_steps, n_classes, 3).cumsum(axis=1)
        class_size = tally(weights, true, n_classes)[:, None, :]
        counts = counts_by_class(
            by_kind[..., CORRECT],
            by_kind.sum(axis=-1),
            class_size,
            by_kind[..., UNKNOWN_KIND].sum(axis=-1),
            coded.samples.n_unknown,
            counted=(class_size > 0) | (coded.class_size == 0),  # a class not drawn says nothing of that class
        )
        return np.stack([formula(counts)[:, at[name]] for name, formula in formulas.items()], axis=1)

    return block


def bootstrap_function(
    samples: Samples, function: Callable[[Any, Any, Any], float], n_replicates: int, seed: int
) -> Floats:
    """Replicates of any function of the triple: resample and call, at the price of a call each."""
    index = np.arange(len(samples.kind))
    triple = samples.triple()

    def block(weights: NDArray[np.uint8], _: Scratch) -> Floats:
        return np.array([function(*(a[np.repeat(index, row)] for a in triple)) for row in weights], dtype=float)

    is_unknown = (samples.kind == UNKNOWN_KIND).astype(np.uint8)
    return Resampling(is_unknown, n_replicates, seed).map(block)


# --- comparing models on the same samples ---------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Model ``a`` minus model ``b`` in one metric."""

    metric: str
    a: str
    b: str
    value_a: float
    value_b: float
    difference: float
    interval: Interval
    p_value: float
    p_holm: float
    method: str


@dataclass(frozen=True)
class Comparison:
    """All pairwise differences, and the level of their intervals; p-values are Holm-corrected within a metric.

    >>> y_true, y_pred = [0, 0, 1, -1, -1, -1], [0, 0, 1, 0, 1, 1]
    >>> good, bad = [0.1, 0.3, 0.2, 0.4, 0.6, 0.5], [0.1, 0.4, 0.5, 0.3, 0.6, 0.2]
    >>> comparison = compare((y_true, y_pred, good), (y_true, y_pred, bad), names=["good", "bad"], metrics=["openauc"])
    >>> [(d.a, d.b, round(d.difference, 3)) for d in comparison.differences]
    [('good', 'bad', 0.444)]
    """

    names: tuple[str, ...]
    level: float
    n_known: int
    n_unknown: int
    differences: tuple[Difference, ...]

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        values = asdict(self)
        values["names"] = list(self.names)
        values["differences"] = [{**asdict(d), "interval": list(d.interval)} for d in self.differences]
        return values


def compare(
    *models: Triple,
    names: Sequence[str] | None = None,
    metrics: Sequence[str] | Mapping[str, Metric] = ("openauc", "auroc", "closed_set_accuracy"),
    baseline: str | None = None,
    level: float = 0.95,
    rng: Rng = 0,
    n_replicates: int = 2000,
    unknown_label: Label = UNKNOWN,
) -> Comparison:
    """Paired differences of two or more models on the same samples, with interval and p-value.

    Pairwise metrics and accuracy use the covariance of their placements (DeLong) and a two-sided z-test. Any other
    metric uses the paired bootstrap for the interval and, for the p-value, a paired permutation test: under the
    hypothesis that the models are exchangeable, each sample's (prediction, rank) may be swapped between them. Ranks
    rather than scores are swapped, since two models need not share a scale; so such a metric must depend on the order
    of the scores only, as all shipped ones do.

    Parameters
    ----------
    models
        Triples such as ``Predictions``, with equal ``y_true`` in equal order.
    names
        One per model; default "A", "B", ...
    metrics
        Names in ``METRICS``, or a mapping of metrics of one's own.
    baseline
        Compare every model with this one only, instead of all pairs.

    Examples
    --------
    >>> good, bad = ([0, 0, -1, -1], [0, 0, 0, 0], [1, 2, 3, 4]), ([0, 0, -1, -1], [0, 1, 0, 0], [1, 2, 3, 4])
    >>> compare(good, bad, metrics=["openauc"]).differences[0].difference
    0.5
    """
    if len(models) < 2:
        raise ValueError(f"compare needs at least two models, got {len(models)}.")
    labels = tuple(names) if names is not None else _letters(len(models))
    if len(labels) != len(models) or len(set(labels)) != len(labels):
        raise ValueError(f"names must be {len(models)} different names, one per model, got {list(labels)}.")
    chosen = (
        metrics
        if isinstance(metrics, Mapping)
        else {name: METRICS[check.check_choice("metric", name, METRICS)] for name in metrics}
    )
    normal_quantile(level)
    samples = [read_samples(*model, unknown_label=unknown_label) for model in models]
    _require_same_samples(samples, labels)
    rankings = [rank(s) for s in samples]
    if baseline is None:
        pairs = list(combinations(range(len(models)), 2))
    else:
        base = labels.index(check.check_choice("baseline", baseline, labels))
        pairs = [(i, base) for i in range(len(models)) if i != base]
    seed = seed_of(rng)
    rows: list[Difference] = []
    for name, metric in chosen.items():
        test = _Paired(metric, rankings, level, n_replicates, seed)
        results = [test.pair(i, j) for i, j in pairs]
        corrected = holm([p for *_, p in results])
        for (i, j), (difference, interval, p), p_holm in zip(pairs, results, corrected, strict=True):
            rows.append(
                Difference(
                    metric=name,
                    a=labels[i],
                    b=labels[j],
                    value_a=test.values[i],
                    value_b=test.values[j],
                    difference=difference,
                    interval=interval,
                    p_value=p,
                    p_holm=p_holm,
                    method=test.method,
                )
            )
    return Comparison(labels, level, samples[0].n_known, samples[0].n_unknown, tuple(rows))


def _letters(n: int) -> tuple[str, ...]:
    return tuple(string.ascii_uppercase[i] if n <= 26 else f"model {i + 1}" for i in range(n))


def _require_same_samples(samples: Sequence[Samples], names: Sequence[str]) -> None:
    first = samples[0].y_true
    for name, other in zip(names[1:], samples[1:], strict=True):
        if len(other.y_true) != len(first):
            raise ValueError(
                f"{names[0]} has {len(first)} samples but {name} has {len(other.y_true)}; a paired comparison needs "
                "the same test samples in the same order."
            )
        differs = np.flatnonzero(other.y_true.astype(str) != first.astype(str))
        if len(differs):
            row = int(differs[0])
            raise ValueError(
                f"y_true of {names[0]} and {name} differ in {len(differs)} of {len(first)} samples, first in sample "
                f"{row} ({first[row].item()!r} against {other.y_true[row].item()!r}); a paired comparison needs the "
                "same test samples in the same order."
            )


class _Paired:
    """Paired tests of one metric among ranked models."""

    def __init__(self, metric: Metric, rankings: Sequence[Ranking], level: float, n_replicates: int, seed: int) -> None:
        self._metric, self._rankings, self._level = metric, rankings, level
        self._n_replicates, self._seed = n_replicates, seed
        self.values = [self._value(ranking) for ranking in rankings]
        self._placements = [metric.placements(r) for r in rankings] if metric.placements else None
        self.method = "DeLong" if self._placements else "bootstrap, permutation"

    def _value(self, ranking: Ranking) -> float:
        if self._metric.of_table is not None:
            return float(self._metric.of_table(ranking.table))
        return float(self._metric.function(*ranking.samples.triple()))

    def pair(self, i: int, j: int) -> tuple[float, Interval, float]:
        """Difference, interval and p-value of models i and j."""
        difference = self.values[i] - self.values[j]
        if self._placements is None:
            return difference, self._bootstrap(i, j), self._permutation(i, j, difference)
        a, b = self._placements[i], self._placements[j]
        apart = Placements(a.known - b.known, a.unknown - b.unknown)
        if not apart.known.any() and not apart.unknown.any():  # they agree on every sample
            return difference, Interval(difference, difference), 1.0
        variance = placement_variance(apart)
        if variance > 0.0:
            half = normal_quantile(self._level) * float(np.sqrt(variance))
            p = 2.0 * NormalDist().cdf(-abs(difference) / float(np.sqrt(variance)))
            return difference, Interval(difference - half, difference + half), p
        # One sample on a side, or a constant gap: the variance says nothing.
        return difference, self._square_and_add(i, j), self._permutation(i, j, difference)

    def _square_and_add(self, i: int, j: int) -> Interval:
        """Interval of a difference from those of its two terms (Newcombe), as if they were independent."""
        assert self._placements is not None
        (low_a, high_a), (low_b, high_b) = (
            u_statistic_interval(self.values[m], self._placements[m], self._level, largest=self._metric.largest)
            for m in (i, j)
        )
        value_a, value_b = self.values[i], self.values[j]
        below, above = np.hypot(value_a - low_a, high_b - value_b), np.hypot(high_a - value_a, value_b - low_b)
        return Interval(float(value_a - value_b - below), float(value_a - value_b + above))

    def _bootstrap(self, i: int, j: int) -> Interval:
        a, b = (
            bootstrap_function(self._rankings[m].samples, self._metric.function, self._n_replicates, self._seed)
            for m in (i, j)
        )
        return percentile_interval(a - b, self._level)

    def _permutation(self, i: int, j: int, difference: float) -> float:
        a, b = self._rankings[i], self._rankings[j]
        y_true, pred_a, _ = a.samples.triple()
        predictions = np.stack([pred_a, b.samples.triple()[1]])
        ranks = np.stack([_mid_ranks(a), _mid_ranks(b)])
        rng = np.random.default_rng(self._seed)
        column = np.arange(len(y_true))
        extreme = 0
        for _ in range(self._n_replicates):
            swap = rng.integers(0, 2, len(y_true))
            one, two = (
                self._metric.function(y_true, predictions[side, column], ranks[side, column])
                for side in (swap, 1 - swap)
            )
            extreme += abs(one - two) >= abs(difference) - 1e-12
        return (1 + extreme) / (1 + self._n_replicates)


def _mid_ranks(ranking: Ranking) -> Floats:
    """Rank of each sample among all, ties sharing their mean rank."""
    first = np.concatenate([[0], ranking.last[:-1] + 1])
    middle = 0.5 * (first + ranking.last)
    ranks = np.empty(len(ranking.order))
    ranks[ranking.order] = middle[ranking.group - 1]
    return ranks


def holm(p_values: Iterable[float]) -> list[float]:
    """Holm's step-down correction.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(list(p_values), dtype=np.float64)
    order = np.argsort(p)
    stepped = np.maximum.accumulate((len(p) - np.arange(len(p))) * p[order])
    corrected = np.empty_like(p)
    corrected[order] = np.minimum(stepped, 1.0)
    return [float(value) for value in corrected]
