"""Generator and discriminator of ARPL+CS, which together make confusing samples."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from openauc.models.base import draw_convolutional, draw_default_linear


class Generator(nn.Module):
    """Noise to images in [0, 1]: transposed convolutions from 4x4 upwards, each doubling the side.

    BatchNorm and ReLU follow all but the last, a sigmoid the last. The published sizes are 32 and 64; other
    powers of two from 8 on follow the same rule.

    Parameters
    ----------
    image_size, noise_dim : int
        Side of the images; length of one noise vector.
    width : int
        Channels of the 4x4 map, 512 as published, halved with each doubling of the side.
    generator : torch.Generator, optional
        Source of the initial weights.

    Examples
    --------
    >>> Generator(32, width=16)(torch.zeros(2, 100)).shape
    torch.Size([2, 3, 32, 32])
    """

    def __init__(
        self, image_size: int = 32, noise_dim: int = 100, *, width: int = 512, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        doublings = image_size.bit_length() - 3
        if image_size < 8 or image_size != 4 * 2**doublings:
            raise ValueError(f"image_size is {image_size}; pass 32, 64 or another power of two from 8 on.")
        if width < (least := 2 ** (doublings - 1)):
            raise ValueError(f"width is {width}; images of {image_size} pixels need at least {least}.")
        self.noise_dim = noise_dim
        channels = [width // 2**i for i in range(doublings)]
        layers: list[nn.Module] = [nn.ConvTranspose2d(noise_dim, width, 4, bias=False)]
        for in_channels, out_channels in zip(channels, [*channels[1:], 3], strict=True):
            layers += [nn.BatchNorm2d(in_channels), nn.ReLU(inplace=True)]
            layers += [nn.ConvTranspose2d(in_channels, out_channels, 4, stride=2, padding=1, bias=False)]
        self.layers = nn.Sequential(*layers, nn.Sigmoid())
        draw_convolutional(self, std=0.02, generator=generator)

    def forward(self, noise: Tensor) -> Tensor:
        """Return images, shape (B, 3, H, W), for noise of shape (B, noise_dim) or (B, noise_dim, 1, 1)."""
        images: Tensor = self.layers(noise.reshape(-1, self.noise_dim, 1, 1))
        return images


class Discriminator(nn.Module):
    """Images to the log odds of being real: four convolutions, a global average, a linear layer.

    Images smaller than 32 px, which the last convolution could not cover, are enlarged to 32 px first.

    Parameters
    ----------
    width : int
        Channels of the first convolution, 128 as published, doubled by each of the next three.
    generator : torch.Generator, optional
        Source of the initial weights.

    Examples
    --------
    >>> Discriminator(width=4)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2])
    """

    def __init__(self, *, width: int = 128, generator: torch.Generator | None = None) -> None:
        super().__init__()
        if width < 1:
            raise ValueError(f"width is {width}; pass a positive number of channels, 128 as published.")
        layers: list[nn.Module] = [nn.Conv2d(3, width, 4, stride=2, padding=1, bias=False)]
        for channels in (2 * width, 4 * width):
            layers += [nn.LeakyReLU(0.2, inplace=True)]
            layers += [nn.Conv2d(channels // 2, channels, 4, stride=2, padding=1, bias=False)]
            layers += [nn.BatchNorm2d(channels)]
        last = nn.Conv2d(4 * width, 8 * width, 4, bias=False)
        self.layers = nn.Sequential(*layers, nn.LeakyReLU(0.2, inplace=True), last, nn.Sigmoid())
        draw_convolutional(self, std=0.02, generator=generator)
        self.classifier = draw_default_linear(nn.Linear(8 * width, 1), generator)

    def forward(self, images: Tensor) -> Tensor:
        """Return the log odds of being real, shape (B,), of images, shape (B, 3, H, W)."""
        if min(images.shape[-2:]) < 32:
            images = F.interpolate(images, size=(32, 32))
        score: Tensor = self.classifier(self.layers(images).mean(dim=(2, 3)))
        return score.squeeze(1)
