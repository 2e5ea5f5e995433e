r"""Watching a classifier in use: has what it meets changed against its calibration?

Three things are watched, each by betting on online conformal p-values (:mod:`openauc.features.monitor.betting`):

* **rejected**: the share of samples with scores as high as those the threshold rejects;
* **classes**: the same, among the samples of each predicted class;
* **scores**: the distribution of all scores.

Each may raise a false alarm with probability :math:`\alpha/3`, and each of C classes with :math:`\alpha/(3C)`, so that
a stream in which nothing changes ever raises one with probability at most :math:`\alpha`, however long it is and
however often one looks. The statement needs samples that are exchangeable with the reference: those of ``calibrate`` or
of ``calibration="split"``, or other samples the classifier was not fitted on. Cross-fitted scores are of other models,
which know less; then only *rises* are bet on, and the statement holds as long as the classifier finds known samples no
more unusual than the models of the folds did: lower scores only make p-values larger, and those bets lose by it.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from openauc._files import PathLike, atomic_write, parse_json
from openauc._validation import as_scores, as_vector, check_fraction, check_same_length
from openauc.features.classifier.estimator import OpenSetClassifier
from openauc.features.monitor.betting import Ranks, Wealth, shape_bets, tail_bets
from openauc.features.monitor.timeline import TENTHS, Delayed, LabelledWindow, Timeline
from openauc.intervals import Interval

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]

PARTS = ("rejected", "classes", "scores")
LEVELS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
"""Tails to bet on where the threshold was not chosen by the share it accepts."""
WEALTH = ("staked", "seen", "lead", "since")
FORMAT, VERSION = "openauc monitor", 1
LIMITS = (
    "More rejected samples are unknown ones that have begun to arrive, or known ones that look different from the "
    "reference: scores alone cannot tell which, labels of a few of them can.",
    "If all scores together change but those of no class do, some classes have become more frequent.",
    "Unknown samples that look like a known class leave no trace, nor does a wrong class with a usual score: how many "
    "answers are right cannot be seen without labels.",
    "No alarm does not mean that nothing has changed, but that it is too little to be told from chance.",
)
"""What data without labels can tell, and what not."""


@dataclass(frozen=True, kw_only=True)
class Alarm:
    """The first time that one of the watched things has changed beyond chance.

    Parameters
    ----------
    part
        One of :data:`PARTS`.
    label
        The predicted class, for ``"classes"``.
    sample
        Number of the sample in the stream, from 1.
    since
        Number of the sample at which the change is likeliest to have begun.
    time
        Time of the sample, if the stream has times.
    seen, usual
        What was seen since then, in whole windows, and in the reference: the share rejected; for ``"scores"`` the share
        above nine tenths of the reference.
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
        return (
            f"{when}: rejected of {which} are {self.seen:.1%}, likely since sample {self.since:,}; in the reference "
            f"{self.usual:.1%}"
        )


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
        What has changed, in order of time; each thing once.
    n
        Samples so far.

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
        score, predicted = classifier.calibration_scores_, classifier.calibration_classes_
        kind = str(classifier.calibration_kind_)
        if reference is not None:
            (score, predicted), kind = classifier._decide(reference), "reference"
        self._begin(kind, window, int(random_state))
        self._tenths = np.quantile(score, np.arange(1, TENTHS) / TENTHS)
        self._usual = self._counted(score, predicted)
        for ranks, group in zip(self._ranks, self._groups(predicted), strict=True):
            ranks.add(score, group)

    def _begin(self, kind: str, window: int, seed: int) -> None:
        """All that does not depend on the reference samples themselves."""
        self.reference_kind = kind
        self.window = window
        self.n = 0
        self.alarms: tuple[Alarm, ...] = ()
        classifier, n_classes = self.classifier, len(self.classifier.classes_)
        share = classifier.acceptance if classifier.threshold == "acceptance" else 1.0
        tails = tail_bets((1.0 - share,) if share < 1.0 else LEVELS, falls=not self.one_sided)
        self._by_threshold = np.asarray(classifier.calibration_.group, np.int64)
        self._ranks = [Ranks() for _ in self._groups(np.zeros(0, np.int64))]
        self._wealth = [Wealth.of(tails), Wealth.of(tails, n_classes), Wealth.of(shape_bets(falls=not self.one_sided))]
        self._highest = [np.zeros(1), np.zeros(n_classes), np.zeros(1)]  # logarithms, by part and class
        self._timeline = Timeline.empty(window, n_classes, len(PARTS))
        self._delayed = Delayed(window)
        self._rng = np.random.default_rng(seed)

    @property
    def one_sided(self) -> bool:
        """Whether only rises are bet on."""
        return self.reference_kind == "cross"

    def _groups(self, predicted: Counts) -> list[Counts]:
        """Among whom samples are ranked: all, their class, and those they share a threshold with, if not all do."""
        found = [np.zeros(len(predicted), np.int64), predicted]
        return [*found, self._by_threshold[predicted]] if self._by_threshold.any() else found

    def _counted(self, score: Floats, predicted: Counts) -> tuple[Counts, Counts, Counts]:
        """Samples by class, those of them rejected, and samples between tenths of the reference."""
        n_classes = len(self.classifier.classes_)
        rejected = score > self.classifier.thresholds_[predicted]
        return (
            np.bincount(predicted, minlength=n_classes),
            np.bincount(predicted[rejected], minlength=n_classes),
            np.bincount(np.searchsorted(self._tenths, score), minlength=TENTHS),
        )

    # Watching

    def update(self, X: ArrayLike, *, time: Sequence[Any] | NDArray[Any] | None = None) -> tuple[Alarm, ...]:
        """Look at embeddings, in the order they came in; returns the alarms they raised."""
        return self.update_scores(*self.classifier._decide(X), time=time)

    def update_scores(
        self, score: ArrayLike, predicted: ArrayLike, *, time: Sequence[Any] | NDArray[Any] | None = None
    ) -> tuple[Alarm, ...]:
        """The same for scores and indices of predicted classes, where they are known already."""
        scores, classes = as_scores("score", score), as_vector("predicted", predicted)
        check_same_length(score=scores, predicted=classes)
        times = None if time is None else np.array([str(one) for one in time])
        if times is not None:
            check_same_length(score=scores, time=times)
        n_classes = len(self.classifier.classes_)
        if len(classes) and not (classes.dtype.kind in "iu" and 0 <= classes.min() <= classes.max() < n_classes):
            raise ValueError(f"predicted must be indices of the classes, integers from 0 to {n_classes - 1}.")
        before, at = len(self.alarms), 0
        while at < len(scores):
            end = at + self._timeline.room
            self._look(scores[at:end], classes[at:end].astype(np.int64), None if times is None else times[at:end])
            at = end
        return self.alarms[before:]

    def _look(self, score: Floats, predicted: Counts, time: NDArray[Any] | None) -> None:
        """A piece of the stream that does not go beyond the end of the window."""
        groups = self._groups(predicted)
        p_values = [
            ranks.p_values(score, group, 1.0 - self._rng.random(len(score)))
            for ranks, group in zip(self._ranks, groups, strict=True)
        ]
        zero, number = np.zeros(len(score), np.int64), self.n + 1 + np.arange(len(score))
        ranked = (p_values[-1 if len(p_values) > 2 else 0], p_values[1], p_values[0])
        crossed: list[tuple[int, int, int]] = []
        reached = np.empty(len(PARTS))
        for part, (wealth, p_value) in enumerate(zip(self._wealth, ranked, strict=True)):
            group = predicted if PARTS[part] == "classes" else zero
            evidence = wealth.update(p_value, group, number) - np.log(self._shares(part))
            reached[part] = evidence.max()
            crossed += self._record(part, group, evidence)
        times = ("", "") if time is None else (str(time[0]), str(time[-1]))
        self._timeline.add(*self._counted(score, predicted), reached, times)
        self._delayed.add(score.astype(np.float64), predicted)
        for row, part, group_ in sorted(crossed):
            self.alarms += (self._alarm(row, part, group_, None if time is None else str(time[row])),)
        self.n += len(score)

    def _shares(self, part: int) -> int:
        """Among how many alarms the probability of a false one is divided."""
        return len(PARTS) * len(self._highest[part])

    def _record(self, part: int, group: Counts, evidence: Floats) -> list[tuple[int, int, int]]:
        """Remember the highest evidence; row, part and group of those that reach the line for the first time."""
        line, highest = -np.log(self.alpha), self._highest[part]
        rows = np.flatnonzero(evidence >= line)
        new, first = np.unique(group[rows], return_index=True)
        found = [(int(rows[f]), part, int(g)) for g, f in zip(new, first, strict=True) if highest[g] < line]
        np.maximum.at(highest, group, evidence)
        return found

    def _alarm(self, row: int, part: int, group: int, time: str | None) -> Alarm:
        sample = self.n + row + 1
        since = int(np.clip(self._wealth[part].beginning(group), 1, sample))
        called, rejected, tenths = self._timeline.since(since)
        usual_called, usual_rejected, usual_tenths = self._usual
        label = None
        match PARTS[part]:
            case "scores":
                seen, usual = tenths[-1] / tenths.sum(), usual_tenths[-1] / usual_tenths.sum()
            case "classes":
                label = str(self.classifier.classes_[group])
                seen, usual = rejected[group] / called[group], usual_rejected[group] / max(usual_called[group], 1)
            case _:
                seen, usual = rejected.sum() / called.sum(), self.usual_share
        return Alarm(
            part=PARTS[part],
            label=label,
            sample=sample,
            since=since,
            time=time,
            seen=float(seen),
            usual=float(usual),
        )

    # Labels that come later

    def labels(self, y_true: ArrayLike, *, samples: ArrayLike | None = None) -> None:
        """Take labels of samples seen before; what is none of the known classes is unknown.

        Parameters
        ----------
        samples
            Their numbers in the stream, from 1; else the first ones that have no label yet.
        """
        label = self.classifier._place(y_true)
        if samples is None:
            numbers = self._delayed.next_samples(len(label))
        else:
            numbers = as_vector("samples", samples).astype(np.int64) - 1
            check_same_length(samples=numbers, y_true=label)
        self._delayed.take(label, numbers)

    def labelled_windows(self) -> tuple[LabelledWindow, ...]:
        """OpenAUC and accuracy in each window with labels; the intervals of all together hold with 95 %."""
        return tuple(self._delayed.windows())

    # Telling

    @property
    def timeline(self) -> Timeline:
        """Counts and evidence in windows."""
        return self._timeline

    @property
    def usual(self) -> tuple[Counts, Counts, Counts]:
        """Of the reference: samples by class, those of them rejected, samples in each tenth of the scores."""
        return self._usual

    @property
    def usual_share(self) -> float:
        """Share of the reference that the threshold rejects."""
        return float(self._usual[1].sum() / self._usual[0].sum())

    @property
    def rejected_share(self) -> float:
        """Share of the stream that was rejected."""
        return float(self._timeline.rejected.sum() / max(self.n, 1))

    def p_value(self, part: str) -> float:
        """Bound on the probability that the evidence of a part would ever get as high, if nothing changed.

        It is valid whenever one looks, and counts the other parts and classes: an alarm is a value of at most alpha.
        """
        return float(min(1.0, np.exp(-self._highest[PARTS.index(part)].max())))

    def evidence_by_class(self) -> Floats:
        """(C,) the same for each predicted class."""
        return np.minimum(1.0, np.exp(-self._highest[PARTS.index("classes")]))

    @property
    def promise(self) -> str:
        """What is stated about false alarms, in a sentence."""
        rate = f"if nothing changes, an alarm is ever raised with probability at most {self.alpha:g}"
        if not self.one_sided:
            return f"{rate}, however long the stream is and however often one looks"
        return (
            f"{rate}, as long as known samples score no higher than the cross-fitted scores of the calibration; only "
            "rises are looked for (calibrate with samples the model has not seen, or pass a reference, for both)"
        )

    def summary(self) -> str:
        """What was seen, what has changed, and what cannot be told."""
        lines = [
            f"{self.n:,} samples, {self.rejected_share:.1%} rejected; {self.usual_share:.1%} of "
            f"{self._usual[0].sum():,} in the reference",
            *(f"alarm at {alarm}" for alarm in self.alarms),
            *(() if self.alarms else ("no alarm",)),
            f"promise: {self.promise}",
            *(f"note: {limit}" for limit in LIMITS),
        ]
        return "\n".join(lines)

    # Files

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
            "start": self._delayed.start,
            "finished": [asdict(window) for window in self._delayed.finished],
        }
        arrays: dict[str, NDArray[Any]] = {
            "about": np.frombuffer(json.dumps(about).encode(), np.uint8),
            "tenths": self._tenths,
            **{f"usual.{i}": counts for i, counts in enumerate(self._usual)},
            **{f"highest.{i}": values for i, values in enumerate(self._highest)},
            **{f"kept.{name}": values for name, values in self._delayed.kept._asdict().items()},
            **{f"timeline.{name}": values for name, values in self._timeline.arrays().items()},
        }
        for i, ranks in enumerate(self._ranks):
            arrays |= {f"ranks.{i}.keys": ranks.keys, f"ranks.{i}.counts": ranks.counts}
        for i, wealth in enumerate(self._wealth):
            arrays |= {f"wealth.{i}.{name}": getattr(wealth, name) for name in WEALTH}
        with atomic_write(path) as file:
            np.savez(file, allow_pickle=False, **arrays)

    @classmethod
    def load(cls, path: PathLike, classifier: OpenSetClassifier) -> Monitor:
        """Go on where :meth:`save` stopped, with the same classifier."""
        with open(path, "rb") as file:
            content = io.BytesIO(file.read())
        try:
            with np.load(content, allow_pickle=False) as stored:
                arrays = dict(stored)
            about = parse_json(arrays["about"].tobytes())
            if about["format"] != FORMAT or about["version"] != VERSION:
                raise ValueError(f"its format is {about['format']} {about['version']}")
            if about["model"] != _fingerprint(classifier):
                raise _OtherModelError
            monitor = cls.__new__(cls)
            monitor.classifier, monitor.alpha = classifier, about["alpha"]
            monitor._restore(about, arrays)
        except _OtherModelError:
            raise ValueError(
                f"{path} belongs to another model, or to this one with another threshold or calibration; load that "
                "one, or begin a new state."
            ) from None
        except Exception as error:
            raise ValueError(f"{path} is no state of a monitor ({error}); begin a new one.") from None
        return monitor

    def _restore(self, about: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        self._begin(about["reference"], about["window"], 0)
        self.n = about["n"]
        self.alarms = tuple(Alarm(**alarm) for alarm in about["alarms"])
        self._rng.bit_generator.state = about["rng"]
        self._tenths = arrays["tenths"]
        self._usual = (arrays["usual.0"], arrays["usual.1"], arrays["usual.2"])
        self._highest = [arrays[f"highest.{i}"] for i in range(len(PARTS))]
        for i, ranks in enumerate(self._ranks):
            ranks.keys, ranks.counts = arrays[f"ranks.{i}.keys"], arrays[f"ranks.{i}.counts"]
        for i, wealth in enumerate(self._wealth):
            for name in WEALTH:
                setattr(wealth, name, arrays[f"wealth.{i}.{name}"])
        self._timeline = Timeline.of(_below("timeline", arrays))
        finished = [
            LabelledWindow(**{**one, "interval": one["interval"] and Interval(*one["interval"])})
            for one in about["finished"]
        ]
        kept = _below("kept", arrays)
        self._delayed = Delayed(self.window, start=about["start"], finished=tuple(finished), **kept)


class _OtherModelError(Exception):
    pass


def _below(prefix: str, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    return {name.removeprefix(f"{prefix}."): values for name, values in arrays.items() if name.startswith(f"{prefix}.")}


def _fingerprint(classifier: OpenSetClassifier) -> str:
    """Of all that a monitor looks at in a classifier."""
    digest = hashlib.sha256(repr(classifier.classes_.tolist()).encode())
    for values in (classifier.thresholds_, classifier.calibration_scores_, classifier.calibration_classes_):
        digest.update(np.ascontiguousarray(values).tobytes())
    return digest.hexdigest()
