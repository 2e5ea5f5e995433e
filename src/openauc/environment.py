"""Where and with what a result was made."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from importlib import metadata
from pathlib import Path

_PACKAGES = ("numpy", "numba", "scikit-learn", "torch", "accelerate", "pyarrow", "pillow")


def environment() -> dict[str, str]:
    """Versions, hardware and commit, as plain text; what is absent is left out."""
    facts = {
        "openauc": metadata.version("openauc"),
        "python": platform.python_version(),
        "hardware": f"{cpu_name()}, {_cores()} cores",
        "system": f"{platform.system()} {platform.machine()}",
    }
    for package in _PACKAGES:
        try:
            facts[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    commit = commit_of(Path(__file__).parent)
    return {**facts, "commit": commit} if commit else facts


def commit_of(folder: Path) -> str | None:
    """Commit of the checkout that ``folder`` is part of, with "+" when it has uncommitted changes; None outside one."""
    try:
        run = ["git", "-C", str(folder), "describe", "--always", "--abbrev=12", "--dirty=+", "--exclude=*"]
        return subprocess.run(run, capture_output=True, text=True, check=True).stdout.strip() or None
    except (OSError, subprocess.CalledProcessError):
        return None


def cpu_name() -> str:
    """Model of the processor."""
    try:
        found = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    except OSError:
        found = None
    return found.group(1).strip() if found else platform.processor() or platform.machine()


def hardware_name() -> str:
    """Short name for files, such as ``amd-epyc-2c``."""
    words = re.sub(r"\(.*?\)|CPU|Processor|@.*", "", cpu_name())
    return f"{re.sub(r'[^a-z0-9]+', '-', words.lower()).strip('-')}-{_cores()}c"


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
