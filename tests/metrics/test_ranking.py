"""Ranking metrics against brute-force loops, scikit-learn, their bounds and their invariances."""

import warnings
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import oracles
import pandas as pd
import pytest
import sklearn.metrics
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import UNKNOWN, Triple, fractions, order_preserving, random_triple, triples

from openauc.metrics import ranking
from openauc.metrics.decision import closed_set_accuracy
from openauc.metrics.rank_table import RankTable, rank
from openauc.metrics.ranking import (
    ScoreDirectionWarning,
    acc_plus_auc,
    acc_times_auc,
    auroc_score,
    average_precision,
    ccr_at_fpr,
    detection_accuracy,
    error_at_tpr,
    fpr_at_tpr,
    openauc_score,
    oscr_curve,
    roc_curve,
)
from openauc.metrics.samples import read_samples

pytestmark = pytest.mark.filterwarnings("ignore::openauc.metrics.ranking.ScoreDirectionWarning")

METRICS = {
    "openauc": openauc_score,
    "openauc strict": partial(openauc_score, ties="strict"),
    "openauc partial": partial(openauc_score, max_ofpr=0.3),
    "openauc two-sided": partial(openauc_score, min_ofpr=0.2, max_ofpr=0.7, ties="strict"),
    "auroc": auroc_score,
    "auroc strict": partial(auroc_score, ties="strict"),
    "fpr at 95 tpr": fpr_at_tpr,
    "fpr at 80 tpr, known": partial(fpr_at_tpr, tpr=0.8, positive="known"),
    "error at 95 tpr": error_at_tpr,
    "average precision": average_precision,
    "average precision, known": partial(average_precision, positive="known"),
    "detection accuracy": detection_accuracy,
    "ccr at 10 fpr": ccr_at_fpr,
    "ccr at 60 fpr": partial(ccr_at_fpr, fpr=0.6),
    "acc times auc": acc_times_auc,
    "acc plus auc": acc_plus_auc,
}
every_metric = pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS.keys())
both_ties = pytest.mark.parametrize("ties", ["half", "strict"])
both_sides = pytest.mark.parametrize("positive", ["unknown", "known"])

# Two of three known samples are correct (the third, wrong one lies between); OpenAUC counts 3 of 6 pairs.
HAND = ([0, 1, 1, -1, -1], [0, 1, 0, 1, 0], [0.1, 0.6, 0.2, 0.5, 0.9])


def close(expected: Any) -> Any:
    return pytest.approx(expected, abs=1e-12)


def values(triple: Any, **options: Any) -> dict[str, float]:
    """Every metric of one triple."""
    return {name: metric(*triple, **options) for name, metric in METRICS.items()}


@both_ties
@given(triples())
def test_openauc(ties, triple):
    assert openauc_score(*triple, ties=ties) == close(oracles.openauc(*triple.lists, ties))


@both_ties
@given(triples())
def test_auroc(ties, triple):
    assert auroc_score(*triple, ties=ties) == close(oracles.auroc(*triple.lists, ties))


@both_ties
@given(triples(), fractions(zero=True), fractions())
def test_partial_openauc(ties, triple, a, b):
    low, high = sorted([a, b])
    if low == high:
        low = 0.0
    expected = oracles.partial_openauc(*triple.lists, low, high, ties)
    assert openauc_score(*triple, ties=ties, min_ofpr=low, max_ofpr=high) == close(expected)


@both_sides
@given(triples(), fractions())
def test_fpr_at_tpr(positive, triple, tpr):
    y_true, _, score = triple.lists
    expected = oracles.fpr_at_tpr(y_true, score, tpr, positive)
    assert fpr_at_tpr(*triple, tpr=tpr, positive=positive) == close(expected)


@given(triples(), fractions())
def test_error_at_tpr(triple, tpr):
    y_true, _, score = triple.lists
    assert error_at_tpr(*triple, tpr=tpr) == close(oracles.error_at_tpr(y_true, score, tpr))


