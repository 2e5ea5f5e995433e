"""Decision metrics at one threshold and over all of them, against loops, scikit-learn and each other."""

from functools import partial
from itertools import pairwise

import numpy as np
import oracles
import pandas as pd
import pytest
import sklearn.metrics
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import UNKNOWN, Triple, order_preserving, random_triple, scores, triples

from openauc.metrics import counts, decision
from openauc.metrics.counts import counts_at, counts_over_thresholds, encode
from openauc.metrics.decision import (
    DECISION_METRICS,
    closed_set_accuracy,
    confusion_matrix,
    normalized_accuracy,
    open_set_f_score,
    threshold_sweep,
    unknown_fpr,
    unknown_tpr,
    youden_index,
)
from openauc.metrics.rank_table import rank
from openauc.metrics.samples import read_samples

AT_THRESHOLD = {
    "macro_f_score": (open_set_f_score, oracles.f_score),
    "micro_f_score": (partial(open_set_f_score, average="micro"), partial(oracles.f_score, average="micro")),
    "youden_index": (youden_index, oracles.youden),
    "micro_youden_index": (partial(youden_index, average="micro"), partial(oracles.youden, average="micro")),
    "normalized_accuracy": (normalized_accuracy, oracles.normalized_accuracy),
    "unknown_tpr": (unknown_tpr, oracles.unknown_tpr),
    "unknown_fpr": (unknown_fpr, oracles.unknown_fpr),
}
every_metric = pytest.mark.parametrize("metric", [m for m, _ in AT_THRESHOLD.values()], ids=AT_THRESHOLD.keys())

# At 0.5: class 0 is found, class 1 is once rejected and once called 0, the unknown sample is called class 1.
HAND = ([0, 1, 1, -1], [0, 1, 0, 1], [0.1, 0.9, 0.2, 0.3])


def close(expected: object) -> object:
    return pytest.approx(expected, abs=1e-12)


def values_at(triple: tuple[object, ...], threshold: float, **options: object) -> dict[str, float]:
    return {name: metric(*triple, threshold=threshold, **options) for name, (metric, _) in AT_THRESHOLD.items()}


@st.composite
def triples_with_threshold(draw):
    """A threshold on, between or outside the scores."""
    triple = draw(triples())
    elsewhere = scores(triple.open_score.dtype.type)
    return triple, draw(st.sampled_from([*triple.open_score.tolist(), np.inf, -np.inf]) | elsewhere)


@given(triples_with_threshold())
def test_every_metric_at_a_threshold(case):
    triple, threshold = case
    matrix = oracles.confusion(*triple.lists, threshold, triple.classes)
    confusion = confusion_matrix(*triple, threshold=threshold)
    assert confusion.matrix.tolist() == matrix
    assert confusion.labels == (*triple.classes, UNKNOWN)
    expected = {name: oracle(matrix) for name, (_, oracle) in AT_THRESHOLD.items()}
    assert values_at(triple, threshold) == close(expected)


@given(triples_with_threshold(), st.floats(0.01, 1.0), st.sampled_from(["precision", "accuracy"]))
def test_both_readings_of_normalized_accuracy(case, weight, aus):
    triple, threshold = case
    matrix = oracles.confusion(*triple.lists, threshold, triple.classes)
    value = normalized_accuracy(*triple, threshold=threshold, weight=weight, aus=aus)
    assert value == close(oracles.normalized_accuracy(matrix, weight, aus))


@given(triples_with_threshold())
def test_classes_without_samples_count_when_they_are_listed(case):
    triple, threshold = case
    classes = [*triple.classes, 17, 23]
    matrix = oracles.confusion(*triple.lists, threshold, classes)
    assert confusion_matrix(*triple, threshold=threshold, classes=classes[::-1]).matrix.tolist() == matrix
    for name in (
        "macro_f_score",
        "micro_f_score",
        "youden_index",
        "micro_youden_index",
        "normalized_accuracy",
    ):
        metric, oracle = AT_THRESHOLD[name]
        assert metric(*triple, threshold=threshold, classes=classes) == close(oracle(matrix)), name


