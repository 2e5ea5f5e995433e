"""
Evaluate and compare two models
===============================

Two models saw the same test set: a linear classifier and a small network on Fashion-MNIST, six of its classes known
and four unknown. Which one is better, by how much, and could the difference be chance?

A model's answer to each test sample is three things: the true label (-1 for unknown), the predicted known class, and
an open-set score that is higher the more unknown the sample looks. :class:`~openauc.Predictions` holds them, and
reads them from ``.npz``, ``.csv`` and ``.parquet`` files.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt

import openauc
from openauc.report import predictions_report

examples = Path("../../examples")  # in the repository
linear = openauc.Predictions.load(examples / "linear.npz")
network = openauc.Predictions.load(examples / "network.npz")

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
# The same on the command line:
#
# .. code-block:: sh
#
#     openauc evaluate examples/network.npz
#     openauc compare examples/network.npz examples/linear.npz
#     openauc report examples/network.npz examples/linear.npz -o report.html
