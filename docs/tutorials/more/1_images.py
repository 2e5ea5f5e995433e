"""
From images to decisions
========================

After this page you can turn a folder of images, with one folder for each class, into a classifier that names the class
of a new image, or says "unknown". The script of this page draws its images, so it needs no download.
"""

import math
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from PIL import Image, ImageDraw

from openauc import OpenSetClassifier, evaluate
from openauc.encoders import get_encoder
from openauc.plotting import LOOK

# sphinx_gallery_start_ignore
KNOWN, NEW = ["circle", "cross", "hexagon", "square", "star", "triangle"], ["arrow", "moon"]
ARM = [(1, -0.28), (1, 0.28), (0.28, 0.28)]
SHAPES = {
    "star": [
        ((1, 0.42)[i % 2] * math.cos(i * math.pi / 5), (1, 0.42)[i % 2] * math.sin(i * math.pi / 5)) for i in range(10)
    ],
    "cross": [(x * c - y * s, x * s + y * c) for c, s in ((1, 0), (0, 1), (-1, 0), (0, -1)) for x, y in ARM],
    "arrow": [(1, 0), (0.1, 0.8), (0.1, 0.3), (-1, 0.3), (-1, -0.3), (0.1, -0.3), (0.1, -0.8)],
}
around = np.linspace(0.9, 2 * math.pi - 0.9, 40)
inner = [(0.55 + 0.8 * math.cos(a), 0.78 * math.sin(a)) for a in around[::-1]]
SHAPES["moon"] = [(math.cos(a), math.sin(a)) for a in around] + inner
for name, corners in {"triangle": 3, "square": 4, "hexagon": 6, "circle": 60}.items():
    SHAPES[name] = [(math.cos(a), math.sin(a)) for a in np.arange(corners) * 2 * math.pi / corners]


def draw(name, rng):
    """A shape in random colours, of random size and angle, at a random place, stretched, behind a line."""
    image = Image.new("RGB", (256, 256), tuple(rng.integers(120, 256, 3).tolist()))
    pen = ImageDraw.Draw(image)
    turn, other, stretch = (*rng.uniform(0, 2 * math.pi, 2), rng.uniform(0.85, 1.0))
    points = np.array(SHAPES[name]) @ rotation(turn) @ np.diag([1.0, stretch]) @ rotation(other)
    points = rng.uniform(100, 156, 2) + rng.uniform(50, 90) * points
    pen.polygon([tuple(point) for point in points.tolist()], fill=tuple(rng.integers(0, 160, 3).tolist()))
    pen.line(rng.uniform(0, 256, 4).tolist(), fill=tuple(rng.integers(0, 256, 3).tolist()), width=4)
    return image


def rotation(angle):
    return np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])


def write(folder, counts, seed):
    """Images of each shape, in a folder of its own."""
    rng = np.random.default_rng(seed)
    for name, count in counts.items():
        (folder / name).mkdir(parents=True)
        for number in range(count):
            draw(name, rng).save(folder / name / f"{number:02d}.png")


# sphinx_gallery_end_ignore
work = tempfile.TemporaryDirectory()
folder = Path(work.name)
write(folder / "train", dict.fromkeys(KNOWN, 14), seed=0)
write(folder / "test", dict.fromkeys(KNOWN, 4) | dict.fromkeys(NEW, 10), seed=1)
for part in ("train", "test"):
    print(f"{part}/", *sorted(path.name for path in folder.glob(f"{part}/*")))

# %%
# Six shapes are known. The test folder has two more, an arrow and a moon, which the classifier has never seen.

preview = [folder / "test" / name / "00.png" for name in KNOWN + NEW]
# sphinx_gallery_start_ignore
with plt.rc_context(LOOK):
    figure, tiles = plt.subplots(1, 8, figsize=(8.4, 1.5))
    for tile, path, name in zip(tiles, preview, KNOWN + NEW, strict=True):
        tile.imshow(Image.open(path))
        tile.set_title(name if name in KNOWN else f"{name}\n(unknown)", fontsize=9)
        tile.axis("off")
plt.show()
# sphinx_gallery_end_ignore

