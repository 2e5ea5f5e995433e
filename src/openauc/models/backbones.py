"""Backbones by name, other libraries' included, and published weights for them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from openauc._files import sealed_metadata
from openauc._validation import check_choice
from openauc.models.base import Backbone
from openauc.models.mlp import MLP
from openauc.models.resnet import ResNet50
from openauc.models.vgg32 import VGG32, VGG32ABN


class EncoderBackbone(Backbone):
    """A network of another library as a backbone, with a cut point where its feature map is complete (``"map"``).

    One image of zeros, of side ``image_size``, tests whether images fit ``encoder`` and measures ``feature_dim``.
    """

    cut_points = ("input", "map", "features")

    def __init__(self, encoder: nn.Module, image_size: int) -> None:
        super().__init__()
        self.encoder = encoder.float()
        self.eval()
        try:
            with torch.no_grad():
                features = self(torch.zeros(1, 3, image_size, image_size))
        except (RuntimeError, ValueError, TypeError, AttributeError) as error:
            what = f"{type(encoder).__name__} makes no feature map of 3 x {image_size} x {image_size} images ({error})"
            raise ValueError(f"{what}; pass another image_size, or choose an image encoder.") from error
        self.feature_dim = features.shape[1]
        self.train()


class TransformersBackbone(EncoderBackbone):
    """A `transformers` image encoder; its features are the average of its last feature map over positions."""

    def stage(self, name: str, hidden: Tensor) -> Tensor:
        """Run the encoder up to its map, (B, C, H, W) or (B, tokens, C), or average that map."""
        if name == "features":
            return hidden.mean(dim=(2, 3)) if hidden.ndim == 4 else hidden.mean(dim=1)
        # Vision transformers refuse images of another size than they were trained on unless told otherwise.
        accepted = inspect.signature(self.encoder.forward).parameters
        options = {"interpolate_pos_encoding": True} if "interpolate_pos_encoding" in accepted else {}
        outputs = self.encoder(pixel_values=hidden, **options)
        last: Tensor = outputs.feature_maps[-1] if "feature_maps" in outputs else outputs.last_hidden_state
        return last


class TimmBackbone(EncoderBackbone):
    """A `timm` network; its features are the input of its own classifier."""

    def stage(self, name: str, hidden: Tensor) -> Tensor:
        """Run the network up to its map, or pool that map in the network's own way."""
        encoder: Any = self.encoder
        last = name == "features"
        result: Tensor = encoder.forward_head(hidden, pre_logits=True) if last else encoder.forward_features(hidden)
        return result


def load_transformers(name: str) -> nn.Module:
    """Load a pretrained encoder from the Hub or a folder, as AutoBackbone if it is one, else as AutoModel."""
    from transformers import AutoConfig, AutoModel
    from transformers.models.auto.modeling_auto import MODEL_FOR_BACKBONE_MAPPING

    # AutoBackbone.from_pretrained itself asks the Hub even for a folder; the class behind it does not.
    encoder_class: Any = MODEL_FOR_BACKBONE_MAPPING.get(type(AutoConfig.from_pretrained(name)), AutoModel)
    encoder: nn.Module = encoder_class.from_pretrained(name)
    return encoder


def load_timm(name: str) -> nn.Module:
    """Load a pretrained timm network without its classifier."""
    import timm

    network: nn.Module = timm.create_model(name, pretrained=True, num_classes=0)
    return network


ARCHITECTURES: dict[str, type[VGG32] | type[ResNet50] | type[MLP]] = {
    "vgg32": VGG32,
    "vgg32_abn": VGG32ABN,
    "resnet50": ResNet50,
    "mlp": MLP,
}
LIBRARIES: dict[str, tuple[str, Callable[[str], nn.Module], type[EncoderBackbone]]] = {
    "hf": ("transformers", load_transformers, TransformersBackbone),
    "timm": ("timm", load_timm, TimmBackbone),
}
"""By prefix: the package, how it loads a network, and the backbone around it."""
BACKBONES = (*ARCHITECTURES, *(f"{library}:NAME" for library in LIBRARIES))
"""Names that :func:`make_backbone` understands."""

WIDEST = 1024
"""Sixteen times the published width; a larger one is refused as a likely mistake before it fills the memory."""


def make_backbone(
    name: str,
    *,
    width: int | None = None,
    image_size: int = 32,
    num_features: int | None = None,
    generator: torch.Generator | None = None,
) -> Backbone:
    """Build the backbone called `name`, one of `BACKBONES`.

    Parameters
    ----------
    name : str
        One of our architectures, freshly initialised, or ``hf:NAME`` / ``timm:NAME``, pretrained.
    width : int, optional
        Channels of the first layer; as published if left out. Pretrained networks have theirs already.
    image_size : int
        Side of the images to come. Our architectures take any side; a pretrained network is tested with it.
    num_features : int, optional
        Length of the embeddings to come, for ``mlp``, which takes no images.
    generator : torch.Generator, optional
        Source of the initial weights; PyTorch's default generator if left out.

    Examples
    --------
    >>> make_backbone("vgg32", width=16).feature_dim
    32
    """
    library, _, model = name.partition(":")
    if library in LIBRARIES and model:
        if width is not None:
            raise ValueError(f"width is {width}, but {name!r} is pretrained and has its own; leave width out.")
        package, load, backbone = LIBRARIES[library]
        try:
            encoder = load(model)
        except ImportError as error:
            raise ImportError(f"backbone {name!r} needs `pip install {package}`.") from error
        except (OSError, ValueError, RuntimeError) as error:
            folder = ", or a folder written by its save_pretrained()" if library == "hf" else ""
            raise ValueError(
                f"backbone {name!r} cannot be loaded ({error}); pass the name of an image model of {package}{folder}."
            ) from error
        return backbone(encoder, image_size)
    check_choice("backbone", name, BACKBONES)
    if width is not None and not 1 <= width <= WIDEST:
        raise ValueError(f"width is {width}; expected 1 to {WIDEST} channels of the first layer, 64 as published.")
    options: dict[str, Any] = {} if width is None else {"width": width}
    if ARCHITECTURES[name] is MLP:
        if num_features is None:
            raise ValueError("backbone is 'mlp', which takes embeddings; pass their length as num_features.")
        options["in_features"] = num_features
    return ARCHITECTURES[name](**options, generator=generator)


