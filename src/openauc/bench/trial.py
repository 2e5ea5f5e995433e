"""What to train and test, and what came of it: plain data with an identity.

Nothing here needs torch, except filling in a method's defaults and telling which trainings are the same.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

from openauc._validation import check_choice, check_fraction
from openauc.features.scores.base import HEADS, RULES
from openauc.features.scores.registry import SCORES
from openauc.methods import load_method, recipe_for
from openauc.protocols import PROTOCOLS, Protocol, get_protocol, is_protocol_file
from openauc.recipe import Recipe

Scalar = str | int | float | bool | None


DETECTORS = ("average_of_all", "isolation_forest", "one_class_svm", "local_outlier_factor")
"""Scores of embeddings for comparison only: the average of all scores, and scikit-learn's detectors of outliers."""
SETTABLE = ("backbone", "width", "weights", "train_images", "pseudo_unknown", "balanced", "precision", "compile")
"""Fields of a trial that have no option of their own on the command line."""


@dataclass(frozen=True, kw_only=True)
class TrialSpec:
    """One training and its test, said completely; equal specs give equal metrics wherever they run.

    Parameters
    ----------
    protocol, split
        Which classes are known, see ``openauc list protocols``; or a JSON file of one's own.
    method, method_args
        Name of the method and its options; those left out keep the method's defaults. On embeddings also one of
        ``HEADS``, which scikit-learn fits.
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
    score
        Name in ``SCORES``, one of ``RULES`` (of a head also of ``DETECTORS``), None for the method's own. It is no part
        of the training: one network serves many scores. For a rule, networks without some of the classes are trained
        beside it (``openauc.bench.folds``).
    balanced
        Test on as many known as unknown images.
    precision, compile
        Autocast of the training's forward pass, ``fp32``, ``bf16`` or ``fp16``; whether to compile the backbone.
    protocol_hash
        Of a protocol's file, so that the file is not changed unseen; None for a protocol by name.

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
    score: str | None = None
    balanced: bool = False
    precision: str = "fp32"
    compile: bool = False
    protocol_hash: str | None = None

    def __post_init__(self) -> None:
        if not is_protocol_file(self.protocol):
            count = len(PROTOCOLS[check_choice("protocol", self.protocol, PROTOCOLS)].splits)
            if not 0 <= self.split < count:
                raise ValueError(f"{self.protocol} has no split {self.split}; it has 0 to {count - 1}.")
        if self.seed < 0:
            raise ValueError(f"seed is {self.seed}; expected an integer from 0 upwards.")
        if self.score is not None:
            check_choice("score", self.score, (*SCORES, *RULES, *(DETECTORS if self.is_head else ())))
        check_choice("precision", self.precision, ("fp32", "bf16", "fp16"))
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
        """Spec with what protocol and method leave no choice about filled in.

        ``recipe`` is the name of one of the protocol's recipes or a recipe, by default the protocol's own or the one
        the method was published with; ``epochs`` scales it; without ``backbone`` it is the papers', without ``width``
        the protocol's. ``more`` are the other fields.
        """
        if is_protocol_file(protocol):
            protocol = str(Path(protocol).resolve())
            more["protocol_hash"] = _hash_of(protocol)
        chosen = get_protocol(protocol)
        if not 0 <= split < len(chosen.splits):
            raise ValueError(f"{protocol} has no split {split}; it has 0 to {len(chosen.splits) - 1}.")
        if method in HEADS:
            if not chosen.of_embeddings or recipe is not None or epochs is not None:
                raise ValueError(
                    f"{method!r} classifies embeddings, and has no recipe; {protocol!r} and it do not fit."
                )
            recipe, backbone = next(iter(chosen.recipes.values())), method
        elif not isinstance(recipe, Recipe):
            recipe = recipe_for(recipe, protocol, method, epochs=epochs)
        elif epochs is not None:
            raise ValueError("epochs scales a named recipe; a recipe of your own already has its epochs.")
        return cls(
            protocol=protocol,
            split=split,
            method=method,
            recipe=recipe,
            backbone=backbone or chosen.backbone or load_method(method).default_backbone(recipe.image_size),
            **{"width": chosen.width, **more},
        )

    @property
    def is_head(self) -> bool:
        """Whether scikit-learn fits it, on embeddings, and no network is trained."""
        return self.method in HEADS

    @property
    def protocol_name(self) -> str:
        """The protocol's name, that of its file without folder and suffix."""
        return Path(self.protocol).stem if is_protocol_file(self.protocol) else self.protocol

    @property
    def id(self) -> str:
        """Readable prefix and a hash of everything; the name of the trial's folder."""
        return f"{self.protocol_name}-{self.split}-{self.method}-s{self.seed}-{_digest(_essential(self))}"

    @property
    def training_id(self) -> str:
        """Equal for specs that train the same network; they differ in the test or the score only."""
        facts = self.training()
        return f"{facts['method']}-s{self.seed}-{_digest(facts)}"

    def training(self) -> dict[str, Any]:
        """Everything about the spec that the trained network depends on.

        CIFAR+10 and CIFAR+50 agree in it, for they differ in unknown classes alone; so do Softmax and CE+ under one
        recipe, for they differ in their score.
        """
        facts = _essential(self)
        for name in ("score", "balanced"):
            facts.pop(name, None)
        if not self.is_head:
            facts["method"] = vars(load_method(self.method)).get("trained_as") or self.method
        if self.protocol_hash is None:
            protocol = get_protocol(facts.pop("protocol"))
            facts |= {"source": str(protocol.known_source), "known": protocol.splits[facts.pop("split")].known}
        return facts

    def open_protocol(self) -> Protocol:
        """The protocol; a file that is no longer what it was when the trial was planned is refused."""
        if self.protocol_hash is not None and _hash_of(self.protocol) != self.protocol_hash:
            raise ValueError(
                f"{self.protocol} has changed since this trial was planned; undo the change to go on with it, or plan "
                "the trial anew, in another folder."
            )
        return get_protocol(self.protocol)

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
    ``predictions`` is the file in the trial's folder that they can be recomputed from.
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


