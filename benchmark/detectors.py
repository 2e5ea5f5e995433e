"""scikit-learn's detectors of outliers, and the average of all scores, beside the heads of `openauc run features`.

`python benchmark/detectors.py STORE [--data-root D]` adds a result for each to every learned head of the store, so that
`python benchmark/contenders.py STORE` has them in its table.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from networks import scored
from numpy.typing import NDArray
from sklearn.ensemble import IsolationForest
from sklearn.neighbors import LocalOutlierFactor
from sklearn.svm import OneClassSVM

from openauc._trial_files import PREDICTIONS
from openauc.bench.store import Store
from openauc.features.classifier.evidence import EvidenceScale, Task, fit_and_score, standardise
from openauc.features.classifier.fitting import COMPARED
from openauc.features.classifier.heads import HEADS
from openauc.features.classifier.splits import deal
from openauc.predictions import Predictions
from openauc.protocols import OpenSetData
from openauc.training.head import FittedHead
from openauc.training.trained import load_data

PARTS = 5
"""Parts of the training samples, each scored by a head fitted on the others."""
MOST_SAMPLES = 5000
"""What a detector is fitted on at most: one of them takes the square of it."""
AVERAGE = "average_of_all"
DETECTORS: dict[str, Callable[[int], Any]] = {
    "isolation_forest": lambda seed: IsolationForest(random_state=seed),
    "one_class_svm": lambda seed: OneClassSVM(gamma="scale", nu=0.1),
    "local_outlier_factor": lambda seed: LocalOutlierFactor(n_neighbors=20, novelty=True),
}


def scale_of(head: FittedHead) -> EvidenceScale:
    """Of the compared scores, on training samples that a head was not fitted on but classifies correctly."""
    y, final = head.load().train.labels, head.train().head_with_scores_
    X = np.asarray(head.load().train.images, head.train().dtype_)
    task = Task(X, y, None, partial(HEADS[head.spec.method], final.head.strength), COMPARED, (), final.scaling)
    part = deal(y, np.arange(len(y)), PARTS, np.random.RandomState(head.spec.seed))
    seen = [fit_and_score(task, np.flatnonzero(part != k), np.flatnonzero(part == k)) for k in range(PARTS)]
    raw, predicted, label = (np.concatenate(found) for found in zip(*seen, strict=True))
    return standardise(raw, predicted, predicted == label, n_classes=len(head.train().classes_))[0]


def open_scores(name: str, head: FittedHead, data: OpenSetData) -> NDArray[Any]:
    """(n,) of the test part, by a detector or by the average of all standardised scores."""
    if name == AVERAGE:
        scale, X = scale_of(head), np.asarray(data.test.images, head.train().dtype_)
        return np.asarray(((head.with_scores(*COMPARED)(X)[0] - scale.mean) / scale.deviation).mean(1))
    X = np.asarray(data.train.images)
    rows = np.random.RandomState(head.spec.seed).permutation(len(X))[:MOST_SAMPLES]
    return -np.asarray(DETECTORS[name](head.spec.seed).fit(X[rows]).score_samples(data.test.images))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path)
    parser.add_argument("--data-root", type=Path)
    chosen = parser.parse_args()
    store = Store(chosen.store)
    learned = [result for result in store.results() if result.spec.score == "learned" and result.error is None]
    for result in learned:
        data = load_data(result.spec, chosen.data_root)
        head = FittedHead(result.spec, lambda data=data: data)
        predicted = head.embedded(result.spec, data, "test").logits.argmax(1)
        for name in (AVERAGE, *DETECTORS):
            spec = replace(result.spec, score=name)
            if store.result(spec) is None:
                begin = time.perf_counter()
                predictions = Predictions.of(data.test.labels, predicted, open_scores(name, head, data))
                store.open(spec)
                predictions.save(store.folder(spec) / PREDICTIONS, extra=data.test_columns())
                seconds = time.perf_counter() - begin
                store.save(scored(replace(result, spec=spec, seconds=seconds), predictions, data))
        print(result.spec.id, flush=True)


if __name__ == "__main__":
    main()
