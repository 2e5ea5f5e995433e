"""openauc compare-models, through the real command line, and the comparison itself."""

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binomtest

from commands.application import refused, run
from commands.new_kinds import fitted, table
from openauc.features import OpenSetClassifier
from openauc.features.classifier.changes import Changes, changes
from openauc.predictions import read_columns, write_columns


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of four kinds, one that has learned two more, and a table of six."""
    place = fitted(tmp_path_factory.mktemp("compare"))
    table(place / "test.parquet", 6, 2)
    run("extend", place / "model", place / "new.parquet", "-o", place / "model2")
    return place


def compared(folder: Path, old: str = "model", new: str = "model2") -> Changes:
    test = read_columns(folder / "test.parquet")
    models = [OpenSetClassifier.load(folder / name) for name in (old, new)]
    return changes(*models, test["embedding"], test["embedding"], test["intent"].astype(str))


def test_a_model_that_has_learned_gives_more_rows_their_class(folder: Path, tmp_path: Path) -> None:
    found = compared(folder)
    said = " ".join(run("compare-models", folder / "model", folder / "model2", folder / "test.parquet").split())
    assert found.named.difference > 0.25
    assert found.named.interval.low > 0.2
    assert f"{found.named.value_a:.1%} of the rows are given their class instead of {found.named.value_b:.1%}" in said
    assert "the last three lines cannot be compared: other rows are unknown to each model" in said
    assert "* known to one model only; the right answer of the other model is to reject" in said


def test_counts_are_those_of_the_answers(folder: Path) -> None:
    test = read_columns(folder / "test.parquet")
    truth = test["intent"].astype(str)
    answers = [OpenSetClassifier.load(folder / name).predict(test["embedding"]) for name in ("model", "model2")]
    for one in compared(folder).classes:
        rows, new_kind = truth == one.name, one.name in ("elk", "fox")
        before = answers[0][rows] == ("unknown" if new_kind else one.name)
        after = answers[1][rows] == one.name
        assert (one.rows, one.before, one.after) == (60, before.sum(), after.sum())
        assert (one.better, one.worse) == ((after & ~before).sum(), (before & ~after).sum())
        assert one.known == (not new_kind, True)
    found = compared(folder)
    assert found.right.value_a == pytest.approx(sum(one.after for one in found.classes) / 360)
    assert found.right.value_b == pytest.approx(sum(one.before for one in found.classes) / 360)


def test_a_class_that_gets_worse_is_told_with_its_test(folder: Path, tmp_path: Path) -> None:
    model = OpenSetClassifier.load(folder / "model")
    model.head_with_scores_.head.bias[0] -= 1e3  # it never answers the first class
    model.save(tmp_path / "worse")
    out = tmp_path / "classes.csv"
    words = ("compare-models", folder / "model", tmp_path / "worse", folder / "test.parquet", "-o", out)
    said = " ".join(run(*words).split())
    assert "Significant changes: 0 classes better, 1 worse." in said
    classes = read_columns(out)
    assert len(classes["class"]) == 6
    assert classes["class"][0] == "ant"
    assert classes["worse"][0] > 50
    assert classes["after"][0] == 0
    assert classes["p_value"][0] == pytest.approx(binomtest(0, int(classes["worse"][0])).pvalue)
    assert classes["p_holm"][0] == pytest.approx(6 * classes["p_value"][0])
    said = " ".join(run(*words[:1], words[2], words[1], *words[3:]).split())
    assert "Significant changes: 1 class better, 0 worse." in said


def test_equal_models(folder: Path) -> None:
    found = compared(folder, "model", "model")
    assert found.right.difference == 0.0
    assert tuple(found.right.interval) == (0.0, 0.0)
    assert {(one.better, one.worse, one.p_holm) for one in found.classes} == {(0, 0, 1.0)}
    said = run("compare-models", folder / "model", folder / "model", folder / "test.parquet")
    assert "No row is answered right by one of the models only" in said


def test_bad_input_is_said(folder: Path, tmp_path: Path) -> None:
    models, test = (folder / "model", folder / "model2"), read_columns(folder / "test.parquet")
    refused("compare-models", *models, folder / "test.parquet", "-o", tmp_path / "x.txt", match="has the suffix '.txt'")
    refused("compare-models", folder / "model", tmp_path, folder / "test.parquet", match="is not a model")
    write_columns(tmp_path / "no_labels.npz", {"embedding": test["embedding"]})
    refused("compare-models", *models, tmp_path / "no_labels.npz", match="has no column of labels")
    gaps = np.where(np.arange(360) < 3, "", test["intent"].astype(str))
    write_columns(tmp_path / "gaps.parquet", {"embedding": test["embedding"], "label": gaps})
    refused("compare-models", *models, tmp_path / "gaps.parquet", match="3 rows have no label in column 'label'")
