"""Folders of real images, and one small training for all tests that need one."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from PIL import Image

from commands.application import SMALL, run
from openauc.protocols import PROTOCOLS


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def own_protocol(tmp_path: Path) -> Path:
    """Folders of digits and the file that makes a protocol of them."""
    digits = PROTOCOLS["digits"].load(0)
    for label, name in enumerate(digits.class_names):
        folder = tmp_path / "images" / name
        folder.mkdir(parents=True)
        for number, pixels in enumerate(digits.train.images[digits.train.labels == label][:20]):
            Image.fromarray(pixels).save(folder / f"{number}.png")
    known, unknown = digits.class_names[:3], digits.class_names[3:]
    split = {"known": known, "unknown": {"near": unknown[:1], "far": unknown[1:]}}
    file = tmp_path / "mine.json"
    file.write_text(json.dumps({"folder": "images", "image_size": 8, "splits": [split]}))
    return file


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, tuple[object, ...], str]:
    """A small training: its folder, its command, and what it said."""
    out = tmp_path_factory.mktemp("runs") / "digits"
    words = ("train", "digits", "--method", "openauc", "--set", "lam=0.2", *SMALL, "--validation", 0.2, "-o", out)
    return out, words, run(*words)
