"""Tables of features: which columns of a file are features and which is the label, and decisions as columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from openauc._columns import Columns, as_column_of_numbers, is_empty, place, read_about, read_columns
from openauc._files import PathLike
from openauc._validation import UNKNOWN, Label, as_label, as_labels, check_choice, check_fraction, named
from openauc.features.scores.base import Rows
from openauc.verdict import Guarantee

if TYPE_CHECKING:
    from openauc.features.classifier.estimator import OpenSetClassifier

EMBEDDINGS = ("embedding", "embeddings", "features", "X")
LABELS = ("label", "y", "y_true", "class", "intent", "target")
TEXTS = ("text", "message", "sentence", "utterance", "query", "question", "body", "content")
NAMES = ("image", "path", "file", "filename", "name", "id")
"""Names of a column of embeddings, of labels, of texts, or of file names and ids, the likeliest first."""
Missing = Literal["refuse", "drop", "median"]
"""What to do about empty cells among the features: raise, drop the row, or fill in the median of the column."""
DECISIONS = ("y_true", "prediction", "y_pred", "open_score", "p_value")  # columns of decide and truth
MODEL = "classifier.safetensors"
"""The file in the folder of a model, written by :mod:`~openauc.features.classifier.files`."""
OLD_MODEL, OLD_TABLE = "model.json", "source.json"  # files of the formats 1 and 2

_NUMBERS_OF_ROWS = {"", "id", "index", "unnamed: 0", "__index_level_0__"}
"""Names, in lower case, of columns that number the rows."""


def is_model(folder: Path) -> bool:
    """Whether `openauc fit`, or ``OpenSetClassifier.save``, made this folder."""
    return (folder / MODEL).is_file() or (folder / OLD_MODEL).is_file()


@dataclass(frozen=True, kw_only=True)
class TableSpec:
    """How the table that a model was fitted on is read; other tables are read in the same way."""

    features: tuple[str, ...] = ()  # one column of embeddings, or columns of numbers; empty if fitted on arrays
    label: str | None = None
    encoder: str | None = None  # that made the embeddings, if the file says so
    missing: Missing = "refuse"
    medians: tuple[float, ...] = ()  # of each feature, for missing="median"

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], width: int) -> TableSpec:
        """The specification that ``asdict`` wrote, of a table with ``width`` features."""
        given: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in values.items()}
        spec = cls(**given)
        check_choice("missing", spec.missing, get_args(Missing))
        names = [*spec.features, *(name for name in (spec.label, spec.encoder) if name is not None)]
        if not all(isinstance(name, str) for name in names) or len(spec.features) not in (0, 1, width):
            raise ValueError(f"it has no usable names of columns: {named(names, 5)}")
        if not all(isinstance(value, float) for value in spec.medians) or len(spec.medians) not in (0, width):
            raise ValueError(f"it has {len(spec.medians)} medians for {width} features")
        return spec


@dataclass(frozen=True)
class FeatureTable:
    """Features of samples, and the other columns of their file."""

    path: Path
    features: NDArray[Any]  # (n, d)
    columns: Columns  # all that are not features, the label among them
    spec: TableSpec
    left_out: tuple[str, ...] = ()  # columns that are not numbers, or number the rows
    dropped: int = 0  # rows with empty cells
    kept: NDArray[np.bool_] | None = None  # which rows of the file are here; all of them if None

    @cached_property
    def labels(self) -> NDArray[Any]:
        """(n,) labels: integers or names, and None where one is missing."""
        if self.spec.label is None:
            found = f"{self.path} has no column of labels ({named(LABELS)}); it has {named(self.columns)}"
            raise ValueError(f"{found}. Name it with label_column.")
        values, name = self.columns[self.spec.label], f"{self.path}: the column {self.spec.label!r}"
        given = np.delete(np.arange(len(values)), _empty(values))
        if len(given) == len(values):
            return as_labels(name, values)
        labels = np.full(len(values), None, object)
        labels[given] = as_labels(name, values[given]).tolist()
        return labels

    @property
    def labelled(self) -> bool:
        """Whether every sample has a label."""
        return self.spec.label is not None and not any(label is None for label in self.labels.tolist())


def _empty(values: NDArray[Any]) -> Rows:
    return np.flatnonzero([is_empty(value) for value in values.tolist()])


def read_table(
    path: PathLike,
    *,
    embedding_column: str | None = None,
    label_column: str | None = None,
    group_column: str | None = None,
    missing: Missing | None = None,
    need_labels: bool = False,
    like: TableSpec | None = None,
    columns: Columns | None = None,
) -> FeatureTable:
    """Read features from ``.parquet``, ``.npz`` or ``.csv``.

    The features are a column of lists (in ``.npz`` an array of two dimensions); without one, all columns of numbers
    except the label and the group. Columns are found by :data:`EMBEDDINGS` and :data:`LABELS` if they are not named.
    With ``like``, the table is read like the one a model was fitted on: the same features, in the same order.
    ``columns`` are some rows of the file that were read already.
    """
    file, like = _File(Path(path), columns), like or TableSpec()
    treatment: Any = like.missing if missing is None else check_choice("missing", missing, get_args(Missing))
    label = find_label(file.path, file.columns, label_column, like)
    if group_column is not None:
        _require(file.path, file.columns, group_column, "group_column")
    if need_labels and label is not None and len(empty := _empty(file.columns[label])):
        raise ValueError(
            f"{path}: the column {label!r} of labels is empty in {file.rows(empty)}. Label these rows, or drop them."
        )
    fitted = like.features if embedding_column is None else ()
    lacking = [name for name in fitted if name not in file.columns]
    names, left_out = fitted, tuple[str, ...]()
    if not fitted or (lacking and len(fitted) == 1):
        names, left_out = file.find_features(embedding_column, (label, group_column))
        if file.columns[names[0]].ndim == 2:  # a column of lists may have another name; its width is compared later
            lacking = []
    if lacking:
        raise ValueError(
            f"{path} lacks {len(lacking)} of the {len(fitted)} feature columns that the model was fitted on: "
            f"{named(lacking)}; it has {named(file.columns)}. Columns are matched by name: add or rename them."
        )
    matrix, kept, medians = file.fill(file.matrix(names), names, treatment, like.medians)
    encoder = read_about(file.path).get("encoder") if columns is None else None
    spec = TableSpec(features=names, label=label, encoder=encoder, missing=treatment, medians=medians)
    others = {name: values for name, values in file.columns.items() if name not in names}
    if not kept.all():  # arrays of an archive may have other lengths
        others = {name: values[kept] if values.shape[:1] == kept.shape else values for name, values in others.items()}
    return FeatureTable(file.path, matrix, others, spec, left_out, int(len(kept) - kept.sum()), kept)


def find_label(path: Path, columns: Columns, given: str | None, like: TableSpec) -> str | None:
    """The column of labels: the given one, else one with a usual name."""
    if given is not None:
        return _require(path, columns, given, "label_column")
    return named_like(columns, [name.lower() for name in (like.label, *LABELS) if name is not None])


def named_like(columns: Columns, names: Sequence[str]) -> str | None:
    """The column with the first of these names, in upper or lower case."""
    found = {name.lower(): name for name in reversed(list(columns))}
    return next((found[name] for name in names if name in found), None)


def _require(path: Path, columns: Columns, name: str, option: str) -> str:
    if name not in columns:
        raise ValueError(f"{path} has no column {name!r}, which {option} names; it has {named(columns)}.")
    return name


class _File:
    """The columns of a file, and error sentences that say where in the file something is wrong."""

    def __init__(self, path: Path, columns: Columns | None) -> None:
        self.path, self.whole = path, columns is None
        self.reader = read_columns(path, gaps=True) if columns is None else columns
        self.columns = {name: self.reader[name] for name in self.reader}  # each parsed once

    def rows(self, rows: Rows) -> str:
        """How many rows, and where the first of them are."""
        first = ", ".join(place(self.reader, int(row)) for row in rows[:3])
        return f"{len(rows):,} row{'s' * (len(rows) != 1)} ({first}{', ...' if len(rows) > 3 else ''})"

    def find_features(
        self, given: str | None, others: Collection[str | None]
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Columns that are features, and columns that are left out because they are not numbers."""
        if given is not None:
            return (_require(self.path, self.columns, given, "embedding_column"),), ()
        rest = [name for name in self.columns if name not in others]
        lists = tuple(name for name in EMBEDDINGS if name in self.columns)[:1]
        lists = lists or tuple(name for name in rest if self.columns[name].ndim == 2)
        if len(lists) > 1:
            raise ValueError(
                f"{self.path} has {len(lists)} columns of lists, {named(lists)}; choose one with embedding_column."
            )
        if lists:
            return lists, ()
        candidates = [name for name in rest if name.lower() not in _NUMBERS_OF_ROWS]
        numbers = tuple(name for name in candidates if as_column_of_numbers(self.columns[name]))
        if not numbers:
            raise ValueError(
                f"{self.path} has no column of embeddings, nor of other numbers; it has {named(self.columns)}. "
                "`openauc embed` makes embeddings of texts and images; embedding_column names a column of another name."
            )
        return numbers, tuple(name for name in rest if name not in numbers)

    def matrix(self, names: Sequence[str]) -> NDArray[Any]:
        """(n, d) features, NaN where a cell is empty."""
        matrix = self.columns[names[0]]
        if len(names) > 1 or matrix.ndim == 1:
            matrix = np.stack([self._numbers(name) for name in names], axis=1)
        if matrix.ndim != 2 or matrix.dtype.kind not in "iufb":
            raise self._not_numbers(names[0])
        if not matrix.size:
            raise ValueError(f"{self.path} holds no sample; expected one row per sample.")
        if matrix.dtype.kind == "f" and np.isinf(matrix).any():
            row, column = (int(found[0]) for found in np.nonzero(np.isinf(matrix)))
            where = f"{self.path}: {_feature(names, column)} is {matrix[row, column]} for {place(self.reader, row)}"
            raise ValueError(f"{where}; drop the row, or fill it in.")
        return np.asarray(matrix, dtype=np.float64 if matrix.dtype == np.float64 else np.float32)

    def _numbers(self, name: str) -> NDArray[Any]:
        values = self.columns[name]
        found = as_column_of_numbers(values, share=0)  # it is a feature, however few rows there are
        if found is None:
            raise self._not_numbers(name)
        numbers, texts = found
        if texts:
            shown = ", ".join(f"{str(values[row])!r} in {place(self.reader, row)}" for row in texts[:3])
            raise ValueError(
                f"{self.path}: the column {name!r} holds numbers, but {len(texts):,} of its cells "
                f"{'is' if len(texts) == 1 else 'are'} not: {shown}{', ...' if len(texts) > 3 else ''}. Write numbers "
                "there, leave the cells empty, or drop the column."
            )
        return numbers

    def _not_numbers(self, name: str) -> ValueError:
        return ValueError(
            f"{self.path}: the column {name!r} is not a list of numbers for each sample; `openauc embed` makes one."
        )

    def fill(
        self, matrix: NDArray[Any], names: Sequence[str], missing: Missing, medians: tuple[float, ...]
    ) -> tuple[NDArray[Any], NDArray[np.bool_], tuple[float, ...]]:
        """The features without empty cells, which rows are kept, and the values that fill empty cells."""
        gaps = np.isnan(matrix)
        empty, kept = gaps.any(axis=1), np.ones(len(matrix), bool)
        if missing == "refuse" and empty.any():
            raise ValueError(
                f"{self.path}: {self._gaps(gaps, names)}. Drop these rows, fill the cells in, or let `openauc fit` do "
                "so: --missing drop or --missing median."
            )
        if missing == "drop":
            if empty.all() and self.whole:
                raise ValueError(
                    f"{self.path}: every row has an empty cell, so all would be dropped; use missing='median'."
                )
            return matrix[~empty], ~empty, ()
        if missing == "median":
            void = gaps.all(axis=0)
            if void.any() and not medians:
                column = _feature(names, int(np.argmax(void)))
                raise ValueError(f"{self.path}: {column} is empty in every row, so it has no median; drop it.")
            # A model fills in the medians of the table it was fitted on.
            medians = medians or tuple(np.nanmedian(matrix, axis=0).tolist())
            if len(medians) == matrix.shape[1]:  # another width is refused later
                matrix = np.where(gaps, np.array(medians, matrix.dtype), matrix)
        return matrix, kept, medians

    def _gaps(self, gaps: NDArray[np.bool_], names: Sequence[str]) -> str:
        """Which columns are empty in which rows, the emptiest first."""
        empty = np.flatnonzero(gaps.any(axis=1))
        if len(names) == 1:
            return f"the column {names[0]!r} is empty in {self.rows(empty)}"
        number = gaps.sum(axis=0)
        order = [int(column) for column in np.argsort(-number, kind="stable") if number[column]]
        shown = [f"{names[column]!r} in {self.rows(np.flatnonzero(gaps[:, column]))}" for column in order[:3]]
        more = f", and {len(order) - 3} more" if len(order) > 3 else ""
        return f"cells are empty in {len(empty):,} row{'s' * (len(empty) != 1)}: {', '.join(shown)}{more}"


