"""From images to predictions, fast and exact; the only way from tensors to numpy."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from typing import Literal

import numpy as np
import torch
from accelerate.utils import gather_object
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from openauc._validation import check_choice
from openauc.methods.base import Method
from openauc.models.base import Backbone, BranchedBatchNorm2d
from openauc.predictions import Predictions
from openauc.protocols.base import OpenSetData
from openauc.protocols.sources import Images, LazyImages
from openauc.training.augment import TestTransform
from openauc.training.process import native_bfloat16, process_state
from openauc.training.recipe import Recipe

InferencePrecision = Literal["auto", "fp32", "bf16"]
Part = Literal["test", "validation"]

PROBE_IMAGES = 1024
"""Images on which bfloat16 has to agree with float32 before it may predict the others."""
LEAST_AGREEMENT = 0.999
# A CPU is fastest while the activations of a batch stay in the caches of its cores; a GPU wants to be filled.
_PIXELS_PER_THREAD = 32 * 32 * 32
_PIXELS_PER_GPU = 32 * 32 * 1024


class Pixels:
    """uint8 images taken by row as (B, 3, H, W), from memory or decoded on demand.

    Images in memory move to the device once and as a whole; compressed ones stay compressed, and while a batch
    is in use the next one is being decoded.
    """

    def __init__(self, images: Images, device: torch.device) -> None:
        self.device = device
        self.images = images if isinstance(images, LazyImages) else torch.from_numpy(images).to(device)

    def stream(self, batches: Sequence[NDArray[np.int64]]) -> Iterator[Tensor]:
        """Yield the images of each batch of rows."""
        if isinstance(self.images, Tensor):
            for rows in batches:
                yield _channels_first(self.images[torch.from_numpy(rows).to(self.device)])
            return
        with ThreadPoolExecutor(1) as pool:
            decoding = None
            for rows in batches:
                following = pool.submit(self.images.__getitem__, rows)
                if decoding is not None:
                    yield self._decoded(decoding)
                decoding = following
            if decoding is not None:
                yield self._decoded(decoding)

    def _decoded(self, decoding: Future[NDArray[np.uint8]]) -> Tensor:
        return _channels_first(torch.from_numpy(decoding.result()).to(self.device))


def predict(
    method: Method,
    data: OpenSetData,
    recipe: Recipe | None = None,
    *,
    part: Part = "test",
    precision: InferencePrecision = "auto",
    batch_size: int | None = None,
) -> Predictions:
    """Class and open-set score of every test image, in the order of the data.

    Several processes take a part of the images each and all return the whole. Scores are computed from the
    logits in float64, where confident probabilities still differ.

    Parameters
    ----------
    method
        Used in evaluation mode and left as it was.
    data
        Whose ``test`` part, or ``validation`` slice, to predict.
    recipe
        Supplies image size and normalisation; the one of :func:`~openauc.training.loop.train` if left out.
    part, precision, batch_size
        See :func:`predict_logits`.
    """
    recipe = recipe or recipe_of(method)
    if recipe is None:
        raise ValueError(
            "the method was not trained here, so its image size and normalisation are unknown; pass the "
            "recipe it was trained with."
        )
    check_choice("part", part, ("test", "validation"))
    images, labels = (
        (data.test_images, data.test_labels) if part == "test" else (data.validation_images, data.validation_labels)
    )
    logits = predict_logits(method, images, recipe, precision=precision, batch_size=batch_size)
    scores = method.open_score(torch.from_numpy(logits).double())
    return Predictions.of(labels, logits.argmax(1), scores.numpy())


def predict_logits(
    method: Method,
    images: Images,
    recipe: Recipe,
    *,
    precision: InferencePrecision = "auto",
    batch_size: int | None = None,
) -> NDArray[np.float32]:
    """Logits (N, C) of uint8 images (N, H, W, 3).

    BatchNorms are folded into the convolutions before them.

    Parameters
    ----------
    method, images, recipe
        See :func:`predict`.
    precision
        ``"auto"`` is bfloat16 where the hardware computes in it and the arg max of 1,024 probed images agrees
        with float32 on 99.9 % of them; float32 otherwise.
    batch_size
        Images at a time; by default what suits the device and the image size.
    """
    check_choice("precision", precision, ("auto", "fp32", "bf16"))
    if len(images) == 0:
        raise ValueError("there is no image to predict; ask for a validation slice when loading the data.")
    size = batch_size or _batch_size(_device(method), recipe.image_size)
    if size < 1:
        raise ValueError(f"batch_size is {size}; pass a positive number of images.")
    training = method.training
    method.eval()
    try:
        with torch.inference_mode():
            return _gathered(_Predictor(method, images, recipe, size), len(images), precision)
    finally:
        method.train(training)


def remember_recipe(method: Method, recipe: Recipe) -> None:
    """Note on the method how the images it was trained on were prepared."""
    vars(method)["recipe"] = recipe


def recipe_of(method: Method) -> Recipe | None:
    """The recipe :func:`remember_recipe` noted, if any."""
    recipe: Recipe | None = vars(method).get("recipe")
    return recipe


def lay_out(module: nn.Module, layout: torch.memory_format) -> None:
    """Give the convolutions of a module a memory layout; no value changes."""
    for parameter in module.parameters():
        if parameter.ndim == 4:
            parameter.data = parameter.data.contiguous(memory_format=layout)


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


class _Predictor:
    """A method ready to predict rows of one set of images."""

    def __init__(self, method: Method, images: Images, recipe: Recipe, batch_size: int) -> None:
        self.device = _device(method)
        self.pixels = Pixels(images, self.device)
        self.transform = TestTransform(recipe, images.shape[1])
        self.batch_size = batch_size
        # A copy that shares everything with the method except its backbone.
        self.method = copy.copy(method)
        self.method._modules = dict(method._modules)
        self.method.backbone = fold_batch_norms(method.backbone)
        # Set here in any case, so that the logits follow from the weights and not from how they were made.
        lay_out(self.method.backbone, torch.channels_last)

    def logits(self, rows: NDArray[np.int64], *, half: bool) -> NDArray[np.float32]:
        """(n, C) logits of some rows."""
        batches = [rows[start : start + self.batch_size] for start in range(0, len(rows), self.batch_size)]
        found = [np.empty((0, self.method.num_classes), np.float32)]
        for pixels in self.pixels.stream(batches):
            with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=half):
                x = self.transform(pixels).contiguous(memory_format=torch.channels_last)
                found.append(self.method.logits(x).float().cpu().numpy())
        return np.concatenate(found)

    def trusts_half(self, rows: NDArray[np.int64]) -> bool:
        """Whether bfloat16 decides like float32 on images taken evenly from the rows."""
        probe = rows[:: max(1, len(rows) // PROBE_IMAGES)][:PROBE_IMAGES]
        return bool(agreement(self.logits(probe, half=True), self.logits(probe, half=False)) >= LEAST_AGREEMENT)


def agreement(logits: NDArray[np.float32], others: NDArray[np.float32]) -> float:
    """Share of samples with the same arg max.

    >>> agreement(np.float32([[1, 2], [3, 0]]), np.float32([[0, 1], [0, 1]]))
    0.5
    """
    return float(np.mean(logits.argmax(1) == others.argmax(1)))


def _gathered(predictor: _Predictor, count: int, precision: InferencePrecision) -> NDArray[np.float32]:
    """Logits of all rows; each process computes a part of them, none twice, and all get the whole."""
    everything = np.arange(count)
    # Every process probes the same images, so that all decide alike.
    half = precision == "bf16" or (
        precision == "auto" and native_bfloat16(predictor.device) and predictor.trusts_half(everything)
    )
    state = process_state()
    own = np.array_split(everything, state.num_processes)[state.process_index]
    return np.concatenate(gather_object([predictor.logits(own, half=half)]))


def _pairs(module: nn.Module) -> list[tuple[str, str]]:
    names = [name for name, _ in module.named_children()]
    if isinstance(module, nn.Sequential):
        return list(pairwise(names))
    numbered = [name.removeprefix("conv") for name in names if name.startswith("conv")]
    return [(f"conv{number}", f"bn{number}") for number in numbered if f"bn{number}" in names]


def _batch_size(device: torch.device, image_size: int) -> int:
    pixels = _PIXELS_PER_THREAD * torch.get_num_threads() if device.type == "cpu" else _PIXELS_PER_GPU
    return max(1, pixels // image_size**2)


def _device(method: Method) -> torch.device:
    return next(method.parameters()).device


def _channels_first(pixels: Tensor) -> Tensor:
    return pixels.permute(0, 3, 1, 2).contiguous()
