"""The commands on files of predictions, through the real command line."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import openauc
from openauc import Predictions
from openauc.cli import app

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
TRIPLE = ([0, 1, 1, 0, -1, -1, -1], [0, 1, 0, 0, 1, 0, 1], [0.1, 0.6, 0.2, 0.3, 0.5, 0.9, 0.7])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "model.npz"
    Predictions.of(*TRIPLE).save(path)
    return path


def run(*arguments: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == code, result.output + result.stderr
    return result.stdout if code == 0 else result.stderr


def write_csv(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_evaluate_prints_every_metric(file: Path) -> None:
    text = run("evaluate", file, "--replicates", 50)
    for label in (metric.label for metric in openauc.METRICS.values()):
        assert label in text
    assert f"{openauc.openauc_score(*TRIPLE):.4f}" in text
    assert "4 known, 3 unknown" in text


def test_evaluate_json_is_the_evaluation(file: Path, tmp_path: Path) -> None:
    run("evaluate", file, "--json", tmp_path / "out.json", "--replicates", 50)
    values = json.loads((tmp_path / "out.json").read_text())
    assert openauc.Evaluation.from_dict(values) == openauc.evaluate(*TRIPLE, n_replicates=50)
    assert {"n_known", "n_unknown", "values", "intervals", "thresholds"} <= values.keys()
    assert "curves" not in values


def test_json_dash_prints_json_only(file: Path) -> None:
    values = json.loads(run("evaluate", file, "--json", "-", "--curves", "--replicates", 50))
    assert values["values"]["openauc"] == openauc.openauc_score(*TRIPLE)
    assert values["curves"]["oscr"]["x"][0] == 0.0


def test_several_files_are_keyed_by_path(file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.csv"
    Predictions.of(*TRIPLE).save(other)
    values = json.loads(run("evaluate", file, other, "--json", "-", "--replicates", 50))
    assert values[str(file)] == values[str(other)]


def test_options_reach_the_metrics(file: Path, tmp_path: Path) -> None:
    tied = tmp_path / "tied.npz"
    Predictions.of([0, -1], [0, 0], [1.0, 1.0]).save(tied)
    strict = json.loads(run("evaluate", tied, "--json", "-", "--ties", "strict", "--replicates", 10))
    assert strict["values"]["openauc"] == 0.0
    part = json.loads(run("evaluate", file, "--json", "-", "--max-ofpr", 0.5, "--replicates", 10))
    assert part["values"]["partial_openauc"] == openauc.openauc_score(*TRIPLE, max_ofpr=0.5)
    wide, narrow = (
        json.loads(run("evaluate", file, "--json", "-", "--level", level, "--replicates", 10))["intervals"]["openauc"]
        for level in (0.99, 0.5)
    )
    assert wide[0] < narrow[0]
    assert narrow[1] < wide[1]


def test_columns_unknown_label_and_direction(tmp_path: Path) -> None:
    path = write_csv(
        tmp_path / "mine.csv",
        "label,guess,confidence\ncat,cat,0.9\ndog,dog,0.4\nother,cat,0.5\nother,dog,0.1\n",
    )
    text = run(
        *(
            "evaluate",
            path,
            "--json",
            "-",
            "--replicates",
            10,
            "--lower-is-unknown",
            "--unknown-label",
            "other",
        ),
        *("--label-column", "label", "--pred-column", "guess", "--score-column", "confidence"),
    )
    assert json.loads(text)["values"]["openauc"] == 0.75


def test_legacy_is_shown_and_stored(file: Path) -> None:
    assert "arpl_oscr" in run("evaluate", file, "--legacy", "--replicates", 10)
    rows = json.loads(run("evaluate", file, "--legacy", "--json", "-", "--replicates", 10))["legacy"]
    assert {row["name"] for row in rows} >= {"arpl_oscr", "vaze_error_at_tpr"}


def test_compare(tmp_path: Path, file: Path) -> None:
    worse = tmp_path / "worse.csv"
    Predictions.of(TRIPLE[0], [1, 0, 0, 0, 1, 0, 1], TRIPLE[2]).save(worse)
    text = run("compare", file, worse)
    assert "model" in text
    assert "worse" in text
    rows = json.loads(run("compare", file, worse, "--json", "-"))["differences"]
    expected = openauc.openauc_score(*TRIPLE) - openauc.openauc_score(*Predictions.load(worse))
    assert rows[0]["difference"] == pytest.approx(expected)
    third = tmp_path / "third.npz"
    Predictions.of(*TRIPLE).save(third)
    assert "p (Holm)" in run("compare", file, worse, third, "--baseline", file, "--metric", "auroc")


def test_compare_names_files_by_folder_where_stems_clash(tmp_path: Path, file: Path) -> None:
    (tmp_path / "b").mkdir()
    Predictions.of(*TRIPLE).save(tmp_path / "b" / file.name)
    assert json.loads(run("compare", file, tmp_path / "b" / file.name, "--json", "-"))["names"] == [
        tmp_path.name,
        "b",
    ]


def test_audit(file: Path) -> None:
    assert "Table 1" in run("audit", file)
    assert json.loads(run("audit", file, "--json", "-"))["table1"]["OpenAUC"]["P4"]["answer"] == "yes"


def test_audit_says_what_it_could_not_show(tmp_path: Path) -> None:
    perfect = tmp_path / "perfect.npz"
    Predictions.of([0, 1, -1, -1], [0, 1, 0, 0], [1.0, 2.0, 3.0, 4.0]).save(perfect)
    assert "– " in run("audit", perfect)


def test_threshold(file: Path) -> None:
    assert "label a sample unknown when its score >" in run("threshold", file, "--target", "macro_f_score")
    point = json.loads(run("threshold", file, "--target", "known_acceptance=0.5", "--json", "-"))
    assert point["threshold"] == 0.3
    cost = run("threshold", file, "--target", "cost", "--cost", "unknown_accepted=5", "--cost", "unknown_share=0.1")
    assert "expected cost" in cost
    assert "confidence <" in run("threshold", file, "--target", "unknown_recall=0.5", "--lower-is-unknown")


def test_version() -> None:
    assert run("--version").strip() == openauc.__version__


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("short.csv", "y_true,y_pred\n0,0\n", "no column 'open_score'"),
        ("nan.csv", "y_true,y_pred,open_score\n0,0,1\n-1,0,nan\n", "open_score is NaN for sample 1"),
        ("known.csv", "y_true,y_pred,open_score\n0,0,1\n1,0,2\n", "there is no unknown sample"),
        ("unknown.csv", "y_true,y_pred,open_score\n-1,0,1\n-1,0,2\n", "there is no known sample"),
        ("ragged.csv", "y_true,y_pred,open_score\n0,0\n", "line 2 has 2 values"),
        ("corrupt.npz", "not a zip", "not a readable .npz"),
        ("table.txt", "", "suffix '.txt'"),
    ],
)
def test_bad_files_end_in_one_sentence(tmp_path: Path, name: str, text: str, sentence: str) -> None:
    message = run("evaluate", write_csv(tmp_path / name, text), code=2)
    assert sentence in message
    assert message.startswith("error: ")
    assert len(message.strip().splitlines()) == 1


def test_wrong_length_in_npz(tmp_path: Path) -> None:
    np.savez(tmp_path / "short.npz", y_true=[0, -1], y_pred=[0, 0], open_score=[1.0])
    assert "open_score has 1 entries but y_true has 2" in run("evaluate", tmp_path / "short.npz", code=2)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("evaluate", "missing.npz"), "there is no file missing.npz"),
        (("threshold", "FILE", "--target", "luck"), "expected one of known_acceptance"),
        (("threshold", "FILE", "--target", "known_acceptance=most"), "must read NAME=NUMBER"),
        (("threshold", "FILE", "--target", "cost", "--cost", "5"), "must read NAME=NUMBER"),
        (("compare", "FILE"), "at least two models"),
        (("evaluate", "FILE", "--json", "no/such/folder/out.json"), "does not exist"),
        (("evaluate", "FILE", "--level", "95"), "not a percentage"),
    ],
)
def test_bad_options_end_in_one_sentence(file: Path, arguments: tuple[str, ...], sentence: str) -> None:
    assert sentence in run(*(file if a == "FILE" else a for a in arguments), code=2)


def test_warning_about_direction_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "reversed.npz"
    Predictions.of([0, 1, -1, -1], [0, 1, 0, 0], [3.0, 4.0, 1.0, 2.0]).save(path)
    result = CliRunner().invoke(app, ["evaluate", str(path), "--replicates", "10"])
    assert result.stderr.startswith("warning: AUROC is 0.0000")
    assert "--lower-is-unknown" in result.stderr


def test_no_traceback_unless_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAUC_TRACEBACK", "1")
    assert isinstance(CliRunner().invoke(app, ["evaluate", "missing.npz"]).exception, FileNotFoundError)


def test_installed_command_on_the_shipped_examples() -> None:
    """The README's first command, as a user types it."""
    command = [
        Path(sys.executable).with_name("openauc"),
        "compare",
        EXAMPLES / "network.npz",
        EXAMPLES / "linear.npz",
    ]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "closed_set_accuracy" in output


def test_shipped_examples_are_small_and_hold_no_pickles() -> None:
    files = sorted(EXAMPLES.glob("*.npz"))
    assert len(files) == 2
    assert sum(file.stat().st_size for file in files) < 200_000
    a, b = map(Predictions.load, files)  # allow_pickle is never set
    assert np.array_equal(a.y_true, b.y_true)
