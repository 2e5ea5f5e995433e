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
from openauc._validation import UNKNOWN
from openauc.environment import environment
from openauc.features.classifier.conformal import Calibration
from openauc.features.classifier.estimator import OpenSetClassifier
from openauc.features.classifier.evidence import KINDS, EvidenceScale, HeadWithScores
from openauc.features.classifier.explanation import Examples
from openauc.features.classifier.heads import HEADS, EstimatorHead, Head
from openauc.features.classifier.rejector import Average, Learned, Rejector
from openauc.features.classifier.report import FitReport, Tried
from openauc.features.classifier.scaling import Scaling
from openauc.features.classifier.tables import MODEL, OLD_MODEL, OLD_TABLE, TableSpec, is_model
from openauc.features.scores.registry import SCORES
from openauc.intervals import Interval
from openauc.metrics.operating import Costs

FORMAT = "openauc.OpenSetClassifier"
VERSION = 3  # version of the format. Version 2 had two files; version 1 also had one scaling factor for all features
OLD_ARRAYS = ("model.next.safetensors", "model.safetensors")
DTYPES = {"float32": np.dtype(np.float32), "float64": np.dtype(np.float64)}
REJECTOR_KINDS: dict[str, type[Rejector]] = {"average": Average, "learned": Learned}
RECORDS = (Examples, HeadWithScores, Scaling, EvidenceScale, Calibration, FitReport, Tried, Interval, TableSpec, Costs)
LONGEST = 200  # characters of the description of a parameter that JSON cannot hold
MOST_BYTES = 2**28  # largest size of the array of class labels

Arrays = dict[str, NDArray[Any]]


