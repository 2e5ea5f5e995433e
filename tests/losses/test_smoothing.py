import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from openauc.losses import smoothed_cross_entropy


def by_hand(logits, target, smoothing):
    total = 0.0
    for row, label in zip(logits.tolist(), target.tolist(), strict=True):
        norm = math.log(sum(math.exp(z) for z in row))
        for c, z in enumerate(row):
            share = 1 - smoothing if c == label else smoothing / (len(row) - 1)
            total -= share * (z - norm)
    return total / len(target)


@settings(deadline=None)
@given(st.integers(2, 6), st.integers(1, 5), st.floats(0, 1), st.integers(0, 1000))
def test_equals_the_sum_over_classes(classes, batch, smoothing, seed):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(batch, classes, dtype=torch.float64, generator=generator)
    target = torch.randint(classes, (batch,), generator=generator)
    loss = smoothed_cross_entropy(logits, target, smoothing=smoothing)
    assert loss.item() == pytest.approx(by_hand(logits, target, smoothing))


@pytest.mark.parametrize(("classes", "smoothing", "torch_value"), [(20, 0.9, 0.947368), (100, 0.3, 0.303030)])
def test_relation_to_pytorch(classes, smoothing, torch_value):
    logits = torch.randn(8, classes, generator=torch.Generator().manual_seed(0))
    target = torch.arange(8)
    ours = smoothed_cross_entropy(logits, target, smoothing=smoothing)
    torch.testing.assert_close(ours, F.cross_entropy(logits, target, label_smoothing=torch_value))


def test_zero_is_plain_cross_entropy():
    logits, target = torch.tensor([[1.0, 2.0, 0.5]]), torch.tensor([2])
    assert torch.equal(smoothed_cross_entropy(logits, target), F.cross_entropy(logits, target))


def test_gradcheck_and_dtype():
    logits = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    target = torch.tensor([0, 2, 1, 1])
    assert torch.autograd.gradcheck(lambda z: smoothed_cross_entropy(z, target, smoothing=0.4), logits.requires_grad_())
    assert smoothed_cross_entropy(logits.bfloat16(), target, smoothing=0.4).dtype == torch.bfloat16


@pytest.mark.parametrize("smoothing", [-0.1, 1.1, float("nan")])
def test_no_fraction_is_refused(smoothing):
    with pytest.raises(ValueError, match=r"smoothing is .* expected a fraction"):
        smoothed_cross_entropy(torch.zeros(1, 2), torch.tensor([0]), smoothing=smoothing)


def test_one_class_cannot_be_smoothed():
    assert smoothed_cross_entropy(torch.zeros(1, 1), torch.tensor([0])).item() == 0
    with pytest.raises(ValueError, match="set smoothing=0"):
        smoothed_cross_entropy(torch.zeros(1, 1), torch.tensor([0]), smoothing=0.1)
