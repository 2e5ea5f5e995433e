"""Counting the samples of a shard by slice; and the files of these counts."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from openauc._files import PathLike, atomic_write, cache_folder
from openauc.predictions import MissingColumns, Predictions
from openauc.shards.paths import Outcome, Shard
from openauc.shards.reading import Batch, Plan, Slice, read_batches
from openauc.streaming import Accumulator
from openauc.streaming.accumulator import load_all, save_all

MOST_SLICES = 10_000  # more are refused as a mistake, such as slicing by the number of the sample

_VERSION = 2


@dataclass(frozen=True)
class Counting:
    """Counts the samples of a shard; the result is the content of a file of counts.

    It depends on nothing but the shard and changes nothing, so it may be done twice, on any machine. A shard that
    cannot be read, or lacks what is needed, is an outcome with an error.
    """

    plan: Plan
    on_progress: Callable[[int], None] | None = None
    """Called with the number of bytes done, where the shard is read in the calling process."""

    def __call__(self, shard: Shard) -> Outcome:
        counts: dict[Slice, Accumulator] = {}
        try:
            for key, part in self._parts(shard):
                if key not in counts:
                    counts[key] = self.plan.accumulator()
                    check_number(len(counts), self.plan)
                counts[key].update(*part)
            if shard.has_changed():
                raise ValueError(f"{shard.path} changed while it was read; start again when nobody writes to it.")
        except (ValueError, TypeError, OSError) as error:
            return shard.failed(str(error))
        return Outcome(shard, save_all(counts))

    def _parts(self, shard: Shard) -> Iterator[tuple[Slice, Predictions]]:
        """The samples of a shard, by batch and slice."""
        done, row = 0.0, 0
        for batch in read_batches(shard, self.plan):
            try:
                predictions = self.plan.predictions(batch.columns, shard.path)
                yield from _by_slice(batch, predictions)
            except MissingColumns:
                raise
            except (ValueError, TypeError) as error:
                raise type(error)(f"{shard.path}, in the rows from {row:,} on: {error}") from None
            done, row = done + batch.share, row + len(predictions.y_true)
            if self.on_progress is not None:
                self.on_progress(int(done * shard.size))


def check_number(slices: int, plan: Plan) -> None:
    if slices > MOST_SLICES:
        by = " and ".join(map(repr, plan.by))
        raise ValueError(f"by {by} there are more than {MOST_SLICES:,} slices; expected a column such as the day.")


def _by_slice(batch: Batch, predictions: Predictions) -> Iterator[tuple[Slice, Predictions]]:
    if len(predictions.y_true) == 0:
        return
    if not batch.slices:
        yield (), predictions
        return
    codes = [np.broadcast_to(column.code, len(predictions.y_true)) for column in batch.slices]
    cell = np.ravel_multi_index(codes, [len(column.names) for column in batch.slices])
    order = np.argsort(cell, kind="stable")
    start = np.flatnonzero(np.diff(cell[order], prepend=-1))
    parts = zip(*(np.split(column[order], start[1:]) for column in predictions), strict=True)
    for sample, part in zip(order[start].tolist(), parts, strict=True):
        yield tuple(c.names[code[sample]] for c, code in zip(batch.slices, codes, strict=True)), Predictions(*part)


class WorkFolder:
    """The files of counts of finished shards, from which an evaluation that was stopped goes on.

    Parameters
    ----------
    folder
        Where to keep them for good: shards counted there under the same plan are not counted again. None for a folder
        in the cache that belongs to this list of shards and is removed in the end.
    """

    def __init__(self, folder: PathLike | None, plan: Plan, shards: Sequence[Shard]) -> None:
        # The name changes with the shard, the plan and the format.
        self._names = {shard: f"{_short_hash(f'{_VERSION} {tuple(shard)} {plan}')}.npz" for shard in shards}
        self.kept = folder is not None
        own = cache_folder("shards") / _short_hash("".join(self._names.values()))
        self.path = own if folder is None else Path(folder)
        self.path.mkdir(parents=True, exist_ok=True)

    def file(self, shard: Shard) -> Path:
        """The file of the counts of a shard, which may not exist yet."""
        return self.path / self._names[shard]

    def write(self, shard: Shard, content: bytes) -> None:
        with atomic_write(self.file(shard)) as file:
            file.write(content)

    def read(self, shard: Shard) -> Mapping[Slice, Accumulator]:
        """The counts of a shard, by slice; a file that is damaged is a ValueError."""
        return {tuple(key): part for key, part in load_all(self.file(shard))}

    def finish(self) -> None:
        if self.kept:
            return
        for shard in self._names:
            self.file(shard).unlink(missing_ok=True)
        with suppress(OSError):  # it holds other files
            self.path.rmdir()


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:20]
