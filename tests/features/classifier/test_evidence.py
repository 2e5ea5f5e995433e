"""Evidence: scores that mean the same under heads with other classes, and what a fold says."""

import numpy as np
import pytest
from hypothesis import given

import openauc
from openauc.features import SCORES, Score
from openauc.features.classifier.evidence import (
    OUTLIERS,
    EvidenceScale,
    HeadWithScores,
    Task,
    fit_and_score,
    fit_fold,
    name_of,
    standardise,
)
from openauc.features.classifier.heads import LogisticHead
from openauc.features.classifier.scaling import Scaling
from tests.features.samples import blobs, fold_of
from tests.strategies import UNKNOWN, triples


def as_it_is(X):
    """A scaling that changes nothing."""
    return Scaling(np.zeros(X.shape[1]), np.ones(X.shape[1]))


def task_of(X, y, scores, weight=None, by_class=()):
    return Task(X, y, weight, LogisticHead, scores, by_class, as_it_is(X))


def scored_head_of(head, X, y, scores):
    return HeadWithScores.fit(head, X, y, scores, as_it_is(X))


def one_class(raw):
    """Scale and evidence of samples of one class, all correct."""
    return standardise(raw, np.zeros(len(raw), np.int64), np.ones(len(raw), bool), n_classes=1)


def test_the_scale_standardises():
    raw = np.random.default_rng(0).normal(3.0, 5.0, size=(200, 2))
    scale, standard = one_class(raw)
    np.testing.assert_allclose(standard.mean(0), 0.0, atol=1e-12)
    np.testing.assert_allclose(standard.std(0), 1.0)
    np.testing.assert_array_equal(scale(raw, np.zeros(200, np.int64)), standard)


def test_by_correct_samples_alone():
    rng = np.random.default_rng(0)
    raw, correct = rng.normal(size=(50, 3)), rng.random(50) < 0.6
    scale, evidence = standardise(raw, np.zeros(50, np.int64), correct, n_classes=1)
    np.testing.assert_allclose(scale.mean, raw[correct].mean(0))
    np.testing.assert_allclose(scale.deviation, raw[correct].std(0))
    np.testing.assert_allclose(evidence, (raw - raw[correct].mean(0)) / raw[correct].std(0))


@pytest.mark.parametrize("raw", [np.empty((0, 2)), np.full((5, 2), 1e6), np.full((5, 2), 0.1)])
def test_what_does_not_vary_or_is_not_there_is_left_as_it_is(raw):
    scale, evidence = one_class(raw)
    np.testing.assert_array_equal(scale.deviation, 1.0)
    assert np.isfinite(scale(np.zeros((3, 2)), np.zeros(3, np.int64))).all()
    np.testing.assert_allclose(evidence, 0.0, atol=1e-9)


def test_what_is_usual_for_the_predicted_class_is_taken_off():
    """By hand, with five rows of all classes in each; a correct sample does not count for itself."""
    raw = np.array([[1.0, 0.0], [2.0, 0.0], [6.0, 0.0], [7.0, 0.0], [30.0, 0.0]])
    predicted, correct = np.array([0, 0, 1, 1, 1]), np.array([True, True, True, True, False])
    scale, evidence = standardise(raw, predicted, correct, n_classes=3, columns=[0])
    np.testing.assert_allclose(scale.usual[:, 0], [(-3.0 - 2.0) / 7, (2.0 + 3.0) / 7, 0.0])  # the mean is 4
    wide = raw[:, 0] - np.array([-2.0 / 6, -3.0 / 6, 3.0 / 6, 2.0 / 6, 5.0 / 7])
    np.testing.assert_allclose(evidence[:, 2], (wide - wide[:4].mean()) / wide[:4].std())
    new = scale(np.array([[6.0, 0.0], [6.0, 0.0]]), np.array([0, 2]))
    expected = (np.array([6.0 + 5.0 / 7, 6.0]) - scale.mean[2]) / scale.deviation[2]
    np.testing.assert_allclose(new[:, 2], expected)
    assert new.shape == (2, 3)


