"""Scores of features alone: the distance of a sample from training samples, from classes, or from zero."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from openauc.features.scores._arrays import Array, lengths, like, product, squared_lengths, unit_length, wide
from openauc.features.scores.base import Floats, Labels, Real, Rows, Score

REFERENCES, PER_CLASS = 1024, 8
"""Most training samples that a new sample is compared with; more if a class would have fewer than 8 of them."""
SHRINKAGE = 0.01  # smallest share of the mean eigenvalue in a covariance
SPREAD_ROWS = 5.0  # weight, in rows, of the spread of all classes in the spread of one class
ROUNDING = 1e-12  # relative rounding error of the mean of equal numbers, at most


class NearestNeighbour(Score):
    r"""Cosine distance to the nearest training sample, :math:`1 - \max_i \cos(x, x_i)`.

    A sample is compared with at most ``REFERENCES`` training samples, drawn with a fixed seed, equally many of each
    class where possible. A row of zeros has distance 1 from everything.

    >>> x = np.array([[1.0, 0.0], [0.0, 2.0]])
    >>> score = NearestNeighbour().fit(x, x, np.array([0, 1]))
    >>> score(np.array([[3.0, 0.0], [-1.0, 0.0], [-3.0, -4.0]]), np.zeros((3, 2))).round(9).tolist()
    [0.0, 1.0, 1.6]
    """

    looks_at = "features"
    formula = "1 - cos(x, nearest training sample)"
    source = "Sun et al. (2022)"
    k: ClassVar[int] = 1  # distance to the k-th nearest sample; to the farthest if there are fewer

    def _learn(self, x: Real, z: Floats, y: Labels) -> None:
        self.references = unit_length(x[draw_references(y)])

    def _extend(self, x: Real, y: Rows, weight: Floats, added: Rows) -> None:
        self.references = np.concatenate([self.references, unit_length(x[some_of_each(y, added)])])

    def _score(self, xp: Any, x: Array, z: Array) -> Array:
        x, references = unit_length(x), like(x, self.references)
        similarity = xp.matmul(x, xp.matrix_transpose(references))
        count = len(self.references)
        k = min(self.k, count)
        if k == 1:
            nearest = xp.argmax(similarity, axis=1)
        else:  # a partition is faster than sorting, but not in the standard
            order = np.argpartition(similarity, count - k, axis=1) if xp is np else xp.argsort(similarity, axis=1)
            nearest = order[:, count - k]
        neighbour = xp.take(references, nearest, axis=0)
        # Equal to 1 - cosine, which in float32 would have few distinct values for near samples.
        distance = squared_lengths(x - neighbour) / 2
        apart = squared_lengths(x) * squared_lengths(neighbour) > 0
        return xp.where(apart, distance, xp.ones_like(distance))[:, 0]


class TenthNeighbour(NearestNeighbour):
    r"""Cosine distance to the tenth nearest training sample, :math:`1 - \cos(x, x_{(10)})`."""

    formula = "1 - cos(x, 10th nearest training sample)"
    k = 10


class FiftiethNeighbour(NearestNeighbour):
    r"""Cosine distance to the fiftieth nearest training sample, :math:`1 - \cos(x, x_{(50)})`."""

    formula = "1 - cos(x, 50th nearest training sample)"
    k = 50


class Distance(Score):
    r"""Distance to the nearest training sample over its class's spread, :math:`\min_i \lVert x - x_i \rVert / s_i`.

    The spread is the root mean square distance of a class's samples from their mean, shrunk toward that of all classes.
    Unlike a cosine, the distance grows without bound as a sample moves away from all training samples.

    >>> x = np.array([[0.0, 1.0], [0.0, -1.0], [9.0, 1.0], [9.0, -1.0]])
    >>> score = Distance().fit(x, x, np.array([0, 0, 1, 1]))  # each spread is the root of 2
    >>> score(np.array([[0.0, 3.0], [9.0, 1.0]]), x[:2]).round(4).tolist()
    [1.4142, 0.0]
    """

    looks_at = "features"
    formula = "||x - nearest training sample|| / spread of its class"
    source = "Ramaswamy et al. (2000), without the spread"

    def _learn(self, x: Real, z: Floats, y: Labels) -> None:
        rows = draw_references(y)
        self.mean = mean_of(x)
        self.references, self.spread = x[rows] - self.mean, class_spreads(x, y)[rows].astype(x.dtype)

    def _extend(self, x: Real, y: Rows, weight: Floats, added: Rows) -> None:
        rows = some_of_each(y, added)
        of_added = np.isin(y, y[added])  # all rows of their classes
        level = float(np.square(self.spread, dtype=np.float64).mean())
        spread = np.empty(len(y))
        spread[of_added] = class_spreads(x[of_added], y[of_added], level)
        self.references = np.concatenate([self.references, x[rows] - self.mean])
        self.spread = np.concatenate([self.spread, spread[rows].astype(self.spread.dtype)])

    def _score(self, xp: Any, x: Array, z: Array) -> Array:
        x = x - like(x, self.mean)
        references, spread = like(x, self.references), wide(xp.asarray(self.spread))[1]
        cross = xp.astype(xp.matmul(x, xp.matrix_transpose(references)), xp.float64)
        squares = squared_lengths(x) - 2 * cross + xp.matrix_transpose(squared_lengths(references))
        nearest = xp.argmin(squares / spread**2, axis=1)
        # Computed again without the terms that cancel for near samples.
        _, difference = wide(x - xp.take(references, nearest, axis=0))
        return lengths(difference)[:, 0] / xp.take(spread, nearest, axis=0)


class ClassMean(Score):
    r"""Distance to the nearest class mean, :math:`\min_c \lVert x - \mu_c \rVert`.

    >>> x = np.array([[0.0, 0.0], [2.0, 0.0], [10.0, 0.0]])
    >>> ClassMean().fit(x, x, [0, 0, 1])([[1.0, 3.0], [10.0, 0.0]], x[:2]).tolist()
    [3.0, 0.0]
    """

    looks_at = "features"
    formula = "min_c ||x - mean_c||"
    source = "Mensink et al. (2013)"

    def _learn(self, x: Real, z: Floats, y: Labels) -> None:
        self.mean = mean_of(x)
        self.centres, _ = class_means(x - self.mean, y)

    def _extend(self, x: Real, y: Rows, weight: Floats, added: Rows) -> None:
        self.centres = with_means(self.centres, x - self.mean, y, weight, np.unique(y[added]))

    def _score(self, xp: Any, x: Array, z: Array) -> Array:
        return xp.sqrt(xp.min(squared_distances(x - like(x, self.mean), self.centres), axis=1))


class Mahalanobis(Score):
    r"""Squared distance to the nearest class mean in the metric of the shared covariance, :math:`\min_c d_c^2`.

    The covariance S of the deviations from the class means is shrunk, :math:`(1 - s)\,S + s\,\bar\lambda I` with its
    mean eigenvalue :math:`\bar\lambda`. The share s is that of Chen et al. (2010, oracle approximating shrinkage), and
    at least 0.01, so that constant features do no harm and distances do not depend on the number of samples.

    >>> x = np.array([[0.0], [2.0], [10.0], [12.0]])
    >>> Mahalanobis().fit(x, x, [0, 0, 1, 1])([[1.0], [2.0]], x[:2]).tolist()
    [0.0, 1.0]
    """

    looks_at = "features"
    formula = "min_c d_c^2, d_c^2 = (x - mean_c) S^-1 (x - mean_c)"
    source = "Lee et al. (2018)"
    pooled = True
    unit: ClassVar[bool] = False  # whether features are scaled to unit length first
    centres: Real

    def _learn(self, x: Real, z: Floats, y: Labels) -> None:
        """Keep the mean of all samples, a (d, d) inverse root of the covariance, and the whitened class means."""
        x = unit_length(x) if self.unit else x
        self.mean = mean_of(x)
        centred = x - self.mean
        means, members = class_means(centred, y)
        self._fit_roots(centred, centred - means[members], len(x) - len(means))
        self.centres = means @ self.root

    def _fit_roots(self, centred: Real, deviations: Real, freedom: int) -> Floats:
        """Keep the inverse root of the shrunk covariance; return that covariance."""
        shrunk = shrunk_covariance(deviations, centred + self.mean, freedom)
        self.root = inverse_root(shrunk).astype(centred.dtype, order="C")
        return shrunk

    def _extend(self, x: Real, y: Rows, weight: Floats, added: Rows) -> None:
        x = (unit_length(x) if self.unit else x) - self.mean
        inverse = np.linalg.inv(self.root.astype(np.float64))
        means = with_means(product(self.centres, inverse.astype(x.dtype)), x, y, weight, np.unique(y[added]))
        size = np.bincount(y)[y[added]]
        deviations = (x - means[y])[added] * np.sqrt(size / np.maximum(size - 1, 1))[:, None]
        self.root = inverse_root(with_rows(inverse, deviations, weight, added)).astype(x.dtype, order="C")
        self.centres = product(means, self.root)

    def _score(self, xp: Any, x: Array, z: Array) -> Array:
        x = unit_length(x) if self.unit else x
        return xp.min(squared_distances(product(x - like(x, self.mean), self.root), self.centres), axis=1)


class MahalanobisPlusPlus(Mahalanobis):
    r"""Mahalanobis distance of features of unit length, :math:`\min_c d_c^2` of :math:`x / \lVert x \rVert`.

    >>> x = np.array([[1.0, 0.0], [0.0, 3.0]])
    >>> score = MahalanobisPlusPlus().fit(x, x, [0, 1])  # no class varies: plain distances
    >>> [round(value, 3) for value in score([[5.0, 0.0], [-5.0, 0.0]], x).tolist()]
    [0.0, 2.0]
    """

    formula = "mahalanobis of x / ||x||"
    source = "Müller and Hein (2025)"
    unit = True


class RelativeMahalanobis(Mahalanobis):
    r"""Mahalanobis distance minus that to one Gaussian of all training samples, :math:`\min_c d_c^2 - d_0^2`.

    >>> x = np.array([[0.0], [2.0], [10.0], [12.0]])
    >>> RelativeMahalanobis().fit(x, x, [0, 0, 1, 1])([[1.0], [6.0]], x[:2]).round(3).tolist()
    [-0.962, 25.0]
    """

    formula = "min_c d_c^2 - d_0^2, d_0 to the mean of all"
    source = "Ren et al. (2021)"

    def _fit_roots(self, centred: Real, deviations: Real, freedom: int) -> Floats:
        """Also keep that of all samples: the shrunk covariance inside classes plus the one between them."""
        # So no direction varies more inside the classes than in all samples, and far samples never score low.
        shrunk = super()._fit_roots(centred, deviations, freedom)
        whole = shrunk + covariance_of(centred) - covariance_of(deviations)
        self.whole_root = inverse_root(whole).astype(centred.dtype, order="C")
        return whole

    def _extend(self, x: Real, y: Rows, weight: Floats, added: Rows) -> None:
        super()._extend(x, y, weight, added)
        more = ((unit_length(x) if self.unit else x) - self.mean)[added]
        inverse = np.linalg.inv(self.whole_root.astype(np.float64))
        self.whole_root = inverse_root(with_rows(inverse, more, weight, added)).astype(x.dtype, order="C")

    def _score(self, xp: Any, x: Array, z: Array) -> Array:
        unit = unit_length(x) if self.unit else x
        whitened = product(unit - like(x, self.mean), self.whole_root)
        return super()._score(xp, x, z) - squared_lengths(whitened)[:, 0]


class RelativeMahalanobisPlusPlus(RelativeMahalanobis):
    r"""Relative Mahalanobis distance of features of unit length, :math:`d_c^2 - d_0^2` of :math:`x / \lVert x \rVert`.

    >>> x = np.array([[1.0, 0.0], [0.0, 3.0]])
    >>> RelativeMahalanobisPlusPlus().fit(x, x, [0, 1])([[5.0, 0.0]], x[:1]).round(3).tolist()
    [-0.333]
    """

    formula = "relative_mahalanobis of x / ||x||"
    source = "Ren et al. (2021), Müller and Hein (2025)"
    unit = True


class Norm(Score):
    r"""Minus the length of the features, :math:`-\lVert x \rVert`: known samples get strong activations.

    >>> Norm()(np.array([[3.0, 4.0]]), np.empty((1, 2))).tolist()
    [-5.0]
    """

    looks_at = "features"
    centred = False
    formula = "-||x||"
    source = "Dhamija et al. (2018), Park et al. (2023)"

    def _score(self, xp: Any, x: Array, z: Array) -> Array:
        return -lengths(x)[:, 0]


def draw_references(y: ArrayLike, most: int | None = None) -> NDArray[np.intp]:
    """Ascending rows of the samples to compare with, equally many of each class where possible."""
    labels = np.asarray(y)
    drawn = np.random.default_rng(0).permutation(labels.size)
    turns = turns_in_class(labels[drawn])
    number = max(REFERENCES, PER_CLASS * int((turns == 0).sum())) if most is None else most
    return np.sort(drawn[np.argsort(turns, kind="stable")[:number]])


def some_of_each(y: Rows, rows: Rows) -> NDArray[np.intp]:
    """Of some rows those that become references: of each class no more than a class of all references has."""
    most = max(PER_CLASS, REFERENCES // (int(y.max()) + 1))
    drawn = np.random.default_rng(0).permutation(rows)
    return np.sort(drawn[turns_in_class(y[drawn]) < most])


def with_rows(inverse: Floats, more: Real, weight: Floats, added: Rows) -> Floats:
    """The covariance S = A'A of all rows but the added ones, and of these, where A is its inverse root's inverse."""
    share = weight[added] / weight.sum()
    return np.asarray((1.0 - share.sum()) * (inverse.T @ inverse) + (more.T * share) @ more)


def with_means(means: Real, x: Real, y: Rows, weight: Floats, learned: Rows) -> Real:
    """(C, d) means of classes 0..C-1, those of the classes ``learned`` of these rows and the others as they are."""
    found = np.zeros((max(int(y.max()) + 1, len(means)), means.shape[1]), means.dtype)
    found[: len(means)] = means
    for label in learned:
        found[label] = np.average(x[y == label], axis=0, weights=weight[y == label])
    return found


def turns_in_class(labels: Labels) -> NDArray[np.intp]:
    """(n,) number of samples of the same class before each sample.

    >>> turns_in_class(np.array([5, 3, 5, 5])).tolist()
    [0, 0, 1, 2]
    """
    by_class = np.argsort(labels, kind="stable")
    _, first, size = np.unique(labels[by_class], return_index=True, return_counts=True)
    turns = np.empty(len(labels), np.intp)
    turns[by_class] = np.arange(len(labels)) - np.repeat(first, size)
    return turns


def class_spreads(x: Real, y: ArrayLike, level: float | None = None) -> Floats:
    """(n,) shrunk root mean square distance of the samples of each sample's class from their mean.

    It is shrunk toward the root of ``level``, the mean square of these samples if None.
    """
    means, members = class_means(x, y)
    size = np.bincount(members)
    squares = np.bincount(members, squared_lengths(x - means[members])[:, 0])
    free = len(members) - len(size)
    rounding = ROUNDING**2 * float(squared_lengths(x).mean())
    if level is None:
        level = squares.sum() / free if free else 0.0
        level = level if level > rounding else float(squared_lengths(x - mean_of(x)).mean())
    variance = (squares + SPREAD_ROWS * level) / (size - 1 + SPREAD_ROWS)
    return np.asarray(np.sqrt(np.where(variance > rounding, variance, 1.0))[members])


def spread_ratio(x: Real, y: Labels) -> tuple[float, float]:
    """Variance of the features inside classes over that of the class means, and its upper limit (two standard errors).

    Both variances are estimated as components: sums of squares over their degrees of freedom, less the variance that
    the means have because classes have few samples. The error is that of a jackknife over the classes.
    """
    means, members = class_means(x, y)
    size = np.bincount(members)
    squares = np.bincount(members, ((x - means[members]) ** 2).sum(1, dtype=np.float64))

    def ratio(kept: NDArray[np.bool_]) -> float:
        n, c = size[kept].sum(), kept.sum()
        inside = float(squares[kept].sum()) / max(n - c, 1)
        centre = (size[kept, None] * means[kept]).sum(0) / n
        of_means = float((size[kept, None] * (means[kept] - centre) ** 2).sum()) / max(c - 1, 1)
        between = (of_means - inside) / ((n - (size[kept] ** 2).sum() / n) / max(c - 1, 1))
        return max(inside, 1e-12) / between if between > 0 else np.inf

    c = len(size)
    value, without = ratio(np.ones(c, bool)), [ratio(np.arange(c) != i) for i in range(c)]
    error = (c - 1) / np.sqrt(c) * float(np.std(without)) if np.isfinite(without).all() else np.inf
    return value, value + 2.0 * error


def mean_of(x: Real) -> Real:
    """(d,) mean, computed in float64."""
    return np.asarray(x.mean(0, dtype=np.float64).astype(x.dtype))


def class_means(x: Real, y: ArrayLike) -> tuple[Real, NDArray[np.intp]]:
    """(C, d) means of the classes in y, and for each sample the row of its class."""
    labels, members = np.unique(np.asarray(y), return_inverse=True)
    return np.stack([mean_of(x[members == label]) for label in range(len(labels))]), members


def covariance_of(deviations: Real) -> Floats:
    return np.asarray((deviations.T @ deviations).astype(np.float64) / len(deviations))


def shrunk_covariance(deviations: Real, x: Real, freedom: int) -> Floats:
    """(d, d) shrunk covariance; the identity if the deviations are rounding errors of ``x``."""
    covariance = covariance_of(deviations)
    level = np.trace(covariance) / len(covariance)
    if level <= ROUNDING**2 * np.mean(np.square(x), dtype=np.float64):
        return np.eye(len(covariance))
    share = max(SHRINKAGE, oracle_shrinkage(covariance, max(freedom, 1)))
    return np.asarray((1 - share) * covariance + share * level * np.eye(len(covariance)))


def inverse_root(covariance: Floats) -> Floats:
    """(d, d) matrix M such that M M' is the inverse of the covariance."""
    return np.asarray(np.linalg.inv(np.linalg.cholesky(covariance)).T)


def oracle_shrinkage(covariance: Floats, freedom: int) -> float:
    """Share of the mean eigenvalue in a covariance with ``freedom`` degrees of freedom (Chen et al., 2010).

    >>> oracle_shrinkage(np.eye(3), 10), round(oracle_shrinkage(np.diag([4.0, 1.0, 1.0]), 10), 4)
    (1.0, 0.6774)
    """
    d = len(covariance)
    squares, square = float((covariance**2).sum()), float(np.trace(covariance)) ** 2
    excess = (freedom + 1 - 2 / d) * (squares - square / d)
    wanted = (1 - 2 / d) * squares + square
    return min(1.0, wanted / excess) if excess > 0 else 1.0


def squared_distances(x: Array, centres: Real) -> Array:
    """(n, C) squared distances in float64, as the terms cancel for near points."""
    xp, x = wide(x)
    centres = like(x, centres)
    cross = xp.matmul(x, xp.matrix_transpose(centres))
    squares = squared_lengths(x) - 2 * cross + xp.sum(centres * centres, axis=1)
    return xp.maximum(squares, 0.0)
