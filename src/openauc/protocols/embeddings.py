"""Embeddings in place of images: arrays (n, d) instead of (n, H, W, 3); splits, tests and methods are the same."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from openauc._columns import read_columns
from openauc._files import cache_folder
from openauc.protocols.sources import LABEL_COLUMNS, Examples, SourcePart, get_source

FOLDER = "embeddings"


class EmbeddingFile(NamedTuple):
    """One file of embeddings, and the file of texts or images that it is made of, if there is one."""

    path: Path
    made_of: Path | None


@dataclass(frozen=True, kw_only=True)
class EmbeddingSource:
    """A data set as `<name>_<encoder>_<part>.parquet`, as `openauc embed` writes it.

    Files are searched in `<root>/embeddings`, in `embeddings` beside `root`, and in the cache
    (``OPENAUC_CACHE``, else ``~/.cache/openauc``); `root` is the argument or the environment variable ``OPENAUC_DATA``.

    Parameters
    ----------
    name, encoder
        Names of the data set, which lies in `<root>/<name>`, and of its encoder in ``ENCODERS``.
    width
        Number d of features.
    test
        Names of the files that make up the test part.
    outside
        Label of samples that belong to no class; as a class it comes after all others.
    """

    name: str
    encoder: str
    width: int
    test: tuple[str, ...] = ("test",)
    outside: str | None = None
    image_size = None

    def class_names(self, *, root: Path | None) -> tuple[str, ...]:
        """Return the sorted labels, or, if labels are numbers, all numbers up to the largest."""
        labels = self._read("train", root)[1]
        if labels.dtype.kind in "iu":
            return tuple(map(str, range(int(labels.max()) + 1)))
        names = np.unique(labels).tolist()
        return (*names, *([self.outside] if self.outside else []))

    def read(self, part: SourcePart, *, classes: Sequence[int], root: Path | None, image_size: int) -> Examples:
        """Return the embeddings (n, d) of `classes` in file order."""
        features, labels = self._read(part, root)
        if labels.dtype.kind not in "iu":
            number = {name: i for i, name in enumerate(self.class_names(root=root))}
            if strange := set(labels.tolist()) - set(number):
                raise ValueError(f"{self.name}, {part} part: the training part has no label {min(strange)!r}.")
            labels = np.array([number[label] for label in labels.tolist()])
        rows = np.flatnonzero(np.isin(labels, classes))
        return Examples(features[rows], labels[rows].astype(np.int64))

    def files(self, part: SourcePart, root: Path | None) -> list[EmbeddingFile]:
        """The files of a part: where they are, or where they will be made."""
        given = root or os.environ.get("OPENAUC_DATA")
        data = Path(given) if given else None
        homes = [] if data is None else [data / FOLDER, data.resolve().parent / FOLDER]
        files = []
        for name in self.test if part == "test" else (part,):
            file = f"{self.name}_{self.encoder}_{name}.parquet"
            found = next((home / file for home in homes if (home / file).is_file()), cache_folder(FOLDER) / file)
            raw = [] if data is None else list((data / self.name).glob(f"{name}-*.parquet"))
            files.append(EmbeddingFile(found, raw[0] if len(raw) == 1 else None))
        return files

    def _read(self, part: SourcePart, root: Path | None) -> tuple[NDArray[np.float32], NDArray[Any]]:
        files = self.files(part, root)
        if missing := next((file for file in files if not file.path.is_file()), None):
            data = missing.made_of or f"<data>/{self.name}/*.parquet"
            raise FileNotFoundError(
                f"there are no embeddings {missing.path.name}; make them with `openauc embed {data} --encoder "
                f"{self.encoder} -o {missing.path}`, or set --data-root to a folder with {self.name}/ in it."
            )
        parts = [_table(file.path, file.path.stat().st_mtime_ns, self.width) for file in files]
        return np.concatenate([x for x, _ in parts]), np.concatenate([labels for _, labels in parts])


@lru_cache(maxsize=6)
def _table(path: Path, modified: int, width: int) -> tuple[NDArray[np.float32], NDArray[Any]]:
    """Embeddings and labels of a file in the state of `modified`; the trials of a benchmark share them."""
    columns = read_columns(path)
    label = next((name for name in LABEL_COLUMNS if name in columns), None)
    if "embedding" not in columns or label is None:
        raise ValueError(f"{path} has the columns {', '.join(columns)}; expected 'embedding' and 'label'.")
    features = np.asarray(columns["embedding"], np.float32)
    if features.ndim != 2 or features.shape[1] != width:
        raise ValueError(f"{path} has embeddings of shape {features.shape[1:]}; expected {width} features each.")
    return features, columns[label]


@dataclass(frozen=True, kw_only=True)
class PixelSource:
    """The grey values of the images of `source`, a name in `SOURCES` with images of one size, as features in [0, 1]."""

    source: str
    image_size = None

    @property
    def width(self) -> int:
        """Number d of features, one for each pixel."""
        return (get_source(self.source).image_size or 0) ** 2

    def class_names(self, *, root: Path | None) -> tuple[str, ...]:
        """Return the names of the source's classes."""
        return get_source(self.source).class_names(root=root)

    def read(self, part: SourcePart, *, classes: Sequence[int], root: Path | None, image_size: int) -> Examples:
        """Return the features (n, pixels) of `classes`."""
        source = get_source(self.source)
        images, labels = source.read(part, classes=classes, root=root, image_size=source.image_size or 0)
        return Examples(images[:][..., 0].reshape(len(labels), -1) / np.float32(255), labels)
