"""Tables from results: rows, cells, comparisons, marks and notes."""

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from openauc.bench.summary import Cell, Summary, summarise
from openauc.bench.trial import TrialResult, TrialSpec
from openauc.bench.variants import MEAN, Column
from openauc.comparison import holm
from openauc.methods import recipe_for

BUDGET: dict[str, Any] = {"recipe": "plus", "epochs": 12, "width": 16, "train_images": 8000}


def spec(method: str = "softmax", split: int = 0, protocol: str = "mnist", **more: Any) -> TrialSpec:
    return TrialSpec.of(protocol, split, method, **{**BUDGET, **more})


def result(value: float, method: str = "softmax", split: int = 0, protocol: str = "mnist", **more: Any) -> TrialResult:
    return TrialResult(spec=spec(method, split, protocol, **more), metrics={"openauc": value, "fpr_at_95tpr": value})


def row(values: Iterable[float], method: str = "softmax", protocol: str = "mnist", **more: Any) -> list[TrialResult]:
    """One result per split."""
    return [result(value, method, split, protocol, **more) for split, value in enumerate(values)]


def labels(summary: Summary) -> list[str]:
    return [row.label for row in summary.rows]


def failed(of: TrialSpec, error: str = "RuntimeError: out of memory\n\nTraceback") -> TrialResult:
    return TrialResult(spec=of, error=error)


@given(st.lists(st.floats(0.5, 1), min_size=5, max_size=5), st.sampled_from([0.8, 0.95]))
def test_cell_of_five_distinct_splits(values: list[float], level: float) -> None:
    cell = summarise(row(values), level=level).cell("softmax", "mnist")
    assert cell.mean == pytest.approx(np.mean(values))
    assert cell.std_population == pytest.approx(np.std(values), abs=1e-12)
    assert cell.std_sample == pytest.approx(np.std(values, ddof=1), abs=1e-12)
    assert (cell.n_trials, cell.n_seeds, cell.n_splits, cell.n_distinct) == (5, 1, 5, 5)
    half = stats.t.ppf(0.5 + level / 2, 4) * stats.sem(values)
    possible = np.clip((np.mean(values) - half, np.mean(values) + half), 0, 1)
    assert cell.interval == pytest.approx(tuple(possible), abs=1e-9)


def test_splits_with_equal_known_classes_count_once() -> None:
    values = [0.80, 0.84, 0.90, 0.91, 0.92]  # splits 0 and 1 of CIFAR10 know the same classes
    cell = summarise(row(values, protocol="cifar10")).cell("softmax", "cifar10")
    assert (cell.n_splits, cell.n_distinct) == (5, 4)
    assert cell.mean == pytest.approx(np.mean(values))
    distinct = [0.82, 0.90, 0.91, 0.92]
    assert cell.interval == pytest.approx(stats.t.interval(0.95, 3, np.mean(distinct), stats.sem(distinct)), abs=1e-9)


def test_seeds_are_averaged_within_a_split_before_the_interval() -> None:
    values = {(0, 0): 0.8, (0, 1): 0.9, (1, 0): 0.7, (1, 1): 0.7, (2, 0): 0.9}
    cell = summarise(result(v, split=s, seed=seed) for (s, seed), v in values.items()).cell("softmax", "mnist")
    assert (cell.n_trials, cell.n_seeds, cell.n_splits) == (5, 2, 3)
    assert cell.mean == pytest.approx(0.8)
    means = [0.85, 0.7, 0.9]
    low, high = stats.t.interval(0.95, 2, np.mean(means), stats.sem(means))
    assert high > 1
    assert cell.interval == pytest.approx((low, 1.0), abs=1e-9)  # no OpenAUC is higher


def test_one_split_has_no_interval() -> None:
    cell = summarise([result(0.8, seed=0), result(0.9, seed=1)]).cell("softmax", "mnist")
    assert cell.interval is None
    assert cell.std_population == pytest.approx(0.05)
    assert summarise([result(0.8)]).cell("softmax", "mnist").std_sample is None


