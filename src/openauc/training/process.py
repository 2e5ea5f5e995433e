"""The process of a training: its rank among several, its device and its signals."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import torch
from accelerate import PartialState
from accelerate.utils import parse_flag_from_env


def on_cpu() -> bool:
    """Whether to compute on the CPU: without CUDA, or where ``accelerate launch --cpu`` says so.

    Unless it is told, accelerate takes the processes of a CPU run for unrelated ones.
    """
    return not torch.cuda.is_available() or bool(parse_flag_from_env("ACCELERATE_USE_CPU"))


def process_state() -> PartialState:
    """Rank of this process, number of processes, and device."""
    return PartialState(cpu=on_cpu())


@contextmanager
def caught_signals(*, enabled: bool) -> Iterator[list[int]]:
    """Collect SIGINT and SIGTERM; a second one acts at once, as it would have without us."""
    caught: list[int] = []
    # Python lets only the main thread decide about signals.
    if not enabled or threading.current_thread() is not threading.main_thread():
        yield caught
        return
    previous = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in previous.items():
            signal.signal(number, handler)

    def catch(number: int, frame: FrameType | None) -> None:
        caught.append(number)
        restore()
        print("stopping after this batch; once more to stop at once.", file=sys.stderr)

    for number in previous:
        signal.signal(number, catch)
    try:
        yield caught
    finally:
        restore()
