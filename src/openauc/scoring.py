"""Metrics as scikit-learn scorers, for ``GridSearchCV`` and ``cross_validate``; scikit-learn itself is not imported."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from openauc import _validation as check
from openauc._validation import UNKNOWN, Label
from openauc.metrics.counts import RankedSamples
from openauc.metrics.registry import METRICS, Metric
from openauc.metrics.samples import read_samples

CONFIDENCES = ("decision_function", "predict_proba", "predict_log_proba", "score_samples")
"""Methods of estimators that are higher for known samples: of several columns the largest counts, and it is negated."""

OpenScore = Callable[[Any, Any], ArrayLike]


@dataclass(frozen=True, kw_only=True)
class Scorer:
    """``scorer(estimator, X, y)``: the value of a metric, negated where lower is better.

    Samples of ``y`` with ``unknown_label`` or a class that is not in ``classes_`` are unknown. The class comes from
    ``classify`` where the estimator has it, otherwise from ``predict``.
    """

    metric: Metric
    open_score: str | OpenScore
    unknown_label: Label

    def __call__(self, estimator: Any, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        estimator, X = _unwrapped(estimator, X)
        samples = read_samples(
            _unseen_as_unknown(check.as_labels("y", y), getattr(estimator, "classes_", None), self.unknown_label),
            getattr(estimator, "classify", estimator.predict)(X),
            self._scores(estimator, X),
            unknown_label=self.unknown_label,
            need_unknown=self.metric.needs_unknown,
            sample_weight=sample_weight,
        )
        value = self.metric.measure(RankedSamples(samples)).value
        return value if self.metric.better == "higher" else -value

    def _scores(self, estimator: Any, X: Any) -> ArrayLike:
        if not isinstance(self.open_score, str):
            return self.open_score(estimator, X)
        names = ("open_score", *CONFIDENCES) if self.open_score == "auto" else (self.open_score,)
        name = next((name for name in names if hasattr(estimator, name)), None)
        if name is None:
            lacks = f"{type(estimator).__name__} has no method {' or '.join(names)}"
            raise TypeError(f"{lacks}; name one with open_score=, or pass a function of the estimator and X.")
        scores = check.as_array(getattr(estimator, name)(X))
        if name in CONFIDENCES:
            # One column of decision values means two classes: far from 0 on either side is sure.
            one_column = np.abs(scores) if name == "decision_function" else scores
            return -(scores.max(axis=1) if scores.ndim == 2 else one_column)
        return scores


def _unwrapped(estimator: Any, X: Any) -> tuple[Any, Any]:
    """The estimator inside a search or a Pipeline, which pass on few methods, and what it is given there."""
    while not hasattr(estimator, "open_score"):
        if hasattr(estimator, "best_estimator_"):
            estimator = estimator.best_estimator_
        elif hasattr(estimator, "steps"):
            X = estimator[:-1].transform(X) if len(estimator.steps) > 1 else X
            estimator = estimator[-1]
        else:
            break
    return estimator, X


def _unseen_as_unknown(y: NDArray[Any], classes: Any, unknown_label: Label) -> NDArray[Any]:
    """Labels with ``unknown_label`` for those that are not a class of the estimator."""
    if classes is None:
        return y
    seen = np.isin(y.astype(str), check.as_labels("classes_", classes).astype(str))
    return np.where(seen, y, str(unknown_label) if y.dtype.kind == "U" else np.array(unknown_label, y.dtype))


def make_scorer(
    metric: str | Metric = "openauc", *, open_score: str | OpenScore = "open_score", unknown_label: Label = UNKNOWN
) -> Scorer:
    """A scorer for the ``scoring`` argument of scikit-learn.

    Parameters
    ----------
    metric
        Name in ``METRICS``, or a metric of one's own.
    open_score
        Method that gives the open-set score: ``open_score`` (higher = more unknown), or ``decision_function``,
        ``predict_proba``, ``predict_log_proba`` or ``score_samples``, of which the largest column is negated;
        ``"auto"`` for the first of these that the estimator has; or a function of the estimator and X.
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
