"""Sentences say what happened, and no more."""

import numpy as np
import pytest

import openauc
from openauc import Predictions, audit, compare, evaluate
from openauc.report import sentences

from .conftest import predictions


def headline(**models: Predictions) -> str:
    evaluations = {name: evaluate(*triple, n_replicates=20) for name, triple in models.items()}
    comparison = compare(*models.values(), names=list(models)) if len(models) > 1 else None
    return sentences.headline(evaluations, comparison)


@pytest.mark.filterwarnings("ignore::openauc.ScoreDirectionWarning")
def test_a_clear_difference_is_called_one() -> None:
    said = headline(a=predictions(gap=0.2), b=predictions(gap=2.0))
    assert said.startswith("b is better than a by ")
    assert "p < 0.001" in said


def test_a_small_difference_is_too_close_to_call() -> None:
    one = predictions()
    other = one._replace(open_score=one.open_score + np.where(np.arange(len(one.y_true)) % 50 == 0, 0.05, 0))
    assert "too close to call" in headline(a=one, b=other)


def test_one_model_and_models_that_cannot_be_compared() -> None:
    evaluations = {"a": evaluate(*predictions(0), n_replicates=20), "b": evaluate(*predictions(1), n_replicates=20)}
    assert "ahead of" in sentences.headline(evaluations, None)
    assert sentences.headline({"a": evaluations["a"]}, None).startswith("a reaches an OpenAUC of")
    value = max(e.openauc for e in evaluations.values())
    assert f"In {round(100 * value)} of 100 such pairs" in sentences.meaning(evaluations)


@pytest.mark.filterwarnings("ignore::openauc.ScoreDirectionWarning")
@pytest.mark.parametrize(("gap", "weak"), [(5.0, "naming classes"), (0.0, "telling known from unknown")])
def test_losses_add_up_and_name_the_larger(gap: float, weak: str) -> None:
    evaluation = evaluate(*predictions(gap=gap), n_replicates=20)
    said = sentences.losses(evaluation)
    assert weak in said
    assert f"{100 * (1 - evaluation.closed_set_accuracy):.1f}\xa0% is lost" in said


def test_the_stories_are_those_of_the_audit() -> None:
    result = audit(*predictions())
    told = sentences.stories(result)
    assert len(told) == 3
    first = told[0]
    values = {label: (before, after) for label, before, after in first.changes}
    assert values["macro F-score"][0] == pytest.approx(values["macro F-score"][1], abs=1e-12)
    assert values["unknown samples rejected"][1] < values["unknown samples rejected"][0]
    assert "accepts every unknown sample" in first.title
    assert "OpenAUC falls from" in first.text
    parts = {label: (before, after) for label, before, after in told[2].changes}
    assert parts["AUROC"][0] == parts["AUROC"][1]


def test_a_perfect_model_leaves_nothing_to_exchange() -> None:
    result = audit([0, 1, -1, -1], [0, 1, 0, 1], [0.1, 0.2, 0.8, 0.9])
    told = sentences.stories(result)
    assert all("Nothing was exchanged" in story.text for story in told)


def test_openauc_that_stays_is_said_to_stay() -> None:
    # The misclassified sample ranks above the correct one, but no unknown one lies between them.
    result = audit([0, 1, 0, -1, -1], [0, 0, 0, 1, 0], [0.1, 0.2, 0.05, 0.9, 0.01])
    third = sentences.stories(result)[2]
    assert "OpenAUC stays at" in third.text
    assert openauc.openauc_score(result.y_true, result.y_pred, result.open_score) == third.changes[-1][2]


def test_table_1_keeps_its_reasons() -> None:
    columns, rows = sentences.table1(audit(*predictions()))
    assert columns == ["P1", "P2", "P3", "P4", "coupled"]
    assert {row["metric"] for row in rows} >= {"OpenAUC", "Open-set F-score"}
    assert all(verdict.because for row in rows for verdict in row["verdicts"])
