"""Counts per bin of the score's key, in memory that does not grow with the samples."""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from openauc import _validation as check
from openauc.metrics._backend import fast_backend, in_threads, parts_of
from openauc.metrics.counts import classes_met, positions
from openauc.metrics.rank_table import Counts
from openauc.metrics.samples import CORRECT, UNKNOWN_KIND, WRONG, Ints, Samples
from openauc.streaming.keys import MANTISSA_BITS, N_PAGES, PAGE_BINS, bin_of, score_key

N_KINDS = 5
"""Wrong, correct and unknown as in the ranking table; then wrong and unknown where the model itself says unknown."""

WRONG_REJECTED, UNKNOWN_REJECTED = 3, 4
_LOW, _HIGH, _FIELDS = N_KINDS, N_KINDS + 1, 8  # a bin is eight integers: one line of the processor's cache
_EMPTY = np.array([0] * N_KINDS + [2**63 - 1, -(2**63), 0], dtype=np.int64)
_CHUNK = 1 << 16
_MET = 1 << 12  # labels looked up in a table


class BinCounts(NamedTuple):
    """The bins that hold samples, in order of their score."""

    number: Ints
    counts: Counts
    """(bins, N_KINDS)"""
    low: Ints
    """Smallest and largest key met in each."""
    high: Ints

    @classmethod
    def empty(cls) -> BinCounts:
        nothing = np.empty(0, dtype=np.int64)
        return cls(nothing, np.empty((0, N_KINDS), dtype=np.int64), nothing, nothing)

    @classmethod
    def united(cls, parts: list[BinCounts]) -> BinCounts:
        """Bins of several sheets, equal ones added up."""
        index, place = np.unique(np.concatenate([part.number for part in parts]), return_inverse=True)
        counts = np.zeros((len(index), N_KINDS), dtype=np.result_type(*(part.counts for part in parts)))
        low, high = np.full(len(index), _EMPTY[_LOW]), np.full(len(index), _EMPTY[_HIGH])
        np.add.at(counts, place, np.concatenate([part.counts for part in parts]))
        np.minimum.at(low, place, np.concatenate([part.low for part in parts]))
        np.maximum.at(high, place, np.concatenate([part.high for part in parts]))
        return cls(index, counts, low, high)

    @property
    def known(self) -> Counts:
        """Known samples of each bin."""
        return np.asarray(self.counts[:, [WRONG, CORRECT, WRONG_REJECTED]].sum(axis=1))

    @property
    def unknown(self) -> Counts:
        """Unknown samples of each bin."""
        return np.asarray(self.counts[:, [UNKNOWN_KIND, UNKNOWN_REJECTED]].sum(axis=1))

    @property
    def pure(self) -> NDArray[np.bool_]:
        """Bins whose samples all have the same score: their ties are ties."""
        return np.asarray(self.low == self.high)


