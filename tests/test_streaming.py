"""Accumulator: parts in any order and grouping, exact or in constant memory."""

import io
import itertools
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from strategies import Triple, random_triple, scores, triples

from openauc import METRICS, Accumulator, Metric, evaluate, standard_metrics
from openauc.metrics.ranking import ScoreDirectionWarning
from openauc.metrics.registry import DecisionMetric
from openauc.streaming import bin_of, key_score, score_key
from openauc.streaming.rows import Rows, RowStore

pytestmark = pytest.mark.filterwarnings(f"ignore::{ScoreDirectionWarning.__module__}.{ScoreDirectionWarning.__name__}")
FEW = {"level": 0.9, "n_replicates": 20}
WIDE = standard_metrics(max_ofpr=0.3)
BY_CLASS = [name for name, metric in METRICS.items() if isinstance(metric, DecisionMetric) and metric.by_class]


def accumulate(parts: list[Any], **options: Any) -> Accumulator:
    accumulator = Accumulator(**options)
    for part in parts:
        accumulator.update(*part)
    return accumulator


def cut(triple: Triple, edges: list[int]) -> list[tuple[Any, ...]]:
    ends = sorted(min(edge, len(triple.y_true)) for edge in edges)
    return [tuple(part[a:b] for part in triple) for a, b in itertools.pairwise([0, *ends, len(triple.y_true)])]


def state(accumulator: Accumulator) -> dict[str, Any]:
    bins = {} if accumulator._classes is None else accumulator._ranked()[1]._asdict()
    rows = accumulator._rows.rows()
    return {"key": rows.key, "what": rows.what, "times": rows.times, **bins, "numbers": accumulator._numbers}


def assert_same_state(one: Accumulator, other: Accumulator) -> None:
    assert one.classes == other.classes
    mine, theirs = state(one), state(other)
    assert mine.keys() == theirs.keys()
    for name, array in mine.items():
        np.testing.assert_array_equal(array, theirs[name], err_msg=name)


@given(st.lists(scores(np.float64), min_size=2, max_size=20))
def test_keys_are_in_the_order_of_the_scores(values: list[float]) -> None:
    score = np.array(values)
    key = score_key(score)
    for relation in (np.less, np.equal):
        assert np.array_equal(relation.outer(score, score), relation.outer(key, key))
    assert np.array_equal(key_score(key), score)
    assert np.all(np.diff(bin_of(np.sort(key))) >= 0)


@given(st.lists(scores(np.float32), min_size=1, max_size=20))
def test_float32_has_the_key_of_its_float64(values: list[float]) -> None:
    score = np.array(values, dtype=np.float32)
    assert np.array_equal(score_key(score), score_key(score.astype(np.float64)))


@given(triples(), st.lists(st.integers(0, 16), max_size=4), st.randoms(use_true_random=False))
def test_exact_parts_equal_evaluate_to_the_last_bit(triple: Triple, edges: list[int], random: Any) -> None:
    parts = [accumulate([part]) for part in cut(triple, edges)]
    random.shuffle(parts)
    while len(parts) > 1:  # any grouping, empty parts included
        parts.insert(random.randrange(len(parts) - 1), parts.pop().merge(parts.pop()))
    assert parts[0].compute(**FEW) == evaluate(*triple, **FEW)


@pytest.mark.parametrize("decimals", [None, 2])
def test_exact_intervals_and_curves_of_many_samples(decimals: int | None) -> None:
    triple = random_triple(3000, decimals=decimals, dtype=np.float32)
    order = np.random.default_rng(0).permutation(3000)
    shuffled = Triple(*(part[order] for part in triple))
    found = accumulate(cut(shuffled, [10, 10, 1700])).compute(metrics=WIDE)
    expected = evaluate(*triple, metrics=WIDE)
    assert found == expected
    for name, curve in expected.curves.items():
        assert np.array_equal(curve.x, found.curves[name].x)
        assert np.array_equal(curve.y, found.curves[name].y)


def test_memory_of_the_exact_mode_grows_with_distinct_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openauc.streaming.rows._FEWEST_PENDING", 100)
    triple = random_triple(500, decimals=1, n_classes=2)
    accumulator = accumulate([triple] * 20)
    assert accumulator.nbytes < 24 * 2 * 500
    many = [np.tile(part, 20) for part in triple]
    assert accumulator.compute(**FEW) == evaluate(*many, **FEW)


@given(triples(), st.lists(st.integers(0, 16), max_size=4), st.booleans(), st.randoms(use_true_random=False))
def test_bins_do_not_depend_on_order_and_grouping(
    triple: Triple, edges: list[int], per_class: bool, random: Any
) -> None:
    options = {"exact": False, "per_class": per_class}
    parts = [accumulate([part], **options) for part in cut(triple, edges)]
    random.shuffle(parts)
    while len(parts) > 1:
        parts.insert(random.randrange(len(parts) - 1), parts.pop().merge(parts.pop()))
    assert_same_state(parts[0], accumulate([triple], **options))


