"""The paper's argument on anybody's predictions: a worse model, made of yours, that a metric does not punish.

Constructions I, II and III follow the proofs of Props 1, 2 and 3; y_true never changes. Table 1 is read off
them: a verdict is what a metric did on these samples, or "not shown" where they cannot show it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from openauc._validation import UNKNOWN, Label
from openauc.metrics import decision, ranking
from openauc.metrics._kernel import CORRECT, UNKNOWN_KIND, WRONG, Ints, RankTable, read_samples
from openauc.metrics.counts import Coded, DecisionCounts, RankedModel, check_threshold, counts_at
from openauc.metrics.curve import Curve, Floats
from openauc.metrics.decision import ThresholdSweep

Answer = Literal["yes", "no", "not shown"]
_ROUNDING = 1e-12  # of interpolated heights; a real fall of the OSCR curve is at least 1 / (2 N_k N_u)

_AT_THRESHOLD: Mapping[str, Callable[[DecisionCounts], Floats]] = {
    **decision.DECISION_METRICS,
    "normalized_accuracy_with_aus_accuracy": lambda c: decision.normalized_accuracy_of(c, aus="accuracy"),
    "unknown_tpr": decision.unknown_tpr_of,
    "unknown_fpr": decision.unknown_fpr_of,
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


class Condition(NamedTuple):
    """Something a construction needs, with the numbers found, and whether it holds."""

    sentence: str
    holds: bool


@dataclass(frozen=True, eq=False)
class Construction:
    """A model made from the caller's by exchanging samples, and every metric before and after.

    ``complete``: the construction reached its end (I: every unknown sample is accepted; II: all but one are;
    III: no misclassified known sample ranks above a correct one). ``reaction`` says what OpenAUC did, ``curve`` is the
    new OSCR curve.
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
        """JSON-ready, without the two arrays; an infinite threshold becomes the string "-inf" or "inf"."""
        return {
            "name": self.name,
            "proposition": self.proposition,
            "threshold": self.threshold if math.isfinite(self.threshold) else str(self.threshold),
            "n_exchanges": self.n_exchanges,
            "complete": self.complete,
            "conditions": [condition._asdict() for condition in self.conditions],
            "before": dict(self.before),
            "after": dict(self.after),
            "reaction": self.reaction,
        }

    def __str__(self) -> str:
        extent = "complete" if self.complete else "as far as the samples allow"
        heading = f"{self.name} ({self.proposition}), threshold {self.threshold:.6g}: "
        lines = [heading + f"{self.n_exchanges} exchanges, {extent}"]
        lines += [f"  [{'x' if holds else ' '}] {sentence}" for sentence, holds in self.conditions]
        return "\n".join([*lines, f"  {self.reaction}"])


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
    model: RankedModel = field(repr=False)

    def table1(self) -> dict[str, dict[str, Verdict]]:
        """The paper's Table 1 as these predictions show it: metric -> property -> verdict.

        P1: falls when the classifier is broken on known samples and the scores stay. P2: falls when rejected
        unknown samples get accepted (construction I). P3: keeps its value when only the threshold changes.
        P4: is a single number. ``coupled``, not in the paper's table: falls in construction III.
        """
        return _table1(self)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready: the constructions without their arrays, and Table 1."""
        return {
            "n_known": self.n_known,
            "n_unknown": self.n_unknown,
            "constructions": [construction.to_dict() for construction in self.constructions],
            "table1": {
                row: {column: verdict._asdict() for column, verdict in verdicts.items()}
                for row, verdicts in self.table1().items()
            },
        }

    def __str__(self) -> str:
        values = [
            [name, *(f"{c.before[name]:.4f} -> {c.after[name]:.4f}" for c in self.constructions)]
            for name in self.constructions[0].before
        ]
        table = self.table1()
        columns = list(table["OpenAUC"])
        answers = [[row, *(verdicts[c].answer for c in columns)] for row, verdicts in table.items()]
        reasons = {
            f"{column} not shown: {verdict.because}"
            for verdicts in table.values()
            for column, verdict in verdicts.items()
            if verdict.answer == "not shown"
        }
        return "\n\n".join(
            [
                f"{self.n_known} known and {self.n_unknown} unknown samples",
                _align([["before -> after", *(c.name for c in self.constructions)], *values]),
                *map(str, self.constructions),
                "\n".join([_align([["Table 1", *columns], *answers]), *sorted(reasons)]),
            ]
        )


def _align(rows: list[list[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


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
        Where samples are rejected (score > threshold) in every construction. By default I and III use the
        threshold of the best macro F-score; II that of the best normalized accuracy among those meeting its
        conditions, or again the former if there is none.
    unknown_label
        The label of unknown samples.

    Returns
    -------
    Audit
        ``constructions``: I, II and III; where I could not get every unknown sample accepted (or found none
        rejected), it comes once more at the threshold of largest unknown TPR at which it can.
        ``table1()``: the verdicts.

    Undefined, hence an error, without known or without unknown samples.

    Examples
    --------
    At threshold 0.5 the unknown sample is rejected, the known sample of score 0.2 accepted but misclassified.
    Once they are exchanged the unknown one is accepted, which the F-score does not notice; OpenAUC does,
    because the correct sample of score 0.4 lies between them.

    >>> result = audit([0, 1, 1, -1], [0, 1, 0, 0], [0.1, 0.4, 0.2, 0.9], threshold=0.5)
    >>> first = result.constructions[0]
    >>> first.y_pred.tolist(), first.open_score.tolist()
    ([0, 1, 0, 0], [0.1, 0.4, 0.9, 0.2])
    >>> first.before["macro_f_score"] == first.after["macro_f_score"], first.after["unknown_tpr"]
    (True, 0.0)
    >>> round(first.before["openauc"], 3), round(first.after["openauc"], 3)
    (0.667, 0.333)
    """
    triple: Any = y_true if y_pred is None and open_score is None else (y_true, y_pred, open_score)
    if not isinstance(triple, tuple) or len(triple) != 3 or any(part is None for part in triple):
        raise TypeError("audit takes y_true, y_pred and open_score, or one Predictions that holds the three.")
    model = RankedModel(read_samples(*triple, unknown_label=unknown_label))
    ranking.warn_if_reversed(float(ranking.auroc_of(model.ranking.table)))
    return audit_model(model, None if threshold is None else check_threshold(threshold))


