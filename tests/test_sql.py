"""The query computes in real databases what `evaluate` computes in Python."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import engines
import numpy as np
import pytest
import sqlglot
from engines import DuckDB, Postgres, Spark
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import Triple, random_triple, triples
from typer.testing import CliRunner

import openauc
from openauc.cli import app
from openauc.sql import DIALECTS, RESULTS, query

METRICS = RESULTS[3:]
COLUMNS = {"y_true": int, "y_pred": int, "open_score": float}
TRIPLE = Triple(np.array([0, 1, 1, -1, -1]), np.array([0, 1, 0, 1, 0]), np.array([0.1, 0.6, 0.2, 0.5, 0.9]))


@pytest.fixture(scope="module")
def duckdb() -> Iterator[DuckDB]:
    with engines.duckdb() as started:
        yield started


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with engines.postgres() as started:
        yield started


@pytest.fixture(scope="module")
def spark() -> Iterator[Spark]:
    with engines.spark() as started:
        yield started


@pytest.fixture(params=["duckdb", *(pytest.param(name, marks=pytest.mark.slow) for name in ("postgres", "spark"))])
def engine(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


def rows_of(triple: Triple) -> list[tuple[int, int, float]]:
    return list(zip(*triple.lists, strict=True))


def expected(y_true: Any, y_pred: Any, open_score: Any, **options: Any) -> dict[str, float]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", openauc.ScoreDirectionWarning)
        metrics = {name: openauc.METRICS[name] for name in METRICS}
        found = openauc.evaluate(y_true, y_pred, open_score, metrics=metrics, level=None, **options)
    return {"n_known": found.n_known, "n_unknown": found.n_unknown, "n_bad": 0, **found.values}


def same(answer: dict[str, Any], python: dict[str, float]) -> bool:
    """Whether the answer ends in these results, in this order and to 1e-12."""
    assert list(answer)[-len(RESULTS) :] == list(python) == list(RESULTS)
    return all(abs(answer[name] - value) <= 1e-12 for name, value in python.items())


def test_equals_evaluate_in_every_slice(engine: Any) -> None:
    """Ties, one sample a side, one class, infinities, the largest and the smallest numbers."""

    @settings(max_examples=engine.examples)
    @given(st.lists(triples(), min_size=engine.slices, max_size=engine.slices))
    def check(parts: list[Triple]) -> None:
        rows = [(part, *row) for part, triple in enumerate(parts) for row in rows_of(triple)]
        engine.load("log", {"part": int, **COLUMNS}, rows[::-1])
        found = engine.ask(query("log", dialect=engine.dialect, by="part"))
        assert [row["part"] for row in found] == list(range(len(parts)))
        for row, triple in zip(found, parts, strict=True):
            assert same(row, expected(*triple))

    check()


def test_names_and_labels_are_quoted(engine: Any) -> None:
    """Columns, table and labels full of marks; a confidence; slices of two columns, NULL among their values."""
    triple = random_triple(400, decimals=1)
    names = {-1: 'it\'s "so" \\ n`o'} | {i: f"class {i}'s" for i in range(10)}
    day = np.arange(400) % 3
    rows = [
        (names[true], names[pred], -score, None if d == 0 else f"d{d}", int(i < 200))
        for i, (true, pred, score, d) in enumerate(zip(*triple.lists, day.tolist(), strict=True))
    ]
    table, columns = "my.l'o\"g` t", ('tr"u`e', "order by", "sc.o're", 'd"a`y', "SELECT")
    engine.load(table, dict(zip(columns, (str, str, float, str, int), strict=True)), rows)
    text = query(
        (engine.schema, table),
        dialect=engine.dialect,
        by=columns[3:],
        label_column=columns[0],
        pred_column=columns[1],
        score_column=columns[2],
        unknown_label=names[-1],
        lower_is_unknown=True,
    )
    found = {(row[columns[3]], row[columns[4]]): row for row in engine.ask(text)}
    assert set(found) == {(d, half) for d in (None, "d1", "d2") for half in (0, 1)}
    for (d, half), row in found.items():
        chosen = (day == int(d[1:] if d else 0)) & ((np.arange(400) < 200) == half)
        assert same(row, expected(*(column[chosen] for column in triple)))


def test_rows_that_evaluate_refuses_are_counted_and_undefined_metrics_are_null(engine: Any) -> None:
    nan = float("nan")
    slices = {
        "fine": [],
        "no label": [(None, 0, 0.5)],
        "no prediction": [(-1, None, 0.5)],
        "no score": [(0, 0, None)],
        "nan, twice": [(0, 0, nan), (-1, 0, nan)],
    }
    good = rows_of(TRIPLE)
    rows = [(name, *row) for name, bad in slices.items() for row in (*good, *bad)]
    rows += [("only known", *row) for row in good if row[0] != -1]
    rows += [("only unknown", *row) for row in good if row[0] == -1]
    engine.load("log", {"part": str, **COLUMNS}, rows)
    found = {row.pop("part"): row for row in engine.ask(query("log", dialect=engine.dialect, by="part"))}
    nothing = dict.fromkeys(METRICS)
    assert same(found.pop("fine"), expected(*TRIPLE))
    accuracy = {"closed_set_accuracy": 2 / 3}
    assert found.pop("only known") == {**nothing, **accuracy, "n_known": 3, "n_unknown": 0, "n_bad": 0}
    assert found.pop("only unknown") == {**nothing, "n_known": 0, "n_unknown": 2, "n_bad": 0}
    bad = {name: {**nothing, "n_known": 3, "n_unknown": 2, "n_bad": len(slices[name])} for name in found}
    assert found == bad
    assert len(bad) == 4


@pytest.mark.parametrize(
    ("kind", "stranger"), [(int, -3), (float, -3.0), (float, float("nan")), (Decimal, Decimal(-3))]
)
def test_labels_that_evaluate_refuses_are_bad(engine: Any, kind: type, stranger: float) -> None:
    good = [(kind(t), kind(p), s) for t, p, s in rows_of(TRIPLE)]
    rows = [("label", *row) for row in (*good, (stranger, kind(0), 0.5))]
    rows += [("prediction", *row) for row in (*good, (kind(0), stranger, 0.5))]
    rows += [("rejected", *row) for row in (*good, (kind(0), kind(-1), 0.5))]
    engine.load("log", {"part": str, **COLUMNS, "y_true": kind, "y_pred": kind}, rows)
    found = {row["part"]: row for row in engine.ask(query("log", dialect=engine.dialect, by="part"))}
    assert {name: row["n_bad"] for name, row in found.items()} == {"label": 1, "prediction": 1, "rejected": 0}
    assert [found["label"][name] for name in METRICS] == [None] * 4
    assert found["rejected"]["closed_set_accuracy"] == 0.5


def test_names_may_look_like_anything(engine: Any) -> None:
    names = {-1: "other", 0: "-3", 1: "nan"}
    rows = [(names[true], names[pred], score) for true, pred, score in rows_of(TRIPLE)]
    engine.load("log", {**COLUMNS, "y_true": str, "y_pred": str}, rows)
    assert same(engine.ask(query("log", dialect=engine.dialect, unknown_label="other"))[0], expected(*TRIPLE))


def test_a_table_without_rows(engine: Any) -> None:
    engine.load("log", COLUMNS, [])
    assert engine.ask(query("log", dialect=engine.dialect)) == [
        {"n_known": 0, "n_unknown": 0, "n_bad": 0, **dict.fromkeys(METRICS)}
    ]
    assert engine.ask(query("log", dialect=engine.dialect, by="y_true")) == []


def test_exactly_95_percent_suffice(engine: Any) -> None:
    """A known sample stands above each unknown one; of 20 unknown samples one may be accepted, of 19 none."""
    sizes = (1, 19, 20, 21, 39, 40, 100)
    rows = [(n, *row) for n in sizes for i in range(n) for row in ((-1, 0, float(i)), (0, 0, i + 0.5))]
    engine.load("log", {"n": int, **COLUMNS}, rows)
    found = {row["n"]: row["fpr_at_95tpr"] for row in engine.ask(query("log", dialect=engine.dialect, by="n"))}
    assert found == pytest.approx({n: 1 - (n // 20) / n for n in sizes}, abs=1e-12)
    for n in sizes:
        columns = zip(*(row[1:] for row in rows if row[0] == n), strict=True)
        assert found[n] == pytest.approx(expected(*map(list, columns))["fpr_at_95tpr"], abs=1e-12)


def test_slices_come_in_order_whatever_the_database_does_first() -> None:
    assert query("log", by=("day", "camera")).endswith("\nORDER BY slice_1, slice_2")


def test_pairs_beyond_64_bits(engine: Any) -> None:
    """Every row stands for 10^10 samples; rates do not change."""
    triple = random_triple(60, decimals=1)
    engine.load("log", COLUMNS, rows_of(triple))
    text = query("log", dialect=engine.dialect)
    assert text.count("THEN 1 END) AS") == 4
    (answer,) = engine.ask(text.replace("THEN 1 END) AS", "THEN 1 END) * 10000000000 AS"))
    python = expected(*triple)
    python |= {name: python[name] * 10**10 for name in ("n_known", "n_unknown")}
    assert same(answer, python)


@pytest.mark.parametrize("kind", [int, str, float])
def test_minus_one_is_a_number_or_a_name_as_the_labels_are(engine: Any, kind: type) -> None:
    triple = random_triple(50, decimals=1)
    engine.load(
        "log", COLUMNS | {"y_true": kind, "y_pred": kind}, [(kind(t), kind(p), s) for t, p, s in rows_of(triple)]
    )
    assert same(engine.ask(query("log", dialect=engine.dialect))[0], expected(*triple))


@pytest.mark.slow
@pytest.mark.parametrize("by", [(), "part"])
def test_one_sort_and_no_join(postgres: Postgres, by: str | tuple[()]) -> None:
    rows = [(i % 3, *row) for i, row in enumerate(rows_of(random_triple(3000)))]
    postgres.load("log", {"part": int, **COLUMNS}, rows)
    postgres.connection.execute("ANALYZE log")
    plan = "\n".join(row["QUERY PLAN"] for row in postgres.ask("EXPLAIN " + query("log", dialect="postgres", by=by)))
    assert "WindowAgg" in plan
    assert "Join" not in plan
    assert "Nested Loop" not in plan
    assert plan.count("Sort Key") == 1


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("by", [(), ("day", 'cam`e"ra')])
def test_every_dialect_parses_and_means_the_same(duckdb: DuckDB, dialect: Any, by: tuple[str, ...]) -> None:
    """Also the one no database here can run: in DuckDB, after sqlglot has translated it."""
    triple = random_triple(200, decimals=1)
    duckdb.load("lo'g", {"day": int, 'cam`e"ra': str, **COLUMNS}, [(1, "a", *row) for row in rows_of(triple)])
    text = query("lo'g", dialect=dialect, by=by)
    (translated,) = sqlglot.transpile(text, read=dialect, write="duckdb", error_level=sqlglot.ErrorLevel.RAISE)
    (answer,) = duckdb.ask(translated)
    assert list(answer)[: len(by)] == list(by)
    assert same(answer, expected(*triple))


def test_duckdb_reads_files(duckdb: DuckDB, tmp_path: Path) -> None:
    triple = random_triple(300, decimals=2)
    for i, part in enumerate(("a", "b")):
        chosen = [column[i::2] for column in triple]
        openauc.Predictions.of(*chosen).save(tmp_path / f"it's {part}.parquet")
    (answer,) = duckdb.ask(query(f"{tmp_path}/*.parquet"))
    assert same(answer, expected(*triple))


@pytest.mark.parametrize("table", ["openauc_samples", "openauc_scores", "openauc_accepted", "openauc_counts"])
def test_a_table_may_be_called_as_a_part_of_the_query(duckdb: DuckDB, table: str) -> None:
    duckdb.load(
        table, {"score": int, "kind": str, **COLUMNS}, [(i, "x", *row) for i, row in enumerate(rows_of(TRIPLE))]
    )
    assert same(duckdb.ask(query(table))[0], expected(*TRIPLE))
    assert [row["score"] for row in duckdb.ask(query(table, by="score"))] == [0, 1, 2, 3, 4]


def test_the_command_prints_a_statement(duckdb: DuckDB) -> None:
    options = ("--label-column", "t", "--pred-column", "p", "--score-column", "s", "--unknown-label", "-7")
    words = ["sql", "main.log", *options, "--lower-is-unknown", "--by", "day", "--by", "hour"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.stderr
    assert result.stdout.endswith(";\n")
    triple = random_triple(100, decimals=1)
    rows = [(-7 if t == -1 else t, p, -s, 1, 2) for t, p, s in rows_of(triple)]
    duckdb.load("log", {"t": int, "p": int, "s": float, "day": int, "hour": int}, rows)
    (answer,) = duckdb.ask(result.stdout)
    assert (answer["day"], answer["hour"]) == (1, 2)
    assert same(answer, expected(*triple))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_command_knows_every_dialect(dialect: Any) -> None:
    result = CliRunner().invoke(app, ["sql", "log", "--dialect", dialect])
    assert result.stdout == query("log", dialect=dialect) + ";\n"


def test_bigquery_writes_names_and_texts_its_own_way() -> None:
    text = query("my-project.data.log", dialect="bigquery", label_column="a`b\\c", unknown_label="it's\n")
    assert "FROM `my-project`.`data`.`log`" in text
    assert r"WHEN CAST(`a\`b\\c` AS STRING) = 'it\'s\n' THEN 'unknown'" in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"table": ""}, "table is ''; expected a name"),
        ({"table": ()}, r"table is \(\); expected a name"),
        ({"table": "a..b"}, "table is 'a..b'; expected a name such as 'log'"),
        ({"dialect": "postgre"}, "dialect is 'postgre'.*Did you mean 'postgres'"),
        ({"label_column": ""}, "label_column is empty; expected the name of a column"),
        ({"by": ["day", ""]}, "by is empty"),
        ({"by": ["day", "Day"]}, "by names the column 'Day'.*name each column of a slice once"),
        ({"by": "OpenAUC"}, "by names the column 'OpenAUC', and the answer has another one"),
    ],
)
def test_what_is_no_query_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        query(**{"table": "log", **options})
