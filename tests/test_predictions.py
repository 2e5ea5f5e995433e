"""Predictions: exact round trips through every format, and one clear sentence for every broken file."""

import os
import pickle
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from openauc import openauc_score
from openauc.predictions import FORMATS, MissingColumns, Predictions, read_columns

TRIPLE = Predictions(np.array([0, 1, -1]), np.array([0, 1, 1]), np.array([0.25, -0.5, np.inf]))


def assert_same(a: Predictions, b: Predictions) -> None:
    for name, one, two in zip(Predictions._fields, a, b, strict=True):
        assert one.tolist() == two.tolist(), name


def test_is_a_plain_triple():
    y_true, y_pred, open_score = TRIPLE
    assert openauc_score(*TRIPLE) == openauc_score(y_true, y_pred, open_score) == 1.0


@pytest.mark.parametrize(
    "triple",
    [
        ([0, -1], [0, 1], [0.5, 1.0]),
        (np.array([0, -1], np.int8), pd.Series([0, 1]), np.array([0.5, 1.0], np.float16)),
        (torch.tensor([0, -1]), torch.tensor([0, 1]), torch.tensor([0.5, 1.0], requires_grad=True)),
        (torch.tensor([0, -1]), torch.tensor([0, 1]), torch.tensor([0.5, 1.0]).bfloat16()),
    ],
)
def test_of_reads_lists_numpy_pandas_and_torch(triple):
    assert_same(Predictions.of(*triple), Predictions(*map(np.array, ([0, -1], [0, 1], [0.5, 1.0]))))


@pytest.mark.parametrize(
    ("triple", "error", "message"),
    [
        (([0, 1], [0], [0.0, 1.0]), ValueError, "y_pred .*1 .*y_true .*2"),
        (([0, 1], [0, 1], [0.0]), ValueError, "open_score .*1 "),
        (([0, 1], [0, 1], [0.0, np.nan]), ValueError, "open_score .*NaN.* 1"),
        (([0, 1], ["a", "b"], [0.0, 1.0]), TypeError, "y_true .*integers.*'a'"),
        (([0.5, 1], [0, 1], [0.0, 1.0]), ValueError, r"y_true .*0\.5"),
    ],
)
def test_of_refuses(triple, error, message):
    with pytest.raises(error, match=message):
        Predictions.of(*triple)


def test_concat_keeps_the_order():
    more = Predictions.of([2], [2], [7.0])
    assert_same(
        Predictions.concat(iter([TRIPLE, more])),
        Predictions.of([0, 1, -1, 2], [0, 1, 1, 2], [0.25, -0.5, np.inf, 7.0]),
    )


def test_concat_of_names_of_different_length():
    parts = [Predictions.of(["a"], ["bb"], [0.0]), Predictions.of(["-1"], ["a longer name"], [1.0])]
    assert Predictions.concat(parts).y_pred.tolist() == ["bb", "a longer name"]


def test_concat_of_nothing_is_refused():
    with pytest.raises(ValueError, match="at least one Predictions"):
        Predictions.concat([])


LOGITS = [[5.0, 1.0], [0.0, 4.0], [1.0, 1.5]]


@pytest.mark.parametrize(
    "logits",
    [
        LOGITS,
        np.array(LOGITS, np.float16),
        np.array(LOGITS, np.float32),
        torch.tensor(LOGITS),
        pd.DataFrame(LOGITS),
    ],
)
def test_from_logits_is_arg_max_and_minus_max(logits):
    assert_same(Predictions.from_logits([0, 1, -1], logits), Predictions.of([0, 1, -1], [0, 1, 1], [-5, -4, -1.5]))


def test_from_logits_accepts_bfloat16_and_gradients():
    logits = torch.tensor(LOGITS, requires_grad=True).bfloat16()
    assert Predictions.from_logits([0, 1, -1], logits).open_score.tolist() == [-5, -4, -1.5]


