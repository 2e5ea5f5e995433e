"""Embeddings that a protocol needs and that nobody has made yet."""

from __future__ import annotations

from pathlib import Path

from filelock import FileLock

from openauc.encoders.inputs import open_source
from openauc.encoders.output import write_embeddings
from openauc.encoders.registry import encoder_kind, get_encoder
from openauc.protocols import Protocol
from openauc.protocols.embeddings import EmbeddingFile, EmbeddingSource


def make_embeddings(protocol: Protocol, data_root: Path | None) -> None:
    """Embed what is missing of a protocol's data, once for all that share the cache.

    Data that is not there is left to the reading of it, which says how to get it.
    """
    for source in (protocol.known_source, protocol.unknown_source):
        if isinstance(source, EmbeddingSource):
            for part in ("train", "test") if source is protocol.known_source else ("test",):
                for file in source.files(part, data_root):
                    if not file.path.is_file() and file.made_of is not None:
                        _make(file, file.made_of)


def _make(file: EmbeddingFile, data: Path) -> None:
    file.path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{file.path}.lock"):
        if not file.path.is_file():  # nobody else made it in the meantime
            encoder = get_encoder(file.encoder, kind=encoder_kind(file.encoder))
            write_embeddings(open_source(str(data), wanted=encoder.kind), encoder, file.path)
