"""``openauc extend``: a model learns the classes that somebody named, and more rows of those it knows."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray
from typer import Argument, Option

from openauc._files import atomic_write, sealed_metadata
from openauc._validation import named
from openauc.commands.discover import POOL
from openauc.commands.fit import EmbeddingColumn, LabelColumn
from openauc.commands.predict import read_like_model
from openauc.commands.terminal import say, say_wrapped, show
from openauc.features.classifier import labels as reading
from openauc.features.classifier import tables
from openauc.features.classifier.tables import MODEL, is_model

if TYPE_CHECKING:
    from openauc.features.classifier.estimator import OpenSetClassifier
    from openauc.features.classifier.tables import FeatureTable

LABELS_HELP = "Labels of groups or rows (.csv, .json), or a table as for `openauc fit`."
_BEFORE = "before_{}.safetensors"  # models that were replaced
_MOST_CLASSES = 20  # that are listed


def extend(
    changed: Annotated[Path, Argument(metavar="MODEL", help="Folder of a model, as `openauc fit` makes it.")],
    labels: Annotated[Path | None, Argument(metavar="LABELS", help=LABELS_HELP)] = None,
    out: Annotated[
        Path | None,
        Option("--out", "-o", metavar="FOLDER", help="Folder of the extended model; else MODEL is changed."),
    ] = None,
    groups: Annotated[
        Path | None, Option(metavar="FOLDER", help="Folder that `openauc discover` wrote; else the one of LABELS.")
    ] = None,
    undo: Annotated[bool, Option("--undo", help="Take back the last change of MODEL.")] = False,
    label_column: LabelColumn = None,
    embedding_column: EmbeddingColumn = None,
) -> None:
    """Teach a model new classes, without the data of its fit.

    It also learns from more rows of classes it knows. LABELS is the labels.csv of `openauc discover` with its column
    label filled in, the labels.csv that the page review.html saves, or an export of Label Studio (JSON or JSON-MIN). It
    can also be a table of embeddings, texts or images with labels. If a row and its group have different labels, that
    of the row counts; rows without a label are left out. Without -o, MODEL itself is changed; --undo takes that back.

    Example: openauc extend model groups/labels.csv -o model2
    """
    from openauc.features import OpenSetClassifier

    if undo:
        if labels is not None or out is not None or groups is not None:
            raise ValueError("--undo takes back the last change of MODEL; leave out LABELS, --out and --groups.")
        _undo(changed)
        return
    if labels is None:
        raise ValueError("there is nothing to learn; name LABELS after MODEL.")
    target = changed if out is None else out
    classifier = OpenSetClassifier.load(changed)
    if target.is_dir() and any(target.iterdir()) and not is_model(target):
        raise ValueError(f"cannot save to {target}: it holds files but no model; name a new or empty folder.")
    if groups is not None or reading.labels_a_pool(labels, classifier.table_spec_.features):
        X, y, names = _named_rows(changed, classifier, labels, (groups or labels.parent) / POOL)
    else:
        columns = {"label_column": label_column, "embedding_column": embedding_column}
        X, y, names = _labelled_table(read_like_model(changed, classifier, labels, **columns))
    known, report = classifier.classes_, classifier.report_
    for remark in reading.look_alike(y, known):
        say(f"note: {remark}", err=True)
    keeps_names = getattr(getattr(classifier, "examples_", None), "names", None) is not None
    classifier.add_classes(X, y, names=names if keeps_names else None)
    size, in_place = _size(changed), target.resolve() == changed.resolve()
    if is_model(target):
        _keep(target)
    classifier.save(target)
    _show(classifier, y, known)
    for sentence in classifier.report_.notes[len(report.notes) :]:
        say_wrapped(sentence)
    if repeated := len(y) - (classifier.report_.n_samples - report.n_samples):
        say_wrapped(f"{_rows(repeated)} known already, with the same class.")
    if small := classifier.report_.small_classes[len(report.small_classes) :]:
        say_wrapped(f"Too few rows for a guarantee of their own: {named(small, _MOST_CLASSES)}.")
    say_wrapped(f"Guarantee: {classifier.guarantee_}.")
    grown = _size(target) / size - 1.0
    before, after = shlex.quote(str(changed)), shlex.quote(str(target))
    after_all = f"extend {after} --undo" if in_place else f"compare-models {before} {after} labelled.parquet"
    say(f"\nsaved in {target}: {_size(target):,} bytes, {grown:+.1%}")
    say(f"next: openauc predict {after} new.parquet -o decisions.parquet")
    say(f"      openauc {after_all}")


def _named_rows(
    model: Path, classifier: OpenSetClassifier, path: Path, pool: Path
) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.str_] | None]:
    """Features, labels and texts of the rejected rows that somebody named."""
    lines = reading.read_lines(path)
    if not pool.is_file():
        remedy = "name the folder that `openauc discover` wrote, with --groups"
        raise ValueError(f"there is no {pool}, which has the rows that {path} labels; {remedy}.")
    table = read_like_model(model, classifier, pool, label_column=None, embedding_column=None)
    if lacking := {reading.ROW, reading.GROUP} - set(table.columns):
        raise ValueError(f"{pool} has no column {lacking.pop()!r}; name a folder that `openauc discover` wrote.")
    row, group, texts = table.columns[reading.ROW], table.columns[reading.GROUP], tables.captions(table)
    rows, labels = reading.labelled_rows(path, lines, reading.Pool(pool, row, group, texts))
    return (
        table.features[rows],
        reading.like_classes(labels, classifier.classes_),
        texts if texts is None else texts[rows],
    )


def _labelled_table(table: FeatureTable) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.str_] | None]:
    """Features, labels and texts of the labelled rows of a table."""
    labels, texts = table.labels, tables.captions(table)
    given = np.flatnonzero([label is not None for label in labels.tolist()])
    if not len(given):
        raise ValueError(f"{table.path}: the column {table.spec.label!r} is empty; write the class of each row there.")
    if len(given) < len(labels):
        say(f"note: rows of {table.path} without a label are left out: {len(labels) - len(given):,}.", err=True)
    y = np.array([label.strip() if isinstance(label, str) else label for label in labels[given].tolist()])
    return table.features[given], y, None if texts is None else texts[given]


def _show(classifier: OpenSetClassifier, y: NDArray[Any], known: NDArray[Any]) -> None:
    names, counts = np.unique(y, return_counts=True)
    order = np.argsort(-counts, kind="stable")[:_MOST_CLASSES]
    rows = [(str(names[i]), f"{counts[i]:,}", "known before" if names[i] in known else "new") for i in order]
    new = int(np.isin(names, known, invert=True).sum())
    title = f"{_rows(len(y))} of {len(names):,} class{'es' * (len(names) != 1)}, {new:,} new"
    show(title, ("class", "rows", ""), rows, f"and {len(names) - len(order):,} more" if len(order) < len(names) else "")


def _rows(n: int) -> str:
    return f"{n:,} row{'s' * (n != 1)}"


def _size(folder: Path) -> int:
    return (folder / MODEL).stat().st_size


def _kept(folder: Path) -> list[Path]:
    """The models that were replaced, the oldest first."""
    found = {file.stem.rpartition("_")[2]: file for file in folder.glob(_BEFORE.format("*"))}
    return [found[number] for number in sorted(filter(str.isdecimal, found), key=int)]


def _keep(folder: Path) -> None:
    """Keep the model as it is; one that is kept already, as a change was interrupted, is not kept twice."""
    content, kept = (folder / MODEL).read_bytes(), _kept(folder)
    if kept and kept[-1].read_bytes() == content:
        return
    number = int(kept[-1].stem.rpartition("_")[2]) + 1 if kept else 1
    with atomic_write(folder / _BEFORE.format(number)) as file:
        file.write(content)


def _fitted_since(folder: Path) -> bool:
    """Whether the model is one that `openauc extend` did not make; a damaged one may be replaced."""
    from openauc.features import OpenSetClassifier

    try:
        return not OpenSetClassifier.load(folder).report_.n_added
    except ValueError:
        return False


def _undo(folder: Path) -> None:
    if not is_model(folder):
        raise ValueError(f"{folder} is not a model: it has no {MODEL}. Name a folder that `openauc fit` made.")
    kept = _kept(folder)
    if not kept:
        raise ValueError(f"{folder} was not changed by `openauc extend`; there is nothing to take back.")
    sealed_metadata(kept[-1])  # a damaged file does not replace the model
    if _fitted_since(folder):
        lost = f"{folder} was fitted again after `openauc extend` changed it, and that fit would be lost"
        raise ValueError(f"{lost}; the model before the change is {kept[-1]}: copy it as {MODEL} to another folder.")
    os.replace(kept[-1], folder / MODEL)
    left = f"; {len(kept) - 1} earlier changes can be taken back" if len(kept) > 1 else ""
    say(f"{folder} is as it was before the last change{left}.")
