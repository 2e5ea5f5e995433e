"""Rules that reject by held-out classes, for networks: fold networks, trained without some classes, say how.

The final network is trained on everything, so that the rule costs it no sample; its classes are no news to it, so that
none of them can play unknown there. Each fold network is trained by the same recipe without some classes and without a
share of the samples of the others, and looks at both. What it says is standardised on samples it has not seen and
classifies correctly. The final network has none of these, and takes the mean of the fold networks' scales: on held-out
classes of digits its true scale was hardly better.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from openauc._columns import read_columns, write_columns
from openauc._trial_files import FOLDS
from openauc._validation import check_choice
from openauc.features.classifier.evidence import Fold, Scale, standardise
from openauc.features.classifier.fitting import COMPARED
from openauc.features.classifier.rejector import Rejector, choose_rejector
from openauc.features.classifier.splits import PseudoUnknownSplit
from openauc.features.scores.base import RULES, Floats
from openauc.features.scores.registry import make_score
from openauc.predictions import Predictions
from openauc.protocols import OpenSetData
from openauc.training.predict import Embedded
from openauc.training.process import process_state

Rows = NDArray[np.int64]

N_FOLDS = 3
"""Fold networks; each class is held out of one of them."""
SHARE = 0.25
"""Of the samples of the other classes, what a fold network is not trained on."""
COST = (N_FOLDS - 1) * (1 - SHARE)
"""Trainings of the final network that all fold networks together cost, in samples shown."""


def plans(y: Rows, seed: int) -> list[tuple[Rows, Rows]]:
    """Rows that each fold network is trained on, and rows it looks at, of training samples with classes ``y``.

    >>> [(len(train), len(look)) for train, look in plans(np.repeat(np.arange(6), 20), seed=0)]
    [(60, 60), (60, 60), (60, 60)]
    """
    split = PseudoUnknownSplit(N_FOLDS, n_repeats=1, known_share=SHARE, random_state=seed)
    return list(split.split(y, y))


class Look(NamedTuple):
    """What one fold network says of samples it was not trained on.

    ``raw`` (n, m) are the scores :data:`~openauc.features.classifier.fitting.COMPARED`, not standardised; ``label`` and
    ``predicted`` (n,) are classes among all of them, and ``known`` (n,) tells which samples' classes are the network's.
    """

    raw: Floats
    label: Rows
    predicted: Rows
    known: NDArray[np.bool_]

    @classmethod
    def of(cls, training: Embedded, rest: Embedded, label: Rows, classes: Rows) -> Look:
        """From features and logits of its training samples and of the others, whose classes are ``label``.

        ``classes`` are the network's own among all of them.
        """
        predicted = classes[rest.logits.argmax(1)]
        return cls(_scores(COMPARED, training, rest), label, predicted, np.isin(label, classes))

    @property
    def correct(self) -> NDArray[np.bool_]:
        """(n,) whether the sample is known and classified correctly."""
        return np.asarray(self.predicted == self.label)

    @property
    def scale(self) -> Scale:
        """Mean and deviation of each score on correct samples."""
        return self._standardised()[0]

    def fold(self) -> Fold:
        """The same as the folds of :class:`~openauc.features.OpenSetClassifier` have it."""
        return Fold(self._standardised()[1], self.known, self.correct, self.label, np.ones(len(self.label)))

    def _standardised(self) -> tuple[Scale, Floats]:
        return standardise(self.raw, self.predicted, self.correct, n_classes=int(self.predicted.max()) + 1)


class Folds:
    """Fold networks, trained when a rule first needs them; what they say is kept, they are not.

    Parameters
    ----------
    folder
        Of the final network; fold networks are trained below it, where a stopped one is resumed. None if there is none.
    look
        Trains a network in a folder on the training part of the data, and returns the features and logits of it and of
        the validation part, and its seconds.
    """

    def __init__(
        self, folder: Path | None, look: Callable[[Path, OpenSetData], tuple[Embedded, Embedded, float]]
    ) -> None:
        self.file = folder and folder / FOLDS
        self.seconds = 0.0
        self._look = look
        self._looks: list[Look] = []

    @property
    def looks(self) -> list[Look]:
        """What they said, now or in the file."""
        if not self._looks and (self.file is None or not self.file.is_file()):
            raise ValueError(
                f"rules ({', '.join(RULES)}) need networks that were trained without some of the classes, and there is "
                f"no {FOLDS} of what they said; train with `--score learned`, or name another score."
            )
        self._looks = self._looks or read_looks(cast(Path, self.file))
        return self._looks

    def train(self, data: OpenSetData, seed: int) -> float:
        """Train them unless that was done, and return their seconds."""
        if self.file is not None and not self._looks and not self.file.is_file():
            looks, y = [], data.train.labels
            places = [self.file.with_name(f"fold-{number}") for number in range(N_FOLDS)]
            for place, (train, rest) in zip(places, plans(y, seed), strict=True):
                place.mkdir(exist_ok=True)
                seen, others, seconds = self._look(place, data.fold(train, rest))
                looks.append(Look.of(seen, others, y[rest], np.unique(y[train])))
                self.seconds += seconds
            self._looks = looks
            if process_state().is_main_process:
                save_looks(self.file, looks)
                for place in places:
                    shutil.rmtree(place)
        return self.seconds

    def predictions(self, rule: str, training: Embedded, embedded: Embedded) -> Predictions:
        """The triple of samples by the final network and a rule; ``training`` are the network's training samples."""
        rejector = choose(rule, self.looks, training.logits.shape[1])
        scores = reject(rejector, self.looks, training, embedded)
        return Predictions.of(embedded.labels, embedded.logits.argmax(1), scores)


