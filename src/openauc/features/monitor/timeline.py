"""Counts of decisions in consecutive windows of a stream."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]

MOST_WINDOWS = 256
"""When there are more windows, neighbours are joined, so that memory is bounded."""
TENTHS = 10
SUMS = ("called", "rejected", "tenths")
FIELDS = (*SUMS, "evidence", "times")


class Timeline:
    """Counts of decisions in consecutive windows of a stream.

    Parameters
    ----------
    size
        Samples in a window.
    n_classes, n_parts
        Number of predicted classes, and of things that are watched.

    Attributes
    ----------
    called, rejected
        (W, C) samples by predicted class, and how many of them were rejected.
    tenths
        (W, 10) samples between the tenths of the reference scores, from the lowest.
    evidence
        (W, P) highest evidence of each part in the window, as a logarithm.
    times
        (W, 2) first and last time in each window, as text; empty where none was given.
    """

    def __init__(self, size: int, n_classes: int, n_parts: int) -> None:
        self.size = size
        self.called = np.zeros((0, n_classes), np.int64)
        self.rejected = np.zeros((0, n_classes), np.int64)
        self.tenths = np.zeros((0, TENTHS), np.int64)
        self.evidence = np.zeros((0, n_parts))
        self.times = np.zeros((0, 2), "U1")

    @property
    def n(self) -> Counts:
        """(W,) samples of each window; only the last may have fewer than ``size``."""
        return np.asarray(self.called.sum(axis=1))

    @property
    def room(self) -> int:
        """Samples that still fit into the current window."""
        return self.size - int(self.n[-1]) % self.size if len(self.n) else self.size

    def since(self, sample: int) -> tuple[Counts, Counts, Counts]:
        """Sums of ``called``, ``rejected`` and ``tenths`` over the windows from about this sample on."""
        first = min(round((sample - 1) / self.size), len(self.called) - 1)
        called, rejected, tenths = (getattr(self, name)[first:].sum(axis=0) for name in SUMS)
        return called, rejected, tenths

    def add(
        self, called: Counts, rejected: Counts, tenths: Counts, evidence: NDArray[Any], times: tuple[str, str]
    ) -> None:
        """Count a piece of the stream of at most ``room`` samples."""
        new = dict(zip(FIELDS, (called, rejected, tenths, evidence, np.array(times)), strict=True))
        if self.room == self.size:
            if len(self.called) == MOST_WINDOWS:
                self._join()
            for name, values in new.items():
                setattr(self, name, np.concatenate([getattr(self, name), values[None]]))
            return
        for name in SUMS:
            getattr(self, name)[-1] += new[name]
        self.evidence[-1] = np.maximum(self.evidence[-1], evidence)
        self.times = np.concatenate([self.times[:-1], np.array([[self.times[-1, 0] or times[0], times[1]]])])

    def _join(self) -> None:
        for name in SUMS:
            setattr(self, name, getattr(self, name)[::2] + getattr(self, name)[1::2])
        self.evidence = np.maximum(self.evidence[::2], self.evidence[1::2])
        self.times = np.stack([self.times[::2, 0], self.times[1::2, 1]], axis=1)
        self.size *= 2
