"""Open-set metrics of tensors, computed where the tensors are: ``pip install 'openauc[torchmetrics]'``.

``OpenAUC``, ``AUROC``, ``ClosedSetAccuracy`` and ``FPRAtTPR`` are metrics of torchmetrics: updated batch by batch,
synchronised between processes, members of a ``MetricCollection``, logged by Lightning. ``openauc_score`` is the same
for tensors at hand. A score is never squashed and nothing is guessed from the data: scores are ranked by the integer
key of ``openauc.streaming``, and pairs are counted in integers; only sums of them and the division are in float64.
Devices without float64 (Apple's ``mps``) count in the same integers, and add up and divide in float32.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from openauc import _validation as check
from openauc._validation import UNKNOWN
from openauc.metrics.ranking import Ties, warn_if_reversed
from openauc.metrics.samples import CORRECT, UNKNOWN_KIND, WRONG
from openauc.streaming.keys import MANTISSA_BITS, bin_of

try:
    from torchmetrics import Metric
except ImportError:
    raise ImportError("openauc.torch needs torchmetrics: pip install 'openauc[torchmetrics]'.") from None

__all__ = ["AUROC", "ClosedSetAccuracy", "FPRAtTPR", "OpenAUC", "OpenSetMetric", "openauc_score"]

N_KINDS = 3
N_BINS = 1 << 18
"""Bins in constant memory: for each sign, the exponents of 2**-64 to 2**64 with 1,024 bins each."""

_SIDE = N_BINS // 2
_FIRST = (1023 - 64) << MANTISSA_BITS  # among the bins of an accumulator, that of 2**-64
_LARGEST = 2**63 - 1
_PIECE = 21  # bits of a count that take part in a sum of products at a time
_ROUNDING = 1e-14  # as in metrics.ranking


class Batch(NamedTuple):
    """Samples as integers: the key of the score, the kind, and whether the sample can be counted at all."""

    key: Tensor
    kind: Tensor
    counted: Tensor


def score_key(score: Tensor) -> Tensor:
    """Integer in the order of the score, the same as ``openauc.streaming.keys.score_key``.

    >>> score_key(torch.tensor([-1.5, -0.0, 0.0, 5e-324], dtype=torch.float64)).tolist()[1:]
    [0, 0, 1]
    """
    wide = _precision(score.device) is torch.float64
    bits = score.to(torch.float64).view(torch.int64) if wide else _widened_bits(score.to(torch.float32))
    return (bits ^ ((bits >> 63) & _LARGEST)) + (bits == ~_LARGEST)


def _precision(device: torch.device) -> torch.dtype:
    """Of what is divided."""
    return torch.float32 if device.type == "mps" else torch.float64


def _widened_bits(score: Tensor) -> Tensor:
    """Bits that a float32 would have as a float64, by integers alone."""
    bits = score.view(torch.int32).to(torch.int64)
    size = bits & 0x7FFFFFFF
    subnormal = size < 1 << 23  # size times 2**-149, and size is itself a float32
    normal = torch.where(subnormal, size.to(torch.float32).view(torch.int32).to(torch.int64), size)
    exponent = 896 - 149 * subnormal.to(torch.int64) + 896 * (size >= 255 << 23)  # infinite ones have the last
    wide = torch.where(size == 0, 0, (normal << 29) + (exponent << 52))
    return torch.where(bits < 0, wide | ~_LARGEST, wide)


def bin_index(key: Tensor) -> Tensor:
    """Position from 0 of the bin of a key: that of an accumulator, the outermost and innermost ones taken together.

    >>> (bin_index(score_key(torch.tensor([0.0, 1e-30, 1.0, 1.0009, 1.001, 1e30, torch.inf]))) - _SIDE).tolist()
    [0, 0, 65536, 65536, 65537, 131071, 131071]
    """
    number: Tensor = bin_of(key)
    sign = number >> 63
    size = ((number ^ sign) - _FIRST).clamp(0, _SIDE - 1)
    return (size ^ sign) + _SIDE


def read_batch(y_true: Tensor, y_pred: Tensor, open_score: Tensor, unknown_label: int) -> Batch:
    """Check the triple as far as one can without reading from the device; samples that must not be do not count."""
    for name, labels in (("y_true", y_true), ("y_pred", y_pred)):
        if not isinstance(labels, Tensor) or labels.is_floating_point() or labels.is_complex():
            raise TypeError(f"{name} must be a tensor of integers, got {_described(labels)}; convert it with .long().")
    if not isinstance(open_score, Tensor) or not open_score.is_floating_point():
        raise TypeError(
            f"open_score must be a tensor of floating-point numbers, got {_described(open_score)}; "
            "convert it with .double()."
        )
    for name, values in (("y_true", y_true), ("y_pred", y_pred), ("open_score", open_score)):
        if values.ndim != 1:
            raise ValueError(
                f"{name} has shape {tuple(values.shape)}; expected one value per sample, shape (N,). "
                "A matrix of class scores is passed to a metric as logits=."
            )
    check.check_same_length(y_true=y_true, y_pred=y_pred, open_score=open_score)  # type: ignore[arg-type]
    true, pred = y_true.detach().to(torch.int64), y_pred.detach().to(torch.int64)
    unknown = true == unknown_label
    kind = torch.where(unknown, UNKNOWN_KIND, (true == pred).to(torch.int64)).to(torch.uint8)
    score = open_score.detach()
    return Batch(score_key(score), kind, ~torch.isnan(score) & (unknown | (true >= 0)))


def _described(values: object) -> str:
    return str(values.dtype) if isinstance(values, Tensor) else type(values).__name__


def tally(batch: Batch) -> Tensor:
    """(N, N_KINDS) counts at each distinct score, rising; there are as many rows as samples, the last ones zero."""
    key, order = batch.key.sort()
    row = (key.diff(prepend=key[:1]) != 0).cumsum(0)
    counts = key.new_zeros(len(key) * N_KINDS)
    counts.scatter_add_(0, row * N_KINDS + batch.kind[order], batch.counted[order].to(torch.int64))
    return counts.view(-1, N_KINDS)


def _share(part: Tensor, whole: Tensor) -> Tensor:
    precision = _precision(part.device)
    return part.to(precision) / whole.to(precision)


def _n_pairs(one: Tensor, other: Tensor) -> Tensor:
    """Sum of the products of two columns of counts: integers, added up in pieces that cannot overflow."""
    mask, precision = (1 << _PIECE) - 1, _precision(one.device)
    pieces = [(((one >> low) & mask) * other).sum().to(precision) * 2.0**low for low in range(0, 63, _PIECE)]
    return torch.stack(pieces).sum()


def _ranked_right(known: Tensor, counts: Tensor, ties: Ties) -> Tensor:
    """Share of the pairs of any known and any unknown sample in which one of ``known`` comes first."""
    unknown = counts[:, UNKNOWN_KIND]
    credit = _n_pairs(known.cumsum(0) - known, unknown)
    if ties == "half":
        credit = credit + 0.5 * _n_pairs(known, unknown)
    precision = _precision(counts.device)
    return credit / (_known(counts).sum().to(precision) * unknown.sum().to(precision))


def _known(counts: Tensor) -> Tensor:
    return counts[:, WRONG] + counts[:, CORRECT]


def _openauc(counts: Tensor, ties: Ties) -> Tensor:
    return _ranked_right(counts[:, CORRECT], counts, ties)


def _auroc(counts: Tensor, ties: Ties) -> Tensor:
    return _ranked_right(_known(counts), counts, ties)


def _require(counts: Tensor, n_refused: Tensor, unknown_label: int, *, unknown: bool) -> None:
    """Raise where the metric is undefined, warn where scores seem reversed: five numbers are read from the device."""
    wrong, correct, n_unknown, refused = torch.cat([counts.sum(0), n_refused.view(1)]).tolist()
    if refused:
        raise ValueError(
            f"{refused} samples cannot be ranked: their open_score is NaN, or their y_true is negative and not the "
            f"unknown label {unknown_label!r}. Drop them before the update, or set unknown_label."
        )
    check.require_samples(wrong + correct, n_unknown, unknown_label, unknown=unknown)
    if n_unknown:
        warn_if_reversed(float(_auroc(counts, "half")))


def openauc_score(
    y_true: Tensor, y_pred: Tensor, open_score: Tensor, *, ties: Ties = "half", unknown_label: int = UNKNOWN
) -> Tensor:
    """``openauc.openauc_score`` of tensors, as a tensor on their device.

    The samples stay there; five numbers are read, to raise an error where the metric is undefined.

    >>> y_true, y_pred = torch.tensor([0, 1, 1, -1, -1]), torch.tensor([0, 1, 0, 1, 0])
    >>> openauc_score(y_true, y_pred, torch.tensor([0.1, 0.6, 0.2, 0.5, 0.9]))
    tensor(0.5000, dtype=torch.float64)
    """
    check.check_choice("ties", ties, ("half", "strict"))
    batch = read_batch(y_true, y_pred, open_score, unknown_label)
    counts = tally(batch)
    _require(counts, (~batch.counted).sum(), unknown_label, unknown=True)
    return _openauc(counts, ties)


class OpenSetMetric(Metric):
    """A metric of the counts of wrong, correct and unknown samples in order of their score.

    *Exact* (the default): keeps the integer key of every score, nine bytes per sample.

    *Constant memory* (``exact=False``): counts samples in the bins of ``openauc.Accumulator``, which tell scores apart
    to a thousandth of their magnitude; samples of a bin count as tied, and ``bounds`` certifies what that may have
    cost. The table is dense, 10 MB at all times, and spans magnitudes from 2**-64 (5e-20) to 2**64 (2e19): smaller ones
    of a sign share a bin, and so do larger ones. Within, float16 and bfloat16 numbers have bins of their own, and the
    value is exact.

    ``update`` and ``forward`` never read from the device. A batch of its own may lack known or unknown samples: there
    ``forward`` returns NaN. ``compute``, ``bounds`` and ``openauc_score`` raise an error instead.

    Members of one ``MetricCollection`` with the same options share their state. To write a metric of one's own, define
    ``value_of``.

    Parameters
    ----------
    exact
        Whether to keep every score.
    unknown_label
        The label of unknown samples.
    kwargs
        Those of every ``torchmetrics.Metric``, such as ``sync_on_compute``.
    """

    is_differentiable = False
    higher_is_better = True
    full_state_update = False
    plot_lower_bound = 0.0
    plot_upper_bound = 1.0
    needs_unknown = True
    """Whether there must be unknown samples."""

    key: list[Tensor] | Tensor
    kind: list[Tensor] | Tensor
    counts: Tensor
    low: Tensor
    high: Tensor
    n_refused: Tensor

    def __init__(self, *, exact: bool = True, unknown_label: int = UNKNOWN, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not isinstance(unknown_label, int):
            raise TypeError(f"unknown_label is {unknown_label!r}; tensors hold integers, so pass an integer.")
        self.exact, self.unknown_label, self._of_batch = exact, unknown_label, False
        self.add_state("n_refused", torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")
        if exact:
            self.add_state("key", [], dist_reduce_fx="cat")
            self.add_state("kind", [], dist_reduce_fx="cat")
            return
        self.add_state("counts", torch.zeros((N_BINS, N_KINDS), dtype=torch.int64), dist_reduce_fx="sum")
        # Smallest and largest key of a bin: where they are equal, its ties are ties.
        self.add_state("low", torch.full((N_BINS,), _LARGEST), dist_reduce_fx="min")
        self.add_state("high", torch.full((N_BINS,), ~_LARGEST), dist_reduce_fx="max")

    @abstractmethod
    def value_of(self, counts: Tensor) -> Tensor:
        """The metric of (bins, 3) counts of wrong, correct and unknown samples, bins in order of the score.

        Must not read from the device; its value does not matter where there are no known or no unknown samples.
        """

    def update(
        self,
        y_true: Tensor,
        y_pred: Tensor | None = None,
        open_score: Tensor | None = None,
        *,
        logits: Tensor | None = None,
    ) -> None:
        """Add (N,) samples; (N, classes) ``logits`` stand for their arg max and minus their maximum."""
        if logits is not None:
            if y_pred is not None or open_score is not None:
                raise TypeError("logits stand for y_pred and open_score; pass the two, or logits, not both.")
            if logits.ndim != 2 or not logits.shape[1]:
                raise ValueError(f"logits have shape {tuple(logits.shape)}; expected (N, number of classes).")
            largest, y_pred = logits.detach().max(dim=1)
            open_score = -largest
        if y_pred is None or open_score is None:
            raise TypeError("update needs y_pred and open_score beside y_true, or logits=.")
        batch = read_batch(y_true, y_pred, open_score, self.unknown_label)
        self.n_refused = self.n_refused + (~batch.counted).sum()
        if self.exact:
            assert isinstance(self.key, list)
            assert isinstance(self.kind, list)
            self.key.append(batch.key)
            self.kind.append(torch.where(batch.counted, batch.kind, N_KINDS))
        else:
            self._count(batch)

    def _count(self, batch: Batch) -> None:
        for name in ("counts", "low", "high"):
            if getattr(self, name).is_inference() and not torch.is_inference_mode_enabled():
                setattr(self, name, getattr(self, name).clone())  # others cannot be changed in place
        place = bin_index(batch.key)
        cell = place * N_KINDS + batch.kind
        self.counts.view(-1).scatter_add_(0, cell, batch.counted.to(torch.int64))
        self.low.scatter_reduce_(0, place, batch.key, "amin")
        self.high.scatter_reduce_(0, place, batch.key, "amax")

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Add samples as ``update`` does; their own value, NaN where they have none."""
        self._of_batch = True
        try:
            return super().forward(*args, **kwargs)
        finally:
            self._of_batch = False

    def compute(self) -> Tensor:
        """The metric of all samples so far, of all processes."""
        counts = self._table()
        if self._of_batch:
            return self._value_if_any(counts)
        _require(counts, self.n_refused, self.unknown_label, unknown=self.needs_unknown)
        return self.value_of(counts)

    def _value_if_any(self, counts: Tensor) -> Tensor:
        defined = (self.n_refused == 0) & (_known(counts).sum() > 0)
        if self.needs_unknown:
            defined = defined & (counts[:, UNKNOWN_KIND].sum() > 0)
        return torch.where(defined, self.value_of(counts), torch.nan)

    def _table(self) -> Tensor:
        if not self.exact:
            return self.counts
        key, kind = _united(self.key, self.device), _united(self.kind, self.device)
        counted = kind < N_KINDS
        return tally(Batch(key, torch.where(counted, kind, WRONG), counted))

    @property
    def bounds(self) -> tuple[Tensor, Tensor]:
        """Certified: the exact value of all samples so far lies between the two; equal if ``exact``.

        Synchronises as ``compute`` does, so with several processes all of them must ask.
        """
        with self.sync_context(
            dist_sync_fn=self.dist_sync_fn, should_sync=self._to_sync, should_unsync=self._should_unsync
        ):
            counts = self._table()
            _require(counts, self.n_refused, self.unknown_label, unknown=self.needs_unknown)
            tied = torch.ones_like(counts[:, 0], dtype=torch.bool) if self.exact else self.low == self.high
            ends = [self.value_of(_in_order(counts, tied, known_first=first)) for first in (False, True)]
        return torch.minimum(*ends), torch.maximum(*ends)

    def sync(self, *args: Any, **kwargs: Any) -> None:
        """Gather the state of all processes; one that has seen no sample brings an empty tensor of the right type."""
        if self.exact and not len(self.key):
            self.key = [torch.empty(0, dtype=torch.int64, device=self.device)]
            self.kind = [torch.empty(0, dtype=torch.uint8, device=self.device)]
        super().sync(*args, **kwargs)

    def set_dtype(self, dst_type: str | torch.dtype) -> OpenSetMetric:
        """Nothing to do: counts and keys are integers, and the result has the largest precision of the device."""
        return self

    def plot(self, val: Tensor | Sequence[Tensor] | None = None, ax: Any = None) -> Any:
        """Draw the value, or several of them, one per step; needs matplotlib. Returns figure and axes."""
        return self._plot(val, ax)


