"""The report on a store, in a real browser."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from openauc.bench.paper import METHODS
from openauc.bench.store import Store
from openauc.bench.trial import TrialResult, TrialSpec
from openauc.report import store_report, write_report

from .conftest import Open

EVIL = "ValueError: <script>document.title='taken'</script>\n\nTraceback\n  in <b>line</b>"


def spec(method: str, split: int, protocol: str = "mnist", **more: Any) -> TrialSpec:
    return TrialSpec.of(protocol, split, method, recipe="plain", epochs=30, width=4, **more)


def keep(store: Store, trial: TrialSpec, value: float | None, *, log: bool = True, **more: Any) -> None:
    store.plan([trial])
    store.open(trial)
    if log:
        of = {"seconds": 0.1, "training": trial.training_id}  # trials of one training have the same log
        rows = [{"epoch": e, "loss": 1 / e, "known_accuracy": 1 - 1 / e, **of} for e in range(1, 31)]
        (store.folder(trial) / "log.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    if value is None:
        store.save(TrialResult(spec=trial, error=EVIL))
        return
    names = ("openauc", "auroc", "closed_set_accuracy")
    store.save(
        TrialResult(
            spec=trial,
            metrics=dict.fromkeys(names, value),
            intervals=dict.fromkeys(names, (value - 0.01, value + 0.01)),
            predictions=f"trials/{trial.id}/predictions.parquet",
            seconds=1.5,
            environment={"openauc": "0.1.0", "processor": "test & <co>"},
            **more,
        )
    )


@pytest.fixture
def store(tmp_path: Path) -> Store:
    found = Store(tmp_path / "a store")
    rng = np.random.default_rng(0)
    for split in range(3):
        keep(found, spec("softmax", split), 0.9 + 0.01 * rng.random())
        for lam in (0.1, 1.0, 10.0):
            keep(found, spec("openauc", split, method_args={"lam": lam}), 0.94 + 0.01 * rng.random())
    keep(found, spec("rpl", 0), None, log=False)
    found.plan([spec("gcpl", 0)])
    return found


def data_in(html: str) -> dict[str, Any]:
    found = re.search(r'id="data">(.*?)</script>', html, re.S)
    assert found is not None
    data: dict[str, Any] = json.loads(found.group(1))
    return data


def forest(html: str, title: str) -> dict[str, str]:
    """Label -> markup of each row of the table with this title, in their order."""
    (table,) = re.findall(rf"<h3>{re.escape(title)}, %.*?</h3>(.*?)</table>", html, re.S)
    rows = re.findall(r"<tr>(<th scope=\"row\".*?)</tr>", table, re.S)
    return {re.sub(r"<small>.*?</small>|<[^>]*>", "", row.partition("</th>")[0]).strip(): row for row in rows}


def trials_in(row: str) -> list[tuple[int, bool]]:
    """Split of each dot, and whether it has an interval."""
    return [(int(split), bool(bounds)) for split, bounds in re.findall(r"<title>split (\d+), seed \d: \S+( \()?", row)]


@pytest.mark.parametrize("dark", [False, True])
def test_opens_quietly_and_shows_everything(store: Store, open_page: Open, dark: bool) -> None:
    opened = open_page(store_report(store), dark=dark)
    assert "has the best OpenAUC on mnist, 94" in opened.text("h1")
    assert re.sub(r"\s+", " ", opened.text(".facts")) == "12 trials finished 1 trial failed 1 trial without a result"
    assert "99.4" in opened.text(".forest")
    assert opened.page.locator(".forest").first.locator(".trial").count() == 12
    assert opened.page.locator("#sensitivity-0 circle").count() == 3
    assert opened.page.locator("#history-0 path").count() >= 12
    before = opened.page.locator("#history-0 svg").get_attribute("aria-label")
    opened.page.locator("#quantity").select_option("known_accuracy")
    assert opened.page.locator("#history-0 svg").get_attribute("aria-label") != before
    opened.page.set_viewport_size({"width": 390, "height": 900})
    opened.page.wait_for_timeout(100)
    assert opened.page.evaluate("document.documentElement.scrollWidth") == 390
    assert opened.page.title() != "taken"
    assert opened.complaints == []
    assert [url for url in opened.requests if not url.startswith("file:")] == []


def test_rows_are_sorted_with_a_dot_for_each_trial(store: Store) -> None:
    rows = forest(store_report(store), "OpenAUC on mnist")
    means = {
        label: np.mean([r.metrics["openauc"] for r in store.results() if r.metrics and of(r.spec)])
        for label, of in {
            "softmax": lambda spec: spec.method == "softmax",
            **{f"openauc lam={lam}": lambda spec, lam=lam: spec.method_args.get("lam") == lam for lam in (0.1, 1, 10)},
        }.items()
    }
    finished = sorted(means, key=lambda label: -means[label])
    assert list(rows) == [*finished, "gcpl", "rpl"] or list(rows) == [*finished, "rpl", "gcpl"]
    for label in finished:
        assert f">{100 * means[label]:.1f}</span>" in rows[label]
        assert trials_in(rows[label]) == [(0, True), (1, True), (2, True)]
    assert "0 of 1 trials, 1 failed" in rows["rpl"]
    assert "paper: 99.2" in rows["softmax"]


def test_lower_values_are_first_where_they_are_better(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for method, value in (("softmax", 0.2), ("gcpl", 0.1), ("rpl", 0.3)):
        store.save(TrialResult(spec=spec(method, 0), metrics={"fpr_at_95tpr": value}))
    html = store_report(store, metric="fpr_at_95tpr")
    assert list(forest(html, "FPR at 95 % TPR on mnist")) == ["gcpl", "softmax", "rpl"]
    assert "lower is better" in html


def test_intervals_end_where_values_do(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for split, value in enumerate((0.9, 0.99, 1.0)):
        keep(store, spec("softmax", split), value)
    (row,) = forest(store_report(store), "OpenAUC on mnist").values()
    assert re.search(r">\d\d\.\d\xa0–\xa0100\.0<", row)
    ends = [float(x) for line in re.findall(r"<line .*?/>", row) for x in re.findall(r'x[12]="(-?[\d.]+)%"', line)]
    assert 0 <= min(ends) < max(ends) <= 100


def test_rows_of_one_training_are_said_to_be(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for split in range(2):
        for method, value in (("softmax", 0.8), ("ce_plus", 0.9), ("arpl", 0.7), ("arpl_plus", 0.7), ("openauc", 0.7)):
            keep(store, spec(method, split), value + 0.01 * split)
    html = store_report(store)
    assert html.count("are the same training") == 2
    assert "<b>softmax and ce_plus are the same training</b>: the same networks, with different open-set sc" in html
    assert "<b>arpl and arpl_plus are the same training</b>: the same networks, and the same open-set score." in html
    assert {history["row"] for history in data_in(html)["histories"]} == {"softmax", "arpl", "openauc"}


def test_sensitivity_is_by_lambda(store: Store) -> None:
    (series,) = data_in(store_report(store))["sensitivity"]
    assert [point["lam"] for point in series["points"]] == [0.1, 1, 10]
    for point in series["points"]:
        found = [r.metrics["openauc"] for r in store.results() if r.spec.method_args.get("lam") == point["lam"]]
        assert point["mean"] == pytest.approx(np.mean(found))


def test_failures_and_how_cells_were_made_are_told(store: Store) -> None:
    html = store_report(store)
    assert "&lt;script&gt;document.title" in html
    assert "in &lt;b&gt;line&lt;/b&gt;" in html
    assert (
        html.count(
            "openauc train mnist -m openauc --split 1 --recipe plain --epochs 30 --set backbone=vgg32 --set width=4"
        )
        == 3
    )
    assert "processor test &amp; &lt;co&gt;" in html


def test_links_lead_from_the_page_to_the_predictions(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "pages"
    folder.mkdir()
    write_report(store.root, folder / "report.html")
    links = re.findall(r'<a href="([^"]*)"', (folder / "report.html").read_text())
    assert len(links) == 12
    assert links[0].startswith("../a%20store/trials/mnist-0-softmax")
    assert list(folder.iterdir()) == [folder / "report.html"]


def test_a_part_of_the_trials(store: Store) -> None:
    (row,) = forest(
        store_report(store, specs=[spec("softmax", split) for split in range(2)]), "OpenAUC on mnist"
    ).items()
    assert row[0] == "softmax"
    assert len(trials_in(row[1])) == 2


def test_the_baseline_is_marked_and_differences_to_it_are_explained(store: Store, open_page: Open) -> None:
    html = store_report(store, baseline="softmax")
    rows = forest(html, "OpenAUC on mnist")
    assert ["<small>baseline</small>" in row for row in rows.values()] == [label == "softmax" for label in rows]
    assert all('class="base"' in row for label, row in rows.items() if label not in ("rpl", "gcpl"))
    mean = {label: float(re.findall(r">([\d.]+)</span>", row)[0]) for label, row in rows.items() if "±" in row}
    found = re.findall(r'<td class="n">([+−][\d.]+) <small>', rows["openauc lam=1"])
    assert float(found[0].replace("−", "-")) == pytest.approx(mean["openauc lam=1"] - mean["softmax"], abs=0.11)
    opened = open_page(html)
    text = opened.page.locator("main").inner_text()  # what is seen without a click
    assert "Δ to softmax: the method minus softmax on the same splits and seeds" in text
    assert "flip: p of the sign-flip test" in text
    assert "Δ" not in store_report(store)
    opened.page.emulate_media(media="print")
    opened.page.set_viewport_size({"width": 688, "height": 1000})  # A4 less its margins
    right = "[...document.querySelectorAll('.forest')].map(table => table.getBoundingClientRect().right)"
    assert max(opened.page.evaluate(right)) <= 689


def test_groups_of_unknown_classes_have_panels_of_their_own(tmp_path: Path) -> None:
    store = Store(tmp_path)
    metrics = dict.fromkeys(("openauc", "auroc", "closed_set_accuracy"), 0.7)
    keep(store, spec("openauc", 0, "cub"), 0.6, groups={"easy": metrics, "hard": metrics})
    html = store_report(store)
    assert trials_in(forest(html, "OpenAUC on cub")["openauc"]) == [(0, True)]
    for group in ("easy", "hard"):
        assert trials_in(forest(html, f"OpenAUC on cub {group}")["openauc"]) == [(0, False)]


def test_headlines(tmp_path: Path) -> None:
    one = Store(tmp_path / "one")
    one.plan([spec("softmax", 0)])
    assert "No trial has finished yet." in store_report(one)
    keep(one, spec("softmax", 0), 0.9)
    assert "softmax reaches OpenAUC 90.0\xa0% on mnist." in store_report(one)
    keep(one, spec("gcpl", 0), 0.9)
    assert "softmax and gcpl have the best OpenAUC on mnist, 90.0\xa0%." in store_report(one)
    for protocol in ("cifar10", "svhn"):
        keep(one, spec("softmax", 0, protocol), 0.8)
        keep(one, spec("gcpl", 0, protocol), 0.7)
    assert "softmax has the best OpenAUC in 3 of 3 columns." in store_report(one)


def test_intervals_that_overlap_are_said_to(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for split, (a, b) in enumerate([(0.90, 0.91), (0.92, 0.93), (0.91, 0.92)]):
        keep(store, spec("softmax", split), a)
        keep(store, spec("gcpl", split), b)
    assert "; the interval of softmax overlaps with it." in store_report(store)
    for split in range(3):
        keep(store, spec("rpl", split), 0.905 + 0.01 * split)
    assert "; the intervals of 2 others overlap with it." in store_report(store)
    for split in range(3):
        keep(store, spec("arpl", split), 0.98 + 0.001 * split)
    assert "arpl has the best OpenAUC on mnist, 98.1\xa0% (97.9\xa0–\xa098.3); no other" in store_report(store)


def test_unfinished_stores_say_so(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.plan([spec(method, split) for method in ("softmax", "gcpl") for split in range(2)])
    keep(store, spec("softmax", 0), 0.9)
    keep(store, spec("gcpl", 1), 0.8)
    assert "2 trials have finished, too few to say who leads." in store_report(store)
    keep(store, spec("gcpl", 0), 0.8)
    keep(store, spec("softmax", 1), 0.9)
    store.plan([spec("rpl", 0)])
    assert "So far, softmax has the best OpenAUC on mnist" in store_report(store)
    assert "softmax on mnist: 2 of 2 trials finished" in store_report(store)


def test_a_log_that_is_being_written_and_one_that_diverged(tmp_path: Path) -> None:
    store = Store(tmp_path)
    keep(store, spec("softmax", 0), 0.9)
    log = store.folder(spec("softmax", 0)) / "log.jsonl"
    rows = [{"epoch": e, "loss": float(e), "note": "text"} for e in range(1, 601)]
    rows[1]["loss"] = float("nan")
    rows[9]["once"] = 1.0
    log.write_text("\n".join(map(json.dumps, rows)) + '\n{"epoch": 601, "lo')
    (history,) = data_in(store_report(store))["histories"]
    assert list(history["curves"]) == ["loss"]
    epochs = history["curves"]["loss"]["x"]
    assert epochs[-1] == 600
    assert len(epochs) <= 121
    assert 2 not in epochs


@pytest.mark.parametrize("odd", [b"not JSON", b"[]", b"{}", b"[" * 100_000, b"\xff", b""])
def test_a_bad_line_of_a_log_is_left_out_and_told(odd: bytes, store: Store) -> None:
    before = data_in(store_report(store))["histories"]
    log = store.folder(spec("softmax", 0)) / "log.jsonl"
    lines = log.read_bytes().splitlines()
    log.write_bytes(b"\n".join([*lines[:3], odd, *lines[3:]]) + b"\n")
    html = store_report(store)
    assert data_in(html)["histories"] == before
    assert f"{log.relative_to(store.root)}: lines that cannot be read and are left out: 1." in html


def test_a_damaged_result_is_a_failed_trial(store: Store) -> None:
    file = store.folder(spec("softmax", 1)) / "result.json"
    file.write_text("{")
    html = store_report(store)
    assert f"{file} is not JSON" in html
    assert "--retry-failed runs this trial again" in html
    assert [split for split, _ in trials_in(forest(html, "OpenAUC on mnist")["softmax"])] == [0, 2]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_metric_or_interval_that_is_no_number_is_missing(value: float, store: Store) -> None:
    odd, half = store.result(spec("softmax", 0)), store.result(spec("softmax", 1))
    assert odd is not None
    assert half is not None
    store.save(replace(odd, metrics={**odd.metrics, "openauc": value}))
    store.save(replace(half, intervals={"openauc": (0.5, value)}))
    html = store_report(store)
    assert trials_in(forest(html, "OpenAUC on mnist")["softmax"]) == [(1, False), (2, True)]
    assert f"{odd.spec.id}: openauc is missing or not a finite number" in html
    assert '<td class="n">no number</td>' in html
    store.save(replace(odd, metrics={}))
    assert "no number" in store_report(store)


def test_links_do_not_lead_out_of_the_store(store: Store, tmp_path: Path) -> None:
    result = store.result(spec("softmax", 0))
    assert result is not None
    store.save(replace(result, predictions="../../../secret.csv"))
    links = re.findall(r'<a href="([^"]*)"', store_report(store, relative_to=store.root))
    assert f"trials/{result.spec.id}/secret.csv" in links
    assert not any(".." in link for link in links)


def test_an_empty_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds no trials"):
        store_report(Store(tmp_path))


def test_the_page_of_forty_five_trials_is_not_large(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    for method in METHODS:
        for split in range(5):
            keep(store, spec(method, split), 0.9)
    write_report(store, tmp_path / "report.html")
    assert (tmp_path / "report.html").stat().st_size < 1_500_000
