"""``openauc fit``: from a table of embeddings to a classifier that rejects what it does not know."""

from __future__ import annotations

import shlex
import time
import warnings
from contextlib import nullcontext
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from openauc._columns import means_unknown
from openauc._validation import check_choice, named, read_label
from openauc.commands.terminal import console, say, show, visible
from openauc.commands.train import assignments
from openauc.features.classifier.tables import Missing, is_model
from openauc.metrics.operating import Costs

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from openauc.features.classifier.estimator import OpenSetClassifier
    from openauc.features.classifier.report import FitReport
    from openauc.features.classifier.tables import FeatureTable

_COLUMNS, _MODEL, _THRESHOLD = "Columns", "Model", "Threshold"
_MOST_NAMED = 6

LabelColumn = Annotated[
    str | None,
    typer.Option(
        help="Column of the labels; else label, y, y_true, class, intent or target.", rich_help_panel=_COLUMNS
    ),
]
EmbeddingColumn = Annotated[
    str | None,
    typer.Option(help="Column of the embeddings; else embedding, or all numbers.", rich_help_panel=_COLUMNS),
]


def fit(
    features: Annotated[
        Path,
        typer.Argument(metavar="TABLE", help="Embeddings and labels: .parquet, .npz or .csv."),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FOLDER", help="Folder of the model.")] = Path("model"),
    label_column: LabelColumn = None,
    embedding_column: EmbeddingColumn = None,
    group_column: Annotated[
        str | None,
        typer.Option(
            help="Column of groups, rows that belong together; else texts that are nearly copies do.",
            rich_help_panel=_COLUMNS,
        ),
    ] = None,
    unknown_label: Annotated[
        str | None, typer.Option(help="Label of outliers, which help to learn.", rich_help_panel=_COLUMNS)
    ] = None,
    missing: Annotated[
        Missing,
        typer.Option(help="Empty cells: refuse, drop the row, or fill in the median.", rich_help_panel=_COLUMNS),
    ] = "refuse",
    head: Annotated[str, typer.Option(help="logistic, class_mean or mlp.", rich_help_panel=_MODEL)] = "logistic",
    rejector: Annotated[
        str,
        typer.Option(help="learned, average, selected, or a score; see `openauc list scores`.", rich_help_panel=_MODEL),
    ] = "learned",
    max_ofpr: Annotated[
        float | None,
        typer.Option(help="Aim at OpenAUC up to this share of unknown samples accepted.", rich_help_panel=_MODEL),
    ] = None,
    folds: Annotated[int, typer.Option(help="Parts classes and samples are cut into.", rich_help_panel=_MODEL)] = 5,
    threshold: Annotated[
        str, typer.Option(help="acceptance, youden, cost, or a number.", rich_help_panel=_THRESHOLD)
    ] = "acceptance",
    acceptance: Annotated[
        float, typer.Option(help="Share of known samples to accept.", rich_help_panel=_THRESHOLD)
    ] = 0.95,
    per_class: Annotated[
        bool, typer.Option("--per-class", help="A threshold for each class.", rich_help_panel=_THRESHOLD)
    ] = False,
    calibration: Annotated[
        Literal["cross", "split"],
        typer.Option(help="split promises exactly, and sets a fifth aside.", rich_help_panel=_THRESHOLD),
    ] = "cross",
    cost: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=X",
            help="For --threshold cost, repeatable; names as for `openauc threshold`.",
            rich_help_panel=_THRESHOLD,
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the folds.")] = 0,
    jobs: Annotated[int | None, typer.Option(help="Processes; -1 for all cores.")] = None,
    onnx: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write the model as ONNX.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but warnings.")] = False,
) -> None:
    """Fit a classifier that answers "unknown" for samples of none of its classes; no unknown sample is needed.

    TABLE has a column of embeddings, as `openauc embed` writes it, or features in columns of numbers. Known classes are
    held out in turn to choose and learn what tells unknown samples from known ones.
    """
    from openauc.features import OpenSetClassifier
    from openauc.features.classifier.tables import groups_of, read_table

    begin = time.monotonic()
    _refuse_other_folder(out)
    table = read_table(
        features,
        embedding_column=embedding_column,
        label_column=label_column,
        group_column=group_column,
        missing=missing,
        need_labels=True,
    )
    labels = table.labels
    numbers = labels.dtype.kind == "i"
    classifier = OpenSetClassifier(
        head=head,
        rejector=rejector,
        threshold=_threshold(threshold),
        acceptance=acceptance,
        per_class=per_class,
        costs=_costs(cost),
        calibration=calibration,
        max_ofpr=max_ofpr,
        folds=folds,
        random_state=seed,
        n_jobs=jobs,
    )
    if unknown_label is not None:
        classifier.set_params(unknown_label=read_label(unknown_label) if numbers else unknown_label)
    groups = groups_of(table, group_column)
    if not quiet:
        say("\n".join([_read(table), *_hints(table, unknown_label)]))
    _fit(classifier, table, groups, quiet=quiet)
    classifier.table_spec_ = table.spec
    classifier.save(out)
    if onnx is not None:
        classifier.export_onnx(onnx)
    if not quiet:
        _show_fit(classifier, time.monotonic() - begin)
        say(_next(out, onnx, features))


def _refuse_other_folder(out: Path) -> None:
    """Raise, before the work, where a model cannot be written."""
    if out.is_dir() and any(out.iterdir()) and not is_model(out):
        raise ValueError(f"cannot save to {out}: it holds files but no model; name a new or empty folder.")


def _threshold(text: str) -> str | float:
    try:
        return float(text)
    except ValueError:
        return text


def _costs(texts: list[str] | None) -> Costs | None:
    if not texts:
        return None
    names = [field.name for field in fields(Costs)]
    return Costs(**{check_choice("--cost", name, names): value for name, value in assignments("--cost", texts).items()})


def _read(table: FeatureTable) -> str:
    """What was taken from the file."""
    n, width = table.features.shape
    names = table.spec.features
    shown = [*names[:_MOST_NAMED], *(("…", names[-1]) if len(names) > _MOST_NAMED else ())]
    encoder = "" if table.spec.encoder is None else f", encoder {table.spec.encoder}"
    lines = [
        f"{table.path}: {n:,} samples, {width} features ({'column' if len(names) == 1 else 'columns'} "
        f"{', '.join(shown)}{encoder}), labels in column {table.spec.label}"
    ]
    if table.left_out:
        lines.append(f"left out, as they are not numbers or count the rows: {named(table.left_out, _MOST_NAMED)}")
    if table.dropped:
        lines.append(f"dropped, as cells are empty: {table.dropped:,} rows")
    return "\n".join(lines)


def _hints(table: FeatureTable, unknown_label: str | None) -> list[str]:
    """Words for "none of the classes" that would be learned as a class."""
    labels = table.labels.tolist()
    words = [word for word in dict.fromkeys(map(str, labels)) if means_unknown(word)]
    # "unknown" is the default, and what the caller names is meant.
    return [
        f"hint: {word!r} is learned as a class, of {labels.count(word):,} rows; if it means none of the classes, add "
        f"--unknown-label {shlex.quote(word)}"
        for word in words
        if word not in ("unknown" if unknown_label is None else unknown_label, "-1")
    ]


def _fit(classifier: OpenSetClassifier, table: FeatureTable, groups: NDArray[np.int64] | None, *, quiet: bool) -> None:
    """Fit; a terminal shows the last finished step, and a warning that is also a note of the report is not repeated."""
    from rich.console import Console

    console = Console(stderr=True)
    shown = console.status("fitting") if console.is_terminal and not quiet else nullcontext()
    with warnings.catch_warnings(record=True) as raised, shown as status:
        warnings.simplefilter("always")
        if status is not None:
            classifier.set_params(verbose=lambda done: status.update(f"fitting; done: {done}"))
        classifier.fit(table.features, table.labels, groups=groups)
    classifier.set_params(verbose=False)
    for warning in raised:
        if quiet or str(warning.message) not in classifier.report_.notes:
            warnings.warn(warning.message, stacklevel=2)


def _show_fit(classifier: OpenSetClassifier, seconds: float) -> None:
    """What was tried and chosen, what to expect, what is promised."""
    from rich.table import Table

    report: FitReport = classifier.report_
    if report.tried:
        metric = "OpenAUC" if report.max_ofpr is None else f"OpenAUC, OFPR <= {report.max_ofpr:g}"
        rows = [
            (
                f"{'*' if tried.name == report.chosen else ' '} {tried.name}",
                f"{tried.openauc:.4f}",
                f"{tried.interval.low:.4f} – {tried.interval.high:.4f}",
            )
            for tried in report.tried
        ]
        show(
            "Known classes held out to play unknown",
            ("score", metric, "95 % interval"),
            rows,
            "* in use; intervals over the held-out classes",
        )
    grid = Table.grid(padding=(0, 2))
    for row in _facts(classifier, seconds):
        grid.add_row(*map(visible, row))
    console().print(grid)


def _facts(classifier: OpenSetClassifier, seconds: float) -> list[tuple[str, str]]:
    from openauc.commands.progress import clock
    from openauc.features.classifier.tables import unknown_when

    report: FitReport = classifier.report_
    outliers = f", {report.n_outliers:,} outliers" if report.n_outliers else ""
    expected = report.expected
    told = [
        ("model", f"{report.n_classes} classes{outliers}; head {report.head}, rejector {report.chosen}"),
        ("accuracy", f"{report.accuracy:.4f} on known samples it was not trained on"),
    ]
    if expected is not None:
        low, high = expected.interval
        told.append(("expected", f"OpenAUC {expected.openauc:.4f} ({low:.4f} – {high:.4f}) on classes it has not seen"))
    told += [("unknown", unknown_when(classifier)), ("promise", classifier.guarantee_)]
    if report.small_classes:
        told.append(("small classes", f"{named(report.small_classes)}: too few rows for a promise of their own"))
    told += [("note", note) for note in report.notes]
    return [*told, ("time", clock(seconds))]


def _next(out: Path, onnx: Path | None, features: Path) -> str:
    """Where the model is, and what to do with it."""
    new, folder = f"new{features.suffix}", shlex.quote(str(out))
    lines = [
        f"\nsaved in {out}" + ("" if onnx is None else f", and as {onnx}"),
        f"next: openauc predict {folder} {new} -o decisions{features.suffix}",
        f"      openauc report {folder} [labelled{features.suffix}]",
    ]
    return "\n".join(lines)
