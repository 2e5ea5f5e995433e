"""Methods by name: one file each, named as on the command line and ending in ``METHOD = ...``.

Nothing here imports torch before a method is loaded, so that listing names is fast.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from openauc._validation import check_choice
from openauc.protocols import PROTOCOLS, Protocol, get_protocol
from openauc.recipe import Recipe

if TYPE_CHECKING:
    from openauc.methods.base import Method
    from openauc.models.base import Backbone

__all__ = ["build_method", "load_method", "make_method", "method_names", "method_options", "recipe_for"]


def method_names() -> list[str]:
    """Names of the methods in this folder, sorted.

    >>> "openauc" in method_names()
    True
    """
    return sorted(file.name for file in pkgutil.iter_modules(__path__) if file.name != "base")


def load_method(name: str | type[Method]) -> type[Method]:
    """Class of a method by name: a file of this folder, or ``pkg.module`` for a module elsewhere.

    The module ends in ``METHOD = <a subclass of Method>``. A class is returned as it is.

    >>> load_method("openauc").__name__
    'OpenAUC'
    """
    from openauc.methods.base import Method

    if isinstance(name, type):
        return name
    if "." in name:
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError as error:
            raise ValueError(
                f"method {name!r} cannot be imported ({error}); pass the name of an installed module, or one "
                f"of {', '.join(method_names())}."
            ) from error
    else:
        module = importlib.import_module(f"{__name__}.{check_choice('method', name, method_names())}")
    method = getattr(module, "METHOD", None)
    if not (isinstance(method, type) and issubclass(method, Method)):
        raise ValueError(f"{name!r} has no METHOD that is a subclass of Method; end it in METHOD = YourMethod.")
    return method


def method_options(method: type[Method]) -> dict[str, Any]:
    """Keyword options of a method and their defaults.

    >>> method_options(load_method("ce_plus"))["temperature"]
    1.0
    """
    parameters = inspect.signature(method).parameters.values()
    return {option.name: option.default for option in parameters if option.default is not option.empty}


def recipe_for(
    name: str | None,
    protocol: str | Protocol,
    method: str | type[Method] = "ce_plus",
    *,
    epochs: int | None = None,
    **overrides: Any,
) -> Recipe:
    """Recipe of a protocol and method, scaled to a number of epochs, with single values replaced.

    Parameters
    ----------
    name
        A recipe of the protocol, such as ``"plain"`` or ``"plus"``; None is the protocol's default and, where it has
        none, the recipe the method was published with. A method may change some values of ``plus``.
    protocol, method
        Names, or the objects themselves.
    epochs
        Length of the run, see :meth:`~openauc.recipe.Recipe.scaled`.
    **overrides
        Any field of :class:`~openauc.recipe.Recipe`; these are set last.

    Examples
    --------
    >>> recipe_for("plus", "cifar10", "arpl").rand_augment_m
    15
    >>> recipe_for("plain", "mnist", learning_rate=0.01).learning_rate
    0.01
    """
    chosen, method_class = get_protocol(protocol), load_method(method)
    name = name or chosen.default_recipe or method_class.recipe
    recipe = chosen.recipes[check_choice("recipe", name, chosen.recipes)]
    if name == "plus":
        for known, row in method_class.recipe_rows.items():
            recipe = recipe.changed(**row) if PROTOCOLS.get(known) is chosen else recipe
    return (recipe if epochs is None else recipe.scaled(epochs)).changed(**overrides)


def make_method(
    method: str | type[Method],
    backbone: Backbone,
    num_classes: int,
    *,
    rng: np.random.Generator,
    method_args: Mapping[str, Any] | None = None,
) -> Method:
    """Method with the given options; an option that it does not have raises ValueError.

    Parameters
    ----------
    method
        Name as for :func:`load_method`, or the class itself.
    backbone, num_classes, rng
        See :class:`~openauc.methods.base.Method`.
    method_args
        Keyword options. ``{"preset": name}`` stands for the options of a preset, which other options override.
    """
    method_class = load_method(method)
    options = dict(method_args or {})
    if "preset" in options:
        options = method_class.preset(options.pop("preset")) | options
    accepted = method_options(method_class)
    for option in options:
        check_choice(f"an option of {method_class.__name__}", option, accepted)
    return method_class(backbone, num_classes, rng=rng, **options)


def build_method(
    method: str | type[Method],
    num_classes: int,
    *,
    image_size: int,
    num_features: int | None = None,
    backbone: str | None = None,
    width: int | None = None,
    seed: int = 0,
    method_args: Mapping[str, Any] | None = None,
) -> Method:
    """Method, by name or class, on a new network, by default the papers'; ``seed`` draws the weights of both.

    >>> build_method("arpl_cs", 6, image_size=16, width=4, method_args={"generator_width": 8}).num_classes
    6
    """
    import torch

    from openauc.models import make_backbone

    method_class = load_method(method)
    options = dict(method_args or {})
    if "image_size" in method_options(method_class):
        options.setdefault("image_size", image_size)
    drawn = np.random.SeedSequence([seed, *b"backbone"]).generate_state(1, np.uint64)[0] >> np.uint64(1)
    network = make_backbone(
        backbone or method_class.default_backbone(image_size),
        width=width,
        image_size=image_size,
        num_features=num_features,
        generator=torch.Generator().manual_seed(int(drawn)),
    )
    rng = np.random.default_rng([seed, *b"method"])
    return make_method(method_class, network, num_classes, rng=rng, method_args=options)