class LoadReport(NamedTuple):
    """The tensors of a weights file, by the module's names and by what happened to them.

    ``ignored`` has the file's own names of tensors without a place in the module, such as MoCo's second encoder.
    """

    loaded: tuple[str, ...]
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    mismatched: tuple[str, ...]
    ignored: tuple[str, ...]


def load_weights(module: nn.Module, path: str | Path, *, allow_missing_head: bool = False) -> LoadReport:
    """Load published or own weights into a backbone or a method.

    If a tensor is missing, left over or of another shape, ValueError is raised and nothing is changed.

    Parameters
    ----------
    module : nn.Module
        A backbone, which ignores the file's head, or a method, whose head the published ``fc`` becomes.
    path : str or Path
        A ``.safetensors``, or a ``.pth``, ``.pt``, ``.bin`` or ``.tar`` that `torch.load` reads with
        ``weights_only``: tensors by name, also under ``state_dict``, also with the prefixes ``module.``,
        ``backbone.`` and MoCo's ``encoder_q.``.
    allow_missing_head : bool
        Whether a method may keep its own tensors outside the backbone (head, points, ...) where the file has
        none that fit, as with encoders pretrained on another task.
    """
    path, own = Path(path), module.state_dict()
    has_head = all(isinstance(getattr(module, part, None), nn.Module) for part in ("backbone", "head"))
    tensors = _read_tensors(path)
    targets = _targets(tensors, own, has_head=has_head)
    placed = {target: tensors[key] for key, target in targets.items()}
    fitting = {key: tensor for key, tensor in placed.items() if key in own and tensor.shape == own[key].shape}
    report = LoadReport(
        loaded=tuple(fitting),
        # Files from before BatchNorm counted batches are complete.
        missing=tuple(key for key in own if key not in placed and not key.endswith("num_batches_tracked")),
        unexpected=tuple(key for key in placed if key not in own),
        mismatched=tuple(key for key in placed if key in own and key not in fitting),
        ignored=tuple(key for key in tensors if key not in targets),
    )

    shapes = {key: f" {tuple(placed[key].shape)} for {tuple(own[key].shape)}" for key in report.mismatched}
    found = {"missing": report.missing, "unexpected": report.unexpected, "of another shape": report.mismatched}
    complaints = []
    for what, keys in found.items():
        if allow_missing_head and has_head:  # only the backbone has to fit
            keys = tuple(k for k in keys if k.startswith("backbone.") or (k not in own and not k.startswith("head.")))
        if keys:
            first = ", ".join(key + shapes.get(key, "") for key in keys[:3])
            complaints.append(f"{len(keys)} {what} ({first}{', ...' if len(keys) > 3 else ''})")
    if complaints:
        remedy = "Check backbone, width, number of classes; allow_missing_head=True checks only the backbone"
        raise ValueError(f"{path.name} does not fit {type(module).__name__}: {'; '.join(complaints)}. {remedy}.")
    module.load_state_dict(fitting, strict=False)
    return report


def _read_tensors(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise ValueError(f"there is no weights file {path}; check the path.")
    if path.suffix not in (".safetensors", ".pth", ".pt", ".bin", ".tar"):
        raise ValueError(f"{path.name} is not a weights file; pass a .safetensors, .pth, .pt, .bin or .tar one.")
    if safe := path.suffix == ".safetensors":
        sealed_metadata(path)
    try:
        content = load_file(path) if safe else torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # each format has its own errors, with one meaning here
        unread = f"{path.name} cannot be read as tensors ({type(error).__name__})"
        raise ValueError(f"{unread}; pass a file of nothing but tensors by name, best as .safetensors.") from error
    content = content.get("state_dict", content) if isinstance(content, dict) else content
    if not isinstance(content, dict) or not all(isinstance(value, Tensor) for value in content.values()):
        raise ValueError(f"{path.name} holds something else than tensors by name; save the model's state_dict() alone.")
    return content


def _targets(tensors: Mapping[str, Tensor], own: Mapping[str, Tensor], *, has_head: bool) -> dict[str, str]:
    """The module's name of each tensor of the file; tensors without a place in the module are left out."""
    names = {key: key.removeprefix("module.") for key in tensors}
    for container in ("encoder_q.", "backbone."):
        inside = {key: name for key, name in names.items() if name.startswith(container)}
        # Beside the wanted network a MoCo file holds a second one, a method's file its head.
        if inside and not any(key.startswith(container) for key in own):
            names = {key: name.removeprefix(container) for key, name in inside.items()}
    found = {}
    for key, name in names.items():
        if name in own or f"backbone.{name}" in own:
            found[key] = name if name in own else f"backbone.{name}"
        elif not name.startswith("bn10.") and (has_head or not name.startswith(("fc.", "head."))):
            found[key] = f"head.{name.removeprefix('fc.')}" if name.startswith("fc.") else name
    return found
