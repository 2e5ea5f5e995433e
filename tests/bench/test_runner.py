"""From spec to result, and lists of trials that are run exactly once."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bench.trials import tiny
from openauc import Predictions, evaluate
from openauc._trial_files import CHECKPOINT, LOG, PREDICTIONS, WEIGHTS
from openauc.bench.runner import run, run_job, run_trial
from openauc.bench.store import Claims, Store
from openauc.bench.summary import summarise
from openauc.bench.trial import Job, Outcome, TrialResult, TrialSpec
from openauc.executors import in_process
from openauc.metrics.ranking import ScoreDirectionWarning
from openauc.protocols import PROTOCOLS
from openauc.training.loop import TrainingInterrupted


class Recorder:
    """Remembers what a run reported."""

    def __init__(self) -> None:
        self.waiting: list[str] = []
        self.begun: list[str] = []
        self.results: list[TrialResult] = []

    def planned(self, waiting: Iterable[TrialSpec], done: Iterable[TrialResult]) -> None:
        self.waiting = [spec.id for spec in waiting]

    def started(self, specs: Iterable[TrialSpec]) -> None:
        self.begun += [spec.id for spec in specs]

    def finished(self, result: TrialResult) -> None:
        self.results.append(result)


def untimed(result: TrialResult) -> TrialResult:
    return replace(result, seconds=0.0)


def test_a_trial_walks_from_data_to_metrics(tmp_path: Path) -> None:
    result = run_trial(tiny(), out=tmp_path)
    assert result.error is None
    with pytest.warns(ScoreDirectionWarning):
        found = evaluate(*Predictions.load(tmp_path / PREDICTIONS))
    assert result.metrics == dict(found.values)
    assert result.intervals["openauc"] == tuple(found.intervals["openauc"])
    assert (result.n_known, result.n_unknown) == (found.n_known, found.n_unknown)
    assert result.seconds > 0
    assert {"python", "torch", "processor"} <= set(result.environment)
    rows = [json.loads(line) for line in (tmp_path / LOG).read_text().splitlines()]
    assert [row["epoch"] for row in rows] == [1, 2]


def test_equal_specs_give_equal_metrics_and_seeds_matter(tmp_path: Path) -> None:
    one, again, other = (
        run_trial(tiny(seed=seed), out=tmp_path / str(i)).metrics["openauc"] for i, seed in enumerate((0, 0, 1))
    )
    assert one == again != other


def test_options_are_chosen_on_held_out_classes_without_the_test_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(*_: object, **__: object) -> None:
        raise AssertionError("the test part was read")

    monkeypatch.setattr("openauc.protocols.base._Reader.test", closed)
    result = run_trial(tiny(validation=0.2, pseudo_unknown=2), out=tmp_path)
    assert result.error is None
    assert result.n_unknown > result.n_known > 0


def test_an_error_is_a_result(tmp_path: Path) -> None:
    result = run_trial(tiny(method_args={"no_such_option": 1}), out=tmp_path)
    assert result.error is not None
    assert result.error.splitlines()[0].startswith("ValueError: ")
    assert "no_such_option" in result.error.splitlines()[0]
    assert "Traceback" in result.error
    assert result.metrics == {}


def test_the_file_of_a_protocol_can_be_benchmarked(tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    split = {"known": [0, 1, 2], "unknown": [3, 4]}
    file.write_text(json.dumps({"source": "digits", "image_size": 8, "width": 2, "splits": [split]}))
    one, two = (TrialSpec.of(str(file), 0, "softmax", epochs=1, seed=seed, train_images=60) for seed in (0, 1))
    (result,) = run([one], out=tmp_path / "store")
    assert result.error is None
    assert summarise([result]).columns[0].label == "mine"
    file.write_text(file.read_text().replace("[3, 4]", "[3]"))
    found = run([one, two], out=tmp_path / "store")
    assert found[0] == result
    assert "mine.json has changed since this trial was planned" in (found[1].error or "")


def test_one_training_serves_many_scores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    specs = [tiny(score=score) for score in (None, "energy", "mahalanobis")] + [tiny("ce_plus")]
    results = run(specs[:2], out=tmp_path, keep_features=True)
    store = Store(tmp_path)
    log = (store.folder(specs[0]) / LOG).read_bytes()

    def forbidden(*_: object, **__: object) -> None:
        raise AssertionError("a second training, or a second pass over the images")

    monkeypatch.setattr("openauc.training.trained.train", forbidden)
    monkeypatch.setattr("openauc.training.trained.embed", forbidden)
    results = run(specs, out=tmp_path)
    assert [result.error for result in results] == [None] * 4
    assert len({result.metrics["openauc"] for result in results}) == 4
    assert len({result.metrics["closed_set_accuracy"] for result in results}) == 1
    for spec in specs:
        assert (store.folder(spec) / LOG).read_bytes() == log
        assert (store.folder(spec) / WEIGHTS).is_file()


def test_a_run_does_only_what_is_missing(tmp_path: Path) -> None:
    specs = [tiny(split=0), tiny(split=1), tiny(split=0)]
    first, second = Recorder(), Recorder()
    results = run(specs[:1], out=tmp_path, watch=first)
    assert [result.spec for result in results] == specs[:1]
    results = run(specs, out=tmp_path, watch=second)
    assert [result.spec for result in results] == specs[:2]
    assert first.begun == [specs[0].id]
    assert second.waiting == second.begun == [specs[1].id]
    folder = Store(tmp_path).folder(specs[0])
    assert {"spec.json", LOG, WEIGHTS, PREDICTIONS, "result.json"} == {file.name for file in folder.iterdir()}


def test_a_failed_trial_stops_nobody_and_is_retried_on_request(tmp_path: Path) -> None:
    bad, good = tiny("gcpl", weights="missing.pth"), tiny()
    results = run([bad, good], out=tmp_path)
    assert [result.error is None for result in results] == [False, True]
    again, retried = Recorder(), Recorder()
    run([bad, good], out=tmp_path, watch=again)
    assert again.waiting == []
    run([bad, good], out=tmp_path, watch=retried, retry_failed=True)
    assert retried.begun == [bad.id]


def test_the_test_failing_keeps_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = tiny()
    with monkeypatch.context() as patched:
        patched.setattr("openauc.protocols.base._Reader.test", lambda *_, **__: 1 / 0)
        (failed,) = run([spec], out=tmp_path)
    assert failed.error is not None
    assert "ZeroDivisionError" in failed.error
    log = (Store(tmp_path).folder(spec) / LOG).read_text()
    (result,) = run([spec], out=tmp_path, retry_failed=True)
    assert result.error is None
    assert (Store(tmp_path).folder(spec) / LOG).read_text() == log
    assert not (Store(tmp_path).folder(spec) / CHECKPOINT).exists()


@pytest.fixture
def sharing(monkeypatch: pytest.MonkeyPatch) -> list[TrialSpec]:
    """Two protocols that differ in their unknown classes only, like CIFAR+10 and CIFAR+50."""
    split = PROTOCOLS["digits"].splits[0]
    fewer = replace(PROTOCOLS["digits"], splits=(split._replace(unknown=split.unknown[:2]),), sizes=())
    monkeypatch.setitem(PROTOCOLS, "digits-few", fewer)
    return [tiny(), replace(tiny(), protocol="digits-few")]


def test_trials_with_equal_known_classes_train_once(tmp_path: Path, sharing: list[TrialSpec]) -> None:
    jobs: list[Job] = []

    def counting(work: object, offered: Iterable[Job]) -> Iterator[Outcome]:
        def kept() -> Iterator[Job]:
            for job in offered:
                jobs.append(job)
                yield job

        return in_process(work, kept())  # type: ignore[arg-type]

    together = run(sharing, out=tmp_path / "together", execute=counting)
    assert [job.specs for job in jobs] == [tuple(sharing)]
    assert together[0].n_unknown > together[1].n_unknown
    assert together[0].metrics["closed_set_accuracy"] == together[1].metrics["closed_set_accuracy"]
    store = Store(tmp_path / "together")
    assert (store.folder(sharing[1]) / LOG).is_file()
    assert not (store.folder(sharing[0]) / CHECKPOINT).exists()


def test_a_network_trained_earlier_is_used_again(tmp_path: Path, sharing: list[TrialSpec]) -> None:
    store = Store(tmp_path)
    run(sharing[:1], out=tmp_path)
    stamp = (store.folder(sharing[0]) / WEIGHTS).stat().st_mtime_ns
    _, second = run(sharing, out=tmp_path)
    alone = run(sharing[1:], out=tmp_path / "alone")[0]
    assert second.metrics == alone.metrics
    assert (store.folder(sharing[0]) / WEIGHTS).stat().st_mtime_ns == stamp
    # The log tells the seconds of each epoch, so a training of its own would have left another one.
    first_log, second_log = ((store.folder(spec) / LOG).read_text() for spec in sharing)
    assert first_log == second_log


def test_a_packed_job_carries_everything_the_store_needs(tmp_path: Path) -> None:
    spec = tiny()
    direct = run([spec], out=tmp_path / "direct")

    def remote(work: object, jobs: Iterable[Job]) -> Iterator[Outcome]:
        for job in jobs:
            yield run_job(job._replace(folder=None, pack=True))._replace(job=job)

    packed = run([spec], out=tmp_path / "remote", execute=remote)
    assert list(map(untimed, packed)) == list(map(untimed, direct))
    for name in (WEIGHTS, PREDICTIONS):
        one, other = (Store(tmp_path / place).folder(spec) / name for place in ("direct", "remote"))
        assert one.read_bytes() == other.read_bytes()


def test_what_another_runner_works_on_is_left_to_it(tmp_path: Path) -> None:
    mine, theirs = tiny(split=0), tiny(split=1)
    store = Store(tmp_path)
    with Claims(store.root) as other:
        assert other.take(theirs.training_id)
        results = run([mine, theirs], out=tmp_path)
        assert [result.spec for result in results] == [mine]
    assert len(run([mine, theirs], out=tmp_path)) == 2


def test_what_was_finished_meanwhile_is_not_done_again(tmp_path: Path) -> None:
    one, two = tiny(split=0), tiny(split=1)
    theirs = TrialResult(spec=two, metrics={"openauc": 0.123})
    seen: list[str] = []

    def slow(work: object, jobs: Iterable[Job]) -> Iterator[Outcome]:
        for job in jobs:
            seen.append(job.specs[0].id)
            Store(tmp_path).save(theirs)
            yield run_job(job)

    assert run([one, two], out=tmp_path, execute=slow)[1] == theirs
    assert seen == [one.id]


LONG = 120
"""Epochs, of which the first few are trained when the signal comes."""

SCRIPT = f"""
import sys
from pathlib import Path
import torch
torch.set_num_threads(1)
from openauc.bench.runner import run
from bench.trials import tiny
run([tiny(epochs={LONG})], out=Path(sys.argv[1]))
"""


def interrupted(out: Path, signum: int) -> int:
    """Start a long trial in a process of its own, wait for its first epochs, send a signal."""
    root = Path(__file__).resolve().parents[1]
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(out)],
        cwd=root,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])},
    )
    log = Store(out).folder(tiny(epochs=LONG)) / LOG
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not (log.is_file() and len(log.read_text().splitlines()) > 2):
        time.sleep(0.05)
    process.send_signal(signum)
    return process.wait(60)


@pytest.mark.slow
def test_a_killed_trial_goes_on_where_it_was(tmp_path: Path) -> None:
    spec = tiny(epochs=LONG)
    assert interrupted(tmp_path / "stopped", signal.SIGKILL) != 0
    store = Store(tmp_path / "stopped")
    assert store.result(spec) is None
    before = (store.folder(spec) / CHECKPOINT).stat().st_mtime_ns
    assert before
    (resumed,) = run([spec], out=tmp_path / "stopped")
    (straight,) = run([spec], out=tmp_path / "straight")
    assert resumed.metrics == straight.metrics
    # The epochs from before the stop were not trained again.
    first = json.loads((store.folder(spec) / LOG).read_text().splitlines()[0])
    assert first["epoch"] == 1
    assert len((store.folder(spec) / LOG).read_text().splitlines()) == LONG


def test_interruption_is_not_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object, **__: object) -> None:
        raise TrainingInterrupted(signal.SIGINT, "in epoch 1 after 1 batches")

    monkeypatch.setattr("openauc.training.trained.train", stopped)
    with pytest.raises(KeyboardInterrupt, match="SIGINT"):
        run([tiny()], out=tmp_path)
    assert Store(tmp_path).results() == []