# %%
# Embed
# -----
#
# ``efficientnet_lite0`` comes with the extra ``encode``: 1,280 features of an image, on a CPU tens of milliseconds
# each. It takes paths, arrays or images of Pillow. It was trained on ImageNet *with labels*, so
# the thousand classes of ImageNet are not new to it. Do not test on those whether it finds new classes. Shapes like
# these are not among them.

encode = get_encoder("efficientnet_lite0", device="cpu")


def read(part):
    """Embeddings of all images of a folder, and the folder each lies in."""
    paths = sorted((folder / part).glob("*/*.png"))
    return encode(paths), np.array([path.parent.name for path in paths])


X, y = read("train")
X_test, y_test = read("test")
print(X.shape, X_test.shape)

# %%
# Fit and decide
# --------------
#
# Three folds of the six shapes hold out two of them at a time.

classifier = OpenSetClassifier(folds=3, random_state=0).fit(X, y)
print(classifier.report_)

# %%
# Six classes are few, so a simple rule has more than half of the weight, and what was learned the rest. On the test
# images, with the shapes as rows and the answers as columns:

answers = classifier.predict(X_test)
pd.crosstab(y_test, answers, rownames=["shape"], colnames=["answer"])

# %%
# In numbers, which for so few images are rough:

predictions = classifier.predictions(X_test, y_test)
evaluation = evaluate(*predictions)
for name in ("openauc", "auroc", "closed_set_accuracy"):
    low, high = evaluation.intervals[name]
    print(f"{name:<20} {evaluation.values[name]:.3f}  [{low:.3f}, {high:.3f}]")

# %%
# The moons are found; the arrows are taken for shapes they resemble. The threshold was asked to accept 95 % of known
# images and nothing else. To catch more of the new ones costs known images, and that price is yours to set:

known = np.isin(y_test, KNOWN)
rows = {}
for acceptance in (0.95, 0.8, 0.7, 0.6):
    classifier.set_threshold(acceptance=acceptance)
    unknown = classifier.predict(X_test) == "unknown"
    shares = np.mean(~unknown[known]), np.mean(unknown[~known])
    rows[f"{acceptance:.0%}"] = [f"{share:.0%}" for share in shares]
columns = ["known images accepted", "unknown ones rejected"]
pd.DataFrame.from_dict(rows, orient="index", columns=columns)

# %%
# More known images are accepted than asked for: with fourteen images a shape, the heads of the folds know a third less
# than the one in use. The more samples, the smaller the difference, and
# :meth:`~openauc.features.OpenSetClassifier.calibrate` with images that the fit has not seen removes it.

# %%
# The most and the least unknown
# ------------------------------

paths = sorted((folder / "test").glob("*/*.png"))
classifier.set_threshold(acceptance=0.95)
score = classifier.open_score(X_test)
order = np.argsort(-score)
# sphinx_gallery_start_ignore
with plt.rc_context(LOOK):
    figure, tiles = plt.subplots(2, 8, figsize=(8.4, 3.1))
    shown = [*order[:8], *order[-8:]]
    for tile, row in zip(tiles.ravel(), shown, strict=True):
        tile.imshow(Image.open(paths[row]))
        tile.set_title(f"{answers[row]}\n{score[row]:.1f}", fontsize=9)
        tile.axis("off")
    for tile, words in zip(tiles[:, 0], ("highest scores", "lowest scores"), strict=True):
        tile.text(-0.15, 0.5, words, rotation=90, va="center", ha="right", transform=tile.transAxes, fontsize=9)
plt.show()
# sphinx_gallery_end_ignore
work.cleanup()

# %%
# On the command line
# -------------------
#
# .. code-block:: sh
#
#    openauc embed train --encoder efficientnet_lite0 -o train.parquet
#    openauc fit train.parquet -o model
#    openauc embed test --encoder efficientnet_lite0 -o test.parquet
#    openauc predict model test.parquet -o decisions.parquet
#    openauc report model test.parquet
#
# The label of an image is the folder it lies in; the report on a labelled table says how well the model does there.
# ``openauc embed`` goes on where it was stopped, and leaves out images it cannot read with ``--skip-bad``. For
# decisions alone, ``openauc predict model test`` embeds the images itself. Networks of your own come in as
# ``onnx:FILE``, ``timm:NAME``, ``hf:NAME`` or the folder of a training of openauc. If yours was trained on the
# classes you fit, read :doc:`/generated/concepts/7_which_score_and_why_learn_it` first.
