"""A fitted OpenSetClassifier as a folder: ``model.json`` to read, ``model.safetensors`` with its arrays; no pickle.

Both files carry a checksum of their own, and the JSON names that of the arrays it belongs to. A model is replaced in
three steps, each of them atomic: the new arrays under another name, the JSON, the arrays under their own name. The JSON
decides which arrays count, so after a crash at any point the folder holds the old model or the new one, whole.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file
from safetensors.numpy import save as as_safetensors
from sklearn.utils.validation import check_is_fitted

from openauc._files import CHECKSUM, PathLike, atomic_write, parse_json, sealed, sealed_metadata, write_text
from openauc.environment import environment
from openauc.features.classifier.conformal import Calibration
from openauc.features.classifier.estimator import OpenSetClassifier
from openauc.features.classifier.evidence import KINDS, HeadWithScores, Scale
from openauc.features.classifier.heads import HEADS, EstimatorHead, Head
from openauc.features.classifier.rejector import Average, Learned, Rejector
from openauc.features.classifier.report import FitReport
from openauc.features.classifier.scaling import Scaling
from openauc.features.scores.base import Score
from openauc.features.scores.registry import SCORES
from openauc.metrics.operating import Costs

FORMAT = "openauc.OpenSetClassifier"
VERSION = 2
"""Of the format; a reader refuses what is newer. Version 1 had one factor for all features, and the average as base."""
JSON, ARRAYS, NEXT = "model.json", "model.safetensors", "model.next.safetensors"
DTYPES = {"float32": np.dtype(np.float32), "float64": np.dtype(np.float64)}
REJECTORS: dict[str, type[Rejector]] = {"average": Average, "learned": Learned}
LONGEST = 200
"""Characters of the description of a parameter that JSON cannot hold."""
MOST_BYTES = 2**28
"""Of the labels of all classes."""

Arrays = dict[str, NDArray[Any]]
Part = TypeVar("Part")


def save(classifier: OpenSetClassifier, folder: PathLike) -> None:
    """Write a fitted classifier, all or nothing; a model that is in the folder already is replaced.

    Parameters
    ----------
    classifier
        Fitted. A head of scikit-learn is written as arrays if it is linear, alone or in a pipeline after scalers and
        PCA, and then agrees to rounding. The estimator itself, and a ``random_state`` that is not a number, are
        described in the JSON and not brought back. ``joblib.dump`` saves a classifier with any head.
    folder
        New, empty, or with a model.

    Raises
    ------
    ValueError
        If the classifier has parts that are no arrays (a function of one's own as rejector, trees as head), or the
        folder holds something else.
    """
    check_is_fitted(classifier)
    arrays: Arrays = {}
    about = describe(classifier, arrays)
    content = sealed(as_safetensors(arrays))
    about["checksum"] = _header(content)["__metadata__"][CHECKSUM]
    place = Path(folder)
    _prepare(place)
    _write(place, content, _sealed_json(about))


def load(folder: PathLike) -> OpenSetClassifier:
    """Read what :func:`save` wrote; what the model answers is the same to the last bit.

    Raises
    ------
    ValueError
        If there is no model, or it is incomplete, damaged, or written by a newer version.
    """
    place = Path(folder)
    text = _read_text(place)
    try:
        return _assemble(place, _parse(place / JSON, text))
    except ValueError:
        if _read_text(place) != text:  # it was replaced while it was read
            return load(folder)
        raise


def portable_observer(classifier: OpenSetClassifier) -> HeadWithScores:
    """Head and scores whose state is arrays and numbers.

    Raises
    ------
    ValueError
        If a head or score is one's own, or the head is an estimator that is not linear.
    """
    head: Head = classifier.observer_.head
    scores = classifier.observer_.scores
    if isinstance(head, EstimatorHead):
        head = head.as_linear()
    _kind_of(head, HEADS, "head")
    for name, score in scores.items():
        _kind_of(score, _score_kinds(), f"rejector {name!r}")
    _kind_of(classifier.rejector_, REJECTORS, "rejector")
    return HeadWithScores(head, scores, classifier.observer_.scaling)


def _kind_of(part: object, kinds: Mapping[str, type[Any]], what: str) -> str:
    for kind, cls in kinds.items():
        if type(part) is cls:
            return kind
    raise ValueError(
        f"the {what} is one of your own ({type(part).__name__}), whose code no file can hold; fit with one of ours, by "
        "its name."
    )


def _score_kinds() -> dict[str, type[Score]]:
    """Scores by name, with those that were added to ``SCORES`` since."""
    return {**KINDS, **SCORES}


# Writing


def describe(classifier: OpenSetClassifier, arrays: Arrays) -> dict[str, Any]:
    """The JSON of a classifier; what does not belong there is put into ``arrays``."""
    observer = portable_observer(classifier)
    rejector, calibration = classifier.rejector_, classifier.calibration_
    kept: Arrays = {
        "evidence.mean": classifier.evidence_scale_.mean,
        "evidence.deviation": classifier.evidence_scale_.deviation,
        "evidence.columns": classifier.evidence_scale_.columns,
        "evidence.usual": classifier.evidence_scale_.usual,
        "scaling.centre": observer.scaling.centre,
        "scaling.factor": observer.scaling.factor,
        "samples.score": classifier.calibration_scores_,
        "samples.class": classifier.calibration_classes_,
        "held_out.score": classifier.held_out_scores_,
        "held_out.kind": classifier.held_out_kinds_,
    }
    arrays.update(kept)
    versions = environment()
    return {
        "format": FORMAT,
        "version": VERSION,
        "openauc": versions["openauc"],
        "classes": {"dtype": classifier.classes_.dtype.str, "labels": classifier.classes_.tolist()},
        "unknown_label": encode(classifier.unknown_label_),
        "features": {
            "width": int(classifier.n_features_in_),
            "dtype": classifier.dtype_.name,
            "scaling": observer.scaling.kind,
            "names": [str(name) for name in getattr(classifier, "feature_names_in_", ())],
        },
        "head": _take_apart(observer.head, HEADS, "head", arrays),
        "scores": [
            {"name": name} | _take_apart(score, _score_kinds(), f"score.{index}", arrays)
            for index, (name, score) in enumerate(observer.scores.items())
        ],
        "rejector": _take_apart(rejector, REJECTORS, "rejector", arrays),
        "thresholds": [encode_float(value) for value in classifier.thresholds_.tolist()],
        "guarantee": classifier.guarantee_,
        "guarantee_details": classifier.guarantee_details_,
        "calibration": {"samples": classifier.calibration_kind_}
        | _take_apart(calibration, {"sorted": Calibration}, "calibration", arrays),
        "kept": {name: _form(array) for name, array in kept.items()},
        "parameters": {name: _parameter(name, value, observer) for name, value in _parameters(classifier).items()},
        "report": encode(classifier.report_.to_dict()),
        "environment": versions,
    }


def _parameters(classifier: OpenSetClassifier) -> dict[str, Any]:
    found: dict[str, Any] = classifier.get_params(deep=False)
    return found


def _parameter(name: str, value: Any, observer: HeadWithScores) -> Any:
    if name == "rejector" and not isinstance(value, str):
        (value,) = (_kind_of(score, _score_kinds(), name) for score in observer.scores.values())
    try:
        return encode(value)
    except TypeError:
        text = " ".join(repr(value).split())
        return {"described": text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."}


def _take_apart(part: object, kinds: Mapping[str, type[Any]], prefix: str, arrays: Arrays) -> dict[str, Any]:
    """Kind, numbers and the form of the arrays of a part; the arrays themselves go into ``arrays``."""
    values, forms = {}, {}
    for name, value in vars(part).items():
        if isinstance(value, np.ndarray):
            forms[name] = _form(value)
            arrays[f"{prefix}.{name}"] = value.T if forms[name].get("by_columns") else value
            continue
        try:
            values[name] = encode(value)
        except TypeError:
            raise ValueError(
                f"{type(part).__name__}.{name} is a {type(value).__name__}, which no file can hold; keep arrays and "
                "numbers."
            ) from None
    return {"kind": _kind_of(part, kinds, prefix), "values": values, "arrays": forms}


def _form(array: NDArray[Any]) -> dict[str, Any]:
    """Type, shape and layout: in another layout, products may differ in the last bit."""
    form: dict[str, Any] = {"dtype": array.dtype.name, "shape": list(array.shape)}
    if array.flags.f_contiguous and not array.flags.c_contiguous:
        form["by_columns"] = True
    return form


def encode_float(value: float) -> float | str:
    """A number JSON can hold, or the string that ``float`` reads.

    >>> encode_float(float("inf")), encode_float(0.5)
    ('inf', 0.5)
    """
    return value if np.isfinite(value) else str(value)


def encode(value: Any) -> Any:
    """JSON of a value; what JSON does not know is an object with one key that says what it is.

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


def _prepare(place: Path) -> None:
    """Make the folder, refuse one with other things in it, and end what an earlier save began."""
    if place.exists() and not place.is_dir():
        raise ValueError(f"cannot save to {place}: it is a file; a model is a folder.")
    place.mkdir(parents=True, exist_ok=True)
    if not _is_ours(place):
        raise ValueError(f"cannot save to {place}: it holds files but no model; name a new or empty folder.")
    try:
        checksum = _parse(place / JSON, _read_text(place)).get("checksum")
        if sealed_metadata(place / NEXT).get(CHECKSUM) == checksum:
            os.replace(place / NEXT, place / ARRAYS)
    except (OSError, ValueError):
        pass  # no model, or one that is complete


def _is_ours(place: Path) -> bool:
    """Whether a folder is empty, has a model of any version, or what is left of one."""
    try:
        found = parse_json((place / JSON).read_bytes())
        return isinstance(found, dict) and found.get("format") == FORMAT
    except (OSError, ValueError):
        names = {entry.name for entry in place.iterdir() if not entry.name.startswith(".model.")}
        return names <= {JSON, ARRAYS, NEXT}


def _write(place: Path, content: bytes, text: str) -> None:
    with atomic_write(place / NEXT) as file:
        file.write(content)
    try:
        write_text(place / JSON, text)
    except BaseException:
        if not (place / JSON).is_file() or (place / JSON).read_text(encoding="utf-8") != text:
            (place / NEXT).unlink()
        raise
    os.replace(place / NEXT, place / ARRAYS)


def _header(content: bytes) -> dict[str, Any]:
    header: dict[str, Any] = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return header


def _sealed_json(about: dict[str, Any]) -> str:
    return json.dumps(about | {"sha256": _digest(about)}, indent=1) + "\n"


def _digest(about: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()


# Reading


def _read_text(place: Path) -> str:
    if not place.is_dir():
        kind = "is a file; a model is a folder" if place.exists() else "does not exist"
        raise ValueError(f"cannot load a model from {place}: it {kind}.")
    try:
        return (place / JSON).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ValueError(f"{place / JSON} does not exist; {place} is no model, or its saving was cut short.") from None
    except UnicodeDecodeError:
        raise ValueError(f"{place / JSON} is damaged: it is no text; save the model again.") from None


def _parse(path: Path, text: str) -> dict[str, Any]:
    """The JSON, after its format, version and checksum were looked at."""
    try:
        about = parse_json(text)
    except ValueError as error:
        raise ValueError(f"{path} is damaged: it is no JSON ({error}); save the model again.") from None
    if not isinstance(about, dict) or about.get("format") != FORMAT or not isinstance(about.get("version"), int):
        raise ValueError(f"{path} does not describe a model of openauc; name a folder that save() wrote.")
    if about["version"] > VERSION:
        raise ValueError(
            f"{path} was written by a newer openauc (format {about['version']}, this one reads up to {VERSION}); "
            "upgrade."
        )
    if about.pop("sha256", None) != _digest(about):
        raise ValueError(f"{path} is damaged or was edited: it does not match its checksum; save the model again.")
    return about


def _read_arrays(place: Path, checksum: str) -> Arrays:
    """The arrays the JSON belongs to, whose last move a crash may have prevented."""
    found = [place / name for name in (NEXT, ARRAYS) if (place / name).is_file()]
    for path in found:
        before = os.stat(path)
        if path.name == NEXT and not _has_checksum(path, checksum):
            continue
        if sealed_metadata(path).get(CHECKSUM) != checksum:
            raise ValueError(f"{path} and {JSON} beside it belong to two different models; save the model again.")
        try:
            arrays: Arrays = load_file(path)
        except (SafetensorError, ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{path} cannot be read as safetensors ({error}); save the model again.") from None
        if os.stat(path).st_ino != before.st_ino:
            raise ValueError(f"{path} was replaced while it was read; load it again.")
        return arrays
    raise ValueError(f"{place / ARRAYS} does not exist; the model is incomplete, save it again.")


def _has_checksum(path: Path, checksum: str) -> bool:
    try:
        return sealed_metadata(path).get(CHECKSUM) == checksum
    except (OSError, ValueError):
        return False


def _assemble(place: Path, about: dict[str, Any]) -> OpenSetClassifier:
    arrays = _read_arrays(place, about.get("checksum", ""))
    source = _Source(place, arrays)
    try:
        classifier = OpenSetClassifier(**_read_parameters(about["parameters"]))
        classifier.__dict__.update(_read_attributes(about, source))
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
        if str(place) in str(error):
            raise  # a sentence already
        raise ValueError(
            f"{place / JSON} is not as this version of openauc writes it ({type(error).__name__}: {error}); save the "
            "model again."
        ) from None
    _try_out(classifier, place / ARRAYS)
    return classifier


def _read_parameters(saved: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters; of those that could only be described, the default."""
    default = OpenSetClassifier().get_params()
    return {
        name: default[name] if isinstance(value, dict) and "described" in value else decode(value)
        for name, value in saved.items()
    }


class _Source:
    """Parts of a model, from what its two files say."""

    def __init__(self, place: Path, arrays: Arrays) -> None:
        self.place = place
        self.arrays = arrays

    def array(self, name: str, form: Mapping[str, Any]) -> NDArray[Any]:
        """An array, if it has the type and shape that the JSON says."""
        if name not in self.arrays:
            raise ValueError(f"{self.place / ARRAYS} lacks the array {name!r}; save the model again.")
        by_columns = form.get("by_columns", False)
        array = self.arrays[name].T if by_columns else self.arrays[name]
        if list(array.shape) != form["shape"] or array.dtype.name != form["dtype"]:
            raise ValueError(
                f"{self.place / ARRAYS} has an array {name!r} of {array.dtype.name} {array.shape}, but {JSON} says "
                f"{form['dtype']} {tuple(form['shape'])}; save the model again."
            )
        return array

    def part(self, kinds: Mapping[str, type[Part]], saved: Mapping[str, Any], prefix: str) -> Part:
        """A part with all its state."""
        if saved["kind"] not in kinds:
            raise ValueError(
                f"{self.place / JSON} has a {prefix.split('.')[0]} {saved['kind']!r}, which this openauc does not "
                "know; upgrade, or add it as it was when the model was saved."
            )
        cls = kinds[saved["kind"]]
        part = cls.__new__(cls)
        vars(part).update({name: decode(value) for name, value in saved["values"].items()})
        for name, form in saved["arrays"].items():
            vars(part)[name] = self.array(f"{prefix}.{name}", form)
        return part

    def labels(self, saved: Mapping[str, Any]) -> NDArray[Any]:
        """Labels of the classes, in the type they had."""
        dtype, labels = np.dtype(saved["dtype"]), saved["labels"]
        fitting = all(isinstance(label, str if dtype.kind in "UO" else int | float) for label in labels)
        distinct = len(set(labels)) == len(labels) >= 2
        if dtype.kind not in "UOiufb" or not fitting or not distinct or dtype.itemsize * len(labels) > MOST_BYTES:
            raise ValueError(f"{self.place / JSON} has no usable list of classes; save the model again.")
        return np.array(labels, dtype)


def _read_attributes(about: Mapping[str, Any], source: _Source) -> dict[str, Any]:
    features, kept, calibration = about["features"], about["kept"], about["calibration"]
    names = features["names"]
    stored = {name: source.array(name, form) for name, form in kept.items()}
    if about["version"] == 1:
        stored |= _of_version_1(features)
    columns, usual = stored["evidence.columns"], stored["evidence.usual"]
    scaling = Scaling(stored["scaling.centre"], stored["scaling.factor"], features.get("scaling", "embedding"))
    rejector = source.part(REJECTORS, about["rejector"], "rejector")
    if about["version"] == 1 and isinstance(rejector, Learned):
        _renew(rejector)
    attributes = {
        "classes_": source.labels(about["classes"]),
        "unknown_label_": decode(about["unknown_label"]),
        "n_features_in_": features["width"],
        "dtype_": DTYPES[features["dtype"]],
        "observer_": _read_observer(about, source, scaling),
        "evidence_scale_": Scale(stored["evidence.mean"], stored["evidence.deviation"], columns, usual),
        "rejector_": rejector,
        "report_": FitReport.from_dict(decode(about["report"])),
        "held_out_scores_": stored["held_out.score"],
        "held_out_kinds_": stored["held_out.kind"],
        "calibration_scores_": stored["samples.score"],
        "calibration_classes_": stored["samples.class"],
        "calibration_kind_": calibration["samples"],
        "calibration_": source.part({"sorted": Calibration}, calibration, "calibration"),
        "thresholds_": np.array([float(value) for value in about["thresholds"]]),
        "guarantee_": about["guarantee"],
        "guarantee_details_": about.get("guarantee_details", ""),
    }
    return attributes | ({"feature_names_in_": np.array(names, dtype=object)} if names else {})


def _of_version_1(features: Mapping[str, Any]) -> Arrays:
    """What arrays of today would have been."""
    width = features["width"]
    return {
        "scaling.centre": np.zeros(width),
        "scaling.factor": np.full(width, decode(features["scale"])),
        "evidence.columns": np.empty(0, np.int64),
        "evidence.usual": np.empty((1, 0)),
    }


def _renew(rejector: Learned) -> None:
    """Give a rejector of version 1 the names of today."""
    state = vars(rejector)
    rejector.base_weight, rejector.base_scale = state.pop("average_weight"), state.pop("average_scale")
    rejector.base = ("max_logit", "knn", "relative_mahalanobis_pp")


def _read_observer(about: Mapping[str, Any], source: _Source, scaling: Scaling) -> HeadWithScores:
    scores: dict[str, Score] = {
        saved["name"]: source.part(_score_kinds(), saved, f"score.{index}")
        for index, saved in enumerate(about["scores"])
    }
    return HeadWithScores(source.part(HEADS, about["head"], "head"), scores, scaling)


def _try_out(classifier: OpenSetClassifier, path: Path) -> None:
    """Refuse arrays that do not fit together, by what one sample gives and by what is kept for calibration."""
    n_classes, width = len(classifier.classes_), classifier.n_features_in_
    samples = classifier.calibration_classes_
    try:
        whole = [
            any(width in np.shape(value) for value in vars(classifier.observer_.head).values()),
            classifier.thresholds_.shape == (n_classes,) and not np.isnan(classifier.thresholds_).any(),
            classifier.calibration_scores_.shape == samples.shape,
            not samples.size or 0 <= samples.min() <= samples.max() < n_classes,
            classifier.held_out_scores_.shape == classifier.held_out_kinds_.shape,
        ]
        if all(whole):
            with np.errstate(all="ignore"):
                score, logits = classifier._observe(np.zeros((1, width), classifier.dtype_))
                p_value = classifier.calibration_.p_value(score, logits.argmax(1))
            whole = [logits.shape == (1, n_classes), score.shape == p_value.shape == (1,)]
    except (ValueError, TypeError, AttributeError, KeyError, IndexError) as error:
        whole = [False]
        reason = f" ({' '.join(str(error).split())})"
    else:
        reason = ""
    if not all(whole):
        raise ValueError(f"{path} has arrays that do not fit together{reason}; save the model again.")
