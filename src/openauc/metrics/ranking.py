"""Metrics of the ranking: without a threshold, or at a threshold that the curve defines.

Unknown is the positive class. Each ``*_of`` formula takes a ``RankTable``; leading axes hold bootstrap replicates.
"""

from __future__ import annotations

import warnings
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from openauc import _validation as check
from openauc._validation import UNKNOWN, Label, Vector, Weights
from openauc.metrics.curve import Curve, Floats, segment_areas
from openauc.metrics.rank_table import TINY, Counts, RankTable, compiled, exact_dot, may_overflow, rank
from openauc.metrics.samples import CORRECT, UNKNOWN_KIND, WRONG, Samples, read_samples

Ties = Literal["half", "strict"]
Side = Literal["unknown", "known"]


class ScoreDirectionWarning(UserWarning):
    """AUROC is below one half: the open-set score may point the wrong way."""


def warn_if_reversed(auroc: float) -> None:
    """Warn when unknown samples are ranked below known ones more often than above."""
    if auroc < 0.5:
        sentence = (
            f"AUROC is {auroc:.4f}, below 0.5: the score may point the wrong way. Here a higher open_score "
            "means more unknown; if yours is a confidence (higher = known), pass -open_score, or "
            "--lower-is-unknown on the command line."
        )
        warnings.warn(sentence, ScoreDirectionWarning, stacklevel=3)


def _mean_credit(table: RankTable, below: Counts, ties: Ties) -> Floats:
    """Mean credit of the pairs; ``below`` counts the accepted known samples that take part."""
    new_known, new_unknown = np.diff(below, axis=-1), np.diff(table.unknown, axis=-1)
    dot: Any = exact_dot if may_overflow(below, table.unknown) else np.vecdot
    credit = _double_credit(dot(below[..., :-1], new_unknown), dot(new_known, new_unknown), ties)
    return np.asarray(1.0 * credit / (2.0 * table.n_known * table.n_unknown))


def _double_credit(less: Any, equal: Any, ties: Ties) -> Any:
    """Twice the credit of the pairs: ties earn half, or nothing."""
    return 2 * less + equal if ties == "half" else 2 * less


def openauc_of(table: RankTable, ties: Ties = "half", low: float = 0.0, high: float = 1.0) -> Floats:
    if low == 0.0 and high == 1.0:
        return _mean_credit(table, table.correct, ties)
    ofpr, cotpr = table.unknown / table.n_unknown[..., None], table.correct / table.n_known[..., None]
    return np.asarray(segment_areas(ofpr, cotpr, low, high, step=ties == "strict").sum(axis=-1) / (high - low))


def auroc_of(table: RankTable, ties: Ties = "half") -> Floats:
    return _mean_credit(table, table.known, ties)


def accuracy_of(table: RankTable) -> Floats:
    return table.correct[..., -1] / table.n_known


def acc_times_auc_of(table: RankTable) -> Floats:
    return accuracy_of(table) * auroc_of(table)


def acc_plus_auc_of(table: RankTable) -> Floats:
    return accuracy_of(table) + auroc_of(table)


def cut_at_tpr(table: RankTable, tpr: float, positive: Side = "unknown") -> NDArray[np.intp]:
    """Cut with the fewest false alarms among those that detect at least the share ``tpr`` of the positives."""
    if positive == "unknown":
        return _cuts_up_to(table.unknown, table.n_unknown - check.at_least(tpr, table.n_unknown)) - 1
    return _cuts_up_to(table.known, check.at_least(tpr, table.n_known), side="left")


def cut_at_fpr(table: RankTable, fpr: float) -> NDArray[np.intp]:
    """Last cut that accepts at most the share ``fpr`` of the unknown samples."""
    return _cuts_up_to(table.unknown, check.at_most(fpr, table.n_unknown)) - 1


