"""Tools of others beside ours, on small Gaussian classes, the digits, and numbers made by hand."""

import json
import re
from functools import partial

import numpy as np
import peers
import peers_formulas
import peers_tools
import pytest

from openauc.protocols import OpenSetData, Split
from openauc.protocols.base import TestPart as Part
from openauc.protocols.sources import Examples

CLASSES = 4


def made(rows=30, width=6):
    rng = np.random.default_rng(0)
    centres = 4 * np.eye(width)[: CLASSES + 1]
    y = np.repeat(np.arange(CLASSES), rows)
    y_test = np.repeat([*range(CLASSES), -1], 10)
    X, X_test = (np.float32(centres[labels] + rng.normal(size=(len(labels), width))) for labels in (y, y_test))
    nothing = Examples(X[:0], y[:0])
    return OpenSetData(
        split=Split(tuple(range(CLASSES)), (CLASSES,)),
        read_train=lambda: (Examples(X, y), nothing),
        read_test=lambda: Part(X_test, y_test, np.full(len(y_test), "")),
        read_class_names=lambda: tuple("abcd"),
    )


@pytest.fixture(scope="module")
def data():
    return made()


@pytest.fixture(scope="module")
def found(data):
    return peers.measure(data, [name for name in peers.TOOLS if name != peers.OURS], None)


def test_what_needs_no_environment_is_measured(found):
    assert set(found) == {name for name, tool in peers.TOOLS.items() if tool.package == "scikit-learn"}
    assert [name for name, one in found.items() if "error" in one] == []
    for one in found.values():
        assert one["accuracy"] > 0.85
        assert one["partial"] <= one["openauc"] <= min(one["accuracy"], one["auroc"]) + 1e-9
        assert 0 <= one["rejected"] <= 1
        assert one["C"] in peers.STRENGTHS
    assert found["mahalanobis"]["auroc"] > 0.8
    assert found["sklearn-one-class-svm"]["accepted"] < found["sklearn-lof"]["accepted"]


def test_figures_of_answers_made_by_hand():
    y = np.array([0, 0, 1, 1, -1, -1])
    answer = {
        "version": "1",
        "predicted": np.array([0, 1, 1, 1, 0, 1]),
        "score": np.array([0.1, 0.2, 0.3, 0.9, 0.8, 1.0]),
        "rejected": np.array([0, 0, 0, 1, 0, 1], bool),
        "fit_seconds": 2.0,
        "test_seconds": 3.0,
    }
    one = peers.figures(answer, y)
    assert (one["accuracy"], one["accepted"], one["rejected"]) == (0.75, 0.75, 0.5)
    assert one["openauc"] == pytest.approx((2 + 3) / 8)
    assert one["auroc"] == pytest.approx(7 / 8)
    assert one["open_accuracy"] == pytest.approx(3 / 6)
    assert one["open_f1"] == pytest.approx((2 / 4 + 2 / 4 + 2 / 4) / 3)
    assert (one["fit_seconds"], one["rows_per_second"]) == (2, 2)
    broken = peers.figures(answer | {"score": np.full(6, np.nan)}, y)
    assert broken == {"version": "1", "error": "6 scores are not finite."}


def test_a_tool_that_fails_or_is_missing_says_why():
    def fails(X, y, head):
        raise ValueError("too few\n rows")

    rows = np.zeros((2, 2)), np.array([0, 1]), np.zeros((1, 2)), 1.0
    one = peers_tools.run(peers_tools.Tool("numpy", "numpy", fails, ""), *rows)
    assert one == {"version": np.__version__, "error": "ValueError: too few rows"}
    one = peers_tools.run(peers_tools.Tool("no-such-package", "no_such_package", fails, ""), *rows)
    assert one == {"missing": "ModuleNotFoundError: No module named 'no_such_package'"}


