"""Which shards a path, a pattern, a folder or a URL names."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest

from openauc import Predictions, evaluate
from openauc.shards import evaluate_shards, find_shards
from openauc.shards.paths import is_sharded

ONE = Predictions.of([0, 1, -1, -1], [0, 0, 1, 1], [0.1, 0.2, 0.15, 0.4])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OPENAUC_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    for name in ("log/b.npz", "log/a.csv", "log/day=1/c.npz", "log/_temporary/d.npz", "log/.e.npz", "[x].npz"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        ONE.save(tmp_path / name)
    (tmp_path / "log" / "_SUCCESS").touch()
    (tmp_path / "log" / "notes.txt").touch()
    return tmp_path


def names(*sources: str | Path) -> list[str]:
    return [os.path.relpath(shard.path) for shard in find_shards(*sources)]


def test_a_folder_holds_its_files_of_predictions(folder: Path) -> None:
    assert names("log") == names(folder / "log") == ["log/a.csv", "log/b.npz", "log/day=1/c.npz"]


def test_patterns_and_single_files(folder: Path) -> None:
    assert names("log/*.npz") == ["log/b.npz"]
    assert names("log/**/*.npz") == ["log/_temporary/d.npz", "log/b.npz", "log/day=1/c.npz"]
    assert names("[x].npz") == ["[x].npz"]


def test_a_file_named_twice_is_one_shard(folder: Path) -> None:
    assert names("log/b.npz", "log/*.npz", "./log/b.npz") == ["log/b.npz"]


def test_a_file_reached_by_a_symbolic_link_is_one_shard(folder: Path) -> None:
    (folder / "log" / "z.npz").symlink_to(folder / "log" / "b.npz")
    (folder / "log" / "again").symlink_to(folder / "log" / "day=1")
    assert names("log") == ["log/a.csv", "log/again/c.npz", "log/b.npz"]


def test_names_of_shards_need_not_be_utf_8(folder: Path) -> None:
    name = os.fsdecode(b"caf\xe9")
    ONE.save(f"{name}.npz")
    found = evaluate_shards(find_shards(f"{name}*"), level=None)
    assert found.evaluation == evaluate(*ONE, level=None)


def test_what_is_sharded(folder: Path) -> None:
    found = {source: is_sharded(source) for source in ("log", "log/*.npz", "s3://b/x.npz", "[x].npz", "log/b.npz")}
    assert found == {"log": True, "log/*.npz": True, "s3://b/x.npz": True, "[x].npz": False, "log/b.npz": False}


@pytest.mark.parametrize(
    ("source", "error", "message"),
    [
        ("missing.npz", FileNotFoundError, "there is no file missing.npz"),
        ("log/*.parquet", FileNotFoundError, "there is no file at log/\\*.parquet; expected files"),
        ("log/*.txt", ValueError, "notes.txt has the suffix '.txt'"),
        ("memory://none/*.npz", FileNotFoundError, "there is no file at memory://none"),
    ],
)
def test_nothing_to_read(folder: Path, source: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        find_shards(source)


def test_the_identity_of_a_shard_is_its_place_and_content(folder: Path) -> None:
    (before,) = find_shards("log/b.npz")
    assert not before.has_changed()
    os.utime("log/b.npz", ns=(0, 0))
    assert before.has_changed()
    assert find_shards("log/b.npz")[0] != before


def test_urls_of_all_formats(folder: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    parts = []
    for number, suffix in enumerate(("parquet", "csv", "npz")):
        part = Predictions.of(ONE.y_true, ONE.y_pred, np.arange(4) * (number + 1) % 5 / 7)
        part.save(f"x.{suffix}")
        parts.append(part)
        memory.pipe(f"/bucket/day={number}/x.{suffix}", Path(f"x.{suffix}").read_bytes())
    memory.pipe("/bucket/_x.npz", b"")
    shards = find_shards("memory://bucket")
    assert [shard.path.partition("bucket/")[2] for shard in shards] == ["day=0/x.parquet", "day=1/x.csv", "day=2/x.npz"]
    assert find_shards("memory://bucket/*/x.*") == shards
    assert find_shards(shards[0].path) == shards[:1]
    whole = Predictions.concat(parts)
    assert evaluate_shards(shards, level=None).evaluation == evaluate(*whole, level=None)
    before = shards[1]
    memory.pipe("/bucket/day=1/x.csv", b"y_true,y_pred,open_score\n1,1\n")
    assert find_shards("memory://bucket")[1] != before
    with pytest.raises(ValueError, match=r"memory:///?bucket/day=1/x.csv, line 2 has 2 values"):
        evaluate_shards(find_shards(shards[1].path))
    memory.rm("/bucket", recursive=True)


def test_urls_need_fsspec(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(ImportError, match=r"reading s3://bucket/x.npz needs fsspec .*: pip install fsspec"):
        find_shards("s3://bucket/x.npz")
