"""Reading arrays: every kind of input the caller may hold, and every way it can be wrong."""

import numpy as np
import pandas as pd
import pytest
import torch

from openauc import _validation as check


@pytest.mark.parametrize(
    "values",
    [
        [1.0, 2.0],
        (1.0, 2.0),
        np.array([1.0, 2.0]),
        pd.Series([1.0, 2.0], index=[7, 3]),
        pd.Index([1.0, 2.0]),
        torch.tensor([1.0, 2.0]),
        torch.tensor([1.0, 2.0], requires_grad=True),
        torch.tensor([1.0, 2.0], dtype=torch.bfloat16),
        torch.tensor([1.0, 2.0], dtype=torch.bfloat16, requires_grad=True),
        torch.tensor([1.0, 2.0], dtype=torch.float16),
    ],
    ids=lambda v: f"{type(v).__name__}-{getattr(v, 'dtype', '')}",
)
def test_a_vector_may_come_in_any_container(values):
    assert check.as_vector("open_score", values).tolist() == [1.0, 2.0]


def test_bfloat16_scores_keep_their_value():
    values = torch.tensor([1e-30, 3.140625, -(2.0**100), float("inf")], dtype=torch.bfloat16)
    read = check.as_scores("open_score", values)
    assert read.dtype == np.float32
    assert read.tolist() == values.double().tolist()


@pytest.mark.parametrize(("values", "shape"), [([[1, 2], [3, 4]], r"\(2, 2\)"), (3.0, r"\(\)")])
def test_only_vectors(values, shape):
    with pytest.raises(ValueError, match=rf"open_score has shape {shape}; expected one value per sample"):
        check.as_vector("open_score", values)


@pytest.mark.parametrize(
    ("dtype", "read_as"),
    [
        (np.float16, np.float32),
        (np.float32, np.float32),
        (np.float64, np.float64),
        (np.longdouble, np.float64),
        (">f2", np.float32),
        (">f4", np.float64),
        (">f8", np.float64),
        (np.int8, np.float64),
        (np.uint8, np.float64),
        (np.int64, np.float64),
        (np.uint64, np.float64),
        (bool, np.float64),
        (object, np.float64),
    ],
)
def test_scores_become_native_floats_of_the_same_value(dtype, read_as):
    read = check.as_scores("open_score", np.array([0, 1, 1], dtype=dtype))
    assert read.dtype == np.dtype(read_as)
    assert read.dtype.isnative
    assert read.tolist() == [0.0, 1.0, 1.0]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_every_magnitude_is_kept(dtype):
    info = np.finfo(dtype)
    corners = [info.smallest_subnormal, info.tiny, info.eps, info.max, info.min, np.inf, -np.inf]
    values = np.array(corners, dtype=dtype)
    assert check.as_scores("open_score", values).tolist() == values.tolist()


def test_scores_of_the_right_type_are_not_copied():
    values = np.array([1.0, 2.0])
    assert check.as_scores("open_score", values) is values


def test_integers_that_float64_holds_exactly_are_welcome():
    limit = 2**53 - 1
    read = check.as_scores("open_score", np.array([-limit, limit]))
    assert read.tolist() == [-limit, limit]


@pytest.mark.parametrize("values", [[2**53 + 2], [-(2**60)], [2**53, 2**53 + 1]])
def test_integers_that_float64_would_round_are_refused(values):
    with pytest.raises(ValueError, match=r"integers beyond 2\*\*53"):
        check.as_scores("open_score", np.array(values))


def test_unsigned_integers_that_float64_would_round_are_refused():
    with pytest.raises(ValueError, match=r"integers beyond 2\*\*53"):
        check.as_scores("open_score", np.array([2**64 - 1], dtype=np.uint64))


@pytest.mark.skipif(np.finfo(np.longdouble).nmant <= 52, reason="long double is double here")
@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
@pytest.mark.parametrize("value", [np.longdouble(1) / 3, np.longdouble("1e4000")])
def test_long_doubles_that_float64_would_round_are_refused(value):
    with pytest.raises(ValueError, match="does not fit float64 without rounding"):
        check.as_scores("open_score", np.array([value]))


@pytest.mark.parametrize("values", [["high"], [{}], [0.5, "low"]])
def test_objects_must_be_numbers(values):
    with pytest.raises(TypeError, match=rf"open_score must be numbers, got for example {values[-1]!r}"):
        check.as_scores("open_score", np.array(values, dtype=object))


@pytest.mark.parametrize("values", [["0.5"], [1 + 2j], np.array(["2020-01-01"], dtype="M8[D]")])
def test_other_types_are_refused(values):
    with pytest.raises(TypeError, match="open_score must be real numbers, got dtype"):
        check.as_scores("open_score", values)


