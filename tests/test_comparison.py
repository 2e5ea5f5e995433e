"""Paired comparisons: against slow twins, by enumeration, and by seeded simulation."""

import json
import math
from functools import partial
from itertools import pairwise, product

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from strategies import UNKNOWN, Triple, triples

from openauc import evaluate
from openauc.comparison import compare, difference_interval, holm
from openauc.intervals import normal_quantile, percentile_interval, seed_of
from openauc.metrics import ranking
from openauc.metrics.counts import RankedSamples
from openauc.metrics.registry import METRICS, Metric, PairMetric, Resamples
from openauc.metrics.samples import read_samples

pytestmark = pytest.mark.filterwarnings("ignore::openauc.metrics.ranking.ScoreDirectionWarning")


def slow_kernel(triple, ties, *, with_wrong) -> np.ndarray:
    """psi(known, unknown) of every pair, by a double loop."""
    samples = list(zip(*triple.lists, strict=True))
    known = [s for s in samples if s[0] != UNKNOWN]
    unknown = [s for s in samples if s[0] == UNKNOWN]
    psi = np.zeros((len(known), len(unknown)))
    for (i, (true, pred, low)), (j, (_, _, high)) in product(enumerate(known), enumerate(unknown)):
        if with_wrong or true == pred:
            psi[i, j] = 1.0 if low < high else 0.5 if low == high and ties == "half" else 0.0
    return psi


def slow_variance(psi) -> float:
    """DeLong, DeLong and Clarke-Pearson (1988): S10 / m + S01 / n, from the components one by one."""
    total, parts = psi.mean(), 0.0
    for components in ([row.mean() for row in psi], [column.mean() for column in psi.T]):
        parts += sum((c - total) ** 2 for c in components) / (len(components) - 1) / len(components)
    return parts


def simulate_pair(n_known, n_unknown, rng, *, gain: float = 0.0) -> tuple[Triple, Triple]:
    """Two equally good models whose scores share half their variance; ``gain`` separates the second better."""
    n = n_known + n_unknown
    true = np.concatenate([rng.integers(0, 3, n_known), np.full(n_unknown, UNKNOWN)])
    shared = rng.normal(size=n)
    models = []
    for extra in (0.0, gain):
        score = (shared + rng.normal(size=n)) / math.sqrt(2) + (1.0 + extra) * (true == UNKNOWN)
        pred = np.where((rng.random(n) < 0.8) & (true != UNKNOWN), true, rng.integers(0, 3, n))
        models.append(Triple(true, pred, score))
    return models[0], models[1]


def unseen(n, *values) -> float:
    """Two more samples of n, one lost by either model; half as much after four losses."""
    lost = n * min(min(value, 1 - value) for value in values)
    return 2 / n**2 / (1 + lost / 4)


@pytest.mark.parametrize(("name", "with_wrong"), [("openauc", False), ("auroc", True)])
@given(data=st.data())
def test_paired_variance_against_the_slow_covariance(name, with_wrong, data):
    """var(A) + var(B) - 2 cov(A, B), each from the components of the double loop."""
    a = data.draw(triples())
    b = Triple(
        a.y_true, data.draw(st.permutations(a.y_pred.tolist())), data.draw(st.permutations(a.open_score.tolist()))
    )
    b = Triple(a.y_true, np.array(b.y_pred), np.array(b.open_score, dtype=a.open_score.dtype))
    psi = [slow_kernel(model, "half", with_wrong=with_wrong) for model in (a, b)]
    if min(psi[0].shape) < 2:
        return
    variance = slow_variance(psi[0]) + slow_variance(psi[1])
    for axis in (0, 1):
        components = [p.mean(axis=axis) for p in psi]
        variance -= 2 * np.cov(*components)[0, 1] / len(components[0])
    (found,) = compare(a, b, metrics=[name]).differences
    assert found.difference == pytest.approx(psi[0].mean() - psi[1].mean())
    if found.interval == (0.0, 0.0):
        return  # they say the same of every sample
    apart = [psi[0].mean(axis=axis) - psi[1].mean(axis=axis) for axis in (1, 0)]
    error = math.sqrt(variance + unseen(min(psi[0].shape), found.value_a, found.value_b))
    z = normal_quantile(0.95)
    skew = sum(np.mean((side - side.mean()) ** 3) / len(side) ** 2 for side in apart) / error**2
    middle = found.difference + skew * (2 * z**2 + 1) / 6
    expected = min(middle - z * error, found.difference), max(middle + z * error, found.difference)
    assert found.interval == pytest.approx(expected, abs=1e-7)
    away = max(middle * np.sign(found.difference), 0.0)
    p_value = max(2 * scipy.stats.norm.sf(away / error), 2.0 ** (1 - len(a.y_true)))
    assert found.p_value == pytest.approx(p_value, abs=1e-6)


