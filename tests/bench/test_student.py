"""Student's t against scipy, and small samples by hand."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from openauc.bench.student import MOST_FLIPPED, mean_interval, paired_p, sign_flip_p


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=8))
def test_interval_and_test_of_scipy(values: list[float]) -> None:
    if np.std(values) < 1e-9:
        return
    interval = mean_interval(values, 0.9)
    wanted = stats.t.interval(0.9, len(values) - 1, np.mean(values), stats.sem(values))
    assert interval == pytest.approx(wanted, rel=1e-8, abs=1e-12)
    assert paired_p(values) == pytest.approx(stats.ttest_1samp(values, 0.0).pvalue, rel=1e-7)


def test_one_value_says_nothing_of_its_spread() -> None:
    assert mean_interval([0.5], 0.95) is None
    assert paired_p([0.5]) is None
    assert sign_flip_p([0.5]) is None


def test_values_without_spread() -> None:
    assert mean_interval([0.5, 0.5], 0.95) == (0.5, 0.5)
    assert paired_p([0.0, 0.0, 0.0]) == 1.0
    assert paired_p([0.25, 0.25]) == 0.0


@pytest.mark.parametrize("level", [0.0, 1.0, 95])
def test_a_level_is_a_fraction(level: float) -> None:
    with pytest.raises(ValueError, match="level is"):
        mean_interval([0.1, 0.2], level)


@given(st.lists(st.integers(-5, 5), min_size=2, max_size=7))
def test_sign_flips_counted_one_by_one(values: list[int]) -> None:
    flipped = [
        abs(sum(s * v for s, v in zip(signs, values, strict=True))) for signs in product((1, -1), repeat=len(values))
    ]
    wanted = sum(total >= abs(sum(values)) for total in flipped) / len(flipped)
    assert sign_flip_p([v / 7 for v in values]) == wanted


def test_sign_flips_only_where_all_can_be_counted() -> None:
    assert sign_flip_p([1.0] * MOST_FLIPPED) == 2 / 2**MOST_FLIPPED
    assert sign_flip_p([1.0] * (MOST_FLIPPED + 1)) is None


def test_five_splits_reach_one_sixteenth() -> None:
    assert sign_flip_p([0.1, 0.2, 0.1, 0.3, 0.2]) == 0.0625
    assert math.isclose(sign_flip_p([0.1, -0.1]) or 0, 1.0)
