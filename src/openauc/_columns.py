"""The columns of a file of predictions: writing them, reading them, and guessing which column is which."""

from __future__ import annotations

import csv
import io
import os
import re
import warnings
import zipfile
from array import array
from collections import Counter, UserDict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from openauc import _validation as check
from openauc._files import PathLike, atomic_write

FORMATS = (".npz", ".csv", ".parquet")
Columns = Mapping[str, NDArray[Any]]


class ColumnNames(NamedTuple):
    """Names of the columns of a file of predictions; whether its score is a confidence.

    ``probability_columns`` and ``logit_columns`` are patterns of columns that hold a number for each class, such as
    ``prob_*``, or the name of a matrix.
    """

    label_column: str = "y_true"
    pred_column: str = "y_pred"
    score_column: str = "open_score"
    lower_is_unknown: bool = False
    probability_columns: str | None = None
    logit_columns: str | None = None

    def by_class(self, found: Collection[str]) -> dict[str, str]:
        """Those of the columns that hold a number for each class, and its name; of a matrix, an empty name.

        What ``*`` stands for is the name of the class. ``*`` alone is every column without another use.

        >>> ColumnNames(probability_columns="prob_*").by_class(["y_true", "prob_cat", "prob_dog"])
        {'prob_cat': 'cat', 'prob_dog': 'dog'}
        >>> ColumnNames().by_class(["y_true", "logits"]), ColumnNames().by_class(["y_true", "logit_0", "logit_1"])
        ({'logits': ''}, {'logit_0': '0', 'logit_1': '1'})
        """
        names = [name for name in found if name not in self[:3] and not _INDEX.fullmatch(name)]
        given = self.probability_columns or self.logit_columns
        for start, star, end in (pattern.partition("*") for pattern in ([given] if given else ["logits", "logit_*"])):
            if not star and start in found:
                return {start: ""}
            fit = [n for n in names if len(n) > len(start + end) and n.startswith(start) and n.endswith(end)]
            if star and fit:
                return {name: name[len(start) : len(name) - len(end)] for name in fit}
        return {}

    def classes(self, columns: Columns) -> set[str]:
        """Names of the classes that have a column, or a place in a matrix.

        >>> sorted(ColumnNames().classes({"y_true": np.zeros(2), "logits": np.zeros((2, 3))}))
        ['0', '1', '2']
        """
        spread = self.by_class(columns)
        if "" not in spread.values():
            return set(spread.values())
        return set(
            map(str, columns["classes"] if "classes" in columns else range(columns[next(iter(spread))].shape[1]))
        )


USUAL_NAMES = ColumnNames()
_INDEX = re.compile(r"|Unnamed: \d+|__index_level_\d+__|level_\d+|index")  # columns in which pandas numbers the rows
_ABOUT = "openauc."  # prefix of the names of metadata


def write_columns(
    path: PathLike,
    columns: Mapping[str, ArrayLike],
    about: Mapping[str, str] | None = None,
    *,
    keep_formulas: bool = False,
) -> None:
    """Write columns of one length as ``.npz``, ``.csv`` or ``.parquet`` (by suffix), all or nothing.

    ``about`` is metadata, which :func:`read_about` reads; a ``.csv`` file can hold neither it nor matrices. Texts in a
    ``.csv`` file that a spreadsheet would run are quoted, and :func:`read_columns` removes the quote; ``keep_formulas``
    writes them as is.
    """
    quote = (lambda cell: cell) if keep_formulas else quote_formula
    suffix = suffix_of(path)
    arrays = {name: np.asarray(column) for name, column in columns.items()}
    check.check_same_length(**arrays)
    told = {f"{_ABOUT}{key}": text for key, text in (about or {}).items()}
    with atomic_write(path) as file:
        if suffix == ".npz":
            # As np.savez_compressed writes it, which has no place for a column called "file".
            with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
                for name, column in {**arrays, **{key: np.array(text) for key, text in told.items()}}.items():
                    with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                        np.lib.format.write_array(entry, column, allow_pickle=False)
        elif suffix == ".csv":
            text = io.TextIOWrapper(file, "utf-8", errors="backslashreplace", newline="", write_through=True)
            writer = csv.writer(text, lineterminator="\n")
            writer.writerow(map(quote, arrays))
            # tolist() widens float32 to float64, whose shortest decimal is exact.
            writer.writerows(zip(*(map(quote, column.tolist()) for column in arrays.values()), strict=True))
            text.detach()
        else:
            pyarrow, parquet = import_pyarrow()
            table = pyarrow.table({name: arrow_array(column) for name, column in arrays.items()})
            parquet.write_table(table.replace_schema_metadata(told or None), file)