def test_accuracy_is_compared_by_its_discordant_pairs():
    """For a rate the influences are 0 or 1: McNemar's test, but for what may be unseen and the skewness."""
    a, b = simulate_pair(200, 50, np.random.default_rng(0))
    known = a.y_true != UNKNOWN
    gap = ((a.y_pred == a.y_true).astype(int) - (b.y_pred == b.y_true).astype(int))[known]
    (found,) = compare(a, b, metrics=["closed_set_accuracy"]).differences
    assert found.difference == pytest.approx(gap.mean())
    error = math.sqrt(gap.var(ddof=1) / len(gap) + unseen(200, found.value_a, found.value_b))
    skew = np.mean((gap - gap.mean()) ** 3) / len(gap) ** 2 / error**2
    z = (gap.mean() + skew * (2 * normal_quantile(0.95) ** 2 + 1) / 6) / error
    assert found.p_value == pytest.approx(2 * scipy.stats.norm.sf(abs(z)))
    assert z == pytest.approx(gap.mean() / gap.std() * math.sqrt(len(gap)), abs=0.15), "all but McNemar's"


def test_equal_models_are_called_different_as_often_as_promised():
    rng = np.random.default_rng(7)
    names = ("openauc", "auroc", "closed_set_accuracy")
    runs = 500
    rejected = dict.fromkeys(names, 0)
    covered = dict.fromkeys(names, 0)
    for _ in range(runs):
        for d in compare(*simulate_pair(120, 100, rng), metrics=names).differences:
            rejected[d.metric] += d.p_value < 0.05
            covered[d.metric] += d.interval.low <= 0.0 <= d.interval.high
    for name in names:
        assert 0.025 <= rejected[name] / runs <= 0.08, name
        assert covered[name] + rejected[name] == runs, "interval and test agree"


@pytest.mark.parametrize(("better", "worse"), [(0.999, 0.99), (0.99, 0.97), (0.97, 0.97)])
@pytest.mark.parametrize("n", [30, 100, 300])
def test_differences_near_the_ceiling_are_covered(n, better, worse):
    """Half is lost to wrong classes, and what the better model loses the worse one loses too; of 300 data sets 93 %."""
    rng = np.random.default_rng(3)
    true = np.repeat([0, UNKNOWN], n)
    covered = 0
    for _ in range(300):
        shared, fate = rng.normal(size=2 * n), rng.random(2 * n)
        models = []
        for truth in (better, worse):
            right = (1 + truth) / 2
            shift = math.sqrt(2) * scipy.stats.norm.ppf(truth / right)
            score = (shared + rng.normal(size=2 * n)) / math.sqrt(2) + shift * (true == UNKNOWN)
            models.append(Triple(true, np.where((true == 0) & (fate > right), 1, 0), score))
        (d,) = compare(*models, metrics=["openauc"]).differences
        covered += d.interval.low <= better - worse <= d.interval.high
    assert covered >= 0.93 * 300


def test_a_better_model_is_found():
    models = simulate_pair(600, 600, np.random.default_rng(8), gain=0.8)
    for d in compare(*models, metrics=["openauc", "auroc", "detection_accuracy"], n_replicates=150).differences:
        assert d.difference < 0
        assert d.interval.high < 0
        assert d.p_value < 0.01


def quick_auc(y_true, _, score) -> float:
    known, unknown = score[y_true != UNKNOWN], score[y_true == UNKNOWN]
    return float((known[:, None] < unknown).mean())


def test_permutation_p_values_are_uniform_for_exchangeable_models():
    rng = np.random.default_rng(9)
    metrics = {"mine": Metric(function=quick_auc)}
    p_values = []
    for run in range(300):
        (d,) = compare(*simulate_pair(15, 15, rng), metrics=metrics, n_replicates=39, rng=run).differences
        assert d.method == "bootstrap, permutation"
        p_values.append(d.p_value)
    # P-values are multiples of 1/40; three standard errors of 300 runs.
    for alpha in (0.05, 0.1, 0.25, 0.5, 0.75):
        band = 3 * math.sqrt(alpha * (1 - alpha) / 300) + 0.005
        assert np.mean(np.array(p_values) <= alpha + 1e-9) == pytest.approx(alpha, abs=band)


