"""Score, the interface of every open-set score."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Real = NDArray[np.floating]
Array: TypeAlias = Any
"""Of numpy, or of another library of the array API standard, whose functions ``__array_namespace__`` gives."""

HEAD_NAMES = ("logistic", "class_mean", "mlp")
"""Names of our heads, the classifiers on embeddings (:mod:`openauc.features.classifier.heads`)."""
REJECTORS = ("learned", "average", "selected")
"""Names of the ways to reject that look at several scores, and at held-out classes."""


class Score:
    """Base class of scores; a subclass writes ``__call__`` and, if it learns from training samples, ``fit``.

    A score keeps what it learns, arrays and numbers, as its attributes: save ``vars(score)``, and
    ``vars(make_score(name)).update(saved)`` restores it. A call takes arrays of numpy or of any library of the array
    API standard, and returns an array of the same library.
    """

    fits: ClassVar[bool] = False
    """Whether ``fit`` must be called first."""
    looks_at: ClassVar[Literal["logits", "features", "both"]] = "both"
    """What the score depends on."""
    centred: ClassVar[bool] = True
    """Whether a classifier of embeddings may shift the features so that their mean is zero."""
    pooled: ClassVar[bool] = False
    """Whether what it learns depends on the number of all training samples, not on the number of each class."""
    formula: ClassVar[str] = ""
    """In plain text, with logits z, probabilities p and features x."""
    source: ClassVar[str] = ""

    def fit(self, features: ArrayLike, logits: ArrayLike, y: ArrayLike) -> Self:
        """Learn from training samples of the known classes 0..C-1; return the score itself."""
        return self

    def __call__(self, features: Any, logits: Any) -> Array:
        """(n,) scores of n samples with features (n, d) and logits (n, C)."""
        raise NotImplementedError(f"{type(self).__name__} has no __call__(features, logits); define it.")
