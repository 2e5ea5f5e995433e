"""Open-set protocols: which classes are known, and the arrays that follow from it. No torch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import combinations
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from openauc._validation import UNKNOWN, check_choice, check_fraction, named
from openauc.protocols.sources import Examples, FolderSource, Images, LazyImages, Source, concatenate, get_source, take
from openauc.recipe import Recipe, published_recipes

Part = Literal["test", "validation", "train"]  # the parts of `OpenSetData`


class Split(NamedTuple):
    """Class ids of one open-set problem; the label of a known class is its position in `known`.

    `groups` divides `unknown` by name, as easy, medium and hard in CUB; it is empty where they are not divided.

    >>> Split(known=(3, 5), unknown=(4,)).known.index(5)
    1
    """

    known: tuple[int, ...]
    unknown: tuple[int, ...]
    groups: Mapping[str, tuple[int, ...]] = {}

    @classmethod
    def of(cls, known: Sequence[int], unknown: Sequence[int] | Mapping[str, Sequence[int]]) -> Split:
        """Split whose unknown classes are one list, or one list for each named group.

        >>> Split.of([3, 5], {"near": [4], "far": [9]}).unknown
        (4, 9)
        """
        if not isinstance(unknown, Mapping):
            return cls(tuple(known), tuple(unknown))
        groups = {name: tuple(classes) for name, classes in unknown.items()}
        return cls(tuple(known), tuple(label for classes in groups.values() for label in classes), groups)


class Sizes(NamedTuple):
    """Numbers of images: of known classes for training, of known and of unknown classes for testing."""

    train: int
    test_known: int
    test_unknown: int


class TestPart(NamedTuple):
    """Test images, known classes first, with labels 0..C-1 or -1.

    `group` is "known", the name of the image's group, or "unknown" where the split has no groups. `balanced_index`
    holds the positions in the whole test part that balancing kept; it is None without balancing.
    """

    images: Images
    labels: NDArray[np.int64]
    group: NDArray[np.str_]
    balanced_index: NDArray[np.int64] | None = None


@dataclass(frozen=True, kw_only=True)
class OpenSetData:
    """The images and labels of one open-set problem; each part is read at its first use, and then kept.

    A trained model can thus be tested where only the test part exists, and tuning never reads the test part. Images
    are uint8, (N, H, W, 3), in their native size: one array, or `LazyImages` where sizes differ. Index
    them (`images[rows]`) before use and both work. In a protocol of embeddings they are float32, (N, d).

    Parameters
    ----------
    split
        The class ids in use. With `pseudo_unknown`, `unknown` holds the held-out known classes.
    read_train, read_test, read_class_names
        Functions that read a part at its first use.

    Examples
    --------
    >>> from openauc.protocols import get_protocol
    >>> data = get_protocol("digits").load(0)
    >>> data.num_classes, data.train.images.shape[1:], sorted(set(data.test.labels.tolist()))
    (6, (8, 8, 3), [-1, 0, 1, 2, 3, 4, 5])
    """

    split: Split
    read_train: Callable[[], tuple[Examples, Examples]]
    read_test: Callable[[], TestPart]
    read_class_names: Callable[[], tuple[str, ...]]

    @property
    def num_classes(self) -> int:
        """Number C of known classes."""
        return len(self.split.known)

    @cached_property
    def class_names(self) -> tuple[str, ...]:
        """Names of the known classes, in label order."""
        return self.read_class_names()

    @cached_property
    def _training(self) -> tuple[Examples, Examples]:
        return self.read_train()

    @property
    def train(self) -> Examples:
        """Known training images, without the validation slice."""
        return self._training[0]

    @property
    def validation(self) -> Examples:
        """Images held out of the training part; empty unless asked for."""
        return self._training[1]

    @cached_property
    def test(self) -> TestPart:
        """Test images, known classes first."""
        return self.read_test()

    def limited(self, images: int, *, seed: int = 0) -> OpenSetData:
        """The same data with at most this many training images, drawn without replacement."""
        if images < 1:
            raise ValueError(f"train_images is {images}; pass a positive number of images.")
        return replace(self, read_train=partial(self._read_limited, images, seed))

    def _read_limited(self, images: int, seed: int) -> tuple[Examples, Examples]:
        order = _generator(seed, "limited").permutation(len(self.train.labels))
        return self.train.at(np.sort(order[:images])), self.validation

    def test_rows(self, group: str) -> NDArray[np.int64]:
        """Return the rows of the test part with known images, or with unknown images of one group, such as "hard"."""
        check_choice("group", group, self.split.groups)
        return np.flatnonzero((self.test.labels != UNKNOWN) | (self.test.group == group))

    def test_columns(self) -> dict[str, NDArray[np.str_]]:
        """Columns to save with the predictions: each test image's group and file, where there are any."""
        columns = {"group": self.test.group} if self.split.groups else {}
        if isinstance(self.test.images, LazyImages) and all(image.row is None for image in self.test.images.encoded):
            columns["file"] = np.array([str(image) for image in self.test.images.encoded])
        return columns


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """Class splits over a source of known and a source of unknown images.

    Parameters
    ----------
    known_source, unknown_source
        Names in `SOURCES`, or sources. Unknown images come from the test part of `unknown_source` only.
    splits, reference
        The open-set problems, with class ids of the sources, and where they come from.
    image_size, num_features
        Side of the images that models see, to which images of varying size are resized on decoding. A protocol of
        embeddings has their length instead.
    sizes
        Sizes of the full official parts, one per split, or none; a source with more images is refused.
    images_per_class
        Approximate number of training images of a class, for estimates of cost where `sizes` is empty.
    recipes
        How to train, by name; the papers' ``plain`` and ``plus`` for images of this size if left out.
    default_recipe, because
        Name in `recipes` of the recipe of all methods, and the reason; without it each method takes the recipe it was
        published with.
    width, backbone
        Channels of the first layer and network that suit these images; as published if None.

    Examples
    --------
    >>> even = Split(known=(8, 6, 4, 2, 0), unknown=(1, 3, 5, 7, 9))
    >>> protocol = Protocol(
    ...     known_source="digits", unknown_source="digits", splits=(even,), image_size=8, reference="parity"
    ... )
    >>> data = protocol.load(0)
    >>> data.class_names, data.train.images.shape
    (('8', '6', '4', '2', '0'), (595, 8, 8, 3))
    """

    known_source: str | Source
    unknown_source: str | Source
    splits: tuple[Split, ...]
    image_size: int = 0
    num_features: int | None = None
    reference: str
    sizes: tuple[Sizes, ...] = ()
    images_per_class: int = 100
    recipes: Mapping[str, Recipe] = field(default_factory=dict)
    default_recipe: str | None = None
    because: str = ""
    width: int | None = None
    backbone: str | None = None

    def __post_init__(self) -> None:
        if not self.splits:
            raise ValueError("a protocol needs at least one split; pass splits=(Split(known=..., unknown=...),).")
        if self.sizes and len(self.sizes) != len(self.splits):
            raise ValueError(f"there are {len(self.sizes)} sizes for {len(self.splits)} splits; pass one each or none.")
        if not self.of_embeddings:
            if self.image_size < 1:
                raise ValueError(f"image_size is {self.image_size}; expected a side in pixels.")
            object.__setattr__(self, "recipes", self.recipes or published_recipes(self.image_size))
        if self.default_recipe is not None:
            check_choice("default_recipe", self.default_recipe, self.recipes)
        same_ids = get_source(self.known_source) == get_source(self.unknown_source)
        for index, split in enumerate(self.splits):
            _check_split(f"split {index}", split, same_ids=same_ids)

    @classmethod
    def from_folder(
        cls,
        path: Path | str,
        *,
        known: Sequence[str],
        unknown: Sequence[str] = (),
        image_size: int = 64,
        test_share: float = 0.2,
        seed: int = 0,
    ) -> Protocol:
        """Return a protocol of one split over the class folders `path/class_name/*.png` (or `.jpg`).

        `path/train` and `path/test` are the parts where they exist; otherwise `test_share` of each class is
        drawn as test part with `seed`, so that the seed of `load` never changes the test part.
        """
        source = FolderSource(path=Path(path), test_share=test_share, seed=seed)
        return cls(
            known_source=source,
            unknown_source=source,
            splits=(Split(source.class_ids(known, "known"), source.class_ids(unknown, "unknown")),),
            image_size=image_size,
            reference=f"class folders of {path}",
        )

    @property
    def of_embeddings(self) -> bool:
        """Whether a sample is a vector instead of an image."""
        return self.num_features is not None

    def duplicate_splits(self) -> tuple[tuple[int, int], ...]:
        """Return the pairs of splits with the same set of known classes, hence not independent."""
        known = [set(split.known) for split in self.splits]
        return tuple(pair for pair in combinations(range(len(known)), 2) if known[pair[0]] == known[pair[1]])

    def load(
        self,
        split: int,
        *,
        root: Path | None = None,
        validation: float = 0.0,
        balanced: bool = False,
        pseudo_unknown: int = 0,
        seed: int = 0,
    ) -> OpenSetData:
        """Return the data of one split; nothing is read before it is asked for.

        Parameters
        ----------
        split
            Position in `splits`.
        root
            Folder of a local mirror; without it the environment variable `OPENAUC_DATA`, then the Hub.
        validation
            Share of each known class's training images to hold out, at least one image.
        balanced
            Shrink the larger side of the test part, known or unknown, to the size of the smaller one, without
            replacement. Pairwise metrics stay unbiased; closed-set accuracy may be measured on fewer images.
        pseudo_unknown
            Number of known classes to hold out of training altogether. Their training images join the
            validation slice as unknowns, to tune options without test data; the test part is then closed.
        seed
            Seed of these three draws; each has its own generator, so asking for one does not change another.
        """
        if not 0 <= split < len(self.splits):
            raise ValueError(f"there is no split {split}; this protocol has splits 0 to {len(self.splits) - 1}.")
        check_fraction("validation", validation, zero=True, one=False)
        if seed < 0:
            raise ValueError(f"seed is {seed}; expected an integer from 0 upwards.")
        chosen = self.splits[split]
        held_out: tuple[int, ...] = ()
        if pseudo_unknown:
            n, most = len(chosen.known), max(len(chosen.known) - 2, 0)
            if not 0 < pseudo_unknown <= most:
                raise ValueError(f"pseudo_unknown is {pseudo_unknown}; of {n} known classes, hold out 0 to {most}.")
            if not validation:
                raise ValueError("pseudo_unknown needs known validation images too; pass validation, say 0.2.")
            drawn = _generator(seed, "pseudo_unknown").choice(len(chosen.known), pseudo_unknown, replace=False)
            held_out = tuple(label for i, label in enumerate(chosen.known) if i in drawn)
            chosen = Split(tuple(label for label in chosen.known if label not in held_out), held_out)
        sizes = self.sizes[split] if self.sizes else Sizes(sys.maxsize, sys.maxsize, sys.maxsize)
        reader = _Reader(self, chosen, held_out, sizes, root, validation, balanced, seed)
        return OpenSetData(
            split=chosen, read_train=reader.train, read_test=reader.test, read_class_names=reader.class_names
        )


