"""Thresholds: their guarantees against binomial theory and simulation, their optima against every alternative."""

import json
import math

import numpy as np
import oracles
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from strategies import UNKNOWN, fractions, random_triple, triples

from openauc.metrics.decision import open_set_f_score, threshold_sweep, unknown_fpr, unknown_tpr, youden_index
from openauc.metrics.operating import (
    TARGETS,
    Costs,
    choose_threshold,
    decide,
    order_statistic,
    smallest_sample,
    unknown_recall_bound,
)
from openauc.metrics.ranking import openauc_score

pytestmark = pytest.mark.filterwarnings("ignore::openauc.metrics.ranking.ScoreDirectionWarning")

SHARES = [0.05, 0.1, 0.5, 0.8, 0.9, 0.95, 0.99, 1 / 3, 2 / 3]


def known_only(score):
    return [0] * len(score), [0] * len(score), score


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("n", [1, 2, 19, 20, 99, 100, 1234])
def test_marginal_order_statistic_is_the_first_whose_mean_coverage_suffices(n, share):
    """The k-th of n uniforms is Beta(k, n + 1 - k), whose mean is the probability that a new one is below it."""
    k = np.arange(1, n + 1)
    enough = k[scipy.stats.beta.mean(k, n + 1 - k) >= share - 1e-9]
    assert order_statistic(n, share) == (enough[0] if len(enough) else n + 1)


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95, 0.999])
@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("n", [1, 5, 58, 59, 300, 3000])
def test_tolerance_order_statistic_is_the_binomial_quantile(n, share, confidence):
    enough = np.flatnonzero(scipy.stats.binom.cdf(np.arange(n + 1), n, share) >= confidence - 1e-12)
    k = order_statistic(n, share, confidence)
    assert k == enough[0] + 1
    if k <= n:
        assert scipy.stats.beta(k, n + 1 - k).sf(share) >= confidence - 1e-9
    if k > 1:
        assert scipy.stats.beta(k - 1, n + 2 - k).sf(share) < confidence


def test_tolerance_order_statistic_of_a_million_samples():
    exact = int(scipy.stats.binom.ppf(0.99, 10**6, 0.95)) + 1
    assert order_statistic(10**6, 0.95, 0.99) == exact


@pytest.mark.parametrize("n", [1000, 10**6])
def test_tolerance_order_statistic_near_certainty(n):
    confidence = 1 - 1e-12
    k = order_statistic(n, 0.5, confidence)
    assert k == pytest.approx(scipy.stats.binom.isf(1 - confidence, n, 0.5) + 1, abs=2)


@given(share=fractions().filter(lambda share: share < 1), confidence=st.none() | fractions().filter(lambda c: c < 1))
def test_smallest_sample_is_the_smallest(share, confidence):
    n = smallest_sample(share, confidence)
    assert order_statistic(n, share, confidence) <= n
    assert n == 1 or order_statistic(n - 1, share, confidence) == n


@pytest.mark.parametrize(
    ("share", "confidence", "n"), [(0.95, None, 19), (0.9, None, 9), (0.95, 0.95, 59), (0.9, 0.9, 22)]
)
def test_smallest_samples_of_the_textbooks(share, confidence, n):
    assert smallest_sample(share, confidence) == n


@pytest.mark.parametrize("n", [19, 60, 99])
@pytest.mark.parametrize("share", [0.8, 0.95])
def test_conformal_acceptance_on_average(n, share):
    """With continuous scores the mean acceptance is ceil((n + 1) share) / (n + 1), at least the share."""
    rng = np.random.default_rng(0)
    accepted = []
    for _ in range(700):
        score = rng.normal(size=n)
        point = choose_threshold(*known_only(score), target="known_acceptance", value=share)
        accepted.append(scipy.stats.norm.cdf(point.threshold))
    expected = math.ceil((n + 1) * share - 1e-9) / (n + 1)
    assert expected >= share - 1e-12
    assert np.mean(accepted) == pytest.approx(expected, abs=4 * np.std(accepted) / np.sqrt(len(accepted)))


@pytest.mark.parametrize("levels", [3, 10])
def test_conformal_acceptance_with_ties(levels):
    """Ties only help: every sample at the threshold is accepted."""
    rng = np.random.default_rng(1)
    accepted = []
    for _ in range(700):
        point = choose_threshold(*known_only(rng.integers(0, levels, 40)), target="known_acceptance", value=0.7)
        accepted.append((point.threshold + 1) / levels)
    assert np.mean(accepted) >= 0.7 - 4 * np.std(accepted) / np.sqrt(len(accepted))


