"""What a run keeps on disk: weights, checkpoints it can continue from, and where they were made.

Both are one safetensors file each, tensors in its body, JSON and a checksum of everything in its header, so that a
checkpoint is always complete and consistent, however the process that wrote it ended, and damage to it is noticed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn
from torch.optim import Optimizer

from openauc._files import atomic_write, parse_json, sealed, sealed_metadata
from openauc.methods.base import Method

HEADER = "openauc"
"""Key of the JSON text in the header of our safetensors files."""


@dataclass(kw_only=True)
class Progress:
    """How far a run has come.

    ``epoch`` epochs are finished, with one row of ``history`` each, and ``batch`` batches of the next one, on
    which ``seconds`` were spent.
    """

    epoch: int = 0
    batch: int = 0
    seconds: float = 0.0
    history: list[dict[str, float]] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class ProcessState:
    """What differs between the processes of a run: generators, and the epoch's sums so far.

    ``sums`` maps each logged name to its weighted sum and the sum of its weights.
    """

    torch_generator: Tensor
    cuda_generator: Tensor | None
    method_generator: dict[str, Any]
    sums: dict[str, tuple[float, float]]

    @classmethod
    def of(cls, method: Method, sums: Mapping[str, tuple[float, float]]) -> ProcessState:
        """The present state of this process."""
        return cls(
            torch_generator=torch.get_rng_state(),
            cuda_generator=torch.cuda.get_rng_state() if torch.cuda.is_available() else None,
            method_generator=dict(method.rng.bit_generator.state),
            sums=dict(sums),
        )

    def restore(self, method: Method) -> None:
        """Set the generators of this process."""
        torch.set_rng_state(self.torch_generator)
        if self.cuda_generator is not None and torch.cuda.is_available():
            torch.cuda.set_rng_state(self.cuda_generator)
        method.rng.bit_generator.state = self.method_generator


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """Everything a run needs to go on as if it had never stopped.

    ``about`` says which run this is; ``optimizers`` are state dicts by name; ``processes`` has one state per
    process; ``scaler`` is the loss scaling of float16.
    """

    about: dict[str, Any]
    progress: Progress
    model: dict[str, Tensor]
    optimizers: dict[str, dict[str, Any]]
    processes: list[ProcessState]
    scaler: dict[str, Any] | None = None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the checkpoint, all or nothing."""
        tensors = {f"model.{key}": tensor for key, tensor in self.model.items()}
        header: dict[str, Any] = {
            "about": self.about,
            "progress": asdict(self.progress),
            "optimizers": {},
            "processes": [],
            "scaler": self.scaler,
        }
        for name, state in self.optimizers.items():
            moments, rest = _split_optimizer(state)
            tensors |= {f"optimizer.{name}.{key}": tensor for key, tensor in moments.items()}
            header["optimizers"][name] = rest
        for rank, process in enumerate(self.processes):
            tensors[f"process.{rank}.torch"] = process.torch_generator
            if process.cuda_generator is not None:
                tensors[f"process.{rank}.cuda"] = process.cuda_generator
            header["processes"].append({"method": process.method_generator, "sums": process.sums})
        _write(path, tensors, header)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Checkpoint:
        """Read what :meth:`save` wrote, on the CPU.

        Raises
        ------
        ValueError
            If the file is not a checkpoint, or was damaged.
        """
        tensors, header = _read(path)
        try:
            return cls._of(tensors, header or {})
        except (KeyError, TypeError, ValueError, AttributeError):
            raise ValueError(
                f"{path} is not a checkpoint of openauc; remove it to start again, or use another directory."
            ) from None

    @classmethod
    def _of(cls, tensors: Mapping[str, Tensor], header: Mapping[str, Any]) -> Checkpoint:
        optimizers = {
            name: _join_optimizer(_below(tensors, f"optimizer.{name}."), rest)
            for name, rest in header["optimizers"].items()
        }
        processes = [
            ProcessState(
                torch_generator=tensors[f"process.{rank}.torch"],
                cuda_generator=tensors.get(f"process.{rank}.cuda"),
                method_generator=process["method"],
                sums={name: (total, weight) for name, (total, weight) in process["sums"].items()},
            )
            for rank, process in enumerate(header["processes"])
        ]
        return cls(
            about=header["about"],
            progress=Progress(**header["progress"]),
            model=_below(tensors, "model."),
            optimizers=optimizers,
            processes=processes,
            scaler=header["scaler"],
        )


