"""Accumulator: evaluate() of samples that arrive in parts."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from openauc import _validation as check
from openauc._validation import UNKNOWN, Label
from openauc.evaluation import Evaluation, evaluate_ranked
from openauc.intervals import REPLICATES, Interval, Rng, seed_of
from openauc.metrics.counts import RankedSamples, positions
from openauc.metrics.curve import Curve
from openauc.metrics.ranking import auroc_of, oscr_of, roc_of, warn_if_reversed
from openauc.metrics.registry import METRICS, ColumnMetric, DecisionMetric, Metric, TableMetric
from openauc.metrics.samples import CORRECT, UNKNOWN_KIND, WRONG, Samples, mark_samples
from openauc.streaming import files
from openauc.streaming.bins import BinCounts, Bins, look_at_labels
from openauc.streaming.bounds import Bounds, Certificate
from openauc.streaming.keys import bin_of, key_score, score_key
from openauc.streaming.refinement import Refined, Refinement, Settled
from openauc.streaming.rows import Rows, RowStore


class Accumulator:
    """All metrics of samples that arrive in parts, from several workers, in any order.

    *Exact* (the default): keeps the distinct samples and how often each occurred, so memory grows with the number of
    distinct scores. ``compute`` gives what ``evaluate`` gives on all samples together, to the last bit.

    *Constant memory* (``exact=False``): counts samples in bins. A bin is named by the sign, the exponent and ten bits
    of the mantissa of a score, so no range need be known and every magnitude is told apart to a thousandth; a page of
    1,024 bins takes 64 kB, for each thread, and exists once a score of its sign and exponent was met. What that costs
    is certified: ``bounds`` holds two values between which ``evaluate`` on all samples would lie, for certain, whatever
    the samples. Confidence intervals are another matter: they tell how far the metric of these samples may be from
    that of all samples one could have drawn. ``compute`` reports a value inside the bounds, and an interval
    widened by what the bounds leave open, so that it is no narrower than that of the exact value.

    Parameters
    ----------
    exact
        Whether to keep every distinct score.
    per_class
        In constant memory, whether to count classes apart in each bin, which macro F-score and Youden's index need:
        memory then also grows with the number of (bin, class, predicted class) met. An exact accumulator always does.
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

    def __init__(self, *, exact: bool = True, per_class: bool = False, unknown_label: Label = UNKNOWN) -> None:
        self.exact, self.per_class = exact, exact or per_class
        self.unknown_label = check.as_label(unknown_label)
        self._classes: NDArray[Any] | None = None
        self._numbers = np.zeros(3, dtype=np.int64)  # wrong, correct, unknown
        self._rows = RowStore() if self.per_class else None
        self._bins = None if exact else Bins()
        self._refined: Refined | None = None

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
        rows = 0 if self._rows is None else self._rows.nbytes
        return rows + (0 if self._bins is None else self._bins.nbytes)

    def __repr__(self) -> str:
        mode = "exact" if self.exact else "constant memory"
        return f"<Accumulator, {mode}: {self.n_known} known, {self.n_unknown} unknown samples>"

    def update(self, y_true: ArrayLike, y_pred: ArrayLike, open_score: ArrayLike) -> None:
        """Add samples, given as to ``evaluate``; there may be none, or of one side only."""
        self._require_unrefined("update")
        samples = mark_samples(y_true, y_pred, open_score, unknown_label=self.unknown_label)
        if len(samples.kind) == 0:
            return
        classes, kind = look_at_labels(samples)
        self._meet(classes, samples.y_true)
        if self._rows is not None:
            self._add_rows(samples)
        if self._bins is not None:
            self._bins.add(samples.score, kind)
        wrong = samples.n_known - samples.n_correct
        self._numbers += np.array([wrong, samples.n_correct, samples.n_unknown])

    def _add_rows(self, samples: Samples) -> None:
        assert self._rows is not None
        assert self._classes is not None
        true = positions("y_true", samples.y_true, self._classes, self.unknown_label)
        pred = positions("y_pred", samples.y_pred, self._classes, self.unknown_label)
        key = score_key(samples.score)
        rows = Rows.of(key if self.exact else bin_of(key), true, pred)
        self._rows.add(rows if self.exact else Rows.united([rows]))

    def _meet(self, classes: NDArray[Any], labels: NDArray[Any]) -> None:
        """Add classes to those met; what is stored by their position follows."""
        known = classes.astype(labels.dtype) if len(classes) == 0 else classes
        if self._classes is None:
            self._classes = known
            return
        if (known.dtype.kind == "U") != (self._classes.dtype.kind == "U"):
            raise TypeError(
                f"labels are {'names' if known.dtype.kind == 'U' else 'integers'} here but were "
                f"{'integers' if known.dtype.kind == 'U' else 'names'} before; use the same kind of label in all parts."
            )
        if len(known) == len(self._classes) and np.array_equal(known, self._classes):
            return
        united = np.union1d(self._classes, known)
        if self._rows is not None:
            self._rows.renumber(np.searchsorted(united, self._classes))
        self._classes = united

    def merge(self, other: Accumulator) -> Accumulator:
        """A new accumulator of the samples of both, the same in whatever order and grouping parts are merged."""
        if not isinstance(other, Accumulator):
            raise TypeError(f"cannot merge an Accumulator with {type(other).__name__}; pass another Accumulator.")
        self._require_unrefined("merge")
        other._require_unrefined("merge")
        mine, theirs = self._options(), other._options()
        if mine != theirs:
            differ = ", ".join(
                f"{name}={mine[name]!r} and {theirs[name]!r}" for name in mine if mine[name] != theirs[name]
            )
            raise ValueError(f"cannot merge accumulators made with {differ}; make all of them alike.")
        result = type(self)(**mine)
        for part in (self, other):
            result._take_in(part)
        return result

    def _options(self) -> dict[str, Any]:
        return {"exact": self.exact, "per_class": self.per_class, "unknown_label": self.unknown_label}

    def _take_in(self, part: Accumulator) -> None:
        if part._classes is None:
            return
        self._meet(part._classes, part._classes)
        assert self._classes is not None
        if self._rows is not None and part._rows is not None:
            self._rows.add(part._rows.rows().renumbered(np.searchsorted(self._classes, part._classes)))
        if self._bins is not None and part._bins is not None:
            self._bins.absorb(part._bins)
        self._numbers = self._numbers + part._numbers

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
        model = self._model(expanded=any(not isinstance(m, DecisionMetric | TableMetric) for m in chosen.values()))
        if self.n_unknown:
            warn_if_reversed(float(auroc_of(model.ranking.table)))
        evaluation = evaluate_ranked(model, chosen, level, seed_of(rng), n_replicates)
        return evaluation if self.exact else self._settled(evaluation, chosen, model)

    def possible(self, metrics: Mapping[str, Metric]) -> Mapping[str, Metric]:
        """The metrics that can be had; an error where some were asked for that cannot."""
        if self.exact:
            return metrics
        for name, metric in metrics.items():
            if not isinstance(metric, DecisionMetric | TableMetric):
                raise ValueError(
                    f"{name} is a function of the samples, which an accumulator in constant memory does not keep; "
                    "use Accumulator(exact=True), or leave it out."
                )
        by_class = [name for name, m in metrics.items() if m.by_class]
        if self.per_class or not by_class:
            return metrics
        if metrics is not METRICS:
            raise ValueError(
                f"{', '.join(by_class)} averages over classes, which are not counted apart here; use "
                "Accumulator(exact=False, per_class=True), or leave it out."
            )
        return {name: metric for name, metric in metrics.items() if name not in by_class}

    def _settled(self, evaluation: Evaluation, metrics: Mapping[str, Metric], model: RankedSamples) -> Evaluation:
        """Values as the bounds have them where these agree; intervals moved along and widened by what is open."""
        values, intervals, thresholds = dict(evaluation.values), dict(evaluation.intervals), dict(evaluation.thresholds)
        certificate = self._certificate(model)
        for name, (least, most) in self._certified(metrics, model).items():
            value, metric = values[name], metrics[name]
            values[name] = least if least == most else value
            if isinstance(metric, ColumnMetric) and metric.accepted is not None and least == most:
                thresholds[name] = certificate.threshold(metric)
            if name in intervals:
                low, high = intervals[name]
                intervals[name] = Interval(low + min(least - value, 0.0), high + max(most - value, 0.0))
        return replace(evaluation, values=values, intervals=intervals, thresholds=thresholds)

    @property
    def bounds(self) -> Mapping[str, Bounds]:
        """Certified bounds of the metrics of ``METRICS``: the exact value lies inside; equal ends if exact."""
        return self.bounds_of(self.possible(METRICS))

    def bounds_of(self, metrics: Mapping[str, Metric]) -> Mapping[str, Bounds]:
        """The same of other metrics, such as ``standard_metrics(max_ofpr=0.1)``; without those one cannot bound."""
        if self.exact:
            values = self.compute(metrics=metrics, level=None).values
            return MappingProxyType({name: (value, value) for name, value in values.items()})
        return MappingProxyType(self._certified(self.possible(metrics), self._model()))

    def _certified(self, metrics: Mapping[str, Metric], model: RankedSamples) -> dict[str, Bounds]:
        if not self.n_unknown:
            metrics = {name: metric for name, metric in metrics.items() if not metric.needs_unknown}
        certificate = self._certificate(model)
        found = {name: certificate.of(metric) for name, metric in metrics.items()}
        return {name: bounds for name, bounds in found.items() if bounds is not None}

    def _certificate(self, model: RankedSamples) -> Certificate:
        assert self._bins is not None
        return Certificate(self._bins.sheet(), model, self.refined(), per_class=self.per_class)

    def refine(self, *, max_bytes: int = 1 << 30) -> Refinement:
        """A further pass over the same samples, which settles what the bins left open in at most this much memory.

        Where all distinct samples fit, the result of the pass is exact in everything. Where they do not, it looks at
        as many as fit of the ranges that hold known and unknown samples of several scores, which alone leave OpenAUC
        and AUROC open; ranges too large even by themselves are divided, and a further pass takes up the rest. When
        none is left (``settled``), OpenAUC, AUROC, accuracy, their sum and product, the rates at 95 % TPR and at 10 %
        FPR and detection accuracy are those of ``evaluate``, to the last bit. Other metrics keep their bounds, and
        intervals rest on the bins.

        >>> one = Accumulator(exact=False)
        >>> samples = [0, 0, -1, -1], [0, 0, 0, 0], [1.0001, 1.0003, 1.0002, 1.0004]
        >>> one.update(*samples)
        >>> one.bounds["openauc"], one.settled
        ((0.0, 1.0), False)
        >>> again = one.refine()
        >>> again.update(*samples)
        >>> again.result().bounds["openauc"]
        (0.75, 0.75)
        """
        if self.exact:
            raise ValueError("this accumulator is exact already; refine is for those made with exact=False.")
        if max_bytes <= 0:
            raise ValueError(f"max_bytes is {max_bytes!r}; expected a number of bytes, such as 1 << 30.")
        return Refinement(self, max_bytes)

    @property
    def settled(self) -> bool:
        """Whether a further pass would leave OpenAUC and AUROC as they are."""
        return self.exact or not self.refined().is_open().any()

    def refined(self) -> Refined:
        """The finest columns known; for ``Refinement``, as are the four below."""
        assert self._bins is not None
        return Refined(self._bins.sheet(), Settled.empty()) if self._refined is None else self._refined

    def with_refined(self, refined: Refined) -> Accumulator:
        """The same with finer columns."""
        result = copy(self)
        result._refined = refined
        return result

    def exact_twin(self) -> Accumulator:
        """An empty accumulator for the same samples that keeps all of them."""
        return Accumulator(unknown_label=self.unknown_label)

    def most_rows(self) -> int:
        """Most rows that an exact accumulator of the same samples may have."""
        assert self._bins is not None
        sheet, n_classes = self._bins.sheet(), len(self.classes) + 1
        size = sheet.counts.sum(axis=1)
        return int(np.where(sheet.pure, np.minimum(size, n_classes**2), size).sum())

    def _require_unrefined(self, what: str) -> None:
        if self._refined is not None:
            raise ValueError(
                f"cannot {what} after refine(): what a second pass settled holds for the samples of the first alone. "
                f"{what.capitalize()} first, then refine."
            )

    def envelope(self, name: str = "oscr") -> tuple[Curve, Curve]:
        """Two curves, ``"oscr"`` or ``"roc"``, between which that of all samples lies; the same one twice if exact."""
        draw = {"oscr": oscr_of, "roc": roc_of}[check.check_choice("curve", name, ("oscr", "roc"))]
        check.require_samples(self.n_known, self.n_unknown, self.unknown_label)
        model = self._model()
        if self.exact:
            return draw(model.ranking.table), draw(model.ranking.table)
        certificate = self._certificate(model)
        return draw(certificate.worst), draw(certificate.best)

    def _model(self, *, expanded: bool = False) -> RankedSamples:
        """The samples, or one per bin and kind, each with how often it occurred; ``expanded`` repeats them."""
        if self._rows is None:
            return self._binned_model()
        assert self._classes is not None
        rows, names = self._rows.rows(), np.append(self._classes, self._mark)
        score = key_score(rows.key)
        if self._bins is not None:
            sheet = self._bins.sheet()
            score = key_score(sheet.high[np.searchsorted(sheet.number, rows.key)])
        kind = np.where(rows.true < 0, UNKNOWN_KIND, rows.true == rows.pred).astype(np.uint8)
        columns = names[rows.true], names[rows.pred], score, kind
        numbers = self.n_known, int(self._numbers[CORRECT]), self.n_unknown
        if expanded:
            columns = tuple(np.repeat(column, rows.times) for column in columns)  # type: ignore[assignment]
        return RankedSamples(Samples(*columns, self.unknown_label, *numbers, None if expanded else rows.times))

    @property
    def _mark(self) -> Any:
        """The unknown label as a label of the same type as the classes."""
        assert self._classes is not None
        return str(self.unknown_label) if self._classes.dtype.kind == "U" else self.unknown_label

    def _binned_model(self) -> RankedSamples:
        assert self._bins is not None
        return RankedSamples(binned_samples(self._bins.sheet()), range(len(self.classes)))

    def forget(self) -> None:
        """Drop all samples, not the classes met."""
        self._require_unrefined("forget")
        fresh = type(self)(**self._options())
        self._numbers, self._rows, self._bins = fresh._numbers, fresh._rows, fresh._bins

    def save(self, file: files.File) -> None:
        """Write the state to a small ``.npz`` file: an open one, or a path, all or nothing."""
        arrays = {"numbers": self._numbers}
        if self._classes is not None:
            arrays["classes"] = self._classes
        if self._rows is not None:
            arrays |= {f"rows_{name}": part for name, part in self._rows.rows()._asdict().items()}
        if self._bins is not None:
            arrays |= {f"bins_{name}": part for name, part in self._bins.sheet()._asdict().items()}
        if self._refined is not None:
            arrays |= {f"columns_{name}": part for name, part in self._refined.columns._asdict().items()}
            arrays |= {f"settled_{name}": part for name, part in self._refined.settled._asdict().items()}
        files.write(file, self._options(), arrays)

    @classmethod
    def load(cls, file: files.File) -> Accumulator:
        """What ``save`` wrote."""
        with files.read(file) as (options, arrays):
            return cls._of(options, arrays)

    @classmethod
    def _of(cls, options: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Accumulator:
        def part(prefix: str, fields: tuple[str, ...]) -> list[NDArray[Any]]:
            return [arrays[f"{prefix}_{name}"] for name in fields]

        result = cls(**options)
        result._numbers, result._classes = arrays["numbers"], arrays.get("classes")
        if result._rows is not None:
            result._rows = RowStore(Rows(*part("rows", Rows._fields)))
        if result._bins is not None:
            result._bins = Bins(BinCounts(*part("bins", BinCounts._fields)))
        if "columns_low" in arrays:
            result._refined = Refined(
                BinCounts(*part("columns", BinCounts._fields)), Settled(*part("settled", Settled._fields))
            )
        return result


def binned_samples(sheet: BinCounts) -> Samples:
    """One sample for each bin and kind, with how often it occurred.

    Its class is 0 and a wrong one 1: without class counts any two classes serve.
    """
    bin_number, kind = np.nonzero(sheet.counts)
    true, pred = np.array([[0, 0, UNKNOWN, 0, UNKNOWN], [1, 0, 0, UNKNOWN, UNKNOWN]])[:, kind]
    plain = np.array([WRONG, CORRECT, UNKNOWN_KIND, WRONG, UNKNOWN_KIND], dtype=np.uint8)[kind]
    known, correct, unknown = (
        round(part.sum().item()) for part in (sheet.known, sheet.counts[:, CORRECT], sheet.unknown)
    )
    score, times = key_score(sheet.high)[bin_number], sheet.counts[bin_number, kind]
    return Samples(true, pred, score, plain, UNKNOWN, known, correct, unknown, times)
