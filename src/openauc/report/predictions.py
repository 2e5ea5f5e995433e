"""The report on predictions: which model is better, where it fails, which threshold to use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import ArrayLike

from openauc._validation import UNKNOWN, Label, as_vector, check_same_length
from openauc.audit import Construction, audit_ranked
from openauc.comparison import compare_ranked, require_same_samples
from openauc.intervals import REPLICATES, seed_of
from openauc.metrics.counts import RankedSamples
from openauc.metrics.ranking import Ties, auroc_of, warn_if_reversed
from openauc.metrics.registry import METRICS, standard_metrics
from openauc.metrics.samples import read_samples
from openauc.predictions import Predictions
from openauc.report.model import Options, model_data
from openauc.report.page import render

_COMPARED = ("openauc", "partial_openauc", "auroc", "closed_set_accuracy")
_LABELS = {**{name: metric.label for name, metric in METRICS.items()}, "unknown_tpr": "unknown samples rejected"}
_SHOWN = {
    "Prop. 1": ("macro_f_score", "unknown_tpr", "openauc"),
    "Prop. 2": ("normalized_accuracy", "unknown_tpr", "openauc"),
    "Prop. 3": ("closed_set_accuracy", "auroc", "acc_times_auc", "openauc"),
}


def predictions_report(
    models: Mapping[str, Predictions],
    *,
    class_names: Mapping[str, str] | None = None,
    origins: Mapping[str, ArrayLike] | None = None,
    level: float = 0.95,
    rng: int = 0,
    n_replicates: int | None = None,
    unknown_label: Label = UNKNOWN,
    ties: Ties = "half",
    max_ofpr: float | None = None,
    min_ofpr: float = 0.0,
    flipped: bool = False,
    command: str = "",
) -> str:
    """A self-contained HTML page on the predictions of one or more models.

    Parameters
    ----------
    models
        Predictions by name of the model; the page shows the best first. Models on the same samples in the same order
        are also compared in pairs.
    class_names
        Label, as text, -> name of the class.
    origins
        Model -> (N,) real class of each sample, unknown ones included; the page then shows which unknown class is taken
        for which known one.
    level, rng, n_replicates, unknown_label
        As for ``evaluate``.
    ties, max_ofpr, min_ofpr
        As for ``standard_metrics``.
    flipped
        The scores are confidences with their sign changed; the rule to copy is then given for the confidence.
    command
        How the page was made, shown at its end.

    Examples
    --------
    >>> page = predictions_report({"mine": Predictions.of([0, 1, -1, -1], [0, 1, 0, 1], [1.0, 2.0, 3.0, 4.0])})
    >>> page[:15], "mine reaches an OpenAUC of" in page
    ('<!doctype html>', True)
    """
    metrics = standard_metrics(ties=ties, max_ofpr=max_ofpr, min_ofpr=min_ofpr)
    replicates = REPLICATES if n_replicates is None else n_replicates
    options = Options(class_names or {}, metrics, level, seed_of(rng), replicates, unknown_label)
    data, context = page_of(models, options, origins or {})
    return render("predictions", {**data, "flipped": flipped}, **context, command=command)


def page_of(
    models: Mapping[str, Predictions], options: Options, origins: Mapping[str, ArrayLike]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Data and context of :func:`predictions_report`."""
    if not models:
        raise ValueError("there is nothing to report; pass the predictions of at least one model, by name.")
    made = []
    for name, predictions in models.items():
        origin = None
        if name in origins:
            origin = as_vector(f"the origin of the samples of {name}", origins[name])
            check_same_length(y_true=predictions.y_true, origin=origin)
        ranked = RankedSamples(read_samples(*predictions, unknown_label=options.unknown_label))
        warn_if_reversed(float(auroc_of(ranked.ranking.table)))
        made.append((ranked, *model_data(name, ranked, options, origin)))
    made.sort(key=lambda one: -one[1].openauc)
    all_ranked, evaluations, drawn = zip(*made, strict=True)
    names = [data["name"] for data in drawn]
    comparison, obstacle = None, ""
    if len(names) > 1:
        try:
            require_same_samples([ranked.samples for ranked in all_ranked], names)
        except ValueError as error:  # other samples, or another order
            obstacle = str(error)
        else:
            compared = {name: options.metrics[name] for name in _COMPARED if name in options.metrics}
            comparison = compare_ranked(
                all_ranked, tuple(names), compared, None, options.level, options.seed, options.n_replicates
            )
    shown = [
        {"index": i, "name": name, "evaluation": evaluation, **audited(ranked)}
        for i, (name, evaluation, ranked) in enumerate(zip(names, evaluations, all_ranked, strict=True))
    ]
    stories = [one["changes"] for one in shown]
    data = {"models": drawn, "stories": stories, "flipped": False, "level": options.level}
    return data, {**options._asdict(), "models": shown, "comparison": comparison, "obstacle": obstacle}


def audited(ranked: RankedSamples) -> dict[str, Any]:
    """One construction for each proposition, complete if any is, with its (metric, before, after); and Table 1."""
    audit = audit_ranked(ranked)
    found: dict[str, Construction] = {}
    for construction in audit.constructions:
        if construction.proposition not in found or construction.complete:
            found[construction.proposition] = construction
    changes = [[(_LABELS[key], c.before[key], c.after[key]) for key in _SHOWN[c.proposition]] for c in found.values()]
    return {"constructions": list(found.values()), "changes": changes, "table1": audit.table1()}
