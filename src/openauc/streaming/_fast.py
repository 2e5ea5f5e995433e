"""Compiled loops behind ``bins``: imported only where numba is installed and the input is large."""

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
