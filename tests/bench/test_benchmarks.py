"""Every shipped benchmark, whatever its options, lists trials that can be run."""

import subprocess
import sys
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np
import pytest

from openauc.bench.benchmarks import benchmark_names, digits, load_benchmark, sensitivity, table2
from openauc.bench.cost import training_flops
from openauc.bench.paper import METHODS
from openauc.features.scores.base import HEAD_NAMES, REJECTORS
from openauc.features.scores.registry import SCORES
from openauc.methods import make_method, method_names
from openauc.models import make_backbone
from openauc.protocols import get_protocol


def cases() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every benchmark with its defaults, and with each value of an option that has a few."""
    for name in benchmark_names():
        yield name, {}
        for option, hint in get_type_hints(load_benchmark(name).build).items():
            for value in get_args(hint) if get_origin(hint) is Literal else ():
                yield name, {option: value}


CASES = list(cases())


@pytest.mark.parametrize(("name", "options"), CASES)
def test_methods_take_the_options_of_their_trials(name, options):
    specs = load_benchmark(name).trials(**options)
    variants = {(spec.method, spec.backbone, tuple(sorted(spec.method_args.items()))) for spec in specs}
    for method, backbone, method_args in variants:
        if method in HEAD_NAMES:
            continue
        network = make_backbone("vgg32" if backbone == "resnet50" else backbone, width=4, num_features=8)
        make_method(method, network, 4, rng=np.random.default_rng(0), method_args=dict(method_args))


@pytest.mark.parametrize(("name", "options"), CASES)
def test_a_benchmark_says_what_it_is_and_keeps_its_order(name, options):
    benchmark = load_benchmark(name)
    assert benchmark.description.endswith(".")
    assert set(options) <= set(benchmark.options)
    assert [spec.id for spec in benchmark.trials(**options)] == [spec.id for spec in benchmark.trials(**options)]
    assert benchmark.trials()


def test_listing_does_not_import_torch():
    code = (
        "import sys\nfrom openauc.bench.benchmarks import load_benchmark, benchmark_names\n"
        "[load_benchmark(name).options for name in benchmark_names()]\nsys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_paper_has_all_methods():
    assert set(METHODS) <= set(method_names())


def test_digits_is_every_method_on_every_split():
    specs = load_benchmark("digits").trials(seeds=2)
    places = {(split, seed) for split in range(5) for seed in (0, 1)}
    assert {(s.method, s.split, s.seed) for s in specs} == {(method, *place) for method in METHODS for place in places}
    assert len({(s.width, s.recipe, s.train_images) for s in specs}) == 1
    assert {s.score for s in specs} == {None}


def test_digits_trains_each_network_once():
    specs = load_benchmark("digits").trials(seeds=1)
    assert len(specs) == 5 * 9
    assert len({spec.training_id for spec in specs}) == 5 * 7
    for pair in ({"softmax", "ce_plus"}, {"arpl", "arpl_plus"}):
        assert len({spec.training_id for spec in specs if spec.method in pair}) == 5


def test_digits_begins_with_the_longest_training():
    specs = load_benchmark("digits").trials()
    assert {spec.method for spec in specs[:5]} == {"arpl_cs"}
    assert training_flops(specs[0]) == max(map(training_flops, specs))


def test_features_has_every_contender_on_the_same_problems():
    specs = load_benchmark("features").trials(splits=2)
    problems = {(spec.protocol, spec.split) for spec in specs}
    for problem in problems:
        own = [spec for spec in specs if (spec.protocol, spec.split) == problem]
        assert {spec.score for spec in own if spec.method == "logistic"} == {*SCORES, *REJECTORS}
        assert {spec.method for spec in own} == {"logistic", "ce_plus", "openauc", "arpl", "gcpl"}
        assert len({spec.training_id for spec in own}) == 5
    assert {protocol for protocol, _ in problems} >= {
        "digits_pixels",
        "clinc150_25",
        "cub_features",
        "cifar+50_features",
    }


def test_table2_has_every_method_as_published_and_all_with_one_recipe():
    specs = table2.trials("paper")
    for protocol in ("mnist", "svhn", "cifar10", "cifar+10", "cifar+50", "tinyimagenet"):
        own = [spec for spec in specs if (spec.protocol, spec.split) == (protocol, 0)]
        assert [spec.method for spec in own if spec.recipe.epochs == 100] == [
            "softmax",
            "gcpl",
            "rpl",
            "arpl",
            "arpl_cs",
        ]
        plus = [spec.method for spec in own if spec.recipe.epochs == 600 and spec.score is None]
        assert sorted(plus) == sorted(set(METHODS) - {"arpl"})
    assert all(spec.width is None and spec.train_images is None for spec in specs)
    assert get_protocol("cifar10").recipes["plus"] in [spec.recipe for spec in specs]


def test_the_papers_openauc_does_not_follow_our_defaults():
    ranking = [spec for spec in table2.trials("paper") if spec.method in ("openauc", "acc_auc")]
    assert {tuple(spec.method_args.items()) for spec in ranking} == {(("preset", "paper"), ("lam", 0.1))}


@pytest.mark.parametrize("name", ["table2", "cub"])
def test_the_papers_preset_is_tested_with_both_scores_of_one_training(name):
    specs = [spec for spec in load_benchmark(name).trials() if spec.method == "openauc"]
    tested, trained = ([s for s in specs if s.score == score] for score in (None, "max_probability"))
    assert [spec.training_id for spec in tested] == [spec.training_id for spec in trained]
    assert len(tested) + len(trained) == len(specs) > 0


def test_the_cpu_budget_is_equal_for_all_methods():
    specs = table2.trials("cpu")
    assert len(specs) == 4 * 5 * 9
    # CIFAR+10 and CIFAR+50 share their trainings, and so do the two methods of each of two pairs.
    assert len({spec.training_id for spec in specs}) == 3 * 5 * 7
    for protocol in table2.CPU_PROTOCOLS:
        budgets = {(s.width, s.train_images, s.recipe) for s in specs if s.protocol == protocol}
        assert len(budgets) == 1
    lengths = {(s.recipe.epochs, s.recipe.batch_size, s.recipe.schedule, s.train_images) for s in specs}
    assert len(lengths) == 1


def test_figure_1_reuses_the_trainings_of_table_2():
    shown = ["cifar+10", "cifar+50", "tinyimagenet"]  # panels of the paper
    for budget, protocols in (("paper", shown), ("cpu", shown[:2])):
        specs = load_benchmark("inconsistency").trials(budget=budget)
        assert [spec.protocol for spec in specs] == protocols
        own = {spec.id for spec in specs}
        assert own <= {spec.id for spec in table2.trials(budget)}


def test_sensitivity_walks_the_papers_lambdas():
    for budget in sensitivity.PROTOCOLS:
        specs = [spec for spec in sensitivity.trials(budget) if spec.split == 0]
        for protocol in sensitivity.PROTOCOLS[budget]:
            found = [spec.method_args["lam"] for spec in specs if spec.protocol == protocol]
            assert found == [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6]


def test_cub_starts_from_the_weights_it_is_given():
    specs = load_benchmark("cub").trials(weights="mine.safetensors")
    assert {spec.weights for spec in specs} == {"mine.safetensors"}
    assert {spec.backbone for spec in specs} == {"resnet50"}


def test_options_are_checked_by_name_and_value():
    with pytest.raises(ValueError, match=r"an option of benchmark 'table2' is 'budgte'.*Did you mean 'budget'"):
        load_benchmark("table2").trials(budgte="cpu")
    with pytest.raises(ValueError, match="budget is 'gpu'; expected one of 'paper', 'cpu'"):
        load_benchmark("table2").trials(budget="gpu")
    with pytest.raises(ValueError, match="budget is 'small'"):
        load_benchmark("sensitivity").trials(budget="small")
    with pytest.raises(ValueError, match="budget is 'digits'"):
        load_benchmark("inconsistency").trials(budget="digits")
    with pytest.raises(ValueError, match=r"'digits' has no trials with \{'seeds': 0\}"):
        load_benchmark("digits").trials(seeds=0)


def test_a_wrong_name_is_refused():
    with pytest.raises(ValueError, match=r"benchmark is 'tabel2'; expected one of .* Did you mean 'table2'"):
        load_benchmark("tabel2")


def test_a_file_of_ones_own(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        '"""My own."""\nfrom openauc.bench.trial import TrialSpec\n'
        'def trials(count: int = 1):\n    return [TrialSpec.of("digits", i, "softmax") for i in range(count)]\n'
    )
    benchmark = load_benchmark(file)
    assert (benchmark.name, benchmark.description, benchmark.options) == ("mine", "My own.", {"count": 1})
    assert [spec.split for spec in benchmark.trials(count=3)] == [0, 1, 2]
    assert load_benchmark(str(file)).trials() == benchmark.trials()


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ("x = 1\n", ValueError, r"has no function trials; define trials\(\)"),
        ("trials = 3\n", ValueError, "has no function trials"),
        ("import nothing_like_this\n", ValueError, "cannot be imported .*ModuleNotFoundError.*nothing_like_this"),
        ("def trials(:\n", ValueError, "cannot be imported .*SyntaxError"),
        ("def trials():\n    return ()\n", TypeError, "returned \\(\\); return a list of TrialSpec"),
        ("def trials():\n    return [1]\n", TypeError, "returned 1; return a list of TrialSpec"),
        ("def trials():\n    return []\n", ValueError, "has no trials with its defaults"),
        (
            "from openauc.bench.trial import TrialSpec\n"
            "def trials():\n    return 2 * [TrialSpec.of('digits', 0, 'softmax')]\n",
            ValueError,
            "lists digits-0-softmax-s0-.* more than once",
        ),
    ],
)
def test_what_is_wrong_with_a_file_is_told(tmp_path, text, error, said):
    file = tmp_path / "broken.py"
    file.write_text(text)
    with pytest.raises(error, match=said):
        load_benchmark(file).trials()


def test_a_missing_file_and_a_benchmark_without_options(tmp_path):
    with pytest.raises(ValueError, match=r"there is no file .*absent.py; pass a Python file, or one of cub"):
        load_benchmark(tmp_path / "absent.py")
    file = tmp_path / "plain.py"
    file.write_text("def trials():\n    return []\n")
    with pytest.raises(ValueError, match="'plain' takes no options, so not 'seeds' either"):
        load_benchmark(file).trials(seeds=2)


def test_the_digits_budget_is_shared_with_other_benchmarks():
    spec = digits.trial("openauc", 1, {"lam": 0.3}, seed=2)
    assert (spec.width, spec.recipe.epochs, spec.seed, spec.method_args) == (
        digits.WIDTH,
        digits.EPOCHS,
        2,
        {"lam": 0.3},
    )
