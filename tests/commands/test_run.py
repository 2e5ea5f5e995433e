"""``openauc run``, as a user runs it; in a process of its own where it is stopped or has a terminal."""

import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from openauc.bench.store import Store
from openauc.cli import app
from openauc.training.loop import CHECKPOINT, LOG

BENCHMARK = '''"""Small trials."""
from openauc.bench.trial import TrialSpec

def trials(seeds: int = 1, epochs: int = 1, broken: bool = False) -> list[TrialSpec]:
    methods = ("softmax", "openauc")
    options = {"recipe": "plain", "epochs": epochs, "width": 2, "train_images": 60}
    found = [
        TrialSpec.of("digits", split, method, seed=seed, **options)
        for seed in range(seeds) for split in range(2) for method in methods
    ]
    return found + ([TrialSpec.of("digits", 0, "rpl", weights="missing.pth", **options)] if broken else [])
'''


@pytest.fixture
def benchmark(tmp_path: Path) -> Path:
    file = tmp_path / "small.py"
    file.write_text(BENCHMARK)
    return file


def command(*arguments: object) -> list[str]:
    # Where the tests run in the background, SIGINT is ignored.
    code = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\nfrom openauc.cli import main; main()"
    )
    return [sys.executable, "-c", code, "run", *map(str, arguments)]


def in_process(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["run", *map(str, arguments)])


def test_a_run_ends_in_a_table_and_again_does_nothing(
    benchmark: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = (benchmark, "--jobs", 1, "--baseline", "softmax")
    first = in_process(*words)
    assert first.exit_code == 0, first.stderr
    store = tmp_path / "runs" / "small"
    assert len(Store(store).results()) == 4
    assert "4 trials, 0 of them done before" in first.stderr
    assert "[4/4]" in first.stderr
    assert "openauc" in first.stdout
    assert (store / "table.md").read_text().count("|") > 10
    again = in_process(*words, "-o", store)
    assert "4 trials, 4 of them done before" in again.stderr
    assert "[" not in again.stderr
    assert again.stdout.replace(str(store), "runs/small") == first.stdout


def test_failures_are_told_and_retried_on_request(benchmark: Path, tmp_path: Path) -> None:
    options = (benchmark, "-o", tmp_path / "store", "--jobs", 1, "--set", "broken=true", "--only", "method=rpl")
    failed = in_process(*options)
    assert failed.exit_code == 1
    assert "missing.pth" in failed.stderr
    assert "--retry-failed" in failed.stderr
    assert "1 of them done before" in in_process(*options).stderr
    assert "0 of them done before" in in_process(*options, "--retry-failed").stderr


def test_a_dry_run_lists_trials_and_writes_nothing(benchmark: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    found = in_process(benchmark, "-o", store, "--seeds", 2, "--only", "method=openauc,split=0", "--dry-run")
    assert found.exit_code == 0, found.stderr
    assert found.stdout.count("digits-0-openauc-s") == 2
    assert "to do" in found.stdout
    assert not store.exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("tabel2",), "Did you mean 'table2'?"),
        (("digits", "--only", "methd=openauc"), "method"),
        (("digits", "--budget", "cpu"), "budget"),
        (("digits", "--jobs", 0), "'--jobs'"),
        (("missing.py",), "there is no file missing.py"),
    ],
)
def test_bad_input_is_one_sentence(arguments: tuple[object, ...], words: str) -> None:
    found = in_process(*arguments)
    assert found.exit_code == 2
    assert words in found.stderr


@pytest.mark.slow
def test_stopping_leaves_a_store_that_goes_on(benchmark: Path, tmp_path: Path) -> None:
    options = (benchmark, "-o", tmp_path / "store", "--jobs", 2, "--set", "epochs=3000", "--only", "split=0")
    process = subprocess.Popen(command(*options), stderr=subprocess.PIPE, text=True)
    trials = tmp_path / "store" / "trials"
    deadline = time.monotonic() + 200
    while time.monotonic() < deadline and len(list(trials.glob(f"*/{LOG}"))) < 2:
        time.sleep(0.2)
    time.sleep(1)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "the same command goes on" in errors
    assert len(list(trials.glob(f"*/{CHECKPOINT}"))) == 2
    assert not list((tmp_path / "store").glob(".*"))


@pytest.mark.slow
def test_a_terminal_gets_the_live_view(benchmark: Path, tmp_path: Path) -> None:
    driver, terminal = pty.openpty()
    process = subprocess.Popen(
        command(benchmark, "-o", tmp_path / "store", "--jobs", 1, "--only", "split=0,method=softmax"),
        stdout=terminal,
        stderr=terminal,
        stdin=terminal,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "100"},
    )
    os.close(terminal)
    shown = b""
    while True:
        try:
            part = os.read(driver, 65536)
        except OSError:  # how Linux says that the other end is gone
            break
        if not part:
            break
        shown += part
    assert process.wait() == 0
    text = shown.decode()
    assert "running" in text
    assert "best so far" in text
    assert "1 done" in text
