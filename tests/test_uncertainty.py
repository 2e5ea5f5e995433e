"""Intervals and paired comparisons: against slow twins, against resampling by hand, and by seeded simulation."""

import json
import math
from functools import partial
from itertools import product

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from strategies import UNKNOWN, Triple, random_triple, triples

from openauc import evaluate
from openauc.metrics import ranking
from openauc.metrics._kernel import UNKNOWN_KIND, Resampling, rank, read_samples
from openauc.metrics.decision import DECISION_METRICS, encode, normalized_accuracy, open_set_f_score, youden_index
from openauc.metrics.ranking import Placements
from openauc.metrics.table import METRICS, Metric, standard_metrics
from openauc.uncertainty import (
    Interval,
    bootstrap,
    bootstrap_function,
    compare,
    decision_block,
    holm,
    normal_quantile,
    percentile_interval,
    placement_variance,
    seed_of,
    table_block,
    u_statistic_interval,
    wilson_interval,
)

pytestmark = pytest.mark.filterwarnings("ignore::openauc.metrics.ranking.ScoreDirectionWarning")


def ranked(triple):
    return rank(read_samples(*triple))


# --- one model: formulas --------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.999])
@pytest.mark.parametrize(("k", "n"), [(0, 1), (1, 1), (0, 10), (3, 10), (10, 10), (7, 9), (500, 1000), (1, 10**6)])
def test_wilson_is_the_interval_of_scipy(k, n, level):
    expected = scipy.stats.binomtest(k, n).proportion_ci(level, method="wilson")
    found = wilson_interval(k, n, level)
    assert found == pytest.approx((expected.low, expected.high), abs=1e-12)
    assert 0.0 <= found.low <= k / n <= found.high <= 1.0


@pytest.mark.parametrize("level", [0.1, 0.5, 0.95, 0.999])
def test_normal_quantile(level):
    assert normal_quantile(level) == pytest.approx(scipy.stats.norm.ppf(0.5 + level / 2))


@pytest.mark.parametrize("level", [0.0, 1.0, 95, -0.5, math.nan])
def test_level_is_a_fraction(level):
    for function in (normal_quantile, partial(wilson_interval, 1, 2), partial(percentile_interval, np.arange(3.0))):
        with pytest.raises(ValueError, match=r"level is .*expected a fraction"):
            function(level)


def test_percentile_interval_by_hand():
    assert percentile_interval(np.arange(101.0), 0.9) == pytest.approx((5.0, 95.0))


def test_seed_of():
    assert seed_of(3) == seed_of(3) != seed_of(4)
    generator = np.random.default_rng(3)
    assert seed_of(generator) == seed_of(3), "an integer is the seed of a fresh generator"
    assert seed_of(generator) != seed_of(3), "a generator advances"


# --- one model: the variance of a U-statistic -----------------------------------------------------------


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


@pytest.mark.parametrize("with_wrong", [False, True], ids=["openauc", "auroc"])
@given(triple=triples(), ties=st.sampled_from(["half", "strict"]))
def test_placements_are_the_components_of_the_pairs(with_wrong, triple, ties):
    psi = slow_kernel(triple, ties, with_wrong=with_wrong)
    found = ranking.openauc_placements(ranked(triple), ties, with_wrong=with_wrong)
    assert found.known == pytest.approx(psi.mean(axis=1))
    assert found.unknown == pytest.approx(psi.mean(axis=0))
    value = (ranking.auroc_score if with_wrong else ranking.openauc_score)(*triple, ties=ties)
    assert found.known.mean() == pytest.approx(value)
    assert found.unknown.mean() == pytest.approx(value)
    if min(psi.shape) > 1:
        assert placement_variance(found) == pytest.approx(slow_variance(psi), abs=1e-15)


def test_variance_of_one_sample_is_undefined():
    for sides in (([0.5], [0.1, 0.2]), ([0.1, 0.2], [0.5])):
        assert math.isnan(placement_variance(Placements(*map(np.array, sides))))


