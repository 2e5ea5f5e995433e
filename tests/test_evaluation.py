"""evaluate(): one object with every number, that survives JSON, pickle and either backend unchanged."""

import copy
import json
import math
import pickle
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from strategies import UNKNOWN, random_triple, triples

from openauc import Evaluation, Interval, Metric, ScoreDirectionWarning, evaluate, standard_metrics
from openauc.intervals import wilson_interval
from openauc.metrics.decision import DECISION_METRICS, threshold_sweep
from openauc.metrics.ranking import auroc_score, fpr_at_tpr, openauc_score, oscr_curve, roc_curve
from openauc.metrics.registry import METRICS

TRIPLE = random_triple(120, seed=0, n_classes=4)


def run(*triple, **options) -> Evaluation:
    return evaluate(*(triple or TRIPLE), **{"n_replicates": 50, **options})


@pytest.fixture(scope="module")
def result() -> Evaluation:
    return run()


@pytest.mark.parametrize("kind", ["string", "category", object])
def test_series_of_pandas_with_names(kind):
    y_true, y_pred, score = pd.Series(list("aab")), pd.Series(list("aba")), pd.Series([0.5, 1.5, 1.0], dtype="Float64")
    found = run(y_true.astype(kind), y_pred.astype(kind), score, unknown_label="b")
    assert found.values == run(["a", "a", "b"], ["a", "b", "a"], [0.5, 1.5, 1.0], unknown_label="b").values
    mixed = run(pd.Categorical(y_true), y_pred.to_numpy(), score.to_list(), unknown_label="b")
    assert mixed.values == found.values


@pytest.mark.parametrize("kind", ["Int64", "int8", "UInt8", "float64", "category", object])
def test_series_of_pandas_with_numbers(kind):
    y_true, y_pred = pd.Series([0, 1, 2], index=[7, 3, 5]), pd.Series([0, 0, 1])
    score = pd.Series([1, 3, 2], dtype="Int64")
    found = run(y_true.astype(kind), y_pred.astype(kind), score, unknown_label=2)
    assert found.values == run([0, 1, 2], [0, 0, 1], [1, 3, 2], unknown_label=2).values


@pytest.mark.parametrize("kind", ["Int64", "float64", "category", "string"])
def test_labels_missing_in_pandas_are_located(kind):
    y_true = pd.Series([0, None, -1]).astype("Int64").astype(kind)
    with pytest.raises(ValueError, match="y_true is missing for sample 1"):
        run(y_true, [0, 0, 0], [1.0, 2.0, 3.0])


def test_every_metric_has_value_interval_direction_and_method(result):
    for mapping in (result.values, result.intervals, result.better, result.methods):
        assert list(mapping) == list(METRICS)
    assert result.n_known == np.sum(TRIPLE.y_true != UNKNOWN)
    assert result.n_unknown == np.sum(TRIPLE.y_true == UNKNOWN)
    assert result.level == 0.95
    assert all(isinstance(interval, Interval) for interval in result.intervals.values())
    assert all(type(value) is float for value in result.values.values())


def test_methods_say_how_an_interval_was_found(result):
    assert result.methods["openauc"] == result.methods["auroc"] == "DeLong, logit"
    assert result.methods["closed_set_accuracy"] == "Wilson"
    assert result.methods["fpr_at_95tpr"] == "bootstrap"
    assert result.methods["macro_f_score"] == "bootstrap, threshold held"
    accuracy = result.closed_set_accuracy
    n = result.n_known
    assert result.intervals["closed_set_accuracy"] == wilson_interval(round(accuracy * n), n)


