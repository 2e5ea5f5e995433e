"""Comparisons of speed: rows with a ratio, and the ways to time both sides of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Row:
    """One comparison: ``ratio`` is reference / ours where faster is better, else as the name says.

    A row without a target says where the time of another one goes.
    """

    name: str
    ours: float
    reference: float
    ratio: float
    target: str = ""
    met: bool | None = None


def in_turn(repeats: int, *functions: Callable[[], object]) -> list[float]:
    """Seconds of the fastest call of each function, called in turn after one warm-up call."""
    seconds: list[list[float]] = [[] for _ in functions]
    for function in functions:
        function()
    for _ in range(repeats):
        for function, times in zip(functions, seconds, strict=True):
            times.append(timed(function))
    return [min(times) for times in seconds]


def faster(name: str, ours: float, reference: float, target: float) -> Row:
    return Row(name, ours, reference, reference / ours, f">= {target:g}x", reference / ours >= target)


Timed = Callable[[], float]
"""Does something once and returns its seconds."""


def timed(function: Callable[..., object], *arguments: Any) -> float:
    start = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - start


def second_time(function: Callable[..., object], *arguments: Any) -> float:
    function(*arguments)
    return timed(function, *arguments)


def in_new_process(function: Callable[..., object], *arguments: Any) -> float:
    """Seconds of the second of two calls in a process of their own.

    Processes differ as a whole: the same eager inference took 1.7 s in some and 2.5 s in others, call after call.
    """
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(second_time, function, *arguments).result()


def in_pairs(rounds: int, first: Timed, *others: Timed) -> list[list[float]]:
    """For each of the others, medians over the rounds: its seconds, those of the first, their ratio within a round.

    Calls of one round are seconds apart, so they share most of what the machine does meanwhile; every other round
    goes backwards, so that none profits from its place.
    """
    calls = [first, *others]
    seconds = np.empty((rounds, len(calls)))
    for row in range(rounds):
        for column in range(len(calls))[:: -1 if row % 2 else 1]:
            seconds[row, column] = calls[column]()
    base = seconds[:, 0]
    return [[float(np.median(values)) for values in (own, base, own / base)] for own in seconds[:, 1:].T]


def faster_in_pairs(name: str, rounds: int, target: float, ours: Timed, reference: Timed) -> Row:
    ((slow, fast, gain),) = in_pairs(rounds, ours, reference)
    return Row(f"{name}, median of {rounds} pairs", fast, slow, gain, f">= {target:g}x", gain >= target)