@given(triples_with_threshold())
def test_scikit_learn_on_the_decided_labels(case):
    triple, threshold = case
    decided = np.where(triple.open_score.astype(np.float64) > threshold, UNKNOWN, triple.y_pred)
    labels = [*triple.classes, UNKNOWN]
    expected = sklearn.metrics.confusion_matrix(triple.y_true, decided, labels=labels)
    assert confusion_matrix(*triple, threshold=threshold).matrix.tolist() == expected.tolist()
    for average in ("macro", "micro"):
        precision, recall, _, _ = sklearn.metrics.precision_recall_fscore_support(
            triple.y_true, decided, labels=triple.classes, average=average, zero_division=0
        )
        harmonic = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
        assert open_set_f_score(*triple, threshold=threshold, average=average) == close(harmonic)


@given(triples())
def test_closed_set_accuracy(triple):
    y_true, y_pred, _ = triple.lists
    assert closed_set_accuracy(*triple) == close(oracles.accuracy(y_true, y_pred))
    assert closed_set_accuracy(triple.y_true, triple.y_pred) == closed_set_accuracy(*triple)
    known = triple.y_true != UNKNOWN
    assert closed_set_accuracy(triple.y_true[known], triple.y_pred[known]) == closed_set_accuracy(*triple)


@given(triples_with_threshold(), st.randoms(use_true_random=False))
def test_the_order_of_the_samples_does_not_matter(case, random):
    triple, threshold = case
    order = list(range(len(triple.y_true)))
    random.shuffle(order)
    assert values_at(tuple(part[order] for part in triple), threshold) == values_at(triple, threshold)


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        (open_set_f_score, 2 * (1 / 4) * (1 / 2) / (3 / 4)),  # P = (1/2 + 0)/2, TPR = (1 + 0)/2
        (partial(open_set_f_score, average="micro"), 1 / 3),  # 1 hit, 3 accepted, 3 known
        (youden_index, 1 / 2 - (1 / 3 + 1 / 2) / 2),  # FP: 1 of 3 for class 0, 1 of 2 for class 1
        (partial(youden_index, average="micro"), 1 / 3 - 2 / 5),
        (
            normalized_accuracy,
            0.5 * (8 - 4) / 8,
        ),  # AKS: 2 FP and 2 FN in 2 x 4; AUS: the one rejected is known
        (partial(normalized_accuracy, weight=1.0), 1 / 2),
        (partial(normalized_accuracy, weight=0.25, aus="accuracy"), 1 / 8),
        (unknown_tpr, 0.0),
        (unknown_fpr, 1 / 3),
    ],
)
def test_by_hand(metric, expected):
    assert metric(*HAND, threshold=0.5) == close(expected)


def test_macro_f_is_not_the_mean_of_the_f_scores():
    triple = ([0, 0, 0, 1, -1], [0, 0, 1, 1, 1], [0.0] * 5)
    precision, recall = (1 + 1 / 3) / 2, (2 / 3 + 1) / 2
    assert open_set_f_score(*triple, threshold=1.0) == close(2 * precision * recall / (precision + recall))
    mean_of_f = (2 * 1 * (2 / 3) / (5 / 3) + 2 * (1 / 3) * 1 / (4 / 3)) / 2
    assert open_set_f_score(*triple, threshold=1.0) != close(mean_of_f)


def test_only_scores_above_the_threshold_are_rejected():
    triple = ([0, -1], [0, 0], [0.5, 0.5])
    assert unknown_tpr(*triple, threshold=0.5) == unknown_fpr(*triple, threshold=0.5) == 0.0
    below = np.nextafter(0.5, 0.0)
    assert unknown_tpr(*triple, threshold=below) == unknown_fpr(*triple, threshold=below) == 1.0


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("score", "threshold"),
    [
        (np.float32(0.1), 0.1),  # 0.1 in single precision is a little more than 0.1
        (np.float16(0.7), 0.6997),
        (np.float32(0.0), -1e-126),  # would be -0.0 in single precision
        (np.float32(np.inf), 1e300),  # would be inf in single precision
    ],
)
def test_the_threshold_is_not_rounded_to_the_type_of_the_scores(score, threshold):
    assert float(score) > threshold
    triple = ([0, -1], [0, 0], np.array([score, score]))
    assert confusion_matrix(*triple, threshold=threshold).matrix.tolist() == [[0, 1], [0, 1]]
    assert unknown_tpr(*triple, threshold=threshold) == 1.0