@pytest.mark.parametrize(
    "values",
    [
        np.array([1.0, np.inf, np.nan], dtype=np.float16),
        np.array([1.0, -np.inf, np.nan], dtype=np.float32),
        [1.0, 2.0, np.nan],
        [1.0, 2.0, None],
        pd.Series([1.0, 2.0, None], dtype="Float64"),
        torch.tensor([1.0, 2.0, float("nan")], dtype=torch.bfloat16),
        np.array([1.0, 2.0, np.nan], dtype=np.longdouble),
    ],
    ids=lambda v: f"{type(v).__name__}-{getattr(v, 'dtype', '')}",
)
def test_nan_is_refused_and_located(values):
    with pytest.raises(ValueError, match="open_score is NaN for sample 2; a NaN has no rank"):
        check.as_scores("open_score", values)


def test_no_scores_at_all_is_not_the_business_of_the_reader():
    assert check.as_scores("open_score", []).shape == (0,)


@pytest.mark.parametrize(
    "values",
    [
        [0, 1, -1],
        np.array([0, 1, -1], dtype=np.int8),
        np.array([0, 1, -1], dtype=">i4"),
        np.array([0.0, 1.0, -1.0]),
        np.array([0.0, 1.0, -1.0], dtype=np.float16),
        np.array([0, 1, -1], dtype=object),
        pd.Series([0, 1, -1], dtype="Int64"),
        pd.Series([0, 1, -1], dtype="category"),
        torch.tensor([0, 1, -1]),
        torch.tensor([0.0, 1.0, -1.0], requires_grad=True),
    ],
    ids=lambda v: f"{type(v).__name__}-{getattr(v, 'dtype', '')}",
)
def test_integer_labels(values):
    read = check.as_labels("y_true", values)
    assert read.dtype.kind == "i"
    assert read.tolist() == [0, 1, -1]


@pytest.mark.parametrize("dtype", [bool, np.uint8, np.uint16, np.uint64])
def test_unsigned_labels_become_signed(dtype):
    read = check.as_labels("y_true", np.array([0, 1], dtype=dtype))
    assert read.dtype == np.int64
    assert read.tolist() == [0, 1]


@pytest.mark.parametrize(
    "values",
    [
        ["cat", "dog", "-1"],
        np.array([b"cat", b"dog", b"-1"]),
        np.array([b"cat", b"dog", b"-1"], dtype=object),
        np.array(["cat", "dog", -1], dtype=object),
        pd.Series(["cat", "dog", "-1"]),
        pd.Series(["cat", "dog", "-1"], dtype="string"),
        pd.Series(["cat", "dog", "-1"], dtype="category"),
        np.array(["cat", "dog", "-1"], dtype=np.dtypes.StringDType()),
    ],
    ids=lambda v: f"{type(v).__name__}-{getattr(v, 'dtype', '')}",
)
def test_names(values):
    read = check.as_labels("y_true", values)
    assert read.dtype.kind == "U"
    assert read.tolist() == ["cat", "dog", "-1"]


def test_whole_numbers_among_objects_are_written_as_integers():
    assert check.as_labels("y_true", np.array([0.0, 1, "other"], dtype=object)).tolist() == ["0", "1", "other"]


@pytest.mark.parametrize("dtype", ["S3", object])
def test_bytes_are_text_in_utf8(dtype):
    assert check.as_labels("y_true", np.array(["é".encode(), b"b"], dtype=dtype)).tolist() == ["é", "b"]
    with pytest.raises(ValueError, match=r"y_true holds the bytes b'\\xff'.*UTF-8"):
        check.as_labels("y_true", np.array([b"a", b"\xff"], dtype=dtype))


@pytest.mark.parametrize(("bad", "shown"), [(0.5, "0.5"), (np.inf, "inf"), (-2.25, "-2.25")])
def test_float_labels_must_be_whole(bad, shown):
    with pytest.raises(ValueError, match=f"y_true contains {shown}; class labels are integers or strings"):
        check.as_labels("y_true", [0.0, bad])


@pytest.mark.filterwarnings("ignore:invalid value encountered in cast:RuntimeWarning")
@pytest.mark.parametrize(
    "values", [np.array([0.0, 1e300]), np.array([0.0, 2.0**63]), np.array([0, 2**64 - 1], dtype=np.uint64)]
)
def test_labels_beyond_int64_are_refused_rather_than_wrapped(values):
    # 2**64 - 1 as int64 is -1: such a sample would silently count as unknown.
    with pytest.raises(ValueError, match="y_true"):
        check.as_labels("y_true", values)


@pytest.mark.parametrize(
    "values",
    [
        [0.0, np.nan],
        np.array([0, None], dtype=object),
        np.array(["cat", np.nan], dtype=object),
        pd.Series(["cat", None]),
        pd.Series(["cat", pd.NA], dtype="string"),
        np.array(["cat", pd.NA], dtype=object),
    ],
    ids=["floats", "None", "nan", "pandas", "pandas-string", "pandas-NA"],
)
def test_missing_labels_are_located(values):
    with pytest.raises(ValueError, match="y_true is missing for sample 1; every sample needs a label"):
        check.as_labels("y_true", values)


def test_missing_integers_of_pandas_are_refused():
    with pytest.raises(ValueError, match="y_true"):
        check.as_labels("y_true", pd.Series([0, None], dtype="Int64"))


