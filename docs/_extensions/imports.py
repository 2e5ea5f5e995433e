"""The import graph of `src/openauc` as a picture: `python docs/_extensions/imports.py > imports.svg`.

A box is a package or a module at the top; a line says that the lower box imports the upper one, and lines that follow
from others are left out. Boxes are tinted by the share of their files that import torch.
"""

import ast
from collections.abc import Iterator, Sequence
from graphlib import TopologicalSorter
from html import escape
from itertools import combinations, pairwise
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).parents[2] / "src/openauc"

Graph = dict[str, set[str]]
"""What each box, or a bend of a line, imports or leads to."""

LETTER, PADDING, HEIGHT, GAP, STEP, BEND, DETOUR = 8.4, 12, 34, 26, 74, 6, 150
TINT = "#d55e00"
# The page's colours, or those of the reader's system.
BACKGROUND = "var(--pst-color-background, Canvas)"
LOOK = (
    "color-scheme: light dark; color: var(--pst-color-text-base, CanvasText); font: 14px ui-monospace, monospace; "
    "display: block; margin: 1.5rem auto"
)


class Room(NamedTuple):
    """A package or a module: what it says it is, what it imports, and the share of its files that import torch."""

    about: str
    imports: set[str]
    torch: float


def rooms(source: Path = SOURCE) -> dict[str, Room]:
    """The boxes by name; a package ends in a slash."""
    names = {place.stem: f"{place.stem}/" for place in source.iterdir() if any(place.glob("*.py"))}
    names |= {file.stem: file.stem for file in source.glob("*.py") if not file.stem.startswith("__")}
    found = {}
    for stem, name in sorted(names.items()):
        files = sorted((source / stem).rglob("*.py")) or [source / f"{stem}.py"]
        trees = [ast.parse(file.read_text(encoding="utf-8")) for file in files]
        used = {module for tree in trees for module in imported(tree)}
        heavy = [any(module.split(".")[0] == "torch" for module in imported(tree, inside=False)) for tree in trees]
        own = {module.split(".")[1] for module in used if module.startswith("openauc.")} - {stem}
        about = (ast.get_docstring(trees[0]) or "").partition("\n")[0]
        found[name] = Room(about, {names[other] for other in own if other in names}, sum(heavy) / len(heavy))
    return found


