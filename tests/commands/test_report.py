"""``openauc report`` on files and on a store."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result
from typer.testing import CliRunner

from openauc import Predictions
from openauc.bench.store import Store
from openauc.bench.trial import TrialResult, TrialSpec
from openauc.cli import app


def invoke(*words: object) -> Result:
    return CliRunner().invoke(app, ["report", *map(str, words)])


def run(*words: object, code: int = 0) -> str:
    result = invoke(*words)
    assert result.exit_code == code, result.output + repr(result.exception)
    return result.stdout if code == 0 else result.stderr


@pytest.fixture
def file(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    y_true = np.repeat([0, 1, -1], 30)
    y_pred = np.where(rng.random(90) < 0.9, np.maximum(y_true, 0), 1)
    triple = Predictions.of(y_true, y_pred, rng.normal(size=90) + (y_true == -1))
    origin = np.where(y_true == -1, "fox", y_true.astype(str))
    triple.save(tmp_path / "mine.npz", extra={"origin": origin})
    return tmp_path / "mine.npz"


def data_in(path: Path) -> dict[str, Any]:
    found = re.search(r'id="data">(.*?)</script>', path.read_text(), re.S)
    assert found is not None
    data: dict[str, Any] = json.loads(found.group(1))
    return data


def test_a_page_from_files(file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.csv"
    Predictions.load(file).save(other)
    out = tmp_path / "page.html"
    assert run(file, other, "-o", out, "--replicates", 20) == f"wrote {out}\n"
    assert [model["name"] for model in data_in(out)["models"]] == ["mine", "other"]


def test_the_page_is_here_unless_told(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run(file, "--replicates", 20)
    assert (tmp_path / "report.html").is_file()


@pytest.mark.parametrize(("name", "text"), [("a.txt", "cat\ndog\n"), ("a.json", '{"0": "cat", "1": "dog"}')])
def test_names_of_classes(file: Path, tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    out = tmp_path / "page.html"
    options = ("--class-names", tmp_path / name, "--origin-column", "origin", "--replicates", 20)
    run(file, "-o", out, *options)
    (model,) = data_in(out)["models"]
    assert model["classes"]["name"] == ["cat", "dog"]
    assert model["origins"]["name"] == ["fox"]


def test_files_of_one_name_are_told_by_their_folders(file: Path, tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        Predictions.load(file).save(tmp_path / folder / "predictions.npz")
    out = tmp_path / "page.html"
    run(*(tmp_path / folder / "predictions.npz" for folder in ("one", "two")), "-o", out, "--replicates", 20)
    assert [model["name"] for model in data_in(out)["models"]] == ["one", "two"]


def test_a_page_from_a_store(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    spec = TrialSpec.of("digits", 0, "softmax", epochs=1)
    store.plan([spec])
    store.save(TrialResult(spec=spec, metrics=dict.fromkeys(("openauc", "auroc", "closed_set_accuracy"), 0.9)))
    run(store.root)
    assert "softmax reaches OpenAUC" in (store.root / "report.html").read_text()


def test_a_confidence_is_turned_round(file: Path, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    triple = Predictions.load(file)
    triple._replace(open_score=-triple.open_score).save(tmp_path / "confidence.npz")
    run(tmp_path / "confidence.npz", "--lower-is-unknown", "-o", out, "--replicates", 20)
    data = data_in(out)
    assert data["flipped"] is True
    assert data["models"][0]["openauc"] > 0.5


def test_errors_are_one_sentence(file: Path, tmp_path: Path) -> None:
    assert "pass one store alone" in run(tmp_path, file, code=2)
    assert "holds no trials" in run(tmp_path, code=2)
    assert "there is no file" in run(tmp_path / "none.npz", code=2)
    assert "named twice" in run(file, file, code=2)
    assert "is 'real'; expected one of 'y_true'" in run(file, "--origin-column", "real", code=2)
    names = tmp_path / "names.json"
    bad = {b"{": "not JSON", b"3": "neither a list", b"\xff\xfe\x00": "not text in UTF-8", b"[" * 9**5: "nested"}
    for text, message in bad.items():
        names.write_bytes(text)
        assert message in run(file, "--class-names", names, code=2)
    assert not (tmp_path / "report.html").exists()


def test_options_of_the_metrics_reach_the_page(file: Path, tmp_path: Path) -> None:
    tied, page = tmp_path / "tied.npz", tmp_path / "page.html"
    Predictions.of([0, 1, -1, -1], [0, 1, 0, 1], [1.0, 1.0, 1.0, 1.0]).save(tied)
    options = ("--replicates", "20", "--report", str(page))
    for ties, value in ((), "50.0"), (("--ties", "strict", "--max-ofpr", "0.1"), "0.0"):
        result = CliRunner().invoke(app, ["evaluate", str(tied), *options, *ties])
        assert result.exit_code == 0, result.output
        assert f"tied reaches an OpenAUC of {value}\u00a0%" in page.read_text()
        assert ("partial OpenAUC, OFPR &lt;= 0.1" in page.read_text()) == bool(ties)


def test_a_page_goes_through_links_and_pipes(file: Path, tmp_path: Path) -> None:
    (tmp_path / "link.html").symlink_to(tmp_path / "real.html")
    run(file, "-o", tmp_path / "link.html", "--replicates", 20)
    assert (tmp_path / "link.html").is_symlink()
    assert "<!doctype html>" in (tmp_path / "real.html").read_text()
    command = [sys.executable, "-c", "from openauc.cli import main; main()", "report", file, "-o", "/dev/stdout"]
    found = subprocess.run([*command, "--replicates", "20"], capture_output=True, text=True, check=True)
    assert found.stdout.startswith("<!doctype html>")
    assert found.stdout.rstrip().endswith("</html>")
    assert found.stderr == "wrote /dev/stdout\n"
    assert run(file, "-o", "/dev/full", "--replicates", 20, code=2) == "error: /dev/full: No space left on device.\n"


def test_names_are_no_markup(file: Path, tmp_path: Path) -> None:
    named = tmp_path / "exp[lr=0.1]<b>.npz"
    Predictions.load(file).save(named)
    run(named, "-o", tmp_path / "page.html", "--replicates", 20)
    assert data_in(tmp_path / "page.html")["models"][0]["name"] == "exp[lr=0.1]<b>"
    assert "exp[lr=0.1]&lt;b&gt; reaches" in (tmp_path / "page.html").read_text()
    shown = CliRunner().invoke(app, ["report", "--help"]).stdout
    assert "{label: name} or [name, ...]" in " ".join(shown.replace("│", " ").split())


def test_evaluate_writes_the_same_page(file: Path, tmp_path: Path) -> None:
    pages = [tmp_path / "one.html", tmp_path / "other.html"]
    run(file, "-o", pages[0], "--replicates", 20)
    result = CliRunner().invoke(app, ["evaluate", str(file), "--replicates", "20", "--report", str(pages[1])])
    assert result.exit_code == 0, result.output
    assert data_in(pages[0]) == data_in(pages[1])
