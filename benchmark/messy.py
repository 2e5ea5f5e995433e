"""Aim and outcome on data as people have them, beside plain peers: copies, few rows, raw tables, drifted shares.

`python benchmark/messy.py --work DIR --data-root DATA [--kinds NAME ...] [--repeats N] [--again] [--write]`, with
OMP_NUM_THREADS=1. Rows of `messy_data.ROWS`, of seven kinds, are drawn and fitted as `promises.py` does it. Told are
what the OpenSetClassifier says before (acceptance, OpenAUC, unknown rows rejected), what came on fresh rows, and what
peers of scikit-learn accept and reject with the same aim. A finished repeat is a file in DIR and is not made again;
data that cannot be had is left out with a remark. All of it takes about 15 minutes on one core. No number was chosen
by results.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from loop_data import percent, table
from messy_data import ROWS, Array, Drawn, Store
from promises import measure as measure_ours
from sklearn.ensemble import IsolationForest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.neighbors import LocalOutlierFactor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits
from writing import write_results

from openauc._files import write_text

AIM = 0.95  # the default acceptance, too
GOAL = 0.02  # distance from the aim, and of a forecast from what came
FOLDS = 5
KINDS: dict[str, tuple[str, ...]] = {
    "duplicates": ("banking-30x30", "banking-30x30-twice", "banking-30x30-four-times"),
    "near-copies": ("banking-typos-1", "banking-typos-2", "banking-typos-1-with-texts"),
    "imbalance": ("clinc-small-classes", "banking-messy", "banking-messy-with-texts"),
    "few-rows": ("clinc-20x2", "clinc-20x5", "clinc-20x10"),
    "raw-tables": (
        *(f"{name}-without-{c}" for name in ("penguins", "wine") for c in range(3)),
        "breast-cancer",
        *(f"segments-without-{c}" for c in range(7)),
    ),
    "useless-columns": ("digits", "digits-useless-columns"),
    "drifted-shares": ("clinc-drifted", "clinc-drifted-reversed"),
}
OURS = "OpenSetClassifier"
FORECASTS = {"unknown rejected": ("forecast_rejected", "rejected"), "OpenAUC": ("forecast", "openauc")}

Found = dict[str, Any]


def probability(drawn: Drawn, seed: int) -> tuple[Array, float]:
    """One less the largest probability of a logistic regression, and the limit from cross-validation."""
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    folds = int(np.clip(np.unique(drawn.y, return_counts=True)[1].min(), 2, FOLDS))
    cut = StratifiedKFold(folds, shuffle=True, random_state=seed)
    held_out = cross_val_predict(model, drawn.X, drawn.y, cv=cut, method="predict_proba").max(1)
    largest = model.fit(drawn.X, drawn.y).predict_proba(drawn.X_test).max(1)
    return 1 - largest, float(np.quantile(1 - held_out, AIM))


def outlier_factor(drawn: Drawn, seed: int) -> tuple[Array, float]:
    model = make_pipeline(StandardScaler(), LocalOutlierFactor(novelty=True, contamination=1 - AIM)).fit(drawn.X)
    return -model.decision_function(drawn.X_test), 0.0


def isolation_forest(drawn: Drawn, seed: int) -> tuple[Array, float]:
    model = make_pipeline(StandardScaler(), IsolationForest(contamination=1 - AIM, random_state=seed)).fit(drawn.X)
    return -model.decision_function(drawn.X_test), 0.0


PEERS = {
    "LogisticRegression": probability,
    "LocalOutlierFactor": outlier_factor,
    "IsolationForest": isolation_forest,
}


def measure(name: str, store: Store, seed: int) -> dict[str, Found]:
    """What each contender does on one draw, by its name."""
    found = {OURS: measure_ours(ROWS[name], store, seed)}
    drawn = ROWS[name].make(store, seed)
    unknown = ~np.isin(drawn.y_test, drawn.y)
    for peer, judge in PEERS.items():
        with warnings.catch_warnings(action="ignore"):  # few rows, copies
            score, limit = judge(drawn, seed)
        rejected = score > limit
        found[peer] = {
            "accepted": float(1 - rejected[~unknown].mean()),
            "rejected": float(rejected[unknown].mean()) if unknown.any() else None,
            "auroc": float(roc_auc_score(unknown, score)) if unknown.any() else None,
        }
    return found


def run(kinds: Sequence[str], store: Store, repeats: int | None, again: bool) -> tuple[dict[str, list[Any]], list[str]]:
    """Results of each row, where what is finished is read; and remarks on rows whose data cannot be had."""
    results: dict[str, list[Any]] = {}
    remarks = []
    for name in (name for kind in kinds for name in KINDS[kind]):
        for seed in range(repeats or ROWS[name].repeats):
            file = store.work / f"{name}-{seed}.json"
            if again or not file.is_file():
                try:
                    found = measure(name, store, seed)
                except (FileNotFoundError, subprocess.CalledProcessError) as error:
                    remarks.append(f"{name} was left out: {error}")
                    print(remarks[-1], file=sys.stderr, flush=True)
                    break
                write_text(file, json.dumps(found))
                print(file.stem, file=sys.stderr, flush=True)
            results.setdefault(name, []).append(json.loads(file.read_text()))
    return results, remarks


# Telling


def fitted(ones: Sequence[dict[str, Found]], contender: str) -> list[Found]:
    return [one[contender] for one in ones if "refused" not in one[contender]]


def numbers(found: Sequence[Found], key: str) -> list[float]:
    return [one[key] for one in found if one[key] is not None]


def forecasts(found: Sequence[Found], forecast: str, came: str) -> list[tuple[float, float]]:
    """Forecast and what came, of the fits that have both."""
    first = [np.ravel(one[forecast])[0] for one in found if one[forecast] is not None and one[came] is not None]
    second = [one[came] for one in found if one[forecast] is not None and one[came] is not None]
    return list(zip(map(float, first), second, strict=True))


def compared(pairs: Sequence[tuple[float, float]]) -> list[str]:
    """Forecast, what came, and the difference with its interval."""
    if not pairs:
        return ["", "", ""]
    forecast, came = np.array(pairs).T
    return [percent(forecast), percent(came), percent(forecast - came, interval=True)]


def is_near(values: Sequence[float], aim: float) -> bool:
    """Whether the mean is within the goal."""
    return bool(values) and abs(float(np.mean(values)) - aim) <= GOAL + 1e-12


def promises_table(results: Mapping[str, Sequence[dict[str, Found]]]) -> list[str]:
    lines = []
    for name, ones in results.items():
        found = fitted(ones, OURS)
        first = next(iter(found), None)
        accepted = numbers(found, "accepted")
        lines.append(
            [
                name,
                f"{first['n']:,}" if first else "",
                f"{len(found)} of {len(ones)}",
                percent(accepted, interval=True),
                "yes" if is_near(accepted, AIM) else "no",
                percent(numbers(found, "accepted_in_proportion")),
                *(cell for keys in FORECASTS.values() for cell in compared(forecasts(found, *keys))),
                str(sum(one["guarantee"].startswith("none") for one in found)),
                str(sum(bool(one["warnings"] or one["notes"]) for one in found)),
            ]
        )
    heads = ["data", "rows", "fits", f"accepted (aim {percent([AIM], places=0)})", f"within {100 * GOAL:.0f}"]
    heads += ["accepted, shares as in training"]
    heads += [head for told in FORECASTS for head in (f"{told}: forecast", "came", "difference")]
    return table([*heads, "fits without guarantee", "fits with a warning or note"], lines)


def peers_table(results: Mapping[str, Sequence[dict[str, Found]]]) -> list[str]:
    lines = []
    for name, ones in results.items():
        cells = [name]
        for contender in (OURS, *PEERS):
            found = fitted(ones, contender)
            shares = [percent(numbers(found, key)) for key in ("accepted", "rejected", "auroc")]
            cells.append(" / ".join(share or "-" for share in shares))
        lines.append(cells)
    return table(["data", OURS, *PEERS], lines)


def sentences(results: Mapping[str, Sequence[dict[str, Found]]]) -> list[str]:
    """How often the goal is reached."""
    lines, within = [], f"within {100 * GOAL:.0f} points of"
    for contender in (OURS, *PEERS):
        shares = [numbers(fitted(ones, contender), "accepted") for ones in results.values()]
        gaps = [float(np.mean(some)) - AIM for some in shares if some]
        near, far = sum(is_near([gap], 0) for gap in gaps), max(map(abs, gaps), default=0)
        lines.append(f"- {contender}: {within} the aim in {near} of {len(gaps)} rows, at most {percent([far])} away.")
    for told, (forecast, came) in FORECASTS.items():
        pairs = [forecasts(fitted(ones, OURS), forecast, came) for ones in results.values()]
        gaps = [float(np.mean([said - real for said, real in some])) for some in pairs if some]
        near = sum(is_near([gap], 0) for gap in gaps)
        lines.append(
            f"- Forecast of {told}: {within} what came in {near} of {len(gaps)} rows; distance "
            f"{percent(np.abs(gaps))}, difference {percent(gaps)}, means over rows."
        )
    return lines


def page(results: Mapping[str, Sequence[dict[str, Found]]], remarks: Sequence[str]) -> str:
    return "\n".join(
        [
            "# Aim and outcome on data as people have them",
            "",
            "Shares x 100, means over draws; in brackets 95 % intervals over draws. The aim is to accept 95 % of fresh "
            "rows of known classes; the goal is to be within 2 points of it.",
            "",
            *sentences(results),
            "",
            "## What is said before, and what came",
            "",
            *promises_table(results),
            "",
            "The forecast of unknown rows rejected is the share of rows of held-out classes beyond the threshold. It "
            "is about classes like the known ones; where one class of a table is unknown, look at the mean over all of "
            "them.",
            "",
            "## Beside plain peers: known accepted / unknown rejected / AUROC",
            "",
            *peers_table(results),
            "",
            "Peers have standardised columns and scikit-learn's defaults. LogisticRegression: largest probability, "
            "limit at the 5 % quantile of cross-validated ones. LocalOutlierFactor and IsolationForest: "
            "contamination 5 %. They get no groups of near copies.",
            *(f"\n{remark}" for remark in remarks),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder of finished repeats, kept and reused")
    parser.add_argument("--data-root", type=Path, help="mirror of the data sets; tables need none")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), help="all if left out")
    parser.add_argument("--repeats", type=int, help="draws of each row, in place of its own number")
    parser.add_argument("--again", action="store_true", help="compute what is finished once more")
    parser.add_argument("--write", action="store_true", help="write the results files")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    with threadpool_limits(1):
        results, remarks = run(options.kinds, Store(options.work, options.data_root), options.repeats, options.again)
    text = page(results, remarks)
    if options.write:
        command = f"python benchmark/messy.py --work DIR --data-root DATA --kinds {' '.join(options.kinds)}"
        seeds = {name: list(range(len(ones))) for name, ones in results.items()}
        content = {"command": command, "threads": 1, "seeds": seeds, "remarks": remarks, "results": results}
        write_results("messy", content, text)
    else:
        print(text)


if __name__ == "__main__":
    main()
