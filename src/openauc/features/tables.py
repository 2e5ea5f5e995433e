"""Tables of embeddings: which columns of a file are features and which is the label, and decisions as columns."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from openauc._columns import Columns, GappyCsv, import_pyarrow, read_columns, suffix_of
from openauc._files import PathLike, parse_json, write_text
from openauc._validation import UNKNOWN, Label, as_label, as_labels, check_fraction

if TYPE_CHECKING:
    from openauc.features.estimator import OpenSetClassifier

EMBEDDINGS = ("embedding", "embeddings", "features", "X")
"""Names of a column of embeddings, the likeliest first."""
LABELS = ("label", "y", "y_true", "class", "intent", "target")
"""Names of a column of labels, the likeliest first."""
DECISIONS = ("y_true", "prediction", "y_pred", "open_score", "p_value")
"""Columns of :func:`decide` and :func:`truth`."""
MODEL, SOURCE = "model.json", "source.json"
"""Files in the folder of a model: what :mod:`~openauc.features.files` writes, and :class:`Source`."""

_NUMBERS_OF_ROWS = {"", "id", "index", "unnamed: 0", "__index_level_0__"}
_UNKNOWN_WORD = "unknown"


def is_model(folder: Path) -> bool:
    """Whether `openauc fit`, or ``OpenSetClassifier.save``, made this folder."""
    return (folder / MODEL).is_file()


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where the samples of a model came from; another table is read alike.

    Parameters
    ----------
    features
        The column of embeddings, or the columns of numbers.
    label
        The column of labels.
    encoder
        Who made the embeddings, if the file says so.
    """

    features: tuple[str, ...] = ()
    label: str | None = None
    encoder: str | None = None

    def save(self, folder: Path) -> None:
        """Put it beside a model."""
        write_text(folder / SOURCE, json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def load(cls, folder: Path) -> Source:
        """What stands beside a model; of one that was saved from Python, nothing is known."""
        file = folder / SOURCE
        if not file.is_file():
            return cls()
        try:
            values = parse_json(file.read_bytes())
            return cls(**{**values, "features": tuple(map(str, values["features"]))})
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{file} does not say what the model was fitted on ({error}); fit it again.") from None


@dataclass(frozen=True)
class Table:
    """Embeddings, and what stands beside them.

    Parameters
    ----------
    path
        The file.
    features
        (n, d) numbers.
    columns
        All columns that are not features, the label among them.
    source
        Which columns are what.
    left_out
        Of a table of numbers, the columns that are none, or count the rows.
    """

    path: Path
    features: NDArray[Any]
    columns: Columns
    source: Source
    left_out: tuple[str, ...] = ()

    @cached_property
    def labels(self) -> NDArray[Any]:
        """(n,) labels: integers or names, and None where one is missing."""
        if self.source.label is None:
            raise ValueError(
                f"{self.path} has no column of labels ({', '.join(map(repr, LABELS))}); it has "
                f"{_named(self.columns)}. Name it with label_column."
            )
        values = self.columns[self.source.label]
        if values.dtype == object and any(value is None for value in values):
            return values
        return as_labels(f"{self.path}: the column {self.source.label!r}", values)

    @property
    def labelled(self) -> bool:
        """Whether every sample has a label."""
        return self.source.label is not None and not any(label in (None, "") for label in self.labels.tolist())


def read_table(
    path: PathLike, *, embedding_column: str | None = None, label_column: str | None = None, like: Source | None = None
) -> Table:
    """Read embeddings from ``.parquet``, ``.npz`` or ``.csv``.

    The features are a column of lists (in ``.npz`` an array of two dimensions); without one, all columns of numbers but
    the label.

    Parameters
    ----------
    embedding_column, label_column
        Their names, where they have others than :data:`EMBEDDINGS` and :data:`LABELS`.
    like
        Read it like the table a model was fitted on.
    """
    file, like = Path(path), like or Source()
    columns = GappyCsv(file) if suffix_of(file) == ".csv" and file.is_file() else read_columns(file)
    label = _label(file, columns, label_column, like)
    left_out: tuple[str, ...] = ()
    if embedding_column is None and like.features and all(name in columns for name in like.features):
        taken = like.features
    else:
        taken, left_out = _features(file, columns, embedding_column, label)
    source = Source(features=taken, label=label, encoder=_encoder(file))
    others = {name: columns[name] for name in columns if name not in taken}
    return Table(file, _matrix(file, columns, taken), others, source, left_out)


def _label(path: Path, columns: Columns, given: str | None, like: Source) -> str | None:
    if given is not None:
        return _present(path, columns, given, "label_column")
    likely = [name for name in (like.label, *LABELS) if name is not None]
    by_name = {name.lower(): name for name in reversed(list(columns))}
    return next((by_name[name.lower()] for name in likely if name.lower() in by_name), None)


def _present(path: Path, columns: Columns, name: str, option: str) -> str:
    if name not in columns:
        raise ValueError(f"{path} has no column {name!r}, which {option} names; it has {_named(columns)}.")
    return name


def _features(
    path: Path, columns: Columns, given: str | None, label: str | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Columns that are features, and columns that are left out because they are no numbers."""
    if given is not None:
        return (_present(path, columns, given, "embedding_column"),), ()
    named = next((name for name in EMBEDDINGS if name in columns), None)
    if named is not None:
        return (named,), ()
    rest = [name for name in columns if name != label]
    lists = [name for name in rest if columns[name].ndim == 2]
    if len(lists) > 1:
        raise ValueError(
            f"{path} has {len(lists)} columns of lists, {_named(lists)}; choose one with embedding_column."
        )
    if lists:
        return (lists[0],), ()
    numbers = tuple(n for n in rest if columns[n].dtype.kind in "iufb" and n.lower() not in _NUMBERS_OF_ROWS)
    if not numbers:
        raise ValueError(
            f"{path} has no column of embeddings, nor of other numbers; it has {_named(columns)}. `openauc embed` "
            "makes embeddings of texts and images; embedding_column names a column of another name."
        )
    return numbers, tuple(name for name in rest if name not in numbers)


def _matrix(path: Path, columns: Columns, names: Sequence[str]) -> NDArray[Any]:
    """(n, d) the features."""
    if len(names) == 1:
        matrix = columns[names[0]]
        matrix = matrix[:, None] if matrix.ndim == 1 and matrix.dtype.kind in "iufb" else matrix
    else:
        matrix = np.stack([columns[name] for name in names], axis=1)
    if matrix.ndim != 2 or matrix.dtype.kind not in "iufb":
        raise ValueError(
            f"{path}: the column {names[0]!r} is no list of numbers for each sample; `openauc embed` makes one."
        )
    if not matrix.size:
        raise ValueError(f"{path} holds no sample; expected one row per sample.")
    if matrix.dtype.kind == "f" and not np.isfinite(matrix).all():
        row, column = (int(place[0]) for place in np.nonzero(~np.isfinite(matrix)))
        where = repr(names[column]) if len(names) > 1 else f"{names[0]!r}, feature {column},"
        raise ValueError(f"{path}: {where} is {matrix[row, column]} for sample {row}; drop the sample, or fill it in.")
    return np.asarray(matrix, dtype=np.float64 if matrix.dtype == np.float64 else np.float32)


def _encoder(path: Path) -> str | None:
    """The encoder's name as `openauc embed` writes it into Parquet files."""
    if path.suffix.lower() != ".parquet":
        return None
    metadata = import_pyarrow()[1].read_schema(path).metadata or {}
    found = metadata.get(b"openauc.encoder")
    return None if found is None else found.decode(errors="replace")


def _named(columns: Iterator[str] | Columns | Sequence[str], most: int = 20) -> str:
    names = list(columns)
    more = [f"{len(names) - most} more"] if len(names) > most else []
    return ", ".join([*map(repr, islice(names, most)), *more]) or "none"


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
    from openauc.features.conformal import benjamini_hochberg

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


def unknown_when(classifier: OpenSetClassifier) -> str:
    """When a sample is unknown, in words."""
    low, high = f"{classifier.thresholds_.min():.5g}", f"{classifier.thresholds_.max():.5g}"
    if low != high:
        return f"score above the threshold of its class, {low} to {high}"
    return "never" if low == "inf" else f"score above {low}"


def refuse_other_features(classifier: OpenSetClassifier, table: Table, model: PathLike) -> None:
    """Raise, with what may be the reason, unless the features are as many as the model was fitted on."""
    width, expected = table.features.shape[1], classifier.n_features_in_
    if width != expected:
        raise ValueError(
            f"{table.path} has {width} features for each sample, but {model} was fitted on {expected}; were they made "
            "by the same encoder?"
        )


def other_columns(table: Table) -> Mapping[str, NDArray[Any]]:
    """Columns to carry over beside decisions: no lists, and none that decisions themselves have."""
    return {
        name: _plain(values) for name, values in table.columns.items() if values.ndim == 1 and name not in DECISIONS
    }


def _plain(values: NDArray[Any]) -> NDArray[Any]:
    """Text as text, which every format can hold."""
    texts = values.dtype == object and all(isinstance(value, str) for value in values)
    return values.astype(str) if texts else values
