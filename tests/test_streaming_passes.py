"""Second passes, slices and windows."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import Triple, random_triple, triples
from test_streaming import BY_CLASS, FEW, accumulate, crowded, cut

from openauc import METRICS, Accumulator, evaluate
from openauc.metrics.ranking import ScoreDirectionWarning
from openauc.streaming import Fading, Groups, Window

pytestmark = pytest.mark.filterwarnings(f"ignore::{ScoreDirectionWarning.__module__}.{ScoreDirectionWarning.__name__}")
SETTLED = ("openauc", "auroc", "closed_set_accuracy", "acc_times_auc", "acc_plus_auc")
SETTLED += ("fpr_at_95tpr", "error_at_95tpr", "ccr_at_10fpr", "detection_accuracy")


def settle(accumulator: Accumulator, parts: list[Any], max_bytes: int, most: int = 2000) -> tuple[Accumulator, int]:
    """Passes, each by two workers, until nothing is open."""
    for done in range(most):
        if accumulator.settled:
            return accumulator, done
        workers = [accumulator.refine(max_bytes=max_bytes) for _ in range(2)]
        for i, part in enumerate(parts):
            workers[i % 2].update(*part)
        accumulator = workers[1].merge(workers[0]).result()
    raise AssertionError("the passes do not come to an end")


@given(triples() | crowded(), st.integers(0, 16), st.sampled_from([1, 40, 400]))
def test_passes_in_little_memory_settle_to_the_last_bit(triple: Triple, edge: int, max_bytes: int) -> None:
    exact = evaluate(*triple, level=None)
    parts = cut(triple, [edge])
    settled, _ = settle(accumulate(parts, exact=False, per_class=True), parts, max_bytes)
    found, bounds = settled.compute(**FEW), settled.bounds
    for name in SETTLED:
        assert found.values[name] == exact.values[name], name
        assert bounds[name] == (exact.values[name],) * 2, name
        if METRICS[name].better == "lower" or name == "ccr_at_10fpr":
            assert found.thresholds[name] == exact.thresholds[name], name
    for name, (low, high) in bounds.items():
        assert low <= exact.values[name] <= high, name


@given(triples() | crowded(), st.integers(0, 16))
def test_a_pass_with_room_for_all_is_exact_in_everything(triple: Triple, edge: int) -> None:
    parts = cut(triple, [edge])
    settled, _ = settle(accumulate(parts, exact=False), parts, 1 << 20)
    assert (
        settled.compute(**FEW).values.items()
        >= {name: value for name, value in evaluate(*triple, **FEW).values.items() if name not in BY_CLASS}.items()
    )
    if settled.exact:
        assert settled.compute(**FEW) == evaluate(*triple, **FEW)


@pytest.mark.parametrize("backend", ["numpy", "numba"])
@pytest.mark.parametrize("max_bytes", [200_000, 4_000])
def test_passes_over_a_plausible_model(
    monkeypatch: pytest.MonkeyPatch, max_bytes: int, backend: str, tmp_path: Path
) -> None:
    monkeypatch.setenv("OPENAUC_BACKEND", backend)
    triple = random_triple(8000, seed=5)
    parts = cut(triple, [100, 5000])
    exact = evaluate(*triple, level=None)
    settled, passes = settle(accumulate(parts, exact=False), parts, max_bytes)
    assert 1 <= passes <= 40
    settled.save(tmp_path / "settled.npz")
    for accumulator in (settled, Accumulator.load(tmp_path / "settled.npz")):
        found = accumulator.compute(level=None)
        assert {name: found.values[name] for name in SETTLED} == {name: exact.values[name] for name in SETTLED}
    for what in (
        lambda: settled.update(*triple),
        lambda: settled.merge(settled),
        lambda: Accumulator.merge(settled, settled),
    ):
        with pytest.raises(ValueError, match=r"after refine\(\)"):
            what()


@given(triples() | crowded(), st.integers(0, 16), st.sampled_from([1, 40, 400]))
def test_compiled_passes_find_the_same(
    monkeypatch: pytest.MonkeyPatch, triple: Triple, edge: int, max_bytes: int
) -> None:
    parts, found = cut(triple, [edge]), []
    for backend in ("numpy", "numba"):
        monkeypatch.setenv("OPENAUC_BACKEND", backend)
        settled, passes = settle(accumulate(parts, exact=False), parts, max_bytes)
        refined = [] if settled.exact else [part.tolist() for both in settled.refined() for part in both]
        found.append((passes, dict(settled.bounds), refined))
    assert found[0] == found[1]


@pytest.mark.parametrize("backend", ["numpy", "numba"])
def test_ranges_with_too_many_samples_are_divided_first(monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    monkeypatch.setenv("OPENAUC_BACKEND", backend)
    rng = np.random.default_rng(9)
    triple = random_triple(4000)._replace(open_score=1.0 + rng.random(4000) / 4096)
    first = accumulate([triple], exact=False)
    second = first.refine(max_bytes=20_000)
    ((low, high),) = second.ranges
    assert (low, high) == (triple.open_score.min(), triple.open_score.max())
    second.update(*triple)
    divided = second.result()
    assert len(divided.refine(max_bytes=20_000).ranges) > 100
    before, after = first.bounds["openauc"], divided.bounds["openauc"]
    assert after[1] - after[0] < 0.01 < before[1] - before[0]
    settled, _ = settle(divided, [triple], 20_000)
    assert settled.bounds["openauc"] == (evaluate(*triple, level=None).openauc,) * 2


def test_samples_outside_of_the_ranges_may_be_left_out() -> None:
    triple = random_triple(500)
    first = accumulate([triple], exact=False)
    second = first.refine(max_bytes=5000)
    inside = np.zeros(500, dtype=bool)
    for low, high in second.ranges:
        inside |= (triple.open_score >= low) & (triple.open_score <= high)
    second.update(*(part[inside] for part in triple))
    assert not inside.all()
    assert second.result().bounds["openauc"][0] >= first.bounds["openauc"][0]


@pytest.mark.parametrize("max_bytes", [1 << 20, 5000, 1])
def test_other_samples_in_the_second_pass_are_noticed(max_bytes: int) -> None:
    triple = random_triple(500)
    second = accumulate([triple], exact=False).refine(max_bytes=max_bytes)
    second.update(*(part[:-200] for part in triple))
    with pytest.raises(ValueError, match="other samples than the ones before"):
        second.result()


@pytest.mark.parametrize("backend", ["numpy", "numba"])
def test_samples_of_one_range_in_place_of_another_are_noticed(monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    monkeypatch.setenv("OPENAUC_BACKEND", backend)
    triple = random_triple(500)
    second = accumulate([triple], exact=False).refine(max_bytes=5000)
    (low, high), *_, (_, last) = second.ranges
    moved = np.where(triple.open_score == last, low, triple.open_score)
    second.update(*triple._replace(open_score=moved))
    assert low < high <= last
    with pytest.raises(ValueError, match="other samples than the ones before"):
        second.result()


@pytest.mark.parametrize("backend", ["numpy", "numba"])
def test_a_pass_over_nothing_leaves_all_as_it_is(monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    monkeypatch.setenv("OPENAUC_BACKEND", backend)
    known, unknown = random_triple(500), random_triple(500)
    known = known._replace(y_true=np.abs(known.y_true), open_score=known.open_score / 1e6)
    unknown = unknown._replace(y_true=np.full(500, -1), open_score=np.full(500, 5.0))
    first = accumulate([known, unknown], exact=False)
    second = first.refine(max_bytes=100)
    assert second.ranges == []
    second.update(*known)
    assert second.result().bounds == first.bounds


def test_samples_that_come_twice_are_noticed_at_once() -> None:
    triple = random_triple(500)
    second = accumulate([triple], exact=False).refine(max_bytes=5000)
    second.update(*triple)
    with pytest.raises(ValueError, match=r"other samples than the ones before \(numbers of samples at least"):
        second.update(*triple)


def test_a_pass_travels_between_processes() -> None:
    triple = random_triple(3000)
    first = accumulate([triple], exact=False)
    parts = cut(triple, [1000])
    workers = [pickle.loads(pickle.dumps(first.refine(max_bytes=20_000))) for _ in parts]
    for worker, part in zip(workers, parts, strict=True):
        worker.update(*part)
    sent = [pickle.dumps(worker) for worker in workers]
    alone = first.refine(max_bytes=20_000)
    alone.update(*triple)
    assert alone.ranges
    merged = pickle.loads(sent[1]).merge(pickle.loads(sent[0]))
    assert merged.result().bounds == alone.result().bounds != first.bounds
    assert sum(map(len, sent)) < 2 * len(pickle.dumps(alone))


def test_a_pass_takes_no_more_ranges_than_it_can_number(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    triple = random_triple(4000)
    triple = triple._replace(open_score=(1 + rng.random(4000)) * 2.0 ** rng.integers(-30, 30, 4000))
    first = accumulate([triple, triple], exact=False)
    monkeypatch.setattr("openauc.streaming.refinement._MOST_RANGES", 7)
    assert len(first.refine(max_bytes=200_000).ranges) == 7
    settled, _ = settle(first, [triple, triple], 200_000)
    twice = [np.concatenate([part, part]) for part in triple]
    assert settled.bounds["openauc"] == (evaluate(*twice, level=None).openauc,) * 2


def test_what_cannot_be_refined() -> None:
    triple = random_triple(2000)
    with pytest.raises(ValueError, match="exact already"):
        accumulate([triple]).refine()
    first = accumulate([triple], exact=False)
    with pytest.raises(ValueError, match="max_bytes is 0"):
        first.refine(max_bytes=0)
    with pytest.raises(ValueError, match="different ranges"):
        first.refine(max_bytes=100).merge(first.refine(max_bytes=10_000))


def test_groups_are_evaluated_apart_and_together() -> None:
    triple, rng = random_triple(600, decimals=1), np.random.default_rng(1)
    by = rng.choice(["a", "b", "c"], 600)
    halves = [Groups(exact=False, per_class=True) for _ in range(2)]
    for half, index in zip(halves, np.array_split(rng.permutation(600), 2), strict=True):
        for part in np.array_split(index, 3):
            half.update(*(column[part] for column in triple), by=by[part])
    groups = halves[0].merge(halves[1])
    assert list(groups) == ["a", "b", "c"]
    assert len(groups) == 3
    for name, part in groups.items():
        assert part.compute(**FEW) == evaluate(*(column[by == name] for column in triple), **FEW)
    assert groups.total().compute(**FEW) == evaluate(*triple, **FEW)


def test_groups_take_all_samples_or_none() -> None:
    groups = Groups()
    with pytest.raises(ValueError, match="NaN"):
        groups.update([0, 0], [0, 0], [0.5, np.nan], by=["a", "b"])
    with pytest.raises(ValueError, match="y_true has 2 entries but by has 1"):
        groups.update([0, 0], [0, 0], [0.5, 0.1], by=["a"])
    groups.update([], [], [], by=[])
    assert len(groups) == 0
    with pytest.raises(TypeError):
        Groups(exakt=True)


@pytest.mark.parametrize("exact", [True, False])
def test_a_window_holds_the_last_periods(exact: bool) -> None:
    parts = [random_triple(50, seed=seed, decimals=1) for seed in range(5)]
    window = Window(2, exact=exact, per_class=True)
    for part in parts:
        window.advance()
        for piece in cut(part, [20]):
            window.update(*piece)
    last = [np.concatenate(columns) for columns in zip(*parts[-2:], strict=True)]
    assert window.total().compute(**FEW) == evaluate(*last, **FEW)
    with pytest.raises(ValueError, match="periods is 0"):
        Window(0)


def test_fading_samples_count_as_weights_do() -> None:
    parts = [random_triple(200, seed=seed, decimals=1) for seed in range(4)]
    stream = Fading(0.8)
    for part in parts:
        stream.advance()
        stream.update(*part)
    weight = np.repeat(0.8 ** np.arange(3, -1, -1), 200)
    together = [np.concatenate(columns) for columns in zip(*parts, strict=True)]
    expected = evaluate(*together, sample_weight=weight, **FEW)
    found = stream.compute(**FEW)
    assert set(METRICS) - set(found.values) == set(BY_CLASS)
    for name, value in found.values.items():
        assert value == pytest.approx(expected.values[name], abs=1e-5), name
    for name in ("openauc", "auroc", "closed_set_accuracy"):
        assert found.intervals[name] == pytest.approx(expected.intervals[name], abs=1e-5)


def test_a_stream_that_has_nothing_yet() -> None:
    with pytest.raises(ValueError, match="no known sample"):
        Fading(0.5).compute()
    with pytest.raises(ValueError, match=r"factor is 1\.5"):
        Fading(1.5)
