"""Results on disk: one folder per trial, written atomically, shared by any number of runners.

A trial's folder holds ``spec.json``, ``log.jsonl`` and ``checkpoint.safetensors`` while it trains, then
``model.safetensors`` and ``predictions.parquet``; ``result.json`` comes last and makes it complete. ``plans`` has the
lists of trials the store was asked for.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import socket
import tempfile
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from openauc._files import atomic_write, write_text
from openauc._trial_files import CHECKPOINT, LOG, RESULT, SPEC, WEIGHTS, refuse_other_run
from openauc.bench.trial import TrialResult, TrialSpec

HEARTBEAT_SECONDS = 15.0
STALE_SECONDS = 120.0
"""A claim from another machine counts as abandoned when its owner was silent for this long."""


class Store:
    """Trials below one folder, or the folder of a single trial, as `openauc train` leaves it.

    Parameters
    ----------
    root
        Created when the first trial is planned.
    alone
        Whether the folder is that of a single trial; by default what is found there tells.
    """

    def __init__(self, root: Path | str, *, alone: bool | None = None) -> None:
        self.root = Path(root)
        if self.root.exists() and not self.root.is_dir():
            raise ValueError(f"{self.root} is a file; a store is a folder.")
        self.alone = (self.root / SPEC).is_file() if alone is None else alone

    @classmethod
    def of_trial(cls, folder: Path, spec: TrialSpec) -> Store:
        """Make a folder the one of this trial alone; one that holds another training, or a store, is refused.

        A trial that ended before its first checkpoint, such as one with a mistyped option, has no claim any more.
        """
        store = cls(folder, alone=True)
        if (folder / "trials").is_dir():
            raise ValueError(f"{folder} holds the trials of a benchmark; choose another folder.")
        if (folder / SPEC).is_file() and any((folder / name).is_file() for name in (CHECKPOINT, WEIGHTS)):
            refuse_other_run(folder, store.planned()[0].to_dict(), spec.to_dict())
        else:
            store.open(spec)
        return store

    def drop_if_empty(self) -> None:
        """Remove the folder of a single trial that came to nothing."""
        if not any((self.root / name).is_file() for name in (CHECKPOINT, WEIGHTS, RESULT)):
            for name in (SPEC, LOG):
                (self.root / name).unlink(missing_ok=True)
            with suppress(OSError):  # somebody's other files are there
                self.root.rmdir()

    @property
    def trials(self) -> Path:
        """Parent of the trials' folders."""
        return self.root / "trials"

    def folder(self, spec: TrialSpec) -> Path:
        """Folder of one trial, which need not exist."""
        return self.root if self.alone else self.trials / spec.id

    def plan(self, specs: Sequence[TrialSpec]) -> None:
        """Note what is going to be run, so that what is missing can be told later."""
        if self.alone:
            raise ValueError(f"{self.root} is the folder of a single training; choose another one for a benchmark.")
        digest = hashlib.sha256(" ".join(sorted(spec.id for spec in specs)).encode()).hexdigest()[:10]
        file = self.root / "plans" / f"{digest}.json"
        if specs and not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            write_text(file, json.dumps([spec.to_dict() for spec in specs]) + "\n")

    def planned(self) -> list[TrialSpec]:
        """Every trial this store was ever asked for, by id."""
        if self.alone:
            return [TrialSpec.from_dict(_read(self.root / SPEC))]
        plans = [TrialSpec.from_dict(values) for file in self.root.glob("plans/*.json") for values in _read(file)]
        found = {spec.id: spec for spec in plans}
        return [found[key] for key in sorted(found)]

    def open(self, spec: TrialSpec) -> None:
        """Make a trial's folder, and say in it what it is for."""
        self.folder(spec).mkdir(parents=True, exist_ok=True)
        write_text(self.folder(spec) / SPEC, json.dumps(spec.to_dict(), indent=1) + "\n", durable=False)

    def result(self, spec: TrialSpec) -> TrialResult | None:
        """What came of a trial; None while it is missing."""
        file = self.folder(spec) / RESULT
        return TrialResult.from_dict(_read(file)) if file.is_file() else None

    def results(self) -> list[TrialResult]:
        """All results, failed trials included, by id."""
        files = self.root.glob(RESULT) if self.alone else self.trials.glob(f"*/{RESULT}")
        return [TrialResult.from_dict(_read(file)) for file in sorted(files)]

    def save(self, result: TrialResult, files: Mapping[str, bytes] | None = None) -> None:
        """Keep a result and the files that came with it; the result is written last, and ends the checkpoint."""
        folder = self.folder(result.spec)
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in (files or {}).items():
            with atomic_write(folder / name) as file:
                file.write(content)
        write_text(folder / RESULT, json.dumps(result.to_dict(), indent=1) + "\n")
        if result.error is None:
            (folder / CHECKPOINT).unlink(missing_ok=True)

    def copy(self, name: str, source: TrialSpec, target: TrialSpec) -> None:
        """Give one trial a file of another, if it is there and the trial has none; one file serves both."""
        origin, copy = self.folder(source) / name, self.folder(target) / name
        if not origin.is_file() or copy.is_file():
            return
        try:
            os.link(origin, copy)  # files here are replaced, never changed
        except OSError:
            with origin.open("rb") as old, atomic_write(copy) as new:
                shutil.copyfileobj(old, new)

    def claims(self) -> Claims:
        """Claims of one runner on this store's trainings, for a ``with`` statement."""
        return Claims(self.root / "claims")


