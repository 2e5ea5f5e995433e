"""The command line: ``openauc evaluate``, ``compare``, ``train``, ``run``, ``report`` and more."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any

import typer
from typer.core import TyperGroup

from openauc.commands import listing, predict, report, run, scoring, table, train


class _Commands(TyperGroup):
    """Bad input ends in one sentence and exit code 2; OPENAUC_TRACEBACK=1 shows where it came from."""

    def invoke(self, ctx: Any) -> Any:
        with warnings.catch_warnings():
            warnings.showwarning = _say_warning
            try:
                return super().invoke(ctx)
            except (ValueError, TypeError, OSError, ImportError) as error:
                if os.environ.get("OPENAUC_TRACEBACK"):
                    raise
                print(f"error: {error}", file=sys.stderr)
                ctx.exit(2)


def _say_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    print(f"warning: {message}", file=sys.stderr)


app = typer.Typer(
    name="openauc",
    cls=_Commands,
    help="Open-set recognition: score predictions, compare models, choose a threshold, train, benchmark.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.command("evaluate")(scoring.evaluate)
app.command("compare")(scoring.compare)
app.command("audit")(scoring.audit)
app.command("threshold")(scoring.threshold)
app.command("train")(train.train)
app.command("predict")(predict.predict)
app.command("run")(run.run)
app.command("table")(table.table)
app.command("report")(report.report)
app.command("list")(listing.list_)


@app.callback(invoke_without_command=True)
def _main(version: bool = typer.Option(False, "--version", help="Print the version and exit.")) -> None:
    if version:
        from openauc import __version__

        print(__version__)
        raise typer.Exit


def main() -> None:
    """Entry point of the ``openauc`` command."""
    app()
