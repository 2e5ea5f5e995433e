"""Samples of a further pass as they come: those in its ranges, small and in order, from any worker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from openauc._validation import Label
from openauc.metrics._backend import in_threads, parts_of
from openauc.metrics.samples import Ints, Samples, mark_samples
from openauc.streaming.bins import N_KINDS, BinCounts, fast_loops
from openauc.streaming.keys import BIN_SHIFT, key_score, score_key

if TYPE_CHECKING:
    from openauc.streaming.accumulator import Accumulator

KIND_BITS, DISTANCE_BITS = 2, BIN_SHIFT
PLACE = KIND_BITS + DISTANCE_BITS
"""A sample is an integer: its range from this bit on, the distance of its key from the range's lowest one, its kind."""
SPLITS = 1 << 12
"""Parts of a range that is divided, as it has too many samples to be put in order."""
_RUN = 1 << 22  # samples that are put in order together while they arrive


class Places:
    """Looks up in which range a key may lie: those of a bin follow each other, and most bins have one or none."""

    def __init__(self, low: Ints, high: Ints, big: NDArray[np.bool_]) -> None:
        """Lowest and highest key of each range, rising, and whether it is divided."""
        self.low, self.high, self.big = low, high, big
        number = low >> BIN_SHIFT
        self._first = int(number[0]) if len(low) else 0
        n_bins = int(number[-1]) - self._first + 1 if len(low) else 0
        self._ranges = np.zeros(n_bins + 2, dtype=np.int32)  # of each bin; the ends stand for all keys outside
        np.add.at(self._ranges, number - self._first + 1, 1)
        self._last = np.cumsum(self._ranges, dtype=np.int32) - 1

    @property
    def table(self) -> tuple[Any, ...]:
        """For the compiled loop."""
        return self._first, self._ranges, self._last, self.low, self.high

    def of(self, key: Ints) -> Ints:
        """Range of the largest ``low`` that is at most the key, if it is in the key's bin; else any, or -1."""
        number = key >> BIN_SHIFT
        number -= self._first - 1
        np.clip(number, 0, len(self._ranges) - 1, out=number)
        place: Ints = self._last[number].astype(np.int64)
        several = np.flatnonzero(self._ranges[number] > 1)
        place[several] = np.searchsorted(self.low, key[several], side="right") - 1
        return place


class Seen(NamedTuple):
    """What a pass met of samples in its ranges: what travels from a worker to who unites them."""

    runs: list[Ints]
    """Samples as integers, each array in order."""
    divided: BinCounts
    """Those in ranges that are divided."""
    whole: Accumulator | None
    """All of them, where there is room."""


