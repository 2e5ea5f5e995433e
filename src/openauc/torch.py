"""Open-set metrics of tensors, for training loops: ``pip install 'openauc[torchmetrics]'``.

``OpenAUC``, ``AUROC``, ``ClosedSetAccuracy`` and ``FPRAtTPR`` are metrics of torchmetrics; ``OpenSetMetric`` takes the
name of any other metric of the rank table. ``openauc_score`` is for tensors at hand. Scores are kept as integers in the
same order, and ``compute`` ranks these on the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from openauc import _validation as check
from openauc._validation import UNKNOWN
from openauc.metrics.rank_table import RankTable, cumulative, extreme_orders
from openauc.metrics.ranking import Ties, auroc_of, fpr_at_tpr_of, warn_if_reversed
from openauc.metrics.registry import METRICS, TableMetric, standard_metrics
from openauc.metrics.samples import CORRECT, UNKNOWN_KIND, WRONG, key_of_bits
from openauc.streaming.rows import MANTISSA_BITS, bin_of, key_score

try:
    import torch
    from torch import Tensor
    from torchmetrics import Metric
except ImportError as error:
    raise ImportError(f"openauc.torch needs {error.name}: pip install 'openauc[torchmetrics]'.") from None

__all__ = ["AUROC", "ClosedSetAccuracy", "FPRAtTPR", "OpenAUC", "OpenSetMetric", "openauc_score"]

N_KINDS = 3
N_BINS = 1 << 18  # bins in constant memory: for each sign, the exponents of 2**-64 to 2**64 with 1,024 bins each

_SIDE = N_BINS // 2
_FIRST = (1023 - 64) << MANTISSA_BITS  # among the bins of an accumulator, that of 2**-64
_LARGEST = 2**63 - 1


def score_key(score: Tensor) -> Tensor:
    """Integer in the order of the score, the same as ``openauc.streaming.rows.score_key``."""
    host = score if _precision(score.device) is torch.float64 else score.cpu()
    key: Tensor = key_of_bits(host.to(torch.float64).view(torch.int64), _LARGEST)
    return key.to(score.device)


def _precision(device: torch.device) -> torch.dtype:
    """Type of the values; Apple's ``mps`` has no float64."""
    return torch.float32 if device.type == "mps" else torch.float64


def bin_index(key: Tensor) -> Tensor:
    """Position of the bin of a key: as in an accumulator, with all outermost and all innermost bins as one."""
    number: Tensor = bin_of(key)
    sign = number >> 63
    size = ((number ^ sign) - _FIRST).clamp(0, _SIDE - 1)
    return (size ^ sign) + _SIDE


def read_batch(y_true: Tensor, y_pred: Tensor, open_score: Tensor, unknown_label: int) -> tuple[Tensor, Tensor, Tensor]:
    """Key of the score, kind, and whether the sample counts at all; nothing is read from the device."""
    arrays: Any = {"y_true": y_true, "y_pred": y_pred, "open_score": open_score}
    for name, values in arrays.items():
        floats = name == "open_score"
        found = values.dtype if isinstance(values, Tensor) else type(values).__name__
        if not isinstance(found, torch.dtype) or found.is_complex or found.is_floating_point != floats:
            wanted, remedy = ("floating-point numbers", "double") if floats else ("integers", "long")
            raise TypeError(f"{name} must be a tensor of {wanted}, got {found}; convert it with .{remedy}().")
        if values.ndim != 1:
            shape = f"{name} has shape {tuple(values.shape)}; expected one value per sample, shape (N,)"
            raise ValueError(f"{shape}. A matrix of class scores is passed to a metric as logits=.")
    check.check_same_length(**arrays)
    true, pred, score = y_true.detach().to(torch.int64), y_pred.detach().to(torch.int64), open_score.detach()
    unknown = true == unknown_label
    kind = torch.where(unknown, UNKNOWN_KIND, (true == pred).to(torch.int64)).to(torch.uint8)
    return score_key(score), kind, ~torch.isnan(score) & (unknown | (true >= 0))


