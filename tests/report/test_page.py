"""Pages: escaping, the policy, and number formats."""

import base64
import hashlib
import json
import re

import pytest

from openauc.report.page import (
    LIBRARIES,
    N_COLORS,
    _asset,
    change,
    interval,
    number,
    p_value,
    percent,
    render,
    sentence,
    signed,
)

EVIL = "</script><script>alert(1)</script><!--\u2028'\"&"


def page(**data: object) -> str:
    return render(
        "store",
        {"metric": "m", "rows": [], "same": [], "histories": [], "sensitivity": [], **data},
        name=EVIL,
        headline={"finished": 1, "columns": 0, "rows": 1, "names": [EVIL], "value": EVIL, "where": EVIL},
        counts={"finished": 1},
        same=[([EVIL, EVIL], True)],
        overview=[],
        tables=[],
        notes=[EVIL],
        labels=[],
        cells=[],
        failed=[{"spec": {"id": EVIL}, "error": f"{EVIL}\n{EVIL}"}],
        command_of=lambda spec: EVIL,
        metric={"label": EVIL},
        level=0.95,
        baseline=EVIL,
        has_paper=False,
    )


def test_names_cannot_leave_their_place() -> None:
    text = page(rows=[EVIL])
    assert text.count("<script") == 1 + len(LIBRARIES) + 2
    assert "<script>alert" not in text
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    assert data is not None
    assert json.loads(data.group(1))["rows"] == [EVIL]


def test_the_policy_names_every_script_and_nothing_else() -> None:
    text = page()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    assert "default-src 'none'" in policy.group(1)
    assert "unsafe-eval" not in policy.group(1)
    hashes = {
        base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        for script in re.findall(r"<script>(.*?)</script>", text, re.S)
    }
    assert set(re.findall(r"'sha256-([^']*)'", policy.group(1))) == hashes


def test_nothing_is_fetched() -> None:
    assert not re.search(r"""(?:src|href)=["'](?:https?:)?//""", page())
    assert not re.search(r"url\(|@import", _asset("style.css"))


def test_a_number_that_json_lacks_is_refused() -> None:
    with pytest.raises(ValueError, match="JSON"):
        page(rows=[float("nan")])


def test_every_accent_has_a_colour() -> None:
    style = _asset("style.css")
    assert sorted(map(int, re.findall(r"--m(\d+):", style))) == list(range(N_COLORS))


def luminance(color: str) -> float:
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("theme", [0, 1])
def test_text_and_accents_stand_out_from_the_paper(theme: int) -> None:
    found = re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)", _asset("style.css"))
    colors = {name: (light, dark)[theme] for name, light, dark in found}
    names = [f"m{i}" for i in range(N_COLORS)]
    for background in ("paper", "card"):
        for name, least in {
            "ink": 7.0,
            "soft": 4.5,
            "focus": 4.5,
            **dict.fromkeys(names, 4.5),
            "right": 3,
            "wrong": 3,
            "unknown": 3,
        }.items():
            light, dark = sorted((luminance(colors[name]), luminance(colors[background])), reverse=True)
            assert (light + 0.05) / (dark + 0.05) >= least, (name, background)


def test_vendored_files_are_the_released_ones() -> None:
    known = {
        "d3.min.js": "912111098ea99503a6f4967361d2bbdc9dbf58cf9c678c8e27e5b02d1a07f0c1",
        "plot.umd.min.js": "4358086467740777dd788d6b27a95cebdbaefdd50c730a3060117073bd7134cb",
    }
    assert {name: hashlib.sha256(_asset(name).encode()).hexdigest() for name in LIBRARIES} == known


def test_numbers_as_one_reads_them() -> None:
    assert percent(0.5) == "50.0\xa0%"
    assert percent(-0.02) == "−2.0\xa0%"
    assert signed(0.034) == "+3.4"
    assert signed(-0.0002) == "+0.0"
    assert interval((0.861, 0.8799)) == "86.1\xa0–\xa088.0"
    assert change(0.5, 0.5004) == "from 50.00\xa0% to 50.04\xa0%"
    assert number(-10.76764) == "−10.768"
    assert number(float("-inf")) == "−∞"
    assert p_value(1e-9) == "< 0.001"
    assert sentence("about 95 % are accepted") == "About 95 % are accepted."
    assert percent(-1e-9) == "0.0\xa0%"
    assert signed(-0.034) == "−3.4"
    assert interval((-0.01, 1.2), 0) == "−1\xa0–\xa0120"
    assert p_value(0.05) == "0.050"
