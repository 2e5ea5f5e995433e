"""The kernel: both backends agree to the last bit, on every distribution that could trip one of them."""

import importlib
import importlib.util
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import oracles
import pytest
from hypothesis import given
from strategies import UNKNOWN, Triple, random_triple, triples

from openauc.metrics import rank_table
from openauc.metrics.rank_table import Ranking, RankTable, compiled, rank
from openauc.metrics.ranking import auroc_score, average_precision, average_precision_of, count_pairs, openauc_score
from openauc.metrics.samples import CORRECT, UNKNOWN_KIND, WRONG, Samples, read_samples

_pairs = pytest.importorskip("openauc.metrics._pairs")

pytestmark = pytest.mark.filterwarnings("ignore::openauc.metrics.ranking.ScoreDirectionWarning")
both_types = pytest.mark.parametrize("dtype", [np.float32, np.float64])
BACKENDS = ("numpy", "numba")


def on_both(monkeypatch: pytest.MonkeyPatch, compute):
    """``compute()`` by numpy and by numba."""
    results = []
    for backend in BACKENDS:
        monkeypatch.setenv("OPENAUC_BACKEND", backend)
        results.append(compute())
    return results


def pairs_by_numpy(monkeypatch: pytest.MonkeyPatch, samples: Samples, with_wrong: bool) -> tuple[int, int]:
    with monkeypatch.context() as patch:
        patch.setenv("OPENAUC_BACKEND", "numpy")
        return count_pairs(samples, with_wrong=with_wrong)


def _normal(rng, n):
    return rng.normal(size=n)


def _constant(rng, n):
    return np.full(n, 0.7)


def _few_values(rng, n):
    return rng.choice([-3.5, -0.0, 0.0, 2.0, 1e-40], n)


def _heavy_tails(rng, n):
    return rng.standard_cauchy(n) ** 3


def _narrow(rng, n):
    """Neighbouring floats around 1000: all leading bits agree."""
    return (np.float32(1000) + rng.integers(0, 40, n) * np.spacing(np.float32(1000))).astype(np.float64)


def _one_outlier(rng, n):
    """The range is set by one sample, so that all others fall into one cell."""
    score = rng.normal(1.0, 1e-3, n)
    score[n // 2] = -1e30
    return score


def _crowded_bins(rng, n):
    """Two heaps far apart, each with many copies of few neighbours: bins that hold more than a handful."""
    heap = 1.0 + rng.integers(0, 3, n) * np.spacing(np.float32(1.0))
    return np.where(rng.random(n) < 0.5, heap, -1e20 * heap)


def _dense(rng, n):
    """So many samples in so short a range that cells are counted place by place; some places have many copies."""
    score = (1.0 + rng.random(n) / 4).astype(np.float32).astype(np.float64)
    return np.where(rng.random(n) < 0.1, rng.choice(score[:5], n), score)


def _subnormal(rng, n):
    return rng.integers(-50, 50, n) * 1e-43


def _infinite(rng, n):
    return rng.choice([-np.inf, np.inf, 0.0, -0.0, 1.0, -1e38, 1e38], n)


def _ascending(rng, n):
    return np.linspace(-1.0, 1.0, n)


def _descending(rng, n):
    return np.linspace(1.0, -1.0, n)


DISTRIBUTIONS = {
    f.__name__[1:]: f
    for f in (
        _normal,
        _constant,
        _few_values,
        _heavy_tails,
        _narrow,
        _one_outlier,
        _crowded_bins,
        _dense,
        _subnormal,
        _infinite,
        _ascending,
        _descending,
    )
}
every_distribution = pytest.mark.parametrize("draw", DISTRIBUTIONS.values(), ids=DISTRIBUTIONS.keys())


def adversarial(draw, n: int, dtype=np.float64) -> Samples:
    triple = random_triple(max(n, 2), seed=n)
    with np.errstate(over="ignore"):
        score = draw(np.random.default_rng(n), n).astype(dtype)
    return read_samples(triple.y_true[:n], triple.y_pred[:n], score, need_unknown=False)


def same_ranking(a: Ranking, b: Ranking) -> None:
    np.testing.assert_array_equal(a.order, b.order)
    np.testing.assert_array_equal(a.last, b.last)
    np.testing.assert_array_equal(a.threshold, b.threshold)
    for mine, other in zip(a.table, b.table, strict=True):
        np.testing.assert_array_equal(mine, other)


def test_memory_kept_from_another_call_does_not_matter(monkeypatch):
    """Larger, smaller and of another type; in turn and in several threads at once."""
    monkeypatch.setenv("OPENAUC_BACKEND", "numpy")
    cases = [adversarial(_normal, n, t) for n in (9_000, 300_000, 5_001) for t in (np.float32, np.float64)]
    expected = [count_pairs(case, with_wrong=False) for case in cases]
    monkeypatch.setenv("OPENAUC_BACKEND", "numba")
    assert [count_pairs(case, with_wrong=False) for case in cases] == expected
    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(lambda case: count_pairs(case, with_wrong=False), 4 * cases)) == 4 * expected
    assert len(_pairs._kept) == 1


