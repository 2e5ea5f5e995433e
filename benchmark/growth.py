"""What a fit of the OpenSetClassifier costs, in fits of a plain head, and what it is worth with fewer rows.

`python benchmark/growth.py --work DIR [--rows N --classes C] [--million] [--tasks NAME ...] [--write]`. 40,000 x 384 of
100 classes are measured against scikit-learn's logistic regression. With `--million`, 1,000,000 x 768 of 1,000 classes
are, against our logistic head alone; X is a file in DIR that is made once, and read into memory or, with `--mapped`,
left on the disk. Told are seconds, memory in sizes of X, and OpenAUC on fresh rows, a third of which are of 50 other
classes; beside a fit on a twentieth of the rows. Each measurement is a process of its own, all with the same threads.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from measuring import peak_memory
from messy_data import MOST_UNKNOWN, spread
from numpy.lib.format import open_memmap
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from writing import write_results

from openauc import openauc_score
from openauc._files import write_text
from openauc.features import OpenSetClassifier
from openauc.features.classifier.heads import LogisticHead

BATCH, FRESH, PART = 50_000, 15_000, 20
"""Rows made at once, fresh rows, and the part of the rows of the smaller fit."""
LENGTH = 10.0
"""Mean length of the rows that a head alone is given; the classifier scales by itself."""
Array = NDArray[Any]


def make(folder: Path, rows: int, width: int, classes: int) -> Path:
    """A folder with rows and fresh rows: unit vectors around class centres that overlap, with a spectrum that falls."""
    made = folder / f"growth-{rows}x{width}x{classes}"
    if (made / "done").is_file():
        return made
    made.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    spectrum = np.exp(-3 * np.arange(width) / width).astype(np.float32)
    far = np.float32(spread(classes, rows // classes, width))
    centres = rng.standard_normal((classes + MOST_UNKNOWN, width), np.float32) * far
    y = rng.permutation(np.arange(rows) % classes)
    known, unknown = np.arange(2 * FRESH // 3) % classes, classes + np.arange(FRESH // 3) % MOST_UNKNOWN
    for name, labels in {"": y, "_fresh": np.append(known, unknown)}.items():
        X = open_memmap(made / f"X{name}.npy", "w+", np.float32, (len(labels), width))
        for start in range(0, len(labels), BATCH):
            part = labels[start : start + BATCH]
            some = (centres[part] + rng.standard_normal((len(part), width), np.float32)) * spectrum
            X[start : start + BATCH] = some / np.linalg.norm(some, axis=1, keepdims=True)
        X.flush()
        np.save(made / f"y{name}.npy", np.where(labels < classes, labels, -1))
    write_text(made / "done", "")
    return made


def scaled(X: Array) -> Array:
    """X in memory, with rows of the mean length; what is there already is changed itself."""
    mean = np.mean([np.linalg.norm(X[start : start + BATCH], axis=1).mean() for start in range(0, len(X), BATCH)])
    return np.multiply(X, np.float32(LENGTH / mean), out=X if X.flags.writeable else None)


TASKS: dict[str, Callable[[Array, Array], Any]] = {
    "regression": lambda X, y: LogisticRegression(max_iter=200).fit(X, y),
    "head": lambda X, y: LogisticHead(1.0).fit(X, y),
    "learned": lambda X, y: OpenSetClassifier(random_state=0).fit(X, y),
    "max_logit": lambda X, y: OpenSetClassifier(rejector="max_logit", random_state=0).fit(X, y),
    "part": lambda X, y: OpenSetClassifier(random_state=0).fit(X[: len(X) // PART], y[: len(X) // PART]),
}
NAMES = {
    "regression": "LogisticRegression(max_iter=200)",
    "head": "the logistic head alone",
    "learned": "OpenSetClassifier()",
    "max_logit": 'OpenSetClassifier(rejector="max_logit")',
    "part": f"OpenSetClassifier() on one of {PART} rows",
}
WORTH = {"openauc": "OpenAUC", "accuracy": "accuracy", "accepted": "known accepted", "rejected": "unknown rejected"}
ALONE = ("regression", "head")
"""What is given scaled rows."""


def perform(task: str, folder: Path, mapped: bool) -> dict[str, float]:
    """Seconds of one task, and the memory of its process: at the beginning, with X, and at most."""
    warnings.simplefilter("ignore")
    before = peak_memory(os.getpid())
    X, y = np.load(folder / "X.npy", mmap_mode="r" if mapped else None), np.load(folder / "y.npy")
    if task in ALONE:
        X = scaled(X)
    start, busy = time.perf_counter(), time.process_time()
    fitted = TASKS[task](X, y)
    seconds, busy = time.perf_counter() - start, time.process_time() - busy
    found = {"seconds": seconds, "busy": busy, "before": before, "peak": peak_memory(os.getpid()), "X": X.nbytes}
    return found if task in ALONE else found | worth(fitted, folder)


def worth(fitted: OpenSetClassifier, folder: Path) -> dict[str, float]:
    """What a classifier does with the fresh rows."""
    triple = fitted.predictions(np.load(folder / "X_fresh.npy"), y := np.load(folder / "y_fresh.npy"))
    known, accepted = y >= 0, triple.open_score <= fitted.thresholds_[triple.y_pred]
    return {
        "openauc": openauc_score(*triple),
        "accuracy": float((triple.y_pred == y)[known].mean()),
        "accepted": float(accepted[known].mean()),
        "rejected": float(1 - accepted[~known].mean()),
    }


def measured(task: str, folder: Path, mapped: bool) -> dict[str, float]:
    """The same in a process of its own."""
    command = [sys.executable, __file__, "--work", str(folder), "--task", task, *(["--mapped"] if mapped else [])]
    found: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    print(task, found, file=sys.stderr, flush=True)
    return found


def ratios(found: dict[str, dict[str, float]], reference: str) -> dict[str, dict[str, float]]:
    """Seconds, of the clock and of the processor, over the reference; memory beyond the beginning over that of X."""
    return {
        task: {
            "seconds": one["seconds"],
            "times": one["seconds"] / found[reference]["seconds"],
            "busy_times": one["busy"] / found[reference]["busy"],
            "memory": (one["peak"] - one["before"]) / one["X"],
            **{name: one[name] for name in WORTH if name in one},
        }
        for task, one in found.items()
    }


def page(size: str, reference: str, found: dict[str, dict[str, float]], mapped: bool) -> str:
    pages = ", as far as its pages are in memory" if mapped else ""
    lines = [
        "# What a fit costs",
        "",
        f"{size}, {'mapped from the disk' if mapped else 'read into memory'}; threads: "
        f"{os.environ.get('OMP_NUM_THREADS', 'as many as there are cores')}. Times: seconds over those of "
        f"{NAMES[reference]} on rows scaled to a mean length of {LENGTH:g}. Memory: the largest of the process, beyond "
        f"what it needs before X is read, over the size of X; X itself is in it{pages}. Shares x 100 are those of "
        f"{FRESH:,} fresh rows, a third of them of {MOST_UNKNOWN} other classes.",
        "",
        f"| fit | seconds | times | times, of the processor | memory / X | {' | '.join(WORTH.values())} |",
        f"|---|---:|---:|---:|---:|{'---:|' * len(WORTH)}",
    ]
    for task, one in found.items():
        times = f"{one['times']:.1f} | {one['busy_times']:.1f}"
        shares = " | ".join(f"{100 * one[name]:.1f}" if name in one else "" for name in WORTH)
        lines.append(f"| {NAMES[task]} | {one['seconds']:,.1f} | {times} | {one['memory']:.2f} | {shares} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder of the data, kept and reused")
    parser.add_argument("--million", action="store_true", help="1,000,000 x 768 of 1,000 classes")
    parser.add_argument("--rows", type=int, help="other numbers, to try the program")
    parser.add_argument("--width", type=int)
    parser.add_argument("--classes", type=int)
    parser.add_argument("--mapped", action="store_true", help="leave X on the disk")
    parser.add_argument("--write", action="store_true", help="write the results files")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, help="fits to measure beside the reference")
    parser.add_argument("--task", choices=TASKS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.task:
        print(json.dumps(perform(options.task, options.work, options.mapped)))
        return
    usual = (1_000_000, 768, 1_000) if options.million else (40_000, 384, 100)
    given = (options.rows, options.width, options.classes)
    rows, width, classes = (one or other for one, other in zip(given, usual, strict=True))
    reference = "head" if options.million else "regression"
    folder = make(options.work, rows, width, classes)
    tasks = dict.fromkeys((reference, *(options.tasks or ("max_logit", "learned", "part"))))
    found = ratios({task: measured(task, folder, options.mapped) for task in tasks}, reference)
    text = page(f"{rows:,} x {width} float32, {classes:,} classes", reference, found, options.mapped)
    if options.write:
        flags = " --million" * options.million + " --mapped" * options.mapped
        flags += f" --tasks {' '.join(options.tasks)}" if options.tasks else ""
        command = f"python benchmark/growth.py --work DIR --rows {rows} --width {width} --classes {classes}{flags}"
        content = {"command": command, "n": rows, "width": width, "classes": classes}
        name = "growth_million" if options.million else "growth"
        write_results(name, content | {"seed": 0, "mapped": options.mapped, "results": found}, text)
    else:
        print(text)


if __name__ == "__main__":
    main()
