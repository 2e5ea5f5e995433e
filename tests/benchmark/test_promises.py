"""The programs on promises and cost: a small row from draw to table, and numbers made by hand."""

import growth
import messy_data
import numpy as np
import promises
import pytest


def found(accepted, forecast=None, openauc=0.8, **more):
    told = {"promised": 0.95, "chosen": "learned", "notes": [], "warnings": [], "to_reject": {}, "seconds": 1.0}
    shares = {"accepted": accepted, "accepted_in_proportion": 0.95, "rejected": 0.5, "accuracy": 0.9, "auroc": 0.9}
    return {"n": 40, "classes": 2, **told, **shares, "forecast": forecast, "openauc": openauc, **more}


def test_a_row_is_drawn_fitted_and_told(tmp_path):
    store = messy_data.Store(tmp_path, None)
    one = promises.measure(messy_data.ROWS["iris-without-0"], store, 0)
    assert one["n"] == 60
    assert 0 <= one["accepted"] <= 1
    assert one["auroc_nearest_row"] > 0.9
    assert one == promises.measure(messy_data.ROWS["iris-without-0"], store, 0) | {"seconds": one["seconds"]}
    assert "| iris | 60 | 2 | 1 |" in promises.page({"iris": promises.summary([one])})


def test_a_summary_of_numbers_made_by_hand():
    ones = [
        found(0.80, [0.7, 0.6, 0.9], notes=["few rows"], streams=5, alarms=1),
        found(0.90, [0.9, 0.85, 0.95], streams=5, alarms=0),
        {"n": 40, "classes": 2, "refused": "too few rows"},
    ]
    summary = promises.summary(ones)
    assert (summary["repeats"], summary["refused"], summary["noted"], summary["forecasts"]) == (3, 1, 1, 2)
    assert summary["accepted"] == pytest.approx(0.85)
    assert summary["accepted_error"] == pytest.approx(0.05)
    assert summary["forecast"] == pytest.approx(0.8)
    assert summary["covered"] == pytest.approx(0.5)
    assert (summary["alarms"], summary["streams"]) == (1, 10)
    assert promises.acceptance(summary, "accepted") == "85.0 ± 5.0"
    assert "false alarms 1/10 at 0.01; refused 1" in promises.table({"made": summary})


def test_an_acceptance_below_the_promise_is_bold_and_a_refusal_is_told():
    low = promises.summary([found(0.84), found(0.86)])
    assert promises.acceptance(low, "accepted") == "**85.0 ± 1.0**"
    refused = promises.summary([{"n": 4, "classes": 2, "refused": "too few rows"}])
    head, _, _, line = promises.table({"low": low, "none": refused}).splitlines()
    assert line.endswith("refused in all 1 |")
    assert line.count("|") == head.count("|")


def test_classes_count_as_often_as_in_training():
    class Accepts:
        unknown_label_ = -1
        predict = staticmethod(lambda X: np.where(X[:, 0] > 0, 0, -1))
        classify = staticmethod(lambda X: np.zeros(len(X), int))

    X = np.array([[1.0], [1.0], [-1.0], [-1.0], [-1.0]])
    drawn = messy_data.Drawn(np.zeros((4, 1)), np.array([0, 0, 0, 1]), X, np.array([0, 0, 1, 1, 7]))
    shares = promises.decisions(Accepts(), drawn)
    assert shares == {"accepted": 0.5, "accepted_in_proportion": 0.75, "rejected": 1.0, "accuracy": 0.5}


def test_variants_are_near_and_not_equal():
    rng = np.random.default_rng(0)
    text = "Where is my card?"
    made = [messy_data.variant(text, rng, 2) for _ in range(50)]
    assert len(set(made)) > 40
    assert all(abs(len(one) - len(text)) <= 4 for one in made)
    assert messy_data.variant("a", rng, 2)


def test_names_of_rows_are_checked():
    assert promises.chosen_rows("iris*,digits") == ["iris-without-0", "iris-without-1", "iris-without-2", "digits"]
    with pytest.raises(SystemExit, match="'irs'"):
        promises.chosen_rows("irs")


def test_costs_are_ratios(tmp_path):
    folder = growth.make(tmp_path, 60, 4, 3)
    assert growth.make(tmp_path, 60, 4, 3) == folder
    one = growth.perform("regression", folder, mapped=True)
    assert one["X"] == 60 * 4 * 4
    assert np.linalg.norm(growth.scaled(np.load(folder / "X.npy")), axis=1) == pytest.approx(growth.LENGTH)
    ratios = growth.ratios(
        {
            "head": {"seconds": 2.0, "busy": 1.0, "before": 100, "peak": 300, "X": 100},
            "learned": {"seconds": 6.0, "busy": 4.0, "before": 100, "peak": 500, "X": 100},
        },
        "head",
    )
    assert ratios["learned"] == {"seconds": 6.0, "times": 3.0, "busy_times": 4.0, "memory": 4.0}
    assert "| OpenSetClassifier() | 6.0 | 3.0 | 4.0 | 4.00 |" in growth.page("60 x 4", "head", ratios, False)
