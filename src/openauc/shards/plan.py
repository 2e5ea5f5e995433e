"""What is to be counted in every shard, and how."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from openauc import _validation as check
from openauc._columns import Columns
from openauc._files import PathLike
from openauc._validation import UNKNOWN, Label
from openauc.predictions import Predictions
from openauc.streaming import Accumulator

_LOGITS, _LOGIT_PREFIX = "logits", "logit_"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Columns, slices and accumulators; the same for all shards, or their counts could not be merged.

    Parameters
    ----------
    label_column, pred_column, score_column, lower_is_unknown
        As ``Predictions.load`` takes them.
    unknown_label
        The label of unknown samples.
    by
        Columns of slices.
    exact, per_class
        As ``Accumulator`` takes them.
    """

    label_column: str = "y_true"
    pred_column: str = "y_pred"
    score_column: str = "open_score"
    lower_is_unknown: bool = False
    unknown_label: Label = UNKNOWN
    by: tuple[str, ...] = ()
    exact: bool = True
    per_class: bool = False

    def __str__(self) -> str:
        """All of it, as text: plans that count the same are spelled the same."""
        return json.dumps(asdict(self), sort_keys=True)

    def needed(self, names: Sequence[str]) -> list[str]:
        """Of the columns with these names those to read: all, if the ones that are needed are not there.

        >>> Plan().needed(["image", "y_true", "y_pred", "open_score", "logits"])
        ['y_true', 'y_pred', 'open_score']
        >>> Plan().needed(["image", "y_true", "logit_cat", "logit_dog"])
        ['y_true', 'logit_cat', 'logit_dog']
        >>> Plan().needed(["image", "label"])
        ['image', 'label']
        """
        found = [name for name in names if name in (self.label_column, self.pred_column, self.score_column)]
        if len(found) < 3:
            found += [_LOGITS] if _LOGITS in names else [name for name in names if name.startswith(_LOGIT_PREFIX)]
        return found if self.label_column in found and len(found) > 1 else list(names)

    def predictions(self, columns: Columns, path: PathLike) -> Predictions:
        """The triple of some columns of a file; columns by other names raise ``MissingColumns``."""
        label, pred = self.label_column, self.pred_column
        if {label, pred} <= set(columns) and columns[label].dtype.kind == "U" != columns[pred].dtype.kind:
            columns = self._same_kind(columns)
        return Predictions.from_columns(
            columns,
            path=path,
            label_column=label,
            pred_column=pred,
            score_column=self.score_column,
            lower_is_unknown=self.lower_is_unknown,
        )

    def _same_kind(self, columns: Columns) -> Columns:
        """Of classes 0, 1, 2 and "other" a batch may hold unknown samples alone, which do not show that 0 is a name."""
        if not check.is_label(columns[self.label_column], self.unknown_label).all():
            return columns
        return {**columns, self.pred_column: check.as_text(check.as_labels("y_pred", columns[self.pred_column]))}

    def accumulator(self) -> Accumulator:
        """An empty one."""
        return Accumulator(exact=self.exact, per_class=self.per_class, unknown_label=self.unknown_label)