NEAR = st.builds(
    lambda base, step: base * (1.0 + step / 2.0**14), st.sampled_from([1.0, -3.0, 1e-300]), st.integers(0, 40)
)


@st.composite
def crowded(draw: st.DrawFn) -> Triple:
    """Scores so near to each other that most share their bin."""
    triple = draw(triples())
    pool = draw(st.lists(NEAR, min_size=len(triple.y_true), max_size=len(triple.y_true)))
    return Triple(triple.y_true, triple.y_pred, np.array(pool))


@settings(max_examples=40)
@given(triples() | crowded())
@example(Triple(np.array([-1, -1, 0]), np.array([0, 0, 0]), np.array([1.0, 1.0 + 2**-40, 3.0])))
def test_bounds_hold_the_exact_value(triple: Triple) -> None:
    exact = evaluate(*triple, metrics=WIDE, level=None)
    for per_class in (False, True):
        accumulator = accumulate([triple], exact=False, per_class=per_class)
        metrics = WIDE if per_class else {n: m for n, m in WIDE.items() if n not in BY_CLASS}
        options = FEW if per_class else {"level": None}
        bounds, found = accumulator.bounds_of(metrics), accumulator.compute(metrics=metrics, **options)
        assert bounds.keys() == metrics.keys() == found.values.keys()
        for name, (low, high) in bounds.items():
            assert low <= exact.values[name] <= high, name
            assert low <= found.values[name] <= high, name
            if low < high and per_class:
                assert found.intervals[name].low <= low, name
                assert found.intervals[name].high >= high, name


def test_bounds_are_narrow_on_a_plausible_model() -> None:
    accumulator = accumulate([random_triple(20_000)], exact=False, per_class=True)
    for name, (low, high) in accumulator.bounds.items():
        assert high - low < 1e-3, name


def test_a_finer_resolution_has_narrower_bounds(tmp_path: Path) -> None:
    triple, widths = random_triple(20_000), []
    for resolution in (6, 10, 14):
        accumulator = accumulate([triple], exact=False, resolution=resolution)
        accumulator.save(tmp_path / "part.npz")
        assert Accumulator.load(tmp_path / "part.npz").resolution == resolution
        low, high = accumulator.bounds["openauc"]
        widths.append(high - low)
    assert widths[0] > 8 * widths[1] > 64 * widths[2] > 0
    for resolution in (0, 41):
        with pytest.raises(ValueError, match=f"resolution is {resolution}; expected .* 1 to 40"):
            Accumulator(resolution=resolution)


def test_memory_follows_the_bins_that_hold_samples() -> None:
    """Slices of few samples are cheap: a hundred of them take less than a megabyte."""
    parts = [accumulate([random_triple(50, seed=seed)], exact=False) for seed in range(100)]
    assert sum(part.nbytes for part in parts) <= 100 * 50 * 40


def test_scores_of_few_values_are_exact_in_constant_memory() -> None:
    triple = random_triple(2000, decimals=1)
    accumulator = accumulate([triple], exact=False, per_class=True)
    assert accumulator.compute(level=None).values == evaluate(*triple, level=None).values
    assert all(low == high for low, high in accumulator.bounds.values())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_bins_count_every_kind_of_sample(dtype: type) -> None:
    """Against a dictionary, sample by sample."""
    triple = random_triple(9000, dtype=dtype)  # in parts below and above the number that is sorted at once
    triple.open_score[:60] = np.resize(
        [0.0, -0.0, np.inf, -np.inf, np.finfo(dtype).smallest_subnormal, np.finfo(dtype).max], 60
    )
    triple.y_pred[::7] = -1
    counts: dict[int, list[int]] = {}
    for true, pred, key in zip(triple.y_true, triple.y_pred, score_key(triple.open_score).tolist(), strict=True):
        kind = (4 if pred == -1 else 2) if true == -1 else 3 if pred == -1 else int(true == pred)
        counts.setdefault(key >> 38, [0] * 5)[kind] += 1
    found = state(accumulate(cut(triple, [100, 700]), exact=False))
    assert found["counts"].tolist() == [counts[number] for number in sorted(counts)]
    assert (found["low"] >> 38).tolist() == (found["high"] >> 38).tolist() == sorted(counts)


