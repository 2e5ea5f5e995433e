"""Versions and hardware behind a result, and memory settings of programs."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

_PACKAGES = ("numpy", "numba", "scikit-learn", "torch", "accelerate", "safetensors", "pyarrow", "pillow", "ray")
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # of malloc.h


def environment() -> dict[str, str]:
    """Versions, hardware and commit, as plain text; what is absent is left out."""
    from importlib import metadata  # slow to import, and few ask

    facts = {
        "openauc": metadata.version("openauc"),
        "python": platform.python_version(),
        "processor": cpu_name(),
        "cores": str(cores()),
        "platform": f"{platform.system()} {platform.machine()}",
    }
    torch = sys.modules.get("torch")  # a result that needed a GPU has it loaded
    if torch is not None and torch.cuda.is_available():
        facts["gpu"] = f"{torch.cuda.device_count()} x {torch.cuda.get_device_name()}"
    for package in _PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            facts[package] = metadata.version(package)
    commit = _commit(Path(__file__).parent)
    return {**facts, "commit": commit} if commit else facts


def _commit(folder: Path) -> str | None:
    """Commit of the checkout, with "+" when it has uncommitted changes; None for an installed copy."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(folder), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", "__init__.py")  # an installed copy may lie in anybody's repository
        return git("describe", "--always", "--abbrev=12", "--dirty=+", "--exclude=*")
    except (OSError, subprocess.CalledProcessError):
        return None


def cpu_name() -> str:
    try:
        found = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    except OSError:
        found = None
    return found.group(1).strip() if found else platform.processor() or platform.machine()


def reuse_memory() -> None:
    """Keep freed memory in this process for good, where the C library is glibc; for programs, not for libraries.

    By default it returns every large block to the system at once, and a tenth of a full-width training step on a CPU
    went into clearing the pages of the next one.
    """
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_MAX, 0)
        libc.mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads() -> int:
    """Threads of compiled loops: one for each core, unless numba is told to use fewer."""
    return min(cores(), int(os.environ.get("NUMBA_NUM_THREADS") or cores()))
