"""The bootstrap on tables of bounded size: samples that no metric tells apart form a cell and are drawn together."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from openauc import _validation as check
from openauc.metrics.counts import Coded, DecisionCounts, counts_by_class
from openauc.metrics.curve import Floats
from openauc.metrics.rank_table import Counts, RankTable, may_overflow
from openauc.metrics.samples import CORRECT, UNKNOWN_KIND, WRONG

MOST_CUTS = 256  # of a resampled table: fewer cuts change a bound by less than the chance in 2,000 replicates
MOST_CELLS = 1024  # confused pairs of classes that are drawn pair by pair
_DRAWN_ONE_BY_ONE = 256  # samples of a side, at most
_QUANTILES = 4096
_MIDDLES = (np.arange(_QUANTILES) + 0.5) / _QUANTILES
_SMALL = 64  # from this mean on, a Poisson number is normal but for its skewness


def generator(seed: int) -> np.random.Generator:
    """The fast generator of all resamples."""
    return np.random.Generator(np.random.SFC64(seed))


def resample(weight: Counts, size: float, n_replicates: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Weight of each cell in resamples of ``size`` samples, (cells, replicates); each total is that of ``weight``.

    Few samples are drawn one by one. Of many, the number drawn from each cell is Poisson, and the numbers are then
    scaled to the right total: the same distribution up to 1 / size.
    """
    n, total = max(round(size), 1), float(weight.sum())
    if n <= _DRAWN_ONE_BY_ONE:
        places = n if weight.dtype.kind == "i" else 1 << 16
        owner = np.searchsorted(np.cumsum(weight), (np.arange(places) + 0.5) * total / places)
        cell = owner[rng.integers(0, places, (n, n_replicates), dtype=np.uint16)] * n_replicates
        counts = np.bincount((cell + np.arange(n_replicates)).ravel(), minlength=len(weight) * n_replicates)
        return np.asarray(counts.reshape(len(weight), n_replicates) * (total / n), dtype=np.float32)
    drawn = np.zeros((len(weight), n_replicates), dtype=np.float32)
    held = np.flatnonzero(weight)
    chosen = rng.integers(0, _QUANTILES, (len(held), n_replicates), dtype=np.uint16)
    for at, mean, quantile in zip(held, (weight[held] * (n / total)).tolist(), chosen, strict=True):
        _poisson_quantiles(mean).take(quantile, out=drawn[at], mode="clip")
    drawn *= np.float32(total) / drawn.sum(axis=0)
    return drawn


@cache
def _normal_quantiles() -> Floats:
    z = np.array([NormalDist().inv_cdf(share) for share in _MIDDLES])
    return np.asarray(z / z.std())


@lru_cache(maxsize=1024)
def _poisson_quantiles(mean: float) -> NDArray[np.float32]:
    """4,096 equally likely quantiles of Poisson(mean)."""
    if mean >= _SMALL:
        z = _normal_quantiles()
        return np.asarray(mean + np.sqrt(mean) * z + (z**2 - 1.0) / 6.0, dtype=np.float32)  # Cornish and Fisher
    count = np.arange(int(mean + 12.0 * np.sqrt(mean) + 16.0))
    log_factorial = np.concatenate([[0.0], np.cumsum(np.log(count[1:]))])
    mass = np.exp(count * np.log(mean) - mean - log_factorial) if mean > 0.0 else (count == 0)
    return np.searchsorted(np.cumsum(mass), _MIDDLES).astype(np.float32)


def coarse(table: RankTable, keep: Sequence[int] = ()) -> RankTable:
    """The table at a few cuts, chosen so that few samples and few misranked pairs lie between neighbours."""
    if len(table.threshold) <= MOST_CUTS:
        return table
    known, unknown = np.diff(table.known, prepend=0), np.diff(table.unknown, prepend=0)
    if may_overflow(table.known, table.unknown):
        known, unknown = known.astype(np.float64), unknown.astype(np.float64)
    misranked = np.cumsum(unknown * (table.n_known - table.known) + known * table.unknown)
    parts = (table.known, table.unknown, misranked)
    progress = np.asarray(sum(part / max(float(part[-1]), 1.0) for part in parts))
    spread = np.searchsorted(progress, np.linspace(0.0, progress[-1], MOST_CUTS - len(keep)))
    return table.cuts(np.unique(np.concatenate([[0, len(progress) - 1], keep, spread]).astype(np.int64)))


def resampled_table(table: RankTable, sizes: tuple[float, float], n_replicates: int, seed: int) -> RankTable:
    """Replicates of a table, (replicates, cuts)."""
    rng = generator(seed)
    right, known, unknown = (np.diff(counts) for counts in (table.correct, table.known, table.unknown))
    cells = np.maximum(np.concatenate([right, known - right]), 0)  # a sum of weights may round to less than its part
    drawn = resample(cells, sizes[0], n_replicates, rng)
    accepted = np.zeros((3, len(table.threshold), n_replicates), dtype=np.float32)
    np.cumsum(drawn[: len(right)], axis=0, out=accepted[1, 1:])
    np.cumsum(drawn[: len(right)] + drawn[len(right) :], axis=0, out=accepted[0, 1:])
    if sizes[1]:
        np.cumsum(resample(unknown, sizes[1], n_replicates, rng), axis=0, out=accepted[2, 1:])
    return RankTable(table.threshold, *(counts.T for counts in accepted))