def test_rejecting_everything_and_nothing():
    triple = ([0, 1, -1], [0, 1, 0], [1.0, 2.0, 3.0])
    assert values_at(triple, -np.inf) == close(
        {
            "macro_f_score": 0.0,
            "micro_f_score": 0.0,
            "youden_index": 0.0,
            "micro_youden_index": 0.0,
            "normalized_accuracy": 0.5 * (4 / 6) + 0.5 * (1 / 3),
            "unknown_tpr": 1.0,
            "unknown_fpr": 1.0,
        }
    )
    assert normalized_accuracy(*triple, threshold=np.inf) == close(0.5 * 5 / 6)  # AUS is 0 / 0, hence 0
    assert unknown_tpr(*triple, threshold=np.inf) == unknown_fpr(*triple, threshold=np.inf) == 0.0


def test_a_prediction_of_unknown_is_rejected_at_any_threshold():
    triple = ([0, 0, -1, -1], [-1, 0, -1, 0], [0.0] * 4)
    assert confusion_matrix(*triple, threshold=1.0).matrix.tolist() == [[1, 1], [1, 1]]
    assert unknown_tpr(*triple, threshold=1.0) == unknown_fpr(*triple, threshold=1.0) == 0.5


INPUTS = {
    "arrays": tuple(map(np.array, HAND)),
    "small types": (np.int8(HAND[0]), np.uint8(HAND[1]), np.float16(HAND[2])),
    "names": (["cat", "dog", "dog", "-1"], ["cat", "dog", "cat", "dog"], HAND[2]),
    "pandas": tuple(map(pd.Series, HAND)),
    "torch": (*map(torch.tensor, HAND[:2]), torch.tensor(HAND[2], requires_grad=True)),
    "wide class numbers": ([0, 10**15, 10**15, -1], [0, 10**15, 0, 10**15], HAND[2]),
    "integer scores": (*HAND[:2], [0, 1, 0, 0]),
}


@every_metric
@pytest.mark.parametrize("triple", INPUTS.values(), ids=INPUTS.keys())
def test_any_container_gives_the_same_value(metric, triple):
    value = metric(*triple, threshold=0.5)
    assert type(value) is float
    assert value == metric(*HAND, threshold=0.5)


def test_names_label_the_confusion_matrix():
    y_true, y_pred = ["dog", "cat", "other"], ["dog", "dog", "other"]
    confusion = confusion_matrix(y_true, y_pred, [0, 0, 0], threshold=1, unknown_label="other")
    assert confusion.labels == ("cat", "dog", "other")
    assert confusion.matrix.tolist() == [[0, 1, 0], [0, 1, 0], [0, 0, 1]]


@pytest.mark.parametrize("unknown_label", [2, 7, 10**12, np.int64(2), np.uint8(7)])
def test_any_number_may_mark_unknown(unknown_label):
    y_true = [t if t >= 0 else unknown_label for t in HAND[0]]
    triple = (y_true, HAND[1], HAND[2])
    assert values_at(triple, 0.5, unknown_label=unknown_label) == values_at(HAND, 0.5)
    confusion = confusion_matrix(*triple, threshold=0.5, unknown_label=unknown_label)
    assert confusion.labels == (0, 1, unknown_label)
    assert confusion.matrix.tolist() == confusion_matrix(*HAND, threshold=0.5).matrix.tolist()


