"""Draw the paper's figures from real runs into `benchmark/results`, as SVG and PNG.

`python benchmark/draw.py figure1 "NAME=PREDICTIONS" ...`: metrics against the TPR of unknown, a panel a model.
`python benchmark/draw.py figure2 STORE`: OpenAUC against lambda, from `openauc run sensitivity`.
"""

from __future__ import annotations

import argparse
import time

from writing import RESULTS

from openauc import Predictions
from openauc.bench.figures import figure1, figure2, save
from openauc.bench.store import Store
from openauc.environment import environment, hardware_name


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figure", choices=("figure1", "figure2"))
    parser.add_argument("source", nargs="+", help='"NAME=PREDICTIONS" for figure 1, a store for figure 2')
    chosen = parser.parse_args()
    if chosen.figure == "figure1":
        named = (source.partition("=") for source in chosen.source)
        models = {name: Predictions.load(file) for name, _, file in named}
        drawn = figure1(models)
        source = ", ".join(f"{name} ({len(model.y_true):,} samples)" for name, model in models.items())
    else:
        results = [result for source in chosen.source for result in Store(source).results()]
        drawn = figure2(results)
        commits = sorted({result.environment.get("commit", "unknown") for result in results})
        source = f"{len(results)} trials of commit {', '.join(commits)}"
    facts = ", ".join(f"{key} {value}" for key, value in environment().items())
    stem = RESULTS / f"{chosen.figure}_{hardware_name()}_{time.strftime('%Y%m')}"
    for file in save(drawn, stem, about=f"From {source}. Drawn with {facts}."):
        print(file)


if __name__ == "__main__":
    main()
