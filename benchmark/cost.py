"""What the paper's Table 2 costs on GPUs, as Markdown for docs/cluster.md: `python benchmark/cost.py`."""

from __future__ import annotations

from collections.abc import Sequence

from openauc.bench.benchmarks import table2
from openauc.bench.cost import flops_per_image, training_flops, training_images
from openauc.bench.trial import TrialSpec

A100_TF32 = 156e12
GPU_RATE = 10e12
"""Operations per second that a training on one A100 is assumed to sustain."""


def cluster_cost(rate: float = GPU_RATE) -> str:
    """The cost of the paper's Table 2: by protocol, in all, and for the ``plus`` recipe alone."""
    trials = table2.trials("paper")
    shared: dict[str, TrialSpec] = {}
    for spec in trials:
        shared.setdefault(spec.training_id, spec)
    trainings = list(shared.values())
    plus = [spec for spec in trainings if spec.recipe.epochs == 600]
    lines = ["| protocol | trainings | images per epoch | operations | GPU hours |", "|---|---:|---:|---:|---:|"]
    for protocol in dict.fromkeys(spec.protocol for spec in trainings):
        lines.append(line(protocol, [spec for spec in trainings if spec.protocol == protocol], rate))
    lines += [line("**all**", trainings, rate), line("of these, recipe `plus` (600 epochs)", plus, rate)]
    one = next(spec for spec in trainings if (spec.protocol, spec.method) == ("cifar10", "openauc"))
    said = (
        f"Counted on real training steps: one image of CIFAR10 costs OpenAUC {flops_per_image(one) / 1e9:.2f} GFLOP, "
        f"forward and backward, and one training of 600 epochs {training_flops(one) / 1e15:.0f} PFLOP. "
        f"Hours assume {rate / 1e12:.0f} TFLOP/s sustained, {rate / A100_TF32:.0%} of what an A100 can do in TF32: "
        "images of 32 pixels in batches of 64 or 128 keep a GPU far below its peak. Several trials on one GPU "
        "(`--gpus-per-trial 0.25`) use it better. Measure one trial on your own hardware before booking any. "
        f"The {len(trials)} trials share trainings, which are counted once: those of CIFAR+10 and CIFAR+50 differ in "
        "their unknown classes alone, those of Softmax and CE+ under one recipe in their score."
    )
    return "\n".join([*lines, "", said]) + "\n"


def line(name: str, trainings: Sequence[TrialSpec], rate: float) -> str:
    """A row of the table."""
    flops = sum(map(training_flops, trainings))
    images = [training_images(spec) for spec in trainings]
    span = f"{min(images):,}" if min(images) == max(images) else f"{min(images):,} to {max(images):,}"
    return f"| {name} | {len(trainings)} | {span} | {flops / 1e18:.2f} EFLOP | {flops / rate / 3600:,.0f} |"


if __name__ == "__main__":
    print(cluster_cost(), end="")
