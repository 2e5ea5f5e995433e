"""The paper's argument on your predictions: a worse model, made from yours, that a metric does not punish.

Three models are made by exchanging samples. In the first, unknown samples are accepted and the F-score stays. In the
second, unknown samples are accepted and the normalized accuracy rises. In the third, wrong answers get the confident
scores, and accuracy and AUROC stay. These are the constructions I, II and III, from the proofs of Props 1, 2 and 3. A
verdict of Table 1 is what a metric did on these samples, or "not shown".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from openauc._validation import ROUNDING, UNKNOWN, Label, json_ready
from openauc.metrics import decision, ranking
from openauc.metrics.counts import Coded, DecisionCounts, RankedSamples, check_threshold, counts_at
from openauc.metrics.curve import Curve, Floats
from openauc.metrics.rank_table import RankTable
from openauc.metrics.samples import CORRECT, UNKNOWN_KIND, WRONG, Ints, read_samples

Answer = Literal["yes", "no", "not shown"]

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


_STORIES: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "Prop. 1": (
        "Unknown samples get accepted. {n} rejected unknown samples trade places with as many known ones that were "
        "accepted with a wrong class. Each class keeps its hits and its false alarms.",
        {"unknown_tpr": "The share of unknown samples rejected", "macro_f_score": "The F-score"},
    ),
    "Prop. 2": (
        "Unknown samples get accepted. {n} rejected unknown samples are accepted, and each time one known sample is "
        "set right.",
        {"unknown_tpr": "The share of unknown samples rejected", "normalized_accuracy": "Normalized accuracy"},
    ),
    "Prop. 3": (
        "Wrong answers look sure. {n} known samples with a wrong class trade scores with correct ones, so that the "
        "mistakes are accepted first.",
        {"closed_set_accuracy": "Accuracy", "auroc": "AUROC"},
    ),
}
"""What each construction exchanges, and the metrics that do not notice."""


def _went(before: float, after: float) -> str:
    old, new = f"{before:.4f}", f"{after:.4f}"
    return f"stays at {new}" if old == new else f"{'falls' if after < before else 'rises'} from {old} to {new}"


PROPERTIES: Mapping[str, str] = {
    "P1": "falls when correct classes become wrong",
    "P2": "falls when rejected unknown samples get accepted",
    "P3": "keeps its value when only the threshold changes",
    "P4": "is a single number",
    "coupled": "falls when wrong answers get the confident scores; not in the paper's table",
}
"""What the columns of :meth:`Audit.table1` ask of a metric."""


class Condition(NamedTuple):
    """Something a construction needs, with the numbers found, and whether it holds."""

    sentence: str
    holds: bool


@dataclass(frozen=True, eq=False)
class Construction:
    """A model made from the caller's by exchanging samples, and every metric before and after.

    ``complete``: every unknown sample is accepted (II: all but one; III: no misclassified known sample ranks above a
    correct one). ``reaction`` says what OpenAUC did, ``curve`` is the new OSCR curve. ``story`` and ``proof`` tell it
    in words.
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

    @property
    def story(self) -> str:
        """What was exchanged, and what became of the metrics, in words."""
        if not self.n_exchanges:
            return self.reaction
        told, shown = _STORIES[self.proposition]
        values = {**shown, "openauc": "OpenAUC"}.items()
        went = (f"{label} {_went(self.before[name], self.after[name])}" for name, label in values)
        return f"{told.format(n=f'{self.n_exchanges:,}')} {'. '.join(went)}."

    @property
    def proof(self) -> str:
        """What the proof of the proposition needs, and whether these samples have it."""
        extent = "all that the proof asks for" if self.complete else "as many as these samples allow"
        needs = (f"{'met' if holds else 'not met'}: {sentence}" for sentence, holds in self.conditions)
        heading = f"{self.name} ({self.proposition}), threshold {self.threshold:.6g}, {self.n_exchanges:,} exchanges"
        return "\n".join([f"{heading}, {extent}", *needs, self.reaction])

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
        wrong_class = (coded.pred + 1) % len(coded.classes)
        broken = _apply(
            coded, Change(np.where(coded.samples.kind == CORRECT, wrong_class, coded.pred), self.open_score)
        )
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
    samples, sweep = ranked.samples, decision.sweep_of(ranked)
    at = sweep.best("macro_f_score").threshold if threshold is None else threshold
    made = [_construct(ranked, "I", "Prop. 1", at, _exchange_with_wrong(ranked, at))]
    ahead = None if made[0].complete and made[0].n_exchanges else _complete_threshold(ranked)
    if ahead is not None:
        made.append(_construct(ranked, "I, complete", "Prop. 1", ahead, _exchange_with_wrong(ranked, ahead)))
    escape = _escape_threshold(ranked, sweep, otherwise=at) if threshold is None else threshold
    made.append(_construct(ranked, "II", "Prop. 2", escape, _accept_in_pairs(ranked, escape)))
    made.append(_construct(ranked, "III", "Prop. 3", at, _exchange_among_known(ranked)))
    sizes = samples.n_known, samples.n_unknown
    return Audit(samples.y_true, samples.y_pred, samples.score, samples.unknown_label, *sizes, tuple(made), ranked)


