"""OpenSetClassifier: labels, weights, thresholds, refusals, and real digits."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import train_test_split

import openauc
from openauc import Costs
from openauc.features import SCORES, FitReport, OpenSetClassifier, Score, make_score
from openauc.features.classifier import estimator, splits
from tests.features.samples import blobs

NAMES = np.array(["ant", "bee", "cat", "dog", "elk", "fox"])


@pytest.fixture(autouse=True, scope="module")
def few_folds():
    """What is asked here does not hang on how often classes are cut anew."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(splits, "FEWEST_FOLDS", 2)
        yield


@pytest.fixture(scope="module")
def data():
    return blobs(4, 30)


@pytest.fixture(scope="module")
def new():
    """Of six classes; the last two are unknown."""
    return blobs(6, 30, seed=1)


@pytest.fixture(scope="module")
def model(data):
    return OpenSetClassifier(random_state=0).fit(*data)


def fitted(data, y=None, groups=None, **options):
    X, given = data
    return OpenSetClassifier(random_state=0, **{"rejector": "average", "folds": 2, **options}).fit(
        X, given if y is None else y, groups=groups
    )


# Answers


def test_known_samples_get_their_class_and_unknown_ones_none(model, new):
    X, y = new
    answer = model.predict(X)
    assert np.mean(answer[y < 4] == y[y < 4]) > 0.85
    assert np.mean(answer[y >= 4] == -1) > 0.85
    assert np.mean(model.classify(X)[y < 4] == y[y < 4]) > 0.95
    assert -1 not in model.classify(X)
    rejected = answer == -1
    np.testing.assert_array_equal(answer[~rejected], model.classify(X)[~rejected])
    np.testing.assert_array_equal(rejected, model.open_score(X) > model.thresholds_[model.classify(X)])
    np.testing.assert_array_equal(model.score_samples(X), -model.open_score(X))


def test_probabilities_are_of_the_classes(model, new):
    probability = model.predict_proba(new[0])
    assert probability.shape == (180, 4)
    np.testing.assert_allclose(probability.sum(1), 1.0)
    np.testing.assert_array_equal(model.classes_[probability.argmax(1)], model.classify(new[0]))


def test_predictions_are_the_triple_that_evaluate_takes(model, new):
    X, y = new
    triple = model.predictions(X, y)
    np.testing.assert_array_equal(triple.y_true, np.where(y < 4, y, -1))
    np.testing.assert_array_equal(triple.y_pred, model.classify(X))
    np.testing.assert_array_equal(triple.open_score, model.open_score(X))
    assert openauc.evaluate(*triple, n_replicates=20).openauc > 0.9
    for same in (y.astype(float), y[:, None], pd.Series(y), y.tolist(), y.astype(object)):
        np.testing.assert_array_equal(model.predictions(X, same).y_true, triple.y_true)
    with pytest.raises(ValueError, match="y_pred has 180 entries but y_true has 3"):
        model.predictions(X, [0, 1, 2])


def test_the_report_says_what_was_tried(model):
    report = model.report_
    assert (report.n_samples, report.n_classes, report.n_outliers, report.width) == (120, 4, 0, 6)
    values = [one.openauc for one in report.tried]
    assert values == sorted(values, reverse=True)
    assert {one.name for one in report.tried} >= {"learned", "average", "max_logit", "knn"}
    assert all(one.interval.low <= one.openauc <= one.interval.high for one in report.tried)
    assert report.expected.name == report.chosen
    text = str(report)
    assert "120 samples of 4 known classes, 6 features; head logistic" in text
    assert f"* in use: {report.chosen}" in text
    assert FitReport.from_dict(json.loads(json.dumps(report.to_dict()))) == report


def test_the_report_of_two_classes_says_why_it_is_short():
    report = OpenSetClassifier(random_state=0).fit(*blobs(2)).report_
    assert (report.tried, report.expected, report.chosen) == ((), None, "distance")
    assert "The classes are too few to hold any out, so nothing was compared." in str(report)
    assert "Two classes are too few to hold one out, so the distance to known samples rejects." in str(report)
    assert OpenSetClassifier(random_state=0, rejector="knn").fit(*blobs(2)).report_.notes == ()


# Labels


