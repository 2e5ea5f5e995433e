"""Evaluation of samples that arrive in parts: shards, batches, streams."""

from openauc.streaming.accumulator import Accumulator
from openauc.streaming.keys import bin_of, key_score, score_key
from openauc.streaming.refinement import Refinement
from openauc.streaming.windows import Fading, Groups, Window

__all__ = ["Accumulator", "Fading", "Groups", "Refinement", "Window", "bin_of", "key_score", "score_key"]
