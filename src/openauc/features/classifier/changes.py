"""What changes between two models on the same labelled rows, class by class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest

from openauc._validation import check_same_length, is_label
from openauc.comparison import Difference, compare, holm
from openauc.features.classifier import tables
from openauc.verdict import Verdict, judge

if TYPE_CHECKING:
    from openauc.features.classifier.estimator import OpenSetClassifier

LEVEL = 0.05  # of the tests of all classes together


@dataclass(frozen=True)
class ClassChange:
    """Right answers on the rows of one class, by the old and the new model.

    Parameters
    ----------
    rows
        Number of its rows.
    before, after
        How many of them the old and the new model answer right; a model that does not know the class by rejecting.
    better, worse
        How many are answered right by the new model only, and by the old one only.
    p_value, p_holm
        Of McNemar's exact test that both are as likely, and corrected for the number of classes.
    known
        Whether the old and the new model know the class.
    """

    name: str
    rows: int
    before: int
    after: int
    better: int
    worse: int
    p_value: float
    p_holm: float
    known: tuple[bool, bool]

    @property
    def significant(self) -> bool:
        return self.p_holm < LEVEL


@dataclass(frozen=True)
class Changes:
    """A new model against an old one on labelled rows.

    Parameters
    ----------
    right
        Share of right answers of the new model minus that of the old one.
    named
        The same for the share of rows that are given their class.
    old, new
        What the decisions of each model are worth.
    classes
        The change of each class, the largest first.
    """

    n: int
    right: Difference
    named: Difference
    old: Verdict
    new: Verdict
    classes: tuple[ClassChange, ...]

    def columns(self) -> dict[str, NDArray[Any]]:
        """The classes as columns of a table."""
        names = "rows", "before", "after", "better", "worse", "p_value", "p_holm"
        found = {name: np.array([getattr(one, name) for one in self.classes]) for name in names}
        known = np.array([one.known for one in self.classes])
        of_class = {"class": np.array([one.name for one in self.classes])}
        return of_class | found | {"known_before": known[:, 0], "known_after": known[:, 1]}


def changes(
    old: OpenSetClassifier, new: OpenSetClassifier, X_old: NDArray[Any], X_new: NDArray[Any], labels: NDArray[Any]
) -> Changes:
    """Compare two models on the features that each of them has of the same rows."""
    check_same_length(labels=labels, X_old=X_old, X_new=X_new)
    (before, named_before, old_verdict), (after, named_after, new_verdict) = (
        _answered(model, X, labels) for model, X in ((old, X_old), (new, X_new))
    )
    names, place = np.unique(labels.astype(str), return_inverse=True)
    rows, right_before, right_after, better, worse = (
        np.bincount(place[kind], minlength=len(names)).tolist()
        for kind in (np.ones(len(labels), bool), before, after, after & ~before, before & ~after)
    )
    p_values = [binomtest(b, b + w).pvalue if b + w else 1.0 for b, w in zip(better, worse, strict=True)]
    known = zip(*(np.isin(names, model.classes_.astype(str)).tolist() for model in (old, new)), strict=True)
    columns = rows, right_before, right_after, better, worse, p_values, holm(p_values), known
    found = [ClassChange(*one) for one in zip(names.tolist(), *columns, strict=True)]
    found.sort(key=lambda one: (-abs(one.after - one.before), -one.better, one.name))
    differences = _paired(after, before), _paired(named_after, named_before)
    return Changes(len(labels), *differences, old_verdict, new_verdict, tuple(found))


def _paired(new: NDArray[np.bool_], old: NDArray[np.bool_]) -> Difference:
    """The share of hits of the new model minus that of the old one."""
    ones, zeros = np.ones(len(new), int), np.zeros(len(new))
    triples = ((ones, hits.astype(int), zeros) for hits in (new, old))
    return compare(*triples, names=("new", "old"), metrics=["closed_set_accuracy"]).differences[0]


def _answered(
    model: OpenSetClassifier, X: NDArray[Any], labels: NDArray[Any]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], Verdict]:
    """Which rows a model answers right, which it gives their class, and what its decisions are worth."""
    y_true, mark = tables.truth(model, labels)
    decided = tables.decide(model, X)
    answers = [decided[name] for name in ("y_pred", "open_score", "prediction")]
    accepted, unknown = decided["prediction"] == decided["y_pred"], is_label(y_true, mark)
    given = accepted & ~unknown & (y_true.astype(str) == decided["y_pred"].astype(str))
    return np.where(unknown, ~accepted, given), given, judge(y_true, *answers, unknown_label=mark)
