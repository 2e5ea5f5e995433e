"""The compiled kernel and the threads it runs in."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from types import ModuleType
from typing import TypeVar

import numpy as np

from openauc import _validation as check
from openauc.environment import cores, threads

_PAIRS = "openauc.metrics._pairs"
_LOAD_FAST_FROM = 1 << 17  # samples; importing numba costs as much as numpy needs for this many
_USE_FAST_FROM = 1 << 12
_THREADS_FROM = 1 << 18
T = TypeVar("T")


def fast_backend(work: int) -> ModuleType | None:
    """The compiled kernel, if it is installed and ``work`` (samples to pass over) is worth its start-up."""
    choice = os.environ.get("OPENAUC_BACKEND", "auto")
    check.check_choice("the environment variable OPENAUC_BACKEND", choice, ("auto", "numpy", "numba"))
    if choice == "numpy" or (choice == "auto" and work < _USE_FAST_FROM):
        return None
    unloaded = choice == "auto" and _PAIRS not in sys.modules
    if unloaded and (work < _LOAD_FAST_FROM or importlib.util.find_spec("numba") is None):
        return None
    return importlib.import_module(_PAIRS)  # waits where another thread is just importing it


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(cores(), thread_name_prefix="openauc")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # the threads do not live on in a forked process


def in_threads(function: Callable[[int], T], n_tasks: int) -> list[T]:
    """``[function(0), function(1), ...]``, in threads: numpy and the compiled loops release the interpreter lock."""
    others = [_pool().submit(function, i) for i in range(1, n_tasks)]
    return [function(0), *(task.result() for task in others)]


def parts_of(n: int) -> list[slice]:
    """Parts of ``n`` samples, one for each thread."""
    parts = threads() if n >= _THREADS_FROM else 1
    edges = np.linspace(0, n, parts + 1).astype(int).tolist()
    return [slice(a, b) for a, b in pairwise(edges)]