@dataclass(frozen=True)
class _Reader:
    protocol: Protocol
    split: Split
    held_out: tuple[int, ...]
    sizes: Sizes
    root: Path | None
    validation: float
    balanced: bool
    seed: int

    def class_names(self) -> tuple[str, ...]:
        names = get_source(self.protocol.known_source).class_names(root=self.root)
        return tuple(names[label] if label < len(names) else str(label) for label in self.split.known)

    def train(self) -> tuple[Examples, Examples]:
        images, ids = self._read("training", self.split.known + self.held_out, self.sizes.train)
        part = Examples(images, _relabel(ids, self.split.known))
        in_validation = part.labels == UNKNOWN
        if self.validation:
            in_validation[_stratified_draw(part.labels, self.validation, self.seed)] = True
        return part.at(~in_validation), part.at(in_validation)

    def test(self) -> TestPart:
        if self.held_out:
            raise ValueError(
                f"the test part is closed: with pseudo_unknown={len(self.held_out)} the known classes are not the "
                "protocol's. Load again without it to test the final model."
            )
        images, ids = self._read("known test", self.split.known, self.sizes.test_known)
        labels, group = _relabel(ids, self.split.known), np.full(len(ids), "known")
        if not self.split.unknown:
            return TestPart(images, labels, group)
        unknown = self._read("unknown test", self.split.unknown, self.sizes.test_unknown)
        images = concatenate(images, unknown.images)
        labels = np.concatenate([labels, np.full(len(unknown.labels), UNKNOWN)])
        names = {label: name for name, classes in self.split.groups.items() for label in classes}
        group = np.concatenate([group, [names.get(label, "unknown") for label in unknown.labels.tolist()]])
        if not self.balanced:
            return TestPart(images, labels, group)
        rng, sides = _generator(self.seed, "balanced"), (labels != UNKNOWN, labels == UNKNOWN)
        count = min(map(np.count_nonzero, sides))
        kept = np.sort(np.concatenate([rng.choice(np.flatnonzero(side), count, replace=False) for side in sides]))
        return TestPart(take(images, kept), labels[kept], group[kept], kept)

    def _read(self, part: str, classes: Sequence[int], official: int) -> Examples:
        """Return the images of ``classes``; refuse a source that lacks a class or has too many images."""
        protocol = self.protocol
        # Images of one size stay as they are, for augmentation; others take the model's size.
        size = get_source(protocol.known_source).image_size or protocol.image_size
        source = get_source(protocol.unknown_source if part == "unknown test" else protocol.known_source)
        found = source.read("train" if part == "training" else "test", classes=classes, root=self.root, image_size=size)
        if missing := sorted(set(classes) - set(found.labels.tolist())):
            lacks = f"{len(missing)} of the {len(classes)} classes have no {part} image (ids {named(missing, 5)})"
            raise ValueError(f"{lacks}; the local files are a subset, or hold other labels. Get the full set.")
        if (n := len(found.labels)) > official:
            raise ValueError(f"there are {n} {part} images, but the official part has {official}; is one there twice?")
        return found


