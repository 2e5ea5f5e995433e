"""Cross-entropy with the label smoothing of the "+" recipes."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from openauc._validation import check_fraction


def smoothed_cross_entropy(logits: Tensor, target: Tensor, *, smoothing: float = 0.0) -> Tensor:
    r"""Batch mean of the cross-entropy against a target spread over the *other* classes.

    .. math:: -\frac{1}{B} \sum_i \Big[ (1 - s) \log p_{i y_i}
              + \frac{s}{K - 1} \sum_{c \ne y_i} \log p_{ic} \Big], \quad p_i = \mathrm{softmax}(z_i)

    PyTorch spreads its ``label_smoothing`` over all K classes, the true one included; this equals its value
    at s K / (K - 1).

    Parameters
    ----------
    logits, target
        (B, K) class scores and (B,) class numbers 0..K-1.
    smoothing
        The share s in [0, 1] taken from the true class; 0 is plain cross-entropy.

    Examples
    --------
    >>> import math, torch
    >>> logits = torch.tensor([[math.log(2.0), 0.0, 0.0]])  # probabilities 1/2, 1/4, 1/4
    >>> loss = smoothed_cross_entropy(logits, torch.tensor([0]), smoothing=0.5)
    >>> round(loss.item() / math.log(2.0), 4)  # 1/2 * 1 + 1/2 * 2 bits
    1.5
    """
    check_fraction("smoothing", smoothing, zero=True)
    if smoothing == 0:
        return F.cross_entropy(logits, target)
    num_classes = logits.shape[1]
    if num_classes < 2:
        raise ValueError(f"smoothing is {smoothing}, which needs two classes or more; set smoothing=0.")
    log_probability = F.log_softmax(logits, dim=1)  # (B, K)
    true_class = log_probability.gather(1, target[:, None]).squeeze(1)
    other_classes = log_probability.sum(1) - true_class
    return -((1 - smoothing) * true_class + smoothing / (num_classes - 1) * other_classes).mean()
