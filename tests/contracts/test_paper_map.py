"""Every name and every test that docs/paper_map.md refers to exists."""

import ast
import importlib
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
QUOTED = re.findall(r"`([^`\n]+)`", (ROOT / "docs/paper_map.md").read_text(encoding="utf-8"))
TESTS = [quoted for quoted in QUOTED if "::" in quoted]
NAMES = sorted({found[0] for quoted in QUOTED if (found := re.match(r"[a-z_]\w*(\.\w+)+(?=$|\(|\[)", quoted))})
FILES = (".py", ".txt", ".json", ".md")


@cache
def defined_in(file: str) -> set[str]:
    """``test`` and ``Class::test`` of a test file."""
    tree = ast.parse((ROOT / "tests" / file).read_text(encoding="utf-8"))
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    inside = {f"{c.name}::{f.name}" for c in classes for f in c.body if isinstance(f, ast.FunctionDef)}
    return inside | {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_every_test_exists() -> None:
    missing, last = [], ""
    for reference in TESTS:
        file, _, test = reference.partition("::")
        last = file or last  # ``::test`` is in the file named before
        if not (ROOT / "tests" / last).is_file() or test not in defined_in(last):
            missing.append(f"{last}::{test}")
    assert len(TESTS) > 150
    assert missing == []


@pytest.mark.parametrize("name", [name for name in NAMES if not name.endswith(FILES)])
def test_every_name_exists(name: str) -> None:
    if name.startswith("torch."):
        return
    parts = [*(["openauc", "metrics"] if name.startswith("legacy.") else ["openauc"]), *name.split(".")]
    found = importlib.import_module("openauc")
    for end, part in enumerate(parts[1:], start=2):
        try:  # a module before a name of its package: ``openauc.audit`` is both
            found = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            found = getattr(found, part)
