"""``openauc run``: a benchmark, from its list of trials to its table."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.console import Console
from typer import Argument, Exit, Option

from openauc._files import write_text
from openauc.bench.trial import TrialResult, TrialSpec
from openauc.commands.progress import Progress
from openauc.commands.report import REPORT
from openauc.commands.table import show
from openauc.commands.terminal import say, show_list
from openauc.commands.train import DataRoot, Keep, assignments, require_torch

if TYPE_CHECKING:
    from openauc.executors import Execute

TABLE = "table.md"


def run(
    benchmark: Annotated[
        str, Argument(metavar="BENCHMARK", help="Name, see `openauc list benchmarks`, or FILE.py with trials().")
    ],
    store: Annotated[Path | None, Option("--store", "-o", help="Folder of results; else runs/NAME.")] = None,
    data_root: DataRoot = None,
    jobs: Annotated[int | None, Option("--jobs", "-j", min=1, help="Trials at a time; else one per GPU/core.")] = None,
    ray: Annotated[bool, Option("--ray", help="Run on a Ray cluster started here.")] = False,
    ray_address: Annotated[str | None, Option(help="Run on this Ray cluster, such as auto.")] = None,
    threads: Annotated[int, Option(min=1, help="Threads of each trial, on Ray also its CPUs.")] = 1,
    gpus_per_trial: Annotated[float, Option(help="GPUs a trial reserves on Ray; a fraction shares one.")] = 0,
    scratch: Annotated[Path | None, Option(help="Folder that all Ray nodes see, for checkpoints.")] = None,
    only: Annotated[str | None, Option(help="Part of the trials: method=openauc,split=0|1.")] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="List trials and cost, run nothing.")] = False,
    keep: Keep = None,
    retry_failed: Annotated[bool, Option("--retry-failed", help="Run failed trials again.")] = False,
    budget: Annotated[str | None, Option(help="Size, where the benchmark has several: paper, cpu.")] = None,
    seeds: Annotated[int | None, Option(help="Seeds per trial.")] = None,
    set_: Annotated[list[str] | None, Option("--set", help="Option of the benchmark, key=value.")] = None,
    baseline: Annotated[str | None, Option(help="Method the table compares with.")] = None,
) -> None:
    """Run a benchmark, or what is missing of it.

    Exit code 0 when all went well, 1 when trials failed, 130 when interrupted.
    """
    require_torch("a benchmark")
    from openauc.bench.benchmarks import load_benchmark
    from openauc.bench.cost import training_flops
    from openauc.bench.runner import run as run_all
    from openauc.bench.selection import select
    from openauc.executors import ray_cluster

    chosen = load_benchmark(benchmark)
    given = {"budget": budget, "seeds": seeds}
    options = {**assignments("--set", set_), **{key: value for key, value in given.items() if value is not None}}
    specs = chosen.trials(**options)
    if only is not None:
        specs = select(specs, only)
    out = store or Path("runs") / chosen.name
    cost = {spec.id: training_flops(spec) for spec in specs}
    if dry_run:
        _show_plan(specs, cost, out)
        return
    if ray or ray_address is not None:
        shared = None if scratch is None else str(scratch.resolve())
        execute = ray_cluster(ray_address, cpus_per_trial=threads, gpus_per_trial=gpus_per_trial, scratch=shared)
    else:
        execute = _local(jobs, threads)
    try:
        with _terminable(), Progress(cost, Console(stderr=True)) as watch:
            results = run_all(
                specs,
                out=out,
                data_root=data_root,
                execute=execute,
                retry_failed=retry_failed,
                keep_features=bool(keep),
                watch=watch,
            )
    except KeyboardInterrupt:
        say(f"stopped; nothing in {out} is lost, and the same command goes on from there.", err=True)
        raise Exit(130) from None
    _conclude(specs, results, out, baseline)
    if any(result.error is not None for result in results):
        raise Exit(1)


def _local(jobs: int | None, threads: int) -> Execute:
    """A pool of processes, or this one for one trial at a time."""
    import torch

    from openauc.environment import cores, reuse_memory
    from openauc.executors import in_process, process_pool

    gpus = torch.cuda.device_count()
    workers = jobs or gpus or max(1, cores() // threads)
    if workers > 1:
        return process_pool(workers, threads=threads, gpus=gpus)
    torch.set_num_threads(threads)
    reuse_memory()
    return in_process


def _show_plan(specs: Sequence[TrialSpec], cost: Mapping[str, float], out: Path) -> None:
    from openauc.bench.store import Store

    rows = []
    for spec in specs:
        result = Store(out).result(spec)
        state = "to do" if result is None else "done" if result.error is None else "failed"
        arguments = " ".join(f"{key}={value}" for key, value in spec.method_args.items())
        epochs = str(spec.recipe.epochs) if spec.recipe else ""
        rows.append((spec.id, arguments, epochs, f"{cost[spec.id] / 1e15:.3g}", state))
    show_list(("trial", "method options", "epochs", "training PFLOP", "state"), rows, width=160)


def _conclude(specs: Sequence[TrialSpec], results: Sequence[TrialResult], out: Path, baseline: str | None) -> None:
    """Print the table, keep it beside the results, and say what is not in it."""
    from openauc.bench.rendering import render
    from openauc.bench.summary import summarise
    from openauc.report import write_report

    if results:
        summary = summarise(results, baseline=baseline, planned=specs)
        show([summary])
        write_text(out / TABLE, render(summary, format="markdown"))
        write_report(out, out / REPORT, specs=specs, baseline=baseline)
        say(f"{len(results)} results in {out}; look at {out / REPORT}, or `openauc table {out}` for other forms.")
    failed = [result for result in results if result.error is not None]
    if failed:
        say(f"{len(failed)} trials failed; --retry-failed runs them again:", err=True)
        for result in failed:
            say(f"  {result.spec.id}: {(result.error or '').splitlines()[0]}", err=True)
    if len(results) < len(specs):
        say(f"{len(specs) - len(results)} trials are being run by another process that uses this store.", err=True)


@contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM stop the run as Ctrl-C does."""
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
