"""Public codes' metrics against loops written from their description, scikit-learn, and our exact metrics."""

from __future__ import annotations

import inspect
import itertools
import math
import warnings
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sklearn import metrics as sk

from openauc.metrics import legacy
from openauc.metrics.decision import closed_set_accuracy, open_set_f_score, threshold_sweep
from openauc.metrics.legacy import (
    LEGACY,
    arpl_auin,
    arpl_auout,
    arpl_oscr,
    arpl_tnr_at_tpr,
    explain,
    openauc_code_f_scores,
    openauc_code_score,
    pytorch_ood_oscr,
    vaze_error_at_tpr,
)
from openauc.metrics.ranking import (
    auroc_score,
    average_precision,
    detection_accuracy,
    error_at_tpr,
    fpr_at_tpr,
    openauc_score,
)
from openauc.metrics.registry import METRICS

pytestmark = pytest.mark.filterwarnings("ignore::openauc.metrics.ranking.ScoreDirectionWarning")

SMALL = [0, 1, 1, -1, -1], [0, 1, 0, 1, 0], [0.1, 0.6, 0.2, 0.5, 0.9]
GRID = [i * 0.01 for i in range(1, 100)]


def split(y_true, y_pred, score):
    """Known samples' correctness, known scores, unknown scores, in the order given."""
    y_true, y_pred, score = np.asarray(y_true), np.asarray(y_pred), np.asarray(score)
    known = y_true != -1
    return (y_true == y_pred)[known], score[known], score[~known]


def slow_oscr(y_true, y_pred, score):
    correct, known, unknown = split(y_true, y_pred, score)
    s = np.concatenate([-known, -unknown])
    is_correct = np.concatenate([correct, np.zeros(len(unknown), bool)])
    is_unknown = np.arange(len(s)) >= len(known)
    order = s.argsort()
    points = [(0.0, 0.0), (1.0, 1.0)]
    for k in range(len(s) - 1):
        ccr = sum(is_correct[i] for i in order[k + 1 :]) / len(known)
        fpr = sum(is_unknown[i] for i in order[k:]) / len(unknown)
        points.append((fpr, ccr))
    points.sort(reverse=True)
    return trapezoids(points[::-1])


def trapezoids(points):
    return sum((x1 - x0) * (y0 + y1) / 2 for (x0, y0), (x1, y1) in pairwise(points))


def slow_sweep(known_score, unknown_score):
    """(known left, unknown left), removing the lowest s = -r one by one, known samples first on a tie."""
    known, unknown = sorted(-r for r in known_score), sorted(-r for r in unknown_score)
    left = [(len(known), len(unknown))]
    while known or unknown:
        if not known or (unknown and unknown[0] < known[0]):
            unknown.pop(0)
        else:
            known.pop(0)
        left.append((len(known), len(unknown)))
    return left


strict_auroc = partial(auroc_score, ties="strict")


def slow_arpl(y_true, y_pred, score):
    _, known, unknown = split(y_true, y_pred, score)
    sweep, n_known, n_unknown = slow_sweep(known, unknown), len(known), len(unknown)
    rates = [(k / n_known, u / n_unknown) for k, u in sweep]
    nearest = min(range(len(rates)), key=lambda i: abs(rates[i][0] - 0.95))  # the first among equals
    full_recall, empty = [(1.0, 0.5)], [(0.0, 0.0)]
    auin = [(k / n_known, k / (k + u)) for k, u in sweep if k + u > 0]
    auout = [
        ((n_unknown - u) / n_unknown, (n_unknown - u) / (n_known - k + n_unknown - u))
        for k, u in sweep
        if (k, u) != (n_known, n_unknown)
    ]
    roc = [(1.0, 1.0), *rates, (0.0, 0.0)]
    return {
        strict_auroc: trapezoids([(tpr, 1.0 - fpr) for tpr, fpr in roc[::-1]]),
        arpl_tnr_at_tpr: 1.0 - rates[nearest][1],
        detection_accuracy: max((tpr + 1.0 - fpr) / 2 for tpr, fpr in rates),
        arpl_auin: trapezoids(empty + auin[::-1] + full_recall),
        arpl_auout: trapezoids(empty + auout + full_recall),
    }


