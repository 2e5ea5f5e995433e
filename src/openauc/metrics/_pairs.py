"""How many (known, unknown) pairs are ranked right, counted without a rank table.

With numba installed, large inputs go through ``_fast``; the result is the same to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from openauc.metrics._backend import fast_backend, in_threads, parts_of
from openauc.metrics.samples import CORRECT, UNKNOWN_KIND, WRONG, Samples, score_bits

_CHUNK = 1 << 20
_KEEP_BYTES = 1 << 27  # of working memory, at most, from one call to the next
_CELL_BITS = 16  # at most: few enough cells to scatter into, and 16 bits left of any float32


def count_pairs(samples: Samples, *, with_wrong: bool) -> tuple[int, int]:
    """Pairs (known, unknown) with ``known < unknown`` and with ``known == unknown``, by score.

    Misclassified known samples take part only ``with_wrong`` (AUROC); OpenAUC leaves them out.
    """
    fast = fast_backend(len(samples.score))
    if fast is None:
        return _count_pairs_numpy(samples, with_wrong)
    return _count_pairs_fast(fast, samples, with_wrong)


def _count_pairs_numpy(samples: Samples, with_wrong: bool) -> tuple[int, int]:
    is_unknown = samples.kind == UNKNOWN_KIND
    known = np.sort(samples.score[~is_unknown if with_wrong else samples.kind == CORRECT])
    unknown = np.sort(samples.score[is_unknown])  # sorted needles walk through memory in order
    below = up_to = 0
    for start in range(0, len(unknown), _CHUNK):
        part = unknown[start : start + _CHUNK]
        below += int(np.searchsorted(known, part, side="left").sum())
        up_to += int(np.searchsorted(known, part, side="right").sum())
    return below, up_to - below


def _count_pairs_fast(fast: ModuleType, samples: Samples, with_wrong: bool) -> tuple[int, int]:
    bits = score_bits(samples.score)
    with _workspace(2 * bits.nbytes) as memory:
        return _count_in_cells(fast, bits, samples.kind, WRONG if with_wrong else CORRECT, memory)


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


def _count_in_cells(
    fast: ModuleType,
    bits: NDArray[np.signedinteger],
    kind: NDArray[np.uint8],
    first_kind: int,
    memory: NDArray[np.uint8],
) -> tuple[int, int]:
    """Radix partition of both sides by their leading bits, then counting inside each small cell."""
    keys, rest = memory[: bits.nbytes].view(bits.dtype), memory[bits.nbytes : 2 * bits.nbytes]
    chunks = parts_of(len(bits))

    def split(i: int) -> tuple[tuple[NDArray[Any], NDArray[Any]], int, int]:
        own = keys[chunks[i]]
        n_known, n_unknown, low, high = fast.split_keys(bits[chunks[i]], kind[chunks[i]], first_kind, own)
        return (own[:n_known], own[len(own) - n_unknown :]), int(low), int(high)

    sides, lows, highs = zip(*in_threads(split, len(chunks)), strict=True)
    low, high = min(lows), max(highs)
    cell_bits = min(_CELL_BITS, max(4, len(bits).bit_length() - 8))
    shift = max(0, (high - low).bit_length() - cell_bits)
    n_cells = ((high - low) >> shift) + 1
    grid = (np.uint64(low % 2**64), np.uint64(shift))

    counts = np.zeros((len(chunks), 2, n_cells), dtype=np.int64)
    in_threads(lambda i: [fast.histogram(sides[i][s], *grid, counts[i, s]) for s in (0, 1)], len(chunks))
    starts, positions = fast.layout(counts)
    spots = rest.view(np.min_scalar_type((1 << shift) - 1))
    places = spots[: starts[0, -1]], spots[starts[0, -1] : starts[:, -1].sum()]
    in_threads(lambda i: [fast.scatter(sides[i][s], *grid, positions[i, s], places[s]) for s in (0, 1)], len(chunks))

    # Each thread takes neighbouring cells that hold about the same number of samples.
    shares = np.linspace(0, starts[:, -1].sum(), len(chunks) + 1)[1:-1]
    edges = [0, *np.searchsorted(starts.sum(axis=0), shares).tolist(), n_cells]
    results = in_threads(lambda i: fast.count_cells(*places, *starts, edges[i], edges[i + 1], grid[1]), len(chunks))
    return sum(int(r[0]) for r in results), sum(int(r[1]) for r in results)