class Gathering:
    """The part of a pass that travels to workers: takes samples, and keeps those in the ranges it looks at.

    Parameters
    ----------
    places
        The ranges.
    n_expected
        Samples in them that are to be kept.
    whole
        Takes all samples instead, where there is room.
    unknown_label
        The label of unknown samples.
    """

    def __init__(self, places: Places, n_expected: int, whole: Accumulator | None, unknown_label: Label) -> None:
        self._places, self._n_expected, self._whole, self._unknown_label = places, n_expected, whole, unknown_label
        self._runs: list[Ints] = []
        self._run, self._n_in_run, self._n_seen = np.empty(0, dtype=np.int64), 0, 0
        self._scratch: list[Ints] = []  # one for each thread
        self._divided = BinCounts.empty()

    def fresh(self) -> Gathering:
        """One for the same ranges that has seen no sample yet."""
        whole = None if self._whole is None else self._whole.exact_twin()
        return Gathering(self._places, self._n_expected, whole, self._unknown_label)

    def __getstate__(self) -> dict[str, Any]:
        """Only what was filled travels."""
        self._put_in_order()
        return {**self.__dict__, "_scratch": []}

    @property
    def ranges(self) -> list[tuple[float, float]]:
        """Smallest and largest score of each range that this pass looks at."""
        low, high = key_score(self._places.low), key_score(self._places.high)
        return list(zip(low.tolist(), high.tolist(), strict=True))

    def update(self, y_true: ArrayLike, y_pred: ArrayLike, open_score: ArrayLike) -> None:
        """Look at samples again."""
        if self._whole is not None:
            self._whole.update(y_true, y_pred, open_score)
            return
        samples = mark_samples(y_true, y_pred, open_score, unknown_label=self._unknown_label)
        plain = self._places.big.any() or not len(self._places.low)
        fast = None if plain else fast_loops(len(samples.kind))
        for packed in [self._packed(samples)] if fast is None else self._packed_fast(samples, fast):
            self._take(packed)

    def _packed(self, samples: Samples) -> Ints:
        """Samples in ranges, as integers; those in ranges that are divided are counted instead."""
        key = score_key(samples.score)
        place = self._places.of(key)
        inside = (
            np.flatnonzero((place >= 0) & (key <= self._places.high[place])) if len(self._places.low) else place[:0]
        )
        key, place, kind = key[inside], place[inside], samples.kind[inside].astype(np.int64)
        big = self._places.big[place]
        if big.any():
            self._divided = BinCounts.united([self._divided, self._divide(key[big], place[big], kind[big])])
            key, place, kind = key[~big], place[~big], kind[~big]
        # A key is less than 2^42 above the lowest of its bin, so place, distance and kind share 64 bits.
        return np.asarray((place << PLACE) + ((key - self._places.low[place]) << KIND_BITS) + kind)

    def _packed_fast(self, samples: Samples, fast: Any) -> list[Ints]:
        """The same, from each thread, in memory that serves again."""
        score = np.ascontiguousarray(samples.score)
        parts = parts_of(len(score))
        self._scratch += [np.empty(0, dtype=np.int64) for _ in parts[len(self._scratch) :]]

        def pack(i: int) -> Ints:
            size = parts[i].stop - parts[i].start
            if len(self._scratch[i]) < size:
                self._scratch[i] = np.empty(size, dtype=np.int64)
            packed = self._scratch[i]
            return packed[: fast.pack_samples(score[parts[i]], samples.kind[parts[i]], *self._places.table, packed)]

        return in_threads(pack, len(parts))

    def _take(self, packed: Ints) -> None:
        self._expect(len(packed))
        if self._n_in_run + len(packed) > len(self._run):
            self._put_in_order()
            self._run = np.empty(len(packed) + min(self._n_expected - self._n_seen, _RUN), dtype=np.int64)
        self._run[self._n_in_run : self._n_in_run + len(packed)] = packed
        self._n_in_run += len(packed)

    def _expect(self, more: int) -> None:
        self._n_seen += more
        if self._n_seen > self._n_expected:
            raise other_samples(f"at least {self._n_seen}", self._n_expected)

    def _put_in_order(self) -> None:
        """Make runs of what has come, one for each thread."""
        if self._n_in_run:
            runs = [self._run[part] for part in parts_of(self._n_in_run)]
            in_threads(lambda i: runs[i].sort(), len(runs))
            self._runs += runs
            self._run, self._n_in_run = self._run[:0], 0

    def _divide(self, key: Ints, place: Ints, kind: Ints) -> BinCounts:
        """Samples, each by itself, in equal parts of their range."""
        low, high = self._places.low, self._places.high
        width = (high - low) // SPLITS + 1
        counts = np.zeros((len(key), N_KINDS), dtype=np.int64)
        counts[np.arange(len(key)), kind] = 1
        return BinCounts(place * SPLITS + (key - low[place]) // width[place], counts, key, key)

    def seen(self) -> Seen:
        """What this pass met so far."""
        self._put_in_order()
        return Seen(self._runs, self._divided, self._whole)

    def add(self, seen: Seen) -> None:
        """Add what another pass over the same ranges met."""
        if self._whole is not None and seen.whole is not None:
            self._whole = self._whole.merge(seen.whole)
        for run in seen.runs:
            self._expect(len(run))
            self._runs.append(run)
        self._divided = BinCounts.united([self._divided, seen.divided])


def other_samples(now: object, before: object) -> ValueError:
    return ValueError(
        f"this pass brought other samples than the ones before (numbers of samples {now}, expected {before}); "
        "give every pass the same samples, each once."
    )
