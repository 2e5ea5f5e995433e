"""Acc+AUC: accuracy and AUC optimised together, the paper's ablation of OpenAUC."""

from __future__ import annotations

import torch
from torch import Tensor

from openauc.methods.openauc import OpenAUC


class AccAUC(OpenAUC):
    """OpenAUC without its indicator: misclassified known samples are ranked as well, all else is equal."""

    def switch(self, logits: Tensor, target: Tensor) -> Tensor:
        """(B,) bool, all true: every known sample takes part in the ranking."""
        return torch.ones_like(target, dtype=torch.bool)


METHOD = AccAUC
