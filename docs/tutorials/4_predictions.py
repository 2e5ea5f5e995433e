"""
Evaluate, compare, choose a threshold
=====================================

After this page you can say how good a model is and how sure that is, which of two models is better, and which
threshold to ship. All you need is the predictions of a model.

Two models saw the same test set: a linear classifier and a small network on Fashion-MNIST, six of its classes known
and four unknown. For each test sample there are three values: the true label (-1 for unknown), the predicted known
class, and an open-set score, which is higher the more unknown the sample looks. :class:`~openauc.Predictions` holds
them, and reads them from ``.npz``, ``.csv`` and ``.parquet`` files.
"""

import json
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import openauc
from openauc import Predictions
from openauc.plotting import LOOK, STYLES
from openauc.report import predictions_report

examples = Path("../../examples")  # in the repository
linear = Predictions.load(examples / "linear.npz")
network = Predictions.load(examples / "network.npz")

# %%
# One model
# ---------
#
# :func:`~openauc.evaluate` computes every metric, each with a 95 % interval. Where a metric has a threshold, it is
# given after "at": a sample is rejected when its score is above it.

evaluation = openauc.evaluate(*network)
print(evaluation)

# %%
# OpenAUC is the probability that a known sample is classified correctly *and* ranked below an unknown one. It is the
# area under the OSCR curve, which ``plot`` draws; calls with the same axes add up to one figure.

axes = evaluation.plot(label="network")
openauc.evaluate(*linear).plot(axes, label="linear")
plt.show()

# %%
# Two models
# ----------
#
# The intervals of two models may overlap although one is clearly better, because both saw the same samples: what is
# hard for one is often hard for the other. :func:`~openauc.compare` works on the *paired* differences.

comparison = openauc.compare(network, linear, names=["network", "linear"])
for found in comparison.differences:
    p = "p < 0.0001" if found.p_value < 0.0001 else f"p = {found.p_value:.4f}"
    interval = f"[{found.interval.low:+.4f}, {found.interval.high:+.4f}]"
    print(f"{found.metric:20} {found.a} - {found.b}: {found.difference:+.4f}  {interval}  {p}")

# %%
# A page to look at and to send around
# ------------------------------------
#
# The report is one HTML file that needs no network: all curves, the comparison, a threshold slider that moves
# everything.

page = predictions_report({"network": network, "linear": linear})
Path(tempfile.mkdtemp(), "report.html").write_text(page, encoding="utf-8")

# %%
# .. raw:: html
#
#     <p><a href="../../example_report.html">Open this report.</a></p>
#
# The threshold
# -------------
#
# A score ranks samples; a product must decide. Half of the samples play the validation set, on which a threshold is
# chosen. The other half comes in later, to check what was guaranteed.

order = np.random.default_rng(0).permutation(len(network.y_true))
half = len(order) // 2
validation = Predictions(*(column[order[:half]] for column in network))
later = Predictions(*(column[order[half:]] for column in network))

# %%
# "Of the known samples to come, accept 95 %." This needs no unknown sample, and holds whatever the distribution of the
# scores, as long as later known samples are like those of the validation set.

point = openauc.choose_threshold(*validation, target="known_acceptance", value=0.95)
print(f"reject when score > {point.threshold:.4f}")
print(point.guarantee)

# %%
# That guarantee is an average over validation sets: for one of them the rate may be a little lower. With ``confidence``
# it holds for that share of all validation sets, at the price of a slightly higher threshold.

careful = openauc.choose_threshold(*validation, target="known_acceptance", value=0.95, confidence=0.99)
print(f"reject when score > {careful.threshold:.4f}")
print(careful.guarantee)

# %%
# If you know what each mistake costs and how many unknown samples to expect, there is a cheapest threshold. Here an
# accepted unknown sample is five times as bad as anything else, and one sample in ten is unknown.

cheapest = openauc.choose_threshold(*validation, target="cost", costs={"unknown_accepted": 5.0, "unknown_share": 0.1})
print(f"reject when score > {cheapest.threshold:.4f}: {cheapest.objective:.3f} per sample")

# %%
# :func:`~openauc.decide` gives the final labels: a class, or -1. It needs only the threshold, which fits into
# any configuration file.

settings = json.loads(json.dumps({"threshold": careful.threshold}))
labels = openauc.decide(later.y_pred, later.open_score, threshold=settings["threshold"])
print(labels[:20])

# %%
# Was the guarantee kept?

known = later.y_true != -1
print(f"known samples accepted:   {np.mean(labels[known] != -1):.1%}")
print(f"... and classified right: {np.mean(labels[known] == later.y_true[known]):.1%}")
print(f"unknown samples rejected: {np.mean(labels[~known] == -1):.1%}")

# %%
# The last number is not guaranteed: it depends on which unknown samples come. The curves show it for other thresholds,
# with the share of known samples accepted.

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
# On the command line
# -------------------
#
# .. code-block:: sh
#
#     openauc evaluate examples/network.npz
#     openauc compare examples/network.npz examples/linear.npz
#     openauc report examples/network.npz examples/linear.npz -o report.html
#     openauc threshold examples/network.npz --target known_acceptance=0.95 --confidence 0.99
#     openauc audit examples/network.npz     # worse models, made from this one, that common metrics do not punish
#
# :doc:`/start` has the columns of a file of predictions. Files larger than memory and logs in a warehouse:
# :doc:`/scale`. What the metrics mean: :doc:`/generated/concepts/1_what_metrics_reward`.
