"""Heads: their logits are those of scikit-learn, or of the formula, as arrays."""

import numpy as np
import pytest
from scipy.special import log_softmax, softmax
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, RidgeClassifier, SGDClassifier
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    PolynomialFeatures,
    RobustScaler,
    StandardScaler,
)
from sklearn.svm import SVC, LinearSVC

from openauc.features import OpenSetClassifier
from openauc.features.classifier import heads
from openauc.features.classifier.heads import (
    HEADS,
    ClassMeanHead,
    EstimatorHead,
    Head,
    LogisticHead,
    MLPHead,
    is_fitted,
)
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


@pytest.fixture
def batches_only(monkeypatch):
    monkeypatch.setattr(heads, "MOST_LOGITS", 0)


def overlapping(n_classes, n, width, seed):
    """Samples of wide and narrow, correlated columns around a common centre, of mean length 10."""
    centres, mix = (np.random.default_rng(i).normal(size=(rows, width)) for i, rows in ((0, n_classes), (1, width)))
    rng = np.random.default_rng([2, seed])
    y = rng.integers(0, n_classes, n)
    X = (0.8 * centres[y] + rng.normal(size=(n, width)) + 2) / np.arange(1, width + 1) ** 0.5
    X = X @ np.linalg.qr(mix)[0]
    return (10 * X / np.linalg.norm(X, axis=1).mean()).astype(np.float32), y


def objective(head, X, y, weight, strength):
    losses = -log_softmax(head.logits(X), axis=1)[np.arange(len(y)), y]
    squares = (head.weight.astype(float) ** 2).sum() * (2 if len(head.bias) == 2 else 1)  # w/2 and -w/2 for w
    return strength * (weight * losses).sum() + squares / 2


@pytest.mark.parametrize("strength", [0.1, 1.0])
@pytest.mark.parametrize(("n_classes", "width"), [(2, 1), (2, 24), (20, 24)])
@pytest.mark.parametrize("weighted", [False, True])
def test_mini_batches_come_close_to_scikit_learn(monkeypatch, n_classes, width, strength, weighted):
    X, y = overlapping(n_classes, 8000, width, 0)
    weight = 2 * np.random.default_rng(0).random(len(y)) + 3.0 * (y == 1) if weighted else None
    exact = LogisticHead(strength).fit(X, y, weight)
    monkeypatch.setattr(heads, "MOST_LOGITS", len(y) * n_classes - 1)
    monkeypatch.setattr(heads, "BATCH", 128)  # as many steps as many more samples would make
    close = LogisticHead(strength).fit(X, y, weight)
    assert (close.weight.shape, close.weight.dtype, close.bias.dtype) == ((n_classes, width), np.float32, np.float32)
    ones = np.ones(len(y)) if weight is None else weight
    least = objective(exact, X, y, ones, strength)
    assert objective(close, X, y, ones, strength) < 1.02 * least
    new, truth = overlapping(n_classes, 8000, width, 1)
    found, expected = close.logits(new), exact.logits(new)
    assert abs(np.mean(found.argmax(1) == truth) - np.mean(expected.argmax(1) == truth)) < 0.005
    assert found.std() == pytest.approx(expected.std(), rel=0.1)


class FewRows:
    """A memory map of which no more rows than those of a batch can be had at a time, and nothing else."""

    def __init__(self, path):
        self.mapped = np.load(path, mmap_mode="r")
        self.shape, self.dtype = self.mapped.shape, self.mapped.dtype

    def __getitem__(self, rows):
        assert len(rows) <= heads.BATCH
        return self.mapped[rows]


def test_mini_batches_read_a_memory_map_in_parts(tmp_path, batches_only, monkeypatch):
    X, y = overlapping(5, 5000, 16, 0)
    np.save(tmp_path / "X.npy", X)
    monkeypatch.setattr(heads, "COVARIANCE_ROWS", 500)
    head = LogisticHead().fit(FewRows(tmp_path / "X.npy"), y)
    assert type(head.weight) is type(head.bias) is np.ndarray
    again = LogisticHead().fit(X, y)
    np.testing.assert_array_equal(head.weight, again.weight, "the order of rows is fixed")
    np.testing.assert_array_equal(head.bias, again.bias)


