"""Watching a classifier: false alarms are as rare as stated, changes are found, state survives."""

import json
import pickle
import warnings
from copy import copy
from functools import cache

import numpy as np
import pytest

from openauc.features import Monitor, OpenSetClassifier
from openauc.features.monitor import monitor as module
from openauc.features.monitor.betting import Wealth, shape_bets
from openauc.features.monitor.monitor import LIMITS, PARTS

from ..samples import blobs

RNG = np.random.default_rng(5)


@cache
def once_fitted():
    return OpenSetClassifier(rejector="max_logit", folds=2, random_state=0).fit(*blobs())


def fitted():
    return copy(once_fitted())


@pytest.fixture(scope="module")
def classifier():
    return fitted().calibrate(blobs(per_class=60, seed=1)[0])


def calibrated(n, seed, **options):
    """A classifier whose calibration scores are normal."""
    rng = np.random.default_rng([n, seed])
    model = fitted().set_params(**options)
    model._take_calibration(rng.normal(size=n), rng.integers(4, size=n), "split")
    return model


def stream(n, seed, unknown=0.0):
    rng = np.random.default_rng([9, seed])
    strange = rng.random(n) < unknown
    return rng.normal(size=n) + 3.0 * strange, rng.integers(4, size=n)


@pytest.mark.parametrize(
    "options", [{}, {"per_class": True, "acceptance": 0.9}, {"threshold": 1.0}], ids=["one", "per class", "number"]
)
def test_false_alarms_are_as_rare_as_stated(options):
    """Of 25 streams at alpha = 0.2 more than 10 raise one with a chance below one in a hundred; `benchmark/watching.py`
    has a thousand."""
    alarms = 0
    for seed in range(25):
        monitor = Monitor(calibrated(100, seed, **options), alpha=0.2, window=1500, random_state=seed)
        alarms += bool(monitor.update_scores(*stream(1500, seed)))
    assert alarms <= 10


def test_ranks_among_the_calibration_alone_would_raise_false_alarms():
    """So the test above can fail."""
    alarms = 0
    for seed in range(10):
        scores, past = stream(3000, seed)[0], np.sort(calibrated(100, seed).calibration_scores_)
        p_value = (1 + 100 - np.searchsorted(past, scores)) / 101
        wealth = Wealth(shape_bets()).update(p_value, np.zeros(3000, int), np.arange(3000))
        alarms += wealth.max() > np.log(5)
    assert alarms >= 8


@pytest.mark.parametrize("options", [{}, {"per_class": True, "acceptance": 0.9}, {"threshold": 1.0}])
def test_unknown_samples_are_noticed_and_the_beginning_is_found(options):
    monitor = Monitor(calibrated(500, 0, **options))
    assert monitor.update_scores(*stream(2000, 0)) == ()
    alarms = monitor.update_scores(*stream(2000, 1, unknown=0.2))
    assert {alarm.part for alarm in alarms} >= {"rejected", "scores"}
    assert [alarm.sample for alarm in alarms] == sorted(alarm.sample for alarm in alarms)
    first = alarms[0]
    assert 2000 < first.sample < 2300
    assert 1900 < first.since < 2100
    (rejected,) = (alarm for alarm in alarms if alarm.part == "rejected")
    assert rejected.seen > 1.5 * rejected.usual
    assert monitor.alarms == alarms
    assert all(monitor.p_value(part) <= 0.01 for part in ("rejected", "scores"))
    assert monitor.update_scores(*stream(500, 2, unknown=0.2)) == ()  # each thing is said once


@pytest.mark.parametrize("window", [1, 30, 5000])
def test_alarms_do_not_depend_on_the_window(window):
    scores, classes = stream(900, 3, unknown=0.3)
    model = calibrated(400, 0, per_class=True)
    one, other = Monitor(model), Monitor(model, window=window)
    one.update_scores(scores, classes)
    other.update_scores(scores, classes)
    assert one.alarms == other.alarms
    for alarm in one.alarms:
        span = slice(alarm.since - 1, alarm.sample)
        if alarm.part == "rejected":
            assert alarm.seen == np.mean(scores[span] > model.thresholds_[classes[span]])
        if alarm.part == "scores":
            assert alarm.seen == np.mean(scores[span] > np.quantile(model.calibration_scores_, 0.9))
    assert {alarm.part for alarm in one.alarms} >= {"rejected", "scores"}


def test_times_are_shown_as_people_write_them(classifier):
    monitor = Monitor(classifier, window=50)
    times = np.datetime64("2026-05-01T06:10:00.000000") + np.arange(100).astype("m8[m]")
    alarm, *_ = monitor.update_scores(np.full(100, 1e6), np.zeros(100, int), time=times)
    assert monitor.timeline.times.tolist()[0] == ["2026-05-01 06:10:00", "2026-05-01 06:59:00"]
    assert alarm.time is not None
    assert alarm.time.startswith("2026-05-01 06:1")