def _feature(names: Sequence[str], column: int) -> str:
    return repr(names[column]) if len(names) > 1 else f"{names[0]!r}, feature {column},"


def groups_of(table: FeatureTable, column: str | None = None) -> Rows | None:
    """(n,) group of each row: by a column, else by texts that are nearly copies, else None.

    A class in which all texts are nearly copies would be a single group, and could not be split for checking; each of
    its rows is a group of its own.
    """
    if column is not None:
        values = table.columns[column]
        if number := len(_empty(values)):
            found = f"{table.path}: the column {column!r} of groups is empty in {number:,} of the rows that are read"
            raise ValueError(f"{found}; write a group of its own for each of them.")
        group: dict[str, int] = {}
        return np.array([group.setdefault(str(value), len(group)) for value in values.tolist()], np.int64)
    name = named_like(table.columns, TEXTS)
    if name is None or table.columns[name].dtype.kind not in "UO":
        return None
    from openauc.features.classifier.copies import text_groups

    texts = ["" if is_empty(text) else str(text) for text in table.columns[name].tolist()]
    labels = table.labels.astype(str)
    groups = text_groups(texts, labels)
    distinct = Counter(label for label, _ in set(zip(labels.tolist(), groups.tolist(), strict=True)))
    alone = np.array([distinct[label] < 2 for label in labels.tolist()])
    return np.where(alone, len(groups) + np.arange(len(groups)), groups)


