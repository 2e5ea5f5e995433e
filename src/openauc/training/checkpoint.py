"""Files of a run: checkpoints to continue from, and the weights with a description of the run."""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save
from torch import nn

from openauc._files import atomic_write, parse_json, sealed, sealed_metadata
from openauc.methods.base import Method

HEADER = "openauc"  # key of the JSON text in the header of our safetensors files


def save_checkpoint(path: str | os.PathLike[str], state: Mapping[str, Any]) -> None:
    """Write numbers, text and tensors with ``torch.save``, then a SHA-256 of all of it, all or nothing."""
    content = io.BytesIO()
    torch.save(state, content)
    with atomic_write(path) as file:
        file.write(content.getvalue())
        file.write(hashlib.sha256(content.getvalue()).digest())


def load_checkpoint(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read what :func:`save_checkpoint` wrote, on the CPU; ValueError if the file is anything else."""
    content = Path(path).read_bytes()
    if hashlib.sha256(content[:-32]).digest() != content[-32:]:
        raise ValueError(f"{path} is damaged, or not a checkpoint (its checksum differs); remove it to start again.")
    state: dict[str, Any] = torch.load(io.BytesIO(content[:-32]), map_location="cpu", weights_only=True)
    return state


def generator_state(method: Method) -> dict[str, Any]:
    """State of the random generators of this process."""
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state() if torch.cuda.is_available() else None,
        # Some of numpy's generators keep arrays in their state.
        "method": json.dumps(method.rng.bit_generator.state, default=np.ndarray.tolist),
    }


def restore_generators(method: Method, state: Mapping[str, Any]) -> None:
    """Set the random generators of this process to what :func:`generator_state` returned."""
    torch.set_rng_state(state["torch"])
    if state["cuda"] is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])
    method.rng.bit_generator.state = json.loads(state["method"])


def save_weights(module: nn.Module, path: str | os.PathLike[str], about: Mapping[str, Any] | None = None) -> None:
    """Write a module's state dict as safetensors, with a JSON-ready description of the run in its header."""
    # A copy of each: safetensors refuses shared memory and layouts other than row by row.
    tensors = {
        key: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for key, tensor in module.state_dict().items()
    }
    content = sealed(save(tensors, None if about is None else {HEADER: json.dumps(about)}))
    with atomic_write(path) as file:
        file.write(content)


def read_about(path: str | os.PathLike[str]) -> dict[str, Any] | None:
    """Return the description that :func:`save_weights` put into a file; None for weights from elsewhere."""
    if Path(path).suffix != ".safetensors" or not Path(path).is_file():
        return None
    text = sealed_metadata(path).get(HEADER)
    try:
        about = None if text is None else dict(parse_json(text))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path} has a header that is not a JSON object ({error}); fetch the file again.") from error
    return about
