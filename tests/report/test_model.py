"""The numbers of a page are those of the Python functions."""

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import triples

import openauc
from openauc import Predictions
from openauc.metrics.counts import RankedSamples
from openauc.metrics.samples import read_samples
from openauc.report.model import LINES, MOST_CLASSES, Options, model_data, slider_columns, thin

from .conftest import predictions


def data_of(triple: Predictions, origin: np.ndarray | None = None, **options: Any) -> dict:
    model = RankedSamples(read_samples(*triple))
    return model_data("m", model, Options(n_replicates=20, **options), origin)[1]


@pytest.mark.parametrize("position", [0, 1, 17, 200, -1])
def test_every_position_has_the_values_of_the_api(position: int) -> None:
    triple = predictions()
    data = data_of(triple)
    sweep = {key: values[position] for key, values in data["sweep"].items()}
    t = float(sweep["threshold"])
    assert sweep["macro_f_score"] == pytest.approx(openauc.open_set_f_score(*triple, threshold=t), abs=1e-12)
    assert sweep["youden_index"] == pytest.approx(openauc.youden_index(*triple, threshold=t), abs=1e-12)
    assert sweep["normalized_accuracy"] == pytest.approx(openauc.normalized_accuracy(*triple, threshold=t), abs=1e-12)
    assert sweep["unknown_rejected"] == openauc.unknown_tpr(*triple, threshold=t)
    assert sweep["known_accepted"] == pytest.approx(1 - openauc.unknown_fpr(*triple, threshold=t), abs=1e-15)
    matrix = openauc.confusion_matrix(*triple, threshold=t).matrix
    known = matrix[:-1, :-1]
    assert sweep["right"] == np.trace(known)
    assert sweep["wrong"] == known.sum() - np.trace(known)
    assert sweep["unknown"] == matrix[-1, :-1].sum()
    classes = {key: np.cumsum(data["classes"][key], axis=1)[:, position] for key in ("accepted", "right", "taken")}
    order = [int(name) for name in data["classes"]["name"]]
    assert sorted(order) == list(range(len(known)))
    assert classes["accepted"].tolist() == known.sum(axis=1)[order].tolist()
    assert classes["right"].tolist() == np.diag(known)[order].tolist()
    assert classes["taken"].tolist() == matrix[-1, :-1][order].tolist()


def test_presets_do_what_they_say() -> None:
    data = data_of(predictions())
    sweep, presets = data["sweep"], data["presets"]
    assert sweep["known_accepted"][presets["accept 95 % of known"]] >= 0.95
    assert sweep["unknown_rejected"][presets["reject 95 % of unknown"]] >= 0.95
    for name, key in zip(("best F-score", "best Youden's index", "best normalized accuracy"), LINES, strict=True):
        assert sweep[key][presets[name]] == pytest.approx(data["best"][key][1], abs=1e-15)
        assert data["best"][key][1] == openauc.threshold_sweep(*predictions()).best(key).value


@pytest.mark.filterwarnings("ignore::openauc.ScoreDirectionWarning")
@given(triples())
def test_any_input_gives_json_and_sums_that_fit(triple) -> None:
    data = data_of(Predictions.of(*triple))
    json.dumps(data, allow_nan=False)
    assert data["sweep"]["threshold"][0] == "-inf"
    assert data["sweep"]["known_accepted"][0] == 0
    histogram = data["histogram"]
    assert sum(histogram["right"]) + sum(histogram["wrong"]) == pytest.approx(1, abs=1e-3)
    assert sum(histogram["unknown"]) == pytest.approx(1, abs=1e-3)
    lengths = {len(values) for values in data["sweep"].values()}
    assert len(lengths) == 1
    assert 0 <= data["start"] < lengths.pop()


def test_the_band_holds_the_curve_and_widens_with_the_level() -> None:
    triple = predictions()
    curve = openauc.oscr_curve(*triple)
    narrow, wide = (data_of(triple, level=level)["band"] for level in (0.5, 0.99))
    inside = [(low <= curve.at(x) <= high) for x, low, high in zip(wide["x"], wide["low"], wide["high"], strict=True)]
    assert np.mean(inside) == 1
    widths = [np.subtract(band["high"], band["low"]).mean() for band in (narrow, wide)]
    assert 2 * widths[0] < widths[1]


def test_the_band_is_that_of_resampled_samples() -> None:
    triple = predictions(n=300)
    rng = np.random.default_rng(1)
    groups = [np.flatnonzero(triple.y_true != -1), np.flatnonzero(triple.y_true == -1)]
    heights = []
    for _ in range(400):
        rows = np.concatenate([rng.choice(group, len(group)) for group in groups])
        heights.append(float(openauc.oscr_curve(*(column[rows] for column in triple)).at(0.3)))
    low, high = np.quantile(heights, [0.025, 0.975])
    band = data_of(triple)["band"]
    at = band["x"].index(0.3)
    assert band["low"][at] == pytest.approx(low, abs=0.02)
    assert band["high"][at] == pytest.approx(high, abs=0.02)