def arrow_array(column: NDArray[Any]) -> Any:
    """A column, or a matrix as a column of lists, in Arrow."""
    pyarrow, _ = import_pyarrow()
    if column.ndim == 1:
        return pyarrow.array(column)
    return pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(column.ravel()), column.shape[1])


def quote_formula(cell: Any) -> Any:
    """A cell of a CSV file; a text that a spreadsheet would run as a formula begins with ``'``.

    >>> quote_formula("=1+1"), quote_formula("-1.5"), quote_formula("'=1+1")
    ("'=1+1", '-1.5', "''=1+1")
    """
    return f"'{cell}" if isinstance(cell, str) and _runs(cell) else cell


def _unquote(cell: str) -> str:
    return cell[1:] if cell[:1] == "'" and _runs(cell[1:]) else cell


def _runs(text: str) -> bool:
    return text.lstrip("'")[:1] in ("=", "+", "-", "@", "\t", "\r") and not check.is_number(text)


def read_columns(path: PathLike, *, gaps: bool = False) -> Columns:
    """All columns (or arrays) of a file of predictions, by name; ``gaps`` allows empty cells of a ``.csv`` file."""
    suffix, file = suffix_of(path), Path(path)
    if not file.is_file():
        raise FileNotFoundError(f"there is no file {file}.")
    if suffix != ".parquet":
        return Csv(file, gaps=gaps) if suffix == ".csv" else _read_npz(file)
    with open_parquet(file) as opened:
        table = opened.read()
    return arrow_columns(table, file)


def read_about(path: PathLike) -> dict[str, str]:
    """Metadata of a file, such as the encoder of its embeddings; a ``.csv`` file has none."""
    suffix, said = suffix_of(path), {}
    if suffix == ".parquet":
        with open_parquet(path) as file:
            found = file.schema_arrow.metadata or {}
        said = {key.decode(errors="replace"): text.decode(errors="replace") for key, text in found.items()}
    elif suffix == ".npz":
        said = {name: str(text) for name, text in _read_npz(Path(path), about=True).items()}
    return {key.removeprefix(_ABOUT): text for key, text in said.items() if key.startswith(_ABOUT)}


def suffix_of(path: PathLike) -> str:
    """The suffix of ``path``, one of :data:`FORMATS`."""
    suffix = Path(path).suffix.lower()
    if suffix in FORMATS:
        return suffix
    said = f"{path} has the suffix {suffix!r}"
    if not suffix:
        said = f"{os.fspath(path)!r} has no suffix" + ("" if Path(path).exists() else ", and there is no such folder")
    if Path(path).is_dir():
        said = f"{os.fspath(path)!r} is a folder"
    raise ValueError(f"{said}; expected a file that ends in one of {', '.join(FORMATS)}.")


def read_numbers(columns: Columns, name: str, path: PathLike) -> NDArray[Any]:
    """A column of scores; text among them is shown with its place in the file."""
    values = columns[name]
    if values.ndim == 1 and values.dtype.kind in "UO":
        for row, value in enumerate(values.tolist()):
            if isinstance(value, str | bytes) and not check.is_number(value):
                hint = "; write decimals with a point" if re.fullmatch(r"[+-]?\d+,\d+", str(value)) else ""
                where = f"{path}, {place(columns, row)}"
                raise ValueError(f"{where}: column {name!r} holds {value!r}, which is not a number{hint}.")
    return check.as_scores(name, values)


def place(columns: Columns, row: int) -> str:
    """Where a sample stands in its file."""
    return f"line {columns.line_numbers[row]}" if isinstance(columns, Csv) else f"sample {row}"


