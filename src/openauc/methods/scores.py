"""Open-set scores computable from logits alone; higher = more unknown."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from torch.nn import functional as F

from openauc._validation import check_choice

Score = Callable[[Tensor], Tensor]


def max_logit(logits: Tensor) -> Tensor:
    r"""Minus the largest logit, :math:`r = -\max_c z_c`; (B, C) to (B,).

    >>> import torch
    >>> max_logit(torch.tensor([[1.0, 3.0]])).tolist()
    [-3.0]
    """
    return -logits.amax(1)


def max_probability(logits: Tensor) -> Tensor:
    r"""Minus the largest softmax probability, :math:`r = -\max_c p_c`; (B, C) to (B,).

    In float32 confident samples round to the same -1 and tie; float64 logits keep most of them apart.

    >>> import torch
    >>> max_probability(torch.tensor([[0.0, 0.0]])).tolist()
    [-0.5]
    """
    return -F.softmax(logits, dim=1).amax(1)


def energy(logits: Tensor) -> Tensor:
    r"""Free energy at temperature 1, :math:`r = -\log \sum_c e^{z_c}`; (B, C) to (B,).

    >>> import torch
    >>> round(energy(torch.tensor([[0.0, 0.0]])).item(), 4)
    -0.6931
    """
    return -logits.logsumexp(1)


def entropy(logits: Tensor) -> Tensor:
    r"""Entropy of the softmax in nats, :math:`r = -\sum_c p_c \log p_c`; (B, C) to (B,).

    >>> import torch
    >>> round(entropy(torch.tensor([[0.0, 0.0]])).item(), 4)
    0.6931
    """
    log_probability = F.log_softmax(logits, dim=1)
    return -(log_probability.exp() * log_probability).sum(1)


def margin(logits: Tensor) -> Tensor:
    r"""Second largest minus largest logit, :math:`r = z_{(2)} - z_{(1)}`; (B, C) to (B,).

    >>> import torch
    >>> margin(torch.tensor([[1.0, 3.0, 2.5]])).tolist()
    [-0.5]
    """
    largest, second = logits.topk(2, dim=1).values.unbind(1)
    return second - largest


SCORES: dict[str, Score] = {
    "max_logit": max_logit,
    "max_probability": max_probability,
    "energy": energy,
    "entropy": entropy,
    "margin": margin,
}
"""Open-set scores by name."""


def make_score(score: str | Score) -> Score:
    """Score of that name, or the function itself.

    >>> make_score("energy") is energy
    True
    """
    return SCORES[check_choice("score", score, SCORES)] if isinstance(score, str) else score
