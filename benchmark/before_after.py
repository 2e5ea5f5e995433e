"""The classifier at its defaults, beside the published rows of `openauc run features` made by the version before.

`python benchmark/before_after.py --work DIR --data-root DATA [--before FILE] [--protocols NAME,NAME] [--write]`. For
every split of every protocol of embeddings: OpenAUC on the test part, its forecast, and the share of known test samples
that the threshold accepts. A finished split is a file in DIR and is not computed again.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from writing import write_results

from openauc import openauc_score
from openauc._files import write_text
from openauc.bench.student import mean_interval, paired_p
from openauc.bench.trial import TrialSpec
from openauc.comparison import holm
from openauc.features import OpenSetClassifier
from openauc.protocols import PROTOCOLS
from openauc.training.trained import load_data

PUBLISHED = "features_networks_amd-epyc-2c_202611.json"
Found = dict[str, Any]


def published(path: Path) -> dict[tuple[str, int], float]:
    """OpenAUC of the learned rejector on each split."""
    trials = json.loads(path.read_text())["trials"]
    names = trials["columns"].split()
    rows = [dict(zip(names, row.split(), strict=False)) for row in trials["rows"]]
    learned = [row for row in rows if (row["method"], row["score"]) == ("logistic", "learned")]
    return {(row["protocol"], int(row["split"])): float(row["openauc"]) for row in learned}


def measure(protocol: str, split: int, data_root: Path) -> Found:
    """One fit at the defaults."""
    data = load_data(TrialSpec.of(protocol, split, "logistic"), data_root)
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        classifier = OpenSetClassifier(random_state=0).fit(np.asarray(data.train.images), data.train.labels)
    triple = classifier.predictions(data.test.images, data.test.labels)
    known = triple.y_true >= 0
    expected = classifier.report_.expected
    return {
        "openauc": openauc_score(*triple),
        "accepted": float((triple.open_score <= classifier.thresholds_[triple.y_pred])[known].mean()),
        "accuracy": float((triple.y_pred == triple.y_true)[known].mean()),
        "forecast": None if expected is None else [expected.openauc, *expected.interval],
        "chosen": classifier.report_.chosen,
        "warnings": [str(one.message) for one in given if issubclass(one.category, UserWarning)],
    }


def summarise(found: dict[str, list[Found]], before: dict[tuple[str, int], float]) -> list[Found]:
    """A row for each protocol; p-values of the change are Holm's."""
    rows = []
    for protocol, splits in found.items():
        old = [before[protocol, split] for split in range(len(splits))]
        new = [one["openauc"] for one in splits]
        change = [b - a for a, b in zip(old, new, strict=True)]
        rows.append(
            {
                "data": protocol,
                "splits": len(splits),
                "before": float(np.mean(old)),
                "after": float(np.mean(new)),
                "change": float(np.mean(change)),
                "interval": mean_interval(change, 0.95),
                "p": paired_p(change) if len(change) > 1 else None,
                "accepted": float(np.mean([one["accepted"] for one in splits])),
                "forecast": float(np.mean([one["forecast"][0] for one in splits if one["forecast"]] or [np.nan])),
                "warned": sum(bool(one["warnings"]) for one in splits),
            }
        )
    tested = [row for row in rows if row["p"] is not None]
    for row, p in zip(tested, holm([row["p"] for row in tested]), strict=True):
        row["p"] = float(p)
    return rows


def table(rows: list[Found]) -> str:
    lines = [
        "| data | splits | before | after | change, 95 % interval | p (Holm) | forecast | known accepted | warned |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        low, high = row["interval"] or (np.nan, np.nan)
        spread = "" if row["interval"] is None else f" [{100 * low:+.2f}, {100 * high:+.2f}]"
        p = "" if row["p"] is None else f"{row['p']:.2f}"
        values = " | ".join(f"{100 * row[name]:.1f}" for name in ("before", "after"))
        rest = " | ".join(f"{100 * row[name]:.1f}" for name in ("forecast", "accepted"))
        lines.append(
            f"| {row['data']} | {row['splits']} | {values} | {100 * row['change']:+.2f}{spread} | {p} | {rest} "
            f"| {row['warned']} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--data-root", type=Path, required=True)
    parser.add_argument("--before", type=Path, default=Path(__file__).parent / "results" / PUBLISHED)
    parser.add_argument("--protocols", default=",".join(n for n, p in PROTOCOLS.items() if p.of_embeddings))
    parser.add_argument("--write", action="store_true")
    chosen = parser.parse_args()
    before, found = published(chosen.before), {}
    chosen.work.mkdir(parents=True, exist_ok=True)
    for protocol in chosen.protocols.split(","):
        found[protocol] = []
        for split in range(len(PROTOCOLS[protocol].splits)):
            file = chosen.work / f"{protocol}-{split}.json"
            if not file.is_file():
                write_text(file, json.dumps(measure(protocol, split, chosen.data_root)))
            found[protocol].append(json.loads(file.read_text()))
    rows = summarise(found, before)
    text = (
        "# The classifier at its defaults, before and after\n\nOpenAUC of the learned rejector in percent, means over "
        f"splits; before: `{chosen.before.name}`. p-values are Holm-corrected paired t-tests.\n\n{table(rows)}"
    )
    print(text)
    if chosen.write:
        write_results("features_change", {"rows": rows, "splits": found}, text)


if __name__ == "__main__":
    main()
