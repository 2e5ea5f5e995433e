"""Rows that the measurements of `loop.py` are made on: intents and images as embeddings, and Gaussian classes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from openauc._columns import read_columns
from openauc._files import atomic_write
from openauc.bench.student import mean_interval
from openauc.encoders.inputs import open_items
from openauc.encoders.output import write_embeddings
from openauc.encoders.registry import get_encoder
from openauc.features import OpenSetClassifier
from openauc.protocols.embeddings import EmbeddingSource

ENCODERS = {"clinc150": ("minilm", 384), "banking77": ("minilm", 384), "cifar100": ("efficientnet_lite0", 1280)}
PARTS = {"clinc150": ("train", "validation"), "banking77": ("train",), "cifar100": ("test",)}
MOST_ROWS = 50  # of a class to fit on, and in a stream
FIT_SHARE = 0.6  # of a class of fewer rows
TEST_SHARE = 0.2  # of a data set without a test part
OUTSIDE = "oos"  # the label of rows of no class

Array = NDArray[Any]
Found = dict[str, Any]


class Rows(NamedTuple):
    """Embeddings, names of their classes, and their texts, which are empty for images."""

    X: Array
    y: Array
    texts: Array

    def take(self, rows: Array) -> Self:
        return type(self)(*(column[rows] for column in self))

    def of(self, classes: Iterable[str]) -> Self:
        return self.take(np.isin(self.y, list(classes)))


def together(parts: Sequence[Rows]) -> Rows:
    return Rows(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


class Data(NamedTuple):
    """A data set, to be divided; ``test`` and ``outside``, of rows of no class, may have no rows."""

    pool: Rows
    test: Rows
    outside: Rows


class Division(NamedTuple):
    """Rows to fit on, of a stream and to test with."""

    fit: Rows
    stream: Rows
    test: Rows
    classes: list[str]  # in random order


class Store:
    """Data sets of embeddings; those that are found nowhere are made in ``work``."""

    def __init__(self, work: Path, data_root: Path | None) -> None:
        self.work, self.data_root = work, data_root
        self.data = cache(self._data)

    def _data(self, name: str) -> Data:
        pool = together([self._part(name, part) for part in PARTS[name]])
        nothing = pool.take(np.arange(0))
        return Data(
            pool,
            self._part(name, "test") if "test" not in PARTS[name] else nothing,
            self._part(name, "oos_test") if name == "clinc150" else nothing,
        )

    def _part(self, name: str, part: str) -> Rows:
        encoder, width = ENCODERS[name]
        source = EmbeddingSource(name=name, encoder=encoder, width=width, test=(part,))
        (found,) = source.files("test", self.data_root)
        file = found.path if found.path.is_file() else self.work / found.path.name
        if not file.is_file():
            if found.made_of is None:
                raise FileNotFoundError(
                    f"there is neither {found.path} nor a file of the {part} part in {name}/ of the data root; "
                    "set --data-root to a folder that has it."
                )
            network = get_encoder(encoder)
            write_embeddings(open_items(str(found.made_of), wanted=network.kind), network, file)
        columns = read_columns(file)
        label = next(columns[one] for one in ("label", "fine_label") if one in columns).astype(str)
        texts = columns["text"].astype(object) if "text" in columns else np.full(len(label), "", object)
        return Rows(np.asarray(columns["embedding"], np.float32), label, texts)


def divide(data: Data, rng: np.random.Generator) -> Division:
    """Cut each class at random; half of the rows of no class are in the stream, half in the test."""
    fit, stream, test = [], [], []
    for label in np.unique(data.pool.y):
        rows = rng.permutation(np.flatnonzero(data.pool.y == label))
        n_test = 0 if len(data.test.y) else round(TEST_SHARE * len(rows))
        test.append(rows[:n_test])
        n_fit = min(MOST_ROWS, round(FIT_SHARE * (len(rows) - n_test)))
        fit.append(rows[n_test : n_test + n_fit])
        stream.append(rows[n_test + n_fit :][:MOST_ROWS])
    outside = np.array_split(rng.permutation(len(data.outside.y)), 2)
    return Division(
        data.pool.take(np.concatenate(fit)),
        together([data.pool.take(np.concatenate(stream)), data.outside.take(outside[0])]),
        together([data.pool.take(np.concatenate(test)), data.test, data.outside.take(outside[1])]),
        rng.permutation(np.unique(data.pool.y)).tolist(),
    )


def gaussians(rng: np.random.Generator, centres: Array, rows: int, noise: float = 1.0, first: int = 0) -> Rows:
    """Rows of each class around its centre, with noise of this mean length; classes are numbered from ``first``."""
    n, width = len(centres) * rows, centres.shape[1]
    X = np.repeat(np.asarray(centres, np.float32), rows, 0)
    X += rng.standard_normal((n, width), np.float32) * np.float32(noise / np.sqrt(width))
    y = np.repeat([f"class {first + number:04}" for number in range(len(centres))], rows)
    return Rows(X, y, np.full(n, "", object))


def directions(rng: np.random.Generator, classes: int, width: int) -> Array:
    """Random unit vectors."""
    centres = rng.standard_normal((classes, width))
    return np.asarray(centres / np.linalg.norm(centres, axis=1, keepdims=True))


def fitted(rows: Rows, seed: int) -> OpenSetClassifier:
    return OpenSetClassifier(random_state=seed).fit(rows.X, rows.y)


def save_arrays(file: Path, **arrays: Array) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(file) as out:
        np.savez(out, **arrays)  # type: ignore[arg-type]


# Telling


def values(ones: Iterable[Found], *path: Any) -> list[float]:
    """Numbers at one place of each result, without those that are None."""
    found = []
    for one in ones:
        inner: Any = one
        for key in path:
            inner = inner[key]
        if inner is not None:
            found.append(float(inner))
    return found


def mean(numbers: Sequence[float] | Array) -> float:
    return float(np.mean(numbers)) if len(numbers) else float("nan")


def ratio(ones: Sequence[Found], above: Sequence[Any], below: Sequence[Any]) -> float:
    """Mean ratio of two numbers of the same result."""
    return mean(np.array(values(ones, *above)) / np.array(values(ones, *below)))


def percent(numbers: Sequence[float] | Array, *, interval: bool = False, places: int = 1) -> str:
    """Mean of shares in percent, perhaps with its 95 % interval."""
    if not len(numbers):
        return ""
    told = f"{100 * mean(numbers):.{places}f}"
    bounds = mean_interval(list(numbers), 0.95) if interval and len(numbers) > 1 else None
    return told + (f" [{100 * bounds[0]:.{places}f}, {100 * bounds[1]:.{places}f}]" if bounds else "")


def table(heads: Sequence[str], lines: Iterable[Sequence[str]], texts: int = 1) -> list[str]:
    """A table; its first ``texts`` columns are not numbers."""
    marks = ["---" if number < texts else "---:" for number in range(len(heads))]
    return [f"| {' | '.join(line)} |" for line in (heads, marks, *lines)]
