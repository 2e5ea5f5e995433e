"""The command line of the tests, and errors as they were raised."""

import pytest
from typer.testing import CliRunner

from openauc.cli import app

SMALL = ("--recipe", "plain", "--epochs", "2", "--set", "width=4", "--set", "train_images=200")


def run(*words: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == code, result.output + repr(result.exception)
    return result.output


def refused(*words: object, match: str) -> None:
    result = CliRunner().invoke(app, [str(word) for word in words], env={"OPENAUC_TRACEBACK": "1"})
    with pytest.raises((ValueError, TypeError, FileNotFoundError, ImportError), match=match):
        raise result.exception or AssertionError(result.output)
