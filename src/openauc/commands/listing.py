"""``openauc list``: what there is to choose from."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from openauc._validation import check_choice
from openauc.commands.train import require_torch
from openauc.metrics.registry import METRICS
from openauc.protocols import PROTOCOLS

Rows = Iterable[tuple[str, ...]]


def list_(
    what: Annotated[
        str | None,
        typer.Argument(help="methods, scores, encoders, protocols, recipes, backbones, metrics or benchmarks."),
    ] = None,
) -> None:
    """List what there is to choose from, one line each."""
    if what is not None:
        check_choice("what", what, _TABLES)
    console = Console()
    if not console.is_terminal:
        console = Console(width=200)
    for name, (rows, columns) in _TABLES.items():
        if what in (None, name):
            table = Table(title=name, title_justify="left", box=None, pad_edge=False)
            for column in columns:
                table.add_column(column, no_wrap=True)
            for row in rows():
                table.add_row(*map(escape, row))
            console.print(table)


def _methods() -> Rows:
    from openauc.methods import method_names

    return ((name, _summary(f"openauc.methods.{name}")) for name in method_names())


def _scores() -> Rows:
    from openauc.features.scores.registry import SCORES

    return ((name, score.looks_at, score.formula, score.source) for name, score in SCORES.items())


def _encoders() -> Rows:
    from openauc.encoders import ENCODERS

    return ((name, *about) for name, about in ENCODERS.items())


def _protocols() -> Rows:
    for name, protocol in PROTOCOLS.items():
        known, unknown = (len(classes) for classes in protocol.splits[0][:2])
        yield name, f"{known} + {unknown}", str(len(protocol.splits)), str(protocol.image_size), protocol.reference


def _recipes() -> Rows:
    for protocol_name, protocol in PROTOCOLS.items():
        for name, recipe in protocol.recipes.items():
            yield (
                name + (" (default)" if name == protocol.default_recipe else ""),
                protocol_name,
                str(recipe.epochs),
                str(recipe.batch_size),
                f"{recipe.optimizer} {recipe.learning_rate:g}",
                recipe.schedule,
                recipe.augmentation,
            )


def _backbones() -> Rows:
    require_torch("listing backbones")
    from openauc.models.backbones import ARCHITECTURES, LIBRARIES

    yield from ((name, _first_line(kind.__doc__)) for name, kind in ARCHITECTURES.items())
    yield from ((f"{name}:NAME", _first_line(load.__doc__)) for name, load in LIBRARIES.items())


def _metrics() -> Rows:
    return ((name, metric.label, metric.better) for name, metric in METRICS.items())


def _benchmarks() -> Rows:
    from openauc.bench.suites import load_suite, suite_names

    return ((suite.name, suite.description, " ".join(suite.options)) for suite in map(load_suite, suite_names()))


_TABLES: dict[str, tuple[Callable[[], Rows], tuple[str, ...]]] = {
    "methods": (_methods, ("name", "what it is")),
    "scores": (_scores, ("name", "looks at", "formula", "source")),
    "encoders": (_encoders, ("name", "what it is", "licence", "source")),
    "protocols": (_protocols, ("name", "known + unknown", "splits", "pixels or features", "reference")),
    "recipes": (_recipes, ("name", "protocol", "epochs", "batch", "optimizer", "schedule", "augmentation")),
    "backbones": (_backbones, ("name", "what it is")),
    "metrics": (_metrics, ("name", "what it is", "better")),
    "benchmarks": (_benchmarks, ("name", "what it is", "options")),
}


def _summary(module: str) -> str:
    """First line of a module's docstring, without importing it."""
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        return ""
    return _first_line(ast.get_docstring(ast.parse(Path(spec.origin).read_text(encoding="utf-8"))))


def _first_line(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0]
