"""From images to predictions, fast and exact; the only way from tensors to numpy."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from accelerate.utils import gather_object
from numpy.typing import NDArray
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from openauc._validation import check_choice
from openauc.features.scores.registry import make_score
from openauc.methods.base import Method
from openauc.models.base import Backbone, BranchedBatchNorm2d
from openauc.predictions import Predictions, read_columns, write_columns
from openauc.protocols.base import OpenSetData, Part
from openauc.protocols.sources import Images
from openauc.recipe import Recipe
from openauc.training.augment import transform
from openauc.training.pixels import Pixels
from openauc.training.process import process_state

InferencePrecision = Literal["fp32", "bf16"]
OpenScore = Callable[[NDArray[Any], NDArray[Any]], NDArray[Any]]
"""Open-set scores (n,) of features (n, D) and logits (n, C), higher = more unknown."""

# A CPU is fastest while the activations of a batch stay in the caches of its cores; a GPU wants to be filled.
_PIXELS_PER_THREAD = 32 * 32 * 32
_PIXELS_PER_GPU = 32 * 32 * 1024


class Embedded(NamedTuple):
    """What a network makes of n images: features (n, D), logits (n, C), and the labels the data has for them."""

    features: NDArray[np.float32]
    logits: NDArray[np.float32]
    labels: NDArray[np.int64]

    def save(self, path: Path) -> None:
        """Write a Parquet file with the columns ``y_true``, ``logits`` and ``features``, all or nothing.

        ``openauc evaluate`` reads it as it reads any file with logits.
        """
        write_columns(path, {"y_true": self.labels, "logits": self.logits, "features": self.features})

    @classmethod
    def load(cls, path: Path) -> Embedded:
        """Read what :meth:`save` wrote."""
        columns = read_columns(path)
        return cls(columns["features"], columns["logits"], columns["y_true"])

    def predictions(self, score: OpenScore) -> Predictions:
        """The triple of these images by an open-set score."""
        return Predictions.of(self.labels, self.logits.argmax(1), score(self.features, self.logits))


def predict(
    method: Method,
    data: OpenSetData,
    recipe: Recipe | None = None,
    *,
    part: Part = "test",
    score: str | None = None,
    precision: InferencePrecision = "fp32",
    batch_size: int | None = None,
) -> Predictions:
    """Class and open-set score of every test image, in the order of the data.

    Parameters
    ----------
    method, data, recipe, part, precision, batch_size
        See :func:`embed`.
    score
        Name in ``SCORES``; the method's own if left out. One that learns from training samples sees the training part.
    """
    embedded = partial(embed, method, data, recipe, precision=precision, batch_size=batch_size)
    return embedded(part=part).predictions(fitted_score(method, score, partial(embedded, part="train")))


def fitted_score(method: Method, score: str | None, training: Callable[[], Embedded]) -> OpenScore:
    """A score by its name in ``SCORES``, fitted to ``training()`` if it learns from samples; None: the method's own."""
    if score is None:
        return lambda features, logits: method.open_score(torch.from_numpy(logits).double()).numpy()
    chosen = make_score(score)
    return chosen.fit(*training()) if chosen.fits else chosen


def embed(
    method: Method,
    data: OpenSetData,
    recipe: Recipe | None = None,
    *,
    part: Part = "test",
    precision: InferencePrecision = "fp32",
    batch_size: int | None = None,
) -> Embedded:
    """Features and logits of every image of one part of the data, in its order, as a test sees them: not augmented.

    Several processes take a part of the images each and all return the whole.

    Parameters
    ----------
    method
        Used in evaluation mode and left as it was.
    data
        Whose ``train``, ``validation`` or ``test`` part to look at.
    recipe
        Supplies image size and normalisation; the one of :func:`~openauc.training.loop.train` if left out.
    part, precision, batch_size
        See :func:`embed_images`.
    """
    recipe = recipe or method.trained_with
    if recipe is None:
        raise ValueError("the method was not trained here; pass the recipe it was trained with, for the image size.")
    check_choice("part", part, ("train", "validation", "test"))
    images, labels = getattr(data, part)[:2]
    return Embedded(*embed_images(method, images, recipe, precision=precision, batch_size=batch_size), labels)


