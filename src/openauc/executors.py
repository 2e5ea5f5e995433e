"""Where tasks run: in this process, in a pool of processes, or on a Ray cluster; one signature, the same results.

An executor gets the function that does a task and a lazy iterable of tasks, and yields one outcome per task in order
of completion. It takes a task from the iterable only when a worker is free for it. Whatever goes wrong with a task is
its outcome; only an interruption ends the whole, as ``KeyboardInterrupt``.
"""

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
from importlib import import_module
from itertools import cycle, islice
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from typing import Any

from openauc.environment import cores, reuse_memory

GRACE_SECONDS = 30.0
"""How long interrupted workers may take to save their checkpoints."""

START_UP_DEATHS = 3
"""A pool gives up when this many workers in a row are killed before they can take their task."""

RETRIES = 3
"""How often Ray starts a task again whose worker or node died."""

POLL_SECONDS = 5.0
"""How often, at least, the size of a Ray cluster is looked at."""

_READY, _INTERRUPTED = "ready", "interrupted"  # what a worker says besides outcomes
_LONGEST_FOLDER = 70  # bytes of the folder in which a socket is made, whose name has at most 107


Work = Callable[[Any], Any]
"""Makes an outcome of a task.

A task has ``failed(error, seconds)``, the outcome of its failure; ``on_node(scratch)``, the task as a node of a cluster
does it; and ``from_node(outcome)``, which makes of the outcome there that of the task.
"""
Execute = Callable[[Work, Iterable[Any]], Iterator[Any]]


class Interrupted(Exception):
    """A task was stopped by a signal: not its failure, and everybody's end."""


def in_process(work: Work, tasks: Iterable[Any]) -> Iterator[Any]:
    """Do one task after the other, here."""
    for task in tasks:
        yield _attempt(work, task)


def process_pool(workers: int, *, threads: int | None = None, gpus: int = 0) -> Execute:
    """Executor with ``workers`` processes on this machine, each of which does one task at a time.

    A worker that dies takes only its own task with it, which becomes a failed outcome, and is replaced; where none can
    start, ``ChildProcessError`` ends the whole. When the consumer stops, running trainings save their checkpoints; when
    this process dies, its workers end too. Workers are forked from a server that has imported what the work needs.

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
                            raise ChildProcessError(
                                f"no worker process can start: {deaths} times in a row, {worker.death}"
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

    Results come back to this process, which alone writes them. A task whose worker or node died is started again up to
    `RETRIES` times, then it is a failed outcome.

    Parameters
    ----------
    address
        Cluster to join, as ``ray.init`` takes it: ``"auto"``, ``"host:6379"``, ``"ray://host:10001"``. None starts one
        on this machine and stops it in the end. A process that is connected to Ray already stays on that connection.
    cpus_per_trial, gpus_per_trial
        Resources that Ray reserves for a task; parts of a GPU are allowed. The number of CPUs is also the number of
        threads. Without GPUs a task does not see any.
    scratch
        Folder that every node sees. Trials then train there, and one that is started again, by Ray or by a later run,
        goes on from its checkpoint. Folders of finished trials are removed.
    runtime_env
        What nodes lack and Ray is to bring there, for instance ``{"working_dir": "."}`` for methods of your own.
    """
    ray = _import_ray()
    if not cpus_per_trial > 0:
        raise ValueError(f"cpus_per_trial is {cpus_per_trial}; expected a positive number, such as 1 or 0.5.")
    if gpus_per_trial < 0 or (gpus_per_trial > 1 and gpus_per_trial != int(gpus_per_trial)):
        raise ValueError(
            f"gpus_per_trial is {gpus_per_trial}; expected 0, a part of one GPU such as 0.25, or a whole number."
        )
    # Left alone, every task without a share of a GPU would go to the first one.
    hidden = {} if gpus_per_trial else {"CUDA_VISIBLE_DEVICES": ""}
    settings = {
        "num_cpus": cpus_per_trial,
        "num_gpus": gpus_per_trial,
        "max_retries": RETRIES,
        "runtime_env": {"env_vars": thread_limits(max(1, int(cpus_per_trial))) | hidden},
    }

    def held_by_cluster() -> int:
        """How many tasks the nodes of the moment can hold."""
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        return sum(_held_by_node(node, cpus_per_trial, gpus_per_trial) for node in nodes)

    def execute(work: Work, tasks: Iterable[Any]) -> Iterator[Any]:
        with _connected_to_ray(address, runtime_env) as started:
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
                    # A few more keep the nodes busy, and show a cluster that can grow that there is need.
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
                _cancel(list(running), GRACE_SECONDS if scratch else 0.0)

    return execute


