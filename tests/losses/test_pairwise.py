import itertools
import json
import multiprocessing

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from hypothesis import given, settings
from hypothesis import strategies as st

from openauc.losses import OpenAUCLoss, PairwiseAUCLoss, make_surrogate
from openauc.losses.pairwise import SURROGATES, square

SCORES = st.lists(st.sampled_from([-2.0, -0.5, 0.0, 0.25, 1.0, 3.0]), min_size=1, max_size=6)
SURROGATE_CHOICES = [(name, margin) for name in SURROGATES for margin in (None, 0.5)]


def double_loop(surrogate, known, unknown, weight, pairing, normalizer):
    if pairing == "slot":
        pairs = [(i, i) for i in range(len(known))]
    else:
        pairs = list(itertools.product(range(len(known)), range(len(unknown))))
    total = sum(
        weight[i] * surrogate(torch.tensor(unknown[j] - known[i], dtype=torch.float64)).item() for i, j in pairs
    )
    count = len(pairs) if normalizer == "pairs" else sum(weight[i] for i, _ in pairs)
    return total / count if count else 0.0


@pytest.mark.parametrize(("name", "margin"), SURROGATE_CHOICES)
@settings(deadline=None)
@given(data=st.data())
def test_against_the_double_loop(name, margin, data):
    surrogate = make_surrogate(name, margin)
    pairing = data.draw(st.sampled_from(["slot", "all"]))
    normalizer = data.draw(st.sampled_from(["pairs", "hits"]))
    known = data.draw(SCORES)
    size = len(known)
    unknown = data.draw(st.lists(st.floats(-3, 3), min_size=size, max_size=size) if pairing == "slot" else SCORES)
    weight = data.draw(st.lists(st.sampled_from([0.0, 1.0, 0.5]), min_size=size, max_size=size))
    loss = PairwiseAUCLoss(surrogate, pairing=pairing, normalizer=normalizer)(
        torch.tensor(known, dtype=torch.float64),
        torch.tensor(unknown, dtype=torch.float64),
        weight=torch.tensor(weight, dtype=torch.float64),
    )
    expected = double_loop(surrogate, known, unknown, weight, pairing, normalizer)
    assert loss.item() == pytest.approx(expected, abs=1e-12)


def test_linear_time_square_keeps_its_digits_far_from_zero():
    """Expanding (1 - t)^2 into sums of squares would lose everything here."""
    known, unknown = torch.tensor([1e4, 1e4 + 1]), torch.tensor([1e4 + 1, 1e4 + 2])
    assert PairwiseAUCLoss(pairing="all")(known, unknown).item() == pytest.approx((0 + 1 + 1 + 0) / 4)


def test_linear_time_square_needs_no_pair_table():
    many = torch.linspace(0, 1, 300_000)  # all pairs would be 9e10 numbers
    assert PairwiseAUCLoss(pairing="all")(many, many).item() == pytest.approx(1 + 1 / 6, rel=1e-3)


@pytest.mark.parametrize("normalizer", ["pairs", "hits"])
@pytest.mark.parametrize("pairing", ["slot", "all"])
@pytest.mark.parametrize("name", SURROGATES)
def test_gradcheck(name, pairing, normalizer):
    generator = torch.Generator().manual_seed(0)
    known, unknown = torch.randn(2, 5, dtype=torch.float64, generator=generator)
    weight = torch.tensor([1, 0, 1, 1, 0])
    loss = PairwiseAUCLoss(SURROGATES[name], pairing=pairing, normalizer=normalizer)
    assert torch.autograd.gradcheck(
        lambda k, u: loss(k, u, weight=weight), (known.requires_grad_(), unknown.requires_grad_())
    )


@pytest.mark.parametrize("pairing", ["slot", "all"])
@pytest.mark.parametrize("name", SURROGATES)
def test_gradient_lowers_known_and_raises_unknown_scores(name, pairing):
    known, unknown = (
        torch.tensor([0.3, 0.1], requires_grad=True),
        torch.tensor([0.2, 0.0], requires_grad=True),
    )
    PairwiseAUCLoss(SURROGATES[name], pairing=pairing)(known, unknown).backward()
    assert (known.grad > 0).all()
    assert (unknown.grad < 0).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("pairing", ["slot", "all"])
def test_dtype_is_kept(pairing, dtype):
    scores = torch.tensor([0.5, 1.0], dtype=dtype)
    for weight in (None, torch.tensor([True, False]), torch.tensor([1, 0])):
        for normalizer in ("pairs", "hits"):
            assert PairwiseAUCLoss(pairing=pairing, normalizer=normalizer)(scores, scores, weight=weight).dtype == dtype


@pytest.mark.parametrize("normalizer", ["pairs", "hits"])
@pytest.mark.parametrize(
    ("pairing", "known", "unknown", "weight"),
    [
        ("slot", 0, 0, None),
        ("all", 0, 3, None),
        ("all", 3, 0, [1.0, 1.0, 0.0]),
        ("slot", 3, 3, [0.0, 0.0, 0.0]),
        ("all", 3, 2, [0.0, 0.0, 0.0]),
    ],
)
def test_an_empty_selection_is_a_zero_with_gradient(pairing, known, unknown, weight, normalizer):
    known, unknown = torch.ones(known, requires_grad=True), torch.ones(unknown, requires_grad=True)
    weight = None if weight is None else torch.tensor(weight)
    loss = PairwiseAUCLoss(pairing=pairing, normalizer=normalizer)(known, unknown, weight=weight)
    assert loss.item() == 0
    loss.backward()
    assert torch.equal(known.grad, torch.zeros_like(known))
    assert torch.equal(unknown.grad, torch.zeros_like(unknown))


