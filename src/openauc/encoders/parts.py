"""Finished features of a run that is not at its end: the folder ``OUT.parts``, which the next run goes on with."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout

from openauc._columns import read_columns, write_columns
from openauc._files import parse_json, write_text
from openauc._trial_files import refuse_other_run
from openauc.encoders.base import Features

_PLAN, _LOCK = "plan.json", "lock"
_OURS = {"made_by": "openauc embed"}
_KEY_BYTES = 16
_NAMES = "[0-9a-f]" * 2 * _KEY_BYTES + ".npz"  # by the key of the first item


def parts_folder(out: Path) -> Path:
    """Where finished parts wait for the others."""
    return out.with_name(f"{out.name}.parts")


@contextmanager
def claimed(out: Path, about: Mapping[str, Any]) -> Iterator[Path]:
    """The folder of the parts: made, or found to be of the same encoder; no other run gets it at the same time.

    It is removed at the end unless there are parts in it.
    """
    folder, about = parts_folder(out), {**_OURS, **about}
    plan = folder / _PLAN
    _refuse_foreign(folder)
    folder.mkdir(exist_ok=True)
    try:
        lock = FileLock(folder / _LOCK).acquire(timeout=0)
    except Timeout:
        raise ValueError(f"another run is writing {out} now; wait until it ends, or write to another file.") from None
    with lock:
        try:
            if plan.is_file():
                refuse_other_run(folder, parse_json(plan.read_bytes()), about)
            else:
                write_text(plan, json.dumps(about))
        except ValueError as error:
            raise ValueError(f"{error} Or remove {folder} to start again.") from None
        try:
            yield folder
        finally:
            if not any(folder.glob(_NAMES)):
                plan.unlink()
                (folder / _LOCK).unlink()
                with suppress(OSError):  # something else is in it, which is not ours
                    folder.rmdir()


def _refuse_foreign(folder: Path) -> None:
    """Raise if there is a folder of that name that was not made here."""
    if not folder.exists():
        return
    try:
        ours = parse_json((folder / _PLAN).read_bytes()).items() >= _OURS.items()
    except FileNotFoundError:  # a run that was killed before it wrote anything leaves a lock at most
        ours = all(file.name == _LOCK for file in folder.iterdir())
    except (ValueError, AttributeError):
        ours = False
    if not ours:
        raise ValueError(
            f"{folder} would keep finished parts, but `openauc embed` did not make it; move it away, or write to "
            "another file."
        )


def item_key(item: Any) -> bytes:
    """What tells an item from any other: its content; for an image file its path, size and time."""
    if isinstance(item, str):
        content = item.encode(errors="surrogatepass")
    elif isinstance(item, np.ndarray):
        content = item.tobytes()
    elif item.content is not None:
        content = item.content or str(item).encode()  # an empty one is bad, and named by its row
    else:
        state = item.file.stat() if item.file.is_file() else None
        content = repr((str(item.file.resolve()), state and (state.st_size, state.st_mtime_ns))).encode()
    return hashlib.blake2b(content, digest_size=_KEY_BYTES).digest()


class Parts:
    """Features in the files of a folder, found by the keys of their items.

    A damaged file is removed, so that its items are encoded again.
    """

    def __init__(self, folder: Path, width: int) -> None:
        self._folder, self._width = folder, width
        self._places: dict[bytes, tuple[Path, int]] = {}
        for part in folder.glob(_NAMES):
            try:
                columns = read_columns(part)
                keys, shape = columns["keys"], columns["features"].shape
                whole = keys.shape == (len(keys), _KEY_BYTES) and shape == (len(keys), width)
            except (ValueError, KeyError):
                whole = False
            if whole:
                self._note(part, [key.tobytes() for key in keys])
            else:
                part.unlink()

    def _note(self, part: Path, keys: Sequence[bytes]) -> None:
        self._places.update((key, (part, row)) for row, key in enumerate(keys))

    def __contains__(self, key: bytes) -> bool:
        return key in self._places

    def add(self, keys: Sequence[bytes], features: Features) -> None:
        """Write one more file, of items that are not here yet."""
        if not keys:
            return
        part = self._folder / f"{keys[0].hex()}.npz"
        array = np.frombuffer(b"".join(keys), np.uint8).reshape(-1, _KEY_BYTES)
        write_columns(part, {"keys": array, "features": features})
        self._note(part, keys)

    def take(self, keys: Sequence[bytes]) -> Features:
        """Features (n, width) of items, in their order."""
        places: dict[Path, list[tuple[int, int]]] = defaultdict(list)
        for slot, key in enumerate(keys):
            part, row = self._places[key]
            places[part].append((slot, row))
        features = np.empty((len(keys), self._width), np.float32)
        for part, pairs in places.items():
            slots, rows = np.array(pairs).T
            features[slots] = read_columns(part)["features"][rows]
        return features

    def remove(self) -> None:
        """Remove the files."""
        for part in self._folder.glob(_NAMES):
            part.unlink()
