"""Images on their way to a network: batches by row, from memory or decoded on demand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from openauc.protocols.sources import Images, LazyImages


class Pixels:
    """uint8 images taken by row as (B, 3, H, W), from memory or decoded on demand; or vectors (B, d).

    Images in memory move to the device once and as a whole; compressed ones stay compressed, and while a batch
    is in use the next one is being decoded.
    """

    def __init__(self, images: Images, device: torch.device) -> None:
        self.device = device
        self.images = images if isinstance(images, LazyImages) else torch.from_numpy(images).to(device)

    def stream(self, batches: Sequence[NDArray[np.int64]]) -> Iterator[Tensor]:
        """Yield the images of each batch of rows."""
        if isinstance(self.images, Tensor):
            for rows in batches:
                yield _channels_first(self.images[torch.from_numpy(rows).to(self.device)])
            return
        with ThreadPoolExecutor(1) as pool:
            tasks = (pool.submit(self.images.__getitem__, rows) for rows in batches)
            last: list[Any] = [None]
            for decoding, _ in pairwise(chain(tasks, last)):  # asks for the next batch before it yields one
                yield _channels_first(torch.from_numpy(decoding.result()).to(self.device))


def _channels_first(pixels: Tensor) -> Tensor:
    return pixels.permute(0, 3, 1, 2).contiguous() if pixels.ndim == 4 else pixels
