"""The report on an OpenSetClassifier: what to expect of it, what it looks at, how much it accepts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from openauc._validation import as_labels
from openauc.environment import environment
from openauc.evaluation import Evaluation
from openauc.features.classifier.tables import decide, promise_of, truth, unknown_when
from openauc.metrics.curve import Floats
from openauc.metrics.operating import order_statistic
from openauc.predictions import Predictions
from openauc.report.model import BINS, MOST_CLASSES
from openauc.report.page import interval, percent, render
from openauc.report.predictions import TEMPLATE as PREDICTIONS
from openauc.report.predictions import page_of
from openauc.verdict import Verdict, judge

if TYPE_CHECKING:
    from openauc.features.classifier.estimator import OpenSetClassifier

ASKED = (*np.arange(0.5, 0.99, 0.005).round(3).tolist(), *np.arange(0.99, 0.9991, 0.001).round(3).tolist())
"""Shares of known samples that the slider accepts."""
JUMPS = (0.9, 0.95, 0.99)
IN_USE = "threshold in use"
FAR = 4.0
"""A score this many deviations above its mean on known samples is clearly unusual."""


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
        Of the model: its folder, where the page says how to load it.
    test
        Embeddings and labels, unknown ones included, to evaluate it on; its labels that are no known class are unknown.
    test_name
        Of these samples: their file.
    rng, n_replicates
        As for :func:`~openauc.evaluate`.
    command
        How the page was made, shown at its end.
    """
    data: dict[str, Any] = {"classifier": _data(classifier, name)}
    context: dict[str, Any] = {"environment": environment()}
    said = _words(classifier, name)
    if test is not None:
        evaluated, context, verdict = _evaluated(classifier, name, *test, rng, n_replicates)
        data |= evaluated
        context["headline"] = f"On {test_name}, {context['headline']}"
        said["tested"] = _tested(context["models"][0].evaluation, test_name)
        said["verdict"], said["judged"] = verdict, _judged(verdict, name, test_name)
    parts = () if test is None else (PREDICTIONS,)
    parent = f"{PREDICTIONS}.html" if parts else "base.html"
    return render("classifier", data, parts=parts, parent=parent, c=said, command=command, **context)


def _evaluated(
    classifier: OpenSetClassifier, name: str, X: ArrayLike, y: ArrayLike, rng: int, n_replicates: int | None
) -> tuple[dict[str, Any], dict[str, Any], Verdict]:
    """The part of the page that tells of predictions, and whether the model keeps its promise."""
    labels, columns = as_labels("y", y), decide(classifier, np.asarray(X))
    y_true, mark = truth(classifier, labels)
    unknown = int((y_true.astype(str) == str(mark)).sum())
    if unknown in (0, len(y_true)):
        lacking = "known class" if unknown else "class the model does not know"
        raise ValueError(f"none of the {len(y_true):,} test samples is of a {lacking}; add some to evaluate it.")
    thresholds = np.unique(classifier.thresholds_)
    predictions = Predictions.of(y_true, columns["y_pred"], columns["open_score"])
    verdict = judge(*predictions, columns["prediction"], promise=promise_of(classifier), unknown_label=mark)
    data, context = page_of(
        {name: predictions},
        origins={name: labels.astype(str)},
        rng=rng,
        n_replicates=n_replicates,
        unknown_label=mark,
        thresholds={IN_USE: float(thresholds[0])} if len(thresholds) == 1 else None,
    )
    return data, context, verdict


# What the script draws


def _data(classifier: OpenSetClassifier, name: str) -> dict[str, Any]:
    report = classifier.report_
    held_out = classifier.held_out_scores_[classifier.held_out_kinds_ < 0]
    positions = _positions(classifier)
    threshold = np.array([one for one, _ in positions])
    known = np.sort(classifier.calibration_scores_)
    in_use = _one_threshold(classifier)
    start = _place(positions, classifier.acceptance) if in_use is None else int(np.searchsorted(threshold, in_use))
    presets = {f"accept {asked:.0%}".replace("%", " %"): _place(positions, asked) for asked in JUMPS}
    return {
        "name": name,
        "metric": _metric(report.max_ofpr),
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
        "histogram": _histogram(known, held_out),
        "classes": _classes(classifier, threshold),
    }


def _metric(max_ofpr: float | None) -> str:
    return "OpenAUC" if max_ofpr is None else f"partial OpenAUC, OFPR <= {max_ofpr:g}"


def _one_threshold(classifier: OpenSetClassifier) -> float | None:
    """The threshold in use, if it is one for all classes and rejects anything."""
    found = np.unique(classifier.thresholds_)
    return float(found[0]) if len(found) == 1 and np.isfinite(found[0]) else None


def _positions(classifier: OpenSetClassifier) -> list[tuple[float, float | None]]:
    """Thresholds of the slider, rising, and the acceptance that each is the threshold of, if any.

    Of a few calibration samples, several shares have one threshold: the largest of them is said.
    """
    scores = np.sort(classifier.calibration_scores_)
    n = len(scores)
    shares = {*ASKED, *([classifier.acceptance] if 0.0 < classifier.acceptance < 1.0 else [])}
    found: dict[float, float | None] = {}
    in_use = _one_threshold(classifier)
    if in_use is not None:
        found[in_use] = None
    for share in sorted(shares):
        place = order_statistic(n, share)
        if place <= n:
            found[float(scores[place - 1])] = share
    return sorted(found.items()) or [(float(scores[-1]), None)]


def _place(positions: list[tuple[float, float | None]], asked: float) -> int:
    """The position that accepts the share asked for, else the last one."""
    places = (i for i, (_, share) in enumerate(positions) if share is not None and share >= asked)
    return next(places, len(positions) - 1)