@given(triple=triples())
def test_placements_of_the_other_metrics_have_its_value_as_mean(triple):
    r = ranked(triple)
    accuracy = ranking.accuracy_placements(r)
    assert accuracy.known.mean() == pytest.approx(METRICS["closed_set_accuracy"].function(*triple))
    assert not accuracy.unknown.any()
    total = ranking.acc_plus_auc_placements(r)
    assert total.known.mean() == pytest.approx(ranking.acc_plus_auc(*triple))


@pytest.mark.parametrize("c", [1.0, 3.0, 9.0])
def test_auroc_variance_against_hanley_and_mcneil(c):
    """Exponential scores, unknown c times as large: A = c / (1 + c), Q1 = A / (2 - A), Q2 = 2 A^2 / (1 + A) exactly."""
    m, n = 60, 40
    a = c / (1 + c)
    q1, q2 = a / (2 - a), 2 * a * a / (1 + a)
    # Q1: two unknown above one known, (n - 1) of them; Q2: one unknown above two known, (m - 1).
    exact = (a * (1 - a) + (n - 1) * (q1 - a * a) + (m - 1) * (q2 - a * a)) / (m * n)
    rng = np.random.default_rng(0)
    variances, values = [], []
    for _ in range(600):
        score = np.concatenate([rng.exponential(size=m), c * rng.exponential(size=n)])
        triple = [0] * m + [UNKNOWN] * n, [0] * (m + n), score
        variances.append(placement_variance(ranking.openauc_placements(ranked(triple), with_wrong=True)))
        values.append(ranking.auroc_score(*triple))
    assert np.mean(values) == pytest.approx(a, abs=4 * np.sqrt(exact / 600))
    assert np.mean(variances) == pytest.approx(exact, rel=0.06)


def simulate(n_known: int, n_unknown: int, rng, *, shift: float = 1.5, n_classes: int = 5) -> Triple:
    """Normal scores; a known sample with a low score is more often right."""
    n = n_known + n_unknown
    true = np.concatenate([rng.integers(0, n_classes, n_known), np.full(n_unknown, UNKNOWN)])
    score = rng.normal(size=n) + shift * (true == UNKNOWN)
    right = rng.random(n) < 1 / (1 + np.exp(score - 1.5))
    other = (true + rng.integers(1, n_classes, n)) % n_classes
    pred = np.where(true == UNKNOWN, rng.integers(0, n_classes, n), np.where(right, true, other))
    return Triple(true, pred, score)


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (0.0, 0.2), (0.1, 0.5), (0.5, 1.0)])
def test_openauc_variance_against_bootstrap_and_simulation(low, high):
    formula = partial(ranking.openauc_of, low=low, high=high)
    rng = np.random.default_rng(1)
    values, variances, resampled = [], [], []
    for i in range(150):
        r = ranked(simulate(300, 250, rng))
        values.append(float(formula(r.table)))
        placements = ranking.openauc_placements(r, low=low, high=high)
        variances.append(placement_variance(placements))
        assert placements.known.mean() == pytest.approx(values[-1], abs=0.01)
        if i < 12:
            resampled.append(
                bootstrap(stratum_of(r), {("value",): table_block(r, {"value": formula})}, 800, i)["value"].var()
            )
    assert np.mean(variances[:12]) == pytest.approx(np.mean(resampled), rel=0.08)
    assert np.mean(variances) == pytest.approx(np.var(values), rel=0.35)  # 150 values: 12 % standard error


def test_u_statistic_interval_by_hand():
    placements = Placements(np.array([0.5, 0.7, 0.9]), np.array([0.6, 0.8]))
    half = 1.959963984540054 * math.sqrt(0.04 / 3 + 0.02 / 2) / (0.7 * 0.3)
    logit = math.log(0.7 / 0.3)
    expected = [1 / (1 + math.exp(-(logit + sign * half))) for sign in (-1, 1)]
    assert u_statistic_interval(0.7, placements) == pytest.approx(expected)
    doubled = Placements(2 * placements.known, 2 * placements.unknown)
    assert u_statistic_interval(1.4, doubled, largest=2.0) == pytest.approx([2 * bound for bound in expected])


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_without_variance_the_interval_is_wilson(value):
    placements = Placements(np.full(8, value), np.full(5, value))
    assert u_statistic_interval(value, placements, 0.9) == wilson_interval(value * 5, 5, 0.9)
    one = Placements(np.array([0.5]), np.array([0.0, 1.0]))
    assert u_statistic_interval(0.5, one) == wilson_interval(0.5, 1)


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("metric", ["openauc", "partial_openauc", "auroc", "acc_times_auc", "acc_plus_auc"])
@given(triple=triples())
def test_analytic_interval_contains_the_value_and_stays_in_range(metric, triple):
    metrics = standard_metrics(max_ofpr=0.3)
    r = ranked(triple)
    chosen = metrics[metric]
    value = float(chosen.of_table(r.table))
    previous = Interval(value, value)
    for level in (0.5, 0.9, 0.999):
        interval = u_statistic_interval(value, chosen.placements(r), level, largest=chosen.largest)
        assert 0.0 <= interval.low <= previous.low + 1e-12
        assert previous.high - 1e-12 <= interval.high <= chosen.largest
        previous = interval


