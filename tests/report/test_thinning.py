"""Thinned curves draw the same; slider positions stay exact."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openauc.report.thinning import slider_columns, thin


def distance_to_line(x, y, kept) -> float:
    """Largest distance of a point from the thinned line, by brute force over its segments."""
    a, b = np.stack([x, y], 1)[kept][:-1], np.stack([x, y], 1)[kept][1:]
    if len(kept) == 1:
        a = b = np.stack([x, y], 1)[kept]
    d = b - a
    length = np.maximum((d**2).sum(1), 1e-300)
    worst = 0.0
    for point in np.stack([x, y], 1):
        t = np.clip(((point - a) * d).sum(1) / length, 0, 1)
        worst = max(worst, np.hypot(*(point - a - t[:, None] * d).T).min())
    return worst


@given(st.integers(0, 2**32 - 1), st.integers(1, 300), st.booleans())
def test_no_point_is_further_than_a_pixel_from_what_is_drawn(seed: int, n: int, monotone: bool) -> None:
    rng = np.random.default_rng(seed)
    x = np.sort(rng.integers(0, 60, n) / 60)
    y = np.sort(rng.random(n)) if monotone else rng.random(n)
    kept = thin(x, y, pixels=100)
    assert kept[0] == 0
    assert kept[-1] == n - 1
    assert (np.diff(kept) > 0).all()
    assert distance_to_line(x, y, kept) <= 1.0 / 100


def test_a_million_points_become_few() -> None:
    x = np.linspace(0, 1, 1_000_000)
    kept = thin(x, np.sqrt(x))
    assert len(kept) < 200
    at = np.linspace(0, 1, 5001)
    # Vertical distance; the curve is steep near 0, where half a pixel across is more upwards.
    assert np.abs(np.interp(at, x[kept], np.sqrt(x)[kept]) - np.sqrt(at))[5:].max() < 0.02
    assert np.abs(np.interp(at, x[kept], np.sqrt(x)[kept]) - np.sqrt(at))[500:].max() < 1e-3


def test_equal_points_are_one() -> None:
    assert thin(np.zeros(5), np.zeros(5)).tolist() == [0, 4]
    assert thin(np.array([0.5]), np.array([0.5])).tolist() == [0]


@pytest.mark.parametrize("positions", [10, 50])
def test_slider_columns_keep_the_ends_and_what_they_must(positions: int) -> None:
    known, unknown = np.arange(1001), np.maximum(np.arange(1001) - 500, 0)
    columns = slider_columns(known, unknown, [7, 333], positions=positions)
    assert {0, 7, 333, 1000} <= set(columns.tolist())
    assert (np.diff(columns) > 0).all()
    assert len(columns) <= positions + 4
    gained = np.diff(known[columns]) / 1000 + np.diff(unknown[columns]) / 500
    assert gained.max() <= 2 / (positions - 1) + 0.004


def test_few_thresholds_are_all_positions() -> None:
    assert slider_columns(np.arange(5), np.arange(5), [2]).tolist() == [0, 1, 2, 3, 4]
