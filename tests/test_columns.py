"""Columns of files: every kind of CSV people have, and which column is which."""

import pickle
import re
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import strategies as st

from openauc import openauc_score
from openauc._columns import (
    Csv,
    as_column_of_numbers,
    guess_arguments,
    means_unknown,
    read_about,
    read_columns,
    write_columns,
)
from openauc.predictions import Predictions

HEADER = "y_true,y_pred,open_score\n"


def load(tmp_path, text, **options):
    (tmp_path / "p.csv").write_bytes(text.encode())
    return Predictions.load(tmp_path / "p.csv", **options)


def refusal(tmp_path, text, **options):
    with pytest.raises(ValueError, match=r"p\.csv") as caught:
        load(tmp_path, text, **options)
    return str(caught.value)


def test_csv_with_byte_order_mark_blanks_crlf_and_empty_lines(tmp_path):
    (tmp_path / "p.csv").write_bytes(b"\xef\xbb\xbfy_true, y_pred ,open_score\r\n0, 0 ,1e3\r\n\r\n-1,1,-Inf\r\n")
    p = Predictions.load(tmp_path / "p.csv")
    assert [column.tolist() for column in p] == [[0, -1], [0, 1], [1000.0, -np.inf]]


def test_csv_labels_written_as_floats_are_integers(tmp_path):
    (tmp_path / "p.csv").write_text("y_true,y_pred,open_score\n0.0,0,1\n-1.0,2,3\n")
    p = Predictions.load(tmp_path / "p.csv")
    assert p.y_true.tolist() == [0, -1]
    assert p.y_true.dtype.kind == "i"


def test_read_columns_gives_everything(tmp_path):
    (tmp_path / "p.csv").write_text("a,b,c\n1,x,0.5\n2,3,1\n")
    columns = read_columns(tmp_path / "p.csv")
    assert {name: values.tolist() for name, values in columns.items()} == {
        "a": [1, 2], "b": ["x", "3"], "c": [0.5, 1.0]
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty; expected a header line"),
        ("\n\n", "is empty"),
        ("y_true,y_pred,open_score\n0,0,1\n0,0\n", "line 3 has 2 values but the header has 3"),
        ("y_true,y_pred,open_score\n0,0,1,5\n", "line 2 has 4 values"),
        ("y_true,y_pred,open_score\n0,0,1\n0,,1\n", "line 3: column 'y_pred' is empty"),
        ("y_true,y_pred,open_score\n0,0, \n", "line 2: column 'open_score' is empty"),
        ("y_true,y_pred,open_score\n0,0,1\n-1,0,nan\n", "open_score is NaN for sample 1"),
        ("y_true,logit_0,logit_1\n0,0,1\n-1,0,nan\n", "logit_1 is NaN for sample 1"),
    ],
)
def test_broken_csv(tmp_path, text, message):
    (tmp_path / "p.csv").write_text(text)
    with pytest.raises(ValueError, match=message):
        Predictions.load(tmp_path / "p.csv")


def test_csv_line_numbers_are_those_of_the_file(tmp_path):
    (tmp_path / "p.csv").write_text("y_true,y_pred,open_score\n\n0,0,1\n\n0,0\n")
    with pytest.raises(ValueError, match=r"line 5 .*2 "):
        Predictions.load(tmp_path / "p.csv")


@pytest.mark.parametrize("score", ["high", "0.5s"])
def test_csv_score_that_is_no_number(tmp_path, score):
    (tmp_path / "p.csv").write_text(f"y_true,y_pred,open_score\n0,0,{score}\n")
    with pytest.raises(ValueError, match=f"line 2: .*'open_score' .*'{score}'"):
        Predictions.load(tmp_path / "p.csv")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"y_true\n0\ncaf\xe9\n", r"p\.csv, line 3 is not text in UTF-8 .*save it as CSV in UTF-8.*'CSV UTF-8'\."),
        (b"y_true\n" + b'"' + b"x" * 200_000 + b'"\n', r"p\.csv is not a readable CSV file \(field larger"),
    ],
)
def test_unreadable_csv(tmp_path, content, said):
    (tmp_path / "p.csv").write_bytes(content)
    with pytest.raises(ValueError, match=said):
        Predictions.load(tmp_path / "p.csv")


