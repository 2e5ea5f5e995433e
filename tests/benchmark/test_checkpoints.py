"""Scores of published networks, on features and logits made here."""

import argparse
import json

import checkpoints as program
import numpy as np
import pytest
import writing

from openauc import openauc_score
from openauc.features.scores.registry import SCORES
from openauc.training.predict import Embedded

CLASSES, WIDTH = 4, 8


def network(spread, seed, unknown=0, each=30):
    """Rectified features around one axis a class, unknown ones between two of them; logits are the axes."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(CLASSES), each)
    centres = np.eye(WIDTH)[labels]
    if unknown:
        pairs = rng.integers(0, CLASSES, (unknown, 2))
        centres = np.concatenate([centres, (np.eye(WIDTH)[pairs[:, 0]] + np.eye(WIDTH)[pairs[:, 1]]) / 2])
        labels = np.append(labels, np.full(unknown, -1))
    features = np.maximum(4 * centres + spread * rng.normal(size=centres.shape), 0).astype(np.float32)
    return Embedded(features, features[:, :CLASSES], labels)


@pytest.fixture(scope="module")
def training():
    return network(0.3, seed=0)


@pytest.fixture(scope="module")
def test():
    return network(0.9, seed=1, unknown=60)


def test_without_training_images_there_are_scores_that_need_none(test, training):
    assert set(program.scored(test, None)) == {name for name, kind in SCORES.items() if not kind.fits}
    found = program.scored(test, training)
    assert list(found) == list(SCORES)
    for predictions in found.values():
        assert predictions.y_true.tolist() == test.labels.tolist()
        assert predictions.y_pred.tolist() == test.logits.argmax(1).tolist()


def test_every_score_is_compared_with_the_largest_logit_on_the_same_images(test):
    found = program.scored(test, None)
    rows = program.differences(found)
    assert {row["name"] for row in rows} == found.keys() - {"max_logit"}
    assert [row["difference"] for row in rows] == sorted((row["difference"] for row in rows), reverse=True)
    for row in rows:
        assert row["openauc"] - row["difference"] == pytest.approx(openauc_score(*found["max_logit"]))
        assert row["interval"][0] <= row["difference"] <= row["interval"][1]
    known = test.labels >= 0
    assert rows[0]["accuracy"] == np.mean((test.logits.argmax(1) == test.labels)[known])
    assert len(program.differences_table(rows).splitlines()) == 2 + len(rows)


def test_means_over_splits_are_of_the_scores_that_all_splits_have():
    def row(name, openauc, difference):
        return {"name": name, "openauc": openauc, "difference": difference, "p_holm": 0.01}

    tables = [[row("a", 0.5, -0.1), row("b", 0.7, 0.1)], [row("a", 0.3, -0.3)], [row("a", 0.4, -0.2)]]
    (only,) = program.over_splits(tables)
    assert (only["name"], only["ahead"], only["n"]) == ("a", 0, 3)
    assert (only["openauc"], only["difference"]) == (pytest.approx(0.4), pytest.approx(-0.2))
    assert only["flip"] == 0.25  # all of one sign: 2 of 8 patterns
    assert only["p_holm"] == only["p"]
    told = program.over_splits_table([only], tables).splitlines()[2]
    assert told.startswith("| a | 40.0 | -20.00 [-44.84, +4.84] |")
    assert told.endswith("| 0 of 3 | -10.0* | -30.0* | -20.0* |")


def test_promises_are_told_beside_what_came_with_the_same_head(test, training):
    fitted = program.classifiers(training)
    rows = program.promises(fitted, test, training)
    assert {row["name"] for row in rows} >= {"learned", "average", "max_logit", "knn"}
    came = {row["name"]: row["came"] for row in rows}
    for name in ("learned", "average"):
        model = fitted[f"classifier, {name}"]
        assert model.report_.chosen == name
        assert came[name] == openauc_score(*model.predictions(test.features, test.labels))
    chosen = fitted["classifier, selected"]
    expected = openauc_score(*chosen.predictions(test.features, test.labels))
    assert came[chosen.report_.chosen] == expected
    assert all(0 <= row["interval"][0] <= row["promised"] <= row["interval"][1] <= 1 for row in rows)
    assert len(program.promises_table(rows).splitlines()) == 2 + len(rows)


def test_collapse_is_seen_on_training_images_only(test, training):
    figures = program.collapse(test, training)
    assert figures["accuracy, training"] == 1.0
    assert figures["accuracy, test"] > 0.8
    assert figures["spread, training"] < 0.3 * figures["spread, test"]


def test_features_that_are_there_are_not_computed_again(tmp_path, test):
    test.save(tmp_path / "test-0.parquet")
    chosen = argparse.Namespace(work=tmp_path, data_root=None, weights=None)
    assert np.array_equal(program.embedded(0, "test", chosen).features, test.features)


def test_the_first_table_has_a_row_for_each_network(test):
    rows = [program.brief(split, program.scored(test, None)["max_logit"]) for split in range(2)]
    lines = program.networks_table(rows).splitlines()
    assert len(lines) == 2 + 2 + 2
    assert lines[2].startswith("| 0 | 120 | 60 | ")
    assert f"**{100 * rows[0]['openauc']:.1f} ± 0.0**" in lines[4]


def test_the_program_writes_all_tables(tmp_path, monkeypatch):
    for split in range(program.SPLITS):
        network(0.9, seed=split, unknown=60).save(tmp_path / f"test-{split}.parquet")
    network(1.2, seed=9).save(tmp_path / "train-0.parquet")
    monkeypatch.setattr(writing, "RESULTS", tmp_path)
    monkeypatch.setattr("sys.argv", ["checkpoints.py", "--work", str(tmp_path), "--weights", "unused"])
    program.main()
    (file,) = tmp_path.glob("tinyimagenet_checkpoints_*.json")
    found = json.loads(file.read_text())
    assert [row["split"] for row in found["rows"]] == list(range(program.SPLITS))
    assert {row["name"] for row in found["splits"][0]} == (SCORES.keys() - {"max_logit"}) | program.RULES.keys()
    assert {row["name"] for row in found["over_splits"]} == {row["name"] for row in found["splits"][1]}
    assert -1 <= found["agreement"] <= 1
    page = file.with_suffix(".md").read_text()
    assert page.count("\n## ") == 3
