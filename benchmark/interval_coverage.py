"""Coverage of 95 % intervals, beside those of other tools on the same draws.

`python benchmark/interval_coverage.py [--quick] [--osr-metrics FOLDER]`. For each size and true value, data
sets are drawn from four families of models, each of which loses in its own way:

* ranking: every known sample is named right, scores are normal;
* accuracy: scores never overlap, a share of the known samples is named wrong;
* both: half is lost to each;
* rare: nine tenths are lost to a few unknown samples that look known, the rest to the ranking.

Others: scikit-learn's `roc_auc_score` in a percentile bootstrap over all samples, as many write it, and `bootstrap_ci`
of osr-metrics (PyPI; `pip install --target FOLDER osr-metrics`, not among the dependencies). Both on fewer data sets,
since they call a metric for every replicate, and on some rows only. Results go to
`benchmark/results/coverage_<hardware>_<yyyymm>.{json,md}`.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from statistics import NormalDist
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score
from writing import write_results

import openauc
from openauc.metrics.counts import RankedSamples
from openauc.metrics.registry import Resamples, standard_metrics
from openauc.metrics.samples import read_samples

SIZES = ((30, 30), (100, 100), (300, 300), (1000, 1000), (1000, 100), (100, 1000))
TRUTHS = (0.5, 0.7, 0.9, 0.97, 0.99, 0.999)
FAMILIES = ("ranking", "accuracy", "both", "rare")
METRICS = {name: standard_metrics(max_ofpr=0.2)[name] for name in ("openauc", "auroc", "partial_openauc")}
PAIRS = ((0.999, 0.99), (0.99, 0.99), (0.99, 0.97), (0.97, 0.9), (0.9, 0.8))
REPLICATES = 200
OTHER_ROWS = [("both", size, truth) for size in SIZES[:3] for truth in TRUTHS[2:]]
Triple = tuple[np.ndarray, np.ndarray, np.ndarray]
Other = Callable[[Triple, np.random.Generator], tuple[float, float]]


def losses(family: str, truth: float) -> tuple[float, float, float]:
    """Share of known samples named wrong, of unknown samples below all known ones, and AUROC of the others."""
    lost = 1.0 - truth
    if family == "ranking":
        return 0.0, 0.0, truth
    if family == "accuracy":
        return lost, 0.0, 1.0
    if family == "both":
        return lost / 2, 0.0, truth / (1.0 - lost / 2)
    return 0.0, 0.9 * lost, truth / (1.0 - 0.9 * lost)


def draw(family: str, truth: float, sizes: tuple[int, int], rng: np.random.Generator) -> Triple:
    """Samples of a model whose OpenAUC is ``truth``."""
    return models(family, (truth,), sizes, rng)[0]


def models(family: str, truths: tuple[float, ...], sizes: tuple[int, int], rng: np.random.Generator) -> list[Triple]:
    """Models on the same samples; half the variance of their scores is shared, and every loss the better one has."""
    n = sum(sizes)
    true = np.repeat([0, -1], sizes)
    shared, fate = rng.normal(size=n), rng.random(n)
    made = []
    for truth in truths:
        wrong, hidden, auroc = losses(family, truth)
        shift = 20.0 if auroc == 1.0 else np.sqrt(2.0) * NormalDist().inv_cdf(auroc)
        score = (shared + rng.normal(size=n)) / np.sqrt(2.0) + shift * (true == -1)
        score[(true == -1) & (fate < hidden)] -= 40.0
        made.append((true, np.where((true == 0) & (fate < wrong), 1, 0), score))
    return made


@cache
def population(family: str, truth: float) -> dict[str, float]:
    """True values; of the partial area from a million samples."""
    _, hidden, auroc = losses(family, truth)
    large = draw(family, truth, (500_000, 500_000), np.random.default_rng(0))
    return {
        "openauc": truth,
        "auroc": (1.0 - hidden) * auroc,
        "partial_openauc": openauc.openauc_score(*large, max_ofpr=0.2),
    }


def intervals(triple: Triple) -> dict[str, tuple[float, float]]:
    model = RankedSamples(read_samples(*triple))
    resamples = Resamples(model, 2)
    return {name: metric.interval(metric.measure(model), resamples, 0.95)[0] for name, metric in METRICS.items()}


def as_auroc(triple: Triple) -> tuple[np.ndarray, np.ndarray]:
    """The paper's reduction: OpenAUC is the AUROC once misclassified known samples score above every unknown one."""
    true, pred, score = triple
    unknown = true == -1
    return unknown, np.where(unknown | (pred == true), score, score.max() + 1.0)


def naive_bootstrap(triple: Triple, rng: np.random.Generator) -> tuple[float, float]:
    """Percentiles of roc_auc_score over resamples of all samples."""
    unknown, score = as_auroc(triple)
    values = []
    while len(values) < REPLICATES:
        index = rng.integers(0, len(score), len(score))
        if 0 < unknown[index].sum() < len(score):
            values.append(roc_auc_score(unknown[index], score[index]))
    low, high = np.quantile(values, [0.025, 0.975])
    return float(low), float(high)


def osr_metrics_interval(bootstrap_ci: Callable[..., Any]) -> Other:
    """The same value by the `bootstrap_ci` of osr-metrics, with its defaults."""

    def interval(triple: Triple, rng: np.random.Generator) -> tuple[float, float]:
        unknown, score = as_auroc(triple)
        low, _, high = bootstrap_ci(
            score,
            unknown.astype(int),
            lambda scores, labels: roc_auc_score(labels, scores),
            n_bootstrap=REPLICATES,
            seed=int(rng.integers(2**31)),
        )
        return float(low), float(high)

    return interval


