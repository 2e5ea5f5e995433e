"""Turning whatever the caller holds into checked arrays; every input error is worded here."""

from __future__ import annotations

import difflib
import importlib
import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

UNKNOWN = -1
"""Label of a sample that belongs to none of the known classes."""

Label = int | str
Vector = ArrayLike  # one value per sample, shape (N,)
Weights = ArrayLike | None  # how often each sample counts, shape (N,); None: once
ROUNDING = 1e-12  # of sums of floats; relative: 0.55 * 20 must count as 11, not as a little more


def as_array(values: ArrayLike) -> NDArray[Any]:
    """Array of ``values``, whether list, numpy, pandas or torch (torch is not imported)."""
    source: Any = values
    if hasattr(source, "detach"):  # a torch tensor, possibly on a GPU, with gradient, or in bfloat16
        source = source.detach().cpu()
        if str(source.dtype) == "torch.bfloat16":
            source = source.float()  # exact: every bfloat16 is a float32
    return np.asarray(source)


def as_vector(name: str, values: ArrayLike) -> NDArray[Any]:
    """One-dimensional array of ``values``."""
    array = as_array(values)
    if array.ndim != 1:
        raise ValueError(
            f"{name} has shape {array.shape}; expected one value per sample, shape (N,). "
            "For a matrix of class scores pass its arg max and its open-set score instead."
        )
    return array


def as_scores(name: str, values: ArrayLike) -> NDArray[Any]:
    """Scores as float32 or float64 without rounding any of them; NaN is refused, +-inf is a rank."""
    array = as_vector(name, values)
    if array.dtype.kind in "biu":
        wide = array.astype(np.float64)
        if (np.abs(wide) >= 2**53).any():  # 2**53 itself may be a rounded 2**53 + 1
            raise ValueError(
                f"{name} holds integers beyond 2**53 - 1, which float64 may round and so tie; "
                "subtract a common offset first."
            )
        return wide
    array = as_numbers(name, array)
    if array.dtype.itemsize == 2:
        array = array.astype(np.float32)
    elif array.dtype not in (np.dtype(np.float32), np.dtype(np.float64)):
        wide = array.astype(np.float64)
        if not np.array_equal(wide.astype(array.dtype), array, equal_nan=True):
            raise ValueError(f"{name} of dtype {array.dtype} does not fit float64 without rounding.")
        array = wide
    # min() propagates NaN, so one cheap pass finds it without a mask.
    if array.size and np.isnan(array.min()):
        row = int(np.flatnonzero(np.isnan(array))[0])
        raise ValueError(
            f"{name} is NaN for sample {row}; a NaN has no rank. Drop the sample or give it a score "
            "(+inf means certainly unknown, -inf certainly known)."
        )
    return array


def as_numbers(name: str, array: NDArray[Any]) -> NDArray[Any]:
    """``array`` of any shape if it holds real numbers, objects turned into float64; text is refused."""
    if array.dtype.kind == "O":
        try:
            return array.astype(np.float64)
        except (TypeError, ValueError):
            culprit = next(value for value in array.flat if not is_number(value))
            raise TypeError(f"{name} must be numbers, got for example {culprit!r}.") from None
    if array.dtype.kind not in "biuf":
        example = f", such as {array.flat[0].item()!r}" if array.size else ""
        raise TypeError(f"{name} must be real numbers, got dtype {array.dtype}{example}.")
    return array


def is_number(value: Any) -> bool:
    """Whether ``value`` reads as a number; None does, as NaN."""
    try:
        np.float64(value)
    except (TypeError, ValueError):
        return False
    return True


def as_labels(name: str, values: ArrayLike) -> NDArray[Any]:
    """Labels as an integer or a string array."""
    array = as_vector(name, values)
    if array.dtype.kind not in "biufU":
        array = _labels_from_objects(name, array)
    if array.dtype.kind == "U":
        return array
    if array.dtype.kind == "f" or array.dtype == np.uint64:
        wide = array.astype(np.float64)
        bad = ~(np.abs(wide) < 2.0**63) | (wide != np.floor(wide))
        if np.isnan(wide).any():  # pandas makes floats of integers with gaps
            raise ValueError(_missing(name, int(np.argmax(np.isnan(wide)))))
        if bad.any():
            raise ValueError(f"{name} contains {array[bad][0]}; class labels are integers or strings.")
    # Native integers of four or eight bytes, whatever the file or the machine that made them.
    return array.astype(np.int32 if array.dtype.itemsize < 8 and array.dtype.kind == "i" else np.int64, copy=False)


def _missing(name: str, row: int) -> str:
    return f"{name} is missing for sample {row}; every sample needs a label."


def _labels_from_objects(name: str, array: NDArray[Any]) -> NDArray[Any]:
    values = array.tolist()
    for row, value in enumerate(values):
        if value is None or type(value).__name__ in ("NAType", "NaTType") or value != value:
            raise ValueError(_missing(name, row))
    if all(isinstance(value, (int, np.integer)) for value in values):
        return np.asarray(values, dtype=np.int64)
    try:
        return np.asarray([value.decode() if isinstance(value, bytes) else str(as_label(value)) for value in values])
    except UnicodeDecodeError as error:
        raise ValueError(f"{name} holds the bytes {error.object!r}, which are not UTF-8 text.") from None


