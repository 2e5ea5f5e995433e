import numpy as np
import pytest
import torch
from torch import nn

from openauc.models.base import Backbone, BranchedBatchNorm2d


class TinyBackbone(Backbone):
    """Two small blocks with BatchNorm, no dropout: everything in it can be recomputed by hand."""

    cut_points = ("input", "block1", "features")
    feature_dim = 6

    def __init__(self, norm):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Conv2d(i, 6, 3, padding=1) for i in (3, 6))
        self.norms = nn.ModuleList(norm(6) for _ in range(2))

    def stage(self, name, hidden):
        step = self.cut_points.index(name) - 1
        hidden = torch.tanh(self.norms[step](self.blocks[step](hidden)))
        return hidden.mean(dim=(2, 3)) if name == "features" else hidden


@pytest.fixture
def backbone():
    torch.manual_seed(0)
    return TinyBackbone(nn.BatchNorm2d)


@pytest.fixture
def two_branches():
    torch.manual_seed(0)
    return TinyBackbone(BranchedBatchNorm2d)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def images():
    return torch.rand(8, 3, 8, 8, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def labels():
    return torch.tensor([0, 1, 2, 0, 1, 2, 2, 0])
