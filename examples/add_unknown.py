"""Add "unknown" to a classifier: six of scikit-learn's ten digits are known, the other four come as a surprise.

    python examples/add_unknown.py [FOLDER]

Needs no download. Writes the model and the rows that came later to FOLDER, runs/unknown by default.
"""

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from sklearn.datasets import load_digits

from openauc import OpenSetClassifier, openauc_score

NAMES = np.array(["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"])
KNOWN = NAMES[:6]


def main(folder: Path) -> None:
    """Fit on half of the known digits, decide on everything else."""
    pixels, digit = load_digits(return_X_y=True)
    X, y = (pixels / 16).astype(np.float32), NAMES[digit]  # any embeddings (n, d) do
    known = np.flatnonzero(np.isin(y, KNOWN))
    train = np.random.default_rng(0).permutation(known)[: len(known) // 2]
    later = np.setdiff1d(np.arange(len(y)), train)

    classifier = OpenSetClassifier(random_state=0).fit(X[train], y[train])
    answers, is_known = classifier.predict(X[later]), np.isin(y[later], KNOWN)
    accepted = answers != "unknown"
    print(f'\nAdd "unknown" to a classifier: {len(train)} images of six digits, then {len(later)} others of all ten')
    print(f"  known digits accepted             {np.mean(accepted[is_known]):6.1%}")
    print(f"  ... and called by their name      {np.mean(answers[is_known] == y[later][is_known]):6.1%}")
    print(f"  new digits called unknown         {np.mean(~accepted[~is_known]):6.1%}")
    print(f"  OpenAUC                           {openauc_score(*classifier.predictions(X[later], y[later])):6.4f}")
    print(f"guarantee: {classifier.guarantee_}")

    classifier.save(folder / "model")
    table = pa.table({"embedding": list(X[later]), "label": y[later]})
    pq.write_table(table, folder / "later.parquet")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/unknown"))