# --- one model: the bootstrap ---------------------------------------------------------------------------


def weights_of(kind, n_replicates, seed=0):
    return Resampling(kind, n_replicates, seed).map(lambda weights, _: weights.astype(np.int64))


@pytest.mark.parametrize("backend", ["numpy", "numba"])
@pytest.mark.parametrize("n", [2, 30, 3000])
def test_every_replicate_keeps_the_size_of_both_sides(monkeypatch, backend, n):
    monkeypatch.setenv("OPENAUC_BACKEND", backend)
    kind = read_samples(*random_triple(n, seed=n)).kind
    weights = weights_of(kind, 300)
    unknown = kind == UNKNOWN_KIND
    assert weights.shape == (300, n)
    assert (weights[:, unknown].sum(axis=1) == unknown.sum()).all()
    assert (weights[:, ~unknown].sum(axis=1) == (~unknown).sum()).all()


def test_multiplicities_are_multinomial():
    kind = np.array([UNKNOWN_KIND] * 20 + [1] * 12, dtype=np.uint8)
    weights = weights_of(kind, 20_000, seed=5)
    for side, n in ((weights[:, :20], 20), (weights[:, 20:], 12)):
        # How often one sample is drawn: binomial(n, 1/n); chi-square over all its replicates.
        for sample in side.T:
            observed = np.bincount(np.minimum(sample, 4), minlength=5)
            expected = scipy.stats.binom.pmf(np.arange(5), n, 1 / n)
            expected[4] = 1 - expected[:4].sum()
            assert scipy.stats.chisquare(observed, expected * len(sample)).pvalue > 1e-4
        covariance = np.cov(side.T)
        assert np.diag(covariance) == pytest.approx(np.full(n, 1 - 1 / n), abs=0.05)
        assert covariance[~np.eye(n, dtype=bool)] == pytest.approx(np.full(n * (n - 1), -1 / n), abs=0.04)
    across = np.corrcoef(weights[:, 0], weights[:, 25])[0, 1]
    assert abs(across) < 4 / np.sqrt(20_000), "the two sides are drawn independently"
    following = np.corrcoef(weights[:-1, 0], weights[1:, 0])[0, 1]
    assert abs(following) < 4 / np.sqrt(20_000), "and so are the replicates"


def test_resampling_depends_on_the_seed_alone(monkeypatch):
    kind = read_samples(*random_triple(500)).kind
    first = weights_of(kind, 60, seed=1)
    assert np.array_equal(first, weights_of(kind, 60, seed=1))
    assert not np.array_equal(first, weights_of(kind, 60, seed=2))
    assert np.array_equal(first[:20], weights_of(kind, 20, seed=1)), "more replicates do not change the first ones"
    for backend in ("numpy", "numba"):
        monkeypatch.setenv("OPENAUC_BACKEND", backend)
        assert np.array_equal(first, weights_of(kind, 60, seed=1))


def stratum_of(r):
    """Known and unknown samples, in rank order, are resampled apart."""
    return (r.kind == UNKNOWN_KIND).astype(np.uint8)


def resamples(triple, r, n_replicates, seed):
    """The triples that the weights describe, drawn by hand: the index of each sample as often as its weight."""
    for weights in weights_of(stratum_of(r), n_replicates, seed):
        index = np.repeat(r.order, weights)
        yield tuple(column[index] for column in triple)


