"""Rejectors: what is learned, from whom, and what held-out classes say of it."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

import openauc
from openauc.features import SCORES, OpenSetClassifier
from openauc.features.classifier import fitting, rejector, splits
from openauc.features.classifier.evidence import BY_CLASS, OUTLIERS, Fold
from openauc.features.classifier.rejector import (
    AVERAGE,
    BASES,
    CLIP,
    CONFIDENCE,
    EVIDENCE,
    Average,
    Estimate,
    Learned,
    Rejector,
    choose_rejector,
    estimate,
    held_out_scores,
    worse_by_far,
)
from openauc.intervals import Interval
from tests.features.samples import blobs, fold_of
from tests.strategies import UNKNOWN, fractions, triples

N_SCORES = len(EVIDENCE)


def folds_of_classes(n_classes=6, per_class=20, n_known=60, *, seed=0, shift=1.5):
    """One fold for each class, in which it is held out and its evidence is shifted."""
    rng = np.random.default_rng(seed)
    folds = []
    for held in range(n_classes):
        known = np.arange(n_known + per_class) < n_known
        evidence = rng.normal(size=(len(known), N_SCORES))
        evidence[~known] += shift
        others = rng.choice(np.setdiff1d(np.arange(n_classes), held), len(known))
        label = np.where(known, others, held)
        folds.append(Fold(evidence, known, known & (rng.random(len(known)) < 0.9), label, np.ones(len(known))))
    return folds


# What held-out classes say


@pytest.mark.filterwarnings("ignore:AUROC is")
@given(triples())
def test_the_estimate_of_one_fold_is_openauc(triple):
    found = estimate([fold_of(triple.y_true, triple.y_pred)], [triple.open_score])
    assert found.value == pytest.approx(openauc.openauc_score(*triple), abs=1e-9)


@pytest.mark.filterwarnings("ignore:AUROC is")
@given(triples(), fractions())
def test_and_partial_openauc_up_to_a_share(triple, max_ofpr):
    """Without ties: where the share ends amid tied samples, the curve's slope counts there, and not here."""
    score = np.argsort(np.argsort(triple.open_score, kind="stable")).astype(float)
    found = estimate([fold_of(triple.y_true, triple.y_pred)], [score], max_ofpr)
    expected = openauc.openauc_score(triple.y_true, triple.y_pred, score, max_ofpr=max_ofpr)
    assert found.value == pytest.approx(expected, abs=1e-9)


def test_folds_count_by_their_pairs_and_classes_by_their_samples():
    folds = folds_of_classes()
    scores = [fold.evidence[:, 0] for fold in folds]
    found = estimate(folds, scores)
    single = [estimate([fold], [score]).value for fold, score in zip(folds, scores, strict=True)]
    assert found.value == pytest.approx(np.mean(single))
    np.testing.assert_allclose(found.deviations, (np.array(single) - found.value) / 6)
    assert found.interval.low < found.value < found.interval.high


@pytest.mark.parametrize("max_ofpr", [None, 0.05])
def test_outliers_do_not_count_however_known_they_look(max_ofpr):
    folds = folds_of_classes()
    plain = estimate(folds, [fold.evidence[:, 0] for fold in folds], max_ofpr)
    more = [
        Fold(
            np.concatenate([fold.evidence, np.full((500, N_SCORES), -9.0)]),
            *(np.append(part, np.zeros(500, bool)) for part in (fold.known, fold.correct)),
            np.append(fold.label, np.full(500, UNKNOWN)),
            np.ones(len(fold.label) + 500),
        )
        for fold in folds
    ]
    assert estimate(more, [fold.evidence[:, 0] for fold in more], max_ofpr).value == plain.value


def test_one_class_leaves_everything_open():
    folds = folds_of_classes(2)[:1]
    assert estimate(folds, [folds[0].evidence[:, 0]]).interval == (0.0, 1.0)