def test_closed_set_accuracy_needs_neither_scores_nor_unknown_samples():
    assert closed_set_accuracy([0, 1, 1], [0, 1, 0]) == close(2 / 3)
    assert closed_set_accuracy(torch.tensor([0, 1]), torch.tensor([0, 0])) == 0.5
    assert closed_set_accuracy(["cat", "other"], ["cat", "cat"], unknown_label="other") == 1.0


@every_metric
@pytest.mark.parametrize(
    ("triple", "message"),
    [
        (([-1, -1], [0, 0], [1, 2]), "no known sample"),
        (([0, 1], [0, 0], [1, 2]), "no unknown sample"),
        (([0, -1], [0, 0], [1, 2, 3]), "open_score has 3 entries but y_true has 2"),
        (([0, -1], [0, 0], [np.nan, 2]), "open_score is NaN for sample 0"),
    ],
)
def test_bad_triples(metric, triple, message):
    with pytest.raises(ValueError, match=message):
        metric(*triple, threshold=0.5)


@pytest.mark.parametrize(
    "metric",
    [*(metric for metric, _ in AT_THRESHOLD.values()), confusion_matrix],
    ids=[*AT_THRESHOLD, "confusion"],
)
def test_nan_is_no_threshold(metric):
    with pytest.raises(ValueError, match="threshold is NaN; pass a number"):
        metric(*HAND, threshold=np.nan)


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        (
            partial(open_set_f_score, threshold=0, average="weighted"),
            "average is 'weighted'; expected one of",
        ),
        (partial(youden_index, threshold=0, average="Macro"), "average is 'Macro'.*Did you mean 'macro'"),
        (partial(normalized_accuracy, threshold=0, weight=1.5), r"weight is 1.5; expected a fraction"),
        (partial(normalized_accuracy, threshold=0, weight=-0.1), r"weight is -0.1; expected a fraction"),
        (partial(normalized_accuracy, threshold=0, aus="recall"), "aus is 'recall'; expected one of"),
        (partial(threshold_sweep, weight=50), "weight is 50; expected a fraction"),
        (partial(threshold_sweep, aus="acuracy"), "aus is 'acuracy'.*Did you mean 'accuracy'"),
        (
            partial(open_set_f_score, threshold=0, classes=[0]),
            "y_true contains 1, which is not among the given classes",
        ),
        (partial(confusion_matrix, threshold=0, classes=[1]), "y_true contains 0, which is not among"),
        (partial(threshold_sweep, classes=[0, 10**9]), "y_true contains 1, which is not among"),
    ],
)
def test_bad_options(metric, message):
    with pytest.raises(ValueError, match=message):
        metric(*HAND)


def test_a_predicted_class_must_be_listed():
    with pytest.raises(ValueError, match="y_pred contains 3, which is not among the given classes"):
        confusion_matrix([0, -1], [3, 0], [0, 1], threshold=0, classes=[0, 1])
    with pytest.raises(ValueError, match="y_pred contains 'bird', which is not among the given classes"):
        confusion_matrix(["cat", "-1"], ["bird", "cat"], [0, 1], threshold=0, classes=["cat", "dog"])


def test_no_class_at_all_is_refused():
    with pytest.raises(ValueError, match="classes"):
        open_set_f_score(*HAND, threshold=0.5, classes=[])


def test_the_unknown_label_is_no_class():
    # -1 would count as a known class without samples, and -1 of the lookup table is the place of strangers.
    with pytest.raises(ValueError, match="classes"):
        open_set_f_score(*HAND, threshold=0.5, classes=[-1, 0, 1])
    with pytest.raises(ValueError, match="classes"):
        confusion_matrix([0, -1], [7, 0], [0, 1], threshold=0.5, classes=[-1, 0])


@pytest.mark.parametrize("classes", [[-1, 0], [-5, 0, 1]])
def test_known_classes_are_not_negative(classes):
    # Class 7 is not listed; the entry of the lookup table for strangers must not be taken by a negative class.
    with pytest.raises(ValueError, match="classes"):
        confusion_matrix([0, 5], [7, 0], [0, 1], threshold=0.5, classes=classes, unknown_label=5)


