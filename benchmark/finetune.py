"""The paper's loss where the network is good: `python benchmark/finetune.py --work DIR --data-root D --weights W`.

W holds `tinyimagenet_0.safetensors`, the published CE+ network of TinyImageNet, split 0. It is fine-tuned with
cross-entropy (CE) and with the paper's loss (OpenAUC), whose ranking term uses one of the two scores, -max z or
1 - max p, and lambda 0.1 or 0.2: five forms, three seeds each, 15 trainings. Each is tested with both scores, beside
the network as it was published. Trainings with one seed share the order of images, their augmentation and the dropout.

Everything was fixed before the first training, and the test part decides nothing:

- Images: the 2,000 training images at hand, 100 of the 500 of each known class. The published network has seen all of
  them for 600 epochs, so fine-tuning shows it nothing new. The five forms differ in the loss alone.
- Recipe: the paper's for TinyImageNet (RandAugment, label smoothing 0.9, Adam, cosine), batch 64 as the paper has it
  for its own loss, the same for CE.
- Learning rate: 1e-4, a hundredth of the paper's first one and ten times its last. Adam moves every weight by up to
  the rate at each step; at a tenth, 1e-3, the 64 steps here could move weights as far as they are from zero.
- Two epochs, without warm-up. A batch takes 3.2 seconds of one processor core, the test part 127 (both measured while
  the machine was busy): at most 80 minutes for everything.

DIR is a store of trials: a finished training is not repeated, a half-finished one goes on. `--write` writes results.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from checkpoints import METRICS, TRAINED, embedded, scored
from writing import write_results

from openauc import Predictions, evaluate
from openauc._trial_files import LOG
from openauc.bench.runner import run
from openauc.bench.store import Store
from openauc.bench.student import mean_interval, paired_p
from openauc.bench.trial import Scalar, TrialResult, TrialSpec, Watch
from openauc.comparison import difference_interval, holm
from openauc.environment import reuse_memory
from openauc.methods import recipe_for
from openauc.metrics.counts import RankedSamples
from openauc.metrics.registry import METRICS as MEASURES
from openauc.metrics.samples import read_samples

PROTOCOL = "tinyimagenet"
EPOCHS, SEEDS = 2, 3
RATE = 0.01
"""Share of the paper's learning rate."""
SCORES = {"max_logit": "-max z", "max_probability": "1 - max p"}
SPACES = {"logit": "-max z", "probability": "1 - max p"}
"""Scores at test, and in the ranking term."""
CE, PUBLISHED = "CE", "as published"
FORMS: dict[str, tuple[str, dict[str, Scalar]]] = {
    CE: ("ce_plus", {}),
    **{
        f"OpenAUC, {told}, lambda {lam:g}": ("openauc", {"score_space": space, "lam": lam})
        for space, told in SPACES.items()
        for lam in (0.1, 0.2)
    },
}
OPENAUC = "openauc"
LEVEL = 0.95
COMMAND = "python benchmark/finetune.py --work DIR --data-root D --weights W --write"

Found = Mapping[tuple[str, str], Sequence[Predictions]]
"""Predictions by form and score, one for each seed."""


def spec_of(form: str, score: str, seed: int, weights: Path) -> TrialSpec:
    """One training, tested with one score; all share the recipe of the paper's loss."""
    method, options = FORMS[form]
    recipe = recipe_for("plus", PROTOCOL, "openauc", epochs=EPOCHS)
    return TrialSpec.of(
        PROTOCOL,
        TRAINED,
        method,
        recipe=recipe.changed(learning_rate=RATE * recipe.learning_rate),
        method_args=options,
        seed=seed,
        weights=str(weights / f"tinyimagenet_{TRAINED}.safetensors"),
        score=score,
    )


def trials(weights: Path) -> dict[tuple[str, str], list[TrialSpec]]:
    """The trials by form and score, one for each seed."""
    return {
        (form, score): [spec_of(form, score, seed, weights) for seed in range(SEEDS)]
        for form in FORMS
        for score in SCORES
    }


class Progress(Watch):
    """One line for each finished trial."""

    def finished(self, result: TrialResult) -> None:
        print(result.spec.id, result.error or f"{result.seconds:.0f} s", file=sys.stderr, flush=True)


def trained(chosen: argparse.Namespace) -> dict[tuple[str, str], list[TrialResult]]:
    """Results of all trials, run now or before, one seed after the other."""
    wanted = trials(chosen.weights)
    in_order = [specs[seed] for seed in range(SEEDS) for specs in wanted.values()]
    results = run(in_order, out=chosen.work, data_root=chosen.data_root, retry_failed=True, watch=Progress())
    by_id = {result.spec.id: result for result in results}
    failed = [f"{result.spec.id}: {result.error}" for result in results if result.error]
    if failed or len(by_id) < len(in_order):
        raise SystemExit("\n".join(["not every training is finished; the same command goes on.", *failed]))
    return {key: [by_id[spec.id] for spec in specs] for key, specs in wanted.items()}