def imported(tree: ast.AST, *, inside: bool = True) -> Iterator[str]:
    """Dotted names that a file imports when it runs; with ``inside`` also those within functions."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        elif inside or not isinstance(node, ast.FunctionDef):
            yield from imported(node, inside=inside)


def reduced(graph: Graph) -> Graph:
    """Without what follows: no line from a to c where a leads to b and b to c."""
    reach: Graph = {}
    for name in TopologicalSorter(graph).static_order():
        reach[name] = graph[name].union(*(reach[other] for other in graph[name]))
    return {name: uses - set().union(*(reach[other] for other in uses)) for name, uses in graph.items()}


def with_bends(graph: Graph) -> tuple[Graph, list[list[str]]]:
    """The graph with a bend wherever a line passes a row, and its rows; each box is as low as its users allow."""
    row: dict[str, int] = {}
    for name in reversed(list(TopologicalSorter(graph).static_order())):
        row[name] = min((row[user] - 1 for user, uses in graph.items() if name in uses), default=0)
    bent: Graph = {name: set() for name in graph}
    for name in graph:
        for target in graph[name]:
            bends = [f"{name} {target} {level}" for level in range(row[name] - 1, row[target], -1)]
            row |= {bend: row[name] - 1 - below for below, bend in enumerate(bends)}
            for start, end in pairwise([name, *bends, target]):
                bent.setdefault(start, set()).add(end)
    return bent, [sorted(name for name in row if row[name] == level) for level in range(min(row.values()), 1)]


def arranged(graph: Graph, rows: Sequence[Sequence[str]]) -> dict[str, float]:
    """Middle of each box: two of a row change places as long as that makes lines shorter, or cross less often."""
    rows = [list(row) for row in rows]
    best, improved = cost(graph, rows), True
    while improved:
        improved = False
        for row in rows:
            for first, second in combinations(range(len(row)), 2):
                row[first], row[second] = row[second], row[first]
                if cost(graph, rows) < best:
                    best, improved = cost(graph, rows), True
                else:
                    row[first], row[second] = row[second], row[first]
    return middles(rows)


def cost(graph: Graph, rows: Sequence[Sequence[str]]) -> float:
    """Length of the lines sideways, a crossing counting as much as a detour."""
    middle = middles(rows)
    total = 0.0
    for row in rows:
        lines = [(middle[name], middle[target]) for name in row for target in graph[name]]
        crossings = sum((a[0] - b[0]) * (a[1] - b[1]) < 0 for a, b in combinations(lines, 2))
        total += DETOUR * crossings + sum(abs(start - end) for start, end in lines)
    return total


def middles(rows: Sequence[Sequence[str]]) -> dict[str, float]:
    """Each row in the middle of the picture."""
    found = {}
    for row in rows:
        left = -(sum(map(width, row)) + GAP * (len(row) - 1)) / 2
        for name in row:
            found[name] = left + width(name) / 2
            left += width(name) + GAP
    return found


def width(name: str) -> float:
    return BEND if " " in name else LETTER * len(name) + 2 * PADDING


def drawing(source: Path = SOURCE) -> str:
    """The picture as SVG, to be put into a page, whose colours it takes, or shown alone."""
    found = rooms(source)
    graph, rows = with_bends(reduced({name: room.imports for name, room in found.items()}))
    middle = arranged(graph, rows)
    top = {name: STEP * level for level, row in enumerate(rows) for name in row}
    lines = [curve(middle[a], top[a], middle[b], top[b] + HEIGHT) for a in graph for b in sorted(graph[a])]
    # A bend is as high as a box, and the line goes straight through it.
    lines += [f"M{middle[bend]:.0f} {top[bend]}v{HEIGHT}" for bend in graph if " " in bend]
    boxes = [box(name, room, middle[name], top[name]) for name, room in found.items()]
    side = max(abs(middle[name]) + width(name) / 2 for name in graph) + 1
    bottom = STEP * (len(rows) - 1) + HEIGHT + 2
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{-side:.0f} -1 {2 * side:.0f} {bottom}" role="img"',
            f' aria-label="Import graph of openauc" style="{LOOK}; max-width: {2 * side:.0f}px">',
            f'<path d="{"".join(lines)}" fill="none" stroke="currentColor" stroke-opacity="0.45"/>',
            *boxes,
            "</svg>\n",
        ]
    )


def curve(x: float, y: int, end_x: float, end_y: int) -> str:
    half = (y + end_y) / 2
    return f"M{x:.0f} {y}C{x:.0f} {half:.0f} {end_x:.0f} {half:.0f} {end_x:.0f} {end_y}"


def box(name: str, room: Room, middle: float, top: int) -> str:
    """A box with its name; the rest is told when the pointer rests on it."""
    left, wide, base = middle - width(name) / 2, width(name), top + HEIGHT / 2 + 5
    place = f'x="{left:.0f}" y="{top}" width="{wide:.0f}" height="{HEIGHT}" rx="5"'
    tinted = f"inset(0 {1 - room.torch:.0%} 0 0)"
    told = f"{name}: {room.about}\nimports {', '.join(sorted(room.imports)) or 'nothing of openauc'}"
    return (
        f"<g><title>{escape(told)}</title>"
        f'<rect {place} style="fill: {BACKGROUND}"/>'
        f'<rect {place} fill="{TINT}" fill-opacity="0.35" style="clip-path: {tinted}"/>'
        f'<rect {place} fill="none" stroke="currentColor" stroke-opacity="0.7"/>'
        f'<text x="{middle:.0f}" y="{base:.0f}" text-anchor="middle" fill="currentColor">{name}</text></g>'
    )


if __name__ == "__main__":
    print(drawing(), end="")
