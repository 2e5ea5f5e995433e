r"""Watch a classifier in use: have the samples it meets changed since its calibration?

Three things are watched, each by betting on online conformal p-values (:mod:`openauc.features.monitor.betting`):

* **rejected**: the share of samples with scores as high as those the threshold rejects;
* **classes**: the same, among the samples of each predicted class;
* **scores**: the distribution of all scores.

Each may raise a false alarm with probability :math:`\alpha/3`, and each of C classes with :math:`\alpha/(3C)`. So a
stream in which nothing changes ever raises an alarm with probability at most :math:`\alpha`, however long it is and
however often one looks. This needs a reference that is exchangeable with the stream: the samples of ``calibrate`` or of
``calibration="split"``, or others that the classifier was not fitted on. Cross-fitted scores come from the models of
the folds, which were trained on fewer samples. With them the monitor bets on *rises* only. The guarantee then holds if
the classifier gives known samples no higher scores than these models did: lower scores make p-values larger, and
these bets lose on large p-values.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import zipfile
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from openauc._files import PathLike, atomic_write, parse_json
from openauc._validation import as_scores, as_vector, check_fraction, check_same_length
from openauc.features.classifier.estimator import OpenSetClassifier
from openauc.features.monitor.betting import Counts, Floats, Ranks, Wealth, shape_bets, tail_bets

PARTS = ("rejected", "classes", "scores")
LEVELS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)  # of tails, if the threshold was not chosen by the share it accepts
FORMAT, VERSION = "openauc monitor", 2
LIMITS = (
    "More rejected samples are unknown ones that have begun to arrive, or known ones that look different from the "
    "reference: scores alone cannot tell which, labels of a few of them can.",
    "If all scores together change but those of no class do, some classes have become more frequent.",
    "Unknown samples that look like a known class leave no trace, nor does a wrong class with a usual score: how many "
    "answers are right cannot be seen without labels.",
    "No alarm does not mean that nothing has changed, but that it is too little to be told from chance.",
)
"""What scores without labels can and cannot tell."""
MOST_WINDOWS = 256
TENTHS = 10
FIELDS = ("called", "rejected", "tenths", "evidence", "times")
STATE = ("staked", "seen", "lead", "since", "samples", "hits")


@dataclass(frozen=True)
class Alarm:
    """The first time that the change of a watched part is significant.

    Parameters
    ----------
    part
        One of :data:`PARTS`.
    label
        The predicted class, for ``"classes"``.
    sample
        Number of the sample in the stream, from 1.
    since
        Number of the sample at which the change most likely began.
    time
        Time of the sample, if the stream has times.
    seen, usual
        Share rejected from then up to the alarm, and in the reference. For ``"scores"`` the share of samples above nine
        tenths of the reference.
    """

    part: str
    label: str | None
    sample: int
    since: int
    time: str | None
    seen: float
    usual: float

    def __str__(self) -> str:
        when = f"sample {self.sample:,}" + (f" ({self.time})" if self.time else "")
        if self.part == "scores":
            share = f"{self.seen:.1%} are above nine tenths of the reference"
            return f"{when}: scores have changed, likely since sample {self.since:,}; {share}"
        which = "all samples" if self.label is None else f"those called {self.label}"
        seen = f"rejected of {which} are {self.seen:.1%}, likely since sample {self.since:,}"
        return f"{when}: {seen}; in the reference {self.usual:.1%}"


class Timeline:
    """Counts of decisions in consecutive windows of a stream.

    Attributes
    ----------
    size
        Samples in a window; neighbours are joined when there are more than 256, so that memory is bounded.
    called, rejected
        (W, C) samples by predicted class, and how many of them were rejected.
    tenths
        (W, 10) samples between the tenths of the reference scores, from the lowest.
    evidence
        (W, P) highest evidence of each part in the window, as a logarithm.
    times
        (W, 2) first and last time in each window, as text; empty where none was given.
    """

    def __init__(self, size: int, n_classes: int, n_parts: int) -> None:
        self.size = size
        self.called = np.zeros((0, n_classes), np.int64)
        self.rejected = np.zeros((0, n_classes), np.int64)
        self.tenths = np.zeros((0, TENTHS), np.int64)
        self.evidence = np.zeros((0, n_parts))
        self.times = np.zeros((0, 2), "U1")

    @property
    def n(self) -> Counts:
        """(W,) samples of each window; only the last may have fewer than ``size``."""
        return np.asarray(self.called.sum(axis=1))

    @property
    def room(self) -> int:
        """Samples that still fit into the current window."""
        return self.size - int(self.n[-1]) % self.size if len(self.n) else self.size

    def add(self, *piece: NDArray[Any]) -> None:
        """Count a piece of the stream of at most ``room`` samples: one row of each field."""
        begins = self.room == self.size
        if begins and len(self.called) == MOST_WINDOWS:
            for name in FIELDS:
                windows = getattr(self, name)
                setattr(self, name, _joined(name, windows[::2], windows[1::2]))
            self.size *= 2
        for name, new in zip(FIELDS, piece, strict=True):
            windows = getattr(self, name)
            kept, last = (windows, new[None]) if begins else (windows[:-1], _joined(name, windows[-1:], new[None]))
            setattr(self, name, np.concatenate([kept, last]))


def _readable(time: str) -> str:
    """A time in ISO 8601 with a blank, without fractions of seconds; any other text as it is.

    >>> _readable("2026-05-01T12:30:00.000000"), _readable("2026-05-01T12:30Z"), _readable("shift 7")
    ('2026-05-01 12:30:00', '2026-05-01 12:30Z', 'shift 7')
    """
    return re.sub(r"^(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d(?::\d\d)?)(?:\.\d+)?", r"\1 \2", str(time))


def _joined(name: str, first: NDArray[Any], second: NDArray[Any]) -> NDArray[Any]:
    """A field of windows that are joined with the windows after them."""
    if name == "times":
        return np.stack([np.where(first[:, 0] == "", second[:, 0], first[:, 0]), second[:, 1]], axis=1)
    return np.asarray(np.maximum(first, second) if name == "evidence" else first + second)


class Monitor:
    """Watches a classifier for change, sample by sample, with a stated probability of a false alarm.

    Parameters
    ----------
    classifier
        A fitted classifier.
    alpha
        Probability that a stream in which nothing changes ever raises an alarm.
    reference
        Samples to compare with, instead of those of the calibration; the classifier must not have been fitted on them.
    window
        Samples in a window of the timeline. When there are too many windows, they are joined.
    random_state
        Seed of the numbers that break ties.

    Attributes
    ----------
    alarms
        What has changed, in order of time; each part and each class once.
    n
        Samples so far.
    timeline
        Counts and evidence in windows.
    usual
        Of the reference: samples by class, those of them rejected, samples in each tenth of the scores.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(400, 3)) + 6 * np.eye(3)[np.arange(400) % 3], np.arange(400) % 3
    >>> classifier = OpenSetClassifier(random_state=0).fit(X[:200], y[:200]).calibrate(X[200:])
    >>> monitor = Monitor(classifier, alpha=0.01)
    >>> monitor.update(rng.normal(size=(300, 3)) + 6 * np.eye(3)[np.arange(300) % 3])
    ()
    >>> monitor.update(rng.normal(size=(100, 3)))[0].part
    'scores'
    """

    def __init__(
        self,
        classifier: OpenSetClassifier,
        *,
        alpha: float = 0.01,
        reference: ArrayLike | None = None,
        window: int = 500,
        random_state: int = 0,
    ) -> None:
        self.classifier = classifier
        self.alpha = check_fraction("alpha", alpha, one=False)
        if window < 1:
            raise ValueError(f"window is {window!r}; expected a number of samples.")
        self.window = window
        score, predicted = classifier.calibration_scores_, classifier.calibration_classes_
        kind = str(classifier.calibration_kind_)
        if reference is not None:
            (score, predicted), kind = classifier._decide(reference), "reference"
        self._begin(kind, int(random_state))
        self._tenths = np.quantile(score, np.arange(1, TENTHS) / TENTHS)
        self.usual = self._counted(score, predicted)
        for ranks, group in zip(self._ranks, self._groups(predicted), strict=True):
            ranks.add(score, group)

    def _begin(self, kind: str, seed: int) -> None:
        """Set all attributes that do not depend on the reference samples themselves."""
        self.reference_kind = kind
        self.n = 0
        self.alarms: tuple[Alarm, ...] = ()
        classifier, n_classes = self.classifier, len(self.classifier.classes_)
        by_share = classifier.threshold == "acceptance" and classifier.acceptance < 1.0
        tails = tail_bets((1.0 - classifier.acceptance,) if by_share else LEVELS, falls=not self.one_sided)
        self._by_threshold = np.asarray(classifier.calibration_.group, np.int64)
        self._ranks = [Ranks() for _ in self._groups(np.zeros(0, np.int64))]
        self._wealth = [Wealth(tails), Wealth(tails, n_classes), Wealth(shape_bets(falls=not self.one_sided))]
        self.timeline = Timeline(self.window, n_classes, len(PARTS))
        self._rng = np.random.default_rng(seed)

    @property
    def one_sided(self) -> bool:
        """Whether only rises are bet on."""
        return self.reference_kind == "cross"

    def _groups(self, predicted: Counts) -> list[Counts]:
        """Groups within which samples are ranked: all, by class and, if there are several thresholds, by threshold."""
        found = [np.zeros(len(predicted), np.int64), predicted]
        return [*found, self._by_threshold[predicted]] if self._by_threshold.any() else found

    def _counted(self, score: Floats, predicted: Counts) -> tuple[Counts, ...]:
        """Samples by class, those of them rejected, and samples between tenths of the reference."""
        n_classes = len(self.classifier.classes_)
        rejected = score > self.classifier.thresholds_[predicted]
        return (
            np.bincount(predicted, minlength=n_classes),
            np.bincount(predicted[rejected], minlength=n_classes),
            np.bincount(np.searchsorted(self._tenths, score), minlength=TENTHS),
        )

    def update(self, X: ArrayLike, *, time: Sequence[Any] | NDArray[Any] | None = None) -> tuple[Alarm, ...]:
        """Watch embeddings, in the order they came in; returns the alarms they raised."""
        return self.update_scores(*self.classifier._decide(X), time=time)

    def update_scores(
        self, score: ArrayLike, predicted: ArrayLike, *, time: Sequence[Any] | NDArray[Any] | None = None
    ) -> tuple[Alarm, ...]:
        """The same for scores and indices of predicted classes, where they are known already."""
        scores, classes = as_scores("score", score), as_vector("predicted", predicted)
        times = np.array([""] * len(scores) if time is None else [str(one) for one in time], str)
        check_same_length(score=scores, predicted=classes, time=times)
        n_classes = len(self.classifier.classes_)
        if len(classes) and not (classes.dtype.kind in "iu" and 0 <= classes.min() <= classes.max() < n_classes):
            raise ValueError(f"predicted must be indices of the classes, integers from 0 to {n_classes - 1}.")
        before, at = len(self.alarms), 0
        while at < len(scores):
            piece = slice(at, at + self.timeline.room)
            self._update_window(scores[piece], classes[piece].astype(np.int64), times[piece])
            at = piece.stop
        return self.alarms[before:]

    def _update_window(self, score: Floats, predicted: Counts, time: NDArray[Any]) -> None:
        """Watch a piece of the stream that does not go beyond the end of the window."""
        # A row for each sample, so that nothing depends on the size of the window.
        chance = 1.0 - self._rng.random((len(score), len(self._ranks)))
        p_values = [
            ranks.p_values(score, group, one)
            for ranks, group, one in zip(self._ranks, self._groups(predicted), chance.T, strict=True)
        ]
        zero, number = np.zeros(len(score), np.int64), self.n + 1 + np.arange(len(score))
        ranked = (p_values[-1 if len(p_values) > 2 else 0], p_values[1], p_values[0])
        rejected = score > self.classifier.thresholds_[predicted]
        hits = rejected, rejected, np.searchsorted(self._tenths, score) == TENTHS - 1
        crossed: list[tuple[int, int, int, int, float]] = []
        reached, line = np.empty(len(PARTS)), -np.log(self.alpha)
        for part, (wealth, p_value, hit) in enumerate(zip(self._wealth, ranked, hits, strict=True)):
            before = deepcopy(wealth)
            group = predicted if PARTS[part] == "classes" else zero
            # The probability of a false alarm is divided among the parts, and among the classes.
            evidence = wealth.update(p_value, group, number, hit) - np.log(len(PARTS) * len(wealth.highest))
            reached[part] = evidence.max()
            rows = np.flatnonzero((evidence >= line) & (wealth.highest[group] < line))
            new, first = np.unique(group[rows], return_index=True)
            for row, g in zip(rows[first].tolist(), new.tolist(), strict=True):
                then, until = deepcopy(before), slice(row + 1)
                then.update(p_value[until], group[until], number[until], hit[until])
                crossed.append((row, part, g, *then.beginning(g)))
            np.maximum.at(wealth.highest, group, evidence)
        times = np.array([_readable(one) for one in (time[0], time[-1])])
        self.timeline.add(*self._counted(score, predicted), reached, times)
        self.alarms += tuple(
            self._alarm(row, part, group_, _readable(time[row]), since, seen)
            for row, part, group_, since, seen in sorted(crossed)
        )
        self.n += len(score)

    def _alarm(self, row: int, part: int, group: int, time: str, since: int, seen: float) -> Alarm:
        sample, of_class = self.n + row + 1, PARTS[part] == "classes"
        called, rejected, tenths = self.usual
        chosen = group if of_class else slice(None)
        usual = np.sum(rejected[chosen]) / max(int(np.sum(called[chosen])), 1)
        if PARTS[part] == "scores":
            usual = tenths[-1] / tenths.sum()
        label = str(self.classifier.classes_[group]) if of_class else None
        return Alarm(PARTS[part], label, sample, int(np.clip(since, 1, sample)), time or None, seen, float(usual))

    @property
    def usual_share(self) -> float:
        """Share of the reference that the threshold rejects."""
        return float(self.usual[1].sum() / self.usual[0].sum())

    @property
    def rejected_share(self) -> float:
        """Share of the stream that was rejected."""
        return float(self.timeline.rejected.sum() / max(self.n, 1))

    def p_value(self, part: str) -> float:
        """Bound on the probability that the evidence of a part ever gets as high if nothing changes.

        It is valid at any time, and corrected for the number of parts and classes: an alarm is a value of at most
        alpha.
        """
        return float(min(1.0, np.exp(-self._wealth[PARTS.index(part)].highest.max())))

    def evidence_by_class(self) -> Floats:
        """(C,) the same bound for each predicted class."""
        return np.minimum(1.0, np.exp(-self._wealth[PARTS.index("classes")].highest))

    @property
    def guarantee(self) -> str:
        """What is guaranteed about false alarms, in a sentence."""
        rate = f"if nothing changes, an alarm is ever raised with probability at most {self.alpha:g}"
        if not self.one_sided:
            return f"{rate}, however long the stream is and however often one looks"
        condition = "known samples score no higher than the cross-fitted scores of the calibration"
        remedy = "calibrate with samples the model has not seen, or pass a reference, for both"
        return f"{rate}, as long as {condition}; only rises are looked for ({remedy})"

    @property
    def headline(self) -> str:
        """Numbers of samples and shares rejected, of the stream and of the reference."""
        seen = f"{self.n:,} samples, {self.rejected_share:.1%} rejected"
        return f"{seen}; {self.usual_share:.1%} of {self.usual[0].sum():,} in the reference"

    def summary(self) -> str:
        """The headline, the alarms, the guarantee and the limits, a line each."""
        alarms = [f"alarm at {alarm}" for alarm in self.alarms] or ["no alarm"]
        notes = [f"note: {limit}" for limit in LIMITS]
        return "\n".join([self.headline, *alarms, f"guarantee: {self.guarantee}", *notes])

    def save(self, path: PathLike) -> None:
        """Write the state as one file, all or nothing; the classifier is not part of it."""
        about = {
            "format": FORMAT,
            "version": VERSION,
            "model": _fingerprint(self.classifier),
            "alpha": self.alpha,
            "window": self.window,
            "reference": self.reference_kind,
            "n": self.n,
            "alarms": [asdict(alarm) for alarm in self.alarms],
            "rng": self._rng.bit_generator.state,
        }
        arrays = {name: getattr(owner, attribute) for name, (owner, attribute) in self._places().items()}
        arrays |= {f"usual.{i}": counts for i, counts in enumerate(self.usual)}
        arrays["about"] = np.frombuffer(json.dumps(about).encode(), np.uint8)
        with atomic_write(path) as file:
            np.savez(file, allow_pickle=False, **{"timeline.size": np.array(self.timeline.size), **arrays})

    def _places(self) -> dict[str, tuple[Any, str]]:
        """For each array of a file, the object and the attribute that hold it."""
        places: dict[str, tuple[Any, str]] = {"tenths": (self, "_tenths")}
        places |= {f"timeline.{name}": (self.timeline, name) for name in FIELDS}
        for i, ranks in enumerate(self._ranks):
            places |= {f"ranks.{i}.{name}": (ranks, name) for name in ("keys", "counts")}
        for i, wealth in enumerate(self._wealth):
            places[f"highest.{i}"] = wealth, "highest"
            places |= {f"wealth.{i}.{name}": (wealth, name) for name in STATE}
        return places

    @classmethod
    def load(cls, path: PathLike, classifier: OpenSetClassifier) -> Monitor:
        """Go on where :meth:`save` stopped, with the same classifier."""
        content = io.BytesIO(Path(path).read_bytes())
        try:
            if not zipfile.is_zipfile(content):  # numpy would advise to load it as a pickle
                raise ValueError("it is not an .npz file")
            with np.load(content, allow_pickle=False) as stored:
                arrays = dict(stored)
            about = parse_json(arrays["about"].tobytes())
            if about["format"] != FORMAT or about["version"] != VERSION:
                raise ValueError(f"its format is {about['format']} {about['version']}")
            monitor = cls(classifier, alpha=about["alpha"], window=about["window"])
            if same_model := about["model"] == _fingerprint(classifier):
                monitor._restore(about, arrays)
        except Exception as error:  # an edited or damaged file fails in many ways
            raise ValueError(f"{path} is not a state of a monitor ({error}); begin a new one.") from None
        if not same_model:
            other = "another model, or to this one with another threshold or calibration"
            raise ValueError(f"{path} belongs to {other}; load that one, or begin a new state.")
        return monitor

    def _restore(self, about: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        """Take the content of a file, after a check that it fits this classifier."""
        if about["reference"] not in ("cross", "split", "reference"):
            raise ValueError(f"its reference is {about['reference']!r}")
        self._begin(about["reference"], 0)
        for name, (owner, attribute) in self._places().items():
            setattr(owner, attribute, _like(name, arrays[name], getattr(owner, attribute)))
        self.usual = tuple(_like(f"usual.{i}", arrays[f"usual.{i}"], fresh) for i, fresh in enumerate(self.usual))
        self._rng.bit_generator.state = about["rng"]
        self.alarms = tuple(Alarm(**alarm) for alarm in about["alarms"])
        for alarm in self.alarms:
            numbers = isinstance(alarm.sample, int) and isinstance(alarm.since, int)
            if alarm.part not in PARTS or not (numbers and isinstance(alarm.label, str | None) and str(alarm)):
                raise ValueError(f"it has the alarm {alarm}")
        self.n, self.timeline.size = int(about["n"]), int(arrays["timeline.size"])
        if any(len(ranks.keys) != len(ranks.counts) or (np.diff(ranks.keys) <= 0).any() for ranks in self._ranks):
            raise ValueError("its ranks are not in order")
        size, sizes = self.timeline.size, self.timeline.n
        lengths = {len(getattr(self.timeline, name)) for name in FIELDS}
        if len(lengths) > 1 or sizes.sum() != self.n or (sizes[:-1] != size).any() or max([1, *sizes]) > size:
            raise ValueError("the samples of its windows do not add up")
        if (self.usual[1] > self.usual[0]).any():
            raise ValueError("its reference has more rejected samples than samples")


def _like(name: str, values: NDArray[Any], fresh: NDArray[Any]) -> NDArray[Any]:
    """``values`` of a file, if they may replace ``fresh``; there may be any number of ranks and windows."""
    first, kind = int(name.startswith(("ranks", "timeline"))), values.dtype.kind
    if kind != fresh.dtype.kind or values.ndim != fresh.ndim or values.shape[first:] != fresh.shape[first:]:
        raise ValueError(f"{name} is {values.dtype} of shape {values.shape}; expected {fresh.dtype} of {fresh.shape}")
    if (kind == "f" and name != "tenths" and not (values < np.inf).all()) or (kind == "i" and (values < 0).any()):
        raise ValueError(f"{name} holds NaN, infinity or negative counts")
    return values


def _fingerprint(classifier: OpenSetClassifier) -> str:
    """Hash of all that a monitor uses of a classifier."""
    digest = hashlib.sha256(repr(classifier.classes_.tolist()).encode())
    for values in (classifier.thresholds_, classifier.calibration_scores_, classifier.calibration_classes_):
        digest.update(np.ascontiguousarray(values).tobytes())
    return digest.hexdigest()
