"""Accumulator: evaluate() of samples that arrive in parts."""

from __future__ import annotations

import io
import json
import os
import zipfile
import zlib
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from itertools import zip_longest
from types import MappingProxyType
from typing import IO, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from openauc import _validation as check
from openauc._files import PathLike, atomic_write, parse_json
from openauc._validation import UNKNOWN, Label
from openauc.evaluation import Evaluation, evaluate_ranked
from openauc.intervals import REPLICATES, Interval, Rng, seed_of
from openauc.metrics.counts import RankedSamples, classes_met, positions
from openauc.metrics.ranking import auroc_of, warn_if_reversed
from openauc.metrics.registry import METRICS, Bounds, CutMetric, DecisionMetric, Metric, TableMetric
from openauc.metrics.samples import CORRECT, UNKNOWN_KIND, WRONG, Samples, mark_samples
from openauc.streaming.bounds import Certificate
from openauc.streaming.rows import UNKNOWN_REJECTED, WRONG_REJECTED, BinCounts, Rows, RowStore, key_score, score_key

RESOLUTION = 14  # bits of the mantissa that tell bins apart, of 52

_FORMAT, _VERSION = "openauc accumulator", 2
_COMPRESSION = 2  # numpy's own level takes four times as long for files a tenth smaller
_DAMAGE = (ValueError, KeyError, TypeError, EOFError, AttributeError, IndexError, zipfile.BadZipFile, zlib.error)
_CLASSES_OF_KIND = np.array([[0, 0, UNKNOWN, 0, UNKNOWN], [1, 0, 0, UNKNOWN, UNKNOWN]])
"""Without class counts any two classes serve: the class of a sample of each kind, and the predicted one."""


