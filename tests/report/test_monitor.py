"""The report on a stream that was watched, in a real browser."""

import base64
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

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGP4z8DwHwAFAAH/iZk9HQAAAABJRU5ErkJggg=="
)
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


def shown_ticks(opened: Any) -> str:
    return " ".join(
        opened.page.locator(
            "#rejected [aria-label='x-axis tick label'] :is(tspan, text:not(:has(*)))"
        ).all_text_contents()
    )


@pytest.mark.parametrize("times", [False, True])
def test_an_alarm_is_told_and_drawn(open_page: Open, times: bool) -> None:
    monitor = watched(times=times)
    html = monitor_report(monitor, name="mine", stream="stream.parquet", command="openauc watch mine stream.parquet")
    opened = open_page(html, dark=times)
    first = monitor.alarms[0]
    assert f"What mine meets in stream.parquet has changed, likely since sample {first.since:,}" in opened.text("h1")
    assert f"Alarm at sample {first.sample:,}" in opened.text(".hero")
    # The day is not written again where only the hour is another.
    assert ("12:00 5 May 12:00 9 May" in shown_ticks(opened)) == times
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
    assert "In 2,100 samples of the stream, no significant change was found for model." in opened.text("h1")
    assert "No alarm" in opened.text(".hero")
    assert opened.complaints == []


def test_numbers_are_those_of_the_monitor() -> None:
    monitor = watched()
    data = data_in(monitor_report(monitor))
    timeline = monitor.timeline
    assert data["end"] == [*range(200, 2001, 200), 2100]
    np.testing.assert_allclose(data["rejected"], timeline.rejected.sum(axis=1) / timeline.n)
    evidence = {one["name"]: one["powers"] for one in data["evidence"]}
    np.testing.assert_allclose(evidence["all scores"], timeline.evidence[:, 2] / np.log(10), atol=1e-3)
    assert data["line"] == pytest.approx(2.0)
    assert max(evidence["all scores"]) >= data["line"]
    assert [one["p"] for one in data["classes"]] == sorted(monitor.evidence_by_class().tolist())
    assert data["usual_tenths"] == pytest.approx([0.1] * 10)
    assert data["low"][0] < monitor.usual_share < data["high"][0]
    assert data["low"][-1] <= data["low"][0]  # a smaller window tells less


def test_the_band_holds_windows_of_a_stream_without_change() -> None:
    data = data_in(monitor_report(watched(strange=0.0)))
    inside = [low <= x <= high for x, low, high in zip(data["rejected"], data["low"], data["high"], strict=True)]
    assert np.mean(inside) >= 0.8


def test_evidence_is_shown_where_there_is_some(open_page: Open) -> None:
    quiet = Monitor(classifier())
    quiet.update_scores(np.zeros(1), np.zeros(1, int))
    assert [quiet.p_value(part) for part in ("rejected", "classes", "scores")] == [1.0] * 3
    opened = open_page(monitor_report(quiet))
    assert "chance of such evidence" not in opened.page.content().partition("<script")[0]
    assert opened.page.locator("#evidence").count() == 0
    assert (
        opened.page.locator("#classes thead th").count()
        == 5
        == opened.page.locator("#classes tbody tr:first-child td").count()
    )
    assert opened.complaints == []
    strange = monitor_report(watched())
    assert [one["name"] for one in data_in(strange)["evidence"]] == [
        "share rejected",
        "most telling class",
        "all scores",
    ]
    assert strange.count("<dt>chance of such evidence") == 3


@pytest.mark.parametrize(
    ("times", "ticks"),
    [
        (
            [f"2026-11-{18 + h // 24:02}T{h % 24:02}:10:00.000000" for h in range(48)],
            "00:10 18 Nov 2026 10:10 20:10 06:10 19 Nov 16:10",
        ),
        ([f"2026-{1 + d // 28:02}-{1 + d % 28:02}" for d in range(48)], "1 Jan 2026 11 Jan 21 Jan 3 Feb 13 Feb"),
        ([f"shift {i}" for i in range(48)], "shift 0 shift 10 shift 20 shift 30 shift 40"),
    ],
)
def test_ticks_are_times_as_people_write_them(open_page: Open, times: list[str], ticks: str) -> None:
    monitor = Monitor(classifier(), window=10)
    monitor.update_scores(np.zeros(48), np.zeros(48, int), time=times)
    assert shown_ticks(open_page(monitor_report(monitor))) == ticks


def test_examples_of_rejected_samples(open_page: Open) -> None:
    texts = {2100: EVIL, 2000: "x" * 300, 7: ""}
    html = monitor_report(watched(), rejected=texts, images={7: PNG}, next_command="openauc discover 'my model' s.csv")
    opened = open_page(html)
    rows = opened.page.locator(".rows li")
    assert rows.locator("p").all_inner_texts() == [EVIL, f"{'x' * 239}…", ""]
    assert rows.locator("small").all_inner_texts() == ["sample 2,100", "sample 2,000", "sample 7"]
    assert rows.locator("img").count() == 1
    assert opened.page.locator(".rows img").evaluate("image => image.naturalWidth") == 1
    assert (
        "The latest 3 of the stream, newest first. To see which belong together: openauc discover 'my model' s.csv"
        in (opened.page.locator("section:has(.rows) .lead").inner_text())
    )
    assert opened.page.title() == "openauc watch: model"
    assert opened.complaints == []
    assert "Examples of rejected" not in monitor_report(watched())


def test_a_monitor_that_has_seen_nothing_has_no_page() -> None:
    with pytest.raises(ValueError, match="seen no sample yet; update it first"):
        monitor_report(Monitor(classifier()))
