"""Shards on a Ray cluster of several nodes on this machine, one of which is killed."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from nodes import Cluster, doomed_node, hang_if_doomed

from openauc import evaluate
from openauc.executors import Work, ray_cluster
from openauc.shards import Shard, evaluate_shards, find_shards
from openauc.shards.paths import Outcome
from shards.test_evaluation import QUICK, all_of, samples

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def log(ray_home: Path) -> Path:
    folder = ray_home / "log"
    folder.mkdir()
    for i in range(8):
        samples(50, i).save(folder / f"{i}.parquet")
    return folder


class HangsOnTheDoomedNode:
    """Work that ends on no doomed node."""

    def __init__(self, work: Work) -> None:
        self.work = work

    def __call__(self, shard: Shard) -> Outcome:
        hang_if_doomed()
        outcome: Outcome = self.work(shard)
        return outcome


def dies(shard: Shard) -> Outcome:
    os._exit(3)


def test_a_node_killed_in_mid_run_costs_only_its_shards(cluster: Cluster, ray_home: Path, log: Path) -> None:
    extra, doomed = doomed_node(cluster, ray_home)
    read: list[str] = []

    def execute(work: Work, shards: Iterable[Shard]) -> Iterator[Outcome]:
        killed = False
        for outcome in ray_cluster()(HangsOnTheDoomedNode(work), shards):
            read.append(outcome.shard.path)
            yield outcome
            if not killed:
                assert doomed.with_suffix(".busy").exists()
                cluster.remove_node(extra, allow_graceful=False)
                killed = True

    found = evaluate_shards(find_shards(log), execute=execute, work=ray_home / "work", **QUICK)
    assert found.evaluation == evaluate(*all_of(log), **QUICK)
    assert sorted(read) == [shard.path for shard in find_shards(log)]


def test_a_shard_that_always_kills_its_worker_is_named(cluster: Cluster, log: Path) -> None:
    (outcome,) = ray_cluster()(dies, find_shards(log / "0.parquet"))
    assert outcome.shard.path.endswith("0.parquet")
    assert "WorkerCrashedError" in outcome.error