def save_looks(path: Path, looks: Sequence[Look]) -> None:
    """Write what fold networks said, so that other rules need no second training."""
    sizes = [len(look.label) for look in looks]
    label, predicted, known = (np.concatenate([look[i] for look in looks]) for i in (1, 2, 3))
    scores = dict(zip(COMPARED, np.concatenate([look.raw for look in looks]).T, strict=True))
    about = {"fold": np.repeat(np.arange(len(looks)), sizes), "label": label, "predicted": predicted, "known": known}
    write_columns(path, {**about, **scores})


def read_looks(path: Path) -> list[Look]:
    """Read what :func:`save_looks` wrote."""
    columns = read_columns(path)
    missing = [name for name in COMPARED if name not in columns]
    if missing:
        raise ValueError(
            f"{path} lacks the score {', '.join(missing)}: an earlier version of openauc wrote it. Train again, into a "
            "new folder."
        )
    raw = np.stack([columns[name] for name in COMPARED], axis=1)
    parts = [columns["fold"] == number for number in range(int(columns["fold"].max()) + 1)]
    about = [columns[name] for name in ("label", "predicted", "known")]
    return [Look(raw[part], *(column[part] for column in about)) for part in parts]


def choose(rule: str, looks: Sequence[Look], n_classes: int) -> Rejector:
    """The rejector that a rule makes of what fold networks say; ``n_classes`` are the final network's."""
    check_choice("rule", rule, RULES)
    return choose_rejector([look.fold() for look in looks], COMPARED, rule, n_classes=n_classes).rejector


def reject(rejector: Rejector, looks: Sequence[Look], training: Embedded, embedded: Embedded) -> Floats:
    """(n,) scores of samples by the final network, of which ``training`` are its training samples."""
    columns = [COMPARED.index(name) for name in rejector.names]
    scales = [look.scale for look in looks]
    mean, deviation = (np.mean([scale[i] for scale in scales], axis=0)[columns] for i in (0, 1))
    raw = _scores(rejector.names, training, embedded)
    scores: Floats = rejector(Scale(mean, deviation)(raw, embedded.logits.argmax(1)))
    return scores


def _scores(names: Sequence[str], training: Embedded, rest: Embedded) -> Floats:
    """(n, m) of the rest, by scores fitted on training samples."""
    fitted = (make_score(name).fit(*training) for name in names)
    return np.stack([score(rest.features, rest.logits) for score in fitted], axis=1)
