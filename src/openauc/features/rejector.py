"""Rejectors: from the evidence of a sample to one open-set score, and what held-out classes say of them.

The learned rejector minimises the ranking term of the paper's Eq. 15 with samples of held-out known classes as unknown
ones: pseudo-unknown samples are to rank above *correctly classified* known ones. With the logistic surrogate and
balanced weights that is a weighted logistic regression. It is additive, with a piecewise linear function of each score,
and heavily regularised; boosted trees in its place, and the mean of both, were no better on the data defaults were
chosen on, and jump where this one is continuous.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from openauc.features.evidence import Fold
from openauc.features.heads import Array, Floats
from openauc.intervals import Interval

AVERAGE = ("max_logit", "knn", "relative_mahalanobis_pp")
"""Scores of the fixed average; one looks at the logits, one at samples, one at classes."""

EVIDENCE = (
    "max_logit",
    "energy",
    "entropy",
    "margin",
    "gen",
    "knn",
    "class_mean",
    "relative_mahalanobis_pp",
)
"""Scores the learned rejector looks at."""

KNOTS = (-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
RIDGE = 1e-3
MOST_ROWS = 20_000
HALF_AT = 8.0
"""Number of known classes at which the average and what was learned weigh the same."""


class Rejector:
    """Evidence (n, m) -> (n,) open-set scores, higher = more unknown; ``names`` says what the columns are."""

    names: tuple[str, ...]
    title: str

    def __call__(self, evidence: Array) -> Array:
        """(n,) scores."""
        raise NotImplementedError(f"{type(self).__name__} has no __call__(evidence); define it.")


class Average(Rejector):
    """Mean of standardised scores; of one score, that score."""

    def __init__(self, names: Sequence[str] = AVERAGE) -> None:
        self.names = tuple(names)
        self.title = "average" if self.names == AVERAGE else ", ".join(self.names)

    def __call__(self, evidence: Array) -> Array:
        """(n,) means."""
        return evidence.__array_namespace__().mean(evidence, axis=1)


class Learned(Rejector):
    r"""Additive function of the evidence, shrunk toward the fixed average.

    .. math:: r(e) = w\,\bar e + (1 - w)\,\sum_k f_k(e_k), \qquad w = \frac{8}{8 + C}

    with piecewise linear :math:`f_k`; both terms are standardised on correctly classified known samples. With few known
    classes C, what held-out classes teach is unreliable, and the average leads.

    Parameters
    ----------
    n_classes
        C, the number of known classes.
    max_ofpr
        Learn to rank the unknown samples that come first, up to this share of them.
    names
        Scores it looks at.
    """

    title = "learned"
    weight: Floats

    def __init__(self, n_classes: int, max_ofpr: float | None = None, names: Sequence[str] = EVIDENCE) -> None:
        self.names = tuple(names)
        self.average_weight = HALF_AT / (HALF_AT + n_classes)
        self.max_ofpr = max_ofpr

    @classmethod
    def learn(
        cls,
        folds: Sequence[Fold],
        *,
        n_classes: int,
        max_ofpr: float | None = None,
        seed: int = 0,
        names: Sequence[str] = EVIDENCE,
    ) -> Learned:
        """Learned from folds whose evidence has the columns ``names``."""
        return cls(n_classes, max_ofpr, names)._learn(*_examples(folds, np.random.RandomState(seed)))

    def _learn(self, evidence: Floats, unknown: NDArray[np.bool_], weight: Floats) -> Learned:
        self._fit(evidence, unknown, weight)
        if self.max_ofpr is not None:
            # Which pairs count depends on the ranking itself: the unknown samples that look most known. A step may
            # overshoot, so that others do then: the best one counts.
            best, kept = -1.0, self.weight
            for _ in range(4):
                score = self._additive(evidence)
                value = _partial(score[~unknown], score[unknown], self.max_ofpr)
                best, kept = (value, self.weight) if value > best else (best, kept)
                last = np.quantile(score[unknown], min(1.0, 2.0 * self.max_ofpr))
                self._fit(evidence, unknown, np.where(unknown & (score > last), 0.05 * weight, weight))
            self.weight = kept
        known = evidence[~unknown]
        self.learned_scale = _moments(self._additive(known))
        self.average_scale = _moments(self._average(known))
        return self

    def _fit(self, evidence: Floats, unknown: NDArray[np.bool_], weight: Floats) -> None:
        if unknown.all() or not unknown.any():  # no known sample was classified correctly
            self.weight = np.zeros(evidence.shape[1] * (1 + len(KNOTS)))
            return
        total = np.where(unknown, weight[unknown].sum(), weight[~unknown].sum())
        model = LogisticRegression(C=RIDGE, solver="newton-cholesky", max_iter=50)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # where no score varies there is nothing to converge to
            model.fit(_hinges(evidence), unknown, sample_weight=weight / total * len(weight) / 2)
        self.weight = model.coef_[0]

    def _additive(self, evidence: Array) -> Array:
        xp = evidence.__array_namespace__()
        return xp.matmul(_hinges(evidence), xp.asarray(self.weight))

    def _average(self, evidence: Array) -> Array:
        columns = [self.names.index(name) for name in AVERAGE]
        xp = evidence.__array_namespace__()
        return xp.mean(xp.stack([evidence[:, column] for column in columns], axis=1), axis=1)

    def __call__(self, evidence: Array) -> Array:
        """(n,) scores."""
        (learned_mean, learned_deviation), (mean, deviation) = self.learned_scale, self.average_scale
        learned = (self._additive(evidence) - learned_mean) / learned_deviation
        average = (self._average(evidence) - mean) / deviation
        return self.average_weight * average + (1.0 - self.average_weight) * learned

    def contributions(self) -> tuple[Floats, Floats]:
        """Grid (k,) of standardised evidence, and (m, k) what each score adds there, less what it adds at 0."""
        grid = np.linspace(-4.0, 8.0, 49)
        share = (1.0 - self.average_weight) / self.learned_scale[1]
        zero = np.zeros((1, len(self.names)))
        curves = []
        for column, name in enumerate(self.names):
            evidence = np.repeat(zero, len(grid), 0)
            evidence[:, column] = grid
            curve = share * (self._additive(evidence) - self._additive(zero))
            if name in AVERAGE:
                curve = curve + self.average_weight * grid / len(AVERAGE) / self.average_scale[1]
            curves.append(curve)
        return grid, np.stack(curves)


def _hinges(evidence: Array) -> Array:
    """(n, m (1 + knots)): each score, and what it has above each knot."""
    xp = evidence.__array_namespace__()
    zero = xp.zeros_like(evidence)
    above = (xp.where(evidence > knot, evidence - knot, zero) for knot in KNOTS)
    return xp.concat([evidence, *above], axis=1)


def _moments(values: Floats) -> tuple[float, float]:
    return (float(values.mean()), float(values.std()) or 1.0) if len(values) else (0.0, 1.0)


def _examples(folds: Sequence[Fold], rng: np.random.RandomState) -> tuple[Floats, NDArray[np.bool_], Floats]:
    """Evidence, whether unknown, and weight of the samples that count: OpenAUC loses misclassified ones anyway."""
    evidence = np.concatenate([fold.evidence[fold.correct | ~fold.known] for fold in folds])
    unknown = np.concatenate([~fold.known[fold.correct | ~fold.known] for fold in folds])
    weight = np.concatenate([fold.weight[fold.correct | ~fold.known] for fold in folds])
    if len(evidence) > MOST_ROWS:
        rows = rng.permutation(len(evidence))[:MOST_ROWS]
        evidence, unknown, weight = evidence[rows], unknown[rows], weight[rows]
    return evidence, unknown, weight


class Estimate(NamedTuple):
    """OpenAUC on held-out classes, with an interval over these classes."""

    value: float
    interval: Interval
    deviations: Floats
    """(C,) what each class adds to the deviation from the value; sums of their squares give variances."""


@dataclass(frozen=True)
class HeldOut:
    """A rejector's scores on folds it was not learned from."""

    folds: Sequence[Fold]
    scores: Sequence[Floats]

    def estimate(self, max_ofpr: float | None = None, level: float = 0.95) -> Estimate:
        """(Partial) OpenAUC, each held-out class an observation: samples of one class are alike."""
        values, weights, labels = [], [], []
        for fold, score in zip(self.folds, self.scores, strict=True):
            real = fold.label[~fold.known] >= 0  # outliers are in every fold, and belong to no class
            values.append(fold.pair_values(score)[real])
            weights.append(_counted(score[~fold.known][real], max_ofpr))
            labels.append(fold.label[~fold.known][real])
        value, weight, label = (np.concatenate(parts) for parts in (values, weights, labels))
        code = np.unique(label, return_inverse=True)[1]
        sums = np.bincount(code, weight)
        mean = float(np.average(value, weights=weight))
        deviations = np.bincount(code, weight * (value - mean)) / sums.sum()
        n = len(sums)
        error = float(np.sqrt((deviations**2).sum() * n / (n - 1))) if n > 1 else np.inf
        half = float(student.ppf(0.5 + level / 2, max(n - 1, 1))) * error
        return Estimate(mean, Interval(max(mean - half, 0.0), min(mean + half, 1.0)), deviations)


