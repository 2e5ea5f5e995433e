"""Files larger than memory: what `openauc evaluate` takes on made-up shards, and DuckDB on the same file."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow
from measuring import Finished, Measured, at_least, below, run_openauc, run_python
from pyarrow import parquet
from timing import in_pairs, timed

from openauc._files import atomic_write
from openauc.environment import cores
from openauc.streaming.accumulator import load_all, save_all

SHARD_ROWS = 5_000_000
N_CLASSES = 100
DUCKDB = """
import json, sys
import duckdb
from openauc.sql import query
duckdb.execute("SET enable_progress_bar = false")
answer = duckdb.execute(query(sys.argv[1]))
print(json.dumps(dict(zip([column[0] for column in answer.description], answer.fetchone()))))
"""


@dataclass(frozen=True)
class Options:
    """What a part is told."""

    rows: int
    work: Path
    """For made-up files."""
    rounds: int
    """How often both sides of a ratio are timed."""


class Part(NamedTuple):
    """What a part found."""

    title: str
    rows: list[Measured]
    content: dict[str, Any]
    about: str


def samples(n: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A log of a classifier of 100 classes, nine of ten right, three of ten unknown.

    Scores are single precision, so that many samples share one by chance, and the surest are cut off at one score.
    """
    rng = np.random.default_rng(seed)
    unknown, right = rng.random(n, np.float32) < 0.3, rng.random(n, np.float32) < 0.9
    y_true, guess = (rng.integers(0, N_CLASSES, n, np.int16) for _ in range(2))
    y_pred = np.where(right, y_true, guess)
    score = np.maximum(rng.standard_normal(n, np.float32) + np.float32(1.5) * unknown, np.float32(-2))
    return np.where(unknown, np.int16(-1), y_true), y_pred, score