@pytest.mark.parametrize(("target", "sign"), [("known_acceptance", 1), ("unknown_recall", -1)])
@pytest.mark.parametrize(("n", "share", "confidence"), [(59, 0.95, 0.95), (120, 0.9, 0.8), (200, 0.5, 0.99)])
def test_tolerance_limit_holds_with_its_confidence(target, sign, n, share, confidence):
    """The share of data sets whose threshold keeps the promise is the binomial probability of that order statistic."""
    rng = np.random.default_rng(2)
    kept, runs = 0, 600
    for _ in range(runs):
        score = np.append(rng.normal(size=n), 0.0)
        y_true = [0 if sign > 0 else UNKNOWN] * n + [UNKNOWN if sign > 0 else 0]
        point = choose_threshold(y_true, [0] * (n + 1), score, target=target, value=share, confidence=confidence)
        kept += scipy.stats.norm.cdf(sign * point.threshold) >= share
    k = order_statistic(n, share, confidence)
    exact = scipy.stats.binom.cdf(k - 1, n, share)
    assert exact >= confidence
    low, high = scipy.stats.binom(runs, exact).ppf([1e-4, 1 - 1e-4])
    assert low <= kept <= high


def test_conformal_recall_on_average():
    rng = np.random.default_rng(3)
    rejected = []
    for _ in range(700):
        score = np.append(rng.normal(size=39), 0.0)
        point = choose_threshold([UNKNOWN] * 39 + [0], [0] * 40, score, target="unknown_recall", value=0.9)
        rejected.append(scipy.stats.norm.sf(point.threshold))
    assert np.mean(rejected) == pytest.approx(0.9, abs=4 * np.std(rejected) / np.sqrt(len(rejected)))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@given(data=st.data())
def test_recall_counts_the_samples_at_the_threshold(dtype, data):
    """Ties, either float width, largest magnitudes: what is promised is what decide() does."""
    info = np.finfo(dtype)
    pool = [0.0, 1.0, float(np.nextafter(dtype(1), dtype(2))), float(info.max), float(info.min), np.inf]
    n = data.draw(st.integers(4, 12))
    score = np.array(data.draw(st.lists(st.sampled_from(pool), min_size=n, max_size=n)), dtype=dtype)
    share = data.draw(st.sampled_from([0.25, 0.5, 0.8]))
    y_true = [UNKNOWN] * n + [0]
    triple = y_true, [0] * (n + 1), np.append(score, dtype(0))
    point = choose_threshold(*triple, target="unknown_recall", value=share)
    rejected = np.mean(decide([0] * n, score, threshold=point.threshold) == UNKNOWN)
    assert rejected >= order_statistic(n, share) / n
    assert rejected == pytest.approx(point.unknown_rejected) == unknown_tpr(*triple, threshold=point.threshold)
    # No higher threshold would do: the next one up accepts the k-th largest score too.
    wide = score.astype(np.float64)
    higher = wide[wide > point.threshold].min()
    assert np.mean(wide > higher) < order_statistic(n, share) / n


def test_recall_that_no_threshold_reaches_is_not_promised():
    """Samples at -inf are never above a threshold, so they cannot be rejected."""
    y_true, score = [UNKNOWN] * 10 + [0], [-np.inf] * 9 + [1.0, 0.0]
    with pytest.raises(ValueError, match="inf"):
        choose_threshold(y_true, [0] * 11, score, target="unknown_recall", value=0.6)


def test_guarantee_says_what_is_promised():
    triple = random_triple(400, seed=1)
    marginal = choose_threshold(*triple, target="known_acceptance", value=0.9)
    assert marginal.guarantee is not None
    assert "a new known sample is accepted with probability at least 0.9" in marginal.guarantee
    assert f"n = {np.sum(triple.y_true != UNKNOWN)}" in marginal.guarantee
    assert (marginal.requested, marginal.target, marginal.objective) == (0.9, "known_acceptance", None)
    tolerance = choose_threshold(*triple, target="unknown_recall", value=0.8, confidence=0.95)
    assert tolerance.guarantee is not None
    assert "with confidence 0.95 at least 0.8 of unknown samples are rejected" in tolerance.guarantee
    assert "of the kind in the validation set" in tolerance.guarantee
    assert choose_threshold(*triple, target="youden_index").guarantee is None


