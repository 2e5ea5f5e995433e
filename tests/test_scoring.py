"""Scorers: in scikit-learn's own searches, with every kind of score, and with weights."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_validate
from sklearn.neighbors import KNeighborsClassifier, NearestNeighbors
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

import openauc
from openauc import METRICS, UNKNOWN, Metric, make_scorer


class KnownOnly(ClassifierMixin, BaseEstimator):
    """Classifies by the nearest neighbours among known samples; their distance is the open-set score."""

    def __init__(self, n_neighbors=1):
        self.n_neighbors = n_neighbors

    def fit(self, X, y):
        known = y != UNKNOWN
        self.classes_ = np.unique(y)
        self._classifier = KNeighborsClassifier(self.n_neighbors).fit(X[known], y[known])
        self._distances = NearestNeighbors(n_neighbors=self.n_neighbors).fit(X[known])
        return self

    def predict(self, X):
        return self._classifier.predict(X)

    def open_score(self, X):
        return self._distances.kneighbors(X)[0].mean(axis=1)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2, UNKNOWN], 60)
    centres = np.array([[0, 0], [4, 0], [0, 4], [3, 3]])  # -1 is the last
    return centres[y] + rng.normal(size=(240, 2)), y


@pytest.mark.parametrize("name", METRICS)
def test_a_scorer_is_the_metric_with_its_sign(data, name):
    X, y = data
    estimator = KnownOnly(5).fit(X[::2], y[::2])
    expected = METRICS[name].function(y, estimator.predict(X), estimator.open_score(X))
    found = make_scorer(name)(estimator, X, y)
    assert found == pytest.approx(expected if METRICS[name].better == "higher" else -expected)
    weight = np.random.default_rng(1).random(240)
    weighted = METRICS[name].function(y, estimator.predict(X), estimator.open_score(X), sample_weight=weight)
    assert abs(make_scorer(name)(estimator, X, y, sample_weight=weight)) == pytest.approx(weighted)


def test_in_a_grid_search(data):
    X, y = data
    search = GridSearchCV(
        KnownOnly(),
        {"n_neighbors": [1, 5, 15]},
        scoring=make_scorer(),
        cv=StratifiedKFold(3, shuffle=True, random_state=0),
    ).fit(X, y)
    values = search.cv_results_["mean_test_score"]
    assert np.all((values > 0.5) & (values <= 1.0))
    assert search.best_score_ == values.max()
    several = cross_validate(
        KnownOnly(5), X, y, scoring={name: make_scorer(name) for name in ("auroc", "fpr_at_95tpr")}, cv=3
    )
    assert np.all(several["test_auroc"] > 0.5)
    assert np.all(several["test_fpr_at_95tpr"] <= 0.0), "lower is better, so its sign is changed"


@pytest.mark.parametrize("method", ["decision_function", "predict_proba", "predict_log_proba"])
def test_confidences_are_negated(data, method):
    X, y = data
    known = y != UNKNOWN
    estimator = LogisticRegression().fit(X[known], y[known])
    expected = openauc.openauc_score(y, estimator.predict(X), -getattr(estimator, method)(X).max(axis=1))
    assert make_scorer(open_score=method)(estimator, X, y) == expected


def test_one_column_of_decision_values_is_sure_on_both_sides(data):
    X, y = data
    two = (y == 0) | (y == 1)
    estimator = LinearSVC().fit(X[two], y[two])
    chosen = two | (y == UNKNOWN)
    expected = openauc.openauc_score(
        y[chosen], estimator.predict(X[chosen]), -np.abs(estimator.decision_function(X[chosen]))
    )
    assert make_scorer(open_score="decision_function")(estimator, X[chosen], y[chosen]) == expected


def test_a_function_and_a_metric_of_ones_own(data):
    X, y = data
    estimator = KnownOnly(5).fit(X, y)
    gap = Metric(function=lambda y_true, _, score: float(score[y_true == UNKNOWN].mean()), better="lower")
    scorer = make_scorer(gap, open_score=lambda estimator, X: 2.0 * estimator.open_score(X))
    assert scorer(estimator, X, y) == pytest.approx(-2.0 * estimator.open_score(X)[y == UNKNOWN].mean())


def test_another_unknown_label_and_no_unknown_samples(data):
    X, y = data
    estimator = KnownOnly(5).fit(X, y)
    marked = np.where(y == UNKNOWN, 99, y)
    assert make_scorer(unknown_label=99)(estimator, X, marked) == make_scorer()(estimator, X, y)
    known = y != UNKNOWN
    accuracy = make_scorer("closed_set_accuracy")(estimator, X[known], y[known])
    assert accuracy == pytest.approx(np.mean(estimator.predict(X[known]) == y[known]))
    with pytest.raises(ValueError, match="no unknown sample"):
        make_scorer()(estimator, X[known], y[known])


def test_what_is_refused(data):
    X, y = data
    with pytest.raises(ValueError, match=r"metric is 'opnauc'.*Did you mean 'openauc'"):
        make_scorer("opnauc")
    with pytest.raises(TypeError, match="LogisticRegression has no method open_score; name one with open_score="):
        make_scorer()(LogisticRegression().fit(X, y), X, y)


AUTO = make_scorer(open_score="auto")


def test_auto_takes_the_first_method_there_is(data):
    X, y = data
    known = y != UNKNOWN
    own = KnownOnly(5).fit(X[known], y[known])
    assert AUTO(own, X, y) == make_scorer()(own, X, y)
    for estimator, method in ((LogisticRegression(), "decision_function"), (KNeighborsClassifier(), "predict_proba")):
        estimator.fit(X[known], y[known])
        assert AUTO(estimator, X, y) == make_scorer(open_score=method)(estimator, X, y)
    with pytest.raises(TypeError, match=r"Bare has no method open_score or decision_function or .*; name one with"):
        AUTO(type("Bare", (), {"predict": lambda self, X: X[:, 0]})(), X, y)


@pytest.mark.parametrize("fitted_on", [int, float, bool, "<U1"])
@pytest.mark.parametrize("asked_about", [int, float, "<U7"])
def test_classes_the_estimator_does_not_know_count_as_unknown(data, fitted_on, asked_about):
    """However the labels are written: 1, 1.0 and True are one class, and so is "1" beside names."""
    X, y = data
    seen = (y == 0) | (y == 1)
    reference = LogisticRegression().fit(X[seen], y[seen])
    expected = make_scorer(open_score="decision_function")(reference, X, np.where(seen, y, UNKNOWN))
    estimator = LogisticRegression().fit(X[seen], y[seen].astype(fitted_on))
    other = np.where(seen, y, 7)  # no class of the estimator
    assert AUTO(estimator, X, other.astype(asked_about)) == expected
    if asked_about == "<U7":
        assert AUTO(estimator, X, np.where(seen, y.astype(asked_about), "unknown")) == expected


class Rejecting(KnownOnly):
    """Answers unknown for what lies far; ``classify`` names the class all the same."""

    def predict(self, X):
        return np.where(self.open_score(X) > 0.3, UNKNOWN, super().predict(X))

    def classify(self, X):
        return super().predict(X)


def test_a_rejection_does_not_make_a_class_wrong(data):
    X, y = data
    rejecting, plain = (kind(5).fit(X[::2], y[::2]) for kind in (Rejecting, KnownOnly))
    assert (rejecting.predict(X) == UNKNOWN).any()
    assert AUTO(rejecting, X, y) == AUTO(plain, X, y)


def test_inside_pipelines_and_searches(data):
    X, y = data
    known = y != UNKNOWN
    scaler = StandardScaler().fit(X[known])
    inner = KnownOnly(5).fit(scaler.transform(X[known]), y[known])
    expected = AUTO(inner, scaler.transform(X), y)
    pipe = make_pipeline(StandardScaler(), KnownOnly(5)).fit(X[known], y[known])
    assert AUTO(pipe, X, y) == expected
    assert AUTO(Pipeline([("only", inner)]), scaler.transform(X), y) == expected
    assert AUTO(make_pipeline(StandardScaler(), Pipeline([("only", KnownOnly(5))])).fit(X[known], y[known]), X, y) == (
        expected
    )
    search = GridSearchCV(make_pipeline(StandardScaler(), KnownOnly()), {"knownonly__n_neighbors": [5]}, cv=2)
    assert AUTO(search.fit(X[known], y[known]), X, y) == expected
    assert AUTO(make_pipeline(StandardScaler(), LogisticRegression()).fit(X[known], y[known]), X, y) > 0.5
