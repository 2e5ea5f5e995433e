"""Classifiers on embeddings: what turns features into logits.

A head is fitted on integer classes 0..C-1 and gives logits (n, C). ``strength`` is its one knob, how closely it follows
the training samples; :class:`~openauc.features.OpenSetClassifier` chooses it on held-out classes. Its fitted state is
arrays, and ``logits`` uses the array API alone, so that it can be saved and exported.
"""

from __future__ import annotations

import warnings
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

Floats = NDArray[np.float64]
Array = Any
"""A numpy array, or one that records what is done to it."""


class Head:
    """What every head offers."""

    grid: ClassVar[tuple[float, ...]] = (1.0,)
    """Strengths to choose from; the first is taken unless another is clearly better."""

    def __init__(self, strength: float = 1.0) -> None:
        self.strength = strength

    def fit(self, X: NDArray[Any], y: NDArray[np.int64], sample_weight: Floats | None = None) -> Self:
        """Learn classes 0..C-1."""
        raise NotImplementedError(f"{type(self).__name__} has no fit(X, y, sample_weight); define it.")

    def logits(self, X: Array) -> Array:
        """(n, C) float64, larger = more like class c."""
        raise NotImplementedError(f"{type(self).__name__} has no logits(X); define it.")


class LogisticHead(Head):
    """Multinomial logistic regression; ``strength`` is scikit-learn's C."""

    grid = (1.0, 0.1, 10.0)
    weight: NDArray[Any]
    bias: NDArray[Any]

    def fit(self, X: NDArray[Any], y: NDArray[np.int64], sample_weight: Floats | None = None) -> Self:
        """Weights (C, d) and biases (C,)."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # what a few more iterations move is no decision
            fitted = LogisticRegression(C=self.strength, max_iter=200).fit(X, y, sample_weight)
        self.weight, self.bias = _columns_of(fitted.coef_, fitted.intercept_, X.dtype)
        return self

    def logits(self, X: Array) -> Array:
        """One product with the weights."""
        return affine(X, self.weight, self.bias)


class ClassMeanHead(Head):
    r"""Nearest class mean: :math:`z_c = -s\,\lVert x - \mu_c \rVert^2 / 2\sigma^2`, with the mean variance."""

    grid = (1.0, 0.3, 3.0)
    means: NDArray[Any]
    scale: float

    def fit(self, X: NDArray[Any], y: NDArray[np.int64], sample_weight: Floats | None = None) -> Self:
        """Means (C, d), weighted."""
        weight = np.ones(len(y)) if sample_weight is None else sample_weight
        classes = (y == label for label in range(y.max() + 1))
        self.means = np.stack([np.average(X[c], axis=0, weights=weight[c]) for c in classes]).astype(X.dtype)
        variance = float(np.average(((X - self.means[y]) ** 2).mean(1), weights=weight))
        self.scale = self.strength / max(variance, float(np.finfo(np.float32).tiny))
        return self

    def logits(self, X: Array) -> Array:
        """Minus half the squared distances to the means, scaled."""
        xp = X.__array_namespace__()
        X, means = xp.astype(X, xp.float64), self.means.astype(np.float64)  # of near points, the terms cancel
        half_squares = xp.sum(X * X, axis=1, keepdims=True) / 2
        return self.scale * (affine(X, means, -(means**2).sum(1) / 2) - half_squares)


class MLPHead(Head):
    """One hidden layer of 128 rectified units; ``strength`` is the inverse of scikit-learn's alpha."""

    grid = (100.0, 1.0)
    hidden_weight: NDArray[Any]
    hidden_bias: NDArray[Any]
    weight: NDArray[Any]
    bias: NDArray[Any]

    def fit(self, X: NDArray[Any], y: NDArray[np.int64], sample_weight: Floats | None = None) -> Self:
        """Adam, at most 60 epochs, from one fixed start."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            fitted = MLPClassifier((128,), alpha=1 / self.strength, max_iter=60, random_state=0)
            fitted.fit(X, y, sample_weight)
        hidden, last = fitted.coefs_
        self.hidden_weight, self.hidden_bias = hidden.T.astype(X.dtype), fitted.intercepts_[0].astype(X.dtype)
        self.weight, self.bias = _columns_of(last.T, fitted.intercepts_[1], X.dtype)
        return self

    def logits(self, X: Array) -> Array:
        """Of the output layer, before the softmax."""
        xp = X.__array_namespace__()
        hidden = xp.matmul(X, xp.asarray(self.hidden_weight.T)) + xp.asarray(self.hidden_bias)
        return affine(xp.where(hidden > 0, hidden, xp.zeros_like(hidden)), self.weight, self.bias)


class EstimatorHead(Head):
    """Any scikit-learn classifier: its ``decision_function``, else the logarithm of its ``predict_proba``.

    Parameters
    ----------
    estimator
        Fitted or not. A fitted one serves as it is on all classes; on folds a clone of it is fitted.
    """

    def __init__(self, estimator: Any) -> None:
        super().__init__()
        self.estimator = estimator

    def fit(self, X: NDArray[Any], y: NDArray[np.int64], sample_weight: Floats | None = None) -> Self:
        """Fit a clone."""
        self.fitted = clone(self.estimator)
        if sample_weight is not None and not has_fit_parameter(self.fitted, "sample_weight"):
            raise TypeError(
                f"{type(self.fitted).__name__}.fit takes no sample_weight; leave sample_weight and class_weight out, "
                "or choose another head."
            )
        self.fitted.fit(X, y, **({} if sample_weight is None else {"sample_weight": sample_weight}))
        self.order = np.arange(len(self.fitted.classes_))
        return self

    def adopt(self, classes: NDArray[Any]) -> Self:
        """Take the fitted estimator itself, whose classes must be these."""
        theirs = np.asarray(self.estimator.classes_)
        if len(theirs) != len(classes) or not np.array_equal(np.sort(theirs.astype(str)), np.sort(classes.astype(str))):
            raise ValueError(
                f"the head was fitted on the classes {_some(theirs)}, but y holds {_some(classes)}; fit it on the same "
                "classes, or pass it unfitted."
            )
        place = {str(label): i for i, label in enumerate(theirs.tolist())}
        self.fitted, self.order = self.estimator, np.array([place[str(label)] for label in classes.tolist()])
        return self

    def logits(self, X: Array) -> Array:
        """Of the fitted estimator, columns in the order of the classes."""
        if hasattr(self.fitted, "decision_function"):
            values = np.asarray(self.fitted.decision_function(X), np.float64)
            if values.ndim == 1:
                values = np.stack([-values / 2, values / 2], 1)
        else:
            values = np.log(np.maximum(np.asarray(self.fitted.predict_proba(X), np.float64), 1e-30))
        if values.shape[1] != len(self.order):
            raise ValueError(
                f"{type(self.fitted).__name__} gives {values.shape[1]} decision values for {len(self.order)} classes; "
                "it must give one for each class (decision_function_shape='ovr')."
            )
        return values[:, self.order]

    def as_linear(self) -> LogisticHead:
        """The same logits as one product with weights, for those estimators whose logits are."""
        weight, bias = getattr(self.fitted, "coef_", None), getattr(self.fitted, "intercept_", None)
        pairwise = hasattr(self.fitted, "dual_coef_")  # of support vector machines: weights of pairs of classes
        linear = hasattr(self.fitted, "decision_function") and not pairwise
        if weight is None or bias is None or np.ndim(weight) not in (1, 2) or not linear:
            raise ValueError(
                f"a head of the type {type(self.fitted).__name__} cannot be written as arrays; use head='logistic', "
                "'class_mean' or 'mlp', or a linear classifier of scikit-learn."
            )
        head = LogisticHead()
        weight = np.atleast_2d(weight)  # RidgeClassifier has one row for two classes
        weight, bias = _columns_of(weight, np.broadcast_to(bias, len(weight)), np.dtype(np.float64))
        head.weight, head.bias = weight[self.order], bias[self.order]
        return head


HEADS: dict[str, type[Head]] = {"logistic": LogisticHead, "class_mean": ClassMeanHead, "mlp": MLPHead}
"""Heads by name."""


def is_fitted(estimator: Any) -> bool:
    """Whether a scikit-learn estimator has seen data."""
    try:
        check_is_fitted(estimator)
    except (NotFittedError, TypeError):
        return False
    return True


def _columns_of(weight: Any, bias: Any, dtype: np.dtype[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """One column of logits per class; scikit-learn has one for two classes."""
    if len(weight) == 1:
        weight, bias = np.concatenate([-weight, weight]) / 2, np.concatenate([-bias, bias]) / 2
    return np.ascontiguousarray(weight, dtype), np.ascontiguousarray(bias, dtype)


def affine(X: Array, weight: NDArray[Any], bias: NDArray[Any]) -> Array:
    """``X @ weight.T + bias`` in float64, multiplied in the precision of X."""
    xp = X.__array_namespace__()
    product = xp.matmul(X, xp.astype(xp.asarray(np.ascontiguousarray(weight.T)), X.dtype))
    return xp.astype(product, xp.float64) + xp.asarray(bias.astype(np.float64))


def _some(labels: NDArray[Any]) -> str:
    shown = ", ".join(map(repr, labels[:5].tolist()))
    return shown if len(labels) <= 5 else f"{shown}, ... ({len(labels)} of them)"
