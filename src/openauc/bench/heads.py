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
from openauc.features.estimator import OpenSetClassifier
from openauc.features.evidence import Observer, Scale, observe_rest
from openauc.features.fitting import COMPARED
from openauc.features.heads import HEADS
from openauc.features.rejector import AVERAGE
from openauc.features.scores import SCORES
from openauc.features.splits import rank_within
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
        fitted = OpenSetClassifier(head=self.spec.method, random_state=self.spec.seed)
        fitted.fit(np.asarray(self.data.train_images), self.data.train_labels)
        self.seconds = time.perf_counter() - begin
        return fitted

    def predictions(self, spec: TrialSpec, data: OpenSetData, part: str) -> Predictions:
        """The triple of one part of the data by the score of a trial."""
        X, labels = getattr(data, f"{part}_images"), getattr(data, f"{part}_labels")
        with threadpool_limits(1, user_api="blas"):
            if spec.score in (None, "learned"):
                return self.classifier.predictions(X, labels)
            place = (part, spec.protocol, spec.split)
            if place not in self._observed:
                self._observed[place] = self.observer(self._scaled(X))
            raw, logits = self._observed[place]
            return Predictions.of(labels, logits.argmax(1), self._score(str(spec.score), raw, X))

    def embedded(self, spec: TrialSpec, data: OpenSetData, part: str) -> Embedded:
        """The features, which are the data, and the logits of the head."""
        X, labels = getattr(data, f"{part}_images"), getattr(data, f"{part}_labels")
        return Embedded(X, self.observer.head.logits(self._scaled(X)).astype(np.float32), labels)

    def _score(self, name: str, raw: NDArray[Any], X: NDArray[Any]) -> NDArray[Any]:
        columns = list(SCORES)
        if name in DETECTORS:
            return -np.asarray(self._detector(name).score_samples(X))
        if name == "selected":
            tried = [one.name for one in self.classifier.report_.tried if one.name in SCORES]
            name = tried[0] if tried else "max_logit"
        if name in SCORES:
            return np.asarray(raw[:, columns.index(name)])
        averaged = AVERAGE if name == "average" else COMPARED
        of_raw, of_scale = ([names.index(score) for score in averaged] for names in (columns, COMPARED))
        scale = Scale(self.scale.mean[of_scale], self.scale.deviation[of_scale])
        return np.asarray(scale(raw[:, of_raw]).mean(1))

    @cached_property
    def observer(self) -> Observer:
        """The final head with every score there is."""
        return Observer.fit(
            self.classifier.observer_.head, self._scaled(self.data.train_images), self._labels, [*SCORES]
        )

    @cached_property
    def scale(self) -> Scale:
        """Of the compared scores, on training samples that a head was not fitted on but classifies correctly."""
        rng = np.random.RandomState(self.spec.seed)
        X, part = self._scaled(self.data.train_images), np.floor(rank_within(self._labels, rng) * PARTS).astype(int)
        make_head = partial(HEADS[self.spec.method], self.classifier.report_.strength)
        found = []
        for k in np.unique(part):
            rest, rows = np.flatnonzero(part != k), np.flatnonzero(part == k)
            seen = observe_rest(X, self._labels, None, rest, rows, make_head, COMPARED)
            found.append(seen.raw[seen.predicted == self._labels[rows]])
        return Scale.of(np.concatenate(found))

    @property
    def _labels(self) -> NDArray[np.int64]:
        return self.data.train_labels

    def _scaled(self, X: Any) -> NDArray[Any]:
        scaled: NDArray[Any] = np.asarray(X, self.classifier.dtype_) * self.classifier.dtype_.type(
            self.classifier.scale_
        )
        return scaled

    def _detector(self, name: str) -> Any:
        X = np.asarray(self.data.train_images)
        rows = np.random.RandomState(self.spec.seed).permutation(len(X))[:MOST_SAMPLES]
        return DETECTORS[name](self.spec.seed).fit(X[rows])
