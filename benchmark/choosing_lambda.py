"""What choosing lambda on the test set would show: `python benchmark/choosing_lambda.py`.

From the single trials that `benchmark/results` keeps of the sensitivity study and the ablations: the gain of OpenAUC
over CE+ when lambda is fixed beforehand, or chosen on the other splits, or on the test values it is then reported on.
How much of a gain is due to choosing alone is simulated twice. *Permuted:* in each split the values of CE+ and of all
lambdas change places at random, as if lambda did nothing. *Seeds:* every value is drawn from what repeated trainings
differ by. Nothing is trained here.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from writing import RESULTS, write_results

from openauc.bench.student import mean_interval, paired_p
from openauc.methods.openauc import OpenAUC

Floats = NDArray[np.float64]

STUDIES = {
    "sensitivity_digits": "digits, the searched values",
    "ablation_digits": "digits, two seeds",
    "ablation_cifar10": "CIFAR10 at the CPU budget",
}
SEARCHED = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
"""The values the paper searched."""
USUAL = float(OpenAUC.preset("paper")["lam"])
REPLICATES = 20_000


class Study(NamedTuple):
    """OpenAUC of CE+ and of every lambda: (splits, 1 + lambdas), seeds averaged."""

    lambdas: tuple[float, ...]
    splits: tuple[int, ...]
    seeds: int
    values: Floats


def fixed(gains: Floats, usual: int) -> Floats:
    """Lambda is the one at this place, whatever the values say."""
    return gains[..., usual]


def elsewhere(gains: Floats, usual: int) -> Floats:
    """Lambda of a split is the best on the mean of the others."""
    others = gains.sum(-2, keepdims=True) - gains
    return np.take_along_axis(gains, others.argmax(-1)[..., None], -1)[..., 0]


def best_mean(gains: Floats, usual: int) -> Floats:
    """One lambda, the best on the mean of the splits it is reported on."""
    chosen = gains.mean(-2, keepdims=True).argmax(-1)
    return np.take_along_axis(gains, chosen[..., None], -1)[..., 0]


def best_each(gains: Floats, usual: int) -> Floats:
    """The best lambda of each split, on the value it is reported with."""
    return gains.max(-1)


RULES: dict[str, Callable[[Floats, int], Floats]] = {
    f"fixed, {USUAL:g}": fixed,
    "chosen on the other splits": elsewhere,
    "one for all splits, chosen on test": best_mean,
    "one for each split, chosen on test": best_each,
}
"""From gains (..., splits, lambdas) and the place of the usual lambda to the gains (..., splits) one would report."""


def read(name: str, folder: Path = RESULTS) -> list[dict[str, Any]]:
    """The trials of the newest results of that name that did not fail."""
    files = sorted(folder.glob(f"{name}_*.json"))
    if not files:
        raise SystemExit(f"no {name}_*.json in {folder}; write it with publish.py first.")
    return [trial for trial in json.loads(files[-1].read_text())["trials"] if trial["error"] is None]


def lambda_of(spec: dict[str, Any]) -> float | None:
    """Lambda of a trial that is the paper's form but for it, 0 of CE+; None of any other trial."""
    options = spec["method_args"]
    if spec["method"] == "ce_plus" and not options:
        return 0.0
    plain = spec["method"] == "openauc" and options.keys() <= {"preset", "lam"} and spec.get("score") is None
    return float(options.get("lam", USUAL)) if plain and options.get("preset", "paper") == "paper" else None


def study(trials: Sequence[dict[str, Any]]) -> Study:
    """Values by split and lambda; every lambda must have all splits and seeds that CE+ has."""
    found: dict[float, dict[tuple[int, int], float]] = defaultdict(dict)
    for trial in trials:
        if (lam := lambda_of(trial["spec"])) is not None:
            found[lam][trial["spec"]["split"], trial["spec"]["seed"]] = trial["openauc"]
    for lam, values in found.items():
        if missing := values.keys() ^ found[0.0].keys():
            raise SystemExit(f"lambda {lam:g} and CE+ do not have the same splits and seeds: {sorted(missing)}.")
    splits, seeds = (sorted({key[i] for key in found[0.0]}) for i in (0, 1))
    lambdas = sorted(found)
    values = [[np.mean([found[lam][s, seed] for seed in seeds]) for lam in lambdas] for s in splits]
    return Study(tuple(lambdas[1:]), tuple(splits), len(seeds), np.array(values))


def seed_noise(trials: Sequence[dict[str, Any]]) -> Floats:
    """What trainings of one form on one split differ by from their mean, at the scale of single trainings."""
    repeated: dict[tuple[str, str, int], list[float]] = defaultdict(list)
    for trial in trials:
        spec = trial["spec"]
        form = (spec["method"], json.dumps(spec["method_args"], sort_keys=True), spec["split"])
        repeated[form].append(trial["openauc"])
    parts = [
        (np.array(values) - np.mean(values)) * np.sqrt(len(values) / (len(values) - 1))
        for values in repeated.values()
        if len(values) > 1
    ]
    if not parts:
        raise SystemExit("no training was repeated with another seed; there is no noise to draw from.")
    return np.concatenate(parts)


def gains_of(values: Floats) -> Floats:
    """Differences (..., splits, lambdas) to CE+, the first column."""
    return values[..., 1:] - values[..., :1]


def permuted(values: Floats, rng: np.random.Generator, n: int = REPLICATES) -> Floats:
    """(n, splits, 1 + lambdas): in each split the values in a random order."""
    return rng.permuted(np.broadcast_to(values, (n, *values.shape)), axis=-1)