def audit_model(model: RankedModel, threshold: float | None = None) -> Audit:
    """The audit of a model that is ranked already."""
    samples = model.samples
    sweep = decision.sweep_of(model)
    best_f = sweep.best("macro_f_score").threshold
    at = best_f if threshold is None else threshold

    first = [_construct(model, "I", "Prop. 1", at, _exchange_with_wrong(model, at))]
    ahead = None if first[0].complete and first[0].n_exchanges else _complete_threshold(model)
    if ahead is not None:
        first.append(_construct(model, "I, complete", "Prop. 1", ahead, _exchange_with_wrong(model, ahead)))
    escape = _escape_threshold(model, sweep, otherwise=best_f) if threshold is None else threshold
    second = _construct(model, "II", "Prop. 2", escape, _accept_in_pairs(model, escape))
    third = _construct(model, "III", "Prop. 3", at, _exchange_among_known(model))
    return Audit(
        samples.y_true,
        samples.y_pred,
        samples.score,
        samples.unknown_label,
        samples.n_known,
        samples.n_unknown,
        (*first, second, third),
        model,
    )


class _Change(NamedTuple):
    """New class positions and scores of all samples, and how they came about."""

    pred: Ints
    score: NDArray[Any]
    n_exchanges: int = 0
    complete: bool = True
    conditions: tuple[Condition, ...] = ()
    remark: str = ""


