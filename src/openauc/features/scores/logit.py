"""Scores of logits alone: they learn nothing, and compute in float64, where confident probabilities still differ."""

from __future__ import annotations

from typing import Any

from openauc.features.scores._arrays import Array, log_softmax, log_sum_exp, top
from openauc.features.scores.base import Score


class MaxLogit(Score):
    r"""Minus the largest logit, :math:`-\max_c z_c`.

    >>> MaxLogit()([[]], [[1.0, 3.0]]).tolist()
    [-3.0]
    """

    looks_at = "logits"
    formula = "-max z"
    source = "Vaze et al. (2022), Hendrycks et al. (2022)"

    def _score(self, xp: Any, x: Array, z: Array) -> Array:
        return -xp.max(z, axis=1)


class MaxProbability(Score):
    r"""Minus the largest softmax probability, :math:`-\max_c p_c`.

    >>> MaxProbability()([[]], [[0.0, 0.0]]).tolist()
    [-0.5]
    """

    looks_at = "logits"
    formula = "-max p"
    source = "Hendrycks and Gimpel (2017)"

    def _score(self, xp: Any, x: Array, z: Array) -> Array:
        return -xp.max(xp.exp(log_softmax(z)), axis=1)


class Energy(Score):
    r"""Free energy at temperature 1, :math:`-\log \sum_c e^{z_c}`.

    >>> round(float(Energy()([[]], [[0.0, 0.0]])[0]), 4)
    -0.6931
    """

    looks_at = "logits"
    formula = "-log sum exp z"
    source = "Liu et al. (2020)"

    def _score(self, xp: Any, x: Array, z: Array) -> Array:
        return -log_sum_exp(z)[:, 0]


class Entropy(Score):
    r"""Entropy of the softmax in nats, :math:`-\sum_c p_c \log p_c`.

    >>> round(float(Entropy()([[]], [[0.0, 0.0]])[0]), 4)
    0.6931
    """

    looks_at = "logits"
    formula = "-sum p log p"
    source = "Shannon (1948)"

    def _score(self, xp: Any, x: Array, z: Array) -> Array:
        log_probability = log_softmax(z)
        return -xp.sum(xp.exp(log_probability) * log_probability, axis=1)


class Margin(Score):
    r"""Second largest minus largest logit, :math:`z_{(2)} - z_{(1)}`.

    >>> Margin()([[]], [[1.0, 3.0, 2.5]]).tolist()
    [-0.5]
    """

    looks_at = "logits"
    formula = "z_(2) - z_(1), the two largest"
    source = "Scheffer et al. (2001)"

    def _score(self, xp: Any, x: Array, z: Array) -> Array:
        largest = top(z, 2)
        return xp.min(largest, axis=1) - xp.max(largest, axis=1)


class GEN(Score):
    r"""Generalised entropy of the softmax, :math:`\sum_c p_c^\gamma (1 - p_c)^\gamma` over the 100 largest.

    With :math:`\gamma = 0.1`, small probabilities count for nearly as much as large ones.

    >>> round(float(GEN()([[]], [[0.0, 0.0]])[0]), 4)  # 2 * 0.25**0.1
    1.7411
    """

    looks_at = "logits"
    formula = "sum p^0.1 (1 - p)^0.1, the 100 largest"
    source = "Liu et al. (2023)"

    def _score(self, xp: Any, x: Array, z: Array) -> Array:
        probability = xp.exp(log_softmax(z))
        # If p is near 1, 1 - p is a rounding error, which the power magnifies: sum the others instead.
        others = xp.sum(xp.where(probability > 0.5, xp.zeros_like(z), probability), axis=1, keepdims=True)
        probability = top(probability, 100)
        rest = xp.where(probability > 0.5, others, 1 - probability)
        return xp.sum(xp.pow(probability * rest, 0.1), axis=1)
