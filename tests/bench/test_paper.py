"""The published values, each against the paper's source."""

import re
from pathlib import Path

import pytest

from openauc.bench.paper import METHODS, TABLE_2_PROTOCOLS, published, training_of
from openauc.methods import method_names
from openauc.metrics.registry import METRICS
from openauc.protocols import PROTOCOLS

GROUPS = ("easy", "medium", "hard")
SHARED = Path(__file__).resolve().parents[3] / "shared"
NAMES = {
    "Softmax": "softmax",
    "GCPL": "gcpl",
    "RPL": "rpl",
    "ARPL": "arpl",
    "ARPL+CS": "arpl_cs",
    "CE+": "ce_plus",
    "ARPL+": "arpl_plus",
    "Acc+AUC": "acc_auc",
    "Ours": "openauc",
}


def tables() -> list[dict[str, list[str]]]:
    """Tables of results in the source: method -> text of its cells."""
    source = (SHARED / "reference" / "paper.tex").read_text(encoding="utf-8")
    found = []
    for body in re.findall(r"\\begin\{tabular\}.*?\\end\{tabular\}", source, flags=re.DOTALL):
        rows = {}
        for line in body.splitlines():
            plain = re.sub(r"\\cite\{.*?\}|\\Top(?:one|two)|[{}]|\\\\", "", line)
            label, *cells = (cell.strip() for cell in plain.split("&"))
            if label in NAMES and cells:
                rows[NAMES[label]] = cells
        if rows:
            found.append(rows)
    return found


@pytest.fixture(scope="module")
def printed() -> dict[tuple[str, str, str, str | None], tuple[float, float | None]]:
    if not SHARED.is_dir():
        pytest.skip("the paper's source is not here")
    table_2, first, second = tables()
    values: dict[tuple[str, str, str, str | None], tuple[float, float | None]] = {}
    for method, cells in table_2.items():
        for protocol, cell in zip(TABLE_2_PROTOCOLS, cells, strict=True):
            mean, std = cell.split(r"$\pm$")
            values[method, protocol, "openauc", None] = float(mean), float(std)
    for method, (accuracy, auc, openauc, _) in first.items():
        values[method, "cub", "closed_set_accuracy", None] = float(accuracy), None
        by_metric = {"auroc": auc, "openauc": openauc}
        by_metric |= zip(("error_at_95tpr", "macro_f_score", "micro_f_score"), second[method], strict=True)
        for metric, cell in by_metric.items():
            for group, value in zip(GROUPS, cell.split("/"), strict=True):
                values[method, "cub", metric, group] = float(value), None
    return values


def test_the_source_was_read(printed: dict) -> None:
    assert len(printed) == 8 * 6 + 7 * (1 + 5 * 3)


def test_every_printed_value(printed: dict) -> None:
    for key, (mean, std) in printed.items():
        found = published(*key)
        assert found is not None, key
        assert found.mean == pytest.approx(mean / 100, abs=1e-9), key
        assert found.std == (None if std is None else pytest.approx(std / 100, abs=1e-9)), key


def test_nothing_that_is_not_printed(printed: dict) -> None:
    extra = {
        (method, protocol, metric, group)
        for method in METHODS
        for protocol in PROTOCOLS
        for metric in METRICS
        for group in (None, *GROUPS)
        if published(method, protocol, metric, group) is not None
    }
    accuracy = {key for key in extra if key[2] == "closed_set_accuracy" and key[3] is not None}
    assert extra - accuracy == set(printed)


def test_accuracy_is_that_of_every_group() -> None:
    values = {published("ce_plus", "cub", "closed_set_accuracy", group) for group in (None, *GROUPS)}
    assert len(values) == 1


def test_names_are_ours() -> None:
    assert set(METHODS) == set(method_names())


def test_how_the_paper_trained() -> None:
    assert "600 epochs" in training_of("cifar10")
    assert "ResNet-50" in training_of("cub")
