"""
Why does my number differ?
==========================

After this page you can explain why your number differs from that of a paper or of its code.

Two people evaluate the same predictions and report different numbers. Usually both are right about something: public
codes differ in ties, end points, thresholds and names. ``openauc.metrics.legacy`` reproduces each of them, quirks
included, and ``openauc evaluate FILE --legacy`` sets them beside the exact value. This page shows how much they move
the result, on the two example models.

Short names: *ARPL* is `iCGY96/ARPL <https://github.com/iCGY96/ARPL>`_, *Vaze* is `sgvaze/osr_closed_set_all_you_need
<https://github.com/sgvaze/osr_closed_set_all_you_need>`_, *OpenAUC code* is `wang22ti/OpenAUC
<https://github.com/wang22ti/OpenAUC>`_ and its library twin `XCurve <https://github.com/statusrank/XCurve>`_.
"""

import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from openauc import METRICS, UNKNOWN, Predictions, ScoreDirectionWarning, evaluate, openauc_score, oscr_curve
from openauc.metrics.legacy import LEGACY, arpl_oscr, explain, openauc_code_f_scores
from openauc.plotting import LOOK, STYLES

plt.rcParams.update(LOOK)
BLUE, ORANGE = (color for color, _ in STYLES[:2])
EXAMPLES = Path("../../examples")
models = {name: Predictions.load(EXAMPLES / f"{name}.npz") for name in ("network", "linear")}
network = models["network"]

# %%
# All of them at once
# -------------------
#
# ``explain`` returns one row per public metric, with the reason. Values are those of the network; the column *linear*
# is the difference for the linear model.

rows = {name: explain(*predictions) for name, predictions in models.items()}
table = pd.DataFrame(
    {
        "legacy function": [row.name for row in rows["network"]],
        "theirs": [f"{row.value:.4f}" for row in rows["network"]],
        "exact": [f"{row.exact_value:.4f}" for row in rows["network"]],
        "difference": [f"{row.difference:+.5f}" for row in rows["network"]],
        "linear": [f"{row.difference:+.5f}" for row in rows["linear"]],
        "why": [row.why for row in rows["network"]],
    }
)
table.style.hide().set_properties(subset=["legacy function", "why"], **{"text-align": "left"})

# %%
# Is that much? Compare with chance. The bars are half the 95 % interval of the exact metric on the network's 10,000
# test samples (the TNR has none here). On a test set of this size only the F-scores of the OpenAUC code leave it. On
# small test sets and with ties that changes, as shown below.

evaluation = evaluate(*network, n_replicates=200)  # 2,000 by default; fewer make this page quick
half_width = {key: np.ptp(interval) / 2 for key, interval in evaluation.intervals.items()}
heights = np.arange(len(LEGACY))[::-1]

# sphinx_gallery_start_ignore
fig, ax = plt.subplots(figsize=(7.2, 4.2))
ax.barh(heights, [half_width.get(str(entry.exact), 0) for entry in LEGACY.values()], color="#808080", alpha=0.25)
for (name, marker), (color, _) in zip((("network", "o"), ("linear", "D")), STYLES, strict=False):
    ax.plot([abs(row.difference) for row in rows[name]], heights, marker, color=color, label=name)
ax.set_xscale("symlog", linthresh=1e-6)
ax.set(yticks=heights, yticklabels=list(LEGACY), xlim=(-5e-7, 0.1), xlabel="size of the difference")
ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
plt.show()
# sphinx_gallery_end_ignore

# %%
# ARPL and Vaze: the area under the OSCR curve
# --------------------------------------------
#
# Both count correct known samples from one position *after* the unknown ones, and add the points (0, 0) and (1, 1). The
# second is not on the curve, whose right end is the accuracy; it adds no area but shows in plots. Without ties the area
# is OpenAUC - A / (2 N_k N_u), where A counts unknown samples directly followed by a correct known one. Five known and
# five unknown samples make it visible (left). On larger samples (right, random parts of the example) it fades away.

y_true = np.array([0, 1, 0, 1, 0, -1, -1, -1, -1, -1])
y_pred = np.array([0, 1, 0, 1, 1, 0, 1, 0, 1, 0])
open_score = np.array([0.05, 0.15, 0.35, 0.55, 0.25, 0.10, 0.20, 0.45, 0.65, 0.75])
order = np.argsort(-open_score)
correct_after = 4 - np.cumsum((y_pred == y_true)[order])  # from one position further on
unknown_from = 5 - np.cumsum(y_true[order] == UNKNOWN) + (y_true[order] == UNKNOWN)
drawn_x = np.r_[1, unknown_from[:-1] / 5, 0]
drawn_y = np.r_[1, correct_after[:-1] / 5, 0]

rng = np.random.default_rng(0)
known, unknown = np.flatnonzero(network.y_true != UNKNOWN), np.flatnonzero(network.y_true == UNKNOWN)
sizes = (5, 10, 20, 50, 100, 200, 500, 1000, 2000)


warnings.simplefilter("ignore", ScoreDirectionWarning)  # five samples may rank the wrong way by chance


