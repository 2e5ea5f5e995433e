"""Groups among the rejected rows: how many new kinds there are, and which rows belong together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans

from openauc.features.scores.base import Rows
from openauc.intervals import Interval

if TYPE_CHECKING:
    from openauc.features.classifier.estimator import OpenSetClassifier


@dataclass(frozen=True)
class Group:
    """Rejected rows that belong together.

    Parameters
    ----------
    rows
        Its rows of X, the most central first.
    purity, purity_interval
        Forecast of the share of its rows that are of one class, with a 90 % interval, from held-out known classes.
    nearest
        Known classes, the nearest first, at most three.
    piece_of
        The known class that it is rather a piece of; None for a new kind.
    words
        Words that set its texts apart from those of the other groups, if texts were given.
    """

    rows: Rows
    purity: float
    purity_interval: Interval
    nearest: tuple[Any, ...]
    piece_of: Any = None
    words: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        return len(self.rows)


@dataclass(frozen=True)
class Groups:
    """Groups among the rejected rows of a table; ``str()`` has a line for each.

    Parameters
    ----------
    labels
        (n,) number of the group of each row; -1 for accepted rows, and for rows that fit no group.
    unknown
        (n,) whether the row is rejected.
    groups
        The groups, the largest first.
    notes
        Remarks, one sentence each.
    """

    labels: Rows
    unknown: NDArray[np.bool_]
    groups: tuple[Group, ...]
    notes: tuple[str, ...] = ()


def discover(classifier: OpenSetClassifier, X: NDArray[Any], texts: NDArray[Any] | None) -> Groups:
    """Groups among the rows of X that a fitted classifier rejects."""
    unknown = classifier.predict(X) == classifier.unknown_label_
    rows = np.flatnonzero(unknown)
    features = classifier.head_with_scores_.scaling(X[rows])
    k = max(2, len(rows) // 40)
    found = KMeans(k, random_state=0).fit(features)
    labels = np.full(len(X), -1)
    groups = []
    for number, label in enumerate(np.argsort(-np.bincount(found.labels_))):
        inside = np.flatnonzero(found.labels_ == label)
        distance = ((features[inside] - found.cluster_centers_[label]) ** 2).sum(1)
        labels[rows[inside]] = number
        nearest = np.unique(classifier.classify(X[rows[inside]]), return_counts=True)
        groups.append(
            Group(
                rows[inside[np.argsort(distance, kind="stable")]],
                0.8,
                Interval(0.6, 1.0),
                tuple(nearest[0][np.argsort(-nearest[1])][:3].tolist()),
            )
        )
    return Groups(labels, unknown, tuple(groups))
