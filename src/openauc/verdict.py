"""Whether a model keeps what it promised: its decisions on labelled rows, against its promise and its forecast."""

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

CROSS_ROOM = 0.02
"""A cross-fitted promise says "about": the share may be this far from it."""
FORECAST_ROOM = 0.01
"""How far the interval of OpenAUC may lie from that of the forecast: close to 1 the latter is very narrow."""
_REASONS = (
    "near-copies among the training rows, which make a model look surer than it is",
    "classes in other shares than in training",
    "drift since training",
    "embeddings of another encoder",
)
_REMEDIES = (
    "fit again with rows that belong together marked, by --group-column or groups=",
    "take the threshold from new labelled rows, by classifier.calibrate(X, y)",
    "fit again on newer rows",
)


@dataclass(frozen=True, kw_only=True)
class Promise:
    """What a model says of itself before it meets new rows.

    Parameters
    ----------
    acceptance
        Share of known rows that it accepts; None if it promises nothing.
    kind
        ``"split"``: at least this share; ``"cross"``: about this share.
    n
        Calibration samples behind it; None if they are not known.
    openauc, interval
        Forecast of OpenAUC on classes it has not seen.
    """

    acceptance: float | None = None
    kind: str = "cross"
    n: int | None = None
    openauc: float | None = None
    interval: Interval | None = None

    def to_json(self) -> str:
        """For a file of decisions."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Promise:
        """What :meth:`to_json` wrote."""
        values = json.loads(text)
        return cls(**values | {"interval": values["interval"] and Interval(*values["interval"])})

    def acceptance_outcome(self, share: float, interval: Interval, level: float) -> Outcome | None:
        """Failed only if chance does not explain it: that of the rows, and that of the calibration."""
        aim = self.acceptance
        if aim is None:
            return None
        room = 0.0 if self.kind == "split" else CROSS_ROOM
        error = normal_quantile(level) * math.sqrt(aim * (1.0 - aim) / self.n) if self.n else 0.0
        low, high = share - math.hypot(share - interval.low, error), share + math.hypot(interval.high - share, error)
        too_many = self.kind != "split" and low > aim + room
        return "failed" if too_many or high < aim - room else "kept"

    def openauc_outcome(self, interval: Interval) -> Outcome | None:
        """Kept if the two intervals meet, or nearly."""
        if self.interval is None:
            return None
        if interval.low > self.interval.high + FORECAST_ROOM:
            return "better"
        return "failed" if interval.high < self.interval.low - FORECAST_ROOM else "kept"


class Finding(NamedTuple):
    """A number of a verdict, measured on ``n`` rows; and the number that was said before, if any, with its interval."""

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
    """What the decisions of a model are worth on labelled rows, and whether it said so."""

    n_known: int
    n_unknown: int
    findings: tuple[Finding, ...]
    advice: tuple[str, ...] = ()
    level: float = 0.95

    @property
    def failed(self) -> bool:
        """Whether a promise or a forecast failed."""
        return any(finding.outcome == "failed" for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        findings = [finding._asdict() for finding in self.findings]
        return asdict(self) | {"findings": findings, "advice": list(self.advice), "failed": self.failed}


def judge(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    open_score: ArrayLike,
    prediction: ArrayLike,
    *,
    promise: Promise | None = None,
    unknown_label: Label = UNKNOWN,
    level: float = 0.95,
) -> Verdict:
    """Hold decisions on labelled rows against what the model promised.

    Parameters
    ----------
    prediction
        (N,) what the model answers: its class ``y_pred``, or anything else for unknown.

    Examples
    --------
    >>> truth, classes, scores = [0] * 60 + [1] * 40, [0] * 100, [0.1] * 100
    >>> verdict = judge(truth, classes, scores, [0] * 80 + ["unknown"] * 20, promise=Promise(acceptance=0.95, n=500))
    >>> for found in verdict.findings:
    ...     print(found.name, found.value, found.said, found.aim, found.outcome)
    known rows accepted 0.8 promised: about 0.95 failed
    accepted rows right 0.75  None None
    """
    predictions = Predictions.of(y_true, y_pred, open_score)
    answer = as_labels("prediction", prediction)
    check_same_length(y_true=predictions.y_true, prediction=answer)
    unknown = is_label(predictions.y_true, unknown_label)
    accepted = answer.astype(str) == predictions.y_pred.astype(str)
    right = predictions.y_true == predictions.y_pred
    promise = promise or Promise()
    findings, advice = [], []

    def share(name: str, hits: Any) -> Finding:
        value = float(np.mean(hits))
        return Finding(name, value, wilson_interval(int(np.sum(hits)), len(hits), level), len(hits))

    if not unknown.all():
        found = share("known rows accepted", accepted[~unknown])
        outcome = promise.acceptance_outcome(found.value, found.interval, level)
        if promise.acceptance is not None:
            said = f"promised: {'at least' if promise.kind == 'split' else 'about'}"
            found = found._replace(said=said, aim=promise.acceptance, outcome=outcome)
        if outcome == "failed":
            advice += _about_acceptance(found.value < (promise.acceptance or 0.0))
        findings.append(found)
    if unknown.any():
        findings.append(share("unknown rows rejected", ~accepted[unknown]))
    if accepted.any():
        findings.append(share("accepted rows right", right[accepted] & ~unknown[accepted]))
    if unknown.any() and not unknown.all():
        model = RankedSamples(read_samples(*predictions, unknown_label=unknown_label))
        evaluation = evaluate_ranked(model, {"openauc": METRICS["openauc"]}, level, 0, REPLICATES)
        interval = evaluation.intervals["openauc"]
        found = Finding("OpenAUC", evaluation.openauc, interval, len(unknown))
        outcome = promise.openauc_outcome(interval)
        if promise.openauc is not None:
            found = found._replace(
                said="forecast:", aim=promise.openauc, aim_interval=promise.interval, outcome=outcome
            )
        if outcome == "failed":
            advice += _about_forecast(bool(advice))
        findings.append(found)
    return Verdict(int((~unknown).sum()), int(unknown.sum()), tuple(findings), tuple(advice), level)


def _about_acceptance(fewer: bool) -> list[str]:
    if not fewer:
        return [
            "More known rows are accepted than promised. Likely these rows, or near-copies of them, are among the "
            "training rows: test on others."
        ]
    return [f"Fewer known rows are accepted than promised. {_likely(_REASONS)}", f"What to do: {'; '.join(_REMEDIES)}."]


def _about_forecast(told: bool) -> list[str]:
    nearer = "unknown rows that are nearer to the known classes than these are to each other"
    sentence = f"OpenAUC is lower than forecast. {_likely((nearer,) if told else (nearer, *_REASONS))}"
    return [sentence] if told else [sentence, f"What to do: {_REMEDIES[0]}; {_REMEDIES[2]}."]


def _likely(reasons: tuple[str, ...]) -> str:
    return f"Likely reasons: {'; '.join(reasons)}."
