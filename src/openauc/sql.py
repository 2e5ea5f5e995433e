"""The exact metrics as one query, for a log that lives in DuckDB, PostgreSQL, Spark SQL or BigQuery.

The query counts the samples at each distinct score, sorts the scores once and adds up. It uses built-in functions of
the database only, and returns one row per slice.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from typing import Literal, NamedTuple

from openauc._validation import UNKNOWN, Label, as_label, check_choice

RESULTS = ("n_known", "n_unknown", "n_bad", "openauc", "auroc", "closed_set_accuracy", "fpr_at_95tpr")
"""Columns of the answer, after those of the slice."""

FILES = (".parquet", ".csv", ".csv.gz", ".json", ".jsonl")  # what DuckDB reads in place of a table

_BACKSLASHED = str.maketrans({"\\": r"\\", "'": r"\'", "`": r"\`", "\n": r"\n", "\r": r"\r"})

DialectName = Literal["duckdb", "postgres", "spark", "bigquery"]


class Dialect(NamedTuple):
    """How a database writes names, texts, types and tests; the defaults are those of DuckDB."""

    quote: str = '"'
    in_name: dict[int, str] = str.maketrans({'"': '""'})
    """What characters become between the quotes, as for ``str.translate``."""
    in_text: dict[int, str] = str.maketrans({"'": "''"})
    integer: str = "BIGINT"
    exact: str = "HUGEINT"  # integers beyond 64 bits: 10^10 known times 10^10 unknown samples are 10^20 pairs
    double: str = "DOUBLE"
    is_nan: str = "isnan({})"
    is_label: str = "{} = {}"
    """A text literal takes the type of the column beside it, so that -1 is a number or a name as the labels are."""
    is_bad: str = (
        "regexp_matches(typeof({0}), '^(TINYINT|SMALLINT|INTEGER|BIGINT|HUGEINT|FLOAT|DOUBLE|DECIMAL)')"
        " AND (CAST({0} AS VARCHAR) = 'nan' OR CAST({0} AS VARCHAR) LIKE '-%')"
    )
    """Of a label: whether it is NaN or a negative number. A name may be anything."""

    def name(self, *parts: str) -> str:
        """A quoted name, after those of what it belongs to."""
        return ".".join(f"{self.quote}{part.translate(self.in_name)}{self.quote}" for part in parts)

    def text(self, value: Label) -> str:
        """A text literal."""
        return f"'{str(value).translate(self.in_text)}'"


DIALECTS: dict[DialectName, Dialect] = {
    "duckdb": Dialect(),
    "postgres": Dialect(
        exact="NUMERIC",
        double="DOUBLE PRECISION",
        is_nan="{} = 'NaN'",  # equal to itself, unlike elsewhere
        is_bad="CAST(pg_typeof({0}) AS TEXT) IN ('smallint', 'integer', 'bigint', 'numeric', 'real', "
        "'double precision') AND (CAST({0} AS TEXT) = 'NaN' OR CAST({0} AS TEXT) LIKE '-%')",
    ),
    "spark": Dialect(
        quote="`",
        in_name=str.maketrans({"`": "``"}),
        in_text=_BACKSLASHED,
        exact="DECIMAL(38, 0)",
        is_bad="typeof({0}) RLIKE '^(tinyint|smallint|int|bigint|float|double|decimal)'"
        " AND (CAST({0} AS STRING) = 'NaN' OR CAST({0} AS STRING) LIKE '-%')",
    ),
    "bigquery": Dialect(
        quote="`",
        in_name=_BACKSLASHED,
        in_text=_BACKSLASHED,
        integer="INT64",
        exact="NUMERIC",
        double="FLOAT64",
        is_nan="IS_NAN({})",
        is_label="CAST({} AS STRING) = {}",  # no literal of one type equals a column of another
        is_bad="{0} <> {0} OR TO_JSON_STRING({0}) LIKE '-%'",  # NaN equals nothing; the JSON of a name has quotes
    ),
}
"""The databases, by name."""

_QUERY = (resources.files("openauc") / "query.sql").read_text(encoding="utf-8").rstrip()
"""The query, with names in braces for what differs between databases and tables."""


def query(
    table: str | Sequence[str],
    *,
    dialect: DialectName = "duckdb",
    by: str | Sequence[str] = (),
    label_column: str = "y_true",
    pred_column: str = "y_pred",
    score_column: str = "open_score",
    unknown_label: Label = UNKNOWN,
    lower_is_unknown: bool = False,
) -> str:
    """Text of a query for the metrics of a table, equal to those of ``evaluate``; ties earn half.

    The answer has one row, or one per slice in the order of ``by``: the columns of the slice, then ``n_known``,
    ``n_unknown``, ``n_bad``, ``openauc``, ``auroc``, ``closed_set_accuracy`` and ``fpr_at_95tpr``. Rows where a label
    or the score is NULL or NaN, or a label is a negative number other than the unknown one, are counted in ``n_bad``;
    ``evaluate`` refuses them, and here the metrics of their slice are NULL. So is a metric that lacks the known or
    unknown samples it needs. Scores are compared in double precision, and pairs are counted in integers of at least 29
    digits.

    Parameters
    ----------
    table
        Name, with those of schema and catalog before it and dots between: ``"prod.scores.log"``; in parts,
        ``("prod", "my.log")``, where a name itself holds a dot. For DuckDB also files, as ``"log/*.parquet"``.
    dialect
        "duckdb", "postgres", "spark" or "bigquery".
    by
        Column or columns whose every combination is a slice; NULL is one of their values.
    label_column, pred_column, score_column
        Names of the columns, spelled as the database keeps them: the query quotes them.
    unknown_label
        Label of unknown samples.
    lower_is_unknown
        The score is a confidence.

    Examples
    --------
    >>> text = query("scores.log", dialect="postgres", by="camera")
    >>> print(*(line.strip() for line in text.splitlines() if "camera" in line or "log" in line), sep="\\n")
    "camera" AS slice_1,
    FROM "scores"."log"
    slice_1 AS "camera",
    """
    check_choice("dialect", dialect, DIALECTS)
    to = DIALECTS[dialect]
    names = {"label_column": label_column, "pred_column": pred_column, "score_column": score_column}
    label, pred, score = (to.name(_named(option, name)) for option, name in names.items())
    slices = {f"slice_{i}": to.name(column) for i, column in enumerate(_slice_columns(by), 1)}
    listed = ", ".join(slices)
    unknown = to.text(as_label(unknown_label))
    return _QUERY.format(
        **to._asdict(),
        source=_source(table, dialect),
        label=label,
        pred=pred,
        score=score,
        score_is_nan=to.is_nan.format(f"CAST({score} AS {to.double})"),
        label_is_unknown=to.is_label.format(label, unknown),
        label_is_bad=to.is_bad.format(label),
        pred_is_bad=f"NOT {to.is_label.format(pred, unknown)} AND ({to.is_bad.format(pred)})",
        order="DESC" if lower_is_unknown else "ASC",
        slices="".join(f"{slice_}, " for slice_ in slices),
        lines="".join(f"{slice_},\n        " for slice_ in slices),
        columns_as_slices="".join(f"{column} AS {slice_},\n        " for slice_, column in slices.items()),
        slices_as_columns="".join(f"{slice_} AS {column},\n    " for slice_, column in slices.items()),
        within=f"PARTITION BY {listed}" if slices else "",
        partition=f"PARTITION BY {listed} " if slices else "",
        per_slice=f"\n    GROUP BY {listed}" if slices else "",
        in_order=f"\nORDER BY {listed}" if slices else "",
    )


def _named(option: str, name: str) -> str:
    if not name:
        raise ValueError(f"{option} is empty; expected the name of a column of the table.")
    return name


def _slice_columns(by: str | Sequence[str]) -> list[str]:
    columns = [_named("by", column) for column in ([by] if isinstance(by, str) else by)]
    for i, column in enumerate(columns):
        # Most databases do not tell upper from lower case in the names of results.
        if column.lower() in (other.lower() for other in (*columns[:i], *RESULTS)):
            raise ValueError(
                f"by names the column {column!r}, and the answer has another one of that name; name each column of a "
                "slice once, and give one called as a result another name in a view."
            )
    return columns


def _source(table: str | Sequence[str], dialect: DialectName) -> str:
    """What stands after FROM."""
    to = DIALECTS[dialect]
    if dialect == "duckdb" and isinstance(table, str) and table.lower().endswith(FILES):
        return to.text(table)
    parts = table.split(".") if isinstance(table, str) else list(table)
    if not parts or not all(parts):
        raise ValueError(f"table is {table!r}; expected a name such as 'log' or 'schema.log', with no part empty.")
    return to.name(*parts)
