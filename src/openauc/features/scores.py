"""Open-set scores of a sample from its features and logits; higher = more unknown.

A score is a small class: ``fit`` sees the features, logits and classes of the training samples, a call turns features
(n, d) and logits (n, C) into n scores. Those that look at logits alone have nothing to fit. All compute in float64,
where confident probabilities still differ.
"""

from __future__ import annotations

from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from openauc._validation import check_choice

Floats = NDArray[np.float64]
Numbers = NDArray[np.floating]


class Score:
    """What every score offers; a subclass writes ``__call__`` and, where it learns from training samples, ``fit``."""

    fits: ClassVar[bool] = False
    """Whether ``fit`` must see training samples before the first call."""
    source: ClassVar[str] = ""

    def fit(self, features: Numbers, logits: Numbers, y: NDArray[np.int64]) -> Self:
        """Learn from training samples of the known classes 0..C-1; returns the score itself."""
        return self

    def __call__(self, features: Numbers, logits: Numbers) -> Floats:
        """(n,) scores of n samples."""
        raise NotImplementedError(f"{type(self).__name__} has no __call__(features, logits); define it.")


class MaxLogit(Score):
    r"""Minus the largest logit, :math:`-\max_c z_c`.

    >>> MaxLogit()(np.empty((1, 0)), np.array([[1.0, 3.0]])).tolist()
    [-3.0]
    """

    source = "Vaze et al. (2022), Hendrycks et al. (2022)"

    def __call__(self, features: Numbers, logits: Numbers) -> Floats:
        """(n,) scores; features are not looked at."""
        scores: Floats = -np.asarray(logits, np.float64).max(1)
        return scores


class MaxProbability(Score):
    r"""Minus the largest softmax probability, :math:`-\max_c p_c`.

    >>> MaxProbability()(np.empty((1, 0)), np.array([[0.0, 0.0]])).tolist()
    [-0.5]
    """

    source = "Hendrycks and Gimpel (2017)"

    def __call__(self, features: Numbers, logits: Numbers) -> Floats:
        """(n,) scores; features are not looked at."""
        scores: Floats = -np.exp(_log_softmax(logits)).max(1)
        return scores


class Energy(Score):
    r"""Free energy at temperature 1, :math:`-\log \sum_c e^{z_c}`.

    >>> round(float(Energy()(np.empty((1, 0)), np.array([[0.0, 0.0]]))[0]), 4)
    -0.6931
    """

    source = "Liu et al. (2020)"

    def __call__(self, features: Numbers, logits: Numbers) -> Floats:
        """(n,) scores; features are not looked at."""
        z = np.asarray(logits, np.float64)
        largest = z.max(1)
        scores: Floats = -(largest + np.log(np.exp(z - largest[:, None]).sum(1)))
        return scores


class Entropy(Score):
    r"""Entropy of the softmax in nats, :math:`-\sum_c p_c \log p_c`.

    >>> round(float(Entropy()(np.empty((1, 0)), np.array([[0.0, 0.0]]))[0]), 4)
    0.6931
    """

    source = "Shannon (1948)"

    def __call__(self, features: Numbers, logits: Numbers) -> Floats:
        """(n,) scores; features are not looked at."""
        log_probability = _log_softmax(logits)
        scores: Floats = -(np.exp(log_probability) * log_probability).sum(1)
        return scores


class Margin(Score):
    r"""Second largest minus largest logit, :math:`z_{(2)} - z_{(1)}`.

    >>> Margin()(np.empty((1, 0)), np.array([[1.0, 3.0, 2.5]])).tolist()
    [-0.5]
    """

    source = "Scheffer et al. (2001)"

    def __call__(self, features: Numbers, logits: Numbers) -> Floats:
        """(n,) scores; features are not looked at."""
        z = np.asarray(logits, np.float64)
        second, largest = np.partition(z, (-2, -1), axis=1)[:, -2:].T
        scores: Floats = second - largest
        return scores


