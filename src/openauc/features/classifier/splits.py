"""Splits that hold out whole known classes, as unknown ones, and samples of the others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.model_selection import BaseCrossValidator
from sklearn.utils import check_random_state

from openauc._validation import check_fraction
from openauc.features.scores.base import Rows
from openauc.features.scores.distance import turns_in_class
from openauc.scoring import make_scorer

FEWEST_FOLDS = 12  # folds are repeated, with classes cut in another way, until there are about as many

openauc_scorer = make_scorer("openauc", open_score="auto")
"""OpenAUC as ``scoring`` of scikit-learn; classes that the estimator was not fitted on count as unknown."""


@dataclass(eq=False, repr=False)
class HeldOutSplit(BaseCrossValidator):  # type: ignore[misc]
    """Folds that each hold out whole classes, as unknown ones, and a share of the samples of the others.

    The training part of a fold has ``1 - known_share`` of the samples of the remaining classes; the test part has the
    other samples of these and all samples of the held-out classes. With :data:`openauc_scorer`, for which classes that
    the estimator does not know are unknown, it selects models without any unknown sample.

    Parameters
    ----------
    n_splits
        Folds the classes are cut into; each class is held out once in each repetition. At least two classes remain
        for training, so there are at least as many folds as that needs.
    n_repeats
        How often the classes are cut; None for as many as give about twelve folds.
    known_share
        Share of the samples (of the groups, where these are given) of the remaining classes in the test part, at least
        one of each class that has two.
    unknown_label
        Label of rows that are in every test part and in no training part; None if there are none.
    random_state
        Seed or generator of scikit-learn.

    Examples
    --------
    >>> y = np.repeat([0, 1, 2, 3], 4)
    >>> train, test = next(HeldOutSplit(2, random_state=0).split(np.zeros((16, 1)), y))
    >>> len(np.unique(y[train])), np.bincount(y[test]).tolist()
    (2, [1, 4, 4, 1])
    """

    n_splits: int = 5
    _: KW_ONLY
    n_repeats: int | None = None
    known_share: float = 0.25
    unknown_label: Any = None
    random_state: Any = None

    def split(self, X: Any, y: ArrayLike | None = None, groups: Any = None) -> Iterator[tuple[Rows, Rows]]:
        """Rows of the training and of the test part of each fold; rows of one group are in the same part."""
        labels, outlier, n_folds, n_repeats = self._plan(y)
        groups = np.arange(len(labels)) if groups is None else np.unique(groups, return_inverse=True)[1]
        share = check_fraction("known_share", self.known_share, one=False)
        rng = check_random_state(self.random_state)
        classes = np.unique(labels[~outlier])
        for _ in range(n_repeats):
            shuffled = rng.permutation(len(classes))
            for fold in range(n_folds):
                held = outlier | np.isin(labels, classes[shuffled[fold::n_folds]])
                tested = held | _drawn(labels, groups, share, rng)
                yield np.flatnonzero(~tested), np.flatnonzero(tested)

    def get_n_splits(self, X: Any = None, y: ArrayLike | None = None, groups: Any = None) -> int:
        """Number of folds of all repetitions; it depends on the classes."""
        _, _, n_folds, n_repeats = self._plan(y)
        return n_folds * n_repeats

    def _plan(self, y: ArrayLike | None) -> tuple[NDArray[Any], NDArray[np.bool_], int, int]:
        """Labels, which of them are outliers, folds and repetitions."""
        if y is None:
            raise ValueError("y is missing; classes are held out, so pass the label of every sample.")
        labels = np.asarray(y)
        outlier = np.zeros(len(labels), bool) if self.unknown_label is None else labels == self.unknown_label
        n_classes = len(np.unique(labels[~outlier]))
        if n_classes < 3:
            raise ValueError(
                f"y holds {n_classes} known classes; at least 3 are needed, since one is held out and two must remain."
            )
        if self.n_splits < 2:
            raise ValueError(f"n_splits is {self.n_splits}; expected at least 2.")
        if self.n_repeats is not None and self.n_repeats < 1:
            raise ValueError(f"n_repeats is {self.n_repeats}; expected at least 1, or None.")
        n_folds = min(self.n_splits, n_classes)
        while n_classes - -(-n_classes // n_folds) < 2:
            n_folds += 1
        repeats = -(-FEWEST_FOLDS // n_folds) if n_classes < 2 * FEWEST_FOLDS else 1
        return labels, outlier, n_folds, repeats if self.n_repeats is None else self.n_repeats


def _drawn(labels: NDArray[Any], groups: Rows, share: float, rng: np.random.RandomState) -> NDArray[np.bool_]:
    """Rows of a share of each class's groups, at least one group if there are two, and never a whole class."""
    first, of_group = np.unique(groups, return_index=True, return_inverse=True)[1:]
    turn = random_turns(labels[first], rng)
    _, code, size = np.unique(labels[first], return_inverse=True, return_counts=True)
    drawn: NDArray[np.bool_] = ((turn / size[code] < share) & (turn < size[code] - 1))[of_group]
    return drawn & np.isin(labels, labels[~drawn])


def random_turns(labels: NDArray[Any], rng: np.random.RandomState) -> NDArray[np.intp]:
    """(n,) place of each sample in a random order of the samples of its class.

    >>> sorted(random_turns(np.array([7, 7, 7, 5]), np.random.RandomState(0)).tolist())
    [0, 0, 1, 2]
    """
    order = np.argsort(rng.random_sample(len(labels)), kind="stable")
    turns = np.empty(len(labels), np.intp)
    turns[order] = turns_in_class(labels[order])
    return turns


def deal(y: Rows, groups: Rows, parts: int, rng: np.random.RandomState) -> Rows:
    """(n,) part of each row: groups are dealt class by class, so those of a class are in as many parts as possible.

    A class with all rows in one part gets -1: without that part there would be no row of it.

    >>> deal(np.array([0, 0, 0, 1, 1]), np.array([0, 0, 1, 2, 2]), 2, np.random.RandomState(0)).tolist()
    [1, 1, 0, -1, -1]
    """
    _, first, of_group = np.unique(groups, return_index=True, return_inverse=True)
    label = y[first]
    order = np.lexsort((rng.random_sample(len(label)), label))
    part = np.empty(len(label), np.int64)
    part[order] = (np.arange(len(label)) + rng.randint(parts)) % parts
    spread = np.unique(np.stack([y, part[of_group]]), axis=1)[0]
    alone = np.bincount(spread, minlength=int(y.max()) + 1)[y] < 2
    return np.where(alone, -1, part[of_group])
