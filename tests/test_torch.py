import json
import pickle
import subprocess
import sys

import matplotlib as mpl
import numpy as np
import oracles
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from hypothesis import given, settings
from hypothesis import strategies as st
from methods.device_reads import device_reads
from strategies import Triple, fractions, random_triple, scores, triples
from torchmetrics import MetricCollection

import openauc
from openauc import Accumulator, ScoreDirectionWarning
from openauc.metrics.registry import TableMetric
from openauc.streaming import rows as keys
from openauc.torch import (
    AUROC,
    N_BINS,
    ClosedSetAccuracy,
    FPRAtTPR,
    OpenAUC,
    OpenSetMetric,
    bin_index,
    openauc_score,
    score_key,
)

mpl.use("Agg")

pytestmark = pytest.mark.filterwarnings("ignore::openauc.ScoreDirectionWarning")

METRICS = {
    "openauc": OpenAUC,
    "auroc": AUROC,
    "closed_set_accuracy": ClosedSetAccuracy,
    "fpr_at_95tpr": FPRAtTPR,
}
EXPECTED = {
    "openauc": openauc.openauc_score,
    "auroc": openauc.auroc_score,
    "closed_set_accuracy": lambda y_true, y_pred, _: openauc.closed_set_accuracy(y_true, y_pred),
    "fpr_at_95tpr": openauc.fpr_at_tpr,
}
HAND = Triple(np.array([0, 1, 1, -1, -1]), np.array([0, 1, 0, 1, 0]), np.array([0.1, 0.6, 0.2, 0.5, 0.9]))


def tensors(triple):
    return tuple(torch.from_numpy(part) for part in triple)


def expected(name, triple):
    if name == "closed_set_accuracy":
        return oracles.accuracy(*triple.lists[:2])
    return EXPECTED[name](*triple)


def updated(metric, *parts):
    for part in parts:
        metric.update(*tensors(part))
    return metric


def halves(triple, *, at=None):
    """Two uneven parts."""
    at = len(triple.y_true) // 3 if at is None else at
    return Triple(*(p[:at] for p in triple)), Triple(*(p[at:] for p in triple))


# The function


@given(triples(), st.sampled_from(["half", "strict"]))
def test_the_function_equals_that_of_arrays(triple, ties):
    value = openauc_score(*tensors(triple), ties=ties)
    assert value.shape == ()
    assert value.dtype == torch.float64
    assert value.item() == pytest.approx(oracles.openauc(*triple.lists, ties), abs=1e-12)
    assert value.item() == pytest.approx(openauc.openauc_score(*triple, ties=ties), abs=1e-12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("decimals", [1, None])
def test_the_function_takes_every_precision(dtype, decimals):
    y_true, y_pred, score = tensors(random_triple(3000, decimals=decimals))
    score = score.to(dtype)
    value = openauc_score(y_true.to(torch.int16), y_pred.to(torch.int32), score.requires_grad_())
    assert value.item() == pytest.approx(openauc.openauc_score(y_true, y_pred, score), abs=1e-12)
    assert not value.requires_grad


def test_scores_are_not_squashed():
    y_true, y_pred = torch.tensor([0, -1]), torch.tensor([0, 0])
    near = torch.tensor([40.0, 40.0]).nextafter(torch.tensor([40.0, 50.0]))
    assert openauc_score(y_true, y_pred, near) == 1.0
    assert openauc_score(y_true, y_pred, near - 39.9) == 1.0
    assert openauc_score(y_true, y_pred, torch.sigmoid(near)) == 0.5


def test_unsigned_labels_are_not_taken_for_the_unknown_label():
    with pytest.raises(ValueError, match="no unknown sample"):
        openauc_score(torch.tensor([255, 0], dtype=torch.uint8), torch.tensor([0, 0]), torch.tensor([0.5, 1.0]))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"y_true": torch.tensor([0.0, -1.0])}, TypeError, r"y_true must be .* got torch.float32; convert .*\.long"),
        ({"y_pred": [0, 1]}, TypeError, "y_pred must be a tensor of integers, got list"),
        ({"open_score": torch.tensor([1, 2])}, TypeError, r"open_score must be .* got torch.int64; .*\.double"),
        ({"open_score": torch.ones(2, 2)}, ValueError, r"open_score has shape \(2, 2\); .* logits="),
        ({"open_score": torch.ones(3)}, ValueError, "open_score has 3 entries but y_true has 2"),
        ({"open_score": torch.tensor([torch.nan, 1.0])}, ValueError, "1 samples cannot be ranked: .* NaN"),
        ({"y_true": torch.tensor([-100, -1])}, ValueError, "cannot be ranked: .* not the unknown label -1"),
        ({"y_true": torch.tensor([0, 1])}, ValueError, "no unknown sample: no y_true equals -1"),
        ({"y_true": torch.tensor([-1, -1])}, ValueError, "no known sample"),
        ({"ties": "hlaf"}, ValueError, "Did you mean 'half'"),
    ],
)
def test_what_cannot_be_measured_is_refused(change, error, message):
    arguments = {
        "y_true": torch.tensor([0, -1]),
        "y_pred": torch.tensor([0, 0]),
        "open_score": torch.tensor([0.0, 1.0]),
    }
    with pytest.raises(error, match=message):
        openauc_score(**{**arguments, **change})


