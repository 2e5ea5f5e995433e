"""Summaries in words and in four formats."""

import csv
import io
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from openauc.bench.rendering import FORMATS, Grid, layout, render, rich_table
from openauc.bench.summary import Summary, summarise
from openauc.bench.trial import TrialResult, TrialSpec

VALUES = {
    ("ce_plus", "cifar10"): (0.80, 0.82, 0.90, 0.90, 0.88),
    ("openauc", "cifar10"): (0.82, 0.86, 0.91, 0.95, 0.89),
    ("ce_plus", "cifar+10"): (0.90, 0.91, 0.92, 0.93, 0.94),
    ("openauc", "cifar+10"): (0.89, 0.90, 0.91, 0.92, 0.92),
}


def results() -> list[TrialResult]:
    return [
        TrialResult(
            spec=TrialSpec.of(protocol, split, method, epochs=12),
            metrics={"openauc": value, "auroc": value + 0.01, "fpr_at_95tpr": 1 - value},
        )
        for (method, protocol), values in VALUES.items()
        for split, value in enumerate(values)
    ]


@pytest.fixture
def summary() -> Summary:
    broken = TrialSpec.of("cifar10", 0, "gcpl", recipe="plus", epochs=12)
    missing = TrialSpec.of("cifar10", 1, "gcpl", recipe="plus", epochs=12)
    failure = TrialResult(spec=broken, error="ValueError: 50% of {x_1} & more | \\end\n\nTraceback")
    return summarise([*results(), failure], baseline="ce_plus", planned=[missing])


def test_text_has_value_marks_interval_paper_and_comparison(summary: Summary) -> None:
    text = render(summary)
    assert "OpenAUC × 100, higher is better" in text
    for part in ("88.6 ± 4.4 ¹", "86.0 ± 4.2 ²", "paper 89.2, −0.6", "n 0, 1 failed, 1 missing", "90.8 ± 1.2 ²"):
        assert part in text
    assert re.search(r"Δ \+2\.5 \[−?\+?\d\.\d, \+\d\.\d\]", text)
    assert re.search(r"p 0\.\d{3}, flip 0\.125", text)
    for note in ("population standard deviation", "95 % interval", "splits 0 and 1 have the same known classes"):
        assert note in text
    assert all(line == line.rstrip() for line in text.splitlines())


def test_markdown_is_a_table_of_equal_rows(summary: Summary) -> None:
    text = render(summary, format="markdown")
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len(rows) == 2 + 3
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {5}
    assert "**88.6 ± 4.4**<br>" in rows[-1]
    assert "*86.0 ± 4.2*<br>" in text
    assert "- Failed trials: 1 of 22." in text
    assert not re.search(r"<br> \|", text)


def test_latex_escapes_and_balances(summary: Summary) -> None:
    text = render(summary, format="latex")
    assert r"\textbf{88.6 $\pm$ 4.4}" in text
    assert r"\underline{86.0 $\pm$ 4.2}" in text
    assert r"ce\_plus" in text
    assert r"50\% of \{x\_1\} \& more | \textbackslash{}end" in text
    assert r"\toprule" in text
    body = text[text.index(r"\midrule") : text.index(r"\bottomrule")]
    rows = [line for line in body.splitlines() if line.endswith(r"\\")]
    assert {line.count("&") for line in rows} == {3}
    plain = text.replace(r"\{", "").replace(r"\}", "")
    assert plain.count("{") == plain.count("}")
    assert text.count("$") % 2 == 0


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="LaTeX is not installed")
def test_latex_compiles(summary: Summary, tmp_path: Path) -> None:
    head = "\\documentclass{article}\\usepackage{booktabs}\\begin{document}\n"
    (tmp_path / "table.tex").write_text(head + render(summary, format="latex") + "\\end{document}\n")
    subprocess.run(["pdflatex", "-halt-on-error", "table.tex"], cwd=tmp_path, check=True, capture_output=True)


def test_csv_has_every_field_unrounded(summary: Summary) -> None:
    records = list(csv.DictReader(io.StringIO(render(summary, format="csv"))))
    assert [(r["variant"], r["protocol"]) for r in records] == [
        ("gcpl", "cifar10"),
        *((method, protocol) for method in ("ce_plus", "openauc") for protocol in ("cifar10", "cifar+10", "mean")),
    ]
    gcpl, best = records[0], records[4]
    assert (gcpl["failed"], gcpl["missing"], gcpl["mean"]) == ("1", "1", "")
    cell = summary.cell("openauc", "cifar10")
    assert cell.paired is not None
    assert cell.interval is not None
    expected = {
        "mean": cell.mean,
        "std_population": cell.std_population,
        "std_sample": cell.std_sample,
        "low": cell.interval.low,
        "difference": cell.paired.difference,
        "p_value": cell.paired.p_value,
        "p_holm": cell.paired.p_holm,
        "paper_mean": 0.892,
        "paper_difference": cell.paper_difference,
        "n_distinct": 4,
        "rank": 1,
        "level": 0.95,
    }
    assert {name: float(best[name]) for name in expected} == expected
    assert best["settings"] == "plus, 12 epochs, published width, all training images"
    assert best["baseline"] == "ce_plus"


