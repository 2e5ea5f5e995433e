"""Checkpoints and weights: what is written comes back to the bit, and nothing else is accepted."""

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from openauc.methods import make_method
from openauc.models import load_weights, make_backbone
from openauc.recipe import Recipe
from openauc.training.checkpoint import (
    generator_state,
    load_checkpoint,
    read_about,
    restore_generators,
    save_checkpoint,
    save_weights,
)


def build(seed=0):
    backbone = make_backbone("vgg32", width=2, generator=torch.Generator().manual_seed(seed))
    return make_method("openauc", backbone, 3, rng=np.random.default_rng(seed))


def step(method, optimizer, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(6, 3, 8, 8, generator=generator).contiguous(memory_format=torch.channels_last)
    method.train_batch(x, torch.tensor([0, 1, 2, 0, 1, 2]), optimizer)


def state_of(method, optimizer):
    return {"model": method.state_dict(), "optimizer": optimizer.state_dict(), **generator_state(method)}


@pytest.mark.parametrize("kind", ["sgd", "adam"])
def test_going_on_from_a_checkpoint_is_going_on(kind, tmp_path):
    recipe = Recipe(optimizer=kind, learning_rate=0.01)
    method, other = build(), build(seed=1)
    method.to(memory_format=torch.channels_last)
    other.to(memory_format=torch.channels_last)
    optimizer, resumed = method.optimizer(recipe), other.optimizer(recipe)
    torch.manual_seed(5)
    step(method, optimizer)
    save_checkpoint(tmp_path / "c.pt", state_of(method, optimizer))
    assert [file.name for file in tmp_path.iterdir()] == ["c.pt"]

    loaded = load_checkpoint(tmp_path / "c.pt")
    step(method, optimizer, seed=1)
    other.load_state_dict(loaded["model"])
    resumed.load_state_dict(loaded["optimizer"])
    restore_generators(other, loaded)
    # Another layout would send the moments through other loops, whose last bit may differ.
    for parameter, moments in resumed.state.items():
        assert all(m.stride() == parameter.stride() for m in moments.values() if m.shape == parameter.shape)
    step(other, resumed, seed=1)
    assert all(torch.equal(value, other.state_dict()[key]) for key, value in method.state_dict().items())
    assert method.rng.random() == other.rng.random()


def test_a_bit_generator_with_arrays_survives(tmp_path):
    method = build()
    method.rng = np.random.Generator(np.random.MT19937(3))
    save_checkpoint(tmp_path / "c.pt", generator_state(method))
    expected = method.rng.random()
    restore_generators(method, load_checkpoint(tmp_path / "c.pt"))
    assert method.rng.random() == expected


def test_a_failed_write_keeps_the_old_checkpoint(tmp_path):
    save_checkpoint(tmp_path / "c.pt", {"seed": 0})
    with pytest.raises((AttributeError, TypeError), match="pickle"):
        save_checkpoint(tmp_path / "c.pt", {"live": lambda: None})
    assert load_checkpoint(tmp_path / "c.pt") == {"seed": 0}


def test_damage_anywhere_is_noticed(tmp_path):
    method, file = build(), tmp_path / "c.pt"
    save_checkpoint(file, state_of(method, method.optimizer(Recipe())))
    content = file.read_bytes()
    cut = [content[:length] for length in (0, 4, 32, 100, len(content) // 2, len(content) - 1)]
    flipped = [bytearray(content) for _ in range(30)]
    for place, damaged in zip(np.linspace(0, len(content) - 1, 30).astype(int), flipped, strict=True):
        damaged[place] ^= 1
    for damaged in (*cut, *flipped):
        file.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"c\.pt .*remove it to start again"):
            load_checkpoint(file)


def test_damaged_weights_are_not_loaded(tmp_path):
    file = tmp_path / "m.safetensors"
    save_weights(build(), file, {"width": 2})
    damaged = bytearray(file.read_bytes())
    damaged[-1] ^= 1
    file.write_bytes(damaged)
    other = build(seed=1)
    before = {key: value.clone() for key, value in other.state_dict().items()}
    for read in (lambda: load_weights(other, file), lambda: read_about(file)):
        with pytest.raises(ValueError, match=r"m.safetensors .*checksum"):
            read()
    assert all(torch.equal(value, other.state_dict()[key]) for key, value in before.items())


def test_weights_without_a_checksum_are_read(tmp_path):
    save_file({"a": torch.zeros(1)}, tmp_path / "old.safetensors", {"openauc": '{"seed": 0}'})
    assert read_about(tmp_path / "old.safetensors") == {"seed": 0}


@pytest.mark.parametrize("description", ["[1, 2]", "[" * 100_000, "{"])
def test_descriptions_that_are_none(description, tmp_path):
    save_file({"a": torch.zeros(1)}, tmp_path / "c.safetensors", {"openauc": description})
    with pytest.raises(ValueError, match=r"c.safetensors .*fetch"):
        read_about(tmp_path / "c.safetensors")


@pytest.mark.parametrize("header", [b"[]", b"[" * 100_000, b'{"__metadata__": []}', b"\xff"])
def test_headers_that_are_none(header, tmp_path):
    (tmp_path / "c.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(ValueError, match="cannot be read as safetensors"):
        read_about(tmp_path / "c.safetensors")


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
