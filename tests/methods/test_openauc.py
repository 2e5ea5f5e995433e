import numpy as np
import pytest
import torch
from torch.nn import functional as F

from openauc.losses import SURROGATES, manifold_mixup
from openauc.methods.openauc import OpenAUC


def make(backbone, seed=0, **options):
    return OpenAUC(backbone, 3, rng=np.random.default_rng(seed), **options).eval()


def mostly_right(method, images, wrong=(2,)):
    """What the method predicts, taken as labels except at the given places."""
    labels = method.logits(images).argmax(1)
    labels[list(wrong)] = (labels[list(wrong)] + 1) % 3
    return labels


def diverse(method, images):
    """Turn the head until its predictions name at least two classes."""
    with torch.no_grad():
        features = method.backbone(images)
        centred = features - features.mean(0)
        method.head.weight.copy_(3 * centred[:3])
        if method.head.bias is not None:
            method.head.bias.copy_(-method.head.weight @ features.mean(0))
    assert len(method.logits(images).argmax(1).unique()) > 1
    return method


def draws_of(method, slots):
    """The permutation and the weight the method is about to draw."""
    twin = np.random.default_rng()
    twin.bit_generator.state = method.rng.bit_generator.state
    return twin.permutation(slots), float(twin.beta(method.alpha, method.alpha))


def test_the_paper_by_hand(backbone, images):
    """Eq. 17 with the slots of the appendix and the literal Def. 1."""
    method = diverse(make(backbone, seed=4, lam=0.7), images)
    labels = mostly_right(method, images)
    features, logits = backbone(images), method.logits(images)
    order, share = draws_of(method, 8)
    total, slots = 0.0, 0
    for i, j in enumerate(order):
        if labels[i] == labels[j]:
            continue
        slots += 1
        mixed = method.head(share * features[i] + (1 - share) * features[j])
        r_unknown = (1 - torch.softmax(mixed, 0)).min()
        r_known = (1 - torch.softmax(logits[i], 0)).min()
        total += float(logits[i].argmax() == labels[i]) * (1 - (r_unknown - r_known)) ** 2
    assert slots > 1
    expected = F.cross_entropy(logits, labels) + 0.7 * total / slots
    torch.testing.assert_close(method.loss(images, labels), expected)


@pytest.mark.parametrize("batch", [8, 7])
def test_the_public_code_by_hand(batch, backbone, images):
    """Its nine steps, save that an odd batch loses a sample and not the term."""
    images = images[:batch]
    method = diverse(make(backbone, seed=2, **OpenAUC.preset("public_code") | {"lam": 0.3}), images)
    labels = mostly_right(method, images, wrong=(0, 5))
    features, logits = backbone(images), method.logits(images)
    half = batch // 2
    order, share = draws_of(method, half)
    total = hits = 0.0
    for i in range(half):
        s, partner = half + i, half + int(order[i])
        if labels[s] == labels[partner] or logits[i].argmax() != labels[i]:
            continue
        mixed = method.head(share * features[s] + (1 - share) * features[partner])
        total += (mixed.max() - logits[i].max() + 1) ** 2
        hits += 1
    assert hits
    expected = F.cross_entropy(logits, labels) + 0.3 * total / hits
    torch.testing.assert_close(method.loss(images, labels), expected)


@pytest.mark.parametrize("normalizer", ["pairs", "hits"])
@pytest.mark.parametrize("score_space", ["probability", "logit"])
@pytest.mark.parametrize("surrogate", SURROGATES)
def test_all_pairs_by_hand(surrogate, score_space, normalizer, backbone, images):
    method = make(
        backbone,
        pairing="all",
        surrogate=surrogate,
        margin=0.8,
        score_space=score_space,
        normalizer=normalizer,
    )
    labels = mostly_right(diverse(method, images), images)
    features, logits = backbone(images), method.logits(images)
    order, share = draws_of(method, 8)
    kept = [(i, int(j)) for i, j in enumerate(order) if labels[i] != labels[j]]
    mixed = [method.head(share * features[i] + (1 - share) * features[j]) for i, j in kept]

    def r(z):
        return 1 - torch.softmax(z, 0).max() if score_space == "probability" else -z.max()

    correct = logits.argmax(1) == labels
    total = sum(SURROGATES[surrogate](r(u) - r(logits[i]), margin=0.8) for i in range(8) if correct[i] for u in mixed)
    count = (8 if normalizer == "pairs" else int(correct.sum())) * len(mixed)
    torch.testing.assert_close(method.loss(images, labels), F.cross_entropy(logits, labels) + 0.1 * total / count)