class Claims:
    """Which trainings this runner works on, visible to every runner of the store.

    A claim is a file naming its owner. It ends when it is released, when its process is gone (same machine), or when
    its owner has been silent for `STALE_SECONDS` (another machine).
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.owner = {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "started": _process_start(os.getpid()),
            "token": uuid.uuid4().hex,
        }
        self._held: set[str] = set()
        self._stop = threading.Event()
        self._heart = threading.Thread(target=self._beat, daemon=True)

    def __enter__(self) -> Claims:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._heart.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._heart.join()
        for key in tuple(self._held):
            self.release(key)

    def take(self, key: str) -> bool:
        """Claim a training; False when a living runner has it."""
        with self._own_file() as mine:
            if not (self._link(key, mine) or self._replace_abandoned(key, mine)):
                return False
        self._held.add(key)
        return True

    def holds(self, key: str) -> bool:
        """Whether the claim is still this runner's; a machine that slept too long may have lost it."""
        return key in self._held and (self._owner_of(key) or {}).get("token") == self.owner["token"]

    def owner_of(self, key: str) -> str | None:
        """``host:pid`` of whoever has the claim."""
        owner = self._owner_of(key)
        return None if owner is None else f"{owner['host']}:{owner['pid']}"

    def release(self, key: str) -> None:
        """Give a claim up."""
        if self.holds(key):
            self._file(key).unlink(missing_ok=True)
        self._held.discard(key)

    def _link(self, key: str, mine: Path) -> bool:
        """Put the claim where there is none; a link appears whole or not at all."""
        try:
            os.link(mine, self._file(key))
        except FileExistsError:
            return False
        return True

    def _replace_abandoned(self, key: str, mine: Path) -> bool:
        # One at a time, or the second could push out the first one's fresh claim.
        with (self.folder / ".takeover").open("a") as gate:
            fcntl.flock(gate, fcntl.LOCK_EX)
            owner = self._owner_of(key)
            if owner is None:
                return self._link(key, mine)
            if self._lives(key, owner, now=mine.stat().st_mtime):
                return False
            os.replace(mine, self._file(key))
            return True

    def _lives(self, key: str, owner: Mapping[str, Any], *, now: float) -> bool:
        if owner["host"] == self.owner["host"]:
            start = _process_start(owner["pid"])
            return start is not None and start == str(owner["started"])
        try:
            # Both times are the file system's, so that clocks need not agree.
            return now - self._file(key).stat().st_mtime < STALE_SECONDS
        except FileNotFoundError:
            return False

    def _owner_of(self, key: str) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = json.loads(self._file(key).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        return found

    @contextmanager
    def _own_file(self) -> Iterator[Path]:
        descriptor, name = tempfile.mkstemp(prefix=".claim.", dir=self.folder)
        try:
            with os.fdopen(descriptor, "w") as file:
                json.dump(self.owner, file)
            yield Path(name)
        finally:
            Path(name).unlink(missing_ok=True)

    def _file(self, key: str) -> Path:
        return self.folder / f"{key}.json"

    def _beat(self) -> None:
        while not self._stop.wait(HEARTBEAT_SECONDS):
            for key in tuple(self._held):
                if self.holds(key):
                    os.utime(self._file(key))


def _process_start(pid: int) -> str | None:
    """When a process of this machine began, which tells it from a later one with its number; None if it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return _running(pid)
    # The name in brackets may hold anything; behind it come state (field 3), ... and start time (field 22).
    state, *rest = stat.rpartition(")")[2].split()
    return None if state in "ZX" else rest[18]


def _running(pid: int) -> str | None:
    """Stand-in where there is no /proc: whether any process has the number."""
    if Path("/proc").is_dir():
        return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass
    return "running"


def _read(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{file} is not JSON ({error}); delete it, and what it held is run again.") from error
