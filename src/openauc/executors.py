"""Where tasks run: in this process, in a pool of processes, or on a Ray cluster; one signature, the same results."""

from __future__ import annotations

import logging
import math
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import cycle, islice
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from typing import Any

from openauc._validation import import_extra
from openauc.environment import cores, reuse_memory

GRACE_SECONDS = 30.0  # how long interrupted workers may take to save their checkpoints

START_UP_DEATHS = 3  # a pool gives up when this many workers in a row are killed before they can take their task

RETRIES = 3  # how often Ray starts a task again whose worker or node died

POLL_SECONDS = 5.0  # how often, at least, the size of a Ray cluster is read again

_READY, _INTERRUPTED = "ready", "interrupted"  # what a worker says besides outcomes
_LONGEST_FOLDER = 70  # bytes: a socket in it may have a name of at most 107

Work = Callable[[Any], Any]
"""Does a task and returns its outcome.

A task has three methods: ``failed(error, seconds)`` returns the outcome of a failure; ``on_node(scratch)`` returns the
task that a node of a cluster gets; ``from_node(outcome)`` turns the node's outcome into that of the task.
"""
Execute = Callable[[Work, Iterable[Any]], Iterator[Any]]
"""Does a lazy iterable of tasks, and yields one outcome per task in order of completion.

A task is taken from the iterable only when a worker is free for it. A task that fails has an outcome, too; only an
interruption ends the run, as ``KeyboardInterrupt``.
"""


def executor(jobs: int | None, ray: bool, ray_address: str | None, *, threads: int | None = None) -> Execute:
    """What ``--jobs``, ``--ray`` and ``--ray-address`` ask for; ``threads`` are those of each process."""
    if jobs is not None and (ray or ray_address is not None):
        raise ValueError("--jobs is for processes of this machine; a Ray cluster takes as many shards as it has CPUs.")
    if ray or ray_address is not None:
        return ray_cluster(ray_address)
    return in_process if jobs is None or jobs == 1 else process_pool(jobs, threads=threads)


class Interrupted(Exception):
    """A task was stopped by a signal, which ends the whole run."""


def in_process(work: Work, tasks: Iterable[Any]) -> Iterator[Any]:
    """Do one task after the other in this process."""
    for task in tasks:
        yield _attempt(work, task)


