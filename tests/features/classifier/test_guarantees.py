"""What is promised of acceptance, p-values and false discoveries, simulated; ties included."""

import warnings

import numpy as np
import pytest

from openauc.features import OpenSetClassifier
from openauc.features.classifier import fitting, splits
from openauc.features.classifier.conformal import Calibration, benjamini_hochberg
from openauc.features.classifier.evidence import standardise
from tests.features.samples import blobs

REPETITIONS = 1000
ROUNDING = pytest.mark.parametrize("decimals", [None, 1, 0], ids=["distinct", "some ties", "five values or so"])


def draw(rng, size, decimals, shift=0.0):
    scores = rng.normal(shift, 1.0, size=size)
    return scores if decimals is None else scores.round(decimals)


def below_by_chance(values, bound):
    """Whether a mean lies below a bound by more than three standard errors."""
    return np.mean(values) + 3 * np.std(values) / np.sqrt(len(values)) < bound


def one_class(scores):
    return Calibration.of(scores, np.zeros(len(scores), np.int64), 1)


# The conformal layer


@ROUNDING
@pytest.mark.parametrize(("n", "acceptance"), [(19, 0.95), (50, 0.9), (200, 0.95)])
def test_a_split_accepts_at_least_the_share_asked_for(n, acceptance, decimals):
    rng = np.random.default_rng(0)
    accepted = []
    for _ in range(REPETITIONS):
        thresholds, _ = one_class(draw(rng, n, decimals)).thresholds(acceptance)
        accepted.append(np.mean(draw(rng, 50, decimals) <= thresholds[0]))
    assert not below_by_chance(accepted, acceptance)
    if decimals is None:
        assert np.mean(accepted) < acceptance + 1 / (n + 1) + 0.005, "and without ties hardly more"


@ROUNDING
def test_p_values_of_known_samples_are_no_smaller_than_uniform_ones(decimals):
    rng = np.random.default_rng(1)
    p = [one_class(draw(rng, 30, decimals)).p_value(draw(rng, 1, decimals), np.zeros(1, int))[0] for _ in range(5000)]
    for level in np.arange(1, 31) / 31:
        share = np.mean(np.array(p) <= level + 1e-12)
        assert share <= level + 3 * np.sqrt(level * (1 - level) / 5000)
        if decimals is None:
            assert share >= level - 3.5 * np.sqrt(level * (1 - level) / 5000)


@ROUNDING
def test_each_predicted_class_keeps_its_promise_and_a_small_one_shares(decimals):
    """Classes differ in their scores; one of three has too few samples for a threshold of its own."""
    rng = np.random.default_rng(2)
    shift, sizes = np.array([0.0, 2.0, 1.0]), (60, 40, 5)
    classes = np.repeat(np.arange(3), sizes)
    accepted = []
    for _ in range(REPETITIONS):
        scores = draw(rng, len(classes), decimals, shift[classes])
        calibration = Calibration.of(scores, classes, 3, fewest=19)
        assert calibration.group.tolist() == [1, 2, 0]
        thresholds, missing = calibration.thresholds(0.95)
        assert missing == 0
        assert thresholds[2] == Calibration.of(scores, classes, 3).thresholds(0.95)[0][2]
        new = draw(rng, (30, 3), decimals, shift)
        accepted.append((new <= thresholds).mean(0))
    accepted = np.array(accepted)
    for label in (0, 1):
        assert not below_by_chance(accepted[:, label], 0.95)
    one_for_all = Calibration.of(scores, classes, 3).thresholds(0.95)[0][0]
    assert np.mean(draw(rng, 10_000, decimals, 2.0) <= one_for_all) < 0.945, "which one threshold would not keep"


@ROUNDING
@pytest.mark.parametrize("level", [0.1, 0.3])
def test_of_what_is_called_unknown_few_are_known(decimals, level):
    """All p-values share one calibration set; they depend on each other positively, which Benjamini-Hochberg allows."""
    rng = np.random.default_rng(3)
    known = np.arange(60) < 40
    false, found = [], []
    for _ in range(REPETITIONS):
        calibration = one_class(draw(rng, 200, decimals))
        scores = draw(rng, 60, decimals, np.where(known, 0.0, 3.5))
        called = benjamini_hochberg(calibration.p_value(scores, np.zeros(60, int)), level)
        false.append((called & known).sum() / max(called.sum(), 1))
        found.append(called[~known].mean())
    assert np.mean(false) <= level * 40 / 60 + 3 * np.std(false) / np.sqrt(REPETITIONS)
    assert np.mean(found) > 0.3, "and the promise is not kept by silence"