def embed_images(
    method: Method,
    images: Images,
    recipe: Recipe,
    *,
    precision: InferencePrecision = "fp32",
    batch_size: int | None = None,
    seen: Callable[[int], object] = lambda count: None,
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Features (N, D) and logits (N, C) of uint8 images (N, H, W, 3).

    BatchNorms are folded into the convolutions before them.

    Parameters
    ----------
    method, images, recipe
        See :func:`embed`.
    precision
        ``"bf16"`` computes in bfloat16, which is faster where the hardware can, and leaves few distinct scores: ties.
    batch_size
        Images at a time; by default what suits the device and the image size.
    seen
        Told after each batch how many images this process has done.
    """
    check_choice("precision", precision, ("fp32", "bf16"))
    if len(images) == 0:
        raise ValueError("there is no image to predict; ask for a validation slice when loading the data.")
    device = next(method.parameters()).device
    if batch_size is None:
        most = _PIXELS_PER_THREAD * torch.get_num_threads() if device.type == "cpu" else _PIXELS_PER_GPU
        values = recipe.image_size**2 if len(images.shape) == 4 else images.shape[1]  # of one sample
        batch_size = max(1, most // values)
    if batch_size < 1:
        raise ValueError(f"batch_size is {batch_size}; pass a positive number of images.")
    state = process_state()
    own = np.array_split(np.arange(len(images)), state.num_processes)[state.process_index]
    batches = [rows for rows in np.split(own, range(batch_size, len(own), batch_size)) if len(rows)]
    features = [np.empty((0, method.backbone.feature_dim), np.float32)]
    logits = [np.empty((0, method.num_classes), np.float32)]
    training = method.training
    method.eval()
    with torch.inference_mode():
        try:
            # The layout is set in any case, so that the logits follow from the weights and not from how they were made.
            backbone = fold_batch_norms(method.backbone)
            backbone.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            for pixels in Pixels(images, device).stream(batches):
                with torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16"):
                    hidden = backbone(transform(pixels, recipe))
                    logits.append(method.class_scores(hidden).float().cpu().numpy())
                    features.append(hidden.float().cpu().numpy())
                seen(sum(map(len, logits)))
        finally:
            method.train(training)
    return np.concatenate(gather_object(features)), np.concatenate(gather_object(logits))


def fold_batch_norms(backbone: Backbone) -> Backbone:
    """Copy of an evaluating backbone with each BatchNorm folded into the convolution before it.

    Layers belong together by name (``conv3`` and ``bn3`` of one module) or by place (neighbours in a
    Sequential). Of two branches the first counts. Backbones named otherwise stay as they are.
    """
    folded = copy.deepcopy(backbone)
    for module in list(folded.modules()):
        for convolution, norm in _pairs(module):
            layer, batch_norm = getattr(module, convolution), getattr(module, norm)
            if isinstance(batch_norm, BranchedBatchNorm2d):
                batch_norm = batch_norm.bns[0]
            if isinstance(layer, nn.Conv2d) and isinstance(batch_norm, nn.BatchNorm2d):
                setattr(module, convolution, fuse_conv_bn_eval(layer, batch_norm))
                setattr(module, norm, nn.Identity())
    return folded


def _pairs(module: nn.Module) -> list[tuple[str, str]]:
    names = [name for name, _ in module.named_children()]
    if isinstance(module, nn.Sequential):
        return list(pairwise(names))
    numbered = [name.removeprefix("conv") for name in names if name.startswith("conv")]
    return [(f"conv{number}", f"bn{number}") for number in numbered if f"bn{number}" in names]
