"""The three options that only the search has, against OpenAUC itself."""

import numpy as np
import pytest
import torch

from openauc.losses import manifold_mixup
from openauc.methods import load_method, make_method, method_options
from openauc.methods.openauc import OpenAUC
from openauc.models import make_backbone

FORMS = "benchmark.forms"


@pytest.fixture
def images():
    return torch.rand(8, 3, 8, 8, generator=torch.Generator().manual_seed(1))


def make(images, method=FORMS, **options):
    """A method whose predictions on the images name several classes, the same weights whatever the options."""
    backbone = make_backbone("vgg32", width=4, image_size=8, generator=torch.Generator().manual_seed(0))
    made = make_method(method, backbone, 3, rng=np.random.default_rng(0), method_args=options).eval()
    with torch.no_grad():
        features = backbone(images)
        centred = features - features.mean(0)
        made.head.weight.copy_(3 * centred[:3] / centred[:3].norm(dim=1, keepdim=True) ** 2)
        if made.head.bias is not None:
            made.head.bias.copy_(-made.head.weight @ features.mean(0))
    assert len(made.logits(images).argmax(1).unique()) > 1
    return made


def mostly_right(method, images, wrong=2):
    labels = method.logits(images).argmax(1)
    labels[wrong] = (labels[wrong] + 1) % 3
    return labels


def test_its_options_are_those_of_openauc_and_three_more():
    more = {"warm_up": 0, "min_confidence": 0.0, "gradient": "both"}
    assert method_options(load_method(FORMS)) == method_options(OpenAUC) | more


@pytest.mark.parametrize("preset", ["paper", "public_code"])
def test_without_them_it_is_openauc(preset, images):
    form, method = (make(images, kind, preset=preset, lam=0.7) for kind in (FORMS, "openauc"))
    labels = mostly_right(method, images)
    assert torch.equal(form.loss(images, labels), method.loss(images, labels))
    assert form.state_dict().keys() == method.state_dict().keys()


def test_the_weight_warms_up_over_the_first_batches(images):
    form = make(images, lam=0.6, warm_up=3)
    labels = mostly_right(form, images)
    state = form.rng.bit_generator.state
    for share in (0, 1 / 3, 2 / 3, 1, 1):
        form.rng.bit_generator.state = state
        expected = make(images, "openauc", lam=0.6 * share).loss(images, labels)
        torch.testing.assert_close(form.loss(images, labels), expected)
    resumed = make(images, lam=0.6, warm_up=3)
    resumed.load_state_dict(form.state_dict())
    assert resumed.batches_seen == 5


@pytest.mark.parametrize("pairing", ["slot", "all", "half_batch"])
def test_only_confident_hits_are_mixed(pairing, images):
    probability = make(images).logits(images).softmax(1).amax(1).detach()
    level = float(probability.sort().values[2])  # leaves out two, one of the others is wrong
    form = make(images, pairing=pairing, min_confidence=level, mix_weight="sample")
    labels = mostly_right(form, images, wrong=int(probability.argmax()))
    predicted = form.logits(images).argmax(1)
    chosen = ((probability >= level) & (predicted == labels)).nonzero().squeeze(1)
    assert len(chosen) == 5
    twin = np.random.default_rng()
    twin.bit_generator.state = form.rng.bit_generator.state
    mixed, kept = manifold_mixup(
        form.backbone(images)[chosen],
        labels[chosen],
        rng=twin,
        weight="sample",
        pairing="half" if pairing == "half_batch" else "full",
    )
    form.loss(images, labels)
    known, unknown, _ = form._last_pairs
    r_known = form.pair_score(form.logits(images))
    torch.testing.assert_close(unknown, form.pair_score(form.head(mixed)))
    torch.testing.assert_close(known, r_known if pairing == "all" else r_known[chosen[kept]])


def test_looking_for_confident_hits_leaves_no_trace_in_statistics(images):
    form, method = (
        make(images, kind, cut="block2", **more).train()
        for kind, more in ((FORMS, {"min_confidence": 1e-6}), ("openauc", {}))
    )
    for made in (form, method):
        torch.manual_seed(0)
        made.loss(images, torch.arange(8) % 3)
    for name, value in method.state_dict().items():
        assert torch.equal(form.state_dict()[name], value), name


@pytest.mark.parametrize(
    ("gradient", "moved"), [("both", [True, True]), ("known", [True, False]), ("unknown", [False, True])]
)
def test_which_score_of_a_pair_receives_gradient(gradient, moved, images):
    form = make(images, lam=1.0, gradient=gradient)
    labels = mostly_right(form, images)
    seen = []
    form.ranking.pairwise.register_forward_pre_hook(lambda module, scores: seen.extend(scores))
    value = form.loss(images, labels)
    assert [score.requires_grad for score in seen] == moved
    torch.testing.assert_close(value, make(images, "openauc", lam=1.0).loss(images, labels))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"warm_up": -1}, "warm_up is -1; pass a number of batches"),
        ({"min_confidence": 90}, r"min_confidence is 90; expected a fraction in \[0, 1\]"),
        ({"gradient": "mixed"}, "gradient is 'mixed'; expected one of 'both', 'known', 'unknown'"),
        ({"lamda": 0.1}, "an option of Forms is 'lamda'.*Did you mean 'lam'"),
    ],
)
def test_errors(options, message, images):
    with pytest.raises(ValueError, match=message):
        make(images, **options)
