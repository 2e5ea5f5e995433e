"""
From embeddings to new classes
==============================

After this page you can add "unknown" to embeddings of any kind, and work with the rows that are rejected: see why they
are rejected, find groups among them, give these groups names, and extend the model by them. For this you do not need
the data that the model was fitted on.
"""

import textwrap

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.datasets import load_digits

from openauc import OpenSetClassifier
from openauc.plotting import LOOK

# %%
# Embeddings are an array with a row for each sample, from any network or encoder. Here the rows are the pixels of small
# images of digits. Six of the ten digits are known, and half of their images are for training. The other half comes in
# later, together with all images of the other four digits: first ``seen``, then ``later``. Their true names are only
# used to check.

words = "zero,one,two,three,four,five,six,seven,eight,nine"
names = np.array(words.split(","))
pixels, digit = load_digits(return_X_y=True)
X, y = (pixels / 16).astype(np.float32), names[digit]
order = np.random.default_rng(0).permutation(len(X))
known = order[digit[order] < 6]
train = known[: len(known) // 2]
seen, later = np.array_split(order[~np.isin(order, train)], 2)

classifier = OpenSetClassifier(random_state=0).fit(X[train], y[train])
rejected = classifier.predict(X[seen]) == "unknown"
print(f"{rejected.sum()} of {len(seen)} rows are rejected")

# %%
# Explain
# -------
#
# :meth:`~openauc.features.OpenSetClassifier.explain` has a sentence for each row. Most rejected rows are far from what
# was learned. Some are between two classes, which may be bad images of known digits.

explained = classifier.explain(X[seen][rejected])
said = pd.Series(explained.sentence).value_counts()
said.head(6).to_frame("rows")

# %%
# Discover
# --------
#
# :meth:`~openauc.features.OpenSetClassifier.discover` looks for groups among the rejected rows. It also finds out how
# many there are.

groups = classifier.discover(X[seen])
pd.DataFrame(
    {
        "size": group.size,
        "purity": round(group.purity, 2),
        "90 % interval": "{:.2f} - {:.2f}".format(*group.purity_interval),
        "nearest": ", ".join(group.nearest),
    }
    for group in groups.groups
)

# %%

alone = groups.unknown & (groups.labels < 0)
print(f"{alone.sum()} rejected rows fit no group.")
print(*groups.notes, sep="\n")

# %%
# ``purity`` is a forecast: the share of the group that is of one class. For texts, pass them as ``texts``, and each
# group gets the words that set it apart.
#
# Name
# ----
#
# The rows of a group begin with the most central ones. Eight of each are enough to see what it is:

central = [seen[group.rows[:8]] for group in groups.groups]
# sphinx_gallery_start_ignore
with plt.rc_context(LOOK):
    figure, tiles = plt.subplots(len(groups.groups), 8, figsize=(6.4, 0.85 * len(groups.groups)))
    for number, (line, rows) in enumerate(zip(tiles, central, strict=True)):
        for tile, row in zip(line, rows, strict=True):
            tile.imshow(pixels[row].reshape(8, 8), cmap="gray_r")
            tile.set(xticks=[], yticks=[])
            tile.spines[:].set_visible(False)
        line[0].set_ylabel(f"{number}  ", rotation=0, ha="right", va="center")
plt.show()
# sphinx_gallery_end_ignore

# %%
# A name may be that of a known class, and two groups may have the same one. A group that is not one thing is left out.

called = {0: "seven", 1: "six", 2: "nine", 3: "eight"}
# sphinx_gallery_start_ignore
mostly = [pd.Series(y[seen[group.rows]]).mode()[0] for group in groups.groups]
assert mostly == list(called.values()), mostly
# sphinx_gallery_end_ignore
rows = np.flatnonzero(np.isin(groups.labels, list(called)))
labels = np.array([called[number] for number in groups.labels[rows]])
print(f"{np.mean(labels == y[seen[rows]]):.1%} of {len(rows)} rows are named right")

# %%
# Rows with a wrong name are learned, too. In use their number is not known: ``purity`` is the forecast of it.
#
# Extend
# ------
#
# :meth:`~openauc.features.OpenSetClassifier.add_classes` changes the model. It needs the rows with their names, and
# nothing of what the model was fitted on but the rows it keeps itself, 8,192 at most. ``report_.notes`` says what
# changed for these, and whether the new classes have the rows they need.

before, told = classifier.predict(X[later]), len(classifier.report_.notes)
classifier.add_classes(X[seen[rows]], labels)
print(*classifier.classes_)
for note in classifier.report_.notes[told:]:
    print(textwrap.fill(note), end="\n\n")
print(textwrap.fill(classifier.guarantee_))

# %%
# Predict again
# -------------
#
# The images of ``later`` had no part in all this. For a class that a model does not know, the right answer is to
# reject. That is easier than to name it, so the first model may look better on the last four digits.

after, true = classifier.predict(X[later]), y[later]
right = np.where(digit[later] < 6, before == true, before == "unknown")
counts = {"rows": 1, "right before": right, "right after": after == true}
pd.DataFrame(counts).groupby(true).sum().loc[names]

# %%

for name, answers in {"before": before, "after": after}.items():
    print(f"rejected {name}: {np.mean(answers == 'unknown'):.0%}")

# %%
# What is promised, and what not
# ------------------------------
#
# - Held-out known classes choose the number of groups: their rows are grouped as if they were new, and what recovers
#   these classes best groups the rejected rows.
# - ``purity`` comes from the same classes, with a 90 % interval. With fewer than 20 known classes it is uncertain, and
#   a note says so.
# - Rows that fit no group are left alone. A group has at least five rows.
# - Only rejected rows are grouped. New kinds that the model takes for known classes are in no group.
# - Of more than 3,000 rejected rows, groups are sought among 3,000, and the others join them. Small kinds may be
#   missing; discover again once the groups are learned.
# - ``piece_of`` marks a group that is perhaps a piece of a known class. It needs 20 known classes, and is seldom given:
#   what is rejected lies far from its class, as new kinds do.
# - A new class needs two rows. With fewer than ten it has no guarantee of its own, and may take rows that belong to no
#   class.
# - The forecast in ``report_`` remains that of the fit. It does not cover the new classes, so no verdict judges by it.
#
# On the command line
# -------------------
#
# A model and new rows, as embeddings, texts or images:
#
# .. code-block:: sh
#
#    openauc predict model new.parquet -o why.csv --explain
#    openauc discover model new.parquet -o groups
#    openauc extend model groups/labels.csv -o model2
#    openauc predict model2 new.parquet -o decisions.csv
#    openauc compare-models model model2 labelled.parquet
#
# After the second, name the groups: in ``groups/review.html``, a page for the browser on which groups are
# merged, rows are taken out, and ``labels.csv`` is saved, to be put in ``groups``; or by hand, in the column ``label``
# of the ``groups/labels.csv`` that is there. If ``new.parquet`` has labels, ``discover`` tells how pure the groups are.
#
# Without ``-o``, ``extend`` changes the model itself, and ``openauc extend model --undo`` takes that back.
# ``compare-models`` tells what became better and worse, class by class. When
# :doc:`openauc watch <more/2_watch_a_model>` finds that more is rejected, it prints the ``discover`` command.
#
# With Label Studio
# -----------------
#
# Import ``groups/label_studio.json`` into a project with this labelling configuration. It has a choice for each class,
# and one for each group, since the file proposes the group of a row and newer versions import only what is a choice:
#
# .. code-block:: xml
#
#    <View>
#      <Text name="text" value="$text"/>
#      <Choices name="label" toName="text">
#        <Choice value="insurance"/>
#        <Choice value="shares"/>
#        <Choice value="group 0"/>
#        <Choice value="group 1"/>
#      </Choices>
#    </View>
#
# For images, it is ``<Image name="image" value="$image"/>`` and ``toName="image"``; replace their paths in the file by
# URLs that Label Studio can reach. Export as JSON or JSON-MIN, and extend with it; rows left at their group are not
# learned:
#
# .. code-block:: sh
#
#    openauc extend model export.json --groups groups -o model2
