"""``openauc train``, ``openauc predict`` and ``openauc list``. torch is imported when a command runs."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.table import Table

from openauc._files import write_text
from openauc._validation import check_choice
from openauc.evaluation import Evaluation
from openauc.metrics.table import METRICS
from openauc.protocols import PROTOCOLS, OpenSetData, get_protocol
from openauc.protocols.files import is_protocol_file
from openauc.training.recipe import RECIPES, Recipe, default_backbone, protocol_like, published_recipe, recipe_for

T = TypeVar("T")

CONFIG, PREDICTIONS, EVALUATION = "config.json", "predictions.parquet", "evaluation.json"

ProtocolName = Annotated[
    str, typer.Argument(help="Protocol, see `openauc list protocols`, or a .json file of your own.")
]
MethodName = Annotated[str, typer.Option("--method", "-m", help="Method, or pkg.module of your own.")]
SplitIndex = Annotated[int, typer.Option("--split", help="Which class split of the protocol.")]
RecipeName = Annotated[
    str | None, typer.Option("--recipe", help="plain or plus; by default the one the method was published with.")
]
Width = Annotated[int | None, typer.Option(help="Channels of the first layer; as published if left out.")]
BackboneName = Annotated[str | None, typer.Option(help="Backbone, see `openauc list backbones`.")]
DataRoot = Annotated[Path | None, typer.Option(help="Local mirror of the data; else OPENAUC_DATA, else the Hub.")]
Settings = Annotated[list[str] | None, typer.Option("--set", help="Recipe field, key=value; repeatable.")]
MethodArgs = Annotated[list[str] | None, typer.Option(help="Option of the method, key=value; repeatable.")]
Balanced = Annotated[bool, typer.Option("--balanced", help="Test on as many known as unknown images.")]
Seed = Annotated[int, typer.Option(help="Seed of weights, order, augmentation and dropout.")]


def train(
    protocol: ProtocolName,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the run.")],
    method: MethodName = "openauc",
    split: SplitIndex = 0,
    recipe: RecipeName = None,
    epochs: Annotated[int | None, typer.Option(help="Length; the schedule scales with it.")] = None,
    width: Width = None,
    seed: Seed = 0,
    data_root: DataRoot = None,
    backbone: BackboneName = None,
    weights: Annotated[Path | None, typer.Option(help="Pretrained backbone to start from.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Images per step, over all processes.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Highest learning rate.")] = None,
    set_: Settings = None,
    method_arg: MethodArgs = None,
    precision: Annotated[str, typer.Option(help="fp32, bf16 or fp16.")] = "fp32",
    compile_: Annotated[bool, typer.Option("--compile", help="Compile the backbone.")] = False,
    max_train_images: Annotated[int | None, typer.Option(help="Train on a sample of this size.")] = None,
    balanced: Balanced = False,
    tracker: Annotated[list[str] | None, typer.Option(help="tensorboard, wandb or mlflow; repeatable.")] = None,
    checkpoint_every: Annotated[int, typer.Option(help="Epochs from one checkpoint to the next.")] = 1,
) -> None:
    """Train a method on one split, then test it; the same command again resumes.

    OUT then holds model.safetensors, log.jsonl, predictions.parquet, evaluation.json and config.json.
    """
    require_torch("training")
    from openauc.bench.runner import evaluate_test
    from openauc.models import load_weights
    from openauc.training.loop import CHECKPOINT, TrainingInterrupted, build_method, limited
    from openauc.training.loop import train as run
    from openauc.training.predict import predict as predict_all
    from openauc.training.process import process_state

    chosen = _recipe(
        recipe,
        protocol,
        method,
        epochs=epochs,
        overrides={
            **_recipe_fields(set_),
            **_given(batch_size=batch_size, learning_rate=learning_rate),
        },
    )
    options = _method_options(method, method_arg)
    data = get_protocol(protocol).load(split, root=data_root, balanced=balanced, seed=seed)
    spec = {
        **_task(protocol, split, data),
        "method": method,
        "method_args": options,
        "backbone": backbone or default_backbone(method, chosen.image_size),
        "width": width,
        "weights": None if weights is None else str(weights),
        "precision": precision,
        "max_train_images": max_train_images,
        "balanced": balanced,
    }
    if max_train_images is not None:
        data = limited(data, max_train_images, seed=seed)
    built = _built(
        lambda: build_method(
            method,
            data,
            chosen,
            backbone=spec["backbone"],
            width=width,
            seed=seed,
            method_args=options,
        )
    )
    if weights is not None:
        load_weights(built, weights, allow_missing_head=True)
    state = process_state()
    if state.is_main_process:
        _claim(out, {**spec, "seed": seed, "recipe": chosen.to_dict()}, processes=state.num_processes)
    state.wait_for_everyone()
    if (out / EVALUATION).is_file():
        _say(f"{out} is complete; remove it to train again.", state.is_main_process)
        return
    try:
        run(
            built,
            data,
            chosen,
            out=out,
            seed=seed,
            precision=precision,  # type: ignore[arg-type]  # checked against the accepted ones inside
            compile=compile_,
            trackers=tracker or (),
            checkpoint_every=checkpoint_every,
            about=spec,
        )
    except TrainingInterrupted as stopped:
        _say(f"{stopped} The same command resumes.", state.is_main_process)
        raise typer.Exit(128 + stopped.signum) from None
    except FloatingPointError as diverged:
        typer.echo(str(diverged), err=True)
        raise typer.Exit(1) from None
    predictions = predict_all(built, data, chosen)
    if state.is_main_process:
        predictions.save(out / PREDICTIONS, extra=data.test_columns())
        evaluation, groups = evaluate_test(predictions, data)
        by_group = {name: found.to_dict() for name, found in groups.items()}
        result = evaluation.to_dict() | ({"groups": by_group} if by_group else {})
        write_text(out / EVALUATION, json.dumps(result, indent=2) + "\n")
        (out / CHECKPOINT).unlink(missing_ok=True)
        _say(_headline(evaluation, out), main=True)
    state.wait_for_everyone()


def predict(
    protocol: ProtocolName,
    weights: Annotated[Path, typer.Option(help="model.safetensors of a run, or published weights.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Predictions: .parquet, .npz or .csv.")],
    method: MethodName = "openauc",
    split: SplitIndex = 0,
    recipe: RecipeName = None,
    width: Width = None,
    data_root: DataRoot = None,
    backbone: BackboneName = None,
    score: Annotated[str | None, typer.Option(help="max_logit, max_probability, energy, entropy, margin.")] = None,
    set_: Settings = None,
    method_arg: MethodArgs = None,
    balanced: Balanced = False,
    seed: Annotated[int, typer.Option(help="Seed of the balanced draw.")] = 0,
    batch_size: Annotated[int | None, typer.Option(help="Images at a time.")] = None,
    precision: Annotated[str, typer.Option(help="auto, fp32 or bf16.")] = "auto",
) -> None:
    """Predict the test part of one split with trained weights; `openauc evaluate` reads the result.

    Weights of `openauc train` know backbone, width, options and recipe; for others say what differs from the
    published ones.
    """
    require_torch("predicting")
    from openauc.models import load_weights
    from openauc.training.checkpoint import read_about
    from openauc.training.loop import build_method
    from openauc.training.predict import predict as predict_all
    from openauc.training.process import process_state

    data = get_protocol(protocol).load(split, root=data_root, balanced=balanced, seed=seed)
    about = read_about(weights) or {}
    _refuse_other_task(weights, about, {**_task(protocol, split, data), "method": method})
    overrides = _recipe_fields(set_)
    if "recipe" in about and recipe is None:
        chosen = _built(lambda: Recipe.from_dict({**about["recipe"], **overrides}))
    else:
        chosen = _recipe(recipe, protocol, method, epochs=None, overrides=overrides)
    options = {**about.get("method_args", {}), **_method_options(method, method_arg), **_given(score=score)}
    built = _built(
        lambda: build_method(
            method,
            data,
            chosen,
            backbone=backbone or about.get("backbone"),
            width=about.get("width") if width is None else width,
            method_args=options,
        )
    )
    load_weights(built, weights)
    state = process_state()
    built.to(state.device)
    predictions = predict_all(
        built,
        data,
        chosen,
        precision=precision,  # type: ignore[arg-type]  # checked against the accepted ones inside
        batch_size=batch_size,
    )
    if state.is_main_process:
        predictions.save(out, extra=data.test_columns())
        _say(f"{len(predictions.y_true):,} predictions in {out}; see `openauc evaluate {out}`.", main=True)


def list_(
    what: Annotated[
        str | None, typer.Argument(help="methods, protocols, recipes, backbones, metrics or benchmarks.")
    ] = None,
) -> None:
    """List what there is to choose from, one line each."""
    if what is not None:
        check_choice("what", what, _TABLES)
    console = Console()
    if not console.is_terminal:
        console = Console(width=200)
    for name, table in _TABLES.items():
        if what in (None, name):
            console.print(table())


def _methods() -> Table:
    from openauc.methods import method_names

    rows = ((name, _summary(f"openauc.methods.{name}")) for name in method_names())
    return _table("methods", ("name", "what it is"), rows)


def _protocols() -> Table:
    rows = (
        (
            name,
            f"{len(protocol.splits[0].known)} + {len(protocol.splits[0].unknown)}",
            str(len(protocol.splits)),
            str(protocol.image_size),
            protocol.reference,
        )
        for name, protocol in PROTOCOLS.items()
    )
    return _table("protocols", ("name", "known + unknown", "splits", "pixels", "reference"), rows)


def _recipes() -> Table:
    rows = (
        (
            name,
            protocol,
            str(recipe.epochs),
            str(recipe.batch_size),
            f"{recipe.optimizer} {recipe.learning_rate:g}",
            recipe.schedule,
            recipe.augmentation,
        )
        for name, by_protocol in RECIPES.items()
        for protocol, recipe in by_protocol.items()
    )
    columns = ("name", "protocol", "epochs", "batch", "optimizer", "schedule", "augmentation")
    return _table("recipes", columns, rows)


def _backbones() -> Table:
    require_torch("listing backbones")
    from openauc.models.backbones import ARCHITECTURES, LIBRARIES

    ours = ((name, _first_line(kind.__doc__)) for name, kind in ARCHITECTURES.items())
    theirs = ((f"{name}:NAME", _first_line(load.__doc__)) for name, load in LIBRARIES.items())
    return _table("backbones", ("name", "what it is"), (*ours, *theirs))


def _metrics() -> Table:
    rows = ((name, metric.label, metric.better) for name, metric in METRICS.items())
    return _table("metrics", ("name", "what it is", "better"), rows)


def _benchmarks() -> Table:
    from openauc.bench.suites import load_suite, suite_names

    suites = [load_suite(name) for name in suite_names()]
    rows = ((suite.name, suite.description, " ".join(suite.options)) for suite in suites)
    return _table("benchmarks", ("name", "what it is", "options"), rows)


_TABLES: dict[str, Callable[[], Table]] = {
    "methods": _methods,
    "protocols": _protocols,
    "recipes": _recipes,
    "backbones": _backbones,
    "metrics": _metrics,
    "benchmarks": _benchmarks,
}


def _table(title: str, columns: Iterable[str], rows: Iterable[Iterable[str]]) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table


def _summary(module: str) -> str:
    """First line of a module's docstring, without importing it."""
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        return ""
    return _first_line(ast.get_docstring(ast.parse(Path(spec.origin).read_text(encoding="utf-8"))))


