"""Leaving out what no screen can show: points of curves, and positions of the threshold slider."""

from __future__ import annotations

import numpy as np

from openauc.metrics.curve import Floats
from openauc.metrics.samples import Ints

PIXELS = 1000
"""A chart is at most this wide and high, so that a pixel is a thousandth of the unit square."""

POSITIONS = 600
"""Thresholds the slider can take."""


def thin(x: Floats, y: Floats, *, pixels: int = PIXELS) -> Ints:
    """Positions of the points that draw the same curve, to half a pixel of the unit square; x never falls.

    First at most four points of each column of pixels stay: first, lowest, highest and last, which is all that shows
    of a line there (Jugel et al., M4, VLDB 2014). Of these Douglas and Peucker's method drops whatever lies within
    half a pixel of the line through its neighbours.

    >>> thin(np.array([0.0, 0.4, 0.5, 1.0]), np.array([0.0, 0.4001, 0.9, 1.0])).tolist()
    [0, 1, 2, 3]
    >>> thin(np.linspace(0, 1, 10_001), np.linspace(0, 1, 10_001) ** 2).size < 60
    True
    """
    kept = _m4(x, y, pixels)
    return kept[_douglas_peucker(x[kept], y[kept], 0.5 / pixels)]


def _m4(x: Floats, y: Floats, pixels: int) -> Ints:
    column = np.minimum((x * pixels).astype(np.int64), pixels)
    first = np.flatnonzero(np.diff(column, prepend=-1))
    last = np.append(first[1:], len(x)) - 1
    kept = [first, last]
    for extreme in (np.minimum, np.maximum):
        height = np.repeat(extreme.reduceat(y, first), last - first + 1)
        reached = np.flatnonzero(y == height)
        kept.append(reached[np.flatnonzero(np.diff(column[reached], prepend=-1))])
    return np.unique(np.concatenate(kept))


def _douglas_peucker(x: Floats, y: Floats, tolerance: float) -> Ints:
    keep = np.zeros(len(x), dtype=bool)
    keep[[0, -1]] = True
    segments = [(0, len(x) - 1)]
    while segments:
        begin, end = segments.pop()
        if end - begin < 2:
            continue
        distance = _to_segment(x[begin : end + 1], y[begin : end + 1])
        farthest = int(np.argmax(distance))
        if distance[farthest] > tolerance:
            middle = begin + farthest
            keep[middle] = True
            segments += [(begin, middle), (middle, end)]
    return np.flatnonzero(keep)


def _to_segment(x: Floats, y: Floats) -> Floats:
    """Distance of each point from the segment between the first and the last."""
    dx, dy = x[-1] - x[0], y[-1] - y[0]
    along = (dx * (x - x[0]) + dy * (y - y[0])) / (dx * dx + dy * dy or 1.0)
    share = np.clip(along, 0.0, 1.0)
    return np.asarray(np.hypot(x - x[0] - share * dx, y - y[0] - share * dy))


def slider_columns(known: Ints, unknown: Ints, keep: list[int], *, positions: int = POSITIONS) -> Ints:
    """Columns of the rank table for the slider: rejecting all, accepting all, those to ``keep``, and as many between.

    From one column to the next, the shares of known and of unknown samples accepted grow by 2 / ``positions`` in all,
    unless a single threshold makes a larger step.

    >>> slider_columns(np.array([0, 1, 2]), np.array([0, 0, 1]), []).tolist()
    [0, 1, 2]
    """
    if len(known) <= positions:
        return np.arange(len(known))
    progress = known / known[-1] + unknown / unknown[-1]
    spread = np.searchsorted(progress, np.linspace(0.0, progress[-1], positions))
    return np.unique(np.concatenate([[0, len(known) - 1], keep, spread])).astype(np.int64)
