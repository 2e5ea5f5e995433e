"""What to train and test: plain data with an identity.

torch is needed only to fill in a method's defaults and to find trials that share a training.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any

from openauc._validation import check_choice, check_fraction
from openauc.features.scores.base import HEAD_NAMES, REJECTORS
from openauc.features.scores.registry import SCORES
from openauc.methods import load_method, method_options, recipe_for
from openauc.protocols import PROTOCOLS, Protocol, get_protocol, is_protocol_file
from openauc.recipe import Recipe

Scalar = str | int | float | bool | None

SETTABLE = ("backbone", "width", "weights", "train_images", "pseudo_unknown", "balanced", "precision", "compile")
"""Fields of a trial that have no option of their own on the command line."""


@dataclass(frozen=True, kw_only=True)
class TrialSpec:
    """Complete description of one training and its test; equal specs give equal metrics wherever they run.

    Parameters
    ----------
    protocol, split
        Which classes are known, see ``openauc list protocols``; or a JSON file of your own.
    method, method_args
        Name of the method and its options; options that are left out keep the method's defaults. On embeddings also
        ``logistic``, ``class_mean`` or ``mlp``, the heads that scikit-learn fits.
    recipe
        How to train; None for a head.
    backbone, width
        Network, and the channels of its first layer (as published if None).
    seed
        Seed of weights, order, augmentation and every draw below.
    train_images
        Train on a random part of this size; None is all.
    weights
        File of pretrained weights to start from.
    validation, pseudo_unknown
        A share of each known class, and a number of whole known classes, held out of training. With
        ``pseudo_unknown`` the trial is scored on what was held out, its held-out classes as unknowns, and the test
        part is not read: options are chosen this way.
    score
        Name in ``SCORES``, for a head also one of ``REJECTORS``; None for the method's own. It is not part of the
        training: one network serves many scores.
    balanced
        Test on as many known as unknown images.
    precision, compile
        Autocast of the training's forward pass, ``fp32``, ``bf16`` or ``fp16``; whether to compile the backbone.
    protocol_hash
        Hash of a protocol's file, so that a changed file is noticed; None for a protocol by name.

    Examples
    --------
    >>> spec = TrialSpec.of("digits", 0, "openauc", method_args={"lam": 1}, epochs=10)
    >>> spec == TrialSpec.of("digits", 0, "openauc", method_args={"lam": 1.0}, epochs=10)
    True
    >>> spec.id
    'digits-0-openauc-s0-...'
    >>> TrialSpec.from_dict(spec.to_dict()) == spec
    True
    """

    protocol: str
    split: int
    method: str
    recipe: Recipe | None = None
    backbone: str | None = None
    method_args: Mapping[str, Scalar] = field(default_factory=dict)
    seed: int = 0
    width: int | None = None
    train_images: int | None = None
    weights: str | None = None
    validation: float = 0.0
    pseudo_unknown: int = 0
    score: str | None = None
    balanced: bool = False
    precision: str = "fp32"
    compile: bool = False
    protocol_hash: str | None = None

    def __post_init__(self) -> None:
        if not is_protocol_file(self.protocol):
            _check_split(self.protocol, PROTOCOLS[check_choice("protocol", self.protocol, PROTOCOLS)], self.split)
        if (self.recipe is None or self.backbone is None) and not self.is_head:
            raise ValueError(f"a trial of {self.method!r} needs a recipe and a backbone; TrialSpec.of fills them in.")
        if self.seed < 0:
            raise ValueError(f"seed is {self.seed}; expected an integer from 0 upwards.")
        for name in ("width", "train_images"):
            if not isinstance(getattr(self, name), int | None):
                raise TypeError(f"{name} is {getattr(self, name)!r}; expected a whole number, or None.")
        check_choice("precision", self.precision, ("fp32", "bf16", "fp16"))
        check_fraction("validation", self.validation, zero=True, one=False)
        for name, value in self.method_args.items():
            if not isinstance(value, str | int | float | bool | None):
                raise TypeError(
                    f"method_args[{name!r}] is {value!r}; a trial is plain data: text, numbers, truth values, None."
                )
        object.__setattr__(self, "method_args", dict(self.method_args))
        if Path(self.id).name != self.id:
            raise ValueError(f"{self.id!r} cannot be the name of a folder; a method's name has no '/'.")

    @classmethod
    def of(
        cls,
        protocol: str,
        split: int,
        method: str,
        *,
        recipe: str | Recipe | None = None,
        epochs: int | None = None,
        backbone: str | None = None,
        score: str | None = None,
        **more: Any,
    ) -> TrialSpec:
        """Spec with the defaults of protocol and method filled in.

        ``recipe`` is the name of one of the protocol's recipes or a recipe, by default the protocol's own or the one
        the method was published with; ``epochs`` scales it; without ``backbone`` it is the papers', without ``width``
        the protocol's. ``more`` are the other fields.
        """
        if is_protocol_file(protocol):
            protocol = str(Path(protocol).resolve())
            more["protocol_hash"] = _hash_of(protocol)
        chosen = get_protocol(protocol)
        _check_split(protocol, chosen, split)
        head = method in HEAD_NAMES
        if score is not None:
            check_choice("score", score, (*SCORES, *(REJECTORS if head else ())))
        if head:
            if not chosen.of_embeddings:
                other = f"{method!r} classifies embeddings, but {protocol!r} is a protocol of images"
                raise ValueError(f"{other}; name one of embeddings, such as 'digits_pixels'.")
            if recipe is not None or epochs is not None:
                raise ValueError(f"{method!r} has no recipe, as scikit-learn fits it; leave out recipe and epochs.")
        else:
            if not isinstance(recipe, Recipe):
                recipe = recipe_for(recipe, protocol, method, epochs=epochs)
            elif epochs is not None:
                raise ValueError("epochs scales a named recipe; a recipe of your own already has its epochs.")
            backbone = backbone or chosen.backbone or load_method(method).default_backbone(recipe.image_size)
        return cls(
            protocol=protocol,
            split=split,
            method=method,
            recipe=recipe,
            backbone=backbone,
            score=score,
            **{"width": chosen.width, **more},
        )

    @property
    def is_head(self) -> bool:
        """Whether scikit-learn fits it, on embeddings, and no network is trained."""
        return self.method in HEAD_NAMES

    @property
    def network_recipe(self) -> Recipe:
        """The recipe of a network; a head has none and raises ValueError."""
        if self.recipe is None:
            raise ValueError(f"{self.id} is a head that scikit-learn fits; it has no recipe and no network.")
        return self.recipe

    @property
    def protocol_name(self) -> str:
        """The protocol's name; for a file its name without folder and suffix."""
        return Path(self.protocol).stem if is_protocol_file(self.protocol) else self.protocol

    @property
    def id(self) -> str:
        """Readable prefix and a hash of everything; the name of the trial's folder."""
        return f"{self.protocol_name}-{self.split}-{self.method}-s{self.seed}-{_digest(_essential(self))}"

    @property
    def training_id(self) -> str:
        """Equal for specs that train the same network, also where one of them spells out a default or a preset."""
        facts = self.training()
        if facts.pop("method_args", None):
            kind, given = load_method(self.method), dict(self.method_args)
            if given.get("preset") in kind.presets:
                given = kind.preset(str(given.pop("preset"))) | given
            defaults = method_options(kind)
            given = {name: value for name, value in given.items() if name not in defaults or value != defaults[name]}
            facts |= {"method_args": given} if given else {}
        return f"{facts['method']}-s{self.seed}-{_digest(facts)}"

    def training(self) -> dict[str, Any]:
        """Everything about the spec that the trained network depends on.

        CIFAR+10 and CIFAR+50 agree in it, because they differ only in unknown classes; so do Softmax and CE+ under one
        recipe, because they differ only in their score.
        """
        facts = _essential(self)
        for name in ("score", "balanced"):
            facts.pop(name, None)
        if not self.is_head:
            facts["method"] = vars(load_method(self.method)).get("trained_as") or self.method
        if self.protocol_hash is None:
            protocol = get_protocol(facts.pop("protocol"))
            facts |= {"source": str(protocol.known_source), "known": protocol.splits[facts.pop("split")].known}
        return facts

    @property
    def tested_on(self) -> tuple[object, ...]:
        """Equal for trials with the same test images."""
        return self.protocol, self.split, self.balanced, self.balanced and self.seed

    def open_protocol(self) -> Protocol:
        """The protocol; raises ValueError if its file has changed since the trial was planned."""
        if self.protocol_hash is not None and _hash_of(self.protocol) != self.protocol_hash:
            changed = f"{self.protocol} has changed since this trial was planned"
            raise ValueError(f"{changed}; undo the change to go on with it, or plan the trial anew, in another folder.")
        return get_protocol(self.protocol)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready mapping of every field; :meth:`from_dict` reads it back to an equal spec."""
        return {**vars(self), "recipe": self.recipe and self.recipe.to_dict()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TrialSpec:
        """Spec from what :meth:`to_dict` wrote; fields that are newer than the file take their defaults."""
        if values["method"] in HEAD_NAMES:  # in older stores heads have a recipe and a backbone that nothing uses
            return cls(**{**values, "recipe": None, "backbone": None})
        return cls(**{**values, "recipe": Recipe(**values["recipe"])})


def _check_split(name: str, protocol: Protocol, split: int) -> None:
    if not 0 <= split < len(protocol.splits):
        raise ValueError(f"{name} has no split {split}; it has 0 to {len(protocol.splits) - 1}.")


def _essential(spec: TrialSpec) -> dict[str, Any]:
    """Fields that are not at their default, so that new fields leave old ids unchanged.

    A protocol's file counts by its content, not by its place.
    """
    facts, recipe = _changed(spec), spec.recipe
    if spec.is_head and spec.protocol in PROTOCOLS:
        # Ids of older stores, where heads had the backbone and recipe of a network.
        facts["backbone"], recipe = spec.method, next(iter(PROTOCOLS[spec.protocol].recipes.values()))
    if recipe is not None:
        facts["recipe"] = _changed(recipe)
    if spec.protocol_hash is not None:
        del facts["protocol"]
    return facts


def _hash_of(file: str) -> str:
    if not Path(file).is_file():
        raise FileNotFoundError(f"there is no protocol file {file}; a trial needs the one it was planned with.")
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16]


def _changed(item: Any) -> dict[str, Any]:
    """Fields of a dataclass that are not at their default."""
    defaults = {f.name: f.default if f.default_factory is MISSING else f.default_factory() for f in fields(item)}
    return {name: getattr(item, name) for name, default in defaults.items() if getattr(item, name) != default}


def _digest(facts: Any) -> str:
    canonical = json.dumps(_canonical(facts), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()[:10]


def _canonical(value: Any) -> Any:
    """The same JSON for numbers that are equal: 1 and 1.0, but not True."""
    if isinstance(value, Mapping):
        return {str(key): _canonical(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_canonical(item) for item in value]
    if isinstance(value, float) and math.isfinite(value) and value == int(value):
        return int(value)
    return value