@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_other_separators_are_read_and_said(tmp_path, delimiter):
    with pytest.warns(UserWarning, match=re.escape(repr(delimiter))):
        p = load(tmp_path, f"{HEADER}0,0,0.5\n-1,1,2.5\n".replace(",", delimiter))
    assert [column.tolist() for column in p] == [[0, -1], [0, 1], [0.5, 2.5]]


def test_decimal_commas_are_read_and_said(tmp_path):
    text = "y_true;y_pred;open_score\n0;0;0,5\n-1;1;-2,5e1\n1;1;3\n"
    with (
        pytest.warns(UserWarning, match="';'"),
        pytest.warns(UserWarning, match=r"'open_score' .*decimal commas"),
    ):
        p = load(tmp_path, text)
    assert p.open_score.tolist() == [0.5, -25.0, 3.0]


@pytest.mark.filterwarnings("ignore:.*read as separated")
@pytest.mark.parametrize("score", ["1.234,5", "1,234,567", "0,5s"])
def test_other_numbers_with_commas_are_refused_with_their_line(tmp_path, score):
    assert f"line 2: column 'open_score' holds '{score}'" in refusal(
        tmp_path, f"y_true;y_pred;open_score\n0;0;{score}\n"
    )


def test_names_with_commas_in_a_file_with_semicolons(tmp_path):
    with pytest.warns(UserWarning, match="separated"):
        p = load(tmp_path, "y_true;y_pred;open_score\na,b;a,b;1\n-1;a,b;2\n")
    assert p.y_true.tolist() == ["a,b", "-1"]


def test_decimal_commas_between_commas_are_refused_with_advice(tmp_path):
    assert "line 2 has 4 values but the header has 3. A value with a comma needs quotes" in refusal(
        tmp_path, f"{HEADER}0,0,0,5\n"
    )
    assert "line 2: column 'open_score' holds '0,5', which is not a number; write decimals with a point" in refusal(
        tmp_path, f'{HEADER}0,0,"0,5"\n'
    )


