"""Rows of a table: trials that differ only in split and seed are one row; the label says what else differs."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from openauc._validation import check_choice
from openauc.bench.paper import METHODS
from openauc.bench.selection import named_recipe
from openauc.bench.trial import TrialResult, TrialSpec
from openauc.recipe import LARGE_IMAGES


class Column(NamedTuple):
    """Where a cell's trials were scored.

    ``held_out`` is the number of known classes that stood in for unknown ones, 0 on the test part; ``group`` a group of
    unknown classes, None for all of them.
    """

    protocol: str
    held_out: int = 0
    group: str | None = None

    @property
    def label(self) -> str:
        """Heading of the column."""
        name = self.protocol if self.group is None else f"{self.protocol} {self.group}"
        classes = "class" if self.held_out == 1 else "classes"
        return f"{name} ({self.held_out} held-out {classes})" if self.held_out else name


MEAN = Column("mean")  # unweighted mean over the protocols, for rows that have all of them with all their splits


class Scored(NamedTuple):
    spec: TrialSpec
    result: TrialResult | None
    settings: Mapping[str, str]
    scored_on: Column

    @property
    def finished(self) -> TrialResult | None:
        return self.result if self.result is not None and self.result.error is None else None


def scored_trials(results: Iterable[TrialResult], planned: Iterable[TrialSpec]) -> list[Scored]:
    """One entry for each trial: of several results a finished one, else the last."""
    found: dict[Any, Scored] = {}
    for spec, result in [*((spec, None) for spec in planned), *((result.spec, result) for result in results)]:
        settings, scored_on = _settings(spec), Column(spec.protocol_name, spec.pseudo_unknown)
        key = (scored_on, spec.split, spec.method, spec.seed, *settings.items())
        if key not in found or not (found[key].finished and result is not None and result.error):
            found[key] = Scored(spec, result, settings, scored_on)
    return list(found.values())


BUDGET: dict[str, tuple[str, ...]] = {"recipe": (), "epochs": ("recipe",), "width": (), "train_images": ()}
"""Settings that must not differ unseen between methods, each with the setting it may follow from."""

ARGUMENT = "method_args."


def _settings(spec: TrialSpec) -> dict[str, str]:
    """All of a spec but where it is scored and its seed, as phrases; what is at its default is left out."""
    settings = {f"{ARGUMENT}{name}": f"{name}={_plain(value)}" for name, value in sorted(spec.method_args.items())}
    changed: Iterable[tuple[str, Any]] = ()
    usual = "vgg32"
    if spec.recipe is not None:
        settings["recipe"], changed = named_recipe(spec.recipe, spec.protocol)
        settings["epochs"] = f"{spec.recipe.epochs:,} epochs"
        settings["width"] = "published width" if spec.width is None else f"width {spec.width}"
        usual = "resnet50" if spec.recipe.image_size > LARGE_IMAGES else usual
    settings["train_images"] = f"{'all' if spec.train_images is None else f'{spec.train_images:,}'} training images"
    settings |= {f"recipe.{name}": f"{name}={_plain(value)}" for name, value in changed}
    others = {
        "backbone": spec.backbone if spec.backbone != usual else None,
        "score": spec.score and f"score {spec.score}",
        "weights": spec.weights and f"weights {spec.weights}",
        "validation": f"{spec.validation:.4g} of the training part held out" if spec.validation else None,
        "balanced": "balanced test part" if spec.balanced else None,
        "precision": spec.precision if spec.precision != "fp32" else None,
        "compile": "compiled" if spec.compile else None,
        "protocol": spec.protocol_hash and f"protocol file {spec.protocol_hash}",
    }
    return settings | {name: phrase for name, phrase in others.items() if phrase}


def _plain(value: Any) -> str:
    """The same text for 1 and 1.0."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def variants_of(trials: Sequence[Scored]) -> dict[str, list[Scored]]:
    """Trials by row, in the paper's order of methods; a label names the settings in which its row differs."""
    shown = telling_settings(trials)
    rows: dict[str, list[Scored]] = defaultdict(list)
    for trial in trials:
        rows[_label(trial, shown[trial.spec.method])].append(trial)
    return dict(sorted(rows.items(), key=lambda row: _row_order(row[1][0].spec.method, row[0])))


def telling_settings(trials: Sequence[Scored]) -> dict[str, list[str]]:
    """By method, the settings that differ among trials scored on the same data.

    Settings of the budget count when they differ between any two rows, others when they do within the method.
    """
    shown: dict[str, list[str]] = {trial.spec.method: [] for trial in trials}
    for name in dict.fromkeys(name for trial in trials for name in trial.settings):
        values: dict[tuple[Any, ...], set[str]] = defaultdict(set)
        for trial in trials:
            if name in BUDGET and name not in trial.settings:
                continue  # a head has no recipe that could differ
            context = [trial.settings[other] for other in BUDGET[name]] if name in BUDGET else [trial.spec.method]
            values[(trial.scored_on, *context)].add(trial.settings.get(name, ""))
        differing = [context for (_, *context), found in values.items() if len(found) > 1]
        for method in shown:
            if [method] in differing or (name in BUDGET and differing):
                shown[method].append(name)
    return shown


def _label(trial: Scored, shown: Iterable[str]) -> str:
    named = [name for name in shown if name in trial.settings]
    options = ", ".join(trial.settings[name] for name in named if name.startswith(ARGUMENT))
    others = ", ".join(trial.settings[name] for name in named if not name.startswith(ARGUMENT))
    return trial.spec.method + (f" {options}" if options else "") + (f" ({others})" if others else "")


def _row_order(method: str, label: str) -> tuple[Any, ...]:
    place = METHODS.index(method) if method in METHODS else len(METHODS)
    # Numbers by size: lam=2 before lam=10.
    words = re.split(r"(\d+(?:\.\d+)?)", label.removeprefix(method))
    return place, method, [float(word) if i % 2 else word for i, word in enumerate(words)]


def find_baseline(name: str, variants: Mapping[str, Sequence[Scored]]) -> str:
    if name in variants:
        return name
    labels = [label for label, members in variants.items() if members[0].spec.method == name]
    if len(labels) > 1:
        raise ValueError(f"baseline {name!r} could be any of {', '.join(map(repr, labels))}; name one of them.")
    return labels[0] if labels else check_choice("baseline", name, variants)