def test_a_result_given_twice_counts_once_and_success_outweighs_failure() -> None:
    cell = summarise([result(0.8), result(0.8), failed(spec())]).cell("softmax", "mnist")
    assert (cell.n_trials, cell.failed) == (1, 0)
    retried = summarise([failed(spec()), result(0.8)]).cell("softmax", "mnist")
    assert (retried.n_trials, retried.failed) == (1, 0)


def test_failed_and_missing_trials_are_counted() -> None:
    planned = [spec(split=split) for split in range(5)]
    summary = summarise([*row([0.8, 0.9]), failed(planned[2])], planned=planned)
    cell = summary.cell("softmax", "mnist")
    assert (cell.n_trials, cell.failed, cell.missing) == (2, 1, 2)
    assert "Trials without a result: 2 of 5." in summary.notes
    assert f"{planned[2].id}: RuntimeError: out of memory" in summary.notes


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), None])
def test_a_value_that_is_no_finite_number_counts_as_missing(odd: float | None) -> None:
    results = row([0.8, 0.9, 0.7])
    metrics = {"auroc": 0.5} if odd is None else {"openauc": odd}
    summary = summarise([*results[:2], replace(results[2], metrics=metrics)])
    cell = summary.cell("softmax", "mnist")
    assert (cell.mean, cell.n_trials, cell.failed, cell.missing) == (pytest.approx(0.85), 2, 0, 1)
    (note,) = [note for note in summary.notes if "counts as missing" in note]
    assert note.startswith(f"{results[2].spec.id}: openauc is missing or not a finite number")
    json.dumps(summary.to_dict(), allow_nan=False)


def test_a_group_without_a_value_counts_as_missing() -> None:
    trials = [
        TrialResult(spec=spec(split=split), metrics={"openauc": 0.9}, groups={"easy": easy})
        for split, easy in enumerate([{"openauc": 0.8}, {"openauc": float("nan")}, {}])
    ]
    summary = summarise(trials)
    easy = summary.cell("softmax", "mnist", group="easy")
    assert (easy.mean, easy.n_trials, easy.missing) == (0.8, 1, 2)
    assert summary.cell("softmax", "mnist").n_trials == 3
    assert any(note.startswith(f"{trials[1].spec.id} and 1 more: openauc is missing") for note in summary.notes)


def test_a_row_of_failures_is_still_a_row() -> None:
    summary = summarise([*row([0.8, 0.9]), failed(spec("rpl"))])
    cell = summary.cell("rpl", "mnist")
    assert (cell.mean, cell.failed, cell.rank) == (None, 1, None)


def test_many_errors_are_told_by_kind() -> None:
    errors = ["ValueError: a"] * 3 + [f"KeyError: {i}" for i in range(7)] + [" \n"]
    summary = summarise(failed(spec(seed=seed), error) for seed, error in enumerate(errors))
    assert f"{spec(seed=0).id} and 2 more: ValueError: a" in summary.notes
    assert "Other errors: 4." in summary.notes
    assert "no message" in " ".join(summarise([failed(spec(), " \n")]).notes)


