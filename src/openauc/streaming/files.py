"""The file of an accumulator: a ``.npz`` archive of integers, with its options as JSON; nothing in it is executed."""

from __future__ import annotations

import json
import os
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from openauc._files import PathLike, atomic_write, parse_json

_FORMAT, _VERSION = "openauc accumulator", 1
_LEVEL = 2


File = PathLike | IO[bytes]
"""A path, or an open file."""


def write(file: File, options: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write options and arrays; to a path, all or nothing."""
    head = json.dumps({"format": _FORMAT, "version": _VERSION, "options": dict(options)})
    # Not np.savez_compressed: its level of compression takes four times as long for files a tenth smaller.
    with (
        atomic_write(file) if isinstance(file, str | os.PathLike) else nullcontext(file) as target,
        zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=_LEVEL) as archive,
    ):
        for name, array in {"head": np.array(head), **arrays}.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asarray(array), allow_pickle=False)


@contextmanager
def read(file: File) -> Iterator[tuple[dict[str, Any], dict[str, NDArray[Any]]]]:
    """Options and arrays of a file; the archive's own checksums notice damage, and so may who reads the arrays."""
    path = file if isinstance(file, str | os.PathLike) else "the file"
    try:
        with np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        head = parse_json(str(arrays.pop("head")))
        if head["format"] != _FORMAT:
            raise ValueError(f"its format is {head['format']!r}")
        if head["version"] == _VERSION:
            yield head["options"], arrays
            return
    except (
        ValueError,
        KeyError,
        TypeError,
        EOFError,
        AttributeError,
        IndexError,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        raise ValueError(
            f"{path} cannot be read as an accumulator ({error}); it is damaged or another kind of file. "
            "Accumulator.save writes them."
        ) from error
    raise ValueError(
        f"{path} was written in version {head['version']} of the format, this one reads {_VERSION}; "
        "use the release of openauc that wrote it, or count again."
    )
