"""The columns of a shard, in batches of a size that does not depend on the shard's."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from openauc import _validation as check
from openauc._columns import Columns, arrow_columns, import_pyarrow, read_columns, suffix_of, unreadable_parquet
from openauc.shards.paths import Shard
from openauc.shards.plan import Plan

BATCH_ROWS = 1 << 18
"""Samples of a Parquet file that are in memory at a time; CSV and npz files are read whole."""

MISSING = "(missing)"
"""The slice of samples without a value."""


class Codes(NamedTuple):
    """A column as text: sample i has ``names[code[i]]``; where ``code`` is None, all have the only name."""

    names: list[str]
    code: NDArray[np.int64] | None

    def name(self, sample: int) -> str:
        return self.names[0 if self.code is None else int(self.code[sample])]


class Batch(NamedTuple):
    """Some rows of a shard."""

    columns: Columns
    slices: list[Codes]
    """One for each column of slices."""
    share: float
    """How much of the shard they are."""


def read_batches(shard: Shard, plan: Plan) -> Iterator[Batch]:
    """The rows of a shard, with the columns that ``plan`` needs; slices may also be told by folders, ``day=31/``.

    An empty file has one batch, because it must have the right columns too.
    """
    if suffix_of(shard.path) == ".parquet":
        yield from _parquet(shard, plan)
        return
    with shard.copied() as path:
        try:
            columns = read_columns(path)
            slices = [_slices(columns, name, shard) for name in plan.by]
            if shard.path.lower().endswith(".csv"):
                columns = _named(columns, plan)
        except (ValueError, OSError) as error:
            raise ValueError(str(error).replace(str(path), shard.path)) from None
        yield Batch(columns, slices, 1.0)


def _named(columns: Columns, plan: Plan) -> Columns:
    """Cells of a CSV file have no type: where the unknown label is a name, classes 0, 1, 2 are names as well."""
    if not isinstance(plan.unknown_label, str):
        return columns
    found = {name: columns[name] for name in plan.needed(list(columns))}
    labels = {name: found[name] for name in (plan.label_column, plan.pred_column) if name in found}
    return found | {name: check.as_text(part) for name, part in labels.items() if part.dtype.kind == "i"}


def _slices(columns: Columns, name: str, shard: Shard) -> Codes:
    if name not in columns:
        return _of_folder(shard, name, columns)
    names, code = np.unique(columns[name], return_inverse=True)
    return Codes([str(value) for value in names.tolist()], code)


def _of_folder(shard: Shard, name: str, columns: Collection[str]) -> Codes:
    if name not in shard.partition:
        raise ValueError(f"{shard.path} has no column {name!r} to slice by; it has {', '.join(map(repr, columns))}.")
    return Codes([shard.partition[name]], None)


def _parquet(shard: Shard, plan: Plan) -> Iterator[Batch]:
    pyarrow, parquet = import_pyarrow()
    with shard.opened() as source:
        try:
            footer = parquet.ParquetFile(source)
            schema, total = footer.schema_arrow, footer.metadata.num_rows
            folders = {name: _of_folder(shard, name, schema.names) for name in plan.by if name not in schema.names}
            needed = plan.needed(schema.names)
            # Names are read as numbers of names, which is faster; columns of numbers take no notice.
            labels = [name for name in (plan.label_column, plan.pred_column) if name in schema.names]
            file = parquet.ParquetFile(
                source, metadata=footer.metadata, read_dictionary=labels, page_checksum_verification=True
            )
            wanted = dict.fromkeys([*needed, *(name for name in plan.by if name not in folders)])
            batches = file.iter_batches(BATCH_ROWS, columns=[*wanted])
            for batch in batches if total else [pyarrow.RecordBatch.from_pylist([], schema=schema)]:
                slices = [folders.get(name) or _arrow_codes(batch.column(name)) for name in plan.by]
                columns = _arrow_columns(pyarrow, batch.select(needed), shard)
                yield Batch(columns, slices, batch.num_rows / max(total, 1))
        except (pyarrow.ArrowException, OSError) as error:
            raise unreadable_parquet(shard.path, error) from None


def _arrow_columns(pyarrow: Any, batch: Any, shard: Shard) -> Columns:
    texts, others = {}, {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if not pyarrow.types.is_dictionary(column.type):
            others[name] = column
        elif column.null_count or not pyarrow.types.is_string(column.type.value_type):
            others[name] = column.dictionary_decode()
        else:
            texts[name] = np.array(column.dictionary.to_pylist(), dtype=str)[column.indices.to_numpy()]
    return {**arrow_columns(pyarrow.table(others), shard.path), **texts}


def _arrow_codes(column: Any) -> Codes:
    encoded = column.dictionary_encode(null_encoding="encode")
    names = [MISSING if value is None else str(value) for value in encoded.dictionary.to_pylist()]
    return Codes(names, encoded.indices.to_numpy().astype(np.int64))
