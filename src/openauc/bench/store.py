"""Results on disk: one folder per trial, written atomically, shared by any number of runners.

A trial's folder holds ``spec.json``, ``log.jsonl`` and ``checkpoint.pt`` while it trains, then
``model.safetensors`` and ``predictions.parquet``; ``result.json`` comes last and makes it complete. ``plans`` has the
lists of trials the store was asked for. A result that was damaged since has failed; the others are read as ever.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import reprlib
import shutil
import socket
import tempfile
import threading
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass
from functools import lru_cache
from pathlib import Path
from types import TracebackType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from openauc._files import atomic_write, parse_json, write_text
from openauc._trial_files import CHECKPOINT, LOG, RESULT, SPEC, WEIGHTS, refuse_other_run
from openauc.bench.trial import TrialResult, TrialSpec

T = TypeVar("T")
_hints = lru_cache(get_type_hints)

HEARTBEAT_SECONDS = 15.0
GATE = ".takeover"
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
        if Path(spec.id).name != spec.id:
            raise ValueError(f"{spec.id!r} cannot be the name of a folder; a method's name has no '/'.")
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
        """Every trial this store was ever asked for, by id; a list that cannot be read is left out with a warning."""
        if self.alone:
            return [_load(self.root / SPEC, self._spec)]
        found: dict[str, TrialSpec] = {}
        for file in sorted(self.root.glob("plans/*.json")):
            try:
                plan = _load(file, lambda listed: [self._spec(values) for values in listed])
            except ValueError as error:
                warnings.warn(f"{error}; delete it, the next `openauc run` writes it again.", stacklevel=2)
            else:
                found |= {spec.id: spec for spec in plan}
        return [found[key] for key in sorted(found)]

    def open(self, spec: TrialSpec) -> None:
        """Make a trial's folder, and say in it what it is for."""
        self.folder(spec).mkdir(parents=True, exist_ok=True)
        write_text(self.folder(spec) / SPEC, json.dumps(spec.to_dict(), indent=1) + "\n", durable=False)

    def result(self, spec: TrialSpec) -> TrialResult | None:
        """What came of a trial; None while it is missing. A result that cannot be read is one that failed."""
        file = self.folder(spec) / RESULT
        return self._result_in(file, spec) if file.is_file() else None

    def results(self) -> list[TrialResult]:
        """All results, failed trials and damaged results included, by id."""
        files = self.root.glob(RESULT) if self.alone else self.trials.glob(f"*/{RESULT}")
        found = [self._result_in(file) for file in sorted(files)]
        return [result for result in found if result is not None]

    def predictions(self, result: TrialResult) -> Path | None:
        """The file of a result's predictions, always in its trial's folder; None if it kept none."""
        name = Path(result.predictions or "").name
        return None if name in ("", "..") else self.folder(result.spec) / name

    def _result_in(self, file: Path, spec: TrialSpec | None = None) -> TrialResult | None:
        result = None
        try:
            result = _load(file, self._result)
            problem = f"{file} is damaged (it speaks of {result.spec.id})"
        except ValueError as error:
            problem = str(error)
        if result is not None and (self.alone or result.spec.id == file.parent.name):
            return result
        if spec := spec or self._spec_of(file.parent):
            return TrialResult(spec=spec, error=f"{problem}; `openauc run` with --retry-failed runs this trial again.")
        if result is None:
            warnings.warn(f"{problem}, and nothing tells whose it was; delete its folder.", stacklevel=3)
        return result

    def _spec_of(self, folder: Path) -> TrialSpec | None:
        """The trial that a folder is named after, as it says itself or as it was planned."""
        try:
            said = [_load(folder / SPEC, self._spec)]
        except (ValueError, FileNotFoundError):
            said = []
        if self.alone:
            return said[0] if said else None
        return next((spec for spec in (*said, *self.planned()) if spec.id == folder.name), None)

    def _result(self, values: Any) -> TrialResult:
        result = TrialResult.from_dict(values)
        _check_types(result)
        self.folder(result.spec)
        return result

    def _spec(self, values: Any) -> TrialSpec:
        spec = TrialSpec.from_dict(values)
        _check_types(spec)
        self.folder(spec)
        return spec

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

    A claim is a file naming its owner. It ends when it is released, when its process is gone (same machine), when its
    owner has been silent for `STALE_SECONDS` (another machine), or when it can no longer be read. The last runner to
    leave removes the folder.
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
        self._heart.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._heart.join()
        for key in tuple(self._held):
            self.release(key)
        self._tidy()

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
        return f"{owner['host']}:{owner['pid']}" if owner else None

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
        with self._gate():
            owner = self._owner_of(key)
            if owner is None:
                return self._link(key, mine)
            if self._lives(key, owner, now=mine.stat().st_mtime):
                return False
            os.replace(mine, self._file(key))
            return True

    @contextmanager
    def _gate(self) -> Iterator[None]:
        """One runner at a time, or the second could push out the fresh claim of the first."""
        path = self.folder / GATE
        while True:
            with path.open("a") as gate:
                fcntl.flock(gate, fcntl.LOCK_EX)
                # A runner that left meanwhile may have removed the file, and others stand at a new one.
                if os.fstat(gate.fileno()).st_nlink:
                    yield
                    return

    def _tidy(self) -> None:
        """Remove the folder if no claim is left in it."""
        with suppress(OSError), self._gate():
            if [file.name for file in self.folder.iterdir()] == [GATE]:
                (self.folder / GATE).unlink()
                self.folder.rmdir()  # refuses if another runner has come meanwhile

    def _lives(self, key: str, owner: Mapping[str, Any], *, now: float) -> bool:
        if not owner:
            return False
        if owner["host"] == self.owner["host"]:
            start = _process_start(owner["pid"])
            return start is not None and start == str(owner["started"])
        try:
            # Both times are the file system's, so that clocks need not agree.
            return now - self._file(key).stat().st_mtime < STALE_SECONDS
        except FileNotFoundError:
            return False

    def _owner_of(self, key: str) -> dict[str, Any] | None:
        """What a claim says; None where there is none, and nothing where it is damaged.

        Nobody sees a claim that is only half written. An empty one is what a power failure leaves, and an owner that
        lives nevertheless notices that it no longer holds it.
        """
        try:
            found = parse_json(self._file(key).read_bytes())
        except FileNotFoundError:
            return None
        except ValueError:
            return {}
        whole = isinstance(found, dict) and found.keys() >= self.owner.keys() and isinstance(found["pid"], int)
        return found if whole else {}

    @contextmanager
    def _own_file(self) -> Iterator[Path]:
        """A temporary file that names this runner; while it is there, so is the folder."""
        descriptor, name = self._temporary()
        try:
            with os.fdopen(descriptor, "w") as file:
                json.dump(self.owner, file)
            yield Path(name)
        finally:
            Path(name).unlink(missing_ok=True)

    def _temporary(self) -> tuple[int, str]:
        while True:
            with suppress(FileExistsError):
                self.folder.mkdir(parents=True)
            # A runner that leaves may take the folder with it in between.
            with suppress(FileNotFoundError):
                return tempfile.mkstemp(prefix=".claim.", dir=self.folder)

    def _file(self, key: str) -> Path:
        return self.folder / f"{key}.json"

    def _beat(self) -> None:
        while not self._stop.wait(HEARTBEAT_SECONDS):
            for key in tuple(self._held):
                # Released just now, perhaps.
                with suppress(FileNotFoundError):
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


