"""``openauc discover``: groups among the rows that a model rejects, to look at and to name."""

from __future__ import annotations

import json
import shlex
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray
from rich.text import Text
from typer import Argument, Option

from openauc._columns import write_columns
from openauc._files import refuse_input, write_text
from openauc._validation import UNKNOWN
from openauc.commands.fit import EmbeddingColumn, LabelColumn
from openauc.commands.predict import read_like_model
from openauc.commands.terminal import say, say_wrapped, show, visible
from openauc.commands.thumbnails import images_of, thumbnails
from openauc.features.classifier import tables
from openauc.features.classifier.labels import GROUP, LABEL, ROW, read_lines

if TYPE_CHECKING:
    from openauc.features.classifier.discovery import Group, Groups
    from openauc.features.classifier.estimator import OpenSetClassifier
    from openauc.features.classifier.tables import FeatureTable

FILES = POOL, LABEL_STUDIO, PAGE, LABELS = "rows.parquet", "label_studio.json", "review.html", "labels.csv"
_EXAMPLES = 3
_THUMBNAILS, _ALL_THUMBNAILS = 12, 1200  # images that the page shows, of each group at least, and of all groups
_LONGEST = 32  # characters of words, and of names, in the table


def discover(
    model: Annotated[Path, Argument(metavar="MODEL", help="Folder of a model, as `openauc fit` makes it.")],
    new: Annotated[Path, Argument(metavar="TABLE", help="Embeddings, texts or images, as for `openauc predict`.")],
    out: Annotated[Path, Option("--out", "-o", metavar="FOLDER", help="Folder to write.")] = Path("groups"),
    label_column: LabelColumn = None,
    embedding_column: EmbeddingColumn = None,
) -> None:
    """Find groups among the rows that a model rejects.

    FOLDER gets a page to look at the groups (review.html), a table to name them in (labels.csv, or label_studio.json
    for Label Studio), and the rejected rows (rows.parquet). `openauc extend` teaches the model what was named. If TABLE
    has labels, you are told how pure the groups are.

    Example: openauc discover model new.parquet -o groups
    """
    from openauc.features import OpenSetClassifier

    _refuse_other_files(out)
    classifier = OpenSetClassifier.load(model)
    table = read_like_model(model, classifier, new, label_column=label_column, embedding_column=embedding_column)
    has_texts = tables.named_like(table.columns, tables.TEXTS) is not None
    groups = classifier.discover(table.features, texts=tables.captions(table) if has_texts else None)
    _write(out, model, classifier, table, groups)
    _show(classifier, table, groups)
    folder, labels = shlex.quote(str(out)), shlex.quote(str(out / LABELS))
    say(f"\nwritten to {out}: {PAGE}, {LABELS}, {LABEL_STUDIO}, {POOL}")
    say(f"next: open {folder}/{PAGE} to look at the groups and name them, or fill in the labels in {labels}; then")
    say(f"      openauc extend {shlex.quote(str(model))} {labels} -o MODEL2")


def _refuse_other_files(out: Path) -> None:
    """Raise if the folder holds anything that is not ours, or labels that somebody filled in."""
    if out.exists() and not out.is_dir():
        raise ValueError(f"cannot write to {out}: it is a file; name a folder.")
    found = {entry.name for entry in out.iterdir() if not entry.name.startswith(".")} if out.is_dir() else set()
    if others := sorted(found - set(FILES)):
        raise ValueError(f"cannot write to {out}: it holds {others[0]!r}; name a new or empty folder.")
    if LABELS in found and any(line.label for line in read_lines(out / LABELS)):
        raise ValueError(f"{out / LABELS} has labels that somebody filled in; name another folder, or move it away.")


