"""Protocols written down as JSON files."""

import json
from pathlib import Path
from typing import Any

import pytest

from openauc.protocols import Protocol, Split, get_protocol, is_protocol_file, read_protocol
from openauc.recipe import Recipe, published_recipes

ZOO: dict[str, Any] = {
    "folder": "zoo",
    "image_size": 5,
    "splits": [{"known": ["dog", "ant"], "unknown": ["cat"]}, {"known": ["ant", "bee"], "unknown": {"far": ["dog"]}}],
}
CIFAR: dict[str, Any] = {
    "source": "cifar10",
    "unknown_source": "cifar100",
    "image_size": 32,
    "splits": [{"known": [0, 1], "unknown": [0, 7]}],
}


def written(folder: Path, described: Any) -> Path:
    file = folder / "mine.json"
    file.write_text(described if isinstance(described, str) else json.dumps(described), encoding="utf-8")
    return file


@pytest.fixture
def zoo(image_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file beside a folder of images, read from elsewhere."""
    monkeypatch.chdir("/")
    return written(image_folder.parent, {**ZOO, "folder": image_folder.name})


def test_a_file_is_the_protocol_of_its_folder(zoo: Path, image_folder: Path) -> None:
    from_file = read_protocol(zoo)
    first, second = (from_file.load(split) for split in range(2))
    by_hand = Protocol.from_folder(image_folder, known=["dog", "ant"], unknown=["cat"], image_size=5).load(0)
    assert first.class_names == by_hand.class_names == ("dog", "ant")
    assert first.test.labels.tolist() == by_hand.test.labels.tolist()
    assert (first.test.images[:] == by_hand.test.images[:]).all()
    assert second.class_names == ("ant", "bee")
    assert set(second.test.group) == {"known", "far"}
    assert get_protocol(str(zoo)) == from_file


def test_options_of_the_folder_reach_it(image_folder: Path) -> None:
    described = {**ZOO, "folder": str(image_folder), "test_share": 0.4, "seed": 3, "reference": "the zoo"}
    protocol = read_protocol(written(image_folder.parent, described))
    by_hand = Protocol.from_folder(
        image_folder, known=["dog", "ant"], unknown=["cat"], image_size=5, test_share=0.4, seed=3
    )
    assert protocol.known_source == protocol.unknown_source == by_hand.known_source
    assert protocol.reference == "the zoo"


def test_a_file_over_sources(tmp_path: Path) -> None:
    file = written(tmp_path, CIFAR)
    assert read_protocol(file) == Protocol(
        known_source="cifar10",
        unknown_source="cifar100",
        splits=(Split((0, 1), (0, 7)),),
        image_size=32,
        reference=str(file),
    )
    same = {**CIFAR, "splits": [{"known": [0, 1], "unknown": [2]}]}
    del same["unknown_source"]
    assert read_protocol(written(tmp_path, same)).unknown_source == "cifar10"


@pytest.mark.parametrize("split", [{"known": ["dog", "ant"]}, {"known": ["dog", "ant"], "unknown": []}])
def test_a_split_may_have_no_unknown_class(split: dict[str, Any], image_folder: Path) -> None:
    described = {**ZOO, "folder": str(image_folder), "splits": [split]}
    data = read_protocol(written(image_folder.parent, described)).load(0)
    assert data.split.unknown == ()
    assert data.class_names == ("dog", "ant")
    assert sorted(data.test.labels.tolist()) == [0, 0, 1, 1]


def test_a_recipe_and_a_width_of_ones_own(tmp_path: Path) -> None:
    changes = {"epochs": 7, "milestones": [0.5], "augmentation": "none"}
    own = read_protocol(written(tmp_path, {**CIFAR, "recipe": changes, "width": 16}))
    assert own.width == 16
    assert own.default_recipe == "own"
    assert own.recipes == {
        **published_recipes(32),
        "own": Recipe(epochs=7, milestones=(0.5,), augmentation="none", image_size=32),
    }
    assert "mine.json" in own.because
    plain = read_protocol(written(tmp_path, CIFAR))
    assert (plain.width, plain.default_recipe, plain.recipes) == (None, None, published_recipes(32))


def test_files_are_told_from_names_by_their_suffix() -> None:
    assert is_protocol_file("mine.json")
    assert not is_protocol_file("cifar+10")


@pytest.mark.parametrize(
    ("described", "complaint"),
    [
        ("{", "is not JSON"),
        ('{"splits": ' + "[" * 100_000, r"is not JSON \(it is nested too deeply\)"),
        ([1], "holds a list; expected a JSON object"),
        ({"splits": [], "image_size": 8}, "names no images; expected either 'folder' or 'source'"),
        ({**CIFAR, "folder": "zoo"}, "names folder and source; expected either"),
        ({**CIFAR, "seed": 1}, "field is 'seed'; expected one of 'source'"),
        ({"source": "cifar10"}, "lacks 'splits' and 'image_size'"),
        ({**CIFAR, "source": "cifar"}, r"source is 'cifar'; expected one of .*Did you mean 'cifar10'"),
        ({**CIFAR, "image_size": "32"}, "image_size is '32'; expected a side in pixels"),
        ({**CIFAR, "image_size": True}, "image_size is True"),
        ({**ZOO, "folder": 5}, "folder is 5; expected the path of a folder"),
        ({**ZOO, "test_share": "a fifth"}, "test_share is 'a fifth'; expected a share"),
        ({**CIFAR, "splits": {"known": [0]}}, "splits is .* expected a list"),
        ({**CIFAR, "splits": []}, "at least one split"),
        ({**CIFAR, "splits": [{"unknown": [0, 1]}]}, r"split 0 is .* expected \{'known'"),
        ({**CIFAR, "splits": [{"known": [0, 1], "unknwon": [2]}]}, r"split 0 is .* expected \{'known'"),
        ({**CIFAR, "splits": [[0, 1]]}, r"split 0 is \[0, 1\]; expected \{'known'"),
        ({**CIFAR, "splits": [{"known": []}]}, r"split 0: known is \(\); expected class ids, at least one"),
        ({**CIFAR, "recipe": "plain"}, "recipe is 'plain'; expected fields of a recipe"),
        ({**CIFAR, "recipe": {"lr": 0.1}}, "a recipe has no field 'lr'; the fields are 'epochs'"),
        ({**CIFAR, "recipe": {"epochs": 0}}, "epochs is 0; pass a whole number"),
        ({**CIFAR, "recipe": {"epochs": "ten"}}, "epochs is 'ten'; pass a whole number"),
        ({**CIFAR, "width": 0.5}, "width is 0.5; expected channels of the first layer"),
        ({**CIFAR, "splits": [{"known": 0, "unknown": [1]}]}, "split 0: known is 0; expected a list"),
        (
            {**CIFAR, "splits": [{"known": ["cat"], "unknown": [1]}]},
            "split 0: known is 'cat'; classes of a source go by",
        ),
        ({**CIFAR, "splits": [{"known": [True], "unknown": [1]}]}, "split 0: known is True"),
        ({**CIFAR, "splits": [{"known": [0, 0], "unknown": [1]}]}, "names a class twice"),
    ],
)
def test_what_a_file_may_not_say(described: Any, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=rf"mine\.json.*{complaint}"):
        read_protocol(written(tmp_path, described))


def test_a_class_that_has_no_folder(image_folder: Path) -> None:
    described = {**ZOO, "folder": str(image_folder), "splits": [{"known": ["ant", "bee"], "unknown": {"far": ["cta"]}}]}
    with pytest.raises(ValueError, match=r"split 0: far is 'cta'; expected one of .*Did you mean 'cat'"):
        read_protocol(written(image_folder.parent, described))


def test_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no protocol file .*gone\.json"):
        get_protocol(str(tmp_path / "gone.json"))
    with pytest.raises(FileNotFoundError, match="zoo is not a folder"):
        read_protocol(written(tmp_path, ZOO))
