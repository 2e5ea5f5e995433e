"""The study of rules on networks: what it compares, and how it counts."""

from dataclasses import replace
from pathlib import Path

import networks
import numpy as np
import pytest

from openauc import Predictions, openauc_score
from openauc._trial_files import PREDICTIONS
from openauc.bench.cost import training_flops
from openauc.bench.runner import run
from openauc.bench.store import Store
from openauc.bench.suites import load_suite
from openauc.bench.trial import TrialSpec
from openauc.features.scores.base import REJECTORS
from openauc.predictions import read_columns

FOLDER = Path(__file__).resolve().parents[2] / "benchmark"


@pytest.mark.parametrize(("protocol", "methods", "splits"), [("digits", 9, 5), ("cifar10", 1, 4)])
def test_every_rule_and_rival_is_there(protocol, methods, splits):
    specs = load_suite(FOLDER / "networks.py").trials(protocol=protocol)
    first = [spec for spec in specs if spec.seed == 0]
    epochs = min(spec.recipe.epochs for spec in specs)
    equal = [spec for spec in first if spec.recipe.epochs == epochs]
    assert {(spec.method, spec.score) for spec in equal} == {
        (method, score) for method in {s.method for s in specs} for score in (None, *REJECTORS)
    }
    assert len(equal) == methods * splits * (1 + len(REJECTORS))
    assert len([spec for spec in first if spec.recipe.epochs > epochs]) == splits
    assert {spec.seed for spec in specs} == set(range(networks.NETWORKS))
    with pytest.raises(ValueError, match="protocol is 'mnist'"):
        networks.trials(protocol="mnist")


def test_a_longer_training_costs_as_much_as_a_rule():
    specs = [spec for spec in networks.trials() if (spec.method, spec.split, spec.seed) == ("ce_plus", 0, 0)]
    own, learned, longer = (
        next(spec for spec in specs if (spec.score, spec.recipe.epochs) == wanted)
        for wanted in ((None, 12), ("learned", 12), (None, 30))
    )
    assert [networks.cost(spec, 12) for spec in (own, learned, longer)] == [1.0, 2.5, 2.5]
    assert training_flops(learned) == training_flops(longer) == 2.5 * training_flops(own)
    assert networks.cost(replace(own, method_args={"networks": 3}), 12) == 3.0


def test_an_ensemble_averages_logits_and_the_ceiling_sees_unknown_samples(tmp_path):
    budget = {"recipe": "plain", "epochs": 2, "width": 2, "train_images": 100}
    specs = [TrialSpec.of("digits", 0, "ce_plus", seed=seed, **budget) for seed in (0, 1)]
    rules = [replace(specs[0], score=rule) for rule in REJECTORS]
    results = run([*specs, *rules], out=tmp_path, keep_features=True)
    assert [result.error for result in results] == [None] * 5
    store = Store(tmp_path)
    found = networks.ensembles(store, results)
    assert [(one.spec.seed, one.spec.method_args) for one in found] == [(0, {"networks": 2}), (1, {"networks": 2})]
    logits = np.mean([read_columns(store.folder(s) / "features_test.parquet")["logits"] for s in specs], axis=0)
    truth = Predictions.load(store.folder(specs[0]) / PREDICTIONS).y_true
    expected = openauc_score(truth, logits.argmax(1), -logits.max(1))
    assert found[0].metrics["openauc"] == found[1].metrics["openauc"] == pytest.approx(expected)
    alone = networks.unshrunk(store, results[2])
    assert alone.metrics["openauc"] != results[2].metrics["openauc"]
    assert alone.metrics["closed_set_accuracy"] == results[2].metrics["closed_set_accuracy"]
    assert networks.ensembles(store, results[:1]) == []
    lines = networks.cost_table([*results, *found, alone], 2)
    assert [line.split(" | ")[3] for line in lines[2:]] == ["1", "2.5", "2.5", "2.5", "2"]
    header, _, row = networks.by_method(results)
    assert header == "| method | n | own score | learned | average | selected |"
    gain = 100 * (results[2].metrics["openauc"] - results[0].metrics["openauc"])
    assert row.split(" | ")[3] == f"{100 * results[2].metrics['openauc']:.1f}, Δ {gain:+.1f}"
    told = networks.told_ceiling(store, results)
    own, learned = (100 * result.metrics["openauc"] for result in (results[0], results[2]))
    assert f": {own:.1f} / {learned:.1f} / " in told
    assert "1 networks" in told