def test_thresholds_belong_to_their_metrics(result):
    names = {"fpr_at_95tpr", "error_at_95tpr", "ccr_at_10fpr", "detection_accuracy", *DECISION_METRICS}
    assert set(result.thresholds) == names
    y_true, _, score = TRIPLE
    known, unknown = score[y_true != UNKNOWN], score[y_true == UNKNOWN]
    at = result.thresholds["fpr_at_95tpr"]
    assert np.mean(unknown > at) >= 0.95
    assert np.mean(known > at) == pytest.approx(result.fpr_at_95tpr)
    wrong = np.sum(known > at) + np.sum(unknown <= at)
    assert wrong / len(score) == pytest.approx(result.error_at_95tpr)
    at = result.thresholds["detection_accuracy"]
    assert 0.5 * (np.mean(known <= at) + np.mean(unknown > at)) == pytest.approx(result.detection_accuracy)
    at = result.thresholds["ccr_at_10fpr"]
    right = (TRIPLE.y_pred == y_true)[y_true != UNKNOWN]
    assert np.mean(unknown <= at) <= 0.1
    assert np.mean((known <= at) & right) == pytest.approx(result.ccr_at_10fpr)
    sweep = threshold_sweep(*TRIPLE)
    for name in DECISION_METRICS:
        assert (result.values[name], result.thresholds[name]) == sweep.best(name)


def test_curves_are_those_of_the_functions(result):
    assert set(result.curves) == {"oscr", "roc", *DECISION_METRICS}
    for name, curve in (("oscr", oscr_curve(*TRIPLE)), ("roc", roc_curve(*TRIPLE))):
        for field in ("x", "y", "threshold"):
            assert np.array_equal(getattr(result.curves[name], field), getattr(curve, field))
    assert result.curves["oscr"].area() == pytest.approx(result.openauc)


def test_level_none_gives_values_only(result):
    plain = run(level=None)
    assert plain.values == result.values
    assert plain.thresholds == result.thresholds
    assert (plain.level, dict(plain.intervals), dict(plain.methods)) == (None, {}, {})


def test_seeds_matter_where_there_is_a_bootstrap(result):
    assert run(rng=0) == result
    other = run(rng=1)
    assert other.values == result.values
    for name, method in result.methods.items():
        same = other.intervals[name] == result.intervals[name]
        assert same == (not method.startswith("bootstrap")), name
    assert run(rng=np.random.default_rng(0)) == result
    generator = np.random.default_rng(0)
    assert run(rng=generator) != run(rng=generator), "a generator goes on"


