"""
Intervals and comparisons
=========================

After this page you can say how sure a value is, and whether one model is better than another.

A test set is a sample, so every metric measured on it is an estimate. ``evaluate`` gives each value an interval and
``compare`` gives each difference one. This page shows what they mean, why two overlapping intervals do not make a
tie, and when the test samples are not the right unit at all.
"""

import json
from pathlib import Path
from statistics import NormalDist

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from openauc import METRICS, UNKNOWN, Predictions, compare, evaluate
from openauc.bench.student import mean_interval
from openauc.plotting import LOOK, STYLES

plt.rcParams.update(LOOK)
BLUE, ORANGE = (color for color, _ in STYLES[:2])
ROOT = Path("../..")
network, linear = (Predictions.load(ROOT / "examples" / f"{name}.npz") for name in ("network", "linear"))

# %%
# What an interval means
# ----------------------
#
# Keep the model, draw a new test set from the same source, compute the 95 % interval again: in 95 of 100 test sets it
# holds the value that an endless test set would give. Here are 50 small test sets of 60 known and 40 unknown samples
# from a source where OpenAUC is known.

rng = np.random.default_rng(0)
accuracy, gap = 0.9, 1.5
truth = accuracy * NormalDist().cdf(gap / np.sqrt(2))
only_openauc = {"openauc": METRICS["openauc"]}


def interval_of_a_test_set() -> tuple[float, float]:
    """The interval of OpenAUC on 60 known and 40 unknown samples."""
    y_true = np.repeat([0, UNKNOWN], [60, 40])
    y_pred = np.where(rng.random(100) < accuracy, 0, 1)
    open_score = rng.normal(size=100) + gap * (y_true == UNKNOWN)
    return evaluate(y_true, y_pred, open_score, metrics=only_openauc).intervals["openauc"]


intervals = np.array([interval_of_a_test_set() for _ in range(500)])
holds = (intervals[:, 0] <= truth) & (truth <= intervals[:, 1])

# sphinx_gallery_start_ignore
fig, ax = plt.subplots(figsize=(6.8, 3.2))
for column in range(50):
    style = {"color": BLUE, "linewidth": 1.4} if holds[column] else {"color": ORANGE, "linewidth": 2.6}
    ax.plot([column, column], intervals[column], **style)
ax.axhline(truth, color="#808080", linewidth=1)
ax.set(xlabel="test set", ylabel="95 % interval of OpenAUC")
plt.show()
# sphinx_gallery_end_ignore
print(f"{holds.mean():.1%} of 500 intervals hold the true value {truth:.4f}; thick ones do not")

# %%
# How each interval is found
# --------------------------
#
# - **DeLong, logit**: OpenAUC, partial OpenAUC, AUROC, Acc x AUC and Acc + AUC are averages over pairs. The variance of
#   such an average has a closed form. On the logit scale the interval cannot leave 0 to 1. Near 1, Wilson's is used
#   too.
# - **Wilson**: closed-set accuracy is a share. Normalized accuracy at its best threshold adds up two of them, with the
#   threshold held; its interval is conservative.
# - **bootstrap**: everything else, by drawing known and unknown samples again. For F-score, Youden's index and
#   detection accuracy, which are the best over all thresholds, the threshold of the full sample is held.
#
# The exact rules, with the reasons, are in :doc:`/paper_map`.

evaluation = evaluate(*network, n_replicates=200)  # 2,000 by default; fewer make this page quick
rows = [
    (
        METRICS[name].label,
        f"{value:.4f}",
        "{:.4f} – {:.4f}".format(*evaluation.intervals[name]),
        evaluation.methods[name],
    )
    for name, value in evaluation.values.items()
]
pd.DataFrame(rows, columns=["metric", "value", "95 % interval", "method"]).set_index("metric")

# %%
# Comparing two models: pair them
# -------------------------------
#
# Both models saw the same test samples, and what is hard for one is often hard for the other. Looking at two separate
# intervals throws this away: they may overlap although the difference is clear. ``compare`` works on the differences
# sample by sample. Below, random parts of the example, from 50 to 4,000 samples.


def part(size: int) -> list[Predictions]:
    """Both models on the same random samples."""
    chosen = rng.choice(len(network.y_true), size, replace=False)
    return [Predictions(*(column[chosen] for column in model)) for model in (network, linear)]