def _attempt(work: Work, task: Any) -> Any:
    """Do a task; its error is an outcome, its interruption is everybody's."""
    try:
        return work(task)
    except Interrupted as error:
        raise KeyboardInterrupt(str(error)) from error
    except Exception as error:
        trace = "".join(traceback.format_exception(error)).rstrip()
        return task.failed(f"{type(error).__name__}: {error}\n\n{trace}")


def thread_limits(threads: int) -> dict[str, str]:
    """Environment variables that keep a process to this many threads; numba, Arrow and BLAS read them."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
    return dict.fromkeys(names, str(threads))


class _Worker:
    """A process of the pool, started when there is a first task for it and again when it has died."""

    process: ForkServerProcess
    connection: Connection
    ready: bool
    task: Any
    begun: float
    death = ""

    def __init__(self, work: Work, environment: Mapping[str, str]) -> None:
        self.work = work
        # Rich then draws no progress bars across those of this process.
        self.environment = {**environment, "TTY_COMPATIBLE": "0"}
        self.started = False

    def begin(self, task: Any) -> None:
        if not (self.started and self.process.is_alive()):
            self._start()
        self.task, self.begun = task, time.perf_counter()
        # The pipe to a process that died just now is broken; receive() tells.
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
        self.started, self.ready = True, False

    def receive(self) -> Any:
        """Outcome of the task; None if the worker only said that it is ready."""
        try:
            said = self.connection.recv()
        except (EOFError, ConnectionError):
            self.process.join()
            code = self.process.exitcode or 0
            if not self.ready and code >= 0:
                # What it met there, the next one would meet as well.
                raise ChildProcessError(
                    "a worker process could not start; its own message is above. A script that starts several "
                    'processes must do so below `if __name__ == "__main__":`.'
                ) from None
            self.death = _death(code, self.ready)
            return self.task.failed(self.death, time.perf_counter() - self.begun)
        if said == _INTERRUPTED:
            raise KeyboardInterrupt("a worker process was interrupted.")
        if said == _READY:
            self.ready = True
            return None
        return said


def _start_server(work: Work, environment: Mapping[str, str]) -> None:
    """Start the process from which workers are forked, unless it runs; it imports the module of the work once."""
    module = getattr(getattr(work, "func", work), "__module__", "__main__")
    if module != "__main__":
        multiprocessing.set_forkserver_preload([module])
    folder = tempfile.gettempdir()
    if len(os.fsencode(folder)) > _LONGEST_FOLDER and os.path.isdir("/tmp"):
        tempfile.tempdir = "/tmp"
    try:
        with process_environment(environment):  # libraries look at their first import
            forkserver.ensure_running()
    finally:
        tempfile.tempdir = folder


@contextmanager
def process_environment(values: Mapping[str, str]) -> Iterator[None]:
    """Environment variables for the processes that are started in the block."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


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


def _serve(environment: Mapping[str, str], work: Work, connection: Connection) -> None:
    """Life of a worker: do tasks until a signal comes."""
    with suppress(KeyboardInterrupt, EOFError):
        # The signals of a terminal are for the driver, which passes them on; a second one would cut off the checkpoint.
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
    hint = " Systems do this to a process when memory runs out; use fewer jobs." if code == -signal.SIGKILL else ""
    if ready:
        return f"the worker process died ({how}); what others did is kept, and this can be tried again.{hint}"
    return f"the worker process died at its start ({how}); this can be tried again.{hint}"


def _import_ray() -> Any:
    """The package, which need not be there where types are checked."""
    try:
        return import_module("ray")
    except ImportError as error:
        raise ImportError("running on a Ray cluster needs `pip install 'openauc[ray]'`.") from error


@contextmanager
def _connected_to_ray(address: str | None, runtime_env: Mapping[str, Any] | None) -> Iterator[bool]:
    """A connection to Ray, which ends with the block unless it was there before; yields if a cluster was started."""
    ray = _import_ray()
    if ray.is_initialized():
        if runtime_env is not None:
            raise ValueError("this process is connected to Ray already; pass runtime_env to that ray.init instead.")
        yield False
        return
    # Unless told not to, a cluster reports its use to Ray's makers; an existing one has been told by its owner.
    with process_environment({"RAY_USAGE_STATS_ENABLED": os.environ.get("RAY_USAGE_STATS_ENABLED", "0")}):
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
    """A task as Ray runs it."""
    try:
        outcome = _attempt(work, moved)
    except KeyboardInterrupt:
        # Cancelled, or the node is about to go: then Ray finds another one for a worker that died.
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


def _cancel(references: list[Any], grace: float) -> None:
    """End tasks as Ctrl-C would, and after a while in earnest."""
    ray = _import_ray()
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
