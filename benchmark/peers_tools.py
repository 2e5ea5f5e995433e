"""Ways of others to answer a class or "unknown" from embeddings: `python peers_tools.py ROWS.npz FOLDER TOOL ...`.

`peers.py` runs it, for the tools of others in an environment of their own, which has `peers_requirements.txt` and not
this package. ROWS has X and y to fit on, X_test, and C of the logistic regression of tools that bring no classifier.
Each tool leaves TOOL.npz in FOLDER, with class, score (higher = more unknown) and rejection of the test rows, or
TOOL.json, which says what failed.
"""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from peers_formulas import Array, Score, by_features, by_logits, energy, mahalanobis, neighbours, vim
from scipy.special import softmax
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import IsolationForest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict, train_test_split
from sklearn.neighbors import LocalOutlierFactor
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import OneClassSVM

SHARE = 0.95  # of the known rows to accept, where a tool has no threshold
HELD_OUT = 0.2  # of the rows to fit on, for thresholds and calibration

Answer = tuple[Array, Array, Array]
"""Class, score and whether it is rejected, of each row."""
Fit = Callable[[Array, Array, Pipeline], Callable[[Array], Answer]]
"""From rows, their labels and a classifier that is not fitted yet."""


class Tool(NamedTuple):
    """A tool: its package, the module that is imported before the clock starts, and what its threshold means."""

    package: str
    module: str
    fit: Fit
    threshold: str
    splits: int = 10
    """Most splits of a data set that it is measured on."""
    aim: float | None = None
    """Share of known rows that the threshold is to accept, if it has such an aim."""


def logistic(C: float) -> Pipeline:
    """The classifier of all tools that bring none."""
    return make_pipeline(StandardScaler(), LogisticRegression(C=C, max_iter=1000))


def held_out(X: Array, y: Array) -> list[Array]:
    """X, X of the held-out rows, y, y of the held-out rows; each class is cut."""
    return list(train_test_split(X, y, test_size=HELD_OUT, stratify=y, random_state=0))


def named(rows: dict[str, Any], part: str, X: Array) -> list[str]:
    """Names of rows, for tools that take texts; ``rows`` gets each row by its name."""
    names = [f"{part} {number}" for number in range(len(X))]
    rows.update(zip(names, X, strict=True))
    return names


# openauc


def ours(X: Array, y: Array, head: Pipeline) -> Callable[[Array], Answer]:
    from openauc.features import OpenSetClassifier

    classifier = OpenSetClassifier(random_state=0).fit(X, y)

    def answer(X: Array) -> Answer:
        score, predicted = classifier._decide(X)
        return classifier.classes_[predicted], score, score > classifier.thresholds_[predicted]

    return answer


# cleanlab


def cleanlab_features(X: Array, y: Array, head: Pipeline) -> Callable[[Array], Answer]:
    from cleanlab.outlier import OutOfDistribution  # type: ignore[import-not-found]

    classifier, detector = clone(head).fit(X, y), OutOfDistribution()
    threshold = np.percentile(detector.fit_score(features=X, verbose=False), 5)

    def answer(X: Array) -> Answer:
        score = detector.score(features=X)
        return classifier.predict(X), -score, score < threshold

    return answer


def cleanlab_probabilities(X: Array, y: Array, head: Pipeline) -> Callable[[Array], Answer]:
    from cleanlab.outlier import OutOfDistribution

    classifier, detector = clone(head).fit(X, y), OutOfDistribution()
    given = cross_val_predict(head, X, y, cv=5, method="predict_proba")
    threshold = np.percentile(detector.fit_score(pred_probs=given, labels=y, verbose=False), 5)

    def answer(X: Array) -> Answer:
        given = classifier.predict_proba(X)
        score = detector.score(pred_probs=given)
        return given.argmax(1), -score, score < threshold

    return answer


# PyOD


def pyod(X: Array, y: Array, head: Pipeline, *, name: str) -> Callable[[Array], Answer]:
    detector = getattr(importlib.import_module(f"pyod.models.{name.lower()}"), name)().fit(X)
    classifier = clone(head).fit(X, y)

    def answer(X: Array) -> Answer:
        score = detector.decision_function(X)
        return classifier.predict(X), score, score > detector.threshold_

    return answer


# semantic-router


