"""What the figures show is what the results say, and saving is reproducible."""

import sys
from dataclasses import replace

import numpy as np
import pytest
from figures import LINES, figure1, figure2, save
from PIL import Image

from openauc import Predictions, openauc_score
from openauc.bench.benchmarks import digits, sensitivity
from openauc.bench.trial import TrialResult
from openauc.metrics.decision import threshold_sweep

pytest.importorskip("matplotlib")


def predictions(seed, n=60):
    rng = np.random.default_rng(seed)
    y_true = np.concatenate([rng.integers(0, 3, n), np.full(n, -1)])
    y_pred = np.where(rng.random(2 * n) < 0.8, np.abs(y_true), rng.integers(0, 3, 2 * n))
    return Predictions(y_true, y_pred, np.round(rng.normal(y_true == -1, 1.0), 1))  # rounded: with ties


def swept(value=lambda lam, split: 0.9 - 0.1 * lam + 0.01 * split):
    specs = sensitivity.trials("digits")
    return [TrialResult(spec=s, metrics={"openauc": value(s.method_args["lam"], s.split)}) for s in specs]


def texts(ax):
    return [text.get_text() for text in ax.texts]


def test_figure_1_draws_each_model_and_marks_each_best():
    panels = {"one": predictions(0), "two": predictions(1)}
    figure = figure1(panels)
    assert [ax.get_title(loc="left") for ax in figure.axes] == ["one", "two"]
    for ax, own in zip(figure.axes, panels.values(), strict=True):
        sweep = threshold_sweep(*own)
        reference, *lines = ax.lines
        assert reference.get_ydata()[0] == openauc_score(*own)
        for name, line, dot in zip(LINES, lines[::2], lines[1::2], strict=True):
            best = sweep.best(name).value
            assert max(line.get_ydata()) == best
            assert dot.get_ydata()[0] == best
            at = float(dot.get_xdata()[0])
            assert best in sweep.values[name][sweep.unknown_tpr == at]
            assert (np.diff(line.get_xdata()) > 0).all()
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == ["OpenAUC", "F-score", "Youden's index", "normalized accuracy"]


def test_lines_can_be_told_apart_without_colour():
    assert len({line.style for line in LINES.values()}) == len({line.color for line in LINES.values()}) == 3


def test_figure_1_needs_a_model():
    with pytest.raises(ValueError, match="nothing to draw"):
        figure1({})


def test_figure_2_shows_means_and_intervals():
    scored = [replace(r, spec=replace(r.spec, score="entropy"), metrics={"openauc": 0.1}) for r in swept()[:3]]
    ax = figure2([*swept(), *scored]).axes[0]  # results of another score, as table2 has them, are left out
    reference, curve = ax.lines
    assert ax.get_title(loc="left") == "digits"
    np.testing.assert_allclose(curve.get_xdata(), sensitivity.LAMBDAS)
    np.testing.assert_allclose(curve.get_ydata(), [92.0 - 10 * lam for lam in sensitivity.LAMBDAS])
    np.testing.assert_allclose(reference.get_ydata()[0], 92.0)
    assert texts(ax) == ["λ = 0", "92.0"]
    # Student's interval of 0, 1, 2, 3, 4 around its mean, half-width 2.776 * 1.5811 / sqrt(5) = 1.963.
    heights = ax.collections[0].get_paths()[0].vertices[:, 1]
    assert heights.max() == pytest.approx(92.0 + 1.963, abs=1e-3)
    assert "5 distinct splits" in ax.get_xlabel()


def test_the_level_of_cross_entropy_is_that_of_ce_plus_where_there_is_one():
    level = [TrialResult(spec=digits.trial("ce_plus", split, {}), metrics={"openauc": 0.8}) for split in range(5)]
    failed = [TrialResult(spec=digits.trial("ce_plus", 0, {}, seed=1), error="failed")]
    ax = figure2([*swept(), *level, *failed]).axes[0]
    assert ax.lines[0].get_ydata()[0] == pytest.approx(80.0)
    assert texts(ax)[0] == "CE+"


def test_a_single_split_has_no_interval():
    ax = figure2([result for result in swept() if result.spec.split == 0]).axes[0]
    assert not ax.collections


def test_figure_2_refuses_what_is_no_sweep():
    with pytest.raises(ValueError, match="run the benchmark 'sensitivity' first"):
        figure2([result for result in swept() if result.spec.method_args["lam"] == 0.1])
    with pytest.raises(ValueError, match="run the benchmark 'sensitivity' first"):
        figure2([])
    wider = [TrialResult(spec=digits.trial("openauc", 0, {"lam": 0.1, "pairing": "all"}), metrics={"openauc": 0.5})]
    with pytest.raises(ValueError, match="differ in more than split and seed"):
        figure2([*swept(), *wider])


def test_saving_twice_gives_the_same_bytes(tmp_path):
    for folder in ("first", "second"):
        (tmp_path / folder).mkdir()
        written = save(figure1({"one": predictions(0)}), tmp_path / folder / "figure1")
        assert [path.name for path in written] == ["figure1.svg", "figure1.png"]
    for name in ("figure1.svg", "figure1.png"):
        assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "second" / name).read_bytes()
    svg = (tmp_path / "first" / "figure1.svg").read_text()
    assert "dc:date" not in svg
    assert ">F-score<" in svg  # text stays text


def test_a_dot_in_the_name_is_kept(tmp_path):
    assert save(figure2(swept()), tmp_path / "table2_v1.0")[0].name == "table2_v1.0.svg"


def test_files_say_where_the_figure_comes_from(tmp_path):
    svg, png = save(figure2(swept()), tmp_path / "figure2", about="From 7 trials.")
    assert "From 7 trials." in svg.read_text(encoding="utf-8")
    with Image.open(png) as image:
        assert image.text["Description"] == "From 7 trials."


def test_nothing_is_left_behind_where_saving_fails(tmp_path):
    with pytest.raises(FileNotFoundError, match="does not exist; create it first"):
        save(figure2(swept()), tmp_path / "absent" / "figure2")
    assert list(tmp_path.iterdir()) == []


def test_without_matplotlib_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"pip install 'openauc\[plot\]'"):
        figure1({"one": predictions(0)})
