"""Every result the OpenAUC paper prints (Wang et al., NeurIPS 2022), as data.

Rows do not all rest on one recipe. In Table 2, CE+, Acc+AUC and OpenAUC were trained with the ``plus`` recipe (600
epochs). Softmax, GCPL, RPL, ARPL and ARPL+CS appear to be the values of the ARPL paper carried over, hence of the
``plain`` recipe (100 epochs); a public log confirms this for Softmax on CIFAR10. Numbers are mean and population
deviation over five class splits, of which not all are distinct, one run each.

The CUB tables hold one run of a ResNet-50 and no deviation; the recipe of Softmax, GCPL, RPL and ARPL is not stated.
F-scores are those of the best threshold on the test set, and the paper's code swaps the names macro and micro, so
these two columns may be exchanged.
"""

from __future__ import annotations

from typing import NamedTuple


class Published(NamedTuple):
    """A printed value as a fraction; ``std`` is None where none is printed."""

    mean: float
    std: float | None = None


METHODS = ("softmax", "gcpl", "rpl", "arpl", "arpl_cs", "ce_plus", "arpl_plus", "acc_auc", "openauc")
"""Methods in the order of the paper's rows."""

TABLE_2_PROTOCOLS = ("mnist", "svhn", "cifar10", "cifar+10", "cifar+50", "tinyimagenet")
TABLE_2: dict[str, tuple[tuple[float, float], ...]] = {
    "softmax": ((99.2, 0.1), (92.8, 0.4), (83.8, 1.5), (90.9, 1.3), (88.5, 0.7), (60.8, 5.1)),
    "gcpl": ((99.1, 0.2), (93.4, 0.6), (84.3, 1.7), (91.0, 1.7), (88.3, 1.1), (59.3, 5.3)),
    "rpl": ((99.4, 0.1), (93.6, 0.5), (85.2, 1.4), (91.8, 1.2), (89.6, 0.9), (53.2, 4.6)),
    "arpl": ((99.4, 0.1), (94.0, 0.6), (86.6, 1.4), (93.5, 0.8), (91.6, 0.4), (62.3, 3.3)),
    "arpl_cs": ((99.5, 0.1), (94.3, 0.3), (87.9, 1.5), (94.7, 0.7), (92.9, 0.3), (65.9, 3.8)),
    "ce_plus": ((99.1, 0.2), (93.9, 0.4), (88.1, 1.7), (93.2, 0.6), (90.2, 0.4), (74.3, 3.9)),
    "acc_auc": ((99.3, 0.2), (94.0, 0.9), (87.6, 1.9), (93.6, 1.0), (92.0, 0.5), (74.0, 4.0)),
    "openauc": ((99.4, 0.1), (95.0, 0.4), (89.2, 1.9), (95.2, 0.7), (93.6, 0.3), (75.9, 4.1)),
}
"""OpenAUC in percent, mean and deviation, by method and in the order of the protocols."""

CUB_ACCURACY: dict[str, float] = {
    "softmax": 78.1,
    "gcpl": 82.5,
    "rpl": 82.6,
    "arpl": 82.1,
    "ce_plus": 86.2,
    "arpl_plus": 85.9,
    "openauc": 86.2,
}
"""Closed-set accuracy in percent, the same for every group of unknown classes."""

CUB_GROUPS = ("easy", "medium", "hard")
CUB_METRICS = ("auroc", "openauc", "error_at_95tpr", "macro_f_score", "micro_f_score")
CUB: dict[str, tuple[tuple[float, float, float], ...]] = {
    "softmax": ((79.7, 73.8, 66.9), (67.2, 63.0, 57.8), (46.6, 55.9, 62.8), (67.4, 66.5, 66.6), (69.0, 68.9, 70.8)),
    "gcpl": ((85.0, 78.7, 73.4), (74.7, 70.3, 66.7), (37.0, 46.8, 51.3), (77.6, 75.4, 74.0), (78.4, 76.8, 77.4)),
    "rpl": ((85.5, 78.1, 69.6), (74.5, 69.0, 62.4), (39.5, 53.5, 64.0), (75.4, 73.3, 72.4), (76.7, 75.2, 76.6)),
    "arpl": ((85.4, 78.0, 70.0), (74.4, 68.9, 62.7), (37.6, 49.9, 62.7), (75.3, 73.1, 72.2), (76.6, 75.0, 76.5)),
    "ce_plus": ((88.3, 82.3, 76.3), (79.8, 75.4, 70.8), (28.4, 42.1, 52.3), (82.6, 80.3, 78.3), (83.3, 81.6, 81.4)),
    "arpl_plus": ((83.5, 78.9, 72.1), (76.0, 72.4, 66.8), (48.7, 60.6, 67.8), (80.8, 79.0, 77.3), (81.7, 80.4, 80.4)),
    "openauc": ((88.8, 83.2, 78.1), (80.2, 76.1, 72.5), (28.1, 39.7, 47.6), (82.2, 79.7, 78.1), (83.0, 81.2, 81.1)),
}
"""Percent by method, in the order of the metrics and, within each, of the groups."""


def published(method: str, protocol: str, metric: str, group: str | None = None) -> Published | None:
    """What the paper prints for a method, or None.

    Parameters
    ----------
    method, protocol, metric
        Our names; the paper's AUC is ``auroc``.
    group
        Unknown classes of CUB: ``easy``, ``medium`` or ``hard``. Accuracy does not depend on it.

    Examples
    --------
    >>> published("openauc", "cifar10", "openauc")
    Published(mean=0.892, std=0.019)
    >>> published("ce_plus", "cub", "error_at_95tpr", "hard")
    Published(mean=0.523, std=None)
    >>> published("arpl_cs", "cub", "openauc", "easy") is None
    True
    """
    if protocol == "cub" and metric == "closed_set_accuracy":
        return _fractions(CUB_ACCURACY[method]) if method in CUB_ACCURACY else None
    if protocol == "cub" and metric in CUB_METRICS and group in CUB_GROUPS and method in CUB:
        return _fractions(CUB[method][CUB_METRICS.index(metric)][CUB_GROUPS.index(group)])
    if protocol in TABLE_2_PROTOCOLS and metric == "openauc" and group is None and method in TABLE_2:
        return _fractions(*TABLE_2[method][TABLE_2_PROTOCOLS.index(protocol)])
    return None


def training_of(protocol: str) -> str:
    """How the networks behind the printed values were trained, in a few words."""
    if protocol == "cub":
        return "ResNet-50, one run, 600 epochs (recipe of softmax, gcpl, rpl and arpl not stated)"
    return (
        "width 64, all training images, 600 epochs of recipe plus for ce_plus, acc_auc and openauc, "
        "apparently 100 epochs of recipe plain for the others"
    )


def _fractions(mean: float, std: float | None = None) -> Published:
    return Published(round(mean / 100, 4), None if std is None else round(std / 100, 4))
