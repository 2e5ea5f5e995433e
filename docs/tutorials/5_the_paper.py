"""
Reproduce the paper
===================

After this page you can run the paper's tables, or a benchmark of your own, on one machine or on a cluster, and stop and
continue it at any time.

A benchmark is a list of trials, and a trial is plain data: protocol, split, method, recipe, seed. The same list runs in
this process, in several processes, or on a Ray cluster, with the same results.

The paper's Table 2 has 450 trials and takes about 183 GPU hours. ``--dry-run`` lists the trials with their cost:

.. code-block:: sh

    openauc list                                         # methods, scores, protocols, metrics, benchmarks
    openauc run table2 --data-root DATA --dry-run
    openauc run table2 --data-root DATA --ray-address auto --gpus-per-trial 0.25
    openauc table runs/table2 --baseline ce_plus -o table.tex
    openauc report runs/table2 -o report.html

One trial alone is a training. Any field of recipe, method or trial can be set:

.. code-block:: sh

    openauc train cifar10 --method openauc --split 0 --data-root DATA --set lam=0.2

The rest of this page runs a small benchmark from Python, to show what happens.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt

from openauc.bench.rendering import render
from openauc.bench.runner import run
from openauc.bench.store import Store
from openauc.bench.summary import summarise
from openauc.bench.trial import TrialSpec
from openauc.executors import in_process, ray_cluster
from openauc.plotting import LOOK, STYLES

# %%
# Two methods, two splits of the embedded digits, three epochs of a narrow network: small enough for this page.


def trials(splits: int) -> list[TrialSpec]:
    return [
        TrialSpec.of("digits", split, method, recipe="plain", epochs=3, width=8)
        for method in ("ce_plus", "openauc")
        for split in range(splits)
    ]


for trial in trials(splits=2):
    print(trial.id)

# %%
# Without an address, ``ray_cluster`` starts a cluster on this machine and stops it in the end. With
# ``ray_cluster("auto")`` or ``ray_cluster("host:6379")`` the trials go to one that exists.

store = Path(tempfile.mkdtemp()) / "store"
results = run(trials(splits=2), out=store, execute=ray_cluster(cpus_per_trial=1))
for result in results:
    print(result.spec.method, result.spec.split, f"{result.metrics['openauc']:.4f}", result.error or "")

# %%
# What is done stays done: the store keeps spec, log, weights, predictions and metrics of each trial, and running the
# list again only does what is missing. Here that is a third split, in this process.

results = run(trials(splits=3), out=store, execute=in_process)
print(len(results), "results,", sum(result.error is not None for result in results), "failed")

# %%
# The table of the store, with intervals over splits and the difference to a baseline. Three short trainings tell
# little, and the intervals show it.

print(render(summarise(Store(store).results(), baseline="ce_plus"), format="text"))

# %%
# The single trials are plain data as well:

with plt.rc_context(LOOK):
    figure, axes = plt.subplots(figsize=(5, 2.6))
    for (color, _), method in zip(STYLES, ("ce_plus", "openauc"), strict=False):
        found = {r.spec.split: r.metrics["openauc"] for r in results if r.spec.method == method}
        axes.plot(found.keys(), found.values(), "o-", color=color, label=method)
    axes.set(xlabel="split", ylabel="OpenAUC", xticks=range(3))
    axes.legend()
plt.show()

# %%
# On the command line
# -------------------
#
# A benchmark of your own is a Python file with ``trials() -> list[TrialSpec]``:
#
# .. code-block:: sh
#
#     openauc run FILE.py --ray
#
# A training leaves one folder: spec, log, weights, predictions, result, and where they were made. Several runners may
# share a store, and a failed trial is a row of the table. One training serves many scores.
#
# :doc:`/cluster` is about real clusters: by hand, with Slurm, on Kubernetes, and what happens when a node dies.
# :doc:`/paper_map` has the code and the test of each equation, and every choice that the paper leaves open.
# :doc:`more/4_add_your_own` adds a method of your own.