def _evidence(rejector: Any) -> dict[str, Any] | None:
    """What each score adds to the open-set score, the most telling first; only a learned rejector has it."""
    if not hasattr(rejector, "contributions"):
        return None
    grid, curves = rejector.contributions()
    far = [float(np.interp(FAR, grid, curve)) for curve in curves]
    order = np.argsort([-value for value in far], kind="stable")
    return {
        "grid": grid.round(4).tolist(),
        "scores": [
            {"name": rejector.names[i], "curve": curves[i].round(5).tolist(), "far": far[i]} for i in order.tolist()
        ],
    }


def _histogram(known: Floats, held_out: Floats) -> dict[str, Any]:
    """Share of each side in each bin; the outer bins hold everything beyond them."""
    low, high = np.quantile(np.concatenate([known, held_out]), [0.001, 0.999])
    if low == high:
        low, high = low - 0.5, high + 0.5
    edges = np.linspace(low, high, BINS + 1)

    def share(scores: Floats) -> list[float]:
        return [round(x, 5) for x in (np.histogram(np.clip(scores, low, high), edges)[0] / len(scores)).tolist()]

    return {"edges": edges.tolist(), "known": share(known), "held_out": share(held_out) if len(held_out) else None}


def _classes(classifier: OpenSetClassifier, threshold: Floats) -> dict[str, Any]:
    """By predicted class: calibration samples, how many are accepted at each position, and the share accepted in use.

    Where there are many classes, those of which the fewest are accepted.
    """
    scores, predicted = classifier.calibration_scores_, classifier.calibration_classes_
    size = np.bincount(predicted, minlength=len(classifier.classes_))
    accepted = np.bincount(predicted[scores <= classifier.thresholds_[predicted]], minlength=len(size))
    share = accepted / np.maximum(size, 1)
    met = np.flatnonzero(size)
    shown = met[np.argsort(share[met], kind="stable")][:MOST_CLASSES]
    return {
        "n_classes": len(met),
        "name": [str(classifier.classes_[i]) for i in shown],
        "size": size[shown].tolist(),
        "in_use": share[shown].tolist(),
        "threshold": [one if np.isfinite(one) else str(one) for one in classifier.thresholds_[shown].tolist()],
        "accepted": [np.searchsorted(np.sort(scores[predicted == i]), threshold, "right").tolist() for i in shown],
    }


# What the template says


def _words(classifier: OpenSetClassifier, name: str) -> dict[str, Any]:
    report = classifier.report_
    expected = report.expected
    return {
        "name": name,
        "headline": _headline(classifier, name),
        "report": report,
        "expected": expected,
        "metric": _metric(report.max_ofpr),
        "meaning": None if expected is None or report.max_ofpr is not None else _meaning(expected.openauc),
        "promise": _sentence(classifier.guarantee_),
        "calibration": f"{len(classifier.calibration_scores_):,}",
        "held_out": f"{int((classifier.held_out_kinds_ < 0).sum()):,}",
        "per_class": classifier.per_class,
        "rule": unknown_when(classifier).replace("-", "−"),
        "rejector": _rejector(classifier),
        "learned": hasattr(classifier.rejector_, "contributions"),
        "far": f"{FAR:g}",
        "unknown_label": str(classifier.unknown_label_),
        "notes": [_sentence(note) for note in report.notes],
        "tested": None,
        "verdict": None,
    }


def _headline(classifier: OpenSetClassifier, name: str) -> str:
    report = classifier.report_
    knows = f"{name} knows {report.n_classes} classes"
    if report.expected is None:
        return f"{knows}; as none of them was held out, nothing tells how it meets others."
    value = f"{percent(report.expected.openauc)} ({interval(report.expected.interval)})"
    metric = "an OpenAUC" if report.max_ofpr is None else f"a partial OpenAUC up to OFPR {report.max_ofpr:g}"
    return f"{knows}, and can be expected to reach {metric} of {value} when it meets others."


def _meaning(openauc: float) -> str:
    return (
        f"Show it a sample of a known class and one of a class it has never met. In {round(100 * openauc)} of 100 such "
        "pairs it names the class of the first and finds the second more unknown."
    )


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].removesuffix('.')}."


def _rejector(classifier: OpenSetClassifier) -> str:
    """How scores become one, in a sentence."""
    rejector: Any = classifier.rejector_
    if hasattr(rejector, "contributions"):
        weight, several = rejector.base_weight, len(rejector.base) > 1
        base = f"the average of {', '.join(rejector.base)}" if several else f"{rejector.base[0]} alone"
        return (
            f"The open-set score is a sum of one function of each of {len(rejector.names)} scores. A rule that needs "
            f"no learning, {base}, has {percent(weight, 0)} of the weight, and what held-out classes taught "
            f"{percent(1 - weight, 0)}: the more known classes, the more is learned."
        )
    if len(rejector.names) > 1:
        return f"The open-set score is the mean of {', '.join(rejector.names)}, each standardised on known samples."
    return f"The open-set score is {classifier.report_.chosen} alone."


def _judged(verdict: Verdict, name: str, test_name: str) -> str:
    if not any(finding.outcome for finding in verdict.findings):
        return f"What {name} decides on {test_name}."
    return f"On {test_name}, {name} {'does not keep' if verdict.failed else 'keeps'} what it promised."


def _tested(evaluation: Evaluation, test_name: str) -> str:
    return (
        f"On {test_name} it reaches {percent(evaluation.openauc)} ({interval(evaluation.intervals['openauc'])}); "
        "see below."
    )