def save(classifier: OpenSetClassifier, folder: PathLike) -> None:
    """Write a fitted classifier; a model that is in the folder already is replaced.

    The folder is new, is empty, or holds a model. A head of scikit-learn is written as arrays if it is linear, alone or
    in a pipeline after scalers and PCA, and then agrees to rounding. The estimator itself, and a ``random_state`` that
    is not a number, are only described and not brought back. Other parts that are not arrays (your own function as
    rejector, trees as head) are refused; ``joblib.dump`` saves a classifier with any of them.
    """
    check_is_fitted(classifier)
    arrays: Arrays = {}
    about = {"version": VERSION, "environment": environment(), "state": _state(classifier, arrays)}
    content = sealed(as_safetensors(arrays, {"format": FORMAT, "model": json.dumps(about)}))
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

    A model that is incomplete, damaged, or written by a newer version raises ValueError.
    """
    place = Path(folder)
    if not place.is_dir():
        kind = "is a file; a model is a folder" if place.exists() else "does not exist"
        raise ValueError(f"cannot load a model from {place}: it {kind}.")
    if not is_model(place):
        raise ValueError(f"{place} is not a model: it has no {MODEL}. Name a folder that save() or `openauc fit` made.")
    path = place / MODEL if (place / MODEL).is_file() else place / OLD_MODEL
    try:
        classifier = _read_file(path) if path.name == MODEL else _read_old(place)
        rows = np.full(len(classifier.calibration_scores_), UNKNOWN)
        classifier.__dict__.setdefault("calibration_later_", rows)  # older files have none
        _try_out(classifier)
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
    fitted = classifier.head_with_scores_
    head: Head = fitted.head.as_linear() if isinstance(fitted.head, EstimatorHead) else fitted.head
    for name, score in fitted.scores.items():
        _class_name(score, f"rejector {name!r}")
    return HeadWithScores(head, fitted.scores, fitted.scaling)


def _classes() -> dict[str, type[Any]]:
    """Classes of the parts of a model, by name; scores may have been added to ``SCORES``."""
    kinds: dict[str, Mapping[str, type[Any]]] = {
        "head": HEADS,
        "score": {**KINDS, **SCORES},
        "rejector": REJECTOR_KINDS,
    }
    named = {f"{part} {kind}": cls for part, classes in kinds.items() for kind, cls in classes.items()}
    return named | {cls.__name__: cls for cls in RECORDS}


def _class_name(part: object, what: str) -> str:
    for name, cls in _classes().items():
        if type(part) is cls:
            return name
    own = f"the {what} is your own ({type(part).__name__}), and a file cannot hold its code"
    raise ValueError(f"{own}; fit with one of ours, by its name.")


def _state(classifier: OpenSetClassifier, arrays: Arrays) -> dict[str, Any]:
    """JSON of all attributes of a classifier; numbers of arrays are put into ``arrays``."""
    state = vars(classifier) | {"head_with_scores_": portable_head(classifier)}
    if not isinstance(classifier.rejector, str):
        (score,) = classifier.head_with_scores_.scores.values()
        state["rejector"] = _class_name(score, "rejector").removeprefix("score ")
    found = {}
    for name, value in state.items():
        try:
            found[name] = encode(value, arrays, name)
        except TypeError as error:
            if name.endswith("_"):
                raise ValueError(str(error)) from None
            text = " ".join(repr(value).split())
            found[name] = {"described": text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."}
    return found


def encode(value: Any, arrays: Arrays | None = None, place: str = "") -> Any:
    """JSON of a value; a type that JSON lacks is an object with one key that names the type.

    Arrays of numbers are put into ``arrays``, under names that begin with ``place``.

    >>> encode({"a": (1, float("inf"))})
    {'mapping': [['a', {'tuple': [1, {'float': 'inf'}]}]]}
    >>> decode(encode({"a": (1, float("inf"))}))
    {'a': (1, inf)}
    """
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf" and arrays is not None:
        # In another layout, products may differ in the last bit.
        by_columns = value.flags.f_contiguous and not value.flags.c_contiguous
        arrays[place] = value.T if by_columns else value
        return {"array_by_columns" if by_columns else "array": place}
    if isinstance(value, np.ndarray):
        return {"labels": [value.dtype.str, value.tolist()]}
    if isinstance(value, np.dtype):
        return {"dtype": value.name}
    if isinstance(value, np.bool_ | np.integer | np.floating):
        return {"numpy": [value.dtype.name, encode(value.item())]}
    if isinstance(value, float) and not np.isfinite(value):
        return {"float": str(value)}
    if isinstance(value, str):
        return str(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    if type(value) in (list, tuple):
        items = [encode(item, arrays, f"{place}.{i}") for i, item in enumerate(value)]
        return items if isinstance(value, list) else {"tuple": items}
    if isinstance(value, Mapping):
        return {"mapping": [[encode(key), encode(item, arrays, f"{place}.{key}")] for key, item in value.items()]}
    if type(value) in _classes().values():
        fields = value._asdict() if hasattr(value, "_asdict") else vars(value)
        state = {name: encode(part, arrays, f"{place}.{name}") for name, part in fields.items()}
        return {"object": [_class_name(value, place), state]}
    raise TypeError(f"{place or 'it'} is a {type(value).__name__}, which a file cannot hold; keep arrays and numbers.")


def decode(value: Any, arrays: Arrays | None = None) -> Any:
    """What :func:`encode` was given."""
    if isinstance(value, list):
        return [decode(item, arrays) for item in value]
    if not isinstance(value, dict):
        return value
    ((kind, inside),) = value.items()
    match kind:
        case "array" | "array_by_columns":
            array = (arrays or {})[inside]
            return array if kind == "array" else array.T
        case "labels":
            return _labels(*inside)
        case "dtype":
            return DTYPES[inside]
        case "numpy":
            return np.dtype(inside[0]).type(decode(inside[1]))
        case "float":
            return float(inside)
        case "tuple":
            return tuple(decode(inside, arrays))
        case "mapping":
            return {decode(key): decode(item, arrays) for key, item in inside}
        case "object":
            return _object(inside[0], {name: decode(item, arrays) for name, item in inside[1].items()})
    raise ValueError(f"it holds a {kind!r}")


def _object(name: str, fields: Mapping[str, Any]) -> Any:
    cls: Any = _classes().get(name)
    if cls is None:
        raise ValueError(
            f"it has a {name!r}, which this openauc does not know; upgrade, or add it as it was when the model was "
            "saved"
        )
    if issubclass(cls, tuple):
        return cls(**fields)
    part: Any = object.__new__(cls)
    part.__dict__.update(fields)
    return part


def _labels(dtype: str, labels: list[Any]) -> NDArray[Any]:
    """Names or numbers, in the type they had."""
    kind = np.dtype(dtype)
    same_type = all(isinstance(label, str if kind.kind in "UO" else int | float) for label in labels)
    if kind.kind not in "UOiufb" or not same_type or not 0 <= kind.itemsize * len(labels) <= MOST_BYTES:
        raise ValueError("it has no usable list of labels")
    return np.array(labels, kind)


def _read_file(path: Path) -> OpenSetClassifier:
    """The model in a file, which is opened once, so that it cannot be replaced in between."""
    metadata, arrays = _read_arrays(path)
    if metadata.get("format") != FORMAT:
        raise ValueError(f"{path} does not hold a model of openauc; name a folder that save() wrote.")
    about = parse_json(metadata["model"])
    if about["version"] > VERSION:
        raise ValueError(
            f"{path} was written by a newer openauc (format {about['version']}, this one reads up to {VERSION}); "
            "upgrade."
        )
    classifier = OpenSetClassifier()
    classifier.__dict__.update({name: decode(value, arrays) for name, value in _saved(about["state"]).items()})
    return classifier


def _saved(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values without the parameters that could only be described; these get the default."""
    return {name: value for name, value in values.items() if not (isinstance(value, dict) and "described" in value)}


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