def test_large_labels_and_another_unknown_label() -> None:
    triple = random_triple(400)
    wide = [np.where(labels == -1, 9, labels * 10**6 + 10) for labels in triple[:2]]
    for exact in (True, False):
        accumulator = accumulate([(*wide, triple.open_score)], exact=exact, per_class=True, unknown_label=9)
        assert accumulator.classes[-1] == 9 * 10**6 + 10
        found = accumulator.compute(level=None)
        expected = evaluate(*wide, triple.open_score, unknown_label=9, level=None)
        if exact:
            assert found == expected
        assert found.closed_set_accuracy == expected.closed_set_accuracy


@pytest.mark.parametrize("exact", [True, False])
def test_names_as_labels(exact: bool, tmp_path: Path) -> None:
    names = np.array(["ant", "bee", "cat", "other"])
    triple = random_triple(300, n_classes=3, decimals=1)
    named = names[triple.y_true], names[triple.y_pred], triple.open_score
    parts = [
        accumulate([part], exact=exact, per_class=True, unknown_label="other") for part in cut(Triple(*named), [7, 8])
    ]
    merged = parts[2].merge(parts[0]).merge(parts[1])
    assert merged.classes == ("ant", "bee", "cat")
    assert merged.compute(**FEW) == evaluate(*named, unknown_label="other", **FEW)
    merged.save(tmp_path / "named.npz")
    assert_same_state(Accumulator.load(tmp_path / "named.npz"), merged)


def test_a_function_of_the_samples_needs_all_of_them() -> None:
    triple = random_triple(60, decimals=0)
    metrics = {"rejected": Metric(function=lambda y_true, y_pred, score: float(np.mean(score > 0)))}
    exact = accumulate(cut(triple, [20]))
    assert exact.compute(metrics=metrics, **FEW).values == evaluate(*triple, metrics=metrics, **FEW).values
    with pytest.raises(ValueError, match=r"rejected is a function of the samples.*exact=True"):
        accumulate([triple], exact=False).compute(metrics=metrics)


def test_class_averages_are_left_out_or_refused_where_classes_are_not_counted() -> None:
    accumulator = accumulate([random_triple(60)], exact=False)
    assert set(METRICS) - set(accumulator.compute(level=None).values) == set(BY_CLASS)
    asked = {"macro_f_score": METRICS["macro_f_score"]}
    with pytest.raises(ValueError, match=r"macro_f_score averages over classes.*per_class=True"):
        accumulator.compute(metrics=asked)


@pytest.mark.parametrize("exact", [True, False])
def test_one_side_only(exact: bool) -> None:
    known = {"closed_set_accuracy": METRICS["closed_set_accuracy"]}
    accumulator = accumulate([([], [], []), ([0, 1, 1], [0, 1, 0], [0.5, 0.25, 0.50001])], exact=exact)
    found = accumulator.compute(metrics=known, **FEW)
    assert found == evaluate([0, 1, 1], [0, 1, 0], [0.5, 0.25, 0.50001], metrics=known, **FEW)
    assert accumulator.bounds_of(known) == {"closed_set_accuracy": (2 / 3, 2 / 3)}
    with pytest.raises(ValueError, match="no unknown sample"):
        accumulator.compute()
    with pytest.raises(ValueError, match="y_true is empty"):
        Accumulator(exact=exact).compute()


@pytest.mark.parametrize("exact", [True, False])
def test_bad_input_changes_nothing(exact: bool) -> None:
    accumulator = accumulate([random_triple(30)], exact=exact)
    before = state(accumulator)
    with pytest.raises(ValueError, match="NaN for sample 1"):
        accumulator.update([0, 1], [0, 1], [0.5, np.nan])
    with pytest.raises(ValueError, match="contains the label -3"):
        accumulator.update([0, -3], [0, 1], [0.5, 0.2])
    with pytest.raises(ValueError, match="contains -3"):
        accumulator.update([0, 1], [0, -3], [0.5, 0.2])
    with pytest.raises(ValueError, match="open_score has 1 entries"):
        accumulator.update([0, 1], [0, 1], [0.5])
    with pytest.raises(TypeError, match="names here but were integers before"):
        accumulator.update(["a", "-1"], ["a", "a"], [0.5, 0.2])
    for name, array in state(accumulator).items():
        assert np.array_equal(array, before[name])


def test_only_accumulators_made_alike_merge() -> None:
    with pytest.raises(ValueError, match="exact=True and False"):
        Accumulator().merge(Accumulator(exact=False))
    with pytest.raises(ValueError, match="resolution=10 and 14"):
        Accumulator(exact=False, resolution=10).merge(Accumulator(exact=False))
    with pytest.raises(TypeError, match="with dict"):
        Accumulator().merge({})  # type: ignore[arg-type]


