"""map_shards: a file for each shard, once; faults, deaths, resuming, and what is never written over."""

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import fsspec
import numpy as np
import pyarrow
import pytest
from nodes import Cluster, doomed_node, hang_if_doomed
from pyarrow import parquet

from openauc.executors import Work, in_process, process_pool, ray_cluster
from openauc.shards import Shard
from openauc.shards.mapping import MOST_BAD, Piece, map_shards
from openauc.shards.paths import Outcome
from openauc.shards.reading import read_tables


@dataclass(frozen=True)
class Times:
    """A step: each number times a factor; negative results are unknown, and 13 is a bad one."""

    factor: int = 2
    kind: str = "products"
    deadly: str = ""

    def fingerprint(self) -> str:
        return str(self.factor)

    def about(self, schema: pyarrow.Schema) -> dict[str, str]:
        return {"columns": ",".join(schema.names)}

    def __call__(self, shard: Shard) -> Iterator[Piece]:
        if self.deadly and shard.path.endswith(self.deadly):
            os.kill(os.getpid(), signal.SIGKILL)
        for table, share in read_tables(shard):
            x = table.column("x").to_numpy()
            if 13 in x:
                raise ValueError("13 is not a number for this step.")
            y = self.factor * x
            yield Piece(table.append_column("y", pyarrow.array(y)), share, unknown=int((y < 0).sum()))


