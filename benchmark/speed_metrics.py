"""Speed of the metrics: against scikit-learn, numpy's sort and a Python loop."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import tracemalloc
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from sklearn.metrics import roc_auc_score
from timing import Row, faster, in_turn

import openauc
from openauc.metrics import _pairs
from openauc.report import predictions_report

Triple = tuple[np.ndarray, np.ndarray, np.ndarray]


def simulated(n_known: int, n_unknown: int, n_classes: int, dtype: type = np.float32, seed: int = 0) -> Triple:
    """Shuffled samples of a classifier that is right nine times in ten, scores one and a half deviations apart."""
    rng = np.random.default_rng(seed)
    n = n_known + n_unknown
    order = rng.permutation(n)
    y_true = np.concatenate([rng.integers(0, n_classes, n_known), np.full(n_unknown, -1)])[order]
    y_pred = np.where((rng.random(n) < 0.9) & (y_true >= 0), y_true, rng.integers(0, n_classes, n))
    score = np.concatenate([rng.normal(0, 1, n_known), rng.normal(1.5, 1, n_unknown)]).astype(dtype)[order]
    return y_true, y_pred, score


@contextmanager
def backend(name: str):
    """Run with one of the two backends."""
    before = os.environ.get("OPENAUC_BACKEND", "auto")
    os.environ["OPENAUC_BACKEND"] = name
    try:
        yield
    finally:
        os.environ["OPENAUC_BACKEND"] = before


def masked(triple: Triple) -> tuple[np.ndarray, np.ndarray]:
    """The paper's reduction to AUC: misclassified known samples get a score above every unknown one."""
    y_true, y_pred, score = triple
    unknown = y_true == -1
    top = np.nextafter(score[unknown].max(), np.inf, dtype=score.dtype)
    return unknown, np.where(unknown | (y_true == y_pred), score, top)


