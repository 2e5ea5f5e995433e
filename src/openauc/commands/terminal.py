"""What the commands print: tables and lines, in which a name cannot steer the terminal."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: str) -> str:
    r"""``text`` with control characters, and bytes of names that are not UTF-8, written as escapes.

    >>> visible("cat\x1b[2J")
    'cat\\x1b[2J'
    """
    return _CONTROL.sub(lambda found: ascii(found[0])[1:-1], text)


def say(text: object, *, err: bool = False) -> None:
    typer.echo(visible(str(text)), err=err)


def say_wrapped(text: str, *, style: str | None = None) -> None:
    """Print a paragraph that is wrapped between words, as tables are."""
    console().print(visible(text), style=style)


def p_text(value: float) -> str:
    return "< 0.0001" if value < 1e-4 else f"{value:.4f}"


def bounds_text(bounds: Iterable[float] | None) -> str:
    """An interval of four digits; nothing for none."""
    return " – ".join(f"{bound:.4f}" for bound in bounds or ())


def console() -> Console:
    """Names of files and classes are shown as they are, brackets and colons included."""
    width = None if Console().is_terminal else 120
    return Console(highlight=False, markup=False, emoji=False, width=width)


def show_list(columns: Sequence[str], rows: Iterable[Sequence[str]], *, width: int, title: str | None = None) -> None:
    """Print a table without lines, each row on one line; ``width`` is that of a file."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, no_wrap=True)
    for row in rows:
        table.add_row(*map(Text, map(visible, row)))
    (Console() if Console().is_terminal else Console(width=width)).print(table)


def show(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[str | Text]],
    caption: str = "",
    *,
    names: Collection[int] = (0,),
) -> None:
    """Print a table below its title; columns ``names`` hold names, which are cut or wrapped to fit; others numbers."""

    def cell(value: Any) -> Any:
        return visible(value) if isinstance(value, str) else value

    table = Table(box=box.SIMPLE_HEAD)
    for i, column in enumerate(columns):
        table.add_column(cell(column), justify="left" if i in names else "right", no_wrap=i not in names)
    for row in rows:
        table.add_row(*map(cell, row))
    screen = console()
    # The table's upper edge is empty and so ends the line of the title, unless drawn in ASCII.
    above = Text(visible(f"{title}\n" if screen.options.ascii_only else title), style="bold")
    below = Text(visible(f"{caption}\n" if caption else ""), style="dim")
    screen.print(above, table, below, sep="\n", end="")
