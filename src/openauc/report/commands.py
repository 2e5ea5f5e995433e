"""The command that makes a trial again."""

from __future__ import annotations

import shlex
from dataclasses import fields
from typing import Any

from openauc.bench.selection import named_recipe
from openauc.bench.trial import SETTABLE, TrialSpec
from openauc.protocols import get_protocol
from openauc.recipe import FIELDS

ROW_FIELDS = ("batch_size", "learning_rate", "rand_augment_m", "label_smoothing")


def command_of(spec: TrialSpec) -> str:
    """Shell command that trains and tests one trial alone.

    >>> command_of(TrialSpec.of("mnist", 1, "gcpl", method_args={"weight": 2}, epochs=5))
    'openauc train mnist -m gcpl --split 1 --recipe plain --epochs 5 --set backbone=vgg32 --set weight=2 -o again'
    """
    words = ["openauc", "train", spec.protocol, "-m", spec.method]
    options = {"--split": spec.split, "--seed": spec.seed, "--validation": spec.validation, "--score": spec.score}
    words += [word for name, value in options.items() if value for word in (name, str(value))]
    values: dict[str, Any] = {}
    if spec.recipe is not None:
        recipe, changed = named_recipe(spec.recipe, spec.protocol)
        words += ["--recipe", recipe, "--epochs", str(spec.recipe.epochs)]
        values |= dict(changed)
        if recipe == "plus":
            # A method may have rows of its own there, which only the method knows.
            values |= {name: getattr(spec.recipe, name) for name in ROW_FIELDS}
    defaults = {f.name: f.default for f in fields(TrialSpec)} | {"width": _default_width(spec)}
    values |= {name: getattr(spec, name) for name in SETTABLE if getattr(spec, name) != defaults[name]}
    clashing = {*FIELDS, *SETTABLE}
    values |= {f"method.{name}" if name in clashing else name: value for name, value in spec.method_args.items()}
    words += [word for name, value in values.items() for word in ("--set", f"{name}={_text(value)}")]
    return shlex.join([*words, "-o", "again"])


def _default_width(spec: TrialSpec) -> int | None:
    try:
        return get_protocol(spec.protocol).width
    except (OSError, ValueError):
        return None


def _text(value: Any) -> str:
    """As ``openauc train`` reads it."""
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)
