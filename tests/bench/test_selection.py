"""Choosing trials by their fields."""

import pytest

from openauc.bench.selection import field_of, named_recipe, select
from openauc.bench.trial import TrialResult, TrialSpec
from openauc.methods import recipe_for
from openauc.recipe import Recipe

SPECS = [
    TrialSpec.of("digits", split, method, method_args=options, recipe=recipe, epochs=epochs, width=width)
    for split in range(3)
    for method, options, recipe, epochs, width in (
        ("softmax", {}, "plain", 10, None),
        ("openauc", {"lam": 0.1, "gather": True}, "plus", 10, 8),
        ("openauc", {"lam": 1}, "plain", 20, 8),
    )
]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("method=openauc", 6),
        ("method=openauc,split=0", 2),
        ("split=0|2", 6),
        (" split = 0 | 2 , method = softmax ", 2),
        ("lam=0.10", 3),
        ("lam=1.0", 3),
        ("lam=none", 3),
        ("width=none", 3),
        ("width=8", 6),
        ("gather=true", 3),
        ("epochs=10", 6),
        ("recipe=plus", 3),
        ("optimizer=sgd,protocol=digits,seed=0", 9),
        ("lam=0.1,epochs=20", 0),
    ],
)
def test_conditions(text: str, count: int) -> None:
    chosen = select(SPECS, text)
    assert len(chosen) == count
    assert chosen == [spec for spec in SPECS if spec in chosen]


def test_results_are_chosen_by_their_specs() -> None:
    results = [TrialResult(spec=spec) for spec in SPECS]
    assert [result.spec for result in select(results, "split=1")] == select(SPECS, "split=1")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mehtod=openauc", "Did you mean 'method'"),
        ("lamb=0.1", "Did you mean 'lam'"),
        ("method=opnauc", "method is 'opnauc'.*Did you mean 'openauc'"),
        ("split=4", "split is '4'; expected one of '0', '1', '2'"),
        ("lam=x", "lam is 'x'"),
        ("method", "give each field once, as in method=openauc"),
        ("method=", "give each field once, as in method=openauc"),
        ("=1", "give each field once, as in method=openauc"),
        ("", "give each field once, as in method=openauc"),
        ("split=0,split=1", "each field once"),
    ],
)
def test_refusals_name_the_likely_spelling(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        select(SPECS, text)


def test_trials_and_results_are_chosen_together() -> None:
    mnist = [TrialSpec.of("mnist", 0, "openauc", method_args={"lam": lam}) for lam in (0.1, 0.2)]
    assert select([*SPECS[1:2], *(TrialResult(spec=spec) for spec in mnist)], "lam=0.1") == [
        SPECS[1],
        TrialResult(spec=mnist[0]),
    ]


def test_an_option_goes_before_the_recipe_field_of_its_name() -> None:
    spec = TrialSpec.of("digits", 0, "ce_plus", method_args={"label_smoothing": 0.3})
    assert field_of(spec, "label_smoothing") == 0.3
    assert field_of(TrialSpec.of("digits", 0, "ce_plus"), "label_smoothing") == spec.recipe.label_smoothing


@pytest.mark.parametrize("epochs", [None, 12, 100])
@pytest.mark.parametrize("name", ["plain", "plus"])
@pytest.mark.parametrize("method", ["softmax", "arpl", "openauc"])
def test_recipes_are_recognised_at_any_length(name: str, epochs: int | None, method: str) -> None:
    rows = {("arpl", "plus", "tinyimagenet"): (("learning_rate", 0.001),)}
    rows |= {("arpl", "plus", "cifar10"): (("rand_augment_m", 15),)}
    rows |= {("openauc", "plus", "tinyimagenet"): (("batch_size", 64),)}
    for protocol in ("digits", "mnist", "cifar10", "tinyimagenet"):
        recipe = recipe_for(name, protocol, method, epochs=epochs)
        assert named_recipe(recipe, protocol) == (name, rows.get((method, name, protocol), ()))


def test_a_changed_recipe_says_what_was_changed() -> None:
    recipe = recipe_for("plain", "cifar10", learning_rate=0.05, batch_size=32)
    assert named_recipe(recipe, "cifar10") == ("plain", (("batch_size", 32), ("learning_rate", 0.05)))


def test_a_protocol_without_recipes() -> None:
    assert named_recipe(Recipe(epochs=3, momentum=0.5), "my own") == ("own", (("momentum", 0.5),))
