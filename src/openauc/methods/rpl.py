"""RPL: reciprocal point learning."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from openauc.losses.prototype import rpl_loss, squared_distance
from openauc.methods.base import Method
from openauc.models.base import Backbone


class RPL(Method):
    r"""Reciprocal points, which lie far from their class; logits :math:`d_e(x, P_c)` and :math:`r = -\max_c p_c`.

    Parameters
    ----------
    num_centers
        Points per class; their distances are averaged.
    temperature, weight
        T and the weight of the radius term of :func:`~openauc.losses.rpl_loss`.
    backbone, num_classes, rng, label_smoothing
        See :class:`~openauc.methods.base.Method`. The linear head is neither used nor trained.
    """

    score = "max_probability"

    def __init__(
        self,
        backbone: Backbone,
        num_classes: int,
        *,
        rng: np.random.Generator,
        num_centers: int = 1,
        temperature: float = 1.0,
        weight: float = 0.1,
        label_smoothing: float | None = None,
    ) -> None:
        super().__init__(backbone, num_classes, rng=rng, label_smoothing=label_smoothing)
        if num_centers < 1:
            raise ValueError(f"num_centers is {num_centers}; each class needs at least one point.")
        self.use_points(num_classes * num_centers)
        self.radius = nn.Parameter(torch.zeros(1))
        self.num_centers = num_centers
        self.temperature = temperature
        self.weight = weight

    def class_scores(self, features: Tensor) -> Tensor:
        """Mean distance to the reciprocal points of each class."""
        return squared_distance(features, self.points, per_class=self.num_centers)

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """Cross-entropy plus the squared difference of radius and distance to the point of the own class."""
        logits = self.logits(x)
        self.observe(logits, y)
        options = {"temperature": self.temperature, "weight": self.weight, "smoothing": self.label_smoothing}
        return rpl_loss(logits, y, self.radius, **options)


METHOD = RPL
