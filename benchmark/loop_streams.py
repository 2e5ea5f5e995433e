"""Part `streams` of `loop.py`: classes that arrive one after another, found and named, or not."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from loop_data import (
    OUTSIDE,
    Array,
    Data,
    Found,
    Rows,
    divide,
    fitted,
    mean,
    percent,
    table,
    together,
    values,
)

from openauc.features import OpenSetClassifier
from openauc.features.classifier.discovery import FEWEST

NAMES = ("clinc150", "banking77", "cifar100")
REPEATS = 10
STEPS = 8
REFITS = (4, 8)  # the steps after which everything is fitted again
REFIT_REPEATS = 5
WAYS = ("never", "loop", "refit")
ENDS = [
    "",
    "right",
    "old classes",
    "new classes",
    "unknown",
    "names asked",
    "new",
    "joined",
    "not one thing",
    "seconds",
]
ASKED = ("groups", "new", "joined", "not_one_thing", "seconds")
MAJORITY = 0.5  # of a group that the oracle names


def measure(data: Data, seed: int, steps: int = STEPS, refits: tuple[int, ...] = REFITS) -> Found:
    """What each contender answers to test rows of all classes, after each step."""
    rng = np.random.default_rng(seed)
    cut = divide(data, rng)
    half = len(cut.classes) // 2
    groups = [cut.classes[:half], *(part.tolist() for part in np.array_split(cut.classes[half:], steps + 1))]
    arrival = {label: max(number - 1, 0) for number, group in enumerate(groups[:-1]) for label in group}
    batches = deal(cut.stream, arrival, steps, rng)
    begin = cut.fit.of(groups[0])
    start = time.perf_counter()
    base = fitted(begin, seed)
    seconds = time.perf_counter() - start
    found: Found = {"classes": [len(group) for group in groups], "seconds_of_fit": seconds}
    found["rows"] = [len(batch.y) for batch in batches]

    def judged(model: OpenSetClassifier, step: int) -> dict[str, float]:
        return figures(model, cut.test, groups[0], [label for label, at in arrival.items() if at < step])

    found["never"] = [judged(base, step) for step in range(1, steps + 1)]
    found["loop"] = loop(base, batches, judged)
    wanted = refits if seed < REFIT_REPEATS else ()
    found["refit"] = [
        refit(begin, batches[:step], seed, judged) if step in wanted else None for step in range(1, steps + 1)
    ]
    return found


def deal(stream: Rows, arrival: dict[str, int], steps: int, rng: np.random.Generator) -> list[Rows]:
    """Rows of a class in equal parts over the steps from its arrival on; those of no class over all steps."""
    step = np.full(len(stream.y), -1)
    for label in np.unique(stream.y).tolist():
        rows = rng.permutation(np.flatnonzero(stream.y == label))
        first = 0 if label == OUTSIDE else arrival.get(label, steps)
        if first < steps:
            step[rows] = first + np.arange(len(rows)) % (steps - first)
    return [stream.take(rng.permutation(np.flatnonzero(step == number))) for number in range(steps)]


def figures(model: OpenSetClassifier, test: Rows, begin: list[str], arrived: list[str]) -> dict[str, float]:
    """Shares of test rows with the right answer: the name of a class that is there, unknown for others."""
    answer = model.predict(test.X)
    is_there, is_old = np.isin(test.y, arrived), np.isin(test.y, begin)
    right = answer == np.where(is_there, test.y, model.unknown_label_)
    is_new = is_there & ~is_old
    return {
        "right": float(right.mean()),
        "right_old": float(right[is_old].mean()),
        "right_new": float(right[is_new].mean()),
        "right_unknown": float(right[~is_there].mean()),
    }


def loop(
    model: OpenSetClassifier, batches: list[Rows], judged: Callable[[OpenSetClassifier, int], dict[str, float]]
) -> list[Found]:
    """Discover groups among all rows that are rejected and have no name yet, have them named, and learn them."""
    found, waiting = [], batches[0].take(np.arange(0))
    for step, batch in enumerate(batches, 1):
        start = time.perf_counter()
        waiting = together([waiting, batch])
        waiting = waiting.take(model.predict(waiting.X) == model.unknown_label_)
        enough = len(np.unique(waiting.X, axis=0)) >= FEWEST
        groups = model.discover(waiting.X).groups if enough else ()
        names = [oracle(waiting.y[group.rows]) for group in groups]
        named = [(group.rows, name) for group, name in zip(groups, names, strict=True) if name is not None]
        known = set(model.classes_.tolist())
        if named:
            rows = np.concatenate([some for some, _ in named])
            model.add_classes(waiting.X[rows], np.repeat([name for _, name in named], [len(some) for some, _ in named]))
            waiting = waiting.take(np.setdiff1d(np.arange(len(waiting.y)), rows))
        found.append(
            {
                "seconds": time.perf_counter() - start,
                "groups": len(groups),
                "new": len({name for _, name in named} - known),
                "joined": sum(name in known for _, name in named),
                "not_one_thing": names.count(None),
                **judged(model, step),
            }
        )
    return found


def oracle(y: Array) -> str | None:
    """The class of most rows of a group; None if it is not one thing, or is of no class."""
    labels, count = np.unique(y, return_counts=True)
    label = str(labels[count.argmax()])
    return label if count.max() >= MAJORITY * len(y) and label != OUTSIDE else None


def refit(
    begin: Rows,
    batches: list[Rows],
    seed: int,
    judged: Callable[[OpenSetClassifier, int], dict[str, float]],
) -> Found:
    """A fit on all rows so far with their true labels; those of no class are outliers."""
    start = time.perf_counter()
    seen = together(batches)
    seen = seen._replace(y=np.where(seen.y == OUTSIDE, "unknown", seen.y))
    label, count = np.unique(seen.y, return_counts=True)
    single = np.setdiff1d(label[count < 2], begin.y)
    model = fitted(together([begin, seen.take(~np.isin(seen.y, single))]), seed)
    return {"seconds": time.perf_counter() - start, "labels": len(seen.y), **judged(model, len(batches))}


def page(results: dict[str, list[Found]]) -> list[str]:
    lines = [
        "## Classes that arrive one after another",
        "",
        f"Half of the classes are known at the beginning; the others arrive in {STEPS} steps, but for one part, which "
        "never does. Each step brings rows of all classes that are there, and of CLINC150's rows of no class. Right: "
        "percent of test rows of all classes with the right answer: the name of a class that has arrived, unknown for "
        "others. Never: the model of the beginning. Loop: `discover` among all rejected rows without a name, an oracle "
        f"names each group by its most frequent class (none below {100 * MAJORITY:.0f} %), `add_classes`. Refit: a "
        f"whole `fit` on all rows so far with their true labels, in at most {REFIT_REPEATS} orders.",
    ]
    for name, ones in results.items():
        steps = len(ones[0]["never"])
        lines += ["", f"{name}, {len(ones)} orders; right answers after each step", ""]
        cells = []
        for way in WAYS:
            shares = [[one[way][step]["right"] for one in ones if one[way][step]] for step in range(steps)]
            cells.append([way, *map(percent, shares)])
        lines += table(["", *map(str, range(1, steps + 1))], cells)
        lines += ["", f"{name}, at the end", "", *table(ENDS, [end(way, ones) for way in WAYS])]
    return lines


def end(way: str, ones: list[Found]) -> list[str]:
    """Right answers after the last step, and what all steps together took."""
    last = [one[way][-1] for one in ones if one[way][-1]]
    shares = [percent(values(last, "right"), interval=True)]
    shares += [percent(values(last, key)) for key in ("right_old", "right_new", "right_unknown")]
    if way == "never":
        return [way, *shares, "0", "", "", "", "0"]
    if way == "refit":
        rows = f"{mean(values(last, 'labels')):,.0f} rows" if last else ""
        return [way, *shares, rows, "", "", "", f"{mean(values(last, 'seconds')):.1f} a fit"]
    sums = {key: mean([sum(step[key] for step in one[way]) for one in ones]) for key in ASKED}
    return [way, *shares, *(f"{sums[key]:.1f}" for key in ASKED)]
