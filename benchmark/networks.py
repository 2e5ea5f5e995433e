"""Rules by held-out classes on networks trained from scratch: what they gain, and what their trainings would buy.

`openauc run benchmark/networks.py [--set protocol=cifar10] --keep features`, then
`python benchmark/networks.py STORE NAME --title T`, which trains the fold networks and writes the results.

A rule trains three networks beside the final one, each on about half of the samples: 1.5 trainings. Its rivals have
that budget too: CE+ trained 2.5 times as long, and three CE+ networks whose logits are averaged.

The final network is trained on everything, so no class can be held out of it. Each fold network is trained by the same
recipe without some classes and without a share of the samples of the others, and scores both. Its scores are
standardised on samples that it was not trained on and classifies correctly. The final network has no such samples, and
takes the mean of the fold networks' scales: on held-out classes of digits its true scale was hardly better.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from openauc import Evaluation, evaluate
from openauc._columns import read_columns, write_columns
from openauc._trial_files import LOG, PREDICTIONS, WEIGHTS, features_file
from openauc._validation import UNKNOWN, check_choice
from openauc.bench.benchmarks import digits
from openauc.bench.benchmarks.table2 import CPU_EPOCHS, cpu_trial
from openauc.bench.paper import METHODS
from openauc.bench.rendering import render
from openauc.bench.store import Store
from openauc.bench.summary import Cell, summarise
from openauc.bench.trial import Scalar, TrialResult, TrialSpec
from openauc.comparison import holm
from openauc.features.classifier.evidence import EvidenceScale, Fold, standardise
from openauc.features.classifier.fitting import COMPARED
from openauc.features.classifier.rejector import EVIDENCE, Learned, Rejector, choose_rejector
from openauc.features.classifier.splits import HeldOutSplit
from openauc.features.scores.base import REJECTORS, Floats
from openauc.features.scores.registry import make_score
from openauc.methods import build_method, recipe_for
from openauc.predictions import Predictions
from openauc.protocols import OpenSetData, Split, get_protocol
from openauc.protocols.sources import Examples
from openauc.training.loop import train
from openauc.training.predict import Embedded, embed
from openauc.training.trained import Network, load_data

Rows = NDArray[np.int64]

FOLDS = "folds.parquet"
N_FOLDS = 3
"""Fold networks; each class is held out of one of them."""
SHARE = 0.25
"""Of the samples of the other classes, what a fold network is not trained on."""
COST = (N_FOLDS - 1) * (1 - SHARE)
"""Trainings of the final network that all fold networks together cost, in samples shown."""
NETWORKS = 3
MANY = 10**6
"""So many classes that a learned rejector is not shrunk toward a rule."""
SEEN = tuple(name for name in COMPARED if name in EVIDENCE)
"""What a rejector learned here looks at."""
CIFAR_IMAGES = 4000
"""Half of the images of the CPU budget, so that everything here is trained on one core within half an hour."""


def trials(protocol: Literal["digits", "cifar10"] = "digits") -> list[TrialSpec]:
    """Every method of digits, or CE+ on CIFAR10, and the rivals of CE+, which has three seeds."""
    check_choice("protocol", protocol, ("digits", "cifar10"))
    chosen = get_protocol(protocol)
    equal = {second for _, second in chosen.duplicate_splits()}
    splits = [split for split in range(len(chosen.splits)) if split not in equal]
    others = [method for method in METHODS if method != "ce_plus"] if protocol == "digits" else []
    networks = [_trial(protocol, split, "ce_plus", seed=seed) for seed in range(NETWORKS) for split in splits]
    more = [_trial(protocol, split, method) for method in others for split in splits]
    ruled = networks if protocol == "digits" else networks[: len(splits)]
    longer = [_trial(protocol, spec.split, "ce_plus", seed=spec.seed, longer=1 + COST) for spec in ruled]
    return [*networks, *longer, *more]


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


def plans(y: Rows, seed: int) -> list[tuple[Rows, Rows]]:
    """Rows that each fold network is trained on, and rows it scores, of training samples with classes ``y``."""
    split = HeldOutSplit(N_FOLDS, n_repeats=1, known_share=SHARE, random_state=seed)
    return list(split.split(y, y))


class Look(NamedTuple):
    """What one fold network says of samples it was not trained on.

    ``raw`` (n, m) are the scores ``COMPARED``, not standardised; ``label`` and ``predicted`` (n,) are classes among all
    of them, and ``known`` (n,) tells which samples' classes are the network's.
    """

    raw: Floats
    label: Rows
    predicted: Rows
    known: NDArray[np.bool_]

    @classmethod
    def of(cls, training: Embedded, rest: Embedded, label: Rows, classes: Rows) -> Look:
        """From its training samples and the others with classes ``label``; ``classes`` are the network's own."""
        predicted = classes[rest.logits.argmax(1)]
        return cls(_scores(COMPARED, training, rest), label, predicted, np.isin(label, classes))

    @property
    def correct(self) -> NDArray[np.bool_]:
        """(n,) whether the sample is known and classified correctly."""
        return np.asarray(self.predicted == self.label)

    def fold(self) -> Fold:
        """The same as the folds of OpenSetClassifier have it."""
        return Fold(self.standardised()[1], self.known, self.correct, self.label, np.ones(len(self.label)))

    def standardised(self) -> tuple[EvidenceScale, Floats]:
        """Mean and deviation of each score on correct samples, and the scores on this scale."""
        return standardise(self.raw, self.predicted, self.correct, n_classes=int(self.predicted.max()) + 1)


