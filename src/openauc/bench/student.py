"""Statistics of small samples: Student's t and the exact sign-flip test."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from openauc._validation import check_fraction, import_extra
from openauc.intervals import Interval

MOST_FLIPPED = 15  # up to this many differences all sign patterns are counted, 32,768 of them


def mean_interval(values: Sequence[float], level: float) -> Interval | None:
    """Student interval of the mean of a sample; None with fewer than two values.

    >>> tuple(round(bound, 3) for bound in mean_interval([0.90, 0.92, 0.97], 0.95))
    (0.84, 1.02)
    """
    check_fraction("level", level, one=False)
    if len(values) < 2:
        return None
    half = _scipy_special().stdtrit(len(values) - 1, 0.5 + level / 2) * _standard_error(values)
    return Interval(float(np.mean(values) - half), float(np.mean(values) + half))


def paired_p(differences: Sequence[float]) -> float | None:
    """Two-sided t-test that the mean difference is zero; None with fewer than two differences."""
    if len(differences) < 2:
        return None
    mean, error = float(np.mean(differences)), _standard_error(differences)
    if error == 0.0:
        return 1.0 if mean == 0.0 else 0.0
    return float(2 * _scipy_special().stdtr(len(differences) - 1, -abs(mean / error)))


def sign_flip_p(differences: Sequence[float]) -> float | None:
    """Share of all sign patterns whose mean is at least as far from zero; None beyond ``MOST_FLIPPED`` differences.

    It assumes only that differences are symmetric. No p-value is below 2 / 2**n: five splits reach 0.0625 at best.

    >>> sign_flip_p([0.1, 0.2, 0.3])
    0.25
    """
    if not 2 <= len(differences) <= MOST_FLIPPED:
        return None
    signs = np.array(list(product((1.0, -1.0), repeat=len(differences))))
    sums = np.abs(signs @ np.asarray(differences))
    return float(np.mean(sums >= sums[0] * (1.0 - 1e-12)))


def _standard_error(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1)) / math.sqrt(len(values))


def _scipy_special() -> Any:
    return import_extra("scipy.special", "a table with intervals and tests", "'openauc[sklearn]'")