def test_confidence_asks_for_a_safer_threshold():
    triple = random_triple(400, seed=2)
    plain, safe = (
        choose_threshold(*triple, target="known_acceptance", value=0.9, confidence=c).threshold for c in (None, 0.99)
    )
    assert safe > plain
    plain, safe = (
        choose_threshold(*triple, target="unknown_recall", value=0.9, confidence=c).threshold for c in (None, 0.99)
    )
    assert safe < plain


def test_known_acceptance_needs_no_unknown_sample():
    point = choose_threshold(*known_only(np.arange(19.0)), target="known_acceptance", value=0.95)
    assert point.threshold == 18.0
    assert point.known_accepted == 1.0
    assert point.unknown_rejected is None


@given(triple=triples(finite=True), target=st.sampled_from(["macro_f_score", "micro_f_score", "youden_index", "cost"]))
def test_point_reports_what_its_threshold_does(triple, target):
    point = choose_threshold(*triple, target=target)
    y_true, y_pred, score = triple.lists
    # What is predicted unknown is rejected at every threshold.
    score = [np.inf if pred == UNKNOWN else s for pred, s in zip(y_pred, score, strict=True)]
    # -inf rejects every sample in the table even where a score is -inf itself.
    threshold = None if point.threshold == -np.inf and point.known_accepted == 0 else point.threshold
    assert point.known_accepted == float(oracles.known_accepted(y_true, score, threshold))
    assert point.known_correct == float(oracles.cotpr(y_true, y_pred, score, threshold))
    assert point.unknown_rejected == pytest.approx(1 - float(oracles.ofpr(y_true, score, threshold)))


def test_no_threshold_accepts_what_the_classifier_itself_rejects():
    y_pred, score = [0, UNKNOWN] * 50, np.arange(100.0)
    with pytest.raises(ValueError, match=r"unknown for 50 of 100 .* share 0\.95.*smaller share"):
        choose_threshold([0] * 100, y_pred, score, target="known_acceptance", value=0.95)
    point = choose_threshold([0] * 100, y_pred, score, target="known_acceptance", value=0.4)
    accepted = np.mean(decide(y_pred, score, threshold=point.threshold) == 0)
    assert 0.4 <= accepted == point.known_accepted < 0.5
    all_rejected = choose_threshold([0, UNKNOWN], [UNKNOWN, UNKNOWN], [0.0, 1.0], target="cost")
    assert all_rejected.known_accepted == 0.0
    assert all_rejected.unknown_rejected == 1.0


def test_to_dict_is_strict_json():
    nothing_accepted = choose_threshold([0, UNKNOWN], [0, 0], [1.0, 0.0], target="cost", costs={"unknown_accepted": 9})
    assert nothing_accepted.threshold == -np.inf
    values = json.loads(json.dumps(nothing_accepted.to_dict(), allow_nan=False))
    assert float(values["threshold"]) == -np.inf
    assert values["costs"] == {
        "unknown_accepted": 9, "known_rejected": 1.0, "known_misclassified": 1.0, "unknown_share": 0.5
    }  # fmt: skip
    finite = choose_threshold([0, UNKNOWN], [0, 0], [0.0, 1.0], target="youden_index")
    assert finite.to_dict()["threshold"] == finite.threshold == 0.0


@given(triple=triples(), target=st.sampled_from(["macro_f_score", "micro_f_score", "youden_index"]))
def test_best_threshold_is_the_best_of_all(triple, target):
    point = choose_threshold(*triple, target=target)
    y_true, y_pred, score = triple.lists
    value = {
        "macro_f_score": lambda m: oracles.f_score(m, "macro"),
        "micro_f_score": lambda m: oracles.f_score(m, "micro"),
        "youden_index": lambda m: oracles.youden(m, "macro"),
    }[target]
    every = [value(oracles.confusion(y_true, y_pred, score, t, triple.classes)) for t in oracles.thresholds(score)]
    assert point.objective == pytest.approx(max(every), abs=1e-12)
    assert point.requested is None


def test_objective_is_the_metric_at_the_threshold():
    triple = random_triple(500, seed=3)
    point = choose_threshold(*triple, target="macro_f_score")
    assert point.objective == pytest.approx(open_set_f_score(*triple, threshold=point.threshold))
    point = choose_threshold(*triple, target="youden_index")
    assert point.objective == pytest.approx(youden_index(*triple, threshold=point.threshold))
    assert point.known_accepted == pytest.approx(1 - unknown_fpr(*triple, threshold=point.threshold))