@every_distribution
@both_types
@pytest.mark.parametrize("n", [1, 33, 4096, 300_000])
def test_both_backends_count_and_rank_alike(monkeypatch, draw, dtype, n):
    samples = adversarial(draw, n, dtype)
    for with_wrong in (False, True):
        by_numpy, by_numba = on_both(monkeypatch, lambda w=with_wrong: count_pairs(samples, with_wrong=w))
        assert by_numpy == by_numba
    same_ranking(*on_both(monkeypatch, lambda: rank(samples)))


@given(triples())
def test_both_backends_against_the_loops(monkeypatch, triple):
    samples = read_samples(*triple)
    for with_wrong in (False, True):
        expected = oracles.pair_counts(*triple.lists, with_wrong=with_wrong)
        assert on_both(monkeypatch, lambda w=with_wrong: count_pairs(samples, with_wrong=w)) == [expected] * 2
    same_ranking(*on_both(monkeypatch, lambda: rank(samples)))


@pytest.mark.parametrize("n", [500, 300_000])
@pytest.mark.parametrize("order", ["known first", "unknown first"])
def test_a_chunk_may_hold_one_side_only(monkeypatch, n, order):
    """Files often list the known samples first, so that one thread sees no unknown sample at all."""
    samples = adversarial(_few_values, n)
    by_side = np.argsort(samples.kind == UNKNOWN_KIND, kind="stable")
    if order == "unknown first":
        by_side = by_side[::-1]
    triple = tuple(part[by_side] for part in (samples.y_true, samples.y_pred, samples.score))
    by_numpy, by_numba = on_both(monkeypatch, lambda: (openauc_score(*triple), auroc_score(*triple)))
    assert by_numpy == by_numba
    assert by_numba == (openauc_score(*samples.triple()), auroc_score(*samples.triple()))


def test_no_correct_sample_leaves_nothing_to_count(monkeypatch):
    samples = read_samples([0] * 50 + [-1] * 50, [1] * 100, np.arange(100.0))
    assert on_both(monkeypatch, lambda: count_pairs(samples, with_wrong=False)) == [(0, 0)] * 2
    assert on_both(monkeypatch, lambda: count_pairs(samples, with_wrong=True)) == [(2500, 0)] * 2


def test_equal_scores_keep_the_order_of_the_samples(monkeypatch):
    samples = read_samples([0, -1, 0, -1], [0] * 4, [1.0, -0.0, 1.0, 0.0])
    for ranking in on_both(monkeypatch, lambda: rank(samples)):
        assert ranking.order.tolist() == [1, 3, 0, 2]
        assert ranking.last.tolist() == [1, 3]
        assert ranking.group.tolist() == [1, 1, 2, 2]


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64])
def test_the_three_kinds(dtype):
    y_true, y_pred = np.array([0, 1, -1, 2, -1], dtype), np.array([0, 0, -1, -1, 1], dtype)
    samples = read_samples(y_true, y_pred, [0.0] * 5)
    assert samples.kind.tolist() == [CORRECT, WRONG, UNKNOWN_KIND, WRONG, UNKNOWN_KIND]
    assert (samples.n_known, samples.n_correct, samples.n_unknown) == (3, 1, 2)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("layout", ["strided", "read only", "mixed widths", "swapped bytes"])
