"""The paper's propositions as properties of `audit`, checked against the double loops of `oracles`."""

from __future__ import annotations

import itertools
import json
import warnings
from typing import Any

import numpy as np
import oracles
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import UNKNOWN, Triple, triples

from openauc.audit import Audit, Construction, audit
from openauc.metrics.ranking import ScoreDirectionWarning

PAPER_TABLE_1 = {
    "Open-set F-score": ("yes", "no", "no", "yes"),
    "Youden's index": ("yes", "no", "no", "yes"),
    "Normalized Accuracy": ("yes", "yes", "no", "yes"),
    "AUC": ("no", "yes", "yes", "yes"),
    "OSCR curve": ("yes", "yes", "yes", "no"),
    "OpenAUC": ("yes", "yes", "yes", "yes"),
}
COUPLED = {
    "Open-set F-score": "yes",
    "Youden's index": "yes",
    "Normalized Accuracy": "yes",
    "AUC": "no",
    "OSCR curve": "yes",
    "OpenAUC": "yes",
    "Acc * AUC": "no",
    "Acc + AUC": "no",
}


def quiet_audit(*triple: Any, **options: Any) -> Audit:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ScoreDirectionWarning)
        return audit(*triple, **options)


def named(result: Audit, name: str) -> Construction:
    return next(c for c in result.constructions if c.name == name)


def rebuilt(triple: Triple, construction: Construction) -> Triple:
    return Triple(triple.y_true, construction.y_pred, construction.open_score)


def matrix(triple: Triple, threshold: float, classes: list[int]) -> list[list[int]]:
    return oracles.confusion(*triple.lists, threshold, classes)


def counts_of_known(confusion: list[list[int]]) -> list[tuple[int, int, int]]:
    classes = [oracles.OneAgainstRest(confusion, i) for i in range(len(confusion) - 1)]
    return [(c.tp, c.fp, c.fn) for c in classes]


def of_unknown(confusion: list[list[int]]) -> oracles.OneAgainstRest:
    return oracles.OneAgainstRest(confusion, len(confusion) - 1)


def scores_of(triple: Triple, kind: str) -> list[float]:
    rows = zip(*triple.lists, strict=True)
    return [r for y, h, r in rows if kind == ("unknown" if y == UNKNOWN else "correct" if y == h else "wrong")]


def simulated(seed: int = 0, *, accuracy: float = 0.85) -> Triple:
    """A plausible model: unknown samples score higher, misclassified known ones a little higher."""
    rng = np.random.default_rng(seed)
    true = np.r_[rng.integers(0, 6, 600), np.full(400, UNKNOWN)]
    pred = np.where((rng.random(1000) < accuracy) & (true != UNKNOWN), true, rng.integers(0, 6, 1000))
    score = rng.normal(size=1000) + 1.5 * (true == UNKNOWN) + 0.8 * ((pred != true) & (true != UNKNOWN))
    return Triple(true, pred, score)


def digits() -> Triple:
    """Logistic regression on four strokes of scikit-learn's digits 0-5; 6-9 are unknown."""
    datasets = pytest.importorskip("sklearn.datasets")
    linear_model = pytest.importorskip("sklearn.linear_model")
    images, label = datasets.load_digits(return_X_y=True)
    train = (np.arange(len(label)) % 2 == 0) & (label < 6)
    test = np.arange(len(label)) % 2 == 1
    features = images[:, 18:22]  # weak features on purpose: a model without errors shows nothing
    model = linear_model.LogisticRegression(max_iter=500).fit(features[train], label[train])
    probability = model.predict_proba(features[test])
    true = np.where(label[test] < 6, label[test], UNKNOWN)
    return Triple(true, probability.argmax(axis=1), -probability.max(axis=1))


