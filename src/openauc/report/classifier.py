"""The report on an OpenSetClassifier: what to expect of it, which scores it uses, how much it accepts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from openauc._validation import as_labels
from openauc.features.classifier.tables import decide, guarantee_of, truth, unknown_when
from openauc.intervals import REPLICATES, seed_of
from openauc.metrics.curve import Floats
from openauc.metrics.operating import order_statistic
from openauc.predictions import Predictions
from openauc.report.model import MOST_CLASSES, Options, histogram
from openauc.report.page import render
from openauc.report.predictions import page_of
from openauc.verdict import judge

if TYPE_CHECKING:
    from openauc.features.classifier.estimator import OpenSetClassifier

_ACCEPTANCES = (*np.arange(0.5, 0.99, 0.005).round(3).tolist(), *np.arange(0.99, 0.9991, 0.001).round(3).tolist())
_FAR = 4.0  # standard deviations above the mean on known samples, where a score is clearly unusual


def classifier_report(
    classifier: OpenSetClassifier,
    *,
    name: str = "model",
    test: tuple[ArrayLike, ArrayLike] | None = None,
    test_name: str = "test",
    rng: int = 0,
    n_replicates: int | None = None,
    command: str = "",
) -> str:
    """A self-contained HTML page on a fitted classifier.

    Parameters
    ----------
    name
        Name of the model: its folder, which the page shows how to load.
    test
        Embeddings and labels to evaluate it on; labels that are not among the known classes are unknown.
    test_name
        Name of these samples: their file.
    rng, n_replicates
        As for :func:`~openauc.evaluate`.
    command
        How the page was made, shown at its end.
    """
    max_ofpr = classifier.report_.max_ofpr
    metric = "OpenAUC" if max_ofpr is None else f"partial OpenAUC, OFPR <= {max_ofpr:g}"
    data: dict[str, Any] = {"classifier": {"name": name, "metric": metric, **_data(classifier)}}
    context: dict[str, Any] = {"verdict": None, "parent": "base.html"}
    if test is not None:
        evaluated, context = _evaluated(classifier, name, *test, rng, n_replicates)
        data |= evaluated
        context |= {"test_name": test_name, "parent": "predictions.html"}
    return render(
        "classifier",
        data,
        parts=() if test is None else ("predictions",),
        name=name,
        metric=metric,
        classifier=classifier,
        rule=unknown_when(classifier).replace("-", "−"),
        n_held_out=int((classifier.held_out_kinds_ < 0).sum()),
        far=_FAR,
        command=command,
        **context,
    )


def _evaluated(
    classifier: OpenSetClassifier, name: str, X: ArrayLike, y: ArrayLike, rng: int, n_replicates: int | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Data and context of the report on predictions, and whether the model keeps its guarantee."""
    labels, columns = as_labels("y", y), decide(classifier, np.asarray(X))
    y_true, mark = truth(classifier, labels)
    unknown = int((y_true.astype(str) == str(mark)).sum())
    if unknown in (0, len(y_true)):
        lacking = "known class" if unknown else "class the model does not know"
        raise ValueError(f"none of the {len(y_true):,} test samples is of a {lacking}; add some to evaluate it.")
    predictions = Predictions.of(y_true, columns["y_pred"], columns["open_score"])
    verdict = judge(*predictions, columns["prediction"], guarantee=guarantee_of(classifier), unknown_label=mark)
    thresholds = classifier.thresholds_.tolist()
    options = Options(
        seed=seed_of(rng),
        n_replicates=REPLICATES if n_replicates is None else n_replicates,
        unknown_label=mark,
        thresholds={"threshold in use": thresholds[0]} if len(set(thresholds)) == 1 else {},
    )
    data, context = page_of({name: predictions}, options, {name: labels.astype(str)})
    return data, {**context, "verdict": verdict}


