"""evaluate_shards: the answer of one file, however the samples lie; slices, faults, resuming."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

import openauc.shards.evaluation as module
from openauc import Metric, Predictions, evaluate
from openauc._columns import ColumnNames, write_columns
from openauc.executors import Work, in_process, process_pool
from openauc.metrics.registry import METRICS, PairMetric, RateMetric
from openauc.shards import Plan, Shard, evaluate_shards, find_shards
from openauc.shards.counting import Counting, WorkFolder
from openauc.shards.paths import Outcome
from openauc.streaming import Accumulator
from openauc.streaming.accumulator import load_all, save_all

QUICK = {"n_replicates": 20}
FORMULAS = {name: metric for name, metric in METRICS.items() if isinstance(metric, PairMetric | RateMetric)}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OPENAUC_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def samples(n: int, seed: int = 0, *, decimals: int = 2) -> Predictions:
    rng = np.random.default_rng(seed)
    y_true = rng.integers(-1, 4, n)
    y_pred = np.where(rng.random(n) < 0.7, np.maximum(y_true, 0), rng.integers(0, 4, n))
    return Predictions.of(y_true, y_pred, np.round(rng.normal(size=n) + (y_true < 0), decimals))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Shards of three formats and different sizes, one of them empty; with the day of each sample."""
    folder = tmp_path / "log"
    folder.mkdir()
    for i, (n, suffix) in enumerate([(300, "parquet"), (1, "parquet"), (0, "parquet"), (200, "csv"), (250, "npz")]):
        slices = {"day": np.arange(n) % 12, "camera": np.array(["a", "b"])[np.arange(n) % 2]}
        samples(n, i, decimals=12).save(folder / f"part-{i}.{suffix}", extra=slices)
    return folder


def all_of(folder: Path) -> Predictions:
    return Predictions.concat(Predictions.load(file) for file in sorted(folder.iterdir()) if "-2." not in file.name)


def test_shards_of_all_formats_are_one_file(log: Path, cache: Path) -> None:
    found = evaluate_shards(find_shards(log), **QUICK)
    assert found.evaluation == evaluate(*all_of(log), **QUICK)
    assert (found.n_shards, found.skipped, found.bounds, found.slices) == (5, {}, {}, {})
    assert list((cache / "shards").iterdir()) == []


@pytest.mark.parametrize("decimals", [2, 12])
def test_large_files_are_counted_in_bins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, decimals: int) -> None:
    parts = [samples(1000, seed, decimals=decimals) for seed in range(2)]
    for i, part in enumerate(parts):
        part.save(tmp_path / f"{i}.parquet", extra={"camera": np.array(["a", "b"])[np.arange(1000) % 2]})
    whole, shards = evaluate(*Predictions.concat(parts), **QUICK), find_shards(tmp_path)
    assert evaluate_shards(shards, **QUICK).evaluation == whole
    assert evaluate_shards(shards, Plan(exact=False, resolution=4), **QUICK).bounds
    monkeypatch.setattr(module, "EXACT_BYTES", sum(shard.size for shard in shards) - 1)
    assert evaluate_shards(shards, Plan(exact=True), **QUICK).evaluation == whole
    found = evaluate_shards(shards, Plan(by=("camera",)), **QUICK)
    assert bool(found.bounds) == (decimals == 12)  # rounded so much, no two scores share a bin
    for name, (low, high) in found.bounds.items():
        assert low <= whole.values[name] <= high
        assert found.to_dict()["bounds"][name] == [low, high]
    first = Predictions.concat(Predictions(*(column[::2] for column in part)) for part in parts)
    value = evaluate(*first, level=None).auroc
    low, high = found.slice_bounds["a",].get("auroc", (value, value))
    assert low <= value <= high
    assert "macro_f_score" not in found.evaluation.values
    assert "macro_f_score" in evaluate_shards(shards, Plan(per_class=True), **QUICK).evaluation.values


