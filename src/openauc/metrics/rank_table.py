"""The samples in order of their score, and how many are accepted at every threshold.

The single sort-and-count pass behind every ranking metric; counts are integers until the very last division.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from openauc import _validation as check
from openauc.metrics.samples import CORRECT, UNKNOWN_KIND, Ints, Samples, score_bits

Counts = NDArray[Any]  # integers, or floats where samples are weighted
TINY = np.finfo(np.float32).tiny  # in place of 0 / 0: far below every count, also among float32
_COMPILED = "openauc.metrics._pairs"
_LOAD_FROM = 1 << 17  # samples; importing numba costs as much as numpy needs for this many
_USE_FROM = 1 << 12


def compiled(n_samples: int) -> ModuleType | None:
    """The compiled loops, if they are installed and so many samples are worth their start-up."""
    choice = os.environ.get("OPENAUC_BACKEND", "auto")
    check.check_choice("the environment variable OPENAUC_BACKEND", choice, ("auto", "numpy", "numba"))
    if choice == "numpy" or (choice == "auto" and n_samples < _USE_FROM):
        return None
    unloaded = choice == "auto" and _COMPILED not in sys.modules
    if unloaded and (n_samples < _LOAD_FROM or importlib.util.find_spec("numba") is None):
        return None
    return importlib.import_module(_COMPILED)  # waits where another thread is just importing it


class RankTable(NamedTuple):
    """Accepted samples (score <= threshold) at every distinct threshold, (..., T); leading axes are replicates.

    A cut is a position on the last axis. Cut 0 (threshold ``-inf``) rejects every sample, the last one accepts all.
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

    def cuts(self, chosen: Ints) -> RankTable:
        return RankTable(self.threshold[chosen], *(counts[..., chosen] for counts in self[1:]))


@dataclass(frozen=True, eq=False)
class Ranking:
    """Samples in order of rising score, sorted once; ties form groups that end at ``last``."""

    samples: Samples
    order: Ints
    last: Ints

    @cached_property
    def kind(self) -> NDArray[np.uint8]:
        """In rank order."""
        return self.samples.kind[self.order]

    @cached_property
    def threshold(self) -> NDArray[np.float64]:
        """``-inf`` (reject all), then the distinct scores."""
        return np.concatenate([[-np.inf], self.samples.score[self.order[self.last]].astype(np.float64)])

    @cached_property
    def table(self) -> RankTable:
        unknown = self.kind == UNKNOWN_KIND
        return RankTable(self.threshold, *map(self.at_thresholds, (~unknown, self.kind == CORRECT, unknown)))

    @cached_property
    def group(self) -> Ints:
        """The first cut that accepts each sample, in rank order."""
        return np.repeat(np.arange(1, len(self.last) + 1), np.diff(self.last, prepend=-1))

    @cached_property
    def cut(self) -> Ints:
        """The first cut that accepts each sample, less 1, in the order of the samples."""
        cut = np.empty_like(self.order)
        cut[self.order] = self.group - 1
        return cut

    @cached_property
    def weight(self) -> NDArray[Any] | None:
        """In rank order."""
        return None if self.samples.weight is None else self.samples.weight[self.order]

    def at_thresholds(self, value: NDArray[Any]) -> NDArray[Any]:
        """Total, at every cut, of ``value`` times weight over the accepted samples; ``value`` is in rank order."""
        return self.running(value if self.weight is None else value * self.weight)

    def running(self, value: NDArray[Any]) -> NDArray[Any]:
        """Total, at every cut, of ``value`` over the accepted samples, without weights."""
        total = np.cumsum(value, axis=-1, dtype=np.float64 if value.dtype.kind == "f" else np.int64)
        return np.concatenate([np.zeros_like(total[..., :1]), total[..., self.last]], axis=-1)


def rank(samples: Samples) -> Ranking:
    """Sort the samples by score, stably."""
    if (loops := compiled(len(samples.score))) is not None:
        return Ranking(samples, *loops.argsort_bits(score_bits(samples.score)))
    order = np.argsort(samples.score, kind="stable")
    ascending = samples.score[order]
    last = np.append(np.flatnonzero(ascending[1:] != ascending[:-1]), len(order) - 1)
    return Ranking(samples, order, last)


def cumulative(threshold: NDArray[np.float64], known: Counts, correct: Counts, unknown: Counts) -> RankTable:
    """The table of samples counted at each of rising thresholds."""
    totals = (np.concatenate([[0], np.cumsum(counts)]) for counts in (known, correct, unknown))
    return RankTable(np.concatenate([[-np.inf], threshold]), *totals)


def extreme_orders(table: RankTable, pure: NDArray[np.bool_]) -> tuple[RankTable, RankTable]:
    """The worst and the best table that samples in bins may have; the cuts of ``table`` are the ends of the bins.

    At best the known samples of a bin come first, at worst the unknown ones; in a ``pure`` bin all scores are equal.
    """

    def halves(counts: Counts, first: bool) -> Counts:
        steps = np.diff(counts)
        early = steps if first else np.where(pure, steps, 0)
        return np.stack([early, steps - early], axis=1).ravel()

    def ordered(first: bool) -> RankTable:
        parts = halves(table.known, first), halves(table.correct, first), halves(table.unknown, not first)
        return cumulative(np.repeat(table.threshold[1:], 2), *parts)

    return ordered(False), ordered(True)


def may_overflow(one: Counts, other: Counts) -> bool:
    """Whether twice the number of pairs of two cumulative counts exceeds 64-bit integers."""
    return one.ndim == 1 and one.dtype.kind == "i" and 2 * int(one[-1]) * int(other[-1]) >= 2**63


def exact_dot(one: Counts, other: Counts) -> int:
    """Sum of products of counts, which 64 bits may not hold: added up in Python from 20 bits of ``one`` at a time."""
    pieces = range(0, int(one.max(initial=0)).bit_length(), 20)
    return sum(int(np.vecdot(other, (one >> low) & 0xFFFFF)) << low for low in pieces)
