"""Checkpoints and weights: what is written comes back to the bit, and nothing else is accepted."""

import json

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from openauc.methods import make_method
from openauc.models import load_weights, make_backbone
from openauc.training.checkpoint import (
    Checkpoint,
    ProcessState,
    Progress,
    read_about,
    restore_optimizer,
    save_weights,
)
from openauc.training.recipe import Recipe


def build(seed=0):
    backbone = make_backbone("vgg32", width=2, generator=torch.Generator().manual_seed(seed))
    return make_method("openauc", backbone, 3, rng=np.random.default_rng(seed))


def step(method, optimizer, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(6, 3, 8, 8, generator=generator).contiguous(memory_format=torch.channels_last)
    method.train_batch(x, torch.tensor([0, 1, 2, 0, 1, 2]), optimizer)


def checkpoint_of(method, optimizer, **changes):
    parts = {
        "about": {"seed": 0},
        "progress": Progress(epoch=1, batch=2, seconds=0.5, history=[{"loss": 0.1 + 0.2}]),
        "model": method.state_dict(),
        "optimizers": {"main": optimizer.state_dict()},
        "processes": [ProcessState.of(method, {"loss": (1 / 3, 7.0)})],
    }
    return Checkpoint(**(parts | changes))


@pytest.mark.parametrize("kind", ["sgd", "adam"])
def test_going_on_from_a_checkpoint_is_going_on(kind, tmp_path):
    recipe = Recipe(optimizer=kind, learning_rate=0.01)
    method, other = build(), build(seed=1)
    method.to(memory_format=torch.channels_last)
    other.to(memory_format=torch.channels_last)
    optimizer, resumed = method.optimizer(recipe), other.optimizer(recipe)
    torch.manual_seed(5)
    step(method, optimizer)
    checkpoint_of(method, optimizer).save(tmp_path / "c.safetensors")

    loaded = Checkpoint.load(tmp_path / "c.safetensors")
    step(method, optimizer, seed=1)
    other.load_state_dict(loaded.model)
    restore_optimizer(resumed, loaded.optimizers["main"])
    loaded.processes[0].restore(other)
    step(other, resumed, seed=1)
    assert all(torch.equal(value, other.state_dict()[key]) for key, value in method.state_dict().items())
    assert method.rng.random() == other.rng.random()
    assert loaded.progress == Progress(epoch=1, batch=2, seconds=0.5, history=[{"loss": 0.1 + 0.2}])
    assert loaded.processes[0].sums == {"loss": (1 / 3, 7.0)}


def test_moments_take_the_layout_of_their_parameters():
    method = build()
    method.to(memory_format=torch.channels_last)
    optimizer = method.optimizer(Recipe())
    step(method, optimizer)
    state = optimizer.state_dict()
    for moments in state["state"].values():
        moments["momentum_buffer"] = moments["momentum_buffer"].contiguous()
    restore_optimizer(optimizer, state)
    weight = method.backbone.conv2.weight
    assert optimizer.state[weight]["momentum_buffer"].stride() == weight.stride()


def test_a_bit_generator_with_arrays_survives(tmp_path):
    method = build()
    method.rng = np.random.Generator(np.random.MT19937(3))
    checkpoint_of(method, method.optimizer(Recipe())).save(tmp_path / "c.safetensors")
    expected = method.rng.random()
    Checkpoint.load(tmp_path / "c.safetensors").processes[0].restore(method)
    assert method.rng.random() == expected


def test_the_file_is_safetensors_with_json_and_nothing_is_left_beside_it(tmp_path):
    method = build()
    checkpoint_of(method, method.optimizer(Recipe())).save(tmp_path / "c.safetensors")
    with safe_open(tmp_path / "c.safetensors", framework="pt") as file:
        assert json.loads(file.metadata()["openauc"])["about"] == {"seed": 0}
    assert [file.name for file in tmp_path.iterdir()] == ["c.safetensors"]


def test_a_failed_write_keeps_the_old_checkpoint(tmp_path):
    method = build()
    optimizer = method.optimizer(Recipe())
    checkpoint_of(method, optimizer).save(tmp_path / "c.safetensors")
    with pytest.raises(TypeError, match="no place in a checkpoint"):
        checkpoint_of(method, optimizer, about={"live": object()}).save(tmp_path / "c.safetensors")
    assert Checkpoint.load(tmp_path / "c.safetensors").about == {"seed": 0}


def test_other_files_are_refused(tmp_path):
    save_file({"a": torch.zeros(1)}, tmp_path / "weights.safetensors")
    with pytest.raises(ValueError, match="not a checkpoint of openauc"):
        Checkpoint.load(tmp_path / "weights.safetensors")
    (tmp_path / "half.safetensors").write_bytes(b"\x10\0\0\0")
    with pytest.raises(ValueError, match="cannot be read as safetensors"):
        Checkpoint.load(tmp_path / "half.safetensors")


def test_weights_come_back_with_their_description(tmp_path):
    method = build()
    method.to(memory_format=torch.channels_last)
    save_weights(method, tmp_path / "m.safetensors", {"width": 2})
    other = build(seed=1)
    load_weights(other, tmp_path / "m.safetensors")
    assert all(torch.equal(value, other.state_dict()[key]) for key, value in method.state_dict().items())
    assert read_about(tmp_path / "m.safetensors") == {"width": 2}


def test_weights_from_elsewhere_have_no_description(tmp_path):
    save_weights(build(), tmp_path / "m.safetensors")
    assert read_about(tmp_path / "m.safetensors") is None
    assert read_about(tmp_path / "m.pth") is None
    assert read_about(tmp_path / "absent.safetensors") is None