def test_parquet_is_read_in_batches_of_the_needed_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = samples(1000)
    whole.save(tmp_path / "a.parquet", extra={"wide": np.arange(1000)})
    monkeypatch.setattr("openauc.shards.reading.BATCH_ROWS", 64)
    seen: list[tuple[int, set[str]]] = []
    original = Plan.predictions

    def spy(plan: Plan, columns: dict[str, np.ndarray], path: str) -> Predictions:
        seen.append((len(columns["y_true"]), set(columns)))
        return original(plan, columns, path)

    monkeypatch.setattr(Plan, "predictions", spy)
    told: list[tuple[int, int]] = []
    (shard,) = find_shards(tmp_path)
    found = evaluate_shards([shard], on_progress=lambda *numbers: told.append(numbers), **QUICK)
    assert found.evaluation == evaluate(*whole, **QUICK)
    assert [n for n, _ in seen] == [64] * 15 + [40]
    assert all(names == {"y_true", "y_pred", "open_score"} for _, names in seen)
    assert told == sorted(told)
    assert told[0] == (0, shard.size)
    assert len(told) > 16
    assert told[-1] == (shard.size, shard.size)


def test_slices_are_evaluated_as_if_alone(log: Path) -> None:
    found = evaluate_shards(find_shards(log), Plan(by=("day",)), **QUICK)
    assert found.evaluation == evaluate(*all_of(log), **QUICK)
    assert list(found.slices) == [(str(day),) for day in range(12)]
    day = np.concatenate([np.arange(n) % 12 for n in (300, 1, 200, 250)])
    for (name,), part in found.slices.items():
        alone = Predictions(*(column[day == int(name)] for column in all_of(log)))
        assert part == evaluate(*alone, metrics=FORMULAS, level=1 - 0.05 / 12)
    first = found.to_dict()["slices"][0]
    assert first["slice"] == {"day": "0"}
    assert first["level"] == 1 - 0.05 / 12


def test_slices_of_two_columns_one_of_them_a_folder(tmp_path: Path) -> None:
    for camera in ("a", "b"):
        folder = tmp_path / f"camera={camera}"
        folder.mkdir()
        samples(60, ord(camera)).save(folder / "x.parquet", extra={"night": np.arange(60) % 2 == 0})
    found = evaluate_shards(find_shards(tmp_path), Plan(by=("camera", "night")), level=None)
    assert list(found.slices) == [("a", "False"), ("a", "True"), ("b", "False"), ("b", "True")]
    night = Predictions(*(column[::2] for column in samples(60, ord("b"))))
    assert found.slices["b", "True"].openauc == evaluate(*night, level=None).openauc


def test_slices_without_known_or_unknown_samples(tmp_path: Path) -> None:
    table = {
        "y_true": [0, -1, 1, 1, -1],
        "y_pred": [0, 0, 1, 0, 0],
        "open_score": [0.1, 0.9, 0.2, 0.3, 0.4],
        "day": ["both", "both", None, None, "unknown alone"],
    }
    parquet.write_table(pyarrow.table(table), tmp_path / "a.parquet")
    for exact in (True, False):
        found = evaluate_shards(find_shards(tmp_path), Plan(by=("day",), exact=exact), level=None)
        assert {key: dict(part.values) for (key,), part in found.slices.items()} == {
            None: {"closed_set_accuracy": 0.5},
            "both": dict(evaluate([0, -1], [0, 0], [0.1, 0.9], metrics=FORMULAS, level=None).values),
            "unknown alone": {},
        }


def test_slices_sort_as_numbers_and_a_missing_value_is_not_a_text(tmp_path: Path) -> None:
    values = ["10", "-2", "1.5", "b", None, "(missing)", "2"]
    table = {"y_true": [0] * 7, "y_pred": [0] * 7, "open_score": [0.1] * 7, "bin": values}
    parquet.write_table(pyarrow.table(table), tmp_path / "a.parquet")
    accuracy = {"closed_set_accuracy": METRICS["closed_set_accuracy"]}
    found = evaluate_shards(find_shards(tmp_path), Plan(by=("bin",)), metrics=accuracy, level=None)
    assert [key for (key,) in found.slices] == ["-2", "1.5", "2", "10", "(missing)", "b", None]
    assert json.loads(json.dumps(found.to_dict()))["slices"][-1]["slice"] == {"bin": None}


@pytest.mark.parametrize("suffix", ["parquet", "npz"])
def test_nan_is_a_missing_value_of_a_slice(tmp_path: Path, suffix: str) -> None:
    samples(90).save(tmp_path / f"a.{suffix}", extra={"bin": np.resize([2.0, np.nan, 10.0], 90)})
    assert list(evaluate_shards(find_shards(tmp_path), Plan(by=("bin",)), **QUICK).slices) == [
        ("2.0",),
        ("10.0",),
        (None,),
    ]


