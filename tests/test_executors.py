"""Executors: one signature, the same results; deaths and interruptions of workers, drivers and nodes."""

import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from nodes import Cluster, doomed_node, hang_if_doomed

from openauc import Predictions, evaluate
from openauc.bench.trial import Job, Outcome, TrialResult, TrialSpec
from openauc.environment import cores
from openauc.executors import Execute, in_process, process_pool, ray_cluster
from openauc.shards import evaluate_shards, find_shards

# Of the torch side nothing is imported up here: every worker imports this module.
CHECKPOINT, LOG = "checkpoint.pt", "log.jsonl"


def job(seed: int = 0, folder: str | None = None, **more: object) -> Job:
    """A job that is told from others by its seed."""
    return Job((TrialSpec.of("digits", 0, "softmax", seed=seed, width=4, **{"epochs": 1, **more}),), folder)


def seed_of(item: Job) -> int:
    return item.specs[0].seed


def done(item: Job, **metrics: float) -> Outcome:
    return Outcome(item, tuple(TrialResult(spec=spec, metrics=metrics) for spec in item.specs))


def nothing(item: Job) -> Outcome:
    return done(item, seed=seed_of(item))


def first_is_slow(item: Job) -> Outcome:
    time.sleep(1.0 if seed_of(item) == 0 else 0.0)
    return done(item)


def second_kills_its_worker(item: Job) -> Outcome:
    if seed_of(item) == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return nothing(item)


def leaves(item: Job) -> Outcome:
    os._exit(3)


def odd_ones_fail(item: Job) -> Outcome:
    if seed_of(item) % 2:
        raise RuntimeError(f"number {seed_of(item)}")
    return nothing(item)


def is_interrupted(item: Job) -> Outcome:
    from openauc.training.loop import TrainingInterrupted

    raise TrainingInterrupted(signal.SIGTERM, "in a test")


def tells_its_limits(item: Job) -> Outcome:
    import torch

    numba, gpus = os.environ["NUMBA_NUM_THREADS"], os.environ.get("CUDA_VISIBLE_DEVICES", "all")
    return done(item, torch=torch.get_num_threads(), numba=float(numba), hidden=gpus == "")


def hangs_on_the_doomed_node(item: Job) -> Outcome:
    """A short job that ends on no doomed node."""
    hang_if_doomed()
    return nothing(item)


class Unloadable:
    """Work that no other process can read."""

    def __reduce__(self) -> tuple[object, tuple[str, ...]]:
        return __import__, ("openauc_no_such_module",)

    def __call__(self, item: Job) -> Outcome:
        return nothing(item)


def endless_until(file: Path) -> Iterator[Job]:
    """Jobs as long as the file is missing, then five more."""
    seeds = itertools.count()
    while not file.exists():
        time.sleep(0.05)
        yield job(next(seeds))
    yield from (job(next(seeds)) for _ in range(5))


class Counted:
    """Jobs that know how many of them were taken."""

    def __init__(self, count: int) -> None:
        self.left = iter([job(seed) for seed in range(count)])
        self.taken = 0

    def __iter__(self) -> Iterator[Job]:
        return self

    def __next__(self) -> Job:
        item = next(self.left)
        self.taken += 1
        return item


def most_in_flight(execute: Execute, count: int) -> int:
    jobs, most = Counted(count), 0
    for given, outcome in enumerate(execute(nothing, jobs)):
        assert outcome.results[0].error is None
        most = max(most, jobs.taken - given)
    assert jobs.taken == given + 1 == count
    return most


def outcomes_by_seed(execute: Execute, work: object, count: int) -> dict[int, TrialResult]:
    """Results by seed; every job must have had exactly one."""
    found = [(seed_of(outcome.job), outcome.results[0]) for outcome in execute(work, [job(i) for i in range(count)])]
    assert sorted(seed for seed, _ in found) == list(range(count))
    return dict(found)


def test_in_process_does_one_after_the_other() -> None:
    assert [seed_of(outcome.job) for outcome in in_process(first_is_slow, [job(0), job(1)])] == [0, 1]
    assert most_in_flight(in_process, 5) == 1


