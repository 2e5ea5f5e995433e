"""A second look at the samples: what the bins left open, settled in bounded memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from openauc.environment import threads
from openauc.metrics._backend import in_threads
from openauc.metrics.samples import CORRECT, UNKNOWN_KIND, WRONG, Ints
from openauc.streaming.bins import N_KINDS, BinCounts, fast_loops
from openauc.streaming.gathering import DISTANCE_BITS, KIND_BITS, PLACE, SPLITS, Gathering, Places, other_samples
from openauc.streaming.keys import BIN_SHIFT

if TYPE_CHECKING:
    from openauc.streaming.accumulator import Accumulator

_ROW_BYTES = 96  # of a row of an exact accumulator while rows are merged
_SAMPLE_BYTES = 8  # of a sample that waits to be put in order
_IN_ORDER_BYTES = 256  # of a sample whose range is just put in order
_IN_ORDER_SHARE = 64  # of the memory, one part is for that: all threads together have about so much under way
_SPLIT_BYTES = 8 * (N_KINDS + 3)
_MOST_RANGES = 1 << (63 - PLACE)


class Settled(NamedTuple):
    """Ranges whose samples were seen again, by their lowest key: what their order adds to the metrics."""

    low: Ints
    pairs: Ints
    """(ranges, 4): pairs inside, ranked right and tied, of correct and of all known samples with unknown ones."""
    best: Ints
    """(ranges, 2): known and unknown samples accepted, of all, at the best threshold for detection inside."""

    @classmethod
    def empty(cls) -> Settled:
        return cls(*(np.empty(shape, dtype=np.int64) for shape in (0, (0, 4), (0, 2))))

    def with_more(self, others: list[Settled]) -> Settled:
        merged = Settled(*(np.concatenate(parts) for parts in zip(self, *others, strict=True)))
        order = np.argsort(merged.low)
        return Settled(*(part[order] for part in merged))


class Refined(NamedTuple):
    """Columns finer than bins, and what is known of the order inside some of them."""

    columns: BinCounts
    settled: Settled

    def is_open(self) -> NDArray[np.bool_]:
        """Columns of several scores whose order is not known and matters.

        They hold known and unknown samples, or a threshold that a metric dictates.
        """
        columns = self.columns
        matters = (columns.known > 0) & (columns.unknown > 0)
        accepted = np.cumsum(columns.unknown)
        for limit in dictated_limits(int(columns.unknown.sum())):
            matters |= (accepted - columns.unknown <= limit) & (limit < accepted)
        return np.asarray(matters & ~columns.pure & ~np.isin(columns.low, self.settled.low))


class Refinement(Gathering):
    """A further pass over the samples of an accumulator; made by ``Accumulator.refine``.

    Give ``update`` all samples once more, in any order and grouping (those outside of ``ranges`` are passed over, so
    they may be left out), then take ``result()``. Several workers may each have a ``fresh()`` gathering and a part of
    the samples; ``add`` unites what they have ``seen()``.
    """

    def __init__(self, source: Accumulator, max_bytes: int) -> None:
        self._source, self._max_bytes = source, max_bytes
        self._refined = source.refined()
        columns = self._refined.columns
        whole = source.exact_twin() if _ROW_BYTES * source.most_rows() <= max_bytes else None
        chosen, big = (np.arange(len(columns.low)), np.zeros(len(columns.low), dtype=np.bool_))
        if whole is None:
            chosen, big = _affordable(columns.counts.sum(axis=1), np.flatnonzero(self._refined.is_open()), max_bytes)
        self._chosen = chosen
        size = np.where(big | (whole is not None), 0, columns.counts[chosen].sum(axis=1))
        self._end = np.cumsum(size)
        places = Places(columns.low[chosen], columns.high[chosen], big)
        super().__init__(places, int(size.sum()), whole, source.unknown_label)

    def merge(self, other: Refinement) -> Refinement:
        """A new pass with the samples of both, which must be of the same accumulator."""
        alike = np.array_equal(self._places.low, other._places.low)
        alike &= np.array_equal(self._places.high, other._places.high)
        if not alike or (self._whole is None) != (other._whole is None):
            raise ValueError("cannot merge passes over different ranges; make both with refine() of one accumulator.")
        result = Refinement(self._source, self._max_bytes)
        for part in (self, other):
            result.add(part.seen())
        return result

    def result(self) -> Accumulator:
        """The accumulator with what this pass settled; raises if the samples were not the same as before."""
        if self._whole is not None:
            _check_same((self._source.n_known, self._source.n_unknown), (self._whole.n_known, self._whole.n_unknown))
            return self._whole
        columns, settled = self._refined
        parts = self._settle()
        found = np.zeros((len(self._chosen), 3), dtype=np.int64)
        np.add.at(found, self._divided.number // SPLITS, _sides(self._divided.counts))
        for place, sheet, _ in parts:
            np.add.at(found, place, _sides(sheet.counts))
        _check_same(_sides(columns.counts[self._chosen]).tolist(), found.tolist())
        kept = np.ones(len(columns.low), dtype=np.bool_)
        kept[self._chosen] = False
        finer = [BinCounts(*(part[kept] for part in columns)), self._divided, *(sheet for _, sheet, _ in parts)]
        united = BinCounts(*(np.concatenate(fields) for fields in zip(*finer, strict=True)))
        rising = np.argsort(united.low)
        finest = BinCounts(*(part[rising] for part in united))
        return self._source.with_refined(Refined(finest, settled.with_more([order for _, _, order in parts])))

    def _settle(self) -> list[tuple[Ints, BinCounts, Settled]]:
        """Finer columns of the ranges whose samples were kept, the range each is in, and what their order adds."""
        runs = self.seen().runs
        fast = fast_loops(self._n_seen)
        sides = _sides(self._refined.columns.counts)
        start = (np.cumsum(sides, axis=0) - sides)[self._chosen]
        ranges = _Ranges(self._places.low, start, sides.sum(axis=0).tolist())
        ends = self._part_ends(2 * _SAMPLE_BYTES if fast else _IN_ORDER_BYTES) << PLACE
        cuts = [[0, *np.searchsorted(run, ends).tolist(), len(run)] for run in runs]
        pieces = [[run[cut[i] : cut[i + 1]] for run, cut in zip(runs, cuts, strict=True)] for i in range(len(ends) + 1)]
        filled = [part for part in pieces if any(map(len, part))]

        def settle(i: int) -> tuple[Ints, BinCounts, Settled]:
            packed = np.concatenate(filled[i])
            packed.sort()
            return ranges.settle(packed, fast)

        return in_threads(settle, len(filled)) if filled else []

    def _part_ends(self, sample_bytes: int) -> Ints:
        """Ranges before which to cut, so that the samples of a part fit into the memory for those just put in order."""
        size = self._max_bytes // _IN_ORDER_SHARE // threads() // sample_bytes + 1
        return np.flatnonzero(np.diff(self._end // size)) + 1


def _affordable(size: Ints, is_open: Ints, max_bytes: int) -> tuple[Ints, NDArray[np.bool_]]:
    """The open columns that one pass looks at, and which of them it divides as they are too large to be put in order.

    At least one, whatever the memory.
    """
    size = size[is_open]
    big = size > max_bytes // 2 // _IN_ORDER_BYTES
    cost = np.cumsum(np.where(big, SPLITS * _SPLIT_BYTES, size * _SAMPLE_BYTES))
    in_order = _IN_ORDER_BYTES * int(size[~big].max(initial=0)) + 2 * max_bytes // _IN_ORDER_SHARE
    n = max(int(np.searchsorted(cost, max_bytes - in_order, side="right")), 1)
    return is_open[: min(n, _MOST_RANGES)], big[: min(n, _MOST_RANGES)]


def dictated_limits(n_unknown: int) -> tuple[int, int]:
    """Most unknown samples that the thresholds of the shipped metrics accept: for 95 % TPR, and for 10 % FPR."""
    return n_unknown - int(np.ceil(0.95 * n_unknown * (1.0 - 1e-14))), int(np.floor(0.1 * n_unknown * (1.0 + 1e-14)))


def _sides(counts: Ints) -> Ints:
    """(columns, 3): known, correct and unknown samples."""
    columns = BinCounts.empty()._replace(counts=counts)
    return np.stack([columns.known, counts[:, CORRECT], columns.unknown], axis=1)


def _check_same(before: object, now: object) -> None:
    if before != now:
        raise other_samples(now, before)


class _Ranges(NamedTuple):
    """Ranges that a pass looks at, by their place."""

    low: Ints
    """Lowest key of each."""
    start: Ints
    """(ranges, 3): known, correct and unknown samples before it."""
    totals: list[int]
    """The same of all samples."""

    def settle(self, packed: Ints, fast: Any = None) -> tuple[Ints, BinCounts, Settled]:
        """Columns of sorted samples, the place of the range that each is in, and what their order adds.

        A range is one column, or several where the metrics dictate a threshold.
        """
        if len(packed) * max(self.totals) < 2**62 and fast is not None:
            return self._settle_fast(packed, fast)
        rank = packed >> KIND_BITS
        last = np.flatnonzero(np.append(rank[1:] != rank[:-1], True))  # of each distinct score
        kind, rank = packed & ((1 << KIND_BITS) - 1), rank[last]
        unknown, correct = (np.cumsum(kind == which)[last] for which in (UNKNOWN_KIND, CORRECT))
        accepted = np.stack([last + 1 - unknown, correct, unknown])
        step = np.diff(accepted, prepend=0)
        before = accepted - step

        place = rank >> DISTANCE_BITS
        first = np.flatnonzero(np.diff(place, prepend=-1))  # distinct score of each range
        offset = self.start[place[first]] - before[:, first].T  # what came before the range, in any range or in none
        cut = np.union1d(first, self._cuts(accepted[2], first, offset[:, 2]))
        length = np.diff(cut, append=len(last))

        def inside(counts: Ints) -> Ints:
            """Without the samples before the column."""
            return np.asarray(counts - np.repeat(before[:, cut], length, axis=1))

        known, correct, _ = inside(before)
        pairs = np.stack([correct, step[1], known, step[0]]) * step[2]
        # Differences inside a column are small, so that their products are exact; if not, a float will have to do.
        number = np.int64 if len(packed) * max(self.totals) < 2**62 else np.longdouble
        known, _, unknown = inside(accepted).astype(number, copy=False)
        gap = known * number(self.totals[2]) - unknown * number(self.totals[0])
        largest = np.flatnonzero(gap == np.repeat(np.maximum.reduceat(gap, cut), length))
        at = largest[np.searchsorted(largest, cut)]
        best = accepted[:, at].T + offset[np.searchsorted(first, at, side="right") - 1]

        counts = np.zeros((len(cut), N_KINDS), dtype=np.int64)
        n_known, n_correct, counts[:, UNKNOWN_KIND] = np.add.reduceat(step, cut, axis=1)
        counts[:, WRONG], counts[:, CORRECT] = n_known - n_correct, n_correct
        low, high = (self._key(rank[row]) for row in (cut, cut + length - 1))
        order = Settled(low, np.add.reduceat(pairs, cut, axis=1).T, best[:, [0, 2]])
        return place[cut], BinCounts(low >> BIN_SHIFT, counts, low, high), order

    def _settle_fast(self, packed: Ints, fast: Any) -> tuple[Ints, BinCounts, Settled]:
        limits = np.array(dictated_limits(self.totals[2]))
        n_ranges = int((packed[-1] >> PLACE) - (packed[0] >> PLACE)) + 1 if len(packed) else 0
        # Samples that are not those of the passes before, which is noticed later, may cross a limit in every range.
        most = min(len(packed), n_ranges * (1 + 2 * len(limits)))
        columns = np.zeros((most, fast.N_FIELDS), dtype=np.int64)
        n = fast.settle(packed, self.start, self.totals[0], self.totals[2], limits, columns)
        first, last, wrong, correct, unknown = columns[:n, :5].T
        counts = np.zeros((n, N_KINDS), dtype=np.int64)
        counts[:, WRONG], counts[:, CORRECT], counts[:, UNKNOWN_KIND] = wrong, correct, unknown
        low, high = self._key(first), self._key(last)
        order = Settled(low, columns[:n, 5:9].copy(), columns[:n, 9:11].copy())
        return first >> DISTANCE_BITS, BinCounts(low >> BIN_SHIFT, counts, low, high), order

    def _key(self, rank: Ints) -> Ints:
        return np.asarray(self.low[rank >> DISTANCE_BITS] + (rank & ((1 << DISTANCE_BITS) - 1)))

    def _cuts(self, unknown: Ints, first: Ints, offset: Ints) -> Ints:
        """Around the first score that accepts more unknown samples than a threshold may, if that is in a range."""
        end = np.append(first[1:], len(unknown))
        cuts: list[int] = []
        for limit in dictated_limits(self.totals[2]):
            most = limit - offset  # accepted among these samples
            before = np.append(0, unknown)[first]
            for i in np.flatnonzero((before <= most) & (most < unknown[end - 1])).tolist():
                at = int(first[i] + np.searchsorted(unknown[first[i] : end[i]], most[i], side="right"))
                cuts += [at, at + 1]
        return np.array([cut for cut in cuts if cut < len(unknown)], dtype=np.int64)
