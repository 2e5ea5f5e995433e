"""One Hypothesis profile and one Ray cluster for all tests; this file also puts `oracles` and others on the path."""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import nodes
import pytest
from hypothesis import HealthCheck, settings

# Derandomized: a commit passes or fails the same way everywhere. No deadline: the first call of a compiled
# function takes seconds. Function-scoped monkeypatch only sets the backend, which every example may share.
settings.register_profile(
    "openauc",
    deadline=None,
    derandomize=True,
    max_examples=30,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.load_profile("openauc")

# Some virtual machines advertise matrix instructions (AMX) on which they then end every process that uses bfloat16.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
# No test looks for a model on the network.
os.environ.setdefault("HF_HUB_OFFLINE", "1")


@pytest.fixture(scope="session")
def ray_home() -> Iterator[Path]:
    """Environment in which Ray writes to a temporary folder only, and its workers find the tests.

    One for the whole session: the token that a cluster of this process wrote there is asked for by the next one.
    """
    folder = Path(tempfile.mkdtemp(prefix="ray", dir="/tmp"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        for name, value in nodes.environment(folder).items():
            patch.setenv(name, value)
        yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def cluster(ray_home: Path) -> Iterator[nodes.Cluster]:
    """Two nodes of one CPU on this machine, and a connection to them."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    started = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        started.add_node(num_cpus=1)
        ray.init(started.address, log_to_driver=False, logging_level="error")
        yield started
    finally:
        ray.shutdown()
        started.shutdown()
