r"""
Which score, and why learn it
=============================

After this page you can read the table that a fit prints, and you know when to trust it.

Dozens of scores tell unknown samples from known ones: the largest logit, distances to neighbours, to classes, and more.
None of them is best everywhere. Which one is best for your data, if you have no unknown samples? Hold out known
classes: train without them, and look at their scores. :class:`~openauc.features.OpenSetClassifier` does that to compare
scores, and to learn one of its own.
"""

import textwrap
import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

from openauc import OpenSetClassifier, openauc_score
from openauc.encoders import get_encoder
from openauc.features.classifier.conformal import Calibration
from openauc.features.classifier.rejector import AVERAGE, EVIDENCE
from openauc.plotting import LOOK, STYLES

plt.rcParams.update(LOOK)
(blue, _), (orange, _), *_ = STYLES

# %%
# No score wins everywhere
# ------------------------
#
# Two problems: embeddings of the sentences of ``examples/intents.csv``, twelve intents, and the pixels of seven of the
# ten digits. Of each, some known classes are held out, in turn, and a head is trained on the rest. OpenAUC then asks
# whether the held-out samples rank above the known ones that are classified correctly.

sentences = pd.read_csv("../../examples/intents.csv")
intents = OpenSetClassifier(random_state=0)
intents.fit(get_encoder("minilm")(sentences["text"].tolist()), sentences["label"])

pixels, label = load_digits(return_X_y=True)
pixels = (pixels / 16).astype(np.float32)
known = label < 7
order = np.random.default_rng(0).permutation(np.flatnonzero(known))
train, test = order[:750], np.append(order[750:], np.flatnonzero(~known))
X, y, X_test, y_test = pixels[train], label[train], pixels[test], label[test]
digits = OpenSetClassifier(random_state=0).fit(X, y)

# sphinx_gallery_start_ignore
fig, both = plt.subplots(1, 2, figsize=(8.6, 3.9))
for ax, (name, model) in zip(both, {"intents, sentences": intents, "digits, pixels": digits}.items(), strict=True):
    tried = model.report_.tried[::-1]
    for place, one in enumerate(tried):
        color = blue if one.name == "learned" else orange if one.name == "average" else "#666666"
        ax.plot(one.interval, [place, place], color=color, linewidth=1.6, solid_capstyle="round")
        ax.plot(one.openauc, place, "o", color=color, markersize=5)
    ax.set_yticks(range(len(tried)), [one.name for one in tried])
    for text, one in zip(ax.get_yticklabels(), tried, strict=True):
        text.set_color(blue if one.name == "learned" else orange if one.name == "average" else "black")
    ax.set(title=name, xlabel="OpenAUC, classes held out")
    ax.grid(axis="y", visible=False)
plt.show()
# sphinx_gallery_end_ignore

# %%
# On sentences scores of the logits lead, on pixels distances do, and who leads in one place is far behind in the other.
# The fixed ``average`` of four unlike scores is never far off, and what is ``learned`` is at the top or beside it. The
# lines are 95 % intervals over the held-out classes, which all rows share: two may differ although their lines overlap.
#
# The fit falls back to the best of the simple rules where the learned rejector is below it by more than two standard
# errors. ``rejector="selected"`` takes the single score that leads, ``rejector="knn"`` the one you name.
#
# From evidence to a score
# ------------------------
#
# Nine scores are the evidence of a sample, each in units of its own deviation on correctly classified known samples, so
# that heads with other classes can be compared. Three of them come a second time, less what is usual for the predicted
# class: one may be more confident in some classes than in others. The rejector is a sum of one function of each:
#
# .. math:: r(e) = w\,b(e) + (1 - w)\,\sum_k f_k(e_k), \qquad w = \frac{8}{8 + C}
#
# Here :math:`b` is the fixed average of four of them, or a single score if held-out classes clearly prefer it. C is
# the number of known classes. The :math:`f_k` are piecewise linear and strongly regularised. They are learned so that
# samples of held-out classes rank above *correctly classified* known ones: Eq. 15 of the paper, with the logistic
# surrogate, and with real samples where the paper mixes some. Misclassified samples are left out, since OpenAUC has
# lost them whatever their score: that is the paper's switch. What each score adds:

rejectors = {"intents": intents.rejector_, "digits": digits.rejector_}
contributions = {name: rejector.curves() for name, rejector in rejectors.items()}
# sphinx_gallery_start_ignore
fig, axes = plt.subplots(3, 4, figsize=(8.6, 5.6), sharex=True, sharey=True)
places = dict(zip(EVIDENCE, axes.ravel(), strict=True))
for (name, (grid, curves)), (color, line) in zip(contributions.items(), STYLES, strict=False):
    for score, curve in zip(rejectors[name].names, curves, strict=True):
        places[score].plot(grid, curve, color=color, linestyle=line, linewidth=1.6, label=name)
        places[score].set_title(f"{score}{' *' if score in AVERAGE else ''}", fontsize=9)
axes[0, 0].legend(frameon=False)
fig.supxlabel("deviations above the mean of known samples", fontsize=9)
fig.supylabel("added to the score", fontsize=9)
plt.show()
# sphinx_gallery_end_ignore

# %%
# Scores with a star are in the average, too. Few classes teach little: three held-out classes may all be alike. So what
# is learned is shrunk toward that base, the more the fewer classes there are.

counts = np.array([3, 8, 12, 50, 150])
weights = {"base": 8 / (8 + counts), "learned": counts / (8 + counts)}
pd.DataFrame(weights, index=counts).round(2).rename_axis("C")

# %%
# What held-out classes can tell, and what not
# --------------------------------------------
#
# The digits have a test set with classes that no fit has seen: seven, eight and nine. Was the comparison on held-out
# classes good advice?

names = ["average", "distance", "relative_mahalanobis_pp", "max_logit"]
models = {"learned": digits}
for name in names:
    models[name] = OpenSetClassifier(rejector=name, random_state=0).fit(X, y)
expected = {one.name: one.openauc for one in digits.report_.tried}
reached = {}
for name, model in models.items():
    reached[name] = openauc_score(*model.predictions(X_test, y_test))

# sphinx_gallery_start_ignore
fig, ax = plt.subplots(figsize=(5.0, 4.0))
ax.axline((0.95, 0.95), slope=1, color="#B0B0B0", linewidth=1)
for name in models:
    color = blue if name == "learned" else orange if name == "average" else "#404040"
    ax.plot(expected[name], reached[name], "o", color=color, markersize=5)
    place, side = {"max_logit": ((7, -9), "left"), "learned": ((-7, 3), "right")}.get(name, ((-7, -10), "right"))
    ax.annotate(name, (expected[name], reached[name]), place, textcoords="offset points", ha=side, color=color)
ax.set(xlabel="OpenAUC on held-out known classes", ylabel="OpenAUC on new classes")
ax.margins(0.15)
plt.show()
# sphinx_gallery_end_ignore

# %%
# Those that lead on held-out classes lead on the new ones, with about the value they had. Below them the order is
# another, and a value can move by a tenth. So held-out classes **can** tell a good choice from a bad one, and about how
# well it will do. They **cannot** tell
#
# - what comes: new classes nearer to the known ones than these are to each other are harder, distant ones easier;
# - small differences: with C classes there are C observations, and the interval is as wide as that makes it;
# - the last points: a head of the folds knows fewer classes than the one in use.
#
# When the encoder has seen the classes
# -------------------------------------
#
# Holding out a class helps only if the class is then new. A network that was trained on all classes *with their labels*
# keeps them apart whether the head has seen them or not. Here are features of such a network, on the samples it was
# trained on:

network = MLPClassifier((64,), alpha=1e-4, max_iter=600, random_state=0).fit(X, y)


def features(samples):
    hidden = samples @ network.coefs_[0] + network.intercepts_[0]
    return np.maximum(hidden, 0).astype(np.float32)