def _united(state: list[Tensor] | Tensor, device: torch.device) -> Tensor:
    """All parts of a state, which is a single tensor once processes were synchronised."""
    if isinstance(state, Tensor):
        return state
    return torch.cat(state) if state else torch.empty(0, dtype=torch.int64, device=device)


def _in_order(counts: Tensor, tied: Tensor, *, known_first: bool) -> Tensor:
    """Two rows for each bin whose samples may have several scores: known samples in the first one, or unknown ones."""
    first = torch.zeros_like(counts)
    early = [WRONG, CORRECT] if known_first else [UNKNOWN_KIND]
    for kind in early:
        first[:, kind] = counts[:, kind]
    first = torch.where(tied[:, None], counts, first)
    return torch.stack([first, counts - first], dim=1).flatten(0, 1)


class OpenAUC(OpenSetMetric):
    """Probability that a known sample is classified correctly and ranked below an unknown one.

    See ``openauc.openauc_score``; ``ties`` is the credit of a pair with equal scores, "half" or "strict" (none). Other
    options are those of ``OpenSetMetric``.

    >>> metric = OpenAUC()
    >>> metric.update(torch.tensor([0, 1, 1]), torch.tensor([0, 1, 0]), torch.tensor([0.1, 0.6, 0.2]))
    >>> metric.update(torch.tensor([-1, -1]), torch.tensor([1, 0]), torch.tensor([0.5, 0.9]))
    >>> metric.compute()
    tensor(0.5000, dtype=torch.float64)
    """

    def __init__(self, *, ties: Ties = "half", exact: bool = True, unknown_label: int = UNKNOWN, **kwargs: Any) -> None:
        super().__init__(exact=exact, unknown_label=unknown_label, **kwargs)
        check.check_choice("ties", ties, ("half", "strict"))
        self.ties: Ties = ties

    def value_of(self, counts: Tensor) -> Tensor:
        """OpenAUC of counts."""
        return _openauc(counts, self.ties)


