"""The report on a store: results beside the paper's, every trial behind them, and how each was made."""

from __future__ import annotations

import math
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from openauc._files import parse_json, write_text
from openauc._trial_files import LOG
from openauc.bench.selection import command_of
from openauc.bench.store import Store
from openauc.bench.summary import Cell, Row, Summary, summarise, value_of
from openauc.bench.trial import TrialSpec, main_metric
from openauc.bench.variants import MEAN, Column, Scored, scored_trials, variants_of
from openauc.metrics.registry import METRICS
from openauc.report.page import interval, percent, render

ALSO = ("auroc", "closed_set_accuracy")  # are shown too, where every finished trial has them
MOST_EPOCHS = 120
MOST_TICKS = 6
_NOT_CURVES = {"epoch", "seconds", "images_per_second"}


def write_report(
    store: Store | Path | str,
    out: Path | str,
    *,
    specs: Sequence[TrialSpec] | None = None,
    baseline: str | None = None,
    level: float = 0.95,
) -> None:
    """Write :func:`store_report` to a file; links are relative to it.

    >>> write_report("runs/digits", "report.html", baseline="ce_plus")  # doctest: +SKIP
    """
    found, folder = store if isinstance(store, Store) else Store(store), Path(out).parent
    write_text(out, store_report(found, specs=specs, relative_to=folder, baseline=baseline, level=level))


def store_report(
    store: Store,
    *,
    specs: Sequence[TrialSpec] | None = None,
    relative_to: Path | str = ".",
    metric: str | None = None,
    baseline: str | None = None,
    level: float = 0.95,
) -> str:
    """A self-contained HTML page on the results of a store.

    Parameters
    ----------
    store
        As ``openauc run`` leaves it, finished or not.
    specs
        The trials to report; by default all that the store holds or was asked for.
    relative_to
        Folder of the page, for links to the predictions.
    metric
        What the charts and the first table show.
    baseline, level
        As for ``summarise``.
    """
    planned = store.planned() if specs is None else list(specs)
    wanted = {spec.id for spec in planned}
    results = [result for result in store.results() if specs is None or result.spec.id in wanted]
    if not (results or planned):
        raise ValueError(f"{store.root} holds no trials; name a folder that `openauc run` or `openauc fit` wrote.")
    metric = metric or main_metric(results)
    finished = [found for r in results if r.error is None for found in (r.metrics, *r.groups.values())]
    metrics = [metric, *(m for m in ALSO if m != metric and all(m in found for found in finished))]
    summaries = [summarise(results, metric=m, baseline=baseline, level=level, planned=planned) for m in metrics]
    trials = scored_trials(results, planned)
    rows = variants_of(trials)
    histories, same, unreadable = _histories(store, rows)
    return render(
        "store",
        {
            "metric": METRICS[metric].label,
            "rows": list(rows),
            "same": same,
            "histories": histories,
            "sensitivity": _sensitivity(summaries[0], rows),
        },
        name=store.root.resolve().name,
        headline=_headline(summaries[0]),
        counts=_counts(trials),
        same=[(labels, _is_one(summaries[0], labels)) for labels in same],
        tables=[(summary, METRICS[summary.metric], _panels(summary, rows)) for summary in summaries],
        overview=_overview(summaries[0]),
        notes=list(dict.fromkeys([*(note for summary in summaries for note in summary.notes), *unreadable])),
        labels=list(rows),
        cells=_cells(summaries[0], rows, store, Path(relative_to), metric),
        failed=[trial.result for trial in trials if trial.result is not None and trial.result.error is not None],
        command_of=command_of,
        metric=METRICS[metric],
        level=level,
        baseline=summaries[0].baseline,
        has_paper=any(cell.paper for row in summaries[0].rows for cell in row.cells),
    )


Rows = Mapping[str, Sequence[Scored]]


def _counts(trials: Sequence[Scored]) -> dict[str, int]:
    finished = sum(trial.finished is not None for trial in trials)
    missing = sum(trial.result is None for trial in trials)
    counts = {"finished": finished, "failed": len(trials) - finished - missing, "without a result": missing}
    return {word: n for word, n in counts.items() if n or word == "finished"}


