r"""Deciding with a guarantee: conformal p-values of "this sample is known", and the thresholds that follow.

The p-value of a sample with score s among n calibration samples of known classes is
:math:`(1 + \#\{s_i \ge s\}) / (n + 1)`. A sample is rejected if its p-value is at most :math:`\alpha`, one minus the
acceptance asked for. The guarantee for a new known sample depends on where the calibration scores come from:

* **split**: from samples the model was not fitted on. The new sample is accepted with probability at least
  :math:`1 - \alpha`, for any number of samples and any distribution; ties only raise it.
* **cross**: each score from a model fitted without that sample and its copies, so all samples serve both ends. The new
  sample is scored by the model fitted on all samples, which knows a little more; calibration scores are corrected for
  that. The acceptance is then about :math:`1 - \alpha`, without a lower bound.

Both are averages over samples (and over calibration sets). Per class they hold for the samples of each predicted class
with at least :math:`1/\alpha - 1` calibration samples; smaller classes use the threshold of all samples.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import false_discovery_control

from openauc.features.scores._arrays import Array
from openauc.features.scores.base import Floats, Rows
from openauc.metrics.operating import order_statistic, smallest_sample


class Calibration(NamedTuple):
    """Sorted calibration scores in groups; every class belongs to one group.

    >>> calibration = Calibration.of(np.array([3.0, 1.0, 2.0]), np.array([0, 1, 1]), 2)
    >>> calibration.p_value(np.array([2.0, 9.0]), np.array([0, 1])).tolist()
    [0.75, 0.25]
    """

    scores: Floats  # of all groups one after the other, each sorted
    offsets: Rows  # group g has the scores from offsets[g] to offsets[g + 1]
    group: Rows  # (C,) group of each predicted class

    @classmethod
    def of(
        cls,
        scores: Floats,
        predicted: Rows,
        n_classes: int,
        *,
        fewest: int | None = None,
        later: Rows | None = None,
        enough: int = 1,
    ) -> Calibration:
        """One group of all samples; with ``fewest`` also one for each predicted class with at least as many.

        ``later`` has the class of each sample whose class was learned later, and -1 for the others. These classes get
        a group of their samples if there are ``enough``, and the first group stays that of the others.
        """
        is_later = np.zeros(len(scores), bool) if later is None else later >= 0
        parts, group = [np.sort(scores[~is_later])], np.zeros(n_classes, np.int64)
        if later is not None and is_later.sum() >= enough:
            group[later[is_later]] = 1
            parts.append(np.sort(scores[is_later]))
        if fewest is not None:
            for label in np.flatnonzero(np.bincount(predicted, minlength=n_classes) >= max(fewest, 1)):
                group[label] = len(parts)
                parts.append(np.sort(scores[predicted == label]))
        offsets = np.concatenate([[0], np.cumsum([len(part) for part in parts])]).astype(np.int64)
        return cls(np.concatenate(parts), offsets, group)

    @property
    def sizes(self) -> Rows:
        return np.diff(self.offsets)

    def p_value(self, score: Array, predicted: Array) -> Array:
        """(n,) p-values, by bisection inside each sample's group, in the array API."""
        xp = score.__array_namespace__()
        group = xp.take(xp.asarray(self.group), predicted, axis=0)
        start, end = (xp.take(xp.asarray(bounds), group, axis=0) for bounds in (self.offsets[:-1], self.offsets[1:]))
        low, high, values = start, end, xp.asarray(np.append(self.scores, np.inf))
        for _ in range(int(self.sizes.max()).bit_length()):
            middle = (low + high) // 2
            open_ = low < high
            below = open_ & (xp.take(values, middle, axis=0) < score)
            low = xp.where(below, middle + 1, low)
            high = xp.where(open_ & ~below, middle, high)
        found = (1.0 + xp.astype(end - low, xp.float64)) / (1.0 + xp.astype(end - start, xp.float64))
        return xp.where(score == score, found, xp.zeros_like(found))  # NaN is not known

    def thresholds(self, acceptance: float) -> tuple[Floats, int]:
        """(C,) threshold of each predicted class, and how many samples a group needs: 0 if all groups have them.

        A group too small for the guarantee rejects nothing.
        """
        if acceptance == 1.0:
            return np.full(len(self.group), np.inf), 0
        k = np.array([order_statistic(int(size), acceptance) for size in self.sizes])
        found = np.append(self.scores, np.inf)[np.where(k <= self.sizes, self.offsets[:-1] + k - 1, -1)]
        thresholds = found[self.group]
        return thresholds, smallest_sample(acceptance) if np.isinf(thresholds).any() else 0


def guarantee(acceptance: float, kind: str, n: int) -> tuple[str, str]:
    """The guarantee in one sentence, and where it comes from."""
    if acceptance == 1.0:
        return "every row is accepted, known or not", ""
    if kind == "split":
        return (
            f"at least {100 * acceptance:g} % of new rows of known classes are accepted, if they are like the {n:,} "
            "rows set aside to check with",
            "Split-conformal: it holds on average over such rows and draws of them, in finite samples.",
        )
    return (
        f"about {100 * acceptance:g} % of new rows of known classes are accepted, if they are like the training rows",
        f"The threshold comes from {n:,} rows, each scored by a model that had not seen it or its copies. There is no "
        "lower bound; calibration='split' or calibrate(X, y) gives one.",
    )


def benjamini_hochberg(p_values: Floats, fdr: float) -> NDArray[np.bool_]:
    r"""Which hypotheses to reject so that the expected share of false rejections among them is at most ``fdr``.

    These are the k smallest p-values, for the largest k with :math:`p_{(k)} \le k\,\mathrm{fdr}/n`.

    >>> benjamini_hochberg(np.array([0.01, 0.5, 0.03, 0.9]), 0.1).tolist()
    [True, False, True, False]
    """
    return np.asarray(false_discovery_control(p_values) <= fdr * (1 + 1e-12))
