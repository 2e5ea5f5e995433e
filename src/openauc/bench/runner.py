"""Run one trial from its spec to its result, or a list of trials, each exactly once."""

from __future__ import annotations

import time
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from numpy.typing import NDArray

from openauc._trial_files import CHECKPOINT, LOG, PREDICTIONS, VALIDATION, WEIGHTS, features_file
from openauc._validation import UNKNOWN
from openauc.bench.store import Claims, Store
from openauc.bench.trial import Job, Outcome, TrialResult, TrialSpec, Watch
from openauc.environment import environment
from openauc.evaluation import Evaluation, evaluate
from openauc.executors import Execute, error_text, in_process
from openauc.metrics.ranking import ScoreDirectionWarning
from openauc.metrics.registry import METRICS
from openauc.predictions import Predictions
from openauc.protocols.base import Part
from openauc.training.loop import TrainingInterrupted
from openauc.training.process import process_state
from openauc.training.trained import Trained, load_data, trained

PARTS: tuple[Part, ...] = ("train", "validation", "test")
FILES = (LOG, WEIGHTS, PREDICTIONS, VALIDATION, *map(features_file, PARTS))


def run(
    specs: Iterable[TrialSpec],
    *,
    out: Path | str,
    data_root: Path | None = None,
    execute: Execute = in_process,
    retry_failed: bool = False,
    keep_features: bool = False,
    watch: Watch | None = None,
) -> list[TrialResult]:
    """Run the trials of a list that have no result yet; returns the results of all of them, in the list's order.

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
        Where to run: :func:`~openauc.executors.in_process`, a process pool, or a Ray cluster.
    retry_failed
        Run trials again whose result is an error.
    keep_features
        Keep the features and logits of every part, so that scores asked for later need no second pass over the images.
    watch
        Gets the progress of the run.

    Raises
    ------
    KeyboardInterrupt
        When stopped by SIGINT or SIGTERM; the store is complete up to then, and calling again goes on.
    """
    store, watch = Store(out), watch or Watch()
    wanted = list({spec.id: spec for spec in specs}.values())
    store.plan(wanted)
    found = {spec.id: store.result(spec) for spec in wanted}
    done = [result for result in found.values() if result is not None and not (retry_failed and result.error)]
    finished = {result.spec.id for result in done}
    waiting = [spec for spec in wanted if spec.id not in finished]
    watch.planned(waiting, done)
    with ExitStack() as stack:
        claims = stack.enter_context(Claims(store.root))
        jobs = _jobs(store, waiting, claims, watch, retry_failed=retry_failed, keep_features=keep_features)
        outcomes = execute(partial(run_job, data_root=data_root), jobs)
        # A generator ends before the claims do, so that nobody trains what is no longer claimed.
        stack.callback(getattr(outcomes, "close", lambda: None))
        for outcome in outcomes:
            first = outcome.job.specs[0]
            for result in outcome.results:
                for name in (LOG, WEIGHTS) if result.spec != first and result.error is None else ():
                    store.copy(name, first, result.spec)
                store.save(result, outcome.files.get(result.spec.id))
                watch.finished(result)
            claims.release(first.training_id)
    return [result for spec in wanted if (result := store.result(spec)) is not None]