def _load(file: Path, build: Callable[[Any], T]) -> T:
    """What ``build`` makes of a JSON file; a ValueError, not yet a whole sentence, names a file that is damaged."""
    try:
        values = parse_json(file.read_bytes())
    except ValueError as error:
        raise ValueError(f"{file} is not JSON ({error})") from error
    try:
        return build(values)
    except KeyError as error:
        raise ValueError(f"{file} is damaged (it lacks {error})") from error
    except (ValueError, TypeError, AttributeError, ArithmeticError) as error:
        raise ValueError(f"{file} is damaged ({error})") from error


def _check_types(item: Any) -> None:
    """Raise TypeError unless each field of a dataclass is what its annotation says; a file may say anything."""
    hints = _hints(item.__class__)
    for field in fields(item):
        value = getattr(item, field.name)
        if is_dataclass(value):
            _check_types(value)
        elif not _fits(value, hints[field.name]):
            raise TypeError(f"{field.name} is {reprlib.repr(value)}")


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value is of an annotated type, as far as JSON goes.

    >>> _fits({"a": (0.5, 1)}, dict[str, tuple[float, float]]), _fits({"a": "high"}, dict[str, float])
    (True, False)
    """
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Literal:
        return value in inner
    if origin is tuple:
        kinds = [inner[0]] * len(value) if inner[-1] is ... else inner
        return isinstance(value, tuple) and len(value) == len(kinds) and all(map(_fits, value, kinds))
    if origin in (dict, Mapping):
        return isinstance(value, dict) and all(_fits(k, inner[0]) and _fits(v, inner[1]) for k, v in value.items())
    if origin in (Union, UnionType):
        return any(_fits(value, option) for option in inner)
    kind = origin or hint
    return not isinstance(kind, type) or isinstance(value, (int, float) if kind is float else kind)
