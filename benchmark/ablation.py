"""Which choices of the OpenAUC loss matter: each arm differs from the paper's form in one thing.

`openauc run benchmark/ablation.py [--set protocol=cifar10]`; `publish.py` writes the results.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

from openauc._validation import check_choice
from openauc.bench.benchmarks import digits
from openauc.bench.benchmarks.table2 import cpu_trial
from openauc.bench.trial import Scalar, TrialSpec
from openauc.protocols import get_protocol

ARMS: tuple[dict[str, Scalar], ...] = (
    {},
    {"pairing": "half_batch"},
    {"pairing": "all"},
    {"normalizer": "hits"},
    {"mix_weight": "sample"},
    {"cut": "block2"},
    {"cut": "block3"},
    {"score_space": "logit"},
    {"surrogate": "squared_hinge"},
    {"surrogate": "logistic"},
    {"score": "max_probability"},
    {"lam": 0.02},
    {"lam": 0.5},
)
"""Options that differ from the preset ``paper``, or another score; the first arm is that preset itself."""


def trials(protocol: Literal["digits", "cifar10"] = "digits", seeds: int = 1) -> list[TrialSpec]:
    """CE+, the two presets and every arm on every split with ``seeds`` seeds, at the CPU budget of the protocol."""
    check_choice("protocol", protocol, ("digits", "cifar10"))
    return [
        _trial(protocol, split, method, options, seed)
        for seed in range(seeds)
        for split in range(len(get_protocol(protocol).splits))
        for method, options in _variants()
    ]


def _variants() -> Iterator[tuple[str, dict[str, Scalar]]]:
    yield "ce_plus", {}
    yield "openauc", {"preset": "public_code"}
    for arm in ARMS:
        yield "openauc", {"preset": "paper", **arm}


def _trial(protocol: str, split: int, method: str, arm: dict[str, Scalar], seed: int) -> TrialSpec:
    options = {name: value for name, value in arm.items() if name != "score"}
    if protocol == "digits":
        spec = digits.trial(method, split, options, seed=seed)
    else:
        spec = cpu_trial(protocol, split, method, options, seed=seed)
    return replace(spec, score=str(arm["score"])) if "score" in arm else spec
