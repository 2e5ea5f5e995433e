"""Softmax: cross-entropy, scored by the largest probability."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from openauc.losses.smoothing import smoothed_cross_entropy
from openauc.methods.base import Method
from openauc.models.base import Backbone


class Softmax(Method):
    r"""Cross-entropy on the linear head, :math:`\mathrm{CE}(z / T, y)`, with :math:`r = -\max_c p_c`.

    Parameters
    ----------
    temperature
        T, used by the loss only.
    backbone, num_classes, rng, label_smoothing
        See :class:`~openauc.methods.base.Method`.
    """

    score = "max_probability"

    def __init__(
        self,
        backbone: Backbone,
        num_classes: int,
        *,
        rng: np.random.Generator,
        temperature: float = 1.0,
        label_smoothing: float | None = None,
    ) -> None:
        super().__init__(backbone, num_classes, rng=rng, label_smoothing=label_smoothing)
        self.temperature = temperature

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """Cross-entropy of the logits divided by T."""
        logits = self.logits(x)
        self.observe(logits, y)
        return smoothed_cross_entropy(logits / self.temperature, y, smoothing=self.label_smoothing)


METHOD = Softmax
