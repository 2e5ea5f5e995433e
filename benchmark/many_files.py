"""Many files with one process and with two: `python benchmark/many_files.py [--texts N] [--rows N] [--quick]`.

- `openauc embed` of texts in shards, by minilm
- `openauc predict` of embeddings in shards, by a model of 20 classes

Each call is a process of its own on as many cores as it has processes. The time that the same command takes for one row
in each shard, its start-up, is not counted as work. Results go to
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
    folder.mkdir(parents=True)
    for shard, rows in enumerate(np.array_split(np.arange(count), SHARDS)):
        texts = [f"{sentences[row % len(sentences)]} Case {row}." for row in rows]
        parquet.write_table(pyarrow.table({"text": texts}), folder / f"{shard}.parquet")


def embeddings(y: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Embeddings around the centres of twice as many classes as the model knows."""
    centres = np.random.default_rng(0).normal(size=(2 * CLASSES, WIDTH))
    return (centres[y] + 3 * rng.normal(size=(len(y), WIDTH))).astype(np.float32)


def make_embeddings(folder: Path, count: int) -> None:
    """Half of them are of unknown classes."""
    folder.mkdir(parents=True)
    for shard, rows in enumerate(np.array_split(np.arange(count), SHARDS)):
        rng = np.random.default_rng(shard)
        X = embeddings(rng.integers(0, 2 * CLASSES, len(rows)), rng)
        lists = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(X.ravel()), WIDTH)
        parquet.write_table(pyarrow.table({"id": rows, "embedding": lists}), folder / f"{shard}.parquet")


def fit_model(folder: Path) -> None:
    y = np.repeat(np.arange(CLASSES), 30)
    OpenSetClassifier(random_state=0).fit(embeddings(y, np.random.default_rng(SHARDS)), y).save(folder)


def compared(name: str, command: Callable[[str], list[str | Path]], count: int, rounds: int, work: Path) -> Part:
    """Rows a second with one process and with two, from times in turn."""
    calls: list[Finished] = []

    def call(jobs: int, size: str) -> Finished:
        core = {"only_core": min(os.sched_getaffinity(0))} if jobs == 1 else {}
        shutil.rmtree(work / "out", ignore_errors=True)
        # One process uses one thread, and so does each of two.
        return run_openauc(*command(size), "-o", work / "out", "--jobs", str(jobs), OMP_NUM_THREADS="1", **core)

    def seconds(jobs: int) -> float:
        calls.append(call(jobs, "many"))
        return calls[-1].seconds - call(jobs, "few").seconds

    ((one, two, gain),) = in_pairs(rounds, partial(seconds, 2), partial(seconds, 1))
    rows = [
        Measured(f"{name}: 1 process on 1 core", count / one, "rows a second"),
        Measured(f"{name}: 2 processes", count / two, "rows a second"),
        at_least(f"{name}: 2 processes against 1", gain, "x", 1.7),
        below(f"{name}: largest memory of all processes", max(call.peak_bytes for call in calls) / 1e9, "GB", 4),
    ]
    return Part(rows, {"count": count, "one_process": one, "two_processes": two, "gain": gain})


def measure(sizes: Sizes, work: Path) -> dict[str, Part]:
    for size, texts, rows in (("few", SHARDS, SHARDS), ("many", sizes.texts, sizes.rows)):
        make_texts(work / size / "texts", texts)
        make_embeddings(work / size / "embeddings", rows)
    fit_model(work / "model")

    def embed(size: str) -> list[str | Path]:
        return ["embed", str(work / size / "texts" / "*.parquet"), "-e", "minilm", "--device", "cpu"]

    def predict(size: str) -> list[str | Path]:
        return ["predict", work / "model", str(work / size / "embeddings" / "*.parquet")]

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
        "turn. Start-up, the time of the same command for one row in each shard, is not counted."
    )
    if options.quick:
        print(measured_table(rows))
        return
    content = {name: part.content for name, part in parts.items()} | {"rows": [asdict(row) for row in rows]}
    write_results("many_files", content, f"# Many files\n\n{about}\n\n{measured_table(rows)}")


if __name__ == "__main__":
    main()