def test_intervals_cover_what_classes_to_come_will_give():
    """Each class has a shift of its own; the value is the mean over all classes there might be."""
    rng = np.random.default_rng(0)
    n_classes, n_known, n_unknown, repetitions = 10, 80, 15, 1000
    expected = np.mean(rng.normal(size=(100_000,)) < 1.5 + rng.normal(0, 0.7, 100_000) + rng.normal(size=100_000))
    known = np.arange(n_known + n_unknown) < n_known
    covered = []
    for _ in range(repetitions):
        folds, scores = [], []
        for label, shift in enumerate(rng.normal(1.5, 0.7, n_classes)):
            others = rng.choice(np.delete(np.arange(n_classes), label), len(known))
            labels = np.where(known, others, label)
            folds.append(Fold(np.empty((len(known), 0)), known, known, labels, np.ones(len(known))))
            scores.append(rng.normal(size=len(known)) + np.where(known, 0, shift))
        interval = estimate(folds, scores).interval
        covered.append(interval.low <= expected <= interval.high)
    assert np.mean(covered) == pytest.approx(0.95, abs=0.03)


def estimate_of(values):
    """As of classes with these values, equally heavy."""
    values = np.array(values)
    return Estimate(values.mean(), Interval(0.0, 1.0), (values - values.mean()) / len(values))


def test_worse_by_far_is_more_than_chance_would_explain():
    rng = np.random.default_rng(0)
    base = rng.uniform(0.6, 0.9, 12)
    assert worse_by_far(estimate_of(base - 0.05), estimate_of(base)), "in every class"
    assert not worse_by_far(estimate_of(base), estimate_of(base - 0.05))
    assert not worse_by_far(estimate_of(base), estimate_of(base))
    uneven = base + np.where(np.arange(12) == 0, -0.3, 0.01)
    assert not worse_by_far(estimate_of(uneven), estimate_of(base)), "one class alone"


def test_chance_seldom_looks_like_being_worse_by_far():
    rng = np.random.default_rng(0)
    found = [worse_by_far(*(estimate_of(rng.normal(0.8, 0.05, 10)) for _ in range(2))) for _ in range(1000)]
    assert np.mean(found) < 0.06


class Reversed(Average):
    """As bad as can be."""

    title = "learned"
    names = EVIDENCE

    def __init__(self):
        pass

    def __call__(self, evidence):
        return -evidence.mean(1)


# Who is learned from


def test_no_fold_is_scored_by_what_learned_from_its_held_out_classes():
    folds = folds_of_classes() + folds_of_classes(seed=1)  # each class is held out twice
    seen = []

    def learn(others):
        held_by = {int(label) for other in others for label in other.label[~other.known]}
        seen.append((held_by, others))
        number = len(seen) - 1
        return lambda evidence: np.full(len(evidence), number)

    found = held_out_scores(folds, learn)
    assert len(seen) == 6, "one for each set of classes held out together"
    for fold, score in zip(folds, found, strict=True):
        held_by, others = seen[score[0]]
        assert not held_by & fold.held_out
        assert held_by | fold.held_out == set(range(6))
        own = [other for other in others if other.known.all()]
        assert len(own) == 1, "of the other fold with these classes, its known samples alone"


def test_in_a_real_fit_too(monkeypatch):
    """The folds of which the rejector is learned, as the fit itself makes them."""
    calls = []
    original = rejector.held_out_scores

    def spy(folds, learn):
        def recorded(others):
            calls.append({int(label) for other in others for label in other.label[~other.known]} - {UNKNOWN})
            return learn(others)

        held = {fold.held_out for fold in folds}
        found = original(folds, recorded)
        assert len(calls) == len(held)
        for group, labels in zip(dict.fromkeys(fold.held_out for fold in folds), calls, strict=True):
            assert not labels & group
        return found

    monkeypatch.setattr(rejector, "held_out_scores", spy)
    X, y = blobs(5)
    odd = np.full((3, X.shape[1]), -3.0)
    OpenSetClassifier(random_state=0).fit(np.concatenate([X, odd]), np.concatenate([y, [-1] * 3]))
    assert calls


# What is learned


def learn(folds, n_classes=6, max_ofpr=None):
    return Learned.learn(folds, n_classes=n_classes, max_ofpr=max_ofpr, seed=0)