def openauc_rows(n: int, repeats: int) -> list[Row]:
    triple = simulated(n // 2, n - n // 2, 10)
    unknown, scores = masked(triple)
    sides = triple[2][unknown], triple[2][~unknown]
    ours, sklearn, sort = in_turn(
        repeats,
        lambda: openauc.openauc_score(*triple),
        lambda: roc_auc_score(unknown, scores),
        lambda: [np.sort(side) for side in sides],
    )
    rows = [faster(f"openauc_score, {n:,} float32, against scikit-learn's roc_auc_score", ours, sklearn, 40)]
    if n >= 10_000_000:
        share = ours / sort
        rows.append(
            Row(
                f"openauc_score, {n:,} float32, share of np.sort of both sides",
                ours,
                sort,
                share,
                "<= 0.6",
                share <= 0.6,
            )
        )
        with backend("numpy"):
            (plain,) = in_turn(3, lambda: openauc.openauc_score(*triple))
        rows.append(faster("the same, numpy only, against scikit-learn's roc_auc_score", plain, sklearn, 5))
        rows.append(memory_row(triple))
    return rows


def memory_row(triple: Triple) -> Row:
    size = sum(part.nbytes for part in triple)
    _pairs._kept.clear()  # what earlier calls left counts as well
    tracemalloc.start()
    openauc.openauc_score(*triple)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return Row(
        "openauc_score, peak extra memory in input sizes (bytes)", peak, size, peak / size, "<= 3", peak <= 3 * size
    )


def small_row() -> Row:
    triple = simulated(500, 500, 10)
    (ours,) = in_turn(3000, lambda: openauc.openauc_score(*triple))
    return Row("openauc_score, 1,000 float32 (reference: the limit)", ours, 1e-4, 1e-4 / ours, "< 100 us", ours < 1e-4)


def at_most(name: str, ours: float, reference: float, target: float) -> Row:
    share = ours / reference
    return Row(name, ours, reference, share, f"<= {target:g}x", share <= target)


def evaluate_rows(n: int, repeats: int) -> list[Row]:
    """All metrics with intervals, and what is built on them, against one roc_auc_score on the same rows."""
    triple = simulated(n // 2, n - n // 2, 100)
    noise = np.random.default_rng(1).normal(size=n).astype(np.float32)
    other = (triple[0], triple[1], triple[2] + noise)
    unknown, scores = masked(triple)
    predictions = {"model": openauc.Predictions.of(*triple)}
    ours, sklearn, both, page = in_turn(
        repeats,
        lambda: openauc.evaluate(*triple),
        lambda: roc_auc_score(unknown, scores),
        lambda: openauc.compare(triple, other, metrics=list(openauc.METRICS)),
        lambda: predictions_report(predictions),
    )
    with backend("numpy"):
        (plain,) = in_turn(repeats, lambda: openauc.evaluate(*triple))
    where = f"{n:,} rows, 100 classes"
    return [
        at_most(f"evaluate, all metrics and intervals, {where}, in times of one roc_auc_score", ours, sklearn, 4),
        at_most("the same, numpy only", plain, sklearn, 12),
        at_most(f"compare, two models, all metrics, {where}, in times of one evaluate", both, ours, 2.5),
        at_most(f"predictions_report, {where}, in times of one evaluate", page, ours, 3),
        file_row(triple, sklearn),
    ]


def file_row(triple: Triple, sklearn: float) -> Row:
    """`openauc evaluate` of a CSV file in a process of its own, reading and start-up included."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "predictions.csv")
        openauc.Predictions.of(*triple).save(file)
        command = [sys.executable, "-c", "from openauc.cli import main; main()", "evaluate", str(file)]
        (ours,) = in_turn(2, lambda: subprocess.run(command, check=True, capture_output=True))
    name = f"openauc evaluate of a CSV file of {len(triple[0]):,} rows, in times of one roc_auc_score"
    return at_most(name, ours, sklearn, 12)


def small_evaluate_row(n: int) -> Row:
    triple = simulated(n // 2, n - n // 2, 100)
    (ours,) = in_turn(20, lambda: openauc.evaluate(*triple))
    return Row(
        f"evaluate, all metrics and intervals, {n:,} rows, 100 classes (reference: the limit)",
        ours,
        0.06,
        0.06 / ours,
        "< 60 ms",
        ours < 0.06,
    )


def loop_over_grid(y_true: np.ndarray, y_pred: np.ndarray, score: np.ndarray, grid: np.ndarray) -> tuple[float, float]:
    """Best micro and macro F-score as public evaluators find them: a Python loop per threshold and sample."""
    n_classes = int(y_pred.max()) + 1
    micro, macro = [], []
    for t in grid:
        rejected = score > t
        hit, false, missed = 0, 0, 0
        for true, pred, out in zip(y_true, y_pred, rejected, strict=True):
            hit += 1 if true == pred and not out else 0
            false += 1 if true != pred and not out else 0
            missed += 1 if true >= 0 and (out or true != pred) else 0
        micro.append(f_score([hit], [false], [missed]))
        hits, falses, misses = [0] * n_classes, [0] * n_classes, [0] * n_classes
        for true, pred, out in zip(y_true, y_pred, rejected, strict=True):
            hits[pred] += 1 if true == pred and not out else 0
            falses[pred] += 1 if true != pred and not out else 0
            misses[true] += 1 if true >= 0 and (out or true != pred) else 0
        macro.append(f_score(hits, falses, misses))
    return max(micro), max(macro)


def f_score(hits: list[int], falses: list[int], misses: list[int]) -> float:
    """Harmonic mean of mean precision and mean recall."""
    precision = sum(h / (h + f) if h + f else 0.0 for h, f in zip(hits, falses, strict=True)) / len(hits)
    recall = sum(h / (h + m) if h + m else 0.0 for h, m in zip(hits, misses, strict=True)) / len(hits)
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def sweep_row(n: int, repeats: int) -> Row:
    triple = simulated(n // 2, n // 2, 10)
    grid = np.quantile(triple[2], np.linspace(0.01, 0.99, 99))
    (ours,) = in_turn(60 * repeats, lambda: openauc.threshold_sweep(*triple))
    (loop,) = in_turn(repeats, lambda: loop_over_grid(*triple, grid))
    name = f"threshold_sweep, {n:,} samples, every distinct threshold, against a Python loop over 99 for the F-scores"
    return faster(name, ours, loop, 1000)


def metrics_rows(quick: bool) -> list[Row]:
    if quick:
        return [
            small_row(),
            *openauc_rows(200_000, 3),
            small_evaluate_row(10_000),
            *evaluate_rows(100_000, 1),
            sweep_row(2_000, 1),
        ]
    return [
        small_row(),
        *openauc_rows(1_000_000, 9),
        *openauc_rows(10_000_000, 5),
        small_evaluate_row(10_000),
        *evaluate_rows(1_000_000, 5),
        sweep_row(20_000, 5),
    ]
