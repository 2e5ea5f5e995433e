"""Hypothesis strategies for the triple (y_true, y_pred, open_score), small and full of corner cases."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

UNKNOWN = -1
DTYPES = (np.float16, np.float32, np.float64)
PREDICTIONS = ("any", "right", "wrong", "unknown too")


class Triple(NamedTuple):
    y_true: NDArray[np.int64]
    y_pred: NDArray[np.int64]
    open_score: NDArray[Any]

    @property
    def lists(self) -> tuple[list[int], list[int], list[float]]:
        """What the oracles take."""
        return self.y_true.tolist(), self.y_pred.tolist(), self.open_score.tolist()

    @property
    def classes(self) -> list[int]:
        return sorted({*self.y_true.tolist(), *self.y_pred.tolist()} - {UNKNOWN})


@cache
def scores(dtype: type[np.floating[Any]], *, finite: bool = False) -> st.SearchStrategy[float]:
    """One score: zeros of both signs, neighbours, the smallest and largest magnitudes, infinities."""
    info = np.finfo(dtype)
    corners = [0.0, -0.0, 0.5, 1.0, float(np.nextafter(dtype(1), dtype(2))), float(info.smallest_subnormal)]
    corners += [-float(info.smallest_subnormal), float(info.tiny), float(info.max), float(info.min)]
    if not finite:
        corners += [np.inf, -np.inf]
    width: Any = info.bits
    anything = st.floats(width=width, allow_nan=False, allow_infinity=not finite)
    return st.sampled_from(corners) | anything


_POOL = 6
_MOST_CLASSES = 4
_sample = st.tuples(
    st.integers(UNKNOWN, _MOST_CLASSES - 1),
    st.integers(UNKNOWN, _MOST_CLASSES - 1),
    st.integers(0, _POOL - 1),
)
_samples = st.lists(_sample, max_size=2) | st.lists(_sample, min_size=5, max_size=14)
_shape = st.tuples(st.sampled_from(DTYPES), st.integers(1, _MOST_CLASSES), st.sampled_from(PREDICTIONS), _sample)


@cache
def _pools(dtype: type[np.floating[Any]], finite: bool) -> st.SearchStrategy[list[float]]:
    score = scores(dtype, finite=finite)
    return st.lists(score, min_size=3, max_size=_POOL) | st.lists(score, min_size=1, max_size=1)


@st.composite
def triples(draw: st.DrawFn, *, finite: bool = False) -> Triple:
    """Two to sixteen samples of both sides; scores come from a pool so small that most triples hold ties.

    A pool of one makes a constant score; one sample per side, one class, all predictions right, all wrong, or
    some "unknown" occur often.
    """
    dtype, n_classes, style, (_, pred, index) = draw(_shape)
    pool = draw(_pools(dtype, finite))
    samples = [(UNKNOWN, pred, index), *draw(_samples)]
    if all(true == UNKNOWN for true, _, _ in samples):
        samples.append((pred % n_classes, pred, 0))
    true = [t if t == UNKNOWN else t % n_classes for t, _, _ in samples]
    pred = [_predict(t, p, style, n_classes) for t, (_, p, _) in zip(true, samples, strict=True)]
    score = [pool[i % len(pool)] for _, _, i in samples]
    return Triple(np.array(true), np.array(pred), np.array(score, dtype=dtype))


def _predict(true: int, pred: int, style: str, n_classes: int) -> int:
    if style == "unknown too":
        return pred if pred == UNKNOWN else pred % n_classes
    if style == "any" or true == UNKNOWN:
        return pred % n_classes
    return true if style == "right" else true + 1  # the next class may be one without samples


def fractions(*, zero: bool = False) -> st.SearchStrategy[float]:
    """Fractions as people type them (0.95) or as counts give them (2/3)."""
    numerators = {n: range(0 if zero else 1, n + 1) for n in (100, *range(1, 9))}
    return st.sampled_from(sorted({k / n for n, ks in numerators.items() for k in ks}))


@st.composite
def order_preserving(draw: st.DrawFn, values: NDArray[Any]) -> NDArray[np.float64]:
    """``values``, each distinct one replaced, in order, by another: any strictly monotone transform."""
    distinct, rank = np.unique(values, return_inverse=True)
    other = draw(st.lists(st.floats(allow_nan=False), min_size=len(distinct), max_size=len(distinct), unique=True))
    return np.sort(np.array(other, dtype=np.float64))[rank]


def random_triple(
    n: int, *, seed: int = 0, dtype: Any = np.float64, decimals: int | None = None, n_classes: int = 10
) -> Triple:
    """A plausible model on ``n`` samples, half of them unknown; ``decimals`` rounds the scores into ties."""
    rng = np.random.default_rng(seed)
    true = np.where(rng.random(n) < 0.5, UNKNOWN, rng.integers(0, n_classes, n))
    true[:2] = [0, UNKNOWN]
    pred = np.where(rng.random(n) < 0.8, true, rng.integers(0, n_classes, n))
    pred = np.where(pred == UNKNOWN, rng.integers(0, n_classes, n), pred)
    score = rng.normal(size=n) + (true == UNKNOWN)
    if decimals is not None:
        score = score.round(decimals)
    return Triple(true, pred, score.astype(dtype))