@pytest.mark.parametrize("cut", ["input", "block1", "features"])
def test_mixing_at_a_cut(cut, backbone, images, labels):
    method = make(backbone, cut=cut, lam=1.0, score_space="logit", pairing="all", mix_weight="sample")
    twin = np.random.default_rng()
    twin.bit_generator.state = method.rng.bit_generator.state
    loss = method.loss(images, labels)
    mixed, _ = manifold_mixup(backbone.pre(images, cut), labels, rng=twin, weight="sample")
    unknown = -method.head(backbone.post(mixed, cut)).amax(1)
    logits = method.logits(images)
    correct = (logits.argmax(1) == labels).float()
    gaps = unknown[None] + logits.amax(1)[:, None]
    expected = F.cross_entropy(logits, labels) + (correct[:, None] * (1 - gaps) ** 2).mean()
    torch.testing.assert_close(loss, expected)


@pytest.mark.parametrize("unknown", [False, True])
def test_running_statistics_see_known_images_only(unknown, backbone, images, labels):
    method = make(backbone, cut="block1").train()
    others = images.flip(0) * 5 if unknown else None
    method.loss(images, labels, others)
    after = [norm.running_mean.clone() for norm in backbone.norms]
    for norm in backbone.norms:
        norm.reset_running_stats()
    method.logits(images)
    for norm, mean in zip(backbone.norms, after, strict=True):
        torch.testing.assert_close(norm.running_mean, mean)
        assert norm.num_batches_tracked == 1


def test_only_the_head_sees_mixtures_before_it(backbone, images, labels):
    calls = []
    backbone.blocks[0].register_forward_hook(lambda *_: calls.append("block"))
    method = make(backbone)
    method.head.register_forward_hook(lambda *_: calls.append("head"))
    method.loss(images, labels)
    assert calls == ["block", "head", "head"]


@pytest.mark.parametrize("pairing", ["slot", "half_batch", "all"])
def test_real_unknown_images(pairing, backbone, images, labels):
    method = make(backbone, pairing=pairing, score_space="logit", lam=1.0)
    unknown = torch.rand(8, 3, 8, 8, generator=torch.Generator().manual_seed(9))
    logits, other = method.logits(images), method.logits(unknown)
    correct = (logits.argmax(1) == labels).float()
    gap = (-other.amax(1) + logits.amax(1)) if pairing != "all" else (-other.amax(1)[None] + logits.amax(1)[:, None])
    weight = correct if pairing != "all" else correct[:, None]
    expected = F.cross_entropy(logits, labels) + (weight * (1 - gap) ** 2).mean()
    torch.testing.assert_close(method(images, labels, unknown), expected)
    if pairing == "all":
        assert method.loss(images, labels, unknown[:3]).isfinite()
    else:
        with pytest.raises(ValueError, match="slot pairing got 8 known and 3 unknown"):
            method.loss(images, labels, unknown[:3])


def test_the_indicator_carries_no_gradient_and_both_scores_do(backbone, images):
    method = diverse(make(backbone, score_space="logit"), images)
    labels = mostly_right(method, images)
    known, unknown = images.clone().requires_grad_(), images.flip(0).requires_grad_()
    assert not method.switch(method.logits(known), labels).requires_grad
    ranking = method.loss(known, labels, unknown) - F.cross_entropy(method.logits(known), labels)
    to_known, to_unknown = torch.autograd.grad(ranking, (known, unknown))
    taking_part = torch.arange(8) != 2  # all but the misclassified one
    assert torch.equal(to_known.abs().amax((1, 2, 3)) > 1e-8, taking_part)
    assert torch.equal(to_unknown.abs().amax((1, 2, 3)) > 1e-8, taking_part)