def test_samples_of_held_out_classes_rank_above_and_every_score_counts():
    folds = folds_of_classes()
    learned, new = learn(folds), folds_of_classes(seed=1)
    value = estimate(new, [learned(fold.evidence) for fold in new]).value
    best = max(estimate(new, [fold.evidence[:, i] for fold in new]).value for i in range(N_SCORES))
    assert value > best, "independent scores tell more than one"


def test_with_one_telling_score_it_is_found():
    folds = folds_of_classes(shift=np.eye(N_SCORES)[3] * 2)
    learned = learn(folds, n_classes=1000)
    grid, curves = learned.curves()
    ranges = np.ptp(curves[:, (grid >= -2) & (grid <= 3)], axis=1)
    assert ranges.argmax() == 3
    assert (ranges[3] > 4 * np.delete(ranges, 3)).all()


@pytest.mark.parametrize("n_classes", [2, 8, 100])
def test_few_classes_lean_on_the_base(n_classes):
    learned = learn(folds_of_classes(), n_classes=n_classes)
    assert learned.base_weight == pytest.approx(8 / (8 + n_classes))
    rng = np.random.default_rng(1)
    evidence = rng.normal(size=(500, N_SCORES))
    average = Average()(evidence[:, [EVIDENCE.index(name) for name in AVERAGE]])
    alone = replace_weight(learned, 0.0)(evidence), replace_weight(learned, 1.0)(evidence)
    np.testing.assert_allclose(alone[1], (average - learned.base_scale[0]) / learned.base_scale[1])
    w = learned.base_weight
    np.testing.assert_allclose(learned(evidence), w * alone[1] + (1 - w) * alone[0])


def replace_weight(learned, weight):
    other = Learned(1)
    other.__dict__.update(vars(learned), base_weight=weight)
    return other


def test_any_score_may_be_the_base():
    learned = Learned.learn(folds_of_classes(), n_classes=6, base=("entropy",))
    evidence = np.random.default_rng(1).normal(size=(50, N_SCORES))
    expected = evidence[:, EVIDENCE.index("entropy")]
    np.testing.assert_allclose(np.argsort(replace_weight(learned, 1.0)(evidence)), np.argsort(expected))


def far_away(rejector, distance):
    """Scores of samples that differ in how many deviations their distance is from a usual one."""
    evidence = np.zeros((len(distance), len(rejector.names)))
    evidence[:, rejector.names.index("distance")] = distance
    return rejector(evidence)


@pytest.mark.parametrize("make", [Average, lambda: learn(folds_of_classes(), n_classes=100)])
def test_what_a_distance_has_beyond_eight_deviations_is_added(make):
    found = far_away(make(), np.array([CLIP, CLIP + 1, CLIP + 1000, -CLIP, -1000.0]))
    np.testing.assert_allclose(found[1:3] - found[0], [1.0, 1000.0])
    assert found[3] == found[4], "and nothing on the other side"


@pytest.mark.parametrize("name", [name for name in EVIDENCE if name != "distance"])
def test_no_other_score_of_several_says_more_beyond_that(name):
    learned = learn(folds_of_classes())
    evidence = np.zeros((2, N_SCORES))
    evidence[:, EVIDENCE.index(name)] = CLIP, 1000.0
    assert np.ptp(learned(evidence)) == 0.0


def test_a_score_alone_is_not_cut():
    evidence = np.array([[-1e9], [3.0], [1e9]])
    np.testing.assert_array_equal(Average(("max_logit",))(evidence), evidence[:, 0])


def test_both_terms_are_standardised_on_correct_known_samples():
    folds = folds_of_classes()
    evidence = np.concatenate([fold.evidence[fold.correct] for fold in folds])
    for weight in (0.0, 1.0):
        score = replace_weight(learn(folds), weight)(evidence)
        assert score.mean() == pytest.approx(0.0, abs=1e-9)
        assert score.std() == pytest.approx(1.0)


