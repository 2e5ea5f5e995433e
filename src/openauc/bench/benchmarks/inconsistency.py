"""The paper's Figure 1: CE+ models whose predictions show F-score, Youden's index and accuracy against the unknown TPR.

The trials are those of ``table2`` for CE+ on the first split, so a store of that benchmark has them already.
"""

from __future__ import annotations

from openauc.bench.benchmarks import table2
from openauc.bench.trial import TrialSpec

PROTOCOLS = {"paper": ("cifar+10", "cifar+50", "tinyimagenet"), "cpu": ("cifar+10", "cifar+50")}


def trials(budget: table2.Budget = "paper") -> list[TrialSpec]:
    """CE+ on the first split of each protocol."""
    return [
        spec
        for spec in table2.trials(budget)
        if spec.method == "ce_plus" and spec.split == 0 and spec.protocol in PROTOCOLS[budget]
    ]