def _construct(model: RankedModel, name: str, proposition: str, threshold: float, change: _Change) -> Construction:
    new = _apply(model.coded, change)
    before, after = _values(model, threshold), _values(new, threshold)
    return Construction(
        name=name,
        proposition=proposition,
        y_pred=new.samples.y_pred,
        open_score=new.samples.score,
        threshold=threshold,
        n_exchanges=change.n_exchanges,
        complete=change.complete,
        conditions=change.conditions,
        before=before,
        after=after,
        reaction=_reaction(before["openauc"], after["openauc"], change),
        curve=ranking.oscr_of(new.ranking.table),
    )


def _apply(coded: Coded, change: _Change) -> RankedModel:
    """The model with other predictions; classes stay even if no prediction names one any more."""
    samples = coded.samples
    names = np.append(coded.classes, samples.unknown_label)  # position -1 is the last
    new = read_samples(samples.y_true, names[change.pred], change.score, unknown_label=samples.unknown_label)
    return RankedModel(new, coded.classes.tolist())


def _values(model: RankedModel, threshold: float) -> dict[str, float]:
    counts = counts_at(model.coded, threshold)
    at_threshold = {name: float(formula(counts)) for name, formula in _AT_THRESHOLD.items()}
    auroc, accuracy = float(model.over_ranks(ranking.auroc_of)), float(model.over_ranks(ranking.accuracy_of))
    return at_threshold | {
        "auroc": auroc,
        "closed_set_accuracy": accuracy,
        "acc_times_auc": accuracy * auroc,
        "acc_plus_auc": accuracy + auroc,
        "openauc": float(model.over_ranks(ranking.openauc_of)),
        "openauc_strict": float(model.over_ranks(_openauc_strict)),
    }


def _openauc_strict(table: RankTable) -> Floats:
    return ranking.openauc_of(table, "strict")


def _reaction(before: float, after: float, change: _Change) -> str:
    if change.n_exchanges == 0:
        failed = "; ".join(sentence for sentence, holds in change.conditions if not holds)
        return f"Nothing was exchanged, so no metric moved. Not met: {failed}."
    verb = "fell strictly" if after < before else "rose" if after > before else "stayed the same"
    return f"OpenAUC {verb}, from {before:.6g} to {after:.6g}. {change.remark}"


class _Decided(NamedTuple):
    """Positions of the samples a construction can use at a threshold, by rising score."""

    rejected_unknown: Ints  # TP_{C+1} of them
    rejected_known: Ints  # FP_{C+1} of them
    accepted_wrong: Ints
    n_accepted_unknown: int


def _decide(model: RankedModel, threshold: float) -> _Decided:
    coded, by_score = model.coded, model.ranking.order
    kind = coded.samples.kind[by_score]
    accepted = ((coded.samples.score <= np.float64(threshold)) & (coded.pred >= 0))[by_score]
    unknown = kind == UNKNOWN_KIND
    return _Decided(
        by_score[unknown & ~accepted],
        by_score[~unknown & ~accepted],
        by_score[accepted & (kind == WRONG)],
        int(np.count_nonzero(unknown & accepted)),
    )


def _any_between(low: NDArray[Any], high: NDArray[Any], scores: NDArray[Any]) -> bool:
    """Whether one of ``scores`` lies in some [low_i, high_i], low_i < high_i (a tie at an end costs half)."""
    ascending = np.sort(scores)
    inside = np.searchsorted(ascending, high, "right") - np.searchsorted(ascending, low, "left")
    return bool(np.any((inside > 0) & (low < high)))


