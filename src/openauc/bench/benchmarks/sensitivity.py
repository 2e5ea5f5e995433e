"""The paper's Figure 2: OpenAUC against the weight lambda of the ranking term, where 0 is cross-entropy alone."""

from __future__ import annotations

from typing import Literal

from openauc._validation import check_choice
from openauc.bench.benchmarks import digits
from openauc.bench.benchmarks.table2 import cpu_trial
from openauc.bench.trial import TrialSpec
from openauc.protocols import get_protocol

Budget = Literal["paper", "cpu", "digits"]

LAMBDAS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
PROTOCOLS = {"paper": ("svhn", "cifar10", "cifar+50"), "cpu": ("cifar10",), "digits": ("digits",)}


def trials(budget: Budget = "paper", seeds: int = 1) -> list[TrialSpec]:
    """OpenAUC with every lambda on every split of the budget's protocols with ``seeds`` seeds."""
    check_choice("budget", budget, PROTOCOLS)
    return [
        _trial(budget, protocol, split, seed=seed, lam=lam)
        for seed in range(seeds)
        for protocol in PROTOCOLS[budget]
        for split in range(len(get_protocol(protocol).splits))
        for lam in LAMBDAS
    ]


def _trial(budget: Budget, protocol: str, split: int, *, seed: int, lam: float) -> TrialSpec:
    if budget == "digits":
        return digits.trial("openauc", split, {"lam": lam}, seed=seed)
    if budget == "cpu":
        return cpu_trial(protocol, split, "openauc", {"lam": lam}, seed=seed)
    return TrialSpec.of(protocol, split, "openauc", method_args={"preset": "paper", "lam": lam}, seed=seed)