@pytest.mark.parametrize("backend", ["numpy", "numba"])
@pytest.mark.parametrize("decimals", [None, 1], ids=["continuous", "ties"])
def test_bootstrap_of_tables_is_resampling_by_hand(monkeypatch, backend, decimals):
    monkeypatch.setenv("OPENAUC_BACKEND", backend)
    triple = random_triple(80, seed=3, decimals=decimals, n_classes=3)
    metrics = {name: m for name, m in standard_metrics(min_ofpr=0.1, max_ofpr=0.4).items() if m.of_table}
    assert len(metrics) > 8
    r = ranked(triple)
    formulas = {name: m.of_table for name, m in metrics.items()}
    found = bootstrap(stratum_of(r), {tuple(formulas): table_block(r, formulas)}, 25, seed=9)
    for i, resample in enumerate(resamples(triple, r, 25, seed=9)):
        for name, metric in metrics.items():
            assert found[name][i] == pytest.approx(metric.function(*resample), abs=1e-12), name


DECISIONS = {
    "macro_f_score": partial(open_set_f_score, average="macro"),
    "micro_f_score": partial(open_set_f_score, average="micro"),
    "youden_index": partial(youden_index, average="macro"),
    "micro_youden_index": partial(youden_index, average="micro"),
    "normalized_accuracy": normalized_accuracy,
}


@pytest.mark.parametrize("backend", ["numpy", "numba"])
def test_bootstrap_of_decisions_is_resampling_by_hand_at_the_held_threshold(monkeypatch, backend):
    monkeypatch.setenv("OPENAUC_BACKEND", backend)
    assert set(DECISIONS) == set(DECISION_METRICS)
    triple = random_triple(90, seed=4, decimals=1, n_classes=3)
    thresholds = dict(zip(DECISIONS, (0.3, 1.1, 0.3, -np.inf, 9.0), strict=True))
    r = ranked(triple)
    block = decision_block(r, encode(r.samples), DECISION_METRICS, thresholds)
    found = bootstrap(stratum_of(r), {tuple(DECISION_METRICS): block}, 25, seed=2)
    for i, resample in enumerate(resamples(triple, r, 25, seed=2)):
        for name, function in DECISIONS.items():
            expected = function(*resample, threshold=thresholds[name], classes=[0, 1, 2])
            assert found[name][i] == pytest.approx(expected, abs=1e-12), name


def test_bootstrap_of_any_function_is_resampling_by_hand():
    triple = random_triple(60, seed=5)
    samples = read_samples(*triple)
    found = bootstrap_function(samples, ranking.detection_accuracy, 20, 3)
    for value, weights in zip(found, weights_of((samples.kind == UNKNOWN_KIND).astype(np.uint8), 20, 3), strict=True):
        index = np.repeat(np.arange(60), weights)
        assert value == ranking.detection_accuracy(*(column[index] for column in triple))


def test_bootstrap_of_nothing():
    assert bootstrap(stratum_of(ranked(random_triple(10))), {(): lambda *_: np.zeros((1, 0))}, 5, 0) == {}


def test_small_classes_do_not_push_the_interval_away_from_the_value():
    """A replicate that draws no sample of a class says nothing of that class; it must not count as a recall of 0."""
    true = np.concatenate([np.repeat(np.arange(100), 3), np.full(300, UNKNOWN)])
    rng = np.random.default_rng(0)
    score = rng.normal(size=600) + 2 * (true == UNKNOWN)
    pred = np.where((true == UNKNOWN) | (rng.random(600) < 0.2), rng.integers(0, 100, 600), true)
    result = evaluate(true, pred, score, metrics={name: METRICS[name] for name in DECISION_METRICS})
    for name, (low, high) in result.intervals.items():
        if result.methods[name].startswith("Wilson"):
            continue  # a rate near 1 has all its doubt below
        middle, half = 0.5 * (low + high), 0.5 * (high - low)
        assert abs(result.values[name] - middle) < 0.5 * half, name


# --- one model: coverage --------------------------------------------------------------------------------

RUNS = 400
COVERED = standard_metrics(max_ofpr=0.2)


