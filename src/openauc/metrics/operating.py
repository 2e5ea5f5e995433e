"""Choosing a rejection threshold on validation data (``choose_threshold``) and using it (``decide``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from openauc import _validation as check
from openauc._validation import UNKNOWN, Label, Vector
from openauc.metrics.counts import DecisionCounts, RankedSamples, check_threshold
from openauc.metrics.decision import best_of, sweep_of, unknown_fpr_of
from openauc.metrics.samples import UNKNOWN_KIND, Samples, read_samples

Target = Literal["known_acceptance", "unknown_recall", "macro_f_score", "micro_f_score", "youden_index", "cost"]
TARGETS: tuple[str, ...] = Target.__args__  # type: ignore[attr-defined]


@dataclass(frozen=True, kw_only=True)
class Costs:
    """What each mistake costs, and how often unknown samples are expected in use.

    >>> costs = Costs(unknown_accepted=5.0)
    >>> choose_threshold([0, 1, -1], [0, 1, 0], [0.1, 0.4, 0.3], target="cost", costs=costs).threshold
    0.1
    """

    unknown_accepted: float = 1.0
    known_rejected: float = 1.0
    known_misclassified: float = 1.0
    unknown_share: float = 0.5

    def __post_init__(self) -> None:
        check.check_fraction("unknown_share", self.unknown_share, zero=True)
        for name in ("unknown_accepted", "known_rejected", "known_misclassified"):
            if not 0.0 <= (cost := getattr(self, name)) < float("inf"):
                raise ValueError(f"the cost {name} is {cost!r}; expected a number >= 0, and a finite one.")


@dataclass(frozen=True, kw_only=True)
class OperatingPoint:
    """A threshold, why it was chosen, and what it did on the validation samples.

    >>> point = choose_threshold([0, 1, -1, -1], [0, 1, 0, 1], [0.1, 0.4, 0.3, 0.9], target="unknown_recall", value=0.5)
    >>> point.known_accepted, point.unknown_rejected
    (0.5, 1.0)
    """

    threshold: float
    target: str
    requested: float | None = None
    known_accepted: float
    known_correct: float
    unknown_rejected: float | None
    guarantee: str | None = None
    objective: float | None = None
    costs: Costs | None = None

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; an infinite threshold becomes the string that float() reads."""
        return {name: check.json_ready(value) for name, value in asdict(self).items()}


def choose_threshold(
    y_true: Vector,
    y_pred: Vector,
    open_score: Vector,
    *,
    target: Target,
    value: float | None = None,
    confidence: float | None = None,
    costs: Costs | Mapping[str, float] | None = None,
    unknown_label: Label = UNKNOWN,
) -> OperatingPoint:
    r"""Choose a threshold on validation samples; reject when score > threshold.

    Parameters
    ----------
    target, value
        - "known_acceptance": accept at least the share ``value`` of future known samples (needs no unknown sample).
          The threshold is the :math:`\lceil (n+1)\,value \rceil`-th smallest known score: a new known sample is
          accepted with probability at least ``value``, for any distribution (split-conformal).
        - "unknown_recall": reject at least the share ``value`` of unknown samples *like those in the validation set*.
        - "macro_f_score", "micro_f_score", "youden_index": the threshold with the largest value (no guarantee).
        - "cost": the threshold with the smallest expected ``costs``.
    confidence
        For the first two targets: the share is reached with this confidence over the draw of the validation set (a
        one-sided tolerance limit).
    costs
        ``Costs`` or its fields, only for "cost".

    Examples
    --------
    Nineteen known samples suffice to accept 95 % of future ones: the largest score is the threshold.

    >>> choose_threshold([0] * 19, [0] * 19, range(19), target="known_acceptance", value=0.95).threshold
    18.0
    """
    check.check_choice("target", target, TARGETS)
    guaranteed = target in ("known_acceptance", "unknown_recall")
    if guaranteed and value is None:
        raise ValueError(f"target {target!r} needs value=, the share wanted, for example 0.95.")
    if not guaranteed and (value is not None or confidence is not None):
        raise ValueError(f"target {target!r} takes neither value nor confidence.")
    if costs is not None and target != "cost":
        raise ValueError(f"costs belong to target 'cost', not to {target!r}.")
    need_unknown = target != "known_acceptance"
    samples = read_samples(y_true, y_pred, open_score, unknown_label=unknown_label, need_unknown=need_unknown)
    ranked = RankedSamples(samples)
    if value is not None:
        check.check_fraction("value", value, one=False)
        if confidence is not None:
            check.check_fraction("confidence", confidence, one=False)
        threshold, guarantee = _guaranteed(samples, target, value, confidence)
        return _point(ranked, threshold, target=target, requested=float(value), guarantee=guarantee)
    if target == "cost":
        price = costs if isinstance(costs, Costs) else Costs(**(costs or {}))
        best = best_of(-expected_cost(ranked.counts, price), ranked.ranking.threshold)
        return _point(ranked, best.threshold, target=target, objective=-best.value, costs=price)
    best = sweep_of(ranked).best(target)
    return _point(ranked, best.threshold, target=target, objective=best.value)


def acceptance_threshold(samples: Samples, share: float) -> float:
    """Threshold of ``choose_threshold`` for the target "known_acceptance"."""
    return _guaranteed(samples, "known_acceptance", share, None)[0]


def expected_cost(counts: DecisionCounts, costs: Costs) -> NDArray[np.float64]:
    """Expected cost per sample at every threshold."""
    rejected = unknown_fpr_of(counts)
    misclassified = np.subtract(counts.accepted_known, counts.correct) / counts.n_known
    of_known = costs.known_rejected * rejected + costs.known_misclassified * misclassified
    of_unknown = costs.unknown_accepted * np.divide(counts.accepted_unknown, counts.n_unknown)
    return np.asarray((1.0 - costs.unknown_share) * of_known + costs.unknown_share * of_unknown)