@pytest.mark.parametrize("decimals", [None, 1], ids=["continuous", "ties"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [40, 3000])
def test_both_backends_give_the_identical_evaluation(monkeypatch, n, dtype, decimals):
    triple = random_triple(n, seed=n, dtype=dtype, decimals=decimals)
    metrics = standard_metrics(min_ofpr=0.05, max_ofpr=0.3)
    found = {}
    for backend in ("numpy", "numba"):
        monkeypatch.setenv("OPENAUC_BACKEND", backend)
        found[backend] = run(*triple, metrics=metrics, n_replicates=100)
    assert found["numpy"] == found["numba"]
    assert found["numpy"].to_dict(curves=True) == found["numba"].to_dict(curves=True)


def test_unknown_backend_is_refused(monkeypatch):
    monkeypatch.setenv("OPENAUC_BACKEND", "nunba")
    with pytest.raises(ValueError, match=r"OPENAUC_BACKEND is 'nunba'.*Did you mean 'numba'"):
        run()


@pytest.mark.parametrize(
    "convert",
    [
        lambda true, pred, score: (true.tolist(), pred.tolist(), score.tolist()),
        lambda true, pred, score: (pd.Series(true), pd.Series(pred), pd.Series(score)),
        lambda true, pred, score: tuple(map(torch.from_numpy, (true, pred, score))),
    ],
    ids=["lists", "pandas", "torch"],
)
def test_whatever_the_caller_holds(result, convert):
    assert run(*convert(*TRIPLE)) == result


def test_names_and_another_unknown_label(result):
    names = np.array(["a", "b", "c", "d", "?"])  # -1 is the last
    assert run(names[TRIPLE.y_true], names[TRIPLE.y_pred], TRIPLE.open_score, unknown_label="?") == result
    marked = np.where(TRIPLE.y_true == UNKNOWN, 77, TRIPLE.y_true)
    assert run(marked, TRIPLE.y_pred, TRIPLE.open_score, unknown_label=77) == result


@given(triple=triples())
@settings(max_examples=60)
@pytest.mark.filterwarnings("ignore::openauc.ScoreDirectionWarning", "error::RuntimeWarning")
def test_any_small_triple_is_evaluated(triple):
    found = run(*triple, metrics=standard_metrics(max_ofpr=0.3), n_replicates=10)
    for name, (low, high) in found.intervals.items():
        assert math.isfinite(found.values[name])
        assert -1.0 <= low <= high <= 2.0
    text = json.dumps(found.to_dict(curves=True), allow_nan=False)
    assert Evaluation.from_dict(json.loads(text)) == found


def gap(y_true, _, score) -> float:
    return float(np.mean(score[y_true == UNKNOWN]) - np.mean(score[y_true != UNKNOWN]))


def test_a_metric_of_ones_own():
    found = run(metrics={"openauc": METRICS["openauc"], "gap": Metric(function=gap, better="lower")}, n_replicates=200)
    assert found.gap == gap(*TRIPLE)
    assert found.better["gap"] == "lower"
    assert found.methods["gap"] == "bootstrap"
    # The bootstrap of a difference of means is known: normal with this standard error.
    unknown = TRIPLE.y_true == UNKNOWN
    error = math.sqrt(sum(side.var() / len(side) for side in (TRIPLE.open_score[unknown], TRIPLE.open_score[~unknown])))
    low, high = found.intervals["gap"]
    assert (high - low) / (2 * 1.96 * error) == pytest.approx(1.0, abs=0.2)


def test_a_metric_of_ones_own_sees_the_default_unknown_label():
    marked = np.where(TRIPLE.y_true == UNKNOWN, 77, TRIPLE.y_true)
    found = run(marked, TRIPLE.y_pred, TRIPLE.open_score, metrics={"gap": Metric(function=gap)}, unknown_label=77)
    assert found == run(metrics={"gap": Metric(function=gap)})


@pytest.mark.parametrize("name", METRICS)
def test_a_shipped_metric_under_another_name(result, name):
    found = run(metrics={"mine": METRICS[name]})
    assert found.mine == result.values[name]
    assert found.intervals["mine"] == result.intervals[name]


def test_equal_weights_change_nothing(result):
    for weight in (1.0, 0.2):
        found = run(sample_weight=np.full(120, weight))
        assert found.values == pytest.approx(dict(result.values))
        for name, interval in result.intervals.items():
            width = interval.high - interval.low
            assert found.intervals[name] == pytest.approx(interval, abs=0.3 * width + 1e-6), name
        assert (found.n_known, found.n_unknown) == (result.n_known, result.n_unknown)


def test_unequal_weights_widen_the_interval_by_the_effective_number_of_samples():
    """Half the samples weighing three times as much: (1 + 3)^2 / (2 (1 + 9)) = 0.8 of their number."""
    triple = random_triple(4000, seed=5, n_classes=4)
    weight = np.where(np.random.default_rng(0).random(4000) < 0.5, 1.0, 3.0)
    plain, weighted = run(*triple, n_replicates=1000), run(*triple, sample_weight=weight, n_replicates=1000)
    for name, interval in plain.intervals.items():
        if name == "normalized_accuracy":
            continue  # which rests on the few samples beyond an extreme threshold
        found = weighted.intervals[name]
        assert (found.high - found.low) / (interval.high - interval.low) == pytest.approx(0.8**-0.5, rel=0.15), name


def test_weights_reach_a_function_of_ones_own():
    def mean(y_true, _, score, sample_weight=None):
        return float(np.average(score, weights=sample_weight))

    weight = np.arange(1.0, 121.0)
    found = run(metrics={"mean": Metric(function=mean)}, sample_weight=weight)
    assert found.mean == pytest.approx(np.average(TRIPLE.open_score, weights=weight))
    low, high = found.intervals["mean"]
    assert low < found.mean < high
    with pytest.raises(TypeError, match="sample_weight"):
        run(metrics={"gap": Metric(function=gap)}, sample_weight=weight)


def test_metrics_that_need_no_unknown_sample():
    known = [column[TRIPLE.y_true != UNKNOWN] for column in TRIPLE]
    found = run(*known, metrics={"closed_set_accuracy": METRICS["closed_set_accuracy"]})
    assert found.closed_set_accuracy == run().closed_set_accuracy
    assert (found.n_unknown, dict(found.curves)) == (0, {})
    share = Metric(function=lambda y_true, y_pred, _: float(np.mean(y_true == y_pred)), needs_unknown=False)
    mine = run(*known, metrics={"share": share})
    assert mine.share == found.closed_set_accuracy
    assert mine.intervals["share"].low < mine.share < mine.intervals["share"].high
    with pytest.raises(ValueError, match="no unknown sample"):
        run(*known, metrics={"openauc": METRICS["openauc"], "share": share})


def test_an_infinite_value_is_still_json():
    found = run(metrics={"ratio": Metric(function=lambda *_: math.inf)}, level=None)
    again = Evaluation.from_dict(json.loads(json.dumps(found.to_dict(), allow_nan=False)))
    assert again.ratio == math.inf


def test_options_of_the_shipped_metrics():
    tied = random_triple(200, seed=3, decimals=0)
    strict = run(*tied, metrics=standard_metrics(ties="strict", max_ofpr=0.2))
    assert strict.openauc == openauc_score(*tied, ties="strict") < openauc_score(*tied)
    assert strict.partial_openauc == openauc_score(*tied, ties="strict", max_ofpr=0.2)
    assert strict.auroc == auroc_score(*tied, ties="strict")


def test_attributes_are_values(result):
    assert result.openauc == result.values["openauc"] == openauc_score(*TRIPLE)
    assert result.fpr_at_95tpr == fpr_at_tpr(*TRIPLE)
    with pytest.raises(AttributeError, match="no metric 'opnauc' here; there are openauc, auroc"):
        result.opnauc  # noqa: B018
    assert not hasattr(result, "_private")


def test_it_cannot_be_changed(result):
    with pytest.raises(AttributeError):
        result.n_known = 3
    for mapping in (result.values, result.intervals, result.thresholds, result.better, result.methods, result.curves):
        with pytest.raises(TypeError):
            mapping["openauc"] = 1.0


def test_it_does_not_follow_the_mappings_it_was_made_of():
    values = {"openauc": 0.5}
    found = Evaluation(1, 1, values, {}, {}, {"openauc": "higher"}, {}, None)
    values["openauc"] = 0.9
    assert found.openauc == 0.5


def test_dict_and_back(result):
    assert Evaluation.from_dict(result.to_dict()) == result
    text = json.dumps(result.to_dict(), allow_nan=False)
    again = Evaluation.from_dict(json.loads(text))
    assert again == result
    assert isinstance(again.intervals["openauc"], Interval)
    assert dict(again.curves) == {}
    assert set(result.to_dict()) == {
        "n_known", "n_unknown", "level", "values", "intervals", "thresholds", "better", "methods"
    }  # fmt: skip


def test_dict_with_curves_and_back(result):
    text = json.dumps(result.to_dict(curves=True), allow_nan=False)
    again = Evaluation.from_dict(json.loads(text))
    assert again == result
    assert set(again.curves) == set(result.curves)
    for name, curve in result.curves.items():
        for field in ("x", "y", "threshold"):
            assert np.array_equal(getattr(again.curves[name], field), getattr(curve, field)), (name, field)
        assert (again.curves[name].x_label, again.curves[name].y_label) == (curve.x_label, curve.y_label)


def test_infinite_thresholds_are_strings_in_json():
    reversed_scores = [0, 0, UNKNOWN, UNKNOWN], [0, 1, 0, 0], [1.0, 2.0, 0.0, 0.0]
    with pytest.warns(ScoreDirectionWarning):
        found = run(*reversed_scores)
    assert found.thresholds["fpr_at_95tpr"] == -math.inf
    values = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert values["thresholds"]["fpr_at_95tpr"] == "-inf"
    assert Evaluation.from_dict(values) == found


def test_different_results_differ(result):
    changed = result.to_dict()
    changed["values"]["openauc"] += 1e-9
    assert Evaluation.from_dict(changed) != result


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda e: pickle.loads(pickle.dumps(e))])
def test_copies_and_pickles(result, duplicate):
    again = duplicate(result)
    assert again == result
    assert again.openauc == result.openauc
    assert np.array_equal(again.curves["oscr"].y, result.curves["oscr"].y)


