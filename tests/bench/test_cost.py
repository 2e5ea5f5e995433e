"""Operations counted by hand, shared trainings, and where seconds come from."""

from dataclasses import replace
from pathlib import Path

import pytest

from openauc.bench import cost
from openauc.bench.cost import estimate, flops_per_image, processor_rate, training_flops, training_images
from openauc.bench.suites import load_suite, suite_names
from openauc.bench.trial import TrialResult, TrialSpec
from openauc.protocols import get_protocol


def narrow(method="softmax", protocol="cifar10", **more):
    return TrialSpec.of(protocol, 0, method, **{"recipe": "plain", "epochs": 2, "width": 8, **more})


def step_by_hand(width, classes, side):
    """Forward, gradient of weights, gradient of inputs; the first layer's inputs, the images, need none."""
    channels = (3, width, width, *[2 * width] * 7)
    first = forward = 0
    for layer in range(1, 10):
        side = side // 2 if layer % 3 == 0 else side
        forward += 2 * 9 * channels[layer - 1] * channels[layer] * side * side
        first = first or forward
    return 3 * forward - first + 3 * 2 * (2 * width) * classes


@pytest.mark.parametrize(("width", "side"), [(4, 16), (8, 32)])
def test_a_step_of_cross_entropy_by_hand(width, side):
    spec = narrow(width=width)
    spec = replace(spec, recipe=replace(spec.recipe, image_size=side))
    assert flops_per_image(spec) == step_by_hand(width, 6, side)


def test_extra_passes_of_methods_are_in_it():
    plain = flops_per_image(narrow("ce_plus"))
    assert plain < flops_per_image(narrow("openauc")) < 1.01 * plain
    assert 1.05 * plain < flops_per_image(narrow("openauc", method_args={"cut": "block2"})) < 1.8 * plain
    # Classifier twice per image as in ARPL, twice more on generated images, and the adversaries.
    small = {"generator_width": 8, "discriminator_width": 2}
    assert flops_per_image(narrow("arpl_cs", method_args=small)) > 3.5 * plain


def test_large_images_are_scaled_by_their_area():
    spec = narrow()
    large = replace(spec, recipe=replace(spec.recipe, image_size=128))
    counted = cost._counted("softmax", (), "vgg32", 8, 128, 6)
    assert flops_per_image(large) == pytest.approx(counted, rel=1e-3)


@pytest.mark.parametrize(
    ("spec", "images"),
    [
        (narrow(), 30000),
        (narrow(train_images=6000), 6000),
        (narrow(train_images=60000), 30000),
        (narrow(protocol="cifar+50"), 20000),
        (narrow(validation=0.1, pseudo_unknown=2), 18000),
        (narrow(validation=0.1, pseudo_unknown=2, train_images=500), 500),
    ],
)
def test_images_of_an_epoch(spec, images):
    assert training_images(spec) == images


def test_sizes_that_are_not_on_record_are_nearly_right():
    loaded = len(get_protocol("digits").load(0).train_labels)
    assert training_images(narrow(protocol="digits")) == pytest.approx(loaded, rel=0.01)
    without = [name for name in ("digits", "cub", "aircraft") if not get_protocol(name).sizes]
    assert set(without) == set(cost.IMAGES_PER_CLASS)


def test_a_training_is_images_times_epochs():
    spec = narrow(train_images=100)
    assert training_flops(spec) == 2 * 100 * flops_per_image(spec)


def test_shared_trainings_are_counted_once():
    pair = [narrow(protocol=protocol) for protocol in ("cifar+10", "cifar+50")]
    one, both = estimate(pair[:1], rate=1e9), estimate(pair, rate=1e9)
    assert (one.trials, both.trials, both.trainings) == (1, 2, 1)
    assert both.flops == one.flops
    assert both.seconds == both.flops / 1e9
    assert both.hours == both.seconds / 3600


def test_seconds_follow_finished_trials_of_the_same_kind():
    done = [TrialResult(spec=narrow(seed=seed), seconds=seconds) for seed, seconds in enumerate((8.0, 10.0, 99.0))]
    done += [TrialResult(spec=narrow(seed=3), seconds=0.001, error="failed")]
    asked = narrow(seed=9, train_images=15000)
    assert estimate([asked], finished=done).seconds == pytest.approx(5.0)


def test_without_any_the_processor_is_measured():
    spec = narrow(width=4, train_images=1000)
    other = TrialResult(spec=narrow(), seconds=5.0)
    measured = estimate([spec], finished=[other])
    assert measured.seconds == pytest.approx(measured.flops / processor_rate(4))
    assert processor_rate(4) > 1e6


def test_no_trials_cost_nothing():
    assert estimate([]) == (0, 0, 0, 0)


@pytest.mark.parametrize("name", suite_names())
def test_every_suite_has_a_cost(name):
    specs = load_suite(name).trials()
    # One trial stands for all: counting wide networks takes a while.
    assert training_flops(min(specs, key=lambda spec: (spec.recipe.image_size, spec.method == "arpl_cs"))) > 0


@pytest.mark.slow
def test_what_the_papers_table_costs():
    text = cost.cluster_cost(rate=1e13)
    rows = {line.split("|")[1].strip(): line.split("|")[2:-1] for line in text.splitlines() if line.startswith("|")}
    assert [int(rows[p][0]) for p in ("mnist", "svhn", "cifar10", "cifar+10", "tinyimagenet")] == [65] * 5
    assert int(rows["**all**"][0]) == 325
    assert "cifar+50" not in rows
    # Forty trainings of 600 epochs, 30,000 images and about 1 GFLOP each, those of ARPL+CS several times that.
    exaflops = float(rows["cifar10"][2].split()[0])
    assert 0.5 < exaflops < 2.5
    assert "one image of CIFAR10 costs OpenAUC 0.98 GFLOP" in text
    guide = Path(__file__).resolve().parents[2] / "docs" / "cluster.md"
    assert text.strip() in guide.read_text()
