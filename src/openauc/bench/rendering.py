"""A summary as text, Markdown, LaTeX or CSV; numbers are percentages as in the paper, in CSV fractions."""

from __future__ import annotations

import csv
import html
import io
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from openauc._columns import quote_formula
from openauc._validation import check_choice
from openauc.bench.summary import Cell, Paired, Row, Summary
from openauc.bench.templates import template
from openauc.bench.variants import MEAN, Column
from openauc.metrics.registry import METRICS

if TYPE_CHECKING:
    from rich.console import Group

Format = Literal["text", "markdown", "latex", "csv"]
FORMATS: tuple[str, ...] = get_args(Format)


class Entry(NamedTuple):
    """Text of a cell: its value, 1 or 2 for best and runner-up, and lines of details."""

    value: str
    rank: int | None
    details: tuple[str, ...]


class Grid(NamedTuple):
    """Text of a table; all entries of a row have the same number of details."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Entry, ...]], ...]


def render(*summaries: Summary, format: Format = "text") -> str:
    """Tables of one or more summaries, one below the other, and notes that say what the numbers are.

    Best values are bold and runners-up underlined; Markdown has italics, text has ¹ and ² instead. CSV has one line per
    variant and column, every field, unrounded.
    """
    check_choice("format", format, FORMATS)
    if not summaries:
        raise ValueError("there is no summary to render; pass at least one.")
    return {"text": _text, "markdown": _markdown, "latex": _latex, "csv": _csv}[format](summaries)


def layout(summaries: Sequence[Summary], *, best: str = "¹", second: str = "²") -> Iterator[Grid | tuple[str, ...]]:
    """Tables and notes in the order they are shown; notes that all summaries share come once, at the end.

    ``best`` and ``second`` are how the notes refer to the marks. Trials scored on held-out classes get a table of their
    own.
    """
    legend = template("legend.txt")
    notes = []
    for summary in summaries:
        cells, has_mean = [cell for row in summary.rows for cell in row.cells], MEAN in summary.columns
        lines = legend.render(summary=summary, cells=cells, has_mean=has_mean, best=best, second=second).splitlines()
        notes.append((*lines, *summary.notes))
    shared = tuple(note for note in notes[0] if all(note in other for other in notes))
    for summary, its in zip(summaries, notes, strict=True):
        yield from _grids(summary)
        own = tuple(note for note in its if note not in shared)
        if own:
            yield own
    yield shared


def rich_table(grid: Grid) -> Group:
    """The table for a terminal, below its title, which a narrow table would break into lines."""
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD)
    for i, heading in enumerate(grid.headings):
        table.add_column(Text(heading), justify="center" if i else "left")
    marks = {None: ("", ""), 1: ("bold", " ¹"), 2: ("underline", " ²")}
    for label, entries in grid.rows:
        cells = []
        for entry in entries:
            style, mark = marks[entry.rank]
            details = ((f"\n{detail}", "dim") for detail in entry.details)
            cells.append(Text.assemble((entry.value, style), mark, *details))
        table.add_row(Text(label), *cells)
    return Group(Text(grid.title, style="bold"), table)


def _grids(summary: Summary) -> Iterator[Grid]:
    metric = METRICS[summary.metric]
    title = f"{metric.label} × 100, {metric.better} is better"
    # The mean is over test parts where there are any, else over held-out classes.
    held_out_mean = all(column.held_out for column in summary.columns if column != MEAN)
    in_second = [held_out_mean if column == MEAN else column.held_out > 0 for column in summary.columns]
    for held_out in (False, True):
        places = [i for i, second in enumerate(in_second) if second == held_out]
        rows = [row for row in summary.rows if not all(row.cells[i].is_empty for i in places)]
        if not rows:
            continue
        most = {i: max(row.cells[i].n_trials for row in rows) for i in places}
        yield Grid(
            title + (" (held-out classes)" if held_out else ""),
            ("method", *(summary.columns[i].label for i in places)),
            tuple((row.label, _entries([(row.cells[i], most[i]) for i in places])) for row in rows),
        )


def _entries(cells: Sequence[tuple[Cell, int]]) -> tuple[Entry, ...]:
    details = [_details(cell, most) for cell, most in cells]
    shown = [name for name in ("interval", "n", "paper", "difference", "p") if any(name in found for found in details)]
    return tuple(
        Entry(_value(cell), cell.rank, tuple(found.get(name, "") for name in shown))
        for (cell, _), found in zip(cells, details, strict=True)
    )


def _value(cell: Cell) -> str:
    if cell.mean is None:
        return "–"
    return _percent(cell.mean) + ("" if cell.std_population is None else f" ± {_percent(cell.std_population)}")


def _details(cell: Cell, most: int) -> dict[str, str]:
    """Details of a cell by name; ``most`` is the largest n of its column."""
    details = {}
    if cell.interval is not None:
        details["interval"] = f"[{_percent(cell.interval.low)}, {_percent(cell.interval.high)}]"
    if not cell.is_empty and (cell.n_trials < most or cell.failed or cell.missing):
        counts = {"failed": cell.failed, "missing": cell.missing}
        details["n"] = ", ".join([f"n {cell.n_trials}", *(f"{n} {what}" for what, n in counts.items() if n)])
    if cell.paper is not None and cell.paper_difference is not None:
        details["paper"] = f"paper {_percent(cell.paper.mean)}, {_signed(cell.paper_difference)}"
    paired = cell.paired
    if paired is not None:
        bounds = "" if paired.interval is None else f" [{', '.join(map(_signed, paired.interval))}]"
        details["difference"] = f"Δ {_signed(paired.difference)}{bounds}"
    if paired is not None and paired.p_holm is not None:
        flip = "" if paired.p_sign_flip is None else f", flip {_p(paired.p_sign_flip)}"
        details["p"] = f"p {_p(paired.p_holm)}{flip}"
    return details


def _percent(value: float) -> str:
    return f"{100 * value:z.1f}".replace("-", "−")


def _signed(value: float) -> str:
    return f"{100 * value:+z.1f}".replace("-", "−")


def _p(value: float) -> str:
    return "<0.001" if value < 0.001 else f"{value:.3f}"


def _text(summaries: Sequence[Summary]) -> str:
    from rich.console import Console

    blocks = []
    for block in layout(summaries):
        if isinstance(block, Grid):
            # Wider than any table: a file has no edge to wrap at.
            console = Console(file=io.StringIO(), width=10_000, color_system=None)
            with console.capture() as capture:
                console.print(rich_table(block))
            blocks.append("\n".join(line.rstrip() for line in capture.get().rstrip().splitlines()))
        else:
            blocks.append("\n".join(textwrap.fill(note, 120, subsequent_indent="  ") for note in block))
    return "\n\n".join(blocks) + "\n"


def _markdown(summaries: Sequence[Summary]) -> str:
    def escaped(text: str) -> str:
        return html.escape(text, quote=False).replace("|", "\\|").replace("\n", " ")

    blocks = layout(summaries, best="**bold**", second="*italic*")
    return template("table.md", escaped).render(blocks=list(blocks))


_LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": "$<$",
        ">": "$>$",
        "±": r"$\pm$",
        "×": r"$\times$",
        "−": "$-$",
        "Δ": r"$\Delta$",
        "–": "--",
        "\n": " ",
        **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    }
)


def _latex(summaries: Sequence[Summary]) -> str:
    """Tables for the booktabs package."""
    blocks = layout(summaries, best="Bold:", second="underlined:")
    return template("table.tex", lambda text: text.translate(_LATEX)).render(blocks=list(blocks))


def _csv(summaries: Sequence[Summary]) -> str:
    records = [
        {name: quote_formula(value) for name, value in _record(summary, row, column, cell).items()}
        for summary in summaries
        for row in summary.rows
        for column, cell in zip(summary.columns, row.cells, strict=True)
        if not cell.is_empty
    ]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(records[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue()


def _record(summary: Summary, row: Row, column: Column, cell: Cell) -> dict[str, Any]:
    paired = cell.paired
    low, high = cell.interval or (None, None)
    paired_low, paired_high = (paired and paired.interval) or (None, None)
    return {
        "metric": summary.metric,
        "variant": row.label,
        "method": row.method,
        "settings": cell.settings,
        **column._asdict(),
        **_fields(cell, "mean", "std_population", "std_sample"),
        "level": summary.level,
        "low": low,
        "high": high,
        **_fields(cell, "n_trials", "n_seeds", "n_splits", "n_distinct", "failed", "missing", "rank"),
        "baseline": paired and summary.baseline,
        **_fields(paired, "difference"),
        "difference_low": paired_low,
        "difference_high": paired_high,
        **_fields(paired, "p_value", "p_holm", "p_sign_flip", "n_pairs"),
        "n_distinct_pairs": paired and paired.n_distinct,
        "paper_mean": cell.paper and cell.paper.mean,
        "paper_std": cell.paper and cell.paper.std,
        "paper_difference": cell.paper_difference,
    }


def _fields(item: Cell | Paired | None, *names: str) -> dict[str, Any]:
    return {name: item and getattr(item, name) for name in names}
