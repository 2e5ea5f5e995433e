"""The numbers of README and of the page on results are those the programs wrote."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
PAGE = (ROOT / "docs/results.md").read_text()


def newest(benchmark: str) -> dict:
    """The JSON of a benchmark with the latest month."""
    files = [file for file in (ROOT / "benchmark/results").glob("*.json") if file.stem.rsplit("_", 2)[0] == benchmark]
    return json.loads(max(files, key=lambda file: file.stem[-6:]).read_text())


def cells(benchmark: str, metric: str) -> dict[tuple[str, str], dict]:
    """Cells of the newest table, by method and protocol."""
    tables = {table["metric"]: table for table in newest(benchmark)["tables"]}
    return {(cell["method"], cell["protocol"]): cell for cell in tables[metric]["cells"]}


SPREAD = r"\| ([^|]+ ± [^|]+) "


def spread(cell: dict) -> str:
    return f"{100 * cell['mean']:.1f} ± {100 * cell['std_population']:.1f}"


def test_results_on_digits_are_those_the_program_wrote() -> None:
    openauc, accuracy = (cells("digits", metric) for metric in ("openauc", "closed_set_accuracy"))
    rows = re.findall(r"^\| (\w+) \| ([^|]+ ± [^|]+) \| ([^|]+ – [^|]+) \| ([^|]+) \|$", PAGE, re.MULTILINE)
    assert len(rows) == 9
    for method, value, interval, correct in rows:
        cell = openauc[method, "digits"]
        assert value == spread(cell)
        assert interval == " – ".join(f"{100 * bound:.1f}" for bound in cell["interval"])
        assert correct == f"{100 * accuracy[method, 'digits']['mean']:.1f}"


def test_results_of_table2_are_those_the_program_wrote() -> None:
    openauc = cells("table2_cpu", "openauc")
    rows = re.findall(rf"^\| (\w+) {SPREAD * 4}\|$", PAGE, re.MULTILINE)
    assert len(rows) == 9
    for method, *values in rows:
        assert values == [spread(openauc[method, name]) for name in ("mnist", "cifar10", "cifar+10", "cifar+50")]


def test_results_of_central_are_those_the_program_wrote() -> None:
    metrics = [cells("central", metric) for metric in ("openauc", "auroc", "closed_set_accuracy")]
    rows = re.findall(rf"^\| (\w+) {SPREAD * 3}\|$", PAGE, re.MULTILINE)
    assert len(rows) == 3
    for method, *values in rows:
        assert values == [spread(metric[method, "cifar10"]) for metric in metrics]


def test_results_of_mnist_are_those_the_program_wrote() -> None:
    for row in newest("mnist_plus")["rows"]:
        low, high = row["intervals"]["openauc"]
        assert f"{100 * row['openauc']:.2f} [{100 * low:.2f}, {100 * high:.2f}] for" in PAGE


def test_results_of_search_are_those_the_program_wrote() -> None:
    selection, confirmation = newest("search_digits")["parts"].values()
    winner = next(row for row in confirmation if row["label"].startswith("openauc"))
    assert winner["label"] == selection[1]["label"]  # the first after CE+
    low, high = winner["interval"]
    gain = f"{100 * winner['difference']:.1f} [{100 * low:.1f}, {100 * high:.1f}] points"
    assert f"{gain}, in {winner['wins']} of {winner['n']} pairs" in PAGE
    assert f"of {sum(row['label'].startswith('openauc') for row in selection)} forms" in PAGE


LEARNED, BASELINE = "logistic (score learned)", "logistic (score max_logit)"


def percent(value: float) -> str:
    return f"{100 * value:.1f}"


def page_of(benchmark: str) -> str:
    """The Markdown of a benchmark with the latest month."""
    files = [file for file in (ROOT / "benchmark/results").glob("*.md") if file.stem.rsplit("_", 2)[0] == benchmark]
    return max(files, key=lambda file: file.stem[-6:]).read_text()


def section(heading: str) -> str:
    """The part of the page whose heading begins so."""
    return PAGE.partition(f"\n## {heading}")[2].partition("\n## ")[0]


@pytest.mark.parametrize(("text", "rows"), [(README, 7), (section("Beside tools"), 13)], ids=["readme", "page"])
def test_results_beside_other_tools_are_those_the_program_wrote(text: str, rows: int) -> None:
    shown = re.findall(r"^\| [^|]+ \| \d+ \| [\d.]+ \| [\w-]+ [\d.]+ \| [\d.]+ \| \S+ \[.*\] \|$", text, re.M)
    assert len(shown) == rows
    assert set(shown) <= set(page_of("peers").splitlines())
    means = newest("peers")["over_rows"]
    gains = [one["difference"] for one in means.values()]
    assert f"each of {len(means)} tools, by {percent(min(gains))} to {percent(max(gains))} points" in " ".join(
        text.split()
    )
    assert all(one["difference"] > 0 and one["p_holm"] < 0.05 for one in means.values())
    accepted = [np.mean([one["accepted"] for one in row["openauc"]]) for row in newest("peers")["results"].values()]
    assert f"accepts {percent(min(accepted))} to {percent(max(accepted))} %" in " ".join(text.split())


def test_results_on_embeddings_are_those_the_program_wrote() -> None:
    found = newest("features")
    means = found["means_and_intervals"]["openauc"]
    shown = re.findall(
        r"^\| ([^|]+) \| (\d+) \| ([\d.]+) \| (\w+) ([\d.]+) \| ([\d.]+) \| (\S+ \[.*\]) \|$",
        section("On embeddings"),
        re.M,
    )
    verdicts = {verdict["data"]: verdict for verdict in found["verdicts"]}
    assert [data for data, *_ in shown] == list(verdicts)
    for data, classes, base, best, value, learned, gain in shown:
        verdict = verdicts[data]
        assert int(classes) == verdict["known_classes"]
        assert base == percent(means[BASELINE][data][0])
        assert value == percent(means[f"logistic (score {best})"][data][0])
        assert learned == percent(means[LEARNED][data][0])
        low, high = verdict["gain"]["low"], verdict["gain"]["high"]
        assert gain == f"{100 * verdict['gain']['value']:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]"


def test_results_with_other_encoders_are_those_the_program_wrote() -> None:
    written = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page_of("encoders_more").splitlines()]
    encoders = {"minilm", "use", "mpnet"}
    told = {(f"{row[0].upper()}, {row[1]} known", row[2]): row[4:10] for row in written if len(row) == 11}
    shown = [[cell.strip() for cell in line.split("|")[1:-1]] for line in PAGE.splitlines() if line.startswith("| ")]
    rows = {(row[0], row[1]): row[2:] for row in shown if len(row) == 8 and row[1] in encoders}
    assert rows == {key: row for key, row in told.items() if key[1] in encoders}
    assert len(rows) == 18


def test_results_on_open_intents_are_those_the_program_wrote() -> None:
    (row,) = re.findall(r"^\| ours \| (.*) \|$", PAGE, re.M)
    results = newest("decisions")["results"]["cross"]
    names = [f"{data}_{share}" for data in ("banking77", "clinc150") for share in (25, 50, 75)]
    for cell, name in zip(row.split(" | "), names, strict=True):
        pairs = np.array([one["open_set"]["0.9"] for one in results[name]])
        assert cell == "/".join(percent(value) for value in pairs.mean(0))


def test_results_on_later_classes_are_those_the_program_wrote() -> None:
    found = newest("loop")["results"]
    shares = re.findall(
        r"^\| (CLINC150|BANKING77|CIFAR100) \| ([\d.]+) \| ([\d.]+) \[.*?\] \| ([\d.]+) \| (\d+) \|", PAGE, re.M
    )
    assert [name.lower() for name, *_ in shares] == list(found["streams"])
    for name, *values, groups in shares:
        orders = found["streams"][name.lower()]
        last = [[order[way][-1] for order in orders if order[way][-1]] for way in ("never", "loop", "refit")]
        assert values == [percent(np.mean([one["right"] for one in ones])) for ones in last]
        assert int(groups) == round(np.mean([sum(step["groups"] for step in order["loop"]) for order in orders]))
    groups = re.findall(
        r"^\| (\w+), (\d+) % \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \[.*? \| ([\d.]+) \| ([\d.]+) \|$", PAGE, re.M
    )
    assert [f"{name.lower()}-{known}" for name, known, *_ in groups] == list(found["groups"])
    for name, known, number, classes, ari, forecast, real in groups:
        splits = found["groups"][f"{name.lower()}-{known}"]
        ours = [split["ways"]["discover"] for split in splits]
        assert number == f"{np.mean([one['groups'] for one in ours]):.1f}"
        assert classes == f"{np.mean([split['classes'] for split in splits]):.1f}"
        assert ari == percent(np.mean([one["ari"] for one in ours]))
        told = [np.concatenate([split["told"][key] for split in splits]) for key in ("forecast", "real")]
        assert [forecast, real] == [percent(one.mean()) for one in told]


def test_results_of_fine_tuning_are_those_the_program_wrote() -> None:
    page = page_of("finetune")
    rows = re.findall(r"^\| (CE|OpenAUC, [^|]+) \| (\d\S+ ± \S+) \| ?([^|]*?) ?\| ?([\d.]*) ?\|$", PAGE, re.M)
    assert len(rows) == 5
    for name, value, difference, p in rows:
        assert re.search(rf"^\| {re.escape(name)} \| -max z \| 3 \| .* \| {re.escape(value)} \|$", page, re.M)
        if difference:
            told = rf"^\| {re.escape(name)} \| -max z \| .* \| {re.escape(difference)} \| \S+ \S+ \| {p} \|$"
            assert re.search(told, page, re.M)


def test_results_beside_plain_peers_are_those_the_program_wrote() -> None:
    (page,) = (ROOT / "benchmark/results").glob("messy_*.md")
    told = re.findall(r"^- (\w+): within 2 points of the aim in (\d+) of 30 rows", page.read_text(), re.M)
    counts = dict(told)
    assert counts["LocalOutlierFactor"] == counts["IsolationForest"]
    (ours, logistic, others) = re.search(
        r"in (\d+) rows for `OpenSetClassifier`, in (\d+) for a logistic.*?and in (\d+) for", PAGE, re.S
    ).groups()
    assert (ours, logistic, others) == (
        counts["OpenSetClassifier"],
        counts["LogisticRegression"],
        counts["IsolationForest"],
    )
