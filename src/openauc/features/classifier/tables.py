"""Tables of embeddings: which columns of a file are features and which is the label, and decisions as columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from openauc._columns import (
    Columns,
    GappyCsv,
    as_column_of_numbers,
    is_empty,
    place,
    read_about,
    read_columns,
    suffix_of,
)
from openauc._files import PathLike
from openauc._validation import UNKNOWN, Label, as_label, as_labels, check_choice, check_fraction, named
from openauc.verdict import Guarantee

if TYPE_CHECKING:
    from openauc.features.classifier.estimator import OpenSetClassifier

EMBEDDINGS = ("embedding", "embeddings", "features", "X")
"""Names of a column of embeddings, the likeliest first."""
LABELS = ("label", "y", "y_true", "class", "intent", "target")
"""Names of a column of labels, the likeliest first."""
TEXTS = ("text", "message", "sentence", "utterance", "query", "question", "body", "content")
"""Names of a column of texts, the likeliest first."""
Missing = Literal["refuse", "drop", "median"]
"""What to do about empty cells among the features: raise, leave the row out, fill in the column's median."""
DECISIONS = ("y_true", "prediction", "y_pred", "open_score", "p_value")
"""Columns of :func:`decide` and :func:`truth`."""
MODEL = "classifier.safetensors"
"""The file in the folder of a model, written by :mod:`~openauc.features.classifier.files`."""
OLD_MODEL, OLD_TABLE = "model.json", "source.json"
"""Files of the formats 1 and 2."""

_NUMBERS_OF_ROWS = {"", "id", "index", "unnamed: 0", "__index_level_0__"}
_UNKNOWN_WORD = "unknown"


def is_model(folder: Path) -> bool:
    """Whether `openauc fit`, or ``OpenSetClassifier.save``, made this folder."""
    return (folder / MODEL).is_file() or (folder / OLD_MODEL).is_file()


@dataclass(frozen=True, kw_only=True)
class TableSpec:
    """How the table that a model was fitted on is read; other tables are read in the same way.

    Parameters
    ----------
    features
        The column of embeddings, or the columns of numbers; empty for a model that was fitted on arrays.
    label
        The column of labels.
    encoder
        Name of the encoder that made the embeddings, if the file says so.
    missing
        What is done about empty cells.
    medians
        The value for each feature that fills empty cells, if that is ``"median"``.
    """

    features: tuple[str, ...] = ()
    label: str | None = None
    encoder: str | None = None
    missing: Missing = "refuse"
    medians: tuple[float, ...] = ()

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
    """Embeddings, and what stands beside them.

    Parameters
    ----------
    path
        The file.
    features
        (n, d) numbers.
    columns
        All columns that are not features, the label among them.
    spec
        Which columns are what.
    left_out
        Of a table of numbers, the columns that are none, or count the rows.
    dropped
        How many rows were left out because of empty cells.
    """

    path: Path
    features: NDArray[Any]
    columns: Columns
    spec: TableSpec
    left_out: tuple[str, ...] = ()
    dropped: int = 0

    @cached_property
    def labels(self) -> NDArray[Any]:
        """(n,) labels: integers or names, and None where one is missing."""
        if self.spec.label is None:
            raise ValueError(
                f"{self.path} has no column of labels ({', '.join(map(repr, LABELS))}); it has "
                f"{named(self.columns)}. Name it with label_column."
            )
        values, name = self.columns[self.spec.label], f"{self.path}: the column {self.spec.label!r}"
        empty = _empty(values)
        if not len(empty):
            return as_labels(name, values)
        labels = np.full(len(values), None, object)
        given = np.delete(np.arange(len(values)), empty)
        labels[given] = as_labels(name, values[given]).tolist()
        return labels

    @property
    def labelled(self) -> bool:
        """Whether every sample has a label."""
        return self.spec.label is not None and not any(label is None for label in self.labels.tolist())


