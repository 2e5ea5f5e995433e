"""The picture of README and of the start page: what open-set recognition is, light and dark, in docs/images.

`python benchmark/picture.py`
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from matplotlib import pyplot as plt
from PIL import Image
from sklearn.datasets import make_blobs

from openauc import OpenSetClassifier
from openauc.plotting import STYLES

TARGET = Path(__file__).parents[1] / "docs" / "images"


def main() -> None:
    """Three known classes and samples of none, as a usual classifier and `OpenSetClassifier` decide them."""
    rng = np.random.default_rng(1)
    centres = np.array([[-3.2, -1.6], [3.2, -1.6], [0.0, 3.1]])
    X, y = make_blobs([70, 70, 70], centers=centres, cluster_std=0.8, random_state=0)
    places = (((0.2, -0.4), 0.35, 10), ((5.2, 3.6), 0.4, 8), ((-5.0, 3.0), 0.4, 6))
    new = np.concatenate([rng.normal(place, spread, (count, 2)) for place, spread, count in places])
    classifier = OpenSetClassifier(random_state=0).fit(X, y)
    across, up = np.meshgrid(np.linspace(-7, 7, 700), np.linspace(-4.6, 5.9, 525))
    everywhere = np.column_stack([across.ravel(), up.ravel()])
    decided = {
        "A usual classifier: every sample gets a class": classifier.classify(everywhere),
        'With openauc: a class, or "unknown"': classifier.predict(everywhere),
    }
    for name, ink in (("idea.png", "#1f2328"), ("idea-dark.png", "#e6edf3")):
        with plt.rc_context({"text.color": ink, "figure.constrained_layout.use": True, "font.size": 11}):
            figure, both = plt.subplots(1, 2, figsize=(9, 3.5))
            for axes, (title, answer) in zip(both, decided.items(), strict=True):
                for label, (color, _) in enumerate(STYLES[:3]):
                    inside = (answer == label).reshape(across.shape)
                    axes.contourf(across, up, inside, levels=[0.5, 1.5], colors=[color], alpha=0.22)
                    axes.scatter(*X[y == label].T, s=9, color=color)
                axes.scatter(*new.T, marker="x", color=ink, s=26, linewidth=1.4)
                axes.set(title=title, xticks=[], yticks=[])
                axes.spines[:].set_visible(False)
            axes.annotate("unknown", (5.2, 4.8), ha="center", va="bottom")
            with io.BytesIO() as file:
                figure.savefig(file, dpi=170, transparent=True)
                # 256 colours are all that shows of flat areas and smoothed edges, in a fraction of the bytes.
                picture = Image.open(file).quantize(256, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
            picture.save(TARGET / name, optimize=True)
            print(f"{TARGET / name}: {(TARGET / name).stat().st_size / 1000:.0f} kB")
            plt.close(figure)


if __name__ == "__main__":
    main()
