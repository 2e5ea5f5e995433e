"""Scores of pytorch-ood, written down in numpy: the package needs torchvision.

Embeddings are the features, and the classifier is the last layer. Options are the defaults of pytorch-ood 0.4.0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.spatial.distance import cdist
from scipy.special import logsumexp
from sklearn.base import clone
from sklearn.neighbors import NearestNeighbors
from sklearn.pipeline import Pipeline

Array = Any
Score = Callable[[Array], tuple[Array, Array]]
"""From rows to classes and scores."""


class Layer(NamedTuple):
    """The classifier as a last layer of a network, on the embeddings as they are."""

    W: Array
    b: Array

    @classmethod
    def fit(cls, X: Array, y: Array, head: Pipeline) -> Layer:
        scaler, last = (step for _, step in clone(head).fit(X, y).steps)
        W = last.coef_ / scaler.scale_
        return cls(W, last.intercept_ - W @ scaler.mean_)

    def logits(self, X: Array) -> Array:
        return X @ self.W.T + self.b


def by_logits(X: Array, y: Array, head: Pipeline, *, score: Callable[[Array], Array]) -> Score:
    layer = Layer.fit(X, y, head)

    def answer(X: Array) -> tuple[Array, Array]:
        logits = layer.logits(X)
        return logits.argmax(1), score(logits)

    return answer


def by_features(
    X: Array, y: Array, head: Pipeline, *, fit: Callable[[Array, Array, Layer], Callable[[Array], Array]]
) -> Score:
    layer = Layer.fit(X, y, head)
    score = fit(X.astype(float), y, layer)
    return lambda X: (layer.logits(X).argmax(1), score(X.astype(float)))


def vim(X: Array, y: Array, layer: Layer) -> Callable[[Array], Array]:
    """The size of the principal subspace is that of the paper: 512, or half of fewer than 768 features."""
    origin = -np.linalg.pinv(layer.W) @ layer.b
    size = 512 if X.shape[1] >= 768 else X.shape[1] // 2
    X = X - origin
    residual = np.linalg.eigh(X.T @ X / len(X))[1][:, : X.shape[1] - size]
    alpha = layer.logits(X + origin).max(1).mean() / np.linalg.norm(X @ residual, axis=1).mean()
    return lambda X: (
        alpha * np.linalg.norm((X - origin) @ residual, axis=1) - np.asarray(logsumexp(layer.logits(X), axis=1))
    )


def neighbours(X: Array, y: Array, layer: Layer) -> Callable[[Array], Array]:
    def unit(X: Array) -> Array:
        return X / np.linalg.norm(X, axis=1, keepdims=True).clip(1e-12)

    near = NearestNeighbors(n_neighbors=50).fit(unit(X))
    return lambda X: near.kneighbors(unit(X))[0][:, -1]


def mahalanobis(X: Array, y: Array, layer: Layer, *, relative: bool = False) -> Callable[[Array], Array]:
    """Squared distance to the nearest class, with one covariance; relative: less that to all of the rows.

    pytorch-ood does not divide the covariance by the number of rows, which changes no ranking.
    """
    means, mean = np.stack([X[y == label].mean(0) for label in np.unique(y)]), X.mean(0, keepdims=True)

    def whitening(centred: Array) -> Array:
        return np.linalg.cholesky(len(X) * np.linalg.inv(centred.T @ centred + 1e-6 * np.eye(X.shape[1])))

    of_class, of_all = whitening(X - means[y]), whitening(X - mean)

    def score(X: Array) -> Array:
        nearest = cdist(X @ of_class, means @ of_class, "sqeuclidean").min(1)
        return nearest - cdist(X @ of_all, mean @ of_all, "sqeuclidean")[:, 0] if relative else nearest

    return score


def energy(logits: Array) -> Array:
    return -np.asarray(logsumexp(logits, axis=1))
