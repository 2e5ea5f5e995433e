"""Names that somebody gave to groups of rejected rows, or to rows of them: reading and checking them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from openauc._columns import is_empty, place, read_columns
from openauc._files import parse_json
from openauc._validation import as_label, is_number, named, read_label
from openauc.features.classifier.tables import EMBEDDINGS, TEXTS, named_like
from openauc.features.scores.base import Rows

ROW, GROUP, LABEL = "row", "group", "label"  # columns of a file of labels
_NO_LABELS = {
    *("id", "annotator", "annotation_id", "created_at", "updated_at", "lead_time", "agreement"),
    *(ROW, GROUP, "text", "image"),
}
"""Keys of a task in JSON-MIN that are not labels."""


class Line(NamedTuple):
    """A label of a row or, if no row is named, of all rows of a group; an empty one says that there is none."""

    row: int | None
    group: int | None
    label: str
    text: str  # of the row, if the file has it
    where: str


class Pool(NamedTuple):
    """Rejected rows that can be labelled: their numbers, the numbers of their groups, and their texts."""

    path: Path
    row: Rows
    group: Rows
    text: NDArray[np.str_] | None


def labels_a_pool(path: Path, features: Iterable[str]) -> bool:
    """Whether a file has labels of a pool, and is not a table to learn from, with features or texts of its own."""
    if path.suffix.lower() != ".csv" or not path.is_file():
        return path.suffix.lower() == ".json"
    columns = read_columns(path, gaps=True)
    keys = {ROW, GROUP} & set(columns)
    own = {*EMBEDDINGS, *features} & set(columns) or (len(keys) < 2 and named_like(columns, TEXTS) is not None)
    return LABEL in columns and bool(keys) and not own


def read_lines(path: Path) -> list[Line]:
    """The labels in a table with the columns label, and row or group; or in an export of Label Studio, as JSON."""
    return list(_of_label_studio(path) if path.suffix.lower() == ".json" else _of_table(path))


def labelled_rows(path: Path, lines: Sequence[Line], pool: Pool) -> tuple[Rows, NDArray[np.str_]]:
    """Places of the labelled rows in the pool, and their labels; what is said of a row counts more than of its group.

    Labels that contradict each other, and those of another pool, are refused.
    """
    rows: dict[int, str] = {}
    groups: dict[int, str] = {}
    at = {row: index for index, row in enumerate(pool.row.tolist())}
    for line in lines:
        said, key, kind = (groups, line.group, GROUP) if line.row is None else (rows, line.row, ROW)
        if key is None:
            raise ValueError(f"{path}, {line.where}: neither a row nor a group is named; write the number of one.")
        if said.setdefault(key, line.label) != line.label:
            raise ValueError(f"{path}: {kind} {key} is called both {said[key]!r} and {line.label!r}; keep one of them.")
    known = ((ROW, [row for row in rows if row not in at]), (GROUP, sorted({*groups} - {*pool.group.tolist()})))
    for kind, strange in known:
        if strange:
            raise ValueError(
                f"{path} labels {kind} {named(strange, 3)}, but {pool.path} has no such {kind} among the rejected "
                "rows; name the folder that these labels belong to, with --groups."
            )
    texts = [] if pool.text is None else pool.text.tolist()
    for line in lines:
        own = texts[at[line.row]] if texts and line.row is not None else line.text
        if line.text and line.text.split() != own.split():
            raise ValueError(
                f"{path}, {line.where}: row {line.row} is {line.text[:60]!r}, but {own[:60]!r} in {pool.path}; name "
                "the folder that these labels belong to, with --groups."
            )
    pairs = zip(pool.row.tolist(), pool.group.tolist(), strict=True)
    labels = np.array([rows.get(row, groups.get(group, "")) for row, group in pairs], np.str_)
    found = np.flatnonzero(labels != "")
    if not len(found):
        raise ValueError(f"{path} names no class; give a {LABEL} to each group, or row, that you know.")
    return found, labels[found]


def like_classes(labels: NDArray[Any], classes: NDArray[Any]) -> NDArray[Any]:
    """Labels that were read as texts, as numbers where the classes are numbers."""
    if classes.dtype.kind in "UO":
        return labels
    numbers = [read_label(label) for label in labels.tolist()]
    return np.array(numbers, None if all(isinstance(number, int) for number in numbers) else object)


def look_alike(labels: NDArray[Any], classes: NDArray[Any]) -> Iterator[str]:
    """Remarks on new classes whose names differ from another class in case or spaces only."""
    first: dict[str, str] = {}
    for name in dict.fromkeys([*map(str, classes.tolist()), *map(str, labels.tolist())]):
        before = first.setdefault(_plain(name), name)
        if before != name and name not in classes.astype(str):
            yield f"{name!r} is learned beside {before!r}; if they are one class, write the name alike, and try again."


def spelled_alike(one: Any, other: Any) -> bool:
    """Whether two labels differ at most in case, spaces, ``_`` and ``-``; numbers in nothing.

    >>> spelled_alike("Lost card", "lost_card"), spelled_alike(-1, 1)
    (True, False)
    """
    return bool(_plain(one) == _plain(other)) if isinstance(one, str) and isinstance(other, str) else bool(one == other)


def _plain(name: str) -> str:
    return re.sub(r"[\s_-]+", "", name.lower())


def _of_table(path: Path) -> Iterator[Line]:
    columns = read_columns(path, gaps=True)
    if LABEL not in columns or not {ROW, GROUP} & set(columns):
        raise ValueError(f"{path} has the columns {named(columns)}; expected {LABEL!r}, and {ROW!r} or {GROUP!r}.")
    labels = columns[LABEL]
    nothing = np.full(len(labels), None)
    numbers = [columns.get(name, nothing).tolist() for name in (ROW, GROUP)]
    texts = columns.get("text", nothing)
    if texts.dtype.kind == "f":  # 1.50 would not be as it was written
        texts = nothing
    for index, (label, text) in enumerate(zip(labels.tolist(), texts.tolist(), strict=True)):
        where = place(columns, index)
        row, group = (_number(one[index], f"{path}, {where}") for one in numbers)
        yield Line(row, group, _said(label), _said(text), where)


def _number(cell: Any, where: str) -> int | None:
    if is_empty(cell):
        return None
    if not is_number(cell) or not float(cell).is_integer():
        raise ValueError(f"{where}: {cell!r} is not the number of a row or group; write an integer.")
    return int(float(cell))


def _said(value: Any) -> str:
    return "" if is_empty(value) else str(as_label(value)).strip()


def _of_label_studio(path: Path) -> Iterator[Line]:
    try:
        if not isinstance(given := parse_json(path.read_bytes()), list):
            raise TypeError("it is not a list of tasks")
        tasks = [(task, task.get("data", task), list(_labels(task))) for task in given]
        about = [(data[ROW], data.get(GROUP), data.get("text")) for _, data, _ in tasks]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(
            f"{path} is not an export of Label Studio, in JSON or JSON-MIN, of the label_studio.json that `openauc "
            f"discover` wrote ({type(error).__name__}: {error}); export it again."
        ) from None
    for (task, _, answers), (*numbers, text) in zip(tasks, about, strict=True):
        where = f"task {task.get('id', '')}"
        row, group = (_number(number, f"{path}, {where}") for number in numbers)
        for labels in answers:
            if len(labels) > 1:
                raise ValueError(f"{path}, {where} has the labels {named(labels, 3)}; a row has one class, choose one.")
            unnamed = labels == [f"{GROUP} {group}"]  # as it was proposed
            yield Line(row, group, "" if unnamed else "".join(labels), _said(text), where)


def _labels(task: dict[str, Any]) -> Iterator[list[str]]:
    """The labels of each annotation of a task: choices, or what was typed."""
    if "data" in task:  # not JSON-MIN, and without annotations as it was imported
        done = [one["result"] for one in task.get("annotations", ()) if not one.get("was_cancelled")]
        found = [[part["value"] for part in result] for result in done]
    else:
        found = [[value for key, value in task.items() if key not in _NO_LABELS]]
    for values in found:
        inner = [one.get("choices", one.get("text", ())) if isinstance(one, dict) else one for one in values]
        lists = [one if isinstance(one, list | tuple) else [one] for one in inner]
        yield [_said(label) for labels in lists for label in labels if _said(label)]
