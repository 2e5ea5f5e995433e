"""What to embed: a folder of images, a table with texts or images, or a part of a protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from openauc._columns import Csv, as_utf8, import_pyarrow, open_parquet
from openauc._validation import UNKNOWN, check_choice, read_label
from openauc.encoders.base import Kind, bad_texts
from openauc.protocols import get_protocol
from openauc.protocols.base import OpenSetData, Part
from openauc.protocols.files import is_protocol_file
from openauc.protocols.sources import IMAGE_SUFFIXES, EncodedImage, LazyImages, image_files

EMBEDDING = "embedding"  # column of the features

_TABLES = (".csv", ".parquet")
_TEXTS = ("text", "sentence", "utterance", "message", "body")
_PATHS = ("image", "path", "file", "filename")
_UNKNOWN_NAME = "unknown"


@dataclass(frozen=True)
class Items:
    """What to embed: a `pyarrow` table, the item of each of its rows, and what was wrong with the rows left out."""

    kind: Kind
    columns: Any
    read: Callable[[], Iterable[Any]]
    skipped: tuple[str, ...] = ()

    def __len__(self) -> int:
        return int(self.columns.num_rows)


def open_items(
    source: str,
    *,
    wanted: Kind | None = None,
    text_column: str | None = None,
    split: int = 0,
    part: Part = "test",
    validation: float = 0.0,
    data_root: Path | None = None,
    skip_bad: bool = False,
) -> Items:
    """The folder of images, the ``.csv`` or ``.parquet`` file with texts, images or their paths, or the protocol.

    ``wanted`` decides for a table that has both texts and images.
    """
    path = Path(source)
    if path.suffix.lower() in _TABLES and not path.is_dir():
        found = _table(path, wanted, text_column, skip_bad)
    elif path.exists() and not is_protocol_file(source):
        found = _folder(path)
    elif len(path.parts) > 1 and not is_protocol_file(source):
        raise FileNotFoundError(f"there is no folder or file {source}.")
    else:
        data = get_protocol(source).load(split, root=data_root, validation=validation)
        found = _protocol(data, part)
    if text_column is not None and found.kind == "image":
        raise ValueError(f"text_column is {text_column!r}, but {source} holds images; leave it out.")
    if not len(found):
        raise ValueError(" ".join([f"{source} has no rows; there is nothing to embed.", *found.skipped[:1]]))
    if EMBEDDING in found.columns.column_names:
        raise ValueError(f"{source} has a column {EMBEDDING!r} already; rename it, or use it as it is.")
    return found


def _folder(path: Path) -> Items:
    if (path / "train").is_dir():
        raise ValueError(f"{path} has a folder train; embed it and its neighbours one by one, as {path / 'train'}.")
    images = image_files(path)
    columns = {"file": [as_utf8(str(image)) for image in images]}
    inside = [image.file.relative_to(path).parts for image in images]
    classes = [as_utf8(parts[0]) for parts in inside if len(parts) > 1]
    if classes and len(classes) < len(images):
        stray = next(image for image, parts in zip(images, inside, strict=True) if len(parts) == 1)
        raise ValueError(f"{stray} lies beside folders of classes; move it into one, or away.")
    if classes:
        columns["label"] = classes
    return Items("image", import_pyarrow()[0].table(columns), lambda: images)


def _protocol(data: OpenSetData, part: Part) -> Items:
    images, labels = getattr(data, part)[:2]
    if not len(images):
        raise ValueError("validation is 0, so that part is empty; pass the share of each class for it, as 0.2.")
    if _UNKNOWN_NAME in data.class_names:
        raise ValueError(f"a known class is called {_UNKNOWN_NAME!r}; rename it.")
    names = [read_label(name) for name in data.class_names]
    numbered = all(isinstance(label, int) and label >= 0 for label in names)
    table = np.array([*names, UNKNOWN] if numbered else [*data.class_names, _UNKNOWN_NAME])
    columns = {"label": table[labels]}  # the unknown label, -1, is the last one
    if part == "test":
        columns |= data.test_columns()
    if isinstance(images, LazyImages):
        images = images.encoded  # each in its own size, for the encoder to resize
    return Items("image", import_pyarrow()[0].table(columns), lambda: images)


def _table(path: Path, wanted: Kind | None, text_column: str | None, skip_bad: bool) -> Items:
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}.")
    columns, pictures = read_table(path)
    chosen = choose_cells(path, columns, pictures, wanted, text_column)
    if chosen.hold == "image":
        return Items("image", columns, lambda: _pictures(path, chosen.column))
    return items_of_cells(path, columns, chosen, skip_bad=skip_bad)


class Cells(NamedTuple):
    """The column of a table that holds what to embed: texts, paths of images, or images."""

    hold: Literal["text", "path", "image"]
    column: str


def choose_cells(path: Path, columns: Any, pictures: list[str], wanted: Kind | None, text_column: str | None) -> Cells:
    """Which column of a table to embed; ``pictures`` are its columns of images, which ``columns`` lacks."""
    of_texts = text_column is not None or (wanted == "text" and (not pictures or bool(_usual(columns, _TEXTS))))
    if pictures and not of_texts:
        return Cells("image", pictures[0])
    paths = [] if of_texts else _usual(columns, _PATHS)
    paths = [name for name in paths if _mostly(columns, name, lambda cell: Path(cell).suffix.lower() in IMAGE_SUFFIXES)]
    return Cells("path", paths[0]) if paths else Cells("text", _text_column(path, columns, text_column))


def items_of_cells(path: Path, columns: Any, cells: Cells, *, skip_bad: bool, start: int = 0) -> Items:
    """The texts of a table, or the images whose paths it holds; the table may be the rows from ``start`` on."""
    name = cells.column
    found = columns.column(name).to_pylist()
    where = f"{path}, in the rows from {start:,} on" if start else str(path)
    bad = dict(bad_texts(found, f"{where}: column {name!r}"))
    if bad and not skip_bad:
        raise next(iter(bad.values()))
    if bad:
        columns = columns.filter([row not in bad for row in range(len(found))])
        found = columns.column(name).to_pylist()
    of_paths = cells.hold == "path"
    items = [EncodedImage(path.parent / cell) for cell in found] if of_paths else found
    return Items("image" if of_paths else "text", columns, lambda: items, tuple(map(str, bad.values())))


def read_table(path: Path) -> tuple[Any, list[str]]:
    """The columns of a table but those of images, and the names of these; their paths are a column ``file``."""
    if path.suffix.lower() == ".csv":
        pyarrow, _ = import_pyarrow()
        # By way of lists: from an array of strings, Arrow cuts each at its first NUL.
        columns = Csv(path, gaps=True)
        arrays = [pyarrow.array(column.tolist(), pyarrow.from_numpy_dtype(column.dtype)) for column in columns.values()]
        return pyarrow.table(arrays, list(columns)), []
    with open_parquet(path) as file:
        schema = file.schema_arrow
        pictures = image_columns(schema)
        columns = file.read(columns=[name for name in schema.names if name not in pictures])
        if pictures and "file" not in columns.column_names:
            paths = file.read(columns=[f"{pictures[0]}.path"]).column(0).combine_chunks().field("path")
            if not paths.null_count or not columns.num_columns:
                columns = columns.append_column("file", paths)
    return columns.replace_schema_metadata(None), pictures


def _text_column(path: Path, columns: Any, given: str | None) -> str:
    names: list[str] = columns.column_names
    if given is not None:
        return check_choice("text_column", given, names)
    likely = ["text"] if "text" in names else _usual(columns, _TEXTS)[:1] or _strings(columns)
    if len(likely) > 1:  # sentences have several words, labels have not
        likely = [name for name in likely if _mostly(columns, name, lambda cell: " " in cell.strip())]
    if len(likely) != 1:
        found = f"{path} has the columns {', '.join(map(repr, names))}, none of which is surely its text"
        raise ValueError(f"{found}; name it with text_column.")
    return likely[0]


def _usual(columns: Any, names: Iterable[str]) -> list[str]:
    """Columns of strings with these names, in the order of these; case does not matter."""
    strings = {name.lower(): name for name in _strings(columns)}
    return [strings[name] for name in names if name in strings]


def _strings(columns: Any) -> list[str]:
    return [name for name in columns.column_names if is_text(columns.schema.field(name).type)]


def _mostly(columns: Any, name: str, holds: Callable[[str], bool]) -> bool:
    """Whether something holds for most of the first cells of a column."""
    cells = [cell for cell in columns.column(name).slice(0, 1000).to_pylist() if cell]
    return sum(map(holds, cells)) > len(cells) / 2


def is_text(kind: Any) -> bool:
    """Whether an Arrow type is a string, perhaps in a dictionary."""
    types = import_pyarrow()[0].types
    if types.is_dictionary(kind):
        kind = kind.value_type
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def image_columns(schema: Any) -> list[str]:
    """Names of the columns of images."""
    return [name for name in schema.names if is_image(schema.field(name).type)]


def is_image(kind: Any) -> bool:
    """Whether an Arrow type is the Hub's type of images, struct<bytes: binary, path: string>."""
    is_struct = import_pyarrow()[0].types.is_struct
    return bool(is_struct(kind)) and min(map(kind.get_field_index, ("bytes", "path"))) >= 0


def _pictures(path: Path, column: str) -> Iterator[EncodedImage]:
    """The images of a Parquet file, a few in memory at a time; one without bytes is empty."""
    row = 0
    with open_parquet(path) as file:
        for batch in file.iter_batches(batch_size=256, columns=[f"{column}.bytes"]):
            for content in batch.column(0).field("bytes"):
                yield EncodedImage(path, row, content.as_py() or b"")
                row += 1