def fold_data(data: OpenSetData, rows: Rows, rest: Rows) -> OpenSetData:
    """Some rows of the training part to train on, others as validation slice; classes without a row are unknown."""
    kept = np.unique(data.train.labels[rows])
    position = np.full(data.num_classes, UNKNOWN)
    position[kept] = np.arange(len(kept))
    images, labels = np.asarray(data.train.images), position[data.train.labels]
    parts = Examples(images[rows], labels[rows]), Examples(images[rest], labels[rest])
    known, held = ([data.split.known[i] for i in range(data.num_classes) if (i in kept) == wanted] for wanted in (1, 0))
    return replace(
        data,
        split=Split(tuple(known), tuple(held)),
        read_train=lambda: parts,
        read_class_names=lambda: tuple(data.class_names[i] for i in kept),
    )


def train_folds(spec: TrialSpec, data: OpenSetData) -> tuple[list[Look], float]:
    """Train the fold networks of a trial; what they say, and their seconds."""
    looks, seconds, y = [], 0.0, data.train.labels
    for rows, rest in plans(y, spec.seed):
        fold = fold_data(data, rows, rest)
        sizes = {"image_size": spec.network_recipe.image_size, "num_features": get_protocol(spec.protocol).num_features}
        options = {"backbone": spec.backbone, "width": spec.width, "method_args": spec.method_args}
        method = build_method(spec.method, fold.num_classes, **sizes, seed=spec.seed, **options)
        with tempfile.TemporaryDirectory() as place:
            history = train(method, fold, spec.network_recipe, out=Path(place), seed=spec.seed)
        seconds += sum(row["seconds"] for row in history)
        seen, others = (embed(method, fold, spec.recipe, part=part) for part in ("train", "validation"))
        looks.append(Look.of(seen, others, y[rest], np.unique(y[rows])))
    return looks, seconds


