"""``openauc sql``: the query that computes the metrics where the log lives."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Option

from openauc._validation import read_label
from openauc.commands.predictions import LabelColumn, LowerIsUnknown, PredColumn, ScoreColumn, UnknownLabel
from openauc.sql import DialectName, query


def sql(
    table: Annotated[
        str, Argument(metavar="TABLE", help="Table or view, schema.table included; for DuckDB also 'log/*.parquet'.")
    ],
    dialect: Annotated[DialectName, Option(help="The database to write for.")] = "duckdb",
    by: Annotated[list[str] | None, Option(help="Column of slices, a row for each; repeatable.")] = None,
    label_column: LabelColumn = "y_true",
    pred_column: PredColumn = "y_pred",
    score_column: ScoreColumn = "open_score",
    unknown_label: UnknownLabel = "-1",
    lower_is_unknown: LowerIsUnknown = False,
) -> None:
    """Print a query for exact OpenAUC, AUROC, accuracy and FPR at 95 % TPR, computed in your database."""
    text = query(
        table,
        dialect=dialect,
        by=by or (),
        label_column=label_column,
        pred_column=pred_column,
        score_column=score_column,
        unknown_label=read_label(unknown_label),
        lower_is_unknown=lower_is_unknown,
    )
    print(f"{text};")
