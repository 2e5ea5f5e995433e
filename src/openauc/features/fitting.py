"""How an OpenSetClassifier is fitted: folds without some classes, folds without some samples, then everything."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from openauc._validation import UNKNOWN
from openauc.features.base import RULES
from openauc.features.distance_scores import class_means
from openauc.features.evidence import OUTLIERS, Fold, Observed, Observer, Scale, name_of, observe_fold, observe_rest
from openauc.features.heads import HEADS, EstimatorHead, Floats, Head, is_fitted
from openauc.features.rejector import (
    AVERAGE,
    EVIDENCE,
    Average,
    Estimate,
    HeldOut,
    Learned,
    Rejector,
    held_out_scores,
    instead_of_learned,
    of_columns,
)
from openauc.features.report import FitReport, Tried
from openauc.features.scores import SCORES
from openauc.features.splits import PseudoUnknownSplit, rank_within

Rows = NDArray[np.int64]
Plan = tuple[Rows, Rows]
"""Rows to train on, and rows to look at."""

LEFT_OUT = ("knn_50", "mahalanobis", "relative_mahalanobis", "vim", "fdbd", "norm", "react", "scale")
"""Scores to ask for by name: twins of others on embeddings, slow ones, and those for a network's last layer."""
COMPARED = tuple(name for name in SCORES if name not in LEFT_OUT)
"""Scores that held-out classes compare."""
LENGTH = 10.0
"""Mean length that features are scaled to, so that one grid of strengths suits all encoders."""
STRENGTH_FOLDS, DECISIVE, AHEAD = 3, ("max_logit", "entropy"), 0.002
"""The strength of the head is chosen on so many folds by these scores; the first unless another is so far ahead."""
SMALL = 20_000_000
"""Entries of features up to which one thread fits them."""
MOST_REPEATED = 20_000
"""With more samples than this, folds are not repeated however few the classes."""
FEWEST_OUTLIERS, OUTLIERS_LIKE = 5, 50.0
"""So many outliers are worth a score of their own; and so many, or more, weigh as much as all of held-out classes."""
COLLAPSED, NEAR_PERFECT, NARROWEST = 0.9, 0.95, 32
"""Variance inside classes over that between them, and accuracy, that tell of an encoder trained on these samples.

The ratio was 0.7 for training samples of a published TinyImageNet network, 1.2 to 1.5 for CLINC150 (MiniLM),
1.3 for digits (pixels), 5.7 for CIFAR-10 (EfficientNet-Lite0). Fewer features than the last number are no embedding.
"""


@dataclass(frozen=True)
class Fitted:
    """Everything that predicts, and what is known of it."""

    scale: float
    observer: Observer
    evidence_scale: Scale
    rejector: Rejector
    calibration: tuple[Floats, Rows]
    held_out: HeldOut | None
    report: FitReport


