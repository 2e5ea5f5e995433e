"""README and "Start here" say what the program does, and README stays short."""

import csv
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from openauc.cli import app

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
START = (ROOT / "docs/start.md").read_text()


def commands_shown(page: str) -> list[str]:
    """Blocks of commands, each after a dollar sign, and what they print."""
    return re.findall(r"^```\n(\$ .*?)^```$", page, re.DOTALL | re.MULTILINE)


SHOWN = commands_shown(README)
STORIES = [SHOWN[0] + SHOWN[1], *SHOWN[2:], *commands_shown(START)]
"""The same, where a block goes on with the files of the one before."""
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
        for block in STORIES
        for command in block.split()[2:3]
    ],
)
def test_shown_output_is_what_the_commands_print(block: str) -> None:
    for command, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE):
        printed = [line.rstrip() for line in printed_by(command).strip().splitlines()]
        lines = shown.rstrip().splitlines()
        if lines[-1:] == ["..."]:  # the rest is left out
            printed[len(lines) - 1 :] = ["..."]
        assert printed == lines
    if "model2" in block:
        for text, before, after in (
            ("Please cancel my household insurance.", "dispute", "insurance"),
            ("How do I bake bread?", "unknown", "adviser"),
        ):
            assert f'"{text}", first taken for `{before}`, is now `{after}`' in " ".join(README.split())
            for name, answer in (("before.csv", before), ("after.csv", after)):
                with Path(name).open() as file:
                    assert {row["text"]: row["prediction"] for row in csv.DictReader(file)}[text] == answer


def test_readme_is_short() -> None:
    assert [block.split()[2] for block in SHOWN] == ["embed", "predict", "evaluate"]
    assert len(README.splitlines()) <= 150
    assert [line for line in README.splitlines() if len(line) > 150 and "alt=" not in line] == []


def test_start_here_shows_questions_and_what_was_said_of_them() -> None:
    (block,) = commands_shown(START)
    answers = block.rpartition("text,prediction\n")[2].splitlines()
    with (ROOT / "examples/questions.csv").open() as file:
        assert [row["text"] for row in csv.DictReader(file)] == [line.rpartition(",")[0] for line in answers]
    unknown = sum(line.endswith(",unknown") for line in answers)
    assert f"{len(answers)} rows in decisions.csv, {unknown} of them unknown." in block
    assert "Four of the questions belong to no intent of this bank. Three of them are called unknown" in START
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


@pytest.mark.slow
@pytest.mark.usefixtures("beside_examples")
def test_the_first_run_leaves_a_model_and_rows_to_discover() -> None:
    program = [sys.executable, "examples/add_unknown.py"]
    printed = subprocess.run(program, capture_output=True, text=True, check=True).stdout
    shares = [float(share) for share in re.findall(r"([\d.]+)%$", printed, re.MULTILINE)]
    assert len(shares) == 3
    assert min(shares) > 90
    (tried,) = re.findall(r'echo "try +\S+/openauc (.*)"', (ROOT / "Makefile").read_text())
    assert "4 groups" in printed_by(f"openauc {tried}")
