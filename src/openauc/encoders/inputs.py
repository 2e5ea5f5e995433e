"""What there is to embed: a folder of images, a table with texts or images, a part of a protocol."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from openauc._columns import GappyCsv, import_pyarrow
from openauc._validation import UNKNOWN, check_choice, read_label
from openauc.encoders.base import Kind, check_texts
from openauc.protocols import get_protocol
from openauc.protocols.base import OpenSetData
from openauc.protocols.files import is_protocol_file
from openauc.protocols.sources import EncodedImage, LazyImages, image_files

EMBEDDING = "embedding"
"""Name of the column of features."""

Part = Literal["train", "validation", "test"]

_TABLES = (".csv", ".parquet")
_UNKNOWN_NAME = "unknown"


@dataclass(frozen=True)
class Source:
    """Items of one kind, in order.

    Parameters
    ----------
    columns
        Table of `pyarrow` with a row per item: what the embeddings will stand beside.
    items
        The items from a row on.
    about
        What tells this source, as it is now, from any other.
    """

    kind: Kind
    columns: Any
    items: Callable[[int], Iterator[Any]]
    about: Mapping[str, Any]

    def __len__(self) -> int:
        rows: int = self.columns.num_rows
        return rows


def open_source(
    source: str,
    *,
    wanted: Kind | None = None,
    text_column: str | None = None,
    split: int = 0,
    part: Part = "test",
    validation: float = 0.0,
    data_root: Path | None = None,
) -> Source:
    """The folder of images, the ``.csv`` or ``.parquet`` file, or the protocol of that name.

    Parameters
    ----------
    wanted
        What to take of a table that has both texts and images; images if left out.
    text_column
        Column of the texts; ``text``, or the only one that looks like it, if left out.
    split, part, validation, data_root
        Of a protocol; see :meth:`~openauc.protocols.base.Protocol.load`.
    """
    path = Path(source)
    if path.suffix.lower() in _TABLES and not path.is_dir():
        found = _table(path, wanted, text_column)
    elif path.exists() and not is_protocol_file(source):
        found = _folder(path)
    elif len(path.parts) > 1 and not is_protocol_file(source):
        raise FileNotFoundError(f"there is no folder or file {source}.")
    else:
        data = get_protocol(source).load(split, root=data_root, validation=validation)
        found = _protocol(data, source, split, part)
    if text_column is not None and found.kind == "image":
        raise ValueError(f"text_column is {text_column!r}, but {source} holds images; leave it out.")
    if not len(found):
        raise ValueError(f"{source} has no rows; there is nothing to embed.")
    if EMBEDDING in found.columns.column_names:
        raise ValueError(f"{source} has a column {EMBEDDING!r} already; rename it, or use it as it is.")
    return found


def _folder(path: Path) -> Source:
    pyarrow, _ = import_pyarrow()
    if (path / "train").is_dir():
        raise ValueError(f"{path} has a folder train; embed it and its neighbours one by one, as {path / 'train'}.")
    images = image_files(path)
    columns = {"file": [str(image) for image in images]}
    inside = [image.file.relative_to(path).parts for image in images]
    classes = [parts[0] for parts in inside if len(parts) > 1]
    if classes and len(classes) < len(images):
        stray = next(image for image, parts in zip(images, inside, strict=True) if len(parts) == 1)
        raise ValueError(f"{stray} lies beside folders of classes; move it into one, or away.")
    if classes:
        columns["label"] = classes
    about = {"source": str(path.resolve()), "content": _fingerprint(images)}
    return Source("image", pyarrow.table(columns), lambda start: iter(images[start:]), about)


def _protocol(data: OpenSetData, name: str, split: int, part: Part) -> Source:
    pyarrow, _ = import_pyarrow()
    images, labels = getattr(data, f"{part}_images"), getattr(data, f"{part}_labels")
    if not len(images):
        raise ValueError(
            "validation is 0, so that part is empty; pass the share of each class to hold out for it, as 0.2."
        )
    columns = {"label": _label_names(data.class_names, labels)}
    if part == "test":
        columns |= data.test_columns()
    if isinstance(images, LazyImages):
        images = images.encoded  # each in its own size, for the encoder to resize
        content = _fingerprint(images)
    else:
        content = hashlib.sha256(images.tobytes()).hexdigest()
    about = {"source": name, "split": split, "part": part, "content": content}
    return Source("image", pyarrow.table(columns), lambda start: iter(images[start:]), about)


def _label_names(names: tuple[str, ...], labels: NDArray[np.int64]) -> NDArray[Any]:
    """The class of each sample, "unknown" for none; among classes that are numbers, -1."""
    if _UNKNOWN_NAME in names:
        raise ValueError(f"a known class is called {_UNKNOWN_NAME!r}; rename it.")
    read = [read_label(name) for name in names]
    numbered = all(isinstance(label, int) and label >= 0 for label in read)
    table = np.array([*read, UNKNOWN] if numbered else [*names, _UNKNOWN_NAME])
    return table[labels]  # the unknown label, -1, is the last one


def _fingerprint(images: Iterable[EncodedImage]) -> str:
    """Of compressed images in their order; a file counts by name, size and time."""
    digest = hashlib.sha256()
    for image in images:
        state = image.content or image.file.stat()
        digest.update(state if isinstance(state, bytes) else f"{state.st_size} {state.st_mtime_ns}".encode())
        digest.update(f"{image}\n".encode())
    return digest.hexdigest()


def _table(path: Path, wanted: Kind | None, text_column: str | None) -> Source:
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}.")
    state = path.stat()
    about = {"source": str(path.resolve()), "size": state.st_size, "modified": state.st_mtime_ns}
    pyarrow, _ = import_pyarrow()
    if path.suffix.lower() == ".csv":
        cells = GappyCsv(path)
        return _texts(path, pyarrow.table({name: cells[name] for name in cells}), text_column, about)
    columns, pictures = _read_parquet(path)
    if not pictures or text_column is not None or (wanted == "text" and "text" in columns.column_names):
        return _texts(path, columns, text_column, about)
    return Source("image", columns, lambda start: _pictures(path, pictures[0], start), about)


def _read_parquet(path: Path) -> tuple[Any, list[str]]:
    """The columns of a Parquet file but those of images, and the names of these; their paths are a column ``file``."""
    pyarrow, parquet = import_pyarrow()
    try:
        with parquet.ParquetFile(path) as file:
            schema = file.schema_arrow
            pictures = [name for name in schema.names if _is_image(schema.field(name).type)]
            columns = file.read(columns=[name for name in schema.names if name not in pictures])
            if pictures and "file" not in columns.column_names:
                paths = file.read(columns=[f"{pictures[0]}.path"]).column(0).combine_chunks().field("path")
                if not paths.null_count or not columns.num_columns:
                    columns = columns.append_column("file", paths)
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(f"{path} is not a readable Parquet file ({str(error).splitlines()[0]}).") from None
    return columns.replace_schema_metadata(None), pictures


def _texts(path: Path, columns: Any, text_column: str | None, about: Mapping[str, Any]) -> Source:
    name = _text_column(path, columns, text_column)
    texts = columns.column(name).to_pylist()
    check_texts(texts, f"{path}: column {name!r}")
    about = {**about, "text_column": name}
    return Source("text", columns, lambda start: iter(texts[start:]), about)


def _text_column(path: Path, columns: Any, given: str | None) -> str:
    names = columns.column_names
    if given is not None:
        return check_choice("text_column", given, names)
    if "text" in names:
        return "text"
    strings = [name for name in names if _is_text(columns.schema.field(name).type)]
    worded = [name for name in strings if _has_words(columns.column(name))]
    likely = strings if len(strings) == 1 else worded
    if len(likely) != 1:
        raise ValueError(
            f"{path} has the columns {', '.join(map(repr, names))}, none of which is surely its text; name it with "
            "text_column."
        )
    name: str = likely[0]
    return name


def _has_words(column: Any) -> bool:
    """Whether most of the first cells hold several words, as sentences do and labels do not."""
    cells = [cell for cell in column.slice(0, 1000).to_pylist() if cell]
    return sum(" " in cell.strip() for cell in cells) > len(cells) / 2


def _is_text(kind: Any) -> bool:
    types = import_pyarrow()[0].types
    if types.is_dictionary(kind):
        kind = kind.value_type
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_image(kind: Any) -> bool:
    """Whether this is the Hub's type of images, struct<bytes: binary, path: string>."""
    is_struct = import_pyarrow()[0].types.is_struct
    return bool(is_struct(kind)) and min(map(kind.get_field_index, ("bytes", "path"))) >= 0


def _pictures(path: Path, column: str, start: int) -> Iterator[EncodedImage]:
    """The images of a Parquet file from a row on, a few in memory at a time."""
    first = 0
    with import_pyarrow()[1].ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=256, columns=[f"{column}.bytes"]):
            contents = batch.column(0).field("bytes")
            for row in range(max(first, start), first + len(contents)):
                content = contents[row - first].as_py()
                if content is None:
                    raise ValueError(f"{path}, row {row} has no image bytes; remove the row or put the image in.")
                yield EncodedImage(path, row, content)
            first += len(contents)
