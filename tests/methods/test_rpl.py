import pytest
import torch

from openauc.losses import rpl_loss, squared_distance
from openauc.methods.rpl import RPL


def test_start(backbone, rng):
    method = RPL(backbone, 3, rng=rng, num_centers=4)
    assert method.points.shape == (12, 6)
    assert method.radius.tolist() == [0.0]


def test_logits_average_the_points_of_a_class(backbone, rng, images):
    method = RPL(backbone, 3, rng=rng, num_centers=2).eval()
    logits = method.logits(images)
    distance = ((method.backbone(images)[:, None] - method.points) ** 2).mean(2)
    torch.testing.assert_close(logits, distance.reshape(8, 3, 2).mean(2))
    torch.testing.assert_close(method.open_score(logits), -torch.softmax(logits.double(), 1).amax(1))


def test_loss_uses_its_options(backbone, rng, images, labels):
    method = RPL(backbone, 3, rng=rng, temperature=2.0, weight=0.5, label_smoothing=0.1).eval()
    distance = squared_distance(method.backbone(images), method.points)
    expected = rpl_loss(distance, labels, method.radius, temperature=2.0, weight=0.5, smoothing=0.1)
    assert method.loss(images, labels).item() == pytest.approx(expected.item())


def test_a_class_needs_a_point(backbone, rng):
    with pytest.raises(ValueError, match="num_centers is 0"):
        RPL(backbone, 3, rng=rng, num_centers=0)
