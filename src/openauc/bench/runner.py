"""One straight line from a spec to its result, and the bookkeeping that runs a list of them exactly once."""

from __future__ import annotations

import tempfile
import time
import traceback
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Protocol as Interface

import torch

from openauc.bench.executors import Execute, in_process
from openauc.bench.store import PREDICTIONS, Claims, Store
from openauc.bench.trial import Job, Outcome, TrialResult, TrialSpec
from openauc.environment import environment
from openauc.evaluation import Evaluation, evaluate
from openauc.methods.base import Method
from openauc.metrics.ranking import ScoreDirectionWarning
from openauc.models import load_weights
from openauc.predictions import Predictions
from openauc.protocols import OpenSetData, get_protocol
from openauc.training.loop import CHECKPOINT, LOG, WEIGHTS, TrainingInterrupted, build_method, limited, train
from openauc.training.predict import predict

FILES = (LOG, WEIGHTS, PREDICTIONS)


class Watch(Interface):
    """Whoever wants to see a run's progress."""

    def planned(self, waiting: Sequence[TrialSpec], done: Sequence[TrialResult]) -> None:
        """The run begins: what it will do, and what was done before."""

    def started(self, specs: Sequence[TrialSpec]) -> None:
        """A job was given to a worker."""

    def finished(self, result: TrialResult) -> None:
        """A result, good or bad, is in the store."""


class Unwatched:
    """Nobody looks."""

    def planned(self, waiting: Sequence[TrialSpec], done: Sequence[TrialResult]) -> None:
        """Ignore."""

    def started(self, specs: Sequence[TrialSpec]) -> None:
        """Ignore."""

    def finished(self, result: TrialResult) -> None:
        """Ignore."""


def run(
    specs: Iterable[TrialSpec],
    *,
    out: Path | str,
    data_root: Path | None = None,
    execute: Execute = in_process,
    retry_failed: bool = False,
    watch: Watch | None = None,
) -> list[TrialResult]:
    """Run what is missing of a list of trials; returns the results that are there in the end, in the list's order.

    Parameters
    ----------
    specs
        A trial named twice is run once.
    out
        Folder of the store. Results found there are not made again, a half-trained trial goes on from its checkpoint,
        and trials that another runner of the same store works on are left to it.
    data_root
        Local mirror of the data, on the machines where trials run; else ``OPENAUC_DATA``, else the Hub.
    execute
        Where to run: :func:`~openauc.bench.executors.in_process`, a process pool, or a Ray cluster.
    retry_failed
        Run trials again whose result is an error.
    watch
        Told about progress.

    Raises
    ------
    KeyboardInterrupt
        When stopped by SIGINT or SIGTERM; the store is complete up to then, and calling again goes on.
    """
    store, watch = Store(out), watch or Unwatched()
    wanted = list({spec.id: spec for spec in specs}.values())
    store.plan(wanted)
    found = {spec.id: store.result(spec) for spec in wanted}
    done = [result for result in found.values() if result is not None and not (retry_failed and result.error)]
    finished = {result.spec.id for result in done}
    waiting = [spec for spec in wanted if spec.id not in finished]
    watch.planned(waiting, done)
    with ExitStack() as stack:
        claims = stack.enter_context(store.claims())
        jobs = _jobs(store, waiting, claims, retry_failed=retry_failed, watch=watch)
        outcomes = execute(partial(run_job, data_root=data_root), jobs)
        # A generator ends before the claims do, so that nobody trains what is no longer claimed.
        stack.callback(getattr(outcomes, "close", lambda: None))
        for outcome in outcomes:
            key = outcome.job.specs[0].training_id
            # Whoever took over an owner that seemed dead has the right to the result.
            if claims.holds(key):
                _keep(store, outcome)
                for result in outcome.results:
                    watch.finished(result)
            claims.release(key)
    ended = (store.result(spec) for spec in wanted)
    return [result for result in ended if result is not None]


def run_trial(spec: TrialSpec, *, out: Path | str, data_root: Path | None = None) -> TrialResult:
    """Load, train, predict, evaluate; files go to ``out``, where a checkpoint left by an earlier call is resumed.

    Whatever goes wrong becomes the result's ``error``.
    """
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    (result,) = _run_sharing((spec,), {spec.id: folder}, data_root)
    return result


def run_job(job: Job, *, data_root: Path | None = None) -> Outcome:
    """Train once and test for every trial of the job, in the job's folder or a temporary one."""
    with _workplace(job.folder) as parent:
        folders = {spec.id: parent / spec.id for spec in job.specs}
        for folder in folders.values():
            folder.mkdir(parents=True, exist_ok=True)
        results = _run_sharing(job.specs, folders, data_root)
        return Outcome(job, results, {key: _packed(folder) for key, folder in folders.items()} if job.pack else {})


def evaluate_test(predictions: Predictions, data: OpenSetData) -> tuple[Evaluation, dict[str, Evaluation]]:
    """Evaluation against all unknown samples, and against each group of them where the split has groups."""
    groups = {group: data.test_rows(group) for group in data.split.groups}
    with warnings.catch_warnings():
        # The direction of our own scores is not in doubt, even where a poor model falls below chance.
        warnings.simplefilter("ignore", ScoreDirectionWarning)
        whole = evaluate(*predictions)
        return whole, {group: evaluate(*(column[rows] for column in predictions)) for group, rows in groups.items()}


def _run_sharing(
    specs: Sequence[TrialSpec], folders: Mapping[str, Path], data_root: Path | None
) -> tuple[TrialResult, ...]:
    """Results of trials that share one training, done in the folder of the first."""
    begin = time.perf_counter()
    try:
        method, seconds = _trained(specs[0], folders[specs[0].id], data_root)
    except Exception as error:
        if isinstance(error, TrainingInterrupted):
            raise
        return Outcome.failed(Job(tuple(specs)), _told(error), seconds=time.perf_counter() - begin).results
    return tuple(_tested(spec, method, folders[spec.id], data_root, seconds) for spec in specs)


