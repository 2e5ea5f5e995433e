"""Many files with one process and with two: `python benchmark/many_files.py [--texts N] [--rows N] [--quick]`.

- `openauc embed` of texts in shards, by minilm
- `openauc predict` of embeddings in shards, by a model of 20 classes

Each call is a process of its own on as many cores as it has processes. The time that the same command takes when every
shard is there already, its start-up, is not counted as work. Results go to
`benchmark/results/many_files_<hardware>_<yyyymm>.{json,md}`; with `--quick` nothing is written.
"""

from __future__ import annotations

import argparse
import csv
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow
from measuring import Finished, Measured, at_least, below, measured_table, run_openauc
from pyarrow import parquet
from timing import in_pairs
from writing import write_results

from openauc import OpenSetClassifier
from openauc.environment import cores

SHARDS = 8
WIDTH, CLASSES = 384, 20
EXAMPLES = Path(__file__).parents[1] / "examples" / "intents.csv"


class Sizes(NamedTuple):
    """How much there is to do."""

    texts: int
    rows: int
    rounds: int


class Part(NamedTuple):
    """What was measured of a command."""

    rows: list[Measured]
    content: dict[str, Any]


def make_texts(folder: Path, count: int) -> None:
    """Sentences of the examples, each made different by a number."""
    with EXAMPLES.open() as file:
        sentences = [row["text"] for row in csv.DictReader(file)]
    folder.mkdir()
    for shard, rows in enumerate(np.array_split(np.arange(count), SHARDS)):
        texts = [f"{sentences[row % len(sentences)]} Case {row}." for row in rows]
        parquet.write_table(pyarrow.table({"text": texts}), folder / f"{shard}.parquet")


def make_embeddings(folder: Path, count: int) -> None:
    """Embeddings of 20 classes and of unknown ones; a model of these classes beside them."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(2 * CLASSES, WIDTH)).astype(np.float32)
    folder.mkdir()
    for shard, rows in enumerate(np.array_split(np.arange(count), SHARDS)):
        y = rng.integers(0, 2 * CLASSES, len(rows))
        X = centres[y] + rng.normal(size=(len(rows), WIDTH)).astype(np.float32) * 3
        lists = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(X.ravel()), WIDTH)
        parquet.write_table(pyarrow.table({"id": rows, "embedding": lists}), folder / f"{shard}.parquet")
    y = np.repeat(np.arange(CLASSES), 30)
    X = centres[y] + rng.normal(size=(len(y), WIDTH)).astype(np.float32) * 3
    OpenSetClassifier(random_state=0).fit(X, y).save(folder.parent / "model")


def compared(name: str, command: Callable[[Path], list[str | Path]], count: int, rounds: int, work: Path) -> Part:
    """Rows a second with one process and with two, from times in turn."""
    calls: list[Finished] = []

    def call(jobs: int, out: Path) -> Finished:
        core = {"only_core": min(os.sched_getaffinity(0))} if jobs == 1 else {}
        # One process uses one thread, and so does each of two.
        return run_openauc(*command(out), "--jobs", str(jobs), OMP_NUM_THREADS="1", **core)

    def seconds(jobs: int) -> float:
        out = work / "out"
        shutil.rmtree(out, ignore_errors=True)
        first = call(jobs, out)
        calls.append(first)
        return first.seconds - call(jobs, out).seconds

    ((one, two, gain),) = in_pairs(rounds, partial(seconds, 2), partial(seconds, 1))
    rows = [
        Measured(f"{name}: 1 process on 1 core", count / one, "rows a second"),
        Measured(f"{name}: 2 processes", count / two, "rows a second"),
        at_least(f"{name}: 2 processes against 1", gain, "x", 1.7),
        below(f"{name}: largest memory of all processes", max(call.peak_bytes for call in calls) / 1e9, "GB", 4),
    ]
    return Part(rows, {"count": count, "one_process": one, "two_processes": two, "gain": gain})


def measure(sizes: Sizes, work: Path) -> dict[str, Part]:
    make_texts(work / "texts", sizes.texts)
    make_embeddings(work / "embeddings", sizes.rows)

    def embed(out: Path) -> list[str | Path]:
        return ["embed", str(work / "texts" / "*.parquet"), "-e", "minilm", "--device", "cpu", "-o", out]

    def predict(out: Path) -> list[str | Path]:
        return ["predict", work / "model", str(work / "embeddings" / "*.parquet"), "-o", out]

    return {
        "embed": compared("embed, minilm", embed, sizes.texts, sizes.rounds, work),
        "predict": compared("predict", predict, sizes.rows, sizes.rounds, work),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=16_000, help="texts to embed")
    parser.add_argument("--rows", type=int, default=800_000, help="embeddings to predict")
    parser.add_argument("--rounds", type=int, default=3, help="how often both sides of a ratio are timed")
    parser.add_argument("--quick", action="store_true", help="few rows, nothing written: to try the program")
    options = parser.parse_args()
    sizes = Sizes(160, 4_000, 1) if options.quick else Sizes(options.texts, options.rows, options.rounds)
    with tempfile.TemporaryDirectory() as folder:
        parts = measure(sizes, Path(folder))
    rows = [row for part in parts.values() for row in part.rows]
    about = (
        f"{sizes.texts:,} short texts and {sizes.rows:,} embeddings of {WIDTH} features, each in {SHARDS} Parquet "
        f"files, on {cores()} cores; `--jobs 1` on one core against `--jobs 2`, medians of {sizes.rounds} calls in "
        "turn. Start-up, the time of the same command when all is done, is not counted; loading the encoder is."
    )
    if options.quick:
        print(measured_table(rows))
        return
    content = {name: part.content for name, part in parts.items()} | {"rows": [asdict(row) for row in rows]}
    write_results("many_files", content, f"# Many files\n\n{about}\n\n{measured_table(rows)}")


if __name__ == "__main__":
    main()
