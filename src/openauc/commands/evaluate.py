"""``openauc evaluate``: every metric of files of predictions, read into memory or shard by shard."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from rich.text import Text
from typer import Argument, Option

from openauc._columns import Columns, read_about, read_columns
from openauc._files import add_inputs, write_text
from openauc._validation import as_labels, check_fraction, read_label
from openauc.commands.predictions import (
    FILE_HELP,
    FileOptions,
    Json,
    Level,
    Replicates,
    Seed,
    _write_json,
    model_names,
    show_verdict,
    takes_columns,
)
from openauc.commands.progress import progress_bar
from openauc.commands.shards import Jobs, OnRay, RayAddress, at_scale
from openauc.commands.terminal import bounds_text, say, show
from openauc.evaluation import Evaluation
from openauc.evaluation import evaluate as evaluate_triple
from openauc.executors import executor
from openauc.metrics.legacy import LegacyRow, explain
from openauc.metrics.registry import standard_metrics
from openauc.predictions import Predictions
from openauc.verdict import Guarantee, judge

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from openauc.shards import Plan, ShardedEvaluation

SHARDS_HELP = "Or shards, evaluated as one: a folder, a pattern in quotes ('log/*.parquet') or a URL (s3://...)."
SHOWN = ("openauc", "auroc", "closed_set_accuracy")  # in the table of slices
DECISION = "prediction"  # column of decisions, as `openauc predict` writes it: a class, or unknown


@takes_columns
def evaluate(
    files: Annotated[list[str], Argument(metavar="FILE", help=f"{FILE_HELP} {SHARDS_HELP}")],
    json_out: Json = None,
    ties: Annotated[
        Literal["half", "strict"], Option(help="A pair with equal scores counts half, or not at all, as in the paper.")
    ] = "half",
    level: Level = 0.95,
    max_ofpr: Annotated[
        float | None, Option(help="Add partial OpenAUC, up to this share of unknown samples accepted.")
    ] = None,
    min_ofpr: Annotated[float, Option(help="Lower end of that range.")] = 0.0,
    acceptance: Annotated[
        float | None,
        Option(help="Share of known rows that the decisions in column prediction were guaranteed to accept."),
    ] = None,
    curves: Annotated[bool, Option("--curves", help="Put the points of the curves into the JSON.")] = False,
    legacy: Annotated[bool, Option("--legacy", help="Also show what older public code computes, and why.")] = False,
    replicates: Replicates = 2000,
    seed: Seed = 0,
    report: Annotated[Path | None, Option(metavar="HTML", help="Also write a page, as `openauc report` does.")] = None,
    shards: Annotated[bool, at_scale("--shards", help="All FILEs are shards of one model.")] = False,
    by: Annotated[list[str] | None, at_scale(help="Column of slices, a row for each; repeatable.")] = None,
    jobs: Jobs = None,
    ray: OnRay = False,
    ray_address: RayAddress = None,
    per_class: Annotated[
        bool,
        at_scale("--per-class", help="Also count each class, for macro F-score and Youden's index; takes more memory."),
    ] = False,
    work: Annotated[
        Path | None, at_scale(metavar="DIR", help="Keep the counts of finished shards here, for the next time.")
    ] = None,
    skip_bad: Annotated[bool, at_scale("--skip-bad", help="Leave out shards that cannot be read.")] = False,
    columns: FileOptions = FileOptions(),
) -> None:
    """Compute every metric of predictions, with intervals.

    If a file has decisions, in a column prediction as `openauc predict` writes it, they are judged first.
    """
    label, quiet = read_label(columns.unknown_label), json_out == "-"
    metrics = standard_metrics(ties=ties, max_ofpr=max_ofpr, min_ofpr=min_ofpr)
    labels = {name: metric.label for name, metric in metrics.items()}
    measuring: dict[str, Any] = {"level": level, "rng": seed, "n_replicates": replicates}
    results: dict[str, dict[str, Any]] = {}
    models: dict[Path, Predictions] = {}
    asked = (shards, by, jobs is not None, ray, ray_address, per_class, work, skip_bad)
    if any(asked) or any(map(_is_at_scale, files)):
        from openauc.shards import Plan

        refused = {
            "legacy": legacy,
            "report": report,
            "unseen-unknown": columns.unseen_unknown,
            "acceptance": acceptance,
        }
        for option in (name for name, given in refused.items() if given not in (None, False)):
            takes = "single files of moderate size, without the options for files at scale"
            raise ValueError(f"--{option} needs all samples in memory; it takes {takes}.")
        plan = Plan(names=columns.names, unknown_label=label, by=tuple(by or ()), per_class=per_class)
        reading = {"execute": executor(jobs, ray, ray_address, threads=1), "work": work, "skip_bad": skip_bad}
        for sources in [files] if shards else [[file] for file in files]:
            found = _read_shards(sources, plan, {"metrics": metrics, **measuring, **reading}, quiet=quiet)
            title = sources[0] if len(sources) == 1 else f"{sources[0]} and {len(sources) - 1} more"
            results[title] = found.to_dict(curves=curves)
            if not quiet:
                _show_sharded(found, labels, title)
    else:
        read = {path: read_columns(path) for path in map(Path, files)}
        models, label = columns.load_all(read)
        for path, predictions in models.items():
            about: dict[str, Any] = {}
            decisions = None if columns.pred_column == DECISION else _decisions(read[path], predictions)
            if decisions is not None:
                given = _guarantee(path, acceptance)
                verdict = judge(*predictions, decisions, guarantee=given, unknown_label=label, level=level)
                about["verdict"] = verdict.to_dict()
                if not quiet:
                    show_verdict(verdict, str(path))
            evaluation = evaluate_triple(*predictions, metrics=metrics, **measuring, unknown_label=label)
            if not quiet:
                _show_evaluation(evaluation, labels, title=str(path))
            if legacy:
                rows = explain(*predictions, unknown_label=label)
                about["legacy"] = [row._asdict() for row in rows]
                if not quiet:
                    _show_legacy(rows)
            results[str(path)] = evaluation.to_dict(curves=curves) | about
    _write_json(json_out, next(iter(results.values())) if len(results) == 1 else results)
    if report is not None:
        from openauc.report import predictions_report

        page = predictions_report(
            dict(zip(model_names(list(models)), models.values(), strict=True)),
            **{"ties": ties, "max_ofpr": max_ofpr, "min_ofpr": min_ofpr, **measuring},
            unknown_label=label,
            flipped=columns.lower_is_unknown,
            command=shlex.join(["openauc", *sys.argv[1:]]),
        )
        write_text(report, page)
        say(f"wrote {report}", err=True)


def _decisions(columns: Columns, predictions: Predictions) -> NDArray[Any] | None:
    """The column ``prediction``, if each row holds its predicted class or the one label for unknown; else None."""
    if DECISION not in columns:
        return None
    try:
        found = as_labels(DECISION, columns[DECISION])
    except (ValueError, TypeError):  # gaps, probabilities: a column of another meaning
        return None
    return found if len(set(found[found.astype(str) != predictions.y_pred.astype(str)].tolist())) <= 1 else None


def _guarantee(path: Path, acceptance: float | None) -> Guarantee:
    """What the model guarantees, as the option or else the file says."""
    text = read_about(path).get("promise")
    said = Guarantee() if text is None else Guarantee.from_json(text)
    return said if acceptance is None else replace(said, acceptance=check_fraction("acceptance", acceptance))


def _is_at_scale(file: str) -> bool:
    """Whether shards are named, or one file that is better read in batches."""
    from openauc.shards.evaluation import EXACT_BYTES
    from openauc.shards.paths import is_sharded

    large = file.lower().endswith(".parquet") and os.path.isfile(file) and os.path.getsize(file) > EXACT_BYTES
    return large or is_sharded(file)


def _read_shards(sources: list[str], plan: Plan, options: dict[str, Any], *, quiet: bool) -> ShardedEvaluation:
    from openauc.shards import evaluate_shards, find_shards

    shards = find_shards(*sources)
    add_inputs(*(shard.path for shard in shards))
    with progress_bar("MB read", enabled=not quiet) as show_progress:
        found = evaluate_shards(
            shards, plan, on_progress=lambda done, total: show_progress(done // 10**6, total // 10**6), **options
        )
    for reason in found.skipped.values():
        say(f"skipped: {reason}", err=True)
    return found


def _show_evaluation(evaluation: Evaluation, labels: Mapping[str, str], title: str) -> None:
    rows = []
    for name, value in evaluation.values.items():
        at = f"{evaluation.thresholds[name]:.6g}" if name in evaluation.thresholds else ""
        arrow = "↑" if evaluation.better[name] == "higher" else "↓"
        rows.append((labels[name], f"{value:.4f}", bounds_text(evaluation.intervals[name]), arrow, at))
    show(
        f"{title}: {evaluation.n_known:,} known, {evaluation.n_unknown:,} unknown samples",
        ("metric", "value", f"{evaluation.level:.0%} interval", "better", "threshold"),
        rows,
        "reject when score > threshold; F, Youden and NAcc at their best threshold on these samples",
    )


def _show_legacy(found: Iterable[LegacyRow]) -> None:
    rows = (
        (Text.assemble(f"{r.name}\n", (r.why, "dim")), f"{r.value:.4f}", f"{r.exact_value:.4f}", f"{r.difference:+.4f}")
        for r in found
    )
    show("What older public codes compute", ("name", "theirs", "exact", "difference"), rows)


def _show_sharded(found: ShardedEvaluation, labels: Mapping[str, str], title: str) -> None:
    number = f"{found.n_shards:,} shard{'s' * (found.n_shards != 1)}"
    if found.skipped:
        number += f", {len(found.skipped):,} of them skipped"
    _show_evaluation(found.evaluation, labels, f"{title} ({number})")
    if found.bounds:
        show(
            "Counted in bins: the exact value lies between these two, for certain",
            ("metric", "at least", "at most"),
            ((labels[name], f"{low:.6f}", f"{high:.6f}") for name, (low, high) in found.bounds.items()),
        )
    if found.by:
        _show_slices(found, labels)


def _slice_name(value: str | None) -> str:
    """A value of a slice as it is shown; a missing one is not the text "(missing)"."""
    return "(missing)" if value is None else repr(value) if value == "(missing)" else value


def _show_slices(found: ShardedEvaluation, labels: Mapping[str, str]) -> None:
    def cell(evaluation: Evaluation, name: str) -> str | Text:
        if name not in evaluation.values:
            return "–"
        interval = bounds_text(evaluation.intervals.get(name, (0.0, 0.0)))
        return Text.assemble(f"{evaluation.values[name]:.4f}\n", (interval, "dim"))

    by, number, level = ", ".join(found.by), len(found.slices), found.evaluation.level or 0.0
    rows = (
        (", ".join(map(_slice_name, key)), f"{one.n_known:,}", f"{one.n_unknown:,}", *(cell(one, n) for n in SHOWN))
        for key, one in found.slices.items()
    )
    show(
        f"By {by}: {number:,} slices",
        (by, "known", "unknown", *(labels[name].replace(" ", "\n") for name in SHOWN)),
        rows,
        f"with {level:.0%} certainty the intervals of a column hold for all {number:,} slices at once (Bonferroni)",
    )
