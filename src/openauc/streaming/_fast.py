"""Compiled loops behind ``bins`` and ``refinement``: imported only where numba is installed and the input is large."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from openauc.metrics._fast import key_of

Array = NDArray[Any]
_BLOCK = 1024  # samples whose keys stay in the first-level cache
_SHIFT, _PAGE_SHIFT, _HALF_PAGES, _IN_PAGE = 42, 10, 2048, 1023
_LOW, _HIGH = 5, 6
_LARGEST = np.int64(2**63 - 1)
_KIND_BITS, _DISTANCE_BITS = 2, 42
_PLACE, _KIND = _KIND_BITS + _DISTANCE_BITS, 3
N_FIELDS = 11
"""Of a column: first and last score, wrong, correct, unknown samples; four numbers of pairs; two of the best."""


@njit(nogil=True, cache=True)
def count_bins(score: Array, kind: Array, start: int, slot: Array, cells: Array) -> int:
    """Count samples into ``cells`` from ``start`` on; return where it ended: before a sample whose page is missing."""
    block = np.empty(_BLOCK, dtype=np.float64)
    bits = block.view(np.int64)
    for begin in range(start, len(score), _BLOCK):
        n = min(_BLOCK, len(score) - begin)
        for i in range(n):  # a loop of its own, which the compiler turns into vector instructions
            block[i] = score[begin + i]
        for i in range(n):
            key = key_of(bits[i], _LARGEST)
            index = key >> _SHIFT
            page = slot[np.uint64((index >> _PAGE_SHIFT) + _HALF_PAGES)]
            if page < 0:
                return begin + i
            place = np.uint64((np.int64(page) << _PAGE_SHIFT) + (index & _IN_PAGE))
            cells[place, np.uint64(kind[begin + i])] += 1
            cells[place, _LOW] = min(cells[place, _LOW], key)
            cells[place, _HIGH] = max(cells[place, _HIGH], key)
    return len(score)


@njit(nogil=True, cache=True)
def look(y_true: Array, y_pred: Array, unknown: int, met: Array, kind: Array) -> bool:
    """Mark the labels in ``met``, the unknown one in its last entry; return whether all have an entry.

    And change the kind of samples that the model itself calls unknown: wrong from 0 to 3, unknown from 2 to 4.
    """
    last = np.int64(len(met) - 1)
    low = high = np.int64(0)
    for i in range(len(kind)):  # no branch on the data, so that the compiler turns it into vector instructions
        true, pred, rejected = np.int64(y_true[i]), np.int64(y_pred[i]), y_pred[i] == unknown
        true, pred = 0 if true == unknown else true, 0 if rejected else pred
        low, high = min(low, true, pred), max(high, true, pred)
        was = np.int64(kind[i])
        kind[i] = was + rejected * (3 - (was >> 1)) * (was != 1)
    if low < 0 or high >= last:
        return False
    for i in range(len(kind)):
        met[np.uint64(last if y_true[i] == unknown else y_true[i])] = True
        met[np.uint64(last if y_pred[i] == unknown else y_pred[i])] = True
    return True


@njit(nogil=True, cache=True)
def pack_samples(
    score: Array, kind: Array, first: int, ranges: Array, last: Array, low: Array, high: Array, packed: Array
) -> int:
    """Write the samples that are in ranges to ``packed``: range, distance from its lowest key, kind; return how many.

    ``ranges`` are those of each bin from ``first - 1`` on, and ``last`` is the last of them.
    """
    block = np.empty(_BLOCK, dtype=np.float64)
    bits = block.view(np.int64)
    written = 0
    for begin in range(0, len(score), _BLOCK):
        n = min(_BLOCK, len(score) - begin)
        for i in range(n):  # a loop of its own, which the compiler turns into vector instructions
            block[i] = score[begin + i]
        for i in range(n):
            key = key_of(bits[i], _LARGEST)
            number = np.uint64(min(max((key >> _SHIFT) - first + 1, 0), len(ranges) - 1))
            place = max(np.int64(last[number]), np.int64(0))
            if ranges[number] > 1:
                least = place - ranges[number] + 1
                while least < place:
                    middle = (least + place + 1) >> 1
                    if low[middle] <= key:
                        least = middle
                    else:
                        place = middle - 1
            at = np.uint64(place)
            packed[written] = (place << _PLACE) + ((key - low[at]) << _KIND_BITS) + np.int64(kind[begin + i])
            written += (low[at] <= key) & (key <= high[at])  # else the next one takes its place
    return written


@njit(nogil=True, cache=True)
def settle(packed: Array, start: Array, n_known: int, n_unknown: int, limits: Array, columns: Array) -> int:
    """Write the columns of sorted samples, and return how many.

    There is one for each range, or several where it accepts more unknown samples than one of ``limits``: the score at
    which it does so has a column of its own.
    """
    column, range_, alone = -1, np.int64(-1), False
    known = correct = unknown = most = np.int64(0)  # accepted before a score, of all; largest gap of the column
    known_before = correct_before = unknown_before = np.int64(0)  # the column
    i = 0
    while i < len(packed):
        score = packed[i] >> _KIND_BITS
        wrong_here = correct_here = unknown_here = np.int64(0)
        while i < len(packed) and packed[i] >> _KIND_BITS == score:
            which = packed[i] & _KIND
            wrong_here += which == 0
            correct_here += which == 1
            unknown_here += which == 2
            i += 1
        known_here = wrong_here + correct_here
        fresh, alone = alone, False
        if score >> _DISTANCE_BITS != range_:
            range_, fresh = score >> _DISTANCE_BITS, True
            known, correct, unknown = start[range_]
        for limit in limits:
            alone |= unknown <= limit < unknown + unknown_here
        if fresh or alone:
            column += 1
            columns[column, 0] = score
            known_before, correct_before, unknown_before = known, correct, unknown
        to = columns[column]
        to[1] = score
        to[2] += wrong_here
        to[3] += correct_here
        to[4] += unknown_here
        to[5] += (correct - correct_before) * unknown_here
        to[6] += correct_here * unknown_here
        to[7] += (known - known_before) * unknown_here
        to[8] += known_here * unknown_here
        known, correct, unknown = known + known_here, correct + correct_here, unknown + unknown_here
        gap = (known - known_before) * n_unknown - (unknown - unknown_before) * n_known
        if columns[column, 0] == score or gap > most:
            most = gap
            to[9], to[10] = known, unknown
    return column + 1