def _empty(values: NDArray[Any]) -> NDArray[np.int64]:
    """Rows of a column that hold nothing."""
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
) -> FeatureTable:
    """Read embeddings from ``.parquet``, ``.npz`` or ``.csv``.

    The features are a column of lists (in ``.npz`` an array of two dimensions); without one, all columns of numbers but
    the label and the group.

    Parameters
    ----------
    embedding_column, label_column
        Their names, where they have others than :data:`EMBEDDINGS` and :data:`LABELS`.
    group_column
        A column that is not a feature, as it tells which rows belong together.
    missing
        What to do about empty cells among the features; else as ``like`` says.
    need_labels
        Raise if a row has no label.
    like
        Read it like the table a model was fitted on: the same features, in the same order.
    """
    file, like = Path(path), like or TableSpec()
    treatment: Any = like.missing if missing is None else check_choice("missing", missing, get_args(Missing))
    reader = GappyCsv(file) if suffix_of(file) == ".csv" and file.is_file() else read_columns(file)
    columns = {name: reader[name] for name in reader}  # each parsed once
    label = _label(file, columns, label_column, like)
    if group_column is not None:
        _present(file, columns, group_column, "group_column")
    if need_labels and label is not None:
        _refuse_empty_labels(file, reader, columns[label], label)
    left_out: tuple[str, ...] = ()
    if embedding_column is None and like.features and all(name in columns for name in like.features):
        taken = like.features
    elif embedding_column is None and len(like.features) > 1:
        raise _lacking(file, columns, like)
    else:
        taken, left_out = _features(file, columns, embedding_column, {label, group_column})
        # One column of lists stands in for one of another name; its width is compared later.
        if embedding_column is None and like.features and columns[taken[0]].ndim != 2:
            raise _lacking(file, columns, like)
    matrix = _matrix(file, reader, columns, taken)
    matrix, kept, medians = _without_gaps(file, reader, matrix, taken, treatment, like.medians)
    spec = TableSpec(
        features=taken, label=label, encoder=read_about(file).get("encoder"), missing=treatment, medians=medians
    )
    others = {name: values for name, values in columns.items() if name not in taken}
    if not kept.all():  # arrays of an archive may have other lengths
        others = {name: values[kept] if values.shape[:1] == kept.shape else values for name, values in others.items()}
    return FeatureTable(file, matrix, others, spec, left_out, int(len(kept) - kept.sum()))


def _label(path: Path, columns: Columns, given: str | None, like: TableSpec) -> str | None:
    if given is not None:
        return _present(path, columns, given, "label_column")
    likely = [name for name in (like.label, *LABELS) if name is not None]
    by_name = {name.lower(): name for name in reversed(list(columns))}
    return next((by_name[name.lower()] for name in likely if name.lower() in by_name), None)


def _present(path: Path, columns: Columns, name: str, option: str) -> str:
    if name not in columns:
        raise ValueError(f"{path} has no column {name!r}, which {option} names; it has {named(columns)}.")
    return name


def _refuse_empty_labels(path: Path, reader: Columns, values: NDArray[Any], name: str) -> None:
    empty = _empty(values)
    if len(empty):
        raise ValueError(
            f"{path}: the column {name!r} of labels is empty in {_rows(reader, empty)}. Label these rows, or drop them."
        )


def _rows(reader: Columns, rows: Sequence[int] | NDArray[np.int64], most: int = 3) -> str:
    """How many rows, and where the first of them stand."""
    first = ", ".join(place(reader, int(row)) for row in rows[:most])
    return f"{len(rows):,} row{'s' * (len(rows) != 1)} ({first}{', ...' if len(rows) > most else ''})"


def _lacking(path: Path, columns: Columns, like: TableSpec) -> ValueError:
    lacking = [name for name in like.features if name not in columns]
    return ValueError(
        f"{path} lacks {len(lacking)} of the {len(like.features)} feature columns that the model was fitted on: "
        f"{named(lacking)}; it has {named(columns)}. Columns are matched by name: add or rename them."
    )