@pytest.mark.parametrize("dtype", [np.int64, np.int8, np.uint8, np.int32, object])
def test_integer_labels(data, new, dtype):
    _X, y = data
    model = fitted(data, y.astype(dtype))
    answer = model.predict(new[0])
    assert set(answer.tolist()) == {-1, 0, 1, 2, 3}
    assert answer.dtype.kind == "i"
    np.testing.assert_array_equal(answer, fitted(data).predict(new[0]))


@pytest.mark.parametrize("dtype", [None, object, "category", "string"])
def test_names(data, new, dtype):
    _X, y = data
    names = NAMES[y] if dtype is None else pd.Series(NAMES[y], dtype=dtype)
    if dtype is object:
        names = NAMES[y].astype(object)
    model = fitted(data, names)
    assert model.unknown_label_ == "unknown"
    answer = model.predict(new[0])
    assert set(answer.tolist()) == {"unknown", *NAMES[:4].tolist()}
    plain = fitted(data).predict(new[0])
    np.testing.assert_array_equal(answer, np.append(NAMES[:4], "unknown")[plain])


@pytest.mark.parametrize("label", ["unknown", "a label longer than any class", "?", None])
def test_the_answer_for_unknown_samples_among_names(data, new, label):
    X, y = data
    outliers = np.full((5, 6), -3.0)
    labels = np.concatenate([NAMES[y].astype(object), np.full(5, label, object)])
    model = fitted((np.concatenate([X, outliers]), labels), unknown_label=label)
    assert model.report_.n_outliers == 5
    assert model.classes_.tolist() == NAMES[:4].tolist()
    answer = model.predict(new[0]).tolist()
    assert set(answer) == {label, *NAMES[:4].tolist()}
    known = model.predict(X[:1])
    assert known.tolist() == ["ant"]


@pytest.mark.parametrize("label", [None, -1, 99, 300])
def test_the_answer_for_unknown_samples_among_numbers(data, new, label):
    X, y = data
    model = fitted((X, y.astype(np.uint8)), unknown_label=label)
    answer = model.predict(new[0])
    assert set(answer.tolist()) == {label, 0, 1, 2, 3}
    if label is not None:
        outliers = fitted((np.concatenate([X, X[:5] - 9]), np.append(y, [label] * 5)), unknown_label=label)
        assert outliers.report_.n_outliers == 5


def test_negative_classes_when_nothing_is_labelled_unknown(data):
    X, y = data
    assert fitted((X, y - 1), unknown_label=None).classes_.tolist() == [-1, 0, 1, 2]


# Weights


@pytest.mark.parametrize("head", ["logistic", "mlp"])
def test_a_heavier_class_is_answered_more_often(head):
    X, y = blobs(3, apart=1.0)
    weight = np.where(y == 0, 5.0, 1.0)
    plain, heavy = (
        OpenSetClassifier(random_state=0, head=head, rejector="average", folds=2).fit(X, y, w) for w in (None, weight)
    )
    new, _ = blobs(3, 100, apart=1.0, seed=1)
    assert np.mean(heavy.classify(new) == 0) > np.mean(plain.classify(new) == 0) + 0.05


def test_a_weight_of_zero_is_an_absent_row(data, new):
    X, y = data
    kept = np.random.default_rng(0).random(len(y)) < 0.8
    absent = OpenSetClassifier(random_state=0).fit(X[kept], y[kept], np.ones(kept.sum()))
    weightless = OpenSetClassifier(random_state=0).fit(X, y, kept.astype(float))
    np.testing.assert_array_equal(absent.open_score(new[0]), weightless.open_score(new[0]))
    np.testing.assert_array_equal(absent.thresholds_, weightless.thresholds_)
    gone = OpenSetClassifier(random_state=0).fit(X, y, (y != 3).astype(float))
    assert gone.classes_.tolist() == [0, 1, 2]


def test_weights_reach_the_rejector(data, new):
    X, y = data
    weight = np.where(y == 0, 20.0, 1.0)
    # A head that counts its means the same whatever the weight of a class, so that what moves is the rejector.
    models = [OpenSetClassifier(random_state=0, head="class_mean").fit(X, y, w) for w in (np.ones(len(y)), weight)]
    assert np.abs(models[0].rejector_.weight - models[1].rejector_.weight).max() > 1e-3


