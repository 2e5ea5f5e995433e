"""What a result says of where it was made."""

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