def _counted(unknown: Floats, max_ofpr: float | None) -> Floats:
    """Weight of each unknown sample: 1 for the lowest-scored up to the share, 0 beyond."""
    if max_ofpr is None:
        return np.ones(len(unknown))
    rank = np.empty(len(unknown))
    rank[np.argsort(unknown, kind="stable")] = np.arange(len(unknown))
    return np.clip(max_ofpr * len(unknown) - rank, 0.0, 1.0)


def _partial(known: Floats, unknown: Floats, max_ofpr: float) -> float:
    """Share of pairs in order, of the lowest-scored unknown samples up to a share of them."""
    below = np.searchsorted(np.sort(known), unknown) / max(len(known), 1)
    return float(np.average(below, weights=_counted(unknown, max_ofpr)))


def worse_by_far(one: Estimate, other: Estimate, errors: float = 2.0) -> bool:
    """Whether ``one`` is below ``other`` by more than chance over the held-out classes would explain."""
    difference = one.value - other.value
    deviations = one.deviations - other.deviations
    n = len(deviations)
    error = float(np.sqrt((deviations**2).sum() * n / max(n - 1, 1)))
    return difference < -errors * error


def instead_of_learned(estimates: Mapping[str, Estimate], errors: float = 2.0) -> str | None:
    """What rejects in place of a learned rejector: the average or the largest logit, if better by far; else None."""
    others = ("average", "max_logit")
    return next((other for other in others if worse_by_far(estimates["learned"], estimates[other], errors)), None)


Learn = Callable[[Sequence[Fold]], Callable[[Any], Any]]


def held_out_scores(folds: Sequence[Fold], learn: Learn) -> HeldOut:
    """Scores of each fold by what was learned from the others, without any sample that plays unknown in it."""
    groups: dict[frozenset[int], Callable[[Any], Any]] = {}
    scores = []
    for fold in folds:
        if fold.held not in groups:
            groups[fold.held] = learn([_without(other, fold.held) for other in folds if other is not fold])
        scores.append(groups[fold.held](fold.evidence))
    return HeldOut(folds, scores)


def _without(fold: Fold, classes: frozenset[int]) -> Fold:
    """The fold without pseudo-unknown samples of some classes."""
    kept = fold.known | ~np.isin(fold.label, list(classes))
    return Fold(fold.evidence[kept], fold.known[kept], fold.correct[kept], fold.label[kept], fold.weight[kept])


def of_columns(folds: Sequence[Fold], names: Sequence[str], chosen: Sequence[str]) -> list[Fold]:
    """Folds with some columns of their evidence, in that order."""
    columns = [names.index(name) for name in chosen]
    return [replace(fold, evidence=fold.evidence[:, columns]) for fold in folds]