def values(predictions: Predictions) -> Mapping[str, float]:
    """The metrics without intervals."""
    return evaluate(*predictions, metrics={name: MEASURES[name] for name in METRICS}, level=None).values


def summary(found: Found) -> list[dict[str, Any]]:
    """Each metric of each form by each score: values of single trainings, their mean, and deviation over seeds."""
    rows = []
    for (form, score), seeds in found.items():
        each = [values(predictions) for predictions in seeds]
        row: dict[str, Any] = {"form": form, "score": score, "n": len(seeds)}
        for metric in METRICS:
            single = [one[metric] for one in each]
            deviation = statistics.stdev(single) if len(single) > 1 else None
            row[metric] = {"mean": statistics.mean(single), "std": deviation, "seeds": single}
        rows.append(row)
    return rows


def over_samples(metric: str, ones: Sequence[Predictions], others: Sequence[Predictions]) -> dict[str, Any]:
    """Mean over trainings less that of other ones on the same images, with the interval over images.

    The influence of an image on a mean is the mean of its influences; of two models this is DeLong's test.
    """
    measure = MEASURES[metric]

    def side(models: Sequence[Predictions]) -> tuple[float, list[Any]]:
        ranked = [RankedSamples(read_samples(*model)) for model in models]
        influences = [measure.influences(one) or () for one in ranked]
        value = statistics.mean(measure.measure(one).value for one in ranked)
        return value, [np.mean(parts, axis=0) for parts in zip(*influences, strict=True)]

    (one, mine), (other, theirs) = side(ones), side(others)
    apart = [a - b for a, b in zip(mine, theirs, strict=True)]
    if not any(part.any() for part in apart):
        return {"difference": one - other, "interval": [one - other] * 2, "p": 1.0}
    interval, p = difference_interval(one - other, apart, 0.0, LEVEL)
    return {"difference": one - other, "interval": list(interval), "p": p}


def over_seeds(metric: str, ones: Sequence[Predictions], others: Sequence[Predictions]) -> dict[str, Any]:
    """Mean difference of trainings with equal seeds, with Student's interval over seeds."""
    apart = [values(one)[metric] - values(other)[metric] for one, other in zip(ones, others, strict=True)]
    interval = mean_interval(apart, LEVEL)
    return {
        "difference": statistics.mean(apart),
        "interval": list(interval) if interval else None,
        "p": paired_p(apart),
        "seeds": apart,
    }


def against_ce(found: Found) -> list[dict[str, Any]]:
    """Each form of OpenAUC less CE by the same score; Holm's correction over all rows, for OpenAUC."""
    rows = []
    for (form, score), seeds in found.items():
        if form not in (CE, PUBLISHED):
            base = found[CE, score]
            told: dict[str, Any] = {metric: over_seeds(metric, seeds, base) for metric in METRICS}
            images = {metric: over_samples(metric, seeds, base) for metric in METRICS}
            rows.append({"form": form, "score": score, **told, "over_images": images})
    for row, p in zip(rows, holm([row[OPENAUC]["p"] for row in rows]), strict=True):
        row["p_holm"] = p
    return rows


def against_published(found: Found) -> list[dict[str, Any]]:
    """Each form less the published network by the same score; Holm's correction over all rows, for OpenAUC."""
    rows = [
        {
            "form": form,
            "score": score,
            **{metric: over_samples(metric, seeds, found[PUBLISHED, score]) for metric in METRICS},
        }
        for (form, score), seeds in found.items()
        if form != PUBLISHED
    ]
    for row, p in zip(rows, holm([row[OPENAUC]["p"] for row in rows]), strict=True):
        row["p_holm"] = p
    return rows


def histories(results: Mapping[tuple[str, str], Sequence[TrialResult]], store: Store) -> dict[str, list[Any]]:
    """What each training reported of each epoch, by form and seed."""
    first = next(iter(SCORES))
    return {
        form: [
            [json.loads(line) for line in (store.folder(result.spec) / LOG).read_text().splitlines()]
            for result in results[form, first]
        ]
        for form in FORMS
    }


# Text


