"""Every method in the folder meets one contract; a new file is covered as soon as it is there.

One that is nothing but a loss meets it too.
"""

import copy
import json
from importlib.resources import files

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from methods.device_reads import device_reads
from torch.nn.parallel import DistributedDataParallel

from openauc.features import SCORES
from openauc.methods import load_method, make_method, method_names, method_options
from openauc.models import make_backbone
from openauc.recipe import Recipe

NAMES = [*method_names(), "methods.only_a_loss"]
NUM_CLASSES = 6
SIZE = 16
SMALL_ADVERSARIES = {"image_size": SIZE, "noise_dim": 8, "generator_width": 8, "discriminator_width": 4}


def build(name, *, seed=0, **options):
    """The method on a narrow network; whatever adversaries it has are narrow too."""
    kind = load_method(name)
    options = {key: value for key, value in SMALL_ADVERSARIES.items() if key in method_options(kind)} | options
    backbone = make_backbone(kind.default_backbone(SIZE), width=8, generator=torch.Generator().manual_seed(seed))
    return make_method(name, backbone, NUM_CLASSES, rng=np.random.default_rng(seed), method_args=options)


def digits(count):
    """The first images of the embedded digits 0..5, enlarged to 16 x 16 RGB in [0, 1]."""
    with np.load(str(files("openauc") / "protocols/data/digits.npz"), allow_pickle=False) as stored:
        known = np.flatnonzero(stored["labels"] < NUM_CLASSES)[:count]
        images, labels = stored["images"][known], stored["labels"][known]
    pixels = torch.from_numpy(images).float().div(255)[:, None].expand(-1, 3, -1, -1)
    return pixels.repeat_interleave(2, 2).repeat_interleave(2, 3), torch.from_numpy(labels).long()


RECIPE = Recipe(optimizer="adam", learning_rate=0.01, weight_decay=0.0)