def test_class_weights_as_in_scikit_learn(new):
    X, y = blobs(3, apart=1.0)
    rows = np.concatenate([np.arange(6), np.arange(30, 90)])  # few of the first class
    X, y = X[rows], y[rows]
    new, _ = blobs(3, 100, apart=1.0, seed=1)

    def answers(**options):
        fit_weight = options.pop("sample_weight", None)
        model = OpenSetClassifier(random_state=0, rejector="average", folds=2, **options).fit(X, y, fit_weight)
        return model.classify(new)

    plain, balanced = answers(), answers(class_weight="balanced")
    assert np.mean(balanced == 0) > np.mean(plain == 0) + 0.1
    by_hand = {0: 66 / 18, 1: 66 / 90, 2: 66 / 90}
    np.testing.assert_array_equal(answers(class_weight=by_hand), balanced)
    np.testing.assert_array_equal(answers(sample_weight=np.array([by_hand[c] for c in y])), balanced)
    both = answers(class_weight={0: 2.0}, sample_weight=np.where(y == 1, 3.0, 1.0))
    np.testing.assert_array_equal(both, answers(sample_weight=np.array([2.0, 3.0, 1.0])[y]))


def test_class_weights_of_names_beside_outliers(data):
    X, y = data
    labels = np.where(y == 3, "unknown", NAMES[y])
    model = fitted((X, labels), class_weight={"ant": 2.0, "bee": 1.0, "cat": 1.0})
    assert model.report_.n_outliers == 30


# Seeds, processes, words


def test_one_seed_one_model(data, new, model):
    X, y = data
    one = model.open_score(new[0])
    same, other = (OpenSetClassifier(random_state=seed).fit(X, y).open_score(new[0]) for seed in (0, 1))
    np.testing.assert_array_equal(one, same)
    assert (one != other).any()
    generator = OpenSetClassifier(random_state=np.random.RandomState(0)).fit(X, y)
    np.testing.assert_array_equal(generator.open_score(new[0]), one)


def test_processes_change_nothing(data, new):
    model, parallel = (fitted(data, n_jobs=n_jobs) for n_jobs in (None, 2))
    np.testing.assert_array_equal(parallel.thresholds_, model.thresholds_)
    np.testing.assert_array_equal(parallel.open_score(new[0]), model.open_score(new[0]))
    assert parallel.report_ == model.report_


def test_verbose_says_what_is_done(data, capsys):
    fitted(data)
    assert capsys.readouterr().out == ""
    OpenSetClassifier(random_state=0, verbose=True).fit(*data)
    out = capsys.readouterr().out
    for words in ("heads without some classes: ", "heads without some samples: ", "rejector learned: ", "heads "):
        assert words in out


# What changes no answer


def test_the_order_of_new_samples_and_chunks_of_them(model, new, monkeypatch):
    X, _ = new
    order = np.random.default_rng(0).permutation(len(X))
    whole = model.open_score(X), model.predict(X), model.p_value(X), model.predict_proba(X)
    for all_at_once, name in zip(whole, ("open_score", "predict", "p_value", "predict_proba"), strict=True):
        np.testing.assert_allclose(getattr(model, name)(X[order]), all_at_once[order], rtol=1e-9)
    monkeypatch.setattr(estimator, "CHUNK", 7)
    for all_at_once, name in zip(whole, ("open_score", "predict", "p_value", "predict_proba"), strict=True):
        np.testing.assert_allclose(getattr(model, name)(X), all_at_once, rtol=1e-9)
    np.testing.assert_allclose(model.open_score(X[:1]), whole[0][:1], rtol=1e-9)


@pytest.mark.parametrize("factor", [1000.0, 1e-3])
def test_the_unit_of_the_features_changes_no_decision(data, new, model, factor):
    X, y = data
    scaled = OpenSetClassifier(random_state=0).fit(factor * X, y)
    np.testing.assert_array_equal(scaled.predict(factor * new[0]), model.predict(new[0]))


@pytest.mark.parametrize("factor", [1e25, 1e-25])
def test_nor_do_features_whose_squares_leave_float32(data, new, factor):
    X, y = data
    model = fitted(((factor * X).astype(np.float32), y))
    assert model.report_.accuracy > 0.95
    assert np.mean(model.predict(factor * new[0]) == fitted(data).predict(new[0])) > 0.98


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int64])
def test_other_numbers(data, new, dtype):
    X, y = data
    X, X_new = (10 * X).astype(dtype), (10 * new[0]).astype(dtype)
    model = fitted((X, y))
    assert model.dtype_ == np.float32
    assert np.mean(model.predict(X_new) == fitted((X.astype(float), y)).predict(X_new.astype(float))) > 0.97
    np.testing.assert_array_equal(model.predict(X_new), model.predict(X_new.tolist()))


