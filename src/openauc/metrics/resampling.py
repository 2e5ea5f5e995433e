"""The bootstrap on tables of bounded size: samples of a kind that no metric tells apart are drawn together.

How often a resample draws from a cell of samples depends on their number only, so its cost grows with the number of
cells and of replicates, and not with that of the samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from openauc.metrics._kernel import CORRECT, UNKNOWN_KIND, Counts, Ints, RankTable
from openauc.metrics.counts import Coded, DecisionCounts, accepted_at, counts_by_class
from openauc.metrics.curve import Floats

MOST_COLUMNS = 256
MOST_CELLS = 4096
_DRAWN_ONE_BY_ONE = 256  # samples of a side, at most
_QUANTILES = 4096
_SMALL = 64  # from here on a Poisson number is normal but for its skewness


def generator(seed: int) -> np.random.Generator:
    """The fast generator of all resamples."""
    return np.random.Generator(np.random.SFC64(seed))


def resample(weight: Counts, size: float, n_replicates: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Weight of each cell in resamples of ``size`` samples, (cells, replicates); each total is that of ``weight``.

    Few samples are drawn one by one. Of many, the number drawn from each cell is Poisson, and the numbers are then
    scaled to the right total: the same distribution up to 1 / size.
    """
    n = max(round(size), 1)
    draw = _one_by_one if n <= _DRAWN_ONE_BY_ONE else _cell_by_cell
    return draw(weight, n, n_replicates, rng)


def _one_by_one(weight: Counts, n: int, n_replicates: int, rng: np.random.Generator) -> NDArray[np.float32]:
    total = float(weight.sum())
    places = n if weight.dtype.kind == "i" else 1 << 16
    owner = np.searchsorted(np.cumsum(weight), (np.arange(places) + 0.5) * total / places)
    cell = owner[rng.integers(0, places, (n, n_replicates), dtype=np.uint16)]
    counts = np.bincount((cell * n_replicates + np.arange(n_replicates)).ravel(), minlength=len(weight) * n_replicates)
    return np.asarray(counts.reshape(len(weight), n_replicates) * (total / n), dtype=np.float32)


def _cell_by_cell(weight: Counts, n: int, n_replicates: int, rng: np.random.Generator) -> NDArray[np.float32]:
    total = float(weight.sum())
    drawn = np.zeros((len(weight), n_replicates), dtype=np.float32)
    held = np.flatnonzero(weight)
    chosen = rng.integers(0, _QUANTILES, (len(held), n_replicates), dtype=np.uint16)
    for cell, mean, quantile in zip(held, (weight[held] * (n / total)).tolist(), chosen, strict=True):
        _poisson_quantiles(mean).take(quantile, out=drawn[cell], mode="clip")
    drawn *= np.float32(total) / drawn.sum(axis=0)
    return drawn


@cache
def _middles() -> Floats:
    return (np.arange(_QUANTILES) + 0.5) / _QUANTILES


@cache
def _normal_quantiles() -> Floats:
    z = np.array([NormalDist().inv_cdf(share) for share in _middles()])
    return np.asarray(z / z.std())


@lru_cache(maxsize=1024)
def _poisson_quantiles(mean: float) -> NDArray[np.float32]:
    """Numbers that are all as likely, of a Poisson distribution."""
    if mean >= _SMALL:
        z = _normal_quantiles()
        return np.asarray(mean + np.sqrt(mean) * z + (z**2 - 1.0) / 6.0, dtype=np.float32)  # Cornish and Fisher
    count = np.arange(int(mean + 12.0 * np.sqrt(mean) + 16.0))
    log_factorial = np.concatenate([[0.0], np.cumsum(np.log(count[1:]))])
    mass = np.exp(count * np.log(mean) - mean - log_factorial) if mean > 0.0 else (count == 0)
    return np.searchsorted(np.cumsum(mass), _middles()).astype(np.float32)


def coarse(table: RankTable, keep: Sequence[int] = ()) -> RankTable:
    """The table at so many columns that the steps between them, of samples and of misranked pairs, are small."""
    if len(table.threshold) <= MOST_COLUMNS:
        return table
    known, unknown = np.diff(table.known, prepend=0), np.diff(table.unknown, prepend=0)
    misranked = np.cumsum(unknown * (table.n_known - table.known) + known * table.unknown)
    progress = np.zeros(len(table.threshold))
    for part in (table.known, table.unknown, misranked):
        progress += part / max(float(part[-1]), 1.0)
    spread = np.searchsorted(progress, np.linspace(0.0, progress[-1], MOST_COLUMNS - len(keep)))
    return table.columns(np.unique(np.concatenate([[0, len(progress) - 1], keep, spread]).astype(np.int64)))


def resampled_table(table: RankTable, sizes: tuple[float, float], n_replicates: int, seed: int) -> RankTable:
    """Replicates of a table, (replicates, columns)."""
    rng = generator(seed)
    right, known, unknown = (np.diff(counts) for counts in (table.correct, table.known, table.unknown))
    cells = np.concatenate([right, known - right])
    drawn = resample(cells, sizes[0], n_replicates, rng)
    accepted = np.zeros((3, len(table.threshold), n_replicates), dtype=np.float32)
    np.cumsum(drawn[: len(right)], axis=0, out=accepted[1, 1:])
    np.cumsum(drawn[: len(right)] + drawn[len(right) :], axis=0, out=accepted[0, 1:])
    if sizes[1]:
        np.cumsum(resample(unknown, sizes[1], n_replicates, rng), axis=0, out=accepted[2, 1:])
    return RankTable(table.threshold, *(counts.T for counts in accepted))


