"""Every result the OpenAUC paper prints (Wang et al., NeurIPS 2022), as data.

Rows do not all rest on one recipe. In Table 2, CE+, Acc+AUC and OpenAUC were trained with the ``plus`` recipe (600
epochs). Softmax, GCPL, RPL, ARPL and ARPL+CS appear to be the values of the ARPL paper carried over, and so of the
``plain`` recipe (100 epochs); a public log confirms this for Softmax on CIFAR10. Numbers are mean and population
deviation over five class splits, of which not all are distinct, one run each.

The CUB tables hold one run of a ResNet-50 and no deviation; the recipe of Softmax, GCPL, RPL and ARPL is not stated.
F-scores are those of the best threshold on the test set, and the paper's code swaps the names macro and micro, so
these two columns may be exchanged.
"""

from __future__ import annotations

import json
from importlib.resources import files
from typing import NamedTuple


class Published(NamedTuple):
    """A printed value as a fraction; ``std`` is None where none is printed."""

    mean: float
    std: float | None = None


METHODS = ("softmax", "gcpl", "rpl", "arpl", "arpl_cs", "ce_plus", "arpl_plus", "acc_auc", "openauc")
"""Methods in the order of the paper's rows."""

_VALUES = json.loads(files("openauc.bench").joinpath("paper.json").read_text(encoding="utf-8"))
"""Percent: OpenAUC with its deviation by method and protocol, and every column of the CUB tables by method; and how
the networks were trained."""
TABLE_2_PROTOCOLS: tuple[str, ...] = tuple(_VALUES["table2"]["openauc"])
CUB_METHODS: tuple[str, ...] = tuple(_VALUES["cub"])


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
    if protocol == "cub":
        found = _VALUES["cub"].get(method, {}).get(metric)
        found = found.get(group) if isinstance(found, dict) else found
    else:
        found = _VALUES["table2"].get(method, {}).get(protocol) if (metric, group) == ("openauc", None) else None
    if found is None:
        return None
    mean, std = found if isinstance(found, list) else (found, None)
    return Published(round(mean / 100, 4), None if std is None else round(std / 100, 4))


def training_of(protocol: str) -> str:
    """How the networks behind the printed values were trained, in a few words."""
    return str(_VALUES["training"]["cub" if protocol == "cub" else "table2"])
