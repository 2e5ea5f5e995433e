"""Tables of embeddings: which columns are what, and decisions that agree with the classifier's own."""

from dataclasses import asdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from openauc import openauc_score
from openauc.features import OpenSetClassifier
from openauc.features.classifier.tables import (
    DECISIONS,
    TableSpec,
    decide,
    groups_of,
    guarantee_of,
    other_columns,
    read_table,
    truth,
    unknown_when,
)

X = np.arange(12, dtype=np.float32).reshape(4, 3)
Y = ["a", "b", "a", "b"]


def parquet(path: Path, columns: dict, **metadata: str) -> Path:
    table = pa.table({name: list(values) for name, values in columns.items()})
    pq.write_table(table.replace_schema_metadata({f"openauc.{key}": value for key, value in metadata.items()}), path)
    return path


def samples(n_classes: int = 4, n: int = 30, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(n_classes), n)
    return (4 * np.eye(8)[y] + rng.normal(size=(len(y), 8))).astype(np.float32), y


@pytest.fixture(scope="module")
def classifier() -> OpenSetClassifier:
    X, y = samples()
    return OpenSetClassifier(rejector="max_logit", random_state=0).fit(X, np.array(list("abcd"))[y])


def test_a_column_of_lists_and_the_encoder_that_made_it(tmp_path: Path) -> None:
    file = parquet(tmp_path / "t.parquet", {"text": Y, "number": [1, 2, 3, 4], "Label": Y, "embedding": X}, encoder="e")
    table = read_table(file)
    assert table.spec == TableSpec(features=("embedding",), label="Label", encoder="e")
    assert table.features.dtype == np.float32
    np.testing.assert_array_equal(table.features, X)
    assert table.labels.tolist() == Y
    assert list(table.columns) == ["text", "number", "Label"]
    assert table.left_out == ()


