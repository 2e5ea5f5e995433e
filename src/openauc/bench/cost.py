"""What trials cost: floating-point operations, counted on one real training step.

A multiplication and its addition are two operations. Convolutions and matrix products are counted, forward and
backward (a training step costs about three forward passes); reading, augmentation and testing are not.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from openauc.bench.trial import TrialSpec
from openauc.methods import build_method
from openauc.recipe import Recipe

COUNTED_SIDE = 64  # larger images are counted at this side and scaled by their area, which is what convolutions do
COUNTED_IMAGES = 4
HEAD_PASSES = 2000
"""Passes over the samples that all fits of a head take together: strengths, folds, and the one that remains."""


def training_flops(spec: TrialSpec) -> float:
    """Operations of a whole training."""
    if spec.recipe is None:
        protocol = spec.open_protocol()
        classes = len(protocol.splits[spec.split].known)
        return HEAD_PASSES * training_images(spec) * 4.0 * (protocol.num_features or 0) * classes
    return spec.recipe.epochs * training_images(spec) * flops_per_image(spec)


def training_images(spec: TrialSpec) -> int:
    """Images of one epoch, from the official sizes of the protocol and what the spec leaves out of them.

    >>> training_images(TrialSpec.of("cifar10", 0, "ce_plus"))
    30000
    >>> training_images(TrialSpec.of("cifar10", 0, "ce_plus", pseudo_unknown=2, validation=0.1))
    18000
    """
    protocol = spec.open_protocol()
    classes = len(protocol.splits[spec.split].known)
    whole = protocol.sizes[spec.split].train if protocol.sizes else classes * protocol.images_per_class
    kept = round(whole * (1 - spec.pseudo_unknown / classes) * (1 - spec.validation))
    return kept if spec.train_images is None else min(kept, spec.train_images)


def flops_per_image(spec: TrialSpec) -> float:
    """Operations per training image and epoch: forward, backward and every extra pass of the method.

    Counted by running one step, so that the adversaries of ARPL+CS and the second way of OpenAUC's mixtures are in it.
    """
    protocol = spec.open_protocol()
    classes = len(protocol.splits[spec.split].known) - spec.pseudo_unknown
    size = spec.network_recipe.image_size
    side = size if protocol.of_embeddings else min(size, COUNTED_SIDE)
    shape = (protocol.num_features,) if protocol.num_features else (3, side, side)
    options = tuple(sorted(spec.method_args.items()))
    return _counted(spec.method, options, str(spec.backbone), spec.width, shape, classes) * (size / side) ** 2


@lru_cache(maxsize=256)
def _counted(
    method: str, options: tuple[Any, ...], backbone: str, width: int | None, shape: tuple[int, ...], classes: int
) -> float:
    sizes = {"image_size": shape[-1], "num_features": shape[0]}  # a network takes one of the two
    network = build_method(method, classes, **sizes, backbone=backbone, width=width, method_args=dict(options))
    images, labels = torch.zeros(COUNTED_IMAGES, *shape), torch.arange(COUNTED_IMAGES) % 2
    optimizer = network.optimizer(Recipe())
    with FlopCounterMode(display=False) as counter:
        for phase in network.passes:
            network.train_batch(images, labels, optimizer, phase=phase)
    return float(counter.get_total_flops()) / COUNTED_IMAGES