def resampled_cut(
    table: RankTable, cut: int, accepted: float | None, sizes: tuple[float, float], n_replicates: int, seed: int
) -> RankTable:
    """Replicates of one cut and of the last; given the share ``accepted`` that dictates it, each finds its own cut."""
    rng = generator(seed)
    n_known, n_unknown = (round(size) for size in sizes)
    share = table.unknown / table.n_unknown
    at = np.full(n_replicates, cut)
    if accepted is None:
        unknown = rng.binomial(n_unknown, share[cut], n_replicates) / n_unknown
    else:
        most = int(check.at_most(accepted, n_unknown))
        if most >= n_unknown:
            place, at = np.ones(n_replicates), np.full(n_replicates, len(share) - 1)
        else:  # the first unknown sample too many is an order statistic
            place = rng.beta(most + 1, n_unknown - most, n_replicates)
            at = np.searchsorted(share, place, side="left") - 1
        # Those before it are spread evenly up to its place.
        unknown = rng.binomial(most, np.minimum(share[at] / place, 1.0)) / n_unknown
    right, known = table.correct / table.n_known, table.known / table.n_known
    is_known = rng.binomial(n_known, np.minimum(known[at], 1.0))
    is_right = rng.binomial(is_known, right[at] / np.maximum(known[at], 1e-300)) / n_known

    def with_last(part: Floats, total: Counts) -> Floats:
        return np.stack([part * total, np.full(n_replicates, float(total))], axis=1)

    known, right = with_last(is_known / n_known, table.n_known), with_last(is_right, table.n_known)
    return RankTable(table.threshold[[0, -1]], known, right, with_last(unknown, table.n_unknown))


def resampled_totals(
    counts: DecisionCounts, cut: int, sizes: tuple[float, float], n_replicates: int, seed: int
) -> DecisionCounts:
    """Replicates of the counts at a cut, classes pooled; the sums over classes are 0."""
    rng = generator(seed)
    correct, known, unknown = (float(np.asarray(part)[cut]) for part in counts[3:6])
    # Sums of weights may round to a little less than their parts.
    of_known = np.maximum([correct, known - correct, float(np.asarray(counts.n_known)) - known], 0.0)
    of_unknown = np.maximum([unknown, float(np.asarray(counts.n_unknown)) - unknown], 0.0)
    (n_known, n_unknown), shares = map(round, sizes), of_known / of_known.sum()
    right, wrong, _ = rng.multinomial(n_known, shares, n_replicates).T * (of_known.sum() / n_known)
    taken = rng.binomial(n_unknown, of_unknown[0] / of_unknown.sum(), n_replicates) * (of_unknown.sum() / n_unknown)
    return DecisionCounts(*counts[:3], right, right + wrong, taken, *np.zeros((3, n_replicates)))


def resampled_counts(coded: Coded, threshold: float, n_replicates: int, seed: int) -> DecisionCounts:
    """Replicates of the counts at a threshold; a wrong sample is drawn as a pair (class, predicted class)."""
    rng = generator(seed)
    samples, n_classes, kind = coded.samples, len(coded.classes), coded.samples.kind
    accepted = coded.accepted_at(threshold)
    is_wrong = accepted & (kind == WRONG)
    hits = coded.tally(coded.true, accepted & (kind == CORRECT))
    missed = coded.tally(coded.true, ~accepted & (kind != UNKNOWN_KIND))
    guessed = coded.tally(coded.pred, is_wrong)
    pair = coded.true * n_classes + coded.pred
    pairs = np.unique(pair[is_wrong])
    apart = len(pairs) > MOST_CELLS  # then only the numbers of the two agree
    wrong_true = np.arange(n_classes) if apart else pairs // n_classes
    mistaken = coded.tally(coded.true if apart else np.searchsorted(pairs, pair), is_wrong, len(wrong_true))
    drawn = resample(np.concatenate([hits, missed, mistaken]), samples.sizes[0], n_replicates, rng)
    right, class_size, wrong = np.split(drawn, [n_classes, 2 * n_classes])
    class_size += right
    for label, of_pair in zip(wrong_true, wrong, strict=True):
        class_size[label] += of_pair
    predicted = right.copy()
    if apart:
        n_wrong = max(samples.sizes[0] * (float(guessed.sum()) / samples.totals[0]), 1.0)
        predicted += resample(guessed, n_wrong, n_replicates, rng) * (wrong.sum(axis=0) / float(guessed.sum()))
    else:
        for label, of_pair in zip(pairs % n_classes, wrong, strict=True):
            predicted[label] += of_pair
    by_class = coded.tally(coded.pred, accepted & (kind == UNKNOWN_KIND))
    of_unknown = np.append(by_class, by_class.dtype.type(samples.totals[1]) - by_class.sum())
    taken = resample(of_unknown, samples.sizes[1], n_replicates, rng)[:-1]
    predicted += taken
    counted = ((class_size > 0.0) | (coded.class_size == 0)[:, None]).T
    return counts_by_class(right.T, predicted.T, class_size.T, taken.sum(axis=0), samples.totals[1], counted)
