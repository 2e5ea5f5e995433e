"""Speed of the report: how long its page takes to open in a browser."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import sync_playwright
from speed_metrics import simulated
from timing import Row, in_turn

import openauc
from openauc._files import write_text
from openauc.report import predictions_report


def report_rows(quick: bool) -> list[Row]:
    """Pages opened in a real Chromium, from the file to the last chart."""
    small, large = 10_000, 20_000 if quick else 1_000_000
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])

        def opening(n: int) -> Callable[[], object]:
            file = Path(folder, f"{n}.html")
            models = {"model": openauc.Predictions.of(*simulated(n // 2, n // 2, 10))}
            write_text(file, predictions_report(models, n_replicates=2))

            def open_page() -> None:
                page = browser.new_page()
                page.goto(file.as_uri())
                page.wait_for_function("[...document.querySelectorAll('.chart')].every(c => c.querySelector('svg'))")
                page.close()

            return open_page

        few, many = in_turn(5, opening(small), opening(large))
        browser.close()
    return [
        Row(
            f"a report on {large:,} samples opens in Chromium (reference: the limit)",
            many,
            3,
            3 / many,
            "< 3 s",
            many < 3,
        ),
        Row(f"- against one on {small:,} samples", many, few, few / many),
    ]
