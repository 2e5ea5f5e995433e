"""Rules by held-out classes on networks trained from scratch: what they gain, and what their trainings would buy.

`openauc run benchmark/networks.py [--set protocol=cifar10] --keep features`, then
`python benchmark/networks.py STORE NAME --title T`, which writes the results.

A rule trains three networks beside the final one, each on about half of the samples: 1.5 trainings. Its rivals have
that budget too: CE+ trained 2.5 times as long, and three CE+ networks whose logits are averaged.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from openauc import Evaluation, evaluate
from openauc._trial_files import FOLDS, features_file
from openauc._validation import check_choice
from openauc.bench.folds import COMPARED, COST, Look, read_looks, reject
from openauc.bench.paper import METHODS
from openauc.bench.rendering import render
from openauc.bench.store import Store
from openauc.bench.suites import digits
from openauc.bench.suites.table2 import CPU_EPOCHS, cpu_trial
from openauc.bench.summary import Cell, summarise
from openauc.bench.trial import Scalar, TrialResult, TrialSpec
from openauc.comparison import holm
from openauc.features.classifier.evidence import Fold
from openauc.features.classifier.rejector import EVIDENCE, Learned
from openauc.features.scores.base import REJECTORS
from openauc.methods import recipe_for
from openauc.predictions import read_columns
from openauc.protocols import get_protocol
from openauc.training.predict import Embedded

NETWORKS = 3
MANY = 10**6
"""So many classes that a learned rejector is not shrunk toward a rule."""
SEEN = tuple(name for name in COMPARED if name in EVIDENCE)
"""What a rejector learned here looks at."""
CIFAR_IMAGES = 4000
"""Half of the images of the CPU budget, so that everything here is trained on one core within half an hour."""


def trials(protocol: Literal["digits", "cifar10"] = "digits") -> list[TrialSpec]:
    """Every method of digits, or CE+ on CIFAR10, with its own score and each rule; and the rivals of CE+.

    CE+ on digits has three seeds, other methods and the rules on CIFAR10 one.
    """
    check_choice("protocol", protocol, ("digits", "cifar10"))
    chosen = get_protocol(protocol)
    equal = {second for _, second in chosen.duplicate_splits()}
    splits = [split for split in range(len(chosen.splits)) if split not in equal]
    others = [method for method in METHODS if method != "ce_plus"] if protocol == "digits" else []
    networks = [_trial(protocol, split, "ce_plus", seed=seed) for seed in range(NETWORKS) for split in splits]
    more = [_trial(protocol, split, method) for method in others for split in splits]
    ruled = networks if protocol == "digits" else networks[: len(splits)]
    longer = [_trial(protocol, spec.split, "ce_plus", seed=spec.seed, longer=1 + COST) for spec in ruled]
    return [*networks, *longer, *(replace(spec, score=rule) for spec in ruled + more for rule in REJECTORS), *more]


def _trial(protocol: str, split: int, method: str, *, seed: int = 0, longer: float = 1.0) -> TrialSpec:
    if protocol == "cifar10":
        epochs = round(CPU_EPOCHS * longer)
        return cpu_trial(protocol, split, method, {}, seed=seed, epochs=epochs, train_images=CIFAR_IMAGES)
    spec = digits.trial(method, split, {}, seed=seed)
    recipe = recipe_for("plain", protocol, method, epochs=round(digits.EPOCHS * longer), **digits.COSINE)
    return replace(spec, recipe=recipe)


def ensembles(store: Store, results: list[TrialResult]) -> list[TrialResult]:
    """CE+ networks that differ in their seed, as one: the mean of their logits, the largest of which is the score.

    The result of a split stands beside each of its members, so that it is compared with their mean.
    """
    epochs = min(result.spec.recipe.epochs for result in results)
    members: dict[int, list[TrialResult]] = defaultdict(list)
    for result in results:
        spec = result.spec
        if spec.method == "ce_plus" and spec.score is None and spec.recipe.epochs == epochs:
            members[spec.split].append(result)
    return [
        replace(one, spec=replace(one.spec, seed=member.spec.seed))
        for found in members.values()
        if len(found) > 1
        for one in [ensemble(store, found)]
        for member in found
    ]


def ensemble(store: Store, members: list[TrialResult]) -> TrialResult:
    """The mean of the logits that networks have left for the test part."""
    columns = [read_columns(store.folder(member.spec) / features_file("test")) for member in members]
    logits = np.mean([column["logits"] for column in columns], axis=0, dtype=np.float64)
    found = evaluate(columns[0]["y_true"], logits.argmax(1), -logits.max(1))
    return replace(
        _replaced(members[0], {"networks": len(members)}, found), seconds=sum(member.seconds for member in members)
    )


def unshrunk(store: Store, result: TrialResult) -> TrialResult:
    """The learned rejector that is not shrunk toward any rule, from what fold networks said: an attempt for CIFAR10."""
    folder = store.folder(result.spec)
    training, test = (Embedded.load(folder / features_file(part)) for part in ("train", "test"))
    looks = read_looks(folder / FOLDS)
    scores = reject(learn([seen(look) for look in looks]), looks, training, test)
    return _replaced(result, {"shrunk": False}, evaluate(test.labels, test.logits.argmax(1), scores))


def seen(look: Look) -> Fold:
    """A fold with the columns :data:`SEEN`."""
    fold = look.fold()
    return replace(fold, evidence=fold.evidence[:, [COMPARED.index(name) for name in SEEN]])


def learn(folds: list[Fold]) -> Learned:
    """A rejector that is not shrunk."""
    return Learned.learn(folds, n_classes=MANY, names=SEEN)


def _replaced(result: TrialResult, options: dict[str, Scalar], found: Evaluation) -> TrialResult:
    """A result that was not trained for, under a name of its own."""
    return replace(
        result,
        spec=replace(result.spec, method_args=options),
        metrics=dict(found.values),
        intervals={name: (interval.low, interval.high) for name, interval in found.intervals.items()},
    )


def ceiling(store: Store, result: TrialResult) -> float:
    """OpenAUC of a rejector learned on half of the test samples, real unknown ones among them, on the other half."""
    folder = store.folder(result.spec)
    training, test = (Embedded.load(folder / features_file(part)) for part in ("train", "test"))
    classes = np.arange(training.logits.shape[1])
    whole = Look.of(training, test, test.labels, classes)
    first = np.random.default_rng(0).random(len(test.labels)) < 0.5
    values = []
    for learned, tested in ((first, ~first), (~first, first)):
        mine, other = (seen(Look(*(column[part] for column in whole))) for part in (learned, tested))
        values.append(float(other.pair_values(learn([mine])(other.evidence)).mean()))
    return float(np.mean(values))


def cost(spec: TrialSpec, epochs: int) -> float:
    """Trainings of one CE+ network that a trial costs, in images shown."""
    rule = COST if spec.score in REJECTORS else 0.0
    return float(spec.method_args.get("networks", 1)) * (spec.recipe.epochs / epochs + rule)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path)
    parser.add_argument("name", help="first part of the files' names")
    parser.add_argument("--title", required=True)
    parser.add_argument("--note", action="append", default=[], help="paragraph below the tables; repeatable")
    chosen = parser.parse_args()
    from publish import row  # beside this file, and not to be found from `openauc run`
    from writing import write_results

    store = Store(chosen.store)
    every = store.results()
    learned = [result for result in every if result.spec.method == "ce_plus" and result.spec.score == "learned"]
    results = [*every, *(unshrunk(store, result) for result in learned), *ensembles(store, every)]
    epochs = min(result.spec.recipe.epochs for result in results)
    plain = [result for result in results if result.spec.method == "ce_plus"]
    planned = [spec for spec in trials(results[0].spec.protocol) if spec.method == "ce_plus"]
    summaries = [
        summarise(plain, metric=metric, baseline=f"ce_plus ({epochs} epochs)", planned=planned)
        for metric in ("openauc", "auroc", "closed_set_accuracy")
    ]
    usual = [result for result in every if result.spec.recipe.epochs == epochs]
    text = "\n\n".join(
        [
            f"# {chosen.title}",
            render(*summaries, format="markdown").strip(),
            "**Cost of CE+**",
            "\n".join(cost_table(plain, epochs)),
            "A rule costs the trainings of its three fold networks, whatever the number of rules that share them. "
            "Seconds are of a busy machine. Three networks are compared with the mean of the three.",
            "**OpenAUC of each rule beside the own score of the same networks**",
            "\n".join(by_method(usual)),
            "Δ with its 95 % interval over distinct splits, seeds averaged first; p of the paired t-test, "
            "Holm-corrected over all cells.",
            told_ceiling(store, every),
            *chosen.note,
        ]
    )
    content = {"tables": [summary.to_dict() for summary in summaries], "trials": [row(result) for result in results]}
    write_results(chosen.name, content, text)


def by_method(results: list[TrialResult]) -> list[str]:
    """Each rule beside the own score of the same networks; p-values are corrected over all cells."""
    own: dict[str, Cell] = {}
    cells: dict[tuple[str, str], Cell] = {}
    for method in METHODS:
        found = [result for result in results if result.spec.method == method]
        if any(result.spec.score is not None for result in found):
            summary = summarise(found, baseline=method)
            protocol = found[0].spec.protocol
            alone = summary.cell(method, protocol)
            ruled = {(method, rule): summary.cell(f"{method} (score {rule})", protocol) for rule in REJECTORS}
            if all(cell.n_splits == alone.n_splits for cell in ruled.values()):  # finished
                own[method] = alone
                cells |= ruled
    tested = {key: p for key, cell in cells.items() if (p := cell.paired and cell.paired.p_value) is not None}
    corrected = dict(zip(tested, holm(tested.values()), strict=True))
    lines = [
        f"| method | n | own score | {' | '.join(REJECTORS)} |",
        f"| --- | ---: | ---: |{' ---: |' * len(REJECTORS)}",
    ]
    for method, cell in own.items():
        told = " | ".join(_told(cells[method, rule], corrected.get((method, rule))) for rule in REJECTORS)
        lines.append(f"| {method} | {cell.n_trials} | {100 * cell.mean:.1f} | {told} |")
    return lines


def _told(cell: Cell, p: float | None) -> str:
    paired = cell.paired
    interval = "" if paired.interval is None else " [{:+.1f}, {:+.1f}]".format(*(100 * end for end in paired.interval))
    return f"{100 * cell.mean:.1f}, Δ {100 * paired.difference:+.1f}{interval}" + ("" if p is None else f", p {p:.2f}")


def told_ceiling(store: Store, results: list[TrialResult]) -> str:
    """How much there would be to learn, if one had unknown samples."""
    plain = [result for result in results if result.spec.method == "ce_plus"]
    learned = {result.spec.training_id: result for result in plain if result.spec.score == "learned"}
    own = {result.spec.training_id: result for result in plain if result.spec.score is None}
    rows = [
        (own[key].metrics["openauc"], result.metrics["openauc"], ceiling(store, result))
        for key, result in learned.items()
    ]
    means = " / ".join(f"{100 * value:.1f}" for value in np.mean(rows, axis=0))
    return (
        "Own score / learned on held-out classes / learned on half of the real unknown samples, which nobody has: "
        f"{means} (OpenAUC of CE+, {len(rows)} networks)."
    )


def cost_table(results: list[TrialResult], epochs: int) -> list[str]:
    """Trainings and seconds of CE+ with each score, and of its rivals."""
    groups: dict[tuple[Any, ...], list[TrialResult]] = defaultdict(list)
    for result in results:
        spec = result.spec
        if spec.method == "ce_plus" and result.error is None and "shrunk" not in spec.method_args:
            groups[spec.score or "own", spec.recipe.epochs, spec.method_args.get("networks", 1)].append(result)
    lines = ["| score | epochs | networks | trainings | seconds |", "| --- | ---: | ---: | ---: | ---: |"]
    for (score, length, networks), found in groups.items():
        seconds = np.mean([result.seconds for result in found])
        lines.append(f"| {score} | {length} | {networks} | {cost(found[0].spec, epochs):g} | {seconds:.0f} |")
    return lines


if __name__ == "__main__":
    main()
