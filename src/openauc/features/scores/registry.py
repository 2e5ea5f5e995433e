"""Open-set scores of a sample from its features and logits; higher = more unknown.

A score is a small class: ``fit`` takes the features, logits and classes of the training samples, a call turns features
(n, d) and logits (n, C) into n scores. Products with float32 features are computed in float32, which is twice as fast;
everything else is float64.
"""

from __future__ import annotations

from openauc._validation import check_choice
from openauc.features.scores.base import Score
from openauc.features.scores.distance import (
    ClassMean,
    Distance,
    FiftiethNeighbour,
    Mahalanobis,
    MahalanobisPlusPlus,
    NearestNeighbour,
    Norm,
    RelativeMahalanobis,
    RelativeMahalanobisPlusPlus,
    TenthNeighbour,
)
from openauc.features.scores.head import FDBD, NNGuide, ReAct, Scale, ViM
from openauc.features.scores.logit import GEN, Energy, Entropy, Margin, MaxLogit, MaxProbability

SCORES: dict[str, type[Score]] = {
    "max_logit": MaxLogit,
    "max_probability": MaxProbability,
    "energy": Energy,
    "entropy": Entropy,
    "margin": Margin,
    "gen": GEN,
    "knn": NearestNeighbour,
    "knn_10": TenthNeighbour,
    "knn_50": FiftiethNeighbour,
    "distance": Distance,
    "class_mean": ClassMean,
    "mahalanobis": Mahalanobis,
    "mahalanobis_pp": MahalanobisPlusPlus,
    "relative_mahalanobis": RelativeMahalanobis,
    "relative_mahalanobis_pp": RelativeMahalanobisPlusPlus,
    "vim": ViM,
    "nnguide": NNGuide,
    "fdbd": FDBD,
    "norm": Norm,
    "react": ReAct,
    "scale": Scale,
}
"""Open-set scores by name, as `openauc list scores` prints them."""


def make_score(name: str) -> Score:
    """A new score of that name.

    >>> type(make_score("energy")).__name__
    'Energy'
    """
    return SCORES[check_choice("score", name, SCORES)]()