def write(path: Path, numbers: Iterable[int]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pyarrow.table({"x": pyarrow.array(numbers, "int64")}), path)


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four shards, one of them empty, one with a space in its name."""
    monkeypatch.chdir(tmp_path)
    for name, numbers in (("a", range(5)), ("b c", range(-3, 0)), ("empty", ()), ("z", (7,))):
        write(tmp_path / "log" / f"{name}.parquet", numbers)
    return tmp_path / "log"


def results(folder: Path | str = "out") -> dict[str, list[int]]:
    files = sorted(Path(folder).rglob("*.parquet"))
    return {str(file.relative_to(folder)): parquet.read_table(file)["y"].to_pylist() for file in files}


DOUBLED = {"a.parquet": [0, 2, 4, 6, 8], "b c.parquet": [-6, -4, -2], "empty.parquet": [], "z.parquet": [14]}


def noted(names: list[str]) -> Callable[[Work, Iterable[Shard]], Iterator[Outcome]]:
    """An executor that takes note of what it did."""

    def execute(work: Work, shards: Iterable[Shard]) -> Iterator[Outcome]:
        for outcome in in_process(work, shards):
            names.append(Path(outcome.shard.path).stem)
            yield outcome

    return execute


def test_each_shard_has_its_file_which_is_not_made_again(log: Path) -> None:
    told: list[tuple[int, int]] = []
    made = map_shards("log/*.parquet", Times(), "out", on_progress=lambda *numbers: told.append(numbers))
    assert results() == DOUBLED
    assert (made.n_shards, made.n_done, made.n_there, made.n_again) == (4, 4, 0, 0)
    assert (made.rows, made.unknown) == (9, 3)
    size = sum(file.stat().st_size for file in log.iterdir())
    assert told == sorted(told)
    assert (told[0], told[-1]) == ((0, size), (size, size))
    before = {file: file.stat() for file in Path("out").iterdir()}
    names: list[str] = []
    made = map_shards("log/*.parquet", Times(), "out", execute=noted(names))
    assert names == []
    assert (made.n_done, made.n_there, made.rows) == (0, 4, 0)
    assert {file: file.stat() for file in Path("out").iterdir()} == before


def test_what_has_changed_is_made_again(log: Path) -> None:
    map_shards("log/*.parquet", Times(), "out")
    write(log / "z.parquet", [1, 2])
    write(log / "new.parquet", [5])
    names: list[str] = []
    made = map_shards("log/*.parquet", Times(), "out", execute=noted(names))
    assert names == ["new", "z"]
    assert (made.n_done, made.n_again, made.n_there) == (2, 1, 3)
    assert results()["z.parquet"] == [2, 4]
    made = map_shards("log/*.parquet", Times(3), "out")
    assert (made.n_done, made.n_again) == (5, 5)
    assert results()["z.parquet"] == [3, 6]


def test_a_folder_that_has_moved_is_the_same(log: Path) -> None:
    map_shards("log/*.parquet", Times(), "out")
    log.rename("moved")
    assert map_shards("moved/*.parquet", Times(), "out").n_there == 4
    write(Path("other/z.parquet"), [1])
    with pytest.raises(ValueError, match=r"out/z.parquet: it was made of \S+log/z.parquet; name a folder for"):
        map_shards("other/*.parquet", Times(), "out")
    assert results()["z.parquet"] == [14]


def test_shards_are_read_in_batches(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openauc.shards.reading.TABLE_ROWS", 2)
    map_shards("log/*.parquet", Times(), "out")
    assert results() == DOUBLED
    assert parquet.ParquetFile("out/a.parquet").num_row_groups == 3


def test_wide_rows_are_read_fewer_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = list(np.random.default_rng(0).normal(size=(100, 50)))
    parquet.write_table(pyarrow.table({"x": rows}), tmp_path / "a.parquet")
    monkeypatch.setattr("openauc.shards.reading.TABLE_BYTES", 4000)
    sizes = [len(table) for table, _ in read_tables(Shard(str(tmp_path / "a.parquet"), 0, ""))]
    assert sum(sizes) == 100
    assert max(sizes) <= 10


def test_folders_from_the_first_wildcard_on_are_kept(log: Path) -> None:
    for day in (1, 2):
        write(Path(f"days/day={day}/part.parquet"), [day])
    map_shards("days/day=*/part.parquet", Times(), "out")
    assert results() == {"day=1/part.parquet": [2], "day=2/part.parquet": [4]}
    map_shards("days/day=1/*.parquet", Times(), "one")
    assert results("one") == {"part.parquet": [2]}


def test_two_shards_of_one_name_are_refused(log: Path) -> None:
    (log / "a.csv").write_text("x\n1\n")
    with pytest.raises(ValueError, match=r"log/a.csv and \S+log/a.parquet would both be written to \S+out/a.parquet"):
        map_shards("log/*", Times(), "out")
    assert not Path("out").exists()


@pytest.mark.parametrize("out", ["log", "log/", "link", "."])
def test_the_folder_of_the_shards_is_refused(log: Path, out: str) -> None:
    Path("link").symlink_to("log")
    before = {file: file.read_bytes() for file in log.iterdir()}
    with pytest.raises(ValueError, match=r"log/a.parquet is an input, and lies in the output folder"):
        map_shards("log/*.parquet", Times(), out)
    assert {file: file.read_bytes() for file in log.iterdir()} == before


def test_results_below_the_shards_are_not_shards(log: Path) -> None:
    for n_there in (0, 4):
        made = map_shards("log/**/*.parquet", Times(), "log/out")
        assert (made.n_shards, made.n_there) == (4, n_there)
    assert results("log/out") == DOUBLED
    with pytest.raises(FileNotFoundError, match="there are no shards but the results in"):
        map_shards("log/out/*.parquet", Times(), "log/out")


def test_other_files_are_not_written_over(log: Path) -> None:
    write(Path("out/z.parquet"), [1])
    with pytest.raises(ValueError, match=r"cannot write \S+out/z.parquet: it is there, and was not made of a shard"):
        map_shards("log/*.parquet", Times(), "out")
    Path("out/z.parquet").unlink()
    map_shards("log/*.parquet", Times(), "out")
    with pytest.raises(ValueError, match=r"out/a.parquet: it holds products, not sums; name another folder"):
        map_shards("log/*.parquet", Times(kind="sums"), "out")


def test_nothing_to_read(log: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no file at log/\*.npz"):
        map_shards("log/*.npz", Times(), "out")


def test_bad_shards_are_named_or_skipped_and_the_others_done(log: Path) -> None:
    write(log / "b c.parquet", [13])
    (log / "a.parquet").write_bytes((log / "z.parquet").read_bytes()[:100])
    said: list[str] = []
    with pytest.raises(ValueError, match=r"^2 of 4 shards .*; the first: \S+a.parquet is not a readable .* 2 are in"):
        map_shards("log/*.parquet", Times(), "out", say=said.append)
    assert [line.partition(" is not")[0] for line in said] == [
        f"failed: {log / 'a.parquet'}",
        f"failed: {log / 'b c.parquet'}: 13",
    ]
    assert sorted(results()) == ["empty.parquet", "z.parquet"]
    made = map_shards("log/*.parquet", Times(), "out", skip_bad=True, say=said.append)
    assert [Path(path).stem for path in made.skipped] == ["a", "b c"]
    assert said[-1].startswith("skipped: ")
    write(log / "a.parquet", range(5))
    write(log / "b c.parquet", range(-3, 0))
    assert map_shards("log/*.parquet", Times(), "out").n_done == 2
    assert results() == DOUBLED


def test_many_bad_shards_stop_a_run_and_nothing_but_bad_ones_is_an_error(tmp_path: Path) -> None:
    for number in range(MOST_BAD + 5):
        write(tmp_path / "log" / f"{number}.parquet", [13])
    names: list[str] = []
    with pytest.raises(ValueError, match=f"^{MOST_BAD} of {MOST_BAD + 5} shards could not be done"):
        map_shards(tmp_path / "log/*.parquet", Times(), tmp_path / "out", execute=noted(names))
    assert len(names) == MOST_BAD
    with pytest.raises(ValueError, match=f"^{MOST_BAD + 5} of {MOST_BAD + 5} shards could not be done"):
        map_shards(tmp_path / "log/*.parquet", Times(), tmp_path / "out", skip_bad=True)
    assert not (tmp_path / "out").exists()


def test_a_shard_that_changes_meanwhile_is_bad(log: Path) -> None:
    class Touches(Times):
        def __call__(self, shard: Shard) -> Iterator[Piece]:
            yield from super().__call__(shard)
            os.utime(shard.path, ns=(0, 0))

    with pytest.raises(ValueError, match=r"a.parquet changed while it was read"):
        map_shards("log/a.parquet", Touches(), "out")
    assert list(Path("out").iterdir()) == []


def test_a_full_disk_stops_the_run_and_leaves_nothing_half_written(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []

    def full(descriptor: int) -> None:
        written.append(descriptor)
        if len(written) == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("openauc._files.os.fsync", full)
        with pytest.raises(OSError, match="No space left on device"):
            map_shards("log/*.parquet", Times(), "out", skip_bad=True)
    assert results() == {"a.parquet": DOUBLED["a.parquet"]}
    assert map_shards("log/*.parquet", Times(), "out").n_there == 1


def test_the_record_says_what_a_file_was_made_of(log: Path) -> None:
    map_shards("log/a.parquet", Times(), "out")
    about = parquet.read_schema("out/a.parquet").metadata
    kind, _, path, size, _ = json.loads(about[b"openauc.shard"])
    assert (kind, path, size) == ("products", str(log / "a.parquet"), (log / "a.parquet").stat().st_size)
    assert about[b"openauc.columns"] == b"x,y"


def test_urls(log: Path) -> None:
    system = fsspec.filesystem("memory")
    for file in log.iterdir():
        system.pipe(f"/{log}/{file.name}", file.read_bytes())
    for source, out in (
        (f"memory://{log}/*.parquet", "local"),
        (f"file://{log}/*.parquet", f"file://{log.parent}/from_file"),
        (f"memory://{log}/*.parquet", f"memory://{log.parent}/out"),
    ):
        assert map_shards(source, Times(), out).n_done == 4
        assert map_shards(source, Times(), out).n_there == 4
    assert results("local") == results("from_file") == DOUBLED
    files = {Path(name).name: system.open(name) for name in system.find(f"{log.parent}/out")}
    assert {name: parquet.read_table(file)["y"].to_pylist() for name, file in files.items()} == DOUBLED
    with pytest.raises(ValueError, match=r"is an input, and lies in the output folder"):
        map_shards(f"memory://{log}/*.parquet", Times(), f"memory://{log}")


@pytest.mark.slow
def test_a_process_that_dies_costs_only_its_shard(log: Path) -> None:
    said: list[str] = []
    with pytest.raises(ValueError, match=r"^1 of 4 shards .*b c.parquet: the worker process died .*SIGKILL.* 3 are in"):
        map_shards("log/*.parquet", Times(deadly="b c.parquet"), "out", execute=process_pool(2), say=said.append)
    assert len(said) == 1
    assert results() == {name: numbers for name, numbers in DOUBLED.items() if name != "b c.parquet"}
    made = map_shards("log/*.parquet", Times(), "out", execute=process_pool(2))
    assert (made.n_done, made.n_there, made.unknown) == (1, 3, 3)
    assert results() == DOUBLED


DRIVER = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from test_mapping import Times
from openauc.executors import in_process
from openauc.shards.mapping import map_shards

def dying(work, shards):
    for number, outcome in enumerate(in_process(work, shards)):
        if number == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        yield outcome

map_shards("log/*.parquet", Times(), "out", execute=dying)
"""


