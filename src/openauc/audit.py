"""The paper's argument on your predictions: a worse model, made from yours, that a metric does not punish.

Constructions I, II and III follow the proofs of Props 1, 2 and 3. A verdict of Table 1 is what a metric did on these
samples, or "not shown".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from openauc import constructions as build
from openauc._validation import UNKNOWN, Label, json_ready
from openauc.constructions import Change, Condition
from openauc.metrics import decision, ranking
from openauc.metrics.counts import Coded, DecisionCounts, RankedSamples, check_threshold, counts_at
from openauc.metrics.curve import Curve, Floats
from openauc.metrics.rank_table import RankTable
from openauc.metrics.samples import CORRECT, UNKNOWN_KIND, read_samples

Answer = Literal["yes", "no", "not shown"]
_ROUNDING = 1e-12  # of interpolated heights; a real fall of the OSCR curve is at least 1 / (2 N_k N_u)

_AT_THRESHOLD: Mapping[str, Callable[[DecisionCounts], Floats]] = {
    **decision.DECISION_METRICS,
    "normalized_accuracy_with_aus_accuracy": lambda c: decision.normalized_accuracy_of(c, aus="accuracy"),
    "unknown_tpr": decision.unknown_tpr_of,
    "unknown_fpr": decision.unknown_fpr_of,
}
_OF_TABLE: Mapping[str, Callable[[RankTable], Floats]] = {
    "auroc": ranking.auroc_of,
    "closed_set_accuracy": ranking.accuracy_of,
    "acc_times_auc": ranking.acc_times_auc_of,
    "acc_plus_auc": ranking.acc_plus_auc_of,
    "openauc": ranking.openauc_of,
    "openauc_strict": lambda table: ranking.openauc_of(table, "strict"),
}
_TABLE_ROWS: Mapping[str, str] = {
    "Open-set F-score": "macro_f_score",
    "Youden's index": "youden_index",
    "Normalized Accuracy": "normalized_accuracy",
    "AUC": "auroc",
    "OSCR curve": "oscr_curve",
    "OpenAUC": "openauc",
    "Acc * AUC": "acc_times_auc",
    "Acc + AUC": "acc_plus_auc",
}


@dataclass(frozen=True, eq=False)
class Construction:
    """A model made from the caller's by exchanging samples, and every metric before and after.

    ``complete``: every unknown sample is accepted (II: all but one; III: no misclassified known sample ranks above a
    correct one). ``reaction`` says what OpenAUC did, ``curve`` is the new OSCR curve.
    """

    name: str
    proposition: str
    y_pred: NDArray[Any]
    open_score: NDArray[Any]
    threshold: float
    n_exchanges: int
    complete: bool
    conditions: tuple[Condition, ...]
    before: Mapping[str, float]
    after: Mapping[str, float]
    reaction: str
    curve: Curve = field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, without arrays; an infinite threshold becomes the string "inf" or "-inf"."""
        values = {name: value for name, value in vars(self).items() if name not in ("y_pred", "open_score", "curve")}
        values["conditions"] = [condition._asdict() for condition in self.conditions]
        return {name: json_ready(value) for name, value in values.items()}


class Verdict(NamedTuple):
    """An answer of Table 1 with the two values it rests on.

    P1, P2 and coupled: before and after the change (of a curve, its heights where it moved most); P3: the
    smallest and the largest over all thresholds; P4: the value, None for a curve.
    """

    answer: Answer
    before: float | None
    after: float | None
    because: str


