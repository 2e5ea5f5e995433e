"""ARPL+ (Vaze et al.): ARPL under the ``plus`` recipe."""

from __future__ import annotations

from openauc.methods.arpl import ARPL


class ARPLPlus(ARPL):
    """ARPL, label-smoothed where the recipe says so; the whole difference to ARPL is the recipe."""

    trained_as = "arpl"
    recipe = "plus"


METHOD = ARPLPlus
