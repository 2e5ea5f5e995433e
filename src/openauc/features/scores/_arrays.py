"""Steps that several scores share, for arrays of numpy and of any other library of the array API standard."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = Any
"""Of numpy, or of another library of the array API standard, whose functions ``__array_namespace__`` gives."""


def as_array(values: Any) -> Array:
    """The values themselves if they are an array of such a library, else as an array of numpy."""
    return values if hasattr(values, "__array_namespace__") else np.asarray(values)


def wide(values: Any) -> tuple[Any, Array]:
    """The library of the values, and the values in float64."""
    array = as_array(values)
    xp = array.__array_namespace__()
    return xp, xp.astype(array, xp.float64, copy=False)


def ready(features: Any) -> tuple[Any, Array]:
    """The library of the features, and the features in float32 if they are float16 or float32, else in float64."""
    array = as_array(features)
    xp = array.__array_namespace__()
    narrow = array.dtype in (xp.float16, xp.float32)
    return xp, xp.astype(array, xp.float32 if narrow else xp.float64, copy=False)


def like(x: Array, fitted: Any) -> Array:
    """The array ``fitted`` in the library and precision of the array ``x``."""
    xp = x.__array_namespace__()
    return xp.astype(xp.asarray(fitted), x.dtype, copy=False)


def product(x: Array, fitted: Any) -> Array:
    """``x @ fitted``, multiplied in the precision of ``x`` and returned in float64."""
    xp = x.__array_namespace__()
    return xp.astype(xp.matmul(x, like(x, fitted)), xp.float64, copy=False)


def log_sum_exp(z: Array) -> Array:
    """(n, 1) logarithms of the sums of exponentials of (n, C) numbers."""
    xp = z.__array_namespace__()
    largest = xp.max(z, axis=1, keepdims=True)
    return largest + xp.log(xp.sum(xp.exp(z - largest), axis=1, keepdims=True))


def log_softmax(z: Array) -> Array:
    """(n, C) logarithms of probabilities."""
    xp = z.__array_namespace__()
    shifted = z - xp.max(z, axis=1, keepdims=True)
    return shifted - xp.log(xp.sum(xp.exp(shifted), axis=1, keepdims=True))


def top(values: Array, count: int) -> Array:
    """(n, count) largest numbers of each row, in any order; the whole row if it is shorter."""
    xp = values.__array_namespace__()
    if count == 1:
        return xp.max(values, axis=1, keepdims=True)
    if xp is not np:
        return xp.sort(values, axis=1)[:, -count:]
    # Several times as fast as sorting, but not in the standard.
    columns = values.shape[1]
    return np.partition(values, columns - count, axis=1)[:, columns - count :] if count < columns else values


def squared_lengths(x: Array) -> Array:
    """(n, 1) sums of squares in float64."""
    xp, x = wide(x)
    return xp.vecdot(x, x)[:, None]


def lengths(x: Array) -> Array:
    """(n, 1) Euclidean norms in float64."""
    return x.__array_namespace__().sqrt(squared_lengths(x))


def nonzero(lengths: Array) -> Array:
    """The lengths with 1 in place of 0, to divide by."""
    xp = lengths.__array_namespace__()
    return xp.where(lengths > 0, lengths, xp.ones_like(lengths))


def unit_length(x: Array) -> Array:
    """Rows scaled to length 1; a row of zeros stays as it is."""
    xp = x.__array_namespace__()
    return x / xp.astype(nonzero(lengths(x)), x.dtype, copy=False)