def decide(classifier: OpenSetClassifier, X: NDArray[Any], *, fdr: float | None = None) -> dict[str, NDArray[Any]]:
    """Decisions of a classifier as columns: prediction, y_pred (the class, rejected or not), open_score and p_value.

    With ``fdr``, :meth:`~openauc.features.OpenSetClassifier.select_unknown` decides in place of the threshold.
    """
    from openauc.features.classifier.conformal import benjamini_hochberg

    score, place = classifier._decide(X)  # once: it is the slow part
    p_value = np.asarray(classifier.calibration_.p_value(score, place))
    if fdr is None:
        unknown = ~(score <= classifier.thresholds_[place])  # NaN, of features near the largest float, is unknown
    else:
        unknown = benjamini_hochberg(p_value, check_fraction("fdr", fdr, one=False))
    y_pred = _plain(classifier.classes_[place])
    prediction = np.where(unknown, np.array(_answer(classifier)), y_pred)
    return {"prediction": prediction, "y_pred": y_pred, "open_score": score, "p_value": p_value}


def truth(classifier: OpenSetClassifier, labels: NDArray[Any]) -> tuple[NDArray[Any], Label]:
    """Labels as `openauc evaluate` reads them, and the label of unknown samples, those of other classes.

    That label is -1, among names too; the classifier's own unknown label only if a class is called -1.
    """
    known = {str(as_label(label)): label for label in classifier.classes_.tolist()}
    unknown = UNKNOWN if str(UNKNOWN) not in known else _answer(classifier)
    found = [known.get(str(as_label(label)), unknown) for label in labels.tolist()]
    return as_labels("y_true", np.array(found, dtype=object)), unknown


