"""Many files, or files larger than memory: counted or mapped shard by shard, here or on many machines."""

from openauc.shards.evaluation import ShardedEvaluation, evaluate_shards
from openauc.shards.paths import Shard, find_shards
from openauc.shards.reading import Plan

__all__ = ["Plan", "Shard", "ShardedEvaluation", "evaluate_shards", "find_shards"]
