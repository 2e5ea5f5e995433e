"""``openauc predict``: a model on a new table, a trained network on new images or on a part of its data again."""

from __future__ import annotations

import os
import shlex
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Argument, Option

from openauc._columns import suffix_of
from openauc._trial_files import SPEC
from openauc._validation import UNKNOWN
from openauc.bench.trial import TrialSpec
from openauc.commands import train
from openauc.commands.fit import EmbeddingColumn, LabelColumn
from openauc.commands.predictions import MOST_NAMED, show_verdict
from openauc.commands.progress import progress_bar
from openauc.commands.shards import SHARDS_HELP, Jobs, OnRay, RayAddress, at_scale, over_shards, refuse_at_scale
from openauc.commands.terminal import say
from openauc.executors import executor
from openauc.features.classifier import tables
from openauc.features.classifier.tables import MODEL, FeatureTable, is_model
from openauc.predictions import write_columns
from openauc.protocols.base import Part
from openauc.shards.paths import is_pattern
from openauc.verdict import judge

if TYPE_CHECKING:
    from openauc.features.classifier.estimator import OpenSetClassifier
    from openauc.features.classifier.explanation import Explanation

Precision = Literal["fp32", "bf16"]
NEW_HELP = "For MODEL a table of embeddings, texts or image paths, or images; for RUN images: a folder or file."


