"""The README says what the program does."""

import csv
import json
import re
import shlex
import subprocess
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from openauc.cli import app

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()


SHOWN = re.findall(r"^```\n(\$ .*?)^```$", README, re.DOTALL | re.MULTILINE)
"""Blocks of commands, each after a dollar sign, and what they print."""
PYTHON = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.fixture
def beside_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder to write to, with the examples in it."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)


def printed_by(command: str) -> str:
    program, *arguments = shlex.split(command)
    if program != "openauc":
        return subprocess.run([program, *arguments], capture_output=True, text=True, check=True).stdout
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.usefixtures("beside_examples")
@pytest.mark.parametrize(
    "block",
    [
        pytest.param(block, id=command, marks=[pytest.mark.slow] * (command == "embed"))
        for block in SHOWN
        for command in block.split()[2:3]
    ],
)
def test_shown_output_is_what_the_commands_print(block: str) -> None:
    for command, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE):
        printed = [line.rstrip() for line in printed_by(command).strip().splitlines()]
        assert printed == shown.rstrip().splitlines()


def test_it_opens_with_sentences_and_what_was_said_of_them() -> None:
    assert [block.split()[2] for block in SHOWN] == ["embed", "evaluate"]
    answers = SHOWN[0].rpartition("text,prediction\n")[2].splitlines()
    with (ROOT / "examples/questions.csv").open() as file:
        assert [row["text"] for row in csv.DictReader(file)] == [line.rpartition(",")[0] for line in answers]
    unknown = sum(line.endswith(",unknown") for line in answers)
    assert f"{len(answers)} rows in decisions.csv, {unknown} of them unknown." in SHOWN[0]
    assert "Four of the questions belong to no intent; three are called unknown" in README
    assert unknown == 3


@pytest.mark.slow
def test_python_from_sentences_to_decisions(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(PYTHON[0].strip().splitlines()) == 5
    with (ROOT / "examples/intents.csv").open() as file:
        rows = list(csv.DictReader(file))
    columns = {"sentences": [row["text"] for row in rows], "intents": [row["label"] for row in rows]}
    exec(PYTHON[0], columns)
    (shown,) = re.findall(r"# (\[.*\])$", PYTHON[0], re.MULTILINE)
    assert capsys.readouterr().out.strip() == shown


def test_python_evaluates_predictions(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(PYTHON[1].strip().splitlines()) == 5
    rng = np.random.default_rng(0)
    y_true = np.repeat([0, 1, -1], 40)
    names = {"y_true": y_true, "y_pred": np.abs(y_true), "open_score": rng.normal(y_true < 0)}
    exec(PYTHON[1], names)
    assert "Interval" in capsys.readouterr().out
    assert set(names["labels"]) <= {0, 1, -1}


def test_files_it_points_to_exist() -> None:
    targets = re.findall(r'\]\(([^)#]+)\)|`((?:examples|docs|benchmark)/[\w./]+)`|(?:src|srcset)="([^"]+)"', README)
    paths = [path for found in targets for path in found if path and not path.startswith(("http", "docs/_build"))]
    assert paths
    assert [path for path in paths if not (ROOT / path).exists()] == []


def newest(benchmark: str) -> dict:
    file = max((ROOT / "benchmark/results").glob(f"{benchmark}_*.json"), key=lambda file: file.stem[-6:])
    return json.loads(file.read_text())


def cells(benchmark: str, metric: str) -> dict[tuple[str, str], dict]:
    """Cells of the newest table, by method and protocol."""
    tables = {table["metric"]: table for table in newest(benchmark)["tables"]}
    return {(cell["method"], cell["protocol"]): cell for cell in tables[metric]["cells"]}


SPREAD = r"\| ([^|]+ ± [^|]+) "


def spread(cell: dict) -> str:
    return f"{100 * cell['mean']:.1f} ± {100 * cell['std_population']:.1f}"


def test_results_on_digits_are_those_the_program_wrote() -> None:
    openauc, accuracy = (cells("digits", metric) for metric in ("openauc", "closed_set_accuracy"))
    rows = re.findall(r"^\| (\w+) \| ([^|]+ ± [^|]+) \| ([^|]+ – [^|]+) \| ([^|]+) \|$", README, re.MULTILINE)
    assert len(rows) == 9
    for method, value, interval, correct in rows:
        cell = openauc[method, "digits"]
        assert value == spread(cell)
        assert interval == " – ".join(f"{100 * bound:.1f}" for bound in cell["interval"])
        assert correct == f"{100 * accuracy[method, 'digits']['mean']:.1f}"


def test_results_of_table2_are_those_the_program_wrote() -> None:
    openauc = cells("table2_cpu", "openauc")
    rows = re.findall(rf"^\| (\w+) {SPREAD * 4}\|$", README, re.MULTILINE)
    assert len(rows) == 9
    for method, *values in rows:
        assert values == [spread(openauc[method, name]) for name in ("mnist", "cifar10", "cifar+10", "cifar+50")]


def test_results_of_central_are_those_the_program_wrote() -> None:
    metrics = [cells("central", metric) for metric in ("openauc", "auroc", "closed_set_accuracy")]
    rows = re.findall(rf"^\| (\w+) {SPREAD * 3}\|$", README, re.MULTILINE)
    assert len(rows) == 3
    for method, *values in rows:
        assert values == [spread(metric[method, "cifar10"]) for metric in metrics]


def test_results_of_mnist_are_those_the_program_wrote() -> None:
    for row in newest("mnist_plus")["rows"]:
        low, high = row["intervals"]["openauc"]
        assert f"{100 * row['openauc']:.2f} [{100 * low:.2f}, {100 * high:.2f}] for" in README


def test_results_of_search_are_those_the_program_wrote() -> None:
    selection, confirmation = newest("search_digits")["parts"].values()
    winner = next(row for row in confirmation if row["label"].startswith("openauc"))
    assert winner["label"] == selection[1]["label"]  # the first after CE+
    low, high = winner["interval"]
    gain = f"{100 * winner['difference']:.1f} [{100 * low:.1f}, {100 * high:.1f}] points"
    assert f"{gain}, in {winner['wins']} of {winner['n']} pairs" in README
    assert f"of {sum(row['label'].startswith('openauc') for row in selection)} forms" in README
