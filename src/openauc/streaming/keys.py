"""Scores as integers in the same order: what shards agree on without knowing each other's range."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from openauc.metrics.samples import Ints, key_of_bits

MANTISSA_BITS = 10
_LARGEST = np.int64(2**63 - 1)


def score_key(score: ArrayLike) -> Ints:
    """Integer in the order of the float64: equal where scores are equal, smaller where they are smaller.

    The bits of a float, read as an integer, rise with its magnitude; those of negative numbers are turned around.
    ``-0.0`` and ``0.0`` share the key 0, infinities have the outermost ones, and NaN, which has no rank, must not come.
    float32 and float64 of the same value have the same key.

    >>> score_key([-np.inf, -1.5, -0.0, 0.0, 5e-324, np.inf]).tolist()[2:5]
    [0, 0, 1]
    """
    bits = np.ascontiguousarray(score, dtype=np.float64).view(np.int64)
    return np.asarray(key_of_bits(bits, _LARGEST))


def key_score(key: ArrayLike) -> NDArray[np.float64]:
    """The score with this key.

    >>> key_score(score_key([-1e300, -1.5, 0.0, 2.0])).tolist()
    [-1e+300, -1.5, 0.0, 2.0]
    """
    keys = np.asarray(key, dtype=np.int64)
    return np.asarray((keys ^ ((keys >> 63) & _LARGEST)).view(np.float64))


def bin_of(key: Any, resolution: int = MANTISSA_BITS) -> Any:
    """Bin of a key: its sign, its exponent and the first ``resolution`` of the 52 bits of its mantissa.

    >>> (bin_of(score_key([1.0, 1.0009, 1.001])) - bin_of(score_key(1.0))).tolist()
    [0, 0, 1]
    """
    return key >> (52 - resolution)
