import numpy as np
import torch

from openauc.methods.arpl import ARPL
from openauc.methods.arpl_plus import ARPLPlus
from openauc.recipe import Recipe


def test_it_is_arpl_under_another_recipe(backbone, images, labels):
    losses = []
    for kind, recipe in ((ARPL, Recipe()), (ARPLPlus, Recipe()), (ARPLPlus, Recipe(label_smoothing=0.4))):
        method = kind(backbone, 3, rng=np.random.default_rng(0)).eval()
        method.use_recipe(recipe)
        losses.append(method.loss(images, labels))
    assert torch.equal(losses[0], losses[1])
    assert losses[2] != losses[1]