@pytest.mark.parametrize("largest", [1, 5000], ids=["looked up", "searched"])
def test_a_negative_prediction_that_is_not_the_unknown_label_is_refused(largest):
    with pytest.raises(ValueError, match="y_pred contains -1"):
        confusion_matrix([0, largest, 5], [0, -1, 0], [0, 0, 1], threshold=0.5, unknown_label=5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([-1], [0]), "no known sample"),
        (([0], [0, 1]), "y_pred has 2 entries but y_true has 1"),
        (([0], [0], [np.nan]), "open_score is NaN"),
        ((0, 0), "y_true has shape"),
    ],
)
def test_closed_set_accuracy_of_bad_input(arguments, message):
    with pytest.raises(ValueError, match=message):
        closed_set_accuracy(*arguments)


@given(triples(), st.sampled_from(["precision", "accuracy"]))
def test_the_sweep_equals_the_metrics_at_every_distinct_threshold(triple, aus):
    sweep = threshold_sweep(*triple, weight=0.3, aus=aus)
    expected_thresholds = sorted(set(triple.open_score.tolist()))
    assert sweep.threshold.tolist() == [-np.inf, *expected_thresholds]
    for column, threshold in enumerate(sweep.threshold):
        if column == 0:  # rejects a score of -inf, too, which no number does
            matrix = oracles.confusion(*triple.lists, None, triple.classes)
        else:
            matrix = oracles.confusion(*triple.lists, threshold, triple.classes)
        expected = {name: oracle(matrix) for name, (_, oracle) in AT_THRESHOLD.items()}
        expected["normalized_accuracy"] = oracles.normalized_accuracy(matrix, 0.3, aus)
        found = {name: values[column] for name, values in sweep.values.items()}
        found |= {"unknown_tpr": sweep.unknown_tpr[column], "unknown_fpr": sweep.unknown_fpr[column]}
        assert found == close(expected)


@pytest.mark.parametrize("n_classes", [1, 3, 200])
@pytest.mark.parametrize("decimals", [None, 1])
def test_the_sweep_of_a_larger_set(n_classes, decimals):
    triple = random_triple(3000, n_classes=n_classes, decimals=decimals)
    sweep = threshold_sweep(*triple)
    coded = encode(read_samples(*triple))
    columns = np.unique(np.linspace(0, len(sweep.threshold) - 1, 60).astype(int))
    for column in columns:
        counts = counts_at(coded, sweep.threshold[column])
        for name, formula in DECISION_METRICS.items():
            assert sweep.values[name][column] == close(float(formula(counts))), (name, column)


@given(st.data())
def test_the_sweep_follows_monotone_transforms(data):
    triple = data.draw(triples())
    other = data.draw(order_preserving(triple.open_score))
    before, after = threshold_sweep(*triple), threshold_sweep(triple.y_true, triple.y_pred, other)
    assert after.threshold[1:].tolist() == np.unique(other).tolist()
    for name, values in before.values.items():
        assert np.array_equal(values, after.values[name]), name


@given(triples())
def test_the_values_of_the_sweep_stay_in_range(triple):
    sweep = threshold_sweep(*triple)
    for name, values in sweep.values.items():
        low = -1.0 if "youden" in name else 0.0
        assert np.all(values >= low - 1e-12), name
        assert np.all(values <= 1.0 + 1e-12), name
    assert np.all(np.diff(sweep.unknown_tpr) <= 0)
    assert np.all(np.diff(sweep.unknown_fpr) <= 0)
    assert sweep.unknown_tpr[0] == sweep.unknown_fpr[0] == 1.0


@given(triples())
def test_the_best_threshold_reaches_the_best_value(triple):
    sweep = threshold_sweep(*triple)
    for name, values in sweep.values.items():
        best = sweep.best(name)
        assert best.value == values.max()
        column = values.tolist().index(best.value)
        assert best.threshold == sweep.threshold[column]
        if column:
            assert AT_THRESHOLD[name][0](*triple, threshold=best.threshold) == close(best.value)


