"""openauc fit, and what predict and report do with its model, through the real command line."""

import csv
import json
import re
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from rich.console import Console
from typer.testing import CliRunner

from openauc import Predictions, evaluate
from openauc.cli import app
from openauc.commands import fit as command
from openauc.features import OpenSetClassifier
from openauc.features.classifier.tables import MODEL, TableSpec
from openauc.predictions import read_columns

NAMES = np.array(["ant", "bee", "cat", "dog", "elk", "fox", "gnu"])
QUICK = ("--rejector", "max_logit", "--folds", 2)


def run(*words: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == code, result.output + result.stderr + repr(result.exception)
    return result.stdout if code == 0 else result.stderr


def table(path: Path, known: int, seed: int = 0, **more: list) -> Path:
    """Samples of the first classes."""
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(known), 40)
    X = (5 * np.eye(8)[y] + rng.normal(size=(len(y), 8))).astype(np.float32)
    columns = {"text": [f"{i}, a row" for i in range(len(y))], "intent": NAMES[y].tolist(), "embedding": list(X)}
    schema_says = {"openauc.encoder": "minilm"}
    pq.write_table(pa.table(columns | more).replace_schema_metadata(schema_says), path)
    return path


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder with train.parquet, test.parquet and a model; and what fitting said."""
    folder = tmp_path_factory.mktemp("fit")
    table(folder / "train.parquet", 5)
    table(folder / "test.parquet", 7, seed=1)
    return folder, run("fit", folder / "train.parquet", "-o", folder / "model")


def test_fitting_says_what_it_read_tried_chose_and_promises(fitted: tuple[Path, str]) -> None:
    folder, said = fitted
    model = OpenSetClassifier.load(folder / "model")
    lines = said.splitlines()
    assert lines[0].startswith(
        f"{folder / 'train.parquet'}: 200 samples, 8 features (column embedding, encoder minilm)"
    )
    for tried in model.report_.tried:
        (line,) = (line for line in lines if re.match(rf"[ *]+{tried.name} ", line))
        assert f"{tried.openauc:.4f}" in line
        assert ("*" in line) == (tried.name == model.report_.chosen)
    assert model.report_.expected is not None
    together = " ".join(said.split())
    assert f"expected OpenAUC {model.report_.expected.openauc:.4f} (" in together
    assert f"accuracy {model.report_.accuracy:.4f}" in together
    assert model.guarantee_ in together
    assert f"openauc predict {folder / 'model'} new.parquet" in said
    assert OpenSetClassifier.load(folder / "model").table_spec_ == TableSpec(
        features=("embedding",), label="intent", encoder="minilm"
    )


def test_the_same_seed_gives_the_same_model(fitted: tuple[Path, str], tmp_path: Path) -> None:
    folder, _ = fitted
    assert run("fit", folder / "train.parquet", "-o", tmp_path / "m", "--quiet") == ""
    one, other = (OpenSetClassifier.load(place) for place in (folder / "model", tmp_path / "m"))
    np.testing.assert_array_equal(one.thresholds_, other.thresholds_)
    assert one.report_ == other.report_


def test_options_reach_the_model(fitted: tuple[Path, str], tmp_path: Path) -> None:
    train = fitted[0] / "train.parquet"
    words = ("--acceptance", 0.8, "--per-class", "--calibration", "split", "--head", "class_mean", "--seed", 3)
    run("fit", train, *QUICK, *words, "--max-ofpr", 0.5, "--unknown-label", "elk", "-o", tmp_path / "m", "--jobs", 1)
    model = OpenSetClassifier.load(tmp_path / "m")
    found = model.get_params()
    expected = {"acceptance": 0.8, "per_class": True, "calibration": "split", "head": "class_mean", "random_state": 3}
    assert {name: found[name] for name in expected} == expected
    assert (found["folds"], found["rejector"], found["max_ofpr"]) == (2, "max_logit", 0.5)
    assert model.classes_.tolist() == ["ant", "bee", "cat", "dog"]
    assert (model.unknown_label_, model.report_.n_outliers) == ("elk", 40)
    said = run("fit", train, *QUICK, "--threshold", "1.5", "-o", tmp_path / "m")
    assert OpenSetClassifier.load(tmp_path / "m").thresholds_.tolist() == [1.5] * 5
    assert "none; the threshold was given" in said
    run("fit", train, *QUICK, "--threshold", "cost", "--cost", "known_rejected=1000", "-o", tmp_path / "m")
    costly = OpenSetClassifier.load(tmp_path / "m").thresholds_[0]
    run("fit", train, *QUICK, "--threshold", "cost", "--cost", "unknown_accepted=1000", "-o", tmp_path / "m")
    assert OpenSetClassifier.load(tmp_path / "m").thresholds_[0] < costly


def test_columns_of_numbers_from_csv_to_decisions(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    y = np.repeat([3, 5, 9], 30)
    X = 4 * np.eye(3)[np.repeat([0, 1, 2], 30)] + rng.normal(size=(90, 3))
    lines = [
        f"{i},{a:.4f},{b:.4f},note {i},{c:.4f},{label}" for i, ((a, b, c), label) in enumerate(zip(X, y, strict=True))
    ]
    (tmp_path / "train.csv").write_text("\n".join(["id,a,b,note,c,y", *lines]))
    said = run("fit", tmp_path / "train.csv", *QUICK, "-o", tmp_path / "m")
    assert "3 features (columns a, b, c), labels in column y" in said
    assert "left out, as they are not numbers or count the rows: 'id', 'note'" in said
    (tmp_path / "new.csv").write_text("c,extra,b,a,note\n0,7,0,4,\n1.3,7,1.3,1.3,between\n")
    assert "2 rows" in run("predict", tmp_path / "m", tmp_path / "new.csv", "-o", tmp_path / "d.csv")
    decided = (tmp_path / "d.csv").read_text().splitlines()
    assert decided[0] == "extra,note,prediction,y_pred,open_score,p_value"
    assert decided[1].startswith("7,,3,3,")
    assert decided[2].startswith("7,between,-1,")


def test_also_as_onnx(fitted: tuple[Path, str], tmp_path: Path) -> None:
    pytest.importorskip("ndonnx")
    out = tmp_path / "m.onnx"
    assert str(out) in run("fit", fitted[0] / "train.parquet", *QUICK, "-o", tmp_path / "m", "--onnx", out)
    assert out.stat().st_size > 0
    train, over = fitted[0] / "train.parquet", tmp_path / "m" / MODEL
    assert "it is an input" in run("fit", train, *QUICK, "-o", tmp_path / "m", "--onnx", over, code=2)
    assert OpenSetClassifier.load(tmp_path / "m").classes_.tolist() == NAMES[:5].tolist()


def test_a_note_is_told_once_and_other_warnings_stay(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(4), 30)
    X = (5 * np.eye(40)[y] + 0.01 * rng.normal(size=(120, 40))) @ np.linalg.qr(rng.normal(size=(40, 40)))[0]
    X[0] = 0
    np.savez(tmp_path / "seen.npz", X=X, y=y)
    result = CliRunner().invoke(app, ["fit", str(tmp_path / "seen.npz"), "-o", str(tmp_path / "m")])
    assert result.exit_code == 0, result.output
    assert "separated almost perfectly" in " ".join(result.stdout.split())
    assert "almost perfectly" not in result.stderr
    assert "rows of X are all zero" in result.stderr
    quiet = CliRunner().invoke(app, ["fit", str(tmp_path / "seen.npz"), "-o", str(tmp_path / "m"), "--quiet"])
    assert "separated almost perfectly" in quiet.stderr


def test_on_a_terminal_the_stages_are_shown(
    fitted: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []

    class Terminal(Console):
        is_terminal = True

        def status(self, status, **options):
            found = super().status(status, **options)
            monkeypatch.setattr(found, "update", shown.append)
            return found

    monkeypatch.setattr(command, "Console", Terminal)
    said = run("fit", fitted[0] / "train.parquet", *QUICK, "-o", tmp_path / "m")
    assert any(re.fullmatch(r"fitting; done: \d+ heads without some classes: [0-9.]+ s", line) for line in shown)
    assert "heads without" not in said
    shown.clear()
    run("fit", fitted[0] / "train.parquet", *QUICK, "-o", tmp_path / "m", "--quiet")
    assert not shown
    assert OpenSetClassifier.load(tmp_path / "m").verbose is False


@pytest.mark.parametrize("suffix", ["parquet", "csv", "npz"])
def test_decisions_are_read_by_evaluate_as_they_are(fitted: tuple[Path, str], tmp_path: Path, suffix: str) -> None:
    folder, _ = fitted
    out = tmp_path / f"decisions.{suffix}"
    said = run("predict", folder / "model", folder / "test.parquet", "-o", out)
    columns = read_columns(out)
    assert list(columns) == ["text", "intent", "y_true", "prediction", "y_pred", "open_score", "p_value"]
    unknown = (columns["prediction"] == "unknown").sum()
    assert f"280 rows in {out}, {unknown} of them unknown." in said
    assert set(columns["y_true"]) == {*NAMES[:5], "-1"}
    model, test = OpenSetClassifier.load(folder / "model"), read_columns(folder / "test.parquet")
    np.testing.assert_array_equal(columns["prediction"], model.predict(test["embedding"]))
    (words,) = re.findall(r"`openauc (evaluate .*)`", said)
    found = json.loads(run(*shlex.split(words), "--json", "-", "--replicates", 20))
    expected = evaluate(*model.predictions(test["embedding"], test["intent"]), n_replicates=20)
    assert found["values"]["openauc"] == expected.openauc
    assert Predictions.load(out).y_true.tolist() == columns["y_true"].tolist()


def test_a_share_of_false_alarms_in_place_of_the_threshold(fitted: tuple[Path, str], tmp_path: Path) -> None:
    folder, _ = fitted
    run("predict", folder / "model", folder / "test.parquet", "-o", tmp_path / "d.csv", "--fdr", 0.2)
    model, test = OpenSetClassifier.load(folder / "model"), read_columns(folder / "test.parquet")
    expected = model.select_unknown(test["embedding"], fdr=0.2)
    np.testing.assert_array_equal(read_columns(tmp_path / "d.csv")["prediction"] == "unknown", expected)


def test_without_labels_there_is_nothing_to_evaluate(fitted: tuple[Path, str], tmp_path: Path) -> None:
    folder, _ = fitted
    bare = pq.read_table(folder / "test.parquet").drop_columns(["intent"])
    pq.write_table(bare, tmp_path / "bare.parquet")
    said = run("predict", folder / "model", tmp_path / "bare.parquet", "-o", tmp_path / "d.csv")
    assert "evaluate" not in said
    assert list(read_columns(tmp_path / "d.csv")) == ["text", "prediction", "y_pred", "open_score", "p_value"]
    known = folder / "train.parquet"
    assert "evaluate" not in run("predict", folder / "model", known, "-o", tmp_path / "d.csv")
    assert "y_true" in read_columns(tmp_path / "d.csv")


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_decisions_are_explained(fitted: tuple[Path, str], tmp_path: Path, suffix: str) -> None:
    folder, _ = fitted
    out, model = tmp_path / f"decisions{suffix}", OpenSetClassifier.load(folder / "model")
    said = run("predict", folder / "model", folder / "test.parquet", "-o", out, "--explain")
    columns = read_columns(out)
    explained = model.explain(np.stack(pq.read_table(folder / "test.parquet")["embedding"].to_pylist()))
    assert columns["explanation"].tolist() == explained.sentence.tolist()
    np.testing.assert_allclose(columns["p_unknown"], explained.p_unknown)
    assert f"assumes that {explained.unknown_share:.0%} of such rows are unknown (estimated from this file)" in said
    row = int(explained.nearest_rows[0, 0])
    assert columns["nearest_1"][0] == f"{NAMES[row // 40]}: {row}, a row"
    added = sum(columns[f"adds_{name}"] for name in explained.contributions)
    np.testing.assert_allclose(np.ptp(columns["open_score"] - added), 0.0, atol=1e-9)
    assert evaluate(*Predictions.load(out)).openauc > 0.9


def test_texts_can_be_left_out_of_a_model(fitted: tuple[Path, str], tmp_path: Path) -> None:
    folder, _ = fitted
    run("fit", folder / "train.parquet", *QUICK, "-o", tmp_path / "m", "-q", "--no-names")
    assert b", a row" not in (tmp_path / "m" / MODEL).read_bytes()
    out = tmp_path / "out.csv"
    said = run("predict", tmp_path / "m", folder / "test.parquet", "-o", out, "--explain", "--unknown-share", 0.25)
    assert "assumes that 25% of such rows are unknown (--unknown-share)." in said
    label, row = read_columns(out)["nearest_1"][0].split(": row ")
    assert NAMES[int(row) // 40] == label


def test_explaining_the_wrong_thing_is_refused(fitted: tuple[Path, str], tmp_path: Path) -> None:
    folder, _ = fitted
    words = ("predict", folder / "model", folder / "test.parquet", "-o", tmp_path / "out.csv")
    assert "--explain" in run(*words, "--explain", "--fdr", 0.1, code=2)
    assert "--unknown-share is 25.0" in run(*words, "--explain", "--unknown-share", 25, code=2)
    assert "--explain" in run(*words, "--unknown-share", 0.2, code=2)
    assert "--explain" in run("predict", tmp_path, "-o", tmp_path / "out.csv", "--explain", code=2)
    assert not (tmp_path / "out.csv").exists()


def test_another_encoder_is_noticed(fitted: tuple[Path, str], tmp_path: Path) -> None:
    folder, _ = fitted
    other = pq.read_table(folder / "test.parquet").replace_schema_metadata({"openauc.encoder": "mpnet"})
    pq.write_table(other, tmp_path / "other.parquet")
    words = ["predict", str(folder / "model"), str(tmp_path / "other.parquet"), "-o", str(tmp_path / "d.csv")]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0
    assert "was embedded by mpnet" in result.stderr
    assert "embeddings by minilm" in result.stderr


def test_a_page_on_the_model_and_on_tables(fitted: tuple[Path, str], tmp_path: Path) -> None:
    folder, _ = fitted
    assert run("report", folder / "model") == f"wrote {folder / 'model' / 'report.html'}\n"
    page = tmp_path / "page.html"
    run("report", folder / "model", folder / "test.parquet", "-o", page, "--replicates", 20)
    model, test = OpenSetClassifier.load(folder / "model"), read_columns(folder / "test.parquet")
    reached = evaluate(*model.predictions(test["embedding"], test["intent"]), level=None).openauc
    assert f"On “test”, {folder / 'model'} reaches an OpenAUC of {100 * reached:.1f}\xa0%" in page.read_text()
    table(tmp_path / "more.parquet", 7, seed=2)
    tables = (folder / "test.parquet", tmp_path / "more.parquet")
    run("report", folder / "model", *tables, "-o", page, "--replicates", 20)
    assert "On “test and more”, " in page.read_text()
    assert "400 known and 160 unknown test samples" in page.read_text()


def test_bad_input_of_fit_is_said_in_one_sentence(tmp_path: Path) -> None:
    out = ("-o", tmp_path / "m")
    assert "there is no file" in run("fit", tmp_path / "none.parquet", *out, code=2)
    train = table(tmp_path / "train.parquet", 3)
    said = run("fit", train, *out, "--label-column", "kind", code=2)
    assert "has no column 'kind', which --label-column names; it has 'text', 'intent', 'embedding'" in said
    assert "which --embedding-column names" in run("fit", train, *out, "--embedding-column", "e", code=2)
    pq.write_table(pq.read_table(train).drop_columns(["embedding"]), tmp_path / "texts.parquet")
    assert "no column of embeddings" in run("fit", tmp_path / "texts.parquet", *out, code=2)
    pq.write_table(pq.read_table(train).drop_columns(["intent"]), tmp_path / "bare.parquet")
    said = run("fit", tmp_path / "bare.parquet", *out, code=2)
    assert "no column of labels" in said
    assert "Name it with --label-column" in said
    assert "at least 2 classes" in run("fit", table(tmp_path / "one.parquet", 1), *out, code=2)
    assert "Did you mean 'learned'" in run("fit", train, *out, "--rejector", "learnt", code=2)
    assert "error: --head is 'svm'" in run("fit", train, *out, "--head", "svm", code=2)
    assert "expected one of" in run("fit", train, *out, "--threshold", "yuden", code=2)
    assert "--cost is 'known'" in run("fit", train, *out, "--threshold", "cost", "--cost", "known=2", code=2)
    assert not (tmp_path / "m").exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("dear")
    assert "holds files but no model" in run("fit", train, *QUICK, "-o", tmp_path / "mine", code=2)


def test_bad_input_with_a_model_is_said_in_one_sentence(fitted: tuple[Path, str], tmp_path: Path) -> None:
    folder, _ = fitted
    model, out = folder / "model", ("-o", tmp_path / "d.csv")
    assert "needs a table of embeddings" in run("predict", model, *out, code=2)
    assert "there is no file" in run("predict", model, tmp_path / "none.parquet", *out, code=2)
    np.savez(tmp_path / "wide.npz", embedding=np.ones((3, 9)), label=np.array(["ant", "bee", "x"]))
    said = run("predict", model, tmp_path / "wide.npz", *out, code=2)
    assert f"has 9 features for each sample, but {model} was fitted on 8; were they made by the same encoder?" in said
    assert "same encoder?" in run("report", model, tmp_path / "wide.npz", code=2)
    said = run("predict", tmp_path, folder / "test.parquet", *out, code=2)
    assert f"holds no model (no {MODEL}) and no training" in said
    assert "not a folder of a model or of a training" in run("predict", tmp_path / "modle", "t.csv", *out, code=2)
    assert "holds no trials" in run("report", tmp_path, code=2)
    assert "--fdr is 2" in run("predict", model, folder / "test.parquet", *out, "--fdr", 2, code=2)
    np.savez(tmp_path / "bare.npz", embedding=np.ones((3, 8)))
    assert "no column of labels" in run("report", model, tmp_path / "bare.npz", code=2)
    said = run("report", model, folder / "train.parquet", "-o", tmp_path / "page.html", code=2)
    assert "none of the 200 test samples is of a class the model does not know" in said
    assert not (tmp_path / "page.html").exists()
    assert "suffix '.txt'" in run("predict", model, folder / "test.parquet", "-o", tmp_path / "d.txt", code=2)
    assert not (tmp_path / "d.csv").exists()


def penguins(path: Path, seed: int = 0, *, classes: tuple[str, ...] = ("a", "b", "c")) -> Path:
    """A table of measurements in CSV, two of its cells empty."""
    rng = np.random.default_rng(seed)
    y = np.repeat(classes, 40)
    X = 6 * np.eye(4)[np.repeat(np.arange(len(classes)), 40)] + rng.normal(size=(len(y), 4))
    cells = [[f"{x:.3f}" for x in row] for row in X]
    cells[3][0], cells[9][2] = "", "NA"
    rows = [",".join([*row, "2007", label]) for row, label in zip(cells, y, strict=True)]
    path.write_text("\n".join(["length,depth,mass,wing,year,class", *rows]) + "\n")
    return path


def test_empty_cells_from_fit_to_predict(tmp_path: Path) -> None:
    train, model, out = penguins(tmp_path / "t.csv"), tmp_path / "m", tmp_path / "d.csv"
    said = run("fit", train, *QUICK, "-o", model, code=2)
    assert "cells are empty in 2 rows: 'length' in 1 row (line 5), 'mass' in 1 row (line 11)" in said
    assert "--missing drop or --missing median" in said
    assert not model.exists()
    said = run("fit", train, *QUICK, "--missing", "drop", "-o", model)
    assert "118 samples, 5 features (columns length, depth, mass, wing, year)" in said
    assert "dropped, as cells are empty: 2 rows" in said
    result = CliRunner().invoke(app, ["predict", str(model), str(train), "-o", str(out)])
    assert (result.exit_code, "2 rows have empty cells and are left out" in result.stderr) == (0, True)
    assert len(read_columns(out)["prediction"]) == 118
    assert "120 samples" in run("fit", train, *QUICK, "--missing", "median", "-o", model)
    assert "120 rows in" in run("predict", model, train, "-o", out)
    assert OpenSetClassifier.load(model).table_spec_.missing == "median"
    (tmp_path / "new.csv").write_text("wing,length,depth\n1,2,3\n")
    said = run("predict", model, tmp_path / "new.csv", "-o", out, code=2)
    assert "lacks 2 of the 5 feature columns that the model was fitted on: 'mass', 'year'" in said


def test_empty_labels_stop_a_fit(tmp_path: Path) -> None:
    train = tmp_path / "t.csv"
    train.write_text(penguins(train).read_text().replace("2007,b\n", "2007,\n", 2))
    said = run("fit", train, "--missing", "drop", "-o", tmp_path / "m", code=2)
    assert "'class' of labels is empty in 2 rows (line 42, line 43). Label these rows, or drop them." in said


def test_a_word_for_none_of_the_classes_is_noticed(tmp_path: Path) -> None:
    words = ("fit", penguins(tmp_path / "t.csv", classes=("a", "b", "other")), "--missing", "drop", *QUICK)
    out = ("-o", tmp_path / "m")
    assert "hint: 'other' is learned as a class, of 40 rows" in run(*words, *out)
    assert "add --unknown-label other" in run(*words, *out)
    assert "hint" not in run(*words, *out, "--unknown-label", "other")
    assert OpenSetClassifier.load(tmp_path / "m").classes_.tolist() == ["a", "b"]
    penguins(tmp_path / "t.csv", classes=("a", "b", "unknown"))
    assert "hint" not in run(*words, *out)


def test_a_column_of_groups(fitted: tuple[Path, str], tmp_path: Path) -> None:
    train = table(tmp_path / "t.parquet", 3, author=[f"author {i // 2}" for i in range(120)])
    run("fit", train, *QUICK, "--group-column", "author", "-o", tmp_path / "m")
    assert OpenSetClassifier.load(tmp_path / "m").classes_.tolist() == ["ant", "bee", "cat"]
    said = run("fit", train, "--group-column", "writer", "-o", tmp_path / "m", code=2)
    assert "no column 'writer', which --group-column names" in said


def test_small_classes_are_told(fitted: tuple[Path, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = OpenSetClassifier.load(fitted[0] / "model")
    model.report_ = replace(model.report_, small_classes=("ant", "gnu"))
    command._show_fit(model, 1.0)
    assert "small classes  'ant', 'gnu': too few rows" in capsys.readouterr().out
    model.save(tmp_path / "m")
    said = run("predict", tmp_path / "m", fitted[0] / "test.parquet", "-o", tmp_path / "d.csv")
    given = [row["prediction"] for row in csv.DictReader((tmp_path / "d.csv").open())].count("ant")
    assert f"{given} rows are given to classes" in said
    assert f"'ant' {given}." in said


@pytest.fixture(scope="module")
def drifted(fitted: tuple[Path, str]) -> Path:
    """Rows of the same classes, and others, that are more spread than those of training."""
    columns = pq.read_table(fitted[0] / "test.parquet")
    noise = np.random.default_rng(0).normal(size=(columns.num_rows, 8))
    moved = np.stack(columns["embedding"].to_numpy()) + noise
    place = columns.column_names.index("embedding")
    file = fitted[0] / "drifted.parquet"
    pq.write_table(columns.set_column(place, "embedding", [moved.astype(np.float32).tolist()]), file)
    return file


@pytest.mark.parametrize("suffix", ["csv", "parquet", "npz"])
def test_a_promise_that_fails_is_said(fitted: tuple[Path, str], drifted: Path, tmp_path: Path, suffix: str) -> None:
    model, out = fitted[0] / "model", tmp_path / f"d.{suffix}"
    said = run("predict", model, drifted, "-o", out)
    assert " ".join(said.split()).startswith(f"{model} on {drifted}: decisions at the model's own threshold")
    line = next(line for line in said.splitlines() if "known rows accepted" in line)
    columns = read_columns(out)
    known = columns["y_true"] != "-1"
    accepted = (columns["prediction"] == columns["y_pred"])[known].mean()
    assert f"{accepted:.4f}" in line
    assert "guaranteed: about 0.95" in line
    assert "FAILED" in line
    assert "classifier.calibrate(X, y)" in said
    (words,) = re.findall(r"`openauc (evaluate .*)`", said)
    assert ("--acceptance 0.95" in words) == (suffix == "csv")
    again = run(*shlex.split(words), "--replicates", 20)
    assert " ".join(again.split()).startswith(f"{out}: decisions at the model's own threshold")
    assert line.split()[:8] == next(one for one in again.splitlines() if "known rows accepted" in one).split()[:8]
    assert "FAILED" in again
    found = json.loads(run(*shlex.split(words), "--replicates", 20, "--json", "-"))
    assert found["verdict"]["failed"]
    assert found["verdict"]["findings"][0]["value"] == accepted
    bare = run("evaluate", out, "--replicates", 20)
    assert ("guaranteed" in bare) == (suffix != "csv")
    assert "known rows accepted" in bare


def test_a_promise_that_is_kept_is_said(fitted: tuple[Path, str], tmp_path: Path) -> None:
    said = run("predict", fitted[0] / "model", fitted[0] / "test.parquet", "-o", tmp_path / "d.csv")
    assert re.search(r"known rows accepted .* guaranteed: about 0.95 +kept", said)
    assert re.search(r"OpenAUC .* forecast: \d", said)
    assert "FAILED" not in said
    by_rate = run("predict", fitted[0] / "model", fitted[0] / "test.parquet", "-o", tmp_path / "d.csv", "--fdr", 0.2)
    assert "known rows accepted" in by_rate
    assert "guaranteed" not in by_rate


def test_the_page_begins_with_the_verdict(fitted: tuple[Path, str], drifted: Path, tmp_path: Path) -> None:
    model, page = fitted[0] / "model", tmp_path / "page.html"
    run("report", model, drifted, "-o", page, "--replicates", 20)
    text = page.read_text()
    first = text.index("<h1>")
    assert text[first:].startswith(f"<h1>On “drifted”, “{model}” does not keep its guarantee")
    assert "FAILED" in text
    run("report", model, fitted[0] / "test.parquet", "-o", page, "--replicates", 20)
    assert f"<h1>On “test”, “{model}” keeps its guarantee and meets its forecast.</h1>" in page.read_text()


def test_the_page_shows_texts_and_images_of_rows(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    y = np.repeat([f"class {c}" for c in range(6)], 30)
    X = (3 * np.repeat(np.eye(6, 8), 30, axis=0) + rng.normal(size=(180, 8))).astype(np.float32)
    for row in range(180):
        Image.new("RGB", (200, 100), (row, 9, 9)).save(tmp_path / f"{row}.png")
    train, test = np.flatnonzero(y < "class 4"), np.flatnonzero((y >= "class 4") | (np.arange(180) % 3 == 0))
    for name, rows in {"train": train, "test": test, "one": test[:50], "two": test[50:]}.items():
        np.savez(tmp_path / f"{name}.npz", image=[f"{row}.png" for row in rows], embedding=X[rows], label=y[rows])
    model, page = tmp_path / "model", tmp_path / "page.html"
    run("fit", tmp_path / "train.npz", "-o", model, "-q", *QUICK)
    found = []
    for names in (["test"], ["one", "two"]):  # two tables are one
        run("report", model, *(tmp_path / f"{name}.npz" for name in names), "-o", page, "--replicates", 20)
        found += re.findall(r'<section id="examples">.*?(<h3>.*?)</section>', page.read_text(), re.S)
    assert len(found) == 2
    assert found[0] == found[1]
    cards = re.findall(r'<li class="card"><img src="data:image/jpeg;base64,[^"]*" alt="(\d+).png"', found[0])
    assert len(cards) == found[0].count('<li class="card">') > 12
    assert set(map(int, cards)) <= set(test.tolist())
    assert max(map(int, cards)) > test[50]
    assert len(re.findall(r'<li><img src="data:image/jpeg', found[0])) == 3 * len(cards)