def test_from_logits_does_not_round_double_precision_tensors():
    logits = torch.tensor([[1.0, 1.0 + 1e-12]], dtype=torch.float64)
    from_tensor = Predictions.from_logits([0], logits)
    assert_same(from_tensor, Predictions.from_logits([0], logits.numpy()))
    assert from_tensor.y_pred.tolist() == [1]


def test_from_logits_with_class_names():
    p = Predictions.from_logits(["cat", "-1"], [[1, 2, 0], [3, 2, 1]], classes=["dog", "cat", "owl"])
    assert p.y_pred.tolist() == ["cat", "dog"]
    assert p.open_score.tolist() == [-2, -3]


def test_from_logits_of_infinite_logits():
    p = Predictions.from_logits([0, 1], [[-np.inf, -np.inf], [np.inf, 0.0]])
    assert p.open_score.tolist() == [np.inf, -np.inf]


@pytest.mark.parametrize(
    ("logits", "classes", "message"),
    [
        ([1.0, 2.0], None, r"logits .*\(2,\).*\(samples, classes\)"),
        (np.zeros((2, 0)), None, r"\(2, 0\)"),
        (np.zeros((2, 3)), ["a", "b"], "3 .*2 "),
        ([[0.0, 1.0], [np.nan, 1.0]], None, "logit .*NaN.* 1"),
        (np.zeros((3, 2)), None, "y_pred .*3 .*y_true .*2"),
        ([["1", "2"]], None, "logits .*<U1.*'1'"),
        (np.array([["low", 2]], dtype=object), None, "logits .*'low'"),
    ],
)
def test_from_logits_refuses(logits, classes, message):
    with pytest.raises((ValueError, TypeError), match=message):
        Predictions.from_logits([0, 1], logits, classes=classes)


PROBABILITIES = [[0.75, 0.25], [0.0, 1.0], [0.5, 0.5]]


@pytest.mark.parametrize("make", [list, np.array, torch.tensor, pd.DataFrame, lambda rows: np.array(rows, np.float16)])
def test_from_probabilities_is_arg_max_and_one_minus_max(make):
    found = Predictions.from_probabilities(["b", "a", "-1"], make(PROBABILITIES), classes=["b", "a"])
    assert_same(found, Predictions.of(["b", "a", "-1"], ["b", "a", "b"], [0.25, 0.0, 0.5]))


def test_probabilities_in_single_precision_are_not_tied_by_their_complement():
    small = np.float32(0.25) + np.array([0, 2**-25], np.float32)  # 1 - x has 24 digits in float32, too few for both
    matrix = np.concatenate([small[:, None], np.full((2, 4), 0.1875, np.float32)], axis=1)
    score = Predictions.from_probabilities([0, -1], matrix).open_score
    assert score[0] > score[1]


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        ([[0.5, 0.5], [-0.5, 1.5]], "but sample 1 has -0.5"),
        ([[0.5, 0.5], [0.5, 1.5]], "but sample 1 has 1.5"),
        ([[0.5, 0.5], [0.5, 0.25]], "but those of sample 1 sum to 0.75"),
        ([[50, 50], [0, 100]], "but sample 0 has 50"),
        ([[0.5, 0.5], [np.nan, 0.5]], "probability is NaN for sample 1"),
        ([0.5, 0.5], r"probabilities has shape \(2,\)"),
        ([["low", 0.5]], "probabilities must be real numbers"),
    ],
)
def test_from_probabilities_refuses(matrix, message):
    with pytest.raises((ValueError, TypeError), match=message):
        Predictions.from_probabilities([0, 1], matrix)


def test_rounded_probabilities_are_probabilities():
    rng = np.random.default_rng(0)
    matrix = rng.dirichlet(np.ones(10), 200)
    found = Predictions.from_probabilities(np.zeros(200, int), matrix.round(2))
    assert found.y_pred.tolist() == matrix.round(2).argmax(axis=1).tolist()


