"""Texts and images for a model that was fitted on embeddings: encoded as its table was, without a file between."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from openauc._columns import GappyCsv, arrow_columns, import_pyarrow, unreadable_parquet
from openauc.encoders.base import CHUNK, Encoder, Features
from openauc.encoders.inputs import Source, is_image, is_text, open_source
from openauc.encoders.registry import encoder_kind, get_encoder
from openauc.features.classifier import tables
from openauc.protocols.sources import IMAGE_SUFFIXES


def lacks_features(file: Path, like: tables.TableSpec, width: int) -> bool:
    """Whether a file holds texts or images in place of the ``width`` features that a model was fitted on."""
    suffix = file.suffix.lower()
    if file.is_dir() or suffix in IMAGE_SUFFIXES:
        return True
    if suffix not in (".csv", ".parquet") or not file.is_file() or len(like.features) > 1:
        return False
    holds = _contents(file)
    if {*like.features, *tables.EMBEDDINGS} & set(holds) or "list" in holds.values():
        return False
    numbers = list(holds.values()).count("number")
    # A model of one column was fitted on lists; nothing is known of one that was saved from Python.
    return "item" in holds.values() and numbers < (width if like.features else 1)


def _contents(file: Path) -> dict[str, str]:
    """Of each column of a table whether it holds a "list", a "number", or an "item" that may be encoded."""
    if file.suffix.lower() == ".csv":
        with warnings.catch_warnings(action="ignore"):  # whoever reads it next repeats them
            return {name: "item" if cells.dtype.kind == "U" else "number" for name, cells in GappyCsv(file).items()}
    pyarrow, parquet = import_pyarrow()
    try:
        schema = parquet.read_schema(file)
    except (pyarrow.ArrowException, OSError) as error:
        raise unreadable_parquet(file, error) from None
    return {name: _holds(schema.field(name).type) for name in schema.names}


def _holds(kind: Any) -> str:
    types = import_pyarrow()[0].types
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return "list"
    return "item" if is_text(kind) or is_image(kind) else "number"


def encode_like(
    like: tables.TableSpec,
    model: Path,
    file: Path,
    *,
    label_column: str | None = None,
    seen: Callable[[int, int], object] = lambda count, total: None,
) -> tables.FeatureTable:
    """The texts or images of a file as a table of embeddings, by the encoder that a model was fitted on.

    Parameters
    ----------
    like
        Where the samples of the model came from.
    model, file
        The folder of the model; a table, a folder of images or one image.
    label_column
        As in :func:`~openauc.features.classifier.tables.read_table`.
    seen
        Told after each chunk how many items are done, of how many.
    """
    command = f"`openauc embed {file} -e {like.encoder or 'ENCODER'} -o embedded.parquet`"
    if like.encoder is None:
        raise ValueError(
            f"{file} holds no embeddings, and {model} does not know which encoder made those it was fitted on; run "
            f"{command} with that encoder, and name embedded.parquet in place of {file}."
        )
    try:
        source = open_source(str(file), wanted=encoder_kind(like.encoder))
        features = _encoded(source, get_encoder(like.encoder, kind=source.kind), seen)
    except (ValueError, OSError, ImportError) as error:
        raise ValueError(
            f"{file} cannot be embedded by {like.encoder}, on which {model} was fitted: {error} Or run {command}, "
            f"which has more options, and name embedded.parquet in place of {file}."
        ) from error
    columns = arrow_columns(source.columns, file)
    label = tables.find_label(file, columns, label_column, like)
    return tables.FeatureTable(
        path=file,
        features=features,
        columns=columns,
        spec=tables.TableSpec(features=like.features, label=label, encoder=like.encoder),
    )


def _encoded(source: Source, encoder: Encoder, seen: Callable[[int, int], object]) -> Features:
    """Features of all items, a chunk at a time, so that few images are in memory."""
    items, features = iter(source.items()), np.empty((len(source), encoder.width), np.float32)
    for start in range(0, len(source), CHUNK[source.kind]):
        seen(start, len(source))
        chunk = list(islice(items, CHUNK[source.kind]))
        features[start : start + len(chunk)] = encoder(chunk)
    seen(len(source), len(source))
    return features
