"""Small Parquet files and folders of images, written as the Hub and users write them."""

import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
MIRROR = REPOSITORY / "../shared/data"


@pytest.fixture(autouse=True)
def _no_other_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs the tests may have data of their own."""
    monkeypatch.delenv("OPENAUC_DATA", raising=False)


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The Hub's client without network and without anything in its cache."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))


@pytest.fixture
def mirror() -> Path:
    if not MIRROR.is_dir():
        pytest.skip("there is no local mirror of the data sets")
    return MIRROR


def png(value: int, *, size: tuple[int, int] = (28, 28), mode: str = "L") -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    colour: Any = value if mode == "L" else (value, 0, 255 - value)
    Image.new(mode, size, colour).save(buffer, "PNG")
    return buffer.getvalue()


WriteParquet = Callable[..., Path]


@pytest.fixture
def write_parquet(tmp_path: Path) -> WriteParquet:
    """Write `<tmp_path>/<name>`; an image cell is what is given, grey `row` by default."""

    def write(
        name: str,
        labels: Sequence[int | None],
        *,
        contents: Sequence[bytes | None] | None = None,
        columns: tuple[str, str] = ("image", "label"),
        class_names: Sequence[str] | None = None,
    ) -> Path:
        import pyarrow as pa
        import pyarrow.parquet as pq

        cells = [png(row % 256) for row in range(len(labels))] if contents is None else contents
        image_type = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
        table = pa.table(
            {
                columns[0]: pa.array([{"bytes": cell, "path": None} for cell in cells], image_type),
                columns[1]: pa.array(labels, pa.int64()),
            }
        )
        if class_names is not None:
            features = {columns[1]: {"names": list(class_names), "_type": "ClassLabel"}}
            described = {"huggingface": json.dumps({"info": {"features": features}})}
            table = table.replace_schema_metadata(described)
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, file)
        return file

    return write


@pytest.fixture
def image_folder(tmp_path: Path) -> Path:
    """Ten 6 x 4 images in each of four class folders; the red channel holds the class and the image."""
    for label, name in enumerate(["ant", "bee", "cat", "dog"]):
        (tmp_path / "zoo" / name).mkdir(parents=True)
        for row in range(10):
            suffix = ".PNG" if row % 2 else ".png"
            content = png(10 * label + row, size=(6, 4), mode="RGB")
            (tmp_path / "zoo" / name / f"{row:02d}{suffix}").write_bytes(content)
    return tmp_path / "zoo"


def red(images: Any) -> list[int]:
    """The red value of the first pixel of each image."""
    return [int(value) for value in np.asarray(images[:])[:, 0, 0, 0]]
