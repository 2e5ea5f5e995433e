"""The paper's two figures from real runs, as SVG and PNG into `benchmark/results`; needs `openauc[plot]`.

`python benchmark/figures.py figure1 "NAME=PREDICTIONS" ...`: metrics against the TPR of unknown, a panel a model.
`python benchmark/figures.py figure2 STORE`: OpenAUC against lambda, from `openauc run sensitivity`.

Colours are Okabe and Ito's, which stay apart for colour-blind readers; line styles and markers stay apart in grey.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from writing import RESULTS, hardware_name

from openauc._files import atomic_write
from openauc.bench.store import Store
from openauc.bench.summary import Cell, summarise
from openauc.bench.trial import TrialResult
from openauc.environment import environment
from openauc.metrics.curve import Curve, Floats
from openauc.metrics.decision import threshold_sweep
from openauc.metrics.ranking import openauc_score
from openauc.metrics.registry import METRICS
from openauc.predictions import Predictions

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#767676"

REFERENCE: dict[str, Any] = {"color": GREY, "linewidth": 1.3, "linestyle": (0, (1, 1.5)), "zorder": 1}
DOT: dict[str, Any] = {"markersize": 5.5, "markeredgecolor": "white", "markeredgewidth": 0.9}
LOOK: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "axes.edgecolor": "#444444",
    "axes.labelcolor": "#222222",
    "xtick.color": "#444444",
    "ytick.color": "#444444",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.7,
    "lines.solid_capstyle": "round",
    "svg.fonttype": "none",
    # Names inside an SVG are random unless salted.
    "svg.hashsalt": "openauc",
}


class Line(NamedTuple):
    """How a metric of Figure 1 is drawn, and what it is called."""

    label: str
    color: str
    style: str | tuple[int, tuple[float, ...]]


LINES: dict[str, Line] = {
    "macro_f_score": Line("F-score", BLUE, "-"),
    "youden_index": Line("Youden's index", ORANGE, (0, (6, 2))),
    "normalized_accuracy": Line("normalized accuracy", GREEN, (0, (2, 1.4))),
}


def figure1(panels: Mapping[str, Predictions]) -> Figure:
    """F-score, Youden's index and normalized accuracy of a model against the share of unknown samples it rejects.

    A dot marks the threshold that each metric would choose. All three may be best where few unknown samples are
    rejected; OpenAUC, the flat line, needs no threshold.

    Parameters
    ----------
    panels
        Predictions of one model each, by title.
    """
    if not panels:
        raise ValueError("there is nothing to draw; pass the predictions of at least one model, by title.")
    with look() as pyplot:
        figure: Figure = pyplot.figure(figsize=(0.5 + 2.9 * len(panels), 3.3), layout="constrained")
        axes = figure.subplots(1, len(panels), sharey=True, squeeze=False, gridspec_kw={"wspace": 0.06})[0]
        for ax, (title, predictions) in zip(axes, panels.items(), strict=True):
            _draw_sweep(ax, title, predictions)
        axes[0].set_ylabel("metric at the threshold")
        figure.supxlabel("unknown samples rejected (TPR of the unknown class)", fontsize=9, color="#222222")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False, handlelength=3.2)
        return figure


def figure2(results: Iterable[TrialResult], *, metric: str = "openauc", level: float = 0.95) -> Figure:
    r"""A metric of the OpenAUC method against its weight :math:`\lambda`, with Student intervals over distinct splits.

    The level of cross-entropy is that of CE+ where it was run, and otherwise that of :math:`\lambda = 0`.

    Parameters
    ----------
    results
        Of the benchmark ``sensitivity``, possibly among others; one panel per protocol.
    metric, level
        Name in ``METRICS``; level of the intervals.
    """
    swept: dict[str, dict[float, list[TrialResult]]] = {}
    baselines: dict[str, list[TrialResult]] = {}
    for result in results:
        spec = result.spec
        if result.error is None and spec.method == "ce_plus":
            baselines.setdefault(spec.protocol, []).append(result)
        elif result.error is None and spec.method == "openauc" and spec.score is None and "lam" in spec.method_args:
            lam = float(spec.method_args["lam"] or 0)
            swept.setdefault(spec.protocol, {}).setdefault(lam, []).append(result)
    swept = {protocol: by_lam for protocol, by_lam in swept.items() if len(by_lam) > 1}
    if not swept:
        raise ValueError("no protocol has results of openauc with several lam; run the benchmark 'sensitivity' first.")
    with look() as pyplot:
        figure: Figure = pyplot.figure(figsize=(0.6 + 3.0 * len(swept), 3.0), layout="constrained")
        panels = figure.subplots(1, len(swept), squeeze=False)[0]
        for ax, (protocol, by_lam) in zip(panels, swept.items(), strict=True):
            cells = {lam: _cell(by_lam[lam], metric, level) for lam in sorted(by_lam)}
            baseline = _cell(baselines[protocol], metric, level) if protocol in baselines else None
            _draw_sensitivity(ax, cells, baseline)
            ax.set_title(protocol)
        panels[0].set_ylabel(f"{METRICS[metric].label} × 100")
        return figure


def save(figure: Figure, path: Path | str, *, about: str | None = None) -> tuple[Path, Path]:
    """Write ``path``.svg and ``path``.png, each all or nothing; the same figure gives the same bytes.

    ``about``, where the figure comes from, is kept inside both files as their description.
    """
    written = []
    with look() as pyplot:
        for suffix, unwanted in ((".svg", ("Date", "Creator")), (".png", ("Software",))):
            target = Path(f"{path}{suffix}")
            told = {"Description": about} if about else {}
            with atomic_write(target) as file:
                figure.savefig(file, format=suffix[1:], dpi=200, metadata={**dict.fromkeys(unwanted), **told})
            written.append(target)
        pyplot.close(figure)
    return written[0], written[1]


def _draw_sweep(ax: Axes, title: str, predictions: Predictions) -> None:
    """One panel of Figure 1."""
    sweep = threshold_sweep(*predictions)
    ax.axhline(openauc_score(*predictions), label="OpenAUC", **REFERENCE)
    for name, line in LINES.items():
        share, value = _best_of_each(sweep.curve(name))
        best = int(np.argmax(value))
        ax.plot(share, value, color=line.color, linestyle=line.style, linewidth=1.9, label=line.label)
        ax.plot(share[best], value[best], "o", color=line.color, clip_on=False, zorder=4, **DOT)
    ax.set(title=title, xlim=(0, 1), ylim=(0, 1), xticks=np.linspace(0, 1, 6), yticks=np.linspace(0, 1, 6))


def _best_of_each(curve: Curve) -> tuple[Floats, Floats]:
    """Distinct x and the highest y at each: many thresholds reject the same unknown samples."""
    share, first = np.unique(curve.x, return_index=True)
    return share, np.maximum.reduceat(curve.y, first)


def _draw_sensitivity(ax: Axes, cells: Mapping[float, Cell], baseline: Cell | None) -> None:
    """One panel of Figure 2."""
    lams = list(cells)
    means = [100 * (cell.mean or 0.0) for cell in cells.values()]
    reference = means[0] if baseline is None else 100 * (baseline.mean or 0.0)
    ax.axhline(reference, **REFERENCE)
    ax.annotate(
        f"λ = {lams[0]:g}" if baseline is None else "CE+",
        (1, reference),
        xycoords=("axes fraction", "data"),
        xytext=(3, 0),
        textcoords="offset points",
        va="center",
        color=GREY,
    )
    intervals = [cell.interval for cell in cells.values() if cell.interval is not None]
    if len(intervals) == len(cells):
        low, high = (100 * np.array(bounds) for bounds in zip(*intervals, strict=True))
        ax.fill_between(lams, low, high, color=BLUE, alpha=0.14, linewidth=0)
    ax.plot(lams, means, "-o", color=BLUE, linewidth=1.9, zorder=3, **DOT)
    best = int(np.argmax(means))
    ax.annotate(
        f"{means[best]:.1f}",
        (lams[best], means[best]),
        xytext=(0, 7),
        textcoords="offset points",
        ha="center",
        color=BLUE,
        fontweight="bold",
    )
    distinct = min(cell.n_distinct for cell in cells.values())
    ax.set(xlabel=f"λ, weight of the ranking term\n({distinct} distinct splits)", xticks=lams)


def _cell(results: Sequence[TrialResult], metric: str, level: float) -> Cell:
    """Mean and interval of trials that differ in split and seed only."""
    summary = summarise(results, metric=metric, level=level)
    if len(summary.rows) > 1:
        raise ValueError(
            f"the results hold several trainings that differ in more than split and seed: "
            f"{', '.join(row.label for row in summary.rows)}; select those of one benchmark."
        )
    return summary.rows[0].cells[0]


@contextmanager
def look() -> Iterator[ModuleType]:
    """Matplotlib's pyplot in our style, without a window."""
    try:
        import matplotlib
        from matplotlib import pyplot
    except ImportError:
        raise ImportError("figures need matplotlib: pip install 'openauc[plot]'.") from None
    with matplotlib.rc_context(LOOK):
        yield pyplot


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figure", choices=("figure1", "figure2"))
    parser.add_argument("source", nargs="+", help='"NAME=PREDICTIONS" for figure 1, a store for figure 2')
    chosen = parser.parse_args()
    if chosen.figure == "figure1":
        named = (source.partition("=") for source in chosen.source)
        models = {name: Predictions.load(file) for name, _, file in named}
        drawn = figure1(models)
        source = ", ".join(f"{name} ({len(model.y_true):,} samples)" for name, model in models.items())
    else:
        results = [result for source in chosen.source for result in Store(source).results()]
        drawn = figure2(results)
        commits = sorted({result.environment.get("commit", "unknown") for result in results})
        source = f"{len(results)} trials of commit {', '.join(commits)}"
    facts = ", ".join(f"{key} {value}" for key, value in environment().items())
    stem = RESULTS / f"{chosen.figure}_{hardware_name()}_{time.strftime('%Y%m')}"
    for file in save(drawn, stem, about=f"From {source}. Drawn with {facts}."):
        print(file)


if __name__ == "__main__":
    main()
