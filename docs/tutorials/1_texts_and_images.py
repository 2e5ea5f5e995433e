"""
From texts or images to decisions
=================================

After this page you can turn a file of texts, or a folder of images, into a classifier that answers with a class or
with "unknown". You can say what it guarantees, and why it rejected something.

The example is an assistant of a bank. It knows twelve things that customers ask for. If they ask for something else, it
should say so and not guess. No unknown sentence is needed to build it.
"""

import tempfile
import textwrap
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from openauc import OpenSetClassifier, evaluate
from openauc.encoders import get_encoder
from openauc.plotting import LOOK, STYLES

EXAMPLES = Path("../../examples")
sentences = pd.read_csv(EXAMPLES / "intents.csv")
sentences.groupby("label").head(1).head(5)

# %%
# Embed
# -----
#
# An encoder turns each sentence into a row of numbers. ``minilm`` is all-MiniLM-L6-v2, whose weights come with the
# extra ``encode``; ``openauc list encoders`` names others. Embeddings from elsewhere do as well: any array (n, d).

encode = get_encoder("minilm")
X, y = encode(sentences["text"].tolist()), sentences["label"].to_numpy()
print(X.shape, X.dtype)

# %%
# Fit
# ---
#
# The fit holds out some of the intents, trains a head on the others, and compares the scores of both. It repeats this
# with other intents. So it learns what unknown sentences look like, and which score finds them best.

classifier = OpenSetClassifier(random_state=0).fit(X, y)
print(classifier.report_)

# %%
# The intervals are over the held-out intents. Twelve are few, so the differences between most rows are not significant.
# The row in use says what to expect: the OpenAUC when questions of new kinds come in.
# :doc:`/generated/concepts/7_which_score_and_why_learn_it` tells how to read this table.
#
# Decide
# ------
#
# Ten new questions, some of which belong to no intent. ``p_value`` is small for samples that look unlike the known
# ones, and ``classify`` says what the class would have been.

questions = pd.read_csv(EXAMPLES / "questions.csv")
new = encode(questions["text"].tolist())
answers = {
    "prediction": classifier.predict(new),
    "without the rejector": classifier.classify(new),
    "p-value": classifier.p_value(new).round(3),
}
questions.assign(**answers)

# %%
# The threshold accepts 95 % of known sentences. What exactly it guarantees is said in words:

print(textwrap.fill(classifier.guarantee_))

# %%
# It can be moved without fitting again. A lower acceptance rejects more, also more of the known:

for acceptance in (0.99, 0.95, 0.9, 0.8):
    classifier.set_threshold(acceptance=acceptance)
    unknown = questions["text"][classifier.predict(new) == "unknown"]
    print(f"{acceptance:.0%}: {', '.join(unknown) or 'none'}")

# %%
# Why
# ---
#
# :meth:`~openauc.features.OpenSetClassifier.explain` says it for each sentence: in words, by the nearest training rows,
# and by what each score adds. ``openauc predict --explain`` writes the same as columns, with the training sentences
# themselves. ``p_unknown`` is the probability that a sentence is unknown. It depends on the share of unknown sentences,
# which is estimated from the batch unless you state it, and it takes unknown sentences to be like those of held-out
# intents. Where they are closer to the known ones, as a bank's other intents often are, share and probability are too
# low.

classifier.set_threshold(acceptance=0.95)
explained = classifier.explain(new)
questions.assign(
    why=explained.sentence,
    p_unknown=explained.p_unknown.round(2),
    nearest=sentences["text"].to_numpy()[explained.nearest_rows[:, 0]],
)

# %%
# Test
# ----
#
# To know how well this works, test it on intents it has not seen. Here three of them stay out of the fit, and a
# quarter of the sentences of the others. :meth:`~openauc.features.OpenSetClassifier.predictions` gives the triple
# that :func:`~openauc.evaluate` and everything else of openauc takes; labels the classifier does not know count as
# unknown.