def test_reversed_scores_are_warned_of():
    with pytest.warns(ScoreDirectionWarning, match=r"AUROC is 0\.0000"):
        openauc_score(torch.tensor([0, -1]), torch.tensor([0, 0]), torch.tensor([1.0, 0.0]))


# Keys and bins


@given(st.lists(scores(np.float64) | scores(np.float32), min_size=1))
def test_keys_are_those_of_arrays(values):
    array = np.array(values)
    assert score_key(torch.from_numpy(array)).tolist() == keys.score_key(array).tolist()


def test_where_there_is_no_float64_the_keys_are_the_same(monkeypatch):
    score = torch.randn(1000).exp()
    expected = score_key(score)
    monkeypatch.setattr("openauc.torch._precision", lambda device: torch.float32)
    assert torch.equal(score_key(score), expected)
    triple = random_triple(2000, dtype=np.float32, decimals=2)
    value = openauc_score(*tensors(triple))
    assert value.dtype == torch.float32
    assert value.item() == pytest.approx(openauc.openauc_score(*triple), rel=1e-6)


def test_bins_are_those_of_an_accumulator_and_rise_beyond_them():
    rng = np.random.default_rng(0)
    size = np.sort(np.exp2(rng.uniform(-70, 70, 5000)))
    score = np.concatenate([[-np.inf], -size[::-1], [0.0], size, [np.inf]])
    number = keys.bin_of(keys.score_key(score))
    index = bin_index(score_key(torch.from_numpy(score))).numpy()
    inside = (np.abs(score) >= 2.0**-64) & (np.abs(score) < 2.0**64)
    away = np.where(number < 0, ~number, number) - (keys.bin_of(keys.score_key(2.0**-64)))
    assert (index[inside] == np.where(number < 0, ~away, away)[inside] + N_BINS // 2).all()
    assert (np.diff(index) >= 0).all()
    assert index[0] == 0
    assert index[-1] == N_BINS - 1


def test_counts_are_those_of_an_accumulator():
    triple = random_triple(4000, decimals=3)
    metric, accumulator = updated(OpenAUC(exact=False), triple), Accumulator(exact=False, resolution=10)
    accumulator.update(*triple)
    sheet = accumulator._ranked()[1]
    held = metric.counts.any(dim=1)
    assert metric.counts[held].tolist() == sheet.counts[:, :3].tolist()
    assert metric.low[held].tolist() == sheet.low.tolist()
    assert metric.high[held].tolist() == sheet.high.tolist()


def test_as_many_samples_as_a_log_holds():
    metric = OpenAUC(exact=False)
    metric.update(*tensors(HAND))
    value = metric.compute()
    metric.counts *= 10**10
    metric._computed = None
    assert metric.compute().item() == pytest.approx(value.item(), rel=1e-15)


# Metrics


@pytest.mark.parametrize("name", METRICS)
@given(triple=triples())
def test_metrics_equal_those_of_arrays(name, triple):
    metric = updated(METRICS[name](), *halves(triple))
    value = metric.compute().item()
    assert value == pytest.approx(expected(name, triple), abs=1e-12)
    assert [end.item() for end in metric.bounds] == [value, value]


@settings(max_examples=15)
@given(triple=triples())
def test_bounds_hold(triple):
    state = updated(OpenAUC(exact=False), *halves(triple)).metric_state
    for name, kind in METRICS.items():
        metric = kind(exact=False)
        metric.merge_state(state)
        low, high = (end.item() for end in metric.bounds)
        assert low - 1e-12 <= expected(name, triple) <= high + 1e-12
        assert low - 1e-12 <= float(metric.metric.of_table(metric._table()[0])) <= high + 1e-12


@pytest.mark.parametrize("name", METRICS)
def test_bounds_are_those_of_an_accumulator(name):
    triple = random_triple(4000)
    metric, accumulator = updated(METRICS[name](exact=False), triple), Accumulator(exact=False, resolution=10)
    accumulator.update(*triple)
    assert [end.item() for end in metric.bounds] == pytest.approx(accumulator.bounds[name], abs=1e-12)
    assert metric.compute().item() == pytest.approx(accumulator.compute(level=None).values[name], abs=1e-12)
    if name in ("openauc", "auroc"):
        assert metric.bounds[0] < metric.bounds[1]


@given(triples(), fractions(), st.sampled_from(["half", "strict"]))
def test_options_are_those_of_the_functions(triple, tpr, ties):
    assert updated(FPRAtTPR(tpr=tpr), triple).compute().item() == pytest.approx(
        openauc.fpr_at_tpr(*triple, tpr=tpr), abs=1e-12
    )
    for metric, function in ((OpenAUC, openauc.openauc_score), (AUROC, openauc.auroc_score)):
        value = updated(metric(ties=ties), triple).compute().item()
        assert value == pytest.approx(function(*triple, ties=ties), abs=1e-12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_exact_in_constant_memory(dtype):
    y_true, y_pred, score = tensors(random_triple(5000))
    metric = OpenAUC(exact=False)
    metric.update(y_true, y_pred, score.to(dtype))
    exact = openauc.openauc_score(y_true, y_pred, score.to(dtype))
    assert [metric.compute().item(), *(end.item() for end in metric.bounds)] == pytest.approx([exact] * 3, abs=1e-12)


def test_magnitudes_beyond_the_table_are_bounded():
    triple = Triple(np.array([0, -1, 0, -1]), np.zeros(4, dtype=int), np.array([1e-200, 2e-200, 1e200, 2e200]))
    metric = updated(OpenAUC(exact=False), triple)
    low, high = metric.bounds
    assert low <= openauc.openauc_score(*triple) <= high
    assert (low.item(), high.item()) == (0.25, 0.75)


def test_logits_stand_for_their_arg_max_and_minus_their_maximum():
    logits = torch.randn(50, 4, dtype=torch.float64)
    y_true = torch.arange(50) % 5 - 1
    metric = OpenAUC()
    metric.update(y_true, logits=logits)
    assert metric.compute() == openauc_score(y_true, logits.argmax(1), -logits.amax(1))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({}, TypeError, "needs y_pred and open_score beside y_true, or logits="),
        ({"y_pred": torch.zeros(2).long()}, TypeError, "needs y_pred and open_score"),
        ({"y_pred": torch.zeros(2).long(), "logits": torch.ones(2, 3)}, TypeError, "not both"),
        ({"logits": torch.ones(2)}, ValueError, r"logits have shape \(2,\)"),
        ({"logits": torch.ones(2, 0)}, ValueError, r"logits have shape \(2, 0\)"),
    ],
)
def test_an_update_needs_predictions(arguments, error, message):
    with pytest.raises(error, match=message):
        OpenAUC().update(torch.tensor([0, -1]), **arguments)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"ties": "none"}, ValueError, "ties is 'none'"),
        ({"unknown_label": "other"}, TypeError, "unknown_label is 'other'; .* pass an integer"),
        ({"exakt": True}, ValueError, "exakt"),
    ],
)
def test_wrong_options_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        OpenAUC(**options)


