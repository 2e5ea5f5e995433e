"""evaluate_shards(): every metric of predictions that lie in many files, or in files larger than memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from openauc._files import PathLike
from openauc._validation import Label
from openauc.evaluation import Evaluation
from openauc.intervals import REPLICATES, Rng
from openauc.metrics.registry import METRICS, Metric
from openauc.shards.counting import Counting, Outcome, Refining, Work, check_number
from openauc.shards.executors import Execute, here
from openauc.shards.paths import Shard
from openauc.shards.plan import Plan
from openauc.shards.state import ALL, MergeTree, Slice, WorkFolder, unpack
from openauc.streaming import Accumulator

EXACT_BYTES = 1 << 28
"""Up to this size of all files together every distinct score is kept, as ``evaluate`` does."""

PASSES = 2
"""Beyond it: one that counts in bins, one that settles what these leave open."""

MAX_BYTES = 1 << 30
"""Memory of the second pass."""

_LEAST_BYTES = 1 << 20


@dataclass(frozen=True)
class ShardedEvaluation:
    """What ``evaluate_shards`` found."""

    evaluation: Evaluation
    """Of all samples."""
    bounds: Mapping[str, tuple[float, float]]
    """Certified bounds of those of its values that are not exact."""
    passes: int
    """How often the shards were read, those included whose counts were there already."""
    n_shards: int
    skipped: Mapping[str, str]
    """Shards that were left out, and why."""
    by: tuple[str, ...] = ()
    slices: Mapping[Slice, Evaluation] = field(default_factory=dict)
    """Of each slice, in order; without known or unknown samples it lacks the metrics that need them."""
    slice_bounds: Mapping[Slice, Mapping[str, tuple[float, float]]] = field(default_factory=dict)

    def to_dict(self, *, curves: bool = False) -> dict[str, Any]:
        """JSON-ready: the evaluation, and what is said above under the names it has here."""
        result = self.evaluation.to_dict(curves=curves)
        result |= {"bounds": _lists(self.bounds), "passes": self.passes}
        result |= {"n_shards": self.n_shards, "skipped": dict(self.skipped)}
        if self.by:
            result["slices"] = [
                {
                    "slice": dict(zip(self.by, key, strict=True)),
                    **evaluation.to_dict(),
                    "bounds": _lists(self.slice_bounds.get(key, {})),
                }
                for key, evaluation in self.slices.items()
            ]
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
    passes: int | None = None,
    max_bytes: int = MAX_BYTES,
    execute: Execute = here,
    work: PathLike | None = None,
    skip_bad: bool = False,
    tell: Callable[[int, int], None] | None = None,
) -> ShardedEvaluation:
    """All metrics of the samples in all shards together, and of each slice of them.

    Parameters
    ----------
    shards
        What ``find_shards`` found.
    plan
        Columns, slices, unknown label.
    metrics, level, rng, n_replicates
        As ``evaluate`` takes them. Slices have the metrics whose interval is a formula (OpenAUC, AUROC, accuracy), at
        a level with Bonferroni's correction: 1 - (1 - level) / slices, so that those of one metric hold together.
    passes
        1 counts in constant memory, and certifies bounds of every value; each further pass settles as much of what
        is open as fits in ``max_bytes``. None keeps every distinct score if all files are small, else makes two.
    max_bytes
        Memory of a further pass.
    execute
        Where to read: ``here``, ``processes(4)`` or ``ray_tasks()``.
    work
        Folder of the counts of finished shards, which are not counted again; None for a temporary one, which is found
        again if this process is killed and the same shards are evaluated. So are the further passes that were done.
    skip_bad
        Leave out shards that cannot be read, and say so in the result, instead of stopping at the first.
    tell
        Hears how many bytes are done, of how many.
    """
    plan = plan or Plan()
    size = sum(shard.size for shard in shards)
    if passes is not None and passes < 1:
        raise ValueError(f"passes is {passes}; expected a whole number, at least 1.")
    plan = replace(plan, exact=passes is None and size <= EXACT_BYTES)
    folder = WorkFolder(work, plan, shards)
    run = _Run(plan, execute, tell or (lambda done, total: None))
    skipped = run.count(shards, folder, skip_bad)
    good = [shard for shard in shards if shard.path not in skipped]
    totals = run.to_the_end(good, folder, passes or PASSES, max_bytes)
    slices = {key: totals[key] for key in sorted(totals, key=_in_order) if plan.by and key != ALL}
    slice_level = None if level is None else 1 - (1 - level) / max(1, len(slices))
    formulas = {name: metric for name, metric in metrics.items() if metric.analytic}
    result = ShardedEvaluation(
        totals[ALL].compute(metrics=_possible(totals[ALL], metrics), level=level, rng=rng, n_replicates=n_replicates),
        _open_bounds(totals[ALL], metrics),
        run.passes,
        len(shards),
        skipped,
        plan.by,
        {key: _of_slice(total, formulas, slice_level) for key, total in slices.items()},
        {key: _open_bounds(total, formulas) for key, total in slices.items()},
    )
    folder.finish(good)
    return result


@dataclass
class _Run:
    """Passes over shards, and what is told of them."""

    plan: Plan
    execute: Execute
    tell: Callable[[int, int], None]
    passes: int = 0

    def count(self, shards: Sequence[Shard], folder: WorkFolder, skip_bad: bool) -> dict[str, str]:
        """Write the counts of the shards that have none; return those that could not be read."""
        skipped: dict[str, str] = {}
        missing = [shard for shard in shards if not folder.file(shard).exists()]
        for outcome in self._outcomes(Counting(self.plan), shards, missing):
            if not outcome.error:
                folder.write(outcome.shard, outcome.result)
            elif skip_bad:
                skipped[outcome.shard.path] = outcome.error
            else:
                raise ValueError(f"{outcome.error} With skip_bad the other shards are evaluated without it.")
        if len(skipped) == len(shards):
            raise ValueError(
                f"none of the {len(shards)} shards could be read; the first: {next(iter(skipped.values()))}"
            )
        return skipped

    def _outcomes(self, work: Work, shards: Sequence[Shard], missing: Sequence[Shard]) -> Iterator[Outcome]:
        """Outcomes of the missing ones of all shards, each once, told as they come."""
        total = sum(shard.size for shard in shards)
        left = {shard.path: shard.size for shard in missing}
        self.passes += 1

        def told(part: int = 0) -> None:
            self.tell(total - sum(left.values()) + part, total)

        told()
        for outcome in self.execute(work, missing, told):
            if left.pop(outcome.shard.path, None) is not None:  # else it was delivered before
                told()
                yield outcome

    def to_the_end(
        self, shards: Sequence[Shard], folder: WorkFolder, most: int, max_bytes: int
    ) -> dict[Slice, Accumulator]:
        """What at most so many passes find, those included that were made before a run was stopped."""
        self.passes, totals = folder.read_totals(shards, most) or (self.passes, self.merge(shards, folder))
        while self.passes < most and (finer := self.refine(shards, totals, max_bytes)):
            totals |= finer
            if self.passes < most and not all(total.settled for total in totals.values()):
                folder.write_totals(shards, self.passes, totals)
        return totals

    def merge(self, shards: Sequence[Shard], folder: WorkFolder) -> dict[Slice, Accumulator]:
        """One accumulator per slice, and one of all."""
        piles: dict[Slice, MergeTree] = {}
        labels: dict[str, Shard] = {}
        for shard in shards:
            for key, part in self._counts(shard, folder):
                for label in part.classes[:1]:
                    _check_kinds(labels, label, shard)
                piles.setdefault(key, MergeTree()).add(part)
            check_number(len(piles), self.plan)
        totals = {key: pile.total() for key, pile in piles.items()}
        everything = MergeTree()
        for part in totals.values() or [self.plan.accumulator()]:
            everything.add(part)
        return {**totals, ALL: everything.total()}

    def _counts(self, shard: Shard, folder: WorkFolder) -> list[tuple[Slice, Accumulator]]:
        try:
            return list(unpack(folder.file(shard)))
        except (ValueError, OSError):  # damaged, or removed by another run that shares the folder
            outcome = Counting(self.plan)(shard)
            if outcome.error:
                raise ValueError(outcome.error) from None
            folder.write(shard, outcome.result)
            return list(unpack(folder.file(shard)))

    def refine(
        self, shards: Sequence[Shard], totals: Mapping[Slice, Accumulator], max_bytes: int
    ) -> dict[Slice, Accumulator]:
        """Those of the totals that one more pass over the shards makes finer; none, and no pass, if nothing is open."""
        open_ = {key: total for key, total in totals.items() if not total.settled}
        if not (totals[ALL].exact or totals[ALL].per_class):
            open_[ALL] = totals[ALL]  # where all of it fits, classes are counted apart as well
        share = max(_LEAST_BYTES, max_bytes // max(1, len(open_)))
        found = {key: total.refine(max_bytes=share) for key, total in open_.items()}
        found = {key: refinement for key, refinement in found.items() if refinement.ranges}
        if not found:
            return {}
        work = Refining(self.plan, {key: refinement.fresh() for key, refinement in found.items()})
        for outcome in self._outcomes(work, shards, shards):
            if outcome.error:
                raise ValueError(f"{outcome.error} It could be read before; start again.")
            for key, part in outcome.result.items():
                found[key].add(part)
        return {key: part.result() for key, part in found.items()}


def _check_kinds(labels: dict[str, Shard], label: Label, shard: Shard) -> None:
    """Take note of the kind of a shard's labels; there may be one."""
    labels.setdefault("names" if isinstance(label, str) else "integers", shard)
    if len(labels) > 1:
        (before, other), (kind, _) = labels.items()
        raise TypeError(
            f"the labels of {shard.path} are {kind}, those of {other.path} are {before}; use the same kind of label in "
            "all shards."
        )


