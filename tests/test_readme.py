"""The README says what the program does."""

import json
import re
import shlex
from pathlib import Path

import numpy as np
from typer.testing import CliRunner

from openauc.cli import app

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()


def test_shown_output_is_what_the_command_prints(monkeypatch) -> None:
    monkeypatch.chdir(ROOT)
    command, shown = re.search(r"```\n\$ openauc (.*)\n((?:.*\n)*?)```", README).groups()
    printed = CliRunner().invoke(app, shlex.split(command)).stdout
    assert [line.rstrip() for line in printed.strip().splitlines()] == shown.rstrip().splitlines()


def test_python_example_runs(capsys) -> None:
    code = re.search(r"```python\n(.*?)```", README, re.DOTALL).group(1)
    assert len(code.strip().splitlines()) == 5
    rng = np.random.default_rng(0)
    y_true = np.repeat([0, 1, -1], 40)
    names = {"y_true": y_true, "y_pred": np.abs(y_true), "open_score": rng.normal(y_true < 0)}
    exec(code, names)
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
