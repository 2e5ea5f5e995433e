"""The table of metrics: what it ships, under which names, and its options."""

import dataclasses

import pytest
from strategies import random_triple

from openauc.metrics import decision, ranking
from openauc.metrics.decision import DECISION_METRICS
from openauc.metrics.registry import METRICS, Metric, standard_metrics


def test_shipped_names():
    assert list(METRICS) == [
        "openauc",
        "auroc",
        "closed_set_accuracy",
        "fpr_at_95tpr",
        "error_at_95tpr",
        "ccr_at_10fpr",
        "average_precision_unknown",
        "average_precision_known",
        "detection_accuracy",
        "macro_f_score",
        "micro_f_score",
        "youden_index",
        "micro_youden_index",
        "normalized_accuracy",
        "acc_times_auc",
        "acc_plus_auc",
    ]
    assert set(DECISION_METRICS) <= set(METRICS)
    assert list(standard_metrics()) == list(METRICS)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("openauc", lambda *t: ranking.openauc_score(*t)),
        ("auroc", lambda *t: ranking.auroc_score(*t)),
        ("closed_set_accuracy", lambda *t: decision.closed_set_accuracy(*t)),
        ("fpr_at_95tpr", lambda *t: ranking.fpr_at_tpr(*t, tpr=0.95)),
        ("error_at_95tpr", lambda *t: ranking.error_at_tpr(*t, tpr=0.95)),
        ("ccr_at_10fpr", lambda *t: ranking.ccr_at_fpr(*t, fpr=0.1)),
        ("average_precision_unknown", lambda *t: ranking.average_precision(*t, positive="unknown")),
        ("average_precision_known", lambda *t: ranking.average_precision(*t, positive="known")),
        ("detection_accuracy", lambda *t: ranking.detection_accuracy(*t)),
        ("acc_times_auc", lambda *t: ranking.acc_times_auc(*t)),
        ("acc_plus_auc", lambda *t: ranking.acc_plus_auc(*t)),
        *((name, lambda *t, name=name: decision.threshold_sweep(*t).best(name).value) for name in DECISION_METRICS),
    ],
)
def test_a_name_means_what_it_says(name, value):
    triple = random_triple(300, seed=7)
    assert METRICS[name].function(*triple) == value(*triple)


def test_only_error_rates_are_better_when_lower():
    assert {name for name, metric in METRICS.items() if metric.better == "lower"} == {"fpr_at_95tpr", "error_at_95tpr"}


def test_labels_are_given_and_differ():
    labels = [metric.label for metric in METRICS.values()]
    assert all(labels)
    assert len(set(labels)) == len(labels)


def test_largest_is_the_value_of_a_perfect_model():
    perfect = [0, 1, -1, -1], [0, 1, 0, 1], [0.0, 0.0, 1.0, 1.0]
    for metric in METRICS.values():
        if metric.better == "higher":
            assert metric.function(*perfect) == metric.largest
        else:
            assert metric.function(*perfect) == 0.0


def test_strict_ties_reach_the_pairwise_metrics():
    tied = [0, 0, -1, -1], [0, 1, 0, 0], [0.0, 1.0, 1.0, 1.0]
    half, strict = standard_metrics(), standard_metrics(ties="strict")
    assert half["auroc"].function(*tied) == 0.75
    assert strict["auroc"].function(*tied) == 0.5
    tied = [0, 0, -1, -1], [0, 0, 0, 0], [0.0, 1.0, 1.0, 1.0]
    assert half["openauc"].function(*tied) == 0.75
    assert strict["openauc"].function(*tied) == 0.5


@pytest.mark.parametrize(
    ("options", "label"),
    [
        ({"max_ofpr": 0.1}, "partial OpenAUC, OFPR <= 0.1"),
        ({"min_ofpr": 0.2}, "partial OpenAUC, OFPR 0.2 to 1"),
        ({"min_ofpr": 0.2, "max_ofpr": 0.5}, "partial OpenAUC, OFPR 0.2 to 0.5"),
    ],
)
def test_a_range_adds_the_partial_metric_beside_the_full_one(options, label):
    metrics = standard_metrics(**options)
    assert list(metrics)[:2] == ["openauc", "partial_openauc"]
    assert set(metrics) == {*METRICS, "partial_openauc"}
    assert metrics["partial_openauc"].label == label
    triple = random_triple(300, seed=8)
    assert metrics["openauc"].function(*triple) == ranking.openauc_score(*triple)
    assert metrics["partial_openauc"].function(*triple) == ranking.openauc_score(*triple, **options)


def test_the_full_range_adds_nothing():
    assert list(standard_metrics(min_ofpr=0.0, max_ofpr=1.0)) == list(METRICS)


@pytest.mark.parametrize("options", [{"max_ofpr": 5}, {"min_ofpr": 0.5, "max_ofpr": 0.5}, {"min_ofpr": 1.0}])
def test_an_impossible_range_is_refused(options):
    with pytest.raises(ValueError, match="ofpr"):
        standard_metrics(**options)


def test_a_metric_is_immutable_and_needs_only_a_function():
    mine = Metric(function=lambda *_: 0.5)
    assert (mine.better, mine.label, mine.largest, mine.needs_unknown) == ("higher", "", 1.0, True)
    with pytest.raises(dataclasses.FrozenInstanceError):
        mine.better = "lower"