def parse_cells(cells: list[str]) -> NDArray[Any]:
    """Integers if all are, else numbers if all are, else names; "007" and "1_000" are names.

    >>> parse_cells(["1", "-1"]).dtype.kind, parse_cells(["1", "2.5"]).dtype.kind, parse_cells(["007", "1"]).dtype.kind
    ('i', 'f', 'U')
    """
    for kind, dtype in ((int, np.int64), (float, np.float64)):
        try:
            numbers = np.fromiter(map(kind, cells), dtype, len(cells))
        except (ValueError, OverflowError):
            continue
        text = "\n".join(["", *cells, ""])
        if "_" in text or re.search(r"\n *-?0\d+ *\n", text):
            break
        return numbers
    return np.array([cell.strip() for cell in cells], dtype=str)


class Csv(UserDict[str, Any]):
    """The columns of a CSV file, each parsed when it is asked for: one that nobody needs may hold anything.

    Columns are separated by commas, or by semicolons or tabs if the header holds no comma; only then a comma may be
    a decimal point. Empty cells are refused, or kept as empty texts with ``gaps``.
    """

    def __init__(self, path: Path, *, gaps: bool = False) -> None:
        super().__init__()
        self._path, self._gaps = path, gaps
        content = path.read_bytes()
        try:
            text = content.decode("utf-8-sig")
            header = re.search(r"\S.*", text)
            self._delimiter = next((mark for mark in ",;\t" if header and mark in header[0]), ",")
            self._read(csv.reader(io.StringIO(text, newline=""), delimiter=self._delimiter))
        except UnicodeDecodeError as error:
            line = 1 + content.count(b"\n", 0, error.start)
            hint = "save it as CSV in UTF-8, which Excel calls 'CSV UTF-8'."
            raise ValueError(f"{path}, line {line} is not text in UTF-8 ({error.reason}); {hint}") from None
        except csv.Error as error:
            raise ValueError(f"{path} is not a readable CSV file ({error}).") from None
        if self._delimiter != ",":
            warnings.warn(f"{path}: read as separated by {self._delimiter!r}, not by commas.", stacklevel=4)

    def _read(self, reader: Any) -> None:
        header = [_unquote(name).strip() for name in next(filter(None, reader), [])]
        if not header:
            raise ValueError(f"{self._path} is empty; expected a header line and one line per sample.")
        _refuse_twins(header, self._path)
        cells: list[str] = []
        self.line_numbers = array("q")  # the line of each sample
        for row in filter(None, reader):
            if len(row) != len(header):
                hint = " A value with a comma needs quotes; decimals are written with a point."
                found = f"{self._path}, line {reader.line_num} has {len(row)} values but the header has {len(header)}."
                raise ValueError(found + hint * (len(row) > len(header)))
            cells += row
            self.line_numbers.append(reader.line_num)
        self.data = {name: cells[i :: len(header)] for i, name in enumerate(header)}

    def __getitem__(self, name: str) -> NDArray[Any]:
        cells = list(map(_unquote, self.data[name]))
        values = parse_cells(cells)
        if values.dtype.kind == "U" and self._delimiter != "," and not any("." in cell for cell in cells):
            points = [cell.replace(",", ".") for cell in cells]
            if parse_cells([cell for cell in points if cell.strip()]).dtype.kind == "f":
                warnings.warn(f"{self._path}: column {name!r} is read with decimal commas.", stacklevel=4)
                values = parse_cells(points)
        if not self._gaps and values.dtype.kind == "U" and (values == "").any():
            line = self.line_numbers[int(np.argmax(values == ""))]
            raise ValueError(f"{self._path}, line {line}: column {name!r} is empty; every sample needs a value.")
        return values


def _refuse_twins(names: Sequence[str], path: PathLike) -> None:
    for i, name in enumerate(names):
        if name in names[:i]:
            raise ValueError(f"{path} has two columns named {name!r}; rename or drop one.")


def _read_npz(path: Path, *, about: bool = False) -> Columns:
    unreadable = f"{path} is not a readable .npz file; write it with numpy.savez"
    if not zipfile.is_zipfile(path):  # numpy would take such a file for a pickle
        raise ValueError(f"{unreadable}.")
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files if name.startswith(_ABOUT) == about}
    except Exception as error:  # damaged archives fail in many ways, down to zlib
        if "allow_pickle" in str(error):
            remedy = "save names as strings (array.astype(str)) and numbers as numbers"
            raise ValueError(f"{path} holds pickled objects, which are never loaded; {remedy}.") from None
        raise ValueError(f"{unreadable} ({error}).") from None