def test_a_file_with_commas_says_nothing(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load(tmp_path, f"{HEADER}a;b,a;b,1\n")


def test_pickled_arrays_are_never_advised(tmp_path):
    for name, columns in (("a.npz", {"y_true": np.array([{}, None])}), ("b.npz", None)):
        file = tmp_path / name
        file.write_bytes(pickle.dumps({})) if columns is None else np.savez(file, **columns)
        for read in (read_columns, read_about)[: 1 + (columns is None)]:  # the second reads no column
            with pytest.raises(ValueError, match=name) as caught:
                read(file)
            assert "unsafely" not in str(caught.value)
            assert "allow_pickle" not in str(caught.value)


def test_two_columns_of_one_name_are_refused(tmp_path):
    assert "has two columns named 'y_pred'; rename or drop one" in refusal(
        tmp_path, "y_true,y_pred,open_score, y_pred\n0,0,1,1\n"
    )
    table = pa.table([[0], [0], [1.0], [1]], names=["y_true", "y_pred", "open_score", "y_pred"])
    pq.write_table(table, tmp_path / "p.parquet")
    with pytest.raises(ValueError, match=r"p\.parquet has two columns named 'y_pred'"):
        Predictions.load(tmp_path / "p.parquet")


def test_a_header_alone_holds_no_sample(tmp_path):
    assert [len(column) for column in load(tmp_path, HEADER)] == [0, 0, 0]
    with pytest.raises(ValueError, match="y_true is empty"):
        openauc_score(*load(tmp_path, HEADER))


def test_a_column_nobody_needs_may_be_empty(tmp_path):
    p = load(tmp_path, "note,y_true,y_pred,open_score\n,0,0,1\nfine,-1,0,2\n")
    assert p.y_true.tolist() == [0, -1]


@pytest.mark.parametrize("blank", ["", "\n"])
def test_text_among_scores_is_shown_with_its_line(tmp_path, blank):
    message = refusal(tmp_path, f"{HEADER}0,0,1\n{blank}0,0,2\n-1,0,n/a\n")
    assert f"line {4 + len(blank)}: column 'open_score' holds 'n/a', which is not a number." in message


def test_text_among_scores_of_other_formats_is_shown_with_its_sample(tmp_path):
    pq.write_table(pa.table({"y_true": [0, -1], "y_pred": [0, 0], "open_score": ["1", "x"]}), tmp_path / "p.parquet")
    with pytest.raises(ValueError, match=r"sample 1: .*'open_score' .*'x'"):
        Predictions.load(tmp_path / "p.parquet")
    np.savez(tmp_path / "p.npz", y_true=[0, -1], y_pred=[0, 0], open_score=["high", "1"])
    with pytest.raises(ValueError, match=r"sample 0: .*'open_score' .*'high'"):
        Predictions.load(tmp_path / "p.npz")


def test_binary_labels_of_parquet_are_text(tmp_path):
    labels = {"y_true": [b"cat", b"-1"], "y_pred": [b"cat", b"dog"]}
    pq.write_table(pa.table({**labels, "open_score": [0.0, 1.0]}), tmp_path / "p.parquet")
    assert Predictions.load(tmp_path / "p.parquet").y_pred.tolist() == ["cat", "dog"]
    labels["y_true"][1] = b"\xff"
    pq.write_table(pa.table({**labels, "open_score": [0.0, 1.0]}), tmp_path / "p.parquet")
    with pytest.raises(ValueError, match=r"y_true .*\\xff.*UTF-8"):
        Predictions.load(tmp_path / "p.parquet")


CELLS = st.sampled_from(
    [
        *("0", "-1", "7", "12", "007", "-07", "-0", "+5", "9223372036854775808", "٣"),
        *("1e5", "1e-05", "0.5", "00.5", "1.0", "1e999", "nan", "inf", "-Infinity"),
        *("x", "0x1", "1_0", " 2", "3 ", " 007", "1 2", "\t1", "5\u00a0", '"4"', '"a,b"', '"0,5"'),
    ]
)


@pytest.mark.parametrize(
    "number", ["0.1", "-2.2250738585072011e-308", "5e-324", "1.7976931348623157e308", "123456789.1"]
)
def test_numbers_are_read_to_the_last_bit(tmp_path, number):
    (tmp_path / "p.csv").write_text(f"a\n{number}\n")
    columns = Csv(tmp_path / "p.csv")
    assert columns["a"].tolist() == [float(number)]


def test_a_csv_is_a_mapping(tmp_path):
    (tmp_path / "p.csv").write_text("a,b\n1,\n")
    columns = read_columns(tmp_path / "p.csv")
    assert list(columns) == ["a", "b"]
    assert len(columns) == 2
    assert "b" in columns
    assert "c" not in columns
    with pytest.raises(KeyError):
        columns["c"]
    with pytest.raises(ValueError, match=r"line 2: .*'b'"):
        columns["b"]


GIVEN = {"label_column": "y_true", "pred_column": "y_pred", "score_column": "open_score"}


def guess(columns, absent=None, **given):
    names = GIVEN | given
    arrays = {name: np.array(values) for name, values in columns.items()}
    return guess_arguments(arrays, names, absent or [role for role, name in names.items() if name not in arrays])


NAMES = {"true": ["a", "b", "other"], "pred": ["a", "b", "a"]}


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        # the export of pandas that took four tries
        (
            {"label": ["0", "1", "other"], "prediction": [0, 1, 1], "confidence": [0.9, 0.8, 0.3]},
            ("label", "prediction", "confidence", True, "other"),
        ),
        ({"target": [0, 1, -1], "guess": [0, 1, 1], "score": [0.5, 0.1, 3]}, ("target", "guess", "score", None, None)),
        # a predicted label is no true label, a probability of unknown no confidence
        (
            {"predicted_label": [0, 1, 1], "true_label": [0, 1, 9], "prob_unknown": [0.1, 0.2, 0.3]},
            ("true_label", "predicted_label", "prob_unknown", None, "9"),
        ),
        # by content alone: one label more than the other column, one column of fractions, an index left out
        (
            {"": range(50), "u": [0, 1] * 25, "v": [0, 1, 2, 1, 0] * 10, "w": np.linspace(0, 1, 50)},
            ("v", "u", "w", None, "2"),
        ),
        # numbers and names of the same classes: the pair that shares its labels
        (
            {"class": [0, 1, 2], "class_name": NAMES["true"], "pred_name": NAMES["pred"], "max_logit": [1.5, 2.0, 0.1]},
            ("class_name", "pred_name", "max_logit", True, "other"),
        ),
        # a class that is never predicted beside the unknown word
        (
            {"label": ["a", "b", "c", "Unknown"], "pred": ["a", "b", "a", "a"], "energy": [1, 2, 3, 4]},
            ("label", "pred", "energy", None, "Unknown"),
        ),
        # a distance between cosines is no confidence
        ({**NAMES, "cosine_distance": [0.1, 0.2, 0.9]}, ("true", "pred", "cosine_distance", None, "other")),
        # one class's probability is no score
        (
            {"label": ["a", "b", "unk"], "prob_a": [0.9, 0.2, 0.5], "prob_b": [0.1, 0.8, 0.5]},
            ("label", None, None, None, "unk", "prob_*"),
        ),
        (
            {"label": NAMES["true"], "pred": NAMES["pred"], "a_p": [0.9, 0.2, 0.5], "b_p": [0.1, 0.8, 0.5]},
            ("label", "pred", None, None, "other", "*_p"),
        ),
        (
            {"y": [0, 1, -1], "p0": [0.9, 0.2, 0.5], "p1": [0.1, 0.8, 0.5], "x": [1.5, 2.5, 0.5]},
            ("y", None, None, None, None, "p*"),
        ),
        # beside them, a score and predicted classes of its own
        (
            {**NAMES, "a_p": [0.9, 0.2, 0.5], "b_p": [0.1, 0.8, 0.5], "msp": [0.9, 0.8, 0.5]},
            ("true", "pred", "msp", True, "other"),
        ),
        # numbered columns that do not sum to 1 are features
        ({"y": [0, 1, -1], "f0": [0.9, 0.2, 0.5], "f1": [0.7, 0.8, 0.5]}, ("y", None, None, None, None)),
        # the index of pandas is neither a label nor a score
        (
            {"Unnamed: 0": [0, 1, 2], "index": [0.5, 1.5, 2.5], "u": [0, 1, 1], "v": [0, 1, 2], "w": [0.5, 1, 2]},
            ("v", "u", "w", None, "2"),
        ),
        # nothing to go by
        ({"a": [0.5, 0.1], "b": [1.5, 2.5]}, (None, None, None, None, None)),
        ({"u": [0, 1], "v": [1, 0]}, (None, None, None, None, None)),
        # names alone, where the labels cannot be told apart by content
        ({"label": ["a", "b"], "pred": [0, 1], "msp": [0.5, 0.5]}, ("label", "pred", "msp", True, None)),
    ],
)
def test_which_column_is_which(columns, expected):
    keys = ("label_column", "pred_column", "score_column", "lower_is_unknown", "unknown_label", "probability_columns")
    assert guess(columns) == {key: value for key, value in zip(keys, expected, strict=False) if value is not None}