def test_an_array_of_two_dimensions_by_any_name(tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", vectors=X.astype(np.float16), target=np.array([3, 3, 5, 5]))
    table = read_table(tmp_path / "t.npz")
    assert table.spec == TableSpec(features=("vectors",), label="target")
    assert table.features.dtype == np.float32
    assert table.labels.tolist() == [3, 3, 5, 5]
    np.savez(tmp_path / "two.npz", one=X, other=X)
    with pytest.raises(ValueError, match="2 columns of lists, 'one', 'other'; choose one with embedding_column"):
        read_table(tmp_path / "two.npz")
    assert read_table(tmp_path / "two.npz", embedding_column="other").spec.features == ("other",)


def test_columns_of_numbers_but_the_label_and_the_row(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_text("id,width,y,note,height\n1,0.5,7,,2\n2,0.25,8,hm,3\n")
    table = read_table(file)
    assert table.spec == TableSpec(features=("width", "height"), label="y")
    assert table.left_out == ("id", "note")
    np.testing.assert_array_equal(table.features, [[0.5, 2], [0.25, 3]])
    assert table.columns["note"].tolist() == ["", "hm"]
    assert read_table(file, label_column="note").spec.features == ("width", "y", "height")


def test_a_table_is_read_like_the_one_before(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("b,a,more,kind\n1,2,3,x\n")
    table = read_table(tmp_path / "t.csv", like=TableSpec(features=("a", "b"), label="kind", encoder="e"))
    assert table.features.tolist() == [[2, 1]]
    assert table.spec.label == "kind"
    assert read_table(tmp_path / "t.csv").spec == TableSpec(features=("b", "a", "more"))


def test_what_is_no_table_of_embeddings_is_said(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no file"):
        read_table(tmp_path / "none.parquet")
    with pytest.raises(FileNotFoundError, match="there is no file"):
        read_table(tmp_path / "none.csv")
    with pytest.raises(ValueError, match=r"suffix '\.txt'"):
        read_table(tmp_path / "t.txt")
    text = parquet(tmp_path / "text.parquet", {"text": Y, "label": Y})
    with pytest.raises(ValueError, match=r"no column of embeddings, .* it has 'text', 'label'.*openauc embed"):
        read_table(text)
    with pytest.raises(ValueError, match="has no column 'vector', which embedding_column names; it has 'text'"):
        read_table(text, embedding_column="vector")
    with pytest.raises(ValueError, match="has no column 'kind', which label_column names; it has 'text', 'label'"):
        read_table(text, label_column="kind")
    with pytest.raises(ValueError, match="column 'text' is not a list of numbers"):
        read_table(text, embedding_column="text")
    bare = parquet(tmp_path / "bare.parquet", {"kind": Y, "embedding": X})
    with pytest.raises(ValueError, match=r"no column of labels \('label', 'y'.*it has 'kind'. Name it with"):
        _ = read_table(bare).labels
    hole = parquet(tmp_path / "hole.parquet", {"embedding": np.where(X == 7, np.nan, X)})
    with pytest.raises(ValueError, match="column 'embedding' is empty in 1 row \\(sample 2\\)"):
        read_table(hole)
    (tmp_path / "hole.csv").write_text("a,b\n1,2\n1,inf\n")
    with pytest.raises(ValueError, match="'b' is inf for line 3"):
        read_table(tmp_path / "hole.csv")
    (tmp_path / "empty.csv").write_text("a,b\n")
    with pytest.raises(ValueError, match=r"no column of embeddings|holds no sample"):
        read_table(tmp_path / "empty.csv")


def test_labels_may_be_missing(tmp_path: Path) -> None:
    file = parquet(tmp_path / "t.parquet", {"label": ["a", None, "b", "a"], "embedding": X})
    table = read_table(file)
    assert table.labels.tolist() == ["a", None, "b", "a"]
    assert not table.labelled
    assert read_table(parquet(file, {"label": Y, "embedding": X})).labelled
    assert not read_table(parquet(file, {"embedding": X})).labelled


@pytest.mark.parametrize("fdr", [None, 0.3])
def test_decisions_are_those_of_the_classifier(classifier: OpenSetClassifier, fdr: float | None) -> None:
    X, _ = samples(n_classes=6, seed=1)
    columns = decide(classifier, X, fdr=fdr)
    assert set(columns) < set(DECISIONS)
    np.testing.assert_array_equal(columns["y_pred"], classifier.classify(X))
    np.testing.assert_array_equal(columns["open_score"], classifier.open_score(X))
    np.testing.assert_array_equal(columns["p_value"], classifier.p_value(X))
    expected = classifier.predict(X)
    if fdr is not None:
        expected = np.where(classifier.select_unknown(X, fdr=fdr), "unknown", classifier.classify(X))
    np.testing.assert_array_equal(columns["prediction"], expected)
    assert 0 < (columns["prediction"] == "unknown").sum() < len(X)
    with pytest.raises(ValueError, match="fdr is 1"):
        decide(classifier, X, fdr=1.0)


def test_a_score_that_overflows_is_unknown_as_for_predict(classifier: OpenSetClassifier) -> None:
    X = np.stack([np.full(8, 3e38), np.tile([3e38, -3e38], 4)]).astype(np.float32)
    with np.errstate(all="ignore"):
        columns, expected = decide(classifier, X), classifier.predict(X)
    assert np.isnan(columns["open_score"]).any()
    assert columns["prediction"].tolist() == expected.tolist()
    assert "unknown" in expected


def test_the_truth_is_what_evaluate_reads(classifier: OpenSetClassifier) -> None:
    X, y = samples(n_classes=6, seed=1)
    labels = np.array(list("abcdef"))[y]
    known, mark = truth(classifier, labels)
    assert mark == -1
    assert set(known) == {*"abcd", "-1"}
    columns = decide(classifier, X)
    found = openauc_score(known, columns["y_pred"], columns["open_score"])
    assert found == openauc_score(*classifier.predictions(X, labels))


def test_numbers_as_text_are_the_same_classes() -> None:
    X, y = samples()
    numbered = OpenSetClassifier(rejector="max_logit", random_state=0).fit(X, y)
    known, mark = truth(numbered, np.array(["2", "other", "0"]))
    assert (known.tolist(), mark) == ([2, -1, 0], -1)
    assert truth(numbered, np.array([2.0, 9.0]))[0].tolist() == [2, -1]


@pytest.mark.parametrize(("label", "mark"), [("none", "none"), (None, "unknown")])
def test_where_a_class_is_called_minus_one_the_mark_is_another(label: str | None, mark: str) -> None:
    X, y = samples()
    classifier = OpenSetClassifier(rejector="max_logit", unknown_label=label, random_state=0)
    classifier.fit(X, np.array(["-1", "0", "1", "2"])[y])
    known, found = truth(classifier, np.array(["-1", "7"]))
    assert (known.tolist(), found) == (["-1", mark], mark)
    assert mark in decide(classifier, 0 * X)["prediction"]


def test_columns_to_carry_over(tmp_path: Path) -> None:
    columns = {"text": Y, "logits": X, "p_value": [1, 2, 3, 4], "when": np.array(["2024-01-01"] * 4, "M8[s]")}
    carried = other_columns(read_table(parquet(tmp_path / "t.parquet", {**columns, "embedding": X})))
    assert list(carried) == ["text", "when"]
    assert carried["text"].dtype.kind == "U"


def test_the_rule_in_words(classifier: OpenSetClassifier) -> None:
    assert unknown_when(classifier) == f"score above {classifier.thresholds_[0]:.5g}"
    X, y = samples()
    one = OpenSetClassifier(rejector="max_logit", acceptance=0.8, per_class=True, random_state=0).fit(X, y)
    assert unknown_when(one).startswith("score above the threshold of its class, ")
    assert unknown_when(one.set_threshold(np.inf)) == "never"


GAPS = "a,b,kind\n1,2,x\n,4,y\n5,NA,x\n7,8,y\n"


def gappy(path: Path, text: str = GAPS) -> Path:
    path.write_text(text)
    return path


def test_empty_cells_are_refused_by_column_and_line(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"empty in 2 rows: 'a' in 1 row \(line 3\), 'b' in 1 row \(line 4\)\. Drop"):
        read_table(gappy(tmp_path / "t.csv"), label_column="kind")
    holes = parquet(tmp_path / "t.parquet", {"a": [1.0, None, 3.0], "b": [1, 2, None], "label": ["x", "y", "x"]})
    with pytest.raises(ValueError, match=r"'a' in 1 row \(sample 1\).*--missing median"):
        read_table(holes)
    assert read_table(holes, missing="drop").features.tolist() == [[1, 1]]
    with pytest.raises(ValueError, match="Did you mean 'median'"):
        read_table(holes, missing="mean")  # type: ignore[arg-type]


def test_rows_with_empty_cells_can_be_dropped(tmp_path: Path) -> None:
    table = read_table(gappy(tmp_path / "t.csv"), label_column="kind", missing="drop")
    assert table.features.tolist() == [[1, 2], [7, 8]]
    assert (table.labels.tolist(), table.dropped) == (["x", "y"], 2)
    np.savez(tmp_path / "t.npz", X=np.where(X == 7, np.nan, X), y=[0, 1, 2, 3], classes=np.arange(9))
    archive = read_table(tmp_path / "t.npz", missing="drop")
    assert (archive.labels.tolist(), len(archive.columns["classes"])) == ([0, 1, 3], 9)
    with pytest.raises(ValueError, match="every row has an empty cell"):
        read_table(gappy(tmp_path / "t.csv", "a,b\n1,\n,2\n"), missing="drop")


def test_empty_cells_are_filled_as_when_the_model_was_fitted(tmp_path: Path) -> None:
    table = read_table(gappy(tmp_path / "t.csv"), label_column="kind", missing="median")
    assert table.features.tolist() == [[1, 2], [5, 4], [5, 4], [7, 8]]
    assert table.spec.medians == (5.0, 4.0)
    like = TableSpec.from_dict(asdict(table.spec), 2)
    assert like == table.spec
    new = gappy(tmp_path / "new.csv", "b,a\n,100\n3,\n")
    assert read_table(new, like=like).features.tolist() == [[100, 4], [5, 3]]
    alone = gappy(tmp_path / "alone.csv", "b,a\n,100\n,200\n")
    assert read_table(alone, like=like).features.tolist() == [
        [100, 4],
        [200, 4],
    ]
    with pytest.raises(ValueError, match=r"'b' holds numbers, but 1 of its cells is not: 'two' in line 3"):
        read_table(gappy(alone, "b,a\n1,100\ntwo,200\n"), like=like)
    nothing = parquet(tmp_path / "n.parquet", {"a": [1.0, 2.0], "b": np.array([np.nan, np.nan])})
    with pytest.raises(ValueError, match="'b' is empty in every row, so it has no median"):
        read_table(nothing, missing="median")


def test_texts_among_numbers_are_named(tmp_path: Path) -> None:
    rows = [f"{i},{i}.5,t{i}" for i in range(30)]
    rows[4], rows[7] = "4,-,t", "7,n.d.,t"
    file = gappy(tmp_path / "t.csv", "\n".join(["a,b,note", *rows]))
    with pytest.raises(
        ValueError, match=r"column 'b' holds numbers, but 2 of its cells are not: '-' in line 6, 'n.d.'"
    ):
        read_table(file)
    mostly_text = gappy(tmp_path / "m.csv", "a,b\n1,x\n2,3\n3,y\n4,\n")
    assert read_table(mostly_text).left_out == ("b",)


def test_decimal_commas_with_gaps(tmp_path: Path) -> None:
    file = gappy(tmp_path / "t.csv", "a;b\n1,5;2\n;3\n2,5;4\n")
    with pytest.warns(UserWarning, match="decimal commas|separated by"):
        assert read_table(file, missing="drop").features.tolist() == [[1.5, 2], [2.5, 4]]


def test_columns_are_matched_by_name(tmp_path: Path) -> None:
    like = TableSpec(features=("a", "b", "c"))
    file = gappy(tmp_path / "t.csv", "c,d,a,b\n3,4,1,2\n")
    assert read_table(file, like=like).features.tolist() == [[1, 2, 3]]
    with pytest.raises(ValueError, match=r"lacks 2 of the 3 feature columns .*: 'b', 'c'; it has 'a', 'd', 'e'"):
        read_table(gappy(file, "a,d,e\n1,2,3\n"), like=like)
    with pytest.raises(ValueError, match="lacks 3 of the 3 feature columns"):
        read_table(gappy(file, "note\nhm\n"), like=like)
    with pytest.raises(ValueError, match="lacks 1 of the 1 feature columns"):
        read_table(gappy(file, "b\n1\n"), like=TableSpec(features=("a",)))
    np.savez(tmp_path / "t.npz", vectors=X)
    assert read_table(tmp_path / "t.npz", like=TableSpec(features=("embedding",))).features.shape == X.shape
    with pytest.raises(ValueError, match="lacks 3 of the 3"):
        read_table(tmp_path / "t.npz", like=like)
    assert read_table(tmp_path / "t.npz", like=like, embedding_column="vectors").features.shape == X.shape


@pytest.mark.parametrize("labels", [["a", " ", "b", ""], ["a", None, "b", None], [1.0, None, 2.0, None]])
def test_empty_labels_are_none_and_stop_who_needs_them(tmp_path: Path, labels: list) -> None:
    file = parquet(tmp_path / "t.parquet", {"label": labels, "embedding": X})
    assert [label is None for label in read_table(file).labels.tolist()] == [False, True, False, True]
    assert not read_table(file).labelled
    message = r"'label' of labels is empty in 2 rows \(sample 1, sample 3\)\. Label these rows, or drop them"
    with pytest.raises(ValueError, match=message):
        read_table(file, need_labels=True)


def test_missing_values_of_pandas_are_empty_labels(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"label": pandas.array(["a", pandas.NA, "b"], dtype="string"), "a": [1, 2, 3]})
    frame.to_parquet(tmp_path / "t.parquet")
    frame.to_csv(tmp_path / "t.csv", index=False)
    for suffix in ("parquet", "csv"):
        assert read_table(tmp_path / f"t.{suffix}").labels.tolist() == ["a", None, "b"]


def test_texts_that_are_nearly_copies_form_groups(tmp_path: Path) -> None:
    texts = ["Pay 10 euros!", "pay 20 Euros", "send it", "Where?", "where", "42", "43", None]
    labels = ["pay", "pay", "pay", "ask", "ask", "pay", "pay", "pay"]
    table = read_table(parquet(tmp_path / "t.parquet", {"Text": texts, "label": labels, "a": range(8)}))
    groups = groups_of(table)
    assert groups is not None
    assert groups[0] == groups[1]
    assert len(set(groups[1:])) == 7, "texts without letters, and a class in which all are alike, stay apart"
    bare = read_table(parquet(tmp_path / "b.parquet", {"note": texts, "label": labels, "a": range(8)}))
    assert groups_of(bare) is None


def test_marks_belong_to_their_letters(tmp_path: Path) -> None:
    texts = ["\u0915\u093f", "\u0915\u0940", "\u0915\u093f!", "x"]
    table = read_table(parquet(tmp_path / "t.parquet", {"text": texts, "label": ["a"] * 4, "a": range(4)}))
    assert groups_of(table).tolist() == [0, 1, 0, 2]  # type: ignore[union-attr]


def test_a_column_of_groups_is_not_a_feature(tmp_path: Path) -> None:
    file = gappy(tmp_path / "t.csv", "author,a,text,label\n7,1,hi,x\n8,2,hi,x\n7,3,ho,y\n")
    table = read_table(file, group_column="author")
    assert table.spec.features == ("a",)
    assert groups_of(table, "author").tolist() == [0, 1, 0]  # type: ignore[union-attr]
    with pytest.raises(ValueError, match="has no column 'writer', which group_column names"):
        read_table(file, group_column="writer")
    hole = read_table(gappy(file, "author,a,label\nme,1,x\n,2,y\n"), group_column="author")
    with pytest.raises(ValueError, match="'author' of groups is empty in 1 of the rows"):
        groups_of(hole, "author")


def test_what_a_classifier_promises(classifier: OpenSetClassifier) -> None:
    guarantee = guarantee_of(classifier)
    assert (guarantee.acceptance, guarantee.kind, guarantee.n) == (0.95, "cross", 120)
    assert classifier.report_.expected is not None
    assert guarantee.openauc == classifier.report_.expected.openauc
    X, y = samples()
    given = OpenSetClassifier(rejector="max_logit", threshold=1.0, calibration="split", random_state=0).fit(X, y)
    assert guarantee_of(given).acceptance is None
    assert guarantee_of(given.set_threshold(acceptance=0.9)).kind == "split"
    with pytest.warns(UserWarning, match="too few"):
        assert guarantee_of(given.set_threshold(acceptance=0.999)).acceptance is None
