"""Samples that tests of the classifier share."""

import numpy as np

from openauc.features.classifier.evidence import Fold


def blobs(n_classes=4, per_class=30, *, width=6, apart=4.0, seed=0, noise=1.0):
    """Embeddings around one axis per class, and integer classes; another seed draws other samples of these classes."""
    y = np.repeat(np.arange(n_classes), per_class)
    noises = noise * np.random.default_rng(seed).normal(size=(len(y), width))
    return apart * np.eye(n_classes, width)[y] + noises, y


def fold_of(y_true, y_pred, evidence=None, weight=None):
    """A fold from labels, -1 for unknown; the label of each unknown sample is then 0."""
    known = np.asarray(y_true) >= 0
    columns = np.zeros((len(known), 1)) if evidence is None else evidence
    weights = np.ones(len(known)) if weight is None else weight
    return Fold(columns, known, known & (np.asarray(y_true) == np.asarray(y_pred)), np.zeros(len(known), int), weights)