@given(triples())
def test_values_before_and_after_are_the_oracles(triple: Triple) -> None:
    classes = triple.classes
    for c in quiet_audit(*triple).constructions:
        for model, values in ((triple, c.before), (rebuilt(triple, c), c.after)):
            confusion, lists = matrix(model, c.threshold, classes), model.lists
            acc, auc = oracles.accuracy(*lists[:2]), oracles.auroc(*lists)
            expected = {
                "macro_f_score": oracles.f_score(confusion),
                "micro_f_score": oracles.f_score(confusion, "micro"),
                "youden_index": oracles.youden(confusion),
                "micro_youden_index": oracles.youden(confusion, "micro"),
                "normalized_accuracy": oracles.normalized_accuracy(confusion),
                "normalized_accuracy_with_aus_accuracy": oracles.normalized_accuracy(confusion, aus="accuracy"),
                "unknown_tpr": oracles.unknown_tpr(confusion),
                "unknown_fpr": oracles.unknown_fpr(confusion),
                "auroc": auc,
                "closed_set_accuracy": acc,
                "acc_times_auc": acc * auc,
                "acc_plus_auc": acc + auc,
                "openauc": oracles.openauc(*lists),
                "openauc_strict": oracles.openauc(*lists, ties="strict"),
            }
            assert values == pytest.approx(expected, abs=1e-12)
            assert list(values) == list(expected)


@given(triples(), st.data())
def test_prop_1_known_classes_keep_their_counts_and_unknown_samples_get_accepted(triple: Triple, data: Any) -> None:
    threshold = float(data.draw(st.sampled_from(triple.open_score.tolist())))
    result = quiet_audit(*triple, threshold=threshold)
    for c in result.constructions[:-2]:
        before = matrix(triple, c.threshold, triple.classes)
        after = matrix(rebuilt(triple, c), c.threshold, triple.classes)
        assert counts_of_known(after) == counts_of_known(before)
        assert of_unknown(after).tp == of_unknown(before).tp - c.n_exchanges
        assert c.complete == (of_unknown(after).tp == 0)
        for name in ("macro_f_score", "micro_f_score", "youden_index", "micro_youden_index"):
            assert c.after[name] == c.before[name]
        assert sorted(c.open_score) == sorted(triple.open_score)
        if c.n_exchanges:
            assert c.after["normalized_accuracy"] < c.before["normalized_accuracy"]


@given(triples())
def test_prop_1_needs_misclassified_known_samples_not_false_positives(triple: Triple) -> None:
    c = quiet_audit(*triple).constructions[0]
    before = matrix(triple, c.threshold, triple.classes)
    rejected = of_unknown(before).tp
    false_positives = sum(fp for _, fp, _ in counts_of_known(before))
    from_unknown = sum(before[-1][:-1])
    holds = [holds for _, holds in c.conditions]
    assert holds[:3] == [
        rejected > 0,
        false_positives >= rejected,
        false_positives - from_unknown >= rejected,
    ]
    assert c.complete == holds[2]
    assert c.n_exchanges == min(rejected, false_positives - from_unknown)


def test_prop_1_condition_of_the_paper_is_not_enough() -> None:
    # Two unknown samples are accepted and one rejected: sum FP_i = 2 >= TP = 1, yet no known sample is wrong.
    c = audit([0, 1, -1, -1, -1], [0, 1, 0, 1, 0], [0.1, 0.2, 0.3, 0.3, 0.9], threshold=0.5).constructions[0]
    assert [holds for _, holds in c.conditions] == [True, True, False, False]
    assert (c.n_exchanges, c.complete) == (0, False)
    assert c.before == c.after
    assert c.reaction.startswith("Nothing was exchanged")


@given(triples())
def test_the_second_run_is_the_complete_one_of_largest_unknown_tpr(triple: Triple) -> None:
    result = quiet_audit(*triple)
    possible = []
    for t in oracles.thresholds(triple.open_score.tolist()):
        confusion = oracles.confusion(*triple.lists, t, triple.classes)
        wrong = sum(fp for _, fp, _ in counts_of_known(confusion)) - sum(confusion[-1][:-1])
        if 0 < of_unknown(confusion).tp <= wrong:
            possible.append(oracles.unknown_tpr(confusion))
    first = result.constructions[0]
    if (first.complete and first.n_exchanges) or not possible:
        assert [c.name for c in result.constructions] == ["I", "II", "III"]
    else:
        second = result.constructions[1]
        assert (second.name, second.complete) == ("I, complete", True)
        assert second.before["unknown_tpr"] == pytest.approx(max(possible))
        assert second.after["unknown_tpr"] == 0.0


