"""All nine methods on five splits of the embedded digits: minutes on any computer.

A check that everything works and a first impression, at a budget too small for a ranking of methods.
"""

from __future__ import annotations

from collections.abc import Mapping

from openauc.bench.paper import METHODS
from openauc.bench.trial import Scalar, TrialSpec
from openauc.protocols import get_protocol

WIDTH = 16
EPOCHS = 15
METHOD_ARGS: dict[str, dict[str, Scalar]] = {
    # Generator and discriminator of published size would cost more than everything else together.
    "arpl_cs": {"generator_width": 32, "discriminator_width": 8},
}


def trial(method: str, split: int, method_args: Mapping[str, Scalar], *, seed: int = 0) -> TrialSpec:
    """One method at the budget of this benchmark: recipe ``plain`` for all."""
    return TrialSpec.of(
        "digits",
        split,
        method,
        recipe="plain",
        epochs=EPOCHS,
        width=WIDTH,
        method_args={**METHOD_ARGS.get(method, {}), **method_args},
        seed=seed,
    )


def trials(seeds: int = 1) -> list[TrialSpec]:
    """Every method on every split with ``seeds`` seeds."""
    splits = range(len(get_protocol("digits").splits))
    return [trial(method, split, {}, seed=seed) for seed in range(seeds) for split in splits for method in METHODS]
