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
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from openauc.features.classifier.evidence import BY_CLASS, OUTLIERS, Fold
from openauc.features.classifier.heads import Array, Floats
from openauc.features.scores.base import REJECTORS
from openauc.features.scores.registry import SCORES
from openauc.intervals import Interval

Rows = NDArray[np.int64]

AVERAGE = ("max_logit", "distance", "relative_mahalanobis_pp")
"""Scores of the fixed average; one looks at the logits, one at samples, one at classes."""
CONFIDENCE = ("max_logit", "entropy", "gen")
"""Scores that come once more as evidence, less what is usual for the predicted class."""
EVIDENCE = (
    "max_logit",
    "energy",
    "entropy",
    "margin",
    "gen",
    "knn",
    "distance",
    "class_mean",
    "relative_mahalanobis_pp",
    *(name + BY_CLASS for name in CONFIDENCE),
)
"""What the learned rejector looks at."""
BASES = ("max_logit", "entropy", "distance", "class_mean")
"""Scores that the learned rejector may be shrunk toward in place of the average."""
BY_FAR = 2.0
"""Standard errors over held-out classes that one rejector must be ahead of another to replace it."""

CLIP = 8.0
"""Evidence further than this many deviations from a usual known sample says nothing more, a distance excepted."""
KNOTS = (-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
RIDGE = 1e-3
MOST_ROWS = 20_000
HALF_AT = 8.0
"""Number of known classes at which the base and what was learned weigh the same."""


class Rejector:
    """Evidence (n, m) -> (n,) open-set scores, higher = more unknown; ``names`` says what the columns are.

    Evidence of several scores is cut at :data:`CLIP`, so that none outvotes the others. What a distance has beyond that
    is added as it is: a sample far from everything is unknown, whatever the logits say.
    """

    names: tuple[str, ...]
    title: str

    def __call__(self, evidence: Array) -> Array:
        """(n,) scores."""
        if len(self.names) == 1:
            return evidence[:, 0]
        xp = evidence.__array_namespace__()
        score = self._combine(xp.clip(evidence, min=-CLIP, max=CLIP))
        if "distance" not in self.names:
            return score
        beyond = evidence[:, self.names.index("distance")] - CLIP
        return score + xp.where(beyond > 0, beyond, xp.zeros_like(beyond))

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
    r"""Additive function of the evidence, shrunk toward a simple rule, the base.

    .. math:: r(e) = w\,b(e) + (1 - w)\,\sum_k f_k(e_k), \qquad w = \frac{8}{8 + C}

    with piecewise linear :math:`f_k` and b the mean of some of the scores; both terms are standardised on correctly
    classified known samples. With few known classes C, what held-out classes teach is unreliable, and the base leads.

    Parameters
    ----------
    n_classes
        C, the number of known classes.
    names
        What it looks at.
    base
        Scores whose mean is the base.
    max_ofpr
        Learn to rank the unknown samples that come first, up to this share of them.
    """

    title = "learned"
    weight: Floats

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
    def learn(cls, folds: Sequence[Fold], *, seed: int = 0, **how: Any) -> Learned:
        """Learned from folds whose evidence has the columns ``names``; ``how`` are the parameters of the class."""
        return cls(**how)._learn(*_examples(folds, np.random.RandomState(seed)))

    def _learn(self, evidence: Floats, unknown: NDArray[np.bool_], weight: Floats) -> Learned:
        evidence = np.clip(evidence, -CLIP, CLIP)
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
        self.base_scale = _moments(self._base(known))
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

    def _base(self, evidence: Array) -> Array:
        columns = [self.names.index(name) for name in self.base]
        xp = evidence.__array_namespace__()
        return xp.mean(xp.stack([evidence[:, column] for column in columns], axis=1), axis=1)

    def _combine(self, evidence: Array) -> Array:
        (learned_mean, learned_deviation), (mean, deviation) = self.learned_scale, self.base_scale
        learned = (self._additive(evidence) - learned_mean) / learned_deviation
        return self.base_weight * (self._base(evidence) - mean) / deviation + (1.0 - self.base_weight) * learned

    def contributions(self) -> tuple[Floats, Floats]:
        """Grid (k,) of standardised evidence, and (m, k) what each score adds there, less what it adds at 0."""
        grid = np.linspace(-4.0, CLIP, 49)
        share = (1.0 - self.base_weight) / self.learned_scale[1]
        zero = np.zeros((1, len(self.names)))
        curves = []
        for column, name in enumerate(self.names):
            evidence = np.repeat(zero, len(grid), 0)
            evidence[:, column] = grid
            curve = share * (self._additive(evidence) - self._additive(zero))
            if name in self.base:
                curve = curve + self.base_weight * grid / len(self.base) / self.base_scale[1]
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
    counts = [fold.correct | ~fold.known for fold in folds]
    evidence = np.concatenate([fold.evidence[here] for fold, here in zip(folds, counts, strict=True)])
    unknown = np.concatenate([~fold.known[here] for fold, here in zip(folds, counts, strict=True)])
    weight = np.concatenate([(fold.weight * _alike(fold))[here] for fold, here in zip(folds, counts, strict=True)])
    if len(evidence) > MOST_ROWS:
        rows = rng.permutation(len(evidence))[:MOST_ROWS]
        evidence, unknown, weight = evidence[rows], unknown[rows], weight[rows]
    return evidence, unknown, weight


def _alike(fold: Fold) -> Floats:
    """(n,) factors that make held-out classes count alike, whatever their sizes; their sum stays what it was."""
    factor = np.ones(len(fold.label))
    here = ~fold.known & (fold.label >= 0)  # outliers belong to no class
    if here.any():
        _, code, size = np.unique(fold.label[here], return_inverse=True, return_counts=True)
        factor[here] = here.sum() / len(size) / size[code]
    return factor


class Estimate(NamedTuple):
    """OpenAUC on held-out classes, with an interval over these classes and over the known ones beside them."""

    value: float
    interval: Interval
    deviations: Floats
    """(C,) what each held-out class adds to the deviation from the value; sums of their squares give variances."""


@dataclass(frozen=True)
class HeldOut:
    """A rejector's scores on folds it was not learned from."""

    folds: Sequence[Fold]
    scores: Sequence[Floats]

    def estimate(self, max_ofpr: float | None = None, level: float = 0.95) -> Estimate:
        """(Partial) OpenAUC; each class is an observation, since samples of one class are alike."""
        rows = [self._values(fold, score, max_ofpr) for fold, score in zip(self.folds, self.scores, strict=True)]
        total = sum(weight.sum() for _, weight, *_ in rows)
        mean = float(sum((value * weight).sum() for value, weight, *_ in rows) / total)
        n_classes = 1 + max(int(fold.label.max()) for fold in self.folds)
        held, known = np.zeros(n_classes), np.zeros(n_classes)
        for value, weight, label, rest, rest_label in rows:
            held += np.bincount(label, weight * (value - mean), n_classes) / total
            here = float((value * weight).sum() / weight.sum())
            share = weight.sum() / total / max(len(rest), 1)
            known += np.bincount(rest_label, share * (rest - here), n_classes)
        labels = np.unique(np.concatenate([label for _, _, label, *_ in rows]))
        error = float(np.sqrt(_variance(held[labels]) + _variance(known)))
        half = float(student.ppf(0.5 + level / 2, max(len(labels) - 1, 1))) * error
        return Estimate(mean, Interval(max(mean - half, 0.0), min(mean + half, 1.0)), held[labels])

    @staticmethod
    def _values(fold: Fold, score: Floats, max_ofpr: float | None) -> tuple[Floats, Floats, Rows, Floats, Rows]:
        """Of held-out samples their pair values, weights and classes; of known samples pair values and classes."""
        real = fold.label[~fold.known] >= 0
        unknown = score[~fold.known][real]
        weight = _alike(fold)[~fold.known][real] * _counted(unknown, max_ofpr)
        order = np.argsort(unknown, kind="stable")
        passed = np.append(0.0, np.cumsum(weight[order]))
        at = score[fold.known]
        low, high = (np.searchsorted(unknown[order], at, side) for side in ("left", "right"))
        above = 1.0 - (passed[low] + passed[high]) / 2.0 / passed[-1]
        label = fold.label[~fold.known][real]
        return fold.pair_values(score)[real], weight, label, fold.correct[fold.known] * above, fold.label[fold.known]


def _variance(deviations: Floats) -> float:
    n = int((deviations != 0).sum())
    return float((deviations**2).sum()) * n / (n - 1) if n > 1 else float(np.inf if len(deviations) == 1 else 0.0)


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


def worse_by_far(one: Estimate, other: Estimate, errors: float = BY_FAR) -> bool:
    """Whether ``one`` is below ``other`` by more than chance over the held-out classes would explain."""
    error = float(np.sqrt(_variance(one.deviations - other.deviations)))
    return one.value - other.value < -errors * error


class Choice(NamedTuple):
    """The rejector in use, its scores on held-out classes (None if none speaks for it), and what was compared."""

    rejector: Rejector
    held_out: HeldOut | None
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
    """Choose what rejects by what held-out classes say of it.

    Parameters
    ----------
    folds, names
        What heads without some classes say, and the names of the columns of evidence. Without folds nothing can be
        compared or learned.
    wanted
        ``"learned"``, ``"average"``, ``"selected"``, or the name of a score, which is then the only one looked at.
    n_classes
        Number of known classes.
    max_ofpr
        Aim at partial OpenAUC.
    misleading
        Held-out classes were seen by the encoder: they say nothing, and ``max_logit`` takes the place of any rule.
    seed
        Of the draw of samples to learn from.
    """
    average = tuple(name for name in AVERAGE if name in names)
    if misleading and wanted in REJECTORS:
        return Choice(Average(("max_logit",)), None, {})
    if not folds:
        # Two classes: logits tell only which of the two a sample is nearer to, so distance decides.
        single = ("distance",) if wanted in ("learned", "selected") else (wanted,)
        return Choice(Average(average if wanted == "average" else single), None, {})
    rules: dict[str, Rejector] = {name: Average((name,)) for name in names if name in SCORES or name == wanted}
    rules = {wanted: rules[wanted]} if wanted not in REJECTORS else rules
    if wanted in REJECTORS:
        rules["average"] = Average(average)
    held = {name: HeldOut(folds, [rule(e) for e in _evidence(folds, names, rule)]) for name, rule in rules.items()}
    estimates = {name: scores.estimate(max_ofpr) for name, scores in held.items()}
    chosen, note = wanted, None
    if wanted == "selected":
        chosen = max((name for name in estimates if name != "average"), key=lambda name: estimates[name].value)
    if wanted == "learned":
        # Outliers at hand have a score that is not one of SCORES.
        used = tuple(name for name in names if name in EVIDENCE or name == OUTLIERS)
        base = _best(estimates, "average", [name for name in BASES if name in estimates])
        shown = [replace(fold, evidence=e) for fold, e in zip(folds, _columns(folds, names, used), strict=True)]
        base_names = average if base == "average" else (base,)
        learn = partial(Learned.learn, n_classes=n_classes, names=used, base=base_names, max_ofpr=max_ofpr, seed=seed)
        rules["learned"], held["learned"] = learn(shown), held_out_scores(shown, learn)
        estimates["learned"] = held["learned"].estimate(max_ofpr)
        # A part of the curve tells of fewer samples, and what is learned for it is no surer than the others.
        errors = BY_FAR if max_ofpr is None else 0.0
        chosen = _best(estimates, "learned", ["average", *(name for name in BASES if name in estimates)], errors)
        if chosen != "learned":
            note = f"On held-out classes the learned rejector is below {chosen}, so {chosen} rejects."
    return Choice(rules[chosen], held[chosen], estimates, note)


def _best(estimates: Mapping[str, Estimate], default: str, others: Sequence[str], errors: float = BY_FAR) -> str:
    """The best of the others that the default is far below; else the default."""
    better = [name for name in others if worse_by_far(estimates[default], estimates[name], errors)]
    return max(better, key=lambda name: estimates[name].value, default=default)


def _columns(folds: Sequence[Fold], names: Sequence[str], chosen: Sequence[str]) -> list[Floats]:
    columns = [list(names).index(name) for name in chosen]
    return [fold.evidence[:, columns] for fold in folds]


def _evidence(folds: Sequence[Fold], names: Sequence[str], rule: Rejector) -> list[Floats]:
    return _columns(folds, names, rule.names)


Learn = Callable[[Sequence[Fold]], Callable[[Any], Any]]


def held_out_scores(folds: Sequence[Fold], learn: Learn) -> HeldOut:
    """Scores of each fold by what was learned from the others, without any sample that plays unknown in it."""
    groups: dict[frozenset[int], Callable[[Any], Any]] = {}
    scores = []
    for fold in folds:
        if fold.held_out not in groups:
            groups[fold.held_out] = learn([_without(other, fold.held_out) for other in folds if other is not fold])
        scores.append(groups[fold.held_out](fold.evidence))
    return HeldOut(folds, scores)


def _without(fold: Fold, classes: frozenset[int]) -> Fold:
    """The fold without pseudo-unknown samples of some classes."""
    kept = fold.known | ~np.isin(fold.label, list(classes))
    return Fold(fold.evidence[kept], fold.known[kept], fold.correct[kept], fold.label[kept], fold.weight[kept])
