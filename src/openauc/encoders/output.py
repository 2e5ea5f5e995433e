"""From a source to a file of embeddings, a chunk at a time: a run that was stopped goes on where it was.

Finished features wait in ``OUT.parts``, an SQLite file, where they are found by the content of their items.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from openauc import __version__
from openauc._columns import arrow_array, import_pyarrow, write_columns
from openauc._files import atomic_write
from openauc.encoders.base import CHUNK, Encoder, Features, as_images
from openauc.encoders.inputs import EMBEDDING, Items

_CHUNKS_PER_ROW_GROUP = 16


def write_embeddings(
    items: Items,
    encoder: Encoder,
    out: Path,
    *,
    skip_bad: bool = False,
    on_progress: Callable[[int, int], object] = lambda count, total: None,
) -> list[str]:
    """Embed every item and write the embeddings beside the columns, all or nothing.

    Features that an earlier run with the same encoder left in ``OUT.parts`` are not computed again. With ``skip_bad``,
    images that cannot be read are left out; returns what is wrong with each row that was left out.
    """
    with open_finished(out, encoder) as finished:
        columns, keys, skipped = _encode_all(items, encoder, finished, skip_bad, on_progress)
        if not keys:
            raise ValueError(f"none of the {len(items):,} images can be read; the first: {skipped[-len(items)]}")
        if out.suffix.lower() == ".npz":
            write_columns(out, {**_arrays(columns), EMBEDDING: finished.take(keys)})
        else:
            _write_parquet(columns, encoder, finished, keys, out)
        finished.keys.clear()
    return skipped


def embed_table(items: Items, encoder: Encoder, *, skip_bad: bool = False) -> tuple[Any, list[str]]:
    """The columns of items beside their embeddings, and what is wrong with each row that was left out."""
    with closing(sqlite3.connect(":memory:")) as database:
        _create(database, about="")
        finished = Finished(database, encoder.width)
        columns, keys, skipped = _encode_all(items, encoder, finished, skip_bad, lambda count, total: None)
        return with_embeddings(columns, finished.take(keys)), skipped


def with_embeddings(columns: Any, features: Features) -> Any:
    """An Arrow table with one more column."""
    return columns.append_column(EMBEDDING, arrow_array(features))


def about_embeddings(encoder: str, width: int) -> dict[str, str]:
    """Metadata of a Parquet file of embeddings."""
    return {"encoder": encoder, "width": str(width), "version": __version__}


def _encode_all(
    items: Items, encoder: Encoder, finished: Finished, skip_bad: bool, on_progress: Callable[[int, int], object]
) -> tuple[Any, list[bytes], list[str]]:
    """Columns and keys of the items whose features are in ``finished`` now, and what is wrong with the others."""
    keys: list[bytes] = []
    bad: dict[bytes, str] = {}
    waiting: dict[bytes, Any] = {}

    def encode() -> None:
        try:
            finished.add(list(waiting), encoder(list(waiting.values())))
        except (ValueError, OSError):
            found = _bad_images(waiting) if skip_bad and items.kind == "image" else {}
            if not found:
                raise
            bad.update(found)
            for key in found:
                del waiting[key]
            encode()
        waiting.clear()

    on_progress(0, len(items))
    for item in items.read():
        keys.append(key := item_key(item))
        if key not in finished.keys and key not in bad:
            waiting[key] = item
        if len(waiting) == CHUNK[items.kind]:
            encode()
            on_progress(len(keys), len(items))
    if waiting:
        encode()
    on_progress(len(items), len(items))
    skipped = [*items.skipped, *(bad[key] for key in keys if key in bad)]
    if not bad:
        return items.columns, keys, skipped
    good = [key not in bad for key in keys]
    return items.columns.filter(good), list(compress(keys, good)), skipped


def _bad_images(images: Mapping[bytes, Any]) -> dict[bytes, str]:
    bad = {}
    for key, image in images.items():
        try:
            as_images([image])
        except (ValueError, OSError) as error:
            bad[key] = str(error)
    return bad


def item_key(item: Any) -> bytes:
    """A hash of the content of an item; for an image file, of its path, size and time."""
    if isinstance(item, str):
        content = item.encode(errors="surrogatepass")
    elif isinstance(item, np.ndarray):
        content = item.tobytes()
    elif item.content is not None:
        content = item.content or str(item).encode()  # empty ones are bad, each with its own row
    else:
        state = item.file.stat() if item.file.is_file() else None
        content = repr((str(item.file.resolve()), state and (state.st_size, state.st_mtime_ns))).encode()
    return hashlib.blake2b(content, digest_size=16).digest()


def parts_file(out: Path) -> Path:
    return out.with_name(f"{out.name}.parts")


class Finished:
    """Features in a table of SQLite, found by the keys of their items."""

    def __init__(self, database: sqlite3.Connection, width: int) -> None:
        self._database, self._width = database, width
        self.keys = {key for (key,) in database.execute("SELECT key FROM features")}

    def add(self, keys: Sequence[bytes], features: Features) -> None:
        """Add the features of items that are not here yet, all or nothing."""
        with self._database:
            rows = zip(keys, map(np.ndarray.tobytes, features), strict=True)
            self._database.executemany("INSERT INTO features VALUES (?, ?)", rows)
        self.keys.update(keys)

    def take(self, keys: Sequence[bytes]) -> Features:
        """Features (n, width) of items, in their order."""
        found = (self._database.execute("SELECT value FROM features WHERE key = ?", [key]).fetchone() for key in keys)
        return np.frombuffer(b"".join(value for (value,) in found), np.float32).reshape(-1, self._width)


@contextmanager
def open_finished(out: Path, encoder: Encoder) -> Iterator[Finished]:
    """The features finished before, by the same encoder; other runs are locked out. A file without any is removed."""
    file, about = parts_file(out), json.dumps(encoder.about)
    try:
        with closing(sqlite3.connect(file, timeout=0)) as database:
            database.execute("PRAGMA locking_mode = EXCLUSIVE")  # until it is closed
            database.execute("BEGIN EXCLUSIVE")
            if database.execute("SELECT name FROM sqlite_master").fetchone() is None:
                _create(database, about)
            database.commit()
            # A file that is not ours has no such table.
            (before,) = database.execute("SELECT json FROM about").fetchone()
            if before != about:
                remedy = "Repeat the command that made it, or remove it to start again."
                raise ValueError(f"{file} holds features of another encoder: it was {before}, now {about}. {remedy}")
            finished = Finished(database, encoder.width)
            try:
                yield finished
            finally:
                if not finished.keys:
                    file.unlink()
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY:
            raise ValueError(f"another run is writing {out}; wait until it ends, or write to another file.") from None
        reason = f"would keep finished features, but cannot be used ({error})"
        raise ValueError(f"{file} {reason}; move it away, or write to another file.") from None


def _create(database: sqlite3.Connection, about: str) -> None:
    database.execute("CREATE TABLE features (key BLOB PRIMARY KEY, value BLOB)")
    database.execute("CREATE TABLE about (json TEXT)")
    database.execute("INSERT INTO about VALUES (?)", [about])


def _write_parquet(columns: Any, encoder: Encoder, finished: Finished, keys: Sequence[bytes], out: Path) -> None:
    pyarrow, parquet = import_pyarrow()
    schema = columns.schema.append(pyarrow.field(EMBEDDING, pyarrow.list_(pyarrow.float32(), encoder.width)))
    about = about_embeddings(encoder.name, encoder.width)
    schema = schema.with_metadata({f"openauc.{key}": text for key, text in about.items()})
    group = _CHUNKS_PER_ROW_GROUP * CHUNK[encoder.kind]
    with atomic_write(out) as file, parquet.ParquetWriter(file, schema, use_dictionary=columns.column_names) as writer:
        for start in range(0, len(keys), group):
            features = finished.take(keys[start : start + group])
            part = with_embeddings(columns.slice(start, group), features)
            writer.write_table(part.replace_schema_metadata(schema.metadata))


def _arrays(columns: Any) -> dict[str, NDArray[Any]]:
    """Columns in a form that numpy's .npz can hold."""
    arrays = {}
    for name in columns.column_names:
        values = columns.column(name).to_numpy()
        if values.dtype == object:
            if not all(isinstance(value, str) for value in values):
                raise ValueError(f"column {name!r} holds more than text, or is empty in places; write .parquet.")
            values = values.astype(str)
        arrays[name] = values
    return arrays
