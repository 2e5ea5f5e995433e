"""Metrics as scikit-learn scorers, for ``GridSearchCV`` and ``cross_validate``; scikit-learn itself is not imported."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from openauc import _validation as check
from openauc._validation import UNKNOWN, Label
from openauc.intervals import measure
from openauc.metrics._kernel import read_samples
from openauc.metrics.counts import RankedModel
from openauc.metrics.table import METRICS, Metric

CONFIDENCES = ("decision_function", "predict_proba", "predict_log_proba", "score_samples")
"""Methods of estimators that are higher for known samples: of several columns the largest counts, and it is negated."""

OpenScore = Callable[[Any, Any], ArrayLike]


@dataclass(frozen=True, kw_only=True)
class Scorer:
    """``scorer(estimator, X, y)``: the value of a metric, negated where lower is better.

    ``y`` holds ``unknown_label`` for unknown samples; the estimator need not have seen any.
    """

    metric: Metric
    open_score: str | OpenScore
    unknown_label: Label

    def __call__(self, estimator: Any, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Value of the metric on these samples."""
        samples = read_samples(
            y,
            estimator.predict(X),
            self._scores(estimator, X),
            unknown_label=self.unknown_label,
            need_unknown=self.metric.needs_unknown,
            sample_weight=sample_weight,
        )
        value = measure(self.metric, RankedModel(samples)).value
        return value if self.metric.better == "higher" else -value

    def _scores(self, estimator: Any, X: Any) -> ArrayLike:
        if not isinstance(self.open_score, str):
            return self.open_score(estimator, X)
        method = getattr(estimator, self.open_score, None)
        if method is None:
            raise TypeError(
                f"{type(estimator).__name__} has no method {self.open_score}; name one with open_score=, for example "
                "open_score='predict_proba', or pass a function of the estimator and X."
            )
        scores = check.as_array(method(X))
        if self.open_score in CONFIDENCES:
            # One column of decision values means two classes: far from 0 on either side is sure.
            one_column = np.abs(scores) if self.open_score == "decision_function" else scores
            return -(scores.max(axis=1) if scores.ndim == 2 else one_column)
        return scores


def make_scorer(
    metric: str | Metric = "openauc", *, open_score: str | OpenScore = "open_score", unknown_label: Label = UNKNOWN
) -> Scorer:
    """A scorer for the ``scoring`` argument of scikit-learn.

    Parameters
    ----------
    metric
        Name in ``METRICS``, or a metric of one's own.
    open_score
        Method of the estimator that gives the open-set score: ``open_score`` (higher = more unknown), or one of
        ``decision_function``, ``predict_proba``, ``predict_log_proba`` and ``score_samples``, which are higher for
        known samples and therefore negated, the largest of several columns; or a function of the estimator and X.
    unknown_label
        Label of unknown samples in y.

    Examples
    --------
    >>> class Nearest:
    ...     def predict(self, X):
    ...         return [round(x) for x in X]
    ...     def open_score(self, X):
    ...         return [abs(x - round(x)) for x in X]
    >>> make_scorer("auroc")(Nearest(), [0.1, 0.9, 2.5, 0.4], [0, 1, -1, -1])
    1.0
    """
    chosen = METRICS[check.check_choice("metric", metric, METRICS)] if isinstance(metric, str) else metric
    return Scorer(metric=chosen, open_score=open_score, unknown_label=unknown_label)
