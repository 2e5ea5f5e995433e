"""The base class of backbones: features, cut points, a fitting head, and control over BatchNorms."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from openauc._validation import check_choice


class Backbone(nn.Module):
    r"""A feature extractor that can be cut in two, :math:`f = f_{post} \circ f_{pre}`.

    A subclass names its ``cut_points`` in order, from ``"input"`` to ``"features"``, sets ``feature_dim`` and
    defines :meth:`stage`, the step from one cut point to the next; everything else follows from these three.

    Examples
    --------
    >>> class Pooled(Backbone):
    ...     feature_dim, cut_points = 3, ("input", "features")
    ...     def stage(self, name, hidden):
    ...         return hidden.mean((2, 3))
    >>> Pooled()(torch.ones(2, 3, 8, 8)).shape
    torch.Size([2, 3])
    """

    feature_dim: int
    """D, the length of one feature vector."""
    cut_points: tuple[str, ...]
    """Places where mixup may happen, in the order of computation."""
    head_bias = True
    """Whether the linear head has a bias."""

    def stage(self, name: str, hidden: Tensor) -> Tensor:
        """Compute the cut point `name` from the value at the cut point before it."""
        raise NotImplementedError(f"{type(self).__name__} does not define stage()")

    def pre(self, x: Tensor, cut: str) -> Tensor:
        """Return the hidden value of images (B, 3, H, W) at `cut`, which is `x` itself for ``"input"``."""
        for name in self.cut_points[1 : self._position(cut) + 1]:
            x = self.stage(name, x)
        return x

    def post(self, hidden: Tensor, cut: str) -> Tensor:
        """Return the features, shape (B, D), of a hidden value at `cut`; the identity for ``"features"``."""
        for name in self.cut_points[self._position(cut) + 1 :]:
            hidden = self.stage(name, hidden)
        return hidden

    def forward(self, x: Tensor) -> Tensor:
        """Return the features, shape (B, D), of images, shape (B, 3, H, W)."""
        return self.post(x, "input")

    def make_head(self, num_classes: int, *, generator: torch.Generator | None = None) -> nn.Linear:
        r"""Return a new linear head, drawn from PyTorch's default :math:`U(-1/\sqrt D, 1/\sqrt D)`."""
        return draw_default_linear(nn.Linear(self.feature_dim, num_classes, bias=self.head_bias), generator)

    def _position(self, cut: str) -> int:
        return self.cut_points.index(check_choice("cut", cut, self.cut_points))


class BranchedBatchNorm2d(nn.Module):
    """Two independent BatchNorms of which :func:`branch` selects the one a whole batch goes through."""

    def __init__(self, num_features: int) -> None:
        super().__init__()
        self.bns = nn.ModuleList(nn.BatchNorm2d(num_features) for _ in range(2))
        self.branch = 0

    def forward(self, x: Tensor) -> Tensor:
        normalised: Tensor = self.bns[self.branch](x)
        return normalised


@contextmanager
def _changed(layers: Sequence[nn.Module], name: str, value: Any) -> Iterator[None]:
    """Give an attribute of some layers another value inside the context."""
    with ExitStack() as stack:
        for layer in layers:
            stack.callback(setattr, layer, name, getattr(layer, name))
            setattr(layer, name, value)
        yield


@contextmanager
def clean_statistics(module: nn.Module) -> Iterator[None]:
    """Keep the running statistics of `module` unchanged inside the context.

    In training mode BatchNorm still normalises with the statistics of the batch, but does not record them, so that
    mixed features do not change the normalisation of known data at test time.

    >>> norm = nn.BatchNorm1d(1)
    >>> with clean_statistics(norm):
    ...     norm(torch.tensor([[1.0], [3.0]])).mean().item()
    0.0
    >>> norm.running_mean.item()
    0.0
    """
    # Without tracking, BatchNorm ignores its running statistics in training mode and still uses them in evaluation.
    tracking = [layer for layer in module.modules() if isinstance(layer, _BatchNorm)]
    with _changed(tracking, "track_running_stats", False):
        yield


@contextmanager
def branch(module: nn.Module, index: int) -> Iterator[None]:
    """Send batches through BatchNorm branch `index` of a two-branch `module` inside the context.

    Branch 0, for real images, is in use outside; branch 1 is for generated images. A module without a second branch
    raises ValueError.
    """
    if index not in (0, 1):
        raise ValueError(f"branch index is {index!r}; pass 0 for real or 1 for generated images.")
    selected = [layer for layer in module.modules() if isinstance(layer, BranchedBatchNorm2d)]
    if index == 1 and not selected:
        raise ValueError(f"{type(module).__name__} has no second BatchNorm branch; use the backbone 'vgg32_abn'.")
    with _changed(selected, "branch", index):
        yield


def draw_default_linear(layer: nn.Linear, generator: torch.Generator | None) -> nn.Linear:
    """Redraw a linear layer from PyTorch's own default, U(-1/sqrt(D), 1/sqrt(D)), with a given generator."""
    bound = layer.in_features**-0.5
    for parameter in layer.parameters():
        nn.init.uniform_(parameter, -bound, bound, generator=generator)
    return layer


def draw_convolutional(module: nn.Module, *, std: float, generator: torch.Generator | None) -> None:
    """Draw (transposed) convolutions from N(0, std^2), BatchNorm weights from N(1, 0.02^2), its bias 0."""
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d):
            nn.init.normal_(layer.weight, 0.0, std, generator=generator)
        elif isinstance(layer, nn.BatchNorm2d):
            nn.init.normal_(layer.weight, 1.0, 0.02, generator=generator)
            nn.init.zeros_(layer.bias)
