"""Predictions in many files, or in files larger than memory: counted shard by shard, here or on many machines."""

from openauc.shards.evaluation import ShardedEvaluation, evaluate_shards
from openauc.shards.executors import here, processes, ray_tasks
from openauc.shards.paths import Shard, find_shards
from openauc.shards.plan import Plan

__all__ = ["Plan", "Shard", "ShardedEvaluation", "evaluate_shards", "find_shards", "here", "processes", "ray_tasks"]
