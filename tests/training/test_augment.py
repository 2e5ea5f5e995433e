"""Augmentation against Pillow, pixel by pixel, and the order and randomness of the whole transforms."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw, ImageEnhance, ImageOps
from torch import Tensor

from openauc.methods import recipe_for
from openauc.recipe import Recipe
from openauc.training import augment
from openauc.training.augment import OPERATIONS, rand_augment, random_crop, random_flip, resize, transform

AFFINE = Image.Transform.AFFINE


def to_pillow(image: Tensor) -> Image.Image:
    return Image.fromarray(np.ascontiguousarray(image.permute(1, 2, 0).numpy()))


def from_pillow(image: Image.Image) -> Tensor:
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def sample_images(height: int, width: int, seed: int = 0) -> Tensor:
    """Noise, dark, low contrast, with a constant channel, black and white, smooth."""
    rng = generator(seed)
    images = torch.randint(256, (6, 3, height, width), generator=rng, dtype=torch.uint8)
    images[1] //= 3
    images[2] = images[2] // 8 + 100
    images[3, 1] = 77
    images[4] = (images[4] > 128).to(torch.uint8) * 255
    coarse = 255 * torch.rand(1, 3, 4, 4, generator=rng)
    images[5] = torch.nn.functional.interpolate(coarse, (height, width), mode="bilinear")[0].to(torch.uint8)
    return images


def pillow_solarize_add(image: Image.Image, v: float) -> Image.Image:
    brighter = np.clip(np.array(image).astype(np.int64) + v, 0, 255).astype(np.uint8)
    return ImageOps.solarize(Image.fromarray(brighter), 128)


def pillow_cutout(image: Image.Image, v: float, uniform: list[float]) -> Image.Image:
    left, top = (int(max(0, u * side - v / 2)) for u, side in zip(uniform, image.size, strict=True))
    covered = image.copy()
    right, bottom = min(image.width, left + v), min(image.height, top + v)
    ImageDraw.Draw(covered).rectangle((left, top, right, bottom), (125, 123, 114))
    return covered


def signed(v: float, uniform: list[float]) -> float:
    return v if uniform[0] < 0.5 else -v


PILLOW: dict[str, Callable[[Image.Image, float, list[float]], Image.Image]] = {
    "AutoContrast": lambda image, v, u: ImageOps.autocontrast(image),
    "Equalize": lambda image, v, u: ImageOps.equalize(image),
    "Invert": lambda image, v, u: ImageOps.invert(image),
    "Rotate": lambda image, v, u: image.rotate(signed(v, u)),
    "Posterize": lambda image, v, u: ImageOps.posterize(image, max(1, int(v))),
    "Solarize": lambda image, v, u: ImageOps.solarize(image, v),  # type: ignore[arg-type]
    "SolarizeAdd": lambda image, v, u: pillow_solarize_add(image, v),
    "Color": lambda image, v, u: ImageEnhance.Color(image).enhance(v),
    "Contrast": lambda image, v, u: ImageEnhance.Contrast(image).enhance(v),
    "Brightness": lambda image, v, u: ImageEnhance.Brightness(image).enhance(v),
    "Sharpness": lambda image, v, u: ImageEnhance.Sharpness(image).enhance(v),
    "ShearX": lambda image, v, u: image.transform(image.size, AFFINE, (1, signed(v, u), 0, 0, 1, 0)),
    "ShearY": lambda image, v, u: image.transform(image.size, AFFINE, (1, 0, 0, signed(v, u), 1, 0)),
    "CutoutAbs": pillow_cutout,
    "TranslateXabs": lambda image, v, u: image.transform(image.size, AFFINE, (1, 0, signed(v, u), 0, 1, 0)),
    "TranslateYabs": lambda image, v, u: image.transform(image.size, AFFINE, (1, 0, 0, 0, 1, signed(v, u))),
}


@pytest.mark.parametrize("size", [(8, 8), (28, 28), (32, 32), (64, 64), (33, 47)], ids=str)
@pytest.mark.parametrize("name", OPERATIONS)
def test_each_operation_equals_pillow_bit_by_bit(name: str, size: tuple[int, int]) -> None:
    operation = OPERATIONS[name]
    for magnitude in (0, 1, 2, 6, 8, 9, 14, 15, 18, 29, 30):
        images = sample_images(*size, seed=magnitude)
        uniform = torch.rand(len(images), 2, generator=generator(magnitude))
        v = operation.strength(magnitude)
        changed = operation.apply(images, v, uniform)
        assert changed.dtype == torch.uint8
        for image, numbers, ours in zip(images, uniform.tolist(), changed, strict=True):
            assert torch.equal(ours, from_pillow(PILLOW[name](to_pillow(image), v, numbers)))


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_leave_their_input_alone(name: str) -> None:
    images = sample_images(16, 16)
    before = images.clone()
    OPERATIONS[name].apply(images, OPERATIONS[name].strength(8), torch.full((6, 2), 0.3))
    assert torch.equal(images, before)


def test_auto_contrast_equals_pillow_for_every_range() -> None:
    for lowest in range(0, 256, 5):
        ranges = [torch.arange(256).clamp(lowest, highest) for highest in range(lowest, 256, 5)]
        images = torch.stack(ranges).to(torch.uint8).view(-1, 1, 16, 16).repeat(1, 3, 1, 1)
        for image, ours in zip(images, augment.auto_contrast(images, 0, images), strict=True):
            assert torch.equal(ours, from_pillow(ImageOps.autocontrast(to_pillow(image))))


def test_strengths_of_the_published_recipes() -> None:
    assert OPERATIONS["TranslateXabs"].strength(6) == 20
    assert OPERATIONS["CutoutAbs"].strength(18) == 24
    assert OPERATIONS["Solarize"].strength(6) == pytest.approx(51.2)
    assert OPERATIONS["Contrast"].strength(6) == pytest.approx(0.46)
    assert OPERATIONS["Color"].strength(15) == pytest.approx(1.0)
    assert OPERATIONS["Rotate"].strength(30) == 30


def test_the_digits_list_neither_rotates_nor_translates() -> None:
    left_out = {name for name, operation in OPERATIONS.items() if not operation.for_digits}
    assert left_out == {"Rotate", "TranslateXabs", "TranslateYabs"}
    image, turned = sample_images(28, 28)[:1], from_pillow(to_pillow(sample_images(28, 28)[0]).rotate(8))
    for operations, found in (("all", True), ("digits", False)):
        changed = rand_augment(image.expand(300, -1, -1, -1), generator(), n=1, magnitude=8, operations=operations)
        assert bool((changed == turned).flatten(1).all(1).any()) == found


def test_rand_augment_applies_the_drawn_operation_to_each_image() -> None:
    images = sample_images(32, 32).repeat(8, 1, 1, 1)
    rng = generator(3)
    choice = torch.randint(16, (len(images),), generator=rng).tolist()
    uniform = torch.rand(len(images), 2, generator=rng).tolist()
    names = list(OPERATIONS)
    assert len(set(choice)) > 10
    for image, drawn, numbers, ours in zip(
        images, choice, uniform, rand_augment(images, generator(3), n=1, magnitude=6), strict=True
    ):
        v = OPERATIONS[names[drawn]].strength(6)
        assert torch.equal(ours, from_pillow(PILLOW[names[drawn]](to_pillow(image), v, numbers)))


def test_rand_augment_draws_operations_uniformly_and_both_signs() -> None:
    image = sample_images(32, 32)[:1]
    changed = rand_augment(image.expand(8000, -1, -1, -1), generator(), n=1, magnitude=6)
    left = from_pillow(to_pillow(image[0]).rotate(6))
    right = from_pillow(to_pillow(image[0]).rotate(-6))
    inverted = 255 - image[0]
    for expected, share in ((left, 1 / 32), (right, 1 / 32), (inverted, 1 / 16)):
        found = (changed == expected).flatten(1).all(1).double().mean().item()
        assert abs(found - share) < 4.5 * (share / 8000) ** 0.5


def test_two_operations_are_one_after_the_other() -> None:
    images = sample_images(32, 32)
    rng = generator(5)
    once = partial(rand_augment, generator=rng, n=1, magnitude=9)
    assert torch.equal(rand_augment(images, generator(5), n=2, magnitude=9), once(once(images)))


@pytest.mark.parametrize("old", [8, 28, 32, 33, 64, 97])
@pytest.mark.parametrize("new", [8, 16, 32, 50, 64])
def test_resize_equals_pillow_bit_by_bit(old: int, new: int) -> None:
    images = sample_images(old, old + 3)
    for image, ours in zip(images, resize(images, new), strict=True):
        expected = to_pillow(image).resize((new, new), Image.Resampling.BILINEAR)
        assert torch.equal(ours, from_pillow(expected))


def test_random_crop_cuts_every_window_of_the_framed_image_equally_often() -> None:
    image = torch.arange(1, 76, dtype=torch.uint8).view(1, 3, 5, 5)
    framed = torch.nn.functional.pad(image[0], (1, 1, 1, 1))
    crops = random_crop(image.expand(3600, -1, -1, -1), 1, generator())
    for top in range(3):
        for left in range(3):
            window = framed[:, top : top + 5, left : left + 5]
            found = int((crops == window).flatten(1).all(1).sum())
            assert abs(found - 400) < 90


def test_random_crop_differs_per_image_and_handles_oblong_ones() -> None:
    images = sample_images(12, 7)
    for image, crop in zip(images, random_crop(images, 2, generator(1)), strict=True):
        framed = torch.nn.functional.pad(image, (2, 2, 2, 2))
        windows = framed.unfold(1, 12, 1).unfold(2, 7, 1).permute(1, 2, 0, 3, 4).flatten(0, 1)
        assert (windows == crop).flatten(1).all(1).any()


def test_random_flip_mirrors_half_of_the_images() -> None:
    image = sample_images(8, 8)[:1]
    flipped = random_flip(image.expand(1000, -1, -1, -1), generator())
    same = (flipped == image).flatten(1).all(1)
    mirrored = (flipped == image.flip(3)).flatten(1).all(1)
    assert bool((same ^ mirrored).all())
    assert abs(int(mirrored.sum()) - 500) < 70


def test_plus_transform_augments_at_native_size_then_resizes_crops_flips_and_normalises() -> None:
    recipe = recipe_for("plus", "mnist")
    images = sample_images(28, 28)
    rng = generator(7)
    expected = rand_augment(images, rng, n=1, magnitude=8, operations="digits")
    expected = random_flip(random_crop(resize(expected, 32), 4, rng), rng).double() / 255
    mean = torch.tensor([0.4914, 0.4822, 0.4465]).view(3, 1, 1)
    std = torch.tensor([0.2023, 0.1994, 0.2010]).view(3, 1, 1)
    ours = transform(images, recipe, generator(7))
    assert ours.dtype == torch.float32
    torch.testing.assert_close(ours, ((expected - mean) / std).float(), rtol=1e-5, atol=1e-5)


def test_crop_and_flip_without_rand_augment() -> None:
    images = sample_images(32, 32)
    rng = generator(7)
    expected = random_flip(random_crop(images, 4, rng), rng).float() / 255
    assert torch.equal(transform(images, recipe_for("plain", "cifar10"), generator(7)), expected)


def test_no_augmentation_is_the_test_transform() -> None:
    recipe = recipe_for("plain", "mnist")
    images = sample_images(28, 28)
    trained = transform(images, recipe, generator())
    tested = transform(images, recipe)
    assert torch.equal(trained, tested)
    assert torch.equal(tested, resize(images, 32).float() / 255)


@pytest.mark.parametrize("normalize", [True, False])
def test_test_transform_against_pillow(normalize: bool) -> None:
    recipe = Recipe(image_size=16, normalize=normalize)
    images = sample_images(8, 8)
    ours = transform(images, recipe)
    for image, result in zip(images, ours, strict=True):
        expected = from_pillow(to_pillow(image).resize((16, 16), Image.Resampling.BILINEAR)).double() / 255
        if normalize:
            expected = (expected - torch.tensor(augment.MEAN).view(3, 1, 1)) / torch.tensor(augment.STD).view(3, 1, 1)
        torch.testing.assert_close(result.double(), expected, rtol=1e-5, atol=1e-5)


def test_the_generator_alone_decides() -> None:
    recipe = recipe_for("plus", "cifar10")
    images = sample_images(32, 32).repeat(4, 1, 1, 1)
    before = images.clone()
    torch.manual_seed(0)
    global_state = torch.get_rng_state()
    first = transform(images, recipe, generator(1))
    assert torch.equal(torch.get_rng_state(), global_state)
    torch.manual_seed(99)
    assert torch.equal(first, transform(images, recipe, generator(1)))
    assert not torch.equal(first, transform(images, recipe, generator(2)))
    assert torch.equal(images, before)


def test_draws_depend_on_the_batch_size_alone() -> None:
    recipe = recipe_for("plus", "cifar10")
    states = []
    for seed in (0, 1):
        rng = generator(4)
        transform(sample_images(32, 32, seed), recipe, rng)
        states.append(rng.get_state())
    assert torch.equal(*states)


def test_a_single_image_is_a_batch() -> None:
    recipe = recipe_for("plus", "mnist")
    assert transform(sample_images(28, 28)[:1], recipe, generator()).shape == (1, 3, 32, 32)


def test_channels_last_images_are_accepted() -> None:
    recipe = recipe_for("plus", "cifar10")
    images = sample_images(32, 32).repeat(4, 1, 1, 1)
    nhwc = images.contiguous(memory_format=torch.channels_last)
    assert torch.equal(transform(images, recipe, generator()), transform(nhwc, recipe, generator()))


@pytest.mark.parametrize("drawn", [generator(), None])
def test_wrong_images_are_refused(drawn: torch.Generator | None) -> None:
    recipe = recipe_for("plus", "cifar10")
    with pytest.raises(TypeError, match=r"torch.float32; pass torch.uint8"):
        transform(torch.zeros(2, 3, 32, 32), recipe, drawn)
    for shape in ((2, 3, 28, 32), (2, 1, 32, 32), (2, 32, 32, 3), (3, 32, 32), (0, 3, 32, 32)):
        with pytest.raises(ValueError, match=r"expected \(B, 3, S, S\)"):
            transform(torch.zeros(shape, dtype=torch.uint8), recipe, drawn)
