"""The report on a stream that was watched: what was rejected when, and what has changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from openauc.environment import environment
from openauc.report.model import MOST_CLASSES
from openauc.report.page import percent, render

if TYPE_CHECKING:
    from openauc.features.monitor.monitor import Alarm, Monitor

NAMES = {"rejected": "share rejected", "classes": "most telling class", "scores": "all scores"}
"""What the page calls the parts that are watched."""
USUAL = 0.95
"""Windows of a stream in which nothing changes lie in the band this often."""


def monitor_report(monitor: Monitor, *, name: str = "model", stream: str = "the stream", command: str = "") -> str:
    """A self-contained HTML page with the timeline of a stream.

    Parameters
    ----------
    name
        Of the model.
    stream
        Of what was watched: its file.
    command
        How the page was made, shown at its end.
    """
    if not monitor.n:
        raise ValueError("the monitor has seen no sample yet; update it first.")
    said = _words(monitor, name, stream)
    return render("monitor", _data(monitor), m=said, command=command, environment=environment())


def _data(monitor: Monitor) -> dict[str, Any]:
    timeline = monitor.timeline
    n = timeline.n
    low, high = _band(monitor, n)
    return {
        "end": np.cumsum(n).tolist(),
        "n": n.tolist(),
        "times": timeline.times.tolist() if timeline.times.astype(bool).any() else None,
        "rejected": (timeline.rejected.sum(axis=1) / n).tolist(),
        "usual": monitor.usual_share,
        "low": low,
        "high": high,
        "evidence": {
            NAMES[part]: (timeline.evidence[:, i] / np.log(10.0)).round(3).tolist() for i, part in enumerate(NAMES)
        },
        "line": float(-np.log10(monitor.alpha)),
        "tenths": (timeline.tenths / n[:, None]).round(4).tolist(),
        "usual_tenths": (monitor.usual[2] / monitor.usual[2].sum()).round(4).tolist(),
        "alarms": [{"sample": alarm.sample, "since": alarm.since} for alarm in monitor.alarms],
        "classes": _classes(monitor),
    }


def _band(monitor: Monitor, n: Any) -> tuple[list[float], list[float]]:
    """Where the share of a window lies if nothing has changed, given how few samples window and reference have."""
    from scipy.stats import betabinom

    rejected, size = int(monitor.usual[1].sum()), int(monitor.usual[0].sum())
    outside = (1.0 - USUAL) / 2.0
    low, high = (betabinom.ppf(q, n, rejected + 1, size - rejected + 1) / n for q in (outside, 1.0 - outside))
    return low.tolist(), high.tolist()


def _classes(monitor: Monitor) -> list[dict[str, Any]]:
    """By predicted class, those with the strongest evidence first."""
    usual_called, usual_rejected, _ = monitor.usual
    called, rejected = monitor.timeline.called.sum(axis=0), monitor.timeline.rejected.sum(axis=0)
    p_value = monitor.evidence_by_class()
    since = {alarm.label: alarm.since for alarm in monitor.alarms if alarm.part == "classes"}
    names = monitor.classifier.classes_
    return [
        {
            "name": str(names[i]),
            "usual_n": int(usual_called[i]),
            "usual": float(usual_rejected[i] / max(usual_called[i], 1)),
            "n": int(called[i]),
            "rejected": float(rejected[i] / max(called[i], 1)),
            "p": float(p_value[i]),
            "since": since.get(str(names[i])),
        }
        for i in np.lexsort([-called, p_value])[:MOST_CLASSES].tolist()
    ]


# What the template says


def _words(monitor: Monitor, name: str, stream: str) -> dict[str, Any]:
    from openauc.features.monitor.monitor import LIMITS, PARTS

    n_classes = len(monitor.classifier.classes_)
    return {
        "name": name,
        "headline": _headline(monitor, name, stream),
        "n": monitor.n,
        "rejected": monitor.rejected_share,
        "usual": monitor.usual_share,
        "reference": int(monitor.usual[0].sum()),
        "kind": {"split": "calibration", "cross": "cross-fitted calibration", "reference": "reference"}[
            monitor.reference_kind
        ],
        "alarms": [_said(alarm) for alarm in monitor.alarms],
        "promise": f"{monitor.promise[:1].upper()}{monitor.promise[1:]}.",
        "p_values": {NAMES[part]: monitor.p_value(part) for part in PARTS},
        "alpha": percent(monitor.alpha, 0 if monitor.alpha >= 0.01 else 2),
        "window": monitor.timeline.size,
        "usual_band": percent(USUAL, 0),
        "some_classes": f"The {MOST_CLASSES} of {n_classes} classes with the strongest evidence. "
        if n_classes > MOST_CLASSES
        else "",
        "limits": LIMITS,
    }


def _headline(monitor: Monitor, name: str, stream: str) -> str:
    if not monitor.alarms:
        return f"In {monitor.n:,} samples of {stream}, nothing has changed for {name} beyond chance."
    since = monitor.alarms[0].since
    return f"What {name} meets in {stream} has changed, likely since sample {since:,} of {monitor.n:,}."


def _said(alarm: Alarm) -> dict[str, str]:
    """What an alarm says: a title, and a sentence."""
    when = f"Alarm at sample {alarm.sample:,}" + (f", {alarm.time}" if alarm.time else "")
    if alarm.part == "scores":
        title = "Scores have changed"
        what = f"{percent(alarm.seen)} lie above nine tenths of the reference"
    else:
        title = "Rejected of all samples" if alarm.label is None else f"Rejected of those called {alarm.label}"
        what = f"{percent(alarm.seen)}, and {percent(alarm.usual)} in the reference"
    return {"title": title, "text": f"{what}; likely since sample {alarm.since:,}. {when}."}