@given(triples(), st.data())
def test_prop_5_openauc_falls_just_when_a_correct_sample_lies_between(triple: Triple, data: Any) -> None:
    threshold = float(data.draw(st.sampled_from(triple.open_score.tolist())))
    c = quiet_audit(*triple, threshold=threshold).constructions[0]
    fell = c.after["openauc"] < c.before["openauc"]
    if UNKNOWN in triple.y_pred:  # a rejection by label need not lower any score
        assert fell or not c.conditions[-1].holds
    else:
        assert c.after["openauc"] <= c.before["openauc"]
        assert c.after["openauc_strict"] <= c.before["openauc_strict"]
        assert fell == c.conditions[-1].holds
    assert ("fell strictly" in c.reaction) == fell


def test_prop_5_equality_without_a_correct_sample_between() -> None:
    c = audit([0, 1, -1], [0, 0, 0], [0.1, 0.4, 0.9], threshold=0.5).constructions[0]
    assert (c.n_exchanges, c.conditions[-1].holds) == (1, False)
    assert c.after["openauc"] == c.before["openauc"] == 0.5
    assert c.after["unknown_tpr"] == 0.0
    assert "stayed the same" in c.reaction
    assert c.reaction.endswith("fails.")


def test_a_rejection_by_label_is_exchanged_too() -> None:
    # The unknown sample is rejected by its label although its score is the lowest.
    c = quiet_audit([0, 1, -1], [0, 0, -1], [0.2, 0.4, 0.1], threshold=0.5).constructions[0]
    assert c.y_pred.tolist() == [0, -1, 0]
    assert c.open_score.tolist() == [0.2, 0.1, 0.4]
    assert c.after["macro_f_score"] == c.before["macro_f_score"] > 0
    assert (c.before["unknown_tpr"], c.after["unknown_tpr"]) == (1.0, 0.0)
    assert "rose" in c.reaction
    assert not c.conditions[-1].holds


@given(triples(), st.data())
def test_prop_2_normalized_accuracy_rises_while_unknown_samples_get_accepted(triple: Triple, data: Any) -> None:
    threshold = float(data.draw(st.sampled_from(triple.open_score.tolist())))
    c = named(quiet_audit(*triple, threshold=threshold), "II")
    before = matrix(triple, threshold, triple.classes)
    after = matrix(rebuilt(triple, c), threshold, triple.classes)
    unknown = of_unknown(before)
    missed = sum(fn for _, _, fn in counts_of_known(before))
    holds = [holds for _, holds in c.conditions]
    assert holds[:2] == [missed >= unknown.tp, unknown.tp > unknown.fp]
    assert holds[3] == (unknown.tp >= 2)
    assert of_unknown(after).tp == unknown.tp - c.n_exchanges
    if all(holds[:2]):
        assert holds[2], "the paper's conditions imply the extra one"
        assert c.complete
        assert of_unknown(after).tp == 1
    if c.n_exchanges:
        assert c.after["normalized_accuracy"] > c.before["normalized_accuracy"]
        accuracy_reading = "normalized_accuracy_with_aus_accuracy"
        assert c.after[accuracy_reading] < c.before[accuracy_reading]
        if c.complete:
            assert of_unknown(after).fp == 0
    else:
        assert not (all(holds) and missed)


def test_prop_2_step_by_step_and_why_it_stops_at_one() -> None:
    # Five unknown samples are rejected; of six known ones one is right, one rejected, four misclassified.
    true = [0, 0, 0, 1, 1, 1, -1, -1, -1, -1, -1]
    pred = [0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]
    score = [0.1, 0.9, 0.1, 0.2, 0.3, 0.4, 0.6, 0.7, 0.8, 0.85, 0.95]
    original = pred.copy(), score.copy()
    partners = [1, 2, 3, 4, 5]  # the rejected one, then the misclassified ones
    aks, aus, nacc = [], [], []
    for step, x1 in enumerate([None, 10, 9, 8, 7, 6]):
        if x1 is not None:
            x2 = partners[step - 1]
            pred[x1] = pred[x2] = true[x2]
            score[x1], score[x2] = min(score[x1], 0.5), min(score[x2], 0.5)
        confusion = oracles.confusion(true, pred, score, 0.5, [0, 1])
        aks.append(oracles.normalized_accuracy(confusion, weight=1.0))
        aus.append(oracles.normalized_accuracy(confusion, weight=0.0))
        nacc.append(oracles.normalized_accuracy(confusion))
    assert aks[1] == aks[0]
    assert aus[0] == pytest.approx(5 / 6)
    assert aus[1:5] == [1.0] * 4
    assert aks[1] < aks[2] < aks[3] < aks[4] < aks[5]
    assert aus[5] == 0.0  # 0 / 0
    assert nacc[4] == max(nacc)
    assert nacc[5] < nacc[0] < 0.5 * aks[5] + 0.5  # only AUS := 1 would save the last step

    c = named(audit(true, *original, threshold=0.5), "II")
    assert (c.n_exchanges, c.complete) == (4, True)
    assert c.before["normalized_accuracy"] == pytest.approx(nacc[0])
    assert c.after["normalized_accuracy"] == pytest.approx(nacc[4])
    assert (c.before["unknown_tpr"], c.after["unknown_tpr"]) == (1.0, pytest.approx(0.2))
    assert c.open_score.max() == 0.6
    assert c.open_score[1] == 0.5  # the smallest change that flips the decision