def test_labels_of_any_layout(monkeypatch, backend, layout):
    y_true, y_pred, score = np.array([0, 1, -1, 1]), np.array([0, 0, 0, 1]), np.array([0.0, 1.0, 2.0, 3.0])
    if layout == "strided":
        y_true, y_pred, score = (np.repeat(part, 2)[::2] for part in (y_true, y_pred, score))
    elif layout == "read only":
        for part in (y_true, y_pred, score):
            part.flags.writeable = False
    elif layout == "mixed widths":
        y_pred = y_pred.astype(np.int32)
    else:
        y_true, y_pred, score = y_true.astype(">i8"), y_pred.astype(">i8"), score.astype(">f8")
    monkeypatch.setenv("OPENAUC_BACKEND", backend)
    samples = read_samples(y_true, y_pred, score)
    assert samples.kind.tolist() == [CORRECT, WRONG, UNKNOWN_KIND, CORRECT]
    assert count_pairs(samples, with_wrong=True) == (2, 0)
    assert rank(samples).order.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("n", [1, 1000])
def test_negative_classes_are_refused(n):
    y_true = np.tile([0, -1, -3], n)
    with pytest.raises(ValueError, match="y_true contains the label -3; known classes are labelled from 0"):
        read_samples(y_true, np.zeros(3 * n, dtype=int), np.zeros(3 * n))
    with pytest.raises(ValueError, match=r"y_true contains the label -3; .* unknown samples 0"):
        read_samples(y_true, np.zeros(3 * n, dtype=int), np.zeros(3 * n), unknown_label=0)


def test_other_marks_of_unknown():
    kinds = [CORRECT, UNKNOWN_KIND]
    assert read_samples([0, 9], [0, 0], [1, 2], unknown_label=9).kind.tolist() == kinds
    assert read_samples([0, 9], [0, 0], [1, 2], unknown_label=np.int64(9)).kind.tolist() == kinds
    assert read_samples([0, -7], [0, 0], [1, 2], unknown_label=-7).kind.tolist() == kinds
    assert read_samples(["a", "none"], ["a", "a"], [1, 2], unknown_label="none").kind.tolist() == kinds


@pytest.mark.parametrize("backend", BACKENDS)
def test_missing_sides(monkeypatch, backend):
    monkeypatch.setenv("OPENAUC_BACKEND", backend)
    with pytest.raises(ValueError, match="no unknown sample"):
        read_samples([0], [0], [1])
    assert read_samples([0], [0], [1], need_unknown=False).n_unknown == 0
    for empty in ([], [-1]):
        with pytest.raises(ValueError, match="no known sample"):
            read_samples(empty, empty, [0.0] * len(empty), need_unknown=False)


def test_the_triple_is_given_back_with_the_default_mark():
    samples = read_samples([0, 9, 9], [0, 0, 9], [1, 2, 3], unknown_label=9)
    assert [part.tolist() for part in samples.triple()] == [[0, -1, -1], [0, 0, -1], [1.0, 2.0, 3.0]]
    named = read_samples(["a", "other"], ["a", "other"], [1, 2], unknown_label="other")
    assert [part.tolist() for part in named.triple()[:2]] == [["a", "-1"], ["a", "-1"]]
    plain = read_samples([0, -1], [0, 0], [1, 2])
    assert plain.triple()[0] is plain.y_true


@given(triples())
def test_the_table_counts_accepted_samples(triple):
    ranking = rank(read_samples(*triple))
    table, score = ranking.table, triple.open_score.astype(np.float64)
    known = triple.y_true != UNKNOWN
    correct = known & (triple.y_true == triple.y_pred)
    assert (table.known[0], table.correct[0], table.unknown[0], table.threshold[0]) == (0, 0, 0, -np.inf)
    for column, threshold in list(enumerate(table.threshold))[1:]:
        accepted = score <= threshold
        assert table.known[column] == np.count_nonzero(accepted & known)
        assert table.correct[column] == np.count_nonzero(accepted & correct)
        assert table.unknown[column] == np.count_nonzero(accepted & ~known)
        assert np.array_equal(score[ranking.order][ranking.group == column], np.sort(score[score == threshold]))
    assert (table.n_known, table.n_unknown) == (known.sum(), (~known).sum())


