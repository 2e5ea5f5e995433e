"""Scores of features and logits together.

Some need the weights of the linear head, which maps features to logits. They recover the weights from training samples
by least squares. Of a head that is not linear they get the best linear approximation.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from openauc.features.scores._arrays import Array, lengths, like, log_sum_exp, nonzero, product, top, unit_length
from openauc.features.scores.base import Floats, Labels, Real, Score
from openauc.features.scores.distance import ROUNDING, draw_references, mean_of

NEGLIGIBLE = 1e-12  # an eigenvalue, or squared length, below this share of the largest counts as zero


class ViM(Score):
    r"""Virtual-logit matching: the part of the features outside the principal subspace, minus the energy.

    .. math:: \alpha \lVert R' (x - o) \rVert - \log \sum_c e^{z_c}

    At the origin :math:`o = -W^+ b` the logits of the head are 0. The columns of R span the complement of the principal
    directions of the training features around o, and :math:`\alpha` scales the residuals of training samples to the
    mean size of their largest logit. Weights and bias are recovered from training samples. As in the authors' code,
    1,000 directions are principal from 2,048 dimensions on, 512 from 768 on, and else half of them; but never more than
    half the number of samples, which would leave no residual. Their mean counts as at least 1e-4 of the mean length.

    Below, the first direction is principal, the residual is 1 and the mean largest logit 4, so alpha is 4.

    >>> x = np.array([[4.0, 1.0], [-4.0, 1.0], [4.0, -1.0], [-4.0, -1.0]])
    >>> z = x @ [[1.0, -1.0], [0.0, 0.0]]
    >>> score = ViM().fit(x, z, np.array([0, 1, 0, 1]))
    >>> (score(np.array([[0.0, 0.0], [0.0, 2.0]]), np.zeros((2, 2))) + np.log(2)).round(6).tolist()
    [0.0, 8.0]
    """

    pooled = True
    formula = "alpha ||residual of x|| - log sum exp z"
    source = "Wang et al. (2022)"

    def _learn(self, x: Real, z: Floats, y: Labels) -> None:
        """Keep the origin (d,), the (d, m) basis of the residual, and the factor alpha."""
        weights, bias = linear_head(x, z)
        self.origin = (-np.linalg.pinv(weights.T, rcond=np.sqrt(NEGLIGIBLE)) @ bias).astype(x.dtype)
        shifted = x - self.origin
        moment = np.asarray(shifted, np.float64)
        values, vectors = np.linalg.eigh(moment.T @ moment)  # ascending
        rank = int(np.sum(values > NEGLIGIBLE * values[-1]))
        kept = min(principal_dimension(x.shape[1]), len(x) // 2, rank)
        self.residual = vectors[:, : x.shape[1] - kept].astype(x.dtype, order="C")
        size = max(float(self._outside(x).mean()), 1e-4 * float(lengths(shifted).mean()))
        # The mean is negative where logits are minus distances, but a larger residual is never more known.
        level = abs(float(z.max(1).mean()))
        self.alpha = level / size if size > 0 else 0.0

    def _score(self, xp: Any, x: Array, z: Array) -> Array:
        return self.alpha * self._outside(x) - log_sum_exp(z)[:, 0]

    def _outside(self, x: Array) -> Array:
        return lengths(product(x - like(x, self.origin), self.residual))[:, 0]


class NNGuide(Score):
    r"""Minus the energy confidence times the guidance by the most similar and confident training samples.

    .. math:: -s(z) \cdot \frac{1}{k} \sum_{i \in \mathrm{top}_k} s(z_i) \cos(x, x_i), \quad s(z) = \log \sum_c e^{z_c}

    The k = 10 largest terms of at most ``REFERENCES`` samples count, drawn as for the nearest neighbour. The score is
    made for logits whose log-sum-exp is positive on known samples, as it always is if the logits sum to 0.

    >>> x = np.array([[1.0, 0.0], [0.0, 1.0]])
    >>> z = np.log([[3.0, 1.0], [1.0, 3.0]])  # s = log 4 for both
    >>> score = NNGuide().fit(x, z, np.array([0, 1]))
    >>> bool(np.isclose(score(x[:1], z[:1])[0], -np.log(4) * (np.log(4) + 0) / 2))
    True
    """

    formula = "-s(z) mean of the 10 largest s(z_i) cos(x, x_i), s = log sum exp"
    source = "Park et al. (2023)"

    def _learn(self, x: Real, z: Floats, y: Labels) -> None:
        rows = draw_references(y)
        self.references = (unit_length(x[rows]) * log_sum_exp(z[rows])).astype(x.dtype)

    def _score(self, xp: Any, x: Array, z: Array) -> Array:
        weighted = xp.matmul(unit_length(x), like(x, self.references.T))
        return -log_sum_exp(z)[:, 0] * xp.mean(xp.astype(top(weighted, 10), xp.float64), axis=1)


class FDBD(Score):
    r"""Minus the mean distance to the decision boundaries over the distance to the mean of all training samples.

    .. math:: -\frac{1}{\lVert x - \mu \rVert} \frac{1}{C - 1} \sum_{c \ne h} \frac{z_h - z_c}{\lVert w_h - w_c \rVert}

    The class h has the largest logit. Two classes with the same weights have no boundary and count as 0. The weights
    are recovered from training samples. Below, both the boundary and the mean are at 0, so all samples get -1.

    >>> x = np.array([[1.0], [-1.0], [3.0], [-3.0]])
    >>> z = x @ [[1.0, -1.0]]
    >>> FDBD().fit(x, z, np.array([0, 1, 0, 1]))(x, z).round(6).tolist()
    [-1.0, -1.0, -1.0, -1.0]
    """

    formula = "-mean_c (z_max - z_c) / ||w_max - w_c|| / ||x - mean||"
    source = "Liu and Qin (2024)"

    def _learn(self, x: Real, z: Floats, y: Labels) -> None:
        """Keep the mean (d,), and the (C, C) inverse distances between the weights of two classes."""
        weights, _ = linear_head(x, z)
        self.mean = mean_of(x)
        squares = (weights**2).sum(0)
        gaps = squares[:, None] + squares - 2 * weights.T @ weights
        apart = gaps > NEGLIGIBLE * squares.max(initial=0.0)
        self.inverse_gaps = np.where(apart, 1 / np.sqrt(np.where(apart, gaps, 1.0)), 0.0).astype(x.dtype)

    def _score(self, xp: Any, x: Array, z: Array) -> Array:
        inverse_gaps = xp.take(like(z, self.inverse_gaps), xp.argmax(z, axis=1), axis=0)  # (n, C)
        lead = xp.max(z, axis=1, keepdims=True) - z
        boundary = xp.sum(lead * inverse_gaps, axis=1) / max(len(self.inverse_gaps) - 1, 1)
        return -boundary / nonzero(lengths(x - like(x, self.mean)))[:, 0]


class ReAct(Score):
    r"""Energy after cutting off large activations, :math:`-\log \sum_c e^{z'_c}` with :math:`z' = W \min(x, t) + b`.

    The threshold t is the 90th percentile of all activations of training samples. The score is made for non-negative
    features, as after a ReLU; negative ones stay as they are. The weights are recovered from training samples.

    >>> x = np.array([[float(step), 0.0] for step in range(10)])
    >>> z = x @ [[1.0, 0.0], [0.0, 1.0]]
    >>> score = ReAct().fit(x, z, np.arange(10) % 2)
    >>> round(score.threshold, 3)
    7.1
    >>> bool(np.isclose(score(x[-1:], z[-1:])[0], -np.log(np.exp(7.1) + 1)))
    True
    """

    centred = False
    formula = "-log sum exp z' of x' = min(x, 90th percentile)"
    source = "Sun et al. (2021)"

    def _learn(self, x: Real, z: Floats, y: Labels) -> None:
        weights, _ = linear_head(x, z)
        self.threshold = float(np.percentile(x, 90))
        self.weights = weights.astype(x.dtype)

    def _score(self, xp: Any, x: Array, z: Array) -> Array:
        excess = xp.maximum(x - self.threshold, 0.0)
        return -log_sum_exp(z - product(excess, self.weights))[:, 0]


class Scale(Score):
    r"""Energy after scaling features more the more even they are, :math:`-\log \sum_c e^{z'_c}`.

    Here :math:`z' = e^r W x + b`, and r is the sum of all activations of a sample over the sum of its largest 15 per
    cent, which is between 1 and 1 / 0.15 for non-negative features, as after a ReLU; for others it is clipped to that.
    Scaling features scales the logits of a linear head around its bias b, which is recovered from training samples.

    >>> x = np.array([[1.0, 1.0], [4.0, 0.0], [0.0, 2.0], [1.0, 3.0]])
    >>> score = Scale().fit(x, x, np.array([0, 0, 1, 1]))  # of two activations, the larger is the largest 15 per cent
    >>> bool(np.isclose(score(x[:1], x[:1])[0], -np.log(2 * np.exp(np.exp(2)))))
    True
    """

    centred = False
    formula = "-log sum exp z' of x' = x exp(sum x / sum of its top 15%)"
    source = "Xu et al. (2024)"

    def _learn(self, x: Real, z: Floats, y: Labels) -> None:
        self.bias = linear_head(x, z)[1].astype(x.dtype)
        self.dimension = x.shape[1]

    def _score(self, xp: Any, x: Array, z: Array) -> Array:
        bias = like(z, self.bias)
        count = max(1, self.dimension - round(self.dimension * 85 / 100))
        whole = xp.sum(x, axis=1, keepdims=True, dtype=xp.float64)
        largest = xp.sum(top(x, count), axis=1, keepdims=True, dtype=xp.float64)
        ratio = xp.minimum(xp.maximum(whole / nonzero(largest), 1.0), self.dimension / count)
        return -log_sum_exp((z - bias) * xp.exp(ratio) + bias)[:, 0]


def linear_head(features: ArrayLike, logits: ArrayLike) -> tuple[Floats, Floats]:
    """Weights (d, C) and bias (C,) with logits = features @ weights + bias, by least squares in float64.

    Directions in which the features do not vary get no weight: of several solutions, the shortest is returned.
    """
    x, z = np.asarray(features, np.float64), np.asarray(logits, np.float64)
    mean, level = x.mean(0), z.mean(0)
    centred = x - mean
    many = len(x) > x.shape[1]
    values, vectors = np.linalg.eigh(centred.T @ centred if many else centred @ centred.T)
    varies = values > max(NEGLIGIBLE * values[-1], ROUNDING**2 * np.vdot(x, x))
    vectors, values = vectors[:, varies], values[varies]
    # The normal equations, or their dual if these are fewer.
    if many:
        weights: Floats = vectors @ ((vectors.T @ (centred.T @ (z - level))) / values[:, None])
    else:
        weights = centred.T @ (vectors @ ((vectors.T @ (z - level)) / values[:, None]))
    return weights, level - mean @ weights


def principal_dimension(dimension: int) -> int:
    """Number of principal directions of ViM, as in its authors' code."""
    return 1000 if dimension >= 2048 else 512 if dimension >= 768 else dimension // 2
