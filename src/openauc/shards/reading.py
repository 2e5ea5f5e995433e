"""What to read of each shard, and reading it in batches of bounded size."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from openauc import _validation as check
from openauc._columns import (
    USUAL_NAMES,
    ColumnNames,
    Columns,
    arrow_columns,
    import_pyarrow,
    read_columns,
    suffix_of,
    unreadable_parquet,
)
from openauc._files import PathLike
from openauc._validation import UNKNOWN, Label
from openauc.predictions import Predictions
from openauc.shards.paths import Shard
from openauc.streaming import Accumulator
from openauc.streaming.accumulator import RESOLUTION

BATCH_ROWS = 1 << 18  # samples of a Parquet file that are in memory at a time; CSV and npz files are read whole

TABLE_ROWS, TABLE_BYTES = 1 << 14, 1 << 25  # the same where whole rows are read, which may be wide

Slice = tuple[str | None, ...]  # a value for each column of slices, None where it is missing


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Columns, slices and accumulators; the same for all shards, or their counts could not be merged.

    Parameters
    ----------
    names
        Names of the columns.
    unknown_label
        The label of unknown samples.
    by
        Columns of slices.
    exact
        Whether to keep every distinct score; None does so where all files together are small.
    per_class, resolution
        As ``Accumulator`` takes them.
    """

    names: ColumnNames = USUAL_NAMES
    unknown_label: Label = UNKNOWN
    by: tuple[str, ...] = ()
    exact: bool | None = None
    per_class: bool = False
    resolution: int = RESOLUTION

    def __str__(self) -> str:
        """All fields as text: equal for plans that count alike."""
        return json.dumps(asdict(self), sort_keys=True)

    def needed(self, names: Sequence[str]) -> list[str]:
        """Which of these columns to read: all of them if a needed one is missing.

        >>> Plan().needed(["image", "y_true", "y_pred", "open_score", "logits"])
        ['y_true', 'y_pred', 'open_score']
        >>> Plan().needed(["image", "y_true", "logit_cat", "logit_dog"])
        ['y_true', 'logit_cat', 'logit_dog']
        >>> Plan().needed(["image", "label"])
        ['image', 'label']
        """
        found = [name for name in names if name in self.names[:3]]
        if len(found) < 3:
            found += self.names.by_class(names)
        return found if self.names.label_column in found and len(found) > 1 else list(names)

    def predictions(self, columns: Columns, path: PathLike) -> Predictions:
        """The triple in the columns of a file; ``MissingColumns`` if they have other names."""
        label, pred, *_ = self.names
        differ = {label, pred} <= set(columns) and columns[label].dtype.kind == "U" != columns[pred].dtype.kind
        # Of classes 0, 1 and "other", a batch of unknown samples alone has names as labels, numbers as predictions.
        if differ and check.is_label(columns[label], self.unknown_label).all():
            columns = {**columns, pred: check.as_text(check.as_labels("y_pred", columns[pred]))}
        return Predictions.from_columns(columns, self.names, path=path)

    def accumulator(self) -> Accumulator:
        """An empty accumulator."""
        return Accumulator(
            exact=self.exact is not False,
            per_class=self.per_class,
            resolution=self.resolution,
            unknown_label=self.unknown_label,
        )


class Codes(NamedTuple):
    """A column of slices: sample i has ``names[code[i]]``; a single code holds for all samples."""

    names: Sequence[str | None]
    code: NDArray[np.int64]


class Batch(NamedTuple):
    """Some rows of a shard."""

    columns: Columns
    slices: list[Codes]  # one for each column of slices
    share: float  # the share of the shard's rows that it holds


def read_batches(shard: Shard, plan: Plan) -> Iterator[Batch]:
    """The rows of a shard, with the columns that ``plan`` needs; a folder ``day=31/`` may name the slice.

    An empty file has one empty batch, so that its columns are checked too.
    """
    if suffix_of(shard.path) == ".parquet":
        yield from _parquet(shard, plan)
        return
    with shard.copied() as path:
        columns = read_columns(path)
        slices = [_slices(columns, name, shard) for name in plan.by]
        if shard.path.lower().endswith(".csv"):
            columns = _named(columns, plan)
    yield Batch(columns, slices, 1.0)


def _named(columns: Columns, plan: Plan) -> Columns:
    """Cells of a CSV file have no type: if the unknown label is a name, classes 0, 1 and 2 are names as well."""
    if not isinstance(plan.unknown_label, str):
        return columns
    found = {name: columns[name] for name in plan.needed(list(columns))}
    labels = {name: found[name] for name in plan.names[:2] if name in found}
    return found | {name: check.as_text(part) for name, part in labels.items() if part.dtype.kind == "i"}


def _slices(columns: Columns, name: str, shard: Shard) -> Codes:
    if name not in columns:
        return _of_folder(shard, name, columns)
    column = columns[name]
    if column.ndim != 1:
        raise _not_one_value(shard, name)
    values, code = np.unique(column, return_inverse=True)
    return Codes(_texts(values), code)


def _texts(values: Any) -> list[str | None]:
    """Values of slices as text; null and NaN are missing."""
    return [None if value is None or value != value else str(value) for value in values.tolist()]


def _not_one_value(shard: Shard, name: str) -> ValueError:
    problem = "holds several values for each sample; slice by a column of one value, such as the day."
    return ValueError(f"{shard.path}: column {name!r} {problem}")


def _of_folder(shard: Shard, name: str, columns: Collection[str]) -> Codes:
    if name not in shard.partition:
        raise ValueError(f"{shard.path} has no column {name!r} to slice by; it has {', '.join(map(repr, columns))}.")
    return Codes([shard.partition[name]], np.zeros(1, dtype=np.int64))


def _parquet(shard: Shard, plan: Plan) -> Iterator[Batch]:
    pyarrow, parquet = import_pyarrow()
    with shard.opened() as source:
        try:
            footer = parquet.ParquetFile(source)
            schema, total = footer.schema_arrow, footer.metadata.num_rows
            folders = {name: _of_folder(shard, name, schema.names) for name in plan.by if name not in schema.names}
            for name in plan.by:
                if name not in folders and pyarrow.types.is_nested(schema.field(name).type):
                    raise _not_one_value(shard, name)
            needed = plan.needed(schema.names)
            # Names are read dictionary-encoded, which is faster; it does not change columns of numbers.
            labels = [name for name in plan.names[:2] if name in schema.names]
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


def read_tables(shard: Shard, columns: list[str] | None = None) -> Iterator[tuple[Any, float]]:
    """The rows of a Parquet shard as Arrow tables of bounded size, and the share of the rows that each holds.

    An empty file has one empty table. Without ``columns``, all of them are read.
    """
    pyarrow, parquet = import_pyarrow()
    with shard.opened() as source:
        try:
            file = parquet.ParquetFile(source, page_checksum_verification=True)
            about, total = file.metadata, file.metadata.num_rows
            size = sum(about.row_group(group).total_byte_size for group in range(about.num_row_groups))
            rows = max(1, min(TABLE_ROWS, TABLE_BYTES * total // max(size, 1)))
            for batch in file.iter_batches(rows, columns=columns) if total else ():
                yield pyarrow.Table.from_batches([batch]), batch.num_rows / total
            if not total:
                yield file.schema_arrow.empty_table(), 1.0
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
    return Codes(_texts(encoded.dictionary), encoded.indices.to_numpy().astype(np.int64))
