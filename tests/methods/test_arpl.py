import pytest
import torch

from openauc.losses import arpl_loss, dot_distance, squared_distance
from openauc.methods.arpl import ARPL


def test_logits_and_score(backbone, rng, images):
    method = ARPL(backbone, 3, rng=rng).eval()
    features, logits = method.backbone(images), method.logits(images)
    expected = ((features[:, None] - method.points) ** 2).mean(2) - features @ method.points.T
    torch.testing.assert_close(logits, expected)
    torch.testing.assert_close(method.open_score(logits), -logits.double().amax(1))


def test_loss_uses_its_options(backbone, rng, images, labels):
    method = ARPL(backbone, 3, rng=rng, temperature=2.0, weight=0.5, margin=0.3, label_smoothing=0.1).eval()
    features = method.backbone(images)
    expected = arpl_loss(
        squared_distance(features, method.points),
        dot_distance(features, method.points),
        labels,
        method.radius,
        temperature=2.0,
        weight=0.5,
        margin=0.3,
        smoothing=0.1,
    )
    assert method.loss(images, labels).item() == pytest.approx(expected.item())
    assert method.diagnostics()["known_accuracy"] == (method.logits(images).argmax(1) == labels).double().mean()
