"""``openauc table`` on a store."""

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import typer
from click.testing import Result
from typer.testing import CliRunner

from openauc import Predictions, auroc_score, closed_set_accuracy, openauc_score
from openauc.bench.store import RESULT, Store
from openauc.bench.trial import TrialResult, TrialSpec
from openauc.cli import _Commands
from openauc.commands.table import table


def invoke(*words: object) -> Result:
    app = typer.Typer(cls=_Commands)
    app.command("table")(table)
    app.command("other")(lambda: None)  # with a single command typer would drop its name
    return CliRunner().invoke(app, ["table", *map(str, words)])


def run(*words: object, code: int = 0) -> str:
    result = invoke(*words)
    assert result.exit_code == code, result.output + repr(result.exception)
    return result.stdout if code == 0 else result.stderr


def predictions(seed: int, gap: float) -> Predictions:
    rng = np.random.default_rng(seed)
    y_true = np.repeat([0, 1, -1], 30)
    y_pred = np.where(rng.random(90) < 0.9, np.maximum(y_true, 0), 1)
    return Predictions.of(y_true, y_pred, rng.normal(size=90) + gap * (y_true == -1))


def spec(method: str, split: int, protocol: str = "digits") -> TrialSpec:
    return TrialSpec.of(protocol, split, method, recipe="plain", epochs=2, width=4)


def keep(store: Store, trial: TrialSpec, seed: int, gap: float) -> None:
    """Save a trial as the runner does, with OpenAUC as its only metric."""
    store.plan([trial])
    store.open(trial)
    triple = predictions(seed, gap)
    groups = {}
    extra = {}
    if trial.protocol == "cub":
        group = np.where(triple.y_true != -1, "known", np.where(np.arange(90) % 2, "easy", "hard"))
        extra = {"group": group}
        groups = {
            name: {"openauc": openauc_score(*(column[(group == "known") | (group == name)] for column in triple))}
            for name in ("easy", "hard")
        }
    triple.save(store.folder(trial) / "predictions.parquet", extra=extra)
    result = TrialResult(
        spec=trial,
        metrics={"openauc": openauc_score(*triple)},
        groups=groups,
        predictions=f"trials/{trial.id}/predictions.parquet",
    )
    store.save(result)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "store")
    for split in range(3):
        keep(store, spec("softmax", split), split, gap=1.0)
        keep(store, spec("openauc", split), split + 10, gap=2.0)
    return store


def records(text: str) -> dict[tuple[str, str], dict[str, str]]:
    return {(r["metric"], r["variant"]): r for r in csv.DictReader(io.StringIO(text))}


def test_prints_a_table(store: Store) -> None:
    text = run(store.root)
    assert "OpenAUC × 100" in text
    assert "softmax" in text
    assert "n, trials per cell: 3" in text


def test_a_terminal_gets_styles(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "160")
    text = run(store.root)
    assert "\x1b[1m" in text
    assert "\x1b[4m" in text
    assert "n, trials per cell: 3" in text


@pytest.mark.parametrize(
    ("format", "mark"), [("markdown", "| --- |"), ("latex", r"\toprule"), ("csv", "metric,variant")]
)
def test_formats(store: Store, format: str, mark: str) -> None:
    assert mark in run(store.root, "--format", format)


@pytest.mark.parametrize(
    ("name", "mark"), [("t.md", "| --- |"), ("t.tex", r"\toprule"), ("t.csv", "metric,"), ("t.txt", "───")]
)
def test_a_file_has_the_format_of_its_suffix(store: Store, tmp_path: Path, name: str, mark: str) -> None:
    assert run(store.root, "-o", tmp_path / name) == ""
    assert mark in (tmp_path / name).read_text()


def test_metrics_that_were_not_stored_come_from_the_predictions(store: Store) -> None:
    found = records(run(store.root, "-m", "auroc", "-m", "openauc", "-f", "csv"))
    wanted = np.mean([auroc_score(*predictions(split, 1.0)) for split in range(3)])
    assert float(found["auroc", "softmax"]["mean"]) == pytest.approx(wanted)
    assert len(found) == 4


def test_recompute_ignores_what_was_stored(store: Store) -> None:
    file = store.folder(spec("softmax", 0)) / RESULT
    content = json.loads(file.read_text())
    content["metrics"]["openauc"] = 0.0
    file.write_text(json.dumps(content))
    wanted = np.mean([openauc_score(*predictions(split, 1.0)) for split in range(3)])
    kept, again = (
        float(records(run(store.root, "-f", "csv", *more))["openauc", "softmax"]["mean"])
        for more in ((), ("--recompute",))
    )
    assert kept < wanted - 0.1
    assert again == pytest.approx(wanted)


def test_recompute_knows_groups(tmp_path: Path) -> None:
    store = Store(tmp_path / "cub")
    keep(store, spec("softmax", 0, "cub"), 0, gap=1.0)
    stored, again = (
        list(csv.DictReader(io.StringIO(run(store.root, "-f", "csv", *m)))) for m in ((), ("--recompute",))
    )
    assert [r["group"] for r in again] == ["", "easy", "hard"]
    assert stored == again
    accuracy = list(csv.DictReader(io.StringIO(run(store.root, "-f", "csv", "-m", "closed_set_accuracy"))))
    assert {float(r["mean"]) for r in accuracy} == {closed_set_accuracy(*predictions(0, 1.0))}


