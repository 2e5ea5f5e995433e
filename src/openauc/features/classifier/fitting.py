"""How an OpenSetClassifier is fitted: folds without some classes, folds without some samples, then everything."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

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
    Fold,
    HeadWithScores,
    Observed,
    Scale,
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
from openauc.features.classifier.splits import PseudoUnknownSplit, deal, rank_within
from openauc.features.scores.base import RULES
from openauc.features.scores.distance import class_means
from openauc.features.scores.registry import SCORES

Rows = NDArray[np.int64]
Plan = tuple[Rows, Rows]
"""Rows to train on, and rows to look at."""

LEFT_OUT = ("knn_50", "mahalanobis", "relative_mahalanobis", "vim", "fdbd", "norm", "react", "scale")
"""Scores to ask for by name: twins of others on embeddings, slow ones, and those for a network's last layer."""
COMPARED = tuple(name for name in SCORES if name not in LEFT_OUT)
"""Scores that held-out classes compare."""
COVARIANCES, ROWS_FOR_THEM = ("mahalanobis_pp", "relative_mahalanobis_pp"), 0.25
"""Scores that need so many rows for each feature; with fewer they are left out, as they change with every row."""
STRENGTH_FOLDS, DECISIVE, AHEAD = 3, ("max_logit", "entropy"), 0.002
"""The strength of the head is chosen on so many folds by these scores; the default unless another gains so much."""
SMALL = 20_000_000
"""Entries of features up to which one thread fits them."""
MOST_ROWS, FEWEST_OF_CLASS = 10_000, 20
"""With more than LARGE rows, folds work on so many of them; on more where classes would have fewer than that."""
LARGE = 20_000
"""With more rows than this, rows set aside calibrate, since no fold is as large as the whole."""
ASIDE, ASIDE_SHARE, FOR_SCALE = 5_000, 0.1, 0.2
"""Rows set aside then, at most, and the share of all rows they may be; of these the share that tells the scale."""
MOST_SCORED = 50_000
"""Rows that the scores of the final head are fitted on, at most."""
MOST_REPEATED = 10_000
"""With more rows than this, folds without some classes are not repeated however few the classes."""
FEW, MANY_PARTS, CLASS_FOLDS = 5_000, 10, 12
"""Up to so many rows, each is scored by one of at least so many heads, and classes are held out in so many folds."""
FOR_FORECAST, HALF_FOLDS = 4, 5
"""Rows that most classes must have for a forecast; and folds that tell what more rows are worth."""
FEWEST_OUTLIERS, OUTLIERS_LIKE = 5, 50.0
"""So many outliers are worth a score of their own; and so many, or more, weigh as much as all of held-out classes."""
SOME_ALIKE = 0.02
"""Share of rows that are like another one, from which on it is worth a look what depends on them."""
SMALL_CLASS = 10
"""A class with fewer rows (copies count once) is too small for any promise."""
COLLAPSED, NEAR_PERFECT = 0.9, 0.95
"""Variance inside classes over that between them, and accuracy, that tell of an encoder trained on these samples.

The ratio was 0.7 for training samples of a published TinyImageNet network, 1.2 to 1.5 for CLINC150 (MiniLM),
1.3 for digits (pixels), 5.7 for CIFAR-10 (EfficientNet-Lite0). Columns of a table are not an embedding.
"""


class Looked(NamedTuple):
    """Scores (n, m) of known samples that the model had not seen, not standardised; predicted and true classes."""

    raw: Floats
    predicted: Rows
    label: Rows

    @property
    def correct(self) -> NDArray[np.bool_]:
        """(n,) whether the predicted class is the true one."""
        return np.asarray(self.predicted == self.label)

    def part(self, rows: slice) -> Looked:
        """Some of the samples."""
        return Looked(self.raw[rows], self.predicted[rows], self.label[rows])


class Calibrated(NamedTuple):
    """Open-set scores of known samples that the model had not seen, and their predicted and true classes."""

    score: Floats
    predicted: Rows
    label: Rows


class Parts(NamedTuple):
    """Rows set aside to calibrate, rows to learn from, those of the latter that folds work on, and their copies."""

    aside: Rows
    rest: Rows
    working: Rows
    copies: Copies
    n_copies: int


