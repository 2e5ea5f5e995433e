"""A number beside its goal, and a command in a process of its own: its seconds, its memory, and the bytes it read."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_TICK = 0.05  # seconds between two looks at the memory


@dataclass(frozen=True)
class Measured:
    """One number; without a goal it says where another one comes from."""

    name: str
    value: float
    unit: str = ""
    target: str = ""
    met: bool | None = None


def at_least(name: str, value: float, unit: str, target: float) -> Measured:
    return Measured(name, value, unit, f">= {target:g} {unit}", value >= target)


def below(name: str, value: float, unit: str, target: float) -> Measured:
    return Measured(name, value, unit, f"< {target:g} {unit}", value < target)


def measured_table(rows: Iterable[Measured]) -> str:
    verdict = {True: "yes", False: "**no**", None: ""}
    lines = ["| what | measured | goal | met |", "|---|---:|---:|---|"]
    lines += [f"| {row.name} | {_number(row.value)} {row.unit} | {row.target} | {verdict[row.met]} |" for row in rows]
    return "\n".join(lines)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


@dataclass(frozen=True)
class Finished:
    """What a command took; its processes are itself and those it started."""

    seconds: float
    peak_bytes: int
    """Sum of the largest memory of each process, which need not have been at the same time."""
    read_bytes: int
    """From files, cached by the system or not."""
    output: str


def run_openauc(*arguments: str | Path, only_core: int | None = None, **environment: str) -> Finished:
    """``openauc`` with these arguments, on all cores or on one."""
    pin = "" if only_core is None else f"import os; os.sched_setaffinity(0, {{{only_core}}}); "
    return run_python(f"{pin}from openauc.cli import main; main()", *arguments, **environment)


def run_python(code: str, *arguments: str | Path, **environment: str) -> Finished:
    """A Python program, to its end; an error there is one here."""
    return run_command([sys.executable, "-c", code, *map(str, arguments)], os.environ | environment)


def run_command(command: Sequence[str], environment: Mapping[str, str]) -> Finished:
    peaks: dict[int, int] = {}
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        read, begin = _bytes_read(), time.perf_counter()
        process = subprocess.Popen(command, stdout=output, stderr=errors, env=environment)
        while process.poll() is None:
            for pid in _with_children(process.pid):
                peaks[pid] = max(peaks.get(pid, 0), peak_memory(pid))
            with suppress(subprocess.TimeoutExpired):
                process.wait(_TICK)
        seconds = time.perf_counter() - begin
        read = _bytes_read() - read
        output.seek(0), errors.seek(0)
        if process.returncode:
            raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}: {errors.read()[-2000:]}")
        return Finished(seconds, sum(peaks.values()), read, output.read())


def _with_children(pid: int) -> list[int]:
    found = [pid]
    for parent in found:  # which grows meanwhile
        with suppress(OSError):  # it has just ended
            for task in Path(f"/proc/{parent}/task").iterdir():
                found += map(int, (task / "children").read_text().split())
    return found


def peak_memory(pid: int) -> int:
    """Largest resident memory so far; the one that ``getrusage`` tells begins with that of the starting process."""
    with suppress(OSError):
        if found := re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text()):
            return 1024 * int(found[1])
    return 0


def _bytes_read() -> int:
    """By this process and all of its children that ended."""
    return int(Path("/proc/self/io").read_text().split()[1])
