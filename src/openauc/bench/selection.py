"""Trials by their fields: ``method=openauc,split=0|1,lam=0.1,epochs=10``; and the command that makes one again."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import fields
from functools import lru_cache
from typing import Any, TypeVar

from openauc._validation import check_choice
from openauc.bench.trial import SETTABLE, TrialResult, TrialSpec
from openauc.protocols import get_protocol
from openauc.recipe import FIELDS, Recipe

T = TypeVar("T", bound=TrialSpec | TrialResult)

_ROW_FIELDS = ("batch_size", "learning_rate", "rand_augment_m", "label_smoothing")
_KEYS = (*(f.name for f in fields(TrialSpec) if f.name != "method_args"), *FIELDS)


def select(items: Iterable[T], text: str) -> list[T]:
    """Specs or results that meet every condition of ``text``, in their order.

    A field is one of the spec, one of its recipe, or an option of its method; ``recipe`` is the recipe's name. An
    option left at its default is ``none``.

    Examples
    --------
    >>> specs = [TrialSpec.of("digits", split, "openauc", method_args={"lam": 0.1}) for split in range(3)]
    >>> [spec.split for spec in select(specs, "method=openauc,split=0|2,lam=0.10")]
    [0, 2]
    """
    trials = [(item, item if isinstance(item, TrialSpec) else item.spec) for item in items]
    conditions: dict[str, list[str]] = {}
    for part in text.split(","):
        key, _, choices = (word.strip() for word in part.partition("="))
        if not (key and choices) or key in conditions:
            raise ValueError(f"{text!r} is not a selection; give each field once, as in method=openauc,split=0|1.")
        conditions[key] = [choice.strip() for choice in choices.split("|")]
    options = {name for _, spec in trials for name in spec.method_args}
    for key, values in conditions.items():
        check_choice("the field to select by", key, (*_KEYS, *sorted(options.difference(_KEYS))))
        present = [field_of(spec, key) for _, spec in trials]
        for value in values:
            if not any(_equal(actual, value) for actual in present):
                check_choice(key, value, sorted({_text(actual) for actual in present}))
    return [
        item
        for item, spec in trials
        if all(any(_equal(field_of(spec, key), value) for value in values) for key, values in conditions.items())
    ]


def field_of(spec: TrialSpec, key: str) -> Any:
    """Value of a field of the spec, of its recipe or of the method's options; None for an option left out."""
    if key == "recipe":
        return spec.recipe and named_recipe(spec.recipe, spec.protocol)[0]
    if key in spec.method_args:
        return spec.method_args[key]
    return getattr(spec.recipe, key, None) if key in FIELDS else getattr(spec, key, None)


@lru_cache(maxsize=4096)
def named_recipe(recipe: Recipe, protocol: str) -> tuple[str, tuple[tuple[str, Any], ...]]:
    """Name of the protocol's recipe of that length this one is, or is nearest to, and the fields where it differs.

    A protocol whose file is gone, or from elsewhere, has none, and everything that is not at its default is told.

    >>> from openauc.protocols import PROTOCOLS
    >>> named_recipe(PROTOCOLS["mnist"].recipes["plus"].scaled(12).changed(momentum=0.8), "mnist")
    ('plus', (('momentum', 0.8),))
    """
    try:
        known = dict(get_protocol(protocol).recipes)
    except (OSError, ValueError):
        known = {"own": Recipe()}
    differing = {
        name: tuple((key, getattr(recipe, key)) for key in FIELDS if getattr(recipe, key) != getattr(candidate, key))
        for name, candidate in ((name, found.scaled(recipe.epochs)) for name, found in known.items())
    }
    return min(differing.items(), key=lambda item: len(item[1]))


def command_of(spec: TrialSpec) -> str:
    """Shell command that trains and tests one trial alone.

    >>> command_of(TrialSpec.of("mnist", 1, "gcpl", method_args={"weight": 2}, epochs=5))
    'openauc train mnist -m gcpl --split 1 --recipe plain --epochs 5 --set backbone=vgg32 --set weight=2 -o again'
    """
    options: dict[str, Any] = {"--split": spec.split, "--seed": spec.seed, "--validation": spec.validation}
    options["--score"] = spec.score
    values: dict[str, Any] = {}
    if spec.recipe is not None:
        options["--recipe"], changed = named_recipe(spec.recipe, spec.protocol)
        options["--epochs"] = spec.recipe.epochs
        values |= dict(changed)
        if options["--recipe"] == "plus":  # a method may have rows of its own there, which only the method knows
            values |= {name: getattr(spec.recipe, name) for name in _ROW_FIELDS}
    defaults = {f.name: f.default for f in fields(TrialSpec)}
    with suppress(OSError, ValueError):
        defaults["width"] = get_protocol(spec.protocol).width
    values |= {name: getattr(spec, name) for name in SETTABLE if getattr(spec, name) != defaults[name]}
    clashing = {*FIELDS, *SETTABLE}
    values |= {f"method.{name}" if name in clashing else name: value for name, value in spec.method_args.items()}
    words = [word for name, value in options.items() if value for word in (name, str(value))]
    words += [word for name, value in values.items() for word in ("--set", f"{name}={_text(value)}")]
    return shlex.join(["openauc", "train", spec.protocol, "-m", spec.method, *words, "-o", "again"])


def _equal(actual: Any, text: str) -> bool:
    if isinstance(actual, int | float) and not isinstance(actual, bool):
        with suppress(ValueError):
            return float(text) == actual
    return _text(actual) == text


def _text(value: Any) -> str:
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)
