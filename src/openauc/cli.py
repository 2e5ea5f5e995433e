"""The command line: ``openauc evaluate``, ``compare``, ``train``, ``run``, ``report`` and more."""

from __future__ import annotations

import codecs
import io
import os
import re
import sys
import warnings
from typing import Any

import typer
from typer.core import TyperGroup

from openauc.commands import embed, evaluate, fit, listing, predict, report, run, scoring, sql, table, train, watch

_OTHER_NAMES = {"n_replicates": "replicates", "rng": "seed"}
"""Arguments of functions that an option names otherwise."""

_LOOK_ALIKES = dict(zip("–−—─↑↓→≥≤×✓✗", "----^v>><xyn", strict=True))
"""For a terminal that knows less than Unicode; of one column each, as tables need."""


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
                command = self.get_command(ctx, ctx.invoked_subcommand or "")
                print(f"error: {_with_options(_sentence(error), command)}", file=sys.stderr)
                ctx.exit(2)


def _sentence(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}."
    return str(error)


def _with_options(message: str, command: Any) -> str:
    """``message`` with ``--unknown-label`` where it says ``unknown_label``, for every option of the command.

    An argument of one word is also a word: it counts at the beginning only. Quoted names and files stay.
    """
    options = {p.name: p.opts[0] for p in getattr(command, "params", ()) if p.opts[0].startswith("--")}
    options |= {argument: options[name] for argument, name in _OTHER_NAMES.items() if name in options}
    for argument, option in options.items():
        inside = rf"(?<![\w./'\"-]){argument}(?![\w/'\"-]|\.\w)"
        message = re.sub(inside if "_" in argument else rf"^{argument}(?= )", option, message)
    return message


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
app.command("evaluate")(evaluate.evaluate)
app.command("compare")(scoring.compare)
app.command("audit")(scoring.audit)
app.command("threshold")(scoring.threshold)
app.command("sql")(sql.sql)
app.command("train")(train.train)
app.command("predict")(predict.predict)
app.command("embed")(embed.embed)
app.command("fit")(fit.fit)
app.command("watch")(watch.watch)
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


def _look_alike(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    return "".join(_LOOK_ALIKES.get(character, "?") for character in text), error.end


def main() -> None:
    """Entry point of the ``openauc`` command."""
    codecs.register_error("look-alike", _look_alike)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="look-alike")
    app()
