"""METRICS: every metric of ``evaluate()`` by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from openauc.metrics import decision, ranking
from openauc.metrics._kernel import Ranking, RankTable
from openauc.metrics.curve import Floats
from openauc.metrics.decision import DecisionCounts, WeightedRate
from openauc.metrics.ranking import Placements, Ties


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A function of the triple, its direction, and, for shipped metrics, the same formula on counts.

    ``Metric(function=f)`` is all a metric of one's own needs; the other fields let ``evaluate`` share one sort among
    all metrics and find intervals without calling ``function`` again and again.

    >>> rejected = Metric(function=lambda y_true, y_pred, open_score: float(np.mean(np.asarray(open_score) > 0)))
    >>> rejected.function([0, -1], [0, 0], [-1.0, 1.0]), rejected.better
    (0.5, 'higher')
    """

    function: Callable[[ArrayLike, ArrayLike, ArrayLike], float]
    better: Literal["higher", "lower"] = "higher"
    label: str = ""
    of_table: Callable[[RankTable], Floats] | None = None
    """The formula on counts (leading axes: bootstrap replicates)."""
    column: Callable[[RankTable], NDArray[np.intp]] | None = None
    """Column of the table whose threshold the value belongs to."""
    at_column: Callable[[RankTable, int], Floats] | None = None
    """The value at a given column, where ``column`` is a maximiser: the bootstrap then holds the column."""
    decision: Callable[[DecisionCounts], Floats] | None = None
    """The formula at a threshold; the value reported is the best over all thresholds."""
    placements: Callable[[Ranking], Placements] | None = None
    """Components of the analytic variance."""
    rates: Callable[[DecisionCounts], tuple[WeightedRate, ...]] | None = None
    """The decision metric as a weighted sum of rates, where these may rest on few samples: score intervals."""
    rate: bool = False
    """A share of the known samples: Wilson's interval."""
    largest: float = 1.0
    """Value of a perfect model, where higher is better."""


def standard_metrics(*, ties: Ties = "half", max_ofpr: float | None = None, min_ofpr: float = 0.0) -> dict[str, Metric]:
    """The shipped metrics; with ``max_ofpr`` or ``min_ofpr`` also ``partial_openauc`` over that range.

    >>> set(standard_metrics(max_ofpr=0.1)) - set(standard_metrics())
    {'partial_openauc'}
    """
    low, high = ranking.ofpr_range(min_ofpr, max_ofpr)
    metrics = {
        "openauc": Metric(
            function=partial(ranking.openauc_score, ties=ties),
            label="OpenAUC",
            of_table=partial(ranking.openauc_of, ties=ties),
            placements=partial(ranking.openauc_placements, ties=ties),
        ),
        "auroc": Metric(
            function=partial(ranking.auroc_score, ties=ties),
            label="AUROC",
            of_table=partial(ranking.auroc_of, ties=ties),
            placements=partial(ranking.openauc_placements, ties=ties, with_wrong=True),
        ),
        "closed_set_accuracy": Metric(
            function=decision.closed_set_accuracy,
            label="closed-set accuracy",
            of_table=ranking.accuracy_of,
            placements=ranking.accuracy_placements,
            rate=True,
        ),
        "fpr_at_95tpr": Metric(
            function=ranking.fpr_at_tpr,
            better="lower",
            label="FPR at 95 % TPR",
            of_table=ranking.fpr_at_tpr_of,
            column=partial(ranking.column_at_tpr, tpr=0.95),
        ),
        "error_at_95tpr": Metric(
            function=ranking.error_at_tpr,
            better="lower",
            label="error at 95 % TPR",
            of_table=ranking.error_at_tpr_of,
            column=partial(ranking.column_at_tpr, tpr=0.95),
        ),
        "ccr_at_10fpr": Metric(
            function=ranking.ccr_at_fpr,
            label="CCR at 10 % FPR",
            of_table=partial(ranking.ccr_at_fpr_of, fpr=0.1),
            column=partial(ranking.column_at_fpr, fpr=0.1),
        ),
        "average_precision_unknown": Metric(
            function=ranking.average_precision,
            label="average precision, unknown",
            of_table=ranking.average_precision_of,
        ),
        "average_precision_known": Metric(
            function=partial(ranking.average_precision, positive="known"),
            label="average precision, known",
            of_table=partial(ranking.average_precision_of, positive="known"),
        ),
        "detection_accuracy": Metric(
            function=ranking.detection_accuracy,
            label="detection accuracy",
            of_table=ranking.detection_accuracy_of,
            column=lambda table: np.argmax(ranking.detection_accuracies(table), axis=-1),
            at_column=ranking.detection_accuracy_at,
        ),
        **{name: _best_over_thresholds(name, label) for name, label in _DECISION_LABELS.items()},
        "acc_times_auc": Metric(
            function=ranking.acc_times_auc,
            label="Acc × AUC",
            of_table=ranking.acc_times_auc_of,
            placements=ranking.acc_times_auc_placements,
        ),
        "acc_plus_auc": Metric(
            function=ranking.acc_plus_auc,
            label="Acc + AUC",
            of_table=ranking.acc_plus_auc_of,
            placements=ranking.acc_plus_auc_placements,
            largest=2.0,
        ),
    }
    if (low, high) == (0.0, 1.0):
        return metrics
    bounds = {"ties": ties, "low": low, "high": high}
    span = f"OFPR <= {high:g}" if low == 0.0 else f"OFPR {low:g} to {high:g}"
    part = Metric(
        function=partial(ranking.openauc_score, ties=ties, max_ofpr=high, min_ofpr=low),
        label=f"partial OpenAUC, {span}",
        of_table=partial(ranking.openauc_of, **bounds),  # type: ignore[arg-type]
        placements=partial(ranking.openauc_placements, **bounds),  # type: ignore[arg-type]
    )
    return {"openauc": metrics.pop("openauc"), "partial_openauc": part, **metrics}


_DECISION_LABELS = {
    "macro_f_score": "macro F-score",
    "micro_f_score": "micro F-score",
    "youden_index": "Youden's index",
    "micro_youden_index": "micro Youden's index",
    "normalized_accuracy": "normalized accuracy",
}


def _best_over_thresholds(name: str, label: str) -> Metric:
    def best(y_true: ArrayLike, y_pred: ArrayLike, open_score: ArrayLike) -> float:
        return decision.threshold_sweep(y_true, y_pred, open_score).best(name).value

    rates = decision.normalized_accuracy_rates if name == "normalized_accuracy" else None
    return Metric(function=best, label=label, decision=decision.DECISION_METRICS[name], rates=rates)


METRICS: Mapping[str, Metric] = standard_metrics()
"""What ``evaluate`` computes, by name."""
