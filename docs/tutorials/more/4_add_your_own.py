"""
Add a metric, a method, a protocol
==================================

After this page you can evaluate by a metric of your own, train a method of your own, and test it on class splits of
your own. Each is one function, one class or one object. You need not register it: whatever takes a name also takes the
object itself.
"""

from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import torch
import torch.nn.functional as F

from openauc import METRICS, Metric, evaluate
from openauc.methods import make_method
from openauc.methods.base import Method
from openauc.models import make_backbone
from openauc.plotting import LOOK
from openauc.protocols import PROTOCOLS, Protocol, Split
from openauc.recipe import Recipe
from openauc.training.loop import train
from openauc.training.predict import predict

# %%
# A protocol
# ----------
#
# A protocol says where images come from and which classes are known. This one splits the embedded digits into even and
# odd ones; it borrows everything else from the protocol that comes with the package.

even, odd = (0, 2, 4, 6, 8), (1, 3, 5, 7, 9)
even_or_odd = replace(
    PROTOCOLS["digits"], splits=(Split(even, odd), Split(odd, even)), reference="even against odd digits"
)
assert isinstance(even_or_odd, Protocol)
data = even_or_odd.load(0)
print(f"{len(data.train.labels)} training images of {data.class_names}, {len(data.test.labels)} test images")

# %%
# A method
# --------
#
# A method is a subclass of :class:`~openauc.methods.base.Method` with a ``loss``. Its options are the keyword
# arguments of its constructor. This one pays for confidence: it subtracts the entropy of its answer, ``weight``
# times, from the cross-entropy.


class Modest(Method):
    """Cross-entropy that likes to be unsure."""

    def __init__(self, *args, weight: float = 0.1, **options):
        super().__init__(*args, **options)
        self.weight = weight

    def loss(self, x, y):
        logits = self.logits(x)
        share = logits.softmax(1)
        entropy = -(share * logits.log_softmax(1)).sum(1).mean()
        return F.cross_entropy(logits, y) - self.weight * entropy


# %%
# A metric
# --------
#
# A metric is a function of the triple. This one asks how many samples must be rejected to reject nine in ten
# unknown ones. :func:`~openauc.evaluate` gives it a bootstrap interval like any other.


def rejected_for_90(y_true, y_pred, open_score):
    """Share of all samples above the threshold that rejects 90 % of the unknown ones."""
    threshold = np.quantile(open_score[y_true == -1], 0.1)
    return float(np.mean(open_score >= threshold))


metrics = {
    "openauc": METRICS["openauc"],
    "rejected_for_90": Metric(function=rejected_for_90, better="lower", label="rejected for 90 % of unknown"),
}

# %%
# All three together
# ------------------
#
# The training loop, the prediction and the evaluation are those of the package.

recipe = Recipe(epochs=6, schedule="cosine_restarts", augmentation="none", normalize=True, image_size=8)
evaluations = {}
for method in ("ce_plus", Modest):
    backbone = make_backbone("vgg32", width=8, generator=torch.Generator().manual_seed(0))
    model = make_method(method, backbone, data.num_classes, rng=np.random.default_rng(0))
    train(model, data, recipe)
    evaluations[type(model).__name__] = evaluate(*predict(model, data), metrics=metrics, n_replicates=500)
    print(type(model).__name__, evaluations[type(model).__name__], sep="\n", end="\n\n")

# %%
# One short training each on a few hundred images decides nothing, as the intervals say.

with plt.rc_context(LOOK):
    figure, rows = plt.subplots(1, 2, figsize=(6.4, 1.8), sharey=True)
    for axes, (name, metric) in zip(rows, metrics.items(), strict=True):
        for place, evaluation in enumerate(evaluations.values()):
            axes.plot(evaluation.intervals[name], [place, place], color="#0072B2", linewidth=2)
            axes.plot(evaluation.values[name], place, "o", color="#0072B2")
        axes.set(title=f"{metric.label}, {metric.better} is better", ylim=(-0.6, 1.6))
        axes.title.set_fontsize(9)
        axes.set_yticks(range(len(evaluations)), evaluations)
plt.show()

# %%
# To stay
# -------
#
# - Metric: one line in ``METRICS``, in ``metrics/registry.py``.
# - Method: a file of its own that ends in ``METHOD = Modest``. In the folder ``methods/`` its file name is its name
#   on the command line; elsewhere ``openauc train digits --method package.module`` finds it.
# - Protocol: one entry in ``PROTOCOLS``, in ``protocols/registry.py``.
#
# The tests of ``tests/contracts`` then cover them at once. :doc:`/contributing` says what else belongs to a change.