def _cuts_up_to(counts: Counts, limit: Floats, side: Literal["left", "right"] = "right") -> NDArray[np.intp]:
    """Number of cuts with a count <= limit, or with ``side="left"`` < limit; counts never fall along a row."""
    whole = np.ravel(limit).astype(counts.dtype)  # another type would make searchsorted convert whole rows
    rows = zip(counts.reshape(-1, counts.shape[-1]), whole, strict=True)
    found = [np.searchsorted(row, most, side=side) for row, most in rows]
    return np.array(found, dtype=np.intp).reshape(counts.shape[:-1])


def at_cut(counts: Counts, cut: ArrayLike) -> Counts:
    """Count of each row at its cut."""
    chosen = np.broadcast_to(cut, counts.shape[:-1])
    return np.take_along_axis(counts, chosen[..., None], axis=-1)[..., 0]


def fpr_at(table: RankTable, cut: ArrayLike) -> Floats:
    """Share of the known samples rejected at a cut."""
    return np.asarray(1.0 - at_cut(table.known, cut) / table.n_known)


def error_at(table: RankTable, cut: ArrayLike) -> Floats:
    """Share of all samples on the wrong side at a cut."""
    wrong = table.n_known - at_cut(table.known, cut) + at_cut(table.unknown, cut)
    return np.asarray(wrong / (table.n_known + table.n_unknown))


def ccr_at(table: RankTable, cut: ArrayLike) -> Floats:
    """Share of the known samples accepted with the right class at a cut."""
    return np.asarray(at_cut(table.correct, cut) / table.n_known)


def fpr_at_tpr_of(table: RankTable, tpr: float = 0.95, positive: Side = "unknown") -> Floats:
    cut = cut_at_tpr(table, tpr, positive)
    return fpr_at(table, cut) if positive == "unknown" else at_cut(table.unknown, cut) / table.n_unknown


def error_at_tpr_of(table: RankTable, tpr: float = 0.95) -> Floats:
    return error_at(table, cut_at_tpr(table, tpr))


def ccr_at_fpr_of(table: RankTable, fpr: float) -> Floats:
    return ccr_at(table, cut_at_fpr(table, fpr))


def average_precision_of(table: RankTable, positive: Side = "unknown") -> Floats:
    """Sum of precision times the recall gained, threshold by threshold."""
    gained, hits, false_alarms = detections(table, positive)
    # A replicate may draw no sample at the outermost scores: no alarm, and nothing gained.
    terms = hits / np.maximum(hits + false_alarms, TINY) * gained
    total = np.cumsum(terms)[-1] if terms.ndim == 1 else terms.sum(axis=-1)  # in order, as the loop adds
    return np.asarray(total / (table.n_unknown if positive == "unknown" else table.n_known))


def detections(table: RankTable, positive: Side) -> tuple[Counts, Counts, Counts]:
    """Positives gained, and positives and negatives detected so far, at each threshold but the one that detects none.

    Unknown samples are detected by rejecting, from the top; known ones by accepting, from below.
    """
    if positive == "known":
        return np.diff(table.known), table.known[..., 1:], table.unknown[..., 1:]
    hits, false_alarms = (counts[..., -1:] - counts[..., :-1] for counts in (table.unknown, table.known))
    return np.diff(table.unknown), hits, false_alarms


def detection_accuracy_of(table: RankTable) -> Floats:
    known, unknown = table.known, table.unknown
    if may_overflow(known, unknown):
        known, unknown = known.astype(np.longdouble), unknown.astype(np.longdouble)
    gap = known * table.n_unknown[..., None] - unknown * table.n_known[..., None]  # times both totals
    return np.asarray(0.5 + 0.5 * (gap.max(axis=-1) / (1.0 * table.n_known * table.n_unknown)))


def detection_accuracies(table: RankTable) -> Floats:
    """Mean of the share of known samples accepted and of unknown samples rejected, per threshold."""
    return 0.5 * (table.known / table.n_known[..., None] + (1.0 - table.unknown / table.n_unknown[..., None]))


def best_detection_cut(table: RankTable) -> NDArray[np.intp]:
    """The first cut with the largest detection accuracy."""
    return np.asarray(np.argmax(detection_accuracies(table), axis=-1))


