"""``openauc list``: what there is to choose from."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib.resources import files
from typing import Annotated

from typer import Argument

from openauc._validation import check_choice
from openauc.commands.terminal import show_list
from openauc.commands.train import require_torch
from openauc.features.scores.registry import SCORES
from openauc.methods import method_names
from openauc.metrics.registry import METRICS
from openauc.protocols import PROTOCOLS

_COLUMNS = {
    "methods": ("name", "what it is"),
    "scores": ("name", "looks at", "formula", "source"),
    "encoders": ("name", "what it is", "licence", "source"),
    "protocols": ("name", "known + unknown", "splits", "pixels or features", "reference"),
    "recipes": ("name", "protocol", "epochs", "batch", "optimizer", "schedule", "augmentation"),
    "backbones": ("name", "what it is"),
    "metrics": ("name", "what it is", "better"),
    "benchmarks": ("name", "what it is", "options"),
}


def list_(
    what: Annotated[
        str | None,
        Argument(
            metavar="WHAT", help="methods, scores, encoders, protocols, recipes, backbones, metrics or benchmarks."
        ),
    ] = None,
) -> None:
    """List methods, scores, encoders, protocols and more."""
    for name in _COLUMNS if what is None else [check_choice("the list", what, _COLUMNS)]:
        show_list(_COLUMNS[name], _rows(name), width=200, title=name)


def _rows(what: str) -> Iterator[tuple[str, ...]]:
    """The rows of a list; what they need is imported only here."""
    if what == "methods":
        for name in method_names():
            text = (files("openauc.methods") / f"{name}.py").read_text(encoding="utf-8")  # importing it needs torch
            yield name, _first_line(ast.get_docstring(ast.parse(text)))
    elif what == "scores":
        yield from ((name, score.looks_at, score.formula, score.source) for name, score in SCORES.items())
    elif what == "encoders":
        from openauc.encoders import ENCODERS

        yield from ((name, *about) for name, about in ENCODERS.items())
    elif what == "protocols":
        for name, protocol in PROTOCOLS.items():
            known, unknown = (len(classes) for classes in protocol.splits[0][:2])
            side = str(protocol.num_features or protocol.image_size)
            yield name, f"{known} + {unknown}", str(len(protocol.splits)), side, protocol.reference
    elif what == "recipes":
        for protocol_name, protocol in PROTOCOLS.items():
            for name, recipe in protocol.recipes.items():
                label = name + (" (default)" if name == protocol.default_recipe else "")
                size, optimizer = str(recipe.batch_size), f"{recipe.optimizer} {recipe.learning_rate:g}"
                yield label, protocol_name, str(recipe.epochs), size, optimizer, recipe.schedule, recipe.augmentation
    elif what == "backbones":
        require_torch("listing backbones")
        from openauc.models.backbones import ARCHITECTURES, LIBRARIES

        libraries = {f"{prefix}:NAME": load for prefix, (_, load, _) in LIBRARIES.items()}
        for name, made in {**ARCHITECTURES, **libraries}.items():
            yield name, _first_line(made.__doc__)
    elif what == "metrics":
        yield from ((name, metric.label, metric.better) for name, metric in METRICS.items())
    else:
        from openauc.bench.benchmarks import benchmark_names, load_benchmark

        for benchmark in map(load_benchmark, benchmark_names()):
            yield benchmark.name, benchmark.description, " ".join(benchmark.options)


def _first_line(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0]
