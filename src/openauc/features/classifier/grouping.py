"""Groups of rows of classes that nobody has named, as learned on known classes that play new ones.

Rows of known classes are grouped as if their classes were unknown. What recovers these classes best then groups the
rows of X, and how pure the groups of known classes come out is the forecast for the groups of X. The sizes of the new
classes are unknown, so known classes first play in one size, then in the sizes of the groups that this finds, until
the number of groups hardly changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform
from sklearn.cluster import KMeans
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from openauc.features.classifier.copies import squared_distances
from openauc.features.classifier.explanation import LARGEST
from openauc.features.classifier.scaling import CHUNK, Scaling
from openauc.features.scores.base import Floats, Real, Rows
from openauc.intervals import Interval

if TYPE_CHECKING:
    from openauc.features.classifier.estimator import OpenSetClassifier

LEAST = 5  # rows of a group
NO_GROUP = -1
FIRST_SIZE = 20  # rows of a class that plays a new one, before any group is found
LEASTS = (2, 3, 5, 6, 8, 10, 13, 16, 20, 25, 32)  # that are tried
HEIGHTS = 12  # that are tried
POOLS = (2, 6)  # of known rows, to find the sizes of groups, and to choose the cut
POOL_ROWS = 1200
STRAY_CLASSES = 3  # at most one class in so many plays strays, with fewer rows each than a group
WRONG_NUMBER = 0.2  # of the adjusted Rand index, for a number of groups that is wrong by the factor e
STEPS = 20  # of k-means
ALIKE = 60  # groups of known classes that an interval comes from
LEVEL = 0.9  # of the intervals
CENTRAL, COMPARED = 10, 10  # rows of a group, and of each class, that tell how near they are


class Known(NamedTuple):
    """Rows of known classes that the model keeps, to play new classes."""

    features: Real  # (m, d), by class
    label: Rows
    first: Real  # the first rows of each class
    of_class: Rows  # where those of each class begin
    stray: float  # share of rejected rows that are of known classes, one here and one there

    @classmethod
    def of(cls, classifier: OpenSetClassifier, rejected: int, accepted: int) -> Known:
        """Of a model that has accepted and rejected so many rows."""
        kept = classifier.examples_
        order = np.argsort(kept.label, kind="stable")
        features = directions(kept.features[order], classifier.head_with_scores_.scaling)
        wrong = classifier.calibration_scores_ > classifier.thresholds_[classifier.calibration_classes_]
        false = float(np.mean(wrong)) if len(wrong) else 0.0
        stray = min(0.5, false / max(1.0 - false, 0.5) * accepted / rejected)
        label = kept.label[order]
        some = np.arange(len(label)) - np.searchsorted(label, label) < COMPARED
        of_class = np.searchsorted(label[some], np.arange(label[-1] + 1))
        return cls(features, label, features[some], of_class, stray)

    def near(self, rows: Real) -> Floats:
        """(C,) mean squared distance of the first rows to the nearest row of each class."""
        squares = squared_distances(rows[:CENTRAL], self.first)
        return np.asarray(np.minimum.reduceat(squares, self.of_class, axis=1).mean(axis=0))

    def pool(self, sizes: Rows, rng: np.random.RandomState) -> tuple[Real, Rows]:
        """Rows of some classes in these sizes, and of other classes, which are strays; and their classes."""
        of_class = [np.flatnonzero(self.label == label) for label in rng.permutation(self.label[-1] + 1)]
        expected = min(POOL_ROWS, float(np.mean(sizes)) * len(of_class))
        wanted = round(self.stray / (1.0 - self.stray) * expected)
        others = min(-(-wanted // (LEAST - 1)), len(of_class) // STRAY_CLASSES)
        strays = np.array([row for mine in of_class[:others] for row in rng.permutation(mine)[: LEAST - 1]], np.int64)
        rows = [rng.permutation(strays)[:wanted]]
        for mine in of_class[others:]:
            if sum(map(len, rows[1:])) < POOL_ROWS:
                rows.append(rng.permutation(mine)[: rng.choice(sizes)])
        some = np.concatenate(rows)
        return self.features[some], self.label[some]


class Cut(NamedTuple):
    """Where a tree of rows is cut into groups."""

    height: float  # mean squared distance between the rows of two parts
    least: int  # rows of a part; rows of smaller ones join others


def directions(scaled: Real, scaling: Scaling) -> Real:
    """Scaled features to group: embeddings all of length 1."""
    finite = np.nan_to_num(np.clip(scaled, -LARGEST, LARGEST), nan=LARGEST)
    if scaling.kind == "columns":
        return finite
    length = np.linalg.norm(finite, axis=1, keepdims=True)
    return np.asarray(finite / np.where(length > 0, length, 1.0))


def tree_of(x: Real) -> Floats:
    """The tree that joins, again and again, the two parts with the lowest mean squared distance between rows."""
    squares = squared_distances(x, x)
    np.maximum(squares, 0.0, out=squares)
    np.fill_diagonal(squares, 0.0)
    return np.asarray(linkage(squareform(squares, checks=False), "average"))


def parts_of(x: Real, tree: Floats, height: float) -> tuple[Real, Rows]:
    """Means of the parts below a height, the largest part first, and their sizes."""
    part = fcluster(tree, height, "distance") - 1
    size = np.bincount(part)
    order = np.argsort(-size, kind="stable")
    rows = np.argsort(part, kind="stable")
    total = np.add.reduceat(x[rows], np.cumsum(size) - size, axis=0)
    return total[order] / size[order, None].astype(x.dtype), size[order]


class Pool(NamedTuple):
    """Rows of known classes that play new ones."""

    x: Real
    y: Rows
    tree: Floats


def choose(x: Real, tree: Floats, known: Known, rng: np.random.RandomState) -> tuple[Cut, list[Pool]]:
    """The cut that recovers known classes best, if these have the sizes of the groups of x; and pools of these."""
    sizes = np.array([FIRST_SIZE])
    for count in POOLS:
        drawn = [known.pool(sizes, rng) for _ in range(count)]
        pools = [Pool(rows, y, tree_of(rows)) for rows, y in drawn]
        cut = _best_cut(pools)
        middle, size = parts_of(x, tree, cut.height)
        found = np.bincount(squared_distances(x, middle[: _large(size, max(cut.least, LEAST))]).argmin(axis=1))
        sizes = found[found >= LEAST] if (found >= LEAST).any() else sizes
    return cut, pools


def _best_cut(pools: list[Pool]) -> Cut:
    first, classes = pools[0], len(np.unique(pools[0].y))
    most = max(min(8 * classes, len(first.tree) // 2), 2)
    parts = np.unique(np.geomspace(max(classes // 2, 2), most, HEIGHTS).astype(int))
    heights = first.tree[len(first.tree) - parts, 2]
    value = np.zeros((len(heights), len(LEASTS)))
    for x, y, tree in pools:
        count = np.bincount(y)
        classes = int((count >= min(LEAST, count.max())).sum())
        for i, height in enumerate(heights):
            middle, size = parts_of(x, tree, height)
            squares = squared_distances(x, middle[: _large(size, LEASTS[0])])
            for j, least in enumerate(LEASTS):
                n = _large(size, least)
                found = squares[:, :n].argmin(axis=1)
                value[i, j] += _agreement(y, found) - WRONG_NUMBER * abs(np.log(n / classes))
    i, j = map(int, np.unravel_index(value.argmax(), value.shape))
    return Cut(float(heights[i]), LEASTS[j])


def _large(size: Rows, least: int) -> int:
    """How many parts have so many rows; one at least."""
    return max(int((size >= least).sum()), 1)


def _agreement(y: Rows, found: Rows) -> float:
    """Adjusted Rand index of two ways to group rows; that of scikit-learn is slow for many small calls.

    >>> round(_agreement(np.array([0, 0, 1, 1]), np.array([0, 0, 1, 2])), 6)
    0.571429
    """
    together = np.bincount(y * (found.max() + 1) + found).astype(float)
    pairs, of_y, of_found, n = (
        (count * (count - 1.0) / 2.0).sum()
        for count in (together, np.bincount(y), np.bincount(found), np.array([len(y)]))
    )
    chance = of_y * of_found / n
    most = (of_y + of_found) / 2.0
    return float((pairs - chance) / (most - chance)) if most > chance else 1.0


class Grouped(NamedTuple):
    """Rows in groups."""

    label: Rows
    middle: Real  # (k, d)
    own: Floats  # (n,) squared distance to the middle of the own group
    other: Floats  # (n,) to the nearest other one; at most the height, at which rows stay apart

    @classmethod
    def of(cls, x: Real, some: Real, tree: Floats, cut: Cut) -> Grouped:
        """The groups of rows x, by k-means on some of them, from the parts of their tree."""
        middle, size = parts_of(some, tree, cut.height)
        start = middle[: _large(size, cut.least)]
        middle = KMeans(len(start), init=start, n_init=1, max_iter=STEPS).fit(some).cluster_centers_
        parts = [_places(part, middle, cut.height) for part in np.array_split(x, -(-len(x) // CHUNK))]
        label, own, other = map(np.concatenate, zip(*parts, strict=True))
        return cls(label, middle, own, other)

    def evidence(self) -> Floats:
        """(n, 2) what tells whether a row belongs to its group."""
        nearer = np.sqrt(self.own / np.maximum(self.other, np.finfo(np.float32).tiny))
        return np.stack([self.own, nearer], axis=1)


def _places(x: Real, middle: Floats, most: float) -> tuple[Rows, Floats, Floats]:
    """Nearest middle of each row, and squared distances to it and to the next one, this at most so far."""
    squares = np.maximum(squared_distances(x, middle), 0.0)
    label, row = squares.argmin(axis=1), np.arange(len(x))
    own = squares[row, label]
    squares[row, label] = most
    return label, own, squares.min(axis=1)


class Forecast:
    """How surely rows belong to their groups, and how pure groups are, from pools of known classes."""

    def __init__(self, known: Known, pools: list[Pool], cut: Cut) -> None:
        in_groups = [Grouped.of(pool.x, pool.x, pool.tree, cut) for pool in pools]
        rights, near = [], []
        for grouped, pool in zip(in_groups, pools, strict=True):
            most = np.zeros(len(grouped.middle), np.int64)
            for group in np.unique(grouped.label):
                inside = np.flatnonzero(grouped.label == group)
                most[group] = np.bincount(pool.y[inside]).argmax()
                to_class = known.near(pool.x[inside[np.argsort(grouped.own[inside])]])
                near.append(np.delete(to_class, most[group]).min())
            rights.append(pool.y == most[grouped.label])
        self.near = float(min(near))
        evidence, right = np.concatenate([one.evidence() for one in in_groups]), np.concatenate(rights)
        # One row more of each kind, so that there are both.
        self._model = make_pipeline(StandardScaler(), LogisticRegression()).fit(
            np.concatenate([evidence, np.repeat(evidence.mean(axis=0)[None], 2, axis=0)]),
            np.append(right, [False, True]),
        )
        found = []
        for grouped, right in zip(in_groups, rights, strict=True):
            sure = self.sure(grouped)
            label = leave_alone(grouped.label, sure)
            members = [label == group for group in range(label.max() + 1)]
            found += [(sure[mine].mean(), np.log(mine.sum()), right[mine].mean()) for mine in members]
        self._purity, self._size, self._real = np.array(found).reshape(-1, 3).T

    def sure(self, grouped: Grouped) -> Floats:
        """(n,) probability that a row is of the class that most rows of its group are of."""
        return np.asarray(self._model.predict_proba(grouped.evidence())[:, 1])

    def interval(self, purity: float, size: int) -> Interval:
        """Purity of known groups with such a forecast and size."""
        unlike = np.abs(self._purity - purity) + 0.1 * np.abs(self._size - np.log(size))
        real = np.sort(self._real[np.argsort(unlike, kind="stable")[:ALIKE]])
        outside = int((1.0 - LEVEL) / 2.0 * (len(real) + 1))  # groups on each side
        return Interval(float(real[outside - 1]), float(real[-outside])) if outside else Interval(0.0, 1.0)


def leave_alone(label: Rows, sure: Floats) -> Rows:
    """Groups of the rows that more likely belong to them than not, numbered by size; -1 for the others."""
    inside = sure >= 0.5
    size = np.bincount(label[inside], minlength=label.max() + 1)
    number = np.full(len(size), NO_GROUP)
    order = np.argsort(-size, kind="stable")[: int((size >= LEAST).sum())]
    number[order] = np.arange(len(order))
    return np.where(inside, number[label], NO_GROUP)