# A name starts and ends with a letter: CSV has no types, so a column of nothing but numbers reads as numbers, and
# blanks at the ends of a cell are not part of it.
_text = st.text(st.characters(exclude_categories=["Cs", "Cc"]) | st.sampled_from(",\"';\n\t|#"), max_size=6)
names = _text.map(lambda text: f"x{text}x")


@st.composite
def saved_triples(draw):
    n = draw(st.integers(0, 8))
    if draw(st.booleans()):
        known = names
        labels = st.just("-1") | known
    else:
        known = st.integers(0, 2**40)
        labels = st.just(-1) | known
    width = draw(st.sampled_from([32, 64]))
    score = st.floats(width=width, allow_nan=False)
    y_true = draw(st.lists(labels, min_size=n, max_size=n))
    y_pred = draw(st.lists(known, min_size=n, max_size=n))
    if n and isinstance(y_pred[0], str) and set(y_true) == {"-1"}:
        y_true[0] = "xx"
    values = np.array(draw(st.lists(score, min_size=n, max_size=n)), dtype=f"f{width // 8}")
    kind = np.str_ if n and isinstance(y_pred[0], str) else np.int64
    return Predictions(np.array(y_true, dtype=kind), np.array(y_pred, dtype=kind), values)


@pytest.mark.parametrize("suffix", FORMATS)
@given(triple=saved_triples())
@settings(max_examples=60)
def test_round_trip_is_exact(tmp_path, suffix, triple):
    path = tmp_path / f"p{suffix}"
    triple.save(path)
    again = Predictions.load(path)
    assert_same(again, triple)
    if suffix != ".csv":
        assert again.open_score.dtype == triple.open_score.dtype
    # -0.0 == 0.0, so the sign is compared apart.
    assert np.signbit(again.open_score).tolist() == np.signbit(triple.open_score).tolist()


@pytest.mark.parametrize("suffix", [".NPZ", ".Csv", ".PARQUET"])
def test_suffix_in_capitals(tmp_path, suffix):
    TRIPLE.save(str(tmp_path / f"p{suffix}"))
    assert_same(Predictions.load(str(tmp_path / f"p{suffix}")), TRIPLE)


def test_csv_is_what_a_person_would_write(tmp_path):
    Predictions.of(["a,b", "-1"], ["a,b", 'say "c"'], np.array([0.1, 2.0], np.float32)).save(tmp_path / "p.csv")
    assert (tmp_path / "p.csv").read_text() == (
        'y_true,y_pred,open_score\n"a,b","a,b",0.10000000149011612\n-1,"say ""c""",2.0\n'
    )


def test_nothing_invalid_is_saved(tmp_path):
    with pytest.raises(ValueError, match=r"open_score .*NaN.* 0"):
        Predictions(np.array([0]), np.array([0]), np.array([np.nan])).save(tmp_path / "p.npz")
    assert os.listdir(tmp_path) == []


def write(path, columns):
    if path.suffix == ".npz":
        np.savez(path, **columns)
    elif path.suffix == ".csv":
        pd.DataFrame(columns).to_csv(path, index=False)
    else:
        pq.write_table(pa.table({name: pa.array(values) for name, values in columns.items()}), path)


@pytest.mark.parametrize("suffix", FORMATS)
def test_columns_by_another_name_and_a_confidence(tmp_path, suffix):
    path = tmp_path / f"p{suffix}"
    write(path, {"label": [0, -1], "guess": [0, 1], "confidence": [0.75, 0.5], "more": [1, 2]})
    found = Predictions.load(
        path, label_column="label", pred_column="guess", score_column="confidence", lower_is_unknown=True
    )
    assert_same(found, Predictions.of([0, -1], [0, 1], [-0.75, -0.5]))


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize(("pattern", "name"), [("p_*", "p_{}"), ("*.prob", "{}.prob"), ("*", "{}")])
def test_probabilities_in_columns_that_fit_a_pattern(tmp_path, suffix, pattern, name):
    path = tmp_path / f"p{suffix}"
    probabilities = {name.format("dog"): [0.25, 0.625], name.format("cat"): [0.75, 0.375]}
    write(path, {"index": [0.5, 1.5], "y_true": ["cat", "-1"], **probabilities, "n": [7, 8]})
    assert_same(
        Predictions.load(path, probability_columns=pattern),
        Predictions.of(["cat", "-1"], ["cat", "dog"], [0.25, 0.375]),
    )
    assert_same(
        Predictions.load(path, logit_columns=pattern),
        Predictions.of(["cat", "-1"], ["cat", "dog"], [-0.75, -0.625]),
    )


