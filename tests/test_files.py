"""Atomic writes: the whole new file or the untouched old one, and nothing else in the folder."""

import os
import stat

import pytest

from openauc._files import atomic_write, parse_json, write_text


def test_writes_bytes_and_leaves_nothing_else(tmp_path):
    with atomic_write(tmp_path / "a.bin") as file:
        file.write(b"\x00\xff")
    assert (tmp_path / "a.bin").read_bytes() == b"\x00\xff"
    assert os.listdir(tmp_path) == ["a.bin"]


def test_takes_its_place_only_at_the_end(tmp_path):
    target = tmp_path / "a.txt"
    target.write_text("old")
    with atomic_write(str(target)) as file:
        file.write(b"new")
        file.flush()
        assert target.read_text() == "old"
    assert target.read_text() == "new"


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_failure_keeps_the_old_file_and_no_temporary(tmp_path, error):
    target = tmp_path / "a.txt"
    target.write_text("old")

    def write_half():
        with atomic_write(target) as file:
            file.write(b"half")
            raise error

    with pytest.raises(type(error)):
        write_half()
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_failure_of_the_last_step_keeps_the_old_file(tmp_path, monkeypatch):
    target = tmp_path / "a.txt"
    target.write_text("old")

    def refuse(*_):
        raise PermissionError("no")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(PermissionError):
        write_text(target, "new")
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_missing_folder_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"folder .*nowhere does not exist; create it first"):
        write_text(tmp_path / "nowhere" / "a.txt", "text")


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_permissions_follow_the_umask(tmp_path, umask):
    before = os.umask(umask)
    try:
        write_text(tmp_path / "a.txt", "text")
        assert os.umask(umask) == umask, "the umask of the process is not changed"
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a.txt").stat().st_mode) == 0o666 & ~umask


def test_text_is_utf8(tmp_path):
    write_text(tmp_path / "a.txt", "naïve 學\n")
    assert (tmp_path / "a.txt").read_bytes() == "naïve 學\n".encode()


@pytest.mark.parametrize("durable", [True, False])
def test_waiting_for_the_disk_is_a_choice(tmp_path, monkeypatch, durable) -> None:
    waited = []
    monkeypatch.setattr("openauc._files.os.fsync", waited.append)
    write_text(tmp_path / "file", "text", durable=durable)
    assert (tmp_path / "file").read_text() == "text"
    assert len(waited) == durable


def test_json_may_be_nested_a_little():
    assert parse_json(b'{"a": [[{"b": null}]]}') == {"a": [[{"b": None}]]}
    for depth in (60, 500, 100_000):
        with pytest.raises(ValueError, match="nested too deeply"):
            parse_json("[" * depth + "]" * depth)
    with pytest.raises(ValueError, match="Expecting"):
        parse_json("{")
