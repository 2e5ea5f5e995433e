"""A finished training taken into use: its network, its classes, its threshold, and labels for new images."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from openauc._trial_files import SPEC, WEIGHTS, read_threshold
from openauc._validation import UNKNOWN
from openauc.bench.runner import Network, load_data
from openauc.bench.trial import TrialSpec
from openauc.metrics.operating import decide
from openauc.protocols.sources import LazyImages, image_files
from openauc.training.checkpoint import read_about
from openauc.training.predict import Embedded, InferencePrecision, embed_images

UNKNOWN_NAME = "unknown"


class SavedRun:
    """A trial's folder as something that labels images.

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
        self.spec = _read_spec(folder)
        for what, name, foreign in (
            ("method", self.spec.method, "." in self.spec.method),
            ("backbone", self.spec.backbone, ":" in self.spec.backbone),
        ):
            if foreign and name not in trusted:
                option = f"--method {name}" if what == "method" else f"--set backbone={name}"
                raise ValueError(f"{folder} asks for the {what} {name!r} from elsewhere; add {option} if you trust it.")
        about = read_about(folder / WEIGHTS) or {}
        if "class_names" not in about:
            raise ValueError(
                f"{folder / WEIGHTS} does not say its classes; train again, or name the folder of a training."
            )
        self.folder = folder
        self.class_names: tuple[str, ...] = tuple(about["class_names"])
        self.threshold = read_threshold(folder)
        self.network = Network(self.spec, folder, data_root=data_root, batch_size=batch_size, precision=precision)
        self.network.load(folder / WEIGHTS, len(self.class_names))

    def label(
        self, images: Path, *, seen: Callable[[int, int], object] = lambda count, total: None
    ) -> dict[str, NDArray[Any]]:
        """Columns ``file``, ``label`` (a class, or ``"unknown"`` above the threshold) and ``open_score``.

        Parameters
        ----------
        images
            A folder, looked through with all folders below it, or one file.
        seen
            Told after each batch how many images are done, of how many.
        """
        if UNKNOWN_NAME in self.class_names:
            raise ValueError(f"a known class is called {UNKNOWN_NAME!r}; rename its folder and train again.")
        encoded = image_files(images)
        spec, method = self.spec, self.network.train()
        found = embed_images(
            method,
            LazyImages(encoded, spec.recipe.image_size),
            spec.recipe,
            precision=self.network.precision,
            batch_size=self.network.batch_size,
            seen=lambda count: seen(count, len(encoded)),
        )
        embedded = Embedded(*found, np.full(len(encoded), UNKNOWN))
        predictions = self.network.scored(spec, partial(load_data, spec, self.network.data_root), embedded)
        threshold = np.inf if self.threshold is None else self.threshold
        decided = decide(predictions.y_pred, predictions.open_score, threshold=threshold)
        names = np.array([*self.class_names, UNKNOWN_NAME])  # the unknown label, -1, is the last one
        return {
            "file": np.array([str(image) for image in encoded]),
            "label": names[decided],
            "open_score": predictions.open_score,
        }


def _read_spec(folder: Path) -> TrialSpec:
    file = folder / SPEC
    try:
        return TrialSpec.from_dict(json.loads(file.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise ValueError(
            f"{folder} is not the folder of one training; of a store, name a folder below {folder / 'trials'}."
        ) from None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{file} is not the spec of a training ({error}).") from error