def test_permutation_p_value_by_enumeration():
    """Three samples, so eight swaps: the p-value approaches their exact share."""
    true = np.array([0, 0, UNKNOWN])
    pred = np.array([0, 0, 0])
    a, b = Triple(true, pred, np.array([0.0, 1.0, 2.0])), Triple(true, pred, np.array([1.0, 2.0, 0.0]))
    observed = abs(quick_auc(*a) - quick_auc(*b))
    scores = np.stack([a.open_score, b.open_score])
    extreme = 0
    for swap in product((0, 1), repeat=3):
        one, two = scores[list(swap), [0, 1, 2]], scores[[1 - s for s in swap], [0, 1, 2]]
        extreme += abs(quick_auc(true, pred, one) - quick_auc(true, pred, two)) >= observed
    (d,) = compare(a, b, metrics={"mine": Metric(function=quick_auc)}, n_replicates=4000).differences
    assert d.p_value == pytest.approx(extreme / 8, abs=0.03)


def replicates(metric, triple, n, seed):
    resamples = Resamples(RankedSamples(read_samples(*triple)), n, seed)
    return metric.replicates(metric.measure(resamples.ranked), resamples)


def test_bootstrap_interval_of_a_plain_function_is_paired():
    a, b = simulate_pair(60, 60, np.random.default_rng(10))
    mine = {"mine": Metric(function=ranking.detection_accuracy)}
    (d,) = compare(a, b, metrics=mine, n_replicates=60, rng=4).differences
    draws = [replicates(mine["mine"], model, 60, seed_of(4)) for model in (a, b)]
    assert d.interval == percentile_interval(draws[0] - draws[1])
    (d,) = compare(a, a, metrics=mine, n_replicates=20).differences
    assert (d.difference, d.interval, d.p_value) == (0.0, (0.0, 0.0), 1.0)


@pytest.mark.parametrize("name", [name for name, metric in METRICS.items() if not isinstance(metric, PairMetric)])
def test_the_spread_of_a_difference_is_that_of_resampled_pairs(name):
    """Every metric against 300 paired resamples of its plain function, of models that share half their noise."""
    a, b = simulate_pair(700, 500, np.random.default_rng(20))
    (found,) = compare(a, b, metrics=[name], rng=1).differences
    first, second = (replicates(Metric(function=METRICS[name].function), model, 300, 5) for model in (a, b))
    spread = (found.interval.high - found.interval.low) / (2 * normal_quantile(0.95))
    apart = (first - second).std(ddof=1)
    if name == "normalized_accuracy":
        return  # its best threshold jumps from resample to resample
    assert spread == pytest.approx(apart, rel=0.2)
    independent = math.hypot(first.std(), second.std())
    assert abs(spread - apart) < abs(spread - independent) or independent == pytest.approx(apart, rel=0.1)


def test_the_scale_of_a_score_does_not_matter():
    a, b = simulate_pair(40, 40, np.random.default_rng(12))
    scaled = Triple(b.y_true, b.y_pred, np.exp(5 * b.open_score))
    metrics = ["openauc", "fpr_at_95tpr", "macro_f_score"]
    one, two = (compare(a, other, metrics=metrics, n_replicates=50) for other in (b, scaled))
    assert one == two


def test_seed_and_generator():
    models = simulate_pair(30, 30, np.random.default_rng(13))
    run = partial(compare, *models, metrics=["fpr_at_95tpr"], n_replicates=100)
    assert run(rng=1) == run(rng=1)
    assert run(rng=1) != run(rng=2)
    assert run(rng=np.random.default_rng(1)) == run(rng=1)


def test_few_unknown_samples_among_very_many_known_ones():
    rng = np.random.default_rng(3)
    true = np.concatenate([np.zeros(40_000, int), np.full(5, UNKNOWN)])
    score = rng.normal(size=len(true)) + 2 * (true == UNKNOWN)
    a, b = (true, np.zeros_like(true), score), (true, np.zeros_like(true), score + rng.normal(size=len(true)))
    for d in compare(a, b, metrics=["openauc", "average_precision_unknown"]).differences:
        assert d.interval.low < d.difference < d.interval.high
        assert 0.0 < d.p_value <= 1.0


def test_skewness_counts_as_that_of_all_samples():
    """The third moment of a mean of n samples is m3 / n^2: it moves the middle of the interval by a share of 1 / n."""
    a, b = simulate_pair(270, 30, np.random.default_rng(4))

    def shift(times):
        one, other = ([np.tile(part, times) for part in model] for model in (a, b))
        (d,) = compare(one, other, metrics=["openauc"]).differences
        return times * (0.5 * sum(d.interval) - d.difference)

    assert shift(100) == pytest.approx(shift(50), rel=0.02)


