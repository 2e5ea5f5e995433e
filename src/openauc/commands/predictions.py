"""Commands on files of predictions: compare, audit, threshold; what they share with `openauc evaluate`."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from functools import wraps
from inspect import Signature, signature
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from rich.text import Text
from typer import Argument, Option

from openauc._columns import ColumnNames, Columns, means_unknown
from openauc._files import write_text
from openauc._trial_files import THRESHOLD, VALIDATION
from openauc._validation import UNKNOWN, Label, check_choice, is_label, named, read_label
from openauc.audit import PROPERTIES, Audit
from openauc.audit import audit as audit_triple
from openauc.commands.terminal import bounds_text, p_text, say, say_wrapped, show
from openauc.comparison import Comparison
from openauc.comparison import compare as compare_triples
from openauc.metrics.operating import Costs, OperatingPoint, choose_threshold
from openauc.predictions import MissingColumns, Predictions, read_columns
from openauc.verdict import Verdict

FILE_HELP = "Predictions: .npz, .csv or .parquet with y_true (-1 = unknown), y_pred, open_score; or y_true, logits."
TARGET_HELP = "known_acceptance=SHARE, unknown_recall=SHARE, macro_f_score, micro_f_score, youden_index or cost."
COST_HELP = (
    "For --target cost; repeatable: unknown_accepted=X, known_rejected=X, known_misclassified=X, unknown_share=X."
)
MOST_NAMED = 6  # classes, columns
Json = Annotated[str | None, Option("--json", metavar="OUT", help="Also write JSON to this file; - prints only JSON.")]
Level = Annotated[float, Option(help="Level of the intervals.")]
Seed = Annotated[int, Option(min=0, help="Seed of bootstrap and permutations.")]
Replicates = Annotated[int, Option(help="Bootstrap replicates.")]


@dataclass(frozen=True)
class ColumnOptions:
    """How files of predictions are read; each field is an option."""

    label_column: Annotated[str, Option(help="Column of the true labels.")] = "y_true"
    pred_column: Annotated[str, Option(help="Column of the predicted classes.")] = "y_pred"
    score_column: Annotated[str, Option(help="Column of the open-set score, higher = more unknown.")] = "open_score"
    unknown_label: Annotated[str, Option(help="Label that marks unknown samples.")] = "-1"
    lower_is_unknown: Annotated[
        bool, Option("--lower-is-unknown", help="The score is a confidence: lower = more unknown.")
    ] = False


@dataclass(frozen=True)
class FileOptions(ColumnOptions):
    """How files of predictions are read, with what a query cannot do; each field is an option."""

    probability_columns: Annotated[
        str | None,
        Option(
            metavar="PATTERN",
            help="Columns with the probability of each class, such as 'prob_*', where * stands for the class.",
        ),
    ] = None
    logit_columns: Annotated[
        str | None, Option(metavar="PATTERN", help="The same for logits; without it, logits or 'logit_*'.")
    ] = None
    unseen_unknown: Annotated[
        bool, Option("--unseen-unknown", help="Classes that are never predicted are unknown.")
    ] = False

    @property
    def names(self) -> ColumnNames:
        return ColumnNames(*(getattr(self, name) for name in ColumnNames._fields))

    def load(self, file: Path, *, needs_unknown: bool = True) -> tuple[Predictions, Label]:
        """The samples of a file, and the label of unknown ones."""
        models, label = self.load_all([file], needs_unknown=needs_unknown)
        return models[file], label

    def load_all(
        self, files: Iterable[Path] | Mapping[Path, Columns], *, needs_unknown: bool = True
    ) -> tuple[dict[Path, Predictions], Label]:
        """The samples of files, whose columns may be given, and the label of unknown ones."""
        read = files if isinstance(files, Mapping) else {file: read_columns(file) for file in files}
        models = {file: self._load(file, columns) for file, columns in read.items()}
        true, predicted = ({x for model in models.values() for x in set(model[i].tolist())} for i in range(2))
        label = self._unknown_label(*({str(x) for x in labels} for labels in (true, predicted)))
        # Sets, as sorting names is slow.
        others = {str(label), str(UNKNOWN)}.union(*map(self.names.classes, read.values()))
        unseen = sorted(x for x in true - predicted if str(x) not in others)
        told = {file: self._with_unseen(model, file, label, unseen, needs_unknown) for file, model in models.items()}
        return told, label

    def _load(self, file: Path, columns: Columns) -> Predictions:
        """The samples in the columns of a file; an error names the options to add."""
        try:
            predictions = Predictions.from_columns(columns, self.names, path=file)
        except MissingColumns as error:
            words: list[str] = []
            for name, value in error.guess.items():
                if name != "lower_is_unknown":
                    words += (f"--{name.replace('_', '-')}", str(value))
                elif not self.lower_is_unknown:
                    words.append("--lower-is-unknown")
            raise ValueError(f"{error.sentence} Likely: {shlex.join(words)}" if words else error.sentence) from error
        if len(predictions.y_true) == 0:
            raise ValueError(f"{file} holds no sample, only the names of its columns; expected one row per sample.")
        return predictions

    def _unknown_label(self, true: set[str], predicted: set[str]) -> Label:
        """The label that marks unknown samples: the option or, if no label is -1, the usual word for it."""
        label = read_label(self.unknown_label)
        words = {word for word in true - predicted if means_unknown(word)}
        if label != UNKNOWN or str(UNKNOWN) in true or len(words) != 1:
            return label
        (word,) = words
        say(f"note: y_true holds no -1, so {word!r} is taken as the label of unknown samples.", err=True)
        return word

    def _with_unseen(
        self, predictions: Predictions, file: Path, label: Label, names: list[Any], needs_unknown: bool
    ) -> Predictions:
        """Make classes that are never predicted unknown, if the option says so; else print a hint that names them."""
        unseen = np.isin(predictions.y_true, names)
        if not unseen.any():
            return predictions
        if self.unseen_unknown:
            mark: Any = str(label) if predictions.y_true.dtype.kind == "U" else label
            return predictions._replace(y_true=np.where(unseen, mark, predictions.y_true))
        number = f"{int(unseen.sum()):,} of {len(unseen):,} samples"
        seen = f"Never predicted in {file}: {named(names, MOST_NAMED)} ({number})."
        hint = f"{seen} If the model does not know these classes, their samples are unknown: add --unseen-unknown."
        if needs_unknown and not is_label(predictions.y_true, label).any():
            raise ValueError(f"there is no unknown sample: no y_true equals {label!r}. {hint}")
        say(f"hint: {hint}", err=True)
        return predictions


def takes_columns(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the fields of its argument ``columns``, :class:`ColumnOptions`, as options in place of it."""
    own = dict(signature(command, eval_str=True).parameters)
    made = own.pop("columns").annotation
    options = dict(signature(made, eval_str=True).parameters)

    @wraps(command)
    def with_options(**values: Any) -> None:
        columns = made(**{name: values.pop(name) for name in options})
        command(**values, columns=columns)

    with_options.__signature__ = Signature([*own.values(), *options.values()])  # type: ignore[attr-defined]
    return with_options


