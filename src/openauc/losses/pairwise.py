"""Losses that rank unknown above known samples by the gap t = r(unknown) - r(known): surrogates of AUC and OpenAUC."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

from openauc._validation import check_choice

Surrogate = Callable[[Tensor], Tensor]  # an elementwise function of the gap r(unknown) - r(known)


def square(t: Tensor, margin: float = 1.0) -> Tensor:
    r"""Square loss of the gap, the paper's choice.

    .. math:: \ell(t) = (m - t)^2

    It is not monotone: it pulls a gap beyond the margin back to the margin. For scores in [0, 1] and margin 1 that
    never happens, as t stays within [-1, 1].

    >>> square(torch.tensor([0.0, 1.0, 3.0])).tolist()
    [1.0, 0.0, 4.0]
    """
    return (margin - t).square()


def squared_hinge(t: Tensor, margin: float = 1.0) -> Tensor:
    r"""Square loss of the shortfall below the margin; a well-ranked pair costs nothing.

    .. math:: \ell(t) = \max(0, m - t)^2

    >>> squared_hinge(torch.tensor([0.0, 1.0, 3.0])).tolist()
    [1.0, 0.0, 0.0]
    """
    return (margin - t).clamp(min=0).square()


def logistic(t: Tensor, margin: float = 0.0) -> Tensor:
    r"""Logistic loss of the gap.

    .. math:: \ell(t) = \log(1 + e^{m - t})

    >>> round(logistic(torch.tensor(0.0)).item(), 4)
    0.6931
    """
    return F.softplus(margin - t)


SURROGATES: dict[str, Callable[..., Tensor]] = {f.__name__: f for f in (square, squared_hinge, logistic)}
"""Surrogates by name."""


def make_surrogate(surrogate: str | Callable[..., Tensor], margin: float | None = None) -> Surrogate:
    """Surrogate of that name in ``SURROGATES``, or the function itself, with another margin if one is given.

    A function must take the margin as its keyword ``margin``. ``None`` keeps the default: 1 for the squares, 0 for the
    logistic loss.

    >>> make_surrogate("square", margin=2.0)(torch.tensor(0.0)).item()
    4.0
    """
    if isinstance(surrogate, str):
        surrogate = SURROGATES[check_choice("surrogate", surrogate, SURROGATES)]
    return surrogate if margin is None else partial(surrogate, margin=margin)


class PairwiseAUCLoss(nn.Module):
    r"""Weighted mean surrogate of the gaps between unknown and known samples.

    .. math:: \frac{1}{N} \sum_{(i, j)} w_i \, \ell\big( r(x_j) - r(x_i) \big), \quad i \text{ known}, j
              \text{ unknown}

    Parameters
    ----------
    surrogate
        Function of the gap, element by element.
    pairing
        ``"slot"`` compares equal positions, so both sides have the same length; ``"all"`` compares every
        known with every unknown sample, in linear time for ``square``, else in quadratic time.
    normalizer
        N is the number of ``"pairs"`` (the paper) or of ``"hits"``: pairs counted with their weight, which
        makes the loss a conditional mean (the public code).
    gather
        Compare with the samples of every process as well. Each process then has the loss of all samples, and gradients
        averaged over the processes, as by DistributedDataParallel, are those of one process with all samples. Every
        process has to call the loss, even without a sample. Without a process group this option does nothing.

    Examples
    --------
    >>> PairwiseAUCLoss()(torch.tensor([0.0, 0.5]), torch.tensor([1.0, 0.5])).item()  # gaps 1 and 0
    0.5
    """

    def __init__(
        self,
        surrogate: Surrogate = square,
        *,
        pairing: Literal["slot", "all"] = "slot",
        normalizer: Literal["pairs", "hits"] = "pairs",
        gather: bool = False,
    ) -> None:
        super().__init__()
        self.surrogate = surrogate
        self.pairing = check_choice("pairing", pairing, ("slot", "all"))
        self.normalizer = check_choice("normalizer", normalizer, ("pairs", "hits"))
        self.gather = gather

    def forward(self, open_known: Tensor, open_unknown: Tensor, *, weight: Tensor | None = None) -> Tensor:
        """Loss of one batch, a scalar; without a pair, or without a hit to divide by, a zero that carries gradient.

        Parameters
        ----------
        open_known, open_unknown
            (K,) and (U,) open-set scores, higher = more unknown; U = K for slot pairing.
        weight
            (K,) non-negative weights of the known samples, bool or number; 1 when left out.
        """
        for name, score in (("open_known", open_known), ("open_unknown", open_unknown)):
            if score.ndim != 1:
                raise ValueError(f"{name} has shape {tuple(score.shape)}; expected one open-set score per sample.")
        n_known, n_unknown = len(open_known), len(open_unknown)
        if self.pairing == "slot" and n_known != n_unknown:
            counts = f"{n_known} known and {n_unknown} unknown scores"
            raise ValueError(f'slot pairing got {counts}; select as many of each, or use pairing="all".')
        if weight is not None and weight.shape != open_known.shape:
            raise ValueError(f"weight has shape {tuple(weight.shape)}; pass one for each of {n_known} known scores.")
        if self.gather and dist.is_available() and dist.is_initialized():
            open_known, open_unknown, weight = _gather_pairs(open_known, open_unknown, weight)
        if open_known.numel() == 0 or open_unknown.numel() == 0:
            return 0 * (open_known.sum() + open_unknown.sum())
        losses = self._loss_per_known(open_known, open_unknown)
        if weight is None:
            return losses.mean()
        weight = weight.to(losses.dtype)
        if self.normalizer == "pairs":
            return (weight * losses).mean()
        hits = weight.sum()
        return (weight * losses).sum() / torch.where(hits > 0, hits, torch.ones_like(hits))

    def _loss_per_known(self, open_known: Tensor, open_unknown: Tensor) -> Tensor:
        """(K,) mean loss of each known sample over the unknown samples that it is compared with."""
        if self.pairing == "slot":
            return self.surrogate(open_unknown - open_known)
        if square in (self.surrogate, getattr(self.surrogate, "func", None)):  # as it is, or at another margin
            # The mean of (m - t_j)^2 is the square at the mean gap plus the variance of the gaps, and known
            # sample i shifts all its gaps alike. Unlike the expanded polynomial this never cancels.
            return self.surrogate(open_unknown.mean() - open_known) + open_unknown.var(correction=0)
        return self.surrogate(open_unknown[None, :] - open_known[:, None]).mean(1)  # of gaps (K, U)


class OpenAUCLoss(nn.Module):
    r"""Surrogate of the ranking part of 1 - OpenAUC: only correctly classified known samples are ranked.

    .. math:: \frac{1}{N} \sum_{(i, j)} 1[y_i = h(x_i)] \, \ell\big( r(x_j) - r(x_i) \big)

    This is the second term of Eq. 17; add a classification loss for the first.

    Parameters
    ----------
    pairwise
        How pairs are formed, weighed and averaged; by default equal slots, square loss and number of pairs.

    Examples
    --------
    >>> loss = OpenAUCLoss()
    >>> known, unknown = torch.tensor([0.0, 0.5]), torch.tensor([1.0, 0.5])
    >>> loss(known, unknown, correct=torch.tensor([True, False])).item()  # the gap of 1 is free
    0.0
    """

    def __init__(self, pairwise: PairwiseAUCLoss | None = None) -> None:
        super().__init__()
        self.pairwise = PairwiseAUCLoss() if pairwise is None else pairwise

    def forward(self, open_known: Tensor, open_unknown: Tensor, *, correct: Tensor) -> Tensor:
        """Loss of one batch; ``correct`` (K,) marks the correctly classified known samples and gets no gradient."""
        loss: Tensor = self.pairwise(open_known, open_unknown, weight=correct.detach())
        return loss


def _gather_pairs(
    open_known: Tensor, open_unknown: Tensor, weight: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Scores and weights of all processes, in rank order, so that equal slots stay equal slots."""
    # All travel together: a rank with nothing on one side still joins the one backward step.
    local = [open_known, open_unknown, *([] if weight is None else [weight.to(open_known.dtype)])]
    sizes = torch.tensor([len(part) for part in local], device=open_known.device)
    per_rank = [torch.empty_like(sizes) for _ in range(dist.get_world_size())]
    dist.all_gather(per_rank, sizes)
    counts = torch.stack(per_rank).tolist()
    gathered: Tensor = _GatherRows.apply(torch.cat(local), [sum(rank) for rank in counts])  # type: ignore[no-untyped-call]
    parts = torch.split(gathered, [size for rank in counts for size in rank])
    known, unknown, *weights = (torch.cat(parts[start :: len(local)]) for start in range(len(local)))
    return known, unknown, weights[0] if weights else None


class _GatherRows(torch.autograd.Function):
    """Concatenate the rows of all ranks, ``counts`` of each; the gradient sums over ranks what each wants of a row."""

    @staticmethod
    def forward(ctx: Any, local: Tensor, counts: list[int]) -> Tensor:
        start = sum(counts[: dist.get_rank()])
        ctx.own = slice(start, start + len(local))
        padded = F.pad(local, (0, max(counts) - len(local)))
        per_rank = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(per_rank, padded)
        return torch.cat([rows[:count] for rows, count in zip(per_rank, counts, strict=True)])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        total = gradients[0].clone()
        dist.all_reduce(total)
        return total[ctx.own], None
