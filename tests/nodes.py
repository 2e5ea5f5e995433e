"""A Ray cluster of several nodes on this machine; what its workers import must not import pytest or torch."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

Cluster = Any
"""Of ``ray.cluster_utils``."""

DOOMED = "OPENAUC_TEST_DOOMED"
"""Environment variable with the folder where doomed nodes are named."""


def environment(folder: Path) -> dict[str, str]:
    """Ray writes to this folder only, whose path must be short."""
    (folder / "doomed").mkdir()
    here = str(folder)
    return {
        "HOME": here,
        "RAY_TMPDIR": here,
        "RAY_USAGE_STATS_ENABLED": "0",
        DOOMED: str(folder / "doomed"),
    }


def doomed_node(cluster: Cluster, ray_home: Path) -> tuple[Any, Path]:
    """One more node, on which nothing ends that asks ``hang_if_doomed``; and the file that names it."""
    import ray

    before = {node["NodeID"] for node in ray.nodes()}
    extra = cluster.add_node(num_cpus=2)
    (name,) = {node["NodeID"] for node in ray.nodes()} - before
    doomed = ray_home / "doomed" / name
    for other in doomed.parent.iterdir():
        other.unlink()  # of a cluster that is no more
    doomed.touch()
    return extra, doomed


def hang_if_doomed() -> None:
    """On a doomed node, tell that work has begun there, and never come back; elsewhere, wait for that."""
    import ray

    here = Path(os.environ[DOOMED], ray.get_runtime_context().get_node_id())
    if here.exists():
        here.with_suffix(".busy").touch()
        time.sleep(600)
    while not any(here.parent.glob("*.busy")):
        time.sleep(0.05)
