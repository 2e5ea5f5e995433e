"""Evaluation of samples that arrive in parts: shards, batches, streams."""

from openauc.streaming.accumulator import Accumulator
from openauc.streaming.rows import bin_of, key_score, score_key

__all__ = ["Accumulator", "bin_of", "key_score", "score_key"]
