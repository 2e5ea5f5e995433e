"""Results on disk: one folder per trial, written atomically, shared by any number of runners.

A trial's folder holds ``spec.json``, ``log.jsonl`` and ``checkpoint.pt`` while it trains, then
``model.safetensors`` and ``predictions.parquet``; ``result.json`` comes last and makes it complete. ``plans`` has the
lists of trials the store was asked for. A damaged result counts as failed and does not affect the others.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from openauc._files import atomic_write, write_text
from openauc._trial_files import CHECKPOINT, LOG, RESULT, SPEC, WEIGHTS, load_json, refuse_other_run
from openauc.bench.trial import TrialResult, TrialSpec


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
        self.trials = self.root / "trials"
        if self.root.exists() and not self.root.is_dir():
            raise ValueError(f"{self.root} is a file; a store is a folder.")
        self.alone = (self.root / SPEC).is_file() if alone is None else alone

    @classmethod
    def of_trial(cls, folder: Path, spec: TrialSpec) -> Store:
        """Use a folder for this trial alone; a folder with another training, or with a store, is refused."""
        store = cls(folder, alone=True)
        if (folder / "trials").is_dir():
            raise ValueError(f"{folder} holds the trials of a benchmark; choose another folder.")
        if (folder / SPEC).is_file() and any((folder / name).is_file() for name in (CHECKPOINT, WEIGHTS, RESULT)):
            refuse_other_run(folder, store.planned()[0].to_dict(), spec.to_dict())
        else:
            store.open(spec)
        return store

    def drop_if_empty(self) -> None:
        """Remove the folder of a single trial that left neither checkpoint nor result."""
        if not any((self.root / name).is_file() for name in (CHECKPOINT, WEIGHTS, RESULT)):
            for name in (SPEC, LOG):
                (self.root / name).unlink(missing_ok=True)
            with suppress(OSError):  # somebody's other files are there
                self.root.rmdir()

    def folder(self, spec: TrialSpec) -> Path:
        """Folder of one trial, which need not exist."""
        return self.root if self.alone else self.trials / spec.id

    def plan(self, specs: Sequence[TrialSpec]) -> None:
        """Write the list of trials that will be run, so that missing ones can be found later."""
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
            return [load_json(self.root / SPEC, TrialSpec.from_dict)]
        found: dict[str, TrialSpec] = {}
        for file in sorted(self.root.glob("plans/*.json")):
            try:
                found |= {spec.id: spec for spec in load_json(file, lambda plan: [*map(TrialSpec.from_dict, plan)])}
            except ValueError as error:
                warnings.warn(f"{error}; delete it, the next `openauc run` writes it again.", stacklevel=2)
        return [found[key] for key in sorted(found)]

    def open(self, spec: TrialSpec) -> None:
        """Make a trial's folder and write the spec there."""
        self.folder(spec).mkdir(parents=True, exist_ok=True)
        write_text(self.folder(spec) / SPEC, json.dumps(spec.to_dict(), indent=1) + "\n")

    def result(self, spec: TrialSpec) -> TrialResult | None:
        """Result of a trial, None while it is missing; a damaged result counts as failed."""
        file = self.folder(spec) / RESULT
        return self._result_in(file, spec) if file.is_file() else None

    def results(self) -> list[TrialResult]:
        """All results, failed trials and damaged results included, by id."""
        files = self.root.glob(RESULT) if self.alone else self.trials.glob(f"*/{RESULT}")
        return [result for file in sorted(files) if (result := self._result_in(file)) is not None]

    def predictions(self, result: TrialResult) -> Path | None:
        """The file of a result's predictions, always in its trial's folder; None if there is none."""
        name = Path(result.predictions or "").name
        return None if name in ("", "..") else self.folder(result.spec) / name

    def _result_in(self, file: Path, spec: TrialSpec | None = None) -> TrialResult | None:
        result = None
        try:
            result = load_json(file, TrialResult.from_dict)
            if self.alone or result.spec.id == file.parent.name:
                return result
            problem = f"{file} is damaged (it is the result of {result.spec.id})"
        except ValueError as error:
            problem = str(error)
        if spec := spec or self._spec_of(file.parent):
            return TrialResult(spec=spec, error=f"{problem}; `openauc run` with --retry-failed runs this trial again.")
        if result is None:
            warnings.warn(f"{problem}, and its trial is not known; delete its folder.", stacklevel=3)
        return result

    def _spec_of(self, folder: Path) -> TrialSpec | None:
        """The trial that a folder belongs to, by the spec in it or by the plans."""
        with suppress(ValueError, FileNotFoundError):
            said = load_json(folder / SPEC, TrialSpec.from_dict)
            if self.alone or said.id == folder.name:
                return said
        planned = () if self.alone else self.planned()
        return next((spec for spec in planned if spec.id == folder.name), None)

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
        """Link a file of one trial into the folder of another, unless it is missing or already there."""
        origin, copy = self.folder(source) / name, self.folder(target) / name
        if not origin.is_file() or copy.is_file():
            return
        try:
            os.link(origin, copy)  # files here are replaced, never changed
        except OSError:
            with origin.open("rb") as old, atomic_write(copy) as new:
                shutil.copyfileobj(old, new)


class Claims:
    """Which trainings this runner works on: an operating-system lock each, which ends with its process at the latest.

    Machines that share a store need a file system whose locks they share, such as NFS version 4.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._locks: dict[str, Any] = {}

    def __enter__(self) -> Claims:
        return self

    def __exit__(self, *_: object) -> None:
        for key in tuple(self._locks):
            self.release(key)

    def take(self, key: str) -> bool:
        """Claim a training; False when another runner has it."""
        from filelock import FileLock, Timeout  # comes with torch; reading a store does not need it

        self.folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self._file(key), thread_local=False)
        try:
            lock.acquire(blocking=False)
        except Timeout:
            return False
        self._locks[key] = lock
        return True

    def release(self, key: str) -> None:
        """Give a claim up."""
        lock = self._locks.pop(key)
        self._file(key).unlink(missing_ok=True)  # while it is locked: filelock refuses locks of removed files
        lock.release()

    def _file(self, key: str) -> Path:
        return self.folder / f".{key}.lock"