def _exchange_with_wrong(model: RankedModel, threshold: float) -> _Change:
    """Construction I: rejected unknown x1 and accepted misclassified known x2 trade decisions and scores.

    Every known class keeps its TP, FP and FN: x2 was missed before and is missed now, and the false positive
    of class h(x2) is x1 instead. The highest x1 and the lowest x2 come first, to break the most pairs.
    """
    coded, decided = model.coded, _decide(model, threshold)
    n_rejected, n_wrong = len(decided.rejected_unknown), len(decided.accepted_wrong)
    n = min(n_rejected, n_wrong)
    x1, x2 = decided.rejected_unknown[::-1][:n], decided.accepted_wrong[:n]
    pred, score = coded.pred.copy(), coded.samples.score.copy()
    pred[x1] = coded.pred[x2]
    pred[x2] = np.where(coded.pred[x1] < 0, -1, coded.pred[x2])  # a rejection by label moves along
    score[x1], score[x2] = coded.samples.score[x2], coded.samples.score[x1]
    correct = coded.samples.score[coded.samples.kind == CORRECT]
    # x1 moves up only if its label, not its score, had it rejected.
    strict = _any_between(score[x1], score[x2], correct) and not np.any(score[x1] > score[x2])
    false_positives = n_wrong + decided.n_accepted_unknown
    conditions = (
        Condition("an unknown sample is rejected", n_rejected > 0),
        Condition(
            f"the paper's sum_i FP_i >= TP_unknown ({false_positives} >= {n_rejected})",
            false_positives >= n_rejected,
        ),
        Condition(
            f"accepted misclassified known samples >= TP_unknown ({n_wrong} >= {n_rejected}), the number "
            "needed, since FP_i also counts accepted unknown samples, which have nothing to exchange",
            n_wrong >= n_rejected,
        ),
        Condition(
            "a correct known sample lies between the scores of an exchanged pair, no unknown sample moves up",
            strict,
        ),
    )
    remark = f"The extra condition that makes Prop. 5 strict, the last one, {'holds' if strict else 'fails'}."
    return _Change(pred, score, n, n == n_rejected, conditions, remark)


def _complete_threshold(model: RankedModel) -> float | None:
    """Lowest threshold (largest unknown TPR) at which construction I gets every unknown sample accepted."""
    ranked = model.ranking
    named = model.coded.pred[ranked.order] >= 0
    rejected_unknown = model.samples.n_unknown - ranked.at_thresholds(named & (ranked.kind == UNKNOWN_KIND))
    accepted_wrong = ranked.at_thresholds(named & (ranked.kind == WRONG))
    possible = np.flatnonzero((rejected_unknown > 0) & (accepted_wrong >= rejected_unknown))
    return float(ranked.threshold[possible[0]]) if len(possible) else None


def _accept_in_pairs(model: RankedModel, threshold: float) -> _Change:
    """Construction II: rejected unknown x1 is accepted as class y2 while known x2 of class y2 is set right.

    While x2 is a rejected known sample, TP_unknown and FP_unknown fall by one each: AKS stays and
    AUS = TP / (TP + FP) rises. These run out first, as FP < TP; then AUS = 1, and accepted misclassified x2
    take over: AKS rises. One unknown sample is left rejected, since AUS would be 0 / 0 without any.
    """
    coded, decided = model.coded, _decide(model, threshold)
    true_positive, false_positive = len(decided.rejected_unknown), len(decided.rejected_known)
    n_wrong = len(decided.accepted_wrong)
    missed = false_positive + n_wrong  # sum_i FN_i
    pure = true_positive > false_positive
    n = min(true_positive - 1, missed) if pure else 0
    x1 = decided.rejected_unknown[::-1][:n]
    x2 = np.concatenate([decided.rejected_known, decided.accepted_wrong])[:n]
    pred, score = coded.pred.copy(), coded.samples.score.copy()
    pred[x1] = pred[x2] = coded.true[x2]
    ceiling = score.dtype.type(threshold)
    if ceiling > np.float64(threshold):  # rounded up to the scores' precision, it would still be rejected
        ceiling = np.nextafter(ceiling, ceiling.dtype.type(-np.inf))
    for x in (x1, x2):  # the smallest change of score that gets a sample accepted
        score[x] = np.minimum(score[x], ceiling)
    needed = max(true_positive - false_positive - 1, 0)
    conditions = (
        Condition(f"the paper's sum_i FN_i >= TP_unknown ({missed} >= {true_positive})", missed >= true_positive),
        Condition(f"the paper's TP_unknown > FP_unknown ({true_positive} > {false_positive})", pure),
        Condition(
            f"accepted misclassified known samples for the steps that remain ({n_wrong} >= {needed})",
            n_wrong >= needed,
        ),
        Condition(
            f"TP_unknown >= 2 ({true_positive} >= 2), since one unknown sample has to stay rejected: "
            "without any, AUS is 0 / 0 (the proposition needs the convention AUS := 1 there)",
            true_positive >= 2,
        ),
    )
    remark = (
        "It gains from the known samples set right and loses from the unknown ones accepted; Prop. 6 bounds "
        "the unknown TPR only at thresholds that reject known samples."
    )
    return _Change(pred, score, n, pure and n == true_positive - 1, conditions, remark)


