"""Learning rates against the published values and against a literal transcription of the formula."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openauc.recipe import Recipe
from openauc.training.schedule import learning_rate

PAPER = Recipe(epochs=600, learning_rate=0.1, schedule="cosine_restarts", restarts=2, warmup_epochs=10)


@pytest.mark.parametrize(
    ("epoch", "printed"),
    [
        (0, 0.0001),
        (1, 0.01003),
        (5, 0.04974),
        (10, 0.09939),
        (11, 0.09939),
        (200, 0.00011),
        (201, 0.1),
        (400, 0.00011),
        (401, 0.1),
        (599, 0.00012),
    ],
)
def test_cosine_with_warmup_gives_the_published_values(epoch: int, printed: float) -> None:
    assert round(learning_rate(PAPER, epoch), 5) == printed


def test_cosine_without_warmup_starts_at_the_full_rate_and_lags_by_one_epoch() -> None:
    recipe = replace(PAPER, warmup_epochs=0)
    assert learning_rate(recipe, 0) == learning_rate(recipe, 1) == pytest.approx(0.1)
    assert learning_rate(recipe, 101) == pytest.approx((0.1 + 0.0001) / 2)


def test_warmup_happens_in_the_first_cycle_only() -> None:
    cold = replace(PAPER, warmup_epochs=0)
    assert learning_rate(PAPER, 5) < learning_rate(cold, 5)
    assert all(learning_rate(PAPER, epoch) == learning_rate(cold, epoch) for epoch in range(11, 600))


def test_steps_fall_at_epochs_30_60_90() -> None:
    recipe = Recipe(epochs=100, learning_rate=0.1)
    rates = [learning_rate(recipe, epoch) for epoch in range(100)]
    falls = [epoch for epoch in range(1, 100) if rates[epoch] != rates[epoch - 1]]
    assert falls == [30, 60, 90]
    assert rates[0] == 0.1
    assert rates[99] == pytest.approx(1e-4)


def test_steps_scale_with_the_epochs_and_survive_rounding() -> None:
    recipe = Recipe(epochs=100, learning_rate=1.0, milestones=(0.07,))
    assert 0.07 * 100 > 7
    assert [learning_rate(recipe, epoch) for epoch in (6, 7)] == [1.0, pytest.approx(0.1)]


def test_one_epoch_of_steps_runs_at_the_full_rate() -> None:
    assert learning_rate(Recipe(epochs=1, learning_rate=0.1), 0) == 0.1


@pytest.mark.parametrize("epochs", [1, 2])
def test_fewer_epochs_than_cycles_keep_the_full_rate(epochs: int) -> None:
    recipe = replace(PAPER, epochs=epochs)
    assert [learning_rate(recipe, epoch) for epoch in range(epochs)] == pytest.approx([0.1] * epochs)


@pytest.mark.parametrize(("epochs", "most"), [(2, 0.15), (3, 0.07), (4, 0.04), (5, 0.026)])
def test_short_runs_end_at_a_low_rate_and_fall_all_the_way(epochs: int, most: float) -> None:
    recipe = Recipe(epochs=epochs, learning_rate=1.0, schedule="cosine_restarts")
    rates = [learning_rate(recipe, epoch) for epoch in range(epochs)]
    assert rates == sorted(rates, reverse=True)
    assert rates[0] > 0.8
    assert rates[-1] < most


def test_published_runs_of_six_epochs_keep_their_rates() -> None:
    recipe = Recipe(epochs=6, learning_rate=1.0, schedule="cosine_restarts")
    rates = [round(learning_rate(recipe, epoch), 4) for epoch in range(6)]
    assert rates == [1.0, 1.0, 0.9331, 0.7502, 0.5005, 0.2508]


def test_warmup_longer_than_the_cycle_is_cut_short() -> None:
    recipe = replace(PAPER, epochs=12, warmup_epochs=10)
    assert [learning_rate(recipe, epoch) for epoch in range(12)] == [
        learning_rate(replace(recipe, warmup_epochs=3), epoch) for epoch in range(12)
    ]


@given(
    epochs=st.integers(1, 700),
    restarts=st.integers(0, 5),
    warmup_epochs=st.integers(0, 20),
    share=st.floats(0, 1, exclude_max=True),
)
def test_cosine_agrees_with_the_formula(epochs: int, restarts: int, warmup_epochs: int, share: float) -> None:
    recipe = replace(PAPER, epochs=epochs, restarts=restarts, warmup_epochs=warmup_epochs)
    epoch = int(share * epochs)
    rate = learning_rate(recipe, epoch)
    assert 1e-4 <= rate <= 0.1 + 1e-12
    cycle = epochs // (restarts + 1)
    if warmup_epochs < cycle and cycle not in range(2, 6):
        cosine = [1e-4 + (0.1 - 1e-4) * (1 + math.cos(math.pi * t / cycle)) / 2 for t in range(cycle)]
        if epoch <= warmup_epochs:
            top = cosine[warmup_epochs]
            expected = 1e-4 + (top - 1e-4) * epoch / warmup_epochs if warmup_epochs else 0.1
        else:
            expected = cosine[(epoch - 1) % cycle]
        assert rate == pytest.approx(expected)


@pytest.mark.parametrize("epoch", [-1, 600])
def test_an_epoch_outside_the_run_is_refused(epoch: int) -> None:
    with pytest.raises(ValueError, match="pass 0 to 599"):
        learning_rate(PAPER, epoch)