def same_label_type(y_true: NDArray[Any], y_pred: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Make the two label arrays comparable: integers become text beside "0", "1", "other"; names are refused."""
    if (y_true.dtype.kind == "U") == (y_pred.dtype.kind == "U") or len(y_true) == 0 or len(y_pred) == 0:
        return y_true, y_pred
    names = y_true if y_true.dtype.kind == "U" else y_pred
    digits = names[np.strings.isdecimal(names)]
    padded = np.strings.startswith(digits, "0") & (digits != "0")  # "007": digits are only part of a name
    if len(digits) and not padded.any():
        return (y_true, as_text(y_pred)) if names is y_true else (as_text(y_true), y_pred)
    true, pred = (f"{'names' if x is names else 'integers'} (such as {x[0].item()!r})" for x in (y_true, y_pred))
    raise TypeError(f"y_true holds {true} but y_pred holds {pred}; use the same kind of label in both.")


def as_text(integers: NDArray[Any]) -> NDArray[Any]:
    """Integers as Python writes them."""
    classes, position = np.unique(integers, return_inverse=True)
    return np.array([str(label) for label in classes.tolist()])[position]


def as_label(label: Any) -> Label:
    """A single label as a plain integer or string."""
    plain = label.item() if isinstance(label, np.generic) else label
    return int(plain) if isinstance(plain, float) and plain.is_integer() else plain


def read_label(text: str) -> Label:
    """The label that ``text`` writes: an integer if Python writes it so, else a name, as "007" or "²" is."""
    return int(text) if re.fullmatch(r"0|-?[1-9][0-9]*", text) else text


def is_label(labels: NDArray[Any], label: Label) -> NDArray[np.bool_]:
    """Where ``labels`` equals ``label``; among names, the default -1 is the string ``"-1"``."""
    text = labels.dtype.kind == "U"
    if isinstance(label, str) and not text:
        raise TypeError(f"unknown_label is {label!r} but y_true holds integers; pass an integer.")
    return np.asarray(labels == (str(label) if text else label))


def check_same_length(**arrays: NDArray[Any]) -> None:
    """All arrays describe the same samples."""
    first, n = next((name, len(array)) for name, array in arrays.items())
    for name, array in arrays.items():
        if len(array) != n:
            remedy = "pass one value per sample, unknown samples included."
            raise ValueError(f"{name} has {len(array)} entries but {first} has {n}; {remedy}")


def require_samples(n_known: int, n_unknown: int, unknown_label: Label, *, unknown: bool = True) -> None:
    """Raise unless there are known (and, where the metric needs them, unknown) samples."""
    if n_known + n_unknown == 0:
        raise ValueError("there is no known sample, nor any other: y_true is empty, so the metric is undefined.")
    if n_known == 0:
        raise ValueError(
            f"there is no known sample: every y_true equals the unknown label {unknown_label!r}, so the "
            "metric is undefined. Add known test samples or set unknown_label."
        )
    if unknown and n_unknown == 0:
        raise ValueError(
            f"there is no unknown sample: no y_true equals {unknown_label!r}, so the metric is undefined. "
            "Label samples of none of the known classes with it, or set unknown_label."
        )


def check_fraction(name: str, value: float, *, zero: bool = False, one: bool = True) -> float:
    """``value`` as a float in the unit interval, end points as allowed."""
    number = float(value)
    if not (0.0 < number < 1.0 or (zero and number == 0.0) or (one and number == 1.0)):
        left, right = "[" if zero else "(", "]" if one else ")"
        raise ValueError(f"{name} is {value!r}; expected a fraction in {left}0, 1{right}, not a percentage.")
    return number


def at_least(share: float, total: ArrayLike) -> NDArray[np.float64]:
    """Smallest count that is at least ``share`` of ``total``; of a sum of weights, a float, the share itself.

    >>> at_least(0.55, 20).item(), at_least(0.95, 19).item()
    (11.0, 19.0)
    """
    wanted = share * np.asarray(total) * (1.0 - ROUNDING)
    return wanted if np.asarray(total).dtype.kind == "f" else np.ceil(wanted)


def at_most(share: float, total: ArrayLike) -> NDArray[np.float64]:
    """Largest count that is at most ``share`` of ``total``; of a sum of weights, a float, the share itself.

    >>> at_most(0.1, 19).item(), at_most(0.1, 30).item()
    (1.0, 3.0)
    """
    wanted = share * np.asarray(total) * (1.0 + ROUNDING)
    return wanted if np.asarray(total).dtype.kind == "f" else np.floor(wanted)


def json_ready(value: Any) -> Any:
    """``value`` as JSON has it, tuples and arrays as lists; an infinite number as the string that float() reads."""
    if isinstance(value, dict):
        return {name: json_ready(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [json_ready(entry) for entry in (value.tolist() if isinstance(value, np.ndarray) else value)]
    return str(value) if isinstance(value, float) and not np.isfinite(value) else value


def named(names: Iterable[Any], most: int = 20) -> str:
    """Names in quotes, the first of many: 'a', 'b', 1 more; or none."""
    found = list(map(repr, names))
    return ", ".join([*found[:most], *([f"{len(found) - most} more"] if len(found) > most else [])]) or "none"


def import_extra(module: str, what: str, install: str) -> Any:
    """A module that is optional, or an error that says what needs it and what to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f"{what} needs {module.partition('.')[0]} ({error}): pip install {install}.") from error


def check_choice(name: str, value: str, choices: Iterable[str]) -> str:
    """``value`` if it is one of ``choices``, else an error with the likely spelling."""
    options: Sequence[str] = list(choices)
    if value in options:
        return value
    near = difflib.get_close_matches(str(value), options, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise ValueError(f"{name} is {value!r}; expected one of {', '.join(map(repr, options))}.{hint}")
