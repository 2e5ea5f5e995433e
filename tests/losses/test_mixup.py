import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from openauc.losses import manifold_mixup

LABELS = st.lists(st.integers(0, 2), min_size=0, max_size=9)


def features_of(labels):
    """Row i is (2^i, label): its first entry tells which two rows a mixture came from."""
    return torch.tensor([[2.0**i, float(label)] for i, label in enumerate(labels)], dtype=torch.float64).reshape(-1, 2)


@settings(deadline=None)
@given(LABELS, st.sampled_from(["batch", "sample"]), st.sampled_from(["full", "half"]), st.integers(0, 99))
def test_against_the_definition(labels, weight, pairing, seed):
    target = torch.tensor(labels, dtype=torch.long)
    features = features_of(labels)
    mixed, kept = manifold_mixup(
        features, target, alpha=2.0, rng=np.random.default_rng(seed), weight=weight, pairing=pairing
    )
    twin = np.random.default_rng(seed)
    half = len(labels) // 2
    sources = list(range(half, 2 * half)) if pairing == "half" else list(range(len(labels)))
    order = twin.permutation(len(sources))
    shares = twin.beta(2.0, 2.0, size=len(sources)) if weight == "sample" else [twin.beta(2.0, 2.0)] * len(sources)
    expected, slots = [], []
    for slot, (i, share) in enumerate(zip(sources, shares, strict=True)):
        j = sources[order[slot]]
        if labels[i] != labels[j]:
            expected.append(share * features[i] + (1 - share) * features[j])
            slots.append(slot)
    assert kept.tolist() == slots
    assert len(mixed) == len(expected) != 1
    if expected:
        torch.testing.assert_close(mixed, torch.stack(expected))


@pytest.mark.parametrize("weight", ["batch", "sample"])
@pytest.mark.parametrize("pairing", ["full", "half"])
def test_with_classes_on_the_cpu_nothing_is_read_from_the_device(weight, pairing):
    features = torch.empty(8, 3, device="meta")  # holds no value that could be waited for
    target = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1])
    mixed, kept = manifold_mixup(features, target, rng=np.random.default_rng(0), weight=weight, pairing=pairing)
    assert mixed.device == kept.device == features.device
    assert mixed.shape == (len(kept), 3)


@pytest.mark.parametrize("weight", ["batch", "sample"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_feature_maps_keep_shape_and_dtype(weight, dtype):
    features = torch.rand(6, 4, 3, 3, dtype=dtype)
    target = torch.tensor([0, 1, 2, 3, 4, 5])
    mixed, kept = manifold_mixup(features, target, rng=np.random.default_rng(0), weight=weight)
    assert mixed.shape == (len(kept), 4, 3, 3)
    assert mixed.dtype == dtype


def test_per_sample_weights_differ_and_per_batch_weights_do_not():
    target = torch.arange(8)
    features = torch.eye(8, dtype=torch.float64)  # the mixture's entry in column i is the share of sample i
    for weight in ("batch", "sample"):
        mixed, kept = manifold_mixup(features, target, rng=np.random.default_rng(5), weight=weight)
        own = mixed[torch.arange(len(kept)), kept]
        assert len(kept) > 1
        assert len(own.unique()) == (len(kept) if weight == "sample" else 1)


@pytest.mark.parametrize("pairing", ["full", "half"])
@pytest.mark.parametrize("labels", [[], [3], [1, 1, 1, 1]])
def test_without_two_classes_there_is_no_mixture(labels, pairing):
    features = features_of(labels).requires_grad_()
    mixed, kept = manifold_mixup(
        features, torch.tensor(labels, dtype=torch.long), rng=np.random.default_rng(0), pairing=pairing
    )
    assert mixed.shape == (0, 2)
    assert kept.shape == (0,)


def test_gradient_reaches_both_sources():
    features = torch.rand(6, 3, dtype=torch.float64, requires_grad=True)
    mixed, kept = manifold_mixup(features, torch.arange(6), rng=np.random.default_rng(0))
    mixed[0].sum().backward()
    touched = features.grad[:, 0].nonzero().squeeze(1)
    assert len(touched) == 2
    assert kept[0] in touched
    assert features.grad.sum().item() == pytest.approx(3.0)  # the two shares sum to one


def test_seed_decides():
    features, target = torch.rand(8, 2), torch.arange(8)
    first, again, other = (
        manifold_mixup(features, target, rng=np.random.default_rng(seed))[0].sum(1).tolist() for seed in (0, 0, 1)
    )
    assert first == again != other


def test_global_generators_are_left_alone():
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    manifold_mixup(torch.rand(4, 2, generator=torch.Generator()), torch.arange(4), rng=np.random.default_rng(0))
    assert torch.equal(torch_state, torch.get_rng_state())
    assert (numpy_state == np.random.get_state()[1]).all()  # noqa: NPY002


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"alpha": 0.0}, "alpha is 0.0"),
        ({"alpha": float("nan")}, "alpha is nan"),
        ({"weight": "sampel"}, "weight is 'sampel'.*Did you mean 'sample'"),
        ({"pairing": "quarter"}, "pairing is 'quarter'"),
        ({"target": torch.tensor([0, 1, 2])}, r"target has shape \(3,\); pass one class for each of 2 features"),
    ],
)
def test_errors(changes, message):
    arguments = {
        "features": torch.zeros(2, 1),
        "target": torch.tensor([0, 1]),
        "rng": np.random.default_rng(0),
    }
    with pytest.raises(ValueError, match=message):
        manifold_mixup(**(arguments | changes))
