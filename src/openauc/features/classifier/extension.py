"""Classes, and rows of known classes, that a fitted classifier learns later.

The model needs none of the data it was fitted on but the rows it keeps. Weights of the other classes stay, and so do
their logits: a row changes its class only if an added row's class takes it. Scores get further references and class
means. The rejector stays; the scale of its evidence follows what the scores change for the kept rows, so calibration
scores of fit hold on, and those of the added rows come from models that have not seen them.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import column_or_1d

from openauc._validation import UNKNOWN, check_same_length, named
from openauc.features.classifier.copies import find_copies, first_rows
from openauc.features.classifier.evidence import USUAL_ROWS, EvidenceScale, HeadWithScores, Scored
from openauc.features.classifier.explanation import LARGEST, Examples
from openauc.features.classifier.fitting import SMALL_CLASS
from openauc.features.classifier.heads import Head
from openauc.features.classifier.labels import spelled_alike
from openauc.features.classifier.report import GUARANTEE_ROOM
from openauc.features.classifier.splits import deal
from openauc.features.scores.base import Floats, Rows

if TYPE_CHECKING:
    from openauc.features.classifier.estimator import OpenSetClassifier

PARTS = 5  # into which added rows are cut: each is scored by a model that has not seen its part


class Data(NamedTuple):
    """The rows that a model keeps and, after them, the added ones."""

    features: NDArray[Any]  # scaled
    y: Rows
    weight: Floats
    added: NDArray[np.bool_]

    @classmethod
    def of(cls, kept: Examples, features: NDArray[Any], y: Rows) -> Data:
        """A kept row stands for others of its class; a new class weighs as much as half of the others do."""
        n_old = len(kept.size)
        of_kept = kept.size / np.maximum(np.bincount(kept.label, minlength=n_old), 1)
        of_added = np.maximum(np.median(kept.size) / np.maximum(np.bincount(y), 1), 1.0)
        of_added[:n_old] = 1.0
        return cls(
            np.concatenate([kept.features, features]),
            np.concatenate([kept.label, y]),
            np.concatenate([of_kept[kept.label], of_added[y]]),
            np.repeat([False, True], [len(kept.label), len(y)]),
        )

    def without(self, rows: Rows) -> Data:
        """Without some of the added rows; the others of their classes weigh more."""
        left = np.ones(len(self.y), bool)
        left[rows] = False
        all_of_it, rest = (
            np.bincount(self.y[some], minlength=self.y.max() + 1) for some in (self.added, self.added & left)
        )
        gain = np.where(self.added, (all_of_it / np.maximum(rest, 1))[self.y], 1.0)
        return Data(self.features[left], self.y[left], (self.weight * gain)[left], self.added[left])


def add_classes(classifier: OpenSetClassifier, X: NDArray[Any], y: ArrayLike, names: ArrayLike | None) -> None:
    """Let a fitted classifier learn (n, d) features of new classes, or more of known ones."""
    fitted, kept, report = classifier.head_with_scores_, _kept(classifier), classifier.report_
    check_same_length(X=X, y=np.asarray(y), **({} if names is None else {"names": np.asarray(names)}))
    labels, features = _checked_labels(classifier, y), fitted.scaling(X)
    if len(far := np.flatnonzero(~(np.abs(features) < LARGEST).all(axis=1))):
        raise ValueError(f"X holds too large numbers to learn from, in sample {far[0]}; leave it out, or mend it.")
    new = _new_rows(classifier, kept, features, labels)
    features, labels = features[new], labels[new]
    names = None if names is None else np.asarray(names)[new]
    n_old = len(classifier.classes_)
    added = np.setdiff1d(labels, classifier.classes_)
    classes = np.append(classifier.classes_, added)
    place = {label: index for index, label in enumerate(classes.tolist())}
    code = np.array([place[label] for label in labels.tolist()])

    data = Data.of(kept, features, code)
    final = extended(fitted, data)
    groups = find_copies(features, code).groups
    some = cross_scored(fitted, data, groups, check_random_state(classifier.random_state))
    before, after = (scored(one, kept.features, kept.label) for one in (fitted, final))
    scale = rescaled(classifier.evidence_scale_, before, after, data.weight[~data.added], some, len(classes))
    calibration = classifier.rejector_(scale(some.scores, some.predicted))
    n = len(classifier.calibration_scores_)
    is_later = (some.label >= n_old) | np.isin(some.label, classifier.calibration_later_)
    changed = copy(classifier)
    changed.classes_, changed.head_with_scores_, changed.evidence_scale_ = classes, final, scale
    changed.examples_ = kept.extended(
        features, code, max(report.n_samples + report.n_outliers, kept.row.max() + 1), names
    )
    changed._take_calibration(
        np.append(classifier.calibration_scores_, calibration),
        np.append(classifier.calibration_classes_, some.predicted),
        "cross",
        np.append(classifier.calibration_later_, np.where(is_later, some.label, UNKNOWN)),
    )
    size = np.bincount(code[first_rows(groups, code)], minlength=len(classes))
    small = [str(label) for label in classes[n_old:][size[n_old:] < SMALL_CLASS].tolist()]
    changed.report_ = replace(
        report,
        n_samples=report.n_samples + len(code),
        n_added=report.n_added + len(code),
        n_classes=len(classes),
        accuracy=float((report.accuracy * n + some.correct.sum()) / (n + len(some.label))),
        small_classes=(*report.small_classes, *small),
        notes=(
            *report.notes,
            *_notes(classifier, changed, before, after, added, len(code)),
            *_accepted(classifier, changed, calibration, some),
        ),
    )
    classifier.__dict__.update(vars(changed))


def extended(fitted: HeadWithScores, data: Data) -> HeadWithScores:
    """Head and scores that also know the added rows."""
    added = np.flatnonzero(data.added)
    head = fitted.head.extended(data.features, data.y, data.weight, np.unique(data.y[added]))
    logits, scores = head.logits(data.features), {}
    for name, score in fitted.scores.items():
        features = data.features if getattr(score, "centred", True) else fitted.scaling.uncentred(data.features)
        knows_how = hasattr(score, "extended")  # a function has nothing to learn
        scores[name] = score.extended(features, logits, data.y, data.weight, added) if knows_how else score
    return HeadWithScores(head, scores, fitted.scaling)


def scored(fitted: HeadWithScores, features: NDArray[Any], label: Rows) -> Scored:
    """Raw scores of scaled features."""
    logits = fitted.head.logits(features)
    return Scored(fitted.raw(features, logits), logits.argmax(1), label)


def cross_scored(fitted: HeadWithScores, data: Data, groups: Rows, rng: np.random.RandomState) -> Scored:
    """One added row of each group of copies, scored by a model that has not seen the group."""
    added = np.flatnonzero(data.added)
    features, y = data.features[added], data.y[added]
    part, first = deal(y, groups, PARTS, rng), first_rows(groups, y)
    found = [scored(fitted, features[:0], y[:0])]
    for number in range(PARTS):
        test = first[part[first] == number]
        if len(test):
            found.append(scored(extended(fitted, data.without(added[part == number])), features[test], y[test]))
    return Scored(*(np.concatenate(one) for one in zip(*found, strict=True)))


def rescaled(
    scale: EvidenceScale, before: Scored, after: Scored, weight: Floats, added: Scored, n_classes: int
) -> EvidenceScale:
    """The scale of evidence by the extended model, from what it changes for the kept rows.

    ``before`` and ``after`` are the raw scores of these rows, ``added`` those of the added rows, which give new classes
    their usual values.
    """
    n_old, at = len(scale.usual), scale.columns
    both = before.correct & after.correct
    weight, label, old, now = weight[both], before.label[both], before.scores[both], after.scores[both]
    usual = np.zeros((n_classes, len(at)))
    if len(at):
        change = np.average(now - old, axis=0, weights=weight)
        np.add.at(usual, label, (now - old - change)[:, at])
        usual[:n_old] = scale.usual + usual[:n_old] / (np.bincount(label, minlength=n_old)[:, None] + USUAL_ROWS)
        new = added.correct & (added.label >= n_old)
        np.add.at(usual, added.label[new], (added.scores[new] - scale.mean[: old.shape[1]] - change)[:, at])
        usual[n_old:] /= np.bincount(added.label[new], minlength=n_classes)[n_old:, None] + USUAL_ROWS

    def moments(raw: Floats, usual: Floats) -> tuple[Floats, Floats]:
        wide = np.concatenate([raw, raw[:, at] - usual[label]], axis=1)
        mean = np.average(wide, axis=0, weights=weight)
        return mean, np.sqrt(np.average((wide - mean) ** 2, axis=0, weights=weight))

    (mean, deviation), (new_mean, new_deviation) = moments(old, scale.usual), moments(now, usual)
    varies = (deviation > 0) & (new_deviation > 0)
    ratio = np.divide(new_deviation, deviation, out=np.ones(len(mean)), where=varies)
    return EvidenceScale(scale.mean + new_mean - mean, scale.deviation * ratio, at, usual)


def _kept(classifier: OpenSetClassifier) -> Examples:
    """The rows that the classifier keeps, if it can learn beside them."""
    head = classifier.head_with_scores_.head
    if type(head).extended is Head.extended or not head.scaled:
        raise ValueError(
            "the head is an estimator of your own, which cannot learn classes later; fit on all rows, or with "
            "head='logistic', 'class_mean' or 'mlp'."
        )
    if not hasattr(classifier, "examples_"):
        raise ValueError("this model of an older openauc keeps no training rows to learn beside; fit it again.")
    return classifier.examples_


def _checked_labels(classifier: OpenSetClassifier, y: ArrayLike) -> NDArray[Any]:
    """Labels of the kind that the classes have."""
    given: NDArray[Any] = column_or_1d(y)
    texts, known = classifier.classes_.dtype.kind in "UO", set(classifier.classes_.tolist())
    for row, label in enumerate(given.tolist()):
        if label is None or label != label or label == "":
            raise ValueError(f"y is missing for sample {row}; every sample needs a label.")
        if isinstance(label, str) != texts:
            kind = "names" if texts else "numbers"
            raise TypeError(
                f"the classes are {kind}, such as {classifier.classes_.tolist()[0]!r}, but y holds {label!r}."
            )
        if spelled_alike(label, classifier.unknown_label_) and label not in known:
            raise ValueError(
                f"{label!r} cannot be a class: {classifier.unknown_label_!r} is the answer for no class. Leave these "
                "rows out, or name their class."
            )
    labels = given.astype(str) if texts else given
    names, size = np.unique(labels, return_counts=True)
    alone = names[(size < 2) & ~np.isin(names, classifier.classes_)].tolist()
    if alone:
        raise ValueError(
            f"{named(alone, 5)}: one sample each; a new class needs at least 2, one to learn from and one to check "
            "with. Add samples, or leave the class out."
        )
    return labels


def _new_rows(classifier: OpenSetClassifier, kept: Examples, features: NDArray[Any], labels: NDArray[Any]) -> Rows:
    """Rows that the model does not keep already, with the same class."""
    known = set(zip(map(bytes, kept.features), classifier.classes_[kept.label].tolist(), strict=True))
    rows = zip(map(bytes, features), labels.tolist(), strict=True)
    new = np.flatnonzero([row not in known for row in rows])
    if not len(new):
        raise ValueError(
            "there is nothing to learn: X is empty, or the model knows all of its rows with these classes."
        )
    return new


def _notes(
    old: OpenSetClassifier, new: OpenSetClassifier, before: Scored, after: Scored, added: NDArray[Any], n: int
) -> list[str]:
    """What was added, and how many decisions on the kept rows it changes."""
    rejected = [
        ~(one.rejector_(one.evidence_scale_(some.scores, some.predicted)) <= one.thresholds_[some.predicted])
        for one, some in ((old, before), (new, after))
    ]
    taken = before.predicted != after.predicted
    flipped = ~taken & (rejected[0] != rejected[1])
    what = f"{n:,} row{'s' * (n != 1)} added"
    if len(added):
        what += f", with the new class{'es' * (len(added) != 1)} {named(added.tolist(), 5)}"
    changed = "none is decided otherwise"
    if (taken | flipped).any():
        changed = (
            f"{int((taken | flipped).sum()):,} are decided otherwise: {int(taken.sum()):,} by another class, "
            f"{int(flipped.sum()):,} by being rejected or accepted"
        )
    return [
        f"{what}. Of the {len(taken):,} training rows that the model keeps, {changed}. The report's forecast "
        "was made without the added rows."
    ]


def _accepted(old: OpenSetClassifier, new: OpenSetClassifier, scores: Floats, added: Scored) -> list[str]:
    """What it takes to accept the added rows as often as the others, if the others' threshold would not."""
    if new.threshold != "acceptance" or not len(scores):
        return []
    usual = old.thresholds_.min()
    share = float(np.mean(scores <= usual))
    room = max(GUARANTEE_ROOM, 2.0 * np.sqrt(new.acceptance * (1.0 - new.acceptance) / len(scores)))
    if share >= new.acceptance - room:
        return []
    sentence = (
        f"At the usual threshold, {share:.3f} of the added rows would be accepted: their classes have few rows, or are "
        "not one thing each. Add rows of them."
    )
    unknown, own = old.held_out_scores_[old.held_out_kinds_ < 0], new.thresholds_[added.label].max()
    if own > usual and len(unknown):
        sentence += (
            f" To accept {new.acceptance:g} of them, the new classes have a threshold of their own, which accepts more "
            f"unknown rows, too: {np.mean(unknown <= own):.2f} of those of held-out classes, instead of "
            f"{np.mean(unknown <= usual):.2f}."
        )
    return [sentence]
