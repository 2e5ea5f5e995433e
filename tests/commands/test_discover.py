"""openauc discover, through the real command line."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from commands.application import refused, run
from commands.new_kinds import NAMES, fill_in, fitted, named, table
from openauc import _files
from openauc.features import OpenSetClassifier
from openauc.predictions import read_columns, write_columns


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = fitted(tmp_path_factory.mktemp("discover"))
    said = run("discover", place / "model", place / "new.parquet", "-o", place / "groups")
    (place / "said.txt").write_text(" ".join(said.split()))
    return place


def test_rejected_rows_are_written_as_a_table_that_can_be_read_again(folder: Path) -> None:
    new, pool = read_columns(folder / "new.parquet"), read_columns(folder / "groups/rows.parquet")
    model = OpenSetClassifier.load(folder / "model")
    np.testing.assert_array_equal(pool["row"], np.flatnonzero(model.predict(new["embedding"]) == "unknown"))
    for name in ("embedding", "text", "intent"):
        np.testing.assert_array_equal(pool[name], new[name][pool["row"]])
    assert pool["embedding"].dtype == np.float32
    run("predict", folder / "model", folder / "groups/rows.parquet", "-o", folder / "again.csv")
    assert set(read_columns(folder / "again.csv")["prediction"]) == {"unknown"}
    assert {"elk", "fox"} <= set(named(folder / "groups").values())


def test_each_group_has_a_line_to_fill_in(folder: Path) -> None:
    lines, pool = read_columns(folder / "groups/labels.csv", gaps=True), read_columns(folder / "groups/rows.parquet")
    assert list(lines) == ["group", "label", "size", "purity", "nearest", "words", "examples"]
    assert set(lines["label"]) == {""}
    for group, size, examples in zip(lines["group"], lines["size"], lines["examples"], strict=True):
        inside = pool["group"] == group
        assert inside.sum() == size
        assert set(examples.split(" | ")) <= set(pool["text"][inside])
        assert len(examples.split(" | ")) == 3


def test_tasks_are_as_label_studio_imports_them(folder: Path) -> None:
    tasks = json.loads((folder / "groups/label_studio.json").read_text())
    pool = read_columns(folder / "groups/rows.parquet")
    assert [task["data"]["row"] for task in tasks] == pool["row"].tolist()
    for task, text, group in zip(tasks, pool["text"], pool["group"], strict=True):
        assert task["data"]["text"] == text
        proposed = [part for one in task["predictions"] for part in one["result"]]
        choice = {"from_name": "label", "to_name": "text", "type": "choices"}
        wanted = [choice | {"value": {"choices": [f"group {group}"]}}] if group >= 0 else []
        assert proposed == wanted


def test_what_was_found_is_said(folder: Path) -> None:
    said, lines = (folder / "said.txt").read_text(), read_columns(folder / "groups/labels.csv", gaps=True)
    assert f"{len(lines['group'])} groups among" in said
    assert "of 360 rows" in said
    assert "of the rejected rows (" in said or "All rejected rows fit a group." in said
    assert "By the labels of column intent, the groups are" in said
    assert f"openauc extend {folder / 'model'} {folder / 'groups/labels.csv'} -o MODEL2" in said
    assert "number 2" in (folder / "groups/review.html").read_text()


def test_numbers_stay_whole_where_names_are_cut(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = read_columns(folder / "new.parquet")
    long = np.char.add(columns["intent"].astype(str), "_with_a_name_that_is_far_too_long_for_a_table")
    write_columns(tmp_path / "long.parquet", {**columns, "text": np.char.add(long, columns["text"]), "intent": long})
    said = run("discover", folder / "model", tmp_path / "long.parquet", "-o", tmp_path / "groups")
    lines = read_columns(tmp_path / "groups/labels.csv", gaps=True)
    for group, size, purity in zip(lines["group"], lines["size"], lines["purity"], strict=True):
        assert re.search(rf"^ +{group} +{size} +{purity:.2f} +\d\.\d\d – \d\.\d\d .*…", said, re.M)


def test_without_labels_or_texts(folder: Path, tmp_path: Path) -> None:
    columns = read_columns(folder / "new.parquet")
    write_columns(tmp_path / "plain.npz", {"embedding": columns["embedding"]})
    said = run("discover", folder / "model", tmp_path / "plain.npz", "-o", tmp_path / "groups")
    assert "By the labels" not in said
    pool = read_columns(tmp_path / "groups/rows.parquet")
    assert set(pool) == {"row", "group", "embedding"}
    examples = read_columns(tmp_path / "groups/labels.csv", gaps=True)["examples"][0].split(" | ")
    assert set(examples) <= {f"row {row}" for row in pool["row"]}


def test_a_second_time_replaces_the_files_but_no_labels(folder: Path, tmp_path: Path) -> None:
    words = ("discover", folder / "model", folder / "new.parquet", "-o", tmp_path / "groups")
    run(*words)
    before = {file.name: file.read_bytes() for file in (tmp_path / "groups").iterdir()}
    run(*words)
    again = {file.name: file.read_bytes() for file in (tmp_path / "groups").iterdir()}
    assert before == again
    file = fill_in(tmp_path / "groups", {0: "elk"})
    filled = file.read_bytes()
    refused(*words, match="has labels that somebody filled in")
    assert file.read_bytes() == filled


def test_after_a_crash_no_labels_stand_beside_other_groups(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words, replace, written = ("-o", tmp_path / "groups"), _files.os.replace, []

    def fail_at_the_page(*paths: object) -> None:
        if len(written) == 2:
            raise OSError(28, "No space left on device")
        written.append(replace(*paths))

    run("discover", folder / "model", folder / "new.parquet", *words)
    with monkeypatch.context() as patch:
        patch.setattr(_files.os, "replace", fail_at_the_page)
        said = run("discover", folder / "model", table(tmp_path / "other.parquet", 6, 5), *words, code=2)
    assert "No space left" in said
    assert sorted(file.name for file in (tmp_path / "groups").iterdir()) == ["label_studio.json", "rows.parquet"]
    run("discover", folder / "model", tmp_path / "other.parquet", *words)
    assert (tmp_path / "groups/labels.csv").is_file()


def test_columns_of_numbers_and_columns_of_these_names(tmp_path: Path) -> None:
    X = read_columns(table(tmp_path / "of_lists.parquet", 6, 1))["embedding"]
    y = np.repeat(NAMES, 60)
    columns = {f"x{i}": values for i, values in enumerate(X.T)} | {"group": np.repeat("mine", 360), "label": y}
    write_columns(tmp_path / "new.csv", columns)
    write_columns(tmp_path / "train.csv", {name: values[:240] for name, values in columns.items()})
    run("fit", tmp_path / "train.csv", "-o", tmp_path / "model", "--folds", 2, "-q", "--rejector", "max_logit")
    run("discover", tmp_path / "model", tmp_path / "new.csv", "-o", tmp_path / "groups")
    pool = read_columns(tmp_path / "groups/rows.parquet")
    assert pool["group"].dtype.kind == "i"
    np.testing.assert_array_equal(pool["x3"], columns["x3"][pool["row"]])
    run("predict", tmp_path / "model", tmp_path / "groups/rows.parquet", "-o", tmp_path / "again.csv")


def test_images_are_shown_small(folder: Path, tmp_path: Path) -> None:
    for number in range(360):
        Image.new("RGB", (200, 100), (number % 256, 9, 9)).save(tmp_path / f"{number}.png")
    embedding = read_columns(folder / "new.parquet")["embedding"]
    write_columns(tmp_path / "new.npz", {"file": [f"{i}.png" for i in range(360)], "embedding": embedding})
    run("discover", folder / "model", tmp_path / "new.npz", "-o", tmp_path / "groups")
    assert (tmp_path / "groups/review.html").read_text().count("data:image/jpeg;base64,") > 12
    assert "image" in json.loads((tmp_path / "groups/label_studio.json").read_text())[0]["data"]


def test_bad_input_is_said_and_nothing_is_written(folder: Path, tmp_path: Path) -> None:
    words = ("discover", folder / "model", folder / "new.parquet", "-o")
    refused("discover", tmp_path, folder / "new.parquet", match="is not a model")
    (tmp_path / "file").write_text("")
    refused(*words, tmp_path / "file", match="it is a file; name a folder")
    refused(*words, tmp_path, match="it holds 'file'; name a new or empty folder")
    refused(*words, folder / "model", match="it holds 'classifier.safetensors'")
    files = {file.name: file.read_bytes() for file in (folder / "groups").iterdir()}
    words = ("discover", folder / "model", folder / "groups/rows.parquet", "-o", folder / "groups")
    refused(*words, match="it is an input of this command")
    assert {file.name: file.read_bytes() for file in (folder / "groups").iterdir()} == files
    known = table(tmp_path / "known.parquet", 1, 0, per_kind=5)
    run("discover", folder / "model", known, "-o", tmp_path / "none", code=2)
    assert not (tmp_path / "none").exists()
