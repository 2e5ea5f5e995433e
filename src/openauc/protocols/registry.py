"""The protocols by name. A new protocol is one more entry."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

import numpy as np

from openauc._validation import check_choice
from openauc.protocols.base import Protocol, Sizes, Split
from openauc.protocols.embeddings import EmbeddingSource, PixelSource
from openauc.protocols.files import is_protocol_file, read_protocol
from openauc.protocols.sources import Source
from openauc.recipe import Recipe, published_recipes


def _entries(file: str) -> Any:
    return json.loads((resources.files("openauc.protocols") / f"data/{file}.json").read_bytes())["splits"]


def _splits(file: str) -> tuple[Split, ...]:
    return tuple(Split.of(entry["known"], entry["unknown"]) for entry in _entries(file))


def _recipes(image_size: int, **changes: Mapping[str, Any]) -> dict[str, Recipe]:
    """The published recipes, ``plain`` and ``plus``, with a data set's changes to each."""
    return {name: recipe.changed(**changes.get(name, {})) for name, recipe in published_recipes(image_size).items()}


def _digits_recipes() -> dict[str, Recipe]:
    """Shortened recipes of MNIST at 16 pixels, which cost a quarter of 32 and still leave a 2 x 2 map at the end.

    ``small`` was chosen among sixteen settings on held-out known classes: first length and width, with GCPL, Softmax
    and OpenAUC; then rate, decay and optimiser, with the six trainings that differ, because Acc+AUC stayed at 88.5 on
    the test part of split 3. Means of five splits, decay 0.005 against 0.0001: GCPL 96.1 and 94.2, Acc+AUC 92.6 and
    92.0, OpenAUC 92.9 and 91.5.
    """
    rows = {"epochs": 60, "batch_size": 64, "warmup_epochs": 1, "rand_augment_m": 8, "rand_augment_ops": "digits"}
    found = _recipes(16, plain={"epochs": 30, "augmentation": "none"}, plus=rows)
    small = found["plain"].scaled(60).changed(schedule="cosine_restarts", milestones=(), weight_decay=0.005)
    return {"small": small, **found}


def _paper(file: str, source: str, *, unknown: str | None = None, size: int = 32, **changes: Any) -> Protocol:
    """One of the papers' six data sets, with its changes to the published recipes."""
    return Protocol(
        known_source=source,
        unknown_source=unknown or source,
        splits=_splits(file),
        sizes=tuple(Sizes(**entry["sizes"]) for entry in _entries(file)),
        image_size=size,
        recipes=_recipes(size, **changes),
        reference="five class splits of ARPL (Chen et al., 2021), used by Vaze et al. (2022) and Wang et al. (2022)",
    )


def _fine_grained(source: str, images_per_class: int, **plus: Any) -> Protocol:
    return Protocol(
        known_source=source,
        unknown_source=source,
        splits=_splits(source),
        image_size=448,
        images_per_class=images_per_class,
        recipes=_recipes(448, plus=plus),
        reference="Semantic Shift Benchmark (Vaze et al., 2022), unknown classes easy, medium or hard",
    )


def _on_features(
    source: EmbeddingSource | PixelSource, splits: Sequence[Split], reference: str, unknown: Source | None = None
) -> Protocol:
    """A protocol of embeddings, and a small network on them for the methods that train one.

    Its learning rate was chosen among 0.001, 0.003 and 0.01 on held-out classes of two splits of the digits.
    """
    head = Recipe(
        epochs=30,
        batch_size=128,
        learning_rate=0.003,
        optimizer="adam",
        schedule="cosine_restarts",
        milestones=(),
        augmentation="none",
        image_size=source.width,  # unused; the ids of trials hold it
    )
    return Protocol(
        known_source=source,
        unknown_source=unknown or source,
        splits=tuple(splits),
        num_features=source.width,
        recipes={"head": head},
        default_recipe="head",
        because="a head on frozen features trains in seconds",
        backbone="mlp",
        reference=reference,
    )


def _intents(source: EmbeddingSource, n_classes: int, percent: int) -> Protocol:
    """Ten splits; each draws the known share of the intents at random, as in TEXTOIR (Zhang et al., 2021)."""
    outside = () if source.outside is None else (n_classes,)
    count = round(n_classes * percent / 100)
    drawn = [tuple(np.random.default_rng(split).permutation(n_classes).tolist()) for split in range(10)]
    splits = [Split(order[:count], order[count:] + outside) for order in drawn]
    return _on_features(source, splits, f"{percent} % of the intents, drawn at random, as TEXTOIR does")


_CLINC = EmbeddingSource(name="clinc150", encoder="minilm", width=384, test=("test", "oos_test"), outside="oos")
_BANKING = EmbeddingSource(name="banking77", encoder="minilm", width=384)
_LITE0 = {
    name: EmbeddingSource(name=name, encoder="efficientnet_lite0", width=1280) for name in ("cifar10", "cifar100")
}
_CUB = EmbeddingSource(name="cub", encoder="efficientnet_lite2", width=1280)

_ADAM = {"optimizer": "adam", "weight_decay": 0.0}

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
    "mnist": _paper(
        "mnist", "mnist", plain={"augmentation": "none"}, plus={"rand_augment_m": 8, "rand_augment_ops": "digits"}
    ),
    "svhn": _paper("svhn", "svhn", plus={"rand_augment_m": 18, "rand_augment_ops": "digits"}),
    "cifar10": _paper("cifar10", "cifar10"),
    "cifar+10": _paper("cifar_plus_10", "cifar10", unknown="cifar100"),
    "cifar+50": _paper("cifar_plus_50", "cifar10", unknown="cifar100"),
    "tinyimagenet": _paper(
        "tinyimagenet",
        "tiny_imagenet",
        size=64,
        plain={**_ADAM, "learning_rate": 0.001},
        plus={**_ADAM, "learning_rate": 0.01, "rand_augment_m": 9, "label_smoothing": 0.9},
    ),
    "cub": _fine_grained("cub", 30, rand_augment_m=30, label_smoothing=0.3),
    "aircraft": _fine_grained("aircraft", 67, rand_augment_m=15, label_smoothing=0.2),
    "digits_pixels": _on_features(PixelSource(source="digits"), _splits("mnist"), "64 grey values, splits of MNIST"),
    **{f"clinc150_{percent}": _intents(_CLINC, 150, percent) for percent in (25, 50, 75)},
    **{f"banking77_{percent}": _intents(_BANKING, 77, percent) for percent in (25, 50, 75)},
    "cub_features": _on_features(_CUB, _splits("cub"), "Semantic Shift Benchmark (Vaze et al., 2022)"),
    **{
        f"{name}_features": _on_features(
            _LITE0["cifar10"], _splits(file), "five class splits of ARPL (Chen et al., 2021)", _LITE0[unknown]
        )
        for name, file, unknown in (
            ("cifar10", "cifar10", "cifar10"),
            ("cifar+10", "cifar_plus_10", "cifar100"),
            ("cifar+50", "cifar_plus_50", "cifar100"),
        )
    },
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
