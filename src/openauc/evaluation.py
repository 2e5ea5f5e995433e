"""evaluate(): every metric of a model's predictions, with intervals, thresholds and curves."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from openauc._validation import UNKNOWN, Label
from openauc.metrics._kernel import UNKNOWN_KIND, Ranking, RankTable, rank, read_samples
from openauc.metrics.curve import Curve, Floats
from openauc.metrics.decision import (
    Coded,
    against_unknown_tpr,
    best_of,
    counts_at,
    counts_over_thresholds,
    encode,
)
from openauc.metrics.ranking import auroc_of, oscr_of, roc_of, warn_if_reversed
from openauc.metrics.table import METRICS, Metric
from openauc.uncertainty import (
    Interval,
    Rng,
    bootstrap,
    bootstrap_function,
    decision_block,
    percentile_interval,
    rates_interval,
    seed_of,
    table_block,
    u_statistic_interval,
    wilson_interval,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

REPLICATES = 2000


@dataclass(frozen=True)
class Evaluation:
    """What ``evaluate`` found; every mapping is read-only and keyed by metric name.

    ``evaluation.openauc`` is short for ``evaluation.values["openauc"]``. ``thresholds`` holds the threshold of the
    metrics that have one, ``methods`` how each interval was found, ``curves`` the OSCR and ROC curves and each decision
    metric against the TPR of the unknown class.

    >>> evaluation = evaluate([0, 1, -1, -1], [0, 1, 0, 1], [0.1, 0.6, 0.5, 0.9], level=None)
    >>> evaluation.openauc, evaluation.n_known, evaluation.n_unknown
    (0.75, 2, 2)
    """

    n_known: int
    n_unknown: int
    values: Mapping[str, float]
    intervals: Mapping[str, Interval]
    thresholds: Mapping[str, float]
    better: Mapping[str, str]
    methods: Mapping[str, str]
    level: float | None
    curves: Mapping[str, Curve] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        for name in ("values", "intervals", "thresholds", "better", "methods", "curves"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))

    def __getattr__(self, name: str) -> float:
        values = {} if name.startswith("_") else self.values
        if name in values:
            return values[name]
        raise AttributeError(f"no metric {name!r} here; there are {', '.join(values)}.")

    def __reduce__(self) -> tuple[Any, ...]:  # a mapping proxy cannot be copied or sent to another process
        names = ("values", "intervals", "thresholds", "better", "methods")
        parts = [dict(getattr(self, name)) for name in names]
        return type(self), (self.n_known, self.n_unknown, *parts, self.level, dict(self.curves))

    def to_dict(self, *, curves: bool = False) -> dict[str, Any]:
        """JSON-ready; what is infinite becomes the string that float() reads. ``curves`` adds their points."""
        result: dict[str, Any] = {
            "n_known": self.n_known,
            "n_unknown": self.n_unknown,
            "level": self.level,
            "values": {name: _finite(value) for name, value in self.values.items()},
            "intervals": {name: [_finite(bound) for bound in bounds] for name, bounds in self.intervals.items()},
            "thresholds": {name: _finite(value) for name, value in self.thresholds.items()},
            "better": dict(self.better),
            "methods": dict(self.methods),
        }
        if curves:
            result["curves"] = {
                name: {
                    "x": curve.x.tolist(),
                    "y": curve.y.tolist(),
                    "threshold": [_finite(t) for t in curve.threshold.tolist()],
                    "x_label": curve.x_label,
                    "y_label": curve.y_label,
                }
                for name, curve in self.curves.items()
            }
        return result

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Evaluation:
        """The evaluation that ``to_dict`` described."""
        return cls(
            n_known=values["n_known"],
            n_unknown=values["n_unknown"],
            level=values["level"],
            values={name: float(value) for name, value in values["values"].items()},
            intervals={name: Interval(*map(float, bounds)) for name, bounds in values["intervals"].items()},
            thresholds={name: float(value) for name, value in values["thresholds"].items()},
            better=values["better"],
            methods=values["methods"],
            curves={name: _curve(points) for name, points in values.get("curves", {}).items()},
        )

    def __str__(self) -> str:
        lines = [f"{self.n_known} known, {self.n_unknown} unknown samples"]
        width = max(map(len, self.values), default=0)
        for name, value in self.values.items():
            interval = self.intervals.get(name)
            bounds = f"  [{interval.low:.4f}, {interval.high:.4f}]" if interval else ""
            at = f"  at {self.thresholds[name]:.6g}" if name in self.thresholds else ""
            lines.append(f"{name:<{width}}  {value:.4f}{bounds}{at}")
        return "\n".join(lines)

    def plot(self, ax: Axes | None = None, *, label: str | None = None) -> Axes:
        """Draw the OSCR curve, named ``label``; needs matplotlib (``pip install 'openauc[plot]'``).

        Calls with the same ``ax`` add up to one figure of several models.
        """
        if "oscr" not in self.curves:
            raise ValueError("this evaluation holds no curves; read it from to_dict(curves=True), or evaluate again.")
        curve = self.curves["oscr"]
        value = f"OpenAUC {self.values.get('openauc', curve.area()):.4f}"
        axes = curve.plot(ax, label=value if label is None else f"{label}, {value}")
        axes.set(xlim=(0, 1), ylim=(0, 1))
        return axes


def _finite(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)


def _curve(points: Mapping[str, Any]) -> Curve:
    threshold = np.array([float(t) for t in points["threshold"]])
    return Curve(np.array(points["x"]), np.array(points["y"]), threshold, points["x_label"], points["y_label"])


def evaluate(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    open_score: ArrayLike,
    *,
    metrics: Mapping[str, Metric] = METRICS,
    level: float | None = 0.95,
    rng: Rng = 0,
    n_replicates: int = REPLICATES,
    unknown_label: Label = UNKNOWN,
) -> Evaluation:
    """All metrics of one model, from one sort.

    Parameters
    ----------
    y_true, y_pred, open_score
        (N,) the triple; ``unknown_label`` marks unknown samples, higher score = more unknown.
    metrics
        What to compute; ``standard_metrics(ties=..., max_ofpr=...)`` changes options,
        ``{**METRICS, "mine": Metric(function=f)}`` adds one's own.
    level
        Of the intervals; None for values only.
    rng, n_replicates
        Seed (or generator) and size of the bootstrap.

    Examples
    --------
    >>> e = evaluate([0, 1, 1, -1, -1], [0, 1, 0, 1, 0], [0.1, 0.6, 0.2, 0.5, 0.9])
    >>> e.openauc, e.n_known, e.thresholds["fpr_at_95tpr"]
    (0.5, 3, 0.2)
    """
    samples = read_samples(y_true, y_pred, open_score, unknown_label=unknown_label)
    ranking, coded = rank(samples), encode(samples)
    warn_if_reversed(float(auroc_of(ranking.table)))
    values, thresholds, curves = _values(ranking, coded, metrics)
    intervals: dict[str, Interval] = {}
    methods: dict[str, str] = {}
    if level is not None:
        if n_replicates < 2:
            raise ValueError(f"n_replicates is {n_replicates}; a bootstrap needs at least 2, by default {REPLICATES}.")
        intervals, methods = _intervals(ranking, coded, metrics, values, thresholds, level, n_replicates, seed_of(rng))
    return Evaluation(
        n_known=samples.n_known,
        n_unknown=samples.n_unknown,
        values=values,
        intervals=intervals,
        thresholds=thresholds,
        better={name: metric.better for name, metric in metrics.items()},
        methods=methods,
        level=level,
        curves=curves,
    )


def _values(
    ranking: Ranking, coded: Coded, metrics: Mapping[str, Metric]
) -> tuple[dict[str, float], dict[str, float], dict[str, Curve]]:
    table, counts = ranking.table, counts_over_thresholds(ranking, coded)
    values: dict[str, float] = {}
    thresholds: dict[str, float] = {}
    curves = {"oscr": oscr_of(table), "roc": roc_of(table)}
    for name, metric in metrics.items():
        if metric.decision is not None:
            over_thresholds = metric.decision(counts)
            values[name], thresholds[name] = best_of(over_thresholds, table.threshold)
            curves[name] = against_unknown_tpr(over_thresholds, counts, table.threshold, name)
        elif metric.of_table is not None:
            values[name] = float(metric.of_table(table))
        else:
            values[name] = float(metric.function(*ranking.samples.triple()))
        if metric.column is not None:
            thresholds[name] = float(table.threshold[metric.column(table)])
    return values, thresholds, curves


def _intervals(
    ranking: Ranking,
    coded: Coded,
    metrics: Mapping[str, Metric],
    values: Mapping[str, float],
    thresholds: Mapping[str, float],
    level: float,
    n_replicates: int,
    seed: int,
) -> tuple[dict[str, Interval], dict[str, str]]:
    samples, table = ranking.samples, ranking.table
    intervals: dict[str, Interval] = {}
    methods: dict[str, str] = {}
    of_table: dict[str, Callable[[RankTable], Floats]] = {}
    of_decision, of_function = {}, {}
    for name, metric in metrics.items():
        if metric.rate:
            intervals[name] = wilson_interval(round(values[name] * samples.n_known), samples.n_known, level)
            methods[name] = "Wilson"
        elif metric.placements is not None:
            intervals[name] = u_statistic_interval(
                values[name], metric.placements(ranking), level, largest=metric.largest
            )
            methods[name] = "DeLong, logit"
        elif metric.rates is not None:
            intervals[name] = rates_interval(metric.rates(counts_at(coded, thresholds[name])), level)
            methods[name] = "Wilson, threshold held"
        elif metric.decision is not None:
            of_decision[name] = metric.decision
        elif metric.at_column is not None and metric.column is not None and metric.of_table is not None:
            of_table[name] = partial(_at, metric.at_column, int(metric.column(table)))
            of_table[name + _BEST] = metric.of_table
        elif metric.of_table is not None:
            of_table[name] = metric.of_table
        else:
            of_function[name] = metric.function
    blocks = {
        tuple(of_table): table_block(ranking, of_table),
        tuple(of_decision): decision_block(ranking, coded, of_decision, thresholds),
    }
    replicates = bootstrap(ranking.kind == UNKNOWN_KIND, blocks, n_replicates, seed)
    for name, function in of_function.items():
        replicates[name] = bootstrap_function(samples, function, n_replicates, seed)
    n_pairs = min(samples.n_known, samples.n_unknown)
    for name in [*of_table, *of_decision, *of_function]:
        if name not in metrics:
            continue
        low, high = percentile_interval(replicates[name], level)
        methods[name] = "bootstrap"
        if name + _BEST in replicates:
            # What choosing the threshold again adds to a replicate, choosing it added to the value.
            optimism = max(0.0, float(replicates[name + _BEST].mean()) - values[name])
            low, high = low - optimism, high - optimism
        if name in thresholds and (metrics[name].decision or metrics[name].at_column):
            methods[name] = "bootstrap, threshold held"
            low = max(low, 0.0)  # no best value is below that of rejecting everything
        if low == high and name not in of_function:
            # Every replicate agrees, as for a perfect model; so would that many independent trials without a miss.
            low, high = wilson_interval(values[name] * n_pairs, n_pairs, level)
            methods[name] = "Wilson, smaller side"
        intervals[name] = Interval(min(low, values[name]), max(high, values[name]))
    in_order = [name for name in metrics if name in intervals]
    return {name: intervals[name] for name in in_order}, {name: methods[name] for name in in_order}


_BEST = ", threshold chosen again"


def _at(formula: Callable[[RankTable, int], Floats], column: int, table: RankTable) -> Floats:
    return formula(table, column)
