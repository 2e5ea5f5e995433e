"""Why a sample is accepted or rejected: what each score adds, the nearest training rows, and one sentence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax
from sklearn.isotonic import IsotonicRegression
from sklearn.neighbors import NearestNeighbors

from openauc._columns import is_empty
from openauc.features.classifier.evidence import BY_CLASS
from openauc.features.classifier.scaling import CHUNK, Scaling
from openauc.features.scores.base import Floats, Rows
from openauc.features.scores.distance import PER_CLASS, REFERENCES, SPREAD_ROWS, draw_references

if TYPE_CHECKING:
    from openauc.features.classifier.estimator import OpenSetClassifier

NEAREST = 3  # training rows that are shown for each sample
FAR, LESS_ALIKE = 0.99, 0.8  # shares of training rows nearer to others than a sample that is "far", or "less alike"
LONGEST = 200  # characters of a name that are kept
BETWEEN = 0.3  # a sample is between two classes if their probabilities differ by less
STEPS = 200  # that estimate the share of unknown samples
LARGEST = 1e18  # of features that are compared: its square is finite
MOST_KEPT, MOST_NUMBERS = 8192, 2**22
"""Rows that are kept, and numbers in them; at least as many rows as the references of scores."""


class Examples(NamedTuple):
    """Training rows that a model keeps, equally many of each class where possible."""

    row: Rows  # (m,) numbers of the rows in the data of fit
    label: Rows  # (m,) index of the class
    apart: Floats  # (m,) mean distance to the nearest other examples, over the usual one of the class
    usual: Floats  # (C,) usual mean distance of an example of each class to the nearest other ones
    features: NDArray[Any]  # (m, d), scaled
    size: Rows  # (C,) training rows of each class, kept or not
    names: NDArray[Any] | None = None  # (m,) texts, file names or ids

    @classmethod
    def draw(cls, X: NDArray[Any], y: Rows, rows: Rows, scaling: Scaling) -> Examples:
        """Examples from the rows of known classes that a head was fitted on."""
        row = rows[_draw(y[rows], X.shape[1])]
        features = scaling.rows(X, row)
        return cls._of(row, y[row], _distance(features, features), features, np.bincount(y[rows]))

    @classmethod
    def _of(cls, row: Rows, label: Rows, distance: Floats, features: NDArray[Any], size: Rows) -> Examples:
        total, count = np.bincount(label, distance), np.bincount(label)
        usual = (total + SPREAD_ROWS * distance.mean()) / (count + SPREAD_ROWS)
        usual = np.maximum(usual, np.finfo(np.float32).tiny)  # of copies
        return cls(row, label, distance / usual[label], usual, features, size)

    def named(self, names: NDArray[Any]) -> Examples:
        """The same with the texts, file names or ids of all rows of fit, long ones cut."""
        return self._replace(names=_told(self.row, names[self.row].tolist()))

    def extended(self, features: NDArray[Any], label: Rows, first: int, names: ArrayLike | None) -> Examples:
        """The same with further rows, the first of them with the number ``first``; the others keep their distances."""
        own = None if self.names is None and names is None else self._names()
        row, label = np.append(self.row, first + np.arange(len(label))), np.append(self.label, label)
        size = np.bincount(label[len(self.row) :], minlength=len(self.size))
        size[: len(self.size)] += self.size
        kept = _draw(label, features.shape[1])
        together = np.concatenate([self.features, features])
        distance = np.append(self.apart * self.usual[self.label], _distance(features, together))
        new = Examples._of(row[kept], label[kept], distance[kept], together[kept], size)
        if own is None:
            return new
        given = _told(row[len(self.row) :], [None] * len(features) if names is None else np.asarray(names).tolist())
        return new._replace(names=np.append(own, given)[kept])

    def _names(self) -> NDArray[np.str_]:
        return _told(self.row, [None] * len(self.row)) if self.names is None else self.names

    def nearest(self, features: NDArray[Any]) -> tuple[Floats, Rows]:
        """(n, 3) distances to the nearest examples, and which they are, the nearest first."""
        finite = np.nan_to_num(np.clip(features, -LARGEST, LARGEST), nan=LARGEST)
        nearest = NearestNeighbors(n_neighbors=min(NEAREST, len(self.row))).fit(self.features)
        distance, place = nearest.kneighbors(finite)
        return distance, place


def _distance(rows: NDArray[Any], examples: NDArray[Any]) -> Floats:
    """(n,) mean distance of rows, which are among the examples, to the nearest other ones."""
    nearest = NearestNeighbors(n_neighbors=min(NEAREST + 1, len(examples))).fit(examples).kneighbors(rows)[0]
    return np.asarray(nearest[:, 1:].mean(axis=1))


def _draw(label: Rows, width: int) -> Rows:
    most = min(MOST_KEPT, MOST_NUMBERS // width)
    return draw_references(label, max(REFERENCES, PER_CLASS * (int(label.max()) + 1), most))


def _told(rows: Rows, names: list[Any]) -> NDArray[np.str_]:
    """Names of rows, long ones cut; the number of the row where a name is missing."""
    told = zip(rows.tolist(), names, strict=True)
    return np.array([f"row {row}" if is_empty(name) else str(name)[:LONGEST] for row, name in told])


@dataclass(frozen=True)
class Explanation:
    """Why each of n samples is accepted or rejected; ``str()`` has a line for each.

    Parameters
    ----------
    sentence
        (n,) the reason in words.
    unknown, predicted
        (n,) whether it is rejected, and its class, rejected or not.
    score, threshold
        (n,) its open-set score, and the threshold of its class.
    contributions
        For each score, (n,) what it adds to the open-set score, compared with a usual known sample. Together they are
        ``score`` less a constant.
    p_unknown
        (n,) probability that a sample is unknown, where the share ``unknown_share`` of the samples is, and unknown
        samples score like those of held-out classes; too low where they are more like the known ones than these. None
        if no classes could be held out.
    unknown_share
        The share that was given, or else the estimated one, of which the same holds.
    nearest_rows, nearest_labels, nearest_distances
        (n, 3) nearest of the training rows that the model keeps: numbers of the rows, classes, distances between
        scaled features.
    nearest_names
        (n, 3) texts, file names or ids of these rows, if the model keeps them.
    """

    sentence: NDArray[np.str_]
    unknown: NDArray[np.bool_]
    predicted: NDArray[Any]
    score: Floats
    threshold: Floats
    contributions: dict[str, Floats]
    p_unknown: Floats | None
    unknown_share: float | None
    nearest_rows: Rows
    nearest_labels: NDArray[Any]
    nearest_distances: Floats
    nearest_names: NDArray[Any] | None

    def __str__(self) -> str:
        rows = zip(self.unknown.tolist(), self.sentence.tolist(), strict=True)
        return "\n".join(f"{'unknown' if unknown else 'known'}: {sentence}" for unknown, sentence in rows)

    def columns(self) -> dict[str, NDArray[Any]]:
        """Columns to write beside decisions."""
        rows, names = np.char.add("row ", self.nearest_rows.astype(str)), self.nearest_names
        names = rows if names is None else names
        columns: dict[str, NDArray[Any]] = {"explanation": self.sentence}
        if self.p_unknown is not None:
            columns["p_unknown"] = self.p_unknown
        for place in range(names.shape[1]):
            pairs = zip(self.nearest_labels[:, place].tolist(), names[:, place].tolist(), strict=True)
            columns[f"nearest_{place + 1}"] = np.array([f"{label}: {name}" for label, name in pairs])
        return columns | {f"adds_{name}": values for name, values in self.contributions.items()}


def explain(classifier: OpenSetClassifier, X: NDArray[Any], unknown_share: float | None) -> Explanation:
    """Explain the decisions of a fitted classifier on (n, d) features."""
    if not hasattr(classifier, "examples_"):
        raise ValueError("this model of an older openauc keeps no training rows to compare with; fit it again.")
    examples, classes = classifier.examples_, classifier.classes_
    parts = [_parts(classifier, X[start : start + CHUNK]) for start in range(0, len(X), CHUNK)]
    score, likely, lead, contributions, distance, nearest = map(np.concatenate, zip(*parts, strict=True))
    predicted, threshold = likely[:, 0], classifier.thresholds_[likely[:, 0]]
    unknown = ~(score <= threshold)  # NaN is unknown
    added: dict[str, Floats] = {}
    for column, values in zip(classifier.rejector_.names, contributions.T, strict=True):
        name = column.removesuffix(BY_CLASS)
        added[name] = added.get(name, 0.0) + values
    held_out = classifier.held_out_scores_[classifier.held_out_kinds_ < 0]
    p_unknown, share = probability(score, classifier.calibration_scores_, held_out, unknown_share)
    apart = distance.mean(axis=1) / examples.usual[predicted]
    far, less_alike = np.quantile(examples.apart, [FAR, LESS_ALIKE])
    strongest = np.array(list(added))[np.argmax(list(added.values()), axis=0)]

    def sentence(i: int) -> str:
        one, other = classes[likely[i]].tolist()
        if not unknown[i]:
            return f"like `{one}`"
        if not apart[i] <= far:
            return "far from everything seen in training"
        if lead[i] < BETWEEN:
            return f"between `{one}` and `{other}`"
        if apart[i] > less_alike:
            return f"like `{one}`, but the nearest training rows are less alike than usual"
        return f"like `{one}`, but {strongest[i]} is higher than usual"

    return Explanation(
        sentence=np.array(list(map(sentence, range(len(X))))),
        unknown=unknown,
        predicted=classes[predicted],
        score=score,
        threshold=threshold,
        contributions=added,
        p_unknown=p_unknown,
        unknown_share=share,
        nearest_rows=examples.row[nearest],
        nearest_labels=classes[examples.label[nearest]],
        nearest_distances=distance,
        nearest_names=None if examples.names is None else examples.names[nearest],
    )


def _parts(classifier: OpenSetClassifier, X: NDArray[Any]) -> tuple[NDArray[Any], ...]:
    """Scores, the two likeliest classes, the lead of the first, contributions, and the nearest examples."""
    fitted, rejector = classifier.head_with_scores_, classifier.rejector_
    raw, logits = fitted(X)
    likely = np.argsort(-logits, axis=1, kind="stable")[:, :2]
    first, second = np.take_along_axis(softmax(logits, axis=1), likely, axis=1).T
    evidence = classifier.evidence_scale_(raw, likely[:, 0])
    distance, nearest = classifier.examples_.nearest(fitted.scaling(X))
    return rejector(evidence), likely, first - second, rejector.contributions(evidence), distance, nearest


def probability(
    score: ArrayLike, known: ArrayLike, unknown: ArrayLike, share: float | None
) -> tuple[Floats | None, float | None]:
    """(n,) probabilities that samples are unknown, from scores of known and of unknown samples; and the share.

    The odds at equal shares are an isotonic function of the score. The share is the given one, or else the one that
    makes the samples likeliest (Saerens et al., 2002), with one known and one unknown sample added.

    >>> p, share = probability([0.0, 3.0], known=[0.0, 0.0, 0.0, 3.0], unknown=[0.0, 3.0, 3.0, 3.0], share=0.5)
    >>> p.round(9).tolist()
    [0.25, 0.75]
    """
    known, unknown = np.asarray(known), np.asarray(unknown)
    if not (len(known) and len(unknown)):
        return None, share
    truth = np.repeat([0.0, 1.0], [len(known), len(unknown)])
    weight = np.where(truth, 1.0 / len(unknown), 1.0 / len(known))
    at = np.concatenate([known, unknown, np.asarray(score)])
    at = np.nan_to_num(at, nan=np.finfo(np.float64).max)  # a score that overflows is unknown
    curve = IsotonicRegression(out_of_bounds="clip").fit(at[: len(truth)], truth, weight)
    certain = 1.0 / (min(len(known), len(unknown)) + 2)  # no probability is nearer to 0 or 1
    even = np.clip(curve.predict(at[len(truth) :]), certain, 1.0 - certain)
    odds = even / (1.0 - even)
    found = 0.5 if share is None else share
    for _ in range(STEPS if share is None else 0):
        found = float((1.0 + (found * odds / (found * odds + 1.0 - found)).sum()) / (2.0 + len(odds)))
    return found * odds / (found * odds + 1.0 - found), found
