"""The report on a stream that was watched: what was rejected when, and what has changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from openauc.report.groups import LETTERS, cut, image_address
from openauc.report.model import MOST_CLASSES
from openauc.report.page import render

if TYPE_CHECKING:
    from openauc.features.monitor.monitor import Monitor

_NAMES = {"rejected": "share rejected", "classes": "most telling class", "scores": "all scores"}
_BAND = 0.95  # share of the windows that lie in the band if nothing changes


def monitor_report(
    monitor: Monitor,
    *,
    name: str = "model",
    stream: str = "the stream",
    rejected: Mapping[int, str] | None = None,
    images: Mapping[int, bytes] | None = None,
    next_command: str = "openauc discover MODEL STREAM -o groups",
    command: str = "",
) -> str:
    """A self-contained HTML page with the timeline of a stream.

    Parameters
    ----------
    name
        Name of the model.
    stream
        Name of what was watched.
    rejected
        Number of a sample in the stream, from 1 -> its text, file name or id: rejected samples to show.
    images
        Number of a rejected sample -> PNG or JPEG of its thumbnail.
    next_command
        Command that finds what is new among the rejected samples.
    command
        How the page was made, shown at its end.
    """
    from openauc.features.monitor.monitor import LIMITS

    if not monitor.n:
        raise ValueError("the monitor has seen no sample yet; update it first.")
    found, thumbnails = _NAMES.items(), images or {}
    return render(
        "monitor",
        _data(monitor),
        monitor=monitor,
        name=name,
        stream=stream,
        evidence=[(i, part, name) for i, (part, name) in enumerate(found) if monitor.p_value(part) < 1.0],
        rejected={sample: cut(text) for sample, text in (rejected or {}).items()},
        letters=LETTERS,
        images={sample: image_address(image, f"sample {sample}") for sample, image in thumbnails.items()},
        band=_BAND,
        most_classes=MOST_CLASSES,
        limits=LIMITS,
        more_rejected=more_rejected(monitor),
        next_command=next_command,
        command=command,
    )


def more_rejected(monitor: Monitor) -> bool:
    """Whether more samples are rejected than in the reference, of all or of a class, and significantly so."""
    return any(alarm.part != "scores" and alarm.seen > alarm.usual for alarm in monitor.alarms)


def _data(monitor: Monitor) -> dict[str, Any]:
    from scipy.stats import betabinom

    timeline, n, tenths = monitor.timeline, monitor.timeline.n, monitor.usual[2]
    size, rejected = (int(counts.sum()) for counts in monitor.usual[:2])
    # Both the window and the reference are small samples.
    low, high = betabinom.ppf([[(1 - _BAND) / 2], [(1 + _BAND) / 2]], n, rejected + 1, size - rejected + 1) / n
    evidence = (timeline.evidence / np.log(10.0)).round(3).T
    names = zip(_NAMES.items(), evidence.tolist(), strict=True)
    return {
        "end": np.cumsum(n).tolist(),
        "n": n.tolist(),
        "times": timeline.times.tolist() if timeline.times.astype(bool).any() else None,
        "rejected": (timeline.rejected.sum(axis=1) / n).tolist(),
        "usual": monitor.usual_share,
        "low": low.tolist(),
        "high": high.tolist(),
        "evidence": [
            {"name": name, "color": i, "powers": powers}
            for i, ((part, name), powers) in enumerate(names)
            if monitor.p_value(part) < 1.0
        ],
        "line": float(-np.log10(monitor.alpha)),
        "tenths": (timeline.tenths / n[:, None]).round(4).tolist(),
        "usual_tenths": (tenths / tenths.sum()).round(4).tolist(),
        "alarms": [{"sample": alarm.sample, "since": alarm.since} for alarm in monitor.alarms],
        "classes": _classes(monitor),
    }


def _classes(monitor: Monitor) -> list[dict[str, Any]]:
    """By predicted class, those with the strongest evidence first."""
    usual_called, usual_rejected, _ = monitor.usual
    called, rejected = monitor.timeline.called.sum(axis=0), monitor.timeline.rejected.sum(axis=0)
    p_value = monitor.evidence_by_class()
    since = {alarm.label: alarm.since for alarm in monitor.alarms if alarm.part == "classes"}
    columns = {
        "name": monitor.classifier.classes_.astype(str),
        "usual_n": usual_called,
        "usual": usual_rejected / np.maximum(usual_called, 1),
        "n": called,
        "rejected": rejected / np.maximum(called, 1),
        "p": p_value,
    }
    shown = np.lexsort([-called, p_value])[:MOST_CLASSES]
    rows = zip(*(values[shown].tolist() for values in columns.values()), strict=True)
    return [{**dict(zip(columns, row, strict=True)), "since": since.get(row[0])} for row in rows]