def detection_accuracy_at(table: RankTable, cut: ArrayLike) -> Floats:
    return at_cut(detection_accuracies(table), cut)


def openauc_score(
    y_true: Vector,
    y_pred: Vector,
    open_score: Vector,
    *,
    ties: Ties = "half",
    max_ofpr: float | None = None,
    min_ofpr: float = 0.0,
    unknown_label: Label = UNKNOWN,
    sample_weight: Weights = None,
) -> float:
    r"""Probability that a known sample is classified correctly and ranked below an unknown one.

    .. math:: \mathrm{OpenAUC} = \frac{1}{N_k N_u} \sum_{i,j} 1[y_i = h(x_i)] \, 1[r(x_j) > r(x_i)]

    An error without known or without unknown samples.

    Parameters
    ----------
    y_true, y_pred
        (N,) true class, ``unknown_label`` for unknown samples, and predicted class: integers or strings.
    open_score
        (N,) r(x), higher = more unknown.
    ties
        Credit of a pair with equal scores: "half" gives the area under ``oscr_curve``, "strict", the paper's ``>``,
        gives nothing.
    max_ofpr, min_ofpr
        *Partial OpenAUC*: mean height of ``oscr_curve`` where the share of unknown samples accepted (OFPR) lies between
        the two.
    unknown_label
        The label of unknown samples.
    sample_weight
        (N,) how often each sample counts; a pair counts as often as the product of its two weights.

    Examples
    --------
    Two of the three known samples below are correct; of the six pairs, three count.

    >>> openauc_score([0, 1, 1, -1, -1], [0, 1, 0, 1, 0], [0.1, 0.6, 0.2, 0.5, 0.9])
    0.5
    """
    check.check_choice("ties", ties, ("half", "strict"))
    low, high = ofpr_range(min_ofpr, max_ofpr)
    samples = read_samples(y_true, y_pred, open_score, unknown_label=unknown_label, sample_weight=sample_weight)
    partial = (low, high) != (0.0, 1.0)
    value = float(openauc_of(rank(samples).table, ties, low, high)) if partial else _pair_score(samples, ties)
    if value < 0.5 or partial:  # AUROC >= OpenAUC, so above one half it cannot be reversed
        warn_if_reversed(_pair_score(samples, "half", with_wrong=True))
    return value


def ofpr_range(min_ofpr: float, max_ofpr: float | None) -> tuple[float, float]:
    """Check the range of a partial OpenAUC."""
    low = check.check_fraction("min_ofpr", min_ofpr, zero=True, one=False)
    high = 1.0 if max_ofpr is None else check.check_fraction("max_ofpr", max_ofpr)
    if low >= high:
        raise ValueError(f"min_ofpr {min_ofpr!r} must be below max_ofpr {max_ofpr!r}.")
    return low, high


def _pair_score(samples: Samples, ties: Ties, *, with_wrong: bool = False) -> float:
    """OpenAUC, or AUROC ``with_wrong``."""
    if samples.weight is not None:
        table = rank(samples).table
        return float(auroc_of(table, ties) if with_wrong else openauc_of(table, ties))
    less, equal = count_pairs(samples, with_wrong=with_wrong)
    return float(_double_credit(less, equal, ties) / (2.0 * samples.n_known * samples.n_unknown))


def count_pairs(samples: Samples, *, with_wrong: bool) -> tuple[int, int]:
    """Pairs with known score < and == unknown score; misclassified known samples take part only ``with_wrong``."""
    first_kind = WRONG if with_wrong else CORRECT
    if (loops := compiled(len(samples.score))) is not None:
        less, equal = loops.count_pairs(samples.score, samples.kind, first_kind)
        return less, equal
    is_unknown = samples.kind == UNKNOWN_KIND
    known = np.sort(samples.score[(samples.kind >= first_kind) & ~is_unknown])
    unknown = np.sort(samples.score[is_unknown])  # sorted needles walk through memory in order
    below, up_to = (int(np.searchsorted(known, unknown, side=side).sum()) for side in ("left", "right"))
    return below, up_to - below


