"""What public open-set codes compute, quirks included, to reproduce a published table and see why it differs.

None of these is a recommendation. Values are fractions; the codes print most of them times 100. ``explain`` sets each
beside the exact metric. ARPL's AUROC is ``auroc_score(..., ties="strict")``; its DTACC and Vaze's AUPR are
``detection_accuracy`` and ``average_precision``.

- *ARPL*: github.com/iCGY96/ARPL, core/evaluation.py: ``compute_oscr`` and ``metric_ood``
- *Vaze*: github.com/sgvaze/osr_closed_set_all_you_need, test/utils.py: ``compute_oscr`` and ``acc_at_95_tpr``
- *OpenAUC*: github.com/wang22ti/OpenAUC (the same in github.com/statusrank/XCurve), utils/test_utils.py:
  ``compute_openauc`` after ``EnsembleModel``, ``ma_f_score``, ``mi_f_score`` and ``acc_at_95_tpr``
- *pytorch-ood*: github.com/kkirchheim/pytorch-ood, utils/metrics.py: ``oscr_score``
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from openauc import _validation as check
from openauc._validation import UNKNOWN, Label, Vector
from openauc.metrics.counts import RankedSamples, ratio
from openauc.metrics.curve import Floats
from openauc.metrics.decision import best_of, sweep_of
from openauc.metrics.rank_table import rank
from openauc.metrics.ranking import auroc_of, fpr_at_tpr_of
from openauc.metrics.registry import METRICS
from openauc.metrics.samples import CORRECT, UNKNOWN_KIND, WRONG, Ints, Samples, read_samples

_MASK_MARGIN = 1e-5  # by how much the OpenAUC code lifts misclassified known samples above every unknown one
_GRID = np.arange(1, 100) * 0.01  # the thresholds of its F-scores, on the scale of the sigmoid


def arpl_oscr(y_true: Vector, y_pred: Vector, open_score: Vector, *, unknown_label: Label = UNKNOWN) -> float:
    r"""Area under the OSCR curve as ARPL and Vaze draw it, one position out of step.

    With the samples in order of rising :math:`s = -r`, the point of position k counts unknown samples from k on, but
    correct known samples only from k + 1 on:

    .. math:: \frac{1}{N_k N_u} \sum_{k \text{ unknown}} \frac{CC_k + CC_{k+1}}{2}, \qquad
              CC_k = \#\{\text{correct known at positions} > k\}

    Without ties this is OpenAUC - A / (2 N_k N_u), A being the number of unknown samples directly followed by a correct
    known one; below, 1/2 - 1/12. With ties it depends on numpy's default ``argsort``: on the order of the samples, on
    the dtype of the scores and on the processor.

    >>> arpl_oscr([0, 1, 1, -1, -1], [0, 1, 0, 1, 0], [0.1, 0.6, 0.2, 0.5, 0.9])
    0.4166666666666667
    """
    samples = read_samples(y_true, y_pred, open_score, unknown_label=unknown_label)
    known_first = np.argsort(samples.kind == UNKNOWN_KIND, kind="stable")
    order = known_first[np.argsort(-samples.score[known_first])]  # unstable on purpose: it decides the ties
    correct = samples.kind[order] == CORRECT
    after = samples.n_correct - np.cumsum(correct)  # CC_k
    twice = np.sum(after + np.append(after[1:], 0), where=samples.kind[order] == UNKNOWN_KIND)
    return float(twice / (2.0 * samples.n_known * samples.n_unknown))


def arpl_tnr_at_tpr(
    y_true: Vector, y_pred: Vector, open_score: Vector, *, tpr: float = 0.95, unknown_label: Label = UNKNOWN
) -> float:
    """ARPL's TNR: share of unknown samples rejected where the share of known ones accepted is nearest ``tpr``.

    Of several positions the first is taken. The nearest share may be below ``tpr``; when it is 1, nothing is rejected:

    >>> arpl_tnr_at_tpr([0, 1, 1, -1, -1], [0, 1, 0, 1, 0], [0.1, 0.6, 0.2, 0.5, 0.9])
    0.0
    """
    check.check_fraction("tpr", tpr)
    samples = read_samples(y_true, y_pred, open_score, unknown_label=unknown_label)
    known, unknown = _removal_sweep(samples)
    return float(1.0 - unknown[np.argmin(np.abs(known / samples.n_known - tpr))] / samples.n_unknown)


def arpl_auin(y_true: Vector, y_pred: Vector, open_score: Vector, *, unknown_label: Label = UNKNOWN) -> float:
    """ARPL's AUIN: trapezoids under precision against recall, known positive, precision 0 at recall 0.

    Below, the precision at recall 1, 2/3, 2/3, 1/3 and 0 is 3/4, 2/3, 1, 1 and 0.

    >>> round(arpl_auin([0, 1, 1, -1, -1], [0, 1, 0, 1, 0], [0.1, 0.6, 0.2, 0.5, 0.9]), 12)
    0.736111111111
    """
    known, unknown = _removal_sweep(read_samples(y_true, y_pred, open_score, unknown_label=unknown_label))
    return _trapezoid_precision_recall(known[::-1], (known + unknown)[::-1])


def arpl_auout(y_true: Vector, y_pred: Vector, open_score: Vector, *, unknown_label: Label = UNKNOWN) -> float:
    """ARPL's AUOUT: trapezoids under precision against recall, unknown positive, precision 0 at recall 0.

    Below, the precision at recall 0, 1/2, 1/2 and 1 is 0, 1, 1/2 and 2/3.

    >>> round(arpl_auout([0, 1, 1, -1, -1], [0, 1, 0, 1, 0], [0.1, 0.6, 0.2, 0.5, 0.9]), 12)
    0.541666666667
    """
    known, unknown = _removal_sweep(read_samples(y_true, y_pred, open_score, unknown_label=unknown_label))
    removed_unknown = unknown[0] - unknown
    return _trapezoid_precision_recall(removed_unknown, removed_unknown + known[0] - known)


def _removal_sweep(samples: Samples) -> tuple[Ints, Ints]:
    """Known and unknown samples that remain after removing 0..N of them by falling score; known ones first on a tie."""
    unknown = samples.kind == UNKNOWN_KIND
    order = np.lexsort((unknown, -samples.score))
    removed_unknown = np.concatenate([[0], np.cumsum(unknown[order])])
    removed_known = np.arange(len(removed_unknown)) - removed_unknown
    return samples.n_known - removed_known, samples.n_unknown - removed_unknown


def _trapezoid_precision_recall(hits: Ints, alarms: Ints) -> float:
    # 0 / 0 = 0 is the artificial point at recall 0; the other one, at recall 1, has no width.
    return float(np.trapezoid(ratio(hits, alarms), hits) / hits[-1])


def vaze_error_at_tpr(
    y_true: Vector, y_pred: Vector, open_score: Vector, *, tpr: float = 0.95, unknown_label: Label = UNKNOWN
) -> float:
    """Error@95%TPR of Vaze and OpenAUC: share of all samples on the wrong side of one threshold.

    The threshold t is the lowest one whose TPR, the share of unknown samples with score >= t, is *nearest* to ``tpr``.
    The decision is then strict (unknown when score > t), so the samples at t change sides. The code overwrites scores
    by decisions in place, first 1 for unknown, then 0 for every value <= t: once t >= 1 it calls every sample known.

    Below, t = 0.1 and two known samples are called unknown; for scores 10 times as large t = 1, and the three unknown
    samples are called known.

    >>> vaze_error_at_tpr([0, 1, 1, -1, -1, -1], [0] * 6, [0.1, 0.6, 0.2, 0.5, 0.9, 0.9])
    0.3333333333333333
    >>> vaze_error_at_tpr([0, 1, 1, -1, -1, -1], [0] * 6, [1, 6, 2, 5, 9, 9])
    0.5
    """
    check.check_fraction("tpr", tpr)
    table = rank(read_samples(y_true, y_pred, open_score, unknown_label=unknown_label)).table
    rejected = (table.n_unknown - table.unknown) / table.n_unknown
    nearest = int(np.argmin(np.abs(rejected - tpr)))  # the first cut has the lowest threshold
    # Cut c rejects the scores >= threshold[c + 1]; rejecting those > threshold[c + 1] is cut c + 1.
    decided = table.threshold[nearest + 1 :]
    cut = nearest + 1 if decided.size and decided[0] < 1.0 else -1  # -1: nothing is rejected
    wrong = table.n_known - table.known[cut] + table.unknown[cut]
    return float(wrong / (table.n_known + table.n_unknown))


def openauc_code_score(
    y_true: Vector, y_pred: Vector, open_score: Vector, *, sigmoid: bool = True, unknown_label: Label = UNKNOWN
) -> float:
    """OpenAUC as the paper's own code computes it: AUROC after masking, ties half, on a float32 sigmoid.

    Misclassified known samples get the largest unknown score + 1e-5. ``sigmoid=True`` first squashes the scores in
    float32: those above about 17 all become 1, those below about -88.7 all become 0, and neighbours tie long before.
    ``sigmoid=False`` is the bare metric, off only for scores beyond about 1e11, where adding 1e-5 changes nothing.

    >>> triple = [0, 0, -1], [0, 0, 0], [18.0, 19.0, 20.0]
    >>> openauc_code_score(*triple), openauc_code_score(*triple, sigmoid=False)
    (0.5, 1.0)
    """
    samples = read_samples(y_true, y_pred, open_score, unknown_label=unknown_label)
    score = _float32_sigmoid(samples.score) if sigmoid else samples.score.astype(np.float64)
    mask = score[samples.kind == UNKNOWN_KIND].max() + _MASK_MARGIN
    masked = np.where(samples.kind == WRONG, mask, score)
    return float(auroc_of(rank(replace(samples, score=masked)).table))


class GridFScores(NamedTuple):
    """Best F-scores over the grid under the public code's names, and their thresholds on the sigmoid."""

    ma: float
    mi: float
    ma_threshold: float
    mi_threshold: float


