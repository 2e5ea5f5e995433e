"""Write a store's results into `benchmark/results`: `python benchmark/publish.py STORE NAME --title T [--baseline B]`.

Everything in the files comes from the store: the tables, the single trials with their intervals, and where they were
made. Nothing is trained or evaluated again.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from writing import write_results

from openauc.bench.rendering import render
from openauc.bench.selection import select
from openauc.bench.store import Store
from openauc.bench.summary import summarise
from openauc.bench.trial import TrialResult

METRICS = ("openauc", "auroc", "closed_set_accuracy")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path, help="folder of results, as `openauc run` leaves it")
    parser.add_argument("name", help="first part of the files' names")
    parser.add_argument("--title", required=True, help="heading of the page")
    parser.add_argument("--baseline", help="row that the others are compared with")
    parser.add_argument("--only", help="part of the trials, such as pseudo_unknown=0")
    parser.add_argument("--note", action="append", default=[], help="paragraph below the tables; repeatable")
    chosen = parser.parse_args()
    store = Store(chosen.store)
    results, planned = store.results(), store.planned()
    if chosen.only:
        results, planned = select(results, chosen.only), select(planned, chosen.only)
    summaries = [summarise(results, metric=name, baseline=chosen.baseline, planned=planned) for name in METRICS]
    text = "\n\n".join([f"# {chosen.title}", render(*summaries, format="markdown").strip(), *chosen.note])
    environments = [dict(facts) for facts in sorted({tuple(result.environment.items()) for result in results})]
    content = {
        "tables": [summary.to_dict() for summary in summaries],
        "environments": environments,
        "trials": [row(result) | {"environment": environments.index(result.environment)} for result in results],
    }
    write_results(chosen.name, content, text)


def row(result: TrialResult) -> dict:
    """One trial; its environment is a number in the list of them, other metrics are in the store."""
    return {
        "id": result.spec.id,
        "spec": result.spec.to_dict(),
        "n_known": result.n_known,
        "n_unknown": result.n_unknown,
        **{name: result.metrics.get(name) for name in METRICS},
        "intervals": {name: result.intervals.get(name) for name in METRICS},
        "groups": {group: {name: found.get(name) for name in METRICS} for group, found in result.groups.items()},
        "seconds": round(result.seconds, 1),
        "error": result.error,
    }


if __name__ == "__main__":
    main()