def test_merging_leaves_both_as_they_were() -> None:
    one, other = (accumulate([random_triple(40, seed=seed)], exact=False) for seed in (1, 2))
    before = state(one)
    merged = one.merge(other)
    merged.update(*random_triple(10))
    assert all(np.array_equal(array, before[name]) for name, array in state(one).items())
    assert repr(merged) == f"<Accumulator, constant memory: {merged.n_known} known, {merged.n_unknown} unknown samples>"


def rows_of(key: Any, counts: Any, low: Any, high: Any) -> Rows:
    place, kind = np.nonzero(counts)
    return Rows(bin_of(key, 14)[place], kind, counts[place, kind], low[place], high[place])


def test_pairs_beyond_64_bits_are_counted_exactly() -> None:
    """10^10 samples on either side, in three bins; the middle one ties them."""
    big = 10**10 + 1
    counts = np.array([[1, big, 0, 0, 0], [0, big, big, 0, 0], [0, 0, big + 3, 0, 0]])
    key = score_key(np.array([1.0, 2.0, 3.0]))
    accumulator = Accumulator(exact=False)
    accumulator.update([0, 0, -1], [0, 1, 0], [1.0, 1.0, 3.0])
    accumulator._rows = RowStore(rows_of(key, counts, key, key))
    accumulator._numbers = np.array([1, 2 * big, 2 * big + 3])
    found, bounds = accumulator.compute(), accumulator.bounds
    credit, pairs = 2 * big * (2 * big + 3) + 2 * big * (big + 3) + big * big, (2 * big + 1) * (2 * big + 3)
    assert found.openauc == float(credit) / (2.0 * found.n_known * found.n_unknown)
    assert found.openauc == pytest.approx(credit / (2 * pairs), rel=1e-15)
    assert bounds["openauc"] == (found.openauc, found.openauc)
    assert found.n_known == 2 * big + 1
    assert all(0.0 <= value <= 2.0 and np.isfinite(value) for value in found.values.values())
    # The same in the middle of open bins.
    accumulator._rows = RowStore(rows_of(key, counts, key, key + np.array([0, 1, 0])))
    low, high = accumulator.bounds["openauc"]
    assert low == pytest.approx((credit - big * big) / (2 * pairs), rel=1e-15)
    assert high == pytest.approx((credit + big * big) / (2 * pairs), rel=1e-15)


@pytest.mark.parametrize("options", [{}, {"exact": False}, {"exact": False, "per_class": True}])
def test_save_and_load(options: dict[str, Any], tmp_path: Path) -> None:
    accumulator = accumulate([random_triple(300)], **options)
    accumulator.save(tmp_path / "part.npz")
    loaded = Accumulator.load(tmp_path / "part.npz")
    assert_same_state(loaded, accumulator)
    assert loaded.compute(**FEW) == accumulator.compute(**FEW)
    loaded.update(*random_triple(10, seed=3))
    Accumulator(**options).save(tmp_path / "empty.npz")
    assert Accumulator.load(tmp_path / "empty.npz").n_known == 0
    assert loaded.merge(Accumulator.load(tmp_path / "empty.npz")).n_known == loaded.n_known


def saved(write: Callable[..., None], *array: Any, **arrays: Any) -> bytes:
    content = io.BytesIO()
    write(content, *array, **arrays)
    return content.getvalue()


HEAD = '{"format": "openauc accumulator", "version": 2, "keys": [[]], "options": [{"exact": true}]}'
DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "truncated": lambda content: content[:-40],
    "one byte": lambda content: content[:700] + bytes([content[700] ^ 255]) + content[701:],
    "text": lambda content: b"no archive",
    "empty": lambda content: b"",
    "other arrays": lambda content: saved(np.savez, y_true=np.arange(3)),
    "one array": lambda content: saved(np.save, np.arange(3)),
    "another format": lambda content: saved(np.savez, head=np.array('{"format": "soup"}')),
    "pickle": lambda content: pickle.dumps({"a": 1}),
    "no counts": lambda content: saved(np.savez, head=np.array(HEAD), numbers=np.zeros(3, dtype=np.int64)),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_files_are_named(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "part.npz"
    accumulate([random_triple(300)], exact=False).save(path)
    path.write_bytes(DAMAGE[damage](path.read_bytes()))
    with pytest.raises(ValueError, match=r"part\.npz cannot be read as an accumulator") as caught:
        Accumulator.load(path)
    assert "unsafely" not in str(caught.value)


def test_files_of_another_version_are_refused(tmp_path: Path) -> None:
    (tmp_path / "part.npz").write_bytes(saved(np.savez, head=np.array(HEAD.replace('"version": 2', '"version": 7'))))
    with pytest.raises(ValueError, match="version 7 of the format, this one reads 2"):
        Accumulator.load(tmp_path / "part.npz")
