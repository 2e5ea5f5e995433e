"""The programs of the evidence on embeddings, on problems small enough for a test."""

import json
import sys

import contenders
import decisions
import few
import numpy as np
import pytest
import writing

from openauc.bench.runner import run
from openauc.bench.trial import TrialSpec
from openauc.protocols import PROTOCOLS


@pytest.fixture
def results(tmp_path, monkeypatch):
    """Where the programs write in this test."""
    monkeypatch.setattr(writing, "RESULTS", tmp_path / "results")
    return tmp_path / "results"


def written(folder, name):
    (file,) = folder.glob(f"{name}_*.json")
    return json.loads(file.read_text()), file.with_suffix(".md").read_text()


@pytest.mark.slow
def test_the_table_comes_from_a_store(tmp_path, results, monkeypatch):
    scores = ("learned", "average", "selected", "max_logit", "knn")
    specs = [TrialSpec.of("digits_pixels", split, "logistic", score=score) for split in (0, 1) for score in scores]
    made = {(r.spec.split, r.spec.score): r for r in run(specs, out=tmp_path / "store")}
    monkeypatch.setattr(sys, "argv", ["contenders.py", str(tmp_path / "store")])
    contenders.main()
    content, page = written(results, "features")
    means = content["means_and_intervals"]["openauc"]["logistic (score knn)"]["digits, pixels"]
    assert means[0] == pytest.approx(np.mean([made[split, "knn"].metrics["openauc"] for split in (0, 1)]))
    gain = content["gains_over_max_logit"]["digits, pixels"]["logistic (score learned)"]["value"]
    pairs = [made[s, "learned"].metrics["openauc"] - made[s, "max_logit"].metrics["openauc"] for s in (0, 1)]
    assert gain == pytest.approx(np.mean(pairs))
    partial = content["means_and_intervals"]["partial"]["logistic (score knn)"]["digits, pixels"][0]
    assert partial < means[0]
    assert len(content["trials"]["rows"]) == len(specs)
    assert "| digits, pixels | 6 |" in page


def test_open_set_accuracy_counts_unknown_as_a_class():
    y, predicted = np.array([0, 1, -1, -1]), np.array([0, 0, 1, 1])
    accuracy, f_score = decisions.open_set(y, predicted, np.array([False, False, True, False]))
    assert accuracy == 0.5
    # Class 0: precision 1/2, recall 1; class 1: none right; unknown: precision 1, recall 1/2.
    assert f_score == pytest.approx((2 / 3 + 0 + 2 / 3) / 3)


def test_acceptance_is_of_known_samples_and_by_class():
    y, predicted = np.array([0, 0, 1, -1]), np.array([0, 1, 1, 1])
    found = decisions.acceptance(y, predicted, np.array([True, False, True, True]))
    assert found == {"marginal": pytest.approx(2 / 3), "true": [0.5, 1.0], "predicted": [1.0, 0.5], "unknown": 1.0}


@pytest.mark.slow
def test_decisions_are_made_once_for_each_split(tmp_path, results, monkeypatch, capsys):
    arguments = ["decisions.py", "--work", str(tmp_path), "--data-root", str(tmp_path), "--only", "digits_pixels"]
    monkeypatch.setattr(sys, "argv", arguments)
    monkeypatch.setattr(decisions, "SPLIT_CALIBRATED", 1)
    monkeypatch.setitem(PROTOCOLS, "digits_pixels", _two_splits(PROTOCOLS["digits_pixels"]))
    decisions.main()
    assert capsys.readouterr().out.split() == [
        "cross-digits_pixels-0",
        "cross-digits_pixels-1",
        "split-digits_pixels-0",
    ]
    decisions.main()
    assert capsys.readouterr().out == ""
    assert not results.exists()
    found = decisions.run(tmp_path, tmp_path, ["digits_pixels"])
    assert found["cross"]["digits_pixels"][0]["acceptance"]["0.95"]["marginal"] > 0.85
    named = dict.fromkeys(decisions.INTENTS, found["cross"]["digits_pixels"])
    table = "\n".join(decisions.intents_table(named))
    assert "| ADB (BERT), published | 79.3/71.6 | 79.6/81.3 | 81.4/86.1 | 88.3/78.2 | 86.5/85.2 | 87.0/88.9 |" in table
    assert "digits_pixels (2)" in "\n".join([*decisions.acceptance_table(found), *decisions.fdr_table(found["cross"])])


def _two_splits(protocol):
    from dataclasses import replace

    return replace(protocol, splits=protocol.splits[:2])


def test_few_draws_classes_and_samples(tmp_path):
    data = few.drawn(PROTOCOLS["digits_pixels"], 4, 5, 0, tmp_path)
    assert np.bincount(data.train.labels).tolist() == [5, 5, 5, 5]
    assert set(data.test.labels.tolist()) == {-1, 0, 1, 2, 3}
    again = few.drawn(PROTOCOLS["digits_pixels"], 4, 5, 0, tmp_path)
    assert (data.train.images == again.train.images).all()
    other = few.drawn(PROTOCOLS["digits_pixels"], 4, 5, 1, tmp_path)
    assert data.split.known != other.split.known


@pytest.mark.slow
def test_few_writes_its_table(tmp_path, results, monkeypatch):
    for name, value in {"SAMPLES": {"digits_pixels": (10,)}, "CLASSES": (2, 4), "DRAWS": {"digits_pixels": 2}}.items():
        monkeypatch.setattr(few, name, value)
    monkeypatch.setattr(sys, "argv", ["few.py", "--work", str(tmp_path / "work"), "--data-root", str(tmp_path)])
    few.main()
    content, page = written(results, "few")
    assert set(content["results"]) == {"digits_pixels-2-10", "digits_pixels-4-10"}
    assert "| digits | 2 | 10 |" in page
