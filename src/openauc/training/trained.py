"""Networks that turn images into features and logits, trained when they are first needed or read from a folder."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from openauc._columns import as_utf8
from openauc._trial_files import CHECKPOINT, SPEC, WEIGHTS, features_file, load_json, read_threshold
from openauc._validation import UNKNOWN
from openauc.encoders.prepare import make_embeddings
from openauc.methods import build_method, load_method
from openauc.methods.base import Method
from openauc.metrics.operating import decide
from openauc.models import load_weights
from openauc.protocols import PROTOCOLS, OpenSetData
from openauc.protocols.base import Part
from openauc.protocols.sources import LazyImages, image_files
from openauc.training.checkpoint import read_about
from openauc.training.loop import train
from openauc.training.predict import Embedded, InferencePrecision, OpenScore, embed, embed_images, fitted_score
from openauc.training.process import process_state
from openauc.training.spec import TrialSpec

if TYPE_CHECKING:
    from openauc.training.head import FittedHead

UNKNOWN_NAME = "unknown"

Trained: TypeAlias = "Network | FittedHead"
"""What several trials may share: ``train()`` it, then ask for ``embedded`` parts of the data and the ``score``."""


def trained(spec: TrialSpec, folder: Path, data_root: Path | None = None, *, trackers: Sequence[str] = ()) -> Trained:
    """What a trial trains: a network in its folder, or a head on embeddings."""
    if not spec.is_head:
        return Network(spec, folder, data_root=data_root, trackers=trackers)
    from openauc.training.head import FittedHead  # needs scikit-learn, which networks do not

    return FittedHead(spec, partial(load_data, spec, data_root))


def load_data(spec: TrialSpec, data_root: Path | None) -> OpenSetData:
    """The data of a trial. Images are read when they are first used; missing embeddings are made now."""
    protocol = spec.open_protocol()
    if protocol.of_embeddings:
        make_embeddings(protocol, data_root)
    data = protocol.load(
        spec.split,
        root=data_root,
        validation=spec.validation,
        pseudo_unknown=spec.pseudo_unknown,
        balanced=spec.balanced,
        seed=spec.seed,
    )
    return data if spec.train_images is None else data.limited(spec.train_images, seed=spec.seed)


@dataclass(eq=False)
class Network:
    """A network that is trained once, when it is first needed.

    Parameters
    ----------
    spec
        Any of the trials that share the training.
    folder
        Where its checkpoint, log and weights are. Weights and features found there are used. None for a network that
        is loaded from elsewhere.
    data_root
        Local mirror of the data.
    trackers
        See :func:`~openauc.training.loop.train`.
    batch_size, precision
        See :func:`~openauc.training.predict.embed_images`.
    """

    spec: TrialSpec
    folder: Path | None
    _: KW_ONLY
    data_root: Path | None = None
    trackers: Sequence[str] = ()
    batch_size: int | None = None
    precision: InferencePrecision = "fp32"
    seconds: float = field(default=0.0, init=False)
    method: Method | None = field(default=None, init=False)
    _error: Exception | None = field(default=None, init=False)
    _embedded: dict[tuple[object, ...], Embedded] = field(default_factory=dict, init=False)

    def train(self) -> Method:
        """The trained method, trained now or before; a training that failed is not tried again."""
        if self._error is not None:
            raise self._error
        try:
            if self.method is None:
                self._train()
        except Exception as error:
            self._error = error
            raise
        return cast(Method, self.method)

    def score(self, spec: TrialSpec, data: OpenSetData | None = None) -> OpenScore:
        """The open-set score of a trial; ``data`` is loaded if it learns from training samples."""
        method, method_class, name = self.train(), load_method(spec.method), spec.score
        if name is None and type(method) is not method_class:
            name = method_class.score
        return fitted_score(method, name, lambda: self.embedded(spec, data or load_data(spec, self.data_root), "train"))

    def embedded(self, spec: TrialSpec, data: OpenSetData, part: Part) -> Embedded:
        """Features and logits of one part, computed once for all trials with the same images, or read from a file."""
        key = (part, *spec.tested_on) if part == "test" else (part,)
        if key not in self._embedded:
            kept = self.folder and self.folder / features_file(part)
            same = self.precision == "fp32" and (part != "test" or spec.tested_on == self.spec.tested_on)
            if kept and kept.is_file() and same:
                self._embedded[key] = Embedded.load(kept)
            else:
                self._embedded[key] = embed(
                    self.train(), data, spec.recipe, part=part, precision=self.precision, batch_size=self.batch_size
                )
        return self._embedded[key]

    def load(self, weights: Path, num_classes: int) -> None:
        """Take the network from a file instead of training it."""
        self.method = self._built(num_classes).to(process_state().device)
        load_weights(self.method, weights)

    def _built(self, num_classes: int) -> Method:
        spec = self.spec
        named = PROTOCOLS.get(spec.protocol)  # one of a file has images
        return build_method(
            spec.method,
            num_classes,
            image_size=spec.network_recipe.image_size,
            num_features=named.num_features if named else None,
            backbone=spec.backbone,
            width=spec.width,
            seed=spec.seed,
            method_args=spec.method_args,
        )

    def _train(self) -> None:
        spec = self.spec
        if self.folder is None:
            raise ValueError("this network has no folder to be trained in; load its weights first.")
        data = load_data(spec, self.data_root)
        if (self.folder / WEIGHTS).is_file() and not (self.folder / CHECKPOINT).is_file():
            # The trial, or another one with the same training, has left its network here.
            self.load(self.folder / WEIGHTS, data.num_classes)
            return
        method = self._built(data.num_classes)
        if spec.weights is not None:
            load_weights(method, spec.weights, allow_missing_head=True)
        history = train(
            method,
            data,
            spec.network_recipe,
            out=self.folder,
            seed=spec.seed,
            precision=spec.precision,  # type: ignore[arg-type]  # checked by the spec
            compile=spec.compile,
            trackers=self.trackers,
            about={**spec.training(), "class_names": data.class_names},
        )
        self.seconds = sum(row["seconds"] for row in history)
        self.method = method


class SavedRun(Network):
    """The network of a finished training, with its classes and its threshold, which labels new images.

    Parameters
    ----------
    folder
        Of a training that has ended.
    data_root
        Local mirror of its data, for scores that learn from training samples.
    trusted
        Names of methods (``pkg.module``) and backbones (``hf:NAME``, ``timm:NAME``) from elsewhere that the folder may
        ask for. Others are refused: a folder that somebody sent must not choose what code or repository is loaded.
    batch_size, precision
        See :func:`~openauc.training.predict.embed_images`.
    """

    def __init__(
        self,
        folder: Path,
        *,
        data_root: Path | None = None,
        trusted: Collection[str] = (),
        batch_size: int | None = None,
        precision: InferencePrecision = "fp32",
    ) -> None:
        if not (folder / SPEC).is_file():
            raise ValueError(
                f"{folder} is not the folder of one training; of a store, name a folder below {folder / 'trials'}."
            )
        spec = load_json(folder / SPEC, TrialSpec.from_dict)
        super().__init__(spec, folder, data_root=data_root, batch_size=batch_size, precision=precision)
        if spec.is_head:
            raise ValueError(f"{folder} holds a head on embeddings and no network; `openauc fit` makes models of them.")
        places = (("method", spec.method, ".", "--method "), ("backbone", str(spec.backbone), ":", "--set backbone="))
        for what, name, sign, option in places:
            if sign in name and name not in trusted:
                raise ValueError(
                    f"{folder} asks for the {what} {name!r} from elsewhere; add {option}{name} if you trust it."
                )
        about = read_about(folder / WEIGHTS) or {}
        if "class_names" not in about:
            raise ValueError(f"{folder / WEIGHTS} does not say its classes; train again, or name a training's folder.")
        self.class_names: tuple[str, ...] = tuple(about["class_names"])
        self.threshold = read_threshold(folder)
        self.load(folder / WEIGHTS, len(self.class_names))

    def label(
        self, images: Path, *, seen: Callable[[int, int], object] = lambda count, total: None
    ) -> dict[str, NDArray[Any]]:
        """Columns ``file``, ``label`` (a class, or ``"unknown"`` above the threshold) and ``open_score``.

        Parameters
        ----------
        images
            A folder, searched with all folders below it, or one file.
        seen
            Called after each batch with the number of images done and the number of all images.
        """
        if UNKNOWN_NAME in self.class_names:
            raise ValueError(f"a known class is called {UNKNOWN_NAME!r}; rename its folder and train again.")
        encoded = image_files(images)
        recipe = self.spec.network_recipe
        found = embed_images(
            self.train(),
            LazyImages(encoded, recipe.image_size),
            recipe,
            precision=self.precision,
            batch_size=self.batch_size,
            seen=lambda count: seen(count, len(encoded)),
        )
        predictions = Embedded(*found, np.full(len(encoded), UNKNOWN)).predictions(self.score(self.spec))
        threshold = np.inf if self.threshold is None else self.threshold
        decided = decide(predictions.y_pred, predictions.open_score, threshold=threshold)
        names = np.array([*self.class_names, UNKNOWN_NAME])  # the unknown label, -1, is the last one
        return {
            "file": np.array([as_utf8(str(image)) for image in encoded]),
            "label": names[decided],
            "open_score": predictions.open_score,
        }
