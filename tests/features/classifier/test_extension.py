"""Classes that a fitted classifier learns later."""

import re

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from openauc import evaluate
from openauc.features import OpenSetClassifier
from openauc.features.classifier import splits
from openauc.features.classifier.tables import guarantee_of
from openauc.features.scores.registry import SCORES
from tests.features.samples import blobs


@pytest.fixture(autouse=True, scope="module")
def few_folds():
    """What is asked here does not hang on how often classes are cut anew."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(splits, "FEWEST_FOLDS", 2)
        yield


def names_of(y):
    return np.array(["ant", "bee", "cat", "dog", "elk", "fox", "gnu", "hen"])[y]


X, Y = blobs(8, 40, width=10)
TEST, TEST_Y = blobs(8, 40, width=10, seed=1)
OLD, NEW, REST = Y < 5, (Y == 5) | (Y == 6), TEST_Y == 7


def fitted(rows=OLD, **options):
    return OpenSetClassifier(random_state=0, **{"folds": 2, **options}).fit(X[rows], names_of(Y[rows]))


def openauc(model):
    """With all classes but the last as known ones, learned or not."""
    y_true = np.where(REST, "unknown", names_of(TEST_Y))
    return evaluate(y_true, model.classify(TEST), model.open_score(TEST), unknown_label="unknown").openauc


def same(one, other):
    """Whether two classifiers answer alike."""
    np.testing.assert_array_equal(one.open_score(TEST), other.open_score(TEST))
    np.testing.assert_array_equal(one.predict(TEST), other.predict(TEST))
    np.testing.assert_array_equal(one.p_value(TEST), other.p_value(TEST))


@pytest.mark.parametrize(("head", "lost"), [("logistic", 0.02), ("class_mean", 0.02), ("mlp", 0.05)])
def test_it_is_about_as_good_as_a_fit_on_all_rows(head, lost):  # the hidden layer of an mlp does not learn more
    model = fitted(head=head)
    before = openauc(model)
    assert model.add_classes(X[NEW], names_of(Y[NEW])) is model
    assert model.classes_.tolist() == ["ant", "bee", "cat", "dog", "elk", "fox", "gnu"]
    whole = openauc(fitted(OLD | NEW, head=head))
    assert openauc(model) > whole - lost
    assert openauc(model) > before + 0.1
    known = TEST_Y < 7
    answers = model.predict(TEST)
    assert np.mean(answers[known] != "unknown") == pytest.approx(0.95, abs=0.05)
    assert np.mean(answers[REST] == "unknown") > 0.5


@pytest.mark.parametrize("head", ["logistic", "class_mean", "mlp"])
def test_logits_of_other_classes_stay(head):
    model = fitted(head=head)
    logits = model.head_with_scores_(TEST)[1]
    before = model.classify(TEST)
    model.add_classes(X[NEW], names_of(Y[NEW]))
    np.testing.assert_allclose(model.head_with_scores_(TEST)[1][:, :5], logits, rtol=1e-6)
    after = model.classify(TEST)
    np.testing.assert_array_equal(
        after[after != before], np.where(np.isin(after, ["fox", "gnu"]), after, "")[after != before]
    )


def test_decisions_far_from_a_new_class_stay():
    far = X[Y == 5] + 40.0 * np.eye(10)[5]
    model = fitted()
    score, answers = model.open_score(TEST[TEST_Y < 5]), model.predict(TEST[TEST_Y < 5])
    classes = model.classify(TEST[TEST_Y < 5])
    model.add_classes(far, ["fox"] * len(far))
    np.testing.assert_array_equal(model.classify(TEST[TEST_Y < 5]), classes)
    assert np.mean(model.predict(TEST[TEST_Y < 5]) == answers) >= 0.99
    assert np.corrcoef(model.open_score(TEST[TEST_Y < 5]), score)[0, 1] > 0.99
    assert "that the model keeps, none is decided otherwise" in model.report_.notes[-1]


def test_more_rows_of_a_known_class():
    drifted, drifted_test = X[Y == 4] + 3.0 * np.eye(10)[7], TEST[TEST_Y == 4] + 3.0 * np.eye(10)[7]
    model = fitted()
    before = np.mean(model.predict(drifted_test) == "elk")
    model.add_classes(drifted, ["elk"] * len(drifted))
    assert len(model.classes_) == 5
    assert np.mean(model.predict(drifted_test) == "elk") > before + 0.2
    assert model.examples_.size.tolist() == [40, 40, 40, 40, 80]


@pytest.mark.parametrize("rejector", [*SCORES, "average", lambda features, logits: -logits.max(1)])
def test_every_rejector_learns_later(rejector):
    model = fitted(rejector=rejector)
    before = openauc(model)
    model.add_classes(X[NEW], names_of(Y[NEW]))
    assert openauc(model) > before
    assert np.isfinite(model.open_score(TEST)).all()


def test_calibration_counts_added_rows_and_copies_once():
    model = fitted()
    n = len(model.calibration_scores_)
    some = X[NEW][::4]
    model.add_classes(np.concatenate([some, some]), np.tile(names_of(Y[NEW][::4]), 2))
    assert len(model.calibration_scores_) == n + len(some)
    assert model.thresholds_.shape == (7,)
    rejected = model.predict(TEST) == "unknown"
    np.testing.assert_array_equal(rejected, model.p_value(TEST) <= 0.05 + 1e-12)


def test_the_report_says_what_changed():
    model = fitted()
    rows = np.flatnonzero(NEW)[::8]
    model.add_classes(X[rows], names_of(Y[rows]))
    report = model.report_
    assert (report.n_samples, report.n_classes, report.small_classes) == (210, 7, ("fox", "gnu"))
    assert "10 rows added, with the new classes 'fox', 'gnu'. Of the 200 training rows" in str(report)
    assert (report.n_added, guarantee_of(model).openauc, guarantee_of(model).acceptance) == (10, None, 0.95)
    assert guarantee_of(fitted()).openauc is not None
    assert model.guarantee_.startswith("about 95 %")


def test_a_split_is_no_longer_exact():
    model = fitted(calibration="split")
    assert model.guarantee_.startswith("at least")
    model.add_classes(X[NEW], names_of(Y[NEW]))
    assert model.guarantee_.startswith("about")


def test_few_rows_that_are_not_one_thing_are_told():
    model = fitted()
    rows = np.flatnonzero(NEW)[::4]
    model.add_classes(X[rows] + 2 * np.random.default_rng(0).normal(size=(len(rows), 10)), names_of(Y[rows]))
    note = model.report_.notes[-1]
    assert re.match(r"At the usual threshold, 0\.[4-8]\d\d of the added rows would be accepted", note)
    assert re.search(r"unknown rows, too: 0\.\d\d of those of held-out classes, instead of 0\.\d\d\.$", note)


def test_thresholds_of_other_classes_stay():
    model = fitted()
    before, p_value = model.thresholds_, model.p_value(TEST[TEST_Y < 5])
    far = X[NEW] + 40.0 * np.eye(10)[5]
    model.add_classes(far, names_of(Y[NEW]))
    np.testing.assert_array_equal(model.thresholds_[:5], before)
    assert len(set(model.thresholds_[5:].tolist()) - set(before.tolist())) == 1
    assert np.median(np.abs(model.p_value(TEST[TEST_Y < 5]) - p_value)) < 0.05
    model.calibrate(TEST[TEST_Y < 5], names_of(TEST_Y[TEST_Y < 5]))
    assert len(set(model.thresholds_.tolist())) == 1


def test_a_saved_model_learns_the_same(tmp_path):
    model = fitted()
    model.save(tmp_path / "model")
    loaded = OpenSetClassifier.load(tmp_path / "model").add_classes(X[NEW], names_of(Y[NEW]))
    same(loaded, model.add_classes(X[NEW], names_of(Y[NEW])))
    loaded.save(tmp_path / "new")
    same(OpenSetClassifier.load(tmp_path / "new"), model)
    thresholds = model.thresholds_
    np.testing.assert_array_equal(model.set_threshold(acceptance=0.95).thresholds_, thresholds)


def test_explanations_name_added_rows():
    model = fitted()
    model.examples_ = model.examples_.named(np.array([f"text {row}" for row in range(200)]))
    model.add_classes(X[NEW], names_of(Y[NEW]), names=[f"new {row}" for row in range(80)])
    explained = model.explain(X[NEW][:1])
    assert explained.nearest_names[0, 0] == "new 0"
    assert explained.nearest_rows[0, 0] == 200
    assert model.explain(X[:1]).nearest_names[0, 0] == "text 0"


def test_a_second_time_adds_nothing():
    model = fitted().add_classes(X[NEW], names_of(Y[NEW]))
    with pytest.raises(ValueError, match=r"there is nothing to learn: .* the model knows all of its rows"):
        model.add_classes(X[NEW], names_of(Y[NEW]))
    model.add_classes(np.concatenate([X[NEW], X[Y == 7]]), np.append(names_of(Y[NEW]), ["hen"] * 40))
    assert model.report_.n_samples == 320


@pytest.mark.parametrize(
    ("labels", "error", "sentence"),
    [
        (["fox"] * 79 + ["unknown"], ValueError, "'unknown' cannot be a class: 'unknown' is the answer for no class"),
        (["fox"] * 78 + ["Unknown "] * 2, ValueError, "'Unknown ' cannot be a class: 'unknown' is the answer"),
        (["fox"] * 79 + [""], ValueError, "y is missing for sample 79"),
        (["fox"] * 79 + [None], ValueError, "y is missing for sample 79; every sample needs a label"),
        (["fox"] * 79 + ["gnu"], ValueError, "'gnu': one sample each; a new class needs at least 2"),
        ([7] * 80, TypeError, "the classes are names, such as 'ant', but y holds 7"),
        (["fox"] * 79, ValueError, "y has 79 entries but X has 80"),
    ],
)
def test_labels_that_cannot_be_learned_change_nothing(labels, error, sentence):
    model = fitted()
    before = vars(model).copy()
    with pytest.raises(error, match=sentence):
        model.add_classes(X[NEW], labels)
    assert vars(model) == before


def test_numbers_too_large_to_learn_from_change_nothing():
    model, rows = fitted(), X[NEW].copy()
    rows[3, 4] = 1e30
    before = vars(model).copy()
    with pytest.raises(ValueError, match="X holds too large numbers to learn from, in sample 3"):
        model.add_classes(rows, names_of(Y[NEW]))
    assert vars(model) == before


def test_an_estimator_of_ones_own_cannot_learn_later():
    model = fitted(head=LogisticRegression(max_iter=500))
    with pytest.raises(ValueError, match=r"estimator of your own, which cannot learn classes later; fit on all rows"):
        model.add_classes(X[NEW], names_of(Y[NEW]))


def test_numbers_as_classes():
    model = OpenSetClassifier(random_state=0, folds=2).fit(X[OLD], Y[OLD])
    model.add_classes(X[NEW], Y[NEW])
    assert model.classes_.tolist() == list(range(7))
    assert set(model.predict(TEST).tolist()) <= {-1, *range(7)}
    with pytest.raises(ValueError, match="-1 cannot be a class: -1 is the answer for no class"):
        model.add_classes(X[Y == 7], [-1] * 40)


def test_two_classes_and_many_groups():
    model = OpenSetClassifier(random_state=0, folds=2, per_class=True, acceptance=0.9).fit(X[Y < 2], Y[Y < 2])
    model.add_classes(X[Y == 2], Y[Y == 2])
    assert model.calibration_.group.tolist() == [2, 3, 4]
    assert np.mean(model.classify(TEST[TEST_Y < 3]) == TEST_Y[TEST_Y < 3]) > 0.9
