"""The training loop: one process or many, resumable at any batch, the same weights for the same seed.

Nothing random outlives a batch except PyTorch's default generator (dropout) and the method's own: the order of
an epoch follows from seed and epoch, the augmentation of a batch from seed, epoch, batch and process.
"""

from __future__ import annotations

import json
import math
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch
from accelerate import Accelerator, DistributedDataParallelKwargs
from accelerate.state import AcceleratorState
from accelerate.tracking import GeneralTracker
from accelerate.utils import gather_object
from numpy.typing import NDArray
from torch import Tensor

from openauc._files import write_text
from openauc._trial_files import CHECKPOINT, LOG, WEIGHTS, refuse_other_run
from openauc._validation import check_choice
from openauc.executors import Interrupted
from openauc.methods.base import Method
from openauc.protocols.base import OpenSetData
from openauc.recipe import Recipe
from openauc.training.augment import transform
from openauc.training.checkpoint import (
    generator_state,
    load_checkpoint,
    restore_generators,
    save_checkpoint,
    save_weights,
)
from openauc.training.pixels import Pixels
from openauc.training.process import caught_signals, on_cpu, process_state
from openauc.training.schedule import learning_rate

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

Precision = Literal["fp32", "bf16", "fp16"]
PRECISIONS: dict[Precision, str] = {"fp32": "no", "bf16": "bf16", "fp16": "fp16"}
TRACKERS = {"tensorboard": ("tensorboard", "tensorboardX"), "wandb": ("wandb",), "mlflow": ("mlflow",)}
"""Trackers by name, and the packages of which one has to be installed."""


class TrainingInterrupted(Interrupted):
    """SIGINT or SIGTERM arrived; a checkpoint holds everything up to the last batch."""

    def __init__(self, signum: int, where: str) -> None:
        super().__init__(f"stopped by {signal.Signals(signum).name} {where}.")
        self.signum = signum


class Batch(NamedTuple):
    """One process's part of a batch."""

    phase: str
    rows: NDArray[np.int64]
    images: float  # of the batch that the rows stand for
    share: float  # of the batch, times the number of processes


def train(
    method: Method,
    data: OpenSetData,
    recipe: Recipe,
    *,
    out: Path | None = None,
    seed: int = 0,
    precision: Precision = "fp32",
    compile: bool = False,
    trackers: Sequence[str | GeneralTracker] = (),
    about: Mapping[str, Any] | None = None,
) -> list[dict[str, float]]:
    """Train a method on the known classes; returns one row per epoch.

    Start it with ``torchrun`` or ``accelerate launch`` to use several processes: each takes its part of every batch of
    ``recipe.batch_size``. BatchNorm and mixing see one process's part only; everything else is as in one process.

    Parameters
    ----------
    method, data, recipe
        The method is changed in place; the test part of the data is not read.
    out
        Folder for ``checkpoint.pt``, ``log.jsonl`` and, in the end, ``model.safetensors``. The same call again goes on
        from the checkpoint; on the CPU the weights are, bit for bit, those of a run that never stopped. SIGINT and
        SIGTERM are then answered by a checkpoint.
    seed
        Seeds the order, the augmentation, and PyTorch's default generator, which dropout draws from.
    precision, compile
        Autocast of the forward pass (fp16 needs a GPU); whether to compile the backbone, which stays compiled.
    trackers
        Names in ``TRACKERS``, or tracker objects of ``accelerate``.
    about
        JSON-ready description of the run, kept in checkpoint and weights. A checkpoint of another run is refused.

    Returns
    -------
    list of dict
        ``epoch`` (from 1), ``loss``, ``learning_rate``, ``seconds``, ``images_per_second``, and means over
        the epoch's images of what the method's steps and ``diagnostics()`` report.

    Raises
    ------
    TrainingInterrupted
        After the checkpoint that a signal asked for.
    FloatingPointError
        At the end of an epoch with a loss that is not finite. The checkpoint of the epoch before stays.
    """
    if data.num_classes != method.num_classes:
        found = f"the method has {method.num_classes} classes but the data {data.num_classes}"
        raise ValueError(f"{found}; build the method with num_classes=data.num_classes.")
    if len(data.train.labels) == 0:
        raise ValueError("the training part is empty; nothing can be learned from it.")
    if seed < 0:
        raise ValueError(f"seed is {seed}; expected an integer from 0 upwards.")
    if precision == "fp16" and process_state().device.type == "cpu":
        raise ValueError("precision is 'fp16', which needs a GPU; use 'bf16' or 'fp32' on a CPU.")
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    accelerator = _accelerator(method, precision, trackers, out)
    try:
        run = _Run(method, data, recipe, accelerator, out, seed, dict(about or {}))
        if compile:
            method.backbone.compile()
        return run.go()
    finally:
        for tracker in accelerator.trackers:
            tracker.finish()
        accelerator.unwrap_model(method, keep_fp32_wrapper=False)
        # Otherwise the next run of this process could not choose another precision.
        AcceleratorState._reset_state()


