"""The report on a classifier, in a real browser."""

import io
import json
import re
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from openauc import evaluate
from openauc.features import OpenSetClassifier
from openauc.features.classifier.rejector import EVIDENCE
from openauc.report import classifier_report
from openauc.verdict import Verdict, judge

from .conftest import Open

EVIL = "<script>document.title='taken'</script>"


def samples(n_classes: int, n: int = 40, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(n_classes), n)
    centres = 5 * np.random.default_rng(9).normal(size=(n_classes, 12)) / 12**0.5
    return (centres[y] + rng.normal(size=(len(y), 12))).astype(np.float32), np.array([f"class {c}" for c in y])


def fitted(n_classes: int = 8, n: int = 40, **options: Any) -> OpenSetClassifier:
    return OpenSetClassifier(random_state=0, **options).fit(*samples(n_classes, n))


@pytest.fixture(scope="module")
def classifier() -> OpenSetClassifier:
    return fitted()


@pytest.fixture(scope="module")
def page(classifier: OpenSetClassifier) -> str:
    return classifier_report(classifier, name="runs/mine", command="openauc report runs/mine")


def data_in(html: str) -> dict[str, Any]:
    found = re.search(r'id="data">(.*?)</script>', html, re.S)
    assert found is not None
    data: dict[str, Any] = json.loads(found.group(1))
    return data


def move_to(opened: Any, position: int) -> None:
    opened.page.evaluate(
        "p => { const s = document.getElementById('acceptance'); s.value = p; s.dispatchEvent(new Event('input')) }",
        position,
    )


def test_opens_quietly_and_calls_nobody(page: str, open_page: Open) -> None:
    opened = open_page(page)
    assert "“runs/mine” knows 8 classes" in opened.text("h1")
    assert "Not checked yet." in opened.text(".lead")
    assert opened.page.locator("#evidence svg").count() == len(EVIDENCE)
    for width in (1280, 390):
        opened.page.set_viewport_size({"width": width, "height": 900})
        opened.page.wait_for_timeout(100)
        assert opened.page.evaluate("document.documentElement.scrollWidth") == width
    assert opened.complaints == []
    assert [url for url in opened.requests if not url.startswith("file:")] == []


@pytest.mark.parametrize("position", [0, 40, -1])
def test_every_position_has_the_numbers_of_the_classifier(
    classifier: OpenSetClassifier, page: str, open_page: Open, position: int
) -> None:
    data = data_in(page)["classifier"]
    position %= len(data["threshold"])
    threshold, asked = data["threshold"][position], data["asked"][position]
    same = deepcopy(classifier).set_threshold(acceptance=asked)
    assert same.thresholds_.tolist() == [threshold] * 8
    scores, held_out = classifier.calibration_scores_, classifier.held_out_scores_[classifier.held_out_kinds_ < 0]
    opened = open_page(page)
    move_to(opened, position)
    assert opened.number("#asked") == pytest.approx(100 * asked, abs=0.0501)
    assert opened.number("#share_accepted") == pytest.approx(100 * np.mean(scores <= threshold), abs=0.0501)
    assert opened.number("#share_rejected") == pytest.approx(100 * np.mean(held_out > threshold), abs=0.0501)
    assert float(opened.text("#score_rule").partition(">")[2].replace("−", "-")) == threshold
    assert f"set_threshold(acceptance={asked})" in opened.text("#score_code")
    assert 'load("runs/mine")' in opened.text("#score_code")
    rows = opened.page.locator("#accepted tbody tr").all_inner_texts()
    assert len(rows) == 8
    for row in rows:
        name, size, accepted, _ = row.split("\t")
        of_class = scores[classifier.classes_[classifier.calibration_classes_] == name]
        assert int(size) == len(of_class)
        assert accepted.strip() == f"{100 * np.mean(of_class <= threshold):.1f}\xa0%"


def test_it_begins_where_the_model_stands_and_jumps(page: str, classifier: OpenSetClassifier, open_page: Open) -> None:
    opened = open_page(page)
    assert float(opened.text("#score_rule").partition(">")[2].replace("−", "-")) == classifier.thresholds_[0]
    button = opened.page.get_by_role("button", name="accept 99 %")
    button.click()
    assert button.get_attribute("aria-pressed") == "true"
    assert opened.number("#share_accepted") >= 99
    assert "of known samples accepted" in (opened.page.locator("#acceptance").get_attribute("aria-valuetext") or "")
    opened.page.get_by_role("button", name="in use").click()
    assert opened.text("#asked") == "95.0\xa0%"


