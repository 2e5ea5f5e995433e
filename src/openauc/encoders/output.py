"""From a source to a file of embeddings, a chunk at a time, so that a run that was stopped goes on where it was."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from openauc import __version__
from openauc._columns import import_pyarrow, write_columns
from openauc._files import atomic_write, write_text
from openauc._trial_files import refuse_other_run
from openauc.encoders.base import Encoder, Features
from openauc.encoders.inputs import EMBEDDING, Source

# What a stopped run loses at most: a few seconds of one core.
_CHUNK = {"text": 1024, "image": 256}
_CHUNKS_PER_ROW_GROUP = 16
_PLAN = "plan.json"


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


def parts_folder(out: Path) -> Path:
    """Where finished chunks wait for the others."""
    return out.with_name(f"{out.name}.parts")


def write_embeddings(
    source: Source, encoder: Encoder, out: Path, *, seen: Callable[[int, int], object] = lambda count, total: None
) -> None:
    """Embed every item of a source and write the embeddings beside its columns, all or nothing.

    Finished chunks are kept in ``OUT.parts`` until the end. If they are there already, and are of the same source and
    encoder, they are not computed again; the result is the same.

    Parameters
    ----------
    out
        ``.parquet``, with a column ``embedding`` of fixed-size lists, or ``.npz``, with an array (n, width).
    seen
        Told after each chunk how many items are done, of how many.
    """
    check_output(out)
    chunk, folder = _CHUNK[source.kind], parts_folder(out)
    _claim(folder, {**source.about, "rows": len(source), "chunk": chunk, **encoder.about})
    parts = [folder / f"{start:09d}.npy" for start in range(0, len(source), chunk)]
    done = next((i for i, part in enumerate(parts) if not part.is_file()), len(parts))
    items = source.items(done * chunk)
    for i, part in enumerate(parts[done:], done):
        seen(i * chunk, len(source))
        features = encoder(list(islice(items, chunk)))
        with atomic_write(part) as file:
            np.save(file, features)
    seen(len(source), len(source))
    if out.suffix.lower() == ".npz":
        embedding = np.concatenate([_read(part) for part in parts])
        write_columns(out, {**_arrays(source.columns), EMBEDDING: embedding})
    else:
        _write_parquet(source, encoder, parts, out)
    shutil.rmtree(folder)


def _claim(folder: Path, about: Mapping[str, Any]) -> None:
    """Make the folder of a run, or find that it is of the same run."""
    plan = folder / _PLAN
    if not plan.is_file():
        folder.mkdir(exist_ok=True)
        write_text(plan, json.dumps(about))
        return
    try:
        refuse_other_run(folder, json.loads(plan.read_text(encoding="utf-8")), about)
    except ValueError as error:
        raise ValueError(f"{error} Or remove {folder} to start again.") from None


def _read(part: Path) -> Features:
    features: Features = np.load(part, allow_pickle=False)
    return features


def _write_parquet(source: Source, encoder: Encoder, parts: Sequence[Path], out: Path) -> None:
    pyarrow, parquet = import_pyarrow()
    about = {"encoder": encoder.name, "width": str(encoder.width), "version": __version__}
    schema = source.columns.schema.append(pyarrow.field(EMBEDDING, pyarrow.list_(pyarrow.float32(), encoder.width)))
    schema = schema.with_metadata({f"openauc.{key}": value for key, value in about.items()})
    start = 0
    with (
        atomic_write(out) as file,
        parquet.ParquetWriter(file, schema, use_dictionary=source.columns.column_names) as writer,
    ):
        for first in range(0, len(parts), _CHUNKS_PER_ROW_GROUP):
            group = np.concatenate([_read(part) for part in parts[first : first + _CHUNKS_PER_ROW_GROUP]])
            rows = source.columns.slice(start, len(group))
            lists = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(group.ravel()), encoder.width)
            writer.write_table(pyarrow.table([*rows.columns, lists], schema=schema))
            start += len(group)


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
