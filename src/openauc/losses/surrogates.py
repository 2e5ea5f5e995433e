"""Surrogates of the pairwise 0-1 loss: functions of the gap t = r(unknown) - r(known)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor
from torch.nn import functional as F

from openauc._validation import check_choice

Surrogate = Callable[[Tensor], Tensor]
"""What a gap costs: a function of r(unknown) - r(known), elementwise."""


def square(t: Tensor, margin: float = 1.0) -> Tensor:
    r"""Square loss of the gap, the paper's choice.

    .. math:: \ell(t) = (m - t)^2

    Not monotone: a gap beyond the margin is pulled back to it. For scores in [0, 1] and margin 1 that
    never happens, as t stays within [-1, 1].

    >>> import torch
    >>> square(torch.tensor([0.0, 1.0, 3.0])).tolist()
    [1.0, 0.0, 4.0]
    """
    return (margin - t).square()


def squared_hinge(t: Tensor, margin: float = 1.0) -> Tensor:
    r"""Square loss of the shortfall below the margin; a well-ranked pair costs nothing.

    .. math:: \ell(t) = \max(0, m - t)^2

    >>> import torch
    >>> squared_hinge(torch.tensor([0.0, 1.0, 3.0])).tolist()
    [1.0, 0.0, 0.0]
    """
    return (margin - t).clamp(min=0).square()


def logistic(t: Tensor, margin: float = 0.0) -> Tensor:
    r"""Logistic loss of the gap.

    .. math:: \ell(t) = \log(1 + e^{m - t})

    >>> import torch
    >>> round(logistic(torch.tensor(0.0)).item(), 4)
    0.6931
    """
    return F.softplus(margin - t)


SURROGATES: dict[str, Callable[..., Tensor]] = {
    "square": square,
    "squared_hinge": squared_hinge,
    "logistic": logistic,
}
"""Surrogates by name."""


def make_surrogate(surrogate: str | Callable[..., Tensor], margin: float | None = None) -> Surrogate:
    """Surrogate of that name in ``SURROGATES``, or the function itself, at another margin when one is given.

    A function must take the margin as its keyword ``margin``. ``None`` keeps its default: 1 for the squares, 0 for the
    logistic loss.

    >>> import torch
    >>> make_surrogate("square", margin=2.0)(torch.tensor(0.0)).item()
    4.0
    """
    if isinstance(surrogate, str):
        surrogate = SURROGATES[check_choice("surrogate", surrogate, SURROGATES)]
    return surrogate if margin is None else partial(surrogate, margin=margin)
