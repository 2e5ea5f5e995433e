"""Where trials run: in this process, in a pool of processes, or on a Ray cluster; one signature, the same results.

An executor gets the function that does a job and a lazy iterable of jobs, and yields one outcome per job in order of
completion. It takes a job from the iterable only when a worker is free for it, because taking one claims it. Whatever
goes wrong with a job is its outcome; only an interruption ends the whole, as ``KeyboardInterrupt``.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import shutil
import signal
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import Enum, auto
from itertools import cycle, islice
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

from openauc._workers import connected_to_ray, end_with_parent, import_ray, process_environment, thread_limits
from openauc.bench.trial import Job, Outcome
from openauc.environment import cores, reuse_memory

Work = Callable[[Job], Outcome]
Execute = Callable[[Work, Iterable[Job]], Iterator[Outcome]]

GRACE_SECONDS = 30.0
"""How long interrupted workers may take to save their checkpoints."""

START_UP_DEATHS = 3
"""A pool gives up when this many workers in a row are killed before they can take their job."""

RETRIES = 3
"""How often Ray starts a job again whose worker or node died."""

POLL_SECONDS = 5.0
"""How often, at least, the size of a Ray cluster is looked at."""


def in_process(work: Work, jobs: Iterable[Job]) -> Iterator[Outcome]:
    """Do one job after the other, here."""
    for job in jobs:
        yield _attempt(work, job)


def process_pool(workers: int, *, threads: int | None = None, gpus: int = 0) -> Execute:
    """Executor with ``workers`` processes on this machine, each of which does one job at a time.

    A worker that dies takes only its own job with it, which becomes a failed outcome, and is replaced; where none can
    start, ``ChildProcessError`` ends the whole. When the consumer stops, running trainings save their checkpoints; when
    this process dies, its workers end too.

    Parameters
    ----------
    workers
        Number of processes. A script that starts them needs ``if __name__ == "__main__":`` around what it does.
    threads
        Threads of each; by default the cores are divided among the workers.
    gpus
        GPUs of this machine, dealt out to the workers in turn, so that each sees one. With 0, all see what there is.
    """
    threads = max(1, cores() // max(1, workers)) if threads is None else threads
    for name, value, least in (("workers", workers, 1), ("threads", threads, 1), ("gpus", gpus, 0)):
        if value < least:
            raise ValueError(f"{name} is {value}; expected a whole number, at least {least}.")
    places = [{**thread_limits(threads), **gpu} for gpu in _dealt_gpus(gpus, workers)]

    def execute(work: Work, jobs: Iterable[Job]) -> Iterator[Outcome]:
        waiting = iter(jobs)
        idle = [_Worker(work, place) for place in places]
        busy: dict[Any, _Worker] = {}
        deaths = 0
        try:
            while True:
                for job in islice(waiting, len(idle)):
                    worker = idle.pop()
                    worker.begin(job)
                    busy[worker.connection] = worker
                if not busy:
                    return
                for connection in wait(busy):
                    outcome = busy[connection].receive()
                    if outcome is not None:
                        worker = busy.pop(connection)
                        idle.append(worker)
                        deaths = 0 if worker.ready else deaths + 1
                        if deaths == START_UP_DEATHS:
                            raise ChildProcessError(
                                f"no worker process can start: {deaths} times in a row, {outcome.results[0].error}"
                            )
                        yield outcome
        finally:
            _stop([*idle, *busy.values()])

    return execute


def ray_cluster(
    address: str | None = None,
    *,
    cpus_per_trial: float = 1,
    gpus_per_trial: float = 0,
    scratch: str | None = None,
    runtime_env: Mapping[str, Any] | None = None,
) -> Execute:
    """Executor on a Ray cluster; see ``docs/cluster.md``.

    Nodes work in temporary folders and send their files back inside the outcome, so that only this process writes to
    the store. A job whose worker or node died is started again up to `RETRIES` times, then it is a failed outcome.

    Parameters
    ----------
    address
        Cluster to join, as ``ray.init`` takes it: ``"auto"``, ``"host:6379"``, ``"ray://host:10001"``. None starts one
        on this machine and stops it in the end. A process that is connected to Ray already stays on that connection.
    cpus_per_trial, gpus_per_trial
        Resources that Ray reserves for a job; parts of a GPU are allowed. The number of CPUs is also the number of
        threads. Without GPUs a job does not see any.
    scratch
        Folder that every node sees. Jobs then train there, and one that is started again, by Ray or by a later run,
        goes on from its checkpoint. Folders of finished trials are removed.
    runtime_env
        What nodes lack and Ray is to bring there, for instance ``{"working_dir": "."}`` for methods of your own.
    """
    ray = import_ray()
    _check_resources(cpus_per_trial, gpus_per_trial)
    settings = {
        "num_cpus": cpus_per_trial,
        "num_gpus": gpus_per_trial,
        "max_retries": RETRIES,
        "runtime_env": {"env_vars": thread_limits(max(1, int(cpus_per_trial))) | _hidden_gpus(gpus_per_trial)},
    }

    def execute(work: Work, jobs: Iterable[Job]) -> Iterator[Outcome]:
        with connected_to_ray(address, runtime_env) as started:
            if not _held_by_cluster(cpus_per_trial, gpus_per_trial):
                _nothing_fits(cpus_per_trial, gpus_per_trial, can_grow=not started)
            task = ray.remote(_on_node).options(**settings)
            waiting = iter(jobs)
            running: dict[Any, Job] = {}
            try:
                while True:
                    held = _held_by_cluster(cpus_per_trial, gpus_per_trial)
                    # A few more keep the nodes busy, and show a cluster that can grow that there is need.
                    free = held + max(2, held // 4) - len(running)
                    for job in islice(waiting, max(0, free)):
                        running[task.remote(work, _for_node(job, scratch))] = job
                    if not running:
                        return
                    done, _ = ray.wait(list(running), timeout=POLL_SECONDS)
                    for reference in done:
                        yield _fetched(reference, running.pop(reference))
            finally:
                _cancel(list(running), GRACE_SECONDS if scratch else 0.0)

    return execute


def _attempt(work: Work, job: Job) -> Outcome:
    """Do a job; its error is an outcome, its interruption is everybody's."""
    try:
        return work(job)
    except Exception as error:
        # Only here, because whoever raises it has loaded torch already.
        from openauc.training.loop import TrainingInterrupted

        if isinstance(error, TrainingInterrupted):
            raise KeyboardInterrupt(str(error)) from error
        trace = "".join(traceback.format_exception(error)).rstrip()
        return Outcome.failed(job, f"{type(error).__name__}: {error}\n\n{trace}")


