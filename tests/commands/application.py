"""The commands as a program of their own, without the one that turns errors into sentences."""

import pytest
import typer
from typer.testing import CliRunner

from openauc.commands.listing import list_
from openauc.commands.predict import predict
from openauc.commands.predictions import threshold
from openauc.commands.report import report
from openauc.commands.table import table
from openauc.commands.train import train

COMMANDS = {"train": train, "predict": predict, "list": list_, "threshold": threshold, "table": table, "report": report}
SMALL = ("--recipe", "plain", "--epochs", "2", "--set", "width=4", "--set", "train_images=200")


def application() -> typer.Typer:
    app = typer.Typer()
    for name, command in COMMANDS.items():
        app.command(name)(command)
    return app


def run(*words: object, code: int = 0) -> str:
    result = CliRunner().invoke(application(), [str(word) for word in words])
    assert result.exit_code == code, result.output + repr(result.exception)
    return result.output


def refused(*words: object, match: str) -> None:
    result = CliRunner().invoke(application(), [str(word) for word in words])
    with pytest.raises((ValueError, TypeError, FileNotFoundError, ImportError), match=match):
        raise result.exception or AssertionError(result.output)