def slow_error_at_tpr(y_true, y_pred, score, target=0.95):
    _, known, unknown = split(y_true, y_pred, score)
    is_unknown = np.array([0] * len(known) + [1] * len(unknown))
    scores = np.concatenate([known, unknown])
    _, tpr, thresholds = sk.roc_curve(is_unknown, scores, drop_intermediate=False)
    distance = [abs(rate - target) for rate in tpr]
    last = max(i for i, d in enumerate(distance) if d == min(distance))
    t = thresholds[last]
    decided = scores.copy()
    decided[decided > t] = 1  # in place, so that a threshold of 1 or more undoes it on the next line
    decided[decided <= t] = 0
    return sum(decided != is_unknown) / len(scores)


def float32_sigmoid(score):
    return [float(np.float32(1) / (np.float32(1) + np.exp(-np.float32(r)))) for r in score]


def slow_openauc_code(y_true, y_pred, score):
    correct, known, unknown = split(y_true, y_pred, score)
    mask = max(unknown) + 1e-5
    masked = [r if hit else mask for r, hit in zip(known, correct, strict=True)]
    return sk.roc_auc_score([0] * len(known) + [1] * len(unknown), [*masked, *unknown])


def slow_f_scores(y_true, y_pred, score, t, n_classes):
    """(pooled over classes, averaged over classes) when scores above t are rejected."""
    tp, fp, fn = np.zeros((3, n_classes))
    for true, pred, r in zip(y_true, y_pred, score, strict=True):
        if r <= t and true == pred:
            tp[true] += 1
        else:
            fp[pred] += r <= t
            fn[true] += true != -1
    mean_p = sum(divide(tp[i], tp[i] + fp[i]) for i in range(n_classes)) / n_classes
    mean_r = sum(divide(tp[i], tp[i] + fn[i]) for i in range(n_classes)) / n_classes
    pooled_p, pooled_r = divide(sum(tp), sum(tp + fp)), divide(sum(tp), sum(tp + fn))
    return harmonic(pooled_p, pooled_r), harmonic(mean_p, mean_r)


def divide(part, whole):
    return part / whole if whole else 0.0


def harmonic(p, r):
    return divide(2 * p * r, p + r)


@st.composite
def triples(draw, score=None, unique=False):
    """At least one known and one unknown sample in any order, three classes, ties more often than not."""
    if score is None:
        score = draw(
            st.sampled_from(
                [
                    st.sampled_from([-1.5, 0.0, 0.25, 1.0, 3.0]),
                    st.integers(-6, 6).map(float),
                    st.floats(-30, 30),
                    st.floats(-30, 30, width=32),
                ]
            )
        )
    n_known, n_unknown = draw(st.integers(1, 12)), draw(st.integers(1, 12))
    n = n_known + n_unknown
    known = st.lists(st.integers(0, 2), min_size=n_known, max_size=n_known)
    y_true = np.array(draw(st.permutations(draw(known) + [-1] * n_unknown)))
    y_pred = np.array(draw(st.lists(st.integers(0, 2), min_size=n, max_size=n)))
    open_score = np.array(draw(st.lists(score, min_size=n, max_size=n, unique=unique)))
    return y_true, y_pred, open_score


def random_triple(n, seed=0, *, decimals=None, shift=0.0, n_classes=5):
    rng = np.random.default_rng(seed)
    y_true = rng.integers(-1, n_classes, n)
    y_pred = np.where(rng.random(n) < 0.7, y_true % n_classes, rng.integers(0, n_classes, n))
    score = rng.normal(size=n) + 1.5 * (y_true == -1) + shift
    return y_true, y_pred, score if decimals is None else score.round(decimals)


def near(value):
    return pytest.approx(value, rel=1e-12, abs=1e-12)


@given(triples())
@example((np.array([0, -1]), np.array([0, 0]), np.array([0.0, 0.0])))
@example((np.array([0, -1]), np.array([0, 0]), np.array([1.0, 0.0])))
@example((np.array([-1, 0]), np.array([0, 0]), np.array([1.0, 0.0])))
def test_oscr_follows_the_description(triple):
    assert arpl_oscr(*triple) == near(slow_oscr(*triple))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("decimals", [0, 1, None])
def test_oscr_follows_the_description_where_numpy_no_longer_sorts_by_insertion(decimals, dtype):
    y_true, y_pred, score = random_triple(300, decimals=decimals)
    triple = y_true, y_pred, score.astype(dtype)
    assert arpl_oscr(*triple) == near(slow_oscr(*triple))


