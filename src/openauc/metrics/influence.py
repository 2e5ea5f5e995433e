"""The influence of a sample on a metric: what one more sample like it would change. Variances follow from these."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from openauc.metrics.counts import Coded, DecisionCounts, counts_at, ratio
from openauc.metrics.curve import Curve, Floats
from openauc.metrics.rank_table import Ranking, RankTable
from openauc.metrics.ranking import Side, Ties, detections
from openauc.metrics.samples import CORRECT, UNKNOWN_KIND


class Influence(NamedTuple):
    """Influence of a right known, a wrong known and an unknown sample first accepted at cut 1, 2, ... of a table.

    For a mean over pairs these are its placements: their mean over either side is the metric. For other metrics only
    differences have a meaning.
    """

    right: Floats
    wrong: Floats
    unknown: Floats

    def of_samples(self, ranking: Ranking) -> tuple[Floats, Floats]:
        """Influence of every known and of every unknown sample, in the order of the samples."""
        kind = ranking.samples.kind
        value = np.stack([self.wrong, self.right, self.unknown])[kind, ranking.cut]
        return value[kind != UNKNOWN_KIND], value[kind == UNKNOWN_KIND]

    def variances(self, table: RankTable, sizes: tuple[float, float]) -> tuple[float, float]:
        """Variance of the mean over each side of the table, as of ``sizes`` samples; NaN of fewer than 2."""
        known, right, unknown = (np.diff(counts).astype(np.float64) for counts in table[1:])
        of_known = _variance_of_mean(((self.right, right), (self.wrong, known - right)), sizes[0])
        return of_known, _variance_of_mean(((self.unknown, unknown),), sizes[1])


def _variance_of_mean(parts: tuple[tuple[Floats, Floats], ...], size: float) -> float:
    if size < 2.0:
        return float("nan")
    total = sum(float(count.sum()) for _, count in parts)
    mean = sum(float(value @ count) for value, count in parts) / total
    return sum(float((value - mean) ** 2 @ count) for value, count in parts) / total / (size - 1.0)


def of_openauc(
    table: RankTable, ties: Ties = "half", low: float = 0.0, high: float = 1.0, *, with_wrong: bool = False
) -> Influence:
    r"""Placements of (partial) OpenAUC, or of AUROC ``with_wrong``.

    Since OFPR is the distribution function F of unknown scores and COTPR that (G) of correct known ones,

    .. math:: \frac{1}{b - a} \int_a^b G(F^{-1}(x)) dx = \frac{1}{b - a} E_k[c \, (b - \mathrm{clip}(F(r_k), a, b))],

    whose influence functions are the integrand for a known sample and clip(G(r_u), G_a, G_b) for an unknown one
    (Dodd and Pepe 2003); a = 0, b = 1 gives DeLong's components.
    """
    below = table.known if with_wrong else table.correct
    credit = 0.5 if ties == "half" else 1.0  # share of its own tie group that a known sample counts as below it
    ofpr = (table.unknown[:-1] + credit * np.diff(table.unknown)) / table.n_unknown
    cotpr = (below[:-1] + (1.0 - credit) * np.diff(below)) / table.n_known
    if (low, high) == (0.0, 1.0):
        known, unknown = 1.0 - ofpr, cotpr
    else:
        curve = Curve(table.unknown / table.n_unknown, below / table.n_known, table.threshold)
        bottom, top = curve.at([low, high])
        known = (high - np.clip(ofpr, low, high)) / (high - low)
        unknown = (np.clip(cotpr, bottom, top) - bottom) / (high - low)
    return Influence(known, known if with_wrong else np.zeros_like(known), unknown)


def of_accuracy(table: RankTable) -> Influence:
    """Influence on accuracy: unknown samples have none."""
    nothing = np.zeros(len(table.threshold) - 1)
    return Influence(np.ones_like(nothing), nothing, nothing)


def of_acc_plus_auc(table: RankTable) -> Influence:
    """Influence on accuracy plus AUROC: the sum of both."""
    return Influence(*(a + b for a, b in zip(of_accuracy(table), of_openauc(table, with_wrong=True), strict=True)))


def of_acc_times_auc(table: RankTable) -> Influence:
    """Influence on accuracy times AUROC, to first order (delta method)."""
    auroc = of_openauc(table, with_wrong=True)
    acc, auc = table.correct[-1] / table.n_known, float(auroc.unknown @ np.diff(table.unknown)) / table.n_unknown
    return Influence(auc + acc * auroc.right - acc * auc, acc * auroc.wrong - acc * auc, acc * auroc.unknown)


def of_accepted(
    table: RankTable,
    cut: Callable[[RankTable], ArrayLike],
    *,
    moves: bool = False,
    right: float = 0.0,
    wrong: float = 0.0,
    unknown: float = 0.0,
) -> Influence:
    """Influence on a weighted sum of the shares of right, of wrong and of unknown samples accepted at a cut.

    A cut that the share of unknown samples dictates ``moves``: one more unknown sample below it moves it down, by
    the slope of accepted known against unknown samples, taken over one standard error to either side.
    """
    at = int(np.asarray(cut(table)))
    accepted = (np.arange(1, len(table.threshold)) <= at).astype(np.float64)
    if moves:
        share = table.unknown / table.n_unknown
        error = np.sqrt(max(share[at] * (1.0 - share[at]), 1.0 / table.n_unknown) / table.n_unknown)
        ends = np.searchsorted(share, [share[at] - error, share[at] + error])
        low, high = np.clip(ends, 0, len(share) - 1)
        known = (right * table.correct + wrong * (table.known - table.correct)) / table.n_known
        unknown = -float((known[high] - known[low]) / max(share[high] - share[low], 1.0 / table.n_unknown))
    return Influence(right * accepted, wrong * accepted, unknown * accepted)


def of_average_precision(table: RankTable, positive: Side = "unknown") -> Influence:
    """Influence on average precision: a positive raises the precision there and after it, a negative lowers it."""
    gained, hits, false_alarms = detections(table, positive)
    alarms, total = np.maximum(hits + false_alarms, 1e-300), gained.sum()
    # The alarms of a cut include all above it, for known samples all below it.
    way = slice(None) if positive == "unknown" else slice(None, None, -1)
    up, down = (np.cumsum((gained * part / alarms**2)[way])[way] for part in (false_alarms, -hits))
    mean = float(gained @ (hits / alarms)) / total
    of_positive, of_negative = (hits / alarms - mean + up) / total, down / total
    known, unknown = (of_negative, of_positive) if positive == "unknown" else (of_positive, of_negative)
    return Influence(known, known, unknown)


def of_decision(coded: Coded, threshold: float, formula: Callable[[DecisionCounts], Floats]) -> tuple[Floats, Floats]:
    """Influence of each known and each unknown sample: what it adds to each count, times the slope in that count."""
    accepted, kind = coded.accepted_at(threshold), coded.samples.kind
    is_unknown, right = kind == UNKNOWN_KIND, accepted & (kind == CORRECT)
    true, pred, size = coded.true, coded.pred, coded.class_size
    hits, alarms = (np.bincount(label, minlength=len(size)) for label in (true[right], pred[accepted]))
    added = {
        "correct": right,
        "accepted_known": accepted & ~is_unknown,
        "accepted_unknown": accepted & is_unknown,
        "precision_sum": accepted * (right - ratio(hits, alarms)[pred]) * (1.0 / np.maximum(alarms, 1))[pred],
        "recall_sum": ~is_unknown * (right - ratio(hits, size)[true]) / np.maximum(size, 1)[true],
        "fallout_sum": (accepted & ~right) / np.maximum(len(kind) - size, 1)[pred],
    }
    counts = counts_at(coded, threshold)
    value = np.zeros(len(kind))
    for field, adds in added.items():
        step = 1e-6 if field.endswith("_sum") else 1.0  # one sample less: with one more there may be none rejected
        less = formula(counts._replace(**{field: getattr(counts, field) - step}))
        value += adds * (float(formula(counts) - less) / step)
    return value[~is_unknown], value[is_unknown]
