"""Recipes against the published tables; validation, scaling and the JSON round trip."""

import json
import subprocess
import sys
from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest

from openauc.methods import load_method, method_names, recipe_for
from openauc.protocols import PROTOCOLS, Protocol, Split
from openauc.recipe import FIELDS, Recipe, published_recipes
from openauc.training.schedule import learning_rate

# image size, rate, N, M, label smoothing, batch: the rows shipped with the "+" recipe.
PUBLISHED = {
    ("ce_plus", "mnist"): (32, 0.1, 1, 8, 0.0, 128),
    ("ce_plus", "svhn"): (32, 0.1, 1, 18, 0.0, 128),
    ("ce_plus", "cifar10"): (32, 0.1, 1, 6, 0.0, 128),
    ("ce_plus", "cifar+10"): (32, 0.1, 1, 6, 0.0, 128),
    ("ce_plus", "cifar+50"): (32, 0.1, 1, 6, 0.0, 128),
    ("ce_plus", "tinyimagenet"): (64, 0.01, 1, 9, 0.9, 128),
    ("ce_plus", "cub"): (448, 0.001, 2, 30, 0.3, 32),
    ("ce_plus", "aircraft"): (448, 0.001, 2, 15, 0.2, 32),
    ("arpl", "mnist"): (32, 0.1, 1, 8, 0.0, 128),
    ("arpl", "svhn"): (32, 0.1, 1, 18, 0.0, 128),
    ("arpl_cs", "cifar10"): (32, 0.1, 1, 15, 0.0, 128),
    ("arpl_plus", "cifar+10"): (32, 0.1, 1, 6, 0.0, 128),
    ("arpl_plus", "cifar+50"): (32, 0.1, 1, 6, 0.0, 128),
    ("arpl_plus", "tinyimagenet"): (64, 0.001, 1, 9, 0.9, 128),
    ("arpl_plus", "cub"): (448, 0.001, 2, 30, 0.2, 32),
    ("arpl_plus", "aircraft"): (448, 0.001, 2, 18, 0.1, 32),
    ("openauc", "tinyimagenet"): (64, 0.01, 1, 9, 0.9, 64),
    ("acc_auc", "tinyimagenet"): (64, 0.01, 1, 9, 0.9, 64),
    ("openauc", "cifar10"): (32, 0.1, 1, 6, 0.0, 128),
}


@pytest.mark.parametrize(("method", "protocol"), PUBLISHED)
def test_plus_rows_are_the_published_ones(method: str, protocol: str) -> None:
    recipe = recipe_for("plus", protocol, method)
    row = (
        recipe.image_size,
        recipe.learning_rate,
        recipe.rand_augment_n,
        recipe.rand_augment_m,
        recipe.label_smoothing,
        recipe.batch_size,
    )
    assert row == PUBLISHED[method, protocol]


@pytest.mark.parametrize("protocol", ["mnist", "svhn", "cifar10", "tinyimagenet", "cub"])
def test_what_all_plus_recipes_share(protocol: str) -> None:
    recipe = recipe_for("plus", protocol)
    assert (recipe.epochs, recipe.schedule, recipe.restarts, recipe.warmup_epochs) == (
        600,
        "cosine_restarts",
        2,
        10,
    )
    assert recipe.augmentation == "rand_augment"
    assert recipe.normalize
    assert recipe.rand_augment_ops == ("digits" if protocol in ("mnist", "svhn") else "all")
    adam = protocol == "tinyimagenet"
    assert (recipe.optimizer, recipe.weight_decay) == (("adam", 0.0) if adam else ("sgd", 1e-4))


def test_plain_recipes_are_the_published_ones() -> None:
    common: dict[str, Any] = {
        "epochs": 100,
        "batch_size": 64,
        "milestones": (0.3, 0.6, 0.9),
        "normalize": False,
    }
    sgd = Recipe(**common, learning_rate=0.1, optimizer="sgd", momentum=0.9, weight_decay=1e-4)
    adam = Recipe(**common, learning_rate=0.001, optimizer="adam", weight_decay=0.0, image_size=64)
    for protocol in ("svhn", "cifar10", "cifar+10", "cifar+50"):
        assert recipe_for("plain", protocol) == sgd
    assert recipe_for("plain", "mnist") == replace(sgd, augmentation="none")
    assert recipe_for("plain", "tinyimagenet", "arpl") == adam
    large = Recipe(**common | {"batch_size": 32, "normalize": True}, learning_rate=0.001, image_size=448)
    assert recipe_for("plain", "cub") == recipe_for("plain", "aircraft") == large


