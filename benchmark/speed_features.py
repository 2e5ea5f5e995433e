"""Speed and size of the OpenSetClassifier: fitting, predicting, its folder."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from timing import Row, in_turn

from openauc.features import OpenSetClassifier

MOST_FITS, FEWEST_ROWS, MOST_SECONDS, MOST_BYTES = 12, 20_000, 0.2, 30e6


def embeddings(n: int, width: int, n_classes: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Unit vectors around overlapping class means, with a spectrum that falls as that of an encoder does."""
    rng = np.random.default_rng(0)
    spectrum = np.exp(-3 * np.arange(width) / width)
    y = rng.integers(n_classes, size=n)
    X = (rng.normal(size=(n_classes, width))[y] + 1.5 * rng.normal(size=(n, width))) * spectrum
    return (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32), y


def fit(X: NDArray[np.float32], y: NDArray[np.int64]) -> OpenSetClassifier:
    return OpenSetClassifier(random_state=0).fit(X, y)


def features_rows(quick: bool) -> list[Row]:
    """Fitting against logistic regression on the same data; predicting; size and loading of a model."""
    share = 20 if quick else 1
    X, y = embeddings(20_000 // share, 384, 75 // (5 if quick else 1))
    half, ours, reference = in_turn(
        1, lambda: fit(X[::2], y[::2]), lambda: fit(X, y), lambda: LogisticRegression().fit(X, y)
    )
    rows = [
        Row(
            f"fit, {len(X):,} x 384, {len(np.unique(y))} classes, against LogisticRegression: times as long",
            ours,
            reference,
            ours / reference,
            f"<= {MOST_FITS}",
            ours / reference <= MOST_FITS,
        ),
        Row(
            "- the same against half of the samples: times as long",
            ours,
            half,
            ours / half,
            "<= 2.5",
            ours / half <= 2.5,
        ),
    ]
    X, y = embeddings(50_000 // share, 512, 20)
    classifier = fit(X, y)
    (seconds,) = in_turn(3, lambda: classifier.predict(X))
    rate = len(X) / seconds
    rows.append(
        Row(
            f"predict, learned, {len(X):,} x 512, 20 classes: rows a second (reference: the goal)",
            rate,
            FEWEST_ROWS,
            rate / FEWEST_ROWS,
            f">= {FEWEST_ROWS:,}",
            rate >= FEWEST_ROWS,
        )
    )
    X, y = embeddings(3_000 // share, 1_280, 100 // (5 if quick else 1))
    classifier = fit(X, y)
    with tempfile.TemporaryDirectory() as folder:
        classifier.save(Path(folder, "model"))
        size = sum(file.stat().st_size for file in Path(folder, "model").iterdir())
        (loading,) = in_turn(5, lambda: OpenSetClassifier.load(Path(folder, "model")))
    name = f"model of {len(np.unique(y))} classes x 1,280"
    rows += [
        Row(f"{name}: bytes (reference: the limit)", size, MOST_BYTES, size / MOST_BYTES, "<= 1", size <= MOST_BYTES),
        Row(
            f"{name}: seconds to load (reference: the limit)",
            loading,
            MOST_SECONDS,
            loading / MOST_SECONDS,
            "<= 1",
            loading <= MOST_SECONDS,
        ),
    ]
    return rows