def _write(out: Path, model: Path, classifier: OpenSetClassifier, table: FeatureTable, groups: Groups) -> None:
    """Write the folder; the file of labels is the last, and never stands beside other groups than its own."""
    from openauc.report.groups import groups_report

    rows, features, n = groups.unknown.nonzero()[0], tables.feature_columns(table), len(table.features)
    if taken := {ROW, GROUP} & set(features):
        raise ValueError(f"a feature is called {taken.pop()!r}, as a column of {POOL} is; rename it and fit again.")
    others = {name: values for name, values in tables.other_columns(table).items() if len(values) == n}
    numbers = {ROW: np.arange(n), GROUP: groups.labels}
    columns = {name: values[rows] for name, values in (numbers | others | numbers | features).items()}
    most = max(_THUMBNAILS, _ALL_THUMBNAILS // max(len(groups.groups), 1))
    central = {row for group in groups.groups for row in group.rows[:most].tolist()}
    captions, images = tables.captions(table), thumbnails(images_of(table), central)
    page = groups_report(
        groups,
        name=str(model),
        classes=classifier.classes_.tolist(),
        unknown_label=classifier.unknown_label_,
        captions=captions,
        images=images,
        rows_name=POOL,
        model=str(model),
        folder=str(out),
        command=shlex.join(["openauc", *sys.argv[1:]]),
    )
    kind = "image" if images and tables.named_like(table.columns, tables.TEXTS) is None else "text"
    out.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        refuse_input(out / name)
    for name in FILES[1:]:
        (out / name).unlink(missing_ok=True)
    encoder = table.spec.encoder
    write_columns(out / POOL, columns, about={} if encoder is None else {"encoder": encoder})
    write_text(out / LABEL_STUDIO, json.dumps(_tasks(groups, captions, kind), indent=1) + "\n")
    write_text(out / PAGE, page)
    write_columns(out / LABELS, _lines(groups, captions))


def _lines(groups: Groups, captions: NDArray[np.str_] | None) -> dict[str, NDArray[Any]]:
    """A line for each group, to fill in its label."""

    def texts(found: Iterable[str]) -> NDArray[np.str_]:
        return np.array(list(found), dtype=str)

    found = groups.groups
    return {
        GROUP: np.arange(len(found)),
        LABEL: texts("" for _ in found),
        "size": np.array([group.size for group in found], dtype=int),
        "purity": np.array([round(group.purity, 3) for group in found], dtype=float),
        "nearest": texts(" | ".join(map(str, group.nearest)) for group in found),
        "words": texts(" ".join(group.words) for group in found),
        "examples": texts(" | ".join(_called(row, captions) for row in group.rows[:_EXAMPLES]) for group in found),
    }


def _called(row: int, captions: NDArray[np.str_] | None) -> str:
    return (str(captions[row]) if captions is not None else "") or f"row {row}"


def _tasks(groups: Groups, captions: NDArray[np.str_] | None, kind: str) -> list[dict[str, Any]]:
    """Tasks as Label Studio imports them; the number of the group is proposed as the choice of a control ``label``."""
    tasks = []
    for row in groups.unknown.nonzero()[0].tolist():
        group = int(groups.labels[row])
        choice = {"from_name": LABEL, "to_name": kind, "type": "choices", "value": {"choices": [f"{GROUP} {group}"]}}
        proposed = [{"model_version": "openauc", "score": groups.groups[group].purity, "result": [choice]}]
        data = {kind: _called(row, captions), ROW: row, GROUP: group}
        tasks.append({"id": row, "data": data, "predictions": proposed if group >= 0 else []})
    return tasks


def _show(classifier: OpenSetClassifier, table: FeatureTable, groups: Groups) -> None:
    rejected, captions = int(groups.unknown.sum()), tables.captions(table)
    truth = [_truth(classifier, table, group) for group in groups.groups]
    rows = []
    for number, (group, (share, label)) in enumerate(zip(groups.groups, truth, strict=True)):
        near = f"a piece of {group.piece_of}?" if group.piece_of is not None else str(*group.nearest[:1])
        about = ", ".join(group.words) or _called(group.rows[0], captions)
        bounds = " – ".join(f"{bound:.2f}" for bound in group.purity_interval)
        cells = str(number), f"{group.size:,}", f"{group.purity:.2f}", bounds, _cut(near), _cut(about)
        rows.append((*cells, *((f"{share:.2f}", _cut(label)) if label else ("", ""))))
    known = [(group, share) for group, (share, label) in zip(groups.groups, truth, strict=True) if label]
    columns = ("group", "size", "purity", "90 % interval", "nearest class", "words or example")
    width = len(columns) + 2 * bool(known)
    count = len(groups.groups)
    title = (
        f"{count} group{'s' * (count != 1)} among {rejected:,} rejected of {len(groups.unknown):,} rows of {table.path}"
    )
    note = "purity: forecast of the share of a group that is of one class"
    rows = [row[:width] for row in rows]
    show(title, (*columns, "by labels", "mostly")[:width], rows, note, names=(4, 5, 7))
    alone = int((groups.unknown & (groups.labels < 0)).sum())
    fitting = f"{alone:,} of the rejected rows ({alone / rejected:.0%}) fit{'s' * (alone == 1)} no group."
    say_wrapped(fitting if alone else "All rejected rows fit a group.")
    for sentence in groups.notes:
        say_wrapped(sentence)
    if known:
        size = [group.size for group, _ in known]
        purity = np.average([share for _, share in known], weights=size)
        forecast = np.average([group.purity for group, _ in known], weights=size)
        kept = sum(share >= group.purity_interval.low for group, share in known)
        say_wrapped(
            f"By the labels of column {table.spec.label}, the groups are {purity:.2f} pure, and {forecast:.2f} was "
            f"forecast; {kept} of {len(known)} are as pure as their interval says, or purer."
        )
    if table.dropped:
        say_wrapped(f"Rows are counted without the {table.dropped:,} that were left out.")


def _truth(classifier: OpenSetClassifier, table: FeatureTable, group: Group) -> tuple[float, str]:
    """Share and name of the most frequent label of a group; no name if its rows have none."""
    if table.spec.label is None:
        return 0.0, ""
    unknown = (None, classifier.unknown_label_, UNKNOWN, str(UNKNOWN))  # say nothing about the class
    labels = [str(label) for label in table.labels[group.rows].tolist() if label not in unknown]
    if not labels:
        return 0.0, ""
    ((label, count),) = Counter(labels).most_common(1)
    return count / len(labels), label


def _cut(text: str) -> Text:
    """A name on one line, which a narrow terminal cuts further."""
    name = Text(visible(text), no_wrap=True, overflow="ellipsis")
    name.truncate(_LONGEST)
    return name