def test_prop_2_no_model_at_all_reaches_tp_0_with_a_better_value_if_0_over_0_is_0() -> None:
    true = [0, 0, 1, -1, -1]
    decided = [0, -1, 0, -1, -1]  # right, rejected, misclassified: sum FN = 2 >= TP = 2 > FP = 1

    def nacc(decisions: Any) -> tuple[int, float]:
        confusion = oracles.confusion(true, decisions, [0.0] * 5, 0.0, [0, 1])
        return of_unknown(confusion).tp, oracles.normalized_accuracy(confusion)

    best: dict[int, float] = {}
    for decisions in itertools.product((0, 1, -1), repeat=5):
        found, value = nacc(decisions)
        best[found] = max(best.get(found, 0.0), value)
    assert nacc(decided)[0] == 2
    assert best[0] < nacc(decided)[1] < best[1]


def test_prop_2_exchanges_nothing_while_more_known_than_unknown_samples_are_rejected() -> None:
    c = named(quiet_audit([0, 0, 0, -1], [0, 0, 1, 0], [0.8, 0.9, 0.1, 0.7], threshold=0.5), "II")
    assert (c.n_exchanges, c.complete) == (0, False)
    assert "TP_unknown > FP_unknown (1 > 2)" in c.reaction


def test_prop_2_default_threshold_has_the_best_value_among_those_meeting_its_conditions() -> None:
    triple = simulated()
    c = named(audit(*triple), "II")
    best = 0.0
    for t in np.unique(triple.open_score):
        accepted = triple.open_score <= t
        unknown = triple.y_true == UNKNOWN
        tp, fp = np.count_nonzero(unknown & ~accepted), np.count_nonzero(~unknown & ~accepted)
        missed = np.count_nonzero(~unknown & ~(accepted & (triple.y_true == triple.y_pred)))
        if missed >= tp > fp and tp >= 2:
            wrong = missed + np.count_nonzero(accepted & (triple.y_pred != triple.y_true))
            best = max(best, 0.5 * (1 - wrong / 6000) + 0.5 * tp / (tp + fp))
    assert c.before["normalized_accuracy"] == pytest.approx(best)
    assert all(holds for _, holds in c.conditions)
    assert c.complete


@given(triples())
def test_prop_6_bounds_the_unknown_tpr_at_every_threshold(triple: Triple) -> None:
    result = quiet_audit(*triple)
    models = [triple, *(rebuilt(triple, c) for c in result.constructions)]
    for model in models:
        for ties in ("half", "strict"):
            k = oracles.openauc(*model.lists, ties=ties)
            for t in oracles.thresholds(model.open_score.tolist()):
                tpr = 1 - oracles.ofpr(model.y_true.tolist(), model.open_score.tolist(), t)
                a = 1 - oracles.known_accepted(model.y_true.tolist(), model.open_score.tolist(), t)
                if a:
                    assert float(tpr) >= 1 - (1 - k) / float(a) - 1e-12


