"""The store: nothing half-written, no trial claimed twice, dead owners replaced."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from openauc._trial_files import RESULT, SPEC
from openauc.bench import store as module
from openauc.bench.store import Claims, Store
from openauc.bench.trial import TrialResult, TrialSpec

ONE = TrialSpec.of("digits", 0, "softmax", epochs=1)
TWO = replace(ONE, split=1)


def test_planned_and_results(tmp_path: Path) -> None:
    store = Store(tmp_path / "new")
    assert store.planned() == []
    assert store.results() == []
    store.plan([TWO, ONE])
    assert store.planned() == sorted([ONE, TWO], key=lambda spec: spec.id)
    assert store.result(ONE) is None
    result = TrialResult(spec=ONE, metrics={"openauc": 0.5})
    store.save(result, {"log.jsonl": b"{}\n"})
    assert store.result(ONE) == result
    assert store.results() == [result]
    assert (store.folder(ONE) / "log.jsonl").read_bytes() == b"{}\n"


def test_the_result_is_written_last(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with pytest.raises(FileNotFoundError):
        store.save(TrialResult(spec=ONE), {"no/such/folder.bin": b""})
    assert store.result(ONE) is None


def test_a_file_of_another_trial_can_be_copied(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.open(TWO)
    store.open(ONE)
    store.copy("model.safetensors", ONE, TWO)
    assert not (store.folder(TWO) / "model.safetensors").exists()
    (store.folder(ONE) / "model.safetensors").write_bytes(b"weights")
    store.copy("model.safetensors", ONE, TWO)
    assert (store.folder(TWO) / "model.safetensors").read_bytes() == b"weights"


def test_a_file_is_not_a_store(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="a store is a folder"):
        Store(tmp_path / "file")


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.plan([ONE])
    store.save(TrialResult(spec=ONE))
    for file, read in ((store.folder(ONE) / RESULT, store.results), (next(tmp_path.glob("plans/*")), store.planned)):
        file.write_text("{")
        with pytest.raises(ValueError, match=f"{file.name} is not JSON"):
            read()


def test_a_folder_says_what_it_is_for(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.open(ONE)
    assert TrialSpec.from_dict(json.loads((store.folder(ONE) / SPEC).read_text())) == ONE


def test_the_plan_of_several_runs_is_their_union(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for specs in ([ONE], [TWO, ONE], [ONE, TWO], []):
        store.plan(specs)
    assert {spec.id for spec in store.planned()} == {ONE.id, TWO.id}
    assert len(list(tmp_path.glob("plans/*"))) == 2


def test_a_claim_excludes_others_until_released(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with store.claims() as one, store.claims() as other:
        assert one.take("a")
        assert one.holds("a")
        assert not other.take("a")
        assert not other.holds("a")
        assert other.take("b")
        assert other.owner_of("a") == f"{one.owner['host']}:{os.getpid()}"
        one.release("a")
        assert other.owner_of("a") is None
        assert other.take("a")
    assert [file for file in (tmp_path / "claims").iterdir() if file.suffix == ".json"] == []


def _take_all(folder: str, start: float, queue: "multiprocessing.Queue[list[str]]") -> None:
    time.sleep(max(0.0, start - time.time()))
    with Claims(Path(folder)) as claims:
        queue.put([key for key in map(str, range(200)) if claims.take(key)])
        time.sleep(2)


def test_runners_racing_for_the_same_trials_share_them_out(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    queue: multiprocessing.Queue[list[str]] = context.Queue()
    start = time.time() + 2
    racers = [context.Process(target=_take_all, args=(str(tmp_path), start, queue)) for _ in range(3)]
    for racer in racers:
        racer.start()
    taken = [key for _ in racers for key in queue.get(timeout=60)]
    for racer in racers:
        racer.join()
    assert sorted(taken) == sorted(map(str, range(200)))


def _owner(folder: Path) -> "subprocess.Popen[str]":
    code = (
        "import sys, time; from pathlib import Path; from openauc.bench.store import Claims\n"
        f"with Claims(Path({str(folder)!r})) as claims:\n    print(claims.take('a'), flush=True)\n    time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "True\n"
    return process


def test_the_claim_of_a_killed_process_is_taken_over(tmp_path: Path) -> None:
    process = _owner(tmp_path)
    with Claims(tmp_path) as claims:
        assert not claims.take("a")
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert claims.take("a")


def test_a_stopped_process_keeps_its_claim(tmp_path: Path) -> None:
    process = _owner(tmp_path)
    process.send_signal(signal.SIGSTOP)
    try:
        with Claims(tmp_path) as claims:
            assert not claims.take("a")
    finally:
        process.kill()
        process.wait()


def _foreign(folder: Path, age: float) -> None:
    file = folder / "a.json"
    file.write_text(json.dumps({"host": "elsewhere", "pid": 1, "started": "1", "token": "x"}))
    then = time.time() - age
    os.utime(file, (then, then))


def test_another_machines_claim_ends_with_its_heartbeat(tmp_path: Path) -> None:
    with Claims(tmp_path) as claims:
        _foreign(tmp_path, age=module.STALE_SECONDS / 2)
        assert not claims.take("a")
        _foreign(tmp_path, age=2 * module.STALE_SECONDS)
        assert claims.take("a")


def test_a_lost_claim_is_noticed_and_not_released(tmp_path: Path) -> None:
    with Claims(tmp_path) as claims:
        assert claims.take("a")
        _foreign(tmp_path, age=0)
        assert not claims.holds("a")
        claims.release("a")
        assert claims.owner_of("a") == "elsewhere:1"


def test_the_heart_beats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HEARTBEAT_SECONDS", 0.05)
    with Claims(tmp_path) as claims:
        claims.take("a")
        os.utime(tmp_path / "a.json", (0, 0))
        deadline = time.monotonic() + 10
        while (tmp_path / "a.json").stat().st_mtime < 1 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert (tmp_path / "a.json").stat().st_mtime > 1
