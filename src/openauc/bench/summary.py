"""From results to a table: one row per variant of a method, one column per protocol, and what each number rests on.

Trials of one cell differ in split and seed only. Whatever else differs, above all the budget, makes another row, and
the row's label says what it is.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from openauc._validation import check_choice, check_fraction
from openauc.bench.paper import Published, published, training_of
from openauc.bench.student import mean_interval, paired_p, sign_flip_p
from openauc.bench.templates import template
from openauc.bench.trial import TrialResult, TrialSpec, main_metric
from openauc.bench.variants import MEAN, Column, Scored, find_baseline, scored_trials, telling_settings, variants_of
from openauc.comparison import holm
from openauc.intervals import Interval
from openauc.metrics.registry import METRICS
from openauc.protocols import PROTOCOLS


@dataclass(frozen=True, kw_only=True)
class Paired:
    """A variant minus the baseline, on the (split, seed) pairs that both have.

    Differences are averaged within each distinct split, and these averages are the sample. ``p_value`` is from the
    paired t-test, ``p_holm`` the same corrected over the rows of the column, ``p_sign_flip`` from the exact sign-flip
    test. With a single distinct split all three are None.
    """

    difference: float
    n_pairs: int
    n_distinct: int
    interval: Interval | None
    p_value: float | None
    p_sign_flip: float | None
    p_holm: float | None = None


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One variant in one column.

    Parameters
    ----------
    mean, std_population, std_sample
        Over the finished trials, dividing by n and by n - 1; deviations need two trials.
    interval
        Student's interval of the mean over distinct splits, seeds and equal splits averaged first, cut to the values
        that the metric can have; None below two.
    n_trials, n_seeds, n_splits, n_distinct
        Finished trials, their seeds, splits, and splits with different known classes.
    failed, missing
        Trials that ended in an error; trials that were asked for and have no result, or none that is a number.
    rank
        1 for the best and 2 for the next mean of the column, among rows that have every split of the column.
    paired
        Comparison with the baseline.
    paper, paper_difference
        The printed value, and ours minus it.
    settings
        All that was set, as text.
    """

    mean: float | None = None
    std_population: float | None = None
    std_sample: float | None = None
    interval: Interval | None = None
    n_trials: int = 0
    n_seeds: int = 0
    n_splits: int = 0
    n_distinct: int = 0
    failed: int = 0
    missing: int = 0
    rank: int | None = None
    paired: Paired | None = None
    paper: Published | None = None
    settings: str = ""

    @property
    def paper_difference(self) -> float | None:
        """Ours minus the paper's."""
        return None if self.mean is None or self.paper is None else self.mean - self.paper.mean

    @property
    def is_empty(self) -> bool:
        """Whether no trial belongs here."""
        return not (self.n_trials or self.failed or self.missing)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One variant of a method; ``cells`` are in the order of the summary's columns."""

    label: str
    method: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True, kw_only=True)
class Summary:
    """A table of one metric; ``notes`` say in sentences what all of it rests on."""

    metric: str
    level: float
    baseline: str | None
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...]

    def cell(self, label: str, protocol: str, *, held_out: int = 0, group: str | None = None) -> Cell:
        """The cell of a row and a column."""
        row = self.rows[[row.label for row in self.rows].index(label)]
        return row.cells[self.columns.index(Column(protocol, held_out, group))]

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        cells = [
            {
                "variant": row.label,
                "method": row.method,
                **column._asdict(),
                **asdict(cell),
                "paper_difference": cell.paper_difference,
            }
            for row in self.rows
            for column, cell in zip(self.columns, row.cells, strict=True)
            if not cell.is_empty
        ]
        about = {"metric": self.metric, "level": self.level, "baseline": self.baseline}
        return {**about, "notes": list(self.notes), "cells": cells}


