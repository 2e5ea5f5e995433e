"""
Train OpenAUC on your images
============================

Your images lie in one folder per class, ``images/CLASS/*.png``. You name the classes the model is to know, and those
it should recognise as unknown when tested. Here a few of the handwritten digits that come with the package are
written as such a folder first, so that everything runs within seconds on a CPU.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from PIL import Image

from openauc import evaluate
from openauc.plotting import LOOK
from openauc.protocols import PROTOCOLS, Protocol
from openauc.training.loop import build_method, train
from openauc.training.predict import predict
from openauc.training.recipe import Recipe

folder = Path(tempfile.mkdtemp()) / "images"
digits = PROTOCOLS["digits"].load(0)
for label, name in enumerate(digits.class_names):
    (folder / name).mkdir(parents=True)
    for number, pixels in enumerate(digits.train_images[digits.train_labels == label][:50]):
        Image.fromarray(pixels).save(folder / name / f"{number}.png")
classes = sorted(path.name for path in folder.iterdir())
print({name: len(list((folder / name).iterdir())) for name in classes})

# %%
# The data
# --------
#
# A fifth of each class becomes the test part. Unknown classes are seen in the test only.

known, unknown = classes[:4], classes[4:]
data = Protocol.from_folder(folder, known=known, unknown=unknown, image_size=8).load(0)
print(f"train on {len(data.train_labels)} images of {known}, test also on {unknown}")

# %%
# The model
# ---------
#
# A recipe says how to train; a method brings its loss. OpenAUC adds to the cross-entropy a ranking term: known samples
# that are classified correctly should score below mixtures of two classes, which stand in for unknown ones.

recipe = Recipe(epochs=15, batch_size=32, schedule="cosine_restarts", augmentation="none", normalize=True, image_size=8)
method = build_method("openauc", data, recipe, width=8, method_args={"lam": 0.1})
history = train(method, data, recipe)

with plt.rc_context(LOOK):
    figure, axes = plt.subplots(figsize=(5.6, 3))
    axes.plot([row["epoch"] for row in history], [row["loss"] for row in history], color="#0072B2")
    axes.set(xlabel="epoch", ylabel="loss", ylim=(0, None))
plt.show()

# %%
# The test
# --------
#
# ``predict`` gives the triple that every metric takes.

predictions = predict(method, data)
evaluation = evaluate(*predictions)
print(
    f"OpenAUC {evaluation.openauc:.3f}, 95 % interval {evaluation.intervals['openauc'].low:.3f} to "
    f"{evaluation.intervals['openauc'].high:.3f}"
)

# %%
# The five test images that look most unknown to the model, and the five that look most familiar:

order = np.argsort(predictions.open_score)
with plt.rc_context(LOOK):
    figure, rows = plt.subplots(2, 5, figsize=(5.6, 2.8))
    for axes, place in zip(rows.ravel(), [*order[::-1][:5], *order[:5]], strict=True):
        axes.imshow(data.test_images[place])
        is_known = predictions.y_true[place] != -1
        axes.set_title(f"class {known[predictions.y_true[place]]}" if is_known else "unknown", fontsize=8)
        axes.axis("off")
plt.show()
# sphinx_gallery_thumbnail_number = 2

# %%
# From the command line
# ---------------------
#
# The same split as a file, ``mine.json``, and a training as a command. The recipes ``plain`` and ``plus`` are then
# those of CIFAR10, above 64 pixels those of CUB, and ``--set`` changes any of their numbers.
#
# .. code-block:: json
#
#    {"folder": "images", "image_size": 8,
#     "splits": [{"known": ["2", "3", "4", "5"], "unknown": ["8", "9"]}]}
#
# .. code-block:: text
#
#    openauc train mine.json --recipe plain --epochs 15 --width 8 \
#        --set augmentation=none -o runs/mine
#    openauc evaluate runs/mine/predictions.parquet --report mine.html

# %%
# With more images
# ----------------
#
# Leave out ``width`` for the paper's network, and give ``train`` a folder, ``out=Path("runs/mine")``: it keeps a
# checkpoint there, and the same call goes on after an interruption. ``recipe_for("plus", "cifar10")`` is the paper's
# recipe for colour images of 32 pixels. For larger images start from a pretrained network, ``backbone="hf:NAME"`` or
# ``"timm:NAME"``. How many epochs and which ``lam`` are best is tuned without touching the test part: ``load(0,
# validation=0.2, pseudo_unknown=1)`` holds out a known class and plays it as unknown.