@given(triples())
def test_prop_3_and_corollary_aggregates_stay_exactly(triple: Triple) -> None:
    c = quiet_audit(*triple).constructions[-1]
    assert c.name == "III"
    for name in ("closed_set_accuracy", "auroc", "acc_times_auc", "acc_plus_auc"):
        assert c.after[name] == c.before[name]
    new = rebuilt(triple, c)
    assert oracles.pointwise_sum(*new.lists) == oracles.pointwise_sum(*triple.lists)
    known = triple.y_true != UNKNOWN
    assert np.array_equal(c.y_pred, triple.y_pred)
    assert np.array_equal(c.open_score[~known], triple.open_score[~known])
    assert sorted(c.open_score[known]) == sorted(triple.open_score[known])
    wrong, correct = scores_of(new, "wrong"), scores_of(new, "correct")
    assert not wrong or not correct or max(wrong) <= min(correct)


@given(triples())
def test_prop_7_openauc_falls_just_when_an_unknown_sample_lies_between(triple: Triple) -> None:
    c = quiet_audit(*triple).constructions[-1]
    pairs = list(itertools.product(scores_of(triple, "correct"), scores_of(triple, "wrong")))
    unknown = scores_of(triple, "unknown")
    acc, auc = oracles.accuracy(*triple.lists[:2]), oracles.auroc(*triple.lists)
    assert [holds for _, holds in c.conditions] == [
        acc != 1 and auc != 1,
        any(r1 < r2 for r1, r2 in pairs),
        any(r1 < r2 and r1 <= r3 <= r2 for r1, r2 in pairs for r3 in unknown),
    ]
    assert (c.after["openauc"] < c.before["openauc"]) == c.conditions[-1].holds
    assert c.after["openauc_strict"] <= c.before["openauc_strict"]
    if any(r1 < r3 < r2 for r1, r2 in pairs for r3 in unknown):  # the proposition as printed
        assert c.after["openauc_strict"] < c.before["openauc_strict"]
    assert ("fell strictly" in c.reaction) == c.conditions[-1].holds


def test_prop_3_accuracy_and_auc_below_one_are_not_enough() -> None:
    # Acc = 2/3 and AUC = 2/3, but no unknown sample lies between the misclassified and a correct sample.
    c = audit([0, 1, 1, -1], [0, 0, 1, 0], [0.1, 0.2, 0.9, 0.5]).constructions[-1]
    assert [holds for _, holds in c.conditions] == [True, True, False]
    assert c.n_exchanges == 1
    assert c.after["openauc"] == c.before["openauc"]
    assert "stayed the same" in c.reaction


@given(triples())
def test_prop_8_risk_is_the_conditional_sum(triple: Triple) -> None:
    rows = list(zip(*triple.lists, strict=True))
    known, unknown = [r for r in rows if r[0] != UNKNOWN], [r for r in rows if r[0] == UNKNOWN]
    risk = [(y != h) + (y == h) * (r_u <= r_k) for y, h, r_k in known for _, _, r_u in unknown]
    before = quiet_audit(*triple).constructions[0].before
    assert 1 - before["openauc_strict"] == pytest.approx(np.mean(risk), abs=1e-12)


@pytest.mark.parametrize("triple", [simulated(0), simulated(1, accuracy=0.6), digits()], ids=["a", "b", "digits"])
def test_table_1_of_the_paper(triple: Triple) -> None:
    table = audit(*triple).table1()
    answers = {row: tuple(table[row][p].answer for p in ("P1", "P2", "P3", "P4")) for row in PAPER_TABLE_1}
    assert answers == PAPER_TABLE_1
    assert {row: verdicts["coupled"].answer for row, verdicts in table.items()} == COUPLED
    for row in ("Acc * AUC", "Acc + AUC"):  # meets P1 to P4, which is why the paper needs Prop. 3
        assert {table[row][p].answer for p in ("P1", "P2", "P3", "P4")} == {"yes"}


def test_verdicts_rest_on_numbers() -> None:
    triple = simulated()
    result = audit(*triple)
    table = result.table1()
    first = max(result.constructions[:2], key=lambda c: c.n_exchanges)
    assert table["OpenAUC"]["P2"][1:3] == (first.before["openauc"], first.after["openauc"])
    assert table["OpenAUC"]["P1"].after == 0.0
    assert table["Open-set F-score"]["P3"].before == 0.0
    assert table["Open-set F-score"]["P3"].after == pytest.approx(result.constructions[0].before["macro_f_score"])
    assert table["OSCR curve"]["P4"][:3] == ("no", None, None)
    assert "curve of 1001 points" in table["OSCR curve"]["P4"].because
    assert table["OpenAUC"]["P4"].because == "is a float"
    height = table["OSCR curve"]["coupled"]
    assert 0 <= height.after < height.before <= 1