def semantic_router(X: Array, y: Array, head: Pipeline) -> Callable[[Array], Answer]:
    from semantic_router import IndexedRouter, Route  # type: ignore[import-not-found]
    from semantic_router.encoders import DenseEncoder  # type: ignore[import-not-found]

    rows: dict[str, Any] = {}

    class LookUp(DenseEncoder):  # type: ignore[misc]
        """An encoder of names of rows, which are looked up."""

        def __call__(self, docs: list[str]) -> list[list[float]]:
            return [rows[name].tolist() for name in docs]

    encoder = LookUp(name="look up")
    X, X_held, y, y_held = held_out(X, y)
    names = np.array(named(rows, "fit", X))
    routes = [Route(name=str(label), utterances=names[y == label].tolist()) for label in np.unique(y)]
    router = IndexedRouter(encoder=encoder, routes=routes)
    router.fit(named(rows, "held out", X_held), y_held.astype(str).tolist())

    def answer(X: Array) -> Answer:
        choices = [router(name, threshold=0.0) for name in named(rows, "test", X)]
        confidence = np.array([choice.confidence for choice in choices])
        return np.array([int(choice.name) for choice in choices]), -confidence, confidence < 0.9

    return answer


# AutoIntent


def autointent(X: Array, y: Array, head: Pipeline) -> Callable[[Array], Answer]:
    import autointent as package  # type: ignore[import-not-found]
    from autointent._wrappers.embedder import embedder  # type: ignore[import-not-found]
    from autointent.configs import HashingVectorizerEmbeddingConfig, LoggingConfig  # type: ignore[import-not-found]

    rows: dict[str, Any] = {}

    class LookUp(embedder.HashingVectorizerEmbeddingBackend):  # type: ignore[misc]
        """An encoder of names of rows, which are looked up, in the place of its encoder of words."""

        def embed(self, utterances: list[str], task_type: Any = None, return_tensors: bool = False) -> Array:
            return np.stack([rows[name] for name in utterances])

    embedder.HashingVectorizerEmbeddingBackend = LookUp
    texts = [{"utterance": name, "label": label} for name, label in zip(named(rows, "fit", X), y.tolist(), strict=True)]
    pipeline = package.Pipeline.from_preset("classic-light")
    pipeline.set_config(HashingVectorizerEmbeddingConfig())
    with tempfile.TemporaryDirectory() as folder:
        pipeline.set_config(LoggingConfig(project_dir=folder, clear_ram=False, dump_modules=False))
        pipeline.fit(package.Dataset.from_dict({"train": texts}))

    def answer(X: Array) -> Answer:
        output = pipeline.predict_with_metadata(named(rows, "test", X))
        score = np.array([row.score for row in output.utterances])
        return score.argmax(1), -score.max(1), np.array([label is None for label in output.predictions])

    return answer


# crepes and MAPIE


def crepes(X: Array, y: Array, head: Pipeline) -> Callable[[Array], Answer]:
    from crepes import WrapClassifier  # type: ignore[import-not-found]

    X, X_held, y, y_held = held_out(X, y)
    wrapped = WrapClassifier(clone(head))
    wrapped.fit(X, y)
    wrapped.calibrate(X_held, y_held, class_cond=True, seed=0)

    def answer(X: Array) -> Answer:
        # As `predict_p`, which computes the p-values of all classes once for each class.
        strange = wrapped.nc(wrapped.learner.predict_proba(X))
        labels = wrapped.learner.classes_
        p_values = [wrapped.cc.predict_p(strange[:, c], np.full(len(X), labels[c]), seed=c) for c in range(len(labels))]
        p_value = np.max(p_values, axis=0)  # the sets of `predict_set` hold what is at least 0.05
        return wrapped.predict(X), -p_value, p_value < 1 - 0.95

    return answer


def mapie(X: Array, y: Array, head: Pipeline) -> Callable[[Array], Answer]:
    from mapie.classification import SplitConformalClassifier  # type: ignore[import-not-found]

    X, X_held, y, y_held = held_out(X, y)
    classifier = clone(head).fit(X, y)
    wrapped = SplitConformalClassifier(classifier).conformalize(X_held, y_held)

    def answer(X: Array) -> Answer:
        predicted, sets = wrapped.predict_set(X)
        return predicted, -classifier.predict_proba(X).max(1), ~sets[:, :, 0].any(1)

    return answer


# scikit-learn


def beside(X: Array, y: Array, head: Pipeline, *, make: Callable[[], Any]) -> Callable[[Array], Answer]:
    """A detector, which knows no classes, beside the classifier."""
    detector, classifier = make().fit(X), clone(head).fit(X, y)

    def answer(X: Array) -> Answer:
        score = -detector.decision_function(X)
        return classifier.predict(X), score, score > 0

    return answer


def calibrated(X: Array, y: Array, head: Pipeline) -> Callable[[Array], Answer]:
    classifier = CalibratedClassifierCV(head).fit(X, y)

    def answer(X: Array) -> Answer:
        probability = classifier.predict_proba(X)
        return probability.argmax(1), -probability.max(1), probability.max(1) < 0.5

    return answer


# Formulas of pytorch-ood


