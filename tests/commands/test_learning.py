"""The commands train, predict and list, as typed."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
import typer
from PIL import Image
from safetensors.torch import load_file
from typer.testing import CliRunner

from openauc import Evaluation, Predictions, evaluate
from openauc.commands.learning import assignments, list_, predict, train
from openauc.methods import method_names
from openauc.methods.scores import SCORES
from openauc.predictions import read_columns
from openauc.protocols import PROTOCOLS, Protocol, Split
from openauc.training.recipe import RECIPES

FILES = {"model.safetensors", "log.jsonl", "predictions.parquet", "evaluation.json", "config.json"}
SMALL = ("--recipe", "plain", "--epochs", "2", "--width", "4", "--max-train-images", "200")


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def application():
    app = typer.Typer()
    for name, command in (("train", train), ("predict", predict), ("list", list_)):
        app.command(name)(command)
    return app


def run(*words, code=0):
    result = CliRunner().invoke(application(), [str(word) for word in words])
    assert result.exit_code == code, result.output + repr(result.exception)
    return result.output


def refused(*words, match):
    result = CliRunner().invoke(application(), [str(word) for word in words])
    with pytest.raises((ValueError, FileNotFoundError, ImportError), match=match):
        raise result.exception


@pytest.fixture
def own_protocol(tmp_path):
    """Folders of digits and the file that makes a protocol of them."""
    digits = PROTOCOLS["digits"].load(0)
    for label, name in enumerate(digits.class_names):
        folder = tmp_path / "images" / name
        folder.mkdir(parents=True)
        for number, pixels in enumerate(digits.train_images[digits.train_labels == label][:20]):
            Image.fromarray(pixels).save(folder / f"{number}.png")
    known, unknown = digits.class_names[:3], digits.class_names[3:]
    split = {"known": known, "unknown": {"near": unknown[:1], "far": unknown[1:]}}
    file = tmp_path / "mine.json"
    file.write_text(json.dumps({"folder": "images", "image_size": 8, "splits": [split]}))
    return file


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "digits"
    words = ("train", "digits", "--method", "openauc", "--method-arg", "lam=0.2", *SMALL, "-o", out)
    return out, words, run(*words)


def test_images_of_ones_own(own_protocol, tmp_path):
    out, again = tmp_path / "run", tmp_path / "again.parquet"
    words = ("--recipe", "plain", "--epochs", "2", "--width", "4", "--set", "augmentation=none")
    run("train", own_protocol, *words, "-o", out)
    config = json.loads((out / "config.json").read_text())["spec"]
    assert config["known_classes"] == json.loads(own_protocol.read_text())["splits"][0]["known"]
    # The numbers are CIFAR10's, the image size is the file's.
    changed = {"epochs": 2, "image_size": 8, "augmentation": "none"}
    assert config["recipe"] == {**RECIPES["plain"]["cifar10"].to_dict(), **changed}
    (tmp_path / "images" / "0 a class more").mkdir()  # moves the ids of all others
    run("predict", own_protocol, "--weights", out / "model.safetensors", "-o", again)
    assert read_columns(again).keys() >= {"group"}
    for ours, first in zip(Predictions.load(again), Predictions.load(out / "predictions.parquet"), strict=True):
        np.testing.assert_array_equal(ours, first)
    refused("predict", "digits", "--weights", out / "model.safetensors", "-o", again, match="their known source differ")


def test_a_run_leaves_its_files(finished):
    out, _, said = finished
    assert {file.name for file in out.iterdir()} == FILES
    predictions = Predictions.load(out / "predictions.parquet")
    written = json.loads((out / "evaluation.json").read_text())
    assert Evaluation.from_dict(written).openauc == evaluate(*predictions, level=None).openauc
    assert f"OpenAUC {written['values']['openauc']:.4f}" in said
    assert len((out / "log.jsonl").read_text().splitlines()) == 2


def test_the_configuration_says_what_was_run_and_where(finished):
    config = json.loads((finished[0] / "config.json").read_text())
    assert config["spec"]["method_args"] == {"lam": 0.2}
    assert config["spec"]["recipe"]["epochs"] == 2
    assert config["spec"]["width"] == 4
    assert {"openauc", "torch", "processor"} <= set(config["environment"])


def test_the_same_command_finds_the_run_complete(finished):
    out, words, _ = finished
    before = (out / "model.safetensors").stat().st_mtime_ns
    assert "is complete" in run(*words)
    assert (out / "model.safetensors").stat().st_mtime_ns == before


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (("--seed", "1"), "seed was 0, now 1"),
        (("--learning-rate", "0.01"), "recipe.learning_rate was 0.1, now 0.01"),
        (("--batch-size", "32"), "recipe.batch_size was 64, now 32"),
        (("--set", "momentum=0.5"), "recipe.momentum was 0.9, now 0.5"),
        (("--balanced",), "balanced was False, now True"),
    ],
)
def test_a_different_command_on_the_same_folder_is_refused(finished, changes, said):
    refused(*finished[1], *changes, match=f"holds another run: {said}")


def test_a_run_that_never_got_anywhere_leaves_the_folder_free(tmp_path):
    words = ("train", "digits", "-m", "gcpl", *SMALL, "-o", tmp_path / "run")
    run(*words, "--learning-rate", "1e30", code=1)
    assert (tmp_path / "run/config.json").is_file()
    run(*words)
    config = json.loads((tmp_path / "run/config.json").read_text())
    assert config["spec"]["recipe"]["learning_rate"] == 0.1


def test_weights_know_how_to_be_predicted_with(finished, tmp_path):
    out = finished[0]
    said = run("predict", "digits", "--weights", out / "model.safetensors", "-o", tmp_path / "p.parquet")
    assert "596 predictions" in said
    again, first = (Predictions.load(file) for file in (tmp_path / "p.parquet", out / "predictions.parquet"))
    for one, other in zip(again, first, strict=True):
        np.testing.assert_array_equal(one, other)


def test_any_score_by_name(finished, tmp_path):
    weights = finished[0] / "model.safetensors"
    found = {}
    for score in SCORES:
        run("predict", "digits", "--weights", weights, "--score", score, "-o", tmp_path / f"{score}.csv")
        found[score] = Predictions.load(tmp_path / f"{score}.csv").open_score
    assert found["max_probability"].max() < 0
    assert len({tuple(scores) for scores in found.values()}) == len(SCORES)


def test_weights_of_another_task_are_refused(finished, tmp_path):
    words = ("predict", "digits", "--weights", finished[0] / "model.safetensors", "-o", tmp_path / "p.csv")
    refused(*words, "--split", 1, match="known classes differ")
    refused(*words, "--method", "softmax", match="with openauc, but the command says .* with softmax")


def test_published_style_weights_need_the_recipe_from_the_command(finished, tmp_path):
    from openauc.models import make_backbone
    from openauc.training.checkpoint import save_weights

    backbone = make_backbone("vgg32", width=4)
    backbone.fc = backbone.make_head(6)
    save_weights(backbone, tmp_path / "published.safetensors")
    words = ("predict", "digits", "-m", "ce_plus", "--weights", tmp_path / "published.safetensors")
    for number, changes in enumerate(((), ("--set", "normalize=false"))):
        run(*words, "--width", 4, *changes, "-o", tmp_path / f"{number}.npz")
    scores = [Predictions.load(tmp_path / f"{number}.npz").open_score for number in range(2)]
    assert not np.array_equal(*scores)  # the plus recipe normalises
    refused(*words, "-o", tmp_path / "p.npz", match="does not fit CEPlus")


def test_balanced_predictions(finished, tmp_path):
    words = ("predict", "digits", "--weights", finished[0] / "model.safetensors", "--balanced")
    run(*words, "-o", tmp_path / "p.npz")
    labels = Predictions.load(tmp_path / "p.npz").y_true
    assert np.count_nonzero(labels >= 0) == np.count_nonzero(labels < 0)


def test_training_can_start_from_weights(finished, tmp_path):
    weights = finished[0] / "model.safetensors"
    run("train", "digits", "-m", "softmax", "--split", 1, *SMALL, "--weights", weights, "-o", tmp_path / "a")
    run("train", "digits", "-m", "softmax", "--split", 1, *SMALL, "-o", tmp_path / "b")
    first = [json.loads((tmp_path / name / "log.jsonl").read_text().splitlines()[0]) for name in "ab"]
    assert first[0]["loss"] != first[1]["loss"]


@pytest.mark.filterwarnings("ignore:AUROC is")  # after two epochs
def test_groups_of_unknowns_are_evaluated_each(monkeypatch, tmp_path):
    groups = {"easy": (1, 3), "medium": (5,), "hard": (7, 9)}
    split = Split(known=(0, 2, 4), unknown=(1, 3, 5, 7, 9), groups=groups)
    grouped = Protocol(known_source="digits", unknown_source="digits", splits=(split,), image_size=8, reference="test")
    monkeypatch.setitem(PROTOCOLS, "grouped", grouped)
    monkeypatch.setitem(RECIPES["plain"], "grouped", RECIPES["plain"]["digits"])
    run("train", "grouped", "-m", "gcpl", *SMALL, "-o", tmp_path / "run")
    columns = read_columns(tmp_path / "run/predictions.parquet")
    assert set(columns["group"]) == {"known", *groups}
    written = json.loads((tmp_path / "run/evaluation.json").read_text())
    total = written["n_unknown"]
    assert sum(part["n_unknown"] for part in written["groups"].values()) == total
    rows = (columns["y_true"] >= 0) | (columns["group"] == "hard")
    triple = [columns[name][rows] for name in ("y_true", "y_pred", "open_score")]
    assert Evaluation.from_dict(written["groups"]["hard"]).openauc == evaluate(*triple, level=None).openauc


def test_a_diverging_run_ends_with_one_sentence(tmp_path):
    words = ("train", "digits", "-m", "gcpl", *SMALL, "--learning-rate", "1e30", "-o", tmp_path / "run")
    said = run(*words, code=1)
    assert "the loss is" in said
    assert "lower the rate" in said


MAIN = "import torch; torch.set_num_threads(1); import test_learning; test_learning.application()()"


@pytest.mark.slow
def test_sigterm_stops_cleanly_and_the_same_command_resumes(tmp_path):
    out = tmp_path / "run"
    words = ["train", "digits", "-m", "openauc", "--recipe", "plus", "--epochs", "12", "--width", "4", "-o"]
    environment = {**os.environ, "PYTHONPATH": os.path.dirname(__file__), "OMP_NUM_THREADS": "1"}

    def start(folder):
        return subprocess.Popen([sys.executable, "-c", MAIN, *words, str(folder)], env=environment)

    process = start(out)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (out / "log.jsonl").exists():
        time.sleep(0.02)
    time.sleep(0.3)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 128 + signal.SIGTERM
    assert (out / "checkpoint.safetensors").is_file()
    assert not (out / "evaluation.json").exists()
    assert start(out).wait(120) == 0
    run(*words, tmp_path / "whole")
    resumed, whole = (load_file(folder / "model.safetensors") for folder in (out, tmp_path / "whole"))
    assert all(torch.equal(value, resumed[key]) for key, value in whole.items())


def test_lists_have_a_line_for_everything():
    from openauc import METRICS
    from openauc.models import BACKBONES

    everything = run("list")
    for what, names in {
        "methods": method_names(),
        "protocols": PROTOCOLS,
        "recipes": RECIPES,
        "backbones": BACKBONES,
        "metrics": METRICS,
    }.items():
        said = run("list", what)
        first_words = [line.split()[0] for line in said.splitlines()]
        assert set(names) <= set(first_words)
        assert said in everything
    assert len(run("list", "methods").splitlines()) == len(method_names()) + 2
    refused("list", "method", match="Did you mean 'methods'")


def test_bad_input_is_said_in_one_sentence(tmp_path):
    out = ("-o", tmp_path / "run")
    refused("train", "digit", *out, match="digits")
    refused("train", "digits", "-m", "opnauc", *out, match="openauc")
    refused("train", "digits", "--recipe", "pluss", *out, match="Did you mean 'plus'")
    refused("train", "digits", "--split", 7, *out, match="there is no split 7")
    refused("train", "digits", "--epochs", 0, *out, match="epochs is 0")
    refused("train", "digits", "--set", "momentum", *out, match="expected key=value")
    refused("train", "digits", "--set", "momentum=much", *out, match="momentum is 'much'")
    refused("train", "digits", "--set", "momentun=0.5", *out, match="a recipe has no field 'momentun'")
    refused("train", "digits", "--method-arg", "lam=much", *out, match="lam is 'much'; expected a value like")
    refused("train", "digits", "--method-arg", "lamda=1", *out, match="expected one of")
    assert not list(tmp_path.glob("run/*.safetensors"))
    (tmp_path / "file").touch()
    refused("train", "digits", "-o", tmp_path / "file", match="is a file")
    (tmp_path / "other").mkdir()
    (tmp_path / "other/config.json").write_text("[]")
    refused("train", "digits", "-o", tmp_path / "other", match="not the configuration of a run")
    words = ("predict", "digits", "-o", tmp_path / "p.csv")
    refused(*words, "--weights", tmp_path / "absent.safetensors", match="there is no weights file")


def test_without_torch_the_extra_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr("openauc.commands.learning.find_spec", lambda name: None)
    refused("train", "digits", "-o", tmp_path / "run", match=r"pip install 'openauc\[train\]'")
    refused("list", "backbones", match="listing backbones needs torch")


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
    code = "import sys, openauc.commands.learning; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