def epoch_batches(
    count: int,
    batch_size: int,
    *,
    seed: int,
    epoch: int,
    passes: Sequence[str] = ("plain",),
    process: int = 0,
    processes: int = 1,
) -> list[Batch]:
    """Batches of one epoch for one process: a function of seed and epoch, shuffled anew for each pass.

    Every image comes once per pass, and the last batch may be smaller. Weighted by their shares, the mean losses of
    the processes average to the mean loss of the batch. A batch with fewer images than processes is not divided:
    every process takes all of it.

    >>> [len(batch.rows) for batch in epoch_batches(10, 4, seed=0, epoch=0)]
    [4, 4, 2]
    >>> [len(epoch_batches(10, 9, seed=0, epoch=0, process=i, processes=2)[1].rows) for i in range(2)]
    [1, 1]
    """
    batches = []
    for number, phase in enumerate(passes):
        order = np.random.default_rng([seed, *b"order", epoch, number]).permutation(count)
        for start in range(0, count, batch_size):
            whole = order[start : start + batch_size]
            divided = len(whole) >= processes
            own = np.array_split(whole, processes)[process] if divided else whole
            images = len(own) if divided else len(whole) / processes
            batches.append(Batch(phase, own, images, share=images * processes / len(whole)))
    return batches


_PROGRESS = ("epoch", "batch", "seconds", "history")