@pytest.mark.filterwarnings("error")
def test_slices_whose_order_is_reversed_by_chance_do_not_warn(tmp_path: Path) -> None:
    samples(900).save(tmp_path / "a.npz", extra={"customer": np.arange(900) // 6})
    found = evaluate_shards(find_shards(tmp_path), Plan(by=("customer",)), **QUICK)
    assert sum(part.values.get("auroc", 1.0) < 0.5 for part in found.slices.values()) > 5


@pytest.mark.parametrize("suffix", ["parquet", "npz"])
def test_a_column_of_lists_is_not_a_column_of_slices(tmp_path: Path, suffix: str) -> None:
    columns = {**samples(9)._asdict(), "embedding": np.zeros((9, 2))}
    if suffix == "npz":
        np.savez(tmp_path / "a.npz", **columns)
    else:
        parquet.write_table(pyarrow.table({**columns, "embedding": list(columns["embedding"])}), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=f"a.{suffix}: column 'embedding' holds several values.*slice by a column"):
        evaluate_shards(find_shards(tmp_path), Plan(by=("embedding",)))


def test_a_column_of_too_many_values_is_no_column_of_slices(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openauc.shards.counting.MOST_SLICES", 11)
    with pytest.raises(ValueError, match=r"part-0.parquet: by 'day' there are more than 11 slices"):
        evaluate_shards(find_shards(log), Plan(by=("day",)))


@pytest.mark.parametrize("suffix", ["parquet", "csv", "npz"])
def test_a_missing_column_of_slices_is_named(tmp_path: Path, suffix: str) -> None:
    samples(9).save(tmp_path / f"a.{suffix}")
    with pytest.raises(ValueError, match=f"a.{suffix} has no column 'day' to slice by; it has 'y_true'"):
        evaluate_shards(find_shards(tmp_path), Plan(by=("day",)))


# Labels


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_names_are_labels_whatever_a_shard_or_batch_lacks(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Classes 0, 1 and "other": a batch of unknown samples alone, and in CSV a shard without any."""
    monkeypatch.setattr("openauc.shards.reading.BATCH_ROWS", 2)
    parts = [
        (np.array(["0", "1", "other", "other"]), np.array([0, 1, 0, 1]), np.array([0.1, 0.4, 0.3, 0.7])),
        (np.array(["0", "1", "0"]), np.array([0, 0, 0]), np.array([0.2, 0.5, 0.6])),
    ]
    for i, (y_true, y_pred, score) in enumerate(parts):
        write_columns(tmp_path / f"{i}.{suffix}", {"y_true": y_true, "y_pred": y_pred, "open_score": score})
    whole = [np.concatenate(columns) for columns in zip(*parts, strict=True)]
    found = evaluate_shards(find_shards(tmp_path), Plan(unknown_label="other"), level=None)
    assert found.evaluation == evaluate(*whole, level=None, unknown_label="other")


def test_names_read_by_number_are_the_same_names(tmp_path: Path) -> None:
    names = np.array(["fox", "hen", "owl", "elk", "-1"])
    y_true, y_pred, score = samples(50)
    named = Predictions.of(names[y_true], names[y_pred], score)
    named.save(tmp_path / "a.parquet")
    assert evaluate_shards(find_shards(tmp_path), level=None).evaluation == evaluate(*named, level=None)


def test_a_missing_name_is_an_error_with_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openauc.shards.reading.BATCH_ROWS", 2)
    table = {"y_true": ["a", "-1", "a", None], "y_pred": ["a"] * 4, "open_score": [0.1, 0.2, 0.3, 0.4]}
    parquet.write_table(pyarrow.table(table), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=r"a.parquet, in the rows from 2 on: y_true is missing for sample 1"):
        evaluate_shards(find_shards(tmp_path))


def test_logits_stand_for_prediction_and_score(tmp_path: Path) -> None:
    logits = np.random.default_rng(0).normal(size=(30, 3))
    y_true = np.arange(30) % 4 - 1
    table = {"y_true": y_true, "logits": list(logits), "id": np.arange(30)}
    parquet.write_table(pyarrow.table(table), tmp_path / "list.parquet")
    by_class = {"y_true": y_true, **{f"logit_{i}": logits[:, i] for i in range(3)}, "id": np.arange(30)}
    parquet.write_table(pyarrow.table(by_class), tmp_path / "each.parquet")
    whole = Predictions.from_logits(np.tile(y_true, 2), np.tile(logits, (2, 1)))
    assert evaluate_shards(find_shards(tmp_path), level=None).evaluation == evaluate(*whole, level=None)


# Faults


def test_a_shard_with_another_kind_of_label_is_named(tmp_path: Path) -> None:
    samples(20).save(tmp_path / "a.npz")
    Predictions.of(["fox", "-1"], ["fox", "fox"], [0.1, 0.2]).save(tmp_path / "b.npz")
    with pytest.raises(TypeError, match=r"labels of \S+b.npz are names, those of \S+a.npz are integers"):
        evaluate_shards(find_shards(tmp_path), skip_bad=True)


def damaged(file: Path, how: str) -> None:
    content = file.read_bytes()
    if how == "truncated":
        file.write_bytes(content[: len(content) // 2])
    elif how == "other columns":
        Path(file).unlink()
        file.with_suffix(".csv").write_text("label,guess\n1,1\n")
    else:
        file.write_bytes(b"\0" * 40 + content[40:])


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("truncated", "part-0.parquet is not a readable Parquet file"),
        ("overwritten", "part-0.parquet is not a readable Parquet file"),
        ("other columns", "part-0.csv has no columns 'y_true', 'y_pred', 'open_score'"),
    ],
)
def test_a_bad_shard_stops_the_run_or_is_skipped_and_counted(log: Path, how: str, reason: str) -> None:
    damaged(log / "part-0.parquet", how)
    shards = find_shards(log)
    with pytest.raises(ValueError, match=f"{reason}.* With skip_bad the other shards"):
        evaluate_shards(shards, **QUICK)
    found = evaluate_shards(shards, skip_bad=True, **QUICK)
    rest = Predictions.concat(Predictions.load(log / name) for name in ("part-1.parquet", "part-3.csv", "part-4.npz"))
    assert found.evaluation == evaluate(*rest, **QUICK)
    ((path, why),) = found.skipped.items()
    assert Path(path).stem == "part-0"
    assert reason in why
    assert json.loads(json.dumps(found.to_dict()))["skipped"] == {path: why}


def test_a_page_whose_checksum_is_wrong_is_noticed(tmp_path: Path) -> None:
    columns = samples(500)._asdict()
    options = {"write_page_checksum": True, "compression": "none", "use_dictionary": False}
    parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet", **options)
    content = bytearray((tmp_path / "a.parquet").read_bytes())
    place = content.find(columns["open_score"].tobytes()[:800])
    content[place + 400] ^= 1
    (tmp_path / "a.parquet").write_bytes(content)
    with pytest.raises(ValueError, match=r"a.parquet is not a readable Parquet file \(.*checksum"):
        evaluate_shards(find_shards(tmp_path))


def test_nothing_but_bad_shards(tmp_path: Path) -> None:
    (tmp_path / "a.npz").write_bytes(b"")
    with pytest.raises(ValueError, match=r"none of the 1 shards could be read; the first: \S+a.npz is not a readable"):
        evaluate_shards(find_shards(tmp_path), skip_bad=True)


def test_a_metric_that_cannot_be_had_is_refused_before_reading(log: Path) -> None:
    read: list[str] = []
    metrics = {"lowest": Metric(function=lambda y_true, y_pred, score: float(score.min()))}
    with pytest.raises(ValueError, match=r"lowest.*exact=True"):
        evaluate_shards(find_shards(log), Plan(exact=False), metrics=metrics, execute=counted(read))
    assert read == []


def test_nothing_but_empty_shards(tmp_path: Path) -> None:
    samples(0).save(tmp_path / "a.parquet")
    with pytest.raises(ValueError, match="there is no known sample, nor any other"):
        evaluate_shards(find_shards(tmp_path))


def test_empty_shards_need_the_right_columns_too(tmp_path: Path) -> None:
    parquet.write_table(pyarrow.table({"label": pyarrow.array([], "int64")}), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=r"a.parquet has no columns 'y_true'"):
        evaluate_shards(find_shards(tmp_path))


def test_a_shard_that_changes_is_noticed(log: Path) -> None:
    shards = find_shards(log)
    os.utime(log / "part-0.parquet", ns=(0, 0))
    with pytest.raises(ValueError, match=r"part-0.parquet changed while it was read"):
        evaluate_shards(shards)


# Deliveries and resuming


def test_order_and_repetition_of_deliveries_do_not_matter(log: Path) -> None:
    def backwards(work: Work, shards: Iterable[Shard]) -> Iterator[Outcome]:
        outcomes = list(in_process(work, shards))[::-1]
        return iter([*outcomes, outcomes[0]])

    found = evaluate_shards(find_shards(log), execute=backwards, **QUICK)
    assert found.evaluation == evaluate(*all_of(log), **QUICK)


def counted(paths: list[str]) -> Callable[[Work, Iterable[Shard]], Iterator[Outcome]]:
    """An executor that takes note of what it did."""

    def execute(work: Work, shards: Iterable[Shard]) -> Iterator[Outcome]:
        for outcome in in_process(work, shards):
            paths.append(Path(outcome.shard.path).name)
            yield outcome

    return execute


def test_a_work_folder_is_kept_and_only_new_shards_are_read(log: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    evaluate_shards(find_shards(log), work=work, level=None)
    assert len(list(work.iterdir())) == 5
    again: list[str] = []
    samples(77, 9).save(log / "part-9.parquet")
    os.utime(log / "part-4.npz", ns=(0, 0))
    found = evaluate_shards(find_shards(log), work=work, execute=counted(again), level=None)
    assert again == ["part-4.npz", "part-9.parquet"]
    assert found.evaluation == evaluate(*all_of(log), level=None)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_probabilities_by_class(tmp_path: Path, suffix: str) -> None:
    rng = np.random.default_rng(0)
    probabilities = rng.dirichlet(np.ones(3), 60).round(6)
    y_true = rng.integers(-1, 3, 60)
    for shard in range(3):
        rows = slice(20 * shard, 20 * shard + 20)
        columns = {"y_true": y_true[rows], **{f"p_{c}": probabilities[rows, c] for c in range(3)}}
        write_columns(tmp_path / f"{shard}.{suffix}", {"note": ["x"] * 20, **columns})
    found = evaluate_shards(find_shards(tmp_path), Plan(names=ColumnNames(probability_columns="p_*")), level=None)
    assert found.evaluation == evaluate(*Predictions.from_probabilities(y_true, probabilities), level=None)


def test_other_plans_have_other_counts(log: Path, tmp_path: Path) -> None:
    for plan in (Plan(), Plan(names=ColumnNames(lower_is_unknown=True)), Plan(by=("day",))):
        paths: list[str] = []
        evaluate_shards(find_shards(log), plan, work=tmp_path / "work", execute=counted(paths), level=None)
        assert len(paths) == 5


def test_damaged_and_lost_counts_are_made_again(log: Path, tmp_path: Path) -> None:
    shards, plan, work = find_shards(log), Plan(exact=True), tmp_path / "work"
    whole = evaluate_shards(shards, work=work, level=None)
    folder = WorkFolder(work, plan, shards)
    for i, content in enumerate([b"", b"PK\3\4 not an archive", folder.file(shards[2]).read_bytes()[:-30]]):
        folder.file(shards[i]).write_bytes(content)
    assert evaluate_shards(shards, work=work, level=None) == whole
    folder.file(shards[0]).write_bytes(b"")
    damaged(log / "part-0.parquet", "truncated")
    os.utime(log / "part-0.parquet", ns=(0, int(shards[0].version)))
    with pytest.raises(ValueError, match="not a readable Parquet file"):
        evaluate_shards(shards, work=work, level=None)


def test_counts_survive_their_file(tmp_path: Path) -> None:
    one = Accumulator()
    one.update(*samples(10))
    (tmp_path / "a.npz").write_bytes(save_all({("a", None): one, ("c", "d"): Accumulator()}))
    (name, same), (other, empty) = load_all(tmp_path / "a.npz")
    assert (name, other, empty.n_known) == (["a", None], ["c", "d"], 0)
    assert same.compute(level=None) == one.compute(level=None)


def test_a_full_disk_leaves_nothing_half_written(log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work, written = tmp_path / "work", []

    def full(descriptor: int) -> None:
        if str(work) in os.readlink(f"/proc/self/fd/{descriptor}"):
            written.append(descriptor)
        if len(written) == 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("openauc._files.os.fsync", full)
        with pytest.raises(OSError, match="No space left on device"):
            evaluate_shards(find_shards(log), work=work, level=None)
    assert len(list(work.iterdir())) == 2
    again: list[str] = []
    found = evaluate_shards(find_shards(log), work=work, execute=counted(again), level=None)
    assert again == ["part-2.parquet", "part-3.csv", "part-4.npz"]
    assert found.evaluation == evaluate(*all_of(log), level=None)


DRIVER = """
import sys, time
from openauc.executors import in_process, process_pool
from openauc.shards import evaluate_shards, find_shards

def slowly(work, shards):
    for number, outcome in enumerate(execute(work, shards)):
        yield outcome
        if number == 1:
            print("two are done", flush=True)
            time.sleep(600)

if __name__ == "__main__":
    execute = process_pool(2) if sys.argv[2] == "processes" else in_process
    evaluate_shards(find_shards(sys.argv[1]), execute=slowly)
"""


@pytest.mark.parametrize("execute", ["in_process", pytest.param("processes", marks=pytest.mark.slow)])
def test_a_killed_driver_resumes_from_the_finished_shards(log: Path, tmp_path: Path, cache: Path, execute: str) -> None:
    (tmp_path / "driver.py").write_text(DRIVER)
    command = [sys.executable, str(tmp_path / "driver.py"), str(log), execute]
    temporary = tmp_path / ("long" * 20)  # a socket in it would have too long a name
    temporary.mkdir()
    environment = {**os.environ, "TMPDIR": str(temporary)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as driver:
        assert driver.stdout.readline() == "two are done\n"
        children = Path(f"/proc/{driver.pid}/task/{driver.pid}/children").read_text().split()
        os.kill(driver.pid, signal.SIGKILL)
    assert execute == "in_process" or children
    (left,) = (cache / "shards").iterdir()
    assert 1 <= len(list(left.iterdir())) <= 2
    again: list[str] = []
    found = evaluate_shards(find_shards(log), execute=counted(again), **QUICK)
    assert 3 <= len(again) <= 4
    assert found.evaluation == evaluate(*all_of(log), **QUICK)
    assert not left.exists()
    deadline = time.monotonic() + 20
    while any(Path(f"/proc/{child}").exists() for child in children) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(Path(f"/proc/{child}").exists() for child in children)
    assert {file.name[:5] for file in temporary.iterdir()} <= {"pymp-"}  # the socket of multiprocessing


@pytest.mark.slow
def test_processes_give_the_same(log: Path) -> None:
    found = evaluate_shards(find_shards(log), execute=process_pool(2, threads=1), **QUICK)
    assert found.evaluation == evaluate(*all_of(log), **QUICK)


class KillsItsProcess:
    """Work that one shard ends."""

    def __init__(self, work: Work) -> None:
        self.work = work

    def __call__(self, shard: Shard) -> Outcome:
        if shard.path.endswith("part-1.parquet"):
            os.kill(os.getpid(), signal.SIGKILL)
        outcome: Outcome = self.work(shard)
        return outcome


@pytest.mark.slow
def test_a_process_that_dies_costs_only_its_shard(log: Path) -> None:
    def execute(work: Work, shards: Iterable[Shard]) -> Iterator[Outcome]:
        return process_pool(2)(KillsItsProcess(work), shards)

    with pytest.raises(ValueError, match=r"part-1.parquet: the worker process died .*SIGKILL.*use fewer jobs"):
        evaluate_shards(find_shards(log), execute=execute)
    found = evaluate_shards(find_shards(log), execute=execute, skip_bad=True, level=None)
    assert [Path(path).name for path in found.skipped] == ["part-1.parquet"]


def test_work_is_the_same_wherever_and_however_often(log: Path) -> None:
    (shard,) = find_shards(log / "part-0.parquet")
    work = Counting(replace(Plan(), exact=False))
    first, second = work(shard), work(shard)
    assert first.error == second.error == ""
    assert len(first.result) > 100
