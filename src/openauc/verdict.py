"""Check on labelled rows whether a model keeps its guarantee and its forecast."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from openauc._validation import UNKNOWN, Label, as_labels, check_same_length, is_label
from openauc.evaluation import evaluate_ranked
from openauc.intervals import REPLICATES, Interval, normal_quantile, wilson_interval
from openauc.metrics.counts import RankedSamples
from openauc.metrics.registry import METRICS
from openauc.metrics.samples import read_samples
from openauc.predictions import Predictions

Outcome = Literal["kept", "failed", "better"]

CROSS_ROOM = 0.02  # a cross-fitted guarantee says "about": the share may differ from it by this much
FORECAST_ROOM = 0.01
"""How far apart the intervals of OpenAUC and of its forecast may lie: near 1 the forecast's is very narrow."""

_TOO_MANY = (
    "More known rows are accepted than guaranteed. Likely these rows, or near-copies of them, are among the training "
    "rows: test on others."
)
_TOO_FEW = "Fewer known rows are accepted than guaranteed. Likely reasons:"
_LOWER = (
    "OpenAUC is lower than forecast. Likely reasons: unknown rows that are nearer to the known classes than these are "
    "to each other"
)
_REASONS = (
    "near-copies among the training rows, which make a model look surer than it is; classes in other shares than in "
    "training; drift since training; embeddings of another encoder."
)
_WHAT_TO_DO = "What to do: fit again with rows that belong together marked, by --group-column or groups=;"
_AGAIN = "fit again on newer rows."
_RECALIBRATE = f"take the threshold from new labelled rows, by classifier.calibrate(X, y); {_AGAIN}"


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """The guarantee and the forecast of a model, stated before it sees new rows.

    Parameters
    ----------
    acceptance
        Share of known rows that it accepts; None if nothing is guaranteed.
    kind
        ``"split"``: at least this share; ``"cross"``: about this share.
    n
        Number of calibration samples; None if it is not known.
    openauc, interval
        Forecast of OpenAUC on unknown classes.
    """

    acceptance: float | None = None
    kind: str = "cross"
    n: int | None = None
    openauc: float | None = None
    interval: Interval | None = None

    def to_json(self) -> str:
        """As text, for a file of decisions."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Guarantee:
        """The guarantee that :meth:`to_json` wrote."""
        values = json.loads(text)
        return cls(**values | {"interval": values["interval"] and Interval(*values["interval"])})


class Finding(NamedTuple):
    """A number measured on ``n`` rows, with the number that was said before, if any."""

    name: str
    value: float
    interval: Interval
    n: int
    said: str = ""
    aim: float | None = None
    aim_interval: Interval | None = None
    outcome: Outcome | None = None


@dataclass(frozen=True)
class Verdict:
    """How good the decisions of a model are on labelled rows, and whether its guarantee and forecast hold."""

    n_known: int
    n_unknown: int
    findings: tuple[Finding, ...]
    advice: tuple[str, ...] = ()
    level: float = 0.95

    @property
    def failed(self) -> bool:
        """Whether the guarantee or the forecast failed."""
        return any(finding.outcome == "failed" for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        findings = [finding._asdict() for finding in self.findings]
        return {**vars(self), "findings": findings, "advice": list(self.advice), "failed": self.failed}


def judge(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    open_score: ArrayLike,
    prediction: ArrayLike,
    *,
    guarantee: Guarantee | None = None,
    unknown_label: Label = UNKNOWN,
    level: float = 0.95,
) -> Verdict:
    """Compare decisions on labelled rows with what the model guarantees.

    Parameters
    ----------
    prediction
        (N,) answers of the model: its class ``y_pred``, or anything else for unknown.

    Examples
    --------
    >>> truth, classes, scores = [0] * 60 + [1] * 40, [0] * 100, [0.1] * 100
    >>> answers, guarantee = [0] * 80 + ["unknown"] * 20, Guarantee(acceptance=0.95, n=500)
    >>> for found in judge(truth, classes, scores, answers, guarantee=guarantee).findings:
    ...     print(found.name, found.value, found.said, found.aim, found.outcome)
    known rows accepted 0.8 guaranteed: about 0.95 failed
    accepted rows right 0.75  None None
    """
    predictions = Predictions.of(y_true, y_pred, open_score)
    answer = as_labels("prediction", prediction)
    check_same_length(y_true=predictions.y_true, prediction=answer)
    unknown = is_label(predictions.y_true, unknown_label)
    accepted = answer.astype(str) == predictions.y_pred.astype(str)
    right = (predictions.y_true == predictions.y_pred) & ~unknown
    shares = {
        "known rows accepted": accepted[~unknown],
        "unknown rows rejected": ~accepted[unknown],
        "accepted rows right": right[accepted],
    }
    counts = ((name, int(np.sum(hits)), len(hits)) for name, hits in shares.items())
    findings = [Finding(name, k / n, wilson_interval(k, n, level), n) for name, k, n in counts if n]
    guarantee, advice = guarantee or Guarantee(), []
    n_unknown, n_known = int(unknown.sum()), int((~unknown).sum())
    if n_known:
        findings[0] = found = _held_to_acceptance(findings[0], guarantee, level)
        if found.outcome == "failed":
            too_few = found.value < (found.aim or 0.0)
            advice = [f"{_TOO_FEW} {_REASONS}", f"{_WHAT_TO_DO} {_RECALIBRATE}"] if too_few else [_TOO_MANY]
    if n_known and n_unknown:
        ranked = RankedSamples(read_samples(*predictions, unknown_label=unknown_label))
        evaluation = evaluate_ranked(ranked, {"openauc": METRICS["openauc"]}, level, 0, REPLICATES)
        found = Finding("OpenAUC", evaluation.openauc, evaluation.intervals["openauc"], len(unknown))
        findings.append(found := _held_to_forecast(found, guarantee))
        if found.outcome == "failed":
            advice += [f"{_LOWER}."] if advice else [f"{_LOWER}; {_REASONS}", f"{_WHAT_TO_DO} {_AGAIN}"]
    return Verdict(n_known, n_unknown, tuple(findings), tuple(advice), level)


def _held_to_acceptance(found: Finding, guarantee: Guarantee, level: float) -> Finding:
    """Failed only if neither the chance of these rows nor that of the calibration explains the difference."""
    aim = guarantee.acceptance
    if aim is None:
        return found
    error = normal_quantile(level) * math.sqrt(aim * (1.0 - aim) / guarantee.n) if guarantee.n else 0.0
    low = found.value - math.hypot(found.value - found.interval.low, error)
    high = found.value + math.hypot(found.interval.high - found.value, error)
    if guarantee.kind == "split":
        said, failed = "guaranteed: at least", high < aim
    else:
        said, failed = "guaranteed: about", high < aim - CROSS_ROOM or low > aim + CROSS_ROOM
    return found._replace(said=said, aim=aim, outcome="failed" if failed else "kept")


def _held_to_forecast(found: Finding, guarantee: Guarantee) -> Finding:
    """Kept if the two intervals meet, or nearly meet."""
    aim = guarantee.interval
    if aim is None:
        return found
    better, failed = found.interval.low > aim.high + FORECAST_ROOM, found.interval.high < aim.low - FORECAST_ROOM
    outcome: Outcome = "better" if better else "failed" if failed else "kept"
    return found._replace(said="forecast:", aim=guarantee.openauc, aim_interval=aim, outcome=outcome)
