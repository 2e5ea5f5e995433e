"""Resamples from tables of bounded size have the distribution of resamples of the samples themselves."""

import numpy as np
import pytest
import scipy.stats
from strategies import UNKNOWN, Triple, random_triple

from openauc.metrics import resampling
from openauc.metrics.counts import RankedSamples, counts_by_class, encode
from openauc.metrics.decision import DECISION_METRICS
from openauc.metrics.rank_table import RankTable, rank
from openauc.metrics.registry import METRICS, CutMetric, DecisionMetric, Resamples, TableMetric
from openauc.metrics.resampling import (
    coarse,
    generator,
    resample,
    resampled_counts,
    resampled_cut,
    resampled_table,
)
from openauc.metrics.samples import CORRECT, UNKNOWN_KIND, read_samples

REPLICATES = 20_000


@pytest.mark.parametrize("cells", [[3, 0, 5, 12], [120, 0, 7, 300, 1], [5000, 80, 64, 20_000]])
def test_cells_are_drawn_from_a_multinomial(cells):
    weight = np.array(cells)
    n = weight.sum()
    drawn = resample(weight, n, REPLICATES, generator(1)).astype(float)
    assert drawn.shape == (len(cells), REPLICATES)
    assert drawn.sum(axis=0) == pytest.approx(np.full(REPLICATES, n), rel=1e-5)
    assert not drawn[weight == 0].any()
    covariance = np.diag(weight) - np.outer(weight, weight) / n
    error = 6 * np.sqrt(np.outer(weight + 1, weight + 1) / REPLICATES)
    assert drawn.mean(axis=1) == pytest.approx(weight, abs=6 * np.sqrt(weight.max() / REPLICATES) + 0.01)
    assert np.all(np.abs(np.cov(drawn) - covariance) <= error)


@pytest.mark.parametrize("mean", [0.3, 1.0, 7.0, 63.0, 64.0, 1000.0])
def test_quantiles_are_poisson(mean):
    numbers = resampling._poisson_quantiles(mean).astype(float)
    assert numbers.mean() == pytest.approx(mean, rel=0.003)
    assert numbers.var() == pytest.approx(mean, rel=0.01)
    shares = np.array([0.025, 0.5, 0.975])
    assert np.quantile(numbers, shares) == pytest.approx(scipy.stats.poisson.ppf(shares, mean), abs=0.6)


def test_an_empty_cell_stays_empty():
    assert not resampling._poisson_quantiles(0.0).any()


@pytest.mark.parametrize("total", [20, 40_000])
def test_weights_count_as_their_effective_number(total):
    weight = np.array([0.2, 0.5, 0.3]) * total
    for size in (50.0, 500.0):
        drawn = resample(weight, size, REPLICATES, generator(0)).astype(float) / total
        assert drawn.sum(axis=0) == pytest.approx(np.ones(REPLICATES), rel=1e-5)
        assert drawn[1].mean() == pytest.approx(0.5, abs=0.003)
        assert drawn[1].std() == pytest.approx(np.sqrt(0.25 / size), rel=0.03)


def test_seeds_matter_and_are_enough():
    weight = np.array([400, 300, 20])
    first = resample(weight, 720, 50, generator(4))
    assert np.array_equal(first, resample(weight, 720, 50, generator(4)))
    assert not np.array_equal(first, resample(weight, 720, 50, generator(5)))


def test_a_coarse_table_keeps_ends_totals_and_what_it_must():
    table = rank(read_samples(*random_triple(5000))).table
    few = coarse(table, [17, 4321])
    assert len(few.threshold) <= resampling.MOST_CUTS + 2
    assert {table.threshold[17], table.threshold[4321]} <= set(few.threshold)
    assert (few.threshold[0], few.threshold[-1]) == (-np.inf, table.threshold[-1])
    for counts, all_counts in zip(few[1:], table[1:], strict=True):
        assert counts[-1] == all_counts[-1]
        assert np.all(np.diff(counts) >= 0)
    small = rank(read_samples(*random_triple(100))).table
    assert coarse(small) is small


