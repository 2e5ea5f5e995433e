import pytest
import torch

from openauc.losses import gcpl_loss, squared_distance
from openauc.methods.gcpl import GCPL


def test_logits_and_score(backbone, rng, images):
    method = GCPL(backbone, 3, rng=rng).eval()
    logits = method.logits(images)
    distance = ((method.backbone(images)[:, None] - method.points) ** 2).mean(2)
    torch.testing.assert_close(logits, -distance)
    torch.testing.assert_close(method.open_score(logits), -torch.softmax(logits.double(), 1).amax(1))


def test_loss_uses_its_options(backbone, rng, images, labels):
    method = GCPL(backbone, 3, rng=rng, temperature=2.0, weight=0.5, label_smoothing=0.1).eval()
    distance = squared_distance(method.backbone(images), method.points)
    expected = gcpl_loss(distance, labels, temperature=2.0, weight=0.5, smoothing=0.1)
    assert method.loss(images, labels).item() == pytest.approx(expected.item())


def test_the_linear_head_is_not_trained(backbone, rng):
    method = GCPL(backbone, 3, rng=rng)
    assert not any(parameter is method.head.weight for parameter in method.trained_parameters())
