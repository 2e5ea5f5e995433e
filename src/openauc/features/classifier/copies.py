"""Rows that belong together: copies and near-copies, which must never be on both sides of a split."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence, Sized
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import squareform
from scipy.stats import chi2
from sklearn.feature_extraction.text import HashingVectorizer

from openauc.features.classifier.scaling import Scaling
from openauc.features.scores.base import Floats, Real, Rows

COPY, ALIKE = 0.05, 0.2
"""Squared distance over the median one of the class: rows up to the first are copies, up to the second similar."""
SAME_LETTERS = 0.7  # texts whose triples of letters have at least this cosine count as copies
CHANCE = 0.01
"""Share of rows that may have such a near neighbour by chance: in few dimensions, near rows are not copies."""
COMPARED = 2000  # rows of a class that are compared with each other; among the others, only equal rows are found
TYPICAL_ROWS = 5.0  # weight, in rows, of the median distance of all classes in that of one class


class Copies(NamedTuple):
    """Groups (n,) of copies and given groups; larger groups of similar rows; pairs of equal rows of other classes."""

    groups: Rows
    alike: Rows
    conflicts: Rows

    @property
    def n_copies(self) -> int:
        """Number of rows that are not the first of their group."""
        return len(self.groups) - len(np.unique(self.groups))

    @property
    def share_alike(self) -> float:
        """Share of rows that are similar to another one but not its copy."""
        return (len(np.unique(self.groups)) - len(np.unique(self.alike))) / len(self.groups)


def find_copies(X: Real, y: Rows, given: Rows | None = None) -> Copies:
    """Groups of the rows of scaled features X with classes y; ``given`` groups stay together.

    >>> x = np.array([[0.0, 0.0], [0.0, 0.0], [3.0, 0.0], [0.0, 3.0], [9.0, 9.0], [9.0, 5.0]])
    >>> find_copies(x, np.array([0, 0, 0, 0, 1, 1])).groups.tolist()
    [0, 0, 1, 2, 3, 4]
    """
    equal = equal_rows(X)
    links, alike = [_chain(equal)] + ([] if given is None else [_chain(given)]), []
    classes = [np.flatnonzero(y == label)[:COMPARED] for label in range(int(y.max()) + 1)]
    distances = [_squares(X[rows]) for rows in classes]
    dimensions = _dimensions(distances)
    for rows, found, unit in zip(classes, distances, _units(distances, classes), strict=True):
        if len(rows) < 2:
            continue
        most = _nearest_by_chance(dimensions, len(rows))
        links.append(_linked(rows, found, "single", min(COPY, most) * unit))
        # Complete linkage: a chain of paraphrases is not one text.
        alike.append(_linked(rows, found, "complete", min(ALIKE, most) * unit))
    groups = _components(links, len(y))
    conflicts = [(i, j) for i, j in _chain(equal).T.tolist() if y[i] != y[j]]
    return Copies(groups, _components([*links, *alike], len(y)), np.array(conflicts, np.int64).reshape(-1, 2))


def first_rows(groups: Rows, y: Rows) -> Rows:
    """Ascending rows, the first of each class in each group.

    >>> first_rows(np.array([5, 5, 5, 7]), np.array([0, 0, 1, 1])).tolist()
    [0, 2, 3]
    """
    number = np.unique(groups, return_inverse=True)[1] * (int(y.max()) + 2) + y + 1  # outliers are -1
    return np.sort(np.unique(number, return_index=True)[1])


def _units(distances: list[Floats], rows: Sequence[Sized]) -> Floats:
    """(C,) median squared distance in each class, shrunk toward the typical one: a class may hold only copies."""
    medians = np.array([np.median(found) if len(found) else 0.0 for found in distances])
    typical = float(np.median(medians[medians > 0])) if (medians > 0).any() else 0.0
    size = np.array([len(one) for one in rows])
    return np.asarray((size * medians + TYPICAL_ROWS * typical) / (size + TYPICAL_ROWS))


def text_groups(texts: Sequence[str], labels: NDArray[Any]) -> Rows:
    """(n,) group of each text: those of one label that have nearly the same letters.

    Case, blanks, punctuation and digits do not count. A typo changes few triples of neighbouring letters, another word
    many.

    >>> texts = ["Where is my card?", "where is  my CARD", "Where is my crad?", "I have lost my card."]
    >>> text_groups(texts, np.array(["a", "a", "a", "a"])).tolist()
    [0, 0, 0, 1]
    """
    # With the marks that belong to them.
    letters = ["".join(x for x in text.casefold() if unicodedata.category(x)[0] in "LM") for text in texts]
    vectorizer = HashingVectorizer(analyzer="char", ngram_range=(3, 3), binary=True, alternate_sign=False)
    triples = vectorizer.transform(letters)
    keys = [f"{label}\0{some or i}" for i, (label, some) in enumerate(zip(labels, letters, strict=True))]
    links = [_chain(np.unique(keys, return_inverse=True)[1])]
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        for start in range(0, len(rows), COMPARED):
            similar = (triples[rows[start : start + COMPARED]] @ triples[rows].T).tocoo()
            near = similar.data >= SAME_LETTERS
            links.append(np.stack([rows[similar.row[near] + start], rows[similar.col[near]]]))
    return _components(links, len(letters))


def copies_of(X: Real, y: Rows, some: Rows, others: Rows, scaling: Scaling) -> NDArray[np.bool_]:
    """(m,) which of the other rows are copies of some rows of the same class."""
    found = np.zeros(len(others), bool)
    of_class = np.argsort(y[others], kind="stable")
    start = np.searchsorted(y[others][of_class], np.arange(int(y.max()) + 2))
    labels = np.unique(y[some])
    rows = [scaling.rows(X, some[y[some] == label][:COMPARED]) for label in labels]
    distances = [_squares(mine) for mine in rows]
    dimensions = _dimensions(distances)
    for label, mine, unit in zip(labels, rows, _units(distances, rows), strict=True):
        most = min(COPY, _nearest_by_chance(dimensions, len(mine))) * unit
        places = of_class[start[label] : start[label + 1]]
        for chunk in np.array_split(places, max(1, len(places) // COMPARED)):
            squares = squared_distances(scaling.rows(X, others[chunk]), mine)
            found[chunk] = squares.min(1, initial=np.inf) <= most
    return found


def _dimensions(distances: list[Floats]) -> float:
    """Number of dimensions in which squared distances of evenly spread rows vary as much as these."""
    apart = [found[found > COPY * np.median(found)] for found in distances if len(found) > 1]
    weights = np.array([len(found) for found in apart])
    if not weights.sum():
        return np.inf
    variation = [found.var() / found.mean() ** 2 if len(found) else 0.0 for found in apart]
    return float(2.0 / max(np.average(variation, weights=weights), 1e-3))


def _nearest_by_chance(dimensions: float, rows: int) -> float:
    """Squared distance, over the median one, to the nearest neighbour that only the share CHANCE of rows has by chance.

    >>> round(_nearest_by_chance(2.0, 101), 4), round(_nearest_by_chance(100.0, 101), 4)
    (0.0001, 0.561)
    """
    if not np.isfinite(dimensions):
        return 1.0
    return float(chi2.ppf(CHANCE / max(rows - 1, 1), dimensions) / chi2.median(dimensions))


def squared_distances(a: Real, b: Real) -> Floats:
    """(n, m) squared distances; rounding may make one a little negative."""
    of_a, of_b = (np.einsum("ij,ij->i", x, x, dtype=np.float64) for x in (a, b))
    squares = np.add.outer(of_a, of_b)
    squares -= 2.0 * (a @ b.astype(a.dtype, copy=False).T)
    return np.asarray(squares)


def equal_rows(X: Real) -> Rows:
    """(n,) number of each row among the distinct ones."""
    rows = np.ascontiguousarray(X + 0.0)  # of -0.0 and 0.0, one
    return np.unique(rows.view(np.dtype((np.void, rows.strides[0])))[:, 0], return_inverse=True)[1]


def _squares(x: Real) -> Floats:
    """Condensed squared distances between all rows."""
    full = np.maximum(squared_distances(x, x), 0.0)
    np.fill_diagonal(full, 0.0)
    return np.asarray(squareform(full, checks=False))


def _linked(rows: Rows, distances: Floats, method: str, most: float) -> Rows:
    """(2, m) pairs of rows of one cluster."""
    if distances.min() > most:
        return np.empty((2, 0), np.int64)
    return rows[_chain(fcluster(linkage(distances, method), most, "distance"))]


def _chain(groups: Rows) -> Rows:
    """(2, m) pairs of neighbours inside each group, which link it."""
    order = np.argsort(groups, kind="stable")
    same = groups[order][1:] == groups[order][:-1]
    return np.stack([order[:-1][same], order[1:][same]])


def _components(links: list[Rows], n: int) -> Rows:
    pairs = np.concatenate(links, axis=1)
    graph = coo_array((np.ones(pairs.shape[1]), (pairs[0], pairs[1])), shape=(n, n))
    return np.asarray(connected_components(graph, directed=False)[1], np.int64)
