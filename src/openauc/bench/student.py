"""Small samples: Student's t without scipy, and the exact sign-flip test."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import product

import numpy as np

from openauc._validation import check_fraction
from openauc.intervals import Interval

MOST_FLIPPED = 15
"""Up to this many differences all sign patterns are counted, 32,768 of them."""

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(128)


def two_sided_p(t: float, degrees: int) -> float:
    r"""Probability of a Student variable beyond ±t.

    With :math:`t = \sqrt\nu \cot\varphi` the tail is a smooth integral of positive terms, so small probabilities keep
    their relative precision:

    .. math:: p = \frac{2\,\Gamma((\nu + 1)/2)}{\sqrt\pi\,\Gamma(\nu/2)} \int_0^\varphi \sin^{\nu - 1}\theta\,d\theta

    One degree of freedom is Cauchy's distribution, with half of it beyond ±1.

    >>> round(two_sided_p(1.0, 1), 12)
    0.5
    """
    return _tail(math.atan2(math.sqrt(degrees), abs(t)), degrees)


@lru_cache(maxsize=1024)
def t_quantile(level: float, degrees: int) -> float:
    """Half-width of a two-sided interval at ``level``, in standard errors.

    >>> round(t_quantile(0.95, 4), 3)
    2.776
    """
    beyond = 1.0 - check_fraction("level", level, one=False)
    low, high = 0.0, math.pi / 2
    while low < (middle := 0.5 * (low + high)) < high:
        low, high = (middle, high) if _tail(middle, degrees) < beyond else (low, middle)
    return math.sqrt(degrees) / math.tan(high)


def mean_interval(values: Sequence[float], level: float) -> Interval | None:
    """Student's interval of a mean; None with fewer than two values."""
    if len(values) < 2:
        return None
    mean, half = float(np.mean(values)), t_quantile(level, len(values) - 1) * _standard_error(values)
    return Interval(mean - half, mean + half)


def paired_p(differences: Sequence[float]) -> float | None:
    """Two-sided t-test that the mean difference is zero; None with fewer than two differences."""
    if len(differences) < 2:
        return None
    mean, error = float(np.mean(differences)), _standard_error(differences)
    if error == 0.0:
        return 1.0 if mean == 0.0 else 0.0
    return two_sided_p(mean / error, len(differences) - 1)


def sign_flip_p(differences: Sequence[float]) -> float | None:
    """Share of all sign patterns whose mean is at least as far from zero; None beyond ``MOST_FLIPPED`` differences.

    It assumes symmetric differences and nothing else. No p-value is below 2 / 2**n: five splits reach 0.0625 at best.

    >>> sign_flip_p([0.1, 0.2, 0.3])
    0.25
    """
    if not 2 <= len(differences) <= MOST_FLIPPED:
        return None
    signs = np.array(list(product((1.0, -1.0), repeat=len(differences))))
    sums = np.abs(signs @ np.asarray(differences))
    return float(np.mean(sums >= sums[0] * (1.0 - 1e-12)))


def _tail(angle: float, degrees: int) -> float:
    scale = 2.0 / math.sqrt(math.pi) * math.exp(math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2))
    return scale * 0.5 * angle * float(_WEIGHTS @ np.sin(0.5 * angle * (_NODES + 1.0)) ** (degrees - 1))


def _standard_error(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1)) / math.sqrt(len(values))