@given(triples(), fractions(zero=True))
def test_ccr_at_fpr(triple, fpr):
    assert ccr_at_fpr(*triple, fpr=fpr) == close(oracles.ccr_at_fpr(*triple.lists, fpr))


@both_sides
@given(triples())
def test_average_precision(positive, triple):
    y_true, _, score = triple.lists
    expected = oracles.average_precision(y_true, score, positive)
    assert average_precision(*triple, positive=positive) == close(expected)


@given(triples())
def test_detection_accuracy(triple):
    y_true, _, score = triple.lists
    assert detection_accuracy(*triple) == close(oracles.detection_accuracy(y_true, score))


@given(triples())
def test_aggregates_of_accuracy_and_auroc(triple):
    y_true, y_pred, score = triple.lists
    acc, auc = oracles.accuracy(y_true, y_pred), oracles.auroc(y_true, y_pred, score)
    assert acc_times_auc(*triple) == close(acc * auc)
    assert acc_plus_auc(*triple) == close(acc + auc)
    assert acc_plus_auc(*triple) == close(oracles.pointwise_sum(y_true, y_pred, score))


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        (openauc_score, 3 / 6),
        (auroc_score, 5 / 6),
        (partial(openauc_score, max_ofpr=0.5), 1 / 3),
        (partial(openauc_score, min_ofpr=0.5), 2 / 3),
        (partial(openauc_score, min_ofpr=0.25, max_ofpr=0.75), 1 / 2),
        (fpr_at_tpr, 1 / 3),
        (partial(fpr_at_tpr, tpr=0.5), 0.0),
        (partial(fpr_at_tpr, positive="known"), 1 / 2),
        (error_at_tpr, 1 / 5),
        (average_precision, 1 / 2 + 1 / 2 * 2 / 3),
        (partial(average_precision, positive="known"), (1 + 1 + 3 / 4) / 3),
        (detection_accuracy, (2 / 3 + 1) / 2),
        (partial(ccr_at_fpr, fpr=0.0), 1 / 3),
        (partial(ccr_at_fpr, fpr=0.5), 2 / 3),
        (acc_times_auc, 2 / 3 * 5 / 6),
        (acc_plus_auc, 2 / 3 + 5 / 6),
    ],
)
def test_by_hand(metric, expected):
    assert metric(*HAND) == close(expected)


@both_ties
def test_a_perfect_model(ties):
    perfect = ([0, 1, 2, -1, -1], [0, 1, 2, 0, 1], [1, 2, 3, 4, 5])
    assert openauc_score(*perfect, ties=ties) == 1.0
    for low, high in [(0.0, 0.01), (0.0, 0.5), (0.3, 0.9), (0.99, 1.0)]:
        assert openauc_score(*perfect, ties=ties, min_ofpr=low, max_ofpr=high) == close(1.0)
    assert auroc_score(*perfect, ties=ties) == 1.0
    assert fpr_at_tpr(*perfect, tpr=1.0) == 0.0
    assert fpr_at_tpr(*perfect, tpr=1.0, positive="known") == 0.0
    assert error_at_tpr(*perfect, tpr=1.0) == 0.0
    assert average_precision(*perfect) == average_precision(*perfect, positive="known") == 1.0
    assert detection_accuracy(*perfect) == 1.0
    assert ccr_at_fpr(*perfect, fpr=0.0) == 1.0


def test_a_constant_score_earns_half_its_accuracy_or_nothing():
    constant = ([0, 1, 1, -1, -1], [0, 1, 0, 1, 0], [7.0] * 5)
    assert openauc_score(*constant) == close(1 / 3)
    assert openauc_score(*constant, ties="strict") == 0.0
    assert auroc_score(*constant) == 0.5
    assert auroc_score(*constant, ties="strict") == 0.0
    # A straight line from (0, 0) to (1, 2/3): its mean height up to OFPR = 1/2 is a quarter of its end.
    assert openauc_score(*constant, max_ofpr=0.5) == close(1 / 6)
    assert openauc_score(*constant, max_ofpr=0.5, ties="strict") == 0.0
    assert fpr_at_tpr(*constant) == fpr_at_tpr(*constant, positive="known") == 1.0
    assert detection_accuracy(*constant) == 0.5


