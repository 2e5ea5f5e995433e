"""``openauc report``: a page to look at, from predictions, a model or a store."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray
from typer import Argument, Option

from openauc._columns import read_columns
from openauc._files import is_stream, parse_json, write_text
from openauc._validation import check_choice
from openauc.commands.predict import read_like_model
from openauc.commands.predictions import FileOptions, Level, Seed, model_names, takes_columns
from openauc.commands.terminal import say
from openauc.commands.thumbnails import image_files, images_of, thumbnails
from openauc.features.classifier.tables import captions, is_model

if TYPE_CHECKING:
    from openauc.features.classifier.tables import FeatureTable

REPORT = "report.html"
SOURCES_HELP = "A store of `openauc run`; a model of `openauc fit`, and labelled tables to test it; or predictions."


@takes_columns
def report(
    sources: Annotated[list[Path], Argument(metavar="STORE|MODEL|FILE", help=SOURCES_HELP)],
    out: Annotated[
        Path | None, Option("--out", "-o", metavar="HTML", help=f"Page to write; else {REPORT}, in the folder or here.")
    ] = None,
    level: Level = 0.95,
    baseline: Annotated[str | None, Option(help="Of a store: method to compare others with.")] = None,
    class_names: Annotated[
        Path | None,
        Option(help="Names of the classes: .json with {label: name} or \\[name, ...], or text, one per line."),
    ] = None,
    origin_column: Annotated[
        str | None,
        Option(help="Column with the real class of each sample, unknown ones too; shows which is taken for what."),
    ] = None,
    replicates: Annotated[int | None, Option(help="Bootstrap replicates; 2,000 by default.")] = None,
    seed: Seed = 0,
    columns: FileOptions = FileOptions(),
) -> None:
    """Write an HTML page on predictions, a model or a benchmark.

    For predictions, it shows curves, a threshold slider and the audit. For a model, it shows what to expect, which
    scores are used and how much to accept; with labelled tables, also how well the model does on them.
    """
    from openauc.report import predictions_report, write_report

    folders = [source for source in sources if source.is_dir()]
    command = shlex.join(["openauc", *sys.argv[1:]])
    options: dict[str, Any] = {"rng": seed, "n_replicates": replicates, "command": command}
    if folders and is_model(sources[0]):
        target = out or sources[0] / REPORT
        write_text(target, _model_page(*sources, label_column=columns.label_column, **options))
    elif folders:
        if len(sources) > 1:
            raise ValueError(f"{folders[0]} is a folder; pass one store alone, or files of predictions only.")
        target = out or folders[0] / REPORT
        write_report(folders[0], target, baseline=baseline, level=level)
    else:
        target = out or Path(REPORT)
        files = dict(zip(model_names(sources), sources, strict=True))
        models, label = columns.load_all(sources)
        page = predictions_report(
            {name: models[file] for name, file in files.items()},
            class_names=None if class_names is None else _read_names(class_names),
            origins=None if origin_column is None else {n: _origin(f, origin_column) for n, f in files.items()},
            level=level,
            unknown_label=label,
            flipped=columns.lower_is_unknown,
            **options,
        )
        write_text(target, page)
    say(f"wrote {target}", err=is_stream(target))  # the page itself may be going to the output


def _model_page(folder: Path, *tests: Path, label_column: str, **options: Any) -> str:
    """The page of a classifier, tested on all samples of some tables."""
    from openauc.features import OpenSetClassifier
    from openauc.report import classifier_report

    classifier = OpenSetClassifier.load(folder)
    wanted = None if label_column == "y_true" else label_column  # y_true is among those looked for
    tables = [read_like_model(folder, classifier, file, label_column=wanted, embedding_column=None) for file in tests]
    if tables:
        options["test"] = (
            np.concatenate([one.features for one in tables]),
            np.concatenate([one.labels for one in tables]),
        )
        options["captions"] = np.concatenate([_captions(one) for one in tables])
        options["images"] = partial(_images, tables)
    return classifier_report(classifier, name=str(folder), test_name=" and ".join(model_names(list(tests))), **options)


def _captions(table: FeatureTable) -> NDArray[np.object_]:
    """Text, file name or id of each row, else its number."""
    found, n = captions(table), len(table.features)
    numbers = [f"row {row}" for row in range(n)]
    return np.array(numbers if found is None or len(found) != n else found, dtype=object)


def _images(tables: Sequence[FeatureTable], wanted: Collection[int | str]) -> dict[int | str, bytes]:
    """Small images of rows, by their numbers in all tables, and of training rows, by their file names."""

    def items() -> Iterator[tuple[int | str, Any]]:
        start = 0
        for table in tables:
            yield from ((start + row, image) for row, image in images_of(table))
            start += len(table.features)
        yield from image_files((name for name in wanted if isinstance(name, str)), tables[0].path.parent).items()

    return thumbnails(items(), wanted)


def _read_names(file: Path) -> dict[str, str]:
    """Label, as text, -> name."""
    try:
        text = file.read_text(encoding="utf-8")
        found: Any = parse_json(text) if file.suffix.lower() == ".json" else text.splitlines()
    except ValueError as error:
        raise ValueError(f"{file} is not text in UTF-8, or not JSON ({error}).") from None
    if isinstance(found, list):
        found = dict(enumerate(found))
    if not isinstance(found, dict):
        raise ValueError(f"{file} holds neither a list of names nor a mapping from label to name.")
    return {str(label): str(name) for label, name in found.items()}


def _origin(file: Path, name: str) -> Any:
    columns = read_columns(file)
    return columns[check_choice(f"the --origin-column of {file}", name, columns)]
