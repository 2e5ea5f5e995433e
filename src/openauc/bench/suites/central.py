"""The paper's central claim where networks converge: CE+, Acc+AUC and OpenAUC on CIFAR10, all training images."""

from __future__ import annotations

from openauc.bench.suites.table2 import CPU_LAMBDA
from openauc.bench.trial import TrialSpec
from openauc.protocols import get_protocol
from openauc.training.recipe import recipe_for

METHODS = ("ce_plus", "acc_auc", "openauc")
WIDTH = 16
EPOCHS = 30


def trials(seeds: int = 1) -> list[TrialSpec]:
    """The three methods on the five splits with ``seeds`` seeds, recipe ``plus`` with a single cycle."""
    return [
        TrialSpec.of(
            "cifar10",
            split,
            method,
            # One fall of the rate over all epochs, where the scaled recipe would have three over ten epochs each.
            recipe=recipe_for("plus", "cifar10", method, epochs=EPOCHS, restarts=0),
            width=WIDTH,
            method_args={"lam": CPU_LAMBDA[method]} if method in CPU_LAMBDA else {},
            seed=seed,
        )
        for seed in range(seeds)
        for split in range(len(get_protocol("cifar10").splits))
        for method in METHODS
    ]
