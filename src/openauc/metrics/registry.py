"""Kinds of metrics, and METRICS: every metric of ``evaluate()`` by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from numpy.typing import ArrayLike

from openauc.metrics import decision, influence, ranking
from openauc.metrics.counts import DecisionCounts
from openauc.metrics.curve import Floats
from openauc.metrics.decision import WeightedRate
from openauc.metrics.influence import Influence
from openauc.metrics.rank_table import RankTable
from openauc.metrics.ranking import Ties


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A plain function of the triple, and its direction: all that a metric of one's own needs.

    The kinds below say more of a metric, so that ``evaluate`` shares one sort among all of them and finds intervals
    without calling ``function`` again and again.

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


@dataclass(frozen=True, kw_only=True)
class TableMetric(Metric):
    """A formula on the rank table: intervals from resampled tables."""

    of_table: Callable[[RankTable], Floats]
    """The value (leading axes: replicates)."""
    influence: Callable[[RankTable], Influence]


@dataclass(frozen=True, kw_only=True)
class PairMetric(TableMetric):
    """A mean over (known, unknown) pairs: analytic intervals from the variance of its placements."""

    span: float = 1.0
    """Share of the unknown samples that takes part."""


@dataclass(frozen=True, kw_only=True)
class RateMetric(TableMetric):
    """A share of the known samples: Wilson's interval."""


@dataclass(frozen=True, kw_only=True)
class ColumnMetric(TableMetric):
    """The value at one column of the table, which has a threshold: one dictated by the table, or the best."""

    column: Callable[[RankTable], Any]
    at: Callable[[RankTable, ArrayLike], Floats]
    accepted: float | None = None
    """The largest share of unknown samples that a dictated column accepts; None for the best column."""


@dataclass(frozen=True, kw_only=True)
class DecisionMetric(Metric):
    """A formula on the confusion matrix at a threshold; the value reported is the best over all thresholds."""

    of_counts: Callable[[DecisionCounts], Floats]
    by_class: bool = True
    """Whether it averages over classes, rather than pooling them."""
    rates: Callable[[DecisionCounts], tuple[WeightedRate, ...]] | None = None
    """The same as a weighted sum of rates, where these may rest on few samples: score intervals."""


def standard_metrics(*, ties: Ties = "half", max_ofpr: float | None = None, min_ofpr: float = 0.0) -> dict[str, Metric]:
    """The shipped metrics; with ``max_ofpr`` or ``min_ofpr`` also ``partial_openauc`` over that range.

    >>> set(standard_metrics(max_ofpr=0.1)) - set(standard_metrics())
    {'partial_openauc'}
    """
    low, high = ranking.ofpr_range(min_ofpr, max_ofpr)
    openauc = PairMetric(
        function=partial(ranking.openauc_score, ties=ties),
        label="OpenAUC",
        of_table=partial(ranking.openauc_of, ties=ties),
        influence=partial(influence.of_openauc, ties=ties),
    )
    metrics: dict[str, Metric] = {"openauc": openauc}
    if (low, high) != (0.0, 1.0):
        bounds: dict[str, Any] = {"ties": ties, "low": low, "high": high}
        metrics["partial_openauc"] = PairMetric(
            function=partial(ranking.openauc_score, ties=ties, max_ofpr=high, min_ofpr=low),
            label=f"partial OpenAUC, OFPR {f'<= {high:g}' if low == 0.0 else f'{low:g} to {high:g}'}",
            of_table=partial(ranking.openauc_of, **bounds),
            influence=partial(influence.of_openauc, **bounds),
            span=high - low,
        )
    metrics["auroc"] = PairMetric(
        function=partial(ranking.auroc_score, ties=ties),
        label="AUROC",
        of_table=partial(ranking.auroc_of, ties=ties),
        influence=partial(influence.of_openauc, ties=ties, with_wrong=True),
    )
    return {**metrics, **_WITHOUT_OPTIONS}


def _decision_metric(name: str, label: str, **options: Any) -> DecisionMetric:
    def best(
        y_true: ArrayLike, y_pred: ArrayLike, open_score: ArrayLike, *, sample_weight: ArrayLike | None = None
    ) -> float:
        return decision.threshold_sweep(y_true, y_pred, open_score, sample_weight=sample_weight).best(name).value

    return DecisionMetric(function=best, label=label, of_counts=decision.DECISION_METRICS[name], **options)


def _at_95tpr(table: RankTable) -> Influence:
    column = int(ranking.column_at_tpr(table, 0.95))
    return influence.of_accepted(table, column, moves=True, right=-1.0, wrong=-1.0, unknown=0.0)


def _at_10fpr(table: RankTable) -> Influence:
    column = int(ranking.column_at_fpr(table, 0.1))
    return influence.of_accepted(table, column, moves=True, right=1.0, wrong=0.0, unknown=0.0)


def _at_best_detection(table: RankTable) -> Influence:
    column = int(ranking.best_detection_column(table))
    return influence.of_accepted(table, column, moves=False, right=0.5, wrong=0.5, unknown=-0.5)


_WITHOUT_OPTIONS: Mapping[str, Metric] = {
    "closed_set_accuracy": RateMetric(
        function=decision.closed_set_accuracy,
        label="closed-set accuracy",
        needs_unknown=False,
        of_table=ranking.accuracy_of,
        influence=influence.of_accuracy,
    ),
    "fpr_at_95tpr": ColumnMetric(
        function=ranking.fpr_at_tpr,
        better="lower",
        label="FPR at 95 % TPR",
        of_table=ranking.fpr_at_tpr_of,
        influence=_at_95tpr,
        column=partial(ranking.column_at_tpr, tpr=0.95),
        at=ranking.fpr_at,
        accepted=0.05,
    ),
    "error_at_95tpr": ColumnMetric(
        function=ranking.error_at_tpr,
        better="lower",
        label="error at 95 % TPR",
        of_table=ranking.error_at_tpr_of,
        influence=_at_95tpr,
        column=partial(ranking.column_at_tpr, tpr=0.95),
        at=ranking.error_at,
        accepted=0.05,
    ),
    "ccr_at_10fpr": ColumnMetric(
        function=ranking.ccr_at_fpr,
        label="CCR at 10 % FPR",
        of_table=partial(ranking.ccr_at_fpr_of, fpr=0.1),
        influence=_at_10fpr,
        column=partial(ranking.column_at_fpr, fpr=0.1),
        at=ranking.ccr_at,
        accepted=0.1,
    ),
    "average_precision_unknown": TableMetric(
        function=ranking.average_precision,
        label="average precision, unknown",
        of_table=ranking.average_precision_of,
        influence=influence.of_average_precision,
    ),
    "average_precision_known": TableMetric(
        function=partial(ranking.average_precision, positive="known"),
        label="average precision, known",
        of_table=partial(ranking.average_precision_of, positive="known"),
        influence=partial(influence.of_average_precision, positive="known"),
    ),
    "detection_accuracy": ColumnMetric(
        function=ranking.detection_accuracy,
        label="detection accuracy",
        of_table=ranking.detection_accuracy_of,
        influence=_at_best_detection,
        column=ranking.best_detection_column,
        at=ranking.detection_accuracy_at,
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
