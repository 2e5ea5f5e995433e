"""Every program in `benchmark/` still finds what it imports, and says what it is for."""

import importlib
import re
from pathlib import Path

import pytest
import writing

FOLDER = Path(__file__).resolve().parents[2] / "benchmark"


@pytest.mark.parametrize("name", sorted(file.stem for file in FOLDER.glob("*.py")))
def test_it_can_be_started(name):
    assert importlib.import_module(name).__doc__


def test_hardware_name_serves_as_a_file_name(monkeypatch):
    assert re.fullmatch(r"[a-z0-9-]+-\d+c", writing.hardware_name())
    monkeypatch.setattr(writing, "cpu_name", lambda: "Intel(R) Xeon(R) CPU E5-2680 v4 @ 2.40GHz")
    assert writing.hardware_name().startswith("intel-xeon-e5-2680-v4-")
