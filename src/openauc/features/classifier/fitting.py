"""How an OpenSetClassifier is fitted: folds without some classes, folds without some samples, then everything."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.frozen import FrozenEstimator
from threadpoolctl import threadpool_limits

from openauc._validation import UNKNOWN
from openauc.features.classifier.copies import Copies, copies_of, find_copies, first_rows
from openauc.features.classifier.evidence import (
    BY_CLASS,
    OUTLIERS,
    EvidenceScale,
    Fold,
    HeadWithScores,
    Observed,
    Task,
    name_of,
    observe_fold,
    observe_rest,
    standardise,
)
from openauc.features.classifier.heads import HEADS, EstimatorHead, Floats, Head, is_fitted
from openauc.features.classifier.rejector import AVERAGE, CONFIDENCE, Choice, HeldOut, Rejector, choose_rejector
from openauc.features.classifier.report import FitReport, Tried
from openauc.features.classifier.scaling import Scaling
from openauc.features.classifier.splits import HeldOutSplit, deal, rank_within
from openauc.features.scores.base import REJECTORS
from openauc.features.scores.distance import class_means
from openauc.features.scores.registry import SCORES

if TYPE_CHECKING:
    from openauc.features.classifier.estimator import OpenSetClassifier

Rows = NDArray[np.int64]
Plan = tuple[Rows, Rows]
"""Rows to train on, and rows to observe."""

LEFT_OUT = ("knn_50", "mahalanobis", "relative_mahalanobis", "vim", "fdbd", "norm", "react", "scale")
"""Scores to ask for by name: similar to others on embeddings, slow, or made for the last layer of a network."""
COMPARED = tuple(name for name in SCORES if name not in LEFT_OUT)
"""Scores that are compared on held-out classes."""
COVARIANCES, ROWS_FOR_THEM = ("mahalanobis_pp", "relative_mahalanobis_pp"), 0.25
"""Scores that need so many rows for each feature; with fewer rows they are left out, as they change with every row."""
STRENGTH_FOLDS, DECISIVE, AHEAD = 3, ("max_logit", "entropy"), 0.002
"""The head's strength is chosen on so many folds by these scores; keep the default unless another gains so much."""
SPLIT_SHARE = 0.2
"""Share of the rows that ``calibration="split"`` sets aside."""
SMALL = 20_000_000
"""Entries of features up to which one thread fits them."""
MOST_ROWS, FEWEST_OF_CLASS = 10_000, 20
"""With more than LARGE rows, folds work on so many of them; on more where classes would have fewer than that."""
LARGE = 20_000
"""With more rows than this, rows set aside calibrate, since no fold is as large as the whole."""
ASIDE, ASIDE_SHARE, FOR_SCALE = 5_000, 0.1, 0.2
"""Then at most so many rows, and at most this share of all, are set aside; the last share of them gives the scale."""
MOST_SCORED = 50_000
"""Rows that the scores of the final head are fitted on, at most."""
MOST_REPEATED = 10_000
"""With more rows than this, folds without some classes are not repeated, however few the classes."""
FEW, MANY_PARTS, CLASS_FOLDS = 5_000, 10, 12
"""Up to so many rows, at least so many heads score the rows, and classes are held out in so many folds."""
FOR_FORECAST, HALF_FOLDS = 4, 5
"""Rows that most classes must have for a forecast; and folds that measure the gain from more rows."""
FEWEST_OUTLIERS, OUTLIERS_LIKE = 5, 50.0
"""So many outliers get a score of their own; so many, or more, weigh as much as all samples of held-out classes."""
SOME_ALIKE = 0.02
"""Share of rows similar to another one from which on calibration is repeated with larger groups."""
SMALL_CLASS = 10
"""A class with fewer rows (copies count once) is too small for a guarantee."""
COLLAPSED, NEAR_PERFECT = 0.9, 0.95
"""Variance inside classes over that between them, and accuracy: signs of an encoder trained on these samples.

The ratio was 0.7 for training samples of a published TinyImageNet network, 1.2 to 1.5 for CLINC150 (MiniLM),
1.3 for digits (pixels), 5.7 for CIFAR-10 (EfficientNet-Lite0). Columns of a table are not an embedding.
"""


