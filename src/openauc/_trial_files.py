"""Files in the folder of a trial."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from openauc._files import parse_json

T = TypeVar("T")

SPEC = "spec.json"
LOG = "log.jsonl"
CHECKPOINT = "checkpoint.pt"
WEIGHTS = "model.safetensors"
PREDICTIONS = "predictions.parquet"
VALIDATION = "validation.parquet"
THRESHOLD = "threshold.json"
RESULT = "result.json"


def features_file(part: str) -> str:
    """Features and logits of one part of the data."""
    return f"features_{part}.parquet"


def load_json(file: Path, build: Callable[[Any], T]) -> T:
    """``build`` applied to a JSON file; a ValueError names a damaged file, and the caller adds what to do."""
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


def read_threshold(folder: Path) -> float | None:
    """The threshold that `openauc threshold` chose for the trial in a folder; None if there is none yet."""
    file = folder / THRESHOLD
    if not file.is_file():
        return None
    try:
        return load_json(file, lambda values: float(values["threshold"]))
    except ValueError as error:
        raise ValueError(f"{error}; choose the threshold again with `openauc threshold {folder}`.") from error


def refuse_other_run(folder: Path, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """Raise ValueError, naming what differs, unless a folder's run and the one asked for are the same."""
    # By way of JSON, as what was read: a tuple there is a list.
    before, now = (dict(_flat(json.loads(json.dumps(about)))) for about in (old, new))
    different = [key for key in before | now if before.get(key) != now.get(key)]
    if different:
        said = "; ".join(f"{key} was {before.get(key)!r}, now {now.get(key)!r}" for key in different[:3])
        more = f" (and {len(different) - 3} more)" if len(different) > 3 else ""
        raise ValueError(f"{folder} holds another run: {said}{more}. Repeat its command, or choose another folder.")


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