def summarise(
    results: Iterable[TrialResult],
    *,
    metric: str | None = None,
    baseline: str | None = None,
    level: float = 0.95,
    planned: Iterable[TrialSpec] = (),
) -> Summary:
    """Table of one metric over any number of results.

    Parameters
    ----------
    results
        Finished and failed ones. Of several results of one trial a finished one counts, else the last.
    metric
        Name in ``METRICS``; OpenAUC by default, or the accuracy where no trial was tested on unknown samples.
    baseline
        Label of a row, or a method that has one row only; every other row is compared with it.
    level
        Level of the intervals.
    planned
        Trials that were asked for; those without a result are counted as missing.

    Examples
    --------
    >>> specs = [TrialSpec.of("digits", split, "softmax", epochs=2) for split in range(3)]
    >>> values = (0.90, 0.92, 0.97)
    >>> table = summarise(TrialResult(spec=s, metrics={"openauc": v}) for s, v in zip(specs, values, strict=True))
    >>> cell = table.cell("softmax", "digits")
    >>> round(cell.mean, 4), cell.n_distinct, tuple(round(bound, 4) for bound in cell.interval)
    (0.93, 3, (0.8404, 1.0))
    """
    found = list(results)
    metric = check_choice("metric", metric or main_metric(found), METRICS)
    check_fraction("level", level, one=False)
    trials = scored_trials(found, planned)
    if not trials:
        raise ValueError("there is no result to summarise; run some trials first.")
    finished = [trial.finished for trial in trials if trial.finished]
    if finished and not any(metric in result.metrics for result in finished):
        raise ValueError(
            f"no trial has {metric!r}; compute it from the stored predictions (`openauc table STORE --recompute`)."
        )
    variants = variants_of(trials)
    if baseline is not None:
        baseline = find_baseline(baseline, variants)
    columns = _columns(trials)
    cells = {
        column: _column_cells(column, variants, metric=metric, baseline=baseline, level=level) for column in columns
    }
    tested = [column for column in columns if not column.held_out] or columns
    if len(tested) > 1 and all(column.group is None for column in tested):
        cells[MEAN] = _ranked(_mean_cells([cells[column] for column in tested]), METRICS[metric].better, variants)
    rows = tuple(
        Row(label=label, method=members[0].spec.method, cells=tuple(column[label] for column in cells.values()))
        for label, members in variants.items()
    )
    notes = _notes(trials, cells, metric)
    return Summary(metric=metric, level=level, baseline=baseline, columns=tuple(cells), rows=rows, notes=notes)


def _columns(trials: Iterable[Scored]) -> list[Column]:
    """Protocols in the order of ``PROTOCOLS``, then those from files, each followed by its groups."""
    groups: dict[Column, dict[str, None]] = defaultdict(dict)
    for trial in trials:
        groups[trial.scored_on] |= dict.fromkeys(trial.finished.groups if trial.finished else ())
    places = {name: place for place, name in enumerate(PROTOCOLS)}
    ordered = sorted(
        groups, key=lambda c: (c.held_out > 0, places.get(c.protocol, len(places)), c.protocol, c.held_out)
    )
    return [column._replace(group=group) for column in ordered for group in (None, *groups[column])]


Values = dict[tuple[int, int], float]  # (split, seed) -> value of a finished trial


def _column_cells(
    column: Column, variants: Mapping[str, Sequence[Scored]], *, metric: str, baseline: str | None, level: float
) -> dict[str, Cell]:
    scored_on = column._replace(group=None)
    here = {label: [t for t in members if t.scored_on == scored_on] for label, members in variants.items()}
    values: dict[str, Values] = {label: {} for label in here}
    for label, members in here.items():
        for trial in members:
            if trial.finished and (value := value_of(trial.finished, column.group, metric)) is not None:
                values[label][trial.spec.split, trial.spec.seed] = value
    cells = {label: _cell(column, here[label], values[label], metric=metric, level=level) for label in variants}
    if baseline is not None:
        others = [label for label in variants if label != baseline]
        paired = {label: _compare(column, values[label], values[baseline], level) for label in others}
        cells |= {label: replace(cells[label], paired=found) for label, found in _holm(paired).items()}
    splits = {label: {split for split, _ in values[label]} for label in variants}
    # A row that lacks a split others have was not measured on the same problems.
    whole = [label for label in variants if splits[label] == set().union(*splits.values())]
    return _ranked(cells, METRICS[metric].better, whole)


def value_of(result: TrialResult, group: str | None, metric: str) -> float | None:
    """What was stored, if it is a finite number."""
    value = (result.metrics if group is None else result.groups.get(group, {})).get(metric, math.nan)
    return value if math.isfinite(value) else None


def _cell(column: Column, trials: Sequence[Scored], values: Values, *, metric: str, level: float) -> Cell:
    if not trials:
        return Cell()
    failed = sum(trial.result is not None and trial.result.error is not None for trial in trials)
    sample, distinct = list(values.values()), _by_distinct_split(column.protocol, values)
    several = len(sample) > 1
    return Cell(
        mean=float(np.mean(sample)) if sample else None,
        std_population=float(np.std(sample)) if several else None,
        std_sample=float(np.std(sample, ddof=1)) if several else None,
        interval=_possible(mean_interval(distinct, level), sample, METRICS[metric].largest),
        n_trials=len(sample),
        n_seeds=len({seed for _, seed in values}),
        n_splits=len({split for split, _ in values}),
        n_distinct=len(distinct),
        failed=failed,
        missing=len(trials) - failed - len(values),
        paper=None if column.held_out else published(trials[0].spec.method, column.protocol, metric, column.group),
        settings=", ".join(trials[0].settings.values()),
    )


def _possible(interval: Interval | None, sample: Sequence[float], largest: float) -> Interval | None:
    """The part of an interval between 0 and the largest value, which the sample may exceed in a metric of your own."""
    if interval is None:
        return None
    return Interval(max(interval.low, min(0.0, *sample)), min(interval.high, max(largest, *sample)))


