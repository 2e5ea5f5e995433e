"""Classifiers on embeddings: what turns features into logits.

The one parameter of a head, ``strength``, says how closely it follows the training samples, and is chosen on held-out
classes. Its fitted state is arrays, and ``logits`` uses the array API alone, so that it can be saved and exported.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from copy import copy
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax
from sklearn.base import clone, is_classifier
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from openauc._validation import named
from openauc.features.scores._arrays import Array, product
from openauc.features.scores.base import Floats, Rows
from openauc.features.scores.distance import with_means

MOST_LOGITS = 20_000_000
"""Samples times classes up to which scikit-learn fits the logistic head; beyond, mini-batches are used."""
BATCH, PASSES, MOMENTUM = 1024, 8, 0.9  # fit by mini-batches: rows of a batch, passes over all rows, momentum
COVARIANCE_ROWS, DAMPING = 16_384, 0.3
"""Rows that the covariance of the features is taken from; share of the mean variance added before it is inverted."""
PLENTY, FASTEST = 400, 8.0
"""A class of 400 samples or more learns at the rate 1; smaller classes learn faster, at most at the rate 8."""


class Head:
    """Base class of heads."""

    grid: ClassVar[tuple[float, ...]] = (1.0,)
    """Strengths to choose from; the first is the default."""
    scaled: bool = True
    """Whether it gets features that are centred and scaled."""

    def __init__(self, strength: float = 1.0) -> None:
        self.strength = strength

    def fit(self, X: NDArray[Any], y: Rows, sample_weight: Floats | None = None) -> Self:
        """Learn classes 0..C-1."""
        raise NotImplementedError(f"{type(self).__name__} has no fit(X, y, sample_weight); define it.")

    def logits(self, X: Array) -> Array:
        """(n, C) float64, larger = more like class c."""
        raise NotImplementedError(f"{type(self).__name__} has no logits(X); define it.")

    def extended(self, X: NDArray[Any], y: Rows, sample_weight: Floats, learned: Rows) -> Self:
        """A head that learns the classes ``learned``, new ones or old ones anew; logits of the others stay."""
        raise NotImplementedError(f"{type(self).__name__} has no extended(X, y, sample_weight, learned); define it.")


class LogisticHead(Head):
    """Multinomial logistic regression of scikit-learn; ``strength`` is its C.

    Beyond :data:`MOST_LOGITS`, :func:`fit_by_batches` comes close to it in a few passes over X, which may be a memory
    map, and never holds the logits of all samples.
    """

    grid = (1.0, 0.1, 10.0)

    def fit(self, X: NDArray[Any], y: Rows, sample_weight: Floats | None = None) -> Self:
        if len(y) * int(y.max() + 1) > MOST_LOGITS:
            self.weight, self.bias = fit_by_batches(X, y, sample_weight, self.strength)
            return self
        # More iterations do not change decisions.
        with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
            warnings.filterwarnings("ignore", "The number of unique classes")  # two rows a class are few, not a mistake
            fitted = LogisticRegression(C=self.strength, max_iter=200).fit(X, y, sample_weight)
        self.weight, self.bias = _columns_of(fitted.coef_, fitted.intercept_, X.dtype)
        return self

    def extended(self, X: NDArray[Any], y: Rows, sample_weight: Floats, learned: Rows) -> Self:
        new = copy(self)
        new.weight, new.bias = learn_beside(X, y, sample_weight, learned, self.weight, self.bias, self.strength)
        return new

    def logits(self, X: Array) -> Array:
        return affine(X, self.weight, self.bias)


class ClassMeanHead(Head):
    r"""Nearest class mean: :math:`z_c = -s\,\lVert x - \mu_c \rVert^2 / 2\sigma^2`, with the mean variance."""

    grid = (1.0, 0.3, 3.0)

    def fit(self, X: NDArray[Any], y: Rows, sample_weight: Floats | None = None) -> Self:
        weight = np.ones(len(y)) if sample_weight is None else sample_weight
        classes = (y == label for label in range(y.max() + 1))
        self.means = np.stack([np.average(X[c], axis=0, weights=weight[c]) for c in classes]).astype(X.dtype)
        variance = float(np.average(((X - self.means[y]) ** 2).mean(1), weights=weight))
        self.scale = self.strength / max(variance, float(np.finfo(np.float32).tiny))
        return self

    def extended(self, X: NDArray[Any], y: Rows, sample_weight: Floats, learned: Rows) -> Self:
        new = copy(self)
        new.means = with_means(self.means, X, y, sample_weight, learned)
        return new

    def logits(self, X: Array) -> Array:
        xp = X.__array_namespace__()
        X, means = xp.astype(X, xp.float64), self.means.astype(np.float64)  # of near points, the terms cancel
        half_squares = xp.sum(X * X, axis=1, keepdims=True) / 2
        return self.scale * (affine(X, means, -(means**2).sum(1) / 2) - half_squares)


class MLPHead(Head):
    """One hidden layer of 128 rectified units, trained by Adam; ``strength`` is the inverse of scikit-learn's alpha."""

    grid = (100.0, 1.0)

    def fit(self, X: NDArray[Any], y: Rows, sample_weight: Floats | None = None) -> Self:
        with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
            fitted = MLPClassifier((128,), alpha=1 / self.strength, max_iter=60, random_state=0)
            fitted.fit(X, y, sample_weight)
        hidden, last = fitted.coefs_
        self.hidden_weight, self.hidden_bias = hidden.T.astype(X.dtype), fitted.intercepts_[0].astype(X.dtype)
        self.weight, self.bias = _columns_of(last.T, fitted.intercepts_[1], X.dtype)
        return self

    def extended(self, X: NDArray[Any], y: Rows, sample_weight: Floats, learned: Rows) -> Self:
        new, hidden = copy(self), self._hidden(X)
        new.weight, new.bias = learn_beside(hidden, y, sample_weight, learned, self.weight, self.bias, self.strength)
        return new

    def logits(self, X: Array) -> Array:
        return affine(self._hidden(X), self.weight, self.bias)

    def _hidden(self, X: Array) -> Array:
        xp = X.__array_namespace__()
        hidden = xp.matmul(X, xp.asarray(self.hidden_weight.T)) + xp.asarray(self.hidden_bias)
        return xp.where(hidden > 0, hidden, xp.zeros_like(hidden))