def test_a_percentage_is_refused():
    with pytest.raises(ValueError, match="not a percentage"):
        FPRAtTPR(tpr=95)


def test_another_unknown_label():
    y_true, y_pred, score = tensors(HAND)
    metric = OpenAUC(unknown_label=-100)
    metric.update(torch.where(y_true == -1, -100, y_true), y_pred, score)
    assert metric.compute() == 0.5


@pytest.mark.parametrize("exact", [True, False])
def test_an_undefined_metric_raises(exact):
    y_true, y_pred, score = tensors(HAND)
    metric = OpenAUC(exact=exact)
    with pytest.warns(UserWarning, match="before the ``update``"), pytest.raises(ValueError, match="y_true is empty"):
        metric.compute()
    metric.update(y_true[:3], y_pred[:3], score[:3])
    with pytest.raises(ValueError, match="no unknown sample"):
        metric.compute()
    with pytest.raises(ValueError, match="no unknown sample"):
        _ = metric.bounds
    accuracy = ClosedSetAccuracy(exact=exact)
    accuracy.update(y_true[:3], y_pred[:3], score[:3])
    assert accuracy.compute().item() == 2 / 3
    metric.update(y_true, y_pred, torch.full_like(score, torch.nan))
    with pytest.raises(ValueError, match="5 samples cannot be ranked"):
        metric.compute()
    metric.reset()
    metric.update(*tensors(HAND))
    assert metric.compute() == 0.5


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("name", METRICS)
def test_forward_gives_the_value_of_the_batch_or_nan(name, exact):
    metric = METRICS[name](exact=exact)
    wanted = expected(name, HAND)
    known, unknown = halves(HAND, at=3)
    of_known, of_unknown, of_none = (
        metric(*tensors(part)).item() for part in (known, unknown, Triple(*(p[:0] for p in HAND)))
    )
    assert of_known == 2 / 3 if name == "closed_set_accuracy" else np.isnan(of_known)
    assert np.isnan([of_unknown, of_none]).all()
    assert metric.compute().item() == wanted
    assert metric(*tensors(HAND)).item() == wanted
    assert metric.compute().item() == wanted
    y_true, y_pred, score = tensors(HAND)
    assert metric(y_true, y_pred, torch.full_like(score, torch.nan)).isnan()


