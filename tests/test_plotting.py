"""Curves with matplotlib."""

import io

import numpy as np
import pytest

from openauc import evaluate, oscr_curve, threshold_sweep
from openauc.plotting import STYLES

TRIPLE = ([0, 1, 1, -1, -1], [0, 1, 0, 1, 0], [0.1, 0.6, 0.2, 0.5, 0.9])


@pytest.fixture(autouse=True)
def pyplot():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    yield pyplot
    pyplot.close("all")


def test_a_curve_draws_its_points_and_names_its_axes() -> None:
    curve = oscr_curve(*TRIPLE)
    axes = curve.plot()
    (line,) = axes.get_lines()
    assert np.array_equal(line.get_xdata(), curve.x)
    assert np.array_equal(line.get_ydata(), curve.y)
    assert (axes.get_xlabel(), axes.get_ylabel()) == (curve.x_label, curve.y_label)
    assert axes.get_legend() is None


def test_curves_of_one_axes_differ_in_colour_and_dashes() -> None:
    axes = None
    for i in range(len(STYLES) + 1):
        axes = evaluate(*TRIPLE, level=None).plot(axes, label=f"model {i}")
    assert axes is not None
    styles = [(line.get_color(), line._unscaled_dash_pattern) for line in axes.get_lines()]
    assert len({color for color, _ in styles}) == len({str(dashes) for _, dashes in styles}) == len(STYLES)
    assert styles[0] == styles[-1]
    assert axes.get_legend().get_texts()[1].get_text() == "model 1, OpenAUC 0.5000"


def test_colours_stay_apart_in_grey() -> None:
    grey = sorted(
        sum(w * int(color[i : i + 2], 16) for w, i in zip((0.299, 0.587, 0.114), (1, 3, 5), strict=True))
        for color, _ in STYLES[:2]
    )
    assert grey[1] - grey[0] > 10


def test_a_curve_along_thresholds_leaves_infinity_out() -> None:
    axes = threshold_sweep(*TRIPLE).curve("macro_f_score", against="threshold").plot()
    assert np.isfinite(axes.get_lines()[0].get_xdata()).all()


def test_vector_output_and_a_style_that_stays_inside(pyplot) -> None:
    before = dict(pyplot.rcParams)
    axes = oscr_curve(*TRIPLE).plot()
    assert dict(pyplot.rcParams) == before
    target = io.BytesIO()
    axes.figure.savefig(target, format="pdf")
    assert target.getvalue().startswith(b"%PDF")


def test_a_legend_has_no_frame() -> None:
    legend = evaluate(*TRIPLE, level=None).plot(label="mine").get_legend()
    assert legend is not None
    assert not legend.get_frame_on()