def test_a_model_that_is_always_wrong():
    wrong = ([0, 1, -1], [1, 0, 0], [1, 2, 3])
    assert openauc_score(*wrong) == openauc_score(*wrong, max_ofpr=0.5) == acc_times_auc(*wrong) == 0.0
    assert auroc_score(*wrong) == 1.0
    assert oscr_curve(*wrong).y.tolist() == [0.0] * 4


def test_predicting_unknown_for_a_known_sample_is_wrong():
    assert openauc_score([0, 0, -1], [0, -1, -1], [1, 2, 3]) == 0.5


def test_0_95_of_20_is_19():
    y_true, score = [0] + [-1] * 20, [1.5, 1.0, *range(2, 21)]
    assert fpr_at_tpr(y_true, [0] * 21, score, tpr=0.95) == 0.0
    assert fpr_at_tpr(y_true, [0] * 21, score, tpr=0.96) == 1.0
    y_true, score = [-1] + [0] * 20, [20.5, *range(1, 20), 21.0]
    assert fpr_at_tpr(y_true, [0] * 21, score, tpr=0.95, positive="known") == 0.0
    assert fpr_at_tpr(y_true, [0] * 21, score, tpr=0.96, positive="known") == 1.0


def test_ccr_counts_0_3_of_10_as_3():
    y_true, score = [0] + [-1] * 10, [3.5, *range(1, 11)]
    assert ccr_at_fpr(y_true, [0] * 11, score, fpr=0.3) == 1.0
    assert ccr_at_fpr(y_true, [0] * 11, score, fpr=0.29) == 0.0


def ranks(triple: Triple) -> np.ndarray:
    """scikit-learn takes no infinite score; dense ranks keep order and ties."""
    return np.unique(triple.open_score, return_inverse=True)[1]


def masked(triple: Triple) -> np.ndarray:
    """Wrong known samples are put above every unknown one (section "efficient form" of the paper)."""
    order = ranks(triple)
    wrong = (triple.y_true != UNKNOWN) & (triple.y_true != triple.y_pred)
    return np.where(wrong, order.max() + 1, order)


@given(triples())
def test_openauc_is_scikit_learns_auroc_of_masked_scores(triple):
    expected = sklearn.metrics.roc_auc_score(triple.y_true == UNKNOWN, masked(triple))
    assert openauc_score(*triple) == close(expected)


@given(triples())
def test_auroc_and_average_precision_of_scikit_learn(triple):
    unknown, order = triple.y_true == UNKNOWN, ranks(triple)
    assert auroc_score(*triple) == close(sklearn.metrics.roc_auc_score(unknown, order))
    assert average_precision(*triple) == close(sklearn.metrics.average_precision_score(unknown, order))
    known_first = sklearn.metrics.average_precision_score(~unknown, -order)
    assert average_precision(*triple, positive="known") == close(known_first)


@given(triples(finite=True))
def test_roc_curve_of_scikit_learn(triple):
    fpr, tpr, threshold = sklearn.metrics.roc_curve(
        triple.y_true == UNKNOWN, triple.open_score, drop_intermediate=False
    )
    curve = roc_curve(*triple)
    np.testing.assert_allclose(curve.x, fpr, atol=1e-15)
    np.testing.assert_allclose(curve.y, tpr, atol=1e-15)
    # scikit-learn rejects score >= threshold, so each of its thresholds is our next lower one.
    np.testing.assert_array_equal(curve.threshold[:-1], threshold[1:])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("decimals", [None, 1])
def test_scikit_learn_on_thousands_of_samples(dtype, decimals):
    triple = random_triple(6000, dtype=dtype, decimals=decimals)
    unknown, score = triple.y_true == UNKNOWN, triple.open_score.astype(np.float64)
    assert openauc_score(*triple) == close(sklearn.metrics.roc_auc_score(unknown, masked(triple)))
    assert auroc_score(*triple) == close(sklearn.metrics.roc_auc_score(unknown, score))
    assert average_precision(*triple) == close(sklearn.metrics.average_precision_score(unknown, score))
    fpr, tpr, _ = sklearn.metrics.roc_curve(unknown, score, drop_intermediate=False)
    assert fpr_at_tpr(*triple, tpr=0.9) == close(fpr[tpr >= 0.9].min())
    assert detection_accuracy(*triple) == close((0.5 * (1 - fpr + tpr)).max())


