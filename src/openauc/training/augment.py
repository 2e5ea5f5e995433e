"""Augmentation of whole batches of uint8 images, on their own device, equal to Pillow's pixel by pixel.

Images are (B, 3, H, W) uint8 tensors. An operation takes a group of images, its strength v and two uniform
numbers per image, and returns the changed group. It draws nothing itself, so that the draws of a batch depend
on its size alone.
"""

import math
from collections.abc import Callable
from functools import lru_cache, partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from openauc.recipe import Operations, Recipe

MEAN = (0.4914, 0.4822, 0.4465)
STD = (0.2023, 0.1994, 0.2010)
CROP_PADDING = 4
CUTOUT_COLOUR = (125, 123, 114)
HIGHEST_MAGNITUDE = 30

# Output pixel (x, y) shows input pixel (a x + b y + c, d x + e y + f).
Matrix = tuple[float, float, float, float, float, float]


def auto_contrast(images: Tensor, strength: float, uniform: Tensor) -> Tensor:
    """Stretch each channel linearly until its darkest value is 0 and its brightest 255; v is not used."""
    lowest = images.amin((2, 3), keepdim=True).double()
    highest = images.amax((2, 3), keepdim=True).double()
    # A channel of one value stays as it is. Double precision and the order of the terms decide the last bit;
    # torch would turn number / tensor into number * reciprocal, which rounds twice.
    constant = highest == lowest
    scale = torch.where(constant, 1.0, torch.full_like(lowest, 255) / (highest - lowest))
    offset = torch.where(constant, 0.0, -lowest * scale)
    return images.double().mul_(scale).add_(offset).clamp_(0, 255).to(torch.uint8)


