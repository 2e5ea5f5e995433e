"""Which files a path, a pattern, a folder or a URL names, and how to open them."""

from __future__ import annotations

import glob
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from openauc._columns import FORMATS, open_for_arrow, suffix_of
from openauc._files import PathLike
from openauc._validation import import_extra

_MARKS = ("ETag", "etag", "mtime", "LastModified", "last_modified", "updated", "modified", "created")
"""What file systems call the mark of a file that changes with its content."""


class Outcome(NamedTuple):
    """The result of a shard, or the error that prevented it."""

    shard: Shard
    result: Any
    error: str = ""


class Shard(NamedTuple):
    """One file of predictions, as it was when it was listed."""

    path: str  # absolute, or a URL
    size: int  # in bytes
    version: str  # changes when the file does: its time of change, or the mark that the store gives it

    @property
    def partition(self) -> dict[str, str]:
        """Columns given by the names of folders.

        >>> Shard("/log/day=2026-01-31/camera=A%2F1/part-0.parquet", 1, "").partition
        {'day': '2026-01-31', 'camera': 'A/1'}
        """
        folders = self.path.split("/")[:-1]
        return {name: unquote(value) for name, _, value in (f.partition("=") for f in folders) if name and value}

    def failed(self, error: str, seconds: float = 0.0) -> Outcome:
        """Outcome of a shard that could not be read; executors call this and the next two."""
        return Outcome(self, None, error if self.path in error else f"{self.path}: {error}")

    def on_node(self, scratch: str | None) -> Shard:
        """The shard itself: nodes of a cluster see shards by the same paths."""
        return self

    def from_node(self, outcome: Outcome) -> Outcome:
        return outcome

    def has_changed(self) -> bool:
        """Whether the file has changed since it was listed. For a URL, whether its size has: stores vary in marks."""
        (now,) = _listed(self.path)
        return now.size != self.size if is_url(self.path) else now != self

    def opened(self) -> Any:
        """An open file for Parquet to read from; of a URL only the parts asked for are fetched."""
        if not is_url(self.path):
            return open_for_arrow(self.path)
        system, path = file_system(self.path)
        return system.open(path, "rb")

    @contextmanager
    def copied(self) -> Iterator[Path]:
        """A local file with the content of the shard; errors in the block name the shard."""
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(self.path)
            if is_url(self.path):
                system, path = file_system(self.path)
                copy = Path(folder) / path.rpartition("/")[2]
                system.get_file(path, str(copy))
            try:
                yield copy
            except (ValueError, OSError) as error:
                raise ValueError(str(error).replace(str(copy), self.path)) from None


def find_shards(*sources: PathLike) -> list[Shard]:
    """The files that paths, patterns (``"log/*.parquet"``), folders or URLs name, each once, in order of their path.

    A file that is also reached by a symbolic link is one file. Of a folder and the folders below it, files that end in
    .npz, .csv or .parquet are taken; names that begin with a dot or an underscore are left out, because writers of such
    folders use them for themselves. A URL is one that fsspec knows, such as ``s3://bucket/log/*.parquet``.
    """
    found = sorted((shard for source in sources for shard in _listed(os.fspath(source))), reverse=True)
    files = {shard.path if is_url(shard.path) else os.path.realpath(shard.path): shard for shard in found}
    return sorted(files.values())


def is_url(source: str) -> bool:
    """Whether ``source`` is to be read through fsspec.

    >>> is_url("s3://bucket/log"), is_url("log/*.parquet")
    (True, False)
    """
    return "://" in source


def is_sharded(source: str) -> bool:
    """Whether ``source`` names more than one local file: a URL, a folder or a pattern."""
    return os.path.isdir(source) or is_pattern(source)


def is_pattern(source: str) -> bool:
    """Whether ``source`` is a URL or a pattern, such as ``"log/*.parquet"``."""
    return is_url(source) or (glob.has_magic(source) and not os.path.exists(source))


def as_local(place: PathLike) -> str:
    """A URL that begins with ``file://`` as a path; others, and paths, as they are.

    >>> as_local("file:///log/a.parquet"), as_local("s3://bucket/log")
    ('/log/a.parquet', 's3://bucket/log')
    """
    text = os.fspath(place)
    return file_system(text)[1] if text.startswith("file://") else text


def root_of(source: str) -> str:
    """The folder whose inside a pattern or URL names: what stands before its first wildcard.

    >>> root_of("/log/day=*/part-*.parquet"), root_of("/log/a.parquet")
    ('/log', '/log')
    """
    system, path = file_system(source) if is_url(source) else (None, os.path.abspath(source))
    if glob.has_magic(path):
        parts = path.split("/")
        path = "/".join(parts[: next(i for i, part in enumerate(parts) if glob.has_magic(part))])
    elif not (system.isdir(path) if system else os.path.isdir(path)):
        path = path.rpartition("/")[0]
    return system.unstrip_protocol(path).rstrip("/") if system else path


def _listed(source: str) -> list[Shard]:
    found = _listed_by_fsspec(source) if is_url(source) else _listed_here(source)
    if not found:
        raise FileNotFoundError(
            f"there is no file at {source}; expected files that end in {', '.join(FORMATS)}. "
            "A pattern in quotes, such as 'log/*.parquet', is matched here, not by the shell."
        )
    for shard in found:
        suffix_of(shard.path)
    return found


def _listed_here(source: str) -> list[Shard]:
    if os.path.isfile(source):
        paths = [source]
    elif os.path.isdir(source):
        paths = _predictions(glob.glob(os.path.join(glob.escape(source), "**"), recursive=True), source)
    elif glob.has_magic(source):
        paths = [path for path in glob.glob(source, recursive=True) if os.path.isfile(path)]
    else:
        raise FileNotFoundError(f"there is no file {source}.")
    stats = ((os.path.abspath(path), os.stat(path)) for path in paths)
    return [Shard(path, stat.st_size, str(stat.st_mtime_ns)) for path, stat in stats]


def _predictions(paths: Iterable[str], folder: str) -> list[str]:
    """Those of the paths that are files of predictions, by their names below ``folder``."""

    def is_hidden(path: str) -> bool:
        return any(part.startswith(("_", ".")) for part in Path(os.path.relpath(path, folder)).parts)

    return [path for path in paths if path.lower().endswith(FORMATS) and not is_hidden(path)]


def _listed_by_fsspec(source: str) -> list[Shard]:
    system, path = file_system(source)
    files: Mapping[str, Mapping[str, Any]]
    if glob.has_magic(path):
        files = system.glob(path, detail=True)
    elif system.isdir(path):
        files = system.find(path, detail=True)
        files = {name: files[name] for name in _predictions(files, path)}
    else:
        files = {path: system.info(path)}
    found = []
    for name, info in files.items():
        if info["type"] == "file":
            mark = next((info[key] for key in _MARKS if info.get(key)), "")
            version = str(mark.timestamp() if isinstance(mark, datetime) else mark)
            found.append(Shard(system.unstrip_protocol(name), int(info["size"]), version))
    return found


def file_system(url: str) -> tuple[Any, str]:
    """File system of a URL, and the path there."""
    fsspec = import_extra("fsspec.core", f"reading {url}", "fsspec, and the package of that store")
    found: tuple[Any, str] = fsspec.url_to_fs(url)
    return found
