"""Data for open-set recognition: sources of images, class splits over them, the arrays that follow."""

from openauc.protocols.base import OpenSetData, Protocol, Sizes, Split
from openauc.protocols.files import is_protocol_file, read_protocol
from openauc.protocols.registry import PROTOCOLS, get_protocol
from openauc.protocols.sources import SOURCES, FolderSource, Images, LazyImages, ParquetSource, Source

__all__ = [
    "PROTOCOLS",
    "SOURCES",
    "FolderSource",
    "Images",
    "LazyImages",
    "OpenSetData",
    "ParquetSource",
    "Protocol",
    "Sizes",
    "Source",
    "Split",
    "get_protocol",
    "is_protocol_file",
    "read_protocol",
]
