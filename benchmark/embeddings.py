"""What options of the OpenSetClassifier do on real embeddings: part of the curve, outliers, bounded neighbours.

`python benchmark/embeddings.py FOLDER`, with `clinc150_{train,test,oos_train,oos_test}.parquet` and
`banking77_{train,test}.parquet` in FOLDER, each made by `openauc embed DATA.parquet --encoder minilm -o ...` from
columns `text` and `label`, and `cub_efficientnet_lite2_{train,test}.parquet` where they are at hand; digits come with
scikit-learn. Half of the intents, drawn anew in each of two splits, and six of the ten digits are known; CLINC150's
out-of-scope rows are unknown too. Nothing here was chosen by these numbers: defaults were fixed on CLINC150's
validation part and on digits.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from writing import write_results

import openauc.features.scores.distance as distances
from openauc import openauc_score
from openauc._columns import read_columns
from openauc.features import OpenSetClassifier

SPLITS = 2
PART = 0.1
OUTLIERS = (0, 1, 3, 10)
REFERENCES = (1024, 10**9)
CUB_SPLIT = Path(__file__).resolve().parents[2] / "shared/reference/splits.json"


class Problem(NamedTuple):
    """Training samples of known classes, those of other classes, and a test with both (-1 = unknown)."""

    name: str
    X: Any
    y: Any
    others: Any
    other_classes: Any
    X_test: Any
    y_test: Any

    def openauc(self, part: float | None = None, outliers: Any = None, **options: Any) -> float:
        X, y = self.X, self.y
        if outliers is not None:
            X, y = np.concatenate([X, outliers]), np.append(y, np.full(len(outliers), -1))
        fitted = OpenSetClassifier(random_state=0, **options).fit(X, y)
        return openauc_score(*fitted.predictions(self.X_test, self.y_test), max_ofpr=part)

    def some_others(self, count: int) -> Any:
        rows = [np.flatnonzero(self.other_classes == label)[:count] for label in np.unique(self.other_classes)]
        return self.others[np.concatenate(rows)]


def problem(name: str, train: Any, test: Any, known: Any) -> Problem:
    (X, y), (X_test, y_test) = train, test
    mine = np.isin(y, known)
    number = {label: i for i, label in enumerate(np.asarray(known).tolist())}
    coded = np.array([number.get(label, -1) for label in y.tolist()])
    truth = np.array([number.get(label, -1) for label in y_test.tolist()])
    return Problem(name, X[mine], coded[mine], X[~mine], y[~mine], X_test, truth)


def table(folder: Path, *names: str) -> tuple[Any, Any]:
    read = [read_columns(folder / f"{name}.parquet") for name in names]
    X = np.concatenate([columns["embedding"] for columns in read]).astype(np.float32)
    return X, np.concatenate([columns["label"].astype(str) for columns in read])


def problems(folder: Path) -> Iterator[Problem]:
    for data, extra in (("clinc150", "oos_"), ("banking77", "")):
        parts = {
            part: table(folder, f"{data}_{part}", *([f"{data}_{extra}{part}"] if extra else []))
            for part in ("train", "test")
        }
        labels = np.setdiff1d(parts["train"][1], ["oos"])
        for split in range(SPLITS):
            known = np.random.default_rng(split).permutation(labels)[: len(labels) // 2]
            yield problem(data, parts["train"], parts["test"], known)
    X, y = load_digits(return_X_y=True)
    for split in range(SPLITS):
        X_train, X_test, y_train, y_test = train_test_split(X.astype(np.float32), y, random_state=split)
        known = np.random.default_rng(split).permutation(10)[:6]
        yield problem("digits", (X_train, y_train), (X_test, y_test), known)
    if (folder / "cub_efficientnet_lite2_train.parquet").is_file():
        parts = {part: table(folder, f"cub_efficientnet_lite2_{part}") for part in ("train", "test")}
        known = json.loads(CUB_SPLIT.read_text(encoding="utf-8"))["datasets"]["cub"]["known"]
        yield problem("cub, all unknown classes", parts["train"], parts["test"], np.array(known).astype(str))


def partial(one: Problem) -> dict[str, float]:
    found = {"max_logit": one.openauc(PART, rejector="max_logit")}
    for rejector in ("selected", "learned"):
        for aim in (None, PART):
            name = rejector if aim is None else f"{rejector}, max_ofpr {PART:g}"
            found[name] = one.openauc(PART, rejector=rejector, max_ofpr=aim)
    return found


def outliers(one: Problem) -> dict[str, float]:
    return {f"{count} a class": one.openauc(outliers=one.some_others(count)) for count in OUTLIERS}


def references(one: Problem) -> dict[str, float]:
    found = {}
    for bound in REFERENCES:
        distances.REFERENCES = bound
        name = "all" if bound == REFERENCES[-1] else f"{bound:,}"
        found |= {f"learned, {name}": one.openauc(), f"knn, {name}": one.openauc(rejector="knn")}
    distances.REFERENCES = 1024
    return found


STUDIES: dict[str, tuple[str, Callable[[Problem], dict[str, float]]]] = {
    "partial": (f"Partial OpenAUC (OFPR <= {PART:g}) x 100, by what the fit aims at", partial),
    "outliers": ("OpenAUC x 100 of the learned rejector, by outliers of each unknown class in training", outliers),
    "references": ("OpenAUC x 100, by the number of samples among which neighbours are searched", references),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("study", nargs="*", help=f"some of {', '.join(STUDIES)}; all by default")
    options = parser.parse_args()
    content: dict[str, Any] = {"splits": SPLITS, "seed": 0, "studies": {}}
    lines = [
        "# Options of the OpenSetClassifier on embeddings",
        "",
        "Means over splits; the number of splits in brackets.",
    ]
    for name in options.study or STUDIES:
        title, study = STUDIES[name]
        results: dict[str, list[dict[str, float]]] = {}
        for one in problems(options.folder):
            results.setdefault(one.name, []).append(study(one))
            print(name, one.name, results[one.name][-1], flush=True)
        columns = list(next(iter(results.values()))[0])
        lines += ["", f"## {title}", "", f"| data | {' | '.join(columns)} |", f"|---|{'---:|' * len(columns)}"]
        for data, rows in results.items():
            means = [f"{100 * np.mean([row[column] for row in rows]):.2f}" for column in columns]
            lines.append(f"| {data} ({len(rows)}) | {' | '.join(means)} |")
        content["studies"][name] = results
    write_results("embeddings", content, "\n".join(lines))


if __name__ == "__main__":
    main()
