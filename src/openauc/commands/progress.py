"""What a command shows while it runs: a live view or a line per trial for a benchmark, a bar for one long job."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from statistics import mean

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from openauc.bench.trial import TrialResult, TrialSpec, Watch, main_metric
from openauc.commands.terminal import visible
from openauc.metrics.registry import METRICS


class Progress(Watch):
    """State of a run: a small table on a terminal, a line for every result elsewhere; ``cost`` is the work by id."""

    def __init__(self, cost: Mapping[str, float], console: Console) -> None:
        self.cost, self.console = cost, console
        self.begin = time.monotonic()
        self.results: list[TrialResult] = []
        self.running: dict[str, float] = {}
        self.waiting: set[str] = set()
        self.finished_cost = 0.0
        self.live = Live(console=console, refresh_per_second=4, get_renderable=self._draw)

    def __enter__(self) -> Progress:
        if self.console.is_terminal:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.live.stop()

    def planned(self, waiting: Sequence[TrialSpec], done: Sequence[TrialResult]) -> None:
        self.waiting, self.results, self.begin = {spec.id for spec in waiting}, list(done), time.monotonic()
        if not self.console.is_terminal:
            self._say(f"{self.total} trials, {len(done)} of them done before")

    def started(self, specs: Sequence[TrialSpec]) -> None:
        ids = [spec.id for spec in specs]
        self.waiting.difference_update(ids)
        self.running |= dict.fromkeys(ids, time.monotonic())

    def finished(self, result: TrialResult) -> None:
        self.running.pop(result.spec.id, None)
        self.results.append(result)
        self.finished_cost += self.cost.get(result.spec.id, 1.0)
        line = f"{result.spec.id}: {said(result)}"
        if not self.console.is_terminal:
            left = self.seconds_left()
            rest = f", {clock(left)} left" if left and (self.waiting or self.running) else ""
            self._say(f"[{len(self.results)}/{self.total}] {line}{rest}")
        elif result.error is not None:  # it scrolls past above the table
            self._say(line, style="red")

    def _say(self, line: str, style: str = "") -> None:
        self.console.print(Text(visible(line), style=style), soft_wrap=True)

    @property
    def total(self) -> int:
        return len(self.results) + len(self.running) + len(self.waiting)

    @property
    def failed(self) -> int:
        return sum(result.error is not None for result in self.results)

    def seconds_left(self) -> float | None:
        """Time for the rest at the pace so far; None before the first result."""
        if not self.finished_cost:
            return None
        waiting, running = (sum(self.cost.get(key, 1.0) for key in ids) for ids in (self.waiting, self.running))
        rest = waiting + running / 2  # half of what is running is done, on average
        return rest / self.finished_cost * (time.monotonic() - self.begin)

    def leaders(self) -> list[tuple[str, str, float, int]]:
        """Per protocol the method with the highest mean OpenAUC so far, and over how many trials."""
        values: dict[str, dict[str, list[float]]] = {}
        for result in self.results:
            if "openauc" in result.metrics:
                methods = values.setdefault(result.spec.protocol, {})
                methods.setdefault(result.spec.method, []).append(result.metrics["openauc"])
        best = {protocol: max(methods.items(), key=lambda item: mean(item[1])) for protocol, methods in values.items()}
        return [(protocol, method, mean(found), len(found)) for protocol, (method, found) in best.items()]

    def _draw(self) -> Group:
        left = self.seconds_left()
        head = Text.assemble(
            (f"{len(self.results) - self.failed} done", "green"),
            f"  {len(self.running)} running  {len(self.waiting)} waiting  ",
            (f"{self.failed} failed", "red" if self.failed else "dim"),
            f"  {clock(time.monotonic() - self.begin)} so far",
            f"  about {clock(left)} left" if left and self.running else "",
        )
        rows = Table(box=None, pad_edge=False, show_header=False)
        for key, since in list(self.running.items())[:8]:
            rows.add_row("running", key, clock(time.monotonic() - since))
        for protocol, method, value, count in self.leaders():
            rows.add_row("best so far", f"{protocol}: {method}", f"OpenAUC {100 * value:.1f} (n = {count})")
        return Group(head, ProgressBar(total=max(1, self.total), completed=len(self.results), width=60), rows)


@contextmanager
def progress_bar(what: str, *, enabled: bool = True) -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal, silence elsewhere; to be told how many are done, of how many."""
    console = Console(stderr=True)
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bar(*columns, console=console, disable=not (enabled and console.is_terminal)) as bar:
        task = bar.add_task("", total=None)
        yield lambda count, total: bar.update(task, completed=count, total=total)


def said(result: TrialResult) -> str:
    if result.error is not None:
        return f"FAILED {result.error.splitlines()[0]}"
    metric = main_metric([result])
    return f"{METRICS[metric].label} {100 * result.metrics[metric]:.1f} ({clock(result.seconds)})"


def clock(seconds: float) -> str:
    """Duration in one or two units.

    >>> clock(8.24), clock(192), clock(7500)
    ('8.2 s', '3 min 12 s', '2 h 05 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"