def shown(values: Floats, rule: Callable[[Floats, int], Floats], usual: int) -> dict[str, Any]:
    """Mean gain one would report over simulated studies (n, splits, 1 + lambdas), and how often as significant."""
    gains = rule(gains_of(values), usual)
    means, errors = gains.mean(-1), gains.std(-1, ddof=1) / np.sqrt(gains.shape[-1])
    beyond = means > stats.t.ppf(0.975, gains.shape[-1] - 1) * errors
    return {
        "mean": float(means.mean()),
        "range": np.quantile(means, [0.025, 0.975]).tolist(),
        "called a gain": float(beyond.mean()),
        "means": means,
    }


def rows_of(found: Study, rng: np.random.Generator) -> list[dict[str, Any]]:
    """Every rule on the values as they are, and on permuted ones."""
    null, usual = permuted(found.values, rng), found.lambdas.index(USUAL)
    rows = []
    for name, rule in RULES.items():
        gains = rule(gains_of(found.values), usual)
        chance = shown(null, rule, usual)
        at_least = np.mean(chance.pop("means") >= gains.mean() - 1e-12)
        rows.append(
            {
                "rule": name,
                "gain": float(gains.mean()),
                "interval": list(mean_interval(gains.tolist(), 0.95) or ()),
                "p_naive": paired_p(gains.tolist()),
                "chance": chance,
                "p_permuted": float((1 + at_least * len(null)) / (1 + len(null))),
            }
        )
    return rows


def simulated(noise: Floats, splits: int, rng: np.random.Generator) -> dict[str, Any]:
    """Every rule where the values differ by the noise of trainings only, for the searched lambdas."""
    values = rng.choice(noise, (REPLICATES, splits, 1 + len(SEARCHED)))
    rows = {name: shown(values, rule, SEARCHED.index(USUAL)) for name, rule in RULES.items()}
    for row in rows.values():
        row.pop("means")
    return {"deviation": float(np.sqrt(np.mean(noise**2))), "n": len(noise), "splits": splits, "rules": rows}


def table(rows: Sequence[dict[str, Any]]) -> str:
    lines = [
        "| lambda | gain over CE+ | p, naive | by choosing alone (permuted) | p, permuted | called a gain by chance |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for r in rows:
        chance = r["chance"]
        lines.append(
            f"| {r['rule']} | {_points(r['gain'])} {_interval(r['interval'])} | {r['p_naive']:.3f} "
            f"| {_points(chance['mean'])} {_interval(chance['range'])} | {r['p_permuted']:.3f} "
            f"| {100 * chance['called a gain']:.1f} % |"
        )
    return "\n".join(lines)


def noise_table(pools: dict[str, dict[str, Any]]) -> str:
    heads = (f"{name}: gain over CE+ shown | called a gain by chance" for name in pools)
    lines = [f"| lambda | {' | '.join(heads)} |", f"|---|{'---:|---:|' * len(pools)}"]
    for name in RULES:
        found = (pool["rules"][name] for pool in pools.values())
        cells = (f"{_points(r['mean'])} {_interval(r['range'])} | {100 * r['called a gain']:.1f} %" for r in found)
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _points(value: float) -> str:
    return f"{100 * value:+.2f}"


def _interval(bounds: Sequence[float]) -> str:
    return f"[{', '.join(map(_points, bounds))}]"


def main() -> None:
    rng = np.random.default_rng(0)
    text = [
        "# What choosing lambda on the test set would show",
        "Gains in OpenAUC × 100 over CE+ of the same splits and seeds, seeds averaged first. Brackets: of a gain the "
        "95 % Student interval over splits, which knows nothing of the choice; of a simulation the middle 95 % of "
        f"{REPLICATES:,} studies. p, naive: paired t-test of the gain as if lambda had been given; p, permuted: share "
        "of permuted studies with as large a gain by the same rule. Called a gain by chance: permuted studies whose "
        "naive interval lies above zero, 2.5 % if nothing were chosen and gains were normal.",
    ]
    content: dict[str, Any] = {"replicates": REPLICATES, "usual": USUAL, "studies": {}}
    for name, title in STUDIES.items():
        found = study(read(name))
        rows = rows_of(found, rng)
        content["studies"][name] = {**found._asdict(), "values": found.values.tolist(), "rows": rows}
        lambdas = ", ".join(f"{lam:g}" for lam in found.lambdas)
        size = f"{len(found.splits)} splits, seeds: {found.seeds}, lambda of {lambdas} (`{name}_*`)."
        text += [f"## {title}", f"{size}\n\n{table(rows)}"]
    every = read("ablation_digits")
    pools = {"CE+ and lambdas": [t for t in every if lambda_of(t["spec"]) is not None], "all forms": every}
    splits = len(content["studies"]["sensitivity_digits"]["splits"])
    content["seeds"] = {name: simulated(seed_noise(trials), splits, rng) for name, trials in pools.items()}
    sizes = (f"{100 * r['deviation']:.2f} over {r['n']} trainings ({name})" for name, r in content["seeds"].items())
    text += [
        "## Noise of trainings alone",
        f"Six lambdas and CE+ on {splits} splits, all equally good: values drawn from what trainings with another seed "
        f"differ by in `ablation_digits_*`; standard deviation {', '.join(sizes)}. Some of all forms share trainings."
        f"\n\n{noise_table(content['seeds'])}",
    ]
    write_results("choosing_lambda", content, "\n\n".join(text))


if __name__ == "__main__":
    main()
