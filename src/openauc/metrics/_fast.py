"""Compiled loops behind the rank table: imported only where numba is installed and the input is large.

Every function releases the interpreter lock and sums integers, so the result equals the numpy path to the last bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from openauc.metrics.samples import CORRECT, UNKNOWN_KIND, key_of_bits

Array = NDArray[Any]
key_of: Any = njit(nogil=True, cache=True)(key_of_bits)


@njit(nogil=True, cache=True)
def argsort_bits(bits: Array) -> tuple[Array, Array]:
    """Stable order of the floats with these ``bits``, and the last rank of each group of equal ones.

    Radix sort, 11 bits at a time, idle digits skipped.
    """
    n = len(bits)
    largest = np.int64(np.iinfo(bits.dtype).max)
    smallest = np.uint64(~largest)  # unsigned differences may wrap around, signed ones must not
    key, key_other = np.empty_like(bits), np.empty_like(bits)
    order, order_other = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    digits = (bits.itemsize * 8 + 10) // 11
    counts = np.zeros((digits, 2048), dtype=np.int64)
    for i in range(n):
        k = key_of(bits[i], largest)
        key[i] = k
        order[i] = i
        for d in range(digits):
            counts[d, ((np.uint64(k) - smallest) >> np.uint64(11 * d)) & np.uint64(2047)] += 1
    for d in range(digits):
        count = counts[d]
        if count.max() == n:
            continue
        position = 0
        for b in range(2048):
            position, count[b] = position + count[b], position
        by = np.uint64(11 * d)
        for i in range(n):
            b = ((np.uint64(np.int64(key[i])) - smallest) >> by) & np.uint64(2047)
            target = count[b]
            count[b] += 1
            key_other[target] = key[i]
            order_other[target] = order[i]
        key, key_other = key_other, key
        order, order_other = order_other, order
    last = order_other  # no longer needed, and large enough
    groups = 0
    for i in range(n):
        last[groups] = i
        groups += i + 1 == n or key[i] != key[i + 1]
    return order, last[:groups]


@njit(nogil=True, cache=True)
def running_totals(
    pred: Array, kind: Array, last: Array, size: Array, negative: Array, scale: float
) -> tuple[Array, Array, Array, Array, Array, Array]:
    """Correct, accepted known and unknown samples and the sums over classes of precision, recall and fall-out.

    At every threshold, after a leading zero; samples come in rank order, tie groups end at ``last``. Rates are rounded
    to multiples of 1 / scale, whose sums do not depend on the order of tied samples.
    """
    n = len(last) + 1
    correct, known, unknown = np.empty(n), np.empty(n), np.empty(n)
    precision_sum, recall_sum, fallout_sum = np.empty(n), np.empty(n), np.empty(n)
    correct[0] = known[0] = unknown[0] = precision_sum[0] = recall_sum[0] = fallout_sum[0] = 0.0
    hits, accepted = np.zeros(len(size), np.int64), np.zeros(len(size), np.int64)
    precision, recall = np.zeros(len(size), np.int64), np.zeros(len(size), np.int64)
    fallout = np.zeros(len(size), np.int64)
    n_correct, n_known, n_unknown = 0, 0, 0
    p_sum, r_sum, f_sum = 0, 0, 0
    begin = 0
    for g in range(len(last)):
        for i in range(begin, last[g] + 1):
            c = pred[i]
            if c < 0:
                continue
            is_correct = kind[i] == CORRECT  # no branch on it: kinds come in any order
            is_unknown = kind[i] == UNKNOWN_KIND
            accepted[c] += 1
            hits[c] += is_correct
            n_correct += is_correct
            n_unknown += is_unknown
            n_known += not is_unknown
            now = np.int64(np.rint(hits[c] / accepted[c] * scale))
            p_sum += now - precision[c]
            precision[c] = now
            now = np.int64(np.rint(hits[c] / size[c] * scale))
            r_sum += now - recall[c]
            recall[c] = now
            now = np.int64(np.rint((accepted[c] - hits[c]) / negative[c] * scale))
            f_sum += now - fallout[c]
            fallout[c] = now
        begin = last[g] + 1
        correct[g + 1], known[g + 1], unknown[g + 1] = n_correct, n_known, n_unknown
        precision_sum[g + 1], recall_sum[g + 1], fallout_sum[g + 1] = p_sum / scale, r_sum / scale, f_sum / scale
    return correct, known, unknown, precision_sum, recall_sum, fallout_sum
