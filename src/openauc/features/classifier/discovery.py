"""Groups among the rejected rows: how many new kinds there are, and which rows belong together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_extraction.text import CountVectorizer

from openauc._columns import is_empty
from openauc.features.classifier.copies import equal_rows
from openauc.features.classifier.grouping import (
    LEAST,
    NO_GROUP,
    Forecast,
    Grouped,
    Known,
    choose,
    directions,
    leave_alone,
    parts_of,
    tree_of,
)
from openauc.features.scores.base import Rows
from openauc.intervals import Interval

if TYPE_CHECKING:
    from openauc.features.classifier.estimator import OpenSetClassifier

FEWEST = 10  # different rejected rows to group
SOUGHT = 3000  # rejected rows, at most, that groups are sought among; the others join them
NEAREST = 3  # known classes that are named beside a group
WORDS = 6  # of a group
FEW_CLASSES = 20  # below which a forecast is uncertain, and a new class too easily the nearest of all to a known one


@dataclass(frozen=True)
class Group:
    """Rejected rows that belong together.

    Parameters
    ----------
    rows
        Its rows of X, the most central first.
    purity, purity_interval
        Forecast of the share of its rows that are of one class, with a 90 % interval, from held-out known classes. It
        is too high, by about 0.1 in a simulation, where many new classes have few rows, which join other groups.
    nearest
        Known classes, the nearest first, at most three.
    piece_of
        The known class that it is perhaps a piece of: it is nearer to this class than any group of held-out classes is
        to another one. Mostly None, also for pieces: what is rejected lies far from its class, as new kinds do. Always
        None with fewer than 20 known classes.
    words
        Words that set its texts apart from those of the other groups, if texts were given.
    """

    rows: Rows
    purity: float
    purity_interval: Interval
    nearest: tuple[Any, ...]
    piece_of: Any = None
    words: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        return len(self.rows)

    def __str__(self) -> str:
        low, high = self.purity_interval
        beside = f"near `{self.nearest[0]}`" if self.piece_of is None else f"perhaps a piece of `{self.piece_of}`"
        words = f": {', '.join(self.words)}" if self.words else ""
        return f"{self.size:,} rows, {self.purity:.2f} of one class ({low:.2f} to {high:.2f}), {beside}{words}"


@dataclass(frozen=True)
class Groups:
    """Groups among the rejected rows of a table; ``str()`` has a line for each.

    Parameters
    ----------
    labels
        (n,) number of the group of each row; -1 for accepted rows, and for rows that fit no group.
    unknown
        (n,) whether the row is rejected.
    groups
        The groups, the largest first.
    notes
        Remarks, one sentence each.
    """

    labels: Rows
    unknown: NDArray[np.bool_]
    groups: tuple[Group, ...]
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join(f"{number}: {group}" for number, group in enumerate(self.groups))


def discover(classifier: OpenSetClassifier, X: NDArray[Any], texts: NDArray[Any] | None) -> Groups:
    """Groups among the rows of X that a fitted classifier rejects."""
    if not hasattr(classifier, "examples_"):
        raise ValueError("this model of an older openauc keeps no training rows to compare with; fit it again.")
    score, predicted = classifier._decide_features(X)
    unknown = ~(score <= classifier.thresholds_[predicted])  # NaN is unknown
    rows = np.flatnonzero(unknown)
    scaling = classifier.head_with_scores_.scaling
    features = directions(scaling.rows(X, rows), scaling)
    _, first, copy = np.unique(equal_rows(features), return_index=True, return_inverse=True)
    _check_rows(len(X), len(rows), len(first))
    x, rng = features[first], np.random.RandomState(0)
    some = x if len(x) <= SOUGHT else x[rng.choice(len(x), SOUGHT, replace=False)]
    known, tree = Known.of(classifier, len(rows), len(X) - len(rows)), tree_of(some)
    cut, pools = choose(some, tree, known, rng)
    forecast = Forecast(known, pools, cut)
    grouped = Grouped.of(x, some, tree, cut._replace(least=max(cut.least, LEAST)))
    sure = forecast.sure(grouped)
    belong = parts_of(some, tree, cut.height)[1][0] >= LEAST
    label = leave_alone(grouped.label, sure if belong else np.zeros(len(x)))
    of_row = label[copy]
    labels = np.full(len(X), NO_GROUP)
    labels[rows] = of_row
    words = distinctive_words(texts, labels) if texts is not None else {}
    enough = len(classifier.classes_) >= FEW_CLASSES

    def group(number: int) -> Group:
        inside = np.flatnonzero(of_row == number)
        inside = inside[np.argsort(grouped.own[copy[inside]], kind="stable")]
        distinct = label == number
        purity = float(sure[distinct].mean())
        near = known.near(features[inside])
        nearest = np.argsort(near, kind="stable")[:NEAREST]
        names = tuple(classifier.classes_[nearest].tolist())
        return Group(
            rows[inside],
            purity,
            forecast.interval(purity, int(distinct.sum())),
            names,
            names[0] if enough and near[nearest[0]] < forecast.near else None,
            words.get(number, ()),
        )

    groups = tuple(map(group, range(int(label.max()) + 1)))
    return Groups(labels, unknown, groups, tuple(_notes(classifier, len(x), len(groups))))


def _check_rows(n: int, rejected: int, distinct: int) -> None:
    if not rejected:
        raise ValueError(f"none of the {n:,} rows is rejected, so there is nothing to group.")
    if distinct < FEWEST:
        alike = ", but they are all alike" if distinct == 1 else f", but only {distinct} of them differ"
        raise ValueError(
            f"{rejected:,} of {n:,} rows are rejected{alike if distinct < rejected else ''}; at least {FEWEST} "
            "different ones are needed to find groups. Look at them one by one, or come back with more rows."
        )


def _notes(classifier: OpenSetClassifier, rows: int, groups: int) -> list[str]:
    notes, classes = [], len(classifier.classes_)
    if not groups:
        notes.append(f"No {LEAST} rejected rows belong together.")
    if rows > SOUGHT:
        notes.append(
            f"Groups were sought among {SOUGHT:,} of the {rows:,} rejected rows; the other rows joined them. New "
            f"classes with fewer than about {LEAST * rows // SOUGHT:,} rows may be missing: once the groups are named "
            "and learned, discover again."
        )
    if classes < FEW_CLASSES:
        notes.append(
            f"The forecast of purity comes from only {classes} known classes, so the real purity is outside of its "
            "interval more often than in one of ten groups."
        )
    return notes


def distinctive_words(texts: NDArray[Any], labels: Rows) -> dict[int, tuple[str, ...]]:
    """For each group, words that its texts hold at least twice as often as all texts, the most distinctive first.

    >>> distinctive_words(np.array(["the card", "a card", "the pin", "a pin"]), np.array([0, 0, 1, 1]))
    {0: ('card',), 1: ('pin',)}
    """
    vectorizer = CountVectorizer(binary=True, token_pattern=r"\w\w\w+")
    try:
        holds = vectorizer.fit_transform("" if is_empty(text) else str(text) for text in texts.tolist())
    except ValueError:  # there are no words
        return {}
    names, everywhere = vectorizer.get_feature_names_out(), np.asarray(holds.mean(axis=0)).ravel()
    found = {}
    for number in range(int(labels.max()) + 1):
        mine = holds[labels == number]
        share, count = np.asarray(mine.mean(axis=0)).ravel(), np.asarray(mine.sum(axis=0)).ravel()
        often = (count >= 2) & (share >= 2.0 * everywhere)
        gain = share * np.log(share / everywhere, out=np.zeros(len(names)), where=often)
        order = np.argsort(-gain, kind="stable")[:WORDS]
        found[number] = tuple(names[order[gain[order] > 0]].tolist())
    return found
