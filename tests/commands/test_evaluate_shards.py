"""``openauc evaluate`` of folders, patterns, URLs and slices."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from openauc import Accumulator, Evaluation, Predictions, evaluate
from openauc.cli import app
from openauc.metrics.registry import METRICS, PairMetric, RateMetric

DAYS = np.array(["mon", "tue"])


@pytest.fixture(autouse=True)
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OPENAUC_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    (tmp_path / "log").mkdir()
    for i in range(3):
        y_true = rng.integers(-1, 3, 80)
        score = rng.normal(size=80) + (y_true < 0)
        part = Predictions.of(y_true, rng.integers(0, 3, 80), score)
        part.save(tmp_path / "log" / f"{i}.parquet", extra={"day": DAYS[np.arange(80) % 2]})
    return tmp_path / "log"


def run(*arguments: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in ("evaluate", *arguments, "--replicates", 10)])
    assert result.exit_code == code, result.stderr
    return result.stdout if code == 0 else result.stderr


def values(*arguments: object) -> dict[str, object]:
    found = json.loads(run(*arguments, "--json", "-"))
    assert isinstance(found, dict)
    return found


def whole(log: Path) -> Predictions:
    return Predictions.concat(Predictions.load(file) for file in sorted(log.glob("*.parquet")))


@pytest.mark.parametrize(
    "arguments",
    [
        ("log/*.parquet",),
        ("log",),
        ("log/0.parquet", "log/1.parquet", "log/2.parquet", "--shards"),
        ("log", "--jobs", 1),
    ],
)
def test_all_ways_to_name_shards_give_the_evaluation_of_one_file(log: Path, arguments: tuple[object, ...]) -> None:
    found = values(*arguments)
    assert Evaluation.from_dict(found) == evaluate(*whole(log), n_replicates=10)
    assert (found["n_shards"], found["skipped"], found["bounds"]) == (3, {}, {})


def test_files_without_options_are_models_of_their_own(log: Path) -> None:
    found = values("log/0.parquet", "log/1.parquet")
    assert set(found) == {"log/0.parquet", "log/1.parquet"}
    assert "n_shards" not in found["log/0.parquet"]
    assert set(values("log", "log/*.parquet")) == {"log", "log/*.parquet"}


def test_a_large_parquet_file_is_read_in_batches(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openauc.shards.evaluation.EXACT_BYTES", 100)
    found = values("log/0.parquet")
    assert found["n_shards"] == 1
    alone = evaluate(*Predictions.load("log/0.parquet"), n_replicates=10)
    low, high = found["bounds"].get("openauc", [alone.openauc] * 2)
    assert low <= alone.openauc <= high


def test_slices_have_a_row_each_with_wider_intervals(log: Path) -> None:
    text = run("log", "--by", "day")
    assert "log (3 shards):" in text
    assert "By day: 2 slices" in text
    assert "hold for all 2 slices at once (Bonferroni)" in text
    assert [line.split()[0] for line in text.splitlines() if line.split()[:1] in (["mon"], ["tue"])] == ["mon", "tue"]
    formulas = {name: metric for name, metric in METRICS.items() if isinstance(metric, PairMetric | RateMetric)}
    tuesday = Predictions(*(column[1::2] for column in whole(log)))
    second = values("log", "--by", "day")["slices"][1]
    assert second["slice"] == {"day": "tue"}
    assert Evaluation.from_dict(second) == evaluate(*tuesday, metrics=formulas, level=0.975)


def test_a_slice_without_unknown_samples_has_an_accuracy_alone(log: Path) -> None:
    Predictions.of([0, 1], [0, 0], [0.1, 0.2]).save("log/3.csv", extra={"day": ["wed", "wed"]})
    (row,) = (line for line in run("log", "--by", "day").splitlines() if line.split()[:1] == ["wed"])
    assert row.split()[1:5] == ["2", "0", "–", "–"]
    assert "0.5000" in row


def test_a_missing_slice_is_not_the_text_that_stands_for_it(log: Path) -> None:
    table = pq.read_table(log / "0.parquet").drop_columns(["day"])
    pq.write_table(table.append_column("day", pa.array([None, "(missing)"] * 40)), log / "0.parquet")
    rows = [line.split()[0] for line in run("log", "--by", "day").splitlines() if "(missing)" in line]
    assert sorted(rows) == ["'(missing)'", "(missing)"]


def test_bins_show_certified_bounds(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openauc.shards.evaluation.EXACT_BYTES", 100)
    monkeypatch.setattr("openauc.shards.Plan.accumulator", lambda plan: Accumulator(exact=False, resolution=4))
    assert "the exact value lies between these two" in run("log")
    bounds = values("log")["bounds"]["openauc"]
    assert bounds[0] <= evaluate(*whole(log), level=None).openauc <= bounds[1]


def test_bad_shards_stop_or_are_counted(log: Path) -> None:
    (log / "1.parquet").write_bytes((log / "1.parquet").read_bytes()[:300])
    message = run("log", code=2)
    assert f"error: {log / '1.parquet'} is not a readable Parquet file" in message
    assert "With --skip-bad the other shards are evaluated" in message
    result = CliRunner().invoke(app, ["evaluate", "log", "--skip-bad", "--replicates", "10"])
    assert "log (3 shards, 1 of them skipped):" in result.stdout
    assert f"skipped: {log / '1.parquet'} is not a readable Parquet file" in result.stderr
    assert list(values("log", "--skip-bad")["skipped"]) == [str(log / "1.parquet")]


def test_counts_are_kept_in_a_work_folder(log: Path, tmp_path: Path) -> None:
    first = values("log", "--work", "work")
    assert len(list((tmp_path / "work").iterdir())) == 3
    assert values("log", "--work", "work") == first


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nothing/*.parquet",), "there is no file at nothing/*.parquet"),
        (("log", "--legacy"), "--legacy needs all samples in memory"),
        (("log", "--report", "page.html"), "--report needs all samples in memory"),
        (("log", "--jobs", "2", "--ray"), "--jobs is for processes of this machine"),
        (("log", "--jobs", "0"), "'--jobs'"),
        (("log", "--by", "camera"), "has no column 'camera' to slice by; it has 'y_true', 'y_pred'"),
        (("log", "--label-column", "day2"), "has no column 'day2'"),
    ],
)
def test_what_cannot_be_done_is_said(arguments: tuple[str, ...], message: str) -> None:
    assert message in run(*arguments, code=2)
