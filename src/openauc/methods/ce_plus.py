"""CE+ (Vaze et al., "Cross-Entropy+", also MLS): the Softmax loss, scored by the largest raw logit."""

from __future__ import annotations

from openauc.methods.softmax import Softmax


class CEPlus(Softmax):
    r"""Cross-entropy, label-smoothed where the recipe says so, with :math:`r = -\max_c z_c`.

    The rest of the difference to Softmax is the ``plus`` recipe.
    """

    trained_as = "softmax"
    recipe = "plus"
    score = "max_logit"


METHOD = CEPlus