@given(triples())
def test_table_1_never_contradicts_what_the_definitions_say(triple: Triple) -> None:
    result = quiet_audit(*triple)
    table = result.table1()
    for row, expected in PAPER_TABLE_1.items():
        for column, answer in zip(("P1", "P2", "P3", "P4"), expected, strict=True):
            verdict = table[row][column]
            assert verdict.answer in (answer, "not shown"), (row, column, verdict)
            assert verdict.because
        assert table[row]["coupled"].answer in (COUPLED[row], "not shown")


def test_a_misclassified_sample_that_no_exchange_moves_over_the_threshold() -> None:
    # The exchange 0.1 <-> 0.3 has an unknown sample between, but both scores are accepted at 0.5.
    table = audit([0, 1, 0, -1, -1], [0, 0, 0, 1, 1], [0.1, 0.3, 0.1, 0.2, 0.9], threshold=0.5).table1()
    assert table["OpenAUC"]["coupled"].answer == "yes"
    assert table["Open-set F-score"]["coupled"][0::3] == (
        "not shown",
        "no exchanged sample crosses the threshold",
    )


PERFECT = Triple(np.array([0, 1, 0, -1, -1]), np.array([0, 1, 0, 0, 1]), np.array([0.1, 0.2, 0.3, 0.8, 0.9]))
DEGENERATE = {
    "perfect": PERFECT,
    "all wrong": PERFECT._replace(y_pred=np.array([1, 0, 1, 0, 1])),
    "constant": PERFECT._replace(open_score=np.zeros(5)),
    "constant and all wrong": PERFECT._replace(y_pred=np.array([1, 0, 1, 0, 1]), open_score=np.zeros(5)),
    "one class": PERFECT._replace(y_true=np.array([0, 0, 0, -1, -1]), y_pred=np.zeros(5, dtype=int)),
    "all predicted unknown": PERFECT._replace(y_pred=np.full(5, -1)),
    "infinite scores": PERFECT._replace(open_score=np.array([-np.inf, -np.inf, np.inf, np.inf, np.inf])),
    "two samples": Triple(np.array([0, -1]), np.array([0, 0]), np.array([0.0, 1.0])),
}


@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_predictions_give_a_readable_result(name: str) -> None:
    result = quiet_audit(*DEGENERATE[name])
    assert [c.name for c in result.constructions if c.name != "I, complete"] == ["I", "II", "III"]
    for c in result.constructions:
        assert c.n_exchanges or c.reaction.startswith("Nothing was exchanged, so no metric moved. Not met: ")
        assert all(np.isfinite(list(values.values())).all() for values in (c.before, c.after))
    json.dumps(result.to_dict(), allow_nan=False)


def test_a_perfect_model_shows_nothing_about_exchanges() -> None:
    table = audit(*PERFECT).table1()
    assert {table[row]["P2"].answer for row in table} == {"not shown"}
    assert {table[row]["coupled"].answer for row in table} == {"not shown"}
    assert "0 >= 2" in table["OpenAUC"]["P2"].because
    assert table["OpenAUC"]["P1"].answer == "yes"
    assert table["AUC"]["P1"].answer == "no"


def test_a_single_class_cannot_be_broken() -> None:
    table = audit(*DEGENERATE["one class"]).table1()
    assert table["AUC"]["P1"][0::3] == (
        "not shown",
        "there is a single known class, so no wrong one to predict",
    )


def test_all_wrong_leaves_nothing_to_break_and_a_constant_f_score() -> None:
    table = audit(*DEGENERATE["all wrong"]).table1()
    assert table["OpenAUC"]["P1"].answer == "not shown"
    assert "no correct known sample" in table["OpenAUC"]["P1"].because
    assert table["Open-set F-score"]["P3"][:3] == ("not shown", 0.0, 0.0)
    assert table["Youden's index"]["P3"].answer == "no"