def _headline(summary: Summary) -> dict[str, Any]:
    """Which rows are best, and whose intervals overlap with that of the best; the template makes a sentence of it."""
    columns = [i for i, column in enumerate(summary.columns) if column != MEAN]
    filled = [(row, i) for row in summary.rows for i in columns if row.cells[i].mean is not None]
    leaders = {i: found for i in columns if (found := [row for row in summary.rows if row.cells[i].rank == 1])}
    wins = Counter(row.label for found in leaders.values() for row in found)
    most = max(wins.values(), default=0)
    names = [name for name, n in wins.items() if n == most] or [filled[0][0].label if filled else ""]
    i = next(iter(leaders), filled[0][1] if filled else 0)
    best = leaders[i][0].cells[i] if leaders else filled[0][0].cells[i] if filled else Cell()
    others = {row.label: other for row in summary.rows if row.label not in names and (other := row.cells[i].interval)}
    low, high = best.interval or (math.inf, -math.inf)
    return {
        "names": names,
        "value": _with_interval(best.mean or 0.0, best.interval),
        "where": summary.columns[i].label,
        "won": most,
        "columns": len(leaders),
        "finished": sum(row.cells[j].n_trials for row, j in filled),
        "rows": len({row.label for row, _ in filled}),
        "missing": any(row.cells[j].missing for row in summary.rows for j in columns),
        "compared": best.interval is not None and len(others) > 0,
        "near": [name for name, other in others.items() if other.low <= high and low <= other.high],
    }


def _with_interval(value: float, bounds: tuple[float, float] | None) -> str:
    return percent(value) + (f" ({interval(bounds)})" if bounds is not None else "")


class Axis(NamedTuple):
    """Where the numbers of a panel are drawn, from its left edge to its right one."""

    low: float
    high: float
    ticks: tuple[float, ...]

    @classmethod
    def of(cls, values: Sequence[float]) -> Axis:
        """The axis that holds these values, with round ticks."""
        low, high = min(values), max(values)
        rough = max(high - low, 0.01) / MOST_TICKS
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(step for step in (power, 2 * power, 5 * power, 10 * power) if step >= rough)
        first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
        ticks = tuple(round(i * step, 9) for i in range(first, max(last, first + 1) + 1))
        return cls(ticks[0], ticks[-1], ticks)

    def at(self, value: float) -> str:
        """Place of a value, as SVG and CSS write it."""
        return f"{100 * (value - self.low) / (self.high - self.low):.2f}%"


def _panels(summary: Summary, rows: Rows) -> list[dict[str, Any]]:
    """For each column of the table its rows, the best first, with every trial, and the axis that they share."""
    panels = []
    for i, column in enumerate(summary.columns):
        if column == MEAN:
            continue
        lines = [
            _line(row.label, row.cells[i], _of(rows[row.label], column), summary.metric, column.group)
            for row in _sorted(summary, i)
            if not row.cells[i].is_empty
        ]
        if drawn := [value for line in lines for value in line["drawn"]]:
            most = max(line["cell"].n_trials for line in lines)
            panels.append({"title": column.label, "lines": lines, "axis": Axis.of(drawn), "most": most})
    return panels


def _line(label: str, cell: Cell, trials: Iterable[Scored], metric: str, group: str | None) -> dict[str, Any]:
    """What is drawn of a cell; a single trial has no interval over splits, and shows its own one over samples."""
    dots = [(trial.spec, *found) for trial in trials if (found := _measured(trial, metric, group))]
    bounds = cell.interval or (dots[0][2] if len(dots) == 1 else None)
    single = (cell.mean, cell.paper and cell.paper.mean)
    drawn = [value for value in (*single, *(bounds or ()), *(value for _, value, _ in dots)) if value is not None]
    return {"row": label, "cell": cell, "dots": dots, "interval": bounds, "drawn": drawn}


def _sorted(summary: Summary, i: int) -> list[Row]:
    """The rows by their value in a column, the best first and those without one last."""
    sign = -1.0 if METRICS[summary.metric].better == "higher" else 1.0
    return sorted(summary.rows, key=lambda row: math.inf if (mean := row.cells[i].mean) is None else sign * mean)


def _overview(summary: Summary) -> list[Row]:
    """The rows of the table of all columns, by their mean over the columns if there is one; empty for one column."""
    several = len(summary.columns) > 1
    return _sorted(summary, len(summary.columns) - 1 if MEAN in summary.columns else 0) if several else []


def _is_one(summary: Summary, labels: Sequence[str]) -> bool:
    """Whether these rows have the same numbers, wherever they have any."""
    means = [[cell.mean for cell in row.cells] for row in summary.rows if row.label in labels]
    return all(len(set(column) - {None}) <= 1 for column in zip(*means, strict=True))


def _of(members: Iterable[Scored], column: Column) -> list[Scored]:
    chosen = [trial for trial in members if trial.scored_on == column._replace(group=None)]
    return sorted(chosen, key=lambda trial: (trial.spec.split, trial.spec.seed))


def _measured(trial: Scored, metric: str, group: str | None = None) -> tuple[float, tuple[float, float] | None] | None:
    """A metric of a trial with its interval, if there is one; None where the metric is not a finite number."""
    if (result := trial.finished) is None:
        return None
    bounds = result.intervals.get(metric) if group is None else None
    if (value := value_of(result, group, metric)) is None:
        return None
    return value, bounds if bounds is not None and all(map(_is_number, bounds)) else None