@contextmanager
def open_parquet(path: PathLike) -> Iterator[Any]:
    """An open ``pyarrow.parquet.ParquetFile``; errors inside the block name the file."""
    pyarrow, parquet = import_pyarrow()
    try:
        with open_for_arrow(path) as source, parquet.ParquetFile(source) as file:
            yield file
    except (pyarrow.ArrowException, OSError) as error:
        raise unreadable_parquet(path, error) from None


def open_for_arrow(path: PathLike) -> Any:
    """A file that Arrow reads; given a path, Arrow opens only names in UTF-8."""
    return import_pyarrow()[0].OSFile(os.fsencode(path))


def as_utf8(name: str) -> str:
    r"""The name of a file for a column of text: bytes that are not UTF-8 become escapes.

    >>> as_utf8("a\udcff.png")
    'a\\xff.png'
    """
    return name.encode(errors="surrogateescape").decode(errors="backslashreplace")


def unreadable_parquet(path: PathLike, error: Exception) -> ValueError:
    """What to raise where Arrow raised ``error``."""
    reason = (str(error).splitlines() or [repr(error)])[0]
    return ValueError(f"{path} is not a readable Parquet file ({reason}); perhaps it was cut short: fetch it again.")


def arrow_columns(table: Any, path: PathLike) -> Columns:
    """The columns of an Arrow table that was read from ``path``, lists of one length as matrices."""
    _refuse_twins(table.column_names, path)
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


def import_pyarrow() -> tuple[Any, Any]:
    """``pyarrow`` and ``pyarrow.parquet``, or what to install."""
    why = "a Parquet file", "'openauc[parquet]', or use .npz or .csv"
    return check.import_extra("pyarrow", *why), check.import_extra("pyarrow.parquet", *why)


_PREDICTED = re.compile(r"pred|hat\b|guess|output|arg_?max|assigned|decision")
_TRUE = re.compile(r"true|truth|label|target|actual|class|gold|expected|\bgt|^y$|^y_test$")
_CONFIDENCE = re.compile(r"conf|prob|logit|softmax|msp|certain|simil|cosine")
_LOGITS = re.compile(r"logit|output|pred|score|decision")
_STRANGENESS = re.compile(r"un_?known|uncert|open|novel|anomal|ood|outlier|dist|energy|entropy")
_SCORE = re.compile(f"score|{_CONFIDENCE.pattern}|{_STRANGENESS.pattern}")
_UNKNOWN = re.compile(
    r"un_?known|unk|others?|none|none_of_(these|them|the_above)|oo[sd]|out_of_(scope|domain|distribution)|"
    r"misc|miscellaneous|novel|outliers?|unseen|background"
)
_ROUNDED = 0.05  # difference from 1 of a sum of rounded probabilities
_EMPTY = {"", "na", "n/a", "#n/a", "<na>", "nan", "null", "none"}


def means_unknown(label: object) -> bool:
    """Whether a label is a usual word for unknown samples.

    >>> means_unknown("Out of scope"), means_unknown("other"), means_unknown("mother")
    (True, True, False)
    """
    return _UNKNOWN.fullmatch(re.sub(r"[\s_-]+", "_", str(label).strip().lower())) is not None


def is_empty(cell: Any) -> bool:
    """Whether a cell holds nothing: None, NaN, the missing value of pandas, or blanks."""
    if isinstance(cell, str):
        return not cell.strip()
    return cell is None or type(cell).__name__ in ("NAType", "NaTType") or bool(cell != cell)


def as_column_of_numbers(values: NDArray[Any], *, share: float = 0.9) -> tuple[NDArray[Any], list[int]] | None:
    """A column as numbers, NaN where a cell is empty, and the rows that hold a text; None if it is not of numbers.

    It is a column of numbers if at least ``share`` of its cells that are not empty are numbers; with share 0, one
    number is enough, and so are no cells but empty ones. "NA" and its like count as empty.

    >>> as_column_of_numbers(np.array(["1", "", "NA", "2.5"]))
    (array([1. , nan, nan, 2.5]), [])
    >>> as_column_of_numbers(np.array(["007", "008"])), as_column_of_numbers(np.array(["", ""]))
    (None, None)
    """
    if values.ndim != 1 or values.dtype.kind not in "iufbUO":
        return None
    if values.dtype.kind in "iufb":
        return values, []
    cells = ["" if is_empty(cell) or str(cell).strip().lower() in _EMPTY else str(cell) for cell in values.tolist()]
    number = np.array([bool(cell) and check.is_number(cell) for cell in cells], bool)
    texts = [row for row, cell in enumerate(cells) if cell and not number[row]]
    given = [cells[row] for row in np.flatnonzero(number)]
    if len(given) < share * (len(given) + len(texts)) or not (given or (share == 0 and not texts)):
        return None
    parsed = parse_cells(given)
    if parsed.dtype.kind == "U":  # codes, such as "007"
        return None
    numbers = np.full(len(cells), np.nan)
    numbers[number] = parsed
    return numbers, texts


