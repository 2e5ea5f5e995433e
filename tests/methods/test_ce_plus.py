import numpy as np
import torch

from openauc.methods.ce_plus import CEPlus
from openauc.methods.softmax import Softmax


def test_score_is_minus_the_largest_raw_logit(backbone, rng):
    assert CEPlus(backbone, 3, rng=rng).open_score(torch.tensor([[1.0, 4.0, 2.0]])).item() == -4


def test_the_loss_is_that_of_softmax(backbone, images, labels):
    losses = [
        kind(backbone, 3, rng=np.random.default_rng(0), label_smoothing=0.2).eval().loss(images, labels)
        for kind in (CEPlus, Softmax)
    ]
    assert torch.equal(*losses)
