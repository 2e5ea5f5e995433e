"""Curves for papers with matplotlib: colours of Okabe and Ito, line styles that stay apart in grey, vector output."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from openauc._validation import import_extra

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from openauc.metrics.curve import Curve

STYLES: tuple[tuple[str, Any], ...] = (
    ("#0072B2", "-"),
    ("#D55E00", (0, (6, 2))),
    ("#009E73", (0, (2, 1.4))),
    ("#CC79A7", (0, (6, 2, 1.5, 2))),
    ("#56B4E9", (0, (10, 3))),
    ("#E69F00", (0, (1, 1))),
    ("#000000", (0, (6, 2, 1.5, 2, 1.5, 2))),
)
"""Colour and dashes of the first curve of an axes, the second, ..."""

LOOK: dict[Any, Any] = {
    "figure.figsize": (4.2, 3.6),
    "figure.constrained_layout.use": True,
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.7,
}


def draw_curve(curve: Curve, ax: Axes | None, label: str | None) -> Axes:
    """Add a curve of shares to ``ax``, or to new axes; the styles follow each other from curve to curve."""
    if ax is None:
        pyplot = import_extra("matplotlib.pyplot", "plot()", "'openauc[plot]'")
        with pyplot.rc_context(LOOK):
            ax = pyplot.subplots()[1]
    color, dashes = STYLES[len(ax.get_lines()) % len(STYLES)]
    finite = np.isfinite(curve.x)  # the threshold -inf, where a curve runs along thresholds
    x, y = curve.x[finite], curve.y[finite]
    ax.plot(x, y, color=color, linestyle=dashes, linewidth=1.8, solid_capstyle="round", label=label)
    ax.set(xlabel=curve.x_label, ylabel=curve.y_label)
    if label is not None:
        # Given here, because a legend takes the style of its own moment and not that of its axes.
        ax.legend(loc="lower right", frameon=False, fontsize=LOOK["font.size"])
    return ax
