"""Weight of the ranking term for ``table2 --budget cpu``, chosen on held-out known classes only.

One weight per method, by the mean over all of these trials: those of one protocol are too few to tell weights apart.
`openauc run benchmark/tuning.py -o STORE`, then `python benchmark/publish.py STORE tuning --title T`.
"""

from __future__ import annotations

from openauc.bench.benchmarks.table2 import cpu_trial
from openauc.bench.trial import TrialSpec

LAMBDAS = (0.02, 0.1, 0.4)
PSEUDO_UNKNOWN = {"mnist": 2, "cifar10": 2, "cifar+10": 1}
"""Known classes held out of training, of six, six and four."""
SPLITS = (0, 4)
EPOCHS = 6


def trials(seeds: int = 1) -> list[TrialSpec]:
    """OpenAUC and Acc+AUC with each weight on two splits of each training set, ``seeds`` draws of held-out classes."""
    return [
        cpu_trial(protocol, split, method, {"lam": lam}, seed=seed, epochs=EPOCHS, pseudo_unknown=held_out)
        for seed in range(seeds)
        for protocol, held_out in PSEUDO_UNKNOWN.items()
        for split in SPLITS
        for method in ("openauc", "acc_auc")
        for lam in LAMBDAS
    ]
