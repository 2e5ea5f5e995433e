import pytest
import torch
from torch import nn

from openauc.models.gan import Discriminator, Generator


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def convolutions(module: nn.Module) -> list[tuple[int, int, int, int]]:
    return [
        (layer.in_channels, layer.out_channels, layer.stride[0], layer.padding[0])
        for layer in module.modules()
        if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d)
    ]


def test_published_generators():
    first = [(100, 512, 1, 0), (512, 256, 2, 1), (256, 128, 2, 1)]
    assert convolutions(Generator(32)) == [*first, (128, 3, 2, 1)]
    assert convolutions(Generator(64)) == [*first, (128, 64, 2, 1), (64, 3, 2, 1)]


def test_published_discriminator():
    assert convolutions(Discriminator()) == [
        (3, 128, 2, 1),
        (128, 256, 2, 1),
        (256, 512, 2, 1),
        (512, 1024, 1, 0),
    ]
    assert sum(isinstance(layer, nn.BatchNorm2d) for layer in Discriminator(width=2).modules()) == 2


@pytest.mark.parametrize(
    "module", [Generator(32, width=16), Discriminator(width=2)], ids=["generator", "discriminator"]
)
def test_convolutions_have_kernel_4_and_no_bias(module):
    layers = [layer for layer in module.modules() if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d)]
    assert all(layer.kernel_size == (4, 4) and layer.bias is None for layer in layers)


@pytest.mark.parametrize("size", [8, 16, 32, 64])
def test_generated_images_are_judged(size):
    noise = torch.randn(3, 20, generator=seeded(0))
    maker = Generator(size, 20, width=16, generator=seeded(1))
    fake = maker(noise)
    assert fake.shape == (3, 3, size, size)
    assert 0.0 < fake.min() < fake.max() < 1.0
    assert torch.equal(maker.eval()(noise), maker(noise[:, :, None, None]))
    judge = Discriminator(width=2, generator=seeded(2))
    real = judge.eval()(fake)
    assert real.shape == (3,)
    assert real.isfinite().all()
    real.sum().backward()
    assert all(parameter.grad is not None for parameter in (*maker.parameters(), *judge.parameters()))


def test_initial_distributions():
    for module in (Generator(32, generator=seeded(0)), Discriminator(generator=seeded(0))):
        for layer in module.modules():
            if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d):
                assert layer.weight.std().item() == pytest.approx(0.02, rel=0.05)
            elif isinstance(layer, nn.BatchNorm2d):
                assert layer.weight.mean().item() == pytest.approx(1.0, abs=0.01)
                assert torch.count_nonzero(layer.bias) == 0


@pytest.mark.parametrize(
    "kind", [lambda g: Generator(32, width=16, generator=g), lambda g: Discriminator(width=2, generator=g)]
)
def test_weights_come_from_the_generator_alone(kind):
    first, second, third = (kind(seeded(seed)).state_dict() for seed in (5, 5, 6))
    assert all(torch.equal(first[key], second[key]) for key in first)
    weights = [key for key in first if key.endswith("weight")]
    assert not any(torch.equal(first[key], third[key]) for key in weights)


@pytest.mark.parametrize("size", [0, 4, 28, 48])
def test_impossible_image_size(size):
    with pytest.raises(ValueError, match=f"image_size is {size}; pass 32, 64 or another power of two from 8"):
        Generator(size)


def test_impossible_width():
    with pytest.raises(ValueError, match="width is 7; images of 64 pixels need at least 8"):
        Generator(64, width=7)
    assert Generator(64, width=8)(torch.zeros(2, 100)).shape == (2, 3, 64, 64)
    with pytest.raises(ValueError, match="width is 0; pass a positive number"):
        Discriminator(width=0)