def test_a_change_of_one_class_is_named(classifier):
    monitor = Monitor(calibrated(2000, 0))
    scores, classes = stream(3000, 0)
    alarms = monitor.update_scores(np.where(classes == 2, scores + 1.0, scores), classes)
    assert [alarm.label for alarm in alarms if alarm.part == "classes"] == ["2"]
    assert np.argmin(monitor.evidence_by_class()) == 2
    assert "those called 2" in str(next(alarm for alarm in alarms if alarm.label))


def test_a_fall_is_noticed_too_but_not_with_cross_fitted_scores():
    model = calibrated(2000, 0)
    scores, classes = stream(2000, 0)
    assert Monitor(model).update_scores(scores - 1.0, classes)
    model.calibration_kind_ = "cross"
    monitor = Monitor(model)
    assert monitor.one_sided
    assert monitor.update_scores(scores - 1.0, classes) == ()
    assert "as long as known samples score no higher" in monitor.guarantee
    assert monitor.update_scores(scores + 1.0, classes)


def test_lower_scores_never_add_evidence_to_bets_on_rises():
    """Why the statement holds for cross-fitted scores that are too high: path by path, not only on average."""
    model = calibrated(200, 0)
    model.calibration_kind_ = "cross"
    scores, classes = stream(1000, 0)
    one, lower = Monitor(model), Monitor(model)
    one.update_scores(scores, classes)
    lower.update_scores(np.where(scores > 0, 0.5 * scores, 2 * scores), classes)
    for part in PARTS:
        assert lower.p_value(part) >= one.p_value(part)


def test_embeddings_are_watched_as_their_scores_are(classifier):
    X = np.random.default_rng(0).permutation(blobs(seed=2)[0])
    one, other = Monitor(classifier), Monitor(classifier)
    one.update(X)
    other.update_scores(*classifier._decide(X))
    assert one.n == len(X)
    np.testing.assert_array_equal(one.timeline.evidence, other.timeline.evidence)
    assert one.rejected_share == np.mean(classifier.predict(X) == -1)
    assert one.usual_share == np.mean(classifier.calibration_scores_ > classifier.thresholds_[0])


def test_a_reference_takes_the_place_of_the_calibration():
    model = fitted()
    reference = blobs(per_class=50, seed=3)[0]
    monitor = Monitor(model, reference=reference)
    assert not monitor.one_sided
    assert monitor.usual[0].sum() == 200
    assert Monitor(model).one_sided
    assert monitor.usual_share == np.mean(model.predict(reference) == -1)


def test_chunks_do_not_matter_but_the_seed_does(classifier):
    scores, classes = stream(1700, 0)
    scores = scores.round(1)  # ties
    whole, pieces, other = Monitor(classifier), Monitor(classifier), Monitor(classifier, random_state=1)
    whole.update_scores(scores, classes)
    other.update_scores(scores, classes)
    for at in range(0, 1700, 500):
        pieces.update_scores(scores[at : at + 500], classes[at : at + 500])
    np.testing.assert_allclose(pieces.timeline.evidence, whole.timeline.evidence, rtol=1e-12)
    assert not np.allclose(other.timeline.evidence, whole.timeline.evidence)


def test_it_goes_on_where_it_stopped(classifier, tmp_path):
    scores, classes = stream(3000, 0, unknown=0.1)
    times = [f"t{i:04}" for i in range(3000)]
    whole, first = (Monitor(classifier, alpha=0.05, window=300) for _ in range(2))
    whole.update_scores(scores, classes, time=times)
    first.update_scores(scores[:1100], classes[:1100], time=times[:1100])
    first.save(tmp_path / "state.npz")
    second = Monitor.load(tmp_path / "state.npz", classifier)
    assert (second.n, second.alarms, second.alpha) == (1100, first.alarms, 0.05)
    second.update_scores(scores[1100:], classes[1100:], time=times[1100:])
    assert second.alarms[0] == whole.alarms[0]
    np.testing.assert_array_equal(second.timeline.times, whole.timeline.times)
    for name in ("called", "rejected", "tenths"):
        np.testing.assert_array_equal(getattr(second.timeline, name), getattr(whole.timeline, name))


def test_pieces_that_end_inside_a_window_rank_alike(classifier, tmp_path):
    """Without ties the numbers that break them do not matter, so that pieces of any size give the same evidence."""
    scores, classes = stream(900, 0)
    whole, pieces = Monitor(classifier, window=250), Monitor(classifier, window=250)
    whole.update_scores(scores, classes)
    for at in range(0, 900, 77):
        pieces.update_scores(scores[at : at + 77], classes[at : at + 77])
    np.testing.assert_array_equal(pieces.timeline.called, whole.timeline.called)
    np.testing.assert_array_equal(pieces.timeline.n, [250, 250, 250, 150])


