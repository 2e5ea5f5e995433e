"""Online p-values and the wealth of bets, against loops straight from the definitions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest

from openauc.features.monitor import betting
from openauc.features.monitor.betting import PATIENCE, Ranks, Wealth, shape_bets, tail_bets

BETS = {
    "tails": tail_bets((0.05, 0.2)),
    "rising tails": tail_bets((0.05,), falls=False),
    "shapes": shape_bets(),
    "rising shapes": shape_bets(falls=False),
}


def slow_p_values(past, score, chance):
    """Of samples of one group, one after the other."""
    seen, found = list(past), []
    for one, u in zip(score, chance, strict=True):
        seen.append(one)
        found.append((sum(s > one for s in seen) + u * sum(s == one for s in seen)) / len(seen))
    return found


def slow_wealth(bets, p_values):
    """Mean over the bets of the sum over all beginnings, with the weight of each, and what is kept back."""

    def kept(t):
        return 1 / (1 + np.log1p(t / PATIENCE))

    density = np.exp(bets(np.asarray(p_values)))
    return [
        np.mean(
            [
                sum((kept(j - 1) - kept(j)) * density[j - 1 : t, b].prod() for j in range(1, t + 1)) + kept(t)
                for b in range(density.shape[1])
            ]
        )
        for t in range(1, len(p_values) + 1)
    ]


@given(
    st.lists(st.tuples(st.integers(-2, 2), st.integers(0, 2)), max_size=12),
    st.lists(st.tuples(st.integers(-2, 2), st.integers(0, 2)), max_size=40),
    st.integers(1, 7),
)
def test_p_values_are_ranks_among_all_before(past, stream, block):
    before, after = np.array(past, float).reshape(-1, 2), np.array(stream, float).reshape(-1, 2)
    chance = np.random.default_rng(0).random(len(after))
    ranks = Ranks()
    ranks.add(before[:, 0], before[:, 1].astype(int))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(betting, "BLOCK", block)
        found = ranks.p_values(after[:, 0], after[:, 1].astype(int), chance)
    for group in range(3):
        mine = after[:, 1] == group
        expected = slow_p_values(before[before[:, 1] == group, 0], after[mine, 0], chance[mine])
        np.testing.assert_allclose(found[mine], expected, rtol=1e-12)
    assert ranks.counts.sum() == len(past) + len(stream)


def test_scores_of_any_size_keep_their_order():
    values = np.array([-np.inf, -1e300, -3.0, -1e-30, 0.0, 1e-30, 2.0, 2.001, 1e30, np.inf])
    ranks = Ranks()
    found = ranks.p_values(values, np.zeros(len(values), int), np.ones(len(values)))
    # -1e300 is no float32 and ties with infinity; all others come from above those before
    np.testing.assert_allclose(found, [1.0, 1.0, *(1 / np.arange(3, 11))])
    assert Ranks().p_values(np.array([-0.0, 0.0]), np.zeros(2, int), np.ones(2)).tolist() == [1.0, 1.0]


def test_memory_does_not_grow_with_the_stream():
    rng, ranks = np.random.default_rng(0), Ranks()
    sizes = []
    for _ in range(4):
        ranks.add(rng.normal(size=100_000), np.zeros(100_000, int))
        sizes.append(len(ranks.keys))
    assert sizes[-1] < 200_000
    assert sizes[3] - sizes[2] < 0.7 * (sizes[1] - sizes[0])


def test_p_values_of_exchangeable_samples_are_uniform_though_rounded():
    rng, found = np.random.default_rng(0), []
    for _ in range(200):
        ranks = Ranks()
        ranks.add(rng.integers(0, 5, 20).astype(float), np.zeros(20, int))
        found.append(ranks.p_values(rng.integers(0, 5, 50).astype(float), np.zeros(50, int), rng.random(50)))
    assert kstest(np.concatenate(found), "uniform").pvalue > 0.01
    late = np.array(found)[:, -1]
    assert abs(np.corrcoef(np.array(found)[:, 0], late)[0, 1]) < 0.2


@pytest.mark.parametrize("bets", BETS.values(), ids=BETS)
def test_every_bet_is_fair(bets):
    """The integral of each density is 1."""
    from scipy.integrate import quad

    for b in range(bets(np.array([0.5])).shape[1]):
        total = quad(lambda p, b=b: np.exp(bets(np.array([p]))[0, b]), 0, 1, points=[0.05, 0.2], limit=400)[0]
        assert total == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize("bets", [BETS["rising tails"], BETS["rising shapes"]], ids=["tails", "shapes"])
def test_bets_on_rises_lose_by_larger_p_values(bets):
    assert (np.diff(bets(np.linspace(0.001, 0.999, 999)), axis=0) <= 0).all()


@given(st.lists(st.floats(0.001, 0.999), min_size=1, max_size=15), st.integers(1, 15))
def test_wealth_is_the_sum_over_all_beginnings_in_any_pieces(p_values, piece):
    p_values = np.array(p_values)
    for bets in BETS.values():
        wealth, zero = Wealth(bets), np.zeros(len(p_values), int)
        found = [
            wealth.update(p_values[at : at + piece], zero[at : at + piece], 1 + np.arange(len(zero))[at : at + piece])
            for at in range(0, len(p_values), piece)
        ]
        np.testing.assert_allclose(np.exp(np.concatenate(found)), slow_wealth(bets, p_values), rtol=1e-9)


def test_groups_do_not_touch_one_another():
    rng = np.random.default_rng(0)
    p_values, group = rng.random(60), rng.integers(0, 3, 60)
    together = Wealth(shape_bets(), 3)
    found = together.update(p_values, group, np.arange(60))
    for one in range(3):
        alone = Wealth(shape_bets())
        mine = group == one
        expected = alone.update(p_values[mine], np.zeros(mine.sum(), int), np.flatnonzero(mine))
        np.testing.assert_allclose(found[mine], expected, rtol=1e-12)
        assert together.beginning(one) == alone.beginning(0)
    assert together.update(np.empty(0), np.empty(0, int), np.empty(0, int)).tolist() == []


@pytest.mark.parametrize("piece", [1, 7, 1000])
def test_the_beginning_is_after_the_lowest_point(piece):
    rng = np.random.default_rng(1)
    p_values = np.concatenate([rng.random(300), rng.random(100) ** 3])
    bets = tail_bets((0.05,), falls=False)
    wealth = Wealth(bets)
    for at in range(0, 400, piece):
        part = p_values[at : at + piece]
        wealth.update(part, np.zeros(len(part), int), 1 + at + np.arange(len(part)), part < 0.05)
    height = np.concatenate([np.zeros((1, 3)), np.cumsum(bets(p_values), axis=0)])
    last_low = 400 - np.argmin(height[::-1], axis=0)
    best = wealth.staked[0].argmax()
    since, share = wealth.beginning(0)
    assert since == last_low[best] + 1
    assert 290 < since < 320
    assert share == np.mean(p_values[since - 1 :] < 0.05)
