"""A file of results for each shard: made shard by shard, here, in processes or on a cluster."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol

from openauc._columns import import_pyarrow
from openauc._files import PathLike, atomic_write
from openauc.executors import Execute, in_process
from openauc.shards.paths import Outcome, Shard, as_local, file_system, find_shards, is_url, root_of

MOST_BAD = 10  # bad shards before a run gives up, unless they are to be skipped
MOST_SAID = 10  # rows left out that are named, for each shard

_RECORD = b"openauc.shard"  # key in the metadata of a file of results
_VERSION = 1


class Piece(NamedTuple):
    """Results of some rows of a shard."""

    table: Any
    """An Arrow table; all of a shard have the same columns."""
    share: float
    """The share of the shard's rows that were read for it."""
    unknown: int = 0
    """How many of its rows are unknown."""
    left_out: Sequence[str] = ()
    """What is wrong with each row that was read and left out."""


class Step(Protocol):
    """What is done with each shard. It is sent to other processes and machines, where it reads what it needs."""

    kind: str
    """What it makes, in the plural, such as "decisions"."""

    def fingerprint(self) -> str:
        """A text that differs for steps with other results."""

    def about(self, schema: Any) -> Mapping[str, str]:
        """Metadata of a file whose columns are those of an Arrow schema."""

    def __call__(self, shard: Shard) -> Iterator[Piece]:
        """The results of a shard, at least one piece."""


class Done(NamedTuple):
    """What was found in a shard."""

    rows: int = 0
    unknown: int = 0
    left_out: int = 0
    said: tuple[str, ...] = ()
    """Warnings, and the first rows that were left out."""


class Record(NamedTuple):
    """What a file was made of, as its metadata says."""

    kind: str
    step: str
    path: str
    size: int
    version: str

    @property
    def content(self) -> tuple[str, str, int, str]:
        """Equal for files with equal results; a folder of shards may have moved."""
        return self.kind, self.step, self.size, self.version


class BadShard(Exception):
    """A shard could not be read, or its rows not be used."""


@dataclass(frozen=True)
class Making:
    """Makes the file of a shard; done twice, it makes the same file again."""

    step: Step
    root: str
    out: str
    on_progress: Callable[[int], None] | None = None
    """Called with the number of bytes done, where the shard is read in the calling process."""

    def target(self, shard: Shard) -> str:
        """The file of a shard: its name, and the folders it is in below the root."""
        return f"{self.out}/{shard.path.removeprefix(self.root).strip('/').rpartition('.')[0]}.parquet"

    def record(self, shard: Shard) -> Record:
        step = hashlib.sha256(f"{_VERSION} {self.step.fingerprint()}".encode()).hexdigest()[:20]
        return Record(self.step.kind, step, *shard)

    def __call__(self, shard: Shard) -> Outcome:
        """What was found; the error of a bad shard; or, as result, an error that all shards would meet."""
        try:
            with warnings.catch_warnings(record=True) as caught:
                done = self._make(shard)
        except BadShard as error:
            return shard.failed(str(error))
        except (OSError, ImportError) as error:
            return Outcome(shard, error, str(error))
        said = dict.fromkeys(f"warning: {warning.message}" for warning in caught)
        return Outcome(shard, done._replace(said=(*said, *done.said)))

    def _make(self, shard: Shard) -> Done:
        _, parquet = import_pyarrow()
        pieces = self._pieces(shard)
        first = next(pieces)
        about: dict[str | bytes, str] = {_RECORD: json.dumps(self.record(shard))}
        about |= {f"openauc.{key}": text for key, text in self.step.about(first.table.schema).items()}
        schema = first.table.schema.with_metadata(about)
        plain = [column.name for column in schema if column.type.num_fields == 0]
        rows, unknown, left_out, share = 0, 0, 0, 0.0
        said: list[str] = []
        with (
            whole_file(self.target(shard)) as file,
            parquet.ParquetWriter(file, schema, use_dictionary=plain) as writer,
        ):
            for piece in chain([first], pieces):
                table = piece.table.replace_schema_metadata(schema.metadata)
                writer.write_table(table if table.schema == schema else table.cast(schema))
                rows, unknown = rows + table.num_rows, unknown + piece.unknown
                left_out, share = left_out + len(piece.left_out), share + piece.share
                said += [f"skipped: {reason}" for reason in piece.left_out[: MOST_SAID - len(said)]]
                if self.on_progress is not None:
                    self.on_progress(int(share * shard.size))
        if left_out > len(said):
            said.append(f"skipped: {left_out - len(said):,} more rows of {shard.path}")
        return Done(rows, unknown, left_out, tuple(said))

    def _pieces(self, shard: Shard) -> Iterator[Piece]:
        """What the step makes; its errors are those of the shard."""
        try:
            yield from self.step(shard)
            if shard.has_changed():
                raise ValueError(f"{shard.path} changed while it was read; start again when nobody writes to it.")
        except (ValueError, TypeError, OSError) as error:
            raise BadShard(str(error).replace(str(Path(shard.path)), shard.path)) from error


@dataclass
class Made:
    """Result of :func:`map_shards`."""

    n_shards: int
    """How many shards there are."""
    n_there: int = 0
    """Of how many the file was there already."""
    n_done: int = 0
    """How many were done now."""
    n_again: int = 0
    """How many of these had a file, made of another content or by another step."""
    rows: int = 0
    """Rows of the files that were made now."""
    unknown: int = 0
    left_out: int = 0
    skipped: dict[str, str] = field(default_factory=dict)
    """Shards that were left out, and why."""

    def add(self, done: Done) -> None:
        """Count one more shard."""
        self.n_done += 1
        self.rows += done.rows
        self.unknown += done.unknown
        self.left_out += done.left_out


