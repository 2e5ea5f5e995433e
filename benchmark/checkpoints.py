"""Published TinyImageNet networks: `python benchmark/checkpoints.py --work DIR --data-root D --weights W`.

W holds `tinyimagenet_0..4.safetensors`. Each network looks once at the validation images; what it makes of them is kept
in DIR, and every score of `SCORES` that needs no training sample is taken from it. Training images are at hand for
split 0 only, 100 a class: there all scores are, and the rules of the OpenSetClassifier on the frozen features. Each is
compared with the largest logit of the network on the same images. Nothing is chosen by these numbers.
"""

from __future__ import annotations

import argparse
import statistics
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr
from writing import write_results

from openauc import Predictions, compare, evaluate, openauc_score
from openauc.bench.student import mean_interval, paired_p, sign_flip_p
from openauc.bench.trial import TrialSpec
from openauc.comparison import holm
from openauc.features import OpenSetClassifier
from openauc.features.classifier.evidence import HeadWithScores
from openauc.features.scores.distance import spread_ratio
from openauc.features.scores.registry import SCORES
from openauc.training.predict import Embedded
from openauc.training.trained import Network, load_data

METRICS = ("closed_set_accuracy", "auroc", "openauc")
PUBLISHED = {"closed_set_accuracy": "84.2", "auroc": "83.0", "openauc": "74.3 ± 3.9"}
SPLITS, TRAINED = 5, 0
"""Splits with a network, and the one with training images."""
BASELINE = "max_logit"
RULES: dict[str, dict[str, Any]] = {
    "classifier, default": {},
    "classifier, learned": {"rejector": "learned", "seen_by_encoder": False},
    "classifier, average": {"rejector": "average", "seen_by_encoder": False},
    "classifier, selected": {"rejector": "selected", "seen_by_encoder": False},
}
"""Options of the OpenSetClassifier on the features of split 0; all but the first take the encoder for a general one."""
LEARNED = ("learned", "average")
"""Rules among what held-out classes judge; the others are single scores."""


def embedded(split: int, part: str, chosen: argparse.Namespace) -> Embedded:
    """Features and logits of one part, from DIR or by the network."""
    file = chosen.work / f"{part}-{split}.parquet"
    if not file.exists():
        spec = TrialSpec.of("tinyimagenet", split, "ce_plus")
        data = load_data(spec, chosen.data_root)
        network = Network(spec, None, data_root=chosen.data_root)
        network.load(chosen.weights / f"tinyimagenet_{split}.safetensors", data.num_classes)
        network.embedded(spec, data, part).save(file)
    return Embedded.load(file)


def scored(test: Embedded, training: Embedded | None) -> dict[str, Predictions]:
    """The triple by every score; without training images by those that need none."""
    found = {}
    for name, kind in SCORES.items():
        if training is not None or not kind.fits:
            score = kind() if training is None else kind().fit(*training)
            values = score(test.features, test.logits)
            found[name] = Predictions.of(test.labels, test.logits.argmax(1), values)
    return found


def classifiers(training: Embedded) -> dict[str, OpenSetClassifier]:
    """The rules, fitted on the features of training images."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the encoder has seen these samples is what is looked at
        return {
            name: OpenSetClassifier(random_state=0, **options).fit(training.features, training.labels)
            for name, options in RULES.items()
        }


def differences(found: dict[str, Predictions]) -> list[dict[str, Any]]:
    """Each against the largest logit on the same images, best first; Holm's correction over all of them."""
    compared = compare(*found.values(), names=list(found), metrics=["openauc"], baseline=BASELINE)
    rows = [
        {
            "name": d.a,
            "openauc": d.value_a,
            "accuracy": float(np.mean((found[d.a].y_pred == found[d.a].y_true)[found[d.a].y_true >= 0])),
            "difference": d.difference,
            "interval": list(d.interval),
            "p_holm": d.p_holm,
        }
        for d in compared.differences
    ]
    return sorted(rows, key=lambda row: -row["difference"])