def train(method, x, y, *, steps, recipe=RECIPE):
    """Whole epochs, pass by pass, as a loop would run them; returns the loss of each last pass."""
    torch.manual_seed(0)  # dropout
    method.use_recipe(recipe)
    optimizer = method.optimizer(recipe)
    losses = []
    for step in range(steps):
        start = step * 32 % len(x)
        for phase in method.passes:
            found = method.train_batch(x[start : start + 32], y[start : start + 32], optimizer, phase=phase)
            assert all(value.isfinite() for value in found.values())
        losses.append(found["loss"].item())
    return losses


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    """Networks this small lose more to waiting for threads than they gain."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(params=NAMES)
def name(request):
    return request.param


def test_shapes(name):
    method = build(name).eval()
    x, y = digits(5)
    logits = method.logits(x)
    assert logits.shape == (5, NUM_CLASSES)
    assert torch.equal(method(x), logits)
    assert method.open_score(logits).shape == (5,)
    assert method.loss(x, y).shape == ()


def test_its_own_score_is_one_of_the_list_and_of_logits_alone(name):
    score = SCORES[load_method(name).score]
    assert score.looks_at == "logits"
    logits = torch.randn(4, NUM_CLASSES, generator=torch.Generator().manual_seed(0))
    found = build(name).open_score(logits)
    np.testing.assert_array_equal(found.numpy(), score()(np.empty((4, 0)), logits.double().numpy()))


def test_every_parameter_it_claims_gets_a_finite_gradient(name):
    method = build(name)
    x, y = digits(16)
    claimed = {id(parameter) for parameter in method.trained_parameters()}
    optimizer = method.optimizer(Recipe())
    assert {id(p) for group in optimizer.param_groups for p in group["params"]} == claimed
    reached = set()
    for phase in method.passes:
        method.train_batch(x, y, optimizer, phase=phase)
        for parameter in method.parameters():
            if parameter.grad is not None and parameter.grad.any():
                assert parameter.grad.isfinite().all()
                reached.add(id(parameter))
    assert reached == claimed


def test_no_parameter_has_two_optimisers(name):
    method = build(name)
    optimizers = [method.optimizer(Recipe()), *method.auxiliary_optimizers().values()]
    owned = [id(p) for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]]
    assert len(owned) == len(set(owned))
    assert set(owned) == {id(p) for p in method.parameters() if p.requires_grad}


def test_the_loss_falls_on_digits(name):
    x, y = digits(256)
    method = build(name)
    losses = train(method, x, y, steps=24)
    assert np.mean(losses[-6:]) < 0.95 * np.mean(losses[:6])
    with torch.no_grad():
        correct = method.eval().logits(x).argmax(1) == y
    assert correct.double().mean() > 0.5  # chance is 1/6


def test_same_seed_same_weights(name):
    x, y = digits(64)
    states = []
    for seed in (0, 0, 1):
        method = build(name, seed=seed)
        train(method, x, y, steps=2)
        states.append(method.state_dict())
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])
    assert any(not torch.equal(states[0][key], states[2][key]) for key in states[0])


@pytest.mark.parametrize("name", [name for name in NAMES if vars(load_method(name)).get("trained_as")])
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_a_method_trained_as_another_takes_its_steps_to_the_last_bit(name, smoothing):
    other = load_method(name).trained_as
    assert load_method(other).trained_as is None  # the other is the one whose training is kept
    x, y = digits(64)
    methods = [build(one) for one in (name, other)]
    recipe = Recipe(learning_rate=0.05, label_smoothing=smoothing)
    losses = [train(method, x, y, steps=3, recipe=recipe) for method in methods]
    assert losses[0] == losses[1]
    ours, theirs = (method.state_dict() for method in methods)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(value, theirs[key]) for key, value in ours.items())
    options = [method_options(load_method(one)) for one in (name, other)]
    assert options[0] == options[1]


def test_state_round_trip(name):
    x, y = digits(32)
    method = build(name)
    train(method, x, y, steps=1)
    other = build(name, seed=5)
    other.load_state_dict(method.state_dict())
    assert torch.equal(other.eval().logits(x), method.eval().logits(x))
    assert all(isinstance(value, torch.Tensor) for value in method.state_dict().values())


def test_published_key_prefixes(name):
    prefixes = {key.split(".")[0] for key in build(name).state_dict()}
    assert {"backbone", "head"} <= prefixes


def test_unknown_keywords_are_refused(name):
    with pytest.raises(ValueError, match=r"is 'no_such_option'; expected one of .*'label_smoothing'"):
        build(name, no_such_option=1)
    with pytest.raises(TypeError, match="no_such_option"):
        load_method(name)(make_backbone("vgg32", width=8), 3, rng=np.random.default_rng(0), no_such_option=1)


@pytest.mark.parametrize("labels", [[2], [1, 1, 1, 1], [0, 1, 2], [0, 0, 3, 3, 5], [4, 0]])
def test_odd_single_class_and_one_sample_batches(name, labels):
    x, _ = digits(len(labels))
    y = torch.tensor(labels)
    method = build(name)
    loss = method.loss(x, y)
    assert loss.isfinite()
    loss.backward()
    assert all(p.grad.isfinite().all() for p in method.trained_parameters() if p.grad is not None)
    optimizer = method.optimizer(Recipe())
    for phase in method.passes:
        assert method.train_batch(x, y, optimizer, phase=phase)["loss"].isfinite()


def is_plain_number(value):
    return isinstance(value, torch.Tensor) and value.shape == () and not value.requires_grad and value.isfinite()


def test_what_a_step_reports_are_numbers_by_name(name):
    method = build(name)
    assert method.diagnostics() == {}
    optimizer = method.optimizer(Recipe())
    for phase in method.passes:
        found = method.train_batch(*digits(16), optimizer, phase=phase)
        assert "loss" in found
        assert all(map(is_plain_number, found.values()))
        noted = method.diagnostics()
        assert all(map(is_plain_number, noted.values()))
        assert 0 <= noted.get("known_accuracy", 0) <= 1
        assert not set(found) & set(noted)


@pytest.mark.parametrize("recipe", [Recipe(), RECIPE], ids=["sgd", "adam"])
def test_a_step_reads_nothing_from_the_device(name, recipe):
    method = build(name)
    x, y = digits(16)
    optimizer = method.optimizer(recipe)
    for phase in method.passes:
        with device_reads() as reads:
            method.train_batch(x, y, optimizer, phase=phase)
            method.diagnostics()
        assert reads == []


def test_a_loss_never_waits_for_the_device(name):
    """Tensors on the device "meta" have no values, so that whatever needs one raises; classes come from the CPU."""
    x, y = digits(16)
    method = build(name).to("meta")
    loss = method(x.to("meta"), y)
    loss.backward()
    assert loss.device.type == "meta"


@pytest.mark.parametrize(
    "look", [torch.Tensor.item, float, bool, torch.Tensor.tolist, torch.Tensor.cpu, torch.Tensor.numpy]
)
def test_a_step_that_reads_is_found_out(look):
    class Curious(load_method("softmax")):
        def loss(self, x, y):
            loss = super().loss(x, y)
            look(loss.detach())
            return loss

    method = Curious(make_backbone("vgg32", width=4), NUM_CLASSES, rng=np.random.default_rng(0))
    with device_reads() as reads:
        method.train_batch(*digits(4), method.optimizer(Recipe()))
    assert reads


def test_evaluation_draws_nothing_and_changes_nothing(name):
    method = build(name).eval()
    x, _ = digits(8)
    before, state = copy.deepcopy(method.state_dict()), method.rng.bit_generator.state
    assert torch.equal(method.logits(x), method.logits(x))
    assert method.rng.bit_generator.state == state
    assert all(torch.equal(value, before[key]) for key, value in method.state_dict().items())


def test_bfloat16_autocast(name):
    method = build(name)
    x, y = digits(16)
    optimizer = method.optimizer(Recipe())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for phase in method.passes:
            assert method.train_batch(x, y, optimizer, phase=phase)["loss"].isfinite()


def data_parallel_steps(name, rank):
    """Sums of the parameters after two steps on this rank's half of the batch, the wrapper in place of the method."""
    x, y = digits(24)
    options = {"gather": True} if "gather" in method_options(load_method(name)) else {}
    method = build(name, **options)
    wrapped = DistributedDataParallel(method, find_unused_parameters=method.find_unused_parameters)
    torch.manual_seed(rank)
    optimizer = method.optimizer(Recipe())
    for _ in range(2):
        for phase in method.passes:
            method.train_batch(x[rank::2], y[rank::2], optimizer, phase=phase, forward=wrapped)
    return {key: p.double().sum().item() for key, p in method.named_parameters()}


def data_parallel_rank(rank, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    for name in NAMES:
        (folder / f"{name}_{rank}.json").write_text(json.dumps(data_parallel_steps(name, rank)))
    dist.barrier()  # no rank leaves while the other still talks to it
    dist.destroy_process_group()


def test_data_parallel_steps_keep_the_processes_together(tmp_path):
    mp.spawn(data_parallel_rank, args=(tmp_path,), nprocs=2)
    for name in NAMES:
        first, second = (json.loads((tmp_path / f"{name}_{rank}.json").read_text()) for rank in range(2))
        start = {key: p.double().sum().item() for key, p in build(name).named_parameters()}
        assert first == second
        assert first != start