def test_the_lowest_of_several_best_thresholds_is_chosen():
    sweep = threshold_sweep([0, 0, -1, -1], [0, 1, 0, 0], [1, 2, 3, 4])
    assert sweep.values["micro_youden_index"].tolist() == close([0.0, 0.5, 1 / 3, 1 / 6, 0.0])
    assert sweep.best("micro_youden_index") == (0.5, 1.0)
    all_wrong = threshold_sweep([0, -1], [1, 0], [1, 2])
    assert all_wrong.best("micro_f_score") == (0.0, -np.inf)


def test_curves_of_the_sweep():
    sweep = threshold_sweep(*HAND)
    against_threshold = sweep.curve("macro_f_score", against="threshold")
    assert against_threshold.x is sweep.threshold
    assert against_threshold.y is sweep.values["macro_f_score"]
    assert (against_threshold.x_label, against_threshold.y_label) == ("threshold", "macro_f_score")
    against_tpr = sweep.curve("macro_f_score")
    assert against_tpr.x.tolist() == sweep.unknown_tpr[::-1].tolist() == [0.0, 0.0, 1.0, 1.0, 1.0]
    assert against_tpr.y.tolist() == sweep.values["macro_f_score"][::-1].tolist()
    assert against_tpr.threshold.tolist() == [0.9, 0.3, 0.2, 0.1, -np.inf]
    assert against_tpr.x_label == "unknown rejected (TPR)"


@pytest.mark.filterwarnings("error")
def test_height_of_a_sweep_against_the_threshold_is_a_number_everywhere():
    triple = ([0, 0, -1], [0, 0, 0], [0.0, 1.0, 2.0])
    curve = threshold_sweep(*triple).curve("micro_f_score", against="threshold")
    for query in (-5.0, 0.0, 1.0, 2.0, 5.0):
        assert curve.at(query) == close(open_set_f_score(*triple, threshold=query, average="micro"))


def test_unknown_names_of_the_sweep():
    sweep = threshold_sweep(*HAND)
    with pytest.raises(ValueError, match=r"metric is 'f_score'; expected one of 'macro_f_score'.*Did you mean"):
        sweep.best("f_score")
    with pytest.raises(ValueError, match="metric is 'openauc'; expected one of"):
        sweep.curve("openauc")
    with pytest.raises(ValueError, match="against is 'tpr'; expected one of 'threshold', 'unknown_tpr'"):
        sweep.curve("macro_f_score", against="tpr")


def test_the_sweep_covers_every_decision_metric():
    assert threshold_sweep(*HAND).values.keys() == DECISION_METRICS.keys()
    assert DECISION_METRICS.keys() <= AT_THRESHOLD.keys()


@given(triples_with_threshold())
def test_counts_at_one_threshold(case):
    triple, threshold = case
    coded = encode(read_samples(*triple))
    counts = counts_at(coded, threshold)
    matrix = np.array(oracles.confusion(*triple.lists, threshold, triple.classes))
    known, unknown = matrix[:-1], matrix[-1]
    assert counts.n_classes == len(triple.classes)
    assert counts.n_known == known.sum()
    assert counts.n_unknown == unknown.sum()
    assert counts.correct == np.trace(known)
    assert counts.accepted_known == known[:, :-1].sum()
    assert counts.accepted_unknown == unknown[:-1].sum()
    assert coded.class_size.tolist() == known.sum(axis=1).tolist()


@given(triples())
def test_the_sweep_counts_like_one_threshold(triple):
    coded = encode(read_samples(*triple))
    ranking = rank(coded.samples)
    swept = counts_over_thresholds(ranking, coded)
    for column in range(1, len(ranking.threshold)):
        one = counts_at(coded, ranking.threshold[column])
        for name, value in one._asdict().items():
            assert np.broadcast_to(getattr(swept, name), ranking.threshold.shape)[column] == close(value), name