@takes_columns
def compare(
    files: Annotated[list[Path], Argument(metavar="FILE", help=FILE_HELP)],
    metric: Annotated[list[str] | None, Option(help="Metric; repeatable. Default: OpenAUC, AUROC, accuracy.")] = None,
    baseline: Annotated[str | None, Option(help="Compare every file with this one only.")] = None,
    json_out: Json = None,
    level: Level = 0.95,
    replicates: Replicates = 2000,
    seed: Seed = 0,
    columns: FileOptions = FileOptions(),
) -> None:
    """Compare models on the same samples: differences, p-values."""
    names = model_names(files)
    by_path = {str(file): name for file, name in zip(files, names, strict=True)}
    models, label = columns.load_all(files)
    comparison = compare_triples(
        *models.values(),
        names=names,
        metrics=metric or ("openauc", "auroc", "closed_set_accuracy"),
        baseline=by_path.get(baseline, baseline) if baseline is not None else None,
        level=level,
        rng=seed,
        n_replicates=replicates,
        unknown_label=label,
    )
    if json_out != "-":
        _show_comparison(comparison)
    _write_json(json_out, comparison.to_dict())


@takes_columns
def audit(
    file: Annotated[Path, Argument(metavar="FILE", help=FILE_HELP)],
    threshold: Annotated[float | None, Option(help="Threshold at which the worse models are made.")] = None,
    json_out: Json = None,
    columns: FileOptions = FileOptions(),
) -> None:
    """Find worse models that common metrics do not punish.

    This is the paper's argument, on your predictions.
    """
    predictions, label = columns.load(file)
    result = audit_triple(*predictions, threshold=threshold, unknown_label=label)
    if json_out != "-":
        _show_audit(result)
    _write_json(json_out, result.to_dict())


