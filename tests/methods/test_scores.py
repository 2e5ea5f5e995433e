import math

import pytest
import torch

from openauc.methods.scores import SCORES, make_score

LOGITS = [[2.0, -1.0, 0.5], [0.0, 0.0, 0.0], [-3.0, 4.0, 3.9]]


def probabilities(row):
    exponentials = [math.exp(z) for z in row]
    return [e / sum(exponentials) for e in exponentials]


BY_HAND = {
    "max_logit": lambda row: -max(row),
    "max_probability": lambda row: -max(probabilities(row)),
    "energy": lambda row: -math.log(sum(map(math.exp, row))),
    "entropy": lambda row: -sum(p * math.log(p) for p in probabilities(row)),
    "margin": lambda row: sorted(row)[-2] - max(row),
}


@pytest.mark.parametrize("name", SCORES)
def test_value_by_hand(name):
    score = make_score(name)(torch.tensor(LOGITS, dtype=torch.float64))
    assert score.tolist() == pytest.approx([BY_HAND[name](row) for row in LOGITS])


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_higher_is_more_unknown_and_dtype_is_kept(name, dtype):
    confident, undecided = SCORES[name](torch.tensor([[5.0, 0.0, -5.0], [0.1, 0.0, 0.0]], dtype=dtype))
    assert undecided > confident
    assert undecided.dtype == dtype


def test_a_function_is_its_own_score():
    assert make_score(torch.sum) is torch.sum


def test_wrong_name_suggests_the_likely_spelling():
    with pytest.raises(ValueError, match=r"score is 'max_logits'.*Did you mean 'max_logit'"):
        make_score("max_logits")
