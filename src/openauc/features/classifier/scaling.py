"""Centring and scaling of features, so that neither an offset nor the unit of the numbers matters."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from openauc._validation import check_choice
from openauc.features.scores._arrays import Array
from openauc.features.scores.base import Floats, Rows

SCALINGS = ("auto", "embedding", "columns")
LENGTH = 10.0  # root mean square length of scaled features, so that one grid of strengths suits all encoders
NARROWEST, UNLIKE = 32, 100.0
"""Fewer than 32 features, or one that varies 100 times more than the median one, are columns of a table."""
MOST_ROWS, CHUNK = 100_000, 8192  # most rows to compute mean and deviation from, and rows that are scaled together


class Scaling(NamedTuple):
    """Subtract ``centre`` from each feature, then multiply by ``factor``.

    Examples
    --------
    >>> scaling = Scaling.of(np.array([[1000.0, 0.1], [1002.0, 0.3]]), np.arange(2))
    >>> scaling.kind, (scaling(np.array([[1002.0, 0.3]])) ** 2).sum().round(6).item()
    ('columns', 100.0)
    """

    centre: Floats
    factor: Floats
    kind: str = "embedding"

    @classmethod
    def of(cls, X: NDArray[Any], rows: Rows, kind: str = "auto") -> Scaling:
        """From some rows of X; ``kind`` is ``"embedding"`` (one factor), ``"columns"`` (one for each) or ``"auto"``."""
        check_choice("scaling", kind, SCALINGS)
        some = rows[:: -(-len(rows) // MOST_ROWS)]
        parts = np.split(some, range(CHUNK, len(some), CHUNK))
        largest = np.max([np.abs(X[part]).max(0) for part in parts], axis=0).astype(np.float64)
        unit = np.where(largest > 0, largest, 1.0)  # dividing by it keeps sums of squares in range
        mean = sum((X[part] / unit).sum(0, dtype=np.float64) for part in parts) / len(some)
        squares = sum(((X[part] / unit - mean) ** 2).sum(0, dtype=np.float64) for part in parts)
        deviation = np.sqrt(squares / len(some))
        deviation[deviation <= 4 * np.finfo(X.dtype).eps] = 0.0  # rounding
        varying = deviation > 0
        if kind == "auto":
            spread = (deviation * (unit / unit.max()))[varying]
            unlike = len(spread) > 0 and spread.max() > UNLIKE * np.median(spread)
            kind = "columns" if len(unit) < NARROWEST or unlike else "embedding"
        with np.errstate(over="ignore"):  # that is refused below
            if kind == "columns":
                # A constant feature is measured in units of its one value.
                width = np.where(varying, deviation, 1.0) * np.sqrt(max(varying.sum(), 1))
                factor = LENGTH / width / unit
            else:
                top = float(unit.max())
                length = float(np.sqrt(((deviation * (unit / top)) ** 2).sum()))
                factor = np.full(len(unit), LENGTH / (length or 1.0) / top)
        if not (np.isfinite(factor).all() and (factor > 0).all()):
            raise ValueError(
                f"the features cannot be scaled: their largest number is {unit.max():.3g}, the smallest of the "
                f"largest of each column {unit.min():.3g}. Divide X by a number that brings them near 1."
            )
        return cls(mean * unit, factor, kind)

    def __call__(self, X: Array) -> Array:
        """Scaled features in the precision of X, computed in float64."""
        xp = X.__array_namespace__()
        centred = xp.astype(X, xp.float64) - xp.asarray(self.centre)
        return xp.astype(centred * xp.asarray(self.factor), X.dtype)

    def uncentred(self, scaled: Array) -> Array:
        """Scaled features with their offset, for scores that need the activations of a network."""
        xp = scaled.__array_namespace__()
        return scaled + xp.astype(xp.asarray(self.centre * self.factor), scaled.dtype)

    def rows(self, X: NDArray[Any], rows: Rows) -> NDArray[Any]:
        """Scaled rows of X, made without a second array of that size."""
        scaled = np.empty((len(rows), X.shape[1]), X.dtype)
        for start in range(0, len(rows), CHUNK):
            scaled[start : start + CHUNK] = self(X[rows[start : start + CHUNK]])
        return scaled
