"""The single sort-and-count pass behind every ranking metric.

Two products, both integers until the very last division:

* ``count_pairs``: how many (known, unknown) pairs are ranked right, when that is all one needs;
* ``Ranking``: the samples in order of their score, sorted once, from which ``RankTable`` (counts of accepted
  samples at every distinct threshold) follows.

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
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import pairwise
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from openauc import _validation as check
from openauc._validation import Label
from openauc.environment import cores, threads

WRONG, CORRECT, UNKNOWN_KIND = 0, 1, 2
_FAST = "openauc.metrics._fast"
_LOAD_FAST_FROM = 1 << 17  # samples; importing numba costs as much as numpy needs for this many
_USE_FAST_FROM = 1 << 12
_THREADS_FROM = 1 << 18
_CHUNK = 1 << 20
_KEEP_BYTES = 1 << 27  # of working memory, at most, from one call to the next
_TINY = np.finfo(np.float32).tiny  # in place of 0 / 0: far below every count, also among float32
_CELL_BITS = 16  # at most: few enough cells to scatter into, and 16 bits left of any float32
Ints = NDArray[np.int64]
Counts = NDArray[Any]
"""Integers, or floats where samples are weighted."""
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


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(cores(), thread_name_prefix="openauc")


def in_threads(function: Callable[[int], T], n_tasks: int) -> list[T]:
    """``[function(0), function(1), ...]``, in threads: numpy and ``_fast`` release the interpreter lock."""
    others = [_pool().submit(function, i) for i in range(1, n_tasks)]
    return [function(0), *(task.result() for task in others)]


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
    weight: NDArray[Any] | None = None
    """Floats weigh the samples; integers say how often each of them occurred, and are part of the numbers above."""

    @property
    def counted(self) -> bool:
        """Whether every sample counts as one, however many of them an entry stands for."""
        return self.weight is None or self.weight.dtype.kind == "i"

    @cached_property
    def totals(self) -> tuple[float, float]:
        """Weight of the known and of the unknown samples: their numbers where none is given."""
        if self.weight is None or self.counted:
            return self.n_known, self.n_unknown
        return float(self.weight[self.kind != UNKNOWN_KIND].sum()), float(self.weight[self.kind == UNKNOWN_KIND].sum())

    @cached_property
    def sizes(self) -> tuple[float, float]:
        """Effective numbers of known and of unknown samples, (sum w)^2 / sum w^2 (Kish)."""
        if self.weight is None or self.counted:
            return self.n_known, self.n_unknown
        squares = (np.sum(self.weight**2, where=(self.kind == UNKNOWN_KIND) == side) for side in (False, True))
        known, unknown = (
            total**2 / square if square else 0.0 for total, square in zip(self.totals, squares, strict=True)
        )
        return float(known), float(unknown)

    def take(self, index: Ints) -> Samples:
        """Some of the samples."""
        kind = self.kind[index]
        weight = None if self.weight is None else self.weight[index]
        times = weight if self.counted else None
        n_wrong, n_correct, n_unknown = map(int, np.bincount(kind, weights=times, minlength=3))
        return Samples(
            self.y_true[index],
            self.y_pred[index],
            self.score[index],
            kind,
            self.unknown_label,
            n_wrong + n_correct,
            n_correct,
            n_unknown,
            weight,
        )

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
    sample_weight: ArrayLike | None = None,
) -> Samples:
    """Check the triple and mark its samples; there must be some."""
    samples = mark_samples(y_true, y_pred, open_score, unknown_label=unknown_label)
    check.require_samples(samples.n_known, samples.n_unknown, samples.unknown_label, unknown=need_unknown)
    if sample_weight is None:
        return samples
    weight = _as_weight(sample_weight, samples.kind, need_unknown=need_unknown)
    samples = replace(samples, weight=weight)
    return samples if weight.all() else samples.take(np.flatnonzero(weight))


def mark_samples(y_true: ArrayLike, y_pred: ArrayLike, open_score: ArrayLike, *, unknown_label: Label) -> Samples:
    """Check the triple and mark its samples, of which there may be none."""
    unknown_label = check.as_label(unknown_label)
    true, pred = check.same_label_type(check.as_labels("y_true", y_true), check.as_labels("y_pred", y_pred))
    score = check.as_scores("open_score", open_score)
    check.check_same_length(y_true=true, y_pred=pred, open_score=score)
    kind, n_correct, n_unknown = _mark_kinds(true, pred, unknown_label)
    return Samples(true, pred, score, kind, unknown_label, len(kind) - n_unknown, n_correct, n_unknown)


def _as_weight(sample_weight: ArrayLike, kind: NDArray[np.uint8], *, need_unknown: bool) -> NDArray[np.float64]:
    weight = check.as_scores("sample_weight", sample_weight).astype(np.float64, copy=False)
    check.check_same_length(y_true=kind, sample_weight=weight)
    bad = np.flatnonzero(~((weight >= 0.0) & np.isfinite(weight)))
    if len(bad):
        raise ValueError(f"sample_weight is {weight[bad[0]]!r} for sample {bad[0]}; expected a finite number >= 0.")
    unknown = kind == UNKNOWN_KIND
    for side, chosen in (("known", ~unknown), ("unknown", unknown)):
        if (side == "known" or need_unknown) and not weight[chosen].any():
            raise ValueError(f"sample_weight is 0 for every {side} sample; the metric needs some of them.")
    return weight


def _mark_kinds(y_true: NDArray[Any], y_pred: NDArray[Any], unknown_label: Label) -> tuple[NDArray[np.uint8], int, int]:
    """Kind of each sample, and the numbers of correct and of unknown ones."""
    n = len(y_true)
    fast = fast_backend(n) if y_true.dtype.kind == "i" and isinstance(unknown_label, int) else None
    if fast is not None and y_true.dtype == y_pred.dtype and y_true.dtype.itemsize >= 4:
        kind = np.empty(n, dtype=np.uint8)
        parts = parts_of(n)

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


def parts_of(n: int) -> list[slice]:
    """As many parts of ``n`` samples as there are threads for them."""
    parts = threads() if n >= _THREADS_FROM else 1
    edges = np.linspace(0, n, parts + 1).astype(int).tolist()
    return [slice(a, b) for a, b in pairwise(edges)]


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


class RankTable(NamedTuple):
    """Accepted samples (score <= threshold) at every distinct threshold.

    Column 0 rejects every sample (threshold ``-inf``), the last column accepts every sample. The counts have
    shape (..., T): leading axes, if any, are bootstrap replicates. Weighted samples and replicates count in fractions.
    """

    threshold: NDArray[np.float64]
    known: Counts
    correct: Counts
    unknown: Counts

    @property
    def n_known(self) -> Counts:
        return self.known[..., -1]

    @property
    def n_unknown(self) -> Counts:
        return self.unknown[..., -1]

    def columns(self, chosen: Ints) -> RankTable:
        """The table at some of its thresholds."""
        return RankTable(self.threshold[chosen], *(counts[..., chosen] for counts in self[1:]))


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
        """Accepted samples at every threshold."""
        fast = fast_backend(len(self.order)) if self.weight is None else None
        if fast is not None:
            return RankTable(self.threshold, *fast.accepted_counts(self.kind, self.last))
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

    @cached_property
    def weight(self) -> NDArray[Any] | None:
        """Weight of each sample, in rank order, where there is one."""
        return None if self.samples.weight is None else self.samples.weight[self.order]

    def at_thresholds(self, value: NDArray[Any]) -> NDArray[Any]:
        """Running total, in rank order, of one ``value`` per sample times its weight, read at every threshold."""
        return self.running(value if self.weight is None else value * self.weight)

    def running(self, value: NDArray[Any]) -> NDArray[Any]:
        """The same without weights."""
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


def may_overflow(one: Counts, other: Counts) -> bool:
    """Whether twice the number of pairs of two cumulative counts is beyond the integers of 64 bits."""
    return one.ndim == 1 and one.dtype.kind == "i" and 2 * int(one[-1]) * int(other[-1]) >= 2**63


def exact_dot(one: Counts, other: Counts) -> int:
    """Sum of products of counts that 64 bits may not hold: of 20 bits of one at a time, which they do."""
    pieces = range(0, int(one.max(initial=0)).bit_length(), 20)
    return sum(int(np.vecdot(other, (one >> low) & 0xFFFFF)) << low for low in pieces)


def average_precision_sum(positive: Counts, negative: Counts, *, from_top: bool) -> NDArray[np.float64]:
    """Sum over the thresholds of precision times the number of positives gained.

    ``positive`` and ``negative`` count accepted samples at rising thresholds, (..., T). Alarms go to the accepted
    samples, or ``from_top`` to the rejected ones.
    """
    fast = fast_backend(positive.size) if positive.ndim == 1 else None
    if fast is not None:
        return np.asarray(fast.average_precision(positive, negative, from_top))
    if from_top:
        hits, misses = (counts[..., -1:] - counts[..., :-1] for counts in (positive, negative))
    else:
        hits, misses = positive[..., 1:], negative[..., 1:]
    # A replicate may draw no sample at the outermost scores: no alarm, and nothing gained.
    terms = hits / np.maximum(hits + misses, _TINY) * np.diff(positive, axis=-1)
    return np.asarray(np.cumsum(terms)[-1] if terms.ndim == 1 else terms.sum(axis=-1))  # in order, as the loop adds


def largest_gap(one: Counts, other: Counts) -> Counts:
    """Largest difference of two cumulative shares, times both totals: max of one * other[-1] - other * one[-1]."""
    total, other_total = one[..., -1:], other[..., -1:]
    if may_overflow(one, other):
        one, other = one.astype(np.longdouble), other.astype(np.longdouble)
    return np.asarray((one * other_total - other * total).max(axis=-1))
