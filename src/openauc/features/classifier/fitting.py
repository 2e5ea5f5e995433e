"""How an OpenSetClassifier is fitted: folds without some classes, folds without some samples, then everything."""

from __future__ import annotations

import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray

from openauc._validation import UNKNOWN
from openauc.features.classifier.copies import Copies, copies_of, find_copies, first_rows
from openauc.features.classifier.evidence import (
    BY_CLASS,
    OUTLIERS,
    EvidenceScale,
    Fold,
    HeadWithScores,
    Scored,
    Task,
    fit_and_score,
    fit_fold,
    name_of,
    standardise,
)
from openauc.features.classifier.explanation import Examples
from openauc.features.classifier.heads import HEADS, EstimatorHead, Head, is_fitted, thawed
from openauc.features.classifier.rejector import AVERAGE, CONFIDENCE, Choice, Rejector, choose_rejector, estimate
from openauc.features.classifier.report import FitReport, Tried
from openauc.features.classifier.scaling import Scaling
from openauc.features.classifier.splits import HeldOutSplit, deal, random_turns
from openauc.features.scores.base import REJECTORS, Floats, Rows
from openauc.features.scores.distance import spread_ratio, turns_in_class
from openauc.features.scores.registry import SCORES

if TYPE_CHECKING:
    from openauc.features.classifier.estimator import OpenSetClassifier

Plan = tuple[Rows, Rows]  # training rows and test rows of one head

LEFT_OUT = ("knn_50", "mahalanobis", "relative_mahalanobis", "vim", "fdbd", "norm", "react", "scale")
"""Scores that are used only if asked for by name: similar to others on embeddings, slow, or made for networks."""
COMPARED = tuple(name for name in SCORES if name not in LEFT_OUT)  # scores that are compared on held-out classes
COVARIANCES, ROWS_FOR_THEM = ("mahalanobis_pp", "relative_mahalanobis_pp"), 0.25
"""Scores that are left out if there are fewer rows than this for each feature: they would change with every row."""
STRENGTH_FOLDS, DECISIVE, AHEAD = 3, ("max_logit", "entropy"), 0.002
"""Folds and scores that choose the strength of the head: keep the default unless another gains this much OpenAUC."""
SPLIT_SHARE = 0.2  # share of the rows that `calibration="split"` sets aside
LARGE = 20_000
"""With more rows than this, some rows are set aside to calibrate, and the folds use only a part of the others."""
MOST_ROWS, FEWEST_OF_CLASS = 10_000, 20
"""Rows that the folds then use; more, if needed, to keep this many of each class."""
ASIDE, ASIDE_SHARE, FOR_SCALE = 5_000, 0.1, 0.2
"""Rows then set aside, as a number and as a share (the smaller one counts); the share of them for the scale."""
MOST_SCORED = 50_000  # most rows that the scores of the final head are fitted on
MOST_REPEATED = 10_000  # most rows for which folds without some classes are repeated where classes are few
FEW, MANY_PARTS, CLASS_FOLDS = 5_000, 10, 12
"""Up to this many rows, the rows are cut into at least MANY_PARTS, and the classes into up to CLASS_FOLDS."""
FOR_FORECAST, HALF_FOLDS = 4, 5
"""Rows that most classes need for a forecast; folds that measure the gain from more rows."""
FEWEST_OUTLIERS, OUTLIERS_LIKE = 5, 50.0
"""Outliers needed for a score of their own; number at which they weigh as much as all held-out samples."""
SOME_ALIKE = 0.02  # share of similar rows from which calibration is repeated with larger groups
SMALL_CLASS = 10  # a class with fewer rows (copies count once) is too small for a guarantee of its own
COLLAPSED, NEAR_PERFECT = 0.9, 0.95
"""Variance inside classes over that between them, and accuracy: signs of an encoder trained on these samples.

The ratio was 0.7 for training samples of a published TinyImageNet network, 1.2 to 1.5 for CLINC150 (MiniLM),
1.3 for digits (pixels), 5.7 for CIFAR-10 (EfficientNet-Lite0). Columns of a table are not an embedding.
"""


class RowSplit(NamedTuple):
    """Rows of known classes: set aside to calibrate, to learn from, those of the latter that the folds use."""

    aside: Rows
    rest: Rows
    working: Rows
    copies: Copies  # among the working rows
    n_copies: int

    @property
    def large(self) -> bool:
        return len(self.rest) > len(self.working)