@given(triples(), st.randoms(use_true_random=False))
def test_the_order_of_the_samples_does_not_matter(triple, random):
    order = list(range(len(triple.y_true)))
    random.shuffle(order)
    assert values(tuple(part[order] for part in triple)) == values(triple)


@given(st.data())
def test_strictly_monotone_transforms_of_the_score_do_not_matter(data):
    triple = data.draw(triples())
    other = data.draw(order_preserving(triple.open_score))
    assert values((triple.y_true, triple.y_pred, other)) == values(triple)


@given(triples())
def test_predictions_for_unknown_samples_and_class_numbers_do_not_matter(triple):
    y_true, y_pred = triple.y_true.copy(), triple.y_pred.copy()
    y_pred[y_true == UNKNOWN] = 1000
    y_true[y_true != UNKNOWN] += 3
    y_pred[y_pred != UNKNOWN] += 3
    assert values((y_true, y_pred, triple.open_score)) == values(triple)


@given(triples())
def test_repeating_every_sample_does_not_matter(triple):
    # Ties are kept: pairs of copies count like the pairs they copy.
    assert values(tuple(np.repeat(part, 3) for part in triple)) == close(values(triple))


@both_ties
@given(triples())
def test_bounds_of_openauc(ties, triple):
    value, auc = openauc_score(*triple, ties=ties), auroc_score(*triple, ties=ties)
    acc = closed_set_accuracy(*triple)
    assert acc + auc - 1 - 1e-12 <= value <= min(acc, auc) + 1e-12
    assert openauc_score(*triple, ties="strict") <= openauc_score(*triple, ties="half")


@given(triples())
def test_area_of_the_oscr_curve_is_openauc(triple):
    assert oscr_curve(*triple).area() == close(openauc_score(*triple))


@given(triples())
def test_integral_definition_equals_the_pairwise_one(triple):
    lower = oracles.openauc_integral(*triple.lists, "sup")
    upper = oracles.openauc_integral(*triple.lists, "inf")
    assert openauc_score(*triple, ties="strict") == close(lower)
    assert openauc_score(*triple, ties="half") == close((lower + upper) / 2)


@given(triples())
def test_area_of_the_roc_curve_is_auroc(triple):
    assert roc_curve(*triple).area() == close(auroc_score(*triple))


@both_ties
@given(triples(), fractions(), fractions())
def test_partial_areas_add_up(ties, triple, a, b):
    cuts = sorted({0.0, a, b, 1.0})
    parts = [
        (high - low) * openauc_score(*triple, ties=ties, min_ofpr=low, max_ofpr=high) for low, high in pairwise(cuts)
    ]
    assert sum(parts) == close(openauc_score(*triple, ties=ties))


@both_ties
@given(triples())
def test_the_full_range_is_openauc(ties, triple):
    full = openauc_score(*triple, ties=ties)
    assert openauc_score(*triple, ties=ties, max_ofpr=1.0) == full
    assert openauc_score(*triple, ties=ties, min_ofpr=0.0, max_ofpr=1.0) == full
    # And so is the limit of the area formula, which the full range does not go through.
    assert openauc_score(*triple, ties=ties, max_ofpr=1.0 - 1e-13) == pytest.approx(full, abs=1e-11)


@given(triples(), fractions())
def test_partial_openauc_grows_with_the_range(triple, high):
    """COTPR never falls, so its mean over a longer range from 0 is no smaller, nor above the accuracy."""
    partial_value = openauc_score(*triple, max_ofpr=high)
    assert partial_value <= openauc_score(*triple) + 1e-12
    assert partial_value <= closed_set_accuracy(*triple) + 1e-12


