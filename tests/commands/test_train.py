"""openauc train, as typed."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from commands.application import SMALL, refused, run
from openauc import Predictions, evaluate
from openauc._trial_files import LOG, PREDICTIONS, RESULT, SPEC, VALIDATION, WEIGHTS, features_file
from openauc.bench.runner import run as run_all
from openauc.bench.store import Claims, Store
from openauc.bench.trial import TrialSpec
from openauc.commands.train import assignments, make_spec, train
from openauc.methods import method_names
from openauc.predictions import read_columns
from openauc.protocols import PROTOCOLS, Protocol, Split

FILES = {SPEC, LOG, WEIGHTS, PREDICTIONS, VALIDATION, RESULT}


def test_a_run_leaves_the_files_of_a_trial(finished):
    out, _, said = finished
    assert {file.name for file in out.iterdir()} == FILES
    predictions = Predictions.load(out / PREDICTIONS)
    (result,) = Store(out).results()
    assert result.metrics["openauc"] == evaluate(*predictions, level=None).openauc
    assert f"OpenAUC {result.metrics['openauc']:.4f}" in said
    assert len((out / LOG).read_text().splitlines()) == 2
    assert {"openauc", "torch", "processor"} <= set(result.environment)


def test_it_is_the_trial_a_benchmark_would_run(finished, tmp_path):
    (alone,) = Store(finished[0]).results()
    (in_store,) = run_all([alone.spec], out=tmp_path)
    assert in_store == replace(alone, seconds=in_store.seconds)
    folder = Store(tmp_path).folder(alone.spec)
    assert {file.name for file in folder.iterdir()} == FILES
    for name in (SPEC, WEIGHTS, PREDICTIONS, VALIDATION):
        assert (folder / name).read_bytes() == (finished[0] / name).read_bytes()


def test_the_spec_says_what_was_run(finished):
    (spec,) = Store(finished[0]).planned()
    recipe = PROTOCOLS["digits"].recipes["plain"].scaled(2)
    args = {"method_args": {"lam": 0.2}, "width": 4, "train_images": 200, "validation": 0.2}
    assert spec == TrialSpec.of("digits", 0, "openauc", recipe=recipe, **args)


def test_tables_and_reports_read_the_folder(finished, tmp_path):
    out = finished[0]
    (result,) = Store(out).results()
    assert f"{100 * result.metrics['openauc']:.1f}" in run("table", out)
    assert "auroc" in run("table", out, "-m", "auroc", "-f", "csv")
    run("report", out, "-o", tmp_path / "page.html")
    assert "openauc" in (tmp_path / "page.html").read_text()


def test_the_same_command_finds_the_run_complete(finished):
    out, words, _ = finished
    before = (out / WEIGHTS).stat().st_mtime_ns
    assert "is complete" in run(*words)
    assert (out / WEIGHTS).stat().st_mtime_ns == before


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (("--seed", "1"), "seed .*0.*1"),
        (("--set", "learning_rate=0.01"), r"recipe\.learning_rate .*0\.1.*0\.01"),
        (("--set", "momentum=0.5"), r"recipe\.momentum .*0\.9.*0\.5"),
        (("--set", "balanced=true"), "balanced .*False.*True"),
        (("--score", "energy"), "score .*None.*'energy'"),
    ],
)
def test_a_different_command_on_the_same_folder_is_refused(finished, changes, said):
    refused(*finished[1], *changes, match=said)


def test_a_folder_is_of_one_kind(finished, tmp_path):
    (spec,) = Store(finished[0]).planned()
    with pytest.raises(ValueError, match="choose another"):
        run_all([spec], out=finished[0])
    (tmp_path / "trials").mkdir()
    refused("train", "digits", *SMALL, "-o", tmp_path, match="choose another folder")


def test_another_process_at_the_same_folder_is_told(tmp_path):
    spec = make_spec("digits", "gcpl", 0, recipe="plain", epochs=2, settings=["width=4", "train_images=200"])
    out = tmp_path / "run"
    with Claims(Store.of_trial(out, spec).root) as claims:
        assert claims.take(spec.training_id)
        refused("train", "digits", "-m", "gcpl", *SMALL, "-o", out, match="choose another folder")


def test_a_run_that_came_to_nothing_leaves_nothing(tmp_path):
    words = ("train", "digits", "-m", "gcpl", *SMALL, "-o", tmp_path / "run")
    said = run(*words, "--set", "learning_rate=1e30", code=1)
    assert "the loss is" in said
    assert "lower the rate" in said
    refused(*words, "--set", "weights=absent.pth", match=r"absent\.pth")
    assert list(tmp_path.iterdir()) == []
    run(*words)
    assert Store(tmp_path / "run").planned()[0].recipe.learning_rate == 0.1


def test_somebodys_other_files_stay(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    run("train", "digits", "-m", "gcpl", *SMALL, "--set", "learning_rate=1e30", "-o", tmp_path, code=1)
    assert [file.name for file in tmp_path.iterdir()] == ["notes.txt"]


def test_without_a_folder_it_is_below_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = run("train", "digits", "-m", "softmax", "--epochs", 1, "--set", "train_images=50")
    spec = make_spec("digits", "softmax", 0, recipe=None, epochs=1, settings=["train_images=50"])
    assert (tmp_path / "runs" / spec.id / RESULT).is_file()
    assert "recipe small because the published recipes suit neither" in said
    assert "--recipe plain is the published one" in said


def test_a_folder_may_be_called_as_its_protocol(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ("train", "digits", "-m", "gcpl", *SMALL, "-o", "digits")
    run(*words)
    run(*words, "--keep", "features")
    assert (tmp_path / "digits" / features_file("test")).is_file()


def test_features_of_every_part_can_be_kept(finished, tmp_path):
    out, words, _ = finished
    again = tmp_path / "run"
    run(*words[:-1], again)
    assert {file.name for file in again.iterdir()} == FILES
    run(*words[:-1], again, "--keep", "features")
    parts = {part: read_columns(again / features_file(part)) for part in ("train", "validation", "test")}
    kept = Predictions.load(again / features_file("test"))
    for one, other in zip(kept, Predictions.load(out / PREDICTIONS), strict=True):
        np.testing.assert_array_equal(one, other)
    assert parts["train"]["features"].shape == (200, 8)
    assert set(parts["validation"]["y_true"]) == set(range(6))
    assert "is complete" in run(*words[:-1], again, "--keep", "features")


def test_images_of_ones_own(own_protocol, tmp_path):
    out = tmp_path / "run"
    run(
        "train",
        own_protocol,
        "--recipe",
        "plain",
        "--epochs",
        2,
        "--set",
        "width=4",
        "--set",
        "augmentation=none",
        "-o",
        out,
    )
    (spec,) = Store(out).planned()
    # The numbers are those of small images, the image size is the file's.
    assert spec.recipe == PROTOCOLS["cifar10"].recipes["plain"].scaled(2).changed(image_size=8, augmentation="none")
    assert "mine" in run("table", out)
    columns = read_columns(out / PREDICTIONS)
    assert all(Path(file).is_file() for file in columns["file"])
    assert set(columns["group"]) == {"known", "near", "far"}
    described = json.loads(own_protocol.read_text())
    own_protocol.write_text(json.dumps({**described, "reference": "changed"}))
    refused("predict", out, "-o", tmp_path / "p.csv", match="mine")


def test_a_protocol_may_bring_its_recipe_and_width(own_protocol, tmp_path):
    described = json.loads(own_protocol.read_text())
    own_protocol.write_text(json.dumps({**described, "recipe": {"epochs": 2, "augmentation": "none"}, "width": 4}))
    said = run("train", own_protocol, "-m", "softmax", "-o", tmp_path / "run")
    assert "width 4, recipe own, 2 epochs" in said
    assert "recipe own because mine.json has one" in said


def test_without_unknown_classes_there_is_the_accuracy(own_protocol, tmp_path):
    described = json.loads(own_protocol.read_text())
    known = described["splits"][0]["known"]
    own_protocol.write_text(json.dumps({**described, "splits": [{"known": known}], "width": 4}))
    out = tmp_path / "run"
    words = ("--recipe", "plain", "--epochs", 2, "--set", "augmentation=none", "--validation", 0.25)
    said = run("train", own_protocol, *words, "-o", out)
    assert "closed-set accuracy" in said
    assert "0 unknown images" in said
    (result,) = Store(out).results()
    assert result.error is None
    assert set(result.metrics) == {"closed_set_accuracy"}
    run("threshold", out, "--target", "known_acceptance=0.8")
    run("report", out, "-o", tmp_path / "page.html")
    assert "closed-set accuracy" in run("table", out)


def test_training_can_start_from_weights(finished, tmp_path):
    weights = finished[0] / WEIGHTS
    words = ("train", "digits", "-m", "softmax", "--split", 1, *SMALL)
    run(*words, "--set", f"weights={weights}", "-o", tmp_path / "a")
    run(*words, "-o", tmp_path / "b")
    first = [json.loads((tmp_path / name / LOG).read_text().splitlines()[0]) for name in "ab"]
    assert first[0]["loss"] != first[1]["loss"]


def test_groups_of_unknowns_are_evaluated_each(monkeypatch, tmp_path):
    groups = {"easy": (1, 3), "medium": (5,), "hard": (7, 9)}
    split = Split(known=(0, 2, 4), unknown=(1, 3, 5, 7, 9), groups=groups)
    grouped = Protocol(known_source="digits", unknown_source="digits", splits=(split,), image_size=8, reference="test")
    monkeypatch.setitem(PROTOCOLS, "grouped", grouped)
    run("train", "grouped", "-m", "gcpl", *SMALL, "-o", tmp_path / "run")
    columns = read_columns(tmp_path / "run" / PREDICTIONS)
    assert set(columns["group"]) == {"known", *groups}
    (result,) = Store(tmp_path / "run").results()
    rows = (columns["y_true"] >= 0) | (columns["group"] == "hard")
    triple = [columns[name][rows] for name in ("y_true", "y_pred", "open_score")]
    assert result.groups["hard"]["openauc"] == evaluate(*triple, level=None).openauc


MAIN = "import torch; torch.set_num_threads(1); from openauc.cli import main; main()"


def start(*words):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, "-c", MAIN, *map(str, words)], env=environment)


@pytest.mark.slow
def test_sigterm_stops_cleanly_and_the_same_command_resumes(tmp_path):
    out = tmp_path / "run"
    words = ("train", "digits", "-m", "openauc", "--recipe", "plus", "--epochs", "12", "--set", "width=4", "-o")
    process = start(*words, out)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (out / LOG).exists():
        time.sleep(0.02)
    time.sleep(0.3)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 128 + signal.SIGTERM
    assert (out / "checkpoint.pt").is_file()
    assert not (out / RESULT).exists()
    run(*words, out)
    assert not (out / "checkpoint.pt").exists()
    run(*words, tmp_path / "whole")
    resumed, whole = (load_file(folder / WEIGHTS) for folder in (out, tmp_path / "whole"))
    assert all(torch.equal(value, resumed[key]) for key, value in whole.items())


@pytest.mark.slow
def test_two_processes_make_one_run(tmp_path):
    launch = [
        sys.executable,
        "-m",
        "accelerate.commands.launch",
        "--cpu",
        "--num_processes",
        "2",
        "--num_machines",
        "1",
    ]
    launch += ["--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "0"]
    words = ["-m", "openauc", "train", "digits", "-m", "gcpl", *SMALL, "--validation", "0.2"]
    words += ["-o", str(tmp_path / "run")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ran = subprocess.run([*launch, *words], env=environment, capture_output=True, text=True, timeout=180)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.count("OpenAUC 0.") == 1
    assert {file.name for file in (tmp_path / "run").iterdir()} == FILES
    (result,) = Store(tmp_path / "run").results()
    assert result.metrics["openauc"] == evaluate(*Predictions.load(tmp_path / "run" / PREDICTIONS), level=None).openauc


def test_bad_input_is_said_in_one_sentence(tmp_path):
    out = ("-o", tmp_path / "run")
    refused("train", "digit", *out, match="digits")
    refused("train", "digits", "-m", "opnauc", *out, match="openauc")
    refused("train", "digits", "--recipe", "pluss", *out, match="Did you mean 'plus'")
    refused("train", "digits", "--split", 7, *out, match=r"split 7; .*0 to 4")
    refused("train", "digits", "--seed", -1, *out, match="seed is -1")
    refused("train", "digits", "--epochs", 0, *out, match="epochs is 0")
    refused("train", "digits", "--validation", 10, *out, match=r"validation is 10\.0")
    refused("train", "digits", "--score", "energie", *out, match="Did you mean 'energy'")
    refused("train", "digits", "--set", "momentum", *out, match=r"'momentum'.*key=value")
    refused("train", "digits", "--set", "momentum=much", *out, match="momentum is 'much'")
    refused("train", "digits", "--set", "momentun=0.5", *out, match="Did you mean 'momentum'")
    refused("train", "digits", "--set", "lam=much", *out, match="lam=much")
    refused("train", "digits", "--set", "lamb=1", *out, match="Did you mean 'lam'")
    refused("train", "digits", "--set", "width=1000000", *out, match="width is 1000000")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    refused("train", "digits", "-o", tmp_path / "file", match="file")


def test_an_option_of_the_method_may_be_named_in_full():
    spec = make_spec(
        "digits", "ce_plus", 0, recipe=None, settings=["method.label_smoothing=0.1", "label_smoothing=0.2"]
    )
    assert spec.method_args == {"label_smoothing": 0.1}
    assert spec.recipe.label_smoothing == 0.2


def test_there_are_at_most_a_dozen_options():
    import inspect

    assert len(inspect.signature(train).parameters) <= 1 + 12


@pytest.mark.parametrize("method", method_names())
def test_every_method_takes_the_protocols_recipe_on_digits(method):
    spec = make_spec("digits", method, 0, recipe=None, settings=None)
    assert spec.recipe == PROTOCOLS["digits"].recipes["small"]
    assert spec.width == PROTOCOLS["digits"].width


@pytest.mark.slow
def test_the_defaults_work_for_a_newcomer(tmp_path):
    run("train", "digits", "--split", 1, "-o", tmp_path)
    (result,) = Store(tmp_path).results()
    assert result.metrics["openauc"] >= 0.9


def test_without_torch_the_extra_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr("openauc.commands.train.find_spec", lambda name: None)
    refused("train", "digits", "-o", tmp_path / "run", match=r"pip install 'openauc\[train\]'")
    refused("list", "backbones", match=r"backbones .*torch")


def test_values_become_what_they_mean():
    texts = ["a=1", "b=0.5", "c=TRUE", "d=none", "e=(0.3, 0.6)", "f=adam", "g=x=y"]
    assert assignments("--set", texts) == {
        "a": 1,
        "b": 0.5,
        "c": True,
        "d": None,
        "e": (0.3, 0.6),
        "f": "adam",
        "g": "x=y",
    }


def test_importing_the_commands_imports_no_torch():
    code = "import sys, openauc.cli; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    "error", [ModuleNotFoundError("No module named 'timm'"), PermissionError(13, "denied", "x.npz")]
)
def test_a_missing_package_and_a_closed_file_are_sentences(tmp_path, monkeypatch, error):
    def failing(*_, **__):
        raise error

    monkeypatch.setattr("openauc.bench.runner.load_data", failing)
    refused("train", "digits", "-m", "gcpl", *SMALL, "-o", tmp_path / "run", match="timm|denied")
