"""Heads: their logits are those of scikit-learn, or of the formula, as arrays."""

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, RidgeClassifier, SGDClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC

from openauc.features.heads import HEADS, ClassMeanHead, EstimatorHead, Head, LogisticHead, MLPHead, is_fitted
from tests.features.samples import blobs


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_head_gives_a_float64_logit_per_class_and_is_right(name, n_classes, dtype):
    X, y = blobs(n_classes)
    X = X.astype(dtype)
    head = HEADS[name](HEADS[name].grid[0])
    assert head.fit(X, y) is head
    logits = head.logits(X)
    assert (logits.shape, logits.dtype) == ((len(y), n_classes), np.float64)
    assert np.mean(logits.argmax(1) == y) > 0.95
    kept = head.logits(X[3:4])
    np.testing.assert_allclose(kept, logits[3:4], rtol=1e-4)


@pytest.mark.parametrize("name", HEADS)
def test_the_strength_says_how_sure_a_head_may_be(name):
    X, y = blobs(apart=2.0)
    strengths = sorted(HEADS[name].grid)
    sure = [softmax(HEADS[name](s).fit(X, y).logits(X), 1).max(1).mean() for s in strengths]
    assert sure == sorted(sure)
    assert sure[0] < sure[-1]


@pytest.mark.parametrize("n_classes", [2, 3])
def test_logistic_is_scikit_learns(n_classes):
    X, y = blobs(n_classes, apart=1.0)
    weight = np.random.default_rng(0).random(len(y))
    expected = LogisticRegression(C=0.1, max_iter=200).fit(X, y, weight).predict_proba(X)
    np.testing.assert_allclose(softmax(LogisticHead(0.1).fit(X, y, weight).logits(X), 1), expected, atol=1e-9)


@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")
@pytest.mark.parametrize("n_classes", [2, 3])
def test_mlp_is_scikit_learns(n_classes):
    X, y = blobs(n_classes, apart=1.0)
    expected = MLPClassifier((128,), alpha=0.1, max_iter=60, random_state=0).fit(X, y).predict_proba(X)
    np.testing.assert_allclose(softmax(MLPHead(10.0).fit(X, y).logits(X), 1), expected, atol=1e-9)


def test_class_mean_is_the_formula():
    X, y = blobs(3, apart=1.0)
    weight = np.random.default_rng(0).random(len(y))
    head = ClassMeanHead(3.0).fit(X, y, weight)
    means = np.stack([np.average(X[y == c], axis=0, weights=weight[y == c]) for c in range(3)])
    variance = np.average(((X - means[y]) ** 2).mean(1), weights=weight)
    squares = ((X[:, None] - means) ** 2).sum(2)
    np.testing.assert_allclose(head.logits(X), -3.0 * squares / (2 * variance))


def test_class_mean_of_samples_that_are_all_alike():
    """No variance: the nearest mean still answers, with finite logits."""
    X, y = np.eye(3)[np.arange(6) % 3], np.arange(6) % 3
    logits = ClassMeanHead().fit(X, y).logits(X)
    assert np.isfinite(logits).all()
    np.testing.assert_array_equal(logits.argmax(1), y)


ESTIMATORS = [
    LogisticRegression(),
    LinearSVC(),
    RidgeClassifier(),
    LinearDiscriminantAnalysis(),
    SVC(),
    GaussianNB(),
    KNeighborsClassifier(3),
    RandomForestClassifier(10, random_state=0),
    make_pipeline(StandardScaler(), LogisticRegression()),
]


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("n_classes", [2, 4])
def test_any_classifier_is_a_head(estimator, n_classes):
    X, y = blobs(n_classes)
    head = EstimatorHead(estimator).fit(X, y)
    logits = head.logits(X)
    assert (logits.shape, logits.dtype) == ((len(y), n_classes), np.float64)
    assert np.isfinite(logits).all()
    np.testing.assert_array_equal(logits.argmax(1), head.fitted.predict(X))
    assert not is_fitted(estimator), "a clone was fitted"


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("n_classes", [2, 3, 4])
def test_linear_heads_can_be_written_as_arrays_and_others_say_that_they_cannot(estimator, n_classes):
    X, y = blobs(n_classes)
    head = EstimatorHead(estimator).fit(X, y)
    if isinstance(estimator, LogisticRegression | LinearSVC | RidgeClassifier | LinearDiscriminantAnalysis):
        np.testing.assert_allclose(head.as_linear().logits(X), head.logits(X), rtol=1e-6, atol=1e-9)
    else:
        with pytest.raises(
            ValueError, match=rf"the type {type(estimator).__name__} cannot be written as arrays; use h"
        ):
            head.as_linear()


@pytest.mark.parametrize("n_classes", [3, 4])
def test_a_linear_support_vector_machine_has_weights_of_pairs(n_classes):
    """Its coef_ looks like that of a linear classifier, the more so with three classes, which make three pairs."""
    X, y = blobs(n_classes)
    with pytest.raises(ValueError, match="SVC cannot be written as arrays"):
        EstimatorHead(SVC(kernel="linear")).fit(X, y).as_linear()


def test_a_fitted_classifier_serves_as_it_is():
    X, y = blobs(3)
    names = np.array(["bee", "ant", "cat"])
    fitted = LogisticRegression().fit(X, names[y])
    head = EstimatorHead(fitted).adopt(np.array(["ant", "bee", "cat"]))
    assert head.fitted is fitted
    np.testing.assert_array_equal(head.logits(X), fitted.decision_function(X))
    shuffled = EstimatorHead(fitted).adopt(names)
    np.testing.assert_array_equal(shuffled.logits(X), fitted.decision_function(X)[:, [1, 0, 2]])
    np.testing.assert_allclose(shuffled.as_linear().logits(X), shuffled.logits(X))


def test_what_is_refused():
    X, y = blobs(4)
    fitted = LogisticRegression().fit(X, y)
    with pytest.raises(ValueError, match=r"fitted on the classes 0, 1, 2, 3, but y holds 0, 1; fit it on the same"):
        EstimatorHead(fitted).adopt(np.array([0, 1]))
    with pytest.raises(ValueError, match=r"0, 1, 2, 3, 4, \.\.\. \(7 of them\)"):
        EstimatorHead(fitted).adopt(np.arange(7))
    with pytest.raises(
        TypeError, match=r"KNeighborsClassifier\.fit takes no sample_weight; leave sample_weight and cla"
    ):
        EstimatorHead(KNeighborsClassifier()).fit(X, y, np.ones(len(y)))
    with pytest.raises(ValueError, match=r"SVC gives 6 decision values for 4 classes; .*decision_function_shape='ovr'"):
        EstimatorHead(SVC(decision_function_shape="ovo")).fit(X, y).logits(X)
    with pytest.raises(NotImplementedError, match=r"Head has no fit\(X, y, sample_weight\); define it"):
        Head().fit(X, y)
    with pytest.raises(NotImplementedError, match=r"Head has no logits\(X\); define it"):
        Head().logits(X)


def test_weights_reach_the_estimator():
    X, y = blobs(3, apart=1.0)
    weight = np.where(y == 0, 100.0, 1.0)
    plain, heavy = (EstimatorHead(SGDClassifier(random_state=0)).fit(X, y, w) for w in (None, weight))
    assert np.mean(heavy.logits(X).argmax(1) == 0) > np.mean(plain.logits(X).argmax(1) == 0)
