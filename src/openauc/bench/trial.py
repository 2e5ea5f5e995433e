"""Results of trials, and the jobs that run them: plain data, without torch."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from openauc.training.spec import SETTABLE, Scalar, TrialSpec

__all__ = ["SETTABLE", "Job", "Outcome", "Scalar", "TrialResult", "TrialSpec", "Watch", "main_metric"]


@dataclass(frozen=True, kw_only=True)
class TrialResult:
    """Result of a trial: metrics with intervals, or an error.

    ``groups`` holds the metrics against each group of unknown classes, such as CUB's easy, medium and hard;
    ``predictions`` is the file in the trial's folder from which the metrics can be computed again.
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
        return {**vars(self), "spec": self.spec.to_dict()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TrialResult:
        """Result from what :meth:`to_dict` wrote; a value of the wrong type raises ValueError or TypeError."""

        def numbers(found: Mapping[str, Any]) -> dict[str, float]:
            return {name: float(value) for name, value in found.items()}

        read = {
            "spec": TrialSpec.from_dict(values["spec"]),
            "metrics": numbers(values["metrics"]),
            "intervals": {name: (float(low), float(high)) for name, (low, high) in values["intervals"].items()},
            "groups": {group: numbers(found) for group, found in values["groups"].items()},
            "seconds": float(values["seconds"]),
            "environment": {name: str(fact) for name, fact in values["environment"].items()},
        }
        for name in ("predictions", "error"):
            if not isinstance(values[name], str | None):
                raise TypeError(f"{name} is {values[name]!r}")
        return cls(**{**values, **read})


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
        """The outcome if all trials of the job failed for one reason, such as the death of its worker."""
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


class Watch:
    """Receives the progress of a run; this base class ignores it."""

    def planned(self, waiting: Sequence[TrialSpec], done: Sequence[TrialResult]) -> None:
        """The run begins, with these trials to do and these done before."""

    def started(self, specs: Sequence[TrialSpec]) -> None:
        """A job was given to a worker."""

    def finished(self, result: TrialResult) -> None:
        """A result, good or bad, is in the store."""