def test_a_score_among_the_columns_by_class_is_no_class(tmp_path):
    columns = {"y_true": ["cat", "-1"], "p_cat": [0.5, 0.125], "p_dog": [0.25, 0.25], "p_none": [0.25, 0.625]}
    write(tmp_path / "p.csv", columns)
    found = Predictions.load(tmp_path / "p.csv", probability_columns="p_*", score_column="p_none")
    assert_same(found, Predictions.of(["cat", "-1"], ["cat", "dog"], [0.25, 0.625]))


def test_a_column_asked_for_by_name_is_not_replaced(tmp_path):
    write(tmp_path / "p.csv", {"y_true": ["cat", "-1"], "logit_cat": [0.5, 0.125], "logit_dog": [0.25, 0.25]})
    with pytest.raises(MissingColumns, match="no column 'confidense'"):
        Predictions.load(tmp_path / "p.csv", score_column="confidense")


@pytest.mark.parametrize("suffix", FORMATS)
def test_logits_in_named_columns(tmp_path, suffix):
    path = tmp_path / f"p{suffix}"
    write(path, {"y_true": ["cat", "-1"], "logit_dog": [1.0, 3.0], "logit_cat": [2.5, 2.0]})
    assert_same(Predictions.load(path), Predictions.of(["cat", "-1"], ["cat", "dog"], [-2.5, -3.0]))


@pytest.mark.parametrize("suffix", FORMATS)
def test_logits_in_numbered_columns(tmp_path, suffix):
    path = tmp_path / f"p{suffix}"
    write(path, {"y_true": [7, -1], "logit_3": [1.0, 3.0], "logit_7": [2.5, 2.0]})
    assert_same(Predictions.load(path), Predictions.of([7, -1], [7, 3], [-2.5, -3.0]))


@pytest.mark.parametrize(
    ("classes", "y_true", "y_pred"),
    [
        (None, [1, -1], [1, 0]),
        (np.array([4, 6]), [6, -1], [6, 4]),
        (np.array(["a", "b"]), ["b", "-1"], ["b", "a"]),
    ],
)
def test_npz_logits(tmp_path, classes, y_true, y_pred):
    for name in ("scores", "logit_matrix"):
        columns = {"y_true": np.array(y_true), name: np.array([[0.0, 1.0], [3.0, 2.0]], np.float32)}
        np.savez(tmp_path / "p.npz", **columns, **({} if classes is None else {"classes": classes}))
        found = Predictions.load(tmp_path / "p.npz", logit_columns=name)
        assert_same(found, Predictions.of(y_true, y_pred, [-1.0, -3.0]))


@pytest.mark.parametrize("type_", [pa.list_(pa.float32()), pa.list_(pa.float64()), pa.list_(pa.float32(), 2)])
def test_parquet_logits_in_a_list_column(tmp_path, type_):
    logits = pa.array([[0.0, 1.0], [3.0, 2.0]], type=type_)
    pq.write_table(pa.table({"y_true": [1, -1], "logits": logits}), tmp_path / "p.parquet")
    assert_same(Predictions.load(tmp_path / "p.parquet"), Predictions.of([1, -1], [1, 0], [-1.0, -3.0]))


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        ({}, ([1, 0], [-1.0, -3.0])),
        ({"y_pred": [0, 0]}, ([0, 0], [-1.0, -3.0])),
        ({"open_score": [0.5, 0.25]}, ([1, 0], [0.5, 0.25])),
        ({"y_pred": [0, 0], "open_score": [0.5, 0.25]}, ([0, 0], [0.5, 0.25])),
    ],
)
def test_what_the_file_states_comes_before_what_its_logits_say(tmp_path, extra, expected):
    np.savez(tmp_path / "p.npz", y_true=[1, -1], logits=[[0.0, 1.0], [3.0, 2.0]], **extra)
    assert_same(Predictions.load(tmp_path / "p.npz"), Predictions.of([1, -1], *expected))


