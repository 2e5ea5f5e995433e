"""The class of all encoders, and how they read images. Torch is imported when an encoder is made."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from openauc._validation import import_extra
from openauc.protocols.sources import EncodedImage, readable_suffixes

Kind = Literal["text", "image"]
Features = NDArray[np.float32]

need = partial(import_extra, install="'openauc[encode]'")
CHUNK: dict[Kind, int] = {"text": 1024, "image": 256}  # items between two saves: a few seconds of one core


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
        self.batch_size = 32 if batch_size is None else batch_size
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


def as_images(items: Sequence[Any]) -> list[Any]:
    """RGB images of Pillow, each in its own size, of arrays, Pillow images, paths or compressed images."""
    readable_suffixes()  # lets Pillow read all of them
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(_as_image, items))


def _as_image(item: Any) -> Any:
    pillow = need("PIL.Image", "an image")
    if isinstance(item, pillow.Image):
        return _upright(item)
    if isinstance(item, np.ndarray):
        if item.dtype != np.uint8 or item.shape[2:] not in ((), (3,)) or item.ndim not in (2, 3):
            raise TypeError(f"an image is {item.dtype} of shape {item.shape}; expected uint8, (H, W, 3) or (H, W).")
        return pillow.fromarray(item).convert("RGB")
    if isinstance(item, str | Path):
        item = EncodedImage(Path(item))
    if not isinstance(item, EncodedImage):
        raise TypeError(f"an image is {type(item).__name__}; expected an array, a Pillow image or a path.")
    return item.read(_upright)


def _upright(image: Any) -> Any:
    """RGB, turned as the camera was held (EXIF)."""
    from PIL import ImageOps

    # Broken EXIF does not mean broken pixels, which fail below.
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


def choose_device(device: str | None) -> Any:
    """The torch device of that name, or the fastest one."""
    torch = need("torch", "an encoder")
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        chosen = torch.device(device)
        torch.empty(0, device=chosen)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"device is {device!r}, which torch does not have here ({reason}); leave it out.") from error
    return chosen