sizes = np.array([50, 100, 200, 500, 1000, 2000, 4000])
paired, separate = [], []
for size in sizes:
    models = part(size)
    difference = compare(*models, metrics=["openauc"]).differences[0]
    paired.append(np.ptp(difference.interval) / 2)
    halves = [np.ptp(evaluate(*model, metrics=only_openauc).intervals["openauc"]) / 2 for model in models]
    separate.append(sum(halves))

gap_here = compare(network, linear, metrics=["openauc"]).differences[0].difference
# sphinx_gallery_start_ignore
fig, ax = plt.subplots(figsize=(5.8, 3.6))
ax.loglog(sizes, separate, "D--", color=ORANGE, label="gap at which two intervals stop overlapping")
ax.loglog(sizes, paired, "o-", color=BLUE, label="gap that the paired interval tells from 0")
ax.axhline(gap_here, color="#808080", linewidth=1, label=f"network - linear, all samples: {gap_here:.3f}")
ax.set(xlabel="test samples", ylabel="difference in OpenAUC")
ax.legend(loc="lower left")
plt.show()
# sphinx_gallery_end_ignore

# %%
# One such part in numbers. With more than two models the p-values are corrected for the number of comparisons (Holm).

network_part, linear_part = part(150)
for name, model in (("network", network_part), ("linear", linear_part)):
    print(name, "{:.3f} – {:.3f}".format(*evaluate(*model, metrics=only_openauc).intervals["openauc"]))
difference = compare(network_part, linear_part, metrics=["openauc"]).differences[0]
low, high = difference.interval
print(f"difference {difference.difference:+.3f}, {low:+.3f} to {high:+.3f}, p = {difference.p_value:.4f}")

# %%
# Samples or splits?
# ------------------
#
# All of this is about *two trained models* and new samples of the *same* classes. A paper usually claims more: that a
# *method* is better, on other classes too, trained again. Then a whole split (its choice of known classes, with a
# training) is one observation, and five splits are a sample of five, however many images each holds. Here is the
# project's own benchmark on digits: two methods, five splits, three trainings each, with their intervals over test
# samples.

results = sorted((ROOT / "benchmark" / "results").glob("digits_*.json"))[-1]
published = json.loads(results.read_text())["trials"]
trials = pd.DataFrame([{**trial, **trial["spec"], "interval": trial["intervals"]["openauc"]} for trial in published])

# sphinx_gallery_start_ignore
fig, ax = plt.subplots(figsize=(6.2, 3.4))
for (method, shift), (color, _) in zip((("openauc", -0.28), ("ce_plus", 0.12)), STYLES, strict=False):
    chosen = trials[trials["method"] == method]
    x = chosen["split"] + shift + 0.08 * chosen["seed"]
    ax.plot(x, chosen["openauc"], "o", color=color, markersize=4, label=method)
    ax.vlines(x, *zip(*chosen["interval"], strict=True), color=color, alpha=0.5)
ax.set(xticks=range(5), xlabel="split", ylabel="OpenAUC")
ax.legend(loc="lower left")
plt.show()
# sphinx_gallery_end_ignore

# %%
# Training again moves the result, and so does another split; test samples explain only a part of it. So the mean needs
# Student's interval over splits, seeds averaged first, and methods are compared split by split, which removes how hard
# each split is.

means = trials.pivot_table(index="split", columns="method", values="openauc")
ours = trials[trials["method"] == "openauc"]
widths = np.ptp(np.stack(ours["interval"]), axis=1)
print(f"spread (standard deviation) by test samples, about: {widths.mean() / 2 / 1.96:.4f}")
print(f"of trainings of the same split: {np.sqrt(ours.groupby('split')['openauc'].var().mean()):.4f}")
print(f"of the splits' means: {means['openauc'].std():.4f}")

gains = means["openauc"] - means["ce_plus"]
for name, values in (("openauc", means["openauc"]), ("openauc - ce_plus", gains)):
    low, high = mean_interval(values.tolist(), 0.95)
    print(f"{name}: {values.mean():+.4f}, interval {low:+.4f} to {high:+.4f} over {len(values)} splits")

# %%
# ``openauc table STORE --baseline ce_plus`` does this for a whole benchmark; splits that coincide count once.
#
# ============================================  ==========================  ================================
# claim                                         unit                        tool
# ============================================  ==========================  ================================
# this model scores x                           test sample                 ``evaluate``
# this model beats that one on such data        test sample, paired         ``compare``
# this method scores x on this protocol         distinct split              ``openauc table``
# this method beats that one                    distinct split, paired      ``openauc table --baseline``
# ============================================  ==========================  ================================
#
# No interval covers a shift of the data, a wrong label, or a model chosen by looking at the test set.
