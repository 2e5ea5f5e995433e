"""Do the promises of the OpenSetClassifier hold on data as people have them? Copies, typos, small classes, raw tables.

`python benchmark/promises.py --work DIR --data-root DATA [--rows NAME,NAME] [--repeats N] [--again] [--write]`. Every
row of `messy_data.ROWS` is drawn and fitted several times. Told are the share of fresh known rows that are accepted,
beside the one promised, and the OpenAUC on fresh rows, beside the forecast of the fit. A finished repeat is a file in
DIR and is not computed again without `--again`, so a DIR serves one state of the code. Names of rows may have `*`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Iterable, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
from messy_data import ROWS, Array, Drawn, Row, Store
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import StandardScaler
from writing import write_results

from openauc import openauc_score
from openauc._files import write_text
from openauc.features import Monitor, OpenSetClassifier

ALPHA = 0.01
ACCEPTED = ("accepted", "accepted_in_proportion")
RANKED = ("openauc", "auroc", "auroc_nearest_row")
MEANS = ("promised", *ACCEPTED, "accepted_small_classes", "rejected", "accuracy", *RANKED, "seconds")
Found = dict[str, Any]


def measure(row: Row, store: Store, seed: int) -> Found:
    """One fit, and what it does with fresh rows; a fit that refuses the data says why."""
    drawn = row.make(store, seed)
    found: Found = {"n": len(drawn.y), "classes": len(np.unique(drawn.y))}
    classifier = OpenSetClassifier(random_state=seed, **row.options)
    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        try:
            classifier.fit(drawn.X, drawn.y, groups=drawn.groups)
        except ValueError as error:
            return found | {"refused": str(error)}
    found["seconds"] = time.perf_counter() - start
    found["warnings"] = [str(one.message) for one in given if issubclass(one.category, UserWarning)]
    return (
        found | told(classifier) | decisions(classifier, drawn) | ranking(classifier, drawn) | extras(classifier, drawn)
    )


def told(classifier: OpenSetClassifier) -> Found:
    """What the fit says of itself."""
    report = classifier.report_
    expected = report.expected
    forecast = None if expected is None else [float(expected.openauc), *map(float, expected.interval)]
    held_out = classifier.held_out_scores_[classifier.held_out_kinds_ < 0]
    return {
        "promised": classifier.acceptance,
        "forecast": forecast,
        "forecast_rejected": float((held_out > classifier.thresholds_.max()).mean()) if len(held_out) else None,
        "chosen": report.chosen,
        "notes": list(report.notes),
        "guarantee": classifier.guarantee_,
    }


def decisions(classifier: OpenSetClassifier, drawn: Drawn) -> Found:
    """Shares of fresh rows: accepted of known ones, the same with classes as frequent as in training, and rejected."""
    accepted, known = accepts(classifier, drawn.X_test), np.isin(drawn.y_test, drawn.y)
    labels, count = np.unique(drawn.y, return_counts=True)
    by_class = [accepted[drawn.y_test == label].mean() for label in labels]
    found = {
        "accepted": float(accepted[known].mean()),
        "accepted_in_proportion": float(np.average(by_class, weights=count)),
        "rejected": None if known.all() else float(1 - accepted[~known].mean()),
        "accuracy": float((classifier.classify(drawn.X_test) == drawn.y_test)[known].mean()),
    }
    if drawn.small is not None:
        found["accepted_small_classes"] = float(accepted[np.isin(drawn.y_test, drawn.small)].mean())
    return found


def accepts(classifier: OpenSetClassifier, X: Array) -> Array:
    return np.asarray(classifier.predict(X) != classifier.unknown_label_)


def ranking(classifier: OpenSetClassifier, drawn: Drawn) -> Found:
    """OpenAUC and AUROC; for a table beside the AUROC of the distance to the nearest training row."""
    unknown = ~np.isin(drawn.y_test, drawn.y)
    if not unknown.any():
        return {"openauc": None, "auroc": None}
    triple = classifier.predictions(drawn.X_test, drawn.y_test)
    found = {"openauc": float(openauc_score(*triple)), "auroc": float(roc_auc_score(unknown, triple.open_score))}
    return found | ({"auroc_nearest_row": float(roc_auc_score(unknown, nearest_row(drawn)))} if drawn.is_table else {})


def nearest_row(drawn: Drawn) -> Array:
    """Distance to the nearest training row, columns standardised."""
    scale = StandardScaler().fit(drawn.X)
    near = NearestNeighbors(n_neighbors=1).fit(scale.transform(drawn.X))
    return np.asarray(near.kneighbors(scale.transform(drawn.X_test))[0][:, 0])


def extras(classifier: OpenSetClassifier, drawn: Drawn) -> Found:
    """Shares rejected of rows that belong to no class, and streams of known rows that raised an alarm."""
    found: Found = {
        "to_reject": {name: float(1 - accepts(classifier, X).mean()) for name, X in drawn.to_reject.items()}
    }
    if drawn.streams:
        known = drawn.X_test[np.isin(drawn.y_test, drawn.y)]
        streams = np.array_split(known, drawn.streams)
        found["streams"] = drawn.streams
        found["alarms"] = sum(bool(Monitor(classifier, alpha=ALPHA).update(stream)) for stream in streams)
    return found


# Telling


def summary(ones: Sequence[Found]) -> Found:
    """Means over the repeats that were fitted."""
    fitted = [one for one in ones if "refused" not in one]
    found: Found = {"repeats": len(ones), "refused": len(ones) - len(fitted)}
    found |= {name: mean(one[name] for one in ones) for name in ("n", "classes")}
    if not fitted:
        return found
    found |= {name: mean(one.get(name) for one in fitted) for name in MEANS}
    found |= {f"{name}_error": standard_error([one[name] for one in fitted]) for name in ACCEPTED}
    forecasts = [(one["forecast"], one["openauc"]) for one in fitted if one["forecast"] and one["openauc"] is not None]
    found["forecasts"] = len(forecasts)
    found["forecast"] = mean(forecast[0] for forecast, _ in forecasts)
    found["covered"] = mean(low <= value <= high for (_, low, high), value in forecasts)
    found["noted"] = sum(bool(one["notes"] or one["warnings"]) for one in fitted)
    found["chosen"] = {
        kind: [one["chosen"] for one in fitted].count(kind) for kind in {one["chosen"] for one in fitted}
    }
    found["to_reject"] = {name: mean(one["to_reject"][name] for one in fitted) for name in fitted[0]["to_reject"]}
    found["streams"], found["alarms"] = (sum(one.get(name, 0) for one in fitted) for name in ("streams", "alarms"))
    return found


def mean(values: Iterable[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return float(np.mean(there)) if there else None


def standard_error(values: Sequence[float]) -> float | None:
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None


def table(summaries: dict[str, Found]) -> str:
    """A line for each row; an acceptance that is below the promise by more than two standard errors is bold."""
    lines = [
        "| data | rows | classes | fits | accepted | in proportion | unknown rejected | accuracy | forecast | OpenAUC "
        "| in interval | AUROC | rejector | told | seconds | also |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|---:|---:|---|",
    ]
    for name, found in summaries.items():
        cells = [name, f"{found['n']:,.0f}", f"{found['classes']:.0f}"]
        if found["refused"] == found["repeats"]:
            lines.append(f"| {' | '.join(cells)} | 0 |{' |' * 11} refused in all {found['refused']} |")
            continue
        fits = found["repeats"] - found["refused"]
        cells += [str(fits), *(acceptance(found, key) for key in ACCEPTED)]
        cells += [share(found[key]) for key in ("rejected", "accuracy", "forecast", "openauc")]
        cells += [
            f"{share(found['covered'], 0)} of {found['forecasts']}" if found["forecasts"] else "",
            share(found["auroc"]),
        ]
        cells += [", ".join(f"{kind} {count}" for kind, count in sorted(found["chosen"].items()))]
        cells += [f"{found['noted']}/{fits}", f"{found['seconds']:.2f}", "; ".join(further(found))]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def share(value: float | None, places: int = 1) -> str:
    return "" if value is None else f"{100 * value:.{places}f}"


def acceptance(found: Found, key: str) -> str:
    value, error = found[key], found[f"{key}_error"]
    if error is None:
        return share(value)
    told = f"{share(value)} ± {share(error)}"
    return f"**{told}**" if value + 2 * error < found["promised"] else told


def further(found: Found) -> list[str]:
    parts = [f"{name} rejected {share(value, 0)}" for name, value in found["to_reject"].items()]
    if found["accepted_small_classes"] is not None:
        parts.append(f"small classes accepted {share(found['accepted_small_classes'])}")
    if found["auroc_nearest_row"] is not None:
        parts.append(f"AUROC of the nearest row {share(found['auroc_nearest_row'])}")
    if found["streams"]:
        parts.append(f"false alarms {found['alarms']}/{found['streams']} at {ALPHA:g}")
    if found["refused"]:
        parts.append(f"refused {found['refused']}")
    return parts


def page(summaries: dict[str, Found]) -> str:
    return "\n".join(
        [
            "# Promises on data as people have them",
            "",
            "All numbers but counts and seconds are percentages, means over fits. Accepted: fresh rows of known "
            "classes, ± one standard error over fits; 95 are promised, and what is below by more than two standard "
            "errors is bold. In proportion: the same with classes as frequent as in training, as the promise has "
            "it. Forecast: OpenAUC by held-out classes, beside the OpenAUC on fresh rows; in interval: how often the "
            "latter lies in the forecast's 95 % interval, and of how many. Told: fits that gave a warning or a note.",
            "",
            table(summaries),
        ]
    )


def chosen_rows(patterns: str) -> list[str]:
    wanted = patterns.split(",")
    unheard = next((one for one in wanted if not any(fnmatch(name, one) for name in ROWS)), None)
    if unheard is not None:
        raise SystemExit(f"--rows has {unheard!r}; expected names among {', '.join(ROWS)}.")
    return [name for name in ROWS if any(fnmatch(name, one) for one in wanted)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder of finished repeats, kept and reused")
    parser.add_argument("--data-root", type=Path, help="mirror of the data sets; tables and Gaussians need none")
    parser.add_argument("--rows", default="*", help="names of rows, with commas between; all if left out")
    parser.add_argument("--repeats", type=int, help="draws of each row, in place of its own number")
    parser.add_argument("--again", action="store_true", help="compute what is finished once more")
    parser.add_argument("--write", action="store_true", help="write the results files")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    store = Store(options.work, options.data_root)
    results: dict[str, list[Found]] = {}
    for name in chosen_rows(options.rows):
        for seed in range(options.repeats or ROWS[name].repeats):
            file = options.work / f"{name}-{seed}.json"
            if options.again or not file.is_file():
                write_text(file, json.dumps(measure(ROWS[name], store, seed)))
                print(file.stem, file=sys.stderr, flush=True)
            results.setdefault(name, []).append(json.loads(file.read_text()))
    summaries = {name: summary(ones) for name, ones in results.items()}
    if options.write:
        command = f"python benchmark/promises.py --work DIR --data-root DATA --rows '{options.rows}'"
        seeds = {name: list(range(len(ones))) for name, ones in results.items()}
        content = {"command": command, "seeds": seeds, "summaries": summaries, "results": results}
        write_results("promises", content, page(summaries))
    else:
        print(page(summaries))


if __name__ == "__main__":
    main()
