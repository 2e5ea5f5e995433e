import numpy as np
import pytest
import torch
from torch.optim import SGD, Adam

from openauc.features import SCORES
from openauc.losses import smoothed_cross_entropy
from openauc.methods.base import Method, torch_generator
from openauc.methods.softmax import Softmax
from openauc.recipe import Recipe


@pytest.mark.parametrize("name", [name for name, score in SCORES.items() if score.looks_at == "logits"])
def test_the_score_is_that_of_the_class(name, backbone, rng, images):
    class Scored(Softmax):
        score = name

    logits = Scored(backbone, 3, rng=rng).eval().logits(images)
    found = Scored(backbone, 3, rng=rng).open_score(logits)
    values = logits.detach().numpy()
    np.testing.assert_array_equal(found, SCORES[name]()(values[:, :0], values))
    assert (found.dtype, found.requires_grad) == (torch.float64, False)


def test_a_score_of_ones_own(backbone, rng):
    class Scored(Softmax):
        def open_score(self, logits):
            return logits.sum(1)

    assert Scored(backbone, 3, rng=rng).open_score(torch.tensor([[1.0, 2.0, 3.0]])).item() == 6


@pytest.mark.parametrize(("own", "pixels", "expected"), [("vgg32", 64, "vgg32"), ("vgg32_abn", 8, "vgg32_abn")])
def test_the_network_is_that_of_the_class_up_to_64_pixels(own, pixels, expected):
    class Sized(Softmax):
        backbone_name = own

    assert Sized.default_backbone(pixels) == expected
    assert Sized.default_backbone(65) == Sized.default_backbone(448) == "resnet50"


def test_forward_is_logits_or_loss(backbone, rng, images, labels):
    method = Softmax(backbone, 3, rng=rng).eval()
    assert torch.equal(method(images), method.logits(images))
    assert torch.equal(method(images, labels), method.loss(images, labels))


def test_without_a_loss_there_is_a_clear_error(backbone, rng, images, labels):
    with pytest.raises(NotImplementedError, match="Method has no loss"):
        Method(backbone, 3, rng=rng)(images, labels)


def test_constructor_errors(backbone, rng):
    with pytest.raises(ValueError, match="num_classes is 1"):
        Softmax(backbone, 1, rng=rng)
    with pytest.raises(TypeError, match="rng is 0; pass a generator"):
        Softmax(backbone, 3, rng=0)
    with pytest.raises(ValueError, match=r"label_smoothing is 1\.5"):
        Softmax(backbone, 3, rng=rng, label_smoothing=1.5)


@pytest.mark.parametrize(("fixed", "used"), [(None, 0.3), (0.0, 0.0), (0.1, 0.1)])
def test_label_smoothing_of_the_recipe_unless_fixed(fixed, used, backbone, rng, images, labels):
    method = Softmax(backbone, 3, rng=rng, label_smoothing=fixed).eval()
    method.use_recipe(Recipe(label_smoothing=0.3))
    expected = smoothed_cross_entropy(method.logits(images), labels, smoothing=used)
    torch.testing.assert_close(method.loss(images, labels), expected)


def test_optimizer_follows_the_recipe(backbone, rng):
    method = Softmax(backbone, 3, rng=rng)
    sgd = method.optimizer(Recipe(optimizer="sgd", learning_rate=0.2, momentum=0.8, weight_decay=1e-3))
    assert isinstance(sgd, SGD)
    assert {sgd.defaults[key] for key in ("lr", "momentum", "weight_decay")} == {0.2, 0.8, 1e-3}
    adam = method.optimizer(Recipe(optimizer="adam", learning_rate=0.01, weight_decay=0.0))
    assert isinstance(adam, Adam)
    assert (adam.defaults["lr"], adam.defaults["weight_decay"]) == (0.01, 0.0)
    assert len(adam.param_groups[0]["params"]) == len(list(method.parameters()))


def test_train_batch_goes_through_what_it_is_given(backbone, rng, images, labels):
    method = Softmax(backbone, 3, rng=rng)
    optimizer = method.optimizer(Recipe())
    seen = []

    def forward(x, y):
        seen.append("forward")
        return method(x, y)

    def backward(loss):
        seen.append("backward")
        loss.backward()

    before = method.head.weight.clone()
    found = method.train_batch(images, labels, optimizer, forward=forward, backward=backward)
    assert seen == ["forward", "backward"]
    assert found["loss"] > 0
    assert not torch.equal(before, method.head.weight)


def test_a_step_is_that_of_a_loop_by_hand(backbone, rng, images, labels):
    method = Softmax(backbone, 3, rng=rng)
    method.loss(images, labels).backward()
    parameters = method.trained_parameters()
    expected = [(p - 0.1 * p.grad).detach() for p in parameters]
    recipe = Recipe(learning_rate=0.1, momentum=0.0, weight_decay=0.0)
    method.train_batch(images, labels, method.optimizer(recipe))  # clears the gradients left over above
    for parameter, value in zip(parameters, expected, strict=True):
        torch.testing.assert_close(parameter.detach(), value)


def test_a_pass_the_method_does_not_have_is_refused(backbone, rng, images, labels):
    method = Softmax(backbone, 3, rng=rng)
    with pytest.raises(ValueError, match="phase is 'confusing'; expected one of 'plain'"):
        method.train_batch(images, labels, method.optimizer(Recipe()), phase="confusing")


def test_diagnostics_are_those_of_the_last_batch(backbone, rng, images):
    method = Softmax(backbone, 3, rng=rng).eval()
    assert method.diagnostics() == {}
    predicted = method.logits(images).argmax(1)
    method.loss(images, torch.where(torch.arange(8) < 6, predicted, (predicted + 1) % 3))
    assert method.diagnostics() == {"known_accuracy": 0.75}


def test_own_weights_depend_on_rng_alone(backbone):
    torch.manual_seed(1)
    first = Softmax(backbone, 3, rng=np.random.default_rng(7)).head.weight
    torch.manual_seed(2)
    second = Softmax(backbone, 3, rng=np.random.default_rng(7)).head.weight
    third = Softmax(backbone, 3, rng=np.random.default_rng(8)).head.weight
    assert torch.equal(first, second)
    assert not torch.equal(first, third)


def test_points_and_generators(backbone, rng):
    method = Softmax(backbone, 3, rng=rng)
    method.use_points(2000)
    points = method.points
    assert points.shape == (2000, backbone.feature_dim)
    assert points.requires_grad
    assert not any(parameter.requires_grad for parameter in method.head.parameters())
    assert points.std().item() == pytest.approx(0.1, rel=0.05)
    assert torch_generator(rng).initial_seed() != torch_generator(rng).initial_seed()
