"""
Watch a model in use
====================

After this page you can tell whether the samples that a deployed model meets have changed, without labels, and with a
stated probability of ever raising a false alarm.

:class:`~openauc.features.Monitor` compares the samples with those that the model was calibrated with. An alarm comes
when they are too unlikely for a stream in which nothing changed. You may look as often as you like.
"""

import textwrap

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from openauc.features import Monitor, OpenSetClassifier
from openauc.plotting import LOOK, STYLES

# %%
# Seven of the ten digits are known. Some samples are for training, some for calibration, and the rest plays the stream,
# drawn again and again. After 3,000 samples, one in twenty is a seven, an eight or a nine.

pixels, digit = load_digits(return_X_y=True)
X = (pixels / 16).astype(np.float32)
rng = np.random.default_rng(0)
known, new = rng.permutation(np.flatnonzero(digit < 7)), np.flatnonzero(digit >= 7)
classifier = OpenSetClassifier(random_state=0).fit(X[known[:500]], digit[known[:500]])
classifier.calibrate(X[known[500:800]])

unknown = (np.arange(6000) >= 3000) & (rng.random(6000) < 0.05)
rows = np.where(unknown, rng.choice(new, 6000), rng.choice(known[500:], 6000))

# %%
# ``calibrate`` matters: the statement about false alarms needs calibration samples that the model was not fitted on.
# With the default, cross-fitted scores, a monitor looks for rises only, and says so. It may also be given a
# ``reference``, other samples to compare with.
#
# The stream comes in pieces, of any size:

monitor = Monitor(classifier, alpha=0.01)
for piece in np.split(rows, 12):
    for alarm in monitor.update(X[piece]):
        print(textwrap.fill(str(alarm)))

# %%
# Three things are watched: the share rejected, the acceptance of each predicted class, and the distribution of scores.
# Each has an evidence, and its line:

timeline = monitor.timeline
# sphinx_gallery_start_ignore
with plt.rc_context(LOOK):
    figure, (above, below) = plt.subplots(2, 1, figsize=(7.4, 5.0), sharex=True)
    middle = np.cumsum(timeline.n) - timeline.n / 2
    above.plot(middle, 100 * timeline.rejected.sum(1) / timeline.n, "o-", color=STYLES[0][0])
    above.axhline(100 * monitor.usual_share, color="0.5", linestyle="--", linewidth=1)
    above.set(ylabel="rejected (%)", ylim=(0, None))
    for part, (name, (color, line)) in enumerate(zip(("rejected", "classes", "scores"), STYLES, strict=False)):
        below.plot(middle, timeline.evidence[:, part] / np.log(10), color=color, linestyle=line, label=name)
    below.axhline(2, color="0.3", linewidth=1)
    below.set(xlabel="sample", ylabel="evidence, powers of ten")
    below.legend(frameon=False)
plt.show()
# sphinx_gallery_end_ignore

# %%
# What this can tell, and what not
# --------------------------------
#
# The summary ends with what scores without labels cannot tell:

for line in monitor.summary().splitlines():
    print(textwrap.fill(line), end="\n\n")

# %%
# How it works
# ------------
#
# Each sample is ranked among the calibration samples *and all samples before it*. If nothing changes, these ranks are
# uniform and independent of each other, exactly. Ranks among the calibration samples alone are not: 300 samples are a
# rough picture of their distribution, and a long stream finds the difference, though nothing has changed.
# :mod:`openauc.features.monitor.betting` has the formulas.
#
# The monitor bets on small p-values. If they become too frequent, it wins. If nothing changes, it reaches 100 times its
# stake with probability 0.01 at most. Changes may come late, so part of the stake is kept for bets that begin later.
#
# A difference that is there from the first sample on shows only while the calibration samples are not outnumbered: with
# few of them, a small difference is never told from chance.
#
# On the command line
# -------------------
#
# .. code-block:: bash
#
#    openauc watch model stream.parquet --state state.npz -o page.html
#    openauc watch model tomorrow.parquet --state state.npz -o page.html --fail-on-alarm
#
# The page shows the timeline and the classes. When labels come in, ``openauc evaluate --by day`` gives OpenAUC by day.