# Real fits


@pytest.fixture
def few_folds(monkeypatch):
    monkeypatch.setattr(splits, "FEWEST_FOLDS", 3)


def accepted_shares(repetitions, n_classes, acceptance, per_class=20, **options):
    shares = []
    for seed in range(repetitions):
        model = OpenSetClassifier(random_state=seed, acceptance=acceptance, seen_by_encoder=False, **options)
        model.fit(*blobs(n_classes, per_class, apart=2.5, seed=[0, seed]))
        new, _ = blobs(n_classes, 50, apart=2.5, seed=[1, seed])
        shares.append(np.mean(model.predict(new) != -1))
    return np.array(shares), model


@pytest.mark.slow
@pytest.mark.parametrize(("acceptance", "per_class", "above"), [(0.8, 20, 0.05), (0.95, 150, 0.01)])
def test_cross_fitted_acceptance_is_near_what_was_asked_for(acceptance, per_class, above):
    """Or a little above: the model in use knows more than those of the folds, the more so of few samples."""
    shares, model = accepted_shares(80, 2, acceptance, per_class, head="class_mean")
    assert model.guarantee_ == (
        f"about {100 * acceptance:g} % of new rows of known classes are accepted, if they are like the training rows"
    )
    assert "There is no lower bound" in model.guarantee_details_
    assert acceptance - 0.01 < shares.mean() < acceptance + above


@pytest.mark.slow
def test_with_a_learned_rejector_too(few_folds):
    shares, model = accepted_shares(15, 4, 0.9, head="class_mean")
    assert model.report_.chosen == "learned"
    assert 0.89 < shares.mean() < 0.95


@pytest.mark.slow
def test_a_split_of_real_fits_accepts_at_least_that(few_folds):
    shares, model = accepted_shares(80, 2, 0.8, head="class_mean", calibration="split")
    assert model.guarantee_ == (
        "at least 80 % of new rows of known classes are accepted, if they are like the 8 rows set aside to check with"
    )
    assert not below_by_chance(shares, 0.8)


@pytest.mark.parametrize("calibration", ["cross", "split"])
@pytest.mark.parametrize("near", [0.0, 0.02])
def test_rows_given_four_times_keep_the_promise(calibration, near):
    """A fold that holds a copy of a row would find it far too easy, and new rows have no copy."""
    shares = []
    for seed in range(8):
        X, y = blobs(3, 40, width=32, apart=3.0, seed=[0, seed])
        X, y = np.repeat(X, 4, axis=0), np.repeat(y, 4)
        X = X + near * np.random.default_rng(seed).normal(size=X.shape)
        model = OpenSetClassifier(
            random_state=seed, rejector="distance", head="class_mean", acceptance=0.9, calibration=calibration, folds=3
        ).fit(X, y)
        assert model.report_.near_copies == 360
        assert len(model.calibration_scores_) == (120 if calibration == "cross" else 24)
        shares.append(np.mean(model.predict(blobs(3, 200, width=32, apart=3.0, seed=[1, seed])[0]) != -1))
    assert np.mean(shares) > 0.9 - 3 * np.std(shares) / np.sqrt(8)
    assert np.mean(shares) < 0.97


