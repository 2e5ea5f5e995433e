"""Speed of metrics, learning and report, each against a reference measured in the same run.

`python benchmark/speed.py [metrics|learning|report] [--quick]`, all sections when none is named.

Both sides of a ratio are timed in turn, several times, and the ratio is that of the fastest calls: whatever else a
machine does only adds to a time. Where two sides differ by a few percent that is too coarse, and the ratio is the
median over pairs of calls made one after the other. Results go to
`benchmark/results/speed_<hardware>_<yyyymm>.{json,md}`, written by this program only; a run of one section keeps the
others as they were.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from plain_loop import PillowTransform, plain_epoch, plain_logits, plain_step
from sklearn.metrics import roc_auc_score
from torch import nn

import openauc
from openauc._files import write_text
from openauc.environment import environment, hardware_name
from openauc.methods.base import Method
from openauc.metrics import _kernel
from openauc.protocols import OpenSetData, get_protocol
from openauc.protocols.base import TrainPart
from openauc.report import predictions_report
from openauc.training.augment import TrainTransform, resize
from openauc.training.loop import build_method, limited, train
from openauc.training.predict import agreement, lay_out, predict_logits
from openauc.training.process import native_bfloat16
from openauc.training.recipe import Recipe, recipe_for

RESULTS = Path(__file__).parent / "results"
BATCH = 128
Triple = tuple[np.ndarray, np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Row:
    """One comparison: ``ratio`` is reference / ours where faster is better, else as the name says.

    A row without a target says where the time of another one goes.
    """

    name: str
    ours: float
    reference: float
    ratio: float
    target: str = ""
    met: bool | None = None


def simulated(n_known: int, n_unknown: int, n_classes: int, dtype: type = np.float32, seed: int = 0) -> Triple:
    """Shuffled samples of a classifier that is right nine times in ten, scores one and a half deviations apart."""
    rng = np.random.default_rng(seed)
    n = n_known + n_unknown
    order = rng.permutation(n)
    y_true = np.concatenate([rng.integers(0, n_classes, n_known), np.full(n_unknown, -1)])[order]
    y_pred = np.where((rng.random(n) < 0.9) & (y_true >= 0), y_true, rng.integers(0, n_classes, n))
    score = np.concatenate([rng.normal(0, 1, n_known), rng.normal(1.5, 1, n_unknown)]).astype(dtype)[order]
    return y_true, y_pred, score


def in_turn(repeats: int, *functions: Callable[[], object]) -> list[float]:
    """Seconds of the fastest call of each function, called in turn after one warm-up call."""
    seconds: list[list[float]] = [[] for _ in functions]
    for function in functions:
        function()
    for _ in range(repeats):
        for function, times in zip(functions, seconds, strict=True):
            start = time.perf_counter()
            function()
            times.append(time.perf_counter() - start)
    return [min(times) for times in seconds]


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


def faster(name: str, ours: float, reference: float, target: float) -> Row:
    return Row(name, ours, reference, reference / ours, f">= {target:g}x", reference / ours >= target)


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
    _kernel._kept.clear()  # what earlier calls left counts as well
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


def evaluate_row(n: int, replicates: int) -> Row:
    triple = simulated(n, n, 100)
    unknown, scores = masked(triple)
    ours, sklearn = in_turn(
        3, lambda: openauc.evaluate(*triple, n_replicates=replicates), lambda: roc_auc_score(unknown, scores)
    )
    name = (
        f"evaluate, {n:,} + {n:,} samples, 100 classes, {replicates:,} replicates, against {replicates:,} roc_auc_score"
    )
    return faster(name, ours, sklearn * replicates, 20)


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


def enlarged_digits(images: int) -> OpenSetData:
    """The embedded digits as 32 x 32 images, so that nothing has to be downloaded."""
    data = get_protocol("digits").load(0)
    return limited(replace(data, read_train=partial(enlarged, data.train)), images)


def enlarged(part: TrainPart) -> TrainPart:
    pixels = torch.from_numpy(part.images).permute(0, 3, 1, 2)
    return part._replace(images=resize(pixels, 32).permute(0, 2, 3, 1).contiguous().numpy())


Timed = Callable[[], float]
"""Does something once and returns its seconds."""


def timed(function: Callable[..., object], *arguments: Any) -> float:
    start = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - start


def second_time(function: Callable[..., object], *arguments: Any) -> float:
    function(*arguments)
    return timed(function, *arguments)


def in_new_process(function: Callable[..., object], *arguments: Any) -> float:
    """Seconds of the second of two calls in a process of their own.

    How fast a process clears and fills memory is decided when it starts: eager inference took 1.7 s in some and
    2.5 s in others, for minutes.
    """
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(second_time, function, *arguments).result()


def in_pairs(rounds: int, reference: Timed, *others: Timed) -> list[list[float]]:
    """For each of the others, medians over the rounds: seconds, seconds of the reference, ratio within a round.

    Calls of one round are seconds apart, so they share most of what the machine does meanwhile; every other round
    goes backwards, so that none profits from its place.
    """
    calls = [reference, *others]
    seconds = np.empty((rounds, len(calls)))
    for row in range(rounds):
        for column in range(len(calls))[:: -1 if row % 2 else 1]:
            seconds[row, column] = calls[column]()
    first = seconds[:, 0]
    return [[float(np.median(values)) for values in (own, first, own / first)] for own in seconds[:, 1:].T]


def faster_in_pairs(name: str, rounds: int, target: float, ours: Timed, reference: Timed) -> Row:
    ((slow, fast, gain),) = in_pairs(rounds, ours, reference)
    return Row(f"{name}, median of {rounds} pairs", fast, slow, gain, f">= {target:g}x", gain >= target)


def step_rows(data: OpenSetData, recipe: Recipe, width: int, rounds: int) -> list[Row]:
    """Steps of OpenAUC against those of cross-entropy, and of cross-entropy against itself to tell the noise."""
    x = torch.randn(BATCH, 3, 32, 32).contiguous(memory_format=torch.channels_last)
    y = torch.from_numpy(data.train_labels[:BATCH])

    def step(name: str, **options: str) -> Timed:
        method = build_method(name, data, recipe, width=width, method_args=options).train()
        lay_out(method, torch.channels_last)
        optimizer = method.optimizer(recipe)
        method.train_batch(x, y, optimizer)  # allocates the optimiser's state
        return lambda: timed(method.train_batch, x, y, optimizer)

    head, block, same = in_pairs(
        rounds, step("ce_plus"), step("openauc"), step("openauc", cut="block2"), step("ce_plus")
    )
    of = f"in steps of cross-entropy, median of {rounds} pairs"
    return [
        Row(f"step of OpenAUC, cut before the head, {of}", *head, "<= 1.05", head[2] <= 1.05),
        Row(f"step of OpenAUC, cut before the last block, {of}", *block, "<= 1.5", block[2] <= 1.5),
        Row(f"- noise: a second network's step of cross-entropy, {of}", *same),
    ]


def loop_rows(data: OpenSetData, recipe: Recipe, width: int, repeats: int) -> list[Row]:
    """Training on a CPU against a plain loop, the faster of one that loads in this process and one with workers."""
    ours, plain = (build_method("ce_plus", data, recipe, width=width) for _ in range(2))
    images, labels = data.train_images, data.train_labels
    precision = "bf16" if native_bfloat16(torch.device("cpu")) else "fp32"
    return [
        faster_in_pairs(
            f"training loop, {precision}, {len(images):,} images, against DataLoader, Pillow, fp32 and NCHW",
            repeats,
            2.5,
            lambda: in_new_process(partial(train, precision=precision), ours, data, recipe),
            lambda: min(in_new_process(plain_epoch, plain, images, labels, recipe, workers) for workers in (0, 2)),
        ),
        *part_rows(ours, plain, recipe, repeats),
    ]


def part_rows(ours: Method, plain: Method, recipe: Recipe, repeats: int) -> list[Row]:
    """One batch through the network, and through its convolutions alone, in fp32 on both sides.

    A matrix product tells how many multiplications a second there are to be had.
    """
    x = torch.randn(BATCH, 3, 32, 32)
    y = torch.arange(BATCH) % ours.num_classes
    lay_out(ours, torch.channels_last)
    sides = (ours, x.contiguous(memory_format=torch.channels_last)), (plain, x)

    def step(method: Method, x: torch.Tensor) -> Callable[[], object]:
        optimizer = method.train().optimizer(recipe)
        return lambda: plain_step(method, optimizer, x, y)

    steps = [step(*side) for side in sides]
    alone = [convolving(*side) for side in sides]
    square = torch.randn(2048, 2048)
    last, first, last_alone, first_alone, product = in_turn(repeats, *steps, *alone, lambda: square @ square)
    at_this_rate = product * multiplications(ours, x) / 2048**3
    return [
        Row(f"- of it, a step on {BATCH} images, fp32, channels last against NCHW", last, first, first / last),
        Row("- of that, the convolutions, forward and backward", last_alone, first_alone, first_alone / last_alone),
        Row(
            "- as many multiplications in a large fp32 matrix product, against these convolutions",
            last_alone,
            at_this_rate,
            at_this_rate / last_alone,
        ),
    ]


Convolved = tuple[nn.Conv2d, torch.Tensor, torch.Tensor]


def convolved(method: Method, x: torch.Tensor) -> list[Convolved]:
    """Each convolution of a method with the input and the output that a batch gives it."""
    seen: list[Convolved] = []

    def see(layer: nn.Conv2d, inputs: tuple[torch.Tensor], output: torch.Tensor) -> None:
        seen.append((layer, inputs[0].detach(), output.detach()))

    hooks = [layer.register_forward_hook(see) for layer in method.modules() if isinstance(layer, nn.Conv2d)]
    method.logits(x)
    for hook in hooks:
        hook.remove()
    return seen


def convolving(method: Method, x: torch.Tensor) -> Callable[[], object]:
    """A call that runs the convolutions of a method alone, on what a batch sends them, forward and backward."""
    parts = [(layer, h.requires_grad_(), torch.randn_like(output)) for layer, h, output in convolved(method, x)]
    return lambda: [torch.autograd.grad(layer(h), (layer.weight, h), gradient) for layer, h, gradient in parts]


def multiplications(method: Method, x: torch.Tensor) -> int:
    """Of the convolutions on a batch, directly: forward, for the input's gradient and for the weight's."""
    return sum(3 * output.numel() * layer.weight[0].numel() for layer, _, output in convolved(method, x))


def augmentation_row(data: OpenSetData, recipe: Recipe, repeats: int) -> Row:
    batch = data.train_images[:BATCH]
    plain = PillowTransform(recipe)
    pixels = torch.from_numpy(batch).permute(0, 3, 1, 2).contiguous()
    transform = TrainTransform(recipe, pixels.shape[2])
    generator = torch.Generator().manual_seed(0)
    ours, pillow = in_turn(
        repeats,
        lambda: transform(pixels, generator),
        lambda: torch.stack([plain(image) for image in batch]),
    )
    return faster(f"augmentation of {BATCH} images, against Pillow image by image", ours, pillow, 5)


def predict_rows(data: OpenSetData, recipe: Recipe, width: int, repeats: int) -> list[Row]:
    method = build_method("ce_plus", data, recipe, width=width)
    images = data.train_images
    plain_epoch(method, images, data.train_labels, recipe, 0)  # statistics for the BatchNorms
    alike = agreement(predict_logits(method, images, recipe), plain_logits(method, images, BATCH))
    return [
        faster_in_pairs(
            f"predict_logits, {len(images):,} images, against eager fp32 and NCHW",
            2 * repeats,
            1.5,
            lambda: in_new_process(predict_logits, method, images, recipe),
            lambda: in_new_process(plain_logits, method, images, BATCH),
        ),
        Row("share of equal arg max", alike, 1.0, alike, ">= 0.999", alike >= 0.999),
    ]


def learning_rows(quick: bool) -> list[Row]:
    width, repeats = (8, 3) if quick else (64, 7)
    data = enlarged_digits(2 * BATCH if quick else 5 * BATCH)
    recipe = recipe_for("plus", "cifar10", epochs=1, batch_size=BATCH)
    return [
        *predict_rows(data, recipe, width, repeats),
        *step_rows(data, recipe, width, 5 if quick else 80),
        augmentation_row(data, recipe, 5 * repeats),
        *loop_rows(data, recipe, width, repeats),
    ]


def report_rows(quick: bool) -> list[Row]:
    """Pages opened in a real Chromium, from the file to the last chart."""
    from playwright.sync_api import sync_playwright

    small, large = 10_000, 20_000 if quick else 1_000_000
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])

        def opening(n: int) -> Callable[[], object]:
            file = Path(folder, f"{n}.html")
            models = {"model": openauc.Predictions.of(*simulated(n // 2, n // 2, 10))}
            write_text(file, predictions_report(models, n_replicates=2))

            def open_page() -> None:
                page = browser.new_page()
                page.goto(file.as_uri())
                page.wait_for_function("[...document.querySelectorAll('.chart')].every(c => c.querySelector('svg'))")
                page.close()

            return open_page

        few, many = in_turn(5, opening(small), opening(large))
        browser.close()
    return [
        Row(
            f"a report on {large:,} samples opens in Chromium (reference: the limit)",
            many,
            3,
            3 / many,
            "< 3 s",
            many < 3,
        ),
        Row(f"- against one on {small:,} samples", many, few, few / many),
    ]


def metrics_rows(quick: bool) -> list[Row]:
    if quick:
        return [small_row(), *openauc_rows(200_000, 3), evaluate_row(5_000, 100), sweep_row(2_000, 1)]
    return [
        small_row(),
        *openauc_rows(1_000_000, 9),
        *openauc_rows(10_000_000, 5),
        evaluate_row(100_000, 2000),
        sweep_row(20_000, 5),
    ]


SECTIONS = {"metrics": metrics_rows, "learning": learning_rows, "report": report_rows}


def section_table(name: str, section: dict[str, Any]) -> list[str]:
    facts = ", ".join(f"{key} {value}" for key, value in section["environment"].items())
    verdict = {True: "yes", False: "**no**", None: ""}
    return [
        f"## {name.capitalize()}",
        "",
        f"{facts}.",
        "",
        "| what | ours | reference | ratio | target | met |",
        "|---|---:|---:|---:|---:|---|",
        *(
            f"| {r['name']} | {r['ours']:.4g} | {r['reference']:.4g} | {r['ratio']:.3g} | {r['target']} "
            f"| {verdict[r['met']]} |"
            for r in section["rows"]
        ),
        "",
    ]


def table(sections: dict[str, dict[str, Any]]) -> str:
    lines = [
        "# Speed",
        "",
        "Written by `benchmark/speed.py`. Seconds of the fastest of several calls, of the median call where a row says",
        "so; both sides of a ratio from one run.",
        "",
    ]
    for name, section in sections.items():
        lines += section_table(name, section)
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("section", nargs="?", choices=SECTIONS, help="measure this section only")
    parser.add_argument("--quick", action="store_true", help="small sizes, nothing written: to try the program")
    options = parser.parse_args()
    facts = environment()
    chosen = [options.section] if options.section else list(SECTIONS)
    measured = {
        name: {"environment": facts, "rows": [asdict(row) for row in SECTIONS[name](options.quick)]} for name in chosen
    }
    print(table(measured))
    if options.quick:
        return
    file = RESULTS / f"speed_{hardware_name()}_{time.strftime('%Y%m')}.json"
    before = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    everything = before | measured
    sections = {name: everything[name] for name in SECTIONS if name in everything}
    write_text(file, json.dumps(sections, indent=2) + "\n")
    write_text(file.with_suffix(".md"), table(sections))


if __name__ == "__main__":
    main()
