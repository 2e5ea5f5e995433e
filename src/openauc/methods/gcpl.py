"""GCPL: generalised convolutional prototype learning."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from openauc.losses.prototype import gcpl_loss, squared_distance
from openauc.methods.base import Method
from openauc.models.base import Backbone


class GCPL(Method):
    r"""One prototype per class; logits are :math:`-d_e(x, P_c)` and :math:`r = -\max_c p_c`.

    Parameters
    ----------
    temperature, weight
        T and the weight of the prototype term of :func:`~openauc.losses.gcpl_loss`.
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
        temperature: float = 1.0,
        weight: float = 0.1,
        label_smoothing: float | None = None,
    ) -> None:
        super().__init__(backbone, num_classes, rng=rng, label_smoothing=label_smoothing)
        self.use_points(num_classes)
        self.temperature = temperature
        self.weight = weight

    def class_scores(self, features: Tensor) -> Tensor:
        """Minus the distance to each prototype."""
        return -squared_distance(features, self.points)

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """Cross-entropy plus the distance to the prototype of the own class."""
        logits = self.logits(x)
        self.observe(logits, y)
        return gcpl_loss(-logits, y, temperature=self.temperature, weight=self.weight, smoothing=self.label_smoothing)


METHOD = GCPL
