"""The command line: ``openauc evaluate``, ``compare``, ``train``, ``run``, ``report`` and more."""

from __future__ import annotations

import inspect
import io
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from openauc._files import is_stream, keep_inputs, refuse_input
from openauc._trial_files import PREDICTIONS, RESULT, SPEC, VALIDATION, features_file
from openauc.commands import (
    compare_models,
    discover,
    embed,
    evaluate,
    extend,
    fit,
    listing,
    predict,
    predictions,
    report,
    run,
    sql,
    table,
    train,
    watch,
)
from openauc.commands.terminal import say

COMMANDS: dict[str, tuple[Callable[..., None], ...]] = {
    "Texts, images, embeddings": (
        *(embed.embed, fit.fit, predict.predict),
        *(discover.discover, extend.extend, compare_models.compare_models),
    ),
    "Predictions of any model": (
        *(evaluate.evaluate, predictions.compare, predictions.threshold, predictions.audit, report.report),
    ),
    "A log or a warehouse": (watch.watch, sql.sql),
    "Train and benchmark": (train.train, run.run, table.table, listing.list_),
}
"""Commands by what a user has; some read more than their panel says."""
_OTHER_NAMES = {"n_replicates": "replicates", "rng": "seed"}  # arguments of functions that an option names otherwise
_INPUTS = ("reference", "class_names", "weights", "encoder")  # options that name files to read; arguments always do
_OUTPUTS = ("out", "json_out", "report", "onnx", "state")
_CHANGED = ("changed",)  # arguments that are written to if no output is named
_INPUT_FILES = (
    *("*.safetensors", "model.json", "source.json", SPEC, RESULT, PREDICTIONS, VALIDATION, features_file("*")),
    *(f"trials/*/{name}" for name in (RESULT, PREDICTIONS)),
)
"""What is read in a folder that is an argument: a model, a training or a store."""


class _Command(TyperCommand):
    """A command does not write over what it reads."""

    def invoke(self, ctx: Any) -> Any:
        outputs = [ctx.params[name] for name in _OUTPUTS if ctx.params.get(name) is not None]
        own = outputs or [ctx.params[name] for name in _CHANGED if name in ctx.params]
        places = [os.path.realpath(path) for path in outputs if not is_stream(path)]
        if len(set(places)) < len(places):
            raise ValueError(f"two options name the same file to write, {outputs[0]}; name a file for each.")
        with keep_inputs(*self._inputs(ctx.params, own=set(map(os.path.realpath, own)))):
            for path in outputs:  # before the work; the writer checks again
                refuse_input(path)
            return super().invoke(ctx)

    def _inputs(self, values: dict[str, Any], own: set[str]) -> Iterator[Path]:
        """Files to read; a folder that is ``own``, as in `openauc train digits -o digits`, holds none of them."""
        for parameter in self.params:
            if parameter.param_type_name == "argument" or parameter.name in _INPUTS:
                given = values.get(parameter.name or "")
                for path in map(Path, given if isinstance(given, list | tuple) else [given] if given else []):
                    yield path
                    for pattern in _INPUT_FILES if path.is_dir() and os.path.realpath(path) not in own else ():
                        yield from path.glob(pattern)


class _Commands(TyperGroup):
    """Bad input ends in one sentence and exit code 2; OPENAUC_TRACEBACK=1 shows where it came from."""

    def invoke(self, ctx: Any) -> Any:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: say(f"warning: {message}", err=True)
            try:
                return super().invoke(ctx)
            except (ValueError, TypeError, OSError, ImportError) as error:
                if os.environ.get("OPENAUC_TRACEBACK"):
                    raise
                sentence = str(error)
                if isinstance(error, OSError) and error.filename is not None:
                    sentence = f"{error.filename}: {error.strerror}."
                command = self.get_command(ctx, ctx.invoked_subcommand or "")
                say(f"error: {_with_options(sentence, command)}", err=True)
                ctx.exit(2)


def _with_options(message: str, command: Any) -> str:
    """``message`` with ``--unknown-label`` where it says ``unknown_label``; quoted names and names of files stay."""
    options = {p.name: p.opts[0] for p in getattr(command, "params", ()) if p.opts[0].startswith("--")}
    options |= {argument: options[name] for argument, name in _OTHER_NAMES.items() if name in options}
    for argument, option in options.items():
        inside = rf"(?<![\w./'\"-]){argument}(?![\w/'\"-]|\.\w)"
        # An argument without "_", such as level, is also a common word, so it is replaced at the beginning only.
        message = re.sub(inside if "_" in argument else rf"^{argument}(?= )", option, message)
    return message


app = typer.Typer(
    name="openauc",
    cls=_Commands,
    help='Classifiers that can also say "I don\'t know": fit, measure, compare, watch.',
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
for _panel, _functions in COMMANDS.items():
    for _function in _functions:
        _name = _function.__name__.rstrip("_").replace("_", "-")
        _help = re.sub(r"(?<!\n)\n(?!\n)", " ", inspect.getdoc(_function) or "")  # a terminal breaks lines by itself
        app.command(_name, cls=_Command, help=_help, rich_help_panel=_panel)(_function)


@app.callback(invoke_without_command=True)
def _main(version: bool = typer.Option(False, "--version", help="Print the version and exit.")) -> None:
    if version:
        from openauc import __version__

        print(__version__)
        raise typer.Exit


def main() -> None:
    """Entry point of the ``openauc`` command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that knows less than Unicode
    app()