@dataclass
class Fitting:
    """One fit: sets the attributes of a classifier whose parameters and classes are given."""

    model: OpenSetClassifier
    X: NDArray[Any]
    y: Rows  # 0..C-1, or -1 for outliers
    weight: Floats | None
    groups: Rows  # numbers of groups of rows that belong together
    rng: np.random.RandomState
    notes: list[str] = field(default_factory=list)

    def run(self) -> tuple[Scored, Scored | None]:
        """Scores to calibrate with, and the same with larger groups of similar rows, None if hardly any are similar."""
        model = self.model
        known, outliers = np.flatnonzero(self.y != UNKNOWN), np.flatnonzero(self.y == UNKNOWN)
        scaling = Scaling.of(self.X, known, model.scaling)
        split = self._split_rows(known, scaling)
        rows = np.append(split.working, outliers)
        weight = None if self.weight is None else self.weight[rows]
        task = Task(self.X[rows], self.y[rows], weight, partial(_make_head, model.head), (), (), scaling)
        plans = self._class_plans(task.y, split.copies.groups)
        strength = self._choose_strength(task, plans)
        task = task._replace(
            make_head=partial(_make_head, model.head, strength),
            scores=self._scores(len(split.working)),
            by_class=CONFIDENCE if model.rejector == "learned" else (),
        )
        folds = self._weigh_outliers(self._fit_all(fit_fold, task, plans, "heads without some classes"))
        choice = self._choose(task, folds)
        gap = np.mean([fold.gap for fold in folds], axis=0) if folds else np.zeros(len(task.scores))
        # From here on, the scores that the rejector uses, in its order.
        columns = [task.names.index(name) for name in choice.rejector.names]
        plain = [column for column in columns if column < len(task.scores)]
        by_class = [name for name in task.by_class if name + BY_CLASS in choice.rejector.names]
        folds = [replace(fold, evidence=fold.evidence[:, columns]) for fold in folds]
        task = task._replace(scores=[task.scores[column] for column in plain], by_class=by_class)
        tried = self._with_all_rows(task, plans, folds, split, choice)
        final = self._fit_final(task, split.rest, outliers)
        scale, calibration, alike = self._calibrate(task, final, split, choice.rejector, gap[plain])
        if split.n_copies:
            self.notes.append(
                f"Copies or near-copies of other rows: {split.n_copies:,} of {len(known):,}. Rows that belong together "
                "were kept together in all folds, and calibration counts them once."
            )
        small = self._sizes(task.y[first_rows(split.copies.groups, self.y[split.working])]) < SMALL_CLASS
        model.head_with_scores_, model.evidence_scale_, model.rejector_ = final, scale, choice.rejector
        model.report_ = FitReport(
            n_samples=len(known),
            n_classes=len(model.classes_),
            n_outliers=len(outliers),
            width=self.X.shape[1],
            head=name_of(thawed(model.head)),
            strength=strength,
            accuracy=float(calibration.correct.mean()),
            chosen=choice.rejector.title,
            tried=tried,
            max_ofpr=model.max_ofpr,
            near_copies=split.n_copies,
            small_classes=tuple(str(label) for label in model.classes_[small].tolist()),
            notes=tuple(self.notes),
        )
        model.calibration_kind_ = "split" if len(split.aside) else "cross"
        kinds = [np.where(fold.known, np.where(fold.correct, 0, 1), -1) for fold in folds[: len(choice.scores)]]
        model.held_out_scores_ = np.concatenate([np.empty(0), *choice.scores])
        model.held_out_kinds_ = np.concatenate([np.empty(0), *kinds]).astype(np.int8)
        return calibration, alike

    def _sizes(self, y: Rows) -> Rows:
        """(C,) number of rows of each class."""
        return np.bincount(y, minlength=len(self.model.classes_))

    def _split_rows(self, known: Rows, scaling: Scaling) -> RowSplit:
        share = SPLIT_SHARE if self.model.calibration == "split" else 0.0
        if len(known) > LARGE:
            aside, rest, n_copies = self._set_aside_of_many(known, share, scaling)
            working = self._draw(rest, max(MOST_ROWS, FEWEST_OF_CLASS * len(self.model.classes_)))
            return RowSplit(aside, rest, working, self._find_copies(working, scaling), n_copies)
        copies = self._find_copies(known, scaling)
        kept = ~self._set_aside(self.y[known], copies.groups, share)
        first = np.zeros(len(known), bool)
        first[first_rows(copies.groups, self.y[known])] = True
        of_kept = copies._replace(groups=copies.groups[kept], alike=copies.alike[kept])
        return RowSplit(known[~kept & first], known[kept], known[kept], of_kept, copies.n_copies)

    def _find_copies(self, rows: Rows, scaling: Scaling) -> Copies:
        """Groups of some rows; equal rows with different labels are noted."""
        y = self.y[rows]
        copies = find_copies(scaling.rows(self.X, rows), y, self.groups[rows])
        if len(copies.conflicts):
            i, j = rows[copies.conflicts[0]].tolist()
            labels = self.model.classes_.tolist()
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

    def _set_aside(self, y: Rows, groups: Rows, share: float) -> NDArray[np.bool_]:
        """Rows of a share of the groups, each as likely as any other; two groups of each class stay."""
        if not share:
            return np.zeros(len(y), bool)
        first = first_rows(groups, y)
        left = self._sizes(y[first]) - 2
        classes_of: defaultdict[int, list[int]] = defaultdict(list)
        for row in first:
            classes_of[int(groups[row])].append(int(y[row]))
        wanted = int(np.ceil(share * len(classes_of)))
        chosen: list[int] = []
        for group in self.rng.permutation(list(classes_of)):
            if len(chosen) < wanted and (left[classes_of[group]] > 0).all():
                chosen.append(group)
                left[classes_of[group]] -= 1
        return np.isin(groups, chosen)

    def _set_aside_of_many(self, known: Rows, share: float, scaling: Scaling) -> tuple[Rows, Rows, int]:
        """Rows to calibrate with, the rows to learn from, and how many copies of the first are in neither."""
        aside = self._draw(known, int(share * len(known)) or min(ASIDE, int(ASIDE_SHARE * len(known))), fewest=0)
        # One row of a group; the rest of the group is not learned from.
        aside = aside[np.unique(self.groups[aside], return_index=True)[1]]
        while True:
            rest = known[~np.isin(self.groups[known], self.groups[aside])]
            leaked = copies_of(self.X, self.y, aside, rest, scaling)
            lost = self._sizes(self.y[rest[~leaked]]) < 2
            if not lost[self.y[aside]].any():
                return self.rng.permutation(aside), rest[~leaked], int(leaked.sum())
            aside = aside[~lost[self.y[aside]]]  # all rows of a class that would be gone are learned from

    def _draw(self, rows: Rows, wanted: int, fewest: int = FEWEST_OF_CLASS) -> Rows:
        """Ascending rows: of each class its share of the wanted number, and at least ``fewest`` if it has them."""
        if len(rows) <= wanted:
            return rows
        order = self.rng.permutation(rows)
        size = self._sizes(self.y[rows])
        quota = np.maximum(np.rint(size * (wanted / len(rows))).astype(int), fewest)
        if not fewest:
            quota = np.minimum(quota, np.maximum(size - 2, 0))  # two stay to learn from
        return np.sort(order[turns_in_class(self.y[order]) < quota[self.y[order]]])

    def _scores(self, n_rows: int) -> list[Any]:
        """Scores to compare, or the one that is wanted."""
        rejector = self.model.rejector
        if name_of(rejector) not in REJECTORS:
            return [rejector]
        enough = n_rows - len(self.model.classes_) >= ROWS_FOR_THEM * self.X.shape[1]
        compared = AVERAGE if rejector == "average" else COMPARED
        scores = [name for name in compared if enough or name not in COVARIANCES]
        if (self.y == UNKNOWN).sum() >= FEWEST_OUTLIERS and rejector == "learned":
            scores.append(OUTLIERS)
        return scores

    def _class_plans(self, y: Rows, groups: Rows) -> list[Plan]:
        """Folds without some classes; none if there are too few. Outliers come after the known samples."""
        n_classes, parts = len(self.model.classes_), self.model.folds
        if n_classes < 3:
            if self.model.rejector in ("learned", "selected") and self.model.seen_by_encoder is not True:
                self.notes.append("Two classes are too few to hold one out, so the distance to known samples rejects.")
            return []
        # A head that lacks few classes is most like the final one.
        folds = max(parts, min(n_classes, CLASS_FOLDS)) if len(y) <= FEW else parts
        repeats = 1 if len(y) > MOST_REPEATED else None
        splitter = HeldOutSplit(folds, n_repeats=repeats, unknown_label=UNKNOWN, random_state=self.rng)
        outliers = np.flatnonzero(y == UNKNOWN)
        grouped = np.append(groups, groups.max(initial=0) + 1 + np.arange(len(outliers)))
        order = self.rng.permutation(len(outliers))
        plans = []
        first = first_rows(grouped, y)
        for number, (train, test) in enumerate(splitter.split(y, y, grouped)):
            test = np.intersect1d(test, first)  # copies count once
            learned = outliers[order % parts != number % parts]  # the other outliers are in the test part
            plans.append((np.append(train, learned), np.setdiff1d(test, learned)))
        return plans

    def _fit_all(self, fit: Callable[..., Any], task: Task, plans: Sequence[Plan], what: str) -> list[Any]:
        start = time.perf_counter()
        found = list(Parallel(n_jobs=self.model.n_jobs)(delayed(fit)(task, *plan) for plan in plans))
        if plans:
            self._say(f"{len(plans)} {what}", start)
        return found

    def _say(self, done: str, start: float) -> None:
        verbose = self.model.verbose
        sentence = f"{done}: {time.perf_counter() - start:.1f} s"
        if callable(verbose):
            verbose(sentence)
        elif verbose:
            print(sentence, flush=True)

    def _choose_strength(self, task: Task, plans: Sequence[Plan]) -> float:
        head = self.model.head
        grid = HEADS[head].grid if isinstance(head, str) else (1.0,)
        if not plans or len(grid) == 1:
            return grid[0]
        values = []
        for strength in grid:
            one = task._replace(make_head=partial(_make_head, head, strength), scores=DECISIVE)
            some = self._fit_all(fit_fold, one, plans[:STRENGTH_FOLDS], f"heads ({strength:g})")
            columns = ([fold.evidence[:, i] for fold in some] for i in range(len(DECISIVE)))
            values.append(max(estimate(some, scores).value for scores in columns))
        values[0] += AHEAD
        return grid[int(np.argmax(values))]

    def _weigh_outliers(self, folds: Sequence[Fold]) -> list[Fold]:
        """Folds in which outliers have more weight: they are real unknown samples, and few."""
        share = min((self.y == UNKNOWN).sum() / OUTLIERS_LIKE, 1.0)
        heavy = []
        for fold in folds:
            outlier = fold.label == UNKNOWN
            held_out = fold.weight[~fold.known & ~outlier].sum()
            weight = np.where(outlier, share * held_out / max(outlier.sum(), 1), fold.weight)
            heavy.append(replace(fold, weight=weight))
        return heavy

    def _choose(self, task: Task, folds: Sequence[Fold]) -> Choice:
        start = time.perf_counter()
        wanted = name_of(self.model.rejector)
        choice = choose_rejector(
            folds,
            task.names,
            wanted,
            n_classes=len(self.model.classes_),
            max_ofpr=self.model.max_ofpr,
            misleading=wanted in REJECTORS and self._seen_by_encoder(task, folds),
            seed=self.rng.randint(2**31),
        )
        if choice.note is not None:
            self.notes.append(choice.note)
        self._say(f"rejector {choice.rejector.title}", start)
        return choice

    def _seen_by_encoder(self, task: Task, folds: Sequence[Fold]) -> bool:
        if self.model.seen_by_encoder != "auto" or not folds:
            return self.model.seen_by_encoder is True
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
        warnings.warn(sentence, stacklevel=5)
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
        size = self._sizes(task.y[first])
        full = self._sizes(self.y[split.rest]) if split.large else size
        if np.median(full) < FOR_FORECAST:
            self.notes.append(
                "Most classes have fewer than four rows: nothing is forecast, and the share of known rows accepted may "
                "be some points above the one asked for."
            )
            return ()
        gains = []
        for (train, test), fold in zip(plans[:HALF_FOLDS], folds[:HALF_FOLDS], strict=True):
            known = np.intersect1d(train, first)
            y = task.y[known]
            kept = known[random_turns(y, self.rng) < np.maximum(size // 2, 1)[y]]
            train = np.append(kept, train[task.y[train] == UNKNOWN])
            (less,) = self._fit_all(fit_fold, task, [(train, test)], "head")
            present = np.unique(y)
            m, m_half = self._sizes(y)[present], self._sizes(task.y[kept])[present]
            lost = float((1.0 / m_half - 1.0 / m).mean())
            value, value_half = (
                estimate([one], [choice.rejector(one.evidence)], self.model.max_ofpr).value for one in (fold, less)
            )
            if lost > 0:
                gains.append((value - value_half) * float((1.0 / m - 1.0 / full[present]).mean()) / lost)
        gain = max(float(np.mean(gains)), 0.0) if gains else 0.0
        return tuple(one.shifted(gain) for one in tried)

    def _fit_final(self, task: Task, rows: Rows, outliers: Rows) -> HeadWithScores:
        head = task.make_head()
        if isinstance(head, EstimatorHead) and is_fitted(self.model.head):
            head.adopt(self.model.classes_)
        else:
            weight = None if self.weight is None else self.weight[rows]
            head.fit(task.scaling.rows(self.X, rows) if head.scaled else self.X[rows], self.y[rows], weight)
        known = self._draw(rows, MOST_SCORED)
        examples = Examples.draw(self.X, self.y, known, task.scaling)
        self.model.examples_ = examples._replace(size=self._sizes(self.y[rows]))
        some = np.append(known, outliers)
        return HeadWithScores.fit(head, self.X[some], self.y[some], task.scores, task.scaling)

    def _calibrate(
        self, task: Task, final: HeadWithScores, split: RowSplit, rejector: Rejector, gap: Floats
    ) -> tuple[EvidenceScale, Scored, Scored | None]:
        """The scale of the evidence, the scores for thresholds, and the same with larger groups."""

        def scale_of(some: Scored) -> tuple[EvidenceScale, Floats]:
            n_classes = len(self.model.classes_)
            return standardise(some.scores, some.predicted, some.correct, n_classes=n_classes, columns=task.columns)

        def judged(some: Scored) -> Scored:
            return some._replace(scores=rejector(scale(some.scores, some.predicted)))

        if len(split.aside):
            raw, logits = final(self.X[split.aside])
            aside = Scored(raw, logits.argmax(1), self.y[split.aside])
            if split.large:
                n_scale = int(FOR_SCALE * len(split.aside))
                scale, _ = scale_of(aside.part(slice(n_scale)))
                return scale, judged(aside.part(slice(n_scale, None))), None
        scored = self._cross_fit(task, split.copies.groups, gap)
        scale, evidence = scale_of(scored)
        if len(split.aside):
            return scale, judged(aside), None
        calibration = scored._replace(scores=rejector(evidence))
        alike, y = split.copies.alike, task.y[task.y != UNKNOWN]
        if split.copies.share_alike <= SOME_ALIKE or self._sizes(y[first_rows(alike, y)]).max() < 2:
            return scale, calibration, None
        return scale, calibration, judged(self._cross_fit(task, alike, gap))

    def _cross_fit(self, task: Task, groups: Rows, gap: Floats) -> Scored:
        """One known row of each group, scored by a head that was not trained on the group.

        The final head knows more rows, so its scores of new samples are lower. Where rows are few, the difference is
        measured with heads that know only half of them: scores fall like one over the number of rows.
        """
        parts = self.model.folds
        scored, n_known = self._deal(task, groups, max(parts, MANY_PARTS) if len(groups) <= FEW else parts)
        if len(groups) > FEW:
            return scored
        half, n_known_by_half = self._deal(task, groups, 2)
        y = scored.label
        size = self._sizes(task.y[first_rows(groups, task.y[task.y != UNKNOWN])])
        correction = np.empty(scored.scores.shape)
        for of_all in (False, True):
            full = size.sum() if of_all else size[y]
            m, m_half = (rows.sum(1) if of_all else rows[np.arange(len(y)), y] for rows in (n_known, n_known_by_half))
            missing, lost = 1.0 / m - 1.0 / full, float((1.0 / m_half - 1.0 / m).mean())
            columns = task.pooled == of_all
            if lost > 0:
                fall = (half.scores - scored.scores)[:, columns].mean(0) / lost
                correction[:, columns] = np.outer(missing, fall)
            else:  # Two rows a class: from none of them, where scores are higher by the gap, like 1 / (m + 1).
                correction[:, columns] = np.outer((full - m) / (m * (full + 1.0)), gap[columns])
        return scored._replace(scores=scored.scores - correction)

    def _deal(self, task: Task, groups: Rows, parts: int) -> tuple[Scored, Rows]:
        """One row of each group, from a head without its part; and (n, C) how many groups of each class it knows."""
        y = task.y[task.y != UNKNOWN]
        part = deal(y, groups, parts, self.rng)
        first = first_rows(groups, y)
        once = first[part[first] >= 0]
        in_training = np.append(part, np.full(len(task.y) - len(y), -1))
        plans = [(np.flatnonzero(in_training != k), once[part[once] == k]) for k in np.unique(part[once])]
        found: list[Scored] = self._fit_all(fit_and_score, task, plans, "heads without some samples")
        n_known = [self._sizes(y[first][part[first] != part[rows[0]]]) for _, rows in plans]
        order = np.argsort(np.concatenate([rows for _, rows in plans]))
        scored = Scored(*(np.concatenate(one)[order] for one in zip(*found, strict=True)))
        return scored, np.repeat(n_known, [len(rows) for _, rows in plans], axis=0)[order]


def _make_head(head: Any, strength: float = 1.0) -> Head:
    return HEADS[head](strength) if isinstance(head, str) else EstimatorHead(head)
