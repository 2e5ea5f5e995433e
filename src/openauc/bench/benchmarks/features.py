"""Heads and scores on embeddings of texts and images: which way to reject, on which data.

Logistic regression with every score, and with rejectors that use several of them; beside it a small network on the same
embeddings, trained with the losses of the papers.
"""

from __future__ import annotations

from openauc.bench.trial import TrialSpec
from openauc.features.scores.base import REJECTORS
from openauc.features.scores.registry import SCORES
from openauc.methods import recipe_for
from openauc.protocols import PROTOCOLS
from openauc.recipe import Recipe

HEAD = "logistic"
RATES = {"gcpl": 0.01}
"""Learning rates other than the protocols' own; on held-out classes of the digits, prototypes need a higher one."""
NETWORKS = ("ce_plus", "openauc", "arpl", "gcpl")
"""Losses a small network on the embeddings is trained with, on the first splits of each protocol."""
NETWORK_SPLITS = 5


def trials(splits: int = 10) -> list[TrialSpec]:
    """Every contender on at most ``splits`` splits of every protocol of embeddings."""
    problems = [
        (name, split)
        for name, protocol in PROTOCOLS.items()
        if protocol.of_embeddings
        for split in range(min(splits, len(protocol.splits)))
    ]
    scored: list[tuple[str, str | None]] = [(HEAD, score) for score in (*REJECTORS, *SCORES)]
    trained: list[tuple[str, str | None]] = [(method, None) for method in NETWORKS]
    return [
        TrialSpec.of(name, split, method, recipe=_recipe(name, method), score=score)
        for name, split in problems
        for method, score in (*scored, *(trained if split < NETWORK_SPLITS else ()))
    ]


def _recipe(protocol: str, method: str) -> Recipe | None:
    return recipe_for(None, protocol, method, learning_rate=RATES[method]) if method in RATES else None
