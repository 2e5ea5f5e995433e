"""Selective prediction: the share of errors among the accepted samples, as more samples are accepted.

Misclassified known samples and all unknown samples are errors, as in Jaeger et al. (2023). Samples are accepted by
rising ``open_score``, equal scores together. Use them with ``evaluate(..., metrics=SELECTIVE)``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from openauc._validation import UNKNOWN, Label, Vector, Weights
from openauc.metrics.curve import Floats
from openauc.metrics.influence import Influence
from openauc.metrics.rank_table import TINY, Counts, RankTable
from openauc.metrics.ranking import table_of
from openauc.metrics.registry import Metric, TableMetric
from openauc.metrics.samples import CORRECT, UNKNOWN_KIND, read_samples


def _accepted(table: RankTable) -> tuple[Counts, Counts]:
    """Accepted samples, and errors among them, at every threshold."""
    accepted = table.known + table.unknown
    return accepted, accepted - table.correct


def aurc_of(table: RankTable) -> Floats:
    accepted, errors = _accepted(table)
    risk = errors[..., 1:] / np.maximum(accepted[..., 1:], TINY)
    return np.asarray((np.diff(accepted, axis=-1) * risk).sum(axis=-1) / accepted[..., -1])


def augrc_of(table: RankTable) -> Floats:
    accepted, errors = _accepted(table)
    heights = errors[..., 1:] + errors[..., :-1]
    return np.asarray(0.5 * (np.diff(accepted, axis=-1) * heights).sum(axis=-1) / accepted[..., -1] ** 2)


def aurc(
    y_true: Vector, y_pred: Vector, open_score: Vector, *, unknown_label: Label = UNKNOWN, sample_weight: Weights = None
) -> float:
    r"""Area under the risk-coverage curve (Geifman and El-Yaniv 2017), lower is better.

    .. math:: \mathrm{AURC} = \frac{1}{N} \sum_i \frac{\#\{j : r_j \le r_i, \text{error}\}}{\#\{j : r_j \le r_i\}}

    Excess AURC subtracts the value of the best order, about :math:`e + (1 - e) \ln(1 - e)` for a share e of errors.
    Below, the shares of errors among the first, the first two and all three samples are 0, 1/2 and 1/3.

    >>> round(aurc([0, 1, 1], [0, 0, 1], [0.1, 0.2, 0.3]), 4)
    0.2778
    """
    return float(aurc_of(table_of(y_true, y_pred, open_score, unknown_label, sample_weight, need_unknown=False)))


def augrc(
    y_true: Vector, y_pred: Vector, open_score: Vector, *, unknown_label: Label = UNKNOWN, sample_weight: Weights = None
) -> float:
    r"""Area under the generalized risk-coverage curve (Traub et al. 2024), lower is better.

    Pairs in which an error is accepted before a right sample count 1, pairs of errors 1/2. Below, of nine pairs, there
    is one of each.

    >>> round(augrc([0, 1, 1], [0, 0, 1], [0.1, 0.2, 0.3]), 4)
    0.1667
    """
    return float(augrc_of(table_of(y_true, y_pred, open_score, unknown_label, sample_weight, need_unknown=False)))


def expected_calibration_error(
    y_true: Vector,
    y_pred: Vector,
    confidence: Vector,
    *,
    bins: int = 15,
    unknown_label: Label = UNKNOWN,
    sample_weight: Weights = None,
) -> float:
    """Mean gap between confidence and accuracy of the known samples, over bins of equal width (Guo et al. 2017).

    ``confidence`` is the probability given to the predicted class. A bin includes its upper end, not its lower one; the
    first includes 0. Unknown samples do not take part. Both samples below lie in the last bin.

    >>> round(expected_calibration_error([0, 1], [0, 0], [0.85, 0.95], bins=5), 4)
    0.4
    """
    if bins < 1:
        raise ValueError(f"bins is {bins}; expected at least one.")
    options: Any = {"unknown_label": unknown_label, "need_unknown": False, "sample_weight": sample_weight}
    samples = read_samples(y_true, y_pred, confidence, **options)
    known = samples.kind != UNKNOWN_KIND
    said = samples.score[known].astype(np.float64)
    outside = np.flatnonzero((said < 0.0) | (said > 1.0))
    if len(outside):
        raise ValueError(
            f"confidence holds {said[outside[0]]!r}; expected probabilities of the predicted class, between 0 and 1 "
            "(softmax of the logits, for example)."
        )
    weight = np.ones(len(said)) if samples.weight is None else samples.weight[known]
    place = np.clip(np.ceil(said * bins).astype(np.int64) - 1, 0, bins - 1)
    gap = np.bincount(place, weights=weight * (said - (samples.kind[known] == CORRECT)), minlength=bins)
    return float(np.abs(gap).sum() / weight.sum())


def of_aurc(table: RankTable) -> Influence:
    """Influence on AURC: a sample brings its own risk, and changes the risk of all accepted no earlier."""
    accepted, errors = (counts[1:] for counts in _accepted(table))
    steps, total = np.diff(accepted, prepend=0), accepted[-1]
    right = errors / accepted - _from_here(steps * errors / accepted**2) - float(aurc_of(table))
    wrong = right + _from_here(steps / accepted)
    return Influence(right / total, wrong / total, wrong / total)


def of_augrc(table: RankTable) -> Influence:
    """Influence on AUGRC: an error counts with all samples accepted later, half with those of equal score."""
    accepted, errors = _accepted(table)
    steps, total = np.diff(accepted), accepted[-1]
    right = 0.5 * (errors[1:] + errors[:-1]) / total**2 - 2.0 * float(augrc_of(table)) / total
    wrong = right + (total - accepted[1:] + 0.5 * steps) / total**2
    return Influence(right, wrong, wrong)


def _from_here(values: Floats) -> Floats:
    """Sum of the values at each cut and all after it."""
    return np.asarray(np.cumsum(values[::-1])[::-1])


SELECTIVE: Mapping[str, Metric] = {
    label.lower(): TableMetric(
        function=function, better="lower", label=label, needs_unknown=False, of_table=of_table, influence=influence
    )
    for label, function, of_table, influence in (("AURC", aurc, aurc_of, of_aurc), ("AUGRC", augrc, augrc_of, of_augrc))
}
"""Metrics of selective prediction for ``evaluate`` and ``compare``, by name."""