@pytest.fixture(scope="module")
def coverage() -> dict[str, float]:
    """Share of 400 data sets of 250 + 250 samples whose 95 % interval holds the population value (of 2 million)."""
    rng = np.random.default_rng(2024)
    truth = evaluate(*simulate(10**6, 10**6, rng), metrics=COVERED, level=None).values
    hits = dict.fromkeys(COVERED, 0)
    for run in range(RUNS):
        found = evaluate(*simulate(250, 250, rng), metrics=COVERED, n_replicates=500, rng=run)
        for name, (low, high) in found.intervals.items():
            hits[name] += low <= truth[name] <= high
    return {name: count / RUNS for name, count in hits.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", COVERED)
def test_coverage_at_95_percent(coverage, name):
    """Three standard errors of a simulation of this size are 3.3 points; percentile intervals get one more below.

    The best normalized accuracy rests on the few samples above an extreme threshold; its interval is conservative.
    """
    highest = 1.0 if name == "normalized_accuracy" else 0.985
    assert 0.91 <= coverage[name] <= highest


def test_normal_theory_of_the_simulation():
    """The population behind the coverage is the one it claims to be."""
    found = evaluate(*simulate(400_000, 400_000, np.random.default_rng(0)), level=None)
    assert found.auroc == pytest.approx(scipy.stats.norm.cdf(1.5 / math.sqrt(2)), abs=0.003)
    cut = scipy.stats.norm.ppf(0.05) + 1.5
    assert found.fpr_at_95tpr == pytest.approx(scipy.stats.norm.sf(cut), abs=0.005)
    assert found.detection_accuracy == pytest.approx(scipy.stats.norm.cdf(0.75), abs=0.003)


# --- several models -------------------------------------------------------------------------------------


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
    half = 0.5 * (found.interval.high - found.interval.low)
    assert half == pytest.approx(normal_quantile(0.95) * math.sqrt(max(variance, 0.0)), abs=1e-7)
    if variance > 1e-12:
        z = found.difference / math.sqrt(variance)
        assert found.p_value == pytest.approx(2 * scipy.stats.norm.sf(abs(z)), abs=1e-6)


def test_accuracy_is_compared_by_its_discordant_pairs():
    """For a rate the placements are 0 or 1: the z-test is McNemar's with the sample variance."""
    a, b = simulate_pair(200, 50, np.random.default_rng(0))
    known = a.y_true != UNKNOWN
    gap = ((a.y_pred == a.y_true).astype(int) - (b.y_pred == b.y_true).astype(int))[known]
    (found,) = compare(a, b, metrics=["closed_set_accuracy"]).differences
    assert found.difference == pytest.approx(gap.mean())
    z = gap.mean() / math.sqrt(gap.var(ddof=1) / len(gap))
    assert found.p_value == pytest.approx(2 * scipy.stats.norm.sf(abs(z)))


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


def test_bootstrap_interval_of_a_difference_is_paired():
    a, b = simulate_pair(60, 60, np.random.default_rng(10))
    (d,) = compare(a, b, metrics=["detection_accuracy"], n_replicates=60, rng=4).differences
    samples = [read_samples(*model) for model in (a, b)]
    draws = [bootstrap_function(s, ranking.detection_accuracy, 60, seed_of(4)) for s in samples]
    assert d.interval == percentile_interval(draws[0] - draws[1])
    same, _ = simulate_pair(60, 60, np.random.default_rng(11))
    (d,) = compare(same, same, metrics=["detection_accuracy"], n_replicates=20).differences
    assert (d.difference, d.interval, d.p_value) == (0.0, (0.0, 0.0), 1.0)


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


# --- compare: everything around the numbers -------------------------------------------------------------


def test_values_are_those_of_evaluate():
    models = simulate_pair(40, 40, np.random.default_rng(15))
    values = [evaluate(*model, level=None).values for model in models]
    found = compare(*models, metrics=list(METRICS), n_replicates=5)
    assert [d.metric for d in found.differences] == list(METRICS)
    for d in found.differences:
        assert (d.value_a, d.value_b) == pytest.approx((values[0][d.metric], values[1][d.metric]))
        assert d.difference == d.value_a - d.value_b
        assert d.method == ("DeLong" if METRICS[d.metric].placements else "bootstrap, permutation")
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
