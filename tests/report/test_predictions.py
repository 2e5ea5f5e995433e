"""The report on predictions, in a real browser."""

import json
import re
from typing import Any

import numpy as np
import pytest

import openauc
from openauc import Predictions
from openauc.report import predictions_report

from .conftest import Open, predictions

NAMED = {"good": "good", "<b>bold</b>": "bad"}
EVIL = "<script>document.title='taken'</script>"


def report(models: dict[str, Predictions], **options: Any) -> str:
    return predictions_report(models, n_replicates=20, **options)


def data_in(html: str) -> dict[str, Any]:
    found = re.search(r'id="data">(.*?)</script>', html, re.S)
    assert found is not None
    data: dict[str, Any] = json.loads(found.group(1))
    return data


def test_opens_quietly_and_calls_nobody(two_models: dict[str, Predictions], open_page: Open) -> None:
    opened = open_page(report(two_models))
    assert "good is better than bad" in opened.text("h1")
    assert opened.page.locator(".chart svg").count() >= 5
    for width in (1280, 390):
        opened.page.set_viewport_size({"width": width, "height": 900})
        opened.page.wait_for_timeout(100)
        assert opened.page.evaluate("document.documentElement.scrollWidth") == width
    assert opened.complaints == []
    assert [url for url in opened.requests if not url.startswith("file:")] == []


@pytest.mark.parametrize("position", [0, 40, 271])
def test_the_slider_moves_the_numbers_of_the_api(position: int, open_page: Open) -> None:
    triple = predictions()
    html = report({"mine": triple})
    threshold = float(data_in(html)["models"][0]["sweep"]["threshold"][position])
    opened = open_page(html)
    opened.move_to(position)
    expected = {
        "unknown_rejected": openauc.unknown_tpr(*triple, threshold=threshold),
        "known_accepted": 1 - openauc.unknown_fpr(*triple, threshold=threshold),
        "macro_f_score": openauc.open_set_f_score(*triple, threshold=threshold),
        "youden_index": openauc.youden_index(*triple, threshold=threshold),
        "normalized_accuracy": openauc.normalized_accuracy(*triple, threshold=threshold),
    }
    for name, value in expected.items():
        assert opened.number(f"#{name}") == pytest.approx(100 * value, abs=0.0501)
    matrix = openauc.confusion_matrix(*triple, threshold=threshold).matrix
    assert opened.number("#right_accepted") == np.trace(matrix[:-1, :-1])
    assert opened.number("#right_refused") + opened.number("#wrong_refused") == matrix[:-1, -1].sum()
    right = (triple.y_pred == triple.y_true) & (triple.y_true != -1)
    assert opened.number("#right_refused") == (right & (triple.open_score > threshold)).sum()
    assert opened.number("#unknown_refused") == matrix[-1, -1]
    names, taken = (opened.page.locator(f"#classes tbody td:nth-child({i})").all_inner_texts() for i in (1, 6))
    assert dict(zip(map(int, names), map(int, taken), strict=True)) == dict(enumerate(matrix[-1, :-1].tolist()))


def test_the_rule_decides_as_the_page_says(open_page: Open) -> None:
    triple = predictions()
    opened = open_page(report({"mine": triple}))
    opened.move_to(123)
    scope = {"y_pred": triple.y_pred, "open_score": triple.open_score}
    exec(opened.text("#code"), scope)
    rejected = np.asarray(scope["labels"]) == -1
    assert rejected[triple.y_true == -1].sum() == opened.number("#unknown_refused")
    known = opened.number("#right_refused") + opened.number("#wrong_refused")
    assert rejected[triple.y_true != -1].sum() == known


