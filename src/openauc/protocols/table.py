"""The protocols by name. A new one is one more entry."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import resources
from typing import Any

from openauc._validation import check_choice
from openauc.protocols.base import Protocol, Sizes, Split
from openauc.protocols.files import is_protocol_file, read_protocol
from openauc.recipe import Recipe, published_recipes

_LEGACY = "five class splits of ARPL (Chen et al., 2021), used by Vaze et al. (2022) and Wang et al. (2022)"
_FINE_GRAINED = "Semantic Shift Benchmark (Vaze et al., 2022), unknown classes easy, medium or hard"


def _entries(file: str) -> list[dict[str, Any]]:
    text = resources.files("openauc.protocols").joinpath(f"data/{file}.json").read_text(encoding="utf-8")
    entries: list[dict[str, Any]] = json.loads(text)["splits"]
    return entries


def _splits(file: str) -> tuple[Split, ...]:
    """Splits of `data/<file>.json`."""
    return tuple(Split.of(entry["known"], entry["unknown"]) for entry in _entries(file))


def _sizes(file: str) -> tuple[Sizes, ...]:
    return tuple(Sizes(**entry["sizes"]) for entry in _entries(file))


def _recipes(
    image_size: int, *, plain: Mapping[str, Any] | None = None, plus: Mapping[str, Any] | None = None
) -> dict[str, Recipe]:
    """The published recipes with a data set's own rows."""
    found = published_recipes(image_size)
    return {"plain": found["plain"].changed(**plain or {}), "plus": found["plus"].changed(**plus or {})}


def _digits_recipes() -> dict[str, Recipe]:
    """Those of MNIST, shortened, at 16 pixels, which costs a quarter of 32 and still leaves a 2 x 2 map at the end.

    ``small`` was chosen on held-out known classes of splits 0 to 2, two seeds, with GCPL, Softmax and OpenAUC: 60
    epochs and width 8 were as good as any of the eleven settings tried, and the cheapest of those (the worst single
    training of GCPL had 93 instead of 72 after 30 epochs).
    """
    rows = {"epochs": 60, "batch_size": 64, "warmup_epochs": 1, "rand_augment_m": 8, "rand_augment_ops": "digits"}
    found = _recipes(16, plain={"epochs": 30, "augmentation": "none"}, plus=rows)
    small = found["plain"].scaled(60).changed(schedule="cosine_restarts", milestones=())
    return {"small": small, **found}


PROTOCOLS: dict[str, Protocol] = {
    "digits": Protocol(
        known_source="digits",
        unknown_source="digits",
        splits=_splits("mnist"),
        image_size=8,
        images_per_class=120,
        recipes=_digits_recipes(),
        default_recipe="small",
        because="the published recipes suit neither 8-pixel images nor a few hundred of them",
        width=8,
        reference="embedded 8 x 8 UCI digits (Alpaydin and Kaynak, 1998) with the class splits of MNIST",
    ),
    "mnist": Protocol(
        known_source="mnist",
        unknown_source="mnist",
        splits=_splits("mnist"),
        sizes=_sizes("mnist"),
        image_size=32,
        recipes=_recipes(32, plain={"augmentation": "none"}, plus={"rand_augment_m": 8, "rand_augment_ops": "digits"}),
        reference=_LEGACY,
    ),
    "svhn": Protocol(
        known_source="svhn",
        unknown_source="svhn",
        splits=_splits("svhn"),
        sizes=_sizes("svhn"),
        image_size=32,
        recipes=_recipes(32, plus={"rand_augment_m": 18, "rand_augment_ops": "digits"}),
        reference=_LEGACY,
    ),
    "cifar10": Protocol(
        known_source="cifar10",
        unknown_source="cifar10",
        splits=_splits("cifar10"),
        sizes=_sizes("cifar10"),
        image_size=32,
        reference=_LEGACY,
    ),
    "cifar+10": Protocol(
        known_source="cifar10",
        unknown_source="cifar100",
        splits=_splits("cifar_plus_10"),
        sizes=_sizes("cifar_plus_10"),
        image_size=32,
        reference=_LEGACY,
    ),
    "cifar+50": Protocol(
        known_source="cifar10",
        unknown_source="cifar100",
        splits=_splits("cifar_plus_50"),
        sizes=_sizes("cifar_plus_50"),
        image_size=32,
        reference=_LEGACY,
    ),
    "tinyimagenet": Protocol(
        known_source="tiny_imagenet",
        unknown_source="tiny_imagenet",
        splits=_splits("tinyimagenet"),
        sizes=_sizes("tinyimagenet"),
        image_size=64,
        recipes=_recipes(
            64,
            plain={"optimizer": "adam", "learning_rate": 0.001, "weight_decay": 0.0},
            plus={
                "optimizer": "adam",
                "learning_rate": 0.01,
                "weight_decay": 0.0,
                "rand_augment_m": 9,
                "label_smoothing": 0.9,
            },
        ),
        reference=_LEGACY,
    ),
    "cub": Protocol(
        known_source="cub",
        unknown_source="cub",
        splits=_splits("cub"),
        image_size=448,
        images_per_class=30,
        recipes=_recipes(448, plus={"rand_augment_m": 30, "label_smoothing": 0.3}),
        reference=_FINE_GRAINED,
    ),
    "aircraft": Protocol(
        known_source="aircraft",
        unknown_source="aircraft",
        splits=_splits("aircraft"),
        image_size=448,
        images_per_class=67,
        recipes=_recipes(448, plus={"rand_augment_m": 15, "label_smoothing": 0.2}),
        reference=_FINE_GRAINED,
    ),
}
"""Protocols by name, as `openauc list protocols` prints them."""


def get_protocol(protocol: str | Protocol) -> Protocol:
    """Return the protocol of that name, of that `.json` file (see `read_protocol`), or the given protocol itself.

    >>> get_protocol("cifar+10").duplicate_splits()
    ((1, 2),)
    """
    if isinstance(protocol, Protocol):
        return protocol
    if is_protocol_file(protocol):
        return read_protocol(protocol)
    return PROTOCOLS[check_choice("protocol", protocol, PROTOCOLS)]
