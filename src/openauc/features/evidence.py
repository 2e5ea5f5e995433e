"""Evidence that a sample is unknown: scores of one head, comparable between heads.

A head with fewer classes has other logits, so the same score means something else under another head. Evidence is
therefore standardised: by the mean and deviation a score has, under the same head, on *correctly classified known
samples the head was not trained on*. So a rejector learned from heads without the held-out classes can look at the
evidence of the head that knows them all.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from openauc._validation import UNKNOWN
from openauc.features.base import Score
from openauc.features.heads import Array, Floats, Head, affine
from openauc.features.scores import SCORES, make_score

FARTHEST = 8.0
"""Evidence further than this many deviations from a usual known sample says nothing more."""


class Scale(NamedTuple):
    """Mean and deviation of each score on correctly classified known samples."""

    mean: Floats
    deviation: Floats

    @classmethod
    def of(cls, raw: Floats) -> Scale:
        """From scores (n, m) of such samples; what does not vary is left as it is."""
        if not len(raw):
            return cls(np.zeros(raw.shape[1]), np.ones(raw.shape[1]))
        deviation = raw.std(0)
        floor = 1e-9 * np.maximum(np.abs(raw).max(0), 1.0)
        return cls(raw.mean(0), np.where(deviation > floor, deviation, 1.0))

    def __call__(self, raw: Array) -> Array:
        """Evidence (n, m), cut at :data:`FARTHEST`."""
        xp = raw.__array_namespace__()
        standard = (raw - xp.asarray(self.mean)) / xp.asarray(self.deviation)
        return xp.clip(standard, min=-FARTHEST, max=FARTHEST)


def name_of(score: Any) -> str:
    """A name in ``SCORES``, or that of a score or function of one's own."""
    return score if isinstance(score, str) else getattr(score, "__name__", type(score).__name__)


class _Function(Score):
    """A function of features and logits, as a score."""

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        self.function = function

    def __call__(self, features: Array, logits: Array) -> Array:
        return np.asarray(self.function(features, logits), np.float64)


class OutlierLogit(Score):
    """Log-odds of being one of the outliers at hand rather than a known sample, by logistic regression."""

    fits = True
    looks_at = "features"
    formula = "log-odds of an outlier"
    weight: NDArray[Any]
    bias: Floats

    def fit_outliers(self, features: NDArray[Any], outliers: NDArray[Any]) -> OutlierLogit:
        """Learn from known samples and outliers, both sides of the same weight."""
        fitted = LogisticRegression(class_weight="balanced", max_iter=200)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            fitted.fit(np.concatenate([features, outliers]), np.arange(len(features) + len(outliers)) >= len(features))
        self.weight, self.bias = fitted.coef_.astype(features.dtype), np.asarray(fitted.intercept_, np.float64)
        return self

    def __call__(self, features: Array, logits: Array) -> Array:
        """(n,) scores; logits are not looked at."""
        return affine(features, self.weight, self.bias)[:, 0]


OUTLIERS = "outliers"
"""Name of the score that outliers at hand add to the others."""
KINDS: dict[str, type[Score]] = {**SCORES, OUTLIERS: OutlierLogit}
"""All scores that an observer may hold."""


def _new(score: Any) -> Score:
    if isinstance(score, str):
        return make_score(score)
    if isinstance(score, type):
        made: Score = score()
        return made
    return copy.deepcopy(score) if hasattr(score, "fit") else _Function(score)


class Observer:
    """A head, and scores fitted to it.

    Parameters
    ----------
    head
        Fitted.
    scores
        By name, fitted.
    """

    def __init__(self, head: Head, scores: dict[str, Score]) -> None:
        self.head = head
        self.scores = scores

    @classmethod
    def fit(cls, head: Head, X: NDArray[Any], y: NDArray[np.int64], scores: Sequence[Any]) -> Observer:
        """Fit scores to a fitted head, on the samples it was fitted on and, with label -1, outliers."""
        known = y != UNKNOWN
        features, labels = X[known], y[known]
        logits = head.logits(features)
        fitted = {
            name_of(score): OutlierLogit().fit_outliers(features, X[~known])
            if name_of(score) == OUTLIERS
            else _new(score).fit(features, logits, labels)
            for score in scores
        }
        return cls(head, fitted)

    def __call__(self, X: Array) -> tuple[Array, Array]:
        """Scores (n, m), not standardised, and logits (n, C)."""
        logits = self.head.logits(X)
        xp = logits.__array_namespace__()
        return xp.stack([score(X, logits) for score in self.scores.values()], axis=1), logits


@dataclass(frozen=True)
class Fold:
    """What a head without some classes says of samples it was not trained on.

    Parameters
    ----------
    evidence
        (n, m), standardised.
    known
        (n,) whether the sample's class is one of the head's.
    correct
        (n,) known, and classified correctly.
    label
        (n,) class of each sample among all classes; -1 for outliers.
    weight
        (n,) weights of the samples.
    """

    evidence: Floats
    known: NDArray[np.bool_]
    correct: NDArray[np.bool_]
    label: NDArray[np.int64]
    weight: Floats

    @cached_property
    def held(self) -> frozenset[int]:
        """Classes that play unknown here."""
        return frozenset(np.unique(self.label[~self.known]).tolist()) - {UNKNOWN}

    def pair_values(self, score: Floats) -> Floats:
        """Of each unknown sample the share of known ones that are correct and rank below it; ties count half.

        Their mean is the fold's OpenAUC.
        """
        ranked = np.sort(score[self.correct])
        unknown = score[~self.known]
        below = np.searchsorted(ranked, unknown, "left") + np.searchsorted(ranked, unknown, "right")
        return np.asarray(below / (2.0 * max(self.known.sum(), 1)))


MakeHead = Callable[[], Head]


class Observed(NamedTuple):
    """Scores (n, m), not standardised, and the class of each sample, from a head that was not trained on it."""

    raw: Floats
    predicted: NDArray[np.int64]


def observe_rest(
    X: NDArray[Any],
    y: NDArray[np.int64],
    weight: Floats | None,
    train: NDArray[np.int64],
    test: NDArray[np.int64],
    make_head: MakeHead,
    scores: Sequence[Any],
) -> Observed:
    """Fit a head and scores on the training rows, outliers (-1) among them, and look at the test rows."""
    rows = train[y[train] != UNKNOWN]
    classes, code = np.unique(y[rows], return_inverse=True)
    head = make_head().fit(X[rows], code, None if weight is None else weight[rows])
    labels = np.full(len(train), UNKNOWN)
    labels[y[train] != UNKNOWN] = code
    raw, logits = Observer.fit(head, X[train], labels, scores)(X[test])
    return Observed(raw, classes[logits.argmax(1)])


def observe_fold(
    X: NDArray[Any],
    y: NDArray[np.int64],
    weight: Floats | None,
    train: NDArray[np.int64],
    test: NDArray[np.int64],
    *how: Any,
) -> Fold:
    """The same where the training rows lack some classes, whose samples then play unknown."""
    seen = observe_rest(X, y, weight, train, test, *how)
    known = np.isin(y[test], y[train]) & (y[test] != UNKNOWN)
    correct = known & (seen.predicted == y[test])
    weights = np.ones(len(test)) if weight is None else weight[test]
    return Fold(Scale.of(seen.raw[correct])(seen.raw), known, correct, y[test], weights)
