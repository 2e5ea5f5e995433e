"""Evidence of the learning side: `python benchmark/learning.py checkpoints|mnist --work DIR [--data-root D]`.

Runs what is missing in DIR through the `openauc` command, then writes `benchmark/results/<name>_<hardware>_<yyyymm>.*`.

checkpoints  the five published TinyImageNet models, predicted on the validation images of all splits
mnist        CE+ and OpenAUC on MNIST split 0 with the plus recipe at a CPU-size budget
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

from writing import write_results

from openauc import Evaluation, Predictions, evaluate
from openauc._trial_files import LOG, RESULT

METRICS = ("closed_set_accuracy", "auroc", "openauc")
MNIST_BUDGET = "--recipe plus --epochs 30 --set width=16 --seed 0"


def openauc(*arguments: object) -> None:
    """Run the command line in a process of its own."""
    command = [sys.executable, "-c", "from openauc.cli import main; main()", *map(str, arguments)]
    subprocess.run(command, check=True)


def trained(work: Path, protocol: str, method: str, split: int, *more: object) -> dict:
    """Result of one training, made if it is missing, with its first and last loss and its duration."""
    out = work / f"{protocol}-{method}-{split}"
    if not (out / RESULT).exists():
        openauc("train", protocol, "--method", method, "--split", split, *more, "-o", out)
    log = [json.loads(line) for line in (out / LOG).read_text().splitlines()]
    found = json.loads((out / RESULT).read_text())
    return {
        "method": method,
        "split": split,
        "n_known": found["n_known"],
        "n_unknown": found["n_unknown"],
        **{name: found["metrics"][name] for name in METRICS},
        "intervals": {name: found["intervals"][name] for name in METRICS},
        "first_loss": log[0]["loss"],
        "last_loss": log[-1]["loss"],
        "seconds": sum(row["seconds"] for row in log),
    }


def checkpoints(work: Path, data_root: Path, weights: Path) -> None:
    rows = []
    for split in range(5):
        out = work / f"tinyimagenet-{split}.parquet"
        if not out.exists():
            file = weights / f"tinyimagenet_{split}.safetensors"
            place = ("--weights", file, "--data-root", data_root, "-o", out)
            openauc("predict", "tinyimagenet", "--method", "ce_plus", "--split", split, *place)
        found = evaluate(*Predictions.load(out))
        rows.append({"split": split, **brief(found)})
    published = {"closed_set_accuracy": "84.2", "auroc": "83.0", "openauc": "74.3 ± 3.9"}
    means = {name: summary([row[name] for row in rows]) for name in METRICS}
    lines = [
        "| split | n known | n unknown | accuracy | AUROC | OpenAUC |",
        "|---|---:|---:|---:|---:|---:|",
        *(
            f"| {r['split']} | {r['n_known']:,} | {r['n_unknown']:,} | "
            + " | ".join(
                f"{100 * r[m]:.1f} [{100 * r['intervals'][m][0]:.1f}, {100 * r['intervals'][m][1]:.1f}]"
                for m in METRICS
            )
            + " |"
            for r in rows
        ),
        "| **mean ± population std, n = 5 splits** | | | " + " | ".join(f"**{means[m]}**" for m in METRICS) + " |",
        "| published | | | " + " | ".join(published[m] for m in METRICS) + " |",
    ]
    note = (
        "Published: accuracy and AUROC by the models' authors (means over the five splits), OpenAUC the CE+ row of the "
        "OpenAUC paper, whose models are its own. All values x 100; intervals at 95 %."
    )
    save(
        "tinyimagenet_checkpoints", {"rows": rows, "published": published}, "Published TinyImageNet models", lines, note
    )


def brief(found: Evaluation) -> dict:
    return {
        "n_known": found.n_known,
        "n_unknown": found.n_unknown,
        **{name: found.values[name] for name in METRICS},
        "intervals": {name: list(found.intervals[name]) for name in METRICS},
    }


def summary(values: list[float]) -> str:
    return f"{100 * statistics.mean(values):.1f} ± {100 * statistics.pstdev(values):.1f}"


def mnist(work: Path, data_root: Path, notes: list[str]) -> None:
    more = (*MNIST_BUDGET.split(), "--data-root", data_root)
    rows = [trained(work, "mnist", method, 0, *more) for method in ("ce_plus", "openauc")]
    lines = ["| method | accuracy | AUROC | OpenAUC | 95 % interval | training |", "|---|---:|---:|---:|---:|---:|"]
    lines += [
        f"| {r['method']} | {100 * r['closed_set_accuracy']:.2f} | {100 * r['auroc']:.2f} | {100 * r['openauc']:.2f} | "
        f"[{100 * r['intervals']['openauc'][0]:.2f}, {100 * r['intervals']['openauc'][1]:.2f}] | {r['seconds']:.0f} s |"
        for r in rows
    ]
    note = (
        f"Split 0, {rows[0]['n_known']:,} known and {rows[0]['n_unknown']:,} unknown test images, "
        f"{MNIST_BUDGET}; the paper trains 600 epochs at width 64 (CE+ 99.1, OpenAUC 99.4 "
        "over five splits). All values x 100."
    )
    note = "\n\n".join([note, *notes])
    save("mnist_plus", {"budget": MNIST_BUDGET, "rows": rows}, "MNIST split 0, plus recipe, CPU budget", lines, note)


def save(name: str, content: dict, title: str, lines: list[str], note: str) -> None:
    write_results(name, content, "\n".join([f"# {title}", "", *lines, "", note]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=("checkpoints", "mnist"))
    parser.add_argument("--note", action="append", default=[], help="paragraph below the table of mnist; repeatable")
    parser.add_argument("--work", type=Path, required=True, help="folder of runs, kept and reused")
    parser.add_argument("--data-root", type=Path, help="mirror of the data sets")
    parser.add_argument("--weights", type=Path, help="folder of tinyimagenet_0..4.safetensors")
    chosen = parser.parse_args()
    chosen.work.mkdir(parents=True, exist_ok=True)
    if chosen.name == "checkpoints":
        checkpoints(chosen.work, chosen.data_root, chosen.weights)
    else:
        mnist(chosen.work, chosen.data_root, chosen.note)


if __name__ == "__main__":
    main()
