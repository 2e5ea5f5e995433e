"""Watching a classifier: false alarms of `Monitor` where nothing changes, and how soon unknown samples are noticed.

`python benchmark/watching.py [--quick]`. Nothing changes in streams of 10,000 known samples

* **digits**: scores of a classifier of seven digits, drawn from known test samples, for calibration and stream alike
  (with replacement, so there are ties);
* **normal**: normal scores, with few calibration samples;
* **fitted**: Gaussian classes, and a classifier fitted anew for every 25 streams; calibrated by a split, or with
  cross-fitted scores, where the monitor bets on rises only, and what happened if it bet on falls as well.

Beside them what one who ranks samples among the calibration samples alone would see. Then unknown samples begin to
arrive. Results go to `benchmark/results/watching_<hardware>_<yyyymm>.{json,md}`.
"""

from __future__ import annotations

import argparse
import copy
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from writing import write_results

from openauc.features import Monitor, OpenSetClassifier
from openauc.features.monitor.betting import Wealth, shape_bets
from openauc.features.monitor.monitor import PARTS

ALPHAS = (0.05, 0.01)
LENGTH = 10_000
WINDOW = 2_500
SHARES = (0.02, 0.05, 0.2)
BEGINNINGS = (0, 2_000, 10_000)
LONGEST_DELAY = 10_000
Scores = tuple[np.ndarray, np.ndarray]
Draw = Callable[[int], Scores]


def digits() -> tuple[OpenSetClassifier, Scores, Scores]:
    """A classifier of seven digits, and its decisions on known and unknown samples it has not seen."""
    X, y = load_digits(return_X_y=True)
    X = (X / 16).astype(np.float32)
    known = np.random.default_rng(0).permutation(np.flatnonzero(y < 7))
    classifier = OpenSetClassifier(random_state=0).fit(X[known[:500]], y[known[:500]])
    return classifier, classifier._decide(X[known[500:]]), classifier._decide(X[y >= 7])


def calibrated(classifier: OpenSetClassifier, calibration: Scores) -> OpenSetClassifier:
    """The same classifier with other calibration samples."""
    other = copy.copy(classifier)
    other._take_calibration(*calibration, "split")
    return other


def from_pool(pool: Scores, rng: np.random.Generator) -> Draw:
    def draw(n: int) -> Scores:
        rows = rng.integers(len(pool[0]), size=n)
        return pool[0][rows], pool[1][rows]

    return draw


def normal(n_classes: int, rng: np.random.Generator) -> Draw:
    return lambda n: (rng.normal(size=n), rng.integers(n_classes, size=n))


def joined(*parts: Scores) -> Scores:
    scores, classes = zip(*parts, strict=True)
    return np.concatenate(scores), np.concatenate(classes)


def with_unknown(known: Scores, unknown: Scores, share: float, rng: np.random.Generator) -> Scores:
    chosen = rng.random(len(known[0])) < share
    return np.where(chosen, unknown[0], known[0]), np.where(chosen, unknown[1], known[1])


# Where nothing changes


def evidence(monitor: Monitor, stream: Scores) -> float:
    """The smallest p-value of the three parts at the end: an alarm was raised if it is at most alpha."""
    monitor.update_scores(*stream)
    return min(monitor.p_value(part) for part in PARTS)


def exchangeable(name: str, classifier: OpenSetClassifier, draw: Draw, n: int, runs: int) -> dict[str, Any]:
    """Calibration and stream drawn alike."""
    found = [
        evidence(Monitor(calibrated(classifier, draw(n)), window=WINDOW, random_state=run), draw(LENGTH))
        for run in range(runs)
    ]
    return told(name, n, found)


