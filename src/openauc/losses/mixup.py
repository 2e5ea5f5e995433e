"""Manifold mixup: stand-ins for unknown samples, made from two known classes."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch import Tensor

from openauc._validation import check_choice


def manifold_mixup(
    features: Tensor,
    target: Tensor,
    *,
    alpha: float = 2.0,
    rng: np.random.Generator,
    weight: Literal["batch", "sample"] = "batch",
    pairing: Literal["full", "half"] = "full",
) -> tuple[Tensor, Tensor]:
    r"""Convex combinations of features of different known classes, which stand for unknown samples.

    .. math:: u_i = w \, f_i + (1 - w) \, f_{\pi(i)}, \quad y_i \ne y_{\pi(i)}, \quad w \sim B(\alpha, \alpha)

    with a random permutation :math:`\pi`. Slots whose two classes agree are dropped, so a batch of one class
    (or of one sample) yields no mixture. Otherwise at least two slots remain.

    Parameters
    ----------
    features, target
        (B, D) or (B, C, H, W) features at the cut point, and (B,) class numbers. The slots to keep are found on the
        device of the class numbers: with these on the CPU, nothing waits for a GPU.
    alpha, rng
        Both parameters of the Beta distribution; source of the permutation and then of the weights.
    weight
        One weight per ``"batch"`` or per ``"sample"``.
    pairing
        ``"full"`` mixes the batch with its shuffle (the paper), ``"half"`` the second half with its own, so that the
        first half can be ranked against it (the public code); the last sample of an odd batch is then not used.

    Returns
    -------
    mixed, kept : Tensor
        (M, ...) mixed features, with gradient to both sources, and (M,) indices of the known sample in the slot of
        each: the sample itself for ``"full"``, its opposite in the first half for ``"half"``.

    Examples
    --------
    >>> features, target = torch.tensor([[0.0], [1.0], [4.0]]), torch.tensor([0, 0, 1])
    >>> mixed, kept = manifold_mixup(features, target, rng=np.random.default_rng(0))
    >>> kept.tolist(), mixed.shape  # slots that met the only sample of class 1
    ([0, 2], torch.Size([2, 1]))
    """
    check_choice("weight", weight, ("batch", "sample"))
    if not alpha > 0:
        raise ValueError(f"alpha is {alpha}; the Beta distribution needs a positive number, 2 in the paper.")
    if target.shape != features.shape[:1]:
        raise ValueError(
            f"target has shape {tuple(target.shape)}; pass one class for each of {len(features)} features."
        )
    if check_choice("pairing", pairing, ("full", "half")) == "half":
        half = features.shape[0] // 2
        features, target = features[half : 2 * half], target[half : 2 * half]
    slots = features.shape[0]
    partner = torch.as_tensor(rng.permutation(slots), device=target.device)
    kept = (target != target[partner]).nonzero().squeeze(1)
    kept, partner = kept.to(features.device), partner.to(features.device)
    own, other = features[kept], features[partner[kept]]
    if weight == "batch":
        share = float(rng.beta(alpha, alpha))
        return share * own + (1 - share) * other, kept
    drawn = torch.as_tensor(rng.beta(alpha, alpha, size=slots), dtype=features.dtype, device=features.device)
    shares = drawn[kept].reshape(-1, *[1] * (features.ndim - 1))  # (M, 1, ...)
    return shares * own + (1 - shares) * other, kept