def _guaranteed(samples: Samples, target: str, share: float, confidence: float | None) -> tuple[float, str]:
    known_side = target == "known_acceptance"
    chosen = (samples.kind == UNKNOWN_KIND) != known_side
    # What the classifier itself calls unknown is rejected at every threshold.
    abstained = check.is_label(samples.y_pred, samples.unknown_label)[chosen]
    score = np.where(abstained, np.inf, samples.score[chosen])
    n = len(score)
    side, verb = ("known", "accepted") if known_side else ("unknown", "rejected")
    k = order_statistic(n, share, confidence)
    if k > n:
        raise ValueError(
            f"{n} {side} validation samples are too few to guarantee that {share:g} of them are {verb}"
            + (f" with confidence {confidence:g}" if confidence is not None else "")
            + f"; at least {smallest_sample(share, confidence)} are needed. Use more samples or a smaller share."
        )
    place = k - 1 if known_side else n - k
    at = np.partition(score, place)[place]
    n_abstained = int(np.count_nonzero(abstained))
    if known_side and n_abstained > n - k:
        raise ValueError(
            f"y_pred itself says unknown for {n_abstained} of {n} known validation samples, so no threshold accepts "
            f"the share {share:g} of them. Ask for a smaller share, or let y_pred name the likeliest class."
        )
    if not known_side and at == -np.inf:
        raise ValueError(
            f"more than {1 - share:g} of the unknown samples have the score -inf, which no threshold rejects; give "
            "them a finite score."
        )
    # Unknown samples are rejected from the k-th largest score upwards; the rule is "score > t", so t lies just below.
    with np.errstate(over="ignore"):
        threshold = float(at if known_side else np.nextafter(at, score.dtype.type(-np.inf)))
    guarantee = (
        f"a new {side} sample is {verb} with probability at least {share:g} (conformal, marginal)"
        if confidence is None
        else f"with confidence {confidence:g} at least {share:g} of {side} samples are {verb} (tolerance limit)"
    )
    likeness = "drawn like the validation samples" if known_side else "of the kind in the validation set"
    return threshold, f"{guarantee}, for samples {likeness}; n = {n}"


def order_statistic(n: int, share: float, confidence: float | None = None) -> int:
    r"""Smallest k such that the k-th smallest of n scores is not exceeded by the share ``share`` of new ones.

    Marginally: :math:`k = \lceil (n+1)\,share \rceil`. With ``confidence``: the smallest k with
    :math:`P[\mathrm{Bin}(n, share) \ge k] \le 1 - confidence`. ``n + 1`` if n is too small for any k.

    >>> order_statistic(19, 0.95), order_statistic(59, 0.95, confidence=0.95)
    (19, 59)
    """
    if confidence is None:
        return min(int(check.at_least(share, n + 1)), n + 1)
    count = np.arange(n + 1)
    log_factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, n + 1)))])
    log_choose = log_factorial[-1] - log_factorial - log_factorial[::-1]
    mass = np.exp(log_choose + count * np.log(share) + (n - count) * np.log1p(-share))
    # P[Bin(n, share) >= k] for k = 0..n+1, summed from the small end so that it is exact where it is small.
    tail = np.append(np.cumsum(mass[::-1])[::-1], 0.0)
    return int(np.flatnonzero(tail[1:] <= (1.0 - confidence) * (1.0 + check.ROUNDING))[0]) + 1


def smallest_sample(share: float, confidence: float | None = None) -> int:
    """Fewest samples for which ``order_statistic`` exists: the largest score must do."""
    n = share / (1.0 - share) if confidence is None else np.log1p(-confidence) / np.log(share)
    return int(np.ceil(n * (1.0 - check.ROUNDING)))


def _point(ranked: RankedSamples, threshold: float, **fields: Any) -> OperatingPoint:
    samples, cut = ranked.samples, int(np.searchsorted(ranked.ranking.threshold[1:], threshold, side="right"))
    correct, known, unknown = (float(np.asarray(part)[cut]) for part in ranked.counts[3:6])
    return OperatingPoint(
        threshold=float(threshold),
        known_accepted=known / samples.n_known,
        known_correct=correct / samples.n_known,
        unknown_rejected=1.0 - unknown / samples.n_unknown if samples.n_unknown else None,
        **fields,
    )


def decide(y_pred: Vector, open_score: Vector, *, threshold: float, unknown_label: Label = UNKNOWN) -> NDArray[Any]:
    """Final labels: the predicted class, or ``unknown_label`` where score > ``threshold``.

    >>> decide([3, 1, 2], [0.2, 0.9, 0.5], threshold=0.5).tolist()
    [3, -1, 2]
    """
    labels = check.as_labels("y_pred", y_pred)
    score = check.as_scores("open_score", open_score)
    check.check_same_length(y_pred=labels, open_score=score)
    check.is_label(labels, unknown_label)  # refuses a name among numbers
    mark: Any = str(unknown_label) if labels.dtype.kind == "U" else unknown_label
    return np.where(score > check_threshold(threshold), mark, labels)


def unknown_recall_bound(openauc: float, known_rejected: float) -> float:
    """Prop. 6: the unknown TPR is at least 1 - (1 - ``openauc``) / ``known_rejected``, and at least 0.

    >>> unknown_recall_bound(0.875, 0.5)
    0.75
    """
    k = check.check_fraction("openauc", openauc, zero=True)
    a = check.check_fraction("known_rejected", known_rejected)
    return max(0.0, 1.0 - (1.0 - k) / a)
