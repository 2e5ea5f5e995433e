"""From features and logits to open-set scores: numpy only, the same list for networks and for embeddings."""

from openauc.features.scores import SCORES, Score, make_score

__all__ = ["SCORES", "Score", "make_score"]