class Bins:
    """Pages of bins, one for each sign and exponent met."""

    def __init__(self, sheet: BinCounts | None = None) -> None:
        self._slot = np.full(N_PAGES, -1, dtype=np.int32)
        self._cells = np.empty((0, _FIELDS), dtype=np.int64)
        self._others: list[Bins] = []  # what other threads counted, until somebody looks
        if sheet is not None and len(sheet.number):
            self._add_pages(sheet.number >> MANTISSA_BITS)
            cells = self._cells[self._place(sheet.number)]
            cells[:, :N_KINDS], cells[:, _LOW], cells[:, _HIGH] = sheet.counts, sheet.low, sheet.high
            self._cells[self._place(sheet.number)] = cells

    @property
    def nbytes(self) -> int:
        return self._cells.nbytes + self._slot.nbytes + sum(other.nbytes for other in self._others)

    def add(self, score: NDArray[Any], kind: NDArray[np.uint8]) -> None:
        """Count samples of these kinds, in threads where they are many."""
        fast = fast_loops(len(score))
        if fast is None:
            for start in range(0, len(score), _CHUNK):
                self._add_chunk(score_key(score[start : start + _CHUNK]), kind[start : start + _CHUNK])
            return
        score = np.ascontiguousarray(score)
        parts = parts_of(len(score))
        self._others += [Bins() for _ in parts[1 + len(self._others) :]]
        threads = [self, *self._others]
        in_threads(lambda i: threads[i]._add_fast(fast, score[parts[i]], kind[parts[i]]), len(parts))

    def _add_fast(self, fast: Any, score: NDArray[Any], kind: NDArray[np.uint8]) -> None:
        done = 0
        while done < len(score):  # stops where a page is missing, which happens once for each
            done = fast.count_bins(score, kind, done, self._slot, self._cells)
            if done < len(score):
                self._add_pages(bin_of(score_key(score[done : done + 1])) >> MANTISSA_BITS)

    def absorb(self, other: Bins) -> None:
        """Add what another one counted."""
        for table in (other, *other._others):
            if len(self._cells) == 0:
                self._slot, self._cells = table._slot.copy(), table._cells.copy()
                continue
            page = np.flatnonzero(table._slot >= 0)
            self._add_pages(page - N_PAGES // 2)
            mine, theirs = (cells.reshape(-1, PAGE_BINS, _FIELDS) for cells in (self._cells, table._cells))
            at, more = self._slot[page], theirs[table._slot[page]]
            mine[at, :, :N_KINDS] += more[:, :, :N_KINDS]
            mine[at, :, _LOW] = np.minimum(mine[at, :, _LOW], more[:, :, _LOW])
            mine[at, :, _HIGH] = np.maximum(mine[at, :, _HIGH], more[:, :, _HIGH])

    def _add_chunk(self, key: Ints, kind: NDArray[np.uint8]) -> None:
        index = bin_of(key)
        self._add_pages(index >> MANTISSA_BITS)
        place = self._place(index) * _FIELDS
        flat = self._cells.reshape(-1)
        np.minimum.at(flat, place + _LOW, key)
        np.maximum.at(flat, place + _HIGH, key)
        np.add.at(flat, place + kind, 1)

    def _place(self, index: Ints) -> Ints:
        slot = self._slot[(index >> MANTISSA_BITS) + N_PAGES // 2].astype(np.int64)
        return np.asarray((slot << MANTISSA_BITS) + (index & (PAGE_BINS - 1)))

    def _add_pages(self, page: Ints) -> None:
        missing = np.flatnonzero(np.bincount(page + N_PAGES // 2, minlength=N_PAGES) * (self._slot < 0))
        if len(missing):
            first = len(self._cells) >> MANTISSA_BITS
            self._slot[missing] = np.arange(first, first + len(missing))
            fresh = np.broadcast_to(_EMPTY, (len(missing) * PAGE_BINS, _FIELDS))
            self._cells = np.concatenate([self._cells, fresh])

    def sheet(self) -> BinCounts:
        """The bins that hold samples."""
        while self._others:
            self.absorb(self._others.pop())
        page = np.flatnonzero(self._slot >= 0)
        index = ((page - N_PAGES // 2)[:, None] * PAGE_BINS + np.arange(PAGE_BINS)).ravel()
        cells = self._cells[self._place(index)]
        held = np.flatnonzero(cells[:, :N_KINDS].any(axis=1))
        cells = cells[held]
        return BinCounts(index[held], cells[:, :N_KINDS].copy(), cells[:, _LOW].copy(), cells[:, _HIGH].copy())


def look_at_labels(samples: Samples) -> tuple[NDArray[Any], NDArray[np.uint8]]:
    """The known classes of either column, in order, and the kinds of the samples as they are counted here.

    A predicted label must be a class or the unknown label.
    """
    true, pred, unknown, kind = samples.y_true, samples.y_pred, samples.unknown_label, samples.kind
    integers = true.dtype.kind == pred.dtype.kind == "i" and isinstance(unknown, int)
    fast = fast_loops(len(kind)) if integers else None
    if fast is None:
        return _classes(samples), _kinds(samples)
    parts = parts_of(len(kind))
    met = np.zeros((len(parts), _MET), dtype=np.bool_)
    in_table = in_threads(
        lambda i: fast.look(true[parts[i]], pred[parts[i]], unknown, met[i], kind[parts[i]]), len(parts)
    )
    return np.flatnonzero(met[:, :-1].any(axis=0)) if all(in_table) else _classes(samples), kind


def _classes(samples: Samples) -> NDArray[Any]:
    classes = classes_met(samples)
    if samples.y_pred.dtype.kind == "i" and samples.y_pred.min() < 0:
        positions("y_pred", samples.y_pred, classes, samples.unknown_label)  # a negative class is an error
    return classes


def _kinds(samples: Samples) -> NDArray[np.uint8]:
    """Those of the ranking table, told apart by whether the model itself says unknown."""
    kind = samples.kind
    rejected = check.is_label(samples.y_pred, samples.unknown_label) & (kind != CORRECT)
    return np.where(rejected, kind // UNKNOWN_KIND + np.uint8(WRONG_REJECTED), kind) if rejected.any() else kind


def fast_loops(work: int) -> Any:
    """The compiled loops, if they are installed and worth their start-up."""
    return None if fast_backend(work) is None else importlib.import_module("openauc.streaming._fast")
