"""The single sort-and-count pass behind every ranking metric.

Two products, both integers until the very last division:

* ``count_pairs``: how many (known, unknown) pairs are ranked right, when that is all one needs;
* ``Ranking``: the samples in order of their score, sorted once, from which ``RankTable`` (counts of accepted
  samples at every distinct threshold) follows for the data themselves or for any bootstrap re-weighting.

With numba installed, large inputs go through ``_fast``; the result is the same to the last bit.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from openauc import _validation as check
from openauc._validation import Label

WRONG, CORRECT, UNKNOWN_KIND = 0, 1, 2
_FAST = "openauc.metrics._fast"
_LOAD_FAST_FROM = 1 << 17  # samples; importing numba costs as much as numpy needs for this many
_USE_FAST_FROM = 1 << 12
_THREADS_FROM = 1 << 18
_CHUNK = 1 << 20
_KEEP_BYTES = 1 << 27  # of working memory, at most, from one call to the next
_CELL_BITS = 16  # at most: few enough cells to scatter into, and 16 bits left of any float32
Ints = NDArray[np.int64]
T = TypeVar("T")


def fast_backend(work: int) -> ModuleType | None:
    """The compiled kernel, if it is installed and ``work`` (samples to pass over) is worth its start-up."""
    choice = os.environ.get("OPENAUC_BACKEND", "auto")
    check.check_choice("the environment variable OPENAUC_BACKEND", choice, ("auto", "numpy", "numba"))
    if choice == "numpy" or (choice == "auto" and work < _USE_FAST_FROM):
        return None
    unloaded = choice == "auto" and _FAST not in sys.modules
    if unloaded and (work < _LOAD_FAST_FROM or importlib.util.find_spec("numba") is None):
        return None
    return importlib.import_module(_FAST)  # waits where another thread is just importing it


def n_threads() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(n_threads(), thread_name_prefix="openauc")


def in_threads(function: Callable[[int], T], n_tasks: int) -> list[T]:
    """``[function(0), function(1), ...]``, in threads: numpy and ``_fast`` release the interpreter lock."""
    others = [_pool().submit(function, i) for i in range(1, n_tasks)]
    return [function(0), *(task.result() for task in others)]


# --- reading the triple ---------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Samples:
    """The checked triple, with each sample marked wrong, correct or unknown."""

    y_true: NDArray[Any]
    y_pred: NDArray[Any]
    score: NDArray[Any]
    kind: NDArray[np.uint8]
    unknown_label: Label
    n_known: int
    n_correct: int
    n_unknown: int

    def triple(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """The triple with unknown samples marked by the default label, as any metric function takes it."""
        if self.unknown_label == check.UNKNOWN:
            return self.y_true, self.y_pred, self.score
        mark: Any = str(check.UNKNOWN) if self.y_true.dtype.kind == "U" else check.UNKNOWN
        true, pred = (
            np.where(check.is_label(labels, self.unknown_label), mark, labels) for labels in (self.y_true, self.y_pred)
        )
        return true, pred, self.score


def read_samples(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    open_score: ArrayLike,
    *,
    unknown_label: Label = check.UNKNOWN,
    need_unknown: bool = True,
) -> Samples:
    """Check the triple and mark its samples."""
    unknown_label = check.as_label(unknown_label)
    true, pred = check.same_label_type(check.as_labels("y_true", y_true), check.as_labels("y_pred", y_pred))
    score = check.as_scores("open_score", open_score)
    check.check_same_length(y_true=true, y_pred=pred, open_score=score)
    kind, n_correct, n_unknown = _mark_kinds(true, pred, unknown_label)
    n_known = len(kind) - n_unknown
    check.require_samples(n_known, n_unknown, unknown_label, unknown=need_unknown)
    return Samples(true, pred, score, kind, unknown_label, n_known, n_correct, n_unknown)


def _mark_kinds(y_true: NDArray[Any], y_pred: NDArray[Any], unknown_label: Label) -> tuple[NDArray[np.uint8], int, int]:
    """Kind of each sample, and the numbers of correct and of unknown ones."""
    n = len(y_true)
    fast = fast_backend(n) if y_true.dtype.kind == "i" and isinstance(unknown_label, int) else None
    if fast is not None and y_true.dtype == y_pred.dtype and y_true.dtype.itemsize >= 4:
        kind = np.empty(n, dtype=np.uint8)
        parts = _chunks(n)

        def mark(i: int) -> tuple[int, int, int]:
            found: tuple[int, int, int] = fast.mark_kinds(
                y_true[parts[i]], y_pred[parts[i]], unknown_label, kind[parts[i]]
            )
            return found

        found = in_threads(mark, len(parts))
        smallest, n_correct, n_unknown = min(f[0] for f in found), sum(f[1] for f in found), sum(f[2] for f in found)
    else:
        unknown = check.is_label(y_true, unknown_label)
        kind = (y_true == y_pred).view(np.uint8)
        np.maximum(kind, UNKNOWN_KIND * unknown.view(np.uint8), out=kind)
        smallest = int(y_true.min(initial=0)) if y_true.dtype.kind == "i" else 0
        if smallest == unknown_label:
            smallest = int(y_true[~unknown].min(initial=0)) if smallest < -1 else 0
        n_unknown = int(np.count_nonzero(unknown))
        n_correct = int(np.count_nonzero(kind == CORRECT))
    if smallest < 0:
        raise ValueError(
            f"y_true contains the label {smallest}; known classes are labelled from 0 and unknown samples "
            f"{unknown_label!r}. Relabel the samples or set unknown_label."
        )
    return kind, int(n_correct), int(n_unknown)


def _chunks(n: int) -> list[slice]:
    parts = n_threads() if n >= _THREADS_FROM else 1
    edges = np.linspace(0, n, parts + 1).astype(int).tolist()
    return [slice(a, b) for a, b in pairwise(edges)]


# --- counting pairs -------------------------------------------------------------------------------------


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


def _bits(score: NDArray[Any]) -> NDArray[np.signedinteger]:
    return np.ascontiguousarray(score).view(f"i{score.dtype.itemsize}")


def _count_pairs_fast(fast: ModuleType, samples: Samples, with_wrong: bool) -> tuple[int, int]:
    bits = _bits(samples.score)
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
    chunks = _chunks(len(bits))

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


# --- ranking once, counting often -----------------------------------------------------------------------


class RankTable(NamedTuple):
    """Accepted samples (score <= threshold) at every distinct threshold.

    Column 0 rejects every sample (threshold ``-inf``), the last column accepts every sample. The counts have
    shape (..., T): leading axes, if any, are bootstrap replicates.
    """

    threshold: NDArray[np.float64]
    known: Ints
    correct: Ints
    unknown: Ints

    @property
    def n_known(self) -> Ints:
        return self.known[..., -1]

    @property
    def n_unknown(self) -> Ints:
        return self.unknown[..., -1]


@dataclass(frozen=True, eq=False)
class Ranking:
    """Samples in order of rising score, sorted once; ties form groups that end at ``last``."""

    samples: Samples
    order: Ints
    last: Ints

    @cached_property
    def kind(self) -> NDArray[np.uint8]:
        """Kind of each sample, in rank order."""
        return self.samples.kind[self.order]

    @cached_property
    def threshold(self) -> NDArray[np.float64]:
        """``-inf`` (reject all), then the distinct scores."""
        distinct = self.samples.score[self.order[self.last]].astype(np.float64)
        return np.concatenate([[-np.inf], distinct])

    @cached_property
    def table(self) -> RankTable:
        """Counts of the data themselves."""
        unknown = self.kind == UNKNOWN_KIND
        return RankTable(
            self.threshold,
            self.at_thresholds(~unknown),
            self.at_thresholds(self.kind == CORRECT),
            self.at_thresholds(unknown),
        )

    @cached_property
    def group(self) -> Ints:
        """Column of the table in which each sample, in rank order, is first accepted."""
        sizes = np.diff(self.last, prepend=-1)
        return np.repeat(np.arange(1, len(self.last) + 1), sizes)

    def at_thresholds(self, value: NDArray[Any]) -> NDArray[Any]:
        """Running total, in rank order, of one ``value`` per sample, read at every threshold."""
        total = np.cumsum(value, axis=-1, dtype=np.float64 if value.dtype.kind == "f" else np.int64)
        return np.concatenate([np.zeros_like(total[..., :1]), total[..., self.last]], axis=-1)


def rank(samples: Samples) -> Ranking:
    """Sort the samples by score, stably."""
    fast = fast_backend(len(samples.score))
    if fast is not None:
        return Ranking(samples, *fast.argsort_bits(_bits(samples.score)))
    order = np.argsort(samples.score, kind="stable")
    ascending = samples.score[order]
    last = np.append(np.flatnonzero(ascending[1:] != ascending[:-1]), len(order) - 1)
    return Ranking(samples, order, last)


# --- bootstrap by re-weighting --------------------------------------------------------------------------


class Scratch:
    """Arrays a thread uses again from block to block: fresh memory costs more than the work done in it."""

    def __init__(self) -> None:
        self._arrays: dict[str, NDArray[Any]] = {}

    def __call__(self, name: str, shape: tuple[int, ...], dtype: type) -> NDArray[Any]:
        """An uninitialised array, valid until the next call with this name."""
        array = self._arrays.get(name)
        if array is None or array.shape != shape or array.dtype != dtype:
            array = self._arrays[name] = np.empty(shape, dtype=dtype)
        return array


@dataclass(frozen=True, eq=False)
class Resampling:
    """Bootstrap multiplicities in blocks of replicates (rows) by samples (columns, in the order of ``stratum``).

    Each stratum (known and unknown samples, say) is resampled apart, so every replicate keeps its size. Each draw is a
    hash of (seed, replicate, position): blocks can be made in any order, in any thread and by either backend. A byte
    holds a multiplicity: of up to 255 samples by necessity, of more with a probability beyond 1 - 1e-500.
    """

    stratum: NDArray[np.integer]
    n_replicates: int
    seed: int

    @cached_property
    def _strata(self) -> tuple[Ints, Ints]:
        """Samples stratum by stratum, and where each stratum begins and ends."""
        sizes = np.bincount(self.stratum)
        return np.argsort(self.stratum, kind="stable"), np.concatenate([[0], np.cumsum(sizes)])

    @property
    def rows(self) -> int:
        """Replicates per block: as many as keep a block small."""
        return max(1, min(self.n_replicates, _CHUNK // (4 * len(self.stratum))))

    def __len__(self) -> int:
        return -(-self.n_replicates // self.rows)

    def weights(self, block: int, scratch: Scratch) -> NDArray[np.uint8]:
        """How often each replicate of a block draws each sample."""
        first = block * self.rows
        strata, bounds = self._strata
        weights = scratch("weights", (min(self.rows, self.n_replicates - first), len(self.stratum)), np.uint8)
        fast = fast_backend(len(self.stratum) * self.n_replicates // 64)
        draw = _draw_weights_numpy if fast is None else fast.draw_weights
        draw(np.uint64(self.seed), first, strata, bounds, weights)
        return weights

    def map(self, function: Callable[[NDArray[np.uint8], Scratch], NDArray[Any]]) -> NDArray[Any]:
        """``function`` of the weights of every block, in threads, joined along the replicates (the first axis)."""
        self._strata  # noqa: B018  computed once, before the threads ask for it
        n_tasks = min(n_threads(), len(self))

        def work(i: int) -> list[NDArray[Any]]:
            scratch = Scratch()
            return [function(self.weights(block, scratch), scratch) for block in range(i, len(self), n_tasks)]

        parts = in_threads(work, n_tasks)
        return np.concatenate([parts[b % n_tasks][b // n_tasks] for b in range(len(self))])


def _draw_weights_numpy(seed: np.uint64, first: int, strata: Ints, bounds: Ints, weights: NDArray[np.uint8]) -> None:
    rows, n = weights.shape
    counter = np.arange(first * n, (first + rows) * n, dtype=np.uint64).reshape(rows, n)
    z = seed + counter * np.uint64(0x9E3779B97F4A7C15)  # splitmix64
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    uniform = ((z ^ (z >> np.uint64(31))) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    sizes = np.diff(bounds)
    begin, size = np.repeat(bounds[:-1], sizes), np.repeat(sizes, sizes)
    pick = (uniform * size).astype(np.int64) + begin
    cells = strata[pick] + np.arange(rows)[:, None] * n
    weights[:] = np.bincount(cells.ravel(), minlength=rows * n).reshape(rows, n)


def weighted_table(ranking: Ranking, weights: NDArray[np.uint8], scratch: Scratch) -> RankTable:
    """``ranking.table`` with every sample counted as often as a replicate drew it."""
    fast = fast_backend(weights.size)
    if fast is not None:
        shape = (len(weights), len(ranking.last) + 1)
        known, correct, unknown = (scratch(name, shape, np.int32) for name in ("known", "correct", "unknown"))
        fast.accumulate(weights, ranking.kind, ranking.last, known, correct, unknown)
        return RankTable(ranking.threshold, known, correct, unknown)
    is_unknown = ranking.kind == UNKNOWN_KIND
    return RankTable(
        ranking.threshold,
        ranking.at_thresholds(weights * ~is_unknown),
        ranking.at_thresholds(weights * (ranking.kind == CORRECT)),
        ranking.at_thresholds(weights * is_unknown),
    )


def average_precision_sum(positive: Ints, negative: Ints, *, from_top: bool) -> NDArray[np.float64]:
    """Sum over the thresholds of precision times the number of positives gained.

    ``positive`` and ``negative`` count accepted samples at rising thresholds, (..., T). Alarms go to the accepted
    samples, or ``from_top`` to the rejected ones.
    """
    fast = fast_backend(positive.size)
    if fast is not None:
        rows = (counts.reshape(-1, counts.shape[-1]) for counts in (positive, negative))
        total: NDArray[np.float64] = fast.average_precision(*rows, from_top)
        return total.reshape(positive.shape[:-1])
    if from_top:
        hits, misses = (counts[..., -1:] - counts[..., :-1] for counts in (positive, negative))
    else:
        hits, misses = positive[..., 1:], negative[..., 1:]
    # A replicate may draw no sample at the outermost scores: no alarm, and nothing gained.
    terms = hits / np.maximum(hits + misses, 1) * np.diff(positive, axis=-1)
    return np.asarray(np.cumsum(terms, axis=-1)[..., -1])  # in order, as the compiled loop adds


def largest_gap(one: Ints, other: Ints) -> Ints:
    """Largest difference of two cumulative shares, times both totals: max of one * other[-1] - other * one[-1]."""
    fast = fast_backend(one.size)
    if fast is not None:
        rows = (counts.reshape(-1, counts.shape[-1]) for counts in (one, other))
        gap: Ints = fast.largest_gap(*rows)
        return gap.reshape(one.shape[:-1])
    total, other_total = (counts[..., -1:].astype(np.int64) for counts in (one, other))
    return np.asarray((one * other_total - other * total).max(axis=-1))


def tally(weights: NDArray[np.uint8], cell: NDArray[np.integer], n_cells: int) -> Ints:
    """Weighted number of samples in each cell, per replicate; negative cells are left out."""
    counts = np.zeros((len(weights), n_cells), dtype=np.int64)
    fast = fast_backend(weights.size)
    if fast is not None:
        fast.tally(weights, cell, counts)
        return counts
    inside = cell >= 0
    for row, weight in zip(counts, weights, strict=True):
        row += np.bincount(cell[inside], weights=weight[inside], minlength=n_cells).astype(np.int64)
    return counts
