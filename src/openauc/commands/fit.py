"""``openauc fit``: from a table of embeddings to a classifier that rejects what it does not know."""

from __future__ import annotations

import shlex
import time
import warnings
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from rich.console import Console
from rich.table import Table
from typer import Argument, Option

from openauc._columns import means_unknown
from openauc._files import add_inputs
from openauc._validation import is_number, named, read_label
from openauc.commands.predictions import MOST_NAMED, read_costs
from openauc.commands.progress import clock
from openauc.commands.terminal import bounds_text, console, say, show, visible
from openauc.features.classifier import tables
from openauc.features.classifier.tables import MODEL, FeatureTable, Missing, is_model

if TYPE_CHECKING:
    from openauc.features.classifier.estimator import OpenSetClassifier

_columns = partial(Option, rich_help_panel="Columns")
_model = partial(Option, rich_help_panel="Model")
_threshold = partial(Option, rich_help_panel="Threshold")

LabelColumn = Annotated[str | None, _columns(help="Column of labels; else label, y, y_true, class, intent or target.")]
EmbeddingColumn = Annotated[str | None, _columns(help="Column of the embeddings; else embedding, or all numbers.")]


def fit(
    features: Annotated[Path, Argument(metavar="TABLE", help="Embeddings and labels: .parquet, .npz or .csv.")],
    out: Annotated[Path, Option("--out", "-o", metavar="FOLDER", help="Folder of the model.")] = Path("model"),
    label_column: LabelColumn = None,
    embedding_column: EmbeddingColumn = None,
    group_column: Annotated[
        str | None, _columns(help="Column of groups: rows that belong together. Else, texts that are nearly equal do.")
    ] = None,
    unknown_label: Annotated[
        str | None, _columns(help="Label of outliers that you have; the model learns from them, too.")
    ] = None,
    missing: Annotated[Missing, _columns(help="Empty cells: refuse, drop the row, or fill in the median.")] = "refuse",
    head: Annotated[str, _model(help="logistic, class_mean or mlp.")] = "logistic",
    rejector: Annotated[str, _model(help="learned, average, selected or a score: `openauc list scores`.")] = "learned",
    max_ofpr: Annotated[
        float | None, _model(help="Aim at partial OpenAUC, up to this share of unknown samples accepted.")
    ] = None,
    folds: Annotated[int, _model(help="Number of parts that classes and samples are cut into.")] = 5,
    threshold: Annotated[str, _threshold(help="acceptance, youden, cost, or a number.")] = "acceptance",
    acceptance: Annotated[float, _threshold(help="Share of known samples to accept.")] = 0.95,
    per_class: Annotated[bool, _threshold("--per-class", help="A threshold for each class.")] = False,
    calibration: Annotated[
        Literal["cross", "split"], _threshold(help="split sets a fifth aside, for an exact guarantee.")
    ] = "cross",
    cost: Annotated[
        list[str] | None,
        _threshold(metavar="NAME=X", help="For --threshold cost; repeatable; names as for `openauc threshold`."),
    ] = None,
    seed: Annotated[int, Option(min=0, help="Seed of the folds.")] = 0,
    jobs: Annotated[int | None, Option(help="Processes; -1 for all cores.")] = None,
    onnx: Annotated[Path | None, Option(metavar="FILE", help="Also write the model as ONNX.")] = None,
    names: Annotated[
        bool, Option(help="Keep texts, file names or ids of some training rows, for explanations.")
    ] = True,
    quiet: Annotated[bool, Option("--quiet", "-q", help="Print nothing but warnings.")] = False,
) -> None:
    """Fit a classifier that can also answer "unknown".

    No unknown sample is needed. TABLE has a column of embeddings, as `openauc embed` writes it, or features in columns
    of numbers. Known classes are held out in turn to choose and learn what tells unknown samples from known ones.
    """
    from openauc.features import OpenSetClassifier

    begin = time.monotonic()
    if out.is_dir() and any(out.iterdir()) and not is_model(out):
        raise ValueError(f"cannot save to {out}: it holds files but no model; name a new or empty folder.")
    columns: dict[str, Any] = {"embedding_column": embedding_column, "label_column": label_column}
    table = tables.read_table(features, **columns, group_column=group_column, missing=missing, need_labels=True)
    classifier = OpenSetClassifier(
        head=head,
        rejector=rejector,
        threshold=float(threshold) if is_number(threshold) else threshold,
        acceptance=acceptance,
        per_class=per_class,
        costs=read_costs(cost),
        calibration=calibration,
        max_ofpr=max_ofpr,
        folds=folds,
        random_state=seed,
        n_jobs=jobs,
    )
    if unknown_label is not None:
        numbers = table.labels.dtype.kind == "i"
        classifier.set_params(unknown_label=read_label(unknown_label) if numbers else unknown_label)
    if not quiet:
        for line in (*_read(table), *_hints(table, unknown_label)):
            say(line)
    _fit(classifier, table, group_column, quiet=quiet)
    classifier.table_spec_ = table.spec
    if names and (name := tables.named_like(table.columns, (*tables.TEXTS, *tables.NAMES))) is not None:
        classifier.examples_ = classifier.examples_.named(table.columns[name])
    classifier.save(out)
    if onnx is not None:
        add_inputs(out / MODEL)
        classifier.export_onnx(onnx)
    if not quiet:
        _show_fit(classifier, time.monotonic() - begin)
        folder, suffix = shlex.quote(str(out)), features.suffix
        say(f"\nsaved in {out}" + ("" if onnx is None else f", and as {onnx}"))
        say(f"next: openauc predict {folder} new{suffix} -o decisions{suffix}")
        say(f"      openauc report {folder} [labelled{suffix}]")


