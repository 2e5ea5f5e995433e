"""Few classes, few samples: the learned rejector against max logit and relative Mahalanobis.

`python benchmark/few.py --work DIR --data-root DATA`. Known classes and their training samples are drawn anew several
times, from CLINC150 (MiniLM) and CUB (EfficientNet-Lite2); unknown are the test samples of 50 other classes,
drawn too, for CLINC150 also its out-of-scope rows. One fit of the OpenSetClassifier at its defaults gives the head for
all three. A finished draw is a file in DIR and is not made again.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from writing import write_results

from openauc import openauc_score
from openauc._files import write_text
from openauc.bench.student import mean_interval, paired_p
from openauc.bench.trial import TrialSpec
from openauc.comparison import holm
from openauc.protocols import PROTOCOLS, OpenSetData, Protocol, Split
from openauc.training.head import FittedHead
from openauc.training.trained import load_data

CLASSES = (2, 4, 6, 10, 20, 50)
SAMPLES = {"clinc150_50": (5, 10, 50), "cub_features": (5, 10, 25)}
DRAWS = {"clinc150_50": 6, "cub_features": 3}
UNKNOWN = 50
SCORES = ("learned", "max_logit", "relative_mahalanobis")


def drawn(protocol: Protocol, classes: int, samples: int, draw: int, data_root: Path) -> OpenSetData:
    """Some classes as known ones, with some training samples each."""
    rng = np.random.default_rng([draw, classes, samples])
    split = protocol.splits[0]
    outside = max((*split.known, *split.unknown)) if protocol.splits[0].groups == {} else -1
    every = rng.permutation([c for c in (*split.known, *split.unknown) if c != outside]).tolist()
    unknown = every[classes : classes + UNKNOWN] + ([outside] if outside >= 0 else [])
    some = Protocol(
        known_source=protocol.known_source,
        unknown_source=protocol.unknown_source,
        splits=(Split(tuple(every[:classes]), tuple(unknown)),),
        num_features=protocol.num_features,
        reference=protocol.reference,
        backbone=protocol.backbone,
    ).load(0, root=data_root)
    rows = [rng.permutation(np.flatnonzero(some.train.labels == c))[:samples] for c in range(classes)]
    kept = np.concatenate(rows)
    train = some.train._replace(images=some.train.images[kept], labels=some.train.labels[kept])
    return OpenSetData(
        split=some.split,
        read_train=lambda: (train, some.validation),
        read_test=some.read_test,
        read_class_names=some.read_class_names,
    )


def measure(name: str, classes: int, samples: int, draw: int, data_root: Path) -> dict[str, Any]:
    data = drawn(PROTOCOLS[name], classes, samples, draw, data_root)
    spec = TrialSpec.of(name, 0, "logistic")
    head = FittedHead(spec, lambda: data)
    found: dict[str, Any] = {"chosen": head.train().report_.chosen, "n_train": len(data.train.labels)}
    test = head.embedded(spec, data, "test")
    for score in SCORES:
        triple = test.predictions(head.score(TrialSpec.of(name, 0, "logistic", score=score)))
        found[score] = openauc_score(*triple)
    found["accuracy"] = float((triple.y_pred == triple.y_true)[triple.y_true >= 0].mean())
    return found


def cell(values: list[float]) -> str:
    low, high = mean_interval(values, 0.95) or (np.nan, np.nan)
    return f"{100 * float(np.mean(values)):+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder of finished draws, kept and reused")
    parser.add_argument("--data-root", type=Path, required=True, help="mirror of the data sets")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    # Nothing is fitted that a protocol's own loading would not have prepared.
    for name in SAMPLES:
        load_data(TrialSpec.of(name, 0, "logistic"), options.data_root)
    results: dict[str, list[dict[str, Any]]] = {}
    for name, numbers in SAMPLES.items():
        for classes in CLASSES:
            for samples in numbers:
                key = f"{name}-{classes}-{samples}"
                for draw in range(DRAWS[name]):
                    file = options.work / f"{key}-{draw}.json"
                    if not file.is_file():
                        write_text(file, json.dumps(measure(name, classes, samples, draw, options.data_root)))
                        print(file.stem, flush=True)
                    results.setdefault(key, []).append(json.loads(file.read_text()))
    differences = {key: [one["learned"] - one["max_logit"] for one in ones] for key, ones in results.items()}
    p_values = {key: paired_p(values) for key, values in differences.items()}
    corrected = dict(zip(p_values, holm([p if p is not None else 1.0 for p in p_values.values()]), strict=True))
    lines = [
        "# Few classes, few samples",
        "",
        f"OpenAUC x 100, means of {' and '.join(map(str, DRAWS.values()))} draws of classes and samples (CLINC150 and "
        f"CUB), 95 % intervals over draws; p by a paired "
        f"t-test, corrected (Holm) for {len(results)} rows. Rejector: what the classifier chose, in how many draws.",
        "",
        "| data | classes | samples a class | max logit | relative Mahalanobis | learned | learned less max logit "
        "| p | rejector |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---|",
    ]
    for key, ones in results.items():
        name, classes, samples = key.rsplit("-", 2)
        means = {score: 100 * float(np.mean([one[score] for one in ones])) for score in SCORES}
        chosen = [one["chosen"] for one in ones]
        told = ", ".join(f"{kind} {chosen.count(kind)}" for kind in dict.fromkeys(chosen))
        lines.append(
            f"| {name.split('_')[0]} | {classes} | {samples} | {means['max_logit']:.1f} | "
            f"{means['relative_mahalanobis']:.1f} | {means['learned']:.1f} | {cell(differences[key])} | "
            f"{corrected[key]:.2g} | {told} |"
        )
    below = [key for key, values in differences.items() if np.mean(values) < 0]
    significant = [key for key in below if corrected[key] < 0.05]
    lines += [
        "",
        f"Rows where the learned rejector is below max logit: {len(below)} of {len(results)}, "
        f"significantly (Holm-corrected p < 0.05) {len(significant)}.",
    ]
    write_results("few", {"draws": DRAWS, "results": results, "p_holm": corrected}, "\n".join(lines))


if __name__ == "__main__":
    main()
