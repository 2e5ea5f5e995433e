"""
Thresholds with guarantees
==========================

To deploy a model one needs a threshold: above it, the answer is "I don't know". ``choose_threshold`` finds one on
validation samples that were not used for training. For two targets it comes with a promise that holds for every model
and every distribution, in finite samples. This page shows what is promised and what is not.
"""

import textwrap
from statistics import NormalDist

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from openauc import UNKNOWN, choose_threshold
from openauc.metrics.operating import order_statistic, smallest_sample
from openauc.plotting import LOOK, STYLES

plt.rcParams.update(LOOK)

# %%
# The promise
# -----------
#
# You ask that 95 % of known samples be accepted. Taking the 95 % quantile of the validation scores would do so on the
# validation set, but on new samples a little less. Two rules take a slightly higher score instead:
#
# - **Conformal** (the default): the score of rank ceil((n + 1) 0.95). A *new* known sample is accepted with probability
#   at least 0.95, averaged over validation sets. Yours may be an unlucky one.
# - **Tolerance limit** (``confidence=0.95``): a higher rank, so that the share accepted is at least 0.95 for 95 % of
#   all validation sets. Use this one if a single threshold will serve for long.
#
# Here are 1,000 validation sets of 200 known samples. Their scores are normal, so that the true share accepted by each
# threshold is known.

rng = np.random.default_rng(0)
n_known = 200
label = np.zeros(n_known, dtype=int)
rules = {"conformal": None, "tolerance limit": 0.95}
accepted: dict[str, list[float]] = {name: [] for name in rules}
for _ in range(1000):
    scores = rng.normal(size=n_known)
    for name, confidence in rules.items():
        point = choose_threshold(label, label, scores, target="known_acceptance", value=0.95, confidence=confidence)
        accepted[name].append(NormalDist().cdf(point.threshold))

# sphinx_gallery_start_ignore
fig, ax = plt.subplots(figsize=(6.2, 3.6))
bins = np.linspace(0.88, 1, 49)
for (name, shares), (color, dashes) in zip(accepted.items(), STYLES, strict=False):
    options = {"bins": bins, "color": color}
    ax.hist(shares, alpha=0.15, **options)
    ax.hist(shares, histtype="step", linestyle=dashes, linewidth=1.6, label=name, **options)
ax.axvline(0.95, color="#808080", linewidth=1)
ax.set(xlabel="true share of known samples accepted", ylabel="validation sets")
ax.legend(loc="upper left")
plt.show()
# sphinx_gallery_end_ignore

# %%
# The first is right on average, the second for nearly every validation set. The price is a higher threshold, so more
# unknown samples get through.

summary = {
    name: (
        f"{np.mean(shares):.4f}",
        f"{np.mean(np.array(shares) < 0.95):.1%}",
        order_statistic(n_known, 0.95, rules[name]),
    )
    for name, shares in accepted.items()
}
columns = ["mean share accepted", "sets below 0.95", f"rank of the threshold in {n_known}"]
pd.DataFrame.from_dict(summary, orient="index", columns=columns)

# %%
# With too few samples no threshold can keep the promise, and ``choose_threshold`` says so instead of guessing. The
# least number of known validation samples:

shares = (0.9, 0.95, 0.99)
needed = {f"{share:.0%}": (smallest_sample(share), smallest_sample(share, 0.95)) for share in shares}
pd.DataFrame.from_dict(needed, orient="index", columns=["conformal", "tolerance limit, confidence 0.95"])

# %%
# What nobody can promise
# -----------------------
#
# How many *unknown* samples are rejected depends on what will come. The same two rules exist for ``unknown_recall``,
# but they speak of unknown samples *like those in the validation set*. Below, two thresholds are chosen once: one from
# known samples only, one to reject 90 % of unknown samples at distance 2. Then unknown samples from elsewhere arrive.

known = rng.normal(size=2000)
unknown = rng.normal(loc=2.0, size=2000)
y_true = np.r_[np.zeros(2000, dtype=int), np.full(2000, UNKNOWN)]
y_pred = np.zeros(4000, dtype=int)
open_score = np.r_[known, unknown]
keep_known = choose_threshold(y_true, y_pred, open_score, target="known_acceptance", value=0.95, confidence=0.95)
catch_unknown = choose_threshold(y_true, y_pred, open_score, target="unknown_recall", value=0.9, confidence=0.95)
for point in (keep_known, catch_unknown):
    print(textwrap.fill(str(point.guarantee)))

# %%

distance = np.linspace(0, 4, 81)
# sphinx_gallery_start_ignore
fig, ax = plt.subplots(figsize=(6.2, 3.8))
points = {"accept 95 % of known": keep_known, "reject 90 % of unknown": catch_unknown}
for (name, point), (color, dashes) in zip(points.items(), STYLES, strict=False):
    recall = [1 - NormalDist(mu=mu).cdf(point.threshold) for mu in distance]
    kept = NormalDist().cdf(point.threshold)
    ax.plot(distance, recall, color=color, linestyle=dashes, label=f"{name} (known accepted: {kept:.1%})")
ax.axvline(2, color="#808080", linewidth=1)
ax.annotate("validation set", (2, 0.3), xytext=(4, 0), textcoords="offset points")
ax.set(xlim=(0, 4), ylim=(0, 1.02), xlabel="distance of the unknown samples that arrive", ylabel="share rejected")
ax.legend(loc="lower right")
plt.show()
# sphinx_gallery_end_ignore

# %%
# The share of known samples accepted does not depend on what arrives. The share of unknown samples rejected runs from
# almost nothing to almost everything. The bound of :doc:`Prop. 6 <1_what_metrics_reward>` does not help either: it
# speaks of the samples on which OpenAUC was measured.
#
# What breaks the promise
# -----------------------
#
# The one assumption is exchangeability: validation and future samples come from the same source, in no particular
# order. It fails when
#
# - the threshold is chosen on *training* samples, whose scores are too good;
# - known samples drift, or classes come in another mix than in validation;
# - several thresholds or models are tried on the same validation set and the nicest is kept;
# - you ask for a promise for each class: only the mixture is covered.
#
# Ties do no harm: equal scores are accepted together, so the share can only be larger. The targets ``macro_f_score``,
# ``micro_f_score``, ``youden_index`` and ``cost`` are the best on the validation samples and promise nothing
# (``point.guarantee`` is None). On the command line: ``openauc threshold FILE --target known_acceptance=0.95
# --confidence 0.95``.
