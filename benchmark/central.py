"""The paper's central claim where networks converge: CE+, Acc+AUC and OpenAUC on CIFAR10, all training images.

`openauc run benchmark/central.py -o STORE`, then `python benchmark/publish.py STORE central --title T`.
"""

from __future__ import annotations

from openauc.bench.benchmarks.table2 import CPU_LAMBDA, cpu_trial
from openauc.bench.trial import TrialSpec
from openauc.protocols import get_protocol

METHODS = ("ce_plus", "acc_auc", "openauc")
EPOCHS = 30


def trials(seeds: int = 1) -> list[TrialSpec]:
    """The three methods on the five splits with ``seeds`` seeds: the CPU recipe with all images and more passes."""
    return [
        cpu_trial(
            "cifar10",
            split,
            method,
            {"lam": CPU_LAMBDA[method]} if method in CPU_LAMBDA else {},
            seed=seed,
            epochs=EPOCHS,
            train_images=None,
        )
        for seed in range(seeds)
        for split in range(len(get_protocol("cifar10").splits))
        for method in METHODS
    ]
