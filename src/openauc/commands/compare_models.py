"""``openauc compare-models``: what has become better and worse between two models, class by class."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.text import Text
from typer import Argument, Option

from openauc._columns import suffix_of, write_columns
from openauc.commands.fit import EmbeddingColumn, LabelColumn
from openauc.commands.predict import read_like_model
from openauc.commands.terminal import bounds_text, p_text, say, say_wrapped, show

if TYPE_CHECKING:
    from openauc.features.classifier.changes import Changes, ClassChange

_MOST_CLASSES = 20  # that are shown
_NOTE = "* known to one model only; the right answer of the other model is to reject"


def compare_models(
    old: Annotated[Path, Argument(metavar="OLD", help="Folder of a model.")],
    new: Annotated[Path, Argument(metavar="NEW", help="Folder of another model.")],
    labelled: Annotated[Path, Argument(metavar="TABLE", help="Labelled embeddings, texts or images.")],
    out: Annotated[Path | None, Option("--out", "-o", metavar="FILE", help="All classes: .csv or .parquet.")] = None,
    label_column: LabelColumn = None,
    embedding_column: EmbeddingColumn = None,
) -> None:
    """Tell what is better and worse in a second model.

    Both are compared class by class, on rows with labels. If a model does not know the class of a row, its right answer
    is to reject the row. A class is called better or worse if the change is significant: McNemar's exact test at 5 %,
    corrected for the number of classes (Holm).

    Example: openauc compare-models model model2 test.parquet
    """
    if out is not None:
        suffix_of(out)  # before the work
    from openauc.features import OpenSetClassifier
    from openauc.features.classifier.changes import changes

    columns = {"label_column": label_column, "embedding_column": embedding_column}
    models = [OpenSetClassifier.load(folder) for folder in (old, new)]
    table = read_like_model(old, models[0], labelled, **columns)
    if not table.labelled:
        gaps = sum(label is None for label in table.labels.tolist())
        raise ValueError(f"{labelled}: {gaps:,} rows have no label in column {table.spec.label!r}; label or drop them.")
    same = models[0].table_spec_ == models[1].table_spec_ and models[0].n_features_in_ == models[1].n_features_in_
    other = table if same else read_like_model(new, models[1], labelled, **columns)
    found = changes(models[0], models[1], table.features, other.features, table.labels)
    _show(found, old, new, labelled)
    if out is not None:
        write_columns(out, found.columns())
        say(f"{len(found.classes):,} classes in {out}")


def _show(found: Changes, old: Path, new: Path, table: Path) -> None:
    sure = [one for one in found.classes if one.significant]
    better = sum(one.after > one.before for one in sure)
    right, given = found.right, found.named
    say_wrapped(
        f"{right.value_a:.1%} of the answers are right instead of {right.value_b:.1%}, and {given.value_a:.1%} of the "
        f"rows are given their class instead of {given.value_b:.1%}. Significant changes: {better} "
        f"class{'es' * (better != 1)} better, {len(sure) - better} worse.",
        style="bold",
    )
    rows = [
        (name, f"{one.value_b:.4f}", f"{one.value_a:.4f}", f"{one.difference:+.4f}", bounds_text(one.interval))
        for name, one in (("right answers", right), ("rows given their class", given))
    ]
    by_name = [{one.name: one for one in verdict.findings} for verdict in (found.old, found.new)]
    for name in ("known rows accepted", "unknown rows rejected", "OpenAUC"):
        values = [one.get(name) for one in by_name]
        before, after = ("" if value is None else f"{value.value:.4f} of {value.n:,}" for value in values)
        rows.append((name, before, after, "", ""))
    caption = "right answers: the class of a row, or to reject it if the model does not know its class"
    if any(one.known[0] != one.known[1] for one in found.classes):
        caption += "\nthe last three lines cannot be compared: other rows are unknown to each model"
    show(
        f"{new} after {old}, on {found.n:,} rows of {table}",
        ("", "before", "after", "change", "95 % interval"),
        rows,
        caption,
    )
    changed = [one for one in found.classes if one.better or one.worse]
    if not changed:
        say_wrapped("No row is answered right by one of the models only.")
        return
    left = len(changed) - _MOST_CLASSES
    notes = [_NOTE] if any(one.known[0] != one.known[1] for one in changed) else []
    notes += [f"{left} more classes changed; --out writes all"] if left > 0 else []
    show(
        f"Right answers by class, for the {len(changed)} of {len(found.classes)} classes that changed",
        ("class", "rows", "before", "after", "better", "worse", "p (Holm)", ""),
        map(_line, changed[:_MOST_CLASSES]),
        "\n".join(notes),
    )


def _line(one: ClassChange) -> tuple[str | Text, ...]:
    counts = (f"{count:,}" for count in (one.rows, one.before, one.after, one.better, one.worse))
    told = ("better" if one.after > one.before else "worse") if one.significant else ""
    name = one.name if one.known[0] == one.known[1] else f"{one.name} *"
    return name, *counts, p_text(one.p_holm), Text(told, style="bold red" if told == "worse" else "")
