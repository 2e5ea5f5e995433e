"""What every metric must do: all of METRICS go through the same checks, so a new entry is covered by being there."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import UNKNOWN, Triple, order_preserving, random_triple, triples

from openauc import Evaluation, evaluate
from openauc.metrics.registry import METRICS, standard_metrics

pytestmark = pytest.mark.filterwarnings("ignore::openauc.metrics.ranking.ScoreDirectionWarning")

VARIANTS = {
    **METRICS,
    **{f"{name}, strict": m for name, m in standard_metrics(ties="strict").items() if name in ("openauc", "auroc")},
    "partial_openauc": standard_metrics(max_ofpr=0.1)["partial_openauc"],
    "partial_openauc, strict": standard_metrics(min_ofpr=0.2, max_ofpr=0.6, ties="strict")["partial_openauc"],
}

every_metric = pytest.mark.parametrize("metric", VARIANTS.values(), ids=VARIANTS)
shipped = pytest.mark.parametrize("name", METRICS)


def rounding(value: float):
    """Macro sums are added in the order of the samples, so their last bits may differ."""
    return pytest.approx(value, abs=1e-12)


@every_metric
@given(triple=triples(), data=st.data())
def test_order_of_the_samples_does_not_matter(metric, triple, data):
    order = data.draw(st.permutations(range(len(triple.y_true))))
    shuffled = tuple(column[list(order)] for column in triple)
    assert metric.function(*shuffled) == rounding(metric.function(*triple))


@every_metric
@given(triple=triples(), data=st.data())
def test_only_the_order_of_the_scores_matters(metric, triple, data):
    other = data.draw(order_preserving(triple.open_score))
    assert metric.function(triple.y_true, triple.y_pred, other) == metric.function(*triple)


@every_metric
@given(triple=triples(), names=st.permutations([0, 1, 2, 3, 4, 50, 10**12]))
def test_names_of_the_classes_do_not_matter(metric, triple, names):
    value = rounding(metric.function(*triple))
    numbers = np.array([*names, UNKNOWN])  # -1 is the last
    assert metric.function(numbers[triple.y_true], numbers[triple.y_pred], triple.open_score) == value
    words = np.array([*(f"class {n}" for n in names), str(UNKNOWN)])
    assert metric.function(words[triple.y_true], words[triple.y_pred], triple.open_score) == value


@every_metric
@given(triple=triples())
def test_counting_every_sample_twice_changes_nothing(metric, triple):
    twice = (np.concatenate([column, column]) for column in triple)
    assert metric.function(*twice) == rounding(metric.function(*triple))


@every_metric
@given(triple=triples())
def test_nothing_beats_a_perfect_model(metric, triple):
    unknown = triple.y_true == UNKNOWN
    # Unknown samples are given a class that has samples: one met only there would count, with a recall of 0.
    perfect = triple.y_true, np.where(unknown, triple.y_true.max(), triple.y_true), unknown.astype(float)
    value, best = metric.function(*triple), metric.function(*perfect)
    if metric.better == "higher":
        assert 0.0 <= value <= best + 1e-12
        assert best == rounding(metric.largest)
    else:
        assert 0.0 == best <= value <= 1.0


@every_metric
@pytest.mark.parametrize("seed", range(3))
def test_a_good_model_beats_a_random_one(metric, seed):
    good = random_triple(400, seed=seed, n_classes=4)
    rng = np.random.default_rng(seed)
    guess = good.y_true, rng.integers(0, 4, 400), rng.normal(size=400)
    if metric.better == "higher":
        assert metric.function(*good) > metric.function(*guess)
    else:
        assert metric.function(*good) < metric.function(*guess)


@every_metric
@pytest.mark.parametrize("decimals", [None, 1], ids=["continuous", "ties"])
def test_both_backends_agree_to_the_last_bit(monkeypatch, metric, decimals):
    triple = random_triple(5000, seed=1, decimals=decimals)
    found = []
    for backend in ("numpy", "numba"):
        monkeypatch.setenv("OPENAUC_BACKEND", backend)
        found.append(metric.function(*triple))
    assert found[0] == found[1]


@every_metric
def test_undefined_without_known_samples(metric):
    with pytest.raises(ValueError, match="no known sample"):
        metric.function([UNKNOWN, UNKNOWN], [0, 1], [0.0, 1.0])


@every_metric
def test_nan_is_refused(metric):
    with pytest.raises(ValueError, match="NaN for sample 1"):
        metric.function([0, UNKNOWN], [0, 1], [0.0, np.nan])


def weights_of(triple: Triple, data: st.DataObject) -> np.ndarray:
    """Whole weights, of which neither side has only zeros."""
    weight = np.array(data.draw(st.lists(st.integers(0, 3), min_size=len(triple.y_true), max_size=len(triple.y_true))))
    for side in (True, False):
        weight[np.flatnonzero((triple.y_true == UNKNOWN) == side)[0]] += 1
    return weight


@every_metric
@given(triple=triples(), data=st.data())
def test_a_weight_is_a_number_of_samples(metric, triple, data):
    weight = weights_of(triple, data)
    repeated = tuple(column[np.repeat(np.arange(len(weight)), weight)] for column in triple)
    value = rounding(metric.function(*repeated))
    assert metric.function(*triple, sample_weight=weight) == value
    assert metric.function(*triple, sample_weight=0.37 * weight) == value


@every_metric
def test_bad_weights_are_refused(metric):
    triple = [0, 1, UNKNOWN], [0, 1, 0], [0.0, 1.0, 2.0]
    for weight, message in [
        ([1, 1], "sample_weight has 2 entries but y_true has 3"),
        ([1, -1, 1], r"sample_weight is .*-1.* for sample 1; expected a finite number >= 0"),
        ([1, np.inf, 1], r"sample_weight is .*inf.* for sample 1"),
        ([1, np.nan, 1], "sample_weight is NaN for sample 1"),
        ([0, 0, 1], "sample_weight is 0 for every known sample"),
    ]:
        with pytest.raises(ValueError, match=message):
            metric.function(*triple, sample_weight=weight)
    if metric.needs_unknown:
        with pytest.raises(ValueError, match="sample_weight is 0 for every unknown sample"):
            metric.function(*triple, sample_weight=[1, 1, 0])


@given(triple=triples(), data=st.data())
def test_function_and_evaluate_agree_on_weights(triple, data):
    weight = weights_of(triple, data)
    values = evaluate(*triple, level=None, sample_weight=weight).values
    for name, metric in METRICS.items():
        assert values[name] == rounding(metric.function(*triple, sample_weight=weight)), name


@given(triple=triples())
def test_function_and_evaluate_agree(triple):
    values = evaluate(*triple, level=None).values
    assert values == {name: metric.function(*triple) for name, metric in METRICS.items()}


def noise(n: int) -> Triple:
    rng = np.random.default_rng(n)
    true = np.where(np.arange(n) % 2, UNKNOWN, rng.integers(0, 4, n))
    return Triple(true, rng.integers(0, 4, n), rng.normal(size=n))


def with_(triple: Triple, **columns) -> Triple:
    return triple._replace(**columns)


MODELS = {
    "small": random_triple(12, seed=1, n_classes=2),
    "medium": random_triple(100, seed=2, n_classes=4),
    "ties": random_triple(100, seed=3, n_classes=4, decimals=0),
    "large": random_triple(1000, seed=4),
    "noise": noise(200),
    "constant": with_(random_triple(60, seed=5, n_classes=3), open_score=np.zeros(60)),
    "perfect": Triple(
        np.array([0, 1, 2, 3, -1] * 10), np.array([0, 1, 2, 3, 0] * 10), np.array([0.0, 0, 0, 0, 1] * 10)
    ),
    "all wrong": Triple(np.array([0, 1, -1] * 10), np.array([1, 0, 0] * 10), np.arange(30.0) % 7),
    "one of each": Triple(np.array([0, -1]), np.array([0, 0]), np.array([0.0, 1.0])),
}


@pytest.fixture(scope="module")
def evaluations() -> dict[str, dict[float, Evaluation]]:
    levels = (0.5, 0.9, 0.99)
    return {
        name: {level: evaluate(*model, level=level, n_replicates=400) for level in levels}
        for name, model in MODELS.items()
    }


@shipped
@pytest.mark.parametrize("model", MODELS)
def test_interval_holds_the_value_and_stays_in_range(evaluations, model, name):
    for found in evaluations[model].values():
        low, high = found.intervals[name]
        assert 0.0 <= low <= high <= METRICS[name].largest
        if found.level > 0.5:  # half of all samples lie outside the central half
            assert low - 1e-12 <= found.values[name] <= high + 1e-12


@shipped
@pytest.mark.parametrize("model", MODELS)
def test_a_higher_level_gives_a_wider_interval(evaluations, model, name):
    inner, middle, outer = (evaluations[model][level].intervals[name] for level in (0.5, 0.9, 0.99))
    assert outer.low <= middle.low <= inner.low <= inner.high <= middle.high <= outer.high
    if model in ("medium", "large"):
        assert outer.high - outer.low > middle.high - middle.low > inner.high - inner.low > 0.0


@pytest.mark.parametrize("model", ["perfect", "one of each"])
def test_certainty_is_never_claimed_from_few_samples(evaluations, model):
    """Zero errors in fifty samples, let alone in two, leave room for a few percent of errors."""
    widths = {name: high - low for name, (low, high) in evaluations[model][0.99].intervals.items()}
    assert [name for name, width in widths.items() if width < 0.01] == []


@pytest.mark.parametrize("seed", range(3))
def test_intervals_do_not_depend_on_order_or_scale(seed):
    triple = random_triple(150, seed=seed, n_classes=3)
    order = np.random.default_rng(seed).permutation(150)
    shuffled = triple.y_true[order], triple.y_pred[order], np.exp(triple.open_score[order])
    one, two = (evaluate(*t, n_replicates=50) for t in (triple, shuffled))
    assert one.values == pytest.approx(dict(two.values))
    for name in METRICS:
        assert one.intervals[name] == pytest.approx(two.intervals[name]), name


@shipped
def test_description_is_complete(name):
    metric = METRICS[name]
    assert metric.label
    assert metric.better in ("higher", "lower")
    assert name.isidentifier()
    assert not hasattr(Evaluation, name), "the name would hide a method of Evaluation"


def test_everything_is_json(evaluations):
    for found in evaluations.values():
        json.dumps(found[0.9].to_dict(curves=True), allow_nan=False)
