"""ARPL: adversarial reciprocal point learning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from openauc.losses.prototype import arpl_loss, dot_distance, squared_distance
from openauc.methods.base import Method
from openauc.models.base import Backbone


class ARPL(Method):
    r"""Reciprocal points with a one-sided margin; logits :math:`a = d_e - d_d`, score :math:`-\max_c a_c`.

    Parameters
    ----------
    temperature, weight, margin
        T, the weight of the margin term and its margin, see :func:`~openauc.losses.arpl_loss`.
    backbone, num_classes, rng, label_smoothing
        See :class:`~openauc.methods.base.Method`. The linear head is neither used nor trained.
    """

    recipe_rows: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "cifar10": {"rand_augment_m": 15},
        "tinyimagenet": {"learning_rate": 0.001},
        "cub": {"label_smoothing": 0.2},
        "aircraft": {"rand_augment_m": 18, "label_smoothing": 0.1},
    }

    def __init__(
        self,
        backbone: Backbone,
        num_classes: int,
        *,
        rng: np.random.Generator,
        temperature: float = 1.0,
        weight: float = 0.1,
        margin: float = 1.0,
        label_smoothing: float | None = None,
    ) -> None:
        super().__init__(backbone, num_classes, rng=rng, label_smoothing=label_smoothing)
        self.use_points(num_classes)
        self.radius = nn.Parameter(torch.zeros(1))
        self.temperature = temperature
        self.weight = weight
        self.margin = margin

    def class_scores(self, features: Tensor) -> Tensor:
        """Squared distance minus dot product with each reciprocal point."""
        return squared_distance(features, self.points) - dot_distance(features, self.points)

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """Cross-entropy plus the margin term."""
        features = self.backbone(x)
        distance, dot = squared_distance(features, self.points), dot_distance(features, self.points)
        self.observe(distance - dot, y)
        options = {"temperature": self.temperature, "weight": self.weight, "margin": self.margin}
        return arpl_loss(distance, dot, y, self.radius, **options, smoothing=self.label_smoothing)


METHOD = ARPL