@given(triples())
def test_negated_scores_mirror_auroc(triple):
    mirrored = auroc_score(triple.y_true, triple.y_pred, -triple.open_score)
    assert mirrored == close(1 - auroc_score(*triple))


@given(triples())
def test_oscr_curve_from_reject_all_to_accept_all(triple):
    curve = oscr_curve(*triple)
    expected = oracles.oscr_points(*triple.lists)
    np.testing.assert_allclose(curve.x, [float(x) for x, _ in expected], atol=1e-15)
    np.testing.assert_allclose(curve.y, [float(y) for _, y in expected], atol=1e-15)
    assert (curve.x[0], curve.y[0], curve.threshold[0]) == (0.0, 0.0, -np.inf)
    assert (curve.x[-1], curve.y[-1]) == (1.0, closed_set_accuracy(*triple))
    assert curve.threshold[1:].tolist() == sorted(set(triple.open_score.tolist()))
    assert np.all(np.diff(curve.x) >= 0)
    assert np.all(np.diff(curve.y) >= 0)


@given(triples())
def test_roc_curve_from_accept_all_to_reject_all(triple):
    curve = roc_curve(*triple)
    assert (curve.x[0], curve.y[0]) == (0.0, 0.0)
    assert (curve.x[-1], curve.y[-1], curve.threshold[-1]) == (1.0, 1.0, -np.inf)
    assert curve.threshold[0] == triple.open_score.max()
    assert np.all(np.diff(curve.x) >= 0)
    assert np.all(np.diff(curve.y) >= 0)
    assert len(curve) == len(set(triple.open_score.tolist())) + 1


def test_curves_name_their_axes():
    assert oscr_curve(*HAND).x_label == "unknown accepted (OFPR)"
    assert oscr_curve(*HAND).y_label == "known correct and accepted (COTPR)"
    assert (roc_curve(*HAND).x_label, roc_curve(*HAND).y_label) == (
        "known rejected (FPR)",
        "unknown rejected (TPR)",
    )


NAMES = {0: "cat", 1: "dog", -1: "-1"}
INPUTS = {
    "arrays": tuple(map(np.array, HAND)),
    "float32": (*HAND[:2], np.array(HAND[2], dtype=np.float32)),
    "float16": (*HAND[:2], np.array(HAND[2], dtype=np.float16)),
    "integer scores": (*HAND[:2], [1, 6, 2, 5, 9]),
    "int8 scores": (*HAND[:2], np.array([1, 6, 2, 5, 9], dtype=np.int8)),
    "small labels": (np.array(HAND[0], dtype=np.int8), np.array(HAND[1], dtype=np.uint16), HAND[2]),
    "float labels": (np.array(HAND[0], dtype=np.float32), np.array(HAND[1], dtype=np.float64), HAND[2]),
    "names": ([NAMES[t] for t in HAND[0]], [NAMES[p] for p in HAND[1]], HAND[2]),
    "pandas": tuple(pd.Series(part, index=list("edcba")) for part in HAND),
    "pandas nullable": (
        *(pd.Series(p, dtype="Int64") for p in HAND[:2]),
        pd.Series(HAND[2], dtype="Float64"),
    ),
    "torch": (*map(torch.tensor, HAND[:2]), torch.tensor(HAND[2], requires_grad=True)),
    "bfloat16": (*map(torch.tensor, HAND[:2]), torch.tensor(HAND[2], dtype=torch.bfloat16)),
    "not contiguous": tuple(np.repeat(part, 2)[::2] for part in HAND),
    "read only": tuple(np.broadcast_to(np.array(part), (1, 5))[0] for part in HAND),
}


@pytest.mark.parametrize("triple", INPUTS.values(), ids=INPUTS.keys())
def test_any_container_gives_the_same_value(triple):
    assert values(triple) == values(HAND)
    assert {type(value) for value in values(triple).values()} == {float}


