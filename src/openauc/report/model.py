"""Everything a page shows of the predictions of one model, as plain data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from openauc._validation import UNKNOWN, Label
from openauc.evaluation import Evaluation, evaluate_ranked
from openauc.intervals import REPLICATES
from openauc.metrics.counts import Coded, RankedSamples
from openauc.metrics.curve import Curve, Floats
from openauc.metrics.decision import sweep_of
from openauc.metrics.operating import acceptance_threshold
from openauc.metrics.rank_table import Ranking, RankTable
from openauc.metrics.registry import METRICS, Metric
from openauc.metrics.resampling import resampled_table
from openauc.metrics.samples import CORRECT, UNKNOWN_KIND, Ints

LINES = ("macro_f_score", "youden_index", "normalized_accuracy")  # of Figure 1
MOST_CLASSES = 40  # in a table, as each has numbers for every position of the slider
_BINS = 60
_BAND_REPLICATES, _BAND_POINTS = 1000, 101


class Options(NamedTuple):
    """How models are evaluated and shown; ``thresholds`` get buttons, and the slider begins at the first of them."""

    class_names: Mapping[str, str] = MappingProxyType({})
    metrics: Mapping[str, Metric] = METRICS
    level: float = 0.95
    seed: int = 0
    n_replicates: int = REPLICATES
    unknown_label: Label = UNKNOWN
    thresholds: Mapping[str, float] = MappingProxyType({})


def model_data(
    name: str, ranked: RankedSamples, options: Options, origin: NDArray[Any] | None = None
) -> tuple[Evaluation, dict[str, Any]]:
    """The evaluation of one model, and the data that the scripts draw; ``origin`` is the real class of each sample."""
    names, ranking, coded = options.class_names, ranked.ranking, ranked.coded
    evaluation = evaluate_ranked(ranked, options.metrics, options.level, options.seed, options.n_replicates)
    presets = dict(options.thresholds)
    with suppress(ValueError):  # too few known samples for the guarantee
        presets["accept 95 % of known"] = acceptance_threshold(ranked.samples, 0.95)
    presets["reject 95 % of unknown"] = evaluation.thresholds["fpr_at_95tpr"]
    for button, line in zip(("F-score", "Youden's index", "normalized accuracy"), LINES, strict=True):
        presets[f"best {button}"] = evaluation.thresholds[line]
    # The column with the same decisions: the largest threshold of the table up to the one wanted.
    wanted = {key: int(np.searchsorted(ranking.threshold, t, side="right")) - 1 for key, t in presets.items()}
    columns = slider_columns(ranking.table.known, ranking.table.unknown, list(wanted.values()))
    positions = {key: int(np.searchsorted(columns, column)) for key, column in wanted.items()}
    return evaluation, {
        "name": name,
        "n_known": ranked.samples.n_known,
        "n_unknown": ranked.samples.n_unknown,
        "openauc": evaluation.openauc,
        "auroc": evaluation.values["auroc"],
        "curves": {key: _points(evaluation.curves[key]) for key in ("oscr", "roc", *LINES)},
        "band": _band(ranking.table.cuts(columns), options.level, options.seed),
        "best": {key: _best(evaluation.curves[key]) for key in LINES},
        "sweep": _sweep(ranked, columns),
        "presets": positions,
        "start": next(iter(positions.values())),
        "histogram": _scores(ranking),
        "classes": _classes(ranking, coded, columns, names),
        "origins": None if origin is None else _origins(ranking, coded, columns, names, origin),
    }


def slider_columns(known: Ints, unknown: Ints, keep: list[int], *, positions: int = 600) -> Ints:
    """Columns of the rank table for the slider: the first, the last, those to ``keep``, and others spread evenly.

    From one column to the next, the shares of known and of unknown samples accepted grow by 2 / ``positions`` in all,
    unless a single threshold makes a larger step.
    """
    if len(known) <= positions:
        return np.arange(len(known))
    progress = known / known[-1] + unknown / unknown[-1]
    spread = np.searchsorted(progress, np.linspace(0.0, progress[-1], positions))
    return np.unique(np.concatenate([[0, len(known) - 1], keep, spread])).astype(np.int64)


def thin(x: Floats, y: Floats, *, pixels: int = 1000) -> Ints:
    """Positions of the points that enter another pixel of the unit square, the first and the last point included."""
    pixel = np.rint(pixels * np.stack([x, y]))
    keep = np.ones(len(x), dtype=bool)
    keep[1:-1] = (pixel[:, 1:-1] != pixel[:, :-2]).any(axis=0)
    return np.flatnonzero(keep)


def histogram(scores: Floats, sides: Mapping[str, tuple[Floats, int]]) -> dict[str, list[float]]:
    """Edges of the bins, and the count of each side in each bin over a total; all scores are sorted.

    The outer bins hold everything beyond them: a few extreme scores would leave no room for the others.
    """
    finite = scores[np.isfinite(scores)]
    low, high = np.quantile(finite, [0.001, 0.999], method="nearest") if finite.size else np.zeros(2)
    if low == high:
        room = max(0.5, abs(low) / 1000)
        low, high = np.clip([low - room, high + room], np.finfo(float).min, np.finfo(float).max)
    part = np.linspace(0.0, 1.0, _BINS + 1)
    edges = (1.0 - part) * low + part * high  # high - low may overflow
    counts = {
        name: np.diff(np.searchsorted(side, edges[1:-1]), prepend=0, append=len(side)) / total
        for name, (side, total) in sides.items()
    }
    return {"edges": edges.tolist(), **{name: _rounded(shares) for name, shares in counts.items()}}


def _rounded(values: Floats) -> list[float]:
    """Numbers that are only drawn: a hundredth of a pixel is enough."""
    return [round(value, 5) for value in values.tolist()]


def _points(curve: Curve) -> dict[str, list[float]]:
    kept = thin(curve.x, curve.y)
    return {"x": _rounded(curve.x[kept]), "y": _rounded(curve.y[kept])}


def _best(curve: Curve) -> list[float]:
    column = len(curve) - 1 - int(np.argmax(curve.y[::-1]))  # the lowest threshold that reaches it, as ``best`` does
    return [float(curve.x[column]), float(curve.y[column])]


def _band(table: RankTable, level: float, seed: int) -> dict[str, list[float]]:
    """Pointwise percentile band of the OSCR curve; known and unknown samples are resampled apart."""
    replicates = resampled_table(table, (int(table.n_known), int(table.n_unknown)), _BAND_REPLICATES, seed)
    grid = np.linspace(0.0, 1.0, _BAND_POINTS)
    shares = zip(replicates.unknown / table.n_unknown, replicates.correct / table.n_known, strict=True)
    heights = np.stack([np.interp(grid, *replicate) for replicate in shares])
    tail = 0.5 * (1.0 - level)
    low, high = np.quantile(heights, [tail, 1.0 - tail], axis=0)
    return {"x": _rounded(grid), "low": _rounded(low), "high": _rounded(high)}


def _sweep(ranked: RankedSamples, columns: Ints) -> dict[str, list[Any]]:
    """Counts and metrics at each position of the slider; not rounded, because the page prints them."""
    counts, sweep, table = ranked.counts, sweep_of(ranked), ranked.ranking.table
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


def _scores(ranking: Ranking) -> dict[str, list[float]]:
    samples, right, unknown = ranking.samples, ranking.kind == CORRECT, ranking.kind == UNKNOWN_KIND
    scores = samples.score[ranking.order].astype(np.float64)
    known = {"right": (scores[right], samples.n_known), "wrong": (scores[~(right | unknown)], samples.n_known)}
    return histogram(scores, known | {"unknown": (scores[unknown], samples.n_unknown)})


def _classes(ranking: Ranking, coded: Coded, columns: Ints, names: Mapping[str, str]) -> dict[str, Any]:
    """The known classes of the lowest accuracy, the lowest first, and how many more samples each position accepts.

    Among equals, those that more unknown samples are taken for come first.
    """
    true, pred = coded.true[ranking.order], coded.pred[ranking.order]
    right, unknown, named = ranking.kind == CORRECT, ranking.kind == UNKNOWN_KIND, pred >= 0
    position = np.searchsorted(columns, ranking.group)  # the first one that accepts a sample
    accuracy = np.bincount(true[right], minlength=len(coded.classes)) / np.maximum(coded.class_size, 1)
    met = np.flatnonzero(coded.class_size)
    taken = np.bincount(pred[named & unknown], minlength=len(coded.classes))
    shown = met[np.lexsort((-taken[met], accuracy[met]))][:MOST_CLASSES]

    def steps(label: Ints, chosen: NDArray[np.bool_]) -> list[list[int]]:
        return _steps(label[chosen], position[chosen], shown, len(columns))

    return {
        "n_classes": len(met),
        "name": [_name(names, label) for label in coded.classes[shown].tolist()],
        "size": coded.class_size[shown].tolist(),
        "accuracy": accuracy[shown].tolist(),
        "accepted": steps(true, named & ~unknown),
        "right": steps(true, named & right),
        "taken": steps(pred, named & unknown),
    }


def _origins(
    ranking: Ranking, coded: Coded, columns: Ints, names: Mapping[str, str], origin: NDArray[Any]
) -> dict[str, Any]:
    """Each class of the unknown samples, the largest first: size, known classes predicted for it, what is accepted."""
    unknown = ranking.kind == UNKNOWN_KIND
    found, label = np.unique(origin[ranking.order][unknown].astype(str), return_inverse=True)
    pred, position = coded.pred[ranking.order][unknown], np.searchsorted(columns, ranking.group)[unknown]
    size = np.bincount(label, minlength=len(found))
    shown = np.argsort(-size, kind="stable")[:MOST_CLASSES]
    named = pred >= 0

    def taken_for(i: int) -> list[tuple[str, float]]:
        counts = np.bincount(pred[(label == i) & named], minlength=len(coded.classes))
        top = np.argsort(-counts, kind="stable")[:3]
        return [(_name(names, coded.classes[c].item()), float(counts[c] / size[i])) for c in top if counts[c]]

    return {
        "n_classes": len(found),
        "name": [_name(names, name) for name in found[shown].tolist()],
        "size": size[shown].tolist(),
        "accepted": _steps(label[named], position[named], shown, len(columns)),
        "taken_for": list(map(taken_for, shown)),
    }


def _name(names: Mapping[str, str], label: Any) -> str:
    return names.get(str(label)) or str(label)


def _steps(label: Ints, position: Ints, shown: Ints, n_positions: int) -> list[list[int]]:
    """Number of samples of each shown label at each position."""
    return [np.bincount(position[label == one], minlength=n_positions).tolist() for one in shown]
