"""Forms of the OpenAUC loss that only the search tries: the method `benchmark.forms`, seen from the project's root."""

from __future__ import annotations

import inspect
from typing import Any, Literal

import torch
from torch import Tensor

from openauc._validation import check_choice, check_fraction
from openauc.losses.pairwise import OpenAUCLoss, PairwiseAUCLoss
from openauc.methods.openauc import OpenAUC
from openauc.models.base import Backbone, clean_statistics

Gradient = Literal["both", "known", "unknown"]


class Forms(OpenAUC):
    """OpenAUC with three options that are in neither the paper nor its code, all off by default.

    Parameters
    ----------
    warm_up
        Batches over which the weight of the ranking term rises evenly from zero to ``lam``.
    min_confidence
        Mix only samples that are classified correctly and whose class has at least this probability; at 0
        every sample of the batch, as in the paper.
    gradient
        Which scores of a pair the ranking term moves: ``"both"`` as in the paper, or only those of the
        ``"known"`` or of the ``"unknown"`` sample.
    backbone, num_classes, **options
        See :class:`~openauc.methods.openauc.OpenAUC`.
    """

    batches_seen: Tensor

    def __init__(
        self,
        backbone: Backbone,
        num_classes: int,
        *,
        warm_up: int = 0,
        min_confidence: float = 0.0,
        gradient: Gradient = "both",
        **options: Any,
    ) -> None:
        super().__init__(backbone, num_classes, **options)
        if warm_up < 0:
            raise ValueError(f"warm_up is {warm_up}; pass a number of batches, or 0 for the full weight at once.")
        self.warm_up = warm_up
        self.full_lam = self.lam
        if warm_up:  # a buffer, so that a resumed training goes on where it was
            self.register_buffer("batches_seen", torch.zeros((), dtype=torch.int64))
        self.min_confidence = check_fraction("min_confidence", min_confidence, zero=True)
        check_choice("gradient", gradient, ("both", "known", "unknown"))
        self.ranking = OneSidedLoss(self.ranking.pairwise, gradient)

    def loss(self, x: Tensor, y: Tensor, unknown: Tensor | None = None) -> Tensor:
        """Eq. 17 on one batch, with the weight that it is this batch's turn to have."""
        if self.warm_up:
            self.lam = self.full_lam * (self.batches_seen / self.warm_up).clamp(max=1)
            self.batches_seen += 1
        return super().loss(x, y, unknown)

    def mix(self, hidden: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Mixtures of confident hits at the cut, and the known sample in the slot of each."""
        if not self.min_confidence:
            return super().mix(hidden, target)
        target = target.to(hidden.device)
        with torch.no_grad(), clean_statistics(self.backbone):
            probability, predicted = self.class_scores(self.backbone.post(hidden, self.cut)).softmax(1).max(1)
        chosen = ((predicted == target) & (probability >= self.min_confidence)).nonzero().squeeze(1)
        mixed, kept = super().mix(hidden[chosen], target[chosen])
        return mixed, chosen[kept]


class OneSidedLoss(OpenAUCLoss):
    """The ranking loss, with gradient for one score of a pair or for both."""

    def __init__(self, pairwise: PairwiseAUCLoss, gradient: Gradient) -> None:
        super().__init__(pairwise)
        self.gradient = gradient

    def forward(self, open_known: Tensor, open_unknown: Tensor, *, correct: Tensor) -> Tensor:
        if self.gradient == "known":
            open_unknown = open_unknown.detach()
        elif self.gradient == "unknown":
            open_known = open_known.detach()
        return super().forward(open_known, open_unknown, correct=correct)


def _signature() -> inspect.Signature:
    inherited, own = (inspect.signature(kind) for kind in (OpenAUC, Forms))
    added = [option for option in own.parameters.values() if option.default is not option.empty]
    return inherited.replace(parameters=[*inherited.parameters.values(), *added])


# The options that a method accepts are read from its signature, which ** would hide.
Forms.__signature__ = _signature()  # type: ignore[attr-defined]
METHOD = Forms