def _possible(total: Accumulator, metrics: Mapping[str, Metric]) -> Mapping[str, Metric]:
    """Without those that average over classes where these were not counted apart."""
    if total.exact or total.per_class:
        return metrics
    by_class = [name for name, metric in metrics.items() if metric.by_class]
    return {name: metric for name, metric in metrics.items() if name not in by_class}


def _of_slice(total: Accumulator, metrics: Mapping[str, Metric], level: float | None) -> Evaluation:
    if not total.n_known:
        nothing: dict[str, Any] = {}
        return Evaluation(0, total.n_unknown, nothing, nothing, nothing, nothing, nothing, level)
    possible = {name: metric for name, metric in metrics.items() if total.n_unknown or not metric.needs_unknown}
    return total.compute(metrics=possible, level=level)


def _open_bounds(total: Accumulator, metrics: Mapping[str, Metric]) -> dict[str, tuple[float, float]]:
    if total.exact or not total.n_known:
        return {}
    bounds = total.bounds_of(_possible(total, metrics))
    return {name: pair for name, pair in bounds.items() if pair[0] < pair[1]}


def _in_order(key: Slice) -> tuple[tuple[bool, float, str], ...]:
    """Numbers by their value, before words by the alphabet."""
    return tuple((not text.isdecimal(), float(text) if text.isdecimal() else 0.0, text) for text in key)
