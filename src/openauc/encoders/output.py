"""From a source to a file of embeddings, a chunk at a time, so that a run that was stopped goes on where it was."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from openauc import __version__
from openauc._columns import import_pyarrow, write_columns
from openauc._files import atomic_write
from openauc.encoders.base import CHUNK, Encoder, bad_images
from openauc.encoders.inputs import EMBEDDING, Source
from openauc.encoders.parts import Parts, claimed, item_key

_CHUNKS_PER_ROW_GROUP = 16


def check_output(out: Path) -> None:
    """Raise unless embeddings can be written to a file of that name, before hours went into them."""
    if out.suffix.lower() == ".csv":
        raise ValueError(
            f"{out}: as text, hundreds of numbers a row take several times the space and are slow to read; "
            "write .parquet or .npz."
        )
    if out.suffix.lower() not in (".parquet", ".npz"):
        raise ValueError(f"{out} has the suffix {out.suffix!r}; expected .parquet or .npz.")
    if not out.parent.is_dir():
        raise FileNotFoundError(f"cannot write {out}: the folder {out.parent} does not exist; create it first.")


def write_embeddings(
    source: Source,
    encoder: Encoder,
    out: Path,
    *,
    skip_bad: bool = False,
    seen: Callable[[int, int], object] = lambda count, total: None,
) -> list[str]:
    """Embed every item of a source and write the embeddings beside its columns, all or nothing.

    Finished features are kept in ``OUT.parts`` until the end, by their items. If they are there already, and are of the
    same encoder, they are not computed again, whatever items came or went; the result is the same.

    Parameters
    ----------
    out
        ``.parquet``, with a column ``embedding`` of fixed-size lists, or ``.npz``, with an array (n, width).
    skip_bad
        Leave out images that cannot be read, in place of an error at the first.
    seen
        Told after each chunk how many items are done, of how many.

    Returns
    -------
    skipped
        What is wrong with each row that was left out.
    """
    check_output(out)
    with claimed(out, encoder.about) as folder:
        parts = Parts(folder, encoder.width)
        keys, bad = _encode_all(source, encoder, parts, skip_bad, seen)
        good = [row for row, key in enumerate(keys) if key not in bad]
        if not good:
            raise ValueError(f"none of the {len(keys):,} images can be read; the first: {bad[keys[0]]}")
        columns = source.columns.take(good) if bad else source.columns
        kept = [keys[row] for row in good]
        if out.suffix.lower() == ".npz":
            write_columns(out, {**_arrays(columns), EMBEDDING: parts.take(kept)})
        else:
            _write_parquet(columns, encoder, parts, kept, out)
        parts.remove()
    return [*source.skipped, *(bad[key] for key in keys if key in bad)]


def _encode_all(
    source: Source, encoder: Encoder, parts: Parts, skip_bad: bool, seen: Callable[[int, int], object]
) -> tuple[list[bytes], dict[bytes, str]]:
    """The key of each item, whose features are now in ``parts``, or else what is wrong with it."""
    keys: list[bytes] = []
    bad: dict[bytes, str] = {}
    waiting: dict[bytes, Any] = {}

    def encode() -> None:
        if skip_bad and source.kind == "image":  # of texts, the source has left out the bad ones
            bad.update(_encode_good(encoder, waiting, parts))
        else:
            parts.add(list(waiting), encoder(list(waiting.values())))
        waiting.clear()

    seen(0, len(source))
    for item in source.items():
        key = item_key(item)
        keys.append(key)
        if key not in parts and key not in bad:
            waiting[key] = item
        if len(waiting) == CHUNK[source.kind]:
            encode()
            seen(len(keys), len(source))
    if waiting:
        encode()
    seen(len(source), len(source))
    return keys, bad


def _encode_good(encoder: Encoder, items: Mapping[bytes, Any], parts: Parts) -> dict[bytes, str]:
    """Add the features of all images that can be read; what is wrong with the others."""
    keys, bad = list(items), {}
    try:
        features = encoder(list(items.values()))
    except (ValueError, OSError):
        bad = {keys[row]: str(error) for row, error in bad_images(list(items.values()))}
        if not bad:
            raise
        keys = [key for key in keys if key not in bad]
        features = encoder([items[key] for key in keys])
    parts.add(keys, features)
    return bad


def _write_parquet(columns: Any, encoder: Encoder, parts: Parts, keys: Sequence[bytes], out: Path) -> None:
    pyarrow, parquet = import_pyarrow()
    about = {"encoder": encoder.name, "width": str(encoder.width), "version": __version__}
    schema = columns.schema.append(pyarrow.field(EMBEDDING, pyarrow.list_(pyarrow.float32(), encoder.width)))
    schema = schema.with_metadata({f"openauc.{key}": value for key, value in about.items()})
    group = _CHUNKS_PER_ROW_GROUP * CHUNK[encoder.kind]
    with (
        atomic_write(out) as file,
        parquet.ParquetWriter(file, schema, use_dictionary=columns.column_names) as writer,
    ):
        for start in range(0, len(keys), group):
            features = parts.take(keys[start : start + group])
            lists = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(features.ravel()), encoder.width)
            writer.write_table(pyarrow.table([*columns.slice(start, group).columns, lists], schema=schema))


def _arrays(columns: Any) -> dict[str, NDArray[Any]]:
    """Columns as numpy's .npz can hold them."""
    arrays = {}
    for name in columns.column_names:
        values = columns.column(name).to_numpy()
        if values.dtype == object:
            if not all(isinstance(value, str) for value in values):
                raise ValueError(f"column {name!r} holds more than text, or is empty in places; write .parquet.")
            values = values.astype(str)
        arrays[name] = values
    return arrays
