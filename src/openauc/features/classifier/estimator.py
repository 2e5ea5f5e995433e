"""OpenSetClassifier: embeddings in, a class or "unknown" out, with a guarantee."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_feature_names,
    _check_sample_weight,
    check_is_fitted,
    column_or_1d,
    validate_data,
)
from threadpoolctl import threadpool_limits

from openauc._validation import UNKNOWN, check_choice, check_fraction, check_same_length, named
from openauc.features.classifier.conformal import Calibration, benjamini_hochberg, guarantee
from openauc.features.classifier.discovery import Groups, discover
from openauc.features.classifier.evidence import KINDS, name_of
from openauc.features.classifier.explanation import Examples, Explanation, explain
from openauc.features.classifier.fitting import Fitting
from openauc.features.classifier.heads import HEADS, is_fitted
from openauc.features.classifier.report import FitReport, with_other_rows
from openauc.features.classifier.scaling import SCALINGS
from openauc.features.classifier.tables import TableSpec, checked_table, with_plain_gaps
from openauc.features.scores._arrays import Array
from openauc.features.scores.base import REJECTORS, Floats, Rows
from openauc.features.scores.registry import SCORES
from openauc.metrics.operating import Costs, choose_threshold, smallest_sample
from openauc.predictions import Predictions

CHUNK = 4096  # samples predicted together, which bounds the memory
SMALL = 20_000_000
"""Entries of X up to which one thread fits: more threads slow small products down where cores are busy."""
THRESHOLDS = ("acceptance", "youden", "cost")


@dataclass(kw_only=True, eq=False, repr=False)
class OpenSetClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Classifier of embeddings that answers "unknown" for what belongs to none of its classes.

    A head turns embeddings into logits. Scores are computed from both, and a rejector turns the scores into one
    open-set score: by default a function learned so that samples of held-out *known* classes rank above correctly
    classified ones (the paper's objective, on real samples). No unknown sample is needed. A threshold then accepts the
    wanted share of known samples.

    Parameters
    ----------
    head
        ``"logistic"``, ``"class_mean"``, ``"mlp"``, or a classifier or pipeline of scikit-learn. A fitted one is used
        as it is, and X must be the data it was fitted on, or similar data; folds, which lack some classes, fit
        unfitted copies of it. ``clone``, and so ``GridSearchCV`` and ``cross_val_score``, fit it anew unless it is a
        ``sklearn.frozen.FrozenEstimator``.
    rejector
        ``"learned"``, ``"average"`` (standardised mean of four scores, nothing learned), ``"selected"`` (the score
        that is best on held-out classes), the name of a score in ``SCORES``, a ``Score``, or a function of features and
        logits; higher = more unknown.
    threshold
        ``"acceptance"``: accept the share ``acceptance`` of known samples, see ``guarantee_``;
        ``"youden"``: the best sum of accepted known and rejected unknown samples on held-out classes;
        ``"cost"``: the lowest ``costs`` there; or a number.
    acceptance
        Share of known samples to accept.
    per_class
        One threshold for each predicted class, where that class has enough calibration samples.
    costs
        :class:`~openauc.Costs`, or its fields, for ``threshold="cost"``.
    calibration
        ``"cross"``: thresholds and p-values from cross-fitted scores of all samples; ``"split"``: from a fifth of the
        samples, which nothing else uses, and the guarantee is exact. With more than 20,000 samples, a few thousand are
        always set aside for this. :meth:`calibrate` takes other samples.
    max_ofpr
        Maximise only the left part of the OSCR curve: OpenAUC up to this share of accepted unknown samples.
    folds
        Number of parts the classes, and the samples, are cut into. Few classes are cut several times.
    class_weight
        As in scikit-learn: None, ``"balanced"``, or a weight for each class. Weights reach head and rejector.
    unknown_label
        Answer of :meth:`predict` for unknown samples, and label of outliers in y. Where classes have names, the default
        is ``"unknown"``.
    seen_by_encoder
        Whether the encoder was trained on these samples and labels. Then held-out classes are not new to it and
        mislead, so the largest logit rejects in place of a learned rejector. ``"auto"`` decides by the data, and warns.
    scaling
        ``"embedding"``: all features are divided by one number; ``"columns"``: each by its own, as columns of a table
        need it; ``"auto"``: columns if there are fewer than 32 features, or one varies 100 times more than the median
        one. Features are always centred. An estimator as head gets them unscaled.
    random_state
        Seed of the folds.
    n_jobs
        Processes that fit folds.
    verbose
        True: print each finished step. A function: call it with the sentence instead.

    Attributes
    ----------
    classes_
        Known classes.
    report_
        :class:`~openauc.features.FitReport`: what was tried, and the results on held-out classes.
    thresholds_
        (C,) threshold for each predicted class; a sample is unknown when its score is above it.
    guarantee_
        The guarantee of the threshold, in a sentence; ``guarantee_details_`` has the rest.
    unknown_label_
        The answer for unknown samples.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> centres = 6 * np.eye(5)
    >>> X = np.repeat(centres, 40, axis=0) + rng.normal(size=(200, 5))
    >>> y = np.repeat(["ant", "bee", "cat", "dog", "elk"], 40)
    >>> classifier = OpenSetClassifier(random_state=0).fit(X[:160], y[:160])
    >>> classifier.predict([centres[1], centres[4]]).tolist()
    ['bee', 'unknown']
    >>> print(classifier.explain([centres[1], 9 * centres[1]]))
    known: like `bee`
    unknown: far from everything seen in training
    """

    head: Any = "logistic"
    rejector: Any = "learned"
    threshold: str | float = "acceptance"
    acceptance: float = 0.95
    per_class: bool = False
    costs: Costs | Mapping[str, float] | None = None
    calibration: str = "cross"
    max_ofpr: float | None = None
    folds: int = 5
    class_weight: Any = None
    unknown_label: Any = UNKNOWN
    seen_by_encoder: bool | str = "auto"
    scaling: str = "auto"
    random_state: Any = None
    n_jobs: int | None = None
    verbose: bool | Callable[[str], object] = False
    report_: FitReport = field(init=False)
    examples_: Examples = field(init=False)

    def fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None, groups: ArrayLike | None = None
    ) -> Self:
        """Learn classes, rejector and threshold.

        Parameters
        ----------
        X
            Embeddings (n, d); float64 stays, other types become float32.
        y
            Class of each row; ``unknown_label`` for outliers, if there are any, which help to learn the rejector.
        sample_weight
            Weight of each row, for head and rejector; calibration counts samples.
        groups
            Group of each row; rows of one group belong together (copies, frames of one video, texts of one author) and
            are never on both sides of a split. Equal rows and near-copies are found and kept together anyway.
        """
        self._check_parameters()
        checked_table(X)
        y = with_plain_gaps(y)
        features, y = validate_data(self, X, y, dtype=[np.float32, np.float64], ensure_min_samples=2)
        if not isinstance(self.head, str) and is_fitted(self.head):
            _check_feature_names(self.head, X, reset=False)
        labels, outlier = self._read_labels(y)
        weight = None
        if sample_weight is not None or self.class_weight is not None:
            weight = np.array(_check_sample_weight(sample_weight, features, dtype=np.float64, ensure_non_negative=True))
            weight[~outlier] *= compute_sample_weight(self.class_weight, labels[~outlier])  # None: all ones
        code = np.arange(len(labels)) if groups is None else np.unique(column_or_1d(groups), return_inverse=True)[1]
        check_same_length(X=features, groups=code)
        kept = np.arange(len(labels))
        if weight is not None and (weight == 0).any():
            kept = np.flatnonzero(weight)
            features, labels, outlier = features[kept], labels[kept], outlier[kept]
            weight, code = weight[kept], code[kept]
        self.classes_, known = np.unique(labels[~outlier], return_inverse=True)
        self._check_classes(known)
        empty = np.flatnonzero(~features.any(axis=1))
        if len(empty):
            warnings.warn(
                f"{len(empty):,} rows of X are all zero, the first is row {empty[0]}; an encoder seldom means that. "
                "Drop them, or encode them again.",
                stacklevel=2,
            )
        numbers = np.full(len(labels), UNKNOWN, np.int64)
        numbers[~outlier] = known
        self.dtype_, self.table_spec_ = features.dtype, TableSpec()
        with threadpool_limits(1 if features.size < SMALL else None, user_api="blas"):
            rng = check_random_state(self.random_state)
            calibration, alike = Fitting(self, features, numbers, weight, code, rng).run()
        self.examples_ = self.examples_._replace(row=kept[self.examples_.row])
        self._take_calibration(calibration.scores, calibration.predicted, self.calibration_kind_)
        for sentence in with_other_rows(self, calibration, alike):
            self.report_ = replace(self.report_, notes=(*self.report_.notes, sentence))
            warnings.warn(sentence, stacklevel=2)
        return self

    def _check_parameters(self) -> None:
        if isinstance(self.head, str):
            check_choice("head", self.head, HEADS)
        elif not (hasattr(self.head, "decision_function") or hasattr(self.head, "predict_proba")):
            methods = "decision_function or predict_proba"
            raise TypeError(f"head is {self.head!r}; expected {named(HEADS)}, or a classifier with {methods}.")
        if isinstance(self.rejector, str):
            check_choice("rejector", self.rejector, (*REJECTORS, *SCORES))
        elif not callable(self.rejector):
            raise TypeError(f"rejector is {self.rejector!r}; expected a name, a Score or a function.")
        elif name_of(self.rejector) in (*REJECTORS, *KINDS):
            raise ValueError(f"the rejector has the name of one of ours, {name_of(self.rejector)!r}; rename it.")
        check_choice("calibration", self.calibration, ("cross", "split"))
        check_choice("scaling", self.scaling, SCALINGS)
        if self.seen_by_encoder not in (True, False, "auto"):
            raise ValueError(f"seen_by_encoder is {self.seen_by_encoder!r}; expected True, False or 'auto'.")
        check_fraction("acceptance", self.acceptance)
        if self.max_ofpr is not None:
            check_fraction("max_ofpr", self.max_ofpr)
        if self.folds < 2:
            raise ValueError(f"folds is {self.folds!r}; expected at least 2.")
        for name in self.costs if isinstance(self.costs, Mapping) else ():
            check_choice("a key of costs", name, Costs.__dataclass_fields__)
        if isinstance(self.threshold, str):
            check_choice("threshold", self.threshold, THRESHOLDS)
        elif not isinstance(self.threshold, int | float | np.number) or np.isnan(self.threshold):
            raise ValueError(f"threshold is {self.threshold!r}; expected a number, or one of {named(THRESHOLDS)}.")

    def _read_labels(self, y: ArrayLike) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Labels, and which rows are outliers; decides ``unknown_label_``."""
        given: NDArray[Any] = column_or_1d(y)
        missing = np.array([label is None for label in given.tolist()], bool)
        present = given[~missing]
        names = present.dtype.kind in "US" or (len(present) > 0 and isinstance(present[0], str | bytes))
        if missing.any() and not (names and self.unknown_label is None):
            raise ValueError(f"y is missing for sample {int(np.argmax(missing))}; every sample needs a label.")
        if present.dtype == object and all(isinstance(label, int | np.integer) for label in present.tolist()):
            given = present = present.astype(np.int64)
        check_classification_targets(present)
        self.unknown_label_ = "unknown" if names and self.unknown_label == UNKNOWN else self.unknown_label
        if names and not (self.unknown_label_ is None or isinstance(self.unknown_label_, str)):
            raise TypeError(f"y holds names, but unknown_label is {self.unknown_label!r}; pass a name, or None.")
        if not names and isinstance(self.unknown_label_, str):
            raise TypeError(f"unknown_label is {self.unknown_label!r} but y holds numbers; pass an integer.")
        labels = np.where(missing, "", given).astype(str) if names else given
        return labels, missing | (labels == self.unknown_label_)

    def _check_classes(self, code: Rows) -> None:
        if len(self.classes_) < 2:
            raise ValueError(
                f"y holds {len(self.classes_)} known class{'es' if len(self.classes_) != 1 else ''}; a classifier "
                f"needs at least 2 classes (rows labelled {self.unknown_label_!r}, the unknown_label, are outliers)."
            )
        size = np.bincount(code)
        count, split = int(size.min()), self.calibration == "split"
        if count < 2 + split:
            why = "calibration='split' sets one aside" if count == 2 else "one to learn from and one to check with"
            way_out = "use calibration='cross'" if count == 2 else "label it as unknown"
            raise ValueError(
                f"the class {self.classes_.tolist()[size.argmin()]!r} has {count} sample{'s' * (count > 1)}; at least "
                f"{2 + split} of each are needed: {why}. Add samples, drop the class, or {way_out}."
            )

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Class of each sample, or ``unknown_label_`` where its score is above the threshold of the class."""
        score, predicted = self._decide(X)
        unknown = np.array(self.unknown_label_, object if self.unknown_label_ is None else None)
        # NaN is not below any threshold, so it is unknown.
        return np.where(score <= self.thresholds_[predicted], self.classes_[predicted], unknown)

    def classify(self, X: ArrayLike) -> NDArray[Any]:
        """Class of each sample, whether it would be rejected or not."""
        return np.asarray(self.classes_[self._decide(X)[1]])

    def open_score(self, X: ArrayLike) -> Floats:
        """(n,) scores; higher = more unknown."""
        return self._decide(X)[0]

    def score_samples(self, X: ArrayLike) -> Floats:
        """Minus :meth:`open_score`, higher = more known, as scikit-learn's detectors have it."""
        return -self.open_score(X)

    def p_value(self, X: ArrayLike) -> Floats:
        """(n,) conformal p-values of "this sample is known"; small ones speak against it."""
        return np.asarray(self.calibration_.p_value(*self._decide(X)))

    def predict_proba(self, X: ArrayLike) -> Floats:
        """(n, C) probabilities of the classes, for a sample that is known."""
        logits = [logits for _, logits in self._scored(self._features(X))]
        return np.asarray(softmax(np.concatenate(logits), axis=1))

    def select_unknown(self, X: ArrayLike, *, fdr: float = 0.1) -> NDArray[np.bool_]:
        """Which samples of a batch to call unknown, so that about ``fdr`` of these are known (Benjamini-Hochberg).

        The expected share of known samples among those selected is at most ``fdr`` if calibration and known samples of
        the batch are exchangeable and the calibration is a split (Bates et al., 2023).
        """
        check_fraction("fdr", fdr, one=False)
        return benjamini_hochberg(self.p_value(X), fdr)

    def predictions(self, X: ArrayLike, y_true: ArrayLike) -> Predictions:
        """The triple that :func:`openauc.evaluate` takes; classes the model does not know count as unknown.

        Known classes become 0..C-1 in the order of ``classes_``, unknown samples -1.
        """
        score, predicted = self._decide(X)
        return Predictions.of(self._place(y_true), predicted, score)

    def _place(self, y: ArrayLike) -> Rows:
        """Index of the class of each label; -1 for other labels."""
        place = {label: index for index, label in enumerate(self.classes_.tolist())}
        return np.array([place.get(label, UNKNOWN) for label in column_or_1d(y).tolist()], np.int64)

    def _decide(self, X: ArrayLike) -> tuple[Floats, Rows]:
        """Score and index of the class of each sample."""
        return self._decide_features(self._features(X))

    def _decide_features(self, features: NDArray[Any]) -> tuple[Floats, Rows]:
        scores, predicted = zip(*((score, logits.argmax(1)) for score, logits in self._scored(features)), strict=True)
        return np.concatenate(scores), np.concatenate(predicted)

    def _by_name(self, X: Any) -> Any:
        """A table with the columns of fit, in their order; anything else as it is."""
        wanted, columns = getattr(self, "feature_names_in_", None), getattr(X, "columns", None)
        if wanted is None or columns is None:
            return X
        missing = [name for name in wanted.tolist() if name not in columns]
        if missing:
            raise ValueError(
                f"X lacks {len(missing)} of the {len(wanted)} columns the model was fitted on, the first is "
                f"{missing[0]!r}; add them, or fit without them."
            )
        return checked_table(X[wanted.tolist()])

    def _scored(self, features: NDArray[Any]) -> Iterator[tuple[Floats, Floats]]:
        """Scores and logits, a chunk of samples at a time."""
        for start in range(0, len(features), CHUNK):
            yield self._score(features[start : start + CHUNK])

    def _features(self, X: ArrayLike) -> NDArray[Any]:
        """Checked features, in the type of fit."""
        check_is_fitted(self)
        return np.asarray(validate_data(self, self._by_name(X), reset=False, dtype=[self.dtype_]))

    def _score(self, X: Array) -> tuple[Array, Array]:
        """Scores and logits, in the array API."""
        raw, logits = self.head_with_scores_(X)
        predicted = logits.__array_namespace__().argmax(logits, axis=1)
        return self.rejector_(self.evidence_scale_(raw, predicted)), logits

    def explain(self, X: ArrayLike, *, unknown_share: float | None = None) -> Explanation:
        """Why each sample is accepted or rejected.

        Parameters
        ----------
        unknown_share
            Share of unknown samples among samples like these, for :attr:`Explanation.p_unknown`. None: it is estimated
            from X, so X should be a batch rather than one sample.
        """
        if unknown_share is not None:
            check_fraction("unknown_share", unknown_share, one=False)
        return explain(self, self._features(X), unknown_share)

    def discover(self, X: ArrayLike, *, texts: ArrayLike | None = None) -> Groups:
        """Groups among the samples that are rejected.

        Parameters
        ----------
        texts
            Text of each sample, for the words that set a group apart.
        """
        features = self._features(X)
        if texts is not None:
            texts = np.asarray(texts)
            check_same_length(X=features, texts=texts)
        return discover(self, features, texts)

    def add_classes(self, X: ArrayLike, y: ArrayLike, *, names: ArrayLike | None = None) -> Self:
        """Learn new classes, or more rows of known ones, without the data of :meth:`fit`.

        The weights of all other classes stay, so a row gets another class only if it is given to a class of ``y``.
        Thresholds, p-values and ``guarantee_`` are restated; ``report_.notes`` says how many decisions on training
        rows change. New classes come after the others in ``classes_``.

        Parameters
        ----------
        X
            Embeddings (n, d), by the encoder of :meth:`fit`.
        y
            Class of each row. A new class needs two rows, and has no guarantee of its own with fewer than ten.
        names
            Texts, file names or ids of the rows, for :meth:`explain`.
        """
        from openauc.features.classifier.extension import add_classes

        add_classes(self, self._features(X), y, names)
        return self

    def set_threshold(
        self,
        threshold: str | float | None = None,
        *,
        acceptance: float | None = None,
        per_class: bool | None = None,
        costs: Costs | Mapping[str, float] | None = None,
    ) -> Self:
        """Choose another threshold without fitting again; arguments that are left out keep their values."""
        check_is_fitted(self)
        if threshold is None and acceptance is not None:
            threshold = "acceptance"
        given = {"threshold": threshold, "acceptance": acceptance, "per_class": per_class, "costs": costs}
        changed = copy(self).set_params(**{name: value for name, value in given.items() if value is not None})
        changed._check_parameters()
        known = self.calibration_scores_, self.calibration_classes_, self.calibration_kind_, self.calibration_later_
        changed._take_calibration(*known)
        self.__dict__.update(vars(changed))
        return self

    def calibrate(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Take thresholds and p-values from samples of known classes that :meth:`fit` did not get.

        The guarantee is then that of a split: exact. Rows whose class in ``y`` is not known are left out.
        """
        check_is_fitted(self)
        score, predicted = self._decide(X)
        if y is not None:
            known = self._place(y) != UNKNOWN
            check_same_length(X=score, y=known)
            score, predicted = score[known], predicted[known]
        if not len(score):
            raise ValueError("there is no sample of a known class to calibrate with; pass some.")
        self._take_calibration(score, predicted, "split")
        return self

    def _take_calibration(self, scores: Floats, predicted: Rows, kind: str, later: Rows | None = None) -> None:
        """Take scores of known samples; ``later`` is the class of those whose class fit did not know, else -1."""
        self.calibration_scores_, self.calibration_classes_, self.calibration_kind_ = scores, predicted, kind
        self.calibration_later_ = np.full(len(scores), UNKNOWN) if later is None else later
        n = len(scores)
        enough = smallest_sample(self.acceptance) if self.acceptance < 1.0 else 1
        fewest = enough if self.per_class and self.acceptance < 1.0 else None
        self.calibration_ = Calibration.of(
            scores, predicted, len(self.classes_), fewest=fewest, later=self.calibration_later_, enough=enough
        )
        self.guarantee_details_ = ""
        if self.threshold != "acceptance":
            value, self.guarantee_ = self._threshold_without_guarantee()
            self.thresholds_ = np.full(len(self.classes_), value)
            return
        self.thresholds_, missing = self.calibration_.thresholds(self.acceptance)
        self.guarantee_, self.guarantee_details_ = guarantee(self.acceptance, kind, n)
        if missing:
            self.guarantee_ = f"none: {n} calibration samples, {missing} are needed; nothing is rejected"
            warnings.warn(
                f"{n} known samples are too few to accept the share {self.acceptance:g} of them with a guarantee "
                f"({missing} are needed), so nothing is rejected; add samples, or ask for a smaller acceptance.",
                stacklevel=3,
            )
        elif fewest is not None:
            small = self.classes_[np.bincount(predicted, minlength=len(self.classes_)) < fewest].tolist()
            but = f" but {named(small, 5)}: each has fewer than {fewest} calibration rows, so they share one threshold"
            self.guarantee_details_ += f" It holds for the rows of each predicted class{but if small else ''}."

    def _threshold_without_guarantee(self) -> tuple[float, str]:
        """The threshold that was given, or the best one on held-out classes; and a sentence that says so."""
        if not isinstance(self.threshold, str):
            return float(self.threshold), "none; the threshold was given"
        score, kinds = self.held_out_scores_, self.held_out_kinds_  # 0: correct, 1: misclassified, -1: unknown
        if not len(score):
            raise ValueError(
                f"threshold={self.threshold!r} needs held-out classes, and there are none: {len(self.classes_)} "
                "classes are too few, or the encoder was trained on them; use threshold='acceptance'."
            )
        if self.threshold == "cost":
            truth, predicted = np.minimum(kinds, 0), np.maximum(kinds, 0)
            point = choose_threshold(truth, predicted, score, target="cost", costs=self.costs)
            return point.threshold, "none; best cost on held-out classes"
        known, unknown, at = np.sort(score[kinds >= 0]), np.sort(score[kinds < 0]), np.unique(score)
        gain = np.searchsorted(known, at, "right") / len(known) - np.searchsorted(unknown, at, "right") / len(unknown)
        return float(at[gain.argmax()]), "none; best Youden index on held-out classes"

    def save(self, folder: Any) -> None:
        """Write the model to a folder, as one safetensors file; no pickle."""
        from openauc.features.classifier.files import save

        save(self, folder)

    @classmethod
    def load(cls, folder: Any) -> OpenSetClassifier:
        """Read what :meth:`save` wrote."""
        from openauc.features.classifier.files import load

        return load(folder)

    def save_pretrained(self, save_directory: Any, *, repo_id: str | None = None) -> None:
        """:meth:`save`, and a model card in ``README.md`` unless there is one."""
        from openauc.features.classifier.hub import save_pretrained

        save_pretrained(self, save_directory, repo_id=repo_id)

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: Any,
        *,
        revision: str | None = None,
        token: str | bool | None = None,
        cache_dir: Any = None,
        force_download: bool = False,
        local_files_only: bool = False,
    ) -> OpenSetClassifier:
        """Read a model from a folder, or else from a repository of the Hugging Face Hub.

        Parameters
        ----------
        pretrained_model_name_or_path
            A folder, or the name of a repository, ``"user/model"``.
        revision
            Branch, tag or commit; name a commit to get the same model for ever.
        token, cache_dir, force_download, local_files_only
            As in ``huggingface_hub.hf_hub_download``.
        """
        from openauc.features.classifier.hub import from_pretrained

        options = {"cache_dir": cache_dir, "force_download": force_download, "local_files_only": local_files_only}
        return from_pretrained(pretrained_model_name_or_path, revision=revision, token=token, **options)

    def push_to_hub(
        self,
        repo_id: str,
        *,
        commit_message: str = "Push model using openauc.",
        private: bool | None = None,
        token: str | bool | None = None,
        branch: str | None = None,
        create_pr: bool | None = None,
        names: bool = False,
    ) -> str:
        """Upload the model and its card to the Hugging Face Hub; return the address of the commit.

        Parameters
        ----------
        repo_id
            Name of the repository, ``"user/model"``; it is created if it does not exist.
        private
            Whether a new repository is private; None: as your account or organization has it.
        token
            As in ``huggingface_hub``; None: that of ``hf auth login``.
        branch
            Where to commit; it is created if it does not exist. None: ``main``.
        create_pr
            Whether to open a pull request rather than commit.
        names
            Whether to upload the texts, file names or ids of the training rows that the model keeps for
            :meth:`explain`. Their embeddings are uploaded anyway.
        """
        from openauc.features.classifier.hub import push_to_hub

        options: Any = {"private": private, "token": token, "branch": branch, "create_pr": create_pr, "names": names}
        return push_to_hub(self, repo_id, commit_message=commit_message, **options)

    def export_onnx(self, path: Any, *, dtype: str | None = None) -> None:
        """Write the model as ONNX: embedding in; label, score and p-value out, threshold and class names inside.

        The embedding is ``"float32"`` or ``"float64"``, as ``dtype`` says; None: as the model was fitted.
        """
        from openauc.features.classifier.onnx import export

        export(self, path, dtype)