def guess_arguments(columns: Columns, given: Mapping[str, str], absent: Collection[str]) -> dict[str, str | bool]:
    """Arguments of ``Predictions.load`` (and the unknown label) that fit these columns, by their names and contents.

    ``given`` maps the arguments ``label_column``, ``pred_column`` and ``score_column`` to the names asked for; the
    columns of ``absent`` arguments are needed and not there.

    >>> file = {"label": ["0", "1", "other"], "prediction": [0, 1, 1], "confidence": [0.9, 0.8, 0.3]}
    >>> given = {"label_column": "y_true", "pred_column": "y_pred", "score_column": "open_score"}
    >>> guess = guess_arguments({name: np.array(values) for name, values in file.items()}, given, given)
    >>> ", ".join(f"{name}={value}" for name, value in guess.items())
    'label_column=label, pred_column=prediction, score_column=confidence, lower_is_unknown=True, unknown_label=other'
    """
    labels, numbers, matrices = _contents(columns)
    found = {role: name for role, name in given.items() if role not in absent and name in columns}
    # The argument for columns with a number for each class, and the class of each.
    by_class: tuple[str, str] | None = None
    classes: dict[str, str] = {}
    if {"pred_column", "score_column"} & set(absent):
        by_class, classes = _guess_by_class(numbers, matrices, labels, found.values())
    free = [name for name in labels if name not in found.values()]
    if by_class:
        labels[by_class[1]] = set(classes.values())

    def candidates(role: str, words: re.Pattern[str], *, but: str = "$^") -> list[str]:
        if role in found:
            return [found[role]] if found[role] in labels else []
        return [name for name in free if words.search(name.lower()) and not re.search(but, name.lower())]

    def one_more(true: str, predicted: str) -> bool:  # the label that is never predicted may be the unknown one
        return len(labels[true] - labels[predicted]) == 1

    trues = candidates("label_column", _TRUE, but=_PREDICTED.pattern)
    predicteds = candidates("pred_column", _PREDICTED) or ([by_class[1]] if by_class else [])
    pairs = [
        pair
        for pair in product(trues or free, predicteds or free)
        if pair[0] != pair[1] and labels[pair[0]] & labels[pair[1]] and ((trues and predicteds) or one_more(*pair))
    ]
    unknown = None
    if pairs:
        true, predicted = next((pair for pair in pairs if one_more(*pair)), pairs[0])
        found |= {"label_column": true, "pred_column": predicted}
        unknown = _unknown_label(labels[true], labels[predicted])
    else:
        found |= {role: names[0] for role, names in (("label_column", trues), ("pred_column", predicteds)) if names}
    if by_class and found.get("pred_column") == by_class[1]:
        del found["pred_column"]
    rejecting = [name for name, label in classes.items() if means_unknown(label)]
    if "score_column" not in found:
        rest = [name for name in numbers if name not in found.values() and name not in classes]
        fractions = [name for name in rest if (numbers[name] != np.floor(numbers[name])).any()]
        scores = [name for name in rest if _SCORE.search(name.lower())] or (fractions if len(fractions) == 1 else [])
        scores = rejecting or (scores if "pred_column" in found or not by_class else [])
        if scores:
            found["score_column"] = scores[0]
    arguments: dict[str, str | bool] = {role: found[role] for role in given if role in absent and role in found}
    if by_class and not {"pred_column", "score_column"} <= found.keys():
        arguments |= dict([by_class])
    score = found.get("score_column", "").lower()
    if _CONFIDENCE.search(score) and not _STRANGENESS.search(score):
        arguments["lower_is_unknown"] = True
    return arguments | ({"unknown_label": unknown} if unknown is not None else {})


