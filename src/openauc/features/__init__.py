"""From embeddings to decisions: scores of features and logits, and the classifier that learns to reject with them.

The scores need numpy alone; :class:`OpenSetClassifier` and its companions need scikit-learn and are imported when they
are asked for.
"""

from typing import Any

from openauc.features.scores.base import Score
from openauc.features.scores.registry import SCORES, make_score

_WITH_SKLEARN = {
    "FitReport": "classifier.report",
    "Monitor": "monitor.monitor",
    "OpenSetClassifier": "classifier.estimator",
    "HeldOutSplit": "classifier.splits",
    "openauc_scorer": "classifier.splits",
}

__all__ = [
    "SCORES",
    "FitReport",
    "HeldOutSplit",
    "Monitor",
    "OpenSetClassifier",
    "Score",
    "make_score",
    "openauc_scorer",
]


def __getattr__(name: str) -> Any:
    if name not in _WITH_SKLEARN:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    try:
        return getattr(import_module(f"{__name__}.{_WITH_SKLEARN[name]}"), name)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in ("sklearn", "scipy", "joblib"):
            raise
        raise ImportError(f"{name} needs scikit-learn: pip install 'openauc[sklearn]'.") from None
