import json
from pathlib import Path

import pytest

from openauc.protocols import PROTOCOLS, Protocol, get_protocol

REFERENCE = Path(__file__).resolve().parents[2] / "../shared/reference/splits.json"
LEGACY = ["mnist", "svhn", "cifar10", "cifar+10", "cifar+50", "tinyimagenet"]
FINE_GRAINED = ["cub", "aircraft"]


def test_the_protocols_of_the_papers_are_there() -> None:
    assert {*LEGACY, *FINE_GRAINED, "digits"} <= set(PROTOCOLS)


def test_get_protocol_takes_names_and_protocols() -> None:
    own = PROTOCOLS["mnist"]
    assert get_protocol("mnist") is get_protocol(own) is own


@pytest.mark.parametrize(("name", "near"), [("cifar-10", "cifar10"), ("tiny-imagenet", "tinyimagenet")])
def test_get_protocol_suggests_a_name(name: str, near: str) -> None:
    with pytest.raises(ValueError, match=rf"protocol is '{name}'; expected one of .* Did you mean '{near}'\?"):
        get_protocol(name)


@pytest.mark.parametrize(
    ("name", "known", "unknown"),
    [
        ("digits", 6, 4),
        ("mnist", 6, 4),
        ("svhn", 6, 4),
        ("cifar10", 6, 4),
        ("cifar+10", 4, 10),
        ("cifar+50", 4, 50),
        ("tinyimagenet", 20, 180),
    ],
)
def test_five_splits_of_the_published_sizes(name: str, known: int, unknown: int) -> None:
    sizes = [(len(split.known), len(split.unknown)) for split in PROTOCOLS[name].splits]
    assert sizes == [(known, unknown)] * 5


@pytest.mark.parametrize(("name", "known", "groups"), [("cub", 100, (32, 34, 34)), ("aircraft", 50, (20, 17, 13))])
def test_one_split_by_difficulty(name: str, known: int, groups: tuple[int, ...]) -> None:
    (split,) = PROTOCOLS[name].splits
    assert len(split.known) == known
    assert list(split.groups) == ["easy", "medium", "hard"]
    assert tuple(map(len, split.groups.values())) == groups
    assert len(split.unknown) == sum(groups)


def test_which_splits_coincide() -> None:
    found = {name: PROTOCOLS[name].duplicate_splits() for name in (*LEGACY, *FINE_GRAINED, "digits")}
    assert {name: pairs for name, pairs in found.items() if pairs} == {
        "svhn": ((0, 1),),
        "cifar10": ((0, 1),),
        "cifar+10": ((1, 2),),
        "cifar+50": ((1, 2),),
    }


def test_the_unknown_classes_of_cifar_plus_10_end_those_of_cifar_plus_50() -> None:
    for few, many in zip(PROTOCOLS["cifar+10"].splits, PROTOCOLS["cifar+50"].splits, strict=True):
        assert few.known == many.known
        assert few.unknown == many.unknown[-10:]


def test_digits_has_the_splits_of_mnist() -> None:
    assert PROTOCOLS["digits"].splits == PROTOCOLS["mnist"].splits


@pytest.mark.parametrize("name", [*LEGACY, *FINE_GRAINED])
def test_splits_are_the_published_ones(name: str) -> None:
    if not REFERENCE.is_file():
        pytest.skip("there is no reference copy of the splits")
    published = json.loads(REFERENCE.read_text())["datasets"][name]
    protocol: Protocol = PROTOCOLS[name]
    if name in LEGACY:
        assert [list(split.known) for split in protocol.splits] == [one["known"] for one in published["splits"]]
        assert [list(split.unknown) for split in protocol.splits] == [one["unknown"] for one in published["splits"]]
        keys = ("n_train_known", "n_test_known", "n_test_unknown")
        assert [tuple(size) for size in protocol.sizes] == [
            tuple(one[key] for key in keys) for one in published["splits"]
        ]
        assert [list(pair) for pair in protocol.duplicate_splits()] == published["identical_known_sets"]
    else:
        assert list(protocol.splits[0].known) == published["known"]
        groups = {group.lower(): classes for group, classes in published["unknown"].items()}
        assert {group: list(classes) for group, classes in protocol.splits[0].groups.items()} == groups


def test_what_suits_the_digits_is_on_their_protocol() -> None:
    digits = PROTOCOLS["digits"]
    assert (digits.default_recipe, digits.width, digits.images_per_class) == ("small", 8, 120)
    assert digits.because


@pytest.mark.parametrize("name", [*LEGACY, *FINE_GRAINED])
def test_the_papers_protocols_leave_recipe_and_width_to_the_methods(name: str) -> None:
    assert (PROTOCOLS[name].default_recipe, PROTOCOLS[name].width) == (None, None)


def test_estimates_rest_on_about_the_right_number_of_images() -> None:
    # 5,994 training images of 200 birds, 6,667 of 100 aircraft, 1,201 of ten digits.
    expected = {"cub": 5994 / 200, "aircraft": 6667 / 100, "digits": 1201 / 10}
    assert {name: PROTOCOLS[name].images_per_class for name in expected} == {
        name: round(count) for name, count in expected.items()
    }