def _answer(classifier: OpenSetClassifier) -> Label:
    """The unknown label in a file, where None would be an empty cell."""
    found: Label | None = classifier.unknown_label_
    return "unknown" if found is None else found


def guarantee_of(classifier: OpenSetClassifier) -> Guarantee:
    """The guarantee of a classifier at its threshold, and its forecast; none for classes that were added since."""
    guaranteed = classifier.threshold == "acceptance" and not classifier.guarantee_.startswith("none")
    report = classifier.report_
    expected = report.expected if report.max_ofpr is None and not report.n_added else None
    return Guarantee(
        acceptance=classifier.acceptance if guaranteed else None,
        kind=classifier.calibration_kind_,
        n=len(classifier.calibration_scores_),
        openauc=None if expected is None else expected.openauc,
        interval=None if expected is None else expected.interval,
    )


def unknown_when(classifier: OpenSetClassifier) -> str:
    """When a sample is unknown, in words."""
    low, high = f"{classifier.thresholds_.min():.5g}", f"{classifier.thresholds_.max():.5g}"
    if low != high:
        return f"score above the threshold of its class, {low} to {high}"
    return "never" if low == "inf" else f"score above {low}"


def other_columns(table: FeatureTable) -> dict[str, NDArray[Any]]:
    """Columns to copy beside decisions: without lists, and without those that decisions have."""
    return {
        name: _plain(values) for name, values in table.columns.items() if values.ndim == 1 and name not in DECISIONS
    }