def test_digits_have_shorter_recipes_at_16_pixels_and_one_of_their_own() -> None:
    plain = Recipe(epochs=30, augmentation="none", image_size=16)
    assert recipe_for("plain", "digits") == plain
    assert recipe_for("plus", "digits") == recipe_for("plus", "mnist").changed(
        epochs=60, batch_size=64, warmup_epochs=1, image_size=16
    )
    small = replace(plain, epochs=60, schedule="cosine_restarts", milestones=(), weight_decay=0.005)
    assert recipe_for("small", "digits") == recipe_for(None, "digits", "arpl_plus") == small


def test_every_protocol_has_the_recipe_of_every_method() -> None:
    published = {"plain", "plus"} | {load_method(method).recipe for method in method_names()}
    for name, protocol in PROTOCOLS.items():
        assert protocol.default_recipe in {None, *protocol.recipes}, name
        assert protocol.default_recipe if protocol.of_embeddings else published <= set(protocol.recipes), name
        assert len({recipe.image_size for recipe in protocol.recipes.values()}) == 1, name


@pytest.mark.parametrize("method", method_names())
def test_rows_of_a_method_name_protocols_and_change_something(method: str) -> None:
    for protocol, row in load_method(method).recipe_rows.items():
        plus = PROTOCOLS[protocol].recipes["plus"]
        assert recipe_for("plus", protocol, method) == plus.changed(**row) != plus
        assert recipe_for("plain", protocol, method) == PROTOCOLS[protocol].recipes["plain"]


@pytest.mark.parametrize(("method", "name"), [("softmax", "plain"), ("arpl_cs", "plain"), ("openauc", "plus")])
def test_without_a_name_it_is_the_one_the_method_was_published_with(method: str, name: str) -> None:
    assert recipe_for(None, "svhn", method) == recipe_for(name, "svhn", method)


def test_a_protocol_of_ones_own_has_the_published_recipes_for_its_size() -> None:
    own = Protocol(
        known_source="digits", unknown_source="digits", splits=(Split((0, 1), (2,)),), image_size=65, reference="a test"
    )
    assert own.recipes == published_recipes(65)
    assert recipe_for("plus", own) == recipe_for("plus", "cub").changed(
        image_size=65, rand_augment_m=6, label_smoothing=0.0
    )
    chosen = replace(own, recipes={"quick": Recipe(epochs=3)}, default_recipe="quick")
    assert recipe_for(None, chosen, "openauc") == Recipe(epochs=3)
    with pytest.raises(ValueError, match="recipe is 'plus'; expected one of 'quick'"):
        recipe_for("plus", chosen)


def test_large_images_are_fine_tuned_on() -> None:
    assert published_recipes(64) == {
        name: replace(recipe, image_size=64) for name, recipe in published_recipes(32).items()
    }
    for name, recipe in published_recipes(65).items():
        assert (recipe.batch_size, recipe.learning_rate, recipe.normalize) == (32, 0.001, True)
        assert recipe.rand_augment_n == (2 if name == "plus" else 0)


def test_scaling_keeps_the_shape_of_the_schedule() -> None:
    plain = recipe_for("plain", "cifar10", epochs=10)
    assert [learning_rate(plain, epoch) for epoch in (2, 3)] == pytest.approx([0.1, 0.01])
    plus = recipe_for("plus", "cifar10", epochs=300)
    assert (plus.restarts, plus.warmup_epochs) == (2, 5)
    assert learning_rate(plus, 101) == pytest.approx(0.1)


@pytest.mark.parametrize(("epochs", "restarts"), [(600, 2), (30, 2), (29, 1), (19, 0), (1, 0), (200, 1)])
def test_restarts_fit_the_epochs(epochs: int, restarts: int) -> None:
    assert recipe_for("plus", "cifar10", epochs=epochs).restarts == restarts


def test_no_scaled_run_ends_at_a_high_rate() -> None:
    for epochs in range(10, 700):
        recipe = recipe_for("plus", "cifar10", epochs=epochs)
        assert learning_rate(recipe, epochs - 1) < 0.1 * recipe.learning_rate, epochs


def test_overrides_come_last() -> None:
    recipe = recipe_for("plus", "cifar10", epochs=12, restarts=2, warmup_epochs=3, milestones=[0.5])
    assert (recipe.epochs, recipe.restarts, recipe.warmup_epochs, recipe.milestones) == (12, 2, 3, (0.5,))