class AUROC(OpenSetMetric):
    """Probability that an unknown sample is ranked above a known one; see ``openauc.auroc_score``."""

    def __init__(self, *, ties: Ties = "half", exact: bool = True, unknown_label: int = UNKNOWN, **kwargs: Any) -> None:
        super().__init__(exact=exact, unknown_label=unknown_label, **kwargs)
        check.check_choice("ties", ties, ("half", "strict"))
        self.ties: Ties = ties

    def value_of(self, counts: Tensor) -> Tensor:
        """AUROC of counts."""
        return _auroc(counts, self.ties)


class ClosedSetAccuracy(OpenSetMetric):
    """Share of the known samples whose class is right; see ``openauc.closed_set_accuracy``."""

    needs_unknown = False

    def value_of(self, counts: Tensor) -> Tensor:
        """Accuracy of counts."""
        return _share(counts[:, CORRECT].sum(), _known(counts).sum())


class FPRAtTPR(OpenSetMetric):
    """Share of known samples rejected where at least ``tpr`` of the unknown ones are; see ``openauc.fpr_at_tpr``."""

    higher_is_better = False

    def __init__(self, *, tpr: float = 0.95, exact: bool = True, unknown_label: int = UNKNOWN, **kwargs: Any) -> None:
        super().__init__(exact=exact, unknown_label=unknown_label, **kwargs)
        self.tpr = check.check_fraction("tpr", tpr)

    def value_of(self, counts: Tensor) -> Tensor:
        """False positive rate of counts."""
        known, unknown = _known(counts).cumsum(0), counts[:, UNKNOWN_KIND].cumsum(0)
        n_known, n_unknown = _known(counts).sum(), counts[:, UNKNOWN_KIND].sum()
        found = self.tpr * n_unknown.to(_precision(counts.device)) * (1.0 - _ROUNDING)
        most = n_unknown - found.ceil().to(torch.int64)  # unknown samples that may be accepted
        accepted = pad(torch.where(unknown <= most, known, 0), (1, 0)).max()  # or none at all
        return 1.0 - _share(accepted, n_known)