def _construct(ranked: RankedSamples, name: str, proposition: str, threshold: float, change: Change) -> Construction:
    new = _apply(ranked.coded, change)
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
    if after < before - ROUNDING:  # of interpolated heights; a real fall is at least 1 / (2 N_k N_u)
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


class Change(NamedTuple):
    """New class positions and scores of all samples, and how they came about."""

    pred: Ints
    score: NDArray[Any]
    n_exchanges: int = 0
    complete: bool = True
    conditions: tuple[Condition, ...] = ()
    remark: str = ""


def _apply(coded: Coded, change: Change) -> RankedSamples:
    """The samples with other predictions and the same classes."""
    samples = coded.samples
    names = np.append(coded.classes, samples.unknown_label)  # position -1 is the last
    new = read_samples(samples.y_true, names[change.pred], change.score, unknown_label=samples.unknown_label)
    return RankedSamples(new, coded.classes.tolist())


def _decide(ranked: RankedSamples, threshold: float) -> tuple[Ints, Ints, Ints]:
    """Positions of the rejected unknown, rejected known and accepted misclassified samples, by rising score."""
    by_score = ranked.ranking.order
    kind, accepted = ranked.samples.kind[by_score], ranked.coded.accepted_at(threshold)[by_score]
    unknown = kind == UNKNOWN_KIND
    return by_score[unknown & ~accepted], by_score[~unknown & ~accepted], by_score[accepted & (kind == WRONG)]


def _any_between(low: NDArray[Any], high: NDArray[Any], scores: NDArray[Any]) -> bool:
    """Whether one of ``scores`` lies in some [low_i, high_i], low_i < high_i (a tie at an end costs half)."""
    ascending = np.sort(scores)
    inside = np.searchsorted(ascending, high, "right") - np.searchsorted(ascending, low, "left")
    return bool(np.any((inside > 0) & (low < high)))


def _exchange_with_wrong(ranked: RankedSamples, threshold: float) -> Change:
    """Construction I: rejected unknown x1 and accepted misclassified known x2 trade decisions and scores.

    Every known class keeps its TP, FP and FN. The highest x1 and the lowest x2 come first, to break the most pairs.
    """
    coded, (rejected, _, wrong) = ranked.coded, _decide(ranked, threshold)
    n_rejected, n_wrong = len(rejected), len(wrong)
    n = min(n_rejected, n_wrong)
    x1, x2 = rejected[::-1][:n], wrong[:n]
    pred, score = coded.pred.copy(), coded.samples.score.copy()
    pred[x1] = coded.pred[x2]
    pred[x2] = np.where(coded.pred[x1] < 0, -1, coded.pred[x2])  # a rejection by label moves along
    score[x1], score[x2] = coded.samples.score[x2], coded.samples.score[x1]
    correct = coded.samples.score[coded.samples.kind == CORRECT]
    # x1 moves up only if its label, not its score, had it rejected.
    strict = _any_between(score[x1], score[x2], correct) and not np.any(score[x1] > score[x2])
    false_positives = n_wrong + coded.samples.n_unknown - n_rejected
    conditions = (
        Condition("an unknown sample is rejected", n_rejected > 0),
        Condition(
            f"the paper's sum_i FP_i >= TP_unknown ({false_positives} >= {n_rejected})", false_positives >= n_rejected
        ),
        Condition(
            f"accepted misclassified known samples >= TP_unknown ({n_wrong} >= {n_rejected}), the number "
            "needed, since FP_i also counts accepted unknown samples, which have nothing to exchange",
            n_wrong >= n_rejected,
        ),
        Condition(
            "a correct known sample lies between the scores of an exchanged pair, no unknown sample moves up", strict
        ),
    )
    remark = f"The extra condition that makes Prop. 5 strict, the last one, {'holds' if strict else 'fails'}."
    return Change(pred, score, n, n == n_rejected, conditions, remark)