rows = {}
for seen in (False, "auto"):
    model = OpenSetClassifier(seen_by_encoder=seen, random_state=0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        report = model.fit(features(X), y).report_
    reached_now = openauc_score(*model.predictions(features(X_test), y_test))
    forecast = report.expected.openauc if report.expected else np.nan
    rows[str(seen)] = report.chosen, forecast, reached_now
columns = ["rejector", "OpenAUC, held-out classes", "OpenAUC, new classes"]
table = pd.DataFrame.from_dict(rows, orient="index", columns=columns).round(3)
table.rename_axis("seen_by_encoder")

# %%
# Held-out classes make the learned rejector look almost perfect, and new classes do not agree. This small network does
# well nevertheless; how much is lost depends on how a network was trained, and its own training samples cannot tell. By
# default, ``"auto"``, the fit looks for the signs, high accuracy and classes that vary less inside than between, and
# lets the largest logit reject. It forecasts nothing then, and warns:

print(textwrap.fill(str(caught[0].message), 80))

# %%
# The signs are not a proof, so say ``seen_by_encoder=True`` or ``False`` if you know. The way out is to fit on samples
# that the network was not trained on, or to ``calibrate`` with such samples:
# :doc:`/generated/tutorials/3_a_classifier`.
#
# Outliers, and the end of the curve that counts
# ----------------------------------------------
#
# Samples known to be of no class, labelled ``unknown_label`` in ``y``, join the held-out ones when the rejector is
# learned, and weigh the more the more there are: fifty as much as all held-out classes together. From five on, the
# log-odds of being such an outlier are one more score. They do not become a class.
# :doc:`/generated/tutorials/1_texts_and_images` has an example.
#
# Where few unknown samples may pass, only the left part of the OSCR curve matters. ``max_ofpr=0.1`` compares by the
# partial OpenAUC up to ten per cent of unknown samples accepted, and learns with most weight on the unknown samples
# that look most known.
#
# What exactly is guaranteed
# --------------------------
#
# A sample is rejected when its conformal p-value, :math:`(1 + \#\{s_i \ge s\}) / (n + 1)` among the scores of n known
# calibration samples, is at most :math:`\alpha`; acceptance 0.95 means :math:`\alpha = 0.05`.
#
# - With ``calibration="split"``, or after ``calibrate``: a new known sample is accepted with probability at least
#   :math:`1 - \alpha`, in finite samples, whatever the distribution.
# - With ``calibration="cross"``, the default, no sample is lost, and each is scored by a model fitted without it and
#   its copies. The model in use knows a few samples more; the scores are corrected for that. The share accepted is
#   about :math:`1 - \alpha`. There is no lower bound.
# - ``per_class``: the same for the samples of each predicted class that has enough calibration samples. Smaller ones
#   share what all samples say.
#
# These are averages over samples and over calibration sets, for known samples like those of the calibration. Nothing is
# guaranteed about unknown ones. The known test digits, drawn into calibration and new samples a thousand times:

rng = np.random.default_rng(0)
scores = digits.open_score(X_test[y_test < 7])
shares = []
for _ in range(1000):
    order = rng.permutation(len(scores))
    calibration, new = scores[order[:100]], scores[order[100:]]
    (threshold,), _ = Calibration.of(calibration, np.zeros(100, int), 1).thresholds(0.95)
    shares.append(np.mean(new <= threshold))

# sphinx_gallery_start_ignore
fig, ax = plt.subplots(figsize=(5.6, 3.0))
step = 2 / (len(scores) - 100)
ax.hist(shares, bins=np.arange(0.85, 1 + step, step) + step / 4, color=blue, alpha=0.6)
ax.axvline(np.mean(shares), color=orange, linestyle="--", linewidth=1.4, label=f"mean {np.mean(shares):.4f}")
ax.axvline(0.95, color="#404040", linewidth=1, label="guaranteed 0.95")
ax.set(xlabel="share of new known samples accepted", ylabel="draws of 100 for calibration")
ax.legend(frameon=False, loc="upper left")
plt.show()
# sphinx_gallery_end_ignore

# %%
# The mean keeps the guarantee; a single draw may be below it. :doc:`5_thresholds` has the rule for those who want it to
# hold for nearly every calibration set.
