"""Sentences say what happened, and no more."""

from typing import Any

import numpy as np
import pytest

import openauc
from openauc import Evaluation, Predictions, compare, evaluate
from openauc.comparison import Comparison
from openauc.metrics.counts import RankedSamples
from openauc.metrics.samples import read_samples
from openauc.report import predictions as page
from openauc.report.page import _templates

from .conftest import predictions


def say(sentence: str, *arguments: Any) -> str:
    return str(getattr(_templates().get_template("sentences.html").module, sentence)(*arguments))


def shown(evaluations: dict[str, Evaluation]) -> list[dict[str, Any]]:
    """The best first, as the page has them."""
    models = [{"name": name, "evaluation": evaluation} for name, evaluation in evaluations.items()]
    return sorted(models, key=lambda model: -model["evaluation"].openauc)


def audited(*triple: Any) -> dict[str, Any]:
    return page.audited(RankedSamples(read_samples(*triple)))


def headline(**models: Predictions) -> str:
    evaluations = {name: evaluate(*triple, n_replicates=20) for name, triple in models.items()}
    comparison: Comparison = compare(*models.values(), names=list(models))
    return say("headline", shown(evaluations), comparison)


@pytest.mark.filterwarnings("ignore::openauc.ScoreDirectionWarning")
def test_a_clear_difference_is_called_one() -> None:
    said = headline(a=predictions(gap=0.2), b=predictions(gap=2.0))
    assert said.startswith("b is better than a by ")
    assert "p &lt; 0.001" in said


def test_a_small_difference_is_too_close_to_call() -> None:
    one = predictions()
    other = one._replace(open_score=one.open_score + np.where(np.arange(len(one.y_true)) % 50 == 0, 0.05, 0))
    assert "too close to call" in headline(a=one, b=other)


def test_one_model_and_models_that_cannot_be_compared() -> None:
    evaluations = {"a": evaluate(*predictions(0), n_replicates=20), "b": evaluate(*predictions(1), n_replicates=20)}
    models = shown(evaluations)
    assert "ahead of" in say("headline", models, None)
    assert say("headline", models[:1], None).startswith(f"{models[0]['name']} reaches an OpenAUC of")
    value = max(e.openauc for e in evaluations.values())
    assert f"In {round(100 * value)} of 100 such pairs" in say("meaning", models[0])


@pytest.mark.filterwarnings("ignore::openauc.ScoreDirectionWarning")
@pytest.mark.parametrize(("gap", "weak"), [(5.0, "naming classes"), (0.0, "telling known from unknown")])
def test_losses_add_up_and_name_the_larger(gap: float, weak: str) -> None:
    evaluation = evaluate(*predictions(gap=gap), n_replicates=20)
    said = say("losses", evaluation)
    assert weak in said
    assert f"{100 * (1 - evaluation.closed_set_accuracy):.1f}\xa0% is lost" in said


def test_the_stories_are_those_of_the_audit() -> None:
    model = audited(*predictions())
    assert len(model["constructions"]) == 3
    values = {label: (before, after) for label, before, after in model["changes"][0]}
    assert values["macro F-score"][0] == pytest.approx(values["macro F-score"][1], abs=1e-12)
    assert values["unknown samples rejected"][1] < values["unknown samples rejected"][0]
    assert "accepts every unknown sample" in say("title", model["constructions"][0])
    assert "OpenAUC falls from" in say("story", model["constructions"][0])
    parts = {label: (before, after) for label, before, after in model["changes"][2]}
    assert parts["AUROC"][0] == parts["AUROC"][1]


def test_a_perfect_model_leaves_nothing_to_exchange() -> None:
    model = audited([0, 1, -1, -1], [0, 1, 0, 1], [0.1, 0.2, 0.8, 0.9])
    assert all("Nothing was exchanged" in say("story", construction) for construction in model["constructions"])


def test_openauc_that_stays_is_said_to_stay() -> None:
    # The misclassified sample ranks above the correct one, but no unknown one lies between them.
    triple = [0, 1, 0, -1, -1], [0, 0, 0, 1, 0], [0.1, 0.2, 0.05, 0.9, 0.01]
    model = audited(*triple)
    assert "OpenAUC stays at" in say("story", model["constructions"][2])
    assert openauc.openauc_score(*triple) == model["changes"][2][-1][2]


def test_table_1_keeps_its_reasons() -> None:
    table = audited(*predictions())["table1"]
    assert table.keys() >= {"OpenAUC", "Open-set F-score"}
    assert all(list(row) == ["P1", "P2", "P3", "P4", "coupled"] for row in table.values())
    assert all(verdict.because for row in table.values() for verdict in row.values())
