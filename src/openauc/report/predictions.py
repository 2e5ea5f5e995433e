"""The report on predictions: which model is better, where it fails, which threshold to deploy."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from numpy.typing import ArrayLike

from openauc._validation import UNKNOWN, Label, as_vector, check_same_length
from openauc.audit import audit_ranked
from openauc.comparison import compare_ranked, require_same_samples
from openauc.environment import environment
from openauc.evaluation import Evaluation
from openauc.intervals import REPLICATES, seed_of
from openauc.metrics.counts import RankedSamples
from openauc.metrics.ranking import Ties, auroc_of, warn_if_reversed
from openauc.metrics.registry import METRICS, Metric, standard_metrics
from openauc.metrics.samples import read_samples
from openauc.predictions import Predictions
from openauc.report import sentences
from openauc.report.model import Names, model_data
from openauc.report.page import render

TEMPLATE = "predictions"
COMPARED = ("openauc", "partial_openauc", "auroc", "closed_set_accuracy")


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
        Model -> (N,) real class of each sample, unknown ones included; tells which unknown class is taken for what.
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
    data, context = page_of(
        models,
        class_names=class_names,
        origins=origins,
        metrics=metrics,
        level=level,
        rng=rng,
        n_replicates=n_replicates,
        unknown_label=unknown_label,
    )
    return render(TEMPLATE, {**data, "flipped": flipped}, **context, command=command)


def page_of(
    models: Mapping[str, Predictions],
    *,
    class_names: Mapping[str, str] | None = None,
    origins: Mapping[str, ArrayLike] | None = None,
    metrics: Mapping[str, Metric] = METRICS,
    level: float = 0.95,
    rng: int = 0,
    n_replicates: int | None = None,
    unknown_label: Label = UNKNOWN,
    thresholds: Mapping[str, float] | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What script and template of :func:`predictions_report` read; ``thresholds`` are further ones to jump to."""
    if not models:
        raise ValueError("there is nothing to report; pass the predictions of at least one model, by name.")
    seed, replicates = seed_of(rng), REPLICATES if n_replicates is None else n_replicates
    made = []
    for name, predictions in models.items():
        names = _names(name, predictions, class_names, origins)
        model = RankedSamples(read_samples(*predictions, unknown_label=unknown_label))
        warn_if_reversed(float(auroc_of(model.ranking.table)))
        model.counts  # noqa: B018  computed once, before two threads ask for it
        with ThreadPoolExecutor(1) as other:  # numpy and the compiled loops release the interpreter lock
            audited = other.submit(_audited, model)
            evaluation, numbers = model_data(
                name,
                model,
                names=names,
                metrics=metrics,
                level=level,
                n_replicates=replicates,
                seed=seed,
                thresholds=thresholds,
            )
        made.append((_Told(name, evaluation, sentences.losses(evaluation), *audited.result()), numbers, model))
    made.sort(key=lambda one: -one[0].evaluation.openauc)
    told, data, ranked = zip(*made, strict=True)
    evaluations = {model.name: model.evaluation for model in told}
    comparison, obstacle = None, ""
    if len(told) > 1:
        try:
            require_same_samples([model.samples for model in ranked], list(evaluations))
        except ValueError as error:  # other samples, or another order
            obstacle = str(error)
        else:
            compared = {name: metrics[name] for name in COMPARED if name in metrics}
            comparison = compare_ranked(ranked, tuple(evaluations), compared, None, level, seed, replicates)
    return {"models": data, "stories": [model.changes for model in told], "flipped": False, "level": level}, {
        "headline": sentences.headline(evaluations, comparison),
        "meaning": sentences.meaning(evaluations),
        "models": told,
        "metrics": metrics,
        "comparison": comparison,
        "obstacle": obstacle,
        "level": level,
        "replicates": replicates,
        "environment": environment(),
    }


class _Told(NamedTuple):
    """What the template says of one model."""

    name: str
    evaluation: Evaluation
    losses: str
    stories: list[sentences.Story]
    table1: tuple[Any, Any]

    @property
    def changes(self) -> list[Any]:
        """What the stories draw."""
        return [story.changes for story in self.stories]


def _audited(model: RankedSamples) -> tuple[list[sentences.Story], tuple[Any, Any]]:
    result = audit_ranked(model)
    return sentences.stories(result), sentences.table1(result)


def _names(
    model: str,
    predictions: Predictions,
    class_names: Mapping[str, str] | None,
    origins: Mapping[str, ArrayLike] | None,
) -> Names:
    if origins is None or model not in origins:
        return Names(class_names or {})
    origin = as_vector(f"the origin of the samples of {model}", origins[model])
    check_same_length(y_true=predictions.y_true, origin=origin)
    return Names(class_names or {}, origin)
