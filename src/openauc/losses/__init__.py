"""Losses for any training loop: tensors in, scalar tensor out.

They keep dtype and device, draw no random numbers of their own, and return a zero that carries gradient when
nothing was selected.
"""

from openauc.losses.mixup import manifold_mixup
from openauc.losses.pairwise import (
    SURROGATES,
    OpenAUCLoss,
    PairwiseAUCLoss,
    Surrogate,
    logistic,
    make_surrogate,
    square,
    squared_hinge,
)
from openauc.losses.prototype import arpl_loss, confusion_loss, dot_distance, gcpl_loss, rpl_loss, squared_distance
from openauc.losses.smoothing import smoothed_cross_entropy

__all__ = [
    "SURROGATES",
    "OpenAUCLoss",
    "PairwiseAUCLoss",
    "Surrogate",
    "arpl_loss",
    "confusion_loss",
    "dot_distance",
    "gcpl_loss",
    "logistic",
    "make_surrogate",
    "manifold_mixup",
    "rpl_loss",
    "smoothed_cross_entropy",
    "square",
    "squared_distance",
    "squared_hinge",
]
