"""Evidence that a sample is unknown: scores of one head, comparable between heads.

A head with fewer classes has other logits, so the same score means something else under another head. Evidence is
therefore standardised: by the mean and deviation that a score has, under the same head, on *correctly classified known
samples that the head was not trained on*. So a rejector learned from heads without the held-out classes can use the
evidence of the head that knows all classes. Heads are surer of some classes than of others, so some scores are used a
second time, after subtracting their usual value for the predicted class.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from openauc._validation import UNKNOWN
from openauc.features.classifier.heads import Head, affine
from openauc.features.classifier.scaling import Scaling
from openauc.features.scores._arrays import Array
from openauc.features.scores.base import Floats, Rows, Score
from openauc.features.scores.registry import SCORES

BY_CLASS = "_by_class"  # suffix of the name of a score whose usual value for the predicted class was subtracted
USUAL_ROWS = 5.0  # weight, in rows, of the mean of all classes in the usual value of one class


class EvidenceScale(NamedTuple):
    """Mean and deviation (m + b,) of m scores, on correctly classified known samples.

    The b scores in ``columns`` are used a second time, after subtracting ``usual``: (C, b) values by predicted class.
    """

    mean: Floats
    deviation: Floats
    columns: Rows = np.empty(0, np.int64)
    usual: Floats = np.empty((1, 0))

    def __call__(self, raw: Array, predicted: Array) -> Array:
        """Evidence (n, m + b) of scores (n, m) of samples with these predicted classes."""
        xp = raw.__array_namespace__()
        if len(self.columns):
            some = xp.stack([raw[:, int(column)] for column in self.columns], axis=1)
            raw = xp.concat([raw, some - xp.take(xp.asarray(self.usual), predicted, axis=0)], axis=1)
        return (raw - xp.asarray(self.mean)) / xp.asarray(self.deviation)


def standardise(
    raw: Floats, predicted: Rows, correct: NDArray[np.bool_], *, n_classes: int, columns: Sequence[int] = ()
) -> tuple[EvidenceScale, Floats]:
    """The scale of the correct samples among those with scores (n, m), and the evidence of all of them.

    A correct sample does not count in the usual value of its own class, since new samples do not either.
    """
    at = np.asarray(columns, np.int64)
    some, own = raw[:, at], np.where(correct[:, None], 1.0, 0.0)
    level = some[correct].mean(0) if correct.any() else np.zeros(len(at))
    count, total = np.zeros((n_classes, 1)), np.zeros((n_classes, len(at)))
    np.add.at(count, predicted, own)
    np.add.at(total, predicted, own * (some - level))
    others = (total[predicted] - own * (some - level)) / (count[predicted] - own + USUAL_ROWS)
    wide = np.concatenate([raw, some - others], axis=1)
    mean, deviation = np.zeros(wide.shape[1]), np.ones(wide.shape[1])
    if correct.any():
        used = wide[correct]
        mean, deviation = used.mean(0), used.std(0)
        varies = deviation > 1e-9 * np.maximum(np.abs(used).max(0), 1.0)
        deviation = np.where(varies, deviation, 1.0)
    return EvidenceScale(mean, deviation, at, total / (count + USUAL_ROWS)), (wide - mean) / deviation


def name_of(score: Any) -> str:
    """A name in ``SCORES``, or that of a score or function of one's own."""
    return score if isinstance(score, str) else getattr(score, "__name__", type(score).__name__)


class OutlierLogit(Score):
    """Log-odds of being one of the given outliers rather than a known sample, by logistic regression."""

    looks_at = "features"
    formula = "log-odds of an outlier"

    def fit(self, features: Any, logits: Any, y: Any) -> Self:
        """Learn from known samples and outliers (-1), both with the same total weight."""
        fitted = LogisticRegression(class_weight="balanced", max_iter=200)
        with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
            fitted.fit(features, y == UNKNOWN)
        self.weight, self.bias = fitted.coef_.astype(features.dtype), np.asarray(fitted.intercept_, np.float64)
        return self

    def __call__(self, features: Array, logits: Array) -> Array:
        return affine(features, self.weight, self.bias)[:, 0]


OUTLIERS = "outliers"  # name of the score that is learned from given outliers
KINDS: dict[str, type[Score]] = {**SCORES, OUTLIERS: OutlierLogit}  # all scores that a HeadWithScores may hold


