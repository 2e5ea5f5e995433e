"""Every program in `benchmark/` still finds what it imports, and says what it is for."""

import importlib
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmark"


@pytest.mark.parametrize("name", sorted(file.stem for file in FOLDER.glob("*.py")))
def test_it_can_be_started(name):
    assert importlib.import_module(name).__doc__