def test_a_coarse_table_resolves_the_few_samples_that_overlap():
    """All but 40 of 100,000 samples are ranked right: the 40 are not thrown into one cell."""
    score = np.concatenate([np.linspace(0, 1, 50_000), np.linspace(1, 2, 50_000)])
    score[49_980:50_020] = 1.0 + 0.001 * np.arange(40)[::-1]
    true = np.repeat([0, UNKNOWN], 50_000)
    few = coarse(rank(read_samples(true, np.zeros(100_000, int), score)).table)
    inside = (few.threshold > 0.9995) & (few.threshold < 1.04)
    assert inside.sum() >= 30


def full_bootstrap(triple, n_replicates: int, seed: int) -> dict[str, np.ndarray]:
    """Replicates of every bootstrapped metric by drawing the samples themselves, as the definition says."""
    model = RankedSamples(read_samples(*triple))
    ranking, coded, samples = model.ranking, model.coded, model.samples
    rng = np.random.default_rng(seed)
    unknown = ranking.kind == UNKNOWN_KIND
    found = {name: metric.measure(model) for name, metric in METRICS.items()}
    accepting = {
        name: ((samples.score <= found[name].threshold) & (coded.pred >= 0))[ranking.order] for name in DECISION_METRICS
    }
    true, pred = coded.true[ranking.order], coded.pred[ranking.order]
    classes = np.arange(len(coded.classes))
    parts: dict[str, list[np.ndarray]] = {}
    for _ in range(0, n_replicates, 1000):
        weight = np.empty((1000, len(unknown)), dtype=np.int64)
        for side in (unknown, ~unknown):
            n = side.sum()
            weight[:, side] = rng.multinomial(n, np.full(n, 1 / n), size=1000)
        counts = [
            np.concatenate([np.zeros((1000, 1), int), (weight * chosen).cumsum(axis=1)[:, ranking.last]], axis=1)
            for chosen in (~unknown, ranking.kind == CORRECT, unknown)
        ]
        table = RankTable(ranking.threshold, *counts)
        as_floats = weight.astype(float)  # which BLAS multiplies

        def sums(chosen, weight=as_floats):
            return weight @ chosen.astype(float)

        for name, metric in METRICS.items():
            if isinstance(metric, DecisionMetric):
                accepted = accepting[name]
                size = sums(true[:, None] == classes)
                values = metric.of_counts(
                    counts_by_class(
                        sums((true[:, None] == classes) & (accepted & (ranking.kind == CORRECT))[:, None]),
                        sums((pred[:, None] == classes) & accepted[:, None]),
                        size,
                        sums(accepted & unknown),
                        samples.n_unknown,
                        (size > 0) | (coded.class_size == 0),
                    )
                )
            elif isinstance(metric, CutMetric) and metric.accepted is None:
                held = metric.at(table, int(metric.cut(ranking.table)))
                values = np.stack([held, metric.of_table(table)])
            elif isinstance(metric, TableMetric):
                values = metric.of_table(table)
            parts.setdefault(name, []).append(values)
    joined = {name: np.concatenate(values, axis=-1) for name, values in parts.items()}
    held, best = joined["detection_accuracy"]
    joined["detection_accuracy"] = held - max(0.0, best.mean() - found["detection_accuracy"].value)
    return joined


def _normal(n_known, n_unknown, rng, *, decimals=None, n_classes=4, shift=1.5):
    n = n_known + n_unknown
    true = np.concatenate([rng.integers(0, n_classes, n_known), np.full(n_unknown, UNKNOWN)])
    score = rng.normal(size=n) + shift * (true == UNKNOWN)
    right = rng.random(n) < 0.85
    pred = np.where(right & (true != UNKNOWN), true, rng.integers(0, n_classes, n))
    return Triple(true, pred, score if decimals is None else score.round(decimals))


MODELS = {
    "normal": _normal(700, 500, np.random.default_rng(0)),
    "ties": _normal(700, 500, np.random.default_rng(1), decimals=1),
    "small": _normal(40, 30, np.random.default_rng(4)),
    "few unknown": _normal(900, 60, np.random.default_rng(5)),
    "good": _normal(600, 600, np.random.default_rng(6), shift=4.0),
    "many classes": _normal(700, 400, np.random.default_rng(7), n_classes=60),
}
BOOTSTRAPPED = [
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
]