def test_a_column_that_was_named_is_not_guessed_again():
    columns = {"mine": [0, 1, -1], "prediction": [0, 1, 1], "confidence": [0.9, 0.8, 0.3]}
    assert guess(columns, label_column="mine", score_column="confidence") == {
        "pred_column": "prediction",
        "lower_is_unknown": True,
    }
    assert guess({**columns, "mine": [0.5, 1, 2]}, label_column="mine")["pred_column"] == "prediction"


def test_matrices_and_holes_are_no_candidates(tmp_path):
    assert guess({"label": [[0, 1], [1, 0]], "true": [0, -1], "pred": [0, 0]})["label_column"] == "true"
    (tmp_path / "p.csv").write_text("label,prediction,truth,conf\n,a,a,0.5\nx,a,unk,0.1\n")
    found = guess_arguments(read_columns(tmp_path / "p.csv"), GIVEN, list(GIVEN))
    assert found["label_column"] == "truth"
    assert found["unknown_label"] == "unk"


@pytest.mark.parametrize(
    "word", ["unknown", "Other", "oos", "OOD", "out-of-scope", "out of scope", "misc", "None", "unk"]
)
def test_usual_words_for_unknown(word):
    assert means_unknown(word)
    assert not means_unknown(f"{word} card")


@pytest.mark.parametrize("suffix", ["npz", "parquet"])
def test_what_a_file_says_beside_its_columns(tmp_path, suffix):
    file = tmp_path / f"p.{suffix}"
    write_columns(file, {"a": [1, 2], "b": ["x", "y"]}, about={"promise": '{"é": 1}'})
    assert read_about(file) == {"promise": '{"é": 1}'}
    assert list(read_columns(file)) == ["a", "b"]
    write_columns(file, {"a": [1, 2]})
    assert read_about(file) == {}