def test_rows_are_in_the_papers_order_and_labels_are_as_short_as_they_can_be() -> None:
    found = [result(0.9, name) for name in ("openauc", "softmax", "ce_plus")]
    found.insert(0, replace(found[0], spec=replace(found[0].spec, method="my.method")))
    assert labels(summarise(found)) == ["softmax", "ce_plus", "openauc", "my.method"]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ([{}, {"method_args": {"lam": 0.2}}], ["openauc", "openauc lam=0.2"]),
        (
            [{"method_args": {"lam": lam, "alpha": 2.0}} for lam in (10, 2, 0.5)],
            ["openauc lam=0.5", "openauc lam=2", "openauc lam=10"],
        ),
        ([{"recipe": "plain"}, {}], ["openauc (plain)", "openauc (plus)"]),
        ([{"epochs": 24}, {}], ["openauc (12 epochs)", "openauc (24 epochs)"]),
        ([{"width": None}, {}], ["openauc (published width)", "openauc (width 16)"]),
        ([{"train_images": None}, {}], ["openauc (8,000 training images)", "openauc (all training images)"]),
        ([{"backbone": "vgg32_abn"}, {}], ["openauc", "openauc (vgg32_abn)"]),
        ([{"score": "energy"}, {}], ["openauc", "openauc (score energy)"]),
        ([{"balanced": True}, {}], ["openauc", "openauc (balanced test part)"]),
        ([{"precision": "bf16"}, {}], ["openauc", "openauc (bf16)"]),
        ([{"compile": True}, {}], ["openauc", "openauc (compiled)"]),
        ([{"weights": "w.safetensors"}, {}], ["openauc", "openauc (weights w.safetensors)"]),
        ([{"validation": 0.1}, {}], ["openauc", "openauc (0.1 of the training part held out)"]),
        (
            [{"method_args": {"lam": 0.2}, "epochs": 24}, {}],
            ["openauc (12 epochs)", "openauc lam=0.2 (24 epochs)"],
        ),
        (
            [{"recipe": recipe_for("plus", "mnist", epochs=12, momentum=0.5), "epochs": None}, {}],
            ["openauc", "openauc (momentum=0.5)"],
        ),
    ],
)
def test_what_differs_makes_a_row_and_is_its_label(settings: list[dict[str, Any]], expected: list[str]) -> None:
    summary = summarise(result(0.9, "openauc", **more) for more in settings)
    assert labels(summary) == expected
    assert all(row.cells[0].n_trials == 1 for row in summary.rows)


def test_numbers_that_are_equal_are_one_variant_and_truth_values_are_not_numbers() -> None:
    values = (1, 1.0, True)
    summary = summarise(result(0.9, "openauc", split, method_args={"lam": value}) for split, value in enumerate(values))
    assert labels(summary) == ["openauc lam=1", "openauc lam=True"]


def test_budgets_of_different_methods_are_never_hidden() -> None:
    summary = summarise([result(0.9, "softmax", epochs=6), result(0.9, "openauc")])
    assert labels(summary) == ["softmax (6 epochs)", "openauc (12 epochs)"]


def test_a_budget_that_follows_from_the_recipe_or_the_protocol_is_a_note() -> None:
    trials = [result(0.9, recipe="plain", epochs=None), result(0.9, "openauc", recipe="plus", epochs=None)]
    summary = summarise(trials)
    assert any(note.startswith("softmax: 100 epochs, width 16") for note in summary.notes)
    assert any(note.startswith("openauc: 600 epochs, width 16") for note in summary.notes)


def test_settings_that_labels_do_not_show_are_notes_with_their_columns() -> None:
    options = [{"lam": 0.1}, {"lam": 0.2}]
    trials = [result(0.9, "openauc", method_args=options[i], protocol=p) for i, p in enumerate(("mnist", "cifar10"))]
    summary = summarise(trials)
    assert labels(summary) == ["openauc"]
    assert any(note.startswith("openauc on mnist: lam=0.1, ") for note in summary.notes)
    assert any(note.startswith("openauc on cifar10: lam=0.2, ") for note in summary.notes)


def test_recipes_of_a_protocol_do_not_split_a_row() -> None:
    published = {"recipe": None, "epochs": None}
    protocols = ("mnist", "svhn", "cifar10", "tinyimagenet")
    summary = summarise(result(0.9, "arpl", 0, name, **published) for name in protocols)
    assert labels(summary) == ["arpl"]


def test_columns_follow_the_list_of_protocols_and_end_in_the_mean() -> None:
    summary = summarise(result(0.9, protocol=name) for name in ("cifar+10", "mnist", "cifar10"))
    assert summary.columns == (Column("mnist"), Column("cifar10"), Column("cifar+10"), MEAN)


