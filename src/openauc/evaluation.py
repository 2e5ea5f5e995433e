"""evaluate(): every metric of a model's predictions, with intervals, thresholds and curves."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from openauc._validation import UNKNOWN, Label, Vector, Weights, json_ready
from openauc.intervals import REPLICATES, Interval, Rng, seed_of
from openauc.metrics.counts import RankedSamples
from openauc.metrics.curve import Curve
from openauc.metrics.ranking import auroc_of, oscr_of, roc_of, warn_if_reversed
from openauc.metrics.registry import METRICS, Metric, Resamples
from openauc.metrics.samples import read_samples

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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

    def _fields(self) -> dict[str, Any]:
        values = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        return {name: dict(value) if isinstance(value, Mapping) else value for name, value in values.items()}

    def __reduce__(self) -> tuple[Any, ...]:  # a mapping proxy cannot be copied or sent to another process
        return type(self), tuple(self._fields().values())

    def to_dict(self, *, curves: bool = False) -> dict[str, Any]:
        """JSON-ready; infinite numbers become the string that float() reads. ``curves`` adds their points."""
        shown = {"n_known": self.n_known, "n_unknown": self.n_unknown, "level": self.level} | self._fields()
        found = shown.pop("curves")
        if curves:
            shown["curves"] = {name: asdict(curve) for name, curve in found.items()}
        return {name: json_ready(value) for name, value in shown.items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Evaluation:
        """The evaluation that ``to_dict`` described."""
        return cls(
            **{name: values[name] for name in ("n_known", "n_unknown", "level", "better", "methods")},
            values={name: float(value) for name, value in values["values"].items()},
            intervals={name: Interval(*map(float, bounds)) for name, bounds in values["intervals"].items()},
            thresholds={name: float(value) for name, value in values["thresholds"].items()},
            curves={
                name: Curve(**points | {axis: np.array(points[axis], dtype=float) for axis in ("x", "y", "threshold")})
                for name, points in values.get("curves", {}).items()
            },
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


def evaluate(
    y_true: Vector,
    y_pred: Vector,
    open_score: Vector,
    *,
    metrics: Mapping[str, Metric] = METRICS,
    level: float | None = 0.95,
    rng: Rng = 0,
    n_replicates: int = REPLICATES,
    unknown_label: Label = UNKNOWN,
    sample_weight: Weights = None,
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
    sample_weight
        (N,) how often each sample counts. Intervals rest on the effective number of samples, (sum w)^2 / sum w^2.

    Examples
    --------
    >>> e = evaluate([0, 1, 1, -1, -1], [0, 1, 0, 1, 0], [0.1, 0.6, 0.2, 0.5, 0.9])
    >>> e.openauc, e.n_known, e.thresholds["fpr_at_95tpr"]
    (0.5, 3, 0.2)
    """
    need_unknown = any(metric.needs_unknown for metric in metrics.values())
    options: dict[str, Any] = {"unknown_label": unknown_label, "sample_weight": sample_weight}
    ranked = RankedSamples(read_samples(y_true, y_pred, open_score, need_unknown=need_unknown, **options))
    if ranked.samples.n_unknown:
        warn_if_reversed(float(auroc_of(ranked.ranking.table)))
    return evaluate_ranked(ranked, metrics, level, seed_of(rng), n_replicates)


def evaluate_ranked(
    ranked: RankedSamples, metrics: Mapping[str, Metric], level: float | None, seed: int, n_replicates: int
) -> Evaluation:
    samples, table = ranked.samples, ranked.ranking.table
    found = {name: metric.measure(ranked) for name, metric in metrics.items()}
    curves = {"oscr": oscr_of(table), "roc": roc_of(table)} if samples.n_unknown else {}
    curves |= {name: curve for name, metric in metrics.items() if (curve := metric.curve(ranked, name)) is not None}
    intervals: dict[str, tuple[Interval, str]] = {}
    if level is not None:
        resamples = Resamples(ranked, n_replicates, seed)
        intervals = {name: metric.interval(found[name], resamples, level) for name, metric in metrics.items()}
    return Evaluation(
        n_known=samples.n_known,
        n_unknown=samples.n_unknown,
        values={name: value for name, (value, _) in found.items()},
        intervals={name: interval for name, (interval, _) in intervals.items()},
        thresholds={name: at for name, (_, at) in found.items() if not math.isnan(at)},
        better={name: metric.better for name, metric in metrics.items()},
        methods={name: method for name, (_, method) in intervals.items()},
        level=level,
        curves=curves,
    )
