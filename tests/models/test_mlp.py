"""The network for embeddings: its features by hand, its head, its draws."""

import pytest
import torch

from openauc.models import make_backbone
from openauc.models.mlp import MLP


def test_features_are_rectified_and_standardised_first():
    network = MLP(in_features=2, width=3)
    with torch.no_grad():
        network.hidden.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]))
        network.hidden.bias.zero_()
    x = torch.tensor([[1.0, 10.0], [3.0, 30.0]])
    expected = torch.tensor([[0.0, 0.0, 1.0], [1.0, 1.0, 0.0]])
    assert torch.allclose(network(x), expected, atol=1e-3)


def test_it_is_made_by_name_for_the_length_of_an_embedding():
    one, other = (
        make_backbone("mlp", width=8, num_features=5, generator=torch.Generator().manual_seed(0)) for _ in "ab"
    )
    assert one.feature_dim == 8
    assert one.hidden.in_features == 5
    assert torch.equal(one.hidden.weight, other.hidden.weight)
    with pytest.raises(ValueError, match="width is 4096"):
        make_backbone("mlp", width=4096, num_features=5)
    with pytest.raises(ValueError, match=r"'mlp', .* num_features"):
        make_backbone("mlp", width=8, image_size=5)