def mean_difference(size: int) -> float:
    """OpenAUC minus the public OSCR area, on average over random parts of the example."""
    parts = [np.r_[rng.choice(known, size, False), rng.choice(unknown, size, False)] for _ in range(20)]
    triples = [tuple(column[part] for column in network) for part in parts]
    return float(np.mean([openauc_score(*triple) - arpl_oscr(*triple) for triple in triples]))


# sphinx_gallery_start_ignore
fig, (left, right) = plt.subplots(1, 2, figsize=(8.4, 3.6))
exact = oscr_curve(y_true, y_pred, open_score)
label = f"public code: {arpl_oscr(y_true, y_pred, open_score):.2f}"
left.plot(exact.x, exact.y, "o-", color=BLUE, label=f"exact: {exact.area():.2f}")
left.plot(drawn_x, drawn_y, "D--", color=ORANGE, markersize=4, label=label)
left.set(xlabel=exact.x_label, ylabel=exact.y_label)
left.legend(loc="upper left")
right.loglog(sizes, [mean_difference(size) for size in sizes], "o-", color=BLUE, label="mean difference")
right.loglog(sizes, 1 / (2 * np.array(sizes)), ":", color=ORANGE, label="largest possible, 1 / (2 max(N_k, N_u))")
right.set(xlabel="known samples = unknown samples", ylabel="OpenAUC - public OSCR area")
right.legend(loc="lower left")
plt.show()
# sphinx_gallery_end_ignore

# %%
# With ties it is another matter: tied samples fall as the sort leaves them, so the area depends on the order of the
# rows in the file. Here are the example's scores rounded to whole numbers, and twenty shuffles of the same rows.

rounded = network._replace(open_score=np.round(network.open_score))
shuffles = [rng.permutation(len(known) + len(unknown)) for _ in range(20)]
areas = [arpl_oscr(*(column[shuffle] for column in rounded)) for shuffle in shuffles]
print(f"public code, 20 orders: {min(areas):.4f} to {max(areas):.4f}; OpenAUC: {openauc_score(*rounded):.4f}")

# %%
# The other conventions
# ---------------------
#
# **ARPL's AUROC** gives a tied pair nothing: ``auroc_score(..., ties="strict")`` is the same number. **DTACC** equals
# ``detection_accuracy``. **TNR at 95 % TPR** takes the position whose TPR is nearest to 0.95, even if it lies below,
# while ``fpr_at_tpr(..., positive="known")`` takes the best threshold that reaches it. **AUIN** and **AUOUT** join
# precisions by straight lines down to 0 at recall 0, so even a perfect score misses 1; use ``average_precision``.
#
# **Error at 95 % TPR** (Vaze, OpenAUC code) takes the nearest TPR too, the lowest threshold among equals, then decides
# with ``>`` where the TPR was counted with ``>=``. It is the share of *all* samples on the wrong side, not the FPR at
# 95 % TPR.
#
# **The OpenAUC code squashes scores with a float32 sigmoid.** For OpenAUC this matters only when it creates :doc:`ties
# <2_ties>`. For the F-scores it matters more: the threshold is sought on 0.01, 0.02, ..., 0.99 of the sigmoid, so
# samples with a score below -4.6 can never be rejected. And the names are swapped: ``ma`` pools the classes (micro),
# ``mi`` averages over them (macro).

out_of_reach = np.mean(network.open_score < np.log(0.01 / 0.99))
print(f"{out_of_reach:.1%} of the network's samples lie below the grid")
grid = openauc_code_f_scores(*network)
columns = ["public code", "every threshold"]
swapped = {
    "ma, in truth micro": (grid.ma, evaluation.micro_f_score),
    "mi, in truth macro": (grid.mi, evaluation.macro_f_score),
}
pd.DataFrame.from_dict(swapped, orient="index", columns=columns).round(4)

# %%
# Before the metric
# -----------------
#
# Larger gaps come from what was evaluated. :doc:`/paper_map` lists every choice and why.
#
# - **Recipe.** The same loss with another recipe is another method: Softmax and CE+ differ in recipe and score only.
# - **Splits.** Results on different lists of known classes cannot be compared; some of the published splits even
#   coincide.
# - **Score space.** Largest logit or largest probability: they rank differently (:doc:`3_score_direction`).
# - **Ratio of known to unknown test samples.** Some codes balance the test set. OpenAUC, AUROC and accuracy do not
#   depend on the ratio; error at 95 % TPR, average precision, F-scores and normalized accuracy do. Below, three
#   quarters of the unknown samples are left out at random.

kept = np.sort(np.r_[known, rng.choice(unknown, len(unknown) // 4, replace=False)])
fewer = evaluate(*(column[kept] for column in network), level=None)
names = ["openauc", "auroc", "closed_set_accuracy", "error_at_95tpr", "average_precision_unknown", "micro_f_score"]
ratios = {METRICS[name].label: (evaluation.values[name], fewer.values[name]) for name in names}
pd.DataFrame.from_dict(ratios, orient="index", columns=["all samples", "a quarter of the unknown"]).round(4)
