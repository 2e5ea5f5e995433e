"""The program of evaluation at scale, on as few rows as a test affords."""

import json
import sys
from pathlib import Path

import measuring
import numpy as np
import pytest
import scale
import scale_files
import scale_trillion
import writing
from pyarrow import parquet

from openauc import Accumulator
from openauc.streaming.accumulator import save_all


def run(tmp_path, monkeypatch, *arguments):
    """Run the program; return what it wrote, by part."""
    monkeypatch.setattr(writing, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(sys, "argv", ["scale.py", *arguments])
    scale.main()
    files = (tmp_path / "results").glob("scale_*.json")
    return {file.stem.split("_")[1]: json.loads(file.read_text()) for file in files}


def finished(seconds, output="", peak=10**8):
    return measuring.Finished(seconds=seconds, peak_bytes=peak, read_bytes=10**7, output=output)


def test_files_are_measured_in_one_pass(tmp_path, monkeypatch):
    """The statistics, with made-up times: start-up 1 s, then a second for each file."""
    monkeypatch.setattr(scale_files, "SHARD_ROWS", 100)

    def evaluate(files, options, *arguments, **how):
        if "--work" in arguments:
            (Path(arguments[-1]) / "a.npz").write_bytes(save_all({(): Accumulator()}))
        answer = {"values": {"openauc": 0.6}, "bounds": {"openauc": [0.5, 0.75]}}
        return finished(1.0 + len(files) * ("OPENAUC_BACKEND" not in how), json.dumps(answer))

    monkeypatch.setattr(scale_files, "evaluate", evaluate)
    part = scale_files.files(scale_files.Options(rows=400, work=tmp_path, rounds=3))
    value = {row.name: row.value for row in part.rows}
    assert value["one pass"] == value["- expected from 1 of 4 files"] == 5.0
    assert value["- bounds of OpenAUC are apart by"] == 0.25
    assert json.loads(json.dumps(part.content))["shards"] == 4


def test_processes_are_compared_beyond_their_start_up(tmp_path, monkeypatch):
    def evaluate(files, options, *arguments, **how):
        work = 0.0 if how.get("OPENAUC_BACKEND") else 8.0
        return finished(1.0 + work if "1" in arguments else 2.0 + work / 2)

    monkeypatch.setattr(scale_files, "evaluate", evaluate)
    part = scale_files.processes(scale_files.Options(rows=400, work=tmp_path, rounds=1))
    assert part.content["gain_beyond_start_up"] == 2.0
    assert part.content["gain"] == 9.0 / 6.0


def test_a_trillion_rows_are_reckoned_in_proportion():
    point = {"file": "a.json", "rows_of_data": 10**8, "shards": 20, "file_bytes": 6e8, "count_bytes": 1e7}
    point["merge_seconds"] = 0.36
    point["start_up"] = {"seconds": 1.0, "read_bytes": 10**7}
    point["one_pass"] = {"seconds": 11.0, "expected_seconds": 10.0, "read_bytes": 61 * 10**7}
    point["one_pass"]["bounds"] = {"openauc": [0.5, 0.75]}
    part = scale_trillion.reckoned(point)
    value = {row.name: row.value for row in part.rows}
    assert value["size of the files"] == pytest.approx(6)
    assert value["one pass: bytes read"] == pytest.approx(6)
    assert part.content["workers"] == 28  # 10^12 rows, 10^7 a second, 3600 seconds
    assert value["- the driver merges them in"] == pytest.approx(1)


def test_a_trillion_rows_need_a_measured_point(tmp_path, monkeypatch):
    with pytest.raises(SystemExit, match=r"scale.py files` first"):
        run(tmp_path, monkeypatch, "trillion")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["fils"], "no part fils"), (["files", "--keep"], "--keep needs --work")],
)
def test_options_that_make_no_sense_are_refused(tmp_path, monkeypatch, capsys, arguments, message):
    with pytest.raises(SystemExit):
        run(tmp_path, monkeypatch, *arguments)
    assert message in capsys.readouterr().err


def test_shards_are_made_once_and_hold_all_rows(tmp_path):
    files = scale_files.make_shards(tmp_path, 250, 100)
    assert [parquet.read_metadata(file).num_rows for file in files] == [100, 100, 50]
    before = [file.stat().st_mtime_ns for file in files]
    assert [file.stat().st_mtime_ns for file in scale_files.make_shards(tmp_path, 250, 100)] == before
    table = parquet.read_table(files[1])
    for name, column in zip(table.column_names, scale_files.samples(100, 1), strict=True):
        assert np.array_equal(table[name].to_numpy(), column)


def test_a_command_is_measured_with_the_processes_it_starts():
    child = "b = bytearray(b'1') * 60_000_000; import time; time.sleep(0.3)"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}], check=True); print('done')"
    finished = measuring.run_python(code)
    assert finished.output == "done\n"
    assert finished.seconds > 0.3
    assert finished.peak_bytes > 60_000_000


def test_bytes_are_counted_that_a_child_read(tmp_path):
    (tmp_path / "a").write_bytes(bytes(5_000_000))
    read = "import sys; open(sys.argv[1], 'rb').read()"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {read!r}, sys.argv[1]], check=True)"
    finished = measuring.run_python(code, tmp_path / "a")
    assert 5_000_000 <= finished.read_bytes < 10_000_000


def test_a_command_that_fails_says_why():
    with pytest.raises(RuntimeError, match=r"ended with 3: .*no such luck"):
        measuring.run_python("import sys; print('no such luck', file=sys.stderr); sys.exit(3)")


def test_a_table_shows_what_was_met():
    rows = [measuring.at_least("speed", 3.0, "x", 2), measuring.below("memory", 3.0, "GB", 2)]
    text = measuring.measured_table([*rows, measuring.Measured("rows", 12345.6)])
    assert "| speed | 3 x | >= 2 x | yes |" in text
    assert "| memory | 3 GB | < 2 GB | **no** |" in text
    assert "| rows | 12,346  |  |  |" in text
