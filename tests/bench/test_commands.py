"""The command of a trial, read again, is that trial."""

import shlex
from typing import Any

import pytest

from openauc.bench.selection import command_of
from openauc.bench.trial import TrialSpec
from openauc.commands.train import make_spec
from openauc.methods import recipe_for

OPTIONS = {"-m": "method", "--split": "split", "--seed": "seed", "--validation": "validation", "--score": "score"}


def read(command: str) -> TrialSpec:
    """The spec of an ``openauc train`` command."""
    program, action, protocol, *words = shlex.split(command)
    assert (program, action) == ("openauc", "train")
    values: dict[str, Any] = {"split": 0, "recipe": None}
    settings = []
    for name, value in zip(words[::2], words[1::2], strict=True):
        if name == "--set":
            settings.append(value)
        elif name in OPTIONS:
            values[OPTIONS[name]] = {"--split": int, "--seed": int, "--validation": float}.get(name, str)(value)
        elif name in ("--recipe", "--epochs"):
            values[name[2:]] = int(value) if name == "--epochs" else value
        else:
            assert (name, value) == ("-o", "again")
    return make_spec(protocol, settings=settings, **values)


@pytest.mark.parametrize(
    "spec",
    [
        TrialSpec.of("mnist", 2, "openauc", epochs=12, seed=3, width=8, method_args={"lam": 0.1, "alpha": 2.0}),
        TrialSpec.of("digits", 0, "softmax", recipe="plain", train_images=100, weights="a file.pth"),
        TrialSpec.of("digits", 0, "softmax", width=None, score="energy", balanced=True, precision="bf16"),
        TrialSpec.of("digits", 0, "ce_plus", method_args={"label_smoothing": 0.1}, compile=True),
        TrialSpec.of("digits", 3, "openauc", pseudo_unknown=2, validation=0.25),
        TrialSpec.of("cifar10", 0, "arpl_plus"),
        TrialSpec.of("digits_pixels", 1, "logistic", score="knn", seed=2, balanced=True),
        TrialSpec.of("cifar10", 0, "arpl_plus", recipe=recipe_for("plus", "cifar10", "ce_plus")),
        TrialSpec.of(
            "digits",
            1,
            "arpl_cs",
            recipe=recipe_for("plain", "digits", "arpl_cs", epochs=12, schedule="cosine_restarts", milestones=()),
        ),
        TrialSpec.of("cifar10", 1, "openauc", backbone="resnet50", method_args={"gather": True, "margin": None}),
    ],
)
def test_the_command_says_the_whole_spec(spec: TrialSpec) -> None:
    assert read(command_of(spec)) == spec