def _escape_threshold(model: RankedModel, sweep: ThresholdSweep, *, otherwise: float) -> float:
    """Threshold of the best normalized accuracy among those that meet the conditions of construction II."""
    ranked, samples = model.ranking, model.samples
    named = model.coded.pred[ranked.order] >= 0
    unknown = ranked.kind == UNKNOWN_KIND
    true_positive = samples.n_unknown - ranked.at_thresholds(named & unknown)
    false_positive = samples.n_known - ranked.at_thresholds(named & ~unknown)
    missed = samples.n_known - ranked.table.correct
    met = (missed >= true_positive) & (true_positive > false_positive) & (true_positive >= 2)
    if not met.any():
        return otherwise
    nacc = np.where(met, sweep.values["normalized_accuracy"], -np.inf)
    return float(ranked.threshold[np.argmax(nacc)])


def _exchange_among_known(model: RankedModel) -> _Change:
    """Construction III: misclassified known samples take the lowest known scores, correct ones the highest.

    A permutation of the known scores, so Acc, AUC and whatever combines them stay.
    """
    samples = model.samples
    score, kind = samples.score.copy(), samples.kind
    known = model.ranking.order[model.ranking.kind != UNKNOWN_KIND]
    low, high = np.split(known, [samples.n_known - samples.n_correct])
    x1, x2 = low[kind[low] == CORRECT], high[kind[high] == WRONG]  # as many of one as of the other
    apart = score[x1] < score[x2]
    x1, x2 = x1[apart], x2[apart]
    between = _any_between(score[x1], score[x2], score[kind == UNKNOWN_KIND])
    table = model.ranking.table
    acc, auc = float(ranking.accuracy_of(table)), float(ranking.auroc_of(table))
    conditions = (
        Condition(f"the paper's Acc != 1 and AUC != 1 ({acc:.6g}, {auc:.6g})", acc != 1 and auc != 1),
        Condition("a misclassified known sample ranks above a correct one", len(x1) > 0),
        Condition("an unknown sample lies between the scores of an exchanged pair", between),
    )
    remark = f"The last condition, which Acc != 1 and AUC != 1 do not ensure, {'holds' if between else 'fails'}."
    score[x1], score[x2] = score[x2], score[x1]
    return _Change(model.coded.pred, score, len(x1), True, conditions, remark)


def _break_classifier(coded: Coded) -> _Change:
    """Every correct known sample gets the label of the next class; all scores stay."""
    following = (coded.pred + 1) % len(coded.classes)
    return _Change(np.where(coded.samples.kind == CORRECT, following, coded.pred), coded.samples.score)


class _Measured(NamedTuple):
    values: Mapping[str, float]
    oscr_curve: Curve

    def row(self, name: str) -> float | Curve:
        return self.oscr_curve if name == "oscr_curve" else self.values[name]


