import math

import pytest
import torch

from openauc.losses import arpl_loss, confusion_loss, dot_distance, gcpl_loss, rpl_loss, squared_distance

GENERATOR = torch.Generator().manual_seed(3)
FEATURES = torch.randn(5, 4, dtype=torch.float64, generator=GENERATOR)
POINTS = torch.randn(3, 4, dtype=torch.float64, generator=GENERATOR)
SIX_POINTS = torch.randn(6, 4, dtype=torch.float64, generator=GENERATOR)
TARGET = torch.tensor([0, 2, 1, 1, 0])
RADIUS = torch.tensor([0.7], dtype=torch.float64)


def distances(points, per_class=1):
    return [
        [
            sum(
                sum((a - b) ** 2 for a, b in zip(x, points[c * per_class + m], strict=True)) / len(x)
                for m in range(per_class)
            )
            / per_class
            for c in range(len(points) // per_class)
        ]
        for x in FEATURES.tolist()
    ]


def dots():
    return [[sum(a * b for a, b in zip(x, p, strict=True)) for p in POINTS.tolist()] for x in FEATURES.tolist()]


def cross_entropy(scores, smoothing=0.0):
    total = 0.0
    for row, label in zip(scores, TARGET.tolist(), strict=True):
        norm = math.log(sum(map(math.exp, row)))
        for c, score in enumerate(row):
            share = 1 - smoothing if c == label else smoothing / (len(row) - 1)
            total -= share * (score - norm)
    return total / len(scores)


def own(table):
    return [row[label] for row, label in zip(table, TARGET.tolist(), strict=True)]


def mean(values):
    return sum(values) / len(values)


def scaled(table, factor):
    return [[factor * value for value in row] for row in table]


def test_distances_by_double_loop():
    assert squared_distance(FEATURES, POINTS).tolist() == [pytest.approx(row) for row in distances(POINTS.tolist())]
    assert dot_distance(FEATURES, POINTS).tolist() == [pytest.approx(row) for row in dots()]


def test_points_of_a_class_are_averaged_class_major():
    expected = [pytest.approx(row) for row in distances(SIX_POINTS.tolist(), per_class=2)]
    assert squared_distance(FEATURES, SIX_POINTS, per_class=2).tolist() == expected


@pytest.mark.parametrize("per_class", [0, -1, 4])
def test_points_that_do_not_share_out_are_refused(per_class):
    with pytest.raises(ValueError, match="6 points are not"):
        squared_distance(FEATURES, SIX_POINTS, per_class=per_class)


def test_gcpl_by_hand():
    d = distances(POINTS.tolist())
    pull = mean(
        [
            (a - b) ** 2
            for x, y in zip(FEATURES.tolist(), TARGET.tolist(), strict=True)
            for a, b in zip(x, POINTS[y].tolist(), strict=True)
        ]
    )
    loss = gcpl_loss(squared_distance(FEATURES, POINTS), TARGET, temperature=2.0, weight=0.3, smoothing=0.2)
    assert loss.item() == pytest.approx(cross_entropy(scaled(d, -0.5), 0.2) + 0.3 * pull / 2)


def test_rpl_by_hand():
    d = distances(POINTS.tolist())
    loss = rpl_loss(squared_distance(FEATURES, POINTS), TARGET, RADIUS, temperature=2.0, smoothing=0.2)
    assert loss.item() == pytest.approx(
        cross_entropy(scaled(d, 0.5), 0.2) + 0.1 * mean([(v - 0.7) ** 2 for v in own(d)])
    )


@pytest.mark.parametrize("margin", [1.0, 0.0, -1.0])
def test_arpl_by_hand(margin):
    d, dot = distances(POINTS.tolist()), dots()
    a = [[u - v for u, v in zip(left, right, strict=True)] for left, right in zip(d, dot, strict=True)]
    hinge = mean([max(0.0, v - 0.7 + margin) for v in own(d)])
    loss = arpl_loss(
        squared_distance(FEATURES, POINTS),
        dot_distance(FEATURES, POINTS),
        TARGET,
        RADIUS,
        margin=margin,
        smoothing=0.2,
    )
    assert loss.item() == pytest.approx(cross_entropy(a, 0.2) + 0.1 * hinge)


def test_confusion_by_hand_and_between_its_bounds():
    entropies = []
    for row in distances(POINTS.tolist()):
        exponentials = [math.exp(v) for v in row]
        entropies.append(-sum(e / sum(exponentials) * math.log(e / sum(exponentials)) for e in exponentials))
    loss = confusion_loss(squared_distance(FEATURES, POINTS))
    assert loss.item() == pytest.approx(math.exp(-mean(entropies)))
    assert 1 / 3 < loss < 1
    assert confusion_loss(torch.tensor([[0.0, 0.0, 1e4]])).item() == pytest.approx(1.0)


def test_gradcheck_of_every_loss():
    inputs = [t.clone().requires_grad_() for t in (FEATURES, POINTS, RADIUS)]

    def all_losses(features, points, radius):
        distance, dot = squared_distance(features, points), dot_distance(features, points)
        return (
            gcpl_loss(distance, TARGET),
            rpl_loss(distance, TARGET, radius),
            arpl_loss(distance, dot, TARGET, radius),
            confusion_loss(distance),
        )

    assert torch.autograd.gradcheck(all_losses, inputs)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_dtype_is_kept(dtype):
    features, points, radius = (t.to(dtype) for t in (FEATURES, POINTS, RADIUS))
    distance, dot = squared_distance(features, points), dot_distance(features, points)
    losses = (
        gcpl_loss(distance, TARGET),
        rpl_loss(distance, TARGET, radius),
        arpl_loss(distance, dot, TARGET, radius),
        confusion_loss(distance),
    )
    assert all(loss.dtype == dtype and loss.shape == () for loss in losses)
