"""The compiled loop behind ``rows``: imported only where numba is installed and the input is large."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from openauc.metrics._fast import key_of

Array = NDArray[Any]
_BLOCK = 1024  # samples whose keys stay in the first-level cache
_LOW, _HIGH, _NUMBER = 5, 6, 7
_LARGEST = np.int64(2**63 - 1)
_EMPTY = _LARGEST
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # multiplicative hashing


@njit(nogil=True, cache=True)
def count_bins(score: Array, kind: Array, start: int, shift: int, cells: Array, used: int) -> tuple[int, int]:
    """Count samples from ``start`` on into a hash table of bins; stop where it is half full.

    A cell has five counts, the smallest and largest key, and the number of its bin. Returns the sample at which the
    loop ended and how many cells are used.
    """
    block = np.empty(_BLOCK, dtype=np.float64)
    bits = block.view(np.int64)
    mask, drop = np.uint64(len(cells) - 1), np.uint64(64 - round(np.log2(len(cells))))
    for begin in range(start, len(score), _BLOCK):
        n = min(_BLOCK, len(score) - begin)
        for i in range(n):  # a loop of its own, which the compiler turns into vector instructions
            block[i] = score[begin + i]
        for i in range(n):
            key = key_of(bits[i], _LARGEST)
            number = key >> shift
            at = (np.uint64(number) * _GOLDEN) >> drop
            while cells[at, _NUMBER] != number:
                if cells[at, _NUMBER] == _EMPTY:
                    if 2 * used >= len(cells):
                        return begin + i, used
                    cells[at, _NUMBER] = number
                    used += 1
                else:
                    at = (at + np.uint64(1)) & mask
            cells[at, np.uint64(kind[begin + i])] += 1
            cells[at, _LOW] = min(cells[at, _LOW], key)
            cells[at, _HIGH] = max(cells[at, _HIGH], key)
    return len(score), used