def _read_old(place: Path) -> OpenSetClassifier:
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
    if about["version"] == 1:
        width, values = about["features"]["width"], about["rejector"]["values"]
        arrays |= {"scaling.centre": np.zeros(width), "scaling.factor": np.full(width, about["features"]["scale"])}
        arrays |= {"evidence.columns": np.empty(0, np.int64), "evidence.usual": np.empty((1, 0))}
        if "average_weight" in values:
            values["base_weight"], values["base_scale"] = values.pop("average_weight"), values.pop("average_scale")
            values["base"] = encode(("max_logit", "knn", "relative_mahalanobis_pp"))
    classifier = OpenSetClassifier()
    for name, value in _saved(about["parameters"]).items():
        is_costs = isinstance(value, dict) and "costs" in value
        classifier.set_params(**{name: Costs(**decode(value["costs"])) if is_costs else decode(value)})
    classifier.__dict__.update(_old_attributes(about, arrays))
    table = place / OLD_TABLE
    try:
        values = parse_json(table.read_bytes()) if table.is_file() else {}
        classifier.table_spec_ = TableSpec.from_dict(values, classifier.n_features_in_)
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{table} does not say what the model was fitted on ({error}); fit it again.") from None
    return classifier


def _old_attributes(about: Mapping[str, Any], arrays: Arrays) -> dict[str, Any]:
    def part(saved: Mapping[str, Any], name: str, prefix: str) -> Any:
        fields = {key: decode(value) for key, value in saved["values"].items()}
        for key, form in saved["arrays"].items():
            array = arrays[f"{prefix}.{key}"]
            fields[key] = array.T if form.get("by_columns") else array
        return _object(name, fields)

    features, calibration = about["features"], about["calibration"]
    scores = {
        one["name"]: part(one, f"score {one['kind']}", f"score.{index}") for index, one in enumerate(about["scores"])
    }
    head = part(about["head"], f"head {about['head']['kind']}", "head")
    scaling = Scaling(arrays["scaling.centre"], arrays["scaling.factor"], features.get("scaling", "embedding"))
    scale = (arrays[f"evidence.{name}"] for name in ("mean", "deviation", "columns", "usual"))
    names = {"feature_names_in_": np.array(features["names"], dtype=object)} if features["names"] else {}
    return names | {
        "classes_": _labels(**about["classes"]),
        "unknown_label_": decode(about["unknown_label"]),
        "n_features_in_": features["width"],
        "dtype_": DTYPES[features["dtype"]],
        "head_with_scores_": HeadWithScores(head, scores, scaling),
        "evidence_scale_": EvidenceScale(*scale),
        "rejector_": part(about["rejector"], f"rejector {about['rejector']['kind']}", "rejector"),
        "report_": FitReport.from_dict(decode(about["report"])),
        "held_out_scores_": arrays["held_out.score"],
        "held_out_kinds_": arrays["held_out.kind"],
        "calibration_scores_": arrays["samples.score"],
        "calibration_classes_": arrays["samples.class"],
        "calibration_kind_": calibration["samples"],
        "calibration_": part(calibration, "Calibration", "calibration"),
        "thresholds_": np.array([float(value) for value in about["thresholds"]]),
        "guarantee_": about["guarantee"],
        "guarantee_details_": about.get("guarantee_details", ""),
    }


def _try_out(classifier: OpenSetClassifier) -> None:
    """Refuse parts that do not fit together, by the answers for some samples and by what is kept for calibration."""
    n_classes, width = len(classifier.classes_), classifier.n_features_in_
    samples = classifier.calibration_classes_
    unknown, texts = classifier.unknown_label_, (classifier.guarantee_, classifier.guarantee_details_)
    whole = [
        len(set(classifier.classes_.tolist())) == n_classes >= 2,
        any(width in np.shape(value) for value in vars(classifier.head_with_scores_.head).values()),
        classifier.thresholds_.shape == (n_classes,) and not np.isnan(classifier.thresholds_).any(),
        classifier.calibration_scores_.shape == samples.shape == classifier.calibration_later_.shape,
        not samples.size or 0 <= samples.min() <= samples.max() < n_classes,
        classifier.held_out_scores_.shape == classifier.held_out_kinds_.shape,
        classifier.calibration_kind_ in ("cross", "split"),
        unknown is None or isinstance(unknown, str | int | float | np.generic),
        all(isinstance(text, str) for text in texts),
        isinstance(classifier.report_, FitReport) and bool(str(classifier.report_)),
        isinstance(classifier.dtype_, np.dtype),
    ]
    if all(whole):
        TableSpec.from_dict(asdict(classifier.table_spec_), width)
        classifier._check_parameters()
        with np.errstate(all="ignore"):
            raw, logits = classifier.head_with_scores_(np.zeros((n_classes, width), classifier.dtype_))
            score = classifier.rejector_(classifier.evidence_scale_(raw, np.arange(n_classes)))
            p_value = classifier.calibration_.p_value(score, np.arange(n_classes))
        whole = [logits.shape == (n_classes, n_classes), score.shape == p_value.shape == (n_classes,)]
    if not all(whole):
        raise ValueError("its parts do not fit together")