def predict(
    run: Annotated[str, Argument(metavar="MODEL|RUN|PROTOCOL", help="Folder of a model or a training, or a protocol.")],
    new: Annotated[str | None, Argument(metavar="TABLE|IMAGES", help=f"{NEW_HELP} {SHARDS_HELP}")] = None,
    out: Annotated[
        str,
        Option(
            "--out", "-o", metavar="FILE|FOLDER", help="File to write: .csv, .parquet or .npz; of shards, a folder."
        ),
    ] = "predictions.csv",
    fdr: Annotated[
        float | None,
        Option(help="For MODEL, in place of its threshold: of the rows called unknown, about this share is known."),
    ] = None,
    explain: Annotated[
        bool, Option("--explain", help="For MODEL, also say why each row is accepted or rejected.")
    ] = False,
    unknown_share: Annotated[
        float | None,
        Option(help="With --explain: the share of unknown rows to assume; by default estimated from TABLE."),
    ] = None,
    label_column: LabelColumn = None,
    embedding_column: EmbeddingColumn = None,
    part: Annotated[Part, Option(help="For RUN without IMAGES: the part of the data.")] = "test",
    score: train.ScoreName = None,
    weights: Annotated[Path | None, Option(help="With PROTOCOL: weights, such as published ones.")] = None,
    method: train.MethodName = "openauc",
    split: train.SplitIndex = 0,
    recipe: train.RecipeName = None,
    set_: train.Settings = None,
    data_root: train.DataRoot = None,
    batch_size: Annotated[int | None, Option(min=1, help="Images at a time.")] = None,
    precision: Annotated[Precision, Option(help="bf16 is faster on some hardware, and makes ties.")] = "fp32",
    keep_formulas: Annotated[
        bool, Option("--keep-formulas", help="Do not put ' before texts of a .csv that a spreadsheet would run.")
    ] = False,
    jobs: Jobs = None,
    ray: OnRay = False,
    ray_address: RayAddress = None,
    skip_bad: Annotated[bool, at_scale("--skip-bad", help="Leave out shards that cannot be read.")] = False,
) -> None:
    """Give each row or image its class, or unknown.

    With a MODEL of `openauc fit`, texts and images are first embedded by the encoder of the model. The file has the
    columns of TABLE except the embeddings, and for each row: prediction (its class, or unknown), y_pred (its class,
    rejected or not), open_score and p_value. If TABLE has labels, the file also has y_true, -1 for classes that the
    model does not know, so that `openauc evaluate` can read it; and you are told whether the model keeps its guarantee.
    --explain adds the reason in words, the probability that the row is unknown (p_unknown), the nearest training rows,
    and what each score adds to open_score.

    With shards, --out names a folder, which gets one Parquet file for each shard. A shard is done again only if it or
    the model has changed.

    With a RUN and IMAGES, the file has for each image: its file, its class or unknown, and its score. Unknown is what
    lies above the threshold that `openauc threshold RUN` chose. Without IMAGES, the file has y_true, y_pred and
    open_score of a part of the data, for `openauc evaluate`.

    For published weights, name the PROTOCOL and --weights, and tell with --method, --split, --recipe and --set how they
    were trained. If a RUN has a method or a backbone from outside openauc, name it again with --method or --set.
    """
    if new is not None and is_pattern(new):
        refused = {"fdr": fdr, "explain": explain or None, "unknown-share": unknown_share}
        for option in (name for name, given in refused.items() if given is not None):
            raise ValueError(f"--{option} needs all rows of a table at once; leave it out, or name a single file.")
        if not is_model(Path(run)):
            raise ValueError(f"{run} is not a model of `openauc fit`, which shards need; name a single file or folder.")
        from openauc.encoders.shards import Deciding, model_mark
        from openauc.features import OpenSetClassifier

        OpenSetClassifier.load(run)  # raises before the work
        step = Deciding(os.path.abspath(run), model_mark(Path(run)), label_column, embedding_column)
        over_shards(new, step, out, executor(jobs, ray, ray_address), skip_bad=skip_bad)
        return
    refuse_at_scale(jobs=jobs, ray=ray, ray_address=ray_address, skip_bad=skip_bad)
    suffix_of(out)  # before the work
    if explain and fdr is not None:
        raise ValueError("--explain is about the decisions of the threshold, and --fdr decides without it; name one.")
    if unknown_share is not None and not explain:
        raise ValueError("--unknown-share is for --explain; add it.")
    folder = Path(run)
    if is_model(folder):
        if new is None:
            raise ValueError(f"{run} is a model, which needs a table of embeddings to label; name one after it.")
        from openauc.features import OpenSetClassifier

        classifier = OpenSetClassifier.load(folder)
        table = read_like_model(
            folder, classifier, Path(new), label_column=label_column, embedding_column=embedding_column
        )
        explanation = classifier.explain(table.features, unknown_share=unknown_share) if explain else None
        title = f"{folder} on {new}"
        _write_decisions(
            classifier,
            table,
            Path(out),
            explanation,
            unknown_share=unknown_share,
            fdr=fdr,
            title=title,
            keep_formulas=keep_formulas,
        )
        return
    if explain:
        raise ValueError(f"{run} is not a model of `openauc fit`, and --explain is for one; name one, or leave it out.")
    if folder.is_dir() and not (folder / SPEC).is_file():
        hint = f"name one below {folder / 'trials'}" if (folder / "trials").is_dir() else "check its name"
        raise ValueError(f"the folder {run} holds no model (no {MODEL}) and no training (no {SPEC}); {hint}.")
    if not folder.is_dir() and (weights is None or new is not None):
        raise ValueError(
            f"{run} is not a folder of a model or of a training; check its name. A protocol needs --weights, and takes "
            "no IMAGES."
        )
    train.require_torch("predicting")
    from openauc.training.process import process_state
    from openauc.training.trained import Network, SavedRun, load_data

    main = process_state().is_main_process
    if weights is not None and not folder.is_dir():
        spec = train.make_spec(run, method, split, recipe=recipe, settings=set_, score=score)
        _refuse_other_task(weights, spec)
        # Without a folder, as features beside the weights may be those of another network.
        network = Network(spec, None, data_root=data_root, batch_size=batch_size, precision=precision)
        network.load(weights, load_data(spec, data_root).num_classes)
    else:
        trusted = {method, str(train.assignments("--set", set_).get("backbone"))}
        saved = SavedRun(folder, data_root=data_root, trusted=trusted, batch_size=batch_size, precision=precision)
        if new is not None:
            with progress_bar("images", enabled=main) as seen:
                rows = saved.label(Path(new), seen=seen)
            if main:
                write_columns(out, rows, keep_formulas=keep_formulas)
                unknown = int((rows["label"] == "unknown").sum())
                say(f"{len(rows['label']):,} images in {out}, {unknown:,} of them unknown.")
                if saved.threshold is None:
                    say(f"No threshold is chosen yet, so none can be: see `openauc threshold {run}`.", err=True)
            return
        spec, network = replace(saved.spec, score=score or saved.spec.score), saved
    data = load_data(spec, data_root)
    predictions = network.embedded(spec, data, part).predictions(network.score(spec, data))
    if main:
        extra = data.test_columns() if part == "test" else {}
        write_columns(out, {**predictions._asdict(), **extra}, keep_formulas=keep_formulas)
        say(f"{len(predictions.y_true):,} predictions in {out}; see `openauc evaluate {out}`.")


