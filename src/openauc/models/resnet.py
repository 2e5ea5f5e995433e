"""ResNet-50 with torchvision's key names, for large images such as those of CUB."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from openauc.models.base import Backbone

_EXPANSION = 4
_DEPTHS = {"layer1": 3, "layer2": 4, "layer3": 6, "layer4": 3}


class Bottleneck(nn.Module):
    """1x1, 3x3, 1x1 convolutions around a shortcut; the stride sits on the 3x3 one ("v1.5")."""

    def __init__(self, in_channels: int, channels: int, stride: int) -> None:
        super().__init__()
        out_channels = _EXPANSION * channels
        self.conv1 = nn.Conv2d(in_channels, channels, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.conv3 = nn.Conv2d(channels, out_channels, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(out_channels)
        self.downsample: nn.Module = nn.Identity()
        if stride != 1 or in_channels != out_channels:
            projection = nn.Conv2d(in_channels, out_channels, 1, stride=stride, bias=False)
            self.downsample = nn.Sequential(projection, nn.BatchNorm2d(out_channels))

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.relu(self.bn1(self.conv1(x)), inplace=True)
        hidden = F.relu(self.bn2(self.conv2(hidden)), inplace=True)
        return F.relu(self.bn3(self.conv3(hidden)) + self.downsample(x), inplace=True)


class ResNet50(Backbone):
    """Fifty layers in a stem and four stages of bottlenecks, then a global average.

    Convolutions start from a normal distribution scaled by their fan-out, BatchNorms from the identity.

    Parameters
    ----------
    width, generator
        Channels of the stem, 64 as published, where the feature has D = 32 width; source of the initial weights.

    Examples
    --------
    >>> ResNet50(width=2)(torch.zeros(2, 3, 64, 64)).shape
    torch.Size([2, 64])
    """

    cut_points = ("input", "stem", "layer1", "layer2", "layer3", "layer4", "features")

    def __init__(self, *, width: int = 64, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        in_channels = width
        for i, (name, depth) in enumerate(_DEPTHS.items()):
            channels = width * 2**i
            first = Bottleneck(in_channels, channels, stride=1 if name == "layer1" else 2)
            in_channels = _EXPANSION * channels
            rest = [Bottleneck(in_channels, channels, stride=1) for _ in range(depth - 1)]
            self.add_module(name, nn.Sequential(first, *rest))
        self.feature_dim = in_channels
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu", generator=generator)

    def stage(self, name: str, hidden: Tensor) -> Tensor:
        """Run the stem, one of the four stages, or the average over positions for ``"features"``."""
        if name == "features":
            return hidden.mean(dim=(2, 3))
        if name == "stem":
            return F.max_pool2d(F.relu(self.bn1(self.conv1(hidden)), inplace=True), 3, stride=2, padding=1)
        out: Tensor = self.get_submodule(name)(hidden)
        return out

    def make_head(self, num_classes: int, *, generator: torch.Generator | None = None) -> nn.Linear:
        """Return a new linear head with weights and bias from N(0, 1), as the CUB experiments start it."""
        head = nn.Linear(self.feature_dim, num_classes)
        for parameter in head.parameters():
            nn.init.normal_(parameter, generator=generator)
        return head