@dataclass(frozen=True)
class Fitted:
    """Everything that predicts, and what is known of it.

    Parameters
    ----------
    observer, evidence_scale, rejector
        From embeddings to scores, evidence and one open-set score.
    calibration
        What thresholds are taken from.
    exact
        Whether that was set aside, so that the promise of a split holds.
    alike
        The same as ``calibration`` from folds that keep rows together that are alike but perhaps not copies; None if
        there are hardly any.
    held_out, report
        What held-out classes say of the rejector; and of everything.
    """

    observer: HeadWithScores
    evidence_scale: Scale
    rejector: Rejector
    calibration: Calibrated
    exact: bool
    alike: Calibrated | None
    held_out: HeldOut | None
    report: FitReport


@dataclass
class Fitting:
    """One fit.

    Parameters
    ----------
    X, y, weight
        Samples, their classes 0..C-1 or -1 for outliers, and weights or None.
    groups
        (n,) numbers of groups of rows that belong together, or None.
    classes
        (C,) labels of the classes.
    aside
        Share of the rows to set aside for calibration; 0 for none unless there are many rows.
    head, rejector, max_ofpr, folds, seen_by_encoder, scaling, n_jobs, verbose
        As for :class:`~openauc.features.OpenSetClassifier`.
    """

    X: NDArray[Any]
    y: Rows
    weight: Floats | None
    groups: Rows | None
    classes: NDArray[Any]
    aside: float
    head: Any
    rejector: Any
    max_ofpr: float | None
    folds: int
    seen_by_encoder: bool | str
    scaling: str
    rng: np.random.RandomState
    n_jobs: int | None
    verbose: bool
    notes: list[str] = field(default_factory=list)

    def run(self) -> Fitted:
        """Fit everything; small products gain nothing by threads, and lose much by them where cores are busy."""
        with threadpool_limits(1 if self.X.size < SMALL else None, user_api="blas"):
            return self._run()

    def _run(self) -> Fitted:
        known, outliers = np.flatnonzero(self.y != UNKNOWN), np.flatnonzero(self.y == UNKNOWN)
        scaling = Scaling.of(self.X, known, self.scaling)
        part = self._part_rows(known, scaling)
        rows = np.append(part.working, outliers)
        weight = None if self.weight is None else self.weight[rows]
        task = Task(self.X[rows], self.y[rows], weight, self._make_head, (), (), scaling)
        plans = self._class_plans(task.y, part.copies.groups)
        strength = self._choose_strength(task, plans)
        task = task._replace(
            make_head=partial(self._make_head, strength),
            scores=self._scores(len(part.working)),
            by_class=CONFIDENCE if self.rejector == "learned" else (),
        )
        folds = self._weighed(self._look(observe_fold, task, plans, "heads without some classes"))
        choice = self._choose(task, folds)
        gap = np.mean([fold.gap for fold in folds], axis=0) if folds else np.zeros(len(task.scores))
        folds = [_of(fold, _names(task), choice) for fold in folds]
        task, gap = _only_used(task, gap, choice.rejector)
        tried = self._with_all_rows(task, plans, folds, part, choice)
        final = self._final(task, part.rest, outliers)
        scale, calibration, alike = self._calibrate(task, final, part, choice.rejector, gap)
        if part.n_copies:
            self.notes.append(
                f"Copies or near-copies of other rows: {part.n_copies:,} of {len(known):,}. Rows that belong together "
                "were kept together in all folds, and calibration counts them once."
            )
        report = FitReport(
            n_samples=len(known),
            n_classes=len(self.classes),
            n_outliers=len(outliers),
            width=self.X.shape[1],
            head=self._name_of_head(),
            strength=strength,
            accuracy=float((calibration.predicted == calibration.label).mean()),
            chosen=choice.rejector.title,
            tried=tried,
            max_ofpr=self.max_ofpr,
            near_copies=part.n_copies,
            small_classes=self._small_classes(part),
            notes=tuple(self.notes),
        )
        exact = len(part.aside) > 0
        return Fitted(final, scale, choice.rejector, calibration, exact, alike, choice.held_out, report)

    # Rows

    def _part_rows(self, known: Rows, scaling: Scaling) -> Parts:
        """Which rows calibrate, which are learned from, and which of the latter folds work on."""
        if len(known) > LARGE:
            aside, rest, n_copies = self._set_aside_of_many(known, scaling)
            working = self._draw(rest, max(MOST_ROWS, FEWEST_OF_CLASS * len(self.classes)))
            return Parts(aside, rest, working, self._find_copies(working, scaling), n_copies)
        copies = self._find_copies(known, scaling)
        kept = ~self._set_aside(self.y[known], copies.groups)
        first = np.zeros(len(known), bool)
        first[first_rows(copies.groups, self.y[known])] = True
        of_kept = copies._replace(groups=copies.groups[kept], alike=copies.alike[kept])
        return Parts(known[~kept & first], known[kept], known[kept], of_kept, copies.n_copies)

    def _find_copies(self, rows: Rows, scaling: Scaling) -> Copies:
        """Groups of some rows; equal rows with different labels are noted."""
        given = None if self.groups is None else self.groups[rows]
        copies = find_copies(scaling.rows(self.X, rows), self.y[rows], given)
        if len(copies.conflicts):
            i, j = rows[copies.conflicts[0]].tolist()
            labels = self.classes.tolist()
            self.notes.append(
                f"{len(copies.conflicts):,} pairs of equal rows have different labels, such as rows {i} "
                f"({labels[self.y[i]]!r}) and {j} ({labels[self.y[j]]!r}); one of the two labels is wrong, or the "
                "features do not tell these classes apart."
            )
        y = self.y[rows]
        if np.bincount(y[first_rows(copies.groups, y)]).max() < 2:
            raise ValueError(
                "all rows of each class are copies of one row, or one group; at least two that are not are needed, one "
                "to learn from and one to check with."
            )
        return copies

    def _set_aside(self, y: Rows, groups: Rows) -> NDArray[np.bool_]:
        """Rows of a share of the groups, drawn from all alike; but two groups of each class stay."""
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
            aside = aside[~lost[self.y[aside]]]  # of a class that would be gone, all is learned from

    def _draw(self, rows: Rows, wanted: int, fewest: int = FEWEST_OF_CLASS) -> Rows:
        """Ascending rows: of each class its share of the wanted number, but so many at least if it has them."""
        if len(rows) <= wanted:
            return rows
        order = self.rng.permutation(rows)
        size = np.bincount(self.y[rows], minlength=len(self.classes))
        quota = np.maximum(np.rint(size * (wanted / len(rows))).astype(int), fewest)
        if not fewest:
            quota = np.minimum(quota, np.maximum(size - 2, 0))  # two stay to learn from
        by_class = np.argsort(self.y[order], kind="stable")
        turn = np.empty(len(order), np.int64)  # of its class, when a row is drawn
        turn[by_class] = np.arange(len(order)) - np.repeat(np.cumsum(size) - size, size)
        return np.sort(order[turn < quota[self.y[order]]])

    def _small_classes(self, part: Parts) -> tuple[str, ...]:
        y = self.y[part.working]
        size = np.bincount(y[first_rows(part.copies.groups, y)], minlength=len(self.classes))
        return tuple(str(label) for label in self.classes[size < SMALL_CLASS].tolist())

    # Heads and scores

    def _make_head(self, strength: float = 1.0) -> Head:
        return HEADS[self.head](strength) if isinstance(self.head, str) else EstimatorHead(self.head)

    def _name_of_head(self) -> str:
        if isinstance(self.head, str):
            return self.head
        return type(self.head.estimator if isinstance(self.head, FrozenEstimator) else self.head).__name__

    def _is_rule(self) -> bool:
        return isinstance(self.rejector, str) and self.rejector in RULES

    def _scores(self, n_rows: int) -> list[Any]:
        """Scores to look at: those that a rule compares, or the one that is wanted."""
        if not self._is_rule():
            return [self.rejector]
        enough = n_rows - len(self.classes) >= ROWS_FOR_THEM * self.X.shape[1]
        compared = AVERAGE if self.rejector == "average" else COMPARED
        scores = [name for name in compared if enough or name not in COVARIANCES]
        if (self.y == UNKNOWN).sum() >= FEWEST_OUTLIERS and self.rejector == "learned":
            scores.append(OUTLIERS)
        return scores

    def _class_plans(self, y: Rows, groups: Rows) -> list[Plan]:
        """Folds without some classes; none if there are too few. Outliers stand behind the known samples."""
        if len(self.classes) < 3:
            if self.rejector in ("learned", "selected") and self.seen_by_encoder is not True:
                self.notes.append("Two classes are too few to hold one out, so the distance to known samples rejects.")
            return []
        repeats = 1 if len(y) > MOST_REPEATED else None
        # A head that lacks few classes is most like the final one.
        folds = max(self.folds, min(len(self.classes), CLASS_FOLDS)) if len(y) <= FEW else self.folds
        splitter = PseudoUnknownSplit(folds, n_repeats=repeats, unknown_label=UNKNOWN, random_state=self.rng)
        outliers = np.flatnonzero(y == UNKNOWN)
        grouped = np.append(groups, groups.max(initial=0) + 1 + np.arange(len(outliers)))
        order = self.rng.permutation(len(outliers))
        plans = []
        first = first_rows(grouped, y)
        for number, (train, test) in enumerate(splitter.split(y, y, grouped)):
            test = np.intersect1d(test, first)  # copies count once
            # Outliers to learn from, and others to look at.
            learned = outliers[order % self.folds != number % self.folds]
            plans.append((np.append(train, learned), np.setdiff1d(test, learned)))
        return plans

    def _look(self, look: Callable[..., Any], task: Task, plans: Sequence[Plan], what: str) -> list[Any]:
        """Fit a head and scores on each plan, and look."""
        start = time.perf_counter()
        found = list(Parallel(n_jobs=self.n_jobs)(delayed(look)(task, *plan) for plan in plans))
        if self.verbose and plans:
            print(f"{len(plans)} {what}: {time.perf_counter() - start:.1f} s", flush=True)
        return found

    def _choose_strength(self, task: Task, plans: Sequence[Plan]) -> float:
        """The strength with which scores of the logits do best on some of the folds; the first unless it is behind."""
        grid = HEADS[self.head].grid if isinstance(self.head, str) else (1.0,)
        if not plans or len(grid) == 1:
            return grid[0]
        values = []
        for strength in grid:
            one = task._replace(make_head=partial(self._make_head, strength), scores=DECISIVE)
            some = self._look(observe_fold, one, plans[:STRENGTH_FOLDS], f"heads ({strength:g})")
            scores = (HeldOut(some, [fold.evidence[:, i] for fold in some]) for i in range(len(DECISIVE)))
            values.append(max(one.estimate().value for one in scores))
        values[0] += AHEAD
        return grid[int(np.argmax(values))]

    def _weighed(self, folds: Sequence[Fold]) -> list[Fold]:
        """Outliers as heavy as they are worth: they are the real thing, and few."""
        n_outliers = int((self.y == UNKNOWN).sum())
        if not n_outliers:
            return list(folds)
        heavy = []
        for fold in folds:
            played = ~fold.known & (fold.label != UNKNOWN)
            here = fold.label == UNKNOWN
            share = min(n_outliers / OUTLIERS_LIKE, 1.0)
            weight = np.where(here, share * fold.weight[played].sum() / max(here.sum(), 1), fold.weight)
            heavy.append(replace(fold, weight=weight))
        return heavy

    def _choose(self, task: Task, folds: Sequence[Fold]) -> Choice:
        start = time.perf_counter()
        choice = choose_rejector(
            folds,
            _names(task),
            name_of(self.rejector),
            n_classes=len(self.classes),
            max_ofpr=self.max_ofpr,
            misleading=self._is_rule() and self._seen_by_encoder(task, folds),
            seed=self.rng.randint(2**31),
        )
        if choice.note is not None:
            self.notes.append(choice.note)
        if self.verbose:
            print(f"rejector {choice.rejector.title}: {time.perf_counter() - start:.1f} s", flush=True)
        return choice

    def _seen_by_encoder(self, task: Task, folds: Sequence[Fold]) -> bool:
        if self.seen_by_encoder != "auto" or not folds:
            return self.seen_by_encoder is True
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
        self, task: Task, plans: Sequence[Plan], folds: Sequence[Fold], part: Parts, choice: Choice
    ) -> tuple[Tried, ...]:
        """What was tried, the best first, as it would be with heads that know all rows of their classes.

        Heads of the folds lack some rows of the known classes, which costs OpenAUC where rows are few. How much it
        grows with them is measured with heads that know half of them.
        """
        compared = (Tried(name, found.value, found.interval) for name, found in choice.estimates.items())
        tried = tuple(sorted(compared, key=lambda one: -one.openauc))
        large = len(part.rest) > len(part.working)
        if not tried or (len(part.working) > FEW and not large):
            return tried
        first = first_rows(part.copies.groups, task.y[task.y != UNKNOWN])
        size = np.bincount(task.y[first], minlength=len(self.classes))
        full = np.bincount(self.y[part.rest], minlength=len(self.classes)) if large else size
        if np.median(full) < FOR_FORECAST:
            self.notes.append(
                "Most classes have fewer than four rows: nothing is forecast, and the share of known rows accepted may "
                "be some points above the promised one."
            )
            return ()
        gains = []
        for (train, test), fold in list(zip(plans, folds, strict=True))[:HALF_FOLDS]:
            known = np.intersect1d(train, first)
            rank = rank_within(task.y[known], self.rng)
            count = np.bincount(task.y[known], minlength=len(self.classes))
            alone = count[task.y[known]] == 1
            kept = known[alone | (np.rint(rank * count[task.y[known]]) < np.maximum(size // 2, 1)[task.y[known]])]
            (less,) = self._look(observe_fold, task, [(np.append(kept, train[task.y[train] == UNKNOWN]), test)], "head")
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
        self, task: Task, final: HeadWithScores, part: Parts, rejector: Rejector, gap: Floats
    ) -> tuple[Scale, Calibrated, Calibrated | None]:
        """The scale of the evidence, what thresholds are taken from, and the same with larger groups."""
        large = len(part.rest) > len(part.working)
        if large:
            looked = self._look_aside(final, part.aside)
            n_scale = int(FOR_SCALE * len(part.aside))
            scale, _ = self._standardise(looked.part(slice(n_scale)), task)
            return scale, _score(looked.part(slice(n_scale, None)), scale, rejector), None
        looked = self._cross_fit(task, part.copies.groups, gap)
        scale, evidence = self._standardise(looked, task)
        if len(part.aside):
            return scale, _score(self._look_aside(final, part.aside), scale, rejector), None
        calibration = Calibrated(rejector(evidence), looked.predicted, looked.label)
        if part.copies.share_alike <= SOME_ALIKE:
            return scale, calibration, None
        return scale, calibration, _score(self._cross_fit(task, part.copies.alike, gap), scale, rejector)

    def _cross_fit(self, task: Task, groups: Rows, gap: Floats) -> Looked:
        """One known row of each group as a head sees it that was not trained on the group.

        The final head knows more rows, so its scores of new samples are lower. How much lower is measured, where rows
        are few, with heads that know only half of them: scores fall like one over the number of rows.
        """
        looked, seen = self._dealt(task, groups, max(self.folds, MANY_PARTS) if len(groups) <= FEW else self.folds)
        if len(groups) > FEW:
            return looked
        half, seen_by_half = self._dealt(task, groups, 2)
        y = looked.label
        first = first_rows(groups, task.y[task.y != UNKNOWN])
        size = np.bincount(task.y[first], minlength=len(self.classes))[y]
        worth = np.empty(looked.raw.shape)
        for of_all in (False, True):
            full = len(first) if of_all else size
            m, m_half = (rows.sum(1) if of_all else rows[np.arange(len(y)), y] for rows in (seen, seen_by_half))
            missing, lost = 1.0 / m - 1.0 / full, float((1.0 / m_half - 1.0 / m).mean())
            columns = task.pooled == of_all
            if lost > 0:
                fall = (half.raw - looked.raw)[:, columns].mean(0) / lost
                worth[:, columns] = np.outer(missing, fall)
            else:  # Two rows a class: from none of them, where scores are higher by the gap, like 1 / (m + 1).
                worth[:, columns] = np.outer((full - m) / (m * (full + 1.0)), gap[columns])
        return looked._replace(raw=looked.raw - worth)

    def _dealt(self, task: Task, groups: Rows, parts: int) -> tuple[Looked, Rows]:
        """One row of each group, seen by a head without its part; and (n, C) how many groups of each class it knows."""
        y = task.y[task.y != UNKNOWN]
        part = deal(y, groups, parts, self.rng)
        first = first_rows(groups, y)
        once = np.zeros(len(y), bool)
        once[first] = True
        once &= part >= 0
        in_training = np.append(part, np.full(len(task.y) - len(y), -1))
        plans = [(np.flatnonzero(in_training != k), np.flatnonzero(once & (part == k))) for k in np.unique(part[once])]
        found: list[Observed] = self._look(observe_rest, task, plans, "heads without some samples")
        raw, predicted = np.empty((len(y), len(task.scores))), np.empty(len(y), np.int64)
        known = np.empty((len(y), len(self.classes)), np.int64)
        for (_, rows), seen in zip(plans, found, strict=True):
            raw[rows], predicted[rows] = seen
            known[rows] = np.bincount(y[first][part[first] != part[rows[0]]], minlength=len(self.classes))
        return Looked(raw[once], predicted[once], y[once]), known[once]

    def _standardise(self, looked: Looked, task: Task) -> tuple[Scale, Floats]:
        return standardise(
            looked.raw, looked.predicted, looked.correct, n_classes=len(self.classes), columns=task.columns
        )

    def _final(self, task: Task, rows: Rows, outliers: Rows) -> HeadWithScores:
        head = task.make_head()
        if isinstance(head, EstimatorHead) and is_fitted(self.head):
            head.adopt(self.classes)
        else:
            weight = None if self.weight is None else self.weight[rows]
            head.fit(task.scaling.rows(self.X, rows) if head.scaled else self.X[rows], self.y[rows], weight)
        some = np.append(self._draw(rows, MOST_SCORED), outliers)
        return HeadWithScores.fit(head, self.X[some], self.y[some], task.scores, task.scaling)

    def _look_aside(self, final: HeadWithScores, rows: Rows) -> Looked:
        """Rows that were set aside, as the final head sees them."""
        raw, logits = final(self.X[rows])
        return Looked(raw, logits.argmax(1), self.y[rows])


def _names(task: Task) -> list[str]:
    """Of the columns of evidence."""
    return [*(name_of(score) for score in task.scores), *(name + BY_CLASS for name in task.by_class)]


def _of(fold: Fold, names: Sequence[str], choice: Choice) -> Fold:
    """The fold with the columns that the rejector looks at."""
    return replace(fold, evidence=fold.evidence[:, [names.index(name) for name in choice.rejector.names]])


def _only_used(task: Task, gap: Floats, rejector: Rejector) -> tuple[Task, Floats]:
    """The task with the scores that the rejector looks at, in its order, and their gaps."""
    by_class = [name.removesuffix(BY_CLASS) for name in rejector.names if name.endswith(BY_CLASS)]
    names = [name_of(score) for score in task.scores]
    used = [names.index(name) for name in rejector.names if not name.endswith(BY_CLASS)]
    return task._replace(scores=[task.scores[i] for i in used], by_class=by_class), gap[used]


def _score(looked: Looked, scale: Scale, rejector: Rejector) -> Calibrated:
    return Calibrated(rejector(scale(looked.raw, looked.predicted)), looked.predicted, looked.label)


def spread_ratio(X: NDArray[Any], y: Rows) -> tuple[float, float]:
    """Variance of the features inside classes over that of the class means, and its upper limit (two standard errors).

    Both variances are estimated as components: sums of squares over their degrees of freedom, and what the means vary
    because classes have few samples is taken off. The error is that of a jackknife over the classes.
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
