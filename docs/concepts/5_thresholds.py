"""
Thresholds and what they guarantee
==================================

After this page you can choose a threshold, say what it guarantees, and notice when the guarantee breaks.

A model that may answer "unknown" needs a threshold: a sample whose score is above it is called unknown. A threshold
that accepts more known samples also accepts more unknown ones. So first decide how many known samples you can afford to
lose, and then look at how many unknown ones are caught.

This page answers three questions. What can a threshold guarantee? What can it not guarantee? What breaks a guarantee,
and how do you notice?
"""

import textwrap
from statistics import NormalDist

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from openauc import UNKNOWN, OpenSetClassifier, choose_threshold
from openauc.metrics.operating import order_statistic, smallest_sample
from openauc.plotting import LOOK, STYLES

plt.rcParams.update(LOOK)

# %%
# The guarantee
# -------------
#
# You ask that 95 % of known samples be accepted. The 95 % quantile of the validation scores does that on the validation
# set. On new samples it accepts a little less. ``choose_threshold`` therefore takes a slightly higher score. There are
# two rules:
#
# - **Conformal** (the default): a new known sample is accepted with probability at least 0.95. This holds on average
#   over validation sets. Yours may be an unlucky one.
# - **Tolerance limit** (``confidence=0.95``): the share accepted is at least 0.95 for 95 % of all validation sets. Use
#   it if one threshold will serve for a long time.
#
# Here are 1,000 validation sets of 200 known samples. Their scores are normal, so the true share accepted by each
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
# With too few samples no threshold can keep the guarantee. ``choose_threshold`` then says so. These are the least
# numbers of known validation samples:

shares = (0.9, 0.95, 0.99)
needed = {f"{share:.0%}": (smallest_sample(share), smallest_sample(share, 0.95)) for share in shares}
pd.DataFrame.from_dict(needed, orient="index", columns=["conformal", "tolerance limit, confidence 0.95"])

# %%
# What nobody can guarantee
# -------------------------
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
# almost nothing to almost everything.
#
# The guarantee of the classifier
# -------------------------------
#
# ``OpenSetClassifier`` chooses its threshold from its own training rows, so you need no validation set. Each row is
# scored by a model that has not seen it. ``guarantee_`` says in one sentence what is guaranteed:
#
# - ``calibration="cross"`` (the default) uses all rows. It guarantees *about* 95 %.
# - ``calibration="split"`` sets a fifth of the rows aside. It guarantees *at least* 95 %, on average.
# - With more than 20,000 rows a few thousand rows are always set aside, so the guarantee is of the second kind.
# - ``calibrate(X, y)`` takes rows that the model has not seen. It guarantees *at least* 95 %, for rows like these.
#
# What breaks a guarantee
# -----------------------
#
# Every guarantee says "if the new rows are like these". The most common reasons why they are not:
#
# - **Copies.** Tables hold the same row twice, or the same sentence with a typo. If one copy is used to learn and the
#   other to check, the check is too easy, and the threshold is too strict for new rows.
# - **Another mix of classes.** A class with three rows is hard to recognise. If it is rare in training and common
#   later, fewer rows are accepted.
# - **Drift.** The rows change with time, or another encoder made them.
# - **Training samples as validation samples.** Their scores are too good.
# - **Many tries.** Of several thresholds or models that were tried on one validation set, the best one looks too good.
#
# The classifier finds copies and near-copies by itself and keeps them together. If you know which rows belong together
# (frames of one video, sentences of one author), pass ``groups``. Below, each of 300 rows is in the table four times.
# A classifier that treats copies as new rows accepts far too few rows. The one that finds them keeps its guarantee.

centres = rng.normal(size=(10, 40))
y_new = np.repeat(np.arange(10), 200)
X_new = 0.9 * centres[y_new] + rng.normal(size=(2000, 40))
y_once = np.repeat(np.arange(10), 30)
X_once = 0.9 * centres[y_once] + rng.normal(size=(300, 40))
X, y = np.repeat(X_once, 4, axis=0), np.repeat(y_once, 4)

naive = OpenSetClassifier(random_state=0).fit(X_once, y_once)
naive.calibrate(X_once, y_once)  # as if the copies were new rows
classifier = OpenSetClassifier(random_state=0).fit(X, y)
print("guaranteed    0.95")
print(f"naive         {np.mean(naive.predict(X_new) != -1):.2f}")
print(f"copies found  {np.mean(classifier.predict(X_new) != -1):.2f}")

# %%
# The report says what was found, and what was guaranteed:

print(textwrap.fill(classifier.report_.notes[0]))
print(textwrap.fill(classifier.guarantee_))

# %%
# Distance alone cannot tell a reworded sentence from an edited copy. If a lot depends on such rows, ``fit`` warns, and
# gives both numbers: what to expect if such neighbours come again, and what if they do not. It warns in the same way
# if fewer rows would be accepted with all classes equally frequent. Classes with fewer than ten rows are named
# (``report_.small_classes``).
#
# How do you notice?
# ------------------
#
# Label some new rows. ``openauc predict MODEL TABLE``, ``openauc evaluate FILE`` and ``openauc report MODEL TABLE``
# then begin with a verdict: the share of known rows accepted beside the guarantee, OpenAUC beside the forecast, and if
# each was kept. Without labels, ``openauc watch`` looks for drift in the scores.
#
# Ties do no harm: equal scores are accepted together, so the share can only be larger. The targets ``macro_f_score``,
# ``micro_f_score``, ``youden_index`` and ``cost`` are the best on the validation samples and guarantee nothing
# (``point.guarantee`` is None). On the command line: ``openauc threshold FILE --target known_acceptance=0.95
# --confidence 0.95``.
