"""Compiled loops that sort scores and count pairs: imported only where numba is installed and the input is large.

Every loop releases the interpreter lock, so chunks are spread over plain threads. Counts are integers, so the result
equals the numpy path to the last bit.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
from numba import njit
from numba.extending import intrinsic
from numpy.typing import NDArray

from openauc.environment import cores, threads
from openauc.metrics.samples import UNKNOWN_KIND, key_of_bits, score_bits

Array = NDArray[Any]
key_of: Any = njit(nogil=True, cache=True)(key_of_bits)

_THREADS_FROM = 1 << 18  # samples
_KEEP_BYTES = 1 << 27  # of working memory, at most, from one call to the next
_CELL_BITS = 16  # at most: few enough cells to scatter into, and 16 bits left of any float32
_FEW = 16  # below this many candidates a linear scan beats a search
_BLOCK = 2048  # samples: a block and what it becomes stay in the first-level cache
_BIN_BITS = 15  # the table of bins stays in the second-level cache
_COUNTED_BITS = 16  # the counters of this many places stay in the first-level cache
_UPPER = np.uint64(0xAAAAAAAAAAAAAAAA)  # the upper bit of each two-bit counter of a word


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(cores(), thread_name_prefix="openauc")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # the threads do not live on in a forked process


def in_threads(function: Callable[[int], Any], n_tasks: int) -> list[Any]:
    """``[function(0), function(1), ...]``, the first here and the others in threads."""
    others = [_pool().submit(function, i) for i in range(1, n_tasks)]
    return [function(0), *(task.result() for task in others)]


def parts_of(n: int) -> list[slice]:
    """Parts of ``n`` samples, one for each thread."""
    edges = np.linspace(0, n, (threads() if n >= _THREADS_FROM else 1) + 1).astype(int).tolist()
    return [slice(a, b) for a, b in pairwise(edges)]


_kept: list[NDArray[np.uint8]] = []


@contextmanager
def _workspace(n_bytes: int) -> Iterator[NDArray[np.uint8]]:
    """Memory for one call, kept for the next unless it is large: fresh pages cost as much as the work done in them."""
    try:
        memory = _kept.pop()
    except IndexError:  # the first call, or another thread is just using it
        memory = np.empty(0, dtype=np.uint8)
    if len(memory) < n_bytes:
        memory = np.empty(n_bytes, dtype=np.uint8)
    yield memory
    if len(memory) <= _KEEP_BYTES:
        _kept[:] = [memory]


def count_pairs(score: NDArray[Any], kind: NDArray[np.uint8], first_kind: int) -> tuple[int, int]:
    """Pairs known < unknown and known == unknown; known samples of a kind before ``first_kind`` are left out.

    Radix partition of both sides by their leading bits, then counting inside each small cell.
    """
    bits = score_bits(score)
    with _workspace(2 * bits.nbytes) as memory:
        keys, rest = memory[: bits.nbytes].view(bits.dtype), memory[bits.nbytes : 2 * bits.nbytes]
        chunks = parts_of(len(bits))

        def split(i: int) -> tuple[tuple[NDArray[Any], NDArray[Any]], int, int]:
            own = keys[chunks[i]]
            n_known, n_unknown, low, high = split_keys(bits[chunks[i]], kind[chunks[i]], first_kind, own)
            return (own[:n_known], own[len(own) - n_unknown :]), int(low), int(high)

        sides, lows, highs = zip(*in_threads(split, len(chunks)), strict=True)
        low, high = min(lows), max(highs)
        cell_bits = min(_CELL_BITS, max(4, len(bits).bit_length() - 8))
        shift = max(0, (high - low).bit_length() - cell_bits)
        n_cells = ((high - low) >> shift) + 1
        grid = (np.uint64(low % 2**64), np.uint64(shift))

        counts = np.zeros((len(chunks), 2, n_cells), dtype=np.int64)
        in_threads(lambda i: [histogram(sides[i][s], *grid, counts[i, s]) for s in (0, 1)], len(chunks))
        starts, positions = layout(counts)
        spots = rest.view(np.min_scalar_type((1 << shift) - 1))
        places = spots[: starts[0, -1]], spots[starts[0, -1] : starts[:, -1].sum()]
        in_threads(lambda i: [scatter(sides[i][s], *grid, positions[i, s], places[s]) for s in (0, 1)], len(chunks))

        # Each thread takes neighbouring cells that hold about the same number of samples.
        shares = np.linspace(0, starts[:, -1].sum(), len(chunks) + 1)[1:-1]
        edges = [0, *np.searchsorted(starts.sum(axis=0), shares).tolist(), n_cells]

        def count(i: int) -> tuple[int, int]:
            return count_cells(places[0], places[1], starts[0], starts[1], edges[i], edges[i + 1], grid[1])

        results = in_threads(count, len(chunks))
        return sum(int(r[0]) for r in results), sum(int(r[1]) for r in results)


@njit(nogil=True, cache=True)
def split_keys(bits: Array, kind: Array, first_kind: int, keys: Array) -> tuple[int, int, int, int]:
    """Fill ``keys`` from the front (known) and the back (unknown); returns both numbers, smallest and largest key."""
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
    """Sort the keys into cells, each beginning at its ``position``; only their last ``shift`` bits are written."""
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
    """Pairs among the places of one cell, with a counter of two bits for each place, and the length of ``crowd``.

    ``crowd`` takes the known places that found their counter full.
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
    """Stable order of the floats with these ``bits`` (radix sort), and the last rank of each group of equal ones."""
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
