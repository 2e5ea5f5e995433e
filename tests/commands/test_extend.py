"""openauc extend, through the real command line: from rejected rows to classes that the model knows."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from commands.application import refused, run
from commands.new_kinds import NAMES, QUICK, fill_in, fitted, named, table
from openauc import _files
from openauc.features import OpenSetClassifier
from openauc.features.classifier.tables import MODEL
from openauc.predictions import read_columns, write_columns


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = fitted(tmp_path_factory.mktemp("extend"))
    run("discover", place / "model", place / "new.parquet", "-o", place / "groups")
    table(place / "test.parquet", 6, 2)
    return place


@pytest.fixture
def groups(folder: Path, tmp_path: Path) -> Path:
    """Groups to do things to."""
    return Path(shutil.copytree(folder / "groups", tmp_path / "groups"))


@pytest.fixture
def model(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder / "model", tmp_path / "model"))


def new_names(groups: Path) -> dict[int, str]:
    """Names for the groups of new kinds, written with spaces around."""
    return {group: f" {name} " for group, name in named(groups).items() if name in ("elk", "fox")}


def answers(model: Path, file: Path) -> np.ndarray:
    return OpenSetClassifier.load(model).predict(read_columns(file)["embedding"])


def said_by(*words: object) -> str:
    return " ".join(run(*words).split())


def test_from_rejected_rows_to_classes_and_back(folder: Path, model: Path, groups: Path, tmp_path: Path) -> None:
    test, before = folder / "test.parquet", (model / MODEL).read_bytes()
    truth = read_columns(test)["intent"].astype(str)
    strange = np.isin(truth, ["elk", "fox"])
    assert np.mean(answers(model, test)[strange] == "unknown") > 0.9
    filled = fill_in(groups, new_names(groups))
    said = said_by("extend", model, filled, "-o", tmp_path / "model2")
    assert (model / MODEL).read_bytes() == before
    assert "2 classes, 2 new" in said
    assert "rows added, with the new classes 'elk', 'fox'. Of the 240 training rows" in said
    assert "Guarantee: about 95 % of new rows" in said
    assert f"openauc compare-models {model} {tmp_path / 'model2'}" in said
    run("predict", tmp_path / "model2", test, "-o", tmp_path / "decisions.csv")
    decided = read_columns(tmp_path / "decisions.csv")["prediction"]
    assert np.mean(decided[strange] == truth[strange]) > 0.85
    assert np.mean(decided[~strange] == truth[~strange]) > 0.85
    assert OpenSetClassifier.load(tmp_path / "model2").classes_.tolist() == NAMES.tolist()


def test_in_place_and_back(folder: Path, model: Path, groups: Path) -> None:
    names = new_names(groups)
    assert len(names) >= 2
    states = [(model / MODEL).read_bytes()]
    for number, group in enumerate(names, 1):
        said = said_by("extend", model, fill_in(groups, {group: f"kind {group}"}))
        assert f"openauc extend {model} --undo" in said
        assert (model / f"before_{number}.safetensors").read_bytes() == states[-1]
        states.append((model / MODEL).read_bytes())
        shutil.copy(folder / "groups/labels.csv", groups)
    assert len(set(states)) == len(states)
    for number in reversed(range(len(names))):
        assert "is as it was before the last change" in said_by("extend", model, "--undo")
        assert (model / MODEL).read_bytes() == states[number]
    assert [file.name for file in model.iterdir()] == [MODEL]
    refused("extend", model, "--undo", match="there is nothing to take back")


def test_a_crash_leaves_the_old_model_or_the_new_one(
    model: Path, groups: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, filled, replace = (model / MODEL).read_bytes(), fill_in(groups, new_names(groups)), _files.os.replace
    for steps in range(2):
        left = [steps]

        def fail_later(*paths: object, left: list[int] = left) -> None:
            if not left[0]:
                raise OSError(28, "No space left on device")
            left[0] -= 1
            replace(*paths)

        with monkeypatch.context() as patch:
            patch.setattr(_files.os, "replace", fail_later)
            assert "No space left" in run("extend", model, filled, code=2)
        assert (model / MODEL).read_bytes() == before
        OpenSetClassifier.load(model)
    run("extend", model, filled)
    assert sorted(file.name for file in model.iterdir()) == ["before_1.safetensors", MODEL]
    run("extend", model, "--undo")
    assert (model / MODEL).read_bytes() == before


def test_a_model_that_is_overwritten_is_kept(model: Path, groups: Path, tmp_path: Path) -> None:
    shutil.copytree(model, tmp_path / "model2")
    before = (model / MODEL).read_bytes()
    run("extend", model, fill_in(groups, new_names(groups)), "-o", tmp_path / "model2")
    assert (tmp_path / "model2" / MODEL).read_bytes() != before
    run("extend", tmp_path / "model2", "--undo")
    assert (tmp_path / "model2" / MODEL).read_bytes() == before


def test_a_later_fit_is_not_taken_back(folder: Path, model: Path, groups: Path) -> None:
    run("extend", model, fill_in(groups, new_names(groups)))
    run("fit", folder / "test.parquet", "-o", model, *QUICK)
    now = (model / MODEL).read_bytes()
    refused("extend", model, "--undo", match="was fitted again after .* that fit would be lost")
    assert (model / MODEL).read_bytes() == now


def test_a_damaged_model_is_not_brought_back(model: Path, groups: Path) -> None:
    run("extend", model, fill_in(groups, new_names(groups)))
    now, kept = (model / MODEL).read_bytes(), model / "before_1.safetensors"
    kept.write_bytes(kept.read_bytes()[:-1] + b"?")
    refused("extend", model, "--undo", match="damaged")
    assert (model / MODEL).read_bytes() == now


def test_labels_of_rows_from_the_page_saved_elsewhere(folder: Path, model: Path, tmp_path: Path) -> None:
    pool = read_columns(folder / "groups/rows.parquet")
    rows = np.flatnonzero(np.isin(pool["intent"].astype(str), ["elk", "fox"]))
    lines = [f'{pool["row"][i]},{pool["group"][i]},{pool["intent"][i]},,"{pool["text"][i]}"' for i in rows]
    (tmp_path / "labels.csv").write_text("\n".join(["row,group,label,note,text", *lines, ""]))
    words = ("extend", model, tmp_path / "labels.csv", "-o", tmp_path / "model2")
    refused(*words, match=r"there is no .*rows.parquet, which has the rows that .*labels.csv labels; name the folder")
    assert not (tmp_path / "model2").exists()
    run(*words, "--groups", folder / "groups")
    extended = OpenSetClassifier.load(tmp_path / "model2")
    assert set(extended.predict(pool["embedding"][rows])) >= {"elk", "fox"}
    assert set(pool["text"][rows]) & set(extended.examples_.names.tolist())


def test_an_export_of_label_studio(model: Path, groups: Path, tmp_path: Path) -> None:
    tasks, kinds = json.loads((groups / "label_studio.json").read_text()), named(groups)
    for task in tasks:
        name = kinds.get(task["data"]["group"])
        result = [{"type": "choices", "value": {"choices": [name]}}] if name in ("elk", "fox") else []
        task["annotations"] = [{"result": result, "was_cancelled": False}]
    (groups / "export.json").write_text(json.dumps(tasks))
    said = said_by("extend", model, groups / "export.json", "-o", tmp_path / "model2")
    run("extend", model, fill_in(groups, new_names(groups)), "-o", tmp_path / "model3")
    assert "2 classes, 2 new" in said
    assert answers(tmp_path / "model2", groups / "rows.parquet").tolist() == (
        answers(tmp_path / "model3", groups / "rows.parquet").tolist()
    )


def test_images_may_be_addresses_in_label_studio(model: Path, groups: Path, tmp_path: Path) -> None:
    kinds, tasks = named(groups), json.loads((groups / "label_studio.json").read_text())
    exported = [
        {"image": f"http://here/{one['row']}.png", "row": one["row"], "group": one["group"], "label": name}
        for one in (task["data"] for task in tasks)
        if (name := kinds.get(one["group"])) in ("elk", "fox")
    ]
    (groups / "export.json").write_text(json.dumps(exported))
    assert "2 classes, 2 new" in said_by("extend", model, groups / "export.json", "-o", tmp_path / "model2")


def test_a_table_with_labels_of_known_and_new_classes(model: Path, tmp_path: Path) -> None:
    file = table(tmp_path / "more.parquet", 5, 7, per_kind=20)
    columns = read_columns(file)
    labels = np.where(np.arange(100) < 10, "", columns["intent"].astype(str))
    write_columns(tmp_path / "gaps.parquet", {**columns, "intent": labels})
    result = run("extend", model, tmp_path / "gaps.parquet", "-o", tmp_path / "model2")
    said = " ".join(result.split())
    assert "without a label are left out: 10." in said
    assert "90 rows of 5 classes, 1 new" in said
    assert "ant 10 known before" in said
    assert "elk 20 new" in said
    assert OpenSetClassifier.load(tmp_path / "model2").report_.n_samples == 240 + 90


def test_small_classes_and_rows_that_are_known_are_told(folder: Path, model: Path, tmp_path: Path) -> None:
    train, more = read_columns(folder / "train.parquet"), read_columns(table(tmp_path / "more.parquet", 5, 7))
    rows = np.arange(240, 246)
    both = {
        "intent": np.concatenate([train["intent"][:30], more["intent"][rows]]).astype(str),
        "embedding": np.concatenate([train["embedding"][:30], more["embedding"][rows]]),
    }
    write_columns(tmp_path / "both.npz", both)
    said = said_by("extend", model, tmp_path / "both.npz", "-o", tmp_path / "model2")
    assert "30 rows known already, with the same class" in said
    assert "Too few rows for a guarantee of their own: 'elk'" in said


def test_classes_that_are_numbers(tmp_path: Path) -> None:
    columns = read_columns(table(tmp_path / "of_names.parquet", 6, 1))
    numbers = {"label": np.repeat(np.arange(6), 60), "embedding": columns["embedding"]}
    write_columns(tmp_path / "new.npz", numbers)
    write_columns(tmp_path / "train.npz", {name: values[:240] for name, values in numbers.items()})
    run("fit", tmp_path / "train.npz", "-o", tmp_path / "model", *QUICK)
    run("discover", tmp_path / "model", tmp_path / "new.npz", "-o", tmp_path / "groups")
    fill_in(tmp_path / "groups", {0: "40"})
    run("extend", tmp_path / "model", tmp_path / "groups/labels.csv")
    assert OpenSetClassifier.load(tmp_path / "model").classes_.tolist() == [0, 1, 2, 3, 40]
    text = (tmp_path / "groups/labels.csv").read_text().replace(",40,", ",forty,")
    (tmp_path / "groups/labels.csv").write_text(text)
    refused("extend", tmp_path / "model", tmp_path / "groups/labels.csv", match="the classes are numbers")


def test_names_that_are_nearly_those_of_known_classes_are_remarked(model: Path, groups: Path, tmp_path: Path) -> None:
    filled = fill_in(groups, dict.fromkeys(new_names(groups), "Cat"))
    said = run("extend", model, filled, "-o", tmp_path / "model2")
    assert "'Cat' is learned beside 'cat'; if they are one class, write the name alike" in " ".join(said.split())


def test_bad_input_is_said_and_nothing_is_written(folder: Path, model: Path, groups: Path, tmp_path: Path) -> None:
    before = {file.name: file.read_bytes() for file in model.iterdir()}
    labels = groups / "labels.csv"
    refused("extend", model, match="there is nothing to learn; name LABELS")
    refused("extend", model, labels, "--undo", match="--undo takes back the last change")
    refused("extend", model, labels, match="names no class")
    refused("extend", model, labels, "-o", groups, match="it holds files but no model")
    refused("extend", groups, labels, match="is not a model")
    refused("extend", groups, "--undo", match="is not a model")
    fill_in(groups, dict.fromkeys(new_names(groups), "unknown"))
    refused("extend", model, labels, match="'unknown' cannot be a class")
    labels.write_text("row,label\n1000000,elk\n")
    refused("extend", model, labels, match="labels row 1000000, but .* has no such row")
    refused(
        "extend", model, folder / "test.parquet", "--groups", groups, match="expected 'label', and 'row' or 'group'"
    )
    unlabelled = read_columns(folder / "test.parquet")["embedding"]
    write_columns(tmp_path / "unlabelled.npz", {"embedding": unlabelled})
    refused("extend", model, tmp_path / "unlabelled.npz", match="has no column of labels")
    write_columns(tmp_path / "narrow.npz", {"embedding": unlabelled[:, :5], "label": ["elk"] * 360})
    refused("extend", model, tmp_path / "narrow.npz", match="5 features for each sample, but .* was fitted on 8")
    write_columns(groups / "rows.parquet", {"embedding": unlabelled})
    refused("extend", model, labels, match="has no column '(row|group)'; name a folder that `openauc discover` wrote")
    assert {file.name: file.read_bytes() for file in model.iterdir()} == before


def test_models_without_names_stay_without(folder: Path, groups: Path, tmp_path: Path) -> None:
    run("fit", folder / "train.parquet", "-o", tmp_path / "model", *QUICK, "--no-names")
    run("extend", tmp_path / "model", fill_in(groups, new_names(groups)))
    assert OpenSetClassifier.load(tmp_path / "model").examples_.names is None