def restore_optimizer(optimizer: Optimizer, state: dict[str, Any]) -> None:
    """Load a state dict; tensors of a parameter's shape take its memory layout too.

    A layout of their own would send them through other loops, whose last bit may differ.
    """
    optimizer.load_state_dict(state)
    for parameter, moments in optimizer.state.items():
        for key, value in moments.items():
            if isinstance(value, Tensor) and value.shape == parameter.shape:
                moments[key] = torch.empty_like(parameter, dtype=value.dtype).copy_(value)


def save_weights(module: nn.Module, path: str | os.PathLike[str], about: Mapping[str, Any] | None = None) -> None:
    """Write a module's state dict as safetensors, with a JSON-ready description of the run in its header."""
    _write(path, module.state_dict(), about)


def read_about(path: str | os.PathLike[str]) -> dict[str, Any] | None:
    """The description :func:`save_weights` put into a file; None for weights from elsewhere."""
    if Path(path).suffix != ".safetensors" or not Path(path).is_file():
        return None
    return _read(path, tensors=False)[1]


def _write(path: str | os.PathLike[str], tensors: Mapping[str, Tensor], header: Mapping[str, Any] | None) -> None:
    # A copy of each: safetensors refuses shared memory and layouts other than row by row.
    plain = {key: tensor.detach().cpu().clone(memory_format=torch.contiguous_format) for key, tensor in tensors.items()}
    metadata = None if header is None else {HEADER: json.dumps(header, default=_jsonable)}
    content = sealed(save(plain, metadata))
    with atomic_write(path) as file:
        file.write(content)


def _jsonable(value: Any) -> Any:
    """Bit generators other than numpy's default keep arrays in their state."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} has no place in a checkpoint: {value!r}.")


def _read(path: str | os.PathLike[str], *, tensors: bool = True) -> tuple[dict[str, Tensor], dict[str, Any] | None]:
    metadata = sealed_metadata(path)
    try:
        body = load_file(path) if tensors else {}
        header = parse_json(metadata[HEADER]) if HEADER in metadata else None
    except (SafetensorError, ValueError, TypeError) as error:
        raise ValueError(
            f"{path} cannot be read as safetensors ({error}); remove it to start again, or fetch it again."
        ) from error
    if header is not None and not isinstance(header, dict):
        raise ValueError(
            f"{path} describes itself with a {type(header).__name__} instead of a JSON object; remove it to start "
            "again, or fetch it again."
        )
    return body, header


def _below(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {key.removeprefix(prefix): tensor for key, tensor in tensors.items() if key.startswith(prefix)}


def _split_optimizer(state: Mapping[str, Any]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors by ``index.key``, and the JSON-ready rest."""
    moments: dict[str, Tensor] = {}
    rest: dict[str, dict[str, Any]] = {}
    for index, values in state["state"].items():
        rest[str(index)] = {}
        for key, value in values.items():
            if isinstance(value, Tensor):
                moments[f"{index}.{key}"] = value
            else:
                rest[str(index)][key] = value
    return moments, {"state": rest, "param_groups": state["param_groups"]}


def _join_optimizer(moments: Mapping[str, Tensor], rest: Mapping[str, Any]) -> dict[str, Any]:
    state: dict[int, dict[str, Any]] = {int(index): dict(values) for index, values in rest["state"].items()}
    for name, tensor in moments.items():
        index, _, key = name.partition(".")
        state[int(index)][key] = tensor
    return {"state": state, "param_groups": rest["param_groups"]}
