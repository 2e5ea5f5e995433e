"""Files are written whole or not at all, never over an input, and damage is noticed when they are read."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, BinaryIO

CHECKSUM = "openauc_sha256"  # key in the metadata of our safetensors files
PathLike = str | os.PathLike[str]

_INPUTS: ContextVar[list[PathLike] | None] = ContextVar("inputs", default=None)


@contextmanager
def atomic_write(path: PathLike, *, follow: bool = True) -> Iterator[BinaryIO]:
    """A binary file that replaces ``path`` when the block ends; if the block fails, nothing changes.

    If ``path`` is a symbolic link, the file it points to is replaced; with ``follow=False`` the link itself is. Pipes,
    devices and open descriptors such as ``/dev/stdout`` cannot be replaced, so they are written directly.
    """
    refuse_input(path)
    target = Path(os.path.realpath(path) if follow and os.path.islink(path) else path)
    try:
        with _write_through(path) if is_stream(path) else _replace(target) as file:
            yield file
    except OSError as error:
        # The error of a full disk names no file, and the caller does not know the temporary name.
        nameless = error.filename is None or Path(error.filename).name.startswith(f".{target.name}.")
        if error.errno is None or not nameless:
            raise
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error


@contextmanager
def keep_inputs(*inputs: PathLike) -> Iterator[None]:
    """Within the block, :func:`atomic_write` refuses to write over these files."""
    before = _INPUTS.set([*(_INPUTS.get() or ()), *inputs])
    try:
        yield
    finally:
        _INPUTS.reset(before)


def add_inputs(*inputs: PathLike) -> None:
    """Protect these files too, if this is called within a block of :func:`keep_inputs`."""
    if (known := _INPUTS.get()) is not None:
        known.extend(inputs)


def refuse_input(path: PathLike) -> None:
    """Raise if ``path``, or the file it links to, is one of the files that :func:`keep_inputs` protects."""
    if not os.path.isfile(path):
        return
    for file in _INPUTS.get() or ():
        if os.path.isfile(file) and os.path.samefile(path, file):
            same = "" if os.fspath(path) == os.fspath(file) else f" ({file})"
            raise ValueError(f"cannot write {path}: it is an input of this command{same}; name another file to write.")


def is_stream(path: PathLike) -> bool:
    """Whether ``path`` is written directly: a pipe, a device, an open descriptor.

    >>> is_stream("/dev/null"), is_stream("/dev/stdout"), is_stream("page.html")
    (True, True, False)
    """
    if _descriptor(path) is not None:
        return True
    try:
        return not stat.S_ISREG(os.stat(path).st_mode)
    except FileNotFoundError:
        return False


def write_text(path: PathLike, text: str) -> None:
    """Write ``text`` as UTF-8, all or nothing."""
    with atomic_write(path) as file:
        file.write(text.encode(errors="backslashreplace"))


def _descriptor(path: PathLike) -> int | None:
    """Number of the open file that ``path`` names, if any; opened again, a redirected file would lose its position."""
    name = os.fspath(path)
    found = re.fullmatch(r"/(?:dev|proc/self)/fd/(\d+)", name)
    return int(found[1]) if found else {"/dev/stdout": 1, "/dev/stderr": 2}.get(name)


@contextmanager
def _write_through(path: PathLike) -> Iterator[BinaryIO]:
    if os.path.isdir(path):
        raise IsADirectoryError(f"cannot write {path}: it is a folder; name a file in it.")
    for stream in (sys.stdout, sys.stderr):
        stream.flush()  # what was printed before comes before
    number = _descriptor(path)
    with open(path if number is None else os.dup(number), "wb") as file:
        yield file


@contextmanager
def _replace(target: Path) -> Iterator[BinaryIO]:
    if not target.parent.is_dir():
        raise FileNotFoundError(f"cannot write {target}: the folder {target.parent} does not exist; create it first.")
    temporary = target.with_name(f".{target.name}.{os.urandom(6).hex()}.tmp")
    descriptor = _nameless(target.parent)
    named = descriptor is None
    if descriptor is None:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            if target.exists():
                os.fchmod(descriptor, stat.S_IMODE(target.stat().st_mode))
            os.fsync(descriptor)
            if not named:
                # A directory descriptor makes Python follow the link of /proc to the file itself.
                os.link(f"/proc/self/fd/{descriptor}", temporary, src_dir_fd=descriptor)
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _nameless(folder: Path) -> int | None:
    """A file without a name in ``folder``, so that a killed process leaves nothing; None where that is unsupported."""
    try:
        return os.open(folder, os.O_TMPFILE | os.O_WRONLY, 0o666) if os.path.isdir("/proc/self/fd") else None
    except (AttributeError, OSError):  # macOS; network and older stacked file systems
        return None


def cache_folder(name: str) -> Path:
    """Folder ``name`` for what can be made again: below ``OPENAUC_CACHE``, else ``~/.cache/openauc``."""
    return Path(os.environ.get("OPENAUC_CACHE") or Path.home() / ".cache" / "openauc") / name


def parse_json(text: str | bytes) -> Any:
    """The content of a JSON text; every fault of the text is a ValueError."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def sealed(content: bytes) -> bytes:
    """The content of a safetensors file with a checksum of all of it added to its metadata."""
    header, tensors = _split(content)
    header["__metadata__"] = {**header.get("__metadata__", {}), CHECKSUM: _checksum(header, tensors)}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # tensors begin at a multiple of eight
    return len(text).to_bytes(8, "little") + text + tensors


def sealed_metadata(path: PathLike) -> dict[str, str]:
    """Metadata of a safetensors file; raises ValueError if the file is damaged or its checksum, if any, is wrong."""
    again = "remove it to start again, or fetch it again."
    try:
        header, tensors = _split(Path(path).read_bytes())
    except ValueError as error:
        raise ValueError(f"{path} cannot be read as safetensors ({error}); {again}") from error
    metadata: dict[str, str] = header.get("__metadata__", {})
    if metadata.get(CHECKSUM, "") not in ("", _checksum(header, tensors)):
        raise ValueError(f"{path} is damaged: its content does not match its checksum; {again}")
    return metadata


def _split(content: bytes) -> tuple[dict[str, Any], memoryview]:
    """Header and tensors of a safetensors file: eight bytes of length, JSON, then numbers."""
    start = 8 + int.from_bytes(content[:8], "little")
    if start > len(content):
        raise ValueError("it is not long enough to hold its header")
    header = parse_json(content[8:start])
    if not isinstance(header, dict) or not isinstance(header.get("__metadata__", {}), dict):
        raise ValueError("its header is not a JSON object")
    return header, memoryview(content)[start:]


def _checksum(header: Mapping[str, Any], tensors: memoryview) -> str:
    """Hash of the header without its checksum, in sorted order, and of the tensors."""
    metadata = {key: value for key, value in header.get("__metadata__", {}).items() if key != CHECKSUM}
    digest = hashlib.sha256(json.dumps({**header, "__metadata__": metadata}, sort_keys=True).encode())
    digest.update(tensors)
    return digest.hexdigest()
