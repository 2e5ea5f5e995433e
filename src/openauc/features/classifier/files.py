"""A fitted OpenSetClassifier as a folder with one safetensors file, whose metadata holds JSON; no pickle.

The file has a checksum of all its content and takes its place in one atomic step, so a reader always finds a whole
model: the old one or the new one. Folders of the formats 1 and 2, which had a JSON file beside the arrays, are read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as from_safetensors
from safetensors.numpy import save as as_safetensors
from sklearn.utils.validation import check_is_fitted

from openauc._files import CHECKSUM, PathLike, atomic_write, parse_json, sealed
from openauc.environment import environment
from openauc.features.classifier.conformal import Calibration
from openauc.features.classifier.estimator import OpenSetClassifier
from openauc.features.classifier.evidence import KINDS, EvidenceScale, HeadWithScores
from openauc.features.classifier.heads import HEADS, EstimatorHead, Head
from openauc.features.classifier.rejector import Average, Learned, Rejector
from openauc.features.classifier.report import FitReport
from openauc.features.classifier.scaling import Scaling
from openauc.features.classifier.tables import MODEL, OLD_MODEL, OLD_TABLE, TableSpec, is_model
from openauc.features.scores.registry import SCORES
from openauc.metrics.operating import Costs

FORMAT = "openauc.OpenSetClassifier"
VERSION = 3
"""Version of the format. Version 2 had two files; version 1 also had one scaling factor for all features."""
OLD_ARRAYS = ("model.next.safetensors", "model.safetensors")
DTYPES = {"float32": np.dtype(np.float32), "float64": np.dtype(np.float64)}
REJECTOR_KINDS: dict[str, type[Rejector]] = {"average": Average, "learned": Learned}
LONGEST = 200
"""Characters of the description of a parameter that JSON cannot hold."""
MOST_BYTES = 2**28
"""Largest size of the array of class labels."""

Arrays = dict[str, NDArray[Any]]


def save(classifier: OpenSetClassifier, folder: PathLike) -> None:
    """Write a fitted classifier; a model that is in the folder already is replaced.

    Parameters
    ----------
    classifier
        A fitted classifier. A head of scikit-learn is written as arrays if it is linear, alone or in a pipeline after
        scalers and PCA, and then agrees to rounding. The estimator itself, and a ``random_state`` that is not a
        number, are only described and not brought back. ``joblib.dump`` saves a classifier with any head.
    folder
        A folder that is new, is empty, or holds a model.

    Raises
    ------
    ValueError
        If the classifier has parts that are not arrays (your own function as rejector, trees as head), or the folder
        holds something else.
    """
    check_is_fitted(classifier)
    arrays: Arrays = {}
    about = json.dumps(describe(classifier, arrays))
    content = sealed(as_safetensors(arrays, {"format": FORMAT, "model": about}))
    place = Path(folder)
    if place.exists() and not place.is_dir():
        raise ValueError(f"cannot save to {place}: it is a file; a model is a folder.")
    place.mkdir(parents=True, exist_ok=True)
    old = _is_old_model(place)
    holds = any(not entry.name.startswith(".") for entry in place.iterdir())
    if holds and not old and not (place / MODEL).is_file():
        raise ValueError(f"cannot save to {place}: it holds files but no model; name a new or empty folder.")
    with atomic_write(place / MODEL, follow=False) as file:
        file.write(content)
    for name in (OLD_MODEL, *OLD_ARRAYS, OLD_TABLE) if old else ():
        (place / name).unlink(missing_ok=True)


def load(folder: PathLike) -> OpenSetClassifier:
    """Read what :func:`save` wrote; the model gives the same answers to the last bit.

    Raises
    ------
    ValueError
        If there is no model, or it is incomplete, damaged, or written by a newer version.
    """
    place = Path(folder)
    if not place.is_dir():
        kind = "is a file; a model is a folder" if place.exists() else "does not exist"
        raise ValueError(f"cannot load a model from {place}: it {kind}.")
    if not is_model(place):
        raise ValueError(f"{place} is not a model: it has no {MODEL}. Name a folder that save() or `openauc fit` made.")
    path = place / MODEL if (place / MODEL).is_file() else place / OLD_MODEL
    try:
        about, arrays = _read_file(path) if path.name == MODEL else _read_old(place)
        classifier = _assemble(about, arrays)
    except (KeyError, TypeError, AttributeError, IndexError, ValueError, OverflowError, RecursionError) as error:
        if str(place) in str(error):
            raise  # it is a sentence already
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise ValueError(
            f"{path} is not as this version of openauc writes it ({reason}); save the model again."
        ) from None
    return classifier


def portable_head(classifier: OpenSetClassifier) -> HeadWithScores:
    """Head and scores whose state is arrays and numbers; your own, or a head that is not linear, are refused."""
    fitted = classifier.observer_
    head: Head = fitted.head.as_linear() if isinstance(fitted.head, EstimatorHead) else fitted.head
    for name, score in fitted.scores.items():
        _kind_of(score, "score", f"rejector {name!r}")
    return HeadWithScores(head, fitted.scores, fitted.scaling)


def _kinds(part: str) -> Mapping[str, type[Any]]:
    """Classes of a part of a model, by name; scores may have been added to ``SCORES``."""
    if part == "score":
        return {**KINDS, **SCORES}
    return HEADS if part == "head" else REJECTOR_KINDS if part == "rejector" else {"sorted": Calibration}


def _kind_of(state: object, part: str, name: str = "") -> str:
    for kind, cls in _kinds(part).items():
        if type(state) is cls:
            return kind
    raise ValueError(
        f"the {name or part} is your own ({type(state).__name__}), and a file cannot hold its code; fit with one of "
        "ours, by its name."
    )


# Writing


def describe(classifier: OpenSetClassifier, arrays: Arrays) -> dict[str, Any]:
    """The JSON of a classifier; its arrays are put into ``arrays``."""
    head = portable_head(classifier)
    arrays.update(
        {
            "evidence.mean": classifier.evidence_scale_.mean,
            "evidence.deviation": classifier.evidence_scale_.deviation,
            "evidence.columns": classifier.evidence_scale_.columns,
            "evidence.usual": classifier.evidence_scale_.usual,
            "scaling.centre": head.scaling.centre,
            "scaling.factor": head.scaling.factor,
            "samples.score": classifier.calibration_scores_,
            "samples.class": classifier.calibration_classes_,
            "held_out.score": classifier.held_out_scores_,
            "held_out.kind": classifier.held_out_kinds_,
        }
    )
    by_columns: list[str] = []

    def take_apart(state: object, part: str, prefix: str = "") -> dict[str, Any]:
        """Kind and numbers of a part; its arrays go elsewhere."""
        values = {}
        for name, value in vars(state).items():
            place = f"{prefix or part}.{name}"
            if not isinstance(value, np.ndarray):
                values[name] = _encode_state(state, name, value)
            elif value.flags.f_contiguous and not value.flags.c_contiguous:
                by_columns.append(place)  # in another layout, products may differ in the last bit
                arrays[place] = value.T
            else:
                arrays[place] = value
        return {"kind": _kind_of(state, part), "values": values}

    versions = environment()
    return {
        "version": VERSION,
        "openauc": versions["openauc"],
        "classes": {"dtype": classifier.classes_.dtype.str, "labels": classifier.classes_.tolist()},
        "unknown_label": encode(classifier.unknown_label_),
        "features": {
            "width": int(classifier.n_features_in_),
            "dtype": classifier.dtype_.name,
            "scaling": head.scaling.kind,
            "names": [str(name) for name in getattr(classifier, "feature_names_in_", ())],
        },
        "table": asdict(classifier.table_spec_),
        "head": take_apart(head.head, "head"),
        "scores": [
            {"name": name} | take_apart(score, "score", f"score.{index}")
            for index, (name, score) in enumerate(head.scores.items())
        ],
        "rejector": take_apart(classifier.rejector_, "rejector"),
        "thresholds": [encode_float(value) for value in classifier.thresholds_.tolist()],
        "guarantee": classifier.guarantee_,
        "guarantee_details": classifier.guarantee_details_,
        "calibration": {"samples": classifier.calibration_kind_} | take_apart(classifier.calibration_, "calibration"),
        "parameters": {name: _parameter(name, value, head) for name, value in classifier.get_params(False).items()},
        "report": encode(classifier.report_.to_dict()),
        "environment": versions,
        "by_columns": by_columns,
    }


def _encode_state(part: object, name: str, value: Any) -> Any:
    try:
        return encode(value)
    except TypeError:
        raise ValueError(
            f"{type(part).__name__}.{name} is a {type(value).__name__}, which a file cannot hold; keep arrays and "
            "numbers."
        ) from None


def _parameter(name: str, value: Any, head: HeadWithScores) -> Any:
    if name == "rejector" and not isinstance(value, str):
        (value,) = (_kind_of(score, "score") for score in head.scores.values())
    try:
        return encode(value)
    except TypeError:
        text = " ".join(repr(value).split())
        return {"described": text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."}


def encode_float(value: float) -> float | str:
    """A number JSON can hold, or the string that ``float`` reads.

    >>> encode_float(float("inf")), encode_float(0.5)
    ('inf', 0.5)
    """
    return value if np.isfinite(value) else str(value)


def encode(value: Any) -> Any:
    """JSON of a value; a type that JSON lacks is an object with one key that names the type.

    >>> encode({"a": (1, float("inf"))})
    {'mapping': [['a', {'tuple': [1, {'float': 'inf'}]}]]}
    >>> decode(encode({"a": (1, float("inf"))}))
    {'a': (1, inf)}
    """
    if isinstance(value, np.bool_ | np.integer | np.floating):
        return {"numpy": [value.dtype.name, encode(value.item())]}
    if isinstance(value, float) and not np.isfinite(value):
        return {"float": str(value)}
    if isinstance(value, str):
        return str(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, list):
        return [encode(item) for item in value]
    if isinstance(value, tuple):
        return {"tuple": [encode(item) for item in value]}
    if isinstance(value, Costs):
        return {"costs": encode(asdict(value))}
    if isinstance(value, Mapping):
        return {"mapping": [[encode(key), encode(item)] for key, item in value.items()]}
    raise TypeError(f"JSON has no {type(value).__name__}")


def decode(value: Any) -> Any:
    """What :func:`encode` was given."""
    if isinstance(value, list):
        return [decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    ((kind, inside),) = value.items()
    match kind:
        case "numpy":
            return np.dtype(inside[0]).type(decode(inside[1]))
        case "float":
            return float(inside)
        case "tuple":
            return tuple(decode(inside))
        case "costs":
            return Costs(**decode(inside))
        case "mapping":
            return {decode(key): decode(item) for key, item in inside}
    raise ValueError(f"it holds a {kind!r}")


# Reading


def _read_file(path: Path) -> tuple[dict[str, Any], Arrays]:
    """The JSON and the arrays of a model; the file is opened once, so it cannot be replaced in between."""
    metadata, arrays = _read_arrays(path)
    if metadata.get("format") != FORMAT:
        raise ValueError(f"{path} does not hold a model of openauc; name a folder that save() wrote.")
    about = parse_json(metadata["model"])
    if about["version"] > VERSION:
        raise ValueError(
            f"{path} was written by a newer openauc (format {about['version']}, this one reads up to {VERSION}); "
            "upgrade."
        )
    return about, arrays


def _read_arrays(path: Path) -> tuple[dict[str, str], Arrays]:
    """Metadata and arrays of a safetensors file that :func:`~openauc._files.sealed` made."""
    content = path.read_bytes()
    try:
        intact = sealed(content) == content
        metadata = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"]
        arrays: Arrays = from_safetensors(content) if intact else {}
    except (SafetensorError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path} cannot be read as safetensors ({error}); save the model again.") from None
    if not intact:
        raise ValueError(f"{path} is damaged or was edited: it does not match its checksum; save the model again.")
    return metadata, arrays


def _is_old_model(place: Path) -> bool:
    try:
        return bool(parse_json((place / OLD_MODEL).read_bytes())["format"] == FORMAT)
    except (OSError, ValueError, TypeError, KeyError):
        return False


def _read_old(place: Path) -> tuple[dict[str, Any], Arrays]:
    """The JSON and the arrays of a folder of format 1 or 2, as format 3 has them."""
    path = place / OLD_MODEL
    if not _is_old_model(place):
        raise ValueError(f"{path} is damaged, or does not describe a model of openauc; save the model again.")
    about = parse_json(path.read_bytes())
    digest = about.pop("sha256", None)
    if digest != hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest():
        raise ValueError(f"{path} is damaged or was edited: it does not match its checksum; save the model again.")
    # After a crash of the old openauc, the arrays may still have the first of the two names.
    for name in OLD_ARRAYS:
        if (place / name).is_file():
            metadata, arrays = _read_arrays(place / name)
            if metadata.get(CHECKSUM) == about["checksum"]:
                break
    else:
        raise ValueError(f"{place} lacks the arrays that {OLD_MODEL} belongs to; save the model again.")
    parts = {"head": about["head"], "rejector": about["rejector"], "calibration": about["calibration"]}
    parts |= {f"score.{index}": saved for index, saved in enumerate(about["scores"])}
    about["by_columns"] = [
        f"{prefix}.{name}"
        for prefix, saved in parts.items()
        for name, form in saved["arrays"].items()
        if form.get("by_columns")
    ]
    if about["version"] == 1:
        width, values = about["features"]["width"], about["rejector"]["values"]
        arrays |= {"scaling.centre": np.zeros(width), "scaling.factor": np.full(width, about["features"]["scale"])}
        arrays |= {"evidence.columns": np.empty(0, np.int64), "evidence.usual": np.empty((1, 0))}
        if "average_weight" in values:
            values["base_weight"], values["base_scale"] = values.pop("average_weight"), values.pop("average_scale")
            values["base"] = encode(("max_logit", "knn", "relative_mahalanobis_pp"))
    table = place / OLD_TABLE
    if table.is_file():
        try:
            about["table"] = asdict(TableSpec.from_dict(parse_json(table.read_bytes()), about["features"]["width"]))
        except (ValueError, TypeError, AttributeError) as error:
            raise ValueError(f"{table} does not say what the model was fitted on ({error}); fit it again.") from None
    return about, arrays


def _assemble(about: Mapping[str, Any], arrays: Arrays) -> OpenSetClassifier:
    default = OpenSetClassifier().get_params()
    classifier = OpenSetClassifier(
        **{
            name: default[name] if isinstance(value, dict) and "described" in value else decode(value)
            for name, value in about["parameters"].items()
        }
    )
    by_columns = set(about["by_columns"])

    def put_together(saved: Mapping[str, Any], part: str, prefix: str = "") -> Any:
        """A part with all its state."""
        if saved["kind"] not in _kinds(part):
            raise ValueError(
                f"it has a {part} {saved['kind']!r}, which this openauc does not know; upgrade, or add it as it was "
                "when the model was saved"
            )
        cls: Any = _kinds(part)[saved["kind"]]
        state: Any = object.__new__(cls)
        vars(state).update({name: decode(value) for name, value in saved["values"].items()})
        start = f"{prefix or part}."
        found = {name: array for name, array in arrays.items() if name.startswith(start)}
        vars(state).update({name[len(start) :]: a.T if name in by_columns else a for name, a in found.items()})
        return state

    features, calibration = about["features"], about["calibration"]
    classifier.classes_ = _labels(about["classes"])
    classifier.unknown_label_ = decode(about["unknown_label"])
    classifier.n_features_in_, classifier.dtype_ = features["width"], DTYPES[features["dtype"]]
    if features["names"]:
        classifier.feature_names_in_ = np.array(features["names"], dtype=object)
    scaling = Scaling(arrays["scaling.centre"], arrays["scaling.factor"], features.get("scaling", "embedding"))
    scores = {one["name"]: put_together(one, "score", f"score.{i}") for i, one in enumerate(about["scores"])}
    classifier.observer_ = HeadWithScores(put_together(about["head"], "head"), scores, scaling)
    classifier.evidence_scale_ = EvidenceScale(
        *(arrays[f"evidence.{name}"] for name in ("mean", "deviation", "columns", "usual"))
    )
    classifier.rejector_ = put_together(about["rejector"], "rejector")
    classifier.report_ = FitReport.from_dict(decode(about["report"]))
    classifier.held_out_scores_, classifier.held_out_kinds_ = arrays["held_out.score"], arrays["held_out.kind"]
    classifier.calibration_scores_, classifier.calibration_classes_ = arrays["samples.score"], arrays["samples.class"]
    classifier.calibration_kind_ = calibration["samples"]
    classifier.calibration_ = put_together(calibration, "calibration")
    classifier.thresholds_ = np.array([float(value) for value in about["thresholds"]])
    classifier.guarantee_, classifier.guarantee_details_ = about["guarantee"], about.get("guarantee_details", "")
    classifier.table_spec_ = TableSpec.from_dict(about.get("table", {}), classifier.n_features_in_)
    _try_out(classifier)
    return classifier


def _labels(saved: Mapping[str, Any]) -> NDArray[Any]:
    """Labels of the classes, in the type they had."""
    dtype, labels = np.dtype(saved["dtype"]), saved["labels"]
    same_type = all(isinstance(label, str if dtype.kind in "UO" else int | float) for label in labels)
    distinct = len(set(labels)) == len(labels) >= 2
    if dtype.kind not in "UOiufb" or not same_type or not distinct or dtype.itemsize * len(labels) > MOST_BYTES:
        raise ValueError("it has no usable list of classes")
    return np.array(labels, dtype)


def _try_out(classifier: OpenSetClassifier) -> None:
    """Refuse parts that do not fit together, by the answer for one sample and by what is kept for calibration."""
    n_classes, width = len(classifier.classes_), classifier.n_features_in_
    samples = classifier.calibration_classes_
    whole = [
        any(width in np.shape(value) for value in vars(classifier.observer_.head).values()),
        classifier.thresholds_.shape == (n_classes,) and not np.isnan(classifier.thresholds_).any(),
        classifier.calibration_scores_.shape == samples.shape,
        not samples.size or 0 <= samples.min() <= samples.max() < n_classes,
        classifier.held_out_scores_.shape == classifier.held_out_kinds_.shape,
        classifier.calibration_kind_ in ("cross", "split"),
        classifier.unknown_label_ is None or isinstance(classifier.unknown_label_, str | int | float | np.generic),
        isinstance(classifier.guarantee_, str) and isinstance(classifier.guarantee_details_, str),
        bool(str(classifier.report_)),
    ]
    if all(whole):
        classifier._check_parameters()
        with np.errstate(all="ignore"):
            score, logits = classifier._observe(np.zeros((1, width), classifier.dtype_))
            p_value = classifier.calibration_.p_value(score, logits.argmax(1))
        whole = [logits.shape == (1, n_classes), score.shape == p_value.shape == (1,)]
    if not all(whole):
        raise ValueError("its parts do not fit together")