def test_a_class_that_is_always_surer_is_judged_by_its_own_samples():
    """Scores of two classes lie apart; less what is usual, they do not."""
    rng = np.random.default_rng(0)
    predicted = np.repeat([0, 1], 200)
    raw = rng.normal(size=(400, 1)) + 10.0 * predicted[:, None]
    _, evidence = standardise(raw, predicted, np.ones(400, bool), n_classes=2, columns=[0])
    apart = [abs(column[predicted == 0].mean() - column[predicted == 1].mean()) for column in evidence.T]
    assert apart[0] > 1.5
    assert apart[1] < 0.5


def test_scales_without_classes_take_any_class():
    scale = EvidenceScale(np.zeros(2), np.ones(2))
    raw = np.ones((3, 2))
    np.testing.assert_array_equal(scale(raw, np.array([0, 5, 9])), raw)


@pytest.mark.filterwarnings("ignore:AUROC is")
@given(triples())
def test_the_mean_of_pair_values_is_openauc(triple):
    fold = fold_of(triple.y_true, triple.y_pred)
    found = fold.pair_values(triple.open_score).mean()
    assert found == pytest.approx(openauc.openauc_score(*triple), abs=1e-12)


def test_pair_values_by_hand():
    """Of three known samples two are correct, at 0.1 and 0.6; ties count half."""
    fold = fold_of([0, 1, 1, UNKNOWN, UNKNOWN, UNKNOWN], [0, 1, 0, 0, 0, 0])
    values = fold.pair_values(np.array([0.1, 0.6, 0.2, 0.6, 0.0, 9.0]))
    np.testing.assert_allclose(values, [1.5 / 3, 0.0, 2 / 3])


def test_a_fold_holds_what_the_head_has_not_seen():
    X, y = blobs(4, 20)
    train = np.flatnonzero((y < 3) & (np.arange(len(y)) % 2 == 0))
    test = np.setdiff1d(np.arange(len(y)), train)
    weight = np.random.default_rng(0).random(len(y))
    fold = fit_fold(task_of(X, y, ("max_logit", "knn"), weight), train, test)
    np.testing.assert_array_equal(fold.known, y[test] < 3)
    np.testing.assert_array_equal(fold.label, y[test])
    np.testing.assert_array_equal(fold.weight, weight[test])
    assert fold.held_out == {3}
    assert not fold.correct[~fold.known].any()
    np.testing.assert_allclose(fold.evidence[fold.correct].mean(0), 0.0, atol=1e-9)
    assert fold.evidence[~fold.known].mean() > 1.0
    raw = fit_and_score(task_of(X, y, ("max_logit", "knn"), weight), train, test).scores
    np.testing.assert_allclose(fold.gap, raw[~fold.known].mean(0) - raw[fold.correct].mean(0))


def test_evidence_by_class_stands_behind_the_scores():
    X, y = blobs(4, 20)
    train = np.flatnonzero((y < 3) & (np.arange(len(y)) % 2 == 0))
    test = np.setdiff1d(np.arange(len(y)), train)
    plain = fit_fold(task_of(X, y, ("knn", "max_logit", "gen")), train, test)
    fold = fit_fold(task_of(X, y, ("knn", "max_logit", "gen"), by_class=("gen", "max_logit")), train, test)
    assert fold.evidence.shape == (len(test), 5)
    np.testing.assert_array_equal(fold.evidence[:, :3], plain.evidence)
    assert len(fold.gap) == 3
    for i, j in ((3, 2), (4, 1)):
        assert np.corrcoef(fold.evidence[:, i], fold.evidence[:, j])[0, 1] > 0.9


def test_outliers_are_no_held_out_class():
    X, y = blobs(4, 20)
    y = np.where(y == 3, UNKNOWN, y)
    train = np.flatnonzero((y < 2) & (y >= 0) & (np.arange(len(y)) % 2 == 0))
    fold = fit_fold(task_of(X, y, ("max_logit",)), train, np.setdiff1d(np.arange(len(y)), train))
    assert fold.held_out == {2}
    assert (~fold.known).sum() == 40