def test_contributions_add_up_to_the_score():
    learned = learn(folds_of_classes())
    grid, curves = learned.curves()
    place = np.random.default_rng(0).integers(0, len(grid), size=(50, N_SCORES))
    expected = learned(np.zeros((1, N_SCORES))) + curves[np.arange(N_SCORES), place].sum(1)
    np.testing.assert_allclose(learned(grid[place]), expected)


def test_misclassified_samples_teach_nothing():
    folds = folds_of_classes()
    spoilt = []
    for fold in folds:
        wrong = fold.known & ~fold.correct
        spoilt.append(replace(fold, evidence=np.where(wrong[:, None], 7.0, fold.evidence)))
    evidence = np.random.default_rng(0).normal(size=(20, N_SCORES))
    np.testing.assert_array_equal(learn(folds)(evidence), learn(spoilt)(evidence))


def test_weights_count_like_repeated_samples():
    fold = folds_of_classes(2)[0]
    heavy = np.flatnonzero(~fold.known)[:5]
    weight = np.ones(len(fold.known))
    weight[heavy] = 3.0
    rows = np.concatenate([np.arange(len(weight)), heavy, heavy])
    repeated = Fold(fold.evidence[rows], fold.known[rows], fold.correct[rows], fold.label[rows], np.ones(len(rows)))
    weighted, plain = learn([replace(fold, weight=weight)]), learn([repeated])
    # The regularisation knows the number of rows, which differs by these ten; the direction does not.
    assert np.corrcoef(weighted.weight, plain.weight)[0, 1] > 0.9999
    a, b, without = (one.weight / np.linalg.norm(one.weight) for one in (weighted, plain, learn([fold])))
    assert np.abs(a - without).max() > 5 * np.abs(a - b).max()


def test_many_samples_are_thinned_by_the_seed(monkeypatch):
    monkeypatch.setattr(rejector, "MOST_ROWS", 100)
    folds = folds_of_classes()
    one, same, other = (Learned.learn(folds, n_classes=6, seed=seed).weight for seed in (0, 0, 1))
    np.testing.assert_array_equal(one, same)
    assert (one != other).any()


def test_without_a_correct_sample_the_average_decides():
    folds = [replace(fold, correct=np.zeros(len(fold.known), bool)) for fold in folds_of_classes()]
    learned = learn(folds)
    evidence = np.random.default_rng(0).normal(size=(20, N_SCORES))
    average = evidence[:, [EVIDENCE.index(name) for name in AVERAGE]].mean(1)
    np.testing.assert_array_equal(np.argsort(learned(evidence)), np.argsort(average))


def two_kinds(seed, *, easy, hard, n=2000):
    """A fold whose unknown samples are easy or hard, with other scores that tell them."""
    rng = np.random.default_rng(seed)
    known = np.arange(2 * n) < n
    evidence = rng.normal(size=(2 * n, N_SCORES))
    is_hard = ~known & (rng.random(2 * n) < 0.2)
    evidence[~known & ~is_hard] += easy
    evidence[is_hard] += hard
    return Fold(evidence, known, known, np.where(known, 0, 1), np.ones(2 * n))


@pytest.mark.parametrize(
    ("easy", "hard", "gain"),
    [
        ((4.0, -0.5), (0.0, 2.0), 0.02),
        ((3.0, -1.5), (-0.5, 1.5), 0.02),  # at the cost of the easy ones
        ((2.0, 0.0), (0.0, 2.0), -0.02),  # a whole step would overshoot
    ],
)
def test_max_ofpr_aims_at_the_left_of_the_curve(easy, hard, gain):
    columns = np.eye(N_SCORES)[[0, 4]]
    train, new = (two_kinds(seed, easy=easy @ columns, hard=hard @ columns) for seed in (0, 1))
    values = [estimate([new], [learn([train], 1000, max_ofpr)(new.evidence)], 0.1).value for max_ofpr in (None, 0.1)]
    assert values[1] > values[0] + gain


def test_titles_and_what_a_rejector_must_have():
    assert (Average().title, Average(("knn",)).title) == ("average", "knn")
    incomplete = Rejector()
    incomplete.names = ("knn", "gen")
    with pytest.raises(NotImplementedError, match=r"Rejector has no _combine\(evidence\); define it"):
        incomplete(np.zeros((1, 2)))


