"""The table of `openauc run features`: `python benchmark/contenders.py STORE`.

Reads the store and computes partial OpenAUC (OFPR up to 0.1) from its predictions; nothing is fitted again. Over
splits, rows are compared by paired t-tests over the splits whose known classes differ; CUB has one split, so there it
is DeLong's test on the same test samples. Each column is corrected by Holm for all its rows.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from decisions import INTENTS, open_set
from detectors import DETECTORS
from writing import write_results

from openauc import Predictions, compare
from openauc.bench.benchmarks.features import NETWORK_SPLITS, NETWORKS
from openauc.bench.store import Store
from openauc.bench.summary import Summary, summarise
from openauc.bench.trial import TrialResult
from openauc.bench.variants import Column
from openauc.features.scores.registry import SCORES
from openauc.metrics.ranking import ScoreDirectionWarning, openauc_score
from openauc.predictions import read_columns
from openauc.protocols import PROTOCOLS

PART = 0.1
TABLES = {
    "openauc": "OpenAUC",
    "partial": f"Partial OpenAUC (OFPR up to {PART:g})",
    "auroc": "AUROC",
    "closed_set_accuracy": "Closed-set accuracy",
    "fpr_at_95tpr": "FPR at 95 % TPR (lower is better)",
    "macro_f_score": "Macro F-score at its best threshold on the test part",
}
SHOWN = [name for name in TABLES if name != "partial"]
TRIAL = f"protocol split method score seed n_known n_unknown {' '.join(SHOWN)} seconds environment"
"""What a line on one trial says."""
LEARNED, BASELINE = "logistic (score learned)", "logistic (score max_logit)"
DATA = {
    "digits_pixels": "digits, pixels",
    **{f"clinc150_{p}": f"CLINC150, {p} % known" for p in (25, 50, 75)},
    **{f"banking77_{p}": f"BANKING77, {p} % known" for p in (25, 50, 75)},
    "cub_features": "CUB",
    "cifar10_features": "CIFAR10",
    "cifar+10_features": "CIFAR+10",
    "cifar+50_features": "CIFAR+50",
}


class Difference(NamedTuple):
    """A row less another, on one column."""

    value: float
    low: float
    high: float
    p_holm: float

    def __str__(self) -> str:
        return (
            f"{100 * self.value:+.1f} [{100 * self.low:+.1f}, {100 * self.high:+.1f}], p {max(self.p_holm, 1e-16):.2g}"
        )


def partial(result: TrialResult, store: Store) -> TrialResult:
    """The result with partial OpenAUC in the place of OpenAUC."""
    predictions, group = triple(result, store)
    value = openauc_score(*predictions, max_ofpr=PART)
    groups = {
        name: {**found, "openauc": openauc_score(*part_of(predictions, group, name), max_ofpr=PART)}
        for name, found in result.groups.items()
    }
    return replace(result, metrics={**result.metrics, "openauc": value}, groups=groups)


def triple(result: TrialResult, store: Store) -> tuple[Predictions, Any]:
    """Stored predictions, and the group of each sample where there are groups."""
    file = store.folder(result.spec) / str(result.predictions)
    return Predictions.load(file), read_columns(file)["group"] if result.groups else None


def part_of(predictions: Predictions, group: Any, name: str) -> Predictions:
    rows = (predictions.y_true >= 0) | (group == name)
    return Predictions(*(column[rows] for column in predictions))


def label_of(result: TrialResult) -> str:
    spec = result.spec
    return f"logistic (score {spec.score})" if spec.is_head else spec.method


def differences(
    summary: Summary, column: Column, results: Sequence[TrialResult], store: Store, baseline: str
) -> dict[str, Difference]:
    """Every row less the baseline: over splits or, with one split, over samples."""
    found = {}
    for line in summary.rows:
        paired = summary.cell(line.label, column.protocol, group=column.group).paired
        if paired is not None and paired.p_holm is not None and paired.interval is not None:
            found[line.label] = Difference(paired.difference, *paired.interval, paired.p_holm)
    if found:
        return found
    here = {label_of(r): triple(r, store) for r in results if r.spec.protocol == column.protocol and not r.error}
    models = {
        label: predictions if column.group is None else part_of(predictions, group, column.group)
        for label, (predictions, group) in here.items()
    }
    compared = compare(*models.values(), names=list(models), metrics=["openauc"], baseline=baseline)
    return {d.a: Difference(d.difference, *d.interval, d.p_holm) for d in compared.differences}


def columns_of(summary: Summary) -> list[Column]:
    """Data sets in the order of the list above; CUB by groups."""
    grouped = {column.protocol for column in summary.columns if column.group}
    shown = [c for c in summary.columns if c.protocol in DATA and (c.group or c.protocol not in grouped)]
    return sorted(shown, key=lambda c: list(DATA).index(c.protocol))


def title(column: Column) -> str:
    return DATA[column.protocol] + (f" {column.group}" if column.group else "")


def mean_table(summary: Summary, columns: Sequence[Column]) -> list[str]:
    lines = ["| | " + " | ".join(map(title, columns)) + " |", "|---|" + "---:|" * len(columns)]
    rows = {
        line.label: [summary.cell(line.label, c.protocol, group=c.group).mean for c in columns] for line in summary.rows
    }
    better = min if summary.metric == "fpr_at_95tpr" else max
    whole = [values for label, values in rows.items() if label not in NETWORKS]  # rows with all splits
    best = [better(v for v in values if v is not None) for values in zip(*whole, strict=True)]
    for label in sorted(rows, key=order_of):
        cells = [
            "" if value is None else f"**{100 * value:.1f}**" if value == top else f"{100 * value:.1f}"
            for value, top in zip(rows[label], best, strict=True)
        ]
        lines.append(f"| {told(label)} | {' | '.join(cells)} |")
    return lines


def order_of(label: str) -> tuple[int, str]:
    name = label.removeprefix("logistic (score ").removesuffix(")")
    rules = ("learned", "average", "average_of_all", "selected")
    if name in rules:
        return rules.index(name), ""
    kinds = (SCORES, DETECTORS)
    return next((10 + 100 * i + list(kind).index(name) for i, kind in enumerate(kinds) if name in kind), 1000), name


def told(label: str) -> str:
    name = label.removeprefix("logistic (score ").removesuffix(")")
    names = {"average": "average of four", "average_of_all": "average of all", "selected": "best by held-out classes"}
    return names.get(name, name if label.startswith("logistic") else f"{name}, small network ({NETWORK_SPLITS} splits)")


def verdicts(
    summary: Summary,
    columns: Sequence[Column],
    against_baseline: Mapping[Column, Mapping[str, Difference]],
    against_learned: Mapping[Column, Mapping[str, Difference]],
) -> tuple[list[str], list[dict[str, Any]]]:
    lines = [
        "| data | known classes | max logit | best rival, picked on test | learned | learned less max logit "
        "| learned less best rival | verdict |",
        "|---|---:|---:|---|---:|---|---|---|",
    ]
    content = []
    for column in columns:
        mean = {line.label: summary.cell(line.label, column.protocol, group=column.group).mean for line in summary.rows}
        gaps = against_learned[column]
        best = max(gaps, key=lambda label: gaps[label].value)  # on the splits that both have
        gain, gap = against_baseline[column][LEARNED], gaps[best]
        gap = Difference(-gap.value, -gap.high, -gap.low, gap.p_holm)
        verdict = "best" if gap.value > 0 else "tied with the best" if gap.p_holm >= 0.05 else "behind"
        significant = gain.value > 0 and gain.p_holm < 0.05
        verdict += f"; {'' if significant else 'not '}significantly above max logit"
        classes = known_classes(column)
        lines.append(
            f"| {title(column)} | {classes} | {100 * (mean[BASELINE] or 0):.1f} "
            f"| {told(best)} {100 * (mean[best] or 0):.1f} "
            f"| {100 * (mean[LEARNED] or 0):.1f} | {gain} | {gap} | {verdict} |"
        )
        content.append(
            {
                "data": title(column),
                "known_classes": classes,
                "best_rival": best,
                "verdict": verdict,
                "gain": gain._asdict(),
                "gap": gap._asdict(),
            }
        )
    return lines, content


def known_classes(column: Column) -> int:
    return len(PROTOCOLS[column.protocol].splits[0].known)


def reachable(results: Sequence[TrialResult], store: Store) -> dict[str, list[float]]:
    """Open-set accuracy and macro F1 of the learned rejector at the best threshold, picked on test: a limit."""
    found: dict[str, list[Any]] = {}
    for result in results:
        if result.spec.protocol in INTENTS and label_of(result) == LEARNED and result.error is None:
            y, predicted, score = triple(result, store)[0]
            thresholds = np.quantile(score[y >= 0], np.linspace(0.78, 0.97, 20))
            every = np.array([open_set(y, predicted, score > threshold) for threshold in thresholds])
            found.setdefault(result.spec.protocol, []).append(every.max(0))
    return {name: np.mean(found[name], 0).tolist() for name in INTENTS if name in found}


def numbers(summary: Summary, columns: Sequence[Column]) -> dict[str, dict[str, Any]]:
    """Mean and interval over splits of every row and column, and the number of trials."""
    found: dict[str, dict[str, Any]] = {}
    for line in summary.rows:
        cells = {title(c): summary.cell(line.label, c.protocol, group=c.group) for c in columns}
        found[line.label] = {name: [cell.mean, cell.interval, cell.n_trials] for name, cell in cells.items()}
    return found


def trial_row(result: TrialResult, environment: int) -> str:
    """One trial as a line of text, which keeps thousands of them small."""
    spec = result.spec
    metrics = [f"{result.metrics.get(name, float('nan')):.5f}" for name in SHOWN]
    place = (spec.protocol, spec.split, spec.method, spec.score, spec.seed, result.n_known, result.n_unknown)
    return " ".join(map(str, (*place, *metrics, f"{result.seconds:.1f}", environment, result.error or "")))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path, help="folder of results, as `openauc run features` leaves it")
    options = parser.parse_args()
    store = Store(options.store)
    results = store.results()
    warnings.simplefilter("ignore", ScoreDirectionWarning)  # the direction of our own scores is not in doubt
    parts = [partial(result, store) if result.error is None else result for result in results]
    tables = {
        name: summarise(results, metric=name) if name != "partial" else summarise(parts, metric="openauc")
        for name in TABLES
    }
    against = {name: summarise(results, metric="openauc", baseline=name) for name in (BASELINE, LEARNED)}
    columns = columns_of(tables["openauc"])
    gains, gaps = (
        {column: differences(against[name], column, results, store, name) for column in columns}
        for name in (BASELINE, LEARNED)
    )
    verdict_lines, verdict_content = verdicts(tables["openauc"], columns, gains, gaps)
    text = ["# Heads and scores on embeddings", "", "x 100 throughout. " + " ".join(tables["openauc"].notes), ""]
    text += ["## The learned rejector against the largest logit and against its best rival", "", *verdict_lines]
    best = reachable(results, store)
    if best:
        cells = [f"{DATA[name]} {100 * accuracy:.1f}/{100 * f_score:.1f}" for name, (accuracy, f_score) in best.items()]
        text += ["", f"Open-set accuracy/macro F1 at the best threshold, picked on test: {', '.join(cells)}."]
    for name, summary in tables.items():
        text += ["", f"## {TABLES[name]}", "", *mean_table(summary, columns)]
    environments = [dict(facts) for facts in sorted({tuple(result.environment.items()) for result in results})]
    content = {
        "verdicts": verdict_content,
        "best_threshold_on_test": best,
        "gains_over_max_logit": {title(c): {k: d._asdict() for k, d in gains[c].items()} for c in columns},
        "means_and_intervals": {name: numbers(summary, columns) for name, summary in tables.items()},
        "environments": environments,
        "trials": {"columns": TRIAL, "rows": [trial_row(r, environments.index(r.environment)) for r in results]},
    }
    write_results("features", content, "\n".join(text))


if __name__ == "__main__":
    main()
