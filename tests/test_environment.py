"""What a result says of where it was made."""

import re

import pytest

from openauc import environment as env


def test_environment_is_text_by_name(tmp_path):
    found = env.environment()
    assert {"openauc", "python", "numpy", "torch", "accelerate", "processor", "cores"} <= set(found)
    assert all(isinstance(value, str) and value for value in found.values())
    assert env._commit(tmp_path) is None, "an installed copy has no commit of its own"


def test_missing_packages_are_left_out(monkeypatch):
    monkeypatch.setattr(env, "_PACKAGES", ("numpy", "no-such-package"))
    assert "no-such-package" not in env.environment()


def test_hardware_name_serves_as_a_file_name(monkeypatch):
    assert re.fullmatch(r"[a-z0-9-]+-\d+c", env.hardware_name())
    monkeypatch.setattr(env, "cpu_name", lambda: "Intel(R) Xeon(R) CPU E5-2680 v4 @ 2.40GHz")
    assert env.hardware_name().startswith("intel-xeon-e5-2680-v4-")


def test_processor_has_a_name_without_proc(monkeypatch):
    def unreadable(*_, **__):
        raise OSError

    monkeypatch.setattr("pathlib.Path.read_text", unreadable)
    assert env.cpu_name()


@pytest.mark.parametrize("failure", [OSError, FileNotFoundError])
def test_without_git_there_is_no_commit(monkeypatch, tmp_path, failure):
    def absent(*_, **__):
        raise failure

    monkeypatch.setattr(env.subprocess, "run", absent)
    assert env._commit(tmp_path) is None