def _first_line(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0]


def _recipe(
    name: str | None, protocol: str, method: str, *, epochs: int | None, overrides: Mapping[str, Any]
) -> Recipe:
    chosen = check_choice("recipe", name or published_recipe(method), RECIPES)
    if is_protocol_file(protocol):
        size = get_protocol(protocol).image_size
        protocol, overrides = protocol_like(size), {"image_size": size, **overrides}
    return _built(lambda: recipe_for(chosen, protocol, method, epochs=epochs, **overrides))  # type: ignore[arg-type]


def _recipe_fields(texts: list[str] | None) -> dict[str, Any]:
    """Values of ``--set``. No field of a recipe may be None, but the augmentation may be ``"none"``."""
    given = assignments("--set", texts)
    return {name: "none" if value is None else value for name, value in given.items()}


def _built(build: Callable[[], T]) -> T:
    """On the command line a value of the wrong type is bad input like any other."""
    try:
        return build()
    except TypeError as error:
        raise ValueError(str(error)) from error


def _method_options(method: str, arguments: list[str] | None) -> dict[str, Any]:
    """Options of a method from the command line; text where a number is expected is refused."""
    from openauc.methods import load_method, method_options

    defaults = method_options(load_method(method))
    options = assignments("--method-arg", arguments)
    for name, value in options.items():
        default = defaults.get(name)
        if isinstance(default, int | float) and not isinstance(value, int | float):
            raise ValueError(f"--method-arg {name} is {value!r}; expected a value like {default!r}.")
    return options