@dataclass(frozen=True)
class HeadWithScores:
    """A fitted head, scores fitted to it, and the scaling of features; an estimator as head gets them unscaled."""

    head: Head
    scores: dict[str, Any]  # each a fitted Score, or a function of features and logits
    scaling: Scaling

    @classmethod
    def fit(cls, head: Head, X: NDArray[Any], y: Rows, scores: Sequence[Any], scaling: Scaling) -> HeadWithScores:
        """Fit scores to a fitted head, on samples it was fitted on and, with label -1, outliers."""
        known = y != UNKNOWN
        labels, features = y[known], scaling(X[known])
        logits = head.logits(features if head.scaled else X[known])
        fitted: dict[str, Any] = {}
        for score in scores:
            kind = {**KINDS, **SCORES}[score] if isinstance(score, str) else score
            fitted[name_of(score)] = new = kind() if isinstance(kind, type) else copy.deepcopy(kind)
            if score == OUTLIERS:
                new.fit(scaling(X), None, y)
            elif hasattr(new, "fit"):  # a function has nothing to fit
                new.fit(features if new.centred else scaling.uncentred(features), logits, labels)
        return cls(head, fitted, scaling)

    def __call__(self, X: Array) -> tuple[Array, Array]:
        """Scores (n, m), not standardised, and logits (n, C)."""
        features = self.scaling(X)
        logits = self.head.logits(features if self.head.scaled else X)
        return self.raw(features, logits), logits

    def raw(self, features: Array, logits: Array) -> Array:
        """Scores (n, m), not standardised, of scaled features and their logits."""
        xp = logits.__array_namespace__()
        by_centring = {True: features, False: self.scaling.uncentred(features)}
        raw = [score(by_centring[getattr(score, "centred", True)], logits) for score in self.scores.values()]
        return xp.stack([xp.asarray(one, dtype=xp.float64) for one in raw], axis=1)


@dataclass(frozen=True)
class Fold:
    """What a head without some classes says of n samples it was not trained on."""

    evidence: Floats  # (n, m), standardised
    known: NDArray[np.bool_]  # whether the sample's class is one of the head's
    correct: NDArray[np.bool_]  # known, and classified correctly
    label: Rows  # class among all classes; -1 for outliers
    weight: Floats
    gap: Floats = field(default_factory=lambda: np.empty(0))
    """(k,) by how much each raw score is higher for samples of held-out classes than for correct ones."""

    @cached_property
    def held_out(self) -> frozenset[int]:
        return frozenset(np.unique(self.label[~self.known]).tolist()) - {UNKNOWN}

    def pair_values(self, score: Floats) -> Floats:
        """For each unknown sample the share of known ones that are correct and rank below it; ties count half.

        Their mean is the fold's OpenAUC.
        """
        ranked = np.sort(score[self.correct])
        return np.asarray(below(ranked, score[~self.known]) / max(self.known.sum(), 1))


def below(ranked: Floats, values: Floats) -> Floats:
    """How many of the ranked numbers are below each value; ties count half."""
    return (np.searchsorted(ranked, values, "left") + np.searchsorted(ranked, values, "right")) / 2.0


class Task(NamedTuple):
    """What a head and scores are fitted on, and how."""

    X: NDArray[Any]
    y: Rows  # -1 for outliers
    weight: Floats | None
    make_head: Callable[[], Head]
    scores: Sequence[Any]
    by_class: Sequence[str]  # scores that are used a second time, less their usual value for the predicted class
    scaling: Scaling

    @property
    def pooled(self) -> NDArray[np.bool_]:
        """(m,) which scores depend on the number of all samples rather than on those of a class."""
        return np.array([bool(getattr(KINDS.get(name_of(score), score), "pooled", False)) for score in self.scores])

    @property
    def names(self) -> list[str]:
        """Names of the columns of evidence."""
        return [*map(name_of, self.scores), *(name + BY_CLASS for name in self.by_class)]

    @property
    def columns(self) -> list[int]:
        """Columns of the scores that are used a second time."""
        return [self.names.index(name) for name in self.by_class]


class Scored(NamedTuple):
    """Samples that a head was not trained on: their scores, and their predicted and true classes."""

    scores: Floats  # (n, m), not standardised; or (n,), of a rejector
    predicted: Rows
    label: Rows

    @property
    def correct(self) -> NDArray[np.bool_]:
        """(n,) whether the predicted class is the true one."""
        return np.asarray(self.predicted == self.label)

    def part(self, rows: slice) -> Scored:
        return Scored(self.scores[rows], self.predicted[rows], self.label[rows])


def fit_and_score(task: Task, train: Rows, test: Rows) -> Scored:
    """Fit a head and scores on the training rows, outliers (-1) among them, and score the test rows."""
    known = task.y[train] != UNKNOWN
    rows = train[known]
    classes, code = np.unique(task.y[rows], return_inverse=True)
    head = task.make_head()
    features = task.scaling(task.X[rows]) if head.scaled else task.X[rows]
    head.fit(features, code, None if task.weight is None else task.weight[rows])
    labels = np.full(len(train), UNKNOWN)
    labels[known] = code
    raw, logits = HeadWithScores.fit(head, task.X[train], labels, task.scores, task.scaling)(task.X[test])
    return Scored(raw, classes[logits.argmax(1)], task.y[test])


def fit_fold(task: Task, train: Rows, test: Rows) -> Fold:
    """The same where the training rows lack some classes, whose samples are then unknown."""
    raw, predicted, y = scored = fit_and_score(task, train, test)
    known, correct = np.isin(y, task.y[train]) & (y != UNKNOWN), scored.correct
    _, evidence = standardise(raw, predicted, correct, n_classes=int(task.y.max()) + 1, columns=task.columns)
    weight = np.ones(len(test)) if task.weight is None else task.weight[test]
    held_out = ~known & (y != UNKNOWN)
    gap = raw[held_out].mean(0) - raw[correct].mean(0) if correct.any() else np.zeros(raw.shape[1])
    return Fold(evidence, known, correct, y, weight, gap)