def test_the_mean_is_over_protocols_and_only_of_whole_rows() -> None:
    results = [*row([0.8, 0.9]), *row([0.6], protocol="cifar10"), *row([0.9, 0.9], "rpl"), *row([0.7], "gcpl")]
    results += row([0.5], "gcpl", "cifar10")
    summary = summarise(results)
    cell = summary.cell("softmax", "mean")
    assert (cell.mean, cell.n_trials) == (pytest.approx((0.85 + 0.6) / 2), 3)
    assert cell.paper is not None
    assert cell.paper.mean == pytest.approx((0.992 + 0.838) / 2)
    assert summary.cell("rpl", "mean") == Cell()
    assert summary.cell("gcpl", "mean") == Cell()  # one split of MNIST is missing


def test_one_protocol_needs_no_mean() -> None:
    assert MEAN not in summarise(row([0.8, 0.9])).columns


def test_groups_have_columns_of_their_own() -> None:
    groups = {"easy": {"openauc": 0.8}, "hard": {"openauc": 0.7}}
    trial = TrialResult(spec=spec("ce_plus", protocol="cub"), metrics={"openauc": 0.75}, groups=groups)
    summary = summarise([trial, *row([0.9], "ce_plus")])
    assert [column.label for column in summary.columns] == ["mnist", "cub", "cub easy", "cub hard"]
    cell = summary.cell("ce_plus", "cub", group="hard")
    assert cell.mean == 0.7
    assert cell.paper is not None
    assert cell.paper.mean == 0.708


def test_held_out_classes_are_another_column_without_the_papers_value() -> None:
    selection = row([0.7, 0.8], "openauc", pseudo_unknown=2, validation=0.1)
    summary = summarise([*row([0.9], "openauc"), *selection])
    assert [column.label for column in summary.columns] == ["mnist", "mnist (2 held-out classes)"]
    assert labels(summary) == ["openauc"]
    cell = summary.cell("openauc", "mnist", held_out=2)
    assert (cell.mean, cell.paper) == (pytest.approx(0.75), None)
    assert summary.cell("openauc", "mnist").mean == 0.9


def test_held_out_columns_follow_the_list_of_protocols_and_have_a_mean_of_their_own() -> None:
    held_out = {"cifar+10": 1, "mnist": 2}
    summary = summarise(result(0.8, protocol=name, pseudo_unknown=n) for name, n in held_out.items())
    assert [c.label for c in summary.columns] == ["mnist (2 held-out classes)", "cifar+10 (1 held-out class)", "mean"]
    tested = summarise([result(0.9), result(0.7, protocol="svhn"), result(0.1, protocol="mnist", pseudo_unknown=2)])
    assert tested.cell("softmax", "mean").mean == pytest.approx(0.8)


def test_the_papers_value_and_the_difference() -> None:
    cell = summarise(row([0.85], "openauc", "cifar10")).cell("openauc", "cifar10")
    assert cell.paper is not None
    assert (cell.paper.mean, cell.paper.std) == (0.892, 0.019)
    assert cell.paper_difference == pytest.approx(-0.042)
    assert summarise(row([0.85], "openauc", "digits")).cell("openauc", "digits").paper_difference is None


def ranks(summary: Summary, protocol: str = "mnist") -> dict[str, int | None]:
    return {label: summary.cell(label, protocol).rank for label in labels(summary)}


def test_best_and_runner_up() -> None:
    results = [result(0.9, "softmax"), result(0.7, "gcpl"), result(0.8, "rpl")]
    assert ranks(summarise(results)) == {"softmax": 1, "gcpl": None, "rpl": 2}
    assert ranks(summarise(results, metric="fpr_at_95tpr")) == {"softmax": None, "gcpl": 1, "rpl": 2}