@given(triples(score=st.floats(-1e6, 1e6), unique=True))
def test_oscr_without_ties_is_openauc_minus_half_the_unknown_correct_neighbours(triple):
    y_true, y_pred, score = triple
    by_s = np.argsort(-score)
    unknown, correct = y_true[by_s] == -1, (y_true == y_pred)[by_s] & (y_true[by_s] != -1)
    followed = sum(unknown[k] and correct[k + 1] for k in range(len(score) - 1))
    n_unknown = int(unknown.sum())
    n_known = len(score) - n_unknown
    expected = openauc_score(*triple) - followed / (2 * n_known * n_unknown)
    assert arpl_oscr(*triple) == near(expected)
    assert openauc_score(*triple) - arpl_oscr(*triple) <= 1 / (2 * max(n_known, n_unknown)) + 1e-12


def test_oscr_of_tied_scores_depends_on_the_order_of_the_samples():
    right_first = [0, 0, -1], [0, 1, 0], [1.0, 1.0, 2.0]
    wrong_first = [0, 0, -1], [1, 0, 0], [1.0, 1.0, 2.0]
    assert openauc_score(*right_first) == openauc_score(*wrong_first) == 0.5
    assert (arpl_oscr(*right_first), arpl_oscr(*wrong_first)) == (0.25, 0.5)


def test_oscr_sees_known_samples_first_wherever_they_stand():
    y_true, y_pred, score = np.array([-1, 0, -1, 1, 0]), np.array([0, 0, 1, 1, 1]), np.ones(5)
    known_first = np.argsort(y_true == -1, kind="stable")
    assert arpl_oscr(y_true, y_pred, score) == arpl_oscr(y_true[known_first], y_pred[known_first], score[known_first])


@pytest.mark.parametrize("n", [1, 3, 8])  # up to 16 samples numpy's default sort leaves a constant array alone
def test_constant_scores_earn_nothing_with_arpl_and_half_with_us(n):
    triple = [0] * n + [-1] * n, [0] * 2 * n, [0.3] * 2 * n
    assert arpl_oscr(*triple) == 0.0
    assert strict_auroc(*triple) == 0.0
    assert openauc_score(*triple) == auroc_score(*triple) == 0.5


@pytest.mark.parametrize("metric", [strict_auroc, arpl_tnr_at_tpr, detection_accuracy, arpl_auin, arpl_auout])
@given(triple=triples())
def test_arpl_companions_follow_the_sweep(metric, triple):
    assert metric(*triple) == near(slow_arpl(*triple)[metric])


@pytest.mark.parametrize("decimals", [1, None])
def test_arpl_companions_on_more_samples(decimals):
    triple = random_triple(400, seed=1, decimals=decimals)
    for metric, expected in slow_arpl(*triple).items():
        assert metric(*triple) == near(expected), metric


def test_arpl_tnr_takes_a_tpr_below_the_target_when_it_is_nearer():
    # Ten known samples: TPR 0.9 and 1.0 are both 0.05 away, but in floating point 0.9 is the nearer.
    triple = [0] * 10 + [-1], [0] * 11, [*range(10), 8.5]
    assert arpl_tnr_at_tpr(*triple) == 0.0
    assert 1.0 - fpr_at_tpr(*triple, positive="known") == 0.0
    triple = [0] * 10 + [-1], [0] * 11, [*range(10), 9.5]
    assert arpl_tnr_at_tpr(*triple) == 1.0


def test_arpl_tnr_at_another_rate():
    triple = [0] * 4 + [-1] * 2, [0] * 6, [1, 2, 3, 4, 2.5, 5]
    # Three of four known samples left for the first time: 5 and 4 are gone, 2.5 is not.
    assert arpl_tnr_at_tpr(*triple, tpr=0.75) == 0.5
    assert arpl_tnr_at_tpr(*triple, tpr=0.5) == 0.5
    assert arpl_tnr_at_tpr(*triple, tpr=0.25) == 1.0


def test_arpl_precision_recall_areas_depend_on_the_ratio_and_miss_a_perfect_score():
    perfect = [0, 0, -1, -1], [0] * 4, [1, 2, 3, 4]
    assert average_precision(*perfect) == average_precision(*perfect, positive="known") == 1.0
    assert arpl_auin(*perfect) == arpl_auout(*perfect) == 0.75  # half of the first of two steps is lost
    more = [0] * 8 + [-1] * 2, [0] * 10, [1] * 4 + [2] * 4 + [3, 4]
    assert arpl_auin(*more) == near(1 - 1 / 16)