def assignments(option: str, texts: list[str] | None) -> dict[str, Any]:
    """``key=value`` texts as a mapping; numbers, true, false, none and (0.3, 0.6) become what they mean.

    >>> assignments("--set", ["learning_rate=1e-2", "normalize=true", "optimizer=adam"])
    {'learning_rate': 0.01, 'normalize': True, 'optimizer': 'adam'}
    """
    found = {}
    for text in texts or ():
        key, equals, value = text.partition("=")
        if not (key and equals and value):
            raise ValueError(f"{option} got {text!r}; expected key=value, such as epochs=10.")
        found[key.strip()] = _value(value.strip())
    return found


def _value(text: str) -> Any:
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _task(protocol: str, split: int, data: OpenSetData) -> dict[str, Any]:
    """What a model has learned to tell apart."""
    source = get_protocol(protocol).known_source
    named = isinstance(source, str)
    return {
        "protocol": protocol,
        "split": split,
        "known_source": source if named else type(source).__name__,
        # Ids of class folders move when a folder is added, names do not.
        "known_classes": list(data.split.known if named else data.class_names),
    }


def _claim(out: Path, spec: dict[str, Any], *, processes: int) -> None:
    """Make the folder this run's own, or refuse if another run has it.

    A run that ended before its first checkpoint, such as one with a mistyped option, has no claim any more.
    """
    from openauc.environment import environment
    from openauc.training.checkpoint import refuse_other_run
    from openauc.training.loop import CHECKPOINT, WEIGHTS

    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file; --out names the folder of the run.")
    config = out / CONFIG
    if config.is_file():
        try:
            old = json.loads(config.read_text(encoding="utf-8"))["spec"]
        except (ValueError, KeyError, TypeError):
            raise ValueError(f"{config} is not the configuration of a run; choose another folder.") from None
        if any((out / name).is_file() for name in (CHECKPOINT, WEIGHTS)):
            refuse_other_run(out, old, spec)
            return
    out.mkdir(parents=True, exist_ok=True)
    content = {"spec": spec, "environment": {**environment(), "processes": str(processes)}}
    write_text(config, json.dumps(content, indent=2) + "\n")


def _refuse_other_task(weights: Path, about: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Weights serve every protocol and split with the same known classes, as CIFAR+10 and CIFAR+50."""
    for key in ("known_source", "known_classes", "method"):
        if key in about and about[key] != wanted[key]:
            trained = f"{about.get('protocol')}, split {about.get('split')}, with {about.get('method')}"
            raise ValueError(
                f"{weights} was trained on {trained}, but the command says {wanted['protocol']}, split "
                f"{wanted['split']}, with {wanted['method']}; their {key.replace('_', ' ')} differ."
            )


def _headline(evaluation: Evaluation, out: Path) -> str:
    names = ("openauc", "auroc", "closed_set_accuracy")
    values = ", ".join(f"{METRICS[name].label} {evaluation.values[name]:.4f}" for name in names)
    return f"{values} on {evaluation.n_known:,} known and {evaluation.n_unknown:,} unknown images; see {out}."


def _say(text: str, main: bool) -> None:
    if main:
        typer.echo(text)


def require_torch(what: str) -> None:
    missing = [package for package in ("torch", "accelerate", "safetensors") if find_spec(package) is None]
    if missing:
        raise ImportError(f"{what} needs {', '.join(missing)}: pip install 'openauc[train]'.")