# What is chosen


def telling(name, shift=3.0, n_classes=6, **options):
    """Folds in which one score tells held-out samples, and no other does."""
    return folds_of_classes(n_classes, shift=np.eye(N_SCORES)[EVIDENCE.index(name)] * shift, **options)


def chosen(folds, wanted="learned", names=EVIDENCE, n_classes=6, **options):
    return choose_rejector(folds, names, wanted, n_classes=n_classes, **options)


def test_a_choice_depends_on_nothing_else():
    folds = folds_of_classes()
    one, same = (chosen(folds) for _ in range(2))
    assert one.rejector.title == "learned"
    np.testing.assert_array_equal(one.rejector.weight, same.rejector.weight)
    np.testing.assert_array_equal(one.scores, same.scores)
    assert {name: found.value for name, found in one.estimates.items()} == {
        name: found.value for name, found in same.estimates.items()
    }


def test_everything_that_could_reject_is_compared():
    folds = folds_of_classes()
    found = chosen(folds)
    plain = {name for name in EVIDENCE if name in SCORES}
    assert set(found.estimates) == {*plain, "average", "learned"}, "but not evidence by class alone"
    assert found.note is None
    assert estimate(folds, found.scores).value == found.estimates["learned"].value


@pytest.mark.parametrize("name", ["entropy", "knn", "relative_mahalanobis_pp"])
def test_a_wanted_score_is_the_only_one_looked_at(name):
    folds = telling("max_logit")
    found = chosen(folds, name)
    assert (found.rejector.title, found.rejector.names) == (name, (name,))
    assert set(found.estimates) == {name}
    assert estimate(folds, found.scores).value == found.estimates[name].value
    alone = chosen([replace(fold, evidence=fold.evidence[:, :1]) for fold in telling("max_logit")], "mine", ["mine"])
    assert set(alone.estimates) == {"mine"}, "of one's own too"


def test_the_average_is_what_there_is_of_it():
    found = chosen(folds_of_classes(), "average")
    assert found.rejector.names == AVERAGE
    few = [name for name in EVIDENCE if name != "relative_mahalanobis_pp"]
    columns = [EVIDENCE.index(name) for name in few]
    folds = [replace(fold, evidence=fold.evidence[:, columns]) for fold in folds_of_classes()]
    without = chosen(folds, "average", few)
    assert without.rejector.names == ("max_logit", "knn", "distance")
    learned = chosen(folds, "learned", few).rejector
    assert learned.names == tuple(few)
    assert learned.base == ("max_logit", "knn", "distance")


@pytest.mark.parametrize("name", ["margin", "knn", "gen"])
def test_selected_is_the_best_score(name):
    folds = telling(name)
    found = chosen(folds, "selected")
    assert found.rejector.title == name
    assert estimate(folds, found.scores).value == max(
        one.value for title, one in found.estimates.items() if title != "average"
    )


@pytest.mark.parametrize("name", BASES)
def test_the_base_is_the_score_that_held_out_classes_clearly_prefer(name):
    learned = chosen(telling(name, n_classes=12), n_classes=12).rejector
    assert learned.title == "learned"
    assert learned.base == (name,)


def test_else_it_is_the_average():
    assert chosen(folds_of_classes()).rejector.base == AVERAGE


def test_in_place_of_a_learned_rejector_that_is_far_below_comes_the_best(monkeypatch):
    """Not the first that is better, but the best of those that are."""
    folds = [replace(fold, evidence=fold.evidence.copy()) for fold in folds_of_classes(shift=1.0)]
    for fold in folds:
        fold.evidence[~fold.known, EVIDENCE.index("class_mean")] += 4.0
    monkeypatch.setattr(Learned, "learn", lambda folds, **_: Reversed())
    found = chosen(folds)
    assert found.rejector.names == ("class_mean",)
    assert found.note == "On held-out classes the learned rejector is below class_mean, so class_mean rejects."
    assert found.estimates["learned"].value < 0.5 < found.estimates["average"].value
    assert found.estimates["average"].value < found.estimates["class_mean"].value
    assert estimate(folds, found.scores).value == found.estimates["class_mean"].value


