"""The pictures of README and of the start page, light and dark, in docs/images.

`python benchmark/picture.py idea` draws what open-set recognition is. `python benchmark/picture.py report` shows the
top of the report on the two examples; it needs playwright and a Chromium. Without a word: both.
"""

from __future__ import annotations

import io
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
from matplotlib import pyplot as plt
from PIL import Image
from playwright.sync_api import sync_playwright
from sklearn.datasets import make_blobs

from openauc import OpenSetClassifier, Predictions
from openauc.plotting import STYLES
from openauc.report import predictions_report

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "docs" / "images"
WIDTH = 1240


def save(image: Image.Image, name: str) -> None:
    """256 colours are all that shows of flat areas and smoothed edges, in a fraction of the bytes."""
    image.quantize(256, dither=Image.Dither.NONE).save(TARGET / name, optimize=True)
    print(f"{TARGET / name}: {(TARGET / name).stat().st_size / 1000:.0f} kB")


def idea() -> None:
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
    for name, ground, ink in (("idea.png", "white", "#1f2328"), ("idea-dark.png", "#0d1117", "#e6edf3")):
        look = {"figure.facecolor": ground, "axes.facecolor": ground, "text.color": ink, "axes.edgecolor": ink}
        with plt.rc_context(look | {"figure.constrained_layout.use": True, "font.size": 11}):
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
                figure.savefig(file, dpi=170)
                save(Image.open(file).convert("RGB"), name)
            plt.close(figure)


def report() -> None:
    """The top of the report on the two examples."""
    examples = {name: Predictions.load(ROOT / "examples" / f"{name}.npz") for name in ("network", "linear")}
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as engine:
        written = Path(folder) / "report.html"
        written.write_text(predictions_report(examples), encoding="utf-8")
        browser = engine.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for scheme, name in (("light", "report.png"), ("dark", "report-dark.png")):
            page = browser.new_page(
                viewport={"width": WIDTH, "height": 900}, device_scale_factor=2, color_scheme=scheme
            )
            page.goto(written.as_uri())
            page.wait_for_selector("#roc svg")
            bottom = page.evaluate("document.getElementById('roc').getBoundingClientRect().bottom")
            shot = page.screenshot(full_page=True, clip={"x": 0, "y": 0, "width": WIDTH, "height": bottom + 20})
            save(Image.open(io.BytesIO(shot)), name)


PICTURES = {"idea": idea, "report": report}

if __name__ == "__main__":
    for word in sys.argv[1:] or PICTURES:
        PICTURES[word]()
