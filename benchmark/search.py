"""Is there a form of the OpenAUC loss that beats CE+? Candidates on held-out classes, the best of them on test.

`PYTHONPATH=. openauc run benchmark/search.py -o SELECT` scores every candidate on known classes held out of training,
on three splits of the embedded digits. With `--set stage=confirm -o CONFIRM` it trains the one with the best mean
there, and CE+, on the two other splits and scores them on the test part, which no choice has seen. The path is that of
`benchmark/forms.py`, which has the options that OpenAUC itself has not.

`python benchmark/search.py SELECT [CONFIRM]` writes what was found. Differences to CE+ are taken between trainings on
the same split with the same seed, and tested over these pairs. Seeds of one split share its test images, so the pairs
are not fully independent, and the p-values are a little too small.
"""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from openauc._validation import check_choice
from openauc.bench.benchmarks import digits
from openauc.bench.store import Store
from openauc.bench.student import mean_interval, paired_p
from openauc.bench.trial import Scalar, TrialResult, TrialSpec
from openauc.bench.variants import ARGUMENT, Scored, scored_trials

Candidate = tuple[str, dict[str, Scalar], dict[str, Any]]
"""Method, its options or another score, and fields of the recipe that differ from the one of `digits`."""

AUGMENTED = {"augmentation": "rand_augment", "rand_augment_n": 1, "rand_augment_m": 8, "rand_augment_ops": "digits"}
HALF = 36  # batches: half of a training of these trials

BASELINES: tuple[Candidate, ...] = (
    ("ce_plus", {}, {}),
    ("ce_plus", {"score": "max_probability"}, {}),
    ("ce_plus", {"label_smoothing": 0.1}, {}),
    ("ce_plus", {}, AUGMENTED),
)
FORMS: tuple[dict[str, Scalar], ...] = (
    # weight of the ranking term, at once and with a warm-up
    {"preset": "paper"},
    {"preset": "paper", "lam": 0.02},
    {"preset": "paper", "lam": 0.5},
    {"preset": "paper", "warm_up": HALF},
    {"preset": "paper", "lam": 0.5, "warm_up": HALF},
    # score in the loss and at test
    {"preset": "paper", "score": "max_probability"},
    {"preset": "public_code"},
    {"preset": "public_code", "lam": 0.02},
    {"preset": "public_code", "warm_up": HALF},
    {"preset": "public_code", "score": "max_probability"},
    # surrogate and margin
    {"preset": "paper", "surrogate": "squared_hinge", "margin": 0.5},
    {"preset": "paper", "surrogate": "logistic"},
    {"preset": "public_code", "surrogate": "squared_hinge"},
    {"preset": "public_code", "surrogate": "logistic"},
    # where and what to mix
    {"preset": "paper", "cut": "block2"},
    {"preset": "paper", "cut": "block3"},
    {"preset": "paper", "min_confidence": 0.5},
    {"preset": "paper", "min_confidence": 0.9},
    {"preset": "public_code", "min_confidence": 0.9},
    {"preset": "paper", "mix_weight": "sample"},
    {"preset": "paper", "pairing": "all"},
    # which score receives gradient
    {"preset": "paper", "gradient": "unknown"},
    {"preset": "paper", "gradient": "known"},
    {"preset": "public_code", "surrogate": "logistic", "gradient": "unknown"},
    # what the recipe of the "+" methods adds
    {"preset": "paper", "label_smoothing": 0.1},
)
OWN_FORMS = "benchmark.forms"
CANDIDATES: tuple[Candidate, ...] = (
    *(
        (OWN_FORMS if form.keys() & {"warm_up", "min_confidence", "gradient"} else "openauc", form, {})
        for form in FORMS
    ),
    ("openauc", {"preset": "paper"}, AUGMENTED),
)
SELECTED: Candidate = (OWN_FORMS, {"preset": "public_code", "surrogate": "logistic", "gradient": "unknown"}, {})
"""The candidate with the best mean in `benchmark/results/search_digits_*`; set before `confirm` was first run."""
SELECT_SPLITS, CONFIRM_SPLITS = (0, 1, 2), (3, 4)


def trials(stage: Literal["select", "confirm"] = "select", seeds: int | None = None) -> list[TrialSpec]:
    """Trials of one stage; ``seeds`` is 4 to select, each with other held-out classes, and 20 to confirm."""
    check_choice("stage", stage, ("select", "confirm"))
    selecting = stage == "select"
    variants = (*BASELINES, *CANDIDATES) if selecting else (BASELINES[0], SELECTED)
    return [
        _trial(candidate, split, seed, pseudo_unknown=2 if selecting else 0)
        for seed in range(seeds or (4 if selecting else 20))
        for split in (SELECT_SPLITS if selecting else CONFIRM_SPLITS)
        for candidate in variants
    ]


