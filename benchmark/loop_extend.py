"""Part `extend` of `loop.py`: ``add_classes`` on a fitted model against a whole fit."""

from __future__ import annotations

import tempfile
import time
from copy import deepcopy
from pathlib import Path

import numpy as np
from loop_data import Array, Data, Found, Rows, divide, fitted, mean, percent, ratio, table, together, values
from measuring import at_least, below, measured_table

from openauc import openauc_score
from openauc.features import OpenSetClassifier

NAMES = ("clinc150", "banking77")
REPEATS = 5
CLASSES = (1, 5, 20)
ROWS = (5, 10, 50)
MOST_LOST = 0.5  # points of OpenAUC
MOST_SECONDS = 0.2  # of a whole fit


def measure(data: Data, seed: int, classes: tuple[int, ...] = CLASSES, rows: tuple[int, ...] = ROWS) -> list[Found]:
    """Half of the classes are known; so many more come with so many rows each."""
    cut = divide(data, np.random.default_rng(seed))
    half = len(cut.classes) // 2
    old = cut.fit.of(cut.classes[:half])
    base = fitted(old, seed)
    before, bytes_before = base.predict(cut.test.X), saved_bytes(base)
    found = []
    for count in classes:
        added = cut.classes[half : half + count]
        for most in rows:
            new = together([one.take(np.arange(min(most, len(one.y)))) for one in (cut.fit.of([c]) for c in added)])
            model = deepcopy(base)
            start = time.perf_counter()
            model.add_classes(new.X, new.y)
            middle = time.perf_counter()
            whole = fitted(together([old, new]), seed)
            seconds = {"add": middle - start, "whole": time.perf_counter() - middle}
            one: Found = {"classes": count, "rows": most, "bytes": [bytes_before, saved_bytes(model)]}
            for name, some in (("add", model), ("whole", whole)):
                one[name] = {"seconds": seconds[name], **figures(some, cut.test, before, cut.classes[:half], added)}
            found.append(one)
    return found


def figures(model: OpenSetClassifier, test: Rows, before: Array, old: list[str], added: list[str]) -> dict[str, float]:
    """What a model of old and added classes does with test rows; ``before`` are the answers of that of the old ones."""
    answer = model.predict(test.X)
    accepted, is_old, is_added = answer != model.unknown_label_, np.isin(test.y, old), np.isin(test.y, added)
    return {
        "openauc": float(openauc_score(*model.predictions(test.X, test.y))),
        "right_added": float((answer == test.y)[is_added].mean()),
        "accepted_old": float(accepted[is_old].mean()),
        "accepted_added": float(accepted[is_added].mean()),
        "rejected": float(1 - accepted[~(is_old | is_added)].mean()),
        "changed": float((answer != before)[is_old].mean()),
    }


def saved_bytes(model: OpenSetClassifier) -> int:
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model")
        return sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file())


def page(results: dict[str, list[list[Found]]]) -> list[str]:
    lines = [
        "## Classes added to a fitted model, and a whole fit",
        "",
        "Half of the classes are known, with at most 50 rows each. Two numbers are those of `add_classes` and of a "
        "whole `fit` on all of these rows. Percentages but for seconds and kB; known are old and added classes, "
        "unknown is the rest. Right: share of the test rows of added classes that get their class, at the threshold. "
        "Changed: share of the test rows of old classes that are decided otherwise than before.",
        "",
    ]
    heads = ["data", "added", "draws", "OpenAUC", "add less whole", "right, added", "accepted, old", "accepted, added"]
    heads += ["unknown rejected", "changed", "seconds", "ratio", "kB before, after"]
    cells, measured = [], []
    for name, draws in results.items():
        lost, ratios = [], []
        for number, one in enumerate(draws[0]):
            ones = [draw[number] for draw in draws]

            def both(key: str, ones: list[Found] = ones) -> str:
                return ", ".join(percent(values(ones, way, key)) for way in ("add", "whole"))

            difference = np.subtract(values(ones, "add", "openauc"), values(ones, "whole", "openauc"))
            seconds = [values(ones, way, "seconds") for way in ("add", "whole")]
            lost.append(mean(difference))
            ratios.append(ratio(ones, ("add", "seconds"), ("whole", "seconds")))
            cells.append(
                [name, f"{one['classes']} x {one['rows']}", str(len(ones)), both("openauc")]
                + [percent(difference, interval=True, places=2)]
                + [both(key) for key in ("right_added", "accepted_old", "accepted_added", "rejected", "changed")]
                + [", ".join(f"{mean(some):.2f}" for some in seconds), f"{ratios[-1]:.2f}"]
                + [", ".join(f"{mean(values(ones, 'bytes', when)) / 1000:,.0f}" for when in (0, 1))]
            )
        measured += [
            at_least(f"{name}: OpenAUC, add less whole, worst row", 100 * min(lost), "points", -MOST_LOST),
            below(f"{name}: seconds, add by whole, worst row", max(ratios), "x", MOST_SECONDS),
        ]
    return [*lines, *table(heads, cells, 2), "", measured_table(measured)]
