"""Tables with kinds that a model has not seen, and their rejected rows in groups."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from commands.application import run
from openauc.predictions import read_columns

NAMES = np.array(["ant", "bee", "cat", "dog", "elk", "fox"])
QUICK = ("--rejector", "max_logit", "--folds", 2, "--quiet")


def table(path: Path, kinds: int, seed: int, *, per_kind: int = 60, **more: list) -> Path:
    """Texts with embeddings of the first kinds, and their labels."""
    y = np.repeat(np.arange(kinds), per_kind)
    X = (6 * np.eye(8)[y] + np.random.default_rng(seed).normal(size=(len(y), 8))).astype(np.float32)
    texts = [f"number {i}, of kind {NAMES[kind]}" for i, kind in enumerate(y)]
    columns = {"text": texts, "intent": NAMES[y].tolist(), "embedding": list(X)} | more
    pq.write_table(pa.table(columns).replace_schema_metadata({"openauc.encoder": "minilm"}), path)
    return path


def fitted(folder: Path) -> Path:
    """A folder with a model of four kinds, and a table of six."""
    table(folder / "train.parquet", 4, 0)
    table(folder / "new.parquet", 6, 1)
    run("fit", folder / "train.parquet", "-o", folder / "model", *QUICK)
    return folder


def named(groups: Path) -> dict[int, str]:
    """For each group of a folder of `openauc discover`, the kind of most of its rows."""
    pool = read_columns(groups / "rows.parquet")
    kinds = {}
    for group in np.unique(pool["group"][pool["group"] >= 0]).tolist():
        names, counts = np.unique(pool["intent"][pool["group"] == group].astype(str), return_counts=True)
        kinds[group] = str(names[counts.argmax()])
    return kinds


def fill_in(groups: Path, labels: dict[int, str]) -> Path:
    """Write labels into labels.csv, as a person would."""
    head, *lines = (groups / "labels.csv").read_text().splitlines()
    numbers = [int(line.split(",")[0]) for line in lines]
    filled = [line.replace(",,", f",{labels.get(n, '')},", 1) for n, line in zip(numbers, lines, strict=True)]
    (groups / "labels.csv").write_text("\n".join([head, *filled, ""]))
    return groups / "labels.csv"
