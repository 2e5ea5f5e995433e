"""Shards on a Ray cluster of several nodes on this machine, one of which is killed."""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from openauc import evaluate
from openauc.shards import Shard, evaluate_shards, find_shards, ray_tasks
from openauc.shards.counting import Outcome, Work
from shards.test_evaluation import QUICK, all_of, samples

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def ray_home() -> Iterator[Path]:
    """Environment in which Ray writes to a temporary folder only and finds this module; its path must be short."""
    folder = Path(tempfile.mkdtemp(prefix="ray", dir="/tmp"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(folder))
        patch.setenv("RAY_TMPDIR", str(folder))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        patch.setenv("OPENAUC_TEST_DOOMED", str(folder))
        yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def log(ray_home: Path) -> Path:
    folder = ray_home / "log"
    folder.mkdir()
    for i in range(8):
        samples(50, i).save(folder / f"{i}.parquet")
    return folder


class HangsOnTheDoomedNode:
    """Work that ends on no node whose name is in the folder of the test."""

    def __init__(self, work: Work) -> None:
        self.work = work

    def __call__(self, shard: Shard, tell: object = None) -> Outcome:
        import ray

        here = Path(os.environ["OPENAUC_TEST_DOOMED"], ray.get_runtime_context().get_node_id())
        if here.exists():
            here.with_suffix(".busy").touch()
            time.sleep(600)
        return self.work(shard, None)


def dies(shard: Shard, tell: object = None) -> Outcome:
    os._exit(3)


def test_a_node_killed_in_mid_run_costs_only_its_shards(ray_home: Path, log: Path) -> None:
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        ray.init(cluster.address, log_to_driver=False, logging_level="error")
        before = {node["NodeID"] for node in ray.nodes()}
        extra = cluster.add_node(num_cpus=1)
        (name,) = {node["NodeID"] for node in ray.nodes()} - before
        doomed = ray_home / name
        doomed.touch()
        read: list[str] = []

        def execute(work: Work, shards: Iterable[Shard], tell: Callable[[int], None]) -> Iterator[Outcome]:
            killed = False
            for outcome in ray_tasks()(HangsOnTheDoomedNode(work), shards, tell):
                read.append(outcome.shard.path)
                yield outcome
                while not killed:
                    if doomed.with_suffix(".busy").exists():
                        cluster.remove_node(extra, allow_graceful=False)
                        killed = True
                    time.sleep(0.05)

        found = evaluate_shards(find_shards(log), execute=execute, work=ray_home / "work", **QUICK)
        assert found.evaluation == evaluate(*all_of(log), **QUICK)
        assert sorted(read) == [shard.path for shard in find_shards(log)]
        with pytest.raises(ChildProcessError, match=r"0.parquet could not be read on the cluster \(WorkerCrashedError"):
            list(ray_tasks()(dies, find_shards(log / "0.parquet"), lambda done: None))
    finally:
        ray.shutdown()
        cluster.shutdown()