def slow_cost(triple, threshold, costs: Costs) -> float:
    y_true, y_pred, score = triple.lists
    known, unknown = [], []
    for label, pred, r in zip(y_true, y_pred, score, strict=True):
        accepted = oracles.accepts(threshold, r) and pred != UNKNOWN
        if label == UNKNOWN:
            unknown.append(costs.unknown_accepted if accepted else 0.0)
        elif not accepted:
            known.append(costs.known_rejected)
        else:
            known.append(0.0 if pred == label else costs.known_misclassified)
    return (1 - costs.unknown_share) * np.mean(known) + costs.unknown_share * np.mean(unknown)


@given(
    triple=triples(),
    costs=st.builds(
        Costs,
        unknown_accepted=st.floats(0, 10),
        known_rejected=st.floats(0, 10),
        known_misclassified=st.floats(0, 10),
        unknown_share=st.floats(0, 1),
    ),
)
def test_cheapest_threshold_is_the_cheapest_of_all(triple, costs):
    point = choose_threshold(*triple, target="cost", costs=costs)
    every = [slow_cost(triple, t, costs) for t in oracles.thresholds(triple.lists[2])]
    assert point.objective == pytest.approx(min(every), abs=1e-9)
    assert point.costs == costs


def test_costs_as_a_mapping_or_by_default():
    triple = random_triple(300, seed=4)
    prices = {"unknown_accepted": 5.0, "unknown_share": 0.1}
    a = choose_threshold(*triple, target="cost", costs=prices)
    assert a == choose_threshold(*triple, target="cost", costs=Costs(**prices))
    assert choose_threshold(*triple, target="cost") == choose_threshold(*triple, target="cost", costs=Costs())
    dearer = choose_threshold(*triple, target="cost", costs={**prices, "unknown_accepted": 50.0})
    assert dearer.threshold < a.threshold


TRIPLE = ([0, 0, UNKNOWN, UNKNOWN], [0, 0, 0, 0], [0.0, 1.0, 2.0, 3.0])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"target": "known_aceptance", "value": 0.9}, "Did you mean 'known_acceptance'"),
        ({"target": "known_acceptance"}, "needs value=, the share wanted"),
        ({"target": "unknown_recall"}, "needs value="),
        ({"target": "youden_index", "value": 0.9}, "takes neither value nor confidence"),
        ({"target": "cost", "confidence": 0.9}, "takes neither value nor confidence"),
        ({"target": "macro_f_score", "costs": Costs()}, "costs belong to target 'cost', not to 'macro_f_score'"),
        ({"target": "known_acceptance", "value": 95}, "value is 95; expected a fraction"),
        ({"target": "known_acceptance", "value": 1.0}, r"fraction in \(0, 1\)"),
        ({"target": "known_acceptance", "value": 0.5, "confidence": 0.0}, "confidence is 0.0"),
        (
            {"target": "known_acceptance", "value": 0.9},
            "2 known validation samples are too few .* at least 9 are needed",
        ),
        (
            {"target": "unknown_recall", "value": 0.9, "confidence": 0.9},
            "2 unknown validation samples are too few .*rejected with confidence 0.9; at least 22 are needed",
        ),
        ({"target": "cost", "costs": {"unknown_share": 1.5}}, "unknown_share is 1.5"),
        ({"target": "cost", "costs": {"known_rejected": -1}}, "cost known_rejected is -1; expected a number >= 0"),
        ({"target": "cost", "costs": {"unknown_accepted": math.nan}}, "cost unknown_accepted is nan"),
        ({"target": "cost", "costs": {"unknown_accepted": math.inf}}, "cost unknown_accepted is inf"),
    ],
)
def test_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        choose_threshold(*TRIPLE, **arguments)


def test_misspelt_cost_is_refused():
    with pytest.raises(TypeError, match="unknown_acepted"):
        choose_threshold(*TRIPLE, target="cost", costs={"unknown_acepted": 1.0})


@pytest.mark.parametrize("target", [t for t in TARGETS if t != "known_acceptance"])
def test_every_other_target_needs_unknown_samples(target):
    value = {"value": 0.5} if target == "unknown_recall" else {}
    with pytest.raises(ValueError, match="no unknown sample"):
        choose_threshold([0, 0], [0, 0], [0.0, 1.0], target=target, **value)


