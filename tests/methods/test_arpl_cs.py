import copy

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from openauc.losses import confusion_loss, squared_distance
from openauc.methods import build_method
from openauc.methods.arpl import ARPL
from openauc.methods.arpl_cs import ARPLCS
from openauc.models.base import branch
from openauc.recipe import Recipe

SMALL = {"image_size": 8, "noise_dim": 5, "generator_width": 8, "discriminator_width": 4}


@pytest.fixture
def method(two_branches):
    return ARPLCS(two_branches, 3, rng=np.random.default_rng(0), **SMALL)


def state_of(module):
    return {key: value.clone() for key, value in module.state_dict().items()}


def changed(module, before):
    return {key for key, value in module.state_dict().items() if not torch.equal(value, before[key])}


def test_an_epoch_is_a_confusing_and_a_plain_pass(method):
    assert method.passes == ("confusing", "plain")


def test_adversaries_have_their_own_optimisers(method):
    names = {id(p): name for name, p in method.named_parameters()}
    main = {names[id(p)] for p in method.optimizer(Recipe()).param_groups[0]["params"]}
    assert {name.split(".")[0] for name in main} == {"backbone", "points", "radius"}
    optimizers = method.auxiliary_optimizers()
    for name in ("generator", "discriminator"):
        defaults = optimizers[name].defaults
        assert (defaults["lr"], defaults["betas"], defaults["weight_decay"]) == (2e-4, (0.5, 0.999), 0)
        assert {names[id(p)].split(".")[0] for p in optimizers[name].param_groups[0]["params"]} == {name}


def test_loss_without_generated_images_is_that_of_arpl(method, images, labels):
    method.eval()
    assert torch.equal(method.loss(images, labels), ARPL.loss(method, images, labels))
    assert torch.equal(method(images, labels), method.loss(images, labels))
    assert torch.equal(method(images), method.logits(images))


def test_loss_with_generated_images(method, images, labels):
    method.eval()
    fakes = images.flip(0)
    with branch(method.backbone, 1):
        features = method.backbone(fakes)
    expected = ARPL.loss(method, images, labels) + 0.1 * confusion_loss(squared_distance(features, method.points))
    torch.testing.assert_close(method(images, labels, fakes), expected)


def test_a_plain_batch_leaves_branch_1_and_the_adversaries_alone(method, images, labels):
    before = state_of(method)
    found = method.train_batch(images, labels, method.optimizer(Recipe()))
    assert set(found) == {"loss"}
    moved = changed(method, before)
    assert moved
    assert not [key for key in moved if "bns.1" in key or key.startswith(("generator", "discriminator"))]


def test_a_confusing_batch_steps_all_three_as_written_by_hand(method, images, labels):
    """The three steps of the protocol, spelled out with ordinary backward passes on a copy."""
    twin = copy.deepcopy(method)
    recipe = Recipe(learning_rate=0.05)
    found = method.train_batch(images, labels, method.optimizer(recipe), phase="confusing")

    classifier, adversaries = twin.optimizer(recipe), twin.auxiliary_optimizers()
    noise = [torch.from_numpy(twin.rng.standard_normal((8, 5), dtype=np.float32)) for _ in range(2)]
    real, fake = torch.ones(8), torch.zeros(8)

    g = twin.generator(noise[0])
    twin.zero_grad()
    verdicts = F.binary_cross_entropy_with_logits(twin.discriminator(images), real)
    verdicts += F.binary_cross_entropy_with_logits(twin.discriminator(g.detach()), fake)
    verdicts.backward()
    adversaries["discriminator"].step()

    twin.zero_grad()
    with branch(twin.backbone, 1):
        confusion = confusion_loss(squared_distance(twin.backbone(g), twin.points))
    deception = F.binary_cross_entropy_with_logits(twin.discriminator(g), real) + 0.1 * confusion
    deception.backward()
    adversaries["generator"].step()

    twin.zero_grad()
    loss = ARPL.loss(twin, images, labels)
    with branch(twin.backbone, 1):
        loss = loss + 0.1 * confusion_loss(squared_distance(twin.backbone(twin.generator(noise[1])), twin.points))
    loss.backward()
    classifier.step()

    assert found == pytest.approx(
        {
            "loss": loss.item(),
            "discriminator_loss": verdicts.item(),
            "generator_loss": deception.item(),
        },
        rel=1e-4,
    )
    ours = method.state_dict()
    for key, value in twin.state_dict().items():
        torch.testing.assert_close(ours[key], value, rtol=1e-4, atol=1e-6, msg=key)
    assert ours["backbone.norms.0.bns.1.num_batches_tracked"] == 2  # steps 2 and 3
    assert ours["backbone.norms.0.bns.0.num_batches_tracked"] == 1


def test_gradients_of_a_step_do_not_leak_into_the_next(method, images, labels):
    method.train_batch(images, labels, method.optimizer(Recipe()), phase="confusing")
    assert all(p.grad is None for part in (method.generator, method.discriminator) for p in part.parameters())


def test_same_seed_same_noise(two_branches, images, labels):
    states = []
    for seed in (3, 3, 4):
        method = ARPLCS(copy.deepcopy(two_branches), 3, rng=np.random.default_rng(seed), **SMALL)
        method.train_batch(images, labels, method.optimizer(Recipe()), phase="confusing")
        states.append(method.generator.state_dict()["layers.0.weight"])
    assert torch.equal(states[0], states[1])
    assert not torch.equal(states[0], states[2])


def test_errors(method, backbone, rng, labels):
    optimizer = method.optimizer(Recipe())
    with pytest.raises(ValueError, match="images are 16 x 16 pixels but the generator draws 8 x 8"):
        method.train_batch(torch.zeros(8, 3, 16, 16), labels, optimizer, phase="confusing")
    with pytest.raises(ValueError, match="phase is 'fancy'; expected one of 'confusing', 'plain'"):
        method.train_batch(torch.zeros(8, 3, 8, 8), labels, optimizer, phase="fancy")
    with pytest.raises(ValueError, match="vgg32_abn"):
        ARPLCS(backbone, 3, rng=rng, **SMALL)


@pytest.mark.parametrize(("width", "generator", "discriminator"), [(64, 512, 128), (8, 64, 16)])
def test_the_adversaries_are_as_wide_as_the_backbone_asks(width, generator, discriminator):
    method = build_method("arpl_cs", 3, image_size=32, width=width)
    assert method.generator.layers[0].out_channels == generator
    assert method.discriminator.layers[0].out_channels == discriminator