def main_metric(results: Iterable[TrialResult]) -> str:
    """OpenAUC, or the accuracy where no trial was tested on unknown samples."""
    finished = [result.metrics for result in results if result.error is None]
    known_only = finished and all(set(found) == {"closed_set_accuracy"} for found in finished)
    return "closed_set_accuracy" if known_only else "openauc"


class Job(NamedTuple):
    """Trials that share one training, which is done once; most jobs hold a single trial.

    ``folder`` holds a folder per trial to work in, where a half-trained network waits to be resumed; None for a
    temporary one. With ``pack`` the files come back inside the outcome, for workers that cannot reach the store.
    """

    specs: tuple[TrialSpec, ...]
    folder: str | None = None
    pack: bool = False
    keep_features: bool = False

    def failed(self, error: str, seconds: float = 0.0) -> Outcome:
        """Every trial of the job failed for one reason, such as the death of its worker."""
        return Outcome(self, tuple(TrialResult(spec=spec, error=error, seconds=seconds) for spec in self.specs))

    def on_node(self, scratch: str | None) -> Job:
        """The job for a node of a cluster, which sends its files back inside the outcome."""
        if scratch is not None and self.folder is not None and Path(scratch).resolve() == Path(self.folder).resolve():
            raise ValueError(f"scratch is {scratch}, where the store keeps its trials; choose a folder of its own.")
        return self._replace(folder=scratch, pack=True)

    def from_node(self, outcome: Outcome) -> Outcome:
        """The outcome of this job; folders of finished trials are removed from the node's."""
        folder = outcome.job.folder
        if folder is not None and all(result.error is None for result in outcome.results):
            for spec in self.specs:
                shutil.rmtree(Path(folder) / spec.id, ignore_errors=True)
        return outcome._replace(job=self)


class Outcome(NamedTuple):
    """Results of a job, and the packed files that belong into the store, by trial id and name."""

    job: Job
    results: tuple[TrialResult, ...]
    files: Mapping[str, Mapping[str, bytes]] = {}


def _essential(spec: TrialSpec) -> dict[str, Any]:
    """Fields that are not at their default, so that a field added one day leaves old identities alone.

    A protocol's file is known by its content, wherever it lies.
    """
    facts = {**_changed(spec), "recipe": _changed(spec.recipe)}
    if spec.protocol_hash is not None:
        del facts["protocol"]
    return facts


def _hash_of(file: str) -> str:
    if not Path(file).is_file():
        raise FileNotFoundError(f"there is no protocol file {file}; a trial needs the one it was planned with.")
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16]


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