def test_windows_are_joined_so_that_memory_is_bounded(classifier, monkeypatch):
    monkeypatch.setattr(module, "MOST_WINDOWS", 4)
    scores, classes = stream(1000, 0)
    long, short = Monitor(classifier, window=10), Monitor(classifier, window=1000)
    long.update_scores(scores, classes, time=range(1000))
    short.update_scores(scores, classes)
    assert len(long.timeline.n) <= 4
    assert long.timeline.n.sum() == 1000
    assert long.timeline.size in (160, 320, 640)
    assert set(long.timeline.n[:-1]) == {long.timeline.size}
    np.testing.assert_array_equal(long.timeline.rejected.sum(axis=0), short.timeline.rejected.sum(axis=0))
    starts = np.cumsum([0, *long.timeline.n[:-1]])
    assert long.timeline.times[:, 0].tolist() == [str(start) for start in starts]
    assert long.timeline.times[-1, 1] == "999"


# What is refused, and what is said


def test_bad_input_is_refused(classifier):
    with pytest.raises(ValueError, match="alpha is 5; expected a fraction"):
        Monitor(classifier, alpha=5)
    with pytest.raises(ValueError, match="window is 0; expected a number of samples"):
        Monitor(classifier, window=0)
    monitor = Monitor(classifier)
    with pytest.raises(ValueError, match="predicted has 1 entries but score has 2"):
        monitor.update_scores([0.1, 0.2], [0])
    with pytest.raises(ValueError, match="time has 1 entries but score has 2"):
        monitor.update_scores([0.1, 0.2], [0, 0], time=["now"])
    for wrong in ([4, 0], [-1, 0], [0.5, 0.0]):
        with pytest.raises(ValueError, match="integers from 0 to 3"):
            monitor.update_scores([0.1, 0.2], wrong)
    with pytest.raises(ValueError, match="NaN"):
        monitor.update_scores([np.nan], [0])
    assert monitor.update_scores([], []) == ()


def test_a_state_is_refused_for_another_model_or_if_it_is_none(classifier, tmp_path):
    path = tmp_path / "state.npz"
    Monitor(classifier).save(path)
    with pytest.raises(ValueError, match="belongs to another model"):
        Monitor.load(path, calibrated(50, 0))
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(ValueError, match="is not a state of a monitor"):
        Monitor.load(path, classifier)
    path.write_bytes(pickle.dumps({}))
    with pytest.raises(ValueError, match=r"it is not an \.npz file"):
        Monitor.load(path, classifier)
    about = {"format": "openauc monitor", "version": 99}
    np.savez(path, about=np.frombuffer(json.dumps(about).encode(), np.uint8))
    with pytest.raises(ValueError, match="its format is openauc monitor 99"):
        Monitor.load(path, classifier)


def test_the_summary_says_what_cannot_be_told(classifier):
    monitor = Monitor(classifier)
    said = monitor.summary()
    assert said.startswith("0 samples, 0.0% rejected; ")
    assert "no alarm" in said
    assert all(limit in said for limit in LIMITS)
    monitor.update_scores(np.full(100, 1e6), np.zeros(100, int), time=[f"day {i}" for i in range(100)])
    said = monitor.summary()
    assert "no alarm" not in said
    assert "rejected of all samples are 100.0%, likely since sample 1; in the reference" in said
    assert "(day " in said
    assert "probability at most 0.01, however long" in said


def test_nothing_is_warned_about(classifier):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        monitor = Monitor(classifier, window=50)
        monitor.update_scores(*stream(200, 0))


EDITS = {
    "n": -1,
    "alpha": "much",
    "window": 0,
    "reference": "mine",
    "alarms": [{"part": "rejected"}],
    "alarms.label": [["ant"]],
    "alarms.since": [np.nan],
    "rng": {},
    "timeline.size": np.array(0),
    "timeline.called": np.zeros((1, 4), np.int64),
    "wealth.0.staked": np.zeros((1, 1)),
    "highest.0": np.full(1, np.inf),
    "highest.1": np.full(4, np.nan),
    "ranks.0.keys": np.array([3, 1]),
    "usual.0": np.zeros(4),
    "usual.1": np.full(4, 10**6),
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edited_state_is_refused_in_a_sentence(classifier, tmp_path, name):
    path = tmp_path / "state.npz"
    monitor = Monitor(classifier, window=50)
    monitor.update_scores(*stream(120, 0, unknown=1.0))
    monitor.save(path)
    with np.load(path) as stored:
        arrays = dict(stored)
    if name in arrays:
        arrays[name] = EDITS[name]
    else:
        about = json.loads(arrays["about"].tobytes())
        field, _, inner = name.partition(".")
        about[field] = [about[field][0] | {inner: EDITS[name][0]}] if inner else EDITS[name]
        arrays["about"] = np.frombuffer(json.dumps(about).encode(), np.uint8)
    np.savez(path, **arrays)
    with pytest.raises(ValueError, match=r"state\.npz is not a state of a monitor .*begin a new one"):
        Monitor.load(path, classifier)
