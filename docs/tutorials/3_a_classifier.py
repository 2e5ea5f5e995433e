"""
Add "unknown" to a classifier
=============================

After this page your own classifier can answer "unknown", with an exact guarantee, and you can ship it as one ONNX file.
All its other answers stay as they are. The page does this first for a fitted classifier of scikit-learn, then for a
network. Of the network, only the features and the last layer are needed.
"""

import json
import tempfile
import textwrap
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import onnxruntime
import pandas as pd
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

from openauc import METRICS, OpenSetClassifier, evaluate
from openauc.plotting import LOOK, STYLES

SHOWN = {name: METRICS[name] for name in ("openauc", "auroc", "closed_set_accuracy")}

# %%
# Seven of the ten digits are known. A part of the samples is for training, a part is kept fresh, and the rest, with the
# other three digits, is what comes in later.

names = "zero,one,two,three,four,five,six,seven,eight,nine"
pixels, digit = load_digits(return_X_y=True)
X, y = (pixels / 16).astype(np.float32), np.array(names.split(","))[digit]
known, new = np.flatnonzero(digit < 7), np.flatnonzero(digit >= 7)
order = np.random.default_rng(0).permutation(known)
train, fresh, later = order[:600], order[600:900], np.append(order[900:], new)
X_train, X_fresh, X_later = X[train], X[fresh], X[later]
y_train, y_fresh, y_later = y[train], y[fresh], y[later]

# %%
# The classifier at hand
# ----------------------

clf = LogisticRegression(C=0.5, max_iter=1000).fit(X_train, y_train)
print("seven, eight, nine are called:", *np.unique(clf.predict(X[new])))

# %%
# As a ``head`` it serves as it is. Pass what it was fitted on: copies of it learn without some of the classes, which
# shows what unknown samples look like to it.

open_set = OpenSetClassifier(head=clf, random_state=0).fit(X_train, y_train)
same = open_set.classify(X_later) == clf.predict(X_later)
print("same classes as before:", same.all())
print(open_set.report_)

# %%

print(evaluate(*open_set.predictions(X_later, y_later), metrics=SHOWN))

# %%
# A guarantee that is exact
# -------------------------
#
# The threshold comes from the training samples, each scored by a copy that was not fitted on it. That is close, and no
# sample is lost. An exact guarantee takes samples that the model has not seen:

print(textwrap.fill(open_set.guarantee_), end="\n\n")
open_set.calibrate(X_fresh, y_fresh)
print(textwrap.fill(open_set.guarantee_))

# %%
# From now on thresholds and p-values rest on these. Choosing another needs no fit. With ``per_class`` each predicted
# class gets a threshold of its own, if it has enough calibration samples for the guarantee; without, a class that is
# hard pays for one that is easy.

is_known = np.isin(y_later, open_set.classes_)


def accepted():
    """Share of known samples accepted, by predicted class, and of unknown ones."""
    called, passed = open_set.classify(X_later), open_set.predict(X_later) != "unknown"
    by_class = pd.Series(passed[is_known]).groupby(called[is_known]).mean()
    totals = {"all known": passed[is_known].mean(), "unknown": passed[~is_known].mean()}
    return pd.concat([by_class, pd.Series(totals)])


table = {"95 %": accepted()}
open_set.set_threshold(acceptance=0.9)
table["90 %"] = accepted()
open_set.set_threshold(acceptance=0.9, per_class=True)
table["90 % per class"] = accepted()
pd.DataFrame(table).round(2).rename_axis("share accepted")

# %%
# Other rules: ``set_threshold("youden")``, ``set_threshold("cost", costs={"unknown_accepted": 5.0})``, both from
# held-out classes and without a guarantee, or a number.
#
# A batch at once
# ---------------
#
# A threshold bounds the share of known samples that are rejected. If you look at everything that is called unknown, you
# have another question: how many of *those* are known after all? ``select_unknown`` answers it for a batch.