hidden = np.isin(y, ["loan", "exchange", "address"])
tested = hidden | (np.arange(len(y)) % 4 == 0)
classifier = OpenSetClassifier(random_state=0).fit(X[~tested], y[~tested])
predictions = classifier.predictions(X[tested], y[tested])
print(evaluate(*predictions))

# %%
# With 45 known and 60 unknown sentences the intervals are wide. At the threshold for 95 %:

is_known = predictions.y_true != -1
rejected = classifier.predict(X[tested]) == "unknown"
print(f"known sentences accepted:   {np.mean(~rejected[is_known]):.0%}")
print(f"unknown sentences rejected: {np.mean(rejected[~is_known]):.0%}")
# sphinx_gallery_start_ignore
(blue, _), (orange, dashes), *_ = STYLES
with plt.rc_context(LOOK):
    figure, axes = plt.subplots(figsize=(6.2, 3.2))
    bins = np.linspace(predictions.open_score.min(), predictions.open_score.max(), 30)
    for name, chosen, color, line in (("known", is_known, blue, "-"), ("unknown", ~is_known, orange, dashes)):
        options = {"bins": bins, "color": color}
        axes.hist(predictions.open_score[chosen], alpha=0.15, **options)
        axes.hist(predictions.open_score[chosen], histtype="step", linewidth=1.6, linestyle=line, label=name, **options)
    axes.axvline(classifier.thresholds_[0], color="0.4", linewidth=1)
    axes.annotate(
        "rejected above", (classifier.thresholds_[0], axes.get_ylim()[1] * 0.94), (4, 0), textcoords="offset points"
    )
    axes.set(xlabel="open-set score", ylabel="test sentences")
    axes.legend(loc="upper left", frameon=False)
plt.show()
# sphinx_gallery_end_ignore

# %%
# The first number is what was asked for. Nobody can guarantee the second: these unknown sentences are a bank's, too,
# and close to the known ones. A lower acceptance would reject more of both.
#
# Sentences known not to belong
# -----------------------------
#
# None are needed. If you have some, label them ``"unknown"`` and put them among the others. They help the rejector to
# learn, the more there are, but they do not become a class. Six lower the p-values of the strange questions a little.

strange = [
    "What is the capital of Peru?",
    "Play some music.",
    "How do I cook rice?",
    "Tell me a joke.",
    "Who won the match yesterday?",
    "Book a table for two.",
]
X_more, y_more = np.concatenate([X, encode(strange)]), np.append(y, ["unknown"] * 6)
classifier = OpenSetClassifier(random_state=0).fit(X_more, y_more)
print(f"{len(classifier.classes_)} classes, {classifier.report_.n_outliers} outliers")
after = {"prediction": classifier.predict(new), "p-value before": answers["p-value"]}
after["p-value now"] = classifier.p_value(new).round(3)
questions.assign(**after).iloc[5:9]

# %%
# Keep it
# -------
#
# A model is a folder of JSON and arrays, without pickle.

with tempfile.TemporaryDirectory() as folder:
    classifier.save(Path(folder) / "model")
    again = OpenSetClassifier.load(Path(folder) / "model")
print((again.predict(new) == classifier.predict(new)).all())

# %%
# On the command line
# -------------------
#
# .. code-block:: sh
#
#    openauc embed examples/intents.csv --encoder minilm -o intents.parquet
#    openauc fit intents.parquet -o model
#    openauc predict model examples/questions.csv -o decisions.csv
#    openauc report model                     # a page to look at, model/report.html
#
# Images
# ------
#
# Images work in the same way. Put them into one folder for each class, and take an encoder of images. The label of an
# image is the folder it lies in. :doc:`more/1_images` is a page about it.
#
# .. code-block:: sh
#
#    openauc embed FOLDER --encoder efficientnet_lite0 -o images.parquet
#    openauc fit images.parquet -o model
#    openauc predict model NEW_IMAGES -o decisions.csv
#
# What to do with the rejected ones is the subject of :doc:`2_embeddings`.
