"""What running many trials costs beyond the trials: `python benchmark/scale_trials.py [--quick]`.

Trials that do nothing go through Ray, and through store and table; results go to
`benchmark/results/scale_trials_<hardware>_<yyyymm>.{json,md}`, written by this program only.
"""

from __future__ import annotations

import argparse
import itertools
import os
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import ray
from writing import write_results

from openauc._trial_files import PREDICTIONS, WEIGHTS
from openauc.bench.rendering import render
from openauc.bench.runner import run
from openauc.bench.store import Store
from openauc.bench.summary import summarise
from openauc.bench.trial import Job, Outcome, TrialResult, TrialSpec
from openauc.environment import cores
from openauc.executors import Execute, Work, in_process, ray_cluster
from openauc.methods import method_names
from openauc.metrics.registry import METRICS

FILE_BYTES = 20_000_000


@dataclass(frozen=True)
class Row:
    """One measurement."""

    name: str
    value: float
    unit: str
    target: str
    met: bool


def specs(count: int) -> list[TrialSpec]:
    """Trials of every method on the five splits of the digits, with as many seeds as it takes."""
    methods = method_names()
    grid = (
        TrialSpec.of("digits", split, method, seed=seed)
        for seed in itertools.count()
        for method in methods
        for split in range(5)
    )
    return list(itertools.islice(grid, count))


def no_op(job: Job) -> Outcome:
    """Results as complete as those of a real trial, without the trial."""
    values = {name: ((spec.seed * 37 + spec.split * 11) % 97) / 100 for spec in job.specs for name in METRICS}
    intervals = {name: (value - 0.01, value + 0.01) for name, value in values.items()}
    return Outcome(job, tuple(TrialResult(spec=spec, metrics=values, intervals=intervals) for spec in job.specs))


def with_files(job: Job) -> Outcome:
    """A trial that brings back files of the size of a large network, and says how long it took itself."""
    begin = time.perf_counter()
    (result,) = no_op(job).results
    files = {result.spec.id: {WEIGHTS: os.urandom(FILE_BYTES)}}
    time.sleep(0.2)
    return Outcome(job, (replace(result, seconds=time.perf_counter() - begin),), files)


def with_small_files(job: Job) -> Outcome:
    """A trial that brings back files of the size of predictions."""
    return no_op(job)._replace(files={spec.id: {PREDICTIONS: os.urandom(500_000)} for spec in job.specs})


def overhead_row(execute: Execute, count: int) -> Row:
    """Seconds per trial and slot beyond the trial, with all slots busy; workers are warm."""
    jobs = [Job((spec,)) for spec in specs(count)]
    consume(execute(no_op, jobs[: 4 * cores()]))
    begin = time.perf_counter()
    inside = consume(execute(with_files, jobs))
    overhead = (cores() * (time.perf_counter() - begin) - inside) / count
    name = f"Ray, seconds per trial beyond the trial, {FILE_BYTES // 10**6} MB of files each, {count} trials"
    return Row(name, overhead, "s", "< 1 s", overhead < 1)


def consume(outcomes: Iterator[Outcome]) -> float:
    """Seconds that the trials took by themselves."""
    total = 0.0
    for outcome in outcomes:
        (result,) = outcome.results
        if result.error is not None:
            raise RuntimeError(result.error)
        total += result.seconds
    return total


def memory_row(execute: Execute, count: int) -> Row:
    """Growth of the driver from a fifth of the trials, when buffers have been made, to all of them."""
    jobs = (Job((spec,)) for spec in specs(count))
    sizes = [resident_megabytes() for _ in execute(with_small_files, jobs)]
    growth = sizes[-1] - sizes[count // 5]
    name = f"Ray, growth of the driver over {count - count // 5:,} trials with 0.5 MB of files each"
    return Row(name, growth, f"MB on {sizes[count // 5]:.0f} MB", "< 20 MB", growth < 20)


def resident_megabytes() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def store_rows(count: int, folder: Path) -> list[Row]:
    """Store and table, with an executor that leaves out the training."""

    def without_training(work: Work, jobs: Iterable[Job]) -> Iterator[Outcome]:
        return in_process(no_op, jobs)

    wanted = specs(count)
    times = [time.perf_counter()]
    run(wanted, out=folder, execute=without_training)
    times.append(time.perf_counter())
    run(wanted, out=folder, execute=without_training)
    times.append(time.perf_counter())
    store = Store(folder)
    render(summarise(store.results(), planned=store.planned(), baseline="ce_plus"), format="markdown")
    times.append(time.perf_counter())
    first, again, table = (end - begin for begin, end in itertools.pairwise(times))
    limit = 120 * count / 10_000
    return [
        Row(f"{count:,} trials that do nothing, through the store", first, "s", "", True),
        Row("the same list again, nothing left to do", again, "s", "", True),
        Row("their table, from the files", table, "s", "", True),
        Row("store and table together", first + table, "s", f"< {limit:g} s", first + table < limit),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few trials, nothing written: to try the program")
    quick = parser.parse_args().quick
    few, many, most = (20, 100, 200) if quick else (60, 2_000, 10_000)
    with tempfile.TemporaryDirectory() as folder:
        rows = store_rows(most, Path(folder))
    begin = time.perf_counter()
    ray.init("local", include_dashboard=False, log_to_driver=False, num_cpus=cores())
    execute = ray_cluster()
    consume(execute(no_op, [Job((spec,)) for spec in specs(1)]))
    rows.append(Row("Ray, from nothing to the first outcome, once per run", time.perf_counter() - begin, "s", "", True))
    rows += [overhead_row(execute, few), memory_row(execute, many)]
    ray.shutdown()
    lines = ["| what | measured | target | met |", "|---|---:|---:|---|"]
    lines += [
        f"| {r.name} | {r.value:.3g} {r.unit} | {r.target} | {('yes' if r.met else '**no**') if r.target else ''} |"
        for r in rows
    ]
    if quick:
        print("\n".join(lines))
    else:
        note = f"Ray {ray.__version__} with one node of {cores()} CPUs on the driver's machine, one CPU per trial."
        text = "\n".join(["# Scale: many trials", "", *lines, "", note])
        write_results("scale_trials", {"rows": [asdict(row) for row in rows]}, text)


if __name__ == "__main__":
    main()