@takes_columns
def threshold(
    file: Annotated[Path, Argument(metavar="FILE|RUN", help=f"{FILE_HELP} Or the folder of a training.")],
    target: Annotated[str, Option(help=TARGET_HELP)] = "known_acceptance=0.95",
    confidence: Annotated[
        float | None, Option(help="Reach the share with this confidence over validation sets, not only on average.")
    ] = None,
    cost: Annotated[list[str] | None, Option(help=COST_HELP)] = None,
    json_out: Json = None,
    columns: FileOptions = FileOptions(),
) -> None:
    """Choose a rejection threshold.

    It is chosen on a file of validation predictions, or on the validation part of a RUN that was trained with
    --validation. The threshold of a RUN is kept in its folder, and `openauc predict RUN IMAGES` uses it.
    """
    name, _, share = target.partition("=")
    if name in ("known_acceptance", "unknown_recall") and not share:
        raise ValueError(f"--target {name} needs the share wanted, for example --target {name}=0.95.")
    run = file if file.is_dir() else None
    if run is not None and not (run / VALIDATION).is_file():
        unseen = "samples that neither training nor test has seen, or name a file of such predictions"
        remedy = f"train with --validation 0.1, say, to choose on {unseen}"
        raise ValueError(f"{run} has no predictions of a validation part; {remedy}.")
    of = file if run is None else run / VALIDATION
    predictions, label = columns.load(of, needs_unknown=name != "known_acceptance")
    point = choose_threshold(
        *predictions,
        target=name,  # type: ignore[arg-type]
        value=_number("--target", target) if share else None,
        confidence=confidence,
        costs=read_costs(cost),
        unknown_label=label,
    )
    if json_out != "-":
        _show_point(point, flipped=columns.lower_is_unknown)
    _write_json(json_out, point.to_dict())
    if run is not None:
        write_text(run / THRESHOLD, json.dumps(point.to_dict(), indent=1) + "\n")
        if json_out != "-":
            say(f"kept in {run}: `openauc predict {run} IMAGES -o labels.csv` labels with it")


def read_costs(assignments: list[str] | None) -> Costs | None:
    """The costs that ``--cost NAME=X`` gives, if any."""
    names = [field.name for field in fields(Costs)]
    numbers = {assignment: _number("--cost", assignment) for assignment in assignments or ()}
    costs = {check_choice("--cost", text.partition("=")[0], names): x for text, x in numbers.items()}
    return Costs(**costs) if costs else None


def _number(option: str, assignment: str) -> float:
    try:
        return float(assignment.partition("=")[2])
    except ValueError:
        raise ValueError(f"{option} {assignment!r} must read NAME=NUMBER, for example NAME=0.95.") from None


def model_names(files: list[Path]) -> list[str]:
    """Different names for the files: theirs without suffix, else those of their folders, else the whole paths."""
    for names in ([file.stem for file in files], [file.resolve().parent.name for file in files]):
        if len(set(names)) == len(names):
            return names
    paths = [str(file) for file in files]
    if len(set(paths)) < len(paths):
        raise ValueError("a file is named twice; name each file of predictions once.")
    return paths


