"""
Train OpenAUC on your images
============================

After this page you can train a network from scratch on your own images, choose its threshold, and label new images
with a class or "unknown".

Your images lie in one folder for each class, ``images/CLASS/*.png``. You name the classes that the model shall know,
and those that are unknown in the test. Here a few of the handwritten digits that come with the package are written as
such a folder first, so that everything runs within seconds on a CPU.
"""

import json
import shlex
import subprocess
import sysconfig
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from PIL import Image

from openauc import evaluate
from openauc.methods import build_method
from openauc.plotting import LOOK
from openauc.protocols import PROTOCOLS, Protocol
from openauc.recipe import Recipe
from openauc.training.loop import train
from openauc.training.predict import predict

folder = Path(tempfile.mkdtemp()) / "images"
digits = PROTOCOLS["digits"].load(0)
for label, name in enumerate(digits.class_names):
    (folder / name).mkdir(parents=True)
    for number, pixels in enumerate(digits.train.images[digits.train.labels == label][:100]):
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
print(f"train on {len(data.train.labels)} images of {known}, test also on {unknown}")

# %%
# The model
# ---------
#
# A recipe says how to train; a method brings its loss. OpenAUC adds to the cross-entropy a ranking term: known samples
# that are classified correctly should score below mixtures of two classes, which stand in for unknown ones.

recipe = Recipe(epochs=15, batch_size=32, schedule="cosine_restarts", augmentation="none", normalize=True, image_size=8)
method = build_method("openauc", data.num_classes, image_size=8, width=8, method_args={"lam": 0.1})
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
        axes.imshow(data.test.images[place])
        is_known = predictions.y_true[place] != -1
        axes.set_title(f"class {known[predictions.y_true[place]]}" if is_known else "unknown", fontsize=8)
        axes.axis("off")
plt.show()
# sphinx_gallery_thumbnail_number = 2

# %%
# From the command line
# ---------------------
#
# The same split and recipe as a file, ``mine.json``, beside the folder of images. What ``recipe`` leaves out is as
# published for images of this size.

described = {
    "folder": "images",
    "image_size": 8,
    "width": 8,
    "recipe": {
        "epochs": 15,
        "batch_size": 32,
        "schedule": "cosine_restarts",
        "augmentation": "none",
        "normalize": True,
    },
    "splits": [{"known": known, "unknown": unknown}],
}
(folder.parent / "mine.json").write_text(json.dumps(described))

# sphinx_gallery_start_ignore
SCRIPTS = Path(sysconfig.get_path("scripts"))


def shell(line: str) -> None:
    """Run a command beside the folder of images and show it with what it prints."""
    name, *words = shlex.split(line)
    done = subprocess.run(
        [SCRIPTS / name, *words], cwd=folder.parent, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    print(f"$ {line}\n{done.stdout}", end="")
    done.check_returncode()


# sphinx_gallery_end_ignore
# %%
# Train on nine tenths of the training part and keep the rest for the threshold. The same command again resumes a
# training that was interrupted.

shell("openauc train mine.json --validation 0.1 -o runs/mine")

# %%
# Choose the threshold on what was kept, so that 95 % of known images are accepted. Neither this nor the training needs
# an unknown image; leave ``unknown`` out of ``mine.json`` where there is none to test with.

shell("openauc threshold runs/mine --target known_acceptance=0.95")

# %%
# Label new images: fifty of known digits, fifty of digits of which the model has never heard.

new = folder.parent / "new"
new.mkdir()
kinds = {"known": digits.test.labels == digits.class_names.index("3"), "other": digits.test.labels == -1}
for name, rows in kinds.items():
    for number, pixels in enumerate(digits.test.images[rows][:50]):
        Image.fromarray(pixels).save(new / f"{name}_{number:02d}.png")

shell("openauc predict runs/mine new -o labels.csv")
lines = (folder.parent / "labels.csv").read_text().splitlines()
print("", *lines[:3], "...", lines[-1], sep="\n")
for name in kinds:
    found = [line for line in lines if f"/{name}_" in line]
    print(f"{name}: {sum(',unknown,' in line for line in found)} of {len(found)} labelled unknown")

# %%
# With more images
# ----------------
#
# Leave out ``width`` for the paper's network, and give ``train`` a folder, ``out=Path("runs/mine")``: it keeps a
# checkpoint there, and the same call goes on after an interruption. ``recipe_for("plus", "cifar10")`` is the paper's
# recipe for colour images of 32 pixels. For larger images start from a pretrained network, ``backbone="hf:NAME"`` or
# ``"timm:NAME"``. How many epochs and which ``lam`` are best is tuned without touching the test part: ``load(0,
# validation=0.2, pseudo_unknown=1)`` holds out a known class and plays it as unknown.