def _histories(store: Store, rows: Rows) -> tuple[list[dict[str, Any]], list[list[str]], list[str]]:
    """Each training's curves once; rows that share all of their trainings; what could not be read."""
    found, notes, seen = [], [], set()
    trainings: dict[str, dict[Any, bytes]] = defaultdict(dict)
    for label, members in rows.items():
        for trial in members:
            spec, file = trial.spec, store.folder(trial.spec) / LOG
            content = file.read_bytes() if file.is_file() else b""
            log = [_log_row(line) for line in content.splitlines()]
            if unreadable := log[:-1].count({}):  # the last line may be one that a training is just writing
                place = file.relative_to(store.root)
                notes.append(f"{place}: lines that cannot be read and are left out: {unreadable:,}.")
            if curves := _curves([row for row in log if row]):
                # With the seconds of each epoch: two trainings never have the same.
                trainings[label][trial.scored_on, spec.split, spec.seed] = content
                about = {"row": label, "protocol": trial.scored_on.label, "split": spec.split, "seed": spec.seed}
                if content not in seen:
                    found.append({**about, "curves": curves})
                seen.add(content)
    sharing: list[list[str]] = []
    for label, logs in trainings.items():
        for labels in sharing:
            common = logs.keys() & trainings[labels[0]].keys()
            if common and all(logs[key] == trainings[labels[0]][key] for key in common):
                labels.append(label)
                break
        else:
            sharing.append([label])
    return found, [labels for labels in sharing if len(labels) > 1], notes


def _log_row(line: bytes) -> dict[str, Any]:
    """The quantities of an epoch; empty if the line cannot be read."""
    try:
        row = parse_json(line)
    except ValueError:
        return {}
    return row if isinstance(row, dict) and _is_number(row.get("epoch")) else {}


def _curves(log: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, list[float]]]:
    """Each quantity logged twice or more against the epoch; of long trainings every second, third, ... and the last."""
    step = -(-len(log) // MOST_EPOCHS)
    shown = [row for i, row in enumerate(log) if i % step == 0 or i == len(log) - 1]
    curves = {}
    for name in dict.fromkeys(key for row in shown for key in row if key not in _NOT_CURVES):
        points = [(row["epoch"], row[name]) for row in shown if _is_number(row.get(name))]
        if len(points) > 1:
            curves[name] = {"x": [x for x, _ in points], "y": [float(f"{y:.5g}") for _, y in points]}
    return curves


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _sensitivity(summary: Summary, rows: Rows) -> list[dict[str, Any]]:
    """Where rows differ in lam alone, the metric against it."""
    series: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in summary.rows:
        first = rows[row.label][0]
        if "lam" not in first.spec.method_args:
            continue
        lam = float(first.spec.method_args["lam"] or 0)
        others = sorted((k, v) for k, v in first.settings.items() if k != "method_args.lam")
        for column, cell in zip(summary.columns, row.cells, strict=True):
            if cell.mean is not None and column != MEAN:
                points = series.setdefault((column.label, row.method, *others), [])
                points.append({"lam": lam, "mean": cell.mean, "interval": cell.interval})
    return [
        {"title": f"{key[1]} on {key[0]}", "points": sorted(points, key=lambda point: point["lam"])}
        for key, points in series.items()
        if len({point["lam"] for point in points}) > 1
    ]


def _cells(summary: Summary, rows: Rows, store: Store, page: Path, metric: str) -> list[dict[str, Any]]:
    """What each cell of the table rests on."""
    found = []
    for row in summary.rows:
        for column, cell in zip(summary.columns, row.cells, strict=True):
            if column == MEAN or column.group is not None or cell.is_empty:
                continue
            members = _of(rows[row.label], column)
            environments = [trial.finished.environment for trial in members if trial.finished]
            lines = (" · ".join(f"{key} {value}" for key, value in facts.items()) for facts in environments if facts)
            found.append(
                {
                    "row": row.label,
                    "column": column.label,
                    "settings": cell.settings,
                    "finished": len(environments),
                    "trials": [_made(trial, store, page, metric) for trial in members],
                    "environments": list(dict.fromkeys(lines)),
                }
            )
    return found


def _made(trial: Scored, store: Store, page: Path, metric: str) -> dict[str, Any]:
    """What came of a trial, and where its predictions are."""
    result, measured = trial.result, _measured(trial, metric)
    state = "no result" if result is None else "failed" if result.error is not None else "no number"
    file = store.predictions(result) if result else None
    return {
        "spec": trial.spec,
        "state": _with_interval(*measured) if measured else state,
        "seconds": result.seconds if result else 0.0,
        "link": quote(Path(os.path.relpath(file, page)).as_posix()) if file else None,
    }