def _contents(columns: Columns) -> tuple[dict[str, set[str]], dict[str, NDArray[Any]], dict[str, NDArray[Any]]]:
    """Columns that may be labels, with their values as text; columns of numbers; matrices of numbers."""
    labels, numbers, matrices = {}, {}, {}
    for name in columns:
        try:
            values = columns[name]
            if values.ndim == 2 and values.dtype.kind == "f":
                matrices[name] = values
            if values.ndim != 1 or _INDEX.fullmatch(name):
                continue
            if values.dtype.kind in "iuf":
                numbers[name] = values
            if name not in numbers or (values == np.floor(values)).all():
                found = {str(value) for value in check.as_labels(name, values).tolist()}
                if len(found) <= max(20, len(values) // 2):  # more are the names of samples
                    labels[name] = found
        except (ValueError, TypeError):  # holes, objects: nothing to evaluate
            continue
    return labels, numbers, matrices


def _guess_by_class(
    numbers: Columns, matrices: Columns, labels: Mapping[str, set[str]], taken: Collection[str]
) -> tuple[tuple[str, str] | None, dict[str, str]]:
    """The argument for columns with a number for each class, if there are such, and the name of the class of each."""
    names = [name for name, values in numbers.items() if values.dtype.kind == "f" and name not in {*labels, *taken}]
    patterns = Counter(pattern for name in names for pattern in _patterns(name))
    found: list[tuple[str, dict[str, str], NDArray[Any]]] = []
    for pattern in sorted(patterns, key=lambda one: (-patterns[one], -len(one))):
        columns = ColumnNames(probability_columns=pattern).by_class(names)
        if len(columns) > 1:
            found.append((pattern, columns, np.stack([numbers[name] for name in columns], axis=1)))
    found += [(name, {name: ""}, matrix) for name, matrix in matrices.items()]
    for pattern, columns, matrix in found:
        if not_probabilities(matrix) is None:
            return ("probability_columns", pattern), columns
    words = set().union(*labels.values())
    for pattern, columns, _ in found:
        classes = [label for label in columns.values() if not check.is_number(label)]
        if _LOGITS.search(pattern.lower()) or len(words.intersection(classes)) > 1:
            return ("logit_columns", pattern), columns
    return None, {}


def _patterns(name: str) -> set[str]:
    """Patterns that the name may fit: what stands for the class begins or ends at a separator, or is a number.

    >>> sorted(_patterns("prob_0")), sorted(_patterns("p12"))
    (['*', '*_0', 'prob_*'], ['*', 'p*'])
    """
    ends = [at.end() for at in re.finditer(r"[\W_]+|[^\W\d_](?=\d)", name)]
    starts = [at.start() for at in re.finditer(r"[\W_]+", name)]
    return {"*"} | {f"{name[:end]}*" for end in ends if end < len(name)} | {f"*{name[at:]}" for at in starts if at}


def holds_fractions(columns: Columns, name: str) -> bool:
    """Whether this is a column of floating-point numbers."""
    try:
        return columns[name].ndim == 1 and columns[name].dtype.kind == "f"
    except ValueError:  # a text with gaps
        return False


def not_probabilities(matrix: NDArray[Any]) -> str | None:
    """Why the rows of a matrix are not probabilities of classes; None if they are, rounded perhaps.

    >>> not_probabilities(np.array([[0.1, 0.9], [0.33, 0.66]])), not_probabilities(np.array([[0.1, 0.9], [1, 0.66]]))
    (None, 'those of sample 1 sum to 1.66')
    """
    least, most, total = matrix.min(axis=1), matrix.max(axis=1), matrix.sum(axis=1, dtype=np.float64)
    small = 1e-3  # half precision makes 1.001 of 1
    for row in np.flatnonzero((least < -small) | (most > 1 + small)):
        return f"sample {row} has {least[row] if least[row] < 0 else most[row]:g}"
    for row in np.flatnonzero(np.abs(total - 1) > _ROUNDED):
        return f"those of sample {row} sum to {total[row]:.3g}"
    return None


def _unknown_label(true: set[str], predicted: set[str]) -> str | None:
    """The label of unknown samples, unless it is the usual one."""
    if str(check.UNKNOWN) in true:
        return None
    for likely in (true - predicted, {label for label in true if means_unknown(label)}):
        if len(likely) == 1:
            return likely.pop()
    return None
