"""The README's pictures: the top of the report on the two examples, light and dark, in docs/images.

`python benchmark/picture.py`; needs playwright and a Chromium.
"""

from __future__ import annotations

import io
import shutil
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

from openauc import Predictions
from openauc.report import predictions_report

ROOT = Path(__file__).parents[1]
WIDTH = 1240


def main() -> None:
    examples = {name: Predictions.load(ROOT / "examples" / f"{name}.npz") for name in ("network", "linear")}
    target = ROOT / "docs" / "images"
    target.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as engine:
        report = Path(folder) / "report.html"
        report.write_text(predictions_report(examples), encoding="utf-8")
        browser = engine.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for scheme, name in (("light", "report.png"), ("dark", "report-dark.png")):
            page = browser.new_page(
                viewport={"width": WIDTH, "height": 900}, device_scale_factor=2, color_scheme=scheme
            )
            page.goto(report.as_uri())
            page.wait_for_selector("#roc svg")
            bottom = page.evaluate("document.getElementById('roc').getBoundingClientRect().bottom")
            shot = page.screenshot(full_page=True, clip={"x": 0, "y": 0, "width": WIDTH, "height": bottom + 20})
            # 256 colours are all that shows of flat areas and smoothed edges, in a fraction of the bytes.
            Image.open(io.BytesIO(shot)).quantize(256, dither=Image.Dither.NONE).save(target / name, optimize=True)
            print(f"{target / name}: {(target / name).stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
