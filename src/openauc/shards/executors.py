"""Where shards are read: in this process, in several, or on a Ray cluster; one signature, the same results.

An executor gets the work to do on a shard and the shards, and yields an outcome for each, in order of completion.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from functools import partial
from itertools import islice
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np
from numpy.typing import NDArray

from openauc._workers import connected_to_ray, end_with_parent, import_ray, process_environment, thread_limits
from openauc.environment import reuse_memory
from openauc.shards.counting import Outcome, Work
from openauc.shards.paths import Shard

Told = Callable[[int], None]
"""Hears how many bytes are done of a shard that is under way, where that can be told."""

Execute = Callable[[Work, Iterable[Shard], Told], Iterator[Outcome]]

RETRIES = 3
"""How often Ray starts a shard again whose worker or node died."""

_LARGE = 1 << 20  # bytes of an array that is handed over in a file
_GO_ON = "Shards that were finished need not be counted again: the same command goes on from there."


def here(work: Work, shards: Iterable[Shard], tell: Told) -> Iterator[Outcome]:
    """One shard after the other, in this process, which may use several threads."""
    for shard in shards:
        yield work(shard, lambda share, size=shard.size: tell(int(share * size)))  # type: ignore[misc]


def processes(jobs: int) -> Execute:
    """Executor with ``jobs`` processes of one thread on this machine.

    A script that starts them needs ``if __name__ == "__main__":`` around what it does. They serve all passes, and end
    with the executor, or when this process dies.
    """
    if jobs < 1:
        raise ValueError(f"jobs is {jobs}; expected a whole number, at least 1.")

    pools: list[_Pool] = []  # one, from the first pass on

    def execute(work: Work, shards: Iterable[Shard], tell: Told) -> Iterator[Outcome]:
        waiting = iter(shards)
        pool = pools.pop() if pools else _Pool(jobs)

        def more(number: int) -> set[Future[Outcome]]:
            with process_environment(thread_limits(1)):  # for processes, which the pool starts when there is need
                return {pool.submit(work, shard, None) for shard in islice(waiting, number)}

        try:
            running = more(2 * jobs)
            while running:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                running |= more(len(done))
                for future in done:
                    yield future.result()
        except BrokenProcessPool:
            raise ChildProcessError(
                "a process that reads shards died; systems do this when memory runs out. Use fewer jobs, or smaller "
                f"shards. {_GO_ON}"
            ) from None
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
        pools.append(pool)

    return execute


class _Pool(ProcessPoolExecutor):
    """Processes that hand over large arrays in files, which is faster than through the pipe between them.

    When nobody refers to it any more, its processes end and its folder goes.
    """

    def __init__(self, jobs: int) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="openauc-", ignore_cleanup_errors=True)
        context = multiprocessing.get_context("spawn")
        super().__init__(jobs, mp_context=context, initializer=_begin, initargs=(self._folder.name,))


def _begin(folder: str) -> None:
    """Ctrl-C is for the driver, which ends its workers; so does its death."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    reuse_memory()
    ForkingPickler.register(np.ndarray, partial(_left, folder))
    forget = partial(shutil.rmtree, folder, ignore_errors=True)
    threading.Thread(target=end_with_parent, args=(forget,), daemon=True).start()


def _left(folder: str, array: NDArray[Any]) -> Any:
    """How a worker hands an array over."""
    if array.nbytes < _LARGE or array.dtype.hasobject:
        return array.__reduce__()
    try:
        handle, path = tempfile.mkstemp(dir=folder)
        with open(handle, "wb") as file:
            np.save(file, array, allow_pickle=False)
    except OSError as error:
        raise OSError(
            f"a worker could not hand over {array.nbytes:,} bytes in {folder} ({error}); set TMPDIR to a folder with "
            "more room, or make more passes in less memory."
        ) from None
    return _taken, (path,)


def _taken(path: str) -> NDArray[Any]:
    """The array that a worker left; its file goes when the array does."""
    array = np.asarray(np.load(path, mmap_mode="c"))
    with suppress(PermissionError):  # where a file in use cannot be removed, it goes with its folder
        os.unlink(path)
    return array


def ray_tasks(address: str | None = None) -> Execute:
    """Executor on a Ray cluster, of which every node reads shards by the same paths; a shard reserves one CPU.

    Results come back to this process, which alone writes them. A shard whose worker or node died is read again
    elsewhere, up to `RETRIES` times.

    Parameters
    ----------
    address
        Cluster to join, as ``ray.init`` takes it: ``"auto"``, ``"host:6379"``. None starts one on this machine and
        stops it in the end. A process that is connected to Ray already stays on that connection.
    """
    ray = import_ray()
    settings = {"num_cpus": 1, "max_retries": RETRIES, "runtime_env": {"env_vars": thread_limits(1)}}

    def execute(work: Work, shards: Iterable[Shard], tell: Told) -> Iterator[Outcome]:
        with connected_to_ray(address, None):
            task, shared = ray.remote(_on_node).options(**settings), ray.put(work)
            waiting = iter(shards)
            running: dict[Any, Shard] = {}
            try:
                while True:
                    # Twice what the nodes of the moment hold: none waits for the driver, and a cluster sees the need.
                    room = 2 * max(1, int(ray.cluster_resources().get("CPU", 1))) - len(running)
                    for shard in islice(waiting, max(0, room)):
                        running[task.remote(shared, shard)] = shard
                    if not running:
                        return
                    done, _ = ray.wait(list(running))
                    for reference in done:
                        yield _fetched(reference, running.pop(reference))
            finally:
                for reference in running:
                    ray.cancel(reference, force=True)

    return execute


def _on_node(work: Work, shard: Shard) -> Outcome:
    """A pass over a shard as a Ray task."""
    return work(shard, None)


def _fetched(reference: Any, shard: Shard) -> Outcome:
    ray = import_ray()
    try:
        outcome: Outcome = ray.get(reference)
    except ray.exceptions.RayError as error:
        cause = f"{type(error).__name__}: {str(error).splitlines()[0]}"
        raise ChildProcessError(f"{shard.path} could not be read on the cluster ({cause}). {_GO_ON}") from None
    return outcome