@given(triples())
@example((np.array([0, -1]), np.array([0, 0]), np.array([0.0, 0.0])))
def test_error_at_tpr_follows_the_description(triple):
    assert vaze_error_at_tpr(*triple) == near(slow_error_at_tpr(*triple))


@pytest.mark.parametrize("target", [0.01, 0.3, 0.95, 1.0])
@pytest.mark.parametrize("shift", [-20.0, 0.0, 20.0])
@pytest.mark.parametrize("decimals", [0, 2, None])
def test_error_at_tpr_at_any_rate_and_on_any_scale(decimals, shift, target):
    triple = random_triple(300, seed=2, decimals=decimals, shift=shift)
    assert vaze_error_at_tpr(*triple, tpr=target) == near(slow_error_at_tpr(*triple, target))


def test_error_at_tpr_calls_everything_known_from_threshold_one_on():
    below, at = (
        [[0, 0, -1, -1], [0] * 4, [0.0, 0.5, 0.9, 2.0]],
        [[0, 0, -1, -1], [0] * 4, [1.0, 1.5, 1.9, 3.0]],
    )
    assert vaze_error_at_tpr(*below) == 0.25  # t = 0: all but the first are called unknown
    assert vaze_error_at_tpr(*at) == 0.5  # t = 1: both unknown samples are missed
    assert error_at_tpr(*below) == error_at_tpr(*at) == 0.0


def test_error_at_tpr_can_take_the_infinite_threshold():
    # The only unknown sample ties with the lowest known one; a TPR of 0.3 is nearer to 0 than to 1.
    assert vaze_error_at_tpr([0, 0, -1], [0] * 3, [0.1, 0.2, 0.1], tpr=0.3) == near(1 / 3)


def test_error_at_tpr_takes_the_lowest_of_equal_rates():
    # 0.5, 0.2 and 0.1 all have TPR 0.95; above 0.1 lie the known 0.2 and all unknown samples but one.
    triple = [0, 0] + [-1] * 20, [0] * 22, [0.1, 0.2, 0.05] + [0.5] * 19
    assert vaze_error_at_tpr(*triple) == near(2 / 22)
    assert error_at_tpr(*triple) == near(1 / 22)


def test_error_at_tpr_lets_the_samples_at_the_threshold_change_sides():
    # 19 of 20 unknown samples have score >= 0.5, the TPR asked for, but none of them has score > 0.5.
    triple = [0, 0] + [-1] * 20, [0] * 22, [0.7, 0.8, 0.05] + [0.5] * 19
    assert vaze_error_at_tpr(*triple) == 1.0
    assert error_at_tpr(*triple) == near(3 / 22)


@given(triples())
def test_openauc_code_is_the_roc_area_of_masked_scores(triple):
    y_true, y_pred, score = triple
    assert openauc_code_score(*triple, sigmoid=False) == near(slow_openauc_code(*triple))
    assert openauc_code_score(*triple) == near(slow_openauc_code(y_true, y_pred, float32_sigmoid(score)))


@given(triples())
def test_openauc_code_without_its_sigmoid_is_exact_for_ordinary_scores(triple):
    assert openauc_code_score(*triple, sigmoid=False) == near(openauc_score(*triple))


def test_openauc_code_gives_a_masked_sample_half_a_tie_once_the_margin_is_rounded_away():
    small, large = [[0, -1], [1, 0], [0.0, 1.0]], [[0, -1], [1, 0], [0.0, 1e12]]
    assert openauc_code_score(*small, sigmoid=False) == 0.0
    assert openauc_code_score(*large, sigmoid=False) == 0.5
    assert openauc_score(*large) == 0.0


@pytest.mark.parametrize("shift", [25.0, -120.0])
def test_the_float32_sigmoid_invents_ties_and_moves_the_value(shift):
    triple = random_triple(2000, shift=shift)
    exact = openauc_score(*triple)
    assert len(np.unique(triple[2])) == 2000
    assert openauc_code_score(*triple, sigmoid=False) == near(exact)
    # Every score is squashed to 1 (or to 0), so that a correct known sample ties with every unknown one.
    assert openauc_code_score(*triple) == near(closed_set_accuracy(*triple) / 2)
    assert openauc_code_score(*triple) < exact - 0.2


