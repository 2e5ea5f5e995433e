"""Predictions: the (y_true, y_pred, open_score) triple and its files."""

from __future__ import annotations

import csv
import io
import os
import re
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from openauc import _validation as check
from openauc._files import atomic_write
from openauc._validation import Label

FORMATS = (".npz", ".csv", ".parquet")
_LOGIT_PREFIX = "logit_"
PathLike = str | os.PathLike[str]


class Predictions(NamedTuple):
    """What a model said of a test set: true label (-1 for unknown), predicted known class, open-set score.

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
        matrix = check.as_array(logits)
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
        says that the score of the file is a confidence, and flips it.
        """
        columns = read_columns(path)
        where = Path(path)
        y_true = _column(columns, label_column, where)
        if pred_column not in columns or score_column not in columns:
            found = _logits(columns, logits_column)
            if found is not None:
                logits, names = found
                predictions = cls.from_logits(y_true, logits, classes=names)
                if pred_column in columns:
                    predictions = cls.of(y_true, columns[pred_column], predictions.open_score)
                elif score_column in columns:
                    score = check.as_scores(score_column, columns[score_column])
                    predictions = cls.of(y_true, predictions.y_pred, -score if lower_is_unknown else score)
                return predictions
        score = check.as_scores(score_column, _column(columns, score_column, where))
        return cls.of(y_true, _column(columns, pred_column, where), -score if lower_is_unknown else score)


def _suffix(path: PathLike) -> str:
    suffix = Path(path).suffix.lower()
    if suffix not in FORMATS:
        raise ValueError(f"{path} has the suffix {suffix!r}; expected one of {', '.join(FORMATS)}.")
    return suffix


def _column(columns: Mapping[str, NDArray[Any]], name: str, path: Path) -> NDArray[Any]:
    if name in columns:
        return columns[name]
    raise ValueError(
        f"{path} has no column {name!r}; it has {', '.join(map(repr, columns)) or 'none'}. Expected y_true with "
        "y_pred and open_score, or y_true with logits; name yours with --label-column, --pred-column, --score-column."
    )


def _logits(columns: Mapping[str, NDArray[Any]], name: str) -> tuple[NDArray[Any], Sequence[Label] | None] | None:
    if name in columns:
        names = columns.get("classes")
        return columns[name], None if names is None else names.tolist()
    single = [column for column in columns if column.startswith(_LOGIT_PREFIX)]
    if not single:
        return None
    matrix = np.stack([check.as_scores(column, columns[column]) for column in single], axis=1)
    names = _parse_labels([column.removeprefix(_LOGIT_PREFIX) for column in single])
    return matrix, names.tolist()


def write_columns(path: PathLike, columns: Mapping[str, ArrayLike]) -> None:
    """Write columns of one length as ``.npz``, ``.csv`` or ``.parquet`` (by suffix), all or nothing."""
    suffix = _suffix(path)
    arrays = {name: np.asarray(column) for name, column in columns.items()}
    check.check_same_length(**arrays)
    with atomic_write(path) as file:
        if suffix == ".npz":
            np.savez_compressed(file, **arrays)  # type: ignore[arg-type]  # a column called allow_pickle is nobody's
        elif suffix == ".csv":
            text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
            writer = csv.writer(text, lineterminator="\n")
            writer.writerow(arrays)
            # tolist() widens float32 to float64, whose shortest decimal is exact.
            writer.writerows(zip(*(column.tolist() for column in arrays.values()), strict=True))
            text.detach()
        else:
            pyarrow, parquet = _pyarrow()
            parquet.write_table(pyarrow.table({k: pyarrow.array(v) for k, v in arrays.items()}), file)


def read_columns(path: PathLike) -> dict[str, NDArray[Any]]:
    """All columns (or arrays) of a prediction file, by name."""
    suffix = _suffix(path)
    file = Path(path)
    if not file.is_file():
        raise FileNotFoundError(f"there is no file {file}.")
    reader = {".npz": _read_npz, ".csv": _read_csv, ".parquet": _read_parquet}[suffix]
    return reader(file)


def _read_npz(path: Path) -> dict[str, NDArray[Any]]:
    unreadable = f"{path} is not a readable .npz file; write it with numpy.savez"
    if not zipfile.is_zipfile(path):  # numpy would take such a file for a pickle
        raise ValueError(f"{unreadable}.")
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except Exception as error:  # damaged archives fail in many ways, down to zlib
        if "allow_pickle" in str(error):
            raise ValueError(
                f"{path} holds pickled objects, which are never loaded; save names as strings "
                "(array.astype(str)) and numbers as numbers."
            ) from None
        raise ValueError(f"{unreadable} ({error}).") from None


def _read_csv(path: Path) -> dict[str, NDArray[Any]]:
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            lines = csv.reader(file)
            rows = [(lines.line_num, row) for row in lines if row]
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} is not a readable CSV file in UTF-8 ({error}).") from None
    if not rows:
        raise ValueError(f"{path} is empty; expected a header line and one line per sample.")
    header, body = [name.strip() for name in rows[0][1]], rows[1:]
    for number, row in body:
        if len(row) != len(header):
            raise ValueError(f"{path}, line {number} has {len(row)} values but the header has {len(header)}.")
    return {
        name: _parse_column(name, [(number, row[i].strip()) for number, row in body], path)
        for i, name in enumerate(header)
    }


def _parse_column(name: str, cells: list[tuple[int, str]], path: Path) -> NDArray[Any]:
    for number, cell in cells:
        if not cell:
            raise ValueError(f"{path}, line {number}: column {name!r} is empty; every sample needs a value.")
    return _parse_labels([cell for _, cell in cells])


def _parse_labels(cells: list[str]) -> NDArray[Any]:
    """Integers if all are, else numbers if all are, else names; "007" and "1_000" are names."""
    text = np.array(cells, dtype=str)
    if any(re.fullmatch(r"-?0\d+|.*_.*", cell) for cell in cells):
        return text
    for kind in (np.int64, np.float64):
        try:
            return text.astype(kind)
        except (ValueError, OverflowError):
            continue
    return text


def _read_parquet(path: Path) -> dict[str, NDArray[Any]]:
    pyarrow, parquet = _pyarrow()
    try:
        table = parquet.read_table(path)
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(f"{path} is not a readable Parquet file ({str(error).splitlines()[0]}).") from None
    columns = {}
    for name in table.column_names:
        values = table.column(name).to_numpy()
        if values.dtype == object and any(isinstance(row, np.ndarray) for row in values):
            holes = [i for i, row in enumerate(values) if row is None]
            if holes:
                raise ValueError(f"{path}: column {name!r} is empty for sample {holes[0]}; every sample needs a value.")
            widths = {len(row) for row in values}
            if len(widths) != 1:
                raise ValueError(f"{path}: the rows of column {name!r} have different lengths {sorted(widths)}.")
            values = np.stack(values.tolist())
        columns[name] = values
    return columns


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ImportError("Parquet files need pyarrow: pip install 'openauc[parquet]', or use .npz or .csv.") from None
    return pyarrow, pyarrow.parquet
