"""Operations counted by hand, and the images of an epoch."""

from dataclasses import replace

import pytest

from openauc.bench import cost
from openauc.bench.benchmarks import benchmark_names, load_benchmark
from openauc.bench.cost import flops_per_image, training_flops, training_images
from openauc.bench.trial import TrialSpec
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
    counted = cost._counted("softmax", (), "vgg32", 8, (3, 128, 128), 6)
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
    loaded = len(get_protocol("digits").load(0).train.labels)
    assert training_images(narrow(protocol="digits")) == pytest.approx(loaded, rel=0.01)


def test_a_training_is_images_times_epochs():
    spec = narrow(train_images=100)
    assert training_flops(spec) == 2 * 100 * flops_per_image(spec)


@pytest.mark.parametrize("name", benchmark_names())
def test_every_benchmark_has_a_cost(name):
    specs = load_benchmark(name).trials()
    # One trial stands for all: counting wide networks takes a while.
    networks = [spec for spec in specs if spec.recipe is not None]
    assert training_flops(min(networks, key=lambda spec: (spec.recipe.image_size, spec.method == "arpl_cs"))) > 0
    assert all(training_flops(spec) > 0 for spec in specs if spec.is_head)