def test_a_process_that_ends_costs_only_its_own_tool(tmp_path):
    python = tmp_path / "python"
    python.write_text(
        '#!/bin/sh\necho \'{"error": "it said so"}\' > "$3/first.json"\n'
        'case "$*" in *first*) ;; *last*) exit 0 ;; esac\necho "out of memory" >&2\nexit 3\n'
    )
    python.chmod(0o755)
    answers = peers.ask(python, ["first", "second"], tmp_path / "rows.npz")
    assert answers["first"] == {"error": "it said so"}
    assert answers["second"] == {"error": "its process ended with 3: out of memory"}
    with pytest.raises(RuntimeError, match="gave no answer"):
        peers.ask(python, ["last"], tmp_path / "rows.npz")


def test_what_is_finished_is_not_computed_again(tmp_path, capsys):
    ask = partial(peers.run, ["digits_pixels"], ["max-logit", "crepes"], 1, tmp_path, None)
    first = ask(again=False)["digits_pixels"]
    assert 0.5 < first["max-logit"][0]["openauc"] < 1
    assert first["crepes"] == [{"split": 0, "missing": "no environment"}]
    assert "pip install --no-deps -r" in capsys.readouterr().err
    (file,) = tmp_path.glob("*.json")
    file.write_text(json.dumps(json.loads(file.read_text()) | {"openauc": 0.25}))
    assert ask(again=False)["digits_pixels"]["max-logit"][0]["openauc"] == 0.25
    again = ask(again=True)["digits_pixels"]["max-logit"][0]["openauc"]
    assert again == pytest.approx(first["max-logit"][0]["openauc"])


def results(**values):
    """OpenAUC of each tool on the splits of a row; None where it failed."""
    rest = dict.fromkeys((*peers.RANKED, *peers.DECIDED, *peers.TIMED), 0.5) | {"version": "7"}
    return {
        "digits_pixels": {
            name.replace("_", "-"): [
                {"split": split, **(rest | {"openauc": one} if one is not None else {"error": "it broke | badly"})}
                for split, one in enumerate(ones)
            ]
            for name, ones in values.items()
        }
    }


def test_differences_are_paired_and_corrected():
    given = results(openauc=[0.9, 0.92, 0.88], energy=[0.8, 0.83, 0.78], vim=[0.91, None, 0.88], knn=[None] * 3)
    every = peers.differences(given)["digits_pixels"]
    assert list(json.loads(json.dumps(every))) == ["energy", "vim"]
    assert every["energy"]["difference"] == pytest.approx(0.29 / 3)
    assert (every["energy"]["n"], every["vim"]["n"]) == (3, 2)
    assert every["energy"]["p_holm"] == pytest.approx(2 * every["energy"]["p"])
    assert every["vim"]["p_holm"] == pytest.approx(every["vim"]["p"])
    assert [peers.verdict(every[name]) for name in every] == [1, 0]
    text = peers.summary({"digits_pixels": every})
    assert "Of 2 comparisons" in text
    assert "significantly ahead in 1 (Holm-corrected p < 0.05), significantly behind in 0, and higher in 1." in text


def test_one_split_has_no_interval():
    every = peers.differences(results(openauc=[0.9], energy=[0.8]))["digits_pixels"]
    assert (every["energy"]["interval"], peers.verdict(every["energy"])) == (None, 0)
    assert peers.gap(every["energy"]) == "+10.0"


def test_groups_of_unknown_classes_are_rows_with_intervals_over_samples():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, -1, -1], 30)
    group = np.repeat(["known", "easy", "hard"], [60, 30, 30])
    answers = {
        name: {
            "version": "1",
            "predicted": np.where(y == 1, 1, 0),
            "score": 0.01 * np.arange(120) + rng.normal(size=120) + far * (group == "easy"),
            "rejected": np.zeros(120, bool),
            "fit_seconds": 1.0,
            "test_seconds": 1.0,
        }
        for name, far in (("openauc", 3.0), ("knn", 0.0))
    }
    rows = np.flatnonzero(np.isin(group, ["known", "easy"]))
    one = peers.figures(peers.part_of(answers, rows)["knn"], y[rows])
    one |= peers.on_samples(answers, "knn", rows, y)
    ours = peers.figures(peers.part_of(answers, rows)["openauc"], y[rows])
    found = [{"split": 0, "openauc": 0.1, "groups": {"easy": some}} for some in (ours, one)]
    split = peers.by_group("cub_features", {"openauc": found[:1], "knn": found[1:]})
    assert list(split) == ["cub_features easy"]
    difference = peers.differences(split)["cub_features easy"]["knn"]
    assert difference["difference"] == pytest.approx(ours["openauc"] - one["openauc"])
    low, high = difference["interval"]
    assert 0 < low < difference["difference"] < high
    assert peers.verdict(difference) == 1
    axes = peers.draw(peers.differences(split), dark=False).axes[0]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["CUB easy"]


