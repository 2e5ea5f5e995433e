"""What trials cost: floating-point operations counted on one real training step, and the hours they take.

A multiplication and its addition are two operations. Convolutions and matrix products are counted, forward and
backward (a training step costs about three forward passes); reading, augmentation and testing are not.

``python -m openauc.bench.cost`` prints what the paper's Table 2 costs on GPUs, as Markdown.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from openauc.bench.suites import table2
from openauc.bench.trial import Scalar, TrialResult, TrialSpec
from openauc.methods import load_method, make_method, method_options
from openauc.methods.base import Method
from openauc.models.backbones import make_backbone
from openauc.protocols import get_protocol
from openauc.training.recipe import Recipe

COUNTED_SIDE = 64
"""Larger images are counted at this side and scaled by their area, which is what convolutions do."""
COUNTED_IMAGES = 4

IMAGES_PER_CLASS = {"digits": 120, "cub": 30, "aircraft": 67}
"""Training images per class, where the protocol has no exact sizes on record."""

A100_TF32 = 156e12
GPU_RATE = 10e12
"""Operations per second that a training on one A100 is assumed to sustain."""


class Cost(NamedTuple):
    """Price of a list of trials; trials that share a training are counted once.

    ``seconds`` are those of one worker, one training after the other.
    """

    trials: int
    trainings: int
    flops: float
    seconds: float

    @property
    def hours(self) -> float:
        """Hours of one worker."""
        return self.seconds / 3600


def estimate(specs: Iterable[TrialSpec], *, rate: float | None = None, finished: Iterable[TrialResult] = ()) -> Cost:
    """Operations and seconds of all trials.

    Parameters
    ----------
    specs
        Trials, in any order.
    rate
        Operations per second. When left out it is taken, training by training, from ``finished`` trials of this kind
        and otherwise measured here, on one step.
    finished
        Results of earlier trials on the same hardware; failed ones are ignored.

    Examples
    --------
    >>> pair = [TrialSpec.of(protocol, 0, "ce_plus", epochs=1, width=8) for protocol in ("cifar+10", "cifar+50")]
    >>> cost = estimate(pair, rate=1e9)
    >>> cost.trials, cost.trainings, cost.flops == training_flops(pair[0])
    (2, 1, True)
    """
    wanted = list(specs)
    trainings = {spec.training_id: spec for spec in wanted}.values()
    rates = _rates(finished)
    flops = [training_flops(spec) for spec in trainings]
    seconds = [
        count / (rate or rates.get(_kind(spec)) or processor_rate(spec.width or 64))
        for count, spec in zip(flops, trainings, strict=True)
    ]
    return Cost(len(wanted), len(trainings), sum(flops), sum(seconds))


def training_flops(spec: TrialSpec) -> float:
    """Operations of a whole training."""
    return spec.recipe.epochs * training_images(spec) * flops_per_image(spec)


def training_images(spec: TrialSpec) -> int:
    """Images of one epoch, from the official sizes of the protocol and what the spec leaves out of them.

    >>> training_images(TrialSpec.of("cifar10", 0, "ce_plus"))
    30000
    >>> training_images(TrialSpec.of("cifar10", 0, "ce_plus", pseudo_unknown=2, validation=0.1))
    18000
    """
    protocol = get_protocol(spec.protocol)
    classes = len(protocol.splits[spec.split].known)
    whole = protocol.sizes[spec.split].train if protocol.sizes else classes * IMAGES_PER_CLASS[spec.protocol]
    kept = round(whole * (1 - spec.pseudo_unknown / classes) * (1 - spec.validation))
    return kept if spec.train_images is None else min(kept, spec.train_images)


def flops_per_image(spec: TrialSpec) -> float:
    """Operations per training image and epoch: forward, backward and every extra pass of the method.

    Counted by running one step, so that the adversaries of ARPL+CS and the second way of OpenAUC's mixtures are in it.
    """
    classes = len(get_protocol(spec.protocol).splits[spec.split].known) - spec.pseudo_unknown
    side = min(spec.recipe.image_size, COUNTED_SIDE)
    options = tuple(sorted(spec.method_args.items()))
    counted = _counted(spec.method, options, spec.backbone, spec.width, side, classes)
    return counted * (spec.recipe.image_size / side) ** 2


@lru_cache(maxsize=256)
def _counted(
    method: str, options: tuple[tuple[str, Scalar], ...], backbone: str, width: int | None, side: int, classes: int
) -> float:
    network = _built(method, dict(options), backbone, width, side, classes)
    images, labels = torch.zeros(COUNTED_IMAGES, 3, side, side), torch.arange(COUNTED_IMAGES) % 2
    optimizer = network.optimizer(Recipe())
    with FlopCounterMode(display=False) as counter:
        for phase in network.passes:
            network.train_batch(images, labels, optimizer, phase=phase)
    return float(counter.get_total_flops()) / COUNTED_IMAGES


def _built(
    method: str, options: Mapping[str, Any], backbone: str, width: int | None, side: int, classes: int
) -> Method:
    kind = load_method(method)
    sized = {"image_size": side} if "image_size" in method_options(kind) else {}
    network = make_backbone(backbone, width=width, image_size=side, generator=torch.Generator().manual_seed(0))
    return make_method(kind, network, classes, rng=np.random.default_rng(0), method_args={**sized, **options})


def _rates(finished: Iterable[TrialResult]) -> dict[tuple[Any, ...], float]:
    """Operations per second that finished trials of each kind reached, testing included."""
    reached: dict[tuple[Any, ...], list[float]] = {}
    for result in finished:
        if result.error is None and result.seconds > 0:
            reached.setdefault(_kind(result.spec), []).append(training_flops(result.spec) / result.seconds)
    return {kind: statistics.median(rates) for kind, rates in reached.items()}


def _kind(spec: TrialSpec) -> tuple[Any, ...]:
    """Trials that use a processor equally well."""
    return spec.method, spec.backbone, spec.width, spec.recipe.image_size, spec.recipe.augmentation


@lru_cache(maxsize=16)
def processor_rate(width: int) -> float:
    """Operations per second of this process on one step of cross-entropy at that width, with its present threads."""
    network = _built("softmax", {}, "vgg32", width, 32, 6)
    images, labels = torch.rand(64, 3, 32, 32), torch.arange(64) % 6
    optimizer = network.optimizer(Recipe())
    network.train_batch(images, labels, optimizer)  # the first step also allocates
    begin = time.perf_counter()
    network.train_batch(images, labels, optimizer)
    seconds = time.perf_counter() - begin
    return 64 * _counted("softmax", (), "vgg32", width, 32, 6) / seconds


def cluster_cost(rate: float = GPU_RATE) -> str:
    """The cost of the paper's Table 2 as Markdown: by protocol, and for the ``plus`` recipe alone."""
    specs = table2.trials("paper")
    lines = ["| protocol | trainings | images per epoch | operations | GPU hours |", "|---|---:|---:|---:|---:|"]
    for protocol, own in _by_protocol(specs).items():
        lines.append(_line(protocol, own, rate))
    plus = [spec for spec in specs if spec.recipe.epochs == 600]
    lines += [_line("**all**", specs, rate), _line("of these, recipe `plus` (600 epochs)", plus, rate)]
    one = next(spec for spec in specs if (spec.protocol, spec.method) == ("cifar10", "openauc"))
    said = (
        f"Counted on real training steps: one image of CIFAR10 costs OpenAUC {flops_per_image(one) / 1e9:.2f} GFLOP, "
        f"forward and backward, and one training of 600 epochs {training_flops(one) / 1e15:.0f} PFLOP. "
        f"Hours assume {rate / 1e12:.0f} TFLOP/s sustained, {rate / A100_TF32:.0%} of what an A100 can do in TF32: "
        "images of 32 pixels in batches of 64 or 128 keep a GPU far below its peak. Several trials on one GPU "
        "(`--gpus-per-trial 0.25`) use it better. Measure one trial on your own hardware before booking any. CIFAR+10 "
        "and CIFAR+50 share their trainings, which are counted once."
    )
    return "\n".join([*lines, "", said]) + "\n"


def _by_protocol(specs: Sequence[TrialSpec]) -> dict[str, list[TrialSpec]]:
    found: dict[str, list[TrialSpec]] = {}
    seen: set[str] = set()
    for spec in specs:
        if spec.training_id not in seen:
            found.setdefault(spec.protocol, []).append(spec)
        seen.add(spec.training_id)
    return found


def _line(name: str, specs: Sequence[TrialSpec], rate: float) -> str:
    cost = estimate(specs, rate=rate)
    images = [training_images(spec) for spec in specs]
    span = f"{min(images):,}" if min(images) == max(images) else f"{min(images):,} to {max(images):,}"
    return f"| {name} | {cost.trainings} | {span} | {cost.flops / 1e18:.2f} EFLOP | {cost.hours:,.0f} |"


if __name__ == "__main__":
    print(cluster_cost(), end="")