def _write_decisions(
    classifier: OpenSetClassifier,
    table: FeatureTable,
    out: Path,
    explanation: Explanation | None,
    *,
    unknown_share: float | None,
    fdr: float | None,
    title: str,
    keep_formulas: bool,
) -> None:
    """Write the decisions of a model on every row of a table; with labels, check its guarantee."""
    columns, guarantee = tables.other_columns(table), tables.guarantee_of(classifier)
    if fdr is not None:
        guarantee = replace(guarantee, acceptance=None)  # the threshold does not decide
    if table.labelled:
        columns["y_true"], mark = tables.truth(classifier, table.labels)
    columns |= tables.decide(classifier, table.features, fdr=fdr)
    if explanation is not None:
        columns |= explanation.columns()
    write_columns(out, columns, about={"promise": guarantee.to_json()}, keep_formulas=keep_formulas)
    if table.labelled:
        decided = (columns[name] for name in ("y_true", "y_pred", "open_score", "prediction"))
        verdict = judge(*decided, guarantee=guarantee, unknown_label=mark)
        show_verdict(verdict, title)
    unknown = int((columns["prediction"] != columns["y_pred"]).sum())
    say(f"{len(table.features):,} rows in {out}, {unknown:,} of them unknown.")
    if explanation is not None and explanation.p_unknown is not None:
        source = "estimated from this file" if unknown_share is None else "--unknown-share"
        say(f"p_unknown assumes that {explanation.unknown_share:.0%} of such rows are unknown ({source}).")
    answers = columns["prediction"].astype(str).tolist()
    small = {name: answers.count(name) for name in classifier.report_.small_classes if name in answers}
    if small:
        shown = ", ".join(f"{name!r} {number:,}" for name, number in list(small.items())[:MOST_NAMED])
        more = f" and {len(small) - MOST_NAMED} more" if len(small) > MOST_NAMED else ""
        classes = f"classes that had too few rows for a guarantee of their own: {shown}{more}"
        say(f"{sum(small.values()):,} rows are given to {classes}.")
    if table.labelled and verdict.n_known and verdict.n_unknown:
        options = "" if mark == UNKNOWN else f" --unknown-label {shlex.quote(str(mark))}"
        if guarantee.acceptance is not None and out.suffix.lower() == ".csv":
            options += f" --acceptance {guarantee.acceptance:g}"  # a .csv cannot hold it
        say(f"Labels of column {table.spec.label} are there as y_true: see `openauc evaluate {out}{options}`.")


def read_like_model(
    folder: Path, classifier: OpenSetClassifier, file: Path, *, label_column: str | None, embedding_column: str | None
) -> FeatureTable:
    """Read a table like the one a model was fitted on; texts and images are embedded."""
    from openauc.encoders.prepare import encode_like, lacks_features
    from openauc.encoders.shards import check_like

    spec = classifier.table_spec_
    if embedding_column is None and lacks_features(file, spec, classifier.n_features_in_):
        with progress_bar("embedding") as on_progress:
            table = encode_like(spec, folder, file, label_column=label_column, on_progress=on_progress)
    else:
        table = tables.read_table(file, embedding_column=embedding_column, label_column=label_column, like=spec)
    check_like(table, folder, classifier)
    if table.dropped:
        left_out = f"{file}: {table.dropped:,} rows have empty cells and are left out, as when {folder} was fitted."
        warnings.warn(left_out, stacklevel=2)
    return table


def _refuse_other_task(weights: Path, spec: TrialSpec) -> None:
    """Raise if the header of the weights names another task; classes and code are those of the command."""
    from openauc.training.checkpoint import read_about

    about, wanted = read_about(weights) or {}, spec.training()
    for key in ("source", "known", "method"):
        if key in about and about[key] != (list(wanted[key]) if key == "known" else wanted[key]):
            found = f"{weights} was trained with {key} {about[key]}, but the command says {wanted[key]}"
            raise ValueError(f"{found}; `openauc predict {weights.parent}` takes everything from the training itself.")
