"""
Ties
====

After this page you know what equal scores do to a metric, where they come from, and how to avoid them.

OpenAUC and AUROC compare the score of a known sample with that of an unknown one. What if the two are equal? With
floating-point scores this hardly ever happens. It happens a lot when scores are rounded or squashed.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from openauc import UNKNOWN, Predictions, closed_set_accuracy, openauc_score, oscr_curve
from openauc.plotting import LOOK, STYLES

plt.rcParams.update(LOOK)
BLUE, ORANGE = (color for color, _ in STYLES[:2])
EXAMPLES = Path("../../examples")
network = Predictions.load(EXAMPLES / "network.npz")

# %%
# Half or nothing
# ---------------
#
# A tied pair is worth one half with ``ties="half"``, the default, and nothing with ``ties="strict"``, the ``>`` in the
# paper's formula. A picture makes the difference plain. Equal scores are accepted at once, so the OSCR curve has no
# point inside a group of ties. Half credit is the area below the straight line across the group; strict credit stays
# below the stairs.

y_true, y_pred, open_score = [0, 0, 0, 0, -1, -1, -1, -1], [0] * 8, [1, 2, 2, 3, 2, 2, 3, 4]
curve = oscr_curve(y_true, y_pred, open_score)
half, strict = (openauc_score(y_true, y_pred, open_score, ties=ties) for ties in ("half", "strict"))

# sphinx_gallery_start_ignore
fig, ax = plt.subplots(figsize=(5.2, 3.8))
ax.plot(curve.x, curve.y, "o-", color=BLUE, label=f"half: {half:.4f}")
ax.step(curve.x, curve.y, where="post", color=ORANGE, linestyle="--", label=f"strict: {strict:.4f}")
ax.fill_between(curve.x, curve.y, color=BLUE, alpha=0.15, linewidth=0)
ax.fill_between(curve.x, curve.y, step="post", color=ORANGE, alpha=0.25, linewidth=0)
ax.set(xlim=(0, 1.01), ylim=(0, 1.05), xlabel=curve.x_label, ylabel=curve.y_label)
ax.legend(loc="lower right")
plt.show()
# sphinx_gallery_end_ignore

# %%
# The extreme case is a score that says nothing. Half credit gives it half its accuracy, the value of guessing; strict
# credit gives it 0. Any fixed order of the tied samples, as some codes use, gives something between 0 and the accuracy,
# by accident.

constant = np.zeros(len(network.y_true))
for ties in ("half", "strict"):
    print(ties, f"{openauc_score(network.y_true, network.y_pred, constant, ties=ties):.4f}")
print("accuracy", f"{closed_set_accuracy(*network):.4f}")

# %%
# Who makes scores equal
# ----------------------
#
# **Rounding.** Scores written to a file with few decimals. The gap between half and strict is half the share of pairs
# whose known sample is correct and tied with the unknown one, so it measures the damage. Half credit is what a coin
# would decide on average and stays close to the exact value; strict credit loses every such pair.


def both(score: np.ndarray) -> tuple[float, float, int]:
    """OpenAUC with half and strict ties, and the number of distinct scores."""
    triple = network.y_true, network.y_pred, score
    return openauc_score(*triple), openauc_score(*triple, ties="strict"), len(np.unique(score))


score = network.open_score.astype(np.float64)
rounded = {f"{decimals} decimals": both(np.round(score, decimals)) for decimals in (4, 2, 1, 0)}
columns = ["half", "strict", "distinct scores"]
pd.DataFrame.from_dict({"as saved": both(score), **rounded}, orient="index", columns=columns).round(4)

# %%
# **A sigmoid in float32.** Some codes squash the score first. Between 0 and 1 float32 has plenty of numbers near 0, but
# near 1 its steps are 6e-8 wide: above about 17 every score becomes exactly 1. Whether that matters depends on where
# the scores lie. Those of the example are negative and survive; moved to the right, the same ranking is lost step by
# step. In float64 the same happens only near 37.


def sigmoid(x: np.ndarray) -> np.ndarray:
    """The logistic function in the precision of ``x``."""
    return 1 / (1 + np.exp(-x))


shifts = np.arange(0, 46, 2.5)
# sphinx_gallery_start_ignore
fig, ax = plt.subplots(figsize=(5.6, 3.8))
for dtype, dashes in (("float32", "-"), ("float64", "--")):
    values = np.array([both(sigmoid((score + shift).astype(dtype)))[:2] for shift in shifts])
    for column, (ties, color) in enumerate((("half", BLUE), ("strict", ORANGE))):
        ax.plot(np.median(score) + shifts, values[:, column], color=color, linestyle=dashes, label=f"{dtype}, {ties}")
ax.set(ylim=(0, 0.8), xlabel="median score before the sigmoid", ylabel="OpenAUC after it")
ax.legend(loc="lower left")
plt.show()
# sphinx_gallery_end_ignore

# %%
# **Saturated probabilities.** A softmax does the same to confident models: in float32 the largest probability is
# exactly 1 once the other logits are about 17 below the largest. The more confident the model, the more samples tie at
# the top, known and unknown alike. Here are made-up logits, multiplied by a growing scale, as if a model became more
# and more sure. (Without any tie the largest probability of scaled logits ranks a little differently: the fall at the
# far left.)

rng = np.random.default_rng(0)
label = np.r_[rng.integers(0, 6, 1200), np.full(800, UNKNOWN)]
logits = rng.normal(size=(2000, 6))
logits[np.arange(1200), label[:1200]] += 3.0
largest = logits.max(axis=1, keepdims=True)


def softmax_openauc(scale: float, dtype: str) -> tuple[float, float]:
    """OpenAUC of minus the largest probability, and the share of samples where that is exactly one."""
    exponential = np.exp(((logits - largest) * scale).astype(dtype))
    probability = exponential.max(axis=1) / exponential.sum(axis=1)
    return openauc_score(label, logits.argmax(axis=1), -probability), float(np.mean(probability == 1))


scales = np.arange(1, 31, 1.5)
# sphinx_gallery_start_ignore
fig, (left, right) = plt.subplots(1, 2, figsize=(8.4, 3.4))
for dtype, (color, dashes) in zip(("float16", "float32", "float64"), STYLES, strict=False):
    values, ones = zip(*(softmax_openauc(scale, dtype) for scale in scales), strict=True)
    left.plot(scales, values, color=color, linestyle=dashes, label=dtype)
    right.plot(scales, ones, color=color, linestyle=dashes, label=dtype)
left.set(xlabel="scale of the logits", ylabel="OpenAUC of -max probability")
right.set(xlabel="scale of the logits", ylabel="share of samples with probability 1")
left.legend(loc="lower left")
plt.show()
# sphinx_gallery_end_ignore

# %%
# What to do
# ----------
#
# - Save the raw score, such as minus the largest logit, in the precision it was computed in. ``openauc`` ranks it as it
#   is and never squashes it.
# - If only probabilities are left, take the softmax in float64.
# - Report ``ties="half"``: it is the area under the curve, and what scikit-learn does for the AUROC. Then compare with
#   ``openauc evaluate FILE --ties strict``. If both round to the same digits, ties do not matter to you.
# - Decisions do not depend on the choice: samples with equal scores are always accepted or rejected together.
