"""openauc predict, as typed: new images, a part of the data, published weights."""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from commands.application import SMALL, refused, run
from openauc import Predictions
from openauc._trial_files import PREDICTIONS, SPEC, THRESHOLD, VALIDATION, WEIGHTS, features_file
from openauc.models import make_backbone
from openauc.predictions import read_columns
from openauc.protocols import PROTOCOLS
from openauc.training.checkpoint import read_about, save_weights


@pytest.fixture
def copy(finished, tmp_path):
    """The training, to do things to."""
    return Path(shutil.copytree(finished[0], tmp_path / "copy"))


@pytest.fixture
def new_images(tmp_path):
    """Twelve test images, some in a folder below."""
    data = PROTOCOLS["digits"].load(0)
    folder = tmp_path / "new"
    (folder / "below").mkdir(parents=True)
    for number, pixels in enumerate(data.test.images[:: len(data.test.images) // 12][:12]):
        Image.fromarray(pixels).save(folder / ("below" if number % 2 else "") / f"{number}.PNG")
    (folder / "notes.txt").write_text("no image")
    return folder


def rows(file):
    with open(file, newline="") as lines:
        return list(csv.DictReader(lines))


def test_from_a_training_to_labels_of_new_images(copy, new_images, tmp_path):
    out = tmp_path / "labels.csv"
    said = run("predict", copy, new_images, "-o", out)
    assert "12 images" in said
    assert "0 of them unknown" in said
    assert "No threshold is chosen yet" in said
    unlabelled = rows(out)
    assert [Path(row["file"]) for row in unlabelled] == sorted(new_images.rglob("*.PNG"))
    assert {row["label"] for row in unlabelled} <= set(PROTOCOLS["digits"].load(0).class_names)

    said = run("threshold", copy, "--target", "known_acceptance=0.5")
    assert "kept in" in said
    threshold = float(json.loads((copy / THRESHOLD).read_text())["threshold"])
    held_out = Predictions.load(copy / VALIDATION)
    assert np.mean(held_out.open_score <= threshold) == pytest.approx(0.5, abs=0.1)
    said = run("predict", copy, new_images, "-o", out)
    labelled = rows(out)
    rejected = [float(row["open_score"]) > threshold for row in labelled]
    assert [row["label"] == "unknown" for row in labelled] == rejected
    assert f"{sum(rejected)} of them unknown" in said
    assert [row["label"] for row in labelled if row["label"] != "unknown"] == [
        row["label"] for row, gone in zip(unlabelled, rejected, strict=True) if not gone
    ]
    assert [row["open_score"] for row in labelled] == [row["open_score"] for row in unlabelled]


def test_new_images_need_neither_labels_nor_the_training_data(own_protocol, tmp_path):
    words = ("--recipe", "plain", "--epochs", 1, "--set", "width=4", "--set", "augmentation=none")
    run("train", own_protocol, *words, "-o", tmp_path / "run")
    one = tmp_path / "one.png"
    next((tmp_path / "images").rglob("*.png")).rename(one)
    shutil.rmtree(tmp_path / "images")
    own_protocol.unlink()
    for suffix in ("csv", "parquet", "npz"):
        run("predict", tmp_path / "run", one, "-o", tmp_path / f"labels.{suffix}")
        columns = read_columns(tmp_path / f"labels.{suffix}")
        assert list(columns) == ["file", "label", "open_score"]
        assert [Path(file) for file in columns["file"]] == [one]


def test_a_score_that_learns_sees_the_training_part(finished, new_images, tmp_path):
    words = ("train", "digits", "-m", "softmax", *SMALL, "--score", "mahalanobis", "-o", tmp_path / "run")
    run(*words)
    run("predict", tmp_path / "run", new_images, "-o", tmp_path / "labels.csv")
    run("predict", tmp_path / "run", "-o", tmp_path / "test.parquet")
    found = {Path(row["file"]).stem: float(row["open_score"]) for row in rows(tmp_path / "labels.csv")}
    scores = Predictions.load(tmp_path / "test.parquet").open_score
    step = len(scores) // 12
    for number in range(12):
        assert found[str(number)] == pytest.approx(scores[number * step], rel=1e-4)


def test_a_part_of_the_data_again(finished, tmp_path):
    out = finished[0]
    for part, file in (("test", PREDICTIONS), ("validation", VALIDATION)):
        assert "predictions in" in run("predict", out, "--part", part, "-o", tmp_path / "p.parquet")
        again, first = (Predictions.load(place) for place in (tmp_path / "p.parquet", out / file))
        for one, other in zip(again, first, strict=True):
            np.testing.assert_array_equal(one, other)


def test_any_score_by_name_and_any_batch(finished, tmp_path):
    found = {}
    for score in ("max_probability", "margin", "knn", "vim", "react"):
        run("predict", finished[0], "--score", score, "--batch-size", 50, "-o", tmp_path / f"{score}.csv")
        found[score] = Predictions.load(tmp_path / f"{score}.csv").open_score
    assert found["max_probability"].max() < 0
    assert len({tuple(scores) for scores in found.values()}) == len(found)


def test_half_precision_is_only_used_when_asked_for(finished, tmp_path):
    run("predict", finished[0], "-o", tmp_path / "full.npz")
    run("predict", finished[0], "--precision", "bf16", "-o", tmp_path / "half.npz")
    full, half = (Predictions.load(tmp_path / f"{name}.npz").open_score for name in ("full", "half"))
    assert len(np.unique(half)) < len(np.unique(full))
    np.testing.assert_allclose(half, full, rtol=0.05, atol=0.1)


def test_weights_with_a_protocol(finished, tmp_path):
    words = ("predict", "digits", "--weights", finished[0] / WEIGHTS, "-o", tmp_path / "p.parquet")
    run(*words, "--recipe", "plain", "--set", "width=4")
    again, first = (Predictions.load(place) for place in (tmp_path / "p.parquet", finished[0] / PREDICTIONS))
    np.testing.assert_array_equal(again.open_score, first.open_score)
    refused(*words, "--split", 1, match=r"known \[")
    refused(*words, "--method", "gcpl", match=r"method openauc.*gcpl")


def test_features_that_happen_to_lie_there_are_not_taken(finished, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / features_file("test")).write_bytes(b"somebody else's")
    words = ("predict", "digits", "--weights", finished[0] / WEIGHTS, "--recipe", "plain", "--set", "width=4")
    assert "596 predictions" in run(*words, "-o", tmp_path / "p.csv")


def test_published_weights_take_everything_from_the_command(tmp_path):
    backbone = make_backbone("vgg32", width=4)
    backbone.fc = backbone.make_head(6)
    save_weights(backbone, tmp_path / "published.safetensors")
    words = ("predict", "digits", "-m", "ce_plus", "--weights", tmp_path / "published.safetensors")
    for number, changes in enumerate(((), ("--recipe", "plus"))):
        run(*words, "--set", "width=4", *changes, "-o", tmp_path / f"{number}.npz")
    scores = [Predictions.load(tmp_path / f"{number}.npz").open_score for number in range(2)]
    assert not np.array_equal(*scores)  # the plus recipe normalises
    refused(*words, "-o", tmp_path / "p.npz", match="CEPlus")


def test_a_header_chooses_neither_network_nor_code(finished, tmp_path):
    from safetensors.torch import load_file

    about = {**(read_about(finished[0] / WEIGHTS) or {}), "backbone": "hf:somebody/network", "width": 64}
    network = make_backbone("vgg32", width=4)
    network.load_state_dict(load_file(finished[0] / WEIGHTS), strict=False)
    network.fc = network.make_head(6)
    save_weights(network, tmp_path / "w.safetensors", about)
    words = ("predict", "digits", "--weights", tmp_path / "w.safetensors", "--set", "width=4", "-o", tmp_path / "p.npz")
    assert "596 predictions" in run(*words)


@pytest.mark.parametrize(
    ("field", "value", "option"),
    [
        ("backbone", "hf:somebody/network", "--set backbone=hf:somebody"),
        ("method", "some.module", "--method some.module"),
    ],
)
def test_a_folder_does_not_choose_code_from_elsewhere(copy, field, value, option, tmp_path):
    spec = json.loads((copy / SPEC).read_text())
    (copy / SPEC).write_text(json.dumps({**spec, "width": None, field: value}))
    refused("predict", copy, "-o", tmp_path / "p.csv", match=option)
    named = ("--set", f"backbone={value}") if field == "backbone" else ("--method", value)
    refused("predict", copy, *named, "-o", tmp_path / "p.csv", match=r"hf:somebody|some\.module")


def test_bad_input_is_said_in_one_sentence(copy, tmp_path):
    out = ("-o", tmp_path / "p.csv")
    refused("predict", "digits", *out, match="--weights")
    refused("predict", "digits", *out, "--weights", tmp_path / "absent.safetensors", match=r"absent\.safetensors")
    refused("predict", tmp_path, *out, match=SPEC)
    refused("predict", copy, tmp_path / "nothing", *out, match="nothing")
    (tmp_path / "empty").mkdir()
    refused("predict", copy, tmp_path / "empty", *out, match="empty")
    (tmp_path / "empty/bad.png").write_text("not an image")
    refused("predict", copy, tmp_path / "empty", *out, match=r"bad\.png")
    assert "greater than or equal to 1" in run("predict", copy, "--batch-size", 0, *out, code=2)
    (copy / THRESHOLD).write_text("{}")
    refused("predict", copy, tmp_path / "empty", *out, match=f"{THRESHOLD}.*openauc threshold")
    (copy / SPEC).write_text("[]")
    refused("predict", copy, *out, match=SPEC)
    refused("predict", copy, "-o", tmp_path / "p.txt", match=r"'\.txt'.*\.parquet")  # before the work
    run("train", "digits", *SMALL, "-o", tmp_path / "plain")
    refused("threshold", tmp_path / "plain", match="--validation")
