"""What to train and test, and what came of it: plain data with an identity, no torch."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, NamedTuple

from openauc._validation import check_choice, check_fraction
from openauc.protocols import PROTOCOLS, get_protocol
from openauc.training.recipe import Recipe, default_backbone, published_recipe, recipe_for

Scalar = str | int | float | bool | None


@dataclass(frozen=True, kw_only=True)
class TrialSpec:
    """One training and its test, said completely; equal specs give equal metrics wherever they run.

    Parameters
    ----------
    protocol, split
        Which classes are known, see ``openauc list protocols``.
    method, method_args
        Name of the method and its options; those left out keep the method's defaults.
    backbone, width
        Network, and the channels of its first layer (as published if None).
    recipe
        How to train.
    seed
        Seed of weights, order, augmentation and every draw below.
    train_images
        Train on a random part of this size; None is all.
    weights
        File of pretrained weights to start from.
    validation, pseudo_unknown
        A share of each known class, and a number of whole known classes, held out of training. With
        ``pseudo_unknown`` the trial is scored on what was held out, its held-out classes as unknowns, and the test
        part stays closed: this is how options are chosen.

    Examples
    --------
    >>> spec = TrialSpec.of("digits", 0, "openauc", method_args={"lam": 1}, epochs=10)
    >>> spec == TrialSpec.of("digits", 0, "openauc", method_args={"lam": 1.0}, epochs=10)
    True
    >>> spec.id
    'digits-0-openauc-s0-...'
    >>> TrialSpec.from_dict(spec.to_dict()) == spec
    True
    """

    protocol: str
    split: int
    method: str
    recipe: Recipe
    backbone: str
    method_args: Mapping[str, Scalar] = field(default_factory=dict)
    seed: int = 0
    width: int | None = None
    train_images: int | None = None
    weights: str | None = None
    validation: float = 0.0
    pseudo_unknown: int = 0

    def __post_init__(self) -> None:
        # By name only: a file may change between the trials that name it.
        count = len(PROTOCOLS[check_choice("protocol", self.protocol, PROTOCOLS)].splits)
        if not 0 <= self.split < count:
            raise ValueError(f"{self.protocol} has no split {self.split}; it has 0 to {count - 1}.")
        if self.seed < 0:
            raise ValueError(f"seed is {self.seed}; expected an integer from 0 upwards.")
        check_fraction("validation", self.validation, zero=True, one=False)
        for name, value in self.method_args.items():
            if not isinstance(value, str | int | float | bool | None):
                raise TypeError(
                    f"method_args[{name!r}] is {value!r}; a trial is plain data: text, numbers, truth values, None."
                )
        object.__setattr__(self, "method_args", dict(self.method_args))

    @classmethod
    def of(
        cls,
        protocol: str,
        split: int,
        method: str,
        *,
        recipe: str | Recipe | None = None,
        epochs: int | None = None,
        backbone: str | None = None,
        **more: Any,
    ) -> TrialSpec:
        """Spec with what the papers leave no choice about filled in.

        ``recipe`` is ``"plain"``, ``"plus"`` or a recipe, by default the one the method was published with;
        ``epochs`` scales it; without ``backbone`` it is the papers'. ``more`` are the other fields.
        """
        if not isinstance(recipe, Recipe):
            recipe = recipe_for(recipe or published_recipe(method), protocol, method, epochs=epochs)  # type: ignore[arg-type]
        elif epochs is not None:
            raise ValueError("epochs scales a named recipe; a recipe of your own already has its epochs.")
        return cls(
            protocol=protocol,
            split=split,
            method=method,
            recipe=recipe,
            backbone=backbone or default_backbone(method, recipe.image_size),
            **more,
        )

    @property
    def id(self) -> str:
        """Readable prefix and a hash of everything; the name of the trial's folder."""
        return f"{self.protocol}-{self.split}-{self.method}-s{self.seed}-{_digest(_essential(self))}"

    @property
    def training_id(self) -> str:
        """Equal for specs that train the same network, as CIFAR+10 and CIFAR+50 do; they differ in the test only."""
        facts = _essential(self)
        protocol = get_protocol(facts.pop("protocol"))
        known = protocol.splits[facts.pop("split")].known
        return f"{self.method}-s{self.seed}-{_digest({**facts, 'source': str(protocol.known_source), 'known': known})}"

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready mapping of every field; :meth:`from_dict` reads it back to an equal spec."""
        return {**{f.name: getattr(self, f.name) for f in fields(self)}, "recipe": self.recipe.to_dict()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TrialSpec:
        """Spec from what :meth:`to_dict` wrote; fields that are newer than the file take their defaults."""
        return cls(**{**values, "recipe": Recipe(**values["recipe"])})


@dataclass(frozen=True, kw_only=True)
class TrialResult:
    """What came of a trial: metrics with intervals, or an error.

    ``groups`` holds the metrics against one group of unknown classes each, as CUB's easy, medium and hard;
    ``predictions`` is the file they can be recomputed from, relative to the store.
    """

    spec: TrialSpec
    metrics: dict[str, float] = field(default_factory=dict)
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)
    groups: dict[str, dict[str, float]] = field(default_factory=dict)
    n_known: int = 0
    n_unknown: int = 0
    predictions: str | None = None
    seconds: float = 0.0
    environment: dict[str, str] = field(default_factory=dict)
    error: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready mapping; :meth:`from_dict` reads it back."""
        return {**{f.name: getattr(self, f.name) for f in fields(self)}, "spec": self.spec.to_dict()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TrialResult:
        """Result from what :meth:`to_dict` wrote."""
        intervals = {name: (float(low), float(high)) for name, (low, high) in values["intervals"].items()}
        return cls(**{**values, "spec": TrialSpec.from_dict(values["spec"]), "intervals": intervals})


class Job(NamedTuple):
    """Trials that share one training, which is done once; most jobs hold a single trial.

    ``folder`` holds a folder per trial to work in, where a half-trained network waits to be resumed; None for a
    temporary one. With ``pack`` the files come back inside the outcome, for workers that cannot reach the store.
    """

    specs: tuple[TrialSpec, ...]
    folder: str | None = None
    pack: bool = False


class Outcome(NamedTuple):
    """Results of a job, and the packed files that belong into the store, by trial id and name."""

    job: Job
    results: tuple[TrialResult, ...]
    files: Mapping[str, Mapping[str, bytes]] = {}

    @classmethod
    def failed(cls, job: Job, error: str, *, seconds: float = 0.0) -> Outcome:
        """Every trial of the job failed for one reason, such as the death of its worker."""
        return cls(job, tuple(TrialResult(spec=spec, error=error, seconds=seconds) for spec in job.specs))


def _essential(spec: TrialSpec) -> dict[str, Any]:
    """Fields that are not at their default, so that a field added one day leaves old identities alone."""
    return {**_changed(spec), "recipe": _changed(spec.recipe)}


def _changed(item: Any) -> dict[str, Any]:
    found = {}
    for f in fields(item):
        default = f.default_factory() if f.default_factory is not MISSING else f.default
        value = getattr(item, f.name)
        if value != default:
            found[f.name] = value
    return found


def _digest(facts: Any) -> str:
    canonical = json.dumps(_canonical(facts), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()[:10]


def _canonical(value: Any) -> Any:
    """The same JSON for numbers that are equal: 1 and 1.0, but not True."""
    if isinstance(value, Mapping):
        return {str(key): _canonical(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_canonical(item) for item in value]
    if isinstance(value, float) and math.isfinite(value) and value == int(value):
        return int(value)
    return value
