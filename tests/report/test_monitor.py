"""The report on a stream that was watched, in a real browser."""

import json
import re
from functools import cache
from typing import Any

import numpy as np
import pytest

from openauc.features import Monitor, OpenSetClassifier
from openauc.features.monitor.monitor import LIMITS
from openauc.report import monitor_report

from .conftest import Open

EVIL = "<script>document.title='taken'</script>"


@cache
def classifier() -> OpenSetClassifier:
    rng = np.random.default_rng(0)
    y = np.arange(160) % 4
    model = OpenSetClassifier(rejector="max_logit", folds=2, random_state=0)
    model.fit(4 * np.eye(4, 6)[y] + rng.normal(size=(160, 6)), np.array(["ant", "bee", "cat", EVIL])[y])
    model._take_calibration(rng.normal(size=400), rng.integers(4, size=400), "split")
    return model


def watched(*, times: bool = False, strange: float = 0.2) -> Monitor:
    rng = np.random.default_rng(1)
    monitor = Monitor(classifier(), window=200)
    unknown = np.append(np.zeros(1000, bool), rng.random(1100) < strange)
    classes = rng.integers(4, size=2100)
    days = [f"2026-05-{1 + i // 100:02}T12:00:00" for i in range(2100)] if times else None
    monitor.update_scores(rng.normal(size=2100) + 3 * unknown, classes, time=days)
    return monitor


def data_in(html: str) -> dict[str, Any]:
    found = re.search(r'id="data">(.*?)</script>', html, re.S)
    assert found is not None
    data: dict[str, Any] = json.loads(found.group(1))
    return data


@pytest.mark.parametrize("times", [False, True])
def test_an_alarm_is_told_and_drawn(open_page: Open, times: bool) -> None:
    monitor = watched(times=times)
    html = monitor_report(monitor, name="mine", stream="stream.parquet", command="openauc watch mine stream.parquet")
    opened = open_page(html, dark=times)
    first = monitor.alarms[0]
    assert f"What mine meets in stream.parquet has changed, likely since sample {first.since:,}" in opened.text("h1")
    assert f"Alarm at sample {first.sample:,}" in opened.text(".hero")
    assert ("2026-05-1" in opened.text("#rejected")) == times
    assert opened.number(".big") == pytest.approx(100 * monitor.rejected_share, abs=0.051)
    assert opened.page.locator("#rejected circle").count() == 11
    assert opened.page.locator("#classes tbody tr").count() == 4
    assert EVIL in opened.page.locator("#classes tbody").inner_text()
    for limit in LIMITS:
        assert limit in opened.page.locator(".limits").inner_text()
    for width in (1280, 390):
        opened.page.set_viewport_size({"width": width, "height": 900})
        opened.page.wait_for_timeout(100)
        assert opened.page.evaluate("document.documentElement.scrollWidth") == width
    assert opened.page.title() == "openauc watch: mine"
    assert opened.complaints == []
    assert [url for url in opened.requests if not url.startswith("file:")] == []


def test_without_a_change_the_page_says_so(open_page: Open) -> None:
    opened = open_page(monitor_report(watched(strange=0.0)))
    assert "In 2,100 samples of the stream, nothing has changed for model beyond chance." in opened.text("h1")
    assert "No alarm" in opened.text(".hero")
    assert opened.complaints == []


def test_numbers_are_those_of_the_monitor() -> None:
    monitor = watched()
    data = data_in(monitor_report(monitor))
    timeline = monitor.timeline
    assert data["end"] == [*range(200, 2001, 200), 2100]
    np.testing.assert_allclose(data["rejected"], timeline.rejected.sum(axis=1) / timeline.n)
    np.testing.assert_allclose(data["evidence"]["all scores"], timeline.evidence[:, 2] / np.log(10), atol=1e-3)
    assert data["line"] == pytest.approx(2.0)
    assert max(data["evidence"]["all scores"]) >= data["line"]
    assert [one["p"] for one in data["classes"]] == sorted(monitor.evidence_by_class().tolist())
    assert data["usual_tenths"] == pytest.approx([0.1] * 10)
    assert data["low"][0] < monitor.usual_share < data["high"][0]
    assert data["low"][-1] <= data["low"][0]  # a smaller window tells less


def test_the_band_holds_windows_of_a_stream_without_change() -> None:
    data = data_in(monitor_report(watched(strange=0.0)))
    inside = [low <= x <= high for x, low, high in zip(data["rejected"], data["low"], data["high"], strict=True)]
    assert np.mean(inside) >= 0.8


def test_a_monitor_that_has_seen_nothing_has_no_page() -> None:
    with pytest.raises(ValueError, match="seen no sample yet; update it first"):
        monitor_report(Monitor(classifier()))
