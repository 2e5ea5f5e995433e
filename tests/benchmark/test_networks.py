"""The study of rules on networks: what it compares, and how it counts."""

from dataclasses import replace
from pathlib import Path

import networks
import numpy as np
import pytest

from openauc import Predictions, openauc_score
from openauc._trial_files import PREDICTIONS
from openauc.bench.benchmarks import load_benchmark
from openauc.bench.runner import run
from openauc.bench.store import Store
from openauc.bench.trial import TrialSpec
from openauc.features.classifier.rejector import Average
from openauc.features.scores.base import REJECTORS
from openauc.predictions import read_columns

FOLDER = Path(__file__).resolve().parents[2] / "benchmark"


@pytest.mark.parametrize(("protocol", "methods", "splits"), [("digits", 9, 5), ("cifar10", 1, 4)])
def test_every_method_and_rival_is_there(protocol, methods, splits):
    specs = load_benchmark(FOLDER / "networks.py").trials(protocol=protocol)
    first = [spec for spec in specs if spec.seed == 0]
    epochs = min(spec.recipe.epochs for spec in specs)
    equal = [spec for spec in first if spec.recipe.epochs == epochs]
    assert len({spec.method for spec in equal}) == methods
    assert len(equal) == methods * splits
    assert len([spec for spec in first if spec.recipe.epochs > epochs]) == splits
    assert {spec.seed for spec in specs} == set(range(networks.NETWORKS))
    with pytest.raises(ValueError, match="protocol is 'mnist'"):
        networks.trials(protocol="mnist")


def test_a_longer_training_costs_as_much_as_a_rule():
    specs = [spec for spec in networks.trials() if (spec.method, spec.split, spec.seed) == ("ce_plus", 0, 0)]
    own, longer = (next(spec for spec in specs if spec.recipe.epochs == wanted) for wanted in (12, 30))
    learned = replace(own, score="learned")
    assert [networks.cost(spec, 12) for spec in (own, learned, longer)] == [1.0, 2.5, 2.5]
    assert networks.cost(replace(own, method_args={"networks": 3}), 12) == 3.0


def test_an_ensemble_averages_logits_and_the_ceiling_sees_unknown_samples(tmp_path):
    budget = {"recipe": "plain", "epochs": 2, "width": 2, "train_images": 100}
    specs = [TrialSpec.of("digits", 0, "ce_plus", seed=seed, **budget) for seed in (0, 1)]
    rules = [replace(specs[0], score=rule) for rule in REJECTORS]
    run(specs[:1], out=tmp_path, keep_features=True)
    store = Store(tmp_path)
    networks.add_rules(store)
    run(specs, out=tmp_path, keep_features=True)
    results = [store.result(spec) for spec in [*specs, *rules]]
    assert [result.error for result in results] == [None] * 5
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


def look_at(rng, telling, held):
    """A fold network one of whose scores tells held-out classes from others."""
    label = np.repeat(np.arange(6), 30)
    known = ~np.isin(label, list(held))
    raw = rng.normal(size=(len(label), len(networks.COMPARED)))
    raw[~known, networks.COMPARED.index(telling)] += 4.0
    return networks.Look(raw, label, np.where(known, label, (label + 1) % 6), known)


def test_each_class_is_held_out_once():
    y, held = np.repeat(np.arange(6), 20), []
    for train, look in networks.plans(y, seed=3):
        assert sorted([*train, *look]) == list(range(len(y)))
        rest = np.bincount(y[train], minlength=6)
        held += np.flatnonzero(rest == 0).tolist()
        assert set(rest[rest > 0]) == {15}
    assert sorted(held) == list(range(6))


def test_the_score_that_tells_held_out_classes_is_selected(tmp_path):
    rng = np.random.default_rng(0)
    looks = [look_at(rng, "knn", held) for held in ({0, 1}, {2, 3}, {4, 5})]
    networks.save_looks(tmp_path / "folds.parquet", looks)
    read = networks.read_looks(tmp_path / "folds.parquet")
    assert networks.choose("selected", read, 6).names == ("knn",)
    # An equal weight on three scores, of which one or none tells anything, is worse than what was learned.
    assert isinstance(networks.choose("learned", read, 6), networks.Learned)


def test_evidence_of_the_final_network_is_on_the_scale_of_the_folds():
    """By hand: one score, whose mean and deviation on correct samples are averaged over the folds."""
    rng = np.random.default_rng(1)
    looks = [look_at(rng, "knn", held) for held in ({0, 1}, {2, 3}, {4, 5})]
    logits = rng.normal(size=(20, 6)).astype(np.float32)
    embedded = networks.Embedded(rng.normal(size=(20, 4)).astype(np.float32), logits, np.arange(20) % 6)
    found = networks.reject(Average(("max_logit",)), looks, embedded, embedded)
    usual = [look.raw[look.known, networks.COMPARED.index("max_logit")] for look in looks]
    mean, deviation = np.mean([part.mean() for part in usual]), np.mean([part.std() for part in usual])
    np.testing.assert_allclose(found, (-logits.max(1).astype(np.float64) - mean) / deviation)