def map_shards(
    source: PathLike,
    step: Step,
    out: PathLike,
    *,
    execute: Execute = in_process,
    skip_bad: bool = False,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
    say: Callable[[str], None] = lambda line: None,
) -> Made:
    """Write a Parquet file of results for each shard that has none yet.

    The metadata of a file says which step made it of which shard, so that a shard is done again if it has changed, or
    the step has. A bad shard, or one whose process died, does not stop the others; in the end it is an error.

    Parameters
    ----------
    source
        A pattern such as ``"log/*.parquet"``, or a URL.
    step
        What is done with each shard.
    out
        Folder to write to, also as a URL. Below it lie the folders that shards are in, from the first wildcard on.
    execute
        Where to work. All machines need to find shards, folder and what the step reads under the same names.
    skip_bad
        Leave out bad shards.
    on_progress
        Called with the number of bytes done and the number of all bytes.
    say
        Called with a line about each bad shard, each warning, and rows that were left out.
    """
    source, out = as_local(source), as_local(out).rstrip("/")
    out = out if is_url(out) else os.path.abspath(out)
    total = 0
    left: dict[str, Shard] = {}

    def report(part: int = 0) -> None:
        on_progress(total - sum(shard.size for shard in left.values()) + part, total)

    make = Making(step, root_of(source), out, report if execute is in_process else None)
    shards = _outside(out, find_shards(source))
    _refuse_twins(shards, make)
    made, total = Made(len(shards)), sum(shard.size for shard in shards)
    before = {shard.path: _read_record(make.target(shard), make.record(shard)) for shard in shards}
    for shard in shards:
        found = before[shard.path]
        if found is None or found.content != make.record(shard).content:
            left[shard.path] = shard
    made.n_there = len(shards) - len(left)
    report()
    for outcome in execute(make, list(left.values())):
        shard = outcome.shard
        if left.pop(shard.path, None) is None:  # it arrived before
            continue
        if isinstance(outcome.result, Exception):
            raise outcome.result
        if outcome.error:
            made.skipped[shard.path] = outcome.error
            say(f"{'skipped' if skip_bad else 'failed'}: {outcome.error}")
            if len(made.skipped) == MOST_BAD and not skip_bad:
                break
        else:
            made.n_again += before[shard.path] is not None
            made.add(outcome.result)
            for line in outcome.result.said:
                say(line)
            if not _exists(make.target(shard)):
                elsewhere = f"{make.target(shard)} was written on another machine, and is not to be seen here"
                raise ValueError(f"{elsewhere}; name a folder that all machines share, or a URL.")
        report()
    bad = len(made.skipped)
    if bad and (not skip_bad or bad == len(shards)):
        said = f"{bad:,} of {len(shards):,} shards could not be done; the first: {next(iter(made.skipped.values()))}"
        there = f"{made.n_done + made.n_there:,} are in {out}"
        raise ValueError(f"{said} {there}, and need not be done again. With skip_bad such shards are left out.")
    return made


def _outside(out: str, shards: list[Shard]) -> list[Shard]:
    """The shards without the results that lie in the output folder; a shard there is refused."""
    found = []
    for shard in shards:
        if not f"{_real(shard.path)}/".startswith(f"{_real(out)}/"):
            found.append(shard)
        elif _about(shard.path).get(_RECORD) is None:
            raise ValueError(f"{shard.path} is an input, and lies in the output folder {out}; name another folder.")
    if not found:
        raise FileNotFoundError(f"there are no shards but the results in {out}.")
    return found


def _refuse_twins(shards: Sequence[Shard], make: Making) -> None:
    first: dict[str, Shard] = {}
    for shard in shards:
        if (other := first.setdefault(make.target(shard), shard)) is not shard:
            both = f"{other.path} and {shard.path} would both be written to {make.target(shard)}"
            raise ValueError(f"{both}; name one of them in the pattern, such as '*.parquet', or rename one.")


def _read_record(target: str, expected: Record) -> Record | None:
    """What the file of a shard was made of; None if there is none. A file of another origin is refused."""
    if not _exists(target):
        return None
    text = _about(target).get(_RECORD)
    if text is None:
        raise ValueError(f"cannot write {target}: it is there, and was not made of a shard; name another folder.")
    found = Record(*json.loads(text))
    if found.kind != expected.kind:
        raise ValueError(f"cannot write {target}: it holds {found.kind}, not {expected.kind}; name another folder.")
    if found.path != expected.path and found.content != expected.content:
        raise ValueError(f"cannot write {target}: it was made of {found.path}; name a folder for these shards.")
    return found


def _about(path: str) -> Mapping[bytes, bytes]:
    """Metadata of a Parquet file; none for other files, and for those that cannot be read."""
    pyarrow, parquet = import_pyarrow()
    try:
        with Shard(path, 0, "").opened() as file:
            return parquet.read_schema(file).metadata or {}
    except (pyarrow.ArrowException, OSError):
        return {}


def _exists(path: str) -> bool:
    if not is_url(path):
        return os.path.exists(path)
    system, name = file_system(path)
    return bool(system.exists(name))


def _real(path: str) -> str:
    return path if is_url(path) else os.path.realpath(path)


@contextmanager
def whole_file(path: str) -> Iterator[BinaryIO]:
    """A file that is there when the block has ended, and not before; folders are made."""
    if not is_url(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with atomic_write(path) as file:
            yield file
        return
    system, name = file_system(path)
    with tempfile.TemporaryDirectory() as folder:
        copy = os.path.join(folder, "copy.parquet")
        with open(copy, "wb") as file:
            yield file
        system.makedirs(name.rpartition("/")[0], exist_ok=True)
        system.put_file(copy, name)
