"""Training and prediction as a first version would do them, to measure ours against.

A DataLoader, Pillow image by image, float32, channels before height and width; the network, its loss and its
optimiser are ours.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageEnhance, ImageOps
from torch import Tensor
from torch.optim import Optimizer
from torch.utils.data import DataLoader, Dataset

from openauc.methods.base import Method
from openauc.recipe import Recipe
from openauc.training.augment import CROP_PADDING, CUTOUT_COLOUR, MEAN, OPERATIONS, STD

Pixels = NDArray[np.uint8]
AFFINE = Image.Transform.AFFINE


def signed(v: float) -> float:
    return random.choice((v, -v))


def solarize_add(image: Image.Image, v: float) -> Image.Image:
    return ImageOps.solarize(image.point([min(value + int(v), 255) for value in range(256)] * 3), 128)


def cutout(image: Image.Image, v: float) -> Image.Image:
    left, top = (int(max(0, random.random() * side - v / 2)) for side in image.size)
    covered = image.copy()
    ImageDraw.Draw(covered).rectangle((left, top, left + v, top + v), CUTOUT_COLOUR)
    return covered


PILLOW: dict[str, Callable[[Image.Image, float], Image.Image]] = {
    "AutoContrast": lambda image, v: ImageOps.autocontrast(image),
    "Equalize": lambda image, v: ImageOps.equalize(image),
    "Invert": lambda image, v: ImageOps.invert(image),
    "Rotate": lambda image, v: image.rotate(signed(v)),
    "Posterize": lambda image, v: ImageOps.posterize(image, max(1, int(v))),
    "Solarize": lambda image, v: ImageOps.solarize(image, int(v)),
    "SolarizeAdd": solarize_add,
    "Color": lambda image, v: ImageEnhance.Color(image).enhance(v),
    "Contrast": lambda image, v: ImageEnhance.Contrast(image).enhance(v),
    "Brightness": lambda image, v: ImageEnhance.Brightness(image).enhance(v),
    "Sharpness": lambda image, v: ImageEnhance.Sharpness(image).enhance(v),
    "ShearX": lambda image, v: image.transform(image.size, AFFINE, (1, signed(v), 0, 0, 1, 0)),
    "ShearY": lambda image, v: image.transform(image.size, AFFINE, (1, 0, 0, signed(v), 1, 0)),
    "CutoutAbs": cutout,
    "TranslateXabs": lambda image, v: image.transform(image.size, AFFINE, (1, 0, signed(v), 0, 1, 0)),
    "TranslateYabs": lambda image, v: image.transform(image.size, AFFINE, (1, 0, 0, 0, 1, signed(v))),
}


class PillowTransform:
    """RandAugment, crop and flip of a recipe for one image after the other; all 16 operations."""

    def __init__(self, recipe: Recipe) -> None:
        self.n = recipe.rand_augment_n
        self.operations = [(PILLOW[name], op.strength(recipe.rand_augment_m)) for name, op in OPERATIONS.items()]
        self.mean, self.std = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, STD))

    def __call__(self, pixels: Pixels) -> Tensor:
        """(H, W, 3) uint8 to (3, H, W) float."""
        image = Image.fromarray(pixels)
        for apply, strength in random.choices(self.operations, k=self.n):
            image = apply(image, strength)
        left, top = (random.randint(0, 2 * CROP_PADDING) for _ in range(2))
        framed = ImageOps.expand(image, CROP_PADDING)
        image = framed.crop((left, top, left + image.width, top + image.height))
        if random.random() < 0.5:
            image = ImageOps.mirror(image)
        return (torch.from_numpy(np.array(image)).permute(2, 0, 1).float().div(255) - self.mean) / self.std


class PillowImages(Dataset[tuple[Tensor, int]]):
    def __init__(self, images: Pixels, labels: NDArray[np.int64], recipe: Recipe) -> None:
        self.images, self.labels = images, labels
        self.transform = PillowTransform(recipe)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        return self.transform(self.images[row]), int(self.labels[row])


def plain_step(method: Method, optimizer: Optimizer, x: Tensor, y: Tensor) -> float:
    optimizer.zero_grad()
    loss = method.loss(x, y)
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return loss.item()


def plain_epoch(method: Method, images: Pixels, labels: NDArray[np.int64], recipe: Recipe, workers: int) -> None:
    method.train()
    method.use_recipe(recipe)
    optimizer = method.optimizer(recipe)
    context = "fork" if workers else None  # starts at once, where a spawned worker imports torch first
    dataset = PillowImages(images, labels, recipe)
    for x, y in DataLoader(
        dataset, recipe.batch_size, shuffle=True, num_workers=workers, multiprocessing_context=context
    ):
        plain_step(method, optimizer, x, y)


def plain_logits(method: Method, images: Pixels, batch_size: int) -> NDArray[np.float32]:
    """Logits in evaluation mode, float32, channels before height and width."""
    method.eval()
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, STD))
    found = []
    with torch.no_grad():
        for start in range(0, len(images), batch_size):
            pixels = torch.from_numpy(images[start : start + batch_size]).permute(0, 3, 1, 2).contiguous()
            found.append(method.logits((pixels.float() / 255 - mean) / std).numpy())
    return np.concatenate(found)