def _by_distinct_split(protocol: str, values: Values) -> list[float]:
    """One value per set of known classes: the mean over the splits that share it of the mean over their seeds."""
    by_split: dict[int, list[float]] = defaultdict(list)
    for (split, _), value in values.items():
        by_split[split].append(value)
    first = {other: one for one, other in reversed(_equal_splits(protocol))}
    by_classes: dict[int, list[float]] = defaultdict(list)
    for split, sample in sorted(by_split.items()):
        by_classes[first.get(split, split)].append(float(np.mean(sample)))
    return [float(np.mean(sample)) for sample in by_classes.values()]


@lru_cache
def _equal_splits(protocol: str) -> tuple[tuple[int, int], ...]:
    """Pairs of splits with the same known classes; those of a file are taken to differ."""
    return PROTOCOLS[protocol].duplicate_splits() if protocol in PROTOCOLS else ()


def _compare(column: Column, values: Values, baseline: Values, level: float) -> Paired | None:
    common = {key: values[key] - baseline[key] for key in values if key in baseline}
    if not common:
        return None
    differences = _by_distinct_split(column.protocol, common)
    return Paired(
        difference=float(np.mean(differences)),
        n_pairs=len(common),
        n_distinct=len(differences),
        interval=mean_interval(differences, level),
        p_value=paired_p(differences),
        p_sign_flip=sign_flip_p(differences),
    )


def _holm(paired: Mapping[str, Paired | None]) -> dict[str, Paired | None]:
    tested = {label: p for label, found in paired.items() if found and (p := found.p_value) is not None}
    corrected = dict(zip(tested, holm(tested.values()), strict=True))
    return {label: found and replace(found, p_holm=corrected.get(label)) for label, found in paired.items()}


def _ranked(cells: Mapping[str, Cell], better: str, whole: Iterable[str]) -> dict[str, Cell]:
    """Mark best and runner-up among the whole rows."""
    means = {label: mean for label in whole if (mean := cells[label].mean) is not None}
    podium = sorted(set(means.values()), reverse=better == "higher")[:2] if len(means) > 1 else []
    return {
        label: replace(cell, rank=podium.index(means[label]) + 1) if means.get(label) in podium else cell
        for label, cell in cells.items()
    }


def _mean_cells(columns: Sequence[Mapping[str, Cell]]) -> dict[str, Cell]:
    """The mean over the columns for each row that has all splits of all of them."""
    splits = [max(cell.n_splits for cell in cells.values()) for cells in columns]
    means = {}
    for label in columns[0]:
        cells = [found[label] for found in columns]
        values = [c.mean for c, n in zip(cells, splits, strict=True) if c.mean is not None and c.n_splits == n]
        printed = [cell.paper.mean for cell in cells if cell.paper is not None]
        paper = Published(float(np.mean(printed))) if len(printed) == len(cells) else None
        whole = Cell(mean=float(np.mean(values or 0)), n_trials=sum(c.n_trials for c in cells), paper=paper)
        means[label] = whole if len(values) == len(cells) else Cell()
    return means


def _notes(trials: Sequence[Scored], cells: Mapping[Column, Mapping[str, Cell]], metric: str) -> tuple[str, ...]:
    """What the numbers rest on, and what is missing."""
    filled = {c: [cell for cell in found.values() if cell.n_trials] for c, found in cells.items() if c != MEAN}
    fewer = {c: [cell for cell in found if cell.n_distinct < cell.n_splits] for c, found in filled.items()}
    printed = {column.protocol for column, found in filled.items() if any(cell.paper for cell in found)}
    shown = telling_settings(trials)
    hidden: dict[str, tuple[dict[str, None], dict[str, None]]] = defaultdict(lambda: ({}, {}))
    errors: dict[str, list[str]] = defaultdict(list)
    for trial in trials:
        text = ", ".join(phrase for name, phrase in trial.settings.items() if name not in shown[trial.spec.method])
        methods, columns = hidden[text]
        methods[trial.spec.method] = columns[trial.scored_on.label] = None
        if trial.result is not None and trial.result.error is not None:
            errors[next(iter(trial.result.error.strip().splitlines()), "no message")].append(trial.spec.id)
    finished = [trial.finished for trial in trials if trial.finished]
    environment = {key: Counter(r.environment[key] for r in finished if key in r.environment) for key in _ENVIRONMENT}
    notes = template("notes.txt").render(
        cells=[cell for found in filled.values() for cell in found],
        equal_splits=[
            (c.label, _equal_splits(c.protocol), found) for c, found in fewer.items() if found and not c.group
        ],
        hidden=hidden,
        n_columns=len({trial.scored_on.label for trial in trials}),
        paper=dict.fromkeys(training_of(protocol) for protocol in PROTOCOLS if protocol in printed),
        n=len(trials),
        missing=sum(trial.result is None for trial in trials),
        without_value=[r.spec.id for r in finished if any(value_of(r, g, metric) is None for g in (None, *r.groups))],
        metric=metric,
        errors=sorted(errors.items(), key=lambda item: -len(item[1])),
        environment={key: counts.most_common() for key, counts in environment.items() if counts},
    )
    return tuple(notes.splitlines())


_ENVIRONMENT = ("processor", "gpu", "python", "openauc", "torch", "numpy", "commit")
