"""A second look at the samples: what the bins left open, settled in bounded memory."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from openauc.metrics._kernel import CORRECT, UNKNOWN_KIND, Ints, mark_samples
from openauc.streaming.bins import N_KINDS, Sheet
from openauc.streaming.keys import BIN_SHIFT, key_score, score_key

if TYPE_CHECKING:
    from openauc.streaming.accumulator import Accumulator

_ROW_BYTES = 96  # of a row of an exact accumulator while rows are merged
_SAMPLE_BYTES = 8  # of a sample that waits to be put in order
_IN_ORDER_BYTES = 160  # of a sample whose range is just put in order
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
        small = 0 if self._whole is not None else int(columns.counts[chosen[~big]].sum())
        self._packed, self._n_packed = np.empty(small, dtype=np.int64), 0  # takes memory as it is filled
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
        if end > len(self._packed):
            raise _other_samples(f"at least {end}", len(self._packed))
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
        edges = np.append(np.searchsorted(packed, np.arange(len(self._low)) << _PLACE), len(packed)).tolist()
        sides = _sides(self._refined.columns.counts)
        starts, totals = np.cumsum(sides, axis=0) - sides, sides.sum(axis=0).tolist()
        found = np.zeros((len(self._chosen), 3), dtype=np.int64)
        np.add.at(found, self._divided.number // _SPLITS, _sides(self._divided.counts))
        finer, order = [], []
        for place in np.flatnonzero(~self._big).tolist():
            scores = _InOrder(packed[edges[place] : edges[place + 1]], int(self._low[place]))
            found[place] = scores.totals
            if len(scores.key):
                sheet, settled = scores.settle(starts[self._chosen[place]], totals)
                finer.append(sheet)
                order.append(settled)
        return found, finer, order


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
    in_order = _IN_ORDER_BYTES * int(size[~big].max(initial=0))
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


class _InOrder:
    """The samples of one range in order of their score: how many are accepted at each distinct one."""

    def __init__(self, packed: Ints, low: int) -> None:
        kind, distance = packed & ((1 << _KIND_BITS) - 1), (packed >> _KIND_BITS) & ((1 << _DISTANCE_BITS) - 1)
        last = np.flatnonzero(np.append(distance[1:] != distance[:-1], True)[: len(distance)])
        self.key = low + distance[last]
        unknown, correct = (np.cumsum(kind == which)[last] for which in (UNKNOWN_KIND, CORRECT))
        self.accepted = np.stack([last + 1 - unknown, correct, unknown], axis=1)
        self.totals = self.accepted[-1] if len(last) else np.zeros(3, dtype=np.int64)

    def settle(self, start: Ints, totals: list[int]) -> tuple[Sheet, Settled]:
        """Columns of the range, cut where the metrics dictate a threshold, and what is known of their insides.

        ``start`` counts the samples before the range, ``totals`` all of them.
        """
        steps = np.diff(self.accepted, axis=0, prepend=0)
        edges = self._edges(int(start[2]), totals[2])
        pairs, best = [], []
        for first, end in pairwise(edges):
            step = steps[first:end]
            known, correct, _ = np.cumsum(step, axis=0).T
            new_known, new_correct, new_unknown = step.T
            pairs.append([new_unknown @ (correct - new_correct), new_unknown @ new_correct])
            pairs[-1] += [new_unknown @ (known - new_known), new_unknown @ new_known]
            accepted = start + self.accepted[first:end]
            gap = accepted[:, 0] * np.longdouble(totals[2]) - accepted[:, 2] * np.longdouble(totals[0])
            best.append(accepted[int(np.argmax(gap))][[0, 2]])
        in_column = np.add.reduceat(steps, edges[:-1], axis=0)
        counts = np.zeros((len(in_column), N_KINDS), dtype=np.int64)
        counts[:, :3] = np.stack([in_column[:, 0] - in_column[:, 1], in_column[:, 1], in_column[:, 2]], axis=1)
        low, high = self.key[edges[:-1]], self.key[np.array(edges[1:]) - 1]
        return Sheet(low >> BIN_SHIFT, counts, low, high), Settled(low, np.array(pairs), np.array(best))

    def _edges(self, before: int, n_unknown: int) -> list[int]:
        """Where to cut: around the first score that accepts more unknown samples than a threshold may."""
        edges = {0, len(self.key)}
        for limit in dictated_limits(n_unknown):
            if before <= limit < before + self.totals[2]:
                at = int(np.searchsorted(self.accepted[:, 2] + before, limit, side="right"))
                edges |= {at, at + 1}
        return sorted(edges)