class Mahalanobis(Score):
    r"""Squared distance to the nearest class mean in the metric of the shared covariance, :math:`\min_c d_c^2`.

    The covariance S of the deviations from the class means is shrunk by a hundredth,
    :math:`0.99\,S + 0.01\,\bar\lambda I` with its mean eigenvalue :math:`\bar\lambda`, so that constant features and
    fewer samples than dimensions do no harm.

    >>> x = np.array([[0.0], [2.0], [10.0], [12.0]])
    >>> score = Mahalanobis().fit(x, x, np.array([0, 0, 1, 1]))
    >>> score(np.array([[1.0], [2.0]]), x[:2]).tolist()
    [0.0, 1.0]
    """

    source = "Lee et al. (2018)"
    fits = True
    means: Floats
    root: Floats

    def fit(self, features: Numbers, logits: Numbers, y: NDArray[np.int64]) -> Self:
        """Class means and the inverse root of the shared covariance."""
        x = np.asarray(features, np.float64)
        self.means = np.stack([x[y == label].mean(0) for label in np.unique(y)])
        self.root = _inverse_root(x, self.means[np.unique(y, return_inverse=True)[1]])
        return self

    def __call__(self, features: Numbers, logits: Numbers) -> Floats:
        """(n,) scores; logits are not looked at."""
        scores: Floats = _squared_distances(features, self.means, self.root).min(1)
        return scores


class RelativeMahalanobis(Mahalanobis):
    r"""Mahalanobis distance minus that to one Gaussian of all training samples, :math:`\min_c d_c^2 - d_0^2`.

    >>> x = np.array([[0.0], [2.0], [10.0], [12.0]])
    >>> score = RelativeMahalanobis().fit(x, x, np.array([0, 0, 1, 1]))
    >>> [round(value, 3) for value in score(np.array([[1.0], [6.0]]), x[:2]).tolist()]
    [-0.962, 25.0]
    """

    source = "Ren et al. (2021)"
    mean: Floats
    whole_root: Floats

    def fit(self, features: Numbers, logits: Numbers, y: NDArray[np.int64]) -> Self:
        """Means and roots of the classes, and of all samples together."""
        super().fit(features, logits, y)
        x = np.asarray(features, np.float64)
        self.mean = x.mean(0, keepdims=True)
        self.whole_root = _inverse_root(x, self.mean)
        return self

    def __call__(self, features: Numbers, logits: Numbers) -> Floats:
        """(n,) scores; logits are not looked at."""
        return super().__call__(features, logits) - _squared_distances(features, self.mean, self.whole_root)[:, 0]


SCORES: dict[str, type[Score]] = {
    "max_logit": MaxLogit,
    "max_probability": MaxProbability,
    "energy": Energy,
    "entropy": Entropy,
    "margin": Margin,
    "mahalanobis": Mahalanobis,
    "relative_mahalanobis": RelativeMahalanobis,
}
"""Open-set scores by name, as `openauc list scores` prints them."""


def make_score(name: str) -> Score:
    """A new score of that name.

    >>> type(make_score("energy")).__name__
    'Energy'
    """
    return SCORES[check_choice("score", name, SCORES)]()


def _log_softmax(logits: Numbers) -> Floats:
    z = np.asarray(logits, np.float64)
    shifted = z - z.max(1, keepdims=True)
    log_probability: Floats = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    return log_probability


SHRINKAGE = 0.01
ROUNDING = 1e-12
"""The mean of equal numbers differs from them by less than this share."""


def _inverse_root(x: Floats, centres: Floats) -> Floats:
    """(d, d) matrix whose square is the inverse of the shrunk covariance; the identity where nothing varies."""
    deviations = x - centres
    covariance = deviations.T @ deviations / len(x)
    level = np.trace(covariance) / len(covariance)
    if level <= ROUNDING**2 * np.mean(x**2):
        return np.eye(len(covariance))
    values, vectors = np.linalg.eigh((1 - SHRINKAGE) * covariance + SHRINKAGE * level * np.eye(len(covariance)))
    root: Floats = vectors / np.sqrt(values)
    return root


def _squared_distances(features: Numbers, means: Floats, root: Floats) -> Floats:
    """(n, C) squared distances to each mean, whitened by the root."""
    x, centres = np.asarray(features, np.float64) @ root, means @ root
    squares: Floats = (x**2).sum(1)[:, None] - 2 * x @ centres.T + (centres**2).sum(1)
    return np.maximum(squares, 0.0)