@dataclass
class _Run:
    """One training run of one process."""

    method: Method
    data: OpenSetData
    recipe: Recipe
    accelerator: Accelerator
    out: Path | None
    seed: int
    about: dict[str, Any]
    epoch: int = 0  # finished ones, a row of the history each
    batch: int = 0  # finished batches of the next epoch, and what they took
    seconds: float = 0.0
    history: list[dict[str, float]] = field(default_factory=list)
    # Of each number that steps report: the sum, on the device, and the sum of weights.
    sums: dict[str, tuple[Tensor | float, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        method, recipe, accelerator, seed = self.method, self.recipe, self.accelerator, self.seed
        self.process, self.processes = accelerator.process_index, accelerator.num_processes
        images, self.labels = self.data.train
        self.pixels = Pixels(images, accelerator.device)
        torch.manual_seed(_number(seed, "torch", self.process))  # dropout
        if self.process:  # so far all processes have equal methods
            method.rng = np.random.default_rng([seed, *b"method", self.process])
        method.to(accelerator.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        method.use_recipe(recipe)
        main = method.optimizer(recipe)
        self.optimizers = {"main": main, **method.auxiliary_optimizers()}
        self.forward, self.optimizer = accelerator.prepare(method, main)
        method.train()
        method.trained_with = recipe
        self.about |= {
            "method_class": type(method).__name__,
            "recipe": recipe.to_dict(),
            "seed": seed,
            "n_train": len(self.labels),
            "processes": self.processes,
        }

    def go(self) -> list[dict[str, float]]:
        """Run from wherever the checkpoint ends to the last epoch."""
        self.accelerator.init_trackers("openauc", config={key: str(value) for key, value in self.about.items()})
        self._resume()
        log = self.out / LOG if self.out is not None and self.accelerator.is_main_process else None
        if log is not None:
            write_text(log, "".join(f"{json.dumps(row)}\n" for row in self.history))
        with caught_signals(enabled=self.out is not None) as caught, self._bar() as bar:
            while self.epoch < self.recipe.epochs:
                if not self._epoch(caught, bar):
                    self._save()
                    where = f"in epoch {self.epoch + 1} after {self.batch} batches"
                    raise TrainingInterrupted(self._agreed(caught), where)
                self._save()
                if log is not None:
                    with log.open("a", encoding="utf-8") as file:
                        file.write(f"{json.dumps(self.history[-1])}\n")
                self.accelerator.log(self.history[-1], step=self.epoch)
        if self.out is not None and self.accelerator.is_main_process:
            save_weights(self.method, self.out / WEIGHTS, self.about)
        return self.history

    def _epoch(self, caught: list[int], bar: Bar) -> bool:
        """Finish the epoch under way and append its row; False when a signal came first."""
        rate = learning_rate(self.recipe, self.epoch)
        for group in self.optimizers["main"].param_groups:
            group["lr"] = rate
        batches = epoch_batches(
            len(self.labels),
            self.recipe.batch_size,
            seed=self.seed,
            epoch=self.epoch,
            passes=self.method.passes,
            process=self.process,
            processes=self.processes,
        )
        begin = time.perf_counter() - self.seconds
        rest = batches[self.batch :]
        for batch, pixels in zip(rest, self.pixels.stream([batch.rows for batch in rest]), strict=True):
            values = self._step(batch, pixels)
            self.batch += 1
            self.seconds = time.perf_counter() - begin
            for name, value in values.items():
                total, weight = self.sums.get(name, (0.0, 0.0))
                self.sums[name] = total + batch.images * value.detach().double(), weight + batch.images
            self._show(bar, rate, self.batch / len(batches))
            if self._agreed(caught):
                return False
        self._finish_epoch(rate)
        return True

    def _step(self, batch: Batch, pixels: Tensor) -> dict[str, Tensor]:
        drawn = _number(self.seed, "augment", self.epoch, self.batch, self.process)
        values = self.method.train_batch(
            transform(pixels, self.recipe, torch.Generator().manual_seed(drawn)),
            torch.from_numpy(self.labels[batch.rows]),
            self.optimizer,
            phase=batch.phase,
            forward=self.forward,
            backward=lambda loss: self.accelerator.backward(batch.share * loss),
        )
        return values | self.method.diagnostics()

    def _gathered(self) -> list[dict[str, Any]]:
        """What a checkpoint keeps of each process: its generators, and its sums, read from the device in one copy."""
        totals = [torch.as_tensor(total, dtype=torch.float64) for total, _ in self.sums.values()]
        numbers = torch.stack(totals).tolist() if totals else []
        sums = {name: (total, self.sums[name][1]) for name, total in zip(self.sums, numbers, strict=True)}
        found: list[dict[str, Any]] = gather_object([{**generator_state(self.method), "sums": sums}])
        return found

    def _means(self, processes: Sequence[Mapping[str, Any]]) -> dict[str, float]:
        """The epoch's means so far; one that is not finite ends the run."""
        sums: dict[str, tuple[float, float]] = {}
        for process in processes:
            for name, (total, weight) in process["sums"].items():
                before = sums.get(name, (0.0, 0.0))
                sums[name] = (before[0] + total, before[1] + weight)
        means = {name: total / weight for name, (total, weight) in sums.items()}
        for name, mean in means.items():
            if not math.isfinite(mean):
                kept = self.out is not None and (self.out / CHECKPOINT).is_file()
                rate = learning_rate(self.recipe, self.epoch)
                raise FloatingPointError(
                    f"the {name.replace('_', ' ')} is {mean} in epoch {self.epoch + 1}, at a learning rate of "
                    f"{rate:g}; lower the rate or add warm-up epochs"
                    + (f". The last good checkpoint is kept in {self.out}." if kept else ".")
                )
        return means

    def _finish_epoch(self, rate: float) -> None:
        if self.processes > 1:  # running statistics of the first process are the ones that are saved
            for buffer in self.method.buffers():
                torch.distributed.broadcast(buffer, 0)
        means = self._means(self._gathered())
        images = len(self.labels) * len(self.method.passes)
        row = {
            "epoch": self.epoch + 1,
            "loss": means.pop("loss"),
            "learning_rate": rate,
            "seconds": self.seconds,
            "images_per_second": images / self.seconds,
            **means,
        }
        self.sums = {}
        self.epoch, self.batch, self.seconds = self.epoch + 1, 0, 0.0
        self.history.append(row)

    def _save(self) -> None:
        if self.out is None:
            return
        processes = self._gathered()
        self._means(processes)
        if not self.accelerator.is_main_process:
            return
        scaler = self.accelerator.scaler
        state = {
            "about": json.dumps(self.about),
            "progress": {name: getattr(self, name) for name in _PROGRESS},
            "model": self.method.state_dict(),
            "optimizers": {name: optimizer.state_dict() for name, optimizer in self.optimizers.items()},
            "processes": processes,
            "scaler": None if scaler is None else scaler.state_dict(),
        }
        save_checkpoint(self.out / CHECKPOINT, state)

    def _resume(self) -> None:
        if self.out is None or not (self.out / CHECKPOINT).is_file():
            return
        state = load_checkpoint(self.out / CHECKPOINT)
        refuse_other_run(self.out, json.loads(state["about"]), self.about)
        self.method.load_state_dict(state["model"])
        for name, optimizer in self.optimizers.items():
            optimizer.load_state_dict(state["optimizers"][name])
        own = state["processes"][self.process]
        restore_generators(self.method, own)
        self.sums = dict(own["sums"])
        for name in _PROGRESS:
            setattr(self, name, state["progress"][name])
        if state["scaler"] is not None and self.accelerator.scaler is not None:
            self.accelerator.scaler.load_state_dict(state["scaler"])

    def _agreed(self, caught: list[int]) -> int:
        """The signal that any process caught, 0 if none did; processes must stop after the same batch."""
        signum = caught[0] if caught else 0
        if self.processes == 1:
            return signum
        shared = torch.tensor(signum, device=self.accelerator.device)
        torch.distributed.all_reduce(shared, torch.distributed.ReduceOp.MAX)
        return int(shared)

    def _bar(self) -> Bar:
        """Progress over all epochs; silent unless the main process talks to a terminal."""
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TimeRemainingColumn

        console = Console(stderr=True)
        bar = Progress(
            "epoch {task.fields[epoch]}/{task.total:g}",
            BarColumn(),
            "last loss {task.fields[loss]:.4f}  rate {task.fields[rate]:.2g}",
            "{task.fields[speed]:,.0f} images/s",
            TimeRemainingColumn(),
            console=console,
            disable=not (console.is_terminal and self.accelerator.is_main_process),
        )
        bar.add_task("", total=self.recipe.epochs, epoch=self.epoch, loss=math.nan, rate=0.0, speed=0.0)
        return bar

    def _show(self, bar: Bar, rate: float, share: float) -> None:
        done = self.epoch
        loss = self.history[-1]["loss"] if self.history else math.nan
        speed = share * len(self.labels) * len(self.method.passes) / self.seconds
        bar.update(bar.task_ids[0], completed=done + share, epoch=done + 1, loss=loss, rate=rate, speed=speed)


def _accelerator(
    method: Method, precision: Precision, trackers: Sequence[str | GeneralTracker], out: Path | None
) -> Accelerator:
    check_choice("precision", precision, PRECISIONS)
    for tracker in trackers:
        if isinstance(tracker, str):
            packages = TRACKERS[check_choice("tracker", tracker, TRACKERS)]
            if not any(map(find_spec, packages)):
                raise ImportError(f"the tracker {tracker!r} needs `pip install {packages[0]}`.")
    return Accelerator(
        cpu=on_cpu(),
        mixed_precision=PRECISIONS[precision],
        log_with=list(trackers) or None,
        project_dir=None if out is None else str(out),
        kwargs_handlers=[DistributedDataParallelKwargs(find_unused_parameters=method.find_unused_parameters)],
    )


def _number(seed: int, purpose: str, *place: int) -> int:
    """A seed of its own for each purpose and place."""
    sequence = np.random.SeedSequence([seed, *purpose.encode(), *place])
    return int(sequence.generate_state(1, np.uint64)[0] >> np.uint64(1))
