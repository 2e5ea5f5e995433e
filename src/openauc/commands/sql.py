"""``openauc sql``: the query that computes the metrics where the log lives."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from typer import Argument, Option

from openauc._validation import read_label
from openauc.commands.predictions import ColumnOptions, takes_columns
from openauc.sql import DIALECTS, DialectName, query


@takes_columns
def sql(
    table: Annotated[
        str, Argument(metavar="TABLE", help="Table or view, schema.table included; for DuckDB also 'log/*.parquet'.")
    ],
    dialect: Annotated[DialectName, Option(metavar="NAME", help=f"The database: {', '.join(DIALECTS)}.")] = "duckdb",
    by: Annotated[list[str] | None, Option(help="Column of slices, a row for each; repeatable.")] = None,
    columns: ColumnOptions = ColumnOptions(),
) -> None:
    """Print a query that computes OpenAUC in your database.

    It also computes AUROC, closed-set accuracy and FPR at 95 % TPR; all are exact.
    """
    names = {**asdict(columns), "unknown_label": read_label(columns.unknown_label)}
    print(f"{query(table, dialect=dialect, by=by or (), **names)};")