class Accumulator:
    """All metrics of samples that arrive in parts, from several workers, in any order.

    *Exact* (the default): keeps the distinct samples and how often each occurred, so memory grows with the number of
    distinct scores. ``compute`` gives what ``evaluate`` gives on all samples together, to the last bit.

    *Constant memory* (``exact=False``): counts samples in bins. A bin is named by the sign, the exponent and the first
    bits of the mantissa of a score, so the range of the scores need not be known. Only bins that hold samples take
    memory, about 100 bytes each. ``bounds`` holds two values between which ``evaluate`` on all samples would lie, for
    certain, whatever the samples. ``compute`` reports a value inside the bounds, and a confidence interval that is
    widened by the distance of the bounds.

    Parameters
    ----------
    exact
        Whether to keep every distinct score.
    per_class
        In constant memory, whether to count classes apart in each bin, which macro F-score and Youden's index need:
        memory then also grows with the number of (bin, class, predicted class) met. An exact accumulator always does.
    resolution
        In constant memory, bits of the mantissa that tell bins apart, 1 to 40. Each bit more halves the distance of
        the bounds, and may double the memory.
    unknown_label
        The label of unknown samples.

    Examples
    --------
    >>> one, other = Accumulator(), Accumulator()
    >>> one.update([0, 1, 1], [0, 1, 0], [0.1, 0.6, 0.2])
    >>> other.update([-1, -1], [1, 0], [0.5, 0.9])
    >>> both = one.merge(other)
    >>> both.compute().openauc, both.bounds["openauc"]
    (0.5, (0.5, 0.5))
    """

    def __init__(
        self,
        *,
        exact: bool = True,
        per_class: bool = False,
        resolution: int = RESOLUTION,
        unknown_label: Label = UNKNOWN,
    ) -> None:
        if not 1 <= resolution <= 40:
            raise ValueError(f"resolution is {resolution!r}; expected a whole number from 1 to 40, such as 14.")
        self.exact, self.per_class, self.resolution = exact, exact or per_class, resolution
        self.unknown_label = check.as_label(unknown_label)
        self._classes: NDArray[Any] | None = None
        self._numbers = np.zeros(3, dtype=np.int64)  # wrong, correct, unknown
        self._shift = 0 if exact else 52 - resolution  # bits of a key that bins drop
        nothing = np.empty(0, dtype=np.int64)
        self._rows = RowStore(Rows.of(nothing, nothing, self._shift))

    @property
    def n_known(self) -> int:
        """Known samples so far."""
        return int(self._numbers[WRONG] + self._numbers[CORRECT])

    @property
    def n_unknown(self) -> int:
        """Unknown samples so far."""
        return int(self._numbers[UNKNOWN_KIND])

    @property
    def classes(self) -> tuple[Label, ...]:
        """Known classes met so far, in either column."""
        return () if self._classes is None else tuple(self._classes.tolist())

    @property
    def nbytes(self) -> int:
        """Memory of the counts."""
        return self._rows.nbytes

    def __repr__(self) -> str:
        mode = "exact" if self.exact else "constant memory"
        return f"<Accumulator, {mode}: {self.n_known} known, {self.n_unknown} unknown samples>"

    def update(self, y_true: ArrayLike, y_pred: ArrayLike, open_score: ArrayLike) -> None:
        """Add samples, given as to ``evaluate``; there may be none, or of one side only."""
        samples = mark_samples(y_true, y_pred, open_score, unknown_label=self.unknown_label)
        if len(samples.kind) == 0:
            return
        classes = classes_met(samples)
        if samples.y_pred.dtype.kind == "i" and samples.y_pred.min() < 0:
            positions("y_pred", samples.y_pred, classes, self.unknown_label)  # a negative class is an error
        classes, key = self._meet(classes, samples.y_true), score_key(samples.score)
        if self.per_class:
            true = positions("y_true", samples.y_true, classes, self.unknown_label)
            pred = positions("y_pred", samples.y_pred, classes, self.unknown_label)
            rows = Rows.of(key, Rows.pair(true, pred), self._shift)
            self._rows.add(rows if self.exact else Rows.united([rows]))
        else:
            rejected = check.is_label(samples.y_pred, self.unknown_label) & (samples.kind != CORRECT)
            self._rows.add(*Rows.by_kind(key, _kinds(samples.kind, rejected), self._shift))
        self._numbers += np.array([samples.n_known - samples.n_correct, samples.n_correct, samples.n_unknown])

    def _meet(self, classes: NDArray[Any], labels: NDArray[Any]) -> NDArray[Any]:
        """All classes met, after these; rows are stored by the position of their class among them."""
        known = classes.astype(labels.dtype) if len(classes) == 0 else classes
        before = known if self._classes is None else self._classes
        if (known.dtype.kind == "U") != (before.dtype.kind == "U"):
            kinds = ("names", "integers") if known.dtype.kind == "U" else ("integers", "names")
            raise TypeError(f"labels are {kinds[0]} here but were {kinds[1]} before; use one kind in all parts.")
        united = before if np.array_equal(known, before) else np.union1d(before, known)
        if self.per_class and len(united) > len(before):
            self._rows = RowStore(self._rows.rows().renumbered(np.searchsorted(united, before)))
        self._classes = united
        return united

    def merge(self, other: Accumulator) -> Accumulator:
        """A new accumulator of the samples of both. The order and grouping of merging do not matter."""
        result = type(self)(**self._options())
        result.absorb(self)
        result.absorb(other)
        return result

    def absorb(self, part: Accumulator) -> None:
        """Add the samples of another accumulator, which must have the same options."""
        if not isinstance(part, Accumulator):
            raise TypeError(f"cannot merge an Accumulator with {type(part).__name__}; pass another Accumulator.")
        mine, theirs = self._options(), part._options()
        differ = ", ".join(f"{name}={mine[name]!r} and {theirs[name]!r}" for name in mine if mine[name] != theirs[name])
        if differ:
            raise ValueError(f"cannot merge accumulators made with {differ}; make all of them alike.")
        if part._classes is None:
            return
        classes, rows = self._meet(part._classes, part._classes), part._rows.rows()
        self._rows.add(rows.renumbered(np.searchsorted(classes, part._classes)) if self.per_class else rows)
        self._numbers = self._numbers + part._numbers

    def _options(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("exact", "per_class", "resolution", "unknown_label")}

    def compute(
        self,
        *,
        metrics: Mapping[str, Metric] = METRICS,
        level: float | None = 0.95,
        rng: Rng = 0,
        n_replicates: int = REPLICATES,
    ) -> Evaluation:
        """Values, intervals, thresholds and curves of all samples so far; arguments are those of ``evaluate``.

        In constant memory without ``per_class``, the default metrics are those that need no class counts.
        """
        chosen = self.possible(metrics)
        check.require_samples(
            self.n_known,
            self.n_unknown,
            self.unknown_label,
            unknown=any(metric.needs_unknown for metric in chosen.values()),
        )
        expanded = any(not isinstance(m, DecisionMetric | TableMetric) for m in chosen.values())
        samples, bins = self._ranked(expanded=expanded)
        if self.n_unknown:
            warn_if_reversed(float(auroc_of(samples.ranking.table)))
        evaluation = evaluate_ranked(samples, chosen, level, seed_of(rng), n_replicates)
        return evaluation if self.exact else self._bounded(evaluation, chosen, samples, bins)

    def possible(self, metrics: Mapping[str, Metric]) -> Mapping[str, Metric]:
        """Those of the metrics that can be computed; an error if one is asked for by name that cannot."""
        if self.exact:
            return metrics
        for name, metric in metrics.items():
            if not isinstance(metric, DecisionMetric | TableMetric):
                raise ValueError(f"{name} is a function of the samples, which only Accumulator(exact=True) keeps.")
        by_class = [name for name, m in metrics.items() if m.by_class]
        if self.per_class or not by_class:
            return metrics
        if metrics is not METRICS:
            averages = f"{', '.join(by_class)} averages over classes, which are not counted apart here"
            raise ValueError(f"{averages}; use Accumulator(exact=False, per_class=True), or leave it out.")
        return {name: metric for name, metric in metrics.items() if name not in by_class}

    def _bounded(
        self, evaluation: Evaluation, metrics: Mapping[str, Metric], samples: RankedSamples, bins: BinCounts
    ) -> Evaluation:
        """The evaluation with exact values where the bounds agree, and intervals widened by the rest of the bounds."""
        values, intervals, thresholds = dict(evaluation.values), dict(evaluation.intervals), dict(evaluation.thresholds)
        certificate = Certificate(bins, samples)
        for name, (least, most) in certificate.bounds(metrics).items():
            value, metric = values[name], metrics[name]
            values[name] = least if least == most else value
            if isinstance(metric, CutMetric) and metric.accepted is not None and least == most:
                thresholds[name] = certificate.threshold(metric)
            if name in intervals:
                low, high = intervals[name]
                intervals[name] = Interval(low + min(least - value, 0.0), high + max(most - value, 0.0))
        return replace(evaluation, values=values, intervals=intervals, thresholds=thresholds)

    @property
    def bounds(self) -> Mapping[str, Bounds]:
        """Certified bounds of the metrics of ``METRICS``: the exact value lies inside; equal ends if exact."""
        return self.bounds_of(METRICS)

    def bounds_of(self, metrics: Mapping[str, Metric]) -> Mapping[str, Bounds]:
        """Bounds of other metrics, such as ``standard_metrics(max_ofpr=0.1)``; those without bounds are left out."""
        if self.exact:
            values = self.compute(metrics=metrics, level=None).values
            return MappingProxyType({name: (value, value) for name, value in values.items()})
        possible = {name: m for name, m in self.possible(metrics).items() if self.n_unknown or not m.needs_unknown}
        samples, bins = self._ranked()
        return MappingProxyType(Certificate(bins, samples).bounds(possible))

    def _ranked(self, *, expanded: bool = False) -> tuple[RankedSamples, BinCounts]:
        """The rows as weighted samples (``expanded``: repeated samples), and the bins they are in."""
        assert self._classes is not None
        rows, label, classes = self._rows.rows(), self.unknown_label, None
        if self.per_class:
            mark: Any = str(label) if self._classes.dtype.kind == "U" else label
            names, true, pred = np.append(self._classes, mark), rows.true, rows.pred
        else:
            names, label, classes = np.array([0, 1, UNKNOWN]), UNKNOWN, range(len(self._classes))
            true, pred = _CLASSES_OF_KIND[:, rows.what]
        kind = np.where(true < 0, UNKNOWN_KIND, true == pred).astype(np.uint8)
        bins, place = rows.bins(_kinds(kind, (pred < 0) & (kind != CORRECT)))
        columns = names[true], names[pred], key_score(bins.high)[place], kind
        if expanded:
            columns = tuple(np.repeat(column, rows.times) for column in columns)  # type: ignore[assignment]
        numbers = self.n_known, int(self._numbers[CORRECT]), self.n_unknown
        samples = Samples(*columns, label, *numbers, None if expanded else rows.times)
        return RankedSamples(samples, classes), bins

    def save(self, file: PathLike | IO[bytes]) -> None:
        """Write the state to an ``.npz`` file, given as a path or open; reading it executes nothing."""
        with atomic_write(file) if isinstance(file, str | os.PathLike) else nullcontext(file) as target:
            target.write(save_all({(): self}))

    @classmethod
    def load(cls, file: PathLike | IO[bytes]) -> Accumulator:
        """The accumulator that ``save`` wrote."""
        ((_, result),) = load_all(file)
        return result


