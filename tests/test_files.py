"""Atomic writes: the whole new file or the untouched old one, and nothing else in the folder."""

import errno
import os
import resource
import signal
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from openauc._files import atomic_write, is_stream, parse_json, write_text


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
    with pytest.raises(FileNotFoundError, match=r"/a\.txt: .*/nowhere .*create it"):
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


def test_json_may_be_nested_a_little():
    assert parse_json(b'{"a": [[{"b": null}]]}') == {"a": [[{"b": None}]]}
    with pytest.raises(ValueError, match="nested"):
        parse_json("[" * 100_000)
    with pytest.raises(ValueError, match="column 2"):
        parse_json("{")


def test_a_symbolic_link_stays_and_what_it_points_to_is_replaced(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real/a.txt").write_text("old")
    (tmp_path / "link").symlink_to("real/a.txt")
    write_text(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real/a.txt").read_text() == "new"
    (tmp_path / "dangling").symlink_to("real/b.txt")
    write_text(tmp_path / "dangling", "new")
    assert (tmp_path / "real/b.txt").read_text() == "new"
    assert sorted(os.listdir(tmp_path / "real")) == ["a.txt", "b.txt"]


def test_a_replaced_file_keeps_its_permissions(tmp_path):
    write_text(tmp_path / "a.txt", "old")
    (tmp_path / "a.txt").chmod(0o600)
    write_text(tmp_path / "a.txt", "new")
    assert stat.S_IMODE((tmp_path / "a.txt").stat().st_mode) == 0o600


def test_a_pipe_is_written_through(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with ThreadPoolExecutor(1) as reader:
        read = reader.submit((tmp_path / "pipe").read_text)
        write_text(tmp_path / "pipe", "text")
        assert read.result(timeout=10) == "text"
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    assert os.listdir(tmp_path) == ["pipe"]


def test_an_open_descriptor_keeps_its_position(tmp_path):
    with open(tmp_path / "a.txt", "wb", buffering=0) as file:
        file.write(b"before ")
        for path in (f"/dev/fd/{file.fileno()}", f"/proc/self/fd/{file.fileno()}"):
            write_text(path, "text ")
        file.write(b"after")
    assert (tmp_path / "a.txt").read_text() == "before text text after"


def test_a_full_disk_names_the_file():
    for path in ("/dev/full", Path("/dev/full")):
        with pytest.raises(OSError, match="/dev/full") as caught:
            write_text(path, "text")
        assert caught.value.errno == errno.ENOSPC
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)


def test_a_file_that_may_not_be_that_large_is_named(tmp_path):
    """A real failure in the middle of a write, as a full disk gives it."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
        with pytest.raises(OSError, match=r"'.*a\.txt'"):
            write_text(tmp_path / "a.txt", "text" * 1000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert os.listdir(tmp_path) == []


def test_a_folder_without_permission_names_the_file(tmp_path, monkeypatch):
    def refuse(path, *_, **__):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    monkeypatch.setattr(os, "open", refuse)  # root may write anywhere
    with pytest.raises(PermissionError, match=r"'[^']*/a\.txt'"):
        write_text(tmp_path / "a.txt", "text")


def test_errors_of_other_files_keep_their_name(tmp_path):
    def copy():
        with atomic_write(tmp_path / "a.txt") as file:
            file.write((tmp_path / "missing").read_bytes())

    with pytest.raises(FileNotFoundError, match=r"'.*missing'"):
        copy()


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(IsADirectoryError, match="name a file in it"):
        write_text(tmp_path, "text")


WRITING = """
import sys, time
from openauc._files import atomic_write
with atomic_write(sys.argv[1]) as file:
    file.write(b"half" * 100_000)
    file.flush()
    print("writing", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("signal_", [signal.SIGTERM, signal.SIGKILL])
def test_a_killed_process_leaves_no_temporary(tmp_path, signal_):
    (tmp_path / "a.txt").write_text("old")
    command = [sys.executable, "-c", WRITING, tmp_path / "a.txt"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "writing\n"
        process.send_signal(signal_)
        assert process.wait() == -signal_
    assert os.listdir(tmp_path) == ["a.txt"]
    assert (tmp_path / "a.txt").read_text() == "old"


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.EISDIR])
def test_a_file_system_that_wants_names_gets_one(tmp_path, monkeypatch, number):
    """Network file systems know no nameless files: a hidden name serves, and is gone afterwards."""
    real = os.open

    def refuse(path, flags, *rest, **options):
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(number, os.strerror(number), path)
        return real(path, flags, *rest, **options)

    monkeypatch.setattr(os, "open", refuse)
    target = tmp_path / "a.txt"
    with atomic_write(target) as file:
        file.write(b"new")
        (hidden,) = os.listdir(tmp_path)
        assert hidden.startswith(".a.txt.")
    assert os.listdir(tmp_path) == ["a.txt"]
    assert target.read_bytes() == b"new"
    test_failure_keeps_the_old_file_and_no_temporary(tmp_path, OSError("disk full"))


@pytest.mark.parametrize(
    ("path", "expected"), [("/dev/null", True), ("/dev/stdout", True), ("/dev/fd/1", True), ("/dev/none", False)]
)
def test_what_is_written_through(path, expected):
    assert is_stream(path) is expected
