"""``openauc table``: the results of a store as a table."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from rich.console import Console
from typer import Argument, Option

from openauc._files import write_text
from openauc._validation import UNKNOWN, check_choice
from openauc.bench.trial import TrialResult, TrialSpec, main_metric
from openauc.commands.terminal import visible
from openauc.metrics.ranking import ScoreDirectionWarning
from openauc.metrics.registry import METRICS
from openauc.predictions import Predictions, read_columns

if TYPE_CHECKING:
    from openauc.bench.store import Store
    from openauc.bench.summary import Summary

Format = Literal["text", "markdown", "latex", "csv"]
FORMAT_OF_SUFFIX: dict[str, Format] = {"": "text", ".txt": "text", ".md": "markdown", ".tex": "latex", ".csv": "csv"}


def table(
    store: Annotated[Path, Argument(metavar="STORE", help="Folder of results, as `openauc run` leaves it.")],
    format: Annotated[
        Format | None, Option("--format", "-f", help="Format; else that of FILE's suffix, or text.")
    ] = None,
    metric: Annotated[list[str] | None, Option("--metric", "-m", help="Metric; repeatable. Default: openauc.")] = None,
    baseline: Annotated[str | None, Option(help="Method, or label of a row, to compare others with.")] = None,
    level: Annotated[float, Option(help="Level of the intervals.")] = 0.95,
    out: Annotated[
        Path | None, Option("--out", "-o", metavar="FILE", help="Write the table there and print nothing.")
    ] = None,
    only: Annotated[str | None, Option(help="Part of the trials: method=openauc,split=0|1.")] = None,
    recompute: Annotated[bool, Option("--recompute", help="Compute metrics from stored predictions again.")] = False,
) -> None:
    """Show the results of a benchmark as a table.

    It has mean, deviation, interval, comparison and the paper's value. A metric that was not stored is computed from
    the stored predictions; nothing is trained.
    """
    from openauc.bench.rendering import render
    from openauc.bench.selection import select
    from openauc.bench.store import Store
    from openauc.bench.summary import summarise

    for name in metric or ():
        check_choice("--metric", name, METRICS)
    suffix = "" if out is None else out.suffix.lower()
    if suffix not in FORMAT_OF_SUFFIX:
        expected = ", ".join(filter(None, FORMAT_OF_SUFFIX))
        raise ValueError(f"{out} should end in one of {expected}; `openauc report {store}` makes a page.")
    if not store.is_dir():
        raise ValueError(f"there is no store {store}; `openauc run NAME --store {store}` makes one.")
    results, planned = Store(store).results(), Store(store).planned()
    if not results:
        raise ValueError(
            f"{store} holds no result yet, of {len(planned)} planned trials; "
            f"`openauc run NAME --store {store}` makes some."
        )
    if only is not None:
        everything: list[TrialSpec | TrialResult] = [*planned, *results]
        selected = select(everything, only)
        planned = [item for item in selected if isinstance(item, TrialSpec)]
        results = [item for item in selected if isinstance(item, TrialResult)]
        if not results:
            raise ValueError(f"{store} holds no result with {only}.")
    metrics = metric or [main_metric(results)]
    results = [_with_metrics(result, metrics, Store(store), recompute=recompute) for result in results]
    summaries = [summarise(results, metric=name, baseline=baseline, level=level, planned=planned) for name in metrics]
    chosen = format or FORMAT_OF_SUFFIX[suffix]
    if out is not None:
        write_text(out, render(*summaries, format=chosen))
    elif chosen == "text":
        show(summaries)
    else:
        print(visible(render(*summaries, format=chosen)), end="")


def _with_metrics(result: TrialResult, names: Sequence[str], store: Store, *, recompute: bool) -> TrialResult:
    """The result with these metrics, computed from its predictions where they are not there."""
    present = [result.metrics, *result.groups.values()]
    if result.error is not None or (not recompute and all(name in found for found in present for name in names)):
        return result
    file = store.predictions(result)
    if file is None:
        raise ValueError(f"trial {result.spec.id} kept no predictions, so {', '.join(names)} cannot be computed.")
    columns = read_columns(file)
    predictions = Predictions.of(*(columns[name] for name in Predictions._fields))
    known = predictions.y_true != UNKNOWN

    def values(rows: Any) -> dict[str, float]:
        triple = [column[rows] for column in predictions]
        with warnings.catch_warnings():
            # The direction of our own scores is not in doubt, even where a poor model falls below chance.
            warnings.simplefilter("ignore", ScoreDirectionWarning)
            return {name: METRICS[name].function(*triple) for name in names}

    return replace(
        result,
        metrics=values(slice(None)),
        groups={group: values(known | (columns["group"] == group)) for group in result.groups},
    )


def show(summaries: Sequence[Summary]) -> None:
    """Print for a terminal, or plainly where there is none."""
    from openauc.bench.rendering import Grid, layout, render, rich_table

    console = Console(highlight=False)
    if not console.is_terminal:
        print(visible(render(*summaries)), end="")
        return
    for block in layout(summaries):
        if isinstance(block, Grid):
            console.print(rich_table(block))
        else:
            for note in block:
                console.print(visible(note), style="dim", markup=False)