def test_mini_batches_of_rows_that_are_all_alike(batches_only):
    head = LogisticHead().fit(np.ones((30, 3)), np.arange(30) // 20)
    np.testing.assert_allclose(softmax(head.logits(np.ones((1, 3))), 1), [[2 / 3, 1 / 3]], atol=1e-6)


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
    if isinstance(estimator, LogisticRegression | LinearSVC | RidgeClassifier | LinearDiscriminantAnalysis | Pipeline):
        np.testing.assert_allclose(head.as_linear().logits(X), head.logits(X), rtol=1e-6, atol=1e-9)
    else:
        with pytest.raises(
            ValueError, match=rf"a {type(estimator).__name__} cannot be written as arrays\. joblib\.dump\("
        ):
            head.as_linear()


LINEAR = LogisticRegression(max_iter=1000)
STEPS = [
    (MinMaxScaler(), MaxAbsScaler(), LINEAR),
    (StandardScaler(with_mean=False), PCA(4, whiten=True, random_state=0), LINEAR),
    (RobustScaler(), "passthrough", make_pipeline(PCA(5), StandardScaler(with_std=False), LINEAR)),
]


@pytest.mark.parametrize("steps", STEPS, ids=["ranges", "whitened", "nested"])
@pytest.mark.parametrize("n_classes", [2, 4])
def test_scalers_become_a_part_of_the_weights(steps, n_classes):
    X, y = blobs(n_classes)
    X = 10.0 ** np.arange(-2, 4) * (X + 50.0)
    head = EstimatorHead(make_pipeline(*steps)).fit(X, y)
    assert np.mean(head.logits(X).argmax(1) == y) > 0.9
    np.testing.assert_allclose(head.as_linear().logits(X), head.logits(X), rtol=1e-6, atol=1e-6)
    # Columns far from zero: a product in float32 would lose what tells the classes apart.
    narrow = head.as_linear().logits(X.astype(np.float32))
    np.testing.assert_allclose(narrow, head.logits(X.astype(np.float32).astype(float)), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("step", [Normalizer(), MinMaxScaler(clip=True), PolynomialFeatures(1)], ids=repr)
def test_other_steps_do_not(step):
    X, y = blobs(3)
    with pytest.raises(ValueError, match=rf"^a head with a {type(step).__name__} cannot be written as arrays"):
        EstimatorHead(make_pipeline(step, LogisticRegression())).fit(X + 50.0, y).as_linear()


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


FROZEN = [
    RandomForestClassifier(10, random_state=0),
    make_pipeline(StandardScaler(), LogisticRegression()),
    make_pipeline(StandardScaler(), FrozenEstimator(LogisticRegression().fit(*blobs(4)))),
    CalibratedClassifierCV(FrozenEstimator(GaussianNB().fit(*blobs(4))), cv=2),
]


@pytest.mark.parametrize("estimator", FROZEN, ids=["forest", "pipeline", "frozen step", "calibrated"])
@pytest.mark.parametrize("frozen", [False, True])
def test_a_fold_fits_a_copy_of_a_fitted_or_frozen_classifier(estimator, frozen):
    """On a fold some classes are missing, and a head that has seen them would not do."""
    X, y = blobs(4)
    estimator = clone(estimator).fit(X, y)
    given = FrozenEstimator(estimator) if frozen else estimator
    before = EstimatorHead(given).adopt(np.arange(4)).logits(X)
    head = EstimatorHead(given).fit(X[y < 3], y[y < 3])
    assert head.logits(X).shape == (len(y), 3)
    np.testing.assert_array_equal(EstimatorHead(given).adopt(np.arange(4)).logits(X), before, "it was fitted again")


def test_a_frozen_scaler_stays_on_folds():
    X, y = blobs(3)
    scaler = StandardScaler().fit(100.0 * X)
    head = EstimatorHead(make_pipeline(FrozenEstimator(scaler), LogisticRegression())).fit(X, y)
    assert head.fitted[0].estimator is scaler
    np.testing.assert_allclose(head.as_linear().logits(X), head.logits(X))


@pytest.mark.parametrize("estimator", [FrozenEstimator(GaussianNB()), FROZEN[-1]], ids=["frozen", "calibrated"])
def test_a_head_with_a_frozen_classifier_must_be_fitted(estimator):
    with pytest.raises(
        ValueError, match=r"a frozen classifier but is not fitted itself; pass FrozenEstimator\(head\.f"
    ):
        EstimatorHead(clone(estimator)).fit(*blobs(3))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("estimator", [GaussianNB(), GridSearchCV(LINEAR, {"C": [1, 2]}), make_pipeline(*STEPS[0])])
def test_a_head_that_was_fitted_on_a_table_takes_arrays(estimator):
    pandas = pytest.importorskip("pandas")
    X, y = blobs(3)
    fitted = clone(estimator).fit(pandas.DataFrame(X, columns=list("abcdef")), y)
    head = EstimatorHead(fitted).adopt(np.arange(3))
    logits = head.logits(X)
    np.testing.assert_array_equal(logits.argmax(1), clone(estimator).fit(X, y).predict(X))
    if not isinstance(estimator, GaussianNB):
        np.testing.assert_allclose(head.as_linear().logits(X), logits)


def test_a_frozen_head_survives_a_clone_and_another_is_fitted_anew():
    X, y = blobs(4)
    poor = LogisticRegression(C=1e-6).fit(X, y)
    options = {"rejector": "max_logit", "folds": 2, "random_state": 0}
    kept, anew = (
        clone(OpenSetClassifier(head=head, **options)).fit(X, y).predict_proba(X)
        for head in (FrozenEstimator(poor), poor)
    )
    np.testing.assert_allclose(kept, poor.predict_proba(X))
    again = LogisticRegression(C=1e-6).fit(X, y).predict_proba(X)
    np.testing.assert_allclose(anew, again)


def test_a_frozen_head_in_cross_validation():
    X, y = blobs(4)
    head = FrozenEstimator(RandomForestClassifier(10, random_state=0).fit(X, y))
    model = OpenSetClassifier(head=head, rejector="average", folds=2, random_state=0)
    assert (cross_val_score(model, X, y, cv=2, error_score="raise") > 0.8).all()


def test_what_is_refused():
    X, y = blobs(4)
    fitted = LogisticRegression().fit(X, y)
    with pytest.raises(ValueError, match=r"fitted on the classes 0, 1, 2, 3, but y holds 0, 1; fit it on the same"):
        EstimatorHead(fitted).adopt(np.array([0, 1]))
    with pytest.raises(ValueError, match="0, 1, 2, 3, 4, 2 more"):
        EstimatorHead(fitted).adopt(np.arange(7))
    with pytest.raises(
        TypeError, match=r"KNeighborsClassifier\.fit takes no sample_weight; leave sample_weight and cla"
    ):
        EstimatorHead(KNeighborsClassifier()).fit(X, y, np.ones(len(y)))
    with pytest.raises(TypeError, match=r"^KNeighborsClassifier\.fit takes no sample_weight"):
        EstimatorHead(make_pipeline(StandardScaler(), KNeighborsClassifier())).fit(X, y, np.ones(len(y)))
    with pytest.raises(ValueError, match=r"SVC gives 6 decision values for 4 classes; .*decision_function_shape='ovr'"):
        EstimatorHead(SVC(decision_function_shape="ovo")).fit(X, y).logits(X)
    with pytest.raises(NotImplementedError, match=r"Head has no fit\(X, y, sample_weight\); define it"):
        Head().fit(X, y)
    with pytest.raises(NotImplementedError, match=r"Head has no logits\(X\); define it"):
        Head().logits(X)


@pytest.mark.parametrize("steps", [(), (StandardScaler(),), (StandardScaler(), Pipeline([("inner", MaxAbsScaler())]))])
def test_weights_reach_the_estimator(steps):
    X, y = blobs(3, apart=1.0)
    weight = np.where(y == 0, 100.0, 1.0)
    estimator = make_pipeline(*steps, make_pipeline(SGDClassifier(random_state=0)))
    plain, heavy = (EstimatorHead(estimator).fit(X, y, w) for w in (None, weight))
    assert np.mean(heavy.logits(X).argmax(1) == 0) > np.mean(plain.logits(X).argmax(1) == 0)