def over_splits(tables: Sequence[Sequence[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Mean differences over the splits of the scores that all of them have, with paired tests."""
    by_name = [{row["name"]: row for row in rows} for rows in tables]
    names = [name for name in by_name[0] if all(name in rows for rows in by_name)]
    found = []
    for name in names:
        apart = [rows[name]["difference"] for rows in by_name]
        found.append(
            {
                "name": name,
                "openauc": statistics.mean(rows[name]["openauc"] for rows in by_name),
                "difference": statistics.mean(apart),
                "interval": list(mean_interval(apart, 0.95) or ()),
                "p": paired_p(apart),
                "flip": sign_flip_p(apart),
                "ahead": sum(d > 0 for d in apart),
                "n": len(apart),
            }
        )
    for row, p in zip(found, holm([row["p"] for row in found]), strict=True):
        row["p_holm"] = p
    return sorted(found, key=lambda row: -row["difference"])


def promises(fitted: dict[str, OpenSetClassifier], test: Embedded, training: Embedded) -> list[dict[str, Any]]:
    """What held-out classes promise of each rejector, and what it comes to on the test images, with the same head."""
    model = fitted["classifier, learned"]
    final, names = model.head_with_scores_, [tried.name for tried in model.report_.tried if tried.name not in LEARNED]
    scored_head = HeadWithScores.fit(final.head, training.features, training.labels, names, final.scaling)
    raw, logits = scored_head(test.features)
    came = {name: Predictions.of(test.labels, logits.argmax(1), raw[:, i]) for i, name in enumerate(names)}
    came |= {name: fitted[f"classifier, {name}"].predictions(test.features, test.labels) for name in LEARNED}
    return [
        {
            "name": tried.name,
            "promised": tried.openauc,
            "interval": list(tried.interval),
            "came": openauc_score(*came[tried.name]),
        }
        for tried in model.report_.tried
    ]


def collapse(test: Embedded, training: Embedded) -> dict[str, float]:
    """How much better the network knows the images it was trained on than others of the same classes."""
    known = test.labels >= 0
    parts = {"training": training, "test": Embedded(test.features[known], test.logits[known], test.labels[known])}
    figures = {}
    for name, part in parts.items():
        figures[f"accuracy, {name}"] = float((part.logits.argmax(1) == part.labels).mean())
        figures[f"spread, {name}"] = spread_ratio(part.features.astype(np.float64), part.labels)[0]
    return figures


def brief(split: int, found: Predictions) -> dict[str, Any]:
    """The row of a network by its largest logit."""
    told = evaluate(*found)
    return {
        "split": split,
        "n_known": told.n_known,
        "n_unknown": told.n_unknown,
        **{name: told.values[name] for name in METRICS},
        "intervals": {name: list(told.intervals[name]) for name in METRICS},
    }


# Text


def networks_table(rows: Sequence[dict[str, Any]]) -> str:
    lines = ["| split | n known | n unknown | accuracy | AUROC | OpenAUC |", "|---|---:|---:|---:|---:|---:|"]
    for r in rows:
        cells = [f"{100 * r[m]:.1f} {_bounds(r['intervals'][m], '.1f')}" for m in METRICS]
        lines.append(f"| {r['split']} | {r['n_known']:,} | {r['n_unknown']:,} | {' | '.join(cells)} |")
    means = " | ".join(f"**{_mean([r[m] for r in rows])}**" for m in METRICS)
    lines += [
        f"| **mean ± population std, n = {len(rows)} splits** | | | {means} |",
        "| published | | | " + " | ".join(PUBLISHED[m] for m in METRICS) + " |",
    ]
    return "\n".join(lines)


def over_splits_table(rows: Sequence[dict[str, Any]], tables: Sequence[Sequence[dict[str, Any]]]) -> str:
    heads = " | ".join(f"split {split}" for split in range(len(tables)))
    lines = [
        f"| score | OpenAUC | difference to max logit | p, Holm | flip | ahead | {heads} |",
        f"|---|---:|---:|---:|---:|---:|{'---:|' * len(tables)}",
    ]
    for r in rows:
        single = [next(row for row in table if row["name"] == r["name"]) for table in tables]
        marks = " | ".join(f"{100 * s['difference']:+.1f}{'*' * (s['p_holm'] < 0.05)}" for s in single)
        lines.append(
            f"| {r['name']} | {100 * r['openauc']:.1f} | {100 * r['difference']:+.2f} {_bounds(r['interval'], '+.2f')} "
            f"| {r['p_holm']:.3f} | {r['flip']:.3f} | {r['ahead']} of {r['n']} | {marks} |"
        )
    return "\n".join(lines)


def differences_table(rows: Sequence[dict[str, Any]]) -> str:
    lines = ["| score | accuracy | OpenAUC | difference to max logit | p, Holm |", "|---|---:|---:|---:|---:|"]
    lines += [
        f"| {r['name']} | {100 * r['accuracy']:.1f} | {100 * r['openauc']:.1f} "
        f"| {100 * r['difference']:+.2f} {_bounds(r['interval'], '+.2f')} | {r['p_holm']:.3f} |"
        for r in rows
    ]
    return "\n".join(lines)


def promises_table(rows: Sequence[dict[str, Any]]) -> str:
    lines = ["| rejector | held-out classes promise | on test |", "|---|---:|---:|"]
    lines += [
        f"| {r['name']} | {100 * r['promised']:.1f} {_bounds(r['interval'], '.1f')} | {100 * r['came']:.1f} |"
        for r in rows
    ]
    return "\n".join(lines)


def _bounds(interval: Sequence[float], form: str) -> str:
    return f"[{', '.join(format(100 * bound, form) for bound in interval)}]"


def _mean(values: Sequence[float]) -> str:
    return f"{100 * statistics.mean(values):.1f} ± {100 * statistics.pstdev(values):.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder of features, kept and reused")
    parser.add_argument("--data-root", type=Path, help="mirror of the data sets")
    parser.add_argument("--weights", type=Path, required=True, help="folder of tinyimagenet_0..4.safetensors")
    chosen = parser.parse_args()
    chosen.work.mkdir(parents=True, exist_ok=True)
    tests = [embedded(split, "test", chosen) for split in range(SPLITS)]
    training = embedded(TRAINED, "train", chosen)
    found = [scored(test, training if split == TRAINED else None) for split, test in enumerate(tests)]
    fitted, own = classifiers(training), tests[TRAINED]
    found[TRAINED] |= {name: model.predictions(own.features, own.labels) for name, model in fitted.items()}
    rows = [brief(split, predictions[BASELINE]) for split, predictions in enumerate(found)]
    tables = [differences(predictions) for predictions in found]
    together = over_splits(tables)
    promised = promises(fitted, own, training)
    agreement = float(spearmanr([r["promised"] for r in promised], [r["came"] for r in promised]).statistic)
    figures = collapse(own, training)
    uses = {name: model.report_.chosen for name, model in fitted.items()}
    notes = list(fitted["classifier, default"].report_.notes)
    text = [
        "# Published TinyImageNet models",
        networks_table(rows),
        "Published: accuracy and AUROC by the models' authors (means over the five splits), OpenAUC the CE+ row of the "
        "OpenAUC paper, whose models are its own. The score is the largest logit. All values x 100; intervals at 95 %.",
        "## Other scores of the same networks, five splits",
        over_splits_table(together, tables),
        "Scores that need no training image. Difference: mean over splits with its Student interval; p of the paired "
        "t-test, Holm-corrected over these scores; flip: exact sign-flip test, not corrected, 0.0625 at best. Last "
        "columns: single splits, * where a paired DeLong test on the images, Holm-corrected over the split's scores, "
        "has p < 0.05.",
        f"## All scores, split {TRAINED}",
        differences_table(tables[TRAINED]),
        f"Fitted on {len(training.labels):,} training images; paired DeLong intervals on the same test images, p "
        "Holm-corrected over all rows. `classifier`: OpenSetClassifier on the frozen features, with a logistic head of "
        f"its own; by default it used {uses['classifier, default']}"
        + (f" and said: {' '.join(notes)}" if notes else ".")
        + f" `selected` took {uses['classifier, selected']}.",
        "## What held-out classes promise, and what came",
        promises_table(promised),
        f"OpenSetClassifier on the features of split {TRAINED}, seen_by_encoder=False, one head for all rows. Rank "
        f"correlation of promise and outcome over the rows: {agreement:.2f}. The network's accuracy is "
        f"{100 * figures['accuracy, training']:.1f} on training and {100 * figures['accuracy, test']:.1f} on test "
        "images of the known classes; variance of the features inside classes over that between their means "
        f"{figures['spread, training']:.2f} and {figures['spread, test']:.2f}.",
    ]
    content = {
        "rows": rows,
        "published": PUBLISHED,
        "over_splits": together,
        "splits": tables,
        "promises": promised,
        "agreement": agreement,
        "collapse": figures,
        "used": uses,
        "notes": notes,
    }
    write_results("tinyimagenet_checkpoints", content, "\n\n".join(text))


if __name__ == "__main__":
    main()
