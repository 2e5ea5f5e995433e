"""A protocol of one's own, written down as a JSON file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from openauc._files import parse_json
from openauc._validation import check_choice
from openauc.protocols.base import Protocol, Split
from openauc.protocols.sources import SOURCES, FolderSource
from openauc.recipe import published_recipes

# The type of each field, and how an error describes it; either of the first two groups, and the third.
_FOLDER_FIELDS: dict[str, tuple[type, str]] = {
    "folder": (str, "the path of a folder"),
    "test_share": (float, "a share between 0 and 1"),
    "seed": (int, "an integer"),
}
_SOURCE_FIELDS: dict[str, tuple[type, str]] = {
    "source": (str, "the name of a source"),
    "unknown_source": (str, "the name of a source"),
}
_COMMON_FIELDS: dict[str, tuple[type, str]] = {
    "splits": (list, "a list"),
    "image_size": (int, "a side in pixels"),
    "reference": (str, "text"),
    "recipe": (dict, "fields of a recipe"),
    "width": (int, "channels of the first layer"),
}


def read_protocol(path: Path | str) -> Protocol:
    """Return the protocol that a JSON file describes; `get_protocol` and the command line read such files too.

    Over class folders, `images/cat/*.png`, classes go by name, and the folder is relative to the file::

        {"folder": "images", "image_size": 64,
         "splits": [{"known": ["cat", "dog"], "unknown": ["fox"]}]}

    `test_share` and `seed` are those of :class:`FolderSource`. Over sources of `SOURCES` classes go by id::

        {"source": "cifar10", "unknown_source": "cifar100", "image_size": 32,
         "splits": [{"known": [0, 1, 8, 9], "unknown": {"animals": [3, 15], "plants": [54, 62]}}]}

    `unknown` may be divided into groups, as here, and `unknown_source` be left out where it is the same. A split may
    leave `unknown` out: a classifier and its threshold need no unknown image, only their test does. `recipe` holds
    fields of a :class:`~openauc.recipe.Recipe` that differ from the published ``plain`` one for images of this size,
    and makes it the default; `width` is that of the network's first layer.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no protocol file {path}; `openauc list protocols` shows those with a name.")
    try:
        described = parse_json(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON ({error}).") from None
    if not isinstance(described, dict):
        raise ValueError(f"{path} holds a {type(described).__name__}; expected a JSON object with 'splits'.")
    try:
        return _protocol(described, path)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: {error}") from error


def is_protocol_file(protocol: str) -> bool:
    """Whether a protocol is given as a file rather than by name."""
    return protocol.endswith(".json")


def _protocol(described: Mapping[str, Any], path: Path) -> Protocol:
    given = [key for key in ("folder", "source") if key in described]
    if len(given) != 1:
        raise ValueError(f"it names {' and '.join(given) or 'no images'}; expected either 'folder' or 'source'.")
    fields = (_FOLDER_FIELDS if given == ["folder"] else _SOURCE_FIELDS) | _COMMON_FIELDS
    for key, value in described.items():
        field_type, expected = fields[check_choice("field", key, fields)]
        if type(value) is not field_type:
            raise TypeError(f"{key} is {value!r}; expected {expected}.")
    if missing := [key for key in ("splits", "image_size") if key not in described]:
        raise ValueError(f"it lacks {' and '.join(map(repr, missing))}.")
    options = {key: described[key] for key in ("image_size", "width") if key in described}
    if "folder" in described:
        own = {key: described[key] for key in ("test_share", "seed") if key in described}
        folder = FolderSource(path=path.parent / described["folder"], **own)
        options |= {"known_source": folder, "unknown_source": folder}
        ids_of: Callable[[list[Any], str], tuple[int, ...]] = folder.class_ids
    else:
        for role in ("source", "unknown_source"):
            check_choice(role, described.get(role, described["source"]), SOURCES)
        options["known_source"] = described["source"]
        options["unknown_source"] = described.get("unknown_source", described["source"])
        ids_of = _checked_ids
    if "recipe" in described:
        published = published_recipes(described["image_size"])
        options["recipes"] = {"own": published["plain"].changed(**described["recipe"]), **published}
        options |= {"default_recipe": "own", "because": f"{path.name} has one"}
    splits = tuple(_split(f"split {index}", entry, ids_of) for index, entry in enumerate(described["splits"]))
    return Protocol(splits=splits, reference=described.get("reference", str(path)), **options)


def _checked_ids(classes: list[Any], role: str) -> tuple[int, ...]:
    for given in classes:
        if type(given) is not int:
            raise TypeError(f"{role} is {given!r}; classes of a source go by their ids, as 0.")
    return tuple(classes)


def _split(where: str, entry: Any, ids_of: Callable[[list[Any], str], tuple[int, ...]]) -> Split:
    if not isinstance(entry, Mapping) or not {"known"} <= set(entry) <= {"known", "unknown"}:
        raise ValueError(f"{where} is {entry!r}; expected {{'known': [...], 'unknown': [...]}}.")

    def ids(classes: Any, side: str) -> tuple[int, ...]:
        if not isinstance(classes, list):
            raise TypeError(f"{where}: {side} is {classes!r}; expected a list of classes.")
        return ids_of(classes, f"{where}: {side}")

    known, unknown = ids(entry["known"], "known"), entry.get("unknown", [])
    if isinstance(unknown, Mapping):
        return Split.of(known, {name: ids(classes, name) for name, classes in unknown.items()})
    return Split.of(known, ids(unknown, "unknown"))