@pytest.mark.parametrize("pairing", ["slot", "half_batch", "all"])
@pytest.mark.parametrize("case", ["single class", "all wrong", "one sample"])
def test_without_a_pair_the_loss_is_cross_entropy_with_gradient(case, pairing, backbone, images):
    method = diverse(make(backbone, pairing=pairing, normalizer="hits", cut="block1"), images)
    labels = torch.ones(8, dtype=torch.long)
    if case == "all wrong":
        labels = (method.logits(images).argmax(1) + 1) % 3
    elif case == "one sample":
        images, labels = images[:1], labels[:1]
    loss = method.loss(images, labels)
    torch.testing.assert_close(loss, F.cross_entropy(method.logits(images), labels))
    loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in method.trained_parameters())


def test_diagnostics(backbone, images):
    method = diverse(make(backbone, score_space="logit", pairing="all"), images)
    assert method.diagnostics() == {}
    labels = mostly_right(method, images, wrong=(1, 3))
    method.loss(images, labels)
    found = method.diagnostics()
    known, mixed, correct = method._last_pairs
    assert found["known_accuracy"] == found["hits"] == correct.double().mean() == 0.75
    assert found["open_score_known"] == pytest.approx(known.mean().item())
    assert found["open_score_mixed"] == pytest.approx(mixed.mean().item())
    pairs = [(u > k) + (u == k) / 2 for k in known.tolist() for u in mixed.tolist()]
    assert found["pair_auc"] == pytest.approx(sum(pairs) / len(pairs))


@pytest.mark.parametrize(("pairing", "left"), [("slot", set()), ("all", {"open_score_known", "hits"})])
def test_diagnostics_leave_out_what_the_batch_had_no_sample_for(pairing, left, backbone, images):
    method = make(backbone, pairing=pairing)
    method.loss(images, torch.zeros(8, dtype=torch.long))
    assert set(method.diagnostics()) == {"known_accuracy"} | left


def test_half_precision_gaps_are_taken_in_float32(backbone):
    method = make(backbone, score_space="logit")
    assert method.pair_score(torch.zeros(2, 3, dtype=torch.bfloat16)).dtype == torch.float32
    assert method.pair_score(torch.zeros(2, 3, dtype=torch.float64)).dtype == torch.float64


@pytest.mark.parametrize(("score_space", "moved"), [("probability", 0.0), ("logit", -3.0)])
def test_only_the_logit_score_moves_with_a_shift_that_cross_entropy_ignores(score_space, moved, backbone, images):
    method = make(backbone, score_space=score_space)
    logits = method.logits(images).detach()
    torch.testing.assert_close(method.pair_score(logits + 3), method.pair_score(logits) + moved)


def test_label_smoothing_concerns_the_classification_only(backbone, images, labels):
    plain, smooth = (make(backbone, label_smoothing=s).loss(images, labels) for s in (0.0, 0.5))
    logits = make(backbone).logits(images)
    others = F.log_softmax(logits, 1)
    own = others.gather(1, labels[:, None]).squeeze(1)
    smoothed = -(0.5 * own + 0.25 * (others.sum(1) - own)).mean()
    torch.testing.assert_close(smooth - plain, smoothed - F.cross_entropy(logits, labels))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pairing": "half"}, "pairing is 'half'; expected one of 'slot', 'half_batch', 'all'"),
        ({"normalizer": "slots"}, "normalizer is 'slots'"),
        ({"mix_weight": "pair"}, "mix_weight is 'pair'"),
        ({"cut": "block2"}, r"cut is 'block2'.*Did you mean 'block1'"),
        ({"score_space": "logits"}, r"score_space is 'logits'.*Did you mean 'logit'"),
        ({"surrogate": "hinge"}, r"surrogate is 'hinge'"),
    ],
)
def test_errors(options, message, backbone):
    with pytest.raises(ValueError, match=message):
        make(backbone, **options)
