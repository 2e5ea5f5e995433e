import pytest
import torch
from torch.nn import functional as F

from openauc.methods.ce_plus import CEPlus
from openauc.methods.softmax import Softmax


@pytest.mark.parametrize("method", [Softmax, CEPlus])
def test_temperature_concerns_the_loss_only(method, backbone, rng, images, labels):
    method = method(backbone, 3, rng=rng, temperature=2.0).eval()
    logits = method.head(method.backbone(images))
    assert torch.equal(method.logits(images), logits)
    torch.testing.assert_close(method.loss(images, labels), F.cross_entropy(logits / 2, labels))


def test_score_is_minus_the_largest_probability(backbone, rng):
    method = Softmax(backbone, 3, rng=rng)
    assert method.open_score(torch.zeros(1, 3)).item() == pytest.approx(-1 / 3)