def test_in_process_errors_are_outcomes() -> None:
    found = outcomes_by_seed(in_process, odd_ones_fail, 4)
    assert [result.error is None for _, result in sorted(found.items())] == [True, False, True, False]
    assert found[3].error.splitlines()[0] == "RuntimeError: number 3"
    assert "odd_ones_fail" in found[3].error


def test_in_process_interruption_ends_everything() -> None:
    with pytest.raises(KeyboardInterrupt, match="SIGTERM"):
        next(in_process(is_interrupted, [job()]))


def test_pool_outcomes_come_in_order_of_completion() -> None:
    assert [seed_of(outcome.job) for outcome in process_pool(2)(first_is_slow, [job(0), job(1), job(2)])] == [1, 2, 0]


def test_pool_takes_a_job_only_when_a_worker_is_free() -> None:
    assert most_in_flight(process_pool(2), 9) == 2


def test_pool_starts_no_worker_without_jobs() -> None:
    assert list(process_pool(2)(Unloadable(), [])) == []


def test_pool_death_of_a_worker_costs_one_job() -> None:
    found = outcomes_by_seed(process_pool(2), second_kills_its_worker, 5)
    assert found[1].error.startswith("the worker process died (signal 9, SIGKILL)")
    assert [found[i].metrics for i in (0, 2, 3, 4)] == [{"seed": i} for i in (0, 2, 3, 4)]


def test_pool_names_the_exit_code_of_a_worker_that_left() -> None:
    assert "exit code 3" in outcomes_by_seed(process_pool(1), leaves, 1)[0].error


def tells_its_process(item: Job) -> Outcome:
    return done(item, process=os.getpid())


def test_pool_replaces_a_worker_that_died_idle() -> None:
    outcomes = process_pool(1)(tells_its_process, iter([job(0), job(1), job(2)]))
    os.kill(int(next(outcomes).results[0].metrics["process"]), signal.SIGKILL)
    time.sleep(0.2)
    assert [outcome.results[0].error is None for outcome in outcomes] == [True, True]


def test_pool_errors_are_outcomes() -> None:
    found = outcomes_by_seed(process_pool(2), odd_ones_fail, 3)
    assert found[1].error.startswith("RuntimeError: number 1")
    assert found[2].error is None


def test_pool_interruption_of_a_worker_ends_everything() -> None:
    with pytest.raises(KeyboardInterrupt):
        list(process_pool(2)(is_interrupted, [job(0), job(1)]))


def test_pool_work_that_no_worker_can_load() -> None:
    with pytest.raises(ChildProcessError, match="could not start"):
        list(process_pool(1)(Unloadable(), [job(0), job(1)]))


class KillsItsReaders:
    """Work that kills the first processes that load it, one for each file that it finds in a folder."""

    def __init__(self, folder: Path, count: int) -> None:
        self.folder = folder
        for i in range(count):
            (folder / str(i)).touch()

    def __reduce__(self) -> tuple[object, tuple[str, ...]]:
        return killed_or_nothing, (str(self.folder),)


def killed_or_nothing(folder: str) -> object:
    for file in Path(folder).iterdir():
        file.unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    return nothing


def test_pool_death_at_the_start_costs_one_job(tmp_path: Path) -> None:
    work = KillsItsReaders(tmp_path, 2)
    errors = [outcome.results[0].error for outcome in process_pool(1)(work, [job(i) for i in range(4)])]
    assert errors[2:] == [None, None]
    for error in errors[:2]:
        assert error.startswith("the worker process died at its start (signal 9, SIGKILL); this can be tried again.")


def test_pool_gives_up_when_workers_keep_dying_at_the_start(tmp_path: Path) -> None:
    outcomes = process_pool(1)(KillsItsReaders(tmp_path, 10), (job(i) for i in range(10)))
    assert [next(outcomes).results[0].error is None for _ in range(2)] == [False, False]
    with pytest.raises(
        ChildProcessError, match="no worker process can start: 3 times in a row, the worker process died"
    ):
        next(outcomes)
    assert len(list(tmp_path.iterdir())) == 7


