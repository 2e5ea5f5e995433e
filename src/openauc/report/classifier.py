"""The report on an OpenSetClassifier: what to expect of it, which scores it uses, how much it accepts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from openauc._validation import as_labels, check_same_length
from openauc.features.classifier.tables import decide, guarantee_of, truth, unknown_when
from openauc.intervals import REPLICATES, seed_of
from openauc.metrics.curve import Floats
from openauc.metrics.operating import order_statistic
from openauc.predictions import Predictions
from openauc.report.groups import cut, image_address
from openauc.report.model import Options, histogram
from openauc.report.page import render
from openauc.report.predictions import page_of
from openauc.verdict import judge

if TYPE_CHECKING:
    from openauc.features.classifier.estimator import OpenSetClassifier

_ACCEPTANCES = (*np.arange(0.5, 0.99, 0.005).round(3).tolist(), *np.arange(0.99, 0.9991, 0.001).round(3).tolist())
_MOST_EXAMPLES = 12  # of each kind of decision
_FAR = 4.0  # standard deviations above the mean on known samples, where a score is clearly unusual


def classifier_report(
    classifier: OpenSetClassifier,
    *,
    name: str = "model",
    test: tuple[ArrayLike, ArrayLike] | None = None,
    test_name: str = "test",
    captions: ArrayLike | None = None,
    images: Callable[[Collection[int | str]], Mapping[int | str, bytes]] | None = None,
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
    captions
        (n,) text of each of them, such as its file name, for the examples; None shows the number of the row.
    images
        Gives small images, PNG or JPEG, of those of these samples, by their numbers, and of training samples, by their
        names, that have one.
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
        decided = Decided.of(classifier, *test)
        evaluated, context = _evaluated(classifier, name, decided, rng, n_replicates)
        data |= evaluated
        context |= {"test_name": test_name, "parent": "predictions.html", "by_class": _by_class(classifier, decided)}
        context["examples"] = _examples(classifier, np.asarray(test[0]), decided, captions, images or (lambda _: {}))
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


class Decided(NamedTuple):
    """Decisions on n labelled samples."""

    predictions: Predictions
    mark: Any  # the label of unknown samples there
    label: NDArray[np.str_]
    answer: NDArray[Any]  # a class or unknown
    known: NDArray[np.bool_]
    accepted: NDArray[np.bool_]
    right: NDArray[np.bool_]  # accepted, with the right class

    @classmethod
    def of(cls, classifier: OpenSetClassifier, X: ArrayLike, y: ArrayLike) -> Decided:
        """Decisions on samples, of which some must be of known and some of unknown classes."""
        labels, columns = as_labels("y", y), decide(classifier, np.asarray(X))
        y_true, mark = truth(classifier, labels)
        known = y_true.astype(str) != str(mark)
        if known.all() or not known.any():
            lacking = "class the model does not know" if known.all() else "known class"
            raise ValueError(f"none of the {len(y_true):,} test samples is of a {lacking}; add some to evaluate it.")
        predictions = Predictions.of(y_true, columns["y_pred"], columns["open_score"])
        answer = columns["prediction"]
        accepted = answer.astype(str) == columns["y_pred"].astype(str)
        right = accepted & known & (predictions.y_true == predictions.y_pred)
        return cls(predictions, mark, labels.astype(str), answer, known, accepted, right)


def _evaluated(
    classifier: OpenSetClassifier, name: str, decided: Decided, rng: int, n_replicates: int | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Data and context of the report on predictions, and whether the model keeps its guarantee."""
    predictions, mark = decided.predictions, decided.mark
    verdict = judge(*predictions, decided.answer, guarantee=guarantee_of(classifier), unknown_label=mark)
    thresholds = classifier.thresholds_.tolist()
    options = Options(
        seed=seed_of(rng),
        n_replicates=REPLICATES if n_replicates is None else n_replicates,
        unknown_label=mark,
        thresholds={"threshold in use": thresholds[0]} if len(set(thresholds)) == 1 else {},
    )
    data, context = page_of({name: predictions}, options, {name: decided.label})
    return data, {**context, "verdict": verdict}


