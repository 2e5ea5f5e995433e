"""Embeddings made when they are needed: the data of a protocol, and texts or images for a fitted model."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock

from openauc._columns import arrow_columns, import_pyarrow, open_parquet
from openauc.encoders.base import CHUNK
from openauc.encoders.inputs import is_image, is_text, open_items, read_table
from openauc.encoders.output import write_embeddings
from openauc.encoders.registry import encoder_kind, get_encoder
from openauc.features.classifier import tables
from openauc.protocols import Protocol
from openauc.protocols.embeddings import EmbeddingSource
from openauc.protocols.sources import IMAGE_SUFFIXES, SourcePart


def make_embeddings(protocol: Protocol, data_root: Path | None) -> None:
    """Embed the data of a protocol that is not embedded yet, once for all processes; missing data is not an error."""
    known, unknown = protocol.known_source, protocol.unknown_source
    needed: list[tuple[Any, SourcePart]] = [(known, "train"), (known, "test"), (unknown, "test")]
    for source, part in needed:
        for file in source.files(part, data_root) if isinstance(source, EmbeddingSource) else ():
            if file.path.is_file() or file.made_of is None:
                continue
            file.path.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(f"{file.path}.lock"):
                if not file.path.is_file():  # nobody else made it in the meantime
                    encoder = get_encoder(source.encoder, kind=encoder_kind(source.encoder))
                    write_embeddings(open_items(str(file.made_of), wanted=encoder.kind), encoder, file.path)


def lacks_features(file: Path, like: tables.TableSpec, width: int) -> bool:
    """Whether a file holds texts or images instead of the ``width`` features that a model was fitted on."""
    suffix = file.suffix.lower()
    if file.is_dir() or suffix in IMAGE_SUFFIXES:
        return True
    if suffix not in (".csv", ".parquet") or not file.is_file():
        return False
    if suffix == ".csv" and find_spec("pyarrow") is None:
        return False  # the extra `encode`, without which nothing is embedded, brings pyarrow
    return holds_items(_schema(file), like, width)


def holds_items(schema: Any, like: tables.TableSpec, width: int) -> bool:
    """Whether a table with this Arrow schema holds texts or images, and no ``width`` features."""
    if len(like.features) > 1:
        return False
    kinds = [schema.field(name).type for name in schema.names]
    types = import_pyarrow()[0].types
    lists = any(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind) for kind in kinds)
    if lists or {*like.features, *tables.EMBEDDINGS} & set(schema.names):
        return False
    items = sum(is_text(kind) or is_image(kind) for kind in kinds)
    # A model of one column was fitted on lists; of a model saved from Python, nothing is known.
    return items > 0 and len(kinds) - items < (width if like.features else 1)


def _schema(file: Path) -> Any:
    if file.suffix.lower() == ".csv":
        with warnings.catch_warnings(action="ignore"):  # they come again when the file is read
            return read_table(file)[0].schema
    with open_parquet(file) as parquet:
        return parquet.schema_arrow


def encode_like(
    like: tables.TableSpec,
    model: Path,
    file: Path,
    *,
    label_column: str | None = None,
    on_progress: Callable[[int, int], object] = lambda count, total: None,
) -> tables.FeatureTable:
    """The texts or images of a file as a table of embeddings, by the encoder that the ``model`` was fitted on."""
    command = f"`openauc embed {file} -e {like.encoder or 'ENCODER'} -o embedded.parquet`"
    instead = f"and name embedded.parquet in place of {file}."
    if like.encoder is None:
        why = f"{file} holds no embeddings, and {model} does not know which encoder made those it was fitted on"
        raise ValueError(f"{why}; run {command} with that encoder, {instead}")
    try:
        source = open_items(str(file), wanted=encoder_kind(like.encoder))
        encoder, items, size = get_encoder(like.encoder, kind=source.kind), iter(source.read()), CHUNK[source.kind]
        features = []
        for start in range(0, len(source), size):
            on_progress(start, len(source))
            features.append(encoder(list(islice(items, size))))
        on_progress(len(source), len(source))
    except (ValueError, OSError, ImportError) as error:
        why = f"{file} cannot be embedded by {like.encoder}, on which {model} was fitted: {error}"
        raise ValueError(f"{why} Or run {command}, which has more options, {instead}") from error
    columns = arrow_columns(source.columns, file)
    label = tables.find_label(file, columns, label_column, like)
    spec = tables.TableSpec(features=like.features, label=label, encoder=like.encoder)
    return tables.FeatureTable(path=file, features=np.concatenate(features), columns=columns, spec=spec)
