"""Choosing on the values one reports shows a gain where there is none; choosing elsewhere does not."""

import json

import choosing_lambda as program
import numpy as np
import pytest

USUAL = program.SEARCHED.index(program.USUAL)


def trial(split, seed, value, method="openauc", error=None, **options):
    spec = {"split": split, "seed": seed, "method": method, "method_args": options}
    return {"spec": spec, "openauc": value, "error": error}


def test_each_rule_by_hand():
    gains = np.array([[0.1, 0.3, -0.1], [0.2, -0.4, 0.5]])  # (splits, lambdas)
    chosen = {name: rule(gains, 0).tolist() for name, rule in program.RULES.items()}
    assert list(chosen.values()) == [[0.1, 0.2], [-0.1, -0.4], [-0.1, 0.5], [0.3, 0.5]]
    stacked = np.stack([gains, -gains])  # many studies at once
    for rule in program.RULES.values():
        assert rule(stacked, 0).tolist() == [rule(gains, 0).tolist(), rule(-gains, 0).tolist()]


def test_optimism_is_that_of_the_largest_of_six():
    values = np.random.default_rng(0).normal(size=(20_000, 5, 7))
    fixed, elsewhere, mean, each = (program.shown(values, rule, USUAL) for rule in program.RULES.values())
    largest_of_six = 1.2672  # expectation, in standard deviations
    assert each["mean"] == pytest.approx(largest_of_six, abs=0.02)
    assert mean["mean"] == pytest.approx(largest_of_six / np.sqrt(5), abs=0.02)
    assert fixed["mean"] == pytest.approx(0.0, abs=0.02)
    assert elsewhere["mean"] == pytest.approx(0.0, abs=0.02)
    assert fixed["called a gain"] == pytest.approx(0.025, abs=0.005)
    assert each["called a gain"] > 5 * fixed["called a gain"]


def test_a_lambda_that_helps_is_found_by_every_rule_and_no_permutation():
    values = 0.9 + 0.001 * np.random.default_rng(0).normal(size=(5, 7))
    values[:, 1 + USUAL] += 0.05
    rows = program.rows_of(program.Study(program.SEARCHED, tuple(range(5)), 1, values), np.random.default_rng(0))
    for row in rows:
        assert row["gain"] == pytest.approx(0.05, abs=0.003)
        assert row["interval"][0] > 0
    assert max(row["p_permuted"] for row in rows[:3]) < 0.001
    lines = program.table(rows).splitlines()
    assert len(lines) == 2 + len(program.RULES)
    assert lines[2].startswith("| fixed, 0.1 | +4.95 [+4.79, +5.10] | 0.000 |")


def test_values_are_those_of_the_papers_form_with_seeds_averaged():
    trials = [
        trial(0, 0, 0.5, method="ce_plus"),
        trial(0, 1, 0.7, method="ce_plus"),
        trial(0, 0, 0.8, preset="paper"),
        trial(0, 1, 0.6, lam=0.1),
        trial(0, 0, 0.1, preset="paper", lam=0.5),
        trial(0, 1, 0.3, preset="paper", lam=0.5),
        trial(0, 0, 0.0, preset="public_code"),
        trial(0, 0, 0.0, preset="paper", pairing="all"),
        trial(0, 0, 0.0, method="ce_plus", label_smoothing=0.1),
    ]
    found = program.study(trials)
    assert (found.lambdas, found.splits, found.seeds) == ((0.1, 0.5), (0,), 2)
    assert found.values == pytest.approx(np.array([[0.6, 0.7, 0.2]]))
    with pytest.raises(SystemExit, match=r"lambda 0.5 and CE\+ do not have the same splits"):
        program.study(trials[:-4])


def test_noise_is_what_seeds_of_one_form_and_split_differ_by():
    trials = [trial(split, seed, split + 0.2 * seed, preset="paper") for split in (0, 1) for seed in (0, 1)]
    trials.append(trial(0, 0, 5.0, preset="public_code"))
    # Of two seeds each lies half their difference from the mean; a single training is sqrt(2) as far.
    assert np.sort(program.seed_noise(trials)) == pytest.approx(np.sqrt(2) * np.repeat([-0.1, 0.1], 2))
    pools = {"all": program.simulated(program.seed_noise(trials), 5, np.random.default_rng(0))}
    assert pools["all"]["deviation"] == pytest.approx(0.1 * np.sqrt(2))
    assert pools["all"]["rules"]["one for each split, chosen on test"]["mean"] > 0.1
    assert len(program.noise_table(pools).splitlines()) == 2 + len(program.RULES)
    with pytest.raises(SystemExit, match="no training was repeated"):
        program.seed_noise(trials[::2])


def test_failed_trials_and_older_files_are_left_out(tmp_path):
    with pytest.raises(SystemExit, match=r"no study_\*\.json"):
        program.read("study", tmp_path)
    for month, value in (("202610", 0.1), ("202611", 0.9)):
        trials = [trial(0, 0, value), trial(1, 0, None, error="out of memory")]
        (tmp_path / f"study_cpu_{month}.json").write_text(json.dumps({"trials": trials}))
    assert [found["openauc"] for found in program.read("study", tmp_path)] == [0.9]


def test_the_stored_studies_are_complete():
    assert program.study(program.read("sensitivity_digits")).lambdas == program.SEARCHED
    for name in program.STUDIES:
        assert program.USUAL in program.study(program.read(name)).lambdas
