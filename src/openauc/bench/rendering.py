"""A summary as text, Markdown, LaTeX or CSV; numbers are percentages as in the paper, in CSV fractions."""

from __future__ import annotations

import csv
import io
import re
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from openauc._columns import quote_formula
from openauc._validation import check_choice
from openauc.bench.summary import Cell, Paired, Row, Summary
from openauc.bench.variants import MEAN, Column
from openauc.metrics.registry import METRICS

if TYPE_CHECKING:
    from rich.console import Group

Format = Literal["text", "markdown", "latex", "csv"]
FORMATS: tuple[str, ...] = get_args(Format)


class Entry(NamedTuple):
    """A cell in words: the value, 1 or 2 for best and runner-up, and lines of what else is known of it."""

    value: str
    rank: int | None
    details: tuple[str, ...]


class Grid(NamedTuple):
    """A table in words; the details of a row's entries are aligned with each other."""

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
    notes = [(*_legend(summary, best, second), *summary.notes) for summary in summaries]
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
    styles, marks = {1: "bold", 2: "underline"}, {1: " ¹", 2: " ²"}
    for label, entries in grid.rows:
        cells = [
            Text.assemble(
                (entry.value, styles.get(entry.rank or 0, "")),
                marks.get(entry.rank or 0, ""),
                *((f"\n{detail}", "dim") for detail in entry.details),
            )
            for entry in entries
        ]
        table.add_row(Text(label), *cells)
    return Group(Text(grid.title, style="bold"), table)


def _legend(summary: Summary, best: str, second: str) -> Iterator[str]:
    cells = [cell for row in summary.rows for cell in row.cells]
    if any(cell.rank for cell in cells):
        yield f"{best} best and {second} runner-up of a column, among rows with all of its splits."
    if any(cell.std_population is not None for cell in cells):
        yield "± population standard deviation over the n trials (as in the paper; CSV also has the sample one)."
    if any(cell.interval for cell in cells):
        yield (
            f"[ ] {100 * summary.level:g} % interval of the mean over distinct splits (Student t; seeds, and splits "
            "with the same known classes, are averaged first)."
        )
    if any(cell.paper for cell in cells):
        yield "paper: the printed value, then ours minus it."
    if summary.baseline is not None:
        yield (
            f"Δ difference to {summary.baseline} on the (split, seed) pairs both have, averaged over distinct splits, "
            "with its interval; p of the paired t-test over distinct splits, Holm-corrected over the rows of a column; "
            "flip: p of the exact sign-flip test, not corrected."
        )
    if MEAN in summary.columns:
        yield "mean: over the protocols, for rows that have all of them with all splits."


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
    kinds = [kind for kind in ("interval", "n", "paper", "difference", "p") if any(kind in found for found in details)]
    return tuple(
        Entry(_value(cell), cell.rank, tuple(found.get(kind, "") for kind in kinds))
        for (cell, _), found in zip(cells, details, strict=True)
    )


def _value(cell: Cell) -> str:
    if cell.mean is None:
        return "–"
    return _percent(cell.mean) + ("" if cell.std_population is None else f" ± {_percent(cell.std_population)}")


def _details(cell: Cell, most: int) -> dict[str, str]:
    """What is known of a cell beside its value, by kind; ``most`` is the largest n of its column."""
    details = {}
    if cell.interval is not None:
        details["interval"] = f"[{_percent(cell.interval.low)}, {_percent(cell.interval.high)}]"
    if not cell.is_empty and (cell.n_trials < most or cell.failed or cell.missing):
        counts = {"failed": cell.failed, "missing": cell.missing}
        details["n"] = ", ".join([f"n {cell.n_trials}", *(f"{n} {what}" for what, n in counts.items() if n)])
    if cell.paper is not None and cell.paper_difference is not None:
        details["paper"] = f"paper {_percent(cell.paper.mean)}, {_signed(cell.paper_difference)}"
    if cell.paired is not None:
        details |= _paired_details(cell.paired)
    return details


