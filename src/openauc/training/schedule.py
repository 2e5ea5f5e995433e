"""Learning rate of each epoch, as a pure function of the recipe."""

import math

from openauc.recipe import Recipe

STEP_DECAY = 0.1
LOWEST_SHARE = 1e-3  # the cosine ends at this share of the recipe's learning rate
SHORTEST_LAGGING_CYCLE = 6  # epochs; the shortest cycle of a published result


def learning_rate(recipe: Recipe, epoch: int) -> float:
    r"""Learning rate used during one epoch, counted from 0.

    *Steps*: the rate is multiplied by 0.1 at each milestone,

    .. math:: \eta_e = \eta \cdot 0.1^{\#\{m : e \ge m E\}}

    *Cosine with restarts*: with :math:`\eta_{\min} = 10^{-3} \eta`, the cycle
    :math:`T_0 = \lfloor E / (\mathrm{restarts} + 1) \rfloor` and
    :math:`c(t) = \eta_{\min} + (\eta - \eta_{\min}) (1 + \cos(\pi t / T_0)) / 2`,

    .. math:: \eta_0 = \eta, \qquad \eta_e = c((e - 1) \bmod T_0)

    The cosine lags by one epoch, as in the published training code, so that a restart falls on epoch
    :math:`T_0 + 1`. A cycle of two to five epochs would then end at a third of the rate or more, so there
    :math:`\eta_e = c((e + 1/2) \bmod T_0)`. Warm-up over W epochs replaces the beginning of the first cycle:

    .. math:: \eta_e = \eta_{\min} + (c(W) - \eta_{\min}) \, e / W, \qquad 0 \le e \le W

    Parameters
    ----------
    recipe : Recipe
        Supplies the rate, the number of epochs E and the schedule.
    epoch : int
        From 0 to ``recipe.epochs - 1``; any other epoch raises ``ValueError``.

    Notes
    -----
    With fewer epochs than cycles T0 is 1 and the rate stays at its full value. A warm-up that does not fit into the
    first cycle is cut to T0 - 1 epochs. The formula restarts every T0 epochs, so epochs that leave a remainder of two
    or more end with an incomplete cycle at a high rate; ``recipe_for`` avoids such pairs.

    Examples
    --------
    >>> from openauc.recipe import Recipe
    >>> steps = Recipe(epochs=10, learning_rate=0.1, milestones=(0.3, 0.6, 0.9))
    >>> [round(learning_rate(steps, epoch), 6) for epoch in (0, 2, 3, 6, 9)]
    [0.1, 0.1, 0.01, 0.001, 0.0001]
    >>> cosine = Recipe(epochs=3, learning_rate=1.0, schedule="cosine_restarts")
    >>> [round(learning_rate(cosine, epoch), 4) for epoch in range(3)]
    [0.9331, 0.5005, 0.0679]
    """
    if not 0 <= epoch < recipe.epochs:
        raise ValueError(f"epoch is {epoch} but the recipe has {recipe.epochs} epochs; pass 0 to {recipe.epochs - 1}.")
    if recipe.schedule == "steps":
        # The tolerance keeps 0.07 * 100 = 7.000000000000001 from moving a milestone by a whole epoch.
        passed = sum(epoch >= fraction * recipe.epochs - 1e-9 for fraction in recipe.milestones)
        return recipe.learning_rate * STEP_DECAY**passed
    highest = recipe.learning_rate
    lowest = highest * LOWEST_SHARE
    cycle = max(1, recipe.epochs // (recipe.restarts + 1))
    warmup = min(recipe.warmup_epochs, cycle - 1)

    def cosine(t: float) -> float:
        return lowest + (highest - lowest) * (1 + math.cos(math.pi * t / cycle)) / 2

    if warmup and epoch <= warmup:
        return lowest + (cosine(warmup) - lowest) * epoch / warmup
    if 1 < cycle < SHORTEST_LAGGING_CYCLE:
        return cosine((epoch + 0.5) % cycle)
    return cosine((epoch - 1) % cycle) if epoch else highest