def equalize(images: Tensor, strength: float, uniform: Tensor) -> Tensor:
    """Flatten the histogram of each channel; v is not used. Images of fewer than 256 pixels are not changed."""
    batch, channels = images.shape[:2]
    values = images.flatten(2).long()
    first_bin = 256 * torch.arange(batch * channels, device=images.device).view(batch, channels, 1)
    counts = torch.bincount((values + first_bin).flatten(), minlength=256 * batch * channels)
    histogram = counts.view(batch, channels, 256)
    brightest = values.amax(2, keepdim=True)
    step = (values.shape[2] - histogram.gather(2, brightest)) // 255  # (B, 3, 1)
    below = histogram.cumsum(2) - histogram
    table = torch.clamp_max((step // 2 + below) // step.clamp(min=1), 255)
    unchanged = torch.arange(256, device=images.device)
    table = torch.where(step == 0, unchanged, table).to(torch.uint8)  # (B, 3, 256), one for each channel
    return table.gather(2, values).view_as(images)


def posterize(images: Tensor, strength: float, uniform: Tensor) -> Tensor:
    """Keep the max(1, floor v) highest bits of each value."""
    dropped = 8 - max(1, int(strength))
    return images & (0xFF << dropped & 0xFF)


def solarize(images: Tensor, strength: float, uniform: Tensor) -> Tensor:
    """Invert the values at or above v."""
    return torch.where(images < strength, images, 255 - images)


def solarize_add(images: Tensor, strength: float, uniform: Tensor) -> Tensor:
    """Add floor v to each value, clip at 255, then invert the values at or above 128."""
    brighter = (images.short() + int(strength)).clamp_(max=255).to(torch.uint8)
    return solarize(brighter, 128, uniform)


def color(images: Tensor, strength: float, uniform: Tensor) -> Tensor:
    """Blend with the grey image: v = 0 is grey, 1 the image itself."""
    values = images.float()
    return _blend(_grey(values), values, strength)


def contrast(images: Tensor, strength: float, uniform: Tensor) -> Tensor:
    """Blend with the mean grey value: v = 0 is uniform, 1 the image itself."""
    values = images.float()
    grey = _grey(values).flatten(1).long()
    pixels = grey.shape[1]
    mean = (2 * grey.sum(1) + pixels) // (2 * pixels)  # rounded half up
    return _blend(mean.view(-1, 1, 1, 1).float(), values, strength)


def sharpness(images: Tensor, strength: float, uniform: Tensor) -> Tensor:
    """Blend with the smoothed image: v = 0 is smoothed, 1 the image itself, 2 sharpened. The border stays."""
    values = images.float()
    inner = values[:, :, 1:-1, 1:-1]
    rows = (values[:, :, :-2] + values[:, :, 1:-1]).add_(values[:, :, 2:])
    neighbourhood = (rows[..., :-2] + rows[..., 1:-1]).add_(rows[..., 2:])
    # Weights 5 in the centre and 1 around it, over 13. Sums are whole, so that rounding never meets a tie.
    smooth = neighbourhood.add_(inner, alpha=4).add_(6.5).mul_(1 / 13).floor_()
    result = images.clone()
    result[:, :, 1:-1, 1:-1] = _blend(smooth, inner, strength)
    return result


def rotation(degrees: float, height: int, width: int) -> Matrix:
    """Matrix of a turn about the centre."""
    angle = -math.radians(degrees % 360)
    cos, sin = round(math.cos(angle), 15), round(math.sin(angle), 15)
    x, y = width / 2, height / 2
    return (cos, sin, cos * -x + sin * -y + x, -sin, cos, -sin * -x + cos * -y + y)


def affine(matrix: Callable[..., Matrix], images: Tensor, strength: float, uniform: Tensor) -> Tensor:
    """Transform each image by the matrix of v or of -v, equally likely; nearest neighbour, black outside."""
    size = images.shape[2:]
    source, inside = _sources((matrix(strength, *size), matrix(-strength, *size)), *size, images.device)
    which = (uniform[:, 0] >= 0.5).long()
    index = source.index_select(0, which).unsqueeze(1).expand(-1, images.shape[1], -1)
    moved = images.flatten(2).gather(2, index)
    return moved.mul_(inside.index_select(0, which).unsqueeze(1)).view_as(images)


def cutout(images: Tensor, strength: float, uniform: Tensor) -> Tensor:
    """Cover a square of side v about a uniform centre, clipped at the border, with one colour.

    Drawn as Pillow draws the rectangle from (x, y) to (x + v, y + v): both ends belong to it, so that it
    measures floor(v) + 1 pixels.
    """
    height, width = images.shape[2:]
    centre = uniform * torch.tensor([width, height], device=images.device)
    first = (centre - strength / 2).clamp_(min=0).floor_().unsqueeze(2)  # (B, 2, 1)
    half = int(strength) / 2
    axis = torch.arange(max(height, width), device=images.device)
    inside = (axis - (first + half)).abs_() <= half  # (B, 2, max(H, W)): columns, rows
    covered = inside[:, 1, None, :height, None] & inside[:, 0, None, None, :width]  # (B, 1, H, W)
    colour = torch.tensor(CUTOUT_COLOUR, dtype=torch.uint8, device=images.device).view(3, 1, 1)
    return torch.where(covered, colour, images)


class Operation(NamedTuple):
    """One RandAugment operation: magnitude M means strength v = low + (high - low) M / 30."""

    apply: Callable[[Tensor, float, Tensor], Tensor]
    low: float
    high: float
    for_digits: bool = True

    def strength(self, magnitude: int) -> float:
        return self.low + (self.high - self.low) * magnitude / HIGHEST_MAGNITUDE


OPERATIONS: dict[str, Operation] = {
    "AutoContrast": Operation(auto_contrast, 0, 1),
    "Equalize": Operation(equalize, 0, 1),
    "Invert": Operation(lambda images, *_: 255 - images, 0, 1),
    "Rotate": Operation(partial(affine, rotation), 0, 30, for_digits=False),
    "Posterize": Operation(posterize, 0, 4),
    "Solarize": Operation(solarize, 0, 256),
    "SolarizeAdd": Operation(solarize_add, 0, 110),
    "Color": Operation(color, 0.1, 1.9),
    "Contrast": Operation(contrast, 0.1, 1.9),
    "Brightness": Operation(lambda images, strength, _: _to_uint8(images.float().mul_(strength)), 0.1, 1.9),
    "Sharpness": Operation(sharpness, 0.1, 1.9),
    "ShearX": Operation(partial(affine, lambda v, *_: (1, v, 0, 0, 1, 0)), 0, 0.3),
    "ShearY": Operation(partial(affine, lambda v, *_: (1, 0, 0, v, 1, 0)), 0, 0.3),
    "CutoutAbs": Operation(cutout, 0, 40),
    "TranslateXabs": Operation(partial(affine, lambda v, *_: (1, 0, v, 0, 1, 0)), 0, 100, for_digits=False),
    "TranslateYabs": Operation(partial(affine, lambda v, *_: (1, 0, 0, 0, 1, v)), 0, 100, for_digits=False),
}


def rand_augment(
    images: Tensor, generator: torch.Generator, *, n: int, magnitude: int, operations: Operations = "all"
) -> Tensor:
    """Apply n operations, drawn uniformly with replacement for each image, at one magnitude.

    Parameters
    ----------
    images
        uint8 images (B, 3, H, W), which stay as they are.
    generator
        The draws depend on it and on B alone.
    n, magnitude
        Operations per image; magnitude from 0 to 30. Neither end is always the milder one: Posterize and
        Solarize are harshest at 0, and the blends leave an image alone at 15.
    operations : {"all", "digits"}
        All 16, or the 13 that neither rotate nor translate.
    """
    chosen = [operation for operation in OPERATIONS.values() if operations == "all" or operation.for_digits]
    for _ in range(n):
        choice = torch.randint(len(chosen), (len(images),), generator=generator, device=generator.device)
        uniform = torch.rand(len(images), 2, generator=generator, device=generator.device)
        # Each group of images with one choice goes through its operation.
        order = choice.argsort()
        sizes = torch.bincount(choice, minlength=len(chosen)).tolist()
        grouped = images.index_select(0, order.to(images.device))
        numbers = uniform[order].to(images.device)
        groups = zip(chosen, torch.split(grouped, sizes), torch.split(numbers, sizes), strict=True)
        for operation, group, group_numbers in groups:
            if len(group):
                group.copy_(operation.apply(group, operation.strength(magnitude), group_numbers))
        images = grouped.index_select(0, order.argsort().to(images.device))
    return images


def resize(images: Tensor, size: int) -> Tensor:
    """Resize uint8 images (B, C, H, W) to squares, bilinear with antialiasing, as Pillow does.

    First along the rows, then along the columns, each rounded to whole values; weights have 22 binary places.
    ``F.interpolate`` rounds otherwise and differs for most pairs of sizes.
    """
    if images.shape[3] != size:
        images = _resize_columns(images.transpose(2, 3), size).transpose(2, 3)
    if images.shape[2] != size:
        images = _resize_columns(images, size)
    return images.contiguous()


def random_crop(images: Tensor, padding: int, generator: torch.Generator) -> Tensor:
    """Cut windows of the old size at random from uint8 images framed in black."""
    batch, channels, height, width = images.shape
    offsets = torch.randint(2 * padding + 1, (2, batch, 1, 1), generator=generator, device=generator.device)
    top, left = offsets.to(images.device)
    framed = F.pad(images, (padding,) * 4)
    planes = torch.arange(batch * channels, device=images.device).view(batch, channels, 1)
    rows = planes * framed.shape[2] + top + torch.arange(height, device=images.device)  # (B, C, H)
    # A row of a window is a run of W values of the flattened batch; picking runs beats picking pixels.
    runs = framed.flatten().unfold(0, width, 1)
    return runs.index_select(0, (rows * framed.shape[3] + left).flatten()).view_as(images)


def random_flip(images: Tensor, generator: torch.Generator) -> Tensor:
    """Mirror each image left to right with probability one half."""
    mirrored = torch.randint(2, (len(images), 1, 1, 1), generator=generator, device=generator.device)
    return torch.where(mirrored.to(images.device, torch.bool), images.flip(3), images)


def to_float(images: Tensor, *, normalize: bool) -> Tensor:
    """Bring uint8 images (B, 3, H, W) into [0, 1]; if asked, subtract ``MEAN`` and divide by ``STD``.

    >>> to_float(torch.tensor([0, 51, 255], dtype=torch.uint8).view(1, 3, 1, 1), normalize=False).flatten()
    tensor([0.0000, 0.2000, 1.0000])
    """
    if not normalize:
        return images.float().div_(255)
    mean, std = 255 * torch.tensor([MEAN, STD], device=images.device).view(2, 3, 1, 1)
    return images.float().sub_(mean).div_(std)


def transform(images: Tensor, recipe: Recipe, generator: torch.Generator | None = None) -> Tensor:
    """Images as a network of this recipe gets them: RandAugment at native size, resize, crop, flip, float.

    The same generator state gives the same output. A generator on the CPU serves images on any device and spares a GPU
    from waiting for the draws. The device needs float64, which CPU and CUDA have.

    Parameters
    ----------
    images
        uint8 images (B, 3, S, S), or features (B, d), which are returned as they are.
    recipe
        Supplies augmentation, normalisation and the final size.
    generator
        Source of what the recipe draws at random. Without it nothing is drawn: images as a test sees them.

    Returns
    -------
    Tensor
        Float images (B, 3, image_size, image_size), with the channels innermost in memory.
    """
    if images.ndim == 2:
        if recipe.augmentation != "none":
            raise ValueError(f"augmentation is {recipe.augmentation!r}, but these are embeddings; set it to 'none'.")
        return images
    if images.dtype != torch.uint8:
        raise TypeError(f"images have dtype {images.dtype}; pass torch.uint8 values from 0 to 255.")
    if images.ndim != 4 or images.shape[1] != 3 or images.shape[2] != images.shape[3] or len(images) == 0:
        raise ValueError(f"images have shape {tuple(images.shape)}; expected (B, 3, S, S): square, in three channels.")
    if generator is not None and recipe.augmentation == "rand_augment":
        n, magnitude, operations = recipe.rand_augment_n, recipe.rand_augment_m, recipe.rand_augment_ops
        images = rand_augment(images, generator, n=n, magnitude=magnitude, operations=operations)
    images = resize(images, recipe.image_size)
    if generator is not None and recipe.augmentation != "none":
        images = random_flip(random_crop(images, CROP_PADDING, generator), generator)
    return to_float(images, normalize=recipe.normalize).contiguous(memory_format=torch.channels_last)


def _grey(values: Tensor) -> Tensor:
    """ITU-R 601 luma in 16-bit fixed point, (B, 1, H, W); sums stay below 2^24, so that float32 is exact."""
    red, green, blue = torch.split(values, 1, dim=1)
    weighted = (19595 * red).add_(green, alpha=38470).add_(blue, alpha=7471)
    return weighted.add_(0x8000).mul_(2**-16).floor_()


def _blend(degenerate: Tensor, values: Tensor, strength: float) -> Tensor:
    # Single precision with one rounding per term decides the last bit.
    return _to_uint8((values - degenerate).mul_(strength).add_(degenerate))


def _to_uint8(values: Tensor) -> Tensor:
    """Clip to 0..255 and drop the fraction. Through int16 this is twice as fast."""
    return values.clamp_(0, 255).short().to(torch.uint8)


@lru_cache(maxsize=64)
def _sources(matrices: tuple[Matrix, ...], height: int, width: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Input pixel shown at each output pixel, and 1 where it exists, else 0; both (matrices, H W)."""
    x = torch.arange(width).repeat(height)
    y = torch.arange(height).repeat_interleave(width)
    sources, insides = [], []
    for a, b, c, d, e, f in matrices:
        # 16.16 fixed point, pixel centres at one half.
        across = (_fixed(a) * x + _fixed(b) * y + _fixed(c + 0.5 * a + 0.5 * b)) >> 16
        down = (_fixed(d) * x + _fixed(e) * y + _fixed(f + 0.5 * d + 0.5 * e)) >> 16
        inside = (across >= 0) & (across < width) & (down >= 0) & (down < height)
        sources.append(torch.where(inside, down * width + across, 0))
        insides.append(inside.to(torch.uint8))
    return torch.stack(sources).to(device), torch.stack(insides).to(device)


def _fixed(value: float) -> int:
    return math.floor(value * 65536 + 0.5)


def _resize_columns(images: Tensor, size: int) -> Tensor:
    """Resize along the height; the weights are laid out in full because broadcasting them is slower."""
    values = images.contiguous().int()
    total = torch.tensor(1 << 21, dtype=torch.int32, device=images.device)  # one half, for rounding
    for source, share in zip(*_taps(images.shape[2], size, images.device), strict=True):
        weights = share.unsqueeze(1).expand(size, images.shape[3]).contiguous()
        total = values.index_select(2, source).mul_(weights).add_(total)
    return total.bitwise_right_shift_(22).to(torch.uint8)


@lru_cache(maxsize=64)
def _taps(old: int, new: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Input index and 22-bit weight of each tap of each output pixel, both (taps, new)."""
    scale = old / new
    reach = max(scale, 1.0)  # half the width of the triangle filter
    indices, weights = [], []
    for pixel in range(new):
        centre = (pixel + 0.5) * scale
        covered = range(max(0, int(centre - reach + 0.5)), min(old, int(centre + reach + 0.5)))
        shares = [max(0.0, 1.0 - abs((tap - centre + 0.5) / reach)) for tap in covered]
        total = sum(shares)
        indices.append(torch.tensor(covered))
        weights.append(torch.tensor([int(0.5 + share / total * (1 << 22)) for share in shares]))
    return pad_sequence(indices).to(device), pad_sequence(weights).int().to(device)