@dataclass(frozen=True, eq=False)
class Audit:
    """The caller's predictions and the models constructed from them.

    >>> result = audit([0, 1, 1, -1], [0, 1, 0, 0], [0.1, 0.4, 0.2, 0.9], threshold=0.5)
    >>> result.table1()["OpenAUC"]["P2"].answer
    'yes'
    """

    y_true: NDArray[Any]
    y_pred: NDArray[Any]
    open_score: NDArray[Any]
    unknown_label: Label
    n_known: int
    n_unknown: int
    constructions: tuple[Construction, ...]
    ranked: RankedSamples = field(repr=False)

    def table1(self) -> dict[str, dict[str, Verdict]]:
        """The paper's Table 1 as these predictions show it: metric -> property -> verdict.

        P1: falls when every correct class becomes wrong. P2: falls when rejected unknown samples get accepted
        (construction I). P3: keeps its value when only the threshold changes. P4: is a single number. ``coupled``, not
        in the paper's table: falls in construction III.
        """
        coded, ranked = self.ranked.coded, self.ranked
        exchanges = [c for c in self.constructions if c.proposition == "Prop. 1"]
        accepting, permuting = max(exchanges, key=lambda c: c.n_exchanges), self.constructions[-1]
        at = permuting.threshold
        broken = build.apply(coded, build.break_classifier(coded))
        curve, broken_curve = (ranking.oscr_of(part.ranking.table) for part in (ranked, broken))
        over_thresholds = decision.sweep_of(ranked).values
        crossing = np.any((self.open_score <= at) != (permuting.open_score <= at))
        same_decisions = "" if crossing else "no exchanged sample crosses the threshold"
        unbreakable, broken_values = _nothing_breaks(coded, at), _values(broken, at)

        def falls(name: str, old: Mapping[str, float], new: Mapping[str, float], moved: Curve, excuse: str) -> Verdict:
            if name == "oscr_curve":
                return _falls(*_farthest_apart(curve, moved, self.n_unknown), excuse)
            return _falls(old[name], new[name], excuse)

        def verdicts(name: str) -> dict[str, Verdict]:
            unmoved = same_decisions if name in over_thresholds else ""
            accepted, permuted = _not_worse(accepting), _not_worse(permuting) or unmoved
            value = permuting.before.get(name)
            points = Verdict("no", None, None, f"is a curve of {len(curve)} points")
            return {
                "P1": falls(name, permuting.before, broken_values, broken_curve, unbreakable),
                "P2": falls(name, accepting.before, accepting.after, accepting.curve, accepted),
                "P3": _keeps_value(value, over_thresholds.get(name)),
                "P4": points if value is None else Verdict("yes", value, value, "is a float"),
                "coupled": falls(name, permuting.before, permuting.after, permuting.curve, permuted),
            }

        return {row: verdicts(name) for row, name in _TABLE_ROWS.items()}

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready: the constructions without their arrays, and Table 1."""
        rows = self.table1().items()
        table1 = {row: {name: verdict._asdict() for name, verdict in verdicts.items()} for row, verdicts in rows}
        made = [construction.to_dict() for construction in self.constructions]
        return {"n_known": self.n_known, "n_unknown": self.n_unknown, "constructions": made, "table1": table1}


def audit(
    y_true: ArrayLike | tuple[ArrayLike, ArrayLike, ArrayLike],
    y_pred: ArrayLike | None = None,
    open_score: ArrayLike | None = None,
    *,
    threshold: float | None = None,
    unknown_label: Label = UNKNOWN,
) -> Audit:
    """Build from these predictions the worse models of Props 1-3 and show how each metric reacts.

    Parameters
    ----------
    y_true, y_pred, open_score
        (N,) the triple of ``openauc_score``, or one ``Predictions`` instead of the three.
    threshold
        Samples with score > threshold are rejected in every construction. By default the threshold of the best macro
        F-score; in II that of the best normalized accuracy among those that meet its conditions, if there is one.
    unknown_label
        The label of unknown samples.

    Returns
    -------
    Audit
        ``constructions``: I, II and III; where I cannot get every unknown sample accepted, or none is rejected, it
        comes once more at the lowest threshold where it can. ``table1()``: the verdicts.

    Examples
    --------
    At threshold 0.5 the unknown sample is rejected, the known sample of score 0.2 accepted but misclassified. They are
    exchanged: the F-score stays, OpenAUC falls, because the correct sample of score 0.4 lies between them.

    >>> result = audit([0, 1, 1, -1], [0, 1, 0, 0], [0.1, 0.4, 0.2, 0.9], threshold=0.5)
    >>> first = result.constructions[0]
    >>> first.before["macro_f_score"] == first.after["macro_f_score"], first.after["unknown_tpr"]
    (True, 0.0)
    >>> round(first.before["openauc"], 3), round(first.after["openauc"], 3)
    (0.667, 0.333)
    """
    triple: Any = y_true if y_pred is None and open_score is None else (y_true, y_pred, open_score)
    if not isinstance(triple, tuple) or len(triple) != 3 or any(part is None for part in triple):
        raise TypeError("audit takes y_true, y_pred and open_score, or one Predictions that holds the three.")
    ranked = RankedSamples(read_samples(*triple, unknown_label=unknown_label))
    ranking.warn_if_reversed(float(ranking.auroc_of(ranked.ranking.table)))
    return audit_ranked(ranked, None if threshold is None else check_threshold(threshold))


def audit_ranked(ranked: RankedSamples, threshold: float | None = None) -> Audit:
    """The audit of samples that are ranked already."""
    samples = ranked.samples
    sweep = decision.sweep_of(ranked)
    best_f = sweep.best("macro_f_score").threshold
    at = best_f if threshold is None else threshold

    made = [_construct(ranked, "I", "Prop. 1", at, build.exchange_with_wrong(ranked, at))]
    ahead = None if made[0].complete and made[0].n_exchanges else build.complete_threshold(ranked)
    if ahead is not None:
        made.append(_construct(ranked, "I, complete", "Prop. 1", ahead, build.exchange_with_wrong(ranked, ahead)))
    escape = build.escape_threshold(ranked, sweep, otherwise=best_f) if threshold is None else threshold
    made.append(_construct(ranked, "II", "Prop. 2", escape, build.accept_in_pairs(ranked, escape)))
    made.append(_construct(ranked, "III", "Prop. 3", at, build.exchange_among_known(ranked)))
    sizes = samples.n_known, samples.n_unknown
    return Audit(samples.y_true, samples.y_pred, samples.score, samples.unknown_label, *sizes, tuple(made), ranked)


def _construct(ranked: RankedSamples, name: str, proposition: str, threshold: float, change: Change) -> Construction:
    new = build.apply(ranked.coded, change)
    before, after = _values(ranked, threshold), _values(new, threshold)
    found = (change.n_exchanges, change.complete, change.conditions, before, after)
    reaction, curve = _reaction(before["openauc"], after["openauc"], change), ranking.oscr_of(new.ranking.table)
    return Construction(name, proposition, new.samples.y_pred, new.samples.score, threshold, *found, reaction, curve)


def _values(ranked: RankedSamples, threshold: float) -> dict[str, float]:
    counts, table = counts_at(ranked.coded, threshold), ranked.ranking.table
    at_threshold = {name: float(formula(counts)) for name, formula in _AT_THRESHOLD.items()}
    return at_threshold | {name: float(formula(table)) for name, formula in _OF_TABLE.items()}


def _reaction(before: float, after: float, change: Change) -> str:
    if change.n_exchanges == 0:
        failed = "; ".join(sentence for sentence, holds in change.conditions if not holds)
        return f"Nothing was exchanged, so no metric moved. Not met: {failed}."
    verb = "fell strictly" if after < before else "rose" if after > before else "stayed the same"
    return f"OpenAUC {verb}, from {before:.6g} to {after:.6g}. {change.remark}"


def _nothing_breaks(coded: Coded, threshold: float) -> str:
    """Why wrong classes may leave even a good metric unmoved, if they may."""
    if len(coded.classes) == 1:
        return "there is a single known class, so no wrong one to predict"
    score, kind = coded.samples.score, coded.samples.kind
    right = score[(kind == CORRECT) & (score <= np.float64(threshold))]
    if right.size and right.min() < score[kind == UNKNOWN_KIND].max():
        return ""
    return "no correct known sample is accepted at the threshold and ranked below an unknown one"


def _not_worse(construction: Construction) -> str:
    """Why the new model may not be worse: no sample lies between exchanged scores (proof of Prop. 5)."""
    return "" if construction.conditions[-1].holds else construction.reaction


def _falls(before: float, after: float, excuse: str) -> Verdict:
    """Whether a metric falls; with an ``excuse``, a metric that does not proves nothing."""
    if after < before - _ROUNDING:
        return Verdict("yes", before, after, "falls")
    return Verdict("not shown" if excuse else "no", before, after, excuse or "does not fall")


def _farthest_apart(one: Curve, other: Curve, n_unknown: int) -> tuple[float, float]:
    """Heights of two curves where they differ most; midpoints see below the top of a vertical step."""
    met = np.zeros(n_unknown + 1, dtype=bool)
    for curve in (one, other):
        met[np.rint(curve.x * n_unknown).astype(np.int64)] = True
    ends = np.flatnonzero(met) / n_unknown
    x = np.concatenate([ends, 0.5 * (ends[1:] + ends[:-1])])
    heights, other_heights = (np.interp(x, curve.x, curve.y) for curve in (one, other))  # top of a step, as ``at``
    place = np.argmax(np.abs(heights - other_heights))
    return float(heights[place]), float(other_heights[place])


def _keeps_value(value: float | None, over_thresholds: Floats | None) -> Verdict:
    if over_thresholds is None:
        return Verdict("yes", value, value, "takes no threshold")
    low, high = float(over_thresholds.min()), float(over_thresholds.max())
    if low < high:
        return Verdict("no", low, high, "moves with the threshold")
    return Verdict("not shown", low, high, "has one value at every threshold of these samples")
