"""From embeddings to decisions: scores of features and logits, and the classifier that learns to reject with them."""

from typing import Any

from openauc.features.scores.base import Score
from openauc.features.scores.registry import SCORES, make_score

_WITH_SKLEARN = {
    "Explanation": "classifier.explanation",
    "FitReport": "classifier.report",
    "Group": "classifier.discovery",
    "Groups": "classifier.discovery",
    "Monitor": "monitor.monitor",
    "OpenSetClassifier": "classifier.estimator",
    "HeldOutSplit": "classifier.splits",
    "openauc_scorer": "classifier.splits",
}

__all__ = ["SCORES", "Score", "make_score"]
__all__ += [
    "Explanation",
    "FitReport",
    "Group",
    "Groups",
    "HeldOutSplit",
    "Monitor",
    "OpenSetClassifier",
    "openauc_scorer",
]


def __getattr__(name: str) -> Any:
    if name not in _WITH_SKLEARN:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    from openauc._validation import import_extra

    import_extra("sklearn", name, "'openauc[sklearn]'")
    return getattr(import_module(f"{__name__}.{_WITH_SKLEARN[name]}"), name)