def test_several_metrics_share_notes_and_csv_header() -> None:
    summaries = [summarise(results(), metric=name) for name in ("openauc", "auroc", "fpr_at_95tpr")]
    text = render(*summaries)
    assert text.count("95 % interval") == 1
    assert "FPR at 95 % TPR × 100, lower is better" in text
    assert text.count("paper: the printed value") == 1
    lines = render(*summaries, format="csv").splitlines()
    assert len(lines) == 1 + 3 * 6
    assert {line.partition(",")[0] for line in lines[1:]} == {"openauc", "auroc", "fpr_at_95tpr"}


def test_held_out_classes_have_a_table_of_their_own() -> None:
    selection = [
        TrialResult(
            spec=TrialSpec.of("cifar10", split, method, epochs=12, pseudo_unknown=2, validation=0.1),
            metrics={"openauc": 0.7 + 0.1 * split},
        )
        for split in range(2)
        for method in ("openauc", "acc_auc")
    ]
    grids = [block for block in layout([summarise([*results(), *selection])]) if isinstance(block, Grid)]
    assert [grid.headings[1:] for grid in grids] == [
        ("cifar10", "cifar+10", "mean"),
        ("cifar10 (2 held-out classes)",),
    ]
    assert [label for label, _ in grids[0].rows] == ["ce_plus", "openauc"]
    assert [label for label, _ in grids[1].rows] == ["acc_auc", "openauc"]
    assert grids[1].title.endswith("(held-out classes)")


def test_a_mean_over_held_out_classes_stays_with_them() -> None:
    trials = [
        TrialResult(spec=TrialSpec.of(name, 0, "softmax", pseudo_unknown=2, validation=0.1), metrics={"openauc": 0.5})
        for name in ("mnist", "cifar10")
    ]
    (grid,) = (block for block in layout([summarise(trials)]) if isinstance(block, Grid))
    assert [heading.partition(" ")[0] for heading in grid.headings] == ["method", "mnist", "cifar10", "mean"]


def test_details_of_a_row_are_level(summary: Summary) -> None:
    (grid,) = (block for block in layout([summary]) if isinstance(block, Grid))
    for _, entries in grid.rows:
        assert len({len(entry.details) for entry in entries}) == 1


def test_a_label_is_never_taken_for_markup() -> None:
    spec = TrialSpec.of("digits", 0, "openauc", epochs=12, method_args={"score": "[bold]x[/bold]"})
    other = TrialSpec.of("digits", 0, "openauc", epochs=12)
    text = render(summarise(TrialResult(spec=s, metrics={"openauc": 0.9}) for s in (spec, other)))
    assert "openauc score=[bold]x[/bold]" in text


def test_the_terminal_gets_bold_and_underlined(summary: Summary) -> None:
    from rich.console import Console

    console = Console(file=io.StringIO(), force_terminal=True, width=200, color_system="standard")
    (grid,) = (block for block in layout([summary]) if isinstance(block, Grid))
    with console.capture() as capture:
        console.print(rich_table(grid))
    assert "\x1b[1m88.6 ± 4.4\x1b[0m" in capture.get()
    assert "\x1b[4m86.0 ± 4.2\x1b[0m" in capture.get()


def test_values_without_spread_have_no_deviation() -> None:
    spec = TrialSpec.of("digits", 0, "softmax", epochs=12)
    text = render(summarise([TrialResult(spec=spec, metrics={"openauc": 0.9})]))
    assert "90.0" in text
    assert "±" not in text
    assert "[" not in text


def test_small_p_values_and_zeros() -> None:
    near = [TrialSpec.of("digits", split, "softmax", epochs=12) for split in range(5)]
    far = [TrialSpec.of("digits", split, "ce_plus", recipe="plain", epochs=12) for split in range(5)]
    trials = [TrialResult(spec=s, metrics={"openauc": 0.5 + 1e-4 * s.split}) for s in near]
    trials += [TrialResult(spec=s, metrics={"openauc": 0.9 + 2e-4 * s.split}) for s in far]
    text = render(summarise(trials, baseline="softmax"))
    assert "p <0.001, flip 0.062" in text
    same = [TrialResult(spec=s, metrics={"openauc": 0.5 + 1e-4 * s.split - 1e-6}) for s in far]
    assert "Δ +0.0 [+0.0, +0.0]" in render(summarise([*trials[:5], *same], baseline="softmax"))


def test_refusals(summary: Summary) -> None:
    with pytest.raises(ValueError, match="Did you mean 'markdown'"):
        render(summary, format="markdwon")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no summary"):
        render()
    assert set(FORMATS) == {"text", "markdown", "latex", "csv"}


def test_markdown_has_no_html_of_an_error() -> None:
    error = "ValueError: <img src=x onerror=alert(1)> & |"
    text = render(summarise([TrialResult(spec=TrialSpec.of("digits", 0, "softmax"), error=error)]), format="markdown")
    assert "&lt;img src=x onerror=alert(1)&gt; &amp; \\|" in text
    assert "<img" not in text


def test_csv_has_no_formula_for_spreadsheets(tmp_path: Path) -> None:
    file = tmp_path / "=1+1.json"
    file.write_text('{"source": "digits", "image_size": 8, "splits": [{"known": [0, 1], "unknown": [2]}]}')
    result = TrialResult(spec=TrialSpec.of(str(file), 0, "softmax"), metrics={"openauc": 0.5})
    (record,) = csv.DictReader(io.StringIO(render(summarise([result]), format="csv")))
    assert record["protocol"] == "'=1+1"