def fits(runs: int, streams: int) -> Iterator[tuple[OpenSetClassifier, OpenSetClassifier, Scores, Scores]]:
    """Classifiers of eight Gaussian classes in 16 dimensions, by split and cross-fitted, and new samples for each."""
    centres = 4.0 * np.random.default_rng(9).normal(size=(8, 16)) / 4.0
    for seed in range(-(-runs // streams)):
        rng = np.random.default_rng([1, seed])
        labels = rng.integers(8, size=2_000)
        X = (centres[labels] + rng.normal(size=(2_000, 16))).astype(np.float32)
        new = (centres[rng.integers(8, size=streams * LENGTH)] + rng.normal(size=(streams * LENGTH, 16))).astype("f4")
        split, cross = (
            OpenSetClassifier(calibration=kind, random_state=seed).fit(X, labels) for kind in ("split", "cross")
        )
        yield split, cross, split._decide(new), cross._decide(new)


def fitted(runs: int, streams: int) -> list[dict[str, Any]]:
    """Real fits, real new samples: by split, cross-fitted, and cross-fitted as if they were exchangeable."""
    found: dict[str, list[float]] = {"split": [], "cross": [], "cross, falls too": []}
    accepted: dict[str, list[float]] = {"split": [], "cross": []}
    for split, cross, split_new, cross_new in fits(runs, streams):
        for kind, classifier, new in (("split", split, split_new), ("cross", cross, cross_new)):
            accepted[kind].append(float(np.mean(new[0] <= classifier.thresholds_[new[1]])))
            for run in range(streams):
                part = slice(run * LENGTH, (run + 1) * LENGTH)
                stream = new[0][part], new[1][part]
                found[kind].append(evidence(Monitor(classifier, window=WINDOW, random_state=run), stream))
                if kind == "cross":
                    both = calibrated(classifier, (classifier.calibration_scores_, classifier.calibration_classes_))
                    found["cross, falls too"].append(evidence(Monitor(both, window=WINDOW, random_state=run), stream))
        print(len(found["split"]), "of", runs, file=sys.stderr)
    sizes = {"split": len(split.calibration_scores_), "cross": len(cross.calibration_scores_)}
    return [
        told(f"fitted, {kind}", sizes[kind[:5]], values) | {"accepted": float(np.mean(accepted[kind[:5]]))}
        for kind, values in found.items()
    ]


def naive(draw: Draw, n: int, runs: int) -> dict[str, Any]:
    """The bets on scores alone, on p-values among the calibration samples alone."""
    found = []
    for _ in range(runs):
        calibration, stream = np.sort(draw(n)[0]), draw(LENGTH)[0]
        p_value = (1 + n - np.searchsorted(calibration, stream)) / (n + 1)
        nothing = np.zeros(LENGTH, np.int64)
        wealth = Wealth(shape_bets()).update(p_value, nothing, np.arange(LENGTH))
        found.append(float(min(1.0, np.exp(-wealth.max()))))
    return told("normal, ranked among the calibration alone", n, found)


def told(name: str, n: int, p_values: list[float]) -> dict[str, Any]:
    values = np.array(p_values)
    return {
        "name": name,
        "calibration": n,
        "streams": len(values),
        "alarms": {str(alpha): int((values <= alpha).sum()) for alpha in ALPHAS},
    }


# Where unknown samples begin to arrive


def delays(
    name: str, classifier: OpenSetClassifier, known: Draw, unknown: Draw, n: int, share: float, start: int, runs: int
) -> dict[str, Any]:
    """Samples from the first that may be unknown to the alarm, by alpha; and what raised it."""
    rng = np.random.default_rng([n, start, round(1000 * share)])
    found: dict[str, list[float]] = {str(alpha): [] for alpha in ALPHAS}
    first: dict[str, int] = dict.fromkeys(PARTS, 0)
    for run in range(runs):
        calibration, before = calibrated(classifier, known(n)), known(start)
        after = with_unknown(known(LONGEST_DELAY), unknown(LONGEST_DELAY), share, rng)
        for alpha in ALPHAS:
            monitor = Monitor(calibration, alpha=alpha, random_state=run)
            alarms = monitor.update_scores(*before)
            for at in range(0, 0 if alarms else LONGEST_DELAY, 500):
                alarms = monitor.update_scores(after[0][at : at + 500], after[1][at : at + 500])
                if alarms:
                    first[alarms[0].part] += 1
                    break
            found[str(alpha)].append(alarms[0].sample - start if alarms else np.inf)
    return {
        "name": name,
        "calibration": n,
        "share": share,
        "start": start,
        "streams": runs,
        "first": first,
        "delay": {alpha: _delay(np.array(values)) for alpha, values in found.items()},
    }


def _delay(delay: np.ndarray) -> dict[str, Any]:
    """Of streams without an earlier, false alarm; what was not noticed is later than all."""
    delay = delay[delay > 0]
    median, most = np.quantile(delay, [0.5, 0.9], method="inverted_cdf").tolist()
    return {
        "noticed": float(np.mean(np.isfinite(delay))),
        "median": median if np.isfinite(median) else None,
        "nine_tenths": most if np.isfinite(most) else None,
    }


# Telling


def page(quiet: list[dict[str, Any]], late: list[dict[str, Any]], rejected: float) -> str:
    lines = [
        "# Watching a classifier: false alarms and delays",
        "",
        "## Where nothing changes",
        "",
        f"Streams of {LENGTH:,} known samples that raised any alarm. Stated: at most 5 % and 1 % of the streams.",
        "",
        "| scores | calibration samples | streams | alarms at 5 % | alarms at 1 % |",
        "|---|---:|---:|---:|---:|",
    ]
    for row in quiet:
        alarms = " | ".join(f"{count} ({count / row['streams']:.1%})" for count in row["alarms"].values())
        lines.append(f"| {row['name']} | {row['calibration']:,} | {row['streams']:,} | {alarms} |")
    lines += [
        "",
        "Of new known samples, "
        + ", ".join(
            f"{row['accepted']:.2%} are accepted ({row['name']})"
            for row in quiet
            if "accepted" in row and "falls" not in row["name"]
        )
        + "; 95 % were asked for.",
        "",
        "## Where unknown samples begin to arrive",
        "",
        f"Samples until the alarm, half and nine tenths of the streams; {LONGEST_DELAY:,} samples are looked at.",
        f"{rejected:.0%} of the unknown digits are rejected.",
        "",
        "| scores | calibration samples | unknown samples | begin at | streams | noticed at 5 % | half | nine tenths "
        "| noticed at 1 % | half | nine tenths |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in late:
        cells = [
            f"{one['noticed']:.0%} | {_number(one['median'])} | {_number(one['nine_tenths'])}"
            for one in row["delay"].values()
        ]
        lines.append(
            f"| {row['name']} | {row['calibration']:,} | {row['share']:.0%} | {row['start'] + 1:,} | "
            f"{row['streams']} | {' | '.join(cells)} |"
        )
    return "\n".join(lines)


def _number(value: float | None) -> str:
    return "later" if value is None else f"{value:,.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few streams, nothing written: to try the program")
    parser.add_argument("--runs", type=int, default=1_000, help="streams in which nothing changes")
    parser.add_argument("--fitted-runs", type=int, default=400, help="the same, of classifiers that are fitted anew")
    parser.add_argument("--late-runs", type=int, default=100, help="streams in which unknown samples arrive")
    options = parser.parse_args()
    runs, fitted_runs, late_runs, streams = options.runs, options.fitted_runs, options.late_runs, 25
    if options.quick:
        runs, fitted_runs, late_runs, streams = 2, 2, 2, 1
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)
    classifier, known, unknown = digits()
    draw = from_pool(known, rng)
    quiet = [exchangeable("digits", classifier, draw, 500, runs)]
    print(quiet, file=sys.stderr)
    quiet.append(exchangeable("normal", classifier, normal(7, rng), 100, runs))
    print(quiet, file=sys.stderr)
    quiet += fitted(fitted_runs, streams)
    quiet.append(naive(normal(7, rng), 500, fitted_runs))
    late = [
        delays("digits", classifier, draw, from_pool(unknown, rng), 500, share, start, late_runs)
        for share, start in [(0.05, start) for start in BEGINNINGS]
        + [(share, 2_000) for share in SHARES if share != 0.05]
    ]

    def high(n: int) -> Scores:
        return rng.normal(2.0, 1.0, size=n), rng.integers(7, size=n)

    late.append(delays("normal, 2 deviations apart", classifier, normal(7, rng), high, 500, 0.05, 2_000, late_runs))
    threshold = calibrated(classifier, known).thresholds_[0]
    text = page(quiet, late, float(np.mean(unknown[0] > threshold)))
    if options.quick:
        print(text)
    else:
        write_results("watching", {"quiet": quiet, "late": late}, text)


if __name__ == "__main__":
    main()