def test_scores_are_shown_with_intervals_and_the_choice_first_seen(page: str, classifier: OpenSetClassifier) -> None:
    data = data_in(page)["classifier"]
    assert [row["name"] for row in data["tried"]] == [tried.name for tried in classifier.report_.tried]
    assert data["chosen"] == classifier.report_.chosen
    far = [score["far"] for score in data["evidence"]["scores"]]
    assert far == sorted(far, reverse=True)
    _, curves = classifier.rejector_.curves()
    by_name = dict(zip(classifier.rejector_.names, curves, strict=True))
    for score in data["evidence"]["scores"]:
        np.testing.assert_allclose(score["curve"], by_name[score["name"]], atol=1e-5)
    base = page.partition("A rejector that needs no learning, ")[2].partition(", has")[0]
    assert classifier.rejector_.base[0] in base
    assert f", has {100 * classifier.rejector_.base_weight:.0f}\xa0% of the weight" in page


@pytest.mark.parametrize(
    ("base", "told"), [(("entropy",), "entropy alone"), (("knn", "gen"), "the average of knn, gen")]
)
def test_the_rule_that_the_learned_one_is_shrunk_toward_is_named(
    classifier: OpenSetClassifier, monkeypatch: pytest.MonkeyPatch, base: tuple[str, ...], told: str
) -> None:
    monkeypatch.setattr(classifier.rejector_, "base", base)
    assert f"A rejector that needs no learning, {told}, has " in classifier_report(classifier)


def test_with_test_samples_the_evaluation_follows(classifier: OpenSetClassifier, open_page: Open) -> None:
    X, y = samples(12, seed=1)
    html = classifier_report(classifier, name="mine", test=(X, y), test_name="a test", n_replicates=20)
    openauc = evaluate(*classifier.predictions(X, y), level=None).openauc
    assert f"On “a test”, mine reaches an OpenAUC of {100 * openauc:.1f}\xa0%" in html
    opened = open_page(html)
    assert opened.complaints == []
    assert opened.page.locator("h1").count() == 1
    assert opened.page.locator("#threshold").is_hidden()
    opened.page.locator("summary", has_text="Its predictions on “a test” in detail").click()
    opened.page.wait_for_selector("#oscr svg")
    truth, answers = np.isin(y, classifier.classes_), classifier.predict(X)
    assert opened.page.get_by_role("button", name="threshold in use").get_attribute("aria-pressed") == "true"
    assert opened.number("#unknown_refused") == np.sum(~truth & (answers == "unknown"))
    before = opened.text("#unknown_rejected")
    move_to(opened, 0)
    assert opened.text("#unknown_rejected") == before
    opened.move_to(0)
    assert opened.text("#known_accepted") == "0.0\xa0%"
    assert opened.number("#share_accepted") > 0
    assert opened.page.locator("#origins tbody tr").count() == 4
    ids = opened.page.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(ids) == len(set(ids))


def test_names_with_markup_are_only_names(open_page: Open) -> None:
    X, y = samples(4)
    y = np.array([f"{EVIL} {'long ' * 30} {label}" for label in y])
    classifier = OpenSetClassifier(random_state=0, rejector="average").fit(X, y)
    html = classifier_report(
        classifier, name=f"</script>{EVIL}", test=(X, np.where(y == y[0], "?", y)), n_replicates=20
    )
    opened = open_page(html, dark=True)
    assert EVIL in opened.text("#accepted tbody td")
    assert EVIL in opened.text("h1")
    assert opened.page.title() != "taken"
    assert opened.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 22, 26)"
    assert opened.complaints == []


def test_two_classes_have_nothing_to_compare(open_page: Open) -> None:
    opened = open_page(classifier_report(fitted(2)))
    assert "nothing tells how it meets others" in opened.text("h1")
    assert "too few to hold any out" in opened.text("main")
    assert opened.page.locator("#tried, #trade, #share_rejected, #evidence").count() == 0
    move_to(opened, 3)
    assert opened.number("#share_accepted") > 0
    assert opened.complaints == []


def test_no_class_is_left_out(open_page: Open) -> None:
    classifier = fitted(60, 8, rejector="knn")
    classifier.calibration_classes_[classifier.calibration_classes_ == 7] = 8  # one class is never predicted
    html = classifier_report(classifier)
    opened = open_page(html)
    shown = opened.page.locator("#accepted tbody tr").all_inner_texts()
    assert sorted(row.split("\t")[0] for row in shown) == sorted(map(str, classifier.classes_))
    never = [row.split("\t") for row in shown if "never predicted" in row]
    in_use = [float(row.split("\t")[3].removesuffix("\xa0%")) for row in shown[len(never) :]]
    assert in_use == sorted(in_use)
    assert [classifier.classes_[7], "0", "never predicted", "–"] in never
    assert shown[: len(never)] == ["\t".join(row) for row in never]
    assert "never predicted for them" in opened.text("#accepted_note")
    assert "The open-set score is knn alone." in opened.text("main")
    assert opened.complaints == []


