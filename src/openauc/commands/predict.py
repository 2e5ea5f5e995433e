"""``openauc predict``: a trained network on new images, or on a part of the data again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from openauc.commands.progress import progress_bar
from openauc.commands.train import (
    DataRoot,
    MethodName,
    RecipeName,
    ScoreName,
    Settings,
    SplitIndex,
    assignments,
    make_spec,
    require_torch,
)

if TYPE_CHECKING:
    from openauc.bench.trial import TrialSpec

Part = Literal["test", "validation", "train"]
Precision = Literal["fp32", "bf16"]


def predict(
    run: Annotated[str, typer.Argument(metavar="RUN|PROTOCOL", help="Folder of a training, or a protocol.")],
    images: Annotated[
        Path | None, typer.Argument(metavar="[IMAGES]", help="New images for RUN to label: a folder, or one file.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write: .csv, .parquet or .npz.")] = Path(
        "predictions.csv"
    ),
    part: Annotated[Part, typer.Option(help="Without IMAGES: the part of the data to predict.")] = "test",
    score: ScoreName = None,
    weights: Annotated[Path | None, typer.Option(help="With PROTOCOL: weights, such as published ones.")] = None,
    method: MethodName = "openauc",
    split: SplitIndex = 0,
    recipe: RecipeName = None,
    set_: Settings = None,
    data_root: DataRoot = None,
    batch_size: Annotated[int | None, typer.Option(min=1, help="Images at a time.")] = None,
    precision: Annotated[Precision, typer.Option(help="bf16 is faster on some hardware, and makes ties.")] = "fp32",
) -> None:
    """Label new images with a trained network, or predict a part of its data again.

    With IMAGES the file has a row per image: its file, its class or unknown, its score; unknown is what lies above the
    threshold that `openauc threshold RUN` chose. Without IMAGES it has the triple that `openauc evaluate` reads.

    For published weights, name the PROTOCOL and say with --method, --split, --recipe and --set what they are of. For a
    RUN that asks for code from elsewhere, --method and --set backbone name it.
    """
    require_torch("predicting")
    from openauc.bench.runner import Network, load_data
    from openauc.predictions import write_columns
    from openauc.training.process import process_state

    main = process_state().is_main_process
    if not Path(run).is_dir():
        if weights is None or images is not None:
            raise ValueError(f"{run} is no folder of a training; a protocol needs --weights, and takes no IMAGES.")
        spec = make_spec(run, method, split, recipe=recipe, settings=set_, score=score)
        _refuse_other_task(weights, spec)
        # Without a folder: features that lie beside the weights, or here, may be another network's.
        network = Network(spec, None, data_root=data_root, batch_size=batch_size, precision=precision)
        network.load(weights, load_data(spec, data_root).num_classes)
    else:
        from openauc.bench.saved import SavedRun

        trusted = {method, str(assignments("--set", set_).get("backbone"))}
        saved = SavedRun(Path(run), data_root=data_root, trusted=trusted, batch_size=batch_size, precision=precision)
        if images is not None:
            with progress_bar("images", enabled=main) as seen:
                rows = saved.label(images, seen=seen)
            if main:
                write_columns(out, rows)
                unknown = int((rows["label"] == "unknown").sum())
                typer.echo(f"{len(rows['label']):,} images in {out}, {unknown:,} of them unknown.")
                if saved.threshold is None:
                    typer.echo(f"No threshold is chosen yet, so none can be: see `openauc threshold {run}`.", err=True)
            return
        spec, network = replace(saved.spec, score=score or saved.spec.score), saved.network
    data = load_data(spec, data_root)
    predictions = network.predictions(spec, data, part)
    if main:
        predictions.save(out, extra=data.test_columns() if part == "test" else None)
        typer.echo(f"{len(predictions.y_true):,} predictions in {out}; see `openauc evaluate {out}`.")


def _refuse_other_task(weights: Path, spec: TrialSpec) -> None:
    """What the header of weights says can only refuse them: it chooses neither classes nor code."""
    from openauc.training.checkpoint import read_about

    about, wanted = read_about(weights) or {}, spec.training()
    for key in ("source", "known", "method"):
        if key in about and about[key] != (list(wanted[key]) if key == "known" else wanted[key]):
            raise ValueError(
                f"{weights} was trained with {key} {about[key]}, but the command says {wanted[key]}; "
                f"`openauc predict {weights.parent}` takes everything from the training itself."
            )