def openauc_score(
    y_true: Tensor, y_pred: Tensor, open_score: Tensor, *, ties: Ties = "half", unknown_label: int = UNKNOWN
) -> Tensor:
    """``openauc.openauc_score`` of tensors, as a tensor on their device.

    >>> y_true, y_pred = torch.tensor([0, 1, 1, -1, -1]), torch.tensor([0, 1, 0, 1, 0])
    >>> openauc_score(y_true, y_pred, torch.tensor([0.1, 0.6, 0.2, 0.5, 0.9]))
    tensor(0.5000, dtype=torch.float64)
    """
    metric = OpenAUC(ties=ties, unknown_label=unknown_label, sync_on_compute=False)
    metric.update(y_true, y_pred, open_score)
    return torch.as_tensor(metric.compute(), device=open_score.device)


class OpenSetMetric(Metric):
    """A metric of the rank table of all samples.

    ``update`` never reads from the device; ``forward``, ``compute`` and ``bounds`` do. Where known or unknown samples
    are missing, ``forward`` returns NaN; ``compute`` and ``bounds`` raise an error. Members of one ``MetricCollection``
    with the same options share their state.

    Parameters
    ----------
    metric
        Name in ``openauc.METRICS`` of a metric that needs the ranks alone, such as "average_precision_unknown", or a
        ``TableMetric``.
    exact
        Whether to keep every score, nine bytes per sample. If not, samples are counted in bins, 10 MB in all, that tell
        scores apart to a thousandth of their magnitude, from 2**-64 (5e-20) to 2**64 (2e19). Samples of a bin count as
        tied, and ``bounds`` certifies what that may have cost. float16 and bfloat16 scores in that range stay exact.
    unknown_label
        The label of unknown samples.
    kwargs
        Those of every ``torchmetrics.Metric``, such as ``sync_on_compute``.

    Examples
    --------
    >>> metric = OpenSetMetric("detection_accuracy")
    >>> metric.update(torch.tensor([0, 0, -1]), torch.tensor([0, 0, 0]), torch.tensor([0.1, 0.6, 0.9]))
    >>> metric.compute()
    tensor(1., dtype=torch.float64)
    """

    is_differentiable = False
    full_state_update = False
    plot_lower_bound = 0.0
    plot_upper_bound = 1.0

    key: Any  # a list of tensors; a tensor once processes were synchronised
    kind: Any
    counts: Tensor
    low: Tensor
    high: Tensor
    n_refused: Tensor

    def __init__(
        self, metric: str | TableMetric, *, exact: bool = True, unknown_label: int = UNKNOWN, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        if not isinstance(unknown_label, int):
            raise TypeError(f"unknown_label is {unknown_label!r}; tensors hold integers, so pass an integer.")
        tables = {name: entry for name, entry in METRICS.items() if isinstance(entry, TableMetric)}
        self.metric = tables[check.check_choice("metric", metric, tables)] if isinstance(metric, str) else metric
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

    @property
    def higher_is_better(self) -> bool:  # type: ignore[override]
        """Direction of the metric."""
        return self.metric.better == "higher"

    def update(
        self, y_true: Tensor, y_pred: Any = None, open_score: Any = None, *, logits: Tensor | None = None
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
        key, kind, counted = read_batch(y_true, y_pred, open_score, self.unknown_label)
        self.n_refused = self.n_refused + (~counted).sum()
        if self.exact:
            self.key.append(key)
            self.kind.append(torch.where(counted, kind, N_KINDS))
            return
        for name in ("counts", "low", "high"):
            if getattr(self, name).is_inference() and not torch.is_inference_mode_enabled():
                setattr(self, name, getattr(self, name).clone())  # others cannot be changed in place
        place = bin_index(key)
        self.counts.view(-1).scatter_add_(0, place * N_KINDS + kind, counted.to(torch.int64))
        self.low.scatter_reduce_(0, place, key, "amin")
        self.high.scatter_reduce_(0, place, key, "amax")

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Add samples as ``update`` does; their own value, NaN where they have none."""
        self._of_batch = True
        try:
            return super().forward(*args, **kwargs)
        finally:
            self._of_batch = False

    def compute(self) -> Tensor:
        """The metric of all samples so far, of all processes."""
        table, _ = self._table()
        if not self._of_batch:
            self._require(table)
        elif self.n_refused or not table.n_known or (self.metric.needs_unknown and not table.n_unknown):
            return self._tensor(np.nan)
        return self._tensor(self.metric.of_table(table))

    def _tensor(self, value: Any) -> Tensor:
        return torch.tensor(float(value), dtype=_precision(self.device), device=self.device)

    def _table(self) -> tuple[RankTable, Any]:
        """The rank table, and for each bin whether all its scores are equal."""
        if self.exact:
            key, kind = _united(self.key), _united(self.kind)
            high, row = np.unique(key[kind < N_KINDS], return_inverse=True)
            cells = np.bincount(row * N_KINDS + kind[kind < N_KINDS], minlength=len(high) * N_KINDS)
            counts, low = cells.reshape(-1, N_KINDS), high
        else:
            counts, low, high = (state.cpu().numpy() for state in (self.counts, self.low, self.high))
            held = counts.any(axis=1)
            counts, low, high = counts[held], low[held], high[held]
        known = counts[:, WRONG] + counts[:, CORRECT]
        return cumulative(key_score(high), known, counts[:, CORRECT], counts[:, UNKNOWN_KIND]), low == high

    def _require(self, table: RankTable) -> None:
        """Raise where the metric is undefined, warn where scores seem reversed."""
        if self.n_refused:
            raise ValueError(
                f"{int(self.n_refused)} samples cannot be ranked: their open_score is NaN, or their y_true is negative "
                f"and not the unknown label {self.unknown_label!r}. Drop them before the update, or set unknown_label."
            )
        n_known, n_unknown = int(table.n_known), int(table.n_unknown)
        check.require_samples(n_known, n_unknown, self.unknown_label, unknown=self.metric.needs_unknown)
        if n_unknown:
            warn_if_reversed(float(auroc_of(table)))

    @property
    def bounds(self) -> tuple[Tensor, Tensor]:
        """Certified: the exact value of all samples so far lies between the two; equal if ``exact``.

        For monotone metrics only. All processes must ask, since it synchronises them as ``compute`` does.
        """
        options: dict[str, Any] = {"should_sync": self._to_sync, "should_unsync": self._should_unsync}
        with self.sync_context(dist_sync_fn=self.dist_sync_fn, **options):
            table, pure = self._table()
            self._require(table)
        value = float(self.metric.of_table(table))
        found = (value, value) if pure.all() else self.metric.bounds(*extreme_orders(table, pure))
        if found is None:
            label = self.metric.label
            raise TypeError(f"bins do not bound the metric {label!r}, which is not monotone; use exact=True.")
        return self._tensor(found[0]), self._tensor(found[1])

    def sync(self, *args: Any, **kwargs: Any) -> None:
        """Gather the state of all processes; one that has seen no sample sends an empty tensor of the right type."""
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


def _united(state: Any) -> Any:
    """All parts of a state as an array."""
    parts = [state] if isinstance(state, Tensor) else state
    return np.concatenate([part.cpu().numpy() for part in parts]) if parts else np.empty(0, dtype=np.int64)


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

    name = "openauc"

    def __init__(self, *, ties: Ties = "half", **kwargs: Any) -> None:
        check.check_choice("ties", ties, ("half", "strict"))
        metric: Any = standard_metrics(ties=ties)[self.name]
        super().__init__(metric, **kwargs)


class AUROC(OpenAUC):
    """Probability that an unknown sample is ranked above a known one; see ``openauc.auroc_score``."""

    name = "auroc"


class ClosedSetAccuracy(OpenSetMetric):
    """Share of the known samples whose class is right; see ``openauc.closed_set_accuracy``."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__("closed_set_accuracy", **kwargs)


class FPRAtTPR(OpenSetMetric):
    """Share of known samples rejected where at least ``tpr`` of the unknown ones are; see ``openauc.fpr_at_tpr``."""

    def __init__(self, *, tpr: float = 0.95, **kwargs: Any) -> None:
        super().__init__("fpr_at_95tpr", **kwargs)
        self.metric = replace(self.metric, of_table=partial(fpr_at_tpr_of, tpr=check.check_fraction("tpr", tpr)))