def test_text():
    found = run([0, 1, 1, -1, -1], [0, 1, 0, 1, 0], [0.1, 0.6, 0.2, 0.5, 0.9])
    lines = str(found).splitlines()
    assert lines[0] == "3 known, 2 unknown samples"
    assert len(lines) == 1 + len(METRICS)
    low, high = found.intervals["openauc"]
    assert lines[1].split() == ["openauc", "0.5000", f"[{low:.4f},", f"{high:.4f}]"]
    (fpr,) = [line for line in lines if line.startswith("fpr_at_95tpr")]
    assert fpr.endswith("at 0.2")
    assert "[" not in str(run(level=None))
    assert str(Evaluation(1, 2, {}, {}, {}, {}, {}, None)) == "1 known, 2 unknown samples"


@pytest.fixture
def pyplot():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    yield pyplot
    pyplot.close("all")


def test_plot_draws_the_oscr_curve(result, pyplot):
    axes = result.plot()
    (line,) = axes.lines
    assert np.array_equal(line.get_xdata(), result.curves["oscr"].x)
    assert np.array_equal(line.get_ydata(), result.curves["oscr"].y)
    assert axes.get_legend().get_texts()[0].get_text() == f"OpenAUC {result.openauc:.4f}"
    assert "OFPR" in axes.get_xlabel()
    assert "COTPR" in axes.get_ylabel()


