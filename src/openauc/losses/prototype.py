"""Losses on distances to learnable points: GCPL, RPL, ARPL and the loss of its confusing samples.

Points are prototypes of a class for GCPL (near = alike) and reciprocal points for RPL and ARPL (far = alike).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from openauc.losses.smoothing import smoothed_cross_entropy


def squared_distance(features: Tensor, points: Tensor, *, per_class: int = 1) -> Tensor:
    r"""Squared Euclidean distance over the dimension, averaged over the points of a class.

    .. math:: d_e(x, P_c) = \lVert \phi(x) - P_c \rVert^2 / D

    From features (B, D) and points (K * per_class, D), those of class 0 first, to (B, K).

    >>> squared_distance(torch.tensor([[3.0, 4.0]]), torch.tensor([[0.0, 0.0], [3.0, 4.0]])).tolist()
    [[12.5, 0.0]]
    """
    if per_class < 1 or len(points) % per_class:
        raise ValueError(f"{len(points)} points are not {per_class} per class; pass num_classes * per_class points.")
    # The expanded square needs no array of shape (B, K, D).
    total = features.square().sum(1, keepdim=True) - 2 * features @ points.T + points.square().sum(1)
    distance = total / features.shape[1]
    return distance if per_class == 1 else distance.reshape(len(distance), -1, per_class).mean(2)


def dot_distance(features: Tensor, points: Tensor) -> Tensor:
    r"""Dot product of features (B, D) with points (K, D), *not* divided by D, of shape (B, K).

    .. math:: d_d(x, P_c) = \phi(x) \cdot P_c

    >>> dot_distance(torch.tensor([[3.0, 4.0]]), torch.tensor([[1.0, 0.0], [1.0, 1.0]])).tolist()
    [[3.0, 7.0]]
    """
    return features @ points.T


def gcpl_loss(
    distance: Tensor, target: Tensor, *, temperature: float = 1.0, weight: float = 0.1, smoothing: float = 0.0
) -> Tensor:
    r"""Generalised convolutional prototype loss: classify by the nearest prototype and stay near one's own.

    .. math:: \mathrm{CE}(-d_e / T, y) + \frac{\lambda}{2} \, \overline{d_e(x_i, P_{y_i})}

    The mean of :math:`d_e`, which is already divided by D, is the mean over batch and dimensions of
    :math:`(\phi - P_y)^2`.

    Parameters
    ----------
    distance, target
        (B, K) from :func:`squared_distance`, and (B,) class numbers.
    temperature, weight, smoothing
        T, :math:`\lambda`, and the label smoothing of the cross-entropy.

    Examples
    --------
    >>> round(gcpl_loss(torch.tensor([[0.0, 0.0]]), torch.tensor([0])).item(), 4)  # log 2
    0.6931
    """
    classification = smoothed_cross_entropy(-distance / temperature, target, smoothing=smoothing)
    return classification + weight * (_own(distance, target).mean() / 2)


def rpl_loss(
    distance: Tensor,
    target: Tensor,
    radius: Tensor,
    *,
    temperature: float = 1.0,
    weight: float = 0.1,
    smoothing: float = 0.0,
) -> Tensor:
    r"""Reciprocal point loss: classify by the farthest point, at about the radius from one's own.

    .. math:: \mathrm{CE}(d_e / T, y) + \lambda \, \overline{(d_e(x_i, P_{y_i}) - R)^2}

    Arguments are those of :func:`gcpl_loss`, and R, a scalar or (1,): one radius for all classes. With several points
    per class the radius term uses their mean.

    >>> distance, target = torch.tensor([[2.0, 2.0]]), torch.tensor([0])
    >>> round(rpl_loss(distance, target, torch.tensor(0.0)).item(), 4)  # log 2 + 0.1 * 2^2
    1.0931
    """
    classification = smoothed_cross_entropy(distance / temperature, target, smoothing=smoothing)
    open_space = (_own(distance, target) - radius).square().mean()
    return classification + weight * open_space


def arpl_loss(
    distance: Tensor,
    dot: Tensor,
    target: Tensor,
    radius: Tensor,
    *,
    temperature: float = 1.0,
    weight: float = 0.1,
    margin: float = 1.0,
    smoothing: float = 0.0,
) -> Tensor:
    r"""Adversarial reciprocal point loss: as RPL, with the dot product and a one-sided margin.

    .. math:: \mathrm{CE}((d_e - d_d) / T, y) + \lambda \, \overline{\max(0, d_e(x_i, P_{y_i}) - R + m)}

    Arguments are those of :func:`rpl_loss`, ``dot`` (B, K) from :func:`dot_distance`, and the margin m, 1 in the public
    code; the printed formula has none.

    >>> distance, dot, target = torch.tensor([[2.0, 2.0]]), torch.zeros(1, 2), torch.tensor([0])
    >>> round(arpl_loss(distance, dot, target, torch.tensor(0.0)).item(), 4)  # log 2 + 0.1 * (2 + 1)
    0.9931
    """
    classification = smoothed_cross_entropy((distance - dot) / temperature, target, smoothing=smoothing)
    open_space = (_own(distance, target) - radius + margin).clamp(min=0).mean()
    return classification + weight * open_space


def confusion_loss(distance: Tensor) -> Tensor:
    r"""Exponential of minus the mean entropy of generated samples, between 1/K (confusing) and 1.

    .. math:: \exp\Big( \frac{1}{B} \sum_i \sum_c p_{ic} \log p_{ic} \Big), \quad
              p_i = \mathrm{softmax}_c \, d_e(x_i, P_c)

    Generator and classifier both minimise it (ARPL+CS). ``distance`` is (B, K) from
    :func:`squared_distance`; the dot product plays no part.

    >>> round(confusion_loss(torch.zeros(3, 4)).item(), 4)
    0.25
    """
    log_probability = F.log_softmax(distance, dim=1)
    negative_entropy = (log_probability.exp() * log_probability).sum(1)
    return torch.exp(negative_entropy.mean())


def _own(distance: Tensor, target: Tensor) -> Tensor:
    """(B,) distance of each sample to the point of its own class."""
    return distance.gather(1, target[:, None]).squeeze(1)
