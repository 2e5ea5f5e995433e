"""The benchmarks that serve one published result each list what they promise."""

from pathlib import Path

import ablation
import central
import numpy as np
import pytest
import search
import tuning

from openauc.bench.benchmarks import load_benchmark, table2
from openauc.bench.trial import TrialResult
from openauc.methods import make_method
from openauc.methods.openauc import OpenAUC
from openauc.models import make_backbone

FOLDER = Path(__file__).resolve().parents[2] / "benchmark"


@pytest.mark.parametrize("name", ["ablation", "central", "search", "tuning"])
def test_the_command_reads_it_and_methods_take_its_options(name):
    benchmark = load_benchmark(FOLDER / f"{name}.py")
    assert benchmark.description.endswith(".")
    for method, method_args in {(spec.method, tuple(spec.method_args.items())) for spec in benchmark.trials()}:
        network = make_backbone("vgg32", width=4, image_size=8)
        make_method(method, network, 4, rng=np.random.default_rng(0), method_args=dict(method_args))


def test_each_arm_of_the_ablation_changes_one_thing():
    preset = {**OpenAUC.preset("paper"), "score": None}
    for arm in ablation.ARMS[1:]:
        ((option, value),) = arm.items()
        assert preset[option] != value
    assert ablation.ARMS[0] == {}
    assert len(ablation.trials()) == 5 * (len(ablation.ARMS) + 2)
    with pytest.raises(ValueError, match="protocol is 'mnist'"):
        ablation.trials(protocol="mnist")


def test_tuning_never_opens_the_test_part():
    specs = tuning.trials()
    assert all(spec.pseudo_unknown > 0 and spec.validation > 0 for spec in specs)
    assert {spec.method for spec in specs} == {"openauc", "acc_auc"}
    # Chosen values are of use only if the network they were chosen for is the one of the table.
    assert {spec.width for spec in specs} == {table2.CPU_WIDTH}


def test_the_central_claim_gets_all_images_and_thirty_epochs():
    specs = central.trials()
    assert {spec.method for spec in specs} == {"ce_plus", "acc_auc", "openauc"}
    assert {spec.split for spec in specs} == set(range(5))
    assert all(spec.train_images is None and spec.recipe.epochs >= 30 and not spec.recipe.restarts for spec in specs)
    assert len({spec.recipe for spec in specs}) == 1


def test_the_search_confirms_on_splits_that_no_choice_has_seen():
    selecting, confirming = search.trials("select"), search.trials("confirm")
    assert {s.split for s in selecting}.isdisjoint(s.split for s in confirming)
    assert all(s.pseudo_unknown and s.validation for s in selecting)  # scored on held-out classes, not on test
    assert not any(s.pseudo_unknown or s.validation for s in confirming)
    assert search.SELECTED in search.CANDIDATES
    seen = {(s.split, s.seed): 0 for s in selecting}
    for spec in selecting:
        seen[spec.split, spec.seed] += 1
    assert set(seen.values()) == {len(search.BASELINES) + len(search.CANDIDATES)}  # all candidates on equal terms
    with pytest.raises(ValueError, match="stage is 'test'"):
        search.trials("test")


def test_another_score_is_no_other_training():
    specs = search.trials("select", seeds=1)
    scored = [spec for spec in specs if spec.score == "max_probability"]
    assert len(scored) == 3 * 3
    assert {spec.training_id for spec in scored} <= {spec.training_id for spec in specs if spec.score is None}


def test_rows_of_the_search_say_what_is_not_usual():
    gains = {"warm_up": 0.02, "score": -0.01, "augmented": -0.3}

    def value(spec):
        gain = gains["warm_up"] if "warm_up" in spec.method_args else 0.0
        gain += gains["score"] if spec.score else 0.0
        gain += gains["augmented"] if spec.recipe.augmentation == "rand_augment" else 0.0
        return 0.9 + 0.01 * spec.split + gain * (1 + 0.1 * spec.split)

    results = [TrialResult(spec=spec, metrics={"openauc": value(spec)}) for spec in search.trials("select", seeds=1)]
    rows = search.compared(results)
    assert len(rows) == len(search.BASELINES) + len(search.CANDIDATES)
    assert rows[0] == {"label": "ce_plus", "n": 3, "mean": pytest.approx(0.91)}
    first, last = rows[1], rows[-1]
    assert first["label"].startswith("openauc ")  # whichever class it took to train it
    assert "warm_up=36" in first["label"]
    assert (first["n"], first["wins"], first["difference"]) == (3, 3, pytest.approx(0.022))
    assert last["label"].endswith("(plus, normalize=False)")
    assert {"ce_plus score=max_probability", "openauc preset=paper"} <= {row["label"] for row in rows}
    lines = search.table(rows).splitlines()
    assert lines[2] == "| ce_plus | 3 | 91.00 | | | |"
    assert lines[3].startswith(f"| {first['label']} | 3 | 93.20 | +2.20 [")


def test_rows_are_compared_on_equal_splits_only():
    results = [TrialResult(spec=spec, metrics={"openauc": 0.9}) for spec in search.trials("confirm", seeds=1)]
    with pytest.raises(SystemExit, match="do not have the same splits and seeds"):
        search.compared(results[:-1])
