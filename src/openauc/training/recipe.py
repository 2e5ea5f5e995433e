"""Training recipes: how long, how fast, on which images. Plain data, no torch."""

import difflib
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from numbers import Integral, Real
from typing import Any, Literal, TypeVar, get_args

Optimizer = Literal["sgd", "adam"]
Schedule = Literal["steps", "cosine_restarts"]
Augmentation = Literal["none", "crop_flip", "rand_augment"]
Operations = Literal["all", "digits"]
RecipeName = Literal["plain", "plus"]

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything about training that belongs neither to the method nor to the data.

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

    Raises
    ------
    ValueError, TypeError
        For a value outside its range, or of the wrong type.

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
    optimizer: Optimizer = "sgd"
    momentum: float = 0.9
    weight_decay: float = 1e-4
    schedule: Schedule = "steps"
    milestones: tuple[float, ...] = (0.3, 0.6, 0.9)
    restarts: int = 0
    warmup_epochs: int = 0
    label_smoothing: float = 0.0
    augmentation: Augmentation = "crop_flip"
    rand_augment_n: int = 0
    rand_augment_m: int = 0
    rand_augment_ops: Operations = "all"
    normalize: bool = False
    image_size: int = 32

    def __post_init__(self) -> None:
        # Numbers are stored in one type each (1 and 1.0 give the same recipe and the same JSON).
        for name, (kind, allowed, wanted) in _NUMBERS.items():
            object.__setattr__(self, name, _number(name, getattr(self, name), kind, allowed, wanted))
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} is {getattr(self, name)!r}; choose one of {_listed(choices)}.")
        if not isinstance(self.normalize, bool):
            raise TypeError(f"normalize is {self.normalize!r}; pass True or False.")
        object.__setattr__(self, "milestones", _fractions(self.milestones))
        if self.augmentation == "rand_augment" and self.rand_augment_n == 0:
            raise ValueError(
                "augmentation is 'rand_augment' but rand_augment_n is 0, which would change no image; "
                "pass rand_augment_n=1 or more, or augmentation='crop_flip'."
            )

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready mapping with every field; ``Recipe.from_dict`` reads it back to an equal recipe."""
        return {**asdict(self), "milestones": list(self.milestones)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Recipe":
        """Recipe from the mapping :meth:`to_dict` writes; a missing or unknown field raises ValueError."""
        missing = [name for name in FIELDS if name not in values]
        if missing:
            raise ValueError(f"the recipe lacks {_listed(missing)}; pass every field to_dict writes.")
        _refuse_unknown(values)
        return cls(**values)


FIELDS = tuple(field.name for field in fields(Recipe))

_CHOICES: dict[str, tuple[str, ...]] = {
    "optimizer": get_args(Optimizer),
    "schedule": get_args(Schedule),
    "augmentation": get_args(Augmentation),
    "rand_augment_ops": get_args(Operations),
}

_NUMBERS: dict[str, tuple[type, Callable[[float], bool], str]] = {
    "epochs": (int, lambda value: value >= 1, "a whole number of at least 1"),
    "batch_size": (int, lambda value: value >= 1, "a whole number of at least 1"),
    "image_size": (int, lambda value: value >= 1, "a whole number of at least 1"),
    "restarts": (int, lambda value: value >= 0, "a whole number of at least 0"),
    "warmup_epochs": (int, lambda value: value >= 0, "a whole number of at least 0"),
    "rand_augment_n": (int, lambda value: value >= 0, "a whole number of at least 0"),
    "rand_augment_m": (int, lambda value: 0 <= value <= 30, "a whole number from 0 to 30"),
    "learning_rate": (float, lambda value: 0 < value < math.inf, "a positive number"),
    "weight_decay": (float, lambda value: 0 <= value < math.inf, "a number of at least 0"),
    "momentum": (float, lambda value: 0 <= value < 1, "a number from 0 to below 1"),
    "label_smoothing": (float, lambda value: 0 <= value < 1, "a number from 0 to below 1"),
}


def _number(name: str, value: object, kind: type, allowed: Callable[[float], bool], wanted: str) -> float:
    accepted = Integral if kind is int else Real
    if isinstance(value, bool) or not isinstance(value, accepted):
        raise TypeError(f"{name} is {value!r}; pass {wanted}.")
    number: float = kind(value)
    if not allowed(number):
        raise ValueError(f"{name} is {value!r}; pass {wanted}.")
    return number


def _fractions(milestones: object) -> tuple[float, ...]:
    wanted = "increasing fractions of the epochs in (0, 1], such as (0.3, 0.6, 0.9)"
    if not isinstance(milestones, tuple | list) or not all(isinstance(m, Real) for m in milestones):
        raise TypeError(f"milestones is {milestones!r}; pass {wanted}.")
    fractions = tuple(float(fraction) for fraction in milestones)
    increasing = all(a < b for a, b in zip((0.0, *fractions), fractions, strict=False))
    if not increasing or not all(fraction <= 1 for fraction in fractions):
        raise ValueError(f"milestones is {milestones!r}; pass {wanted}.")
    return fractions


# Recipe of the prototype methods' public code: Softmax, GCPL, RPL, ARPL and ARPL+CS.
_PLAIN = Recipe()
# Fine-tuning of a pretrained ResNet-50. No plain recipe is published for these two sets: rate, batch, size
# and normalisation come from the "+" recipe, everything else from the plain one.
_PLAIN_FINE_GRAINED = replace(_PLAIN, batch_size=32, learning_rate=0.001, normalize=True, image_size=448)

# The recipes for the embedded 8 x 8 digits are ours: those of MNIST, shortened, at 16 pixels, which costs a
# quarter of 32 and still leaves a 2 x 2 map before the pooling.
PLAIN: dict[str, Recipe] = {
    "mnist": replace(_PLAIN, augmentation="none"),
    "svhn": _PLAIN,
    "cifar10": _PLAIN,
    "cifar+10": _PLAIN,
    "cifar+50": _PLAIN,
    "tinyimagenet": replace(_PLAIN, optimizer="adam", learning_rate=0.001, weight_decay=0.0, image_size=64),
    "cub": _PLAIN_FINE_GRAINED,
    "aircraft": _PLAIN_FINE_GRAINED,
    "digits": replace(_PLAIN, epochs=30, augmentation="none", image_size=16),
}

# "Cross-Entropy+" recipe of Vaze et al. (2022). The rows are those of cross-entropy.
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
_PLUS_FINE_GRAINED = replace(_PLUS, batch_size=32, learning_rate=0.001, rand_augment_n=2, image_size=448)

PLUS: dict[str, Recipe] = {
    "mnist": replace(_PLUS, rand_augment_m=8, rand_augment_ops="digits"),
    "svhn": replace(_PLUS, rand_augment_m=18, rand_augment_ops="digits"),
    "cifar10": _PLUS,
    "cifar+10": _PLUS,
    "cifar+50": _PLUS,
    "tinyimagenet": replace(
        _PLUS,
        optimizer="adam",
        learning_rate=0.01,
        weight_decay=0.0,
        rand_augment_m=9,
        label_smoothing=0.9,
        image_size=64,
    ),
    "cub": replace(_PLUS_FINE_GRAINED, rand_augment_m=30, label_smoothing=0.3),
    "aircraft": replace(_PLUS_FINE_GRAINED, rand_augment_m=15, label_smoothing=0.2),
    "digits": replace(
        _PLUS,
        epochs=60,
        batch_size=64,
        warmup_epochs=1,
        rand_augment_m=8,
        rand_augment_ops="digits",
        image_size=16,
    ),
}

RECIPES: dict[RecipeName, dict[str, Recipe]] = {"plain": PLAIN, "plus": PLUS}
"""Recipe name -> protocol name -> recipe."""

_ARPL_ROWS: dict[str, dict[str, Any]] = {
    "cifar10": {"rand_augment_m": 15},
    "tinyimagenet": {"learning_rate": 0.001},
    "cub": {"label_smoothing": 0.2},
    "aircraft": {"rand_augment_m": 18, "label_smoothing": 0.1},
}
_PAPER_ROWS: dict[str, dict[str, Any]] = {"tinyimagenet": {"batch_size": 64}}

PLUS_ROWS: dict[str, dict[str, dict[str, Any]]] = {
    "arpl": _ARPL_ROWS,
    "arpl_cs": _ARPL_ROWS,
    "arpl_plus": _ARPL_ROWS,
    "acc_auc": _PAPER_ROWS,
    "openauc": _PAPER_ROWS,
}
"""Method -> protocol -> where its "+" recipe differs from the one of cross-entropy."""


def published_recipe(method: str) -> RecipeName:
    """The recipe a method was published with.

    >>> published_recipe("openauc"), published_recipe("arpl")
    ('plus', 'plain')
    """
    return "plus" if method in ("ce_plus", "arpl_plus", "acc_auc", "openauc") else "plain"


def default_backbone(method: str, image_size: int) -> str:
    """The papers' backbone for a method and an image size.

    >>> default_backbone("arpl_cs", 32), default_backbone("openauc", 448)
    ('vgg32_abn', 'resnet50')
    """
    if image_size > 64:
        return "resnet50"
    return "vgg32_abn" if method == "arpl_cs" else "vgg32"


def protocol_like(image_size: int) -> str:
    """The protocol whose recipes suit images of this size, for protocols that have none of their own.

    >>> protocol_like(32), protocol_like(224)
    ('cifar10', 'cub')
    """
    return "cub" if image_size > 64 else "cifar10"


def recipe_for(
    name: RecipeName, protocol: str, method: str = "openauc", *, epochs: int | None = None, **overrides: Any
) -> Recipe:
    """Recipe of a protocol and method, scaled to a number of epochs, with single values replaced.

    ``plain`` is the recipe of the ARPL code, the same for every method; ``plus`` is the one of Vaze et al.
    with their own rows for ARPL and its relatives, and the OpenAUC paper's batch of 64 on TinyImageNet for
    its two methods.

    Parameters
    ----------
    name : {"plain", "plus"}
        Recipe.
    protocol : str
        Key of ``RECIPES[name]``.
    method : str
        A method without rows of its own in ``PLUS_ROWS`` takes those of cross-entropy.
    epochs : int, optional
        Length of the run. Milestones and cycles scale with it, and so does the warm-up (rounded down). There
        are fewer restarts where a cycle would be shorter than ten epochs or the run would end on a restart.
    **overrides
        Any field of :class:`Recipe`; these come last and are taken as they are.

    Examples
    --------
    >>> recipe_for("plus", "cifar10", "arpl").rand_augment_m
    15
    >>> short = recipe_for("plus", "cifar10", epochs=60)
    >>> short.restarts, short.warmup_epochs
    (2, 1)
    >>> recipe_for("plain", "mnist", learning_rate=0.01).learning_rate
    0.01
    """
    recipe = _find(protocol, _find(name, RECIPES, "recipe"), "protocol")
    if name == "plus":
        recipe = replace(recipe, **PLUS_ROWS.get(method, {}).get(protocol, {}))
    if epochs is not None:
        recipe = _scaled(recipe, epochs)
    _refuse_unknown(overrides)
    return replace(recipe, **overrides)


def _scaled(recipe: Recipe, epochs: int) -> Recipe:
    scaled = replace(recipe, epochs=epochs)
    return replace(
        scaled,
        restarts=_fitting_restarts(scaled),
        warmup_epochs=recipe.warmup_epochs * scaled.epochs // recipe.epochs,
    )


def _fitting_restarts(recipe: Recipe) -> int:
    for restarts in range(recipe.restarts, 0, -1):
        cycle = recipe.epochs // (restarts + 1)
        # The last epoch is at epochs - 2 of the cosine (it lags by one); past the cycles it would restart.
        ends_in_last_cycle = recipe.epochs - 2 < (restarts + 1) * cycle
        if cycle >= 10 and ends_in_last_cycle:
            return restarts
    return 0


def _find(name: str, table: Mapping[Any, T], what: str) -> T:
    if name not in table:
        near = difflib.get_close_matches(str(name), table, n=1)
        hint = f"did you mean {near[0]!r}? There" if near else "there"
        raise ValueError(f"no {what} named {name!r}; {hint} are {_listed(table)}.")
    return table[name]


def _refuse_unknown(values: Mapping[str, Any]) -> None:
    unknown = [name for name in values if name not in FIELDS]
    if unknown:
        raise ValueError(f"a recipe has no field {_listed(unknown)}; the fields are {_listed(FIELDS)}.")


def _listed(names: Any) -> str:
    return ", ".join(repr(name) for name in names)
