"""Distinct samples, or bins of samples, and how often each occurred: the state of an accumulator."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from openauc.metrics.rank_table import Counts
from openauc.metrics.samples import CORRECT, UNKNOWN_KIND, WRONG, Ints, key_of_bits

N_KINDS = 5
"""Wrong, correct and unknown as in the rank table; then wrong and unknown ones that the model itself calls unknown."""
WRONG_REJECTED, UNKNOWN_REJECTED = 3, 4
MANTISSA_BITS = 10  # bits of the mantissa that tell bins apart where no resolution is given
_FEWEST_PENDING = 1 << 12  # rows that are not worth a sort of their own
_HALF = 32  # bits of a pair for the predicted class
_MASK = (1 << _HALF) - 1
_LARGEST = np.int64(2**63 - 1)


def score_key(score: ArrayLike) -> Ints:
    """Integer key of a float64: equal for equal scores, smaller for smaller ones.

    The bits of a float, read as an integer, rise with its magnitude; for negative numbers they are inverted. ``-0.0``
    and ``0.0`` have the key 0, infinities the outermost keys; NaN has no rank and must not occur. A float32 has the key
    of its float64.

    >>> score_key([-np.inf, -1.5, -0.0, 0.0, 5e-324, np.inf]).tolist()[2:5]
    [0, 0, 1]
    """
    bits = np.ascontiguousarray(score, dtype=np.float64).view(np.int64)
    return np.asarray(key_of_bits(bits, _LARGEST))


def key_score(key: ArrayLike) -> NDArray[np.float64]:
    """The score with this key.

    >>> key_score(score_key([-1e300, -1.5, 0.0, 2.0])).tolist()
    [-1e+300, -1.5, 0.0, 2.0]
    """
    keys = np.asarray(key, dtype=np.int64)
    return np.asarray((keys ^ ((keys >> 63) & _LARGEST)).view(np.float64))


def bin_of(key: Any, resolution: int = MANTISSA_BITS) -> Any:
    """Bin of a key: its sign, its exponent and the first ``resolution`` of the 52 bits of its mantissa.

    >>> (bin_of(score_key([1.0, 1.0009, 1.001])) - bin_of(score_key(1.0))).tolist()
    [0, 0, 1]
    """
    return key >> (52 - resolution)


class BinCounts(NamedTuple):
    """The bins that hold samples, in order of their score."""

    counts: Counts  # (bins, N_KINDS)
    low: Ints  # smallest and largest key in each bin
    high: Ints

    @property
    def known(self) -> Counts:
        return np.asarray(self.counts[:, [WRONG, CORRECT, WRONG_REJECTED]].sum(axis=1))

    @property
    def unknown(self) -> Counts:
        return np.asarray(self.counts[:, [UNKNOWN_KIND, UNKNOWN_REJECTED]].sum(axis=1))

    @property
    def pure(self) -> NDArray[np.bool_]:
        """Whether all samples of a bin have the same score."""
        return np.asarray(self.low == self.high)


class Rows(NamedTuple):
    """Distinct pairs of (key or bin, class or kind), and how often each occurred."""

    key: Ints  # key of the score, or number of its bin
    what: Ints
    """Position of the class and of the predicted class, both plus one, 32 bits each; or the kind of the sample."""
    times: Ints
    low: Ints | None  # smallest and largest key of each row; None if rows are not bins
    high: Ints | None

    @classmethod
    def of(cls, key: Ints, what: Ints, shift: int) -> Rows:
        """A row for each sample, not in order; bins drop the last ``shift`` bits of the key."""
        times = np.ones(len(key), dtype=np.int64)
        return cls(key >> shift, what, times, key, key) if shift else cls(key, what, times, None, None)

    @classmethod
    def by_kind(cls, key: Ints, kind: NDArray[np.uint8], shift: int) -> list[Rows]:
        """Rows of samples in bins; many are counted for each kind apart, where sorting the keys is enough."""
        if len(key) < _FEWEST_PENDING:
            return [cls.of(key, kind.astype(np.int64), shift)]
        parts = []
        for one in np.flatnonzero(np.bincount(kind)):
            ordered = np.sort(key[kind == one])
            number = ordered >> shift
            start = _starts(number)
            end = np.append(start[1:], len(number))
            parts.append(cls(number[start], np.full(len(start), one), end - start, ordered[start], ordered[end - 1]))
        return parts

    @staticmethod
    def pair(true: Ints, pred: Ints) -> Ints:
        """Positions of two classes as one integer."""
        return np.asarray(((true + 1) << _HALF) | (pred + 1))

    @property
    def true(self) -> Ints:
        return (self.what >> _HALF) - 1

    @property
    def pred(self) -> Ints:
        return (self.what & _MASK) - 1

    def renumbered(self, position: Ints) -> Rows:
        """The same with class i at ``position[i]``; the order of classes stays."""
        lookup = np.append(position, -1)
        return self._replace(what=self.pair(lookup[self.true], lookup[self.pred]))

    @classmethod
    def united(cls, parts: list[Rows]) -> Rows:
        """All rows in order, with equal ones added up."""
        columns: list[Any] = [None if c[0] is None else np.concatenate(c) for c in zip(*parts, strict=True)]
        key, what, times, low, high = columns
        order = _order(key, what)
        key, what, times = key[order], what[order], times[order]
        start = _starts(key, what)
        if low is not None:
            low, high = np.minimum.reduceat(low[order], start), np.maximum.reduceat(high[order], start)
        if len(start) < len(key):
            key, what, times = key[start], what[start], np.add.reduceat(times, start)
        return cls(key, what, times, low, high)

    def bins(self, kind: NDArray[np.uint8]) -> tuple[BinCounts, Ints]:
        """Counts of each bin, given the kind of each row, and the bin of each row."""
        start = _starts(self.key)
        place = np.repeat(np.arange(len(start)), np.diff(start, append=len(self.key)))
        counts = np.zeros((len(start), N_KINDS), dtype=np.int64)
        np.add.at(counts, (place, kind), self.times)
        low, high = (self.key if column is None else column for column in (self.low, self.high))
        return BinCounts(counts, np.minimum.reduceat(low, start), np.maximum.reduceat(high, start)), place


def _order(key: Ints, what: Ints) -> Ints:
    """Order of rows, by their key and then by what they are."""
    if len(key) and what.max() < 1 << 3 and -(1 << 59) < key.min() <= key.max() < 1 << 59:  # kinds in bins
        return np.argsort((key << 3) + what)
    order = np.argsort(key, kind="stable")
    return np.lexsort((what, key)) if (np.diff(key[order]) == 0).any() else order


def _starts(*columns: Ints) -> Ints:
    """Where rows begin that differ from the row before in one of the columns."""
    differs = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    return np.flatnonzero(np.append(True, differs)[: len(columns[0])])


class RowStore:
    """Rows that arrive in parts; parts wait until they have as many rows as what is in order already."""

    def __init__(self, rows: Rows) -> None:
        self._rows, self._waiting, self._n_waiting = rows, list[Rows](), 0

    def add(self, *parts: Rows) -> None:
        self._waiting += parts
        self._n_waiting += sum(len(part.key) for part in parts)
        if self._n_waiting >= max(_FEWEST_PENDING, len(self._rows.key)):
            self.rows()

    def rows(self) -> Rows:
        """All of them, in order."""
        if self._waiting:
            self._rows, self._waiting, self._n_waiting = Rows.united([self._rows, *self._waiting]), [], 0
        return self._rows

    @property
    def nbytes(self) -> int:
        columns = (column for rows in (self._rows, *self._waiting) for column in rows)
        return sum(column.nbytes for column in columns if column is not None)