def test_a_stated_confidence_beside_logits_is_flipped(tmp_path):
    np.savez(tmp_path / "p.npz", y_true=[1, -1], logits=[[0.0, 1.0], [3.0, 2.0]], open_score=[0.5, 0.25])
    assert Predictions.load(tmp_path / "p.npz", lower_is_unknown=True).open_score.tolist() == [-0.5, -0.25]


def test_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"p\.npz"):
        Predictions.load(tmp_path / "p.npz")


@pytest.mark.parametrize("name", ["p.pkl", "p", "p.npz.bak"])
def test_wrong_suffix(tmp_path, name):
    (tmp_path / name).write_text("")
    with pytest.raises(ValueError, match=r"\.npz, \.csv, \.parquet"):
        Predictions.load(tmp_path / name)
    with pytest.raises(ValueError, match=r"\.npz, \.csv, \.parquet"):
        TRIPLE.save(tmp_path / name)
    assert (tmp_path / name).read_text() == ""


@pytest.mark.parametrize("suffix", FORMATS)
def test_missing_folder(tmp_path, suffix):
    with pytest.raises(FileNotFoundError, match=r"nowhere .*create it"):
        TRIPLE.save(tmp_path / "nowhere" / f"p{suffix}")


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize(
    ("missing", "left"),
    [
        ("y_true", "'y_pred', 'open_score'"),
        ("y_pred", "'y_true', 'open_score'"),
        ("open_score", "'y_true', 'y_pred'"),
    ],
)
def test_missing_column_is_named_beside_those_found(tmp_path, suffix, missing, left):
    path = tmp_path / f"p{suffix}"
    columns = {"y_true": [0, -1], "y_pred": [0, 0], "open_score": [0.5, 1.0]}
    del columns[missing]
    write(path, columns)
    with pytest.raises(MissingColumns, match=f"'{missing}'; .*{left}.* label_column"):
        Predictions.load(path)


def test_columns_by_other_names_end_in_the_arguments_to_pass(tmp_path):
    write(tmp_path / "p.csv", {"label": ["0", "1", "other"], "prediction": [0, 1, 1], "confidence": [0.9, 0.8, 0.3]})
    with pytest.raises(MissingColumns, match="'label', 'prediction', 'confidence'") as caught:
        Predictions.load(tmp_path / "p.csv")
    assert str(caught.value).endswith(
        "Likely: label_column='label', pred_column='prediction', score_column='confidence', lower_is_unknown=True, "
        "and unknown_label='other' where the samples are evaluated."
    )


def test_a_long_list_of_columns_is_cut(tmp_path):
    np.savez(tmp_path / "p.npz", **{f"c{i}": [0.5] for i in range(30)})
    with pytest.raises(MissingColumns, match=r"'c19', 10 more.*y_true"):
        Predictions.load(tmp_path / "p.npz")


def test_labels_beside_logits_are_guessed_alone(tmp_path):
    np.savez(tmp_path / "p.npz", target=[1, -1], logits=[[0.0, 1.0], [3.0, 2.0]])
    with pytest.raises(MissingColumns, match=r"'y_true'; .* label_column='target'\.$"):
        Predictions.load(tmp_path / "p.npz")


