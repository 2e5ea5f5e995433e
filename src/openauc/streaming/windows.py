"""Accumulators by slice and by time: one for each group, the last few periods, or all of them, fading."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from openauc import _validation as check
from openauc._validation import UNKNOWN, Label
from openauc.evaluation import Evaluation, evaluate_ranked
from openauc.intervals import REPLICATES, Rng, seed_of
from openauc.metrics.counts import RankedSamples
from openauc.metrics.registry import METRICS, Metric
from openauc.metrics.samples import Samples
from openauc.streaming.accumulator import Accumulator, binned_samples
from openauc.streaming.bins import BinCounts

_UNITS = 2.0**20
"""Faded counts are multiples of its inverse, so that their sums are exact, and vanish in the end."""


class Groups(Mapping[Any, Accumulator]):
    """One accumulator for each slice of the samples: a day, a camera, a customer.

    Keyword arguments are those of ``Accumulator``.

    >>> groups = Groups()
    >>> groups.update([0, -1, 0, -1], [0, 0, 0, 0], [0.1, 0.9, 0.8, 0.2], by=["day", "day", "night", "night"])
    >>> {name: part.compute(level=None).openauc for name, part in groups.items() if name == "day"}
    {'day': 1.0}
    >>> groups.total().n_known
    2
    """

    def __init__(self, **options: Any) -> None:
        self._options, self._parts = options, dict[Any, Accumulator]()
        Accumulator(**options)  # refuses what is wrong with them here

    def __getitem__(self, name: Any) -> Accumulator:
        return self._parts[name]

    def __iter__(self) -> Iterator[Any]:
        return iter(sorted(self._parts))

    def __len__(self) -> int:
        return len(self._parts)

    def update(self, y_true: ArrayLike, y_pred: ArrayLike, open_score: ArrayLike, *, by: ArrayLike) -> None:
        """Add samples, each to the group that ``by`` names."""
        columns = [check.as_array(column) for column in (y_true, y_pred, open_score)]
        name = check.as_vector("by", by)
        check.check_same_length(by=name, y_true=columns[0], y_pred=columns[1], open_score=columns[2])
        names, group = np.unique(name, return_inverse=True)
        order = np.argsort(group, kind="stable")
        ends = np.cumsum(np.bincount(group, minlength=len(names)))[:-1]
        fresh = {}
        for label, index in zip(names.tolist(), np.split(order, ends), strict=False):
            fresh[label] = Accumulator(**self._options)
            fresh[label].update(*(column[index] for column in columns))
        for label, part in fresh.items():  # all of them or, after an error above, none
            self._parts[label] = self._parts[label].merge(part) if label in self._parts else part

    def merge(self, other: Groups) -> Groups:
        """New groups with the samples of both."""
        result = Groups(**self._options)
        for part in (self, other):
            for name, accumulator in part.items():
                empty = Accumulator(**self._options)
                result._parts[name] = result._parts.get(name, empty).merge(accumulator)
        return result

    def total(self) -> Accumulator:
        """All groups together."""
        return reduce(Accumulator.merge, self._parts.values(), Accumulator(**self._options))


class Window:
    """The last ``periods`` periods of a stream, one accumulator for each; keyword arguments are those of those.

    >>> window = Window(2)
    >>> for score in (0.9, 0.2, 0.1):
    ...     window.advance()
    ...     window.update([0, -1], [0, 0], [score, 0.5])
    >>> window.total().n_known, window.total().compute(level=None).openauc
    (2, 1.0)
    """

    def __init__(self, periods: int, **options: Any) -> None:
        if periods < 1:
            raise ValueError(f"periods is {periods!r}; a window holds at least one period, the current one.")
        self._options = options
        self._parts = deque([Accumulator(**options)], maxlen=periods)

    def update(self, y_true: ArrayLike, y_pred: ArrayLike, open_score: ArrayLike) -> None:
        """Add samples of the current period."""
        self._parts[-1].update(y_true, y_pred, open_score)

    def advance(self) -> None:
        """Begin a new period; the oldest leaves a full window."""
        self._parts.append(Accumulator(**self._options))

    def total(self) -> Accumulator:
        """The samples of the window."""
        return reduce(Accumulator.merge, self._parts)


@dataclass(frozen=True, eq=False)
class _Faded(Samples):
    """Samples per bin and kind, with the effective numbers of those they stand for."""

    effective: tuple[float, float] = (0.0, 0.0)

    @property
    def sizes(self) -> tuple[float, float]:
        return self.effective


class Fading:
    """A stream in constant memory whose samples count less with every period: ``factor`` times what they did before.

    Intervals are those of the effective number of samples, (sum w)^2 / sum w^2 on each side. Metrics that average over
    classes are left out, and bounds are not certified.

    >>> stream = Fading(0.5)
    >>> stream.update([0, -1], [0, 0], [0.9, 0.5])
    >>> stream.advance()
    >>> stream.update([0, -1], [0, 0], [0.1, 0.5])
    >>> round(stream.compute(level=None).openauc, 4)
    0.6667
    """

    def __init__(self, factor: float, *, unknown_label: Label = UNKNOWN) -> None:
        self.factor = check.check_fraction("factor", factor)
        self._now = Accumulator(exact=False, unknown_label=unknown_label)
        self._past, self._squares = BinCounts.empty(), np.zeros(2)

    def update(self, y_true: ArrayLike, y_pred: ArrayLike, open_score: ArrayLike) -> None:
        """Add samples of the current period."""
        self._now.update(y_true, y_pred, open_score)

    def advance(self) -> None:
        """Begin a new period."""
        sheet, squares = self._all()
        counts = np.rint(sheet.counts * (self.factor * _UNITS)) / _UNITS
        left = counts.any(axis=1)
        self._past = BinCounts(sheet.number[left], counts[left], sheet.low[left], sheet.high[left])
        self._squares = squares * self.factor**2
        self._now.forget()

    def _all(self) -> tuple[BinCounts, Any]:
        numbers = np.array([self._now.n_known, self._now.n_unknown])
        return BinCounts.united([self._past, self._now.refined().columns]), self._squares + numbers

    def compute(
        self,
        *,
        metrics: Mapping[str, Metric] = METRICS,
        level: float | None = 0.95,
        rng: Rng = 0,
        n_replicates: int = REPLICATES,
    ) -> Evaluation:
        """Values, intervals, thresholds and curves; arguments are those of ``evaluate``."""
        chosen = self._now.possible(metrics)
        sheet, squares = self._all()
        totals = np.array([sheet.known.sum(), sheet.unknown.sum()], dtype=np.float64)
        known, unknown = (totals**2 / np.maximum(squares, np.finfo(np.float64).tiny)).tolist()
        needed = any(metric.needs_unknown for metric in chosen.values())
        check.require_samples(int(known > 0), int(unknown > 0), self._now.unknown_label, unknown=needed)
        samples = _Faded(**vars(binned_samples(sheet)), effective=(known, unknown))
        model = RankedSamples(samples, range(max(len(self._now.classes), 2)))
        return evaluate_ranked(model, chosen, level, seed_of(rng), n_replicates)