def test_running_totals_of_integers_and_of_floats():
    ranking = rank(read_samples([0, 0, -1], [0, 0, 0], [1.0, 1.0, 2.0]))
    assert ranking.at_thresholds(np.array([True, True, False])).tolist() == [0, 2, 2]
    fractions = ranking.at_thresholds(np.array([[0.25, 0.5, 1.0], [1.0, 1.0, 1.0]]))
    assert fractions.dtype == np.float64
    assert fractions.tolist() == [[0.0, 0.75, 1.75], [0.0, 2.0, 3.0]]


def test_thresholds_without_any_sample_gain_nothing():
    """A replicate may leave the lowest and the highest score without a sample."""
    positive, negative = np.array([0, 0, 2, 2]), np.array([0, 0, 0, 2])
    threshold = np.array([-np.inf, 0.0, 1.0, 2.0])
    for side, expected in [("known", 1.0), ("unknown", 0.5)]:
        known, unknown = (positive, negative) if side == "known" else (negative, positive)
        assert average_precision_of(RankTable(threshold, known, known, unknown), side) == expected
        assert average_precision_of(RankTable(threshold, *(c[None] for c in (known, known, unknown))), side) == [
            expected
        ]
    nothing = np.zeros(3, dtype=int)
    assert average_precision_of(RankTable(threshold[:3], nothing, nothing, np.array([0, 1, 1]))) == 1.0


@given(triples())
def test_both_backends_give_the_same_metrics(monkeypatch, triple):
    def compute():
        return openauc_score(*triple), openauc_score(*triple, max_ofpr=0.4), average_precision(*triple)

    by_numpy, by_numba = on_both(monkeypatch, compute)
    assert by_numpy == by_numba


@pytest.fixture
def interpreted(monkeypatch):
    """Makes the kernel run the loops in Python, so that coverage and the debugger see them."""
    functions = {name: f.py_func for name, f in vars(_pairs).items() if hasattr(f, "py_func")}
    for name, function in functions.items():
        monkeypatch.setattr(_pairs, name, function)
    monkeypatch.setenv("OPENAUC_BACKEND", "numba")
    assert len(functions) >= 10


@pytest.mark.filterwarnings("ignore:overflow encountered in scalar:RuntimeWarning")  # unsigned keys wrap on purpose
@every_distribution
@both_types
def test_the_uncompiled_loops_count_and_rank(interpreted, monkeypatch, draw, dtype):
    samples = adversarial(draw, 150, dtype)
    for with_wrong in (False, True):
        assert count_pairs(samples, with_wrong=with_wrong) == pairs_by_numpy(monkeypatch, samples, with_wrong)
    same_ranking(*on_both(monkeypatch, lambda: rank(samples)))


@pytest.mark.filterwarnings("ignore:overflow encountered in scalar:RuntimeWarning")  # unsigned keys wrap on purpose
def test_crowded_and_sorted_bins(interpreted):
    """More known keys in a bin than a scan should visit: sorted where they are not, searched by halving."""
    rng = np.random.default_rng(0)
    for heap in (np.repeat([5.0, 7.0], 40), rng.permutation(np.repeat([5.0, 7.0], 40)), rng.normal(size=80)):
        outlier = np.array([-1e300, 1e300])
        known = np.concatenate([outlier, heap])
        unknown = np.concatenate([heap[::3], [6.0, 5.0]])
        true = np.array([0] * len(known) + [UNKNOWN] * len(unknown))
        triple = Triple(true, np.zeros_like(true), np.concatenate([known, unknown]))
        expected = oracles.pair_counts(*triple.lists, with_wrong=True)
        assert count_pairs(read_samples(*triple), with_wrong=True) == expected


@pytest.fixture
def not_loaded(monkeypatch):
    """numba is installed, but `_pairs` has not been imported yet; importing is recorded, not done."""
    imported = []
    monkeypatch.delitem(sys.modules, rank_table._COMPILED)
    monkeypatch.setattr(importlib, "import_module", lambda name: imported.append(name) or _pairs)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.delenv("OPENAUC_BACKEND", raising=False)
    return imported