def test_names_of_any_length_and_another_unknown_label() -> None:
    # Truncating a long class name to the width of y_pred would invent a class.
    true = ["ox", "hippopotamus", "hippopotamus", "ox", "none", "none"]
    pred = ["ox", "ox", "ox", "ox", "ox", "ox"]
    score = [0.1, 0.2, 0.3, 0.2, 0.6, 0.9]
    named_result = audit(true, pred, score, threshold=0.5, unknown_label="none")
    number = {"ox": 0, "hippopotamus": 1, "none": -1}
    result = audit([number[n] for n in true], [number[n] for n in pred], score, threshold=0.5)
    assert named_result.to_dict() == result.to_dict()
    second = named(named_result, "II")
    assert "hippopotamus" in second.y_pred
    assert named(result, "II").y_pred.tolist() == [number[n] for n in second.y_pred]


@pytest.mark.parametrize("threshold", [2.1, 2.2])  # float32 rounds the one down and the other up
def test_float32_scores_meet_the_threshold_they_are_moved_to(threshold: float) -> None:
    triple = simulated()
    result = audit(triple.y_true, triple.y_pred, triple.open_score.astype(np.float32), threshold=threshold)
    c = named(result, "II")
    assert c.n_exchanges
    assert c.open_score.dtype == np.float32
    assert c.after["unknown_tpr"] == pytest.approx(c.before["unknown_tpr"] - c.n_exchanges / 400)


def test_the_input_is_left_alone_and_a_threshold_overrides_the_defaults() -> None:
    triple = simulated()
    copies = [a.copy() for a in triple]
    result = audit(*triple, threshold=1.0)
    assert [c.threshold for c in result.constructions if c.name != "I, complete"] == [1.0] * 3
    assert all(np.array_equal(a, b) for a, b in zip(triple, copies, strict=True))
    assert (result.n_known, result.n_unknown) == (600, 400)


def test_dict() -> None:
    result = audit(*simulated())
    read = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert read["constructions"][0]["before"] == result.constructions[0].before
    assert read["constructions"][-1]["conditions"][0]["holds"] is True
    assert read["table1"]["OpenAUC"]["P1"]["answer"] == "yes"
    everything = audit(*PERFECT, threshold=np.inf).to_dict()
    assert everything["constructions"][0]["threshold"] == "inf"


def test_a_reversed_score_is_pointed_out_once() -> None:
    with pytest.warns(ScoreDirectionWarning, match="wrong way") as caught:
        audit(PERFECT.y_true, PERFECT.y_pred, -PERFECT.open_score)
    assert len(caught) == 1
    assert caught[0].filename == __file__


def test_errors() -> None:
    with pytest.raises(ValueError, match="threshold is NaN"):
        audit(*PERFECT, threshold=float("nan"))
    with pytest.raises(ValueError, match="no unknown sample"):
        audit([0, 1], [0, 1], [0.1, 0.2])
    with pytest.raises(ValueError, match="no known sample"):
        audit([-1, -1], [0, 1], [0.1, 0.2])


@given(triples())
def test_any_predictions_give_strict_json(triple: Triple) -> None:
    result = quiet_audit(*triple)
    json.dumps(result.to_dict(), allow_nan=False)


def test_takes_one_predictions_object_or_three_arrays() -> None:
    triple = ([0, 1, 1, -1], [0, 1, 0, 0], [0.1, 0.4, 0.2, 0.9])
    assert audit(triple).to_dict() == audit(*triple).to_dict()
    with pytest.raises(TypeError, match="one Predictions that holds the three"):
        audit(triple[0])
    with pytest.raises(TypeError, match="one Predictions that holds the three"):
        audit(triple[0], triple[1])


def test_stories_say_what_the_metrics_did() -> None:
    for construction in quiet_audit(*simulated()).constructions:
        before, after = (f"{values['openauc']:.4f}" for values in (construction.before, construction.after))
        assert f"{construction.n_exchanges:,} " in construction.story
        assert construction.story.endswith(f"from {before} to {after}.")
        lines = construction.proof.splitlines()
        assert [line.partition(":")[0] == "met" for line in lines[1:-1]] == [h for _, h in construction.conditions]


def test_where_nothing_is_exchanged_the_story_says_why() -> None:
    for construction in quiet_audit([0, 1, -1, -1], [0, 1, 0, 1], [0.1, 0.2, 0.8, 0.9]).constructions:
        assert construction.story == construction.reaction
        assert "not met:" in construction.proof