def test_unknown_label_by_another_name():
    names = ["a", "a", "odd", "odd"], ["a"] * 4, [0.0, 1.0, 2.0, 3.0]
    assert choose_threshold(*names, target="youden_index", unknown_label="odd").threshold == 1.0


@given(triple=triples(), threshold=st.floats(allow_nan=False))
def test_decide_rejects_above_the_threshold(triple, threshold):
    _, y_pred, score = triple.lists
    # The threshold as a number of the scores' own type, as any threshold chosen from them is.
    with np.errstate(over="ignore"):
        threshold = float(triple.open_score.dtype.type(threshold))
    expected = [UNKNOWN if r > threshold else pred for pred, r in zip(y_pred, score, strict=True)]
    assert decide(triple.y_pred, triple.open_score, threshold=threshold).tolist() == expected


def test_decide_at_every_swept_threshold_agrees_with_the_sweep():
    triple = random_triple(200, seed=5, dtype=np.float32, decimals=1)
    unknown = triple.y_true == UNKNOWN
    sweep = threshold_sweep(*triple)
    for threshold, tpr in zip(sweep.threshold, sweep.unknown_tpr, strict=True):
        decided = decide(triple.y_pred, triple.open_score, threshold=threshold)
        assert np.mean(decided[unknown] == UNKNOWN) == pytest.approx(tpr)


def test_decide_with_names():
    assert decide(["a", "b"], [0.0, 1.0], threshold=0.5).tolist() == ["a", "-1"]
    assert decide(["a", "b"], [0.0, 1.0], threshold=0.5, unknown_label="unknown").tolist() == ["a", "unknown"]
    assert decide([4, 5], [0.0, 1.0], threshold=0.5, unknown_label=99).tolist() == [4, 99]


def test_decide_does_not_turn_numbers_into_names():
    with pytest.raises(TypeError, match="unknown_label is 'unknown'"):
        decide([1, 2], [0.0, 1.0], threshold=0.5, unknown_label="unknown")


@pytest.mark.parametrize(
    ("y_pred", "score", "threshold", "message"),
    [
        ([1, 2], [0.0], 0.5, "open_score has 1 entries but y_pred has 2"),
        ([1, 2], [0.0, np.nan], 0.5, "open_score is NaN for sample 1"),
        ([1, 2], [0.0, 1.0], np.nan, "threshold is NaN"),
    ],
)
def test_decide_refuses(y_pred, score, threshold, message):
    with pytest.raises(ValueError, match=message):
        decide(y_pred, score, threshold=threshold)


@given(triple=triples(), ties=st.sampled_from(["half", "strict"]))
def test_recall_bound_holds_at_every_threshold(triple, ties):
    """TPR >= 1 - (1 - k) / a, whatever the threshold that rejects a share a > 0 of the known samples."""
    y_true, _, score = triple.lists
    k = openauc_score(*triple, ties=ties)
    for t in oracles.thresholds(score):
        rejected = 1 - oracles.known_accepted(y_true, score, t)
        if rejected > 0:
            tpr = 1 - oracles.ofpr(y_true, score, t)
            assert float(tpr) >= unknown_recall_bound(k, float(rejected)) - 1e-12


def test_recall_bound_is_reached():
    """All known correct; unknown either above all known samples or below those rejected: equality."""
    y_true = [0] * 4 + [UNKNOWN] * 4
    score = [0, 0, 2, 2, 1, 3, 3, 3]
    k = openauc_score(y_true, [0] * 8, score)
    assert k == 0.875
    assert unknown_tpr(y_true, [0] * 8, score, threshold=1) == 0.75 == unknown_recall_bound(k, 0.5)


def test_recall_bound_by_hand():
    assert unknown_recall_bound(1.0, 0.01) == 1.0
    assert unknown_recall_bound(0.5, 0.25) == 0.0, "a negative bound says nothing"
    assert unknown_recall_bound(0.0, 1.0) == 0.0


@pytest.mark.parametrize(
    ("k", "a", "message"),
    [(1.5, 0.5, "openauc is 1.5"), (0.5, 0.0, "known_rejected is 0.0"), (0.5, 2, "known_rejected is 2")],
)
def test_recall_bound_refuses(k, a, message):
    with pytest.raises(ValueError, match=message):
        unknown_recall_bound(k, a)