def test_exchanging_the_models_does_not_change_p():
    apart = [np.array([3.0, -1.0, -1.0, -1.0, 0.5]), np.array([0.2, -0.2, 0.9])]
    for difference in (0.0, 0.3, -0.3):
        (low, high), p = difference_interval(difference, apart, 0.01, 0.95)
        (other_low, other_high), other_p = difference_interval(-difference, [-side for side in apart], 0.01, 0.95)
        assert (p, low, high) == pytest.approx((other_p, -other_high, -other_low))


def test_intervals_of_a_higher_level_hold_those_of_a_lower_one():
    """Two of 1,000 samples differ: the correction for skewness is larger than the interval."""
    apart = [np.append(np.zeros(998), [1.0, 1.0]), np.zeros(0)]
    levels = (0.5, 0.8, 0.95, 0.99, 0.999)
    for sides, difference in ((apart, 0.002), ([-side for side in apart], -0.002), (apart, -0.002), (apart, 1e-4)):
        intervals, p_values = zip(
            *(difference_interval(difference, sides, 1e-8, level) for level in levels), strict=True
        )
        assert list(intervals) == sorted(intervals, key=lambda ends: ends.high - ends.low)
        assert all(a.low >= b.low and a.high <= b.high for a, b in pairwise(intervals))
        assert len(set(p_values)) == 1
        assert (p_values[0] < 0.05) == (not intervals[2].low <= 0.0 <= intervals[2].high)


def test_identical_models():
    a, _ = simulate_pair(20, 20, np.random.default_rng(14))
    for d in compare(a, a).differences:
        assert (d.difference, d.interval, d.p_value, d.p_holm) == (0.0, (0.0, 0.0), 1.0, 1.0)


def test_no_p_value_is_smaller_than_the_samples_allow():
    """Of 2^4 ways to swap four samples two are as extreme as the data: fewer samples cannot prove more."""
    right = [0, 0, UNKNOWN, UNKNOWN], [0, 0, 0, 0], [1.0, 2.0, 3.0, 4.0]
    wrong = [0, 0, UNKNOWN, UNKNOWN], [1, 1, 0, 0], [1.0, 2.0, 3.0, 4.0]
    for d in compare(right, wrong, metrics=["openauc", "closed_set_accuracy"]).differences:
        assert d.difference == 1.0
        assert d.p_value >= 2 / 2**4


def test_values_are_those_of_evaluate():
    models = simulate_pair(40, 40, np.random.default_rng(15))
    values = [evaluate(*model, level=None).values for model in models]
    found = compare(*models, metrics=list(METRICS), n_replicates=5)
    assert [d.metric for d in found.differences] == list(METRICS)
    for d in found.differences:
        assert (d.value_a, d.value_b) == pytest.approx((values[0][d.metric], values[1][d.metric]))
        assert d.difference == d.value_a - d.value_b
        assert d.method == ("DeLong" if METRICS[d.metric].analytic else "bootstrap")
    assert (found.n_known, found.n_unknown, found.level, found.names) == (40, 40, 0.95, ("A", "B"))


def three_models():
    rng = np.random.default_rng(16)
    a, b = simulate_pair(80, 80, rng)
    return a, b, Triple(a.y_true, a.y_pred, a.open_score + rng.normal(size=160))


def test_all_pairs_of_three_models_and_holm_within_a_metric():
    found = compare(*three_models(), names=["x", "y", "z"])
    for metric in ("openauc", "auroc", "closed_set_accuracy"):
        rows = [d for d in found.differences if d.metric == metric]
        assert [(d.a, d.b) for d in rows] == [("x", "y"), ("x", "z"), ("y", "z")]
        assert [d.p_holm for d in rows] == holm([d.p_value for d in rows])


@pytest.mark.parametrize(("baseline", "pairs"), [("x", ["xy", "xz"]), ("y", ["xy", "yz"]), ("z", ["xz", "yz"])])
def test_baseline_leaves_out_the_other_pairs(baseline, pairs):
    found = compare(*three_models(), names=["x", "y", "z"], baseline=baseline, metrics=["openauc"])
    assert ["".join(sorted(d.a + d.b)) for d in found.differences] == pairs
    p = [d.p_value for d in found.differences]
    assert [d.p_holm for d in found.differences] == holm(p)


