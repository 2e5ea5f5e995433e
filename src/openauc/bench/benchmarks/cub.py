"""The paper's CUB tables: seven methods on a pretrained ResNet-50, unknown birds easy, medium and hard."""

from __future__ import annotations

from openauc.bench.benchmarks.table2 import TESTED_WITH
from openauc.bench.paper import CUB_METHODS
from openauc.bench.trial import Scalar, TrialSpec

WEIGHTS = "moco_v2_places.pth"
METHOD_ARGS: dict[str, dict[str, Scalar]] = {"openauc": {"preset": "paper", "lam": 0.05}}
"""The weight of the public script for CUB, outside the range that the paper searched."""


def trials(weights: str = WEIGHTS, seeds: int = 1) -> list[TrialSpec]:
    """Every method with its published recipe, from ``weights``: MoCo v2 trained on Places, in the papers.

    OpenAUC has two rows, with the score it is tested with and the one it is trained with, as in ``table2``.
    """
    return [
        TrialSpec.of("cub", 0, method, weights=weights, method_args=METHOD_ARGS.get(method, {}), seed=seed, score=score)
        for seed in range(seeds)
        for method in CUB_METHODS
        for score in (TESTED_WITH if method in METHOD_ARGS else (None,))
    ]
