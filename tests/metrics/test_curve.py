"""The curve object: area, height, vertical steps and end points."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import integrate, oscr_points
from sklearn.metrics import auc
from strategies import fractions, triples

from openauc.metrics.curve import Curve, segment_areas


def curve(*points: tuple[float, float]) -> Curve:
    x, y = np.array(points, dtype=np.float64).T
    return Curve(x, y, np.concatenate([[-np.inf], np.arange(1.0, len(points))]))


def test_area_of_a_triangle_and_of_its_parts():
    triangle = curve((0, 0), (1, 1))
    assert triangle.area() == 0.5
    assert triangle.area(high=0.5) == 0.125
    assert triangle.area(low=0.5) == 0.375
    assert triangle.area(0.25, 0.75) == 0.25
    assert triangle.area(0.3, 0.3) == 0.0


def test_vertical_steps_have_no_area():
    assert curve((0, 0), (0, 1), (1, 1)).area() == 1.0
    assert curve((0, 0), (1, 0), (1, 1)).area() == 0.0


def test_a_range_beyond_the_points_adds_nothing():
    assert curve((0.25, 1), (0.75, 1)).area(0.0, 1.0) == 0.5
    assert curve((0, 1), (1, 1)).area(-1.0, 2.0) == 1.0


def test_height_between_the_points_and_at_the_top_of_a_step():
    stairs = curve((0, 0), (0, 0.6), (0.5, 0.6), (0.5, 0.8), (1, 1))
    heights = stairs.at([0, 0.25, 0.5, 0.75, 1])
    np.testing.assert_allclose(heights, [0.6, 0.6, 0.8, 0.9, 1.0], rtol=1e-15)


def test_height_outside_the_points_is_that_of_the_end():
    assert curve((0.25, 0.1), (0.75, 0.9)).at([0.0, 1.0]).tolist() == [0.1, 0.9]


def test_height_at_one_point_and_in_any_shape():
    line = curve((0, 0), (1, 1))
    assert line.at(0.5).shape == ()
    assert line.at(0.5) == 0.5
    assert line.at([[0.0, 0.5], [0.25, 1.0]]).tolist() == [[0.0, 0.5], [0.25, 1.0]]
    assert line.at([]).shape == (0,)


def test_a_single_point():
    point = curve((0.5, 0.7))
    assert len(point) == 1
    assert point.area() == 0.0
    assert point.at([0.0, 0.5, 1.0]).tolist() == [0.7, 0.7, 0.7]


def test_a_curve_is_read_only_and_compared_by_identity():
    line = curve((0, 0), (1, 1))
    with pytest.raises(AttributeError):
        line.x = np.zeros(2)
    assert line != curve((0, 0), (1, 1))


@st.composite
def rising_points(draw):
    n = draw(st.integers(2, 12))
    unit = st.integers(0, 20).map(lambda k: k / 20)
    x = sorted(draw(st.lists(unit, min_size=n, max_size=n)))
    y = draw(st.lists(unit, min_size=n, max_size=n))
    return list(zip(x, y, strict=True))


@given(rising_points())
def test_area_is_that_of_scikit_learn(points):
    x, y = zip(*points, strict=True)
    assert curve(*points).area() == pytest.approx(auc(x, y), abs=1e-14)


@given(rising_points(), fractions(zero=True), fractions(zero=True))
def test_adjacent_areas_add_up(points, a, b):
    polygon = curve(*points)
    low, high = sorted([a, b])
    parts = polygon.area(0, low) + polygon.area(low, high) + polygon.area(high, 1)
    assert parts == pytest.approx(polygon.area(), abs=1e-14)


@given(triples(), fractions(zero=True), fractions(zero=True), st.booleans())
def test_segment_areas_against_exact_fractions(triple, a, b, step):
    low, high = sorted([a, b])
    points = oscr_points(*triple.lists)
    x, y = (np.array([float(p[axis]) for p in points]) for axis in (0, 1))
    total = segment_areas(x, y, low, high, step=step).sum()
    assert total == pytest.approx(float(integrate(points, low, high, step=step)), abs=1e-14)


@given(triples(), fractions(zero=True))
def test_segment_areas_of_many_curves_at_once(triple, high):
    points = oscr_points(*triple.lists)
    x, y = (np.array([float(p[axis]) for p in points]) for axis in (0, 1))
    stacked = segment_areas(np.stack([x, x]), np.stack([y, 0.5 * y]), 0.0, high)
    one = segment_areas(x, y, 0.0, high)
    assert np.array_equal(stacked, np.stack([one, 0.5 * one]))


@given(triples(), fractions(zero=True))
def test_height_lies_between_the_neighbouring_points(triple, query):
    points = oscr_points(*triple.lists)
    height = float(curve(*((float(x), float(y)) for x, y in points)).at(query))
    below = max(y for x, y in points if x <= query)
    above = min((y for x, y in points if x >= query), default=points[-1][1])
    assert min(below, above) - 1e-12 <= height <= max(below, above) + 1e-12
