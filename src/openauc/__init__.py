"""openauc: metrics, thresholds and learning for classifiers that must also say "I don't know".

Everything here takes the triple (y_true, y_pred, open_score): y_true is -1 for unknown samples, a higher open_score
means more unknown, and a sample is rejected when its score is above the threshold.
"""

from typing import TYPE_CHECKING, Any

from openauc._validation import UNKNOWN
from openauc.audit import Audit, audit
from openauc.comparison import Comparison, compare
from openauc.evaluation import Evaluation, evaluate
from openauc.intervals import Interval
from openauc.metrics.curve import Curve
from openauc.metrics.decision import (
    closed_set_accuracy,
    confusion_matrix,
    normalized_accuracy,
    open_set_f_score,
    threshold_sweep,
    unknown_fpr,
    unknown_tpr,
    youden_index,
)
from openauc.metrics.operating import Costs, OperatingPoint, choose_threshold, decide, unknown_recall_bound
from openauc.metrics.ranking import (
    ScoreDirectionWarning,
    acc_plus_auc,
    acc_times_auc,
    auroc_score,
    average_precision,
    ccr_at_fpr,
    detection_accuracy,
    error_at_tpr,
    fpr_at_tpr,
    openauc_score,
    oscr_curve,
    roc_curve,
)
from openauc.metrics.registry import METRICS, Metric, standard_metrics
from openauc.metrics.selective import SELECTIVE, augrc, aurc, expected_calibration_error
from openauc.predictions import Predictions
from openauc.scoring import make_scorer

if TYPE_CHECKING:
    from openauc.features import OpenSetClassifier
    from openauc.streaming import Accumulator

__version__ = "1.0.0"

__all__ = ["METRICS", "SELECTIVE", "UNKNOWN", "Metric", "Predictions", "ScoreDirectionWarning", "make_scorer"]
__all__ += ["Accumulator", "Audit", "Comparison", "Curve", "Evaluation", "Interval", "audit", "compare", "evaluate"]
__all__ += ["Costs", "OpenSetClassifier", "OperatingPoint", "choose_threshold", "decide", "unknown_recall_bound"]
__all__ += ["acc_plus_auc", "acc_times_auc", "auroc_score", "average_precision", "ccr_at_fpr", "detection_accuracy"]
__all__ += ["error_at_tpr", "fpr_at_tpr", "openauc_score", "oscr_curve", "roc_curve", "standard_metrics"]
__all__ += ["closed_set_accuracy", "confusion_matrix", "normalized_accuracy", "open_set_f_score", "threshold_sweep"]
__all__ += ["augrc", "aurc", "expected_calibration_error", "unknown_fpr", "unknown_tpr", "youden_index"]


_LAZY = {"Accumulator": "openauc.streaming", "OpenSetClassifier": "openauc.features"}
"""Names that are slow to import, or need scikit-learn, and where they are."""


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LAZY[name]), name)