def _features(
    path: Path, columns: Columns, given: str | None, others: Iterable[str | None]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Columns that are features, and columns that are left out because they are not numbers."""
    if given is not None:
        return (_present(path, columns, given, "embedding_column"),), ()
    likely = next((name for name in EMBEDDINGS if name in columns), None)
    if likely is not None:
        return (likely,), ()
    rest = [name for name in columns if name not in set(others)]
    lists = [name for name in rest if columns[name].ndim == 2]
    if len(lists) > 1:
        raise ValueError(f"{path} has {len(lists)} columns of lists, {named(lists)}; choose one with embedding_column.")
    if lists:
        return (lists[0],), ()
    numbers = tuple(
        name for name in rest if name.lower() not in _NUMBERS_OF_ROWS and as_column_of_numbers(columns[name])
    )
    if not numbers:
        raise ValueError(
            f"{path} has no column of embeddings, nor of other numbers; it has {named(columns)}. `openauc embed` "
            "makes embeddings of texts and images; embedding_column names a column of another name."
        )
    return numbers, tuple(name for name in rest if name not in numbers)


def _matrix(path: Path, reader: Columns, columns: Columns, names: Sequence[str]) -> NDArray[Any]:
    """(n, d) the features, NaN where a cell is empty."""
    matrix = columns[names[0]]
    if len(names) > 1 or matrix.ndim == 1:
        matrix = np.stack([_numbers(path, reader, columns[name], name) for name in names], axis=1)
    if matrix.ndim != 2 or matrix.dtype.kind not in "iufb":
        raise _not_numbers(path, names[0])
    if not matrix.size:
        raise ValueError(f"{path} holds no sample; expected one row per sample.")
    if matrix.dtype.kind == "f" and np.isinf(matrix).any():
        row, column = (int(found[0]) for found in np.nonzero(np.isinf(matrix)))
        raise ValueError(
            f"{path}: {_cell(names, column)} is {matrix[row, column]} for {place(reader, row)}; drop the row, or fill "
            "it in."
        )
    return np.asarray(matrix, dtype=np.float64 if matrix.dtype == np.float64 else np.float32)


def _numbers(path: Path, reader: Columns, values: NDArray[Any], name: str) -> NDArray[Any]:
    found = as_column_of_numbers(values, share=0)  # it is a feature, however few rows there are
    if found is None:
        raise _not_numbers(path, name)
    numbers, texts = found
    if texts:
        shown = ", ".join(f"{str(values[row])!r} in {place(reader, row)}" for row in texts[:3])
        raise ValueError(
            f"{path}: the column {name!r} holds numbers, but {len(texts):,} of its cells "
            f"{'is' if len(texts) == 1 else 'are'} not: {shown}{', ...' if len(texts) > 3 else ''}. Write numbers "
            "there, leave the cells empty, or drop the column."
        )
    return numbers


def _not_numbers(path: Path, name: str) -> ValueError:
    return ValueError(
        f"{path}: the column {name!r} is not a list of numbers for each sample; `openauc embed` makes one."
    )


def _cell(names: Sequence[str], column: int) -> str:
    return repr(names[column]) if len(names) > 1 else f"{names[0]!r}, feature {column},"


def _without_gaps(
    path: Path,
    reader: Columns,
    matrix: NDArray[Any],
    names: Sequence[str],
    missing: Missing,
    medians: tuple[float, ...],
) -> tuple[NDArray[Any], NDArray[np.bool_], tuple[float, ...]]:
    """The features without empty cells, which rows are kept, and what fills empty cells."""
    gaps = np.isnan(matrix)
    empty, kept = gaps.any(axis=1), np.ones(len(matrix), bool)
    if missing == "refuse" and empty.any():
        raise ValueError(
            f"{path}: {_gaps(reader, gaps, names)}. Drop these rows, fill the cells in, or let `openauc fit` do so: "
            "--missing drop or --missing median."
        )
    if missing == "drop":
        if empty.all():
            raise ValueError(f"{path}: every row has an empty cell, so all would be dropped; use missing='median'.")
        return matrix[~empty], ~empty, ()
    if missing == "median":
        void = gaps.all(axis=0)
        if void.any() and not medians:
            column = _cell(names, int(np.argmax(void)))
            raise ValueError(f"{path}: {column} is empty in every row, so it has no median; drop it.")
        # The values of the table that was fitted on, whatever this one holds.
        medians = medians or tuple(np.nanmedian(matrix, axis=0).tolist())
        if len(medians) == matrix.shape[1]:  # another width is refused later
            matrix = np.where(gaps, np.array(medians, matrix.dtype), matrix)
    return matrix, kept, medians


def _gaps(reader: Columns, gaps: NDArray[np.bool_], names: Sequence[str], most: int = 3) -> str:
    """Which columns are empty where, the emptiest first."""
    number = gaps.sum(axis=0)
    if len(names) == 1:
        return f"the column {names[0]!r} is empty in {_rows(reader, np.flatnonzero(gaps.any(axis=1)))}"
    order = [int(column) for column in np.argsort(-number, kind="stable") if number[column]]
    told = [f"{names[column]!r} in {_rows(reader, np.flatnonzero(gaps[:, column]))}" for column in order[:most]]
    more = f", and {len(order) - most} more" if len(order) > most else ""
    total = int(gaps.any(axis=1).sum())
    return f"cells are empty in {total:,} row{'s' * (total != 1)}: {', '.join(told)}{more}"


def groups_of(table: FeatureTable, column: str | None = None) -> NDArray[np.int64] | None:
    """(n,) group of each row: by a column, else by texts that are nearly copies, else None.

    A class in which all texts are nearly copies would be one group, with nothing left to check it by; its rows stay
    apart.
    """
    if column is not None:
        values = table.columns[column]
        rows = _empty(values)
        if len(rows):
            raise ValueError(
                f"{table.path}: the column {column!r} of groups is empty in {len(rows):,} of the rows that are read; "
                "write a group of its own for each of them."
            )
        keys = [("", str(value)) for value in values.tolist()]
    else:
        names = {name.lower(): name for name in reversed(list(table.columns))}
        name = next((names[one] for one in TEXTS if one in names), None)
        if name is None or table.columns[name].dtype.kind not in "UO":
            return None
        from openauc.features.classifier.copies import text_groups

        texts = ["" if is_empty(text) else str(text) for text in table.columns[name].tolist()]
        labels = table.labels.astype(str)
        groups = text_groups(texts, labels)
        distinct = Counter(label for label, _ in set(zip(labels.tolist(), groups.tolist(), strict=True)))
        alone = np.array([distinct[label] < 2 for label in labels.tolist()])
        return np.where(alone, len(groups) + np.arange(len(groups)), groups)
    number = {key: i for i, key in enumerate(dict.fromkeys(keys))}
    return np.array([number[key] for key in keys], np.int64)


def decide(classifier: OpenSetClassifier, X: NDArray[Any], *, fdr: float | None = None) -> dict[str, NDArray[Any]]:
    """Everything a classifier says of each sample, as columns.

    Parameters
    ----------
    fdr
        Call samples unknown by :meth:`~openauc.features.OpenSetClassifier.select_unknown` at this level, in place of
        the threshold.

    Returns
    -------
    columns
        ``prediction``, the class or unknown; ``y_pred``, the class whether rejected or not; ``open_score``; and
        ``p_value``.
    """
    from openauc.features.classifier.conformal import benjamini_hochberg

    score, place = classifier._decide(X)  # once: it is the slow part
    p_value = np.asarray(classifier.calibration_.p_value(score, place))
    if fdr is None:
        unknown = score > classifier.thresholds_[place]
    else:
        unknown = benjamini_hochberg(p_value, check_fraction("fdr", fdr, one=False))
    predicted = _plain(classifier.classes_[place])
    told = np.where(unknown, np.array(_answer(classifier)), predicted)
    return {"prediction": told, "y_pred": predicted, "open_score": score, "p_value": p_value}


def truth(classifier: OpenSetClassifier, labels: NDArray[Any]) -> tuple[NDArray[Any], Label]:
    """Labels as `openauc evaluate` reads them, and what marks unknown samples: all that are no known class.

    That is -1, the usual mark, among names too; the classifier's own unknown label only if a class is called -1.
    """
    known = {str(as_label(label)): label for label in classifier.classes_.tolist()}
    unknown = UNKNOWN if str(UNKNOWN) not in known else _answer(classifier)
    found = [known.get(str(as_label(label)), unknown) for label in labels.tolist()]
    return as_labels("y_true", np.array(found, dtype=object)), unknown


def _answer(classifier: OpenSetClassifier) -> Label:
    """What stands for unknown in a file, where None would be an empty cell."""
    found: Label | None = classifier.unknown_label_
    return _UNKNOWN_WORD if found is None else found


def guarantee_of(classifier: OpenSetClassifier) -> Guarantee:
    """What a classifier promises at its threshold, and what it forecasts."""
    promised = classifier.threshold == "acceptance" and not classifier.guarantee_.startswith("none")
    report = classifier.report_
    expected = report.expected if report.max_ofpr is None else None
    return Guarantee(
        acceptance=classifier.acceptance if promised else None,
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


def refuse_other_features(classifier: OpenSetClassifier, table: FeatureTable, model: PathLike) -> None:
    """Raise, with what may be the reason, unless the features are as many as the model was fitted on."""
    width, expected = table.features.shape[1], classifier.n_features_in_
    if width != expected:
        raise ValueError(
            f"{table.path} has {width} features for each sample, but {model} was fitted on {expected}; were they made "
            "by the same encoder?"
        )


def other_columns(table: FeatureTable) -> Mapping[str, NDArray[Any]]:
    """Columns to carry over beside decisions: no lists, and none that decisions themselves have."""
    return {
        name: _plain(values) for name, values in table.columns.items() if values.ndim == 1 and name not in DECISIONS
    }


def _plain(values: NDArray[Any]) -> NDArray[Any]:
    """Text as text, which every format can hold."""
    texts = values.dtype == object and all(isinstance(value, str) for value in values)
    return values.astype(str) if texts else values