def cell(
    family: str, truth: float, sizes: tuple[int, int], runs: int, others: dict[str, Other], few: int
) -> dict[str, Any]:
    """Coverage and mean width at one truth."""
    rng = np.random.default_rng([int(1000 * truth), *sizes, FAMILIES.index(family)])
    true_values = population(family, truth)
    hits, widths = dict.fromkeys(METRICS, 0), dict.fromkeys(METRICS, 0.0)
    rival_hits = dict.fromkeys(others, 0)
    for run in range(runs):
        triple = draw(family, truth, sizes, rng)
        for name, (low, high) in intervals(triple).items():
            hits[name] += low <= true_values[name] <= high
            widths[name] += high - low
        if run < few:
            for name, rival in others.items():
                low, high = rival(triple, np.random.default_rng(run))
                rival_hits[name] += low <= truth <= high
    return {
        "family": family,
        "truth": truth,
        "known": sizes[0],
        "unknown": sizes[1],
        "runs": runs,
        "coverage": {name: count / runs for name, count in hits.items()},
        "width": {name: width / runs for name, width in widths.items()},
        "other_runs": few,
        "others": {name: count / few for name, count in rival_hits.items()},
    }


def compared(family: str, truths: tuple[float, float], sizes: tuple[int, int], runs: int) -> dict[str, Any]:
    """How often the interval of a difference holds it."""
    rng = np.random.default_rng([int(1000 * sum(truths)), *sizes, FAMILIES.index(family)])
    first, second = (population(family, truth) for truth in truths)
    hits = dict.fromkeys(("openauc", "auroc"), 0)
    for _ in range(runs):
        for difference in openauc.compare(*models(family, truths, sizes, rng), metrics=list(hits)).differences:
            name = difference.metric
            hits[name] += difference.interval.low <= first[name] - second[name] <= difference.interval.high
    return {
        "family": family,
        "truths": truths,
        "known": sizes[0],
        "unknown": sizes[1],
        "runs": runs,
        "coverage": {name: count / runs for name, count in hits.items()},
    }


def others(folder: str | None) -> Iterator[tuple[str, Other]]:
    yield "roc_auc_score, naive bootstrap", naive_bootstrap
    if folder is not None:
        sys.path.insert(0, folder)
        import osr_metrics

        yield f"osr-metrics {osr_metrics.__version__}, bootstrap_ci", osr_metrics_interval(osr_metrics.bootstrap_ci)


def page(cells: list[dict[str, Any]], pairs: list[dict[str, Any]], rivals: list[str]) -> str:
    def percent(share: float) -> str:
        return f"**{100 * share:.1f}**" if share < 0.93 else f"{100 * share:.1f}"

    lines = [
        "# Coverage of 95 % intervals",
        "",
        f"Percent of data sets whose interval holds the true value ({cells[0]['runs']} each, {cells[0]['other_runs']}",
        "for other tools, which estimate the same OpenAUC); below 93 in bold. Partial: OFPR <= 0.2.",
        "",
        "| lost to | known + unknown | OpenAUC | our OpenAUC | AUROC | partial | mean width |"
        + "".join(f" {name} |" for name in rivals),
        "|---|---|---:|---:|---:|---:|---:|" + "---:|" * len(rivals),
    ]
    for c in cells:
        ours = " | ".join(percent(c["coverage"][name]) for name in METRICS)
        theirs = "".join(f" {percent(c['others'][name])} |" if name in c["others"] else " |" for name in rivals)
        where = f"| {c['family']} | {c['known']} + {c['unknown']} | {c['truth']} |"
        lines.append(f"{where} {ours} | {c['width']['openauc']:.4f} |{theirs}")
    lines += [
        "",
        "## Differences of two models on the same samples (`compare`)",
        "",
        "| lost to | known + unknown | OpenAUC | OpenAUC covered | AUROC covered |",
        "|---|---|---|---:|---:|",
    ]
    for c in pairs:
        ours = " | ".join(percent(c["coverage"][name]) for name in ("openauc", "auroc"))
        lines.append(
            f"| {c['family']} | {c['known']} + {c['unknown']} | {c['truths'][0]} - {c['truths'][1]} | {ours} |"
        )
    worst = min(min(c["coverage"].values()) for c in cells), min(min(c["coverage"].values()) for c in pairs)
    lines += ["", f"Smallest coverage: {100 * worst[0]:.1f} of one model, {100 * worst[1]:.1f} of a difference."]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few data sets, nothing written: to try the program")
    parser.add_argument("--runs", type=int, default=2000, help="data sets per row")
    parser.add_argument("--other-runs", type=int, default=100, help="data sets per row for other tools")
    parser.add_argument("--osr-metrics", metavar="FOLDER", help="where osr-metrics was installed")
    options = parser.parse_args()
    warnings.simplefilter("ignore", openauc.ScoreDirectionWarning)  # a true value of 1/2 is often missed from below
    runs, few = (5, 2) if options.quick else (options.runs, options.other_runs)
    sizes = SIZES[:2] if options.quick else SIZES
    rivals = dict(others(options.osr_metrics))
    cells, pairs = [], []
    for family in FAMILIES:
        for size in sizes:
            for truth in TRUTHS:
                shown = rivals if (family, size, truth) in OTHER_ROWS else {}
                cells.append(cell(family, truth, size, runs, shown, few))
            pairs += [compared(family, truths, size, runs) for truths in PAIRS]
            print(family, size, "done", file=sys.stderr)
    text = page(cells, pairs, list(rivals))
    if options.quick:
        print(text)
    else:
        write_results("coverage", {"single": cells, "differences": pairs}, text)


if __name__ == "__main__":
    main()
