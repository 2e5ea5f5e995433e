"""What 10^12 rows take, reckoned from what the part `files` measured."""

from __future__ import annotations

import json
import math
from typing import Any

import writing
from measuring import Measured
from scale_files import Options, Part

from openauc.environment import cores

ROWS = 10**12


def trillion(options: Options) -> Part:
    """Bytes and workers; nothing is run."""
    return reckoned(measured_point())


def measured_point() -> dict[str, Any]:
    """The newest result of the part `files` on this hardware."""
    files = sorted(writing.RESULTS.glob(f"scale_files_{writing.hardware_name()}_*.json"))
    if not files:
        raise SystemExit("there is no measured point yet; run `python benchmark/scale.py files` first.")
    return {"file": files[-1].name, **json.loads(files[-1].read_text(encoding="utf-8"))}


def reckoned(point: dict[str, Any]) -> Part:
    n, one, start = point["rows_of_data"], point["one_pass"], point["start_up"]
    times = ROWS / n
    speed = n / max(one["seconds"] - start["seconds"], 1e-9)
    moved = max(one["read_bytes"] - start["read_bytes"], 0) * times
    counts = point["count_bytes"] * times
    workers = math.ceil(ROWS / (speed * 3600))
    least, most = one["bounds"].get("openauc", (0.0, 0.0))
    rows = [
        Measured("size of the files", point["file_bytes"] * times / 1e12, "TB"),
        Measured("one pass: bytes read", moved / 1e12, "TB"),
        Measured("- bytes per row", moved / ROWS),
        Measured(f"- rows per second of a worker with {cores()} cores, without its start-up", speed / 1e6, "million"),
        Measured("- workers that are done in an hour", workers),
        Measured("- each reads", moved / workers / 3600 / 1e6, "MB/s"),
        Measured(f"- counts that are merged, of files of {n / point['shards']:,.0f} rows", counts / 1e9, "GB"),
        Measured("- the driver merges them in", point["merge_seconds"] * times / 3600, "hours"),
        Measured("- bounds of OpenAUC are apart by, as at the measured point", most - least),
    ]
    about = (
        f"Reckoned from {n:,} rows in {point['file']}, in proportion to the rows. That time is in proportion was "
        f"checked there: a quarter of the files let expect {one['expected_seconds']:.3g} s for one pass over all, and "
        f"{one['seconds']:.3g} s were measured. The memory of the pass and the distance of its bounds do not grow with "
        "the rows. Exact values of this many rows are better left to a database that sorts on many machines (`openauc "
        "sql`)."
    )
    content = {"point": point["file"], "rows_of_data": ROWS, "measured_rows": n, "workers": workers}
    return Part("Scale: 10^12 rows", rows, content, about)
