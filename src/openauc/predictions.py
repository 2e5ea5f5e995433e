"""Predictions: the (y_true, y_pred, open_score) triple and its files."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from openauc import _columns
from openauc import _validation as check
from openauc._columns import FORMATS, USUAL_NAMES, ColumnNames, Columns, read_columns, read_numbers, write_columns
from openauc._files import PathLike
from openauc._validation import Label

__all__ = ["FORMATS", "ColumnNames", "MissingColumns", "Predictions", "read_columns", "write_columns"]

_ROLES = ColumnNames._fields[:3]


class Predictions(NamedTuple):
    """Predictions of a model on a test set: true label (-1 for unknown), predicted known class, open-set score.

    A plain triple, so every metric takes it as ``openauc_score(*predictions)``.

    >>> p = Predictions.from_logits([0, 1, -1], [[5.0, 1.0], [0.0, 4.0], [1.0, 1.5]])
    >>> p.y_pred.tolist(), p.open_score.tolist()
    ([0, 1, 1], [-5.0, -4.0, -1.5])
    """

    y_true: NDArray[Any]
    y_pred: NDArray[Any]
    open_score: NDArray[Any]

    @classmethod
    def of(cls, y_true: ArrayLike, y_pred: ArrayLike, open_score: ArrayLike) -> Predictions:
        """Check three sequences (lists, numpy, pandas, torch) and make them arrays."""
        true, pred = check.as_labels("y_true", y_true), check.as_labels("y_pred", y_pred)
        true, pred = check.same_label_type(true, pred)
        score = check.as_scores("open_score", open_score)
        check.check_same_length(y_true=true, y_pred=pred, open_score=score)
        return cls(true, pred, score)

    @classmethod
    def from_logits(
        cls, y_true: ArrayLike, logits: ArrayLike, *, classes: Sequence[Label] | None = None
    ) -> Predictions:
        """Predicted class = arg max, open-set score = minus the largest logit.

        ``classes`` names the columns of ``logits``; without it a class is its column number.
        """
        matrix, y_pred = _classified("logits", logits, classes)
        # NaN would win the arg max silently; the score check names its row.
        return cls.of(y_true, y_pred, -check.as_scores("the largest logit", matrix.max(axis=1)))

    @classmethod
    def from_probabilities(
        cls, y_true: ArrayLike, probabilities: ArrayLike, *, classes: Sequence[Label] | None = None
    ) -> Predictions:
        """Predicted class = arg max, open-set score = 1 - the largest probability.

        ``classes`` names the columns, as ``classes_`` of a scikit-learn classifier does; without it a class is its
        column number. Each row must sum to 1, up to rounding. A score from logits is better where there are some:
        probabilities near 1 are often rounded to it, and then tied.

        >>> Predictions.from_probabilities(["cat", "-1"], [[0.25, 0.75], [0.5, 0.5]], classes=["dog", "cat"])[1:]
        (array(['cat', 'dog'], dtype='<U3'), array([0.25, 0.5 ]))
        """
        matrix, y_pred = _classified("probabilities", probabilities, classes)
        largest = check.as_scores("the largest probability", matrix.max(axis=1)).astype(np.float64)
        if wrong := _columns.not_probabilities(matrix):
            raise ValueError(f"probabilities must lie in [0, 1] and sum to 1, but {wrong}; pass such ones, or logits.")
        return cls.of(y_true, y_pred, 1.0 - largest)

    @classmethod
    def concat(cls, parts: Iterable[Predictions]) -> Predictions:
        """One triple of all samples of ``parts``, in order."""
        pieces = list(parts)
        if not pieces:
            raise ValueError("there is nothing to concatenate; pass at least one Predictions.")
        return cls.of(*(np.concatenate([piece[i] for piece in pieces]) for i in range(3)))

    def save(self, path: PathLike, *, extra: Mapping[str, ArrayLike] | None = None) -> None:
        """Write ``.npz``, ``.csv`` or ``.parquet`` (by suffix), all or nothing.

        ``extra`` holds further columns, one entry per sample, such as the group of each; :meth:`load` ignores them.
        """
        write_columns(path, {**Predictions.of(*self)._asdict(), **(extra or {})})

    @classmethod
    def load(
        cls,
        path: PathLike,
        *,
        label_column: str = "y_true",
        pred_column: str = "y_pred",
        score_column: str = "open_score",
        lower_is_unknown: bool = False,
        probability_columns: str | None = None,
        logit_columns: str | None = None,
    ) -> Predictions:
        """Read a file with the columns (or arrays) ``y_true``, ``y_pred`` and ``open_score``.

        Instead of the last two the file may hold a number for each class: ``logits``, an (N, C) array in ``.npz``
        (class names in an array ``classes``) or a list column in ``.parquet``, or one column ``logit_NAME`` per class.
        By other names, ``logit_columns="z_*"`` names the columns, or the matrix, and ``probability_columns="prob_*"``
        those of probabilities; see :meth:`from_logits` and :meth:`from_probabilities`. What ``*`` stands for is the
        class; ``"*"`` alone is every column of fractions without another use.

        ``lower_is_unknown`` says that the score of the file is a confidence, and flips it. A CSV file may also be
        separated by semicolons or tabs, with decimal commas; a warning says so. The index of pandas is ignored.

        Raises :class:`MissingColumns`, with the arguments that may fit, if the columns have other names.
        """
        names = ColumnNames(
            label_column, pred_column, score_column, lower_is_unknown, probability_columns, logit_columns
        )
        return cls.from_columns(read_columns(path), names, path=path)

    @classmethod
    def from_columns(cls, columns: Columns, names: ColumnNames, *, path: PathLike) -> Predictions:
        """The same from columns that were read already, from ``path``, which errors name."""
        if names.probability_columns and names.logit_columns:
            raise ValueError("probability_columns and logit_columns are both given; name one of them.")
        spread, pattern = names.by_class(columns), names.probability_columns or names.logit_columns
        if pattern == "*":
            spread = {name: label for name, label in spread.items() if _columns.holds_fractions(columns, name)}
        if pattern and not spread:
            raise ValueError(f"{path} has no column that fits {pattern!r}; it has {check.named(columns)}.")
        roles = dict(zip(_ROLES, names[:3], strict=True))
        absent = [role for role, name in roles.items() if name not in columns or name in spread]
        # One that was asked for by its own name is not replaced silently.
        needed = [
            role
            for role in absent
            if role == "label_column" or not spread or roles[role] not in (*spread, *USUAL_NAMES[:3])
        ]
        if needed:
            raise MissingColumns(path, columns, roles, needed)
        y_true = columns[names.label_column]
        if absent:
            if "" in spread.values():
                (matrix,), labels = (columns[name] for name in spread), columns.get("classes")
            else:  # one column per class
                matrix = np.stack([read_numbers(columns, name, path) for name in spread], axis=1)
                labels = _columns.parse_cells(list(spread.values()))
            classes = None if labels is None else labels.tolist()
            make: Callable[..., Predictions] = cls.from_logits
            if names.probability_columns and "score_column" in absent:
                if names.lower_is_unknown:
                    raise ValueError(f"{path}: lower_is_unknown is about a column of scores, and there is none.")
                if wrong := _columns.not_probabilities(check.as_numbers(names.probability_columns, matrix)):
                    raise ValueError(
                        f"{path}: the columns {names.probability_columns!r} are not probabilities, as {wrong}; for "
                        f"logits, or scores that need not sum to 1, say logit_columns={names.probability_columns!r}."
                    )
                make = cls.from_probabilities
            _, y_pred, score = make(y_true, matrix, classes=classes)
        if "pred_column" not in absent:
            y_pred = columns[names.pred_column]
        if "score_column" not in absent:
            score = read_numbers(columns, names.score_column, path)
            score = -score if names.lower_is_unknown else score
        return cls.of(y_true, y_pred, score)


def _classified(name: str, values: ArrayLike, classes: Sequence[Label] | None) -> tuple[NDArray[Any], NDArray[Any]]:
    """A matrix with a number for each sample and class, and the class of the largest number of each sample."""
    matrix = check.as_numbers(name, check.as_array(values))
    if matrix.ndim != 2 or matrix.shape[1] == 0:
        raise ValueError(f"{name} has shape {matrix.shape}; expected (samples, classes).")
    labels = np.arange(matrix.shape[1]) if classes is None else np.asarray(classes)
    if len(labels) != matrix.shape[1]:
        raise ValueError(f"{name} has {matrix.shape[1]} columns but {len(labels)} class names are given.")
    return matrix, labels[matrix.argmax(axis=1)]


class MissingColumns(ValueError):
    """A file without the columns asked for: ``sentence`` tells what it has, ``guess`` the arguments that may fit."""

    def __init__(self, path: PathLike, columns: Columns, given: Mapping[str, str], absent: Collection[str]) -> None:
        self.sentence = (
            f"{path} has no column{'s' * (len(absent) > 1)} {check.named(given[role] for role in absent)}; it has "
            f"{check.named(columns)}."
        )
        self.guess = _columns.guess_arguments(columns, given, absent)
        by_class = self.guess.keys() & {"probability_columns", "logit_columns"}
        if not self.guess.keys() >= ({"label_column"} & set(absent) if by_class else set(absent)):
            self.sentence += (
                " Expected y_true with y_pred and open_score, or y_true with logits; name yours with label_column, "
                "pred_column, score_column, or with probability_columns where each class has a column."
            )
        likely = ", ".join(f"{name}={value!r}" for name, value in self.guess.items() if name != "unknown_label")
        label = self.guess.get("unknown_label")
        metrics = "" if label is None else f", and unknown_label={label!r} where the samples are evaluated"
        super().__init__(f"{self.sentence} Likely: {likely}{metrics}." if likely else self.sentence)