def test_the_sigmoid_is_that_of_torch():
    torch = pytest.importorskip("torch")
    score = np.linspace(-110, 30, 28001, dtype=np.float32)
    ours, theirs = legacy._float32_sigmoid(score), torch.sigmoid(torch.from_numpy(score)).numpy()
    np.testing.assert_array_max_ulp(ours.astype(np.float32), theirs, maxulp=4)
    assert np.array_equal(ours == 1.0, theirs == 1.0)
    assert ours[score > 17].min() == 1.0
    assert ours[score < -89].max() == 0.0
    assert np.array_equal(legacy._float32_sigmoid(np.array([-np.inf, -1e300, 1e300, np.inf])), [0, 0, 1, 1])


@given(triples())
def test_grid_f_scores_follow_the_description(triple):
    y_true, y_pred, score = triple
    squashed = float32_sigmoid(score)
    over_grid = [slow_f_scores(y_true, y_pred, squashed, t, n_classes=3) for t in GRID]
    found = openauc_code_f_scores(*triple, classes=range(3))
    assert found.ma == near(max(pooled for pooled, _ in over_grid))
    assert found.mi == near(max(averaged for _, averaged in over_grid))
    assert over_grid[GRID.index(found.ma_threshold)][0] == near(found.ma)
    assert over_grid[GRID.index(found.mi_threshold)][1] == near(found.mi)


@given(triples())
def test_names_are_swapped(triple):
    y_true, y_pred, score = triple
    squashed = np.array(float32_sigmoid(score))
    found = openauc_code_f_scores(*triple)
    assert found.ma == near(open_set_f_score(y_true, y_pred, squashed, threshold=found.ma_threshold, average="micro"))
    assert found.mi == near(open_set_f_score(y_true, y_pred, squashed, threshold=found.mi_threshold, average="macro"))


@pytest.mark.parametrize("backend", ["numpy", "numba"])
def test_grid_f_scores_on_more_samples_with_either_backend(backend, monkeypatch):
    if backend == "numba":
        pytest.importorskip("numba")
    monkeypatch.setenv("OPENAUC_BACKEND", backend)
    y_true, y_pred, score = random_triple(6000, seed=3, decimals=2, n_classes=20)
    squashed = np.array(float32_sigmoid(score))
    for name, average in (("ma", "micro"), ("mi", "macro")):
        best = max(open_set_f_score(y_true, y_pred, squashed, threshold=t, average=average) for t in GRID)
        assert getattr(openauc_code_f_scores(y_true, y_pred, score), name) == near(best)


@given(triples())
def test_every_threshold_is_at_least_as_good_as_the_grid(triple):
    found, sweep = openauc_code_f_scores(*triple), threshold_sweep(*triple)
    assert found.ma <= sweep.best("micro_f_score").value + 1e-12
    assert found.mi <= sweep.best("macro_f_score").value + 1e-12


def test_the_grid_cannot_reject_large_logits():
    y_true, y_pred, score = [0, 0, -1, -1], [0] * 4, np.array([-9.0, -8.0, -6.0, -5.0])
    assert threshold_sweep(y_true, y_pred, score).best("micro_f_score") == (1.0, -8.0)
    found = openauc_code_f_scores(y_true, y_pred, score)
    assert found == (near(2 / 3), near(2 / 3), 0.01, 0.01)  # precision 1/2, recall 1: everything is accepted


@pytest.mark.parametrize(("known", "unknown", "t"), [(0.005, 0.015, 0.01), (0.985, 0.995, 0.99)])
def test_the_grid_runs_from_one_to_ninety_nine_hundredths(known, unknown, t):
    logits = [math.log(p / (1 - p)) for p in (known, unknown)]
    assert openauc_code_f_scores([0, -1], [0, 0], logits) == (1.0, 1.0, t, t)


def test_the_decision_is_strict():
    # sigmoid(0) = 0.5 = 50 * 0.01: accepted at t = 0.5.
    assert openauc_code_f_scores([0, -1], [0, 0], [0.0, 0.01]) == (1.0, 1.0, 0.5, 0.5)


def test_classes_never_met_count_in_the_averages():
    triple = [0, 0, -1], [0, 0, 0], [-3.0, -2.0, 3.0]
    assert openauc_code_f_scores(*triple)[:2] == (1.0, 1.0)
    assert openauc_code_f_scores(*triple, classes=[0, 1])[:2] == (1.0, 0.5)


