"""What every kind of worker needs: threads and variables of a process, its end with its parent, a connection to Ray."""

from __future__ import annotations

import logging
import multiprocessing
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any


def thread_limits(threads: int) -> dict[str, str]:
    """Environment variables that keep a process to this many threads; numba, Arrow and BLAS read them."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
    return dict.fromkeys(names, str(threads))


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


def end_with_parent(last: Callable[[], object] | None = None) -> None:
    """Wait for the end of the process that started this one, do a last thing, and end; for a thread of its own."""
    if (parent := multiprocessing.parent_process()) is not None:
        parent.join()
        if last is not None:
            last()
        os._exit(1)


def import_ray() -> Any:
    """The package, which need not be there where types are checked."""
    try:
        return import_module("ray")
    except ImportError as error:
        raise ImportError("running on a Ray cluster needs `pip install 'openauc[ray]'`.") from error


@contextmanager
def connected_to_ray(address: str | None, runtime_env: Mapping[str, Any] | None) -> Iterator[bool]:
    """A connection to Ray, which ends with the block unless it was there before; yields if a cluster was started."""
    ray = import_ray()
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
