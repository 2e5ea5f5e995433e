"""Rules by held-out classes for networks: fold networks, what they say, and who may use it."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.trials import tiny
from openauc import Predictions
from openauc._columns import read_columns, write_columns
from openauc._trial_files import CHECKPOINT, FOLDS, LOG, PREDICTIONS, WEIGHTS, features_file
from openauc.bench.folds import COMPARED, N_FOLDS, Look, choose, plans, read_looks, reject, save_looks
from openauc.bench.runner import Network, load_data, run, run_job, run_trial
from openauc.bench.saved import SavedRun
from openauc.bench.store import Store
from openauc.bench.trial import Job, Outcome, TrialSpec
from openauc.features.classifier.rejector import AVERAGE, Average, Learned
from openauc.features.scores.base import RULES
from openauc.protocols import get_protocol
from openauc.training.loop import TrainingInterrupted
from openauc.training.predict import Embedded


def specs(*scores: str | None, **more: Any) -> list[TrialSpec]:
    return [replace(tiny("ce_plus", **more), score=score) for score in scores]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """One training with its own score and every rule."""
    place = tmp_path_factory.mktemp("rules")
    results = run(specs(None, *RULES), out=place, keep_features=True)
    assert [result.error for result in results] == [None] * 4
    return Store(place)


def test_each_class_is_held_out_once_and_samples_are_trained_on_or_looked_at() -> None:
    y = np.repeat(np.arange(6), 20)
    held = []
    for train, look in plans(y, seed=3):
        assert sorted([*train, *look]) == list(range(len(y)))
        rest = np.bincount(y[train], minlength=6)
        held += np.flatnonzero(rest == 0).tolist()
        assert set(rest[rest > 0]) == {15}
    assert sorted(held) == list(range(6))
    assert not np.array_equal(plans(y, seed=3)[0][0], plans(y, seed=4)[0][0])


def test_a_fold_of_the_data_has_fewer_classes_and_no_test_part() -> None:
    data = get_protocol("digits").load(0)
    train, look = np.flatnonzero(data.train.labels % 2), np.arange(50)
    fold = data.fold(train, look)
    assert fold.split.known == tuple(data.split.known[label] for label in (1, 3, 5))
    assert fold.split.unknown == tuple(data.split.known[label] for label in (0, 2, 4))
    assert fold.class_names == tuple(data.class_names[label] for label in (1, 3, 5))
    np.testing.assert_array_equal(2 * fold.train.labels + 1, data.train.labels[train])
    np.testing.assert_array_equal(fold.train.images, data.train.images[train])
    expected = np.where(data.train.labels[look] % 2, data.train.labels[look] // 2, -1)
    np.testing.assert_array_equal(fold.validation.labels, expected)
    np.testing.assert_array_equal(fold.validation.images, data.train.images[look])
    with pytest.raises(ValueError, match="the test part is closed: with a fold"):
        _ = fold.test.labels


def test_the_final_network_is_the_one_of_the_own_score(store: Store) -> None:
    results = store.results()
    assert len({result.spec.training_id for result in results}) == 1
    assert len({result.metrics["closed_set_accuracy"] for result in results}) == 1
    assert len({result.metrics["openauc"] for result in results}) > 1
    weights = {(store.folder(result.spec) / WEIGHTS).read_bytes() for result in results}
    assert len(weights) == 1


def test_fold_networks_leave_what_they_said_and_nothing_else(store: Store) -> None:
    for spec in specs("learned", "selected"):
        names = {file.name for file in store.folder(spec).iterdir()}
        assert {FOLDS, WEIGHTS, LOG, PREDICTIONS} <= names
        assert not [name for name in names if name.startswith("fold-")]
    looks = read_looks(store.folder(specs("learned")[0]) / FOLDS)
    assert len(looks) == N_FOLDS
    y = load_data(tiny("ce_plus"), None).train.labels
    for (_, rest), look in zip(plans(y, seed=0), looks, strict=True):
        np.testing.assert_array_equal(look.label, y[rest])
        held = set(look.label[~look.known])
        assert not held & set(look.predicted)
        assert look.fold().held == held


def test_the_rule_is_what_its_parts_make_of_the_kept_features(store: Store) -> None:
    (spec,) = specs("average")
    folder = store.folder(spec)
    looks = read_looks(folder / FOLDS)
    training, test = (Embedded.load(folder / features_file(part)) for part in ("train", "test"))
    scores = reject(choose("average", looks, 6), looks, training, test)
    found = Predictions.load(folder / PREDICTIONS)
    np.testing.assert_allclose(found.open_score, scores)
    np.testing.assert_array_equal(found.y_pred, test.logits.argmax(1))


def test_a_rule_asked_for_later_trains_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own, learned, average = specs(None, "learned", "average")
    first = run([learned], out=tmp_path)
    monkeypatch.setattr("openauc.bench.runner.train", lambda *_, **__: 1 / 0)
    results = run([own, learned, average], out=tmp_path)
    assert [result.error for result in results] == [None] * 3
    assert results[1] == first[0]


def test_fold_networks_are_trained_once_and_their_seconds_are_told(tmp_path: Path) -> None:
    (spec,) = specs("learned")
    network, data = Network(spec, tmp_path), load_data(spec, None)
    seconds = network.folds.train(data, 0)
    assert network.folds.train(data, 0) == seconds > 0
    assert Network(spec, tmp_path).folds.train(data, 0) == 0.0


def test_a_stopped_run_goes_on_with_the_next_fold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from openauc.bench import runner

    trained: list[tuple[str, bool]] = []
    real = runner.train

    def counted(*arguments: Any, out: Path, **options: Any) -> Any:
        if len(trained) == 3:
            trained.append(("stopped", False))
            raise TrainingInterrupted(2, "in epoch 1 after 1 batches")
        trained.append((out.name if out.name.startswith("fold-") else "final", (out / CHECKPOINT).is_file()))
        return real(*arguments, out=out, **options)

    monkeypatch.setattr(runner, "train", counted)
    (spec,) = specs("learned")
    with pytest.raises(KeyboardInterrupt):
        run([spec], out=tmp_path / "stopped")
    (resumed,) = run([spec], out=tmp_path / "stopped")
    begun = [("final", False), ("fold-0", False), ("fold-1", False), ("stopped", False)]
    resumes = [("final", True), ("fold-0", True), ("fold-1", True), ("fold-2", False)]
    assert trained == begun + resumes
    (straight,) = run([spec], out=tmp_path / "straight")
    assert resumed.metrics == straight.metrics


def test_a_packed_job_brings_what_fold_networks_said(tmp_path: Path, store: Store) -> None:
    def remote(work: object, jobs: Iterable[Job]) -> Iterator[Outcome]:
        for job in jobs:
            yield run_job(job._replace(folder=None, pack=True))._replace(job=job)

    (spec,) = specs("selected")
    (found,) = run([spec], out=tmp_path, execute=remote)
    assert found.metrics == next(result.metrics for result in store.results() if result.spec == spec)
    assert (Store(tmp_path).folder(spec) / FOLDS).read_bytes() == (store.folder(spec) / FOLDS).read_bytes()


def test_held_out_classes_can_be_held_out_again(tmp_path: Path) -> None:
    """Rules are compared without the test part: the folds are of the classes that remain."""
    spec = replace(tiny("ce_plus", train_images=None, validation=0.2, pseudo_unknown=2), score="learned")
    result = run_trial(spec, out=tmp_path)
    assert result.error is None
    assert {*read_looks(tmp_path / FOLDS)[0].label} == set(range(4))


def test_two_classes_are_too_few(tmp_path: Path) -> None:
    spec = replace(tiny("ce_plus", train_images=None, validation=0.2, pseudo_unknown=4), score="learned")
    error = run_trial(spec, out=tmp_path).error or ""
    assert "y holds 2 known classes; at least 3 are needed" in error.splitlines()[0]


def test_a_saved_training_labels_images_by_its_rule(tmp_path: Path, store: Store) -> None:
    from PIL import Image

    (spec,) = specs("learned")
    data = load_data(spec, None)
    for row in range(6):
        Image.fromarray(np.asarray(data.test.images[row])).save(tmp_path / f"{row}.png")
    found = SavedRun(store.folder(spec)).label(tmp_path)
    stored = Predictions.load(store.folder(spec) / PREDICTIONS).open_score[:6]
    np.testing.assert_allclose(found["open_score"], stored, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("has_folder", [True, False])
def test_without_fold_networks_a_rule_says_what_it_needs(tmp_path: Path, has_folder: bool) -> None:
    (spec,) = specs("learned")
    data = load_data(spec, None)
    run_trial(replace(spec, score=None), out=tmp_path)
    network = Network(spec, tmp_path if has_folder else None)
    network.load(tmp_path / WEIGHTS, data.num_classes)
    with pytest.raises(ValueError, match=r"there is no folds.parquet of what they said; train with `--score learned`"):
        network.predictions(spec, data, "test")


def look_at(rng: np.random.Generator, telling: str, held: set[int]) -> Look:
    """A fold network one of whose scores tells held-out classes from others."""
    label = np.repeat(np.arange(6), 30)
    known = ~np.isin(label, list(held))
    raw = rng.normal(size=(len(label), len(COMPARED)))
    raw[~known, COMPARED.index(telling)] += 4.0
    predicted = np.where(known, label, (label + 1) % 6)
    return Look(raw, label, predicted, known)


@pytest.mark.parametrize("telling", ["entropy", "knn"])
def test_the_score_that_tells_held_out_classes_is_selected(telling: str) -> None:
    rng = np.random.default_rng(0)
    looks = [look_at(rng, telling, held) for held in ({0, 1}, {2, 3}, {4, 5})]
    assert choose("selected", looks, 6).names == (telling,)
    # An equal weight on three scores, of which one or none tells anything, is worse than what was learned.
    assert isinstance(choose("learned", looks, 6), Learned)


@pytest.mark.parametrize("reliable", [("max_logit",), AVERAGE])
def test_what_does_not_carry_over_is_not_used(reliable: tuple[str, ...]) -> None:
    """What tells the classes of one fold points the wrong way in the others; only some scores can be relied on."""
    rng = np.random.default_rng(0)
    misleading = ("entropy", "margin", "gen")
    looks = [look_at(rng, name, held) for name, held in zip(misleading, ({0, 1}, {2, 3}, {4, 5}), strict=True)]
    for name, look in zip(misleading, looks, strict=True):
        bad = {*misleading} - {name}
        look.raw[np.ix_(~look.known, [COMPARED.index(other) for other in bad])] -= 8.0
        look.raw[np.ix_(~look.known, [COMPARED.index(other) for other in reliable])] += 2.0
    assert choose("learned", looks, 6).names == reliable


def test_a_rule_by_another_name_is_refused() -> None:
    with pytest.raises(ValueError, match=r"rule is 'lerned'; expected one of 'learned', .* Did you mean 'learned'"):
        choose("lerned", [], 6)


def test_looks_survive_their_file(tmp_path: Path) -> None:
    looks = [look_at(np.random.default_rng(seed), "knn", {seed}) for seed in range(3)]
    save_looks(tmp_path / FOLDS, looks)
    for one, other in zip(looks, read_looks(tmp_path / FOLDS), strict=True):
        for before, after in zip(one, other, strict=True):
            np.testing.assert_array_equal(before, after)


def test_looks_of_an_earlier_version_are_refused(tmp_path: Path) -> None:
    save_looks(tmp_path / FOLDS, [look_at(np.random.default_rng(0), "knn", {0})])
    columns = read_columns(tmp_path / FOLDS)
    write_columns(tmp_path / FOLDS, {name: column for name, column in columns.items() if name != "distance"})
    with pytest.raises(ValueError, match="lacks the score distance: an earlier version of openauc wrote it"):
        read_looks(tmp_path / FOLDS)


def test_evidence_of_the_final_network_is_on_the_scale_of_the_folds() -> None:
    """By hand: one score, whose mean and deviation on correct samples are averaged over the folds."""
    rng = np.random.default_rng(1)
    looks = [look_at(rng, "knn", held) for held in ({0, 1}, {2, 3}, {4, 5})]
    logits = rng.normal(size=(20, 6)).astype(np.float32)
    embedded = Embedded(rng.normal(size=(20, 4)).astype(np.float32), logits, np.arange(20) % 6)
    found = reject(Average(("max_logit",)), looks, embedded, embedded)
    column = COMPARED.index("max_logit")
    usual = [look.raw[look.known, column] for look in looks]
    mean, deviation = np.mean([part.mean() for part in usual]), np.mean([part.std() for part in usual])
    np.testing.assert_allclose(found, (-logits.max(1).astype(np.float64) - mean) / deviation)
