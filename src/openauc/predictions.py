"""Predictions: the (y_true, y_pred, open_score) triple and its files."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from openauc import _columns
from openauc import _validation as check
from openauc._columns import FORMATS, ColumnNames, Columns, read_columns, read_numbers, write_columns
from openauc._files import PathLike
from openauc._validation import Label

__all__ = ["FORMATS", "ColumnNames", "MissingColumns", "Predictions", "read_columns", "write_columns"]

_LOGIT_PREFIX = "logit_"


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
        matrix = check.as_numbers("logits", check.as_array(logits))
        if matrix.ndim != 2 or matrix.shape[1] == 0:
            raise ValueError(f"logits has shape {matrix.shape}; expected (samples, classes).")
        names = np.arange(matrix.shape[1]) if classes is None else np.asarray(classes)
        if len(names) != matrix.shape[1]:
            raise ValueError(f"logits has {matrix.shape[1]} columns but {len(names)} class names are given.")
        # NaN would win the arg max silently; the score check names its row.
        score = check.as_scores("the largest logit", matrix.max(axis=1))
        return cls.of(y_true, names[matrix.argmax(axis=1)], -score)

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
        logits_column: str = "logits",
        lower_is_unknown: bool = False,
    ) -> Predictions:
        """Read a file with the columns (or arrays) ``y_true``, ``y_pred`` and ``open_score``.

        Instead of the last two the file may hold ``logits``: an (N, C) array in ``.npz`` (class names in an array
        ``classes``), a list column in ``.parquet``, or one column ``logit_NAME`` per class. ``lower_is_unknown``
        says that the score of the file is a confidence, and flips it. A CSV file may also be separated by semicolons
        or tabs, with decimal commas; a warning says so.

        Raises :class:`MissingColumns`, with the arguments that may fit, if the columns have other names.
        """
        names = ColumnNames(label_column, pred_column, score_column, lower_is_unknown)
        return cls.from_columns(read_columns(path), names, path=path, logits_column=logits_column)

    @classmethod
    def from_columns(
        cls, columns: Columns, names: ColumnNames, *, path: PathLike, logits_column: str = "logits"
    ) -> Predictions:
        """The same from columns that were read already, from ``path``, which errors name."""
        label_column, pred_column, score_column, lower_is_unknown = names
        given = {"label_column": label_column, "pred_column": pred_column, "score_column": score_column}
        absent = [role for role, name in given.items() if name not in columns]
        logits = [logits_column] if logits_column in columns else [n for n in columns if n.startswith(_LOGIT_PREFIX)]
        needed = [role for role in absent if role == "label_column" or not logits]
        if needed:
            raise MissingColumns(path, columns, given, needed)
        y_true = columns[label_column]
        if absent:
            if logits_column in columns:
                matrix, labels = columns[logits_column], columns.get("classes")
            else:  # one column per class
                matrix = np.stack([read_numbers(columns, name, path) for name in logits], axis=1)
                labels = _columns.parse_cells([name.removeprefix(_LOGIT_PREFIX) for name in logits])
            classes = None if labels is None else labels.tolist()
            _, y_pred, score = cls.from_logits(y_true, matrix, classes=classes)
        if pred_column in columns:
            y_pred = columns[pred_column]
        if score_column in columns:
            score = read_numbers(columns, score_column, path)
            score = -score if lower_is_unknown else score
        return cls.of(y_true, y_pred, score)


class MissingColumns(ValueError):
    """A file without the columns asked for: ``sentence`` tells what it has, ``guess`` the arguments that may fit."""

    def __init__(self, path: PathLike, columns: Columns, given: Mapping[str, str], absent: Collection[str]) -> None:
        self.sentence = (
            f"{path} has no column{'s' * (len(absent) > 1)} {check.named(given[role] for role in absent)}; it has "
            f"{check.named(columns)}."
        )
        self.guess = _columns.guess_arguments(columns, given, absent)
        if not self.guess.keys() >= set(absent):
            self.sentence += (
                " Expected y_true with y_pred and open_score, or y_true with logits; name yours with label_column, "
                "pred_column, score_column."
            )
        likely = ", ".join(f"{name}={value!r}" for name, value in self.guess.items() if name != "unknown_label")
        label = self.guess.get("unknown_label")
        metrics = "" if label is None else f", and unknown_label={label!r} where the samples are evaluated"
        super().__init__(f"{self.sentence} Likely: {likely}{metrics}." if likely else self.sentence)
