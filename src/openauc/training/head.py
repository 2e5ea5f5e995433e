"""A head on embeddings: scikit-learn fits it once, and any score can be tested on it."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from openauc.features.classifier.estimator import OpenSetClassifier
from openauc.features.classifier.evidence import HeadWithScores
from openauc.features.scores.registry import SCORES
from openauc.protocols import OpenSetData
from openauc.training.predict import Embedded, OpenScore
from openauc.training.spec import TrialSpec


class FittedHead:
    """An :class:`~openauc.features.OpenSetClassifier` at its defaults but for the head, fitted when first needed.

    Parameters
    ----------
    spec
        Any of the trials that share the fit.
    load
        Returns what it is fitted on.
    """

    def __init__(self, spec: TrialSpec, load: Callable[[], OpenSetData]) -> None:
        self.spec = spec
        self.load = cache(load)
        self.seconds = 0.0
        self._fitted: dict[str, OpenSetClassifier] = {}

    def train(self) -> OpenSetClassifier:
        """The classifier with the learned rejector."""
        return self._with("learned")

    def embedded(self, spec: TrialSpec, data: OpenSetData, part: str) -> Embedded:
        """The features, which are the data, and the logits of the head."""
        X, labels = getattr(data, part)[:2]
        final = self.train().head_with_scores_
        with threadpool_limits(1, user_api="blas"):
            logits = final.head.logits(final.scaling(self._typed(X)))
        return Embedded(X, logits.astype(np.float32), labels)

    def score(self, spec: TrialSpec, data: OpenSetData | None = None) -> OpenScore:
        """The open-set score of a trial, of features; the head makes the logits again, in its own precision."""
        rule = spec.score or "learned"
        if rule in ("learned", "average"):
            return _on_one_thread(self._with(rule).open_score)
        scored_head = self.with_scores(self._name(rule))
        return _on_one_thread(lambda X: scored_head(self._typed(X))[0][:, 0])

    def with_scores(self, *scores: str) -> HeadWithScores:
        """The final head with these scores."""
        final, X = self.train().head_with_scores_, self._typed(self.load().train.images)
        with threadpool_limits(1, user_api="blas"):
            return HeadWithScores.fit(final.head, X, self.load().train.labels, scores, final.scaling)

    def _with(self, rejector: str) -> OpenSetClassifier:
        if rejector not in self._fitted:
            begin = time.perf_counter()
            classifier = OpenSetClassifier(head=self.spec.method, rejector=rejector, random_state=self.spec.seed)
            self._fitted[rejector] = classifier.fit(np.asarray(self.load().train.images), self.load().train.labels)
            self.seconds += time.perf_counter() - begin if rejector == "learned" else 0.0
        return self._fitted[rejector]

    def _name(self, score: str) -> str:
        """A score by name; for ``selected`` the best one, or the only one where nothing was compared."""
        if score != "selected":
            return score
        report = self.train().report_
        return next((tried.name for tried in report.tried if tried.name in SCORES), report.chosen)

    def _typed(self, X: Any) -> NDArray[Any]:
        return np.asarray(X, self.train().dtype_)


def _on_one_thread(score: Callable[[NDArray[Any]], NDArray[Any]]) -> OpenScore:
    def limited(features: NDArray[Any], logits: NDArray[Any]) -> NDArray[Any]:
        with threadpool_limits(1, user_api="blas"):
            return score(features)

    return limited
