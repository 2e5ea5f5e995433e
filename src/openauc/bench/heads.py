"""Trials of a head on embeddings: fitted once, and then looked at with any score.

The twin of :class:`~openauc.bench.runner.Network`, for methods that scikit-learn fits.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import IsolationForest
from sklearn.neighbors import LocalOutlierFactor
from sklearn.svm import OneClassSVM
from threadpoolctl import threadpool_limits

from openauc.bench.trial import TrialSpec
from openauc.features.classifier.estimator import OpenSetClassifier
from openauc.features.classifier.evidence import HeadWithScores, Scale, Task, observe_rest, standardise
from openauc.features.classifier.fitting import COMPARED
from openauc.features.classifier.heads import HEADS
from openauc.features.classifier.splits import deal
from openauc.features.scores.registry import SCORES
from openauc.predictions import Predictions
from openauc.protocols import OpenSetData
from openauc.training.predict import Embedded

PARTS = 5
"""Parts of the training samples, each looked at by a head fitted on the others."""
MOST_SAMPLES = 5000
"""What detectors of outliers are fitted on at most: one of them takes the square of it."""

DETECTORS: dict[str, Callable[[int], Any]] = {
    "isolation_forest": lambda seed: IsolationForest(random_state=seed),
    "one_class_svm": lambda seed: OneClassSVM(gamma="scale", nu=0.1),
    "local_outlier_factor": lambda seed: LocalOutlierFactor(n_neighbors=20, novelty=True),
}


class FittedHead:
    """A head that is fitted when it is first asked for, and what scores make of it.

    Parameters
    ----------
    spec
        Any of the trials that share the fit.
    load
        The data of a trial.
    """

    def __init__(self, spec: TrialSpec, load: Callable[[TrialSpec], OpenSetData]) -> None:
        self.spec = spec
        self.load = load
        self.seconds = 0.0
        self._observed: dict[tuple[object, ...], tuple[NDArray[Any], NDArray[Any]]] = {}

    def train(self) -> OpenSetClassifier:
        """The classifier with the learned rejector, fitted now or before."""
        return self.classifier

    @cached_property
    def data(self) -> OpenSetData:
        """What it is fitted on."""
        return self.load(self.spec)

    @cached_property
    def classifier(self) -> OpenSetClassifier:
        """Everything about it is at its default but the head."""
        begin = time.perf_counter()
        fitted = self._fit("learned")
        self.seconds = time.perf_counter() - begin
        return fitted

    @cached_property
    def average(self) -> OpenSetClassifier:
        """The same with the average of a few scores."""
        return self._fit("average")

    def _fit(self, rejector: str) -> OpenSetClassifier:
        classifier = OpenSetClassifier(head=self.spec.method, rejector=rejector, random_state=self.spec.seed)
        return classifier.fit(np.asarray(self.data.train.images), self.data.train.labels)

    def predictions(self, spec: TrialSpec, data: OpenSetData, part: str) -> Predictions:
        """The triple of one part of the data by the score of a trial."""
        X, labels = getattr(data, f"{part}_images"), getattr(data, f"{part}_labels")
        with threadpool_limits(1, user_api="blas"):
            if spec.score in (None, "learned"):
                return self.classifier.predictions(X, labels)
            if spec.score == "average":
                return self.average.predictions(X, labels)
            place = (part, spec.protocol, spec.split)
            if place not in self._observed:
                self._observed[place] = self.observer(self._typed(X))
            raw, logits = self._observed[place]
            return Predictions.of(labels, logits.argmax(1), self._score(str(spec.score), raw, X))

    def embedded(self, spec: TrialSpec, data: OpenSetData, part: str) -> Embedded:
        """The features, which are the data, and the logits of the head."""
        X, labels = getattr(data, f"{part}_images"), getattr(data, f"{part}_labels")
        logits = self.observer.head.logits(self.observer.scaling(self._typed(X)))
        return Embedded(X, logits.astype(np.float32), labels)

    def _score(self, name: str, raw: NDArray[Any], X: NDArray[Any]) -> NDArray[Any]:
        columns = list(SCORES)
        if name in DETECTORS:
            return -np.asarray(self._detector(name).score_samples(X))
        if name == "average_of_all":
            averaged = (raw[:, [columns.index(score) for score in COMPARED]] - self.scale.mean) / self.scale.deviation
            return np.asarray(averaged.mean(1))
        if name == "selected":
            # Where nothing was compared, a single score rejects.
            report = self.classifier.report_
            name = next((tried.name for tried in report.tried if tried.name in SCORES), report.chosen)
        return np.asarray(raw[:, columns.index(name)])

    @cached_property
    def observer(self) -> HeadWithScores:
        """The final head with every score there is."""
        final = self.classifier.observer_
        return HeadWithScores.fit(final.head, self._train, self.data.train.labels, [*SCORES], final.scaling)

    @cached_property
    def scale(self) -> Scale:
        """Of the compared scores, on training samples that a head was not fitted on but classifies correctly."""
        y, final = self.data.train.labels, self.classifier.observer_
        make_head = partial(HEADS[self.spec.method], final.head.strength)
        task = Task(self._train, y, None, make_head, COMPARED, (), final.scaling)
        part = deal(y, np.arange(len(y)), PARTS, np.random.RandomState(self.spec.seed))
        seen = [observe_rest(task, np.flatnonzero(part != k), np.flatnonzero(part == k)) for k in range(PARTS)]
        raw, predicted = (np.concatenate(found) for found in zip(*seen, strict=True))
        correct = predicted == y[np.argsort(part, kind="stable")]
        return standardise(raw, predicted, correct, n_classes=len(self.classifier.classes_))[0]

    @property
    def _train(self) -> NDArray[Any]:
        return self._typed(self.data.train.images)

    def _typed(self, X: Any) -> NDArray[Any]:
        return np.asarray(X, self.classifier.dtype_)

    def _detector(self, name: str) -> Any:
        X = np.asarray(self.data.train.images)
        rows = np.random.RandomState(self.spec.seed).permutation(len(X))[:MOST_SAMPLES]
        return DETECTORS[name](self.spec.seed).fit(X[rows])
