"""Small images of rows, for pages."""

from __future__ import annotations

import io
from collections.abc import Container, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from openauc.features.classifier import tables

if TYPE_CHECKING:
    from openauc.features.classifier.tables import FeatureTable

Key = TypeVar("Key")
_SIDE = 96  # pixels


def thumbnails(items: Iterable[tuple[Key, Any]], wanted: Container[Key]) -> dict[Key, bytes]:
    """A small JPEG of each wanted item that is an image which can be read."""
    found = {}
    for key, item in items:
        if key in wanted:
            from openauc.encoders.base import as_images

            try:
                (image,) = as_images([item])
            except (ValueError, OSError, ImportError):
                continue
            image.thumbnail((_SIDE, _SIDE))
            image.save(content := io.BytesIO(), "JPEG")
            found[key] = content.getvalue()
    return found


def images_of(table: FeatureTable) -> Iterator[tuple[int, Any]]:
    """The image of each row, or the path of its file; nothing for other rows."""
    from openauc.encoders.inputs import open_items
    from openauc.encoders.prepare import lacks_features
    from openauc.encoders.registry import encoder_kind

    if table.spec.encoder is not None and lacks_features(table.path, table.spec, table.features.shape[1]):
        items = open_items(str(table.path), wanted=encoder_kind(table.spec.encoder))
        yield from enumerate(items.read()) if items.kind == "image" else ()
        return
    name = tables.named_like(table.columns, tables.NAMES)
    cells = [] if name is None else list(map(str, table.columns[name].tolist()))
    files = image_files(cells, table.path.parent)
    yield from ((row, files[cell]) for row, cell in enumerate(cells) if cell in files)


def image_files(names: Iterable[str], folder: Path) -> dict[str, Path]:
    """The file of each name that is one of an image: in the folder, else where the name says."""
    from openauc.protocols.sources import IMAGE_SUFFIXES

    images = [name for name in names if Path(name).suffix.lower() in IMAGE_SUFFIXES]
    return {name: beside if (beside := folder / name).is_file() else Path(name) for name in images}
