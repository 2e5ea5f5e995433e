"""What an encoder is, and what to install if its library is missing. Torch is imported when an encoder is made."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Kind = Literal["text", "image"]
Features = NDArray[np.float32]

CHUNK: dict[Kind, int] = {"text": 1024, "image": 256}
"""Items to encode between two saves: a few seconds of one core."""
_BATCH_SIZE = 32


class Encoder:
    """A frozen network that makes features of texts or of images; made by :func:`~openauc.encoders.get_encoder`.

    Parameters
    ----------
    name
        Name of the encoder.
    kind
        Whether it takes ``"text"`` (strings) or an ``"image"``: a uint8 array (H, W, 3) or (H, W), a Pillow image, or
        the path of a file.
    encode
        Function from one batch of items to their features (n, D).
    batch_size
        Number of items in a batch.
    weights
        File that it was read from, if the content may change under the same name.

    Attributes
    ----------
    width : int
        Number D of features, found by encoding one item.
    about : dict
        What identifies this encoder. Batch size and device are not part of it: they change rounding only.
    """

    def __init__(
        self,
        name: str,
        kind: Kind,
        encode: Callable[[list[Any]], NDArray[Any]],
        *,
        batch_size: int | None = None,
        weights: Path | None = None,
    ) -> None:
        self.name = name
        self.kind: Kind = kind
        self.batch_size = _BATCH_SIZE if batch_size is None else batch_size
        if self.batch_size < 1:
            raise ValueError(f"batch_size is {batch_size}; pass a positive number.")
        self._encode = encode
        found = encode(["text" if kind == "text" else np.zeros((64, 64, 3), np.uint8)])
        if found.ndim != 2:
            raise ValueError(f"{name} makes an array of shape {found.shape} of one item; expected (1, features).")
        self.width: int = found.shape[1]
        self.about: dict[str, Any] = {"encoder": name, "width": self.width}
        if weights is not None:
            self.about["weights"] = (weights.stat().st_size, weights.stat().st_mtime_ns)

    def __call__(self, items: Sequence[Any]) -> Features:
        """Features (n, width) of n items, in their order."""
        order: Sequence[int] = range(len(items))
        if self.kind == "text":
            for _, error in bad_texts(items, "texts"):
                raise error
            order = sorted(order, key=lambda row: len(items[row]))  # texts of one length need no padding
        features = np.empty((len(items), self.width), np.float32)
        for start in range(0, len(items), self.batch_size):
            rows = order[start : start + self.batch_size]
            features[rows] = self._encode([items[row] for row in rows])
        return features


def bad_texts(items: Sequence[Any], where: str) -> Iterator[tuple[int, ValueError | TypeError]]:
    """Row and error of each item that is not a string, or is an empty one."""
    for row, item in enumerate(items):
        if item is not None and not isinstance(item, str):
            yield row, TypeError(f"{where}: row {row} is {type(item).__name__}; expected strings.")
        elif not item or item.isspace():
            yield row, ValueError(f"{where}: row {row} is empty (row 0 is the first); give it a text or remove it.")


def token_mean(hidden: Any, mask: Any) -> Any:
    """Mean over the tokens that are not padding: (B, T, D) and (B, T), of numpy or torch, to (B, D)."""
    return (hidden * mask[:, :, None]).sum(1) / mask.sum(1)[:, None]


def need(module: str, what: str, install: str = "'openauc[encode]'") -> Any:
    """The module, or an error that says what to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f"{what} need {module.partition('.')[0]} ({error}): pip install {install}.") from error


def choose_device(device: str | None) -> Any:
    """The torch device of that name, or the fastest one."""
    torch = need("torch", "encoders")
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        chosen = torch.device(device)
        torch.empty(0, device=chosen)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"device is {device!r}, which torch does not have here ({reason}); leave it out.") from error
    return chosen


def open_session(model: str | bytes, device: str | None = None) -> Any:
    """The ONNX network of a file or of its content, with as many threads as OMP_NUM_THREADS says."""
    onnxruntime = need("onnxruntime", "ONNX networks")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = int(os.environ.get("OMP_NUM_THREADS", 0))
    options.log_severity_level = 3
    wanted = ("CPUExecutionProvider",) if device == "cpu" else ("CUDAExecutionProvider", "CPUExecutionProvider")
    try:
        providers = [provider for provider in wanted if provider in onnxruntime.get_available_providers()]
        return onnxruntime.InferenceSession(model, options, providers=providers)
    except Exception as error:  # the library's errors have no common base
        reason = str(error).partition("\n")[0]
        raise ValueError(
            f"{model if isinstance(model, str) else 'this'} is not a network that onnxruntime can run ({reason})."
        ) from error
