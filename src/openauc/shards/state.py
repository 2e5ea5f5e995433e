"""The file of counts of a shard, and how counts of many shards become one."""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import reduce
from pathlib import Path

from openauc._files import PathLike, atomic_write, parse_json
from openauc.shards.paths import Shard
from openauc.shards.plan import Plan
from openauc.streaming import Accumulator

Slice = tuple[str, ...]
"""A value for each column of slices."""

ALL: Slice = ()
"""All slices together; the only one, where there is no column of slices."""

CACHE = "OPENAUC_CACHE"
"""Environment variable: folder for what can be made again; else ``~/.cache/openauc``."""

_VERSION = 1
_INDEX = "slices.json"


class WorkFolder:
    """The files of counts of finished shards: whoever starts again, after whatever end, goes on from there.

    Parameters
    ----------
    folder
        Where to keep them, for good: shards that are there already, under the same plan, are not counted again. None
        for one in the cache that belongs to this list of shards and goes when all is done.
    """

    def __init__(self, folder: PathLike | None, plan: Plan, shards: Sequence[Shard]) -> None:
        self._names = {shard: _state_name(shard, plan) for shard in shards}
        self.kept = folder is not None
        self.path = _cached("".join(self._names.values())) if folder is None else Path(folder)
        self.path.mkdir(parents=True, exist_ok=True)

    def file(self, shard: Shard) -> Path:
        """Where the counts of a shard are, or will be."""
        return self.path / self._names[shard]

    def write(self, shard: Shard, content: bytes) -> None:
        """Keep the counts of a shard, all or nothing."""
        with atomic_write(self.file(shard)) as file:
            file.write(content)

    def write_totals(self, shards: Sequence[Shard], passes: int, totals: Mapping[Slice, Accumulator]) -> None:
        """Note what so many passes over these shards found, for who starts again before the next is done."""
        with atomic_write(self._totals(shards, passes)) as file:
            file.write(pack(totals))
        self._totals(shards, passes - 1).unlink(missing_ok=True)

    def read_totals(self, shards: Sequence[Shard], most: int) -> tuple[int, dict[Slice, Accumulator]] | None:
        """The number of passes, at most ``most``, and what they found; None if that was not noted, or is damaged."""
        for passes in range(most, 1, -1):
            with suppress(ValueError, OSError):
                return passes, dict(unpack(self._totals(shards, passes)))
        return None

    def _totals(self, shards: Sequence[Shard], passes: int | str) -> Path:
        return self.path / f"{_short_hash(''.join(self._names[shard] for shard in shards))}-{passes}.zip"

    def finish(self, shards: Sequence[Shard]) -> None:
        """Remove what nobody asked to keep, and what passes over these shards left for the next one."""
        for file in self.path.glob(self._totals(shards, "*").name):
            file.unlink(missing_ok=True)
        if self.kept:
            return
        for shard in self._names:
            self.file(shard).unlink(missing_ok=True)
        with suppress(OSError):  # somebody else keeps something there
            self.path.rmdir()


def _state_name(shard: Shard, plan: Plan) -> str:
    """Another name if the shard, the plan or the format is another."""
    return f"{_short_hash(f'{_VERSION} {shard.id} {plan}')}.zip"


def _cached(key: str) -> Path:
    cache = Path(os.environ.get(CACHE) or Path.home() / ".cache" / "openauc")
    return cache / "shards" / _short_hash(key)


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def pack(counts: Mapping[Slice, Accumulator]) -> bytes:
    """The content of a file of counts: an archive of the files of accumulators, and which slice each is."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(_INDEX, json.dumps(list(counts)))
        for number, accumulator in enumerate(counts.values()):
            with archive.open(f"{number}.npz", "w") as file:
                accumulator.save(file)
    return content.getvalue()


def unpack(path: PathLike) -> Iterator[tuple[Slice, Accumulator]]:
    """What ``pack`` wrote; a file that is damaged is a ValueError."""
    try:
        with zipfile.ZipFile(path) as archive:
            for number, key in enumerate(parse_json(archive.read(_INDEX))):
                yield tuple(key), Accumulator.load(io.BytesIO(archive.read(f"{number}.npz")))
    except (zipfile.BadZipFile, KeyError, EOFError, TypeError) as error:
        raise ValueError(f"{path} is damaged ({error}); remove it, and its shard is counted again.") from None


class MergeTree:
    """Accumulators to be merged, of which each weighs more than twice the next: few merges, and few at a time."""

    def __init__(self) -> None:
        self._parts: list[Accumulator] = []

    def add(self, part: Accumulator) -> None:
        while self._parts and self._parts[-1].nbytes <= 2 * part.nbytes:
            part = self._parts.pop().merge(part)
        self._parts.append(part)

    def total(self) -> Accumulator:
        """All of them as one; there must be some."""
        return reduce(Accumulator.merge, reversed(self._parts))