def process_pool(workers: int, *, threads: int | None = None, gpus: int = 0) -> Execute:
    """Executor with ``workers`` processes on this machine, each of which does one task at a time.

    A worker that dies is replaced, and only its own task fails; if no worker can start, ``ChildProcessError`` ends the
    run. When the consumer stops, running trainings save their checkpoints; when this process dies, its workers end too.
    Workers are forked from a server that has imported what the work needs.

    Parameters
    ----------
    workers
        Number of processes. A script that starts them must do so below ``if __name__ == "__main__":``.
    threads
        Threads of each; by default the cores are divided among the workers.
    gpus
        GPUs of this machine, given to the workers in turn, so that each sees one. With 0, every worker sees all GPUs.
    """
    threads = max(1, cores() // max(1, workers)) if threads is None else threads
    for name, value, least in (("workers", workers, 1), ("threads", threads, 1), ("gpus", gpus, 0)):
        if value < least:
            raise ValueError(f"{name} is {value}; expected a whole number, at least {least}.")
    places = [{**thread_limits(threads), **gpu} for gpu in _dealt_gpus(gpus, workers)]

    def execute(work: Work, tasks: Iterable[Any]) -> Iterator[Any]:
        waiting = iter(tasks)
        idle = [_Worker(work, place) for place in places]
        busy: dict[Any, _Worker] = {}
        deaths = 0
        try:
            while True:
                for task in islice(waiting, len(idle)):
                    worker = idle.pop()
                    worker.begin(task)
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
                            problem = f"no worker process can start: {deaths} times in a row, {worker.death}"
                            raise ChildProcessError(problem)
                        yield outcome
        finally:
            _stop([worker.process for worker in (*idle, *busy.values()) if worker.process is not None])

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

    Only this process writes results. A task whose worker or node died is started again up to `RETRIES` times, then it
    has failed.

    Parameters
    ----------
    address
        Cluster to join, as ``ray.init`` takes it: ``"auto"``, ``"host:6379"``, ``"ray://host:10001"``. None starts one
        on this machine and stops it in the end. An existing connection of this process to Ray is used.
    cpus_per_trial, gpus_per_trial
        Resources that Ray reserves for a task; parts of a GPU are allowed. The number of CPUs is also the number of
        threads. Without GPUs a task does not see any.
    scratch
        Folder that every node sees. Trials then train there, and a trial that is started again, by Ray or by a later
        run, goes on from its checkpoint. Folders of finished trials are removed.
    runtime_env
        What Ray copies to the nodes, for instance ``{"working_dir": "."}`` for methods of your own.
    """
    ray = import_extra("ray", "running on a Ray cluster", "'openauc[ray]'")
    if not cpus_per_trial > 0:
        raise ValueError(f"cpus_per_trial is {cpus_per_trial}; expected a positive number, such as 1 or 0.5.")
    if gpus_per_trial < 0 or (gpus_per_trial > 1 and gpus_per_trial != int(gpus_per_trial)):
        raise ValueError(f"gpus_per_trial is {gpus_per_trial}; expected 0, a part of one such as 0.25, or whole GPUs.")
    # Otherwise every task without a share of a GPU would use the first one.
    hidden = {} if gpus_per_trial else {"CUDA_VISIBLE_DEVICES": ""}
    settings = {
        "num_cpus": cpus_per_trial,
        "num_gpus": gpus_per_trial,
        "max_retries": RETRIES,
        "runtime_env": {"env_vars": thread_limits(max(1, int(cpus_per_trial))) | hidden},
    }

    def held_by_cluster() -> int:
        nodes = (node["Resources"] for node in ray.nodes() if node["Alive"])
        return sum(_held_by_node(node, cpus_per_trial, gpus_per_trial) for node in nodes)

    def execute(work: Work, tasks: Iterable[Any]) -> Iterator[Any]:
        with _connected_to_ray(ray, address, runtime_env) as started:
            if not held_by_cluster():
                wanted = f"{cpus_per_trial:g} CPUs and {gpus_per_trial:g} GPUs for a trial"
                if started:
                    raise ValueError(f"this machine does not have {wanted}; ask for less, or name a cluster.")
                warnings.warn(f"no node of the cluster has {wanted}; waiting for one to join.", stacklevel=2)
            remote, shared = ray.remote(_on_node).options(**settings), ray.put(work)
            waiting = iter(tasks)
            running: dict[Any, Any] = {}
            try:
                while True:
                    held = held_by_cluster()
                    # A few more keep the nodes busy, and make a cluster grow that can.
                    free = held + max(2, held // 4) - len(running)
                    for task in islice(waiting, max(0, free)):
                        running[remote.remote(shared, task, task.on_node(scratch))] = task
                    if not running:
                        return
                    done, _ = ray.wait(list(running), timeout=POLL_SECONDS)
                    for reference in done:
                        task = running.pop(reference)
                        try:
                            outcome = ray.get(reference)
                        except ray.exceptions.RayError as error:
                            outcome = task.failed(f"lost on the cluster, {type(error).__name__}: {error}")
                        yield outcome
            finally:
                _cancel(ray, list(running), GRACE_SECONDS if scratch else 0.0)

    return execute


def _attempt(work: Work, task: Any) -> Any:
    """Do a task. An error becomes its outcome; an interruption ends the run."""
    try:
        return work(task)
    except Interrupted as error:
        raise KeyboardInterrupt(str(error)) from error
    except Exception as error:
        return task.failed(error_text(error))


def error_text(error: Exception) -> str:
    """Kind and message in the first line, then the traceback."""
    trace = "".join(traceback.format_exception(error)).rstrip()
    return f"{type(error).__name__}: {error}\n\n{trace}"


def thread_limits(threads: int) -> dict[str, str]:
    """Environment variables that keep a process to this many threads; numba, Arrow and BLAS read them."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
    return dict.fromkeys(names, str(threads))


class _Worker:
    """A process of the pool, started for its first task and again after it has died."""

    connection: Connection
    task: Any
    begun: float
    death = ""

    def __init__(self, work: Work, environment: Mapping[str, str]) -> None:
        self.work = work
        # Rich then draws no progress bars across those of this process.
        self.environment = {**environment, "TTY_COMPATIBLE": "0"}
        self.process: ForkServerProcess | None = None
        self.ready = False

    def begin(self, task: Any) -> None:
        if self.process is None or not self.process.is_alive():
            self._start()
        self.task, self.begun = task, time.perf_counter()
        # If the process has just died, the pipe is broken, and receive() will say so.
        with suppress(ConnectionError):
            self.connection.send(task)

    def _start(self) -> None:
        context = multiprocessing.get_context("forkserver")
        self.connection, other = context.Pipe()
        self.process = context.Process(target=_serve, args=(self.environment, self.work, other), daemon=True)
        with _uninterrupted():
            _start_server(self.work, self.environment)
            self.process.start()
        other.close()
        self.ready = False

    def receive(self) -> Any:
        """Outcome of the task; None if the worker only said that it is ready."""
        try:
            said = self.connection.recv()
        except (EOFError, ConnectionError):
            assert self.process is not None
            self.process.join()
            code = self.process.exitcode or 0
            if not self.ready and code >= 0:
                # The next one would meet the same error.
                raise ChildProcessError(
                    "a worker process could not start; its own message is above. A script that starts several "
                    'processes must do so below `if __name__ == "__main__":`.'
                ) from None
            self.death = _death(code, self.ready)
            return self.task.failed(self.death, time.perf_counter() - self.begun)
        if said == _INTERRUPTED:
            raise KeyboardInterrupt("a worker process was interrupted.")
        self.ready = True
        return None if said == _READY else said


def _start_server(work: Work, environment: Mapping[str, str]) -> None:
    """Start the process from which workers are forked, unless it is running; it imports the module of the work."""
    module = getattr(getattr(work, "func", work), "__module__", "__main__")
    if module != "__main__":
        multiprocessing.set_forkserver_preload([module])
    folder = tempfile.gettempdir()
    if len(os.fsencode(folder)) > _LONGEST_FOLDER and os.path.isdir("/tmp"):
        tempfile.tempdir = "/tmp"
    try:
        with _process_environment(environment):  # libraries read it when they are imported
            forkserver.ensure_running()
    finally:
        tempfile.tempdir = folder


@contextmanager
def _process_environment(values: Mapping[str, str]) -> Iterator[None]:
    """Environment variables for the processes that are started in the block."""
    before = {name: os.environ[name] for name in values if name in os.environ}
    os.environ.update(values)
    try:
        yield
    finally:
        for name in values:
            del os.environ[name]
        os.environ.update(before)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Start processes that ignore Ctrl-C, which is for this one; here the signal waits until they have started."""
    waiting: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else ()
    handlers = {number: signal.signal(number, lambda n, frame: waiting.append(n)) for number in numbers}
    resource_tracker.ensure_running()  # now, because it unblocks the signal
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for caught in waiting:
            signal.raise_signal(caught)


def _serve(environment: Mapping[str, str], work: Work, connection: Connection) -> None:
    """What a worker does: tasks, until a signal comes."""
    with suppress(KeyboardInterrupt, EOFError):
        # The driver passes on the signals of a terminal; a second one from there would cut off the checkpoint.
        os.setpgid(0, 0)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        os.environ.update(environment)
        if (torch := sys.modules.get("torch")) is not None:  # imported by the server, perhaps for another pool
            torch.set_num_threads(int(environment["OMP_NUM_THREADS"]))
        threading.Thread(target=_end_with, args=(multiprocessing.parent_process(),), daemon=True).start()
        reuse_memory()
        connection.send(_READY)
        while True:
            task = connection.recv()
            try:
                outcome = _attempt(work, task)
            except KeyboardInterrupt:
                connection.send(_INTERRUPTED)
                return
            connection.send(outcome)


def _end_with(parent: Any) -> None:
    parent.join()
    os._exit(1)


def _stop(processes: list[ForkServerProcess]) -> None:
    """End processes with a signal on which a training saves its checkpoint, and kill those that are left."""
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
    hint = " Systems do this to a process when memory runs out; use fewer jobs." if code == -signal.SIGKILL else ""
    when, kept = ("", "what others did is kept, and ") if ready else (" at its start", "")
    return f"the worker process died{when} ({how}); {kept}this can be tried again.{hint}"


@contextmanager
def _connected_to_ray(ray: Any, address: str | None, runtime_env: Mapping[str, Any] | None) -> Iterator[bool]:
    """A connection to Ray for the block, unless there is one; yields whether a cluster was started here."""
    if ray.is_initialized():
        if runtime_env is not None:
            raise ValueError("this process is connected to Ray already; pass runtime_env to that ray.init instead.")
        yield False
        return
    # By default a new cluster reports its use to Ray's makers.
    with _process_environment({"RAY_USAGE_STATS_ENABLED": os.environ.get("RAY_USAGE_STATS_ENABLED", "0")}):
        ray.init(
            address or "local",
            runtime_env=runtime_env,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.WARNING,
        )
    try:
        yield address is None
    finally:
        ray.shutdown()


def _on_node(work: Work, task: Any, moved: Any) -> Any:
    try:
        outcome = _attempt(work, moved)
    except KeyboardInterrupt:
        # Cancelled, or the node is about to stop: as the worker dies, Ray starts the task on another node.
        os._exit(1)
    return task.from_node(outcome)


def _held_by_node(resources: Mapping[str, float], cpus: float, gpus: float) -> int:
    """How many tasks fit on a node.

    >>> _held_by_node({"CPU": 8.0, "GPU": 2.0}, cpus=1, gpus=0.5)
    4
    """
    wanted = {"CPU": cpus, "GPU": gpus}
    # 0.3 / 0.1 is a little less than 3.
    return min(math.floor(resources.get(name, 0.0) / share + 1e-9) for name, share in wanted.items() if share)


def _cancel(ray: Any, references: list[Any], grace: float) -> None:
    """Interrupt tasks as Ctrl-C does, and kill those that are left after ``grace`` seconds."""
    if not references:
        return
    for reference in references:
        ray.cancel(reference)
    _, left = ray.wait(references, num_returns=len(references), timeout=grace)
    for reference in left:
        ray.cancel(reference, force=True)


def _dealt_gpus(gpus: int, workers: int) -> list[dict[str, str]]:
    """Environment of each worker, in which it sees one of the GPUs that this process sees.

    >>> _dealt_gpus(2, workers=3)
    [{'CUDA_VISIBLE_DEVICES': '0'}, {'CUDA_VISIBLE_DEVICES': '1'}, {'CUDA_VISIBLE_DEVICES': '0'}]
    """
    if gpus == 0:
        return [{}] * workers
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(gpus)))).split(",")[:gpus]
    return [{"CUDA_VISIBLE_DEVICES": name} for name in islice(cycle(visible), workers)]
