"""
Which way does the score point?
===============================

After this page you can tell whether your score points the right way, and turn it if not.

**Higher means more unknown.** A sample is rejected when its score is *above* the threshold. This holds for every
function, file and command of ``openauc``. Many codes give a confidence instead, which points the other way.
If you pass it unchanged, the result is upside down.
"""

import textwrap
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from openauc import (
    UNKNOWN,
    Predictions,
    ScoreDirectionWarning,
    auroc_score,
    closed_set_accuracy,
    decide,
    openauc_score,
)
from openauc.plotting import LOOK, STYLES

plt.rcParams.update(LOOK)
EXAMPLES = Path("../../examples")
network = Predictions.load(EXAMPLES / "network.npz")

# %%
# The scores of the example model are minus the largest logit. Correct known samples should lie to the left, unknown
# ones to the right; wrongly classified known samples usually lie between.

is_known = network.y_true != UNKNOWN
is_right = network.y_pred == network.y_true
kinds = {"known, right": is_right & is_known, "known, wrong": ~is_right & is_known, "unknown": ~is_known}

# sphinx_gallery_start_ignore
fig, ax = plt.subplots(figsize=(6.2, 3.4))
bins = np.linspace(network.open_score.min(), network.open_score.max(), 60)
for (name, chosen), (color, dashes) in zip(kinds.items(), STYLES, strict=False):
    options = {"bins": bins, "density": True, "color": color}
    ax.hist(network.open_score[chosen], alpha=0.15, **options)
    ax.hist(network.open_score[chosen], histtype="step", linestyle=dashes, linewidth=1.6, label=name, **options)
ax.set(xlabel="open-set score (lower: known, higher: unknown)", ylabel="density")
ax.legend(loc="upper left")
plt.show()
# sphinx_gallery_end_ignore

# %%
# When it points the wrong way
# ----------------------------
#
# Unknown samples then rank *below* known ones and the AUROC falls below one half. That is when you get a warning:

confidence = -network.open_score
reversed_triple = network.y_true, network.y_pred, confidence
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always", ScoreDirectionWarning)
    reversed_openauc, reversed_auroc = openauc_score(*reversed_triple), auroc_score(*reversed_triple)
print(textwrap.fill(str(caught[0].message)))

# %%
# A reversed AUROC is 1 - AUROC. A reversed OpenAUC is *accuracy* - OpenAUC, because only correct known samples take
# part, so it cannot be repaired by taking 1 minus it. Turn the score, not the result.

accuracy, auroc, openauc = (score(*network) for score in (closed_set_accuracy, auroc_score, openauc_score))
print(f"AUROC   {reversed_auroc:.4f} = 1 - {auroc:.4f}")
print(f"OpenAUC {reversed_openauc:.4f} = {accuracy:.4f} - {openauc:.4f}")

# %%
# The warning is a hint, not a proof: a model that is truly worse than guessing triggers it too, and on few samples a
# reversed score may stay above one half by luck. Nothing is ever turned around silently.
#
# How to turn a score
# -------------------
#
# - In Python: pass ``-confidence``.
# - From a file: ``Predictions.load(path, lower_is_unknown=True)``, or ``--lower-is-unknown`` on the command line. The
#   threshold that ``openauc threshold`` prints is then turned back for you ("confidence < ...").
# - From logits: ``Predictions.from_logits(y_true, logits)`` takes minus the largest logit.
#
# Only the order of the scores matters to ranking metrics and to best values over all thresholds, so any increasing
# function gives the same numbers: ``-p``, ``1 - p`` and ``1 / p`` are equally good (as long as it creates no :doc:`ties
# <2_ties>`). The threshold itself lives on the scale of the score you passed.

y_true, y_pred, p = [0, 1, -1, -1], [0, 1, 1, 0], np.array([0.9, 0.6, 0.7, 0.4])
print([openauc_score(y_true, y_pred, score) for score in (-p, 1 - p, 1 / p)])
print(decide(y_pred, 1 - p, threshold=0.5), decide(y_pred, -p, threshold=-0.5))

# %%
# Common scores
# -------------
#
# All of them from the same logits, all pointing up; ``openauc.features.SCORES`` has the same five by name, and some
# that look at features. They rank the samples differently, so they give different results: name the score you used.

rng = np.random.default_rng(0)
label = np.r_[rng.integers(0, 6, 3000), np.full(2000, UNKNOWN)]
strength = rng.gamma(4.0, 0.8, size=5000) * np.where(label == UNKNOWN, 0.55, 1.0)
resembled = np.where(label == UNKNOWN, rng.integers(0, 6, 5000), label)
logits = rng.normal(size=(5000, 6))
logits[np.arange(5000), resembled] += strength

probability = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
ascending = np.sort(logits, axis=1)
scores = {
    "-max logit": -logits.max(axis=1),
    "-max probability": -probability.max(axis=1),
    "energy, -log sum exp": -np.logaddexp.reduce(logits, axis=1),
    "entropy": -(probability * np.log(probability)).sum(axis=1),
    "margin, second - largest logit": ascending[:, -2] - ascending[:, -1],
}
values = {name: openauc_score(label, logits.argmax(axis=1), score) for name, score in scores.items()}
pd.DataFrame({"OpenAUC on made-up logits": values}).round(4)

# %%
# What other codes hand out
# -------------------------
#
# =============================================  ====================  =======================
# code                                           its score             pass
# =============================================  ====================  =======================
# softmax confidence, largest logit              higher = known        ``-score``
# ARPL (largest class score)                     higher = known        ``-score``
# Vaze et al. (minus the largest logit)          higher = unknown      as it is
# OpenAUC's public code (sigmoid of minus it)    higher = unknown      the value before the sigmoid
# OpenOOD (``conf``)                             higher = known        ``-conf``
# pytorch-ood                                    higher = unknown      as it is
# scikit-learn outliers (``score_samples``)      higher = known        ``-score``
# distance to the nearest class centre           higher = unknown      as it is
# =============================================  ====================  =======================