def test_marks_move_with_the_slider_and_the_keyboard_works(open_page: Open) -> None:
    opened = open_page(report({"mine": predictions()}))
    slider = opened.page.locator("#threshold")

    def marks() -> list[str]:
        found = opened.page.evaluate(
            "['oscr', 'roc', 'figure1'].map(id => document.querySelector(`#${id} svg > circle`).getAttribute('cx'))"
            ".concat(document.querySelector('#scores svg > line').getAttribute('x1'))"
        )
        return list(found)

    before, shown = marks(), opened.text("#known_accepted")
    slider.focus()
    for _ in range(30):
        opened.page.keyboard.press("ArrowLeft")
    assert all(old != new for old, new in zip(before, marks(), strict=True))
    assert opened.text("#known_accepted") != shown
    assert "of known samples accepted" in (slider.get_attribute("aria-valuetext") or "")
    opened.page.keyboard.press("Home")
    assert opened.text("#known_accepted") == "0.0\xa0%"
    assert opened.text("#value") == "−∞"
    assert opened.complaints == []


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_jumps_while_the_slider_moves(width: int, two_models: dict[str, Predictions], open_page: Open) -> None:
    opened = open_page(report(two_models), width=width)
    places = """() => [...document.querySelectorAll(
        '.tiles div, .tiles b, .fate td, #rule, #code, #copy, #others td, #classes td, .bar, .presets button, section'
    )].map(e => { const r = e.getBoundingClientRect(); return [r.left, r.top + scrollY].map(Math.round).join() })"""
    seen = set()
    last = int(opened.page.locator("#threshold").get_attribute("max"))
    for position in (0, 1, last // 3, last // 2, last - 1, last):
        opened.move_to(position)
        seen.add(tuple(opened.page.evaluate(places)))
    assert len(seen) == 1


def test_names_of_curves_stand_beside_the_charts(two_models: dict[str, Predictions], open_page: Open) -> None:
    opened = open_page(report({"<b>bold</b>": two_models["bad"], "good": two_models["good"]}))
    for chart, metric in (("oscr", "openauc"), ("roc", "auroc")):
        legend = opened.page.locator(f"figure:has(#{chart}) .legend li")
        values = {
            name: 100 * openauc.evaluate(*two_models[key], level=None).values[metric] for name, key in NAMED.items()
        }
        assert legend.all_inner_texts() == [f"{name} {values[name]:.1f}\xa0%" for name in NAMED]
        colors = [legend.nth(i).evaluate("li => getComputedStyle(li).color") for i in range(2)]
        strokes = "marks => marks.map(mark => getComputedStyle(mark).stroke)"
        drawn = opened.page.locator(f"#{chart} svg [stroke-width]").evaluate_all(strokes)
        assert len(set(colors)) == 2
        assert set(colors) <= set(drawn)
        names = [f"{name} " for name in NAMED]
        assert not any(name in (opened.page.locator(f"#{chart}").text_content() or "") for name in names)


def test_an_interval_is_never_broken(two_models: dict[str, Predictions]) -> None:
    text = re.sub(r"<script.*", "", report(two_models), flags=re.S)
    assert re.search(r"\d\xa0–\xa0\d", text)
    assert not re.search(r"\d – \d", text)


def test_buttons_jump_and_say_where_one_is(open_page: Open) -> None:
    opened = open_page(report({"mine": predictions()}))
    button = opened.page.get_by_role("button", name="reject 95 % of unknown")
    button.click()
    assert button.get_attribute("aria-pressed") == "true"
    assert opened.number("#unknown_rejected") >= 95


def test_another_model_brings_its_own_numbers(two_models: dict[str, Predictions], open_page: Open) -> None:
    html = report(two_models)
    opened = open_page(html)
    first = opened.text("#unknown_rejected")
    opened.page.get_by_text("bad", exact=True).and_(opened.page.locator(".models span")).click()
    model = data_in(html)["models"][1]
    assert opened.number("#unknown_rejected") == pytest.approx(
        100 * model["sweep"]["unknown_rejected"][model["start"]], abs=0.0501
    )
    assert opened.text("#unknown_rejected") != first
    assert opened.page.locator(".audit:visible").get_attribute("data-model") == "1"
    accepted = opened.page.locator("#others tbody tr td:nth-child(2)").all_inner_texts()
    assert len(accepted) == 2
    assert opened.complaints == []


def test_dark_by_preference_and_by_button(open_page: Open) -> None:
    opened = open_page(report({"mine": predictions()}), dark=True)
    background = "getComputedStyle(document.body).backgroundColor"
    line = "getComputedStyle(document.querySelector('#oscr path')).stroke"
    dark = opened.page.evaluate(f"[{background}, {line}]")
    opened.page.get_by_role("button", name="light and dark").click()
    light = opened.page.evaluate(f"[{background}, {line}]")
    assert dark[0] == "rgb(20, 22, 26)"
    assert light[0] == "rgb(251, 250, 248)"
    opened.page.emulate_media(media="print")
    assert opened.page.locator("#threshold").is_hidden()


def test_a_class_called_script_is_only_a_name(open_page: Open) -> None:
    triple = predictions()
    names = {str(i): f"{EVIL}{i}" for i in range(4)}
    origin = np.where(triple.y_true == -1, f"</script>{EVIL}", triple.y_true.astype(str))
    model = f"</script>{EVIL}"
    opened = open_page(
        report({model: triple, "b": predictions(1)}, class_names=names, origins={model: origin}, command=EVIL)
    )
    assert EVIL in opened.text("#classes tbody td")
    assert EVIL in opened.text("#origins tbody td")
    assert EVIL[:20] in (opened.page.locator(".legend").first.text_content() or "")
    assert opened.page.title() != "taken"
    assert opened.complaints == []


def test_every_chart_has_words(two_models: dict[str, Predictions], open_page: Open) -> None:
    opened = open_page(report(two_models))
    described = opened.page.locator(".chart:visible > svg").evaluate_all(
        "all => all.map(svg => [svg.getAttribute('aria-label'), svg.getAttribute('aria-description')])"
    )
    assert len(described) >= 8
    assert all(label and description for label, description in described)
    unnamed = opened.page.evaluate(
        "[...document.querySelectorAll('button, input, select')].filter(e => e.offsetParent && !e.labels?.length"
        " && !e.textContent.trim() && !e.getAttribute('aria-label')).map(e => e.outerHTML)"
    )
    assert unnamed == []


def test_confidences_have_their_own_rule(open_page: Open) -> None:
    triple = predictions()
    opened = open_page(report({"mine": triple}, flipped=True))
    opened.move_to(100)
    confidence = float(opened.text("#rule").partition("<")[2].replace("−", "-"))
    assert (-triple.open_score[triple.y_true == -1] < confidence).sum() == opened.number("#unknown_refused")
    assert "-confidence" in opened.text("#code")


def test_infinite_and_equal_scores_open(open_page: Open) -> None:
    odd = Predictions.of([0, 1, 1, -1, -1], [0, 1, -1, 1, 0], [-np.inf, 0.5, 0.2, np.inf, 0.7])
    equal = Predictions.of([0, 1, 1, -1, -1], [0, 1, 0, 1, 0], [2.0] * 5)
    opened = open_page(report({"odd": odd, "equal": equal}))
    opened.move_to(1)
    assert opened.complaints == []


@pytest.mark.slow
def test_a_page_on_many_samples_is_hardly_more_to_draw_than_one_on_ten_thousand(open_page: Open) -> None:
    def elements(html: str) -> int:
        opened = open_page(html)
        assert opened.complaints == []
        return int(opened.page.locator("*").count())

    small, large = (predictions_report({"mine": predictions(n=n)}, n_replicates=2) for n in (10_000, 300_000))
    assert len(large.encode()) < 1_500_000
    assert elements(large) < 1.5 * elements(small)


def test_no_chart_or_table_is_cut_off_in_print(open_page: Open) -> None:
    triple = predictions()
    names = {str(i): f"a class with quite a long name, number {i}" for i in range(4)}
    models = {f"model {i}": predictions(gap=0.5 + 0.5 * i) for i in range(3)}
    opened = open_page(report(models, class_names=names, origins={"model 2": np.where(triple.y_true < 0, "x", "y")}))
    opened.page.emulate_media(media="print")
    opened.page.set_viewport_size({"width": 688, "height": 1000})  # A4 less its margins
    opened.page.wait_for_timeout(200)
    beyond = opened.page.evaluate(
        "[...document.querySelectorAll('svg, table, p, pre')].filter(e => e.getBoundingClientRect().right > 689)"
        ".map(e => e.outerHTML.slice(0, 80))"
    )
    assert beyond == []


def test_the_worst_classes_come_first_and_the_page_says_how_many_are_left_out(open_page: Open) -> None:
    y = np.repeat(np.arange(50), 2)
    pred = np.where(y == 49, 0, y)
    triple = Predictions.of(np.append(y, [-1, -1]), np.append(pred, [0, 1]), np.arange(102.0))
    origin = np.append(y, [60, 61]).astype(str)
    opened = open_page(
        report({"a_long_name/of.a-model": triple, "b": triple}, origins={"a_long_name/of.a-model": origin})
    )
    assert opened.text("#classes_note").startswith(
        "40 of 50 known classes, the lowest accuracy first; 10 are left out."
    )
    assert opened.text("#classes tbody td") == "49"
    assert opened.text("#origins_note") == "All 2 unknown classes, the largest first."
    names = opened.page.locator("#others td.name, .all th").evaluate_all("all => all.map(one => one.innerHTML)")
    assert names.count("a_<wbr>long_<wbr>name/<wbr>of.<wbr>a-<wbr>model") == 2


def test_models_on_other_samples_are_shown_apart() -> None:
    html = report({"a": predictions(0), "b": predictions(1)})
    assert "The models are not compared in pairs" in html
    assert "Pair by pair" not in html


def test_names_as_labels_and_a_label_of_ones_own() -> None:
    triple = Predictions.of(["cat", "dog", "other", "dog"], ["cat", "cat", "dog", "dog"], [0.1, 0.4, 0.9, 0.2])
    html = report({"mine": triple}, unknown_label="other")
    assert data_in(html)["models"][0]["classes"]["name"] == ["dog", "cat"]


def test_the_best_model_comes_first() -> None:
    html = report({"bad": predictions(gap=0.5), "good": predictions()})
    assert [model["name"] for model in data_in(html)["models"]] == ["good", "bad"]
    assert html.index("<h2>good</h2>") < html.index("<h2>bad</h2>")


def test_the_page_says_how_many_replicates_it_rests_on() -> None:
    assert "it rests on 2,000 replicates" in predictions_report({"mine": predictions()})
    assert "it rests on 250 replicates" in predictions_report({"mine": predictions()}, n_replicates=250)


def test_options_of_the_metrics_reach_the_page() -> None:
    rounded = predictions()
    tied = Predictions(rounded.y_true, rounded.y_pred, rounded.open_score.round())
    html = report({"a": tied, "b": tied._replace(open_score=-tied.y_pred.astype(float))}, ties="strict", max_ofpr=0.1)
    strict = openauc.openauc_score(*tied, ties="strict")
    assert strict < openauc.openauc_score(*tied)
    assert data_in(html)["models"][0]["openauc"] == strict
    assert "partial OpenAUC, OFPR &lt;= 0.1" in html
    with pytest.raises(ValueError, match="max_ofpr is 10"):
        report({"mine": tied}, max_ofpr=10)


def test_nothing_to_report() -> None:
    with pytest.raises(ValueError, match="at least one model"):
        predictions_report({})


def test_an_origin_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="origin has 2 entries"):
        report({"mine": predictions()}, origins={"mine": ["a", "b"]})