@pytest.mark.parametrize("exact", [True, False])
def test_an_update_reads_nothing_from_the_device(exact):
    metric, part = OpenAUC(exact=exact), tensors(random_triple(200))
    with device_reads() as reads:
        metric.update(*part)
        metric.update(part[0], logits=torch.randn(200, 3))
    assert reads == []


TABLE_METRICS = [name for name, metric in openauc.METRICS.items() if isinstance(metric, TableMetric)]


@pytest.mark.parametrize("name", TABLE_METRICS)
def test_every_metric_of_the_table_by_name(name):
    triple = random_triple(300, decimals=1)
    metric = updated(OpenSetMetric(name), *halves(triple))
    assert metric.compute().item() == openauc.evaluate(*triple, level=None).values[name]
    assert metric.higher_is_better == (openauc.METRICS[name].better == "higher")


def test_a_metric_of_ones_own_is_bounded_only_if_monotone():
    mine = TableMetric(
        function=lambda *_: 0.0,
        label="unknown share",
        of_table=lambda table: table.unknown[len(table.threshold) // 2] / table.n_unknown,
        influence=lambda table: None,
    )
    metric = updated(OpenSetMetric(mine, exact=False), random_triple(300))
    assert 0.0 < metric.compute().item() < 1.0
    with pytest.raises(TypeError, match=r"unknown share.*exact=True"):
        _ = metric.bounds
    exact = updated(OpenSetMetric(mine), random_triple(300))
    assert exact.bounds == (exact.compute(), exact.compute())
    accumulator = Accumulator(exact=False)
    accumulator.update(*random_triple(300))
    assert "mine" not in accumulator.bounds_of({"mine": mine})


def test_an_unknown_name_is_refused():
    with pytest.raises(ValueError, match="Did you mean 'auroc'"):
        OpenSetMetric("aurocc")


@pytest.mark.parametrize("exact", [True, False])
def test_merged_states_equal_one(exact):
    triple = random_triple(1000, decimals=2)
    one, other, empty = OpenAUC(exact=exact), OpenAUC(exact=exact), OpenAUC(exact=exact)
    for metric, part in zip((one, other), halves(triple), strict=True):
        metric.update(*tensors(part))
    one.merge_state(other)
    one.merge_state(empty)
    assert one.compute() == updated(OpenAUC(exact=exact), triple).compute()


@pytest.mark.parametrize("exact", [True, False])
def test_states_survive_copies_and_files(exact, tmp_path):
    triple = random_triple(500, decimals=2)
    first, second = halves(triple)
    value = updated(OpenAUC(exact=exact), triple).compute()
    metric = updated(OpenAUC(exact=exact), first)
    for copy in (pickle.loads(pickle.dumps(metric)), metric.clone()):
        assert updated(copy, second).compute() == value
    metric.persistent(True)
    torch.save(metric.state_dict(), tmp_path / "metric.pt")
    loaded = OpenAUC(exact=exact)
    loaded.load_state_dict(torch.load(tmp_path / "metric.pt"))
    assert updated(loaded, second).compute() == value
    assert OpenAUC(exact=exact).state_dict() == {}


@pytest.mark.parametrize("exact", [True, False])
def test_changing_the_precision_of_a_model_does_not_round_counts(exact):
    triple = random_triple(500)
    metric = updated(OpenAUC(exact=exact), triple)
    value = metric.compute()
    for changed in (metric.to(torch.float16), metric.half(), metric.set_dtype(torch.float16)):
        changed._computed = None
        assert changed.compute() == value


@pytest.mark.parametrize("exact", [True, False])
def test_updates_may_leave_inference_mode(exact):
    first, second = halves(random_triple(500))
    metric = OpenAUC(exact=exact)
    with torch.inference_mode():
        metric.reset()
        metric.update(*tensors(first))
    metric.update(*tensors(second))
    assert metric.compute() == openauc_score(*tensors(random_triple(500))) or not exact


@pytest.mark.parametrize("exact", [True, False])
def test_a_collection_shares_one_state(exact):
    triple = random_triple(1000, decimals=2)
    collection = MetricCollection({name: metric(exact=exact) for name, metric in METRICS.items()}, prefix="val/")
    for _ in range(2):
        for part in halves(triple):
            collection.update(*tensors(part))
        assert len(collection.compute_groups) == 1
        found = {name: value.item() for name, value in collection.compute().items()}
        if exact:
            assert found == pytest.approx({f"val/{name}": expected(name, triple) for name in METRICS}, abs=1e-12)
        low, high = collection["openauc"].bounds
        assert low <= openauc.openauc_score(*triple) <= high
        collection.reset()
    of_batch = collection(*tensors(triple))
    assert of_batch["val/auroc"].item() == pytest.approx(found["val/auroc"], abs=1e-12)


def test_plot_draws_values():
    metric = updated(OpenAUC(), HAND)
    figure, axes = metric.plot()
    assert axes.get_ylim()[0] <= 0.5 <= axes.get_ylim()[1]
    mpl.pyplot.close(figure)
    figure, axes = metric.plot([torch.tensor(0.25), metric.compute()])
    assert axes.get_lines()[0].get_ydata().tolist() == [0.25, 0.5]
    mpl.pyplot.close(figure)


def test_without_torchmetrics_the_error_says_what_to_install():
    code = "import sys; sys.modules['torchmetrics'] = None; import openauc.torch"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pip install 'openauc[torchmetrics]'" in done.stderr.splitlines()[-1]


# Two processes. Where the second begins; the first and last case leave one of them without samples.
CUTS = [0, 700, 1000]


def rank_of_two(rank, folder):
    torch.set_num_threads(1)  # threads of the parent process are not there
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    found = []
    for exact in (True, False):
        for cut in CUTS:
            part = halves(random_triple(1000, decimals=2), at=cut)[rank]
            metric = OpenAUC(exact=exact)
            if len(part.y_true):  # otherwise this process is not updated at all
                for piece in halves(part):
                    metric.update(*tensors(piece))
            found.append([metric.compute().item(), *(end.item() for end in metric.bounds)])
        with pytest.raises(ValueError, match="y_true is empty"):
            OpenAUC(exact=exact).compute()
    (folder / f"{rank}.json").write_text(json.dumps(found))
    dist.destroy_process_group()


def test_two_processes_equal_one(tmp_path):
    # Forked, because a new interpreter takes seconds to import torchmetrics and all that it looks for.
    mp.start_processes(rank_of_two, args=(tmp_path,), nprocs=2, start_method="fork")
    wanted = []
    for exact in (True, False):
        metric = updated(OpenAUC(exact=exact), random_triple(1000, decimals=2))
        wanted += [[metric.compute().item(), *(end.item() for end in metric.bounds)]] * len(CUTS)
    for rank in range(2):
        assert json.loads((tmp_path / f"{rank}.json").read_text()) == wanted
