"""``openauc watch``: has what a model meets changed against its calibration?"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from openauc._columns import read_columns
from openauc.commands.fit import EmbeddingColumn, LabelColumn
from openauc.commands.predict import read_like_model
from openauc.commands.terminal import say, say_wrapped, show
from openauc.features.classifier.tables import LABELS, MODEL, Source, is_model, truth

if TYPE_CHECKING:
    from openauc.features.classifier.estimator import OpenSetClassifier
    from openauc.features.classifier.tables import Table
    from openauc.features.monitor.monitor import Monitor

SAMPLE = "sample"
"""Column of --labels with the number of a sample in the stream."""
_MOST_WINDOWS = 12


def watch(
    folder: Annotated[Path, typer.Argument(metavar="MODEL", help="Folder of a model, as `openauc fit` makes it.")],
    stream: Annotated[
        Path | None,
        typer.Argument(metavar="[STREAM]", help="Embeddings in the order they came in: .parquet, .npz or .csv."),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="HTML", help="Page with the timeline.")] = None,
    alpha: Annotated[
        float | None, typer.Option(help="Probability of ever raising a false alarm.", show_default="0.01")
    ] = None,
    reference: Annotated[
        Path | None,
        typer.Option(metavar="TABLE", help="Samples to compare with that the model was not fitted on."),
    ] = None,
    state: Annotated[Path | None, typer.Option(metavar="FILE", help="Go on where this file stopped; .npz.")] = None,
    labels: Annotated[
        Path | None,
        typer.Option(metavar="TABLE", help=f"Labels that came later: a column {SAMPLE}, from 1, and labels."),
    ] = None,
    window: Annotated[
        int | None, typer.Option(min=1, help="Samples in a window of the timeline.", show_default="500")
    ] = None,
    time_column: Annotated[
        str | None, typer.Option(help="Column of times, which order the stream.", rich_help_panel="Columns")
    ] = None,
    label_column: LabelColumn = None,
    embedding_column: EmbeddingColumn = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the numbers that break ties.")] = 0,
    fail_on_alarm: Annotated[bool, typer.Option("--fail-on-alarm", help="Exit with code 1 after an alarm.")] = False,
) -> None:
    """Has the share of rejected samples, the acceptance of a class or the distribution of scores changed?

    STREAM needs no labels; where it has some, or --labels brings them later, OpenAUC over time is shown, too. If
    nothing changes, an alarm is ever raised with probability --alpha at most, however long the stream is.
    """
    from openauc._files import write_text
    from openauc.features import OpenSetClassifier

    if not is_model(folder):
        raise ValueError(f"{folder} is no model: it has no {MODEL}. Name a folder that `openauc fit` made.")
    classifier = OpenSetClassifier.load(folder)
    columns = {"label_column": label_column, "embedding_column": embedding_column}
    begun = state is not None and state.is_file()
    if stream is None and not (begun and (labels is not None or out is not None)):
        raise ValueError("there is nothing to watch; name a stream, or a --state with --labels or --out.")
    if begun:
        assert state is not None
        monitor = _continued(state, classifier, alpha=alpha, window=window, reference=reference)
    else:
        monitor = _new(folder, classifier, reference, alpha, window, seed, columns)
    if stream is not None:
        _read_stream(monitor, read_like_model(folder, classifier, stream, **columns), time_column)
    if labels is not None:
        _read_labels(monitor, labels, label_column or Source.load(folder).label)
    _tell(monitor)
    if out is not None:
        from openauc.report import monitor_report

        name = "the stream" if stream is None else stream.name
        command = shlex.join(["openauc", *sys.argv[1:]])
        write_text(out, monitor_report(monitor, name=str(folder), stream=name, command=command))
        say(f"wrote {out}")
    if state is not None:
        monitor.save(state)  # last: what fails before can be done again
    if fail_on_alarm and monitor.alarms:
        raise typer.Exit(1)


def _new(
    folder: Path,
    classifier: OpenSetClassifier,
    reference: Path | None,
    alpha: float | None,
    window: int | None,
    seed: int,
    columns: dict[str, str | None],
) -> Monitor:
    from openauc.features.monitor.monitor import Monitor

    samples = None if reference is None else read_like_model(folder, classifier, reference, **columns).features
    given = {"alpha": alpha, "window": window}
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    return Monitor(classifier, reference=samples, random_state=seed, **options)


def _continued(
    state: Path, classifier: OpenSetClassifier, *, alpha: float | None, window: int | None, reference: Path | None
) -> Monitor:
    from openauc.features.monitor.monitor import Monitor

    monitor = Monitor.load(state, classifier)
    for name, given in (("alpha", alpha), ("window", window)):
        if given not in (None, getattr(monitor, name)):
            raise ValueError(
                f"{state} was begun with {name} {getattr(monitor, name):g}, and --{name} is {given:g} now; leave it "
                "out, or name a new state."
            )
    if reference is not None:
        raise ValueError(f"{state} has a reference already; leave --reference out, or name a new state.")
    return monitor


def _read_stream(monitor: Monitor, table: Table, time_column: str | None) -> None:
    """Watch the rows in the order of their times, and take the labels that some of them have."""
    import numpy as np

    order, times = np.arange(len(table.features)), None
    if time_column is not None:
        if time_column not in table.columns:
            raise ValueError(
                f"{table.path} has no column {time_column!r}, which time_column names; it has "
                f"{', '.join(map(repr, table.columns))}."
            )
        values = table.columns[time_column]
        if any(value is None or value != value for value in values.tolist()):
            raise ValueError(f"{table.path}: {time_column!r} is missing for some samples; every sample needs a time.")
        order = np.argsort(values, kind="stable")
        times = values[order].astype(str)
    before = monitor.n
    monitor.update(table.features[order], time=times)
    if table.source.label is not None:
        given = table.labels[order]
        rows = np.array([i for i, label in enumerate(given.tolist()) if label not in (None, "")], np.int64)
        _take(monitor, given[rows], before + 1 + rows)


def _read_labels(monitor: Monitor, file: Path, name: str | None) -> None:
    from openauc._validation import as_labels, as_numbers

    columns = read_columns(file)
    found = next((one for one in (name, *LABELS) if one in columns), None)
    if SAMPLE not in columns or found is None:
        raise ValueError(
            f"{file} has the columns {', '.join(map(repr, columns))}; expected {SAMPLE!r}, the number of the sample in "
            "the stream, and its label. Name another with label_column."
        )
    numbers = as_numbers(f"{file}: the column {SAMPLE!r}", columns[SAMPLE])
    _take(monitor, as_labels(f"{file}: the column {found!r}", columns[found]), numbers)


def _take(monitor: Monitor, labels: Any, samples: Any) -> None:
    """Labels as a file writes them, of which only the text counts."""
    if len(labels):
        monitor.labels(truth(monitor.classifier, labels)[0], samples=samples)


def _tell(monitor: Monitor) -> None:
    """What was seen, what has changed, what labels say, and what cannot be told."""
    from openauc.features.monitor.monitor import LIMITS, PARTS

    names = {"rejected": "share rejected", "classes": "acceptance of a class", "scores": "distribution of scores"}
    rows = []
    for part in PARTS:
        first = next((alarm for alarm in monitor.alarms if alarm.part == part), None)
        told = ("", "", "") if first is None else (f"{first.sample:,}", f"{first.since:,}", first.label or "")
        chance = monitor.p_value(part)
        rows.append((names[part], "< 0.0001" if chance < 1e-4 else f"{chance:.4f}", *told))
    show(
        f"{monitor.n:,} samples, {monitor.rejected_share:.1%} rejected; {monitor.usual_share:.1%} of "
        f"{monitor.usual[0].sum():,} in the reference",
        ("what is watched", "chance of the evidence", "alarm at sample", "likely since", "class"),
        rows,
        f"an alarm is a chance of at most {monitor.alpha:g}",
    )
    windows = [one for one in monitor.labelled_windows() if one.interval is not None and one.openauc is not None]
    if windows:
        show(
            "Windows with labels",
            ("samples", "known", "unknown", "OpenAUC", "interval"),
            [
                (
                    f"{one.first:,} – {one.last:,}",
                    f"{one.n_known:,}",
                    f"{one.n_unknown:,}",
                    f"{one.openauc:.4f}",
                    " – ".join(f"{bound:.4f}" for bound in one.interval or ()),
                )
                for one in windows[-_MOST_WINDOWS:]
            ],
            "the intervals hold all together with 95 %",
        )
    for line in (*(f"Alarm at {alarm}." for alarm in monitor.alarms), f"Promise: {monitor.promise}.", *LIMITS):
        say_wrapped(line)