def test_a_csv_has_no_place_for_more(tmp_path):
    write_columns(tmp_path / "p.csv", {"a": [1]}, about={"promise": "x"})
    assert (tmp_path / "p.csv").read_text() == "a\n1\n"
    assert read_about(tmp_path / "p.csv") == {}


@pytest.mark.parametrize(
    ("cells", "numbers", "texts"),
    [
        ([*"123456789", "-"], 9, [9]),
        (["1", "n/a", "NaN", " ", "null"], 1, []),
        ([None, 2.5, 3], 2, []),
        (np.array([1, 2]), 2, []),
    ],
)
def test_columns_of_numbers(cells, numbers, texts):
    values = cells if isinstance(cells, np.ndarray) else np.array(cells, dtype=object)
    found = as_column_of_numbers(values)
    assert found is not None
    assert (np.isfinite(found[0]).sum(), found[1]) == (numbers, texts)


@pytest.mark.parametrize("cells", [["1", "x"], ["007", "008", "009"], ["", " "], [[1, 2], [3, 4]]])
def test_columns_of_something_else(cells):
    assert as_column_of_numbers(np.array(cells)) is None
    assert as_column_of_numbers(np.array(["2020-01-01", "NaT"], "M8[ns]")) is None


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".npz"])
def test_names_of_files_need_not_be_utf8(tmp_path, suffix):
    path = tmp_path / f"a\udcff{suffix}"
    write_columns(path, {"file": ["x"], "n": [1]}, about={"key": "value"})
    assert read_columns(path)["n"].tolist() == [1]
    assert read_about(path) == ({} if suffix == ".csv" else {"key": "value"})


def test_a_folder_that_is_not_there_is_said(tmp_path):
    with pytest.raises(ValueError, match=r"/log' .*no such folder; .*\.npz, \.csv, \.parquet"):
        read_columns(tmp_path / "log")
    with pytest.raises(ValueError, match=r"' is a folder; .*\.npz, \.csv, \.parquet"):
        read_columns(tmp_path)


def test_texts_that_spreadsheets_run_are_quoted_and_read_back(tmp_path) -> None:
    names = ["=1+1", "+x", "-x", "@x", "\tx", "'=x", "-1.5", "plain"]
    write_columns(tmp_path / "a.csv", {"=name": names, "n": range(8)})
    lines = (tmp_path / "a.csv").read_text().splitlines()
    assert [lines[i] for i in (0, 1, 6, 7)] == ["'=name,n", "'=1+1,0", "''=x,5", "-1.5,6"]
    assert read_columns(tmp_path / "a.csv")["=name"].tolist() == [name.strip() for name in names]
    write_columns(tmp_path / "a.csv", {"=name": names}, keep_formulas=True)
    assert "'=1" not in (tmp_path / "a.csv").read_text()
