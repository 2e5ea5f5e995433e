"""The command that makes a trial again."""

from __future__ import annotations

import shlex
from typing import Any

from openauc.bench.selection import named_recipe
from openauc.bench.trial import TrialSpec
from openauc.training.recipe import RECIPES, default_backbone


def command_of(spec: TrialSpec, store: str) -> str:
    """Shell command that trains and tests one trial alone: ``openauc train``, or where that cannot say it, Python.

    >>> command_of(TrialSpec.of("digits", 1, "openauc", method_args={"lam": 0.1}, recipe="plain", epochs=5), "runs/x")
    'openauc train digits -m openauc --split 1 --seed 0 --recipe plain --epochs 5 --method-arg lam=0.1 -o again'
    """
    recipe, changed = named_recipe(spec.recipe, spec.protocol, spec.method)
    if recipe not in RECIPES or spec.validation or spec.pseudo_unknown:
        code = (
            "from openauc.bench.runner import run; from openauc.bench.store import Store; "
            f"run([s for s in Store({store!r}).planned() if s.id == {spec.id!r}], out='again')"
        )
        return shlex.join(["python", "-c", code])
    words = ["openauc", "train", spec.protocol, "-m", spec.method, "--split", str(spec.split)]
    words += ["--seed", str(spec.seed), "--recipe", recipe, "--epochs", str(spec.recipe.epochs)]
    if spec.backbone != default_backbone(spec.method, spec.recipe.image_size):
        words += ["--backbone", spec.backbone]
    options = {"--width": spec.width, "--max-train-images": spec.train_images, "--weights": spec.weights}
    words += [word for name, value in options.items() if value is not None for word in (name, str(value))]
    words += [word for name, value in changed for word in ("--set", f"{name}={_text(value)}")]
    words += [word for name, value in spec.method_args.items() for word in ("--method-arg", f"{name}={_text(value)}")]
    return shlex.join([*words, "-o", "again"])


def _text(value: Any) -> str:
    """As ``openauc train`` reads it."""
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)