def run_trial(
    spec: TrialSpec,
    *,
    out: Path | str,
    data_root: Path | None = None,
    keep_features: bool = False,
    network: Trained | None = None,
) -> TrialResult:
    """One trial, from its data to its metrics: load, train, embed, score, evaluate.

    Files go to ``out``, where a checkpoint left by an earlier call is resumed; `openauc train` and `openauc run` both
    come here. Whatever goes wrong becomes the result's ``error``. Of several processes (``accelerate launch``) each
    calls it, and the main one writes.

    Parameters
    ----------
    spec, out
        What to do, and the trial's folder.
    data_root
        Local mirror of the data; else ``OPENAUC_DATA``, else the Hub.
    keep_features
        Whether to write the features and logits of every part as well.
    network
        A training that several trials share; by default one of the trial's own, in its folder.
    """
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    network = network or trained(spec, folder, data_root)
    begin = time.perf_counter()
    try:
        data = load_data(spec, data_root)
        network.train()
        tested = time.perf_counter()
        # With pseudo_unknown the test part is not read: the trial is scored on what was held out.
        there: dict[Part, bool] = {"train": True, "validation": spec.validation > 0, "test": not spec.pseudo_unknown}
        scored = [part for part in PARTS[1:] if there[part]]
        score = network.score(spec, data)
        found = {part: network.embedded(spec, data, part).predictions(score) for part in scored}
        predictions = found.pop(scored[-1])
        on_test = scored[-1] == "test"
        groups = {group: data.test_rows(group) for group in data.split.groups} if on_test else {}
        evaluation, by_group = _evaluated(predictions, groups)
        kept = {part: network.embedded(spec, data, part) for part in PARTS if keep_features and there[part]}
        if process_state().is_main_process:
            predictions.save(folder / PREDICTIONS, extra=data.test_columns() if on_test else {})
            for held_out in found.values():
                held_out.save(folder / VALIDATION)
            for part, embedded in kept.items():
                embedded.save(folder / features_file(part))
    except TrainingInterrupted:
        raise
    except Exception as error:
        return TrialResult(spec=spec, error=error_text(error), seconds=time.perf_counter() - begin)
    return TrialResult(
        spec=spec,
        metrics=dict(evaluation.values),
        intervals={name: (interval.low, interval.high) for name, interval in evaluation.intervals.items()},
        groups={group: dict(found.values) for group, found in by_group.items()},
        n_known=evaluation.n_known,
        n_unknown=evaluation.n_unknown,
        predictions=PREDICTIONS,
        # A training counts for each trial that shares it, with the parts of it that an earlier process did.
        seconds=network.seconds + time.perf_counter() - tested,
        # Sums over a batch are split among threads, so that their number can change the last digits.
        environment={**environment(), "threads": str(torch.get_num_threads())},
    )


def run_job(job: Job, *, data_root: Path | None = None) -> Outcome:
    """Train once and test for every trial of the job, in the job's folder or a temporary one."""
    with nullcontext(job.folder) if job.folder else TemporaryDirectory(prefix="openauc-") as parent:
        folders = {spec.id: Path(parent) / spec.id for spec in job.specs}
        first = folders[job.specs[0].id]
        first.mkdir(parents=True, exist_ok=True)
        network = trained(job.specs[0], first, data_root)
        results = tuple(
            run_trial(spec, out=folders[spec.id], data_root=data_root, keep_features=job.keep_features, network=network)
            for spec in job.specs
        )
        files = {
            key: {name: (folder / name).read_bytes() for name in FILES if (folder / name).is_file()}
            for key, folder in folders.items()
            if job.pack
        }
        return Outcome(job, results, files)


def _evaluated(
    predictions: Predictions, groups: Mapping[str, NDArray[np.int64]]
) -> tuple[Evaluation, dict[str, Evaluation]]:
    """Evaluation against all unknown samples, and against each group; without unknown samples, of the classes alone."""
    metrics = METRICS
    if not (predictions.y_true == UNKNOWN).any():
        metrics = {"closed_set_accuracy": METRICS["closed_set_accuracy"]}
    with warnings.catch_warnings():
        # The direction of our own scores is not in doubt, even where a poor model falls below chance.
        warnings.simplefilter("ignore", ScoreDirectionWarning)
        whole = evaluate(*predictions, metrics=metrics)
        return whole, {group: evaluate(*(column[rows] for column in predictions)) for group, rows in groups.items()}


def _jobs(
    store: Store, waiting: Sequence[TrialSpec], claims: Claims, watch: Watch, *, retry_failed: bool, keep_features: bool
) -> Iterator[Job]:
    """Claim one training after the other, each when it is asked for, and yield what is left to do of it."""
    sharing: dict[str, list[TrialSpec]] = defaultdict(list)
    for spec in waiting:
        sharing[spec.training_id].append(spec)
    # Finished trials whose network is still there, by training.
    before = {
        result.spec.training_id: result.spec
        for result in (store.results() if sharing else ())
        if result.error is None and (store.folder(result.spec) / WEIGHTS).is_file()
    }
    for key, specs in sharing.items():
        if not claims.take(key):
            continue
        # Another runner may have finished some of them since the list was made.
        left = [spec for spec in specs if (found := store.result(spec)) is None or (retry_failed and found.error)]
        if not left:
            claims.release(key)
            continue
        left.sort(key=lambda spec: not (store.folder(spec) / CHECKPOINT).is_file())
        for spec in left:
            store.open(spec)
        if key in before and before[key] != left[0]:
            names = [WEIGHTS, LOG, features_file("train"), features_file("validation")]
            if before[key].tested_on == left[0].tested_on:
                names.append(features_file("test"))
            for name in names:
                store.copy(name, before[key], left[0])
        watch.started(left)
        yield Job(tuple(left), str(store.trials), keep_features=keep_features)
