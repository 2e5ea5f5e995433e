"""Checkpoints and weights: what is written comes back to the bit, and nothing else is accepted."""

import json

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save, save_file

from openauc.methods import make_method
from openauc.models import load_weights, make_backbone
from openauc.recipe import Recipe
from openauc.training.checkpoint import (
    Checkpoint,
    ProcessState,
    Progress,
    read_about,
    restore_optimizer,
    save_weights,
)


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


def test_a_flipped_bit_anywhere_is_noticed(tmp_path):
    method = build()
    file = tmp_path / "c.safetensors"
    checkpoint_of(method, method.optimizer(Recipe())).save(file)
    content = file.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    # In the length, in the description, in the first and the last tensor, and every so often between.
    places = [0, 5, content.index(b"seconds"), content.index(b'[{\\"loss') + 12, start, len(content) - 1]
    for place in (*places, *range(8, len(content), len(content) // 40)):
        damaged = bytearray(content)
        damaged[place] ^= 1
        file.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"is damaged: its content|cannot be read as safetensors") as caught:
            Checkpoint.load(file)
        assert "remove it to start again" in str(caught.value)


def test_a_truncated_checkpoint_is_noticed(tmp_path):
    method = build()
    file = tmp_path / "c.safetensors"
    checkpoint_of(method, method.optimizer(Recipe())).save(file)
    content = file.read_bytes()
    for length in (0, 4, 8, 100, len(content) // 2, len(content) - 1):
        file.write_bytes(content[:length])
        with pytest.raises(ValueError, match=r"is damaged|cannot be read as safetensors"):
            Checkpoint.load(file)


def test_damaged_weights_are_not_loaded(tmp_path):
    file = tmp_path / "m.safetensors"
    save_weights(build(), file, {"width": 2})
    damaged = bytearray(file.read_bytes())
    damaged[-1] ^= 1
    file.write_bytes(damaged)
    other = build(seed=1)
    before = {key: value.clone() for key, value in other.state_dict().items()}
    with pytest.raises(ValueError, match=r"m.safetensors is damaged: its content does not match its checksum"):
        load_weights(other, file)
    assert all(torch.equal(value, other.state_dict()[key]) for key, value in before.items())
    with pytest.raises(ValueError, match="is damaged"):
        read_about(file)


def test_files_of_before_have_no_checksum_and_are_read(tmp_path):
    method = build()
    checkpoint_of(method, method.optimizer(Recipe())).save(tmp_path / "new.safetensors")
    with safe_open(tmp_path / "new.safetensors", framework="pt") as file:
        metadata = {"openauc": file.metadata()["openauc"]}
    save_file(load_file(tmp_path / "new.safetensors"), tmp_path / "old.safetensors", metadata)
    assert Checkpoint.load(tmp_path / "old.safetensors").about == {"seed": 0}
    assert read_about(tmp_path / "old.safetensors")["about"] == {"seed": 0}


@pytest.mark.parametrize(
    ("description", "complaint"),
    [
        ("[1, 2]", "describes itself with a list instead of a JSON object"),
        ("[" * 100_000, "it is nested too deeply"),
        ("{", "cannot be read as safetensors"),
    ],
)
def test_descriptions_that_are_none(description, complaint, tmp_path):
    save_file({"a": torch.zeros(1)}, tmp_path / "c.safetensors", {"openauc": description})
    for read in (Checkpoint.load, read_about):
        with pytest.raises(ValueError, match=complaint):
            read(tmp_path / "c.safetensors")


@pytest.mark.parametrize("header", [b"[]", b"[" * 100_000, b'{"__metadata__": []}', b'{"a": 3}', b"\xff"])
def test_headers_that_are_none(header, tmp_path):
    (tmp_path / "c.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(ValueError, match="cannot be read as safetensors"):
        Checkpoint.load(tmp_path / "c.safetensors")


@pytest.mark.parametrize("damage", [{"progress": [1]}, {"optimizers": 3}, {"processes": [{}]}])
def test_descriptions_of_another_shape_are_no_checkpoint(damage, tmp_path):
    method = build()
    checkpoint_of(method, method.optimizer(Recipe())).save(tmp_path / "c.safetensors")
    described = read_about(tmp_path / "c.safetensors") | damage
    content = save(load_file(tmp_path / "c.safetensors"), {"openauc": json.dumps(described)})
    (tmp_path / "c.safetensors").write_bytes(content)
    with pytest.raises(ValueError, match="not a checkpoint of openauc; remove it"):
        Checkpoint.load(tmp_path / "c.safetensors")


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
