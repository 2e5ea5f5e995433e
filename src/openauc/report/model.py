"""Everything a page shows of one model, as plain data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from openauc.evaluation import Evaluation, evaluate_ranked
from openauc.intervals import REPLICATES
from openauc.metrics.counts import Coded, RankedSamples
from openauc.metrics.curve import Curve, Floats
from openauc.metrics.decision import sweep_of
from openauc.metrics.operating import acceptance_threshold
from openauc.metrics.rank_table import Ranking, RankTable
from openauc.metrics.registry import METRICS, Metric
from openauc.metrics.resampling import resampled_table
from openauc.metrics.samples import CORRECT, UNKNOWN_KIND, Ints, Samples
from openauc.report.thinning import slider_columns, thin

LINES = ("macro_f_score", "youden_index", "normalized_accuracy")
"""Metrics of Figure 1."""

BINS = 60
MOST_CLASSES = 40
BAND_REPLICATES = 1000
BAND_POINTS = 101


class ModelData(NamedTuple):
    """The evaluation of a model, and what the scripts read of it."""

    evaluation: Evaluation
    data: dict[str, Any]


@dataclass(frozen=True)
class Names:
    """What classes are called.

    Parameters
    ----------
    classes
        Label -> name; a label without one is its own.
    origin
        (N,) class of each sample by its real name, unknown ones included; None if nobody knows.
    """

    classes: Mapping[str, str]
    origin: NDArray[Any] | None = None

    def of(self, label: Any) -> str:
        """Name of a class."""
        return self.classes.get(str(label)) or str(label)


def model_data(
    name: str,
    model: RankedSamples,
    *,
    names: Names,
    metrics: Mapping[str, Metric] = METRICS,
    level: float = 0.95,
    n_replicates: int = REPLICATES,
    seed: int = 0,
    thresholds: Mapping[str, float] | None = None,
) -> ModelData:
    """All numbers of one model; ``thresholds`` are further ones to jump to, and the first of them where it begins."""
    samples, ranking, coded = model.samples, model.ranking, model.coded
    evaluation = evaluate_ranked(model, metrics, level, seed, n_replicates)
    presets = {**(thresholds or {}), **_presets(samples, evaluation)}
    # The column that decides alike: the largest threshold of the table up to the one wanted.
    wanted = {key: int(np.searchsorted(ranking.threshold, t, side="right")) - 1 for key, t in presets.items()}
    columns = slider_columns(ranking.table.known, ranking.table.unknown, list(wanted.values()))
    positions = {key: int(np.searchsorted(columns, column)) for key, column in wanted.items()}
    return ModelData(
        evaluation,
        {
            "name": name,
            "n_known": samples.n_known,
            "n_unknown": samples.n_unknown,
            "openauc": evaluation.openauc,
            "auroc": evaluation.values["auroc"],
            "curves": {key: _points(evaluation.curves[key]) for key in ("oscr", "roc", *LINES)},
            "band": _band(ranking.table.columns(columns), level, seed),
            "best": {key: _best(evaluation.curves[key]) for key in LINES},
            "sweep": _sweep(model, columns),
            "presets": positions,
            "start": next(iter(positions.values())),
            "histogram": _histogram(ranking),
            "classes": _classes(ranking, coded, columns, names),
            "origins": _origins(ranking, coded, columns, names),
        },
    )


def _presets(samples: Samples, evaluation: Evaluation) -> dict[str, float]:
    """Thresholds worth a button, by what they do."""
    found = {}
    with suppress(ValueError):  # too few known samples for the promise
        found["accept 95 % of known"] = acceptance_threshold(samples, 0.95)
    found["reject 95 % of unknown"] = evaluation.thresholds["fpr_at_95tpr"]
    found["best F-score"] = evaluation.thresholds["macro_f_score"]
    found["best Youden's index"] = evaluation.thresholds["youden_index"]
    found["best normalized accuracy"] = evaluation.thresholds["normalized_accuracy"]
    return found


def _points(curve: Curve) -> dict[str, list[float]]:
    kept = thin(curve.x, curve.y)
    return {"x": _rounded(curve.x[kept]), "y": _rounded(curve.y[kept])}


def _rounded(values: Floats) -> list[float]:
    """Numbers that are drawn and not read: a hundredth of a pixel does."""
    return [round(value, 5) for value in values.tolist()]


def _best(curve: Curve) -> list[float]:
    column = len(curve) - 1 - int(np.argmax(curve.y[::-1]))  # the lowest threshold that reaches it, as ``best`` has it
    return [float(curve.x[column]), float(curve.y[column])]


def _band(table: RankTable, level: float, seed: int) -> dict[str, list[float]]:
    """Pointwise percentile band of the OSCR curve, known and unknown samples resampled apart."""
    replicates = resampled_table(table, (int(table.n_known), int(table.n_unknown)), BAND_REPLICATES, seed)
    grid = np.linspace(0.0, 1.0, BAND_POINTS)
    shares = zip(replicates.unknown / table.n_unknown, replicates.correct / table.n_known, strict=True)
    heights = np.stack([np.interp(grid, *replicate) for replicate in shares])
    tail = 0.5 * (1.0 - level)
    low, high = np.quantile(heights, [tail, 1.0 - tail], axis=0)
    return {"x": _rounded(grid), "low": _rounded(low), "high": _rounded(high)}


def _sweep(model: RankedSamples, columns: Ints) -> dict[str, list[Any]]:
    """Counts and metrics at each position of the slider, not rounded: these are the numbers one reads."""
    counts, sweep, table = model.counts, sweep_of(model), model.ranking.table
    at = {
        "right": np.asarray(counts.correct),
        "wrong": np.subtract(counts.accepted_known, counts.correct),
        "unknown": np.asarray(counts.accepted_unknown),
        "known_accepted": 1.0 - sweep.unknown_fpr,
        "unknown_rejected": sweep.unknown_tpr,
        "oscr_x": table.unknown / table.n_unknown,
        "oscr_y": table.correct / table.n_known,
        "roc_x": 1.0 - table.known / table.n_known,
        "roc_y": 1.0 - table.unknown / table.n_unknown,
        **{name: sweep.values[name] for name in LINES},
    }
    threshold = [t if math.isfinite(t) else str(t) for t in table.threshold[columns].tolist()]
    return {"threshold": threshold, **{name: values[columns].tolist() for name, values in at.items()}}


def _histogram(ranking: Ranking) -> dict[str, list[float]]:
    """Share of the known (right and wrong) and of the unknown samples in each bin.

    The outer bins hold everything beyond them: a few extreme scores would leave no room for the others.
    """
    table = ranking.table
    score = ranking.samples.score[ranking.order].astype(np.float64)
    finite = score[np.isfinite(score)]
    low, high = (
        finite[np.rint(np.array([0.001, 0.999]) * (len(finite) - 1)).astype(int)] if finite.size else np.zeros(2)
    )
    if low == high:
        room = max(0.5, abs(low) / 1000)
        low, high = np.clip([low - room, high + room], np.finfo(float).min, np.finfo(float).max)
    part = np.linspace(0.0, 1.0, BINS + 1)
    edges = (1.0 - part) * low + part * high  # the difference of the ends may overflow
    columns = np.searchsorted(table.threshold[1:], edges[1:-1])  # as many thresholds lie below an edge

    def share(counts: Ints, of: int) -> list[float]:
        return _rounded(np.diff(counts[columns], prepend=0, append=counts[-1]) / of)

    return {
        "edges": edges.tolist(),
        "right": share(table.correct, ranking.samples.n_known),
        "wrong": share(table.known - table.correct, ranking.samples.n_known),
        "unknown": share(table.unknown, ranking.samples.n_unknown),
    }


def _classes(ranking: Ranking, coded: Coded, columns: Ints, names: Names) -> dict[str, Any]:
    """Each known class: size, accuracy, and how many samples more are accepted from one position to the next.

    Where there are many classes, those of the lowest accuracy.
    """
    kind, true, pred = ranking.kind, coded.true[ranking.order], coded.pred[ranking.order]
    position = _first_position(ranking, columns)
    right = kind == CORRECT
    n_classes = len(coded.classes)
    correct = np.bincount(true[right], minlength=n_classes)
    accuracy = correct / np.maximum(coded.class_size, 1)
    met = np.flatnonzero(coded.class_size)
    shown = np.sort(met[np.argsort(accuracy[met], kind="stable")][:MOST_CLASSES])

    def steps(labels: Ints, chosen: NDArray[np.bool_]) -> list[list[int]]:
        return list(_steps(labels[chosen], position[chosen], n_classes, len(columns))[shown].tolist())

    named = pred >= 0
    return {
        "n_classes": len(met),
        "name": [names.of(label) for label in coded.classes[shown].tolist()],
        "size": coded.class_size[shown].tolist(),
        "accuracy": accuracy[shown].tolist(),
        "accepted": steps(true, named & (kind != UNKNOWN_KIND)),
        "right": steps(true, named & right),
        "taken": steps(pred, named & (kind == UNKNOWN_KIND)),
    }


def _origins(ranking: Ranking, coded: Coded, columns: Ints, names: Names) -> dict[str, Any] | None:
    """Each class behind the unknown samples: size, what it is taken for, and acceptance along the slider."""
    if names.origin is None:
        return None
    unknown = ranking.kind == UNKNOWN_KIND
    found, label = np.unique(names.origin[ranking.order][unknown].astype(str), return_inverse=True)
    pred, position = coded.pred[ranking.order][unknown], _first_position(ranking, columns)[unknown]
    size = np.bincount(label, minlength=len(found))
    shown = np.sort(np.argsort(-size, kind="stable")[:MOST_CLASSES])
    named = pred >= 0
    return {
        "n_classes": len(found),
        "name": [names.of(name) for name in found[shown].tolist()],
        "size": size[shown].tolist(),
        "accepted": _steps(label[named], position[named], len(found), len(columns))[shown].tolist(),
        "taken_for": [_taken_for(pred[(label == i) & named], coded.classes, names, int(size[i])) for i in shown],
    }


def _taken_for(pred: Ints, classes: NDArray[Any], names: Names, size: int) -> list[tuple[str, float]]:
    """The three known classes most often predicted, and how often."""
    counts = np.bincount(pred, minlength=len(classes))
    top = np.argsort(-counts, kind="stable")[:3]
    return [(names.of(classes[i].item()), float(counts[i] / size)) for i in top if counts[i]]


def _first_position(ranking: Ranking, columns: Ints) -> Ints:
    """Position of the slider that first accepts each sample, in rank order."""
    return np.asarray(np.searchsorted(columns, ranking.group))


def _steps(label: Ints, position: Ints, n_labels: int, n_positions: int) -> Ints:
    """(label, position) -> number of samples."""
    return np.bincount(label * n_positions + position, minlength=n_labels * n_positions).reshape(n_labels, -1)
