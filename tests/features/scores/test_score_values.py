"""Every score against a slow twin, written from its formula with the head's own weights."""

import math
import tracemalloc
from typing import NamedTuple

import numpy as np
import pytest
from sklearn.covariance import OAS

from openauc.features import SCORES, Score, make_score
from openauc.features.scores._arrays import top
from openauc.features.scores.distance import PER_CLASS, REFERENCES, SHRINKAGE, draw_references, oracle_shrinkage
from openauc.features.scores.head import linear_head, principal_dimension


class Known(NamedTuple):
    """Training samples and the head that made their logits."""

    x: list[list[float]]
    y: list[int]
    weights: list[list[float]]  # (C, d)
    bias: list[float]

    def logits(self, x):
        return [dot(row, x) + one for row, one in zip(self.weights, self.bias, strict=True)]

    def groups(self):
        return [[x for x, y in zip(self.x, self.y, strict=True) if y == label] for label in sorted(set(self.y))]


def few():
    """The last class has one sample, hence no deviation."""
    x = [[0.0, 0.0], [2.0, 1.0], [1.0, -1.0], [5.0, 4.0], [7.0, 5.0], [-4.0, 3.0]]
    return Known(x, [0, 0, 0, 1, 1, 2], [[0.3, -0.2], [1.0, 0.5], [-1.0, 0.4]], [0.1, -0.5, 0.4])


def many():
    """More samples than neighbours are asked for, and activations as after a ReLU."""
    rng = np.random.default_rng(0)
    y = rng.permutation(np.repeat(range(4), 20))
    x = np.maximum(rng.normal(size=(80, 20)) + 2 * rng.normal(size=(4, 20))[y], 0)
    return Known(x.tolist(), y.tolist(), (rng.normal(size=(4, 20)) / 2).tolist(), rng.normal(size=4).tolist())


NEW = {
    "few": [[0.5, 1.0], [3.0, -2.0], [6.0, 6.0]],
    "many": np.abs(np.random.default_rng(1).normal(size=(5, 20))).tolist(),
}


def dot(a, b):
    return math.fsum(p * q for p, q in zip(a, b, strict=True))


def norm(a):
    return math.sqrt(dot(a, a))


def minus(a, b):
    return [p - q for p, q in zip(a, b, strict=True)]


def cosine(a, b):
    return dot(a, b) / norm(a) / norm(b) if norm(a) and norm(b) else 0.0


def unit(a):
    return [p / norm(a) for p in a] if norm(a) else a


def mean(rows):
    return [math.fsum(column) / len(rows) for column in zip(*rows, strict=True)]


def log_sum_exp(z):
    return math.log(math.fsum(map(math.exp, z)))


def probabilities(z):
    return [math.exp(one - log_sum_exp(z)) for one in z]


def oracle_share(covariance, n):
    """Chen et al. (2010), equation 23, of n samples around a mean that is known."""
    d = len(covariance)
    of_square, squared = np.trace(covariance @ covariance), np.trace(covariance) ** 2
    excess = (n + 1 - 2 / d) * (of_square - squared / d)
    return min(((1 - 2 / d) * of_square + squared) / excess, 1.0) if excess > 0 else 1.0


def covariance_of(groups):
    """Of the deviations from the means of the groups."""
    means = [mean(group) for group in groups]
    deviations = [minus(one, middle) for group, middle in zip(groups, means, strict=True) for one in group]
    return sum(np.outer(d, d) for d in deviations) / len(deviations)


def shrunk(groups):
    covariance = covariance_of(groups)
    d = len(covariance)
    if np.trace(covariance) < 1e-20:
        return np.eye(d)
    share = max(SHRINKAGE, oracle_share(covariance, sum(map(len, groups)) - len(groups)))
    return (1 - share) * covariance + share * np.trace(covariance) / d * np.eye(d)


def squared_distance(x, middle, covariance):
    gap = np.subtract(x, middle)
    return gap @ np.linalg.solve(covariance, gap)


def of_unit_length(known):
    return known._replace(x=[unit(x) for x in known.x])


def neighbour(k):
    return lambda x, z, known: sorted(1 - cosine(x, other) for other in known.x)[min(k, len(known.x)) - 1]


def distance(x, z, known):
    """Over the spread of the neighbour's class, in which all classes count for five rows."""
    groups = known.groups()
    squares = [sum(norm(minus(one, mean(group))) ** 2 for one in group) for group in groups]
    level = sum(squares) / (len(known.x) - len(groups))
    spreads = [math.sqrt((s + 5 * level) / (len(g) - 1 + 5)) for s, g in zip(squares, groups, strict=True)]
    return min(norm(minus(x, one)) / s for group, s in zip(groups, spreads, strict=True) for one in group)