def table(opened: Any) -> list[list[str]]:
    return [row.split("\t") for row in opened.page.locator("#trouble tbody tr").all_inner_texts()]


def test_classes_are_sorted_by_trouble(classifier: OpenSetClassifier, open_page: Open) -> None:
    X, y = samples(12, seed=1)
    y[y == "class 3"] = "class 4"  # trouble
    X, y = X[y != "class 5"], y[y != "class 5"]
    rows = table(open_page(classifier_report(classifier, test=(X, y), n_replicates=20)))
    assert sorted(row[0] for row in rows) == sorted(classifier.classes_)
    answer, known = classifier.predict(X), np.isin(y, classifier.classes_)
    shares = []
    for name, right, *counts, _, known_taken, unknown_taken in rows:
        its, taken = y == name, answer == name
        n, rejected, wrong = map(int, counts)
        assert n == its.sum()
        assert rejected == (its & (answer == "unknown")).sum()
        assert wrong == (its & ~taken & (answer != "unknown")).sum()
        assert int(known_taken) == (taken & known & ~its).sum()
        assert int(unknown_taken) == (taken & ~known).sum()
        involved = (its | taken).sum()
        assert right.strip() == (f"{100 * (its & taken).sum() / involved:.0f}\xa0%" if involved else "no row")
        shares.append((its & taken).sum() / involved if involved else 2.0)
    assert shares == sorted(shares)
    assert {row[0]: row[5] for row in rows}["class 4"] == "class 3"


@pytest.mark.parametrize(
    ("guarantee", "forecast", "said"),
    [
        ("kept", "kept", "keeps its guarantee and meets its forecast."),
        ("kept", "better", "keeps its guarantee and is better than its forecast."),
        ("kept", "failed", "keeps its guarantee but does not meet its forecast."),
        ("failed", "kept", "does not keep its guarantee but meets its forecast."),
        ("failed", "failed", "does not keep its guarantee and does not meet its forecast."),
        ("kept", None, "keeps its guarantee."),
        (None, None, "guarantees and forecasts nothing."),
    ],
)
def test_the_verdict_is_on_top(
    classifier: OpenSetClassifier, monkeypatch: pytest.MonkeyPatch, guarantee: str, forecast: str, said: str
) -> None:
    outcomes = {"known rows accepted": guarantee, "OpenAUC": forecast}

    def judged(*columns: Any, **options: Any) -> Verdict:
        found = judge(*columns, **options)
        return replace(found, findings=tuple(one._replace(outcome=outcomes.get(one.name)) for one in found.findings))

    monkeypatch.setattr("openauc.report.classifier.judge", judged)
    html = classifier_report(classifier, name="mine", test=samples(12, seed=1), test_name="new rows", n_replicates=20)
    assert html.partition("<h1>")[2].startswith(f"On “new rows”, “mine” {said}</h1>")


def test_the_verdict_follows_the_rows(classifier: OpenSetClassifier) -> None:
    X, y = samples(12, seed=1)
    html = classifier_report(classifier, test=(X, y), n_replicates=20)
    assert "“model” keeps its guarantee and" in html
    assert "FAILED" not in html
    assert "These rows are few" not in html
    assert "These rows are few" in classifier_report(classifier, test=(X[::10], y[::10]), n_replicates=20)
    html = classifier_report(classifier, test=(X + np.float32(9), y), n_replicates=20)
    assert "“model” does not keep its guarantee" in html
    assert "<strong>FAILED</strong>" in html


def test_examples_are_rows_with_their_nearest_training_rows(open_page: Open) -> None:
    X, y = samples(8)
    texts = np.array([f"text {row} {EVIL}" for row in range(len(y))])
    classifier = OpenSetClassifier(random_state=0, rejector="average").fit(X, y)
    classifier.examples_ = classifier.examples_.named(texts)
    new, truth = samples(12, seed=1)
    captions = [f"new {row} {EVIL}" for row in range(len(truth))]
    html = classifier_report(classifier, test=(new, truth), captions=captions, n_replicates=20)
    assert EVIL not in html
    opened = open_page(html)
    assert opened.page.title() != "taken"
    answer, known = classifier.predict(new), np.isin(truth, classifier.classes_)
    rejected = answer == "unknown"
    wanted = {
        "Known rows that are rejected": known & rejected,
        "Rows with the wrong class": known & ~rejected & (answer != truth),
        "Unknown rows that are accepted": ~known & ~rejected,
        "Unknown rows that are rejected": ~known & rejected,
    }
    headings = opened.page.locator("#examples h3").all_inner_texts()
    assert [heading.partition(":")[0] for heading in headings] == list(wanted)
    why = classifier.explain(new)
    for heading, which in zip(headings, wanted.values(), strict=True):
        n, shown = int(which.sum()), min(int(which.sum()), 12)
        assert heading.endswith(f": {n or 'none'}" + (f", of which {shown} are shown" if n > shown else ""))
        cards = opened.page.locator(f"#examples h3:has-text('{heading}') + ul > li").all_inner_texts()
        assert len(cards) == shown
        for card in cards:
            row = int(card.split()[1])
            assert which[row]
            assert EVIL in card
            fate = f"rejected: {why.sentence[row]}" if rejected[row] else f"taken for {answer[row]}"
            assert f"Labelled {truth[row]}, {fate}." in card
            for label, name in zip(why.nearest_labels[row], why.nearest_names[row], strict=True):
                assert f"{label} {name}" in card
    assert opened.complaints == []