def feature_columns(table: FeatureTable) -> dict[str, NDArray[Any]]:
    """The features as columns of a file from which :func:`read_table` reads the same."""
    names = table.spec.features or EMBEDDINGS[:1]
    return {names[0]: table.features} if len(names) == 1 else dict(zip(names, table.features.T, strict=True))


def captions(table: FeatureTable) -> NDArray[np.str_] | None:
    """(n,) text, file name or id of each row, if there is such a column."""
    name = named_like(table.columns, (*TEXTS, *NAMES))
    if name is None:
        return None
    return np.array(["" if is_empty(value) else str(value) for value in table.columns[name].tolist()])


def _plain(values: NDArray[Any]) -> NDArray[Any]:
    """Text in an array of text, which every format can hold."""
    texts = values.dtype == object and all(isinstance(value, str) for value in values)
    return values.astype(str) if texts else values


def with_plain_gaps(y: Any) -> Any:
    """Labels with None for each missing one: scikit-learn does not accept the missing values of pandas."""
    labels = np.array(y.astype(object) if hasattr(y, "isna") else y)  # a copy
    if labels.dtype != object or labels.ndim != 1:
        return y
    missing = [not isinstance(label, str) and is_empty(label) for label in labels.tolist()]
    labels[missing] = None
    return labels if any(missing) else y


def checked_table(X: Any) -> Any:
    """X; a table of pandas with two columns of one name, or with empty cells, is refused."""
    if not (hasattr(X, "columns") and hasattr(X, "isna")):
        return X
    twice = X.columns[X.columns.duplicated()].tolist()
    if twice:
        raise ValueError(f"X has two columns named {twice[0]!r}; rename or drop one.")
    gaps = X.isna().to_numpy()
    if gaps.any():
        gappy = np.flatnonzero(gaps.any(axis=0))
        raise ValueError(
            f"X has empty cells in {len(gappy)} of {gaps.shape[1]} columns, the first in {X.columns[gappy[0]]!r}, row "
            f"{np.argmax(gaps[:, gappy[0]])}; drop these rows, or fill them in, for example with "
            "sklearn.impute.SimpleImputer."
        )
    return X