# Heads and rejectors of one's own


def test_a_classifier_of_scikit_learn_as_head(data, new):
    for head in (LogisticRegression(), RandomForestClassifier(10, random_state=0)):
        model = fitted(data, head=head)
        assert model.report_.head == type(head).__name__
        assert np.mean(model.predict(new[0]) == np.where(new[1] < 4, new[1], -1)) > 0.8


def test_a_fitted_classifier_serves_as_it_is(data, new):
    X, y = data
    names = NAMES[y]
    head = LogisticRegression(C=0.01).fit(X, names)
    coefficients = head.coef_.copy()
    model = fitted((X, names), head=head)
    np.testing.assert_array_equal(head.coef_, coefficients)
    np.testing.assert_allclose(model.predict_proba(new[0]), head.predict_proba(new[0]))
    with pytest.raises(ValueError, match=r"the head was fitted on the classes 'ant', 'bee', 'cat', 'dog', but y holds"):
        fitted((X[y < 3], names[y < 3]), head=head)


class Foreign(Score):
    """Distance from a point."""

    def __call__(self, features, logits):
        return np.abs(features).sum(1)


def margin_of_mine(features, logits):
    ordered = np.sort(logits, 1)
    return ordered[:, -2] - ordered[:, -1]


@pytest.mark.parametrize("name", ["max_logit", "norm", "knn_50"])
def test_any_score_rejects(data, new, name):
    model = fitted(data, rejector=name)
    assert model.report_.chosen == name
    raw = model.head_with_scores_(new[0])[0][:, 0]
    np.testing.assert_array_equal(np.argsort(raw), np.argsort(model.open_score(new[0])))


@pytest.mark.parametrize("rejector", [Foreign, Foreign(), margin_of_mine, make_score("knn"), SCORES["vim"]])
def test_so_does_a_score_or_function_of_ones_own(data, new, rejector):
    model = fitted(data, rejector=rejector)
    assert model.report_.chosen == model.report_.expected.name
    assert np.isfinite(model.open_score(new[0])).all()


# Thresholds


def test_a_number_is_the_threshold(data, new):
    model = fitted(data, threshold=0.5)
    np.testing.assert_array_equal(model.predict(new[0]) == -1, model.open_score(new[0]) > 0.5)
    assert model.guarantee_ == "none; the threshold was given"
    assert -1 not in fitted(data, threshold=float("inf")).predict(new[0])
    assert set(fitted(data, threshold=-float("inf")).predict(new[0])) == {-1}


def test_youden_is_the_best_sum_on_held_out_classes(data, new):
    model = fitted(data, threshold="youden")
    assert model.guarantee_ == "none; best Youden index on held-out classes"
    score, unknown = model.held_out_scores_, model.held_out_kinds_ < 0
    value = np.mean(score[~unknown] <= model.thresholds_[0]) + np.mean(score[unknown] > model.thresholds_[0])
    best = max(np.mean(score[~unknown] <= t) + np.mean(score[unknown] > t) for t in score)
    assert value == pytest.approx(best)


def test_costs_move_the_threshold(data):
    cautious = fitted(data, threshold="cost", costs=Costs(unknown_accepted=20.0))
    assert cautious.guarantee_ == "none; best cost on held-out classes"
    daring = fitted(data, threshold="cost", costs={"known_rejected": 20.0})
    assert cautious.thresholds_[0] < daring.thresholds_[0]


def test_thresholds_can_be_chosen_anew(data, new):
    model = fitted(data)
    first = model.thresholds_.copy()
    assert model.set_threshold("youden") is model
    assert model.get_params()["threshold"] == "youden"
    assert (model.thresholds_ == fitted(data, threshold="youden").thresholds_).all()
    model.set_threshold(acceptance=0.9)
    assert model.threshold == "acceptance"
    assert (model.thresholds_ < first).all()
    model.set_threshold(per_class=True)
    assert len(np.unique(model.thresholds_)) > 1
    model.set_threshold(acceptance=0.95, per_class=False)
    np.testing.assert_array_equal(model.thresholds_, first)
    for bad, words in (
        ({"threshold": "yuden"}, "Did you mean 'youden'"),
        ({"acceptance": 95}, "not a percentage"),
    ):
        with pytest.raises(ValueError, match=words):
            model.set_threshold(**bad)
    np.testing.assert_array_equal(model.thresholds_, first)


