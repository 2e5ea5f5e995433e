"""What a run shows: counts, time left, leaders, lines and the live view."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from openauc.bench.trial import TrialResult, TrialSpec
from openauc.commands import progress as module
from openauc.commands.progress import Progress, clock, said

SPECS = [TrialSpec.of("digits", split, method, epochs=1) for split in range(2) for method in ("softmax", "openauc")]


def plain() -> Console:
    return Console(file=io.StringIO(), width=100)


def result(spec: TrialSpec, value: float) -> TrialResult:
    return TrialResult(spec=spec, metrics={"openauc": value}, seconds=1.5)


def failed(spec: TrialSpec) -> TrialResult:
    return TrialResult(spec=spec, error="ValueError: no [bold]luck[/bold]\n\nTraceback")


def test_time_left_follows_the_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    progress = Progress({spec.id: cost for spec, cost in zip(SPECS, (1, 2, 3, 4), strict=True)}, plain())
    progress.planned(SPECS[1:], [result(SPECS[0], 0.5)])
    assert progress.seconds_left() is None
    progress.started(SPECS[1:2])
    now[0] = 110.0
    progress.finished(result(SPECS[1], 0.6))
    # Two units took 10 s, seven are waiting.
    assert progress.seconds_left() == pytest.approx(35)
    progress.started(SPECS[2:3])
    # Of the three units that run, half counts as done.
    assert progress.seconds_left() == pytest.approx((7 - 1.5) / 2 * 10)
    assert (progress.total, progress.failed) == (4, 0)


def test_the_leader_has_the_highest_mean() -> None:
    progress = Progress({}, plain())
    values = dict(zip((spec.id for spec in SPECS), (0.9, 0.8, 0.5, 0.7), strict=True))
    progress.planned([], [result(spec, values[spec.id]) for spec in SPECS])
    other = replace(SPECS[0], split=2)
    progress.finished(failed(other))
    assert progress.leaders() == [("digits", "openauc", pytest.approx(0.75), 2)]
    assert progress.failed == 1


def test_lines_tell_each_result() -> None:
    console = plain()
    with Progress({}, console) as lines:
        lines.planned(SPECS[:2], [])
        lines.started(SPECS[:1])
        lines.finished(result(SPECS[0], 0.5))
        lines.started(SPECS[1:2])
        lines.finished(failed(SPECS[1]))
    first, second, third = console.file.getvalue().splitlines()
    assert first == "2 trials, 0 of them done before"
    assert second.startswith(f"[1/2] {SPECS[0].id}: OpenAUC 50.0 (1.5 s), ")
    assert third == f"[2/2] {SPECS[1].id}: FAILED ValueError: no [bold]luck[/bold]"


def test_the_view_shows_what_runs_and_who_leads() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    with Progress({}, console) as view:
        view.planned(SPECS, [])
        view.started(SPECS[:2])
        view.finished(result(SPECS[0], 0.5))
        view.finished(failed(SPECS[1]))
        view.started(SPECS[2:3])
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "no [bold]luck[/bold]" in shown
    drawing = plain()
    drawing.print(view._draw())
    drawn = drawing.file.getvalue()  # type: ignore[attr-defined]
    assert "1 done  1 running  1 waiting  1 failed" in drawn
    assert SPECS[2].id in drawn
    assert "digits: softmax" in drawn
    assert "OpenAUC 50.0 (n = 1)" in drawn


def test_said_and_clock() -> None:
    assert said(failed(SPECS[0])) == "FAILED ValueError: no [bold]luck[/bold]"
    assert [clock(s) for s in (0, 59.94, 60, 3599, 3600, 86400)] == [
        "0.0 s",
        "59.9 s",
        "1 min 00 s",
        "59 min 59 s",
        "1 h 00 min",
        "24 h 00 min",
    ]