def test_classes_by_number_with_a_word_for_unknown(tmp_path):
    (tmp_path / "p.csv").write_text("y_true,y_pred,open_score\n0,0,0.1\n2,1,0.2\nother,2,0.9\n")
    p = Predictions.load(tmp_path / "p.csv")
    assert p.y_true.tolist() == ["0", "2", "other"]
    assert p.y_pred.tolist() == ["0", "1", "2"]
    assert openauc_score(*p, unknown_label="other") == 0.5
    assert openauc_score(["0", "2", "other"], [0, 1, 2], p.open_score, unknown_label="other") == 0.5


def test_file_without_any_column(tmp_path):
    np.savez(tmp_path / "p.npz")
    with pytest.raises(ValueError, match=r"'y_true', 'y_pred', 'open_score'.* none"):
        Predictions.load(tmp_path / "p.npz")


def test_string_logits_of_a_file(tmp_path):
    np.savez(tmp_path / "p.npz", y_true=[0, -1], logits=[["1", "2"], ["3", "4"]])
    with pytest.raises(TypeError, match=r"logits .*'1'"):
        Predictions.load(tmp_path / "p.npz")
    write(tmp_path / "p.parquet", {"y_true": [0, -1], "logits": [["1", "2"], ["3", "high"]]})
    with pytest.raises(TypeError, match=r"logits .*'high'"):
        Predictions.load(tmp_path / "p.parquet")
    (tmp_path / "p.csv").write_text("y_true,logit_0,logit_1\n0,0,1\n-1,high,2\n")
    with pytest.raises(ValueError, match=r"line 3: .*'logit_0' .*'high'"):
        Predictions.load(tmp_path / "p.csv")


def test_lengths_that_differ(tmp_path):
    np.savez(tmp_path / "p.npz", y_true=[0, 1], y_pred=[0, 1], open_score=[1.0])
    with pytest.raises(ValueError, match=r"open_score .*1 .*y_true .*2"):
        Predictions.load(tmp_path / "p.npz")


@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
@pytest.mark.parametrize("content", [b"", b"not such a file", b"PK\x03\x04", b"PAR1"])
def test_garbage(tmp_path, suffix, content):
    (tmp_path / f"p{suffix}").write_bytes(content)
    with pytest.raises(ValueError, match=f"p{suffix}"):
        Predictions.load(tmp_path / f"p{suffix}")


def test_npy_named_npz(tmp_path):
    with open(tmp_path / "p.npz", "wb") as file:
        np.save(file, np.arange(3))
    with pytest.raises(ValueError, match=r"p\.npz .*numpy\.savez"):
        Predictions.load(tmp_path / "p.npz")


@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
def test_one_damaged_byte_is_never_a_traceback(tmp_path, suffix):
    """Whatever byte flips, the file loads or is refused with a ValueError."""
    n = 40
    rng = np.random.default_rng(0)
    Predictions.of(rng.integers(-1, 3, n), rng.integers(0, 3, n), rng.normal(size=n)).save(tmp_path / f"p{suffix}")
    content = (tmp_path / f"p{suffix}").read_bytes()
    damaged, refused = tmp_path / f"damaged{suffix}", 0
    for position in range(0, len(content), 3):
        flipped = bytes([content[position] ^ 0xFF])
        damaged.write_bytes(content[:position] + flipped + content[position + 1 :])
        try:
            Predictions.load(damaged)
        except ValueError:
            refused += 1
    assert refused > len(content) / 10


@pytest.mark.parametrize("keep", [0.1, 0.5, 0.9, 0.99])
@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
def test_truncated_file(tmp_path, suffix, keep):
    TRIPLE.save(tmp_path / f"p{suffix}")
    content = (tmp_path / f"p{suffix}").read_bytes()
    (tmp_path / f"p{suffix}").write_bytes(content[: int(keep * len(content))])
    with pytest.raises(ValueError, match=f"p{suffix}"):
        Predictions.load(tmp_path / f"p{suffix}")


