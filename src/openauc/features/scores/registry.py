"""Open-set scores of a sample from its features and logits; higher = more unknown."""

from __future__ import annotations

from openauc._validation import check_choice
from openauc.features.scores import distance, head, logit
from openauc.features.scores.base import Score

SCORES: dict[str, type[Score]] = {
    "max_logit": logit.MaxLogit,
    "max_probability": logit.MaxProbability,
    "energy": logit.Energy,
    "entropy": logit.Entropy,
    "margin": logit.Margin,
    "gen": logit.GEN,
    "knn": distance.NearestNeighbour,
    "knn_10": distance.TenthNeighbour,
    "knn_50": distance.FiftiethNeighbour,
    "distance": distance.Distance,
    "class_mean": distance.ClassMean,
    "mahalanobis": distance.Mahalanobis,
    "mahalanobis_pp": distance.MahalanobisPlusPlus,
    "relative_mahalanobis": distance.RelativeMahalanobis,
    "relative_mahalanobis_pp": distance.RelativeMahalanobisPlusPlus,
    "vim": head.ViM,
    "nnguide": head.NNGuide,
    "fdbd": head.FDBD,
    "norm": distance.Norm,
    "react": head.ReAct,
    "scale": head.Scale,
}
"""Open-set scores by name, as `openauc list scores` prints them."""


def make_score(name: str) -> Score:
    """A new score of that name.

    >>> type(make_score("energy")).__name__
    'Energy'
    """
    return SCORES[check_choice("score", name, SCORES)]()
