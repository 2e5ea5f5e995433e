"""The report on a stream that was watched: what was rejected when, and what has changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from openauc.report.model import MOST_CLASSES
from openauc.report.page import render

if TYPE_CHECKING:
    from openauc.features.monitor.monitor import Monitor

_NAMES = {"rejected": "share rejected", "classes": "most telling class", "scores": "all scores"}
_BAND = 0.95  # share of the windows that lie in the band if nothing changes


def monitor_report(monitor: Monitor, *, name: str = "model", stream: str = "the stream", command: str = "") -> str:
    """A self-contained HTML page with the timeline of a stream.

    Parameters
    ----------
    name
        Name of the model.
    stream
        Name of what was watched: its file.
    command
        How the page was made, shown at its end.
    """
    from openauc.features.monitor.monitor import LIMITS

    if not monitor.n:
        raise ValueError("the monitor has seen no sample yet; update it first.")
    return render(
        "monitor",
        _data(monitor),
        monitor=monitor,
        name=name,
        stream=stream,
        names=_NAMES,
        band=_BAND,
        most_classes=MOST_CLASSES,
        limits=LIMITS,
        command=command,
    )


def _data(monitor: Monitor) -> dict[str, Any]:
    """What the script draws."""
    from scipy.stats import betabinom

    timeline, n = monitor.timeline, monitor.timeline.n
    rejected, size = int(monitor.usual[1].sum()), int(monitor.usual[0].sum())
    # Both the window and the reference are small samples.
    bounds = (betabinom.ppf(q, n, rejected + 1, size - rejected + 1) / n for q in ((1 - _BAND) / 2, (1 + _BAND) / 2))
    low, high = (bound.tolist() for bound in bounds)
    return {
        "end": np.cumsum(n).tolist(),
        "n": n.tolist(),
        "times": timeline.times.tolist() if timeline.times.astype(bool).any() else None,
        "rejected": (timeline.rejected.sum(axis=1) / n).tolist(),
        "usual": monitor.usual_share,
        "low": low,
        "high": high,
        "evidence": {
            name: (timeline.evidence[:, i] / np.log(10.0)).round(3).tolist() for i, name in enumerate(_NAMES.values())
        },
        "line": float(-np.log10(monitor.alpha)),
        "tenths": (timeline.tenths / n[:, None]).round(4).tolist(),
        "usual_tenths": (monitor.usual[2] / monitor.usual[2].sum()).round(4).tolist(),
        "alarms": [{"sample": alarm.sample, "since": alarm.since} for alarm in monitor.alarms],
        "classes": _classes(monitor),
    }


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
