import pytest
import torch
from torch import nn

from openauc.models.base import branch
from openauc.models.vgg32 import VGG32, VGG32ABN


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("num_classes", [6, 20])
def test_published_parameter_count(num_classes):
    backbone = VGG32()
    unused_bn10 = 256
    assert count(backbone) + count(backbone.make_head(num_classes)) + unused_bn10 == 999_360 + 128 * num_classes


def test_published_key_names():
    norm = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    expected = {f"conv{i}.weight" for i in range(1, 10)}
    assert set(VGG32().state_dict()) == expected | {f"bn{i}.{name}" for i in range(1, 10) for name in norm}
    branches = {f"bn{i}.bns.{b}.{name}" for i in range(1, 10) for b in range(2) for name in norm}
    assert set(VGG32ABN(width=2).state_dict()) == expected | branches


@pytest.mark.parametrize(
    ("cut", "shape"),
    [
        ("block1", (128, 16, 16)),
        ("block2", (128, 8, 8)),
        ("block3", (128, 4, 4)),
        ("features", (128,)),
    ],
)
def test_published_shapes(cut, shape):
    with torch.no_grad():
        assert VGG32().eval().pre(torch.zeros(1, 3, 32, 32), cut).shape == (1, *shape)


def test_width_scales_every_channel():
    backbone = VGG32(width=8)
    assert backbone.feature_dim == 16
    assert [getattr(backbone, f"conv{i}").out_channels for i in range(1, 10)] == [8, 8, *[16] * 7]
    assert backbone.make_head(5).weight.shape == (5, 16)


@pytest.mark.parametrize("size", [8, 17, 64])
def test_any_image_size(size):
    assert VGG32(width=4)(torch.zeros(2, 3, size, size)).shape == (2, 8)


def test_first_layer_and_average_by_hand():
    backbone = VGG32(width=2).eval()
    x = torch.randn(2, 3, 8, 8, generator=seeded(0))
    conv1 = nn.functional.conv2d(x, backbone.conv1.weight, padding=1)
    scale = backbone.bn1.weight / (1 + 1e-5) ** 0.5
    first = conv1 * scale[:, None, None]
    first = torch.where(first > 0, first, 0.2 * first)
    recorded = []
    backbone.conv2.register_forward_pre_hook(lambda module, inputs: recorded.append(inputs[0]))
    features = backbone(x)
    assert torch.allclose(recorded[0], first, atol=1e-6)
    assert torch.allclose(features, backbone.pre(x, "block3").sum((2, 3)), atol=1e-6)  # one position is left


def test_initial_distributions():
    backbone = VGG32(generator=seeded(0))
    for i in range(1, 10):
        weight, norm = getattr(backbone, f"conv{i}").weight, getattr(backbone, f"bn{i}")
        assert weight.std().item() == pytest.approx(0.05, rel=0.05)
        assert abs(weight.mean().item()) < 0.005
        assert norm.weight.mean().item() == pytest.approx(1.0, abs=0.01)
        assert norm.weight.std().item() == pytest.approx(0.02, rel=0.35)
        assert torch.count_nonzero(norm.bias) == 0
    head = backbone.make_head(50, generator=seeded(0))
    assert head.bias is None
    assert 0.98 * 128**-0.5 < head.weight.abs().max() <= 128**-0.5


def test_weights_come_from_the_generator_alone():
    torch.manual_seed(1)
    first = VGG32ABN(width=4, generator=seeded(3)).state_dict()
    torch.manual_seed(2)
    second = VGG32ABN(width=4, generator=seeded(3)).state_dict()
    third = VGG32ABN(width=4, generator=seeded(4)).state_dict()
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert not torch.equal(first["conv1.weight"], third["conv1.weight"])
    assert not torch.equal(first["bn1.bns.0.weight"], first["bn1.bns.1.weight"])


def test_dropout_drops_whole_channels_before_each_block_and_only_in_training():
    backbone = VGG32(width=8, dropout=0.5)
    entering = {}
    for name in ("conv1", "conv4", "conv7"):
        backbone.get_submodule(name).register_forward_pre_hook(
            lambda module, inputs, name=name: entering.__setitem__(name, inputs[0])
        )
    torch.manual_seed(0)
    backbone(torch.ones(16, 3, 16, 16))
    for name, hidden in entering.items():
        silent = (hidden == 0).flatten(2).all(2)
        assert 0.3 < silent.float().mean() < 0.7, name
    # What survives is scaled up, so that the expectation stays.
    assert set(entering["conv1"].unique().tolist()) == {0.0, 2.0}
    backbone.eval()(torch.ones(16, 3, 16, 16))
    assert set(entering["conv1"].unique().tolist()) == {1.0}


def test_one_image_can_be_trained_on():
    features = VGG32(width=4)(torch.randn(1, 3, 32, 32, generator=seeded(0)))
    features.sum().backward()
    assert torch.isfinite(features).all()


def test_branches_of_abn_are_independent():
    backbone = VGG32ABN(width=4, dropout=0.0)
    with branch(backbone, 1):
        backbone(torch.randn(8, 3, 16, 16, generator=seeded(0)))
    state = backbone.state_dict()
    assert all(state[f"bn{i}.bns.0.num_batches_tracked"] == 0 for i in range(1, 10))
    assert all(state[f"bn{i}.bns.1.num_batches_tracked"] == 1 for i in range(1, 10))
    backbone.eval()
    x = torch.randn(2, 3, 16, 16, generator=seeded(1))
    real = backbone(x)
    with branch(backbone, 1):
        generated = backbone(x)
    assert not torch.allclose(real, generated)
    assert torch.equal(real, backbone(x))