# Refusals


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"head": "logistik"}, r"head is 'logistik'; expected one of .* Did you mean 'logistic'\?"),
        (
            {"head": LinearRegression()},
            r"head is LinearRegression\(\); .* or a classifier with decision_function or pr",
        ),
        ({"head": 3}, r"head is 3; expected 'logistic', 'class_mean', 'mlp', or a classifier"),
        ({"rejector": "lerned"}, r"rejector is 'lerned'; .* Did you mean 'learned'\?"),
        ({"rejector": "maxlogit"}, r"Did you mean 'max_logit'\?"),
        ({"rejector": 3}, "rejector is 3; expected a name, a Score or a function"),
        ({"threshold": "aceptance"}, r"threshold is 'aceptance'; .* Did you mean 'acceptance'\?"),
        ({"threshold": float("nan")}, "threshold is nan; expected a number, or one of 'acceptance', 'youden', 'cost'"),
        ({"threshold": None}, "threshold is None; expected a number, or one of"),
        ({"calibration": "crosss"}, r"calibration is 'crosss'; .* Did you mean 'cross'\?"),
        ({"acceptance": 95}, r"acceptance is 95; expected a fraction in \(0, 1\], not a percentage"),
        ({"acceptance": 0.0}, "acceptance is 0.0; expected a fraction"),
        ({"max_ofpr": 5}, "max_ofpr is 5; expected a fraction"),
        ({"folds": 1}, "folds is 1; expected at least 2"),
        ({"seen_by_encoder": "yes"}, "seen_by_encoder is 'yes'; expected True, False or 'auto'"),
        ({"unknown_label": "unknown"}, "unknown_label is 'unknown' but y holds numbers; pass an integer"),
    ],
)
def test_parameters_that_cannot_be(data, options, words):
    with pytest.raises((ValueError, TypeError), match=words):
        OpenSetClassifier(**options).fit(*data)


def test_a_rejector_with_the_name_of_one_of_ours(data):
    def knn(features, logits):
        return logits[:, 0]

    def outliers(features, logits):
        return logits[:, 0]

    for rejector in (knn, outliers):
        name = rejector.__name__
        with pytest.raises(ValueError, match=f"the rejector has the name of one of ours, '{name}'; rename it"):
            fitted(data, rejector=rejector)


def none_at(y, row):
    labels = y.astype(object)
    labels[row] = None
    return labels


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda X, y: (X, np.zeros(len(y), int)), r"y holds 1 known class; a classifier needs at least 2 classes"),
        (lambda X, y: (X, np.where(y == 0, 0, -1)), r"y holds 1 known class; .*rows labelled -1, .* are outliers"),
        (lambda X, y: (X, np.full(len(y), -1)), "y holds 0 known classes"),
        (
            lambda X, y: (X[:31], y[:31]),
            r"the class 1 has 1 sample; at least 2 of each .* drop the class, or label it as",
        ),
        (lambda X, y: (X[:31], NAMES[y[:31]]), "the class 'bee' has 1 sample"),
        (lambda X, y: (pd.DataFrame(X, columns=list("aabcde")), y), "X has two columns named 'a'; rename or drop one"),
        (lambda X, y: (sparse.csr_matrix(X), y), r"Sparse data was passed.*toarray\(\)"),
        (lambda X, y: (np.where(np.arange(6) == 2, np.nan, X), y), "Input X contains NaN"),
        (lambda X, y: (np.where(np.arange(6) == 2, np.inf, X), y), "Input X contains infinity"),
        (lambda X, y: (X, y[:-1]), r"inconsistent numbers of samples: \[120, 119\]"),
        (lambda X, y: (X[:0], y[:0]), r"0 sample\(s\)"),
        (lambda X, y: (X[:, :0], y), r"0 feature\(s\)"),
        (lambda X, y: (X[0], y), "Expected 2D array, got 1D array"),
        (lambda X, y: (X, X[:, 0]), "Unknown label type: continuous"),
        (lambda X, y: (X, none_at(y, 3)), "y is missing for sample 3; every sample needs a label"),
        (lambda X, y: (X, none_at(NAMES[y], 3)), "y is missing for sample 3; every sample needs a label"),
        (lambda X, y: (X, np.where(y == 3, np.nan, y)), "Input y contains NaN"),
        (lambda X, y: (X, None), "requires y to be passed"),
    ],
)
def test_data_that_cannot_be_fitted(data, change, words):
    with pytest.raises((ValueError, TypeError), match=words):
        OpenSetClassifier().fit(*change(*data))