def test_many_classes_leave_the_worst() -> None:
    n = 60
    y_true = np.repeat(np.arange(n), 4)
    y_pred = np.where(y_true >= 55, 0, y_true)
    score = np.linspace(0, 1, y_true.size)
    triple = Predictions.of(np.append(y_true, [-1, -1]), np.append(y_pred, [1, 58]), np.append(score, [0.5, 2]))
    classes = data_of(triple)["classes"]
    assert classes["n_classes"] == n
    assert len(classes["name"]) == MOST_CLASSES
    # Those of the lowest accuracy first; among equals, those that unknown samples are taken for.
    assert classes["name"][:8] == ["58", "55", "56", "57", "59", "1", "0", "2"]
    assert classes["accuracy"][:6] == [0, 0, 0, 0, 0, 1]


def test_unknown_classes_by_name() -> None:
    triple = Predictions.of([0, 1, -1, -1, -1], [0, 1, 1, 1, 0], [0.1, 0.2, 0.15, 0.8, 0.9])
    origin = np.array(["0", "1", "fox", "fox", "owl"])
    data = data_of(triple, class_names={"0": "cat", "1": "dog"}, origin=origin)
    assert data["classes"]["name"] == ["dog", "cat"]  # two unknown samples are taken for a dog, one for a cat
    origins = data["origins"]
    assert origins["name"] == ["fox", "owl"]
    assert origins["taken_for"] == [[("dog", 1.0)], [("cat", 1.0)]]
    position = data["sweep"]["threshold"].index(0.2)
    assert np.cumsum(origins["accepted"], axis=1)[:, position].tolist() == [1, 0]


def test_infinite_scores_and_abstaining() -> None:
    triple = Predictions.of([0, 1, 1, -1, -1], [0, 1, -1, 1, -1], [-math.inf, 0.5, 0.2, math.inf, 0.7])
    data = data_of(triple)
    assert data["sweep"]["threshold"][-1] == "inf"
    assert data["sweep"]["right"][-1] == 2
    assert data["sweep"]["unknown"][-1] == 1


def distance_to_line(x, y, kept) -> float:
    """Largest distance of a point from the thinned line, by brute force over its segments."""
    a, b = np.stack([x, y], 1)[kept][:-1], np.stack([x, y], 1)[kept][1:]
    if len(kept) == 1:
        a = b = np.stack([x, y], 1)[kept]
    d = b - a
    length = np.maximum((d**2).sum(1), 1e-300)
    worst = 0.0
    for point in np.stack([x, y], 1):
        t = np.clip(((point - a) * d).sum(1) / length, 0, 1)
        worst = max(worst, np.hypot(*(point - a - t[:, None] * d).T).min())
    return worst


@given(st.integers(0, 2**32 - 1), st.integers(1, 300), st.booleans())
def test_no_point_is_further_than_a_pixel_from_the_line(seed: int, n: int, monotone: bool) -> None:
    rng = np.random.default_rng(seed)
    x = np.sort(rng.integers(0, 60, n) / 60)
    y = np.sort(rng.random(n)) if monotone else rng.random(n)
    kept = thin(x, y, pixels=100)
    assert kept[0] == 0
    assert kept[-1] == n - 1
    assert (np.diff(kept) > 0).all()
    assert distance_to_line(x, y, kept) <= 2**0.5 / 100


def test_a_million_points_become_few() -> None:
    x = np.linspace(0, 1, 1_000_000)
    kept = thin(x, np.sqrt(x))
    assert len(kept) <= 2002
    at = np.linspace(0, 1, 5001)
    assert np.abs(np.interp(at, x[kept], np.sqrt(x)[kept]) - np.sqrt(at)).max() < 1e-3


def test_equal_points_are_one() -> None:
    assert thin(np.zeros(5), np.zeros(5)).tolist() == [0, 4]
    assert thin(np.array([0.5]), np.array([0.5])).tolist() == [0]


@pytest.mark.parametrize("positions", [10, 50])
def test_slider_columns_keep_the_ends_and_what_they_must(positions: int) -> None:
    known, unknown = np.arange(1001), np.maximum(np.arange(1001) - 500, 0)
    columns = slider_columns(known, unknown, [7, 333], positions=positions)
    assert {0, 7, 333, 1000} <= set(columns.tolist())
    assert (np.diff(columns) > 0).all()
    assert len(columns) <= positions + 4
    gained = np.diff(known[columns]) / 1000 + np.diff(unknown[columns]) / 500
    assert gained.max() <= 2 / (positions - 1) + 0.004


def test_few_thresholds_are_all_positions() -> None:
    assert slider_columns(np.arange(5), np.arange(5), [2]).tolist() == [0, 1, 2, 3, 4]