def save_all(parts: Mapping[Any, Accumulator]) -> bytes:
    """Content of an ``.npz`` file of accumulators with the same options, each under a key that JSON can hold."""
    options = [part._options() for part in parts.values()][:1]
    head = json.dumps({"format": _FORMAT, "version": _VERSION, "options": options, "keys": list(parts)})
    rows = [part._rows.rows() for part in parts.values()]
    columns = {name: [getattr(part, name) for part in rows] for name in Rows._fields}
    columns["classes"] = [part._classes for part in parts.values() if part._classes is not None]
    arrays = {name: np.concatenate(found) for name, found in columns.items() if found and found[0] is not None}
    arrays["head"] = np.array(head)
    arrays["numbers"] = np.array([part._numbers for part in parts.values()])
    arrays["n_rows"] = np.array([len(part.key) for part in rows])
    arrays["n_classes"] = np.array([len(part.classes) for part in parts.values()])
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED, compresslevel=_COMPRESSION) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
    return content.getvalue()


def load_all(file: PathLike | IO[bytes]) -> list[tuple[Any, Accumulator]]:
    """Pairs of key and accumulator from what ``save_all`` made; a damaged file is a ValueError."""
    path = file if isinstance(file, str | os.PathLike) else "the file"
    try:
        with np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        head = parse_json(str(arrays.pop("head")))
        if head["format"] != _FORMAT:
            raise ValueError(f"its format is {head['format']!r}")
        if head["version"] == _VERSION:
            return _load(head, arrays)
    except _DAMAGE as error:
        reason = "it holds pickled objects, which are never loaded" if "pickle" in str(error) else error
        unread = f"{path} cannot be read as an accumulator ({reason})"
        raise ValueError(f"{unread}; it is damaged or another kind of file. Accumulator.save writes them.") from error
    other = f"{path} was written in version {head['version']} of the format, this one reads {_VERSION}"
    raise ValueError(f"{other}; use the release of openauc that wrote it, or count again.")


def _load(head: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> list[tuple[Any, Accumulator]]:
    if not head["keys"]:
        return []
    (options,) = head["options"]
    ends = np.cumsum(arrays["n_rows"])[:-1]
    needed = Rows._fields[:3] if options["exact"] else Rows._fields
    columns = [np.split(arrays[name], ends) if name in needed else [] for name in Rows._fields]
    classes = np.split(arrays.get("classes", np.empty(0)), np.cumsum(arrays["n_classes"])[:-1])
    found = []
    for key, numbers, names, rows in zip(head["keys"], arrays["numbers"], classes, zip_longest(*columns), strict=True):
        part = Accumulator(**options)
        part._numbers, part._classes, part._rows = numbers, names if numbers.any() else None, RowStore(Rows(*rows))
        found.append((key, part))
    return found


def _kinds(kind: NDArray[np.uint8], rejected: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Kinds of samples, with kinds of their own for those that the model itself calls unknown."""
    rejected_kind = np.where(kind == UNKNOWN_KIND, np.uint8(UNKNOWN_REJECTED), np.uint8(WRONG_REJECTED))
    return np.where(rejected, rejected_kind, kind) if rejected.any() else kind