def test_ratio_counts_nothing_out_of_nothing_as_0():
    assert decision.ratio([1, 0, 3], [2, 0, 4]).tolist() == [0.5, 0.0, 0.75]
    assert decision.ratio([[1], [2]], [1, 2]).tolist() == [[1.0, 0.5], [2.0, 1.0]]


@pytest.mark.parametrize("offset", [0, 10**6, 10**15])
def test_classes_are_numbered_alike_by_lookup_and_by_search(offset):
    triple = random_triple(500, n_classes=7)
    shifted = Triple(
        np.where(triple.y_true == UNKNOWN, UNKNOWN, triple.y_true * 3 + offset),
        triple.y_pred * 3 + offset,
        triple.open_score,
    )
    plain, coded = encode(read_samples(*triple)), encode(read_samples(*shifted))
    assert coded.classes.tolist() == [3 * c + offset for c in range(7)]
    assert np.array_equal(coded.true, plain.true)
    assert np.array_equal(coded.pred, plain.pred)


@pytest.mark.parametrize("n_classes", [5, 2**16])
def test_rate_changes_by_both_sorts(n_classes):
    """More classes than 16 bits hold take the other sort."""
    rng = np.random.default_rng(1)
    pred = rng.choice([-1, 0, 3, 4, n_classes - 1], 200)
    true = np.where((rng.random(200) < 0.6) & (pred >= 0), pred, 1)
    true[::9] = UNKNOWN
    ranking = rank(read_samples(true, pred, np.arange(200.0)))
    size, scale = np.arange(1, n_classes + 1), 2.0**45
    changes = counts._rate_changes(ranking, pred, size, 2 * size, scale)
    for c in (0, 3, 4, n_classes - 1):
        mine = pred == c
        hits, accepted = np.cumsum((true == pred)[mine]), np.arange(1, mine.sum() + 1)
        rates = hits / accepted, hits / (c + 1), (accepted - hits) / (2 * c + 2)
        for change, rate in zip(changes, rates, strict=True):
            np.testing.assert_allclose(np.cumsum(change[mine]) / scale, rate, atol=1e-13)
    assert not any(change[pred < 0].any() for change in changes)


def test_tied_samples_in_any_order_give_the_same_bits(monkeypatch):
    """Also where numpy and numba, and one entry for many equal samples, add up in other orders."""
    triple = random_triple(3000, seed=3, decimals=1)
    found = []
    for backend, seed in (("numpy", 0), ("numpy", 1), ("numba", 2)):
        monkeypatch.setenv("OPENAUC_BACKEND", backend)
        order = np.random.default_rng(seed).permutation(3000)
        found.append(counts.RankedSamples(read_samples(*(part[order] for part in triple))).counts)
    for other in found[1:]:
        assert all(np.array_equal(one, two) for one, two in zip(found[0], other, strict=True))


def test_normalized_accuracy_of_weighted_samples_where_none_is_rejected():
    """Sums of weights in other orders differ by rounding, which is no sample rejected."""
    triple = random_triple(800, decimals=1)
    weight = np.repeat(0.8 ** np.arange(4), 200)
    sweep = decision.threshold_sweep(*triple, sample_weight=weight)
    expected = decision.normalized_accuracy(*triple, threshold=np.inf, sample_weight=np.ones(800))
    assert sweep.values["normalized_accuracy"].max() <= 1.0
    assert sweep.values["normalized_accuracy"][-1] == pytest.approx(expected, abs=0.1)


def test_the_area_below_a_metric_along_thresholds():
    """0 where everything is rejected, up to the lowest score 0.2; then straight lines between the scores."""
    sweep = threshold_sweep([0, 1, 1, UNKNOWN], [0, 1, 0, 1], [0.2, 0.4, 0.8, 0.6])
    curve = sweep.curve("micro_f_score", against="threshold")
    values = sweep.values["micro_f_score"]
    expected = sum(0.1 * (a + b) for a, b in pairwise(values[1:]))
    assert curve.area() == pytest.approx(expected)
    assert curve.area(-5.0, 0.2) == 0.0
