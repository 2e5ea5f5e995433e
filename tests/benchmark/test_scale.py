"""The program of evaluation at scale, on as few rows as a test affords."""

import json
import sys

import measuring
import numpy as np
import pytest
import scale
import scale_files
import scale_trillion
import writing
from pyarrow import parquet

import openauc

ROWS = 24_000


def run(tmp_path, monkeypatch, *arguments):
    """Run the program; return what it wrote, by part."""
    monkeypatch.setattr(writing, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(sys, "argv", ["scale.py", *arguments])
    scale.main()
    files = (tmp_path / "results").glob("scale_*.json")
    return {file.stem.split("_")[1]: json.loads(file.read_text()) for file in files}


@pytest.mark.slow
def test_every_part_writes_what_it_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(scale_files, "SHARD_ROWS", ROWS // 3)
    work = tmp_path / "work"
    found = run(tmp_path, monkeypatch, "--rows", str(ROWS), "--rounds", "1", "--work", str(work), "--memory", "0.001")
    assert list(work.iterdir()) == []
    assert set(found) == set(scale.PARTS)

    triples = [scale_files.samples(ROWS // 3, seed) for seed in range(3)]
    whole = openauc.evaluate(*(np.concatenate(column) for column in zip(*triples, strict=True)), level=None)
    exact = found["exact"]
    assert (exact["shards"], exact["passes"]) == (3, 2)
    assert exact["exact"]["values"]["openauc"] == whole.openauc
    assert exact["exact"]["open"].keys().isdisjoint({"openauc", "auroc", "fpr_at_95tpr"})
    low, high = exact["one_pass"]["bounds"]["openauc"]
    assert low < whole.openauc < high
    assert exact["one_pass"]["peak_bytes"] > 50e6  # an interpreter with numpy

    one = openauc.evaluate(*scale_files.samples(ROWS, 0), level=None)
    for side in ("duckdb", "evaluate"):
        answer = found["sql"]["answers"][side]
        assert answer["n_known"] == one.n_known
        for name in ("openauc", "auroc", "closed_set_accuracy", "fpr_at_95tpr"):
            assert answer[name] == pytest.approx(one.values[name], abs=1e-12)
    assert found["sql"]["difference"] < 1e-12

    for times in (found["processes"][name] for name in ("one pass", "to the exact values")):
        assert times["gain"] == pytest.approx(times["one_process"] / times["two_processes"])
    for times in found["updates"]["seconds_per_score"].values():
        assert set(times) == {"numpy", "numba", "BinaryAUROC(thresholds=100)", "BinaryAUROC(thresholds=1000)"}
        assert min(times.values()) > 0
    assert found["trillion"]["measured_rows"] == ROWS


def test_a_trillion_rows_are_reckoned_in_proportion():
    point = {"file": "a.json", "rows_of_data": 10**8, "shards": 20, "file_bytes": 6e8, "count_bytes": 1e7}
    point["merge_seconds"] = 0.36
    point |= {"memory_bytes": 1e9, "passes": 3, "start_up": {"seconds": 1.0, "read_bytes": 10**7}}
    point["one_pass"] = {"seconds": 11.0, "expected_seconds": 10.0, "read_bytes": 61 * 10**7}
    point["one_pass"]["bounds"] = {"openauc": [0.5, 0.75]}
    point["exact"] = {"seconds": 50.0}
    part = scale_trillion.reckoned(point)
    value = {row.name: row.value for row in part.rows}
    assert value["size of the files"] == pytest.approx(6)
    assert value["one pass: bytes read"] == pytest.approx(6)
    assert part.content["workers"] == 28  # 10^12 rows, 10^7 a second, 3600 seconds
    assert value["to the exact values: memory to settle all in a second pass"] == pytest.approx(20)
    assert value["- the driver merges them in"] == pytest.approx(1)
    assert part.content["passes"] == 1 + 40  # 20 TB, of which 512 GB at a time
    assert value["- bytes read by them"] == pytest.approx(6 * 41)


def test_a_trillion_rows_need_a_measured_point(tmp_path, monkeypatch):
    with pytest.raises(SystemExit, match=r"scale.py exact` first"):
        run(tmp_path, monkeypatch, "trillion")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["exakt"], "no part exakt"), (["exact", "--keep"], "--keep needs --work")],
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