def test_equal_means_share_a_mark() -> None:
    results = [result(0.9, "softmax"), result(0.9, "gcpl"), result(0.8, "rpl"), result(0.7, "arpl")]
    assert ranks(summarise(results)) == {"softmax": 1, "gcpl": 1, "rpl": 2, "arpl": None}


def test_a_row_without_all_splits_gets_no_mark() -> None:
    results = [*row([0.9], "softmax"), *row([0.7, 0.8], "gcpl"), *row([0.6, 0.7], "rpl")]
    assert ranks(summarise(results)) == {"softmax": None, "gcpl": 1, "rpl": 2}


def test_a_single_row_is_not_the_best_of_anything() -> None:
    assert ranks(summarise(row([0.9, 0.8]))) == {"softmax": None}


def test_paired_comparison_with_the_baseline() -> None:
    base, better, worse = [0.80, 0.84, 0.90, 0.85, 0.81], [0.83, 0.86, 0.94, 0.86, 0.85], [0.7, 0.8, 0.8, 0.8, 0.7]
    summary = summarise([*row(base, "ce_plus"), *row(better, "openauc"), *row(worse, "gcpl")], baseline="ce_plus")
    tests = [stats.ttest_rel(values, base) for values in (better, worse)]
    paired = summary.cell("openauc", "mnist").paired
    assert paired is not None
    assert paired.difference == pytest.approx(np.mean(better) - np.mean(base))
    assert paired.p_value == pytest.approx(tests[0].pvalue)
    assert paired.p_holm == pytest.approx(holm([test.pvalue for test in tests])[0])
    assert paired.interval == pytest.approx(tuple(tests[0].confidence_interval(0.95)), abs=1e-9)
    assert (paired.p_sign_flip, paired.n_pairs, paired.n_distinct) == (0.0625, 5, 5)
    assert summary.cell("ce_plus", "mnist").paired is None


def test_comparison_on_common_pairs_of_distinct_splits() -> None:
    base = row([0.80, 0.82, 0.90, 0.90], "ce_plus", "cifar10")
    other = row([0.82, 0.86, 0.91, 0.95, 0.99], "openauc", "cifar10")
    extra_seed = [result(0.1, "openauc", 2, "cifar10", seed=1)]
    paired = summarise([*base, *other, *extra_seed], baseline="ce_plus").cell("openauc", "cifar10").paired
    assert paired is not None
    assert (paired.n_pairs, paired.n_distinct) == (4, 3)
    differences = [0.03, 0.01, 0.05]  # splits 0 and 1 are one
    assert paired.difference == pytest.approx(np.mean(differences))
    assert paired.p_value == pytest.approx(stats.ttest_1samp(differences, 0).pvalue)


def test_nothing_in_common_is_no_comparison_and_one_split_has_no_p_value() -> None:
    results = [result(0.8, "ce_plus"), result(0.9, "openauc", 1), result(0.9, "rpl")]
    summary = summarise(results, baseline="ce_plus")
    assert summary.cell("openauc", "mnist").paired is None
    paired = summary.cell("rpl", "mnist").paired
    assert paired is not None
    assert paired.difference == pytest.approx(0.1)
    assert (paired.interval, paired.p_value, paired.p_holm, paired.p_sign_flip) == (None, None, None, None)


def test_intervals_of_differences_cover_at_their_level() -> None:
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(200):
        level_of_split = rng.normal(0.8, 0.05, 5)
        base, other = level_of_split + rng.normal(0, 0.01, 5), level_of_split + 0.02 + rng.normal(0, 0.01, 5)
        summary = summarise([*row(base, "ce_plus"), *row(other, "openauc")], baseline="ce_plus", level=0.9)
        paired = summary.cell("openauc", "mnist").paired
        assert paired is not None
        assert paired.interval is not None
        covered += paired.interval.low <= 0.02 <= paired.interval.high
    assert 0.85 <= covered / 200 <= 0.95