def _trained(spec: TrialSpec, folder: Path, data_root: Path | None) -> tuple[Method, float]:
    """The trained method and the seconds its training took, earlier parts of a resumed one included."""
    data = _loaded(spec, data_root)
    if spec.train_images is not None:
        data = limited(data, spec.train_images, seed=spec.seed)
    method = build_method(
        spec.method,
        data,
        spec.recipe,
        backbone=spec.backbone,
        width=spec.width,
        seed=spec.seed,
        method_args=spec.method_args,
    )
    if (folder / WEIGHTS).is_file() and not (folder / CHECKPOINT).is_file():
        # A trial with the same training has left its network here.
        load_weights(method, folder / WEIGHTS)
        return method, 0.0
    if spec.weights is not None:
        load_weights(method, spec.weights, allow_missing_head=True)
    history = train(method, data, spec.recipe, out=folder, seed=spec.seed, about=_about(spec))
    return method, sum(row["seconds"] for row in history)


def _tested(
    spec: TrialSpec, method: Method, folder: Path, data_root: Path | None, training_seconds: float
) -> TrialResult:
    begin = time.perf_counter()
    try:
        data = _loaded(spec, data_root)
        if spec.pseudo_unknown:
            predictions = predict(method, data, spec.recipe, part="validation")
            predictions.save(folder / PREDICTIONS)
            evaluation, groups = evaluate_test(predictions, replace(data, split=data.split._replace(groups={})))
        else:
            predictions = predict(method, data, spec.recipe)
            predictions.save(folder / PREDICTIONS, extra=data.test_columns())
            evaluation, groups = evaluate_test(predictions, data)
    except Exception as error:
        return TrialResult(spec=spec, error=_told(error), seconds=time.perf_counter() - begin)
    return TrialResult(
        spec=spec,
        metrics=dict(evaluation.values),
        intervals={name: (interval.low, interval.high) for name, interval in evaluation.intervals.items()},
        groups={group: dict(found.values) for group, found in groups.items()},
        n_known=evaluation.n_known,
        n_unknown=evaluation.n_unknown,
        predictions=f"trials/{spec.id}/{PREDICTIONS}",
        seconds=training_seconds + time.perf_counter() - begin,
        # Sums over a batch are split among threads, so that their number can change the last digits.
        environment={**environment(), "threads": str(torch.get_num_threads())},
    )


def _loaded(spec: TrialSpec, data_root: Path | None) -> OpenSetData:
    return get_protocol(spec.protocol).load(
        spec.split, root=data_root, validation=spec.validation, pseudo_unknown=spec.pseudo_unknown, seed=spec.seed
    )


def _about(spec: TrialSpec) -> dict[str, object]:
    """What weights and checkpoint remember: the spec, without what concerns only the test."""
    protocol = get_protocol(spec.protocol)
    facts = {key: value for key, value in spec.to_dict().items() if key not in ("protocol", "split", "recipe", "seed")}
    return {
        **facts,
        "known_source": str(protocol.known_source),
        "known_classes": list(protocol.splits[spec.split].known),
        "training_id": spec.training_id,
    }


def _jobs(
    store: Store, waiting: Sequence[TrialSpec], claims: Claims, *, retry_failed: bool, watch: Watch
) -> Iterator[Job]:
    """Claim one training after the other, each when it is asked for, and say what is left to do of it."""
    sharing: dict[str, list[TrialSpec]] = defaultdict(list)
    for spec in waiting:
        sharing[spec.training_id].append(spec)
    trained = _trained_before(store) if sharing else {}
    for key, specs in sharing.items():
        if not claims.take(key):
            continue
        # Another runner may have finished some of them since the list was made.
        left = [spec for spec in specs if _is_missing(store.result(spec), retry_failed)]
        if not left:
            claims.release(key)
            continue
        left.sort(key=lambda spec: not (store.folder(spec) / CHECKPOINT).is_file())
        for spec in left:
            store.open(spec)
        if key in trained and trained[key] != left[0]:
            for name in (WEIGHTS, LOG):
                store.copy(name, trained[key], left[0])
        watch.started(left)
        yield Job(tuple(left), str(store.trials))


def _trained_before(store: Store) -> dict[str, TrialSpec]:
    """Finished trials whose network is still there, by training."""
    return {
        result.spec.training_id: result.spec
        for result in store.results()
        if result.error is None and (store.folder(result.spec) / WEIGHTS).is_file()
    }


def _is_missing(result: TrialResult | None, retry_failed: bool) -> bool:
    return result is None or (retry_failed and result.error is not None)


def _keep(store: Store, outcome: Outcome) -> None:
    first = outcome.job.specs[0]
    for result in outcome.results:
        files = outcome.files.get(result.spec.id)
        if result.spec != first and files is None and result.error is None:
            store.copy(LOG, first, result.spec)
        store.save(result, files)
    if all(result.error is None for result in outcome.results):
        (store.folder(first) / CHECKPOINT).unlink(missing_ok=True)


def _packed(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in FILES if (folder / name).is_file()}


@contextmanager
def _workplace(folder: str | None) -> Iterator[Path]:
    if folder is not None:
        yield Path(folder)
        return
    with tempfile.TemporaryDirectory(prefix="openauc-") as temporary:
        yield Path(temporary)


def _told(error: Exception) -> str:
    """What went wrong in the first line, where below it."""
    lines = "".join(traceback.format_exception(error)).rstrip()
    return f"{type(error).__name__}: {error}\n\n{lines}"
