"""A small network for embeddings."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from openauc.models.base import Backbone, draw_default_linear


class MLP(Backbone):
    """One hidden layer of rectified units on standardised features.

    Parameters
    ----------
    in_features, width
        Length d of an embedding; hidden units, which are the features the head sees.
    generator
        Source of the initial weights.

    Examples
    --------
    >>> MLP(in_features=384, width=128)(torch.zeros(2, 384)).shape
    torch.Size([2, 128])
    """

    cut_points = ("input", "features")

    def __init__(self, *, in_features: int, width: int = 256, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.standardise = nn.BatchNorm1d(in_features, affine=False)
        self.hidden = draw_default_linear(nn.Linear(in_features, width), generator)
        self.feature_dim = width

    def stage(self, name: str, hidden: Tensor) -> Tensor:
        """The hidden layer, the only step there is."""
        return torch.relu(self.hidden(self.standardise(hidden)))