def test_labels_of_a_fold_without_the_first_class_are_right():
    """The head counts its classes from 0; answers are compared as the classes they are."""
    X, y = blobs(4, 20)
    train = np.flatnonzero((y > 0) & (np.arange(len(y)) % 2 == 0))
    fold = fit_fold(task_of(X, y, ("max_logit",)), train, np.setdiff1d(np.arange(len(y)), train))
    assert fold.correct[fold.known].mean() > 0.9


def test_evidence_means_the_same_under_heads_of_few_and_of_many_classes():
    """As it comes, the energy of a known sample depends on the number of classes; standardised it does not."""
    X, y = blobs(12, 40, width=16)
    first = np.arange(len(y)) % 2 == 0
    raws, folds = [], []
    for n_classes in (3, 11):
        train, test = np.flatnonzero(first & (y < n_classes)), np.flatnonzero(~first)
        folds.append(fit_fold(task_of(X, y, ("energy", "class_mean")), train, test))
        head = LogisticHead().fit(X[train], y[train])
        raws.append(scored_head_of(head, X[train], y[train], ("energy", "class_mean"))(X[test])[0][folds[-1].correct])
    raw = [values.mean(0) for values in raws]
    assert np.abs(raw[0] - raw[1])[0] > 2 * raws[0].std(0)[0], "energies of three classes and of eleven lie apart"
    for fold in folds:
        np.testing.assert_allclose(fold.evidence[fold.correct].mean(0), 0.0, atol=0.05)
        np.testing.assert_allclose(fold.evidence[fold.correct].std(0), 1.0, atol=0.1)


def test_cross_fitted_samples_are_seen_by_a_head_without_them():
    X, y = blobs(3, 20)
    train, test = np.arange(0, 60, 2), np.arange(1, 60, 2)
    found = fit_and_score(task_of(X, y, ("max_logit",)), train, test)
    head = LogisticHead().fit(X[train], y[train])
    np.testing.assert_array_equal(found.scores[:, 0], -head.logits(X[test]).max(1))
    np.testing.assert_array_equal(found.predicted, head.logits(X[test]).argmax(1))


def test_outliers_at_hand_are_a_score():
    X, y = blobs(3, 40)
    outliers = np.random.default_rng(1).normal(size=(20, 6)) - 3
    head = LogisticHead().fit(X, y)
    samples, labels = np.concatenate([X, outliers[:10]]), np.append(y, np.full(10, UNKNOWN))
    scored_head = scored_head_of(head, samples, labels, ("knn", OUTLIERS))
    known, unknown = (scored_head(rows)[0][:, 1] for rows in (X, outliers[10:]))
    assert known.max() < unknown.min()
    alone = scored_head_of(head, X, y, ("knn",))
    np.testing.assert_array_equal(scored_head(X)[0][:, 0], alone(X)[0][:, 0], "other scores do not look at outliers")


class Constant(Score):
    def __call__(self, features, logits):
        return np.zeros(len(features))


def my_score(features, logits):
    return -logits.max(1)


def test_scores_by_name_class_object_and_function():
    X, y = blobs(3)
    own = Constant()
    given = ["max_logit", Constant, SCORES["knn"], my_score]
    scored_head = scored_head_of(LogisticHead().fit(X, y), X, y, given)
    assert list(scored_head.scores) == ["max_logit", "Constant", SCORES["knn"].__name__, "my_score"]
    raw, logits = scored_head(X)
    np.testing.assert_array_equal(raw[:, 0], raw[:, 3])
    assert raw.shape == (len(y), 4)
    assert logits.shape == (len(y), 3)
    assert name_of(own) == "Constant"
    assert scored_head_of(scored_head.head, X, y, [own]).scores["Constant"] is not own, (
        "the caller's object stays as it is"
    )
