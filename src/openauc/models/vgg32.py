"""classifier32, called VGG32 in the papers, and its two-branch variant for ARPL+CS."""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from openauc.models.base import Backbone, BranchedBatchNorm2d, draw_convolutional

_BLOCKS = {"block1": (1, 2, 3), "block2": (4, 5, 6), "block3": (7, 8, 9)}


class VGG32(Backbone):
    r"""Nine 3x3 convolutions in three blocks, each block halving the side, then a global average.

    Every convolution (no bias) is followed by BatchNorm and LeakyReLU with slope 0.2. Dropout before each block drops
    whole channels, before the first block colour channels of the image. Any image size works: the side
    before the average is H/8, rounded up. The key names are the published ones (``conv1`` .. ``conv9``,
    ``bn1`` .. ``bn9``) without the tenth BatchNorm of the published files, which is never used. The head has no bias.

    Parameters
    ----------
    width : int
        Channels of the first two convolutions, 64 as published; the others have twice as many, and so has the
        feature: D = 2 width.
    dropout : float
        Share of channels dropped before each block in training mode.
    generator : torch.Generator, optional
        Source of the initial weights.

    Examples
    --------
    >>> VGG32(width=8)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 16])
    """

    cut_points = ("input", "block1", "block2", "block3", "features")
    head_bias = False
    _norm: ClassVar[type[nn.Module]] = nn.BatchNorm2d

    def __init__(self, *, width: int = 64, dropout: float = 0.2, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.feature_dim = 2 * width
        self.dropout = dropout
        channels = (3, width, width, *[2 * width] * 7)
        for i in range(1, 10):
            stride = 2 if i % 3 == 0 else 1
            convolution = nn.Conv2d(channels[i - 1], channels[i], 3, stride=stride, padding=1, bias=False)
            self.add_module(f"conv{i}", convolution)
            self.add_module(f"bn{i}", self._norm(channels[i]))
        draw_convolutional(self, std=0.05, generator=generator)

    def stage(self, name: str, hidden: Tensor) -> Tensor:
        """Run one block, its dropout included, or the average over positions for ``"features"``."""
        if name == "features":
            return hidden.mean(dim=(2, 3))
        hidden = F.dropout2d(hidden, self.dropout, self.training)
        for i in _BLOCKS[name]:
            convolution, norm = getattr(self, f"conv{i}"), getattr(self, f"bn{i}")
            hidden = F.leaky_relu(norm(convolution(hidden)), 0.2, inplace=True)
        return hidden


class VGG32ABN(VGG32):
    """VGG32 with two BatchNorms in place of each: branch 0 for real images, branch 1 for generated images.

    :func:`openauc.models.branch` selects one; outside it, and so at test time, branch 0 is in use.
    """

    _norm = BranchedBatchNorm2d
