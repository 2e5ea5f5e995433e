"""Batches of images: the same pixels from memory and from files, in the order asked for, in either layout."""

import numpy as np
import pytest
import torch
from PIL import Image

from openauc.protocols import LazyImages
from openauc.protocols.sources import EncodedImage
from openauc.training.pixels import Pixels

CPU = torch.device("cpu")


@pytest.fixture
def lazy(tmp_path):
    rng = np.random.default_rng(0)
    for number in range(7):
        Image.fromarray(rng.integers(256, size=(6, 6, 3), dtype=np.uint8)).save(tmp_path / f"{number}.png")
    return LazyImages([EncodedImage(tmp_path / f"{number}.png") for number in range(7)], 6)


@pytest.mark.parametrize("compressed", [False, True])
def test_batches_are_the_rows_asked_for_channels_first(lazy, compressed):
    array = lazy[:]
    batches = [np.array([3, 0]), np.array([6]), np.array([1, 1, 5])]
    found = list(Pixels(lazy if compressed else array, CPU).stream(batches))
    assert len(found) == 3
    for pixels, rows in zip(found, batches, strict=True):
        assert (pixels.dtype, pixels.is_contiguous()) == (torch.uint8, True)
        np.testing.assert_array_equal(pixels.numpy(), array[rows].transpose(0, 3, 1, 2))


@pytest.mark.parametrize("compressed", [False, True])
def test_no_batch_no_image(lazy, compressed):
    assert list(Pixels(lazy if compressed else lazy[:], CPU).stream([])) == []


def test_while_a_batch_is_in_use_only_the_next_one_is_decoded(lazy):
    asked = []

    class Watched(LazyImages):
        def __getitem__(self, rows):
            asked.append(rows.tolist())
            return super().__getitem__(rows)

    stream = Pixels(Watched(lazy.encoded, 6), CPU).stream([np.array([row]) for row in range(7)])
    next(stream)
    assert asked in ([[0]], [[0], [1]])  # the second may be under way
    next(stream)
    assert len(asked) in (2, 3)
    stream.close()


def test_an_image_that_cannot_be_read_says_so_where_it_is_used(lazy, tmp_path):
    (tmp_path / "3.png").write_bytes(b"nothing")
    stream = Pixels(lazy, CPU).stream([np.array([row]) for row in range(7)])
    assert len([next(stream) for _ in range(3)]) == 3
    with pytest.raises(ValueError, match=r"3\.png holds no readable image"):
        next(stream)
