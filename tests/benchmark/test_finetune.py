"""Fine-tuning with two losses: what is trained, from where, and how differences are counted."""

import json

import finetune as program
import numpy as np
import pytest
import writing
from safetensors.numpy import load_file, save_file

from openauc import Predictions, compare, openauc_score
from openauc._trial_files import WEIGHTS
from openauc.bench.store import Store
from openauc.training.trained import Network, load_data

pytestmark = pytest.mark.filterwarnings("ignore::openauc.ScoreDirectionWarning")  # made-up weights know nothing

RATE, STEPS = 1e-5, 100  # far more steps than are made


def triple(seed, shift=0.0, known=80, unknown=120):
    """Predictions of three classes; unknown samples score higher by more with a larger shift."""
    rng, same = np.random.default_rng([seed, 1]), np.random.default_rng(0)
    y_true = np.append(same.integers(0, 3, known), np.full(unknown, -1))
    base = same.normal(size=known + unknown) + (1 + shift) * (y_true < 0)
    y_pred = np.where((y_true < 0) | (rng.random(known + unknown) < 0.2), 0, y_true)
    return Predictions.of(y_true, y_pred, base + 0.3 * rng.normal(size=known + unknown))


def test_all_trainings_share_everything_but_loss_and_seed(tmp_path):
    specs = [spec for seeds in program.trials(tmp_path).values() for spec in seeds]
    assert len({spec.id for spec in specs}) == 30
    assert len({spec.training_id for spec in specs}) == 15
    assert len({(spec.recipe, spec.weights, spec.split, spec.train_images) for spec in specs}) == 1
    recipe = specs[0].recipe
    assert (recipe.learning_rate, recipe.epochs, recipe.batch_size, recipe.warmup_epochs) == (1e-4, 2, 64, 0)
    assert (recipe.augmentation, recipe.rand_augment_m, recipe.label_smoothing) == ("rand_augment", 9, 0.9)
    assert {spec.method for spec in specs} == {"ce_plus", "openauc"}


def test_the_difference_of_two_models_is_that_of_delongs_test():
    one, other = triple(1, shift=0.4), triple(2)
    for metric in program.METRICS:
        (expected,) = compare(one, other, metrics=[metric]).differences
        found = program.over_samples(metric, [one], [other])
        assert found["difference"] == pytest.approx(expected.difference)
        assert found["interval"] == pytest.approx(list(expected.interval), abs=0.005)


def test_equal_trainings_count_as_one():
    one, other = triple(1, shift=0.4), triple(2)
    once = program.over_samples("openauc", [one], [other])
    thrice = program.over_samples("openauc", [one] * 3, [other])
    assert thrice["interval"] == pytest.approx(once["interval"])
    assert program.over_samples("openauc", [one, one], [one])["interval"] == [0.0, 0.0]


def test_differences_over_seeds_pair_equal_seeds():
    ones, others = [triple(seed, shift=0.4) for seed in range(3)], [triple(seed) for seed in range(3)]
    found = program.over_seeds("openauc", ones, others)
    pairs = zip(ones, others, strict=True)
    assert found["seeds"] == pytest.approx([openauc_score(*a) - openauc_score(*b) for a, b in pairs])
    assert found["difference"] == pytest.approx(np.mean(found["seeds"]))
    assert found["interval"][0] < found["difference"] < found["interval"][1]
    assert 0 < found["p"] < 1
    assert program.over_seeds("openauc", ones[:1], others[:1])["interval"] is None


def test_rows_are_compared_by_the_same_score():
    found = {(program.PUBLISHED, score): [triple(9, shift)] for shift, score in enumerate(program.SCORES)}
    for i, form in enumerate(program.FORMS):
        for shift, score in enumerate(program.SCORES):
            found[form, score] = [triple(10 * i + seed, shift) for seed in range(3)]
    ce, published = program.against_ce(found), program.against_published(found)
    assert len(ce) == 8
    assert len(published) == 10
    for rows, base in ((ce, program.CE), (published, program.PUBLISHED)):
        for row in rows:
            mine, theirs = (
                np.mean([openauc_score(*one) for one in found[form, row["score"]]]) for form in (row["form"], base)
            )
            assert row["openauc"]["difference"] == pytest.approx(mine - theirs)
            assert row["openauc"]["p"] <= row["p_holm"] <= 1
    assert len(program.differences_table(ce, images=True).splitlines()) == 2 + 8
    means = {(row["form"], row["score"]): row["openauc"]["mean"] for row in program.summary(found)}
    assert means[program.CE, "max_logit"] == pytest.approx(
        np.mean([openauc_score(*one) for one in found[program.CE, "max_logit"]])
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The program on the digits, from weights made up here: its folder of work, of weights and of results."""
    work, weights, results = (tmp_path_factory.mktemp(name) for name in ("work", "weights", "results"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(program, "PROTOCOL", "digits")
        patch.setattr(program, "SEEDS", 2)
        patch.setattr(program, "EPOCHS", 1)
        patch.setattr(program, "RATE", RATE / 0.1)  # of the rate of digits
        patch.setattr(writing, "RESULTS", results)
        patch.setattr("torch.set_num_threads", lambda count: None)
        spec = program.trials(weights)[program.CE, "max_logit"][0]
        data = load_data(spec, None)
        network = Network(spec, None)
        start = network._built(data.num_classes)
        tensors = {
            name.removeprefix("backbone.").replace("head.", "fc."): tensor.numpy()
            for name, tensor in start.state_dict().items()
        }
        save_file(tensors, weights / "tinyimagenet_0.safetensors")
        network.method = start
        network.embedded(spec, data, "test").save(work / "test-0.parquet")
        patch.setattr("sys.argv", ["finetune.py", "--work", str(work), "--weights", str(weights), "--write"])
        program.main()
        yield work, weights, results


def test_every_training_starts_from_the_given_weights(made):
    work, weights, _ = made
    before = load_file(weights / "tinyimagenet_0.safetensors")["fc.weight"]
    results = Store(work).results()
    assert len(results) == 2 * 2 * len(program.FORMS)
    for result in results:
        assert result.error is None
        after = load_file(Store(work).folder(result.spec) / WEIGHTS)["head.weight"]
        assert 0 < np.abs(after - before).max() < RATE * STEPS


def test_results_tell_the_tables_and_where_they_come_from(made):
    *_, results = made
    (file,) = results.glob("finetune_*.json")
    found = json.loads(file.read_text())
    assert found["seeds"] == [0, 1]
    assert [row["n"] for row in found["rows"]] == [1, 1] + [2] * 10
    assert {len(seeds) for seeds in found["histories"].values()} == {2}
    assert found["recipe"]["epochs"] == program.EPOCHS
    page = file.with_suffix(".md").read_text()
    assert program.COMMAND in page
    assert page.count("\n## ") == 3


def test_a_finished_training_is_not_repeated(made):
    work, *_ = made
    files = {file: file.stat().st_mtime_ns for file in work.glob("trials/*/result.json")}
    program.main()
    assert files == {file: file.stat().st_mtime_ns for file in work.glob("trials/*/result.json")}