class Calibrated(NamedTuple):
    """Open-set scores of known samples that the model was not fitted on, and their predicted and true classes."""

    score: Floats
    predicted: Rows
    label: Rows


class RowSplit(NamedTuple):
    """Rows set aside to calibrate, rows to learn from, those of the latter that folds work on, and their copies."""

    aside: Rows
    rest: Rows
    working: Rows
    copies: Copies
    n_copies: int

    @property
    def large(self) -> bool:
        """Whether folds work on a part of the rows."""
        return len(self.rest) > len(self.working)


@dataclass
class Fitting:
    """One fit: sets the attributes of a classifier whose parameters and classes are given."""

    classifier: OpenSetClassifier
    X: NDArray[Any]
    y: Rows  # 0..C-1, or -1 for outliers
    weight: Floats | None
    groups: Rows | None  # numbers of groups of rows that belong together
    rng: np.random.RandomState
    notes: list[str] = field(default_factory=list)

    def run(self) -> tuple[Calibrated, Calibrated | None]:
        """Calibration, and the same from folds that keep similar rows together, None if there are hardly any.

        Threads do not speed up small products, and slow them down where cores are busy.
        """
        self.classes, self.head, self.rejector = (
            self.classifier.classes_,
            self.classifier.head,
            self.classifier.rejector,
        )
        self.max_ofpr: float | None = self.classifier.max_ofpr
        self.aside = SPLIT_SHARE if self.classifier.calibration == "split" else 0.0
        with threadpool_limits(1 if self.X.size < SMALL else None, user_api="blas"):
            return self._run()

    def _run(self) -> tuple[Calibrated, Calibrated | None]:
        known, outliers = np.flatnonzero(self.y != UNKNOWN), np.flatnonzero(self.y == UNKNOWN)
        scaling = Scaling.of(self.X, known, self.classifier.scaling)
        split = self._split_rows(known, scaling)
        rows = np.append(split.working, outliers)
        weight = None if self.weight is None else self.weight[rows]
        task = Task(self.X[rows], self.y[rows], weight, partial(_make_head, self.head), (), (), scaling)
        plans = self._class_plans(task.y, split.copies.groups)
        strength = self._choose_strength(task, plans)
        task = task._replace(
            make_head=partial(_make_head, self.head, strength),
            scores=self._scores(len(split.working)),
            by_class=CONFIDENCE if self.rejector == "learned" else (),
        )
        folds = self._weigh_outliers(self._observe(observe_fold, task, plans, "heads without some classes"))
        choice = self._choose(task, folds)
        gap = np.mean([fold.gap for fold in folds], axis=0) if folds else np.zeros(len(task.scores))
        # From here on, the scores that the rejector uses, in its order.
        names, used = task.names, choice.rejector.names
        folds = [replace(fold, evidence=fold.evidence[:, [names.index(name) for name in used]]) for fold in folds]
        plain = [names.index(name) for name in used if not name.endswith(BY_CLASS)]
        by_class = [name.removesuffix(BY_CLASS) for name in used if name.endswith(BY_CLASS)]
        task, gap = task._replace(scores=[task.scores[i] for i in plain], by_class=by_class), gap[plain]
        tried = self._with_all_rows(task, plans, folds, split, choice)
        final = self._final(task, split.rest, outliers)
        scale, calibration, alike = self._calibrate(task, final, split, choice.rejector, gap)
        if split.n_copies:
            self.notes.append(
                f"Copies or near-copies of other rows: {split.n_copies:,} of {len(known):,}. Rows that belong together "
                "were kept together in all folds, and calibration counts them once."
            )
        frozen = isinstance(self.head, FrozenEstimator)
        first = self.y[split.working][first_rows(split.copies.groups, self.y[split.working])]
        small = np.bincount(first, minlength=len(self.classes)) < SMALL_CLASS
        report = FitReport(
            n_samples=len(known),
            n_classes=len(self.classes),
            n_outliers=len(outliers),
            width=self.X.shape[1],
            head=self.head
            if isinstance(self.head, str)
            else type(self.head.estimator if frozen else self.head).__name__,
            strength=strength,
            accuracy=float((calibration.predicted == calibration.label).mean()),
            chosen=choice.rejector.title,
            tried=tried,
            max_ofpr=self.max_ofpr,
            near_copies=split.n_copies,
            small_classes=tuple(str(label) for label in self.classes[small].tolist()),
            notes=tuple(self.notes),
        )
        fitted, held_out = self.classifier, choice.held_out
        fitted.observer_, fitted.evidence_scale_, fitted.rejector_, fitted.report_ = (
            final,
            scale,
            choice.rejector,
            report,
        )
        fitted.calibration_kind_ = "split" if len(split.aside) else "cross"
        fitted.held_out_scores_, fitted.held_out_kinds_ = np.empty(0), np.empty(0, np.int8)
        if held_out is not None:
            fitted.held_out_scores_ = np.concatenate(held_out.scores)
            kinds = [np.where(fold.known, np.where(fold.correct, 0, 1), -1) for fold in held_out.folds]
            fitted.held_out_kinds_ = np.concatenate(kinds).astype(np.int8)
        return calibration, alike

    # Rows

    def _split_rows(self, known: Rows, scaling: Scaling) -> RowSplit:
        if len(known) > LARGE:
            aside, rest, n_copies = self._set_aside_of_many(known, scaling)
            working = self._draw(rest, max(MOST_ROWS, FEWEST_OF_CLASS * len(self.classes)))
            return RowSplit(aside, rest, working, self._find_copies(working, scaling), n_copies)
        copies = self._find_copies(known, scaling)
        kept = ~self._set_aside(self.y[known], copies.groups)
        first = np.zeros(len(known), bool)
        first[first_rows(copies.groups, self.y[known])] = True
        of_kept = copies._replace(groups=copies.groups[kept], alike=copies.alike[kept])
        return RowSplit(known[~kept & first], known[kept], known[kept], of_kept, copies.n_copies)

    def _find_copies(self, rows: Rows, scaling: Scaling) -> Copies:
        """Groups of some rows; equal rows with different labels are noted."""
        given, y = None if self.groups is None else self.groups[rows], self.y[rows]
        copies = find_copies(scaling.rows(self.X, rows), y, given)
        if len(copies.conflicts):
            i, j = rows[copies.conflicts[0]].tolist()
            labels = self.classes.tolist()
            self.notes.append(
                f"{len(copies.conflicts):,} pairs of equal rows have different labels, such as rows {i} "
                f"({labels[self.y[i]]!r}) and {j} ({labels[self.y[j]]!r}); one of the two labels is wrong, or the "
                "features do not tell these classes apart."
            )
        if np.bincount(y[first_rows(copies.groups, y)]).max() < 2:
            raise ValueError(
                "all rows of each class are copies of one row, or one group; at least two that are not are needed, one "
                "to learn from and one to check with."
            )
        return copies

    def _set_aside(self, y: Rows, groups: Rows) -> NDArray[np.bool_]:
        """Rows of a share of the groups, each as likely as any other; two groups of each class stay."""
        if not self.aside:
            return np.zeros(len(y), bool)
        first = first_rows(groups, y)
        left = np.bincount(y[first], minlength=len(self.classes)) - 2
        of_group: dict[int, list[int]] = {}
        for row in first:
            of_group.setdefault(int(groups[row]), []).append(int(y[row]))
        wanted = int(np.ceil(self.aside * len(of_group)))
        chosen: list[int] = []
        for group in self.rng.permutation(list(of_group)):
            if len(chosen) < wanted and (left[of_group[group]] > 0).all():
                chosen.append(group)
                left[of_group[group]] -= 1
        return np.isin(groups, chosen)

    def _set_aside_of_many(self, known: Rows, scaling: Scaling) -> tuple[Rows, Rows, int]:
        """Rows to calibrate with, the rows to learn from, and how many copies of the first are in neither."""
        wanted = int(self.aside * len(known)) or min(ASIDE, int(ASIDE_SHARE * len(known)))
        aside = self._draw(known, wanted, fewest=0)
        if self.groups is not None:  # one row of a group; the rest of the group is not learned from
            aside = aside[np.unique(self.groups[aside], return_index=True)[1]]
        while True:
            rest = np.setdiff1d(known, aside)
            if self.groups is not None:
                rest = rest[~np.isin(self.groups[rest], self.groups[aside])]
            leaked = copies_of(self.X, self.y, aside, rest, scaling)
            lost = np.bincount(self.y[rest[~leaked]], minlength=len(self.classes)) < 2
            if not lost[self.y[aside]].any():
                return self.rng.permutation(aside), rest[~leaked], int(leaked.sum())
            aside = aside[~lost[self.y[aside]]]  # all rows of a class that would be gone are learned from

    def _draw(self, rows: Rows, wanted: int, fewest: int = FEWEST_OF_CLASS) -> Rows:
        """Ascending rows: of each class its share of the wanted number, and at least ``fewest`` if it has them."""
        if len(rows) <= wanted:
            return rows
        order = self.rng.permutation(rows)
        size = np.bincount(self.y[rows], minlength=len(self.classes))
        quota = np.maximum(np.rint(size * (wanted / len(rows))).astype(int), fewest)
        if not fewest:
            quota = np.minimum(quota, np.maximum(size - 2, 0))  # two stay to learn from
        by_class = np.argsort(self.y[order], kind="stable")
        turn = np.empty(len(order), np.int64)  # the position of a row in its class
        turn[by_class] = np.arange(len(order)) - np.repeat(np.cumsum(size) - size, size)
        return np.sort(order[turn < quota[self.y[order]]])

    # Heads and scores

    def _scores(self, n_rows: int) -> list[Any]:
        """Scores to compare, or the one that is wanted."""
        if not _is_name(self.rejector):
            return [self.rejector]
        enough = n_rows - len(self.classes) >= ROWS_FOR_THEM * self.X.shape[1]
        compared = AVERAGE if self.rejector == "average" else COMPARED
        scores = [name for name in compared if enough or name not in COVARIANCES]
        if (self.y == UNKNOWN).sum() >= FEWEST_OUTLIERS and self.rejector == "learned":
            scores.append(OUTLIERS)
        return scores

    def _class_plans(self, y: Rows, groups: Rows) -> list[Plan]:
        """Folds without some classes; none if there are too few. Outliers come after the known samples."""
        if len(self.classes) < 3:
            if self.rejector in ("learned", "selected") and self.classifier.seen_by_encoder is not True:
                self.notes.append("Two classes are too few to hold one out, so the distance to known samples rejects.")
            return []
        repeats, parts = 1 if len(y) > MOST_REPEATED else None, self.classifier.folds
        # A head that lacks few classes is most like the final one.
        folds = max(parts, min(len(self.classes), CLASS_FOLDS)) if len(y) <= FEW else parts
        splitter = HeldOutSplit(folds, n_repeats=repeats, unknown_label=UNKNOWN, random_state=self.rng)
        outliers = np.flatnonzero(y == UNKNOWN)
        grouped = np.append(groups, groups.max(initial=0) + 1 + np.arange(len(outliers)))
        order = self.rng.permutation(len(outliers))
        plans = []
        first = first_rows(grouped, y)
        for number, (train, test) in enumerate(splitter.split(y, y, grouped)):
            test = np.intersect1d(test, first)  # copies count once
            # Some outliers to learn from, and others to observe.
            learned = outliers[order % parts != number % parts]
            plans.append((np.append(train, learned), np.setdiff1d(test, learned)))
        return plans

    def _observe(self, observe: Callable[..., Any], task: Task, plans: Sequence[Plan], what: str) -> list[Any]:
        """Fit a head and scores on each plan, and observe the other rows of the plan."""
        start = time.perf_counter()
        found = list(Parallel(n_jobs=self.classifier.n_jobs)(delayed(observe)(task, *plan) for plan in plans))
        if plans:
            self._say(f"{len(plans)} {what}", start)
        return found

    def _say(self, done: str, start: float) -> None:
        verbose = self.classifier.verbose
        sentence = f"{done}: {time.perf_counter() - start:.1f} s"
        if callable(verbose):
            verbose(sentence)
        elif verbose:
            print(sentence, flush=True)

    def _choose_strength(self, task: Task, plans: Sequence[Plan]) -> float:
        """The strength with the best scores of logits on some folds; the first unless another gains enough."""
        grid = HEADS[self.head].grid if isinstance(self.head, str) else (1.0,)
        if not plans or len(grid) == 1:
            return grid[0]
        values = []
        for strength in grid:
            one = task._replace(make_head=partial(_make_head, self.head, strength), scores=DECISIVE)
            some = self._observe(observe_fold, one, plans[:STRENGTH_FOLDS], f"heads ({strength:g})")
            scores = (HeldOut(some, [fold.evidence[:, i] for fold in some]) for i in range(len(DECISIVE)))
            values.append(max(one.estimate().value for one in scores))
        values[0] += AHEAD
        return grid[int(np.argmax(values))]

    def _weigh_outliers(self, folds: Sequence[Fold]) -> list[Fold]:
        """Folds in which outliers have more weight: they are real unknown samples, and few."""
        n_outliers = int((self.y == UNKNOWN).sum())
        if not n_outliers:
            return list(folds)
        heavy = []
        for fold in folds:
            held = ~fold.known & (fold.label != UNKNOWN)
            outlier = fold.label == UNKNOWN
            share = min(n_outliers / OUTLIERS_LIKE, 1.0)
            weight = np.where(outlier, share * fold.weight[held].sum() / max(outlier.sum(), 1), fold.weight)
            heavy.append(replace(fold, weight=weight))
        return heavy

    def _choose(self, task: Task, folds: Sequence[Fold]) -> Choice:
        start = time.perf_counter()
        choice = choose_rejector(
            folds,
            task.names,
            name_of(self.rejector),
            n_classes=len(self.classes),
            max_ofpr=self.max_ofpr,
            misleading=_is_name(self.rejector) and self._seen_by_encoder(task, folds),
            seed=self.rng.randint(2**31),
        )
        if choice.note is not None:
            self.notes.append(choice.note)
        self._say(f"rejector {choice.rejector.title}", start)
        return choice

    def _seen_by_encoder(self, task: Task, folds: Sequence[Fold]) -> bool:
        if self.classifier.seen_by_encoder != "auto" or not folds:
            return self.classifier.seen_by_encoder is True
        accuracy = np.mean([fold.correct.sum() / max(fold.known.sum(), 1) for fold in folds])
        known = task.y != UNKNOWN
        if accuracy < NEAR_PERFECT or task.scaling.kind == "columns":
            return False
        ratio, highest = spread_ratio(task.scaling(task.X[known]), task.y[known])
        if highest > COLLAPSED:
            return False
        sentence = (
            f"The classes are separated almost perfectly (accuracy {accuracy:.3f} on held-out samples, variance inside "
            f"classes {ratio:.2f} of that between them), as if the encoder had been trained on these samples with "
            "their labels. Held-out classes are then not new to it: what they forecast is too good, and thresholds are "
            "too strict. So max_logit rejects, and nothing is forecast. Fit on samples the encoder was not trained on, "
            "or calibrate(X, y) with such; pass seen_by_encoder=False if it was not trained on these."
        )
        self.notes.append(sentence)
        warnings.warn(sentence, stacklevel=6)
        return True

    def _with_all_rows(
        self, task: Task, plans: Sequence[Plan], folds: Sequence[Fold], split: RowSplit, choice: Choice
    ) -> tuple[Tried, ...]:
        """What was tried, the best first, as it would be with heads that know all rows of their classes.

        Heads of the folds lack some rows of the known classes, which costs OpenAUC where rows are few. How much it
        grows with more rows is measured with heads that know half of them.
        """
        compared = (Tried(name, found.value, found.interval) for name, found in choice.estimates.items())
        tried = tuple(sorted(compared, key=lambda one: -one.openauc))
        if not tried or (len(split.working) > FEW and not split.large):
            return tried
        first = first_rows(split.copies.groups, task.y[task.y != UNKNOWN])
        size = np.bincount(task.y[first], minlength=len(self.classes))
        full = np.bincount(self.y[split.rest], minlength=len(self.classes)) if split.large else size
        if np.median(full) < FOR_FORECAST:
            self.notes.append(
                "Most classes have fewer than four rows: nothing is forecast, and the share of known rows accepted may "
                "be some points above the guaranteed one."
            )
            return ()
        gains = []
        for (train, test), fold in list(zip(plans, folds, strict=True))[:HALF_FOLDS]:
            known = np.intersect1d(train, first)
            rank = rank_within(task.y[known], self.rng)
            count = np.bincount(task.y[known], minlength=len(self.classes))
            alone = count[task.y[known]] == 1
            kept = known[alone | (np.rint(rank * count[task.y[known]]) < np.maximum(size // 2, 1)[task.y[known]])]
            outliers = train[task.y[train] == UNKNOWN]
            (less,) = self._observe(observe_fold, task, [(np.append(kept, outliers), test)], "head")
            present = count > 0
            m, m_half = count[present], np.bincount(task.y[kept], minlength=len(self.classes))[present]
            lost = float((1.0 / m_half - 1.0 / m).mean())
            value, value_half = (
                HeldOut([one], [choice.rejector(one.evidence)]).estimate(self.max_ofpr).value for one in (fold, less)
            )
            if lost > 0:
                gains.append((value - value_half) * float((1.0 / m - 1.0 / full[present]).mean()) / lost)
        gain = max(float(np.mean(gains)), 0.0) if gains else 0.0
        return tuple(one.shifted(gain) for one in tried)

    # Calibration

    def _calibrate(
        self, task: Task, final: HeadWithScores, split: RowSplit, rejector: Rejector, gap: Floats
    ) -> tuple[EvidenceScale, Calibrated, Calibrated | None]:
        """The scale of the evidence, the scores for thresholds, and the same with larger groups."""

        def scored(observed: Observed) -> Calibrated:
            evidence = scale(observed.raw, observed.predicted)
            return Calibrated(rejector(evidence), observed.predicted, observed.label)

        if split.large:
            observed = self._observe_aside(final, split.aside)
            n_scale = int(FOR_SCALE * len(split.aside))
            scale, _ = self._standardise(observed.part(slice(n_scale)), task)
            return scale, scored(observed.part(slice(n_scale, None))), None
        observed = self._cross_fit(task, split.copies.groups, gap)
        scale, evidence = self._standardise(observed, task)
        if len(split.aside):
            return scale, scored(self._observe_aside(final, split.aside)), None
        calibration = Calibrated(rejector(evidence), observed.predicted, observed.label)
        if split.copies.share_alike <= SOME_ALIKE:
            return scale, calibration, None
        return scale, calibration, scored(self._cross_fit(task, split.copies.alike, gap))

    def _cross_fit(self, task: Task, groups: Rows, gap: Floats) -> Observed:
        """One known row of each group, observed by a head that was not trained on the group.

        The final head knows more rows, so its scores of new samples are lower. Where rows are few, the difference is
        measured with heads that know only half of them: scores fall like one over the number of rows.
        """
        parts = self.classifier.folds
        observed, n_known = self._deal(task, groups, max(parts, MANY_PARTS) if len(groups) <= FEW else parts)
        if len(groups) > FEW:
            return observed
        half, n_known_by_half = self._deal(task, groups, 2)
        y = observed.label
        first = first_rows(groups, task.y[task.y != UNKNOWN])
        size = np.bincount(task.y[first], minlength=len(self.classes))[y]
        correction = np.empty(observed.raw.shape)
        for of_all in (False, True):
            full = len(first) if of_all else size
            m, m_half = (rows.sum(1) if of_all else rows[np.arange(len(y)), y] for rows in (n_known, n_known_by_half))
            missing, lost = 1.0 / m - 1.0 / full, float((1.0 / m_half - 1.0 / m).mean())
            columns = task.pooled == of_all
            if lost > 0:
                fall = (half.raw - observed.raw)[:, columns].mean(0) / lost
                correction[:, columns] = np.outer(missing, fall)
            else:  # Two rows a class: from none of them, where scores are higher by the gap, like 1 / (m + 1).
                correction[:, columns] = np.outer((full - m) / (m * (full + 1.0)), gap[columns])
        return observed._replace(raw=observed.raw - correction)

    def _deal(self, task: Task, groups: Rows, parts: int) -> tuple[Observed, Rows]:
        """One row of each group, from a head without its part; and (n, C) how many groups of each class it knows."""
        y = task.y[task.y != UNKNOWN]
        part = deal(y, groups, parts, self.rng)
        first = first_rows(groups, y)
        once = np.zeros(len(y), bool)
        once[first] = True
        once &= part >= 0
        in_training = np.append(part, np.full(len(task.y) - len(y), -1))
        plans = [(np.flatnonzero(in_training != k), np.flatnonzero(once & (part == k))) for k in np.unique(part[once])]
        found: list[Observed] = self._observe(observe_rest, task, plans, "heads without some samples")
        raw, predicted = np.empty((len(y), len(task.scores))), np.empty(len(y), np.int64)
        n_known = np.empty((len(y), len(self.classes)), np.int64)
        for (_, rows), one in zip(plans, found, strict=True):
            raw[rows], predicted[rows] = one.raw, one.predicted
            n_known[rows] = np.bincount(y[first][part[first] != part[rows[0]]], minlength=len(self.classes))
        return Observed(raw[once], predicted[once], y[once]), n_known[once]

    def _standardise(self, one: Observed, task: Task) -> tuple[EvidenceScale, Floats]:
        return standardise(one.raw, one.predicted, one.correct, n_classes=len(self.classes), columns=task.columns)

    def _final(self, task: Task, rows: Rows, outliers: Rows) -> HeadWithScores:
        head = task.make_head()
        if isinstance(head, EstimatorHead) and is_fitted(self.head):
            head.adopt(self.classes)
        else:
            weight = None if self.weight is None else self.weight[rows]
            head.fit(task.scaling.rows(self.X, rows) if head.scaled else self.X[rows], self.y[rows], weight)
        some = np.append(self._draw(rows, MOST_SCORED), outliers)
        return HeadWithScores.fit(head, self.X[some], self.y[some], task.scores, task.scaling)

    def _observe_aside(self, final: HeadWithScores, rows: Rows) -> Observed:
        raw, logits = final(self.X[rows])
        return Observed(raw, logits.argmax(1), self.y[rows])


def _make_head(head: Any, strength: float = 1.0) -> Head:
    return HEADS[head](strength) if isinstance(head, str) else EstimatorHead(head)


def _is_name(rejector: Any) -> bool:
    """Whether it is one of the rejectors that use several scores and held-out classes."""
    return isinstance(rejector, str) and rejector in REJECTORS


def spread_ratio(X: NDArray[Any], y: Rows) -> tuple[float, float]:
    """Variance of the features inside classes over that of the class means, and its upper limit (two standard errors).

    Both variances are estimated as components: sums of squares over their degrees of freedom, less the variance that
    the means have because classes have few samples. The error is that of a jackknife over the classes.
    """
    means, members = class_means(X, y)
    size = np.bincount(members)
    squares = np.bincount(members, ((X - means[members]) ** 2).sum(1, dtype=np.float64))
    c = len(size)
    value = _components_ratio(size, squares, means)
    others = [np.arange(c) != i for i in range(c)]
    without = [_components_ratio(size[rest], squares[rest], means[rest]) for rest in others]
    error = (c - 1) / np.sqrt(c) * float(np.std(without)) if np.isfinite(without).all() else np.inf
    return value, value + 2.0 * error


def _components_ratio(size: NDArray[Any], squares: NDArray[Any], means: NDArray[Any]) -> float:
    n, c = size.sum(), len(size)
    inside = float(squares.sum()) / max(n - c, 1)
    centre = (size[:, None] * means).sum(0) / n
    of_means = float((size[:, None] * (means - centre) ** 2).sum()) / max(c - 1, 1)
    between = (of_means - inside) / ((n - (size**2).sum() / n) / max(c - 1, 1))
    return max(inside, 1e-12) / between if between > 0 else np.inf
