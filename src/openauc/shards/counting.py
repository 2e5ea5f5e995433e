"""What is done with a shard: its samples are counted by slice, and in further passes looked at again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from openauc.predictions import MissingColumns, Predictions
from openauc.shards.paths import Shard
from openauc.shards.plan import Plan
from openauc.shards.reading import Batch, read_batches
from openauc.shards.state import ALL, Slice, pack
from openauc.streaming import Accumulator
from openauc.streaming.gathering import Gathering, Seen

MOST_SLICES = 10_000
"""More are taken for a mistake, such as the number of a sample as column of slices."""


class Outcome(NamedTuple):
    """What came of a shard, or why nothing did."""

    shard: Shard
    result: Any
    error: str = ""


Tell = Callable[[float], None]
Work = Callable[[Shard, Tell | None], Outcome]
"""A pass over a shard, told where to tell how much of it is done.

It depends on nothing but the shard and changes nothing, so it may be done twice, anywhere. A shard that cannot be read,
or does not hold what is asked for, is an outcome too.
"""


@dataclass(frozen=True)
class Counting:
    """The first pass: its result is the content of a file of counts."""

    plan: Plan

    def __call__(self, shard: Shard, tell: Tell | None = None) -> Outcome:
        def work() -> bytes:
            counts: dict[Slice, Accumulator] = {}
            for key, part in _parts(shard, self.plan, tell):
                if key not in counts:
                    counts[key] = self.plan.accumulator()
                    check_number(len(counts), self.plan)
                counts[key].update(*part)
            return pack(counts)

        return _attempt(work, shard)


@dataclass(frozen=True)
class Refining:
    """A further pass: its result is what was seen of each slice of the shard, and of all of them."""

    plan: Plan
    gatherings: Mapping[Slice, Gathering]
    """Of the samples of all shards, by slice; they have seen none yet."""

    def __call__(self, shard: Shard, tell: Tell | None = None) -> Outcome:
        def work() -> dict[Slice, Seen]:
            found: dict[Slice, Gathering] = {}
            for key, part in _parts(shard, self.plan, tell):
                for name in {key, ALL} & self.gatherings.keys():
                    if name not in found:
                        found[name] = self.gatherings[name].fresh()
                    found[name].update(*part)
            return {name: one.seen() for name, one in found.items()}

        return _attempt(work, shard)


def _attempt(work: Callable[[], Any], shard: Shard) -> Outcome:
    try:
        result = work()
        if shard.has_changed():
            raise ValueError(f"{shard.path} changed while it was read; start again when nobody writes to it.")
    except (ValueError, TypeError, OSError) as error:
        reason = str(error)
        return Outcome(shard, None, reason if shard.path in reason else f"{shard.path}: {reason}")
    return Outcome(shard, result)


def check_number(slices: int, plan: Plan) -> None:
    """Refuse slices that are no slices."""
    if slices > MOST_SLICES:
        raise ValueError(
            f"by {' and '.join(map(repr, plan.by))} there are more than {MOST_SLICES:,} slices; expected a column "
            "such as the day, the camera or the customer."
        )


def _parts(shard: Shard, plan: Plan, tell: Tell | None) -> Iterator[tuple[Slice, Predictions]]:
    """The samples of a shard, by batch and slice."""
    done, row = 0.0, 0
    for batch in read_batches(shard, plan):
        try:
            predictions = plan.predictions(batch.columns, shard.path)
            yield from _by_slice(batch, predictions)
        except MissingColumns:
            raise
        except (ValueError, TypeError) as error:
            raise type(error)(f"{shard.path}, in the rows from {row:,} on: {error}") from None
        done, row = done + batch.share, row + len(predictions.y_true)
        if tell is not None:
            tell(done)


def _by_slice(batch: Batch, predictions: Predictions) -> Iterator[tuple[Slice, Predictions]]:
    if len(predictions.y_true) == 0:
        return
    varying = [(codes.code, len(codes.names)) for codes in batch.slices if codes.code is not None]
    if not varying:
        yield tuple(codes.names[0] for codes in batch.slices), predictions
        return
    codes, sizes = zip(*varying, strict=True)
    cell = np.ravel_multi_index(codes, sizes)
    order = np.argsort(cell, kind="stable")
    start = np.flatnonzero(np.diff(cell[order], prepend=-1))
    parts = zip(*(np.split(column[order], start[1:]) for column in predictions), strict=True)
    for sample, part in zip(order[start].tolist(), parts, strict=True):
        yield tuple(codes.name(sample) for codes in batch.slices), Predictions(*part)
