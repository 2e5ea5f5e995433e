"""A fitted OpenSetClassifier as one ONNX network: embeddings in; label, class, score and p-value out.

Heads, scores, rejectors and p-values use the array API. Called with an array of ndonnx, which records the operations on
it, they build the network.
"""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from openauc import __version__
from openauc._files import PathLike, atomic_write
from openauc._validation import check_choice, import_extra
from openauc.features.classifier.estimator import OpenSetClassifier
from openauc.features.classifier.files import DTYPES, portable_head

if TYPE_CHECKING:
    from onnx import ModelProto

MOST_BYTES = 2**31 - 1  # limit of a protobuf message, and so of an ONNX file


def export(classifier: OpenSetClassifier, path: PathLike, dtype: str | None = None) -> None:
    """Write a fitted classifier as an ONNX file, all or nothing.

    The input ``embedding`` (N, d) has the type ``dtype``, "float32" or "float64"; None is the type the classifier was
    fitted on. The network always computes in that type, as ``predict`` does. The outputs, (N,) each, are ``label``, the
    name of a class or the unknown label; ``class``, the class whether rejected or not; ``score``, the open-set score;
    and ``p_value``. Labels are strings, or int64 if classes are numbers; None as unknown label becomes "unknown". An
    embedding that is not finite is unknown, with p-value 0. Classes, unknown label, thresholds, guarantee and version
    are also in the metadata, as JSON. Custom parts, and estimators as head that are not linear, are refused.
    """
    check_is_fitted(classifier)
    if dtype is not None:
        check_choice("dtype", dtype, DTYPES)
    model = build(classifier, dtype)
    if model.ByteSize() > MOST_BYTES:
        size = f"the network takes {model.ByteSize() / 1e9:.1f} GB, and ONNX allows 2"
        raise ValueError(f"cannot write {path}: {size}; use rejector='max_logit', or fewer features.")
    with atomic_write(path) as file:
        file.write(model.SerializeToString())


def build(classifier: OpenSetClassifier, dtype: str | None = None) -> ModelProto:
    ndx = import_extra("ndonnx", "export_onnx", "'openauc[onnx]'")
    from onnx.helper import set_model_props

    classes, unknown = _labels(classifier)
    fitted = classifier.dtype_.name
    embedding = ndx.argument(shape=("N", classifier.n_features_in_), dtype=getattr(ndx, dtype or fitted))
    traced = copy.copy(classifier)
    traced.head_with_scores_ = portable_head(classifier)
    score, logits = traced._score(ndx.astype(embedding, getattr(ndx, fitted)))
    predicted = ndx.argmax(logits, axis=1)
    answer = ndx.take(ndx.asarray(classes), predicted, axis=0)
    threshold = ndx.take(ndx.asarray(classifier.thresholds_), predicted, axis=0)
    p_value = classifier.calibration_.p_value(score, predicted)
    outputs = {
        # NaN is not below any threshold, so it is unknown.
        "label": ndx.where(score <= threshold, answer, ndx.asarray(unknown)),
        "class": answer,
        "score": score,
        "p_value": p_value,
    }
    model: ModelProto = ndx.build({"embedding": embedding}, outputs)
    for output in model.graph.output:
        output.type.tensor_type.shape.dim[0].dim_param = "N"
    model.producer_name, model.producer_version = "openauc", __version__
    model.graph.name = "OpenSetClassifier"
    model.doc_string = f"Open-set classifier of embeddings; guarantee: {classifier.guarantee_}"
    metadata = {
        "openauc_version": __version__,
        "classes": json.dumps(classes.tolist()),
        "unknown_label": json.dumps(unknown.tolist()),
        "thresholds": json.dumps([v if np.isfinite(v) else str(v) for v in classifier.thresholds_.tolist()]),
        "guarantee": classifier.guarantee_,
    }
    set_model_props(model, metadata)
    return model


def _labels(classifier: OpenSetClassifier) -> tuple[NDArray[Any], NDArray[Any]]:
    """Labels of the classes, and the unknown label, as arrays of strings or of int64."""
    classes, unknown = classifier.classes_, classifier.unknown_label_
    if classes.dtype.kind in "UO":
        unknown = "unknown" if unknown is None else str(unknown)
        if unknown in classes.tolist():
            taken = f"a class is named {unknown!r}, which in ONNX is the answer for unknown samples"
            raise ValueError(f"{taken}; fit with another unknown_label.")
        return classes.astype(str), np.array(unknown)
    whole = classes.astype(np.int64)
    if unknown is None or not np.isfinite(unknown) or int(unknown) != unknown or (whole != classes).any():
        said = f"the classes are numbers and unknown_label is {unknown!r}"
        raise ValueError(f"{said}; ONNX needs integers, so fit with unknown_label=-1.")
    return whole, np.array(int(unknown), np.int64)
