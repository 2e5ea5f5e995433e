import math

import pytest
import torch

from openauc.losses import SURROGATES, make_surrogate
from openauc.losses.pairwise import logistic, square, squared_hinge

GAPS = [-2.0, -0.5, 0.0, 1.0, 2.5]


@pytest.mark.parametrize("margin", [0.0, 1.0, 1.5])
@pytest.mark.parametrize(
    ("surrogate", "by_hand"),
    [
        (square, lambda t, m: (m - t) ** 2),
        (squared_hinge, lambda t, m: max(0.0, m - t) ** 2),
        (logistic, lambda t, m: math.log(1 + math.exp(m - t))),
    ],
)
def test_value_by_hand(surrogate, by_hand, margin):
    values = surrogate(torch.tensor(GAPS, dtype=torch.float64), margin=margin)
    assert values.tolist() == pytest.approx([by_hand(t, margin) for t in GAPS])


@pytest.mark.parametrize("name", SURROGATES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_dtype_and_shape_are_kept(name, dtype):
    values = SURROGATES[name](torch.tensor([GAPS], dtype=dtype))
    assert values.dtype == dtype
    assert values.shape == (1, len(GAPS))


@pytest.mark.parametrize("name", SURROGATES)
def test_gradcheck(name):
    gaps = torch.tensor(GAPS, dtype=torch.float64).add(0.1).requires_grad_()  # off the kink of the hinge
    assert torch.autograd.gradcheck(SURROGATES[name], gaps)


@pytest.mark.parametrize("name", SURROGATES)
def test_a_wider_gap_below_the_margin_costs_less(name):
    gap = torch.tensor(-0.5, requires_grad=True)
    SURROGATES[name](gap).backward()
    assert gap.grad < 0


def test_make_surrogate_by_name_function_and_margin():
    zero = torch.tensor(0.0)
    assert make_surrogate("squared_hinge") is squared_hinge
    assert make_surrogate(square) is square
    assert make_surrogate("square", 3.0)(zero).item() == 9.0
    assert make_surrogate(squared_hinge, 2.0)(zero).item() == 4.0
    assert make_surrogate("logistic")(zero).item() == pytest.approx(math.log(2))


def test_wrong_name_suggests_the_likely_spelling():
    with pytest.raises(ValueError, match=r"surrogate is 'squared_hing'.*Did you mean 'squared_hinge'"):
        make_surrogate("squared_hing")