def test_a_killed_run_goes_on(log: Path) -> None:
    here = str(Path(__file__).parent)
    path = os.pathsep.join([*sys.path, str(Path(here).parent)])
    ended = subprocess.run([sys.executable, "-c", DRIVER, here], env={**os.environ, "PYTHONPATH": path}, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert len(results()) == 3
    assert map_shards("log/*.parquet", Times(), "out").n_there == 3
    assert results() == DOUBLED


@pytest.mark.slow
def test_on_a_cluster(cluster: Cluster, log: Path) -> None:
    assert map_shards("log/*.parquet", Times(), "out", execute=ray_cluster()).n_done == 4
    assert results() == DOUBLED


class Hangs(Times):
    """On a doomed node, no shard is ever done."""

    def __call__(self, shard: Shard) -> Iterator[Piece]:
        hang_if_doomed()
        yield from super().__call__(shard)


@pytest.mark.slow
def test_a_killed_node_costs_its_shards_only(cluster: Cluster, ray_home: Path, log: Path) -> None:
    for number in range(20, 40):
        write(log / f"{number}.parquet", [number])
    extra, doomed = doomed_node(cluster, ray_home)
    killed: list[str] = []

    def execute(work: Work, shards: Iterable[Shard]) -> Iterator[Outcome]:
        for outcome in ray_cluster()(work, shards):
            if not killed and doomed.with_suffix(".busy").exists():
                killed.append(outcome.shard.path)
                cluster.remove_node(extra, allow_graceful=False)
            yield outcome

    made = map_shards("log/*.parquet", Hangs(), "out", execute=execute)
    assert (made.n_done, made.skipped, len(killed)) == (24, {}, 1)
    assert results() == DOUBLED | {f"{number}.parquet": [2 * number] for number in range(20, 40)}