def test_the_page_tells_all_tools():
    given = results(openauc=[0.9, 0.92], energy=[0.8, 0.83], vim=[0.7, None])
    given["digits_pixels"]["mapie"] = [{"split": split, "missing": "no environment"} for split in range(2)]
    text = peers.page(given)
    assert re.search(r"\| vim \| scikit-learn 7 \| none of its own.* \| it broke / badly \| 1 of 2 \|", text)
    assert re.search(r"\| mapie \| mapie \|.*\| not installed: no environment \| 2 of 2 \|", text)
    assert "| energy | **+9.5** [" in text
    assert "| openauc | 91.0 |\n| energy | 81.5 |\n| vim | 70.0 |\n| mapie |  |" in text


def test_formulas_see_what_is_far_from_all_classes(data):
    X, y = data.train.images.astype(float), data.train.labels
    head = peers_tools.logistic(1.0)
    layer = peers_formulas.Layer.fit(X, y, head)
    assert layer.logits(X) == pytest.approx(head.fit(X, y).decision_function(X))
    far = np.full((1, X.shape[1]), -20.0)
    for formula in (peers_formulas.vim, peers_formulas.neighbours, peers_formulas.mahalanobis):
        score = formula(X, y, layer)
        assert score(far)[0] > score(X).max(), formula.__name__
    distance = peers_formulas.mahalanobis(X, y, layer, relative=True)
    turned = np.random.default_rng(0).normal(size=(X.shape[1], X.shape[1]))
    moved = peers_formulas.mahalanobis(X @ turned, y, layer, relative=True)
    assert moved(X @ turned) == pytest.approx(distance(X), rel=1e-3, abs=1e-3)


def test_every_tool_is_pinned_and_says_what_its_threshold_means():
    pinned = {line.partition("==")[0].lower() for line in peers.REQUIREMENTS.read_text().split()}
    for tool in peers.TOOLS.values():
        assert tool.threshold
        assert tool.package in pinned | {"openauc"}


def test_the_mean_over_rows_takes_those_of_one_data_set_as_varying_together():
    every = {
        row: {"energy": {"difference": difference, "error": 0.002, "n": n}}
        for row, difference, n in (("clinc150_25", 0.01, 5), ("cifar10_features", 0.05, 4), ("cifar+10_features", 0, 4))
    }
    every["clinc150_25"]["vim"] = {"difference": 0.5, "error": 0.1, "n": 5}
    found = peers.over_rows(every)
    assert list(found) == ["energy"]
    assert (found["energy"]["lowest"], found["energy"]["higher"]) == (0, 2)
    assert found["energy"]["difference"] == pytest.approx(0.02)
    low, high = found["energy"]["interval"]
    error = np.hypot(0.002, 2 * 0.002) / 3
    assert high - low == pytest.approx(2 * 3.18245 * error, rel=1e-4)  # Student's t with three degrees of freedom
    assert peers.verdict(found["energy"]) == 1


def test_in_short_names_the_best_of_the_tools_with_all_splits():
    given = results(openauc=[0.9, 0.92], energy=[0.8, 0.83], vim=[0.99, None], max_softmax=[0.7, 0.7])
    (line,) = peers.in_short(given, peers.differences(given))[2:]
    assert line == "| digits, pixels | 6 | 70.0 | energy 81.5 | 91.0 | +9.5 [+3.1, +15.9] |"