def test_a_changed_recipe_is_another_one_and_as_strict() -> None:
    recipe = Recipe()
    assert recipe.changed(epochs=7).changed(epochs=100) == recipe == Recipe()
    assert recipe.changed() == recipe
    with pytest.raises(ValueError, match="epochs is 0"):
        recipe.changed(epochs=0)
    with pytest.raises(ValueError, match="epochs is 0"):
        recipe.scaled(0)
    with pytest.raises(TypeError, match=r"epochs is 1\.5"):
        recipe.scaled(1.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no field 'lr'"):
        recipe.changed(lr=0.1)


def test_json_round_trip() -> None:
    for name, protocol in PROTOCOLS.items():
        for recipe in protocol.recipes.values():
            assert Recipe.from_dict(json.loads(json.dumps(recipe.to_dict()))) == recipe, name


def test_whole_and_decimal_numbers_give_the_same_json() -> None:
    assert json.dumps(Recipe(learning_rate=1).to_dict()) == json.dumps(Recipe(learning_rate=1.0).to_dict())


def test_recipes_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        Recipe().epochs = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"epochs": 0}, "epochs is 0; pass a whole number of at least 1"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"image_size": -1}, "image_size is -1"),
        ({"restarts": -1}, "restarts is -1; pass a whole number of at least 0"),
        ({"warmup_epochs": -1}, "warmup_epochs is -1"),
        ({"rand_augment_n": -1}, "rand_augment_n is -1"),
        ({"rand_augment_m": 31}, "rand_augment_m is 31; pass a whole number from 0 to 30"),
        ({"learning_rate": 0}, "learning_rate is 0; pass a positive number"),
        ({"learning_rate": float("nan")}, "learning_rate is nan"),
        ({"learning_rate": float("inf")}, "learning_rate is inf"),
        ({"weight_decay": -1e-4}, "weight_decay is -0.0001"),
        ({"momentum": 1.0}, "momentum is 1.0"),
        ({"label_smoothing": 1.0}, "label_smoothing is 1.0"),
        ({"milestones": (0.6, 0.3)}, "milestones is .* increasing fractions"),
        ({"milestones": (0.0, 0.3)}, "milestones is .* increasing fractions"),
        ({"milestones": (30, 60, 90)}, "milestones is .* increasing fractions"),
        ({"optimizer": "lion"}, "optimizer is 'lion'; expected one of 'sgd', 'adam'"),
        ({"schedule": "linear"}, "schedule is 'linear'"),
        ({"augmentation": "mixup"}, "augmentation is 'mixup'"),
        ({"rand_augment_ops": "some"}, "rand_augment_ops is 'some'"),
        ({"augmentation": "rand_augment"}, "rand_augment_n is 0"),
    ],
)
def test_values_out_of_range_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Recipe(**values)


@pytest.mark.parametrize(
    "values",
    [
        {"epochs": 1.5},
        {"epochs": True},
        {"epochs": "10"},
        {"learning_rate": "0.1"},
        {"normalize": 1},
        {"milestones": 0.3},
        {"milestones": ("0.3",)},
    ],
)
def test_values_of_the_wrong_type_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=f"^{next(iter(values))} is "):
        Recipe(**values)


def test_unknown_names_are_refused_with_the_likely_spelling() -> None:
    with pytest.raises(ValueError, match=r"recipe is 'pluss'; expected one of 'plain', 'plus'.*Did you mean 'plus'"):
        recipe_for("pluss", "mnist")
    with pytest.raises(ValueError, match=r"protocol is 'cifar-10'; expected one of .*Did you mean 'cifar10'"):
        recipe_for("plain", "cifar-10")
    with pytest.raises(ValueError, match=r"protocol is 'xyz'; expected one of .*'mnist'"):
        recipe_for("plain", "xyz")
    with pytest.raises(ValueError, match=r"method is 'opnauc'.*Did you mean 'openauc'"):
        recipe_for("plain", "mnist", "opnauc")


def test_an_unknown_override_is_refused_with_the_accepted_names() -> None:
    with pytest.raises(ValueError, match=r"no field 'lr'; the fields are 'epochs', .*'learning_rate'"):
        recipe_for("plain", "mnist", lr=0.1)


def test_from_dict_wants_exactly_the_fields() -> None:
    values = Recipe().to_dict()
    assert tuple(values) == FIELDS
    with pytest.raises(ValueError, match="no field 'lr'"):
        Recipe.from_dict({**values, "lr": 0.1})
    del values["epochs"]
    with pytest.raises(ValueError, match="lacks 'epochs'"):
        Recipe.from_dict(values)


def test_recipes_and_schedules_need_no_torch() -> None:
    code = "import sys, openauc.training.schedule; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