class _Word(Enum):
    """What a worker says besides outcomes."""

    READY = auto()
    INTERRUPTED = auto()


class _Worker:
    """A process of the pool, started when there is a first job for it and again when it has died."""

    process: SpawnProcess
    connection: Connection
    ready: bool
    job: Job
    begun: float

    def __init__(self, work: Work, environment: Mapping[str, str]) -> None:
        self.work = work
        # Rich then draws no progress bars across those of this process.
        self.environment = {**environment, "TTY_COMPATIBLE": "0"}
        self.started = False

    def begin(self, job: Job) -> None:
        if not (self.started and self.process.is_alive()):
            self._start()
        self.job, self.begun = job, time.perf_counter()
        # The pipe to a process that died just now is broken; receive() tells.
        with suppress(ConnectionError):
            self.connection.send(job)

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, other = context.Pipe()
        self.process = context.Process(target=_serve, args=(self.work, other), daemon=True)
        # Set before it begins, because libraries look at their first import.
        with process_environment(self.environment), _uninterrupted():
            self.process.start()
        other.close()
        self.started, self.ready = True, False

    def receive(self) -> Outcome | None:
        """Outcome of the job; None if the worker only said that it is ready."""
        try:
            said: Outcome | _Word = self.connection.recv()
        except (EOFError, ConnectionError):
            self.process.join()
            code = self.process.exitcode or 0
            if not self.ready and code >= 0:
                # What it met there, the next one would meet as well.
                raise ChildProcessError(
                    "a worker process could not start; its own message is above. A script that runs trials in several "
                    'processes must do so below `if __name__ == "__main__":`.'
                ) from None
            return Outcome.failed(self.job, _death(code, self.ready), seconds=time.perf_counter() - self.begun)
        if said is _Word.INTERRUPTED:
            raise KeyboardInterrupt("a worker process was interrupted.")
        if said is _Word.READY:
            self.ready = True
            return None
        return said


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Start processes that never see Ctrl-C, which is for this one; here it waits until they have all they need."""
    waiting: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else ()
    handlers = {number: signal.signal(number, lambda n, frame: waiting.append(n)) for number in numbers}
    resource_tracker.ensure_running()  # not later, because it unblocks the signal
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for caught in waiting:
            signal.raise_signal(caught)


def _serve(work: Work, connection: Connection) -> None:
    """Life of a worker: do jobs until a signal comes."""
    with suppress(KeyboardInterrupt, EOFError):
        # The signals of a terminal are for the driver, which passes them on; a second one would cut off the checkpoint.
        os.setpgid(0, 0)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        threading.Thread(target=end_with_parent, daemon=True).start()
        reuse_memory()
        connection.send(_Word.READY)
        while True:
            job = connection.recv()
            try:
                outcome = _attempt(work, job)
            except KeyboardInterrupt:
                connection.send(_Word.INTERRUPTED)
                return
            connection.send(outcome)


def _stop(workers: list[_Worker]) -> None:
    """Ask workers to end, which makes a training save its checkpoint, and after a while insist."""
    processes = [worker.process for worker in workers if worker.started]
    for process in processes:
        process.terminate()
    deadline = time.monotonic() + GRACE_SECONDS
    try:
        for process in processes:
            process.join(max(0.0, deadline - time.monotonic()))
    finally:
        for process in processes:
            process.kill()
            process.join()


def _death(code: int, ready: bool) -> str:
    how = f"exit code {code}" if code >= 0 else f"signal {-code}, {signal.Signals(-code).name}"
    hint = " Systems do this to a process when memory runs out." if code == -signal.SIGKILL else ""
    if ready:
        return f"the worker process died ({how}); other trials went on, and this one can be retried.{hint}"
    return f"the worker process died at its start ({how}); the trial can be retried.{hint}"


def _on_node(work: Work, job: Job) -> Outcome:
    """A job as a Ray task."""
    try:
        outcome = _attempt(work, job)
    except KeyboardInterrupt:
        # Cancelled, or the node is about to go: then Ray finds another one for a worker that died.
        os._exit(1)
    if job.folder is not None and all(result.error is None for result in outcome.results):
        for spec in job.specs:
            shutil.rmtree(Path(job.folder) / spec.id, ignore_errors=True)
    return outcome


def _for_node(job: Job, scratch: str | None) -> Job:
    if scratch is not None and job.folder is not None and Path(scratch).resolve() == Path(job.folder).resolve():
        raise ValueError(f"scratch is {scratch}, where the store keeps its trials; choose a folder of its own.")
    return job._replace(folder=scratch, pack=True)


def _fetched(reference: Any, job: Job) -> Outcome:
    ray = import_ray()
    try:
        outcome: Outcome = ray.get(reference)
    except ray.exceptions.RayError as error:
        return Outcome.failed(job, f"lost on the cluster, {type(error).__name__}: {error}")
    return outcome._replace(job=job)


def _nothing_fits(cpus: float, gpus: float, *, can_grow: bool) -> None:
    wanted = f"{cpus:g} CPUs and {gpus:g} GPUs"
    if can_grow:
        warnings.warn(f"no node of the cluster has {wanted} for a trial; waiting for one to join.", stacklevel=2)
    else:
        raise ValueError(f"no trial fits on this machine: it does not have {wanted}. Ask for less, or name a cluster.")


def _held_by_cluster(cpus: float, gpus: float) -> int:
    """How many jobs the nodes of the moment can hold."""
    ray = import_ray()
    return sum(_held_by_node(node["Resources"], cpus, gpus) for node in ray.nodes() if node["Alive"])


def _held_by_node(resources: Mapping[str, float], cpus: float, gpus: float) -> int:
    """How many jobs fit on a node.

    >>> _held_by_node({"CPU": 8.0, "GPU": 2.0}, cpus=1, gpus=0.5)
    4
    """
    wanted = {"CPU": cpus, "GPU": gpus}
    # 0.3 / 0.1 is a little less than 3.
    return min(math.floor(resources.get(name, 0.0) / share + 1e-9) for name, share in wanted.items() if share)


def _cancel(references: list[Any], grace: float) -> None:
    """End tasks as Ctrl-C would, and after a while in earnest."""
    ray = import_ray()
    if not references:
        return
    for reference in references:
        ray.cancel(reference)
    _, left = ray.wait(references, num_returns=len(references), timeout=grace)
    for reference in left:
        ray.cancel(reference, force=True)


def _dealt_gpus(gpus: int, workers: int) -> list[dict[str, str]]:
    """Environment in which each worker sees one GPU, of those this process may see.

    >>> _dealt_gpus(2, workers=3)
    [{'CUDA_VISIBLE_DEVICES': '0'}, {'CUDA_VISIBLE_DEVICES': '1'}, {'CUDA_VISIBLE_DEVICES': '0'}]
    """
    if gpus == 0:
        return [{}] * workers
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(gpus)))).split(",")[:gpus]
    return [{"CUDA_VISIBLE_DEVICES": name} for name in islice(cycle(visible), workers)]


def _hidden_gpus(gpus: float) -> dict[str, str]:
    # Left alone, every job without a share of a GPU would go to the first one.
    return {} if gpus else {"CUDA_VISIBLE_DEVICES": ""}


def _check_resources(cpus: float, gpus: float) -> None:
    if not cpus > 0:
        raise ValueError(f"cpus_per_trial is {cpus}; expected a positive number, such as 1 or 0.5.")
    if gpus < 0 or (gpus > 1 and gpus != int(gpus)):
        raise ValueError(f"gpus_per_trial is {gpus}; expected 0, a part of one GPU such as 0.25, or a whole number.")
