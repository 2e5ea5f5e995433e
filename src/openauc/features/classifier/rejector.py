"""Rejectors: from the evidence of a sample to one open-set score, and their results on held-out classes.

The learned rejector minimises the ranking term of the paper's Eq. 15 with samples of held-out known classes as unknown
ones: these are to rank above *correctly classified* known samples. With the logistic surrogate and balanced weights
that is a weighted logistic regression. It is additive, with a piecewise linear function of each score, and heavily
regularised. Boosted trees, and the mean of both, were not better on the data that defaults were chosen on, and have
jumps where this one is continuous.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata
from scipy.stats import t as student
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from openauc.features.classifier.evidence import BY_CLASS, OUTLIERS, Fold
from openauc.features.scores._arrays import Array
from openauc.features.scores.base import REJECTORS, Floats, Rows
from openauc.features.scores.registry import SCORES
from openauc.intervals import Interval

AVERAGE = ("max_logit", "knn", "distance", "relative_mahalanobis_pp")
"""Scores of the fixed average: they use the logits, the training samples, and the classes."""
CONFIDENCE = ("max_logit", "entropy", "gen")
"""Scores that are evidence a second time, after their usual value for the predicted class was subtracted."""
_PLAIN = ("max_logit", "energy", "entropy", "margin", "gen", "knn", "distance", "class_mean", "relative_mahalanobis_pp")
EVIDENCE = (*_PLAIN, *(name + BY_CLASS for name in CONFIDENCE))
"""Evidence of the learned rejector."""
BASES = ("max_logit", "entropy", "distance", "class_mean")
"""Scores that the learned rejector may be shrunk toward in place of the average."""
BY_FAR = 2.0  # standard errors, over held-out classes, by which a rejector must be better to replace the default
CLIP = 8.0  # evidence is cut at this many deviations from a usual known sample, except for a distance
KNOTS = (-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
RIDGE, MOST_ROWS = 1e-3, 20_000
HALF_AT = 8.0  # number of known classes at which the base and the learned function have the same weight


class Rejector:
    """Evidence (n, m) -> (n,) open-set scores, higher = more unknown; ``names`` says what the columns are.

    Evidence of several scores is cut at :data:`CLIP`, so that none outvotes the others. The excess of a distance is
    added: a sample far from everything is unknown, whatever the logits say.
    """

    names: tuple[str, ...]
    title: str

    def __call__(self, evidence: Array) -> Array:
        if len(self.names) == 1:
            return evidence[:, 0]
        xp = evidence.__array_namespace__()
        score = self._combine(xp.clip(evidence, min=-CLIP, max=CLIP))
        if "distance" not in self.names:
            return score
        beyond = evidence[:, self.names.index("distance")] - CLIP
        return score + xp.where(beyond > 0, beyond, xp.zeros_like(beyond))

    def contributions(self, evidence: Floats) -> Floats:
        """(n, m) what each column adds to the score, compared with evidence 0, that of a usual known sample.

        The score is a sum of one function of each column, so they add up to it less the score of evidence 0.
        """
        columns = np.arange(len(self.names))
        alone = [self(np.where(columns == column, evidence, 0.0)) for column in columns]
        added: Floats = np.stack(alone, axis=1) - self(np.zeros((1, len(columns))))
        return added

    def curves(self) -> tuple[Floats, Floats]:
        """Grid (k,) of evidence, and (m, k) what each column adds there."""
        grid = np.linspace(-4.0, CLIP, 49)
        return grid, self.contributions(np.repeat(grid[:, None], len(self.names), axis=1)).T

    def _combine(self, evidence: Array) -> Array:
        raise NotImplementedError(f"{type(self).__name__} has no _combine(evidence); define it.")


class Average(Rejector):
    """Mean of standardised scores; of one score, that score."""

    def __init__(self, names: Sequence[str] = AVERAGE) -> None:
        self.names = tuple(names)
        self.title = self.names[0] if len(self.names) == 1 else "average"

    def _combine(self, evidence: Array) -> Array:
        return evidence.__array_namespace__().mean(evidence, axis=1)


class Learned(Rejector):
    r"""Additive function of the evidence, shrunk toward a simple one, the base.

    .. math:: r(e) = w\,b(e) + (1 - w)\,\sum_k f_k(e_k), \qquad w = \frac{8}{8 + C}

    with piecewise linear :math:`f_k` and b the mean of the scores ``base``; both terms are standardised on correctly
    classified known samples. With few known classes C, held-out classes are too few to learn from, and the base leads.
    With ``max_ofpr``, it learns to rank the unknown samples that come first, up to this share of them.
    """

    title = "learned"
    weight: Floats
    learned_scale: tuple[float, float]
    base_scale: tuple[float, float]

    def __init__(
        self,
        n_classes: int,
        names: Sequence[str] = EVIDENCE,
        base: Sequence[str] = AVERAGE,
        max_ofpr: float | None = None,
    ) -> None:
        self.names, self.base = tuple(names), tuple(base)
        self.base_weight = HALF_AT / (HALF_AT + n_classes)
        self.max_ofpr = max_ofpr

    @classmethod
    def learn(cls, folds: Sequence[Fold], *, seed: int = 0, **parameters: Any) -> Learned:
        """A rejector learned from folds whose evidence has the columns ``names``."""
        self = cls(**parameters)
        evidence, unknown, weight = _examples(folds, np.random.RandomState(seed))
        evidence = np.clip(evidence, -CLIP, CLIP)
        self._fit(evidence, unknown, weight)
        if self.max_ofpr is not None:
            # The pairs that count depend on the ranking itself: those of the unknown samples with the lowest scores. A
            # step may go too far, so the best one is kept.
            best, kept = -1.0, self.weight
            for _ in range(4):
                score = self._additive(evidence)
                known = np.sort(score[~unknown])
                ranked_below = np.searchsorted(known, score[unknown]) / max(len(known), 1)
                value = float(np.average(ranked_below, weights=_counted(score[unknown], self.max_ofpr)))
                best, kept = (value, self.weight) if value > best else (best, kept)
                last = np.quantile(score[unknown], min(1.0, 2.0 * self.max_ofpr))
                self._fit(evidence, unknown, np.where(unknown & (score > last), 0.05 * weight, weight))
            self.weight = kept
        self.learned_scale = _moments(self._additive(evidence[~unknown]))
        self.base_scale = _moments(self._base(evidence[~unknown]))
        return self

    def _fit(self, evidence: Floats, unknown: NDArray[np.bool_], weight: Floats) -> None:
        if unknown.all() or not unknown.any():  # no known sample was classified correctly
            self.weight = np.zeros(evidence.shape[1] * (1 + len(KNOTS)))
            return
        total = np.where(unknown, weight[unknown].sum(), weight[~unknown].sum())
        model = LogisticRegression(C=RIDGE, solver="newton-cholesky", max_iter=50)
        # Where no score varies there is nothing to converge to.
        with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
            model.fit(_hinges(evidence), unknown, sample_weight=weight / total * len(weight) / 2)
        self.weight = model.coef_[0]

    def _additive(self, evidence: Array) -> Array:
        xp = evidence.__array_namespace__()
        return xp.matmul(_hinges(evidence), xp.asarray(self.weight))

    def _base(self, evidence: Array) -> Array:
        columns = [self.names.index(name) for name in self.base]
        xp = evidence.__array_namespace__()
        return xp.mean(xp.stack([evidence[:, column] for column in columns], axis=1), axis=1)

    def _combine(self, evidence: Array) -> Array:
        (learned_mean, learned_deviation), (mean, deviation) = self.learned_scale, self.base_scale
        learned = (self._additive(evidence) - learned_mean) / learned_deviation
        return self.base_weight * (self._base(evidence) - mean) / deviation + (1.0 - self.base_weight) * learned


def _hinges(evidence: Array) -> Array:
    """(n, m (1 + knots)): each score, and what it has above each knot."""
    xp = evidence.__array_namespace__()
    zero = xp.zeros_like(evidence)
    above = (xp.where(evidence > knot, evidence - knot, zero) for knot in KNOTS)
    return xp.concat([evidence, *above], axis=1)


def _moments(values: Floats) -> tuple[float, float]:
    return (float(values.mean()), float(values.std()) or 1.0) if len(values) else (0.0, 1.0)


def _examples(folds: Sequence[Fold], rng: np.random.RandomState) -> tuple[Floats, NDArray[np.bool_], Floats]:
    """Evidence, whether unknown, and weight of samples; those that are misclassified do not count in OpenAUC."""
    counts = np.concatenate([fold.correct | ~fold.known for fold in folds])
    evidence = np.concatenate([fold.evidence for fold in folds])[counts]
    unknown = ~np.concatenate([fold.known for fold in folds])[counts]
    weight = np.concatenate([fold.weight * _alike(fold) for fold in folds])[counts]
    if len(evidence) > MOST_ROWS:
        rows = rng.permutation(len(evidence))[:MOST_ROWS]
        evidence, unknown, weight = evidence[rows], unknown[rows], weight[rows]
    return evidence, unknown, weight


def _alike(fold: Fold) -> Floats:
    """(n,) factors that give held-out classes of any size the same weight; the sum does not change."""
    factor = np.ones(len(fold.label))
    held_out = ~fold.known & (fold.label >= 0)  # outliers do not belong to a class
    if held_out.any():
        _, code, size = np.unique(fold.label[held_out], return_inverse=True, return_counts=True)
        factor[held_out] = held_out.sum() / len(size) / size[code]
    return factor


class Estimate(NamedTuple):
    """OpenAUC on held-out classes, with a 95 % interval over these classes and over the known ones beside them."""

    value: float
    interval: Interval
    deviations: Floats
    """(C,) contribution of each held-out class to the deviation from the value; for variances."""


def estimate(folds: Sequence[Fold], scores: Sequence[Floats], max_ofpr: float | None = None) -> Estimate:
    """(Partial) OpenAUC of the scores of each fold by a rejector that was not learned from it.

    Each class is one observation, since samples of one class are similar.
    """
    rows = [_values(fold, score, max_ofpr) for fold, score in zip(folds, scores, strict=True)]
    total = sum(weight.sum() for _, weight, *_ in rows)
    mean = float(sum((value * weight).sum() for value, weight, *_ in rows) / total)
    n_classes = 1 + max(int(fold.label.max()) for fold in folds)
    held, known = np.zeros(n_classes), np.zeros(n_classes)
    for value, weight, label, rest, rest_label in rows:
        held += np.bincount(label, weight * (value - mean), n_classes) / total
        here = float((value * weight).sum() / weight.sum())
        share = weight.sum() / total / max(len(rest), 1)
        known += np.bincount(rest_label, share * (rest - here), n_classes)
    labels = np.unique(np.concatenate([label for _, _, label, *_ in rows]))
    error = float(np.sqrt(_variance(held[labels]) + _variance(known)))
    half = float(student.ppf(0.975, max(len(labels) - 1, 1))) * error
    return Estimate(mean, Interval(max(mean - half, 0.0), min(mean + half, 1.0)), held[labels])


def _values(fold: Fold, score: Floats, max_ofpr: float | None) -> tuple[Floats, Floats, Rows, Floats, Rows]:
    """Pair values, weights and classes of held-out samples; pair values and classes of known samples."""
    real = fold.label[~fold.known] >= 0
    unknown, label = score[~fold.known][real], fold.label[~fold.known][real]
    weight = _alike(fold)[~fold.known][real] * _counted(unknown, max_ofpr)
    order = np.argsort(unknown, kind="stable")
    passed = np.append(0.0, np.cumsum(weight[order]))
    low, high = (np.searchsorted(unknown[order], score[fold.known], side) for side in ("left", "right"))
    above = 1.0 - (passed[low] + passed[high]) / 2.0 / passed[-1]
    return fold.pair_values(score)[real], weight, label, fold.correct[fold.known] * above, fold.label[fold.known]


def _variance(deviations: Floats) -> float:
    n = int((deviations != 0).sum())
    return float((deviations**2).sum()) * n / (n - 1) if n > 1 else float(np.inf if len(deviations) == 1 else 0.0)


def _counted(unknown: Floats, max_ofpr: float | None) -> Floats:
    """Weight of each unknown sample: 1 for the lowest scores up to the share, 0 beyond."""
    if max_ofpr is None:
        return np.ones(len(unknown))
    rank: Rows = rankdata(unknown, "ordinal") - 1
    return np.clip(max_ofpr * len(unknown) - rank, 0.0, 1.0)


def worse_by_far(one: Estimate, other: Estimate, errors: float = BY_FAR) -> bool:
    """Whether ``one`` is below ``other`` by more than chance over the held-out classes would explain."""
    error = float(np.sqrt(_variance(one.deviations - other.deviations)))
    return one.value - other.value < -errors * error


class Choice(NamedTuple):
    """The rejector in use, its scores on each fold, and the estimates that were compared; both empty without folds."""

    rejector: Rejector
    scores: Sequence[Floats]
    estimates: Mapping[str, Estimate]
    note: str | None = None


def choose_rejector(
    folds: Sequence[Fold],
    names: Sequence[str],
    wanted: str = "learned",
    *,
    n_classes: int,
    max_ofpr: float | None = None,
    misleading: bool = False,
    seed: int = 0,
) -> Choice:
    """Choose a rejector by its results on held-out classes.

    ``folds`` are observations of heads without some classes, ``names`` those of the columns of evidence. ``wanted`` is
    ``"learned"``, ``"average"``, ``"selected"``, or the name of a score, which is then the only candidate. If the
    encoder was trained on the held-out classes they are ``misleading``, and ``max_logit`` rejects.
    """
    average = tuple(name for name in AVERAGE if name in names)
    if misleading:
        return Choice(Average(("max_logit",)), [], {})
    if not folds:
        # Two classes: logits tell only which of the two a sample is nearer to, so distance decides.
        single = ("distance",) if wanted in ("learned", "selected") else (wanted,)
        return Choice(Average(average if wanted == "average" else single), [], {})
    candidates: dict[str, Rejector] = {wanted: Average((wanted,))}
    if wanted in REJECTORS:
        candidates = {name: Average((name,)) for name in names if name in SCORES}
        candidates["average"] = Average(average)

    def columns(chosen: Sequence[str]) -> list[Floats]:
        return [fold.evidence[:, [names.index(name) for name in chosen]] for fold in folds]

    scores = {name: [one(e) for e in columns(one.names)] for name, one in candidates.items()}
    estimates = {name: estimate(folds, found, max_ofpr) for name, found in scores.items()}
    chosen, note = wanted, None
    if wanted == "selected":
        chosen = max((name for name in estimates if name != "average"), key=lambda name: estimates[name].value)
    if wanted == "learned":
        # The score of given outliers is not one of SCORES.
        used = tuple(name for name in names if name in EVIDENCE or name == OUTLIERS)
        base = _best(estimates, "average", [name for name in BASES if name in estimates])
        shown = [replace(fold, evidence=e) for fold, e in zip(folds, columns(used), strict=True)]
        base_names = average if base == "average" else (base,)
        learn = partial(Learned.learn, n_classes=n_classes, names=used, base=base_names, max_ofpr=max_ofpr, seed=seed)
        candidates["learned"], scores["learned"] = learn(shown), held_out_scores(shown, learn)
        estimates["learned"] = estimate(folds, scores["learned"], max_ofpr)
        # A part of the curve has fewer samples, and the learned rejector is not more certain there than the others.
        errors = BY_FAR if max_ofpr is None else 0.0
        chosen = _best(estimates, "learned", ["average", *(name for name in BASES if name in estimates)], errors)
        if chosen != "learned":
            note = f"On held-out classes the learned rejector is below {chosen}, so {chosen} rejects."
    return Choice(candidates[chosen], scores[chosen], estimates, note)


def _best(estimates: Mapping[str, Estimate], default: str, others: Sequence[str], errors: float = BY_FAR) -> str:
    """The best of the others that the default is far below; else the default."""
    better = [name for name in others if worse_by_far(estimates[default], estimates[name], errors)]
    return max(better, key=lambda name: estimates[name].value, default=default)


def held_out_scores(folds: Sequence[Fold], learn: Callable[[Sequence[Fold]], Rejector]) -> list[Floats]:
    """Scores of each fold by a rejector learned from the others, without any sample of its held-out classes."""
    learned: dict[frozenset[int], Rejector] = {}
    for fold in folds:
        if fold.held_out not in learned:
            learned[fold.held_out] = learn([_without(other, fold.held_out) for other in folds if other is not fold])
    return [learned[fold.held_out](fold.evidence) for fold in folds]


def _without(fold: Fold, classes: frozenset[int]) -> Fold:
    """The fold without held-out samples of some classes."""
    kept = fold.known | ~np.isin(fold.label, list(classes))
    return Fold(fold.evidence[kept], fold.known[kept], fold.correct[kept], fold.label[kept], fold.weight[kept])
