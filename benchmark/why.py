"""What the ranking term does to the logits: `python benchmark/why.py STORE NAME --title T [--data-root D]`.

The largest logit, by which unknown samples are told at test, is the mean of the logits plus the largest one's lead over
that mean. Cross-entropy depends on differences of logits, so on the lead and not on the mean. From the networks of a
store (of `benchmark/ablation.py` or `benchmark/search.py`), for CE+ and the two presets of OpenAUC: how well each of
the three tells unknown from known samples.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from writing import write_results

from openauc import ScoreDirectionWarning, auroc_score, openauc_score
from openauc._trial_files import WEIGHTS
from openauc.bench.store import Store
from openauc.bench.trial import TrialResult
from openauc.training.trained import Network, load_data

FORMS = {
    "CE+": ("ce_plus", {}),
    "OpenAUC, preset paper": ("openauc", {"preset": "paper"}),
    "OpenAUC, preset public_code": ("openauc", {"preset": "public_code"}),
}
HITS = ("largest logit of hits", "its standard deviation")
RANKINGS = (
    "AUROC, largest logit",
    "AUROC, mean logit",
    "AUROC, lead",
    "OpenAUC, largest logit",
    "OpenAUC, lead",
)


def measured(result: TrialResult, store: Store, data_root: Path | None) -> dict[str, float]:
    """The figures of one trained network, on the samples its trial was scored on."""
    spec = result.spec
    data = load_data(spec, data_root)
    network = Network(spec, store.folder(spec), data_root=data_root)
    network.load(store.folder(spec) / WEIGHTS, data.num_classes)
    found = network.embedded(spec, data, "validation" if spec.pseudo_unknown else "test")
    logits, labels = found.logits.astype(np.float64), found.labels
    predicted, largest, mean = logits.argmax(1), logits.max(1), logits.mean(1)
    hits = largest[predicted == labels]
    triple = {"largest logit": largest, "mean logit": mean, "lead": largest - mean}
    figures = dict(zip(HITS, (hits.mean(), hits.std()), strict=True))
    for name, confidence in triple.items():
        figures[f"AUROC, {name}"] = 100 * auroc_score(labels, predicted, -confidence)
        figures[f"OpenAUC, {name}"] = 100 * openauc_score(labels, predicted, -confidence)
    return {name: float(figures[name]) for name in (*HITS, *RANKINGS)}


def is_form(result: TrialResult, form: tuple[str, dict[str, Any]]) -> bool:
    spec = result.spec
    plain = spec.recipe.augmentation != "rand_augment" and spec.score is None
    return result.error is None and plain and (spec.method, dict(spec.method_args)) == form


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path)
    parser.add_argument("name", help="first part of the files' names")
    parser.add_argument("--title", required=True)
    parser.add_argument("--data-root", type=Path)
    chosen = parser.parse_args()
    warnings.simplefilter("ignore", ScoreDirectionWarning)  # a mean logit that points the wrong way is a finding here
    store = Store(chosen.store)
    networks = {label: [result for result in store.results() if is_form(result, form)] for label, form in FORMS.items()}
    rows = {
        label: [{"id": r.spec.id, **measured(r, store, chosen.data_root)} for r in results]
        for label, results in networks.items()
    }
    lines = [f"| form | n | {HITS[0]} | {' | '.join(RANKINGS)} |", f"| --- | ---: |{' ---: |' * (1 + len(RANKINGS))}"]
    for label, found in rows.items():
        mean = {name: np.mean([row[name] for row in found]) for name in (*HITS, *RANKINGS)}
        ranked = " | ".join(f"{mean[name]:.1f}" for name in RANKINGS)
        lines.append(f"| {label} | {len(found)} | {mean[HITS[0]]:.1f} ± {mean[HITS[1]]:.1f} | {ranked} |")
    told = (
        "The largest logit is the mean logit plus its lead over it. Cross-entropy depends on differences of logits, "
        "so on the lead and not on the mean. Means over n networks; AUROC and OpenAUC x 100, each quantity taken as "
        "a confidence, so that below 50 it points the wrong way. Hits are correctly classified known samples; ± is "
        "the standard deviation over those of one network."
    )
    commits = sorted({r.environment.get("commit", "unknown") for results in networks.values() for r in results})
    text = "\n\n".join([f"# {chosen.title}", told, "\n".join(lines), f"Trained at commit {', '.join(commits)}."])
    write_results(chosen.name, {"rows": rows, "commits": commits}, text)


if __name__ == "__main__":
    main()
