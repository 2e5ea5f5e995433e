"""What a fit tried, and the results on held-out classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from openauc.intervals import Interval


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
        """A few sentences, and the table."""
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
            named = ", ".join(self.small_classes[:5])
            more = f" and {len(self.small_classes) - 5} more" if len(self.small_classes) > 5 else ""
            lines.append(f"Too few rows for a guarantee of their own: {named}{more}.")
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