def openauc_code_f_scores(
    y_true: Vector,
    y_pred: Vector,
    open_score: Vector,
    *,
    classes: Sequence[Label] | None = None,
    unknown_label: Label = UNKNOWN,
) -> GridFScores:
    """F-scores of the paper's own code: the maximum over t = 0.01, ..., 0.99, chosen on the test samples.

    A sample is rejected when the float32 sigmoid of its score is above t. The names are swapped: ``ma`` is
    ``open_set_f_score`` with ``average="micro"``, ``mi`` with ``average="macro"``. ``classes`` lists the known classes,
    if some occur neither in ``y_true`` nor in ``y_pred``. The public ``mi`` stops with an index error when an unknown
    sample has a label beyond the known classes; this one does not.

    >>> openauc_code_f_scores([0, 1, 1, -1, -1], [0, 1, 0, 1, 0], [0.1, 0.6, 0.2, 0.5, 0.9])
    GridFScores(ma=0.5714285714285715, mi=0.6, ma_threshold=0.65, mi_threshold=0.65)
    """
    samples = read_samples(y_true, y_pred, open_score, unknown_label=unknown_label)
    squashed = replace(samples, score=_float32_sigmoid(samples.score))
    sweep = sweep_of(RankedSamples(squashed, classes))
    cut = np.searchsorted(sweep.threshold, _GRID, side="right") - 1  # last distinct score not above t
    ma, mi = (best_of(sweep.values[name][cut], _GRID) for name in ("micro_f_score", "macro_f_score"))
    return GridFScores(ma.value, mi.value, ma.threshold, mi.threshold)