def test_plot_into_given_axes(result, pyplot):
    _, axes = pyplot.subplots()
    assert result.plot(axes) is axes
    result.plot(ax=axes)
    assert len(axes.lines) == 2


def test_plot_without_openauc_among_the_metrics(pyplot):
    assert len(run(metrics={"auroc": METRICS["auroc"]}).plot().lines) == 1


def test_plot_without_curves_says_so(result, pyplot):
    with pytest.raises(ValueError, match="curves"):
        Evaluation.from_dict(result.to_dict()).plot()


def test_plot_without_matplotlib(result, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"plot\(\) needs matplotlib .*: pip install 'openauc\[plot\]'"):
        result.plot()


def test_reversed_scores_are_pointed_out():
    with pytest.warns(ScoreDirectionWarning, match=r"AUROC is 0\.\d+, below 0\.5.*pass -open_score") as caught:
        run(TRIPLE.y_true, TRIPLE.y_pred, -TRIPLE.open_score)
    assert [str(w.filename) for w in caught] == [__file__], "once, and pointing at the caller"


def test_a_good_score_passes_in_silence():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run()


@pytest.mark.parametrize(
    ("triple", "options", "message"),
    [
        (([0, 1], [0, 1], [0.0, 1.0]), {}, "no unknown sample"),
        (([-1, -1], [0, 1], [0.0, 1.0]), {}, "no known sample"),
        (([0, -1], [0, 1], [0.0, math.nan]), {}, "open_score is NaN for sample 1"),
        (([0, -1], [0], [0.0, 1.0]), {}, "y_pred has 1 entries"),
        (TRIPLE, {"level": 95}, "level is 95; expected a fraction"),
        (TRIPLE, {"level": 0.0}, "level is 0.0"),
        (TRIPLE, {"n_replicates": 1}, "n_replicates is 1; a bootstrap needs at least 2"),
    ],
)
def test_refused(triple, options, message):
    with pytest.raises(ValueError, match=message):
        run(*triple, **options)
