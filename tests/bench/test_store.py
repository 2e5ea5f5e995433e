"""The store: nothing half-written, no trial claimed twice, dead owners replaced."""

import json
import multiprocessing
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from openauc._trial_files import RESULT, SPEC
from openauc.bench.store import Claims, Store
from openauc.bench.trial import TrialResult, TrialSpec

from .trials import tiny

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


DAMAGE = {
    "empty": "",
    "half": '{"spec": {"protocol": "dig',
    "list": "[1, 2]",
    "nothing in it": "{}",
    "nested": "[" * 100_000,
    "bytes": b"\xff\xfe\x00",
}


@pytest.mark.parametrize("content", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_result_is_a_failed_one(content: str | bytes, tmp_path: Path) -> None:
    store = Store(tmp_path)
    for spec in (ONE, TWO):
        store.open(spec)
        store.save(TrialResult(spec=spec, metrics={"openauc": 0.5}))
    file = store.folder(ONE) / RESULT
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    errors = {result.spec.id: result.error for result in store.results()}
    assert errors[TWO.id] is None
    error = errors[ONE.id] or ""
    assert error.startswith(f"{file} is ")
    assert error.endswith("`openauc run` with --retry-failed runs this trial again.")
    assert "\n" not in error
    assert store.result(ONE) == TrialResult(spec=ONE, error=error)


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        ({"metrics": {"openauc": "high"}}, "'high'"),
        ({"metrics": [0.5]}, "no attribute 'items'"),
        ({"intervals": {"openauc": [0.5]}}, "not enough values"),
        ({"predictions": 3}, "predictions is 3"),
        ({"seconds": "long"}, "'long'"),
        ({"more": 1}, "unexpected keyword argument 'more'"),
        ({"spec": {}}, "it lacks 'method'"),
        ({"spec": {**ONE.to_dict(), "train_images": "all"}}, "train_images is 'all'"),
        ({"spec": {**ONE.to_dict(), "method": "../../../x"}}, "cannot be the name of a folder"),
        ({"spec": {**ONE.to_dict(), "method_args": {"lam": float("nan")}}}, "not JSON compliant"),
    ],
)
def test_a_result_of_the_wrong_shape_is_a_failed_one(damage: dict[str, Any], complaint: str, tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.open(ONE)
    store.save(TrialResult(spec=ONE))
    file = store.folder(ONE) / RESULT
    file.write_text(json.dumps({**TrialResult(spec=ONE).to_dict(), **damage}))
    (result,) = store.results()
    assert result.spec == ONE
    assert result.error is not None
    assert result.error.startswith(f"{file} is damaged (")
    assert complaint in result.error


def test_whose_a_damaged_result_was_is_also_known_from_the_plan(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.save(TrialResult(spec=ONE))
    (store.folder(ONE) / RESULT).write_text("{")
    with pytest.warns(UserWarning, match="its trial is not known; delete its folder"):
        assert store.results() == []
    (store.folder(ONE) / SPEC).write_text("[]")
    store.plan([TWO, ONE])
    assert [result.spec for result in store.results()] == [ONE]


def test_a_result_that_speaks_of_another_trial_is_a_failed_one(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.open(ONE)
    store.save(TrialResult(spec=ONE))
    file = store.folder(ONE) / RESULT
    file.write_text(json.dumps(TrialResult(spec=TWO, metrics={"openauc": 1.0}).to_dict()))
    error = (
        f"{file} is damaged (it is the result of {TWO.id}); `openauc run` with --retry-failed runs this trial again."
    )
    assert store.result(ONE) == TrialResult(spec=ONE, error=error)
    assert store.results() == [store.result(ONE)]
    (store.folder(ONE) / SPEC).unlink()
    store.folder(ONE).rename(store.trials / "mine")
    assert [result.spec for result in store.results()] == [TWO]  # nobody knows better


def test_a_damaged_plan_is_named_and_left_out(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.plan([ONE])
    (file,) = tmp_path.glob("plans/*")
    store.plan([TWO])
    for content, complaint in (("{", "is not JSON"), ("3", "is damaged"), ('[{"seed": 1}]', "it lacks 'method'")):
        file.write_text(content)
        with pytest.warns(UserWarning, match=f"{file.name} .*{complaint}.*; delete it"):
            assert store.planned() == [TWO]


def test_a_damaged_result_is_run_again_with_the_failed_ones(tmp_path: Path) -> None:
    from openauc.bench.runner import run  # not above: the processes of these tests need no torch

    spec = tiny(epochs=1)
    (first,) = run([spec], out=tmp_path)
    (Store(tmp_path).folder(spec) / RESULT).write_text("{")
    (damaged,) = run([spec], out=tmp_path)
    assert "--retry-failed runs this trial again" in (damaged.error or "")
    (again,) = run([spec], out=tmp_path, retry_failed=True)
    assert again.metrics == first.metrics


def test_predictions_are_in_the_folder_of_their_trial(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    for said in (f"trials/{ONE.id}/p.csv", "../p.csv", "../../../p.csv", str(tmp_path / "p.csv"), "p.csv"):
        assert store.predictions(TrialResult(spec=ONE, predictions=said)) == store.folder(ONE) / "p.csv"
    for said in (None, "", "..", "../..", "."):
        assert store.predictions(TrialResult(spec=ONE, predictions=said)) is None


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
    with Claims(store.root) as one, Claims(store.root) as other:
        assert one.take("a")
        assert not other.take("a")
        assert other.take("b")
        one.release("a")
        assert other.take("a")
        assert not one.take("b")
    assert not list(tmp_path.iterdir())
    with Claims(store.root) as one:
        assert one.take("a")


def _take_all(folder: str, together: Any, queue: "multiprocessing.Queue[list[str]]") -> None:
    together.wait(60)
    with Claims(Path(folder)) as claims:
        queue.put([key for key in map(str, range(200)) if claims.take(key)])
        together.wait(60)  # nobody gives its claims up before all have looked for theirs


def test_runners_racing_for_the_same_trials_share_them_out(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    queue: multiprocessing.Queue[list[str]] = context.Queue()
    together = context.Barrier(2)
    racers = [context.Process(target=_take_all, args=(str(tmp_path), together, queue)) for _ in range(2)]
    for racer in racers:
        racer.start()
    taken = [key for _ in racers for key in queue.get(timeout=60)]
    for racer in racers:
        racer.join()
    assert sorted(taken) == sorted(map(str, range(200)))


def test_the_claim_of_a_stopped_process_lasts_until_it_is_killed(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from openauc.bench.store import Claims\n"
        f"with Claims(Path({str(tmp_path)!r})) as claims:\n    print(claims.take('a'), flush=True)\n    time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "True\n"
    with Claims(tmp_path) as claims:
        process.send_signal(signal.SIGSTOP)
        assert not claims.take("a")
        process.kill()
        process.wait()
        assert claims.take("a")