def _table1(result: Audit) -> dict[str, dict[str, Verdict]]:
    coded = result.model.coded
    exchanges = [c for c in result.constructions if c.proposition == "Prop. 1"]
    accepting, permuting = max(exchanges, key=lambda c: c.n_exchanges), result.constructions[-1]
    at = permuting.threshold

    broken_model = _apply(coded, _break_classifier(coded))
    broken = _Measured(_values(broken_model, at), ranking.oscr_of(broken_model.ranking.table))
    curve = ranking.oscr_of(result.model.ranking.table)
    original, permuted = _Measured(permuting.before, curve), _Measured(permuting.after, permuting.curve)
    rejecting, accepted = _Measured(accepting.before, curve), _Measured(accepting.after, accepting.curve)
    over_thresholds = decision.sweep_of(result.model).values
    crossing = np.any((result.open_score <= at) != (permuting.open_score <= at))
    same_decisions = "" if crossing else "no exchanged sample crosses the threshold"
    unbreakable = _nothing_breaks(coded, at)

    def verdicts(name: str) -> dict[str, Verdict]:
        unmoved = same_decisions if name in over_thresholds else ""
        return {
            "P1": _falls(name, original, broken, unbreakable, result.n_unknown),
            "P2": _falls(name, rejecting, accepted, _not_worse(accepting), result.n_unknown),
            "P3": _keeps_value(original.values.get(name), over_thresholds.get(name)),
            "P4": _is_number(original.row(name)),
            "coupled": _falls(name, original, permuted, _not_worse(permuting) or unmoved, result.n_unknown),
        }

    return {row: verdicts(name) for row, name in _TABLE_ROWS.items()}


def _nothing_breaks(coded: Coded, threshold: float) -> str:
    """Why breaking the classifier may leave a faultless metric unmoved, if it may."""
    if len(coded.classes) == 1:
        return "there is a single known class, so no wrong one to predict"
    score, kind = coded.samples.score, coded.samples.kind
    right = score[(kind == CORRECT) & (score <= np.float64(threshold))]
    if right.size and right.min() < score[kind == UNKNOWN_KIND].max():
        return ""
    return "no correct known sample is accepted at the threshold and ranked below an unknown one"


def _not_worse(construction: Construction) -> str:
    """Why a construction may leave a faultless metric unmoved, if it may.

    Unless some sample lies between exchanged scores, the new model is no worse (proof of Prop. 5).
    """
    return "" if construction.conditions[-1].holds else construction.reaction


def _falls(name: str, old: _Measured, new: _Measured, obstacle: str, n_unknown: int) -> Verdict:
    if name == "oscr_curve":
        before, after = _farthest_apart(old.oscr_curve, new.oscr_curve, n_unknown)
    else:
        before, after = old.values[name], new.values[name]
    if after < before - _ROUNDING:
        return Verdict("yes", before, after, "falls")
    if obstacle:
        return Verdict("not shown", before, after, obstacle)
    return Verdict("no", before, after, "does not fall")


def _farthest_apart(one: Curve, other: Curve, n_unknown: int) -> tuple[float, float]:
    """Heights of two curves where they differ most; midpoints see below the top of a vertical step."""
    met = np.zeros(n_unknown + 1, dtype=bool)
    for curve in (one, other):
        met[np.rint(curve.x * n_unknown).astype(np.int64)] = True
    ends = np.flatnonzero(met) / n_unknown
    x = np.concatenate([ends, 0.5 * (ends[1:] + ends[:-1])])
    heights, other_heights = (np.interp(x, curve.x, curve.y) for curve in (one, other))  # top of a step, as ``at``
    column = np.argmax(np.abs(heights - other_heights))
    return float(heights[column]), float(other_heights[column])


def _keeps_value(value: float | None, over_thresholds: Floats | None) -> Verdict:
    if over_thresholds is None:
        return Verdict("yes", value, value, "takes no threshold")
    low, high = float(over_thresholds.min()), float(over_thresholds.max())
    if low < high:
        return Verdict("no", low, high, "moves with the threshold")
    return Verdict("not shown", low, high, "has one value at every threshold of these samples")


def _is_number(value: float | Curve) -> Verdict:
    if isinstance(value, Curve):
        return Verdict("no", None, None, f"is a curve of {len(value)} points")
    return Verdict("yes", value, value, f"is a {type(value).__name__}")
