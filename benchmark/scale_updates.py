"""Speed of counting in constant memory, beside torchmetrics' binned AUROC on the same scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from measuring import Measured, at_least
from scale_files import Options, Part, samples
from speed_metrics import Triple, backend
from timing import Timed, in_pairs, timed
from torchmetrics.classification import BinaryAUROC

from openauc import Accumulator
from openauc.environment import cores

BATCH = 1 << 20
THRESHOLDS = (100, 1000)
"""Of torchmetrics."""


def updates(options: Options) -> Part:
    """Scores per second, float32 and float64, compiled and with numpy alone."""
    torch.set_num_threads(cores())
    rows: list[Measured] = []
    content: dict[str, Any] = {"scores": options.rows, "batch": BATCH, "seconds_per_score": {}}
    for dtype in (np.float32, np.float64):
        stream = batches(options.rows, dtype)
        times = content["seconds_per_score"][np.dtype(dtype).name] = {}
        both = ours(stream, "numba"), ours(stream, "numpy")
        ((times["numpy"], times["numba"], _),) = in_pairs(3 * options.rounds, *both)
        name = f"Accumulator(exact=False).update, {np.dtype(dtype).name}"
        rows.append(at_least(f"{name}, numba on {cores()} cores", 1e-6 / times["numba"], "million scores/s", 50))
        rows.append(at_least(f"{name}, numpy", 1e-6 / times["numpy"], "million scores/s", 10))
        for thresholds in THRESHOLDS:
            ((slow, _, ratio),) = in_pairs(options.rounds, ours(stream, "numba"), theirs(stream[0], thresholds))
            times[f"BinaryAUROC(thresholds={thresholds})"] = slow
            against = f"against torchmetrics' BinaryAUROC(thresholds={thresholds}, validate_args=False)"
            rows.append(at_least(f"- numba, {against}", ratio, "x", 20))
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


def ours(stream: list[Triple], name: str) -> Timed:
    """Seconds per score of one pass over the stream."""

    def count() -> None:
        accumulator = Accumulator(exact=False)
        for batch in stream:
            accumulator.update(*batch)

    def call() -> float:
        with backend(name):
            return timed(count) / sum(len(batch[2]) for batch in stream)

    call()  # compiles
    return call


def theirs(batch: Triple, thresholds: int) -> Timed:
    """The same of torchmetrics."""
    score, unknown = torch.from_numpy(batch[2]), torch.from_numpy((batch[0] < 0).astype(np.int64))
    metric = BinaryAUROC(thresholds=thresholds, validate_args=False)
    return lambda: timed(metric.update, score, unknown) / len(score)