def test_level_widens_the_interval():
    models = simulate_pair(50, 50, np.random.default_rng(17))
    metrics = ["openauc", "detection_accuracy"]
    narrow, wide = (compare(*models, metrics=metrics, level=level, n_replicates=100) for level in (0.8, 0.99))
    for a, b in zip(narrow.differences, wide.differences, strict=True):
        assert b.interval.low < a.interval.low < a.interval.high < b.interval.high
        assert a.p_value == b.p_value


def test_string_labels_and_another_unknown_label():
    models = simulate_pair(30, 30, np.random.default_rng(18))
    names = np.array(["a", "b", "c", "none of them"])  # -1 is the last
    named = [(names[m.y_true], names[m.y_pred], m.open_score) for m in models]
    metrics = ["openauc", "macro_f_score"]
    expected = compare(*models, metrics=metrics, n_replicates=30)
    assert compare(*named, metrics=metrics, n_replicates=30, unknown_label="none of them") == expected


def test_metrics_of_ones_own_see_unknown_samples_as_minus_one():
    models = simulate_pair(30, 30, np.random.default_rng(19))
    marked = [(np.where(m.y_true == UNKNOWN, 99, m.y_true), m.y_pred, m.open_score) for m in models]
    mine = {"mine": Metric(function=quick_auc)}
    assert compare(*marked, metrics=mine, unknown_label=99, n_replicates=30) == compare(
        *models, metrics=mine, n_replicates=30
    )


def test_comparison_is_strict_json():
    found = compare(*three_models(), metrics=["openauc", "fpr_at_95tpr"], n_replicates=20)
    values = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert values["names"] == ["A", "B", "C"]
    first = found.differences[0]
    assert values["differences"][0]["interval"] == [first.interval.low, first.interval.high]
    assert values["differences"][0]["p_holm"] == first.p_holm


def test_comparison_with_one_unknown_sample_is_strict_json():
    """One sample on a side has no variance; whatever stands for that must be JSON."""
    models = [([0, 0, UNKNOWN], [0, 0, 0], score) for score in ([0.0, 1.0, 2.0], [0.0, 2.0, 1.0])]
    json.dumps(compare(*models).to_dict(), allow_nan=False)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"models": 1}, "at least two models, got 1"),
        ({"names": ["a"]}, "names must be 2 different names"),
        ({"names": ["a", "a"]}, "names must be 2 different names"),
        ({"baseline": "C"}, "baseline is 'C'; expected one of 'A', 'B'"),
        ({"metrics": ["opnauc"]}, "metric is 'opnauc'.*Did you mean 'openauc'"),
        ({"level": 95}, "level is 95; expected a fraction"),
    ],
)
def test_compare_refuses(change, message):
    models = simulate_pair(5, 5, np.random.default_rng(0))[: change.pop("models", 2)]
    with pytest.raises(ValueError, match=message):
        compare(*models, **change)


def test_compare_refuses_other_samples():
    a, b = simulate_pair(5, 5, np.random.default_rng(0))
    with pytest.raises(ValueError, match=r"one has 10 samples but two has 9; .*same test samples in the same order"):
        compare(a, tuple(column[:9] for column in b), names=["one", "two"])
    moved = b.y_true.copy()
    moved[[3, 4]] = (moved[[3, 4]] + 1) % 3
    with pytest.raises(ValueError, match=r"y_true of A and B differ in 2 of 10 samples, first in sample 3 \("):
        compare(a, (moved, b.y_pred, b.open_score))
    third = b.y_true.copy()
    third[0] = UNKNOWN
    with pytest.raises(ValueError, match="y_true of A and C differ in 1 of 10"):
        compare(a, b, (third, b.y_pred, b.open_score))


@pytest.mark.parametrize(
    ("p", "corrected"),
    [
        ([], []),
        ([0.2], [0.2]),
        ([0.01, 0.04, 0.03, 0.005], [0.03, 0.06, 0.06, 0.02]),
        ([0.5, 0.6], [1.0, 1.0]),
        ([0.02, 0.02, 0.02], [0.06, 0.06, 0.06]),
    ],
)
def test_holm_by_hand(p, corrected):
    assert holm(p) == pytest.approx(corrected)


@given(p=st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_never_lowers_a_p_value_and_keeps_their_order(p):
    corrected = holm(iter(p))
    assert all(q <= c <= 1.0 for q, c in zip(p, corrected, strict=True))
    assert all(
        a <= b for a, b in zip(np.array(corrected)[np.argsort(p)], np.array(corrected)[np.argsort(p)][1:], strict=False)
    )
    bonferroni = [min(1.0, len(p) * q) for q in p]
    assert all(c <= b + 1e-12 for c, b in zip(corrected, bonferroni, strict=True))