def test_labels_of_two_kinds(data):
    X, y = data
    with pytest.raises(TypeError, match="y holds names, but unknown_label is 99; pass a name, or None"):
        fitted((X, NAMES[y]), unknown_label=99)
    with pytest.raises(ValueError, match="y is missing for sample 3"):
        fitted((X, none_at(NAMES[y], 3)), unknown_label="odd")


def test_a_split_needs_three_of_each_class(data):
    X, y = data
    with pytest.raises(ValueError, match=r"the class 3 has 2 samples; at least 3 .*calibration='split'"):
        fitted((X[:92], y[:92]), calibration="split")
    model = fitted((X[:93], y[:93]), calibration="split")
    assert model.classes_.tolist() == [0, 1, 2, 3]
    assert model.calibration_kind_ == "split"


def test_rows_of_zeros_are_told(data):
    X, y = data
    X = np.where(np.isin(np.arange(len(y)), [4, 7])[:, None], 0.0, X)
    with pytest.warns(UserWarning, match=r"2 rows of X are all zero, the first is row 4; .* Drop them, or encode them"):
        fitted((X, y))


def test_new_data_that_cannot_be(model, data):
    X, _y = data
    with pytest.raises(ValueError, match="X has 5 features, but OpenSetClassifier is expecting 6 features"):
        model.predict(X[:, :5])
    with pytest.raises(ValueError, match="Input X contains NaN"):
        model.open_score(np.full((2, 6), np.nan))
    with pytest.raises(ValueError, match=r"0 sample\(s\)"):
        model.predict(X[:0])
    with pytest.raises(NotFittedError, match="not fitted yet"):
        OpenSetClassifier().predict(X)
    with pytest.raises(NotFittedError, match="not fitted yet"):
        OpenSetClassifier().set_threshold(0.0)
    with pytest.raises(NotFittedError, match="not fitted yet"):
        OpenSetClassifier().calibrate(X)


def test_calibration_that_cannot_be(model, data):
    X, y = data
    with pytest.raises(ValueError, match="there is no sample of a known class to calibrate with; pass some"):
        model.calibrate(X, np.full(len(y), 77))
    with pytest.raises(ValueError, match="y has 3 entries but X has 120; pass one"):
        model.calibrate(X, y[:3])
    assert model.calibration_kind_ == "cross", "and nothing has changed"


@pytest.mark.parametrize("threshold", ["youden", "cost"])
def test_two_classes_hold_none_out(threshold):
    model = OpenSetClassifier(random_state=0).fit(*blobs(2))
    with pytest.raises(ValueError, match="needs held-out classes"):
        model.set_threshold(threshold)
    assert model.threshold == "acceptance", "it stays as it was"
    with pytest.raises(
        ValueError, match=rf"threshold='{threshold}' needs held-out classes, and .* 2 classes .* use threshold='acc"
    ):
        OpenSetClassifier(threshold=threshold).fit(*blobs(2))


# Little data


@pytest.mark.filterwarnings("ignore:.*known samples are too few")
@pytest.mark.parametrize("n_classes", [2, 3, 10])
@pytest.mark.parametrize("head", ["logistic", "class_mean"])
def test_two_samples_of_each_class_are_enough_even_of_noise(n_classes, head):
    """Fewer samples than folds, and folds in which nothing is classified correctly."""
    for seed in range(2):
        rng = np.random.default_rng(seed)
        X, y = rng.normal(size=(2 * n_classes, 3)), np.repeat(np.arange(n_classes), 2)
        model = OpenSetClassifier(random_state=seed, head=head).fit(X, y)
        assert np.isfinite(model.open_score(X)).all()


def test_more_folds_than_samples(data, new):
    X, y = data
    model = fitted((X[::5], y[::5]), folds=50)
    assert model.guarantee_.startswith("about 95 % of new rows of known classes are accepted")
    assert "from 24 rows" in model.guarantee_details_
    assert np.mean(model.classify(new[0])[new[1] < 4] == new[1][new[1] < 4]) > 0.9