def test_of_a_part_of_the_curve_the_better_one_is_used(monkeypatch):
    """Fewer samples tell there, so being behind at all is enough."""
    errors = []

    def spy(one, other, allowed):
        errors.append(allowed)
        return False

    monkeypatch.setattr(rejector, "worse_by_far", spy)
    n = len(BASES)
    chosen(folds_of_classes())
    assert errors == [2.0] * (n + n + 1)
    errors.clear()
    chosen(folds_of_classes(), max_ofpr=0.2)
    assert errors == [2.0] * n + [0.0] * (n + 1)


@pytest.mark.parametrize("wanted", ["learned", "average", "selected"])
def test_where_held_out_classes_mislead_nothing_is_forecast(wanted):
    found = chosen(folds_of_classes(), wanted, misleading=True)
    assert found.rejector.names == ("max_logit",)
    assert (found.scores, found.estimates, found.note) == ([], {}, None)


def test_without_folds_the_distance_rejects():
    for wanted, names in [("learned", ("distance",)), ("selected", ("distance",)), ("average", AVERAGE)]:
        found = chosen([], wanted, n_classes=2)
        assert found.rejector.names == names
        assert (found.scores, found.estimates) == ([], {})
    assert chosen([], "knn", n_classes=2).rejector.names == ("knn",)
    assert chosen([], "learned", n_classes=2, misleading=True).rejector.names == ("max_logit",)


def test_outliers_at_hand_are_evidence_and_do_not_reject_alone():
    names = (*EVIDENCE, OUTLIERS)
    rng = np.random.default_rng(0)
    folds = [replace(f, evidence=np.column_stack([f.evidence, rng.normal(size=len(f.known))])) for f in telling("knn")]
    found = chosen(folds, names=names)
    assert found.rejector.names == names
    assert OUTLIERS not in found.estimates


# In the classifier


@pytest.fixture
def few_folds(monkeypatch):
    """What is asked here does not hang on how often classes are cut anew."""
    monkeypatch.setattr(splits, "FEWEST_FOLDS", 3)


def tried(model):
    return {one.name: one.openauc for one in model.report_.tried}


def test_outliers_one_happens_to_have_move_the_rejector(few_folds):
    """Unknown samples that look known to most scores: outliers like them teach to find them."""
    rng = np.random.default_rng(0)
    X, y = blobs(6, width=8, apart=4.0)
    outliers, unknown = (np.full((n, 8), 1.5) + rng.normal(0, 0.3, size=(n, 8)) for n in (20, 100))
    plain = OpenSetClassifier(random_state=0).fit(X, y)
    model = OpenSetClassifier(random_state=0).fit(np.concatenate([X, outliers]), np.append(y, np.full(20, -1)))
    assert model.report_.n_outliers == 20
    new, y_new = blobs(6, width=8, apart=4.0, seed=1)
    samples, truth = np.concatenate([new, unknown]), np.append(y_new, np.full(100, -1))
    values = [openauc.openauc_score(*one.predictions(samples, truth)) for one in (plain, model)]
    assert values[1] > values[0]
    assert model.classes_.tolist() == plain.classes_.tolist()


@pytest.mark.parametrize("count", [4, 5])
def test_enough_outliers_are_a_score_of_their_own(count, few_folds):
    X, y = blobs(4)
    outliers = np.full((count, X.shape[1]), -2.0) + np.random.default_rng(0).normal(size=(count, X.shape[1]))
    model = OpenSetClassifier(random_state=0).fit(np.concatenate([X, outliers]), np.append(y, np.full(count, -1)))
    plain = tuple(name for name in EVIDENCE if not name.endswith(BY_CLASS))
    by_class = tuple(name + BY_CLASS for name in CONFIDENCE)
    outliers = () if count < 5 else (OUTLIERS,)
    expected = (*plain, *outliers, *by_class)
    assert model.rejector_.names == expected
    assert tuple(model.head_with_scores_.scores) == (*plain, *outliers)
    assert OUTLIERS not in tried(model)
    _, curves = model.rejector_.curves()
    assert len(curves) == len(expected)


