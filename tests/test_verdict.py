"""Whether a promise is kept: shares against a count by hand, and how often chance alone calls it failed."""

import numpy as np
import pytest

from openauc import evaluate
from openauc.intervals import Interval, wilson_interval
from openauc.verdict import CROSS_ROOM, FORECAST_ROOM, Finding, Guarantee, Verdict, _held_to_forecast, judge


def decisions(known: int, accepted: int, unknown: int = 0, rejected: int = 0) -> tuple[list, list, list, list]:
    """y_true, y_pred, open_score and prediction of so many rows; every known row gets its right class."""
    truth = ["a"] * known + ["-1"] * unknown
    answer = ["a"] * accepted + ["unknown"] * (known - accepted + rejected) + ["a"] * (unknown - rejected)
    return truth, ["a"] * len(truth), [0.0] * known + [1.0] * unknown, answer


def by_name(verdict: Verdict) -> dict:
    return {finding.name: finding for finding in verdict.findings}


def test_every_share_is_the_count_with_its_interval() -> None:
    rng = np.random.default_rng(0)
    truth = rng.choice(["a", "b", "-1"], 300)
    predicted, score = rng.choice(["a", "b"], 300), rng.normal(size=300) + (truth == "-1")
    answer = np.where(score > 0.5, "no idea", predicted)
    verdict = judge(truth, predicted, score, answer)
    found, known, taken = by_name(verdict), truth != "-1", score <= 0.5
    for name, hits in (
        ("known rows accepted", taken[known]),
        ("unknown rows rejected", ~taken[~known]),
        ("accepted rows right", (truth == predicted)[taken]),
    ):
        assert (found[name].value, found[name].n) == (hits.mean(), len(hits))
        assert found[name].interval == wilson_interval(hits.sum(), len(hits))
    whole = evaluate(truth, predicted, score, n_replicates=20)
    assert (found["OpenAUC"].value, found["OpenAUC"].interval) == (whole.openauc, whole.intervals["openauc"])
    assert (verdict.n_known, verdict.n_unknown) == (known.sum(), (~known).sum())
    assert not verdict.failed
    assert verdict.advice == ()


def test_an_accepted_unknown_row_is_not_right() -> None:
    found = by_name(judge(*decisions(10, 8, unknown=4, rejected=2)))
    assert found["accepted rows right"].value == 8 / 10
    assert found["unknown rows rejected"].value == 0.5


def test_what_there_is_not_is_left_out() -> None:
    assert list(by_name(judge(*decisions(10, 10)))) == ["known rows accepted", "accepted rows right"]
    assert list(by_name(judge(*decisions(0, 0, unknown=5, rejected=5)))) == ["unknown rows rejected"]


@pytest.mark.parametrize(
    ("accepted", "guarantee", "outcome"),
    [
        (940, Guarantee(acceptance=0.95, n=10_000), "kept"),
        (900, Guarantee(acceptance=0.95, n=10_000), "failed"),
        (920, Guarantee(acceptance=0.95, n=10_000), "kept"),  # about: 0.02 less, and chance
        (920, Guarantee(acceptance=0.95, n=10_000, kind="split"), "failed"),
        (920, Guarantee(acceptance=0.95, n=100, kind="split"), "kept"),  # the calibration's own chance
        (1000, Guarantee(acceptance=0.95, n=10_000), "failed"),  # about: not many more
        (1000, Guarantee(acceptance=0.95, n=10_000, kind="split"), "kept"),  # at least
        (1000, Guarantee(acceptance=1.0, n=10), "kept"),
        (500, Guarantee(), None),
    ],
)
def test_when_a_guarantee_fails(accepted: int, guarantee: Guarantee, outcome: str | None) -> None:
    verdict = judge(*decisions(1000, accepted), guarantee=guarantee)
    assert by_name(verdict)["known rows accepted"].outcome == outcome
    assert verdict.failed == bool(verdict.advice) == (outcome == "failed")


def test_what_to_do_depends_on_the_side() -> None:
    guarantee = Guarantee(acceptance=0.95, n=10_000)
    few = " ".join(judge(*decisions(1000, 800), guarantee=guarantee).advice)
    assert "near-copies" in few
    assert "--group-column" in few
    assert "classifier.calibrate(X, y)" in few
    many = " ".join(judge(*decisions(1000, 1000), guarantee=guarantee).advice)
    assert "among the training rows" in many
    assert "calibrate" not in many


def test_chance_alone_seldom_breaks_a_promise_that_holds() -> None:
    """A split-conformal threshold of 50 scores, and 200 new ones: a narrower test calls far more of them failed."""
    rng = np.random.default_rng(0)
    failed = narrow = 0
    for _ in range(400):
        threshold = np.sort(rng.random(50))[int(np.ceil(0.9 * 51)) - 1]
        accepted = int((rng.random(200) <= threshold).sum())
        verdict = judge(*decisions(200, accepted), guarantee=Guarantee(acceptance=0.9, n=50, kind="split"))
        failed += verdict.failed
        narrow += wilson_interval(accepted, 200).high < 0.9
    assert failed <= 0.05 * 400 < narrow


@pytest.mark.parametrize(
    ("low", "high", "outcome"),
    [
        (0.9, 0.95, "failed"),
        (0.4, 0.7, "kept"),
        (0.1, 0.2, "better"),
        (0.5 + FORECAST_ROOM / 2, 0.9, "kept"),
    ],
)
def test_a_forecast_is_kept_if_the_intervals_meet(low: float, high: float, outcome: str) -> None:
    guarantee = Guarantee(openauc=(low + high) / 2, interval=Interval(low, high))
    found = Finding("OpenAUC", 0.45, Interval(0.4, 0.5), 100)
    assert _held_to_forecast(found, guarantee).outcome == outcome


def test_a_forecast_that_fails_is_told() -> None:
    truth, predicted, _, answer = decisions(200, 190, unknown=200, rejected=100)
    score = np.random.default_rng(0).random(400)
    guarantee = Guarantee(acceptance=0.95, n=1000, openauc=0.9, interval=Interval(0.85, 0.95))
    verdict = judge(truth, predicted, score, answer, guarantee=guarantee)
    found = by_name(verdict)
    assert found["known rows accepted"].outcome == "kept"
    assert found["OpenAUC"].outcome == "failed"
    assert found["OpenAUC"].aim_interval == (0.85, 0.95)
    assert "OpenAUC is lower than forecast" in verdict.advice[0]
    told = verdict.to_dict()
    assert told["failed"]
    assert told["findings"][-1]["aim"] == 0.9


@pytest.mark.parametrize(
    "guarantee",
    [Guarantee(), Guarantee(acceptance=0.9, kind="split", n=7, openauc=0.5, interval=Interval(0.25, 0.75))],
)
def test_a_guarantee_survives_json(guarantee: Guarantee) -> None:
    assert Guarantee.from_json(guarantee.to_json()) == guarantee


def test_other_labels_and_lengths() -> None:
    verdict = judge([1, 7, 1], [1, 1, 1], [0, 1, 0], [1, "no", 1], unknown_label=7)
    assert by_name(verdict)["unknown rows rejected"].value == 1.0
    with pytest.raises(ValueError, match="prediction has 2 entries but y_true has 3"):
        judge([1, 7, 1], [1, 1, 1], [0, 1, 0], [1, 1], unknown_label=7)
    assert 0 < CROSS_ROOM < 0.05