def summary_table(rows: Sequence[dict[str, Any]]) -> str:
    lines = ["| network | score | n | accuracy | AUROC | OpenAUC |", "|---|---|---:|---:|---:|---:|"]
    for row in rows:
        cells = []
        for metric in METRICS:
            spread = row[metric]["std"]
            told = "" if spread is None else f" ± {100 * spread:.2f}"
            cells.append(f"{100 * row[metric]['mean']:.2f}{told}")
        lines.append(f"| {row['form']} | {SCORES[row['score']]} | {row['n']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def differences_table(rows: Sequence[dict[str, Any]], *, images: bool = False) -> str:
    """With ``images`` also the interval over images beside the one over seeds, for OpenAUC."""
    more = " OpenAUC, over images |" if images else ""
    lines = [
        f"| network | score | accuracy | AUROC | OpenAUC |{more} p, Holm |",
        f"|---|---|---:|---:|---:|{'---:|' * images}---:|",
    ]
    for row in rows:
        cells = [_difference(row[metric]) for metric in METRICS]
        if images:
            cells.append(_bounds(row["over_images"][OPENAUC]["interval"]))
        lines.append(f"| {row['form']} | {SCORES[row['score']]} | {' | '.join(cells)} | {row['p_holm']:.3f} |")
    return "\n".join(lines)


def history_table(found: Mapping[str, Sequence[Sequence[Mapping[str, float]]]]) -> str:
    """Means over seeds of the first and the last epoch."""
    names = {"loss": "loss", "known_accuracy": "accuracy", "pair_auc": "AUC of known samples against mixtures"}
    lines = [f"| network | {' | '.join(names.values())} |", "|---|---:|---:|---:|"]
    for form, seeds in found.items():
        cells = []
        for name in names:
            ends = ([history[place].get(name) for history in seeds] for place in (0, -1))
            told = [f"{statistics.mean(end):.3f}" for end in ends if None not in end]
            cells.append(" to ".join(told))
        lines.append(f"| {form} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _difference(found: Mapping[str, Any]) -> str:
    return f"{100 * found['difference']:+.2f} {_bounds(found['interval'])}".rstrip()


def _bounds(interval: Sequence[float] | None) -> str:
    return "" if interval is None else f"[{', '.join(f'{100 * bound:+.2f}' for bound in interval)}]"


def write(found: Found, results: Mapping[tuple[str, str], Sequence[TrialResult]], store: Store) -> None:
    """Compute all tables and write the results."""
    rows, ce, published = summary(found), against_ce(found), against_published(found)
    history = histories(results, store)
    every = [result for seeds in results.values() for result in seeds]
    commits = sorted({result.environment.get("commit", "unknown") for result in every})
    recipe = every[0].spec.network_recipe
    text = [
        "# Fine-tuning a published TinyImageNet network with the paper's loss",
        f"`{COMMAND}`. Split {TRAINED}, seeds {', '.join(map(str, range(SEEDS)))}, {EPOCHS} epochs at a learning rate "
        f"of {recipe.learning_rate:g} with batches of {recipe.batch_size}; {every[0].n_known:,} known and "
        f"{every[0].n_unknown:,} unknown test images. The score in the name of a network is that of the ranking term; "
        "the second column is the score at test. The published network has seen all training images for 600 epochs, so "
        "fine-tuning shows it nothing new. Everything was fixed beforehand, and nothing was chosen by these numbers. "
        f"Metrics x 100. Trained at commit {', '.join(commits)}.",
        summary_table(rows),
        "Mean ± sample standard deviation over seeds.",
        "## Against fine-tuning with CE",
        differences_table(ce, images=True),
        "Differences of trainings with equal seeds, by the same score, with Student's 95 % interval over seeds; p of "
        "the paired t-test of OpenAUC, Holm-corrected over the rows. Over images: the interval of the same mean "
        "difference over test images, for these trainings (DeLong).",
        "## Against the published network",
        differences_table(published),
        "Mean over seeds less the published network, by the same score, with 95 % intervals over test images (DeLong), "
        "for these trainings; p for OpenAUC, Holm-corrected over the rows.",
        "## What the trainings report",
        history_table(history),
        "Means over seeds on augmented training images while they are learned from, first to last epoch. Mixtures are "
        "ranked by the score of the ranking term. Losses of different forms are not comparable.",
    ]
    content = {
        "command": COMMAND,
        "commits": commits,
        "seeds": list(range(SEEDS)),
        "n_known": every[0].n_known,
        "n_unknown": every[0].n_unknown,
        "recipe": recipe.to_dict(),
        "forms": {form: {"method": method, **options} for form, (method, options) in FORMS.items()},
        "rows": rows,
        "against_ce": ce,
        "against_published": published,
        "histories": history,
    }
    write_results("finetune", content, "\n\n".join(text))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="store of trainings, kept and reused")
    parser.add_argument("--data-root", type=Path, help="mirror of the data sets")
    parser.add_argument("--weights", type=Path, required=True, help="folder of tinyimagenet_0.safetensors")
    parser.add_argument("--write", action="store_true", help="write the results files")
    chosen = parser.parse_args()
    chosen.work.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    reuse_memory()
    results, store = trained(chosen), Store(chosen.work)
    if chosen.write:
        published = scored(embedded(TRAINED, "test", chosen), None)
        found = {(PUBLISHED, score): [published[score]] for score in SCORES}
        for key, seeds in results.items():
            found[key] = [Predictions.load(store.folder(one.spec) / str(one.predictions)) for one in seeds]
        write(found, results, store)


if __name__ == "__main__":
    main()
