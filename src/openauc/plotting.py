"""Curves for papers with matplotlib: colours of Okabe and Ito, line styles that stay apart in grey, vector output."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from openauc._validation import import_extra

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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


def draw_curve(
    x: NDArray[Any], y: NDArray[Any], *, x_label: str, y_label: str, label: str | None = None, ax: Axes | None = None
) -> Axes:
    """Add a curve of shares to ``ax``, or to new axes; the styles follow each other from curve to curve."""
    axes = new_axes() if ax is None else ax
    color, dashes = STYLES[len(axes.get_lines()) % len(STYLES)]
    finite = np.isfinite(x)  # the threshold -inf, where a curve runs along thresholds
    axes.plot(x[finite], y[finite], color=color, linestyle=dashes, linewidth=1.8, solid_capstyle="round", label=label)
    axes.set(xlabel=x_label, ylabel=y_label)
    if label is not None:
        # Given here, because a legend takes the style of its own moment and not that of its axes.
        axes.legend(loc="lower right", frameon=False, fontsize=LOOK["font.size"])
    return axes


def new_axes() -> Axes:
    """Axes of a figure of their own."""
    pyplot = import_extra("matplotlib.pyplot", "plot()", "'openauc[plot]'")
    with pyplot.rc_context(LOOK):
        axes: Axes = pyplot.subplots()[1]
    return axes