@pytest.mark.filterwarnings("ignore:.*rows of X are all zero")
@pytest.mark.parametrize("X", [np.zeros((60, 3)), np.ones((60, 3)), np.eye(3)[np.arange(60) % 3]])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_rows_that_are_all_copies_cannot_be_checked(X, n_classes):
    X, y = X[np.arange(60) % 3 < n_classes], (np.arange(60) % 3)[np.arange(60) % 3 < n_classes]
    with pytest.raises(ValueError, match="all rows of each class are copies of one row, or one group; at least two"):
        OpenSetClassifier(random_state=0).fit(X, y)


@pytest.mark.filterwarnings("ignore:Line search of Newton", "ignore:.*known samples are too few")
@pytest.mark.parametrize("head", ["logistic", "class_mean", "mlp"])
def test_classes_of_two_rows_each_given_again_and_again(head):
    X, y = np.repeat(np.eye(6), 10, axis=0), np.repeat([0, 1, 2], 20)
    model = OpenSetClassifier(random_state=0, head=head, seen_by_encoder=False).fit(X, y)
    assert np.isfinite(model.open_score(X)).all()
    assert np.isfinite(model.p_value(X)).all()


def test_outliers_beside_max_ofpr(data):
    """Outliers that look as known as can be do not empty the part of the curve that is aimed at."""
    X, y = data
    copies = np.repeat(X, 3, 0) + 0.01
    model = OpenSetClassifier(random_state=0, max_ofpr=0.02).fit(
        np.concatenate([X, copies]), np.append(y, np.full(len(copies), -1))
    )
    assert model.report_.max_ofpr == 0.02
    assert "partial OpenAUC (OFPR <= 0.02)" in str(model.report_)


# What could differ


def differs(X, y, **options):
    """Sentences about rows to come that differ from these."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = OpenSetClassifier(random_state=0, folds=2, seen_by_encoder=False, **options).fit(X, y)
    said = [str(one.message) for one in caught]
    assert all(sentence in model.report_.notes for sentence in said)
    assert all(one.filename == __file__ for one in caught)
    return said


@pytest.mark.parametrize("rejector", ["learned", "knn", "max_logit"])
def test_clean_and_balanced_data_cause_no_warning(rejector):
    assert differs(*blobs(4, 60, width=32), rejector=rejector) == []


def test_that_classes_may_come_equally_often_is_told():
    """A large tight class sets the threshold, and small wide ones are rejected more often."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], [400, 20, 20])
    X = 6 * np.eye(3, 32)[y] + np.where(y == 0, 0.3, 1.5)[:, None] * rng.normal(size=(440, 32))
    said = differs(X, y, rejector="class_mean")
    assert len(said) == 1
    assert said[0].startswith("If all classes come equally often, 0.")
    assert "of the known rows are accepted instead of 0.9" in said[0]
    assert said[0].endswith("Then calibrate(X, y) with such rows.")


def test_that_many_rows_have_near_neighbours_is_told():
    """Paraphrases: a third of the rows is like another one, and not its copy."""
    rng = np.random.default_rng(0)
    X, y = blobs(4, 90, width=32)
    like = np.arange(360) % 3 == 0
    X[like] = X[np.flatnonzero(like) + 1] + 0.4 * rng.normal(size=(120, 32))
    said = differs(X, y, rejector="knn", acceptance=0.6)
    assert len(said) == 1
    assert said[0].startswith("If rows come without the near neighbours that many of these have, 0.")
    assert said[0].endswith("Pass groups= (rows that belong together share a group), or calibrate(X, y) with new rows.")


def test_where_every_class_is_one_group_of_similar_rows_nothing_is_said_of_them():
    """Two given groups a class, whose rows are similar in pairs."""
    X, y = blobs(4, 24, width=32, apart=5.0)
    half = np.arange(96) % 24 >= 12
    X[half] = X[~half] + 0.5 * np.random.default_rng(0).normal(size=(48, 32))
    model = fitted((X, y), rejector="knn", seen_by_encoder=False, acceptance=0.6, groups=2 * y + half)
    assert len(model.calibration_scores_) == 8
    assert not any("near neighbours" in note for note in model.report_.notes)


@pytest.mark.filterwarnings("ignore:If all classes come equally often")
def test_small_classes_are_named():
    X, y = blobs(4, 60, width=32)
    rows = np.concatenate([np.arange(120), np.arange(120, 123), np.arange(180, 190)])
    report = fitted((X[rows], NAMES[y[rows]]), seen_by_encoder=False).report_
    assert report.small_classes == ("cat",)
    four_times = np.concatenate([np.arange(180), np.repeat(np.arange(180, 189), 4)])
    assert fitted((X[four_times], y[four_times]), seen_by_encoder=False).report_.small_classes == ("3",)