def make_shards(folder: Path, rows: int, shard_rows: int) -> list[Path]:
    """Parquet files with so many rows together; those that are there already are taken as they are."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for number, start in enumerate(range(0, rows, shard_rows)):
        size = min(shard_rows, rows - start)
        files.append(folder / f"{number:04}-{size}.parquet")
        if not files[-1].exists():
            table = pyarrow.table(dict(zip(("y_true", "y_pred", "open_score"), samples(size, number), strict=True)))
            with atomic_write(files[-1]) as file:
                parquet.write_table(table, file, use_dictionary=["y_true", "y_pred"])
    return files


def evaluate(files: list[Path], options: Options, *arguments: str | Path, **how: Any) -> Finished:
    """`openauc evaluate` of all files as one; its output is the JSON."""
    how = {"OPENAUC_CACHE": str(options.work / "cache"), **how}
    return run_openauc("evaluate", "--shards", *files, "--json", "-", *arguments, **how)


def files(options: Options) -> Part:
    """All rows in one pass, and a quarter of them."""
    names = make_shards(options.work, options.rows, SHARD_ROWS)
    size = sum(file.stat().st_size for file in names)
    start = evaluate(make_shards(options.work, 1000, 1000), options, OPENAUC_BACKEND="numba")
    part = names[: max(1, len(names) // 4)]
    with tempfile.TemporaryDirectory(dir=options.work) as counts:
        evaluate(names, options, "--work", counts)
        kept = list(Path(counts).iterdir())
        count_bytes, merging = sum(file.stat().st_size for file in kept), timed(merge, kept)
    rounds = [[evaluate(some, options) for some in (part, names)] for _ in range(options.rounds)]
    few, one = (middle(call) for call in zip(*rounds, strict=True))
    found = json.loads(one.output)
    low, high = found["bounds"].get("openauc", [found["values"]["openauc"]] * 2)
    expected = start.seconds + (few.seconds - start.seconds) * len(names) / len(part)
    rows = [
        Measured("size of the files", size / 1e9, "GB"),
        Measured("start-up, with files of 1,000 rows", start.seconds, "s"),
        Measured("one pass", one.seconds, "s"),
        Measured("- rows per second", options.rows / one.seconds / 1e6, "million"),
        Measured(f"- expected from {len(part)} of {len(names)} files", expected, "s"),
        Measured(f"- merging the counts of {len(names)} files", merging, "s"),
        Measured("- bounds of OpenAUC are apart by", high - low),
        below("- peak memory", one.peak_bytes / 1e9, "GB", 1.5),
    ]
    content = {
        "rows_of_data": options.rows,
        "shards": len(names),
        "file_bytes": size,
        "count_bytes": count_bytes,
        "merge_seconds": merging,
        "start_up": _figures(start),
        "one_pass": {**_figures(one), "expected_seconds": expected, "bounds": found["bounds"]},
    }
    about = (
        f"{options.rows:,} rows in {len(names)} Parquet files: labels of 16 bits, scores of 32. `openauc evaluate` in "
        f"a process of its own on {cores()} cores, start-up included, medians of {options.rounds} calls in turn and "
        "their largest memory; the files were just written, so mostly in the system's cache."
    )
    return Part("Scale: many rows in one pass", rows, content, about)


def middle(calls: Sequence[Finished]) -> Finished:
    """The call of median time, with the largest memory of all."""
    peak = max(call.peak_bytes for call in calls)
    return replace(sorted(calls, key=lambda call: call.seconds)[len(calls) // 2], peak_bytes=peak)


def merge(files: list[Path]) -> None:
    """What the driver does with the counts of shards."""
    ((_, total), *_) = load_all(files[0])
    for file in files[1:]:
        for _, part in load_all(file):
            total.absorb(part)
    save_all({(): total})


def _figures(finished: Finished) -> dict[str, float]:
    return {name: value for name, value in asdict(finished).items() if name != "output"}


def processes(options: Options) -> Part:
    """One process on one core against two on two, with their start-up and beyond it."""
    files = make_shards(options.work, options.rows, min(SHARD_ROWS, -(-options.rows // 4)))
    few = make_shards(options.work, 1000, 250)
    alone = {"only_core": min(os.sched_getaffinity(0))}

    def one(files: list[Path], **how: Any) -> float:
        return evaluate(files, options, "--jobs", "1", **alone, **how).seconds

    def two(files: list[Path], **how: Any) -> float:
        return evaluate(files, options, "--jobs", "2", **how).seconds

    compiled = {"OPENAUC_BACKEND": "numba"}
    one(few, **compiled)  # the first call compiles
    ((start_one, start_two, _),) = in_pairs(
        options.rounds, partial(two, few, **compiled), partial(one, few, **compiled)
    )
    ((slow, fast, gain),) = in_pairs(options.rounds, partial(two, files), partial(one, files))
    beyond = max(slow - start_one, 1e-9) / max(fast - start_two, 1e-9)
    rows = [
        Measured("start-up of 1 process", start_one, "s"),
        Measured("start-up of 2 processes", start_two, "s"),
        at_least("2 processes against 1, beyond their start-up", beyond, "x", 1.7),
        Measured("- with their start-up", gain, "x"),
        Measured("- 1 process on 1 core", slow, "s"),
        Measured("- 2 processes", fast, "s"),
    ]
    content: dict[str, Any] = {"rows_of_data": options.rows, "shards": len(files), "start_up": [start_one, start_two]}
    content |= {"one_process": slow, "two_processes": fast, "gain": gain, "gain_beyond_start_up": beyond}
    about = (
        f"`openauc evaluate` of {options.rows:,} rows in {len(files)} files, `--jobs 1` on one core against `--jobs "
        f"2`; medians of {options.rounds} calls in turn. Start-up is the time of the same command on 1,000 rows."
    )
    return Part("Scale: processes", rows, content, about)


def sql(options: Options) -> Part:
    """The same file in DuckDB and in Python."""
    (file,) = make_shards(options.work, options.rows, options.rows)
    answers: dict[str, dict[str, float]] = {}

    def duckdb() -> float:
        finished = run_python(DUCKDB, file)
        answers["duckdb"] = json.loads(finished.output)
        return finished.seconds

    def python() -> float:
        finished = run_openauc("evaluate", file, "--json", "-")
        found = json.loads(finished.output)
        answers["evaluate"] = {**found["values"], "n_known": found["n_known"], "n_unknown": found["n_unknown"]}
        return finished.seconds

    ((theirs, ours, ratio),) = in_pairs(options.rounds, python, duckdb)
    difference = max(abs(answers["duckdb"][name] - answers["evaluate"][name]) for name in compared(answers))
    rows = [
        Measured("the query in DuckDB: 4 metrics", theirs, "s"),
        Measured("openauc evaluate: all metrics, with intervals", ours, "s"),
        Measured("- DuckDB's time in times of it", ratio, "x"),
        below("largest difference between their values", difference, "", 1e-12),
    ]
    content = {"rows_of_data": options.rows, "file_bytes": file.stat().st_size, "answers": answers}
    content |= {"seconds": {"duckdb": theirs, "evaluate": ours}, "difference": difference}
    about = (
        f"One Parquet file of {options.rows:,} rows, each side in a process of its own on {cores()} cores, start-up "
        f"included; medians of {options.rounds} calls in turn, the ratio within a turn."
    )
    return Part("Scale: the query in DuckDB", rows, content, about)


def compared(answers: dict[str, dict[str, float]]) -> list[str]:
    """Names that both sides have."""
    return [name for name in answers["duckdb"] if name in answers["evaluate"]]
