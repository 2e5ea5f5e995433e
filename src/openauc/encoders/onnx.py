"""A network in an ONNX file, for images or for the tokens of texts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from openauc.encoders.base import Encoder, need, open_session, token_mean
from openauc.encoders.images import as_images, centre_crop

_SIDE = 224
_LONGEST = 512
_NORMALISE = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}  # of ImageNet: most networks expect it
_DTYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(uint8)": np.uint8}


def from_onnx(name: str, model: str, device: str | None, batch_size: int | None) -> Encoder:
    """The first output of an ONNX file, averaged over tokens or positions if it has them.

    Input is either ``pixels`` of shape (B, 3, S, S), or ``input_ids`` with ``attention_mask``, for which the tokenizer
    lies beside the file or in the folder above. Pixels are RGB, in [0, 1], minus ImageNet's mean, over its deviation,
    unless the file's metadata has ``mean`` and ``std``, lists of three; an input of uint8 gets them as they are.
    """
    file = Path(model)
    if not file.is_file():
        raise FileNotFoundError(f"there is no file {file}; onnx: takes the path of a network, as onnx:encoder.onnx.")
    session = open_session(str(file), device)
    inputs = {entry.name: entry for entry in session.get_inputs()}
    if "input_ids" in inputs:
        return _of_texts(name, file, session, list(inputs), batch_size)
    if len(inputs) == 1 and len(next(iter(inputs.values())).shape) == 4:
        return _of_images(name, file, session, batch_size)
    listed = ", ".join(f"{entry.name} {entry.shape}" for entry in inputs.values())
    raise ValueError(f"{file} has the inputs {listed}; expected pixels (B, 3, S, S), or input_ids and attention_mask.")


def _of_images(name: str, file: Path, session: Any, batch_size: int | None) -> Encoder:
    (pixels,) = session.get_inputs()
    batch, channels, height, width = pixels.shape
    sides = {side for side in (height, width) if isinstance(side, int)}
    if (channels not in (3, None) and not isinstance(channels, str)) or len(sides) > 1 or pixels.type not in _DTYPES:
        raise ValueError(f"{file} takes {pixels.type} {pixels.shape}; expected float or uint8 pixels (B, 3, S, S).")
    if isinstance(batch, int):
        if batch != 1:
            raise ValueError(f"{file} takes exactly {batch} images at a time; export it for any number.")
        batch_size = 1
    side, dtype = next(iter(sides), _SIDE), _DTYPES[pixels.type]
    about = session.get_modelmeta().custom_metadata_map
    mean, std = (np.array(json.loads(about.get(key, "null")) or usual) for key, usual in _NORMALISE.items())

    def encode(items: list[Any]) -> Any:
        images = np.stack([centre_crop(image, side) for image in as_images(items)])
        values = images if dtype == np.uint8 else ((images / 255 - mean) / std).astype(dtype)
        found = session.run(None, {pixels.name: np.ascontiguousarray(values.transpose(0, 3, 1, 2))})[0]
        if found.ndim == 4:  # a map (B, D, H, W)
            return found.mean((2, 3))
        return found.mean(1) if found.ndim == 3 else found

    return Encoder(name, "image", encode, batch_size=batch_size, weights=file)


def _of_texts(name: str, file: Path, session: Any, inputs: list[str], batch_size: int | None) -> Encoder:
    transformers = need("transformers", "tokenizers")
    folders = [folder for folder in file.resolve().parents[:2] if (folder / "tokenizer_config.json").is_file()]
    if not folders:
        raise FileNotFoundError(f"there is no tokenizer (tokenizer_config.json, ...) beside {file}, nor one folder up.")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folders[0], local_files_only=True)
    most = min(_LONGEST, tokenizer.model_max_length)

    def encode(texts: list[str]) -> Any:
        tokens = tokenizer(texts, padding=True, truncation=True, max_length=most, return_tensors="np")
        feed = {key: tokens[key].astype(np.int64) for key in inputs}
        found = session.run(None, feed)[0]
        return token_mean(found, tokens["attention_mask"]) if found.ndim == 3 else found

    return Encoder(name, "text", encode, batch_size=batch_size, weights=file)