def auroc_score(
    y_true: Vector,
    y_pred: Vector,
    open_score: Vector,
    *,
    ties: Ties = "half",
    unknown_label: Label = UNKNOWN,
    sample_weight: Weights = None,
) -> float:
    """Probability that an unknown sample is ranked above a known one; ``y_pred`` plays no part.

    >>> auroc_score([0, 1, 1, -1, -1], [0, 1, 0, 1, 0], [0.1, 0.6, 0.2, 0.5, 0.9])
    0.8333333333333334
    """
    check.check_choice("ties", ties, ("half", "strict"))
    samples = read_samples(y_true, y_pred, open_score, unknown_label=unknown_label, sample_weight=sample_weight)
    value = _pair_score(samples, ties, with_wrong=True)
    if value < 0.5:
        warn_if_reversed(value if ties == "half" else _pair_score(samples, "half", with_wrong=True))
    return value


def table_of(
    y_true: Vector, y_pred: Vector, open_score: Vector, label: Label, weight: Weights, *, need_unknown: bool = True
) -> RankTable:
    options: Any = {"unknown_label": label, "need_unknown": need_unknown, "sample_weight": weight}
    return rank(read_samples(y_true, y_pred, open_score, **options)).table


def oscr_curve(
    y_true: Vector, y_pred: Vector, open_score: Vector, *, unknown_label: Label = UNKNOWN, sample_weight: Weights = None
) -> Curve:
    """Open-set classification rate: COTPR(t) = P[r <= t, y = h] against OFPR(t) = P[r <= t | unknown].

    From (0, 0) to (1, closed-set accuracy); the area is ``openauc_score`` with ties counted half.

    >>> curve = oscr_curve([0, 1, 1, -1, -1], [0, 1, 0, 1, 0], [0.1, 0.6, 0.2, 0.5, 0.9])
    >>> curve.y[-1].item(), curve.area()
    (0.6666666666666666, 0.5)
    """
    return oscr_of(table_of(y_true, y_pred, open_score, unknown_label, sample_weight))


def oscr_of(table: RankTable) -> Curve:
    x, y = table.unknown / table.n_unknown, table.correct / table.n_known
    return Curve(x, y, table.threshold, "unknown accepted (OFPR)", "known correct and accepted (COTPR)")


def roc_curve(
    y_true: Vector, y_pred: Vector, open_score: Vector, *, unknown_label: Label = UNKNOWN, sample_weight: Weights = None
) -> Curve:
    """Share of unknown samples rejected (TPR) against the share of known samples rejected (FPR).

    >>> roc_curve([0, 0, -1], [0, 0, 0], [1.0, 3.0, 2.0]).x.tolist()
    [0.0, 0.5, 0.5, 1.0]
    """
    return roc_of(table_of(y_true, y_pred, open_score, unknown_label, sample_weight))


def roc_of(table: RankTable) -> Curve:
    x, y = 1.0 - table.known / table.n_known, 1.0 - table.unknown / table.n_unknown
    return Curve(x[::-1], y[::-1], table.threshold[::-1], "known rejected (FPR)", "unknown rejected (TPR)")


def fpr_at_tpr(
    y_true: Vector,
    y_pred: Vector,
    open_score: Vector,
    *,
    tpr: float = 0.95,
    positive: Side = "unknown",
    unknown_label: Label = UNKNOWN,
    sample_weight: Weights = None,
) -> float:
    """Smallest false positive rate among the thresholds whose true positive rate is at least ``tpr``.

    ``positive="unknown"``: share of known samples rejected when at least ``tpr`` of the unknown ones are.
    ``positive="known"``, common in out-of-distribution papers: share of unknown samples accepted when at least ``tpr``
    of the known ones are.

    >>> fpr_at_tpr([0, 0, 0, 0, -1, -1], [0] * 6, [1, 2, 3, 4, 2.5, 5], tpr=0.95)
    0.5
    """
    check.check_fraction("tpr", tpr)
    check.check_choice("positive", positive, ("unknown", "known"))
    return float(fpr_at_tpr_of(table_of(y_true, y_pred, open_score, unknown_label, sample_weight), tpr, positive))


