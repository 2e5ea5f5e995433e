"""Tools that people would pick instead, beside the OpenSetClassifier: the same embeddings, splits and measures.

`python benchmark/peers.py --work DIR --data-root DATA [--rows NAME ...] [--tools NAME ...] [--splits N] [--again]
[--write]`. Rows are those of `openauc run features`. Every tool is used as its documentation says and sees no unknown
row; nothing is chosen on test rows. Every finished tool of a split is a file in DIR and is not computed again. Tools of
others are measured if DIR/venv is an environment that has them, which is made before with

    python -m venv DIR/venv && DIR/venv/bin/pip install --no-deps -r benchmark/peers_requirements.txt

and, for AutoIntent, which needs torch, `DIR/venv/bin/pip install -c constraints.txt torch`. It takes minutes a
fit and is measured on the first split of a row. All of it takes hours on one core.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from contenders import DATA
from decisions import open_set
from figures import BLUE, GREEN, GREY, ORANGE, look, save
from loop_data import mean, save_arrays, table
from peers_tools import OURS, TOOLS, logistic
from scipy.stats import norm
from scipy.stats import t as student
from sklearn.metrics import log_loss
from sklearn.model_selection import cross_val_predict
from threadpoolctl import threadpool_limits
from writing import RESULTS, hardware_name, write_results

from openauc import auroc_score, compare, openauc_score
from openauc._files import write_text
from openauc.bench.benchmarks.features import HEAD
from openauc.bench.student import mean_interval, paired_p
from openauc.bench.summary import _by_distinct_split
from openauc.bench.trial import TrialSpec
from openauc.comparison import holm
from openauc.environment import environment
from openauc.metrics.ranking import ScoreDirectionWarning
from openauc.protocols import PROTOCOLS, OpenSetData
from openauc.training.trained import load_data

ROWS = [name for name, protocol in PROTOCOLS.items() if protocol.of_embeddings]
SPLITS = 10
PART = 0.1
NEAR = 0.02  # of a share aimed at
STRENGTHS = (0.01, 0.1, 1.0)
REQUIREMENTS = Path(__file__).with_name("peers_requirements.txt")
WORKER = Path(__file__).with_name("peers_tools.py")
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")

RANKED = {"openauc": "OpenAUC", "partial": f"Partial OpenAUC (OFPR up to {PART:g})", "auroc": "AUROC"}
DECIDED = {
    "accuracy": "Accuracy on known rows, none rejected",
    "accepted": "Known rows accepted",
    "rejected": "Unknown rows rejected",
    "open_accuracy": "Accuracy over the known classes and unknown",
    "open_f1": "Macro F1 over the known classes and unknown",
}
TIMED = {"fit_seconds": "Processor seconds to fit", "rows_per_second": "Rows in a processor second"}

USUAL = "max-softmax"
DRAWN = {
    "cleanlab-features": ("cleanlab, features", ORANGE, "o"),
    "cleanlab-pred-probs": ("cleanlab, pred_probs", ORANGE, "D"),
    "pyod-knn": ("PyOD, KNN", GREEN, "o"),
    "semantic-router": ("semantic-router", GREEN, "D"),
    "crepes": ("crepes", GREY, "o"),
    "mapie": ("MAPIE", GREY, "D"),
    "sklearn-calibrated": ("calibrated probability", GREY, "s"),
    USUAL: ("largest probability", "#CC79A7", "o"),
    "relative-mahalanobis": ("relative Mahalanobis", "#CC79A7", "D"),
    "vim": ("ViM", "#CC79A7", "s"),
}
"""Tools of the figure: name, colour and marker."""
LEFT = -22.0  # end of the figure, in points of OpenAUC

Array = Any
Found = dict[str, Any]
Results = Mapping[str, Mapping[str, Sequence[Found]]]
"""By row and tool, what was found on each split; ``split`` is its number."""


def measure(data: OpenSetData, names: Sequence[str], python: Path | None) -> dict[str, Found]:
    """Figures of each tool on one split, or why there are none."""
    X, y = np.asarray(data.train.images), data.train.labels
    strength = choose_strength(X, y) if {*names} - {OURS} else STRENGTHS[-1]
    answers: dict[str, Found] = {}
    with tempfile.TemporaryDirectory() as folder:
        given = Path(folder) / "rows.npz"
        save_arrays(given, X=X, y=y, X_test=np.asarray(data.test.images), C=np.array(strength))
        for interpreter, some in by_interpreter(names, python).items():
            answers |= ask(interpreter, some, given)
    found = {name: {"C": strength, **figures(answers[name], data.test.labels)} for name in names if name in answers}
    for group in data.split.groups:
        rows = data.test_rows(group)
        for name, answer in part_of(answers, rows).items():
            found[name].setdefault("groups", {})[group] = figures(answer, data.test.labels[rows])
            if "score" in answer and "score" in answers.get(OURS, {}) and name != OURS:
                found[name]["groups"][group] |= on_samples(answers, name, rows, data.test.labels)
    return found


def part_of(answers: Mapping[str, Found], rows: Array) -> dict[str, Found]:
    """The same for some test rows."""
    return {
        name: {key: value[rows] if np.ndim(value) else value for key, value in answer.items()}
        for name, answer in answers.items()
    }


def on_samples(answers: Mapping[str, Found], tool: str, rows: Array, y: Array) -> Found:
    """Interval and p of OpenAUC of ours less that of the tool over the samples, for data with one split."""
    triples = [(y[rows], *(answers[name][key][rows] for key in ("predicted", "score"))) for name in (OURS, tool)]
    found = compare(*triples, metrics=["openauc"], names=("ours", "theirs")).differences[0]
    return {"interval": list(found.interval), "p": found.p_value}


def choose_strength(X: Array, y: Array) -> float:
    """C of the logistic regression beside tools without a classifier: the one of least log loss in three folds."""

    def loss(C: float) -> float:
        return float(log_loss(y, cross_val_predict(logistic(C), X, y, cv=3, method="predict_proba")))

    return min(STRENGTHS, key=loss)


def by_interpreter(names: Sequence[str], python: Path | None) -> dict[Path, list[str]]:
    """Which interpreter runs which tools; those of others are left out if theirs is not there."""
    found: dict[Path, list[str]] = {}
    for name in names:
        interpreter = Path(sys.executable) if TOOLS[name].package in ("openauc", "scikit-learn") else python
        if interpreter is not None:
            found.setdefault(interpreter, []).append(name)
    return found


def ask(python: Path, names: Sequence[str], given: Path) -> dict[str, Found]:
    """Answers of tools in a process of their own; one that ends the process costs no other one its answer."""
    found: dict[str, Found] = {}
    while left := [name for name in names if name not in found]:
        with tempfile.TemporaryDirectory() as folder:
            command = [str(python), str(WORKER), str(given), folder, *left]
            ended = subprocess.run(command, capture_output=True, text=True, env=os.environ | ONE_THREAD)
            for file in sorted(Path(folder).glob("*.*")):
                found[file.stem] = read_answer(file)
        if ended.returncode:
            first = next((name for name in left if name not in found), None)
            if first is not None:
                last = ended.stderr.strip().splitlines()[-1:] or ["it printed nothing"]
                found[first] = {"error": f"its process ended with {ended.returncode}: {last[0][:300]}"}
        elif not found.keys() >= set(left):
            raise RuntimeError(f"{' '.join(command)} gave no answer: {ended.stderr[-2000:]}")
    return found


def read_answer(file: Path) -> Found:
    if file.suffix == ".json":
        return dict(json.loads(file.read_text()))
    with np.load(file) as arrays:
        return {name: value if value.ndim else value.item() for name, value in arrays.items()}


def figures(answer: Found, y: Array) -> Found:
    """What the answers are worth; ``y`` is below 0 for unknown rows."""
    if "score" not in answer:
        return answer
    predicted, score, rejected = (answer[key] for key in ("predicted", "score", "rejected"))
    if not np.isfinite(score).all():
        return {"version": answer["version"], "error": f"{(~np.isfinite(score)).sum()} scores are not finite."}
    known = y >= 0
    accuracy, f_score = open_set(y, predicted, rejected)
    return {
        "version": answer["version"],
        "openauc": float(openauc_score(y, predicted, score)),
        "partial": float(openauc_score(y, predicted, score, max_ofpr=PART)),
        "auroc": float(auroc_score(y, predicted, score)),
        "accuracy": float((predicted == y)[known].mean()),
        "accepted": float(1 - rejected[known].mean()),
        "rejected": float(rejected[~known].mean()),
        "open_accuracy": float(accuracy),
        "open_f1": float(f_score),
        "fit_seconds": answer["fit_seconds"],
        "rows_per_second": len(y) / answer["test_seconds"],
    }


def run(
    rows: Sequence[str], tools: Sequence[str], splits: int, work: Path, data_root: Path | None, again: bool
) -> dict[str, dict[str, list[Found]]]:
    """Results of each row and tool; what is finished is read."""
    python = find_python(work)
    results: dict[str, dict[str, list[Found]]] = {}
    for row in rows:
        results[row] = {name: [] for name in tools}
        for split in range(min(splits, len(PROTOCOLS[row].splits))):
            some = [name for name in tools if split < TOOLS[name].splits]
            files = {name: work / f"{row}-{split}-{name}.json" for name in some}
            left = [name for name in some if again or not files[name].is_file()]
            left = [name for names in by_interpreter(left, python).values() for name in names]
            new = measure(load_data(TrialSpec.of(row, split, HEAD), data_root), left, python) if left else {}
            for name, found in new.items():
                if "missing" not in found:
                    write_text(files[name], json.dumps(found))
            if new:
                print(f"{row}-{split}: {len(new)} tools", file=sys.stderr, flush=True)
            for name, file in files.items():
                found = json.loads(file.read_text()) if file.is_file() else new.get(name, {"missing": "no environment"})
                results[row][name].append({"split": split, **found})
    return {part: tools for row, found in results.items() for part, tools in by_group(row, found).items()}


def by_group(row: str, tools: dict[str, list[Found]]) -> dict[str, dict[str, list[Found]]]:
    """A row for each group of unknown classes, in place of the one of all of them, where there are groups."""
    groups = dict.fromkeys(group for ones in tools.values() for one in ones for group in one.get("groups", ()))
    if not groups:
        return {row: tools}
    return {
        f"{row} {group}": {
            name: [
                {key: value for key, value in one.items() if key != "groups"} | one.get("groups", {}).get(group, {})
                for one in ones
            ]
            for name, ones in tools.items()
        }
        for group in groups
    }


def find_python(work: Path) -> Path | None:
    """The interpreter of the tools of others, or how to make its environment."""
    python = work / "venv" / "bin" / "python"
    if python.is_file():
        return python
    print(
        f"The tools of others are left out: there is no {python}. To measure them: python -m venv {work / 'venv'} && "
        f"{python} -m pip install --no-deps -r {REQUIREMENTS}",
        file=sys.stderr,
    )
    return None


# Telling


def finished(results: Results, row: str, tool: str) -> dict[int, Found]:
    """Figures by split."""
    return {one["split"]: one for one in results[row].get(tool, ()) if "openauc" in one}


def differences(results: Results) -> dict[str, dict[str, Found]]:
    """OpenAUC of ours less that of each peer, over the distinct splits that both have; Holm over the peers of a row."""
    every: dict[str, dict[str, Found]] = {}
    for row, tools in results.items():
        mine = finished(results, row, OURS)
        every[row] = {}
        for tool in tools:
            theirs = finished(results, row, tool)
            both = {(split, 0): mine[split]["openauc"] - theirs[split]["openauc"] for split in theirs if split in mine}
            if both and tool != OURS:
                sample = _by_distinct_split(row.split()[0], both)
                interval, p, error = mean_interval(sample, 0.95), paired_p(sample), None
                if len(sample) == 1:  # over its samples
                    interval, p = (theirs[min(theirs)].get(key) for key in ("interval", "p"))
                if interval:
                    times = student.ppf(0.975, len(sample) - 1) if len(sample) > 1 else norm.ppf(0.975)
                    error = float((interval[1] - interval[0]) / 2 / times)
                one = {"difference": mean(sample), "n": len(sample), "interval": interval, "p": p, "error": error}
                every[row][tool] = one
        tested = [found for found in every[row].values() if found["p"] is not None]
        for found, p_holm in zip(tested, holm([found["p"] for found in tested]), strict=True):
            found["p_holm"] = p_holm
    return every


def over_rows(every: Mapping[str, Mapping[str, Found]]) -> dict[str, Found]:
    """Mean over all rows of what ours is ahead of each peer that has them all, and its test over splits or samples.

    Rows of one data set are taken as if they varied together, those of different ones as independent. Degrees of
    freedom are those of the row with the fewest distinct splits.
    """
    found: dict[str, Found] = {}
    for tool in dict.fromkeys(tool for tools in every.values() for tool in tools):
        of_rows = {row: tools[tool] for row, tools in every.items() if tool in tools}
        if len(of_rows) < len(every) or any(one["error"] is None for one in of_rows.values()):
            continue
        by_data: dict[str, float] = {}
        for row, one in of_rows.items():
            name = re.split(r"[^a-z]", row)[0]
            by_data[name] = by_data.get(name, 0.0) + one["error"] / len(every)
        values = [float(one["difference"]) for one in of_rows.values()]
        error = float(np.hypot.reduce(list(by_data.values())))
        degrees = min((one["n"] - 1 for one in of_rows.values() if one["n"] > 1), default=len(every))
        half = float(student.ppf(0.975, degrees)) * error
        p = float(2 * student.sf(abs(mean(values)) / error, degrees)) if error else 1.0
        found[tool] = {
            "difference": mean(values),
            "lowest": min(values),
            "higher": sum(value > 0 for value in values),
            "interval": [mean(values) - half, mean(values) + half],
            "p": p,
        }
    for one, p_holm in zip(found.values(), holm([one["p"] for one in found.values()]), strict=True):
        one["p_holm"] = p_holm
    return found


def near_aim(results: Results, tool: str) -> tuple[int, int, float] | None:
    """In how many rows a tool accepts the share of known rows it aims at, of how many, and how far off it is at most.

    None if it aims at no share.
    """
    if (aim := TOOLS[tool].aim) is None:
        return None
    shares = [[one["accepted"] for one in finished(results, row, tool).values()] for row in results]
    off = [abs(mean(share) - aim) for share in shares if share]
    return sum(distance <= NEAR for distance in off), len(off), max(off, default=0.0)


def verdict(found: Found) -> int:
    """1 if ours is significantly ahead, -1 if it is behind, else 0."""
    return int(np.sign(found["difference"])) if found.get("p_holm", 1.0) < 0.05 else 0


def best_rival(results: Results, every: Mapping[str, Mapping[str, Found]], row: str) -> str:
    """The peer with the largest OpenAUC, of those that have all splits of ours."""
    whole = [tool for tool in every[row] if len(finished(results, row, tool)) == len(finished(results, row, OURS))]
    return min(whole, key=lambda tool: float(every[row][tool]["difference"]))


def in_short(results: Results, every: Mapping[str, Mapping[str, Found]]) -> list[str]:
    """One line for each row: the usual way to reject, the best other tool, and ours."""
    lines = []
    for row, tools in every.items():
        if tools:
            here, best = {row: results[row]}, best_rival(results, every, row)
            cells = [means(here, USUAL, "openauc")[0], f"{best} {means(here, best, 'openauc')[0]}"]
            cells += [means(here, OURS, "openauc")[0], f"{100 * tools[best]['difference']:+.1f}{bounds(tools[best])}"]
            lines.append([title(row), str(len(PROTOCOLS[row.split()[0]].splits[0].known)), *cells])
    heads = ["data", "known classes", "largest probability", "best other tool, picked on test", "openauc", "gain"]
    return table(heads, lines)


def summary(every: Mapping[str, Mapping[str, Found]]) -> str:
    """The comparison in sentences."""
    pairs = [(row, tool, found) for row, tools in every.items() for tool, found in tools.items()]
    if not pairs:
        return "There is no peer to compare with."
    ahead, behind = (sum(verdict(found) == sign for *_, found in pairs) for sign in (1, -1))
    higher = sum(found["difference"] > 0 for *_, found in pairs)
    return (
        f"Of {len(pairs)} comparisons of OpenAUC (peer by row), openauc is significantly ahead in {ahead} "
        f"(Holm-corrected p < 0.05), significantly behind in {behind}, and higher in {higher}."
    )


def page(results: Results) -> str:
    every = differences(results)
    tools = list(dict.fromkeys(tool for found in results.values() for tool in found))
    counts = ", ".join(f"{row} {max(map(len, found.values()))}" for row, found in results.items())
    lines = [
        "# Tools that people would pick instead",
        "",
        "The same embeddings and splits for all, those of `openauc run features`. No tool sees an unknown row, and "
        "nothing is chosen on test rows. Tools without a classifier are beside scikit-learn's logistic regression on "
        f"standardised columns, whose C is the one of {', '.join(map(str, STRENGTHS))} with the least log loss in "
        "three folds of the training rows; the choice is not in the seconds. Tools from energy to relative-mahalanobis "
        "are the formulas of pytorch-ood 0.4.0, written down in numpy on the embeddings and this classifier: the "
        "package needs torchvision. One thread. x 100, but for seconds and rows a second.",
        "",
        f"Splits: {counts}; tools that take long are measured on fewer ones, the first.",
        "",
        summary(every),
        "",
        "## In short",
        "",
        *in_short(results, every),
        "",
        "The best other tool is picked on the test rows, among those with all splits; the gain is over it.",
        "",
        "## Tools and their thresholds",
        "",
        *table(
            ["tool", "package", "threshold", "why it failed", "failed", "aim", "rows within 2 points", "most off"],
            [
                [name, package_of(name, results), TOOLS[name].threshold, *failures(name, results), *aim(results, name)]
                for name in tools
            ],
            4,
        ),
        "",
        "The aim is the share of known rows to accept, where a threshold has one.",
        "",
        "## OpenAUC of openauc less that of the tool, mean over all rows",
        "",
        "Intervals and p are over splits, for CUB over samples, with rows of one data set taken as if they varied "
        "together; corrected (Holm) for the tools. Bold: significant. They speak of these data, not of others.",
        "",
        *table(
            ["tool", "mean over rows", "p", "lowest row", "rows with openauc higher"],
            [[name, *overall(found, len(results))] for name, found in over_rows(every).items()],
        ),
        "",
        "## OpenAUC of openauc less that of the tool",
        "",
        "Means over distinct splits, with 95 % intervals and p of a paired t-test, or of DeLong's test on the samples "
        "where there is one split; corrected (Holm) for the tools of a row. Bold: significant.",
        "",
        *table(["tool", *results], [[name, *(gap(every[row].get(name)) for row in results)] for name in tools[1:]]),
    ]
    for measures, remark in ((RANKED, ""), (DECIDED, "At the tool's own threshold."), (TIMED, "")):
        for key, title in measures.items():
            lines += ["", f"## {title}", "", *([remark, ""] if remark and key != "accuracy" else [])]
            lines += table(["tool", *results], [[name, *means(results, name, key)] for name in tools])
    return "\n".join(lines)


def package_of(name: str, results: Results) -> str:
    versions = {one["version"] for tools in results.values() for one in tools.get(name, ()) if "version" in one}
    return " ".join([TOOLS[name].package, *sorted(versions)])


def failures(name: str, results: Results) -> tuple[str, str]:
    """Why splits have no figures, and how many."""
    ones = [one for tools in results.values() for one in tools.get(name, ())]
    told = [one.get("error") or f"not installed: {one['missing']}" for one in ones if "openauc" not in one]
    return "; ".join(dict.fromkeys(told)).replace("|", "/"), f"{len(told)} of {len(ones)}"


def aim(results: Results, tool: str) -> tuple[str, str, str]:
    found = near_aim(results, tool)
    if found is None:
        return "", "", ""
    return f"{100 * (TOOLS[tool].aim or 0):g}", f"{found[0]} of {found[1]}", f"{100 * found[2]:.1f}"


def overall(found: Found, rows: int) -> tuple[str, str, str, str]:
    bold = "**" if verdict(found) else ""
    return (
        f"{bold}{100 * found['difference']:+.1f}{bold}{bounds(found)}",
        f"{max(found['p_holm'], 1e-16):.2g}",
        f"{100 * found['lowest']:+.1f}",
        f"{found['higher']} of {rows}",
    )


def bounds(found: Found) -> str:
    return " [{:+.1f}, {:+.1f}]".format(*(100 * bound for bound in found["interval"])) if found["interval"] else ""


def gap(found: Found | None) -> str:
    if found is None:
        return ""
    told = f"{100 * found['difference']:+.1f}"
    if found["interval"] is None:
        return told
    told = f"**{told}**" if verdict(found) else told
    return f"{told}{bounds(found)}, p {max(found['p_holm'], 1e-16):.2g}"


def title(row: str) -> str:
    name, _, group = row.partition(" ")
    return f"{DATA[name]} {group}".strip()


def draw(every: Mapping[str, Mapping[str, Found]], *, dark: bool) -> Any:
    """OpenAUC of each tool less that of openauc, a row a data set, with 95 % intervals."""
    rows = [row for row, tools in every.items() if tools]
    ink = "#E6E6E6" if dark else "#222222"
    with look() as pyplot:
        figure = pyplot.figure(figsize=(7.2, 0.9 + 0.58 * len(rows)), layout="constrained")
        figure.patch.set_alpha(0)
        ax = figure.subplots()
        ax.set_facecolor("none")
        ax.axvline(0, color="#56B4E9" if dark else BLUE, linewidth=2.2, label="openauc")
        for index, (tool, (name, color, marker)) in enumerate(DRAWN.items()):
            shift = 0.76 * ((index + 0.5) / len(DRAWN) - 0.5)
            for place, row in enumerate(rows):
                if (found := every[row].get(tool)) is None:
                    continue
                value, y = -100 * found["difference"], place + shift
                if found["interval"] is not None:
                    ends = np.clip([-100 * bound for bound in found["interval"]], LEFT, None)
                    ax.plot(ends, [y, y], color=color, linewidth=1.2, alpha=0.7)
                ax.plot(max(value, LEFT), y, marker if value > LEFT else "<", color=color, markersize=4.2)
            ax.plot([], [], marker, color=color, markersize=4.2, label=name)
        for place in range(1, len(rows)):
            ax.axhline(place - 0.5, color="#3A3A3A" if dark else "#E6E6E6", linewidth=0.7)
        ax.set_yticks(range(len(rows)), [title(row) for row in rows])
        ax.set_ylim(len(rows) - 0.5, -0.5)
        ax.set_xlim(LEFT - 0.8, None)
        ax.set_xlabel("OpenAUC less that of openauc (points; 95 % intervals; left is worse)")
        for text in (ax.xaxis.label, *ax.get_xticklabels(), *ax.get_yticklabels()):
            text.set_color(ink)
        ax.grid(axis="y", visible=False)
        if dark:
            ax.grid(axis="x", color="#3A3A3A")
        figure.legend(loc="outside upper center", ncols=4, frameon=False, labelcolor=ink, fontsize=8)
        return figure


def means(results: Results, name: str, key: str) -> list[str]:
    cells = []
    for row in results:
        values = [one[key] for one in finished(results, row, name).values()]
        told = f"{mean(values):,.2f}" if key == "fit_seconds" else f"{mean(values):,.0f}"
        cells.append("" if not values else told if key in TIMED else f"{100 * mean(values):.1f}")
    return cells


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder of finished splits, kept and reused")
    parser.add_argument("--data-root", type=Path, help="mirror of the data sets")
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=ROWS, help="all if left out")
    parser.add_argument("--tools", nargs="+", choices=TOOLS, default=list(TOOLS), help="all if left out")
    parser.add_argument("--splits", type=int, default=SPLITS, help="first splits of each row")
    parser.add_argument("--again", action="store_true", help="compute what is finished once more")
    parser.add_argument("--write", action="store_true", help="write the results files")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore", ScoreDirectionWarning)  # which way scores point is not in doubt
    tools = [name for name in TOOLS if name in {OURS, *options.tools}]
    with threadpool_limits(1):
        results = run(options.rows, tools, options.splits, options.work, options.data_root, options.again)
    text = page(results)
    if options.write:
        content = {
            "command": f"python benchmark/peers.py --work DIR --data-root DATA --rows {' '.join(options.rows)} --tools "
            f"{' '.join(tools)} --splits {options.splits}",
            "threads": 1,
            "requirements": REQUIREMENTS.read_text().split(),
            "differences": differences(results),
            "over_rows": over_rows(differences(results)),
            "results": results,
        }
        write_results("peers", content, text)
        for dark in (False, True):
            name = f"peers{'-dark' if dark else ''}_{hardware_name()}_{time.strftime('%Y%m')}"
            about = f"peers.py, commit {environment()['commit']}"
            save(draw(differences(results), dark=dark), RESULTS / name, about=about)
    else:
        print(text)


if __name__ == "__main__":
    main()
