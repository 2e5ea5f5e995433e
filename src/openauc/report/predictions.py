"""The report on predictions: which model is better, where it fails, which threshold to deploy."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from numpy.typing import ArrayLike

from openauc._validation import UNKNOWN, Label, as_vector, check_same_length
from openauc.audit import audit
from openauc.environment import environment
from openauc.evaluation import Evaluation, evaluate
from openauc.metrics.ranking import ScoreDirectionWarning
from openauc.metrics.table import standard_metrics
from openauc.predictions import Predictions
from openauc.report import words
from openauc.report.model import Names, model_data
from openauc.report.page import render
from openauc.uncertainty import Comparison, compare

COMPARED = ("openauc", "auroc", "closed_set_accuracy")

MOST_REPLICATES, LEAST_REPLICATES = 2000, 200
MOST_DRAWS = 200_000_000
"""A page of a million samples should not take minutes. With 200 replicates, chance moves the bound of an interval by
about a twentieth of its width, and with that many samples the interval is narrow."""


def predictions_report(
    models: Mapping[str, Predictions],
    *,
    class_names: Mapping[str, str] | None = None,
    origins: Mapping[str, ArrayLike] | None = None,
    ties: Literal["half", "strict"] = "half",
    max_ofpr: float | None = None,
    min_ofpr: float = 0.0,
    level: float = 0.95,
    rng: int = 0,
    n_replicates: int | None = None,
    unknown_label: Label = UNKNOWN,
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
    ties, max_ofpr, min_ofpr
        As for ``standard_metrics``.
    level, rng, unknown_label
        As for ``evaluate``.
    n_replicates
        Of the bootstrap. If None, 2,000, and fewer beyond 100,000 samples, down to 200. The page says how many.
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
    if not models:
        raise ValueError("there is nothing to report; pass the predictions of at least one model, by name.")
    replicates = n_replicates
    if replicates is None:
        n_samples = max(len(predictions.y_true) for predictions in models.values())
        replicates = min(MOST_REPLICATES, max(LEAST_REPLICATES, MOST_DRAWS // n_samples))
    options: dict[str, Any] = {"level": level, "n_replicates": replicates, "unknown_label": unknown_label}
    metrics = standard_metrics(ties=ties, max_ofpr=max_ofpr, min_ofpr=min_ofpr)
    made = []
    for name, predictions in models.items():
        names = _names(name, predictions, class_names, origins)
        evaluation, numbers = model_data(name, predictions, names=names, seed=rng, **options)
        if (ties, max_ofpr, min_ofpr) != ("half", None, 0.0):
            evaluation = evaluate(*predictions, metrics=metrics, rng=rng, **options)
        made.append((_told(name, predictions, evaluation, unknown_label), numbers))
    made.sort(key=lambda model: -model[0].evaluation.openauc)
    told, data = zip(*made, strict=True)
    evaluations = {model.name: model.evaluation for model in told}
    comparison, obstacle = _compared({name: models[name] for name in evaluations}, rng, options)
    return render(
        "predictions",
        {"models": data, "stories": [model.changes for model in told], "flipped": flipped, "level": level},
        headline=words.headline(evaluations, comparison),
        meaning=words.meaning(evaluations),
        models=told,
        metrics=metrics,
        comparison=comparison,
        obstacle=obstacle,
        level=level,
        replicates=replicates,
        environment=environment(),
        command=command,
    )


class _Told(NamedTuple):
    """What the template says of one model."""

    name: str
    evaluation: Evaluation
    losses: str
    stories: list[words.Story]
    table1: tuple[Any, Any]

    @property
    def changes(self) -> list[Any]:
        """What the stories draw."""
        return [story.changes for story in self.stories]


def _told(name: str, predictions: Predictions, evaluation: Evaluation, unknown_label: Label) -> _Told:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ScoreDirectionWarning)  # said once, by evaluate
        result = audit(*predictions, unknown_label=unknown_label)
    return _Told(
        name,
        evaluation,
        words.losses(evaluation),
        words.stories(result),
        words.table1(result),
    )


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


def _compared(models: Mapping[str, Predictions], rng: int, options: Mapping[str, Any]) -> tuple[Comparison | None, str]:
    """All pairs of models, or why they cannot be compared."""
    if len(models) < 2:
        return None, ""
    try:
        return compare(*models.values(), names=list(models), metrics=COMPARED, rng=rng, **options), ""
    except ValueError as error:  # other samples, or another order
        return None, str(error)