def test_examples_show_images(classifier: OpenSetClassifier, open_page: Open) -> None:
    file = io.BytesIO()
    Image.new("RGB", (32, 32), "red").save(file, "PNG")
    asked: set[Any] = set()

    def images(wanted: Any) -> dict[Any, bytes]:
        asked.update(wanted)
        return {key: file.getvalue() for key in wanted if str(key)[-1] != "3"}

    opened = open_page(classifier_report(classifier, test=samples(12, seed=1), images=images, n_replicates=20))
    rows = [key for key in asked if isinstance(key, int)]
    assert opened.page.locator(".examples > li").count() == len(rows)
    assert opened.page.locator(".examples > li > img").count() == sum(row % 10 != 3 for row in rows)
    shown = set(opened.page.locator(".examples ul img").evaluate_all("all => all.map(image => image.alt)"))
    assert shown == {key for key in asked if isinstance(key, str) and key[-1] != "3"}
    assert opened.page.locator("img:not([alt])").count() == 0
    drawn = opened.page.locator("img").first
    assert drawn.evaluate("image => image.decode().then(() => image.naturalWidth)") == 32
    assert opened.complaints == []
    assert [url for url in opened.requests if not url.startswith(("file:", "data:"))] == []


def test_captions_that_do_not_fit_are_refused(classifier: OpenSetClassifier) -> None:
    with pytest.raises(ValueError, match="captions has 1 entries but X has 480"):
        classifier_report(classifier, test=samples(12), captions=["one"], n_replicates=20)


def test_thresholds_of_every_kind(classifier: OpenSetClassifier, open_page: Open) -> None:
    per_class = deepcopy(classifier).set_threshold(acceptance=0.9, per_class=True)
    opened = open_page(classifier_report(per_class))
    assert opened.text("#asked") == "90.0\xa0%"
    assert "per_class=False" in opened.text("#score_code")
    shown = opened.page.locator("#accepted tbody td:nth-child(5)").all_inner_texts()
    found = sorted(float(text.replace("−", "-")) for text in shown)
    np.testing.assert_allclose(found, sorted(per_class.thresholds_), rtol=1e-5)
    given = deepcopy(classifier).set_threshold(0.123456789)
    opened = open_page(classifier_report(given))
    assert opened.text("#asked") == "as in use"
    assert "set_threshold(0.123456789)" in opened.text("#score_code")
    with pytest.warns(UserWarning, match="too few"):
        few = fitted(3, 3, rejector="max_logit")
    opened = open_page(classifier_report(few))
    assert "nothing is rejected" in opened.text("main")
    assert opened.complaints == []


def test_partial_openauc_is_called_that() -> None:
    html = classifier_report(fitted(4, max_ofpr=0.2, rejector="max_logit"))
    assert "a partial OpenAUC up to OFPR 0.2" in html
    assert "Show it a sample" not in html


def test_every_chart_has_words_and_nothing_is_cut_off_in_print(page: str, open_page: Open) -> None:
    opened = open_page(page)
    described = opened.page.locator(".chart:visible > svg").evaluate_all(
        "all => all.map(svg => [svg.getAttribute('aria-label'), svg.getAttribute('aria-description')])"
    )
    assert len(described) == 3 + len(EVIDENCE)
    assert all(label and description for label, description in described)
    opened.page.emulate_media(media="print")
    opened.page.set_viewport_size({"width": 688, "height": 1000})  # A4 less its margins
    opened.page.wait_for_timeout(200)
    beyond = opened.page.evaluate(
        "[...document.querySelectorAll('svg, table, p, pre')].filter(e => e.getBoundingClientRect().right > 689)"
        ".map(e => e.outerHTML.slice(0, 80))"
    )
    assert beyond == []
    assert opened.page.locator("#acceptance").is_hidden()
