"""Labels of rejected rows: reading them, and what does not fit."""

import json
from pathlib import Path

import numpy as np
import pytest

from openauc.features.classifier.labels import (
    Pool,
    labelled_rows,
    labels_a_pool,
    like_classes,
    look_alike,
    read_lines,
)

TEXTS = np.array(["a card is lost", "where is my card", "top up", "top it up", "hello"])
POOL = Pool(Path("groups/rows.parquet"), np.array([3, 5, 8, 9, 12]), np.array([0, 0, 1, 1, -1]), TEXTS)


def given(path: Path, text: str) -> dict[int, str]:
    """The label of each row that has one."""
    path.write_text(text)
    rows, labels = labelled_rows(path, read_lines(path), POOL)
    return dict(zip(POOL.row[rows].tolist(), labels.tolist(), strict=True))


def test_a_line_for_each_group(tmp_path: Path) -> None:
    found = given(tmp_path / "labels.csv", "group,label,size\n0,  lost card ,2\n1,,2\n")
    assert found == {3: "lost card", 5: "lost card"}


def test_a_line_for_each_row(tmp_path: Path) -> None:
    text = "row,group,label,note,text\n3,0,lost,,a card is lost\n12,-1,hello,odd one,\n5,0,,,where  is my\tcard\n"
    assert given(tmp_path / "labels.csv", text) == {3: "lost", 12: "hello"}


def test_a_row_counts_more_than_its_group(tmp_path: Path) -> None:
    text = "row,group,label\n,0,lost\n,1,top up\n5,,where\n9,1,\n"
    assert given(tmp_path / "labels.csv", text) == {3: "lost", 5: "where", 8: "top up"}


@pytest.mark.filterwarnings("ignore:.*read as separated by ';'")
def test_as_a_spreadsheet_saves_it(tmp_path: Path) -> None:
    assert given(tmp_path / "labels.csv", "\ufeffrow;label\r\n3.0;007\r\n5.0;\r\n") == {3: "007"}


def task(row: int, *labels: str | list[str], cancelled: bool = False) -> dict[str, object]:
    result = [{"from_name": "label", "to_name": "text", "type": "choices", "value": {"choices": [*labels]}}]
    data = {"row": row, "group": 0, "text": str(TEXTS[POOL.row.tolist().index(row)])}
    return {"id": row, "data": data, "annotations": [{"result": result, "was_cancelled": cancelled}]}


def test_label_studio(tmp_path: Path) -> None:
    typed = task(9)
    typed["annotations"] = [{"result": [{"type": "textarea", "value": {"text": ["top up"]}}], "was_cancelled": False}]
    tasks = [task(3, "lost"), task(5, "group 0"), task(8, "top up", cancelled=True), typed]
    assert given(tmp_path / "export.json", json.dumps([*tasks, {"id": 1, "data": {"row": 12}, "annotations": []}])) == {
        3: "lost",
        9: "top up",
    }
    flat = [
        {"id": 7, "text": "a card is lost", "row": 3, "group": 0, "label": "lost", "annotator": 1, "lead_time": 2.5},
        {"id": 8, "row": 5, "group": 0, "label": {"choices": ["lost"]}, "annotation_id": 4, "created_at": "2025"},
        {"id": 9, "row": 8, "group": 1, "annotator": 1},
    ]
    assert given(tmp_path / "export.json", json.dumps(flat)) == {3: "lost", 5: "lost"}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "row,label\n3,lost\n4,lost\n",
            r"labels row 4, but groups/rows.parquet has no such row among the rejected rows; name the folder",
        ),
        ("group,label\n0,lost\n7,\n", r"labels group 7, but groups/rows.parquet has no such group"),
        ("row,label,text\n3,lost,hello\n", r"line 2: row 3 is 'hello', but 'a card is lost' in groups/rows.parquet"),
        ("row,label\n3,lost\n3,found\n", r"row 3 is called both 'lost' and 'found'; keep one"),
        ("group,label\n0,lost\n0,\n", r"group 0 is called both 'lost' and ''"),
        ("group,label\n0,\n1, \n", r"names no class; give a label to each group, or row"),
        ("row,label\nthree,lost\n", r"line 2: 'three' is not the number of a row"),
        ("row,group,label\n,,lost\n", r"line 2: neither a row nor a group is named"),
        ("row,name\n3,lost\n", r"has the columns 'row', 'name'; expected 'label', and 'row' or 'group'"),
    ],
)
def test_what_does_not_fit_is_said(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        given(tmp_path / "labels.csv", text)


@pytest.mark.parametrize(
    ("tasks", "sentence"),
    [
        ("{", "is not an export of Label Studio"),
        ([{"id": 1, "data": {"text": "hello"}, "annotations": []}], "is not an export .* of the label_studio.json"),
        ([task(3, "lost", "found")], "task 3 has the labels 'lost', 'found'; a row has one class"),
        ([task(3, "lost"), task(3, "found")], "row 3 is called both"),
        ([{"id": 1, "row": 3, "text": "hello", "label": "lost"}], "row 3 is 'hello', but 'a card is lost'"),
        (["a"], "is not an export of Label Studio"),
        ({}, "is not an export of Label Studio.*it is not a list of tasks"),
        ([{key: value for key, value in task(3).items() if key != "annotations"}], "names no class; give a label"),
    ],
)
def test_what_does_not_fit_in_an_export_is_said(tmp_path: Path, tasks: object, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        given(tmp_path / "export.json", tasks if isinstance(tasks, str) else json.dumps(tasks))


def test_labels_of_a_pool_are_told_from_tables(tmp_path: Path) -> None:
    def of_pool(*names: str) -> bool:
        (tmp_path / "table.csv").write_text(",".join(names) + "\n" + ",".join("0" * len(names)) + "\n")
        return labels_a_pool(tmp_path / "table.csv", ("x1", "x2"))

    assert of_pool("row", "group", "label", "note", "text")
    assert of_pool("group", "label", "size", "purity", "nearest", "words", "examples")
    assert of_pool("row", "label")
    assert not of_pool("row", "group", "text")
    assert not of_pool("text", "label", "group")
    assert not of_pool("row", "group", "label", "embedding")
    assert not of_pool("group", "label", "x1", "x2")


def test_labels_are_of_the_kind_of_the_classes() -> None:
    assert like_classes(np.array(["4", "12"]), np.array([1, 2])).tolist() == [4, 12]
    assert like_classes(np.array(["4", "12"]), np.array(["a"])).tolist() == ["4", "12"]
    assert like_classes(np.array(["4", "a"]), np.array([1, 2])).tolist() == [4, "a"]


def test_names_that_differ_in_case_or_spaces_only_are_remarked() -> None:
    classes = np.array(["lost_card", "Refund", "refund"])
    assert not list(look_alike(np.array(["lost_card", "Refund", "refund", "top up"]), classes))
    (remark,) = look_alike(np.array(["Lost card", "top up"]), classes)
    assert "'Lost card' is learned beside 'lost_card'" in remark
    (remark,) = look_alike(np.array(["top up", "topup"]), classes)
    assert "'topup' is learned beside 'top up'" in remark
