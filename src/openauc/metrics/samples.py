"""Reading the triple of labels, predictions and scores: every metric begins here."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from openauc import _validation as check
from openauc._validation import Label, Vector, Weights

WRONG, CORRECT, UNKNOWN_KIND = 0, 1, 2
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Samples:
    """The checked triple, with each sample marked wrong, correct or unknown."""

    y_true: NDArray[Any]
    y_pred: NDArray[Any]
    score: NDArray[Any]
    kind: NDArray[np.uint8]
    unknown_label: Label
    n_known: int
    n_correct: int
    n_unknown: int
    weight: NDArray[Any] | None = None
    """Floats weigh the samples; integers say how often each of them occurred, and are part of the numbers above."""

    @property
    def counted(self) -> bool:
        """Whether every sample counts as one, however many of them an entry stands for."""
        return self.weight is None or self.weight.dtype.kind == "i"

    @cached_property
    def totals(self) -> tuple[float, float]:
        """Weight of the known and of the unknown samples: their numbers where none is given."""
        if self.weight is None or self.counted:
            return self.n_known, self.n_unknown
        return float(self.weight[self.kind != UNKNOWN_KIND].sum()), float(self.weight[self.kind == UNKNOWN_KIND].sum())

    @cached_property
    def sizes(self) -> tuple[float, float]:
        """Effective numbers of known and of unknown samples, (sum w)^2 / sum w^2 (Kish)."""
        if self.weight is None or self.counted:
            return self.n_known, self.n_unknown
        unknown = self.kind == UNKNOWN_KIND
        squares = [np.sum(self.weight**2, where=side) for side in (~unknown, unknown)]
        of_known, of_unknown = (float(w**2 / s) if s else 0.0 for w, s in zip(self.totals, squares, strict=True))
        return of_known, of_unknown

    def take(self, index: Ints) -> Samples:
        names = ["y_true", "y_pred", "score", "kind", *([] if self.weight is None else ["weight"])]
        taken = replace(self, **{name: getattr(self, name)[index] for name in names})
        times = taken.weight if self.counted else None
        n_wrong, n_correct, n_unknown = map(int, np.bincount(taken.kind, weights=times, minlength=3))
        return replace(taken, n_known=n_wrong + n_correct, n_correct=n_correct, n_unknown=n_unknown)

    def triple(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """The triple with unknown samples marked by the default label, as any metric function takes it."""
        if self.unknown_label == check.UNKNOWN:
            return self.y_true, self.y_pred, self.score
        mark: Any = str(check.UNKNOWN) if self.y_true.dtype.kind == "U" else check.UNKNOWN
        both = (self.y_true, self.y_pred)
        true, pred = (np.where(check.is_label(labels, self.unknown_label), mark, labels) for labels in both)
        return true, pred, self.score


def read_samples(
    y_true: Vector,
    y_pred: Vector,
    open_score: Vector,
    *,
    unknown_label: Label = check.UNKNOWN,
    need_unknown: bool = True,
    sample_weight: Weights = None,
) -> Samples:
    """Check the triple and mark its samples; there must be some."""
    samples = mark_samples(y_true, y_pred, open_score, unknown_label=unknown_label)
    check.require_samples(samples.n_known, samples.n_unknown, samples.unknown_label, unknown=need_unknown)
    if sample_weight is None:
        return samples
    weight = _as_weight(sample_weight, samples.kind, need_unknown=need_unknown)
    samples = replace(samples, weight=weight)
    return samples if weight.all() else samples.take(np.flatnonzero(weight))


def mark_samples(y_true: Vector, y_pred: Vector, open_score: Vector, *, unknown_label: Label) -> Samples:
    """Check the triple and mark its samples, of which there may be none."""
    unknown_label = check.as_label(unknown_label)
    true, pred = check.same_label_type(check.as_labels("y_true", y_true), check.as_labels("y_pred", y_pred))
    score = check.as_scores("open_score", open_score)
    check.check_same_length(y_true=true, y_pred=pred, open_score=score)
    unknown = check.is_label(true, unknown_label)
    smallest = int(true.min(initial=0)) if true.dtype.kind == "i" else 0
    if smallest == unknown_label:
        smallest = int(true[~unknown].min(initial=0)) if smallest < -1 else 0
    if smallest < 0:
        raise ValueError(
            f"y_true contains the label {smallest}; known classes are labelled from 0 and unknown samples "
            f"{unknown_label!r}. Relabel the samples or set unknown_label."
        )
    kind = (true == pred).view(np.uint8)
    np.maximum(kind, UNKNOWN_KIND * unknown.view(np.uint8), out=kind)
    n_correct, n_unknown = int(np.count_nonzero(kind == CORRECT)), int(np.count_nonzero(unknown))
    return Samples(true, pred, score, kind, unknown_label, len(kind) - n_unknown, n_correct, n_unknown)


def _as_weight(sample_weight: ArrayLike, kind: NDArray[np.uint8], *, need_unknown: bool) -> NDArray[np.float64]:
    weight = check.as_scores("sample_weight", sample_weight).astype(np.float64, copy=False)
    check.check_same_length(y_true=kind, sample_weight=weight)
    bad = np.flatnonzero(~((weight >= 0.0) & np.isfinite(weight)))
    if len(bad):
        raise ValueError(f"sample_weight is {weight[bad[0]]!r} for sample {bad[0]}; expected a finite number >= 0.")
    unknown = kind == UNKNOWN_KIND
    for side, chosen in (("known", ~unknown), ("unknown", unknown)):
        if (side == "known" or need_unknown) and not weight[chosen].any():
            raise ValueError(f"sample_weight is 0 for every {side} sample; the metric needs some of them.")
    return weight


def score_bits(score: NDArray[Any]) -> NDArray[np.signedinteger]:
    """The bits of each score as an integer."""
    return np.ascontiguousarray(score).view(f"i{score.dtype.itemsize}")


def key_of_bits(bits: Any, largest: Any) -> Any:
    """Integer in the order of the float with these signed ``bits``, at most ``largest``; -0.0 and 0.0 share key 0."""
    return (bits ^ ((bits >> 63) & largest)) + (bits == ~largest)