def _read(table: FeatureTable) -> Iterator[str]:
    n, width = table.features.shape
    names = table.spec.features
    shown = [*names[:MOST_NAMED], *(("…", names[-1]) if len(names) > MOST_NAMED else ())]
    encoder = "" if table.spec.encoder is None else f", encoder {table.spec.encoder}"
    columns = f"{'column' if len(names) == 1 else 'columns'} {', '.join(shown)}{encoder}"
    yield f"{table.path}: {n:,} samples, {width} features ({columns}), labels in column {table.spec.label}"
    if table.left_out:
        yield f"left out, as they are not numbers or count the rows: {named(table.left_out, MOST_NAMED)}"
    if table.dropped:
        yield f"dropped, as cells are empty: {table.dropped:,} rows"


def _hints(table: FeatureTable, unknown_label: str | None) -> list[str]:
    labels = table.labels.tolist()
    meant = ("unknown" if unknown_label is None else unknown_label, "-1")  # labels of unknown samples anyway
    return [
        f"hint: {word!r} is learned as a class, of {labels.count(word):,} rows; if it means none of the classes, add "
        f"--unknown-label {shlex.quote(word)}"
        for word in dict.fromkeys(map(str, labels))
        if means_unknown(word) and word not in meant
    ]


def _fit(classifier: OpenSetClassifier, table: FeatureTable, group_column: str | None, *, quiet: bool) -> None:
    """Fit; a terminal shows the last finished step, and a warning that is also a note of the report is not repeated."""
    console = Console(stderr=True)
    shown = console.status("fitting") if console.is_terminal and not quiet else nullcontext()
    with warnings.catch_warnings(record=True) as raised, shown as status:
        warnings.simplefilter("always")
        if status is not None:
            classifier.set_params(verbose=lambda done: status.update(f"fitting; done: {done}"))
        classifier.fit(table.features, table.labels, groups=tables.groups_of(table, group_column))
    classifier.set_params(verbose=False)
    for warning in raised:
        if quiet or str(warning.message) not in classifier.report_.notes:
            warnings.warn(warning.message, stacklevel=2)


def _show_fit(classifier: OpenSetClassifier, seconds: float) -> None:
    report = classifier.report_
    if report.tried:
        metric = "OpenAUC" if report.max_ofpr is None else f"OpenAUC, OFPR <= {report.max_ofpr:g}"
        rows = [
            (f"{'*' if one.name == report.chosen else ' '} {one.name}", f"{one.openauc:.4f}", bounds_text(one.interval))
            for one in report.tried
        ]
        note = "* in use; intervals over the held-out classes"
        show("Known classes held out as unknown", ("score", metric, "95 % interval"), rows, note)
    outliers = f", {report.n_outliers:,} outliers" if report.n_outliers else ""
    facts = [
        ("model", f"{report.n_classes} classes{outliers}; head {report.head}, rejector {report.chosen}"),
        ("accuracy", f"{report.accuracy:.4f} on known samples it was not trained on"),
    ]
    if report.expected is not None:
        forecast = f"{report.expected.openauc:.4f} ({bounds_text(report.expected.interval)})"
        facts.append(("expected", f"OpenAUC {forecast} on classes it has not seen"))
    facts += [("unknown", tables.unknown_when(classifier)), ("guarantee", classifier.guarantee_)]
    if report.small_classes:
        facts.append(("small classes", f"{named(report.small_classes)}: too few rows for a guarantee of their own"))
    grid = Table.grid(padding=(0, 2))
    for fact in (*facts, *(("note", note) for note in report.notes), ("time", clock(seconds))):
        grid.add_row(*map(visible, fact))
    console().print(grid)
