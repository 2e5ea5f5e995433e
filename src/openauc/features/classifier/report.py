"""What a fit tried, and the results on held-out classes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from openauc._validation import named
from openauc.features.classifier.evidence import Scored, below
from openauc.features.scores.base import Floats
from openauc.intervals import Interval

if TYPE_CHECKING:
    from openauc.features.classifier.estimator import OpenSetClassifier

GUARANTEE_ROOM = 0.02  # a change of acceptance or forecast up to this size is not reported


@dataclass(frozen=True)
class Tried:
    """A rejector and its OpenAUC on held-out classes, with a 95 % interval over these classes."""

    name: str
    openauc: float
    interval: Interval

    def shifted(self, gain: float) -> Tried:
        """The same with an estimated gain, which is uncertain by its own size."""
        value, (low, high) = min(self.openauc + gain, 1.0), self.interval
        below, above = np.hypot(self.openauc - low, gain), np.hypot(high - self.openauc, gain)
        return Tried(self.name, value, Interval(max(float(value - below), 0.0), min(float(value + above), 1.0)))


@dataclass(frozen=True, kw_only=True)
class FitReport:
    """What :class:`~openauc.features.OpenSetClassifier` tried and chose; ``str()`` is a text.

    Parameters
    ----------
    n_samples, n_classes, n_outliers, width
        Number of training samples of known classes, of classes, of outliers, and of features.
    n_added
        How many of the samples were added after the fit, which was when results on new classes were forecast.
    head, strength, accuracy
        The head, its strength, and its accuracy on samples it was not trained on (cross-fitted).
    tried
        Rejectors by OpenAUC on held-out classes, the best first; empty where classes are too few to hold any out.
    chosen
        Name of the rejector in use.
    max_ofpr
        The tried values are partial OpenAUC up to this share of accepted unknown samples, if not None.
    near_copies
        Rows that are a copy, or nearly one, of another row.
    small_classes
        Names of the classes that have too few rows for a guarantee.
    notes
        Remarks, one sentence each.
    """

    n_samples: int
    n_classes: int
    n_outliers: int
    width: int
    head: str
    strength: float
    accuracy: float
    chosen: str
    n_added: int = 0
    tried: tuple[Tried, ...] = ()
    max_ofpr: float | None = None
    near_copies: int = 0
    small_classes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def expected(self) -> Tried | None:
        """The result of the rejector in use on held-out classes; None if there is none."""
        return next((tried for tried in self.tried if tried.name == self.chosen), None)

    def __str__(self) -> str:
        metric = "OpenAUC" if self.max_ofpr is None else f"partial OpenAUC (OFPR <= {self.max_ofpr:g})"
        lines = [
            f"{self.n_samples:,} samples of {self.n_classes} known classes, {self.width} features"
            + (f", and {self.n_outliers:,} outliers" if self.n_outliers else "")
            + f"; head {self.head} (strength {self.strength:g}), accuracy {self.accuracy:.4f} on samples it was not "
            "trained on."
        ]
        if self.tried:
            lines.append(f"{metric} on held-out known classes, 95 % interval over these classes:")
            lines += [
                f"  {'*' if tried.name == self.chosen else ' '} {tried.name:<24} {tried.openauc:.4f}   "
                f"{tried.interval.low:.4f} - {tried.interval.high:.4f}"
                for tried in self.tried
            ]
            lines.append(f"* in use: {self.chosen}. Heads of these folds know fewer classes than the one in use.")
        else:
            few = " The classes are too few to hold any out, so nothing was compared." if self.n_classes < 3 else ""
            lines.append(f"In use: {self.chosen}.{few or ' Nothing is forecast.'}")
        if self.small_classes:
            lines.append(f"Too few rows for a guarantee of their own: {named(self.small_classes, 5)}.")
        return "\n".join([*lines, *(f"Note: {note}" for note in self.notes)])

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self) | {"tried": [[tried.name, tried.openauc, *tried.interval] for tried in self.tried]}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> FitReport:
        """What :meth:`to_dict` wrote."""
        tried = tuple(Tried(name, value, Interval(low, high)) for name, value, low, high in values["tried"])
        texts = {name: tuple(values.get(name, ())) for name in ("small_classes", "notes")}
        return cls(**{**values, "tried": tried, **texts})


def with_other_rows(model: OpenSetClassifier, calibration: Scored, alike: Scored | None) -> Iterator[str]:
    """Sentences about rows to come of which fewer would be accepted, or of which OpenAUC would be lower."""
    size = np.bincount(calibration.label, minlength=len(model.classes_))
    evenly = 1.0 / size[calibration.label]
    others = [("all classes come equally often", calibration, evenly, "Then calibrate(X, y) with such rows.")]
    if alike is not None:
        condition = "rows come without the near neighbours that many of these have"
        way_out = "Pass groups= (rows that belong together share a group), or calibrate(X, y) with new rows."
        others.append((condition, alike, np.ones(len(alike.label)), way_out))
    unknown = np.sort(model.held_out_scores_[model.held_out_kinds_ < 0])

    def expect(rows: Scored, weight: Floats | None) -> tuple[float, float]:
        """Share of known rows that are accepted, and OpenAUC against samples of held-out classes."""
        accepted = float(np.average(rows.scores <= model.thresholds_[rows.predicted], weights=weight))
        above = 1.0 - below(unknown, rows.scores) / max(len(unknown), 1)
        return accepted, float(np.average(above * rows.correct, weights=weight))

    usual, now = expect(calibration, None)
    expected = model.report_.expected if model.max_ofpr is None else None
    for condition, rows, weight, way_out in others:
        accepted, openauc = expect(rows, weight)
        changes = [f"{accepted:.3f} of the known rows are accepted instead of {usual:.3f}"]
        chance = 2.0 * np.sqrt(usual * (1.0 - usual) * (weight**2).sum()) / weight.sum()
        lower = usual - accepted > max(GUARANTEE_ROOM, chance)
        if expected is not None:
            forecast = expected.openauc + openauc - now
            changes.append(f"OpenAUC is about {forecast:.3f} instead of {expected.openauc:.3f}")
            lower |= forecast < min(expected.interval.low, expected.openauc - GUARANTEE_ROOM)
        if lower:
            yield f"If {condition}, {' and '.join(changes)}. {way_out}"