def _float32_sigmoid(score: NDArray[Any]) -> Floats:
    """1 / (1 + exp(-score)) in float32, returned as float64 like the lists the public code passes on."""
    with np.errstate(over="ignore"):  # exp(-score) = inf is what makes scores below -88.7 exactly 0
        return np.asarray(1.0 / (1.0 + np.exp(-score.astype(np.float32))), dtype=np.float64)


def pytorch_ood_oscr(y_true: Vector, y_pred: Vector, open_score: Vector, *, unknown_label: Label = UNKNOWN) -> float:
    """OSCR area of pytorch-ood 0.3.3 (0.4.0 counts as we do), with known samples only as thresholds.

    Each point counts the unknown samples with scores up to that of a known sample, and the correct known samples up to
    it in sort order; straight lines join the points. Below, OpenAUC is 1/2, and the unknown sample of 0.5 also earns
    half of the correct one of 0.6: 1/2 + 1/12. Of two correct samples tied to the only unknown one, one earns half.

    >>> round(pytorch_ood_oscr([0, 1, 1, -1, -1], [0, 1, 0, 1, 0], [0.1, 0.6, 0.2, 0.5, 0.9]), 12)
    0.583333333333
    >>> pytorch_ood_oscr([0, 0, -1], [0, 0, 0], [0.5, 0.5, 0.5])
    0.25
    """
    samples = read_samples(y_true, y_pred, open_score, unknown_label=unknown_label)
    unknown = samples.kind == UNKNOWN_KIND
    known = np.flatnonzero(~unknown)
    known = known[np.argsort(samples.score[known], kind="stable")]
    correct, thresholds = np.cumsum(samples.kind[known] == CORRECT) / samples.n_known, samples.score[known]
    accepted = np.searchsorted(np.sort(samples.score[unknown]), thresholds, side="right") / samples.n_unknown
    return float(np.trapezoid(np.concatenate([[0.0], correct, correct[-1:]]), np.concatenate([[0.0], accepted, [1.0]])))


