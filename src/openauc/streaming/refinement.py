"""A second look at the samples: what the bins left open, settled in bounded memory."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from openauc.environment import threads
from openauc.metrics._kernel import CORRECT, UNKNOWN_KIND, WRONG, Ints, in_threads, mark_samples
from openauc.streaming.bins import N_KINDS, Sheet
from openauc.streaming.keys import BIN_SHIFT, key_score, score_key

if TYPE_CHECKING:
    from openauc.streaming.accumulator import Accumulator

_ROW_BYTES = 96  # of a row of an exact accumulator while rows are merged
_SAMPLE_BYTES = 8  # of a sample that waits to be put in order
_IN_ORDER_BYTES = 256  # of a sample whose range is just put in order
_IN_ORDER_SHARE = 64  # of the memory, one part is for that: all threads together have about so much under way
_SPLITS = 1 << 12  # of a range with too many samples for it
_SPLIT_BYTES = 8 * (N_KINDS + 3)
_KIND_BITS, _DISTANCE_BITS = 2, BIN_SHIFT
_PLACE = _KIND_BITS + _DISTANCE_BITS
_MOST_RANGES = 1 << (63 - _PLACE)


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

    columns: Sheet
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


class Refinement:
    """A further pass over the samples of an accumulator; made by ``Accumulator.refine``.

    Give ``update`` all samples once more, in any order and grouping (those outside of ``ranges`` are passed over, so
    they may be left out), then take ``result()``.
    """

    def __init__(self, source: Accumulator, max_bytes: int) -> None:
        self._source, self._max_bytes = source, max_bytes
        self._refined = source.refined()
        columns = self._refined.columns
        self._whole = source.exact_twin() if _ROW_BYTES * source.most_rows() <= max_bytes else None
        chosen, big = (np.arange(len(columns.low)), np.zeros(len(columns.low), dtype=np.bool_))
        if self._whole is None:
            chosen, big = _affordable(columns.counts.sum(axis=1), np.flatnonzero(self._refined.is_open()), max_bytes)
        self._chosen, self._big = chosen, big
        self._low, self._high = columns.low[chosen], columns.high[chosen]
        self._places = _Places(self._low)
        self._n_expected = 0 if self._whole is not None else int(columns.counts[chosen[~big]].sum())
        self._packed, self._n_packed = np.empty(self._n_expected, dtype=np.int64), 0  # takes memory as it is filled
        self._divided = Sheet.empty()

    @property
    def ranges(self) -> list[tuple[float, float]]:
        """Smallest and largest score of each range that this pass looks at."""
        return list(zip(key_score(self._low).tolist(), key_score(self._high).tolist(), strict=True))

    def update(self, y_true: ArrayLike, y_pred: ArrayLike, open_score: ArrayLike) -> None:
        """Look at samples again."""
        if self._whole is not None:
            self._whole.update(y_true, y_pred, open_score)
            return
        samples = mark_samples(y_true, y_pred, open_score, unknown_label=self._source.unknown_label)
        key = score_key(samples.score)
        place = self._places.of(key)
        inside = np.flatnonzero((place >= 0) & (key <= self._high[place])) if len(self._low) else place[:0]
        key, place, kind = key[inside], place[inside], samples.kind[inside].astype(np.int64)
        big = self._big[place]
        if big.any():
            self._divided = Sheet.united([self._divided, self._divide(key[big], place[big], kind[big])])
            key, place, kind = key[~big], place[~big], kind[~big]
        # A key is less than 2^42 above the lowest of its bin, so place, distance and kind share 64 bits.
        self._take((place << _PLACE) + ((key - self._low[place]) << _KIND_BITS) + kind)

    def _take(self, packed: Ints) -> None:
        end = self._n_packed + len(packed)
        if end > self._n_expected:
            raise _other_samples(f"at least {end}", self._n_expected)
        if end > len(self._packed):  # it has travelled
            filled, self._packed = self._packed, np.empty(self._n_expected, dtype=np.int64)
            self._packed[: len(filled)] = filled
        self._packed[self._n_packed : end] = packed
        self._n_packed = end

    def _divide(self, key: Ints, place: Ints, kind: Ints) -> Sheet:
        """Samples, each by itself, in equal parts of their range."""
        width = (self._high - self._low) // _SPLITS + 1
        counts = np.zeros((len(key), N_KINDS), dtype=np.int64)
        counts[np.arange(len(key)), kind] = 1
        return Sheet(place * _SPLITS + (key - self._low[place]) // width[place], counts, key, key)

    def merge(self, other: Refinement) -> Refinement:
        """A new pass with the samples of both, which must be of the same accumulator."""
        result = Refinement(self._source, self._max_bytes)
        for part in (self, other):
            result.absorb(part)
        return result

    def absorb(self, other: Refinement) -> None:
        """Add the samples of another pass over the same accumulator to this one."""
        alike = all(np.array_equal(a, b) for a, b in ((self._low, other._low), (self._high, other._high)))
        if not alike or (self._whole is None) != (other._whole is None):
            raise ValueError("cannot merge passes over different ranges; make both with refine() of one accumulator.")
        if self._whole is not None and other._whole is not None:
            self._whole = self._whole.merge(other._whole)
        self._take(other._packed[: other._n_packed])
        self._divided = Sheet.united([self._divided, other._divided])

    def __getstate__(self) -> dict[str, Any]:
        """Only what was filled travels."""
        return {**self.__dict__, "_packed": self._packed[: self._n_packed]}

    def result(self) -> Accumulator:
        """The accumulator with what this pass settled; raises if the samples were not the same as before."""
        if self._whole is not None:
            _check_same((self._source.n_known, self._source.n_unknown), (self._whole.n_known, self._whole.n_unknown))
            return self._whole
        columns, settled = self._refined
        found, finer, order = self._settle()
        _check_same(_sides(columns.counts[self._chosen]).tolist(), found.tolist())
        kept = np.ones(len(columns.low), dtype=np.bool_)
        kept[self._chosen] = False
        parts = [Sheet(*(part[kept] for part in columns)), self._divided, *finer]
        united = Sheet(*(np.concatenate(fields) for fields in zip(*parts, strict=True)))
        rising = np.argsort(united.low)
        finest = Sheet(*(part[rising] for part in united))
        return self._source.with_refined(Refined(finest, settled.with_more(order)))

    def _settle(self) -> tuple[Ints, list[Sheet], list[Settled]]:
        """Numbers of samples found in each range, finer columns of those in order, and what their order adds."""
        packed = self._packed[: self._n_packed]
        packed.sort()
        sides = _sides(self._refined.columns.counts)
        starts, totals = np.cumsum(sides, axis=0) - sides, sides.sum(axis=0).tolist()
        found = np.zeros((len(self._chosen), 3), dtype=np.int64)
        np.add.at(found, self._divided.number // _SPLITS, _sides(self._divided.counts))
        ranges = _Ranges(self._low, starts[self._chosen], totals)
        parts = [packed[a:b] for a, b in pairwise(_edges(packed, len(self._low), self._max_bytes))]
        finer, order = [], []
        for place, size, sheet, settled in in_threads(lambda i: ranges.settle(parts[i]), len(parts)) if parts else []:
            found[place] += size
            finer.append(sheet)
            order.append(settled)
        return found, finer, order


def _edges(packed: Ints, n_ranges: int, max_bytes: int) -> list[int]:
    """Where to cut the sorted samples of ranges: between ranges, and into parts of some size."""
    size = max_bytes // _IN_ORDER_SHARE // threads() // _IN_ORDER_BYTES + 1
    end = np.append(np.searchsorted(packed, np.arange(1, n_ranges) << _PLACE), len(packed))
    return [0, *end[np.flatnonzero(np.diff(end // size, append=-1))].tolist()] if len(packed) else [0]


class _Places:
    """Looks up in which range a key may lie: those of a bin follow each other, and most bins have one or none."""

    def __init__(self, low: Ints) -> None:
        """``low`` holds the lowest key of each range, rising."""
        self._low = low
        number = low >> BIN_SHIFT
        self._first = int(number[0]) if len(low) else 0
        n_bins = int(number[-1]) - self._first + 1 if len(low) else 0
        self._ranges = np.zeros(n_bins + 2, dtype=np.int32)  # of each bin; the ends stand for all keys outside
        np.add.at(self._ranges, number - self._first + 1, 1)
        self._last = np.cumsum(self._ranges, dtype=np.int32) - 1

    def of(self, key: Ints) -> Ints:
        """Range of the largest ``low`` that is at most the key, if it is in the key's bin; else any, or -1."""
        number = key >> BIN_SHIFT
        number -= self._first - 1
        np.clip(number, 0, len(self._ranges) - 1, out=number)
        place: Ints = self._last[number].astype(np.int64)
        several = np.flatnonzero(self._ranges[number] > 1)
        place[several] = np.searchsorted(self._low, key[several], side="right") - 1
        return place


