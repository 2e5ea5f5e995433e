"""A real browser, and pages opened in it from disk with every console line and request noted."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
from needs import cannot_run

from openauc import Predictions

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@dataclass
class Opened:
    """A page, what it complained about, and whom it called."""

    page: Any
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def text(self, selector: str) -> str:
        return str(self.page.locator(selector).first.inner_text())

    def number(self, selector: str) -> float:
        """Percentage or count shown there."""
        return float(self.text(selector).replace("\xa0%", "").replace("−", "-").replace(",", ""))

    def move_to(self, position: int) -> None:
        self.page.evaluate(
            "p => { const s = document.getElementById('threshold'); s.value = p; s.dispatchEvent(new Event('input')) }",
            position,
        )


Open = Callable[..., Opened]


def without_browser(reason: str) -> NoReturn:
    cannot_run("the report's tests in a browser", reason)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    try:
        from playwright import sync_api as playwright
    except ImportError:
        without_browser("no playwright: pip install 'openauc[dev]'")
    with playwright.sync_playwright() as engine:
        try:
            found = engine.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        except playwright.Error as error:
            without_browser(f"no Chromium: install it, or run `playwright install chromium` ({error.message[:80]})")
        yield found
        found.close()


@pytest.fixture
def open_page(browser: Any, tmp_path: Path) -> Iterator[Open]:
    contexts = []

    def opened(html: str, *, width: int = 1280, dark: bool = False) -> Opened:
        file = tmp_path / "page.html"
        file.write_text(html, encoding="utf-8")
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light"
        )
        contexts.append(context)
        result = Opened(context.new_page())
        result.page.on("console", lambda message: result.complaints.append(message.text))
        result.page.on("pageerror", lambda error: result.complaints.append(str(error)))
        result.page.on("request", lambda request: result.requests.append(request.url))
        result.page.goto(file.as_uri())
        result.page.wait_for_selector(".chart svg", state="attached")
        return result

    yield opened
    for context in contexts:
        context.close()


def predictions(seed: int = 0, n: int = 400, gap: float = 1.5) -> Predictions:
    """A model that is right nine times in ten; every third sample is unknown."""
    rng = np.random.default_rng(seed)
    y_true = rng.integers(0, 4, n)
    y_pred = np.where(rng.random(n) < 0.9, y_true, rng.integers(0, 4, n))
    y_true[::3] = -1
    return Predictions.of(y_true, y_pred, rng.normal(size=n) + gap * (y_true == -1))


@pytest.fixture
def two_models() -> dict[str, Predictions]:
    good, bad = predictions(0), predictions(0, gap=0.5)
    return {"good": good, "bad": bad}