def add_rules(store: Store, data_root: Path | None = None) -> None:
    """Test every network of a store with every rule; results that are there already are kept."""
    for result in store.results():
        spec = result.spec
        ruled = [replace(spec, score=rule) for rule in REJECTORS]
        if result.error or spec.score is not None or spec.is_head or all(map(store.result, ruled)):
            continue
        data = load_data(spec, data_root)
        looks, seconds = train_folds(spec, data)
        network = Network(spec, store.folder(spec), data_root=data_root)
        training, test = (network.embedded(spec, data, part) for part in ("train", "test"))
        for one in ruled:
            store.open(one)
            save_looks(store.folder(one) / FOLDS, looks)
            for name in (WEIGHTS, LOG, *map(features_file, ("train", "test"))):
                store.copy(name, spec, one)
            rejector = choose(str(one.score), looks, training.logits.shape[1])
            scores = reject(rejector, looks, training, test)
            predictions = Predictions.of(test.labels, test.logits.argmax(1), scores)
            predictions.save(store.folder(one) / PREDICTIONS)
            store.save(scored(replace(result, spec=one, seconds=result.seconds + seconds), predictions, data))
        print(spec.id, flush=True)


def scored(result: TrialResult, predictions: Predictions, data: OpenSetData) -> TrialResult:
    """A result with the metrics of other predictions of the test part."""
    found = evaluate(*predictions)
    intervals = {name: (interval.low, interval.high) for name, interval in found.intervals.items()}
    groups = {
        group: dict(evaluate(*(column[data.test_rows(group)] for column in predictions)).values)
        for group in data.split.groups
    }
    return replace(result, metrics=dict(found.values), intervals=intervals, groups=groups)


def save_looks(path: Path, looks: Sequence[Look]) -> None:
    """Write what fold networks said."""
    sizes = [len(look.label) for look in looks]
    label, predicted, known = (np.concatenate([look[i] for look in looks]) for i in (1, 2, 3))
    scores = dict(zip(COMPARED, np.concatenate([look.raw for look in looks]).T, strict=True))
    about = {"fold": np.repeat(np.arange(len(looks)), sizes), "label": label, "predicted": predicted, "known": known}
    write_columns(path, {**about, **scores})


def read_looks(path: Path) -> list[Look]:
    """Read what :func:`save_looks` wrote."""
    columns = read_columns(path)
    raw = np.stack([columns[name] for name in COMPARED], axis=1)
    parts = [columns["fold"] == number for number in range(int(columns["fold"].max()) + 1)]
    about = [columns[name] for name in ("label", "predicted", "known")]
    return [Look(raw[part], *(column[part] for column in about)) for part in parts]


def choose(rule: str, looks: Sequence[Look], n_classes: int) -> Rejector:
    """The rejector that a rule makes of what fold networks say; ``n_classes`` are the final network's."""
    check_choice("rule", rule, REJECTORS)
    return choose_rejector([look.fold() for look in looks], COMPARED, rule, n_classes=n_classes).rejector


def reject(rejector: Rejector, looks: Sequence[Look], training: Embedded, embedded: Embedded) -> Floats:
    """(n,) scores of samples by the final network, of which ``training`` are its training samples."""
    columns = [COMPARED.index(name) for name in rejector.names]
    scales = [look.standardised()[0] for look in looks]
    mean, deviation = (np.mean([scale[i] for scale in scales], axis=0)[columns] for i in (0, 1))
    raw = _scores(rejector.names, training, embedded)
    scores: Floats = rejector(EvidenceScale(mean, deviation)(raw, embedded.logits.argmax(1)))
    return scores


def _scores(names: Sequence[str], training: Embedded, rest: Embedded) -> Floats:
    """(n, m) of the rest, by scores fitted on training samples."""
    fitted = (make_score(name).fit(*training) for name in names)
    return np.stack([score(rest.features, rest.logits) for score in fitted], axis=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path)
    parser.add_argument("name", help="first part of the files' names")
    parser.add_argument("--title", required=True)
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--note", action="append", default=[], help="paragraph below the tables; repeatable")
    chosen = parser.parse_args()
    from publish import row  # beside this file, and not to be found from `openauc run`
    from writing import write_results

    store = Store(chosen.store)
    add_rules(store, chosen.data_root)
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