def at_quantile(
    X: Array, y: Array, head: Pipeline, *, fit: Callable[[Array, Array, Pipeline], Score]
) -> Callable[[Array], Answer]:
    """The threshold of a fit to four fifths of the rows, for a fit to all of them."""
    some, rest, y_some, _ = held_out(X, y)
    threshold = np.quantile(fit(some, y_some, head)(rest)[1], SHARE)
    final = fit(X, y, head)

    def answer(X: Array) -> Answer:
        predicted, score = final(X)
        return predicted, score, score > threshold

    return answer


def _formula(kind: Callable[..., Score], **options: Any) -> Tool:
    return Tool("scikit-learn", "sklearn", partial(at_quantile, fit=partial(kind, **options)), QUANTILE, aim=SHARE)


def _beside(make: Callable[[], Any], threshold: str) -> Tool:
    return Tool("scikit-learn", "sklearn", partial(beside, make=make), threshold)


def _pyod(name: str) -> Tool:
    return Tool(
        "pyod",
        f"pyod.models.{name.lower()}",
        partial(pyod, name=name),
        "default: `contamination=0.1`, so a tenth of the training rows is outside",
        aim=0.9,
    )


QUANTILE = "none of its own: the 95 % quantile of a held-out fifth of the training rows"
FIFTH = "of its tutorial: the 5th percentile of the training scores"
OURS = "openauc"
TOOLS = {
    OURS: Tool("openauc", "openauc.features", ours, "default: accepts 95 % of known rows", aim=SHARE),
    "cleanlab-features": Tool("cleanlab", "cleanlab.outlier", cleanlab_features, FIFTH, aim=0.95),
    "cleanlab-pred-probs": Tool(
        "cleanlab", "cleanlab.outlier", cleanlab_probabilities, f"{FIFTH}, cross-validated", aim=0.95
    ),
    **{f"pyod-{name.lower()}": _pyod(name) for name in ("KNN", "ECOD", "LOF")},
    "semantic-router": Tool(
        "semantic-router",
        "semantic_router",
        semantic_router,
        "of its guide: a confidence of 0.9, which `fit` calibrates on a held-out fifth; it has no default",
        splits=3,
    ),
    "autointent": Tool(
        "autointent",
        "autointent",
        autointent,
        "found by its preset `classic-light`; without unknown rows to tune on, that may be none",
        splits=1,
    ),
    "crepes": Tool("crepes", "crepes", crepes, "default: an empty set at confidence 0.95, a threshold for each class"),
    "mapie": Tool("mapie", "mapie.classification", mapie, "default: an empty set at confidence 0.9 (LAC)"),
    "sklearn-isolation-forest": _beside(partial(IsolationForest, random_state=0), "default: the offset of its paper"),
    "sklearn-lof": _beside(partial(LocalOutlierFactor, novelty=True), "default: a factor of 1.5"),
    "sklearn-one-class-svm": _beside(OneClassSVM, "default: `nu=0.5`, so half of the training rows are outside"),
    "sklearn-calibrated": Tool("scikit-learn", "sklearn", calibrated, "a largest probability of 0.5"),
    "energy": _formula(by_logits, score=energy),
    "max-logit": _formula(by_logits, score=lambda logits: -logits.max(1)),
    "max-softmax": _formula(by_logits, score=lambda logits: -softmax(logits, axis=1).max(1)),
    "vim": _formula(by_features, fit=vim),
    "knn": _formula(by_features, fit=neighbours),
    "mahalanobis": _formula(by_features, fit=mahalanobis),
    "relative-mahalanobis": _formula(by_features, fit=partial(mahalanobis, relative=True)),
}


def run(tool: Tool, X: Array, y: Array, X_test: Array, C: float) -> dict[str, Any]:
    """Answers and seconds; or why there are none."""
    try:
        importlib.import_module(tool.module)
        found = {"version": version(tool.package)}
    except ImportError as error:
        return {"missing": sentence(error)}
    try:
        start = time.process_time()
        answer = tool.fit(X, y, logistic(C))
        middle = time.process_time()
        predicted, score, rejected = answer(X_test)
        seconds = {"fit_seconds": middle - start, "test_seconds": time.process_time() - middle}
    except Exception as error:
        return found | {"error": sentence(error)}
    return found | seconds | {"predicted": predicted, "score": score, "rejected": rejected}


def sentence(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def main() -> None:
    warnings.simplefilter("ignore")
    folder = Path(sys.argv[2])
    with np.load(sys.argv[1]) as rows:
        X, y, X_test, C = rows["X"], rows["y"], rows["X_test"], float(rows["C"])
    for name in sys.argv[3:]:
        found = run(TOOLS[name], X, y, X_test, C)
        part = folder / "part"
        with part.open("wb") as out:
            if "score" in found:
                np.savez(out, **found)
            else:
                out.write(json.dumps(found).encode())
        part.rename(folder / f"{name}.{'npz' if 'score' in found else 'json'}")


if __name__ == "__main__":
    main()