class ClassRow(NamedTuple):
    """Decisions on the samples of a class, and on others taken for it."""

    name: str
    n: int
    right: int
    rejected: int
    wrong: int
    known_taken: int
    unknown_taken: int
    taken_for: str  # the class that it is most often taken for, if any

    @property
    def good(self) -> float | None:
        """Share of the samples of the class, and of others taken for it, that are decided right."""
        involved = self.n + self.known_taken + self.unknown_taken
        return self.right / involved if involved else None


def _by_class(classifier: OpenSetClassifier, decided: Decided) -> list[ClassRow]:
    """All classes, those with the most trouble first."""
    places = {str(label): place for place, label in enumerate(classifier.classes_.tolist())}
    true, taken = (
        np.array([places.get(label, -1) for label in labels.astype(str).tolist()])
        for labels in (decided.predictions.y_true, decided.predictions.y_pred)
    )
    wrong = decided.known & decided.accepted & ~decided.right
    often = Counter(zip(true[wrong].tolist(), taken[wrong].tolist(), strict=True)).most_common()
    names = list(places)
    taken_for = {one: names[other] for (one, other), _ in reversed(often)}
    counts = [
        np.bincount(chosen, minlength=len(names)).tolist()
        for chosen in (
            true[decided.known],
            true[decided.right],
            true[decided.known & ~decided.accepted],
            true[wrong],
            taken[wrong],
            taken[decided.accepted & ~decided.known],
        )
    ]
    rows = [
        ClassRow._make((*row, taken_for.get(place, ""))) for place, row in enumerate(zip(names, *counts, strict=True))
    ]
    return sorted(rows, key=lambda row: 2.0 if row.good is None else row.good)


def _examples(
    classifier: OpenSetClassifier,
    X: NDArray[Any],
    decided: Decided,
    captions: ArrayLike | None,
    images: Callable[[Collection[int | str]], Mapping[int | str, bytes]],
) -> list[dict[str, Any]]:
    """Some rows of each kind of decision with the nearest training rows; empty for models that keep none."""
    if not hasattr(classifier, "examples_"):  # of an older openauc
        return []
    texts = np.array([f"row {row}" for row in range(len(X))] if captions is None else captions, dtype=object)
    check_same_length(X=X, captions=texts)
    known, accepted, score = decided.known, decided.accepted, decided.predictions.open_score
    kinds = (
        ("Known rows that are rejected", known & ~accepted, -score),
        ("Rows with the wrong class", known & accepted & ~decided.right, score),
        ("Unknown rows that are accepted", ~known & accepted, score),
        ("Unknown rows that are rejected", ~known & ~accepted, score),
    )
    chosen = []
    for title, which, order in kinds:
        rows = np.flatnonzero(which)
        chosen.append((title, len(rows), rows[np.argsort(order[rows], kind="stable")[:_MOST_EXAMPLES]].tolist()))
    all_rows = [row for _, _, rows in chosen for row in rows]
    if not all_rows:
        return []
    why = classifier.explain(X[all_rows])
    near = np.char.add("row ", why.nearest_rows.astype(str)) if why.nearest_names is None else why.nearest_names
    pictures = {key: image_address(image, f"row {key}") for key, image in images({*all_rows, *near.flat}).items()}

    def shown(row: int) -> dict[str, Any]:
        i = all_rows.index(row)
        pairs = zip(why.nearest_labels[i].tolist(), near[i].tolist(), strict=True)
        return {
            "text": cut(texts[row]),
            "image": pictures.get(row),
            "label": decided.label[row],
            "answer": decided.answer[row] if accepted[row] else None,
            "why": why.sentence[i],
            "nearest": [{"label": label, "text": cut(name), "image": pictures.get(name)} for label, name in pairs],
        }

    return [{"title": title, "n": n, "rows": list(map(shown, rows))} for title, n, rows in chosen]


def _data(classifier: OpenSetClassifier) -> dict[str, Any]:
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
    share = accepted / np.maximum(size, 1)  # 0 where a class is never predicted
    shown = np.argsort(share, kind="stable")
    return {
        "name": [str(classifier.classes_[i]) for i in shown],
        "size": size[shown].tolist(),
        "in_use": share[shown].tolist(),
        "threshold": [one if np.isfinite(one) else str(one) for one in classifier.thresholds_[shown].tolist()],
        "accepted": [np.searchsorted(np.sort(scores[predicted == i]), threshold, "right").tolist() for i in shown],
    }