def _check_split(where: str, split: Split, *, same_ids: bool) -> None:
    for side, classes in (("known", split.known), ("unknown", split.unknown)):
        if (side == "known" and not classes) or min(classes, default=0) < 0:
            least = "at least one, " if side == "known" else ""
            raise ValueError(f"{where}: {side} is {classes}; expected class ids, {least}none negative.")
        if len(set(classes)) < len(classes):
            raise ValueError(f"{where}: {side} {classes} names a class twice.")
    both = sorted(set(split.known) & set(split.unknown))
    # Ids of two sources, such as CIFAR-10 and CIFAR-100, may coincide without meaning the same class.
    if same_ids and both:
        raise ValueError(f"{where}: the classes {both} are both known and unknown; a class is one or the other.")
    grouped = sorted(label for classes in split.groups.values() for label in classes)
    if split.groups and grouped != sorted(split.unknown):
        raise ValueError(f"{where}: the groups {list(split.groups)} do not divide the unknown classes among them.")


def _generator(seed: int, purpose: str) -> np.random.Generator:
    """One generator for each purpose, so that one draw does not change another."""
    return np.random.default_rng([seed, *purpose.encode()])


def _relabel(ids: NDArray[np.int64], known: Sequence[int]) -> NDArray[np.int64]:
    """Position of each id in `known`, or UNKNOWN."""
    positions = {label: position for position, label in enumerate(known)}
    return np.array([positions.get(label, UNKNOWN) for label in ids.tolist()], dtype=np.int64)


def _stratified_draw(labels: NDArray[np.int64], share: float, seed: int) -> NDArray[np.int64]:
    """Rows of about `share` of each known class, at least one and not all of them."""
    rng, drawn = _generator(seed, "validation"), []
    for label in range(int(labels.max()) + 1):
        rows = np.flatnonzero(labels == label)
        if len(rows) < 2:
            raise ValueError(f"the known class at position {label} has one training image; validation needs two.")
        count = min(max(1, round(share * len(rows))), len(rows) - 1)
        drawn.append(rng.choice(rows, count, replace=False))
    return np.concatenate(drawn)