@pytest.mark.parametrize("unknown_label", [5, 99, "other", "-1"])
def test_any_label_may_mark_unknown(unknown_label):
    y_true, y_pred, score = HAND
    if isinstance(unknown_label, str):
        y_true, y_pred = (
            ["cat" if t == 0 else "dog" for t in y_true],
            ["cat" if p == 0 else "dog" for p in y_pred],
        )
        y_true[3:] = [unknown_label] * 2
    else:
        y_true = [*y_true[:3], unknown_label, unknown_label]
    assert values((y_true, y_pred, score), unknown_label=unknown_label) == values(HAND)


@pytest.mark.parametrize("scale", [1e300, 1e-300, 5e-324, 1e-310])
def test_any_magnitude(scale):
    assert values((*HAND[:2], np.array([1, 6, 2, 5, 9]) * scale)) == values(HAND)
    assert values((*HAND[:2], np.array([-9, -4, -8, -5, -1]) * scale)) == values(HAND)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_neighbouring_floats_are_told_apart(dtype):
    score = [dtype(1e6)]
    while len(score) < 10:
        score.append(np.nextafter(score[-1], dtype(np.inf)))
    assert values((*HAND[:2], np.array(score)[[1, 6, 2, 5, 9]])) == values(HAND)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_infinite_scores_rank_at_the_ends(dtype):
    score = np.array([-np.inf, 0.6, 0.2, 0.5, np.inf], dtype=dtype)
    assert values((*HAND[:2], score)) == values(HAND)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_both_zeros_are_one_score(dtype):
    labels = [0, 0, 1, -1, -1], [0, 0, 0, 0, 0]
    plain = values((*labels, [0.0, 0.0, 0.0, 0.0, 1.0]))
    assert values((*labels, np.array([-0.0, 0.0, -0.0, 0.0, 1.0], dtype=dtype))) == plain
    assert values((*labels, np.array([0.0, -0.0, 0.0, -0.0, 1.0], dtype=dtype))) == plain


def test_two_samples_are_enough():
    found = values(([3, -1], [3, 3], [0.0, 1.0]))
    errors = {name for name in found if name.startswith(("fpr", "error"))}
    best = {name: 0.0 if name in errors else 2.0 if name == "acc plus auc" else 1.0 for name in found}
    assert found == close(best)


@pytest.mark.parametrize(
    ("triple", "message"),
    [
        (([-1, -1], [0, 0], [1, 2]), "no known sample"),
        (([0, 1], [0, 0], [1, 2]), "no unknown sample"),
        (([], [], []), "no known sample"),
        (([0, -1], [0, 0], [1, 2, 3]), "open_score has 3 entries but y_true has 2"),
        (([0, -1], [0], [1, 2]), "y_pred has 1 entries but y_true has 2"),
        (([0, -1], [0, 0], [1, np.nan]), "open_score is NaN for sample 1"),
        (([0, -2], [0, 0], [1, 2]), "y_true contains the label -2"),
        (([[0, -1]], [0, 0], [1, 2]), "y_true has shape"),
    ],
)
def test_bad_triples(triple, message):
    for metric in METRICS.values():
        with pytest.raises(ValueError, match=message):
            metric(*triple)


def test_large_counts_of_a_typed_fraction():
    """0.55 * 60000020 is a little more than 33000011 in double precision."""
    n = 60_000_020
    found = n * 11 // 20
    one = np.array([0, 1, 1])
    table = RankTable(np.array([-np.inf, 1.0, 2.0]), known=one, correct=one, unknown=np.array([0, n - found, n]))
    assert found / n == 0.55
    assert ranking.cut_at_tpr(table, 0.55) == 1


def test_a_tiny_fraction_still_asks_for_one_sample():
    reversed_pair = ([0, -1], [0, 0], [1.0, 0.0])
    assert fpr_at_tpr(*reversed_pair, tpr=1e-12) == fpr_at_tpr(*reversed_pair, tpr=0.5) == 1.0
    assert fpr_at_tpr(*reversed_pair, tpr=1e-12, positive="known") == 1.0


