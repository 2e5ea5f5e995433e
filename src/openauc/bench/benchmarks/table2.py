"""The paper's Table 2: OpenAUC of nine methods on six protocols, five splits each.

``budget="paper"`` is the table as published: every method with the recipe it was published with and, so that all can be
compared on one recipe, with ``plus`` as well. ``budget="cpu"`` is the same table for two processor cores: four
protocols, and one budget that is equal for all methods.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from openauc._validation import check_choice
from openauc.bench.paper import METHODS, TABLE_2_PROTOCOLS
from openauc.bench.trial import Scalar, TrialSpec
from openauc.methods import load_method, recipe_for
from openauc.protocols import get_protocol

Budget = Literal["paper", "cpu"]

CPU_PROTOCOLS = ("mnist", "cifar10", "cifar+10", "cifar+50")
CPU_WIDTH = 16
CPU_EPOCHS = 10
CPU_TRAIN_IMAGES = 8000
CPU_RECIPE: dict[str, Any] = {"schedule": "cosine_restarts", "milestones": (), "normalize": True, "image_size": 16}
CPU_GAN: dict[str, Scalar] = {"generator_width": 2 * CPU_WIDTH, "discriminator_width": CPU_WIDTH // 2}
"""Networks of ARPL+CS, narrowed four times as much as the classifier (512 and 128 beside 64 as published): in the same
proportion an epoch would take about ten times as long as one of ARPL, here it takes five times."""

PAPER_LAMBDA = 0.1
TESTED_WITH = (None, "max_probability")
"""Scores of methods with the preset ``paper``: the method's own, -max z, and the one they are trained with."""
CPU_LAMBDA = {"openauc": 0.1, "acc_auc": 0.02}
"""Weight of the ranking term: narrowly the best of three on held-out classes, benchmark/results/tuning_*."""


def trials(budget: Budget = "paper", seeds: int = 1) -> list[TrialSpec]:
    """Every method on every protocol and split with ``seeds`` seeds."""
    check_choice("budget", budget, ("paper", "cpu"))
    protocols = TABLE_2_PROTOCOLS if budget == "paper" else CPU_PROTOCOLS
    lams: dict[str, dict[str, Scalar]] = {method: {"lam": lam} for method, lam in CPU_LAMBDA.items()}
    return [
        spec
        for seed in range(seeds)
        for protocol in protocols
        for split in range(len(get_protocol(protocol).splits))
        for method in METHODS
        for spec in (
            paper_trials(protocol, split, method, seed=seed)
            if budget == "paper"
            else [cpu_trial(protocol, split, method, lams.get(method, {}), seed=seed)]
        )
    ]


def paper_trials(protocol: str, split: int, method: str, *, seed: int = 0) -> list[TrialSpec]:
    """A method as published and, unless another row of the table is just that, under the ``plus`` recipe.

    The preset ``paper`` ranks by 1 - max p in training, as Def. 1 of the paper says, and is tested with -max z, as its
    public code and CE+ are. The two scores rank samples differently, and the paper does not say which one it tested
    with. So its methods have a second row with the score of the training; the network is the same.
    """
    ranks = method in CPU_LAMBDA
    options: dict[str, Scalar] = {"preset": "paper", "lam": PAPER_LAMBDA} if ranks else {}
    recipes = {load_method(method).recipe, "plus"}
    if method == "arpl":  # ARPL+ is ARPL with this recipe
        recipes.remove("plus")
    return [
        TrialSpec.of(protocol, split, method, recipe=recipe, method_args=options, seed=seed, score=score)
        for recipe in sorted(recipes)
        for score in (TESTED_WITH if ranks else (None,))
    ]


def cpu_trial(
    protocol: str,
    split: int,
    method: str,
    method_args: Mapping[str, Scalar],
    *,
    seed: int = 0,
    epochs: int = CPU_EPOCHS,
    train_images: int | None = CPU_TRAIN_IMAGES,
    pseudo_unknown: int = 0,
) -> TrialSpec:
    """One training at the CPU budget, equal for all methods.

    The recipe has the crops and flips of ``plain`` and the cosine schedule and normalised images of ``plus``. In single
    runs on held-out classes of CIFAR10, each other choice cost cross-entropy about ten points of OpenAUC: RandAugment,
    which underfits at this length; steps of the rate; and images in [0, 1], of which input dropout blackens channels.
    Half the resolution buys twice the width and more passes: 64 % accuracy on five classes after 117 s of one core,
    where 32 pixels and width 8 reached 58 % after 97 s. As in the public "+" code, ARPL+CS then sees real and generated
    images in different ranges.
    """
    return TrialSpec.of(
        protocol,
        split,
        method,
        recipe=recipe_for("plain", protocol, method, epochs=epochs, **CPU_RECIPE),
        width=CPU_WIDTH,
        train_images=train_images,
        method_args={**(CPU_GAN if method == "arpl_cs" else {}), **method_args},
        seed=seed,
        validation=0.1 if pseudo_unknown else 0.0,
        pseudo_unknown=pseudo_unknown,
    )
