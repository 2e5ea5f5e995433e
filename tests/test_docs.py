"""The documentation is complete, and its first page runs."""

import ast
import importlib
import pkgutil
import re
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

import openauc
from openauc.methods import load_method, method_names

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
SHOWN_ON = ("docs/index.md", "README.md")
"""Where the same first example stands; `test_readme.py` runs it."""
PACKAGES = ["openauc", *(f"openauc.{found.name}" for found in pkgutil.iter_modules(openauc.__path__) if found.ispkg)]


def documented() -> list[object]:
    """What the autosummary tables of the API pages name, as objects."""
    found: list[object] = [openauc.UNKNOWN]
    for page in (DOCS / "api").glob("*.rst"):
        module = ""
        for line in page.read_text().splitlines():
            if line.startswith(".. currentmodule:: "):
                module = line.split()[-1]
            elif re.fullmatch(r"   [\w.]+", line) and module:
                found.append(resolved(f"{module}.{line.strip()}"))
    return found


def resolved(path: str) -> object:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_is_in_the_reference(package: str) -> None:
    module = importlib.import_module(package)
    names = getattr(module, "__all__", [])
    known = documented()
    assert [name for name in names if not any(getattr(module, name) is thing for thing in known)] == []


def test_every_method_is_in_the_reference() -> None:
    assert {load_method(name) for name in method_names()} <= {
        thing for thing in documented() if isinstance(thing, type)
    }


@pytest.fixture
def first_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Code of "Start here" by the name of its tab, in a folder with the CSV file the page shows."""
    tabs = re.split(r":::\{tab-item\} (.*)\n", (DOCS / "start.md").read_text())
    code = {
        name: re.search(r"```python\n(.*?)```", text, re.DOTALL)[1]
        for name, text in zip(tabs[1::2], tabs[2::2], strict=True)
    }
    shown = re.search(r"```text\n(.*?)```", tabs[-1], re.DOTALL)[1]
    (tmp_path / "predictions.csv").write_text(shown)
    monkeypatch.chdir(tmp_path)
    return code


@pytest.mark.parametrize("tab", ["PyTorch", "scikit-learn", "JAX", "A CSV file"])
def test_first_evaluation_runs(tab: str, first_page: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    y_true, logits = np.repeat([0, 1, -1], 20), rng.normal(size=(60, 2))
    if tab == "PyTorch":
        y_true, logits = torch.from_numpy(y_true), torch.from_numpy(logits).requires_grad_()
    exec(first_page[tab], {"y_true": y_true, "logits": logits})
    assert re.search(r"^openauc +\d\.\d{4} ", capsys.readouterr().out, re.MULTILINE)


def test_the_front_page_shows_what_the_readme_runs() -> None:
    front, readme = (re.search(r"```python\n(.*?)```", (ROOT / file).read_text(), re.DOTALL)[1] for file in SHOWN_ON)
    assert ast.dump(ast.parse(front)) == ast.dump(ast.parse(readme))
    assert re.findall(r"# (\[.*\])$", front, re.MULTILINE) == re.findall(r"# (\[.*\])$", readme, re.MULTILINE) != []


@pytest.fixture
def generated(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The extension that writes pages before a build."""
    monkeypatch.syspath_prepend(DOCS / "_extensions")
    return importlib.import_module("generated")


def test_every_result_is_reachable_from_the_results_page(generated: ModuleType) -> None:
    page = generated.overview(generated.RESULTS)
    assert [file.name for file in generated.RESULTS.iterdir() if f"{file.name})" not in page] == []


def test_newer_results_come_first(generated: ModuleType, tmp_path: Path) -> None:
    for month in ("202512", "202611"):
        (tmp_path / f"digits_laptop_{month}.md").write_text(f"# Digits of {month}\n")
    assert re.findall(r"Digits of (\d+)", generated.overview(tmp_path)) == ["202611", "202512"]
