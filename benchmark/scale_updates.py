"""Speed of counting in constant memory, beside torchmetrics' binned AUROC on the same scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from measuring import Measured, at_least
from scale_files import Options, Part, samples
from speed_metrics import Triple
from timing import Timed, in_pairs, timed
from torchmetrics.classification import BinaryAUROC

from openauc import Accumulator
from openauc.environment import cores

BATCH = 1 << 20
THRESHOLDS = (100, 1000)
"""Of torchmetrics."""


def updates(options: Options) -> Part:
    """Scores per second, float32 and float64."""
    torch.set_num_threads(cores())
    rows: list[Measured] = []
    content: dict[str, Any] = {"scores": options.rows, "batch": BATCH, "seconds_per_score": {}}
    for dtype in (np.float32, np.float64):
        stream = batches(options.rows, dtype)
        times = content["seconds_per_score"][np.dtype(dtype).name] = {}
        references = [theirs(stream[0], thresholds) for thresholds in THRESHOLDS]
        found = in_pairs(options.rounds, ours(stream), *references)
        times["openauc"] = found[0][1]
        name = f"Accumulator(exact=False).update, {np.dtype(dtype).name}"
        rows.append(at_least(name, 1e-6 / times["openauc"], "million scores/s", 10))
        for thresholds, (seconds, _, ratio) in zip(THRESHOLDS, found, strict=True):
            reference = f"BinaryAUROC(thresholds={thresholds}, validate_args=False)"
            times[reference] = seconds
            rows.append(Measured(f"- against torchmetrics' {reference}", ratio, "x"))
    bins = Accumulator(exact=False)
    for batch in stream:
        bins.update(*batch)
    rows.append(Measured("memory of the counts", bins.nbytes / 1e6, "MB"))
    about = (
        f"A stream of {options.rows:,} scores in batches of {BATCH:,}, labels of 16 bits; torchmetrics gets the first "
        "batch, as tensors that are ready, and 0 or 1 as labels. Medians of calls in turn, ratios within a turn."
    )
    return Part("Scale: counting in constant memory", rows, content, about)


def batches(n: int, dtype: type) -> list[Triple]:
    """A stream too large for the processor's cache."""
    sizes = [*[BATCH] * (n // BATCH), n % BATCH]
    found = (samples(size, seed) for seed, size in enumerate(sizes) if size)
    return [(y_true, y_pred, score.astype(dtype)) for y_true, y_pred, score in found]


def ours(stream: list[Triple]) -> Timed:
    """Seconds per score of one pass over the stream."""

    def count() -> None:
        accumulator = Accumulator(exact=False)
        for batch in stream:
            accumulator.update(*batch)

    return lambda: timed(count) / sum(len(batch[2]) for batch in stream)


def theirs(batch: Triple, thresholds: int) -> Timed:
    """The same of torchmetrics."""
    score, unknown = torch.from_numpy(batch[2]), torch.from_numpy((batch[0] < 0).astype(np.int64))
    metric = BinaryAUROC(thresholds=thresholds, validate_args=False)
    return lambda: timed(metric.update, score, unknown) / len(score)