def test_scores_below_chance_are_no_reason_to_warn(tmp_path: Path) -> None:
    store, trial = Store(tmp_path / "poor"), spec("softmax", 0)
    store.open(trial)
    predictions(0, gap=-3.0).save(store.folder(trial) / "predictions.parquet")
    store.save(TrialResult(spec=trial, predictions=f"trials/{trial.id}/predictions.parquet"))
    result = invoke(store.root, "-m", "auroc")
    assert (result.exit_code, result.stderr) == (0, "")


def test_baseline_and_level(store: Store) -> None:
    found = records(run(store.root, "--baseline", "softmax", "--level", 0.8, "-f", "csv"))
    assert found["openauc", "openauc"]["baseline"] == "softmax"
    assert found["openauc", "openauc"]["level"] == "0.8"
    assert float(found["openauc", "openauc"]["difference"]) > 0


def test_only_a_part(store: Store) -> None:
    found = records(run(store.root, "--only", "method=openauc,split=0|1", "-f", "csv"))
    assert list(found) == [("openauc", "openauc")]
    assert found["openauc", "openauc"]["n_trials"] == "2"


def test_failed_and_missing_trials_show(store: Store) -> None:
    store.plan([spec("openauc", 3)])
    store.save(TrialResult(spec=spec("softmax", 3), error="RuntimeError: out of memory\n\nTraceback"))
    text = run(store.root)
    assert "n 3, 1 failed" in text
    assert "n 3, 1 missing" in text
    assert "RuntimeError: out of memory" in text


def test_refusals_are_one_sentence(store: Store, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    planned = Store(tmp_path / "planned")
    planned.plan([spec("softmax", 0)])
    for words, message in (
        ((tmp_path / "nowhere",), "there is no store"),
        ((tmp_path / "empty",), "holds no result yet, of 0 planned trials"),
        ((planned.root,), "holds no result yet, of 1 planned trials"),
        ((store.root, "-m", "opnauc"), "Did you mean 'openauc'?"),
        ((store.root, "--baseline", "sofmax"), "Did you mean 'softmax'?"),
        ((store.root, "--level", 95), "level is 95"),
        ((store.root, "--only", "mthod=softmax"), "Did you mean 'method'?"),
        ((store.root, "-o", tmp_path / "no" / "t.md"), "does not exist"),
        ((store.root, "-o", tmp_path / "t.html"), "openauc report"),
        ((store.root, "-o", tmp_path / "t.html", "-f", "text"), "openauc report"),
    ):
        said = run(*words, code=2)
        assert message in said
        assert said.startswith("error: ")
        assert said.count("\n") == 1


def test_a_selection_without_results_is_refused(store: Store) -> None:
    store.plan([spec("rpl", 0)])
    assert "holds no result with method=rpl" in run(store.root, "--only", "method=rpl", code=2)


def test_predictions_that_are_gone_are_named(store: Store) -> None:
    trial = spec("softmax", 0)
    result = store.result(trial)
    assert result is not None
    store.save(replace(result, predictions=None))
    assert f"{trial.id} kept no predictions" in run(store.root, "-m", "auroc", code=2)
    store.save(result)
    (store.folder(trial) / "predictions.parquet").unlink()
    assert "there is no file" in run(store.root, "-m", "auroc", code=2)


def test_predictions_are_read_from_the_store_alone(store: Store) -> None:
    trial = spec("softmax", 0)
    result = store.result(trial)
    assert result is not None
    predictions(0, 1.0).save(store.root / "elsewhere.parquet")
    store.save(replace(result, predictions="elsewhere.parquet"))
    said = run(store.root, "-m", "auroc", code=2)
    assert f"there is no file {store.folder(trial) / 'elsewhere.parquet'}" in said


@pytest.mark.parametrize("content", ["{", "[]", '{"metrics": 3}'])
def test_a_damaged_result_does_not_stop_the_others(store: Store, content: str) -> None:
    file = store.folder(spec("softmax", 0)) / RESULT
    file.write_text(content)
    found = records(run(store.root, "-f", "csv"))["openauc", "softmax"]
    assert (found["n_trials"], found["failed"]) == ("2", "1")
    assert file.name in run(store.root)


def test_a_metric_that_is_no_number_is_computed_again_when_told(store: Store) -> None:
    file = store.folder(spec("softmax", 0)) / RESULT
    file.write_text(json.dumps({**json.loads(file.read_text()), "metrics": {"openauc": float("nan")}}))
    found = records(run(store.root, "-f", "csv"))["openauc", "softmax"]
    assert (found["n_trials"], found["missing"]) == ("2", "1")
    assert "openauc is missing or not a finite number" in " ".join(run(store.root).split())
    assert records(run(store.root, "-f", "csv", "--recompute"))["openauc", "softmax"]["n_trials"] == "3"


def test_a_damaged_plan_is_a_warning(store: Store) -> None:
    file = min((store.root / "plans").iterdir())
    file.write_text("[3]")
    result = invoke(store.root)
    assert result.exit_code == 0
    assert result.stderr.startswith(f"warning: {file} is damaged")
    assert "n, trials per cell: 3" in result.stdout
