"""What an encoder is, what it is given, and what to install where it is missing. No torch before one is made."""

from __future__ import annotations

import importlib
import io
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from openauc.protocols.sources import IMAGE_SUFFIXES, EncodedImage, readable_suffixes

Kind = Literal["text", "image"]
Features = NDArray[np.float32]

CHUNK: dict[Kind, int] = {"text": 1024, "image": 256}
"""Items to encode between two savings: a few seconds of one core, which is what a stopped run loses at most."""
_BATCH_SIZE = 32


class Encoder:
    """A frozen network that makes features of texts or of images; made by :func:`~openauc.encoders.get_encoder`.

    Parameters
    ----------
    name
        What it is called.
    kind
        Whether it takes ``"text"`` (strings) or an ``"image"``: a uint8 array (H, W, 3) or (H, W), an image of Pillow,
        or the path of a file.
    encode
        Features (n, D) of a few items.
    batch_size
        How many items are a few.
    weights
        File that it was read from, if it may change under its name.

    Attributes
    ----------
    width : int
        Number D of features, found by encoding one item.
    about : dict
        What tells this encoder from any other. Batch size and device are no part of it: they change roundings only.
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
        probe = "text" if kind == "text" else np.zeros((64, 64, 3), np.uint8)
        found = encode([probe])
        if found.ndim != 2:
            raise ValueError(f"{name} makes an array of shape {found.shape} of one item; expected (1, features).")
        self.width: int = found.shape[1]
        self.about: dict[str, Any] = {"encoder": name, "width": self.width}
        if weights is not None:
            self.about |= {"weights": (weights.stat().st_size, weights.stat().st_mtime_ns)}

    def __call__(self, items: Sequence[Any]) -> Features:
        """Features (n, width) of n items, in their order."""
        order: Sequence[int] = range(len(items))
        if self.kind == "text":
            check_texts(items)
            # Neighbours of one length need no padding.
            order = sorted(order, key=lambda row: len(items[row]))
        features = np.empty((len(items), self.width), np.float32)
        for start in range(0, len(items), self.batch_size):
            rows = order[start : start + self.batch_size]
            features[rows] = self._encode([items[row] for row in rows])
        return features


def check_texts(items: Sequence[Any], where: str = "texts") -> None:
    """Raise at the first item that is not a string, or an empty one."""
    for _, error in bad_texts(items, where):
        raise error


def bad_texts(items: Sequence[Any], where: str) -> Iterator[tuple[int, ValueError | TypeError]]:
    """Each item that is not a string, or an empty one: its row, and what is wrong."""
    for row, item in enumerate(items):
        if item is not None and not isinstance(item, str):
            yield row, TypeError(f"{where}: row {row} is {type(item).__name__}; expected strings.")
        elif not item or item.isspace():
            yield row, ValueError(f"{where}: row {row} is empty (row 0 is the first); give it a text or remove it.")


def bad_images(items: Sequence[Any]) -> Iterator[tuple[int, ValueError | OSError]]:
    """Each image that cannot be read: its row, and what is wrong."""
    for row, item in enumerate(items):
        try:
            as_images([item])
        except (ValueError, OSError) as error:
            yield row, error


def as_images(items: Sequence[Any]) -> list[Any]:
    """Pillow's RGB images of arrays, images, paths or compressed images, each in its own size."""
    need("PIL", "images")
    readable_suffixes()  # makes Pillow ready for all of them
    if len(items) == 1:
        return [_as_image(items[0])]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(_as_image, items))


def _as_image(item: Any) -> Any:
    from PIL import Image

    if isinstance(item, Image.Image):
        return _upright(item)
    if isinstance(item, np.ndarray):
        if item.dtype != np.uint8 or item.shape[2:] not in ((), (3,)) or item.ndim not in (2, 3):
            raise TypeError(f"an image is {item.dtype} of shape {item.shape}; expected uint8, (H, W, 3) or (H, W).")
        return Image.fromarray(item).convert("RGB")
    if isinstance(item, str | Path):
        item = EncodedImage(Path(item))
    if not isinstance(item, EncodedImage):
        raise TypeError(f"an image is {type(item).__name__}; expected an array, an image of Pillow or a path.")
    if item.content == b"":
        raise ValueError(f"{item} has no image bytes; remove the row or put the image in.")
    try:
        with Image.open(item.file if item.content is None else io.BytesIO(item.content)) as image:
            return _upright(image)
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no image {item}.") from None
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        foreign = item.content is None and item.file.suffix.lower() in IMAGE_SUFFIXES - readable_suffixes()
        advice = (
            "convert it to .png, or pip install pillow-heif for .heic" if foreign else "fetch it again or remove it"
        )
        raise ValueError(f"{item} holds no readable image ({error}); {advice}.") from error


def _upright(image: Any) -> Any:
    """RGB, turned as the camera was held (EXIF)."""
    from PIL import ImageOps

    # Broken EXIF says nothing about the pixels; broken pixels fail below.
    with suppress(Exception):
        image = ImageOps.exif_transpose(image)
    return image.convert("RGB")


def centre_crop(image: Any, size: int) -> NDArray[np.uint8]:
    """Pixels (size, size, 3) of the middle of an image whose short side was resized to size / 0.875."""
    from PIL import Image

    scale = round(size / 0.875) / min(image.size)
    width, height = (max(size, round(side * scale)) for side in image.size)
    left, top = (width - size) // 2, (height - size) // 2
    resized = image.resize((width, height), Image.Resampling.BICUBIC)
    return np.asarray(resized.crop((left, top, left + size, top + size)))


def token_mean(hidden: Any, mask: Any) -> Any:
    """Mean over the tokens that are no padding: (B, T, D) and (B, T), of numpy or torch, to (B, D)."""
    return (hidden * mask[:, :, None]).sum(1) / mask.sum(1)[:, None]


def need(module: str, what: str, install: str = "'openauc[encode]'") -> Any:
    """The module, or what to install for it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f"{what} need {module.partition('.')[0]} ({error}): pip install {install}.") from error


def choose_device(device: str | None) -> Any:
    """The torch device of that name; without one, the fastest there is."""
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