@given(triples())
def test_pytorch_ood_follows_the_description(triple):
    """A point per known sample in rising order, joined by straight lines, from (0, 0) to (1, accuracy)."""
    samples = list(zip(*(column.tolist() for column in triple), strict=True))
    known = sorted((s for s in samples if s[0] != -1), key=lambda s: s[2])
    unknown = [s[2] for s in samples if s[0] == -1]
    points, right = [(0.0, 0.0)], 0
    for true, pred, score in known:
        right += true == pred
        points.append((sum(u <= score for u in unknown) / len(unknown), right / len(known)))
    points.append((1.0, right / len(known)))
    area = sum((x1 - x0) * (y0 + y1) / 2 for (x0, y0), (x1, y1) in itertools.pairwise(points))
    assert pytorch_ood_oscr(*triple) == near(area)


def test_pytorch_ood_undercounts_ties():
    for n in (1, 2, 10):
        tied = [0] * n + [-1], [0] * (n + 1), [1.0] * (n + 1)
        assert pytorch_ood_oscr(*tied) == near(0.5 / n)
        assert openauc_score(*tied) == 0.5


def test_every_public_function_of_the_triple_is_in_the_table():
    functions = {
        name
        for name, f in inspect.getmembers(legacy, inspect.isfunction)
        if f.__module__ == legacy.__name__ and not name.startswith("_")
    }
    listed = {row.function.__name__ for row in LEGACY.values()}
    assert functions - listed == {"explain", "openauc_code_f_scores"}
    assert {name for name in LEGACY if "_f_score" in name} == {
        "openauc_code_ma_f_score",
        "openauc_code_mi_f_score",
    }


@pytest.mark.parametrize("name", LEGACY)
def test_table_entries_are_complete(name):
    entry = LEGACY[name]
    assert entry.exact is None or entry.exact in METRICS
    assert entry.why.endswith(".")


@pytest.mark.parametrize("triple", [SMALL, random_triple(500, seed=4, decimals=1)])
def test_explain_sets_legacy_beside_exact(triple):
    rows = explain(*triple)
    assert [row.name for row in rows] == list(LEGACY)
    for row in rows:
        assert row.value == LEGACY[row.name].function(*triple)
        assert row.difference == row.value - row.exact_value
        assert row.why == LEGACY[row.name].why
        if row.exact is not None:
            assert row.exact_value == near(METRICS[row.exact].function(*triple))
    by_name = {row.name: row for row in rows}
    tnr = by_name["arpl_tnr_at_tpr"]
    assert tnr.exact_value == near(1.0 - fpr_at_tpr(*triple, positive="known"))
    found = openauc_code_f_scores(*triple)
    assert (by_name["openauc_code_ma_f_score"].value, by_name["openauc_code_mi_f_score"].value) == found[:2]


def test_explain_values_by_hand():
    values = {row.name: row.value for row in explain(*SMALL)}
    assert values == {
        "arpl_oscr": near(5 / 12),
        "arpl_tnr_at_tpr": 0.0,
        "arpl_auin": near(53 / 72),
        "arpl_auout": near(13 / 24),
        "vaze_error_at_tpr": near(2 / 5),
        "pytorch_ood_oscr": near(7 / 12),
        "openauc_code_score": near(1 / 2),
        "openauc_code_ma_f_score": near(4 / 7),
        "openauc_code_mi_f_score": near(3 / 5),
    }


def test_explain_passes_on_the_unknown_label_and_takes_names():
    y_true, y_pred, score = SMALL
    names = {0: "cat", 1: "dog", -1: "other"}
    named = [names[y] for y in y_true], [names[y] for y in y_pred], score
    assert explain(*named, unknown_label="other") == explain(*SMALL)


def test_legacy_metrics_do_not_warn_about_the_direction_of_the_score():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rows = explain([0, 0, -1], [0, 0, 0], [3.0, 2.0, 1.0])
    assert all(math.isfinite(row.difference) for row in rows)


@pytest.mark.parametrize("name", LEGACY)
@pytest.mark.parametrize(("y_true", "missing"), [([0, 0], "no unknown sample"), ([-1, -1], "no known sample")])
def test_one_sided_data_are_refused(name, y_true, missing):
    with pytest.raises(ValueError, match=missing):
        LEGACY[name].function(y_true, [0, 0], [0.1, 0.2])


@pytest.mark.parametrize("metric", [arpl_tnr_at_tpr, vaze_error_at_tpr])
@pytest.mark.parametrize("tpr", [0.0, 95, -0.1])
def test_rates_are_fractions(metric, tpr):
    with pytest.raises(ValueError, match=r"tpr is .* expected a fraction"):
        metric(*SMALL, tpr=tpr)