def test_integers_against_names_are_refused():
    with pytest.raises(
        TypeError, match=r"y_true holds integers \(such as 3\) but y_pred holds names \(such as 'cat'\)"
    ):
        check.same_label_type(np.array([3]), np.array(["cat"]))
    with pytest.raises(TypeError, match=r"y_true holds names .* but y_pred holds integers"):
        check.same_label_type(np.array(["cat"]), np.array([3]))


@pytest.mark.parametrize(("names", "integers"), [(["0", "1", "other"], [0, 1, 2]), (["12", "x", "-1"], [12, 3, -1])])
def test_integers_equal_their_text(names, integers):
    for dtype in (np.int32, np.int64):
        text, same = check.same_label_type(np.array(names), np.array(integers, dtype=dtype))
        assert text.tolist() == names
        assert same.tolist() == [str(integer) for integer in integers]
        assert [a.tolist() for a in check.same_label_type(np.array(integers), np.array(names))] == [
            same.tolist(),
            names,
        ]


@pytest.mark.parametrize("names", [["007", "12"], ["0.0", "1.0"], ["-1", "cat"], ["²"]])
def test_names_that_are_not_written_as_integers_stay_names(names):
    with pytest.raises(TypeError, match=r"y_true holds names .* but y_pred holds integers"):
        check.same_label_type(np.array(names), np.array([7, 12]))


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("-1", -1),
        ("0", 0),
        ("12", 12),
        ("007", "007"),
        ("-0", "-0"),
        ("²", "²"),
        ("٣", "٣"),
        ("", ""),
        ("-", "-"),
        ("1_0", "1_0"),
        ("1\n", "1\n"),
    ],
)
def test_a_label_read_from_text(text, label):
    assert check.read_label(text) == label


def test_equal_kinds_and_empty_arrays_pass():
    for true, pred in [([1], [2]), (["a"], ["bcd"]), ([], ["a"]), (["a"], [])]:
        arrays = np.array(true), np.array(pred)
        assert check.same_label_type(*arrays) == arrays


def test_is_label_among_integers_and_names():
    assert check.is_label(np.array([0, -1]), -1).tolist() == [False, True]
    assert check.is_label(np.array(["cat", "-1"]), -1).tolist() == [False, True]
    assert check.is_label(np.array(["cat", "other"]), "other").tolist() == [False, True]


def test_a_name_for_unknown_among_integers_is_refused():
    with pytest.raises(TypeError, match="unknown_label is 'other' but y_true holds integers"):
        check.is_label(np.array([0, 1]), "other")


def test_lengths_must_agree():
    check.check_same_length(y_true=np.zeros(2), y_pred=np.zeros(2), open_score=np.zeros(2))
    with pytest.raises(ValueError, match="open_score has 3 entries but y_true has 2"):
        check.check_same_length(y_true=np.zeros(2), y_pred=np.zeros(2), open_score=np.zeros(3))


def test_both_sides_need_samples():
    check.require_samples(1, 1, -1)
    check.require_samples(1, 0, -1, unknown=False)
    with pytest.raises(ValueError, match="no known sample, nor any other: y_true is empty"):
        check.require_samples(0, 0, -1, unknown=False)
    with pytest.raises(ValueError, match="no known sample: every y_true equals the unknown label 'other'"):
        check.require_samples(0, 1, "other")
    with pytest.raises(ValueError, match="no unknown sample: no y_true equals -1"):
        check.require_samples(1, 0, -1)


@pytest.mark.parametrize(
    ("value", "zero", "one", "fits"),
    [
        (0.5, False, False, True),
        (0.0, False, True, False),
        (0.0, True, True, True),
        (1.0, False, True, True),
        (1.0, False, False, False),
        (1.0 + 1e-12, True, True, False),
        (-0.1, True, True, False),
        (95, True, True, False),
        (np.nan, True, True, False),
        (np.inf, True, True, False),
    ],
)
def test_fractions(value, zero, one, fits):
    if fits:
        assert check.check_fraction("tpr", value, zero=zero, one=one) == value
        return
    interval = rf"\{'[' if zero else '('}0, 1\{']' if one else ')'}"
    with pytest.raises(ValueError, match=rf"tpr is {value}; expected a fraction in {interval}, not a percentage"):
        check.check_fraction("tpr", value, zero=zero, one=one)


def test_choices():
    assert check.check_choice("ties", "half", ("half", "strict")) == "half"
    with pytest.raises(
        ValueError, match=r"ties is 'strikt'; expected one of 'half', 'strict'\. Did you mean 'strict'\?"
    ):
        check.check_choice("ties", "strikt", ("half", "strict"))
    with pytest.raises(ValueError, match=r"expected one of 'half', 'strict'\.$"):
        check.check_choice("ties", "0.7", iter(("half", "strict")))


def test_labels_and_names_in_text():
    assert [check.read_label(text) for text in ("-1", "007", "other")] == [-1, "007", "other"]
    assert check.named(["a", "b", "c"], most=2) == "'a', 'b', 1 more"
    assert check.named([]) == "none"