def test_pool_without_a_guarded_main_says_what_is_missing(tmp_path: Path) -> None:
    script = tmp_path / "driver.py"
    script.write_text(DRIVER.replace('if __name__ == "__main__":', "if True:"))
    ended = subprocess.run([sys.executable, script, tmp_path], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert 'must do so below `if __name__ == "__main__":`' in ended.stderr.splitlines()[-1]


@pytest.mark.parametrize(("workers", "threads", "expected"), [(2, None, max(1, cores() // 2)), (1, 1, 1)])
def test_pool_divides_the_cores(workers: int, threads: int | None, expected: int) -> None:
    before = dict(os.environ)
    (outcome,) = process_pool(workers, threads=threads)(tells_its_limits, [job()])
    assert outcome.results[0].metrics == {"torch": expected, "numba": expected, "hidden": False}
    assert dict(os.environ) == before


def test_pool_deals_out_the_gpus_it_may_see(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    seen = {outcome.results[0].metrics["gpu"] for outcome in process_pool(2, gpus=2)(tells_its_gpu, [job(0), job(1)])}
    assert seen == {4, 7}
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "4,7"


def tells_its_gpu(item: Job) -> Outcome:
    time.sleep(0.5)
    return done(item, gpu=float(os.environ["CUDA_VISIBLE_DEVICES"]))


@pytest.mark.parametrize("options", [{"workers": 0}, {"workers": 2, "threads": 0}, {"workers": 2, "gpus": -1}])
def test_pool_refuses_impossible_sizes(options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least"):
        process_pool(**options)


DRIVER = """
import os, signal, sys, time
from pathlib import Path
from openauc.executors import process_pool
from openauc.bench.trial import Job, TrialSpec

def sleeps(job):
    Path(sys.argv[1], str(os.getpid())).touch()
    time.sleep(600)

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background
    jobs = [Job((TrialSpec.of("digits", 0, "softmax", seed=i),)) for i in range(2)]
    list(process_pool(2)(sleeps, jobs))
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_no_worker_outlives_its_driver(tmp_path: Path, number: signal.Signals) -> None:
    script, traces = tmp_path / "driver.py", tmp_path / "traces"
    script.write_text(DRIVER)
    traces.mkdir()
    driver = subprocess.Popen([sys.executable, script, traces], stderr=subprocess.DEVNULL)
    end = time.monotonic() + 60
    while len(workers := list(traces.iterdir())) < 2 and time.monotonic() < end:
        time.sleep(0.05)
    assert len(workers) == 2
    driver.send_signal(number)
    driver.wait(timeout=20)
    end = time.monotonic() + 10
    while any(Path("/proc", trace.name).exists() for trace in workers) and time.monotonic() < end:
        time.sleep(0.05)
    assert not [trace.name for trace in workers if Path("/proc", trace.name).exists()]


SLOW_START = """
import os, signal, sys, time
from pathlib import Path
from openauc.executors import process_pool
from openauc.bench.trial import Job, TrialSpec

def never(job):
    raise RuntimeError("a worker has begun")

def stop(number, frame):
    time.sleep(1)  # in which a worker could say something
    raise KeyboardInterrupt

if __name__ == "__main__":
    signal.signal(signal.SIGINT, stop)
    try:
        list(process_pool(2)(never, [Job((TrialSpec.of("digits", 0, "softmax", seed=i),)) for i in range(2)]))
    except KeyboardInterrupt:
        sys.exit("stopped")
else:
    Path(sys.argv[1], str(os.getpid())).touch()
    time.sleep(30)
"""


def children(process: int) -> list[int]:
    """Worker processes, in whatever state, with the server they are forked from."""
    servers = [child for child in children_of(process) if b"forkserver" in Path(f"/proc/{child}/cmdline").read_bytes()]
    return servers + [grandchild for server in servers for grandchild in children_of(server)]


def children_of(process: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


@pytest.mark.parametrize("moment", ["server", "both processes", "loading"])
def test_ctrl_c_at_the_start_is_the_drivers_alone(tmp_path: Path, moment: str) -> None:
    script, traces = tmp_path / "driver.py", tmp_path / "traces"
    script.write_text(SLOW_START)
    traces.mkdir()
    driver = subprocess.Popen([sys.executable, script, traces], stderr=subprocess.PIPE, text=True, process_group=0)
    end = time.monotonic() + 60
    reached = {
        "server": lambda: len(children(driver.pid)) >= 1,
        "both processes": lambda: len(children(driver.pid)) == 3,
        "loading": lambda: len(list(traces.iterdir())) == 2,
    }
    while not reached[moment]() and time.monotonic() < end:
        time.sleep(0.001)
    os.killpg(driver.pid, signal.SIGINT)
    assert driver.communicate(timeout=20)[1] == "stopped\n"
    assert driver.returncode == 1


def trains_or_waits_for_it(item: Job) -> Outcome:
    """Job 0 trains; job 1 is done when job 0 has finished an epoch."""
    from openauc.bench.runner import run_job

    if seed_of(item) == 0:
        return run_job(item)
    end = time.monotonic() + 60
    while not list(Path(item.folder).glob(f"*/{CHECKPOINT}")) and time.monotonic() < end:
        time.sleep(0.01)
    return nothing(item)


def log_of_interrupted(execute: Execute, long: Job, folder: Path) -> list[str]:
    """Lines of the log of a training whose consumer stops after an epoch or two."""
    from openauc.training.checkpoint import load_checkpoint

    trial = folder / long.specs[0].id
    outcomes = execute(trains_or_waits_for_it, iter([long, job(seed=1, folder=long.folder)]))
    assert seed_of(next(outcomes).job) == 1
    outcomes.close()
    # Within an epoch: such a checkpoint is written for a signal only.
    assert load_checkpoint(trial / CHECKPOINT)["progress"]["batch"] > 0
    return (trial / LOG).read_text().splitlines()


@pytest.mark.slow
def test_pool_interrupted_training_leaves_a_checkpoint_that_resumes(tmp_path: Path) -> None:
    long = job(folder=str(tmp_path), epochs=10)
    before = log_of_interrupted(process_pool(2), long, tmp_path)
    (outcome,) = in_process(trains_or_waits_for_it, [long])
    assert outcome.results[0].error is None
    after = (tmp_path / long.specs[0].id / LOG).read_text().splitlines()
    # Equal down to the seconds: these epochs were not trained again.
    assert after[: len(before)] == before
    assert len(after) == 10 > len(before)


@pytest.mark.slow
def test_ray_local_cluster_is_started_and_stopped(ray_home: Path) -> None:
    ray = pytest.importorskip("ray")
    assert outcomes_by_seed(ray_cluster(), nothing, 3)[2].metrics == {"seed": 2}
    assert not ray.is_initialized()


@pytest.mark.slow
def test_ray_local_cluster_without_the_gpus_asked_for(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openauc.executors._connected_to_ray", lambda *options: nullcontext(True))  # started here
    with pytest.raises(ValueError, match=r"does not have 1 CPUs and 64 GPUs.*ask for less"):
        list(ray_cluster(gpus_per_trial=64)(nothing, [job()]))


@pytest.mark.slow
def test_ray_reads_shards(cluster: Cluster, tmp_path: Path) -> None:
    from strategies import random_triple

    parts = [random_triple(50, seed=seed) for seed in range(4)]
    for seed, part in enumerate(parts):
        Predictions(*part).save(tmp_path / f"{seed}.npz")
    whole = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    found = evaluate_shards(find_shards(tmp_path), execute=ray_cluster(), work=tmp_path / "work", level=None)
    assert found.evaluation == evaluate(*whole, level=None)


@pytest.mark.slow
def test_same_specs_same_metrics_everywhere(cluster: Cluster, tmp_path: Path) -> None:
    import torch

    from openauc.bench.runner import run_job

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    jobs = [Job((TrialSpec.of("digits", 1, name, width=4, epochs=2),)) for name in ("openauc", "arpl")]
    executors = {"here": in_process, "pool": process_pool(2, threads=1), "ray": ray_cluster()}
    try:
        found = {
            name: {outcome.job.specs[0].id: outcome.results[0] for outcome in execute(run_job, jobs)}
            for name, execute in executors.items()
        }
    finally:
        torch.set_num_threads(threads)
    for trial, result in found["here"].items():
        assert result.error is None
        for name in ("pool", "ray"):
            assert found[name][trial].metrics == result.metrics
            assert found[name][trial].intervals == result.intervals


@pytest.mark.slow
def test_ray_files_come_back_in_the_outcome(cluster: Cluster, tmp_path: Path) -> None:
    from openauc.bench.runner import run_job

    item = job(folder=str(tmp_path / "store"))
    (outcome,) = ray_cluster()(run_job, [item])
    assert outcome.job == item
    assert set(outcome.files[item.specs[0].id]) == {LOG, "model.safetensors", "predictions.parquet"}
    assert not (tmp_path / "store").exists()


@pytest.mark.slow
def test_ray_look_ahead_is_small(cluster: Cluster) -> None:
    assert most_in_flight(ray_cluster(), 12) <= 2 + 2


@pytest.mark.slow
def test_ray_limits_threads_and_hides_gpus(cluster: Cluster) -> None:
    (outcome,) = ray_cluster(cpus_per_trial=0.5)(tells_its_limits, [job()])
    assert outcome.results[0].metrics == {"torch": 1, "numba": 1, "hidden": True}


@pytest.mark.slow
def test_ray_task_that_always_kills_its_worker_fails(cluster: Cluster) -> None:
    found = outcomes_by_seed(ray_cluster(), second_kills_its_worker, 3)
    assert "WorkerCrashedError" in found[1].error
    assert (found[0].error, found[2].error) == (None, None)


@pytest.mark.slow
def test_ray_node_killed_in_mid_run(cluster: Cluster, ray_home: Path) -> None:
    extra, doomed = doomed_node(cluster, ray_home)
    seeds = []
    for outcome in ray_cluster()(hangs_on_the_doomed_node, endless_until(doomed.with_suffix(".dead"))):
        assert outcome.results[0].error is None
        seeds.append(seed_of(outcome.job))
        if extra is not None and doomed.with_suffix(".busy").exists():
            cluster.remove_node(extra, allow_graceful=False)
            doomed.with_suffix(".dead").touch()
            extra = None
    assert extra is None
    assert sorted(seeds) == list(range(len(seeds)))


@pytest.mark.slow
def test_ray_interrupted_training_leaves_a_checkpoint_in_scratch(cluster: Cluster, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    long = job(folder=str(tmp_path / "store"), epochs=10)
    execute = ray_cluster(scratch=str(scratch))
    before = log_of_interrupted(execute, long, scratch)
    (outcome,) = execute(trains_or_waits_for_it, [long])
    assert outcome.results[0].error is None
    after = outcome.files[long.specs[0].id][LOG].decode().splitlines()
    assert after[: len(before)] == before
    assert len(after) == 10 > len(before)
    assert list(scratch.iterdir()) == []


@pytest.mark.slow
def test_ray_scratch_must_not_be_the_store(cluster: Cluster, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="folder of its own"):
        list(ray_cluster(scratch=str(tmp_path))(nothing, [job(folder=str(tmp_path))]))


@pytest.mark.slow
def test_ray_connection_of_the_caller_keeps_its_environment(cluster: Cluster) -> None:
    with pytest.raises(ValueError, match="connected to Ray already"):
        list(ray_cluster(runtime_env={"working_dir": "."})(nothing, [job()]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cpus_per_trial": 0}, "cpus_per_trial is 0"),
        ({"gpus_per_trial": -1}, "gpus_per_trial is -1"),
        ({"gpus_per_trial": 1.5}, "gpus_per_trial is 1.5; .* or whole GPUs"),
    ],
)
def test_ray_refuses_impossible_resources(options: dict[str, float], message: str) -> None:
    pytest.importorskip("ray")
    with pytest.raises(ValueError, match=message):
        ray_cluster(**options)


def test_ray_is_asked_for_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"pip install 'openauc\[ray\]'"):
        ray_cluster()
