"""Training recipes: how long, how fast, on which images. Plain data, no torch."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from itertools import pairwise
from numbers import Integral, Real
from typing import Any, Literal, get_args, get_origin, get_type_hints

from openauc._validation import check_choice, named

Operations = Literal["all", "digits"]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How to train: everything that belongs neither to the method nor to the data.

    The defaults are the ``plain`` recipe for colour images of 32 pixels.

    Parameters
    ----------
    epochs, batch_size : int
        Passes over the training part; images per optimiser step.
    learning_rate : float
        Highest rate of the schedule.
    optimizer : {"sgd", "adam"}
        ``momentum`` concerns SGD only.
    momentum, weight_decay : float
        In [0, 1); at least 0.
    schedule : {"steps", "cosine_restarts"}
        See :func:`openauc.training.schedule.learning_rate`.
    milestones : tuple of float
        For ``steps``: where the rate falls, as increasing fractions of ``epochs`` in (0, 1].
    restarts, warmup_epochs : int
        For ``cosine_restarts``: restarts after the first cycle; length of the warm-up in the first cycle.
    label_smoothing : float
        Share s in [0, 1) taken from the true class and spread over the other K - 1 classes.
    augmentation : {"none", "crop_flip", "rand_augment"}
        ``rand_augment`` includes crop and flip.
    rand_augment_n, rand_augment_m : int
        Operations per image and their magnitude, 0 to 30.
    rand_augment_ops : {"all", "digits"}
        ``digits`` leaves out rotation and translation.
    normalize : bool
        Subtract the mean and divide by the deviation of CIFAR-10; otherwise images stay in [0, 1].
    image_size : int
        Side in pixels of the square the network sees.

    Examples
    --------
    >>> Recipe(epochs=10).learning_rate
    0.1
    >>> Recipe.from_dict(Recipe(epochs=10).to_dict()) == Recipe(epochs=10)
    True
    """

    epochs: int = 100
    batch_size: int = 64
    learning_rate: float = 0.1
    optimizer: Literal["sgd", "adam"] = "sgd"
    momentum: float = 0.9
    weight_decay: float = 1e-4
    schedule: Literal["steps", "cosine_restarts"] = "steps"
    milestones: tuple[float, ...] = (0.3, 0.6, 0.9)
    restarts: int = 0
    warmup_epochs: int = 0
    label_smoothing: float = 0.0
    augmentation: Literal["none", "crop_flip", "rand_augment"] = "crop_flip"
    rand_augment_n: int = 0
    rand_augment_m: int = 0
    rand_augment_ops: Operations = "all"
    normalize: bool = False
    image_size: int = 32

    def __post_init__(self) -> None:
        for name, (low, high, wanted) in _NUMBERS.items():
            value = getattr(self, name)
            number: type = int if wanted.startswith("a whole number") else float
            if isinstance(value, bool) or not isinstance(value, Integral if number is int else Real):
                raise TypeError(f"{name} is {value!r}; pass {wanted}.")
            if not low <= number(value) <= high:
                raise ValueError(f"{name} is {value!r}; pass {wanted}.")
            # One type for each field: 1 and 1.0 give the same recipe and the same JSON.
            object.__setattr__(self, name, number(value))
        for name, choices in _CHOICES.items():
            check_choice(name, getattr(self, name), choices)
        if not isinstance(self.normalize, bool):
            raise TypeError(f"normalize is {self.normalize!r}; pass True or False.")
        milestones: Any = self.milestones
        wanted = "increasing fractions of the epochs in (0, 1], such as (0.3, 0.6, 0.9)"
        if not isinstance(milestones, tuple | list) or not all(isinstance(m, Real) for m in milestones):
            raise TypeError(f"milestones is {milestones!r}; pass {wanted}.")
        object.__setattr__(self, "milestones", tuple(map(float, milestones)))
        if not all(low < high <= 1 for low, high in pairwise((0.0, *self.milestones))):
            raise ValueError(f"milestones is {milestones!r}; pass {wanted}.")
        if self.augmentation == "rand_augment" and self.rand_augment_n == 0:
            raise ValueError(
                "augmentation is 'rand_augment' but rand_augment_n is 0, which would change no image; "
                "pass rand_augment_n=1 or more, or augmentation='crop_flip'."
            )

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready mapping of every field; :meth:`from_dict` makes an equal recipe of it."""
        return {**asdict(self), "milestones": list(self.milestones)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Recipe:
        """Recipe from the mapping that :meth:`to_dict` returns; a missing or unknown field raises ValueError."""
        if missing := [name for name in FIELDS if name not in values]:
            raise ValueError(f"the recipe lacks {named(missing)}; pass every field to_dict writes.")
        return Recipe().changed(**values)

    def changed(self, **fields: Any) -> Recipe:
        """The recipe with single values replaced; an unknown field raises ValueError.

        >>> Recipe().changed(learning_rate=0.01).learning_rate
        0.01
        """
        if unknown := [name for name in fields if name not in FIELDS]:
            raise ValueError(f"a recipe has no field {named(unknown)}; the fields are {named(FIELDS)}.")
        return replace(self, **fields)

    def scaled(self, epochs: int) -> Recipe:
        """The recipe for a run of another length.

        Milestones, cycles and warm-up (rounded down) scale with the epochs. Restarts are left out until each cycle has
        at least ten epochs and the run does not end on a restart.

        >>> short = Recipe(epochs=600, schedule="cosine_restarts", restarts=2, warmup_epochs=10).scaled(60)
        >>> short.restarts, short.warmup_epochs
        (2, 1)
        """
        scaled, restarts = replace(self, epochs=epochs), self.restarts
        # The cosine lags by one epoch, so that one more still ends the last cycle.
        while restarts and (scaled.epochs < 10 * (restarts + 1) or scaled.epochs % (restarts + 1) > 1):
            restarts -= 1
        return replace(scaled, restarts=restarts, warmup_epochs=self.warmup_epochs * scaled.epochs // self.epochs)


FIELDS = tuple(field.name for field in fields(Recipe))
_CHOICES = {name: get_args(hint) for name, hint in get_type_hints(Recipe).items() if get_origin(hint) is Literal}
"""The values of each field that takes one of a few words."""
_NUMBERS: dict[str, tuple[float, float, str]] = {
    **dict.fromkeys(("epochs", "batch_size", "image_size"), (1, math.inf, "a whole number of at least 1")),
    **dict.fromkeys(("restarts", "warmup_epochs", "rand_augment_n"), (0, math.inf, "a whole number of at least 0")),
    "rand_augment_m": (0, 30, "a whole number from 0 to 30"),
    "learning_rate": (math.ulp(0), sys.float_info.max, "a positive number"),
    "weight_decay": (0, sys.float_info.max, "a number of at least 0"),
    **dict.fromkeys(("momentum", "label_smoothing"), (0, math.nextafter(1, 0), "a number from 0 to below 1")),
}
"""Smallest and largest value of each number, and what an error asks for."""


LARGE_IMAGES = 64  # longest side of images to train a new network on; on larger ones a pretrained network is fine-tuned

_PLUS = Recipe(
    epochs=600,
    batch_size=128,
    schedule="cosine_restarts",
    milestones=(),
    restarts=2,
    warmup_epochs=10,
    augmentation="rand_augment",
    rand_augment_n=1,
    rand_augment_m=6,
    normalize=True,
)


def published_recipes(image_size: int) -> dict[str, Recipe]:
    """The two recipes of the papers, for images of this side.

    ``plain`` is the recipe of the prototype methods' public code (Softmax, GCPL, RPL, ARPL, ARPL+CS); ``plus`` that of
    "Cross-Entropy+" (Vaze et al., 2022), with its rows for cross-entropy. Beyond `LARGE_IMAGES` they fine-tune a
    pretrained ResNet-50. No plain recipe is published for that: rate, batch and normalisation then come from ``plus``.

    >>> published_recipes(32)["plus"].epochs, published_recipes(448)["plain"].learning_rate
    (600, 0.001)
    """
    plain, plus = Recipe(image_size=image_size), replace(_PLUS, image_size=image_size)
    if image_size > LARGE_IMAGES:
        plain = replace(plain, batch_size=32, learning_rate=0.001, normalize=True)
        plus = replace(plus, batch_size=32, learning_rate=0.001, rand_augment_n=2)
    return {"plain": plain, "plus": plus}