def _affordable(size: Ints, is_open: Ints, max_bytes: int) -> tuple[Ints, NDArray[np.bool_]]:
    """The open columns that one pass looks at, and which of them it divides as they are too large to be put in order.

    At least one, whatever the memory.
    """
    size = size[is_open]
    big = size > max_bytes // 2 // _IN_ORDER_BYTES
    cost = np.cumsum(np.where(big, _SPLITS * _SPLIT_BYTES, size * _SAMPLE_BYTES))
    in_order = _IN_ORDER_BYTES * int(size[~big].max(initial=0)) + 2 * max_bytes // _IN_ORDER_SHARE
    n = max(int(np.searchsorted(cost, max_bytes - in_order, side="right")), 1)
    return is_open[: min(n, _MOST_RANGES)], big[: min(n, _MOST_RANGES)]


def dictated_limits(n_unknown: int) -> tuple[int, int]:
    """Most unknown samples that the thresholds of the shipped metrics accept: for 95 % TPR, and for 10 % FPR."""
    return n_unknown - int(np.ceil(0.95 * n_unknown * (1.0 - 1e-14))), int(np.floor(0.1 * n_unknown * (1.0 + 1e-14)))


def _sides(counts: Ints) -> Ints:
    """(columns, 3): known, correct and unknown samples."""
    columns = Sheet.empty()._replace(counts=counts)
    return np.stack([columns.known, counts[:, CORRECT], columns.unknown], axis=1)