def resampled_column(
    table: RankTable, column: int, accepted: float | None, sizes: tuple[float, float], n_replicates: int, seed: int
) -> RankTable:
    """Replicates of two columns only: one of the table, and the last.

    The column is held, or, where it may accept the share ``accepted`` of the unknown samples, found again: the first
    unknown sample too many is an order statistic, whose place among the samples is a beta variable.
    """
    rng = generator(seed)
    n_known, n_unknown = (round(size) for size in sizes)
    share = table.unknown / table.n_unknown
    at = np.full(n_replicates, column)
    if accepted is None:
        unknown = rng.binomial(n_unknown, share[column], n_replicates) / n_unknown
    else:
        most = int(np.floor(accepted * n_unknown * (1.0 + 1e-12)))
        if most >= n_unknown:
            place, at = np.ones(n_replicates), np.full(n_replicates, len(share) - 1)
        else:
            place = rng.beta(most + 1, n_unknown - most, n_replicates)
            at = np.searchsorted(share, place, side="left") - 1
        # Those before it are spread evenly up to its place.
        unknown = rng.binomial(most, np.minimum(share[at] / place, 1.0)) / n_unknown
    right, known = table.correct / table.n_known, table.known / table.n_known
    is_known = rng.binomial(n_known, np.minimum(known[at], 1.0))
    is_right = rng.binomial(is_known, right[at] / np.maximum(known[at], 1e-300)) / n_known

    def columns(part: Floats, total: Counts) -> Floats:
        return np.stack([part * total, np.full(n_replicates, float(total))], axis=1)

    return RankTable(
        table.threshold[[0, -1]],
        columns(is_known / n_known, table.n_known),
        columns(is_right, table.n_known),
        columns(unknown, table.n_unknown),
    )


def resampled_counts(coded: Coded, threshold: float, n_replicates: int, seed: int, *, by_class: bool) -> DecisionCounts:
    """Replicates of the counts at a threshold.

    ``by_class=False`` pools the classes: the sums over them then mean nothing. A wrong sample is drawn as a pair
    (class, predicted class); where there are too many such pairs, the two are drawn apart, and only their number is
    the same.
    """
    rng = generator(seed)
    samples = coded.samples
    n_classes = len(coded.classes) if by_class else 1
    true, pred = (labels if by_class else np.minimum(labels, 0) for labels in (coded.true, coded.pred))
    accepted = accepted_at(coded, threshold)
    kind = samples.kind

    def cells(label: Ints, chosen: NDArray[np.bool_], n: int = n_classes) -> Counts:
        weight = None if samples.weight is None else samples.weight[chosen]
        return np.bincount(label[chosen], weights=weight, minlength=n)

    right = cells(true, accepted & (kind == CORRECT))
    missed = cells(true, ~accepted & (kind != UNKNOWN_KIND))
    is_wrong = accepted & (kind != CORRECT) & (kind != UNKNOWN_KIND)
    pairs = np.unique(true[is_wrong] * n_classes + pred[is_wrong]) if by_class else np.zeros(1, dtype=np.int64)
    apart = len(pairs) > MOST_CELLS
    if apart:
        wrong_true = np.arange(n_classes)
        wrong = cells(true, is_wrong)
    else:
        wrong_true = pairs // n_classes
        wrong = cells(np.searchsorted(pairs, true * n_classes + pred), is_wrong, len(pairs))
    drawn = resample(np.concatenate([right, missed, wrong]), samples.sizes[0], n_replicates, rng)
    right, missed, wrong = np.split(drawn, [n_classes, 2 * n_classes])
    class_size = right + missed
    for label, drawn_pairs in zip(wrong_true, wrong, strict=True):
        class_size[label] += drawn_pairs
    predicted = right.copy()
    if apart:
        by_pred = cells(pred, is_wrong)
        guesses = resample(by_pred, samples.sizes[0] * by_pred.sum() / samples.totals[0], n_replicates, rng)
        predicted += guesses * (wrong.sum(axis=0) / float(by_pred.sum()))
    else:
        for label, drawn_pairs in zip(pairs % n_classes, wrong, strict=True):
            predicted[label] += drawn_pairs
    taken = cells(pred, accepted & (kind == UNKNOWN_KIND))
    rejected = samples.totals[1] - taken.sum()
    drawn = resample(np.append(taken, rejected).astype(taken.dtype), samples.sizes[1], n_replicates, rng)
    taken = drawn[:-1]
    predicted += taken
    counts = counts_by_class(
        right.T,
        predicted.T,
        class_size.T,
        taken.sum(axis=0),
        samples.totals[1],
        counted=((class_size > 0.0) | (coded.class_size == 0)[:, None]).T if by_class else None,
    )
    return counts._replace(n_classes=len(coded.classes))
