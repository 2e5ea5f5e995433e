"""Sentences of the page: who is better, what was lost, and what the audit found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from openauc.audit import Audit, Construction
from openauc.comparison import Comparison, Difference
from openauc.evaluation import Evaluation
from openauc.metrics.registry import METRICS
from openauc.report.page import interval, p_value, percent, signed

SURE = 0.05
"""Differences with a smaller p-value are called one."""


def headline(evaluations: Mapping[str, Evaluation], comparison: Comparison | None) -> str:
    """The page in one sentence."""
    ordered = sorted(evaluations, key=lambda name: -evaluations[name].openauc)
    best = ordered[0]
    score = f"an OpenAUC of {percent(evaluations[best].openauc)} ({interval(evaluations[best].intervals['openauc'])})"
    if len(ordered) == 1:
        return f"{best} reaches {score}."
    second = ordered[1]
    difference = None if comparison is None else _between(comparison, best, second)
    if difference is None:
        return f"{best} reaches {score}, ahead of {second} with {percent(evaluations[second].openauc)}."
    if difference.p_holm < SURE:
        points = signed(abs(difference.difference)).lstrip("+")
        sure = f"p {p_value(difference.p_holm)}" if difference.p_holm < 0.001 else f"p = {p_value(difference.p_holm)}"
        return f"{best} is better than {second} by {points} points, with {score}; {sure}."
    return f"{best} reaches {score}, but {second} is too close to call (p = {p_value(difference.p_holm)})."


def _between(comparison: Comparison, one: str, other: str) -> Difference | None:
    pairs = (d for d in comparison.differences if d.metric == "openauc" and {d.a, d.b} == {one, other})
    return next(pairs, None)


def meaning(evaluations: Mapping[str, Evaluation]) -> str:
    """What the value of the best model says of pairs of samples."""
    best = max(evaluations, key=lambda name: evaluations[name].openauc)
    count = round(100 * evaluations[best].openauc)
    return (
        f"Show {best} a known and an unknown sample. In {count} of 100 such pairs it names the class of the known one "
        "and finds the unknown one more unknown."
    )


def losses(evaluation: Evaluation) -> str:
    """Where the rest went: 1 - OpenAUC = (1 - Acc) + (Acc - OpenAUC)."""
    wrong = 1.0 - evaluation.closed_set_accuracy
    ranked = evaluation.closed_set_accuracy - evaluation.openauc
    larger = "naming classes" if wrong > ranked else "telling known from unknown"
    return (
        f"{percent(wrong)} is lost to known samples of the wrong class and {percent(ranked)} to right ones that look "
        f"more unknown than an unknown sample: most is to be gained in {larger}."
    )


class Story(NamedTuple):
    """A construction told: heading, sentences, and (metric, before, after) to draw."""

    title: str
    text: str
    changes: tuple[tuple[str, float, float], ...]


_LABELS = {**{name: metric.label for name, metric in METRICS.items()}, "unknown_tpr": "unknown samples rejected"}
_SHOWN = {
    "Prop. 1": ("macro_f_score", "unknown_tpr", "openauc"),
    "Prop. 2": ("normalized_accuracy", "unknown_tpr", "openauc"),
    "Prop. 3": ("closed_set_accuracy", "auroc", "acc_times_auc", "openauc"),
}


def stories(audit: Audit) -> list[Story]:
    """One story per proposition; of two attempts at the first the one that got furthest."""
    found: dict[str, Construction] = {}
    for construction in audit.constructions:
        known = found.get(construction.proposition)
        if known is None or construction.complete:
            found[construction.proposition] = construction
    tell = {"Prop. 1": _same_f_score, "Prop. 2": _better_accuracy, "Prop. 3": _same_parts}
    return [
        Story(
            *(tell[proposition](c) if c.n_exchanges else ("Nothing to exchange here", c.reaction)),
            tuple((_LABELS[name], c.before[name], c.after[name]) for name in _SHOWN[proposition]),
        )
        for proposition, c in found.items()
    ]


def _same_f_score(c: Construction) -> tuple[str, str]:
    fate = "accepts every unknown sample" if c.after["unknown_tpr"] == 0 else "accepts many more unknown samples"
    return (
        f"The same F-score, and it {fate}",
        f"Let {_samples(c, 'rejected unknown')} trade places with as many accepted but misclassified known "
        f"ones. Every class keeps its hits and its false alarms, so the F-score "
        f"stays at {percent(c.after['macro_f_score'])}. Unknown samples rejected go {_from_to(c, 'unknown_tpr')}. "
        f"{_openauc(c)}",
    )


def _better_accuracy(c: Construction) -> tuple[str, str]:
    rose = c.after["normalized_accuracy"] > c.before["normalized_accuracy"]
    return (
        f"{'A better' if rose else 'The same'} normalized accuracy, and fewer unknown samples are rejected",
        f"Accept {_samples(c, 'rejected unknown')}, and each time set one known sample right. Normalized "
        f"accuracy goes {_from_to(c, 'normalized_accuracy')}, unknown samples rejected {_from_to(c, 'unknown_tpr')}. "
        f"{_openauc(c)}",
    )


def _same_parts(c: Construction) -> tuple[str, str]:
    return (
        "The same accuracy and AUROC, and worse where both count",
        f"Let {_samples(c, 'misclassified known')} trade scores with correct ones, so that the mistakes are "
        f"accepted first. Accuracy stays at {percent(c.after['closed_set_accuracy'])} and AUROC at "
        f"{percent(c.after['auroc'])}, and so does whatever combines the two. {_openauc(c)}",
    )


def _samples(c: Construction, kind: str) -> str:
    return f"{c.n_exchanges:,} {kind} sample{'' if c.n_exchanges == 1 else 's'}"


def _openauc(c: Construction) -> str:
    before, after = c.before["openauc"], c.after["openauc"]
    if after == before:
        return f"OpenAUC stays at {percent(before)}: on these samples no pair changes."
    return f"OpenAUC {'falls' if after < before else 'rises'} {_from_to(c, 'openauc')}."


def _from_to(c: Construction, name: str) -> str:
    """Both values, with as many digits as tell them apart."""
    before, after = c.before[name], c.after[name]
    digits = next((d for d in (1, 2, 3) if percent(before, d) != percent(after, d)), 4)
    return f"from {percent(before, digits)} to {percent(after, digits)}"


def table1(audit: Audit) -> tuple[Sequence[str], list[dict[str, Any]]]:
    """The paper's Table 1 as these samples show it: columns, and rows of answers with their reasons."""
    table = audit.table1()
    columns = list(next(iter(table.values())))
    rows = [{"metric": metric, "verdicts": [verdicts[c] for c in columns]} for metric, verdicts in table.items()]
    return columns, rows