def _data(classifier: OpenSetClassifier) -> dict[str, Any]:
    """What the script draws."""
    report = classifier.report_
    held_out = np.sort(classifier.held_out_scores_[classifier.held_out_kinds_ < 0])
    known = np.sort(classifier.calibration_scores_)
    found = np.unique(classifier.thresholds_)
    in_use = float(found[0]) if len(found) == 1 and np.isfinite(found[0]) else None
    positions = _positions(known, classifier.acceptance, in_use)
    threshold = np.array([one for one, _ in positions])
    start = _place(positions, classifier.acceptance) if in_use is None else int(np.searchsorted(threshold, in_use))
    presets = {f"accept {100 * asked:.0f} %": _place(positions, asked) for asked in (0.9, 0.95, 0.99)}
    sides = {name: (side, len(side)) for name, side in (("known", known), ("held_out", held_out)) if len(side)}
    return {
        "tried": [
            {"name": tried.name, "value": tried.openauc, "low": tried.interval.low, "high": tried.interval.high}
            for tried in report.tried
        ],
        "chosen": report.chosen,
        "evidence": _evidence(classifier.rejector_),
        "asked": [asked for _, asked in positions],
        "threshold": threshold.tolist(),
        "accepted": (np.searchsorted(known, threshold, "right") / len(known)).tolist(),
        "rejected": [float((held_out > one).mean()) for one in threshold] if len(held_out) else None,
        "per_class": in_use is None and classifier.per_class,
        "presets": {**({} if in_use is None else {"in use": start}), **presets},
        "start": start,
        "histogram": {"held_out": None, **histogram(np.sort(np.concatenate([known, held_out])), sides)},
        "classes": _classes(classifier, threshold),
    }


def _positions(scores: Floats, acceptance: float, in_use: float | None) -> list[tuple[float, float | None]]:
    """Rising thresholds for the slider, each with the largest acceptance that it belongs to, or None."""
    found: dict[float, float | None] = {} if in_use is None else {in_use: None}
    for share in sorted({*_ACCEPTANCES, *([acceptance] if 0.0 < acceptance < 1.0 else [])}):
        if (place := order_statistic(len(scores), share)) <= len(scores):
            found[float(scores[place - 1])] = share
    return sorted(found.items()) or [(float(scores[-1]), None)]


def _place(positions: list[tuple[float, float | None]], asked: float) -> int:
    """The first position with at least this acceptance, else the last one."""
    places = (i for i, (_, share) in enumerate(positions) if share is not None and share >= asked)
    return next(places, len(positions) - 1)


def _evidence(rejector: Any) -> dict[str, Any] | None:
    """What each score adds to the open-set score of a learned rejector, the largest first."""
    if not hasattr(rejector, "base"):
        return None
    grid, curves = rejector.curves()
    scores = [
        {"name": name, "curve": curve.round(5).tolist(), "far": float(np.interp(_FAR, grid, curve))}
        for name, curve in zip(rejector.names, curves, strict=True)
    ]
    return {"grid": grid.round(4).tolist(), "scores": sorted(scores, key=lambda score: -score["far"])}


def _classes(classifier: OpenSetClassifier, threshold: Floats) -> dict[str, Any]:
    """The predicted classes, those accepted least first, and how many calibration samples each position accepts."""
    scores, predicted = classifier.calibration_scores_, classifier.calibration_classes_
    size = np.bincount(predicted, minlength=len(classifier.classes_))
    accepted = np.bincount(predicted[scores <= classifier.thresholds_[predicted]], minlength=len(size))
    share, met = accepted / np.maximum(size, 1), np.flatnonzero(size)
    shown = met[np.argsort(share[met], kind="stable")][:MOST_CLASSES]
    return {
        "n_classes": len(met),
        "name": [str(classifier.classes_[i]) for i in shown],
        "size": size[shown].tolist(),
        "in_use": share[shown].tolist(),
        "threshold": [one if np.isfinite(one) else str(one) for one in classifier.thresholds_[shown].tolist()],
        "accepted": [np.searchsorted(np.sort(scores[predicted == i]), threshold, "right").tolist() for i in shown],
    }