class TestManyRows:
    """With many rows some are set aside; here 300 are many."""

    @pytest.fixture(autouse=True)
    def few_are_many(self, monkeypatch):
        monkeypatch.setattr(fitting, "LARGE", 300)
        monkeypatch.setattr(fitting, "ASIDE", 100)
        monkeypatch.setattr(fitting, "ASIDE_SHARE", 0.25)
        monkeypatch.setattr(fitting, "MOST_ROWS", 200)
        monkeypatch.setattr(splits, "FEWEST_FOLDS", 2)

    def fitted(self, X, y, groups=None, **options):
        how = {"random_state": 0, "rejector": "distance", "head": "class_mean", "folds": 2, "acceptance": 0.9}
        return OpenSetClassifier(**(how | options)).fit(X, y, groups=groups)

    def test_the_promise_is_that_of_a_split(self):
        shares = []
        for seed in range(12):
            model = self.fitted(*blobs(3, 140, width=16, seed=[0, seed]), random_state=seed)
            shares.append(np.mean(model.predict(blobs(3, 200, width=16, seed=[1, seed])[0]) != -1))
        assert model.calibration_kind_ == "split"
        assert "like the 80 rows set aside" in model.guarantee_
        assert not below_by_chance(shares, 0.9)
        assert np.mean(shares) < 0.95

    def test_fewer_rows_are_not_many(self):
        assert self.fitted(*blobs(3, 100, width=16)).calibration_kind_ == "cross"

    def test_each_row_has_one_part(self, monkeypatch):
        """It is learned from, tells the scale, or calibrates."""
        kept = {}

        def spy(name):
            original = getattr(fitting.Fitting, name)

            def recorded(self, *rows):
                found = original(self, *rows)
                kept[name] = rows, found
                return found

            monkeypatch.setattr(fitting.Fitting, name, recorded)

        for name in ("_set_aside_of_many", "_fit_final"):
            spy(name)
        X, y = blobs(3, 140, width=16)
        model = self.fitted(X, y)
        learned, aside = kept["_fit_final"][0][1], kept["_set_aside_of_many"][1][0]
        assert not set(learned) & set(aside)
        assert set(learned) | set(aside) == set(range(420))
        assert len(aside) == len(set(aside)) == 99, "33 of each class"
        raw, logits = model.head_with_scores_(X[aside])
        predicted = logits.argmax(1)
        np.testing.assert_array_equal(model.calibration_classes_, predicted[19:])
        own, correct = model.evidence_scale_, predicted == y[aside]
        scale, _ = standardise(raw[:19], predicted[:19], correct[:19], n_classes=3)
        np.testing.assert_array_equal((own.mean, own.deviation), (scale.mean, scale.deviation))
        assert model.report_.n_samples == 420

    def test_no_class_is_lost_however_few_its_groups(self):
        X, y = blobs(4, 100, width=32)
        groups = np.where(y == 3, 1000 + np.arange(400) // 50, np.arange(400))
        model = self.fitted(X, y, groups)
        assert model.predict_proba(X).shape == (400, 4)
        assert np.mean(model.classify(X[y == 3]) == 3) > 0.95
        assert 3 not in model.calibration_classes_

    @pytest.mark.parametrize("given", [False, True])
    def test_copies_of_rows_set_aside_are_not_learned_from(self, given, monkeypatch):
        kept = []
        original = fitting.Fitting._fit_final

        def spy(self, task, rows, outliers):
            kept.append(rows)
            return original(self, task, rows, outliers)

        monkeypatch.setattr(fitting.Fitting, "_fit_final", spy)
        X, y = blobs(3, 140, width=16)
        groups = np.arange(len(y)) // 4
        if not given:
            X = X[groups * 4] + 1e-3 * X  # near copies
        model = self.fitted(X, y, groups if given else None)
        learned = set(groups[kept[0]])
        assert len(learned) <= 105 - len(model.calibration_scores_) / 4
        shares = np.mean(model.predict(blobs(3, 300, width=16, seed=1)[0]) != -1)
        assert shares > 0.8
        assert (model.report_.near_copies > 0) == (not given)


@pytest.fixture(scope="module")
def model():
    return OpenSetClassifier(random_state=0, seen_by_encoder=False, rejector="average").fit(*blobs(4, 40, apart=3.0))


def test_predictions_and_p_values_say_the_same(model):
    X, _ = blobs(6, 40, apart=3.0, seed=1)  # two of the classes are unknown
    for acceptance in (0.5, 0.9, 0.95):
        for per_class in (False, True):
            model.set_threshold(acceptance=acceptance, per_class=per_class)
            rejected = model.p_value(X) <= (1 - acceptance) * (1 + 1e-9)
            np.testing.assert_array_equal(model.predict(X) == -1, rejected)
            assert 0 < rejected.sum() < len(X)
    model.set_threshold(acceptance=0.95, per_class=False)


def test_calibrating_on_fresh_samples_is_a_split():
    """A thousand fresh calibration sets for one model."""
    model = OpenSetClassifier(random_state=0, seen_by_encoder=False, head="class_mean").fit(*blobs(2, 20, apart=2.5))
    assert model.calibration_kind_ == "cross"
    assert "each scored by a model that had not seen it or its copies" in model.guarantee_details_
    X, y = blobs(2, 100_000, apart=2.5, seed=1)
    score, predicted = model._decide(X)
    rng, ranked = np.random.default_rng(0), np.sort(score)
    shares = []
    for _ in range(1000):
        rows = rng.integers(0, len(y), 59)
        model._take_calibration(score[rows], predicted[rows], "split")
        shares.append(np.searchsorted(ranked, model.thresholds_[0], "right") / len(score))
    assert not below_by_chance(shares, 0.95)
    assert np.mean(shares) < 0.95 + 1 / 60 + 0.005
    rows = rng.integers(0, len(y), 59)
    expected = model._take_calibration(score[rows], predicted[rows], "split") or model.thresholds_
    assert model.calibrate(X[rows], y[rows]) is model
    assert model.calibration_kind_ == "split"
    assert model.guarantee_.startswith(
        "at least 95 % of new rows of known classes are accepted, if they are like the 59"
    )
    assert model.guarantee_details_.startswith("Split-conformal")
    np.testing.assert_allclose(model.thresholds_, expected)


def test_calibration_leaves_out_what_is_not_known():
    X, y = blobs(4, 40)
    model = OpenSetClassifier(random_state=0).fit(X[y < 2], y[y < 2])
    mixed = model.calibrate(X, y).thresholds_
    known = model.calibrate(X[y < 2], y[y < 2]).thresholds_
    as_float = model.calibrate(X, y.astype(float)).thresholds_
    without_labels = model.calibrate(X[y < 2]).thresholds_
    np.testing.assert_array_equal(mixed, known)
    np.testing.assert_array_equal(as_float, known)
    np.testing.assert_array_equal(without_labels, known)
    assert model.calibrate(X).thresholds_[0] > known[0]


def test_each_class_has_its_threshold_and_the_small_one_is_named():
    X, y = blobs(3, 40)
    X[40:80] *= np.linspace(0.2, 1, 40)[:, None]  # classes are not alike
    rows = np.concatenate([np.arange(80), np.arange(80, 88)])
    names = np.array(["ant", "bee", "cat"])
    model = OpenSetClassifier(random_state=0, per_class=True, seen_by_encoder=False, rejector="knn")
    model.fit(X[rows], names[y[rows]])
    assert model.thresholds_[0] != model.thresholds_[1]
    assert model.guarantee_details_.endswith(
        "of each predicted class but 'cat': each has fewer than 19 calibration rows, so they share one threshold."
    )
    shared = OpenSetClassifier(random_state=0, seen_by_encoder=False, rejector="knn").fit(X[rows], names[y[rows]])
    assert model.thresholds_[2] == shared.thresholds_[2]
    model.calibrate(X, names[y])
    assert "like the 120 rows set aside" in model.guarantee_
    assert model.guarantee_details_.endswith(" It holds for the rows of each predicted class.")


def test_too_few_samples_reject_nothing_and_say_how_many_are_needed():
    X, y = blobs(2, 5)
    with pytest.warns(
        UserWarning, match=r"10 known samples are too few .* \(19 are needed\), so nothing is rejected; add"
    ) as caught:
        model = OpenSetClassifier(random_state=0).fit(X, y)
    assert caught[0].filename == __file__
    assert model.guarantee_ == "none: 10 calibration samples, 19 are needed; nothing is rejected"
    assert set(model.predict(100 * np.ones((3, X.shape[1])))) <= {0, 1}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.set_threshold(acceptance=0.9)
    assert np.isfinite(model.thresholds_).all()


@pytest.mark.parametrize("per_class", [False, True])
def test_who_accepts_everything_needs_no_samples(per_class):
    X, y = blobs(2, 5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = OpenSetClassifier(random_state=0, acceptance=1.0, per_class=per_class).fit(X, y)
    assert model.guarantee_ == "every row is accepted, known or not"
    assert (model.predict(np.full((2, 6), 1e6)) != -1).all()


@ROUNDING
def test_select_unknown_keeps_its_promise_in_a_model(decimals):
    """One model, calibrated anew, and a batch of which a third is unknown."""
    model = OpenSetClassifier(random_state=0, seen_by_encoder=False, head="class_mean").fit(*blobs(2, 20))
    X, _ = blobs(3, 20_000, seed=1)  # the third class is unknown
    score, predicted = model._decide(X)
    score = score if decimals is None else score.round(decimals)
    rng = np.random.default_rng(0)
    false = []
    for _ in range(1000):
        rows = rng.choice(40_000, 240, replace=False)
        model._take_calibration(score[rows[:200]], predicted[rows[:200]], "split")
        batch = np.concatenate([rows[200:], rng.integers(40_000, 60_000, 20)])
        called = benjamini_hochberg(model.calibration_.p_value(score[batch], predicted[batch]), 0.2)
        false.append(called[:40].sum() / max(called.sum(), 1))
    assert np.mean(false) <= 0.2 * 40 / 60 + 3 * np.std(false) / np.sqrt(1000)
    np.testing.assert_array_equal(
        model.select_unknown(X[::500], fdr=0.2), benjamini_hochberg(model.p_value(X[::500]), 0.2)
    )
    with pytest.raises(ValueError, match="fdr is 20; expected a fraction"):
        model.select_unknown(X[:5], fdr=20)
