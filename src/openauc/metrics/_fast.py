"""Compiled loops behind ``_pairs`` and ``rank_table``: imported only where numba is installed and the input is large.

Every function releases the interpreter lock, so ``_pairs`` spreads chunks over plain threads, and returns
integers (or sums taken in the same order as numpy's), so the result equals the numpy path to the last bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numba.extending import intrinsic
from numpy.typing import NDArray

Array = NDArray[Any]
CORRECT, UNKNOWN_KIND = 1, 2
_FEW = 16  # below this many candidates a linear scan beats a search
_BLOCK = 2048  # samples: a block and what it becomes stay in the first-level cache
_BIN_BITS = 15  # the table of bins stays in the second-level cache
_COUNTED_BITS = 16  # the counters of this many places stay in the first-level cache
_UPPER = np.uint64(0xAAAAAAAAAAAAAAAA)  # the upper bit of each two-bit counter of a word


@njit(nogil=True, cache=True)
def mark_kinds(y_true: Array, y_pred: Array, unknown: int, kind: Array) -> tuple[int, int, int]:
    """Fill ``kind``; return the smallest label of a known sample and the numbers of correct and unknown samples."""
    largest = np.int64(np.iinfo(np.int64).max)
    smallest, n_correct, n_unknown = largest, 0, 0
    for i in range(len(y_true)):  # no branch on the data: labels come in any order
        label = np.int64(y_true[i])
        is_unknown = label == unknown
        is_correct = (label == y_pred[i]) & (not is_unknown)
        kind[i] = 2 * is_unknown + is_correct
        n_correct += is_correct
        n_unknown += is_unknown
        smallest = min(smallest, largest if is_unknown else label)
    return smallest, n_correct, n_unknown


@njit(nogil=True, cache=True)
def key_of(bits: Any, largest: Any) -> Any:
    """Integer in the order of the float with these ``bits``; -0.0 and 0.0 share one key.

    ``bits`` is the float read as a signed integer, ``largest`` the largest such integer, taken from the array's type
    where it is used: a constant to the compiler, which an argument would not be.
    """
    wide = np.int64(bits)
    return (wide ^ ((wide >> 63) & largest)) + (wide == ~largest)


@njit(nogil=True, cache=True)
def split_keys(bits: Array, kind: Array, first_kind: int, keys: Array) -> tuple[int, int, int, int]:
    """Fill ``keys`` with those of known samples from the front and of unknown ones from the back.

    Known samples of a kind before ``first_kind`` are left out. Returns how many keys there are on either side, and the
    smallest and largest key of all samples.
    """
    largest = np.int64(np.iinfo(bits.dtype).max)
    low = high = key_of(bits[0], largest)
    n_known, back = np.uint64(0), np.uint64(len(keys) - 1)  # numba tests a signed index for being negative
    block = np.empty(_BLOCK, dtype=bits.dtype)
    for begin in range(0, len(bits), _BLOCK):
        end = min(begin + _BLOCK, len(bits))
        for i in range(begin, end):  # a loop of its own, which the compiler turns into vector instructions
            key = key_of(bits[i], largest)
            low = min(low, key)
            high = max(high, key)
            block[i - begin] = key
        for i in range(begin, end):  # no branch on the kind: a key goes to both free places, one of which is kept
            keys[n_known] = keys[back] = block[i - begin]
            n_known += np.uint64((kind[i] >= first_kind) & (kind[i] < UNKNOWN_KIND))
            back -= np.uint64(kind[i] == UNKNOWN_KIND)
    return np.int64(n_known), len(keys) - 1 - np.int64(back), low, high


@njit(nogil=True, cache=True)
def histogram(keys: Array, low: Any, shift: Any, counts: Array) -> None:
    """How many keys fall into each cell of their range."""
    for key in keys:
        counts[(np.uint64(np.int64(key)) - low) >> shift] += 1


@njit(nogil=True, cache=True)
def layout(counts: Array) -> tuple[Array, Array]:
    """Where each cell of each side starts, and where in it each chunk begins; ``counts`` is (chunk, side, cell)."""
    n_chunks, n_sides, n_cells = counts.shape
    starts, positions = np.empty((n_sides, n_cells + 1), dtype=np.int64), np.empty_like(counts)
    for side in range(n_sides):
        at = 0
        for cell in range(n_cells):
            starts[side, cell] = at
            for chunk in range(n_chunks):
                positions[chunk, side, cell] = at
                at += counts[chunk, side, cell]
        starts[side, n_cells] = at
    return starts, positions


@njit(nogil=True, cache=True)
def scatter(keys: Array, low: Any, shift: Any, position: Array, places: Array) -> None:
    """Sort the keys into cells, each beginning at its ``position``.

    What is written is the place of a key in its cell, its last ``shift`` bits: often half the memory of the score.
    """
    mask = (np.uint64(1) << shift) - np.uint64(1)
    for key in keys:
        offset = np.uint64(np.int64(key)) - low
        cell = offset >> shift
        at = position[cell]
        places[np.uint64(at)] = offset & mask
        position[cell] = at + 1


@njit(nogil=True, cache=True)
def _is_sorted(values: Array) -> bool:
    for i in range(1, len(values)):  # noqa: SIM110  numba compiles no generators into all()
        if values[i] < values[i - 1]:
            return False
    return True


def _count_bits(context: Any, word: Any) -> Any:
    """How many bits of a word are set: one instruction, which numba does not offer by name."""
    return word(word), lambda context, builder, signature, arguments: builder.ctpop(arguments[0])


_popcount: Any = intrinsic(_count_bits)


@njit(nogil=True, cache=True)
def _pairs_by_counters(
    known: Array, unknown: Array, counters: Array, below: Array, crowd: Array
) -> tuple[int, int, int]:
    """Number of pairs among the places of one cell, and of known places that found their counter full.

    Each possible place has a counter of two bits; 32 of them make a word, so that two counts of set bits tell how many
    known samples lie below a place. Places met more than three times end in ``crowd``, for another to count.
    """
    one, three, in_word, word_bits = np.uint64(1), np.uint64(3), np.uint64(31), np.uint64(5)
    counters[:] = 0
    n_crowd = 0
    for k in known:
        at, bit = np.uint64(k) >> word_bits, (np.uint64(k) & in_word) << one
        word = counters[at]
        full = (word >> bit) & three == three
        crowd[n_crowd] = k
        n_crowd += full
        counters[at] = word + (np.uint64(not full) << bit)
    total = np.uint64(0)
    for at in range(len(counters)):
        below[at] = total
        total += _popcount(counters[at]) + _popcount(counters[at] & _UPPER)
    less, equal = np.uint64(0), np.uint64(0)
    for u in unknown:
        at, bit = np.uint64(u) >> word_bits, (np.uint64(u) & in_word) << one
        word = counters[at]
        lower = word & ((one << bit) - one)
        less += np.uint64(below[at]) + _popcount(lower) + _popcount(lower & _UPPER)
        equal += (word >> bit) & three
    return np.int64(less), np.int64(equal), n_crowd


@njit(nogil=True, cache=True)
def _pairs_by_bins(known: Array, unknown: Array, scratch: Array, shift: Any, starts: Array) -> tuple[int, int]:
    """Number of pairs known < unknown and known == unknown among the places of one cell."""
    n = len(known)
    less, equal = 0, 0
    if n <= _FEW:
        for u in unknown:
            for k in known:
                less += k < u
                equal += k == u
        return less, equal

    # Counting sort of the known places into about twice as many bins as there are places.
    bits = 5
    while bits < _BIN_BITS and (1 << bits) < 2 * n:
        bits += 1
    bits = min(bits, np.int64(shift))
    bin_shift = shift - np.uint64(bits)
    n_bins = 1 << bits
    one, two = np.uint64(1), np.uint64(2)
    starts[: n_bins + 2] = 0
    for k in known:
        starts[(np.uint64(k) >> bin_shift) + two] += 1
    widest, total = 0, 0
    for b in range(2, n_bins + 2):
        count = np.int64(starts[b])
        widest = max(widest, count)
        total += count
        starts[b] = total
    for k in known:  # leaves starts[b] at the beginning of bin b
        b = (np.uint64(k) >> bin_shift) + one
        at = starts[b]
        scratch[at] = k
        starts[b] = at + one
    if widest > _FEW:
        for b in range(n_bins):
            crowded = scratch[starts[b] : starts[b + 1]]
            if len(crowded) > _FEW and not _is_sorted(crowded):
                crowded.sort()

    for u in unknown:
        b = np.uint64(u) >> bin_shift
        begin, end = np.int64(starts[b]), np.int64(starts[b + one])
        less += begin
        if end - begin > _FEW:
            below = np.searchsorted(scratch[begin:end], u, side="left")
            less += below
            equal += np.searchsorted(scratch[begin:end], u, side="right") - below
        else:
            # The first candidate without a branch: most bins hold none or one.
            candidate = scratch[min(begin, n - 1)]
            less += (end > begin) & (candidate < u)
            equal += (end > begin) & (candidate == u)
            for j in range(begin + 1, end):
                less += scratch[j] < u
                equal += scratch[j] == u
    return less, equal


@njit(nogil=True, cache=True)
def count_cells(
    known: Array, unknown: Array, known_start: Array, unknown_start: Array, first: int, last: int, shift: Any
) -> tuple[int, int]:
    """Number of pairs known < unknown and known == unknown, for the unknown samples in cells first..last-1."""
    starts = np.zeros((1 << _BIN_BITS) + 2, dtype=np.uint32)
    widest = 0
    for cell in range(first, last):
        widest = max(widest, known_start[cell + 1] - known_start[cell])
    scratch = np.empty(widest, dtype=known.dtype)  # of one cell, so that it stays in the cache
    crowd = np.empty(widest + 1, dtype=known.dtype)
    place_bits: Any = np.int64(shift)  # signed, as the constants it meets are
    n_words = 1 << max(0, min(place_bits, _COUNTED_BITS) - 5)
    counters, below = np.empty(n_words, dtype=np.uint64), np.empty(n_words, dtype=np.uint32)
    less, equal = 0, 0
    for cell in range(first, last):
        a, b = known_start[cell], known_start[cell + 1]
        c, d = unknown_start[cell], unknown_start[cell + 1]
        if c == d:
            continue
        less += a * (d - c)
        if shift == 0:  # a cell holds one value only
            equal += (b - a) * (d - c)
            continue
        left = known[a:b]
        # Enough samples to be worth the counters, few enough that most counters will hold theirs.
        if place_bits <= _COUNTED_BITS and _FEW < b - a <= 16 * n_words < 16 * (b - a + d - c):
            in_cell = _pairs_by_counters(left, unknown[c:d], counters, below, crowd)
            less += in_cell[0]
            equal += in_cell[1]
            left = crowd[: in_cell[2]]
        if len(left) > 0:
            others = _pairs_by_bins(left, unknown[c:d], scratch, shift, starts)
            less += others[0]
            equal += others[1]
    return less, equal


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
def accepted_counts(kind: Array, last: Array) -> tuple[Array, Array, Array]:
    """Known, correct and unknown samples up to the end of every tie group, after a leading zero."""
    n = len(last) + 1
    known, correct, unknown = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
    known[0] = correct[0] = unknown[0] = 0
    n_correct, n_unknown, begin = 0, 0, 0
    for g in range(len(last)):
        for i in range(begin, last[g] + 1):
            n_correct += kind[i] == CORRECT
            n_unknown += kind[i] == UNKNOWN_KIND
        begin = last[g] + 1
        known[g + 1], correct[g + 1], unknown[g + 1] = begin - n_unknown, n_correct, n_unknown
    return known, correct, unknown


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


@njit(nogil=True, cache=True)
def average_precision(positive: Array, negative: Array, from_top: bool) -> float:
    """Sum of precision times positives gained, over the columns of two cumulative counts."""
    total = 0.0
    last = len(positive) - 1
    for g in range(last):
        hits = positive[last] - positive[g] if from_top else positive[g + 1]
        misses = negative[last] - negative[g] if from_top else negative[g + 1]
        if hits > 0:
            total += hits / (hits + misses) * (positive[g + 1] - positive[g])
    return total
