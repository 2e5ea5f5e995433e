"""Write what `openauc run search` found: `python benchmark/search.py SELECT_STORE [CONFIRM_STORE]`.

Differences to CE+ are taken between trainings on the same split with the same seed, and tested over these pairs. Seeds
of one split share its test images, so the pairs are not fully independent, and the p-values are a little too small.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from writing import write_results

from openauc.bench.store import Store
from openauc.bench.student import mean_interval, paired_p
from openauc.bench.trial import TrialResult, TrialSpec
from openauc.bench.variants import scored_trials, variants_of

BASELINE = "ce_plus"


def compared(results: list[TrialResult], metric: str = "openauc") -> list[dict[str, Any]]:
    """Each variant against plain CE+, best mean difference first."""
    found = {
        _told(label, members[0].spec): {
            (t.spec.split, t.spec.seed): t.finished.metrics[metric] for t in members if t.finished
        }
        for label, members in variants_of(scored_trials(results, [])).items()
    }
    # The recipe is told only where it is not that of most rows, the options always.
    recipes = Counter(label.partition(" (")[2] for label in found)
    common = f" ({recipes.most_common(1)[0][0]}"
    found = {label.removesuffix(common): values for label, values in found.items()}
    baseline = found.pop(BASELINE)
    first = {"label": BASELINE, "n": len(baseline), "mean": float(np.mean(list(baseline.values())))}
    rows = [row(label, values, baseline) for label, values in found.items()]
    return [first, *sorted(rows, key=lambda r: -r["difference"])]


def _told(label: str, spec: TrialSpec) -> str:
    """The label with all options of the method, also where every row has them."""
    options = ", ".join(f"{name}={value}" for name, value in spec.method_args.items())
    recipe = label.partition(" (")
    return f"{spec.method} {options}".strip() + recipe[1] + recipe[2]


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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("select", type=Path, help="store of `openauc run search`")
    parser.add_argument("confirm", type=Path, nargs="?", help="store of `openauc run search --set stage=confirm`")
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
