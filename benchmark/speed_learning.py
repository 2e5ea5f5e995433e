"""Speed of training and prediction on a CPU: against plain loops, and OpenAUC's step against cross-entropy's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from plain_loop import PillowTransform, plain_epoch, plain_logits, plain_step
from timing import Row, Timed, faster, faster_in_pairs, in_new_process, in_pairs, in_turn, timed
from torch import nn

from openauc.environment import reuse_memory
from openauc.methods import build_method, recipe_for
from openauc.methods.base import Method
from openauc.protocols import OpenSetData, get_protocol
from openauc.protocols.sources import Examples
from openauc.recipe import Recipe
from openauc.training.augment import resize, transform
from openauc.training.loop import Precision, train
from openauc.training.predict import embed_images

BATCH = 128


def enlarged_digits(images: int) -> OpenSetData:
    """The embedded digits as 32 x 32 images, so that nothing has to be downloaded."""
    data = get_protocol("digits").load(0)
    return replace(data, read_train=partial(enlarged, data.train, data.validation)).limited(images)


def enlarged(train: Examples, validation: Examples) -> tuple[Examples, Examples]:
    pixels = torch.from_numpy(train.images).permute(0, 3, 1, 2)
    return train._replace(images=resize(pixels, 32).permute(0, 2, 3, 1).contiguous().numpy()), validation


def built(name: str, data: OpenSetData, recipe: Recipe, width: int, **options: str) -> Method:
    return build_method(name, data.num_classes, image_size=recipe.image_size, width=width, method_args=options)


def step_rows(data: OpenSetData, recipe: Recipe, width: int, rounds: int) -> list[Row]:
    """Steps of OpenAUC against those of cross-entropy, and of cross-entropy against itself to tell the noise."""
    x = torch.randn(BATCH, 3, 32, 32).contiguous(memory_format=torch.channels_last)
    y = torch.from_numpy(data.train.labels[:BATCH])

    def step(name: str, **options: str) -> Timed:
        method = built(name, data, recipe, width, **options).train()
        method.to(memory_format=torch.channels_last)
        method.use_recipe(recipe)
        optimizer = method.optimizer(recipe)
        method.train_batch(x, y, optimizer)  # allocates the optimiser's state
        return lambda: timed(method.train_batch, x, y, optimizer)

    head, block, same = in_pairs(
        rounds, step("ce_plus"), step("openauc"), step("openauc", cut="block2"), step("ce_plus")
    )
    of = f"in steps of cross-entropy, median of {rounds} pairs"
    return [
        Row(f"step of OpenAUC, cut before the head, {of}", *head, "<= 1.05", head[2] <= 1.05),
        Row(f"step of OpenAUC, cut before the last block, {of}", *block, "<= 1.5", block[2] <= 1.5),
        Row(f"- noise: a second network's step of cross-entropy, {of}", *same),
    ]


def loop_rows(data: OpenSetData, recipe: Recipe, width: int, repeats: int) -> list[Row]:
    """Training on a CPU against a plain loop, without workers or with two, whichever is faster in a round."""
    ours, plain = (built("ce_plus", data, recipe, width) for _ in range(2))
    images, labels = data.train.images, data.train.labels
    bfloat16 = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    precision = "bf16" if bfloat16 else "fp32"
    return [
        faster_in_pairs(
            f"training loop, {precision}, {len(images):,} images, against DataLoader, Pillow, fp32 and NCHW",
            repeats,
            2.5,
            lambda: in_new_process(train_as_the_command, ours, data, recipe, precision),
            lambda: min(in_new_process(plain_epoch, plain, images, labels, recipe, workers) for workers in (0, 2)),
        ),
        *part_rows(ours, plain, recipe, repeats),
    ]


def train_as_the_command(method: Method, data: OpenSetData, recipe: Recipe, precision: Precision) -> None:
    reuse_memory()
    train(method, data, recipe, precision=precision)


def part_rows(ours: Method, plain: Method, recipe: Recipe, repeats: int) -> list[Row]:
    """One batch through the network, and through its convolutions alone, in fp32 on both sides.

    A matrix product tells how many multiplications a second there are to be had.
    """
    x = torch.randn(BATCH, 3, 32, 32)
    y = torch.arange(BATCH) % ours.num_classes
    ours.to(memory_format=torch.channels_last)
    sides = (ours, x.contiguous(memory_format=torch.channels_last)), (plain, x)

    def step(method: Method, x: torch.Tensor) -> Callable[[], object]:
        method.use_recipe(recipe)
        optimizer = method.train().optimizer(recipe)
        return lambda: plain_step(method, optimizer, x, y)

    steps = [step(*side) for side in sides]
    alone = [convolving(*side) for side in sides]
    square = torch.randn(2048, 2048)
    last, first, last_alone, first_alone, product = in_turn(repeats, *steps, *alone, lambda: square @ square)
    at_this_rate = product * multiplications(ours, x) / 2048**3
    return [
        Row(f"- of it, a step on {BATCH} images, fp32, channels last against NCHW", last, first, first / last),
        Row("- of that, the convolutions, forward and backward", last_alone, first_alone, first_alone / last_alone),
        Row(
            "- as many multiplications in a large fp32 matrix product, against these convolutions",
            last_alone,
            at_this_rate,
            at_this_rate / last_alone,
        ),
    ]


Convolved = tuple[nn.Conv2d, torch.Tensor, torch.Tensor]


def convolved(method: Method, x: torch.Tensor) -> list[Convolved]:
    """Each convolution of a method with the input and the output that a batch gives it."""
    seen: list[Convolved] = []

    def see(layer: nn.Conv2d, inputs: tuple[torch.Tensor], output: torch.Tensor) -> None:
        seen.append((layer, inputs[0].detach(), output.detach()))

    hooks = [layer.register_forward_hook(see) for layer in method.modules() if isinstance(layer, nn.Conv2d)]
    method.logits(x)
    for hook in hooks:
        hook.remove()
    return seen


def convolving(method: Method, x: torch.Tensor) -> Callable[[], object]:
    """A call that runs the convolutions of a method alone, on what a batch sends them, forward and backward."""
    parts = [(layer, h.requires_grad_(), torch.randn_like(output)) for layer, h, output in convolved(method, x)]
    return lambda: [torch.autograd.grad(layer(h), (layer.weight, h), gradient) for layer, h, gradient in parts]


def multiplications(method: Method, x: torch.Tensor) -> int:
    """Of the convolutions on a batch, directly: forward, for the input's gradient and for the weight's."""
    return sum(3 * output.numel() * layer.weight[0].numel() for layer, _, output in convolved(method, x))


def augmentation_row(data: OpenSetData, recipe: Recipe, repeats: int) -> Row:
    batch = data.train.images[:BATCH]
    plain = PillowTransform(recipe)
    pixels = torch.from_numpy(batch).permute(0, 3, 1, 2).contiguous()
    generator = torch.Generator().manual_seed(0)
    ours, pillow = in_turn(
        repeats,
        lambda: transform(pixels, recipe, generator),
        lambda: torch.stack([plain(image) for image in batch]),
    )
    return faster(f"augmentation of {BATCH} images, against Pillow image by image", ours, pillow, 5)


def predict_rows(data: OpenSetData, recipe: Recipe, width: int, repeats: int) -> list[Row]:
    method = built("ce_plus", data, recipe, width)
    images = data.train.images
    plain_epoch(method, images, data.train.labels, recipe, 0)  # statistics for the BatchNorms
    _, logits = embed_images(method, images, recipe)
    alike = float((logits.argmax(1) == plain_logits(method, images, BATCH).argmax(1)).mean())
    return [
        faster_in_pairs(
            f"embed_images, {len(images):,} images, against eager fp32 and NCHW",
            2 * repeats,
            1.5,
            lambda: in_new_process(embed_images, method, images, recipe),
            lambda: in_new_process(plain_logits, method, images, BATCH),
        ),
        Row("share of equal arg max", alike, 1.0, alike, ">= 0.999", alike >= 0.999),
    ]


def learning_rows(quick: bool) -> list[Row]:
    width, repeats = (8, 3) if quick else (64, 7)
    data = enlarged_digits(2 * BATCH if quick else 5 * BATCH)
    recipe = recipe_for("plus", "cifar10", epochs=1, batch_size=BATCH)
    return [
        *predict_rows(data, recipe, width, repeats),
        *step_rows(data, recipe, width, 5 if quick else 80),
        augmentation_row(data, recipe, 5 * repeats),
        *loop_rows(data, recipe, width, repeats),
    ]