def test_the_baseline_is_a_label_or_a_method_with_one_row() -> None:
    results = [result(0.8, "ce_plus"), *(result(0.9, "openauc", method_args={"lam": lam}) for lam in (0.1, 0.2))]
    assert summarise(results, baseline="openauc lam=0.2").baseline == "openauc lam=0.2"
    assert summarise([*results, result(0.7, "rpl", epochs=6)], baseline="rpl").baseline == "rpl (6 epochs)"
    with pytest.raises(ValueError, match=r"'openauc lam=0.1', 'openauc lam=0.2'; name one"):
        summarise(results, baseline="openauc")
    with pytest.raises(ValueError, match="Did you mean 'ce_plus'"):
        summarise(results, baseline="ce_plsu")


def test_refusals() -> None:
    with pytest.raises(ValueError, match="no result to summarise"):
        summarise([])
    with pytest.raises(ValueError, match="Did you mean 'openauc'"):
        summarise(row([0.9]), metric="opnauc")
    with pytest.raises(ValueError, match="level is 95"):
        summarise(row([0.9]), level=95)
    with pytest.raises(ValueError, match="no trial has 'auroc'; compute it from the stored predictions"):
        summarise(row([0.9]), metric="auroc")


def test_notes_name_environments_and_say_if_there_are_several_commits() -> None:
    environments = [{"processor": "P", "torch": "2", "commit": c} for c in ("aaa", "aaa", "bbb")]
    results = [
        TrialResult(spec=spec(split=i), metrics={"openauc": 0.9}, environment=e) for i, e in enumerate(environments)
    ]
    assert summarise(results).notes[-1] == "Made with processor P; torch 2; commit aaa (2 trials), bbb (1 trials)."
    assert summarise(results[:2]).notes[-1] == "Made with processor P; torch 2; commit aaa."


def test_notes_say_which_splits_are_equal_and_how_the_paper_trained() -> None:
    notes = summarise(row([0.8] * 5, protocol="cifar+10")).notes
    assert "cifar+10: splits 1 and 2 have the same known classes, so 5 splits count as 4." in notes
    assert any(note.startswith("The paper: width 64") for note in notes)
    assert not any("The paper" in note for note in summarise(row([0.8], protocol="digits")).notes)


def test_order_of_results_does_not_matter() -> None:
    rng = np.random.default_rng(0)
    methods = ("softmax", "ce_plus", "openauc")
    results = [r for method in methods for p in ("mnist", "cifar10") for r in row(rng.random(5), method, p)]
    one = summarise(results, baseline="ce_plus")
    other = summarise([results[i] for i in rng.permutation(len(results))], baseline="ce_plus")
    assert labels(one) == labels(other)
    for label in labels(one):
        for column in one.columns:
            a, b = (s.cell(label, column.protocol) for s in (one, other))
            assert (a.mean, a.std_population, a.rank) == (
                pytest.approx(b.mean),
                pytest.approx(b.std_population),
                b.rank,
            )


def test_to_dict_is_plain_json() -> None:
    summary = summarise([*row([0.8, 0.9], "ce_plus"), *row([0.9, 0.95], "openauc")], baseline="ce_plus")
    values = json.loads(json.dumps(summary.to_dict(), allow_nan=False))
    assert [cell["variant"] for cell in values["cells"]] == ["ce_plus", "openauc"]
    assert values["cells"][1]["paired"]["difference"] == pytest.approx(0.075)


def test_two_thousand_results() -> None:
    results = [
        replace(one, spec=replace(one.spec, seed=seed))
        for protocol in ("mnist", "cifar10", "cifar+10", "cifar+50")
        for method in ("softmax", "gcpl", "rpl", "ce_plus", "openauc")
        for one in row([0.9] * 5, method, protocol)
        for seed in range(20)
    ]
    summary = summarise(results, baseline="ce_plus", planned=[result.spec for result in results])
    assert summary.cell("openauc", "mean").n_trials == 400