def _trial(candidate: Candidate, split: int, seed: int, pseudo_unknown: int) -> TrialSpec:
    method, chosen, fields = candidate
    options = {name: value for name, value in chosen.items() if name != "score"}
    spec = digits.trial(method, split, options, seed=seed, pseudo_unknown=pseudo_unknown, **fields)
    return replace(spec, score=str(chosen["score"])) if "score" in chosen else spec


BASELINE = "ce_plus"


def compared(results: list[TrialResult], metric: str = "openauc") -> list[dict[str, Any]]:
    """Each variant against plain CE+, best mean difference first."""
    trials = [trial for trial in scored_trials(results, []) if trial.finished]
    usual = Counter(map(_budget, trials)).most_common(1)[0][0]
    found: dict[str, dict[tuple[int, int], float]] = {}
    for trial in trials:
        values = found.setdefault(_label(trial, usual), {})
        values[trial.spec.split, trial.spec.seed] = trial.finished.metrics[metric]
    baseline = found.pop(BASELINE)
    first = {"label": BASELINE, "n": len(baseline), "mean": float(np.mean(list(baseline.values())))}
    rows = [row(label, values, baseline) for label, values in found.items()]
    return [first, *sorted(rows, key=lambda r: -r["difference"])]


def _budget(trial: Scored) -> tuple[str, ...]:
    """How a trial was trained, whatever the method and its options."""
    return tuple(said for name, said in trial.settings.items() if name != "score" and not name.startswith(ARGUMENT))


def _label(trial: Scored, usual: tuple[str, ...]) -> str:
    """The method with all its options, and what else is not as in most rows."""
    spec = trial.spec
    options = [f"{name}={value}" for name, value in spec.method_args.items()]
    options += [f"score={spec.score}"] if spec.score is not None else []
    label = f"{spec.method.replace(OWN_FORMS, 'openauc')} {', '.join(options)}".strip()
    unusual = [said for said in _budget(trial) if said not in usual]
    return f"{label} ({', '.join(unusual)})" if unusual else label


def row(label: str, values: dict[tuple[int, int], float], baseline: dict[tuple[int, int], float]) -> dict[str, Any]:
    if missing := baseline.keys() ^ values.keys():
        raise SystemExit(f"{label} and CE+ do not have the same splits and seeds: {sorted(missing)}; run search again.")
    differences = [values[key] - baseline[key] for key in sorted(baseline)]
    interval = mean_interval(differences, 0.95)
    return {
        "label": label,
        "n": len(differences),
        "mean": float(np.mean(list(values.values()))),
        "difference": float(np.mean(differences)),
        "interval": None if interval is None else [interval.low, interval.high],
        "p": paired_p(differences),
        "wins": sum(d > 0 for d in differences),
    }


def table(rows: list[dict[str, Any]]) -> str:
    lines = ["| form | n | OpenAUC | difference to CE+ | p | ahead |", "| --- | ---: | ---: | :---: | ---: | ---: |"]
    for r in rows:
        compared_to = "| | | |"
        if "difference" in r:
            low, high = r["interval"]
            compared_to = (
                f"| {100 * r['difference']:+.2f} [{100 * low:+.2f}, {100 * high:+.2f}] | {r['p']:.3f} | {r['wins']} |"
            )
        lines.append(f"| {r['label']} | {r['n']} | {100 * r['mean']:.2f} {compared_to}")
    return "\n".join(lines)


def main() -> None:
    from writing import write_results  # beside this file, where only a program looks

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("select", type=Path, help="store of the stage select")
    parser.add_argument("confirm", type=Path, nargs="?", help="store of the stage confirm")
    parser.add_argument("--note", action="append", default=[], help="paragraph at the end; repeatable")
    chosen = parser.parse_args()
    parts = {"Selection, on held-out known classes of splits 0 to 2": Store(chosen.select).results()}
    if chosen.confirm is not None:
        parts["Confirmation of the first, on the test part of splits 3 and 4"] = Store(chosen.confirm).results()
    rows = {title: compared(results) for title, results in parts.items()}
    told = (
        "OpenAUC × 100 with 95 % Student intervals of the mean paired difference over (split, seed) pairs; p of the "
        "paired t-test, not corrected for the number of rows; ahead: pairs in which the form is better. Seeds of one "
        "split share its test images, so that p is a little too small."
    )
    commits = sorted({r.environment.get("commit", "unknown") for results in parts.values() for r in results})
    text = "\n\n".join(
        ["# Looking for a form of the loss that beats CE+, on digits", told]
        + [f"## {title}\n\n{table(found)}" for title, found in rows.items()]
        + [f"Trained at commit {', '.join(commits)}.", *chosen.note]
    )
    write_results("search_digits", {"parts": rows, "commits": commits}, text)


if __name__ == "__main__":
    main()
