"""Score, the contract every open-set score meets."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Real = NDArray[np.floating]


HEAD_NAMES = ("logistic", "class_mean", "mlp")
"""Names of our heads, the classifiers on embeddings (:mod:`openauc.features.classifier.heads`)."""
RULES = ("learned", "average", "selected")
"""Names of the ways to reject that look at several scores, and at held-out classes."""


class Score:
    """What every score offers; a subclass writes ``__call__`` and, where it learns from training samples, ``fit``.

    What it learns are arrays and numbers, all of them its attributes: ``vars(score)`` is all there is to be saved, and
    ``vars(make_score(name)).update(saved)`` brings it back. A call takes arrays of numpy or of any library of the array
    API standard and answers in kind.
    """

    fits: ClassVar[bool] = False
    """Whether ``fit`` must see training samples before the first call."""
    looks_at: ClassVar[Literal["logits", "features", "both"]] = "both"
    """What a call depends on."""
    centred: ClassVar[bool] = True
    """Whether a classifier of embeddings may shift the features so that their mean is zero."""
    pooled: ClassVar[bool] = False
    """Whether what it learns depends on the number of all training samples rather than on those of a class."""
    formula: ClassVar[str] = ""
    """In plain text: z logits, p probabilities, x features."""
    source: ClassVar[str] = ""

    def fit(self, features: ArrayLike, logits: ArrayLike, y: ArrayLike) -> Self:
        """Learn from training samples of the known classes 0..C-1; returns the score itself."""
        return self

    def __call__(self, features: Any, logits: Any) -> Floats:
        """(n,) scores of n samples with features (n, d) and logits (n, C)."""
        raise NotImplementedError(f"{type(self).__name__} has no __call__(features, logits); define it.")