class EstimatorHead(Head):
    """Any scikit-learn classifier: its ``decision_function``, else the logarithm of its ``predict_proba``.

    A fitted estimator is used as it is on all classes; on folds, which lack some classes, an unfitted copy is fitted.
    """

    scaled = False

    def __init__(self, estimator: Any) -> None:
        super().__init__()
        self.estimator = estimator

    def fit(self, X: NDArray[Any], y: Rows, sample_weight: Floats | None = None) -> Self:
        """Fit a copy; the weights reach the last step of a pipeline."""
        self.fitted = _unfitted(self.estimator)
        prefix, last = "", self.fitted
        while isinstance(last, Pipeline):
            name, last = last.steps[-1]
            prefix += f"{name}__"
        if sample_weight is not None and not has_fit_parameter(last, "sample_weight"):
            raise TypeError(
                f"{type(last).__name__}.fit takes no sample_weight; leave sample_weight and class_weight out, or "
                "choose another head."
            )
        self.fitted.fit(X, y, **({} if sample_weight is None else {f"{prefix}sample_weight": sample_weight}))
        self.order = np.arange(len(self.fitted.classes_))
        return self

    def adopt(self, classes: NDArray[Any]) -> Self:
        """Take the fitted estimator itself, whose classes must be these."""
        theirs, ours = np.asarray(self.estimator.classes_).tolist(), classes.tolist()
        place = {str(label): i for i, label in enumerate(theirs)}
        if place.keys() != set(map(str, ours)):
            both = f"the head was fitted on the classes {named(theirs, 5)}, but y holds {named(ours, 5)}"
            raise ValueError(f"{both}; fit it on the same classes, or pass it unfitted.")
        self.fitted, self.order = thawed(self.estimator), np.array([place[str(label)] for label in ours])
        return self

    def logits(self, X: Array) -> Array:
        if hasattr(self.fitted, "decision_function"):
            values = np.asarray(_without_names(self.fitted.decision_function, X), np.float64)
            if values.ndim == 1:
                values = np.stack([-values / 2, values / 2], 1)
        else:
            values = np.log(np.maximum(np.asarray(_without_names(self.fitted.predict_proba, X), np.float64), 1e-30))
        if values.shape[1] != len(self.order):
            raise ValueError(
                f"{type(self.fitted).__name__} gives {values.shape[1]} decision values for {len(self.order)} classes; "
                "it must give one for each class (decision_function_shape='ovr')."
            )
        return values[:, self.order]

    def as_linear(self) -> LogisticHead:
        """The same logits as one product with weights, to rounding; an estimator that is not linear is refused."""
        weight, bias = _weights_of(self.fitted)
        weight, bias = _columns_of(weight, bias, np.result_type(weight, bias))
        head = LogisticHead()
        head.scaled = False
        head.weight, head.bias = weight[self.order], bias[self.order]
        # Not every estimator that has weights uses them alone.
        probes = np.random.default_rng(0).normal(size=(8, weight.shape[1]))
        expected, found = self.logits(probes), head.logits(probes)
        margin = 1e-4 * np.abs(expected).max()
        if found.shape != expected.shape or not np.allclose(found, expected, rtol=1e-4, atol=margin):
            raise _not_arrays(self.fitted)
        return head