@pytest.mark.parametrize("metric", [oscr_curve, roc_curve])
def test_curves_need_both_sides(metric):
    with pytest.raises(ValueError, match="no unknown sample"):
        metric([0, 1], [0, 0], [1, 2])
    with pytest.raises(ValueError, match="no known sample"):
        metric([-1], [0], [1])


@every_metric
def test_mixed_label_types(metric):
    with pytest.raises(TypeError, match=r"y_true holds names .* but y_pred holds integers"):
        metric(["cat", "-1"], [0, 0], [1, 2])
    with pytest.raises(TypeError, match="unknown_label is 'other' but y_true holds integers"):
        metric([0, -1], [0, 0], [1, 2], unknown_label="other")


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        (partial(openauc_score, ties="Half"), "ties is 'Half'.*Did you mean 'half'"),
        (partial(auroc_score, ties="none"), "ties is 'none'; expected one of 'half', 'strict'"),
        (partial(openauc_score, max_ofpr=0.0), r"max_ofpr is 0.0; expected a fraction in \(0, 1\]"),
        (partial(openauc_score, max_ofpr=10), "max_ofpr is 10.*not a percentage"),
        (partial(openauc_score, min_ofpr=1.0), r"min_ofpr is 1.0; expected a fraction in \[0, 1\)"),
        (partial(openauc_score, min_ofpr=-0.1), "min_ofpr is -0.1"),
        (partial(openauc_score, min_ofpr=0.5, max_ofpr=0.5), "min_ofpr 0.5 must be below max_ofpr 0.5"),
        (partial(openauc_score, min_ofpr=0.6, max_ofpr=0.5), "min_ofpr 0.6 must be below max_ofpr 0.5"),
        (partial(fpr_at_tpr, tpr=95), "tpr is 95.*not a percentage"),
        (partial(fpr_at_tpr, tpr=0.0), r"tpr is 0.0; expected a fraction in \(0, 1\]"),
        (partial(fpr_at_tpr, positive="unknwon"), "positive is 'unknwon'.*Did you mean 'unknown'"),
        (partial(error_at_tpr, tpr=np.nan), "tpr is nan"),
        (partial(average_precision, positive="in"), "positive is 'in'; expected one of 'unknown', 'known'"),
        (partial(ccr_at_fpr, fpr=1.5), r"fpr is 1.5; expected a fraction in \[0, 1\]"),
    ],
)
def test_bad_options(metric, message):
    with pytest.raises(ValueError, match=message):
        metric(*HAND)


REVERSED = ([0, 0, -1, -1], [0, 0, 0, 0], [3, 4, 1, 2])
REVERSED_ABOVE_HALF = (
    [0] * 4 + [-1] * 4,
    [0] * 8,
    [5, 5, 5, 5, 1, 2, 3, 9],
)  # AUROC 0.25, COTPR 1 at the end


def warned_by(metric, *triple) -> list[warnings.WarningMessage]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        metric(*triple)
    return [w for w in caught if issubclass(w.category, ScoreDirectionWarning)]


@pytest.mark.parametrize(
    "metric",
    [
        openauc_score,
        partial(openauc_score, ties="strict"),
        partial(openauc_score, max_ofpr=0.5),
        auroc_score,
    ],
)
def test_a_reversed_score_is_reported_where_the_caller_stands(metric):
    (warning,) = warned_by(metric, *REVERSED)
    assert "AUROC is 0.0000, below 0.5" in str(warning.message)
    assert "pass -open_score, or --lower-is-unknown" in str(warning.message)
    assert warning.filename == __file__


def test_a_reversed_score_is_reported_for_a_range_in_which_the_curve_is_high():
    assert openauc_score(*REVERSED_ABOVE_HALF, min_ofpr=0.8) == 1.0
    assert len(warned_by(partial(openauc_score, min_ofpr=0.8), *REVERSED_ABOVE_HALF)) == 1


