import pytest
import torch

from openauc.models.resnet import ResNet50


@pytest.fixture(scope="module")
def published() -> ResNet50:
    return ResNet50(generator=torch.Generator().manual_seed(0))


def published_keys() -> set[str]:
    norm = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    keys = {"conv1.weight", *(f"bn1.{name}" for name in norm)}
    for layer, depth in ((1, 3), (2, 4), (3, 6), (4, 3)):
        for block in range(depth):
            prefix = f"layer{layer}.{block}"
            for i in (1, 2, 3):
                keys |= {f"{prefix}.conv{i}.weight", *(f"{prefix}.bn{i}.{name}" for name in norm)}
        keys |= {f"layer{layer}.0.downsample.0.weight"}
        keys |= {f"layer{layer}.0.downsample.1.{name}" for name in norm}
    return keys


def test_published_parameter_count(published):
    modules = (published, published.make_head(1000))
    assert sum(parameter.numel() for module in modules for parameter in module.parameters()) == 25_557_032


def test_published_key_names(published):
    assert set(published.state_dict()) == published_keys()
    assert len(published_keys()) == 318  # 320 in torchvision, two of them the head's


def test_published_shapes():
    backbone = ResNet50(width=4).eval()
    x = torch.zeros(1, 3, 224, 224)
    shapes = {cut: tuple(backbone.pre(x, cut).shape[1:]) for cut in backbone.cut_points}
    assert shapes == {
        "input": (3, 224, 224),
        "stem": (4, 56, 56),
        "layer1": (16, 56, 56),
        "layer2": (32, 28, 28),
        "layer3": (64, 14, 14),
        "layer4": (128, 7, 7),
        "features": (128,),
    }


def test_stride_sits_on_the_3x3_convolution(published):
    strides = {name: module.stride for name, module in published.named_modules() if hasattr(module, "stride")}
    halving = {name for name, stride in strides.items() if stride == (2, 2)}
    expected = {f"layer{i}.0.{name}" for i in (2, 3, 4) for name in ("conv2", "downsample.0")}
    assert halving == {"conv1"} | expected


def test_shortcut_carries_the_input():
    block = ResNet50(width=2).layer1[1].eval()
    torch.nn.init.zeros_(block.bn3.weight)
    x = torch.randn(1, 8, 4, 4, generator=torch.Generator().manual_seed(0))
    assert torch.equal(block(x), x.clamp(min=0))


def test_initial_distributions(published):
    weight = published.layer3[1].conv2.weight
    assert weight.std().item() == pytest.approx((2 / (256 * 9)) ** 0.5, rel=0.02)
    head = published.make_head(100, generator=torch.Generator().manual_seed(0))
    assert published.feature_dim == 2048
    assert head.weight.std().item() == pytest.approx(1.0, rel=0.02)
    assert head.bias.std().item() == pytest.approx(1.0, rel=0.3)


def test_weights_come_from_the_generator_alone():
    first, second, third = (
        ResNet50(width=2, generator=torch.Generator().manual_seed(seed)).state_dict() for seed in (5, 5, 6)
    )
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert not torch.equal(first["conv1.weight"], third["conv1.weight"])
