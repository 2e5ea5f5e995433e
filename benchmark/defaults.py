"""Do the defaults work for a newcomer? `openauc train digits --method M` for every method, split and two seeds.

`openauc run benchmark/defaults.py -o STORE`, then `python benchmark/publish.py STORE defaults_digits --title ...`.
"""

from __future__ import annotations

from openauc.bench.trial import TrialSpec
from openauc.methods import method_names
from openauc.protocols import get_protocol


def trials(seeds: int = 2) -> list[TrialSpec]:
    """Every method on every split of the digits, with no option given."""
    return [
        TrialSpec.of("digits", split, method, seed=seed)
        for seed in range(seeds)
        for split in range(len(get_protocol("digits").splits))
        for method in method_names()
    ]
