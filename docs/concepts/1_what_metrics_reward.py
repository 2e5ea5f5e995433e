"""
What each metric rewards
========================

After this page you can choose the metric that punishes the mistakes you care about.

An open-set classifier gives each sample a class and a score for "I don't know". It can take a known sample for the
wrong class, reject a known sample, or accept an unknown one. Each metric weighs these mistakes in its own way, and
some do not see one of them at all. This page shows it on one model, a small network on Fashion-MNIST, with the
propositions of the `OpenAUC paper <https://arxiv.org/abs/2210.13458>`_ as examples.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from openauc import (
    METRICS,
    UNKNOWN,
    Predictions,
    audit,
    auroc_score,
    closed_set_accuracy,
    evaluate,
    openauc_score,
    oscr_curve,
    roc_curve,
    threshold_sweep,
    unknown_recall_bound,
)
from openauc.plotting import LOOK, STYLES

plt.rcParams.update(LOOK)
BLUE, ORANGE, GREEN = (color for color, _ in STYLES[:3])
EXAMPLES = Path("../../examples")
network = Predictions.load(EXAMPLES / "network.npz")

# %%
# OpenAUC is an area and a probability
# ------------------------------------
#
# Move the threshold from "reject everything" (left) to "accept everything" (right). The upper curve counts the known
# samples accepted so far; the area below it is the AUROC. The lower one, the OSCR curve, counts only those that also
# got the right class. It ends at the closed-set accuracy, and the area below it is OpenAUC.

oscr, roc = oscr_curve(*network), roc_curve(*network)
accuracy, auroc, openauc = (score(*network) for score in (closed_set_accuracy, auroc_score, openauc_score))

# sphinx_gallery_start_ignore
fig, ax = plt.subplots(figsize=(5.6, 4.2))
ax.plot(1 - roc.y, 1 - roc.x, color=ORANGE, linestyle="--", label=f"accepted: area = AUROC {auroc:.3f}")
ax.plot(oscr.x, oscr.y, color=BLUE, label=f"accepted and right: area = OpenAUC {openauc:.3f}")
ax.fill_between(oscr.x, oscr.y, color=BLUE, alpha=0.15, linewidth=0)
ax.axhline(accuracy, color=GREEN, linestyle=":", label=f"closed-set accuracy {accuracy:.3f}")
ax.set(xlim=(0, 1), ylim=(0, 1.02), xlabel="share of unknown samples accepted", ylabel="share of known samples")
ax.legend(loc="lower right")
plt.show()
# sphinx_gallery_end_ignore

# %%
# **Prop. 4** says that the area is a probability: draw a known and an unknown sample; the known one has the right class
# *and* the lower score. We can simply try.

rng = np.random.default_rng(0)
is_known = network.y_true != UNKNOWN
known = rng.choice(np.flatnonzero(is_known), 200_000)
unknown = rng.choice(np.flatnonzero(~is_known), 200_000)
right = network.y_pred[known] == network.y_true[known]
below = network.open_score[known] < network.open_score[unknown]
print(f"200,000 random pairs: {np.mean(right & below):.3f}, area: {oscr.area():.3f}")
print(f"Acc + AUC - 1 = {accuracy + auroc - 1:.3f} <= OpenAUC <= min(Acc, AUC) = {min(accuracy, auroc):.3f}")

# %%
# The metrics side by side
# ------------------------
#
# The last column is the share of unknown samples rejected at the threshold that the metric likes best.

rewards = {
    "openauc": "a known sample that is right and ranked below an unknown one",
    "auroc": "a known sample ranked below an unknown one; classes play no part",
    "closed_set_accuracy": "the right class; unknown samples play no part",
    "acc_plus_auc": "the sum of the two, whether or not the same samples earn both",
    "macro_f_score": "precision and recall of the known classes; unknown samples matter when accepted",
    "youden_index": "true positive + true negative rate of the known classes - 1",
    "normalized_accuracy": "accuracy class by class, and the share of unknown among rejected samples",
}
evaluation = evaluate(*network, level=None)
sweep = threshold_sweep(*network)


def rejected_at_best(name: str) -> str:
    """Share of unknown samples rejected where the metric is largest."""
    if name not in sweep.values:
        return "no threshold"
    return f"{sweep.unknown_tpr[np.argmax(sweep.values[name])]:.1%}"


rows = [
    (METRICS[name].label, sentence, f"{evaluation.values[name]:.4f}", rejected_at_best(name))
    for name, sentence in rewards.items()
]
table = pd.DataFrame(rows, columns=["metric", "rewards", "value", "unknown rejected at best"])
table.style.hide().set_properties(subset=["metric", "rewards"], **{"text-align": "left"})

# %%
# The last three change with the threshold (the paper's Figure 1, for this model); dots mark the maxima. Youden's index
# and normalized accuracy are largest where hardly any unknown sample is rejected, and the F-score is nearly flat: a
# good value says little about how many unknown samples get through.

curves = {name: sweep.curve(name) for name in ("macro_f_score", "youden_index", "normalized_accuracy")}

# sphinx_gallery_start_ignore
fig, ax = plt.subplots(figsize=(5.6, 3.8))
for (name, curve), (color, dashes) in zip(curves.items(), STYLES, strict=False):
    best = np.argmax(curve.y)
    ax.plot(curve.x, curve.y, color=color, linestyle=dashes, label=METRICS[name].label)
    ax.plot(curve.x[best], curve.y[best], "o", color=color)
ax.set(xlim=(-0.02, 1), ylim=(0, 1), xlabel="share of unknown samples rejected", ylabel="value at that threshold")
ax.legend(loc="lower left")
plt.show()
# sphinx_gallery_end_ignore

# %%
# Worse models that a metric does not punish
# ------------------------------------------
#
# The proofs of **Props 1 to 3** take a model and build a worse one. ``audit`` does the same with your predictions.
# First with eight known and four unknown samples, so that one sees what moves. Everything in the grey part, above the
# threshold, is rejected.

y_true = np.array([0, 1, 2, 0, 1, 1, 0, 2, -1, -1, -1, -1])
y_pred = np.array([0, 1, 2, 0, 0, 2, 1, 2, 0, 1, 2, 0])
open_score = np.array([0.06, 0.14, 0.32, 0.38, 0.10, 0.27, 0.42, 0.58, 0.22, 0.65, 0.77, 0.90])
few = audit(y_true, y_pred, open_score, threshold=0.5)

models = {"the model": (y_pred, open_score, few.constructions[0].before)}
models |= {f"construction {c.name} ({c.proposition})": (c.y_pred, c.open_score, c.after) for c in few.constructions}
shown = {"macro_f_score": "F", "normalized_accuracy": "NAcc", "acc_plus_auc": "Acc + AUC", "openauc": "OpenAUC"}

# sphinx_gallery_start_ignore
fig, axes = plt.subplots(2, 2, figsize=(8.4, 4.4), sharex=True, sharey=True)
for ax, (name, (label, position, values)) in zip(axes.flat, models.items(), strict=True):
    kinds = (y_true == label, (y_true != label) & (y_true != UNKNOWN), y_true == UNKNOWN)
    ax.axvspan(0.5, 1, color="#808080", alpha=0.15, linewidth=0)
    for height, (kind, marker, color) in enumerate(zip(kinds, "oX^", (BLUE, ORANGE, GREEN), strict=True)):
        lift = 0.24 * (np.arange(kind.sum()) % 2)  # keeps equal scores apart
        ax.plot(position[kind], 2 - height + lift, marker, color=color, markersize=8, alpha=0.8)
    title = f"{name}: {values['unknown_tpr']:.0%} of unknown rejected"
    ax.set_title(title + "\n" + ", ".join(f"{short} {values[key]:.3f}" for key, short in shown.items()), fontsize=9)
    ax.set(
        xlim=(0, 1), ylim=(-0.4, 2.6), yticks=[2.1, 1.1, 0.1], yticklabels=["known, right", "known, wrong", "unknown"]
    )
for ax in axes[1]:
    ax.set_xlabel("open-set score")
plt.show()
# sphinx_gallery_end_ignore

# %%
# - **I (Prop. 1).** Each rejected unknown sample trades its score and decision with an accepted, misclassified known
#   one. No unknown sample is rejected any more, yet F-score and Youden's index stay exactly the same: the misclassified
#   sample was a miss before and is a miss now. OpenAUC falls (**Prop. 5**).
# - **II (Prop. 2).** Rejected unknown samples are accepted while as many known ones are set right. Normalized accuracy
#   rises although only one unknown sample is still rejected. OpenAUC may rise too, because known samples were set
#   right; what it offers here is a bound, below.
# - **III (Prop. 3).** Correct and misclassified known samples trade scores. Accuracy and AUROC do not move, so neither
#   does their sum, product or any other function of the two. But now the confident samples are the wrong ones, and
#   OpenAUC falls (Prop. 7).
#
# The same on the 10,000 predictions of the network, at the lowest threshold where construction I is complete. Bold: the
# metric does not fall.

at = next(c.threshold for c in audit(network).constructions if c.proposition == "Prop. 1" and c.complete)
constructions = audit(network, threshold=at).constructions
names = [*shown, "youden_index", "auroc", "closed_set_accuracy"]
table = pd.DataFrame(
    {"model": constructions[0].before} | {f"{c.name} ({c.proposition})": c.after for c in constructions}
)
labels = {name: METRICS[name].label for name in names}
table = table.loc[["unknown_tpr", *names]].rename({"unknown_tpr": "unknown rejected", **labels})


def not_punished(row: pd.Series) -> list[str]:
    """Bold where a metric does not fall; the first column is the model itself, the first row no metric."""
    stays = (row >= row["model"]) & (row.index != "model") & (row.name != "unknown rejected")
    return ["font-weight: bold" if cell else "" for cell in stays]


table.style.format("{:.4f}").apply(not_punished, axis=1)

# %%
# Table 1, from evidence
# ----------------------
#
# ``table1`` repeats the paper's table with these predictions. P1: the metric falls when the classifier gets worse on
# known samples. P2: it falls when unknown samples get accepted. P3: it needs no threshold. P4: it is one number. The
# column *coupled* is ours: the metric falls in construction III. Without it Acc + AUC would pass.

marks = {"yes": "✓", "no": "✗", "not shown": "–"}
verdicts = audit(network).table1()
pd.DataFrame(verdicts).T.map(lambda verdict: marks[verdict.answer])

# %%
# What OpenAUC guarantees
# -----------------------
#
# **Prop. 6**: with OpenAUC = k, a threshold that rejects the share a of the known samples rejects at least 1 - (1 - k)
# / a of the unknown ones. So the bound says something only for a > 1 - k, and more for better models. It is a statement
# about these samples, not about unknown samples of another kind (see :doc:`5_thresholds`).

share = np.linspace(0.005, 1, 400)
bounds = {k: [unknown_recall_bound(k, a) for a in share] for k in (openauc, 0.9, 0.97)}

# sphinx_gallery_start_ignore
fig, ax = plt.subplots(figsize=(5.6, 3.8))
ax.plot(roc.x, roc.y, color=BLUE, label=f"network, OpenAUC {openauc:.2f}")
for (k, bound), dashes in zip(bounds.items(), ("-", "--", ":"), strict=True):
    ax.plot(share, bound, color=ORANGE, linestyle=dashes, label=f"bound for OpenAUC {k:.2f}")
ax.set(
    xlim=(0, 1), ylim=(0, 1.02), xlabel="share a of known samples rejected", ylabel="share of unknown samples rejected"
)
ax.legend(loc="lower right")
plt.show()
# sphinx_gallery_end_ignore

# %%
# The small print
# ---------------
#
# Some statements need a condition more than the paper prints. ``Construction.conditions`` lists each with its numbers,
# :doc:`/paper_map` has the counterexamples.
#
# - Prop. 1 needs as many *accepted misclassified known* samples as there are rejected unknown ones. The printed
#   condition also counts accepted unknown samples, which have nothing to trade. Otherwise the construction stops
#   half-way.
# - Prop. 2 with no rejected sample left divides 0 by 0. If that counts 0, the statement fails, so we stop one before.
#   It also needs the second term of the normalized accuracy to be a precision, as printed; read as an accuracy, it
#   falls.
# - OpenAUC falls strictly in Prop. 5 if and only if a correct known sample lies between the two scores, and in Prop. 7
#   an unknown one. Accuracy and AUROC below 1 alone do not make the model of Prop. 3 worse.