def mahalanobis(x, z, known):
    groups = known.groups()
    return min(squared_distance(x, mean(group), shrunk(groups)) for group in groups)


def relative_mahalanobis(x, z, known):
    """The metric of all samples is the shrunk one inside the classes and what lies between these."""
    groups = known.groups()
    whole = shrunk(groups) + covariance_of([known.x]) - covariance_of(groups)
    return mahalanobis(x, z, known) - squared_distance(x, mean(known.x), whole)


def gen(x, z, known):
    largest = sorted(probabilities(z), reverse=True)[:100]
    return sum(p**0.1 * (1 - p) ** 0.1 for p in largest)


def vim(x, z, known):
    origin = np.linalg.lstsq(np.array(known.weights), -np.array(known.bias), rcond=None)[0]
    directions = np.linalg.svd(np.array(known.x) - origin)[2][len(x) // 2 :]

    def residual(one):
        return norm([dot(direction, minus(one, origin)) for direction in directions])

    level = mean([[max(known.logits(one)), residual(one)] for one in known.x])
    return level[0] / level[1] * residual(x) - log_sum_exp(z)


def nnguide(x, z, known):
    weighted = [log_sum_exp(known.logits(other)) * cosine(x, other) for other in known.x]
    ten = sorted(weighted, reverse=True)[:10]
    return -log_sum_exp(z) * sum(ten) / len(ten)


def fdbd(x, z, known):
    best = z.index(max(z))
    others = [c for c in range(len(z)) if c != best]
    boundaries = [(z[best] - z[c]) / norm(minus(known.weights[best], known.weights[c])) for c in others]
    return -sum(boundaries) / len(others) / norm(minus(x, mean(known.x)))


def react(x, z, known):
    threshold = np.percentile([value for row in known.x for value in row], 90)
    return -log_sum_exp(known.logits([min(value, threshold) for value in x]))


def scale(x, z, known):
    largest = sorted(x, reverse=True)[: max(1, round(0.15 * len(x)))]
    ratio = min(max(sum(x) / sum(largest), 1), len(x) / len(largest))  # always so unless there are negative ones
    return -log_sum_exp(known.logits([value * math.exp(ratio) for value in x]))


BY_HAND = {
    "max_logit": lambda x, z, known: -max(z),
    "max_probability": lambda x, z, known: -max(probabilities(z)),
    "energy": lambda x, z, known: -log_sum_exp(z),
    "entropy": lambda x, z, known: -sum(p * math.log(p) for p in probabilities(z)),
    "margin": lambda x, z, known: sorted(z)[-2] - max(z),
    "gen": gen,
    "knn": neighbour(1),
    "knn_10": neighbour(10),
    "knn_50": neighbour(50),
    "distance": distance,
    "class_mean": lambda x, z, known: min(norm(minus(x, mean(group))) for group in known.groups()),
    "mahalanobis": mahalanobis,
    "mahalanobis_pp": lambda x, z, known: mahalanobis(unit(x), z, of_unit_length(known)),
    "relative_mahalanobis": relative_mahalanobis,
    "relative_mahalanobis_pp": lambda x, z, known: relative_mahalanobis(unit(x), z, of_unit_length(known)),
    "vim": vim,
    "nnguide": nnguide,
    "fdbd": fdbd,
    "norm": lambda x, z, known: -norm(x),
    "react": react,
    "scale": scale,
}


@pytest.mark.parametrize("known", [few, many])
@pytest.mark.parametrize("name", BY_HAND)
def test_value_by_hand(name, known):
    new, known = NEW[known.__name__], known()
    training = known.x, [known.logits(x) for x in known.x], known.y
    logits = [known.logits(x) for x in new]
    found = make_score(name).fit(*training)(new, logits)
    expected = [BY_HAND[name](x, z, known) for x, z in zip(new, logits, strict=True)]
    assert found.tolist() == pytest.approx(expected)


@pytest.mark.parametrize("name", [name for name in BY_HAND if SCORES[name].looks_at == "logits"])
def test_value_of_any_logits(name):
    logits = [[2.0, -1.0, 0.5], [0.0, 0.0, 0.0], [-3.0, 4.0, 3.9]]
    found = make_score(name)(np.empty((3, 0)), np.array(logits))
    assert found.tolist() == pytest.approx([BY_HAND[name]([], z, None) for z in logits])


def test_generalised_entropy_of_many_classes_is_that_of_the_largest():
    z = np.random.default_rng(0).normal(size=(3, 150))
    found = make_score("gen")(np.empty((3, 0)), z)
    assert found.tolist() == pytest.approx([gen([], row, None) for row in z.tolist()])


def test_references_are_drawn_evenly():
    y = np.random.default_rng(0).permutation(np.repeat([3, 5, 8], [2000, 5000, 100]))
    rows = draw_references(y)
    assert len(rows) == len(set(rows)) == REFERENCES
    np.testing.assert_array_equal(np.unique(y[rows], return_counts=True), [[3, 5, 8], [462, 462, 100]])
    np.testing.assert_array_equal(rows, draw_references(y))
    np.testing.assert_array_equal(rows, np.sort(rows))
    assert np.ptp(rows[y[rows] == 5]) > 6000  # from everywhere, not the first
    np.testing.assert_array_equal(draw_references(y[:REFERENCES]), np.arange(REFERENCES))
    classes = draw_references(np.arange(5000) // 2)  # more classes than references
    assert len(classes) == 5000
    per_class = np.bincount(draw_references(np.arange(10_000) % 500) % 500)  # more where classes would have few
    np.testing.assert_array_equal(per_class, PER_CLASS)


@pytest.mark.parametrize("name", ["knn", "knn_10", "knn_50", "nnguide", "distance"])
def test_neighbours_are_looked_for_with_little_memory(name):
    x = np.random.default_rng(0).normal(size=(20_000, 16)).astype(np.float32)
    z = x[:, :3]
    score = make_score(name).fit(x, z, np.zeros(len(x), int))
    assert len(score.references) == REFERENCES
    tracemalloc.start()
    found = score(x, z)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64e6 < x.shape[0] * REFERENCES * x.itemsize
    np.testing.assert_allclose(found[-5:], score(x[-5:], z[-5:]), rtol=1e-4, atol=1e-6)


def test_rows_are_scored_in_parts():
    class Double(Score):
        def _score(self, xp, x, z):
            seen.append((len(x), len(z)))
            return 2 * x[:, 0]

    seen, score = [], Double()
    score.learned = np.empty((2**19, 0))
    x = np.arange(30.0).reshape(10, 3)
    np.testing.assert_array_equal(score(x, x), 2 * x[:, 0])
    assert seen == [(4, 4), (4, 4), (2, 2)]
    assert score(x[:0], x[:0]).shape == (0,)


@pytest.mark.parametrize("count", [1, 2, 7, 8, 9])
def test_the_largest_of_each_row(count):
    values = np.random.default_rng(0).integers(5, size=(6, 8)).astype(float)
    np.testing.assert_array_equal(np.sort(top(values, count)), np.sort(values)[:, max(0, 8 - count) :])


@pytest.mark.parametrize("samples", [200, 21, 20, 8])
def test_the_head_is_recovered(samples):
    rng = np.random.default_rng(0)
    x, weights, bias = rng.normal(size=(samples, 20)) + 3, rng.normal(size=(20, 5)), rng.normal(size=5)
    found_weights, found_bias = linear_head(x, x @ weights + bias)
    np.testing.assert_allclose(x @ found_weights + found_bias, x @ weights + bias, rtol=1e-6, atol=1e-6)
    if samples > 20:
        np.testing.assert_allclose(found_weights, weights, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(found_bias, bias, rtol=1e-6, atol=1e-6)
    else:
        assert np.linalg.norm(found_weights) < np.linalg.norm(weights)  # of all that fit, the shortest


def test_a_feature_that_never_varies_gets_no_weight():
    rng = np.random.default_rng(0)
    x, weights = np.hstack([rng.normal(size=(50, 3)), np.full((50, 1), 0.1)]), rng.normal(size=(4, 5))
    found, bias = linear_head(x, x @ weights)
    np.testing.assert_allclose(found, np.vstack([weights[:3], np.zeros(5)]), atol=1e-9)
    np.testing.assert_allclose(bias, 0.1 * weights[3], atol=1e-9)


def test_how_many_directions_vim_takes_for_principal():
    assert [principal_dimension(d) for d in (4096, 2048, 2047, 768, 767, 5, 1)] == [1000, 1000, 512, 512, 383, 2, 0]
    x = np.random.default_rng(0).normal(size=(6, 40))
    score = make_score("vim").fit(x, x[:, :2], np.arange(6) % 2)
    assert score.residual.shape == (40, 37)  # half of the samples


def test_vim_where_training_samples_leave_no_residual():
    """They span fewer directions than are principal: what lies outside is foreign, and rounding is not."""
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(200, 3)) @ rng.normal(size=(3, 40))).astype(np.float32)
    weights = rng.normal(size=(40, 4))
    score = make_score("vim").fit(x, x @ weights, np.arange(200) % 4)
    assert score.residual.shape == (40, 37)
    within, outside = x[:50], x[:50] + rng.normal(size=(50, 40)).astype(np.float32)
    energy = make_score("energy")(within, within @ weights)
    assert np.abs(score(within, within @ weights) - energy).max() < 0.1 * energy.std()
    assert score(outside, within @ weights).min() > 100 * np.abs(energy).max()


def test_a_larger_residual_is_never_more_known():
    """Logits that are minus distances are negative throughout."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(50, 6))
    z = -((x[:, None] - x[:3]) ** 2).sum(2) - 1
    assert make_score("vim").fit(x, z, np.arange(50) % 3).alpha > 0


@pytest.mark.parametrize("name", ["distance", "class_mean", "mahalanobis", "relative_mahalanobis", "fdbd"])
@pytest.mark.parametrize("place", [3.0, 1000.0])
def test_differences_do_not_depend_on_the_place_of_zero(name, place):
    """Nor is precision lost far from it: features are seen from their mean before they are multiplied."""
    rng = np.random.default_rng(0)
    y = np.arange(200) % 4
    x = (rng.normal(size=(4, 8))[y] * 3 + rng.normal(size=(200, 8))).astype(np.float16).astype(np.float32)
    z = (x @ rng.normal(size=(8, 4))).astype(np.float32)
    new, new_z = x[::-1] / 2, z[::-1] / 2
    expected = make_score(name).fit(x, z, y)(new, new_z)
    found = make_score(name).fit(x + np.float32(place), z, y)(new + np.float32(place), new_z)
    assert np.abs(found - expected).max() < 1e-3 * expected.std()


def test_a_row_of_zeros_is_a_right_angle_away_from_everything():
    x = np.array([[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]])
    score = make_score("knn").fit(x[:2], x[:2], [0, 1])
    assert score(x, x).tolist() == [0.0, 1.0, 1.0]


def test_near_neighbours_differ_in_float32_too():
    """1 minus a cosine in float32 is a multiple of 6e-8."""
    angle = np.linspace(1e-4, 2e-4, 1000)
    x = np.stack([np.cos(angle), np.sin(angle)], axis=1).astype(np.float32)
    found = make_score("knn").fit([np.array([1.0, 0.0], np.float32)], [[1.0, 0.0]], [0])(x, x)
    np.testing.assert_allclose(found, 1 - np.cos(angle), rtol=1e-5)
    assert len(np.unique(found)) == len(x)


def test_classes_with_the_same_weights_have_no_boundary():
    rng = np.random.default_rng(0)
    x, weights = rng.normal(size=(300, 12)), rng.normal(size=(12, 2))
    z = (x @ weights[:, [0] + 9 * [1]] + np.arange(10)).astype(np.float32)
    score = make_score("fdbd").fit(x, z, np.arange(300) % 10)
    assert (score.inverse_gaps[0, 1:] > 0).all()
    assert (score.inverse_gaps[1:, 1:] == 0).all()


@pytest.mark.parametrize("samples", [60, 600, 6000])
def test_shrinkage_is_that_of_scikit_learn(samples):
    """Which leaves out the terms with 2 / d; they matter in few dimensions only."""
    x = np.random.default_rng(0).normal(size=(samples, 200)) * np.linspace(1, 4, 200)
    expected = OAS(assume_centered=True).fit(x).shrinkage_
    assert oracle_shrinkage(x.T @ x / samples, samples) == pytest.approx(expected, rel=0.02)


def test_shrinkage_where_there_is_one_direction_or_none_stands_out():
    assert oracle_shrinkage(np.eye(4), 10) == 1.0
    assert oracle_shrinkage(np.zeros((4, 4)), 10) == 1.0
    assert 0.0 < oracle_shrinkage(np.diag([100.0, 1.0, 1.0]), 10**6) < 1e-4


def test_the_distance_sees_magnitude_and_grows_without_bound():
    x = np.random.default_rng(0).normal(size=(60, 8)) + 4 * np.eye(3, 8)[np.arange(60) % 3]
    score = make_score("distance").fit(x, x[:, :3], np.arange(60) % 3)
    far = [score(factor * x[:5], x[:5, :3]) for factor in (1.0, 10.0, 1000.0)]
    np.testing.assert_array_equal(far[0], 0.0)
    assert (far[1] > 3).all()
    np.testing.assert_allclose(far[2] / far[1], 1000 / 10, rtol=0.5)


def test_a_wide_class_is_as_near_as_a_narrow_one():
    """Samples of a class four times as wide score about the same, and those of a single row like all."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], [200, 200, 1])
    width = np.where(y == 1, 4.0, 1.0)[:, None]
    x, new = (100 * np.eye(3, 6)[y] + width * rng.normal(size=(401, 6)) for _ in range(2))
    score = make_score("distance").fit(x, x[:, :3], y)
    found = score(new, new[:, :3])
    assert np.mean(found[y == 1]) == pytest.approx(np.mean(found[y == 0]), rel=0.15)
    assert score.spread[-1] == pytest.approx(np.sqrt(np.mean(score.spread[[0, -2]] ** 2)), rel=0.05)
