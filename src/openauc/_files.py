"""Writing files so that nobody ever sees half of one."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def atomic_write(path: str | os.PathLike[str], *, durable: bool = True) -> Iterator[BinaryIO]:
    """A binary file that takes its place at ``path`` when the block ends, and leaves no trace if it fails.

    ``durable=False`` does not wait for the disk, for what can be written again after a power failure.
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(f"cannot write {target}: the folder {target.parent} does not exist; create it first.")
    descriptor, temporary = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            if durable:
                os.fsync(file.fileno())
        # mkstemp is private to its owner; a result file follows the user's umask like any other.
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_text(path: str | os.PathLike[str], text: str, *, durable: bool = True) -> None:
    """Write ``text`` as UTF-8, all or nothing."""
    with atomic_write(path, durable=durable) as file:
        file.write(text.encode())
