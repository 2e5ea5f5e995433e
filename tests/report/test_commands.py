"""The command of a trial, read again, is that trial."""

import shlex

import pytest
from openauc.commands.learning import assignments

from openauc.bench.trial import TrialSpec
from openauc.methods import recipe_for
from openauc.report.commands import command_of


def read(command: str) -> TrialSpec:
    """The spec of an ``openauc train`` command."""
    program, action, protocol, *words = shlex.split(command)
    assert (program, action) == ("openauc", "train")
    options: dict[str, list[str]] = {}
    for name, value in zip(words[::2], words[1::2], strict=True):
        options.setdefault(name, []).append(value)
    one = {name: values[0] for name, values in options.items()}
    recipe = recipe_for(
        one["--recipe"],  # type: ignore[arg-type]
        protocol,
        one["-m"],
        epochs=int(one["--epochs"]),
        **assignments("--set", options.get("--set")),
    )
    number = {name: int(one[name]) for name in ("--width", "--max-train-images") if name in one}
    return TrialSpec.of(
        protocol,
        int(one["--split"]),
        one["-m"],
        recipe=recipe,
        seed=int(one["--seed"]),
        backbone=one.get("--backbone"),
        weights=one.get("--weights"),
        width=number.get("--width"),
        train_images=number.get("--max-train-images"),
        method_args=assignments("--method-arg", options.get("--method-arg")),
    )


@pytest.mark.parametrize(
    "spec",
    [
        TrialSpec.of("mnist", 2, "openauc", epochs=12, seed=3, width=8, method_args={"lam": 0.1, "alpha": 2.0}),
        TrialSpec.of("digits", 0, "softmax", recipe="plain", train_images=100, weights="a file.pth"),
        TrialSpec.of(
            "digits",
            1,
            "arpl_cs",
            recipe=recipe_for("plain", "digits", "arpl_cs", epochs=12, schedule="cosine_restarts", milestones=()),
        ),
        TrialSpec.of("cifar10", 1, "openauc", backbone="resnet18", method_args={"flag": True, "none": None}),
    ],
)
def test_the_command_says_the_whole_spec(spec: TrialSpec) -> None:
    assert read(command_of(spec, "runs/x")) == spec


@pytest.mark.parametrize("more", [{"pseudo_unknown": 2}, {"validation": 0.1}])
def test_held_out_trials_are_run_from_the_store(more: dict[str, float]) -> None:
    spec = TrialSpec.of("digits", 0, "openauc", **more)
    program, option, code = shlex.split(command_of(spec, "runs/it's"))
    assert (program, option) == ("python", "-c")
    compile(code, "command", "exec")
    assert spec.id in code
