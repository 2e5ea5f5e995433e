"""Method, the base class of all methods."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, Optimizer

from openauc._validation import check_choice, check_fraction
from openauc.features.scores.registry import make_score
from openauc.models.base import Backbone
from openauc.recipe import LARGE_IMAGES, Recipe


class Method(nn.Module):
    """A backbone, a way to turn its features into class scores, a training loss and an open-set score.

    A subclass defines ``loss``, and ``class_scores`` if it does not classify by the linear head.

    Parameters
    ----------
    backbone
        Images (B, 3, H, W) to features (B, D).
    num_classes
        Number of known classes, at least 2.
    rng
        Source of the method's own initial weights and of all its later draws (mixing, noise). The backbone
        comes with its weights, and its dropout uses PyTorch's default generator.
    label_smoothing
        Share taken from the true class in the cross-entropy; None takes that of the recipe.

    Notes
    -----
    ``method(x)`` is ``logits(x)`` and ``method(x, y)`` is ``loss(x, y)``. A wrapper such as DistributedDataParallel
    synchronises only gradients of what passes through its own ``forward``, so a training loop passes the wrapper to
    ``train_batch`` and never calls ``loss`` itself. Steps report tensors, so that they never wait for a GPU.
    """

    recipe: ClassVar[str] = "plain"
    """The recipe the method was published with."""
    recipe_rows: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """By protocol, where its ``plus`` recipe differs from that of cross-entropy."""
    score: ClassVar[str] = "max_logit"
    """The open-set score it was published with, a key of ``SCORES``; any other score works on the trained network."""
    backbone_name: ClassVar[str] = "vgg32"
    """The papers' network for images of up to 64 pixels."""
    trained_as: ClassVar[str | None] = None
    """Name of a method with the same training, to the last bit; the two differ only in recipe and score."""
    passes: ClassVar[tuple[str, ...]] = ("plain",)
    """An epoch is one pass over the training data for each name, given to ``train_batch`` as ``phase``."""
    find_unused_parameters: ClassVar[bool] = False
    """Whether a step may leave parameters without gradient, which DistributedDataParallel has to know."""
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Named sets of keyword options."""

    def __init__(
        self, backbone: Backbone, num_classes: int, *, rng: np.random.Generator, label_smoothing: float | None = None
    ) -> None:
        super().__init__()
        if num_classes < 2:
            raise ValueError(f"num_classes is {num_classes}; a classifier needs at least two known classes.")
        if not isinstance(rng, np.random.Generator):
            raise TypeError(f"rng is {rng!r}; pass a generator such as np.random.default_rng(0).")
        self.backbone = backbone
        self.num_classes = num_classes
        self.rng = rng
        self.head = backbone.make_head(num_classes, generator=torch_generator(rng))
        self.smoothing_from_recipe = label_smoothing is None
        self.label_smoothing = check_fraction("label_smoothing", label_smoothing or 0.0, zero=True)
        self.trained_with: Recipe | None = None
        """The recipe of the training, which says how images are prepared; None before it."""
        self._last_batch: tuple[Tensor, Tensor] | None = None

    @classmethod
    def preset(cls, name: str) -> dict[str, Any]:
        """Keyword options of a preset: ``OpenAUC(backbone, 6, rng=rng, **OpenAUC.preset("public_code"))``."""
        if not cls.presets:
            raise ValueError(f"preset is {name!r}, but {cls.__name__} has no presets; leave the preset out.")
        return dict(cls.presets[check_choice("preset", name, cls.presets)])

    @classmethod
    def default_backbone(cls, image_size: int) -> str:
        """The papers' network for images of this side: ResNet-50 beyond 64 pixels."""
        return "resnet50" if image_size > LARGE_IMAGES else cls.backbone_name

    def class_scores(self, features: Tensor) -> Tensor:
        """(B, D) features to (B, C) logits."""
        logits: Tensor = self.head(features)
        return logits

    def logits(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) images to (B, C) logits, larger = more like class c."""
        return self.class_scores(self.backbone(x))

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """Scalar loss of one batch of known images (B, 3, H, W) with classes (B,)."""
        raise NotImplementedError(f"{type(self).__name__} has no loss; define loss(x, y).")

    def forward(self, x: Tensor, y: Tensor | None = None, *more: Tensor) -> Tensor:
        """``logits(x)``, or ``loss(x, y, *more)`` when there are classes, which may be on the CPU."""
        return self.logits(x) if y is None else self.loss(x, y.to(x.device), *more)

    def open_score(self, logits: Tensor) -> Tensor:
        """(B, C) logits to (B,) open-set scores by the method's own score, higher = more unknown."""
        values = logits.detach().double().cpu().numpy()
        return torch.from_numpy(make_score(self.score)(values[:, :0], values))

    def trained_parameters(self) -> list[nn.Parameter]:
        """The parameters of the main optimiser: all that require a gradient."""
        return [parameter for parameter in self.parameters() if parameter.requires_grad]

    def use_recipe(self, recipe: Recipe) -> None:
        """Take the label smoothing of a recipe, unless the constructor was given one."""
        if self.smoothing_from_recipe:
            self.label_smoothing = recipe.label_smoothing

    def optimizer(self, recipe: Recipe) -> Optimizer:
        """The recipe's optimiser of :meth:`trained_parameters`."""
        rate, decay = recipe.learning_rate, recipe.weight_decay
        if recipe.optimizer == "adam":
            return Adam(self.trained_parameters(), lr=rate, weight_decay=decay)
        return SGD(self.trained_parameters(), lr=rate, momentum=recipe.momentum, weight_decay=decay)

    def auxiliary_optimizers(self) -> dict[str, Optimizer]:
        """Further optimisers that the method steps itself, by name; checkpoints hold their state too."""
        return {}

    def train_batch(
        self,
        x: Tensor,
        y: Tensor,
        optimizer: Optimizer,
        *,
        phase: str = "plain",
        forward: Callable[..., Tensor] | None = None,
        backward: Callable[[Tensor], object] | None = None,
    ) -> dict[str, Tensor]:
        """One optimiser step on a batch of images (B, 3, H, W) with classes (B,).

        Parameters
        ----------
        x, y, optimizer
            The batch, and what ``optimizer(recipe)`` returned, possibly wrapped.
        phase
            Which of ``passes`` this batch belongs to.
        forward, backward
            The wrapped method (DistributedDataParallel, autocast), and a function to call with the loss, such as
            ``accelerator.backward``; the method itself and ``loss.backward()`` when left out.

        Returns
        -------
        dict
            ``"loss"`` and all else that the step measured, each a tensor of one number without gradient.
        """
        more, measured = self.before_step(x, check_choice("phase", phase, self.passes))
        loss = (forward or self)(x, y, *more)
        optimizer.zero_grad()
        (backward or Tensor.backward)(loss)
        optimizer.step()
        return {"loss": loss.detach(), **measured}

    def before_step(self, x: Tensor, phase: str) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
        """Prepare the optimiser step; return further arguments of ``loss``, and measured numbers by name."""
        return (), {}

    def diagnostics(self) -> dict[str, Tensor]:
        """Numbers on the last batch for the log: the accuracy on known samples, if ``loss`` called :meth:`observe`."""
        if self._last_batch is None:
            return {}
        logits, target = self._last_batch
        return {"known_accuracy": (logits.argmax(1) == target).double().mean()}

    def use_points(self, count: int) -> None:
        """Add ``count`` learnable points to classify by, and stop training the linear head."""
        self.head.requires_grad_(False)
        drawn = torch.randn(count, self.backbone.feature_dim, generator=torch_generator(self.rng))
        self.points = nn.Parameter(0.1 * drawn)

    def observe(self, logits: Tensor, target: Tensor) -> None:
        """Remember the logits of a batch for :meth:`diagnostics`; ``loss`` may call this, training does not need it."""
        self._last_batch = logits.detach(), target


def torch_generator(rng: np.random.Generator) -> torch.Generator:
    """A torch generator on the CPU, seeded by the next draw of ``rng``."""
    return torch.Generator().manual_seed(int(rng.integers(2**63)))
