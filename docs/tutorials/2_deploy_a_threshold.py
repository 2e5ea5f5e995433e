"""
Choose a threshold and deploy it
================================

A score ranks samples; a product must decide. This page chooses a threshold on validation samples, says what it
guarantees, uses it on new samples, and checks that the guarantee was kept.
"""

import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from openauc import Predictions, choose_threshold, decide
from openauc.plotting import LOOK, STYLES

predictions = Predictions.load(Path("../../examples/network.npz"))

# %%
# Half of the samples play the validation set, the other half is what comes in later.

order = np.random.default_rng(0).permutation(len(predictions.y_true))
half = len(order) // 2
validation = Predictions(*(column[order[:half]] for column in predictions))
later = Predictions(*(column[order[half:]] for column in predictions))

# %%
# With a guarantee
# ----------------
#
# "Of the known samples to come, accept 95 %." This needs no unknown sample at all, and holds whatever the
# distribution of the scores, as long as later known samples are like those of the validation set.

point = choose_threshold(*validation, target="known_acceptance", value=0.95)
print(f"reject when score > {point.threshold:.4f}")
print(point.guarantee)

# %%
# That guarantee is an average over validation sets: for one of them the rate may be a little lower. With ``confidence``
# it holds for that share of all validation sets, at the price of a slightly higher threshold.

careful = choose_threshold(*validation, target="known_acceptance", value=0.95, confidence=0.99)
print(f"reject when score > {careful.threshold:.4f}")
print(careful.guarantee)

# %%
# With prices
# -----------
#
# If one knows what each mistake costs and how many unknown samples to expect, the cheapest threshold follows. Here an
# accepted unknown sample is five times as bad as anything else, and one sample in ten is unknown.

cheapest = choose_threshold(*validation, target="cost", costs={"unknown_accepted": 5.0, "unknown_share": 0.1})
print(f"reject when score > {cheapest.threshold:.4f}: {cheapest.objective:.3f} per sample")

# %%
# In use
# ------
#
# :func:`~openauc.decide` gives the final labels: a class, or -1. It needs nothing but the threshold, which fits into
# any configuration file.

settings = json.loads(json.dumps({"threshold": careful.threshold}))
labels = decide(later.y_pred, later.open_score, threshold=settings["threshold"])
print(labels[:20])

# %%
# Was the guarantee kept?

known = later.y_true != -1
print(f"known samples accepted:   {np.mean(labels[known] != -1):.1%}")
print(f"... and classified right: {np.mean(labels[known] == later.y_true[known]):.1%}")
print(f"unknown samples rejected: {np.mean(labels[~known] == -1):.1%}")

# %%
# The last number is not guaranteed. It depends on which unknown samples come, and nobody can vouch for those. What it
# would be for other thresholds, and what it costs among the known samples, shows the whole curve.

(blue, _), (orange, _), *_ = STYLES
with plt.rc_context(LOOK):
    figure, axes = plt.subplots(figsize=(5.6, 3.4))
    shown = np.linspace(later.open_score.min(), later.open_score.max(), 300)
    accepted = [np.mean(later.open_score[known] <= threshold) for threshold in shown]
    rejected = [np.mean(later.open_score[~known] > threshold) for threshold in shown]
    axes.plot(shown, accepted, color=blue, label="known samples accepted")
    axes.plot(shown, rejected, color=orange, linestyle="--", label="unknown samples rejected")
    axes.axvline(careful.threshold, color="0.4", linewidth=1)
    axes.annotate("deployed", (careful.threshold, 0.02), xytext=(4, 0), textcoords="offset points", color="0.4")
    axes.set(xlabel="threshold", ylabel="share", ylim=(0, 1.02))
    axes.legend(loc="center left")
plt.show()

# %%
# On the command line: ``openauc threshold examples/network.npz --target known_acceptance=0.95 --confidence 0.99``.