class Legacy(NamedTuple):
    """A metric of a public code, and the exact one."""

    function: Callable[..., float]  # of the triple and unknown_label
    exact: str | None  # its key in an Evaluation, if it has one
    why: str


_GRID_WHY = "searches 99 thresholds of a float32 sigmoid instead of every distinct score"

LEGACY: Mapping[str, Legacy] = {
    "arpl_oscr": Legacy(
        arpl_oscr,
        "openauc",
        "It counts correct known samples from one position after the unknown ones; ties fall in sort order.",
    ),
    "arpl_tnr_at_tpr": Legacy(
        arpl_tnr_at_tpr,
        None,  # 1 - fpr_at_tpr(positive="known")
        "It takes the first position with the nearest TPR, not the best threshold with at least that TPR.",
    ),
    "arpl_auin": Legacy(
        arpl_auin,
        "average_precision_known",
        "It joins precisions by straight lines, to 0 at recall 0, and lets known samples lose every tie.",
    ),
    "arpl_auout": Legacy(
        arpl_auout,
        "average_precision_unknown",
        "It joins precisions by straight lines, to 0 at recall 0, and lets unknown samples lose every tie.",
    ),
    "vaze_error_at_tpr": Legacy(
        vaze_error_at_tpr,
        "error_at_95tpr",
        "It takes the lowest threshold with the nearest TPR, moves the samples at that threshold to the "
        "other side, and calls every sample known when the threshold is 1 or more.",
    ),
    "pytorch_ood_oscr": Legacy(
        pytorch_ood_oscr,
        "openauc",
        "It joins the scores of known samples only: an unknown sample also earns half of the next known one, "
        "and half of one where it ties with several.",
    ),
    "openauc_code_score": Legacy(
        openauc_code_score, "openauc", "A float32 sigmoid squashes the scores first and makes distinct ones equal."
    ),
    "openauc_code_ma_f_score": Legacy(
        lambda *triple, **options: openauc_code_f_scores(*triple, **options).ma,
        "micro_f_score",
        f"Its name says macro but it pools the classes, and it {_GRID_WHY}.",
    ),
    "openauc_code_mi_f_score": Legacy(
        lambda *triple, **options: openauc_code_f_scores(*triple, **options).mi,
        "macro_f_score",
        f"Its name says micro but it averages over the classes, and it {_GRID_WHY}.",
    ),
}
"""Every metric of this module by name."""


class LegacyRow(NamedTuple):
    """One line of ``explain``: ``difference`` is ``value - exact_value``."""

    name: str
    value: float
    exact: str | None
    exact_value: float
    difference: float
    why: str


def explain(y_true: Vector, y_pred: Vector, open_score: Vector, *, unknown_label: Label = UNKNOWN) -> list[LegacyRow]:
    """Every legacy metric beside the exact one, with the reason for the difference.

    >>> rows = explain([0, 1, 1, -1, -1], [0, 1, 0, 1, 0], [0.1, 0.6, 0.2, 0.5, 0.9])
    >>> row = rows[0]
    >>> print(f"{row.name} {row.value:.3f}, {row.exact} {row.exact_value:.3f}, {row.difference:+.3f}")
    arpl_oscr 0.417, openauc 0.500, -0.083
    """
    ranked = RankedSamples(read_samples(y_true, y_pred, open_score, unknown_label=unknown_label))
    rejected = 1.0 - float(fpr_at_tpr_of(ranked.ranking.table, positive="known"))
    rows = []
    for name, legacy in LEGACY.items():
        value = legacy.function(y_true, y_pred, open_score, unknown_label=unknown_label)
        exact = METRICS[legacy.exact].measure(ranked).value if legacy.exact else rejected
        rows.append(LegacyRow(name, value, legacy.exact, exact, value - exact, legacy.why))
    return rows