def _complete_threshold(ranked: RankedSamples) -> float | None:
    """Lowest threshold (largest unknown TPR) at which construction I gets every unknown sample accepted."""
    rejected = ranked.samples.n_unknown - np.asarray(ranked.counts.accepted_unknown)
    wrong = np.subtract(ranked.counts.accepted_known, ranked.counts.correct)
    possible = np.flatnonzero((rejected > 0) & (wrong >= rejected))
    return float(ranked.ranking.threshold[possible[0]]) if len(possible) else None


def _accept_in_pairs(ranked: RankedSamples, threshold: float) -> Change:
    """Construction II: rejected unknown x1 is accepted as class y2 while known x2 of class y2 is set right.

    First x2 are rejected known samples: AKS stays and AUS = TP / (TP + FP) rises to 1. Then x2 are accepted
    misclassified samples: AKS rises. One unknown sample is left rejected, since AUS would be 0 / 0 without any.
    """
    coded, (rejected, rejected_known, wrong) = ranked.coded, _decide(ranked, threshold)
    true_positive, false_positive, n_wrong = len(rejected), len(rejected_known), len(wrong)
    missed = false_positive + n_wrong  # sum_i FN_i
    pure = true_positive > false_positive
    n = min(true_positive - 1, missed) if pure else 0
    x1, x2 = rejected[::-1][:n], np.concatenate([rejected_known, wrong])[:n]
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
            f"accepted misclassified known samples for the steps that remain ({n_wrong} >= {needed})", n_wrong >= needed
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
    return Change(pred, score, n, pure and n == true_positive - 1, conditions, remark)


def _escape_threshold(ranked: RankedSamples, sweep: decision.ThresholdSweep, *, otherwise: float) -> float:
    """Threshold of the best normalized accuracy among those that meet the conditions of construction II."""
    counts, samples = ranked.counts, ranked.samples
    true_positive = samples.n_unknown - np.asarray(counts.accepted_unknown)
    false_positive, missed = (samples.n_known - np.asarray(part) for part in (counts.accepted_known, counts.correct))
    met = (missed >= true_positive) & (true_positive > false_positive) & (true_positive >= 2)
    if not met.any():
        return otherwise
    nacc = np.where(met, sweep.values["normalized_accuracy"], -np.inf)
    return float(sweep.threshold[np.argmax(nacc)])


def _exchange_among_known(ranked: RankedSamples) -> Change:
    """Construction III: misclassified known samples take the lowest known scores; Acc and AUC stay."""
    samples = ranked.samples
    score, kind = samples.score.copy(), samples.kind
    known = ranked.ranking.order[ranked.ranking.kind != UNKNOWN_KIND]
    low, high = np.split(known, [samples.n_known - samples.n_correct])
    x1, x2 = low[kind[low] == CORRECT], high[kind[high] == WRONG]  # as many of one as of the other
    apart = score[x1] < score[x2]
    x1, x2 = x1[apart], x2[apart]
    between = _any_between(score[x1], score[x2], score[kind == UNKNOWN_KIND])
    table = ranked.ranking.table
    acc, auc = float(ranking.accuracy_of(table)), float(ranking.auroc_of(table))
    conditions = (
        Condition(f"the paper's Acc != 1 and AUC != 1 ({acc:.6g}, {auc:.6g})", acc != 1 and auc != 1),
        Condition("a misclassified known sample ranks above a correct one", len(x1) > 0),
        Condition("an unknown sample lies between the scores of an exchanged pair", between),
    )
    remark = f"The last condition, which Acc != 1 and AUC != 1 do not ensure, {'holds' if between else 'fails'}."
    score[x1], score[x2] = score[x2], score[x1]
    return Change(ranked.coded.pred, score, len(x1), True, conditions, remark)
