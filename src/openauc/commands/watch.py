"""``openauc watch``: has what a model meets changed against its calibration?"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Exit, Option

from openauc._columns import FORMATS, read_columns
from openauc._files import write_text
from openauc._validation import check_choice
from openauc.commands.fit import EmbeddingColumn, LabelColumn
from openauc.commands.predict import read_like_model
from openauc.commands.terminal import p_text, say, say_wrapped, show
from openauc.commands.thumbnails import images_of, thumbnails
from openauc.features.classifier import tables
from openauc.report.monitor import more_rejected

if TYPE_CHECKING:
    from openauc.features.classifier.tables import FeatureTable
    from openauc.features.monitor.monitor import Monitor

EXAMPLES = 12  # rejected samples that the page shows
_PARTS = {"rejected": "share rejected", "classes": "acceptance of a class", "scores": "distribution of scores"}


def watch(
    folder: Annotated[Path, Argument(metavar="MODEL", help="Folder of a model, as `openauc fit` makes it.")],
    stream: Annotated[
        Path | None, Argument(metavar="STREAM", help="Embeddings in the order they came in: .parquet, .npz or .csv.")
    ] = None,
    out: Annotated[Path | None, Option("--out", "-o", metavar="HTML", help="Page with the timeline.")] = None,
    alpha: Annotated[float | None, Option(help="Probability of ever raising a false alarm; 0.01 by default.")] = None,
    reference: Annotated[
        Path | None, Option(metavar="TABLE", help="Samples to compare with, which the model was not fitted on.")
    ] = None,
    state: Annotated[Path | None, Option(metavar="FILE", help="Go on where this file stopped; .npz.")] = None,
    window: Annotated[int | None, Option(min=1, help="Samples in a window of the timeline; 500 by default.")] = None,
    time_column: Annotated[
        str | None, Option(help="Column of times, which order the stream.", rich_help_panel="Columns")
    ] = None,
    label_column: LabelColumn = None,
    embedding_column: EmbeddingColumn = None,
    seed: Annotated[int, Option(min=0, help="Seed of the numbers that break ties.")] = 0,
    fail_on_alarm: Annotated[bool, Option("--fail-on-alarm", help="Exit with code 1 after an alarm.")] = False,
) -> None:
    """Tell whether what a model meets has changed.

    It watches the share of rejected samples, the acceptance of each class, and the distribution of scores. STREAM needs
    no labels; when you have labels, `openauc evaluate --by` shows OpenAUC over time. If nothing changes, there is an
    alarm with a probability of --alpha at most, however long the stream is.
    """
    from openauc.features import OpenSetClassifier
    from openauc.features.monitor.monitor import Monitor

    classifier = OpenSetClassifier.load(folder)
    columns = {"label_column": label_column, "embedding_column": embedding_column}
    given: dict[str, Any] = {"alpha": alpha, "window": window}
    options = {name: value for name, value in given.items() if value is not None}
    table: FeatureTable | None = None
    rejected: dict[int, int] = {}
    with _locked(state):
        begun = state is not None and state.is_file()
        if stream is None and (out is None or not begun):
            raise ValueError("there is nothing to watch; name a stream, or a --state with --out.")
        if state is not None and begun:
            monitor = Monitor.load(state, classifier)
            _refuse_other_options(state, monitor, options, reference)
        else:
            samples = None if reference is None else read_like_model(folder, classifier, reference, **columns).features
            monitor = Monitor(classifier, reference=samples, random_state=seed, **options)
        if stream is not None:
            try:
                table = read_like_model(folder, classifier, stream, **columns)
                rejected = _update(monitor, table, time_column)
            except ValueError:
                if not _is_empty(stream):
                    raise
                say(f"{stream} holds no sample; what was seen before stays as it is.", err=True)
        _print_monitor(monitor)
        discover = shlex.join(["openauc", "discover", str(folder), str(stream or "STREAM"), "-o", "groups"])
        if more_rejected(monitor):
            say(f"To see what is new among the rejected: {discover}")
        if out is not None and monitor.n:
            from openauc.report import monitor_report

            page = monitor_report(
                monitor,
                name=folder.absolute().name,
                stream="the stream" if stream is None else stream.absolute().name,
                **_examples(table, rejected),
                next_command=discover,
                command=shlex.join(["openauc", *sys.argv[1:]]),
            )
            write_text(out, page)
            say(f"wrote {out}")
        if state is not None:
            monitor.save(state)  # last: what fails before can be done again
    if fail_on_alarm and monitor.alarms:
        raise Exit(1)


@contextmanager
def _locked(state: Path | None) -> Iterator[None]:
    """Wait until no other process updates the state, so that no batch of either is lost."""
    if state is None or not state.parent.is_dir():
        yield
        return
    from filelock import FileLock, Timeout

    file = state.resolve()  # every link to it waits for the same lock
    lock = FileLock(file.with_name(f".{file.name}.lock"))
    try:
        held = lock.acquire(timeout=1)
    except Timeout:
        say(f"waiting: another process updates {state}.", err=True)
        held = lock.acquire()
    with held:
        yield


def _refuse_other_options(state: Path, monitor: Monitor, options: dict[str, Any], reference: Path | None) -> None:
    for name, given in options.items():
        if given != (before := getattr(monitor, name)):
            differs = f"{state} was begun with {name} {before:g}, and --{name} is {given:g} now"
            raise ValueError(f"{differs}; leave it out, or name a new state.")
    if reference is not None:
        raise ValueError(f"{state} has a reference already; leave --reference out, or name a new state.")


def _is_empty(file: Path) -> bool:
    """Whether a table has columns but no row."""
    columns = read_columns(file) if file.suffix.lower() in FORMATS else {}
    return len(columns) > 0 and not any(len(columns[name]) for name in columns)


def _update(monitor: Monitor, table: FeatureTable, time_column: str | None) -> dict[int, int]:
    """Watch the rows, in the order of their times if there are any; number in the stream -> row of those rejected."""
    import numpy as np

    order, times = np.arange(len(table.features)), None
    if time_column is not None:
        values = table.columns[check_choice(f"the --time-column of {table.path}", time_column, table.columns)]
        if any(value is None or value != value for value in values.tolist()):
            raise ValueError(f"{table.path}: {time_column!r} is missing for some samples; every sample needs a time.")
        order = np.argsort(values, kind="stable")
        times = values[order].astype(str)
    score, predicted = monitor.classifier._decide(table.features[order])
    rejected = np.flatnonzero(score > monitor.classifier.thresholds_[predicted])
    numbers = monitor.n + 1 + rejected
    monitor.update_scores(score, predicted, time=times)
    return dict(zip(numbers.tolist(), order[rejected].tolist(), strict=True))


def _examples(table: FeatureTable | None, rejected: Mapping[int, int]) -> dict[str, Any]:
    """The latest rejected samples, with their texts, file names or ids, and thumbnails, if the stream has them."""
    captions = None if table is None else tables.captions(table)
    if table is None or captions is None:
        return {}
    latest = {number: rejected[number] for number in sorted(rejected, reverse=True)[:EXAMPLES]}
    images = thumbnails(images_of(table), set(latest.values()))
    return {
        "rejected": {number: str(captions[row]) for number, row in latest.items()},
        "images": {number: images[row] for number, row in latest.items() if row in images},
    }


def _print_monitor(monitor: Monitor) -> None:
    from openauc.features.monitor.monitor import LIMITS

    rows = []
    for part, name in _PARTS.items():
        first = next((alarm for alarm in monitor.alarms if alarm.part == part), None)
        places = ("", "", "") if first is None else (f"{first.sample:,}", f"{first.since:,}", first.label or "")
        rows.append((name, p_text(monitor.p_value(part)), *places))
    show(
        monitor.headline,
        ("what is watched", "chance of the evidence", "alarm at sample", "likely since", "class"),
        rows,
        f"an alarm is a chance of at most {monitor.alpha:g}",
    )
    for line in (*(f"Alarm at {alarm}." for alarm in monitor.alarms), f"Guarantee: {monitor.guarantee}.", *LIMITS):
        say_wrapped(line)
