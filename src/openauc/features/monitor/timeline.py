"""What a stream looked like over time: counts in windows, and OpenAUC where labels came later."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from openauc._validation import UNKNOWN
from openauc.evaluation import evaluate
from openauc.intervals import Interval
from openauc.metrics.ranking import ScoreDirectionWarning
from openauc.metrics.registry import METRICS

Counts = NDArray[np.int64]
Arrays = dict[str, NDArray[Any]]

MOST_WINDOWS = 256
"""More than these are joined in pairs, so that the memory is bounded."""
TENTHS = 10
MOST_KEPT = 200_000
"""Decisions that wait for their labels; of older ones, labels come too late."""
ERROR = 0.05
"""Probability that any of the intervals of labelled windows misses its value."""

_NO_LABEL = -2
_WINDOWS = ("called", "rejected", "tenths", "evidence")


class Timeline:
    """Counts of decisions in consecutive windows of a stream.

    Parameters
    ----------
    size
        Samples in a window.
    called, rejected
        (W, C) samples by predicted class, and how many of them were rejected.
    tenths
        (W, 10) samples between the tenths of the reference scores, from the lowest.
    evidence
        (W, P) highest evidence of each part in the window, as a logarithm.
    times
        First and last time in each window, as text; empty where none was given.
    """

    def __init__(
        self, size: int, called: Counts, rejected: Counts, tenths: Counts, evidence: NDArray[Any], times: NDArray[Any]
    ) -> None:
        self.size = size
        self.called = called
        self.rejected = rejected
        self.tenths = tenths
        self.evidence = evidence
        self.times = times

    @classmethod
    def empty(cls, size: int, n_classes: int, parts: int) -> Timeline:
        """No window yet."""
        classes = np.zeros((0, n_classes), np.int64)
        tenths, evidence = np.zeros((0, TENTHS), np.int64), np.zeros((0, parts))
        return cls(size, classes, classes.copy(), tenths, evidence, np.zeros((0, 2), "U1"))

    @property
    def n(self) -> Counts:
        """(W,) samples of each window; only the last may be smaller than the others."""
        return np.asarray(self.called.sum(axis=1))

    def since(self, sample: int) -> tuple[Counts, Counts, Counts]:
        """Sums of ``called``, ``rejected`` and ``tenths`` from about that sample on, at least of the last window."""
        first = min(round((sample - 1) / self.size), len(self.called) - 1)
        called, rejected, tenths = (getattr(self, name)[first:].sum(axis=0) for name in _WINDOWS[:3])
        return called, rejected, tenths

    @property
    def room(self) -> int:
        """Samples until the window ends."""
        n = self.n
        return self.size - int(n[-1]) if len(n) and n[-1] < self.size else self.size

    def add(
        self, called: Counts, rejected: Counts, tenths: Counts, evidence: NDArray[Any], times: tuple[str, str]
    ) -> None:
        """Count a piece of the stream that is no longer than ``room``."""
        n = self.n
        new = (called, rejected, tenths, evidence)
        if not len(n) or n[-1] == self.size:
            if len(n) == MOST_WINDOWS:
                self._join()
            for name, values in zip(_WINDOWS, new, strict=True):
                setattr(self, name, np.concatenate([getattr(self, name), values[None]]))
            self.times = np.concatenate([self.times, np.array([times])])
            return
        for name, values in zip(_WINDOWS[:3], new, strict=False):
            getattr(self, name)[-1] += values
        self.evidence[-1] = np.maximum(self.evidence[-1], evidence)
        self.times = np.concatenate([self.times[:-1], np.array([[self.times[-1, 0] or times[0], times[1]]])])

    def _join(self) -> None:
        for name in _WINDOWS[:3]:
            setattr(self, name, getattr(self, name)[::2] + getattr(self, name)[1::2])
        self.evidence = np.maximum(self.evidence[::2], self.evidence[1::2])
        self.times = np.stack([self.times[::2, 0], self.times[1::2, 1]], axis=1)
        self.size *= 2

    def arrays(self) -> Arrays:
        """All of it."""
        named = {name: getattr(self, name) for name in (*_WINDOWS, "times")}
        return named | {"size": np.array(self.size)}

    @classmethod
    def of(cls, arrays: Mapping[str, NDArray[Any]]) -> Timeline:
        """What :meth:`arrays` gave."""
        return cls(int(arrays["size"]), *(arrays[name] for name in (*_WINDOWS, "times")))


@dataclass(frozen=True, kw_only=True)
class LabelledWindow:
    """What the labels of a window say.

    Parameters
    ----------
    first, last
        Numbers of its first and last sample in the stream, from 1.
    n_known, n_unknown
        Samples with a label.
    openauc, interval
        OpenAUC, if there are samples of both kinds, and its interval.
    level
        Of the interval: those of all windows together hold with 95 %.
    accuracy
        Of the labelled known samples, named right; None if there are none.
    """

    first: int
    last: int
    n_known: int
    n_unknown: int
    openauc: float | None
    interval: Interval | None
    level: float
    accuracy: float | None


class _Kept(NamedTuple):
    score: NDArray[Any]
    predicted: NDArray[Any]
    label: NDArray[Any]


class Delayed:
    """Decisions that wait for their labels.

    Parameters
    ----------
    size
        Samples in a window.
    start
        Samples of the stream that are not kept any more.
    score, predicted, label
        Decisions on those that are, and their labels so far.
    finished
        Windows that are not kept any more.
    """

    def __init__(
        self,
        size: int,
        *,
        start: int = 0,
        score: NDArray[Any] | None = None,
        predicted: NDArray[Any] | None = None,
        label: NDArray[Any] | None = None,
        finished: tuple[LabelledWindow, ...] = (),
    ) -> None:
        self.size = size
        self.start = start
        self.kept = _Kept(
            np.empty(0) if score is None else score,
            np.empty(0, np.int32) if predicted is None else predicted,
            np.empty(0, np.int32) if label is None else label,
        )
        self.finished = finished

    def add(self, score: NDArray[Any], predicted: Counts) -> None:
        """Keep decisions; the oldest go once they are too many."""
        new = _Kept(score, predicted.astype(np.int32), np.full(len(score), _NO_LABEL, np.int32))
        self.kept = _Kept(*(np.concatenate(pair) for pair in zip(self.kept, new, strict=True)))
        many = max(0, len(self.kept.score) - MOST_KEPT)
        if many:
            gone = -(-many // self.size) * self.size
            self.finished = tuple(self.windows(gone))
            self.kept = _Kept(*(values[gone:] for values in self.kept))
            self.start += gone

    def take(self, label: Counts, samples: Counts) -> None:
        """Labels, as indices of classes or -1, of samples of the stream, which are counted from 0."""
        place = samples - self.start
        late = (place < 0) | (place >= len(self.kept.label))
        if late.any():
            raise ValueError(
                f"there is no decision to label for sample {int(samples[late][0]) + 1}; those of samples "
                f"{self.start + 1:,} to {self.start + len(self.kept.label):,} are kept."
            )
        self.kept.label[place] = label

    def next_samples(self, n: int) -> Counts:
        """The first samples without a label."""
        free = np.flatnonzero(self.kept.label == _NO_LABEL)
        if len(free) < n:
            raise ValueError(f"y_true has {n} entries, but {len(free)} samples wait for a label; name the samples.")
        return np.asarray(free[:n] + self.start)

    def windows(self, until: int | None = None) -> list[LabelledWindow]:
        """All windows with labels, the finished ones included."""
        found = list(self.finished)
        end = len(self.kept.label) if until is None else min(until, len(self.kept.label))
        for at in range(0, end, self.size):
            part = _Kept(*(values[at : at + self.size] for values in self.kept))
            if (part.label != _NO_LABEL).any():
                found.append(_evaluated(part, self.start + at, 1 + sum(one.openauc is not None for one in found)))
        return found


def _evaluated(part: _Kept, start: int, number: int) -> LabelledWindow:
    """A window; the levels of all, however many will be, spend ``ERROR`` together: sum of 1/(k (k + 1)) is 1."""
    labelled = part.label != _NO_LABEL
    truth, predicted, score = part.label[labelled], part.predicted[labelled], part.score[labelled]
    n_unknown = int((truth == UNKNOWN).sum())
    n_known = len(truth) - n_unknown
    level = 1.0 - ERROR / (number * (number + 1))
    openauc = interval = None
    if n_known and n_unknown:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ScoreDirectionWarning)  # of few samples it says little
            found = evaluate(truth, predicted, score, metrics={"openauc": METRICS["openauc"]}, level=level)
        openauc, interval = found.openauc, found.intervals["openauc"]
    return LabelledWindow(
        first=start + 1,
        last=start + len(part.label),
        n_known=n_known,
        n_unknown=n_unknown,
        openauc=openauc,
        interval=interval,
        level=level,
        accuracy=float((predicted == truth)[truth != UNKNOWN].mean()) if n_known else None,
    )
