"""Evaluation at scale: `python benchmark/scale.py [PART ...] [--rows N] [--work DIR [--keep]]`, by default all parts.

- `updates`: scores per second counted in constant memory, beside torchmetrics' binned AUROC
- `files`: `openauc evaluate` of 200 million rows in Parquet files: time, bounds, memory
- `processes`: the same of fewer rows, with one and with two processes
- `sql`: the query of `openauc sql` in DuckDB beside `openauc evaluate` of the same file
- `trillion`: what 10^12 rows take, reckoned from the results of `files`; runs nothing

Files are made up under `--work`, or in a temporary folder, about 6 bytes per row. Results of a part go to
`benchmark/results/scale_<part>_<hardware>_<yyyymm>.{json,md}`, written by this program only.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from measuring import measured_table
from scale_files import Options, Part, files, processes, sql
from scale_trillion import trillion
from scale_updates import updates
from writing import write_results

PARTS: dict[str, tuple[Callable[[Options], Part], int]] = {
    "updates": (updates, 16 << 20),
    "files": (files, 200_000_000),
    "processes": (processes, 100_000_000),
    "sql": (sql, 10_000_000),
    "trillion": (trillion, 0),
}
"""What each part does, and on how many rows."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all when none is named")
    parser.add_argument("--rows", type=int, help="rows of data, instead of the size of each part")
    parser.add_argument("--rounds", type=int, default=3, help="how often both sides of a ratio are timed")
    parser.add_argument("--work", type=Path, help="folder for files that are made up; else a temporary one")
    parser.add_argument("--keep", action="store_true", help="leave these files there, for the next time")
    options = parser.parse_args()
    if unknown := set(options.part) - set(PARTS):
        parser.error(f"there is no part {', '.join(sorted(unknown))}; the parts are {', '.join(PARTS)}")
    if options.keep and options.work is None:
        parser.error("--keep needs --work: a temporary folder is removed in the end")
    if options.work is not None:
        options.work.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=options.work) as temporary:
        work = options.work if options.keep else Path(temporary)
        for name in options.part or PARTS:
            measure, rows = PARTS[name]
            found = measure(Options(options.rows or rows, work, options.rounds))
            content = {**found.content, "rows": [asdict(row) for row in found.rows]}
            text = f"# {found.title}\n\n{found.about}\n\n{measured_table(found.rows)}"
            write_results(f"scale_{name}", content, text)


if __name__ == "__main__":
    main()