@dataclass
class Fitting:
    """One fit.

    Parameters
    ----------
    X, y, weight
        Samples of known classes, their classes 0..C-1, and weights or None.
    outliers
        Samples of none.
    classes
        (C,) labels of the classes.
    head, rejector, max_ofpr, folds, seen_by_encoder, n_jobs, verbose
        As for :class:`~openauc.features.OpenSetClassifier`.
    """

    X: NDArray[Any]
    y: Rows
    weight: Floats | None
    outliers: NDArray[Any]
    classes: NDArray[Any]
    head: Any
    rejector: Any
    max_ofpr: float | None
    folds: int
    seen_by_encoder: bool | str
    rng: np.random.RandomState
    n_jobs: int | None
    verbose: bool
    notes: list[str] = field(default_factory=list)

    def run(self) -> Fitted:
        """Fit everything; small products gain nothing by threads, and lose much by them where cores are busy."""
        with threadpool_limits(1 if self.X.size < SMALL else None, user_api="blas"):
            return self._run()

    def _run(self) -> Fitted:
        scale = self._scale()
        self.X, self.outliers = self.X * scale, self.outliers * scale
        scores: list[Any] = [*COMPARED, *([] if self.rejector in COMPARED or self._is_rule() else [self.rejector])]
        if len(self.outliers) >= FEWEST_OUTLIERS and self.rejector == "learned":
            scores.append(OUTLIERS)
        plans = self._class_plans()
        strength = self._choose_strength(plans)
        make_head = partial(self._make_head, strength)
        folds = self._weighed(self._look(observe_fold, plans, make_head, scores, "heads without some classes"))
        rejector, held_out, tried = self._choose_rejector(folds, [name_of(score) for score in scores])
        used = [score for score in scores if name_of(score) in rejector.names]
        rest = self._cross_fit(make_head, used)
        correct = rest.predicted == self.y
        evidence_scale = Scale.of(rest.raw[correct])
        return Fitted(
            scale,
            self._final(make_head, used),
            evidence_scale,
            rejector,
            (rejector(evidence_scale(rest.raw)), rest.predicted),
            held_out,
            FitReport(
                n_samples=len(self.y),
                n_classes=len(self.classes),
                n_outliers=len(self.outliers),
                width=self.X.shape[1],
                head=self.head if isinstance(self.head, str) else type(self.head).__name__,
                strength=strength,
                accuracy=float(correct.mean()),
                chosen=rejector.title,
                tried=tried,
                max_ofpr=self.max_ofpr,
                notes=tuple(self.notes),
            ),
        )

    def _is_rule(self) -> bool:
        return isinstance(self.rejector, str) and self.rejector in RULES

    def _scale(self) -> float:
        length = float(np.linalg.norm(self.X.astype(np.float64), axis=1).mean())  # squares leave float32 at 1e19
        return LENGTH / length if isinstance(self.head, str) and length > 0 else 1.0

    def _make_head(self, strength: float) -> Head:
        return HEADS[self.head](strength) if isinstance(self.head, str) else EstimatorHead(self.head)

    def _class_plans(self) -> list[Plan]:
        """Folds without some classes; none if there are too few. Outliers stand behind the known samples."""
        if len(self.classes) < 3:
            if self.rejector in ("learned", "selected") and self.seen_by_encoder is not True:
                self.notes.append("two classes are too few to hold one out, so the fixed average of scores rejects.")
            return []
        repeats = 1 if len(self.y) > MOST_REPEATED else None
        splitter = PseudoUnknownSplit(self.folds, n_repeats=repeats, unknown_label=UNKNOWN, random_state=self.rng)
        labels = self._with_outliers()[1]
        order = self.rng.permutation(len(self.outliers))
        plans = []
        for number, (train, test) in enumerate(splitter.split(labels, labels)):
            # Outliers to learn from, and others to look at.
            learned = len(self.y) + np.flatnonzero(order % self.folds != number % self.folds)
            plans.append((np.append(train, learned), np.setdiff1d(test, learned)))
        return plans

    def _look(
        self, look: Callable[..., Any], plans: Sequence[Plan], make_head: Callable[[], Head], scores: Any, what: str
    ) -> list[Any]:
        """Fit a head and scores on each plan, and look."""
        start = time.perf_counter()
        X, y = self._with_outliers()
        weight = None if self.weight is None else np.append(self.weight, np.ones(len(self.outliers)))
        jobs = (delayed(look)(X, y, weight, *plan, make_head, scores) for plan in plans)
        found = list(Parallel(n_jobs=self.n_jobs)(jobs))
        if self.verbose and plans:
            print(f"{len(plans)} {what}: {time.perf_counter() - start:.1f} s", flush=True)
        return found

    def _choose_strength(self, plans: Sequence[Plan]) -> float:
        """The strength with which scores of the logits do best on some of the folds; the first unless it is behind."""
        grid = HEADS[self.head].grid if isinstance(self.head, str) else (1.0,)
        if not plans or len(grid) == 1:
            return grid[0]
        values = []
        for strength in grid:
            make_head = partial(self._make_head, strength)
            some = self._look(observe_fold, plans[:STRENGTH_FOLDS], make_head, DECISIVE, f"heads ({strength:g})")
            scores = (HeldOut(some, [fold.evidence[:, i] for fold in some]) for i in range(len(DECISIVE)))
            values.append(max(one.estimate().value for one in scores))
        values[0] += AHEAD
        return grid[int(np.argmax(values))]

    def _weighed(self, folds: Sequence[Fold]) -> list[Fold]:
        """Outliers as heavy as they are worth: they are the real thing, and few."""
        if not len(self.outliers):
            return list(folds)
        heavy = []
        for fold in folds:
            played = ~fold.known & (fold.label != UNKNOWN)
            here = fold.label == UNKNOWN
            share = min(len(self.outliers) / OUTLIERS_LIKE, 1.0)
            weight = np.where(here, share * fold.weight[played].sum() / max(here.sum(), 1), fold.weight)
            heavy.append(replace(fold, weight=weight))
        return heavy

    def _choose_rejector(
        self, folds: Sequence[Fold], names: Sequence[str]
    ) -> tuple[Rejector, HeldOut | None, tuple[Tried, ...]]:
        wanted = "average" if not folds and self.rejector in ("learned", "selected") else self.rejector
        if not folds:
            wanted = "max_logit" if self._is_rule() and self.seen_by_encoder is True else wanted
            return Average() if wanted == "average" else Average((name_of(wanted),)), None, ()
        start = time.perf_counter()
        single = {name: column for column, name in enumerate(names) if name != OUTLIERS}
        held = {name: HeldOut(folds, [fold.evidence[:, i] for fold in folds]) for name, i in single.items()}
        rules: dict[str, Rejector] = {name: Average((name,)) for name in single}
        rules["average"] = Average()
        averaged = of_columns(folds, names, AVERAGE)
        held["average"] = HeldOut(folds, [fold.evidence.mean(1) for fold in averaged])
        if wanted == "learned":
            # Folds of the report are learned from the others; the rejector in use from all of them.
            seed = self.rng.randint(2**31)
            used = (*EVIDENCE, OUTLIERS) if OUTLIERS in names else EVIDENCE
            looked_at = of_columns(folds, names, used)
            learn = partial(Learned.learn, n_classes=len(self.classes), max_ofpr=self.max_ofpr, seed=seed, names=used)
            held["learned"] = held_out_scores(looked_at, learn)
            rules["learned"] = learn(looked_at)
        estimates = {name: scores.estimate(self.max_ofpr) for name, scores in held.items()}
        chosen = self._settle(wanted, estimates, folds)
        tried = [Tried(name, found.value, found.interval) for name, found in estimates.items()]
        if self.verbose:
            print(f"rejector {chosen}: {time.perf_counter() - start:.1f} s", flush=True)
        return rules[chosen], held[chosen], tuple(sorted(tried, key=lambda one: -one.openauc))

    def _settle(self, wanted: Any, estimates: dict[str, Estimate], folds: Sequence[Fold]) -> str:
        """Name of the rejector to use: the one wanted unless the evidence speaks against it."""
        if not self._is_rule():
            return name_of(wanted)
        if self._seen_by_encoder(folds):
            return "max_logit"
        if wanted == "selected":
            return max((name for name in estimates if name in SCORES), key=lambda name: estimates[name].value)
        if wanted == "learned":
            # A part of the curve tells of fewer samples, and what is learned for it is no surer than the average.
            other = instead_of_learned(estimates, errors=2.0 if self.max_ofpr is None else 0.0)
            if other is not None:
                self.notes.append(f"on held-out classes the learned rejector is below {other}, so {other} rejects.")
                return other
        return str(wanted)

    def _seen_by_encoder(self, folds: Sequence[Fold]) -> bool:
        if self.seen_by_encoder != "auto":
            return bool(self.seen_by_encoder)
        accuracy = np.mean([fold.correct.sum() / max(fold.known.sum(), 1) for fold in folds])
        ratio = _spread_ratio(self.X, self.y)
        if accuracy < NEAR_PERFECT or ratio > COLLAPSED or self.X.shape[1] < NARROWEST:
            return False
        sentence = (
            f"the classes are separated almost perfectly (accuracy {accuracy:.3f} on held-out samples, variance inside "
            f"classes {ratio:.2f} of that between them), as if the encoder had been trained on these samples with "
            "their labels. Held-out classes are then no news to it and mislead, and so do thresholds: max_logit "
            "rejects in place of a learned rejector. Fit on samples the encoder was not trained on, or calibrate(X, y) "
            "with such; pass seen_by_encoder=False if it was not trained on these."
        )
        self.notes.append(sentence)
        warnings.warn(sentence, stacklevel=6)
        return True

    def _cross_fit(self, make_head: Callable[[], Head], scores: Sequence[Any]) -> Observed:
        """Every known sample as a head sees it that was not trained on it."""
        part = np.floor(rank_within(self.y, self.rng) * self.folds).astype(int)
        outliers = len(self.y) + np.arange(len(self.outliers))
        plans = [(np.append(np.flatnonzero(part != k), outliers), np.flatnonzero(part == k)) for k in np.unique(part)]
        found = self._look(observe_rest, plans, make_head, scores, "heads without some samples")
        raw, predicted = np.empty((len(self.y), len(scores))), np.empty(len(self.y), np.int64)
        for (_, rows), seen in zip(plans, found, strict=True):
            raw[rows], predicted[rows] = seen
        return Observed(raw, predicted)

    def _final(self, make_head: Callable[[], Head], scores: Sequence[Any]) -> Observer:
        head = make_head()
        if isinstance(head, EstimatorHead) and is_fitted(self.head):
            head.adopt(self.classes)
        else:
            head.fit(self.X, self.y, self.weight)
        return Observer.fit(head, *self._with_outliers(), scores)

    def _with_outliers(self) -> tuple[NDArray[Any], Rows]:
        """Known samples and, behind them and with label -1, outliers."""
        return np.concatenate([self.X, self.outliers]), np.append(self.y, np.full(len(self.outliers), UNKNOWN))


def _spread_ratio(X: NDArray[Any], y: Rows) -> float:
    """Variance of the features inside classes over that of the class means."""
    means, members = class_means(X, y)
    between = float(((means[members] - X.mean(0)) ** 2).sum())
    return float(((X - means[members]) ** 2).sum()) / between if between > 0 else np.inf