# Few rows, many features


@pytest.mark.parametrize(("width", "there"), [(64, True), (600, False)])
def test_covariances_are_left_out_while_rows_are_few(width, there):
    model = OpenSetClassifier(random_state=0, folds=2, seen_by_encoder=False).fit(*blobs(4, 30, width=width))
    tried = {one.name for one in model.report_.tried}
    for name in ("relative_mahalanobis_pp", "mahalanobis_pp"):
        assert (name in tried) == there
    assert ("relative_mahalanobis_pp" in model.rejector_.names) == there
    named = fitted(blobs(4, 30, width=width), rejector="mahalanobis_pp")
    assert named.report_.chosen == "mahalanobis_pp", "by name it is always there"


# What is not a number


def test_a_score_that_is_not_a_number_is_unknown(data, new):
    def broken(features, logits):
        return np.where(features[:, 0] > 1e3, np.nan, -logits.max(1))

    model = fitted(data, rejector=broken)
    X = new[0][:4].copy()
    X[1, 0] = 1e9
    assert np.isnan(model.open_score(X)).tolist() == [False, True, False, False]
    assert model.predict(X)[1] == -1
    assert model.p_value(X)[1] == 0.0
    assert (model.p_value(X)[[0, 2, 3]] > 0).all()


@pytest.mark.parametrize("label", [pd.NA, None, float("nan"), pd.NaT])
def test_labels_that_are_missing(data, label):
    X, y = data
    for labels in (y.astype(object), NAMES[y].astype(object)):
        labels[7] = label
        with pytest.raises(ValueError, match="y is missing for sample 7; every sample needs a label"):
            OpenSetClassifier().fit(X, labels)
    for dtype in ("Int64", "string"):
        labels = pd.Series(y if dtype == "Int64" else NAMES[y], dtype=dtype)
        labels[7] = pd.NA
        with pytest.raises(ValueError, match="y is missing for sample 7; every sample needs a label"):
            OpenSetClassifier().fit(X, labels)


def test_costs_that_cannot_be_leave_everything_as_it_was(data, new):
    model = fitted(data)
    before = model.get_params(), model.thresholds_.copy(), model.guarantee_, model.predict(new[0])
    for bad in ({"nope": 1}, {"unknown_accepted": -1.0}):
        with pytest.raises((ValueError, TypeError)):
            model.set_threshold("cost", costs=bad)
        assert model.get_params() == before[0]
        np.testing.assert_array_equal(model.thresholds_, before[1])
        assert model.guarantee_ == before[2]
        np.testing.assert_array_equal(model.predict(new[0]), before[3])
    with pytest.raises(ValueError, match="a key of costs is 'nope'"):
        fitted(data, threshold="cost", costs={"nope": 1})


# Real data


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    known = y < 6
    X_train, X_known, y_train, y_known = train_test_split(X[known], y[known], test_size=0.4, random_state=0)
    return X_train, y_train, np.concatenate([X_known, X[~known]]), np.append(y_known, y[~known])


def test_digits(digits):
    X, y, X_test, y_test = digits
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        learned = OpenSetClassifier(random_state=0).fit(X, y)
    plain = OpenSetClassifier(random_state=0, rejector="max_logit").fit(X, y)
    values = [openauc.openauc_score(*model.predictions(X_test, y_test)) for model in (learned, plain)]
    assert learned.report_.chosen == "learned"
    assert values[0] > values[1]
    assert values[0] > 0.95
    answer, known = learned.predict(X_test), y_test < 6
    assert np.mean(answer[known] != -1) == pytest.approx(0.95, abs=0.03)
    assert np.mean(answer[~known] == -1) > 0.7
    assert np.mean(answer[known] == y_test[known]) > 0.9
    expected = learned.report_.expected
    assert expected.interval.low - 0.05 < values[0] < expected.interval.high + 0.05


def test_small_classes_are_named_in_the_report():
    X, y = blobs(4, 20)
    kept = (y > 0) | (np.cumsum(y == 0) <= 5)
    model = OpenSetClassifier(random_state=0, rejector="knn").fit(X[kept], y[kept])
    assert model.report_.small_classes == ("0",)
    assert "Too few rows for a guarantee of their own: '0'." in str(model.report_)
