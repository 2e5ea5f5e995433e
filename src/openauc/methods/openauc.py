"""OpenAUC (Wang et al., NeurIPS 2022): cross-entropy plus a surrogate of the OpenAUC risk."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from openauc._validation import check_choice
from openauc.losses.mixup import manifold_mixup
from openauc.losses.pairwise import OpenAUCLoss, PairwiseAUCLoss, make_surrogate
from openauc.losses.smoothing import smoothed_cross_entropy
from openauc.methods.base import Method
from openauc.models.base import Backbone, clean_statistics

# Where the paper leaves the choice open (one weight per batch, the value of lambda) this follows the public code.
_SHARED = {"lam": 0.1, "alpha": 2.0, "mix_weight": "batch", "cut": "features", "surrogate": "square"}


class OpenAUC(Method):
    r"""Classify known samples, and rank the correctly classified ones below mixtures of two classes.

    .. math:: \frac{1}{N_k} \sum_i \mathrm{CE}(z_i, y_i) + \frac{\lambda}{N} \sum_{(i, j)} 1[y_i = h(x_i)] \,
              \ell\big( r(u_j) - r(x_i) \big)

    (Eq. 17), with unknown samples u from manifold mixup at a cut of the network. The indicator carries no
    gradient. The ranking term of a batch without two classes or without a correct sample is zero.

    Parameters
    ----------
    lam
        :math:`\lambda`; the paper searched 0.1 to 0.6 and found 0.1 or 0.2 best.
    alpha
        Parameter of the Beta distribution of the mixing weight.
    pairing
        ``"slot"`` mixes the batch with its shuffle and ranks each sample against the mixture in its slot
        (appendix); ``"all"`` ranks every sample against every mixture (main text); ``"half_batch"`` ranks the
        first half against mixtures of the second, slot by slot (public code; of an odd batch one sample is
        left out, where that code leaves out the term).
    normalizer
        N counts ``"pairs"``, or only ``"hits"``, the pairs of correctly classified samples (public code).
    mix_weight
        One mixing weight per ``"batch"`` or per ``"sample"``.
    cut
        Cut point of the backbone. At ``"features"`` only the head sees mixtures. Earlier, the layers behind
        the cut do too; their BatchNorms then normalise with the mixtures' own statistics and record nothing.
    score_space
        r in the ranking term: ``"probability"`` is Def. 1 to the letter, :math:`\min_c (1 - p_c)`;
        ``"logit"`` is :math:`-\max_c z_c` (public code). One number added to all logits of a sample moves the logit
        score but not the cross-entropy, so the ranking term may learn such shifts; scores of differences
        (``"max_probability"``, ``"entropy"``) ignore them at test time.
    surrogate, margin
        :math:`\ell` by name or as a function, and its margin, see :func:`~openauc.losses.make_surrogate`.
    gather
        Rank across the samples of all processes, see :class:`~openauc.losses.PairwiseAUCLoss`.
    backbone, num_classes, rng, label_smoothing
        See :class:`~openauc.methods.base.Method`.
    """

    recipe = "plus"
    recipe_rows: ClassVar[Mapping[str, Mapping[str, Any]]] = {"tinyimagenet": {"batch_size": 64}}
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "paper": {**_SHARED, "pairing": "slot", "normalizer": "pairs", "score_space": "probability"},
        "public_code": {**_SHARED, "pairing": "half_batch", "normalizer": "hits", "score_space": "logit"},
    }

    def __init__(
        self,
        backbone: Backbone,
        num_classes: int,
        *,
        rng: np.random.Generator,
        lam: float = 0.1,
        alpha: float = 2.0,
        pairing: Literal["slot", "half_batch", "all"] = "slot",
        normalizer: Literal["pairs", "hits"] = "pairs",
        mix_weight: Literal["batch", "sample"] = "batch",
        cut: str = "features",
        score_space: Literal["probability", "logit"] = "probability",
        surrogate: str | Callable[..., Tensor] = "square",
        margin: float | None = None,
        gather: bool = False,
        label_smoothing: float | None = None,
    ) -> None:
        super().__init__(backbone, num_classes, rng=rng, label_smoothing=label_smoothing)
        self.lam = lam
        self.alpha = alpha
        self.pairing = check_choice("pairing", pairing, ("slot", "half_batch", "all"))
        self.mix_weight: Literal["batch", "sample"] = mix_weight
        check_choice("mix_weight", mix_weight, ("batch", "sample"))
        self.cut = check_choice("cut", cut, backbone.cut_points)
        self.score_space = check_choice("score_space", score_space, ("probability", "logit"))
        self.ranking = OpenAUCLoss(
            PairwiseAUCLoss(
                make_surrogate(surrogate, margin),
                pairing="all" if pairing == "all" else "slot",
                normalizer=normalizer,
                gather=gather,
            )
        )
        self._last_pairs = torch.empty(0), torch.empty(0), torch.empty(0)

    def loss(self, x: Tensor, y: Tensor, unknown: Tensor | None = None) -> Tensor:
        """Eq. 17 on one batch of images (B, 3, H, W) with classes (B,), which should stay on the CPU.

        ``unknown`` (U, 3, H, W) are images of unknown classes to use instead of mixtures; pairing by slot needs U = B.
        """
        target = y.to(x.device)
        # The backbone as a whole may be compiled.
        hidden = self.backbone(x) if self.cut == "features" else self.backbone.pre(x, self.cut)
        logits = self.class_scores(self.backbone.post(hidden, self.cut))
        open_known = self.pair_score(logits)
        correct = self.switch(logits, target)
        if unknown is None:
            mixed, kept = self.mix(hidden, y)
            if self.pairing != "all":
                open_known, correct = open_known[kept], correct[kept]
        with clean_statistics(self.backbone):
            if unknown is not None:
                open_unknown = self.pair_score(self.logits(unknown))
            elif len(mixed):
                open_unknown = self.pair_score(self.class_scores(self.backbone.post(mixed, self.cut)))
            else:
                open_unknown = open_known[:0]
        self.observe(logits, target)
        self._last_pairs = open_known.detach(), open_unknown.detach(), correct
        classification = smoothed_cross_entropy(logits, target, smoothing=self.label_smoothing)
        ranking: Tensor = self.ranking(open_known, open_unknown, correct=correct)
        return classification + self.lam * ranking

    def forward(self, x: Tensor, y: Tensor | None = None, *more: Tensor) -> Tensor:
        """``logits(x)``, or ``loss(x, y, *more)`` with the classes left on the CPU if they are there."""
        return self.logits(x) if y is None else self.loss(x, y, *more)

    def switch(self, logits: Tensor, target: Tensor) -> Tensor:
        """(B,) bool, true for known samples that take part in the ranking: those classified correctly."""
        return logits.detach().argmax(1) == target

    def pair_score(self, logits: Tensor) -> Tensor:
        """r in the ranking term, (B, C) to (B,)."""
        # Half-precision logits near 20 are 1/8 apart, too coarse for gaps of about 1.
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        if self.score_space == "probability":
            return 1 - F.softmax(logits, dim=1).amax(1)
        return -logits.amax(1)

    def diagnostics(self) -> dict[str, Tensor]:
        """The accuracy, and numbers on the ranking term of the last batch.

        ``open_score_known`` and ``open_score_mixed`` are means of r, ``hits`` is the share of paired known samples that
        take part in the ranking, ``pair_auc`` the AUC of paired known samples against mixtures (ties count half).
        """
        found = super().diagnostics()
        known, mixed, correct = self._last_pairs
        if len(known):
            found["open_score_known"] = known.mean()
            found["hits"] = correct.double().mean()
        if len(mixed):
            found["open_score_mixed"] = mixed.mean()
            found["pair_auc"] = (((mixed[None, :] - known[:, None]).sign() + 1) / 2).mean()
        return found

    def mix(self, hidden: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Mixtures at the cut, and the index of the known sample in the slot of each."""
        pairing: Literal["half", "full"] = "half" if self.pairing == "half_batch" else "full"
        return manifold_mixup(hidden, target, alpha=self.alpha, rng=self.rng, weight=self.mix_weight, pairing=pairing)


METHOD = OpenAUC
