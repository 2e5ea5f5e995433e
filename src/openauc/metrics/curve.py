"""A curve of operating points: what every ``*_curve`` function returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Curve:
    """Points ``(x, y)``, ``x`` never falling, each reached by rejecting the samples with score > threshold.

    The threshold ``-inf`` rejects every sample.

    >>> curve = Curve(np.array([0.0, 0.0, 1.0]), np.array([0.0, 0.8, 1.0]), np.array([-np.inf, 0.3, 0.7]))
    >>> len(curve), curve.area()
    (3, 0.9)
    """

    x: Floats
    y: Floats
    threshold: Floats
    x_label: str = "x"
    y_label: str = "y"

    def area(self, low: float = 0.0, high: float = 1.0) -> float:
        """Area under the straight lines between the points, for x in [low, high]."""
        return float(segment_areas(self.x, self.y, low, high).sum())

    def at(self, x: ArrayLike) -> Floats:
        """Height at ``x`` on the straight lines between the points; the top of a vertical step.

        >>> Curve(np.array([0.0, 0.0, 1.0]), np.array([0.0, 0.6, 1.0]), np.array([-np.inf, 1, 2])).at([0, 0.5])
        array([0.6, 0.8])
        """
        query = np.asarray(x, dtype=np.float64)
        right = np.searchsorted(self.x, query, side="right")
        left = np.clip(right - 1, 0, len(self.x) - 1)
        right = np.clip(right, 0, len(self.x) - 1)
        inner = np.isfinite(self.x[left]) & (self.x[right] > self.x[left])  # the threshold -inf has no distance
        width = np.where(inner, self.x[right] - np.where(inner, self.x[left], 0.0), 1.0)
        share = np.where(inner, query - np.where(inner, self.x[left], 0.0), 0.0) / width
        return np.asarray(self.y[left] + np.clip(share, 0.0, 1.0) * (self.y[right] - self.y[left]))

    def plot(self, ax: Axes | None = None, *, label: str | None = None) -> Axes:
        """Draw the curve into ``ax``, or into new axes; needs matplotlib (``pip install 'openauc[plot]'``)."""
        from openauc.plotting import draw_curve

        return draw_curve(self.x, self.y, x_label=self.x_label, y_label=self.y_label, label=label, ax=ax)

    def __len__(self) -> int:
        return len(self.x)


def segment_areas(x: Floats, y: Floats, low: float, high: float, *, step: bool = False) -> Floats:
    """Area of each segment of a polygon inside [low, high]; ``step`` keeps the height of its left end."""
    x0, x1, y0, y1 = x[..., :-1], x[..., 1:], y[..., :-1], y[..., 1:]
    left, right = np.clip(x0, low, high), np.clip(x1, low, high)
    if step:
        return np.asarray((right - left) * y0)
    width = x1 - x0
    slope = np.divide(y1 - y0, width, out=np.zeros_like(width), where=width > 0)
    inner = np.isfinite(x0)  # a segment that begins at -inf keeps the height of its left end, as in ``Curve.at``
    middle = np.where(inner, 0.5 * (left + right) - np.where(inner, x0, 0.0), 0.0)
    return np.asarray((right - left) * (y0 + slope * middle))
