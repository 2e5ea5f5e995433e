"""Speed of metrics, features, learning and report, each against a reference measured in the same run.

`python benchmark/speed.py [metrics|features|learning|report] [--quick]`, all sections when none is named.

Both sides of a ratio are timed in turn, several times, and the ratio is that of the fastest calls: whatever else a
machine does only adds to a time. That is too coarse where two sides differ by a few percent (steps) or a process is
slow as a whole (prediction, training loops): there the ratio is the median over pairs of calls made one after the
other. Results go to `benchmark/results/speed_<hardware>_<yyyymm>.{json,md}`, written by this program only; a run of one
section keeps the others as they were.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from speed_features import features_rows
from speed_learning import learning_rows
from speed_metrics import metrics_rows
from speed_report import report_rows
from writing import hardware_name

from openauc._files import write_text
from openauc.environment import environment

RESULTS = Path(__file__).parent / "results"
SECTIONS = {"metrics": metrics_rows, "features": features_rows, "learning": learning_rows, "report": report_rows}


def section_table(name: str, section: dict[str, Any]) -> list[str]:
    facts = ", ".join(f"{key} {value}" for key, value in section["environment"].items())
    verdict = {True: "yes", False: "**no**", None: ""}
    return [
        f"## {name.capitalize()}",
        "",
        f"{facts}.",
        "",
        "| what | ours | reference | ratio | target | met |",
        "|---|---:|---:|---:|---:|---|",
        *(
            f"| {r['name']} | {r['ours']:.4g} | {r['reference']:.4g} | {r['ratio']:.3g} | {r['target']} "
            f"| {verdict[r['met']]} |"
            for r in section["rows"]
        ),
        "",
    ]


def table(sections: dict[str, dict[str, Any]]) -> str:
    lines = [
        "# Speed",
        "",
        "Written by `benchmark/speed.py`. Seconds of the fastest of several calls, of the median call where a row says",
        "so; both sides of a ratio from one run.",
        "",
    ]
    for name, section in sections.items():
        lines += section_table(name, section)
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("section", nargs="?", choices=SECTIONS, help="measure this section only")
    parser.add_argument("--quick", action="store_true", help="small sizes, nothing written: to try the program")
    options = parser.parse_args()
    facts = environment()
    chosen = [options.section] if options.section else list(SECTIONS)
    measured = {
        name: {"environment": facts, "rows": [asdict(row) for row in SECTIONS[name](options.quick)]} for name in chosen
    }
    print(table(measured))
    if options.quick:
        return
    file = RESULTS / f"speed_{hardware_name()}_{time.strftime('%Y%m')}.json"
    before = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    everything = before | measured
    sections = {name: everything[name] for name in SECTIONS if name in everything}
    write_text(file, json.dumps(sections, indent=2) + "\n")
    write_text(file.with_suffix(".md"), table(sections))


if __name__ == "__main__":
    main()
