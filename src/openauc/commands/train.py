"""``openauc train``: one trial, from its protocol to its metrics. torch is imported when the command runs."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Argument, Exit, Option

from openauc._trial_files import features_file
from openauc._validation import check_choice
from openauc.bench.trial import SETTABLE, TrialResult, TrialSpec
from openauc.commands.terminal import say
from openauc.features.scores.base import HEAD_NAMES
from openauc.methods import load_method, method_options, recipe_for
from openauc.metrics.registry import METRICS
from openauc.recipe import FIELDS

if TYPE_CHECKING:
    from openauc.bench.store import Store

MethodName = Annotated[str, Option("--method", "-m", help="Method, or pkg.module of your own.")]
SplitIndex = Annotated[int, Option("--split", help="Which class split of the protocol.")]
RecipeName = Annotated[str | None, Option(help="Such as plain or plus; else the protocol's own or the published one.")]
ScoreName = Annotated[
    str | None,
    Option(help="See `openauc list scores`; for heads also learned, average, selected; else that of the method."),
]
DataRoot = Annotated[Path | None, Option(help="Local mirror of the data; else OPENAUC_DATA, else the Hub.")]
Settings = Annotated[
    list[str] | None,
    Option("--set", metavar="KEY=VALUE", help=f"Field of the recipe, option of the method, or {', '.join(SETTABLE)}."),
]
Keep = Annotated[Literal["features"] | None, Option(help="features: also keep features and logits of every part.")]


def train(
    protocol: Annotated[
        str, Argument(metavar="PROTOCOL", help="See `openauc list protocols`, or your own .json file.")
    ],
    out: Annotated[Path | None, Option("--out", "-o", help="Folder of the run; else one in runs.")] = None,
    method: MethodName = "openauc",
    split: SplitIndex = 0,
    seed: Annotated[int, Option(help="Seed of weights, order, augmentation and dropout.")] = 0,
    recipe: RecipeName = None,
    epochs: Annotated[int | None, Option(help="Number of epochs; the schedule scales with it.")] = None,
    set_: Settings = None,
    score: ScoreName = None,
    validation: Annotated[float, Option(help="Share of each class to hold out, to choose a threshold on.")] = 0.0,
    keep: Keep = None,
    data_root: DataRoot = None,
    tracker: Annotated[list[str] | None, Option(help="tensorboard, wandb or mlflow; repeatable.")] = None,
) -> None:
    """Train a method on one split, then test it.

    If the command was stopped, the same command goes on from there. The folder then holds the spec, the log,
    the weights, the predictions and the result; `openauc table`, `report`, `threshold` and `predict` read it.
    """
    require_torch("training")
    from openauc.bench.runner import run_trial
    from openauc.environment import reuse_memory
    from openauc.training.loop import TrainingInterrupted
    from openauc.training.process import process_state
    from openauc.training.trained import trained

    more = {"seed": seed, "score": score, "validation": validation}
    spec = make_spec(protocol, method, split, recipe=recipe, epochs=epochs, settings=set_, **more)
    folder, state = out or Path("runs") / spec.id, process_state()
    say_once = say if state.is_main_process else lambda line: None
    reuse_memory()
    with _own_folder(folder, spec, main=state.is_main_process) as store:
        state.wait_for_everyone()
        found = store.result(spec)
        lacking = keep is not None and not (folder / features_file("train")).is_file()
        if found is not None and found.error is None and not lacking:
            say_once(f"{folder} is complete; remove it to train again. {_headline(found)}")
            return
        say_once(_announced(spec, recipe))
        try:
            network = trained(spec, folder, data_root, trackers=tracker or ())
            result = run_trial(spec, out=folder, data_root=data_root, keep_features=bool(keep), network=network)
        except TrainingInterrupted as stopped:
            say_once(f"{stopped} The same command resumes.")
            raise Exit(128 + stopped.signum) from None
        if result.error is not None:
            _fail(result.error)
        if state.is_main_process:
            store.save(result)
        say_once(f"{_headline(result)}; see {folder}.")
        state.wait_for_everyone()


@contextmanager
def _own_folder(folder: Path, spec: TrialSpec, *, main: bool) -> Iterator[Store]:
    """The folder as a store of this trial alone, claimed by the main process while the block lasts."""
    from openauc.bench.store import Claims, Store

    if not main:
        yield Store(folder, alone=True)
        return
    store = Store.of_trial(folder, spec)
    try:
        with Claims(folder) as claims:
            if not claims.take(spec.training_id):
                raise ValueError(f"another process is training in {folder}; wait for it, or choose another folder.")
            yield store
    finally:
        store.drop_if_empty()


def _fail(error: str) -> None:
    """Raise what was bad input (exit code 2); print why a training failed and end with exit code 1."""
    kind, _, message = error.partition("\n")[0].partition(": ")
    known = getattr(builtins, kind, None)
    if isinstance(known, type) and issubclass(known, ValueError | TypeError | OSError | ImportError):
        raise ValueError(message)
    say(message if kind == "FloatingPointError" else error, err=True)
    raise Exit(1)


def _announced(spec: TrialSpec, recipe: str | None) -> str:
    """What is about to be trained, and why with this recipe."""
    from openauc.bench.selection import named_recipe

    protocol, said = spec.open_protocol(), f"{spec.protocol_name}, split {spec.split}: {spec.method}, "
    if spec.recipe is None:
        return f"{said}fitted by scikit-learn"
    name, changed = named_recipe(spec.recipe, spec.protocol)
    width = "published width" if spec.width is None else f"width {spec.width}"
    changes = "".join(f", {key}={value}" for key, value in changed)
    said += f"{spec.backbone}, {width}, recipe {name}{changes}, {spec.recipe.epochs} epochs"
    if recipe is None and protocol.default_recipe is not None:
        published = load_method(spec.method).recipe
        said += f"\nrecipe {name} because {protocol.because}; --recipe {published} is the published one"
    return said


def _headline(result: TrialResult) -> str:
    names = [name for name in ("openauc", "auroc", "closed_set_accuracy") if name in result.metrics]
    values = ", ".join(f"{METRICS[name].label} {result.metrics[name]:.4f}" for name in names)
    return f"{values} on {result.n_known:,} known and {result.n_unknown:,} unknown images"


def make_spec(
    protocol: str,
    method: str,
    split: int,
    *,
    recipe: str | None,
    settings: list[str] | None,
    epochs: int | None = None,
    **more: Any,
) -> TrialSpec:
    head, given = method in HEAD_NAMES, assignments("--set", settings)
    options = {"preset": None} | ({} if head else method_options(load_method(method)))
    changes = {name: given.pop(name) for name in FIELDS if name in given}
    more |= {name: given.pop(name) for name in SETTABLE if name in given}
    method_args = {name.removeprefix("method."): value for name, value in given.items()}
    for name, value in method_args.items():
        if name not in options:
            check_choice(f"--set with {method}: the field", name, (*sorted(options), *SETTABLE, *FIELDS))
        if isinstance(options[name], int | float) and not isinstance(value, int | float):
            raise ValueError(f"--set {name}={value}: expected a value like {options[name]!r}.")
    epochs = changes.pop("epochs", epochs)
    if changes.get("augmentation", "") is None:
        changes["augmentation"] = "none"  # the word, which means None elsewhere
    if head and (recipe or epochs or changes):
        raise ValueError(f"{method!r} is fitted by scikit-learn and has no recipe; leave out recipe and epochs.")
    chosen = None if head else recipe_for(recipe, protocol, method, epochs=epochs, **changes)
    return TrialSpec.of(protocol, split, method, recipe=chosen, method_args=method_args, **more)


def assignments(option: str, texts: list[str] | None) -> dict[str, Any]:
    """``key=value`` texts as a mapping; numbers, true, false, none and (0.3, 0.6) become what they mean.

    >>> assignments("--set", ["learning_rate=1e-2", "normalize=true", "optimizer=adam"])
    {'learning_rate': 0.01, 'normalize': True, 'optimizer': 'adam'}
    """
    found: dict[str, Any] = {}
    for text in texts or ():
        key, equals, value = text.partition("=")
        if not (key and equals and value):
            raise ValueError(f"{option} got {text!r}; expected key=value, such as epochs=10.")
        key, value = key.strip(), value.strip()
        try:
            found[key] = ast.literal_eval(value.title() if value.lower() in ("true", "false", "none") else value)
        except (ValueError, SyntaxError):
            found[key] = value
    return found


def require_torch(what: str) -> None:
    """Raise an error with the extra to install, unless torch and its companions are installed."""
    missing = [package for package in ("torch", "accelerate", "safetensors") if find_spec(package) is None]
    if missing:
        raise ImportError(f"{what} needs {', '.join(missing)}: pip install 'openauc[train]'.")