def test_no_outlier_is_learned_from_and_looked_at_in_one_fold(monkeypatch):
    plans = []
    original = fitting.Fitting._class_plans

    def spy(self, y, groups):
        plans.extend(original(self, y, groups))
        return plans

    monkeypatch.setattr(fitting.Fitting, "_class_plans", spy)
    X, y = blobs(4)
    OpenSetClassifier(random_state=0).fit(np.concatenate([X, X[:9] - 5]), np.append(y, np.full(9, -1)))
    looked_at = set()
    for train, test in plans:
        np.testing.assert_array_equal(np.sort(np.concatenate([train, test])), np.arange(129))
        looked_at |= {row for row in test.tolist() if row >= 120}
        assert np.sum(train >= 120) >= 7
    assert looked_at == set(range(120, 129)), "each of them by some fold"


def test_a_learned_rejector_that_is_worse_by_far_is_not_used(monkeypatch, few_folds):
    monkeypatch.setattr(Learned, "learn", lambda folds, **_: Reversed())
    X, y = blobs(5)
    model = OpenSetClassifier(random_state=0).fit(X, y)
    name = model.report_.chosen
    assert name in ("average", *BASES)
    assert f"On held-out classes the learned rejector is below {name}, so {name} rejects." in model.report_.notes
    assert tried(model)["learned"] < 0.5 < tried(model)["average"]
    assert tried(model)[name] == max(tried(model)[other] for other in ("average", *BASES))
    assert model.report_.expected.name == name


COLLAPSED = {"apart": 20.0, "noise": 0.3, "width": 40}


def test_classes_collapsed_onto_their_means_warn_and_the_largest_logit_rejects(few_folds):
    X, y = blobs(5, **COLLAPSED)
    with pytest.warns(UserWarning, match=r"separated almost perfectly .* as if the encoder had been trained on these"):
        model = OpenSetClassifier(random_state=0).fit(X, y)
    assert model.report_.chosen == "max_logit"
    assert any("seen_by_encoder=False if it was not" in note for note in model.report_.notes)
    assert (model.report_.tried, model.report_.expected) == ((), None)
    assert "In use: max_logit. Nothing is forecast." in str(model.report_)


@pytest.mark.parametrize(("seen", "chosen"), [(False, "learned"), (True, "max_logit")])
@pytest.mark.parametrize("clusters", [COLLAPSED, {}])
def test_what_one_knows_of_the_encoder_is_believed(seen, chosen, clusters, few_folds):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = OpenSetClassifier(random_state=0, seen_by_encoder=seen).fit(*blobs(5, **clusters))
    assert model.report_.chosen == chosen
    assert (model.report_.expected is None) == (model.report_.tried == ()) == seen


def test_with_two_classes_as_well():
    model = OpenSetClassifier(random_state=0, seen_by_encoder=True).fit(*blobs(2))
    assert (model.report_.chosen, model.report_.notes) == ("max_logit", ())


def test_a_score_asked_for_by_name_rejects_whatever_the_encoder_saw(few_folds):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = OpenSetClassifier(random_state=0, rejector="knn").fit(*blobs(5, **COLLAPSED))
    assert model.report_.chosen == "knn"


@pytest.mark.parametrize("apart", [2.0, 4.0, 6.0])
def test_ordinary_clusters_do_not_warn(apart, few_folds):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = OpenSetClassifier(random_state=0).fit(*blobs(5, apart=apart, width=64))
    assert model.report_.chosen == "learned"


def test_selected_takes_the_best_score_on_held_out_classes(few_folds):
    model = OpenSetClassifier(random_state=0, rejector="selected").fit(*blobs(5))
    values = {name: value for name, value in tried(model).items() if name != "average"}
    assert values[model.report_.chosen] == max(values.values())


def test_a_table_of_few_columns_is_no_embedding_however_easy(few_folds):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = OpenSetClassifier(random_state=0).fit(*blobs(5, **(COLLAPSED | {"width": 6})))
    assert model.report_.chosen != "max_logit"