@pytest.mark.parametrize(
    ("metric", "triple"),
    [
        (openauc_score, HAND),
        (auroc_score, HAND),
        (auroc_score, ([0, -1], [0, 0], [1.0, 1.0])),  # exactly one half
        (openauc_score, ([0, -1], [0, 0], [1.0, 1.0])),
        (partial(openauc_score, ties="strict"), ([0, -1], [0, 0], [1.0, 1.0])),  # value 0, but AUROC one half
        (partial(auroc_score, ties="strict"), ([0, -1], [0, 0], [1.0, 1.0])),
        (openauc_score, ([0, 1, -1], [1, 0, 0], [1, 2, 3])),  # value 0 from a poor classifier, AUROC 1
        (partial(openauc_score, max_ofpr=0.1), ([0, 0, -1, -1], [0, 0, 0, 0], [2, 2, 1, 9])),
    ],
)
def test_a_score_that_points_the_right_way_is_not_reported(metric, triple):
    assert warned_by(metric, *triple) == []


def test_flipping_the_score_silences_the_warning():
    assert warned_by(openauc_score, REVERSED[0], REVERSED[1], -np.array(REVERSED[2])) == []


FORMULAS = {
    "openauc": ranking.openauc_of,
    "openauc strict": partial(ranking.openauc_of, ties="strict"),
    "partial": partial(ranking.openauc_of, low=0.1, high=0.6),
    "partial strict": partial(ranking.openauc_of, ties="strict", low=0.1, high=0.6),
    "auroc": ranking.auroc_of,
    "accuracy": ranking.accuracy_of,
    "fpr": ranking.fpr_at_tpr_of,
    "fpr known": partial(ranking.fpr_at_tpr_of, tpr=0.8, positive="known"),
    "error": ranking.error_at_tpr_of,
    "ccr": partial(ranking.ccr_at_fpr_of, fpr=0.4),
    "average precision": ranking.average_precision_of,
    "average precision known": partial(ranking.average_precision_of, positive="known"),
    "detection accuracy": ranking.detection_accuracy_of,
    "acc times auc": ranking.acc_times_auc_of,
    "acc plus auc": ranking.acc_plus_auc_of,
}


@given(triples(), st.integers(0, 2**32))
def test_a_weighted_table_is_the_table_of_repeated_samples(triple, seed):
    """A sample of weight k counts as k samples, one of weight 0 as none."""
    weight = np.random.default_rng(seed).integers(0, 3, len(triple.y_true))
    for side in (True, False):
        weight[np.flatnonzero((triple.y_true == UNKNOWN) == side)[0]] += 1
    repeated = tuple(part[np.repeat(np.arange(len(weight)), weight)] for part in triple)
    weighted = rank(read_samples(*triple, sample_weight=weight)).table
    plain = rank(read_samples(*repeated)).table
    for mine, other in zip(weighted, plain, strict=True):
        assert np.array_equal(mine, other)
    for name, formula in FORMULAS.items():
        assert formula(weighted) == close(float(formula(plain))), name


def test_the_cuts_of_a_table_are_found_for_every_replicate():
    table = RankTable(
        np.array([-np.inf, 1.0, 2.0, 3.0]),
        known=np.array([[0, 2, 2, 2], [0, 0, 1, 2]]),
        correct=np.array([[0, 1, 1, 1], [0, 0, 1, 2]]),
        unknown=np.array([[0, 0, 1, 2], [0, 1, 2, 2]]),
    )
    assert table.n_known.tolist() == [2, 2]
    assert table.n_unknown.tolist() == [2, 2]
    assert ranking.cut_at_tpr(table, 1.0).tolist() == [1, 0]
    assert ranking.cut_at_tpr(table, 0.5).tolist() == [2, 1]
    assert ranking.cut_at_tpr(table, 1.0, "known").tolist() == [1, 3]
    assert ranking.cut_at_fpr(table, 0.5).tolist() == [2, 1]
    assert ranking.detection_accuracies(table).tolist() == [[0.5, 1.0, 0.75, 0.5], [0.5, 0.25, 0.25, 0.5]]


def test_detection_accuracy_at_one_cut():
    table = rank(read_samples(*random_triple(40, decimals=1))).table
    for cut, value in enumerate(ranking.detection_accuracies(table)):
        assert ranking.detection_accuracy_at(table, cut) == value