def _paired_details(paired: Paired) -> dict[str, str]:
    details = {"difference": f"Δ {_signed(paired.difference)}"}
    if paired.interval is not None:
        details["difference"] += f" [{_signed(paired.interval.low)}, {_signed(paired.interval.high)}]"
    if paired.p_holm is not None:
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
        return text.replace("|", "\\|").replace("\n", " ")

    def cell(entry: Entry) -> str:
        mark = {1: "**", 2: "*"}.get(entry.rank or 0, "")
        # Empty lines keep the details of a row level with each other; at the end they would only add height.
        return re.sub("(<br>)+$", "", "<br>".join([f"{mark}{entry.value}{mark}", *entry.details]))

    blocks = []
    for block in layout(summaries, best="**bold**", second="*italic*"):
        if isinstance(block, Grid):
            rules = ("---", *(":---:" for _ in block.headings[1:]))
            rows = [(label, *map(cell, entries)) for label, entries in block.rows]
            lines = [f"| {' | '.join(map(escaped, row))} |" for row in (block.headings, rules, *rows)]
            blocks += [f"**{block.title}**", "\n".join(lines)]
        else:
            blocks.append("\n".join(f"- {escaped(note)}" for note in block))
    return "\n\n".join(blocks) + "\n"


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

    def value(entry: Entry) -> str:
        command = {1: r"\textbf{%s}", 2: r"\underline{%s}"}.get(entry.rank or 0, "%s")
        return command % entry.value.translate(_LATEX)

    def lines(label: str, entries: Sequence[Entry]) -> Iterator[str]:
        yield " & ".join([label.translate(_LATEX), *map(value, entries)]) + r" \\"
        for details in zip(*(entry.details for entry in entries), strict=True):
            small = (rf"{{\scriptsize {detail.translate(_LATEX)}}}" if detail else "" for detail in details)
            yield " & ".join(["", *small]).lstrip() + r" \\"

    def table(grid: Grid) -> str:
        rows = ("\n".join(lines(*row)) for row in grid.rows)
        return "\n".join(
            [
                r"\begin{table}",
                r"\centering",
                rf"\caption{{{grid.title.translate(_LATEX)}}}",
                rf"\begin{{tabular}}{{l{'c' * (len(grid.headings) - 1)}}}",
                r"\toprule",
                " & ".join(heading.translate(_LATEX) for heading in grid.headings) + r" \\",
                r"\midrule",
                "\n\\addlinespace\n".join(rows),
                r"\bottomrule",
                r"\end{tabular}",
                r"\end{table}",
            ]
        )

    def notes(texts: Sequence[str]) -> str:
        return "\n".join(rf"\par{{\footnotesize {text.translate(_LATEX)}\par}}" for text in texts)

    blocks = [
        table(block) if isinstance(block, Grid) else notes(block)
        for block in layout(summaries, best="Bold:", second="underlined:")
    ]
    return "\n\n".join([r"% needs \usepackage{booktabs}", *blocks]) + "\n"


def _csv(summaries: Sequence[Summary]) -> str:
    records = [
        _record(summary, row, column, cell)
        for summary in summaries
        for row in summary.rows
        for column, cell in zip(summary.columns, row.cells, strict=True)
        if not cell.is_empty
    ]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(records[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: quote_formula(value) for name, value in record.items()} for record in records)
    return text.getvalue()


def _record(summary: Summary, row: Row, column: Column, cell: Cell) -> dict[str, Any]:
    low, high = cell.interval or (None, None)
    paired = cell.paired
    paired_low, paired_high = (paired and paired.interval) or (None, None)
    return {
        "metric": summary.metric,
        "variant": row.label,
        "method": row.method,
        "settings": cell.settings,
        **column._asdict(),
        "mean": cell.mean,
        "std_population": cell.std_population,
        "std_sample": cell.std_sample,
        "level": summary.level,
        "low": low,
        "high": high,
        "n_trials": cell.n_trials,
        "n_seeds": cell.n_seeds,
        "n_splits": cell.n_splits,
        "n_distinct": cell.n_distinct,
        "failed": cell.failed,
        "missing": cell.missing,
        "rank": cell.rank,
        "baseline": paired and summary.baseline,
        "difference": paired and paired.difference,
        "difference_low": paired_low,
        "difference_high": paired_high,
        "p_value": paired and paired.p_value,
        "p_holm": paired and paired.p_holm,
        "p_sign_flip": paired and paired.p_sign_flip,
        "n_pairs": paired and paired.n_pairs,
        "n_distinct_pairs": paired and paired.n_distinct,
        "paper_mean": cell.paper and cell.paper.mean,
        "paper_std": cell.paper and cell.paper.std,
        "paper_difference": cell.paper_difference,
    }
