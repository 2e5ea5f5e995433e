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
    for name, table in _TABLES.items():
        if what in (None, name):
            console.print(table())


def _methods() -> Table:
    from openauc.methods import method_names

    rows = ((name, _summary(f"openauc.methods.{name}")) for name in method_names())
    return _table("methods", ("name", "what it is"), rows)


def _scores() -> Table:
    from openauc.features.scores.registry import SCORES

    rows = ((name, score.looks_at, score.formula, score.source) for name, score in SCORES.items())
    return _table("scores", ("name", "looks at", "formula", "source"), rows)


def _encoders() -> Table:
    from openauc.encoders import ENCODERS

    rows = ((name, *about) for name, about in ENCODERS.items())
    return _table("encoders", ("name", "what it is", "licence", "source"), rows)


def _protocols() -> Table:
    rows = (
        (
            name,
            f"{len(protocol.splits[0].known)} + {len(protocol.splits[0].unknown)}",
            str(len(protocol.splits)),
            str(protocol.image_size),
            protocol.reference,
        )
        for name, protocol in PROTOCOLS.items()
    )
    return _table("protocols", ("name", "known + unknown", "splits", "pixels or features", "reference"), rows)


def _recipes() -> Table:
    rows = (
        (
            name + (" (default)" if name == protocol.default_recipe else ""),
            protocol_name,
            str(recipe.epochs),
            str(recipe.batch_size),
            f"{recipe.optimizer} {recipe.learning_rate:g}",
            recipe.schedule,
            recipe.augmentation,
        )
        for protocol_name, protocol in PROTOCOLS.items()
        for name, recipe in protocol.recipes.items()
    )
    columns = ("name", "protocol", "epochs", "batch", "optimizer", "schedule", "augmentation")
    return _table("recipes", columns, rows)


def _backbones() -> Table:
    require_torch("listing backbones")
    from openauc.models.backbones import ARCHITECTURES, LIBRARIES

    ours = ((name, _first_line(kind.__doc__)) for name, kind in ARCHITECTURES.items())
    theirs = ((f"{name}:NAME", _first_line(load.__doc__)) for name, load in LIBRARIES.items())
    return _table("backbones", ("name", "what it is"), (*ours, *theirs))


def _metrics() -> Table:
    rows = ((name, metric.label, metric.better) for name, metric in METRICS.items())
    return _table("metrics", ("name", "what it is", "better"), rows)


def _benchmarks() -> Table:
    from openauc.bench.suites import load_suite, suite_names

    suites = [load_suite(name) for name in suite_names()]
    rows = ((suite.name, suite.description, " ".join(suite.options)) for suite in suites)
    return _table("benchmarks", ("name", "what it is", "options"), rows)


_TABLES: dict[str, Callable[[], Table]] = {
    "methods": _methods,
    "scores": _scores,
    "encoders": _encoders,
    "protocols": _protocols,
    "recipes": _recipes,
    "backbones": _backbones,
    "metrics": _metrics,
    "benchmarks": _benchmarks,
}


def _table(title: str, columns: Iterable[str], rows: Iterable[Iterable[str]]) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, no_wrap=True)
    for row in rows:
        table.add_row(*map(escape, row))
    return table


def _summary(module: str) -> str:
    """First line of a module's docstring, without importing it."""
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        return ""
    return _first_line(ast.get_docstring(ast.parse(Path(spec.origin).read_text(encoding="utf-8"))))


def _first_line(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0]