@pytest.mark.parametrize(
    ("choice", "work", "loads"),
    [
        (None, 1 << 16, False),
        (None, 1 << 17, True),
        ("auto", (1 << 17) - 1, False),
        ("auto", 1 << 17, True),
        ("numpy", 1 << 30, False),
        ("numba", 1, True),
    ],
)
def test_the_compiled_loops_are_imported_when_they_pay(monkeypatch, not_loaded, choice, work, loads):
    if choice is not None:
        monkeypatch.setenv("OPENAUC_BACKEND", choice)
    assert compiled(work) is (_pairs if loads else None)
    assert not_loaded == ([rank_table._COMPILED] if loads else [])


def test_without_numba_numpy_does_the_work(monkeypatch, not_loaded):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert compiled(1 << 30) is None
    assert not_loaded == []


def test_asking_for_numba_without_it_is_an_error(monkeypatch):
    monkeypatch.setenv("OPENAUC_BACKEND", "numba")
    monkeypatch.delitem(sys.modules, rank_table._COMPILED)
    monkeypatch.setitem(sys.modules, "numba", None)
    with pytest.raises(ImportError, match="numba"):
        compiled(1)


@pytest.mark.parametrize(("work", "used"), [((1 << 12) - 1, False), (1 << 12, True)])
def test_once_imported_they_serve_smaller_inputs(monkeypatch, work, used):
    monkeypatch.delenv("OPENAUC_BACKEND", raising=False)
    assert (compiled(work) is _pairs) == used


def test_a_wrong_backend_is_refused(monkeypatch):
    monkeypatch.setenv("OPENAUC_BACKEND", "nunba")
    with pytest.raises(ValueError, match=r"OPENAUC_BACKEND is 'nunba'; expected one of .* Did you mean 'numba'"):
        openauc_score([0, -1], [0, 0], [0, 1])


def test_results_of_threads_come_in_order_and_errors_come_through():
    assert _pairs.in_threads(lambda i: i * i, 9) == [i * i for i in range(9)]

    def fail(i: int) -> int:
        if i == 3:
            raise RuntimeError("task 3")
        return i

    with pytest.raises(RuntimeError, match="task 3"):
        _pairs.in_threads(fail, 5)


@pytest.mark.parametrize("n_threads", [1, 3, 8])
def test_the_number_of_threads_does_not_matter(monkeypatch, n_threads):
    samples = adversarial(_heavy_tails, 5000)
    expected = pairs_by_numpy(monkeypatch, samples, True)
    monkeypatch.setattr(_pairs, "threads", lambda: n_threads)
    monkeypatch.setattr(_pairs, "_THREADS_FROM", 100)
    monkeypatch.setenv("OPENAUC_BACKEND", "numba")
    assert len(_pairs.parts_of(5000)) == n_threads
    assert count_pairs(samples, with_wrong=True) == expected
    again = read_samples(samples.y_true, samples.y_pred, samples.score)
    assert np.array_equal(again.kind, samples.kind)


def test_more_threads_than_the_samples_of_a_side(monkeypatch):
    monkeypatch.setattr(_pairs, "threads", lambda: 4)
    monkeypatch.setattr(_pairs, "_THREADS_FROM", 1)
    monkeypatch.setenv("OPENAUC_BACKEND", "numba")
    for n in (4, 5, 9):
        samples = adversarial(_ascending, n)
        assert count_pairs(samples, with_wrong=True) == pairs_by_numpy(monkeypatch, samples, True)


FORK = """
import os
import numpy as np
import openauc

rng = np.random.default_rng(0)
true = rng.integers(-1, 3, 300_000)
triple = true, np.zeros_like(true), rng.normal(size=len(true)) + (true == -1)
before = openauc.openauc_score(*triple)  # starts the threads
child = os.fork()
if not child:
    os._exit(openauc.openauc_score(*triple) != before)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_process_has_threads_of_its_own():
    environment = {**os.environ, "OPENAUC_BACKEND": "numba", "OMP_NUM_THREADS": "2"}
    result = subprocess.run(
        [sys.executable, "-c", FORK], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert result.returncode == 0, result.stderr
