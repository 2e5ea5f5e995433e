"""Part `speed` of `loop.py`: seconds of ``add_classes`` against fits, of ``discover`` against k-means; memory."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from loop_data import Data, Found, Rows, directions, fitted, gaussians, mean, ratio, table, together, values
from measuring import Measured, below, measured_table, peak_memory, run_python
from sklearn.cluster import KMeans

from openauc.features import OpenSetClassifier

REPEATS = {"add-clinc150": 3, "add-made": 1, "discover": 3, "pool": 1}
NEW_CLASSES, NEW_ROWS = 5, 50
NOISE = {"add": 4.0, "discover": 2.0}  # mean length of the noise around class centres of length 1


class Size(NamedTuple):
    """Known classes of so many rows, and rows of as many other classes."""

    classes: int = 100
    rows: int = 50
    width: int = 384
    others: int = 20_000


def add(rows: Rows, classes: list[str], seed: int) -> Found:
    """Half of the classes are known with all of their rows."""
    half = len(classes) // 2
    known, added = rows.of(classes[:half]), rows.of(classes[half : half + NEW_CLASSES])
    some = np.concatenate([np.flatnonzero(added.y == label)[:NEW_ROWS] for label in np.unique(added.y)])
    return add_rows(known, added.take(some), seed)


def add_rows(known: Rows, new: Rows, seed: int) -> Found:
    start = time.process_time()
    model = fitted(known, seed)
    fit = time.process_time()
    model.add_classes(new.X, new.y)
    middle = time.process_time()
    fitted(together([known, new]), seed)
    end = time.process_time()
    return {"rows": len(known.y), "new": len(new.y), "fit": fit - start, "add": middle - fit, "whole": end - middle}


def add_to_data(data: Data, seed: int) -> Found:
    return add(data.pool, np.random.default_rng(seed).permutation(np.unique(data.pool.y)).tolist(), seed)


def add_to_made(seed: int, classes: int = 100, rows: int = 500, width: int = 384) -> Found:
    rng = np.random.default_rng(seed)
    centres = directions(rng, classes + NEW_CLASSES, width)
    known = gaussians(rng, centres[:classes], rows, NOISE["add"])
    return add_rows(known, gaussians(rng, centres[classes:], NEW_ROWS, NOISE["add"], first=classes), seed)


def model_and_others(seed: int, size: Size) -> tuple[OpenSetClassifier, Rows]:
    rng = np.random.default_rng(seed)
    centres = directions(rng, 2 * size.classes, size.width)
    known = gaussians(rng, centres[: size.classes], size.rows, NOISE["discover"])
    each = size.others // size.classes
    others = gaussians(rng, centres[size.classes :], each, NOISE["discover"], first=size.classes)
    return fitted(known, seed), others


def discover(seed: int, size: Size) -> Found:
    """Against one run of k-means with as many groups, on the same features of the same rows."""
    model, others = model_and_others(seed, size)
    start = time.process_time()
    groups = model.discover(others.X)
    seconds = time.process_time() - start
    features = model.head_with_scores_.scaling(others.X[groups.unknown])
    start = time.process_time()
    KMeans(max(1, len(groups.groups)), n_init=1, random_state=seed).fit(features)
    return {
        "rows": len(features),
        "groups": len(groups.groups),
        "discover": seconds,
        "kmeans": time.process_time() - start,
    }


def pool(seed: int, size: Size) -> Found:
    """The same in a process of its own, with its memory."""
    code = f"import json, loop_speed as it; print(json.dumps(it.one_pool({seed}, it.Size(*{tuple(size)}))))"
    found: Found = json.loads(run_python(code, PYTHONPATH=str(Path(__file__).parent), OMP_NUM_THREADS="1").output)
    return found


def one_pool(seed: int, size: Size) -> Found:
    model, others = model_and_others(seed, size)
    before = peak_memory(os.getpid())
    start = time.process_time()
    groups = model.discover(others.X)
    seconds = time.process_time() - start
    rejected, found = int(groups.unknown.sum()), len(groups.groups)
    memory = {"before": before, "peak": peak_memory(os.getpid()), "X": others.X.nbytes}
    return {"rows": rejected, "groups": found, "discover": seconds, **memory}


def page(results: dict[str, list[Found]]) -> list[str]:
    lines = ["## Speed", "", "Means of processor seconds, with one thread; ratios are of those of one run.", ""]
    measured: list[Measured] = []
    cells = []
    for setting, ones in results.items():
        first, runs = ones[0], str(len(ones))
        rows = f"{first['rows']:,}" + (f" + {first['new']:,}" if "new" in first else f", {first['groups']} groups")
        if "whole" in first:
            by = ratio(ones, ["add"], ["whole"])
            told = [f"{mean(values(ones, key)):.2f}" for key in ("add", "whole")]
            cells.append([setting, runs, rows, *told, f"{by:.2f}", "", ""])
            measured.append(below(f"{setting}: add_classes by a whole fit", by, "x", 0.2))
        elif "kmeans" in first:
            by = ratio(ones, ["discover"], ["kmeans"])
            told = [f"{mean(values(ones, key)):.2f}" for key in ("discover", "kmeans")]
            cells.append([setting, runs, rows, *told, f"{by:.2f}", "", ""])
        else:
            memory = [f"{mean(values(ones, key)) / 1e6:,.0f}" for key in ("before", "peak")]
            cells.append([setting, runs, rows, f"{mean(values(ones, 'discover')):.2f}", "", "", *memory])
    heads = ["what", "runs", "rows", "seconds", "of a whole fit, or of k-means", "ratio"]
    lines += table([*heads, "MB before (peak)", "MB at most"], cells)
    return [*lines, *(["", measured_table(measured)] if measured else [])]
