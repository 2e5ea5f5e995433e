"""Score, the interface of every open-set score."""

from __future__ import annotations

import copy
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from openauc.features.scores._arrays import Array, ready, wide

Floats = NDArray[np.float64]
Real = NDArray[np.floating]
Labels = NDArray[Any]
Rows = NDArray[np.int64]
CHUNK = 2**21  # entries of the largest array that a call makes: 16 MB in float64, a few of which exist at a time

HEAD_NAMES = ("logistic", "class_mean", "mlp")
"""Names of our heads, the classifiers on embeddings (:mod:`openauc.features.classifier.heads`)."""
REJECTORS = ("learned", "average", "selected")  # names of the rejectors that use several scores, and held-out classes


class Score:
    """Base class of scores; a subclass writes ``__call__`` and, if it learns from training samples, ``fit``.

    Or it writes ``_score`` and ``_learn``, which get prepared arrays. A score keeps what it learns, arrays and numbers,
    as its attributes: save ``vars(score)``, and ``vars(make_score(name)).update(saved)`` restores it. A call takes
    arrays of numpy or of any library of the array API standard, and returns an array of the same library. Products with
    float32 features are computed in float32, which is twice as fast; everything else is float64.
    """

    fits: ClassVar[bool] = False
    """Whether ``fit`` must be called first: whether the subclass has a ``fit`` or a ``_learn``."""
    looks_at: ClassVar[Literal["logits", "features", "both"]] = "both"
    """What the score depends on."""
    centred: ClassVar[bool] = True
    """Whether a classifier of embeddings may shift the features so that their mean is zero."""
    pooled: ClassVar[bool] = False
    """Whether what it learns depends on the number of all training samples, not on the number of each class."""
    formula: ClassVar[str] = ""
    """In plain text, with logits z, probabilities p and features x."""
    source: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        cls.fits = cls.fit is not Score.fit or cls._learn is not Score._learn

    def fit(self, features: ArrayLike, logits: ArrayLike, y: ArrayLike) -> Self:
        """Learn from training samples of the known classes 0..C-1; return the score itself."""
        if self.fits:
            self._learn(ready(features)[1], wide(logits)[1], np.asarray(y))
        return self

    def extended(self, features: Real, logits: Floats, y: Rows, sample_weight: Floats, added: Rows) -> Self:
        """A score that also knows the rows ``added``, of new classes or of old ones.

        The other rows are some of those it learned from, with the classes they had. A score whose values elsewhere
        need not change writes ``_extend``, which gets prepared features; any other is fitted to these rows anew.
        """
        new = copy.copy(self)
        if type(self)._extend is not Score._extend:
            new._extend(ready(features)[1], y, sample_weight, added)
            return new
        return new.fit(features, logits, y)

    def __call__(self, features: Any, logits: Any) -> Array:
        """(n,) scores of n samples with features (n, d) and logits (n, C)."""
        if self.looks_at == "logits":
            xp, z = wide(logits)
            return self._score(xp, None, z)
        xp, x = ready(features)
        z = None if self.looks_at == "features" else wide(logits)[1]
        if xp is not np:
            return self._score(xp, x, z)
        learned = [array for array in vars(self).values() if isinstance(array, np.ndarray)]
        step = max(1, CHUNK // max(1, x.shape[1], *map(len, learned)))
        rows = [slice(start, start + step) for start in range(0, max(len(x), 1), step)]
        return np.concatenate([self._score(np, x[part], None if z is None else z[part]) for part in rows])

    def _learn(self, x: Real, z: Floats, y: Labels) -> None:
        """Keep what :meth:`_score` needs of training samples."""
        raise NotImplementedError(f"{type(self).__name__} has no fit(features, logits, y); define it.")

    def _extend(self, x: Real, y: Rows, weight: Floats, added: Rows) -> None:
        """Learn the rows ``added`` too."""

    def _score(self, xp: Any, x: Array, z: Array) -> Array:
        """(n,) scores by the library ``xp``: of features in float32 or float64, and of logits in float64."""
        raise NotImplementedError(f"{type(self).__name__} has no __call__(features, logits); define it.")
