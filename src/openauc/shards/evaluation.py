"""evaluate_shards(): every metric of predictions in many files, or in files larger than memory."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from openauc._files import PathLike
from openauc.evaluation import Evaluation
from openauc.executors import Execute, in_process
from openauc.intervals import REPLICATES, Rng
from openauc.metrics.ranking import ScoreDirectionWarning
from openauc.metrics.registry import METRICS, Metric
from openauc.shards.counting import Counting, WorkFolder, check_number
from openauc.shards.paths import Shard
from openauc.shards.reading import Plan, Slice
from openauc.streaming import Accumulator

EXACT_BYTES = 1 << 28
"""Up to this total size of the files, every distinct score is kept, and the result is that of ``evaluate``."""

OnProgress = Callable[[int, int], None]


@dataclass(frozen=True)
class ShardedEvaluation:
    """Result of ``evaluate_shards``."""

    evaluation: Evaluation
    """The evaluation of all samples."""
    bounds: Mapping[str, tuple[float, float]]
    """Certified bounds of its values that are not exact."""
    n_shards: int
    skipped: Mapping[str, str]
    """Shards that were left out, and why."""
    by: tuple[str, ...] = ()
    slices: Mapping[Slice, Evaluation] = field(default_factory=dict)
    """The evaluation of each slice, in order, without the metrics that its samples do not allow."""
    slice_bounds: Mapping[Slice, Mapping[str, tuple[float, float]]] = field(default_factory=dict)

    def to_dict(self, *, curves: bool = False) -> dict[str, Any]:
        """JSON-ready: the evaluation, and the other fields under their names."""
        result = self.evaluation.to_dict(curves=curves)
        result |= {"bounds": _lists(self.bounds), "n_shards": self.n_shards, "skipped": dict(self.skipped)}
        if self.by:
            result["slices"] = []
            for key, evaluation in self.slices.items():
                place = {"slice": dict(zip(self.by, key, strict=True))}
                result["slices"].append(place | evaluation.to_dict() | {"bounds": _lists(self.slice_bounds[key])})
        return result


def _lists(bounds: Mapping[str, tuple[float, float]]) -> dict[str, list[float]]:
    return {name: list(pair) for name, pair in bounds.items()}


def evaluate_shards(
    shards: Sequence[Shard],
    plan: Plan | None = None,
    *,
    metrics: Mapping[str, Metric] = METRICS,
    level: float | None = 0.95,
    rng: Rng = 0,
    n_replicates: int = REPLICATES,
    execute: Execute = in_process,
    work: PathLike | None = None,
    skip_bad: bool = False,
    on_progress: OnProgress | None = None,
) -> ShardedEvaluation:
    """All metrics of the samples in all shards together, and of each slice of them.

    Parameters
    ----------
    shards
        The files, as ``find_shards`` returns them.
    plan
        Columns, slices, unknown label.
    metrics, level, rng, n_replicates
        As ``evaluate`` takes them. Slices have the metrics whose interval is a formula (OpenAUC, AUROC, accuracy), at
        the level 1 - (1 - level) / slices (Bonferroni), so that all intervals of one metric hold together.
    execute
        Where to read: ``in_process``, ``process_pool(4, threads=1)`` or ``ray_cluster()`` of ``openauc.executors``.
    work
        Folder of the counts of finished shards, which are not counted again. None for a temporary one, which is used
        again if this process is killed and the same shards are then evaluated.
    skip_bad
        Leave out shards that cannot be read, and name them in the result, instead of stopping at the first.
    on_progress
        Called with the number of bytes done and the number of all bytes.
    """
    plan = plan or Plan()
    if plan.exact is None:
        plan = replace(plan, exact=sum(shard.size for shard in shards) <= EXACT_BYTES)
    if not (plan.exact or plan.per_class):
        metrics = {name: metric for name, metric in metrics.items() if not metric.by_class}
    plan.accumulator().possible(metrics)  # raises before shards are read for nothing
    folder = WorkFolder(work, plan, shards)
    skipped = _count(shards, plan, folder, execute, skip_bad, on_progress or (lambda done, total: None))
    total, slices = _merge([shard for shard in shards if shard.path not in skipped], plan, folder)
    slice_level = None if level is None else 1 - (1 - level) / max(1, len(slices))
    formulas = {name: metric for name, metric in metrics.items() if metric.analytic}
    evaluation = total.compute(metrics=metrics, level=level, rng=rng, n_replicates=n_replicates)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ScoreDirectionWarning)  # a small slice is below 0.5 by chance
        of_slices = {key: _of_slice(part, formulas, slice_level) for key, part in slices.items()}
    slice_bounds = {key: _open_bounds(part, formulas) for key, part in slices.items()}
    bounds = _open_bounds(total, metrics)
    folder.finish()
    return ShardedEvaluation(evaluation, bounds, len(shards), skipped, plan.by, of_slices, slice_bounds)


def _count(
    shards: Sequence[Shard], plan: Plan, folder: WorkFolder, execute: Execute, skip_bad: bool, on_progress: OnProgress
) -> dict[str, str]:
    """Write the counts of the shards that have none; return the shards that could not be read, and why."""
    total = sum(shard.size for shard in shards)
    left = {shard.path: shard for shard in shards if not folder.file(shard).exists()}
    skipped: dict[str, str] = {}

    def report(part: int = 0) -> None:
        on_progress(total - sum(shard.size for shard in left.values()) + part, total)

    report()
    for outcome in execute(Counting(plan, report if execute is in_process else None), list(left.values())):
        if left.pop(outcome.shard.path, None) is None:  # it arrived before
            continue
        if not outcome.error:
            folder.write(outcome.shard, outcome.result)
        elif skip_bad:
            skipped[outcome.shard.path] = outcome.error
        else:
            raise ValueError(
                f"{outcome.error} With skip_bad the other shards are evaluated without it; "
                "those that are finished need not be counted again."
            )
        report()
    if len(skipped) == len(shards):
        raise ValueError(f"none of the {len(shards)} shards could be read; the first: {next(iter(skipped.values()))}")
    return skipped


def _merge(shards: Sequence[Shard], plan: Plan, folder: WorkFolder) -> tuple[Accumulator, dict[Slice, Accumulator]]:
    """One accumulator of all samples, and one for each slice, in order."""
    found: dict[Slice, Accumulator] = {}
    labels: dict[str, Shard] = {}  # the first with names, the first with integers
    for shard in shards:
        for key, part in _counts(shard, plan, folder).items():
            if part.classes:
                labels.setdefault("names" if isinstance(part.classes[0], str) else "integers", shard)
            if len(labels) > 1:
                (before, other), (kind, _) = labels.items()
                differ = f"the labels of {shard.path} are {kind}, those of {other.path} are {before}"
                raise TypeError(f"{differ}; use the same kind of label in all shards.")
            found.setdefault(key, plan.accumulator()).absorb(part)
        check_number(len(found), plan)
    if not plan.by:
        return found.get((), plan.accumulator()), {}
    total = plan.accumulator()
    for part in found.values():
        total.absorb(part)
    return total, {key: found[key] for key in sorted(found, key=lambda key: [*map(_place, key)])}


def _counts(shard: Shard, plan: Plan, folder: WorkFolder) -> Mapping[Slice, Accumulator]:
    try:
        return folder.read(shard)
    except (ValueError, OSError):  # damaged, or removed by another run that shares the folder
        outcome = Counting(plan)(shard)
        if outcome.error:
            raise ValueError(outcome.error) from None
        folder.write(shard, outcome.result)
        return folder.read(shard)


def _of_slice(part: Accumulator, metrics: Mapping[str, Metric], level: float | None) -> Evaluation:
    if not part.n_known:
        return Evaluation(0, part.n_unknown, {}, {}, {}, {}, {}, level)
    possible = {name: metric for name, metric in metrics.items() if part.n_unknown or not metric.needs_unknown}
    return part.compute(metrics=possible, level=level)


def _open_bounds(part: Accumulator, metrics: Mapping[str, Metric]) -> dict[str, tuple[float, float]]:
    if part.exact or not part.n_known:
        return {}
    return {name: (low, high) for name, (low, high) in part.bounds_of(metrics).items() if low < high}


def _place(text: str | None) -> tuple[int, float, str]:
    """Order of a value of a slice: numbers by their value, then words by the alphabet, then what is missing."""
    if text is None:
        return 2, 0.0, ""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    return (0, number, text) if math.isfinite(number) else (1, 0.0, text)
