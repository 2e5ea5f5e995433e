"""Paired comparison of models on the same samples."""

from __future__ import annotations

import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from statistics import NormalDist
from typing import Any

import numpy as np

from openauc import _validation as check
from openauc._validation import UNKNOWN, Label, json_ready
from openauc.intervals import REPLICATES, Interval, Rng, Spread, normal_quantile, percentile_interval, seed_of
from openauc.metrics.counts import RankedSamples
from openauc.metrics.curve import Floats
from openauc.metrics.registry import METRICS, Measured, Metric, Resamples
from openauc.metrics.samples import Samples, read_samples

Triple = tuple[Any, Any, Any]
_TESTED_AT = 0.95  # level at which interval and test agree


@dataclass(frozen=True)
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
        return {name: json_ready(value) for name, value in asdict(self).items()}


def compare(
    *models: Triple,
    names: Sequence[str] | None = None,
    metrics: Sequence[str] | Mapping[str, Metric] = ("openauc", "auroc", "closed_set_accuracy"),
    baseline: str | None = None,
    level: float = 0.95,
    rng: Rng = 0,
    n_replicates: int = REPLICATES,
    unknown_label: Label = UNKNOWN,
) -> Comparison:
    """Paired differences of two or more models on the same samples, with interval and p-value.

    The variance of a difference follows from the influence of each sample on its two terms; for means over pairs and
    accuracy this is DeLong's test. Near 1 two samples are added to it, one lost by either model (Bonett and Price
    2012).

    A metric that is a plain function gets the paired bootstrap and a permutation test, which swaps the (prediction,
    rank) of samples between the models; such a metric must depend on the order of scores only.

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
    letters = string.ascii_uppercase if len(models) <= 26 else [f"model {i + 1}" for i in range(len(models))]
    labels = tuple(names if names is not None else letters[: len(models)])
    if len(labels) != len(models) or len(set(labels)) != len(labels):
        raise ValueError(f"names must be {len(models)} different names, one per model, got {list(labels)}.")
    if not isinstance(metrics, Mapping):
        metrics = {name: METRICS[check.check_choice("metric", name, METRICS)] for name in metrics}
    normal_quantile(level)
    need_unknown = any(metric.needs_unknown for metric in metrics.values())
    samples = [read_samples(*model, unknown_label=unknown_label, need_unknown=need_unknown) for model in models]
    require_same_samples(samples, labels)
    ranked = [RankedSamples(s) for s in samples]
    return compare_ranked(ranked, labels, metrics, baseline, level, seed_of(rng), n_replicates)


def compare_ranked(
    models: Sequence[RankedSamples],
    names: tuple[str, ...],
    metrics: Mapping[str, Metric],
    baseline: str | None,
    level: float,
    seed: int,
    n_replicates: int,
) -> Comparison:
    pairs = list(combinations(range(len(models)), 2))
    if baseline is not None:
        base = names.index(check.check_choice("baseline", baseline, names))
        pairs = [(i, base) for i in range(len(models)) if i != base]
    resamples = [Resamples(ranked, n_replicates, seed) for ranked in models]
    rows: list[Difference] = []
    for name, metric in metrics.items():
        found = [metric.measure(ranked) for ranked in models]
        method, test = (_by_influence if metric.has_influence else _by_calls)(metric, found, resamples, level)
        results = [test(i, j) for i, j in pairs]
        for (i, j), (interval, p), p_holm in zip(pairs, results, holm(p for _, p in results), strict=True):
            a, b = found[i].value, found[j].value
            rows.append(Difference(name, names[i], names[j], a, b, a - b, interval, p, p_holm, method))
    first = models[0].samples
    return Comparison(names, level, first.n_known, first.n_unknown, tuple(rows))


def require_same_samples(samples: Sequence[Samples], names: Sequence[str]) -> None:
    """Raise unless all models were tested on the same samples in the same order."""
    first, remedy = samples[0].y_true, "a paired comparison needs the same test samples in the same order."
    for name, other in zip(names[1:], (part.y_true for part in samples[1:]), strict=True):
        if len(other) != len(first):
            raise ValueError(f"{names[0]} has {len(first)} samples but {name} has {len(other)}; {remedy}")
        alike = other.dtype.kind == first.dtype.kind
        differs = np.flatnonzero(other != first if alike else other.astype(str) != first.astype(str))
        if len(differs):
            row = int(differs[0])
            raise ValueError(
                f"y_true of {names[0]} and {name} differ in {len(differs)} of {len(first)} samples, first in sample "
                f"{row} ({first[row].item()!r} against {other[row].item()!r}); {remedy}"
            )


_Test = Callable[[int, int], tuple[Interval, float]]  # interval and p-value of the difference of the models i and j


def _by_influence(
    metric: Metric, found: Sequence[Measured], resamples: Sequence[Resamples], level: float
) -> tuple[str, _Test]:
    """Paired test of a metric of which the influence of each sample is known."""
    spreads = list(map(metric.spread, found, resamples))
    influences = [_scaled(metric, part.ranked, spread) for part, spread in zip(resamples, spreads, strict=True)]

    def test(i: int, j: int) -> tuple[Interval, float]:
        difference = spreads[i].value - spreads[j].value
        if _same(resamples[i].ranked, resamples[j].ranked):
            return Interval(difference, difference), 1.0
        apart = [one - other for one, other in zip(influences[i], influences[j], strict=True)]
        return difference_interval(difference, apart, spreads[i].unseen_with(spreads[j]), level)

    return "DeLong" if metric.analytic else "bootstrap", test


def difference_interval(
    difference: float, apart: Sequence[Floats], unseen: float, level: float
) -> tuple[Interval, float]:
    """Interval and p-value of a difference from what each sample adds to it; skewness moves both (Johnson 1978)."""
    error = float(np.sqrt(_variance_of_sum(apart) + unseen))
    third = sum(float(((side - side.mean()) ** 3).mean()) / len(side) ** 2 for side in apart if len(side))
    skew = third / error**2

    def middle(z: float) -> float:
        return difference + skew * (2.0 * z * z + 1.0) / 6.0

    def held(z: float, side: float) -> float:
        """Beyond some z the correction would move this end of the interval back; there it stays."""
        return min(z, 1.5 * error / abs(skew)) if skew * side < 0.0 else z

    z, tested, sign = normal_quantile(level), normal_quantile(_TESTED_AT), float(np.sign(difference))
    low, high, nearer = held(z, -1.0), held(z, 1.0), held(tested, -sign)
    from_zero = max(middle(nearer) * sign + (tested - nearer) * error, 0.0) if sign else 0.0
    # Of the 2^n ways to exchange the models on n samples, at least two are as far apart.
    p = max(2.0 * NormalDist().cdf(-from_zero / error), 2.0 ** (1 - sum(map(len, apart))))
    return Interval(middle(low) - low * error, middle(high) + high * error).with_value(difference), p


def _same(one: RankedSamples, other: RankedSamples) -> bool:
    """Whether two models say the same of every sample."""
    a, b = one.ranking, other.ranking
    parts = ((a.order, b.order), (a.last, b.last), (one.samples.y_pred, other.samples.y_pred))
    return all(np.array_equal(*pair) for pair in parts)


def _variance_of_sum(sides: Sequence[Floats]) -> float:
    return float(sum(side.var(ddof=1) / len(side) for side in sides if len(side) > 1))


def _scaled(metric: Metric, ranked: RankedSamples, spread: Spread) -> list[Floats]:
    """Influences of the known and the unknown samples, scaled so that their means have the variance of the metric."""
    sides = metric.influences(ranked) or ()
    own = _variance_of_sum(sides)
    scale = np.sqrt(spread.variance / own) if own > 0.0 and spread.variance > 0.0 else 1.0
    return [side * scale for side in sides]


def _by_calls(
    metric: Metric, found: Sequence[Measured], resamples: Sequence[Resamples], level: float
) -> tuple[str, _Test]:
    """Paired test of a plain function: bootstrap and permutations."""
    replicates = list(map(metric.replicates, found, resamples))

    def test(i: int, j: int) -> tuple[Interval, float]:
        p = _permutation(metric, resamples[i], resamples[j], found[i].value - found[j].value)
        return percentile_interval(replicates[i] - replicates[j], level), p

    return "bootstrap, permutation", test


def _permutation(metric: Metric, one: Resamples, other: Resamples, difference: float) -> float:
    """Share of random exchanges of the two models, sample by sample, that are as far apart."""
    n_replicates, seed = one.draws
    y_true, *_ = one.ranked.samples.triple()
    predictions = np.stack([part.ranked.samples.triple()[1] for part in (one, other)])
    ranked = (part.ranked.ranking for part in (one, other))
    # Ties share their mean rank.
    ranks = np.stack([(0.5 * (np.append(-1, r.last[:-1]) + 1 + r.last))[r.cut] for r in ranked])
    rng = np.random.default_rng(seed)
    each = np.arange(len(y_true))
    extreme = 0
    for _ in range(n_replicates):
        swap = rng.integers(0, 2, len(y_true))
        a, b = (metric.function(y_true, predictions[s, each], ranks[s, each]) for s in (swap, 1 - swap))
        extreme += abs(a - b) >= abs(difference) - 1e-12
    return (1 + extreme) / (1 + n_replicates)


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
