"""The way from rejected rows to new classes: groups among them, names for these, and the classes learned.

`python benchmark/loop.py --work DIR --data-root DATA [--parts extend streams groups speed] [--data NAME ...]
[--repeats N] [--again] [--write]`, with OMP_NUM_THREADS=1. Embeddings that are found nowhere are made in DIR. Every
finished repeat is a file in DIR and is not made again. BERTopic is measured if DIR/bertopic is an environment that has
it, which is made before with

    python -m venv DIR/bertopic && DIR/bertopic/bin/pip install --no-deps -r benchmark/loop_requirements.txt

Sizes: at most 50 rows of a class to fit on and 50 in a stream. `extend`: 5 draws of 9 sizes on 2 data sets.
`streams`: 10 orders of 8 steps on 3 data sets, and in the first 5 a whole fit after steps 4 and 8. `groups`: 10 splits
in each of 5 settings, BERTopic in the first 3. `speed`: 3 runs, or 1 of the large ones. All of it takes about 70
minutes on one core. No number was chosen by results.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import loop_extend
import loop_groups
import loop_speed
import loop_streams
from loop_data import ENCODERS, Store
from threadpoolctl import threadpool_limits
from writing import write_results

from openauc._files import write_text


class Setting(NamedTuple):
    """A measurement, repeated with other seeds; ``data`` is its data set, if it has one."""

    data: str | None
    repeats: int
    measure: Callable[[int], Any]


def settings(part: str, store: Store) -> dict[str, Setting]:
    """The settings of a part by their names."""
    if part == "speed":
        return speed_settings(store)
    if part == "groups":
        python = loop_groups.find_bertopic(store.work)

        def groups(name: str, share: float, seed: int) -> Any:
            wanted = python if seed < loop_groups.BERTOPIC_REPEATS else None
            return loop_groups.measure(store.data(name), share, seed, wanted)

        return {
            setting: Setting(name, loop_groups.REPEATS, partial(groups, name, share))
            for setting, (name, share) in loop_groups.SETTINGS.items()
        }
    module: Any = {"extend": loop_extend, "streams": loop_streams}[part]

    def measure(name: str, seed: int) -> Any:
        return module.measure(store.data(name), seed)

    return {name: Setting(name, module.REPEATS, partial(measure, name)) for name in module.NAMES}


def speed_settings(store: Store) -> dict[str, Setting]:
    measures: Mapping[str, tuple[str | None, Callable[[int], Any]]] = {
        "add-clinc150": ("clinc150", lambda seed: loop_speed.add_to_data(store.data("clinc150"), seed)),
        "add-made": (None, loop_speed.add_to_made),
        "discover": (None, lambda seed: loop_speed.discover(seed, loop_speed.Size())),
        "pool": (None, lambda seed: loop_speed.pool(seed, loop_speed.Size(others=200_000))),
    }
    return {name: Setting(data, loop_speed.REPEATS[name], measure) for name, (data, measure) in measures.items()}


PAGES: dict[str, Callable[[dict[str, Any]], list[str]]] = {
    "extend": loop_extend.page,
    "streams": loop_streams.page,
    "groups": loop_groups.page,
    "speed": loop_speed.page,
}


def run(part: str, found: Mapping[str, Setting], repeats: int | None, work: Path, again: bool) -> dict[str, list[Any]]:
    """Results of each setting; what is finished is read."""
    results: dict[str, list[Any]] = {}
    for name, setting in found.items():
        for seed in range(repeats or setting.repeats):
            file = work / f"{part}-{name}-{seed}.json"
            if again or not file.is_file():
                write_text(file, json.dumps(setting.measure(seed)))
                print(file.stem, file=sys.stderr, flush=True)
            results.setdefault(name, []).append(json.loads(file.read_text()))
    return results


def page(results: Mapping[str, dict[str, list[Any]]]) -> str:
    lines = ["# From rejected rows to new classes", "", "Means over repeats, with 95 % intervals of some in brackets."]
    for part, found in results.items():
        lines += ["", *PAGES[part](found)]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder of finished repeats, kept and reused")
    parser.add_argument("--data-root", type=Path, help="mirror of the data sets")
    parser.add_argument("--parts", nargs="+", choices=PAGES, default=list(PAGES), help="all if left out")
    parser.add_argument("--data", nargs="+", choices=ENCODERS, help="data sets; all, and made data, if left out")
    parser.add_argument("--repeats", type=int, help="repeats of each setting, in place of its own number")
    parser.add_argument("--again", action="store_true", help="compute what is finished once more")
    parser.add_argument("--write", action="store_true", help="write the results files")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    os.environ["OMP_NUM_THREADS"] = "1"  # of the processes that are started from here
    store = Store(options.work, options.data_root)
    results = {}
    with threadpool_limits(1):
        for part in options.parts:
            some = {
                name: one for name, one in settings(part, store).items() if not options.data or one.data in options.data
            }
            if some:
                results[part] = run(part, some, options.repeats, options.work, options.again)
    text = page(results)
    if options.write:
        command = f"python benchmark/loop.py --work DIR --data-root DATA --parts {' '.join(options.parts)}"
        command += f" --data {' '.join(options.data)}" if options.data else ""
        content = {
            "command": command,
            "threads": 1,
            "bertopic": loop_groups.REQUIREMENTS.read_text().split(),
            "seeds": {
                part: {name: list(range(len(ones))) for name, ones in found.items()} for part, found in results.items()
            },
            "results": results,
        }
        write_results("loop", content, text)
    else:
        print(text)


if __name__ == "__main__":
    main()