AFFINE = (StandardScaler, MinMaxScaler, MaxAbsScaler, RobustScaler, PCA)
"""Steps before a linear classifier that become a part of its weights."""


def _weights_of(estimator: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """Weights (C, d) and biases (C,) of a linear classifier or a pipeline; (1, d) and (1,) for two classes."""
    estimator = getattr(estimator, "best_estimator_", estimator)  # of a search
    if isinstance(estimator, Pipeline):
        *before, last = (thawed(step) for _, step in estimator.steps if step not in (None, "passthrough"))
        weight, bias = _weights_of(last)
        for step in reversed(before):
            if not isinstance(step, AFFINE) or getattr(step, "clip", False):
                raise _not_arrays(step)
            # An affine map is known by what it makes of zero and of the unit vectors.
            shift = np.asarray(_without_names(step.transform, np.zeros((1, step.n_features_in_))))
            columns = np.asarray(_without_names(step.transform, np.eye(step.n_features_in_))) - shift
            weight, bias = weight @ columns.T, bias + weight @ shift[0]
        return weight, bias
    rows, shifts = getattr(estimator, "coef_", None), getattr(estimator, "intercept_", None)
    pairwise = hasattr(estimator, "dual_coef_")  # of support vector machines: weights of pairs of classes
    linear = hasattr(estimator, "decision_function") and not pairwise
    if rows is None or shifts is None or np.ndim(rows) not in (1, 2) or not linear:
        raise _not_arrays(estimator)
    rows = np.atleast_2d(rows)  # RidgeClassifier has one row for two classes
    return rows, np.broadcast_to(shifts, len(rows))


def _not_arrays(part: Any) -> ValueError:
    return ValueError(
        f"a head with a {type(part).__name__} cannot be written as arrays. joblib.dump(classifier, path) saves any "
        "head; save and export_onnx need head='logistic', 'class_mean' or 'mlp', or a linear classifier of "
        f"scikit-learn, alone or in a pipeline after any of {', '.join(step.__name__ for step in AFFINE)}."
    )


def _without_names(method: Callable[[Any], Any], X: Array) -> Any:
    """``method(X)`` without the warning that arrays have no names of columns."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        return method(X)


def thawed(estimator: Any) -> Any:
    return estimator.estimator if isinstance(estimator, FrozenEstimator) else estimator


def _unfitted(estimator: Any) -> Any:
    """A copy to fit; ``clone`` alone keeps a frozen classifier, which knows classes that a fold must not know."""
    copy = clone(thawed(estimator))
    frozen = {name: part for name, part in copy.get_params().items() if isinstance(part, FrozenEstimator)}
    inside = {name: part.estimator for name, part in frozen.items() if is_classifier(part)}
    if (inside or isinstance(estimator, FrozenEstimator)) and not is_fitted(estimator):
        raise ValueError(
            f"the head {type(estimator).__name__} has a frozen classifier but is not fitted itself; pass "
            "FrozenEstimator(head.fit(X, y)), which stays fitted in a clone too, or a head without a FrozenEstimator."
        )
    return copy.set_params(**{name: clone(part) for name, part in inside.items()})


HEADS: dict[str, type[Head]] = {"logistic": LogisticHead, "class_mean": ClassMeanHead, "mlp": MLPHead}
"""Heads by name."""


def is_fitted(estimator: Any) -> bool:
    try:
        check_is_fitted(estimator)
    except (NotFittedError, TypeError):
        return False
    return True


def fit_by_batches(
    X: NDArray[Any], y: Rows, sample_weight: Floats | None, strength: float
) -> tuple[NDArray[Any], NDArray[Any]]:
    r"""Weights (C, d) and biases (C,) that nearly minimise :math:`s \sum_i w_i \ell_i + \lVert W \rVert^2 / 2`.

    Stochastic gradient descent with Nesterov's momentum and a rate that falls to 0 along a cosine. Gradients are
    multiplied by the inverse covariance of the features, so that all directions are learned at one pace. Features are
    centred, which changes only the biases, and these have no penalty.
    """
    n, width = X.shape
    dtype, rng = X.dtype.type, np.random.default_rng(0)
    weight = np.ones(n) if sample_weight is None else np.asarray(sample_weight, np.float64)
    counts = np.bincount(y)
    some = np.asarray(X[np.sort(rng.permutation(n)[:COVARIANCE_ROWS])])
    centre = some.mean(0)
    some -= centre
    covariance = some.T @ some / len(some)
    damping = max(DAMPING * np.trace(covariance) / width, np.finfo(np.float32).tiny)
    # The last column is the bias.
    pace = np.eye(width + 1, dtype=dtype)
    pace[:-1, :-1] = np.linalg.inv(covariance + damping * np.eye(width))
    penalty = np.full(width + 1, (2 if len(counts) == 2 else 1) / (strength * weight.sum()), dtype)
    penalty[-1] = 0  # and for two classes scikit-learn penalises the difference of their weights
    rates = np.clip(PLENTY / counts, 1.0, FASTEST)[:, None].astype(dtype)
    W = np.zeros((len(counts), width + 1), dtype)
    W[:, -1] = np.log(np.bincount(y, weight) / weight.sum())
    velocity = np.zeros_like(W)
    steps = -(-n // BATCH)
    for step in range(PASSES * steps):
        if step % steps == 0:
            batches = np.array_split(rng.permutation(n), steps)
        rows = np.sort(batches[step % steps])  # a memory map is read forwards
        x = np.ones((len(rows), width + 1), dtype)
        x[:, :-1] = X[rows] - centre
        error = softmax(x @ W.T, axis=1)
        error[np.arange(len(rows)), y[rows]] -= 1
        error *= (weight[rows, None] / (weight.mean() * len(rows))).astype(dtype)
        gradient = rates * ((error.T @ x + penalty * W) @ pace)
        velocity = dtype(MOMENTUM) * velocity + gradient
        W -= dtype((1 + np.cos(np.pi * step / (PASSES * steps))) / 2) * (gradient + dtype(MOMENTUM) * velocity)
    return np.ascontiguousarray(W[:, :-1]), W[:, -1] - W[:, :-1] @ centre


def learn_beside(
    X: NDArray[Any],
    y: Rows,
    sample_weight: Floats,
    learned: Rows,
    weight: NDArray[Any],
    bias: NDArray[Any],
    strength: float,
) -> tuple[NDArray[Any], NDArray[Any]]:
    r"""Weights (C, d) and biases (C,) of a logistic regression in which only those of the classes ``learned`` change.

    The others do not make room, so the weights of a new class carry the whole difference, not half of it. Half the
    penalty makes up for that.
    """
    n, width = X.shape
    count, old = max(int(y.max()) + 1, len(bias)), np.arange(len(bias))
    weights, biases = np.zeros((count, width), weight.dtype), np.zeros(count, bias.dtype)
    weights[old], biases[old] = weight, bias
    fixed = np.setdiff1d(old, learned)
    level = logsumexp(affine(X, weights[fixed], biases[fixed]), axis=1) if len(fixed) else np.full(n, -np.inf)
    place = np.full(count, len(learned))
    place[learned] = np.arange(len(learned))
    at = np.flatnonzero(place[y] < len(learned))
    own, total = place[y[at]], 2.0 * strength * sample_weight.sum()
    share = sample_weight / sample_weight.sum()

    def loss(values: Floats) -> tuple[float, Floats]:
        W = values.reshape(len(learned), width + 1)
        z = affine(X, W[:, :-1].astype(X.dtype), W[:, -1])
        top = np.logaddexp(level, logsumexp(z, axis=1))
        error = np.exp(z - top[:, None])
        found = float(share @ top - share[at] @ z[at, own]) + float((W[:, :-1] ** 2).sum()) / (2.0 * total)
        error[at, own] -= 1.0
        error *= share[:, None]
        gradient = np.concatenate([error.T.astype(X.dtype) @ X + W[:, :-1] / total, error.sum(0)[:, None]], axis=1)
        return found, gradient.ravel()

    start = np.concatenate([weights[learned], biases[learned, None]], axis=1, dtype=np.float64)
    W = minimize(loss, start.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": 200, "gtol": 1e-5}).x
    W = W.reshape(len(learned), width + 1)
    weights[learned], biases[learned] = W[:, :-1], W[:, -1]
    return weights, biases


def _columns_of(weight: Any, bias: Any, dtype: np.dtype[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """One column of logits per class; scikit-learn has one for two classes."""
    if len(weight) == 1:
        weight, bias = np.concatenate([-weight, weight]) / 2, np.concatenate([-bias, bias]) / 2
    return np.ascontiguousarray(weight, dtype), np.ascontiguousarray(bias, dtype)


def affine(X: Array, weight: NDArray[Any], bias: NDArray[Any]) -> Array:
    """``X @ weight.T + bias`` in float64, multiplied in the precision of X or of the weights, whichever is wider."""
    xp = X.__array_namespace__()
    if weight.dtype == np.float64:
        X = xp.astype(X, xp.float64, copy=False)
    return product(X, np.ascontiguousarray(weight.T)) + xp.asarray(bias.astype(np.float64))