def _check_same(before: object, now: object) -> None:
    if before != now:
        raise _other_samples(now, before)


def _other_samples(now: object, before: object) -> ValueError:
    return ValueError(
        f"this pass brought other samples than the ones before (numbers of samples {now}, expected {before}); "
        "give every pass the same samples, each once."
    )


class _Ranges(NamedTuple):
    """Ranges that a pass looks at, by their place."""

    low: Ints
    """Lowest key of each."""
    start: Ints
    """(ranges, 3): known, correct and unknown samples before it."""
    totals: list[int]
    """The same of all samples."""

    def settle(self, packed: Ints) -> tuple[Ints, Ints, Sheet, Settled]:
        """Places and sizes (known, correct, unknown) of the ranges that sorted samples are in, and their insides.

        The columns of a range are cut where the metrics dictate a threshold.
        """
        rank = packed >> _KIND_BITS
        last = np.flatnonzero(np.append(rank[1:] != rank[:-1], True))  # of each distinct score
        kind, rank = packed & ((1 << _KIND_BITS) - 1), rank[last]
        unknown, correct = (np.cumsum(kind == which)[last] for which in (UNKNOWN_KIND, CORRECT))
        accepted = np.stack([last + 1 - unknown, correct, unknown])
        step = np.diff(accepted, prepend=0)
        before = accepted - step

        place = rank >> _DISTANCE_BITS
        first = np.flatnonzero(np.diff(place, prepend=-1))  # distinct score of each range
        place = place[first]
        size = np.add.reduceat(step, first, axis=1).T
        offset = self.start[place] - before[:, first].T  # what came before the range, in any range or in none
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
        return place, size, Sheet(low >> BIN_SHIFT, counts, low, high), order

    def _key(self, rank: Ints) -> Ints:
        return np.asarray(self.low[rank >> _DISTANCE_BITS] + (rank & ((1 << _DISTANCE_BITS) - 1)))

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
