"""Distinct samples and how often each occurred: the state of an exact accumulator."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from openauc.metrics.samples import Ints

_FEWEST_PENDING = 1 << 20
_HALF = 32  # bits of a pair for the predicted class
_MASK = (1 << _HALF) - 1


class Rows(NamedTuple):
    """Distinct (key, class, predicted class) in order, and how often each occurred; class -1 is unknown."""

    key: Ints
    pair: Ints
    """Position of the class and of the predicted class, both plus one, 32 bits each."""
    times: Ints

    @classmethod
    def empty(cls) -> Rows:
        return cls(*(np.empty(0, dtype=np.int64) for _ in range(3)))

    @classmethod
    def of(cls, key: Ints, true: Ints, pred: Ints) -> Rows:
        """Rows of samples, each occurring once, not yet in order."""
        return cls(key, ((true + 1) << _HALF) | (pred + 1), np.ones(len(key), dtype=np.int64))

    @property
    def true(self) -> Ints:
        return (self.pair >> _HALF) - 1

    @property
    def pred(self) -> Ints:
        return (self.pair & _MASK) - 1

    def renumbered(self, position: Ints) -> Rows:
        """The same with class i at ``position[i]``; the order of classes stays."""
        lookup = np.append(position, -1)
        return self._replace(pair=((lookup[self.true] + 1) << _HALF) | (lookup[self.pred] + 1))

    def chosen(self, index: NDArray[np.bool_] | Ints) -> Rows:
        return Rows(*(part[index] for part in self))

    @classmethod
    def united(cls, parts: list[Rows]) -> Rows:
        """All rows in order, equal ones added up."""
        rows = cls(*(np.concatenate(column) for column in zip(cls.empty(), *parts, strict=True)))
        rows = rows.chosen(np.argsort(rows.key, kind="stable"))
        if not (rows.key[1:] == rows.key[:-1]).any():
            return rows
        rows = rows.chosen(np.lexsort((rows.pair, rows.key)))
        first = np.ones(len(rows.key), dtype=np.bool_)
        first[1:] = (rows.key[1:] != rows.key[:-1]) | (rows.pair[1:] != rows.pair[:-1])
        start = np.flatnonzero(first)
        return cls(rows.key[start], rows.pair[start], np.add.reduceat(rows.times, start))


class RowStore:
    """Rows that arrive in chunks; chunks wait until they are as many as what is in order already."""

    def __init__(self, rows: Rows | None = None) -> None:
        self._rows = Rows.empty() if rows is None else rows
        self._waiting: list[Rows] = []
        self._n_waiting = 0

    def add(self, rows: Rows) -> None:
        self._waiting.append(rows)
        self._n_waiting += len(rows.key)
        if self._n_waiting >= max(_FEWEST_PENDING, len(self._rows.key)):
            self.rows()

    def rows(self) -> Rows:
        """All of them, in order."""
        if self._waiting:
            self._rows = Rows.united([self._rows, *self._waiting])
            self._waiting, self._n_waiting = [], 0
        return self._rows

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for rows in (self._rows, *self._waiting) for part in rows)

    def renumber(self, position: Ints) -> None:
        self._rows = self._rows.renumbered(position)
        self._waiting = [part.renumbered(position) for part in self._waiting]