@pytest.mark.parametrize("name", MODELS)
def test_intervals_are_those_of_the_full_bootstrap(name, monkeypatch):
    """Width within 3 %, ends within 5 % of the width; the table is made as coarse as that of a million samples."""
    monkeypatch.setattr(resampling, "MOST_CUTS", 256)
    triple = MODELS[name]
    expected = full_bootstrap(triple, REPLICATES, 11)
    model = RankedSamples(read_samples(*triple))
    ours = Resamples(model, REPLICATES, 12)
    for metric in BOOTSTRAPPED:
        replicates = METRICS[metric].replicates(METRICS[metric].measure(model), ours)
        low, high = np.quantile(replicates, [0.025, 0.975])
        full_low, full_high = np.quantile(expected[metric], [0.025, 0.975])
        width = full_high - full_low
        # Where few values are possible a quantile sits on one of them: allow a step.
        lattice = ("fpr_at_95tpr", "ccr_at_10fpr", "micro_youden_index")
        step = 1.01 / model.samples.n_known if metric in lattice else 0.0
        assert high - low == pytest.approx(width, abs=0.03 * width + step), metric
        assert (low, high) == pytest.approx((full_low, full_high), abs=0.05 * width + step), metric


def test_the_replicates_of_a_coarse_table_are_those_of_the_full_one(monkeypatch):
    triple = _normal(40_000, 30_000, np.random.default_rng(8))
    spreads = {}
    for cuts in (256, 2048):
        monkeypatch.setattr(resampling, "MOST_CUTS", cuts)
        model = RankedSamples(read_samples(*triple))
        ours = Resamples(model, 2000, 3)
        spreads[cuts] = {
            name: METRICS[name].interval(METRICS[name].measure(model), ours, 0.95)[0]
            for name in ("average_precision_unknown", "average_precision_known", "detection_accuracy")
        }
    for name, (low, high) in spreads[2048].items():
        width = high - low
        assert spreads[256][name] == pytest.approx((low, high), abs=0.06 * width), name


def test_cuts_by_hand():
    """One unknown sample in three may be accepted: the second smallest of three draws dictates the cut."""
    table = rank(read_samples([0, 0, -1, -1, -1], [0, 1, 0, 0, 0], [0.0, 2.5, 1.0, 2.0, 3.0])).table
    drawn = resampled_cut(table, 2, 0.34, (2, 3), 50_000, 0)
    # The second smallest of three draws from {1, 2, 3}: first value with probability 7/27, second 13/27, third 7/27.
    accepted = drawn.known[:, 0] / 2
    assert drawn.known[:, 1].tolist() == [2.0] * 50_000
    expected = (7 / 27) * 0.5 + (13 / 27) * 0.5 + (7 / 27) * 1.0
    assert accepted.mean() == pytest.approx(expected, abs=0.01)
    assert drawn.unknown[:, 0].max() <= 1
    assert np.all(drawn.correct <= drawn.known)
    everything = resampled_cut(table, 5, 1.0, (2, 3), 10, 0)
    assert everything.known[:, 0].tolist() == [2.0] * 10


def test_many_confused_classes_are_drawn_apart(monkeypatch):
    """Beyond the number of pairs that are drawn, a wrong sample's two classes are drawn apart: the spread stays."""
    coded = encode(read_samples(*_normal(6000, 3000, np.random.default_rng(9), n_classes=30)))
    spreads = []
    for most in (1024, 10):
        monkeypatch.setattr(resampling, "MOST_CELLS", most)
        counts = resampled_counts(coded, 1.0, 4000, 5)
        spreads.append([np.std(DECISION_METRICS[name](counts)) for name in ("macro_f_score", "youden_index")])
        assert np.asarray(counts.n_known) == pytest.approx(np.full(4000, 6000.0), rel=1e-5)
    assert spreads[1] == pytest.approx(spreads[0], rel=0.06)


def test_a_table_of_replicates_has_their_totals():
    table = rank(read_samples(*MODELS["ties"])).table
    drawn = resampled_table(table, (700, 500), 300, 1)
    assert drawn.known.shape == (300, len(table.threshold))
    for counts, all_counts in zip(drawn[1:], table[1:], strict=True):
        assert np.all(np.diff(counts, axis=1) >= -1e-3)
        assert counts.mean(axis=0) == pytest.approx(all_counts, abs=8)
    assert drawn.n_known == pytest.approx(np.full(300, 700.0), rel=1e-5)
    assert drawn.n_unknown == pytest.approx(np.full(300, 500.0), rel=1e-5)
