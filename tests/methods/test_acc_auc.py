import numpy as np
import torch
from torch.nn import functional as F

from openauc.methods.acc_auc import AccAUC
from openauc.methods.openauc import OpenAUC


def both(backbone, **options):
    return [kind(backbone, 3, rng=np.random.default_rng(0), lam=1.0, **options).eval() for kind in (AccAUC, OpenAUC)]


def test_misclassified_samples_are_ranked_as_well(backbone, images):
    ours, openauc = both(backbone, pairing="all")
    labels = (ours.logits(images).argmax(1) + 1 + torch.arange(8) % 2) % 3  # two classes, both wrong
    cross_entropy = F.cross_entropy(ours.logits(images), labels)
    torch.testing.assert_close(openauc.loss(images, labels), cross_entropy)
    ranking = ours.loss(images, labels) - cross_entropy
    known, mixed, correct = ours._last_pairs
    assert correct.all()
    torch.testing.assert_close(ranking, ((1 - mixed[None] + known[:, None]) ** 2).mean())


def test_all_else_is_equal(backbone, images):
    ours, openauc = both(backbone)
    labels = ours.logits(images).argmax(1)  # nothing misclassified
    torch.testing.assert_close(ours.loss(images, labels), openauc.loss(images, labels))
    assert ours.presets == openauc.presets