def test_openauc_loss_is_the_pairwise_loss_of_the_hits_without_gradient_to_them():
    known = torch.tensor([0.0, 1.0, 2.0], requires_grad=True)
    unknown = torch.tensor([1.0, 0.0, 4.0])
    correct = torch.tensor([1.0, 0.0, 1.0], requires_grad=True)
    loss = OpenAUCLoss()(known, unknown, correct=correct)
    assert loss.item() == pytest.approx((0 + 0 + 1) / 3)
    loss.backward()
    assert correct.grad is None
    assert known.grad.tolist() == pytest.approx([0.0, 0.0, -2 / 3])  # a gap of 2 is pulled back to 1
    hits = OpenAUCLoss(PairwiseAUCLoss(normalizer="hits"))(known, unknown, correct=correct > 0)
    assert hits.item() == pytest.approx((0 + 1) / 2)


@pytest.mark.parametrize(
    ("options", "known", "unknown", "weight", "message"),
    [
        ({}, [2], [3], None, "slot pairing got 2 known and 3 unknown"),
        ({}, [2, 1], [2], None, r"open_known has shape \(2, 1\)"),
        ({}, [2], [], None, r"open_unknown has shape \(\)"),
        ({"pairing": "all"}, [2], [3], [3], r"weight has shape \(3,\); pass one for each of 2 known"),
    ],
)
def test_shape_errors(options, known, unknown, weight, message):
    weight = None if weight is None else torch.ones(weight)
    with pytest.raises(ValueError, match=message):
        PairwiseAUCLoss(**options)(torch.zeros(known), torch.zeros(unknown), weight=weight)


def test_option_errors():
    with pytest.raises(ValueError, match=r"pairing is 'slots'.*Did you mean 'slot'"):
        PairwiseAUCLoss(pairing="slots")
    with pytest.raises(ValueError, match="normalizer is 'mean'"):
        PairwiseAUCLoss(normalizer="mean")


def test_gather_does_nothing_without_a_process_group():
    known, unknown = torch.tensor([0.0, 0.5]), torch.tensor([1.0, 0.5])
    assert not dist.is_initialized()
    assert torch.equal(PairwiseAUCLoss(gather=True)(known, unknown), PairwiseAUCLoss()(known, unknown))


def test_a_process_group_of_one_changes_nothing(tmp_path):
    known, unknown = torch.rand(2, 4, dtype=torch.float64)
    results = []
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        for gather in (False, True):
            leaves = known.clone().requires_grad_(), unknown[:3].clone().requires_grad_()
            loss = PairwiseAUCLoss(pairing="all", gather=gather)(*leaves, weight=torch.tensor([1, 0, 1, 1]))
            results.append([loss, *torch.autograd.grad(loss, leaves)])
    finally:
        dist.destroy_process_group()
    torch.testing.assert_close(results[0], results[1])


# Scores are linear in one parameter vector, whose gradient a data-parallel wrapper would average over ranks.
# Per case: options, then (known rows, unknown rows) of each of the two ranks; some come empty-handed.
GATHER_CASES = [
    ({"pairing": "all"}, [(3, 0), (2, 4)]),
    ({"pairing": "slot", "normalizer": "hits"}, [(0, 0), (3, 3)]),
    ({"pairing": "slot"}, [(2, 2), (5, 5)]),
    ({"pairing": "all", "normalizer": "hits", "surrogate": SURROGATES["logistic"]}, [(4, 1), (1, 3)]),
    ({"pairing": "all"}, [(0, 2), (0, 1)]),
]


def rows(case, rank, side, count):
    seed = 100 * case + 10 * rank + side
    return torch.randn(count, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def linear_loss(loss, known, unknown):
    parameter = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64, requires_grad=True)
    value = loss(known @ parameter, unknown @ parameter, weight=known[:, 0] > 0)
    value.backward()
    return value.item(), parameter.grad


def gathering_rank(rank, folder):
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    found = []
    for case, (options, counts) in enumerate(GATHER_CASES):
        known, unknown = (rows(case, rank, side, count) for side, count in enumerate(counts[rank]))
        value, gradient = linear_loss(PairwiseAUCLoss(gather=True, **options), known, unknown)
        dist.all_reduce(gradient)
        found.append((value, (gradient / 2).tolist()))
    (folder / f"{rank}.json").write_text(json.dumps(found))
    dist.destroy_process_group()


def test_two_gathering_processes_equal_one(tmp_path):
    multiprocessing.set_forkserver_preload(["torch"])  # both ranks share one import
    mp.start_processes(gathering_rank, args=(tmp_path,), nprocs=2, start_method="forkserver")
    results = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    for case, (options, counts) in enumerate(GATHER_CASES):
        known, unknown = (
            torch.cat([rows(case, rank, side, counts[rank][side]) for rank in range(2)]) for side in range(2)
        )
        value, gradient = linear_loss(PairwiseAUCLoss(**options), known, unknown)
        for result in results:
            assert result[case][0] == pytest.approx(value)
            assert result[case][1] == pytest.approx(gradient.tolist())


def test_square_is_recognised_behind_a_margin():
    known, unknown = torch.rand(4, dtype=torch.float64), torch.rand(6, dtype=torch.float64)
    quadratic = PairwiseAUCLoss(lambda t: square(t, 2.0), pairing="all")(known, unknown)
    torch.testing.assert_close(PairwiseAUCLoss(make_surrogate("square", 2.0), pairing="all")(known, unknown), quadratic)