def error_at_tpr(
    y_true: Vector,
    y_pred: Vector,
    open_score: Vector,
    *,
    tpr: float = 0.95,
    unknown_label: Label = UNKNOWN,
    sample_weight: Weights = None,
) -> float:
    """Share of *all* samples, known and unknown, on the wrong side where the unknown TPR reaches ``tpr``.

    Depends on the ratio of known to unknown samples. Public codes differ: ``legacy.vaze_error_at_tpr``.

    >>> error_at_tpr([0, 0, 0, 0, -1, -1], [0] * 6, [1, 2, 3, 4, 2.5, 5], tpr=0.95)
    0.3333333333333333
    """
    check.check_fraction("tpr", tpr)
    return float(error_at_tpr_of(table_of(y_true, y_pred, open_score, unknown_label, sample_weight), tpr))


def average_precision(
    y_true: Vector,
    y_pred: Vector,
    open_score: Vector,
    *,
    positive: Side = "unknown",
    unknown_label: Label = UNKNOWN,
    sample_weight: Weights = None,
) -> float:
    """Area under the precision-recall steps of detecting the ``positive`` side (AUPR-out, AUPR-in).

    >>> average_precision([0, 0, -1, -1], [0] * 4, [1, 3, 2, 4])
    0.8333333333333333
    """
    check.check_choice("positive", positive, ("unknown", "known"))
    return float(average_precision_of(table_of(y_true, y_pred, open_score, unknown_label, sample_weight), positive))


def detection_accuracy(
    y_true: Vector, y_pred: Vector, open_score: Vector, *, unknown_label: Label = UNKNOWN, sample_weight: Weights = None
) -> float:
    """Best mean of the share of known samples accepted and of unknown samples rejected.

    >>> detection_accuracy([0, 0, -1, -1], [0] * 4, [1, 3, 2, 4])
    0.75
    """
    return float(detection_accuracy_of(table_of(y_true, y_pred, open_score, unknown_label, sample_weight)))


def ccr_at_fpr(
    y_true: Vector,
    y_pred: Vector,
    open_score: Vector,
    *,
    fpr: float = 0.1,
    unknown_label: Label = UNKNOWN,
    sample_weight: Weights = None,
) -> float:
    """Correct classification rate at the last threshold that accepts at most ``fpr`` of the unknown samples.

    A point of the OSCR curve, not interpolated.

    >>> ccr_at_fpr([0, 1, 1, -1, -1], [0, 1, 0, 1, 0], [0.1, 0.6, 0.2, 0.5, 0.9], fpr=0.5)
    0.6666666666666666
    """
    check.check_fraction("fpr", fpr, zero=True)
    return float(ccr_at_fpr_of(table_of(y_true, y_pred, open_score, unknown_label, sample_weight), fpr))


def acc_times_auc(
    y_true: Vector, y_pred: Vector, open_score: Vector, *, unknown_label: Label = UNKNOWN, sample_weight: Weights = None
) -> float:
    """Closed-set accuracy times AUROC; Proposition 3 shows what it does not see.

    >>> acc_times_auc([0, 1, 1, -1, -1], [0, 1, 0, 1, 0], [0.1, 0.6, 0.2, 0.5, 0.9])
    0.5555555555555556
    """
    return float(acc_times_auc_of(table_of(y_true, y_pred, open_score, unknown_label, sample_weight)))


def acc_plus_auc(
    y_true: Vector, y_pred: Vector, open_score: Vector, *, unknown_label: Label = UNKNOWN, sample_weight: Weights = None
) -> float:
    r"""Closed-set accuracy plus AUROC, in [0, 2]; the paper's pointwise sum, :math:`E[1[y = h] + 1[r_u > r_k]]`.

    >>> acc_plus_auc([0, 1, 1, -1, -1], [0, 1, 0, 1, 0], [0.1, 0.6, 0.2, 0.5, 0.9])
    1.5
    """
    return float(acc_plus_auc_of(table_of(y_true, y_pred, open_score, unknown_label, sample_weight)))