open_set.set_threshold(acceptance=0.95, per_class=False)
for fdr in (0.05, 0.1, 0.2):
    chosen = open_set.select_unknown(X_later, fdr=fdr)
    wrong = np.mean(is_known[chosen]) if chosen.any() else 0.0
    print(f"at {fdr:.0%}: {chosen.sum()} called unknown, {wrong:.1%} of them known")

# %%
# A network
# ---------
#
# Of a network, take the features before its last layer, and that layer as a linear head. This network is a small one
# of scikit-learn. Yours may come from any framework, since only arrays are needed.

network = MLPClassifier((64,), alpha=0.01, max_iter=600, random_state=0)
network.fit(X_train, y_train)
(into, out), (into_bias, out_bias) = network.coefs_, network.intercepts_


def features(pixels):
    return np.maximum(pixels @ into + into_bias, 0).astype(np.float32)


last_layer = LogisticRegression()
last_layer.coef_, last_layer.intercept_ = out.T, out_bias
last_layer.classes_ = network.classes_

# %%
# The network has seen the training samples and all classes with their labels, so neither tells what is new to it:
# classes held out afterwards are not new. ``seen_by_encoder=True`` says so, and the largest logit rejects. Thresholds
# come from fresh samples.

rejecting = OpenSetClassifier(head=last_layer, seen_by_encoder=True, random_state=0)
rejecting.fit(features(X_train), y_train).calibrate(features(X_fresh), y_fresh)
same = rejecting.classify(features(X_later)) == network.predict(X_later)
print("same classes as before:", same.all())
print("rejects by:", rejecting.report_.chosen)
print(evaluate(*rejecting.predictions(features(X_later), y_later), metrics=SHOWN))

# %%
# If you only have logits, and no features, :doc:`4_predictions` is for you: a score of the logits, and a threshold for
# it.

p_values = {
    "logistic regression, learned": open_set.p_value(X_later),
    "network, max logit": rejecting.p_value(features(X_later)),
}
# sphinx_gallery_start_ignore
(blue, _), (orange, dashes), *_ = STYLES
with plt.rc_context(LOOK):
    figure, both = plt.subplots(1, 2, figsize=(8.2, 3.2), sharey=True)
    for axes, (name, values) in zip(both, p_values.items(), strict=True):
        for kind, chosen, color, line in (("known", is_known, blue, "-"), ("unknown", ~is_known, orange, dashes)):
            axes.ecdf(values[chosen], color=color, linestyle=line, label=kind)
        axes.axvline(0.05, color="0.4", linewidth=1)
        axes.set(xlabel="p-value", title=name, xlim=(0, 1))
    both[0].set_ylabel("share at or below")
    both[1].legend(loc="lower right", frameon=False)
plt.show()
# sphinx_gallery_end_ignore

# %%
# P-values of known samples are spread evenly, as they must; those of unknown samples are small. At the line, 0.05, the
# threshold accepts 95 %.
#
# Ship it
# -------
#
# ``save`` writes a folder of JSON and arrays, ``export_onnx`` one file with everything in it: weights, scores,
# threshold, names of the classes. The service that runs it needs neither openauc nor scikit-learn.

with tempfile.TemporaryDirectory() as folder:
    open_set.save(Path(folder) / "model")
    loaded = OpenSetClassifier.load(Path(folder) / "model")
    open_set.export_onnx(Path(folder) / "model.onnx")

    session = onnxruntime.InferenceSession(Path(folder) / "model.onnx")
    label, p_value = session.run(["label", "p_value"], {"embedding": X_later})
    told = session.get_modelmeta().custom_metadata_map
answers = open_set.predict(X_later)
print("same answers from the folder:", (loaded.predict(X_later) == answers).all())
print("same answers from ONNX:      ", (label == answers).all())
print("same p-values from ONNX:     ", np.allclose(p_value, open_set.p_value(X_later)))
print("its classes:", *json.loads(told["classes"]))