def _write_json(target: str | None, values: Mapping[str, Any]) -> None:
    text = json.dumps(values, indent=2, allow_nan=False) + "\n"
    if target == "-":
        sys.stdout.write(text)
    elif target is not None:
        write_text(target, text)


def show_verdict(verdict: Verdict, title: str) -> None:
    """Print what decisions are worth, and whether the model said so."""
    rows: list[tuple[str | Text, ...]] = []
    for found in verdict.findings:
        aim = "" if found.aim is None else f"{found.said} {found.aim:{'.4f' if found.aim_interval else 'g'}}"
        outcome = Text("FAILED", style="bold red") if found.outcome == "failed" else Text(found.outcome or "")
        measured = f"{found.value:.4f}", bounds_text(found.interval), f"{found.n:,}"
        rows.append((found.name, *measured, aim, bounds_text(found.aim_interval), outcome))
    show(
        f"{title}: decisions at the model's own threshold",
        ("", "measured", f"{verdict.level:.0%} interval", "of rows", "said before", "interval", "verdict"),
        rows,
        "FAILED: more is off than the chance of these rows and of the calibration explains" if verdict.failed else "",
    )
    for sentence in verdict.advice:
        say_wrapped(sentence)


def _show_comparison(comparison: Comparison) -> None:
    rows = []
    for d in comparison.differences:
        values = f"{d.value_a:.4f}", f"{d.value_b:.4f}", f"{d.difference:+.4f}", "{:+.4f} – {:+.4f}".format(*d.interval)
        rows.append((d.metric, d.a, d.b, *values, p_text(d.p_value), p_text(d.p_holm)))
    show(
        f"{comparison.n_known:,} known, {comparison.n_unknown:,} unknown samples, paired",
        ("metric", "A", "B", "value A", "value B", "A − B", f"{comparison.level:.0%} interval", "p", "p (Holm)"),
        rows,
    )


def _show_audit(result: Audit) -> None:
    def change(before: float, after: float) -> Text:
        return Text(f"{before:.4f} → {after:.4f}", style="bold" if after >= before else "")

    for construction in result.constructions:
        say_wrapped(f"{construction.name}. {construction.story}\n")
    show(
        f"{result.n_known:,} known, {result.n_unknown:,} unknown samples: your model → the worse one built from it",
        ("metric", *(construction.name for construction in result.constructions)),
        (
            (metric, *(change(c.before[metric], c.after[metric]) for c in result.constructions))
            for metric in result.constructions[0].before
        ),
        "unchanged or better in bold: the metric does not notice\n",
    )
    table1, marks = result.table1(), {"yes": "✓", "no": "✗", "not shown": "–"}
    answers = [item for row in table1.values() for item in row.items()]
    reasons = {f"– {column}: {verdict.because}" for column, verdict in answers if verdict.answer == "not shown"}
    show(
        "Table 1 of the paper, from these samples",
        ("metric", *next(iter(table1.values()))),
        ((metric, *(marks[verdict.answer] for verdict in row.values())) for metric, row in table1.items()),
        "\n".join([f"{name}: {words}" for name, words in PROPERTIES.items()] + sorted(reasons)),
    )
    say_wrapped("\nWhat the proofs need, and what these samples have", style="bold")
    for construction in result.constructions:
        say_wrapped(f"\n{construction.proof}")


def _show_point(point: OperatingPoint, *, flipped: bool) -> None:
    wanted = point.target if point.requested is None else f"{point.target} ≥ {point.requested:g}"
    shares = {
        "known accepted": point.known_accepted,
        "known accepted and right": point.known_correct,
        "unknown rejected": point.unknown_rejected,
        "expected cost" if point.target == "cost" else point.target: point.objective,
    }
    rows = [(name, f"{share:.4f}") for name, share in shares.items() if share is not None]
    show(f"Threshold for {wanted}", ("on these samples", "share"), rows)
    rule = f"score > {point.threshold!r}" if not flipped else f"confidence < {-point.threshold!r}"
    say_wrapped(f"label a sample unknown when its {rule}", style="bold")
    say_wrapped(f"guarantee: {point.guarantee or 'none'}")
