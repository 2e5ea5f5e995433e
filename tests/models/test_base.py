import pytest
import torch
from torch import Tensor, nn

from openauc.models.base import Backbone, BranchedBatchNorm2d, branch, clean_statistics
from openauc.models.resnet import ResNet50
from openauc.models.vgg32 import VGG32, VGG32ABN


class Affine(Backbone):
    """The smallest backbone: double, then add one, on images of one pixel."""

    feature_dim = 3
    cut_points = ("input", "double", "features")

    def stage(self, name: str, hidden: Tensor) -> Tensor:
        return 2 * hidden if name == "double" else hidden.flatten(1) + 1


def images(count: int = 4, size: int = 16) -> Tensor:
    return torch.randn(count, 3, size, size, generator=torch.Generator().manual_seed(0))


BACKBONES = [
    pytest.param(lambda: VGG32(width=4, dropout=0.0), id="vgg32"),
    pytest.param(lambda: VGG32ABN(width=4, dropout=0.0), id="vgg32_abn"),
    pytest.param(lambda: ResNet50(width=2), id="resnet50"),
]


def test_hand_made_backbone():
    backbone = Affine()
    x = torch.full((2, 3, 1, 1), 5.0)
    assert torch.equal(backbone.pre(x, "input"), x)
    assert torch.equal(backbone.pre(x, "double"), 2 * x)
    assert torch.equal(backbone.post(x, "double"), torch.full((2, 3), 6.0))
    assert torch.equal(backbone(x), torch.full((2, 3), 11.0))
    features = torch.zeros(2, 3)
    assert backbone.post(features, "features") is features


def test_stage_is_the_subclass_duty():
    class Empty(Backbone):
        cut_points = ("input", "features")

    with pytest.raises(NotImplementedError, match="Empty does not define stage"):
        Empty()(torch.zeros(1, 3, 1, 1))


def test_unknown_cut_point():
    with pytest.raises(ValueError, match="'middle'; expected one of 'input', 'double', 'features'"):
        Affine().pre(torch.zeros(1, 3, 1, 1), "middle")
    with pytest.raises(ValueError, match="cut is 'head'"):
        Affine().post(torch.zeros(1, 3), "head")


def test_default_head_is_pytorchs():
    head = Affine().make_head(1000, generator=torch.Generator().manual_seed(0))
    again = Affine().make_head(1000, generator=torch.Generator().manual_seed(0))
    other = Affine().make_head(1000, generator=torch.Generator().manual_seed(1))
    bound = 3**-0.5
    assert head.weight.shape == (1000, 3)
    for parameter in head.parameters():
        assert 0.98 * bound < parameter.abs().max() <= bound
        assert abs(parameter.mean().item()) < 0.05
    assert torch.equal(head.weight, again.weight)
    assert not torch.equal(head.weight, other.weight)


@pytest.mark.parametrize("make", BACKBONES)
@pytest.mark.parametrize("training", [False, True])
def test_every_cut_gives_the_same_features(make, training):
    backbone = make().train(training)
    x = images(size=32)
    assert backbone.cut_points[0] == "input"
    assert backbone.cut_points[-1] == "features"
    with torch.no_grad(), clean_statistics(backbone):
        features = backbone(x)
        assert features.shape == (4, backbone.feature_dim)
        for cut in backbone.cut_points:
            assert torch.equal(backbone.post(backbone.pre(x, cut), cut), features), cut


@pytest.mark.parametrize("make", BACKBONES)
def test_bfloat16_channels_last(make):
    backbone = make().to(memory_format=torch.channels_last).eval()
    x = images(size=32).contiguous(memory_format=torch.channels_last)
    with torch.no_grad():
        exact = backbone(x)
        with torch.autocast("cpu", torch.bfloat16):
            rounded = backbone(x)
            hidden = backbone.pre(x, backbone.cut_points[-2])
    assert hidden.dtype == torch.bfloat16
    assert hidden.is_contiguous(memory_format=torch.channels_last)
    assert (rounded.float() - exact).norm() < 0.05 * exact.norm()


@pytest.mark.parametrize("make", BACKBONES)
def test_every_parameter_of_the_branch_in_use_gets_a_gradient(make):
    backbone = make()
    backbone(images(size=32)).square().sum().backward()
    unused = {name for name, parameter in backbone.named_parameters() if parameter.grad is None}
    assert unused == {name for name, _ in backbone.named_parameters() if ".bns.1." in name}


@pytest.mark.parametrize("make", BACKBONES)
def test_clean_statistics_leaves_no_trace(make):
    backbone = make()
    before = {key: value.clone() for key, value in backbone.state_dict().items()}
    with clean_statistics(backbone):
        clean = backbone(images(size=32))
    assert all(torch.equal(value, before[key]) for key, value in backbone.state_dict().items())

    # Outside the context the same batch gives the same features, and the statistics move again.
    tracked = backbone(images(size=32))
    assert torch.equal(tracked, clean)
    moved = {key for key, value in backbone.state_dict().items() if not torch.equal(value, before[key])}
    expected = {key for key in before if "running_" in key or "num_batches" in key}
    assert moved == {key for key in expected if ".bns.1." not in key}


def test_clean_statistics_uses_running_statistics_in_evaluation():
    norm = nn.BatchNorm1d(1).eval()
    norm.running_mean.fill_(10.0)
    with clean_statistics(norm):
        assert torch.allclose(norm(torch.tensor([[10.0], [12.0]])), torch.tensor([[0.0], [2.0]]), atol=1e-4)


def test_clean_statistics_restores_each_layer_after_an_error():
    norms = nn.Sequential(nn.BatchNorm1d(1), nn.BatchNorm1d(1, track_running_stats=False))
    with pytest.raises(RuntimeError, match="inside"), clean_statistics(norms):
        raise RuntimeError("inside")
    assert [norm.track_running_stats for norm in norms] == [True, False]


def test_branch_selects_statistics_and_weights():
    norm = BranchedBatchNorm2d(1)
    x = torch.full((2, 1, 2, 2), 3.0)
    with branch(norm, 1):
        norm(x)
    real, generated = norm.bns
    assert real.num_batches_tracked == 0
    assert real.running_mean.item() == 0.0
    assert generated.num_batches_tracked == 1
    assert generated.running_mean.item() == pytest.approx(0.3)  # momentum 0.1 from 0 towards 3
    nn.init.constant_(generated.bias, 7.0)
    norm.eval()
    with branch(norm, 1):
        assert norm(torch.full((1, 1, 1, 1), 0.3)).item() == pytest.approx(7.0)
    assert norm(torch.zeros(1, 1, 1, 1)).item() == 0.0


def test_branch_nests_and_recovers():
    norm = BranchedBatchNorm2d(1)
    with branch(norm, 1):
        with branch(norm, 0):
            assert norm.branch == 0
        assert norm.branch == 1
        with pytest.raises(RuntimeError, match="inside"), branch(norm, 0):
            raise RuntimeError("inside")
        assert norm.branch == 1
    assert norm.branch == 0


def test_branch_refuses_what_is_not_there():
    with (
        pytest.raises(ValueError, match="branch index is 2; pass 0 for real or 1"),
        branch(VGG32ABN(width=2), 2),
    ):
        pass
    with pytest.raises(ValueError, match="VGG32 has no second BatchNorm branch"), branch(VGG32(width=2), 1):
        pass
    with branch(VGG32(width=2), 0):  # the only branch there is
        pass