class _Trap:
    """Would create a file if anybody unpickled it."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return open, (self.path, "w")


def test_pickled_objects_are_refused_and_never_run(tmp_path):
    trap = np.array([_Trap(tmp_path / "sprung"), None], dtype=object)
    np.savez(tmp_path / "p.npz", y_true=trap, y_pred=[0, 1], open_score=[0.0, 1.0])
    with pytest.raises(ValueError, match=r"p\.npz .*astype\(str\)"):
        Predictions.load(tmp_path / "p.npz")
    (tmp_path / "q.npz").write_bytes(pickle.dumps(_Trap(tmp_path / "sprung")))
    with pytest.raises(ValueError, match=r"q\.npz .*numpy\.savez"):
        Predictions.load(tmp_path / "q.npz")
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            {"y_true": [0, 1], "logits": [[1.0, 2.0], [1.0]]},
            r"'logits' .*\[1, 2\]",
        ),
        ({"y_true": [0, 1], "logits": [[1.0, 2.0], None]}, "logits"),
        ({"y_true": [0, 1], "logits": [None, [1.0, 2.0]]}, "logits"),
        ({"y_true": [0, 1], "logits": [[1.0, None], [1.0, 2.0]]}, "NaN.* 0"),
        ({"y_true": [0, None], "y_pred": [0, 1], "open_score": [0.0, 1.0]}, "y_true"),
        (
            {"y_true": ["a", None], "y_pred": ["a", "b"], "open_score": [0.0, 1.0]},
            "y_true .* 1",
        ),
        ({"y_true": [0, 1], "y_pred": [0, 1], "open_score": [0.0, None]}, "open_score .*NaN.* 1"),
    ],
)
def test_parquet_with_holes(tmp_path, columns, message):
    pq.write_table(pa.table(columns), tmp_path / "p.parquet")
    with pytest.raises(ValueError, match=message):
        Predictions.load(tmp_path / "p.parquet")


def test_parquet_without_pyarrow(tmp_path, monkeypatch):
    TRIPLE.save(tmp_path / "p.parquet")
    before = (tmp_path / "p.parquet").read_bytes()
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"pip install 'openauc\[parquet\]'.*\.npz or \.csv"):
        Predictions.load(tmp_path / "p.parquet")
    with pytest.raises(ImportError, match="pyarrow"):
        TRIPLE.save(tmp_path / "p.parquet")
    assert os.listdir(tmp_path) == ["p.parquet"]
    assert (tmp_path / "p.parquet").read_bytes() == before
    TRIPLE.save(tmp_path / "p.csv")
    assert_same(Predictions.load(tmp_path / "p.csv"), TRIPLE)


@pytest.mark.parametrize(
    ("suffix", "writer"),
    [(".npz", "numpy.lib.format.write_array"), (".csv", "csv.writer"), (".parquet", "pyarrow.parquet.write_table")],
)
def test_failing_write_leaves_the_old_file_and_no_temporary(tmp_path, monkeypatch, suffix, writer):
    path = tmp_path / f"p{suffix}"
    TRIPLE.save(path)
    before = path.read_bytes()

    def fail(*_, **__):
        raise OSError("disk full")

    monkeypatch.setattr(writer, fail)
    with pytest.raises(OSError, match="disk full"):
        Predictions.of([5], [5], [0.0]).save(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize("suffix", [".npz", ".csv", ".parquet"])
def test_extra_columns_are_kept_and_do_not_disturb(tmp_path, suffix):
    path = tmp_path / f"p{suffix}"
    predictions = Predictions.of([0, 1, -1], [0, 1, 1], [0.5, 0.25, 2.0])
    predictions.save(path, extra={"group": ["known", "known", "hard"]})
    assert list(read_columns(path)["group"]) == ["known", "known", "hard"]
    for column, loaded in zip(predictions, Predictions.load(path), strict=True):
        np.testing.assert_array_equal(column, loaded)
    with pytest.raises(ValueError, match=r"group .*2"):
        predictions.save(path, extra={"group": ["known", "known"]})
